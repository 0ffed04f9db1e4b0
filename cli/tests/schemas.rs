//! Tests how `convert` handles files with different columns, and columns of every type with nulls.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BinaryBuilder, DurationMicrosecondArray, Float64Array, Int32Array,
    Int64Array, ListArray, ListBuilder, NullArray, RecordBatch, StringArray, StructArray,
    new_null_array,
};
use arrow::datatypes::{DataType, Field, Fields, Int32Type};
use serde_json::{Value, json};

use crate::common::TestDir;

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(
        columns
            .into_iter()
            .map(|(name, column)| (name, column, true)),
    )
    .unwrap()
}

fn longs(values: Vec<Option<i64>>) -> ArrayRef {
    Arc::new(Int64Array::from(values))
}

/// The samples of a dataset.
fn samples(dir: &TestDir, shards: &str) -> Vec<Value> {
    dir.ok(&["verify", shards, "--deep"]);
    let lines = dir.ok(&["cat", shards, ".."]);
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn column(dir: &TestDir, shards: &str, name: &str) -> Vec<Value> {
    let samples = samples(dir, shards);
    samples.iter().map(|sample| sample[name].clone()).collect()
}

#[test]
fn integer_columns_are_widened_across_files() {
    let dir = TestDir::new();
    dir.parquet(
        "in/a.parquet",
        &batch(vec![("x", Arc::new(Int32Array::from(vec![1, 2])))]),
    );
    dir.parquet(
        "in/b.parquet",
        &batch(vec![("x", longs(vec![Some(1 << 40)]))]),
    );
    dir.ok(&["convert", "in", "out"]);
    assert_eq!(
        column(&dir, "out", "x"),
        [json!(1), json!(2), json!(1_u64 << 40)]
    );
    // The same files with other names are the same rows in another order, with the same type.
    dir.parquet(
        "other/a.parquet",
        &batch(vec![("x", longs(vec![Some(1 << 40)]))]),
    );
    dir.parquet(
        "other/b.parquet",
        &batch(vec![("x", Arc::new(Int32Array::from(vec![1, 2])))]),
    );
    dir.ok(&["convert", "other", "turned"]);
    assert_eq!(
        column(&dir, "turned", "x"),
        [json!(1_u64 << 40), json!(1), json!(2)]
    );

    // Parts agree on the type, and the rule is part of what they agree on.
    for part in ["0/2", "1/2"] {
        dir.ok(&["convert", "in", "parts", "--part", part]);
    }
    dir.ok(&["commit", "parts"]);
    assert_eq!(samples(&dir, "parts"), samples(&dir, "out"));

    // The rule decides on the output, so that a dataset made with another one is not continued.
    let shown = dir.shown(&["convert", "in", "out", "--schema", "union"]);
    assert!(shown.starts_with("exit 4"), "{shown}");
    let plan = dir.json(&[
        "convert",
        "in",
        "new",
        "--schema",
        "union",
        "--dry-run",
        "--json",
    ]);
    assert!(plan.to_string().contains(r#""schema":"union""#), "{plan}");
    let shown = dir.shown(&["convert", "in", "new", "--schema", "strict"]);
    assert!(
        shown.contains("error[parquet-schema-mismatch]: in/b.parquet"),
        "{shown}"
    );
    assert!(shown.contains("omit --schema strict"), "{shown}");
    dir.write("rows.csv", "a\n1\n");
    let shown = dir.shown(&["convert", "rows.csv", "csv", "--schema", "union"]);
    assert!(shown.contains("error[config-schema]"), "{shown}");
}

#[test]
fn options_suggested_by_schema_errors_work() {
    let dir = TestDir::new();
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![0.5]));
    dir.parquet(
        "in/a.parquet",
        &batch(vec![
            ("x", longs(vec![Some(1)])),
            ("id", longs(vec![Some(7)])),
        ]),
    );
    dir.parquet(
        "in/b.parquet",
        &batch(vec![("id", longs(vec![Some(8)])), ("x", floats)]),
    );
    let ran = dir.run(&["convert", "in", "out"]);
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    for part in ["in/a.parquet", "in/b.parquet", "`x`", "Int64", "Float64"] {
        assert!(ran.stderr.contains(part), "{}", ran.stderr);
    }
    let mut quoted = ran.stderr.split('\'').skip(1).step_by(2);
    let cast = quoted.next().unwrap();
    let without = quoted.next().unwrap();
    dir.ok(&["convert", "in", "cast", "--select", cast]);
    assert_eq!(column(&dir, "cast", "x"), [json!(1.0), json!(0.5)]);
    assert_eq!(column(&dir, "cast", "id"), [json!(7), json!(8)]);
    dir.ok(&["convert", "in", "without", "--select", without]);
    assert_eq!(column(&dir, "without", "id"), [json!(7), json!(8)]);
    dir.ok(&["convert", "in", "one", "--column", "id"]);
    dir.ok(&["convert", "in", "encoded", "--column", "x:float32"]);
    assert_eq!(column(&dir, "encoded", "x"), [json!(1.0), json!(0.5)]);
    dir.ok(&[
        "convert",
        "in",
        "rounded",
        "--column",
        "x=cast(x as bigint)",
    ]);
    assert_eq!(column(&dir, "rounded", "x"), [json!(1), json!(0)]);
    // What `inspect` shows does not depend on how nulls for missing columns are allowed.
    dir.parquet(
        "lacking/a.parquet",
        &batch(vec![("x", longs(vec![Some(1)]))]),
    );
    dir.parquet(
        "lacking/b.parquet",
        &batch(vec![("y", longs(vec![Some(1)]))]),
    );
    dir.ok(&["inspect", "lacking"]);
    let ran = dir.run(&["convert", "lacking", "lacked"]);
    assert!(ran.stderr.contains("pass --schema union"), "{}", ran.stderr);
    dir.ok(&[
        "convert", "lacking", "lacked", "--schema", "union", "--nulls", "mask",
    ]);
    assert_eq!(column(&dir, "lacked", "y__is_null"), [json!(1), json!(0)]);
}

/// A column of each type that has nulls, or nothing but nulls.
fn odd() -> RecordBatch {
    let mut files = ListBuilder::new(BinaryBuilder::new());
    files.values().append_value([0, 255]);
    files.values().append_null();
    files.append(true);
    files.append(false);
    let lists = [Some(vec![Some(1), Some(2)]), None];
    let bytes: ArrayRef = Arc::new(BinaryArray::from(vec![Some(&b"ab"[..]), None]));
    let fields = Fields::from(vec![
        Field::new("raw", DataType::Binary, true),
        Field::new("void", DataType::Null, true),
    ]);
    let parts = vec![bytes, Arc::new(NullArray::new(2)) as ArrayRef];
    batch(vec![
        ("nothing", Arc::new(NullArray::new(2))),
        ("files", Arc::new(files.finish())),
        (
            "parts",
            Arc::new(StructArray::try_new(fields, parts, None).unwrap()),
        ),
        (
            "numbers",
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists)),
        ),
        (
            "took",
            Arc::new(DurationMicrosecondArray::from(vec![Some(90_500_000), None])),
        ),
        (
            "voids",
            new_null_array(&DataType::new_list(DataType::Null, true), 2),
        ),
        (
            "digits",
            Arc::new(StringArray::from(vec![Some("12"), None])),
        ),
    ])
}

