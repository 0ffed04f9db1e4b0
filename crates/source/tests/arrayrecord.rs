//! Tests ArrayRecord files, against files that the package `array_record` wrote.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{Array as _, AsArray as _};
use shardmill_core::{Diagnostic as _, ErrorKind};
use shardmill_source::{Source, SourceError, SourceKind};

use crate::help::{TestDir, batches, open_with, read};
use crate::text::types;

/// Returns the path of a file in `fixtures/array_record-0.8.6`.
fn fixture(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    folder.join(format!("array_record-0.8.6/{name}.array_record"))
}

fn open(path: &std::path::Path) -> Result<Arc<dyn Source>, SourceError> {
    open_with(path, |options| options.kind = Some(SourceKind::Arrayrecord))
}

#[test]
fn records_are_read_with_every_compression() {
    for name in ["one-each", "none", "zstd", "brotli", "snappy"] {
        let source = open(&fixture(name)).unwrap();
        assert_eq!(types(source.as_ref()), ["record Binary"]);
        assert_eq!(source.description().rows, Some(20), "{name}");
        let found = read(source.as_ref());
        let records = found.column(0).as_binary::<i32>();
        assert_eq!(records.len(), 20, "{name}");
        for (row, record) in (0_u8..).zip(records.iter()) {
            let length = usize::from(row) * 7 % 50;
            assert_eq!(record.unwrap(), vec![row; length], "{name}");
        }
    }
}

#[test]
fn records_exclude_block_headers() {
    let source = open(&fixture("large")).unwrap();
    let found = read(source.as_ref());
    let records = found.column(0).as_binary::<i32>();
    assert_eq!(records.len(), 6);
    for row in 0..6 {
        let expected: Vec<u8> = (0..30_000 + row)
            .map(|at| u8::try_from((row + at) % 251).unwrap())
            .collect();
        assert!(records.value(row) == expected, "{row}");
    }
}

#[test]
fn corrupt_arrayrecord_file_is_an_error_with_offset() {
    for (name, id, message) in [
        (
            "flipped-head",
            "arrayrecord-chunk",
            "at byte 64: the hash of the head of a chunk differs",
        ),
        (
            "flipped-data",
            "arrayrecord-chunk",
            "at byte 64: the hash of the data of a chunk differs",
        ),
        (
            "cut",
            "arrayrecord-truncated",
            "at byte 152: the file ends within the chunk",
        ),
    ] {
        let error = open(&fixture(name)).and_then(|source| batches(source.as_ref()));
        let error = error.err().unwrap();
        assert_eq!((error.id(), error.to_string().as_str()), (id, message));
    }
    let error = open(&fixture("transposed")).err().unwrap();
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (ErrorKind::Unsupported, "the chunk at byte 64 is transposed")
    );
    let dir = TestDir::new();
    let error = open(&dir.write("x.array_record", b"no records at all"))
        .err()
        .unwrap();
    assert_eq!(error.id(), "arrayrecord-truncated");
    let error = open(&dir.write("x.array_record", [7; 100])).err().unwrap();
    assert_eq!(error.id(), "arrayrecord-chunk");
    let error = open_with(&fixture("none"), |options| {
        options.kind = Some(SourceKind::Arrayrecord);
        options.limits.sample_bytes = 50;
    });
    let error = error.and_then(|source| batches(source.as_ref()));
    assert_eq!(error.err().unwrap().id(), "limit-sample-bytes");
}
