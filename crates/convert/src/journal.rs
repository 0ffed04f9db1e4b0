//! What an interrupted run leaves for the next one: which shards are complete, and how to recognise them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};
use shardmill_core::Limits;
use shardmill_mds::{HashAlgo, Hasher, Index, ShardEntry};
use shardmill_storage::{AppendFile, Dir, StorageError};
use shardmill_writer::{FileCheck, Ledger, Position, Published};

use crate::provenance::{Identity, in_folder};

/// The folder of a running conversion, beneath the destination.
pub(crate) const WORK_FOLDER: &str = ".shardmill";
/// The lease of the running writer.
pub(crate) const LEASE_NAME: &str = ".shardmill/lease";
const JOURNAL_NAME: &str = ".shardmill/journal";
/// Bytes that are hashed at a time when published files are checked.
const STEP_BYTES: u64 = 1 << 20;
const MAX_BYTES: u64 = 4 << 30;

/// A shard that an earlier run published.
#[derive(Clone, Debug)]
struct Record {
    start: Position,
    entry: ShardEntry,
    files: Vec<FileCheck>,
}

/// A journal as it was found.
#[derive(Debug)]
pub(crate) struct Found {
    /// The identity of the conversion that wrote it.
    pub(crate) header: Value,
    records: BTreeMap<(usize, u64), Record>,
    /// The length of the part that can be read.
    bytes: u64,
}

impl Found {
    /// Reads the journal, if there is one. A last line that is torn does not count; nor does what its writer,
    /// who may be at work, does to it meanwhile.
    pub(crate) fn read(dir: &Dir, limits: &Limits) -> Result<Option<Self>, StorageError> {
        let bytes = match dir.open_file(JOURNAL_NAME) {
            Ok(file) => file.read_log(MAX_BYTES)?,
            Err(StorageError::NotDirectory { .. }) => return Ok(None),
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error),
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

    /// Shards that it names.
    pub(crate) fn shards(&self) -> usize {
        self.records.len()
    }

    /// The names of all files that it names, with their split.
    pub(crate) fn files(&self) -> impl Iterator<Item = (usize, &str)> {
        self.records.iter().flat_map(|((split, _), record)| {
            record.files.iter().map(|file| (*split, file.name.as_str()))
        })
    }
}

fn parse_record(value: &Value, limits: &Limits) -> Option<((usize, u64), Record)> {
    let number = |key: &str| value.get(key).and_then(Value::as_u64);
    let split = usize::try_from(number("split")?).ok()?;
    let index = Index::parse(value.get("index")?.as_str()?.as_bytes(), limits).ok()?;
    let entry = index.shards.into_iter().next()?;
    let mut files = Vec::new();
    for file in value.get("files")?.as_array()? {
        files.push(FileCheck {
            name: file.get("name")?.as_str()?.to_owned(),
            bytes: file.get("bytes")?.as_u64()?,
            algo: file.get("algo")?.as_str()?.parse().ok()?,
            hex: file.get("hex")?.as_str()?.to_owned(),
        });
    }
    let start = Position {
        unit: usize::try_from(number("unit")?).ok()?,
        sample: number("sample")?,
    };
    Some((
        (split, number("shard")?),
        Record {
            start,
            entry,
            files,
        },
    ))
}

fn record_line(shard: &Published<'_>) -> String {
    let files: Vec<Value> = shard
        .checks
        .iter()
        .map(|file| json!({"name": file.name, "bytes": file.bytes, "algo": file.algo.to_string(), "hex": file.hex}))
        .collect();
    let index = Index {
        shards: vec![shard.entry.clone()],
    }
    .to_json();
    json!({
        "split": shard.split,
        "shard": shard.shard,
        "unit": shard.start.unit,
        "sample": shard.start.sample,
        "files": files,
        "index": index,
    })
    .to_string()
}

/// The journal of the running conversion.
#[derive(Debug)]
pub(crate) struct Journal {
    file: Mutex<AppendFile>,
    reusable: BTreeMap<(usize, u64), Record>,
    resume: bool,
}

impl Journal {
    /// Starts a journal, or goes on with the one that was found, whose shards are checked first: a shard is
    /// reused only if its files have the length and the hash that were noted. `resume` allows to start in
    /// the middle of the source.
    pub(crate) fn open(
        dir: &Dir,
        identity: &Identity,
        found: Option<Found>,
        folders: &[String],
        jobs: usize,
        resume: bool,
    ) -> Result<Self, StorageError> {
        let (records, keep) = match found {
            Some(found) => (check(dir, found.records, folders, jobs), found.bytes),
            None => (BTreeMap::new(), 0),
        };
        let mut file = AppendFile::open(dir, JOURNAL_NAME, keep)?;
        if keep == 0 {
            file.add_line(&identity.to_json().to_string())?;
        }
        Ok(Self {
            file: Mutex::new(file),
            reusable: records,
            resume,
        })
    }
}

impl Ledger for Journal {
    fn reusable(&self, split: usize, shard: u64) -> Option<&ShardEntry> {
        self.reusable
            .get(&(split, shard))
            .map(|record| &record.entry)
    }

    fn resume_at(&self) -> Option<(u64, Position)> {
        if !self.resume {
            return None;
        }
        // The last shard of the unbroken run is encoded again: where the one after it starts was never noted.
        let complete = (0_u64..)
            .take_while(|shard| self.reusable.contains_key(&(0, *shard)))
            .last()?;
        self.reusable
            .get(&(0, complete))
            .map(|record| (complete, record.start))
    }

    fn published(&self, shard: &Published<'_>) -> Result<(), StorageError> {
        let line = record_line(shard);
        self.file
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .add_line(&line)
    }
}

/// The records whose files are as they were noted.
fn check(
    dir: &Dir,
    records: BTreeMap<(usize, u64), Record>,
    folders: &[String],
    jobs: usize,
) -> BTreeMap<(usize, u64), Record> {
    let list: Vec<((usize, u64), Record)> = records.into_iter().collect();
    let next = AtomicUsize::new(0);
    let good = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1).min(list.len()) {
            scope.spawn(|| {
                while let Some((key, record)) = list.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let folder = folders.get(key.0).map_or("", String::as_str);
                    if record.files.iter().all(|file| is_intact(dir, folder, file)) {
                        good.lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .insert(*key, record.clone());
                    }
                }
            });
        }
    });
    good.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn is_intact(dir: &Dir, folder: &str, check: &FileCheck) -> bool {
    hash_of(
        dir,
        &in_folder(folder, &check.name),
        check.bytes,
        check.algo,
    )
    .is_ok_and(|hex| hex.as_deref() == Some(check.hex.as_str()))
}

/// The hash of a file, `None` if it has another length.
fn hash_of(
    dir: &Dir,
    name: &str,
    bytes: u64,
    algo: HashAlgo,
) -> Result<Option<String>, StorageError> {
    let file = dir.open_file(name)?;
    if file.len() != bytes {
        return Ok(None);
    }
    let mut hasher = Hasher::new(algo);
    let mut at = 0;
    while at < bytes {
        let step = STEP_BYTES.min(bytes - at);
        hasher.update(&file.read_range(at, step)?);
        at += step;
    }
    Ok(Some(hasher.finish_hex()))
}
