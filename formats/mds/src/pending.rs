//! The note of the files that change together with an index.
//!
//! A writer that replaces an index first writes this note, then the index, which commits the change, then the files. A
//! reader that finds a note for the current index takes the files from it. Files that the new index does not have are in
//! the note without a text.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use shardmill_codec::{HashAlgo, hash_hex};

use crate::side_names::SIDE_BYTES;

/// The name of the note.
pub const PENDING_NAME: &str = ".shardmill/generation";

/// The most bytes of a note.
pub const PENDING_BYTES: u64 = 2 * SIDE_BYTES;

/// The files that belong to a new index, by name.
#[derive(Debug, Serialize, Deserialize)]
pub struct Pending {
    /// The hash of the new index.
    index: String,
    files: BTreeMap<String, Option<String>>,
}

impl Pending {
    /// Makes the note for the files of an index. Files without a text do not belong to it.
    pub fn new(
        index: &str,
        files: impl IntoIterator<Item = (&'static str, Option<String>)>,
    ) -> Self {
        let files = files.into_iter();
        Self {
            index: Self::hash(index.as_bytes()),
            files: files.map(|(name, text)| (name.to_owned(), text)).collect(),
        }
    }

    /// Parses a note; `None` for invalid bytes, which are a torn write.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }

    /// Returns the hash that identifies an index.
    #[must_use]
    pub fn hash(index: &[u8]) -> String {
        hash_hex(HashAlgo::Sha256, index)
    }

    /// Returns whether the note is for this index.
    #[must_use]
    pub fn is_of(&self, index: &[u8]) -> bool {
        self.index == Self::hash(index)
    }

    /// Returns the files that belong to the index, by name; `None` if the note is for another index.
    #[must_use]
    pub fn files_of(self, index: &[u8]) -> Option<BTreeMap<String, Option<String>>> {
        self.is_of(index).then_some(self.files)
    }

    /// Returns the files, by name.
    #[must_use]
    pub const fn files(&self) -> &BTreeMap<String, Option<String>> {
        &self.files
    }
}
