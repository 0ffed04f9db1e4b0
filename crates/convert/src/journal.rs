//! The journal of a run: the complete shards, and the data for recognising them. A later run uses it to resume.

use std::collections::BTreeMap;

use serde_json::Value;
use shardmill_core::{JOURNAL_NAME, Limits, check_relative_path};
use shardmill_mds::hash_hex;
use shardmill_storage::{CancelToken, Destination, DestinationLog, StorageError};
use shardmill_writer::{
    Checkpoint, Content, FileRecord, IndexEntry, Position, Published, ShardFormat, ShardRecord,
};

use crate::identity::Identity;
use crate::target::{Target, in_folder};

const MAX_BYTES: u64 = 4 << 30;

/// A shard that an earlier run published.
#[derive(Clone, Debug)]
struct Record {
    start: Position,
    content: Content,
    shard: ShardRecord,
}

/// The journal of an earlier run.
#[derive(Debug)]
pub(crate) struct Found {
    /// The identity of the conversion that wrote it.
    pub(crate) header: Value,
    records: BTreeMap<(usize, u64), Record>,
    /// The length of the readable part in bytes.
    bytes: u64,
}

impl Found {
    /// Reads the journal, if there is one. An incomplete last line is ignored, because its writer may still be running.
    pub(crate) fn read(target: Target<'_>, limits: &Limits) -> Result<Option<Self>, StorageError> {
        let cancel = &mut target.cancel();
        let Some(bytes) =
            DestinationLog::read(target.destination, JOURNAL_NAME, MAX_BYTES, cancel)?
        else {
            return Ok(None);
        };
        let mut found: Option<Self> = None;
        let mut at = 0_u64;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let Some(value) = line
                .ends_with(b"\n")
                .then(|| serde_json::from_slice::<Value>(line).ok())
                .flatten()
            else {
                break;
            };
            at += u64::try_from(line.len()).unwrap_or(0);
            match &mut found {
                // The first line must be the identity of the conversion.
                None if !Identity::is_in(&value) => return Ok(None),
                None => {
                    found = Some(Self {
                        header: value,
                        records: BTreeMap::new(),
                        bytes: at,
                    })
                }
                Some(found) => {
                    let Some((key, record)) = parse_record(&value, limits) else {
                        break;
                    };
                    found.records.insert(key, record);
                    found.bytes = at;
                }
            }
        }
        Ok(found)
    }

    /// Returns the format of the shards, if it is one whose index has its own name.
    pub(crate) fn format(&self) -> Option<ShardFormat> {
        let to = self.header["config"]["to"].as_str()?;
        (to == ShardFormat::Parquet.name()).then_some(ShardFormat::Parquet)
    }

    /// Returns the directories of the splits.
    pub(crate) fn folders(&self) -> Vec<String> {
        let splits = self.header["config"]["split"].as_array();
        let names: Vec<String> = splits
            .into_iter()
            .flatten()
            .filter_map(|split| split[0].as_str())
            .filter(|name| check_relative_path(name).is_ok())
            .map(str::to_owned)
            .collect();
        match names.is_empty() {
            true => vec![String::new()],
            false => names,
        }
    }

    /// Returns whether the run replaces a dataset, which stays until its own is published.
    pub(crate) fn is_replacing(&self) -> bool {
        self.header["replaces"].is_object()
    }

    /// Returns the number of the generation in the names of its files.
    pub(crate) fn generation(&self) -> Option<u64> {
        self.header["replaces"]["generation"].as_u64()
    }

    /// Removes the journal.
    pub(crate) fn remove(target: Target<'_>) -> Result<(), StorageError> {
        DestinationLog::remove(target.destination, JOURNAL_NAME, &mut target.cancel())
    }

    /// Returns the number of shards in the journal.
    pub(crate) fn shards(&self) -> usize {
        self.records.len()
    }

    /// Returns the names of all files in the journal, with their splits.
    pub(crate) fn files(&self) -> impl Iterator<Item = (usize, &str)> {
        let files = self.records();
        files.map(|(split, file)| (split, file.check.name.as_str()))
    }

    fn records(&self) -> impl Iterator<Item = (usize, &FileRecord)> {
        self.records.iter().flat_map(|((split, _), record)| {
            let files = record.shard.files.iter();
            files.map(|file| (*split, file))
        })
    }

    /// Removes the files in the journal that `is_unlisted` selects by their splits and names. Objects in a store that
    /// have changed since are kept, because another writer has replaced them.
    pub(crate) fn remove_files(
        &self,
        target: Target<'_>,
        folders: &[String],
        is_unlisted: impl Fn(usize, &str) -> bool,
    ) -> Result<(), StorageError> {
        let files = self.records();
        let files: Vec<_> = files
            .filter(|(split, file)| is_unlisted(*split, &file.check.name))
            .collect();
        // Only the holder of the lease writes in a directory.
        let is_own = target.destination.as_local().is_some();
        target.for_each(&files, 1, |(split, file)| {
            let folder = folders.get(*split).map_or("", String::as_str);
            match is_own || is_intact(target, folder, file)? {
                true => target.remove(&in_folder(folder, &file.check.name)),
                false => Ok(()),
            }
        })?;
        Ok(())
    }
}

