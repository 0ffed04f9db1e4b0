//! Tests CSV and JSON lines.

use std::io::Write as _;

use arrow::array::{Array as _, AsArray as _, Int64Array, StringArray};
use arrow::datatypes::{DataType, Float64Type, Int64Type, UInt64Type};
use shardmill_core::ErrorKind;
use shardmill_source::{SelectColumn, SourceKind, SourceOptions};

use crate::help::{TestDir, batches, check_error, open_one, open_with, read, refused};

pub fn types(source: &dyn shardmill_source::Source) -> Vec<String> {
    let show = |field: &std::sync::Arc<arrow::datatypes::Field>| {
        format!(
            "{} {}{}",
            field.name(),
            field.data_type(),
            if field.is_nullable() { "?" } else { "" }
        )
    };
    source.schema().fields().iter().map(show).collect()
}

#[test]
fn csv_types_are_inferred_from_all_rows() {
    let dir = TestDir::new();
    let text = "\u{feff}id,name,score,flag,zip,empty,day\n1,\"a, \"\"b\"\"\nc\",1,true,007,,2024-01-01\n2,,2.5,FALSE,12,,2024-02-01";
    let source = open_one(&dir.write("x.csv", text));
    assert_eq!(
        types(source.as_ref()),
        [
            "id Int64",
            "name Utf8?",
            "score Float64",
            "flag Boolean",
            "zip Utf8",
            "empty Utf8?",
            "day Utf8"
        ]
    );
    let found = read(source.as_ref());
    assert_eq!(
        found.column(1).as_string::<i32>(),
        &StringArray::from(vec![Some("a, \"b\"\nc"), None])
    );
    assert_eq!(
        found.column(2).as_primitive::<Float64Type>().values(),
        &[1.0, 2.5]
    );
    assert_eq!(found.column(4).as_string::<i32>().value(0), "007");
    assert_eq!(
        (
            source.null_count(0),
            source.null_count(1),
            source.null_count(5)
        ),
        (Some(0), Some(1), Some(2))
    );
    assert_eq!(source.first_null(1).unwrap().unwrap().row, 1);
    assert_eq!(
        (source.description().rows, source.units().len()),
        (Some(2), 1)
    );
}

#[test]
fn csv_columns_are_matched_by_name_across_files() {
    let dir = TestDir::new();
    dir.write("d/a.csv", "id,v\n1,1\n2,2\n");
    dir.write("d/b.csv", "v,id\nx,3\n");
    let source = open_one(&dir.path("d"));
    assert_eq!(types(source.as_ref()), ["id Int64", "v Utf8"]);
    let found = read(source.as_ref());
    assert_eq!(
        found.column(0).as_primitive::<Int64Type>(),
        &Int64Array::from(vec![1, 2, 3])
    );
    assert_eq!(
        found.column(1).as_string::<i32>(),
        &StringArray::from(vec!["1", "2", "x"])
    );
    dir.write("d/c.csv", "id,w\n1,2\n");
    assert_eq!(refused(&dir.path("d"), |_| {}).id(), "csv-extra-column");
}

#[test]
fn csv_delimiter_header_and_compression_are_applied() {
    let dir = TestDir::new();
    let path = dir.write("x.csv", "1;a\n2;b\n");
    let source = open_with(&path, |options| {
        options.csv.delimiter = Some(b';');
        options.csv.header = false;
    })
    .unwrap();
    assert_eq!(types(source.as_ref()), ["column_1 Int64", "column_2 Utf8"]);
    assert_eq!(read(source.as_ref()).num_rows(), 2);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(b"id\n1\n2\n3\n").unwrap();
    let path = dir.write("y.csv.gz", gzip.finish().unwrap());
    assert_eq!(read(open_one(&path).as_ref()).num_rows(), 3);
    let path = dir.write("z.csv", "1,2");
    assert_eq!(
        refused(&path, |options| options.csv.delimiter = Some(b'"')).id(),
        "source-option"
    );
}

