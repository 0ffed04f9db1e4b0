//! Tests files that do not match the index.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use shardmill_core::{Diagnostic, ErrorKind, Format, Progress};
use shardmill_dataset::{Dataset, OpenOptions, VerifyOptions, verify};
use shardmill_mds::HashAlgo;

use crate::support::{Fixture, id, ids, make_fifo, mds, must_not_block, poke, resize, text};

/// Every bit of every file, one after the other.
fn flip_every_bit(fixture: &Fixture, files: &[&str]) {
    for file in files {
        let path = fixture.path(file);
        let sound = fs::read(&path).unwrap();
        let dataset = fixture.open();
        for bit in 0..sound.len() * 8 {
            poke(&path, bit / 8, &[sound[bit / 8] ^ (1 << (bit % 8))]);
            let report = verify(&dataset, &VerifyOptions::default(), &Progress::new()).unwrap();
            assert_eq!(
                ids(&report.problems),
                ["hash-mismatch", "hash-mismatch"],
                "{file} bit {bit}"
            );
            assert!(
                report
                    .problems
                    .iter()
                    .all(|problem| problem.object == *file)
            );
            assert_eq!((report.damaged_shards, report.shards), (1, 2));
            poke(&path, bit / 8, &sound[bit / 8..=bit / 8]);
        }
        assert!(fixture.verify(true).is_clean());
    }
}

#[test]
fn every_flipped_bit_is_detected() {
    let hashes = [HashAlgo::Sha256, HashAlgo::Xxh64];
    flip_every_bit(
        &Fixture::new(mds(None, &hashes), &[2, 3]),
        &["shard.00000.mds"],
    );
    flip_every_bit(
        &Fixture::new(mds(Some("zstd"), &hashes), &[2, 3]),
        &["shard.00001.mds.zstd"],
    );
    flip_every_bit(
        &Fixture::new(text(Format::Csv, None, &hashes), &[2, 3]),
        &["shard.00001.csv", "shard.00001.csv.meta"],
    );
}

/// Without a hash, a flipped bit may go unnoticed, but never makes anything but an error.
#[test]
fn flipped_bits_without_hashes_never_panic() {
    for (config, files) in [
        (mds(None, &[]), &["shard.00000.mds"][..]),
        (mds(Some("zstd"), &[]), &["shard.00000.mds.zstd"]),
        (mds(Some("gz"), &[]), &["shard.00000.mds.gz"]),
        (mds(Some("snappy"), &[]), &["shard.00000.mds.snappy"]),
        (mds(Some("br"), &[]), &["shard.00000.mds.br"]),
        (mds(Some("bz2"), &[]), &["shard.00000.mds.bz2"]),
        (
            text(Format::Json, None, &[]),
            &["shard.00000.json", "shard.00000.json.meta"],
        ),
        (
            text(Format::Xsv, None, &[]),
            &["shard.00000.xsv", "shard.00000.xsv.meta"],
        ),
    ] {
        let fixture = Fixture::new(config, &[3]);
        let mut found = 0;
        for file in files {
            let path = fixture.path(file);
            let sound = fs::read(&path).unwrap();
            for bit in 0..sound.len() * 8 {
                poke(&path, bit / 8, &[sound[bit / 8] ^ (1 << (bit % 8))]);
                let report = fixture.verify(true);
                found += usize::from(!report.is_clean());
                let dataset = fixture.open();
                for number in 0..3 {
                    if let Ok(sample) = dataset.sample(number) {
                        let _ = (sample.bytes().map(<[u8]>::len), sample.values().is_ok());
                    }
                }
                poke(&path, bit / 8, &sound[bit / 8..=bit / 8]);
            }
        }
        println!("{files:?}: {found} found");
        assert!(found > 100);
    }
}

