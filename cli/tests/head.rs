use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, Int64Array, RecordBatch, StringArray};

use crate::common::TestDir;

#[test]
fn first_samples_of_a_dataset_are_shown_as_a_table() {
    insta::assert_snapshot!(TestDir::with_shards().shown(&["head", "shards", "-n", "3"]), @r"
    exit 0
    --- stdout
    blob       id  name   pair                 score
    bytes 8 B   0  row 0  float32[2] 0.0 0.25    0.0
    bytes 8 B   1  row 1  float32[2] 0.5 0.75    0.1
    bytes 8 B   2  row 2  float32[2] 1.0 1.25    0.2
    --- stderr
    there are more; -n N shows the first N
    ");
}

#[test]
fn first_rows_of_a_source_are_shown_as_a_table() {
    let dir = TestDir::with_shards();
    let shown = dir.shown(&[
        "head", "data", "-n", "2", "--column", "name", "--column", "pair",
    ]);
    insta::assert_snapshot!(shown, @r"
    exit 0
    --- stdout
    name   pair
    row 0  [0.0,0.25]
    row 1  [0.5,0.75]
    --- stderr
    there are more; -n N shows the first N
    ");
    for source in ["data", "data/rows.parquet", "data/*.parquet"] {
        assert_eq!(
            dir.ok(&["head", source, "-n", "1", "-c", "id"]),
            "id\n 0\n",
            "{source}"
        );
    }
}

#[test]
fn tar_fields_are_decoded_by_extension() {
    insta::assert_snapshot!(TestDir::with_tars().shown(&["head", "tars", "-n", "4"]), @r"
    exit 0
    --- stdout
    __key__  cls  txt
    a/0        0  text 0
    a/2        2  text 2
    a/4        4  text 4
    b/1        1  text 1
    --- stderr
    there are more; -n N shows the first N
    ");
}

#[test]
fn json_output_equals_cat() {
    let dir = TestDir::with_shards();
    assert_eq!(
        dir.ok(&["head", "shards", "--json"]),
        dir.ok(&["cat", "shards", "0..5"])
    );
    let dir = TestDir::with_tars();
    assert_eq!(
        dir.ok(&["head", "tars", "-n", "99", "--json"]),
        dir.ok(&["cat", "tars", "0.."])
    );
}

#[test]
fn head_reads_csv_jsonl_and_file_trees() {
    let dir = TestDir::with_tree();
    dir.write("rows.csv", "id,text\n1,one\n2,\n");
    dir.write(
        "rows.jsonl",
        "{\"a\":[1,2],\"b\":{\"c\":null}}\n{\"a\":[],\"b\":{\"c\":1.5}}\n",
    );
    assert_eq!(
        dir.ok(&["head", "rows.csv"]),
        "id  text\n 1  one\n 2  null\n"
    );
    assert_eq!(
        dir.ok(&["head", "rows.csv", "--json"]),
        "{\"id\":1,\"text\":\"one\"}\n{\"id\":2,\"text\":null}\n"
    );
    let first: serde_json::Value =
        serde_json::from_str(dir.ok(&["head", "rows.jsonl", "-n", "1", "--json"]).trim()).unwrap();
    assert_eq!(first["a"], serde_json::json!([1, 2]));
    let tree = dir.ok(&["head", "tree", "-n", "1"]);
    assert!(tree.contains("__key__") && tree.contains("a/0"), "{tree}");
}

#[test]
fn control_characters_are_escaped_and_long_text_truncated() {
    let dir = TestDir::new();
    let columns: [(&str, ArrayRef); 3] = [
        ("id", Arc::new(Int64Array::from(vec![Some(1), None]))),
        (
            "te\u{1b}xt",
            Arc::new(StringArray::from(vec![
                "\u{1b}[2J\r\nx".to_owned(),
                "y".repeat(1 << 20),
            ])),
        ),
        (
            "blob",
            Arc::new(BinaryArray::from(vec![
                &b"\xff\xd8\xff\xe0jpeg"[..],
                &[0; 5000][..],
            ])),
        ),
    ];
    dir.parquet(
        "rows.parquet",
        &RecordBatch::try_from_iter(columns).unwrap(),
    );
    insta::assert_snapshot!(dir.shown(&["head", "rows.parquet"]), @r"
    exit 0
    --- stdout
      id  te\u{1b}xt                                                                       blob
       1  \u{1b}[2J  x                                                                     jpeg 8 B
    null  yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy…  bytes 4.9 KiB
    ");
}

#[test]
fn columns_that_do_not_fit_the_terminal_are_listed() {
    let dir = TestDir::with_shards();
    let output = dir
        .command()
        .env("COLUMNS", "20")
        .args(["head", "shards", "-n", "1"])
        .output()
        .unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(
        stdout.lines().all(|line| line.chars().count() <= 20),
        "{stdout}"
    );
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("columns without room"), "{stderr}");
}

#[test]
fn missing_dataset_or_column_is_an_error() {
    let dir = TestDir::with_shards();
    for (args, id) in [
        (&["head", "missing"][..], "source-not-found"),
        (&["head", "shards", "-c", "nmae"], "column-unknown"),
        (&["head", "."], "several-datasets"),
        (&["head", "shards", "-n", "-1"], "config-limit"),
    ] {
        let ran = dir.run(&[args, &["--json"]].concat());
        assert_eq!((ran.code, &ran.error()["id"]), (2, &id.into()), "{args:?}");
    }
    dir.write("empty.csv", "id,text\n");
    assert_eq!(dir.ok(&["head", "empty.csv"]), "empty.csv: no samples\n");
    assert_eq!(dir.ok(&["head", "shards", "-n", "0", "--json"]), "");
}

#[test]
fn only_needed_shards_are_read() {
    let dir = TestDir::with_shards();
    std::fs::remove_file(dir.path().join("shards/shard.00001.mds.zstd")).unwrap();
    assert_eq!(
        dir.ok(&["head", "shards", "-n", "30", "--json"])
            .lines()
            .count(),
        30
    );
    let ran = dir.run(&["head", "shards", "-n", "31", "--json"]);
    assert_ne!(ran.code, 0);
    let dir = TestDir::with_tars();
    std::fs::remove_file(dir.path().join("tars/shard-000001.tar")).unwrap();
    assert_eq!(
        dir.ok(&["head", "tars", "-n", "3", "--json"])
            .lines()
            .count(),
        3
    );
}
