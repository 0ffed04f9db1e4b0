//! The options of `shardmill convert`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::TypedValueParser;
use shardmill_convert::{ColumnSpec, Nulls, Part, SplitSpec, TarNames};
use shardmill_mds::HashAlgo;
use shardmill_source::{SchemaRule, SourceKind};
use shardmill_storage::Location;
use shardmill_webdataset::Consumer;
use shardmill_writer::{ShardFormat, ShardPattern};

use super::values::{self, List, OrNone};
use super::{FileArgs, JobsArgs, StorageArgs, TakeoverArgs};

/// Convert tables or a tree of files to compressed, hashed, indexed shards
///
/// The same input and options give the same bytes, whatever the number of jobs. An interrupted conversion resumes when
/// the same command is run again. A finished conversion is left unchanged. A directory with `_delta_log` is read as a
/// Delta table, one with Parquet, Arrow, CSV, JSON lines or TFRecord files as a table, tar files as WebDataset. Anything
/// else is read as a tree in which files that share a stem are one sample.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP, after_long_help = AFTER_LONG_HELP)]
pub struct ConvertArgs {
    /// Files, directories or prefixes in stores to read, in this order; `-` for an Arrow stream on standard input
    #[arg(required = true, value_name = "SOURCE", value_parser = values::locations)]
    pub sources: Vec<List<Location>>,

    /// Directory or prefix in a store, such as s3://bucket/set, that receives the shards and `index.json`
    #[arg(value_name = "DEST", value_parser = values::dest)]
    pub dest: Location,

    /// Kind of the source; `auto` detects it
    #[arg(long, value_name = "KIND", default_value = "auto", value_parser = kinds())]
    pub from: OrNone<SourceKind>,

    /// Format of the shards
    #[arg(long, value_name = "FORMAT", default_value = "mds", value_parser = formats())]
    pub to: ShardFormat,

    /// A column to write: its name, `:` and an encoding, `=` and an SQL expression; repeatable
    ///
    /// With it, only the named columns are written. `*` stands for all that no other one names, in the encodings of their
    /// types: `--column '*' --column image:jpeg` changes one column. Without it, all columns are written so. A name that
    /// contains `:` or `=`, and the name `*`, are written in double quotes. With `--to webdataset` the name is the
    /// extension of the member, and encodings are bytes, str, int, json, npy and ten. A column that is not named gets the
    /// extension of its encoding (`caption` becomes `caption.txt`).
    #[arg(long = "column", value_name = "NAME[:ENCODING][=EXPR]", value_parser = values::column, help_heading = "Columns and rows")]
    pub columns: Vec<ColumnSpec>,

    #[command(flatten)]
    pub files: FileArgs,

    #[command(flatten)]
    pub query: QueryArgs,

    #[command(flatten)]
    pub csv: CsvArgs,

    #[command(flatten)]
    pub rows: RowArgs,

    #[command(flatten)]
    pub shards: ShardArgs,

    #[command(flatten)]
    pub run: RunArgs,

    #[command(flatten)]
    pub stores: DestArgs,
}

// How the sources are read. No doc comment: it would become the text of the verb. So for the groups that follow.
#[derive(Args, Debug)]
#[command(next_help_heading = "Columns and rows")]
pub struct QueryArgs {
    /// SQL expressions to read, as between SELECT and FROM
    #[arg(long, value_name = "EXPRS", conflicts_with = "sql", value_parser = values::not_empty)]
    pub select: Option<String>,

    /// Keep the rows for which this SQL expression is true
    #[arg(long = "where", value_name = "EXPR", conflicts_with = "sql", value_parser = values::not_empty)]
    pub filter: Option<String>,

    /// A whole SQL query; the table is called `source`
    #[arg(long, value_name = "QUERY", value_parser = values::not_empty)]
    pub sql: Option<String>,

    /// In a Delta table: the version to read [default: the latest]
    #[arg(long, value_name = "N", conflicts_with = "delta_timestamp", value_parser = values::table_version)]
    pub delta_version: Option<u64>,

    /// In a Delta table: read the latest version at this time, such as 2026-01-31T12:00:00Z
    ///
    /// A time without a zone is UTC. A date means its first instant. The time of a version is that of its commit, if
    /// the table records it, and otherwise the modification time of the commit's file.
    #[arg(long, alias = "timestamp", value_name = "TIME", value_parser = values::table_time)]
    pub delta_timestamp: Option<i64>,

    /// Column with the keys of the samples; trees and tar files as sources have one. Without it, the samples of
    /// `--to webdataset` are numbered
    #[arg(long, alias = "key", value_name = "COLUMN", default_value = "__key__", value_parser = values::not_empty)]
    pub key_column: String,

