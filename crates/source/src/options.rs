//! The options of sources, nested by meaning.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::datatypes::{DataType, Fields};
use shardmill_core::{FileClass, Limits};
use shardmill_delta::VersionChoice;
use shardmill_parquet::without_extensions;
use shardmill_storage::{Location, RemoteOptions};

shardmill_core::named_enum! {
    /// What a location holds.
    #[non_exhaustive]
    pub enum SourceKind {
        /// A Delta table: a directory with a `_delta_log`.
        Delta = "delta",
        /// Parquet files, with hive partitions if directories are called `key=value`.
        Parquet = "parquet",
        /// Arrow IPC files (`.arrow`, `.feather`) or streams (`.arrows`).
        Arrow = "arrow",
        /// Comma-separated values with a header line.
        Csv = "csv",
        /// Tab-separated values with a header line.
        Tsv = "tsv",
        /// JSON lines: one JSON object on each line.
        JsonLines = "jsonl",
        /// TFRecord files, whose records are `tf.train.Example`s with a column for each feature.
        Tfrecord = "tfrecord",
        /// TFRecord files as one column of bytes, whatever their records are.
        TfrecordRaw = "tfrecord-raw",
        /// Windows of the arrays of a Zarr store. Never detected.
        Zarr = "zarr",
        /// A directory of plain files.
        Tree = "tree",
        /// MDS shards with an `index.json`. Recognised by [`detect`](crate::detect), opened by the caller.
        Mds = "mds",
        /// Tar files of samples. Recognised by [`detect`](crate::detect), opened by the caller.
        Webdataset = "webdataset",
    }
}

impl SourceKind {
    /// Returns the kind that files of a class are read as on their own.
    pub(crate) const fn of_class(class: FileClass) -> Option<Self> {
        match class {
            FileClass::Parquet => Some(Self::Parquet),
            FileClass::Arrow => Some(Self::Arrow),
            FileClass::Csv => Some(Self::Csv),
            FileClass::Tsv => Some(Self::Tsv),
            FileClass::JsonLines => Some(Self::JsonLines),
            FileClass::Tfrecord => Some(Self::Tfrecord),
            FileClass::Tar => Some(Self::Webdataset),
            FileClass::DeltaLog | FileClass::MdsShard | FileClass::Plain => None,
        }
    }
}

/// A column to keep or to compute, or all columns that others do not name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectColumn {
    /// The column's name in the result.
    pub name: String,
    /// The SQL expression that computes it; `None` for the existing column of that name.
    pub expr: Option<String>,
    /// Whether it stands for all columns that no other one names or renames, in their order. The name and the
    /// expression then have no meaning.
    pub is_rest: bool,
}

impl SelectColumn {
    /// Selects the existing column of that name.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            expr: None,
            is_rest: false,
        }
    }

    /// Returns whether a column of this name is selected.
    #[must_use]
    pub fn selects(&self, name: &str) -> bool {
        self.is_rest || self.name == name
    }
}

shardmill_core::named_enum! {
    /// How the columns of several files are combined into those of one table.
    #[derive(Default)]
    pub enum SchemaRule {
        /// All files have the same columns. A column gets the smallest type that holds the values of all files.
        #[default]
        Widen = "widen",
        /// As [`Widen`](Self::Widen), but a column or struct field that a file lacks is null in its rows.
        Union = "union",
        /// All files have the same columns with the same types. Only the order of columns, their nullability, and the
        /// storage layout of texts, bytes and lists may differ.
        Strict = "strict",
    }
}

/// The type to read a column with in all files, if its types cannot be combined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadAs {
    /// The column.
    pub name: String,
    /// The type.
    pub data_type: DataType,
    /// If true, only numbers are converted, and a number that the type cannot represent is an error. Otherwise, values
    /// are converted by the rules of SQL casts.
    pub exact: bool,
}

/// How the files of a tree are grouped into samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TreeGroup {
    /// Files that share a path without its last extension are one sample. Fields are the extensions.
    #[default]
    Stem,
    /// Files that share a path up to the first dot of their name are one sample, as in tar shards. Fields are what
    /// follows that dot.
    Key,
    /// Each file is a sample with the single field `data`. The key is the whole relative path.
    File,
}

