//! Tests how encodings store Arrow values, and which values do not fit.

use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::*;
use half::f16;
use shardmill_core::{Error, Limits, Progress};
use shardmill_mds::{Column, Encoding, ShardConfig};
use shardmill_storage::{CancelToken, Destination, Dir};
use shardmill_writer::{
    Base, Batches, Checkpoint, ColumnEncoder, Input, InputBatch, Output, Position, Resources,
    RowEncoder, RowNumbers, ShardEnds, ShardFormat, ShardRecord, Target, default_target, run,
};

struct One(RecordBatch);

impl Input for One {
    fn units(&self) -> usize {
        1
    }
    fn open(&self, _: usize) -> Result<Box<dyn Batches>, Error> {
        Ok(Box::new(Just(Some(self.0.clone()))))
    }
    fn row_origin(&self, _: usize, row: u64) -> String {
        format!("row {row}")
    }
}

struct Just(Option<RecordBatch>);

impl Batches for Just {
    fn next(&mut self) -> Result<Option<InputBatch>, Error> {
        let batch = self.0.take();
        Ok(batch.map(|batch| InputBatch {
            split: 0,
            batch,
            rows: RowNumbers::From(0),
            input_bytes: 0,
            dropped: 0,
        }))
    }
}

struct Forgetful;

impl Checkpoint for Forgetful {
    fn reusable(&self, _: usize, _: u64) -> Option<&ShardRecord> {
        None
    }
    fn resume_at(&self) -> Option<(u64, Position)> {
        None
    }
    fn published(
        &self,
        _: &ShardRecord,
        _: &mut CancelToken<'_>,
    ) -> Result<(), shardmill_storage::StorageError> {
        Ok(())
    }
}

/// The encoded values of a column, through the whole engine.
fn encode(array: ArrayRef, encoding: &str) -> Result<Vec<Vec<u8>>, Error> {
    let field = Field::new("x", array.data_type().clone(), true);
    let encoding: Encoding = encoding.parse().unwrap();
    let column =
        ColumnEncoder::compile(0, &field, Target::Mds(encoding.clone()), &Limits::default())?;
    let config = ShardConfig::new_mds(
        vec![Column {
            name: "x".to_owned(),
            encoding,
        }],
        None,
        vec![],
        None,
    )
    .unwrap();
    let encoder = RowEncoder::new(vec![column], &config.layout, 1 << 30);
    let batch = RecordBatch::try_from_iter([("x", array)]).unwrap();
    let root = tempfile::tempdir().unwrap();
    let dir = Dir::open(root.path()).unwrap();
    dir.make_dir("work").unwrap();
    let output = Output {
        destination: &Destination::Local(dir.clone()),
        temp_folder: "work",
        splits: &[String::new()],
        form: Arc::new(config).into(),
        ends: ShardEnds::Size,
        at: None,
        key_prefix: "",
    };
    let resources = Resources {
        jobs: 1,
        budget_bytes: 1 << 20,
    };
    let written = run(
        &One(batch),
        &encoder,
        &output,
        Base::default(),
        resources,
        &Forgetful,
        &Progress::new(),
    )?;
    let entry = written.indexes[0].entries[0].streaming().unwrap();
    let bytes = dir
        .open_file("shard.00000.mds")
        .unwrap()
        .read_all(1 << 30)
        .unwrap();
    let view = shardmill_mds::ShardView::open(entry, &bytes, None, &Limits::default()).unwrap();
    Ok((0..view.len())
        .map(|at| view.fields(at).unwrap()[0].datum.to_vec())
        .collect())
}

fn texts(array: ArrayRef, encoding: &str) -> Vec<String> {
    encode(array, encoding)
        .unwrap()
        .into_iter()
        .map(|bytes| String::from_utf8(bytes).unwrap())
        .collect()
}

fn failure(array: ArrayRef, encoding: &str) -> (&'static str, String) {
    let error = encode(array, encoding).unwrap_err();
    (error.id(), error.to_string())
}

