//! Compares samples that are written one at a time with those of the simple writer.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, Int32Array, RecordBatch};
use proptest::prelude::*;
use shardmill_core::{ErrorKind, Format, Limits};
use shardmill_mds::{
    Column, Encoding, HashAlgo, Index, ShardConfig, TextColumn, TextEncoding, hash_hex,
};
use shardmill_storage::Dir;
use shardmill_writer::{
    ColumnEncoder, RowEncoder, SampleOptions, SampleWriter, ShardFormat, default_target,
};
use tempfile::TempDir;

use crate::naive;

fn options(jobs: usize) -> SampleOptions {
    SampleOptions {
        jobs,
        sample_limit: 1 << 30,
        durable: false,
    }
}

fn mds(compression: Option<&str>, hashes: &[HashAlgo], limit: Option<u64>) -> Arc<ShardConfig> {
    let column = |name: &str, encoding| Column {
        name: name.to_owned(),
        encoding,
    };
    let columns = vec![
        column("n", "int32".parse().unwrap()),
        column("blob", Encoding::Bytes),
    ];
    let compression = compression.map(|text| text.parse().unwrap());
    Arc::new(ShardConfig::new_mds(columns, compression, hashes.to_vec(), limit).unwrap())
}

fn text(format: Format, compression: Option<&str>, limit: Option<u64>) -> Arc<ShardConfig> {
    let columns = vec![TextColumn {
        name: "text".to_owned(),
        encoding: TextEncoding::Str,
    }];
    let compression = compression.map(|text| text.parse().unwrap());
    let hashes = vec![HashAlgo::Md5];
    Arc::new(match format {
        Format::Json => ShardConfig::new_json(columns, "\n", compression, hashes, limit).unwrap(),
        _ => ShardConfig::new_xsv(format, columns, "\n", None, compression, hashes, limit).unwrap(),
    })
}

fn writer(root: &TempDir, config: &Arc<ShardConfig>, jobs: usize) -> SampleWriter {
    let dir = Dir::open(root.path()).unwrap();
    SampleWriter::new(dir, Arc::clone(config), options(jobs))
}

fn write(samples: &[Vec<u8>], config: &Arc<ShardConfig>, jobs: usize) -> (TempDir, Index) {
    let root = tempfile::tempdir().unwrap();
    let mut writer = writer(&root, config, jobs);
    for sample in samples {
        writer.push(sample, &mut || true).unwrap();
    }
    assert_eq!(writer.samples(), samples.len() as u64);
    let index = writer.finish(&mut || true).unwrap();
    (root, index)
}

fn files(root: &TempDir) -> BTreeMap<String, Vec<u8>> {
    let dir = Dir::open(root.path()).unwrap();
    let names = dir.list().unwrap();
    names
        .into_iter()
        .map(|name| {
            let bytes = dir.open_file(&name).unwrap().read_all(1 << 30).unwrap();
            (name, bytes)
        })
        .collect()
}

/// Compares the folder with what the plain writer would leave there, compressed files after unpacking them.
fn check(root: &TempDir, index: &Index, config: &ShardConfig, samples: &[Vec<u8>]) {
    let format = config.format();
    let expected = naive::write(
        format,
        &config.to_json(),
        &config.xsv_header(),
        config.size_limit,
        samples,
        true,
    );
    let mut found = files(root);
    assert_eq!(
        found.remove("index.json").unwrap(),
        index.to_json().into_bytes()
    );
    assert_eq!(index.shards.len(), expected.len());
    for (entry, shard) in index.shards.iter().zip(&expected) {
        let pairs = [
            (Some(&entry.raw_data), &entry.zip_data, Some(&shard.data)),
            (
                entry.raw_meta.as_ref(),
                &entry.zip_meta,
                shard.meta.as_ref(),
            ),
        ];
        for (raw, zip, bytes) in pairs {
            assert_eq!(raw.is_some(), bytes.is_some());
            let (Some(raw), Some(bytes)) = (raw, bytes) else {
                continue;
            };
            let stored = found
                .remove(&*zip.as_ref().unwrap_or(raw).basename)
                .unwrap();
            let unpacked = match &config.compression {
                Some(compression) => compression
                    .decompress(&stored, Some(raw.bytes), &Limits::default())
                    .unwrap(),
                None => stored.clone(),
            };
            assert_eq!(&unpacked, bytes);
            for algo in &config.hashes {
                let digest = |info: &shardmill_mds::FileInfo| {
                    info.hashes.get(*algo).map(|digest| digest.to_string())
                };
                assert_eq!(digest(raw), Some(hash_hex(*algo, bytes)));
                if let Some(zip) = zip {
                    assert_eq!(digest(zip), Some(hash_hex(*algo, &stored)));
                }
            }
        }
    }
    assert_eq!(found.into_keys().collect::<Vec<_>>(), Vec::<String>::new());
}

