use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use serde_json::{Value, json};

use crate::common::TestDir;

/// Writes a table of `id` and `text`, and converts it.
fn dataset(dir: &TestDir, name: &str, rows: &[(i64, &str)], more: &[&str]) {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0)));
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.1)));
    let batch = RecordBatch::try_from_iter([("id", ids), ("text", texts)]).unwrap();
    dir.parquet(&format!("{name}.parquet"), &batch);
    let (source, size) = (format!("{name}.parquet"), ["--samples-per-shard", "2"]);
    dir.ok(&[&["convert", &source, name], &size[..], more].concat());
}

fn diff(dir: &TestDir, args: &[&str], code: i32) -> Value {
    let ran = dir.run(&[&["diff", "--json"], args].concat());
    assert_eq!(ran.code, code, "{args:?}: {} {}", ran.stdout, ran.stderr);
    serde_json::from_str(&ran.stdout).unwrap()
}

fn example() -> TestDir {
    let dir = TestDir::new();
    dataset(
        &dir,
        "a",
        &[(1, "one"), (2, "two"), (3, "three"), (4, "four")],
        &[],
    );
    dataset(
        &dir,
        "b",
        &[
            (4, "four"),
            (1, "one"),
            (3, "THREE"),
            (5, "five"),
            (6, "six"),
        ],
        &[],
    );
    dir
}

#[test]
fn diff_with_key_column_compares_by_key() {
    insta::assert_snapshot!(example().shown(&["diff", "a", "b", "--key-column", "id"]), @r"
    exit 5
    --- stdout
    shards: 0 same, 2 changed, 1 added, 0 removed
    samples: 2 same, 1 changed, 2 added, 1 removed
      removed  2
      changed  3  text
      added    5
      added    6
    a and b differ
    ");
    let found = diff(&example(), &["a", "b", "--key-column", "id"], 5);
    assert_eq!(found["equal"], json!(false));
    assert_eq!(found["rows"], json!([4, 5]));
    assert_eq!(
        (
            &found["same"],
            &found["changed"],
            &found["added"],
            &found["removed"]
        ),
        (&json!(2), &json!(1), &json!(2), &json!(1))
    );
    assert_eq!(
        found["changes"],
        json!([
            {"change": "removed", "key": "2", "before": 1, "after": null, "columns": []},
            {"change": "changed", "key": "3", "before": 2, "after": 2, "columns": ["text"]},
            {"change": "added", "key": "5", "before": null, "after": 3, "columns": []},
            {"change": "added", "key": "6", "before": null, "after": 4, "columns": []},
        ])
    );
    let few = diff(&example(), &["a", "b", "--key-column", "id", "-n", "1"], 5);
    assert_eq!(few["changes"], json!([found["changes"][0]]));
    assert_eq!(few["added"], json!(2));
}

#[test]
fn diff_without_key_column_compares_by_position() {
    insta::assert_snapshot!(example().shown(&["diff", "a", "b", "-n", "3"]), @r"
    exit 5
    --- stdout
    shards: 0 same, 2 changed, 1 added, 0 removed
    samples: 0 same, 4 changed, 1 added, 0 removed
      changed  sample 0  id, text
      changed  sample 1  id, text
      changed  sample 2  text
      and 2 more; -n N lists N
    a and b differ
    ");
    let found = diff(&example(), &["b", "a"], 5);
    assert_eq!(
        (&found["changed"], &found["removed"]),
        (&json!(4), &json!(1))
    );
    assert_eq!(
        found["changes"][4],
        json!({"change": "removed", "key": null, "before": 4, "after": null, "columns": []})
    );
}

#[test]
fn diff_ignores_compression_and_shard_sizes() {
    let dir = example();
    dir.ok(&[
        "convert",
        "a",
        "raw",
        "--compression",
        "none",
        "--samples-per-shard",
        "3",
    ]);
    for key in [&[][..], &["--key-column", "id"]] {
        let found = diff(&dir, &[&["a", "raw"], key].concat(), 0);
        assert_eq!((&found["equal"], &found["same"]), (&json!(true), &json!(4)));
        assert_eq!(found["shards"]["same"], json!(0));
    }
    // A table is compared with its dataset.
    let found = diff(&dir, &["a.parquet", "a"], 0);
    assert_eq!(
        (&found["compared"], &found["shards"]),
        (&json!(["id", "text"]), &Value::Null)
    );
}

#[test]
fn identical_shards_are_not_read() {
    let dir = example();
    dir.ok(&["convert", "a", "copy", "--samples-per-shard", "2"]);
    let shards = |dir: &TestDir| diff(dir, &["a", "copy"], 0)["shards"].clone();
    let same = json!({"same": 2, "changed": 0, "unknown": 0, "added": 0, "removed": 0});
    assert_eq!(shards(&dir), same);
    std::fs::remove_file(dir.path().join("copy/shard.00000.mds.zstd")).unwrap();
    assert_eq!(shards(&dir), same);
}

#[test]
fn diff_reports_changed_columns() {
    let dir = example();
    let column = [
        "--column",
        "id:str=CAST(id AS VARCHAR)",
        "--column",
        "more:int=id",
    ];
    dir.ok(&[&["convert", "a.parquet", "other"], &column[..]].concat());
    let found = diff(&dir, &["a", "other"], 5);
    assert_eq!(
        found["columns"],
        json!([
            {"name": "id", "before": "int64", "after": "str"},
            {"name": "text", "before": "str", "after": null},
            {"name": "more", "before": null, "after": "int"},
        ])
    );
    assert_eq!(
        (&found["compared"], &found["same"]),
        (&json!([]), &json!(4))
    );
    let ran = dir.run(&["diff", "a", "other", "--key-column", "id", "--json"]);
    assert_eq!(
        (ran.code, &ran.error()["id"]),
        (2, &json!("column-unknown"))
    );
    let ran = dir.run(&["diff", "a", "other", "--key-column", "more", "--json"]);
    assert_eq!(
        (ran.code, &ran.error()["id"]),
        (2, &json!("column-unknown"))
    );
}

#[test]
fn repeated_keys_are_compared_in_order() {
    let dir = TestDir::new();
    dataset(&dir, "a", &[(1, "x"), (1, "y"), (1, "z")], &[]);
    dataset(&dir, "b", &[(1, "x"), (1, "z")], &[]);
    let found = diff(&dir, &["a", "b", "--key-column", "id"], 5);
    assert_eq!(
        (&found["same"], &found["changed"], &found["removed"]),
        (&json!(1), &json!(1), &json!(1))
    );
}

#[test]
fn diff_compares_tar_shards() {
    let dir = TestDir::with_tars();
    dir.write("tree/b/3.txt", "another text");
    dir.ok(&[
        "convert",
        "tree",
        "new",
        "--to",
        "webdataset",
        "--samples-per-shard",
        "3",
    ]);
    let found = diff(&dir, &["tars", "new", "--key-column", "__key__"], 5);
    assert_eq!(found["changes"][0]["key"], json!("b/3"));
    assert_eq!(found["changes"][0]["columns"], json!(["txt"]));
    assert_eq!(
        (&found["shards"]["same"], &found["shards"]["changed"]),
        (&json!(1), &json!(1))
    );
}

#[test]
fn missing_shard_is_an_error_not_a_difference() {
    let dir = example();
    std::fs::remove_file(dir.path().join("a/shard.00001.mds.zstd")).unwrap();
    let ran = dir.run(&["diff", "a", "b", "--json"]);
    assert_ne!(ran.code, 5);
    assert_ne!(ran.code, 0);
    assert_eq!(ran.stdout, "");
}
