//! The traits by which the cache learns about blobs, fetches them and opens them. A user of the cache implements both.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use shardmill_codec::{Digest, FileInfo};
use shardmill_core::Diagnostic;
use shardmill_storage::{Dir, FileHandle, FileIdentity, StorageError};

use crate::error::CacheError;
use crate::marker::{MARKER_BYTES, Marker, PostExitHold};
use crate::timings::Timings;

/// A file of a blob.
#[derive(Clone, Copy, Debug)]
pub struct BlobFile<'a> {
    /// The file that callers read.
    pub raw: &'a FileInfo,
    /// The compressed file at the origin, if the blob is stored compressed.
    pub packed: Option<&'a FileInfo>,
}

impl<'a> BlobFile<'a> {
    /// Returns the file at the origin.
    #[must_use]
    pub const fn stored(self) -> &'a FileInfo {
        match self.packed {
            Some(packed) => packed,
            None => self.raw,
        }
    }
}

/// A blob as its catalog describes it: one or two files that are fetched, kept and evicted together.
#[derive(Clone, Copy, Debug)]
pub struct Blob<'a> {
    /// The first file.
    pub data: BlobFile<'a>,
    /// The second file, if there is one.
    pub table: Option<BlobFile<'a>>,
    /// Whether the cache stores the blob, because it is elsewhere or compressed. Other blobs are read in place.
    pub is_kept: bool,
    /// Whether the compressed files are stored as well.
    pub keep_packed: bool,
    /// Whether callers use the path of the file, so that the blob must be on disk.
    pub needs_file: bool,
    /// Whether the catalog has no hash of the file. An existing file is used only if the cache wrote it.
    pub is_unhashed: bool,
}

impl<'a> Blob<'a> {
    /// Returns the files, in order.
    pub fn files(self) -> impl Iterator<Item = BlobFile<'a>> {
        std::iter::once(self.data).chain(self.table)
    }

    /// Returns the bytes that the blob takes in the cache folder, including its marker.
    #[must_use]
    pub fn cached_bytes(self) -> u64 {
        MARKER_BYTES.saturating_add(self.bytes(self.keep_packed))
    }

    /// Returns the bytes of all files, raw and compressed.
    #[must_use]
    pub fn total_bytes(self) -> u64 {
        self.bytes(true)
    }

    /// Returns the bytes of the raw files.
    #[must_use]
    pub fn raw_bytes(self) -> u64 {
        self.bytes(false)
    }

    fn bytes(self, with_packed: bool) -> u64 {
        self.files().fold(0, |sum, file| {
            let packed = file.packed.filter(|_| with_packed);
            sum.saturating_add(file.raw.bytes)
                .saturating_add(packed.map_or(0, |packed| packed.bytes))
        })
    }

    /// Returns a file of the blob.
    #[must_use]
    pub const fn file(self, part: BlobPart) -> Option<BlobFile<'a>> {
        match part {
            BlobPart::Data => Some(self.data),
            BlobPart::Table => self.table,
        }
    }
}

/// Names a file of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlobPart {
    /// The first file.
    Data,
    /// The second file.
    Table,
}

/// Blobs with consecutive numbers that are cached in the same folder.
#[derive(Clone, Copy, Debug)]
pub struct BlobSet<'a> {
    /// The folder. It holds all blobs if the set is not remote, and is otherwise filled by the cache.
    pub local: &'a Dir,
    /// A hash of the set, which names the cache's own folder.
    pub digest: &'a [u8; 32],
    /// The number of the first blob.
    pub first: usize,
    /// The number of blobs.
    pub blobs: usize,
    /// Whether the blobs are fetched from elsewhere.
    pub is_remote: bool,
}

/// A blob and its set.
#[derive(Clone, Copy, Debug)]
pub struct BlobEntry<'a> {
    /// The blob.
    pub blob: Blob<'a>,
    /// Its set.
    pub set: BlobSet<'a>,
    /// The number of the set.
    pub set_number: usize,
    /// The number of the blob in its set.
    pub number: usize,
}

/// Why the cache cannot use a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlobProblem {
    /// The catalog has no blob of that number.
    Absent,
    /// A file exists that the cache did not write, and there is no hash to check it.
    Unverifiable,
    /// The files changed while they were used.
    Changed,
}

/// The identities of a blob's files when they were verified.
pub type KnownFiles = (FileIdentity, Option<FileIdentity>);

/// The result of an operation on blobs whose own errors have the type `E`.
pub type BlobResult<T, E> = Result<T, CacheError<E>>;

/// Receives the result of a fetch.
pub type Done<E> = Box<dyn FnOnce(BlobResult<Vec<u8>, E>) + Send>;

/// A fetch in flight; dropping it cancels the fetch.
pub type Pending = Box<dyn Send>;