    /// If Parquet or Arrow files have different columns: widen numbers and times to a type that holds the values of
    /// all files (`widen`), also read columns that a file lacks as null (`union`), or reject every difference
    /// (`strict`)
    #[arg(long, value_name = "RULE", default_value = "widen", value_parser = values::named(&[SchemaRule::Widen, SchemaRule::Union, SchemaRule::Strict], SchemaRule::name))]
    pub schema: SchemaRule,

    #[command(flatten)]
    pub zarr: ZarrArgs,
}

// How CSV and JSON lines are read.
#[derive(Args, Debug)]
#[command(next_help_heading = "Columns and rows")]
pub struct CsvArgs {
    /// In CSV: the byte between two values; `\t` for a tab [default: a comma, and a tab in `.tsv` files]
    #[arg(long, value_name = "CHAR", value_parser = values::csv_delimiter)]
    pub csv_delimiter: Option<u8>,

    /// In CSV: an unquoted text that means null, such as `NA`; repeatable [default: an empty text]
    #[arg(long, value_name = "TEXT")]
    pub csv_null: Vec<String>,

    /// In CSV: the first line is data; columns are called column_1, column_2, …
    #[arg(long)]
    pub csv_no_header: bool,

    /// In CSV, JSON lines and TFRecord: rows of each file above 64 MiB from which column types are inferred
    #[arg(long, value_name = "N", default_value = "100000", value_parser = values::infer_rows)]
    pub infer_rows: usize,
}

// Which windows of a Zarr store are read.
#[derive(Args, Debug)]
#[command(next_help_heading = "Columns and rows")]
pub struct ZarrArgs {
    /// With `--from zarr`: an array of the store, whose windows become a column; repeatable
    #[arg(long = "variable", value_name = "NAME", value_parser = values::not_empty)]
    pub variables: Vec<String>,

    /// With `--from zarr`: the size of a window along dimensions, such as time=24,lat=64,lon=64
    ///
    /// Each window is a sample. The last dimension moves first. A window has all of the other dimensions. Windows that
    /// do not fit at the end are left out.
    #[arg(long, value_name = "DIMENSION=SIZE,...", value_parser = values::windows)]
    pub window: Option<List<(String, u64)>>,

    /// With `--from zarr`: how far windows move along dimensions [default: their size]
    #[arg(long, value_name = "DIMENSION=STEP,...", requires = "window", value_parser = values::windows)]
    pub stride: Option<List<(String, u64)>>,

    /// With `--from zarr`: keep the stored numbers [default: decode them by the CF conventions]
    ///
    /// By default, values are those of xarray: missing ones are NaN, packed ones are unpacked, and times are timestamps.
    #[arg(long)]
    pub raw_values: bool,
}

// Nulls, splits and tokens.
#[derive(Args, Debug)]
#[command(next_help_heading = "Columns and rows")]
pub struct RowArgs {
    /// How to handle nulls: stop with an error, store zero and a column `NAME__is_null`, drop the row, or, with
    /// `--to webdataset`, omit the field
    #[arg(long, value_name = "HOW", default_value = "error", value_parser = values::named(&[Nulls::Error, Nulls::Mask, Nulls::Drop, Nulls::Omit], Nulls::name))]
    pub nulls: Nulls,

    /// Value to store for the nulls of one column; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = values::null_as)]
    pub null_as: Vec<(String, String)>,

    /// Write the rows in a random order that depends only on this number and the source
    ///
    /// All rows are first written, uncompressed, to files in the directory for temporary files.
    #[arg(long, allow_hyphen_values = true, value_name = "SEED", value_parser = values::number, help_heading = "Columns and rows")]
    pub shuffle: Option<u64>,

    /// Keep the length of this column of every sample beside the index, in `index.lengths.COLUMN`; repeatable
    ///
    /// The length of an array is its number of elements, and of text and other values their number of bytes. Batches of
    /// a number of tokens need the lengths. `shardmill index lengths` writes them for an existing dataset.
    #[arg(long, value_name = "COLUMN", value_parser = values::not_empty)]
    pub lengths: Vec<String>,

    /// Index the MP4 files of this column beside the index, in `index.videos.COLUMN`; repeatable
    ///
    /// With the index, `dataset.video` in Python fetches only the header and the groups of pictures that it needs.
    #[arg(long, value_name = "COLUMN", value_parser = values::not_empty)]
    pub video: Vec<String>,

    /// Divide the samples between subdirectories, by shares that add up to 1: `train=0.9,val=0.1`
    #[arg(long, value_name = "NAME=SHARE,...", value_parser = values::splits)]
    pub split: Option<List<SplitSpec>>,

    /// Rows with the same value in this column go to the same split
    #[arg(long, value_name = "COLUMN", requires = "split", value_parser = values::not_empty)]
    pub split_key: Option<String>,

    #[command(flatten)]
    pub tokens: TokenArgs,
}

