//! Tests of the encoding of columns, without a pipeline.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::*;
use arrow::datatypes::*;
use shardmill_core::Error;
use shardmill_webdataset::{Value, decode, inflate};

use super::*;

/// Encodes a column like `--column NAME[:ENCODING]`. An error is returned as its text and its hint.
fn made(
    name: &str,
    array: &ArrayRef,
    encoding: Option<&str>,
    metadata: &[(&str, &str)],
    format: ShardFormat,
) -> Result<Vec<Vec<u8>>, (String, String)> {
    let metadata = metadata.iter();
    let metadata = metadata.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let field = Field::new(name, array.data_type().clone(), true)
        .with_metadata(metadata.collect::<HashMap<_, _>>());
    let target = match (encoding, format) {
        (None, _) => default_target(&field, format).map_err(describe_error)?,
        (Some(name), ShardFormat::Webdataset) => Target::Field(name.parse().unwrap()),
        (Some(name), ShardFormat::Mds) => Target::Mds(name.parse().unwrap()),
        (Some(_), ShardFormat::Parquet) => {
            panic!("tables have no encodings")
        }
    };
    encoded(&field, array, target)
}

fn describe_error(error: Error) -> (String, String) {
    let hint = error.hint().unwrap_or_default().to_owned();
    (format!("{}: {error}", error.id()), hint)
}

fn encoded(
    field: &Field,
    array: &ArrayRef,
    target: Target,
) -> Result<Vec<Vec<u8>>, (String, String)> {
    let column =
        ColumnEncoder::compile(0, field, target, &Limits::default()).map_err(describe_error)?;
    let encoded_column = column
        .prepare(array)
        .map_err(|error| describe_error(error.locate(field.name(), |row| format!("row {row}"))))?;
    let values = (0..array.len()).map(|row| {
        let (prefix, value) = encoded_column.value(row);
        [prefix, value].concat()
    });
    Ok(values.collect())
}

fn field(
    name: &str,
    array: &ArrayRef,
    encoding: Option<&str>,
) -> Result<Vec<Vec<u8>>, (String, String)> {
    made(name, array, encoding, &[], ShardFormat::Webdataset)
}

/// Encodes a column of a text format.
fn xsv(name: &str, array: &ArrayRef) -> Result<Vec<Vec<u8>>, (String, String)> {
    let field = Field::new(name, array.data_type().clone(), true);
    encoded(&field, array, Target::Xsv(TextEncoding::Str))
}

fn mds(
    array: &ArrayRef,
    encoding: Option<&str>,
    metadata: &[(&str, &str)],
) -> Result<Vec<Vec<u8>>, (String, String)> {
    made("cls", array, encoding, metadata, ShardFormat::Mds)
}

fn texts(values: Result<Vec<Vec<u8>>, (String, String)>) -> Vec<String> {
    let values = values.unwrap().into_iter();
    values
        .map(|value| String::from_utf8(value).unwrap())
        .collect()
}

fn vectors() -> ArrayRef {
    let rows = [Some(vec![Some(1.0), Some(2.5)])];
    Arc::new(ListArray::from_iter_primitive::<Float32Type, _, _>(rows))
}

