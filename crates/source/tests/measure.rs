//! Benchmarks, on demand: `cargo nextest run --release -p shardmill-source --run-ignored only --no-capture measure`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use arrow::array::{ArrayRef, Int32Array, Int64Array, ListArray};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use shardmill_source::{Source, SourceKind, TreeGroup};

use crate::help::{TestDir, array, batch, open_one, open_with};

const ROWS: i32 = 20_000;
const LENGTH: i32 = 2048;

fn tokens(dir: &TestDir, name: &str, properties: WriterPropertiesBuilder) -> PathBuf {
    let mut state = 1_u32;
    let values: Int32Array = (0..ROWS * LENGTH)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) as i32 % 50_000
        })
        .collect();
    let offsets = OffsetBuffer::new(ScalarBuffer::from(
        (0..=ROWS).map(|row| row * LENGTH).collect::<Vec<_>>(),
    ));
    let item = Arc::new(Field::new_list_field(DataType::Int32, false));
    let list: ArrayRef = array(ListArray::new(item, offsets, Arc::new(values), None));
    let all = batch(vec![
        (
            "id",
            array(Int64Array::from_iter_values(0..i64::from(ROWS))),
        ),
        ("tokens", list),
    ]);
    dir.parquet(
        name,
        &all,
        properties.set_max_row_group_row_count(Some(2000)).build(),
    )
}

fn best<T>(times: usize, mut run: impl FnMut() -> T) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..times {
        let start = Instant::now();
        run();
        best = best.min(start.elapsed().as_secs_f64());
    }
    best
}

fn read_on(source: &Arc<dyn Source>, threads: usize) -> usize {
    let next = AtomicUsize::new(0);
    let rows = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let unit = next.fetch_add(1, Ordering::Relaxed);
                    if unit >= source.units().len() {
                        return;
                    }
                    let mut reader = source.open_unit(unit).unwrap();
                    while let Some(batch) = reader.next_batch().unwrap() {
                        rows.fetch_add(batch.num_rows(), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    rows.into_inner()
}

fn plain_reader(path: &Path, rows: usize) -> usize {
    let file = std::fs::File::open(path).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file)
        .unwrap()
        .with_batch_size(rows)
        .build()
        .unwrap();
    reader.map(|batch| batch.unwrap().num_rows()).sum()
}

#[test]
#[ignore = "prints figures"]
fn measure_decoding() {
    let dir = TestDir::new();
    let megabytes = f64::from(ROWS) * f64::from(LENGTH * 4 + 8) / 1e6;
    for (name, properties) in [
        (
            "plain",
            WriterProperties::builder().set_dictionary_enabled(false),
        ),
        ("dictionary", WriterProperties::builder()),
        (
            "zstd",
            WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())),
        ),
        (
            "snappy",
            WriterProperties::builder().set_compression(Compression::SNAPPY),
        ),
        (
            "gzip",
            WriterProperties::builder().set_compression(Compression::GZIP(Default::default())),
        ),
    ] {
        let path = tokens(&dir, &format!("{name}.parquet"), properties);
        let stored = std::fs::metadata(&path).unwrap().len() as f64 / 1e6;
        let source = open_one(&path);
        assert_eq!(read_on(&source, 1), ROWS as usize);
        let crate_small = best(3, || plain_reader(&path, 128));
        let crate_large = best(3, || plain_reader(&path, 1024));
        let one = best(3, || read_on(&source, 1));
        let two = best(3, || read_on(&source, 2));
        println!(
            "{name}: {megabytes:.0} MB decoded, {stored:.0} MB stored: parquet crate {:.0} (128 rows) {:.0} (1024 rows), one thread {:.0}, two {:.0} MB/s",
            megabytes / crate_small,
            megabytes / crate_large,
            megabytes / one,
            megabytes / two
        );
    }
    let path = tokens(
        &dir,
        "x.parquet",
        WriterProperties::builder().set_dictionary_enabled(false),
    );
    for (what, filter, select, sql) in [
        ("where", Some("id % 2 = 0"), None, None),
        ("select", None, Some("id, tokens, id * 2 AS twice"), None),
        (
            "sql",
            None,
            None,
            Some("SELECT id, tokens FROM source WHERE id % 2 = 0"),
        ),
    ] {
        let source = open_with(&path, |options| {
            options.query.filter = filter.map(str::to_owned);
            options.query.select = select.map(str::to_owned);
            options.query.sql = sql.map(str::to_owned);
        })
        .unwrap();
        println!(
            "{what}: one thread {:.0}, two {:.0} MB/s",
            megabytes / best(3, || read_on(&source, 1)),
            megabytes / best(3, || read_on(&source, 2))
        );
    }
}

