//! The options of a conversion, nested by meaning.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value, json};
use shardmill_mds::{Compression, HashAlgo};
use shardmill_source::{SchemaRule, SourceOptions, TreeGroup};
use shardmill_storage::{LEASE_PATIENCE, Location};
use shardmill_webdataset::{Consumer, TarCompression};
use shardmill_writer::{ShardFormat, ShardPattern};

shardmill_core::named_enum! {
    /// What to do with nulls. If an encoding can store nulls, `Error` and `Mask` store them.
    #[derive(Default)]
    pub enum Nulls {
        /// Report an error that names the column and the row.
        #[default]
        Error = "error",
        /// Store the zero of the type, and 1 in a `uint8` column `NAME__is_null`. For a null inside a list of numbers, store 0
        /// in its place, and 2 in the column.
        Mask = "mask",
        /// Drop the row, and count it.
        Drop = "drop",
        /// Leave the field out of the sample; only in tar files.
        Omit = "omit",
    }
}

shardmill_core::named_enum! {
    /// The names that members of a tar file may have.
    #[derive(Default)]
    pub enum TarNames {
        /// Names that every known reader returns unchanged.
        #[default]
        Portable = "portable",
        /// Names that webdataset itself returns unchanged: of any length, with spaces, with characters beyond ASCII.
        Any = "any",
    }
}

/// The options that only WebDataset has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TarOptions {
    /// The compression of whole shards. Most readers need uncompressed shards.
    pub compression: Option<TarCompression>,
    /// The pattern of the shard names.
    pub pattern: ShardPattern,
    /// The allowed names.
    pub names: TarNames,
    /// The readers that get their own index.
    pub index_for: Vec<Consumer>,
}

/// One column of the dataset to write, or all columns that others do not name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnSpec {
    /// Its name.
    pub name: String,
    /// The name of its encoding in the format. `None` means the default of its type.
    pub encoding: Option<String>,
    /// The expression that computes it. `None` means the source column with the same name.
    pub expr: Option<String>,
    /// Whether it stands for all columns that no other one names, as without specifications. The other fields then have
    /// no meaning.
    pub is_rest: bool,
}

impl ColumnSpec {
    /// Specifies the source column of that name, in the default encoding of its type.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            encoding: None,
            expr: None,
            is_rest: false,
        }
    }
}

/// One split: one of several datasets that the rows are divided among.
#[derive(Clone, Debug, PartialEq)]
pub struct SplitSpec {
    /// Its name, which is also the name of its directory.
    pub name: String,
    /// Its share of the rows, above 0; shares sum to 1.
    pub share: f64,
}

/// One part of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its number, from 0.
    pub number: u64,
    /// The number of parts.
    pub count: u64,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.count)
    }
}

/// The options of a conversion.
///
/// These fields do not change the output: the threads, the memory limit without a query, `overwrite`, the limits, and
/// the options for accessing stores.
#[derive(Clone, Debug)]
pub struct ConvertOptions {
    /// Files, directories or patterns.
    pub sources: Vec<Location>,
    /// The directory to write, or the prefix in a store.
    pub dest: Location,
    /// How the sources are read. The threads, the temporary directory, the limits and the access to stores also apply
    /// to the destination. The plan sets `files.destination`, and every field that follows from the columns to write.
    pub source: SourceOptions,
    /// The columns and rows to write.
    pub columns: ColumnOptions,
    /// The form of the shards.
    pub shards: ShardOptions,
    /// What the run does.
    pub run: RunOptions,
}

/// The columns and rows to write.
#[derive(Clone, Debug, Default)]
pub struct ColumnOptions {
    /// The columns; empty for all.
    pub specs: Vec<ColumnSpec>,
    /// What to do with nulls.
    pub nulls: Nulls,
    /// Values that replace the nulls of single columns, as text.
    pub null_as: Vec<(String, String)>,
    /// The columns whose lengths are kept beside the index.
    pub lengths: Vec<String>,
    /// The columns whose videos are indexed beside the index.
    pub videos: Vec<String>,
    /// How a column of text becomes tokens. `None` keeps the text.
    pub tokenize: Option<TokenizeOptions>,
    /// The seed of a random order of the rows. `None` keeps the order of the source.
    pub shuffle: Option<u64>,
    /// The splits. Empty for a single dataset.
    pub split: Vec<SplitSpec>,
    /// The column whose value determines the split. `None` means the number of the row.
    pub split_key: Option<String>,
}