fn samples() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(prop::collection::vec(any::<u8>(), 0..150), 0..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn sample_writer_mds_output_matches_the_reference_writer(samples in samples(), limit in prop::option::of(1_u64..3000), jobs in 1_usize..5) {
        let config = mds(None, &[HashAlgo::Sha256, HashAlgo::Xxh64], limit);
        let (root, index) = write(&samples, &config, jobs);
        check(&root, &index, &config, &samples);
    }

    #[test]
    fn sample_writer_text_output_matches_the_reference_writer(samples in samples(), limit in prop::option::of(1_u64..2000), json in any::<bool>(), zip in any::<bool>()) {
        let format = if json { Format::Json } else { Format::Csv };
        let config = text(format, zip.then_some("zstd:1"), limit);
        let (root, index) = write(&samples, &config, 2);
        check(&root, &index, &config, &samples);
    }
}

#[test]
fn oversized_first_sample_leaves_an_empty_shard() {
    let config = mds(None, &[], Some(10));
    let samples = vec![vec![7; 500]; 3];
    let (root, index) = write(&samples, &config, 2);
    check(&root, &index, &config, &samples);
    let counts: Vec<u64> = index.shards.iter().map(|shard| shard.samples).collect();
    assert_eq!(counts, [0, 1, 1, 1]);
}