/// Options for opening a source. `SourceOptions::default()` reads everything.
#[derive(Clone, Debug, Default)]
pub struct SourceOptions {
    /// What the locations hold; `None` to detect it.
    pub kind: Option<SourceKind>,
    /// Which files are read.
    pub files: FileOptions,
    /// Which samples are read.
    pub samples: SampleOptions,
    /// The rows and columns of the result.
    pub query: QueryOptions,
    /// How the columns of several Parquet or Arrow files are combined.
    pub schema: SchemaOptions,
    /// Options for Delta tables.
    pub delta: DeltaOptions,
    /// Options for file trees.
    pub tree: TreeOptions,
    /// Options for CSV and JSON lines.
    pub text: TextOptions,
    /// Options for CSV.
    pub csv: CsvOptions,
    /// Threads, memory and temporary files.
    pub resources: ResourceOptions,
    /// Limits on the sizes that a file may claim.
    pub limits: Limits,
    /// Options for reading from stores.
    pub remote: RemoteOptions,
}

/// Which samples are read. The default reads all samples of a dataset that are not deleted.
#[derive(Clone, Debug, Default)]
pub struct SampleOptions {
    /// Whether to include samples that were deleted from the table of the dataset.
    pub with_deleted: bool,
    /// A view of the dataset, which selects samples; `None` for all.
    pub view: Option<Location>,
    /// The windows of a Zarr store.
    pub zarr: ZarrOptions,
}

/// Which files are read. The default reads all of them.
#[derive(Clone, Debug, Default)]
pub struct FileOptions {
    /// A location that must neither contain the source nor lie inside it: the destination of a conversion.
    pub destination: Option<Location>,
    /// Patterns of the files to read below directories; if empty, all of them. `*` and `?` match characters within a
    /// name, `**` matches any number of directories. A pattern without a `/` is compared with the name of the file, any
    /// other one with its path relative to its location. Names that begin with a dot match only patterns that do.
    pub include: Vec<String>,
    /// Patterns of the files to ignore.
    pub exclude: Vec<String>,
}

impl FileOptions {
    /// Returns whether patterns select files.
    #[must_use]
    pub const fn selects(&self) -> bool {
        !self.include.is_empty() || !self.exclude.is_empty()
    }
}

/// The rows and columns of the result. The default selects all of them.
#[derive(Clone, Debug, Default)]
pub struct QueryOptions {
    /// The columns of the result, in this order; empty for all. Applied after `select` or `sql`.
    pub columns: Vec<SelectColumn>,
    /// A select list such as `id, lower(text) AS text`; scalar expressions only. Applied after `filter`.
    pub select: Option<String>,
    /// A condition that rows must meet, such as `length > 10`.
    pub filter: Option<String>,
    /// A whole query over the table `source`. Excludes `select` and `filter`.
    pub sql: Option<String>,
    /// The name of an additional column with the number of each row, before any filter.
    pub number: Option<String>,
}

impl QueryOptions {
    /// Returns whether the result has columns that an expression or a query computes, or a filter selects its rows.
    #[must_use]
    pub fn computes(&self) -> bool {
        self.select.is_some()
            || self.filter.is_some()
            || self.sql.is_some()
            || self.columns.iter().any(|column| column.expr.is_some())
    }

    /// Returns whether the query may use a column: a whole query uses all of them, and `select` and `filter` those
    /// whose names occur in their text. Column names match in any case.
    #[must_use]
    pub fn mentions(&self, column: &str) -> bool {
        let mut texts = [&self.select, &self.filter].into_iter().flatten();
        let column = column.to_lowercase();
        self.sql.is_some()
            || texts.any(|text| {
                let text = text.to_lowercase();
                let is_letter = |letter: char| letter.is_alphanumeric() || letter == '_';
                let mut words = text.split(|letter| !is_letter(letter));
                words.any(|word| word == column) || text.split('"').any(|quoted| quoted == column)
            })
    }
}

/// How the columns of several Parquet or Arrow files are combined into those of one table.
#[derive(Clone, Debug, Default)]
pub struct SchemaOptions {
    /// The rule.
    pub rule: SchemaRule,
    /// Types for columns whose types in several files cannot be combined. [`open`](crate::open) adds the types that
    /// the [`QueryOptions`] cast to.
    pub read_as: Vec<ReadAs>,
    /// Whether extension types stay as they are stored. Otherwise tensors become nested lists, UUIDs text, and variants
    /// JSON.
    pub keep_extensions: bool,
}

impl SchemaOptions {
    /// Returns the columns of a file as the table has them.
    pub(crate) fn columns_of(&self, fields: &Fields) -> Fields {
        match self.keep_extensions {
            true => fields.clone(),
            false => fields.iter().map(without_extensions).collect(),
        }
    }
}

