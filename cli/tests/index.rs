use crate::common::{TestDir, rows};

#[test]
fn lost_index_is_rebuilt() {
    let place = TestDir::with_shards();
    let index = place.read("shards/index.json");
    std::fs::remove_file(place.path().join("shards/index.json")).unwrap();
    insta::assert_snapshot!(place.shown(&["index", "rebuild", "shards"]), @r"
    exit 0
    --- stdout
    shards/index.json: written: 100 samples in 4 shards
    ");
    assert_eq!(place.read("shards/index.json"), index);
    insta::assert_snapshot!(place.shown(&["index", "rebuild", "shards"]), @r"
    exit 0
    --- stdout
    shards/index.json: is already correct: 100 samples in 4 shards
    ");
}

#[test]
fn different_index_is_kept_without_force() {
    let place = TestDir::with_shards();
    let index = place.read("shards/index.json");
    place.write("shards/index.json", "{}");
    insta::assert_snapshot!(place.shown(&["index", "rebuild", "shards"]), @r"
    exit 4
    --- stderr
    error[index-exists]: shards/index.json: a different index exists; replace it with --force
    ");
    assert_eq!(place.read("shards/index.json"), b"{}");
    let report = place.json(&["index", "rebuild", "shards", "--force", "--json"]);
    assert_eq!(
        (&report["outcome"], &report["shards"]),
        (&"written".into(), &4.into())
    );
    assert_eq!(place.read("shards/index.json"), index);
}

#[test]
fn missing_shard_is_an_index_gap_error() {
    let place = TestDir::with_shards();
    std::fs::remove_file(place.path().join("shards/index.json")).unwrap();
    std::fs::remove_file(place.path().join("shards/shard.00001.mds.zstd")).unwrap();
    insta::assert_snapshot!(place.shown(&["index", "rebuild", "shards"]), @r"
    exit 3
    --- stderr
    error[index-gap]: shards: shard 1 is missing: the directory has 3 shards, the last of them number 3; an index without it would number the samples differently; find the file first
    ");
}

fn two() -> TestDir {
    let place = TestDir::new();
    place.parquet("data/rows.parquet", &rows(10));
    for name in ["root/b", "root/a/deep"] {
        place.ok(&["convert", "data", name]);
    }
    place
}

#[test]
fn merge_includes_all_datasets_in_subdirectories() {
    let place = two();
    insta::assert_snapshot!(place.shown(&["index", "merge", "root"]), @r"
    exit 0
    --- stdout
    root/index.json: written: 20 samples in 2 shards
    ");
    let names = place.ok(&["ls", "root", "--json"]);
    assert!(names.contains("a/deep/shard.00000.mds.zstd"), "{names}");
    assert_eq!(place.ok(&["cat", "root", ".."]).lines().count(), 20);
    insta::assert_snapshot!(place.shown(&["index", "merge", "root"]), @r"
    exit 0
    --- stdout
    root/index.json: is already correct: 20 samples in 2 shards
    ");
}

#[test]
fn listed_datasets_are_merged_in_given_order() {
    let place = two();
    let merge = [
        "index",
        "merge",
        "root/b",
        "root/a/deep",
        "--out",
        "root",
        "--json",
    ];
    assert_eq!(place.json(&merge)["samples"], 20);
    let names = place.ok(&["ls", "root"]);
    assert!(
        names
            .lines()
            .next()
            .unwrap()
            .contains(" b/shard.00000.mds.zstd"),
        "{names}"
    );
    insta::assert_snapshot!(place.shown(&["index", "merge", "root/b", "root/a/deep"]), @r"
    exit 2
    --- stderr
    error[config-out]: --out: there are 2 directories to merge; name the directory of the merged index with --out
    ");
    insta::assert_snapshot!(place.shown(&["index", "merge", "root/b", "--out", "root/a"]), @r"
    exit 2
    --- stderr
    error[merge-outside]: root/b/index.json: it is not below `root/a`, where the merged index is to be
    ");
}

/// A tree of ten samples in tar shards of three.
fn tars(options: &[&str]) -> TestDir {
    let place = TestDir::new();
    for sample in 0..10 {
        place.write(&format!("tree/{sample}.txt"), format!("text {sample}"));
        if sample != 4 {
            place.write(&format!("tree/{sample}.cls"), sample.to_string());
        }
    }
    place.convert_to_tars(&[&["--nulls", "omit"][..], options].concat());
    place
}

/// The files of a folder, by name.
fn files(place: &TestDir) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(place.path().join("tars")).unwrap();
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
        let place = tars(convert);
        let written = files(&place);
        for (name, _) in &written {
            let is_side = std::path::Path::new(name)
                .extension()
                .is_some_and(|end| end == "idx");
            if is_side || name == "index.json" {
                std::fs::remove_file(place.path().join("tars").join(name)).unwrap();
            }
        }
        place.ok(&[&["index", "rebuild", "tars"], rebuild].concat());
        assert_eq!(files(&place), written, "{convert:?}");
        place.ok(&["verify", "tars", "--deep"]);
    }
}

#[test]
fn different_tar_side_files_are_kept_without_force() {
    let place = tars(&[]);
    let written = files(&place);
    insta::assert_snapshot!(place.shown(&["index", "rebuild", "tars"]), @r"
    exit 0
    --- stdout
    tars/index.json: is already correct: 10 samples in 4 shards
    ");
    place.write("tars/index.json", "{}");
    place.write("tars/shard-000001.tar.idx", "old");
    insta::assert_snapshot!(place.shown(&["index", "rebuild", "tars"]), @r"
    exit 4
    --- stderr
    error[index-exists]: tars/shard-000001.tar.idx: another file exists; replace it with --force
    ");
    assert_eq!(place.read("tars/shard-000001.tar.idx"), b"old");
    insta::assert_snapshot!(place.shown(&["index", "rebuild", "tars", "--force"]), @r"
    exit 0
    --- stdout
    tars/index.json: written: 10 samples in 4 shards
    ");
    assert_eq!(files(&place), written);
    // Hashes of MDS are in its shards.
    let mds = TestDir::with_shards();
    insta::assert_snapshot!(mds.shown(&["index", "rebuild", "shards", "--hashes", "md5"]), @r"
    exit 2
    --- stderr
    error[config-hashes]: --hashes: the headers of these shards say which hashes their index has; omit it
    ");
    // One shard in two forms.
    place.write("tars/shard-000001.tar.gz", "");
    insta::assert_snapshot!(place.shown(&["index", "rebuild", "tars"]), @r"
    exit 4
    --- stderr
    error[shard-ambiguous]: tars/shard-000001.tar.gz: `shard-000001.tar` is the same shard; move one of the files away
    ");
    std::fs::remove_file(place.path().join("tars/shard-000001.tar.gz")).unwrap();
    let bytes = place.read("tars/shard-000002.tar");
    place.write("tars/shard-000002.tar", &bytes[..600]);
    insta::assert_snapshot!(place.shown(&["index", "rebuild", "tars", "--force"]), @r"
    exit 3
    --- stderr
    error[tar-end]: tars/shard-000002.tar: cannot read the shard: the file ends at byte 600 without the two zero blocks that end an archive; the shard was cut off; write or fetch it again, or repair it to keep the samples that are whole
    ");
    place.write("none/notes.txt", "");
    insta::assert_snapshot!(place.shown(&["index", "rebuild", "none"]), @r"
    exit 2
    --- stderr
    error[index-no-shards]: none: there are no shards in this directory
    ");
}
