//! Decides which samples of a stream are read, and copies the side files that say so next to a cached index.

use std::thread;

use shardmill_cache::publish;
use shardmill_core::{INDEX_NAME, Limits};
use shardmill_storage::{Dir, Folder, PublishMode, StorageError};

use crate::entry::{Entry, Shards};
use crate::error::DatasetError;
use crate::late::{COLUMNS_NAME, LateColumns, if_present};
use crate::live::{LiveSamples, starts_of};
use crate::problem::DatasetProblem;
use crate::side_files::{
    IndexShape, PROVENANCE_BYTES, PROVENANCE_NAME, SideFiles, Sides, TOMBSTONES_NAME, if_there,
    is_gone,
};
use crate::view::{View, ViewTarget};

/// The files that describe a stream, as read from its folder or store.
pub struct IndexAnswer {
    pub index: Result<Vec<u8>, StorageError>,
    /// The provenance, if it was requested together with the index.
    pub provenance: Option<Result<Option<Vec<u8>>, StorageError>>,
    /// The list of late columns; `None` if there is none, or if deleted samples are wanted.
    pub columns: Result<Option<Vec<u8>>, StorageError>,
}

/// Reads the index of a stream and the list of its late columns. From a store, it requests the provenance at the same
/// time. If deleted samples are wanted, it reads only the index.
pub fn read_index(source: &Folder, with_deleted: bool, limits: &Limits) -> IndexAnswer {
    let max = limits.index_bytes;
    let columns = || if_present(if_there(source.read(COLUMNS_NAME, max)));
    if with_deleted || !source.is_store() {
        return IndexAnswer {
            index: source.read(INDEX_NAME, max),
            provenance: None,
            columns: if with_deleted { Ok(None) } else { columns() },
        };
    }
    thread::scope(|scope| {
        let provenance = thread::Builder::new()
            .name("shardmill-provenance".to_owned())
            .spawn_scoped(scope, || {
                if_there(source.read(PROVENANCE_NAME, PROVENANCE_BYTES))
            });
        let late = thread::Builder::new()
            .name("shardmill-columns".to_owned())
            .spawn_scoped(scope, columns);
        let index = source.read(INDEX_NAME, max);
        // If a thread cannot start, `IndexedStream::live` requests the provenance later, and the list is read here.
        let provenance = provenance.ok().and_then(|thread| thread.join().ok());
        let late = late.ok().and_then(|thread| thread.join().ok());
        IndexAnswer {
            index,
            provenance,
            columns: late.unwrap_or_else(columns),
        }
    })
}

/// The live samples of a stream, by shard.
#[derive(Clone, Debug, Default)]
pub struct StreamLive {
    live: LiveSamples,
    /// The stored number of the first sample of each shard, then the number of stored samples. Empty if all samples are
    /// live.
    starts: Vec<u64>,
}

impl StreamLive {
    fn new(shards: &Shards, live: LiveSamples) -> Self {
        if live.is_all() {
            return Self::default();
        }
        let starts = starts_of(shards.iter().map(Entry::samples));
        Self { live, starts }
    }

    /// Returns the samples of these that a view selects. `dataset` names the stream in messages.
    pub fn of_view(
        self,
        view: Option<&View>,
        digest: [u8; 32],
        shards: &Shards,
        dataset: &str,
    ) -> Result<Self, DatasetError> {
        let Some(view) = view else {
            return Ok(self);
        };
        let live = self.to_live(shards);
        let live = view.live_of(&ViewTarget { digest, live }, dataset)?;
        Ok(Self::new(shards, live))
    }

    /// Returns the live samples of the stream with these shards.
    pub fn to_live(&self, shards: &Shards) -> LiveSamples {
        match self.is_all() {
            true => LiveSamples::all(shards.iter().map(Entry::samples).sum()),
            false => self.live.clone(),
        }
    }

    /// Returns whether samples exist, but none is live.
    pub fn is_empty(&self) -> bool {
        !self.is_all() && self.live.is_empty()
    }

    /// Returns whether all samples are live.
    pub const fn is_all(&self) -> bool {
        self.starts.is_empty()
    }

    /// Returns a digest of the ranges of samples that are not live; `None` if all samples are live.
    pub fn digest(&self) -> Option<[u8; 16]> {
        self.live.digest()
    }

    /// Returns the ranges of samples that are not live, by stored number.
    pub fn deleted_ranges(&self) -> Vec<(u64, u64)> {
        self.live.deleted_ranges().collect()
    }

    /// Returns how many of the `stored` samples of a shard are live.
    pub fn samples_of(&self, shard: usize, stored: u64) -> u64 {
        match self.starts.get(shard) {
            None => stored,
            Some(start) => self.live.count_in(&(*start..start.saturating_add(stored))),
        }
    }

    /// Returns the position in its shard of the live sample with this number in the shard.
    pub fn stored_at(&self, shard: usize, live: u64) -> u64 {
        let Some(start) = self.starts.get(shard) else {
            return live;
        };
        let before = self.live.live_before(*start);
        self.live.stored_number(before.saturating_add(live)) - start
    }

