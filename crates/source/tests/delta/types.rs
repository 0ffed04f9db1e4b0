//! Tests types: partition values, widening, times, variants and void columns.

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, BinaryArray, Date32Array, Decimal128Array, Float32Array,
    Float64Array, Int8Array, Int16Array, Int32Array, Int64Array, ListArray, RecordBatch,
    StringArray, StructArray, TimestampMicrosecondArray, TimestampMillisecondArray,
    TimestampNanosecondArray,
};
use arrow::datatypes::{DataType, Field, Fields, Int64Type, Schema, TimeUnit};
use arrow::util::display::array_value_to_string;
use parquet::data_type::{Int96, Int96Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::{Value, json};
use shardmill_source::ENCODING_KEY;

use super::table::{Add, Table, field, metadata, protocol};
use crate::help::{array, batch, open_one, open_with, read, refused};

fn texts(batch: &RecordBatch, row: usize) -> Vec<String> {
    batch
        .columns()
        .iter()
        .map(|column| array_value_to_string(column, row).unwrap())
        .collect()
}

#[test]
fn partition_values_are_parsed_to_column_types() {
    let types = [
        ("string", "a=b%", "a=b%"),
        ("byte", "-128", "-128"),
        ("short", "32767", "32767"),
        ("integer", "-7", "-7"),
        ("long", "9223372036854775807", "9223372036854775807"),
        ("float", "1.5", "1.5"),
        ("double", "-2.25E-3", "-0.00225"),
        ("boolean", "true", "true"),
        ("date", "2024-02-29", "2024-02-29"),
        (
            "timestamp",
            "2021-09-08 11:11:11.25",
            "2021-09-08T11:11:11.250Z",
        ),
        (
            "timestamp_ntz",
            "2021-09-08 11:11:11",
            "2021-09-08T11:11:11",
        ),
        ("decimal(10,3)", "12.5", "12.500"),
        ("binary", "hi", "6869"),
    ];
    let names: Vec<String> = (0..types.len())
        .map(|number| format!("p{number}"))
        .collect();
    let mut fields = vec![field("id", "long")];
    let mut values = serde_json::Map::new();
    let mut nulls = serde_json::Map::new();
    for (name, (data_type, text, _)) in names.iter().zip(types) {
        fields.push(field(name, data_type));
        values.insert(name.clone(), json!(text));
        nulls.insert(name.clone(), Value::Null);
    }
    nulls["p0"] = json!("");
    let mut table = Table::new();
    let partitions: Vec<&str> = names.iter().map(String::as_str).collect();
    table.commit(&[
        protocol(&["timestampNtz"]),
        metadata(json!(fields), &partitions, json!({})),
    ]);
    for (name, values) in [("a.parquet", values), ("b.parquet", nulls)] {
        let bytes = table.file(name, &batch(vec![("id", super::ids(0..2))]));
        let add = Add::new(name).partition(Value::Object(values));
        table.commit(&[add.action(bytes)]);
    }
    let source = open_one(&table.path());
    let found = read(source.as_ref());
    let expected: Vec<&str> = ["1"]
        .into_iter()
        .chain(types.map(|(_, _, shown)| shown))
        .collect();
    assert_eq!(texts(&found, 1), expected);
    assert!(texts(&found, 2).iter().skip(1).all(String::is_empty));
    for column in 1..=types.len() {
        assert_eq!(source.null_count(column), Some(2));
    }
    let schema = source.schema();
    assert_eq!(
        schema.field_with_name("p9").unwrap().data_type(),
        &DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
    );
    // Files of other partitions are not opened.
    let filtered = open_with(&table.path(), |options| {
        options.query.filter = Some("p3 = -7 AND p8 = DATE '2024-02-29'".to_owned());
    })
    .unwrap();
    assert_eq!(
        (filtered.units().len(), read(filtered.as_ref()).num_rows()),
        (1, 2)
    );
}

#[test]
fn narrower_stored_columns_are_widened() {
    let cases: Vec<(&str, ArrayRef, &str)> = vec![
        ("short", array(Int8Array::from(vec![-128])), "-128"),
        ("integer", array(Int8Array::from(vec![7])), "7"),
        ("integer", array(Int16Array::from(vec![-32768])), "-32768"),
        (
            "long",
            array(Int32Array::from(vec![i32::MIN])),
            "-2147483648",
        ),
        (
            "double",
            array(Float32Array::from(vec![0.1])),
            "0.10000000149011612",
        ),
        (
            "double",
            array(Int32Array::from(vec![16_777_217])),
            "16777217.0",
        ),
        (
            "decimal(12,2)",
            array(Int32Array::from(vec![i32::MAX])),
            "2147483647.00",
        ),
        ("decimal(5,0)", array(Int16Array::from(vec![-3])), "-3"),
        (
            "decimal(20,1)",
            array(Int64Array::from(vec![i64::MAX])),
            "9223372036854775807.0",
        ),
        (
            "decimal(12,4)",
            array(
                Decimal128Array::from(vec![12_345])
                    .with_precision_and_scale(10, 2)
                    .unwrap(),
            ),
            "123.4500",
        ),
        (
            "timestamp_ntz",
            array(Date32Array::from(vec![-1])),
            "1969-12-31T00:00:00",
        ),
        // Not widening, but annotations that writers omit.
        ("byte", array(Int32Array::from(vec![-5])), "-5"),
        (
            "string",
            array(BinaryArray::from(vec!["é".as_bytes()])),
            "é",
        ),
    ];
    for (number, (data_type, values, expected)) in cases.into_iter().enumerate() {
        let mut table = Table::with(
            json!([field("v", data_type)]),
            &["typeWidening", "timestampNtz"],
            json!({"delta.enableTypeWidening": "true"}),
        );
        table.append("x.parquet", &batch(vec![("v", values)]));
        let found = read(open_one(&table.path()).as_ref());
        assert_eq!(texts(&found, 0), [expected], "case {number}: {data_type}");
    }
    for (data_type, values) in [
        ("integer", array(Int64Array::from(vec![1]))),
        ("float", array(Float64Array::from(vec![1.0]))),
        ("decimal(9,0)", array(Int32Array::from(vec![1]))),
        ("long", array(StringArray::from(vec!["1"]))),
        ("string", array(Int64Array::from(vec![1]))),
        ("boolean", array(Int8Array::from(vec![1]))),
        (
            "decimal(10,1)",
            array(
                Decimal128Array::from(vec![1])
                    .with_precision_and_scale(10, 2)
                    .unwrap(),
            ),
        ),
    ] {
        let mut table = Table::plain(json!([field("v", data_type)]));
        table.append("x.parquet", &batch(vec![("v", values)]));
        let error = refused(&table.path(), |_| ());
        assert_eq!(error.id(), "delta-column", "{data_type}: {error}");
    }
    // A value that does not fit is an error when it is read.
    let mut table = Table::plain(json!([field("v", "byte")]));
    table.append(
        "x.parquet",
        &batch(vec![("v", array(Int32Array::from(vec![128])))]),
    );
    let source = open_one(&table.path());
    let error = source.open_unit(0).unwrap().next_batch().unwrap_err();
    assert_eq!(error.id(), "parquet-corrupt", "{error}");
}

#[test]
fn list_elements_and_struct_fields_are_widened() {
    let list = ListArray::from_iter_primitive::<arrow::datatypes::Int32Type, _, _>([
        Some(vec![Some(1), None]),
        None,
    ]);
    let inner = StructArray::from(vec![(
        Arc::new(Field::new("x", DataType::Int8, true)),
        array(Int8Array::from(vec![Some(3), None])),
    )]);
    let fields = json!([
        field(
            "l",
            json!({"type": "array", "elementType": "long", "containsNull": true})
        ),
        field(
            "s",
            json!({"type": "struct", "fields": [field("x", "integer")]})
        ),
    ]);
    let mut table = Table::with(fields, &["typeWidening"], json!({}));
    table.append(
        "x.parquet",
        &batch(vec![("l", array(list)), ("s", array(inner))]),
    );
    let found = read(open_one(&table.path()).as_ref());
    let expected =
        ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1), None]), None]);
    assert_eq!(found.column(0).as_list::<i32>().values(), expected.values());
    let x = found.column(1).as_struct().column(0);
    assert_eq!(
        x,
        &(Arc::new(Int32Array::from(vec![Some(3), None])) as ArrayRef)
    );
}

