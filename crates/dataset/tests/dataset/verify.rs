//! Tests the report of `verify`.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use shardmill_core::{ErrorKind, Format, Progress};
use shardmill_dataset::{
    Dataset, DatasetError, MAX_FINDINGS, OpenOptions, VerifyOptions, merge_indexes, verify,
};
use shardmill_mds::{Column, HashAlgo, Index, ShardConfig};

use crate::support::{
    Fixture, id, ids, mds, mds_sample, raw_shard, sample, text, write_dataset, write_shard,
};

#[test]
fn intact_dataset_is_clean_and_counted() {
    let hashes = [HashAlgo::Sha1, HashAlgo::Sha256];
    let fixture = Fixture::new(mds(Some("zstd"), &hashes), &[3, 0, 4]);
    let progress = Progress::new();
    let options = VerifyOptions {
        deep: true,
        ..VerifyOptions::default()
    };
    let report = verify(&fixture.open(), &options, &progress).unwrap();
    assert!(report.is_clean() && report.kind().is_none());
    // No conversion has noted what the samples hold.
    assert_eq!(ids(&report.warnings), ["provenance-missing"]);
    assert_eq!(
        (report.shards, report.damaged_shards, report.read.files),
        (3, 0, 4)
    );
    assert_eq!(
        (report.samples, report.sound_samples, report.read.hashes),
        (7, 7, 3 * 2 * 2)
    );
    let raw: u64 = fixture
        .index
        .shards
        .iter()
        .map(|entry| entry.raw_data.bytes)
        .sum();
    let zip: u64 = fixture
        .index
        .shards
        .iter()
        .map(|entry| entry.zip_data.as_ref().unwrap().bytes)
        .sum();
    let index = fs::metadata(fixture.path("index.json")).unwrap().len();
    assert_eq!(
        (report.read.raw_bytes, report.read.stored_bytes),
        (raw, zip + index)
    );
    let snapshot = progress.snapshot();
    assert_eq!((snapshot.shards, snapshot.shards_total), (3, 3));
    assert_eq!((snapshot.samples, snapshot.samples_total), (7, 7));
    assert_eq!(
        (snapshot.input_bytes, snapshot.input_bytes_total),
        (zip, zip)
    );
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["problem_count"], 0);
    assert_eq!(json["deep"], true);
    assert!(
        Fixture::new(text(Format::Tsv, Some("gz"), &hashes), &[2, 2])
            .verify(true)
            .is_clean()
    );
}

#[test]
fn problems_are_listed_by_shard_for_any_thread_count() {
    let fixture = Fixture::new(mds(None, &[HashAlgo::Sha256]), &[2; 40]);
    let mut expected = Vec::new();
    for shard in [1, 7, 8, 21, 39] {
        let path = fixture.path(&format!("shard.{shard:05}.mds"));
        let id = match shard % 3 {
            0 => {
                fs::remove_file(path).unwrap();
                "shard-missing"
            }
            1 => {
                fs::write(path, b"short").unwrap();
                "shard-length"
            }
            _ => {
                let mut bytes = fs::read(&path).unwrap();
                bytes[20] ^= 1;
                fs::write(path, bytes).unwrap();
                "hash-mismatch"
            }
        };
        expected.push((Some(shard), id));
    }
    let dataset = fixture.open();
    let reports = [1, 2, 8, 0].map(|jobs| {
        let options = VerifyOptions {
            jobs,
            ..VerifyOptions::default()
        };
        verify(&dataset, &options, &Progress::new()).unwrap()
    });
    let found: Vec<_> = reports[0]
        .problems
        .iter()
        .map(|problem| (problem.shard, problem.id))
        .collect();
    assert_eq!(found, expected);
    assert!(reports.iter().all(|report| *report == reports[0]));
    assert_eq!(
        (reports[0].damaged_shards, reports[0].sound_samples),
        (5, 70)
    );
    assert_eq!(reports[0].kind(), Some(ErrorKind::Corrupt));
}

