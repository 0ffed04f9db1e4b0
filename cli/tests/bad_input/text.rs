//! CSV, JSON lines and Arrow files that are truncated, misleading, or other files.

use std::fs::File;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, StringArray};
use arrow::ipc::writer::{FileWriter, StreamWriter};

use crate::case::{Case, TestDir, case, sweep};
use crate::tables::{batch, rows};

pub fn cases() -> Vec<Case> {
    let mut cases = csv();
    cases.extend(json_lines());
    cases.extend(arrow());
    cases
}

/// A case with the one file `in/rows.csv`.
fn csv_file(name: &str, contents: impl AsRef<[u8]> + Send + Sync + 'static) -> Case {
    case(&format!("csv: {name}"), move |dir: &TestDir| {
        dir.write("in/rows.csv", &contents)
    })
}

/// A case with the one file `in/rows.jsonl`.
fn json_file(name: &str, contents: impl AsRef<[u8]> + Send + Sync + 'static) -> Case {
    case(&format!("jsonl: {name}"), move |dir: &TestDir| {
        dir.write("in/rows.jsonl", &contents)
    })
}

/// More lines than type inference examines.
const MANY: usize = 110_000;

fn csv() -> Vec<Case> {
    const FILE: &str = "in/rows.csv";
    let late = |last: &str| {
        format!(
            "id,name\n{}{last}\n",
            (0..MANY)
                .map(|row| format!("{row},row\n"))
                .collect::<String>()
        )
    };
    vec![
        csv_file("no bytes", "").unconvertible("", 3, "csv-header", &[FILE]),
        csv_file("a value too few", "id,name\n1,a\n2\n3,c\n").unconvertible(
            "",
            3,
            "csv-row",
            &[FILE, "line 3"],
        ),
        csv_file("a value too many", "id,name\n1,a\n2,b,c\n3,c\n").unconvertible(
            "",
            3,
            "csv-row",
            &[FILE, "line 3"],
        ),
        csv_file("a value too few, late", late("110000")).unconvertible(
            "",
            3,
            "csv-row",
            &[FILE, "line 110002"],
        ),
        csv_file("a quote that is not closed", "id,name\n1,\"a\n2,b\n").unconvertible(
            "",
            3,
            "csv-row",
            &[FILE, "line 2"],
        ),
        csv_file(
            "a quote in the header that is not closed",
            "id,\"name\n1,a\n2,b\n",
        )
        .unconvertible("", 3, "csv-header", &[FILE, "line 1"]),
        csv_file("not UTF-8", b"id,name\n1,a\n2,\xff\n").unconvertible(
            "",
            3,
            "csv-row",
            &[FILE, "line 3"],
        ),
        csv_file("not UTF-8, late", {
            let mut bytes = late("110000,x").into_bytes();
            let at = bytes.len() - 2;
            bytes[at] = 0xff;
            bytes
        })
        .unconvertible("", 3, "csv-row", &[FILE, "line 110002"]),
        csv_file("a header that is not UTF-8", b"id,na\xffme\n1,a\n").unconvertible(
            "",
            3,
            "csv-header",
            &[FILE],
        ),
        csv_file("UTF-16", b"\xff\xfei\0d\0\n\0").unconvertible(
            "",
            3,
            "csv-header|csv-row",
            &[FILE],
        ),
        csv_file("two columns of one name", "id,id\n1,2\n").unconvertible(
            "",
            2,
            "source-duplicate-column",
            &[FILE, "id"],
        ),
        csv_file("a column without a name", "id,,name\n1,2,3\n").unconvertible(
            "",
            3,
            "csv-header",
            &[FILE],
        ),
        csv_file(
            "a line of 2 MiB in one column",
            format!("id\n{}\n", "x".repeat(2 << 20)),
        )
        .unconvertible(
            "--safety-limit sample-bytes=1MiB",
            3,
            "limit-sample-bytes",
            &["row 0"],
        ),
        case("csv: another header in the second file", |dir| {
            dir.write("in/a.csv", "id,name\n1,a\n");
            dir.write("in/b.csv", "id,nome\n1,a\n");
        })
        .unconvertible(
            "",
            3,
            "csv-missing-column|csv-extra-column|csv-schema-mismatch",
            &["in/b.csv"],
        ),
        case("csv: gzip that breaks off", |dir| {
            dir.write("in/rows.csv.gz", b"\x1f\x8b\x08\0\0\0\0\0\0\x03\x4b\x4c")
        })
        .unconvertible("", 3, "source-compression", &["in/rows.csv.gz"]),
        case("csv: gzip with garbage in it", |dir| {
            dir.write("in/rows.csv.gz", b"\x1f\x8b\x08\0garbage all over")
        })
        .unconvertible("", 3, "source-compression", &["in/rows.csv.gz"]),
        case("csv: zstd with garbage in it", |dir| {
            dir.write("in/rows.csv.zst", b"\x28\xb5\x2f\xfdgarbage all over")
        })
        .unconvertible("", 3, "source-compression", &["in/rows.csv.zst"]),
        case("csv: a named pipe", |dir| dir.fifo("in/rows.csv")).unconvertible(
            "",
            2,
            "tree-special",
            &["in/rows.csv", "pipe"],
        ),
    ]
}

