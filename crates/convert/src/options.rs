use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value, json};
use shardmill_core::{Format, Limits};
use shardmill_mds::{Compression, HashAlgo};
use shardmill_source::{SchemaRule, SourceKind, TreeGroup};
use shardmill_storage::{LEASE_PATIENCE, Location, RemoteOptions};
use shardmill_webdataset::{Consumer, TarCompression};
use shardmill_writer::{ShardFormat, ShardPattern};

/// What to do with nulls. If an encoding can store nulls, `Error` and `Mask` store them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nulls {
    /// Report an error that names the column and the row.
    #[default]
    Error,
    /// Store the zero of the type, and 1 in a `uint8` column `NAME__is_null`.
    Mask,
    /// Drop the row, and count it.
    Drop,
    /// Leave the field out of the sample; only in tar files.
    Omit,
}

/// The names that members of a tar file may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TarNames {
    /// Names that every known reader returns unchanged.
    #[default]
    Portable,
    /// Names that webdataset itself returns unchanged: of any length, with spaces, with characters beyond ASCII.
    Any,
}

impl TarNames {
    /// Returns the name used on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Any => "any",
        }
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

impl Nulls {
    /// Returns the name used on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Mask => "mask",
            Self::Drop => "drop",
            Self::Omit => "omit",
        }
    }
}

/// One column of the dataset to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnSpec {
    /// Its name.
    pub name: String,
    /// The name of its encoding in the format. `None` means the default of its type.
    pub encoding: Option<String>,
    /// The expression that computes it. `None` means the source column with the same name.
    pub expr: Option<String>,
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

/// The default number of rows of a large text file that determine the column types.
pub(crate) const DEFAULT_INFER_ROWS: usize = 100_000;

/// The options of a conversion.
///
/// These fields do not change the output: `jobs`, `memory_limit` without `sql`, `overwrite`, `limits`, and the options
/// for accessing stores.
#[derive(Clone, Debug)]
pub struct ConvertOptions {
    /// Files, directories or patterns.
    pub sources: Vec<Location>,
    /// The directory to write, or the prefix in a store.
    pub dest: Location,
    /// The options for accessing stores.
    pub remote: RemoteOptions,
    /// The directory for temporary files that are uploaded to a store. `None` means the system's temporary directory.
    pub temp_dir: Option<PathBuf>,
    /// The time without a heartbeat after which a conversion into a store takes over the lease of another one.
    pub lease_patience: Duration,
    /// The kind of the sources. `None` means detect it.
    pub from: Option<SourceKind>,
    /// The format to write.
    pub to: ShardFormat,
    /// The columns to write; empty for all.
    pub columns: Vec<ColumnSpec>,
    /// A select list.
    pub select: Option<String>,
    /// A condition on rows.
    pub filter: Option<String>,
    /// A query over the table `source`.
    pub sql: Option<String>,
    /// The version of a Delta table. `None` means the version at `timestamp_ms`, or else the latest.
    pub version: Option<u64>,
    /// A time in milliseconds since 1970. The latest version of a Delta table at this time is read.
    pub timestamp_ms: Option<i64>,
    /// The name of the key column. Trees and tar files as sources create it; tar files as output take their keys from
    /// it.
    pub key: String,
    /// How the columns of several Parquet or Arrow files are combined into one schema.
    pub schema: SchemaRule,
    /// How files of a tree are grouped into samples.
    pub group: TreeGroup,
    /// Whether symbolic links in a tree are followed.
    pub follow_links: bool,
    /// The delimiter of CSV values, one byte.
    pub csv_delimiter: Option<u8>,
    /// Whether the first line of a CSV file names the columns.
    pub csv_header: bool,
    /// Unquoted CSV values that mean null.
    pub csv_nulls: Vec<String>,
    /// The number of rows of a large CSV or JSON Lines file that determine the column types.
    pub infer_rows: usize,
    /// The splits. Empty for a single dataset.
    pub split: Vec<SplitSpec>,
    /// The column whose value determines the split. `None` means the number of the row.
    pub split_key: Option<String>,
    /// The compression of shards, except tar shards.
    pub compression: Option<Compression>,
    /// The options that only WebDataset has.
    pub tar: TarOptions,
    /// The hashes in the index.
    pub hashes: Vec<HashAlgo>,
    /// The maximum size of an uncompressed shard in bytes.
    pub size_limit: Option<u64>,
    /// The maximum number of samples in a shard.
    pub samples_per_shard: Option<u64>,
    /// What to do with nulls.
    pub nulls: Nulls,
    /// Values that replace the nulls of single columns, as text.
    pub null_as: Vec<(String, String)>,
    /// The number of threads; at least 1.
    pub jobs: usize,
    /// The approximate memory limit in bytes. `None` means enough for `jobs` shards.
    pub memory_limit: Option<u64>,
    /// Whether an existing dataset is replaced.
    pub overwrite: bool,
    /// Whether the dataset is made for incremental updates from its table, and updated incrementally if it exists.
    pub incremental: bool,
    /// The part to write, if several runs share the conversion. [`commit`](crate::commit) publishes all parts.
    pub part: Option<Part>,
    /// The separator of values in XSV.
    pub separator: Option<String>,
    /// The end of a line in JSON and the XSV family.
    pub newline: String,
    /// The limits for reading input files.
    pub limits: Limits,
    /// Whether deleted samples of a source dataset are converted too.
    pub with_deleted: bool,
}

