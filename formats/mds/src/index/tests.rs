use proptest::prelude::*;
use shardmill_core::{Diagnostic as _, Limits};

use std::sync::Arc;

use super::*;
use crate::config::Layout;
use crate::encoding::{DType, Encoding};
use crate::error::MdsError;
use crate::testdata::{Dataset, datasets};
use shardmill_codec::HashAlgo;

fn parse(json: &str) -> Result<Index, MdsError> {
    Index::parse(json.as_bytes(), &Limits::default())
}

#[test]
fn mosaicml_streaming_indexes_round_trip_byte_for_byte() {
    let (mut plain, mut merged) = (0, 0);
    for Dataset { name, index, .. } in datasets() {
        let parsed = parse(&index).unwrap();
        if name == "merged" {
            assert_eq!(parsed.to_merged_json(), index);
            merged += 1;
        } else {
            assert_eq!(parsed.to_json(), index, "{name}");
            plain += 1;
        }
    }
    assert_eq!((plain, merged), (17, 1));
}

#[test]
fn specification_example_index_is_parsed() {
    let dataset = datasets()
        .into_iter()
        .find(|dataset| dataset.name == "worked-example")
        .unwrap();
    let index = parse(&dataset.index).unwrap();
    let [shard] = &index.shards[..] else {
        panic!("{index:?}")
    };
    assert_eq!(
        (shard.samples, index.samples(), shard.raw_data.bytes),
        (2, 2, 232)
    );
    assert_eq!(&*shard.raw_data.basename, "shard.00000.mds");
    assert_eq!(
        (&shard.zip_data, &shard.raw_meta, &shard.zip_meta),
        (&None, &None, &None)
    );
    let hash = |algo| {
        shard
            .raw_data
            .hashes
            .get(algo)
            .map(|digest| digest.to_string())
    };
    assert_eq!(hash(HashAlgo::Xxh64).as_deref(), Some("af8c543fd0e706f7"));
    assert_eq!(hash(HashAlgo::Md5), None);
    let columns = shard.config.mds_columns().unwrap();
    assert_eq!(
        (columns[0].name.as_str(), &columns[0].encoding),
        ("a", &Encoding::Number(DType::I32))
    );
    assert_eq!(shard.config.size_limit, Some(1 << 26));
    assert_eq!(shard.stored().count(), 1);
}

/// One MDS shard; the tests replace parts of it.
const MDS: &str = concat!(
    r#"{"shards": [{"column_encodings": ["int32", "str"], "column_names": ["a", "b"], "column_sizes": [4, null], "#,
    r#""compression": "zstd", "format": "mds", "hashes": ["sha1"], "raw_data": {"basename": "shard.00000.mds", "#,
    r#""bytes": 232, "hashes": {"xxh32": "02cc5d05"}}, "samples": 2, "size_limit": 67108864, "version": 2, "#,
    r#""zip_data": {"basename": "shard.00000.mds.zstd", "bytes": 99, "hashes": {}}}], "version": 2}"#
);

const JSON: &str = concat!(
    r#"{"shards": [{"columns": {"a": "int", "b": "str"}, "compression": null, "format": "json", "hashes": [], "#,
    r#""newline": "\n", "raw_data": {"basename": "d", "bytes": 43, "hashes": {}}, "raw_meta": {"basename": "m", "#,
    r#""bytes": 161, "hashes": {}}, "samples": 2, "size_limit": null, "version": 2, "zip_data": null, "#,
    r#""zip_meta": null}], "version": 2}"#
);

const XSV: &str = concat!(
    r#"{"shards": [{"column_encodings": ["int", "str"], "column_names": ["a", "b"], "compression": null, "#,
    r#""format": "xsv", "hashes": [], "#,
    r#""newline": "\n", "raw_data": {"basename": "d", "bytes": 43, "hashes": {}}, "raw_meta": {"basename": "m", "#,
    r#""bytes": 161, "hashes": {}}, "samples": 2, "separator": ";", "size_limit": null, "version": 2, "zip_data": null, "#,
    r#""zip_meta": null}], "version": 2}"#
);

