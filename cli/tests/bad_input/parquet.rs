//! Parquet files that are truncated, corrupt, make false claims, or differ from each other.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Int64Array, IntervalYearMonthArray, RecordBatch, StringArray, UInt64Array,
};
use arrow::datatypes::{DataType, Field, Schema};
use parquet::file::properties::EnabledStatistics;

use crate::case::{Case, TestDir, case, sweep};
use crate::tables::{batch, column, parquet_bytes, rows};

const FILE: &str = "in/rows.parquet";

pub fn cases() -> Vec<Case> {
    let mut cases = files();
    cases.extend(sets());
    cases
}

/// A case in which the bytes of a good file are changed.
fn spoilt(name: &str, change: impl Fn(&mut Vec<u8>) + Send + Sync + 'static) -> Case {
    case(name, move |dir: &TestDir| {
        dir.source();
        dir.edit(FILE, &change);
    })
}

/// The bytes of the good file: all of them, and where the footer begins.
fn sizes() -> (usize, usize) {
    let bytes = parquet_bytes(&rows(25), EnabledStatistics::Chunk);
    let length =
        u32::from_le_bytes(bytes[bytes.len() - 8..bytes.len() - 4].try_into().unwrap()) as usize;
    (bytes.len(), bytes.len() - 8 - length)
}

fn set_footer_length(bytes: &mut [u8], change: impl Fn(u32) -> u32) {
    let at = bytes.len() - 8;
    let length = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    bytes[at..at + 4].copy_from_slice(&change(length).to_le_bytes());
}

const PROTOCOL: &str = r#"{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}"#;
const METADATA: &str = r#"{"metaData":{"id":"x","format":{"provider":"parquet","options":{}},"schemaString":"{\"type\":\"struct\",\"fields\":[{\"name\":\"id\",\"type\":\"long\",\"nullable\":true,\"metadata\":{}}]}","partitionColumns":[],"configuration":{}}}"#;
const ADD: &str = r#"{"add":{"path":"rows.parquet","partitionValues":{},"size":1,"modificationTime":0,"dataChange":true,"stats":"{\"numRecords\":7}"}}"#;

/// The good source, with a table log of these commits.
fn delta(dir: &TestDir, commits: &[&str]) {
    dir.source();
    for (version, commit) in commits.iter().enumerate() {
        dir.write(&format!("in/_delta_log/{version:020}.json"), commit);
    }
}

