//! Values that are easily rounded or reordered: `view` shows what `cat` prints.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Decimal128Array, Float16Array, Float32Array, Float64Array, Int8Array, Int64Array,
    ListArray, RecordBatch, StringArray, TimestampMicrosecondArray, UInt64Array,
};
use arrow::datatypes::{Float64Type, Int64Type, UInt64Type};
use shardmill_mds::f16;

use super::*;

/// Rows with the extremes of their types.
fn extremes() -> RecordBatch {
    let big = 9_007_199_254_740_993_i64;
    let lists = |values: [Vec<u64>; 4]| {
        let values = values
            .into_iter()
            .map(|list| Some(list.into_iter().map(Some)));
        ListArray::from_iter_primitive::<UInt64Type, _, _>(values)
    };
    let signed = [
        vec![i64::MIN, big],
        vec![i64::MAX; 20],
        vec![-big],
        vec![0, 1],
    ];
    let signed = signed.map(|list| Some(list.into_iter().map(Some)));
    let floats = [
        vec![1.0, f64::NAN],
        vec![0.1, -0.0],
        vec![f64::INFINITY],
        vec![1e300, 5e-324],
    ];
    let floats = floats.map(|list| Some(list.into_iter().map(Some)));
    let decimal = Decimal128Array::from(vec![i128::from(big) * 1_000_000 + 50, 100, 0, -1])
        .with_precision_and_scale(38, 2)
        .unwrap();
    let columns: [(&str, ArrayRef); 12] = [
        ("decimal", Arc::new(decimal)),
        (
            "float",
            Arc::new(Float64Array::from(vec![
                1.0,
                f64::NAN,
                f64::NEG_INFINITY,
                1e300,
            ])),
        ),
        (
            "float32",
            Arc::new(Float32Array::from(vec![
                0.1,
                1.0,
                f32::INFINITY,
                16_777_217.0,
            ])),
        ),
        (
            "half",
            Arc::new(Float16Array::from_iter_values(
                [0.1, 1.0, -2.5, 65504.0].map(f16::from_f64),
            )),
        ),
        (
            "floats",
            Arc::new(ListArray::from_iter_primitive::<Float64Type, _, _>(floats)),
        ),
        (
            "small",
            Arc::new(Int8Array::from(vec![i8::MIN, i8::MAX, 0, -1])),
        ),
        (
            "int",
            Arc::new(Int64Array::from(vec![
                big,
                i64::MIN,
                i64::MAX,
                1_764_300_000_000,
            ])),
        ),
        (
            "uint",
            Arc::new(UInt64Array::from(vec![u64::MAX, 0, 1 << 53, (1 << 53) + 1])),
        ),
        (
            "signed",
            Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(signed)),
        ),
        (
            "unsigned",
            Arc::new(lists([
                vec![u64::MAX, u64::MAX - 1],
                (0..20).map(|n| u64::MAX - n).collect(),
                vec![7],
                vec![1],
            ])),
        ),
        (
            "text",
            Arc::new(StringArray::from(vec![
                "9007199254740993",
                "1.0",
                "a   b",
                "NaN",
            ])),
        ),
        (
            "time",
            Arc::new(TimestampMicrosecondArray::from(vec![
                1_764_300_000_000_001,
                0,
                -1,
                253_402_300_799_999_999,
            ])),
        ),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, false)))
        .unwrap()
}

const JSON: &str =
    r#"{"b": 9007199254740993, "1": [1.0, -0.0, 1E3, "a   b"], "a": {"t": 18446744073709551616}}"#;

/// Returns the members of a JSON object as they are written.
fn members(line: &str) -> Vec<(String, String)> {
    let (mut depth, mut is_text, mut escaped) = (0, false, false);
    let mut parts = vec![String::new()];
    for c in line.trim().chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => is_text = !is_text,
            _ if is_text => {}
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            ',' if depth == 1 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().unwrap().push(c);
    }
    let parts = parts.iter().map(|part| {
        let (name, value) = part.trim_start_matches('{').split_once("\":").unwrap();
        (name.trim_matches('"').to_owned(), value.to_owned())
    });
    let mut parts: Vec<(String, String)> = parts.collect();
    parts.last_mut().unwrap().1.pop();
    parts
}

/// Returns a value as the page writes it: numbers without the quotes that JSON needs, arrays as their numbers.
fn page_text(printed: &str) -> String {
    match serde_json::from_str::<Value>(printed).unwrap() {
        Value::String(text) => text,
        Value::Object(array) if array.contains_key("dtype") => {
            let (_, data) = printed.split_once("\"data\":[").unwrap();
            data.trim_end_matches("]}")
                .replace('"', "")
                .replace(',', ", ")
        }
        _ => printed.to_owned(),
    }
}

/// Checks that a field has the text that a command prints.
fn check_field(field: &Value, printed: &str, what: &str) {
    let shown = match &field["kind"] {
        Value::String(kind) if kind == "array" => &field["items"],
        _ => &field["text"],
    };
    assert_eq!(shown, &page_text(printed), "{what}: {field}");
}

