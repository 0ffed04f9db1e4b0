//! Values that do not match their encoding, in conversions and when they are read.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, Decimal128Array, FixedSizeListArray, Float64Array, Int32Array,
    Int64Array, ListArray, RecordBatch, StringArray, StructArray, TimestampSecondArray,
    UInt64Array,
};
use arrow::datatypes::{DataType, Field, Int32Type};
use parquet::file::properties::EnabledStatistics;

use crate::case::{Case, TestDir, case};
use crate::tables::column;

/// The file that is converted.
const FILE: &str = "in/rows.parquet";

pub fn cases() -> Vec<Case> {
    let mut cases = numbers();
    cases.extend(nulls());
    cases.extend(lists());
    cases.extend(bytes());
    cases.extend(types());
    cases.extend(stored());
    cases
}

/// A case in which the column `x` of the source has these values.
fn values(name: &str, batch: impl Fn() -> RecordBatch + Send + Sync + 'static) -> Case {
    case(name, move |dir: &TestDir| dir.parquet(FILE, &batch()))
}

fn numbers() -> Vec<Case> {
    vec![
        values("300 as uint8", || column(Int64Array::from(vec![1, 2, 300]))).unconvertible(
            "--column x:uint8",
            3,
            "value-range",
            &["column x", "row 2", FILE, "300", "uint8"],
        ),
        values("-1 as uint64", || column(Int64Array::from(vec![0, -1]))).unconvertible(
            "--column x:uint64",
            3,
            "value-range",
            &["column x", "row 1", FILE, "-1"],
        ),
        values("2^63 as int", || {
            column(UInt64Array::from(vec![0, 1 << 63]))
        })
        .unconvertible(
            "--column x:int",
            3,
            "value-range",
            &["column x", "row 1", FILE, "9223372036854775808"],
        ),
        values("2^53 + 1 as float64", || {
            column(Int64Array::from(vec![1, (1 << 53) + 1]))
        })
        .unconvertible(
            "--column x:float64",
            3,
            "value-range",
            &["column x", "row 1", FILE, "9007199254740993"],
        ),
        values("1e300 as float32", || {
            column(Float64Array::from(vec![1.0, 1e300]))
        })
        .unconvertible(
            "--column x:float32",
            3,
            "value-range",
            &["column x", "row 1", FILE, "float32"],
        ),
        values("1e6 as float16", || {
            column(Float64Array::from(vec![1.0, 1e6]))
        })
        .unconvertible(
            "--column x:float16",
            3,
            "value-range",
            &["column x", "row 1", FILE, "float16"],
        ),
        values("a float as int32", || {
            column(Float64Array::from(vec![1.0, 1.5]))
        })
        .unconvertible(
            "--column x:int32",
            3,
            "type-unsupported",
            &["column x", "Float64", "int32"],
        ),
        values("in the third row group", || {
            let values: Vec<i64> = (0..25)
                .map(|row| if row == 23 { 1000 } else { row })
                .collect();
            column(Int64Array::from(values))
        })
        .unconvertible(
            "--column x:int8",
            3,
            "value-range",
            &["column x", "row 23", FILE, "1000"],
        ),
        values("10^19 of a decimal as int64", || {
            column(
                Decimal128Array::from(vec![1, 10_000_000_000_000_000_000])
                    .with_precision_and_scale(20, 0)
                    .unwrap(),
            )
        })
        .unconvertible(
            "--column x:int64",
            3,
            "value-range",
            &["column x", "row 1", FILE, "10000000000000000000"],
        ),
        values("text that is no number as str_int", || {
            column(StringArray::from(vec!["1", "12a"]))
        })
        .unconvertible(
            "--column x:str_int",
            3,
            "number-text",
            &["column x", "row 1", FILE, "12a"],
        ),
        values("text that is no number as str_float", || {
            column(StringArray::from(vec!["1.5", "1,5"]))
        })
        .unconvertible(
            "--column x:str_float",
            3,
            "number-text",
            &["column x", "row 1", FILE, "1,5"],
        ),
        values("text that is no number as str_decimal", || {
            column(StringArray::from(vec!["1.5", ""]))
        })
        .unconvertible(
            "--column x:str_decimal",
            3,
            "number-text",
            &["column x", "row 1", FILE],
        ),
        values("5,000 digits as str_int", || {
            column(StringArray::from(vec!["1".to_owned(), "9".repeat(5000)]))
        })
        .unconvertible(
            "--column x:str_int",
            3,
            "number-digits",
            &["column x", "row 1", FILE, "5000"],
        ),
    ]
}

