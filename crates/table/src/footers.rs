//! The footers of all files: reads them, and keeps them next to the cache.
//!
//! Two files are kept for each list of files and choice of columns. `table-<digest>.footers` has the footers of all
//! files, one after the other, each with the offset indexes of its large row groups. `table-<digest>.list` has a line for
//! each file: the length of its footer, where its offset indexes begin in the file and their length, the row group, rows and
//! expected shard bytes of each shard, and the numbers of the columns that may have nulls.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use shardmill_core::{lock, parallel};
use shardmill_dataset::DatasetError;
use shardmill_mds::{HashAlgo, hash_hex};
use shardmill_parquet::END_BYTES;
use shardmill_storage::{Dir, FileHandle, PublishMode};

use crate::columns::TableColumns;
use crate::error::Problem;
use crate::files::{FileBytes, TableFiles};
use crate::group::FileColumns;

/// The first line of a list: its type and version.
const MAGIC: &str = "shardmill-table 3";

/// The number of files whose ends are fetched together.
const TOGETHER: usize = 512;

/// The number of footers that are kept decoded.
const RECENT: usize = 64;

/// A row group, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartFacts {
    /// The number of its file.
    pub(crate) file: usize,
    /// The number of its row group in the file.
    pub(crate) group: usize,
    /// Its number among the parts of all row groups of the file.
    pub(crate) part: usize,
    pub(crate) rows: u64,
    /// The expected length of its shard.
    pub(crate) shard_bytes: u64,
}

/// The footers of a table, which are kept in a file.
#[derive(Debug)]
pub(crate) struct Footers {
    pub(crate) parts: Vec<PartFacts>,
    /// The numbers of the columns of the stream that may have nulls in some file.
    pub(crate) nullable: BTreeSet<usize>,
    kept: FileHandle,
    /// For each file, where its footer is in the kept file.
    ranges: Vec<KeptRanges>,
    recent: Mutex<Vec<(usize, Arc<FileColumns>)>>,
}

/// Where the footer of a file and its offset indexes are in the kept file.
#[derive(Clone, Copy, Debug)]
struct KeptRanges {
    start: u64,
    footer_bytes: u64,
    index_bytes: u64,
    /// Where the offset indexes begin in the Parquet file.
    index_start: u64,
}

impl KeptRanges {
    fn end(&self) -> u64 {
        self.start + self.footer_bytes + self.index_bytes
    }
}

