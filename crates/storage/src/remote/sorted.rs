//! Sorts listings that are too large for memory: pages are spooled to a file, and merged when they are read back.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::iter::Peekable;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::vec;

use super::pages::Listed;
use crate::entry::ListedFile;
use crate::error::StorageError;
use crate::temp::{unnamed_error, unnamed_file};

/// The objects of one page, in the spool file.
struct Run {
    /// The first name.
    first: String,
    offset: u64,
    bytes: usize,
}

/// Unsorted pages in an unnamed file, with an index in memory to sort them: some hundred bytes per page.
pub(super) struct Spool {
    file: File,
    temp_dir: Option<PathBuf>,
    written: u64,
    runs: Vec<Run>,
}

impl Spool {
    pub(super) fn new(temp_dir: Option<&Path>) -> Result<Self, StorageError> {
        Ok(Self {
            file: unnamed_file(temp_dir)?,
            temp_dir: temp_dir.map(Path::to_owned),
            written: 0,
            runs: Vec::new(),
        })
    }

    /// Appends a page. `root` is the common prefix of all keys.
    pub(super) fn push(&mut self, root: &str, mut page: Vec<Listed>) -> Result<(), StorageError> {
        let failed = |error| unnamed_error(self.temp_dir.as_deref(), error);
        page.sort_by(|a, b| a.key.cmp(&b.key));
        let Some(first) = page.first() else {
            return Ok(());
        };
        let name = |listed: &Listed| listed.key.strip_prefix(root).unwrap_or_default().to_owned();
        let first = name(first);
        let mut text = Vec::new();
        for listed in &page {
            let entry = (name(listed), listed.bytes, &listed.tag);
            serde_json::to_writer(&mut text, &entry).map_err(|error| failed(error.into()))?;
        }
        self.file
            .write_all_at(&text, self.written)
            .map_err(failed)?;
        self.runs.push(Run {
            first,
            offset: self.written,
            bytes: text.len(),
        });
        self.written += text.len() as u64;
        Ok(())
    }

    /// Returns all objects, sorted by the bytes of their names.
    pub(super) fn sorted(mut self) -> SortedListing {
        self.runs.sort_by(|a, b| a.first.cmp(&b.first));
        SortedListing {
            file: self.file,
            temp_dir: self.temp_dir,
            runs: self.runs.into_iter().peekable(),
            open: BTreeMap::new(),
            last: String::new(),
        }
    }
}

/// The name, the length and the tag of an object.
type Spooled = (String, u64, String);

/// An iterator over the objects of a listing, sorted by the bytes of their names. An object that was listed twice, for
/// example because of concurrent writes, occurs once. Objects that mark folders are omitted: their names are empty or
/// end with a slash.
pub struct SortedListing {
    file: File,
    temp_dir: Option<PathBuf>,
    runs: Peekable<vec::IntoIter<Run>>,
    /// The rest of each run that was read back, by its next name, and by its offset because two runs may have the same
    /// name. Pages of one listing do not overlap. Those of nested folders do, one per level.
    open: BTreeMap<(String, u64), VecDeque<Spooled>>,
    last: String,
}

impl SortedListing {
    fn read(&self, run: &Run) -> Result<VecDeque<Spooled>, StorageError> {
        let mut bytes = vec![0; run.bytes];
        let read = self.file.read_exact_at(&mut bytes, run.offset);
        let entries = read.and_then(|()| {
            let entries = serde_json::Deserializer::from_slice(&bytes).into_iter::<Spooled>();
            entries
                .collect::<Result<VecDeque<_>, _>>()
                .map_err(io::Error::from)
        });
        entries.map_err(|error| unnamed_error(self.temp_dir.as_deref(), error))
    }
}

impl Iterator for SortedListing {
    type Item = Result<ListedFile, StorageError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            while let Some(run) = self.runs.next_if(|run| {
                let next = self.open.first_key_value();
                next.is_none_or(|((name, _), _)| run.first <= *name)
            }) {
                match self.read(&run) {
                    Ok(entries) => self.open.insert((run.first, run.offset), entries),
                    Err(error) => return Some(Err(error)),
                };
            }
            let ((_, offset), mut rest) = self.open.pop_first()?;
            let entry = rest.pop_front();
            if let Some((name, ..)) = rest.front() {
                self.open.insert((name.clone(), offset), rest);
            }
            let Some((name, bytes, tag)) = entry else {
                continue;
            };
            // The last name is empty at first, and an object without a name marks the location.
            if name != self.last {
                self.last.clone_from(&name);
                if !name.ends_with('/') {
                    return Some(Ok(ListedFile { name, bytes, tag }));
                }
            }
        }
    }
}