#[test]
fn every_truncation_is_detected() {
    for (config, file) in [
        (mds(None, &[]), "shard.00000.mds"),
        (mds(Some("zstd"), &[]), "shard.00000.mds.zstd"),
        (text(Format::Json, None, &[]), "shard.00000.json"),
        (text(Format::Json, None, &[]), "shard.00000.json.meta"),
    ] {
        let fixture = Fixture::new(config, &[3, 1]);
        let path = fixture.path(file);
        let sound = fs::read(&path).unwrap();
        let dataset = fixture.open();
        let longer = [sound.len() + 100, sound.len() + 1];
        for len in longer.into_iter().chain((0..sound.len()).rev()) {
            resize(&path, len);
            let report = verify(&dataset, &VerifyOptions::default(), &Progress::new()).unwrap();
            assert_eq!(ids(&report.problems), ["shard-length"], "{file} {len}");
            let problem = &report.problems[0];
            assert_eq!(problem.object, file);
            assert_eq!(
                problem.message,
                format!(
                    "the file has {len} bytes, not {} as the index says",
                    sound.len()
                )
            );
            assert_eq!(id(dataset.shard(0)), "shard-length");
            assert_eq!(id(dataset.sample(0)), "shard-length");
        }
    }
}

/// The index was made to fit the short file.
#[test]
fn truncation_that_matches_the_index_is_detected() {
    for format in [Format::Mds, Format::Tsv] {
        for meta in [false, true] {
            if meta && format == Format::Mds {
                continue;
            }
            let config = if format == Format::Mds {
                mds(None, &[])
            } else {
                text(format, None, &[])
            };
            let mut fixture = Fixture::new(config, &[3]);
            let entry = &mut fixture.index.shards[0];
            let info = if meta {
                entry.raw_meta.as_mut().unwrap()
            } else {
                &mut entry.raw_data
            };
            let name = info.basename.to_string();
            let sound = fs::read(fixture.temp.path().join(&name)).unwrap();
            for len in 0..sound.len() {
                let entry = &mut fixture.index.shards[0];
                let info = if meta {
                    entry.raw_meta.as_mut().unwrap()
                } else {
                    &mut entry.raw_data
                };
                info.bytes = len as u64;
                fixture.write_index();
                fs::write(fixture.path(&name), &sound[..len]).unwrap();
                let Ok(dataset) = fixture.try_open(&OpenOptions::default()) else {
                    continue;
                };
                let report = verify(&dataset, &VerifyOptions::default(), &Progress::new()).unwrap();
                assert_eq!(report.problem_count, 1, "{name} {len}");
                let problem = &report.problems[0];
                assert!(
                    problem.id.starts_with("shard-") || problem.id.starts_with("sample-"),
                    "{problem:?}"
                );
                assert_eq!(problem.kind, ErrorKind::Corrupt, "{problem:?}");
                assert!(dataset.shard(0).is_err());
            }
        }
    }
}

#[test]
fn compressed_shards_are_checked_after_decompression() {
    let hashes = [HashAlgo::Sha256];
    let mut fixture = Fixture::new(mds(Some("zstd"), &hashes), &[3, 2]);
    // The index knows the hash of the compressed file, but another one for the raw bytes.
    let other = fixture.index.shards[1].raw_data.hashes.clone();
    let expected = std::mem::replace(&mut fixture.index.shards[0].raw_data.hashes, other);
    fixture.write_index();
    let report = fixture.verify(false);
    assert_eq!(ids(&report.problems), ["hash-mismatch"]);
    assert!(
        report.problems[0]
            .message
            .starts_with("after decompression the hash is wrong: sha256 is ")
    );
    fixture.index.shards[0].raw_data.hashes = expected;
    for (more, expected) in [(1_i64, "expands to"), (-1, "expands to")] {
        let bytes = fixture.index.shards[0].raw_data.bytes;
        fixture.index.shards[0].raw_data.bytes = bytes.checked_add_signed(more).unwrap();
        fixture.write_index();
        let report = fixture.verify(false);
        assert_eq!(report.problem_count, 1);
        assert_eq!(report.problems[0].kind, ErrorKind::Corrupt);
        assert!(
            report.problems[0].message.contains(expected),
            "{}",
            report.problems[0].message
        );
        assert_eq!(
            fixture.open().shard(0).unwrap_err().kind(),
            ErrorKind::Corrupt
        );
        fixture.index.shards[0].raw_data.bytes = bytes;
    }
}

