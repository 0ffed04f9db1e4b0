use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value, json};
use shardmill_core::{Format, Limits};
use shardmill_mds::{Compression, HashAlgo};
use shardmill_source::{SchemaRule, SourceKind, TreeGroup};
use shardmill_storage::{LEASE_PATIENCE, Location, RemoteOptions};
use shardmill_webdataset::{Consumer, TarCompression};
use shardmill_writer::{ShardFormat, ShardPattern};

use crate::parts::Part;

/// What to do with a null. Where an encoding has a form for it, `Error` and `Mask` leave it as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nulls {
    /// Refuse the conversion, naming column and row.
    #[default]
    Error,
    /// Store the type's zero, and 1 in a `uint8` column `NAME__is_null`.
    Mask,
    /// Leave the row out, and count it.
    Drop,
    /// Leave the field out of its sample; in tar files only.
    Omit,
}

/// Which names a tar file may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TarNames {
    /// Those that every known reader gives back.
    #[default]
    Portable,
    /// Those that webdataset itself gives back: of any length, with blanks, beyond ASCII.
    Any,
}

impl TarNames {
    /// The name used on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Any => "any",
        }
    }
}

/// What is particular to WebDataset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TarOptions {
    /// How shards are compressed; most readers want them as they are.
    pub compression: Option<TarCompression>,
    /// How shards are called.
    pub pattern: ShardPattern,
    /// Which names are allowed.
    pub names: TarNames,
    /// The readers that get an index of their own.
    pub index_for: Vec<Consumer>,
}

impl Nulls {
    /// The name used on the command line.
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
    /// Its encoding, by the name that the format uses; `None` for the one that follows from the type.
    pub encoding: Option<String>,
    /// The expression that computes it; `None` for the source's column of that name.
    pub expr: Option<String>,
}

/// One dataset of several that the rows are divided among.
#[derive(Clone, Debug, PartialEq)]
pub struct SplitSpec {
    /// Its name, and the name of its directory.
    pub name: String,
    /// Its share of the rows, above 0; shares sum to 1.
    pub share: f64,
}

/// Rows of a large text file that decide on types where nobody says how many.
pub(crate) const DEFAULT_INFER_ROWS: usize = 100_000;

/// How to convert. Fields that do not change the output are `jobs`, `memory_limit` without `sql`, `overwrite`,
/// `limits`, and how stores are spoken to.
#[derive(Clone, Debug)]
pub struct ConvertOptions {
    /// Files, directories, patterns.
    pub sources: Vec<Location>,
    /// The directory to write, or the prefix in a store.
    pub dest: Location,
    /// How stores are spoken to.
    pub remote: RemoteOptions,
    /// Where files for a store are made; `None` for the system's directory for temporary files.
    pub temp_dir: Option<PathBuf>,
    /// How long a conversion into a store waits for a sign of life of another one that is at work there.
    pub lease_patience: Duration,
    /// What the sources hold; `None` to find out.
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
    /// The version of a Delta table; `None` for the latest, or for the one that `timestamp_ms` says.
    pub version: Option<u64>,
    /// The latest version of a Delta table at this time, in milliseconds since 1970, is read.
    pub timestamp_ms: Option<i64>,
    /// The column that holds the keys of samples: a tree and tar files make it, tar files get their keys from it.
    pub key: String,
    /// How the columns of several Parquet or Arrow files become those of one table.
    pub schema: SchemaRule,
    /// How files of a tree become samples.
    pub group: TreeGroup,
    /// Whether symbolic links of a tree are followed.
    pub follow_links: bool,
    /// The byte between two CSV values.
    pub csv_delimiter: Option<u8>,
    /// Whether the first line of a CSV file names the columns.
    pub csv_header: bool,
    /// Texts that are null where they stand in a CSV file without quotes.
    pub csv_nulls: Vec<String>,
    /// Rows of a large CSV or JSON lines file that decide on the types of its columns.
    pub infer_rows: usize,
    /// Empty for a single dataset.
    pub split: Vec<SplitSpec>,
    /// The column whose value decides on the split; `None` for the row's number.
    pub split_key: Option<String>,
    /// How shards are compressed, those of tar files excepted.
    pub compression: Option<Compression>,
    /// What is particular to WebDataset.
    pub tar: TarOptions,
    /// Which hashes go into the index.
    pub hashes: Vec<HashAlgo>,
    /// Most raw bytes of a shard.
    pub size_limit: Option<u64>,
    /// Most samples of a shard.
    pub samples_per_shard: Option<u64>,
    /// What to do with nulls.
    pub nulls: Nulls,
    /// Values for the nulls of single columns, as text.
    pub null_as: Vec<(String, String)>,
    /// Threads; at least 1.
    pub jobs: usize,
    /// About how many bytes of memory to use; `None` for as many as `jobs` shards need.
    pub memory_limit: Option<u64>,
    /// Whether a dataset that is there is replaced.
    pub overwrite: bool,
    /// Whether the dataset can be, and is, brought up to date with its table step by step.
    pub incremental: bool,
    /// The part to make, of a conversion that several runs share; [`commit`](crate::commit) ends it.
    pub part: Option<Part>,
    /// What stands between values, for XSV.
    pub separator: Option<String>,
    /// What ends a line, for JSON and the XSV family.
    pub newline: String,
    /// What an input file may ask for.
    pub limits: Limits,
    /// Whether samples of a source dataset that its table no longer has are converted like all others.
    pub with_deleted: bool,
}

impl ConvertOptions {
    /// The defaults that the command line has: MDS, `zstd:3`, `sha256`, 64 MiB, one thread.
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

    /// The destination as text, which is escaped when it is shown.
    pub(crate) fn dest_text(&self) -> String {
        shown(&self.dest)
    }

    pub(crate) fn spool(&self) -> Option<&Path> {
        self.temp_dir.as_deref()
    }

    /// Everything that decides on the output's bytes, in a fixed order. `columns` are the resolved ones.
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
        // A query that writes to the disk may bring its rows in another order than one that does not have to.
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
        // Only where it is not the default, so that datasets that were made without it can be brought up to date.
        if self.schema != SchemaRule::Widen {
            put("schema", json!(self.schema.name()));
        }
        put("follow_links", json!(self.follow_links));
        put("csv_delimiter", json!(self.csv_delimiter.unwrap_or(b',')));
        put("csv_header", json!(self.csv_header));
        put("infer_rows", json!(self.infer_rows));
        // Left out where it is the default, so that conversions of earlier versions are still the same.
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

/// A location as given, which is escaped when it is shown.
pub(crate) fn shown(location: &Location) -> String {
    match location {
        Location::Local(path) => path.display().to_string(),
        Location::Remote(remote) => remote.to_string(),
    }
}
