use shardmill_codec::{FileHashes, FileInfo, HashAlgo, seekable::TarCompression};
use shardmill_core::{Diagnostic, Limits};

use std::sync::Arc;

use super::*;
use crate::shard::ShardMap;
use crate::testdata::shard;

fn index_file(name: &str, bytes: &[u8]) -> FileInfo {
    FileInfo {
        basename: name.into(),
        bytes: bytes.len() as u64,
        hashes: FileHashes::of(&[HashAlgo::Xxh64, HashAlgo::Sha256], bytes),
    }
}

fn index() -> Index {
    let raw = shard(2);
    let map = ShardMap::read(&raw, &Limits::default()).unwrap();
    let offsets = write_offsets(&map.offsets());
    let fields = Arc::new(FieldSet::of(&map.samples));
    let entry = |name: &str, compression: Option<TarCompression>| IndexShard {
        fields: Arc::clone(&fields),
        samples: 2,
        compression,
        raw_data: index_file(&format!("{name}.tar"), &raw),
        zip_data: compression.map(|_| index_file(&format!("{name}.tar.zst"), b"packed")),
        offsets: Some(index_file(&format!("{name}.tar.idx"), &offsets)),
    };
    Index {
        shards: vec![
            entry("train-000000", None),
            entry("é/1", Some(TarCompression::Zstd { level: 3 })),
        ],
    }
}

#[test]
fn index_round_trips() {
    let index = index();
    let json = index.to_json();
    assert_eq!(
        Index::parse(json.as_bytes(), &Limits::default()),
        Ok(index.clone())
    );
    assert_eq!(index.samples(), 4);
    let files: Vec<&str> = index.shards[1]
        .files()
        .map(|file| &*file.basename)
        .collect();
    assert_eq!(files, ["é/1.tar.zst", "é/1.tar.idx"]);
    let empty = Index::default();
    assert_eq!(
        empty.to_json(),
        r#"{"format": "webdataset", "shards": [], "version": 1}"#
    );
    assert_eq!(
        Index::parse(empty.to_json().as_bytes(), &Limits::default()),
        Ok(empty)
    );
    // Equal field sets are shared.
    let parsed = Index::parse(json.as_bytes(), &Limits::default()).unwrap();
    assert!(Arc::ptr_eq(
        &parsed.shards[0].fields,
        &parsed.shards[1].fields
    ));
}

#[test]
fn index_json_text_is_stable() {
    let shard = IndexShard {
        fields: Arc::new(FieldSet {
            always: vec!["cls".into(), "jpg".into()],
            sometimes: vec!["txt".into()],
        }),
        samples: 3,
        compression: Some(TarCompression::Gzip { level: 6 }),
        raw_data: FileInfo {
            basename: "a.tar".into(),
            bytes: 10_240,
            hashes: FileHashes::of(&[HashAlgo::Xxh32], b""),
        },
        zip_data: Some(FileInfo {
            basename: "a.tar.gz".into(),
            bytes: 99,
            hashes: FileHashes::default(),
        }),
        offsets: None,
    };
    let json = Index {
        shards: vec![shard],
    }
    .to_json();
    assert_eq!(
        json,
        concat!(
            r#"{"format": "webdataset", "shards": [{"compression": "gz:6", "fields": ["cls", "jpg"], "offsets": null, "#,
            r#""optional_fields": ["txt"], "raw_data": {"basename": "a.tar", "bytes": 10240, "hashes": {"xxh32": "02cc5d05"}}, "#,
            r#""samples": 3, "zip_data": {"basename": "a.tar.gz", "bytes": 99, "hashes": {}}}], "version": 1}"#
        )
    );
}