#[test]
fn invalid_csv_is_an_error_with_line_and_column() {
    let dir = TestDir::new();
    for (text, id, fact) in [
        ("", "csv-header", "header: the file is empty"),
        (
            "a,,c\n1,2,3\n",
            "csv-header",
            "header: column 2 has no name",
        ),
        (
            "a,b,a\n1,2,3\n",
            "source-duplicate-column",
            "has two columns called `a`",
        ),
        (
            "a,b\n1,2\n3\n",
            "csv-row",
            "incorrect number of fields, expected 2 got 1",
        ),
        (
            "a,b\n1,2\n3,4,5\n",
            "csv-row",
            "incorrect number of fields, expected 2 got 3",
        ),
    ] {
        let error = refused(&dir.write("x.csv", text), |_| {});
        assert_eq!(
            (error.id(), error.to_string().as_str()),
            (id, fact),
            "{text:?}"
        );
    }
    let error = refused(&dir.write("x.csv", "a,b\n1,2\n3\n"), |_| {});
    assert!(
        error.object().unwrap().ends_with("x.csv line 3"),
        "{:?}",
        error.object()
    );
    let error = refused(&dir.write("x.csv", b"a,b\n1,2\n3,\xff\n"), |_| {});
    assert_eq!(error.id(), "csv-row");
    assert!(
        error.object().unwrap().ends_with("x.csv line 3 column `b`"),
        "{:?}",
        error.object()
    );
    // In a large file, only the first rows determine the types.
    let mut large = "id,text\n".to_owned();
    for row in 0..8_000_000 {
        large.push_str(if row == 7_000_000 {
            "12x,t\n"
        } else {
            "1234567,t\n"
        });
    }
    let path = dir.write("large.csv", &large);
    let source = open_with(&path, |options| options.text.infer_rows = 1000).unwrap();
    assert_eq!(
        (types(source.as_ref())[0].as_str(), source.null_count(0)),
        ("id Int64?", None)
    );
    let error = check_error(batches(source.as_ref()).unwrap_err());
    assert_eq!((error.id(), error.kind()), ("csv-row", ErrorKind::Corrupt));
    assert!(
        error
            .object()
            .unwrap()
            .ends_with("large.csv line 7000002 column `id`"),
        "{:?}",
        error.object()
    );
    assert!(error.to_string().contains("'12x'"), "{error}");
}

#[test]
fn csv_batches_stay_bounded_when_rows_become_long() {
    let dir = TestDir::new();
    let mut text = "id,text\n".to_owned();
    for id in 0..20_000 {
        text.push_str(&format!("{id},a\n"));
    }
    let long = format!("\"{}\n{}\"", "x".repeat(10_000), "y".repeat(10_000));
    for id in 20_000..20_800 {
        text.push_str(&format!("{id},{long}\n"));
    }
    let source = open_one(&dir.write("x.csv", text));
    let (mut rows, mut max) = (0_usize, 0_usize);
    for found in batches(source.as_ref()).unwrap() {
        rows += found.num_rows();
        let texts = found.column(1).as_string::<i32>();
        max = max.max(texts.iter().flatten().map(str::len).sum::<usize>());
    }
    assert_eq!(rows, 20_800);
    // Four times the target size of a batch, plus the size of a read.
    assert!(max < 6 << 20, "{max} bytes");
}

#[test]
fn csv_rows_after_many_empty_lines_or_long_header_are_read() {
    let dir = TestDir::new();
    let ids = |path: &std::path::Path| {
        let source = open_with(path, |options| options.limits.sample_bytes = 1000).unwrap();
        let found = read(source.as_ref());
        found
            .column(0)
            .as_primitive::<Int64Type>()
            .values()
            .to_vec()
    };
    // More empty lines than a batch, and than a record, may have bytes.
    for blank in [6 << 20, 80 << 20] {
        let text = format!("id,text\n1,a\n2,b\n{}3,c\n4,d\n", "\n".repeat(blank));
        assert_eq!(ids(&dir.write("blank.csv", text)), [1, 2, 3, 4], "{blank}");
    }
    let text = format!("id,{}\n1,a\n2,b\n", "t".repeat(5 << 20));
    assert_eq!(ids(&dir.write("header.csv", text)), [1, 2]);
}

#[test]
fn csv_skips_leading_bom_and_empty_lines() {
    for text in [
        "\u{feff}\r\n\r\na,b\r\n3,4\r\n",
        "\u{feff}a,b\n3,4",
        "\n\na,b\n3,4",
    ] {
        let dir = TestDir::new();
        let path = dir.write("x.csv", text);
        let found = read(open_one(&path).as_ref());
        assert_eq!(found.schema().field(0).name(), "a", "{text:?}");
        assert_eq!((found.num_rows(), found.num_columns()), (1, 2), "{text:?}");
    }
}

