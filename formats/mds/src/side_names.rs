//! Names and sizes of side files.

/// The name of the file that records the source of the data and how it was converted. None of these names ends in
/// `.json`, because tools that merge the indexes of subdirectories take every nested `*.json` for an index.
pub const PROVENANCE_NAME: &str = "index.provenance";

/// The name of the file that maps samples to the rows of the files of a table.
pub const RECORD_NAME: &str = "index.increments";

/// The name of the list of deleted samples.
pub const TOMBSTONES_NAME: &str = "index.tombstones";

/// The name of the file that lists the shards of late columns.
pub const COLUMNS_NAME: &str = "index.columns";

/// The most bytes of a provenance file.
pub const PROVENANCE_BYTES: u64 = 64 << 20;

/// The most bytes of a record, and of a list of deleted samples.
pub const SIDE_BYTES: u64 = 1 << 30;