fn files() -> Vec<Case> {
    let (all, footer) = sizes();
    vec![
        spoilt("zero bytes", Vec::clear).unconvertible(
            "",
            3,
            "parquet-truncated",
            &[FILE, "0 bytes"],
        ),
        spoilt("eleven bytes", |bytes| bytes.truncate(11)).unconvertible(
            "",
            3,
            "parquet-truncated",
            &[FILE],
        ),
        spoilt("another magic number", |bytes| {
            bytes[..4].copy_from_slice(b"ORC1")
        })
        .unconvertible("", 3, "parquet-magic", &[FILE]),
        spoilt("a text file", |bytes| {
            *bytes = b"id,name\n1,a\n2,b\n".to_vec()
        })
        .unconvertible("", 3, "parquet-magic", &[FILE]),
        spoilt("all zeros", |bytes| bytes.fill(0)).unconvertible("", 3, "parquet-magic", &[FILE]),
        spoilt("encrypted", |bytes| {
            bytes[..4].copy_from_slice(b"PARE");
            let end = bytes.len();
            bytes[end - 4..].copy_from_slice(b"PARE");
        })
        .unconvertible("", 3, "parquet-encrypted", &[FILE]),
        spoilt("an encrypted footer", |bytes| {
            let end = bytes.len();
            bytes[end - 4..].copy_from_slice(b"PARE");
        })
        .unconvertible("", 3, "parquet-encrypted", &[FILE]),
        sweep("truncated", 30, move |dir, variant| {
            dir.source();
            dir.edit(FILE, |bytes| {
                bytes.truncate(12 + variant * (bytes.len() - 13) / 29)
            });
        })
        .unconvertible("", 3, "parquet-truncated", &[FILE])
        .fails("inspect in/rows.parquet", 3, "parquet-truncated", &[FILE]),
        spoilt("a footer longer than the file", |bytes| {
            set_footer_length(bytes, |_| 10_000_000)
        })
        .unconvertible("", 3, "parquet-footer", &[FILE, "10000000"]),
        spoilt("a footer of 4 GiB", |bytes| {
            set_footer_length(bytes, |_| u32::MAX)
        })
        .unconvertible(
            "",
            3,
            "parquet-limit",
            &[
                FILE,
                "4294967295",
                "--safety-limit parquet-footer-bytes=4294967295",
            ],
        ),
        case("parquet: a footer above a limit of the user", |dir| {
            dir.source()
        })
        .unconvertible(
            "--safety-limit parquet-footer-bytes=16",
            3,
            "parquet-limit",
            &[FILE, "above the limit of 16"],
        ),
        case("parquet: a page above a limit of the user", |dir| {
            dir.source()
        })
        .unconvertible(
            "--safety-limit parquet-page-bytes=1",
            3,
            "parquet-limit",
            &[FILE, "--safety-limit parquet-page-bytes="],
        ),
        spoilt("a footer of no bytes", |bytes| {
            set_footer_length(bytes, |_| 0)
        })
        .unconvertible("", 3, "parquet-footer", &[FILE]),
        spoilt("a footer shorter than it is", |bytes| {
            set_footer_length(bytes, |length| length - 10)
        })
        .unconvertible("", 3, "parquet-footer", &[FILE]),
        spoilt("a footer that begins early", |bytes| {
            set_footer_length(bytes, |length| length + 10)
        })
        .unconvertible("", 3, "parquet-footer", &[FILE]),
        spoilt("a footer of zeros", move |bytes| {
            let end = bytes.len() - 8;
            bytes[footer..end].fill(0);
        })
        .unconvertible("", 3, "parquet-footer", &[FILE]),
        spoilt("a footer of 0xff", move |bytes| {
            let end = bytes.len() - 8;
            bytes[footer..end].fill(0xff);
        })
        .unconvertible("", 3, "parquet-footer", &[FILE]),
        spoilt("pages of zeros", move |bytes| bytes[4..footer].fill(0)).unconvertible(
            "",
            3,
            "parquet-corrupt",
            &[FILE, "row group 0"],
        ),
        spoilt("pages of 0xff", move |bytes| bytes[4..footer].fill(0xff)).unconvertible(
            "",
            3,
            "parquet-corrupt|parquet-limit",
            &[FILE, "row group 0"],
        ),
        sweep(
            "a bit flipped in the footer, every 11th byte",
            (all - footer).div_ceil(11),
            move |dir, variant| {
                dir.source();
                dir.edit(FILE, |bytes| {
                    bytes[footer + variant * 11] ^= 1 << (variant % 8)
                });
            },
        )
        .survives("convert in out", FLIPPED),
        sweep(
            "a byte of 0xff in the footer, every 17th byte",
            (all - footer).div_ceil(17),
            move |dir, variant| {
                dir.source();
                dir.edit(FILE, |bytes| bytes[footer + variant * 17] = 0xff);
            },
        )
        .survives("convert in out", FLIPPED),
        sweep(
            "a bit flipped in the pages, every 7th byte",
            (footer - 4).div_ceil(7),
            move |dir, variant| {
                dir.source();
                dir.edit(FILE, |bytes| bytes[4 + variant * 7] ^= 1 << (variant % 8));
            },
        )
        .survives("convert in out", FLIPPED),
        sweep(
            "four bytes of 0xff in the pages, every 13th byte",
            (footer - 8).div_ceil(13),
            move |dir, variant| {
                dir.source();
                dir.edit(FILE, |bytes| {
                    bytes[4 + variant * 13..8 + variant * 13].fill(0xff)
                });
            },
        )
        .survives("convert in out", FLIPPED),
        case("a directory called as a file", |dir| {
            dir.write("in/rows.parquet/readme.txt", "none")
        })
        .fails(
            "convert in/rows.parquet out --from parquet",
            2,
            "source-empty",
            &[FILE],
        ),
        case("a named pipe called as a file", |dir| dir.fifo(FILE)).unconvertible(
            "",
            2,
            "tree-special",
            &[FILE, "pipe"],
        ),
        case("a link to nowhere", |dir| dir.link("nowhere.parquet", FILE)).unconvertible(
            "",
            2,
            "not-found",
            &[FILE],
        ),
    ]
}

/// What damage in a place that no checksum covers may look like.
const FLIPPED: &str = "parquet-footer|parquet-corrupt|parquet-limit|parquet-truncated|parquet-magic|parquet-encrypted|parquet-codec|\
                       type-unsupported|source-duplicate-column|value-null|sample-utf8|value-range|limit-sample-bytes";