#[test]
fn numbers_are_encoded_exactly_or_rejected() {
    let ints: ArrayRef = Arc::new(Int64Array::from(vec![-1, 300]));
    assert_eq!(
        encode(ints.clone(), "int").unwrap(),
        [vec![0xff; 8], vec![0x2c, 1, 0, 0, 0, 0, 0, 0]]
    );
    assert_eq!(
        encode(ints.clone(), "int16").unwrap(),
        [vec![0xff, 0xff], vec![0x2c, 1]]
    );
    assert_eq!(
        encode(ints.clone(), "float32").unwrap(),
        [
            (-1_f32).to_le_bytes().to_vec(),
            300_f32.to_le_bytes().to_vec()
        ]
    );
    assert_eq!(
        failure(ints.clone(), "uint8"),
        ("value-range", "row 0: -1 does not fit uint8".to_owned())
    );
    assert_eq!(failure(ints, "int8").1, "row 1: 300 does not fit int8");
    let big: ArrayRef = Arc::new(UInt64Array::from(vec![u64::MAX]));
    assert_eq!(encode(big.clone(), "uint64").unwrap(), [vec![0xff; 8]]);
    assert_eq!(failure(big.clone(), "int").0, "value-range");
    assert_eq!(
        failure(big, "float64").1,
        "row 0: 18446744073709551615 does not fit float64"
    );
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![1.5, f64::NAN, f64::INFINITY]));
    assert_eq!(
        encode(floats.clone(), "float16").unwrap()[0],
        f16::from_f32(1.5).to_le_bytes()
    );
    assert_eq!(
        encode(floats.clone(), "int32").unwrap_err().id(),
        "type-unsupported"
    );
    let wide: ArrayRef = Arc::new(Float64Array::from(vec![1e300]));
    assert_eq!(failure(wide, "float32").0, "value-range");
    let flags: ArrayRef = Arc::new(BooleanArray::from(vec![true, false]));
    assert_eq!(encode(flags, "uint8").unwrap(), [vec![1], vec![0]]);
    let decimals: ArrayRef = Arc::new(
        Decimal128Array::from(vec![150])
            .with_precision_and_scale(5, 2)
            .unwrap(),
    );
    assert_eq!(
        encode(decimals.clone(), "float64").unwrap(),
        [1.5_f64.to_le_bytes().to_vec()]
    );
    assert_eq!(texts(decimals, "str_decimal"), ["1.50"]);
    // Sliced arrays start somewhere else in their buffer.
    let sliced = Int32Array::from(vec![1, 2, 3]).slice(1, 2);
    assert_eq!(
        encode(Arc::new(sliced), "int32").unwrap(),
        [vec![2, 0, 0, 0], vec![3, 0, 0, 0]]
    );
}

#[test]
fn text_encoding_accepts_all_text_like_types() {
    let view: ArrayRef = Arc::new(StringViewArray::from(vec![
        "a",
        "long enough not to be inlined",
        "",
    ]));
    assert_eq!(
        texts(view, "str"),
        ["a", "long enough not to be inlined", ""]
    );
    let dictionary: DictionaryArray<Int8Type> = ["x", "y", "x"].into_iter().collect();
    assert_eq!(texts(Arc::new(dictionary), "str"), ["x", "y", "x"]);
    let dates: ArrayRef = Arc::new(Date32Array::from(vec![0, 19_723]));
    assert_eq!(texts(dates.clone(), "str"), ["1970-01-01", "2024-01-01"]);
    assert_eq!(encode(dates, "int64").unwrap()[1], 19_723_i64.to_le_bytes());
    let moments: ArrayRef =
        Arc::new(TimestampMicrosecondArray::from(vec![1_500_000]).with_timezone("UTC"));
    assert_eq!(texts(moments, "str"), ["1970-01-01T00:00:01.500Z"]);
    let floats: ArrayRef = Arc::new(Float32Array::from(vec![0.1, 1e16]));
    assert_eq!(
        texts(floats, "str_float"),
        ["0.10000000149011612", "1.0000000272564224e+16"]
    );
    assert_eq!(
        texts(Arc::new(Int32Array::from(vec![-7])), "str_int"),
        ["-7"]
    );
    let bad: ArrayRef = Arc::new(BinaryArray::from_vec(vec![b"ok", b"\xff"]));
    assert_eq!(failure(bad, "str").0, "sample-utf8");
}