impl ColumnOptions {
    /// Returns the specification of a column.
    pub(crate) fn spec(&self, name: &str) -> Option<&ColumnSpec> {
        self.named().find(|column| column.name == name)
    }

    /// Returns the specifications of single columns.
    pub(crate) fn named(&self) -> impl Iterator<Item = &ColumnSpec> {
        self.specs.iter().filter(|column| !column.is_rest)
    }

    /// Returns whether columns are written that no specification names.
    pub(crate) fn writes_rest(&self) -> bool {
        self.specs.is_empty() || self.specs.iter().any(|column| column.is_rest)
    }
}

/// How a column of text becomes a column of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenizeOptions {
    /// The tokenizer: a file `tokenizer.json` of Hugging Face.
    pub file: PathBuf,
    /// The column of text. `None` means the only one.
    pub text: Option<String>,
    /// The name of the column of tokens.
    pub tokens: String,
    /// Whether the tokenizer adds its own special tokens.
    pub special_tokens: bool,
    /// A token before each text.
    pub prepend: Option<String>,
    /// A token after each text.
    pub append: Option<String>,
    /// Whether the text is written too. A text that [`ColumnOptions::specs`] names is always written.
    pub keep_text: bool,
}

impl TokenizeOptions {
    /// Creates options with the defaults of the command line.
    #[must_use]
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self {
            file: file.into(),
            text: None,
            tokens: "tokens".to_owned(),
            special_tokens: false,
            prepend: None,
            append: None,
            keep_text: false,
        }
    }
}

/// The form of the shards.
#[derive(Clone, Debug)]
pub struct ShardOptions {
    /// The format.
    pub to: ShardFormat,
    /// The compression of shards, except tar shards. In Parquet files, it is the compression of pages.
    pub compression: Option<Compression>,
    /// The options that only WebDataset has.
    pub tar: TarOptions,
    /// The hashes in the index.
    pub hashes: Vec<HashAlgo>,
    /// The maximum size of an uncompressed shard in bytes. In Parquet files, the size of the rows in memory counts.
    pub size_limit: Option<u64>,
    /// The maximum size of the rows of a row group in bytes; only in Parquet files.
    pub row_group_bytes: u64,
    /// The maximum number of samples in a shard.
    pub samples_per_shard: Option<u64>,
    /// Whether each row group of the source is a shard, whatever its size. The order of samples then is that of the table
    /// in place.
    pub keep_row_groups: bool,
}

impl Default for ShardOptions {
    /// Returns the defaults of the command line: MDS, `zstd:3`, `sha256`, 64 MiB.
    fn default() -> Self {
        Self {
            to: ShardFormat::Mds,
            compression: "zstd:3".parse().ok(),
            tar: TarOptions::default(),
            hashes: vec![HashAlgo::Sha256],
            size_limit: Some(64 << 20),
            row_group_bytes: 64 << 20,
            samples_per_shard: None,
            keep_row_groups: false,
        }
    }
}

/// What a run does.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Whether an existing dataset is replaced.
    pub overwrite: bool,
    /// Whether the dataset is made for incremental updates from its table, and updated incrementally if it exists.
    pub incremental: bool,
    /// The part to write, if several runs share the conversion. [`commit`](crate::commit()) publishes all parts.
    pub part: Option<Part>,
    /// The time without a heartbeat after which a conversion into a store takes over the lease of another one.
    pub lease_patience: Duration,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            overwrite: false,
            incremental: false,
            part: None,
            lease_patience: LEASE_PATIENCE,
        }
    }
}

impl ConvertOptions {
    /// Creates options with the defaults of the command line, and one thread.
    #[must_use]
    pub fn new(sources: Vec<Location>, dest: Location) -> Self {
        let mut source = SourceOptions::default();
        source.resources.jobs = 1;
        Self {
            sources,
            dest,
            source,
            columns: ColumnOptions::default(),
            shards: ShardOptions::default(),
            run: RunOptions::default(),
        }
    }

    /// Returns the destination as text. Callers escape it before they show it.
    pub(crate) fn dest_text(&self) -> String {
        shown(&self.dest)
    }

