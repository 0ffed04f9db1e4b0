//! Reads the raw bytes of a tar shard.

use shardmill_core::Limits;
use shardmill_mmap::Mapping;
use shardmill_storage::{StorageError, Stored};
use shardmill_webdataset::{
    FileHashes, Survey, Surveyor, TarCompression, decompress, decompress_partial,
};

use super::{TarFile, TarSetError};
use crate::body::map;

/// The bytes that are read at a time while searching headers. The next header is mostly within them, or far away.
const WINDOW_BYTES: u64 = 64 << 10;

/// The window for an object in a store, where a request takes as long as the transfer of some megabytes.
const OBJECT_WINDOW_BYTES: u64 = 8 << 20;

/// The bytes that identify the compression of a file.
const MAGIC_BYTES: u64 = 4;

/// A raw shard, mapped or decompressed.
#[derive(Debug)]
pub struct TarData {
    held: Held,
}

#[derive(Debug)]
enum Held {
    Mapped(Mapping),
    Memory(Vec<u8>),
}

impl AsRef<[u8]> for TarData {
    fn as_ref(&self) -> &[u8] {
        match &self.held {
            Held::Mapped(mapping) => mapping.bytes(),
            Held::Memory(bytes) => bytes,
        }
    }
}

impl TarData {
    /// Returns whether the file could not be read, or was truncated, since it was opened. If so, bytes that were read
    /// since then are invalid.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        match &self.held {
            Held::Mapped(mapping) => mapping.is_damaged(),
            Held::Memory(_) => false,
        }
    }
}

fn compression(file: &Stored) -> Result<Option<TarCompression>, StorageError> {
    let head = file.read_range(0, file.len().min(MAGIC_BYTES))?;
    Ok(TarCompression::sniff(&head))
}

/// Returns the bytes of an uncompressed shard.
fn held(file: &Stored, limits: &Limits) -> Result<Held, StorageError> {
    match file.as_file() {
        Some(file) => Ok(Held::Mapped(map(file)?)),
        None => Ok(Held::Memory(file.read_all(limits.shard_bytes)?)),
    }
}

impl TarFile {
    /// Returns the compression of the file, detected from its first bytes.
    ///
    /// # Errors
    ///
    /// Errors of reading the file.
    pub fn compression(&self) -> Result<Option<TarCompression>, TarSetError> {
        Ok(compression(&self.open()?)?)
    }

    /// Returns the raw shard. An uncompressed file is mapped.
    ///
    /// # Errors
    ///
    /// [`TarSetError`]: a file that cannot be read or decompressed, or that does not have the length in the index.
    pub fn load(&self, limits: &Limits) -> Result<TarData, TarSetError> {
        self.load_with(limits, |_| Ok(()))
    }

    /// Returns the raw shard, after checking the quickest hash of its index entry, if any.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load); [`TarSetError::Hash`].
    pub fn load_checked(&self, limits: &Limits) -> Result<TarData, TarSetError> {
        self.load_with(limits, |stored| {
            let hashes = self.entry.as_ref().map(|entry| &entry.stored().hashes);
            let algo = hashes.and_then(FileHashes::quickest);
            let (Some(hashes), Some(algo)) = (hashes, algo) else {
                return Ok(());
            };
            hashes
                .check(algo, stored)
                .map_err(|source| TarSetError::Hash {
                    path: self.path(),
                    source,
                })
        })
    }

    /// Returns the raw shard. `check` is called with the stored bytes of the file.
    fn load_with(
        &self,
        limits: &Limits,
        check: impl FnOnce(&[u8]) -> Result<(), TarSetError>,
    ) -> Result<TarData, TarSetError> {
        let file = self.open()?;
        if let Some(entry) = &self.entry {
            let expected = entry.stored().bytes;
            if file.len() != expected {
                return Err(TarSetError::Length {
                    path: self.path(),
                    expected,
                    found: file.len(),
                });
            }
        }
        let held = match compression(&file)? {
            None => {
                let data = TarData {
                    held: held(&file, limits)?,
                };
                check(data.as_ref())?;
                data.held
            }
            Some(_) => {
                let zip = file.read_all(limits.shard_bytes)?;
                check(&zip)?;
                let raw_bytes = self.entry.as_ref().map(|entry| entry.raw_data.bytes);
                Held::Memory(decompress(&zip, raw_bytes, limits).map_err(|source| {
                    TarSetError::Compression {
                        path: self.path(),
                        source,
                    }
                })?)
            }
        };
        Ok(TarData { held })
    }

    /// Returns the readable part of a raw shard that may be damaged, and the error of its compression.
    ///
    /// # Errors
    ///
    /// [`TarSetError`]: a file that cannot be read.
    pub fn salvage(&self, limits: &Limits) -> Result<(TarData, Option<TarSetError>), TarSetError> {
        let file = self.open()?;
        if compression(&file)?.is_none() {
            let held = held(&file, limits)?;
            return Ok((TarData { held }, None));
        }
        let zip = file.read_all(limits.shard_bytes)?;
        let fail = |source| TarSetError::Compression {
            path: self.path(),
            source,
        };
        let (bytes, problem) = decompress_partial(&zip, limits).map_err(fail)?;
        let held = Held::Memory(bytes);
        Ok((TarData { held }, problem.map(fail)))
    }

    /// Surveys the headers of the shard. Of an uncompressed file, only the headers are read.
    ///
    /// # Errors
    ///
    /// [`TarSetError`]: a file that cannot be read or decompressed. Errors in the archive are in the survey.
    pub fn survey(&self, limits: &Limits) -> Result<Survey, TarSetError> {
        Ok(self.look(limits)?.0)
    }

    /// Like [`survey`](Self::survey), and also returns the compression and the length of the file.
    ///
    /// # Errors
    ///
    /// As [`survey`](Self::survey).
    pub fn look(
        &self,
        limits: &Limits,
    ) -> Result<(Survey, Option<TarCompression>, u64), TarSetError> {
        let file = self.open()?;
        // PERF: in a store, a request per header takes longer than reading the whole object. Large members are still
        // skipped.
        let window_bytes = match file.as_file() {
            Some(_) => WINDOW_BYTES,
            None => OBJECT_WINDOW_BYTES,
        };
        let head = file.read_range(0, file.len().min(window_bytes))?;
        let compression = TarCompression::sniff(&head);
        if compression.is_some() {
            let survey = Survey::of(self.load(limits)?.as_ref(), limits);
            return Ok((survey, compression, file.len()));
        }
        let mut surveyor = Surveyor::new(file.len(), limits);
        let mut need = surveyor.step(0, &head);
        while let Some(range) = need {
            let bytes = range
                .end
                .saturating_sub(range.start)
                .max(window_bytes)
                .min(file.len().saturating_sub(range.start));
            let window = file.read_range(range.start, bytes)?;
            need = surveyor.step(range.start, &window);
        }
        Ok((surveyor.finish(), None, file.len()))
    }
}