fn nulls() -> Vec<Case> {
    let some = || column(Int64Array::from(vec![Some(1), None, Some(3), None]));
    vec![
        values("nulls that statistics tell of", some).unconvertible(
            "",
            3,
            "value-null",
            &[
                "column x",
                "2 nulls",
                "row 1 of in/rows.parquet",
                "--null-as x=",
            ],
        ),
        case("nulls that statistics do not tell of", move |dir| {
            dir.parquet_with(FILE, &some(), EnabledStatistics::None)
        })
        .unconvertible("", 3, "value-null", &["column x", "row 1", FILE, "--nulls"]),
        case("a null in the third row group", |dir| {
            let values: Vec<Option<i64>> = (0..25).map(|row| (row != 21).then_some(row)).collect();
            dir.parquet_with(
                FILE,
                &column(Int64Array::from(values)),
                EnabledStatistics::None,
            );
        })
        .unconvertible("", 3, "value-null", &["column x", "row 21", FILE]),
        values("a null in each of two columns", || {
            let names: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None]));
            let numbers: ArrayRef = Arc::new(Int64Array::from(vec![None, Some(1)]));
            crate::tables::batch([("names", names), ("numbers", numbers)])
        })
        .unconvertible("", 3, "value-null", &["names", "numbers", "row 0", "row 1"]),
        values("a null computed", || column(Int64Array::from(vec![1, 0]))).fails_with(
            &["convert", "in", "out", "--select", "NULLIF(x, 0) AS y"],
            3,
            "value-null",
            &["column y", "row 1"],
        ),
        values("a null that a split key is", some).unconvertible(
            "--split train=0.5,val=0.5 --split-key x",
            3,
            "value-null",
            &["column x"],
        ),
        values("a column that is called as a mask", || {
            let some: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
            let mask: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
            crate::tables::batch([("x", some), ("x__is_null", mask)])
        })
        .unconvertible("--nulls mask", 2, "config-nulls", &["x__is_null"]),
    ]
}