fn json_lines() -> Vec<Case> {
    const FILE: &str = "in/rows.jsonl";
    let late = |last: &str| {
        format!(
            "{}{last}\n",
            (0..MANY)
                .map(|row| format!("{{\"id\": {row}, \"name\": \"row\"}}\n"))
                .collect::<String>()
        )
    };
    let deep = format!("{{\"a\": {}{}}}\n", "[".repeat(10_000), "]".repeat(10_000));
    vec![
        json_file("no bytes", "").unconvertible("", 2, "config-no-columns|source-empty", &[FILE]),
        json_file(
            "a line that is no JSON",
            "{\"id\": 1}\n{\"id\": 2\n{\"id\": 3}\n",
        )
        .unconvertible("", 3, "jsonl-row", &[FILE, "line 2"]),
        json_file("a line that is no JSON, late", late("{\"id\": }")).unconvertible(
            "",
            3,
            "jsonl-row",
            &[FILE, "line 110001"],
        ),
        json_file("a line that is a list", "{\"id\": 1}\n[2]\n").unconvertible(
            "",
            3,
            "jsonl-row",
            &[FILE, "line 2"],
        ),
        json_file("one list of all", "[{\"id\": 1}, {\"id\": 2}]\n").unconvertible(
            "",
            3,
            "jsonl-row",
            &[FILE, "line 1"],
        ),
        json_file("one object over several lines", "{\n  \"id\": 1\n}\n").unconvertible(
            "",
            3,
            "jsonl-row",
            &[FILE, "line 1"],
        ),
        json_file(
            "two objects on a line",
            "{\"id\": 1}\n{\"id\": 2} {\"id\": 3}\n",
        )
        .unconvertible("", 3, "jsonl-row", &[FILE, "line 2"]),
        json_file(
            "text among numbers, late",
            late("{\"id\": \"x\", \"name\": \"row\"}"),
        )
        .unconvertible("", 3, "jsonl-row", &[FILE, "line 110001", "id"]),
        json_file(
            "a new field, late",
            late("{\"id\": 1, \"name\": \"row\", \"new\": 1}"),
        )
        .unconvertible("", 3, "value-null", &[FILE, "new"]),
        json_file(
            "a line that breaks off at the end",
            "{\"id\": 1}\n{\"id\": 2",
        )
        .unconvertible("", 3, "jsonl-row", &[FILE, "line 2"]),
        json_file("not UTF-8", b"{\"id\": \"a\"}\n{\"id\": \"\xff\"}\n").unconvertible(
            "",
            3,
            "jsonl-row",
            &[FILE, "line 2"],
        ),
        json_file(
            "half a surrogate pair",
            "{\"id\": \"a\"}\n{\"id\": \"\\ud800\"}\n",
        )
        .unconvertible("", 3, "jsonl-row", &[FILE, "line 2"]),
        json_file("a field twice", "{\"id\": 1}\n{\"id\": 2, \"id\": 3}\n").unconvertible(
            "",
            3,
            "jsonl-row",
            &[FILE, "line 2", "id"],
        ),
        json_file("NaN", "{\"id\": 1.5}\n{\"id\": NaN}\n").unconvertible(
            "",
            3,
            "jsonl-row",
            &[FILE, "line 2"],
        ),
        json_file("nested 10,000 deep", deep).unconvertible(
            "",
            3,
            "jsonl-row|limit-json-depth",
            &[FILE, "line 1"],
        ),
        json_file(
            "a field that is missing",
            "{\"id\": 1, \"name\": \"a\"}\n{\"id\": 2}\n",
        )
        .unconvertible("", 3, "value-null", &["name", "row 1"]),
        case("jsonl: gzip that breaks off", |dir| {
            dir.write("in/rows.jsonl.gz", b"\x1f\x8b\x08\0\0\0\0\0\0\x03\x4b\x4c")
        })
        .unconvertible("", 3, "source-compression", &["in/rows.jsonl.gz"]),
        case("jsonl: another type in the second file", |dir| {
            dir.write("in/a.jsonl", "{\"id\": 1}\n");
            dir.write("in/b.jsonl", "{\"id\": {\"a\": 1}}\n");
        })
        .unconvertible(
            "",
            3,
            "jsonl-schema-mismatch|jsonl-row",
            &["in/b.jsonl", "id"],
        ),
    ]
}

