//! Indexes that make false claims, are truncated, or are other files.

use serde_json::{Value, json};
use shardmill_testing::mds::dialect;

use crate::case::{Case, TestDir, case, sweep};
use crate::sets::list;

/// A case in which `index.json` of a good dataset is replaced by these bytes.
fn file(name: &str, bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Case {
    case(name, move |dir: &TestDir| {
        dir.mds();
        dir.write("shards/index.json", &bytes);
    })
}

/// A case in which the text of a good index is changed.
fn text(name: &str, change: impl Fn(String) -> String + Send + Sync + 'static) -> Case {
    case(name, move |dir: &TestDir| {
        dir.mds();
        let index = String::from_utf8(dir.read("shards/index.json")).unwrap();
        let changed = change(index.clone());
        assert_ne!(index, changed);
        dir.write("shards/index.json", changed);
    })
}

/// A case in which a field of the first shard has another value.
fn with_field(name: &str, path: &'static str, value: Value) -> Case {
    case(name, move |dir: &TestDir| {
        dir.mds();
        dir.set(path, value.clone());
    })
}

/// A case in which the first data file has another name.
fn named(name: &str, basename: &str) -> Case {
    with_field(name, "raw_data.basename", basename.into())
}

/// Where the error is, in every case of a field.
const IN: &str = "shards/index.json";

pub fn cases() -> Vec<Case> {
    let mut cases = files();
    cases.extend(structure());
    cases.extend(names());
    cases.extend(numbers());
    cases.extend(fields());
    cases.extend(limits());
    cases
}

/// What is no index at all.
fn files() -> Vec<Case> {
    let deep = format!(
        "{{\"x\": {}{}, \"shards\": [], \"version\": 2}}",
        "[".repeat(10_000),
        "]".repeat(10_000)
    );
    let deep_shards = format!("{{\"shards\": {}", "[".repeat(10_000));
    let deep_objects = format!(
        "{{\"x\": {}1{}, \"shards\": [], \"version\": 2}}",
        "{\"a\":".repeat(10_000),
        "}".repeat(10_000)
    );
    vec![
        case("missing", |dir| {
            dir.mds();
            dir.remove("shards/index.json");
        })
        .unreadable(2, "index-missing", &["shards"]),
        case("no such directory", |_| {})
            .fails("inspect --shards shards", 2, "not-found", &["shards"])
            .fails("inspect shards", 2, "source-not-found", &["shards"])
            .fails("cat shards ..", 2, "not-found", &["shards"])
            .fails("verify shards", 2, "not-found", &["shards"]),
        file("empty", "").unreadable(3, "index-empty", &[IN]),
        file("blanks only", " \n\t ").unreadable(3, "index-empty", &[IN]),
        file("zeros", [0; 4096]).unreadable(3, "index-not-json", &[IN, "zero bytes"]),
        file("an HTML page", "<!DOCTYPE html><html><body>404 Not Found</body></html>").unreadable(3, "index-not-json", &[IN, "HTML"]),
        file("a byte-order mark", b"\xef\xbb\xbf{\"shards\": [], \"version\": 2}").unreadable(3, "index-not-json", &[IN, "byte-order"]),
        file("UTF-16", b"\xff\xfe{\0\"\0s\0").unreadable(3, "index-not-json", &[IN, "UTF-16"]),
        file("compressed with gzip", b"\x1f\x8b\x08\0\0\0\0\0\0\0").unreadable(3, "index-not-json", &[IN, "gzip"]),
        file("not UTF-8", b"{\"shards\": [], \"version\": 2, \"x\": \"\xff\"}").unreadable(3, "index-not-json", &[IN]),
        file("single quotes", "{'shards': [], 'version': 2}").unreadable(3, "index-not-json", &[IN]),
        file("a comment", "{\"shards\": [], /* none */ \"version\": 2}").unreadable(3, "index-not-json", &[IN]),
        file("NaN", "{\"shards\": [], \"version\": NaN}").unreadable(3, "index-not-json", &[IN]),
        file("nested 10,000 deep", deep).unreadable(3, "limit-json-depth", &[IN, "32"]),
        file("objects nested 10,000 deep", deep_objects).unreadable(3, "limit-json-depth", &[IN, "32"]),
        file("shards nested 10,000 deep", deep_shards).unreadable(3, "index-field", &[IN]),
        file("a list", "[1, 2]").unreadable(3, "index-field", &[IN]),
        file("a number", "2").unreadable(3, "index-field", &[IN]),
        text("something follows", |index| index + "{}").unreadable(3, "index-trailing", &[IN]),
        sweep("truncated", 24, |dir, variant| {
            dir.mds();
            dir.edit("shards/index.json", |index| index.truncate(1 + variant * (index.len() - 2) / 23));
        })
        .fails("verify shards", 3, "index-truncated", &[IN])
        .fails("inspect --shards shards", 3, "index-truncated", &[IN]),
        case("a directory", |dir| {
            dir.mds();
            dir.remove("shards/index.json");
            dir.write("shards/index.json/x", "");
        })
        .unreadable(3, "path-not-a-file", &[IN, "directory"]),
        case("a named pipe", |dir| {
            dir.mds();
            dir.remove("shards/index.json");
            dir.fifo("shards/index.json");
        })
        .unreadable(3, "path-not-a-file", &[IN, "pipe"]),
        case("a symbolic link", |dir| {
            dir.mds();
            dir.edit("shards/index.json", |index| dir.write("real.json", index));
            dir.remove("shards/index.json");
            dir.link("../real.json", "shards/index.json");
        })
        .unreadable(3, "path-symlink", &[IN]),
        case("another index than expected", TestDir::mds)
            .fails(
                "verify shards --expect-index sha256:0000000000000000000000000000000000000000000000000000000000000000",
                3,
                "index-mismatch",
                &[IN],
            )
            .fails("verify shards --expect-index md5:00000000000000000000000000000000", 2, "config-expect-index", &["md5"])
            .fails("verify shards --expect-index sha256:00", 2, "config-expect-index", &["sha256:00"]),
    ]
}

/// Fields that are missing, doubled, unknown.
fn structure() -> Vec<Case> {
    vec![
        file("version 1", "{\"shards\": [], \"version\": 1}").unreadable(
            3,
            "index-version",
            &[IN, "1"],
        ),
        file("version 3", "{\"shards\": [], \"version\": 3}").unreadable(
            3,
            "index-version",
            &[IN, "3"],
        ),
        file("no version", "{\"shards\": []}").unreadable(
            3,
            "index-missing-field",
            &[IN, "version"],
        ),
        file("version as text", "{\"shards\": [], \"version\": \"2\"}").unreadable(
            3,
            "index-field",
            &[IN, "version"],
        ),
        file("no shards", "{\"version\": 2}").unreadable(3, "index-missing-field", &[IN, "shards"]),
        file("shards are an object", "{\"shards\": {}, \"version\": 2}").unreadable(
            3,
            "index-field",
            &[IN, "shards"],
        ),
        file("a shard is null", "{\"shards\": [null], \"version\": 2}").unreadable(
            3,
            "index-field",
            &[IN, "shard 0"],
        ),
        file(
            "version twice",
            "{\"shards\": [], \"version\": 2, \"version\": 2}",
        )
        .unreadable(3, "index-duplicate-field", &[IN, "version"]),
        with_field("a shard of version 1", "version", json!(1)).unreadable(
            3,
            "index-version",
            &[IN, "shard 0"],
        ),
        text("a field twice", |index| {
            index.replacen("\"samples\": 20", "\"samples\": 20, \"samples\": 20", 1)
        })
        .unreadable(3, "index-duplicate-field", &[IN, "shard 0", "samples"]),
        text("a field of a file twice", |index| {
            index.replacen("\"bytes\": ", "\"bytes\": 1, \"bytes\": ", 1)
        })
        .unreadable(
            3,
            "index-duplicate-field",
            &[IN, "shard 0", "raw_data.bytes"],
        ),
        text("a hash twice", |index| {
            let zeros = "0".repeat(64);
            index.replacen(
                "{\"sha256\": ",
                &format!("{{\"sha256\": \"{zeros}\", \"sha256\": "),
                1,
            )
        })
        .unreadable(3, "index-duplicate-field", &[IN, "shard 0", "sha256"]),
        with_field("an unknown field", "owner", json!("me")).unreadable(
            3,
            "index-unknown-field",
            &[IN, "shard 0", "owner"],
        ),
        with_field("an unknown field of a file", "raw_data.etag", json!("x")).unreadable(
            3,
            "index-unknown-field",
            &[IN, "shard 0", "etag"],
        ),
        with_field("a field of another format", "newline", json!("\n")).unreadable(
            3,
            "index-unknown-field",
            &[IN, "shard 0", "newline"],
        ),
        case("a missing field", |dir| {
            dir.mds();
            dir.entry(|entry| drop(entry.as_object_mut().unwrap().remove("samples")));
        })
        .unreadable(3, "index-missing-field", &[IN, "shard 0", "samples"]),
        case("a file without hashes", |dir| {
            dir.mds();
            dir.entry(|entry| drop(entry["raw_data"].as_object_mut().unwrap().remove("hashes")));
        })
        .unreadable(3, "index-missing-field", &[IN, "shard 0", "hashes"]),
        case("JSON lines without meta file", |dir| {
            dir.json_lines();
            dir.entry(|entry| drop(entry.as_object_mut().unwrap().remove("raw_meta")));
        })
        .unreadable(3, "index-missing-field", &[IN, "shard 0", "raw_meta"]),
        case("one file in two shards", |dir| {
            dir.mds();
            dir.index(|index| {
                index["shards"][1]["raw_data"]["basename"] = "shard.00000.mds".into()
            });
        })
        .unreadable(
            3,
            "index-duplicate-shard",
            &[IN, "shard 1", "shard.00000.mds"],
        ),
        case("one file for data and meta", |dir| {
            dir.json_lines();
            dir.set("raw_meta.basename", json!("shard.00000.json"));
        })
        .unreadable(
            3,
            "index-duplicate-shard",
            &[IN, "shard 0", "shard.00000.json"],
        ),
    ]
}

/// Names that must not become paths.
fn names() -> Vec<Case> {
    vec![
        named("a name that climbs", "../secret").unreadable(
            3,
            "path-traversal",
            &[IN, "shard 0", "../secret"],
        ),
        named("a name that climbs later", "a/../../secret").unreadable(
            3,
            "path-traversal",
            &[IN, "shard 0"],
        ),
        named("a name with an empty part", "a//b").unreadable(
            3,
            "path-traversal",
            &[IN, "shard 0"],
        ),
        named("an absolute name", "/etc/passwd").unreadable(
            3,
            "path-absolute",
            &[IN, "shard 0", "/etc/passwd"],
        ),
        named("a name with a drive", "C:x").unreadable(3, "path-absolute", &[IN, "shard 0"]),
        named("a name with a line break", "a\nb").unreadable(3, "path-character", &[IN, "shard 0"]),
        named("a name that moves the cursor", "a\u{1b}[2Jb").unreadable(
            3,
            "path-character",
            &[IN, "shard 0"],
        ),
        named("a name with NUL", "a\0b").unreadable(3, "path-character", &[IN, "shard 0"]),
        named("a name with a backslash", "a\\b").unreadable(3, "path-character", &[IN, "shard 0"]),
        named("a reserved name", "con.mds").unreadable(
            3,
            "path-reserved",
            &[IN, "shard 0", "con.mds"],
        ),
        named("an empty name", "").unreadable(3, "path-empty", &[IN, "shard 0"]),
        named("a long name", &"x".repeat(300)).unreadable(3, "path-too-long", &[IN, "shard 0"]),
        case("a name that leads through a link", |dir| {
            dir.mds();
            dir.set("raw_data.basename", "link/shard.00000.mds".into());
            dir.write(
                "outside/shard.00000.mds",
                dir.read("shards/shard.00000.mds"),
            );
            dir.link("../outside", "shards/link");
        })
        .fails("verify shards", 3, "path-symlink", &["link"])
        .fails("cat shards ..", 3, "path-symlink", &["link"]),
    ]
}

/// Numbers that no shard has.
fn numbers() -> Vec<Case> {
    let number = |name: &str, field: &'static str, literal: &'static str| {
        text(name, move |index| {
            let key = format!("\"{field}\": ");
            let start = index.find(&key).unwrap() + key.len();
            let end = start + index[start..].find([',', '}']).unwrap();
            format!("{}{literal}{}", &index[..start], &index[end..])
        })
    };
    let mut cases = vec![
        number("samples as text", "samples", "\"20\"").unreadable(
            3,
            "index-field",
            &[IN, "shard 0", "samples"],
        ),
        number("bytes null", "bytes", "null").unreadable(
            3,
            "index-field",
            &[IN, "shard 0", "raw_data.bytes"],
        ),
        number("a negative size limit", "size_limit", "-1").unreadable(
            3,
            "index-field",
            &[IN, "shard 0", "size_limit"],
        ),
        number("a number with a leading zero", "samples", "020").unreadable(
            3,
            "index-not-json",
            &[IN],
        ),
        number("1e400 samples", "samples", "1e400").unreadable(
            3,
            "index-not-json|index-field",
            &[IN],
        ),
    ];
    for (name, literal) in [
        ("-1 samples", "-1"),
        ("2.5 samples", "2.5"),
        ("2^32 samples", "4294967296"),
        ("2^63 samples", "9223372036854775808"),
        ("2^64 samples", "18446744073709551616"),
    ] {
        cases.push(number(name, "samples", literal).unreadable(
            3,
            "index-field",
            &[IN, "shard 0", "samples"],
        ));
    }
    for (name, literal) in [
        ("-1 bytes", "-1"),
        ("1.5 bytes", "1.5"),
        ("2^32 bytes", "4294967296"),
        ("2^64 bytes", "18446744073709551616"),
    ] {
        cases.push(number(name, "bytes", literal).unreadable(
            3,
            "index-field",
            &[IN, "shard 0", "raw_data.bytes"],
        ));
    }
    cases.push(
        case("compressed bytes beyond all limits", |dir| {
            dir.zipped("zstd:3");
            dir.set("zip_data.bytes", json!(1_u64 << 60));
        })
        .unreadable(3, "limit-shard-bytes", &[IN, "shard 0", "zip_data.bytes"]),
    );
    // Twenty shards of as many samples as there can be: the sum is larger than what 32 bits count.
    cases.push(
        case("more samples than there are", |dir| {
            dir.mds();
            dir.set("samples", json!(u32::MAX));
        })
        .fails(
            "verify shards",
            3,
            "shard-count",
            &["shard.00000.mds", "4294967295"],
        )
        .fails(
            "cat shards ..",
            3,
            "shard-count",
            &["shard.00000.mds", "4294967295"],
        ),
    );
    cases
}

/// Columns, encodings, compressions and hashes.
fn fields() -> Vec<Case> {
    let encoding = |name: &str, encoding: &'static str, size: Value| {
        case(name, move |dir: &TestDir| {
            dir.mds();
            dir.entry(|entry| {
                entry["column_encodings"][4] = encoding.into();
                entry["column_sizes"][4] = size.clone();
            });
        })
    };
    vec![
        with_field(
            "a name too few",
            "column_names",
            list(["blob", "id", "name", "pair"]),
        )
        .unreadable(3, "index-columns", &[IN, "shard 0"]),
        with_field(
            "a size too few",
            "column_sizes",
            list([Value::Null, json!(8), Value::Null, json!(8)]),
        )
        .unreadable(3, "index-columns", &[IN, "shard 0"]),
        with_field(
            "an encoding too many",
            "column_encodings",
            list([
                "bytes",
                "int64",
                "str",
                "ndarray:float32:2",
                "float64",
                "int",
            ]),
        )
        .unreadable(3, "index-columns", &[IN, "shard 0"]),
        with_field(
            "two columns of one name",
            "column_names",
            list(["blob", "id", "id", "pair", "score"]),
        )
        .unreadable(3, "index-columns", &[IN, "shard 0", "id"]),
        with_field(
            "the wrong size",
            "column_sizes",
            list([Value::Null, json!(4), Value::Null, json!(8), json!(8)]),
        )
        .unreadable(3, "index-columns", &[IN, "shard 0", "id", "4"]),
        with_field(
            "no size",
            "column_sizes",
            json!([null, null, null, null, null]),
        )
        .unreadable(3, "index-columns", &[IN, "shard 0", "id"]),
        with_field("a size as text", "column_sizes", list(["8"])).unreadable(
            3,
            "index-field",
            &[IN, "shard 0", "column_sizes"],
        ),
        encoding("an unknown encoding", "float128", json!(16)).unreadable(
            3,
            "encoding-unknown",
            &[IN, "shard 0", "score", "float128"],
        ),
        encoding(
            "an encoding with parameters that it has not",
            "int:1",
            json!(8),
        )
        .unreadable(3, "encoding-unknown", &[IN, "shard 0", "int:1"]),
        encoding("an array of no number type", "ndarray:object", Value::Null).unreadable(
            3,
            "encoding-dtype",
            &[IN, "shard 0", "object"],
        ),
        encoding(
            "an array larger than memory",
            "ndarray:uint8:4294967295,4294967295,4294967295",
            Value::Null,
        )
        .unreadable(3, "encoding-shape", &[IN, "shard 0"]),
        encoding("an array with a dimension 0", "ndarray:uint8:2,0", json!(0)).unreadable(
            3,
            "encoding-shape",
            &[IN, "shard 0"],
        ),
        with_field("an unknown format", "format", json!("parquet")).unreadable(
            3,
            "index-format",
            &[IN, "shard 0", "parquet"],
        ),
        with_field("an unknown compression", "compression", json!("lz4")).unreadable(
            3,
            "compression-unknown",
            &[IN, "shard 0", "lz4"],
        ),
        with_field(
            "a level that does not exist",
            "compression",
            json!("zstd:23"),
        )
        .unreadable(3, "compression-unknown", &[IN, "shard 0", "zstd:23"]),
        with_field("compressed, but no file is", "compression", json!("zstd:3")).unreadable(
            3,
            "index-field",
            &[IN, "shard 0", "zip_data"],
        ),
        case("a compressed file without compression", |dir| {
            dir.zipped("zstd:3");
            dir.set("compression", Value::Null);
        })
        .unreadable(3, "index-field", &[IN, "shard 0", "zip_data"]),
        with_field("an unknown hash", "hashes", list(["crc32"])).unreadable(
            3,
            "hash-unknown",
            &[IN, "shard 0", "crc32"],
        ),
        with_field(
            "an unknown hash of a file",
            "raw_data.hashes",
            json!({"crc32": "00000000"}),
        )
        .unreadable(3, "hash-unknown", &[IN, "shard 0", "crc32"]),
        with_field(
            "a hash that is too short",
            "raw_data.hashes.sha256",
            json!("00ff"),
        )
        .unreadable(3, "hash-syntax", &[IN, "shard 0", "sha256"]),
        with_field(
            "a hash that is not hexadecimal",
            "raw_data.hashes.sha256",
            json!("z".repeat(64)),
        )
        .unreadable(3, "hash-syntax", &[IN, "shard 0", "sha256"]),
        with_field(
            "a hash in upper case",
            "raw_data.hashes.sha256",
            json!("A".repeat(64)),
        )
        .unreadable(3, "hash-syntax", &[IN, "shard 0", "sha256"]),
        with_field("a hash as a number", "raw_data.hashes.sha256", json!(0)).unreadable(
            3,
            "index-field",
            &[IN, "shard 0", "raw_data.hashes"],
        ),
    ]
}

