//! Finds samples of tar files by their keys.

use crate::catalog::Catalog;
use crate::entry::Shards;
use crate::error::DatasetError;
use crate::problem::DatasetProblem;
use crate::tars::{hash_key, scan_each};

/// A map from the hash of a key to the samples that may have that key. It takes 16 bytes for each sample, however long
/// the keys are: the keys themselves are read from the tar files.
#[derive(Debug)]
pub struct Keys {
    /// Pairs of key hash and sample number; sorted.
    rows: Vec<(u64, u64)>,
}

impl Keys {
    /// Reads the headers of all tar files.
    pub fn read(catalog: &Catalog) -> Result<Self, DatasetError> {
        let mut rows = Vec::new();
        let mut any = false;
        for stream in catalog.streams() {
            let Shards::Tar(shards) = &stream.shards else {
                continue;
            };
            any = true;
            let hashes = scan_each(stream.source(), shards, catalog.limits(), |_, map| {
                let keys = map.samples.iter().map(|sample| hash_key(&sample.key));
                keys.collect::<Vec<u64>>()
            })?;
            for (number, (hashes, entry)) in hashes.into_iter().zip(shards).enumerate() {
                let shard = stream.first_shard + number;
                let count = hashes.len() as u64;
                if count != entry.samples {
                    let location = catalog.location(shard);
                    return Err(DatasetError::tar_samples(location, entry.samples, count));
                }
                for (hash, at) in hashes.into_iter().zip(0..) {
                    if catalog.has_sample(shard, at) {
                        rows.push((hash, catalog.number_of(shard, at)));
                    }
                }
            }
        }
        if !any {
            return Err(DatasetProblem::NoKeys
                .of_call("samples have keys in tar files only, and no stream is one of those"));
        }
        rows.sort_unstable();
        Ok(Self { rows })
    }

    /// Returns the samples that may have this key, in order.
    pub fn candidates(&self, key: &str) -> impl Iterator<Item = u64> {
        let wanted = hash_key(key);
        let first = self.rows.partition_point(|(hash, _)| *hash < wanted);
        let rows = self.rows.get(first..).unwrap_or_default();
        let same = rows.iter().take_while(move |(hash, _)| *hash == wanted);
        same.map(|(_, sample)| *sample)
    }
}
