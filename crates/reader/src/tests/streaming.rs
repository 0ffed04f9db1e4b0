//! Tests of reading local datasets in batches.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use shardmill_core::Error;
use shardmill_order::{EpochConfig, ShuffleAlgo, Weight, World};
use shardmill_storage::{Location, RemoteOptions};
use shardmill_testing::draw::Draw;
use shardmill_testing::mds::{RawShard, Spec, sample};
use shardmill_testing::s3::{Objects, S3Server, Settings};
use shardmill_webdataset::TarCompression;
use tempfile::TempDir;

use crate::batch::slice_of;
use crate::tests::tars::TarSet;
use crate::{Batch, BatchData, BatchOptions, Cancel, Reader, ReaderOptions};
use shardmill_dataset::{Dataset, OpenOptions as DatasetOptions, StreamOptions};

/// The format of the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Two columns of fixed size.
    Fixed,
    /// Two columns of text around a number.
    Mixed,
    /// The same as `Mixed`, compressed.
    Zipped,
    /// Lines of JSON.
    Json,
    /// Tar files with tables of offsets.
    Tar,
    /// Tar files without tables of offsets.
    BareTar,
    /// Tar files compressed with zstd, whose samples have different fields.
    ZstdTar,
    /// Tar files compressed with gzip.
    GzipTar,
}

pub(super) const KINDS: [Kind; 8] = [
    Kind::Fixed,
    Kind::Mixed,
    Kind::Zipped,
    Kind::Json,
    Kind::Tar,
    Kind::BareTar,
    Kind::ZstdTar,
    Kind::GzipTar,
];

impl Kind {
    fn spec(self) -> Spec {
        match self {
            Self::Fixed => Spec::mds(&[("id", "int", Some(8)), ("x", "ndarray:uint16:3", Some(6))]),
            Self::Mixed => Spec::mds(&[
                ("a", "str", None),
                ("id", "int", Some(8)),
                ("z", "bytes", None),
            ]),
            Self::Zipped => Self::Mixed.spec().with("compression", "zstd:3"),
            Self::Json => Spec::json(&[("id", "int")]),
            _ => unreachable!("of tar files"),
        }
    }

    fn tar(self) -> Option<TarSet> {
        let set = match self {
            Self::Tar => TarSet::default(),
            Self::BareTar => TarSet {
                offsets: false,
                ..TarSet::default()
            },
            Self::ZstdTar => TarSet {
                compression: Some(TarCompression::Zstd { level: 3 }),
                ..TarSet::default()
            },
            Self::GzipTar => TarSet {
                compression: Some(TarCompression::Gzip { level: 6 }),
                offsets: false,
            },
            _ => return None,
        };
        Some(set)
    }

    /// Returns the fields of a sample of a tar file.
    fn fields(self, id: u64) -> Vec<(&'static str, Vec<u8>)> {
        let text = format!("sample {id} ").repeat(usize::try_from(id % 5).unwrap());
        let bytes = usize::try_from(id * 71 % 3000).unwrap();
        let mut fields = vec![
            ("txt", text.into_bytes()),
            ("bin", vec![id.to_le_bytes()[0]; bytes]),
        ];
        if self == Self::ZstdTar && id.is_multiple_of(3) {
            fields.insert(0, ("cls", id.to_string().into_bytes()));
        }
        fields
    }

    pub(super) fn sample(self, id: u64) -> Vec<u8> {
        let number = id.to_le_bytes();
        let text = format!("sample {id} ").repeat(usize::try_from(id % 5).unwrap());
        match self {
            Self::Fixed => sample(&[(true, &number), (true, &number[..6])]),
            Self::Mixed | Self::Zipped => sample(&[
                (false, text.as_bytes()),
                (true, &number),
                (
                    false,
                    &vec![number[0]; usize::try_from(id * 7 % 300).unwrap()],
                ),
            ]),
            Self::Json => format!("{{\"id\": {id}}}\n").into_bytes(),
            _ => {
                let key = format!("{id:08}");
                let mut fields = self.fields(id);
                fields.sort();
                let key = (false, key.as_bytes());
                let values = fields.iter().map(|(_, value)| (false, value.as_slice()));
                sample(&std::iter::once(key).chain(values).collect::<Vec<_>>())
            }
        }
    }

