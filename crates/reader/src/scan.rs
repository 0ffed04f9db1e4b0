//! Tar files without an index: the headers of all of them are read once, and say what an index would.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use shardmill_core::{Limits, Unfinished};
use shardmill_storage::{Dir, Remote, StorageError};
use shardmill_webdataset::{
    FieldSet, FileHashes, FileInfo, Index, IndexShard, ShardMap, ShardScan, TarCompression,
    TarError, decompress,
};

use crate::dataset::INDEX_NAME;
use crate::error::{Place, ReaderError};
use crate::keys::hash_key;
use crate::open::map;
use crate::side_files::unfinished;
use crate::tars::{
    Below, TarPattern, below, drop_unpacked, holds_datasets, is_tar_below, is_tar_name,
    raw_tar_name,
};
use shardmill_core::parallel::for_each;

/// Samples whose places are kept from the scan, over all shards: 8 bytes each. Beyond that a shard is scanned again when
/// it is opened.
const KEPT_OFFSETS: usize = 8 << 20;
/// Read at once of an object: about what comes in the time that a request takes.
const STORE_WINDOW: u64 = 1 << 20;
/// Shards of a store that are scanned side by side: each holds a window.
const STORE_SHARDS: usize = 64;
/// Objects that are listed at most.
const MOST_OBJECTS: u64 = 10_000_000;

/// Where tar files lie.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shelf<'a> {
    Folder(&'a Dir),
    Store(&'a Remote),
}

/// A tar file that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    name: String,
    bytes: u64,
    compression: Option<TarCompression>,
}

impl Found {
    /// A file that is called like a shard.
    fn of(name: &str, bytes: u64) -> Option<Self> {
        if !is_tar_name(name) {
            return None;
        }
        let lower = name.to_ascii_lowercase();
        let compression = if lower.ends_with("gz") {
            Some(TarCompression::Gzip { level: 6 })
        } else if lower.ends_with(".zst") {
            Some(TarCompression::Zstd { level: 3 })
        } else {
            None
        };
        Some(Self {
            name: name.to_owned(),
            bytes,
            compression,
        })
    }

    /// The file that an index names.
    pub(crate) fn listed(entry: &IndexShard) -> Self {
        let stored = entry.stored();
        Self {
            name: stored.basename.to_string(),
            bytes: stored.bytes,
            compression: entry.compression,
        }
    }

    /// Its name and length.
    pub(crate) fn file(&self) -> (&str, u64) {
        (&self.name, self.bytes)
    }