fn lists() -> Vec<Case> {
    let list = |rows: Vec<Option<Vec<Option<i32>>>>| {
        ListArray::from_iter_primitive::<Int32Type, _, _>(rows)
    };
    // [[1, 2], [3]] and the like.
    let nested = |rows: &[&[&[i32]]]| {
        let inner =
            ListArray::from_iter_primitive::<Int32Type, _, _>(rows.iter().flat_map(|row| {
                row.iter()
                    .map(|list| Some(list.iter().copied().map(Some).collect::<Vec<_>>()))
            }));
        let lengths = arrow::buffer::OffsetBuffer::from_lengths(rows.iter().map(|row| row.len()));
        let field = Arc::new(Field::new_list_field(inner.data_type().clone(), true));
        ListArray::new(field, lengths, Arc::new(inner), None)
    };
    vec![
        values("a null inside a list", move || {
            column(list(vec![Some(vec![Some(1)]), Some(vec![Some(1), None])]))
        })
        .unconvertible("", 3, "array-null", &["column x", "row 1", FILE]),
        values("an empty list", move || {
            column(list(vec![Some(vec![Some(1)]), Some(vec![])]))
        })
        .unconvertible("", 3, "array-empty", &["column x", "row 1", FILE, "x:json"]),
        values("lists of different lengths in a list", move || {
            column(nested(&[&[&[1, 2], &[3, 4]], &[&[1, 2], &[3]]]))
        })
        .unconvertible(
            "--column x:ndarray:int32",
            3,
            "array-ragged",
            &["column x", "row 1", FILE],
        ),
        values("a list of another shape", move || {
            column(list(vec![
                Some(vec![Some(1), Some(2)]),
                Some(vec![Some(1), Some(2), Some(3)]),
            ]))
        })
        .unconvertible(
            "--column x:ndarray:int32:2",
            3,
            "array-shape",
            &["column x", "row 1", FILE, "3", "2"],
        ),
        values("a list in which a number does not fit", move || {
            column(list(vec![
                Some(vec![Some(1), Some(2)]),
                Some(vec![Some(1), Some(300)]),
            ]))
        })
        .unconvertible(
            "--column x:ndarray:uint8",
            3,
            "value-range",
            &["column x", "row 1", FILE, "300"],
        ),
        values("a fixed-size list that is null", || {
            let values: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3, 4]));
            let field = Arc::new(Field::new_list_field(DataType::Int32, false));
            column(FixedSizeListArray::new(
                field,
                2,
                values,
                Some(vec![true, false].into()),
            ))
        })
        .unconvertible("", 3, "value-null", &["column x", "row 1", FILE]),
        values("a list of text as numbers", || {
            let mut builder = arrow::array::ListBuilder::new(arrow::array::StringBuilder::new());
            builder.append_value([Some("a")]);
            column(builder.finish())
        })
        .unconvertible(
            "--column x:ndarray:int32",
            3,
            "type-unsupported",
            &["column x", "ndarray:int32"],
        ),
        values("files in a list that are no JPEG", || {
            let mut builder = arrow::array::ListBuilder::new(arrow::array::BinaryBuilder::new());
            builder.append_value([Some(b"\xff\xd8\xff\xe0".as_slice())]);
            builder.append_value([Some(b"GIF89a".as_slice())]);
            column(builder.finish())
        })
        .unconvertible(
            "--column x:list[jpeg]",
            3,
            "image-magic",
            &["column x", "row 1", FILE],
        ),
        values("no files in a list for jpeg_array", || {
            let mut builder = arrow::array::ListBuilder::new(arrow::array::BinaryBuilder::new());
            builder.append_value([Some(b"\xff\xd8\xff\xe0".as_slice())]);
            builder.append_value(std::iter::empty::<Option<&[u8]>>());
            column(builder.finish())
        })
        .unconvertible(
            "--column x:jpeg_array",
            3,
            "list-frame",
            &["column x", "row 1", FILE],
        ),
    ]
}

