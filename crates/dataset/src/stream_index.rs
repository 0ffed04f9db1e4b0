//! Opens the index of a stream and its side files, and copies them into the folder that shards are fetched to.

use std::convert::Infallible;
use std::fs;
use std::path::Path;

use sha2::{Digest as _, Sha256};
use shardmill_cache::{move_to_index, note_source, publish};
use shardmill_core::{Diagnostic as _, ErrorKind, INDEX_NAME, Limits, escape, parallel};
use shardmill_storage::{Dir, Folder, PublishMode, StorageError};

use crate::computed::StreamFiles;
use crate::entry::{Entry, Shards};
use crate::error::DatasetError;
use crate::files::{ChosenFiles, FileOptions, open_list};
use crate::index_file::check_expected_index;
use crate::late::{COLUMNS_NAME, LateColumns, if_present};
use crate::live::LiveShards;
use crate::problem::DatasetProblem;
use crate::side_files::{
    IndexShape, PROVENANCE_BYTES, PROVENANCE_NAME, SideFiles, Sides, TOMBSTONES_NAME, if_there,
};
use crate::tars::{TarPattern, find_tars, list_tars, scan};

/// The answer of a folder or a store to the request for a whole file.
type Answer = Result<Vec<u8>, StorageError>;

/// Where the files of a stream are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamFolder<'a> {
    pub(crate) source: &'a Folder,
    /// The folder that its shards are fetched to; `None` if they are read in place.
    pub(crate) cache: Option<&'a Dir>,
    /// The name of the source in messages.
    pub(crate) shown: &'a str,
    pub(crate) limits: &'a Limits,
    /// Whether deleted samples are read like all others.
    pub(crate) with_deleted: bool,
    /// The expected hash of the index.
    pub(crate) expect_index: Option<&'a str>,
}

/// The shards of a stream, and which of their samples are not deleted.
pub(crate) struct OpenedStream {
    /// The SHA-256 of the index, or of the list of files.
    pub(crate) index_digest: [u8; 32],
    pub(crate) shards: Shards,
    pub(crate) samples: LiveShards,
}

impl OpenedStream {
    /// All samples of these shards.
    fn all(index_digest: [u8; 32], shards: Shards) -> Self {
        Self {
            index_digest,
            samples: LiveShards::all(shards.iter().map(Entry::samples)),
            shards,
        }
    }
}