    fn entry(&self, map: &ShardMap) -> IndexShard {
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

    fn changed(&self, number: usize) -> ReaderError {
        ReaderError::ShardChanged {
            place: self.place(number),
        }
    }

    fn place(&self, number: usize) -> Place {
        Place::file(number as u64, &self.name)
    }
}

/// Where each sample of a shard begins, and where the last one ends.
pub(crate) type Offsets = Arc<[u64]>;

/// An index of tar files, in their order, and the places of samples in the first of them.
pub(crate) fn scan(
    shelf: Shelf<'_>,
    found: &[Found],
    limits: &Limits,
) -> Result<(Index, Vec<Offsets>), ReaderError> {
    let scanned = scan_each(shelf, found, limits, |shard, map| {
        (shard.entry(map), map.offsets())
    })?;
    let mut shards = Vec::with_capacity(scanned.len());
    let mut places = Vec::new();
    let mut room = KEPT_OFFSETS;
    // A million shards of the same fields share one set.
    let mut last: Option<Arc<FieldSet>> = None;
    for (mut shard, offsets) in scanned {
        if let Some(left) = room.checked_sub(offsets.len())
            && places.len() == shards.len()
        {
            room = left;
            places.push(offsets.into());
        }
        match &last {
            Some(fields) if *fields == shard.fields => shard.fields = Arc::clone(fields),
            _ => last = Some(Arc::clone(&shard.fields)),
        }
        shards.push(shard);
    }
    Ok((Index { shards }, places))
}

/// The tar files of a folder.
pub(crate) enum ListedTars {
    /// A conversion is not finished: some of them are missing.
    Unfinished(Unfinished),
    /// There are other files; one of both.
    Stray([String; 2]),
    /// All of them.
    All(Vec<Found>),
}

/// The tar files below a folder, in the order of the bytes of their names: those that [`TarSet`](crate::TarSet) finds
/// there. Of a folder with datasets there are none.
pub(crate) fn list_tars(shelf: Shelf<'_>) -> Result<ListedTars, StorageError> {
    let mut found = Vec::new();
    match shelf {
        Shelf::Folder(dir) => {
            if let Some(unfinished) = unfinished(dir)? {
                return Ok(ListedTars::Unfinished(unfinished));
            }
            if holds_datasets(dir)? {
                return Ok(ListedTars::All(found));
            }
            let below = below(dir)?;
            if let Some(stray) = below.stray() {
                return Ok(ListedTars::Stray(stray));
            }
            for name in below.tars {
                let bytes = dir.open_file(&name)?.len();
                found.extend(Found::of(&name, bytes));
            }
        }
        Shelf::Store(store) => {
            let objects = store.list("", MOST_OBJECTS, &mut |_| true)?;
            let names = objects.iter().map(|object| object.name.as_str());
            if let Some(unfinished) = Unfinished::among(names) {
                return Ok(ListedTars::Unfinished(unfinished));
            }
            if objects.iter().any(|object| is_index_below(&object.name)) {
                return Ok(ListedTars::All(found));
            }
            let names = objects.iter().map(|object| object.name.clone());
            if let Some(stray) = Below::of(names.collect()).stray() {
                return Ok(ListedTars::Stray(stray));
            }
            for object in objects {
                if is_tar_below(&object.name) {
                    found.extend(Found::of(&object.name, object.bytes));
                }
            }
            drop_unpacked(&mut found, |shard| &shard.name);
            found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        }
    }
    Ok(ListedTars::All(found))
}

/// Whether an object is the index of a dataset in the folder that was listed.
fn is_index_below(name: &str) -> bool {
    match name.split_once('/') {
        Some((folder, name)) => name == INDEX_NAME && !folder.starts_with('.'),
        None => false,
    }
}

/// The tar files of a pattern, in its order; all of them have to be there.
pub(crate) fn find_tars(shelf: Shelf<'_>, pattern: &TarPattern) -> Result<Vec<Found>, ReaderError> {
    let names = pattern.names();
    let sizes = Mutex::new(vec![0; names.len()]);
    let jobs = match shelf {
        Shelf::Folder(_) => 0,
        Shelf::Store(_) => STORE_SHARDS,
    };
    for_each(names.len(), jobs, |number, (): &mut ()| {
        let Some(name) = names.get(number) else {
            return Ok(());
        };
        let (bytes, path) = match shelf {
            Shelf::Folder(dir) => match dir.open_file(name) {
                Ok(file) => (Some(file.len()), dir.path_of(name)),
                Err(error) if error.is_not_found() => (None, dir.path_of(name)),
                Err(error) => return Err(error.into()),
            },
            Shelf::Store(store) => (store.size(name, &mut |_| true)?, store.display(name).into()),
        };
        let Some(bytes) = bytes else {
            let pattern = pattern.text().to_owned();
            return Err(ReaderError::PatternShard { path, pattern });
        };
        let mut sizes = sizes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(size) = sizes.get_mut(number) {
            *size = bytes;
        }
        Ok(())
    })?;
    let sizes = sizes.into_inner().unwrap_or_else(PoisonError::into_inner);
    let found = names.iter().zip(sizes);
    Ok(found
        .filter_map(|(name, bytes)| Found::of(name, bytes))
        .collect())
}

/// The hashes of the keys of tar files, each in the order of its samples.
pub(crate) fn hash_keys(
    shelf: Shelf<'_>,
    found: &[Found],
    limits: &Limits,
) -> Result<Vec<Vec<u64>>, ReaderError> {
    scan_each(shelf, found, limits, |_, map| {
        let keys = map.samples.iter().map(|sample| hash_key(&sample.key));
        keys.collect()
    })
}

/// Reads the headers of tar files, and makes of each what `make` makes of them.
fn scan_each<T: Send>(
    shelf: Shelf<'_>,
    found: &[Found],
    limits: &Limits,
    make: impl Fn(&Found, &ShardMap) -> T + Sync,
) -> Result<Vec<T>, ReaderError> {
    match shelf {
        Shelf::Folder(dir) => scan_folder(dir, found, limits, make),
        Shelf::Store(store) => scan_store(store, found, limits, make),
    }
}

fn scan_folder<T: Send>(
    dir: &Dir,
    found: &[Found],
    limits: &Limits,
    make: impl Fn(&Found, &ShardMap) -> T + Sync,
) -> Result<Vec<T>, ReaderError> {
    let done: Mutex<Vec<Option<T>>> = Mutex::new(found.iter().map(|_| None).collect());
    for_each(found.len(), 0, |number, (): &mut ()| {
        let Some(shard) = found.get(number) else {
            return Ok(());
        };
        let file = dir.open_file(&shard.name)?;
        let map = if shard.compression.is_some() {
            unpack(shard, number, &file.read_all(limits.shard_bytes)?, limits)?
        } else {
            let mapping = map(&file)?;
            let mut scan = ShardScan::new(file.len(), limits);
            let need = step(&mut scan, shard, number, 0, mapping.bytes());
            // What is gone reads as zeros, which have errors of their own.
            if mapping.is_damaged() || need?.is_some() {
                return Err(shard.changed(number));
            }
            scan.finish()
        };
        let made = make(shard, &map);
        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = done.get_mut(number) {
            *slot = Some(made);
        }
        Ok(())
    })?;
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(done.into_iter().flatten().collect())
}

fn scan_store<T>(
    store: &Remote,
    found: &[Found],
    limits: &Limits,
    make: impl Fn(&Found, &ShardMap) -> T,
) -> Result<Vec<T>, ReaderError> {
    let mut done = Vec::with_capacity(found.len());
    for (group, shards) in found.chunks(STORE_SHARDS).enumerate() {
        let first = group * STORE_SHARDS;
        let mut maps: Vec<Option<ShardMap>> = vec![None; shards.len()];
        let mut scans: Vec<ShardScan> = shards
            .iter()
            .map(|shard| ShardScan::new(shard.bytes, limits))
            .collect();
        // Which part of which shard is to be read next, all at once.
        let mut wanted: Vec<(usize, Range<u64>)> = Vec::new();
        for (place, shard) in shards.iter().enumerate() {
            if shard.compression.is_some() {
                let bytes = store.read(&shard.name, limits.shard_bytes)?;
                if let Some(slot) = maps.get_mut(place) {
                    *slot = Some(unpack(shard, first + place, &bytes, limits)?);
                }
            } else {
                wanted.push((place, widened(&(0..0), shard.bytes)));
            }
        }
        while !wanted.is_empty() {
            let name = |place: usize| shards.get(place).map(|shard| shard.name.clone());
            let ranges: Vec<(String, Range<u64>)> = wanted
                .iter()
                .map(|(place, range)| (name(*place).unwrap_or_default(), range.clone()))
                .collect();
            let read = store.read_ranges(&ranges);
            let mut next = Vec::new();
            for ((place, range), bytes) in wanted.into_iter().zip(read) {
                let (Some(shard), Some(scan)) = (shards.get(place), scans.get_mut(place)) else {
                    continue;
                };
                let need = step(scan, shard, first + place, range.start, &bytes?)?;
                if let Some(range) = need {
                    next.push((place, widened(&range, shard.bytes)));
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

/// A range with what lies behind it, up to a window and to the end of the object.
fn widened(range: &Range<u64>, length: u64) -> Range<u64> {
    let end = range.end.max(range.start.saturating_add(STORE_WINDOW));
    range.start..end.min(length.max(range.start))
}

/// Goes on with a scan. A file without any bytes has no end either.
fn step(
    scan: &mut ShardScan,
    shard: &Found,
    number: usize,
    at: u64,
    bytes: &[u8],
) -> Result<Option<Range<u64>>, ReaderError> {
    let need = scan.step(at, bytes).map_err(|source| ReaderError::Tar {
        place: shard.place(number),
        source: Box::new(source),
    })?;
    match need {
        // INVARIANT: a scan asks for less than it was given only where the file is shorter than when it was listed.
        Some(range) if range.start == at && range.end <= at.saturating_add(bytes.len() as u64) => {
            Err(shard.changed(number))
        }
        need => Ok(need),
    }
}

fn unpack(
    shard: &Found,
    number: usize,
    zip: &[u8],
    limits: &Limits,
) -> Result<ShardMap, ReaderError> {
    let raw = decompress(zip, None, limits).map_err(|source| ReaderError::TarDecompress {
        place: shard.place(number),
        source: Box::new(source),
    })?;
    ShardMap::read(&raw, limits).map_err(|source: TarError| ReaderError::Tar {
        place: shard.place(number),
        source: Box::new(source),
    })
}