/// Returns the error of `json` with `from` replaced by `to`, as `id: object: message`.
#[track_caller]
fn error(json: &str, from: &str, to: &str) -> String {
    assert!(json.contains(from), "{from}");
    let error = parse(&json.replacen(from, to, 1)).unwrap_err();
    format!(
        "{}: {}: {error}",
        error.id(),
        error.object().unwrap_or_default()
    )
}

#[test]
fn encodings_of_the_program_are_parsed_with_their_sizes() {
    let mut limits = Limits::default();
    limits.program_encodings = Some(["int32".to_owned()].into());
    let registered = |name: &str, size| Encoding::Registered {
        name: name.into(),
        size,
    };
    for (from, to, expected) in [
        // A name of the format that the program replaced, with any size.
        (
            "[4, null]",
            "[null, null]",
            [registered("int32", None), Encoding::Str],
        ),
        (
            "[4, null]",
            "[4, null]",
            [registered("int32", Some(4)), Encoding::Str],
        ),
        // Names outside of the format.
        (
            r#""str"], "#,
            r#""own:3"], "#,
            [registered("int32", Some(4)), registered("own:3", None)],
        ),
    ] {
        let json = MDS.replacen(from, to, 1);
        let index = Index::parse(json.as_bytes(), &limits).unwrap();
        assert_eq!(index.to_json(), json);
        let columns = index.shards[0].config.mds_columns().unwrap();
        let found: Vec<Encoding> = columns.iter().map(|each| each.encoding.clone()).collect();
        assert_eq!(found, expected);
    }
    // The others have the sizes of the format.
    let json = MDS.replacen("[4, null]", "[4, 4]", 1);
    let error = Index::parse(json.as_bytes(), &limits).unwrap_err();
    assert_eq!(error.id(), "index-columns");
}

#[test]
fn example_indexes_are_valid_and_round_trip() {
    for json in [MDS, JSON, XSV] {
        assert_eq!(parse(json).unwrap().to_json(), json);
    }
    let index = parse(XSV).unwrap();
    let Layout::Xsv {
        separator, newline, ..
    } = &index.shards[0].config.layout
    else {
        panic!()
    };
    assert_eq!((separator.as_str(), newline.as_str()), (";", "\n"));
    assert_eq!(
        index.shards[0]
            .stored()
            .map(|file| &*file.basename)
            .collect::<Vec<_>>(),
        ["d", "m"]
    );
    assert_eq!(
        parse(MDS).unwrap().shards[0]
            .stored()
            .map(|file| file.bytes)
            .collect::<Vec<_>>(),
        [99]
    );
}

