//! The records of published shards, which the journal of a conversion and the manifest of a part list.

use serde_json::{Value, json};
use shardmill_core::{Error, Limits, check_relative_path};
use shardmill_mds::{Content, Hasher, hash_hex};
use shardmill_storage::{Destination, Dir, FileHandle, FileVersion, StorageError, TempFile};

use crate::entry::IndexEntry;
use crate::error;
use crate::pack::Position;
use crate::shard::{FileCheck, FinishedShard};

/// The number of bytes that are hashed at a time.
const STEP_BYTES: u64 = 1 << 20;

/// A published shard.
#[derive(Clone, Debug)]
pub struct ShardRecord {
    /// The split.
    pub split: usize,
    /// The shard's number in its split.
    pub shard: u64,
    /// The input position of its first sample.
    pub start: Position,
    /// The content of its samples. In a part, only a conversion computes it.
    pub content: Content,
    /// Its entry in the index.
    pub entry: IndexEntry,
    /// Its files.
    pub files: Vec<FileRecord>,
}

/// A file of a published shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRecord {
    /// Its name in the dataset, its length and a hash.
    pub check: FileCheck,
    /// Its path, relative to the destination. In a part, the path before the commit.
    pub at: String,
    /// The ETag that the store reported, if the file is in a store.
    pub etag: Option<String>,
}

/// How thoroughly files are compared with their records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// Compares the lengths, and in a store also the ETags.
    #[default]
    Sizes,
    /// Compares the ETags in a store that reports them, and the hashes of all other files.
    Contents,
    /// Compares the hash of every file, which reads each shard once.
    Hashes,
}

/// How a file compares with its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileState {
    /// It does not differ.
    Intact,
    /// It does not exist.
    Missing,
    /// It has this length instead.
    Length(u64),
    /// It has this hash or ETag instead of the recorded one.
    Hash {
        /// The hash or ETag of the file.
        found: String,
        /// The recorded one.
        noted: String,
    },
}

impl ShardRecord {
    /// Publishes the files of a shard. `publish` gives a file its final name, and returns its path and its version.
    pub(crate) fn publish(
        shard: FinishedShard,
        mut publish: impl FnMut(&str, TempFile) -> Result<(String, FileVersion), StorageError>,
    ) -> Result<Self, StorageError> {
        let files = shard.files.into_iter().zip(shard.checks);
        let files = files.map(|((name, temp), check)| {
            let (at, version) = publish(&name, temp)?;
            Ok(FileRecord {
                check,
                at,
                etag: version.etag,
            })
        });
        Ok(Self {
            split: shard.span.split,
            shard: shard.span.shard,
            start: shard.span.start,
            content: shard.span.content,
            entry: shard.entry,
            files: files.collect::<Result<_, StorageError>>()?,
        })
    }

    /// Returns the record as JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let files = self.files.iter().map(FileRecord::to_json);
        json!({
            "content": self.content.to_string(),
            "files": files.collect::<Vec<_>>(),
            "index": self.entry.to_json(),
            "sample": self.start.sample,
            "shard": self.shard,
            "split": self.split,
            "unit": self.start.unit,
        })
    }

    /// Parses a record, and checks the names in it. Returns `None` if it is invalid.
    #[must_use]
    pub fn parse(value: &Value, limits: &Limits) -> Option<Self> {
        let number = |key: &str| value[key].as_u64();
        let text = |key: &str| value[key].as_str();
        let files = value["files"].as_array()?.iter().map(FileRecord::parse);
        Some(Self {
            split: usize::try_from(number("split")?).ok()?,
            shard: number("shard")?,
            start: Position {
                unit: usize::try_from(number("unit")?).ok()?,
                sample: number("sample")?,
            },
            content: Content::parse(text("content")?)?,
            entry: IndexEntry::parse(text("index")?.as_bytes(), limits)?,
            files: files.collect::<Option<_>>()?,
        })
    }
}

impl FileRecord {
    fn to_json(&self) -> Value {
        let FileCheck {
            name,
            bytes,
            algo,
            hex,
        } = &self.check;
        json!({
            "algo": algo.to_string(),
            "at": self.at,
            "bytes": bytes,
            "etag": self.etag,
            "hex": hex,
            "name": name,
        })
    }

    fn parse(value: &Value) -> Option<Self> {
        let string = |key: &str| value[key].as_str();
        let path = |key: &str| {
            let path = string(key)?;
            check_relative_path(path).ok().map(|()| path.to_owned())
        };
        Some(Self {
            at: path("at")?,
            check: FileCheck {
                name: path("name")?,
                bytes: value["bytes"].as_u64()?,
                algo: string("algo")?.parse().ok()?,
                hex: string("hex")?.to_owned(),
            },
            etag: string("etag").map(str::to_owned),
        })
    }

    /// Compares the file at a path of the destination with the record.
    ///
    /// # Errors
    ///
    /// Returns the error of the disk or the store, or `Interrupted` if `cancel` returns `false`.
    pub fn compare(
        &self,
        destination: &Destination,
        at: &str,
        verify: Verify,
        cancel: &mut dyn FnMut() -> bool,
    ) -> Result<FileState, Error> {
        let expected = &self.check;
        let differs = |found: String, noted: &str| match found == noted {
            true => FileState::Intact,
            false => FileState::Hash {
                found,
                noted: noted.to_owned(),
            },
        };
        if let Some(dir) = destination.as_local() {
            return Ok(match open(dir, at)? {
                None => FileState::Missing,
                Some(file) if file.len() != expected.bytes => FileState::Length(file.len()),
                Some(_) if verify == Verify::Sizes => FileState::Intact,
                Some(file) => differs(expected.hash(&file, cancel)?, &expected.hex),
            });
        }
        let Some(version) = destination.file_version(at, &mut |_| cancel())? else {
            return Ok(FileState::Missing);
        };
        if version.bytes != expected.bytes {
            return Ok(FileState::Length(version.bytes));
        }
        let tags = version.etag.zip(self.etag.as_deref());
        let is_read = match verify {
            Verify::Sizes => false,
            Verify::Contents => tags.is_none(),
            Verify::Hashes => true,
        };
        let state = tags.map_or(FileState::Intact, |(found, noted)| differs(found, noted));
        if !is_read || state != FileState::Intact {
            return Ok(state);
        }
        Ok(
            match destination.read(at, expected.bytes, &mut |_| cancel())? {
                Some(bytes) => differs(hash_hex(expected.algo, &bytes), &expected.hex),
                None => FileState::Missing,
            },
        )
    }
}

impl FileCheck {
    /// Returns the hash of a file.
    fn hash(&self, file: &FileHandle, cancel: &mut dyn FnMut() -> bool) -> Result<String, Error> {
        let mut hasher = Hasher::new(self.algo);
        let mut at = 0;
        while at < file.len() {
            if !cancel() {
                return Err(error::interrupted(0));
            }
            let length = STEP_BYTES.min(file.len() - at);
            hasher.update(&file.read_range(at, length)?);
            at += length;
        }
        Ok(hasher.finish_hex())
    }
}

/// Opens a file, if it exists.
fn open(dir: &Dir, name: &str) -> Result<Option<FileHandle>, StorageError> {
    match dir.open_file(name) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
