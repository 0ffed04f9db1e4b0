//! Builds the index of tar files that have none, by reading the headers of all of them once.

use std::hash::{DefaultHasher, Hasher as _};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use shardmill_core::{Limits, escape, parallel};
use shardmill_storage::{Dir, Folder, Remote};
use shardmill_webdataset::{
    FieldSet, FileHashes, FileInfo, Index, IndexShard, ShardMap, ShardScan, TarCompression,
    decompress,
};

use crate::error::DatasetError;
use crate::mapped::map;
use crate::problem::{DatasetProblem, ValueLocation};
use crate::tars::{Listing, TarPattern, raw_tar_name};

/// The most samples whose offsets are kept from the scan, over all shards: 8 bytes each. Shards beyond that are scanned
/// again when they are opened.
const KEPT_OFFSETS: usize = 8 << 20;
/// The bytes of an object that are read at once: about what a connection transfers in the latency of a request.
const STORE_WINDOW: u64 = 1 << 20;
/// The number of shards of a store that are scanned in parallel: each holds one window.
const STORE_SHARDS: usize = 64;

/// A tar file that a listing found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    name: String,
    bytes: u64,
    compression: Option<TarCompression>,
}

impl Found {
    /// Returns the file. Its name tells whether it is compressed.
    pub(crate) fn named(name: &str, bytes: u64) -> Self {
        let lower = name.to_ascii_lowercase();
        let compression = if lower.ends_with("gz") {
            Some(TarCompression::Gzip { level: 6 })
        } else if lower.ends_with(".zst") {
            Some(TarCompression::Zstd { level: 3 })
        } else {
            None
        };
        Self {
            name: name.to_owned(),
            bytes,
            compression,
        }
    }

    /// Returns the file of an index entry.
    pub(crate) fn listed(entry: &IndexShard) -> Self {
        let stored = entry.stored();
        Self {
            name: stored.basename.to_string(),
            bytes: stored.bytes,
            compression: entry.compression,
        }
    }

    /// Returns its name and length.
    pub(crate) fn file(&self) -> (&str, u64) {
        (&self.name, self.bytes)
    }

    /// Returns the entry of an index for the file with these headers.
    pub(crate) fn entry(&self, map: &ShardMap) -> IndexShard {
        let file = |name: &str, bytes| FileInfo {
            basename: name.into(),
            bytes,
            hashes: FileHashes::default(),
        };
        IndexShard {
            fields: Arc::new(FieldSet::of(&map.samples)),
            samples: map.samples.len() as u64,
            compression: self.compression,
            raw_data: file(&raw_tar_name(&self.name), map.bytes),
            zip_data: self.compression.map(|_| file(&self.name, self.bytes)),
            offsets: None,
        }
    }

    fn changed(&self) -> DatasetError {
        DatasetError::shard_changed(self.location())
    }

    fn location(&self) -> ValueLocation {
        ValueLocation::file(&self.name)
    }
}

/// The offset of each sample of a shard, then the end of the last one.
pub type Offsets = Arc<[u64]>;

/// Builds an index of tar files in the given order. Also returns the offsets of the samples of the first shards.
pub(crate) fn scan(
    source: &Folder,
    found: &[Found],
    limits: &Limits,
) -> Result<(Index, Vec<Offsets>), DatasetError> {
    let scanned = scan_each(source, found, limits, |shard, map| {
        (shard.entry(map), map.offsets())
    })?;
    let mut shards = Vec::with_capacity(scanned.len());
    let mut kept_offsets = Vec::new();
    let mut room = KEPT_OFFSETS;
    // Shards with equal fields share one set: there may be a million of them.
    let mut last: Option<Arc<FieldSet>> = None;
    for (mut shard, offsets) in scanned {
        if let Some(left) = room.checked_sub(offsets.len())
            && kept_offsets.len() == shards.len()
        {
            room = left;
            kept_offsets.push(offsets.into());
        }
        match &last {
            Some(fields) if *fields == shard.fields => shard.fields = Arc::clone(fields),
            _ => last = Some(Arc::clone(&shard.fields)),
        }
        shards.push(shard);
    }
    Ok((Index { shards }, kept_offsets))
}

/// Lists the tar files below a folder, sorted by the bytes of their names. These are the files that
/// [`TarSet`](crate::TarSet) finds. A folder that contains datasets has none. `shown` names the folder in messages.
pub(crate) fn list_tars(source: &Folder, shown: &Path) -> Result<Vec<Found>, DatasetError> {
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
        Ok(Found::named(&name, bytes))
    });
    found.collect()
}

/// Finds the tar files of a pattern, in its order. A missing file is an error.
pub(crate) fn find_tars(source: &Folder, pattern: &TarPattern) -> Result<Vec<Found>, DatasetError> {
    let names = pattern.names();
    let jobs = if source.is_store() { STORE_SHARDS } else { 0 };
    let found = parallel::map(names.len(), jobs, |number| {
        let Some(name) = names.get(number) else {
            return Ok(None);
        };
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
        Ok(Some(Found::named(name, bytes)))
    })?;
    Ok(found.into_iter().flatten().collect())
}

/// Returns the hash of a key. The hash is valid only in this process.
pub fn hash_key(key: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(key.as_bytes());
    hasher.finish()
}

