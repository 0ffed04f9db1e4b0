//! Reads the index of a stream and its side files, and copies the side files next to a cached index.

use std::convert::Infallible;

use shardmill_cache::publish;
use shardmill_core::{INDEX_NAME, Limits, parallel};
use shardmill_storage::{Dir, Folder, PublishMode, StorageError};

use crate::entry::{Entry, Shards};
use crate::error::DatasetError;
use crate::late::{COLUMNS_NAME, LateColumns, if_present};
use crate::live::LiveShards;
use crate::side_files::{
    IndexShape, PROVENANCE_BYTES, PROVENANCE_NAME, SideFiles, Sides, TOMBSTONES_NAME, if_there,
};

/// The files that describe a stream, as read from its folder or store.
pub(crate) struct IndexAnswer {
    pub(crate) index: Result<Vec<u8>, StorageError>,
    /// The provenance, if it was requested together with the index.
    pub(crate) provenance: Option<Result<Option<Vec<u8>>, StorageError>>,
    /// The list of late columns; `None` if there is none, or if deleted samples are wanted.
    pub(crate) columns: Result<Option<Vec<u8>>, StorageError>,
}

/// Reads the index of a stream and the list of its late columns. From a store, it requests the provenance at the same
/// time. If deleted samples are wanted, it reads only the index.
pub(crate) fn read_index(source: &Folder, with_deleted: bool, limits: &Limits) -> IndexAnswer {
    let max = limits.index_bytes;
    let names = [
        (INDEX_NAME, max),
        (COLUMNS_NAME, max),
        (PROVENANCE_NAME, PROVENANCE_BYTES),
    ];
    let wanted = match (with_deleted, source.is_store()) {
        (true, _) => 1,
        (false, false) => 2,
        (false, true) => 3,
    };
    let read = |at: usize| {
        let (name, max) = names.get(at).copied().unwrap_or_default();
        Ok::<_, Infallible>(source.read(name, max))
    };
    let Ok(read) = parallel::map(wanted, wanted, read);
    let mut read = read.into_iter();
    IndexAnswer {
        index: read.next().unwrap_or_else(|| source.read(INDEX_NAME, max)),
        columns: read
            .next()
            .map_or(Ok(None), |found| if_present(if_there(found))),
        provenance: read.next().map(if_there),
    }
}

/// A stream whose index has been read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexedStream<'a> {
    pub(crate) source: &'a Folder,
    /// The folder that its shards are fetched to; `None` if they are read in place.
    pub(crate) cache: Option<&'a Dir>,
    pub(crate) shards: &'a Shards,
    pub(crate) with_deleted: bool,
}

impl IndexedStream<'_> {
    /// Returns which samples of the stream are live. If shards are fetched to a folder, the side files are copied
    /// there, for readers that have only that folder.
    pub(crate) fn live(
        self,
        provenance: Option<Result<Option<Vec<u8>>, StorageError>>,
        limits: &Limits,
    ) -> Result<LiveShards, DatasetError> {
        let mut samples = LiveShards::all(self.shards.iter().map(Entry::samples));
        if self.with_deleted && self.cache.is_none() {
            return Ok(samples);
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
        match side_files.into_live() {
            Ok((live, sides)) => {
                if let Some(cache) = self.cache {
                    keep_sides(cache, sides.as_ref())?;
                }
                if !self.with_deleted {
                    samples.live = live;
                }
            }
            Err(_) if self.with_deleted => {}
            Err(error) => return Err(error.with_side_path(|name| self.source.path_of(name))),
        }
        Ok(samples)
    }

    /// Returns the shards with their late columns. If shards are fetched to a folder, the list of late columns is copied
    /// there.
    pub(crate) fn with_late(
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
        let read = |name: &str, max| if_there(self.source.read(name, max));
        let joined = LateColumns::joined(&text, &path, (digest, base), &read, limits)?;
        Ok(joined.map(Shards::Mds))
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
