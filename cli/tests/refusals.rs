//! Tests conversions that are refused because their result would differ from the request.

use std::fs;

use crate::common::TestDir;

/// The id of the error that a command ends with.
fn refused(dir: &TestDir, args: &[&str]) -> String {
    let ran = dir.run(&[args, &["--json"]].concat());
    assert_ne!(ran.code, 0, "{args:?}: {}", ran.stdout);
    ran.error()["id"].as_str().unwrap().to_owned()
}

/// Changes one byte of a file.
fn damage(dir: &TestDir, name: &str, at: usize) {
    let mut bytes = dir.read(name);
    bytes[at] ^= 1;
    dir.write(name, bytes);
}

#[test]
fn converting_damaged_shards_is_a_hash_mismatch() {
    let dir = TestDir::new();
    dir.parquet("data/rows.parquet", &crate::common::rows(100));
    let options = ["--samples-per-shard", "30", "--compression", "none"];
    dir.ok(&[&["convert", "data", "shards"][..], &options].concat());
    let name = "shards/shard.00001.mds";
    damage(&dir, name, dir.read(name).len() - 1);
    for to in ["mds", "webdataset"] {
        let args = ["convert", "shards", "again", "--to", to];
        assert_eq!(refused(&dir, &args), "hash-mismatch", "{to}");
        assert!(!dir.exists("again/index.json"));
        // A conversion to MDS has begun there, one to tar files has not.
        let _ = fs::remove_dir_all(dir.path().join("again"));
    }
    // One sample of a shard that is not compressed is read without the others.
    dir.ok(&["cat", "shards", "0"]);

    dir.ok(&["convert", "data", "zipped", "--compression", "zstd"]);
    let name = "zipped/shard.00000.mds.zstd";
    damage(&dir, name, dir.read(name).len() / 2);
    assert_eq!(
        refused(&dir, &["convert", "zipped", "again"]),
        "hash-mismatch"
    );
    assert_eq!(refused(&dir, &["cat", "zipped", "0"]), "hash-mismatch");
}

#[test]
fn converting_damaged_tars_is_a_hash_mismatch() {
    for (options, name) in [
        (&[][..], "tars/shard-000000.tar"),
        (&["--compression", "zstd"], "tars/shard-000000.tar.zst"),
    ] {
        let dir = TestDir::with_tree();
        dir.convert_to_tars(options);
        let bytes = dir.read(name);
        let text = bytes.windows(6).position(|found| found == b"text 0");
        damage(&dir, name, text.unwrap_or(bytes.len() / 2));
        let args = ["convert", "tars", "again", "--to", "mds"];
        assert_eq!(refused(&dir, &args), "hash-mismatch", "{name}");
        assert!(!dir.exists("again/index.json"));
    }
}

#[test]
fn options_of_other_sources_are_rejected() {
    let dir = TestDir::with_shards();
    for (option, id) in [
        (&["--csv-no-header"][..], "config-csv-no-header"),
        (&["--csv-delimiter", ";"], "config-csv-delimiter"),
        (&["--follow-links"], "config-follow-links"),
        (&["--key-column", "nope"], "config-key"),
        (&["--infer-rows", "5"], "config-infer-rows"),
    ] {
        let args = [&["convert", "data", "again"][..], option].concat();
        assert_eq!(refused(&dir, &args), id);
    }
}

#[test]
fn too_many_columns_are_rejected() {
    let dir = TestDir::with_shards();
    let args = ["convert", "data", "again", "--safety-limit", "columns=4"];
    assert_eq!(refused(&dir, &args), "config-column");
    assert!(!dir.exists("again/index.json"));
    dir.ok(&["convert", "data", "again", "--safety-limit", "columns=5"]);
}