#[test]
fn parquet_with_unusual_types_is_converted() {
    let dir = TestDir::new();
    dir.parquet("in/a.parquet", &odd());
    dir.ok(&["convert", "in", "out", "--nulls", "mask"]);
    let found = samples(&dir, "out");
    let expected = [
        json!({"nothing": null, "files": ["AP8=", null], "parts": {"raw": "YWI=", "void": null},
            "took": "PT90.5S", "took__is_null": 0, "voids": null, "numbers__is_null": 0,
            "digits": "12", "digits__is_null": 0}),
        json!({"nothing": null, "files": null, "parts": {"raw": null, "void": null},
            "took": "P0D", "took__is_null": 1, "voids": null, "numbers__is_null": 1,
            "digits": "", "digits__is_null": 1}),
    ];
    for (mut found, expected) in found.into_iter().zip(expected) {
        let numbers = found.as_object_mut().unwrap().remove("numbers").unwrap();
        let is_null = expected["numbers__is_null"] == json!(1);
        let shape = if is_null { "[1]" } else { "[2]" };
        assert!(numbers.to_string().contains(shape), "{numbers}");
        assert_eq!(found, expected);
    }
    // In tar files; and a column of nothing but nulls does not leave every row out.
    let args = ["convert", "in", "tars", "--to", "webdataset"];
    dir.ok(&[&args[..], &["--nulls", "mask"]].concat());
    dir.ok(&["verify", "tars", "--deep"]);
    dir.ok(&[
        "convert",
        "in",
        "dropped",
        "--nulls",
        "drop",
        "--select",
        "nothing, took",
    ]);
    assert_eq!(column(&dir, "dropped", "nothing"), [Value::Null]);
    // Texts of digits have the digit that stands for nothing.
    let digits = ["--nulls", "mask", "--column", "digits:str_int"];
    dir.ok(&[&["convert", "in", "digits"][..], &digits].concat());
    assert_eq!(
        column(&dir, "digits", "digits__is_null"),
        [json!(0), json!(1)]
    );
}