#[test]
fn non_index_files_are_errors() {
    for (bytes, id) in [
        (&b""[..], "index-empty"),
        (b" \r\n", "index-empty"),
        (b"<!DOCTYPE html><html></html>", "index-not-json"),
        (b"\n <?xml version='1.0'?>", "index-not-json"),
        (b"\0\0\0\0\0\0\0\0", "index-not-json"),
        (b"\xef\xbb\xbf{}", "index-not-json"),
        (b"\xff\xfe{\0}\0", "index-not-json"),
        (b"\x1f\x8b\x08", "index-not-json"),
        (b"not json", "index-not-json"),
        (
            b"{\"shards\": [], \"version\": 2, \"x\": \"\xff\"}",
            "index-not-json",
        ),
        (b"{'shards': []}", "index-not-json"),
        (b"[]", "index-field"),
        (b"2", "index-field"),
        (b"null", "index-field"),
        (b"{}", "index-missing-field"),
        (b"{\"version\": 2}", "index-missing-field"),
        (b"{\"shards\": []}", "index-missing-field"),
        (b"{\"shards\": [], \"version\": 2}}", "index-trailing"),
        (b"{\"shards\": [], \"version\": 2}\0\0", "index-trailing"),
        (b"{\"shards\": [], \"version\": 2} {}", "index-trailing"),
        (b"{\"shards\": [], \"version\": 3}", "index-version"),
        (b"{\"shards\": [], \"version\": 1}", "index-version"),
        (b"{\"shards\": [], \"version\": \"2\"}", "index-field"),
        (b"{\"shards\": [], \"version\": 2.0}", "index-field"),
        (b"{\"shards\": [], \"version\": true}", "index-field"),
        (b"{\"shards\": {}, \"version\": 2}", "index-field"),
        (
            b"{\"shards\": [], \"version\": 2, \"shards\": []}",
            "index-duplicate-field",
        ),
        (
            b"{\"version\": 2, \"shards\": [], \"version\": 2}",
            "index-duplicate-field",
        ),
        (
            b"{\"version\": 2, \"shards\": [], \"x\": 1, \"x\": 1}",
            "index-duplicate-field",
        ),
        (b"{\"shards\": [1], \"version\": 2}", "index-field"),
        (b"{\"shards\": [[]], \"version\": 2}", "index-field"),
    ] {
        let shown = String::from_utf8_lossy(bytes);
        let error = Index::parse(bytes, &Limits::default()).unwrap_err();
        assert_eq!(error.id(), id, "{shown}: {error}");
    }
    // Keys that the original reader ignores are ignored.
    let json = r#"{"shards": [], "writer": {"name": ["x", -1, 1.5, null, true, {"a": []}]}, "version": 2}"#;
    assert_eq!(parse(json), Ok(Index::default()));
    assert_eq!(
        parse(" \n{\"version\":2,\"shards\":[]}\n "),
        Ok(Index::default())
    );
}

#[test]
fn every_truncated_index_is_an_error() {
    for end in 1..MDS.len() {
        let error = Index::parse(&MDS.as_bytes()[..end], &Limits::default()).unwrap_err();
        assert_eq!(error.id(), "index-truncated", "{end} {error}");
    }
}

