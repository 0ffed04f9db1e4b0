//! Tests samples that were deleted from a Delta table: every command ignores them by default.

use serde_json::{Value, json};
use shardmill_testing::delta::{Row, Table};
use shardmill_testing::files::copy_tree;

use crate::common::TestDir;

fn rows(first: i64, count: i64) -> Vec<Row> {
    let row = |id: i64| (id, format!("text of {id}"));
    (first..first + count).map(row).collect()
}

fn convert(dir: &TestDir, table: &str, dest: &str, more: &[&str]) -> Value {
    let args = [
        "convert",
        table,
        dest,
        "--incremental",
        "--samples-per-shard",
        "7",
        "--json",
    ];
    dir.json(&[&args[..], more].concat())
}

/// A table of 30 rows, and a dataset of it in which some of them are deleted, the whole second shard among them.
fn with_deleted(more: &[&str]) -> (TestDir, Table) {
    let dir = TestDir::new();
    let mut table = Table::create(&dir.path().join("t")).unwrap();
    table.append(&rows(0, 30)).unwrap();
    convert(&dir, "t", "shards", more);
    table
        .delete(|(id, _)| matches!(id, 0 | 5 | 7..14 | 29))
        .unwrap();
    convert(&dir, "t", "shards", more);
    (dir, table)
}

/// The samples that `cat` prints, in their order.
fn cat(dir: &TestDir, dataset: &str, more: &[&str]) -> Vec<Row> {
    let text = dir.ok(&[&["cat", dataset, "0.."], more].concat());
    let row = |line: &str| {
        let sample: Value = serde_json::from_str(line).unwrap();
        let text = sample["text"].as_str().or(sample["txt"].as_str());
        let id = &sample["id"];
        let id = id.as_i64().or_else(|| id.as_str()?.trim().parse().ok());
        (id.unwrap(), text.unwrap().to_owned())
    };
    text.lines().map(row).collect()
}

#[test]
fn view_skips_deleted_samples() {
    let dir = TestDir::new();
    let mut table = Table::create(&dir.path().join("t")).unwrap();
    table.append(&rows(0, 30)).unwrap();
    convert(&dir, "t", "shards", &[]);
    dir.ok(&[
        "select",
        "shards",
        "--where",
        "id % 2 = 1",
        "-o",
        "odd.view",
    ]);
    table.delete(|(id, _)| matches!(id, 0 | 5 | 7..14)).unwrap();
    convert(&dir, "t", "shards", &[]);
    // The view is as it was, because deletions do not change the index.
    let left: Vec<Row> = table
        .rows()
        .into_iter()
        .filter(|(id, _)| id % 2 == 1)
        .collect();
    assert_eq!(cat(&dir, "shards", &["--view", "odd.view"]), left);
    assert_eq!(
        cat(&dir, "shards", &["--view", "odd.view", "--with-deleted"]).len(),
        15
    );
    let found = dir.json(&["inspect", "shards", "--view", "odd.view", "--json"]);
    assert_eq!(
        (&found["samples"], &found["deleted_samples"]),
        (&json!(left.len()), &json!(9))
    );
    // Selecting again numbers what is left.
    dir.ok(&[
        "select",
        "shards",
        "--where",
        "__sample__ < 3",
        "-o",
        "first.view",
    ]);
    assert_eq!(
        cat(&dir, "shards", &["--view", "first.view"]),
        table.rows()[..3]
    );
    dir.ok(&[
        "select",
        "shards",
        "--view",
        "odd.view",
        "--invert",
        "-o",
        "even.view",
    ]);
    let even: Vec<Row> = table
        .rows()
        .into_iter()
        .filter(|(id, _)| id % 2 == 0)
        .collect();
    assert_eq!(cat(&dir, "shards", &["--view", "even.view"]), even);
    // An appended shard makes another dataset.
    table.append(&rows(30, 3)).unwrap();
    convert(&dir, "t", "shards", &[]);
    let refused = dir.run(&["cat", "shards", "--view", "odd.view"]);
    assert!(
        refused.stderr.contains("error[view-dataset]"),
        "{}",
        refused.stderr
    );
}

