use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use arrow::datatypes::DataType;
use shardmill_core::Limits;
use shardmill_storage::{Location, RemoteOptions};

/// What a location holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SourceKind {
    /// A Delta table: a directory with a `_delta_log`.
    Delta,
    /// Parquet files, with hive partitions where directories are called `key=value`.
    Parquet,
    /// Arrow IPC files (`.arrow`, `.feather`) or streams (`.arrows`).
    Arrow,
    /// Comma-separated values with a header line.
    Csv,
    /// Tab-separated values with a header line.
    Tsv,
    /// One JSON object a line.
    JsonLines,
    /// A directory of plain files.
    Tree,
    /// MDS shards with an `index.json`. Recognised by [`detect`](crate::detect), opened by the caller.
    Mds,
    /// Tar files of samples. Recognised by [`detect`](crate::detect), opened by the caller.
    Webdataset,
}

impl SourceKind {
    /// Every kind, in declaration order.
    pub const ALL: [Self; 9] = [
        Self::Delta,
        Self::Parquet,
        Self::Arrow,
        Self::Csv,
        Self::Tsv,
        Self::JsonLines,
        Self::Tree,
        Self::Mds,
        Self::Webdataset,
    ];

    /// The name used on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Delta => "delta",
            Self::Parquet => "parquet",
            Self::Arrow => "arrow",
            Self::Csv => "csv",
            Self::Tsv => "tsv",
            Self::JsonLines => "jsonl",
            Self::Tree => "tree",
            Self::Mds => "mds",
            Self::Webdataset => "webdataset",
        }
    }
}

impl fmt::Display for SourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is none of the known kinds of source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown kind of source `{}`", shardmill_core::escape(name))]
pub struct ParseSourceKindError {
    /// The name as given.
    pub name: String,
}

impl FromStr for SourceKind {
    type Err = ParseSourceKindError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| ParseSourceKindError {
                name: name.to_owned(),
            })
    }
}

/// A column to keep, or to compute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectColumn {
    /// The name it has in the result.
    pub name: String,
    /// The SQL expression that computes it; `None` for the column of that name.
    pub expr: Option<String>,
}

impl SelectColumn {
    /// The existing column of that name.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            expr: None,
        }
    }

    /// A column computed by an SQL expression.
    pub fn computed(name: impl Into<String>, expr: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            expr: Some(expr.into()),
        }
    }
}

/// How the columns of several files become those of one table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SchemaRule {
    /// All files have the same columns. A column gets the smallest type that holds the values of all files.
    #[default]
    Widen,
    /// As [`Widen`](Self::Widen), and a column or field of a struct that a file lacks is null there.
    Union,
    /// All files have the same columns with the same types. Only the order of columns, nullability and the way
    /// in which texts, bytes and lists are stored may differ.
    Strict,
}

impl SchemaRule {
    /// The name used on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Widen => "widen",
            Self::Union => "union",
            Self::Strict => "strict",
        }
    }
}

/// The type as which all files give a column whose types do not go together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadAs {
    /// The column.
    pub name: String,
    /// The type.
    pub data_type: DataType,
    /// Whether only numbers are converted, and a number that the type does not have is an error. Otherwise values
    /// are converted as SQL casts them.
    pub exact: bool,
}

/// How the files of a tree become samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TreeGroup {
    /// Files that share a path without its last extension are one sample; fields are the extensions.
    #[default]
    Stem,
    /// Files that share a path up to the first dot of their name are one sample, as in tar shards; fields are what follows.
    Key,
    /// Each file is a sample with the single field `data`; the key is the whole relative path.
    File,
}