#[test]
fn damaged_and_ambiguous_indexes_are_rejected() {
    let json = index().to_json();
    let id = |json: &str| {
        Index::parse(json.as_bytes(), &Limits::default())
            .expect_err(json)
            .id()
    };
    for (from, to, expected) in [
        (r#""version": 1"#, r#""version": 2"#, "index-version"),
        (
            r#""version": 1"#,
            r#""version": 1, "version": 1"#,
            "index-syntax",
        ),
        (
            r#""version": 1}"#,
            r#""version": 1, "more": 1}"#,
            "index-syntax",
        ),
        (r#", "version": 1"#, "", "index-syntax"),
        ("webdataset", "mds", "index-format"),
        (r#""samples": 2"#, r#""samples": -2"#, "index-syntax"),
        (r#""samples": 2"#, r#""samples": 3"#, "tar-offsets"),
        (
            r#""samples": 2, "zip_data": null"#,
            r#""samples": 2"#,
            "index-syntax",
        ),
        (
            r#""compression": null"#,
            r#""compression": "zstd:3""#,
            "index-shard",
        ),
        (
            r#""compression": null"#,
            r#""compression": "zstd""#,
            "index-shard",
        ),
        (
            r#""compression": "zstd:3""#,
            r#""compression": "zstd:03""#,
            "index-shard",
        ),
        (
            r#"["cls", "jpg", "txt"]"#,
            r#"["jpg", "cls", "txt"]"#,
            "index-shard",
        ),
        (
            r#"["cls", "jpg", "txt"]"#,
            r#"["cls", "cls", "txt"]"#,
            "index-shard",
        ),
        (
            "train-000000.tar\"",
            "../train-000000.tar\"",
            "path-traversal",
        ),
        ("train-000000.tar\"", "/train-000000.tar\"", "path-absolute"),
        (
            "train-000000.tar\"",
            "train-000000.tar.idx\"",
            "index-duplicate",
        ),
        ("\"xxh64\": \"", "\"xxh65\": \"", "hash-unknown"),
        ("\"xxh64\": \"", "\"xxh64\": \"0", "hash-syntax"),
        (
            "\"sha256\": ",
            "\"xxh64\": \"0000000000000000\", \"sha256\": ",
            "index-shard",
        ),
    ] {
        let changed = json.replacen(from, to, 1);
        assert_ne!(changed, json, "{from}");
        assert_eq!(id(&changed), expected, "{from} -> {to}");
    }
    for cut in 0..json.len() {
        if json.is_char_boundary(cut) {
            assert_eq!(id(&json[..cut]), "index-syntax", "{cut}");
        }
    }
    assert_eq!(id(&format!("{json} x")), "index-syntax");
    let mut limits = Limits::default();
    limits.shards = 1;
    assert_eq!(
        Index::parse(json.as_bytes(), &limits).unwrap_err().id(),
        "limit-shards"
    );
}

#[test]
fn offset_tables_round_trip() {
    let offsets = [0, 2048, 1 << 40];
    let bytes = write_offsets(&offsets);
    assert_eq!(read_offsets(&bytes, 2), Ok(offsets.to_vec()));
    assert_eq!(read_offsets(&bytes, 3).unwrap_err().id(), "tar-offsets");
    assert_eq!(
        read_offsets(&bytes, u64::MAX).unwrap_err().id(),
        "tar-offsets"
    );
    assert_eq!(
        read_offsets(&bytes[1..], 2).unwrap_err().id(),
        "tar-offsets"
    );
    assert_eq!(offsets_name("a/b.tar"), "a/b.tar.idx");
    assert_eq!(offsets_name("a/b.tar.zst"), "a/b.tar.idx");
}

#[test]
fn fields_missing_in_some_samples_are_optional() {
    let raw = crate::testdata::archive(&[
        crate::testdata::member("a.b", b""),
        crate::testdata::member("a.a", b""),
        crate::testdata::member("b.b", b""),
    ]);
    let map = ShardMap::read(&raw, &Limits::default()).unwrap();
    let set = FieldSet::of(&map.samples);
    assert_eq!(
        (set.always, set.sometimes),
        (vec!["b".into()], vec!["a".into()])
    );
}
