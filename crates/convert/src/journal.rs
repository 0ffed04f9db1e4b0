//! The journal of a run: the complete shards, and the data for recognising them. A later run uses it to resume.

use std::collections::BTreeMap;

use serde_json::Value;
use shardmill_core::{Error, JOURNAL_NAME, Limits, check_relative_path};
use shardmill_storage::{CancelToken, DestinationLog, StorageError};
use shardmill_writer::parts::Verify;
use shardmill_writer::{Checkpoint, FileRecord, FileState, Position, ShardFormat, ShardRecord};

use crate::identity::Identity;
use crate::target::Target;

const MAX_BYTES: u64 = 4 << 30;

/// The journal of an earlier run.
#[derive(Debug)]
pub(crate) struct Found {
    /// The identity of the conversion that wrote it.
    pub(crate) header: Value,
    records: BTreeMap<(usize, u64), ShardRecord>,
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
                    let Some(shard) = ShardRecord::parse(&value, limits) else {
                        break;
                    };
                    found.records.insert((shard.split, shard.shard), shard);
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

    /// Returns all files in the journal.
    pub(crate) fn files(&self) -> impl Iterator<Item = &FileRecord> {
        self.records.values().flat_map(|shard| &shard.files)
    }

    /// Removes the files in the journal that `is_listed` does not select by their paths. Objects in a store that have
    /// changed since are kept, because another writer has replaced them.
    pub(crate) fn remove_files(
        &self,
        target: Target<'_>,
        is_listed: impl Fn(&str) -> bool,
    ) -> Result<(), Error> {
        let files: Vec<_> = self.files().filter(|file| !is_listed(&file.at)).collect();
        // Only the holder of the lease writes in a directory.
        let is_own = target.destination.as_local().is_some();
        target.for_each(&files, 1, |file| match is_own || is_intact(target, file)? {
            true => Ok::<_, Error>(target.remove(&file.at)?),
            false => Ok(()),
        })?;
        Ok(())
    }
}

/// The journal of the running conversion.
#[derive(Debug)]
pub(crate) struct Journal {
    log: DestinationLog,
    reusable: BTreeMap<(usize, u64), ShardRecord>,
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
        jobs: usize,
        resume: bool,
    ) -> Result<Self, Error> {
        let (records, keep) = match found {
            Some(found) => (check(target, found.records, jobs)?, found.bytes),
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
    fn reusable(&self, split: usize, shard: u64) -> Option<&ShardRecord> {
        self.reusable.get(&(split, shard))
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
        shard: &ShardRecord,
        cancel: &mut CancelToken<'_>,
    ) -> Result<(), StorageError> {
        self.log.add_line(&shard.to_json().to_string(), cancel)
    }
}

/// Returns the records whose files are intact.
fn check(
    target: Target<'_>,
    records: BTreeMap<(usize, u64), ShardRecord>,
    jobs: usize,
) -> Result<BTreeMap<(usize, u64), ShardRecord>, Error> {
    let list: Vec<((usize, u64), ShardRecord)> = records.into_iter().collect();
    let are_good = target.for_each(&list, jobs, |(_, shard)| {
        for file in &shard.files {
            if !is_intact(target, file)? {
                return Ok(false);
            }
        }
        Ok::<_, Error>(true)
    })?;
    let list = list.into_iter().zip(are_good);
    let good = list.filter_map(|(record, is_good)| is_good.then_some(record));
    Ok(good.collect())
}

/// Returns whether a file is intact. In a local directory, a file that cannot be read is not.
fn is_intact(target: Target<'_>, file: &FileRecord) -> Result<bool, Error> {
    let (destination, cancel) = (target.destination, &mut target.cancel());
    match file.compare(destination, &file.at, Verify::Contents, &mut || cancel(0)) {
        Err(error) if destination.as_local().is_none() => Err(error),
        state => Ok(matches!(state, Ok(FileState::Intact))),
    }
}
