//! Tests chunks of LitData, against those that its writer wrote.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array as _, AsArray as _};
use arrow::datatypes::{Float32Type, Float64Type, Int8Type, Int32Type, Int64Type, UInt16Type};
use shardmill_core::{Diagnostic as _, ErrorKind};
use shardmill_source::{Source, SourceError, SourceKind};

use crate::help::{TestDir, batches, open_with, read};
use crate::text::types;

/// Returns the path of a folder in `fixtures/litdata-0.2.76`.
fn fixture(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    folder.join("litdata-0.2.76").join(name)
}

fn open(path: &Path) -> Result<Arc<dyn Source>, SourceError> {
    open_with(path, |options| options.kind = Some(SourceKind::Litdata))
}

/// Copies a folder of the fixtures to `d` of a test directory.
fn copy(dir: &TestDir, name: &str) {
    for entry in std::fs::read_dir(fixture(name)).unwrap() {
        let entry = entry.unwrap();
        let bytes = std::fs::read(entry.path()).unwrap();
        dir.write(&format!("d/{}", entry.file_name().to_str().unwrap()), bytes);
    }
}

#[test]
fn leaves_are_columns_with_every_compression() {
    for name in ["plain", "batch", "chunk", "sample"] {
        let source = open(&fixture(name)).unwrap();
        assert_eq!(
            types(source.as_ref()),
            [
                "number Int64",
                "fraction Float64",
                "text Utf8",
                "blob Binary",
                "truth Boolean",
                "vector List(non-null UInt16)",
                "matrix List(non-null List(non-null Float32))",
                "tokens List(non-null Int64)",
                "tensor List(non-null List(non-null List(non-null Int8)))",
                "nested.a Int64",
                "nested.b Utf8",
            ]
        );
        assert_eq!(source.description().rows, Some(5));
        assert_eq!(source.units().len(), 2);
        let found = read(source.as_ref());
        let column = |at: usize| found.column(at);
        assert_eq!(
            column(0).as_primitive::<Int64Type>().values(),
            &[-2, -1, 0, 1, 2]
        );
        assert_eq!(column(1).as_primitive::<Float64Type>().value(3), 0.75);
        assert_eq!(column(2).as_string::<i32>().value(4), "text 4 ☃");
        assert_eq!(column(3).as_binary::<i32>().value(2), [2, 2]);
        assert!(column(4).as_boolean().value(2) && !column(4).as_boolean().value(3));
        let vectors = column(5).as_list::<i32>();
        assert_eq!(
            vectors.value(4).as_primitive::<UInt16Type>().values(),
            &[0, 1, 2, 3]
        );
        assert_eq!(vectors.value_length(0), 0);
        let matrix = column(6).as_list::<i32>().value(2);
        let row = matrix.as_list::<i32>().value(1);
        assert_eq!(row.as_primitive::<Float32Type>().values(), &[2.0, 2.0, 2.0]);
        let tensor = column(8).as_list::<i32>().value(3);
        let inner = tensor.as_list::<i32>().value(0);
        assert_eq!(inner.len(), 2);
        let inner = inner.as_list::<i32>().value(1);
        assert_eq!(inner.as_primitive::<Int8Type>().values(), &[3, 3, 3]);
        assert_eq!(column(10).as_string::<i32>().value(1), "1");
    }
}

#[test]
fn arrow_rows_are_read_as_columns() {
    for name in ["rows", "rows-zstd"] {
        let source = open(&fixture(name)).unwrap();
        let found = read(source.as_ref());
        assert_eq!(found.num_rows(), 5);
        assert_eq!(
            found.column(0).as_primitive::<Int64Type>().values(),
            &[0, 1, 2, 3, 4]
        );
        assert_eq!(found.column(1).as_string::<i32>().value(3), "row 3");
        assert_eq!(found.column(2).as_list::<i32>().value_length(4), 4);
        let inner = found.column(3).as_struct();
        assert_eq!(inner.column(0).as_primitive::<Int64Type>().value(2), 2);
    }
}

#[test]
fn unnamed_items_get_default_column_names() {
    let pairs = open(&fixture("pairs")).unwrap();
    assert_eq!(types(pairs.as_ref()), ["0 Int64", "1 Utf8"]);
    let bare = open(&fixture("bare")).unwrap();
    assert_eq!(types(bare.as_ref()), ["value Binary"]);
    assert_eq!(
        read(bare.as_ref()).column(0).as_binary::<i32>().value(3),
        [3, 3, 3]
    );
    let tokens = open(&fixture("tokens")).unwrap();
    assert_eq!(types(tokens.as_ref()), ["tokens List(non-null Int32)"]);
    let found = read(tokens.as_ref());
    let lists = found.column(0).as_list::<i32>();
    assert_eq!(
        lists.value(3).as_primitive::<Int32Type>().values(),
        &[0, 1, 2, 3]
    );
}

