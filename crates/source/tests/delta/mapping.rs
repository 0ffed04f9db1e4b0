//! Tests column mapping: columns are found by id or by name, as the table says, at every level.

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, Int64Array, ListArray, MapArray, RecordBatch, StringArray,
    StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Fields};
use serde_json::{Value, json};
use shardmill_core::ErrorKind;

use super::table::{Add, Table, mapped, with_id, with_ids};
use crate::help::{array, batch, batches, open_one, open_with, read, refused};

const A: [i64; 3] = [1, 2, 3];
const B: [&str; 3] = ["x", "y", "z"];

fn two(first: &str, second: &str) -> RecordBatch {
    super::nullable(vec![
        (first, array(Int64Array::from(A.to_vec()))),
        (second, array(StringArray::from(B.to_vec()))),
    ])
}

fn table(mode: &str, fields: Value, file: &RecordBatch) -> Table {
    let mut table = Table::with(
        fields,
        &["columnMapping"],
        json!({"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "9"}),
    );
    table.append("x.parquet", file);
    table
}

fn a_and_b() -> Value {
    json!([
        mapped("a", "long", 1, "col-1"),
        mapped("b", "string", 2, "col-2")
    ])
}

fn assert_a_and_b(table: &Table) {
    let source = open_one(&table.path());
    assert_eq!(read(source.as_ref()), two("a", "b"));
}

#[test]
fn id_mode_finds_columns_by_id_under_any_name() {
    let file = with_ids(&two("zzz", "yyy"), &[1, 2]);
    assert_a_and_b(&table("id", a_and_b(), &file));
}

#[test]
fn id_mode_rejects_file_without_field_ids() {
    for file in [two("col-1", "col-2"), two("a", "b")] {
        let table = table("id", a_and_b(), &file);
        let error = refused(&table.path(), |_| ());
        assert_eq!(
            (error.id(), error.kind()),
            ("delta-field-ids", ErrorKind::Corrupt)
        );
        assert!(
            error.object().unwrap().ends_with("t/x.parquet"),
            "{error:?}"
        );
    }
}

#[test]
fn id_mode_reads_missing_id_as_null() {
    let table = table("id", a_and_b(), &with_ids(&two("col-1", "col-2"), &[1, 7]));
    let found = read(open_one(&table.path()).as_ref());
    assert_eq!(
        found.column(0),
        &(Arc::new(Int64Array::from(A.to_vec())) as ArrayRef)
    );
    assert_eq!(found.column(1).null_count(), 3);
}

#[test]
fn id_mode_prefers_ids_over_conflicting_names() {
    // The column with the name of one has the id of the other.
    let file = batch(vec![
        ("col-2", array(Int64Array::from(A.to_vec()))),
        ("col-1", array(StringArray::from(B.to_vec()))),
    ]);
    assert_a_and_b(&table("id", a_and_b(), &with_ids(&file, &[1, 2])));
    let same = json!([
        mapped("a", "long", 1, "col-1"),
        mapped("b", "long", 2, "col-2")
    ]);
    let file = batch(vec![
        ("col-2", array(Int64Array::from(vec![1, 2]))),
        ("col-1", array(Int64Array::from(vec![10, 20]))),
    ]);
    let table = table("id", same, &with_ids(&file, &[1, 2]));
    let found = read(open_one(&table.path()).as_ref());
    assert_eq!(
        found.column(0),
        &(Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef)
    );
}

#[test]
fn name_mode_prefers_names_over_conflicting_ids() {
    let file = two("col-1", "col-2");
    assert_a_and_b(&table("name", a_and_b(), &with_ids(&file, &[2, 1])));
    let same = json!([
        mapped("a", "long", 1, "col-1"),
        mapped("b", "long", 2, "col-2")
    ]);
    let file = batch(vec![
        ("col-1", array(Int64Array::from(vec![1, 2]))),
        ("col-2", array(Int64Array::from(vec![10, 20]))),
    ]);
    let table = table("name", same, &with_ids(&file, &[2, 1]));
    let found = read(open_one(&table.path()).as_ref());
    assert_eq!(
        found.column(0),
        &(Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef)
    );
    // Without ids there is nothing that could be missing.
    assert_a_and_b(&self::table("name", a_and_b(), &two("col-1", "col-2")));
}

#[test]
fn name_mode_ignores_columns_with_the_logical_name() {
    let table = table("name", a_and_b(), &two("a", "b"));
    let found = read(open_one(&table.path()).as_ref());
    assert_eq!(
        (found.column(0).null_count(), found.column(1).null_count()),
        (3, 3)
    );
}

/// Builds `s: struct<x: list<struct<p, q>>, y: map<string, struct<r>>>` with the given names, order and ids.
fn nested(names: [&str; 5], ids: [i64; 5], swapped: bool) -> RecordBatch {
    let [x, y, p, q, r] = names;
    let field = |name: &str, data_type: &DataType, id: i64| {
        Arc::new(with_id(Field::new(name, data_type.clone(), true), id))
    };
    let number = |values: Vec<i64>| array(Int64Array::from(values));
    let mut items = vec![
        (field(p, &DataType::Int64, ids[2]), number(vec![1, 2, 3])),
        (field(q, &DataType::Int64, ids[3]), number(vec![10, 20, 30])),
    ];
    if swapped {
        items.reverse();
    }
    let items = StructArray::from(items);
    let list = ListArray::new(
        Arc::new(Field::new("element", items.data_type().clone(), true)),
        OffsetBuffer::from_lengths([2, 0, 1]),
        Arc::new(items),
        Some(NullBuffer::from(vec![true, false, true])),
    );
    let values = StructArray::from(vec![(
        field(r, &DataType::Int64, ids[4]),
        number(vec![7, 8]),
    )]);
    let entries = StructArray::new(
        Fields::from(vec![
            Field::new("key", DataType::Utf8, false),
            Field::new("value", values.data_type().clone(), true),
        ]),
        vec![array(StringArray::from(vec!["k", "l"])), Arc::new(values)],
        None,
    );
    let map = MapArray::new(
        Arc::new(Field::new("key_value", entries.data_type().clone(), false)),
        OffsetBuffer::from_lengths([1, 1, 0]),
        entries,
        None,
        false,
    );
    let mut columns: Vec<(Arc<Field>, ArrayRef)> = vec![
        (field(x, list.data_type(), ids[0]), Arc::new(list)),
        (field(y, map.data_type(), ids[1]), Arc::new(map)),
    ];
    if swapped {
        columns.reverse();
    }
    let whole = StructArray::from(columns);
    with_ids(&batch(vec![("s", Arc::new(whole))]), &[1])
}

fn nested_fields() -> Value {
    let inner = json!({"type": "struct", "fields": [
        mapped("p", "long", 4, "col-p"), mapped("q", "long", 5, "col-q"), mapped("new", "string", 9, "col-new"),
    ]});
    let value = json!({"type": "struct", "fields": [mapped("r", "long", 6, "col-r")]});
    let list = json!({"type": "array", "elementType": inner, "containsNull": true});
    let map =
        json!({"type": "map", "keyType": "string", "valueType": value, "valueContainsNull": true});
    json!([mapped(
        "s",
        json!({"type": "struct", "fields": [mapped("x", list, 2, "col-x"), mapped("y", map, 3, "col-y")]}),
        1,
        "s"
    )])
}

#[test]
fn nested_columns_are_mapped_at_every_level() {
    let ids = [2, 3, 4, 5, 6];
    let names = ["col-x", "col-y", "col-p", "col-q", "col-r"];
    for (mode, file) in [
        ("id", nested(["1", "2", "3", "4", "5"], ids, false)),
        (
            "id",
            nested(["col-y", "col-x", "col-q", "col-p", "s"], ids, true),
        ),
        ("name", nested(names, [3, 2, 5, 4, 1], false)),
        ("name", nested(names, ids, true)),
    ] {
        let table = table(mode, nested_fields(), &file);
        let found = read(open_one(&table.path()).as_ref());
        let whole = found.column(0).as_struct();
        let list = whole.column_by_name("x").unwrap().as_list::<i32>();
        assert_eq!(list.value_offsets(), [0, 2, 2, 3], "{mode}");
        assert!(list.is_null(1), "{mode}");
        let items = list.values().as_struct();
        let number = |values: &[i64]| Arc::new(Int64Array::from(values.to_vec())) as ArrayRef;
        assert_eq!(
            items.column_by_name("p").unwrap(),
            &number(&[1, 2, 3]),
            "{mode}"
        );
        assert_eq!(
            items.column_by_name("q").unwrap(),
            &number(&[10, 20, 30]),
            "{mode}"
        );
        assert_eq!(
            items.column_by_name("new").unwrap().null_count(),
            3,
            "{mode}"
        );
        let map = whole.column_by_name("y").unwrap().as_map();
        let values = map.values().as_struct();
        assert_eq!(
            values.column_by_name("r").unwrap(),
            &number(&[7, 8]),
            "{mode}"
        );
        assert_eq!(map.keys().as_string::<i32>().value(1), "l");
    }
}

#[test]
fn struct_validity_is_kept_if_all_its_fields_are_missing() {
    let old = StructArray::new(
        Fields::from(vec![Field::new("col-old", DataType::Int64, true)]),
        vec![array(Int64Array::from(vec![Some(1), None, None]))],
        Some(NullBuffer::from(vec![true, true, false])),
    );
    let file = batch(vec![("s", array(old))]);
    let fields = json!([mapped(
        "s",
        json!({"type": "struct", "fields": [mapped("new", "string", 3, "col-new")]}),
        1,
        "s"
    )]);
    let table = table("name", fields, &file);
    let found = read(open_one(&table.path()).as_ref());
    let whole = found.column(0).as_struct();
    assert_eq!(
        (0..3).map(|row| whole.is_null(row)).collect::<Vec<_>>(),
        [false, false, true]
    );
    assert_eq!(whole.fields()[0].name(), "new");
    assert_eq!(whole.column(0).null_count(), 3);
}

#[test]
fn partition_values_and_filters_use_the_column_mapping() {
    let mut table = Table::new();
    table.commit(&[
        super::table::protocol(&["columnMapping"]),
        super::table::metadata(
            json!([
                mapped("a", "long", 1, "col-1"),
                mapped("p", "integer", 2, "col-2")
            ]),
            &["p"],
            json!({"delta.columnMapping.mode": "id", "delta.columnMapping.maxColumnId": "2"}),
        ),
    ]);
    for (name, part, from) in [("u.parquet", "5", 0), ("v.parquet", "6", 100)] {
        let file = with_ids(
            &batch(vec![("whatever", super::ids(from..from + 10))]),
            &[1],
        );
        let bytes = table.file(name, &file);
        table.commit(&[Add::new(name)
            .partition(json!({"col-2": part}))
            .action(bytes)]);
    }
    let source = open_with(&table.path(), |options| {
        options.query.filter = Some("p = 6 AND a < 103".to_owned());
    })
    .unwrap();
    assert_eq!(
        source.units().len(),
        1,
        "statistics leave out the other file"
    );
    let found = read(source.as_ref());
    assert_eq!(found.column(0), &super::ids(100..103));
    let source = open_with(&table.path(), |options| {
        options.query.sql =
            Some("SELECT p, sum(a) AS s FROM source GROUP BY p ORDER BY p".to_owned());
    })
    .unwrap();
    let found = batches(source.as_ref()).unwrap().remove(0);
    assert_eq!(found.column(1), &super::ids([45, 1045]));
}

#[test]
fn columns_are_matched_ignoring_case() {
    let fields = json!([
        {"name": "Number", "type": "long", "nullable": true, "metadata": {}},
        {"name": "über", "type": "string", "nullable": true, "metadata": {}},
    ]);
    let written = |file: &RecordBatch| {
        let mut table = Table::with(fields.clone(), &[], json!({}));
        table.append("x.parquet", file);
        table
    };
    let table = written(&two("nUMBER", "ÜBER"));
    assert_eq!(
        read(open_one(&table.path()).as_ref()),
        two("Number", "über")
    );
    // An exact match of the name wins. Of two inexact ones, neither does.
    let three = |first: &str, second: &str| {
        batch(vec![
            (first, array(Int64Array::from(A.to_vec()))),
            (second, array(Int64Array::from(vec![7, 8, 9]))),
            ("über", array(StringArray::from(B.to_vec()))),
        ])
    };
    let table = written(&three("Number", "number"));
    assert_eq!(
        read(open_one(&table.path()).as_ref()),
        two("Number", "über")
    );
    let table = written(&three("NUMBER", "number"));
    let error = refused(&table.path(), |_| ());
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
    assert!(error.to_string().contains("has it twice"), "{error}");
}