#[test]
fn all_commands_skip_deleted_samples() {
    let (dir, mut table) = with_deleted(&[]);
    let left = table.rows();
    assert_eq!(left.len(), 20);
    assert_eq!(cat(&dir, "shards", &[]), left);
    assert_eq!(cat(&dir, "shards", &["--with-deleted"]).len(), 30);
    // Numbers are those of the samples that are left.
    let line: Value = serde_json::from_str(&dir.ok(&["cat", "shards", "5"])).unwrap();
    assert_eq!(line["id"], left[5].0);
    let ran = dir.run(&["cat", "shards", "20"]);
    assert_eq!(ran.code, 2, "{}", ran.shown());
    assert!(ran.stderr.contains("20"), "{}", ran.shown());
    let inspected = dir.json(&["inspect", "shards", "--json"]);
    assert_eq!(
        (&inspected["samples"], &inspected["deleted_samples"]),
        (&json!(20), &json!(10))
    );
    let counts = |more: &[&str]| -> Vec<u64> {
        let text = dir.ok(&[&["inspect", "--shards", "shards", "--json"], more].concat());
        let line = |line: &str| serde_json::from_str::<Value>(line).unwrap();
        let samples = text.lines().map(|text| line(text)["samples"].as_u64());
        samples.map(Option::unwrap).collect()
    };
    assert_eq!(counts(&[]), [5, 0, 7, 7, 1]);
    assert_eq!(counts(&["--with-deleted"]), [7, 7, 7, 7, 2]);
    // The order is the one of shards with so many samples.
    let order = |args: &[&str]| {
        dir.ok(&[
            &[
                "order",
                "--shuffle",
                "--shuffle-seed",
                "7",
                "--batch-size",
                "3",
            ],
            args,
        ]
        .concat())
    };
    assert_eq!(order(&["shards"]), order(&["--shards", "5,0,7,7,1"]));
    assert_eq!(
        order(&["shards", "--with-deleted"]),
        order(&["--shards", "7,7,7,7,2"])
    );

    let report = dir.json(&["convert", "shards", "copy", "--json"]);
    assert_eq!(
        (&report["samples"], &report["deleted_samples"]),
        (&json!(20), &json!(10))
    );
    assert_eq!(cat(&dir, "copy", &[]), left);
    let again = dir.json(&["convert", "shards", "copy", "--json"]);
    assert_eq!(again["outcome"], "already_done");
    let all = dir.json(&["convert", "shards", "all", "--with-deleted", "--json"]);
    assert_eq!(all["samples"], 30);
    assert_eq!(cat(&dir, "all", &[]).len(), 30);
    // What a table loses later is another source.
    table.delete(|(id, _)| *id == 20).unwrap();
    convert(&dir, "t", "shards", &[]);
    let ran = dir.run(&["convert", "shards", "copy"]);
    assert_eq!(ran.code, 4, "{}", ran.shown());
}

#[test]
fn deleted_samples_in_tar_shards_are_skipped() {
    let (dir, table) = with_deleted(&[
        "--to",
        "webdataset",
        "--column",
        "id",
        "--column",
        "txt=text",
    ]);
    let left = table.rows();
    assert_eq!(cat(&dir, "shards", &[]), left);
    assert_eq!(cat(&dir, "shards", &["--with-deleted"]).len(), 30);
    let report = dir.json(&["convert", "shards", "copy", "--to", "webdataset", "--json"]);
    assert_eq!(
        (&report["samples"], &report["deleted_samples"]),
        (&json!(20), &json!(10))
    );
    assert_eq!(cat(&dir, "copy", &[]), left);
    let inspected = dir.json(&["inspect", "shards", "--json"]);
    assert_eq!(inspected["samples"], 20);
    dir.ok(&["verify", "shards", "--deep"]);
    std::fs::remove_file(dir.path().join("shards/index.tombstones")).unwrap();
    for args in [
        &["verify", "shards"][..],
        &["cat", "shards"],
        &["convert", "shards", "other"],
    ] {
        let ran = dir.run(args);
        assert_eq!(ran.code, 3, "{}", ran.shown());
        let wanted = "error[tombstones-missing]: shards/index.tombstones";
        assert!(ran.stderr.contains(wanted), "{}", ran.shown());
    }
}

