//! The footers of all files: reads them, and keeps them next to the cache.
//!
//! Two files are kept for each list of files and choice of columns. `table-<digest>.footers` has the footers of all
//! files, one after the other. `table-<digest>.list` has a line for each file: the length of its footer, and the rows,
//! fetched bytes and expected shard bytes of each row group.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest as _, Sha256};
use shardmill_core::parallel;
use shardmill_dataset::DatasetError;
use shardmill_parquet::END_BYTES;
use shardmill_storage::{Dir, FileHandle, PublishMode};

use crate::columns::TableColumns;
use crate::error::Problem;
use crate::files::TableFiles;
use crate::group::FileColumns;

/// The first line of a list: its type and version.
const MAGIC: &str = "shardmill-table 1";

/// The number of files whose ends are fetched together.
const TOGETHER: usize = 512;

/// The number of footers that are kept decoded.
const RECENT: usize = 64;

/// A row group, as its footer describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupFacts {
    /// The number of its file.
    pub(crate) file: usize,
    /// Its number in the file.
    pub(crate) group: usize,
    pub(crate) rows: u64,
    /// The expected length of its shard.
    pub(crate) shard_bytes: u64,
}

/// The footers of a table, which are kept in a file.
#[derive(Debug)]
pub(crate) struct Footers {
    pub(crate) groups: Vec<GroupFacts>,
    kept: FileHandle,
    /// For each file, the end of its footer in the kept file.
    ends: Vec<u64>,
    recent: Mutex<Vec<(usize, Arc<FileColumns>)>>,
}

impl Footers {
    /// Returns the footers that are kept in `own`, or reads and keeps them.
    pub(crate) fn open(
        files: &TableFiles,
        columns: &TableColumns,
        own: &Dir,
        list_digest: [u8; 32],
    ) -> Result<Self, DatasetError> {
        let mut hasher = Sha256::new();
        hasher.update(list_digest);
        hasher.update(columns.identity());
        let digest = hasher.finalize();
        let mut name = String::from("table-");
        for byte in digest.iter().take(8) {
            let _ = write!(name, "{byte:02x}");
        }
        let (list_name, footers_name) = (format!("{name}.list"), format!("{name}.footers"));
        match Self::kept(files, own, &list_name, &footers_name) {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {}
            Err(error) => return Err(error),
        }
        let mut text = format!("{MAGIC}\n");
        let mut footers = Vec::new();
        let decode = |file: usize, tail: Vec<u8>| {
            let footer = files.footer(file, tail)?;
            let metadata = files.decode(file, &footer.bytes, footer.start)?;
            let own = FileColumns::new(files, file, metadata, columns)?;
            let groups = own.metadata.row_groups().iter().enumerate();
            let facts = groups.map(|(number, group)| {
                let bytes = columns.shard_bytes(group, &own.leaves());
                (own.live_rows(number), bytes)
            });
            Ok::<_, DatasetError>((facts.collect::<Vec<_>>(), footer))
        };
        let end_of = |start: usize| files.files.len().min(start + TOGETHER);
        std::thread::scope(|scope| {
            // The next ends are fetched while the footers of these are decoded.
            let fetch = |start: usize| scope.spawn(move || files.tails(start..end_of(start)));
            let mut next = Some(fetch(0));
            for start in (0..files.files.len()).step_by(TOGETHER) {
                let fetched = next.take().map(|fetching| fetching.join());
                let end = end_of(start);
                next = (end < files.files.len()).then(|| fetch(end));
                let Some(Ok(tails)) = fetched else {
                    return Err(Problem::Footer
                        .at(files.name(start), "the fetch failed")
                        .into());
                };
                let tails: Vec<_> = tails
                    .into_iter()
                    .map(|tail| Mutex::new(Some(tail)))
                    .collect();
                let read = parallel::map(end - start, 0, |number| {
                    let tail = tails.get(number).and_then(|tail| {
                        tail.lock().unwrap_or_else(PoisonError::into_inner).take()
                    });
                    decode(start + number, tail.unwrap_or_else(|| Ok(Vec::new()))?)
                })?;
                for (facts, footer) in read {
                    let line = serde_json::json!([footer.bytes.len(), footer.start, facts]);
                    let _ = writeln!(text, "{line}");
                    footers.extend_from_slice(&footer.bytes);
                }
            }
            Ok::<_, DatasetError>(())
        })?;
        let _ = writeln!(text, "end {}", files.files.len());
        own.publish_bytes(None, &footers_name, &footers, PublishMode::Replace)?;
        own.publish_bytes(None, &list_name, text.as_bytes(), PublishMode::Replace)?;
        let found = Self::kept(files, own, &list_name, &footers_name)?;
        found.ok_or_else(|| {
            let path = own.path_of(&list_name).to_string_lossy().into_owned();
            Problem::List
                .at(path, "the list of row groups vanished")
                .into()
        })
    }

