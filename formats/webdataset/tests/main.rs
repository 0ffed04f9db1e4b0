//! Reads shards of the original writer, of CPython's `tarfile` and of GNU tar. `fixtures/` describes them.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use shardmill_core::{Diagnostic, Limits};
use shardmill_webdataset::{
    Consumer, Profile, Severity, ShardBuilder, ShardFacts, ShardMap, ShardView, Survey, Value,
    decode, decompress, lint, read_npz,
};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/webdataset-1.0.2")
}

/// Returns name, bytes and the original reader's result of each shard.
fn shards() -> Vec<(String, Vec<u8>, Json)> {
    let mut shards: Vec<_> = std::fs::read_dir(fixtures())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "tar"))
        .map(|path| {
            let expected = std::fs::read(path.with_extension("expected.json")).unwrap();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let expected = serde_json::from_slice(&expected).unwrap();
            (name, std::fs::read(path).unwrap(), expected)
        })
        .collect();
    shards.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(
        shards.len(),
        42,
        "another number of fixtures than this test knows"
    );
    shards
}

type Sample = (String, BTreeMap<String, Vec<u8>>);

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn theirs(expected: &Json) -> Vec<Sample> {
    let samples = expected["samples"].as_array().unwrap();
    samples
        .iter()
        .map(|sample| {
            let fields = sample[1].as_object().unwrap().iter();
            let fields = fields.map(|(name, hex)| (name.clone(), unhex(hex.as_str().unwrap())));
            (sample[0].as_str().unwrap().to_owned(), fields.collect())
        })
        .collect()
}

fn ours(data: &[u8]) -> Vec<Sample> {
    let view = ShardView::open(data, &Limits::default()).unwrap();
    (0..view.len())
        .map(|sample| {
            let fields = view.fields(sample).unwrap();
            let fields = fields
                .iter()
                .map(|field| (field.name.to_string(), field.data.to_vec()));
            (view.key(sample).unwrap(), fields.collect())
        })
        .collect()
}

#[test]
fn foreign_shards_are_read_like_webdataset() {
    let limits = Limits::default();
    let mut unreadable = Vec::new();
    for (name, data, expected) in shards() {
        if let Some(id) = expected["refused"].as_str() {
            let error = ShardMap::read(&data, &limits)
                .map(|_| name.clone())
                .unwrap_err();
            assert_eq!(error.id(), id, "{name}: {error}");
        } else if expected["unreadable"].is_string() {
            let error = ShardMap::read(&data, &limits).unwrap_err();
            assert_eq!(error.id(), "tar-duplicate", "{name}: {error}");
            unreadable.push(name);
        } else {
            assert_eq!(ours(&data), theirs(&expected), "{name}");
        }
    }
    // The writer stores `__url__`, which its own reader cannot read.
    assert_eq!(unreadable, ["wds-kept-meta"]);
}

#[test]
fn webdataset_shards_are_rewritten_byte_for_byte() {
    let mut count = 0;
    for (name, data, expected) in shards() {
        let Some(mtime) = expected["rewrite"].as_u64() else {
            continue;
        };
        let mut shard = ShardBuilder::new(Profile::reference(u32::try_from(mtime).unwrap()));
        for (key, fields) in theirs(&expected) {
            let fields: Vec<(&str, &[u8])> = fields
                .iter()
                .map(|(name, bytes)| (name.as_str(), &bytes[..]))
                .collect();
            shard.push(&key, &fields).unwrap();
        }
        assert!(shard.finish().0 == data, "{name}");
        count += 1;
    }
    assert_eq!(count, 10);
}

#[test]
fn webdataset_encoded_values_are_decoded() {
    let limits = Limits::default();
    let data = std::fs::read(fixtures().join("wds-encoders.tar")).unwrap();
    let samples = ours(&data);
    let fields = &samples[0].1;
    let value = |name: &str| decode(name, &fields[name], &limits).unwrap();
    assert_eq!(value("cls"), Value::Int(3));
    assert_eq!(value("id"), Value::Int(-5));
    assert_eq!(value("txt"), Value::Text("é"));
    assert_eq!(value("html"), Value::Text("<p>"));
    assert_eq!(
        value("json"),
        Value::Json(r#"{"b": [1, 2.5, null], "a": "\u00e9"}"#)
    );
    let Value::Array(array) = value("npy") else {
        panic!("{:?}", value("npy"));
    };
    assert_eq!((array.dtype.short(), &array.shape[..]), ("f4", &[3, 4][..]));
    assert_eq!(array.data[4..8], 1_f32.to_le_bytes());
    let Value::Arrays(arrays) = value("ten") else {
        panic!("{:?}", value("ten"));
    };
    assert_eq!(
        (arrays.len(), arrays[1].dtype.short(), arrays[1].data),
        (2, "u1", &[0; 3][..])
    );
    let arrays = read_npz("npz", &fields["npz"], &limits).unwrap();
    assert_eq!((arrays.len(), &*arrays[0].0), (1, "x"));
    assert_eq!(decode("npy", &arrays[0].1, &limits), Ok(value("npy")));
}

#[test]
fn webdataset_gzip_shard_is_decompressed() {
    let raw = std::fs::read(fixtures().join("wds-small.tar")).unwrap();
    let zip = std::fs::read(fixtures().join("wds-small.tar.gz")).unwrap();
    assert_eq!(decompress(&zip, None, &Limits::default()).unwrap(), raw);
}

#[test]
fn lint_reports_an_error_for_each_rejected_shard() {
    let limits = Limits::default();
    for (name, data, expected) in shards() {
        let survey = Survey::of(&data, &limits);
        let readers = [Consumer::Webdataset].into();
        let findings = lint(&survey, &ShardFacts::default(), &readers, &limits);
        let errors: Vec<_> = findings
            .iter()
            .filter(|finding| finding.severity == Severity::Error)
            .map(|finding| finding.id)
            .collect();
        match expected["refused"].as_str() {
            Some(id) => assert!(errors.contains(&id), "{name}: {findings:#?}"),
            None if expected["unreadable"].is_string() => {
                assert!(errors.contains(&"tar-duplicate"), "{name}: {findings:#?}");
            }
            None => assert_eq!(errors, Vec::<&str>::new(), "{name}"),
        }
    }
}