impl ConvertOptions {
    /// Creates options with the defaults of the command line: MDS, `zstd:3`, `sha256`, 64 MiB, one thread.
    #[must_use]
    pub fn new(sources: Vec<Location>, dest: Location) -> Self {
        Self {
            sources,
            dest,
            remote: RemoteOptions::default(),
            temp_dir: None,
            lease_patience: LEASE_PATIENCE,
            from: None,
            to: Format::Mds.into(),
            columns: Vec::new(),
            select: None,
            filter: None,
            sql: None,
            version: None,
            timestamp_ms: None,
            key: "__key__".to_owned(),
            schema: SchemaRule::Widen,
            group: TreeGroup::Stem,
            follow_links: false,
            csv_delimiter: None,
            csv_header: true,
            csv_nulls: vec![String::new()],
            infer_rows: DEFAULT_INFER_ROWS,
            split: Vec::new(),
            split_key: None,
            compression: "zstd:3".parse().ok(),
            tar: TarOptions::default(),
            hashes: vec![HashAlgo::Sha256],
            size_limit: Some(64 << 20),
            samples_per_shard: None,
            nulls: Nulls::Error,
            null_as: Vec::new(),
            jobs: 1,
            memory_limit: None,
            overwrite: false,
            incremental: false,
            part: None,
            separator: None,
            newline: "\n".to_owned(),
            limits: Limits::default(),
            with_deleted: false,
        }
    }

    /// Returns the destination as text. Callers escape it before they show it.
    pub(crate) fn dest_text(&self) -> String {
        shown(&self.dest)
    }

    pub(crate) fn spool(&self) -> Option<&Path> {
        self.temp_dir.as_deref()
    }

    /// Returns all options that determine the bytes of the output, in a fixed order. `columns` are the resolved
    /// columns.
    pub(crate) fn fingerprinted(&self, columns: &[(String, String)]) -> Value {
        let mut config = Map::new();
        let mut put = |key: &str, value: Value| {
            config.insert(key.to_owned(), value);
        };
        put("to", json!(self.to.name()));
        put(
            "columns",
            json!(
                columns
                    .iter()
                    .map(|(name, encoding)| json!([name, encoding]))
                    .collect::<Vec<_>>()
            ),
        );
        let exprs: Vec<Value> = self
            .columns
            .iter()
            .filter_map(|column| column.expr.as_ref().map(|expr| json!([column.name, expr])))
            .collect();
        put("expressions", json!(exprs));
        put("select", json!(self.select));
        put("where", json!(self.filter));
        put("sql", json!(self.sql));
        // A query that spills to disk may return its rows in another order.
        if self.sql.is_some() {
            put("memory_limit", json!(self.memory_limit));
        }
        put("key", json!(self.key));
        put(
            "group",
            json!(match self.group {
                TreeGroup::Stem => "stem",
                TreeGroup::Key => "key",
                TreeGroup::File => "file",
            }),
        );
        // Only a value other than the default is included, so that datasets of earlier versions can still be updated.
        if self.schema != SchemaRule::Widen {
            put("schema", json!(self.schema.name()));
        }
        put("follow_links", json!(self.follow_links));
        put("csv_delimiter", json!(self.csv_delimiter.unwrap_or(b',')));
        put("csv_header", json!(self.csv_header));
        put("infer_rows", json!(self.infer_rows));
        // The default is left out, so that conversions of earlier versions keep their fingerprint.
        if self.csv_nulls != [""] {
            put("csv_nulls", json!(self.csv_nulls));
        }
        put(
            "split",
            json!(
                self.split
                    .iter()
                    .map(|split| json!([split.name, split.share]))
                    .collect::<Vec<_>>()
            ),
        );
        put("split_key", json!(self.split_key));
        let compression = match self.to {
            ShardFormat::Streaming(_) => self.compression.map(|name| name.to_string()),
            ShardFormat::Webdataset => self.tar.compression.map(|name| name.to_string()),
        };
        put("compression", json!(compression));
        if self.to == ShardFormat::Webdataset {
            put("shard_pattern", json!(self.tar.pattern.to_string()));
            put("names", json!(self.tar.names.name()));
            let readers = self.tar.index_for.iter().map(|reader| reader.name());
            put("index_for", json!(readers.collect::<Vec<_>>()));
        }
        put(
            "hashes",
            json!(
                self.hashes
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
            ),
        );
        put("size_limit", json!(self.size_limit));
        put("samples_per_shard", json!(self.samples_per_shard));
        put("nulls", json!(self.nulls.name()));
        put("null_as", json!(self.null_as));
        put("separator", json!(self.separator));
        put("newline", json!(self.newline));
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
