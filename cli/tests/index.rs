use crate::common::{TestDir, rows};

#[test]
fn lost_index_is_rebuilt() {
    let dir = TestDir::with_shards();
    let index = dir.read("shards/index.json");
    std::fs::remove_file(dir.path().join("shards/index.json")).unwrap();
    insta::assert_snapshot!(dir.shown(&["index", "rebuild", "shards"]), @r"
    exit 0
    --- stdout
    shards/index.json: written: 100 samples in 4 shards
    ");
    assert_eq!(dir.read("shards/index.json"), index);
    insta::assert_snapshot!(dir.shown(&["index", "rebuild", "shards"]), @r"
    exit 0
    --- stdout
    shards/index.json: is already correct: 100 samples in 4 shards
    ");
}

#[test]
fn different_index_is_kept_without_force() {
    let dir = TestDir::with_shards();
    let index = dir.read("shards/index.json");
    dir.write("shards/index.json", "{}");
    insta::assert_snapshot!(dir.shown(&["index", "rebuild", "shards"]), @r"
    exit 4
    --- stderr
    error[index-exists]: shards/index.json: a different index exists; replace it with --force
    ");
    assert_eq!(dir.read("shards/index.json"), b"{}");
    let report = dir.json(&["index", "rebuild", "shards", "--force", "--json"]);
    assert_eq!(
        (&report["outcome"], &report["shards"]),
        (&"written".into(), &4.into())
    );
    assert_eq!(dir.read("shards/index.json"), index);
}

#[test]
fn missing_shard_is_an_index_gap_error() {
    let dir = TestDir::with_shards();
    std::fs::remove_file(dir.path().join("shards/index.json")).unwrap();
    std::fs::remove_file(dir.path().join("shards/shard.00001.mds.zstd")).unwrap();
    insta::assert_snapshot!(dir.shown(&["index", "rebuild", "shards"]), @r"
    exit 3
    --- stderr
    error[index-gap]: shards: shard 1 is missing: the directory has 3 shards, the last of them number 3; an index without it would number the samples differently; find the file first
    ");
}

fn two() -> TestDir {
    let dir = TestDir::new();
    dir.parquet("data/rows.parquet", &rows(10));
    for name in ["root/b", "root/a/deep"] {
        dir.ok(&["convert", "data", name]);
    }
    dir
}

#[test]
fn merge_includes_all_datasets_in_subdirectories() {
    let dir = two();
    insta::assert_snapshot!(dir.shown(&["index", "merge", "root"]), @r"
    exit 0
    --- stdout
    root/index.json: written: 20 samples in 2 shards
    ");
    let names = dir.ok(&["inspect", "--shards", "root", "--json"]);
    assert!(names.contains("a/deep/shard.00000.mds.zstd"), "{names}");
    assert_eq!(dir.ok(&["cat", "root", ".."]).lines().count(), 20);
    insta::assert_snapshot!(dir.shown(&["index", "merge", "root"]), @r"
    exit 0
    --- stdout
    root/index.json: is already correct: 20 samples in 2 shards
    ");
}

#[test]
fn listed_datasets_are_merged_in_given_order() {
    let dir = two();
    let merge = [
        "index",
        "merge",
        "root/b",
        "root/a/deep",
        "--out",
        "root",
        "--json",
    ];
    assert_eq!(dir.json(&merge)["samples"], 20);
    let names = dir.ok(&["inspect", "--shards", "root"]);
    assert!(
        names
            .lines()
            .next()
            .unwrap()
            .contains(" b/shard.00000.mds.zstd"),
        "{names}"
    );
    insta::assert_snapshot!(dir.shown(&["index", "merge", "root/b", "root/a/deep"]), @r"
    exit 2
    --- stderr
    error[config-out]: --out: there are 2 directories to merge; name the directory of the merged index with --out
    ");
    insta::assert_snapshot!(dir.shown(&["index", "merge", "root/b", "--out", "root/a"]), @r"
    exit 2
    --- stderr
    error[merge-outside]: root/b/index.json: it is not below `root/a`, where the merged index is to be
    ");
}

/// A tree of ten samples in tar shards of three.
fn tars(options: &[&str]) -> TestDir {
    let dir = TestDir::new();
    for sample in 0..10 {
        dir.write(&format!("tree/{sample}.txt"), format!("text {sample}"));
        if sample != 4 {
            dir.write(&format!("tree/{sample}.cls"), sample.to_string());
        }
    }
    dir.convert_to_tars(&[&["--nulls", "omit"][..], options].concat());
    dir
}

/// The files of a folder, by name.
fn files(dir: &TestDir) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(dir.path().join("tars")).unwrap();
    let mut files: Vec<(String, Vec<u8>)> = entries
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read(path).unwrap())
        })
        .collect();
    files.sort();
    files
}

#[test]
fn rebuilt_tar_index_equals_the_written_one() {
    for (convert, rebuild) in [
        (&[][..], &[][..]),
        (&["--hashes", "none"], &["--hashes", "none"]),
        (
            &["--hashes", "sha256,xxh64,md5"],
            &["--hashes", "sha256,xxh64,md5"],
        ),
        (&["--compression", "zstd:3"], &[]),
        (
            &["--compression", "gz:6", "--hashes", "xxh64"],
            &["--hashes", "xxh64"],
        ),
        (&["--shard-pattern", "train-%03d.tar"], &["--jobs", "1"]),
    ] {
        let dir = tars(convert);
        let written = files(&dir);
        for (name, _) in &written {
            let is_side = std::path::Path::new(name)
                .extension()
                .is_some_and(|end| end == "idx");
            if is_side || name == "index.json" {
                std::fs::remove_file(dir.path().join("tars").join(name)).unwrap();
            }
        }
        dir.ok(&[&["index", "rebuild", "tars"], rebuild].concat());
        assert_eq!(files(&dir), written, "{convert:?}");
        dir.ok(&["verify", "tars", "--deep"]);
    }
}

#[test]
fn different_tar_side_files_are_kept_without_force() {
    let dir = tars(&[]);
    let written = files(&dir);
    insta::assert_snapshot!(dir.shown(&["index", "rebuild", "tars"]), @r"
    exit 0
    --- stdout
    tars/index.json: is already correct: 10 samples in 4 shards
    ");
    dir.write("tars/index.json", "{}");
    dir.write("tars/shard-000001.tar.idx", "old");
    insta::assert_snapshot!(dir.shown(&["index", "rebuild", "tars"]), @r"
    exit 4
    --- stderr
    error[index-exists]: tars/shard-000001.tar.idx: another file exists; replace it with --force
    ");
    assert_eq!(dir.read("tars/shard-000001.tar.idx"), b"old");
    insta::assert_snapshot!(dir.shown(&["index", "rebuild", "tars", "--force"]), @r"
    exit 0
    --- stdout
    tars/index.json: written: 10 samples in 4 shards
    ");
    assert_eq!(files(&dir), written);
    // Hashes of MDS are in its shards.
    let mds = TestDir::with_shards();
    insta::assert_snapshot!(mds.shown(&["index", "rebuild", "shards", "--hashes", "md5"]), @r"
    exit 2
    --- stderr
    error[config-hashes]: --hashes: the headers of these shards say which hashes their index has; omit it
    ");
    // One shard in two forms.
    dir.write("tars/shard-000001.tar.gz", "");
    insta::assert_snapshot!(dir.shown(&["index", "rebuild", "tars"]), @r"
    exit 4
    --- stderr
    error[shard-ambiguous]: tars/shard-000001.tar.gz: `shard-000001.tar` is the same shard; move one of the files away
    ");
    std::fs::remove_file(dir.path().join("tars/shard-000001.tar.gz")).unwrap();
    let bytes = dir.read("tars/shard-000002.tar");
    dir.write("tars/shard-000002.tar", &bytes[..600]);
    insta::assert_snapshot!(dir.shown(&["index", "rebuild", "tars", "--force"]), @r"
    exit 3
    --- stderr
    error[tar-end]: tars/shard-000002.tar: cannot read the shard: the file ends at byte 600 without the two zero blocks that end an archive; the shard was cut off; write or fetch it again
    ");
    dir.write("none/notes.txt", "");
    insta::assert_snapshot!(dir.shown(&["index", "rebuild", "none"]), @r"
    exit 2
    --- stderr
    error[index-no-shards]: none: there are no shards in this directory
    ");
}
