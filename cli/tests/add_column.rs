use std::sync::Arc;

use arrow::array::{ArrayRef, Float32Array, Int64Array, RecordBatch, StringArray};
use shardmill_testing::s3::{Objects, S3Server, Settings};

use crate::common::{TestDir, rows};
use crate::snapshot;

/// Returns rows with the keys in this order, a number and a text for each.
fn scores(keys: impl Iterator<Item = i64> + Clone) -> RecordBatch {
    let columns: [(&str, ArrayRef, bool); 3] = [
        (
            "id",
            Arc::new(Int64Array::from_iter_values(keys.clone())),
            false,
        ),
        (
            "quality",
            Arc::new(Float32Array::from_iter_values(
                keys.clone().map(|key| key as f32 / 2.0),
            )),
            false,
        ),
        (
            "caption",
            Arc::new(StringArray::from_iter_values(
                keys.map(|key| format!("caption {key}")),
            )),
            false,
        ),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

/// Creates `shards` of 100 samples, and `scores.parquet` with their rows in another order.
fn dir(compression: &str) -> TestDir {
    let dir = TestDir::new();
    dir.parquet("data/rows.parquet", &rows(100));
    let convert = ["convert", "data", "shards", "--samples-per-shard", "30"];
    dir.ok(&[&convert[..], &["--compression", compression]].concat());
    dir.parquet("scores.parquet", &scores((0..100).map(|n| n * 37 % 100)));
    dir
}

const ADD: [&str; 5] = ["add-column", "shards", "scores.parquet", "--on", "id"];

fn samples(dir: &TestDir) -> Vec<serde_json::Value> {
    let text = dir.ok(&["cat", "shards", "0..100"]);
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn added_values_are_joined_by_key() {
    for compression in ["none", "zstd:1"] {
        let dir = dir(compression);
        let before: Vec<Vec<u8>> = files(&dir, "shards")
            .iter()
            .map(|name| dir.read(name))
            .collect();
        let names = files(&dir, "shards");
        let added = dir.ok(&ADD);
        assert!(
            added.contains("added caption (str), quality (float32)"),
            "{added}"
        );
        for (number, sample) in samples(&dir).iter().enumerate() {
            assert_eq!(sample["id"], number);
            assert_eq!(sample["name"], format!("row {number}"));
            assert_eq!(sample["caption"], format!("caption {number}"));
            assert_eq!(sample["quality"], number as f64 / 2.0);
        }
        // The files of the dataset are as they were.
        let after: Vec<Vec<u8>> = names.iter().map(|name| dir.read(name)).collect();
        assert_eq!(before, after);
        dir.ok(&["verify", "shards", "--deep", "--strict"]);
        let sample = dir.ok(&["cat", "shards", "7", "--raw", "--column", "caption"]);
        assert_eq!(sample, "caption 7");
        let found = dir.json(&["stats", "shards", "--json"]);
        let columns = found["columns"].as_array().unwrap();
        assert!(columns.iter().any(|column| column["name"] == "quality"));
        // The dataset with its late columns is a source like any other.
        dir.ok(&["convert", "shards", "joined", "--where", "quality > 40"]);
        assert_eq!(dir.json(&["inspect", "joined", "--json"])["samples"], 19);
        std::fs::remove_file(dir.path().join("shards/index.columns")).unwrap();
        assert!(samples(&dir)[0].get("quality").is_none());
    }
}

fn files(dir: &TestDir, folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(dir.path().join(folder)).unwrap();
    let entries = entries.map(|entry| entry.unwrap());
    let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
    let name = |entry: std::fs::DirEntry| entry.file_name().into_string().unwrap();
    files
        .map(|entry| format!("{folder}/{}", name(entry)))
        .collect()
}

#[test]
fn row_order_does_not_change_output_bytes() {
    let index = |keys: Vec<i64>, jobs: &str| {
        let dir = dir("zstd:1");
        dir.parquet("scores.parquet", &scores(keys.into_iter()));
        dir.ok(&[&ADD[..], &["--jobs", jobs]].concat());
        let text = String::from_utf8(dir.read("shards/index.columns")).unwrap();
        // The folder is named after the table.
        let folder = text.split_once("columns/").unwrap().1;
        let folder = folder.split_once('/').unwrap().0.to_owned();
        text.replace(&folder, "")
    };
    let first = index((0..100).collect(), "1");
    assert_eq!(first, index((0..100).rev().collect(), "3"));
}

#[test]
fn second_column_can_be_added_but_not_repeated() {
    let dir = dir("zstd:1");
    dir.ok(&[&ADD[..], &["--column", "quality"]].concat());
    let again = dir.run(&[&ADD[..], &["--column", "quality"]].concat());
    snapshot!(again.shown(), @r#"
    exit 2
    --- stderr
    error[columns-exist]: shards: the dataset already has a column `quality`; rename it with --column NAME=quality
    "#);
    let added = dir.ok(&[&ADD[..], &["--column", "words:str=caption"]].concat());
    assert!(added.contains("added words (str)"), "{added}");
    for (number, sample) in samples(&dir).iter().enumerate() {
        assert_eq!(sample["quality"], number as f64 / 2.0);
        assert_eq!(sample["words"], format!("caption {number}"));
    }
    dir.ok(&["verify", "shards", "--deep", "--strict"]);
}

#[test]
fn missing_extra_and_repeated_keys_are_errors() {
    let dir = dir("none");
    let refused = |keys: Vec<i64>| {
        dir.parquet("scores.parquet", &scores(keys.into_iter()));
        let ran = dir.run(&ADD);
        assert!(!dir.exists("shards/index.columns"));
        ran.shown()
    };
    snapshot!(refused((0..99).collect()), @r#"
    exit 2
    --- stderr
    error[columns-key-missing]: shards: the table has no row with the key `99` of sample 99
    "#);
    snapshot!(refused((0..101).collect()), @r#"
    exit 2
    --- stderr
    error[columns-key-extra]: shards: no sample has the key `100` of row 100 of the table; remove the row; the table may only have rows of samples that are not deleted
    "#);
    snapshot!(refused((0..100).chain([7]).collect()), @r#"
    exit 2
    --- stderr
    error[columns-key-repeated]: shards: the rows 7 and 100 of the table have the key `7`
    "#);
    let other = dir.run(&["add-column", "shards", "scores.parquet", "--on", "quality"]);
    snapshot!(other.shown(), @r#"
    exit 2
    --- stderr
    error[columns-key]: shards: the table has values of float32 in `quality`; name a column with texts or whole numbers that identify the samples, in both
    "#);
    dir.ok(&[
        "convert",
        "data",
        "twice",
        "--column",
        "id=id / 2",
        "--column",
        "name",
    ]);
    let twice = dir.run(&["add-column", "twice", "scores.parquet", "--on", "id"]);
    assert!(
        twice.stderr.contains("columns-key-repeated"),
        "{}",
        twice.stderr
    );
}

#[test]
fn columns_of_another_dataset_are_rejected() {
    let dir = dir("none");
    dir.ok(&ADD);
    dir.ok(&["convert", "data", "other", "--samples-per-shard", "30"]);
    let columns = dir.read("shards/index.columns");
    dir.write("other/index.columns", columns);
    for command in [
        &["cat", "other", "0"][..],
        &["verify", "other"],
        &["inspect", "other"],
    ] {
        let ran = dir.run(&[command, &["--json"]].concat());
        assert_eq!(
            (ran.code, &ran.error()["id"]),
            (4, &"columns-dataset".into()),
            "{command:?}"
        );
    }
    // A new conversion replaces the dataset, and its late columns with it.
    dir.ok(&[
        "convert",
        "data",
        "shards",
        "--samples-per-shard",
        "20",
        "--overwrite",
    ]);
    assert!(!dir.exists("shards/index.columns") && !dir.exists("shards/columns"));
}

#[test]
fn damaged_column_shard_is_detected() {
    let dir = dir("none");
    let added = dir.json(&[&ADD[..], &["--json"]].concat());
    let name = format!(
        "shards/{}/shard.00001.mds",
        added["folder"].as_str().unwrap()
    );
    let mut bytes = dir.read(&name);
    *bytes.last_mut().unwrap() ^= 1;
    dir.write(&name, bytes);
    let ran = dir.run(&["verify", "shards", "--json"]);
    assert_eq!(ran.code, 3, "{}", ran.stdout);
    assert!(ran.stdout.contains("shard.00001.mds"), "{}", ran.stdout);
    std::fs::remove_file(dir.path().join(&name)).unwrap();
    let ran = dir.run(&["cat", "shards", "40", "--json"]);
    assert_eq!(ran.error()["id"], "shard-missing");
}

#[test]
fn deleted_samples_need_no_row() {
    let dir = TestDir::new();
    dir.parquet("data/a.parquet", &rows(10));
    dir.ok(&["convert", "data", "shards"]);
    let tombstones = r#"{"tombstones": 1, "count": 2, "samples": [[3, 5]]}"#;
    dir.write("shards/index.tombstones", tombstones);
    let mut side: serde_json::Value =
        serde_json::from_slice(&dir.read("shards/index.provenance")).unwrap();
    side["tombstones"] = serde_json::json!({"count": 2});
    dir.write("shards/index.provenance", side.to_string());
    let keys = (0..10).filter(|key| ![3, 4].contains(key));
    dir.parquet("scores.parquet", &scores(keys));
    dir.ok(&ADD);
    let text = dir.ok(&["cat", "shards", "0..8"]);
    let last: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!((&last["id"], &last["quality"]), (&9.into(), &4.5.into()));
    // Deleted samples are read without late columns.
    let all = dir.ok(&["cat", "shards", "3", "--with-deleted"]);
    assert!(!all.contains("quality"), "{all}");
}

#[test]
fn columns_are_added_to_a_dataset_in_a_store() {
    let dir = dir("zstd:1");
    let objects = Objects::folder("bucket", dir.path());
    let server = S3Server::start(objects, Settings::default()).unwrap();
    let ok = |args: &[&str]| {
        let mut command = dir.command();
        let output = command.args(args).envs(server.environment());
        let output = output.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    };
    let there = "s3://bucket/shards";
    ok(&[
        "add-column",
        there,
        "s3://bucket/scores.parquet",
        "--on",
        "id",
    ]);
    assert!(dir.exists("shards/index.columns"));
    ok(&["verify", there, "--deep", "--strict"]);
    assert_eq!(
        ok(&["cat", there, "0..100"]),
        dir.ok(&["cat", "shards", "0..100"])
    );
    let quality = ["select", there, "--where", "quality >= 49", "--out", "view"];
    ok(&quality);
    assert_eq!(ok(&["cat", there, "--view", "view"]).lines().count(), 2);
}

/// The shards of late columns whose list was removed or replaced belong to no dataset.
#[test]
fn orphan_columns_are_reported_and_removed() {
    let dir = dir("none");
    dir.ok(&ADD);
    let before = files(&dir, "shards");
    dir.ok(&["verify", "shards", "--deep", "--strict"]);
    assert!(dir.ok(&["gc", "shards"]).contains("no leftovers"));
    std::fs::remove_file(dir.path().join("shards/index.columns")).unwrap();
    let report = dir.json(&["verify", "shards", "--deep", "--json"]);
    let warnings = report["warnings"].as_array().unwrap();
    let orphans: Vec<&str> = warnings
        .iter()
        .filter(|warning| warning["id"] == "file-unlisted")
        .map(|warning| warning["object"].as_str().unwrap())
        .collect();
    assert_eq!(orphans.len(), 4, "{report}");
    assert!(orphans[0].starts_with("columns/"), "{report}");
    let found = dir.json(&["gc", "shards", "--json"]);
    assert_eq!(found["files"].as_array().unwrap().len(), 4, "{found}");
    assert!(dir.exists("shards/columns"));
    dir.ok(&["gc", "shards", "--delete"]);
    assert!(!dir.exists("shards/columns"));
    assert!(!dir.exists("shards/.shardmill"));
    dir.ok(&["verify", "shards", "--deep", "--strict"]);
    assert!(files(&dir, "shards").len() < before.len());
}

/// A run that replaces the dataset may be killed after it published its index. Then the old list is still there.
#[test]
fn columns_of_a_replaced_dataset_are_ignored() {
    let dir = dir("none");
    dir.ok(&ADD);
    dir.parquet("others/rows.parquet", &rows(80));
    let new = ["convert", "others", "new", "--samples-per-shard", "20"];
    dir.ok(&[&new[..], &["--compression", "none"]].concat());
    let index = String::from_utf8(dir.read("new/index.json")).unwrap();
    let provenance = String::from_utf8(dir.read("new/index.provenance")).unwrap();
    let hash = shardmill_mds::hash_hex(shardmill_mds::HashAlgo::Sha256, index.as_bytes());
    let note = serde_json::json!({
        "index": hash,
        "files": {"index.provenance": provenance, "index.columns": null},
    });
    dir.write("shards/.shardmill/generation", note.to_string());
    for name in files(&dir, "new")
        .iter()
        .filter(|name| name.contains("shard."))
    {
        let name = name.rsplit('/').next().unwrap();
        dir.write(&format!("shards/{name}"), dir.read(&format!("new/{name}")));
    }
    dir.write("shards/index.json", index);
    assert_eq!(dir.ok(&["cat", "shards", "0.."]).lines().count(), 80);
    dir.ok(&["verify", "shards", "--deep"]);
    assert!(!dir.ok(&["inspect", "shards"]).contains("caption"));
    dir.ok(&["gc", "shards", "--delete"]);
    assert!(!dir.exists("shards/index.columns"));
    dir.ok(&["verify", "shards", "--deep", "--strict"]);
}