#[test]
fn writer_without_samples_writes_only_an_index() {
    let (root, index) = write(&[], &mds(None, &[], None), 2);
    assert_eq!(index.to_json(), r#"{"shards": [], "version": 2}"#);
    assert_eq!(files(&root).into_keys().collect::<Vec<_>>(), ["index.json"]);
}

/// 40 MB that compress well, for shards of several segments and chunks.
fn large() -> Vec<Vec<u8>> {
    (0..4000_u32)
        .map(|n| [&n.to_le_bytes()[..], &[(n % 251) as u8; 10_000]].concat())
        .collect()
}

#[test]
fn output_does_not_depend_on_thread_count() {
    let samples = large();
    let config = mds(Some("zstd:1"), &[HashAlgo::Sha1], Some(18 << 20));
    let first = write(&samples, &config, 1);
    check(&first.0, &first.1, &config, &samples);
    for jobs in [2, 7] {
        let (root, _) = write(&samples, &config, jobs);
        assert!(files(&root) == files(&first.0), "{jobs} jobs");
    }
}

/// Bytes that no compression makes shorter.
fn noise(bytes: u32) -> Vec<u8> {
    let words = (0..bytes / 4).scan(1_u64, |state, _| {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        Some((*state >> 32) as u32)
    });
    words.flat_map(u32::to_le_bytes).collect()
}

#[test]
fn each_frame_is_shorter_than_all_following_frames_together() {
    // Pieces of 8 MiB: of noise, which stays as long as it is, and of nothing, which all but vanishes.
    let (dense, light) = (noise(4 << 20), vec![0; 4 << 20]);
    let config = mds(Some("zstd:1"), &[HashAlgo::Md5], None);
    for (pieces, expected) in [
        (&[1, 0, 0, 0][..], 2),
        (&[1, 1, 0, 0], 3),
        (&[0, 0, 1, 0, 0, 0], 4),
        (&[0, 1, 1, 1, 1], 5),
        (&[1, 0, 1, 0, 0, 0, 0], 4),
    ] {
        let halves = pieces.iter().flat_map(|piece| [*piece; 2]);
        let samples: Vec<Vec<u8>> = halves
            .map(|piece| {
                if piece == 1 {
                    dense.clone()
                } else {
                    light.clone()
                }
            })
            .collect();
        let (root, index) = write(&samples, &config, 2);
        check(&root, &index, &config, &samples);
        let file = &files(&root)["shard.00000.mds.zstd"];
        let starts: Vec<usize> = file
            .windows(4)
            .enumerate()
            .filter(|(_, bytes)| *bytes == [0x28, 0xb5, 0x2f, 0xfd])
            .map(|(at, _)| at)
            .collect();
        let ends = starts.iter().skip(1).copied().chain([file.len()]);
        let lengths: Vec<usize> = starts
            .iter()
            .zip(ends)
            .map(|(from, to)| to - from)
            .collect();
        // The header makes the last piece spill over.
        assert!(lengths.len().abs_diff(expected) <= 1, "{lengths:?}");
        for at in 0..lengths.len().saturating_sub(2) {
            assert!(lengths[at] < lengths[at + 1..].iter().sum(), "{lengths:?}");
        }
    }
}

#[test]
fn every_compression_round_trips() {
    let samples: Vec<Vec<u8>> = (0..40_u8).map(|n| vec![n; 300]).collect();
    for compression in ["br:1", "bz2", "gz:6", "snappy", "zstd:19"] {
        for config in [
            mds(Some(compression), &[HashAlgo::Xxh32], Some(4000)),
            text(Format::Tsv, Some(compression), Some(2000)),
        ] {
            let (root, index) = write(&samples, &config, 3);
            check(&root, &index, &config, &samples);
        }
    }
}

#[test]
fn durable_option_keeps_file_contents_and_permissions() {
    let samples = vec![vec![1; 100]; 50];
    let config = mds(None, &[HashAlgo::Sha256], Some(1000));
    let root = tempfile::tempdir().unwrap();
    let dir = Dir::open(root.path()).unwrap();
    let durable = SampleOptions {
        durable: true,
        ..options(2)
    };
    let mut writer = SampleWriter::new(dir, Arc::clone(&config), durable);
    for sample in &samples {
        writer.push(sample, &mut || true).unwrap();
    }
    let index = writer.finish(&mut || true).unwrap();
    check(&root, &index, &config, &samples);
    let expected = root.path().join("expected");
    std::fs::write(&expected, "").unwrap();
    let mode = |path| std::fs::metadata(path).unwrap().permissions();
    let (other, _) = write(&samples, &config, 2);
    for folder in [root.path(), other.path()] {
        for entry in std::fs::read_dir(folder).unwrap() {
            assert_eq!(mode(entry.unwrap().path()), mode(expected.clone()));
        }
    }
}

#[test]
fn dropped_writer_leaves_no_index_and_no_temporary_file() {
    let config = mds(Some("zstd:1"), &[], Some(1 << 20));
    for finish_some in [false, true] {
        let root = tempfile::tempdir().unwrap();
        let mut writer = writer(&root, &config, 3);
        for sample in &large()[..2000] {
            writer.push(sample, &mut || true).unwrap();
        }
        if finish_some {
            assert!(!writer.shards(&mut || true).unwrap().is_empty());
            writer.abort();
            let error = writer.push(b"x", &mut || true).unwrap_err();
            assert_eq!(
                (error.id(), error.kind()),
                ("writer-closed", ErrorKind::InvalidInput)
            );
        }
        drop(writer);
        for name in files(&root).keys() {
            assert!(name.starts_with("shard."), "{name}");
        }
    }
}

#[test]
fn existing_index_is_not_replaced() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("index.json"), "mine").unwrap();
    let mut writer = writer(&root, &mds(None, &[], None), 1);
    writer.push(b"12345678", &mut || true).unwrap();
    let error = writer.finish(&mut || true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(files(&root)["index.json"], b"mine");
    assert_eq!(
        writer.finish(&mut || true).unwrap_err().id(),
        "writer-closed"
    );
}

