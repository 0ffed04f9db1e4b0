//! Tests Arrow IPC files and streams.

use std::sync::Arc;

use arrow::array::{
    Array as _, AsArray as _, DictionaryArray, Int64Array, ListArray, RecordBatch, StringArray,
    StringViewArray,
};
use arrow::datatypes::{DataType, Int8Type, Int32Type, Int64Type};
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use shardmill_core::ErrorKind;
use shardmill_source::{SelectColumn, SourceKind};

use crate::help::{TestDir, array, batch, batches, open_one, open_with, read, refused};

fn part(from: i64, words: &[&str]) -> RecordBatch {
    let dictionary: DictionaryArray<Int8Type> = words.iter().copied().collect();
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>(
        words.iter().map(|word| Some(vec![Some(word.len() as i32)])),
    );
    let ids = (0..words.len() as i64).map(|i| (i != 1).then_some(from + i));
    batch(vec![
        ("id", array(Int64Array::from_iter(ids))),
        ("word", array(dictionary)),
        ("list", array(list)),
        (
            "view",
            array(StringViewArray::from_iter_values(words.iter().copied())),
        ),
    ])
}

fn stream(parts: &[RecordBatch], options: IpcWriteOptions) -> Vec<u8> {
    let mut writer =
        StreamWriter::try_new_with_options(Vec::new(), &parts[0].schema(), options).unwrap();
    for part in parts {
        writer.write(part).unwrap();
    }
    writer.into_inner().unwrap()
}

fn file(parts: &[RecordBatch], options: IpcWriteOptions) -> Vec<u8> {
    let mut writer =
        FileWriter::try_new_with_options(Vec::new(), &parts[0].schema(), options).unwrap();
    for part in parts {
        writer.write(part).unwrap();
    }
    writer.into_inner().unwrap()
}

#[test]
fn each_record_batch_is_a_unit_in_files_and_streams() {
    let dir = TestDir::new();
    // The stream replaces its dictionary.
    let parts = [part(0, &["a", "bb", "a"]), part(10, &["ccc", "bb"])];
    let compressed = || {
        IpcWriteOptions::default()
            .try_with_compression(Some(CompressionType::ZSTD))
            .unwrap()
    };
    let same = [part(0, &["a", "bb", "a"]), part(10, &["a", "bb"])];
    for (name, bytes, second) in [
        (
            "x.arrows",
            stream(&parts, IpcWriteOptions::default()),
            "ccc",
        ),
        ("y.arrow", stream(&parts, compressed()), "ccc"),
        ("z.arrow", file(&same, IpcWriteOptions::default()), "a"),
        ("z.feather", file(&same, compressed()), "a"),
    ] {
        let source = open_one(&dir.write(name, bytes));
        assert_eq!(source.description().kind, SourceKind::Arrow);
        let units: Vec<_> = source
            .units()
            .iter()
            .map(|unit| (unit.first_row, unit.rows))
            .collect();
        assert_eq!(units, [(Some(0), Some(3)), (Some(3), Some(2))], "{name}");
        let found = read(source.as_ref());
        assert_eq!(
            found.column(1).as_string::<i32>(),
            &StringArray::from(vec!["a", "bb", "a", second, "bb"]),
            "{name}"
        );
        assert_eq!(found.column(3).data_type(), &DataType::Utf8View);
        assert_eq!(source.null_count(0), Some(2));
        assert_eq!(
            (source.null_count(1), source.null_count(2)),
            (None, Some(0))
        );
        assert_eq!(source.first_null(0).unwrap().unwrap().row, 1);
        // Units can be read in any order, including their dictionaries.
        let mut rows = source.open_unit(1).unwrap();
        assert_eq!(
            rows.next_batch()
                .unwrap()
                .unwrap()
                .column(1)
                .as_string::<i32>()
                .value(0),
            second
        );
        let mut rows = source.open_unit(0).unwrap();
        assert_eq!(
            rows.next_batch()
                .unwrap()
                .unwrap()
                .column(1)
                .as_string::<i32>()
                .value(0),
            "a"
        );
    }
}

#[test]
fn large_record_batches_are_sliced() {
    let dir = TestDir::new();
    let all = batch(vec![
        ("id", array(Int64Array::from_iter_values(0..1_000_000))),
        ("b", array(Int64Array::from_iter_values(0..1_000_000))),
    ]);
    let path = dir.write("x.arrow", file(&[all], IpcWriteOptions::default()));
    let source = open_with(&path, |options| {
        options.query.columns = vec![SelectColumn::named("id")]
    })
    .unwrap();
    let found = batches(source.as_ref()).unwrap();
    assert!((6..=10).contains(&found.len()), "{}", found.len());
    let ids = read(source.as_ref());
    assert_eq!(
        ids.column(0).as_primitive::<Int64Type>().values()[999_999],
        999_999
    );
}

#[test]
fn arrow_columns_are_matched_by_name_across_files() {
    let dir = TestDir::new();
    let options = IpcWriteOptions::default;
    dir.write(
        "d/0.arrow",
        file(
            &[batch(vec![
                ("a", array(Int64Array::from(vec![Some(1), None]))),
                ("b", array(Int64Array::from(vec![2, 2]))),
            ])],
            options(),
        ),
    );
    dir.write(
        "d/1.arrow",
        file(
            &[batch(vec![
                ("b", array(Int64Array::from(vec![3]))),
                ("a", array(Int64Array::from(vec![4]))),
            ])],
            options(),
        ),
    );
    let found = read(open_one(&dir.path("d")).as_ref());
    assert_eq!(
        found.column(0).as_primitive::<Int64Type>(),
        &Int64Array::from(vec![Some(1), None, Some(4)])
    );
    dir.write(
        "d/2.arrow",
        file(
            &[batch(vec![
                ("b", array(StringArray::from(vec!["x"]))),
                ("a", array(Int64Array::from(vec![4]))),
            ])],
            options(),
        ),
    );
    let error = refused(&dir.path("d"), |_| {});
    assert_eq!(error.id(), "arrow-schema-mismatch");
}

#[test]
fn non_arrow_file_is_an_error() {
    let dir = TestDir::new();
    let error = refused(&dir.write("x.feather", b"FEA1\0\0\0\0"), |_| {});
    assert_eq!(
        (error.id(), error.kind()),
        ("source-unsupported", ErrorKind::Unsupported)
    );
    for bytes in [
        &b""[..],
        b"hello world, this is no arrow",
        b"ARROW1\0\0",
        &[0xff; 40],
    ] {
        let error = refused(&dir.write("x.arrow", bytes), |_| {});
        assert_eq!(
            (error.id(), error.kind()),
            ("arrow-format", ErrorKind::Corrupt),
            "{bytes:?}: {error}"
        );
    }
    let bytes = file(&[part(0, &["a"])], IpcWriteOptions::default());
    let path = dir.write("x.arrow", &bytes[..bytes.len() - 1]);
    assert!(refused(&path, |_| {}).to_string().contains("cut short"));
    let mut empty = StreamWriter::try_new(Vec::new(), &part(0, &["a"]).schema()).unwrap();
    empty.finish().unwrap();
    let source = open_one(&dir.write("e.arrows", empty.into_inner().unwrap()));
    assert_eq!(
        (source.units().len(), source.description().rows),
        (0, Some(0))
    );
    let _ = Arc::clone(&source);
}
