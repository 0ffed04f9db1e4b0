//! Tests opening datasets, and finding and reading samples.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use shardmill_core::{Diagnostic, ErrorKind, Format, Limits};
use shardmill_dataset::{Dataset, OpenOptions};
use shardmill_mds::{HashAlgo, SampleValue, TextValue, Value, hash_hex};

use crate::support::{Fixture, id, mds, sample, text, write_dataset};

const FORMATS: [Format; 5] = [
    Format::Mds,
    Format::Json,
    Format::Csv,
    Format::Tsv,
    Format::Xsv,
];

fn config(format: Format, compression: Option<&str>) -> shardmill_mds::ShardConfig {
    match format {
        Format::Mds => mds(compression, &[HashAlgo::Sha256]),
        format => text(format, compression, &[HashAlgo::Sha256]),
    }
}

#[test]
fn every_sample_is_read_in_all_formats_and_compressions() {
    for format in FORMATS {
        for compression in [
            None,
            Some("zstd"),
            Some("gz:6"),
            Some("br:4"),
            Some("bz2"),
            Some("snappy"),
        ] {
            let config = config(format, compression);
            let fixture = Fixture::new(config.clone(), &[0, 3, 1, 0, 4]);
            for validate_hash in [None, Some(HashAlgo::Sha256)] {
                let options = OpenOptions {
                    validate_hash,
                    ..OpenOptions::default()
                };
                let dataset = fixture.try_open(&options).unwrap();
                assert_eq!(dataset.len(), 8);
                for number in [7, 0, 1, 2, 3, 4, 3, 5, 6, 7] {
                    let (shard, at) = dataset.locate(number).unwrap();
                    let expected = sample(&config, number);
                    let alone = dataset.sample(number).unwrap();
                    assert_eq!(
                        alone.bytes().unwrap(),
                        expected,
                        "{format} {compression:?} {number}"
                    );
                    assert_eq!((alone.number(), alone.shard_number()), (number, shard));
                    assert_eq!(alone.config(), &config);
                    let shard = dataset.shard(shard).unwrap();
                    assert_eq!(shard.sample(at).unwrap(), expected);
                    assert_eq!(shard.first_sample() + at, number);
                    let values = alone.values().unwrap();
                    let names: Vec<_> = values.iter().map(|(name, _)| *name).collect();
                    assert_eq!(names, config.column_names().collect::<Vec<_>>());
                    let number = i64::try_from(number).unwrap();
                    let expected = match format {
                        Format::Mds => SampleValue::Mds(Value::I32(i32::try_from(number).unwrap())),
                        _ => SampleValue::Text(TextValue::Int(number)),
                    };
                    assert_eq!(values[0].1, expected);
                }
            }
        }
    }
}

#[test]
fn samples_are_located_past_empty_shards() {
    let fixture = Fixture::new(mds(None, &[]), &[0, 2, 0, 0, 1, 0]);
    let dataset = fixture.open();
    assert_eq!(dataset.locate(0).unwrap(), (1, 0));
    assert_eq!(dataset.locate(1).unwrap(), (1, 1));
    assert_eq!(dataset.locate(2).unwrap(), (4, 0));
    let error = dataset.locate(3).unwrap_err();
    assert_eq!(
        (error.id(), error.kind()),
        ("no-such-sample", ErrorKind::InvalidInput)
    );
    assert_eq!(error.to_string(), "there is no sample 3: the dataset has 3");
    assert_eq!(id(dataset.sample(u64::MAX)), "no-such-sample");
    assert_eq!(id(dataset.shard(6)), "no-such-shard");
    assert_eq!(id(dataset.shard(usize::MAX)), "no-such-shard");
    assert!(dataset.shard(5).unwrap().is_empty());
    assert_eq!(dataset.first_sample(5), 3);
    assert_eq!(dataset.first_sample(99), 3);
}

#[test]
fn dataset_opens_from_directory_or_index() {
    let fixture = Fixture::new(mds(None, &[]), &[2]);
    let elsewhere = tempfile::tempdir().unwrap();
    symlink(fixture.temp.path(), elsewhere.path().join("link")).unwrap();
    let other = fixture.path("other.json");
    fs::copy(fixture.path("index.json"), &other).unwrap();
    for path in [
        fixture.temp.path().to_owned(),
        fixture.path("index.json"),
        other,
        elsewhere.path().join("link"),
        elsewhere.path().join("link/index.json"),
    ] {
        let dataset = Dataset::open(&path, &OpenOptions::default()).unwrap();
        assert_eq!(dataset.sample(1).unwrap().number(), 1, "{path:?}");
        assert!(!dataset.is_empty());
    }
    let empty = Fixture::new(mds(None, &[]), &[]);
    assert!(empty.open().is_empty());
    assert_eq!(id(empty.open().sample(0)), "no-such-sample");
}

