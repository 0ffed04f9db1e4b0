//! Tests published tables against the rows published with them.
//!
//! `SHARDMILL_DELTA_GOLDEN` names a directory of `NAME.tar.zst` archives, such as `kernel/tests/golden_data` of
//! delta-kernel-rs. In each, `NAME/delta` is a table, and `NAME/expected` has Parquet files with its rows. Without the
//! variable, the test reports that it was skipped.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, RecordBatch, StructArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Fields, TimeUnit};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use shardmill_core::Error;
use shardmill_source::{Source, SourceOptions, open};

use crate::help::batches;

/// Tables without expected rows, or without the files that their log lists, and the id of the error for each.
const REFUSED: &[(&str, &str)] = &[
    ("checkpoint", "delta-file-missing"),
    ("data-reader-absolute-paths-escaped-chars", "delta-log"),
    (
        "delete-re-add-same-file-different-transactions",
        "delta-file-missing",
    ),
    ("deltalog-commit-info", "delta-log"),
    ("deltalog-invalid-protocol-version", "delta-log"),
    (
        "deltalog-state-reconstruction-from-checkpoint-missing-metadata",
        "delta-log",
    ),
    (
        "deltalog-state-reconstruction-from-checkpoint-missing-protocol",
        "delta-log",
    ),
    (
        "deltalog-state-reconstruction-without-metadata",
        "delta-log",
    ),
    (
        "deltalog-state-reconstruction-without-protocol",
        "delta-log",
    ),
    ("hive", "delta-no-table"),
    ("log-replay-special-characters-b", "delta-file-missing"),
    ("no-delta-log-folder", "delta-no-table"),
    ("update-deleted-directory", "delta-log"),
    ("versions-not-contiguous", "delta-log"),
];

/// Columns whose expected values depend on the time zone of the writer: partition timestamps without a zone, which this
/// reader interprets as UTC.
const ELSEWHERE: &[(&str, &str)] = &[("data-reader-partition-values", "as_timestamp")];

#[test]
fn golden_tables_have_the_published_rows() {
    let Some(folder) = std::env::var_os("SHARDMILL_DELTA_GOLDEN").map(PathBuf::from) else {
        println!("SKIP: SHARDMILL_DELTA_GOLDEN names no directory of golden tables");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let mut names: Vec<String> = fs::read_dir(&folder)
        .unwrap()
        .filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            name.strip_suffix(".tar.zst").map(str::to_owned)
        })
        .collect();
    names.sort();
    assert!(
        !names.is_empty(),
        "{} holds no NAME.tar.zst",
        folder.display()
    );
    let mut failed = BTreeMap::new();
    let mut compared = 0;
    for name in &names {
        let packed = fs::File::open(folder.join(format!("{name}.tar.zst"))).unwrap();
        tar::Archive::new(zstd::Decoder::new(packed).unwrap())
            .unpack(dir.path())
            .unwrap();
        let root = dir.path().join(name);
        let verdict = if root.join("expected").is_dir() {
            compared += 1;
            compare(name, &root).map(|()| "equal".to_owned())
        } else {
            other(name, &root)
        };
        match verdict {
            Ok(shown) => println!("{name}: {shown}"),
            Err(reason) => drop(failed.insert(name, reason)),
        }
        fs::remove_dir_all(root).unwrap();
    }
    println!("{compared} of {} tables compared", names.len());
    assert!(failed.is_empty(), "{} failed: {failed:#?}", failed.len());
}

fn table(root: &Path) -> Result<Arc<dyn Source>, Error> {
    let options = SourceOptions {
        kind: Some(shardmill_source::SourceKind::Delta),
        ..SourceOptions::default()
    };
    open(&[root.join("delta").into()], &options)
}

