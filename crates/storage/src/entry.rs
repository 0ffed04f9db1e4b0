//! What is known of a file or an object without opening it, and the kinds of stores.

use std::ffi::OsString;
use std::fmt;

use rustix::fs::FileType;

/// The type of a directory entry. Symbolic links are not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A device, or a type that this list does not have.
    Special,
}

impl From<FileType> for EntryKind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Symlink,
            FileType::Fifo => Self::Fifo,
            FileType::Socket => Self::Socket,
            _ => Self::Special,
        }
    }
}

impl fmt::Display for EntryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File => "file",
            Self::Directory => "directory",
            Self::Symlink => "symbolic link",
            Self::Fifo => "named pipe",
            Self::Socket => "socket",
            Self::Special => "special file",
        })
    }
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name, as the bytes that the file system stores.
    pub name: OsString,
    /// The type of the entry.
    pub kind: EntryKind,
}

/// The version of a published file, by which it is recognised later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileVersion {
    /// The length in bytes.
    pub bytes: u64,
    /// The `ETag` of the object; `None` in a directory.
    pub etag: Option<String>,
}

/// A file or an object in a listing of many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedFile {
    /// The name relative to the location. That of an object is as the store returns it, and is not checked.
    pub name: String,
    /// The length in bytes.
    pub bytes: u64,
    /// The version tag: an `ETag` or a time. Empty if the store has none.
    pub tag: String,
}

/// An entry in a folder of a [`Destination`](crate::Destination).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DestinationEntry {
    /// The name. A name that is not UTF-8 has replacement characters and cannot be opened.
    pub name: String,
    /// Whether it is a folder. In a store, a folder is a prefix of longer names.
    pub is_folder: bool,
}

impl From<Entry> for DestinationEntry {
    fn from(entry: Entry) -> Self {
        Self {
            name: entry.name.to_string_lossy().into_owned(),
            is_folder: entry.kind == EntryKind::Directory,
        }
    }
}

/// The kind of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum StoreKind {
    /// S3 and compatible stores.
    S3,
    /// Google Cloud Storage, by its JSON API.
    Google,
    /// Google Cloud Storage, by its XML API, which is the only one that HMAC keys can sign requests of.
    GoogleXml,
    /// Azure Blob Storage and Azure Data Lake Storage.
    Azure,
    /// Databricks volumes.
    Volumes,
    /// A web server, read-only.
    Http,
    /// A dataset repository of the Hugging Face Hub, read-only.
    Hub,
    /// A bucket of the Hugging Face Hub, read-only. It has no revisions.
    HubBucket,
}

impl fmt::Display for StoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::S3 => "S3",
            Self::Google | Self::GoogleXml => "Google Cloud Storage",
            Self::Azure => "Azure Blob Storage",
            Self::Volumes => "Databricks Files API",
            Self::Http => "HTTP",
            Self::Hub | Self::HubBucket => "Hugging Face Hub",
        })
    }
}