fn text(values: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

fn number() -> ArrayRef {
    Arc::new(Int32Array::from(vec![7]))
}

fn score() -> ArrayRef {
    Arc::new(Float32Array::from(vec![0.5]))
}

fn bytes(value: &[u8]) -> ArrayRef {
    Arc::new(BinaryArray::from_vec(vec![value]))
}

#[test]
fn tar_field_is_encoded_according_to_its_extension() {
    let limits = Limits::default();
    let json = text(&[r#"{"a": 1}"#]);
    for (name, array, encoding, expected) in [
        ("cls", number(), None, Value::Int(7)),
        ("cls", text(&["7"]), Some("int"), Value::Int(7)),
        ("json", number(), None, Value::Json("7")),
        ("json", score(), None, Value::Json("0.5")),
        ("json", json.clone(), None, Value::Json(r#"{"a": 1}"#)),
        ("json", vectors(), None, Value::Json("[1.0, 2.5]")),
        ("txt", text(&["é"]), None, Value::Text("é")),
        ("txt", number(), None, Value::Text("7")),
        ("txt", vectors(), Some("json"), Value::Text("[1.0, 2.5]")),
        ("jpg", bytes(b"\xff"), None, Value::Bytes(b"\xff")),
        ("other", text(&["x"]), None, Value::Bytes(b"x")),
    ] {
        // Unchanged, and compressed like `TarWriter` does it.
        for end in ["", ".gz"] {
            let name = format!("{name}{end}");
            let values = field(&name, &array, encoding).unwrap();
            if array.data_type() == &DataType::Binary {
                assert_eq!(values, [b"\xff"], "{name}: files are what they are");
                continue;
            }
            let plain = inflate(&name, &values[0], &limits).unwrap();
            assert_eq!(
                decode(&name, &plain, &limits),
                Ok(expected.clone()),
                "{name}"
            );
            assert_eq!(values, field(&name, &array, encoding).unwrap());
        }
    }
    for (name, is_one) in [
        ("npy", true),
        ("v.npy.gz", true),
        ("ten", false),
        ("tb.gz", false),
    ] {
        let values = field(name, &vectors(), None).unwrap();
        let plain = inflate(name, &values[0], &limits).unwrap();
        match decode(name, &plain, &limits).unwrap() {
            Value::Array(array) => assert!(is_one && array.shape == [2], "{name}"),
            Value::Arrays(arrays) => assert!(!is_one && arrays[0].shape == [2], "{name}"),
            other => panic!("{name}: {other:?}"),
        }
    }
    let gzip = field("txt.gz", &text(&["a", "b"]), None).unwrap();
    assert_eq!(gzip[0][4..8], [0; 4], "no time");
    assert_eq!(&*inflate("txt.gz", &gzip[1], &limits).unwrap(), b"b");
}

#[test]
fn tar_field_that_readers_would_misread_is_rejected() {
    let json = text(&["{}"]);
    for (name, array, encoding, hint) in [
        (
            "cls",
            text(&["a"]),
            None,
            "a whole number there: call the field `txt`, or store texts of digits with",
        ),
        (
            "cls.gz",
            text(&["a"]),
            None,
            "a whole number there: call the field `txt`",
        ),
        (
            "x.cls",
            score(),
            None,
            "a whole number there: call the field `x.json`",
        ),
        (
            "cls",
            vectors(),
            None,
            "a whole number there: call the field `npy`",
        ),
        (
            "npy",
            text(&["a"]),
            None,
            "a NumPy file there: call the field `txt`",
        ),
        (
            "npy",
            number(),
            None,
            "a NumPy file there: call the field `cls`",
        ),
        (
            "npz",
            vectors(),
            None,
            "NumPy files in a ZIP file there: call the field `npy`",
        ),
        (
            "mp",
            json.clone(),
            None,
            "MessagePack there: call the field `txt`",
        ),
        ("cbor", number(), None, "CBOR there: call the field `cls`"),
        (
            "pth",
            vectors(),
            None,
            "a pickle there: call the field `npy`",
        ),
        (
            "jpg",
            json.clone(),
            None,
            "an image there: call the field `txt`",
        ),
        (
            "jpg",
            json.clone(),
            Some("bytes"),
            "an image there: call the field `txt`",
        ),
        (
            "txt",
            vectors(),
            None,
            "text there: call the field `npy`, or store it as text with the encoding `json`",
        ),
        (
            "npy",
            vectors(),
            Some("ten"),
            "a NumPy file there: call the field `ten`",
        ),
        (
            "json",
            json.clone(),
            Some("str"),
            "JSON there: call the field `txt`",
        ),
        (
            "json",
            text(&["007"]),
            Some("int"),
            "JSON there: call the field `cls`",
        ),
        (
            "cls",
            bytes(b"1"),
            Some("str"),
            "a whole number there: call the field `txt`",
        ),
        (
            "cls",
            json,
            Some("json"),
            "a whole number there: call the field `json`",
        ),
    ] {
        let (error, found) = field(name, &array, encoding).unwrap_err();
        assert!(
            error.starts_with("type-unsupported: a column of type "),
            "{name}: {error}"
        );
        assert!(
            error.ends_with(" in a field of that name"),
            "{name}: {error}"
        );
        assert!(
            found.starts_with(&format!("readers expect {hint}")),
            "{name}: {found}"
        );
    }
    let (error, hint) = field("json", &text(&["{}", "plain"]), None).unwrap_err();
    assert!(hint.ends_with("under a name like json.txt"), "{hint}");
    assert!(error.starts_with("json-syntax: row 1: "), "{error}");
    let numbers = ListArray::from_iter_primitive::<UInt32Type, _, _>([Some(vec![Some(1)])]);
    let (error, _) = field("v.ten", &(Arc::new(numbers) as ArrayRef), Some("ten")).unwrap_err();
    assert_eq!(
        error,
        "type-unsupported: a column of type List(UInt32) cannot be stored as ten"
    );
}

#[test]
fn binary_column_as_number_is_an_error_with_a_hint() {
    let file = bytes(b"0");
    for (encoding, hint) in [
        ("uint8", "CAST(CAST(cls AS VARCHAR) AS BIGINT)"),
        ("int", "CAST(CAST(cls AS VARCHAR) AS BIGINT)"),
        ("uint64", "CAST(CAST(cls AS VARCHAR) AS BIGINT UNSIGNED)"),
        ("float32", "CAST(CAST(cls AS VARCHAR) AS DOUBLE)"),
        ("str_int", "--column 'cls:str_int=CAST(cls AS VARCHAR)'"),
        ("ndarray", "--column cls:bytes keeps the bytes"),
        ("ndarray:uint8", "--column cls:ndarray:float32:2,3"),
    ] {
        let (error, found) = mds(&file, Some(encoding), &[]).unwrap_err();
        assert_eq!(
            error,
            format!("type-unsupported: a column of type Binary cannot be stored as {encoding}")
        );
        assert!(found.contains(hint), "{encoding}: {found}");
    }
    let (_, hint) = made("Seg.cls", &file, Some("int"), &[], ShardFormat::Mds).unwrap_err();
    assert!(
        hint.contains("CAST(CAST(\"Seg.cls\" AS VARCHAR) AS BIGINT)"),
        "{hint}"
    );
    let (_, hint) = field("cls", &file, Some("int")).unwrap_err();
    assert!(
        hint.contains("'cls:int=CAST(CAST(cls AS VARCHAR) AS BIGINT)'"),
        "{hint}"
    );
    let computed = [(EXPRESSION_KEY, "cls")];
    let (_, hint) = made("label", &file, Some("int"), &computed, ShardFormat::Mds).unwrap_err();
    assert!(
        hint.contains("'label:int=CAST(CAST(cls AS VARCHAR) AS BIGINT)'"),
        "{hint}"
    );
    for encoding in ["bytes", "str", "json", "pkl", "ndarray:uint8:1"] {
        assert_eq!(
            mds(&file, Some(encoding), &[]).unwrap(),
            [b"0"],
            "{encoding}"
        );
    }
    // Values from MDS shards keep their encoding and cannot change it.
    let of = |encoding| [(ENCODING_KEY, encoding), (ENCODED_KEY, "true")];
    assert_eq!(mds(&file, Some("uint8"), &of("uint8")).unwrap(), [b"0"]);
    assert_eq!(mds(&file, Some("ndarray"), &of("ndarray")).unwrap(), [b"0"]);
    assert!(mds(&file, Some("ndarray:uint8:1"), &of("bytes")).is_ok());
    assert!(mds(&file, Some("ndarray:uint8:1"), &of("ndarray")).is_err());
    // The encoding that a tree suggests is not applied yet.
    assert!(mds(&file, Some("uint8"), &[(ENCODING_KEY, "uint8")]).is_err());
}

#[test]
fn duplicate_json_keys_are_an_error() {
    let mut map = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    for keys in [["a", "b"], ["k", "k"]] {
        for (value, key) in (0..).zip(keys) {
            map.keys().append_value(key);
            map.values().append_value(value);
        }
        map.append(true).unwrap();
    }
    let map: ArrayRef = Arc::new(map.finish());
    let twice = |row| format!("json-syntax: row {row}: a JSON object has the key `k` twice");
    assert_eq!(mds(&map, None, &[]).unwrap_err().0, twice(1));
    assert_eq!(field("json", &map, None).unwrap_err().0, twice(1));
    assert_eq!(
        texts(mds(&map.slice(0, 1), None, &[])),
        [r#"{"a": 0, "b": 1}"#]
    );
    let raw = text(&["{}", r#"{"k": 1, "k": 2}"#]);
    assert_eq!(mds(&raw, Some("json"), &[]).unwrap_err().0, twice(1));
    assert_eq!(field("json", &raw, None).unwrap_err().0, twice(1));
    let of = [(ENCODING_KEY, "json"), (ENCODED_KEY, "true")];
    assert!(
        mds(&raw, Some("json"), &of).is_ok(),
        "what is in shards stays"
    );
    let one = || (Arc::new(Field::new("x", DataType::Int32, true)), number());
    let pair: ArrayRef = Arc::new(StructArray::from(vec![one(), one()]));
    let (error, hint) = mds(&pair, Some("json"), &[]).unwrap_err();
    assert!(error.starts_with("type-unsupported: "), "{error}");
    assert!(hint.starts_with("`cls` has two fields `x`: "), "{hint}");
}

#[test]
fn decimals_of_any_width_and_list_views_are_stored() {
    let narrow = Decimal32Array::from(vec![150])
        .with_precision_and_scale(5, 2)
        .unwrap();
    let wide = Decimal64Array::from(vec![-7])
        .with_precision_and_scale(12, 0)
        .unwrap();
    let (narrow, wide): (ArrayRef, ArrayRef) = (Arc::new(narrow), Arc::new(wide));
    assert_eq!(texts(mds(&narrow, None, &[])), ["1.50"]);
    assert_eq!(texts(mds(&wide, None, &[])), ["-7"]);
    assert_eq!(
        mds(&wide, Some("int16"), &[]).unwrap(),
        [(-7_i16).to_le_bytes()]
    );
    assert_eq!(
        mds(&narrow, Some("float64"), &[]).unwrap(),
        [1.5_f64.to_le_bytes()]
    );
    assert_eq!(texts(field("txt", &narrow, None)), ["1.50"]);
    assert_eq!(texts(xsv("x", &narrow)), ["1.50"]);
    let inside: ArrayRef = Arc::new(StructArray::from(vec![(
        Arc::new(Field::new("d", narrow.data_type().clone(), true)),
        narrow,
    )]));
    assert_eq!(texts(mds(&inside, None, &[])), [r#"{"d": "1.50"}"#]);
    let lists = ListArray::from_iter_primitive::<Int16Type, _, _>([
        Some(vec![Some(1), Some(2)]),
        Some(vec![Some(3)]),
    ]);
    let lists: ArrayRef = Arc::new(lists);
    let item = Arc::new(Field::new_list_field(DataType::Int16, true));
    for view in [
        DataType::ListView(Arc::clone(&item)),
        DataType::LargeListView(item),
    ] {
        let views = cast(&lists, &view).unwrap();
        assert_eq!(mds(&views, None, &[]), mds(&lists, None, &[]));
        assert_eq!(field("npy", &views, None), field("npy", &lists, None));
        assert_eq!(texts(mds(&views.slice(1, 1), Some("json"), &[])), ["[3]"]);
    }
}

#[test]
fn dates_are_stored_and_out_of_range_dates_are_errors() {
    const DAY: i64 = 86_400_000;
    let days: ArrayRef = Arc::new(Date64Array::from(vec![0, 19_723 * DAY, -DAY, DAY / 2]));
    assert_eq!(
        texts(mds(&days, None, &[])),
        [
            "1970-01-01",
            "2024-01-01",
            "1969-12-31",
            "1970-01-01T12:00:00"
        ]
    );
    let days = [Some(0), None, Some(i32::MAX)];
    let far: ArrayRef = Arc::new(Date32Array::from(days.to_vec()));
    let failure = |encoding| {
        format!(
            "value-range: row 2: the date 2147483647 days from 1970-01-01 does not fit {encoding}"
        )
    };
    assert_eq!(mds(&far, None, &[]).unwrap_err().0, failure("str"));
    assert_eq!(mds(&far, Some("json"), &[]).unwrap_err().0, failure("json"));
    assert_eq!(field("txt", &far, None).unwrap_err().0, failure("str"));
    assert_eq!(xsv("x", &far).unwrap_err().0, failure("str"));
    let inside: ArrayRef = Arc::new(StructArray::from(vec![(
        Arc::new(Field::new("d", DataType::Date32, true)),
        far,
    )]));
    assert_eq!(mds(&inside, None, &[]).unwrap_err().0, failure("json"));
    assert_eq!(
        texts(mds(&inside.slice(0, 2), None, &[])),
        [r#"{"d": "1970-01-01"}"#, r#"{"d": null}"#]
    );
    let moments: ArrayRef = Arc::new(TimestampSecondArray::from(vec![-62_198_755_200, i64::MAX]));
    assert_eq!(
        texts(mds(&moments.slice(0, 1), None, &[])),
        ["-0001-01-01T00:00:00"]
    );
    assert!(
        mds(&moments, None, &[])
            .unwrap_err()
            .0
            .starts_with("value-range: row 1: the time ")
    );
}

#[test]
fn unsupported_nested_type_error_names_the_field_path() {
    let interval = DataType::Interval(arrow::datatypes::IntervalUnit::YearMonth);
    let inner = Field::new("raw", interval, true);
    let list = DataType::new_list(DataType::Struct(vec![inner].into()), true);
    let outer = DataType::Struct(vec![Field::new("parts", list, true)].into());
    let array = new_null_array(&outer, 1);
    let blame = "`cls.parts[].raw` is Interval(YearMonth), which has no form in JSON: ";
    for (encoding, hint) in [
        (None, "omit the column"),
        (Some("json"), "convert it first"),
    ] {
        let (error, found) = mds(&array, encoding, &[]).unwrap_err();
        assert!(error.starts_with("type-unsupported: "), "{error}");
        assert!(found.starts_with(&format!("{blame}{hint}")), "{found}");
    }
    let (_, found) = field("cls", &array, None).unwrap_err();
    assert!(found.starts_with(blame), "{found}");
}