#[test]
fn values_are_shown_as_cat_prints_them() {
    let dir = TestDir::new();
    dir.parquet("table/rows.parquet", &extremes());
    dir.write(
        "lines/a.jsonl",
        format!("{{\"id\": 18446744073709551615, \"json\": {JSON}, \"float\": 1.0}}\n"),
    );
    dir.write("tree/0.json", JSON);
    dir.write("tree/0.cls", "9223372036854775807");
    dir.ok(&[
        "convert",
        "table",
        "mds",
        "--column",
        "*",
        "--column",
        "unsigned:ndarray:uint64",
        "--column",
        "signed:ndarray:int64",
        "--column",
        "floats:ndarray:float64",
    ]);
    dir.write(
        "plain/a.jsonl",
        "{\"id\": 18446744073709551615, \"float\": 1.0}\n",
    );
    dir.ok(&["convert", "lines", "lines-mds"]);
    dir.ok(&[
        "convert",
        "table",
        "tars",
        "--to",
        "webdataset",
        "--column",
        "npy=unsigned",
        "--column",
        "a.npy=floats",
        "--column",
        "json:json=signed",
        "--column",
        "cls=int",
    ]);
    dir.ok(&["convert", "tree", "tree-tars", "--to", "webdataset"]);
    dir.json_shards(
        "text",
        &[("float", "float"), ("id", "str")],
        "{\"float\": 0.1, \"id\": \"0\"}\n{\"float\": NaN, \"id\": \"1\"}\n{\"float\": -0.0, \"id\": \"2\"}\n",
    );
    for (location, fields) in [
        ("mds", 12),
        ("tars", 5),
        ("lines-mds", 3),
        ("tree-tars", 3),
        ("text", 2),
    ] {
        let view = View::start(&dir, location, &[]);
        let printed = dir.ok(&["cat", location, "0.."]);
        for (number, line) in (0..).zip(printed.lines()) {
            let shown = view.fields(number);
            let members = members(line);
            assert_eq!(members.len(), fields, "{location}: {line}");
            for (name, value) in members {
                check_field(
                    &shown[&name],
                    &value,
                    &format!("{location} {number} {name}"),
                );
            }
        }
    }
    // Rows that are not converted, which `head` prints.
    for location in ["table", "lines"] {
        let view = View::start(&dir, location, &[]);
        let printed = dir.ok(&["head", location, "--json"]);
        for (number, line) in (0..).zip(printed.lines()) {
            let shown = view.fields(number);
            for (name, value) in members(line) {
                check_field(
                    &shown[&name],
                    &value,
                    &format!("{location} {number} {name}"),
                );
            }
        }
    }
}

#[test]
fn statistics_and_reports_keep_all_digits() {
    let dir = TestDir::new();
    dir.parquet("table/rows.parquet", &extremes());
    dir.ok(&["convert", "table", "mds"]);
    for location in ["table", "mds"] {
        let stats = dir.ok(&["stats", location, "--json"]);
        let view = View::start(&dir, location, &[]);
        let answer = view.get("/api/run/stats").text();
        assert!(answer.contains(stats.trim()), "{location}: {answer}");
        for text in [
            "\"min\":0,\"max\":18446744073709551615",
            "\"min\":-9223372036854775808,\"max\":9223372036854775807",
            "\"min\":1.0,\"max\":1e+300",
            // As `cat` prints a float of 32 bits.
            "\"min\":0.1,\"max\":16777216.0",
        ] {
            assert!(stats.contains(text), "{location}: {text}: {stats}");
        }
        let exported = ["view", location, "--export", "report.html"];
        dir.ok(&exported);
        let page = String::from_utf8(dir.read("report.html")).unwrap();
        let quoted = |text: &str| Value::from(text).to_string().replace('<', "\\u003c");
        let stats = quoted(stats.trim());
        assert!(page.contains(stats.trim_matches('"')), "{location}");
        assert!(page.contains("\"text\":\"9007199254740993\""), "{location}");
    }
    // The most frequent values, and the samples that have them.
    let view = View::start(&dir, "mds", &[]);
    for (column, wanted) in [
        ("uint", "18446744073709551615"),
        ("int", "-9223372036854775808"),
        ("float", "NaN"),
        ("float", "-Infinity"),
        ("float32", "0.1"),
        ("half", "0.099975586"),
    ] {
        let found = view
            .get(&format!("/api/frequent?column={column}&limit=9"))
            .json();
        let value = json!({ "text": wanted, "count": 1 });
        assert!(
            found["values"].as_array().unwrap().contains(&value),
            "{column}: {found}"
        );
    }
    // The conditions of the page, as a unit test of it writes them.
    for condition in [
        "\"uint\" = CAST('18446744073709551615' AS DECIMAL(38, 0))",
        "\"uint\" >= 9 AND \"uint\" < CAST('18446744073709551616' AS DECIMAL(38, 0)) AND \"uint\" > CAST('18446744073709551614' AS DECIMAL(38, 0))",
        "\"int\" = CAST('-9223372036854775808' AS DECIMAL(38, 0))",
        "\"float\" = 1e300",
        "\"float\" >= 1e+299",
        "\"float\" = CAST('NaN' AS DOUBLE)",
        "\"float\" = CAST('-Infinity' AS DOUBLE)",
        "\"float32\" = CAST(0.1 AS REAL)",
        "\"float32\" = CAST('Infinity' AS REAL)",
        "\"half\" = CAST(0.099975586 AS REAL)",
    ] {
        for location in ["mds", "table"] {
            let found = dir.json(&[
                "select",
                location,
                "--where",
                condition,
                "-o",
                "v",
                "--overwrite",
                "--json",
            ]);
            let expected = if condition.contains(">= 1e+299") {
                2
            } else {
                1
            };
            assert_eq!(found["samples"], expected, "{location}: {condition}");
        }
    }
}
