use clap::{Args, ValueEnum};

use super::{StorageArgs, TakeoverArgs};

/// Convert tables or a tree of files to compressed, hashed, indexed shards
///
/// The same input and options give the same bytes, whatever the number of jobs. A conversion that was
/// stopped, by whatever, continues when the same command is run again; one that is finished is left as it
/// is. A directory with `_delta_log` is read as a Delta table, one with Parquet, Arrow, CSV or JSON lines files
/// as a table of them, tar files as WebDataset, anything else as a tree in which files that share a stem are one
/// sample.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct ConvertArgs {
    /// Files, directories or prefixes in stores to read, in this order
    #[arg(required = true, value_name = "SOURCE")]
    pub sources: Vec<String>,

    /// Directory or prefix in a store, such as s3://bucket/set, that receives the shards and `index.json`
    #[arg(value_name = "DEST")]
    pub dest: String,

    /// What the source is; `auto` looks
    #[arg(long, value_enum, value_name = "KIND", default_value_t = FromName::Auto)]
    pub from: FromName,

    /// Format of the shards
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = ToName::Mds)]
    pub to: ToName,

    /// A column to write: its name, `:` and an encoding, `=` and an SQL expression; repeatable
    ///
    /// With it, only the named columns are written; without it, all are, in the encodings that follow from
    /// their types. A name with `:` or `=` in it is written in double quotes. With `--to webdataset` the name is
    /// the extension of the member, and encodings are bytes, str, int, json, npy and ten; without it a column gets
    /// the extension of its encoding (`caption` becomes `caption.txt`).
    #[arg(
        long = "column",
        value_name = "NAME[:ENCODING][=EXPR]",
        help_heading = "Columns and rows"
    )]
    pub columns: Vec<String>,

    /// SQL expressions to read, as between SELECT and FROM
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "EXPRS",
        conflicts_with = "sql",
        help_heading = "Columns and rows"
    )]
    pub select: Option<String>,

    /// Keep the rows for which this SQL expression is true
    #[arg(
        long = "where",
        allow_hyphen_values = true,
        value_name = "EXPR",
        conflicts_with = "sql",
        help_heading = "Columns and rows"
    )]
    pub filter: Option<String>,

    /// A whole SQL query; the table is called `source`
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "QUERY",
        help_heading = "Columns and rows"
    )]
    pub sql: Option<String>,

    /// In a Delta table: the version to read [default: the latest]
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "N",
        conflicts_with = "timestamp",
        help_heading = "Columns and rows"
    )]
    pub version: Option<String>,

    /// In a Delta table: read the latest version of this time, such as 2026-01-31T12:00:00Z
    ///
    /// A time without a zone is UTC, a date is its first instant. What counts is the time of the commit, where
    /// the table keeps such times, else that of the commit's file.
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "TIME",
        help_heading = "Columns and rows"
    )]
    pub timestamp: Option<String>,

    /// Column that holds the sample's key (trees and tar files bring it); without one, the samples of
    /// `--to webdataset` are numbered
    #[arg(
        long,
        value_name = "COLUMN",
        default_value = "__key__",
        help_heading = "Columns and rows"
    )]
    pub key: String,

    /// When Parquet or Arrow files have different columns: widen numbers and times to a type that holds the values of
    /// all files (`widen`), also read columns that a file lacks as null (`union`), or refuse every difference
    /// (`strict`)
    #[arg(long, value_enum, value_name = "RULE", default_value_t = SchemaName::Widen, help_heading = "Columns and rows")]
    pub schema: SchemaName,

    /// In a tree of files: one sample for the files whose names are the same up to their last dot (`stem`) or up to
    /// their first one, as in tar shards (`key`), or one for each (`file`)
    #[arg(long, value_enum, value_name = "HOW", default_value_t = GroupName::Stem, help_heading = "Columns and rows")]
    pub group: GroupName,

    /// In a tree of files: follow symbolic links
    #[arg(long, help_heading = "Columns and rows")]
    pub follow_links: bool,

    /// In CSV: the byte between two values; `\t` for a tab [default: a comma, and a tab in `.tsv` files]
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "CHAR",
        help_heading = "Columns and rows"
    )]
    pub csv_delimiter: Option<String>,

    /// In CSV: a text that is null where it is not quoted, such as `NA`; repeatable [default: an empty text]
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "TEXT",
        help_heading = "Columns and rows"
    )]
    pub csv_null: Vec<String>,

    /// In CSV: the first line is data; columns are called column_1, column_2, …
    #[arg(long, help_heading = "Columns and rows")]
    pub csv_no_header: bool,

    /// In CSV and JSON lines: rows of each file above 64 MiB that decide on the types of its columns
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "N",
        default_value = "100000",
        help_heading = "Columns and rows"
    )]
    pub infer_rows: String,

    /// What happens to a null: stop, store zero and a column `NAME__is_null`, leave the row out, or, in
    /// `--to webdataset`, leave the field out
    #[arg(long, value_enum, value_name = "HOW", default_value_t = NullsName::Error, help_heading = "Columns and rows")]
    pub nulls: NullsName,

    /// Value to store for the nulls of one column; repeatable
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Columns and rows")]
    pub null_as: Vec<String>,

    /// Divide the samples between sub-directories, by shares that add up to 1: `train=0.9,val=0.1`
    #[arg(long, value_name = "NAME=SHARE,...", help_heading = "Columns and rows")]
    pub split: Option<String>,

    /// Rows with the same value in this column go to the same split
    #[arg(
        long,
        value_name = "COLUMN",
        requires = "split",
        help_heading = "Columns and rows"
    )]
    pub split_key: Option<String>,

    /// Compression of the shards: zstd, gz, br, bz2 with an optional `:LEVEL`, snappy, or none [default: zstd:3,
    /// none for webdataset, which knows zstd and gz]
    #[arg(long, value_name = "NAME[:LEVEL]", help_heading = "Shards")]
    pub compression: Option<String>,

    /// Hashes to record, separated by commas, or none
    #[arg(
        long,
        value_name = "NAME,...",
        default_value = "sha256",
        help_heading = "Shards"
    )]
    pub hashes: String,

    /// Most raw bytes of a shard, or none
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "SIZE",
        default_value = "64MiB",
        help_heading = "Shards"
    )]
    pub size_limit: String,

    /// Most samples in a shard
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "N",
        help_heading = "Shards"
    )]
    pub samples_per_shard: Option<String>,

    /// Names of the tar files of `--to webdataset`, with a place for the number [default: shard-%06d.tar]
    #[arg(long, value_name = "PATTERN", help_heading = "Shards")]
    pub shard_pattern: Option<String>,

    /// Keys and fields of `--to webdataset`: those that every known reader gives back, or all that webdataset
    /// itself reads
    #[arg(long, value_enum, value_name = "WHICH", default_value_t = NamesName::Portable, help_heading = "Shards")]
    pub names: NamesName,

    /// Write the indexes of other readers too, for `--to webdataset`: wids, dali, energon, open_clip
    #[arg(long, value_name = "READER,...", help_heading = "Shards")]
    pub index_for: Option<String>,

    /// Text between two values, for `--to xsv`; `\t` and the like are understood
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "TEXT",
        help_heading = "Shards"
    )]
    pub separator: Option<String>,

    /// Text that ends a line, for `--to jsonl|csv|tsv|xsv`; `\n` and the like are understood [default: \n]
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "TEXT",
        help_heading = "Shards"
    )]
    pub newline: Option<String>,

    /// Threads [default: one for each core]
    #[arg(
        long,
        short,
        allow_hyphen_values = true,
        value_name = "N",
        help_heading = "Running"
    )]
    pub jobs: Option<String>,

    /// Memory for samples that wait and for queries [default: what the shards of all jobs need]
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "SIZE",
        help_heading = "Running"
    )]
    pub memory_limit: Option<String>,

    /// Print what would be done, write nothing
    #[arg(long, help_heading = "Running")]
    pub dry_run: bool,

    /// Replace the dataset that is at the destination
    #[arg(long, help_heading = "Running")]
    pub overwrite: bool,

    /// Bring the dataset up to date with its Delta table: add what is new, list what is gone
    ///
    /// The first run converts the table, and notes which of its files became which samples. Later runs read the files
    /// that were added since, append shards, and list the samples whose rows were deleted or changed in
    /// `index.tombstones`; their changed rows are added as new samples.
    #[arg(long, help_heading = "Running")]
    pub incremental: bool,

    /// Convert samples of a dataset that its table no longer has like all others
    ///
    /// A dataset that follows a Delta table lists them in `index.tombstones`. By default they are left out.
    #[arg(long, help_heading = "Running")]
    pub with_deleted: bool,

    /// Make one part of several, counted from 0; `shardmill commit` publishes all of them
    ///
    /// Each part may be made on a machine of its own, at any time, as often as it takes. What is read is divided among
    /// them where files and row groups end.
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "I/N",
        help_heading = "Running"
    )]
    pub part: Option<String>,

    /// Directory for files on their way into or out of a store [default: that of the system]
    #[arg(long, value_name = "DIR", help_heading = "Stores")]
    pub temp_dir: Option<String>,

    #[command(flatten)]
    pub takeover: TakeoverArgs,

    #[command(flatten)]
    pub storage: StorageArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FromName {
    Auto,
    Delta,
    Parquet,
    Arrow,
    Csv,
    Tsv,
    Jsonl,
    Tree,
    Mds,
    Webdataset,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ToName {
    Mds,
    Webdataset,
    #[value(alias = "json")]
    Jsonl,
    Csv,
    Tsv,
    Xsv,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SchemaName {
    Widen,
    Union,
    Strict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GroupName {
    Stem,
    Key,
    File,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NullsName {
    Error,
    Mask,
    Drop,
    Omit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NamesName {
    Portable,
    Any,
}

const AFTER_HELP: &str = "\
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
    shardmill convert events/ shards/ --version 12

  The same table day after day, each time only what is new:
    shardmill convert events/ shards/ --incremental

  A tree of a/001.jpg + a/001.json, with the columns jpg, json and __key__:
    shardmill convert photos/ shards/ --column __key__ --column jpg:jpeg --column json:json

  The same tree as tar files for WebDataset, with indexes for DALI and wids:
    shardmill convert photos/ tars/ --to webdataset --index-for dali,wids

  Into a bucket; after a failure the same command goes on where it stopped:
    shardmill convert data/ s3://bucket/sets/train

  On four machines, of which this is the first; then publish what they have made:
    shardmill convert data/ s3://bucket/sets/train --part 0/4
    shardmill commit s3://bucket/sets/train

  A table as WebDataset, and tar files as MDS:
    shardmill convert data/ tars/ --to webdataset --key id --column jpg=image --column cls=label
    shardmill convert tars/ shards/";