    /// Writes shards of these sizes; samples are numbered from `first` on.
    pub(super) fn write(self, dir: &Path, sizes: &[u64], first: u64) {
        let mut id = first;
        if let Some(set) = self.tar() {
            let mut shards = Vec::new();
            for size in sizes {
                let samples = (id..id + size).map(|id| (format!("{id:08}"), self.fields(id)));
                shards.push(samples.collect::<Vec<_>>());
                id += size;
            }
            set.write(dir, &shards);
            return;
        }
        let spec = self.spec();
        let shards: Vec<RawShard> = sizes
            .iter()
            .map(|size| {
                let samples: Vec<Vec<u8>> = (id..id + size).map(|id| self.sample(id)).collect();
                id += size;
                spec.shard(&samples)
            })
            .collect();
        spec.write(dir, &shards).unwrap();
    }
}

fn open(dirs: &[&Path]) -> Reader {
    let streams: Vec<StreamOptions> = dirs.iter().map(|dir| StreamOptions::local(*dir)).collect();
    Reader::open(&streams, &ReaderOptions::default()).unwrap()
}

/// Rebuilds the encoded samples of a batch from its columns; with windows of all columns, those of all offsets.
pub(super) fn encoded(batch: &Batch) -> Vec<Vec<u8>> {
    let offsets = batch.window.as_ref();
    let width = offsets.map_or(1, |own| own.window.offsets().len());
    let samples = batch.len() * width;
    match &batch.data {
        BatchData::Columns { schema, columns } => {
            assert_eq!(schema.names().len(), columns.len());
            let sample = |number: usize| {
                let values: Vec<(bool, &[u8])> = columns
                    .iter()
                    .map(|column| {
                        let fixed = matches!(column, crate::ColumnData::Fixed { .. });
                        (fixed, column.value(number).unwrap())
                    })
                    .collect();
                sample(&values)
            };
            (0..samples).map(sample).collect()
        }
        BatchData::Samples {
            offsets,
            bytes,
            schemas,
        } => {
            assert_eq!(schemas.len(), samples);
            (0..samples)
                .map(|number| {
                    slice_of(offsets, bytes.as_slice(), number)
                        .unwrap()
                        .to_vec()
                })
                .collect()
        }
    }
}

fn read_all(
    reader: &Reader,
    config: &EpochConfig,
    options: BatchOptions,
) -> Vec<(u64, Vec<u64>, Vec<Vec<u8>>)> {
    let mut batches = reader.epoch(config, options).unwrap();
    let mut all = Vec::new();
    while let Some(batch) = batches.next_batch().unwrap() {
        let ids = batch.entries.iter().map(|entry| entry.sample.0).collect();
        all.push((batch.step, ids, encoded(&batch)));
    }
    assert_eq!(all.len() as u64, batches.len());
    assert!(batches.next_batch().unwrap().is_none());
    all
}

fn temp() -> TempDir {
    tempfile::tempdir().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn batches_follow_the_epoch_order(
        kind in prop::sample::select(&KINDS[..]),
        sizes in prop::collection::vec(0_u64..40, 1..12),
        batch_size in 1_u64..20,
        threads in 0_usize..4,
        queue in 1_u64..9,
        shuffle in any::<bool>(),
        seed in 0_u64..1000,
    ) {
        prop_assume!(sizes.iter().sum::<u64>() > 0);
        let temp = temp();
        kind.write(temp.path(), &sizes, 0);
        let reader = open(&[temp.path()]);
        let mut config = reader.epoch_config(batch_size, World::SINGLE);
        config.shuffle.enabled = shuffle;
        config.shuffle.seed = seed;
        let epoch = shardmill_order::Epoch::new(&config).unwrap();
        let mut cursor = epoch.rank(0).unwrap();
        let mut entries = Vec::new();
        let options = BatchOptions { threads, queue, ..BatchOptions::default() };
        for (number, (step, ids, samples)) in read_all(&reader, &config, options).into_iter().enumerate() {
            prop_assert_eq!(step, number as u64);
            cursor.read(step, &mut entries);
            let expected: Vec<u64> = entries.iter().map(|entry| entry.sample.0).collect();
            prop_assert_eq!(&ids, &expected);
            for (id, found) in ids.iter().zip(samples) {
                prop_assert_eq!(found, kind.sample(*id));
            }
        }
    }
}

