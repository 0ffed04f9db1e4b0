//! The records of published shards, as journals and manifests store them.

use serde_json::{Value, json};
use shardmill_core::{Limits, check_relative_path};
use shardmill_mds::Hasher;
use shardmill_storage::{Dir, FileHandle, FileVersion, StorageError, TempFile};

use crate::entry::IndexEntry;
use crate::error::WriteError;
use crate::shard::{FileCheck, FinishedShard};

/// The number of bytes that are hashed at a time.
const STEP_BYTES: u64 = 1 << 20;

/// A published shard.
#[derive(Clone, Debug)]
pub struct ShardRecord {
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
    /// Its path, relative to the dataset. In a part, the path before the commit.
    pub at: String,
    /// The ETag that the store reported, if the file is in a store.
    pub etag: Option<String>,
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
            entry: shard.entry,
            files: files.collect::<Result<_, StorageError>>()?,
        })
    }

    /// Returns the record of a shard in a journal, as JSON. A journal does not store the paths of files.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let files = self.files.iter().map(FileRecord::to_json);
        json!({"files": files.collect::<Vec<_>>(), "index": self.entry.to_json()})
    }

    /// Parses a record, and checks the names in it.
    ///
    /// # Errors
    ///
    /// Returns the reason why the record is invalid.
    pub fn parse(value: &Value, limits: &Limits) -> Result<Self, &'static str> {
        let entry = value["index"].as_str();
        let entry = entry.and_then(|text| IndexEntry::parse(text.as_bytes(), limits));
        let files = value["files"].as_array();
        let files = files.ok_or("the files of a shard are missing")?;
        let files: Option<_> = files.iter().map(FileRecord::parse).collect();
        Ok(Self {
            entry: entry.ok_or("the index of a shard is missing or cannot be read")?,
            files: files.ok_or("a file of a shard has no name, place, length or hash")?,
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
        json!({"algo": algo.to_string(), "bytes": bytes, "etag": self.etag, "hex": hex, "name": name})
    }

    /// Returns the record in a manifest, which stores the path.
    pub(crate) fn to_manifest_json(&self) -> Value {
        let mut value = self.to_json();
        value["at"] = self.at.as_str().into();
        value
    }

    fn parse(value: &Value) -> Option<Self> {
        let string = |key: &str| value[key].as_str();
        let path = |key: &str| {
            let path = string(key)?;
            check_relative_path(path).ok().map(|()| path.to_owned())
        };
        let name = path("name")?;
        Some(Self {
            at: match value.get("at") {
                Some(_) => path("at")?,
                None => name.clone(),
            },
            check: FileCheck {
                name,
                bytes: value["bytes"].as_u64()?,
                algo: string("algo")?.parse().ok()?,
                hex: string("hex")?.to_owned(),
            },
            etag: string("etag").map(str::to_owned),
        })
    }
}

impl FileCheck {
    /// Returns whether the file `name` has the recorded length and hash.
    ///
    /// # Errors
    ///
    /// Returns the error of the disk, or [`WriteError::Interrupted`] if `cancel` returns `false`.
    pub fn is_same(
        &self,
        dir: &Dir,
        name: &str,
        cancel: &mut dyn FnMut() -> bool,
    ) -> Result<bool, WriteError> {
        Ok(match open(dir, name)? {
            Some(file) => file.len() == self.bytes && self.hash(&file, cancel)? == self.hex,
            None => false,
        })
    }

    /// Returns the hash of a file.
    pub(crate) fn hash(
        &self,
        file: &FileHandle,
        cancel: &mut dyn FnMut() -> bool,
    ) -> Result<String, WriteError> {
        let mut hasher = Hasher::new(self.algo);
        let mut at = 0;
        while at < file.len() {
            if !cancel() {
                return Err(WriteError::Interrupted { samples: 0 });
            }
            let length = STEP_BYTES.min(file.len() - at);
            hasher.update(&file.read_range(at, length)?);
            at += length;
        }
        Ok(hasher.finish_hex())
    }
}

/// Opens a file, if it exists.
pub(crate) fn open(dir: &Dir, name: &str) -> Result<Option<FileHandle>, StorageError> {
    match dir.open_file(name) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
