use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;

use arrow::array::{ArrayRef, BinaryArray, Int32Array, RecordBatch, StringArray};
use arrow::datatypes::Schema;
use proptest::prelude::*;
use shardmill_core::{Error, ErrorKind, Format, Limits, Progress};
use shardmill_mds::{
    Column, Compression, Encoding, HashAlgo, Layout, ShardConfig, ShardEntry, ShardView,
    TextColumn, TextEncoding, hash_hex,
};
use shardmill_storage::{CancelToken, Destination, Dir, StorageError};
use shardmill_writer::{
    Base, Batches, Checkpoint, ColumnEncoder, DatasetIndex, Input, InputBatch, Output, Position,
    Resources, RowEncoder, RowNumbers, ShardEnds, ShardForm, ShardFormat, ShardRecord, Target,
    Written, default_target, run,
};

use crate::naive::{self, NaiveShard};

pub(crate) type Row = (i32, String, Vec<u8>);

/// Units of rows, in memory.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) units: Vec<Vec<Row>>,
    pub(crate) batch_rows: usize,
    pub(crate) fail_unit: Option<usize>,
}

/// The error of a unit that cannot be read.
pub(crate) fn broken(unit: usize) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        "broken",
        format!("unit {unit} is broken"),
    )
}

impl Input for Rows {
    fn units(&self) -> usize {
        self.units.len()
    }
    fn open(&self, unit: usize) -> Result<Box<dyn Batches>, Error> {
        let batches: Vec<RecordBatch> = self.units[unit]
            .chunks(self.batch_rows)
            .map(batch)
            .collect();
        let fail = (self.fail_unit == Some(unit)).then_some(unit);
        Ok(Box::new(UnitBatches {
            batches: batches.into_iter(),
            row: 0,
            fail,
        }))
    }
    fn row_origin(&self, unit: usize, row: u64) -> String {
        format!("row {row} of unit {unit}")
    }
}

struct UnitBatches {
    batches: std::vec::IntoIter<RecordBatch>,
    row: u64,
    fail: Option<usize>,
}

impl Batches for UnitBatches {
    fn next(&mut self) -> Result<Option<InputBatch>, Error> {
        let Some(batch) = self.batches.next() else {
            return self.fail.map_or(Ok(None), |unit| Err(broken(unit)));
        };
        let rows = RowNumbers::From(self.row);
        self.row += batch.num_rows() as u64;
        Ok(Some(InputBatch {
            split: 0,
            batch,
            rows,
            input_bytes: 0,
            dropped: 0,
        }))
    }
}

pub(crate) fn batch(rows: &[Row]) -> RecordBatch {
    let numbers = Int32Array::from_iter_values(rows.iter().map(|row| row.0));
    let texts = StringArray::from_iter_values(rows.iter().map(|row| &row.1));
    let blobs = BinaryArray::from_iter_values(rows.iter().map(|row| &row.2));
    RecordBatch::try_from_iter([
        ("z", Arc::new(numbers) as ArrayRef),
        ("text", Arc::new(texts) as ArrayRef),
        ("Blob", Arc::new(blobs) as ArrayRef),
    ])
    .unwrap()
}

pub(crate) struct Forgetful;

/// The shards of an index of MosaicML Streaming.
fn shards(index: &DatasetIndex) -> Vec<ShardEntry> {
    let entries = index.entries.iter();
    entries
        .map(|entry| entry.streaming().unwrap().clone())
        .collect()
}

impl Checkpoint for Forgetful {
    fn reusable(&self, _: usize, _: u64) -> Option<&ShardRecord> {
        None
    }
    fn resume_at(&self) -> Option<(u64, Position)> {
        None
    }
    fn published(&self, _: &ShardRecord, _: &mut CancelToken<'_>) -> Result<(), StorageError> {
        Ok(())
    }
}