#[test]
fn missing_or_invalid_dataset_is_an_error() {
    let temp = tempfile::tempdir().unwrap();
    let open = |name: &str| Dataset::open(&temp.path().join(name), &OpenOptions::default());
    let error = open("").unwrap_err();
    assert_eq!(
        (error.id(), error.kind()),
        ("index-missing", ErrorKind::NotFound)
    );
    assert!(error.hint().unwrap().contains("index rebuild"));
    let error = open("nothing").unwrap_err();
    assert_eq!(
        (error.id(), error.kind()),
        ("not-found", ErrorKind::NotFound)
    );
    fs::create_dir(temp.path().join("d")).unwrap();
    fs::create_dir(temp.path().join("d/index.json")).unwrap();
    assert_eq!(id(open("d")), "path-not-a-file");
    fs::remove_dir(temp.path().join("d/index.json")).unwrap();
    symlink("../x", temp.path().join("d/index.json")).unwrap();
    assert_eq!(id(open("d")), "path-symlink");
    for (content, expected) in [
        (&b""[..], "index-empty"),
        (b"<!DOCTYPE html><html>", "index-not-json"),
        (b"{\"shards\": [", "index-truncated"),
        (b"{\"shards\": [], \"version\": 3}", "index-version"),
    ] {
        fs::write(temp.path().join("index.json"), content).unwrap();
        let error = open("").unwrap_err();
        assert_eq!(error.id(), expected);
        assert!(error.object().unwrap().ends_with("/index.json"));
    }
}

#[test]
fn expect_index_rejects_another_index() {
    let fixture = Fixture::new(mds(None, &[]), &[2]);
    let bytes = fs::read(fixture.path("index.json")).unwrap();
    let open = |expected: &str| {
        fixture.try_open(&OpenOptions {
            expect_index: Some(expected.to_owned()),
            ..OpenOptions::default()
        })
    };
    for algo in [HashAlgo::Sha256, HashAlgo::Blake2b, HashAlgo::Sha3_512] {
        open(&format!("{algo}:{}", hash_hex(algo, &bytes))).unwrap();
    }
    let right = hash_hex(HashAlgo::Sha256, &bytes);
    open(&format!("sha256:{}", right.to_uppercase())).unwrap();
    let wrong = hash_hex(HashAlgo::Sha256, b"");
    let error = open(&format!("sha256:{wrong}")).unwrap_err();
    assert_eq!(
        (error.id(), error.kind()),
        ("index-mismatch", ErrorKind::Corrupt)
    );
    assert_eq!(
        error.to_string(),
        format!("sha256 of the index is {right}, not {wrong} as requested")
    );
    for bad in [
        right.as_str(),
        "sha256",
        "sha256:",
        "sha256:12",
        &format!("md5:{}", hash_hex(HashAlgo::Md5, &bytes)),
        &format!("xxh3_128:{}", hash_hex(HashAlgo::Xxh3_128, &bytes)),
        &format!("sha999:{right}"),
    ] {
        let error = open(bad).unwrap_err();
        assert_eq!(
            (error.id(), error.kind()),
            ("config-expect-index", ErrorKind::InvalidInput),
            "{bad}"
        );
    }
}

#[test]
fn missing_validation_hash_is_an_error() {
    let fixture = Fixture::new(mds(None, &[HashAlgo::Xxh64]), &[2, 2]);
    let open = |algo| {
        fixture.try_open(&OpenOptions {
            validate_hash: Some(algo),
            ..OpenOptions::default()
        })
    };
    let error = open(HashAlgo::Sha1).unwrap_err();
    assert_eq!(
        (error.id(), error.kind()),
        ("hash-absent", ErrorKind::InvalidInput)
    );
    assert_eq!(error.object().unwrap(), "shard.00000.mds");
    let dataset = open(HashAlgo::Xxh64).unwrap();
    dataset.shard(1).unwrap();
    let path = fixture.path("shard.00001.mds");
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, &bytes).unwrap();
    let dataset = open(HashAlgo::Xxh64).unwrap();
    for error in [
        dataset.shard(1).unwrap_err(),
        dataset.sample(3).unwrap_err(),
    ] {
        assert_eq!(
            (error.id(), error.kind()),
            ("hash-mismatch", ErrorKind::Corrupt)
        );
        assert_eq!(error.object().unwrap(), "shard.00001.mds");
    }
    // Without a requested hash, whole shards are still compared, and single samples are read without a check.
    let error = fixture.open().shard(1).unwrap_err();
    assert_eq!(error.id(), "hash-mismatch");
    fixture.open().sample(3).unwrap();
}