#[test]
fn timestamps_of_any_unit_are_read_as_microseconds() {
    let utc = |array: ArrayRef| array;
    let micros = -1_500_i64;
    let stored: Vec<ArrayRef> = vec![
        utc(array(
            TimestampMicrosecondArray::from(vec![micros]).with_timezone("UTC"),
        )),
        array(TimestampMicrosecondArray::from(vec![micros])),
        array(TimestampNanosecondArray::from(vec![micros * 1000 + 7]).with_timezone("UTC")),
    ];
    for (data_type, shown) in [
        ("timestamp", "1969-12-31T23:59:59.998500Z"),
        ("timestamp_ntz", "1969-12-31T23:59:59.998500"),
    ] {
        for values in &stored {
            let mut table =
                Table::with(json!([field("t", data_type)]), &["timestampNtz"], json!({}));
            table.append("x.parquet", &batch(vec![("t", Arc::clone(values))]));
            let found = read(open_one(&table.path()).as_ref());
            assert_eq!(texts(&found, 0), [shown], "{:?}", values.data_type());
        }
        let mut table = Table::with(json!([field("t", data_type)]), &["timestampNtz"], json!({}));
        let values = array(TimestampMillisecondArray::from(vec![-2]).with_timezone("UTC"));
        table.append("x.parquet", &batch(vec![("t", values)]));
        let found = read(open_one(&table.path()).as_ref());
        assert_eq!(found.num_rows(), 1);
        assert!(texts(&found, 0)[0].starts_with("1969-12-31T23:59:59.998"));
    }
}