fn encoder(schema: &Schema, config: &ShardConfig) -> RowEncoder {
    let text = |name: &str, columns: &[TextColumn]| {
        let column = columns.iter().find(|column| column.name == name);
        column.unwrap().encoding
    };
    let mut columns = Vec::new();
    for (at, field) in schema.fields().iter().enumerate() {
        if config.column_names().any(|name| name == field.name()) {
            let target = match &config.layout {
                Layout::Mds { .. } => default_target(field, ShardFormat::Mds).unwrap(),
                Layout::Json { columns, .. } => Target::Json(text(field.name(), columns)),
                Layout::Xsv { columns, .. } => Target::Xsv(text(field.name(), columns)),
            };
            columns.push(ColumnEncoder::compile(at, field, target, &Limits::default()).unwrap());
        }
    }
    columns.sort_by(|a, b| a.name().cmp(b.name()));
    RowEncoder::new(columns, &config.layout, 1 << 30)
}

fn mds_config(
    compression: Option<&str>,
    hashes: &[HashAlgo],
    limit: Option<u64>,
) -> Arc<ShardConfig> {
    let columns = vec![
        Column {
            name: "z".to_owned(),
            encoding: "int32".parse::<Encoding>().unwrap(),
        },
        Column {
            name: "text".to_owned(),
            encoding: Encoding::Str,
        },
        Column {
            name: "Blob".to_owned(),
            encoding: Encoding::Bytes,
        },
    ];
    let compression = compression.map(|text| text.parse::<Compression>().unwrap());
    Arc::new(ShardConfig::new_mds(columns, compression, hashes.to_vec(), limit).unwrap())
}

fn convert(
    input: &Rows,
    config: &Arc<ShardConfig>,
    jobs: usize,
    dir: &Dir,
    checkpoint: &dyn Checkpoint,
) -> Result<Written, Error> {
    let schema = batch(&[]).schema();
    let form = Arc::clone(config).into();
    convert_to(
        input,
        &encoder(&schema, config),
        form,
        jobs,
        dir,
        checkpoint,
    )
}

pub(crate) fn convert_to(
    input: &Rows,
    encoder: &RowEncoder,
    form: ShardForm,
    jobs: usize,
    dir: &Dir,
    checkpoint: &dyn Checkpoint,
) -> Result<Written, Error> {
    dir.make_dir("work").unwrap();
    let splits = [String::new()];
    let output = Output {
        destination: &Destination::Local(dir.clone()),
        temp_folder: "work",
        splits: &splits,
        form,
        ends: ShardEnds::Size,
        at: None,
        key_prefix: "",
    };
    let resources = Resources {
        jobs,
        budget_bytes: 1 << 16,
    };
    let base = Base::default();
    run(
        input,
        encoder,
        &output,
        base,
        resources,
        checkpoint,
        &Progress::new(),
    )
}

pub(crate) fn files(dir: &Dir) -> BTreeMap<String, Vec<u8>> {
    let names = dir
        .list()
        .unwrap()
        .into_iter()
        .filter(|name| name != "work");
    names
        .map(|name| {
            (
                name.clone(),
                dir.open_file(&name).unwrap().read_all(1 << 30).unwrap(),
            )
        })
        .collect()
}

fn mds_samples(input: &Rows) -> Vec<Vec<u8>> {
    let rows = input.units.iter().flatten();
    rows.map(|(z, text, blob)| {
        naive::mds_sample(&[
            (false, blob.clone()),
            (false, text.clone().into_bytes()),
            (true, z.to_le_bytes().to_vec()),
        ])
    })
    .collect()
}

