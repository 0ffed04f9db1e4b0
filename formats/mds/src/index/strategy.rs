//! Generates arbitrary indexes for tests.

use std::sync::Arc;

use proptest::prelude::*;
use shardmill_core::Format;

use crate::config::{Column, ShardConfig, TextColumn, TextEncoding};
use crate::index::{Index, ShardEntry};
use crate::names::basename;
use shardmill_codec::{FileInfo, HashAlgo, digest};

fn text_columns() -> impl Strategy<Value = Vec<TextColumn>> {
    let encoding = prop::sample::select(&TextEncoding::ALL[..]);
    let column = |(name, encoding)| TextColumn { name, encoding };
    prop::collection::btree_map("[a-zé\"\\\\]{1,4}", encoding, 1..5)
        .prop_map(move |columns| columns.into_iter().map(column).collect())
}

fn mds_columns() -> impl Strategy<Value = Vec<Column>> {
    let encoding = prop::sample::select(crate::testdata::encodings());
    let column = |(name, encoding)| Column { name, encoding };
    prop::collection::btree_map(any::<String>(), encoding, 1..6)
        .prop_map(move |columns| columns.into_iter().map(column).collect())
}

fn config() -> impl Strategy<Value = ShardConfig> {
    let compressions: Vec<_> = crate::Compression::all().collect();
    let storage = (
        prop::option::of(prop::sample::select(compressions)),
        prop::collection::vec(prop::sample::select(&HashAlgo::ALL[..]), 0..3),
        prop::option::of(1..1_u64 << 32),
    );
    let xsv = prop::sample::select(vec![Format::Csv, Format::Tsv, Format::Xsv]);
    prop_oneof![
        (mds_columns(), storage.clone()).prop_map(|(columns, (compression, hashes, limit))| {
            ShardConfig::new_mds(columns, compression, hashes, limit)
        }),
        (text_columns(), storage.clone()).prop_map(|(columns, (compression, hashes, limit))| {
            ShardConfig::new_json(columns, "\r\n", compression, hashes, limit)
        }),
        (text_columns(), storage, xsv).prop_map(
            |(columns, (compression, hashes, limit), format)| {
                let separator = (format == Format::Xsv).then_some("<;>");
                ShardConfig::new_xsv(format, columns, "\n", separator, compression, hashes, limit)
            }
        ),
    ]
    .prop_map(Result::unwrap)
}

fn shard(number: u64, config: Arc<ShardConfig>, samples: u32, bytes: [u32; 4]) -> ShardEntry {
    let file = |meta, zip: bool, bytes: u32| {
        let compression = config.compression.as_ref().filter(|_| zip);
        let digests = config.hashes.iter();
        FileInfo {
            basename: basename(number, config.format(), meta, compression).into(),
            bytes: u64::from(bytes),
            hashes: digests
                .map(|algo| digest(*algo, &bytes.to_le_bytes()))
                .collect(),
        }
    };
    let (split, zip) = (config.format().is_split(), config.compression.is_some());
    ShardEntry {
        samples: u64::from(samples),
        raw_data: file(false, false, bytes[0]),
        zip_data: zip.then(|| file(false, true, bytes[1])),
        raw_meta: split.then(|| file(true, false, bytes[2])),
        zip_meta: (split && zip).then(|| file(true, true, bytes[3])),
        config,
    }
}

/// Generates an index of up to five shards, some of which share the config of the previous one.
pub(crate) fn index() -> impl Strategy<Value = Index> {
    let drawn = (config(), any::<bool>(), any::<u32>(), any::<[u32; 4]>());
    prop::collection::vec(drawn, 0..6).prop_map(|drawn| {
        let mut shards: Vec<ShardEntry> = Vec::new();
        for (number, (config, same, samples, bytes)) in (0..).zip(drawn) {
            let config = match shards.last() {
                Some(last) if same => Arc::clone(&last.config),
                _ => Arc::new(config),
            };
            shards.push(shard(number, config, samples, bytes));
        }
        Index { shards }
    })
}
