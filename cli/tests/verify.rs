use crate::common::{TestDir, rows};
use crate::snapshot;

/// Changes one byte in the middle of a file.
fn flip(dir: &TestDir, name: &str) {
    let mut bytes = dir.read(name);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    dir.write(name, bytes);
}

#[test]
fn intact_dataset_passes() {
    let dir = TestDir::with_shards();
    snapshot!(dir.shown(&["verify", "shards"]), @r"
    exit 0
    --- stdout
    shards: all is well: 100 samples in 4 shards (5 files, 4.9 KiB, 8 hashes, values not decoded, in [TIME] at [RATE] MB/s)
    ");
    snapshot!(dir.shown(&["verify", "shards", "--deep", "--jobs", "2"]), @r"
    exit 0
    --- stdout
    shards: all is well: 100 samples in 4 shards (5 files, 4.9 KiB, 8 hashes, every value decoded, content compared, in [TIME] at [RATE] MB/s)
    ");
    insta::assert_snapshot!(dir.shown(&["verify", "shards", "-q"]), @"exit 0");
}

#[test]
fn each_problem_is_printed_on_one_line() {
    let dir = TestDir::with_shards();
    flip(&dir, "shards/shard.00001.mds.zstd");
    std::fs::remove_file(dir.path().join("shards/shard.00002.mds.zstd")).unwrap();
    dir.write("shards/stray.bin", "x");
    snapshot!(dir.shown(&["verify", "shards"]), @r"
    exit 3
    --- stdout
    shards: 2 problems in 2 of 4 shards, which hold 60 of 100 samples (4 files, 4.2 KiB, 5 hashes, values not decoded, in [TIME] at [RATE] MB/s)
    --- stderr
    error[hash-mismatch]: shards/shard.00001.mds.zstd: the hash is wrong: sha256 is [HASH], not [HASH] as the index says; the file was damaged or replaced; fetch or write it again
    error[shard-missing]: shards/shard.00002.mds.zstd: the file is missing, and with it samples 60 to 89; fetch or write the file again; if the dataset was replaced meanwhile, open it again
    warning[file-unlisted]: shards/stray.bin: the index does not name this file
    ");
}

#[test]
fn json_option_prints_a_json_report() {
    let dir = TestDir::with_shards();
    let report = dir.json(&["verify", "shards", "--json", "--deep"]);
    assert_eq!(
        (&report["ok"], &report["deep"], &report["samples"]),
        (&true.into(), &true.into(), &100.into())
    );
    flip(&dir, "shards/shard.00001.mds.zstd");
    let ran = dir.run(&["verify", "shards", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((ran.code, &report["ok"]), (3, &false.into()));
    assert_eq!(report["problems"][0]["id"], "hash-mismatch");
}

#[test]
fn all_splits_are_verified() {
    let dir = TestDir::new();
    dir.parquet("data/rows.parquet", &rows(100));
    dir.ok(&[
        "convert",
        "data",
        "out",
        "--split",
        "train=0.75,val=0.25",
        "--split-key",
        "name",
    ]);
    assert_eq!(dir.ok(&["verify", "out"]).lines().count(), 2);
    dir.write("out/train/index.json", "{");
    let ran = dir.run(&["verify", "out"]);
    assert_eq!(
        (ran.code, ran.stdout.lines().count()),
        (3, 1),
        "{}",
        ran.shown()
    );
}

#[test]
fn expect_index_rejects_another_index() {
    let dir = TestDir::with_shards();
    let wrong = format!("sha256:{}", "0".repeat(64));
    snapshot!(dir.shown(&["verify", "shards", "--expect-index", &wrong]), @r"
    exit 3
    --- stderr
    error[index-mismatch]: shards/index.json: sha256 of the index is [HASH], not [HASH] as requested
    ");
    snapshot!(dir.shown(&["verify", "shards", "--expect-index", "sha256:12"]), @r"
    exit 2
    --- stderr
    error[config-expect-index]: --expect-index: `sha256:12` is not the name of a cryptographic hash, a colon and its digits; as in sha256:9f86d081…
    ");
}

/// The order of the shards is content. A dataset without a provenance does not say which one it had.
#[test]
fn exchanged_shards_in_the_index_are_reported() {
    let formats: [&[&str]; 2] = [&["--compression", "none"], &["--to", "webdataset"]];
    for options in formats {
        let dir = TestDir::new();
        dir.parquet("data/rows.parquet", &rows(90));
        let args = ["convert", "data", "shards", "--samples-per-shard", "30"];
        dir.ok(&[&args[..], options].concat());
        dir.ok(&["verify", "shards", "--deep", "--strict"]);
        let text = dir.read("shards/index.json");
        let mut index: serde_json::Value = serde_json::from_slice(&text).unwrap();
        index["shards"].as_array_mut().unwrap().swap(0, 2);
        dir.write("shards/index.json", index.to_string());
        for more in [&[][..], &["--deep"]] {
            let ran = dir.run(&[&["verify", "shards"][..], more].concat());
            assert_eq!(ran.code, 3, "{options:?}: {}", ran.shown());
            let expected = "error[provenance-other]: shards/index.provenance: the conversion recorded another order of the 3 shards";
            assert!(ran.stderr.contains(expected), "{}", ran.shown());
        }
        // Neither are the samples read in the wrong order.
        let ran = dir.run(&["convert", "shards", "copy"]);
        assert_eq!(ran.code, 3, "{options:?}: {}", ran.shown());
        std::fs::remove_file(dir.path().join("shards/index.provenance")).unwrap();
        dir.ok(&["verify", "shards"]);
    }
}

/// Datasets of earlier versions do not record their order.
#[test]
fn provenance_without_an_order_passes() {
    let dir = TestDir::with_shards();
    let text = String::from_utf8(dir.read("shards/index.provenance")).unwrap();
    let lines = text.lines().filter(|line| !line.contains("\"order\""));
    let older: String = lines.map(|line| format!("{line}\n")).collect();
    assert_ne!(older, text);
    dir.write("shards/index.provenance", older);
    dir.ok(&["verify", "shards", "--deep", "--strict"]);
}

#[test]
fn exchanged_files_of_a_table_are_reported() {
    let dir = TestDir::new();
    dir.parquet("data/rows.parquet", &rows(90));
    let args = ["convert", "data", "table", "--to", "parquet"];
    dir.ok(&[&args[..], &["--samples-per-shard", "30", "--column", "id"]].concat());
    dir.ok(&["verify", "table", "--deep"]);
    let mut index: serde_json::Value =
        serde_json::from_slice(&dir.read("table/.index.json")).unwrap();
    index["files"].as_array_mut().unwrap().swap(0, 2);
    dir.write("table/.index.json", index.to_string());
    let ran = dir.run(&["verify", "table", "--deep"]);
    assert_eq!(ran.code, 3, "{}", ran.shown());
    let expected = "error[provenance-other]: table/.index.provenance: ";
    assert!(ran.stderr.contains(expected), "{}", ran.shown());
}