pub(crate) fn rows() -> impl Strategy<Value = Rows> {
    let row = (
        any::<i32>(),
        "[a-zé]{0,40}",
        prop::collection::vec(any::<u8>(), 0..200),
    );
    let units = prop::collection::vec(prop::collection::vec(row, 0..60), 0..6);
    (units, 1_usize..20).prop_map(|(units, batch_rows)| Rows {
        units,
        batch_rows,
        fail_unit: None,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn mds_shards_match_the_reference_writer(input in rows(), limit in prop::option::of(1_u64..3000), jobs in 1_usize..5) {
        let config = mds_config(None, &[HashAlgo::Sha1, HashAlgo::Xxh64], limit);
        let root = tempfile::tempdir().unwrap();
        let dir = Dir::open(root.path()).unwrap();
        let written = convert(&input, &config, jobs, &dir, &Forgetful).unwrap();
        let expected = naive::write(Format::Mds, &config.to_json(), &[], limit, &mds_samples(&input), false);
        let files = files(&dir);
        prop_assert_eq!(files.len(), expected.len());
        for (number, NaiveShard { data, .. }) in expected.iter().enumerate() {
            let name = format!("shard.{number:05}.mds");
            prop_assert_eq!(files.get(&name), Some(data), "{}", name);
            let entry = &shards(&written.indexes[0])[number];
            prop_assert_eq!(entry.raw_data.bytes, data.len() as u64);
            for algo in [HashAlgo::Sha1, HashAlgo::Xxh64] {
                prop_assert_eq!(entry.raw_data.hashes.get(algo).unwrap().to_string(), hash_hex(algo, data));
            }
        }
    }

    #[test]
    fn text_shards_match_the_reference_writer(input in rows(), limit in prop::option::of(1_u64..2000), json in any::<bool>()) {
        let columns = vec![
            TextColumn { name: "z".to_owned(), encoding: TextEncoding::Int },
            TextColumn { name: "text".to_owned(), encoding: TextEncoding::Str },
        ];
        let config = if json {
            ShardConfig::new_json(columns, "\n", None, vec![], limit).unwrap()
        } else {
            ShardConfig::new_xsv(Format::Tsv, columns, "\n", None, None, vec![], limit).unwrap()
        };
        let config = Arc::new(config);
        let root = tempfile::tempdir().unwrap();
        let dir = Dir::open(root.path()).unwrap();
        convert(&input, &config, 2, &dir, &Forgetful).unwrap();
        let samples: Vec<Vec<u8>> = input.units.iter().flatten().map(|(z, text, _)| {
            if json {
                let mut quoted = Vec::new();
                shardmill_mds::write_json_string(text, &mut quoted);
                format!("{{\"text\": {}, \"z\": {z}}}\n", String::from_utf8(quoted).unwrap()).into_bytes()
            } else {
                format!("{text}\t{z}\n").into_bytes()
            }
        }).collect();
        let expected = naive::write(config.format(), &config.to_json(), &config.xsv_header(), limit, &samples, false);
        let files = files(&dir);
        prop_assert_eq!(files.len(), 2 * expected.len());
        for (number, NaiveShard { data, meta }) in expected.iter().enumerate() {
            let name = format!("shard.{number:05}.{}", config.format());
            prop_assert_eq!(files.get(&name), Some(data));
            prop_assert_eq!(files.get(&format!("{name}.meta")), meta.as_ref());
        }
    }
}

#[test]
fn first_oversized_sample_is_written_to_the_first_shard() {
    let input = Rows {
        units: vec![(0..3).map(|n| (n, "x".repeat(500), vec![7; 500])).collect()],
        batch_rows: 2,
        fail_unit: None,
    };
    let config = mds_config(None, &[], Some(10));
    let root = tempfile::tempdir().unwrap();
    let dir = Dir::open(root.path()).unwrap();
    let written = convert(&input, &config, 2, &dir, &Forgetful).unwrap();
    let shards = shards(&written.indexes[0]);
    let counts: Vec<u64> = shards.iter().map(|shard| shard.samples).collect();
    assert_eq!(counts, [1, 1, 1]);
}

/// Enough rows for several segments of a compressed shard.
fn large() -> Rows {
    let text = "shards of samples ".repeat(30);
    let unit = |unit: i32| {
        (0..3000)
            .map(|row| {
                (
                    unit * 10_000 + row,
                    format!("{row} {text}"),
                    vec![(row % 251) as u8; 3000],
                )
            })
            .collect()
    };
    Rows {
        units: (0..4).map(unit).collect(),
        batch_rows: 300,
        fail_unit: None,
    }
}

#[test]
fn compressed_shards_do_not_depend_on_thread_count() {
    let input = large();
    let config = mds_config(Some("zstd:1"), &[HashAlgo::Sha256], Some(20 << 20));
    let mut outputs = Vec::new();
    for jobs in [1, 2, 5] {
        let root = tempfile::tempdir().unwrap();
        let dir = Dir::open(root.path()).unwrap();
        let written = convert(&input, &config, jobs, &dir, &Forgetful).unwrap();
        for entry in shards(&written.indexes[0]) {
            let zip = entry.zip_data.as_ref().unwrap();
            let bytes = dir
                .open_file(&zip.basename)
                .unwrap()
                .read_all(1 << 30)
                .unwrap();
            assert_eq!(zip.bytes, bytes.len() as u64);
            zip.hashes.get(HashAlgo::Sha256).unwrap();
            assert_eq!(
                zip.hashes.get(HashAlgo::Sha256).unwrap().to_string(),
                hash_hex(HashAlgo::Sha256, &bytes)
            );
            let compression = config.compression.unwrap();
            let raw = compression
                .decompress(&bytes, Some(entry.raw_data.bytes), &Limits::default())
                .unwrap();
            assert_eq!(
                entry
                    .raw_data
                    .hashes
                    .get(HashAlgo::Sha256)
                    .unwrap()
                    .to_string(),
                hash_hex(HashAlgo::Sha256, &raw)
            );
            ShardView::open(&entry, &raw, None, &Limits::default()).unwrap();
        }
        assert!(shards(&written.indexes[0]).len() >= 2);
        outputs.push((files(&dir), written.indexes[0].to_json()));
    }
    assert!(outputs.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn every_compression_and_format_round_trips() {
    let input = Rows {
        units: vec![vec![
            (1, "one".to_owned(), vec![1; 500]),
            (2, "zwei".to_owned(), vec![]),
        ]],
        batch_rows: 1,
        fail_unit: None,
    };
    for compression in ["br:1", "bz2", "gz:6", "snappy", "zstd:19"] {
        for format in [Format::Mds, Format::Json, Format::Csv] {
            let zip = Some(compression.parse().unwrap());
            let text = || {
                vec![TextColumn {
                    name: "text".to_owned(),
                    encoding: TextEncoding::Str,
                }]
            };
            let config = match format {
                Format::Mds => mds_config(Some(compression), &[], None),
                Format::Json => {
                    Arc::new(ShardConfig::new_json(text(), "\n", zip, vec![], None).unwrap())
                }
                _ => Arc::new(
                    ShardConfig::new_xsv(format, text(), "\n", None, zip, vec![], None).unwrap(),
                ),
            };
            let root = tempfile::tempdir().unwrap();
            let dir = Dir::open(root.path()).unwrap();
            let written = convert(&input, &config, 2, &dir, &Forgetful).unwrap();
            let entry = &shards(&written.indexes[0])[0];
            let read = |zip: &shardmill_mds::FileInfo, raw: &shardmill_mds::FileInfo| {
                let bytes = dir
                    .open_file(&zip.basename)
                    .unwrap()
                    .read_all(1 << 20)
                    .unwrap();
                config
                    .compression
                    .unwrap()
                    .decompress(&bytes, Some(raw.bytes), &Limits::default())
                    .unwrap()
            };
            let data = read(entry.zip_data.as_ref().unwrap(), &entry.raw_data);
            let meta = entry
                .zip_meta
                .as_ref()
                .map(|zip| read(zip, entry.raw_meta.as_ref().unwrap()));
            let view = ShardView::open(entry, &data, meta.as_deref(), &Limits::default()).unwrap();
            assert_eq!(view.len(), 2, "{compression} {format}");
        }
    }
}

#[test]
fn first_unit_error_is_returned_and_temp_files_removed() {
    let mut input = large();
    input.fail_unit = Some(2);
    let config = mds_config(None, &[], Some(1 << 20));
    for jobs in [1, 3] {
        let root = tempfile::tempdir().unwrap();
        let dir = Dir::open(root.path()).unwrap();
        match convert(&input, &config, jobs, &dir, &Forgetful) {
            Err(error) if error == broken(2) => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(
            dir.open_dir("work").unwrap().list().unwrap(),
            Vec::<String>::new()
        );
    }
}

/// Remembers what was published, and reuses the given shards.
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) seen: Mutex<BTreeMap<u64, ShardRecord>>,
    pub(crate) known: BTreeMap<u64, ShardRecord>,
}

impl Checkpoint for Memory {
    fn reusable(&self, _: usize, shard: u64) -> Option<&ShardRecord> {
        self.known.get(&shard)
    }
    fn resume_at(&self) -> Option<(u64, Position)> {
        let last = (0_u64..)
            .take_while(|shard| self.known.contains_key(shard))
            .last()?;
        Some((last, self.known[&last].start))
    }
    fn published(&self, shard: &ShardRecord, _: &mut CancelToken<'_>) -> Result<(), StorageError> {
        let mut seen = self.seen.lock().unwrap();
        seen.insert(shard.shard, shard.clone());
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn resumed_run_with_reused_shards_gives_the_same_output(input in rows(), limit in 1_u64..2000, keep in any::<u64>()) {
        let config = mds_config(None, &[HashAlgo::Xxh64], Some(limit));
        let root = tempfile::tempdir().unwrap();
        let dir = Dir::open(root.path()).unwrap();
        let first = Memory::default();
        let whole = convert(&input, &config, 2, &dir, &first).unwrap();
        let expected = files(&dir);
        let mut known = first.seen.into_inner().unwrap();
        known.retain(|shard, _| (keep >> (shard % 64)) & 1 == 1 || keep % 3 == 0);
        for number in 0..shards(&whole.indexes[0]).len() as u64 {
            if !known.contains_key(&number) {
                dir.remove(&format!("shard.{number:05}.mds")).unwrap();
            }
        }
        let second = Memory { known: known.clone(), ..Memory::default() };
        let resumed = convert(&input, &config, 2, &dir, &second).unwrap();
        prop_assert_eq!(resumed.indexes[0].to_json(), whole.indexes[0].to_json());
        prop_assert_eq!(resumed.reused, known.len() as u64);
        prop_assert_eq!(files(&dir), expected);
    }
}

/// Comes to its end as no code should.
struct Panics;

impl Checkpoint for Panics {
    fn reusable(&self, _: usize, _: u64) -> Option<&ShardRecord> {
        None
    }
    fn resume_at(&self) -> Option<(u64, Position)> {
        None
    }
    fn published(&self, _: &ShardRecord, _: &mut CancelToken<'_>) -> Result<(), StorageError> {
        panic!("no shard is noted")
    }
}

/// Workers that have more shards than there is room for must not wait for the only publisher.
#[test]
fn panicking_publisher_ends_the_run_with_an_error() {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let rows = (0..2000).map(|n| (n, "text".to_owned(), vec![0; 100]));
        let input = Rows {
            units: vec![rows.collect()],
            batch_rows: 100,
            fail_unit: None,
        };
        let config = mds_config(None, &[], Some(1000));
        let root = tempfile::tempdir().unwrap();
        let dir = Dir::open(root.path()).unwrap();
        let outcome = convert(&input, &config, 2, &dir, &Panics);
        sender.send(outcome.map(|_| ())).unwrap();
    });
    let outcome = receiver.recv_timeout(std::time::Duration::from_secs(60));
    let error = outcome.expect("the run ends").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Bug);
}