#[test]
fn range_read_returns_samples_with_those_ids() {
    for kind in KINDS {
        let temp = temp();
        kind.write(temp.path(), &[5, 0, 7], 0);
        let reader = open(&[temp.path()]);
        // An epoch that is being read is not disturbed.
        let config = reader.epoch_config(3, World::SINGLE);
        let mut batches = reader.epoch(&config, BatchOptions::default()).unwrap();
        let mut read = 0;
        let mut ranges = reader.ranges();
        for range in [0..12, 3..6, 11..12, 7..7] {
            let batch = ranges.read(range.clone(), &Cancel::default()).unwrap();
            let samples: Vec<_> = range.map(|id| kind.sample(id)).collect();
            assert_eq!(encoded(&batch), samples, "{kind:?}");
            read += batches.next_batch().unwrap().unwrap().len();
        }
        assert_eq!(read, 12);
        let error = ranges.read(9..13, &Cancel::default()).unwrap_err();
        assert_eq!(error.id(), "no-such-sample");
        assert_eq!(
            error.to_string(),
            "there is no sample 12: the streams have 12"
        );
        assert!(reader.raw_bytes() > 0);
    }
}

#[test]
fn single_sample_read_returns_its_bytes() {
    for kind in KINDS {
        let temp = temp();
        kind.write(temp.path(), &[5, 0, 7], 0);
        let reader = open(&[temp.path()]);
        assert_eq!(
            (reader.catalog().samples(), reader.catalog().len()),
            (12, 3)
        );
        let dataset = (kind.tar().is_none())
            .then(|| Dataset::open(temp.path(), &DatasetOptions::default()).unwrap());
        for id in [11, 0, 4, 5, 5] {
            assert_eq!(
                reader.sample(id).unwrap().bytes,
                kind.sample(id),
                "{kind:?} {id}"
            );
            if let Some(dataset) = &dataset {
                let sample = dataset.sample(id).unwrap();
                assert_eq!(sample.bytes().unwrap(), kind.sample(id));
            }
        }
        let error = reader.sample(12).unwrap_err();
        assert_eq!(error.id(), "no-such-sample");
    }
}

#[test]
fn streams_with_different_columns_are_read_correctly() {
    let (one, two) = (temp(), temp());
    Kind::Fixed.write(one.path(), &[20, 10], 0);
    Kind::Mixed.write(two.path(), &[15], 0);
    let reader = open(&[one.path(), two.path()]);
    assert!(reader.catalog().schemas().len() > 1);
    let mut config = reader.epoch_config(9, World::SINGLE);
    config.shuffle.enabled = true;
    let mut seen = 0;
    for (_, ids, samples) in read_all(&reader, &config, BatchOptions::default()) {
        for (id, found) in ids.into_iter().zip(samples) {
            let expected = match id.checked_sub(30) {
                None => Kind::Fixed.sample(id),
                Some(id) => Kind::Mixed.sample(id),
            };
            assert_eq!(found, expected, "{id}");
            seen += 1;
        }
    }
    assert_eq!(seen, 45);
    let schema = reader.schema(44).unwrap();
    assert_eq!(schema.names(), ["a", "id", "z"]);
}

#[test]
fn streams_with_equal_columns_share_one_schema() {
    let (one, two) = (temp(), temp());
    Kind::Mixed.write(one.path(), &[20, 10], 0);
    Kind::Zipped.write(two.path(), &[15], 30);
    let mut streams = vec![
        StreamOptions::local(one.path()),
        StreamOptions::local(two.path()),
    ];
    streams[0].weight = Weight::Repeat(0.5);
    let reader = Reader::open(&streams, &ReaderOptions::default()).unwrap();
    assert_eq!(reader.catalog().schemas().len(), 1);
    let config = reader.epoch_config(4, World::SINGLE);
    let all = read_all(&reader, &config, BatchOptions::default());
    let ids: Vec<u64> = all.iter().flat_map(|(_, ids, _)| ids.clone()).collect();
    assert_eq!(ids.len(), 30, "15 + 15 samples");
    for (_, ids, samples) in all {
        for (id, found) in ids.into_iter().zip(samples) {
            assert_eq!(found, Kind::Mixed.sample(id));
        }
    }
}