#[test]
fn lists_are_encoded_as_ndarrays() {
    let list = ListArray::from_iter_primitive::<Int16Type, _, _>([
        Some(vec![Some(1), Some(2)]),
        Some(vec![Some(3)]),
    ]);
    let list: ArrayRef = Arc::new(list);
    assert_eq!(
        encode(list.clone(), "ndarray").unwrap(),
        [vec![17, 4, 2, 1, 0, 2, 0], vec![17, 4, 1, 3, 0]]
    );
    assert_eq!(
        encode(list.clone(), "ndarray:int16").unwrap()[1],
        [4, 1, 3, 0]
    );
    assert_eq!(
        encode(list.clone(), "ndarray:uint8").unwrap()[0],
        [4, 2, 1, 2]
    );
    assert_eq!(
        failure(list.clone(), "ndarray:int16:2"),
        (
            "array-shape",
            "row 1: the array has shape [1], the encoding says [2]".to_owned()
        )
    );
    assert_eq!(texts(list.clone(), "json"), ["[1, 2]", "[3]"]);
    assert_eq!(
        encode(list.slice(1, 1), "ndarray:int16").unwrap(),
        [vec![4, 1, 3, 0]]
    );
    let empty =
        ListArray::from_iter_primitive::<Int16Type, _, _>([Some(vec![Some(1)]), Some(vec![])]);
    assert_eq!(failure(Arc::new(empty), "ndarray").0, "array-empty");
    let holes =
        ListArray::from_iter_primitive::<Int16Type, _, _>([Some(vec![Some(1)]), Some(vec![None])]);
    let holes: ArrayRef = Arc::new(holes);
    assert_eq!(
        failure(holes.clone(), "ndarray"),
        ("array-null", "row 1: the list has a null inside".to_owned())
    );
    assert_eq!(texts(holes, "json"), ["[1]", "[null]"]);
    let fixed = FixedSizeListArray::from_iter_primitive::<UInt8Type, _, _>(
        [
            Some([Some(1), Some(2), Some(3), Some(4)]),
            Some([Some(5), Some(6), Some(7), Some(8)]),
        ],
        4,
    );
    let fixed: ArrayRef = Arc::new(fixed);
    assert_eq!(
        encode(fixed.clone(), "ndarray:uint8:4").unwrap(),
        [vec![1, 2, 3, 4], vec![5, 6, 7, 8]]
    );
    assert_eq!(
        encode(fixed.clone(), "ndarray:uint8:2,2").unwrap()[1],
        [5, 6, 7, 8]
    );
    assert_eq!(
        encode(fixed.slice(1, 1), "ndarray:uint8:4").unwrap(),
        [vec![5, 6, 7, 8]]
    );
    assert_eq!(encode(fixed, "ndarray").unwrap()[0], [8, 4, 4, 1, 2, 3, 4]);
}

#[test]
fn nested_lists_as_ndarray_must_be_rectangular() {
    let inner = ListArray::from_iter_primitive::<Int8Type, _, _>(
        [vec![1, 2], vec![3, 4], vec![5], vec![6, 7]]
            .map(|row| Some(row.into_iter().map(Some).collect::<Vec<_>>())),
    );
    let field = Arc::new(Field::new_list_field(inner.data_type().clone(), true));
    let outer = ListArray::new(
        field,
        OffsetBuffer::from_lengths([2, 2]),
        Arc::new(inner),
        None,
    );
    let outer: ArrayRef = Arc::new(outer);
    assert_eq!(
        encode(outer.slice(0, 1), "ndarray:int8").unwrap(),
        [vec![8, 2, 2, 1, 2, 3, 4]]
    );
    assert_eq!(failure(outer.clone(), "ndarray:int8").0, "array-ragged");
    assert_eq!(
        texts(outer.clone(), "json"),
        ["[[1, 2], [3, 4]]", "[[5], [6, 7]]"]
    );
    let field = Field::new("x", outer.data_type().clone(), true);
    assert_eq!(
        default_target(&field, ShardFormat::Mds).unwrap(),
        Target::Mds(Encoding::Json)
    );
}