#[test]
fn invalid_values_are_found_only_by_deep_verify() {
    let temp = tempfile::tempdir().unwrap();
    let config = Arc::new(mds(None, &[HashAlgo::Xxh64]));
    let good = sample(&config, 1);
    let mut longer = good.clone();
    longer.push(7);
    let samples = [
        good.clone(),
        mds_sample(1, b"\xc3\x28", b"null"),
        mds_sample(2, b"", b"{\"a\": }"),
        mds_sample(3, b"\xff", b"\xff"),
        longer,
        good[..7].to_vec(),
        good,
    ];
    let first = write_shard(temp.path(), 0, &config, &[samples[0].clone()]);
    let second = write_shard(temp.path(), 1, &config, &samples);
    let index = Index {
        shards: vec![first, second],
    };
    fs::write(temp.path().join("index.json"), index.to_json()).unwrap();
    let dataset = Dataset::open(temp.path(), &OpenOptions::default()).unwrap();
    let run = |deep| {
        let options = VerifyOptions {
            deep,
            ..VerifyOptions::default()
        };
        verify(&dataset, &options, &Progress::new()).unwrap()
    };
    assert!(run(false).is_clean());
    let report = run(true);
    let found: Vec<_> = report
        .problems
        .iter()
        .map(|problem| {
            (
                problem.id,
                problem.sample.unwrap(),
                problem.column.as_deref(),
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            ("sample-utf8", 2, Some("b")),
            ("json-syntax", 3, Some("c")),
            ("sample-utf8", 4, Some("b")),
            ("sample-utf8", 4, Some("c")),
            ("sample-trailing", 5, None),
            ("sample-truncated", 6, None),
        ]
    );
    assert_eq!(
        report.problems[0].object,
        "shard.00001.mds sample 2 column `b`"
    );
    assert_eq!((report.damaged_shards, report.problem_count), (1, 6));
}

#[test]
fn image_of_another_format_is_a_warning() {
    let temp = tempfile::tempdir().unwrap();
    let column = Column {
        name: "image".to_owned(),
        encoding: "jpeg".parse().unwrap(),
    };
    let config = Arc::new(ShardConfig::new_mds(vec![column], None, vec![], None).unwrap());
    let png = b"\x89PNG\r\n\x1a\n and so on";
    let mut bytes = u32::try_from(png.len()).unwrap().to_le_bytes().to_vec();
    bytes.extend_from_slice(png);
    let entry = write_shard(temp.path(), 0, &config, &[bytes]);
    fs::write(
        temp.path().join("index.json"),
        Index {
            shards: vec![entry],
        }
        .to_json(),
    )
    .unwrap();
    let dataset = Dataset::open(temp.path(), &OpenOptions::default()).unwrap();
    let options = VerifyOptions {
        deep: true,
        ..VerifyOptions::default()
    };
    let report = verify(&dataset, &options, &Progress::new()).unwrap();
    assert!(report.is_clean());
    assert_eq!(ids(&report.warnings), ["image-magic", "provenance-missing"]);
}

#[test]
fn invalid_json_lines_are_found() {
    let temp = tempfile::tempdir().unwrap();
    let config = Arc::new(text(Format::Json, None, &[]));
    let samples = [
        sample(&config, 0),
        b"{\"a\": 1}\n".to_vec(),
        b"nonsense\n".to_vec(),
    ];
    let entry = write_shard(temp.path(), 0, &config, &samples);
    fs::write(
        temp.path().join("index.json"),
        Index {
            shards: vec![entry],
        }
        .to_json(),
    )
    .unwrap();
    let dataset = Dataset::open(temp.path(), &OpenOptions::default()).unwrap();
    let options = VerifyOptions {
        deep: true,
        ..VerifyOptions::default()
    };
    let report = verify(&dataset, &options, &Progress::new()).unwrap();
    let found: Vec<_> = report
        .problems
        .iter()
        .map(|problem| (problem.id, problem.sample))
        .collect();
    assert_eq!(
        found,
        [("sample-columns", Some(1)), ("sample-line", Some(2))]
    );
}

#[test]
fn problem_list_is_bounded_but_the_count_is_not() {
    let temp = tempfile::tempdir().unwrap();
    let config = Arc::new(mds(None, &[]));
    let bad = vec![mds_sample(1, b"\xff", b"1"); MAX_FINDINGS - 10];
    let shards = (0..3)
        .map(|number| write_shard(temp.path(), number, &config, &bad))
        .collect();
    fs::write(temp.path().join("index.json"), Index { shards }.to_json()).unwrap();
    let dataset = Dataset::open(temp.path(), &OpenOptions::default()).unwrap();
    let options = VerifyOptions {
        deep: true,
        ..VerifyOptions::default()
    };
    let report = verify(&dataset, &options, &Progress::new()).unwrap();
    assert_eq!(report.problem_count, 3 * (MAX_FINDINGS as u64 - 10));
    assert_eq!(report.problems.len(), MAX_FINDINGS);
    assert_eq!(
        report.problems.last().unwrap().sample,
        Some(MAX_FINDINGS as u64 - 1)
    );
}

#[test]
fn unlisted_files_are_warnings() {
    let fixture = Fixture::new(mds(Some("zstd"), &[]), &[1]);
    for name in [
        "stray.txt",
        "shard.00001.mds.zstd",
        ".hidden",
        "bad\u{1b}name",
    ] {
        fs::write(fixture.path(name), b"").unwrap();
    }
    fs::write(fixture.path("index.provenance"), b"{}").unwrap();
    for name in [".shardmill", "other"] {
        fs::create_dir(fixture.path(name)).unwrap();
        fs::write(fixture.path(name).join("x"), b"").unwrap();
    }
    symlink("stray.txt", fixture.path("link")).unwrap();
    let report = fixture.verify(false);
    assert!(report.is_clean());
    let found: Vec<_> = report
        .warnings
        .iter()
        .map(|warning| (warning.id, warning.object.as_str()))
        .collect();
    let names = [
        ".hidden",
        "bad\\u{1b}name",
        "link",
        "shard.00001.mds.zstd",
        "stray.txt",
    ];
    assert_eq!(found, names.map(|name| ("file-unlisted", name)));
    assert_eq!(
        report.warnings[2].message,
        "the index does not name this symbolic link"
    );
}

#[test]
fn folders_of_a_merged_index_are_checked() {
    let temp = tempfile::tempdir().unwrap();
    for part in ["x", "y/z"] {
        fs::create_dir_all(temp.path().join(part)).unwrap();
        write_dataset(&temp.path().join(part), mds(None, &[]), &[2, 1]);
    }
    let index = merge_indexes(temp.path(), &shardmill_core::Limits::default())
        .unwrap()
        .index;
    fs::write(temp.path().join("index.json"), index.to_merged_json()).unwrap();
    fs::write(temp.path().join("y/z/stray"), b"").unwrap();
    fs::write(temp.path().join("y/not-ours"), b"").unwrap();
    let dataset = Dataset::open(temp.path(), &OpenOptions::default()).unwrap();
    assert_eq!(dataset.len(), 6);
    assert_eq!(
        dataset.sample(5).unwrap().bytes().unwrap(),
        sample(&mds(None, &[]), 2)
    );
    let report = verify(&dataset, &VerifyOptions::default(), &Progress::new()).unwrap();
    assert!(report.is_clean());
    let objects: Vec<_> = report
        .warnings
        .iter()
        .map(|warning| warning.object.as_str())
        .collect();
    assert_eq!(objects, ["y/z/stray"]);
    fs::remove_file(temp.path().join("y/z/shard.00001.mds")).unwrap();
    let report = verify(&dataset, &VerifyOptions::default(), &Progress::new()).unwrap();
    assert_eq!(
        (report.problems[0].id, report.problems[0].object.as_str()),
        ("shard-missing", "y/z/shard.00001.mds")
    );
}

/// A raw file beside the compressed one is another reader's cache.
#[test]
fn raw_and_compressed_files_of_a_shard_are_checked() {
    let config = mds(Some("zstd"), &[HashAlgo::Sha256]);
    let fixture = Fixture::new(config.clone(), &[3]);
    let (raw, zip) = (
        fixture.path("shard.00000.mds"),
        fixture.path("shard.00000.mds.zstd"),
    );
    let samples: Vec<_> = (0..3).map(|n| sample(&config, n)).collect();
    let (data, _) = raw_shard(&config, &samples);
    let zipped = fs::read(&zip).unwrap();
    fs::write(&raw, &data).unwrap();
    let report = fixture.verify(true);
    assert!(report.is_clean());
    assert_eq!(ids(&report.warnings), ["provenance-missing"]);
    assert_eq!((report.read.files, report.read.hashes), (3, 3));

    // The cache is damaged: reading trusts its length, verifying does not.
    let mut damaged = data.clone();
    *damaged.last_mut().unwrap() ^= 1;
    fs::write(&raw, &damaged).unwrap();
    let report = fixture.verify(true);
    assert_eq!(ids(&report.problems), ["hash-mismatch"]);
    assert_eq!(report.problems[0].object, "shard.00000.mds");
    let strict = OpenOptions {
        validate_hash: Some(HashAlgo::Sha256),
        ..OpenOptions::default()
    };
    assert_eq!(
        id(fixture.try_open(&strict).unwrap().sample(0)),
        "hash-mismatch"
    );

    // Cut short, it is left alone.
    fs::write(&raw, &data[..50]).unwrap();
    assert_eq!(ids(&fixture.verify(true).problems), ["shard-length"]);
    assert_eq!(
        fixture.open().sample(2).unwrap().bytes().unwrap(),
        samples[2]
    );

    // And it is no help when it is all there is.
    fs::remove_file(&zip).unwrap();
    assert_eq!(ids(&fixture.verify(true).problems), ["shard-length"]);
    assert_eq!(id(fixture.open().sample(2)), "shard-length");
    assert_eq!(id(fixture.open().shard(0)), "shard-length");

    // Sound, it is enough.
    fs::write(&raw, &data).unwrap();
    let report = fixture.verify(true);
    assert!(report.is_clean());
    assert_eq!((report.read.files, report.sound_samples), (2, 3));
    for options in [OpenOptions::default(), strict] {
        let dataset = fixture.try_open(&options).unwrap();
        assert_eq!(dataset.sample(2).unwrap().bytes().unwrap(), samples[2]);
        assert_eq!(dataset.shard(0).unwrap().len(), 3);
    }

    // A damaged compressed file is reported although the cache is sound.
    let mut damaged = zipped;
    damaged[10] ^= 1;
    fs::write(&zip, damaged).unwrap();
    let report = fixture.verify(true);
    assert_eq!(ids(&report.problems), ["hash-mismatch"]);
    assert_eq!(report.problems[0].object, "shard.00000.mds.zstd");
}

#[test]
fn cancelled_verify_stops() {
    let fixture = Fixture::new(mds(None, &[]), &[2; 5]);
    let progress = Progress::new();
    progress.cancel();
    let result = verify(&fixture.open(), &VerifyOptions::default(), &progress);
    assert!(matches!(result, Err(DatasetError::Interrupted)));
}
