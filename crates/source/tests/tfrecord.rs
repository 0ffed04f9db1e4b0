//! Tests TFRecord files, against files that the package `tfrecord` wrote.

use std::path::PathBuf;

use arrow::array::{Array as _, AsArray as _};
use arrow::datatypes::{Float32Type, Int64Type};
use shardmill_core::ErrorKind;
use shardmill_records::masked_crc;
use shardmill_source::{Source, SourceKind};

use crate::help::{TestDir, batches, open_one, open_with, read, refused};
use crate::text::types;

/// Returns the path of a file in `fixtures/tfrecord-1.14.6`.
fn fixture(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/tfrecord-1.14.6");
    folder.join(name)
}

/// Returns the frame of a record.
fn frame(record: &[u8]) -> Vec<u8> {
    let length = (record.len() as u64).to_le_bytes();
    let crc = |bytes: &[u8]| masked_crc(bytes).to_le_bytes();
    [&length[..], &crc(&length), record, &crc(record)].concat()
}

/// Returns an example with these whole numbers in one feature.
fn numbers(name: &str, values: &[u8]) -> Vec<u8> {
    let field = |number: u8, bytes: &[u8]| {
        let mut out = vec![number << 3 | 2, u8::try_from(bytes.len()).unwrap()];
        out.extend(bytes);
        out
    };
    let list = field(3, &field(1, values));
    let entry = [field(1, name.as_bytes()), field(2, &list)].concat();
    field(1, &field(1, &entry))
}

fn checks_examples(source: &dyn Source) {
    assert_eq!(
        types(source),
        [
            "box List(Float32)",
            "image Binary",
            "label Int64",
            "tokens List(Int64)",
            "words List(Binary)"
        ]
    );
    let found = read(source);
    assert_eq!(found.num_rows(), 5);
    let boxes = found.column(0).as_list::<i32>().value(3);
    assert_eq!(
        boxes.as_primitive::<Float32Type>().values(),
        &[0.0, 0.25, 0.5, 0.75]
    );
    assert_eq!(
        found.column(1).as_binary::<i32>().value(2),
        b"\xff\xd8\0\x01"
    );
    assert_eq!(
        found.column(2).as_primitive::<Int64Type>().values(),
        &[-2, -1, 0, 1, 2]
    );
    let tokens = found.column(3).as_list::<i32>();
    assert_eq!(tokens.value_length(0), 0);
    let last = tokens.value(4);
    assert_eq!(last.as_primitive::<Int64Type>().values(), &[0, 1, 2, 3]);
    let words = found.column(4).as_list::<i32>().value(3);
    assert_eq!(words.as_binary::<i32>().value(1), b"bc");
}

#[test]
fn features_are_read_as_columns() {
    for name in ["examples.tfrecord", "examples.tfrecord.gz"] {
        let source = open_one(&fixture(name));
        assert_eq!(source.description().kind, SourceKind::Tfrecord);
        assert_eq!(source.description().rows, Some(5));
        checks_examples(source.as_ref());
    }
    let dir = TestDir::new();
    let bytes = std::fs::read(fixture("examples.tfrecord")).unwrap();
    dir.write("d/x-train.tfrecord-00000-of-00001", bytes);
    dir.write("d/dataset_info.json", "{}");
    dir.write("d/features.json", "{}");
    checks_examples(open_one(&dir.path("d")).as_ref());
}

#[test]
fn missing_features_are_null() {
    let source = open_one(&fixture("missing.tfrecord"));
    assert_eq!(
        types(source.as_ref()),
        ["id Int64", "score Float32?", "tags List(Binary)?"]
    );
    let found = read(source.as_ref());
    let nulls = |column: usize| -> Vec<bool> {
        let column = found.column(column);
        (0..3).map(|row| column.is_null(row)).collect()
    };
    assert_eq!(nulls(1), [false, true, true]);
    assert_eq!(nulls(2), [false, false, true]);
    assert_eq!(found.column(2).as_list::<i32>().value_length(1), 0);
    assert_eq!(
        (0..3)
            .map(|column| source.null_count(column))
            .collect::<Vec<_>>(),
        [Some(0), Some(2), Some(1)]
    );
}

#[test]
fn raw_records_are_read_as_bytes() {
    for name in ["sequence.tfrecord", "examples.tfrecord.gz"] {
        let source = open_with(&fixture(name), |options| {
            options.kind = Some(SourceKind::TfrecordRaw);
        });
        let source = source.unwrap();
        assert_eq!(types(source.as_ref()), ["record Binary"]);
        let found = read(source.as_ref());
        assert!(
            found
                .column(0)
                .as_binary::<i32>()
                .value(0)
                .starts_with(b"\x0a")
        );
    }
    let error = refused(&fixture("sequence.tfrecord"), |_| {});
    assert_eq!(
        (error.id(), error.kind(), error.to_string().as_str()),
        (
            "tfrecord-example",
            ErrorKind::Unsupported,
            "at byte 0: the record is a tf.train.SequenceExample, whose lists of features are not read"
        )
    );
    assert_eq!(
        error.hint().unwrap(),
        "pass --from tfrecord-raw to read records as bytes"
    );
}