#[test]
fn too_long_column_names_are_rejected() {
    let dir = TestDir::new();
    let name = "h".repeat(66_000);
    dir.write("h.csv", format!("id,{name}\n1,x\n"));
    assert_eq!(refused(&dir, &["convert", "h.csv", "out"]), "config-column");
    let part = ["convert", "h.csv", "out", "--part", "0/1"];
    assert_eq!(refused(&dir, &part), "config-column");
    assert!(!dir.exists("out/index.json"));
    let raised = [
        "convert",
        "h.csv",
        "out",
        "--safety-limit",
        "string-bytes=1MiB",
    ];
    dir.ok(&raised);
}

#[test]
fn mds_shards_are_not_read_as_a_file_tree() {
    let dir = TestDir::new();
    dir.parquet("data/rows.parquet", &crate::common::rows(100));
    dir.ok(&["convert", "data", "both", "--split", "train=0.8,val=0.2"]);
    assert_eq!(
        refused(&dir, &["convert", "both", "again"]),
        "source-option"
    );
    dir.write("cut/shard.00000.mds", "x");
    dir.write("cut/.shardmill/journal", "x");
    assert_eq!(refused(&dir, &["convert", "cut", "again"]), "source-option");
    assert_eq!(refused(&dir, &["inspect", "cut"]), "index-missing");
}

#[test]
fn index_rebuild_rejects_an_unfinished_conversion() {
    for dir in [TestDir::with_shards(), TestDir::with_tars()] {
        let folder = if dir.exists("tars") { "tars" } else { "shards" };
        fs::remove_file(dir.path().join(folder).join("index.json")).unwrap();
        dir.write(&format!("{folder}/.shardmill/journal"), "x");
        let ran = dir.run(&["index", "rebuild", folder, "--json"]);
        assert_eq!(
            (ran.code, ran.error()["id"].as_str()),
            (4, Some("dest-unfinished"))
        );
        assert!(!dir.exists(&format!("{folder}/index.json")));
        fs::remove_dir_all(dir.path().join(folder).join(".shardmill")).unwrap();
        dir.ok(&["index", "rebuild", folder]);
    }
}

#[test]
fn bench_reads_tar_files_in_subfolders() {
    let dir = TestDir::with_tars();
    for (from, to) in [
        ("shard-000000.tar", "a/0.tar"),
        ("shard-000001.tar", "b/c/1.tar"),
    ] {
        let bytes = dir.read(&format!("tars/{from}"));
        dir.write(&format!("deep/{to}"), &bytes);
    }
    let read = |folder: &str| dir.json(&["bench", folder, "--json"])["samples"].clone();
    assert_eq!(read("deep"), 5);
    // A copy that is fetched has the folders as well.
    let ran = dir.json(&["bench", "deep", "--local", "copy", "--json"]);
    assert_eq!(ran["samples"], 5);
    assert!(dir.exists("copy/b/c/1.tar"));
    // Datasets of their own in folders are not one dataset.
    dir.write("deep/a/index.json", "{}");
    assert_eq!(refused(&dir, &["bench", "deep"]), "several-datasets");
}

#[test]
fn file_size_limit_is_reported_as_disk_full() {
    let dir = TestDir::new();
    dir.parquet("data/rows.parquet", &crate::common::rows(20_000));
    let program = assert_cmd::cargo::cargo_bin("shardmill");
    let limited = std::process::Command::new("bash")
        .args([
            "-c",
            "ulimit -f 100; exec \"$0\" convert data shards --json",
        ])
        .arg(program)
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert_eq!(limited.status.code(), Some(7), "{limited:?}");
    let text = String::from_utf8(limited.stderr).unwrap();
    assert!(text.contains("\"id\":\"disk-full\""), "{text}");
    assert!(!dir.exists("shards/index.json"));
}

#[test]
fn help_command_equals_help_option() {
    let dir = TestDir::new();
    assert_eq!(dir.ok(&["help"]), dir.ok(&["--help"]));
    assert_eq!(
        dir.ok(&["help", "index", "export"]),
        dir.ok(&["index", "export", "--help"])
    );
    assert_eq!(refused(&dir, &["help", "nothing"]), "usage-unknown-verb");
}