#[test]
fn merged_index_keeps_tombstones() {
    let (dir, table) = with_deleted(&[]);
    let mut other = Table::create(&dir.path().join("u")).unwrap();
    other.append(&rows(100, 10)).unwrap();
    convert(&dir, "u", "root/b", &[]);
    other.delete(|(id, _)| *id == 100 || *id == 108).unwrap();
    convert(&dir, "u", "root/b", &[]);
    copy_tree(&dir.path().join("shards"), &dir.path().join("root/a")).unwrap();
    let mut expected = table.rows();
    expected.extend(other.rows());
    for (merge, root) in [
        (&["index", "merge", "root"][..], "root"),
        (
            &["index", "merge", "root/a", "root/b", "--out", "root"],
            "root",
        ),
    ] {
        dir.ok(merge);
        assert_eq!(cat(&dir, root, &[]), expected);
        dir.ok(&["verify", root, "--deep", "--strict"]);
        // It is already correct.
        let again = dir.ok(merge);
        assert!(again.contains("is already correct"), "{again}");
    }
    let provenance: Value = serde_json::from_slice(&dir.read("root/index.provenance")).unwrap();
    assert_eq!(provenance["tombstones"]["count"], 12);
    assert_eq!(provenance["samples"], 40);
    let report = dir.json(&["convert", "root", "copy", "--json"]);
    assert_eq!(report["samples"], 28);
    assert_eq!(cat(&dir, "copy", &[]), expected);
    // A part whose list is lost is not merged.
    std::fs::remove_file(dir.path().join("root/a/index.tombstones")).unwrap();
    let ran = dir.run(&["index", "merge", "root", "--force"]);
    assert_eq!(ran.code, 3, "{}", ran.shown());
    assert!(
        ran.stderr.contains("root/a/index.tombstones"),
        "{}",
        ran.shown()
    );
}

#[test]
fn forced_merge_removes_stale_tombstones() {
    let (dir, _) = with_deleted(&[]);
    copy_tree(&dir.path().join("shards"), &dir.path().join("root/a")).unwrap();
    dir.ok(&["index", "merge", "root"]);
    std::fs::remove_dir_all(dir.path().join("root/a")).unwrap();
    dir.ok(&["convert", "t", "root/c"]);
    std::fs::remove_file(dir.path().join("root/c/index.provenance")).unwrap();
    let ran = dir.run(&["index", "merge", "root"]);
    assert_eq!(ran.code, 4, "{}", ran.shown());
    dir.ok(&["index", "merge", "root", "--force"]);
    assert!(!dir.exists("root/index.tombstones"));
    assert_eq!(cat(&dir, "root", &[]).len(), 20);
}

#[test]
fn lost_tombstones_are_reported_and_restored() {
    let (dir, table) = with_deleted(&[]);
    let name = dir.path().join("shards/index.tombstones");
    let sound = std::fs::read(&name).unwrap();
    let changed = String::from_utf8(sound.clone()).unwrap();
    let changed = changed.replace("[5,6]", "[4,5]");
    assert_ne!(changed.as_bytes(), sound);
    for (id, damage) in [
        ("tombstones-missing", None),
        ("tombstones-damaged", Some(changed.as_str())),
        ("tombstones-damaged", Some("{")),
    ] {
        let damage = || match damage {
            None => std::fs::remove_file(&name).unwrap(),
            Some(text) => std::fs::write(&name, text).unwrap(),
        };
        damage();
        for args in [
            &["verify", "shards"][..],
            &["verify", "shards", "-q"],
            &["cat", "shards"],
            &["order", "shards"],
            &["convert", "shards", "other"],
        ] {
            let ran = dir.run(args);
            assert_eq!(ran.code, 3, "{}", ran.shown());
            let wanted = format!("error[{id}]: shards/index.tombstones");
            assert!(ran.stderr.contains(&wanted), "{}", ran.shown());
        }
        // What it is about can still be looked at.
        dir.ok(&["inspect", "shards"]);
        assert_eq!(cat(&dir, "shards", &["--with-deleted"]).len(), 30);
        let report = convert(&dir, "t", "shards", &[]);
        assert_eq!(report["outcome"], "already_done");
        assert_eq!(report["increment"]["restored_tombstones"], true);
        dir.ok(&["verify", "shards", "--deep", "--strict"]);
        assert_eq!(cat(&dir, "shards", &[]), table.rows());
        let report = convert(&dir, "t", "shards", &[]);
        assert_eq!(report["increment"]["restored_tombstones"], Value::Null);
    }
    // Provenance of before there was a note of the file.
    let mut old: Value = serde_json::from_slice(&dir.read("shards/index.provenance")).unwrap();
    old.as_object_mut().unwrap().remove("tombstones");
    dir.write("shards/index.provenance", old.to_string());
    dir.ok(&["verify", "shards", "--deep", "--strict"]);
    assert_eq!(cat(&dir, "shards", &[]), table.rows());
    std::fs::remove_file(&name).unwrap();
    assert_eq!(dir.run(&["verify", "shards"]).code, 3);
}

