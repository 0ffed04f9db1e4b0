//! Shuffled sources: every row once, in an order that depends only on the source and the seed.

use std::sync::Arc;

use arrow::array::{AsArray as _, RecordBatch};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Int64Type};
use shardmill_source::{Source, SourceOptions, open, shuffled};
use tempfile::TempDir;

const ROWS: usize = 20_000;

fn source(folder: &TempDir) -> Arc<dyn Source> {
    for file in 0..4 {
        let rows = (0..ROWS / 4).map(|row| {
            let id = file * (ROWS / 4) + row;
            format!(
                "{{\"id\":{id},\"text\":\"{}\",\"list\":[{id},{id}]}}\n",
                "x".repeat(id % 50)
            )
        });
        let path = folder.path().join(format!("{file}.jsonl"));
        std::fs::write(path, rows.collect::<String>()).unwrap();
    }
    open(
        &[folder.path().to_path_buf().into()],
        &SourceOptions::default(),
    )
    .unwrap()
}

fn rows_of(source: &dyn Source) -> RecordBatch {
    let mut batches = Vec::new();
    for unit in 0..source.units().len() {
        let mut rows = source.open_unit(unit).unwrap();
        while let Some(batch) = rows.next_batch().unwrap() {
            batches.push(batch);
        }
    }
    concat_batches(&source.schema(), &batches).unwrap()
}

fn shuffled_rows(
    source: &Arc<dyn Source>,
    seed: u64,
    jobs: usize,
    memory: Option<u64>,
) -> RecordBatch {
    let mut options = SourceOptions::default().resources;
    options.jobs = jobs;
    options.memory_limit = memory;
    rows_of(shuffled(Arc::clone(source), seed, &options).as_ref())
}

#[test]
fn every_row_occurs_once_in_a_random_order() {
    let folder = TempDir::new().unwrap();
    let source = source(&folder);
    let rows = shuffled_rows(&source, 7, 2, None);
    let ids = rows
        .column_by_name("id")
        .unwrap()
        .as_primitive::<Int64Type>()
        .values();
    let texts = cast(rows.column_by_name("text").unwrap(), &DataType::Utf8).unwrap();
    let texts = texts.as_string::<i32>();
    let mut seen = ids.to_vec();
    for (id, text) in ids.iter().zip(texts) {
        assert_eq!(text.unwrap().len(), usize::try_from(*id).unwrap() % 50);
    }
    // Neighbours of the source are far apart: the mean distance in a random order is a third of all rows.
    let distances = ids.windows(2).map(|pair| pair[0].abs_diff(pair[1]));
    let mean = distances.sum::<u64>() as usize / ROWS;
    assert!((ROWS / 4..ROWS / 2).contains(&mean), "{mean}");
    seen.sort_unstable();
    assert!(seen.iter().copied().eq(0..ROWS as i64));
}

#[test]
fn shuffled_order_depends_only_on_the_seed() {
    let folder = TempDir::new().unwrap();
    let source = source(&folder);
    let rows = shuffled_rows(&source, 7, 1, None);
    assert_eq!(rows, shuffled_rows(&source, 7, 3, None));
    // With the least memory, files are divided several times.
    assert_eq!(rows, shuffled_rows(&source, 7, 2, Some(1)));
    assert_ne!(rows.column(0), shuffled_rows(&source, 8, 1, None).column(0));
}

#[test]
fn cancelled_shuffle_can_be_run_again() {
    let folder = TempDir::new().unwrap();
    let source = source(&folder);
    let shuffled = shuffled(source, 7, &SourceOptions::default().resources);
    assert!(!shuffled.prepare(&|| false).unwrap());
    assert!(shuffled.prepare(&|| true).unwrap());
    assert_eq!(rows_of(shuffled.as_ref()).num_rows(), ROWS);
}

#[test]
fn missing_temporary_folder_is_an_error() {
    let folder = TempDir::new().unwrap();
    let source = source(&folder);
    let mut options = SourceOptions::default().resources;
    options.temp_dir = Some(folder.path().join("missing"));
    let error = shuffled(source, 7, &options).open_unit(0).err().unwrap();
    assert!(
        error.to_string().contains("make a temporary file in"),
        "{error}"
    );
}
