//! Verifies stored files against the index and decompresses them.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use shardmill_cache::{Activity, RawBlob, Timings};
use shardmill_dataset::{Body, Catalog, DatasetError};
use shardmill_mds::{Digest, FileInfo, HashAlgo, Hasher};
use shardmill_storage::{FileHandle, StorageError};

/// The hashes of the format, strongest first; the faster first among equally strong ones.
const BY_STRENGTH: [HashAlgo; 17] = [
    HashAlgo::Sha512,
    HashAlgo::Blake2b,
    HashAlgo::Sha3_512,
    HashAlgo::Sha384,
    HashAlgo::Sha3_384,
    HashAlgo::Sha256,
    HashAlgo::Blake2s,
    HashAlgo::Sha3_256,
    HashAlgo::Sha224,
    HashAlgo::Sha3_224,
    HashAlgo::Sha1,
    HashAlgo::Md5,
    HashAlgo::Xxh3_128,
    HashAlgo::Xxh128,
    HashAlgo::Xxh3_64,
    HashAlgo::Xxh64,
    HashAlgo::Xxh32,
];

/// Verifies stored files (data, then offsets) against the index, decompresses them, and checks the result.
pub(crate) fn unpack(
    catalog: &Catalog,
    timings: &Arc<Timings>,
    shard: usize,
    files: Vec<Vec<u8>>,
) -> Result<RawBlob, DatasetError> {
    let entry = catalog
        .entry(shard)
        .ok_or_else(|| catalog.no_shard(shard))?;
    if let Some((computed, number)) = catalog.computed(shard) {
        let bytes = files.into_iter().next().unwrap_or_default();
        let _step = timings.start(Activity::Decompress);
        let data = computed.compute(number, bytes)?;
        Body::open(catalog, shard, data.as_slice(), None)?;
        return Ok(RawBlob {
            data,
            table: None,
            packed: Vec::new(),
        });
    }
    let mut raws = Vec::with_capacity(2);
    let mut packed = Vec::new();
    for (part, bytes) in entry.parts().zip(files) {
        let stored = part.stored();
        check_limit(catalog, Path::new(""), bytes.len() as u64)?;
        check_length(catalog, shard, stored, bytes.len() as u64)?;
        let step = timings.start(Activity::Hash);
        check_bytes(catalog, shard, stored, &bytes, false)?;
        drop(step);
        if part.zip.is_none() {
            raws.push(bytes);
            continue;
        }
        let location = || catalog.location(shard);
        let step = timings.start(Activity::Decompress);
        let raw = part.unpack(&bytes, location, catalog.limits())?;
        drop(step);
        let _step = timings.start(Activity::Hash);
        if demands(catalog, shard, stored).is_empty() {
            check_bytes(catalog, shard, part.raw, &raw, true)?;
        } else if let Some(algo) = catalog.validate(shard)
            && part.raw.hashes.get(algo).is_some()
        {
            // The hash of the stored bytes covers the raw ones, so only the requested hash is checked.
            check_algo(catalog, shard, part.raw, algo, &raw, true)?;
        }
        packed.push(bytes);
        raws.push(raw);
    }
    let mut raws = raws.into_iter();
    let data = raws.next().unwrap_or_default();
    let table = raws.next();
    Body::open(catalog, shard, data.as_slice(), table.as_deref())?;
    Ok(RawBlob {
        data,
        table,
        packed,
    })
}

/// Returns the digests that an untrusted file must match; empty if the index has no hash.
pub(crate) fn demands(catalog: &Catalog, shard: usize, info: &FileInfo) -> Vec<Digest> {
    wanted(catalog, shard, info)
        .filter_map(|algo| info.hashes.get(algo))
        .collect()
}

/// Returns the hashes to check: the strongest in the index, and the requested one.
fn wanted(catalog: &Catalog, shard: usize, info: &FileInfo) -> impl Iterator<Item = HashAlgo> {
    let strongest = BY_STRENGTH
        .into_iter()
        .find(|algo| info.hashes.get(*algo).is_some());
    let requested = catalog
        .validate(shard)
        .filter(|algo| Some(*algo) != strongest && info.hashes.get(*algo).is_some());
    strongest.into_iter().chain(requested)
}

fn check_bytes(
    catalog: &Catalog,
    shard: usize,
    info: &FileInfo,
    bytes: &[u8],
    raw: bool,
) -> Result<(), DatasetError> {
    for algo in wanted(catalog, shard, info) {
        check_algo(catalog, shard, info, algo, bytes, raw)?;
    }
    Ok(())
}

fn check_algo(
    catalog: &Catalog,
    shard: usize,
    info: &FileInfo,
    algo: HashAlgo,
    bytes: &[u8],
    raw: bool,
) -> Result<(), DatasetError> {
    info.hashes
        .check(algo, bytes)
        .map_err(|source| DatasetError::hash(catalog.location(shard), raw, source))
}

fn check_length(
    catalog: &Catalog,
    shard: usize,
    info: &FileInfo,
    found: u64,
) -> Result<(), DatasetError> {
    if found == info.bytes {
        return Ok(());
    }
    let location = catalog.location(shard);
    Err(DatasetError::shard_length(location, info.bytes, found))
}

/// Checks that a file is not larger than the limit for shards.
fn check_limit(catalog: &Catalog, path: &Path, bytes: u64) -> Result<(), DatasetError> {
    let limit = ("shard-bytes", catalog.limits().shard_bytes);
    DatasetError::check_limit(limit, bytes, || path.to_owned())
}

/// Which hashes of a file in a folder are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// None: this process verified the file before, or another process did since the machine started.
    Known,
    /// Only the requested one, because the file is the dataset itself.
    Own,
    /// The strongest and the requested one.
    Unknown,
}

/// Checks the length and the hashes of a file in a folder.
pub(crate) fn check_file(
    catalog: &Catalog,
    shard: usize,
    info: &FileInfo,
    file: &FileHandle,
    trust: Trust,
) -> Result<(), DatasetError> {
    /// PERF: hash each piece while it is in the core's cache.
    const PIECE: usize = 256 << 10;

    if !catalog.is_computed(shard) {
        check_length(catalog, shard, info, file.len())?;
    }
    check_limit(catalog, file.path(), file.len())?;
    let mut hashers: Vec<Hasher> = match trust {
        Trust::Known => Vec::new(),
        Trust::Own => catalog
            .validate(shard)
            .filter(|algo| info.hashes.get(*algo).is_some())
            .map(Hasher::new)
            .into_iter()
            .collect(),
        Trust::Unknown => wanted(catalog, shard, info).map(Hasher::new).collect(),
    };
    if hashers.is_empty() {
        return Ok(());
    }
    let mut reader = file.reader();
    let mut piece = vec![0; PIECE];
    loop {
        let read = reader.read(&mut piece).map_err(|source| StorageError::Io {
            action: "read",
            path: file.path().to_owned(),
            source,
        })?;
        if read == 0 {
            break;
        }
        for hasher in &mut hashers {
            hasher.update(piece.get(..read).unwrap_or_default());
        }
    }
    file.check_unchanged()?;
    for hasher in hashers {
        info.hashes
            .check_digest(hasher.finish())
            .map_err(|source| DatasetError::hash(catalog.location(shard), false, source))?;
    }
    Ok(())
}
