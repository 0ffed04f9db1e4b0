//! The options of a conversion, nested by meaning.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value, json};
use shardmill_core::Error;
use shardmill_mds::{Compression, HashAlgo};
use shardmill_source::{SchemaRule, SourceOptions, TreeGroup};
use shardmill_storage::{LEASE_PATIENCE, Location};
use shardmill_webdataset::{Consumer, TarCompression};
use shardmill_writer::{ShardFormat, ShardPattern};

pub use crate::parse::{ColumnSpec, SplitSpec};
use crate::parse::{List, OrNone, compression};
#[cfg(feature = "clap")]
use crate::parse::{
    byte_size, byte_size_or_none, consumers, hashes, named, not_empty, null_as, number, path,
    samples, shard_pattern, splits,
};

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
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct TarOptions {
    /// The compression of whole shards. Most readers need uncompressed shards.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub compression: Option<TarCompression>,

    /// Names of the tar files of `--to webdataset`, with a placeholder for the number [default: shard-%06d.tar]
    #[cfg_attr(feature = "clap", arg(long = "shard-pattern", value_name = "PATTERN", value_parser = shard_pattern))]
    pub pattern: Option<ShardPattern>,

    /// Keys and fields allowed in `--to webdataset`: those that every known reader returns unchanged, or all that
    /// webdataset itself reads
    #[cfg_attr(feature = "clap", arg(long, value_name = "WHICH", default_value = "portable", value_parser = named(&TarNames::ALL, TarNames::name)))]
    pub names: TarNames,

    /// Also write the indexes of other readers, for `--to webdataset`: wids, dali, open_clip
    #[cfg_attr(feature = "clap", arg(long, value_name = "READER,...", value_parser = consumers))]
    pub index_for: Option<List<Consumer>>,
}

impl TarOptions {
    /// Returns the pattern of the shard names.
    #[must_use]
    pub fn pattern(&self) -> ShardPattern {
        self.pattern.clone().unwrap_or_default()
    }

    /// Returns the readers that get their own index.
    pub(crate) fn readers(&self) -> &[Consumer] {
        self.index_for.as_deref().unwrap_or_default()
    }
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
#[cfg_attr(
    feature = "clap",
    derive(clap::Args),
    command(next_help_heading = "Columns and rows")
)]
pub struct ColumnOptions {
    /// The columns; empty for all.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub specs: Vec<ColumnSpec>,

    /// How to handle nulls: stop with an error, store zero and a column `NAME__is_null`, drop the row, or, with
    /// `--to webdataset`, omit the field
    #[cfg_attr(feature = "clap", arg(long, value_name = "HOW", default_value = "error", value_parser = named(&Nulls::ALL, Nulls::name)))]
    pub nulls: Nulls,

    /// Value to store for the nulls of one column; repeatable
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME=VALUE", value_parser = null_as))]
    pub null_as: Vec<(String, String)>,

    /// Write the rows in a random order that depends only on this number and the source
    ///
    /// All rows are first written, uncompressed, to files in the directory for temporary files.
    #[cfg_attr(feature = "clap", arg(long, allow_hyphen_values = true, value_name = "SEED", value_parser = number))]
    pub shuffle: Option<u64>,

    /// Keep the length of this column of every sample beside the index, in `index.lengths.COLUMN`; repeatable
    ///
    /// The length of an array is its number of elements, and of text and other values their number of bytes. Batches of
    /// a number of tokens need the lengths. `shardmill index lengths` writes them for an existing dataset.
    #[cfg_attr(feature = "clap", arg(long, value_name = "COLUMN", value_parser = not_empty))]
    pub lengths: Vec<String>,

    /// Index the MP4 files of this column beside the index, in `index.videos.COLUMN`; repeatable
    ///
    /// With the index, `dataset.video` in Python fetches only the header and the groups of pictures that it needs.
    #[cfg_attr(feature = "clap", arg(long = "video", value_name = "COLUMN", value_parser = not_empty))]
    pub videos: Vec<String>,

    /// Divide the samples between subdirectories, by shares that add up to 1: `train=0.9,val=0.1`
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME=SHARE,...", value_parser = splits))]
    pub split: Option<List<SplitSpec>>,

    /// Rows with the same value in this column go to the same split
    #[cfg_attr(feature = "clap", arg(long, value_name = "COLUMN", requires = "split", value_parser = not_empty))]
    pub split_key: Option<String>,

    /// How a column of text becomes tokens. `None` keeps the text.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub tokenize: Option<TokenizeOptions>,
}

impl ColumnOptions {
    /// Returns the specification of a column.
    pub(crate) fn spec(&self, name: &str) -> Option<&ColumnSpec> {
        self.named().find(|column| column.name == name)
    }