/// Writes 25 rows as an Arrow file, or as a stream.
fn write_arrow(dir: &TestDir, name: &str) {
    dir.write(name, "");
    let file = File::create(dir.at(name)).unwrap();
    let batch = rows(25);
    if name.ends_with(".arrows") {
        let mut writer = StreamWriter::try_new(file, &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
    } else {
        let mut writer = FileWriter::try_new(file, &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
    }
}

fn arrow() -> Vec<Case> {
    const FILE: &str = "in/rows.arrow";
    const FLIPPED: &str = "arrow-format|arrow-corrupt|type-unsupported|source-duplicate-column|value-null|sample-utf8|value-range|limit-sample-bytes|source-compression";
    vec![
        case("arrow: zero bytes", |dir| dir.write(FILE, "")).unconvertible(
            "",
            3,
            "arrow-format",
            &[FILE],
        ),
        case("arrow: a text file", |dir| {
            dir.write(FILE, "id,name\n1,a\n")
        })
        .unconvertible("", 3, "arrow-format", &[FILE]),
        sweep("arrow: truncated", 20, |dir, variant| {
            write_arrow(dir, FILE);
            dir.edit(FILE, |bytes| {
                bytes.truncate(1 + variant * (bytes.len() - 2) / 19)
            });
        })
        .unconvertible("", 3, "arrow-format", &[FILE]),
        sweep(
            "arrow: four bytes of 0xff, every 23rd byte",
            60,
            |dir, variant| {
                write_arrow(dir, FILE);
                dir.edit(FILE, |bytes| {
                    let at = (variant * 23) % (bytes.len() - 4);
                    bytes[at..at + 4].fill(0xff);
                });
            },
        )
        .survives("convert in out", FLIPPED),
        sweep(
            "arrow: a bit flipped, every 29th byte",
            60,
            |dir, variant| {
                write_arrow(dir, FILE);
                dir.edit(FILE, |bytes| {
                    let at = (variant * 29) % bytes.len();
                    bytes[at] ^= 1 << (variant % 8);
                });
            },
        )
        .survives("convert in out", FLIPPED),
        sweep(
            "arrow stream: four bytes of 0x7f, every 19th byte",
            60,
            |dir, variant| {
                write_arrow(dir, "in/rows.arrows");
                dir.edit("in/rows.arrows", |bytes| {
                    let at = (variant * 19) % (bytes.len() - 4);
                    bytes[at..at + 4].fill(0x7f);
                });
            },
        )
        .survives("convert in out", FLIPPED),
        case("arrow: another type in the second file", |dir| {
            for (name, values) in [
                (
                    "in/a.arrow",
                    Arc::new(Int64Array::from(vec![1])) as ArrayRef,
                ),
                ("in/b.arrow", Arc::new(StringArray::from(vec!["a"]))),
            ] {
                dir.write(name, "");
                let batch = batch([("x", values)]);
                let mut writer =
                    FileWriter::try_new(File::create(dir.at(name)).unwrap(), &batch.schema())
                        .unwrap();
                writer.write(&batch).unwrap();
                writer.finish().unwrap();
            }
        })
        .unconvertible("", 3, "arrow-schema-mismatch", &["in/b.arrow", "`x`"]),
    ]
}