#[test]
fn csv_lines_may_end_with_carriage_return_only() {
    let dir = TestDir::new();
    // Longer than a header may be, unless it ends at the carriage return.
    let text = format!(
        "a,b\r{}",
        "1,xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r".repeat(600_000)
    );
    let path = dir.write("x.csv", text);
    let found = read(open_one(&path).as_ref());
    assert_eq!((found.num_rows(), found.num_columns()), (600_000, 2));
    let header = format!("a,{}\n1,2\n", "b".repeat(17 << 20));
    let error = refused(&dir.write("y.csv", header), |_| ());
    assert!(error.to_string().contains("string-bytes"), "{error}");
}

#[test]
fn tsv_files_are_read_as_csv_with_tab_delimiter() {
    let dir = TestDir::new();
    dir.write("t/a.tsv", "id\tb\n1\tx\n");
    dir.write("t/b.tsv", "id\tb\n2\ty\n");
    dir.write("t/notes.txt", "nothing");
    let source = open_with(&dir.path("t"), |options| {
        options.kind = Some(SourceKind::Csv);
        options.csv.delimiter = Some(b'\t');
    });
    let found = read(source.unwrap().as_ref());
    assert_eq!((found.num_rows(), found.num_columns()), (2, 2));
}

#[test]
fn csv_unclosed_quote_beyond_the_limit_is_an_error() {
    let dir = TestDir::new();
    let mut text = "a,b\n1,\"".to_owned();
    text.push_str(&"x".repeat(80 << 20));
    let path = dir.write("x.csv", text);
    let result = open_with(&path, |options| options.limits.sample_bytes = 1000);
    assert_eq!(result.err().unwrap().id(), "limit-sample-bytes");
}

#[test]
fn json_types_are_inferred_from_all_rows() {
    let dir = TestDir::new();
    let text = concat!(
        "{\"id\": 1, \"v\": {\"b\": [1, 2], \"a\": \"x\"}, \"n\": null}\n",
        "\n",
        "{\"id\": 2.5, \"v\": {\"b\": [], \"a\": null}, \"big\": 18446744073709551615}",
    );
    let source = open_one(&dir.write("x.jsonl", text));
    assert_eq!(source.description().kind, SourceKind::JsonLines);
    let names: Vec<_> = source
        .schema()
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect();
    assert_eq!(names, ["big", "id", "n", "v"]);
    let found = read(source.as_ref());
    assert_eq!(
        found.column(0).as_primitive::<UInt64Type>().value(1),
        u64::MAX
    );
    assert_eq!(
        found.column(1).as_primitive::<Float64Type>().values(),
        &[1.0, 2.5]
    );
    let inner = found.column(3).as_struct();
    assert_eq!(inner.column_names(), ["a", "b"]);
    assert_eq!(
        inner
            .column(1)
            .as_list::<i32>()
            .value(0)
            .as_primitive::<Int64Type>()
            .values(),
        &[1, 2]
    );
    assert_eq!(
        (
            source.null_count(0),
            source.null_count(1),
            source.null_count(2)
        ),
        (Some(1), Some(0), Some(2))
    );
    assert!(!source.schema().field(1).is_nullable());
    let columns = vec![SelectColumn::named("v"), SelectColumn::named("id")];
    let source = open_with(&dir.path("x.jsonl"), |options| {
        options.query.columns = columns
    })
    .unwrap();
    assert_eq!(read(source.as_ref()).schema().field(0).name(), "v");
}

#[test]
fn invalid_json_line_is_an_error_with_its_line() {
    let dir = TestDir::new();
    for (text, line, fact) in [
        (
            "{\"a\": 1}\n{\"a\": \"x\"}\n",
            2,
            "a: text here, and a number before",
        ),
        ("{\"a\": 1}\n\n[1]\n", 3, "is a list, not an object"),
        ("{\"a\": 1\n}\n", 1, "EOF while parsing an object"),
        ("{\"a\": 1} {\"a\": 2}\n", 1, "trailing characters"),
        ("{\"a\": 1, \"a\": 2}\n", 1, "has the key `a` twice"),
        ("{\"a\": \"\\ud800\"}\n", 1, "unexpected end of hex escape"),
    ] {
        let error = refused(&dir.write("x.jsonl", text), |_| {});
        assert_eq!(
            (error.id(), error.to_string().as_str()),
            ("jsonl-row", fact),
            "{text:?}"
        );
        assert!(
            error
                .object()
                .unwrap()
                .ends_with(&format!("x.jsonl line {line}")),
            "{:?}",
            error.object()
        );
    }
    dir.write("d/a.jsonl", "{\"a\": 1}\n");
    dir.write("d/b.jsonl", "{\"a\": true}\n");
    let error = refused(&dir.path("d"), |_| {});
    assert!(
        error.object().unwrap().contains("b.jsonl"),
        "{:?}",
        error.object()
    );
}

