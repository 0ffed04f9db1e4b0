//! Stores checkpoints of the random generator ("walks") in the cache folder. With them, the next start and the other
//! ranks of a node compute the order of an epoch faster.
//!
//! A walk records what it was computed from, and has its own hash ([`Epoch::with_checkpoints`]): a stored walk is used only if
//! it fits. A missing walk costs time only, so errors when reading or writing one are ignored.

use shardmill_core::Error;
use shardmill_order::{Epoch, EpochConfig};
use shardmill_storage::{Dir, PublishMode};

use shardmill_cache::own_folder;
use shardmill_dataset::Catalog;

/// The number of samples from which on the walk of an epoch is stored. Computing it takes about a nanosecond per
/// sample.
const FROM: u64 = 4_000_000;
/// The largest walk that is written or read, in bytes. The walk of 10^9 samples has 3 MB.
const MAX_BYTES: u64 = 64 << 20;
const PREFIX: &str = "walk-";

/// The folder of the stored walks, if the dataset has a cache.
#[derive(Debug)]
pub(crate) struct Walks {
    /// The folder of the cache, and the hash of the index.
    home: Option<(Dir, [u8; 32])>,
    from: u64,
}

impl Walks {
    /// Uses the cache folder of the first stream that has one. Nothing is written next to a dataset that is read in
    /// place.
    pub(crate) fn new(catalog: &Catalog) -> Self {
        let cached = catalog
            .streams()
            .iter()
            .find(|stream| stream.origin.is_some());
        Self {
            home: cached.map(|stream| (stream.local.clone(), stream.index_digest)),
            from: FROM,
        }
    }

    /// Computes the order of an epoch, from the stored walk if one fits.
    pub(crate) fn order(&self, config: &EpochConfig) -> Result<Epoch, Error> {
        let samples = config
            .streams
            .iter()
            .flat_map(|stream| stream.shards.iter())
            .fold(0_u64, |sum, samples| sum.saturating_add(*samples));
        if samples < self.from {
            return Epoch::new(config);
        }
        let walk = self.read(config.resolve()?.epoch);
        Epoch::with_checkpoints(config, &walk.unwrap_or_default())
    }

    fn read(&self, epoch: u64) -> Option<Vec<u8>> {
        self.folder()?
            .open_file(&name_of(epoch))
            .ok()?
            .read_all(MAX_BYTES)
            .ok()
    }

    /// Stores the walk of an epoch that was computed without one, and removes the walks of past epochs.
    pub(crate) fn keep(&self, epoch: &Epoch) {
        if !epoch.has_computed_checkpoints() || epoch.samples() < self.from {
            return;
        }
        let Some(folder) = self.folder() else { return };
        let walk = epoch.saved_checkpoints();
        if u64::try_from(walk.len()).map_or(true, |bytes| bytes > MAX_BYTES) {
            return;
        }
        let number = epoch.resolved().epoch;
        // Errors are ignored here. A full disk, for example, is reported by the writes of shards.
        if let Ok(entries) = folder.entries() {
            for entry in entries {
                let of = entry.name.to_str().and_then(epoch_of);
                if of.is_some_and(|of| of.abs_diff(number) > 1)
                    && let Some(name) = entry.name.to_str()
                {
                    let _gone = folder.remove(name);
                }
            }
        }
        let _kept = folder.publish_bytes(None, &name_of(number), &walk, PublishMode::Replace);
    }

    fn folder(&self) -> Option<Dir> {
        let (local, digest) = self.home.as_ref()?;
        own_folder(local, digest).ok()
    }
}

fn name_of(epoch: u64) -> String {
    format!("{PREFIX}{epoch}")
}

fn epoch_of(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use shardmill_order::{StreamConfig, World};

    use super::*;

    fn config(epoch: u64) -> EpochConfig {
        let mut config = EpochConfig::new(vec![StreamConfig::new(&[500; 20])], 16, World::SINGLE);
        config.shuffle.enabled = true;
        config.epoch = epoch;
        config
    }

    fn names(walks: &Walks) -> Vec<String> {
        let names = walks.folder().unwrap().list().unwrap();
        names
            .into_iter()
            .filter(|name| epoch_of(name).is_some())
            .collect()
    }

    #[test]
    fn checkpoints_are_computed_once_and_old_epochs_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let local = Dir::create(&root.path().join("local")).unwrap();
        let walks = Walks {
            home: Some((local, [7; 32])),
            from: 10_000,
        };
        for epoch in 0..4 {
            let first = walks.order(&config(epoch)).unwrap();
            assert!(first.has_computed_checkpoints());
            walks.keep(&first);
            let again = walks.order(&config(epoch)).unwrap();
            assert!(!again.has_computed_checkpoints());
            // This writes nothing.
            walks.keep(&again);
        }
        assert_eq!(names(&walks), ["walk-2", "walk-3"]);
        // With another seed the stored walk does not fit, and is replaced.
        let mut other = config(3);
        other.shuffle.seed += 1;
        let epoch = walks.order(&other).unwrap();
        assert!(epoch.has_computed_checkpoints());
        walks.keep(&epoch);
        assert!(!walks.order(&other).unwrap().has_computed_checkpoints());
        assert!(walks.order(&config(3)).unwrap().has_computed_checkpoints());
        // A damaged walk costs time only.
        let path = walks.folder().unwrap().path().join("walk-3");
        fs::write(&path, b"SMWALK1\nnot a walk").unwrap();
        assert!(walks.order(&other).unwrap().has_computed_checkpoints());
    }

    #[test]
    fn small_epochs_and_uncached_datasets_store_no_checkpoints() {
        let root = tempfile::tempdir().unwrap();
        let local = Dir::create(&root.path().join("local")).unwrap();
        let walks = Walks {
            home: Some((local, [7; 32])),
            from: 10_001,
        };
        let epoch = walks.order(&config(0)).unwrap();
        walks.keep(&epoch);
        assert!(fs::read_dir(root.path()).unwrap().count() == 1);
        let walks = Walks {
            home: None,
            from: 0,
        };
        let epoch = walks.order(&config(0)).unwrap();
        assert!(epoch.has_computed_checkpoints());
        walks.keep(&epoch);
        assert!(walks.order(&config(0)).unwrap().has_computed_checkpoints());
    }
}