    /// Returns the splits. Empty for a single dataset.
    #[must_use]
    pub fn splits(&self) -> &[SplitSpec] {
        self.split.as_deref().unwrap_or_default()
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
#[cfg_attr(
    feature = "clap",
    derive(clap::Args),
    command(next_help_heading = "Tokens"),
    group(requires = "tokenize")
)]
pub struct TokenizeOptions {
    /// Replace a column of text with its tokens, by this tokenizer file of Hugging Face (`tokenizer.json`)
    ///
    /// The tokens are those of the Python package `tokenizers`. Truncation and padding in the file are ignored. Tokens
    /// have two bytes if all ids of the vocabulary fit, and else four. Their lengths are kept beside the index, as with
    /// `--lengths`.
    #[cfg_attr(
        feature = "clap",
        arg(id = "tokenize", long = "tokenize", required = false, value_name = "FILE", value_parser = path)
    )]
    pub file: PathBuf,

    /// The column to tokenize, of text or UTF-8 bytes [default: the only column of text]
    #[cfg_attr(feature = "clap", arg(long, value_name = "COLUMN", value_parser = not_empty))]
    pub text: Option<String>,

    /// Name of the column of tokens [default: tokens]
    #[cfg_attr(feature = "clap", arg(long, value_name = "COLUMN", value_parser = not_empty))]
    pub tokens: Option<String>,

    /// Add the special tokens that the tokenizer adds for a model, such as `[CLS]` and `[SEP]`
    ///
    /// Without it, a text has only its own tokens, as for pretraining.
    #[cfg_attr(feature = "clap", arg(long))]
    pub special_tokens: bool,

    /// Put this token of the vocabulary before each text, such as `<s>`
    #[cfg_attr(feature = "clap", arg(long, value_name = "TOKEN", value_parser = not_empty))]
    pub prepend: Option<String>,

    /// Put this token of the vocabulary after each text, such as `<|endoftext|>`
    #[cfg_attr(feature = "clap", arg(long, value_name = "TOKEN", value_parser = not_empty))]
    pub append: Option<String>,

    /// Write the text as well; a text that `--column` names is always written
    #[cfg_attr(feature = "clap", arg(long))]
    pub keep_text: bool,
}

impl TokenizeOptions {
    /// Returns the name of the column of tokens.
    pub(crate) fn tokens(&self) -> &str {
        self.tokens.as_deref().unwrap_or("tokens")
    }
}

/// The form of the shards.
#[derive(Clone, Debug)]
#[cfg_attr(
    feature = "clap",
    derive(clap::Args),
    command(next_help_heading = "Shards")
)]
pub struct ShardOptions {
    /// The format.
    #[cfg_attr(feature = "clap", arg(skip = ShardFormat::Mds))]
    pub to: ShardFormat,

    /// The compression of shards, except tar shards. In Parquet files, it is the compression of pages.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub compression: Option<Compression>,

    /// Hashes to record, separated by commas, or none
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME,...", default_value = "sha256", value_parser = hashes))]
    pub hashes: List<HashAlgo>,

    /// Maximum raw bytes of a shard, or none
    #[cfg_attr(feature = "clap", arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = byte_size_or_none))]
    pub size_limit: OrNone<u64>,

    /// Maximum raw bytes of a row group of `--to parquet` [default: 64MiB]
    #[cfg_attr(feature = "clap", arg(long, value_name = "SIZE", value_parser = byte_size))]
    pub row_group_size: Option<u64>,

    /// Maximum number of samples in a shard
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", value_parser = samples))]
    pub samples_per_shard: Option<u64>,

    /// Make each row group of Parquet files or a Delta table a shard, as when the table is read in place, so that the samples
    /// have the same order
    #[cfg_attr(feature = "clap", arg(long))]
    pub keep_row_groups: bool,

    /// The options that only WebDataset has.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub tar: TarOptions,
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
            row_group_size: None,
            samples_per_shard: None,
            keep_row_groups: false,
        }
    }
}

impl ShardOptions {
    /// Returns the maximum size of the rows of a row group in bytes; only in Parquet files.
    #[must_use]
    pub fn row_group_bytes(&self) -> u64 {
        self.row_group_size.unwrap_or(64 << 20)
    }

    /// Sets the format, and the compression by its name; `none` stands for no compression.
    ///
    /// # Errors
    ///
    /// `config-compression` if the format does not have it.
    pub fn set_format(&mut self, to: ShardFormat, name: Option<&str>) -> Result<(), Error> {
        self.to = to;
        self.compression = None;
        let named = name.filter(|name| *name != "none");
        match to {
            ShardFormat::Mds | ShardFormat::Parquet if name.is_none() => {
                self.compression = Self::default().compression;
            }
            ShardFormat::Mds | ShardFormat::Parquet => {
                let known = "zstd:1 to zstd:22, gz:0 to gz:9, br:0 to br:11, bz2:1 to bz2:9, snappy or none";
                self.compression = compression(named, "", known)?;
            }
            ShardFormat::Webdataset => {
                let known = "zstd:1 to zstd:22, gz:0 to gz:9, or none";
                self.tar.compression = compression(named, " of webdataset", known)?;
            }
        }
        Ok(())
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
        let splits = self.columns.splits().iter();
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
            put("row_group_bytes", json!(self.shards.row_group_bytes()));
        }
        if self.shards.to == ShardFormat::Webdataset {
            put(
                "shard_pattern",
                json!(self.shards.tar.pattern().to_string()),
            );
            put("names", json!(self.shards.tar.names.name()));
            let readers = self.shards.tar.readers().iter().map(|reader| reader.name());
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