#[test]
fn corrupt_tfrecord_file_is_an_error_with_offset() {
    for (name, id, message) in [
        (
            "flipped-length.tfrecord",
            "tfrecord-checksum",
            "at byte 116: the CRC-32C of the length is ",
        ),
        (
            "flipped-data.tfrecord",
            "tfrecord-checksum",
            "at byte 116: the CRC-32C of the data is ",
        ),
        (
            "cut-data.tfrecord",
            "tfrecord-truncated",
            "at byte 116: the file ends within the record",
        ),
        (
            "cut-head.tfrecord",
            "tfrecord-truncated",
            "at byte 116: the file ends within the record",
        ),
        (
            "absurd-length.tfrecord",
            "tfrecord-truncated",
            "at byte 116: the file ends within the record",
        ),
    ] {
        for kind in [SourceKind::Tfrecord, SourceKind::TfrecordRaw] {
            let opened = open_with(&fixture(name), |options| options.kind = Some(kind));
            let error = opened
                .and_then(|source| batches(source.as_ref()))
                .unwrap_err();
            assert_eq!(error.id(), id, "{name}");
            assert!(error.to_string().starts_with(message), "{name}: {error}");
            assert!(error.object().unwrap().ends_with(name), "{name}");
        }
    }
    let dir = TestDir::new();
    let absurd = u64::MAX.to_le_bytes();
    let head = [&absurd[..], &masked_crc(&absurd).to_le_bytes()].concat();
    let error = refused(&dir.write("x.tfrecord", head), |_| {});
    assert_eq!(error.id(), "tfrecord-truncated");
    let error = refused(&fixture("examples.tfrecord"), |options| {
        options.limits.sample_bytes = 50;
    });
    assert_eq!(error.id(), "limit-sample-bytes");
}

#[test]
fn features_of_different_types_are_errors() {
    let dir = TestDir::new();
    let bytes = [10, 11, 10, 9, 10, 1, b'n', 18, 4, 10, 2, 10, 0];
    let differs = [frame(&numbers("n", &[1])), frame(&bytes)].concat();
    let error = refused(&dir.write("x.tfrecord", &differs), |_| {});
    assert_eq!(
        (error.id(), error.to_string().as_str()),
        (
            "tfrecord-feature",
            "at byte 30: feature `n` has bytes values here and int64 values elsewhere"
        )
    );
    dir.write("d/a.tfrecord", frame(&numbers("n", &[1])));
    dir.write("d/b.tfrecord", frame(&bytes));
    assert_eq!(refused(&dir.path("d"), |_| {}).id(), "tfrecord-feature");
}

#[test]
fn zlib_compression_is_rejected_with_a_hint() {
    let dir = TestDir::new();
    let zlib = b"\x78\x9c\x0b\x49\xad\x28\x01\x00\x03\xe8\x01\x9c";
    let error = refused(&dir.write("x.tfrecord", zlib), |_| {});
    assert_eq!(
        (error.id(), error.to_string().as_str()),
        ("source-unsupported", "is compressed with ZLIB")
    );
    assert_eq!(
        error.hint().unwrap(),
        "write it again with GZIP, or without a compression"
    );
}

/// A first record of 35,615 bytes begins with the magic number of gzip.
#[test]
fn length_equal_to_gzip_magic_is_read_uncompressed() {
    let dir = TestDir::new();
    let file = frame(&vec![7; 0x8b1f]);
    assert_eq!(&file[..2], b"\x1f\x8b");
    let source = open_with(&dir.write("x.tfrecord", file), |options| {
        options.kind = Some(SourceKind::TfrecordRaw);
    });
    assert_eq!(read(source.unwrap().as_ref()).num_rows(), 1);
}

#[test]
fn large_tfrecord_files_are_split_into_units() {
    let dir = TestDir::new();
    let mut file = Vec::new();
    for number in 0..70 {
        let mut record = vec![number; 1 << 20];
        record[0] = 1;
        file.extend(frame(&record));
    }
    let path = dir.write("x.tfrecord", &file);
    let raw = open_with(&path, |options| {
        options.kind = Some(SourceKind::TfrecordRaw)
    })
    .unwrap();
    assert_eq!(raw.units().len(), 5);
    assert_eq!(raw.units()[1].first_row, Some(16));
    assert_eq!(
        (raw.description().rows, read(raw.as_ref()).num_rows()),
        (Some(70), 70)
    );

    // Types come from the first rows of a file above 64 MiB.
    let few = frame(&numbers("n", &[1]));
    let mut file = few.repeat((65 << 20) / few.len());
    let open = |file: &[u8]| {
        let path = dir.write("y.tfrecord", file);
        open_with(&path, |options| options.text.infer_rows = 10)
    };
    let source = open(&file).unwrap();
    assert_eq!(types(source.as_ref()), ["n Int64?"]);
    assert_eq!(
        source.description().rows,
        Some((file.len() / few.len()) as u64)
    );
    let offset = file.len();
    for (record, fact) in [
        (
            numbers("n", &[1, 2]),
            "feature `n` has 2 values, but one in the records that were examined",
        ),
        (
            numbers("m", &[1]),
            "feature `m` is in none of the records that were examined",
        ),
    ] {
        file.truncate(offset);
        file.extend(frame(&record));
        let source = open(&file).unwrap();
        let error = batches(source.as_ref()).unwrap_err();
        assert_eq!(error.to_string(), format!("at byte {offset}: {fact}"));
        assert_eq!(
            error.hint().unwrap(),
            "examine more records with --infer-rows"
        );
    }
}
