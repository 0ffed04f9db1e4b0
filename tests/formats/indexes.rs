//! Tests `index.json`: parsed and written again, merged, and compared with the files it names.

use std::collections::BTreeSet;
use std::fs;

use shardmill_core::{Diagnostic as _, ErrorKind, Format};
use shardmill_mds::{FileInfo, Index, ShardEntry, basename, hash_hex, read_config};

use crate::expected::is_unreadable;
use crate::fixtures::{self, Fixture, limits};

#[test]
fn every_index_round_trips_byte_for_byte() {
    for fixture in fixtures::accepted() {
        let bytes = fixture.index_bytes();
        let index = fixture.index();
        let printed = if fixture.is_merged() {
            index.to_merged_json()
        } else {
            index.to_json()
        };
        assert_eq!(
            printed,
            String::from_utf8(bytes).unwrap(),
            "{}",
            fixture.name
        );
    }
}

#[test]
fn index_without_samples_has_no_shards() {
    for format in Format::ALL {
        let index = fixtures::named(&format!("{format}-empty")).index();
        assert_eq!((index.shards.len(), index.samples()), (0, 0));
        assert_eq!(index.to_json(), r#"{"shards": [], "version": 2}"#);
    }
}

#[test]
fn index_sample_count_matches_the_fixture() {
    for fixture in fixtures::accepted() {
        assert_eq!(
            fixture.index().samples(),
            fixture.expected().len() as u64,
            "{}",
            fixture.name
        );
    }
}

fn stored(entry: &ShardEntry) -> impl Iterator<Item = &FileInfo> {
    let data = entry.zip_data.as_ref().unwrap_or(&entry.raw_data);
    [
        Some(data),
        entry.zip_meta.as_ref().or(entry.raw_meta.as_ref()),
    ]
    .into_iter()
    .flatten()
}

#[test]
fn file_names_match_the_naming_scheme() {
    for fixture in fixtures::accepted()
        .iter()
        .filter(|fixture| !fixture.is_merged())
    {
        let mut named = BTreeSet::new();
        for (number, entry) in fixture.index().shards.iter().enumerate() {
            let name = |meta, zip: bool| {
                let compression = entry.config.compression.as_ref().filter(|_| zip);
                basename(number as u64, entry.config.format(), meta, compression)
            };
            let found =
                |info: &Option<FileInfo>| info.as_ref().map(|info| info.basename.to_string());
            let (split, zip) = (
                entry.config.format().is_split(),
                entry.config.compression.is_some(),
            );
            assert_eq!(
                *entry.raw_data.basename,
                name(false, false),
                "{}",
                fixture.name
            );
            assert_eq!(
                found(&entry.zip_data),
                zip.then(|| name(false, true)),
                "{}",
                fixture.name
            );
            assert_eq!(
                found(&entry.raw_meta),
                split.then(|| name(true, false)),
                "{}",
                fixture.name
            );
            assert_eq!(
                found(&entry.zip_meta),
                (split && zip).then(|| name(true, true)),
                "{}",
                fixture.name
            );
            named.extend(stored(entry).map(|info| info.basename.to_string()));
        }
        assert_eq!(
            named.into_iter().collect::<Vec<_>>(),
            fixture.files(),
            "{}",
            fixture.name
        );
    }
}

#[test]
fn shard_numbers_have_at_least_five_digits() {
    let zstd = "zstd:7".parse().unwrap();
    assert_eq!(
        basename(99_999, Format::Mds, false, None),
        "shard.99999.mds"
    );
    assert_eq!(
        basename(100_000, Format::Tsv, true, Some(&zstd)),
        "shard.100000.tsv.meta.zstd"
    );
}

#[test]
fn file_lengths_and_hashes_match_the_index() {
    let mut algorithms = BTreeSet::new();
    for fixture in fixtures::accepted() {
        for shard in fixture.shards() {
            let entry = &shard.entry;
            let mut check = |info: &FileInfo, bytes: &[u8]| {
                assert_eq!(
                    info.bytes,
                    bytes.len() as u64,
                    "{}/{}",
                    fixture.name,
                    info.basename
                );
                let mut recorded = BTreeSet::new();
                for digest in info.hashes.iter() {
                    assert_eq!(
                        digest.to_string(),
                        hash_hex(digest.algo(), bytes),
                        "{}/{}",
                        fixture.name,
                        info.basename
                    );
                    recorded.insert(digest.algo());
                }
                assert_eq!(
                    recorded,
                    entry.config.hashes.iter().copied().collect(),
                    "{}",
                    fixture.name
                );
                algorithms.extend(recorded);
            };
            check(&entry.raw_data, &shard.data);
            if let (Some(info), Some(bytes)) = (&entry.raw_meta, &shard.meta) {
                check(info, bytes);
            }
            for info in [&entry.zip_data, &entry.zip_meta].into_iter().flatten() {
                check(info, &fixture.read(info));
            }
        }
    }
    assert_eq!(algorithms.len(), 17, "{algorithms:?}");
}

#[test]
fn shard_config_is_readable_without_the_index() {
    for fixture in fixtures::accepted() {
        for shard in fixture.shards() {
            let is_meta = shard.meta.is_some();
            let header = shard.meta.as_deref().unwrap_or(&shard.data);
            let (config, samples) =
                read_config(header, is_meta, &limits()).unwrap_or_else(|error| {
                    panic!(
                        "{}/{}: {error}",
                        fixture.name, shard.entry.raw_data.basename
                    )
                });
            assert_eq!(
                (&config, samples),
                (&*shard.entry.config, shard.entry.samples),
                "{}",
                fixture.name
            );
        }
    }
}

fn parts(fixture: &Fixture, names: &[&str]) -> Vec<(String, Index)> {
    let part = |name: &&str| {
        let bytes = fs::read(fixture.dir.join(name).join("index.json")).unwrap();
        ((*name).to_owned(), Index::parse(&bytes, &limits()).unwrap())
    };
    names.iter().map(part).collect()
}

#[test]
fn merged_index_matches_mosaicml_streaming_bytes() {
    for (name, order) in [
        ("merged-one-level", &["a", "b", "part-10", "part-9"][..]),
        ("merged-with-empty", &["a", "b", "c"]),
        ("merged-list", &["third", "first", "second", "fourth"]),
    ] {
        let fixture = fixtures::named(name);
        let merged = Index::merge(parts(&fixture, order)).unwrap();
        assert_eq!(merged, fixture.index(), "{name}");
        assert_eq!(
            merged.to_merged_json().into_bytes(),
            fixture.index_bytes(),
            "{name}"
        );
    }
}

/// The original keeps only the last folder. Two partitions then claim the same file, and neither is found.
#[test]
fn merging_two_folder_levels_names_existing_files() {
    let fixture = fixtures::named("merged-two-levels");
    let error = Index::parse(&fixture.index_bytes(), &limits()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("y/shard.00000.mds"), "{error}");

    let ours = Index::merge(parts(&fixture, &["w/y", "x/y", "x/z"])).unwrap();
    let names: Vec<&str> = ours
        .shards
        .iter()
        .map(|entry| &*entry.raw_data.basename)
        .collect();
    let expected = [
        "w/y/shard.00000.mds",
        "x/y/shard.00000.mds",
        "x/z/shard.00000.mds",
    ];
    assert_eq!(names, expected);
    assert!(names.iter().all(|name| fixture.dir.join(name).is_file()));
    assert_eq!(ours.samples(), 15);
}

#[test]
fn invalid_json_newline_setting_is_an_error() {
    let fixture = fixtures::named("json-newline-word");
    let error = Index::parse(&fixture.index_bytes(), &limits()).unwrap_err();
    assert!(error.to_string().contains("<end of line>"), "{error}");
    assert!(fixture.expected().iter().all(is_unreadable));
}