fn bytes() -> Vec<Case> {
    let binary = |values: Vec<&'static [u8]>| move || column(BinaryArray::from_vec(values.clone()));
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    vec![
        values(
            "bytes that are not UTF-8 as str",
            binary(vec![b"a", b"a\xffb"]),
        )
        .unconvertible(
            "--column x:str",
            3,
            "sample-utf8",
            &["column x", "row 1", FILE],
        ),
        values("text that is no JSON", || {
            column(StringArray::from(vec!["{\"a\": 1}", "{'a': 1}"]))
        })
        .unconvertible(
            "--column x:json",
            3,
            "json-syntax",
            &["column x", "row 1", FILE],
        ),
        values("JSON nested 100 deep", move || {
            column(StringArray::from(vec!["[]".to_owned(), deep.clone()]))
        })
        .unconvertible(
            "--column x:json",
            3,
            "limit-json-depth",
            &["column x", "row 1", FILE, "--safety-limit json-depth"],
        ),
        values(
            "a PNG as JPEG",
            binary(vec![b"\xff\xd8\xff\xe0", b"\x89PNG\r\n\x1a\n"]),
        )
        .unconvertible(
            "--column x:jpeg",
            3,
            "image-magic",
            &["column x", "row 1", FILE],
        ),
        values("no bytes as PNG", binary(vec![b"\x89PNG\r\n\x1a\n", b""])).unconvertible(
            "--column x:png",
            3,
            "image-magic",
            &["column x", "row 1", FILE],
        ),
        values(
            "pixels that are too few for pil",
            binary(vec![b"\x02\0\0\0\x02\0\0\0\x01\0\0\0Labc"]),
        )
        .unconvertible(
            "--column x:pil",
            3,
            "image-frame",
            &["column x", "row 0", FILE],
        ),
        values("three bytes as four numbers", binary(vec![b"abcd", b"abc"])).unconvertible(
            "--column x:ndarray:uint8:4",
            3,
            "sample-size|array-shape",
            &["column x", "row 1", FILE],
        ),
        values("digits as a number", binary(vec![b"0"])).unconvertible(
            "--column x:uint8",
            3,
            "type-unsupported",
            &["column x", "CAST(CAST(x AS VARCHAR) AS BIGINT)"],
        ),
        values("a file as an array", binary(vec![b"\x08\x04\x01a"])).unconvertible(
            "--column x:ndarray",
            3,
            "type-unsupported",
            &["column x", "--column x:bytes"],
        ),
        values("JSON with a key twice", || {
            column(StringArray::from(vec!["{}", "{\"a\": 1, \"a\": 2}"]))
        })
        .unconvertible(
            "--column x:json",
            3,
            "json-syntax",
            &["column x", "row 1", FILE, "`a` twice"],
        ),
        values("a fraction in a field of whole numbers", || {
            column(Float64Array::from(vec![0.5]))
        })
        .unconvertible(
            "--to webdataset --column cls=x",
            3,
            "type-unsupported",
            &["column cls", "`json`"],
        ),
        values("text in a field of JSON", || {
            column(StringArray::from(vec!["{}", "plain"]))
        })
        .unconvertible(
            "--to webdataset --column json=x",
            3,
            "json-syntax",
            &["column json", "row 1"],
        ),
        values("a sample above the limit", || {
            column(StringArray::from(vec!["a".to_owned(), "b".repeat(1000)]))
        })
        .unconvertible(
            "--safety-limit sample-bytes=100",
            3,
            "limit-sample-bytes",
            &["row 1", FILE, "1004", "--safety-limit sample-bytes="],
        ),
    ]
}

/// Types that no encoding can represent, which is known before a row is read.
fn types() -> Vec<Case> {
    vec![
        values("a struct as int", || {
            let inner: ArrayRef = Arc::new(Int32Array::from(vec![1]));
            column(StructArray::from(vec![(
                Arc::new(Field::new("a", DataType::Int32, false)),
                inner,
            )]))
        })
        .unconvertible(
            "--column x:int",
            3,
            "type-unsupported",
            &["column x", "Struct"],
        ),
        values("a moment as int32", || {
            column(TimestampSecondArray::from(vec![1]))
        })
        .unconvertible(
            "--column x:int32",
            3,
            "type-unsupported",
            &["column x", "Timestamp"],
        ),
        values("text as float64", || column(StringArray::from(vec!["1"]))).unconvertible(
            "--column x:float64",
            3,
            "type-unsupported",
            &["column x", "Utf8"],
        ),
        values("no columns", || {
            RecordBatch::try_new_with_options(
                Arc::new(arrow::datatypes::Schema::empty()),
                vec![],
                &arrow::array::RecordBatchOptions::new().with_row_count(Some(3)),
            )
            .unwrap()
        })
        .unconvertible("", 2, "config-no-columns", &["column"]),
    ]
}

