//! Tests of samples that are read through the cache of shards.

use std::sync::Arc;

use serde_json::json;
use shardmill_dataset::{Catalog, CatalogOptions, StreamOptions};
use shardmill_storage::Location;
use shardmill_testing::mds::{Spec, sample};

use crate::CacheOptions;
use crate::cached::ShardCache;

const SAMPLES: usize = 4;

fn value(shard: usize, at: usize) -> Vec<u8> {
    let mut bytes = format!("{shard}:{at}:").into_bytes();
    bytes.resize(1000 + 7 * shard, b'a' + u8::try_from(at).unwrap());
    bytes
}

fn encoded(shard: usize, at: usize) -> Vec<u8> {
    sample(&[(false, &value(shard, at))])
}

/// Writes a dataset and opens it with a local folder for its cache.
fn catalog(
    root: &tempfile::TempDir,
    shards: usize,
    compression: Option<&str>,
    validate: Option<&str>,
) -> Arc<Catalog> {
    let mut spec = Spec::mds(&[("a", "bytes", None)]).with("hashes", json!(["sha256", "xxh64"]));
    if let Some(compression) = compression {
        spec = spec.with("compression", compression);
    }
    let shards: Vec<_> = (0..shards)
        .map(|shard| {
            let samples: Vec<_> = (0..SAMPLES).map(|at| encoded(shard, at)).collect();
            spec.shard(&samples)
        })
        .collect();
    spec.write(&root.path().join("remote"), &shards).unwrap();
    let remote = Location::Local(root.path().join("remote"));
    let stream = StreamOptions::remote(remote, root.path().join("local"));
    let options = CatalogOptions {
        validate: validate.map(|algo| algo.parse().unwrap()),
        ..CatalogOptions::default()
    };
    Arc::new(Catalog::open(&[stream], &options).unwrap())
}

fn options() -> CacheOptions {
    CacheOptions {
        threads: 0,
        ..CacheOptions::default()
    }
}

fn read(cache: &ShardCache, wanted: &[(usize, u64)]) -> Vec<Vec<u8>> {
    let found = cache.samples(wanted).unwrap();
    found.into_iter().map(|extract| extract.bytes).collect()
}

#[test]
fn samples_without_hashes_are_read_individually() {
    let root = tempfile::tempdir().unwrap();
    let cache = ShardCache::new(
        catalog(&root, 2, None, None),
        Arc::default(),
        &options(),
        None,
    )
    .unwrap();
    let expected = encoded(1, 2);
    assert_eq!(
        read(&cache, &[(1, 2), (1, 2)]),
        [expected.clone(), expected.clone()]
    );
    let stats = cache.stats();
    assert_eq!((stats.fetched_shards, stats.alone_samples), (0, 2));
    assert!(cache.samples(&[(1, 4)]).is_err() && cache.samples(&[(2, 0)]).is_err());
    let root = tempfile::tempdir().unwrap();
    let cache = ShardCache::new(
        catalog(&root, 2, None, Some("xxh64")),
        Arc::default(),
        &options(),
        None,
    )
    .unwrap();
    assert_eq!(read(&cache, &[(1, 2)]), [expected]);
    let stats = cache.stats();
    assert_eq!((stats.fetched_shards, stats.alone_samples), (1, 0));
}

#[test]
fn uncached_samples_fetch_each_shard_once() {
    let root = tempfile::tempdir().unwrap();
    let catalog = catalog(&root, 5, Some("zstd:3"), None);
    // The smallest limit has space for one shard.
    let roomy = ShardCache::new(Arc::clone(&catalog), Arc::default(), &options(), None).unwrap();
    let tight = CacheOptions {
        memory: 0,
        limit: Some(roomy.engine().unwrap().minimum()),
        ..options()
    };
    let cache = ShardCache::new(catalog, Arc::default(), &tight, None).unwrap();
    // Mixed, like the samples of a batch.
    let wanted: Vec<(usize, u64)> = (0..SAMPLES as u64)
        .flat_map(|at| (0..5).map(move |shard| (shard, at)))
        .collect();
    for ((shard, at), found) in wanted.iter().zip(read(&cache, &wanted)) {
        assert_eq!(found, encoded(*shard, usize::try_from(*at).unwrap()));
    }
    assert_eq!(cache.stats().fetched_shards, 5);
}
