use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, ListArray, RecordBatch, StringArray};
use arrow::datatypes::UInt16Type;
use shardmill_dataset::{Dataset, Lengths, OpenOptions};

use crate::common::TestDir;

const TOKENS: &str = "shards/index.lengths.tokens";

/// Returns the texts and the numbers of tokens of the rows.
fn wanted(rows: u32) -> (Vec<String>, Vec<u32>) {
    let texts = (0..rows).map(|row| "ä".repeat(row as usize % 7));
    // Beyond 255 the header of an array is longer.
    (
        texts.collect(),
        (0..rows).map(|row| 1 + row * 37 % 700).collect(),
    )
}

fn dir(rows: u32) -> TestDir {
    let (texts, tokens) = wanted(rows);
    let lists = tokens
        .iter()
        .map(|tokens| Some((0..*tokens).map(|token| u16::try_from(token).ok())));
    let columns: [(&str, ArrayRef, bool); 3] = [
        (
            "id",
            Arc::new(Int64Array::from_iter_values(0..rows.into())),
            false,
        ),
        (
            "text",
            Arc::new(StringArray::from_iter_values(texts)),
            false,
        ),
        (
            "tokens",
            Arc::new(ListArray::from_iter_primitive::<UInt16Type, _, _>(lists)),
            false,
        ),
    ];
    let dir = TestDir::new();
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    dir.parquet("data/rows.parquet", &batch);
    dir
}

fn read(dir: &TestDir, column: &str) -> Vec<u32> {
    let path = dir.path().join("shards");
    let dataset = Dataset::open(&path, &OpenOptions::default()).unwrap();
    Lengths::of(&dataset, column).unwrap().values().to_vec()
}

#[test]
fn lengths_equal_those_of_the_values() {
    let (texts, tokens) = wanted(300);
    let bytes: Vec<u32> = texts
        .iter()
        .map(|text| text.len().try_into().unwrap())
        .collect();
    for compression in ["none", "zstd:1"] {
        let dir = dir(300);
        let convert = [
            "convert",
            "data",
            "shards",
            "--size-limit",
            "20kB",
            "--compression",
        ];
        dir.ok(&[&convert[..], &[compression, "--lengths", "tokens"]].concat());
        assert_eq!(read(&dir, "tokens"), tokens, "{compression}");
        let found = dir.json(&["index", "lengths", "shards", "--column", "text", "--json"]);
        let column = &found["columns"][0];
        assert_eq!(
            (&column["unit"], &column["total"], &column["written"]),
            (
                &"bytes".into(),
                &bytes.iter().sum::<u32>().into(),
                &true.into()
            )
        );
        assert_eq!(read(&dir, "text"), bytes, "{compression}");
        dir.ok(&["verify", "shards", "--strict"]);
    }
    // The lengths of the only column of variable length follow from the offsets.
    let dir = dir(300);
    dir.ok(&[
        "convert",
        "data",
        "shards",
        "--column",
        "id",
        "--column",
        "text",
        "--size-limit",
        "1kB",
        "--compression",
        "none",
        "--lengths",
        "text",
    ]);
    assert_eq!(read(&dir, "text"), bytes);
}

#[test]
fn correct_lengths_are_kept_and_damaged_ones_rewritten() {
    let dir = dir(20);
    let convert = ["convert", "data", "shards", "--lengths", "tokens"];
    dir.ok(&convert);
    let file = dir.read(TOKENS);
    let lengths = ["index", "lengths", "shards", "--column", "tokens"];
    assert_eq!(dir.ok(&lengths).matches("is already correct").count(), 1);
    // Damaged and missing files are written again, also by a conversion that is complete.
    dir.write(TOKENS, &file[1..]);
    assert_eq!(dir.ok(&lengths).matches("written").count(), 1);
    assert_eq!(dir.read(TOKENS), file);
    std::fs::remove_file(dir.path().join(TOKENS)).unwrap();
    dir.ok(&convert);
    assert_eq!(dir.read(TOKENS), file);
}

#[test]
fn lengths_of_another_dataset_are_rejected() {
    let dir = dir(20);
    dir.ok(&["convert", "data", "shards", "--lengths", "tokens"]);
    let old = dir.read(TOKENS);
    let again = [
        "convert",
        "data",
        "shards",
        "--overwrite",
        "--samples-per-shard",
        "3",
    ];
    dir.ok(&again);
    assert!(!dir.exists(TOKENS));
    dir.write(TOKENS, &old);
    let dataset = Dataset::open(&dir.path().join("shards"), &OpenOptions::default()).unwrap();
    let error = Lengths::of(&dataset, "tokens").unwrap_err();
    assert_eq!(shardmill_core::Diagnostic::id(&error), "lengths-dataset");
    let error = Lengths::of(&dataset, "text").unwrap_err();
    assert_eq!(shardmill_core::Diagnostic::id(&error), "lengths-missing");
    dir.ok(&["index", "lengths", "shards", "--column", "tokens"]);
    assert_eq!(read(&dir, "tokens"), wanted(20).1);
}

#[test]
fn columns_without_lengths_are_rejected() {
    let dir = dir(5);
    let id = |args: &[&str]| {
        let error = dir.run(&[args, &["--json"]].concat()).error();
        error["id"].as_str().unwrap().to_owned()
    };
    for (column, more) in [("id", None), ("none", None), ("text", Some("--part=0/2"))] {
        let mut args = vec!["convert", "data", "other", "--lengths", column];
        args.extend(more);
        assert_eq!(id(&args), "config-lengths", "{args:?}");
        assert!(!dir.exists("other"));
    }
    dir.ok(&["convert", "data", "shards"]);
    for column in ["id", "none"] {
        let args = ["index", "lengths", "shards", "--column", column];
        assert_eq!(id(&args), "lengths-column");
    }
}
