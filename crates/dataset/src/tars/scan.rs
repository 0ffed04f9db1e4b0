//! Builds the index of tar files that have none, by reading the headers of all of them once.

use std::hash::{DefaultHasher, Hasher as _};
use std::path::Path;
use std::sync::Arc;

use shardmill_core::{Limits, escape, parallel};
use shardmill_storage::Folder;
use shardmill_webdataset::{
    FieldSet, FileHashes, FileInfo, Index, IndexShard, ShardMap, TarCompression,
};

use super::file::TarFile;
use super::listing::{Listing, raw_tar_name};
use super::pattern::TarPattern;
use crate::error::DatasetError;
use crate::problem::DatasetProblem;

/// The number of shards of a store that are scanned in parallel: each holds one window.
const STORE_SHARDS: usize = 64;

/// Returns the entry of an index for a tar file whose headers are not read yet. The name tells whether it is compressed.
pub(crate) fn unscanned(name: &str, bytes: u64) -> IndexShard {
    let lower = name.to_ascii_lowercase();
    let compression = if lower.ends_with("gz") {
        Some(TarCompression::Gzip { level: 6 })
    } else if lower.ends_with(".zst") {
        Some(TarCompression::Zstd { level: 3 })
    } else {
        None
    };
    let file = |name: &str| FileInfo {
        basename: name.into(),
        bytes,
        hashes: FileHashes::default(),
    };
    IndexShard {
        fields: Arc::default(),
        samples: 0,
        compression,
        raw_data: file(&raw_tar_name(name)),
        zip_data: compression.map(|_| file(name)),
        offsets: None,
    }
}

/// Returns the entry of a tar file with these headers.
pub(crate) fn scanned(entry: &IndexShard, map: &ShardMap) -> IndexShard {
    let mut scanned = entry.clone();
    scanned.fields = Arc::new(FieldSet::of(&map.samples));
    scanned.samples = map.samples.len() as u64;
    scanned.raw_data.bytes = map.bytes;
    scanned
}

/// Builds an index of tar files in the given order.
pub(crate) fn scan(
    source: &Folder,
    found: &[IndexShard],
    limits: &Limits,
) -> Result<Index, DatasetError> {
    let mut shards = scan_each(source, found, limits, scanned)?;
    // Shards with equal fields share one set: there may be a million of them.
    let mut last: Option<Arc<FieldSet>> = None;
    for shard in &mut shards {
        match &last {
            Some(fields) if *fields == shard.fields => shard.fields = Arc::clone(fields),
            _ => last = Some(Arc::clone(&shard.fields)),
        }
    }
    Ok(Index { shards })
}

/// Lists the tar files below a folder, sorted by the bytes of their names. These are the files that
/// [`TarSet`](crate::TarSet) finds. A folder that contains datasets has none. `shown` names the folder in messages.
pub(crate) fn list_tars(source: &Folder, shown: &Path) -> Result<Vec<IndexShard>, DatasetError> {
    let listing = Listing::of(source)?;
    if let unfinished @ Some(_) = listing.unfinished()? {
        return Err(DatasetError::IndexMissing {
            path: shown.to_owned(),
            unfinished,
        });
    }
    if listing.has_datasets()? {
        return Ok(Vec::new());
    }
    let below = listing.below()?;
    below.check_stray(shown)?;
    let found = below.tars.into_iter().map(|(name, bytes)| {
        let bytes = match bytes {
            Some(bytes) => bytes,
            None => source.open_file(&name)?.len(),
        };
        Ok(unscanned(&name, bytes))
    });
    found.collect()
}

/// Finds the tar files of a pattern, in its order. A missing file is an error.
pub(crate) fn find_tars(
    source: &Folder,
    pattern: &TarPattern,
) -> Result<Vec<IndexShard>, DatasetError> {
    in_parallel(source, pattern.names(), |name| {
        let bytes = match source {
            Folder::Local(dir) => match dir.open_file(name) {
                Ok(file) => Some(file.len()),
                Err(error) if error.is_not_found() => None,
                Err(error) => return Err(error.into()),
            },
            Folder::Store(store) => store.remote().size(name, &mut |_| true)?,
        };
        let Some(bytes) = bytes else {
            let pattern = escape(pattern.text());
            let reason = format!("there is no such tar file, and the pattern `{pattern}` names it");
            return Err(DatasetProblem::PatternShard.at(source.path_of(name), reason));
        };
        Ok(unscanned(name, bytes))
    })
}

/// Returns the hash of a key. The hash is valid only in this process.
pub(crate) fn hash_key(key: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(key.as_bytes());
    hasher.finish()
}

/// Reads the headers of tar files, and returns the result of `make` for each.
pub(crate) fn scan_each<T: Send>(
    source: &Folder,
    found: &[IndexShard],
    limits: &Limits,
    make: impl Fn(&IndexShard, &ShardMap) -> T + Sync,
) -> Result<Vec<T>, DatasetError> {
    in_parallel(source, found, |shard| {
        let map = TarFile::within(source, shard.clone()).map(limits)?;
        Ok(make(shard, &map))
    })
}

/// Calls `work` for all items, in a store for many of them at once, and returns the results in order.
fn in_parallel<I: Sync, T: Send>(
    source: &Folder,
    items: &[I],
    work: impl Fn(&I) -> Result<T, DatasetError> + Sync,
) -> Result<Vec<T>, DatasetError> {
    let jobs = if source.is_store() { STORE_SHARDS } else { 0 };
    let done = parallel::map(items.len(), jobs, |at| items.get(at).map(&work).transpose())?;
    Ok(done.into_iter().flatten().collect())
}