#[test]
fn large_json_files_are_read_in_ranges() {
    let dir = TestDir::new();
    let mut text = String::new();
    for row in 0..3_000_000 {
        text.push_str(&format!("{{\"id\": {row}, \"t\": \"text\"}}\n"));
    }
    let path = dir.write("x.jsonl", &text);
    assert!(text.len() > 64 << 20, "{}", text.len());
    let source = open_with(&path, |options| options.text.infer_rows = 1000).unwrap();
    assert!(source.units().len() > 4, "{}", source.units().len());
    let found = batches(source.as_ref()).unwrap();
    let ids: Vec<i64> = found
        .iter()
        .flat_map(|batch| {
            batch
                .column(0)
                .as_primitive::<Int64Type>()
                .values()
                .to_vec()
        })
        .collect();
    assert_eq!(ids.len(), 3_000_000);
    assert!(ids.iter().enumerate().all(|(at, id)| at as i64 == *id));
    let bytes: u64 = source.units().iter().map(|unit| unit.bytes).sum();
    assert_eq!(bytes, text.len() as u64);

    // A row that does not fit, far after the examined rows; and a null there.
    let broken = text
        .replacen("{\"id\": 2500000,", "{\"id\": \"x\",", 1)
        .replacen("{\"id\": 2400000,", "{\"id\": null,", 1);
    let path = dir.write("y.jsonl", broken);
    let source = open_with(&path, |options| options.text.infer_rows = 1000).unwrap();
    assert_eq!(source.first_null(0).unwrap().unwrap().row, 2_400_000);
    let error = check_error(batches(source.as_ref()).unwrap_err());
    assert_eq!(error.id(), "jsonl-row");
    assert!(
        error.object().unwrap().ends_with("y.jsonl line 2500001"),
        "{:?}: {error}",
        error.object()
    );

    // An unknown key in such a row.
    let broken = text.replacen("{\"id\": 2500000,", "{\"id\": 1, \"new\": 1,", 1);
    let path = dir.write("z.jsonl", broken);
    let source = open_with(&path, |options: &mut SourceOptions| {
        options.text.infer_rows = 1000
    })
    .unwrap();
    let error = check_error(batches(source.as_ref()).unwrap_err());
    assert!(
        error.object().unwrap().ends_with("z.jsonl line 2500001")
            && error.to_string().contains("new"),
        "{error}"
    );
}

#[test]
fn empty_json_lines_and_crlf_endings_are_read() {
    let dir = TestDir::new();
    let source = open_one(&dir.write("x.jsonl", "\n \n"));
    assert_eq!(
        (
            batches(source.as_ref()).unwrap().len(),
            source.description().rows
        ),
        (0, Some(0))
    );
    let source = open_one(&dir.write("y.json", "{\"a\": \"é\"}\r\n{\"a\": \"\\u00e9\"}\r\n"));
    let found = read(source.as_ref());
    assert_eq!(
        found.column(0).as_string::<i32>(),
        &StringArray::from(vec!["é", "é"])
    );
    assert_eq!(found.column(0).data_type(), &DataType::Utf8);
}

#[test]
fn json_lines_skip_bom_only_at_file_start() {
    let dir = TestDir::new();
    let path = dir.write("x.jsonl", "\u{feff}{\"a\": 1}\n\n{\"a\": 2}\n");
    let found = read(open_one(&path).as_ref());
    assert_eq!(
        found.column(0).as_primitive::<Int64Type>().values(),
        &[1, 2]
    );
    let path = dir.write("x.jsonl", "{\"a\": 1}\n\u{feff}{\"a\": 2}\n");
    assert_eq!(refused(&path, |_| ()).id(), "jsonl-row");
}
