//! `shardmill select`, and the commands that read a view.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::common::TestDir;

/// A dataset of 100 samples in 10 shards.
fn dir() -> TestDir {
    let dir = TestDir::new();
    let mut csv = "id,label,text\n".to_owned();
    for id in 0..100 {
        writeln!(csv, "{id},{},text{id}", id % 7).unwrap();
    }
    dir.write("t.csv", csv);
    dir.ok(&["convert", "t.csv", "shards", "--samples-per-shard", "10"]);
    dir
}

fn ids(dir: &TestDir, dataset: &str, view: &str) -> Vec<i64> {
    let text = dir.ok(&["cat", dataset, "0..", "--view", view]);
    let id = |line: &str| {
        let sample: Value = serde_json::from_str(line).unwrap();
        sample["id"].as_i64().unwrap()
    };
    text.lines().map(id).collect()
}

fn select(dir: &TestDir, dataset: &str, conditions: &[&str]) -> Vec<i64> {
    dir.ok(&[
        &["select", dataset, "-o", "v", "--overwrite"][..],
        conditions,
    ]
    .concat());
    ids(dir, dataset, "v")
}

fn numbers(test: impl Fn(i64) -> bool) -> Vec<i64> {
    (0..100).filter(|id| test(*id)).collect()
}

#[test]
fn samples_are_selected_by_sql_keys_numbers_and_views() {
    let dir = dir();
    dir.write("keys", "text7\ntext93\r\n\ntext8\n");
    dir.write("numbers", "5\n20..23\n 99\n");
    let found = dir.json(&[
        "select",
        "shards",
        "--where",
        "label = 3 AND id < 50",
        "-o",
        "three.view",
        "--json",
    ]);
    assert_eq!(found["samples"], 7);
    assert_eq!(found["dataset_samples"], 100);
    assert_eq!(
        (&found["shards"], &found["dataset_shards"]),
        (&json!(5), &json!(10))
    );
    let three = |id: i64| id % 7 == 3 && id < 50;
    assert_eq!(ids(&dir, "shards", "three.view"), numbers(three));
    let keys = ["--keys", "keys", "--key-column", "text"];
    assert_eq!(select(&dir, "shards", &keys), [7, 8, 93]);
    let ids_as_keys = ["--keys", "numbers_only", "--key-column", "id"];
    dir.write("numbers_only", "3\n4\n");
    assert_eq!(select(&dir, "shards", &ids_as_keys), [3, 4]);
    let listed = |id: i64| matches!(id, 5 | 20..23 | 99);
    assert_eq!(
        select(&dir, "shards", &["--samples", "numbers"]),
        numbers(listed)
    );
    assert_eq!(
        select(&dir, "shards", &["--where", "__sample__ % 10 = 1"]),
        numbers(|id| id % 10 == 1)
    );
    dir.ok(&["select", "shards", "--samples", "numbers", "-o", "n.view"]);
    let both = ["--view", "three.view", "--view", "n.view"];
    assert_eq!(
        select(&dir, "shards", &both),
        numbers(|id| three(id) && listed(id))
    );
    let any = [&both[..], &["--any"]].concat();
    assert_eq!(
        select(&dir, "shards", &any),
        numbers(|id| three(id) || listed(id))
    );
    let neither = [&any[..], &["--invert"]].concat();
    assert_eq!(
        select(&dir, "shards", &neither),
        numbers(|id| !three(id) && !listed(id))
    );
    let rest = [
        "--view",
        "n.view",
        "--without",
        "three.view",
        "--where",
        "id < 90",
    ];
    assert_eq!(
        select(&dir, "shards", &rest),
        numbers(|id| listed(id) && !three(id) && id < 90)
    );
}