#[test]
fn int96_timestamps_outside_nanosecond_range_are_read() {
    let schema = Arc::new(parse_message_type("message m { optional int96 t; }").unwrap());
    let mut bytes = Vec::new();
    let mut writer =
        SerializedFileWriter::new(&mut bytes, schema, Arc::new(WriterProperties::default()))
            .unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    // The first day of the years 1 and 9999, and one second in 1970.
    let mut values = Vec::new();
    for (day, nanoseconds) in [
        (1_721_426_u32, 0_u64),
        (5_373_120, 0),
        (2_440_588, 1_000_000_000),
    ] {
        let mut value = Int96::new();
        let [low, high] = [nanoseconds as u32, (nanoseconds >> 32) as u32];
        value.set_data(low, high, day);
        values.push(value);
    }
    column
        .typed::<Int96Type>()
        .write_batch(&values, Some(&[1, 1, 1]), None)
        .unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    let mut table = Table::plain(json!([field("t", "timestamp")]));
    table.dir.write("t/x.parquet", &bytes);
    table.commit(&[Add::new("x.parquet").action(bytes.len() as u64)]);
    let found = read(open_one(&table.path()).as_ref());
    let shown: Vec<String> = (0..3).flat_map(|row| texts(&found, row)).collect();
    assert_eq!(
        shown,
        [
            "0001-01-01T00:00:00Z",
            "9999-01-01T00:00:00Z",
            "1970-01-01T00:00:01Z"
        ]
    );
}