// How text becomes tokens.
#[derive(Args, Debug)]
#[command(next_help_heading = "Tokens")]
pub struct TokenArgs {
    /// Replace a column of text with its tokens, by this tokenizer file of Hugging Face (`tokenizer.json`)
    ///
    /// The tokens are those of the Python package `tokenizers`. Truncation and padding in the file are ignored. Tokens
    /// have two bytes if all ids of the vocabulary fit, and else four. Their lengths are kept beside the index, as with
    /// `--lengths`.
    #[arg(long, value_name = "FILE", value_parser = values::local_path)]
    pub tokenize: Option<PathBuf>,

    /// The column to tokenize, of text or UTF-8 bytes [default: the only column of text]
    #[arg(long, value_name = "COLUMN", requires = "tokenize", value_parser = values::not_empty)]
    pub text: Option<String>,

    /// Name of the column of tokens [default: tokens]
    #[arg(long, value_name = "COLUMN", requires = "tokenize", value_parser = values::not_empty)]
    pub tokens: Option<String>,

    /// Add the special tokens that the tokenizer adds for a model, such as `[CLS]` and `[SEP]`
    ///
    /// Without it, a text has only its own tokens, as for pretraining.
    #[arg(long, requires = "tokenize")]
    pub special_tokens: bool,

    /// Put this token of the vocabulary before each text, such as `<s>`
    #[arg(long, value_name = "TOKEN", requires = "tokenize", value_parser = values::not_empty)]
    pub prepend: Option<String>,

    /// Put this token of the vocabulary after each text, such as `<|endoftext|>`
    #[arg(long, value_name = "TOKEN", requires = "tokenize", value_parser = values::not_empty)]
    pub append: Option<String>,

    /// Write the text as well; a text that `--column` names is always written
    #[arg(long, requires = "tokenize")]
    pub keep_text: bool,
}

// The form of the shards.
#[derive(Args, Debug)]
#[command(next_help_heading = "Shards")]
pub struct ShardArgs {
    /// Compression of the shards: zstd, gz, br, bz2 with an optional `:LEVEL`, snappy, or none [default: zstd:3,
    /// none for webdataset, which supports zstd and gz]
    #[arg(long, value_name = "NAME[:LEVEL]")]
    pub compression: Option<String>,

    /// Hashes to record, separated by commas, or none
    #[arg(long, value_name = "NAME,...", default_value = "sha256", value_parser = values::hashes)]
    pub hashes: List<HashAlgo>,

    /// Maximum raw bytes of a shard, or none
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = values::byte_size_or_none)]
    pub size_limit: OrNone<u64>,

    /// Maximum raw bytes of a row group of `--to parquet` [default: 64MiB]
    #[arg(long, value_name = "SIZE", value_parser = values::byte_size)]
    pub row_group_size: Option<u64>,

    /// Maximum number of samples in a shard
    #[arg(long, value_name = "N", value_parser = values::samples)]
    pub samples_per_shard: Option<u64>,

    /// Make each row group of Parquet files or a Delta table a shard, as when the table is read in place, so that the samples
    /// have the same order
    #[arg(long)]
    pub keep_row_groups: bool,

    /// Names of the tar files of `--to webdataset`, with a placeholder for the number [default: shard-%06d.tar]
    #[arg(long, value_name = "PATTERN", value_parser = values::shard_pattern)]
    pub shard_pattern: Option<ShardPattern>,

    /// Keys and fields allowed in `--to webdataset`: those that every known reader returns unchanged, or all that
    /// webdataset itself reads
    #[arg(long, value_name = "WHICH", default_value = "portable", value_parser = values::named(&[TarNames::Portable, TarNames::Any], TarNames::name))]
    pub names: TarNames,

    /// Also write the indexes of other readers, for `--to webdataset`: wids, dali, open_clip
    #[arg(long, value_name = "READER,...", value_parser = values::consumers)]
    pub index_for: Option<List<Consumer>>,
}

// What the run does.
#[derive(Args, Debug)]
#[command(next_help_heading = "Running")]
pub struct RunArgs {
    #[command(flatten)]
    pub jobs: JobsArgs,

    /// Memory for waiting samples and for queries [default: what the shards of all jobs need]
    #[arg(long, value_name = "SIZE", env = "SHARDMILL_MEMORY_LIMIT", hide_env_values = true, value_parser = values::memory_limit)]
    pub memory_limit: Option<u64>,

    /// Read options from this TOML file, under their names on the command line; typed options win
    ///
    /// `sources` is a list, `dest` a text. The table `[columns]` maps the names of columns to encodings, or to
    /// `{ encoding = "...", expr = "..." }`. Options without a value are `true` or `false`.
    #[arg(long, value_name = "FILE", value_parser = values::local_path)]
    pub config: Option<PathBuf>,

