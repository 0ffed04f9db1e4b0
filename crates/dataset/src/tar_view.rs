//! Views of tar files, with or without an index.

use std::path::PathBuf;

use sha2::{Digest as _, Sha256};
use shardmill_core::{Limits, Progress};
use shardmill_webdataset::{Index, IndexShard};

use crate::error::DatasetError;
use crate::live::LiveSamples;
use crate::problem::DatasetProblem;
use crate::tars::{TarFile, TarSet, each_in_order, scanned, unscanned};
use crate::view::{View, ViewTarget};

impl TarSet {
    /// Returns the set with the samples of a view only. Apply it after [`Self::without_deleted`].
    ///
    /// # Errors
    ///
    /// [`DatasetProblem::ViewOther`]; as [`Self::view_target`].
    pub fn of_view(mut self, view: &View, limits: &Limits) -> Result<Self, DatasetError> {
        let (target, samples) = self.view_target(limits)?;
        let live = view.live_of(&target, self.subject())?;
        self.set_live(&live, samples);
        Ok(self)
    }

    /// Returns what views of the set refer to, and the number of stored samples of each shard. Without an index, this
    /// reads the headers of all tar files, and refers to the index that they would have.
    ///
    /// # Errors
    ///
    /// [`DatasetProblem::ViewOther`] for shards of several datasets; errors of reading the files.
    pub fn view_target(&self, limits: &Limits) -> Result<(ViewTarget, Vec<u64>), DatasetError> {
        let (digest, samples) = match self.indexes() {
            [] => {
                let entries = self.scan(limits)?;
                let samples: Vec<u64> = entries.iter().map(|entry| entry.samples).collect();
                let index = Index { shards: entries };
                (Sha256::digest(index.to_json()).into(), samples)
            }
            [index] if index.shards.len() == self.shards().len() => {
                let entries = self.shards().iter().filter_map(TarFile::entry);
                (index.digest, entries.map(|entry| entry.samples).collect())
            }
            _ => {
                let reason = "a view is of one dataset, and these are several";
                return Err(DatasetProblem::ViewOther.at(self.subject(), reason));
            }
        };
        let stored = samples.iter().sum();
        let live = self.first_live().cloned();
        let live = live.unwrap_or_else(|| LiveSamples::all(stored));
        Ok((ViewTarget { digest, live }, samples))
    }

    /// Returns the entries that an index of the files would have.
    fn scan(&self, limits: &Limits) -> Result<Vec<IndexShard>, DatasetError> {
        let shards = self.shards();
        let mut entries = Vec::with_capacity(shards.len());
        let read = |at: usize| shards.get(at).map(|shard| scan(shard, limits)).transpose();
        each_in_order(shards.len(), 0, &Progress::new(), read, |_, entry| {
            entries.extend(entry);
            Ok(())
        })?;
        Ok(entries)
    }

    fn subject(&self) -> PathBuf {
        let first = self.shards().first();
        first.map_or_else(PathBuf::new, |shard| shard.root().to_owned())
    }
}

fn scan(shard: &TarFile, limits: &Limits) -> Result<IndexShard, DatasetError> {
    let bytes = shard.open()?.len();
    let entry = unscanned(shard.name(), bytes);
    Ok(scanned(&entry, &shard.map(limits)?))
}