#[test]
fn invalid_field_error_names_shard_and_field() {
    for (from, to, message) in [
        (
            r#""samples": 2"#,
            r#""samples": 2.5"#,
            "index-field: shard 0, samples: found floating point `2.5`, expected a non-negative integer below 2^64",
        ),
        (
            r#""samples": 2"#,
            r#""samples": -2"#,
            "index-field: shard 0, samples: found integer `-2`, expected a non-negative integer below 2^64",
        ),
        (
            r#""samples": 2"#,
            r#""samples": 18446744073709551616"#,
            "index-field: shard 0, samples: found floating point `1.8446744073709552e+19`, expected a non-negative integer below 2^64",
        ),
        (
            r#""samples": 2"#,
            r#""samples": 4294967296"#,
            "index-field: shard 0, samples: found 4294967296, but a shard counts to 4294967295",
        ),
        (
            r#""samples": 2"#,
            r#""samples": null"#,
            "index-field: shard 0, samples: found null, expected a non-negative integer below 2^64",
        ),
        (
            r#""samples": 2"#,
            r#""samples": "2""#,
            "index-field: shard 0, samples: found string \"2\", expected a non-negative integer below 2^64",
        ),
        (
            r#""bytes": 232"#,
            r#""bytes": 1e3"#,
            "index-field: shard 0, raw_data.bytes: found floating point `1000.0`, expected a non-negative integer below 2^64",
        ),
        (
            r#""bytes": 232"#,
            r#""bytes": 4294967296"#,
            "index-field: shard 0, raw_data.bytes: found 4294967296, but a shard counts to 4294967295",
        ),
        (
            r#""bytes": 99"#,
            r#""bytes": 99999999999"#,
            "limit-shard-bytes: shard 0, zip_data.bytes: shard-bytes is 99999999999, above the limit of 17179869184",
        ),
        (
            r#""samples": 2, "#,
            "",
            "index-missing-field: shard 0, samples: the field is missing",
        ),
        (
            r#""format": "mds", "#,
            "",
            "index-missing-field: shard 0, format: the field is missing",
        ),
        (
            r#""bytes": 232, "#,
            "",
            "index-missing-field: shard 0, raw_data.bytes: the field is missing",
        ),
        (
            r#""samples": 2"#,
            r#""samples": 2, "rows": 2"#,
            "index-unknown-field: shard 0, rows: the field is unknown",
        ),
        (
            r#""bytes": 232"#,
            r#""bytes": 232, "size": 232"#,
            "index-unknown-field: shard 0, raw_data.size: the field is unknown",
        ),
        (
            r#""samples": 2"#,
            r#""samples": 2, "raw_meta": {"basename": "x", "bytes": 1, "hashes": {}}"#,
            "index-unknown-field: shard 0, raw_meta: the field is unknown",
        ),
        (
            r#""samples": 2"#,
            r#""samples": 2, "newline": "\n""#,
            "index-unknown-field: shard 0, newline: the field is unknown",
        ),
        (
            r#""samples": 2"#,
            r#""samples": 2, "samples": 2"#,
            "index-duplicate-field: shard 0, samples: the field occurs twice",
        ),
        (
            r#""bytes": 232"#,
            r#""bytes": 232, "bytes": 232"#,
            "index-duplicate-field: shard 0, raw_data.bytes: the field occurs twice",
        ),
        (
            r#""02cc5d05""#,
            r#""02cc5d05", "xxh32": "02cc5d05""#,
            "index-duplicate-field: shard 0, raw_data.hashes.xxh32: the field occurs twice",
        ),
        (
            r#""version": 2, "#,
            r#""version": 3, "#,
            "index-version: shard 0, version: the version is 3; only version 2 is supported",
        ),
        (
            r#""format": "mds""#,
            r#""format": "MDS""#,
            "index-format: shard 0, format: unknown shard format `MDS`",
        ),
        (
            r#""format": "mds""#,
            r#""format": null"#,
            "index-field: shard 0, format: found null, expected a string",
        ),
        (
            r#"["sha1"]"#,
            r#"["sha1", "crc32"]"#,
            "hash-unknown: shard 0, hashes: unknown hash `crc32`",
        ),
        (
            r#""xxh32": "02cc5d05""#,
            r#""crc32": "02cc5d05""#,
            "hash-unknown: shard 0, raw_data.hashes: unknown hash `crc32`",
        ),
        (
            r#""02cc5d05""#,
            r#""02CC5D05""#,
            "hash-syntax: shard 0, raw_data.hashes: `02CC5D05` is not a xxh32 digest of 8 lower-case hexadecimal digits",
        ),
        (
            r#""compression": "zstd""#,
            r#""compression": "lz4""#,
            "compression-unknown: shard 0, compression: unknown compression `lz4`",
        ),
        (
            r#""compression": "zstd""#,
            r#""compression": 3"#,
            "index-field: shard 0, compression: found integer `3`, expected a string",
        ),
        (
            r#""compression": "zstd""#,
            r#""compression": null"#,
            "index-field: shard 0, zip_data: it is present, but the compression is null",
        ),
        (
            r#"{"basename": "shard.00000.mds.zstd", "bytes": 99, "hashes": {}}"#,
            "null",
            "index-field: shard 0, zip_data: it is null, but the compression is `zstd`",
        ),
        (
            r#""basename": "shard.00000.mds""#,
            r#""basename": "../x""#,
            "path-traversal: shard 0, raw_data.basename: the name has an empty, `.` or `..` part: `../x`",
        ),
        (
            r#""basename": "shard.00000.mds""#,
            r#""basename": "/etc/passwd""#,
            "path-absolute: shard 0, raw_data.basename: the name is absolute: `/etc/passwd`",
        ),
        (
            r#""basename": "shard.00000.mds""#,
            r#""basename": "a\nb""#,
            "path-character: shard 0, raw_data.basename: the name has a control character or a backslash: `a\\u{a}b`",
        ),
        (
            r#""basename": "shard.00000.mds""#,
            r#""basename": """#,
            "path-empty: shard 0, raw_data.basename: the name is empty: ``",
        ),
        (
            r#""basename": "shard.00000.mds""#,
            r#""basename": "NUL""#,
            "path-reserved: shard 0, raw_data.basename: the name has a reserved part: `NUL`",
        ),
        (
            r#""shard.00000.mds.zstd""#,
            r#""shard.00000.mds""#,
            "index-duplicate-shard: shard 0, zip_data.basename: the file `shard.00000.mds` is also `raw_data` of shard 0",
        ),
        (
            r#"["int32", "str"]"#,
            r#"["int32"]"#,
            "index-columns: shard 0, column_names: there are 2 names, but 1 encodings",
        ),
        (
            r#"[4, null]"#,
            r#"[4]"#,
            "index-columns: shard 0, column_names: there are 2 names, but 1 sizes",
        ),
        (
            r#"[4, null]"#,
            r#"[null, null]"#,
            "index-columns: shard 0, column_sizes: column `a` has size null, but encoding `int32` has size 4",
        ),
        (
            r#"[4, null]"#,
            r#"[0, null]"#,
            "index-columns: shard 0, column_sizes: column `a` has size null, but encoding `int32` has size 4",
        ),
        (
            r#"[4, null]"#,
            r#"[4, 4]"#,
            "index-columns: shard 0, column_sizes: column `b` has size 4, but encoding `str` has size null",
        ),
        (
            r#"["a", "b"]"#,
            r#"["a", "a"]"#,
            "index-columns: shard 0, column_names: there are two columns `a`",
        ),
        (
            r#"["a", "b"]"#,
            r#"["a", 7]"#,
            "index-field: shard 0, column_names: found integer `7`, expected a string",
        ),
        (
            r#"["a", "b"]"#,
            r#""ab""#,
            "index-field: shard 0, column_names: found string \"ab\", expected a list of strings",
        ),
        (
            r#"["int32", "str"]"#,
            r#"["int32", "text"]"#,
            "encoding-unknown: shard 0, column_encodings of column `b`: unknown encoding `text`",
        ),
        (
            r#""size_limit": 67108864"#,
            r#""size_limit": "64mb""#,
            "index-field: shard 0, size_limit: found string \"64mb\", expected a non-negative integer below 2^64",
        ),
        (
            r#"], "version": 2}"#,
            r#"], "version": 9}"#,
            "index-version: version: the version is 9; only version 2 is supported",
        ),
    ] {
        assert_eq!(error(MDS, from, to), message);
    }
    for (json, from, to, message) in [
        (
            JSON,
            r#""a": "int""#,
            r#""a": "int32""#,
            "encoding-unknown: shard 0, encoding of column `a`: unknown text encoding `int32`",
        ),
        (
            JSON,
            r#""a": "int""#,
            r#""b": "int""#,
            "index-columns: shard 0, columns: there are two columns `b`",
        ),
        (
            JSON,
            r#""newline": "\n""#,
            r#""newline": "x""#,
            "index-field: shard 0, newline: `x` cannot end a line of this format",
        ),
        (
            JSON,
            r#""newline": "\n""#,
            r#""newline": "\n", "separator": ",""#,
            "index-unknown-field: shard 0, separator: the field is unknown",
        ),
        (
            JSON,
            r#""zip_meta": null"#,
            r#""zip_meta": {"basename": "x", "bytes": 1, "hashes": {}}"#,
            "index-field: shard 0, zip_meta: it is present, but the compression is null",
        ),
        (
            JSON,
            r#"{"basename": "m", "bytes": 161, "hashes": {}}"#,
            "null",
            "index-field: shard 0, raw_meta: found null, expected an object with basename, bytes and hashes",
        ),
        (
            JSON,
            r#""raw_meta": {"basename": "m", "bytes": 161, "hashes": {}}, "#,
            "",
            "index-missing-field: shard 0, raw_meta: the field is missing",
        ),
        (
            XSV,
            r#""separator": ";""#,
            r#""separator": """#,
            "index-field: shard 0, separator: an empty text cannot separate values",
        ),
        (
            XSV,
            r#""newline": "\n""#,
            r#""newline": """#,
            "index-field: shard 0, newline: `` cannot end a line of this format",
        ),
        (
            XSV,
            r#""format": "xsv""#,
            r#""format": "csv""#,
            "index-unknown-field: shard 0, separator: the field is unknown",
        ),
        (
            XSV,
            r#""m""#,
            r#""d""#,
            "index-duplicate-shard: shard 0, raw_meta.basename: the file `d` is also `raw_data` of shard 0",
        ),
    ] {
        assert_eq!(error(json, from, to), message);
    }
}