#[test]
fn safety_limits_are_enforced() {
    let fixture = Fixture::new(mds(None, &[]), &[3]);
    let with = |name: &str, value: u64| {
        let mut limits = Limits::default();
        assert!(limits.set(name, value));
        fixture.try_open(&OpenOptions {
            limits,
            ..OpenOptions::default()
        })
    };
    let error = with("index-bytes", 10).unwrap_err();
    assert_eq!(error.id(), "limit-index-bytes");
    assert!(
        error
            .hint()
            .unwrap()
            .contains("--safety-limit index-bytes=")
    );
    assert_eq!(
        id(with("shard-bytes", 10).and_then(|dataset| dataset.shard(0).map(|_| ()))),
        "limit-shard-bytes"
    );
    let small = with("sample-bytes", 5).unwrap();
    assert_eq!(id(small.sample(0)), "limit-sample-bytes");
}

/// One sample of an uncompressed shard is read without the others: what is wrong with them does not matter.
#[test]
fn sample_is_read_without_its_whole_shard() {
    let fixture = Fixture::new(mds(None, &[]), &[5]);
    let path = fixture.path("shard.00000.mds");
    let mut bytes = fs::read(&path).unwrap();
    bytes[4 + 4 * 3..][..4].fill(0xff);
    fs::write(&path, &bytes).unwrap();
    let dataset = fixture.open();
    let config = mds(None, &[]);
    for number in [0, 1, 4] {
        assert_eq!(
            dataset.sample(number).unwrap().bytes().unwrap(),
            sample(&config, number)
        );
    }
    assert_eq!(id(dataset.sample(2)), "shard-offsets");
    assert_eq!(id(dataset.sample(3)), "shard-offsets");
    assert_eq!(id(dataset.shard(0)), "shard-offsets");
}

/// A sample that is damaged inside is named by its number in the dataset.
#[test]
fn damaged_sample_error_names_sample_and_column() {
    for compression in [None, Some("zstd")] {
        let temp = tempfile::tempdir().unwrap();
        let config = mds(compression, &[]);
        write_dataset(temp.path(), config.clone(), &[3]);
        let mut bad = sample(&config, 4);
        bad[0] = 200;
        let shared = Arc::new(config);
        let samples = [
            sample(&shared, 3),
            bad,
            crate::support::mds_sample(5, b"\xff", b"1"),
        ];
        let entry = crate::support::write_shard(temp.path(), 1, &shared, &samples);
        let mut index = shardmill_mds::Index::parse(
            &fs::read(temp.path().join("index.json")).unwrap(),
            &Limits::default(),
        )
        .unwrap();
        index.shards.push(entry);
        fs::write(temp.path().join("index.json"), index.to_json()).unwrap();

        let dataset = Dataset::open(temp.path(), &OpenOptions::default()).unwrap();
        let file = if compression.is_some() {
            "shard.00001.mds.zstd"
        } else {
            "shard.00001.mds"
        };
        let damaged = dataset.sample(4).unwrap();
        let error = damaged.fields().unwrap_err();
        assert_eq!(
            (error.id(), error.kind()),
            ("sample-truncated", ErrorKind::Corrupt)
        );
        assert_eq!(
            error.object().unwrap(),
            format!("{file} sample 4 column `b`")
        );
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains("of sample 4 "), "{source}");
        let damaged = dataset.sample(5).unwrap();
        damaged.fields().unwrap();
        let error = damaged.values().unwrap_err();
        assert_eq!(error.id(), "sample-utf8");
        assert_eq!(
            error.object().unwrap(),
            format!("{file} sample 5 column `b`")
        );
        let location = error.location().unwrap();
        assert_eq!(
            (location.sample, location.column.as_deref()),
            (Some(5), Some("b"))
        );
    }
}

#[test]
fn last_shard_is_reused() {
    let fixture = Fixture::new(mds(Some("zstd"), &[]), &[2, 2]);
    let dataset = fixture.open();
    let one = dataset.shard(1).unwrap();
    assert!(Arc::ptr_eq(&one, &dataset.shard(1).unwrap()));
    dataset.shard(0).unwrap();
    assert!(!Arc::ptr_eq(&one, &dataset.shard(1).unwrap()));
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let dataset = &dataset;
            scope.spawn(move || {
                for round in 0..200 {
                    let number = (round * 7 + thread) % 4;
                    let expected = sample(&mds(None, &[]), number);
                    assert_eq!(dataset.sample(number).unwrap().bytes().unwrap(), expected);
                }
            });
        }
    });
}
