//! Reads the files of shards from their origin: a store or a folder.

use std::ops::Range;

use shardmill_cache::{BlobPart, Pending};
use shardmill_dataset::{
    Catalog, DatasetError, DatasetProblem, Entry, FileEntry, FileRanges, Part, Stream,
    ValueLocation,
};
use shardmill_mds::{FileInfo, HashAlgo, Hasher};
use shardmill_peers::PeerFile;
use shardmill_storage::{Dir, FileHandle, Folder, StorageError};

/// A byte range of an uncompressed file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileRange {
    pub(crate) shard: usize,
    pub(crate) part: BlobPart,
    pub(crate) range: Range<u64>,
}

/// Returns the stored form of a shard's file.
fn stored(catalog: &Catalog, shard: usize, part: BlobPart) -> Option<&FileInfo> {
    let mut files = catalog.entry(shard)?.parts();
    let file = match part {
        BlobPart::Data => files.next(),
        BlobPart::Table => files.nth(1),
    };
    file.as_ref().map(Part::stored)
}

/// Returns the name of a shard's file between nodes, with its description. `None` for a shard that nodes do not exchange: one
/// that is read in place, one that is computed, or a raw file, whose version only the store knows.
pub(crate) fn peer_file(
    catalog: &Catalog,
    shard: usize,
    part: BlobPart,
) -> Option<(PeerFile, &FileInfo)> {
    let (stream, number) = catalog.stream_of(shard)?;
    let (origin, entry) = (stream.origin.as_ref()?, catalog.entry(shard)?);
    if entry.raw_file().is_some() || stream.computed().is_some() {
        return None;
    }
    // Two datasets without hashes may have the same index, and the files of a shard may be replaced during a run.
    let mut set = Hasher::new(HashAlgo::Sha256);
    set.update(&stream.index_digest);
    set.update(origin.path_of("").as_os_str().as_encoded_bytes());
    for part in entry.parts() {
        set.update(b"\0");
        set.update(part.stored().basename.as_bytes());
    }
    let file = PeerFile {
        set: set.finish().as_bytes().try_into().ok()?,
        number: number as u64,
        part: match part {
            BlobPart::Data => 0,
            BlobPart::Table => 1,
        },
    };
    Some((file, stored(catalog, shard, part)?))
}

/// Starts fetching the stored form of a file. Calls `done` once, on any thread, immediately or later, unless the
/// returned value was dropped before. The bytes are not verified.
pub(crate) fn fetch(
    catalog: &Catalog,
    shard: usize,
    part: BlobPart,
    done: impl FnOnce(Result<Vec<u8>, DatasetError>) + Send + 'static,
) -> Pending {
    let finish = move |result: Result<Vec<u8>, DatasetError>| -> Pending {
        done(result);
        Box::new(())
    };
    let (Some((stream, _)), Some(info)) = (catalog.stream_of(shard), stored(catalog, shard, part))
    else {
        return finish(Err(catalog.no_shard(shard)));
    };
    // A computed shard is made from ranges of a file.
    let computed = catalog.computed(shard);
    let wanted = computed.map(|(computed, number)| computed.ranges(number));
    let wanted = match wanted.transpose() {
        Ok(wanted) => wanted,
        Err(error) => return finish(Err(error)),
    };
    let listed = match (&wanted, catalog.entry(shard)) {
        (Some(wanted), _) => Some(wanted.file),
        (None, Some(Entry::File(file, _))) => Some(file),
        (None, _) => None,
    };
    let remote = match (stream.source(), &wanted) {
        (Folder::Store(store), _) => store.remote(),
        (Folder::Local(dir), Some(wanted)) => {
            return finish(read_listed(catalog, shard, dir, wanted));
        }
        (Folder::Local(dir), None) => return finish(read_whole(catalog, shard, dir, info)),
    };
    if let Some(file) = listed
        && let Err(error) = remote.pin(std::iter::once((&*file.info.basename, &*file.tag)))
    {
        return finish(Err(error.into()));
    }
    let (location, is_listed) = (catalog.location(shard), listed.is_some());
    let missing = match &wanted {
        Some(_) => DatasetError::file_missing(location.clone()),
        None => missing(catalog, shard),
    };
    let done = move |result: Result<Vec<u8>, StorageError>| {
        finish(result.map_err(|error| match error {
            error if is_listed && is_other(&error) => object_changed(location),
            error => named(error, missing),
        }));
    };
    match wanted {
        Some(FileRanges { file, ranges }) => {
            let info = &file.info;
            Box::new(remote.fetch_ranges(&info.basename, info.bytes, ranges, done))
        }
        None => Box::new(remote.fetch(&info.basename, info.bytes, done)),
    }
}