#[test]
fn index_without_one_shard_is_rejected() {
    let dir = TestDir::new();
    let mut table = Table::create(&dir.path().join("t")).unwrap();
    table.append(&rows(0, 30)).unwrap();
    let first = ["convert", "t", "shards", "--samples-per-shard", "7"];
    dir.ok(&first);
    let mut index: Value = serde_json::from_slice(&dir.read("shards/index.json")).unwrap();
    index["shards"].as_array_mut().unwrap().pop();
    dir.write("shards/index.json", index.to_string());
    for args in [
        &["verify", "shards"][..],
        &["verify", "shards", "-q"],
        &["verify", "shards", "--deep"],
        &first,
        &["convert", "shards", "copy"],
    ] {
        let ran = dir.run(args);
        assert_eq!(ran.code, 3, "{}", ran.shown());
        assert!(
            ran.stderr
                .contains("error[provenance-other]: shards/index.provenance"),
            "{}",
            ran.shown()
        );
    }
    assert!(!dir.exists("copy"));
    dir.ok(&[&first[..], &["--overwrite"]].concat());
    dir.ok(&["verify", "shards", "--deep", "--strict"]);
}

#[test]
fn truncated_or_missing_provenance_is_reported() {
    let (dir, _) = with_deleted(&[]);
    dir.ok(&["convert", "t", "plain"]);
    let provenance = "plain/index.provenance";
    let sound = dir.read(provenance);
    dir.write(provenance, &sound[..sound.len() / 2]);
    let ran = dir.run(&["verify", "plain", "--deep"]);
    assert_eq!(ran.code, 3, "{}", ran.shown());
    assert!(
        ran.stderr.contains("error[provenance-damaged]"),
        "{}",
        ran.shown()
    );
    std::fs::remove_file(dir.path().join(provenance)).unwrap();
    // As a dataset by another program.
    let ran = dir.run(&["verify", "plain"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let ran = dir.run(&["verify", "plain", "--deep"]);
    assert_eq!(ran.code, 0, "{}", ran.shown());
    assert!(
        ran.stderr.contains("warning[provenance-missing]"),
        "{}",
        ran.shown()
    );
    let ran = dir.run(&["verify", "plain", "--deep", "--strict"]);
    assert_eq!(ran.code, 3, "{}", ran.shown());
    let ran = dir.run(&["verify", "plain", "--deep", "--strict", "-q"]);
    assert_eq!(ran.code, 3, "{}", ran.shown());
    // Its list of deleted samples belongs to a provenance.
    std::fs::remove_file(dir.path().join("shards/index.provenance")).unwrap();
    for args in [&["verify", "shards"][..], &["convert", "shards", "copy"]] {
        let ran = dir.run(args);
        assert_eq!(ran.code, 3, "{}", ran.shown());
        assert!(
            ran.stderr.contains("error[provenance-missing]"),
            "{}",
            ran.shown()
        );
    }
}
