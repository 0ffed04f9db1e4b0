//! Tests tables of another writer against the rows that it lists for them (`fixtures/delta`).

use std::fs;
use std::path::Path;

use arrow::array::{Array, AsArray as _, RecordBatch};
use arrow::datatypes::{
    DataType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
};
use arrow::util::display::array_value_to_string;
use serde_json::{Map, Value, json};
use shardmill_source::{SourceOptions, open};

use crate::help::batches;

#[test]
fn fixture_tables_have_the_expected_rows() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/delta");
    for (name, versions) in [("versions", 5), ("types", 1), ("evolved", 2)] {
        let expected = fs::read_to_string(folder.join(format!("{name}.expected.jsonl"))).unwrap();
        assert_eq!(expected.lines().count(), versions);
        for line in expected.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let mut options = SourceOptions::default();
            options.delta.choice.version = line["version"].as_u64();
            let source = open(&[folder.join(name).into()], &options).unwrap();
            let mut found: Vec<Value> = batches(source.as_ref())
                .unwrap()
                .iter()
                .flat_map(rows)
                .collect();
            found.sort_by_key(|row| row["id"].as_i64());
            let expected = line["rows"].as_array().unwrap();
            assert_eq!(found.len(), expected.len(), "{name} {}", line["version"]);
            for (found, expected) in found.iter().zip(expected) {
                assert_eq!(found, expected, "{name} {}", line["version"]);
            }
        }
    }
}

fn rows(batch: &RecordBatch) -> Vec<Value> {
    let row = |row| {
        let columns = batch.schema();
        let values = columns
            .fields()
            .iter()
            .zip(batch.columns())
            .map(|(field, column)| (field.name().clone(), value(column, row)));
        Value::Object(values.collect())
    };
    (0..batch.num_rows()).map(row).collect()
}

/// Formats a value as the script does.
fn value(array: &dyn Array, row: usize) -> Value {
    if array.is_null(row) {
        return Value::Null;
    }
    match array.data_type() {
        DataType::Boolean => json!(array.as_boolean().value(row)),
        DataType::Int8 => json!(array.as_primitive::<Int8Type>().value(row)),
        DataType::Int16 => json!(array.as_primitive::<Int16Type>().value(row)),
        DataType::Int32 => json!(array.as_primitive::<Int32Type>().value(row)),
        DataType::Int64 => json!(array.as_primitive::<Int64Type>().value(row)),
        DataType::Float32 => json!(array.as_primitive::<Float32Type>().value(row)),
        DataType::Float64 => json!(array.as_primitive::<Float64Type>().value(row)),
        DataType::Utf8 => json!(array.as_string::<i32>().value(row)),
        DataType::Timestamp(_, _) => {
            let shown = array_value_to_string(array, row).unwrap();
            json!(shown.replace('T', " ").replace('Z', "+00:00"))
        }
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns();
            let values = fields
                .iter()
                .zip(columns)
                .map(|(field, column)| (field.name().clone(), value(column, row)));
            Value::Object(values.collect())
        }
        DataType::List(_) => {
            let items = array.as_list::<i32>().value(row);
            (0..items.len()).map(|item| value(&items, item)).collect()
        }
        DataType::Map(_, _) => {
            let entries = array.as_map().value(row);
            let mut values = Map::new();
            for entry in 0..entries.len() {
                let key = entries.column(0).as_string::<i32>().value(entry);
                values.insert(key.to_owned(), value(entries.column(1), entry));
            }
            Value::Object(values)
        }
        _ => json!(array_value_to_string(array, row).unwrap()),
    }
}
