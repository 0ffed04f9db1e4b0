//! Describes versions of tables, and the changes between them.

use serde::Serialize;

use crate::time::shown_time;

/// Which version of a table is read. The default is the latest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VersionChoice {
    /// The version; `None` for the latest, or for the one at `timestamp_ms`.
    pub version: Option<u64>,
    /// Reads the latest version at this time, in milliseconds since 1970.
    pub timestamp_ms: Option<i64>,
}

/// The metadata of one version of a Delta table, from its log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeltaSummary {
    /// The version that was opened.
    pub version: u64,
    /// The commit time in milliseconds since 1970: the in-commit timestamp if the table has them, else the modification
    /// time of the commit file. `None` if only a checkpoint of the version is left.
    pub timestamp_ms: Option<i64>,
    /// The oldest version that can be read, if known.
    pub earliest_version: Option<u64>,
    /// The latest version, if known.
    pub latest_version: Option<u64>,
    /// The table's own id.
    pub id: String,
    /// The table's name, if it has one.
    pub name: Option<String>,
    /// What the table requires of readers and writers.
    pub protocol: DeltaProtocol,
    /// The columns whose values are stored in the log.
    pub partition_columns: Vec<String>,
    /// How many rows of the files are deleted by deletion vectors.
    pub deleted_rows: u64,
    /// How many files have a deletion vector.
    pub files_with_deletions: u64,
    /// The files that are read, in the order in which they are read.
    pub files: Vec<DeltaFile>,
}

/// What a Delta table requires of readers and writers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeltaProtocol {
    /// The reader version.
    pub min_reader_version: i32,
    /// The writer version.
    pub min_writer_version: i32,
    /// The features that the table requires of readers, if it lists them.
    pub reader_features: Vec<String>,
    /// The features that the table requires of writers, if it lists them.
    pub writer_features: Vec<String>,
    /// The column mapping mode, `id` or `name`, if the table maps columns.
    pub column_mapping: Option<&'static str>,
}

/// A data file of a Delta table. Its bytes never change, but which of its rows are deleted may change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeltaFile {
    /// Relative to the table, or absolute if the log has an absolute path.
    pub path: String,
    /// Distinguishes its deletion vector from others, if it has one.
    pub deletion: Option<String>,
}

/// The changes of a Delta table since a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeltaHistory {
    /// The version up to which changes are listed.
    pub version: u64,
    /// The table's own id.
    pub id: String,
    /// The files of that version.
    pub files: Vec<DeltaFile>,
    /// The commits after the earlier version, up to this one; `None` if one of them no longer exists.
    pub commits: Option<Vec<DeltaCommit>>,
}

/// The changes that a commit made to the files of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeltaCommit {
    /// Whether the commit only moved rows to other files, and did not change the data.
    pub rearranges: bool,
    /// Files that the commit removed, or whose deletion vector it replaced.
    pub removed: Vec<DeltaFile>,
    /// Files that the commit added.
    pub added: Vec<DeltaFile>,
}

impl DeltaSummary {
    /// Returns the time of the version as RFC 3339 in UTC.
    #[must_use]
    pub fn timestamp(&self) -> Option<String> {
        self.timestamp_ms.map(shown_time)
    }
}