#[test]
#[ignore = "prints figures"]
fn measure_opening_many_files() {
    let dir = TestDir::new();
    let columns = (0..50)
        .map(|number| {
            (
                format!("column_{number}"),
                array(Int64Array::from_iter_values(0..100)),
            )
        })
        .collect::<Vec<_>>();
    let all = batch(
        columns
            .iter()
            .map(|(name, values)| (name.as_str(), values.clone()))
            .collect(),
    );
    let bytes = crate::help::parquet_bytes(&all, WriterProperties::default());
    for number in 0..2000 {
        dir.write(&format!("d/{number:05}.parquet"), &bytes);
    }
    for jobs in [1, 2] {
        let seconds = best(3, || {
            open_with(&dir.path("d"), |options| options.resources.jobs = jobs).unwrap()
        });
        println!(
            "2000 files of 50 columns, {jobs} threads: {:.2} s, {:.0} µs a file",
            seconds,
            seconds / 2000.0 * 1e6
        );
    }
}

#[test]
#[ignore = "prints figures"]
fn measure_listing() {
    let root = std::env::var("HOME").unwrap() + "/.cargo/registry/src";
    for jobs in [1, 2] {
        let mut files = 0;
        let seconds = best(3, || {
            let source = open_with(Path::new(&root), |options| {
                options.kind = Some(SourceKind::Tree);
                options.tree.group = TreeGroup::File;
                options.tree.follow_links = true;
                options.resources.jobs = jobs;
            })
            .unwrap();
            files = source.description().tree.as_ref().unwrap().files;
        });
        println!(
            "{files} files listed and grouped by {jobs} threads: {seconds:.3} s, {:.0} files/s",
            files as f64 / seconds
        );
    }
    let seconds = best(3, || {
        shardmill_source::detect(&[Path::new(&root).into()], &Default::default()).unwrap()
    });
    println!("detected in {seconds:.3} s");
    let source = open_with(Path::new(&root), |options| {
        options.kind = Some(SourceKind::Tree);
        options.tree.group = TreeGroup::File;
        options.tree.follow_links = true;
    })
    .unwrap();
    let bytes = source.description().bytes as f64 / 1e6;
    for threads in [1, 2] {
        let seconds = best(3, || read_on(&source, threads));
        let rows = source.description().rows.unwrap() as f64;
        println!(
            "{bytes:.0} MB read by {threads} threads: {seconds:.2} s, {:.0} MB/s, {:.0} files/s",
            bytes / seconds,
            rows / seconds
        );
    }
}

#[test]
#[ignore = "prints figures"]
fn measure_text() {
    let dir = TestDir::new();
    let mut json = String::new();
    let mut csv = "id,text,score\n".to_owned();
    for row in 0..1_500_000 {
        json.push_str(&format!(
            "{{\"id\": {row}, \"text\": \"some text of row {row}\", \"score\": {}.5}}\n",
            row % 100
        ));
        csv.push_str(&format!("{row},some text of row {row},{}.5\n", row % 100));
    }
    for (name, text) in [("x.jsonl", &json), ("x.csv", &csv)] {
        let path = dir.write(name, text);
        let megabytes = text.len() as f64 / 1e6;
        let opening = best(2, || open_one(&path));
        let source = open_one(&path);
        println!(
            "{name}: {megabytes:.0} MB, opened in {opening:.2} s, read {:.0} MB/s by one thread, {:.0} by two",
            megabytes / best(2, || read_on(&source, 1)),
            megabytes / best(2, || read_on(&source, 2))
        );
    }
}