#[test]
fn index_errors_name_the_shard_number() {
    let inner = &MDS[r#"{"shards": ["#.len()..MDS.len() - r#"], "version": 2}"#.len()];
    let with = |second: &str| format!(r#"{{"shards": [{inner}, {second}], "version": 2}}"#);
    let other = inner.replace("shard.00000", "shard.00001");
    let index = parse(&with(&other)).unwrap();
    assert!(Arc::ptr_eq(
        &index.shards[0].config,
        &index.shards[1].config
    ));
    assert_eq!(index.samples(), 4);

    let error = parse(&with(inner)).unwrap_err();
    assert_eq!(error.id(), "index-duplicate-shard");
    assert_eq!(
        error.to_string(),
        "the file `shard.00000.mds` is also `raw_data` of shard 0"
    );
    assert_eq!(
        error.object().as_deref(),
        Some("shard 1, raw_data.basename")
    );

    let changed = parse(&with(&other.replace("67108864", "5"))).unwrap();
    assert!(!Arc::ptr_eq(
        &changed.shards[0].config,
        &changed.shards[1].config
    ));
    assert_eq!(changed.shards[1].config.size_limit, Some(5));

    let error = parse(&with(&other.replace("67108864", "-5"))).unwrap_err();
    assert_eq!(error.object().as_deref(), Some("shard 1, size_limit"));
}

#[test]
fn unusual_but_valid_index_fields_are_accepted() {
    for (from, to) in [
        // A size of 0 means no size.
        ("[4, null]", "[4, 0]"),
        // Column order, repeated hashes, listed hashes without values, no limit.
        (r#"["a", "b"]"#, r#"["b", "a"]"#),
        (r#"["sha1"]"#, r#"["sha1", "sha1"]"#),
        ("67108864", "null"),
        (r#""samples": 2"#, r#""samples": 0"#),
        (r#""shard.00000.mds""#, r#""x/y/shard.00000.mds""#),
    ] {
        assert!(parse(&MDS.replacen(from, to, 1)).is_ok(), "{to}");
    }
    assert!(parse(&JSON.replace(r#""newline": "\n""#, r#""newline": """#)).is_ok());
    let odd = MDS.replace(r#"["sha1"]"#, r#"["sha1", "md5", "sha1"]"#);
    assert_eq!(parse(&odd).unwrap().to_json(), odd);
}

#[test]
fn index_limits_are_enforced() {
    let limited = |name, value| {
        let mut limits = Limits::default();
        assert!(limits.set(name, value));
        let error = Index::parse(MDS.as_bytes(), &limits).map_err(|error| error.id());
        error.map(drop)
    };
    let length = MDS.len() as u64;
    assert_eq!(limited("index-bytes", length), Ok(()));
    assert_eq!(limited("index-bytes", length - 1), Err("limit-index-bytes"));
    assert_eq!(limited("index-bytes", 3), Err("limit-index-bytes"));
    assert_eq!(limited("shards", 1), Ok(()));
    assert_eq!(limited("shards", 0), Err("limit-shards"));
    assert_eq!(limited("columns", 2), Ok(()));
    assert_eq!(limited("columns", 1), Err("limit-columns"));
    assert_eq!(limited("string-bytes", 20), Ok(()));
    assert_eq!(limited("string-bytes", 19), Err("limit-string-bytes"));
    assert_eq!(limited("shard-bytes", 232), Ok(()));
    assert_eq!(limited("shard-bytes", 231), Err("limit-shard-bytes"));

    let nested = |depth: usize| {
        format!(
            r#"{{"shards": [], "version": 2, "x": {}{}}}"#,
            "[".repeat(depth),
            "]".repeat(depth)
        )
    };
    assert!(parse(&nested(31)).is_ok());
    assert_eq!(parse(&nested(32)).unwrap_err().id(), "limit-json-depth");
    assert_eq!(
        parse(&"[".repeat(1_000_000)).unwrap_err().id(),
        "index-field"
    );
    let open = format!(r#"{{"x": {}"#, "[".repeat(1_000_000));
    assert_eq!(parse(&open).unwrap_err().id(), "limit-json-depth");
    let long = format!(
        r#"{{"shards": [], "version": 2, "x": "{}"}}"#,
        "x".repeat(65_537)
    );
    assert_eq!(parse(&long).unwrap_err().id(), "limit-string-bytes");
    let long = format!(
        r#"{{"shards": [], "version": 2, "{}": 1}}"#,
        "x".repeat(65_537)
    );
    assert_eq!(parse(&long).unwrap_err().id(), "limit-string-bytes");
}

#[test]
fn error_messages_are_short_without_control_characters() {
    let long = "\\u001b[2J".repeat(9000);
    for (from, to) in [
        (r#""format": "mds""#, format!(r#""format": "{long}""#)),
        (r#"["sha1"]"#, format!(r#"["{long}"]"#)),
        (
            r#""compression": "zstd""#,
            format!(r#""compression": "{long}""#),
        ),
        (r#""samples": 2"#, format!(r#""samples": "{long}""#)),
        (r#""samples": 2"#, format!(r#""{long}": "x""#)),
        (r#"["int32", "str"]"#, format!(r#"["int32", "{long}"]"#)),
        (r#"["a", "b"]"#, format!(r#"["{long}", "{long}"]"#)),
        (r#""02cc5d05""#, format!(r#""{long}""#)),
        (r#""shard.00000.mds""#, format!(r#""{long}""#)),
    ] {
        let message = error(MDS, from, &to);
        assert!(message.len() < 2000, "{} {message:.300}", message.len());
        assert!(!message.contains('\x1b'), "{message}");
    }
}

proptest! {
    #[test]
    fn index_round_trips(index in strategy::index()) {
        let json = index.to_json();
        prop_assert!(json.bytes().all(|byte| (b' '..0x7f).contains(&byte)));
        prop_assert_eq!(parse(&json), Ok(index.clone()));
        let merged = index.to_merged_json();
        prop_assert_eq!(parse(&merged), Ok(index));
        // An independent JSON parser reads the same values.
        let one: serde_json::Value = serde_json::from_str(&json).unwrap();
        let two: serde_json::Value = serde_json::from_str(&merged).unwrap();
        prop_assert_eq!(one, two);
    }

    #[test]
    fn damaged_index_gives_an_error_or_a_valid_index(
        index in strategy::index(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        end: prop::sample::Index,
    ) {
        let mut json = index.to_json().into_bytes();
        for (offset, byte) in changes {
            let offset = offset.index(json.len());
            json[offset] = byte;
        }
        for json in [&json[..], &json[..end.index(json.len())]] {
            let parsed = Index::parse(json, &Limits::default());
            if let Ok(parsed) = parsed {
                let again = Index::parse(parsed.to_json().as_bytes(), &Limits::default());
                prop_assert_eq!(again, Ok(parsed));
            }
        }
    }

    #[test]
    fn arbitrary_text_does_not_panic_the_parser(json: Vec<u8>) {
        let _ = Index::parse(&json, &Limits::default());
    }
}

#[test]
fn flipped_bits_give_an_error_or_a_valid_index() {
    for json in [MDS, JSON, XSV] {
        let original = parse(json).unwrap();
        for bit in 0..json.len() * 8 {
            let mut bytes = json.as_bytes().to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Ok(index) = Index::parse(&bytes, &Limits::default()) {
                // Parsing its own output gives the same index. It equals the original only if the flipped bit was in
                // whitespace.
                assert_eq!(
                    Index::parse(index.to_json().as_bytes(), &Limits::default()).as_ref(),
                    Ok(&index)
                );
                if index == original {
                    assert_eq!(json.as_bytes()[bit / 8], b' ');
                }
            }
        }
    }
}
