use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int64Array, RecordBatch,
    StringArray,
};
use serde_json::{Value, json};

use crate::common::TestDir;

fn column<'a>(stats: &'a Value, name: &str) -> &'a Value {
    let columns = stats["columns"].as_array().unwrap();
    columns
        .iter()
        .find(|column| column["name"] == name)
        .unwrap()
}

#[test]
fn dataset_stats_are_printed_with_histograms() {
    insta::assert_snapshot!(TestDir::with_shards().shown(&["stats", "shards"]), @r"
    exit 0
    --- stdout
    shards: 100 samples, 5 columns

      column  type               nulls  distinct  of          min  mean  max  histogram
      blob    bytes                  0       100  bytes         8     8    8  █
      id      int64                  0       100  values        0  49.5   99  ████████████▄
      name    str                    0       100  characters    5   5.9    6  ▁█
      pair    ndarray:float32:2      0       100  items         2     2    2  █
      score   float64                0       100  values        0  4.95  9.9  ██████████
    ");
}

#[test]
fn dataset_stats_equal_table_stats_for_any_thread_count() {
    let dir = TestDir::with_shards();
    let stats = dir.json(&["stats", "shards", "--json"]);
    assert_eq!(
        (&stats["rows"], &stats["complete"]),
        (&json!(100), &json!(true))
    );
    let id = column(&stats, "id");
    assert_eq!(
        (&id["min"], &id["max"], &id["mean"], &id["nulls"]),
        (&json!(0), &json!(99), &json!(49.5), &json!(0))
    );
    assert_eq!(id["distinct"], json!({"count": 100, "exact": true}));
    let bins = id["histogram"].as_array().unwrap();
    assert_eq!(bins[0], json!({"from": 0, "to": 8, "count": 8}));
    assert_eq!(bins[12], json!({"from": 96, "to": 104, "count": 4}));
    assert_eq!(column(&stats, "score")["max"], json!(9.9));
    let name = column(&stats, "name");
    assert_eq!(
        (&name["measure"], &name["min"], &name["max"]),
        (&json!("characters"), &json!(5), &json!(6))
    );
    assert_eq!(column(&stats, "blob")["measure"], json!("bytes"));
    let pair = column(&stats, "pair");
    assert_eq!(
        (&pair["measure"], &pair["mean"]),
        (&json!("items"), &json!(2.0))
    );
    for jobs in ["1", "3", "8"] {
        assert_eq!(
            dir.json(&["stats", "shards", "--json", "--jobs", jobs]),
            stats
        );
    }
    let table = dir.json(&["stats", "data", "--json"]);
    for name in ["id", "score", "name", "blob", "pair"] {
        let (mut a, mut b) = (column(&table, name).clone(), column(&stats, name).clone());
        (a["type"], b["type"]) = (Value::Null, Value::Null);
        // Arrays are compared by their bytes in shards, and by their text in tables.
        assert_eq!(a, b, "{name}");
    }
}

#[test]
fn stats_cover_every_column_type() {
    let dir = TestDir::new();
    let columns: [(&str, ArrayRef); 6] = [
        (
            "flag",
            Arc::new(BooleanArray::from(vec![
                Some(true),
                Some(false),
                Some(true),
                None,
            ])),
        ),
        (
            "float",
            Arc::new(Float64Array::from(vec![
                f64::NAN,
                f64::INFINITY,
                -0.0,
                f64::NEG_INFINITY,
            ])),
        ),
        (
            "price",
            Arc::new(
                Decimal128Array::from(vec![Some(150), Some(-25), None, Some(100)])
                    .with_precision_and_scale(10, 2)
                    .unwrap(),
            ),
        ),
        ("day", Arc::new(Date32Array::from(vec![0, 1, 365, 1]))),
        (
            "big",
            Arc::new(Int64Array::from(vec![i64::MIN, i64::MAX, 0, 1])),
        ),
        (
            "text",
            Arc::new(StringArray::from(vec!["", "日本", "abc", "abc"])),
        ),
    ];
    dir.parquet(
        "rows.parquet",
        &RecordBatch::try_from_iter(columns).unwrap(),
    );
    let stats = dir.json(&["stats", "rows.parquet", "--json"]);
    let flag = column(&stats, "flag");
    assert_eq!((&flag["count"], &flag["nulls"]), (&json!(3), &json!(1)));
    assert_eq!((&flag["min"], &flag["max"]), (&json!(0), &json!(1)));
    let float = column(&stats, "float");
    assert_eq!(
        float["special"],
        json!({"nan": 1, "infinity": 1, "negative_infinity": 1, "unreadable": 0})
    );
    assert_eq!(
        (&float["min"], &float["max"], &float["count"]),
        (&json!(0.0), &json!(0.0), &json!(4))
    );
    let price = column(&stats, "price");
    assert_eq!(
        (&price["min"], &price["max"]),
        (&json!("-0.25"), &json!("1.50"))
    );
    assert_eq!(price["mean"], json!(0.75));
    let day = column(&stats, "day");
    assert_eq!(
        (&day["min"], &day["max"]),
        (&json!("1970-01-01"), &json!("1971-01-01"))
    );
    let big = column(&stats, "big");
    assert_eq!(
        (&big["min"], &big["max"], &big["mean"]),
        (&json!(i64::MIN), &json!(i64::MAX), &json!(0.0))
    );
    let text = column(&stats, "text");
    assert_eq!(
        (&text["max"], &text["distinct"]["count"]),
        (&json!(3), &json!(3))
    );
    assert_eq!(text["mean"], json!(2.0));
}

#[test]
fn masked_values_count_as_nulls() {
    let dir = TestDir::new();
    dir.write("rows.csv", "id,score\n1,5\n2,\n3,7\n");
    dir.ok(&["convert", "rows.csv", "shards", "--nulls", "mask"]);
    let stats = dir.json(&["stats", "shards", "--json"]);
    let score = column(&stats, "score");
    assert_eq!(
        (&score["count"], &score["nulls"], &score["min"]),
        (&json!(2), &json!(1), &json!(5))
    );
    assert!(!stats.to_string().contains("__is_null"), "{stats}");
}

#[test]
fn tar_fields_are_measured_by_extension() {
    let dir = TestDir::with_tars();
    let stats = dir.json(&["stats", "tars", "--json"]);
    let label = column(&stats, "cls");
    assert_eq!(
        (&label["measure"], &label["min"], &label["max"]),
        (&json!("value"), &json!(0), &json!(4))
    );
    let text = column(&stats, "txt");
    assert_eq!(
        (&text["measure"], &text["mean"]),
        (&json!("characters"), &json!(6.0))
    );
}

#[test]
fn limit_measures_only_the_first_samples() {
    let dir = TestDir::with_shards();
    let stats = dir.json(&["stats", "shards", "-n", "31", "--json", "-c", "id"]);
    assert_eq!(
        (&stats["rows"], &stats["complete"]),
        (&json!(31), &json!(false))
    );
    assert_eq!(column(&stats, "id")["max"], json!(30));
    assert_eq!(stats["columns"].as_array().unwrap().len(), 1);
    let all = dir.json(&["stats", "shards", "-n", "100", "--json"]);
    assert_eq!(all["complete"], json!(true));
    // The rows of text are not counted before they are read.
    dir.write("rows.csv", "id\n1\n2\n3\n");
    let stats = dir.json(&["stats", "rows.csv", "-n", "2", "--json"]);
    assert_eq!(
        (&stats["rows"], &stats["complete"]),
        (&json!(2), &json!(false))
    );
}

#[test]
fn unknown_column_and_damaged_shard_are_errors() {
    let dir = TestDir::with_shards();
    let ran = dir.run(&["stats", "shards", "-c", "nmae", "--json"]);
    assert_eq!(
        (ran.code, &ran.error()["id"]),
        (2, &json!("column-unknown"))
    );
    let mut shard = dir.read("shards/shard.00002.mds.zstd");
    shard[60] ^= 1;
    dir.write("shards/shard.00002.mds.zstd", shard);
    let ran = dir.run(&["stats", "shards", "--json"]);
    assert_eq!((ran.code, &ran.error()["id"]), (3, &json!("hash-mismatch")));
}
