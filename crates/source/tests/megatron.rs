//! Tests token files of Megatron, against files that its builder wrote.

use std::path::PathBuf;

use arrow::array::AsArray as _;
use arrow::datatypes::{Int8Type, Int32Type, UInt16Type};
use shardmill_core::{Diagnostic as _, ErrorKind};
use shardmill_source::{Source, SourceError, SourceKind};

use crate::help::{TestDir, batches, open_with, read};
use crate::text::types;

/// Returns the path of a file in `fixtures/megatron-core-0.16.1`.
fn fixture(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    folder.join("megatron-core-0.16.1").join(name)
}

fn open(
    path: &std::path::Path,
    kind: SourceKind,
) -> Result<std::sync::Arc<dyn Source>, SourceError> {
    open_with(path, |options| options.kind = Some(kind))
}

/// Copies a file of tokens and its index to `d/x` of a test directory.
fn copy(dir: &TestDir, name: &str) -> [Vec<u8>; 2] {
    [".bin", ".idx"].map(|end| {
        let bytes = std::fs::read(fixture(&format!("{name}{end}"))).unwrap();
        dir.write(&format!("d/x{end}"), &bytes);
        bytes
    })
}

/// Returns the tokens of each row.
fn rows(source: &dyn Source) -> Vec<Vec<i32>> {
    let found = read(source);
    let lists = found.column(0).as_list::<i32>().clone();
    let row = |row| {
        lists
            .value(row)
            .as_primitive::<Int32Type>()
            .values()
            .to_vec()
    };
    (0..found.num_rows()).map(row).collect()
}

#[test]
fn sequences_or_documents_are_read_as_rows() {
    for name in ["uint16", "uint16.idx", "uint16.bin"] {
        for kind in [SourceKind::Megatron, SourceKind::MegatronDocuments] {
            let source = open(&fixture(name), kind).unwrap();
            assert_eq!(types(source.as_ref()), ["tokens List(non-null UInt16)"]);
            assert_eq!(source.description().rows, Some(4));
            assert_eq!(source.null_count(0), Some(0));
            let found = read(source.as_ref());
            let lists = found.column(0).as_list::<i32>();
            assert_eq!(lists.value_length(1), 0);
            let tokens = lists.value(2);
            assert_eq!(tokens.as_primitive::<UInt16Type>().values(), &[65535, 0]);
            assert_eq!(lists.value_length(3), 300);
        }
    }
    let dir = TestDir::new();
    copy(&dir, "sentences");
    for path in ["d", "d/x", "d/*"] {
        let path = dir.path(path);
        let sequences = open(&path, SourceKind::Megatron).unwrap();
        assert_eq!(
            rows(sequences.as_ref()),
            [vec![1, 2], vec![3], vec![4, 5, 6], vec![], vec![7], vec![8]]
        );
        let documents = open(&path, SourceKind::MegatronDocuments).unwrap();
        assert_eq!(
            rows(documents.as_ref()),
            [vec![1, 2, 3], vec![4, 5, 6, 7], vec![8]]
        );
    }
}

#[test]
fn modes_are_read_as_a_column() {
    let source = open(&fixture("modes"), SourceKind::Megatron).unwrap();
    assert_eq!(
        types(source.as_ref()),
        ["tokens List(non-null Int64)", "mode Int8"]
    );
    let found = read(source.as_ref());
    let modes = found.column(1).as_primitive::<Int8Type>();
    assert_eq!(modes.values(), &[0, 0, 1, 1, 1, 2]);
    let error = open(&fixture("modes"), SourceKind::MegatronDocuments).err();
    let error = error.unwrap();
    assert_eq!(
        (error.id(), error.kind()),
        ("source-unsupported", ErrorKind::Unsupported)
    );
}