#[test]
fn workers_split_the_batches_of_their_rank() {
    let temp = temp();
    Kind::Mixed.write(temp.path(), &[30, 31, 40], 0);
    let reader = open(&[temp.path()]);
    for workers in [1, 2, 3, 5] {
        let world = World {
            nodes: 1,
            ranks_per_node: 2,
            workers_per_rank: workers,
        };
        let mut config = reader.epoch_config(4, world);
        config.shuffle.enabled = true;
        let single = {
            let mut config = config.clone();
            config.world.workers_per_rank = 1;
            read_all(
                &reader,
                &config,
                BatchOptions {
                    rank: 1,
                    ..BatchOptions::default()
                },
            )
        };
        let mut together = BTreeMap::new();
        for worker in 0..workers {
            let options = BatchOptions {
                rank: 1,
                worker,
                ..BatchOptions::default()
            };
            for (step, ids, _) in read_all(&reader, &config, options) {
                assert_eq!(step % workers, worker);
                assert!(together.insert(step, ids).is_none());
            }
        }
        let alone: BTreeMap<_, _> = single
            .into_iter()
            .map(|(step, ids, _)| (step, ids))
            .collect();
        assert_eq!(together, alone, "{workers} workers");
    }
}

#[test]
fn epoch_resumes_exactly_after_any_batch() {
    let temp = temp();
    Kind::Fixed.write(temp.path(), &[50, 47], 0);
    let reader = open(&[temp.path()]);
    let mut config = reader.epoch_config(3, World::SINGLE);
    config.shuffle.enabled = true;
    let whole: Vec<u64> = read_all(&reader, &config, BatchOptions::default())
        .into_iter()
        .flat_map(|(_, ids, _)| ids)
        .collect();
    for stop in 0..33 {
        let mut batches = reader.epoch(&config, BatchOptions::default()).unwrap();
        let mut ids = Vec::new();
        for _ in 0..stop {
            let batch = batches.next_batch().unwrap().unwrap();
            ids.extend(batch.entries.iter().map(|entry| entry.sample.0));
        }
        let mut resumed = config.clone();
        resumed.resume = Some(batches.state());
        drop(batches);
        for (_, more, _) in read_all(&reader, &resumed, BatchOptions::default()) {
            ids.extend(more);
        }
        assert_eq!(ids, whole, "stopped after {stop}");
    }
}

#[test]
fn next_epoch_shuffles_the_same_samples_differently() {
    let temp = temp();
    Kind::Fixed.write(temp.path(), &[64, 64], 0);
    let reader = open(&[temp.path()]);
    let mut config = reader.epoch_config(8, World::SINGLE);
    config.shuffle.enabled = true;
    let mut orders = Vec::new();
    for number in 0..3 {
        assert_eq!(config.epoch, number);
        let mut batches = reader.epoch(&config, BatchOptions::default()).unwrap();
        let mut ids = Vec::new();
        while let Some(batch) = batches.next_batch().unwrap() {
            ids.extend(batch.entries.iter().map(|entry| entry.sample.0));
        }
        config = batches.next_config();
        let mut sorted = ids.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..128).collect::<Vec<_>>());
        orders.push(ids);
    }
    assert!(orders[0] != orders[1] && orders[1] != orders[2]);
}

#[test]
fn dropping_batches_at_any_point_joins_the_threads() {
    let temp = temp();
    Kind::Mixed.write(temp.path(), &[100, 100, 100], 0);
    let reader = open(&[temp.path()]);
    let mut config = reader.epoch_config(2, World::SINGLE);
    config.shuffle.enabled = true;
    let mut draw = Draw::new(7);
    for round in 0..100_usize {
        let options = BatchOptions {
            threads: round % 4,
            queue: 1 + draw.below(20),
            ..BatchOptions::default()
        };
        let mut batches = reader.epoch(&config, options).unwrap();
        for _ in 0..draw.below(30) {
            batches.next_batch().unwrap();
        }
        // Dropping joins the threads, and would hang if one of them still waited.
        drop(batches);
    }
}

/// The kinds of shards that are read in place.
const IN_PLACE: [Kind; 3] = [Kind::Mixed, Kind::Tar, Kind::BareTar];

/// Returns the path of a shard.
fn shard(kind: Kind, dir: &Path, number: usize) -> PathBuf {
    dir.join(match kind.tar() {
        Some(_) => format!("shard-{number:06}.tar"),
        None => format!("shard.{number:05}.mds"),
    })
}

fn until_error(kind: Kind, reader: &Reader, mut spoil: impl FnMut()) -> Option<Error> {
    let config = reader.epoch_config(5, World::SINGLE);
    let options = BatchOptions {
        threads: 0,
        ..BatchOptions::default()
    };
    let mut batches = reader.epoch(&config, options).unwrap();
    for step in 0.. {
        if step == 2 {
            spoil();
        }
        match batches.next_batch() {
            Ok(Some(batch)) => {
                for (entry, found) in batch.entries.iter().zip(encoded(&batch)) {
                    assert_eq!(found, kind.sample(entry.sample.0), "a wrong sample");
                }
            }
            Ok(None) => return None,
            Err(error) => {
                assert!(
                    batches.next_batch().unwrap().is_none(),
                    "over after an error"
                );
                return Some(error);
            }
        }
    }
    None
}