fn other(name: &str, root: &Path) -> Result<String, String> {
    let found = table(root).and_then(|source| {
        let rows = batches(source.as_ref())?
            .iter()
            .map(RecordBatch::num_rows)
            .sum::<usize>();
        Ok(rows as u64)
    });
    let shown = match &found {
        Ok(rows) => format!("{rows} rows"),
        Err(error) => format!("{}: {error}", error.id()),
    };
    let expected = REFUSED.iter().find(|(other, _)| *other == name);
    match (&found, expected) {
        (Err(error), Some((_, id))) if error.id() == *id => Ok(shown),
        (Ok(_), None) => Ok(shown),
        _ => Err(shown),
    }
}

fn compare(name: &str, root: &Path) -> Result<(), String> {
    let left_out = ELSEWHERE.iter().find(|(other, _)| *other == name);
    let lines = |batch: &RecordBatch| {
        let kept: Vec<usize> = (0..batch.num_columns())
            .filter(|column| {
                left_out
                    .is_none_or(|(_, left_out)| batch.schema().field(*column).name() != left_out)
            })
            .collect();
        lines(&batch.project(&kept).unwrap())
    };
    let source = table(root).map_err(|error| format!("{}: {error}", error.id()))?;
    let mut found = Vec::new();
    for batch in batches(source.as_ref()).map_err(|error| format!("{}: {error}", error.id()))? {
        found.extend(lines(&batch));
    }
    let mut expected = Vec::new();
    for batch in expected_batches(&root.join("expected")) {
        let names: Vec<String> = batch
            .schema()
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect();
        let own: Vec<String> = source
            .schema()
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect();
        if names != own {
            return Err(format!("columns are {own:?}, expected {names:?}"));
        }
        expected.extend(lines(&batch));
    }
    found.sort();
    expected.sort();
    if found == expected {
        return Ok(());
    }
    let different = found
        .iter()
        .zip(&expected)
        .find(|(found, expected)| found != expected);
    Err(format!(
        "{} rows, expected {}; first difference {different:?}",
        found.len(),
        expected.len()
    ))
}

fn expected_batches(folder: &Path) -> Vec<RecordBatch> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "parquet")
        })
        .collect();
    files.sort();
    let mut found = Vec::new();
    for file in files {
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let file = fs::File::open(file).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new_with_options(file, options).unwrap();
        found.extend(reader.build().unwrap().map(Result::unwrap));
    }
    found
}

/// Formats each row as text. Times of any unit and zone are formatted alike; text and bytes are unchanged.
fn lines(batch: &RecordBatch) -> Vec<String> {
    let columns: Vec<ArrayRef> = batch.columns().iter().map(alike).collect();
    let options = FormatOptions::new().with_null("∅");
    let formatters: Vec<ArrayFormatter> = columns
        .iter()
        .map(|column| ArrayFormatter::try_new(column, &options).unwrap())
        .collect();
    (0..batch.num_rows())
        .map(|row| {
            let values: Vec<String> = formatters
                .iter()
                .map(|formatter| formatter.value(row).to_string())
                .collect();
            values.join(" | ")
        })
        .collect()
}

fn alike(array: &ArrayRef) -> ArrayRef {
    cast(array, &plain(array.data_type())).unwrap_or_else(|_| structure(array))
}

/// Casts structs child by child.
fn structure(array: &ArrayRef) -> ArrayRef {
    let Some(from) = array.as_struct_opt() else {
        return Arc::clone(array);
    };
    let columns: Vec<ArrayRef> = from.columns().iter().map(alike).collect();
    let fields: Fields = from
        .fields()
        .iter()
        .zip(&columns)
        .map(|(field, column)| Field::new(field.name(), column.data_type().clone(), true))
        .collect();
    Arc::new(StructArray::new(fields, columns, from.nulls().cloned()))
}

fn plain(data_type: &DataType) -> DataType {
    let of =
        |field: &FieldRef| Arc::new(Field::clone(field).with_data_type(plain(field.data_type())));
    match data_type {
        DataType::Timestamp(_, _) => DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(of).collect()),
        DataType::List(item) => DataType::List(of(item)),
        DataType::Map(entry, sorted) => DataType::Map(of(entry), *sorted),
        other => other.clone(),
    }
}