#[test]
fn swapped_shards_are_detected() {
    let hashes = [HashAlgo::Blake2s];
    for (config, shards, expected) in [
        (mds(None, &hashes), [7, 7], "hash-mismatch"),
        (mds(None, &[]), [2, 3], "shard-length"),
        (mds(Some("zstd"), &hashes), [2, 3], "shard-length"),
    ] {
        let fixture = Fixture::new(config, &shards);
        let names: Vec<PathBuf> = fixture
            .index
            .shards
            .iter()
            .map(|entry| fixture.path(&entry.stored().next().unwrap().basename))
            .collect();
        let parked = fixture.path("parked");
        fs::rename(&names[0], &parked).unwrap();
        fs::rename(&names[1], &names[0]).unwrap();
        fs::rename(&parked, &names[1]).unwrap();
        let report = fixture.verify(true);
        assert_eq!(ids(&report.problems), [expected; 2]);
        assert_eq!(
            report.problems.iter().map(|p| p.shard).collect::<Vec<_>>(),
            [Some(0), Some(1)]
        );
    }
}

#[test]
fn shard_with_other_columns_or_count_is_detected() {
    let fixture = Fixture::new(mds(None, &[]), &[3]);
    // As long as the other, but one sample less.
    let path = fixture.path("shard.00000.mds");
    let sound = fs::read(&path).unwrap();
    let mut bytes = sound.clone();
    bytes[0] = 2;
    fs::write(&path, &bytes).unwrap();
    assert_eq!(ids(&fixture.verify(false).problems), ["shard-count"]);
    assert_eq!(id(fixture.open().sample(0)), "shard-count");
    let at = sound
        .windows(5)
        .position(|window| window == b"int32")
        .unwrap();
    let mut bytes = sound;
    bytes[at..at + 5].copy_from_slice(b"uint8");
    fs::write(&path, &bytes).unwrap();
    assert_eq!(ids(&fixture.verify(false).problems), ["shard-config"]);
    assert_eq!(id(fixture.open().sample(0)), "shard-config");
}

#[test]
fn missing_shard_error_names_its_samples() {
    let fixture = Fixture::new(mds(Some("zstd"), &[]), &[3, 4, 1, 0]);
    for (shard, words) in [(1, "samples 3 to 6"), (2, "sample 7"), (3, "no samples")] {
        let path = fixture.path(&format!("shard.0000{shard}.mds.zstd"));
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let error = fixture.open().shard(shard).unwrap_err();
        assert_eq!(
            (error.id(), error.kind()),
            ("shard-missing", ErrorKind::Corrupt)
        );
        assert_eq!(
            error.object().unwrap(),
            format!("shard.0000{shard}.mds.zstd")
        );
        assert_eq!(
            error.to_string(),
            format!("the file is missing, and with it {words}")
        );
        assert_eq!(ids(&fixture.verify(true).problems), ["shard-missing"]);
        fs::write(&path, bytes).unwrap();
    }
}

#[test]
fn shard_without_data_or_meta_file_is_missing() {
    for compression in [None, Some("gz")] {
        let fixture = Fixture::new(text(Format::Csv, compression, &[]), &[2]);
        let stored: Vec<_> = fixture.index.shards[0]
            .stored()
            .map(|info| info.basename.clone())
            .collect();
        for name in stored {
            let bytes = fs::read(fixture.path(&name)).unwrap();
            fs::remove_file(fixture.path(&name)).unwrap();
            let report = fixture.verify(true);
            assert_eq!(
                (ids(&report.problems), report.problems[0].object.as_str()),
                (vec!["shard-missing"], &*name)
            );
            assert_eq!(id(fixture.open().sample(0)), "shard-missing");
            fs::write(fixture.path(&name), bytes).unwrap();
        }
    }
}

