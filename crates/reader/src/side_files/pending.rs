//! The note of the files that change together with an index.
//!
//! Whoever replaces an index writes this note first, then the index, which decides, then the files. Whoever finds the note
//! takes the files from it where it is about the index that is there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use shardmill_mds::{HashAlgo, hash_hex};

/// The name of the note.
pub const PENDING_NAME: &str = ".shardmill/generation";

/// Most bytes of a note.
pub const PENDING_BYTES: u64 = 2 * super::SIDE_BYTES;

/// What belongs to a new index: whole files, by name.
#[derive(Debug, Serialize, Deserialize)]
pub struct Pending {
    /// The hash of the new index.
    index: String,
    files: BTreeMap<String, String>,
}

impl Pending {
    /// The note for the files of an index.
    pub fn new(index: &str, files: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        let files = files.into_iter();
        Self {
            index: Self::hash(index.as_bytes()),
            files: files.map(|(name, text)| (name.to_owned(), text)).collect(),
        }
    }

    /// Reads a note. What is no note is none: it was torn.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }

    /// The hash that an index is known by.
    #[must_use]
    pub fn hash(index: &[u8]) -> String {
        hash_hex(HashAlgo::Sha256, index)
    }

    /// The files that belong to the index, by name; `None` where the note is about another one.
    #[must_use]
    pub fn files_of(self, index: &[u8]) -> Option<BTreeMap<String, String>> {
        (self.index == Self::hash(index)).then_some(self.files)
    }

    /// The files, by name.
    #[must_use]
    pub const fn files(&self) -> &BTreeMap<String, String> {
        &self.files
    }
}