/// How to open a source. `SourceOptions::default()` reads everything there is.
#[derive(Clone, Debug)]
pub struct SourceOptions {
    /// What the locations hold; `None` to find out.
    pub kind: Option<SourceKind>,
    /// The columns of the result, in this order; empty for all. Applied after `select` or `sql`.
    pub columns: Vec<SelectColumn>,
    /// A select list such as `id, lower(text) AS text`; scalar expressions only. Applied after `filter`.
    pub select: Option<String>,
    /// A condition that rows must meet, such as `length > 10`.
    pub filter: Option<String>,
    /// A whole query over the table `source`. Excludes `select` and `filter`.
    pub sql: Option<String>,
    /// A place that must not lie inside the source, nor the source inside it: the destination of a conversion.
    pub exclude: Option<Location>,
    /// The version of a Delta table; `None` for the latest, or for the one that `timestamp_ms` says.
    pub version: Option<u64>,
    /// The latest version of a Delta table at this time, in milliseconds since 1970, is read.
    pub timestamp_ms: Option<i64>,
    /// The files of a Delta table to read, by their [paths](crate::DeltaFile::path); `None` for all.
    pub only: Option<Arc<BTreeSet<String>>>,
    /// How the columns of several Parquet or Arrow files become those of one table.
    pub schema: SchemaRule,
    /// Types for columns whose types in several files do not go together. [`open`](crate::open) adds those that
    /// `columns`, `select` and `filter` cast to.
    pub read_as: Vec<ReadAs>,
    /// How the files of a tree become samples.
    pub group: TreeGroup,
    /// The name of the key column of a tree.
    pub key_column: String,
    /// Whether symbolic links in a tree are followed.
    pub follow_links: bool,
    /// Whether the text files of a tree are given as the bytes that they are.
    pub text_as_bytes: bool,
    /// Columns of CSV and JSON lines that become JSON: they are read as the JSON text that they are in the file.
    pub json_columns: Vec<String>,
    /// Columns of CSV and JSON lines that become text: their numbers are read as they are written.
    pub text_columns: Vec<String>,
    /// Whether objects of JSON lines, and lists that are no list of numbers, are read as the JSON text that they are.
    pub raw_objects: bool,
    /// Columns that [`raw_objects`](Self::raw_objects) leaves alone.
    pub typed_columns: Vec<String>,
    /// About how many bytes of decoded data a batch holds.
    pub batch_bytes: usize,
    /// How many threads may list and open files; 0 for all cores.
    pub jobs: usize,
    /// Most bytes of memory that a query may use before it spills to disk.
    pub memory_limit: Option<u64>,
    /// Where a query spills to, and objects of stores are kept while they are read; `None` for the system's directory for temporary files.
    pub temp_dir: Option<PathBuf>,
    /// The byte between two CSV values; `None` for a comma, and for a tab in [`SourceKind::Tsv`].
    pub csv_delimiter: Option<u8>,
    /// Whether the first line of a CSV file names the columns; otherwise they are `column_1`, `column_2`, ….
    pub csv_header: bool,
    /// The texts that are null where they stand in a CSV file without quotes. An empty field is null in any column that
    /// is not text.
    pub csv_nulls: Vec<String>,
    /// How many rows of a large CSV or JSON lines file decide on the column types. Files of up to 64 MiB
    /// are always looked at as a whole.
    pub infer_rows: usize,
    /// What a file may ask for.
    pub limits: Limits,
    /// Whether samples of a dataset that its table no longer has are rows like all others.
    pub with_deleted: bool,
    /// How stores are read.
    pub remote: RemoteOptions,
}

impl Default for SourceOptions {
    fn default() -> Self {
        Self {
            kind: None,
            columns: Vec::new(),
            select: None,
            filter: None,
            sql: None,
            exclude: None,
            version: None,
            timestamp_ms: None,
            only: None,
            schema: SchemaRule::Widen,
            read_as: Vec::new(),
            group: TreeGroup::Stem,
            key_column: "__key__".to_owned(),
            follow_links: false,
            text_as_bytes: false,
            json_columns: Vec::new(),
            text_columns: Vec::new(),
            raw_objects: false,
            typed_columns: Vec::new(),
            batch_bytes: 1 << 20,
            jobs: 0,
            memory_limit: None,
            temp_dir: None,
            csv_delimiter: None,
            csv_header: true,
            csv_nulls: vec![String::new()],
            infer_rows: 100_000,
            limits: Limits::default(),
            with_deleted: false,
            remote: RemoteOptions::default(),
        }
    }
}