    pub(crate) fn spool(&self) -> Option<&Path> {
        self.source.resources.temp_dir.as_deref()
    }

    /// Returns all options that determine the bytes of the output, in a fixed order. `columns` are the resolved
    /// columns.
    pub(crate) fn fingerprinted(&self, columns: &[(&str, &str)]) -> Value {
        let mut config = Map::new();
        let mut put = |key: &str, value: Value| {
            config.insert(key.to_owned(), value);
        };
        put("to", json!(self.shards.to.name()));
        put("columns", json!(columns));
        let specs = self.columns.specs.iter();
        let exprs = specs.filter_map(|column| Some((&column.name, column.expr.as_ref()?)));
        put("expressions", json!(exprs.collect::<Vec<_>>()));
        put("select", json!(self.source.query.select));
        put("where", json!(self.source.query.filter));
        put("sql", json!(self.source.query.sql));
        // A query that spills to disk may return its rows in another order.
        if self.source.query.sql.is_some() {
            put("memory_limit", json!(self.source.resources.memory_limit));
        }
        // Conversions in the order of the source keep the fingerprint of earlier versions.
        if let Some(seed) = self.columns.shuffle {
            put("shuffle", json!(seed));
        }
        put("key", json!(self.source.tree.key_column));
        let group = match self.source.tree.group {
            TreeGroup::Stem => "stem",
            TreeGroup::Key => "key",
            TreeGroup::File => "file",
        };
        put("group", json!(group));
        // Only a value other than the default is included, so that datasets of earlier versions can still be updated.
        if self.source.schema.rule != SchemaRule::Widen {
            put("schema", json!(self.source.schema.rule.name()));
        }
        // Without patterns, conversions of earlier versions keep their fingerprint.
        if self.source.files.selects() {
            put("include", json!(self.source.files.include));
            put("exclude", json!(self.source.files.exclude));
        }
        put("follow_links", json!(self.source.tree.follow_links));
        let delimiter = self.source.csv.delimiter.unwrap_or(b',');
        put("csv_delimiter", json!(delimiter));
        put("csv_header", json!(self.source.csv.header));
        put("infer_rows", json!(self.source.text.infer_rows));
        if !self.source.samples.zarr.variables.is_empty() {
            let zarr = &self.source.samples.zarr;
            let options = json!([zarr.variables, zarr.window, zarr.stride, zarr.raw_values]);
            put("zarr", options);
        }
        // The default is left out, so that conversions of earlier versions keep their fingerprint.
        if self.source.csv.nulls != [""] {
            put("csv_nulls", json!(self.source.csv.nulls));
        }
        let splits = self.columns.split.iter();
        let splits = splits.map(|split| (&split.name, split.share));
        put("split", json!(splits.collect::<Vec<_>>()));
        put("split_key", json!(self.columns.split_key));
        let compression = match self.shards.to {
            ShardFormat::Mds | ShardFormat::Parquet => {
                self.shards.compression.map(|name| name.to_string())
            }
            ShardFormat::Webdataset => self.shards.tar.compression.map(|name| name.to_string()),
        };
        put("compression", json!(compression));
        if self.shards.to == ShardFormat::Parquet {
            put("row_group_bytes", json!(self.shards.row_group_bytes));
        }
        if self.shards.to == ShardFormat::Webdataset {
            put("shard_pattern", json!(self.shards.tar.pattern.to_string()));
            put("names", json!(self.shards.tar.names.name()));
            let readers = self.shards.tar.index_for.iter().map(|reader| reader.name());
            put("index_for", json!(readers.collect::<Vec<_>>()));
        }
        let hashes = self.shards.hashes.iter().map(ToString::to_string);
        put("hashes", json!(hashes.collect::<Vec<_>>()));
        put("size_limit", json!(self.shards.size_limit));
        put("samples_per_shard", json!(self.shards.samples_per_shard));
        if self.shards.keep_row_groups {
            put("keep_row_groups", json!(true));
        }
        put("nulls", json!(self.columns.nulls.name()));
        put("null_as", json!(self.columns.null_as));
        Value::Object(config)
    }
}

/// Returns a location as text. Callers escape it before they show it.
pub(crate) fn shown(location: &Location) -> String {
    match location {
        Location::Local(path) => path.display().to_string(),
        Location::Remote(remote) => remote.to_string(),
    }
}