/// What the limits keep out, and that they can be moved.
fn limits() -> Vec<Case> {
    vec![
        case("more shards than the limit", TestDir::mds).fails(
            "inspect --shards shards --safety-limit shards=1",
            3,
            "limit-shards",
            &[IN, "--safety-limit shards=2"],
        ),
        case("more columns than the limit", TestDir::mds).fails(
            "inspect --shards shards --safety-limit columns=4",
            3,
            "limit-columns",
            &[IN, "--safety-limit columns=5"],
        ),
        case("more bytes than the limit", TestDir::mds).fails(
            "verify shards --safety-limit index-bytes=100",
            3,
            "limit-index-bytes",
            &[IN, "--safety-limit index-bytes="],
        ),
        with_field(
            "a string of 65 KiB",
            "column_names",
            list(["x".repeat(65 << 10)]),
        )
        .unreadable(3, "limit-string-bytes", &[IN, "65536"]),
        case("5,000 columns", |dir| {
            dir.mds();
            dir.entry(|entry| {
                let names: Vec<String> = (0..5000).map(|number| format!("c{number:04}")).collect();
                entry["column_encodings"] = list(names.iter().map(|_| "int8"));
                entry["column_sizes"] = list(names.iter().map(|_| 1));
                entry["column_names"] = list(names);
            });
        })
        .unreadable(3, "limit-columns", &[IN, "4096"]),
        case("100,000 unknown fields", |dir| {
            dir.mds();
            let fields: serde_json::Map<String, Value> = (0..100_000)
                .map(|number| (format!("f{number}"), json!(number)))
                .collect();
            dir.set("raw_data.more", Value::Object(fields));
        })
        .unreadable(3, "index-unknown-field", &[IN, "more"]),
        case("shards without end", |dir| {
            dir.mds();
            let entry = dialect(
                &shardmill_testing::mds::read_index(&dir.at("shards")).unwrap()["shards"][0],
            );
            dir.write(
                "shards/index.json",
                format!("{{\"shards\": [{}", format!("{entry}, ").repeat(40_000)),
            );
        })
        .fails(
            "inspect --shards shards",
            3,
            "index-truncated|index-duplicate-shard",
            &[IN],
        )
        .fails(
            "verify shards",
            3,
            "index-truncated|index-duplicate-shard",
            &[IN],
        ),
    ]
}