#[test]
fn shard_truncated_while_reading_is_an_error() {
    for kind in IN_PLACE {
        let temp = temp();
        let whole = {
            kind.write(temp.path(), &[300], 0);
            fs::read(shard(kind, temp.path(), 0)).unwrap()
        };
        // Every length near the end, where no page vanishes, and some lengths across the file.
        let near = (1..300).map(|cut| whole.len() - cut);
        let far = (0..whole.len()).step_by(4099);
        for length in near.chain(far) {
            fs::write(shard(kind, temp.path(), 0), &whole).unwrap();
            let reader = open(&[temp.path()]);
            let error = until_error(kind, &reader, || {
                let file = OpenOptions::new()
                    .write(true)
                    .open(shard(kind, temp.path(), 0));
                file.unwrap()
                    .set_len(u64::try_from(length).unwrap())
                    .unwrap();
            });
            match error {
                Some(error) => assert_eq!(error.id(), "shard-changed", "cut to {length}: {error}"),
                // Only zeros are missing, and they were read as zeros.
                None => assert!(whole[length..].iter().all(|byte| *byte == 0), "{length}"),
            }
        }
    }
}

#[test]
fn shard_modified_in_place_is_an_error() {
    for kind in IN_PLACE {
        let temp = temp();
        kind.write(temp.path(), &[300], 0);
        let reader = open(&[temp.path()]);
        let mut config = reader.epoch_config(5, World::SINGLE);
        let read = |config: &EpochConfig| -> Result<EpochConfig, Error> {
            let mut batches = reader.epoch(config, BatchOptions::default())?;
            while batches.next_batch()?.is_some() {}
            Ok(batches.next_config())
        };
        config = read(&config).unwrap();
        let mut file = OpenOptions::new()
            .write(true)
            .open(shard(kind, temp.path(), 0))
            .unwrap();
        file.seek(SeekFrom::Start(5000)).unwrap();
        file.write_all(b"something else").unwrap();
        // Files are checked every second.
        let start = Instant::now();
        let error = loop {
            match read(&config) {
                Ok(next) => config = next,
                Err(error) => break error,
            }
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "the wait did not end"
            );
        };
        assert_eq!(error.id(), "shard-changed");
    }
}

#[test]
fn shard_replaced_while_open_is_still_read_completely() {
    for kind in IN_PLACE {
        let temp = temp();
        kind.write(temp.path(), &[300], 0);
        let reader = open(&[temp.path()]);
        let error = until_error(kind, &reader, || {
            let other = temp.path().join("other");
            fs::write(&other, vec![7; 10_000]).unwrap();
            fs::rename(other, shard(kind, temp.path(), 0)).unwrap();
        });
        assert!(error.is_none(), "{error:?}");
    }
}

#[test]
fn missing_or_damaged_shard_is_an_error_naming_the_file() {
    let kind = Kind::Mixed;
    let temp = temp();
    let write = || kind.write(temp.path(), &[100, 100], 0);
    let second = shard(kind, temp.path(), 1);
    let spoils: [(&str, &dyn Fn()); 4] = [
        ("shard-missing", &|| fs::remove_file(&second).unwrap()),
        ("shard-length", &|| fs::write(&second, b"short").unwrap()),
        ("shard-count", &|| {
            let mut bytes = fs::read(&second).unwrap();
            bytes[0] ^= 1;
            fs::write(&second, bytes).unwrap();
        }),
        ("shard-offsets", &|| {
            let mut bytes = fs::read(&second).unwrap();
            bytes[13] ^= 0x80;
            fs::write(&second, bytes).unwrap();
        }),
    ];
    for (id, spoil) in spoils {
        write();
        spoil();
        let reader = open(&[temp.path()]);
        let error = until_error(kind, &reader, || {}).unwrap();
        assert_eq!(error.id(), id, "{error}");
        assert!(
            error.object().unwrap().contains("shard.00001.mds"),
            "{error}"
        );
    }
}