fn parse_record(value: &Value, limits: &Limits) -> Option<((usize, u64), Record)> {
    let number = |key: &str| value[key].as_u64();
    let split = usize::try_from(number("split")?).ok()?;
    let shard = ShardRecord::parse(value, limits).ok()?;
    let content = Content::parse(value["content"].as_str()?)?;
    let start = Position {
        unit: usize::try_from(number("unit")?).ok()?,
        sample: number("sample")?,
    };
    let record = Record {
        start,
        content,
        shard,
    };
    Some(((split, number("shard")?), record))
}

fn record_line(shard: &Published<'_>) -> String {
    let mut line = shard.record.to_json();
    line["split"] = shard.split.into();
    line["shard"] = shard.shard.into();
    line["unit"] = shard.start.unit.into();
    line["sample"] = shard.start.sample.into();
    line["content"] = shard.content.to_string().into();
    line.to_string()
}

/// The journal of the running conversion.
#[derive(Debug)]
pub(crate) struct Journal {
    log: DestinationLog,
    reusable: BTreeMap<(usize, u64), Record>,
    resume: bool,
}

impl Journal {
    /// Starts a journal or continues an existing one.
    ///
    /// The shards of an existing journal are checked first. A shard is reused only if its files have the recorded
    /// length and hash. `header` is the first line of a new journal. `resume` allows the run to start in the middle of the
    /// source.
    pub(crate) fn open(
        target: Target<'_>,
        header: &Value,
        found: Option<Found>,
        folders: &[String],
        jobs: usize,
        resume: bool,
    ) -> Result<Self, StorageError> {
        let (records, keep) = match found {
            Some(found) => (check(target, found.records, folders, jobs)?, found.bytes),
            None => (BTreeMap::new(), 0),
        };
        let cancel = &mut target.cancel();
        let log = DestinationLog::open(target.destination, JOURNAL_NAME, keep, cancel)?;
        if keep == 0 {
            log.add_line(&header.to_string(), cancel)?;
        }
        Ok(Self {
            log,
            reusable: records,
            resume,
        })
    }
}

impl Checkpoint for Journal {
    fn reusable(&self, split: usize, shard: u64) -> Option<(&IndexEntry, Content)> {
        self.reusable
            .get(&(split, shard))
            .map(|record| (&record.shard.entry, record.content))
    }

    fn resume_at(&self) -> Option<(u64, Position)> {
        if !self.resume {
            return None;
        }
        // The last consecutive shard is encoded again, because the start of the shard after it is unknown.
        let complete = (0_u64..)
            .take_while(|shard| self.reusable.contains_key(&(0, *shard)))
            .last()?;
        self.reusable
            .get(&(0, complete))
            .map(|record| (complete, record.start))
    }

    fn published(
        &self,
        shard: &Published<'_>,
        cancel: &mut CancelToken<'_>,
    ) -> Result<(), StorageError> {
        self.log.add_line(&record_line(shard), cancel)
    }
}

/// Returns the records whose files are intact.
fn check(
    target: Target<'_>,
    records: BTreeMap<(usize, u64), Record>,
    folders: &[String],
    jobs: usize,
) -> Result<BTreeMap<(usize, u64), Record>, StorageError> {
    let list: Vec<((usize, u64), Record)> = records.into_iter().collect();
    let are_good = target.for_each(&list, jobs, |(key, record)| {
        let folder = folders.get(key.0).map_or("", String::as_str);
        for file in &record.shard.files {
            if !is_intact(target, folder, file)? {
                return Ok(false);
            }
        }
        Ok(true)
    })?;
    let list = list.into_iter().zip(are_good);
    let good = list.filter_map(|(record, is_good)| is_good.then_some(record));
    Ok(good.collect())
}

/// Returns whether a file is intact. In a store, the ETag is compared. In a local directory, or without an ETag, the
/// bytes are hashed.
fn is_intact(target: Target<'_>, folder: &str, known: &FileRecord) -> Result<bool, StorageError> {
    let name = in_folder(folder, &known.check.name);
    if let Destination::Local(dir) = target.destination {
        // A file that cannot be read is written again.
        return Ok(matches!(
            known.check.is_same(dir, &name, &mut || true),
            Ok(true)
        ));
    }
    let Some(file_version) = target.file_version(&name)? else {
        return Ok(false);
    };
    if file_version.bytes != known.check.bytes {
        return Ok(false);
    }
    if file_version.etag.is_some() && known.etag.is_some() {
        return Ok(file_version.etag == known.etag);
    }
    let Some(bytes) = target.read(&name, file_version.bytes)? else {
        return Ok(false);
    };
    Ok(hash_hex(known.check.algo, &bytes) == known.check.hex)
}