    /// Opens the kept files; `None` if they do not exist.
    fn kept(
        files: &TableFiles,
        own: &Dir,
        list_name: &str,
        footers_name: &str,
    ) -> Result<Option<Self>, DatasetError> {
        let open = |name| match own.open_file(name) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        };
        let (Some(list), Some(kept)) = (open(list_name)?, open(footers_name)?) else {
            return Ok(None);
        };
        let text = list.read_all(files.limits.index_bytes)?;
        let damaged = || {
            let path = own.path_of(list_name).to_string_lossy().into_owned();
            DatasetError::from(Problem::List.at(path, "the list of row groups is damaged"))
        };
        let (groups, ends) = parse(&text, files.files.len()).ok_or_else(damaged)?;
        if ends.last().copied().unwrap_or(0) != kept.len() {
            return Err(damaged());
        }
        Ok(Some(Self {
            groups,
            kept,
            ends,
            recent: Mutex::default(),
        }))
    }

    /// Returns the columns of a file.
    pub(crate) fn file(
        &self,
        files: &TableFiles,
        columns: &TableColumns,
        file: usize,
    ) -> Result<Arc<FileColumns>, DatasetError> {
        let recent = || self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, found)) = recent().iter().find(|(number, _)| *number == file) {
            return Ok(Arc::clone(found));
        }
        let end = self.ends.get(file).copied().unwrap_or(0);
        let start = file
            .checked_sub(1)
            .and_then(|before| self.ends.get(before).copied());
        let start = start.unwrap_or(0);
        let footer = self.kept.read_range(start, end.saturating_sub(start))?;
        let size = files.files.get(file).map_or(0, |file| file.info.bytes);
        let data_end = size.saturating_sub(END_BYTES + footer.len() as u64);
        let metadata = files.decode(file, &footer, data_end)?;
        let found = Arc::new(FileColumns::new(files, file, metadata, columns)?);
        let mut recent = recent();
        if recent.len() >= RECENT {
            recent.remove(0);
        }
        recent.push((file, Arc::clone(&found)));
        Ok(found)
    }
}

/// Reads a list: the row groups, and the end of each footer. Row groups without rows are left out.
fn parse(text: &[u8], files: usize) -> Option<(Vec<GroupFacts>, Vec<u64>)> {
    let mut lines = std::str::from_utf8(text).ok()?.lines();
    if lines.next()? != MAGIC {
        return None;
    }
    let (mut groups, mut ends, mut end) = (Vec::new(), Vec::with_capacity(files), 0_u64);
    for file in 0..files {
        let line: (u64, u64, Vec<(u64, u64)>) = serde_json::from_str(lines.next()?).ok()?;
        end = end.checked_add(line.0)?;
        ends.push(end);
        for (group, (rows, shard_bytes)) in line.2.into_iter().enumerate() {
            if rows > 0 {
                groups.push(GroupFacts {
                    file,
                    group,
                    rows,
                    shard_bytes,
                });
            }
        }
    }
    (lines.next()? == format!("end {files}") && lines.next().is_none()).then_some((groups, ends))
}
