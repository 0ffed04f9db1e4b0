//! Tests tar files that are named by a pattern.

use crate::common::TestDir;

#[test]
fn brace_patterns_expand_to_tar_files() {
    let dir = TestDir::with_tars();
    insta::assert_snapshot!(dir.shown(&["inspect", "--shards", "tars/shard-{000000..000001}.tar"]), @r"
    exit 0
    --- stdout
         0          3 samples    10.0 KiB raw    10.0 KiB stored  shard-000000.tar
         1          2 samples    10.0 KiB raw    10.0 KiB stored  shard-000001.tar
    ");
    // In the order of the pattern; lists are joined.
    for (pattern, keys) in [
        (
            "tars/shard-{000001,000000}.tar",
            ["b/1", "b/3", "a/0", "a/2", "a/4"],
        ),
        (
            "tars/shard-000001.tar::tars/shard-{0..000000}.tar",
            ["b/1", "b/3", "a/0", "a/2", "a/4"],
        ),
        (
            "{tars,tars/.}/shard-{000000..000001..2}.tar::tars/shard-000001.tar",
            [""; 5],
        ),
    ] {
        let lines = dir.run(&["cat", pattern]);
        if keys[0].is_empty() {
            assert!(lines.stderr.contains("[pattern-names]"), "{}", lines.stderr);
            continue;
        }
        let found: Vec<String> = lines
            .stdout
            .lines()
            .map(|line| {
                let sample: serde_json::Value = serde_json::from_str(line).unwrap();
                sample["__key__"].as_str().unwrap().to_owned()
            })
            .collect();
        assert_eq!(found, keys, "{pattern}");
    }
    dir.ok(&["verify", "tars/shard-{000000..000001}.tar", "--deep"]);
    dir.ok(&["inspect", "tars/shard-{000000..000001}.tar"]);
    dir.ok(&["convert", "tars", "whole"]);
    dir.ok(&["convert", "tars/shard-{000000..000001}.tar", "mds"]);
    assert_eq!(dir.read("mds/index.json"), dir.read("whole/index.json"));
    // A file that is there wins.
    std::fs::copy(
        dir.path().join("tars/shard-000001.tar"),
        dir.path().join("x{1..2}.tar"),
    )
    .unwrap();
    assert_eq!(dir.ok(&["cat", "x{1..2}.tar"]).lines().count(), 2);
}

#[test]
fn index_export_covers_the_files_of_a_pattern() {
    let dir = TestDir::with_tars();
    let export = |pattern, readers| dir.ok(&["index", "export", pattern, "--for", readers]);
    export("tars/shard-{000001,000000}.tar", "wids,dali");
    let index: serde_json::Value =
        serde_json::from_slice(&dir.read("tars/shardindex.json")).unwrap();
    let names = index["shardlist"].as_array().unwrap().iter();
    let names: Vec<&str> = names.map(|one| one["url"].as_str().unwrap()).collect();
    // Sorted, as the index of wids always is.
    assert_eq!(names, ["shard-000000.tar", "shard-000001.tar"]);
    let dali = dir.read("tars/shard-000001.idx");
    // Beneath the folder that they have in common.
    std::fs::create_dir(dir.path().join("other")).unwrap();
    let from = dir.path().join("tars/shard-000001.tar");
    std::fs::copy(from, dir.path().join("other/x.tar")).unwrap();
    export("{tars/shard-000000,other/x}.tar", "dali,open_clip");
    assert_eq!(dir.read("other/x.idx"), dali);
    assert_eq!(
        dir.read("sizes.json"),
        br#"{"shard-000000.tar": 3, "x.tar": 2}"#
    );
    insta::assert_snapshot!(
        dir.shown(&["index", "export", "tars/shard-00000{1..2}.tar", "--for", "dali"]),
        @r"
    exit 2
    --- stderr
    error[not-found]: tars/shard-000002.tar: cannot open: No such file or directory (os error 2)
    "
    );
}

#[test]
fn missing_file_of_a_pattern_is_an_error() {
    let dir = TestDir::with_tars();
    let pattern = "tars/shard-{000000..000002}.tar";
    insta::assert_snapshot!(dir.shown(&["cat", pattern]), @r"
    exit 2
    --- stderr
    error[not-found]: tars/shard-000002.tar: cannot open: No such file or directory (os error 2)
    ");
    insta::assert_snapshot!(dir.shown(&["convert", pattern, "mds"]), @r"
    exit 2
    --- stderr
    error[source-not-found]: tars/shard-000002.tar: no such file or directory
    ");
    insta::assert_snapshot!(dir.shown(&["bench", pattern, "--epochs", "1"]), @r"
    exit 2
    --- stderr
    error[shard-missing]: tars/shard-000002.tar: there is no such tar file, and the pattern `tars/shard-{000000..000002}.tar` names it
    ");
    for bad in [
        "tars/shard-{0..9999999}.tar",
        "tars/shard-{0..2.tar",
        "tars/shard-00000{0,0}.tar",
        "tars/{a,/../b}.tar",
        "{s3://a,s3://b}/x.tar",
        "s3://bucket/a.tar::b.tar",
    ] {
        let ran = dir.run(&["inspect", "--shards", bad]);
        assert_eq!(ran.code, 2, "{bad}: {}", ran.stderr);
        assert!(
            ran.stderr.contains("error[pattern-"),
            "{bad}: {}",
            ran.stderr
        );
    }
    // Of other things braces mean nothing.
    let ran = dir.run(&["inspect", "--shards", "tars/{a,b}"]);
    assert!(ran.stderr.contains("error[not-found]"), "{}", ran.stderr);
}