    /// Print all options as such a file, and convert nothing
    #[arg(long)]
    pub print_config: bool,

    /// Print the plan and write nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Replace an existing dataset at the destination
    ///
    /// The old dataset stays until the new one is published. The new shards have the number of the replacement in their
    /// names: `shard.00001-00000.mds`.
    #[arg(long)]
    pub overwrite: bool,

    /// Bring the dataset up to date with its Delta table: add new rows, list deleted ones
    ///
    /// The first run converts the table, and records which samples came from which of its files. Later runs read the
    /// files that were added since, append shards, and list the samples whose rows were deleted or changed in
    /// `index.tombstones`. Changed rows are added as new samples.
    #[arg(long)]
    pub incremental: bool,

    /// Also convert samples of a dataset that were deleted from its table
    ///
    /// A dataset that follows a Delta table lists them in `index.tombstones`. By default they are left out.
    #[arg(long)]
    pub with_deleted: bool,

    /// Convert only the samples of this view of a dataset, a file of `select`
    #[arg(long, value_name = "FILE", value_parser = values::location, help_heading = "Running")]
    pub view: Option<Location>,

    /// Write one of several parts, counted from 0; `shardmill commit` publishes all of them
    ///
    /// Parts may be written on different machines, at any time, and again after a failure. The source is divided among
    /// them at the ends of files and row groups.
    #[arg(long, value_name = "I/N", value_parser = values::part)]
    pub part: Option<Part>,
}

// Access to stores.
#[derive(Args, Debug)]
#[command(next_help_heading = "Stores")]
pub struct DestArgs {
    /// Directory for temporary files of uploads and downloads [default: the system's]
    #[arg(long, value_name = "DIR", env = "SHARDMILL_TEMP_DIR", hide_env_values = true, value_parser = values::local_path)]
    pub temp_dir: Option<PathBuf>,

    #[command(flatten)]
    pub takeover: TakeoverArgs,

    #[command(flatten)]
    pub storage: StorageArgs,
}

pub(super) fn kinds() -> impl TypedValueParser<Value = Option<SourceKind>> {
    let kinds = SourceKind::ALL.map(|kind| (kind.name(), Some(kind)));
    values::choice(std::iter::once(("auto", None)).chain(kinds))
}

fn formats() -> impl TypedValueParser<Value = ShardFormat> {
    values::choice([
        ("mds", ShardFormat::Mds),
        ("webdataset", ShardFormat::Webdataset),
        ("parquet", ShardFormat::Parquet),
    ])
}

const AFTER_HELP: &str = "\
EXAMPLES:
  shardmill convert data/ shards/ --dry-run
  shardmill convert data/ s3://bucket/set --column image:jpeg --column label:int32
  shardmill convert photos/ tars/ --to webdataset";

const AFTER_LONG_HELP: &str = "\
EXAMPLES:
  Convert a Parquet dataset with the defaults (MDS, zstd:3, sha256, 64 MiB shards, all cores):
    shardmill convert data/ shards/

  See first what would be written:
    shardmill convert data/ shards/ --dry-run

  Choose columns and encodings, and compute one:
    shardmill convert data/ shards/ --column image:jpeg --column 'label:int32=CAST(class AS INT)'

  Keep some rows, and divide them:
    shardmill convert data/ shards/ --where 'width >= 256' --split train=0.9,val=0.1

  A Delta table as it was:
    shardmill convert events/ shards/ --delta-version 12

  The same table day after day, each time only the new rows:
    shardmill convert events/ shards/ --incremental

  A tree of a/001.jpg + a/001.json, with the columns jpg, json and __key__:
    shardmill convert photos/ shards/ --column __key__ --column jpg:jpeg --column json:json

  Only some of its files:
    shardmill convert photos/ shards/ --include '*.jpg' --include '*.json' --exclude 'drafts/**'

  The same tree as tar files for WebDataset, with indexes for DALI and wids:
    shardmill convert photos/ tars/ --to webdataset --index-for dali,wids

  With options from a file, and how to begin one:
    shardmill convert --config convert.toml
    shardmill convert data/ shards/ --compression none --print-config > convert.toml

  Tokens for a language model, with a token that ends each document:
    shardmill convert text/ shards/ --tokenize tokenizer.json --append '<|endoftext|>'

  Into a bucket; after a failure the same command resumes where it stopped:
    shardmill convert data/ s3://bucket/sets/train

  On four machines, of which this is the first; then publish their parts:
    shardmill convert data/ s3://bucket/sets/train --part 0/4
    shardmill commit s3://bucket/sets/train

  A table as WebDataset, and tar files as MDS:
    shardmill convert data/ tars/ --to webdataset --key-column id --column jpg=image
    shardmill convert tars/ shards/";