#[test]
fn irregular_shard_files_are_rejected_without_blocking() {
    type Make = fn(&std::path::Path);
    let kinds: [(&str, Make); 4] = [
        ("path-symlink", |path| {
            let real = path.with_extension("real");
            fs::rename(path, &real).unwrap();
            symlink(&real, path).unwrap();
        }),
        ("path-not-a-file", |path| {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
        }),
        ("path-not-a-file", |path| {
            fs::remove_file(path).unwrap();
            make_fifo(path);
        }),
        ("path-symlink", |path| {
            fs::remove_file(path).unwrap();
            symlink("/dev/zero", path).unwrap();
        }),
    ];
    for compression in [None, Some("zstd")] {
        for (expected, make) in kinds {
            let fixture = Fixture::new(mds(compression, &[]), &[2, 2]);
            let name = fixture.index.shards[1]
                .stored()
                .next()
                .unwrap()
                .basename
                .to_string();
            make(&fixture.path(&name));
            let root = fixture.temp.path().to_owned();
            let (report, shard, sample) = must_not_block(move || {
                let dataset = Dataset::open(&root, &OpenOptions::default()).unwrap();
                let report = verify(&dataset, &VerifyOptions::default(), &Progress::new()).unwrap();
                (
                    report,
                    dataset.shard(1).map(|_| ()),
                    dataset.sample(3).map(|_| ()),
                )
            });
            assert_eq!(ids(&report.problems), [expected]);
            assert_eq!(report.problems[0].object, name);
            assert_eq!(report.problems[0].shard, Some(1));
            assert_eq!((id(shard), id(sample)), (expected, expected));
        }
    }
}

#[test]
fn fifo_as_index_is_rejected_without_blocking() {
    let fixture = Fixture::new(mds(None, &[]), &[1]);
    fs::remove_file(fixture.path("index.json")).unwrap();
    make_fifo(&fixture.path("index.json"));
    for path in [fixture.temp.path().to_owned(), fixture.path("index.json")] {
        let opened = must_not_block(move || Dataset::open(&path, &OpenOptions::default()));
        assert_eq!(id(opened), "path-not-a-file");
    }
}

#[test]
fn shard_in_a_symlinked_folder_is_rejected() {
    let mut fixture = Fixture::new(mds(None, &[]), &[2]);
    let outside = tempfile::tempdir().unwrap();
    fs::rename(
        fixture.path("shard.00000.mds"),
        outside.path().join("shard.00000.mds"),
    )
    .unwrap();
    symlink(outside.path(), fixture.path("part")).unwrap();
    fixture.index.shards[0].raw_data.basename = "part/shard.00000.mds".into();
    fixture.write_index();
    assert_eq!(id(fixture.open().sample(0)), "path-symlink");
    assert_eq!(ids(&fixture.verify(false).problems), ["path-symlink"]);
}

/// The files of an open dataset are changed behind its back.
#[test]
fn change_while_reading_is_detected() {
    let fixture = Fixture::new(mds(None, &[]), &[3, 1]);
    let path = fixture.path("shard.00000.mds");
    let sound = fs::read(&path).unwrap();
    let dataset = fixture.open();
    dataset.sample(0).unwrap();
    let mut longer = sound.clone();
    longer.push(0);
    fs::write(&path, &longer).unwrap();
    assert_eq!(id(dataset.sample(1)), "file-changed");
    fs::write(&path, &sound[..sound.len() - 1]).unwrap();
    assert_eq!(id(dataset.sample(1)), "file-changed");
    assert_eq!(id(dataset.shard(0)), "shard-length");
    // Another file under the same name does not disturb the one that is open.
    fs::remove_file(&path).unwrap();
    fs::write(&path, &sound).unwrap();
    let dataset = fixture.open();
    dataset.sample(0).unwrap();
    fs::remove_file(&path).unwrap();
    dataset.sample(1).unwrap();
    assert_eq!(id(dataset.shard(0)), "shard-missing");
}