    /// Returns how many live samples of a shard come before a position in it.
    pub fn live_before(&self, shard: usize, stored: u64) -> u64 {
        let Some(start) = self.starts.get(shard) else {
            return stored;
        };
        self.live.count_in(&(*start..start.saturating_add(stored)))
    }

    /// Returns whether the sample at a position in a shard is live.
    pub fn has(&self, shard: usize, stored: u64) -> bool {
        let start = self.starts.get(shard);
        start.is_none_or(|start| self.live.contains(start.saturating_add(stored)))
    }
}

/// A stream whose index has been read.
#[derive(Clone, Copy, Debug)]
pub struct IndexedStream<'a> {
    pub source: &'a Folder,
    /// The folder that its shards are fetched to; `None` if they are read in place.
    pub cache: Option<&'a Dir>,
    pub shards: &'a Shards,
    pub with_deleted: bool,
}

impl IndexedStream<'_> {
    /// Returns which samples of the stream are live. If shards are fetched to a folder, the side files are copied
    /// there, for readers that have only that folder.
    pub fn live(
        self,
        provenance: Option<Result<Option<Vec<u8>>, StorageError>>,
        limits: &Limits,
    ) -> Result<StreamLive, DatasetError> {
        if self.with_deleted && self.cache.is_none() {
            return Ok(StreamLive::default());
        }
        let shards = self.shards.iter();
        let shape = IndexShape::of(shards.map(|entry| (&*entry.data().basename, entry.samples())));
        let read = |name: &str, max| if_there(self.source.read(name, max));
        let side_files = if self.source.is_store() {
            let provenance = provenance.unwrap_or_else(|| read(PROVENANCE_NAME, PROVENANCE_BYTES));
            SideFiles::read_with(&read, provenance, &shape, limits.index_bytes)
        } else {
            SideFiles::read(&read, &shape, limits.index_bytes)
        };
        let live = match side_files.into_live() {
            Ok((live, sides)) => {
                if let Some(cache) = self.cache {
                    keep_sides(cache, sides.as_ref())?;
                }
                live
            }
            Err(_) if self.with_deleted => return Ok(StreamLive::default()),
            Err(error) => return Err(error.with_side_path(|name| self.source.path_of(name))),
        };
        match self.with_deleted {
            true => Ok(StreamLive::default()),
            false => Ok(StreamLive::new(self.shards, live)),
        }
    }
}

/// Updates the side files in a folder that shards are fetched to.
fn keep_sides(dir: &Dir, sides: Option<&Sides>) -> Result<(), StorageError> {
    let Some(sides) = sides else {
        // The existing files describe an older state of the dataset.
        if dir.exists(TOMBSTONES_NAME)? {
            dir.remove(PROVENANCE_NAME)?;
            dir.remove(TOMBSTONES_NAME)?;
        }
        return Ok(());
    };
    keep_file(dir, TOMBSTONES_NAME, &sides.tombstones)?;
    keep_file(dir, PROVENANCE_NAME, &sides.provenance)
}

/// Writes a file into a folder that shards are fetched to, unless it already exists with these bytes.
fn keep_file(dir: &Dir, name: &str, bytes: &[u8]) -> Result<(), StorageError> {
    match dir.open_file(name) {
        Ok(file) if file.len() == bytes.len() as u64 && file.read_all(file.len())? == bytes => {
            Ok(())
        }
        Err(error) if !error.is_not_found() => Err(error),
        _ => publish(dir, name, bytes, PublishMode::Replace),
    }
}

impl IndexedStream<'_> {
    /// Returns the shards with their late columns. If shards are fetched to a folder, the list of late columns is copied
    /// there.
    pub fn with_late(
        self,
        columns: Result<Option<Vec<u8>>, StorageError>,
        digest: &[u8; 32],
        limits: &Limits,
    ) -> Result<Option<Shards>, DatasetError> {
        let Shards::Mds(base) = self.shards else {
            return Ok(None);
        };
        let columns = columns?;
        if let Some(cache) = self.cache {
            match &columns {
                Some(text) => keep_file(cache, COLUMNS_NAME, text)?,
                None if self.with_deleted => {}
                // The file describes an older state of the dataset.
                None => {
                    cache.remove(COLUMNS_NAME)?;
                }
            }
        }
        let Some(text) = columns else {
            return Ok(None);
        };
        let path = self.source.path_of(COLUMNS_NAME);
        let late = LateColumns::parse(&text, &path, limits)?;
        match late.join(digest, base, &path) {
            // Another dataset has just replaced the one with these columns.
            Err(error) if error.problem() == Some(DatasetProblem::ColumnsOther) => {
                let read = |name: &str, max| if_there(self.source.read(name, max));
                match is_gone(&read, COLUMNS_NAME, limits.index_bytes)? {
                    true => Ok(None),
                    false => Err(error),
                }
            }
            shards => Ok(Some(Shards::Mds(shards?))),
        }
    }
}