impl Footers {
    /// Returns the footers that are kept in `own`, or reads and keeps them.
    pub(crate) fn open(
        files: &TableFiles,
        columns: &TableColumns,
        own: &Dir,
        list_digest: [u8; 32],
    ) -> Result<Self, DatasetError> {
        let identity = [
            MAGIC.as_bytes(),
            &list_digest,
            columns.identity().as_bytes(),
        ]
        .concat();
        let mut name = hash_hex(HashAlgo::Sha256, &identity);
        name.truncate(16);
        let name = format!("table-{name}");
        let (list_name, footers_name) = (format!("{name}.list"), format!("{name}.footers"));
        if let Some(found) = Self::kept(files, own, &list_name, &footers_name)? {
            return Ok(found);
        }
        let mut text = format!("{MAGIC}\n");
        let mut footers = Vec::new();
        let decode = |file: usize, tail: &[u8]| {
            let footer = files.footer(file, tail)?;
            let metadata = files.decode(file, &footer.bytes, footer.start)?;
            let index = files.offset_indexes(file, &metadata, footer.start, tail)?;
            let own = FileColumns::new(files, file, metadata, &index, columns)?;
            let facts = own.parts.iter().map(|part| {
                let bytes = own.shard_bytes(part, columns);
                (part.group, own.live_rows(part), bytes)
            });
            let fields = columns.schema.fields().iter().enumerate();
            let nullable = fields.filter(|(column, field)| {
                // A conversion does not know the nulls among the bytes of images.
                let is_unknown = columns.is_media(*column) && field.is_nullable();
                is_unknown || own.may_have_nulls(*column, field.is_nullable())
            });
            let nullable: Vec<usize> = nullable.map(|(column, _)| column).collect();
            Ok::<_, DatasetError>((facts.collect::<Vec<_>>(), nullable, footer, index))
        };
        let end_of = |start: usize| files.files.len().min(start + TOGETHER);
        std::thread::scope(|scope| {
            // Two blocks of ends are fetched at a time, so that no connection waits for the last end of a block. Meanwhile
            // the footers of the block before are decoded.
            let fetch = |start: usize| scope.spawn(move || files.tails(start..end_of(start)));
            let mut starts = (0..files.files.len()).step_by(TOGETHER).map(fetch);
            let mut fetching: VecDeque<_> = starts.by_ref().take(2).collect();
            for start in (0..files.files.len()).step_by(TOGETHER) {
                let fetched = fetching.pop_front().map(|fetching| fetching.join());
                fetching.extend(starts.next());
                let end = end_of(start);
                let Some(Ok(tails)) = fetched else {
                    return Err(Problem::Footer
                        .at(files.name(start), "the fetch failed")
                        .into());
                };
                let tails = tails.into_iter().collect::<Result<Vec<_>, _>>()?;
                let read = parallel::map(end - start, 0, |number| {
                    let tail = tails.get(number).map_or(&[][..], Vec::as_slice);
                    decode(start + number, tail)
                })?;
                for (facts, nullable, footer, index) in read {
                    let (footer_bytes, index_bytes) = (footer.bytes.len(), index.bytes.len());
                    let line = serde_json::json!([
                        footer_bytes,
                        index.start,
                        index_bytes,
                        facts,
                        nullable
                    ]);
                    let _ = writeln!(text, "{line}");
                    footers.extend_from_slice(&footer.bytes);
                    footers.extend_from_slice(&index.bytes);
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
        let (parts, nullable, ranges) = parse(&text, files.files.len()).ok_or_else(damaged)?;
        if ranges.last().map_or(0, KeptRanges::end) != kept.len() {
            return Err(damaged());
        }
        Ok(Some(Self {
            parts,
            nullable,
            kept,
            ranges,
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
        let recent = || lock(&self.recent);
        if let Some((_, found)) = recent().iter().find(|(number, _)| *number == file) {
            return Ok(Arc::clone(found));
        }
        let ranges = self.ranges.get(file).copied().ok_or_else(|| {
            Problem::List.at(files.name(file), "the list of row groups lacks the file")
        })?;
        let footer = self.kept.read_range(ranges.start, ranges.footer_bytes)?;
        let index_offset = ranges.start + ranges.footer_bytes;
        let index = FileBytes {
            bytes: self.kept.read_range(index_offset, ranges.index_bytes)?,
            start: ranges.index_start,
        };
        let size = files.files.get(file).map_or(0, |file| file.info.bytes);
        let data_end = size.saturating_sub(END_BYTES + ranges.footer_bytes);
        let metadata = files.decode(file, &footer, data_end)?;
        let found = Arc::new(FileColumns::new(files, file, metadata, &index, columns)?);
        let mut recent = recent();
        if recent.len() >= RECENT {
            recent.remove(0);
        }
        recent.push((file, Arc::clone(&found)));
        Ok(found)
    }
}

/// What a list tells: the shards, the columns that may have nulls, and where the footers are.
type Listed = (Vec<PartFacts>, BTreeSet<usize>, Vec<KeptRanges>);

/// A line of a list, as the documentation of this file describes it.
type Line = (u64, u64, u64, Vec<(usize, u64, u64)>, Vec<usize>);

/// Reads a list. Row groups without rows are left out.
fn parse(text: &[u8], files: usize) -> Option<Listed> {
    let mut lines = std::str::from_utf8(text).ok()?.lines();
    if lines.next()? != MAGIC {
        return None;
    }
    let (mut parts, mut ranges) = (Vec::new(), Vec::with_capacity(files));
    let mut nullable = BTreeSet::new();
    let mut start = 0_u64;
    for file in 0..files {
        let line: Line = serde_json::from_str(lines.next()?).ok()?;
        let (footer_bytes, index_start, index_bytes, own, nulls) = line;
        nullable.extend(nulls);
        ranges.push(KeptRanges {
            start,
            footer_bytes,
            index_bytes,
            index_start,
        });
        start = start.checked_add(footer_bytes)?.checked_add(index_bytes)?;
        for (part, (group, rows, shard_bytes)) in own.into_iter().enumerate() {
            if rows > 0 {
                parts.push(PartFacts {
                    file,
                    group,
                    part,
                    rows,
                    shard_bytes,
                });
            }
        }
    }
    (lines.next()? == format!("end {files}") && lines.next().is_none())
        .then_some((parts, nullable, ranges))
}