#[test]
fn large_files_are_read_in_units_and_batches() {
    let dir = TestDir::new();
    let [_, index] = copy(&dir, "int32");
    // 100 sequences of 200,000 tokens, which share three parts of the file.
    let (count, length) = (100_u64, 200_000_u32);
    let mut bytes = index[..18].to_vec();
    bytes.extend(count.to_le_bytes());
    bytes.extend((count + 1).to_le_bytes());
    bytes.extend(length.to_le_bytes().repeat(100));
    for sequence in 0..count {
        bytes.extend((sequence % 3 * 800_000).to_le_bytes());
    }
    for bound in 0..=count {
        bytes.extend(bound.to_le_bytes());
    }
    dir.write("d/x.idx", &bytes);
    let tokens: Vec<u8> = (0..3 * length).flat_map(u32::to_le_bytes).collect();
    dir.write("d/x.bin", &tokens);
    let source = open(&dir.path("d/x"), SourceKind::Megatron).unwrap();
    assert_eq!(source.units().len(), 5);
    assert_eq!(source.units()[1].first_row, Some(21));
    assert!(batches(source.as_ref()).unwrap().len() > 10);
    for (row, tokens) in rows(source.as_ref()).into_iter().enumerate() {
        let first = i32::try_from(row % 3).unwrap() * 200_000;
        assert_eq!((tokens[0], tokens[199_999]), (first, first + 199_999));
    }
}

#[test]
fn corrupt_or_missing_megatron_files_are_errors() {
    for (name, id, message) in [
        (
            "cut-tokens",
            "megatron-truncated",
            "sequence 3 of 300 tokens begins at byte 10, but the file has 608 bytes",
        ),
        (
            "cut-index",
            "megatron-index",
            "the index is not one of Megatron: its length does not fit its numbers of sequences and documents",
        ),
        ("nothing", "source-not-found", "no such file or directory"),
    ] {
        let error = open(&fixture(name), SourceKind::Megatron).err().unwrap();
        assert_eq!((error.id(), error.to_string().as_str()), (id, message));
    }
    let dir = TestDir::new();
    let [_, good] = copy(&dir, "sentences");
    let refused = |at: usize, bytes: &[u8]| {
        let mut index = good.clone();
        index[at..at + bytes.len()].copy_from_slice(bytes);
        dir.write("d/x.idx", index);
        let opened = open(&dir.path("d"), SourceKind::MegatronDocuments);
        let error = opened.err().unwrap();
        assert_eq!(
            error.object().unwrap().rsplit('/').next(),
            Some(match error.id() {
                "megatron-truncated" => "x.bin",
                _ => "x.idx",
            })
        );
        (error.id(), error.to_string())
    };
    for (at, bytes, id, message) in [
        (
            0,
            &b"GIF8"[..],
            "megatron-index",
            "does not begin with MMIDIDX",
        ),
        (9, &[2], "megatron-index", "its version is not 1"),
        (
            17,
            &[9],
            "megatron-index",
            "the type of its tokens is unknown",
        ),
        (18, &[0xff; 8], "megatron-index", "its length does not fit"),
        (
            26,
            &[0; 8],
            "megatron-index",
            "it has no bounds of documents",
        ),
        (
            34,
            &[0xff; 4],
            "megatron-index",
            "sequence 0 has the length -1",
        ),
        (
            34,
            &[0xff, 0xff, 0xff, 0x7f],
            "megatron-truncated",
            "sequence 0 of 2147483647 tokens",
        ),
        (
            58,
            &[0xff; 8],
            "megatron-truncated",
            "sequence 0 of 2 tokens begins at byte 18446744073709551615",
        ),
        (
            106,
            &[1],
            "megatron-index",
            "its documents have the sequences 1 to 6 of 6",
        ),
        (
            122,
            &[1],
            "megatron-index",
            "its documents do not follow one another",
        ),
        (
            130,
            &[5],
            "megatron-index",
            "its documents have the sequences 0 to 5 of 6",
        ),
    ] {
        let (found, text) = refused(at, bytes);
        assert_eq!(found, id, "{at}: {text}");
        assert!(text.contains(message), "{at}: {text}");
    }
    std::fs::remove_file(dir.path("d/x.bin")).unwrap();
    let error = open(&dir.path("d"), SourceKind::Megatron).err().unwrap();
    assert_eq!(error.id(), "source-not-found");
    assert!(error.to_string().ends_with("x.bin"), "{error}");
}