impl StreamFolder<'_> {
    /// Opens a stream of raw files, or of shards that are computed from files.
    pub(crate) fn open_files(self, files: &StreamFiles) -> Result<OpenedStream, DatasetError> {
        let list = |only: Option<ChosenFiles>| {
            let path = self.cache.map_or(self.source.path(), Dir::path);
            if files.options.form.has_file() && path.to_str().is_none() {
                return Err(DatasetError::Storage(StorageError::Name {
                    name: path.to_string_lossy().into_owned(),
                    source: shardmill_core::NameError::Character,
                }));
            }
            let listed = FileOptions {
                only,
                ..files.options.clone()
            };
            open_list(self.source, self.cache, self.shown, &listed, self.limits)
        };
        let (index_digest, shards) = match (&files.computed, self.cache) {
            (None, _) => {
                let list = list(None)?;
                (list.digest(), Shards::Files(list))
            }
            (Some(table), Some(cache)) => {
                let opened = table.open(self.source, cache, self.limits, &list)?;
                let shards = Shards::Computed(opened.entries, opened.computed);
                (opened.digest, shards)
            }
            (Some(_), None) => {
                let reason = "its shards are computed, and need a local folder to be kept in";
                return Err(DatasetProblem::StreamLocal.at(self.shown, reason));
            }
        };
        Ok(OpenedStream::all(index_digest, shards))
    }

    /// Opens a stream with an index, or makes the index of tar files that have none.
    pub(crate) fn open_index(
        self,
        pattern: Option<&TarPattern>,
    ) -> Result<OpenedStream, DatasetError> {
        // An index in the folder of a pattern may describe other files.
        if pattern.is_none() {
            let mut answers = self.request().into_iter();
            match answers.next() {
                Some(Ok(bytes)) => return self.of_index(&bytes, answers),
                Some(Err(error)) if !error.is_not_found() || error.is_no_bucket() => {
                    return Err(error.into());
                }
                _ => {}
            }
        }
        // A caller that expects a certain index must not get a scan instead.
        if self.expect_index.is_some() {
            return Err(DatasetError::index_missing(Path::new(self.shown), None));
        }
        let (bytes, shards) = self.scan(pattern)?;
        self.keep_index(&bytes, &shards)?;
        Ok(OpenedStream::all(Sha256::digest(&bytes).into(), shards))
    }

    /// Reads the index and the list of late columns. From a store, it requests the provenance at the same time. If deleted
    /// samples are wanted, it reads only the index.
    fn request(self) -> Vec<Answer> {
        let max = self.limits.index_bytes;
        let names = [
            (INDEX_NAME, max),
            (COLUMNS_NAME, max),
            (PROVENANCE_NAME, PROVENANCE_BYTES),
        ];
        let wanted = match (self.with_deleted, self.source.is_store()) {
            (true, _) => 1,
            (false, false) => 2,
            (false, true) => 3,
        };
        let read = |at: usize| {
            let (name, max) = names.get(at).copied().unwrap_or_default();
            Ok::<_, Infallible>(self.source.read(name, max))
        };
        let Ok(answers) = parallel::map(wanted, wanted, read);
        answers
    }

    /// Opens a stream with this index. `answers` are those for the list of late columns and for the provenance, if they were
    /// requested.
    fn of_index(
        self,
        bytes: &[u8],
        mut answers: impl Iterator<Item = Answer>,
    ) -> Result<OpenedStream, DatasetError> {
        let path = Path::new(self.shown).join(INDEX_NAME);
        check_expected_index(bytes, &path, self.expect_index)?;
        let shards = Shards::parse(bytes, &path, self.limits)?;
        self.keep_index(bytes, &shards)?;
        let mut opened = OpenedStream::all(Sha256::digest(bytes).into(), shards);
        let columns = answers.next();
        self.delete(&mut opened, answers.next())?;
        self.join_late(&mut opened, columns)?;
        Ok(opened)
    }

    /// Removes the deleted samples, unless they are wanted. If shards are fetched to a folder, the side files are copied
    /// there, for readers that have only that folder.
    fn delete(
        self,
        opened: &mut OpenedStream,
        provenance: Option<Answer>,
    ) -> Result<(), DatasetError> {
        if self.with_deleted && self.cache.is_none() {
            return Ok(());
        }
        let shape = IndexShape::of_entries(opened.shards.iter());
        let read = |name: &str, max| if_there(self.source.read(name, max));
        let max = self.limits.index_bytes;
        let side_files = if self.source.is_store() {
            let provenance = provenance.map(if_there);
            let provenance = provenance.unwrap_or_else(|| read(PROVENANCE_NAME, PROVENANCE_BYTES));
            SideFiles::read_with(&read, provenance, &shape, max)
        } else {
            SideFiles::read(&read, &shape, max)
        };
        match side_files.into_live() {
            Ok((live, sides)) => {
                if let Some(cache) = self.cache {
                    keep_sides(cache, sides.as_ref())?;
                }
                if !self.with_deleted {
                    opened.samples.live = live;
                }
                Ok(())
            }
            Err(_) if self.with_deleted => Ok(()),
            Err(error) => Err(error.with_side_path(|name| self.source.path_of(name))),
        }
    }

    /// Adds the late columns to the shards. If shards are fetched to a folder, the list of late columns is copied there.
    fn join_late(
        self,
        opened: &mut OpenedStream,
        columns: Option<Answer>,
    ) -> Result<(), DatasetError> {
        let Shards::Mds(base) = &opened.shards else {
            return Ok(());
        };
        let columns = columns.map_or(Ok(None), |columns| if_present(if_there(columns)))?;
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
            return Ok(());
        };
        let path = self.source.path_of(COLUMNS_NAME);
        let read = |name: &str, max| if_there(self.source.read(name, max));
        let of = (&opened.index_digest, base.as_slice());
        if let Some(joined) = LateColumns::joined(&text, &path, of, &read, self.limits)? {
            opened.shards = Shards::Mds(joined);
        }
        Ok(())
    }

    /// Builds the index of tar files without one from their headers. The index is stored in the cache folder, and reused as
    /// long as the tar files have the same names and lengths.
    fn scan(self, pattern: Option<&TarPattern>) -> Result<(Vec<u8>, Shards), DatasetError> {
        let shown = Path::new(self.shown);
        let found = match pattern {
            Some(pattern) => find_tars(self.source, pattern)?,
            None => match list_tars(self.source, shown) {
                // If the source refuses to list its files, the error is the missing index.
                Err(DatasetError::Storage(error))
                    if is_unlisted(&error) && !error.is_no_bucket() =>
                {
                    Vec::new()
                }
                found => found?,
            },
        };
        if found.is_empty() {
            return Err(DatasetError::index_missing(shown, None));
        }
        if let Some(cache) = self.cache
            && let Ok(file) = cache.open_file(INDEX_NAME)
            && let Ok(bytes) = file.read_all(self.limits.index_bytes)
            && let Ok(index) = shardmill_webdataset::Index::parse(&bytes, self.limits)
            && found.len() == index.shards.len()
            && found.iter().zip(&index.shards).all(|(new, old)| {
                let (new, old) = (new.stored(), old.stored());
                (&new.basename, new.bytes) == (&old.basename, old.bytes)
            })
        {
            return Ok((bytes, Shards::Tar(index.shards)));
        }
        let index = scan(self.source, &found, self.limits)?;
        let bytes = index.to_json().into_bytes();
        Ok((bytes, Shards::Tar(index.shards)))
    }

    /// Writes the index next to the fetched shards, so that the folder is a dataset.
    ///
    /// If the dataset has grown since the cache wrote the index, the new index replaces the old one, and the fetched
    /// shards remain valid. Any other index belongs to another dataset and is an error.
    fn keep_index(self, bytes: &[u8], shards: &Shards) -> Result<(), DatasetError> {
        /// An attempt fails only if another process writes the index at that moment.
        const ATTEMPTS: usize = 8;

        let Some(cache) = self.cache else {
            return Ok(());
        };
        let digest: [u8; 32] = Sha256::digest(bytes).into();
        let source = self.location();
        for _ in 0..ATTEMPTS {
            let Some(kept) = self.kept_index(cache)? else {
                match publish(cache, INDEX_NAME, bytes, PublishMode::CreateNew) {
                    Ok(()) => return Ok(note_source(cache, &digest, &source)?),
                    Err(StorageError::Exists { .. }) => continue,
                    Err(error) => return Err(error.into()),
                }
            };
            if kept == bytes {
                return Ok(());
            }
            if !self.is_continued(&kept, shards) {
                break;
            }
            let old: [u8; 32] = Sha256::digest(&kept).into();
            if move_to_index(cache, &old, &digest, &source)? {
                let mode = PublishMode::Replace;
                return Ok(publish(cache, INDEX_NAME, bytes, mode)?);
            }
            if self.kept_index(cache)?.is_some_and(|now| now == kept) {
                break;
            }
        }
        Err(self.foreign(cache))
    }

    fn foreign(self, cache: &Dir) -> DatasetError {
        let reason = format!(
            "it is neither the index of the dataset in {} nor an earlier one that the cache fetched from there",
            escape(self.shown)
        );
        DatasetProblem::CacheForeign.at(cache.path_of(INDEX_NAME), reason)
    }

    /// Returns the location of the source, however it was spelled.
    fn location(self) -> String {
        let real = match self.source {
            Folder::Local(dir) => fs::canonicalize(dir.path()).ok(),
            _ => None,
        };
        let real = real.as_deref().and_then(Path::to_str);
        real.unwrap_or(self.shown).to_owned()
    }

    /// Reads the index in the folder of fetched shards; `None` if there is none.
    fn kept_index(self, cache: &Dir) -> Result<Option<Vec<u8>>, DatasetError> {
        match cache.open_file(INDEX_NAME) {
            Ok(file) if file.len() > self.limits.index_bytes => Err(self.foreign(cache)),
            file => Ok(if_there(
                file.and_then(|file| file.read_all(self.limits.index_bytes)),
            )?),
        }
    }

    /// Returns whether the shards of an index are the first ones of the new index. Without hashes, equal names and
    /// sizes do not show that the shards are the same.
    fn is_continued(self, kept: &[u8], shards: &Shards) -> bool {
        let Ok(old) = Shards::parse(kept, Path::new(INDEX_NAME), self.limits) else {
            return false;
        };
        let has_hash =
            |entry: Entry<'_>| entry.parts().all(|part| !part.stored().hashes.is_empty());
        let is_start = match (&old, shards) {
            (Shards::Mds(old), Shards::Mds(new)) => new.starts_with(old),
            (Shards::Tar(old), Shards::Tar(new)) => new.starts_with(old),
            _ => false,
        };
        is_start && old.iter().all(has_hash)
    }
}

/// Returns whether an error means that a folder cannot be listed, even with retries.
fn is_unlisted(error: &StorageError) -> bool {
    let kinds = [
        ErrorKind::NotFound,
        ErrorKind::Permission,
        ErrorKind::Unsupported,
    ];
    kinds.contains(&error.kind())
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