/// Values in shards, as read by `verify --deep` and `cat`.
fn stored() -> Vec<Case> {
    let stored = |name: &str,
                  encoding: &'static str,
                  value: &'static [u8],
                  good: &'static [u8],
                  ids: &'static str| {
        case(&format!("stored: {name}"), move |dir: &TestDir| {
            dir.column(encoding, &[good, value])
        })
        .fails(
            "verify shards --deep",
            3,
            ids,
            &["shard.00000.mds", "sample 1", "`x`"],
        )
        .fails(
            "cat shards ..",
            3,
            ids,
            &["shard.00000.mds", "sample 1", "`x`"],
        )
    };
    vec![
        stored(
            "text that is not UTF-8",
            "str",
            b"a\xff",
            b"a",
            "sample-utf8",
        ),
        stored(
            "an array of no known type",
            "ndarray",
            b"\x07\x04\x01a",
            b"\x08\x04\x01a",
            "array-dtype",
        ),
        stored(
            "an array that ends within its header",
            "ndarray",
            b"\x08\x08\x01",
            b"\x08\x04\x01a",
            "array-header",
        ),
        stored(
            "an array without its numbers",
            "ndarray",
            b"\x21\x04\x02abcd",
            b"\x08\x04\x01a",
            "array-shape",
        ),
        stored(
            "an array of 2^64 numbers",
            "ndarray:uint8",
            b"\x0b\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\x04\x01a",
            "array-shape",
        ),
        stored(
            "an array without dimensions",
            "ndarray",
            b"\x08\x00",
            b"\x08\x04\x01a",
            "array-shape",
        ),
        stored(
            "an array of 63 dimensions",
            "ndarray:uint8",
            &DIMENSIONS,
            b"\x04\x01a",
            "limit-array-dims",
        ),
        stored(
            "JSON that breaks off",
            "json",
            b"{\"a\": ",
            b"{}",
            "json-syntax",
        ),
        stored(
            "JSON with a leading zero",
            "json",
            b"01",
            b"1",
            "json-syntax",
        ),
        stored(
            "JSON nested 60 deep",
            "json",
            DEEP.as_bytes(),
            b"1",
            "limit-json-depth",
        ),
        stored(
            "an integer that is none",
            "str_int",
            b"1_",
            b"1",
            "number-text",
        ),
        stored(
            "a float that is none",
            "str_float",
            b"one",
            b"1.0",
            "number-text",
        ),
        stored(
            "a decimal that is none",
            "str_decimal",
            b"1..0",
            b"1.0",
            "number-text",
        ),
        stored(
            "an image that ends within its header",
            "pil",
            b"\x01\0\0\0\x01",
            PIXEL,
            "image-frame",
        ),
        stored(
            "an image of 2^64 pixels",
            "pil",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\x04\0\0\0RGBAabcd",
            PIXEL,
            "image-frame",
        ),
        stored(
            "an image of no known mode",
            "pil",
            b"\x01\0\0\0\x01\0\0\0\x03\0\0\0ABCa",
            PIXEL,
            "image-mode",
        ),
        stored(
            "a list that promises 2^32 items",
            "list[jpeg]",
            b"\0\0\0\0\xff\xff\xff\xff",
            b"\0\0\0\0\0\0\0\0",
            "list-frame",
        ),
        stored(
            "a list that begins with a word",
            "list[jpeg]",
            b"\x01\0\0\0\0\0\0\0",
            b"\0\0\0\0\0\0\0\0",
            "list-frame",
        ),
        stored(
            "a list whose items are longer than it",
            "list[png]",
            b"\0\0\0\0\x01\0\0\0\xff\0\0\0ab",
            b"\0\0\0\0\0\0\0\0",
            "list-frame",
        ),
        stored(
            "an array of files without files",
            "jpeg_array",
            b"\0\0\0\0",
            b"\x01\0\0\0\x03\0\0\0\xff\xd8\xff",
            "list-frame",
        ),
    ]
}

const PIXEL: &[u8] = b"\x01\0\0\0\x01\0\0\0\x01\0\0\0La";
const DEEP: &str = "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]";
/// One number of 63 dimensions of 1.
const DIMENSIONS: [u8; 65] = {
    let mut bytes = [1; 65];
    bytes[0] = 63 << 2;
    bytes[64] = b'a';
    bytes
};
