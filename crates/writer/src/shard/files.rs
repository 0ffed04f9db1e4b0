//! The temporary files of one shard, with their hashes.

use std::convert::Infallible;
use std::io::Write as _;

use shardmill_core::Error;
use shardmill_mds::{FileHashes, FileInfo, HashAlgo, Hasher};
use shardmill_storage::{Destination, Dir, StorageError, TempFile};

/// The number of bytes that are hashed and written at a time. The second operation finds them in the core's cache.
const STEP_BYTES: usize = 256 << 10;

/// The data that a later run compares to recognise a published file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileCheck {
    /// The file's name.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// A hash of its contents.
    pub algo: HashAlgo,
    /// The hash in lower-case hex.
    pub hex: String,
}

/// The location of temporary files.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Temps<'a> {
    /// In a directory.
    Dir(&'a Dir),
    /// In a folder of a root, if the root is local.
    Destination(&'a Destination, &'a str),
}

impl Temps<'_> {
    fn file(self) -> Result<TempFile, StorageError> {
        match self {
            Self::Dir(dir) => dir.temp_file(None).map(TempFile::written_behind),
            Self::Destination(destination, folder) => destination.temp_file(Some(folder)),
        }
    }
}

/// The files of a shard that have been written so far.
#[derive(Debug)]
pub(super) struct Files<'a> {
    temps: Temps<'a>,
    /// The hashes in the index.
    hashes: &'a [HashAlgo],
    /// The hash that a later run checks.
    check: Option<HashAlgo>,
    pub(super) written: Vec<(String, TempFile)>,
    pub(super) checks: Vec<FileCheck>,
}

impl<'a> Files<'a> {
    pub(super) fn new(temps: Temps<'a>, hashes: &'a [HashAlgo], check: Option<HashAlgo>) -> Self {
        Self {
            temps,
            hashes,
            check,
            written: Vec::new(),
            checks: Vec::new(),
        }
    }

    /// Writes a temporary file. Each slice is dropped when it is written, to release its memory early.
    pub(super) fn write(
        &mut self,
        name: String,
        slices: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<FileInfo, Error> {
        let mut temp = self.temps.file()?;
        // Without hashes in the index, only the check of a later run is computed.
        let algos = match self.hashes {
            [] => self.check.as_slice(),
            hashes => hashes,
        };
        let hashes = hash_each(algos, slices, |bytes| {
            temp.write_all(bytes)
                .map_err(|error| temp.write_error(error))
        })?;
        let bytes = temp.written();
        let hex = |algo| {
            hashes
                .get(algo)
                .map_or_else(String::new, |it| it.to_string())
        };
        self.checks.extend(self.check.map(|algo| FileCheck {
            name: name.clone(),
            bytes,
            algo,
            hex: hex(algo),
        }));
        self.written.push((name.clone(), temp));
        let hashes = match self.hashes {
            [] => FileHashes::default(),
            _ => hashes,
        };
        Ok(FileInfo {
            basename: name.into(),
            bytes,
            hashes,
        })
    }
}

/// Hashes slices as one file.
pub fn hash_all(
    algos: &[HashAlgo],
    slices: impl IntoIterator<Item = impl AsRef<[u8]>>,
) -> FileHashes {
    let hashes = hash_each(algos, slices, |_| Ok::<(), Infallible>(()));
    hashes.unwrap_or_else(|never| match never {})
}

/// Hashes slices as one file, and passes their bytes to `also`, which usually writes them.
///
/// PERF: works in steps that fit into a core's cache.
///
/// # Errors
///
/// Returns the error of `also`.
pub fn hash_each<E>(
    algos: &[HashAlgo],
    slices: impl IntoIterator<Item = impl AsRef<[u8]>>,
    mut also: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<FileHashes, E> {
    let mut hashers: Vec<Hasher> = algos.iter().copied().map(Hasher::new).collect();
    for slice in slices {
        for step in slice.as_ref().chunks(STEP_BYTES) {
            for hasher in &mut hashers {
                hasher.update(step);
            }
            also(step)?;
        }
    }
    Ok(hashers.into_iter().map(Hasher::finish).collect())
}