fn table(columns: [(&str, ArrayRef); 2]) -> RecordBatch {
    batch(columns)
}

/// Files that do not go together.
fn sets() -> Vec<Case> {
    let numbers = || -> ArrayRef { Arc::new(Int64Array::from(vec![1, 2])) };
    let texts = || -> ArrayRef { Arc::new(StringArray::from(vec!["a", "b"])) };
    let two = move |name: &str, first: fn() -> RecordBatch, second: fn() -> RecordBatch| {
        case(name, move |dir: &TestDir| {
            dir.parquet("in/a.parquet", &first());
            dir.parquet("in/b.parquet", &second());
        })
    };
    vec![
        two(
            "a column of another type",
            || column(Int64Array::from(vec![1])),
            || column(StringArray::from(vec!["a"])),
        )
        .unconvertible(
            "",
            3,
            "parquet-schema-mismatch",
            &["in/b.parquet", "`x`", "Utf8", "Int64", "in/a.parquet"],
        ),
        two(
            "a column of whole numbers that no type holds",
            || column(Int64Array::from(vec![1])),
            || column(UInt64Array::from(vec![1])),
        )
        .unconvertible(
            "",
            3,
            "parquet-schema-mismatch",
            &["in/b.parquet", "`x`", "in/a.parquet"],
        ),
        case("a column that is missing", move |dir| {
            dir.parquet("in/a.parquet", &table([("x", numbers()), ("y", texts())]));
            dir.parquet("in/b.parquet", &batch([("x", numbers())]));
        })
        .unconvertible("", 3, "parquet-missing-column", &["in/b.parquet", "`y`"]),
        case("a column too many", move |dir| {
            dir.parquet("in/a.parquet", &batch([("x", numbers())]));
            dir.parquet("in/b.parquet", &table([("x", numbers()), ("y", texts())]));
        })
        .unconvertible("", 3, "parquet-extra-column", &["in/b.parquet", "`y`"]),
        case("two columns of one name", move |dir| {
            let fields = vec![
                Field::new("x", DataType::Int64, false),
                Field::new("x", DataType::Utf8, false),
            ];
            let batch =
                RecordBatch::try_new(Arc::new(Schema::new(fields)), vec![numbers(), texts()])
                    .unwrap();
            dir.parquet(FILE, &batch);
        })
        .unconvertible("", 2, "source-duplicate-column", &[FILE, "`x`"]),
        case("a type that cannot be stored", |dir| {
            dir.parquet(FILE, &column(IntervalYearMonthArray::from(vec![1])))
        })
        .unconvertible("", 3, "type-unsupported", &["x"]),
        case(
            "a column in the files and in the names of directories",
            move |dir| {
                dir.parquet("in/x=1/a.parquet", &batch([("x", numbers())]));
            },
        )
        .unconvertible("", 2, "source-partition", &["`x`"]),
        case("directories that name different columns", move |dir| {
            dir.parquet("in/k=1/a.parquet", &batch([("x", numbers())]));
            dir.parquet("in/l=1/a.parquet", &batch([("x", numbers())]));
        })
        .unconvertible("", 2, "source-partition", &["in/l=1"]),
        case("one bad file of two", |dir| {
            dir.source();
            dir.write("in/z.parquet", "PAR1");
        })
        .unconvertible("", 3, "parquet-truncated", &["in/z.parquet"]),
        case("the same file twice", TestDir::source).fails(
            "convert in in/rows.parquet out",
            2,
            "source-duplicate",
            &[FILE],
        ),
        case("two kinds", |dir| {
            dir.source();
            dir.write("other/a.csv", "a\n1\n");
        })
        .fails(
            "convert in other out",
            2,
            "source-mixed",
            &["other", "csv", "parquet"],
        ),
        case("a kind that is not there", |dir| {
            dir.write("in/a.csv", "a\n1\n")
        })
        .unconvertible("--from parquet", 2, "source-empty", &["in", "Parquet"]),
        case("no such source", |_| {}).unconvertible("", 2, "source-not-found", &["in"]),
        case("a pattern without matches", TestDir::source).fails(
            "convert in/*.pq out",
            2,
            "source-not-found",
            &["in/*.pq"],
        ),
        case("a pattern that is none", TestDir::source).fails(
            "convert in/[z out",
            2,
            "source-option|source-not-found",
            &["in/[z"],
        ),
        case("a Delta log without a version", |dir| {
            dir.source();
            dir.write("in/_delta_log/README.txt", "");
        })
        .unconvertible("", 2, "delta-no-table", &["in", "_delta_log"]),
        case("a Delta commit of nothing but an object", |dir| {
            delta(dir, &["{}"]);
        })
        .unconvertible("", 3, "delta-log", &["in"]),
        case("a Delta commit that is empty", |dir| {
            delta(dir, &[&format!("{PROTOCOL}\n{METADATA}"), ADD, ""]);
        })
        .unconvertible("", 3, "delta-log", &["in", "_delta_log/00000000000000000002.json is empty"]),
        case("a Delta commit that breaks off", |dir| {
            delta(dir, &[&format!("{PROTOCOL}\n{METADATA}"), &format!("{}\n{}", ADD, &ADD[..40])]);
        })
        .unconvertible("", 3, "delta-log", &["in", "_delta_log/00000000000000000001.json line 2"]),
        case("a Delta table with an unknown feature", |dir| {
            let needs = r#"{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["telepathy"],"writerFeatures":["telepathy"]}}"#;
            delta(dir, &[&format!("{needs}\n{METADATA}")]);
        })
        .unconvertible("", 3, "delta-feature", &["in", "telepathy"]),
        case("a Delta table without the middle of its log", |dir| {
            delta(dir, &[&format!("{PROTOCOL}\n{METADATA}"), ADD, ""]);
            dir.remove("in/_delta_log/00000000000000000001.json");
        })
        .unconvertible("", 3, "delta-log", &["in", "version 1"]),
        case("a Delta table whose file is gone", |dir| {
            delta(dir, &[&format!("{PROTOCOL}\n{METADATA}"), ADD]);
            dir.remove(FILE);
        })
        .unconvertible("", 2, "delta-file-missing", &[FILE, "version 1", "vacuumed?"]),
        case("a Delta table with more rows than its file", |dir| {
            delta(dir, &[&format!("{PROTOCOL}\n{METADATA}"), ADD]);
        })
        .unconvertible("", 3, "delta-row-count", &[FILE, "25 rows", "7"]),
        case("a Delta table whose file lies elsewhere", |dir| {
            delta(dir, &[&format!("{PROTOCOL}\n{METADATA}"), &ADD.replace("rows.parquet", "../rows.parquet")]);
        })
        .unconvertible("", 3, "delta-path", &["in", "../rows.parquet"]),
        case("a Delta version that is not there", |dir| {
            delta(dir, &[&format!("{PROTOCOL}\n{METADATA}")]);
        })
        .unconvertible("--delta-version 7", 2, "delta-version", &["in", "versions 0 to 0"]),
        case("a Delta version that is no number", |dir| {
            delta(dir, &[&format!("{PROTOCOL}\n{METADATA}")]);
        })
        .unconvertible("--delta-version last", 2, "config-delta-version", &["--delta-version"]),
        case("a version of something else", |dir| dir.source()).unconvertible(
            "--delta-version 1",
            2,
            "source-option",
            &["--delta-version", "Delta"],
        ),
        case("a file whose name says nothing", |dir| {
            dir.write("rows.bin", "PAR1")
        })
        .fails(
            "convert rows.bin out",
            3,
            "source-unsupported",
            &["rows.bin", "--from"],
        ),
        case("a secret in the URL of a source", |_| {}).fails(
            "convert s3://key:secret@bucket/rows?token=secret out",
            2,
            "url-user",
            &["s3://bucket/rows"],
        ),
        case("a store of a scheme that is not served", |_| {}).fails(
            "inspect oci://bucket/rows",
            2,
            "url-scheme",
            &["oci://bucket/rows", "s3://BUCKET/PREFIX"],
        ),
        case("a broken MDS dataset as source", |dir| {
            dir.write("in/index.json", "{\"version\": 2}")
        })
        .unconvertible("", 3, "index-missing-field", &["in/index.json"]),
        case("an MDS dataset with a broken shard as source", |dir| {
            dir.zipped("zstd:3");
            dir.edit("shards/shard.00001.mds.zstd", |zip| zip[40] ^= 1);
        })
        .fails(
            "convert shards out",
            3,
            "hash-mismatch|compression-damaged",
            &["shard.00001.mds.zstd"],
        ),
    ]
}