#[test]
fn every_command_reads_only_samples_of_the_view() {
    let dir = dir();
    dir.ok(&[
        "select",
        "shards",
        "--where",
        "label = 3 AND id < 50",
        "-o",
        "v",
    ]);
    let view = ["--view", "v"];
    let with = |args: &[&str]| dir.json(&[args, &view, &["--json"]].concat());
    assert_eq!(with(&["inspect", "shards"])["samples"], 7);
    let shards = dir.ok(&["inspect", "shards", "--shards", "--json", "--view", "v"]);
    let samples = shards.lines().map(|line| {
        let shard: Value = serde_json::from_str(line).unwrap();
        shard["samples"].as_u64().unwrap()
    });
    assert_eq!(samples.collect::<Vec<_>>(), [1, 2, 1, 2, 1, 0, 0, 0, 0, 0]);
    assert!(
        dir.ok(&["head", "shards", "-n", "1", "--view", "v"])
            .contains("text3")
    );
    assert_eq!(with(&["stats", "shards"])["rows"], 7);
    assert_eq!(with(&["plan", "shards"])["samples"], 7);
    let verified = with(&["verify", "shards", "--deep"]);
    assert_eq!(
        (&verified["shards"], &verified["samples"]),
        (&json!(5), &json!(50))
    );
    let step = with(&[
        "which",
        "shards",
        "--step",
        "1",
        "--batch-size",
        "3",
        "--no-keys",
    ]);
    assert_eq!(step["samples"][0]["row"], 24);
    assert_eq!(with(&["bench", "shards"])["samples"], 7);
    // The order is that of shards of the remaining sizes.
    let world = ["--shuffle", "--ranks-per-node", "2", "--batch-size", "2"];
    let found = dir.ok(&[&["order", "shards"][..], &world, &view].concat());
    let wanted = dir.ok(&[&["order", "--shards", "1,2,1,2,1"][..], &world].concat());
    assert_eq!(found, wanted);
    let stream = ["order", "--stream", "shards,view=v,repeat=1"];
    assert_eq!(dir.ok(&[&stream[..], &world].concat()), wanted);
    // A conversion writes them, and only them.
    dir.ok(&["convert", "shards", "out", "--view", "v"]);
    let text = dir.ok(&["cat", "out", "0.."]);
    assert_eq!(text, dir.ok(&["cat", "shards", "0..", "--view", "v"]));
    assert_eq!(text.lines().count(), 7);
}

#[test]
fn views_of_tars_work_with_and_without_an_index() {
    let dir = dir();
    let tars = [
        "convert",
        "shards",
        "tars",
        "--to",
        "webdataset",
        "--samples-per-shard",
        "30",
    ];
    dir.ok(&[&tars[..], &["--key-column", "text"]].concat());
    let where_ = ["--where", "CAST(id AS VARCHAR) LIKE '%9'"];
    let nines = numbers(|id| id % 10 == 9);
    assert_eq!(select(&dir, "tars", &where_), nines);
    dir.write("keys", "text7\ntext93\n");
    assert_eq!(select(&dir, "tars", &["--keys", "keys"]), [7, 93]);
    let read =
        |more: &[&str]| dir.json(&[&["bench", "tars", "--view", "v", "--json"], more].concat());
    assert_eq!(read(&[])["samples"], 2);
    assert_eq!(
        dir.json(&["verify", "tars", "--view", "v", "--json"])["shards"],
        2
    );
    std::fs::remove_file(dir.path().join("tars/index.json")).unwrap();
    std::fs::remove_file(dir.path().join("tars/index.provenance")).unwrap();
    let refused = dir.run(&["cat", "tars", "--view", "v"]);
    assert!(
        refused.stderr.contains("error[view-dataset]: tars: "),
        "{}",
        refused.stderr
    );
    assert_eq!(select(&dir, "tars", &where_), nines);
    assert_eq!(read(&[])["samples"], 10);
    assert_eq!(ids(&dir, "tars", "v"), nines);
}