/// Which version and files of a Delta table are read. The default is all of the latest version.
#[derive(Clone, Debug, Default)]
pub struct DeltaOptions {
    /// The version.
    pub choice: VersionChoice,
    /// The files to read, by their [paths](crate::DeltaFile::path); `None` for all.
    pub only: Option<Arc<BTreeSet<String>>>,
}

/// How the files of a tree become samples.
#[derive(Clone, Debug)]
pub struct TreeOptions {
    /// How files are grouped into samples.
    pub group: TreeGroup,
    /// The name of the key column.
    pub key_column: String,
    /// Whether symbolic links are followed.
    pub follow_links: bool,
    /// Whether text files are read as bytes.
    pub text_as_bytes: bool,
}

impl Default for TreeOptions {
    fn default() -> Self {
        Self {
            group: TreeGroup::Stem,
            key_column: "__key__".to_owned(),
            follow_links: false,
            text_as_bytes: false,
        }
    }
}

/// Which windows of which arrays of a Zarr store are rows.
#[derive(Clone, Debug, Default)]
pub struct ZarrOptions {
    /// The names of the arrays.
    pub variables: Vec<String>,
    /// The dimensions that windows move along, and the size of a window. The last one moves first. Of other dimensions, a
    /// window has all.
    pub window: Vec<(String, u64)>,
    /// How far a window moves along a dimension; by default its size.
    pub stride: Vec<(String, u64)>,
    /// Whether values stay as they are stored. Otherwise they are decoded by the CF conventions, as xarray does.
    pub raw_values: bool,
}

/// How the columns of CSV and JSON lines get their types.
#[derive(Clone, Debug)]
pub struct TextOptions {
    /// Columns that become JSON: their values are read as the JSON text in the file.
    pub json_columns: Vec<String>,
    /// Columns that become text: their numbers are read as written.
    pub text_columns: Vec<String>,
    /// Whether objects in JSON lines, and lists other than lists of numbers, are read as their JSON text.
    pub raw_objects: bool,
    /// Columns that [`raw_objects`](Self::raw_objects) does not affect.
    pub typed_columns: Vec<String>,
    /// How many rows of a large file, also of TFRecord, are examined to infer column types. Files of up to 64 MiB are
    /// always examined completely.
    pub infer_rows: usize,
}

impl Default for TextOptions {
    fn default() -> Self {
        Self {
            json_columns: Vec::new(),
            text_columns: Vec::new(),
            raw_objects: false,
            typed_columns: Vec::new(),
            infer_rows: 100_000,
        }
    }
}

/// How CSV files are written.
#[derive(Clone, Debug)]
pub struct CsvOptions {
    /// The byte that separates values; `None` for a comma, or a tab in [`SourceKind::Tsv`].
    pub delimiter: Option<u8>,
    /// Whether the first line of a file names the columns. Otherwise they are `column_1`, `column_2`, ….
    pub header: bool,
    /// The texts that mean null if they are unquoted. An empty field is null in any column that is not text.
    pub nulls: Vec<String>,
}

impl Default for CsvOptions {
    fn default() -> Self {
        Self {
            delimiter: None,
            header: true,
            nulls: vec![String::new()],
        }
    }
}

/// Threads, memory and temporary files.
#[derive(Clone, Debug)]
pub struct ResourceOptions {
    /// The number of threads that list and open files; 0 for one per core.
    pub jobs: usize,
    /// The approximate number of bytes of decoded data in a batch.
    pub batch_bytes: usize,
    /// Whether a large row group of a Parquet file is several units, as it is several shards of a stream over the table.
    pub divide_row_groups: bool,
    /// The most bytes of memory that a query may use before it spills to disk.
    pub memory_limit: Option<u64>,
    /// The directory for spilled data of queries and downloaded objects; `None` for the system's temporary directory.
    pub temp_dir: Option<PathBuf>,
}

impl ResourceOptions {
    /// Returns the directory for temporary files.
    pub(crate) fn temp_folder(&self) -> PathBuf {
        self.temp_dir.clone().unwrap_or_else(std::env::temp_dir)
    }
}

impl Default for ResourceOptions {
    fn default() -> Self {
        Self {
            jobs: 0,
            batch_bytes: 1 << 20,
            divide_row_groups: false,
            memory_limit: None,
            temp_dir: None,
        }
    }
}