#[test]
fn options_suggested_by_null_errors_work() {
    let dir = TestDir::new();
    dir.parquet("in/a.parquet", &odd());
    let shown = dir.shown(&["convert", "in", "out", "--select", "numbers"]);
    assert!(
        shown.contains("choose --nulls mask or --nulls drop"),
        "{shown}"
    );
    assert!(!shown.contains("--null-as"), "{shown}");
    let bytes: ArrayRef = Arc::new(BinaryArray::from(vec![
        Some(&b"\xff\xd8\xff\xd9"[..]),
        None,
    ]));
    dir.parquet("images/a.parquet", &batch(vec![("image", bytes)]));
    for nulls in ["error", "mask"] {
        let args = [
            "convert",
            "images",
            "out",
            "--column",
            "image:jpeg",
            "--nulls",
            nulls,
        ];
        let shown = dir.shown(&args);
        assert!(shown.contains("--nulls drop"), "{shown}");
        assert!(!shown.contains("choose --nulls mask"), "{shown}");
    }
    let lists = [Some(vec![Some(1), None])];
    let inside = ListArray::from_iter_primitive::<Int32Type, _, _>(lists);
    dir.parquet("inside/a.parquet", &batch(vec![("x", Arc::new(inside))]));
    for nulls in ["error", "drop"] {
        let shown = dir.shown(&["convert", "inside", "out", "--nulls", nulls]);
        assert!(
            shown.contains("error[array-null]") && shown.contains("--column x:json"),
            "{shown}"
        );
        assert!(shown.contains("--nulls mask"), "{shown}");
    }
    dir.ok(&["convert", "inside", "masked", "--nulls", "mask"]);
    let found = samples(&dir, "masked").remove(0);
    assert_eq!(found["x__is_null"], json!(2));
    assert_eq!(found["x"]["data"], json!([1, 0]));
    dir.ok(&["convert", "inside", "out", "--column", "x:json"]);
    assert_eq!(column(&dir, "out", "x"), [json!([1, null])]);
}

#[test]
fn delta_table_with_unusual_types_is_converted() {
    let dir = TestDir::new();
    let field = |name: &str, data_type: Value| json!({"name": name, "type": data_type, "nullable": true, "metadata": {}});
    let structure = json!({"type": "struct", "fields": [field("raw", json!("binary")), field("void", json!("void"))]});
    let array = |item: &str| json!({"type": "array", "elementType": item, "containsNull": true});
    let schema = json!({"type": "struct", "fields": [
        field("nothing", json!("void")),
        field("files", array("binary")),
        field("parts", structure),
        field("numbers", array("integer")),
        field("wide", json!("long")),
    ]});
    // The file is older than the type `long`, and has no column of nothing.
    let odd = odd();
    let narrow: ArrayRef = Arc::new(Int32Array::from(vec![Some(5), None]));
    let raw = odd.column_by_name("parts").unwrap();
    let raw = raw.as_any().downcast_ref::<StructArray>().unwrap();
    let fields = Fields::from(vec![Field::new("raw", DataType::Binary, true)]);
    let parts = StructArray::try_new(fields, vec![Arc::clone(raw.column(0))], None).unwrap();
    dir.parquet(
        "table/0.parquet",
        &batch(vec![
            ("files", Arc::clone(odd.column_by_name("files").unwrap())),
            ("parts", Arc::new(parts)),
            (
                "numbers",
                Arc::clone(odd.column_by_name("numbers").unwrap()),
            ),
            ("wide", narrow),
        ]),
    );
    let size = dir.read("table/0.parquet").len();
    let log = [
        json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}),
        json!({"metaData": {"id": "t", "format": {"provider": "parquet", "options": {}}, "schemaString": schema.to_string(),
            "partitionColumns": [], "configuration": {}, "createdTime": 0}}),
        json!({"add": {"path": "0.parquet", "partitionValues": {}, "size": size, "modificationTime": 0, "dataChange": true}}),
    ];
    let lines: Vec<String> = log.iter().map(Value::to_string).collect();
    dir.write(
        "table/_delta_log/00000000000000000000.json",
        lines.join("\n"),
    );
    dir.ok(&["convert", "table", "out", "--nulls", "mask"]);
    assert_eq!(column(&dir, "out", "nothing"), [Value::Null, Value::Null]);
    assert_eq!(
        column(&dir, "out", "files"),
        [json!(["AP8=", null]), Value::Null]
    );
    assert_eq!(column(&dir, "out", "wide"), [json!(5), json!(0)]);
    assert_eq!(
        column(&dir, "out", "numbers__is_null"),
        [json!(0), json!(1)]
    );
    assert_eq!(
        column(&dir, "out", "parts"),
        [
            json!({"raw": "YWI=", "void": null}),
            json!({"raw": null, "void": null})
        ]
    );
}
