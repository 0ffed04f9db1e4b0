//! Tests files whose columns differ: what widens, what is read as null, what is refused, and with which message.

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, Decimal128Array, DictionaryArray, FixedSizeListArray,
    Float32Array, Float64Array, Int32Array, Int64Array, LargeStringArray, ListArray, NullArray,
    RecordBatch, StringArray, StructArray, TimestampMicrosecondArray, TimestampSecondArray,
    UInt8Array, UInt64Array, new_null_array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Fields, Float64Type, Int32Type, Int64Type, TimeUnit};
use arrow::ipc::writer::FileWriter;
use parquet::file::properties::WriterProperties;
use shardmill_core::Error;
use shardmill_source::{ReadAs, SchemaRule, SelectColumn, SourceOptions};

use crate::help::{TestDir, array, batch, open_with, read, refused};

/// Writes files of one column `x`, in that order, in both formats.
fn files(columns: &[ArrayRef]) -> (TestDir, [&'static str; 2]) {
    let batches: Vec<_> = columns
        .iter()
        .map(|column| batch(vec![("x", ArrayRef::clone(column))]))
        .collect();
    tables(&batches)
}

fn tables(batches: &[RecordBatch]) -> (TestDir, [&'static str; 2]) {
    let dir = TestDir::new();
    for (number, batch) in batches.iter().enumerate() {
        dir.parquet(
            &format!("parquet/{number}.parquet"),
            batch,
            WriterProperties::default(),
        );
        let mut bytes = Vec::new();
        let mut writer = FileWriter::try_new(&mut bytes, &batch.schema()).unwrap();
        writer.write(batch).unwrap();
        writer.finish().unwrap();
        drop(writer);
        dir.write(&format!("arrow/{number}.arrow"), bytes);
    }
    (dir, ["parquet", "arrow"])
}

fn with(rule: SchemaRule) -> impl Fn(&mut SourceOptions) {
    move |options| options.schema.rule = rule
}

/// Returns the type of `x` in the table of these files, which must not depend on their order, and the values.
fn united(columns: &[ArrayRef], rule: SchemaRule) -> Result<(DataType, ArrayRef), Error> {
    let mut reversed = columns.to_vec();
    reversed.reverse();
    let (dir, formats) = files(columns);
    let (backwards, _) = files(&reversed);
    let mut found = None;
    for format in formats {
        let opened = open_with(&dir.path(format), with(rule));
        let other = open_with(&backwards.path(format), with(rule));
        assert_eq!(opened.is_ok(), other.is_ok(), "{format}");
        let source = opened?;
        let schema = source.schema();
        assert_eq!(schema, other.unwrap().schema(), "{format}");
        let rows = read(source.as_ref());
        let nulls = rows.column(0).logical_null_count() as u64;
        if let Some(known) = source.null_count(0) {
            assert_eq!(known, nulls, "{format}");
        }
        found = Some((
            schema.field(0).data_type().clone(),
            Arc::clone(rows.column(0)),
        ));
    }
    Ok(found.unwrap())
}

fn widened(columns: &[ArrayRef]) -> DataType {
    let (data_type, values) = united(columns, SchemaRule::Widen).unwrap();
    let mut row = 0;
    for column in columns {
        // Nothing is lost: casting back gives the same values.
        let own = values.slice(row, column.len());
        if !column.data_type().is_nested() && *column.data_type() != DataType::Null {
            let back = cast(&own, column.data_type()).unwrap();
            assert_eq!(&back, column, "{} as {data_type}", column.data_type());
        }
        assert_eq!(own.logical_null_count(), column.logical_null_count());
        row += column.len();
    }
    data_type
}

fn numbers(data_type: &DataType) -> ArrayRef {
    let values = array(Int32Array::from(vec![Some(1), None, Some(100)]));
    cast(&values, data_type).unwrap()
}

#[test]
fn numbers_widen_to_the_smallest_common_type() {
    use DataType as T;
    for (types, expected) in [
        (vec![T::Int8, T::Int16], Some(T::Int16)),
        (vec![T::Int32, T::Int64], Some(T::Int64)),
        (vec![T::Int8, T::Int16, T::Int32, T::Int64], Some(T::Int64)),
        (vec![T::UInt8, T::UInt32], Some(T::UInt32)),
        (vec![T::UInt8, T::Int8], Some(T::Int16)),
        (vec![T::UInt32, T::Int32], Some(T::Int64)),
        (vec![T::UInt32, T::UInt64], Some(T::UInt64)),
        (vec![T::Int64, T::UInt64], None),
        (vec![T::Int8, T::UInt64], None),
        (vec![T::Float32, T::Float64], Some(T::Float64)),
        (vec![T::Float16, T::Float32], Some(T::Float32)),
        (vec![T::Int16, T::Float32], Some(T::Float32)),
        (vec![T::Int32, T::Float32], Some(T::Float64)),
        (vec![T::Int32, T::Float64], Some(T::Float64)),
        (vec![T::Int8, T::UInt8, T::Float16], Some(T::Float16)),
        (vec![T::Int64, T::Float64], None),
        (vec![T::Int64, T::Float32], None),
        (vec![T::Boolean, T::Int8], None),
        (vec![T::Utf8, T::Int8], None),
        (
            vec![T::Int32, T::Decimal128(12, 2)],
            Some(T::Decimal128(12, 2)),
        ),
        (
            vec![T::Int64, T::Decimal128(9, 2)],
            Some(T::Decimal128(21, 2)),
        ),
        (
            vec![T::Decimal128(10, 2), T::Decimal128(12, 4)],
            Some(T::Decimal128(12, 4)),
        ),
        (
            vec![T::Decimal128(38, 0), T::Decimal128(20, 10)],
            Some(T::Decimal256(48, 10)),
        ),
        (vec![T::Decimal256(76, 0), T::Decimal128(20, 10)], None),
        (vec![T::Float64, T::Decimal128(9, 2)], None),
        (vec![T::Date32, T::Date64], Some(T::Date64)),
        (vec![T::Null, T::Int16, T::Null, T::Int32], Some(T::Int32)),
        (vec![T::Null, T::Utf8], Some(T::Utf8)),
    ] {
        let columns: Vec<ArrayRef> = types
            .iter()
            .map(|data_type| match data_type {
                T::Null => array(NullArray::new(2)),
                T::Utf8 => array(StringArray::from(vec![Some("1"), None])),
                T::Date32 | T::Date64 => cast(&numbers(&T::Int32), &T::Date32)
                    .and_then(|days| cast(&days, data_type))
                    .unwrap(),
                other => numbers(other),
            })
            .collect();
        match expected {
            Some(expected) => {
                // Parquet reads 64-bit dates back as they were written.
                assert_eq!(widened(&columns), expected, "{types:?}");
                let error = united(&columns, SchemaRule::Strict).unwrap_err();
                assert!(error.id().ends_with("-schema-mismatch"), "{error}");
                assert!(error.hint().unwrap().contains("omit --schema strict"));
            }
            None => {
                let error = united(&columns, SchemaRule::Union).unwrap_err();
                assert!(error.id().ends_with("-schema-mismatch"), "{error}");
            }
        }
    }
}

#[test]
fn extreme_values_are_exact_after_widening() {
    let ints = array(Int32Array::from(vec![i32::MIN, i32::MAX]));
    let floats = array(Float64Array::from(vec![0.1, f64::MAX]));
    let (_, found) = united(&[ints, floats], SchemaRule::Widen).unwrap();
    assert_eq!(
        found.as_primitive::<Float64Type>().values().as_ref(),
        [f64::from(i32::MIN), f64::from(i32::MAX), 0.1, f64::MAX]
    );
}

#[test]
fn timestamps_widen_to_the_finest_unit() {
    let seconds = |zone: Option<&str>| {
        array(TimestampSecondArray::from(vec![Some(60), None]).with_timezone_opt(zone))
    };
    let micros = |zone: Option<&str>| {
        array(TimestampMicrosecondArray::from(vec![60_000_001]).with_timezone_opt(zone))
    };
    let of = |unit, zone: Option<&str>| DataType::Timestamp(unit, zone.map(Into::into));
    assert_eq!(
        widened(&[seconds(None), micros(None)]),
        of(TimeUnit::Microsecond, None)
    );
    assert_eq!(
        widened(&[seconds(Some("UTC")), micros(Some("UTC"))]),
        of(TimeUnit::Microsecond, Some("UTC"))
    );
    assert_eq!(
        widened(&[micros(Some("+02:00")), micros(Some("UTC"))]),
        of(TimeUnit::Microsecond, Some("UTC"))
    );
    let error = united(&[micros(None), micros(Some("UTC"))], SchemaRule::Union).unwrap_err();
    assert!(
        error.hint().unwrap().contains("CAST(x AS TIMESTAMP)"),
        "{error}"
    );
    // A value that the finer unit cannot represent is an error, not a null.
    let far = array(TimestampSecondArray::from(vec![i64::MAX / 10]));
    let (dir, formats) = files(&[far, micros(None)]);
    // Parquet has no seconds, so its writer has converted them to milliseconds.
    let source = open_with(&dir.path(formats[1]), |_| {}).unwrap();
    let mut rows = source.open_unit(0).unwrap();
    let error = rows.next_batch().unwrap_err();
    assert_eq!(error.id(), "source-conversion");
    assert!(error.object().unwrap().ends_with("0.arrow"), "{error}");
}

#[test]
fn text_and_binary_storage_variants_unify() {
    let plain = array(StringArray::from(vec![Some("a"), None]));
    let large = array(LargeStringArray::from(vec!["b"]));
    let coded: DictionaryArray<Int32Type> = ["c", "c"].into_iter().collect();
    let types = [
        united(&[Arc::clone(&plain), large], SchemaRule::Strict)
            .unwrap()
            .0,
        united(&[plain, array(coded)], SchemaRule::Strict)
            .unwrap()
            .0,
    ];
    assert_eq!(types, [DataType::LargeUtf8, DataType::Utf8]);
    let bytes = array(arrow::array::BinaryArray::from(vec![&b"abc"[..]]));
    let fixed = cast(&bytes, &DataType::FixedSizeBinary(3)).unwrap();
    assert_eq!(widened(&[bytes, fixed]), DataType::Binary);
}

fn list(item: Field) -> ArrayRef {
    let values = numbers(item.data_type());
    let offsets = arrow::buffer::OffsetBuffer::from_lengths([2, 0, 1]);
    array(ListArray::try_new(Arc::new(item), offsets, values, None).unwrap())
}

#[test]
fn list_elements_and_struct_fields_widen() {
    let element = list(Field::new("element", DataType::Int32, true));
    let item = list(Field::new("item", DataType::Int64, true));
    let (found, values) = united(&[Arc::clone(&element), item], SchemaRule::Widen).unwrap();
    assert_eq!(found, DataType::new_list(DataType::Int64, true));
    assert_eq!(
        values
            .as_list::<i32>()
            .value(0)
            .as_primitive::<Int64Type>()
            .value(0),
        1
    );
    let fixed = |size| {
        let lists = [Some(vec![Some(7); size]), None];
        FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(lists, size as i32)
    };
    let (found, values) = united(
        &[array(fixed(2)), array(fixed(3)), element],
        SchemaRule::Widen,
    )
    .unwrap();
    assert_eq!(found, DataType::new_list(DataType::Int32, true));
    assert_eq!(values.as_list::<i32>().value(2).len(), 3);
    assert!(values.is_null(1));

    let structure = |columns: Vec<(&str, ArrayRef)>| -> ArrayRef {
        let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = columns
            .into_iter()
            .map(|(name, column)| (Field::new(name, column.data_type().clone(), true), column))
            .unzip();
        array(StructArray::try_new(Fields::from(fields), arrays, None).unwrap())
    };
    let int = || array(Int32Array::from(vec![1]));
    let long = || array(Int64Array::from(vec![2]));
    let first = structure(vec![("b", int()), ("a", int())]);
    let second = structure(vec![("a", long()), ("b", int())]);
    let (found, values) = united(&[Arc::clone(&first), second], SchemaRule::Widen).unwrap();
    let field = |name, data_type| Field::new(name, data_type, true);
    let expected = vec![field("a", DataType::Int64), field("b", DataType::Int32)];
    assert_eq!(found, DataType::Struct(expected.into()));
    let a = values.as_struct().column(0).as_primitive::<Int64Type>();
    assert_eq!(a.values().as_ref(), [1, 2]);

    let more = structure(vec![("b", int()), ("c", int())]);
    let error = united(&[Arc::clone(&first), Arc::clone(&more)], SchemaRule::Widen).unwrap_err();
    assert!(error.hint().unwrap().contains("--schema union"), "{error}");
    let (found, values) = united(&[first, more], SchemaRule::Union).unwrap();
    let DataType::Struct(fields) = found else {
        panic!("{found}");
    };
    let names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert!(values.as_struct().column(0).is_null(1));
}

#[test]
fn missing_columns_are_null_with_schema_union() {
    let long = |values: Vec<Option<i64>>| array(Int64Array::from(values));
    let text = |values: Vec<&str>| array(StringArray::from(values));
    let (dir, formats) = tables(&[
        batch(vec![
            ("id", long(vec![Some(1), None])),
            ("a", text(vec!["p", "q"])),
        ]),
        batch(vec![("b", text(vec!["r"])), ("id", long(vec![Some(2)]))]),
        batch(vec![
            ("id", array(Int32Array::from(vec![3]))),
            ("a", text(vec!["s"])),
        ]),
    ]);
    for format in formats {
        let path = dir.path(format);
        let source = open_with(&path, with(SchemaRule::Union)).unwrap();
        let schema = source.schema();
        let names: Vec<&String> = schema.fields().iter().map(|field| field.name()).collect();
        assert_eq!(names, ["id", "a", "b"]);
        assert!(schema.fields().iter().all(|field| field.is_nullable()));
        let found = read(source.as_ref());
        let nulls: Vec<usize> = found
            .columns()
            .iter()
            .map(|column| column.null_count())
            .collect();
        assert_eq!(nulls, [1, 1, 3]);
        assert_eq!(found.column(2).as_string::<i32>().value(2), "r");
        assert_eq!(
            [0, 1, 2].map(|n| source.null_count(n)),
            [Some(1), Some(1), Some(3)]
        );
        let first = source.first_null(1).unwrap().unwrap();
        assert!(first.to_string().contains("/1."), "{first}");
        // Otherwise, the error names the file, the column, the other file and the option.
        let error = refused(&path, |_| {});
        assert_eq!(error.id(), format!("{format}-missing-column"));
        assert!(error.object().unwrap().contains("/1."), "{error}");
        assert!(error.to_string().contains("`a`") && error.to_string().contains("/0."));
        assert!(error.hint().unwrap().contains("--schema union"));
        let error = refused(&path, |options| {
            options.query.columns = vec![SelectColumn::named("b")];
        });
        assert_eq!(error.id(), format!("{format}-extra-column"));
        // Columns that are not read do not matter.
        for change in [
            |options: &mut SourceOptions| options.query.columns = vec![SelectColumn::named("id")],
            |options: &mut SourceOptions| options.query.select = Some("* EXCEPT (a, b)".to_owned()),
            |options: &mut SourceOptions| {
                options.query.sql = Some("SELECT id FROM source".to_owned())
            },
        ] {
            let source = open_with(&path, change).unwrap();
            assert_eq!(read(source.as_ref()).num_rows(), 4);
        }
        let error = refused(&path, |options| {
            options.query.sql = Some("SELECT a FROM source".to_owned());
        });
        assert_eq!(error.id(), format!("{format}-missing-column"));
    }
}

#[test]
fn explicit_cast_resolves_incompatible_types() {
    let (dir, formats) = tables(&[
        batch(vec![("x", array(Int64Array::from(vec![Some(1), None])))]),
        batch(vec![("x", array(Float64Array::from(vec![2.5])))]),
        batch(vec![("x", array(StringArray::from(vec!["3"])))]),
    ]);
    for format in formats {
        let path = dir.path(format);
        let error = refused(&path, |_| {});
        let hint = error.hint().unwrap();
        assert!(
            hint.contains("'* EXCEPT (x), CAST(x AS DOUBLE) AS x'"),
            "{hint}"
        );
        let text = error.to_string();
        assert!(text.contains("Float64") && text.contains("Int64"), "{text}");
        assert!(
            text.contains("/0.") && error.object().unwrap().contains("/1."),
            "{text}"
        );
        for change in [
            |options: &mut SourceOptions| {
                options.query.select = Some("* EXCEPT (x), CAST(x AS DOUBLE) AS x".to_owned());
            },
            |options: &mut SourceOptions| {
                options.query.columns = vec![crate::computed("x", "x::double")];
            },
            |options: &mut SourceOptions| {
                options.query.columns = vec![crate::computed("x", "cast(source.x as double)")];
                options.query.filter =
                    Some("cast(x as double) > 0 or cast(x as double) is null".to_owned());
            },
        ] {
            let source = open_with(&path, change).unwrap();
            let found = read(source.as_ref());
            let values = found.column(0).as_primitive::<Float64Type>();
            assert_eq!(
                values,
                &Float64Array::from(vec![Some(1.0), None, Some(2.5), Some(3.0)])
            );
        }
        for change in [
            |options: &mut SourceOptions| {
                // Where the column is not cast, it has no type.
                options.query.columns = vec![crate::computed("x", "cast(x as double)")];
                options.query.filter = Some("x > 1".to_owned());
            },
            |options: &mut SourceOptions| {
                options.query.columns = vec![crate::computed(
                    "y",
                    "cast(x as double) + cast(x as bigint)",
                )];
            },
            |options: &mut SourceOptions| {
                options.query.columns = vec![crate::computed("x", "try_cast(x as double)")];
            },
        ] {
            let error = refused(&path, change);
            assert_eq!(error.id(), format!("{format}-schema-mismatch"));
        }
    }
}

#[test]
fn inexact_conversion_to_encoding_type_is_an_error() {
    let big = (1_i64 << 53) + 1;
    let numbers = |value| {
        tables(&[
            batch(vec![(
                "x",
                array(Int64Array::from(vec![Some(value), None])),
            )]),
            batch(vec![("x", array(Float32Array::from(vec![2.5])))]),
            batch(vec![("x", array(UInt8Array::from(vec![7])))]),
        ])
    };
    let as_float = |options: &mut SourceOptions| {
        options.schema.read_as = vec![ReadAs {
            name: "x".to_owned(),
            data_type: DataType::Float64,
            exact: true,
        }];
    };
    let (dir, formats) = numbers(3);
    let (broken, _) = numbers(big);
    for format in formats {
        let source = open_with(&dir.path(format), as_float).unwrap();
        let found = read(source.as_ref());
        let expected = Float64Array::from(vec![Some(3.0), None, Some(2.5), Some(7.0)]);
        assert_eq!(found.column(0).as_primitive::<Float64Type>(), &expected);
        let source = open_with(&broken.path(format), as_float).unwrap();
        let error = source.open_unit(0).unwrap().next_batch().unwrap_err();
        assert_eq!(error.id(), "source-conversion");
        let error = refused(&dir.path(format), |options| {
            as_float(options);
            options.schema.read_as[0].data_type = DataType::Int64;
        });
        assert_eq!(error.id(), format!("{format}-schema-mismatch"));
    }
    let (dir, _) = files(&[
        array(Int64Array::from(vec![1])),
        array(UInt64Array::from(vec![u64::MAX])),
    ]);
    let source = open_with(&dir.path("parquet"), |options| {
        as_float(options);
        options.schema.read_as[0].data_type = DataType::Int64;
    })
    .unwrap();
    let error = source.open_unit(1).unwrap().next_batch().unwrap_err();
    assert_eq!(error.id(), "source-conversion");
}

#[test]
fn files_with_equal_types_are_not_converted() {
    let decimal = Decimal128Array::from(vec![Some(150), None])
        .with_precision_and_scale(9, 2)
        .unwrap();
    for column in [
        array(decimal),
        array(NullArray::new(2)),
        new_null_array(&DataType::new_list(DataType::Null, true), 2),
    ] {
        let columns = [Arc::clone(&column), Arc::clone(&column)];
        let (data_type, values) = united(&columns, SchemaRule::Strict).unwrap();
        assert_eq!(&data_type, column.data_type());
        assert_eq!(values.slice(0, 2).as_ref(), column.as_ref());
    }
}