/// Reads ranges of a local file that was listed.
fn read_listed(
    catalog: &Catalog,
    shard: usize,
    dir: &Dir,
    wanted: &FileRanges<'_>,
) -> Result<Vec<u8>, DatasetError> {
    let file = dir
        .open_file(&wanted.file.info.basename)
        .map_err(|error| named(error, DatasetError::file_missing(catalog.location(shard))))?;
    check_listed(catalog, shard, wanted.file, &file)?;
    let length = usize::try_from(wanted.bytes()).unwrap_or(usize::MAX);
    let mut bytes = Vec::new();
    bytes
        .try_reserve_exact(length)
        .map_err(|_| DatasetError::out_of_memory(wanted.bytes()))?;
    for range in &wanted.ranges {
        bytes.extend(file.read_range(range.start, range.end - range.start)?);
    }
    file.check_unchanged()?;
    Ok(bytes)
}

/// Reads ranges of uncompressed files, all at once, and returns one result for each. Blocks.
pub(crate) fn read_ranges(
    catalog: &Catalog,
    wanted: &[FileRange],
) -> Vec<Result<Vec<u8>, DatasetError>> {
    let mut results = Vec::with_capacity(wanted.len());
    results.resize_with(wanted.len(), || None);
    for (number, stream) in catalog.streams().iter().enumerate() {
        let mut indexes = Vec::new();
        let mut ranges = Vec::new();
        for (index, piece) in wanted.iter().enumerate() {
            let own = stream_number(catalog, piece.shard) == Some(number);
            if let Some(info) = stored(catalog, piece.shard, piece.part).filter(|_| own) {
                indexes.push(index);
                ranges.push((info.basename.to_string(), piece.range.clone()));
            }
        }
        for (index, result) in indexes.into_iter().zip(read_from(stream, &ranges)) {
            let shard = wanted.get(index).map_or(0, |piece| piece.shard);
            if let Some(slot) = results.get_mut(index) {
                *slot = Some(result.map_err(|error| named(error, missing(catalog, shard))));
            }
        }
    }
    let shards = wanted.iter().map(|piece| piece.shard);
    results
        .into_iter()
        .zip(shards)
        .map(|(result, shard)| result.unwrap_or_else(|| Err(catalog.no_shard(shard))))
        .collect()
}

/// Returns the number of the stream of a shard.
pub(crate) fn stream_number(catalog: &Catalog, shard: usize) -> Option<usize> {
    let (stream, _) = catalog.stream_of(shard)?;
    catalog
        .streams()
        .iter()
        .position(|other| std::ptr::eq(other, stream))
}

fn read_from(
    stream: &Stream,
    wanted: &[(String, Range<u64>)],
) -> Vec<Result<Vec<u8>, StorageError>> {
    if wanted.is_empty() {
        return Vec::new();
    }
    let dir = match stream.source() {
        Folder::Store(store) => return store.remote().read_ranges(wanted),
        Folder::Local(dir) => dir,
    };
    let read = |(name, range): &(String, Range<u64>)| {
        let file = dir.open_file(name)?;
        file.read_range(range.start, range.end.saturating_sub(range.start))
    };
    wanted.iter().map(read).collect()
}

/// Reads a file of a folder, and checks that its length matches the index.
fn read_whole(
    catalog: &Catalog,
    shard: usize,
    dir: &Dir,
    info: &FileInfo,
) -> Result<Vec<u8>, DatasetError> {
    let file = dir
        .open_file(&info.basename)
        .map_err(|error| named(error, missing(catalog, shard)))?;
    if let Some(Entry::File(entry, _)) = catalog.entry(shard) {
        check_listed(catalog, shard, entry, &file)?;
        let bytes = file.read_all(catalog.limits().shard_bytes)?;
        file.check_unchanged()?;
        return Ok(bytes);
    }
    if file.len() != info.bytes {
        let location = catalog.location(shard);
        return Err(DatasetError::shard_length(location, info.bytes, file.len()));
    }
    Ok(file.read_all(catalog.limits().shard_bytes)?)
}

/// Checks that a raw file is still the one that was listed.
pub(crate) fn check_listed(
    catalog: &Catalog,
    shard: usize,
    entry: &FileEntry,
    file: &FileHandle,
) -> Result<(), DatasetError> {
    if entry.is(file) {
        return Ok(());
    }
    let (location, listed) = (catalog.location(shard), entry.info.bytes);
    Err(DatasetError::listed_file_changed(
        location,
        listed,
        file.len(),
        false,
    ))
}

/// Returns the error for a file in a store that changed since it was listed.
fn object_changed(location: ValueLocation) -> DatasetError {
    let reason = "the object has changed since it was listed: it has another ETag";
    DatasetProblem::ObjectChanged.at(location, reason)
}

/// Returns whether the object in a store is not the requested version.
fn is_other(error: &StorageError) -> bool {
    matches!(error.fault(), StorageError::ObjectChanged)
}

/// Returns the error for a missing file.
pub(crate) fn missing(catalog: &Catalog, shard: usize) -> DatasetError {
    if let Some(Entry::File(..)) = catalog.entry(shard) {
        let location = catalog.location(shard);
        return DatasetError::file_missing(location);
    }
    let samples = catalog.entry(shard).map_or(0, Entry::samples);
    DatasetError::shard_missing(
        catalog.location(shard),
        catalog.first_sample(shard),
        samples,
    )
}

pub(crate) fn named(error: StorageError, missing: DatasetError) -> DatasetError {
    if error.is_not_found() {
        missing
    } else {
        error.into()
    }
}