/// As when every rank of a job writes into the same folder.
#[test]
fn second_writer_in_the_same_folder_fails() {
    let root = tempfile::tempdir().unwrap();
    let config = mds(None, &[], Some(400));
    let sample = |n: u8| [&[n, 0, 0, 0][..], &[n; 100]].concat();
    for is_late in [true, false] {
        let mut first = writer(&root, &config, 2);
        let mut second = writer(&root, &config, 2);
        for n in 0..40 {
            first.push(&sample(n), &mut || true).unwrap();
        }
        let first_outcome = match is_late {
            true => first.finish(&mut || true).map(|_| ()),
            // Its shards but the last.
            false => first.shards(&mut || true).map(|_| ()),
        };
        first_outcome.unwrap();
        let pushed = (0..40).try_for_each(|n| second.push(&sample(100 + n), &mut || true));
        let error = pushed
            .and_then(|()| second.finish(&mut || true).map(|_| ()))
            .unwrap_err();
        assert_eq!((error.id(), error.kind()), ("exists", ErrorKind::Conflict));
        // Its threads end with it.
        drop(second);
        if !is_late {
            first.finish(&mut || true).unwrap();
        }
        let samples: Vec<Vec<u8>> = (0..40).map(sample).collect();
        let index = Index::parse(&files(&root)["index.json"], &Limits::default()).unwrap();
        check(&root, &index, &config, &samples);
        for name in files(&root).keys() {
            std::fs::remove_file(root.path().join(name)).unwrap();
        }
    }
}

/// One that begins while the other is at work takes none of its shards for leftovers.
#[test]
fn existing_shard_is_not_replaced() {
    let root = tempfile::tempdir().unwrap();
    let config = mds(None, &[], None);
    std::fs::write(root.path().join("shard.00000.mds"), "other").unwrap();
    let mut late = writer(&root, &config, 1);
    late.push(&[7; 104], &mut || true).unwrap();
    let error = late.finish(&mut || true).unwrap_err();
    assert_eq!((error.id(), error.kind()), ("exists", ErrorKind::Conflict));
    drop(late);
    let left = files(&root);
    assert_eq!(left.len(), 1);
    assert_eq!(left["shard.00000.mds"], b"other");
}

#[test]
fn background_failure_is_returned_and_closes_the_writer() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("gone");
    std::fs::create_dir(&path).unwrap();
    let dir = Dir::open(&path).unwrap();
    std::fs::remove_dir(&path).unwrap();
    let config = mds(None, &[], Some(100_000));
    let mut writer = SampleWriter::new(dir, config, options(2));
    let sample = vec![0; 50_000];
    let error = (0..10_000)
        .find_map(|_| writer.push(&sample, &mut || true).err())
        .unwrap();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert_eq!(
        writer.push(b"", &mut || true).unwrap_err().id(),
        "writer-closed"
    );
    assert!(writer.finish(&mut || true).is_err());
}

#[test]
fn oversized_sample_is_rejected_without_losing_samples() {
    let root = tempfile::tempdir().unwrap();
    let config = mds(None, &[], None);
    let small = SampleOptions {
        sample_limit: 10,
        ..options(1)
    };
    let dir = Dir::open(root.path()).unwrap();
    let mut writer = SampleWriter::new(dir, Arc::clone(&config), small);
    writer.push(&[1; 10], &mut || true).unwrap();
    let error = writer.push(&[2; 11], &mut || true).unwrap_err();
    assert_eq!(error.id(), "limit-sample-bytes");
    writer.begin().extend_from_slice(b"half of a sam");
    writer.begin().extend_from_slice(&[3; 9]);
    assert!(!writer.end().unwrap());
    let index = writer.finish(&mut || true).unwrap();
    check(&root, &index, &config, &[vec![1; 10], vec![3; 9]]);
}

#[test]
fn waiting_push_can_be_cancelled() {
    let root = tempfile::tempdir().unwrap();
    // Slow enough that the second shard has to wait.
    let config = mds(Some("br:11"), &[], Some(1 << 20));
    let mut writer = writer(&root, &config, 1);
    let noise: Vec<u8> = (0..1_u32 << 18)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    let mut cancel_calls = 0;
    let mut outcome = Ok(());
    for _ in 0..40 {
        outcome = writer.push(&noise, &mut || {
            cancel_calls += 1;
            false
        });
        if outcome.is_err() {
            break;
        }
    }
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Interrupted);
    assert_eq!(cancel_calls, 1);
    drop(writer);
    assert!(!files(&root).contains_key("index.json"));
}

#[test]
fn published_names_are_reported_once_with_data_before_meta() {
    let root = tempfile::tempdir().unwrap();
    let config = text(Format::Json, None, Some(1000));
    let mut writer = writer(&root, &config, 2);
    let published = writer.published();
    let names = std::thread::spawn(move || {
        std::iter::from_fn(|| published.next())
            .flatten()
            .collect::<Vec<String>>()
    });
    for _ in 0..100 {
        writer.push(&[b'x'; 100], &mut || true).unwrap();
    }
    let shards = writer.finish(&mut || true).unwrap().shards.len();
    let names = names.join().unwrap();
    assert_eq!((shards, names.len()), (10, 20));
    for pair in names.chunks(2) {
        assert_eq!(format!("{}.meta", pair[0]), pair[1]);
    }
}