/// The names, sizes and hashes of blobs, numbered from 0 over all sets.
pub trait BlobCatalog: Send + Sync + 'static {
    /// An error of reading or checking a blob.
    type Error: Diagnostic + Send + Sync + 'static;

    /// Returns the number of blobs.
    fn len(&self) -> usize;
    /// Returns whether there are no blobs.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns the sets in the order of their blobs.
    fn sets(&self) -> impl ExactSizeIterator<Item = BlobSet<'_>>;
    /// Returns a blob with its set.
    fn entry(&self, blob: usize) -> Option<BlobEntry<'_>>;
    /// Returns a blob.
    fn blob(&self, blob: usize) -> Option<Blob<'_>> {
        Some(self.entry(blob)?.blob)
    }
    /// Returns the bytes of the description of a remote set that is stored in its folder.
    fn index_bytes(&self, set: usize) -> u64;
    /// Returns whether parts of a blob can be used without checking the whole.
    fn is_divisible(&self, blob: usize) -> bool;
    /// Returns the name of a blob in messages.
    fn name(&self, blob: usize) -> String;
    /// Returns what is lost with a blob, for messages: `samples 4 to 7`.
    fn contents(&self, blob: usize) -> String;
    /// Returns the error for a blob that cannot be used.
    fn error(&self, blob: usize, problem: BlobProblem) -> Self::Error;
}

/// Fetches, checks and opens blobs.
///
/// Errors of the content are [`CacheError::Blob`]. After any other error, nothing is known about the content.
pub trait Blobs: BlobCatalog {
    /// A blob that can be read.
    type Open: fmt::Debug + Send + Sync + 'static;

    /// Returns where the time of each step is recorded.
    fn timings(&self) -> &Arc<Timings>;
    /// Starts fetching a file in its stored form. Calls `done` once, on any thread, immediately or later, unless the
    /// returned value was dropped before. The bytes are not checked.
    fn fetch(&self, blob: usize, part: BlobPart, done: Done<Self::Error>) -> Pending;
    /// Checks the fetched files of a blob, and decompresses them.
    ///
    /// # Errors
    ///
    /// [`CacheError::Blob`] if they are not the blob's files.
    fn unpack(&self, blob: usize, files: Vec<Vec<u8>>) -> BlobResult<RawBlob, Self::Error>;
    /// Returns the digests that a file must match before it is trusted; empty if it has no hash.
    fn demands(&self, blob: usize, file: &FileInfo) -> Vec<Digest>;
    /// Checks the length of a file in a folder, and its hashes if `hashes` is set.
    ///
    /// # Errors
    ///
    /// [`CacheError::Blob`] if it is not the blob's file.
    fn check_file(
        &self,
        blob: usize,
        info: &FileInfo,
        file: &FileHandle,
        hashes: bool,
    ) -> BlobResult<(), Self::Error>;
    /// Opens a blob that is not kept in the cache. `known` are its files if they were checked before; the result has
    /// those to remember.
    ///
    /// # Errors
    ///
    /// [`CacheError::Blob`] if the blob is missing or damaged.
    fn open_in_place(
        &self,
        blob: usize,
        known: Option<KnownFiles>,
    ) -> BlobResult<(Self::Open, Option<KnownFiles>), Self::Error>;
    /// Opens checked files in `dir`.
    ///
    /// # Errors
    ///
    /// [`CacheError::Blob`] if the structure of the blob is damaged.
    fn map(
        &self,
        blob: usize,
        dir: &Dir,
        data: &FileHandle,
        table: Option<&FileHandle>,
    ) -> BlobResult<Self::Open, Self::Error>;
    /// Opens a blob in memory.
    ///
    /// # Errors
    ///
    /// [`CacheError::Blob`] if the structure of the blob is damaged.
    fn in_memory(&self, blob: usize, raw: RawBlob) -> BlobResult<Self::Open, Self::Error>;
    /// Returns whether another fetch cannot help after this error: the blob was replaced or is missing at its origin.
    fn is_lasting(&self, error: &Self::Error) -> bool;
}

/// The raw files of a blob in memory.
#[derive(Debug)]
pub struct RawBlob {
    /// The first file.
    pub data: Vec<u8>,
    /// The second file.
    pub table: Option<Vec<u8>>,
    /// The compressed files that they were decompressed from.
    pub packed: Vec<Vec<u8>>,
}

impl RawBlob {
    /// Returns the bytes of the raw files.
    pub(crate) fn bytes(&self) -> u64 {
        (self.data.len() + self.table.as_ref().map_or(0, Vec::len)) as u64
    }
}

/// An open blob. If callers use the path of its file, the file is pinned until this is dropped.
#[derive(Debug)]
pub struct CachedBlob<O> {
    number: usize,
    open: O,
    pin: Option<Marker>,
}

impl<O> CachedBlob<O> {
    pub(crate) const fn new(number: usize, open: O, pin: Option<Marker>) -> Self {
        Self { number, open, pin }
    }

    /// Returns the number of the blob.
    #[must_use]
    pub const fn number(&self) -> usize {
        self.number
    }

    /// Returns whether the blob must stay open while the path of its file is in use.
    #[must_use]
    pub const fn is_pinned(&self) -> bool {
        self.pin.is_some()
    }

    /// Keeps a pinned file in the cache after this process ends: for a minute, or until the next epoch of `owner`
    /// begins.
    pub fn leave_in_use(&self, owner: u64, epoch: u64) -> Result<(), StorageError> {
        let pin = self.pin.as_ref();
        pin.map_or(Ok(()), |pin| {
            pin.leave_in_use(PostExitHold { owner, epoch })
        })
    }
}

impl<O> Deref for CachedBlob<O> {
    type Target = O;

    fn deref(&self) -> &O {
        &self.open
    }
}

/// How a blob can be read.
#[derive(Debug)]
pub enum Access<O> {
    /// From the open blob.
    Open(Arc<CachedBlob<O>>),
    /// Without the cache, because there is no space for it.
    Uncached,
}