#[test]
fn pickles_and_unsupported_loaders_are_rejected() {
    let error = open(&fixture("pickle")).err().unwrap();
    assert_eq!(
        (error.id(), error.kind(), error.to_string().as_str()),
        (
            "source-unsupported",
            ErrorKind::Unsupported,
            "`set` is pickled, and unpickling runs code that the file chooses"
        )
    );
    let dir = TestDir::new();
    for (from, to, message) in [
        (
            "PyTreeLoader",
            "ParquetLoader",
            "for the item loader ParquetLoader",
        ),
        (
            "\"encryption\": null",
            "\"encryption\": {}",
            "its chunks are encrypted",
        ),
        (
            "\"compression\": null",
            "\"compression\": \"lz4\"",
            "its compression is lz4",
        ),
        ("\"bytes\"", "\"pil\"", "`blob` has the data_format pil"),
    ] {
        copy(&dir, "plain");
        let index = std::fs::read_to_string(dir.path("d/index.json")).unwrap();
        assert!(index.contains(from), "{from}");
        dir.write("d/index.json", index.replace(from, to));
        let error = open(&dir.path("d")).err().unwrap();
        assert_eq!(error.id(), "source-unsupported", "{error}");
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[test]
fn corrupt_or_missing_chunks_are_errors() {
    let dir = TestDir::new();
    let refused = |name: &str, file: &str, change: &dyn Fn(&mut Vec<u8>)| {
        copy(&dir, name);
        let path = dir.path(&format!("d/{file}"));
        let mut bytes = std::fs::read(&path).unwrap();
        change(&mut bytes);
        std::fs::write(&path, bytes).unwrap();
        let error = open(&dir.path("d")).and_then(|source| batches(source.as_ref()));
        let error = error.err().unwrap();
        assert!(error.object().unwrap().ends_with(file), "{error:?}");
        (error.id(), error.to_string())
    };
    let first = "chunk-0-0.bin";
    for (name, at, byte, message) in [
        (
            "plain",
            0,
            9,
            "its number of items is not that of the index",
        ),
        ("plain", 7, 0xff, "an item ends before it begins"),
        ("plain", 19, 0xff, "its items lie beyond its end"),
        ("plain", 20, 9, "item 0: "),
        (
            "plain",
            23,
            0xff,
            "item 0: the sizes of its leaves do not fit its bytes",
        ),
        ("batch", 8, 2, "the version of its frames is not 1"),
        (
            "batch",
            20,
            1,
            "its frames do not fit its items or its length",
        ),
        (
            "batch",
            55,
            0xff,
            "its frames do not fit its items or its length",
        ),
        ("rows", 0, 4, "its number of items is not that of the index"),
    ] {
        let (id, text) = refused(name, first, &|bytes| bytes[at] = byte);
        assert_eq!(id, "litdata-chunk", "{name} {at}: {text}");
        assert!(text.contains(message), "{name} {at}: {text}");
    }
    for end in [0, 3, 10, 100] {
        for name in ["plain", "batch", "sample"] {
            let (id, text) = refused(name, first, &|bytes| bytes.truncate(end));
            assert_eq!(id, "litdata-chunk", "{name} {end}: {text}");
        }
    }
    let (id, _) = refused("chunk", "chunk-0-0.zstd.bin", &|bytes| bytes.truncate(50));
    assert_eq!(id, "source-compression");
    let (id, _) = refused("sample", first, &|bytes| bytes[22] ^= 0xff);
    assert_eq!(id, "source-compression");
    let (id, _) = refused("rows", first, &|bytes| {
        let at = bytes.len() - 12;
        bytes[at] ^= 0x40;
    });
    assert_eq!(id, "litdata-chunk");
    let (id, _) = refused("rows", first, &|bytes| {
        let at = bytes.len() - 30;
        bytes[at..at + 16].fill(0xff);
    });
    assert_eq!(id, "arrow-format");
    let (id, text) = refused("plain", "index.json", &|bytes| bytes.truncate(50));
    assert_eq!(id, "litdata-index", "{text}");
    copy(&dir, "plain");
    std::fs::remove_file(dir.path("d/chunk-0-1.bin")).unwrap();
    let error = open(&dir.path("d")).err().unwrap();
    assert_eq!(
        (error.id(), error.to_string().as_str()),
        ("litdata-index", "the chunk chunk-0-1.bin does not exist")
    );
    let error = open_with(&fixture("chunk"), |options| {
        options.kind = Some(SourceKind::Litdata);
        options.limits.shard_bytes = 200;
    });
    assert_eq!(error.err().unwrap().id(), "limit-shard-bytes");
}
