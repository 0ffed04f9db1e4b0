//! Describes the files of the log: those of a version, and the lines of a commit that add or remove one.

use std::path::PathBuf;

use delta_kernel::actions::deletion_vector::DeletionVectorDescriptor;
use serde::Deserialize;

use crate::summary::DeltaFile;

/// A data file as recorded in the log.
#[derive(Debug)]
pub struct LogFile {
    /// Where it is.
    pub path: LogPath,
    /// Its length.
    pub bytes: u64,
    /// The number of rows, including deleted ones, if the log records it.
    pub records: Option<u64>,
    /// Partition values by physical column name.
    pub partition_values: Vec<(String, Option<String>)>,
    /// Its deleted rows, if there are any.
    pub deletion: Option<Deletion>,
}

impl LogFile {
    /// Returns the file as the public API describes it.
    #[must_use]
    pub fn named(&self) -> DeltaFile {
        DeltaFile {
            path: self.path.shown.clone(),
            deletion: self.deletion.as_ref().map(|deletion| deletion.id.clone()),
        }
    }
}

/// The deletion vector of a file.
#[derive(Debug)]
pub struct Deletion {
    pub(super) descriptor: DeletionVectorDescriptor,
    /// Distinguishes it from other deletion vectors.
    pub id: String,
}

/// Where a data file is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPath {
    /// Relative to the table, or absolute, with `/` as the separator.
    pub shown: String,
    /// The path on this machine, or in a store the key after a `/`.
    pub file: PathBuf,
    /// Whether the log gives an absolute path.
    pub is_absolute: bool,
}

/// Returns an id that distinguishes a deletion vector from others.
pub(super) fn vector_id(storage: &str, path_or_inline_dv: &str, offset: Option<i32>) -> String {
    format!("{storage}{path_or_inline_dv}@{}", offset.unwrap_or(0))
}

/// One line: an add, a remove, or neither.
#[derive(Deserialize)]
pub(super) struct Line {
    pub(super) add: Option<Action>,
    pub(super) remove: Option<Action>,
}

/// The fields of an add or a remove.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Action {
    /// The path as written in the log.
    pub(super) path: String,
    /// The protocol requires this field. If it is missing, the commit counts as a data change.
    #[serde(default = "yes")]
    pub(super) data_change: bool,
    deletion_vector: Option<Vector>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Vector {
    storage_type: String,
    path_or_inline_dv: String,
    offset: Option<i32>,
}

const fn yes() -> bool {
    true
}

impl Action {
    /// Returns an id that distinguishes the deletion vector from others, if there is one.
    pub(super) fn deletion(&self) -> Option<String> {
        let vector = self.deletion_vector.as_ref()?;
        let (storage, path_or_inline_dv) = (&vector.storage_type, &vector.path_or_inline_dv);
        Some(vector_id(storage, path_or_inline_dv, vector.offset))
    }
}
