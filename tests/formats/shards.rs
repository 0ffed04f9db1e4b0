//! Tests compression and the positions at which shards are cut.

use std::collections::BTreeSet;

use shardmill_mds::Compression;

use crate::fixtures::{self, limits};

/// Replays the sizes of all samples, and compares the resulting shards with those of the original writer.
#[test]
fn shard_boundaries_match_mosaicml_streaming() {
    for fixture in fixtures::accepted()
        .iter()
        .filter(|fixture| !fixture.is_merged())
    {
        let shards = fixture.shards();
        let Some(first) = shards.first() else {
            continue;
        };
        let config = &first.entry.config;
        let mut cutter = config.cutter_like_original();
        let mut cut = Vec::new();
        let mut samples = 0;
        for shard in &shards {
            let view = shard.open(&limits());
            for sample in 0..view.len() {
                let bytes = view.sample(sample).unwrap().len() as u64;
                if cutter.push(bytes) {
                    cut.push(samples);
                    samples = 0;
                }
                samples += 1;
                assert_eq!(cutter.samples(), samples, "{}", fixture.name);
            }
        }
        if samples > 0 {
            cut.push(samples);
        }
        let expected: Vec<u64> = shards.iter().map(|shard| shard.entry.samples).collect();
        assert_eq!(cut, expected, "{}", fixture.name);
        let last = shards.last().unwrap();
        if fixture.name.starts_with("mds-") {
            assert_eq!(
                cutter.bytes(),
                last.entry.raw_data.bytes,
                "{}",
                fixture.name
            );
        }
    }
}

#[test]
fn sample_limit_leaves_no_empty_shard() {
    let shards = fixtures::named("mds-cut-many").shards();
    let mut cutter = shards[0].entry.config.cutter(Some(1));
    let cuts: Vec<bool> = (0..4).map(|_| cutter.push(1)).collect();
    assert_eq!(cuts, [false, true, true, true]);
}

/// Recompresses what the original compressed. The fixtures cover every level.
#[test]
fn every_compression_round_trips() {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for fixture in fixtures::accepted() {
        for shard in fixture.shards() {
            let Some(compression) = shard.entry.config.compression else {
                continue;
            };
            seen.insert(compression.to_string());
            let mut zip = Vec::new();
            let mut compressor = compression.compressor().unwrap();
            compressor.compress(&shard.data, &mut zip).unwrap();
            let raw_bytes = Some(shard.data.len() as u64);
            assert_eq!(
                compression.decompress(&zip, raw_bytes, &limits()).unwrap(),
                shard.data,
                "{}",
                fixture.name
            );
            assert_eq!(
                compression.decompress(&zip, None, &limits()).unwrap(),
                shard.data,
                "{}",
                fixture.name
            );
        }
    }
    for text in [
        "br", "br:0", "br:11", "bz2", "bz2:1", "bz2:9", "gz", "gz:0", "gz:9", "snappy", "zstd",
        "zstd:1", "zstd:22",
    ] {
        assert!(seen.contains(text), "{text} is in no fixture");
    }
}

#[test]
fn compressed_file_with_wrong_length_is_rejected() {
    for name in [
        "mds-zip-br",
        "mds-zip-bz2",
        "mds-zip-gz",
        "mds-zip-snappy",
        "mds-zip-zstd",
    ] {
        let fixture = fixtures::named(name);
        let entry = fixture.index().shards.remove(0);
        let compression: Compression = entry.config.compression.unwrap();
        let zip = fixture.read(entry.zip_data.as_ref().unwrap());
        let raw = entry.raw_data.bytes;
        for wrong in [0, raw - 1, raw + 1] {
            assert!(
                compression
                    .decompress(&zip, Some(wrong), &limits())
                    .is_err(),
                "{name}: {wrong} of {raw}"
            );
        }
        let cut = &zip[..zip.len() - 1];
        assert!(
            compression.decompress(cut, Some(raw), &limits()).is_err(),
            "{name}: one byte short"
        );
        let mut longer = zip.clone();
        longer.extend_from_slice(b"garbage");
        assert!(
            compression
                .decompress(&longer, Some(raw), &limits())
                .is_err(),
            "{name}: bytes after the end"
        );
    }
}