#[test]
fn nested_values_are_encoded_as_json_in_field_order() {
    let point = StructArray::from(vec![
        (
            Arc::new(Field::new("z", DataType::Float64, true)),
            Arc::new(Float64Array::from(vec![Some(1.0), Some(f64::NAN), None])) as ArrayRef,
        ),
        (
            Arc::new(Field::new("a", DataType::Utf8, true)),
            Arc::new(StringArray::from(vec!["é", "\"", "x"])) as ArrayRef,
        ),
    ]);
    let expected = [
        r#"{"z": 1.0, "a": "\u00e9"}"#,
        r#"{"z": NaN, "a": "\""}"#,
        r#"{"z": null, "a": "x"}"#,
    ];
    assert_eq!(texts(Arc::new(point), "json"), expected);
    let mut map = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    map.keys().append_value("k");
    map.values().append_value(1);
    map.append(true).unwrap();
    map.append(true).unwrap();
    assert_eq!(texts(Arc::new(map.finish()), "json"), [r#"{"k": 1}"#, "{}"]);
    let raw: ArrayRef = Arc::new(StringArray::from(vec![Some(r#"{"b":1}"#), None]));
    assert_eq!(
        texts(raw.slice(0, 1), "json"),
        [r#"{"b":1}"#],
        "JSON text is kept as it is"
    );
    assert_eq!(
        failure(raw, "json").0,
        "value-null",
        "a text that is missing is not the text `null`"
    );
    assert_eq!(
        texts(Arc::new(BinaryArray::from_vec(vec![b"[1]"])), "json"),
        ["[1]"]
    );
    assert_eq!(
        failure(Arc::new(StringArray::from(vec!["{"])), "json").0,
        "json-syntax"
    );
    let bytes = Field::new("x", DataType::new_list(DataType::Binary, true), true);
    let target = default_target(&bytes, ShardFormat::Mds).unwrap();
    assert_eq!(target.name(), "json", "bytes inside are text in base64");
}

#[test]
fn image_lists_are_framed_and_magic_bytes_are_checked() {
    let jpeg: ArrayRef = Arc::new(BinaryArray::from_vec(vec![b"\xff\xd8\xff\xe0", b"GIF8"]));
    assert_eq!(failure(jpeg.clone(), "jpeg").0, "image-magic");
    assert_eq!(
        encode(jpeg.slice(0, 1), "jpeg").unwrap(),
        [b"\xff\xd8\xff\xe0"]
    );
    assert_eq!(encode(jpeg.clone(), "pkl").unwrap().len(), 2);
    let mut list = ListBuilder::new(BinaryBuilder::new());
    list.values().append_value(b"\xff\xd8\xffA");
    list.values().append_value(b"\xff\xd8\xffBB");
    list.append(true);
    let list: ArrayRef = Arc::new(list.finish());
    let framed = encode(list.clone(), "jpeg_array").unwrap();
    assert_eq!(framed[0][..12], [2, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0]);
    assert_eq!(
        encode(list, "list[jpeg]").unwrap()[0][..8],
        [0, 0, 0, 0, 2, 0, 0, 0]
    );
    let arrays: ArrayRef = Arc::new(BinaryArray::from_vec(vec![b"12345678", b"1"]));
    let error = encode(arrays, "ndarray:uint8:8").unwrap_err();
    assert_eq!(error.to_string().split(':').next(), Some("row 1"));
}

#[test]
fn fixed_shape_ndarray_bytes_have_no_length_prefix() {
    let numbers: ArrayRef = Arc::new(BinaryArray::from_vec(vec![b"12345678", b"abcdefgh"]));
    assert_eq!(failure(numbers.clone(), "int").0, "type-unsupported");
    assert_eq!(
        encode(numbers, "ndarray:uint8:2,4").unwrap(),
        [b"12345678", b"abcdefgh"]
    );
}

#[test]
fn null_value_is_an_error_naming_the_row() {
    let array: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None]));
    let error = encode(array, "int32").unwrap_err();
    assert_eq!(
        (error.id(), error.to_string().as_str()),
        ("value-null", "row 1 is null")
    );
    assert_eq!(error.object(), Some("column x"));
}