#[test]
fn tombstones_without_provenance_in_a_store_are_an_error() {
    let root = temp();
    Kind::Zipped.write(&root.path().join("set"), &[100], 0);
    let list = r#"{"tombstones": 1, "count": 1, "samples": [[3, 4]]}"#;
    fs::write(root.path().join("set/index.tombstones"), list).unwrap();
    let server =
        S3Server::start(Objects::folder("bucket", root.path()), Settings::default()).unwrap();
    let local = temp();
    let options = ReaderOptions {
        remote: RemoteOptions {
            settings: server.environment(),
            ..RemoteOptions::default()
        },
        ..ReaderOptions::default()
    };
    let location = Location::parse("s3://bucket/set").unwrap();
    let mut stream = StreamOptions::remote(location, local.path().join("cache"));
    let error = Reader::open(std::slice::from_ref(&stream), &options).unwrap_err();
    assert_eq!(error.id(), "provenance-missing", "{}", error.chain());
    assert_eq!(error.object().unwrap(), "s3://bucket/set/index.provenance");
    // Reading the deleted samples as well needs no side files.
    stream.with_deleted = true;
    assert_eq!(
        Reader::open(&[stream], &options)
            .unwrap()
            .catalog()
            .samples(),
        100
    );
}

#[test]
fn missing_or_damaged_object_is_an_error_naming_the_url() {
    let root = temp();
    Kind::Zipped.write(&root.path().join("set"), &[100, 100], 0);
    let server =
        S3Server::start(Objects::folder("bucket", root.path()), Settings::default()).unwrap();
    let local = temp();
    let options = ReaderOptions {
        remote: RemoteOptions {
            settings: server.environment(),
            ..RemoteOptions::default()
        },
        ..ReaderOptions::default()
    };
    let failed = |remote: &str, local: &Path| {
        let location = Location::parse(remote).unwrap();
        let stream = StreamOptions::remote(location, local.to_owned());
        let sample = |reader: Reader| reader.sample(0).map(|_| ());
        let error = Reader::open(&[stream], &options)
            .and_then(sample)
            .expect_err(remote);
        (
            error.id(),
            error.object().unwrap().to_owned(),
            error.chain(),
        )
    };
    let name = "shard.00000.mds.zstd";
    let url = format!("s3://bucket/set/{name}");
    let path = root.path().join("set").join(name);
    fs::write(&path, b"short").unwrap();
    let (id, object, text) = failed("s3://bucket/set/", &local.path().join("a"));
    assert_eq!((id, object), ("body-length", url.clone()), "{text}");
    fs::remove_file(&path).unwrap();
    let (id, object, text) = failed("s3://bucket/set", &local.path().join("b"));
    assert_eq!((id, object), ("shard-missing", url), "{text}");
    assert!(!text.contains("times"), "{text}");
    let (id, object, text) = failed("s3://other/set", &local.path().join("c"));
    assert_eq!(
        (id, object.as_str()),
        ("not-found", "s3://other/set/index.json")
    );
    assert!(text.contains("no such bucket"), "{text}");
}

#[test]
fn invalid_stream_options_are_errors() {
    let temp = temp();
    let open = |streams: &[StreamOptions]| {
        let error = Reader::open(streams, &ReaderOptions::default()).unwrap_err();
        error.id()
    };
    assert_eq!(open(&[]), "config-streams");
    assert_eq!(open(&[StreamOptions::default()]), "config-streams");
    assert_eq!(open(&[StreamOptions::local(temp.path())]), "index-missing");
    let nowhere = temp.path().join("nowhere");
    assert_eq!(open(&[StreamOptions::local(nowhere)]), "index-missing");
    let mut split = StreamOptions::local(temp.path());
    split.split = Some("../train".to_owned());
    assert_eq!(open(&[split]), "path-traversal");
}

#[test]
fn invalid_epoch_configurations_are_errors() {
    let temp = temp();
    Kind::Fixed.write(temp.path(), &[10], 0);
    let reader = open(&[temp.path()]);
    let mut config = reader.epoch_config(3, World::SINGLE);
    config.num_canonical_nodes = Some(7);
    config.shuffle.algo = ShuffleAlgo::Py1e;
    config.batch_size = 0;
    let error = reader.epoch(&config, BatchOptions::default()).unwrap_err();
    assert_eq!(error.id(), "config-value", "{error:?}");
    config.batch_size = 3;
    let rank = BatchOptions {
        rank: 1,
        ..BatchOptions::default()
    };
    assert!(reader.epoch(&config, rank).is_err());
}