#[test]
fn tables_and_trees_can_have_views() {
    let dir = TestDir::with_tree();
    dir.parquet("table/a.parquet", &crate::common::rows(60));
    dir.parquet("table/b.parquet", &crate::common::rows(40));
    let mut csv = "id,label\n".to_owned();
    for id in 0..100 {
        writeln!(csv, "{id},{}", id % 7).unwrap();
    }
    dir.write("text/a.csv", &csv);
    dir.write("text/b.csv", &csv);
    for (source, condition, shown, column, values) in [
        (
            "table",
            "id = 7 OR __sample__ = 63",
            100,
            "id",
            json!([7, 3, 7]),
        ),
        ("table/a.parquet", "id % 30 = 1", 60, "id", json!([1, 31])),
        (
            "text",
            "label = 3 AND __sample__ > 190",
            200,
            "id",
            json!([94]),
        ),
        (
            "tree",
            "__key__ LIKE 'b/%'",
            5,
            "txt",
            json!(["text 1", "text 3"]),
        ),
        (
            "tree",
            "CAST(cls AS VARCHAR) = '2'",
            5,
            "txt",
            json!(["text 2"]),
        ),
    ] {
        let view = ["--view", "v"];
        let with = |args: &[&'static str]| [args, &view, &["--json"]].concat();
        let selected = dir.json(&[
            "select",
            source,
            "--where",
            condition,
            "-o",
            "v",
            "--overwrite",
            "--json",
        ]);
        let count = values.as_array().unwrap().len();
        assert_eq!(selected["samples"], count, "{source}: {selected}");
        assert_eq!(selected["dataset_samples"], shown, "{source}: {selected}");
        let lines = dir.ok(&with(&["head", source, "-n", "9"]));
        let lines = lines.lines().map(|line| {
            let row: Value = serde_json::from_str(line).unwrap();
            row[column].clone()
        });
        assert_eq!(lines.collect::<Value>(), values, "{source}");
        assert_eq!(dir.json(&with(&["stats", source]))["rows"], count);
        assert_eq!(dir.json(&with(&["inspect", source]))["rows"], count);
        let both = [
            "select",
            source,
            "--view",
            "v",
            "--where",
            "__sample__ < 3",
            "-o",
            "w",
        ];
        dir.ok(&[&both[..], &["--overwrite"]].concat());
    }
    dir.write("keys", "a/4\n");
    let printed = dir.ok(&["select", "tree", "--keys", "keys", "-o", "k"]);
    assert!(printed.starts_with("k: 1 of 5 samples ("), "{printed}");
    // Other rows, and rows that have changed.
    dir.ok(&["select", "text", "--where", "id < 5", "-o", "t"]);
    dir.write("text/c.csv", "id,label\n1,2\n");
    for args in [
        &["head", "text", "--view", "t"][..],
        &["head", "tree", "--view", "t"],
    ] {
        let refused = dir.run(&[args, &["--json"]].concat());
        assert_eq!(refused.error()["id"], "view-dataset", "{args:?}");
    }
}

#[test]
fn invalid_views_are_rejected() {
    let dir = dir();
    dir.ok(&["select", "shards", "--where", "id < 5", "-o", "v"]);
    dir.ok(&["convert", "t.csv", "other", "--samples-per-shard", "20"]);
    dir.write("keys", "text7\nno\nnever\n");
    dir.write("numbers", "1\n100\n");
    dir.write("words", "1\nten\n");
    dir.write("bad.view", "not a view");
    for (args, code, error) in [
        (&["cat", "other", "--view", "v"][..], 4, "view-dataset"),
        (&["bench", "other", "--view", "v"], 4, "view-dataset"),
        (
            &["select", "other", "--view", "v", "-o", "w"],
            4,
            "view-dataset",
        ),
        (
            &["order", "shards", "other", "--view", "v"],
            2,
            "config-view",
        ),
        (&["cat", "shards", "--view", "bad.view"], 3, "view-damaged"),
        (&["cat", "shards", "--view", "gone.view"], 2, "not-found"),
        (&["stats", "t.csv", "--view", "v"], 4, "view-dataset"),
        (
            &["select", "shards/none", "--where", "id < 5", "-o", "w"],
            2,
            "source-not-found",
        ),
        (
            &["select", "shards", "--where", "id < 5", "-o", "v"],
            4,
            "exists",
        ),
        (
            &["select", "shards", "--where", "id +", "-o", "w"],
            2,
            "sql-syntax",
        ),
        (
            &["select", "shards", "--where", "id + 1", "-o", "w"],
            2,
            "sql-plan",
        ),
        (
            &[
                "select",
                "shards",
                "--keys",
                "keys",
                "--key-column",
                "text",
                "-o",
                "w",
            ],
            2,
            "key-not-found",
        ),
        (
            &["select", "shards", "--keys", "keys", "-o", "w"],
            2,
            "source-column",
        ),
        (
            &["select", "shards", "--samples", "numbers", "-o", "w"],
            2,
            "sample-out-of-range",
        ),
        (
            &["select", "shards", "--samples", "words", "-o", "w"],
            2,
            "config-samples",
        ),
        (
            &["select", "shards", "-o", "w"],
            2,
            "usage-missing-argument",
        ),
    ] {
        let ran = dir.run(args);
        let id = format!("error[{error}]");
        assert!(ran.stderr.contains(&id), "{args:?}: {}", ran.stderr);
        assert_eq!(ran.code, code, "{args:?}: {}", ran.stderr);
        assert!(!dir.exists("w"), "{args:?}");
    }
}