#[test]
fn variant_column_is_read_as_json() {
    // {"a": 5, "b": ["x", null, true]} and 1.25, in the variant encoding.
    let keys = [0x01, 2, 0, 1, 2, b'a', b'b'];
    let list = [0x03, 3, 0, 2, 3, 4, 0x05, b'x', 0x00, 0x04];
    let mut object = vec![0x02, 2, 0, 1, 0, 2, 12, 0x0c, 5];
    object.extend(list);
    let empty = [0x01, 0, 0];
    let decimal = [0x20, 2, 125, 0, 0, 0];
    let fields = Fields::from(vec![
        Field::new("value", DataType::Binary, true),
        Field::new("metadata", DataType::Binary, false),
    ]);
    let columns: Vec<ArrayRef> = vec![
        array(BinaryArray::from(vec![
            Some(&object[..]),
            Some(&decimal),
            None,
        ])),
        array(BinaryArray::from(vec![&keys[..], &empty, &empty])),
    ];
    let nulls = arrow::buffer::NullBuffer::from(vec![true, true, false]);
    let variants = StructArray::new(fields, columns, Some(nulls));
    let mut table = Table::with(json!([field("v", "variant")]), &["variantType"], json!({}));
    table.append("x.parquet", &batch(vec![("v", array(variants))]));
    let source = open_one(&table.path());
    let found = read(source.as_ref());
    let json = found.column(0).as_string::<i32>();
    assert_eq!(json.value(0), r#"{"a":5,"b":["x",null,true]}"#);
    assert_eq!(json.value(1), "1.25");
    assert!(json.is_null(2));
    assert_eq!(source.schema().field(0).metadata()[ENCODING_KEY], "json");

    // A shredded variant: the same value, with `a` in a separate column.
    let part = |value: ArrayRef, typed: ArrayRef| {
        let fields = Fields::from(vec![
            Field::new("value", DataType::Binary, true),
            Field::new("typed_value", typed.data_type().clone(), true),
        ]);
        StructArray::new(fields, vec![value, typed], None)
    };
    let none = || array(BinaryArray::from(vec![None::<&[u8]>]));
    let a = part(none(), array(Int64Array::from(vec![5])));
    let typed = StructArray::new(
        Fields::from(vec![Field::new("a", a.data_type().clone(), false)]),
        vec![array(a)],
        None,
    );
    let mut rest = vec![0x02, 1, 1, 0, 10];
    rest.extend(list);
    let variants = StructArray::new(
        Fields::from(vec![
            Field::new("metadata", DataType::Binary, false),
            Field::new("value", DataType::Binary, true),
            Field::new("typed_value", typed.data_type().clone(), true),
        ]),
        vec![
            array(BinaryArray::from(vec![&keys[..]])),
            array(BinaryArray::from(vec![&rest[..]])),
            array(typed),
        ],
        None,
    );
    let mut table = Table::with(
        json!([field("v", "variant")]),
        &["variantType", "variantShredding-preview"],
        json!({}),
    );
    table.append("x.parquet", &batch(vec![("v", array(variants))]));
    let found = read(open_one(&table.path()).as_ref());
    assert_eq!(
        found.column(0).as_string::<i32>().value(0),
        r#"{"a":5,"b":["x",null,true]}"#
    );

    // Bytes that are not a variant.
    let fields = Fields::from(vec![
        Field::new("metadata", DataType::Binary, false),
        Field::new("value", DataType::Binary, true),
    ]);
    for (keys, value) in [
        (&[0xff_u8][..], &[0x0c, 5][..]),
        (&empty, &[0x02, 200, 0]),
        (&empty, &[]),
    ] {
        let columns: Vec<ArrayRef> = vec![
            array(BinaryArray::from(vec![keys])),
            array(BinaryArray::from(vec![value])),
        ];
        let variants = StructArray::new(fields.clone(), columns, None);
        let mut table = Table::with(json!([field("v", "variant")]), &["variantType"], json!({}));
        table.append("x.parquet", &batch(vec![("v", array(variants))]));
        let source = open_one(&table.path());
        let error = source.open_unit(0).unwrap().next_batch().unwrap_err();
        assert_eq!(error.id(), "parquet-corrupt", "{error}");
    }
}

#[test]
fn void_column_is_read_as_nulls() {
    let mut table = Table::plain(json!([field("id", "long"), field("nothing", "void")]));
    table.append("x.parquet", &batch(vec![("id", super::ids(0..3))]));
    let found = read(open_one(&table.path()).as_ref());
    assert_eq!(found.column(1).data_type(), &DataType::Null);
    assert_eq!(found.column(1).logical_null_count(), 3);
}

#[test]
fn unsupported_type_is_an_error_naming_it() {
    let table = Table::plain(json!([field(
        "s",
        json!({"type": "struct", "fields": [field("i", "interval day to second")]})
    )]));
    let error = refused(&table.path(), |_| ());
    assert_eq!(error.id(), "type-unsupported");
    assert!(error.to_string().contains("s.i"), "{error}");
    let table = Table::plain(json!([field("g", "geometry(OGC:CRS84)")]));
    let error = refused(&table.path(), |_| ());
    assert_eq!(error.id(), "delta-feature");
    assert_eq!(
        error.to_string(),
        "needs the type 'geometry(OGC:CRS84)', which is not supported"
    );
}

#[test]
fn null_or_missing_non_nullable_column_is_an_error() {
    let mut table = Table::plain(json!([
        {"name": "v", "type": "long", "nullable": false, "metadata": {}},
    ]));
    let values = array(Int64Array::from(vec![Some(1), None]));
    let schema = Schema::new(vec![Field::new("v", DataType::Int64, true)]);
    let file = RecordBatch::try_new(Arc::new(schema), vec![values]).unwrap();
    table.append("x.parquet", &file);
    let source = open_one(&table.path());
    let error = source.open_unit(0).unwrap().next_batch().unwrap_err();
    assert_eq!(error.id(), "parquet-corrupt");
    let mut table = Table::plain(json!([
        {"name": "gone", "type": "long", "nullable": false, "metadata": {}},
    ]));
    table.append("x.parquet", &file);
    assert_eq!(refused(&table.path(), |_| ()).id(), "delta-column");
}
