//! Tests `convert --shuffle`: the same random order with any number of jobs, in every format, and what it excludes.

use serde_json::Value;

use crate::common::TestDir;

/// A place with a folder `rows` of 3,000 rows in three CSV files.
fn dir() -> TestDir {
    let dir = TestDir::new();
    std::fs::create_dir(dir.path().join("rows")).unwrap();
    for file in 0..3 {
        let rows = (file * 1000..(file + 1) * 1000).map(|id| format!("{id},t{id}\n"));
        let text = format!("id,text\n{}", rows.collect::<String>());
        std::fs::write(dir.path().join(format!("rows/{file}.csv")), text).unwrap();
    }
    dir
}

fn ids(dir: &TestDir, dataset: &str) -> Vec<u64> {
    let lines = dir.ok(&["cat", dataset, ".."]);
    let ids = lines.lines().map(|line| {
        let sample: Value = serde_json::from_str(line).unwrap();
        let id = sample["id"].as_u64();
        id.or_else(|| sample["id.int"].as_u64()).unwrap()
    });
    ids.collect()
}

#[test]
fn shuffled_order_does_not_depend_on_jobs() {
    let dir = dir();
    for (dest, jobs) in [("one", "1"), ("four", "4")] {
        let command = [
            "convert",
            "rows",
            dest,
            "--shuffle",
            "7",
            "--samples-per-shard",
            "700",
        ];
        dir.ok(&[&command[..], &["--jobs", jobs]].concat());
        dir.ok(&["verify", dest, "--deep"]);
    }
    assert_eq!(dir.read("one/index.json"), dir.read("four/index.json"));
    let order = ids(&dir, "one");
    assert_ne!(order[..20], (0..20).collect::<Vec<_>>());
    let mut sorted = order.clone();
    sorted.sort_unstable();
    assert!(sorted.into_iter().eq(0..3000));
    // Another seed gives another order, and the same command finds nothing to do.
    dir.ok(&["convert", "rows", "other", "--shuffle", "8"]);
    assert_ne!(ids(&dir, "other"), order);
    let again = dir.ok(&["convert", "rows", "other", "--shuffle", "8", "--json"]);
    let again: Value = serde_json::from_str(&again).unwrap();
    assert_eq!(again["outcome"], "already_done");
}

#[test]
fn datasets_and_trees_are_shuffled() {
    let dir = dir();
    dir.ok(&["convert", "rows", "mds"]);
    dir.ok(&["convert", "mds", "again", "--shuffle", "7"]);
    let mut found = ids(&dir, "again");
    assert_ne!(found[..20], (0..20).collect::<Vec<_>>());
    found.sort_unstable();
    assert!(found.into_iter().eq(0..3000));
    dir.ok(&[
        "convert",
        "rows",
        "tree",
        "--from",
        "tree",
        "--shuffle",
        "7",
        "--to",
        "webdataset",
    ]);
    assert_eq!(dir.ok(&["cat", "tree"]).lines().count(), 3);
}

#[test]
fn which_reports_no_source_rows_after_a_shuffle() {
    let dir = dir();
    dir.ok(&["convert", "rows/0.csv", "shuffled", "--shuffle", "7"]);
    let answer = dir.run(&["which", "shuffled", "--step", "0", "--batch-size", "2"]);
    let text = answer.stdout + &answer.stderr;
    assert!(text.contains("the conversion shuffled the rows"), "{text}");
}

#[test]
fn shuffle_with_parts_or_increments_is_rejected() {
    let dir = dir();
    for other in [&["--part", "0/2"][..], &["--incremental"]] {
        let ran = dir.run(&[&["convert", "rows", "out", "--shuffle", "7"], other].concat());
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(
            ran.stderr.contains("--shuffle") || ran.stderr.contains("[config-shuffle]"),
            "{}",
            ran.stderr
        );
    }
    assert!(!dir.path().join("out").exists());
}