/// Returns the hashes of the keys of tar files, in the order of their samples.
pub(crate) fn hash_keys(
    source: &Folder,
    found: &[Found],
    limits: &Limits,
) -> Result<Vec<Vec<u64>>, DatasetError> {
    scan_each(source, found, limits, |_, map| {
        let keys = map.samples.iter().map(|sample| hash_key(&sample.key));
        keys.collect()
    })
}

/// Reads the headers of tar files, and returns the result of `make` for each.
fn scan_each<T: Send>(
    source: &Folder,
    found: &[Found],
    limits: &Limits,
    make: impl Fn(&Found, &ShardMap) -> T + Sync,
) -> Result<Vec<T>, DatasetError> {
    match source {
        Folder::Local(dir) => scan_folder(dir, found, limits, make),
        Folder::Store(store) => scan_store(store.remote(), found, limits, make),
    }
}

fn scan_folder<T: Send>(
    dir: &Dir,
    found: &[Found],
    limits: &Limits,
    make: impl Fn(&Found, &ShardMap) -> T + Sync,
) -> Result<Vec<T>, DatasetError> {
    let made = parallel::map(found.len(), 0, |number| {
        let Some(shard) = found.get(number) else {
            return Ok(None);
        };
        let file = dir.open_file(&shard.name)?;
        let map = if shard.compression.is_some() {
            unpack(shard, &file.read_all(limits.shard_bytes)?, limits)?
        } else {
            let mapping = map(&file)?;
            let mut scan = ShardScan::new(file.len(), limits);
            let need = step(&mut scan, shard, 0, mapping.bytes());
            // Missing bytes of a truncated file read as zeros, which cause other errors: report the change instead.
            if mapping.is_damaged() || need?.is_some() {
                return Err(shard.changed());
            }
            scan.finish()
        };
        Ok::<_, DatasetError>(Some(make(shard, &map)))
    })?;
    Ok(made.into_iter().flatten().collect())
}

fn scan_store<T>(
    store: &Remote,
    found: &[Found],
    limits: &Limits,
    make: impl Fn(&Found, &ShardMap) -> T,
) -> Result<Vec<T>, DatasetError> {
    let mut done = Vec::with_capacity(found.len());
    for shards in found.chunks(STORE_SHARDS) {
        let mut maps: Vec<Option<ShardMap>> = vec![None; shards.len()];
        let mut scans: Vec<ShardScan> = shards
            .iter()
            .map(|shard| ShardScan::new(shard.bytes, limits))
            .collect();
        // The range of each shard to read next; all of them are requested at once.
        let mut wanted: Vec<(usize, Range<u64>)> = Vec::new();
        for (index, shard) in shards.iter().enumerate() {
            if shard.compression.is_some() {
                let bytes = store.read(&shard.name, limits.shard_bytes)?;
                if let Some(slot) = maps.get_mut(index) {
                    *slot = Some(unpack(shard, &bytes, limits)?);
                }
            } else {
                wanted.push((index, widened(&(0..0), shard.bytes)));
            }
        }
        while !wanted.is_empty() {
            let name = |index: usize| shards.get(index).map(|shard| shard.name.clone());
            let ranges: Vec<(String, Range<u64>)> = wanted
                .iter()
                .map(|(index, range)| (name(*index).unwrap_or_default(), range.clone()))
                .collect();
            let read = store.read_ranges(&ranges);
            let mut next = Vec::new();
            for ((index, range), bytes) in wanted.into_iter().zip(read) {
                let (Some(shard), Some(scan)) = (shards.get(index), scans.get_mut(index)) else {
                    continue;
                };
                let need = step(scan, shard, range.start, &bytes?)?;
                if let Some(range) = need {
                    next.push((index, widened(&range, shard.bytes)));
                }
            }
            wanted = next;
        }
        for ((shard, map), scan) in shards.iter().zip(maps).zip(scans) {
            let map = map.unwrap_or_else(|| scan.finish());
            done.push(make(shard, &map));
        }
    }
    Ok(done)
}

/// Extends a range to a whole window, but not beyond the end of the object.
fn widened(range: &Range<u64>, length: u64) -> Range<u64> {
    let end = range.end.max(range.start.saturating_add(STORE_WINDOW));
    range.start..end.min(length.max(range.start))
}

/// Continues a scan with more bytes, and returns the next range that it needs.
fn step(
    scan: &mut ShardScan,
    shard: &Found,
    at: u64,
    bytes: &[u8],
) -> Result<Option<Range<u64>>, DatasetError> {
    let need = scan
        .step(at, bytes)
        .map_err(|source| DatasetError::tar_shard(shard.location(), source))?;
    match need {
        // INVARIANT: a scan requests bytes that it already got only if the file is shorter than it was when listed.
        Some(range) if range.start == at && range.end <= at.saturating_add(bytes.len() as u64) => {
            Err(shard.changed())
        }
        need => Ok(need),
    }
}

fn unpack(shard: &Found, zip: &[u8], limits: &Limits) -> Result<ShardMap, DatasetError> {
    let raw = decompress(zip, None, limits)
        .map_err(|source| DatasetError::decompress(shard.location(), source))?;
    ShardMap::read(&raw, limits).map_err(|source| DatasetError::tar_shard(shard.location(), source))
}