#[test]
fn open_shard_reports_its_bytes_and_samples() {
    let root = tempfile::tempdir().unwrap();
    let config = mds(None, &[], Some(400));
    let header = 8 + config.to_json().len() as u64;
    let mut writer = writer(&root, &config, 1);
    assert_eq!(writer.open_bytes(&mut || true).unwrap(), header);
    for n in 0..30_u8 {
        writer.push(&[n; 20], &mut || true).unwrap();
    }
    let each = (400 - header) / 24;
    let open = 30 % each;
    assert_eq!(writer.open_bytes(&mut || true).unwrap(), header + 24 * open);
    let samples = writer.open_samples(&mut || true).unwrap();
    let first = 30 - open as u8;
    assert_eq!(
        samples,
        (first..30).map(|n| vec![n; 20]).collect::<Vec<_>>()
    );
    let shards = writer.shards(&mut || true).unwrap();
    assert_eq!(shards.len() as u64, 30 / each);
}

#[test]
fn batches_and_single_samples_can_be_mixed() {
    let config = mds(None, &[HashAlgo::Md5], Some(900));
    let numbers = Int32Array::from_iter_values(0..50);
    let blobs = BinaryArray::from_iter_values((0..50_u8).map(|n| vec![n; usize::from(n)]));
    let batch = RecordBatch::try_from_iter([
        ("n", Arc::new(numbers) as ArrayRef),
        ("blob", Arc::new(blobs)),
    ])
    .unwrap();
    let schema = batch.schema();
    let column = |at: usize| {
        let target = default_target(schema.field(at), ShardFormat::Mds).unwrap();
        ColumnEncoder::compile(at, schema.field(at), target, &Limits::default()).unwrap()
    };
    let encoder = RowEncoder::new(vec![column(1), column(0)], &config.layout, 1 << 20);
    let sample = |n: i32| {
        let blob = vec![n as u8; n as usize];
        naive::mds_sample(&[(false, blob), (true, n.to_le_bytes().to_vec())])
    };
    let root = tempfile::tempdir().unwrap();
    let mut writer = writer(&root, &config, 2);
    let describe_row = |row: usize| row.to_string();
    writer.push(&sample(100), &mut || true).unwrap();
    for part in [batch.slice(0, 20), batch.slice(20, 0), batch.slice(20, 30)] {
        writer
            .push_batch(&encoder, &part, describe_row, &mut || true)
            .unwrap();
    }
    writer.push(&sample(101), &mut || true).unwrap();
    assert_eq!(writer.samples(), 52);
    let index = writer.finish(&mut || true).unwrap();
    let expected: Vec<Vec<u8>> = std::iter::once(100)
        .chain(0..50)
        .chain([101])
        .map(sample)
        .collect();
    check(&root, &index, &config, &expected);
}

#[test]
fn batch_with_an_invalid_row_is_rejected_completely() {
    let config = mds(None, &[], None);
    let batch = RecordBatch::try_from_iter([
        (
            "n",
            Arc::new(Int32Array::from(vec![Some(1), None])) as ArrayRef,
        ),
        (
            "blob",
            Arc::new(BinaryArray::from_vec(vec![b"a", b"b"])) as ArrayRef,
        ),
    ])
    .unwrap();
    let schema = batch.schema();
    let column = |at: usize| {
        let target = default_target(schema.field(at), ShardFormat::Mds).unwrap();
        ColumnEncoder::compile(at, schema.field(at), target, &Limits::default()).unwrap()
    };
    let encoder = RowEncoder::new(vec![column(1), column(0)], &config.layout, 1 << 20);
    let root = tempfile::tempdir().unwrap();
    let mut writer = writer(&root, &config, 1);
    let describe_row = |row: usize| format!("row {row} of this batch");
    let error = writer
        .push_batch(&encoder, &batch, describe_row, &mut || true)
        .unwrap_err();
    assert_eq!(error.to_string(), "row 1 of this batch is null");
    assert_eq!(writer.finish(&mut || true).unwrap().samples(), 0);
}
