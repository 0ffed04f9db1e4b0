//! Deciding: what is read, which columns become what, what is at the destination. Writes nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use shardmill_core::{Diagnostic, ErrorKind, check_relative_path, escape};
use shardmill_mds::ShardConfig;
use shardmill_source::{SelectColumn, Source, SourceKind, SourceOptions, TreeGroup};
use shardmill_writer::RowEncoder;

use crate::columns;
use crate::dest::{self, Dest};
use crate::error::ConvertError;
use crate::mds_source;
use crate::nulls::NullPlan;
use crate::options::{ConvertOptions, Nulls};
use crate::provenance::Identity;
use crate::split::SplitPlan;

/// A column of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedColumn {
    /// Its name.
    pub name: String,
    /// Its Arrow type in the source.
    pub data_type: String,
    /// Its encoding in the output.
    pub encoding: String,
    /// Nulls, where the source's statistics tell.
    pub nulls: Option<u64>,
}

/// What running the plan would find at the destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DestState {
    /// Nothing.
    Empty,
    /// An interrupted run of the same conversion, with that many complete shards.
    Interrupted {
        /// Complete shards.
        shards: usize,
    },
    /// The finished result of the same conversion.
    Done,
    /// A data set that is going to be replaced.
    Replaced,
}

/// Everything that was decided before anything is written.
pub struct ConvertPlan {
    /// How to convert, as it was asked for.
    pub options: ConvertOptions,
    /// The columns of the output, in its order.
    pub columns: Vec<PlannedColumn>,
    /// What is at the destination.
    pub dest_state: DestState,
    pub(crate) source: Arc<dyn Source>,
    pub(crate) nulls: Arc<NullPlan>,
    pub(crate) split: Arc<SplitPlan>,
    pub(crate) encoder: RowEncoder,
    pub(crate) config: Arc<ShardConfig>,
    pub(crate) identity: Identity,
    /// The directories of the splits beneath the destination; `""` for a single data set.
    pub(crate) folders: Vec<String>,
}

/// Decides how to convert. Reads metadata of the source and of the destination, and writes nothing.
///
/// # Errors
///
/// Options that cannot be carried out (`InvalidInput`), sources that cannot be read, types and nulls that
/// cannot be stored, and a destination that holds something else (`Conflict`).
pub fn plan(mut options: ConvertOptions) -> Result<ConvertPlan, ConvertError> {
    check_options(&options)?;
    options.jobs = options.jobs.max(1);
    check_overlap(&options)?;
    let source = open_source(&options)?;
    let schema = source.schema();
    if schema.fields().is_empty() {
        return Err(ConvertError::NoColumns {
            source_name: first_file(&source, &options),
        });
    }
    let skip = split_key_to_skip(&options, &source)?;
    let targets = columns::targets(&schema, &options)?;
    let nulls = columns::null_plan(&schema, &targets, &options, |column| {
        source.null_count(column)
    })?;
    let (encoders, config) = columns::compile(&schema, &nulls, targets, skip, &options)?;
    refuse_known_nulls(&source, &encoders, &options)?;
    let planned: Vec<PlannedColumn> = encoders
        .iter()
        .map(|encoder| {
            let at = schema
                .fields()
                .iter()
                .position(|field| field.name() == encoder.name());
            PlannedColumn {
                name: encoder.name().to_owned(),
                data_type: at.map_or_else(
                    || "UInt8".to_owned(),
                    |at| schema.field(at).data_type().to_string(),
                ),
                encoding: encoder.target().name(),
                nulls: at.and_then(|at| source.null_count(at)),
            }
        })
        .collect();
    let named: Vec<(String, String)> = planned
        .iter()
        .map(|column| (column.name.clone(), column.encoding.clone()))
        .collect();
    let identity = Identity::new(options.fingerprinted(&named), source.description());
    let split_key = match &options.split_key {
        Some(name) => schema
            .fields()
            .iter()
            .position(|field| field.name() == name),
        None => None,
    };
    let folders = if options.split.is_empty() {
        vec![String::new()]
    } else {
        options
            .split
            .iter()
            .map(|split| split.name.clone())
            .collect()
    };
    let dest_state = match dest::look(
        &options.dest,
        &folders,
        &identity,
        options.overwrite,
        &options.limits,
    )? {
        Dest::Empty => DestState::Empty,
        Dest::Interrupted(found) => DestState::Interrupted {
            shards: found.shards(),
        },
        Dest::Done(_) => DestState::Done,
        Dest::Replaceable => DestState::Replaced,
    };
    let split = Arc::new(SplitPlan::new(&options.split, split_key));
    let encoder = RowEncoder::new(encoders, &config.layout, options.limits.sample_bytes);
    Ok(ConvertPlan {
        columns: planned,
        dest_state,
        source,
        nulls: Arc::new(nulls),
        split,
        encoder,
        config,
        identity,
        folders,
        options,
    })
}

/// The file that is to blame for a source as a whole.
fn first_file(source: &Arc<dyn Source>, options: &ConvertOptions) -> String {
    let file = source
        .description()
        .files
        .first()
        .map(|file| file.path.clone());
    file.or_else(|| {
        options
            .sources
            .first()
            .map(|path| path.display().to_string())
    })
    .unwrap_or_default()
}

fn check_options(options: &ConvertOptions) -> Result<(), ConvertError> {
    if options.sources.is_empty() {
        return Err(ConvertError::option("source", "there is no source"));
    }
    if options.sql.is_some() && (options.select.is_some() || options.filter.is_some()) {
        return Err(ConvertError::option_hint(
            "sql",
            "a query cannot be combined with --select or --where",
            "put the columns and the condition into the query",
        ));
    }
    let sum: f64 = options.split.iter().map(|split| split.share).sum();
    if !options.split.is_empty() && (sum - 1.0).abs() > 1e-9 {
        return Err(ConvertError::option(
            "split",
            format!("the shares sum to {sum}, not to 1"),
        ));
    }
    let mut names: Vec<&str> = Vec::new();
    for split in &options.split {
        if !split.share.is_finite() || split.share <= 0.0 {
            return Err(ConvertError::option(
                "split",
                format!("the share of `{}` is not above 0", escape(&split.name)),
            ));
        }
        if let Err(error) = check_relative_path(&split.name) {
            return Err(ConvertError::option(
                "split",
                format!("`{}` cannot be a directory: {error}", escape(&split.name)),
            ));
        }
        if split.name.contains('/') || split.name.starts_with('.') {
            return Err(ConvertError::option(
                "split",
                format!(
                    "`{}` cannot be a directory: it has a slash or starts with a dot",
                    escape(&split.name)
                ),
            ));
        }
        if names.contains(&split.name.as_str()) {
            return Err(ConvertError::option(
                "split",
                format!("there are two splits `{}`", split.name),
            ));
        }
        names.push(&split.name);
    }
    if options.split.is_empty() && options.split_key.is_some() {
        return Err(ConvertError::option(
            "split-key",
            "there is no --split whose key it could be",
        ));
    }
    if options.separator.is_some() && options.to != shardmill_core::Format::Xsv {
        return Err(ConvertError::option_hint(
            "separator",
            format!("{} has no separator of your own", options.to),
            "use --to xsv",
        ));
    }
    Ok(())
}

fn check_overlap(options: &ConvertOptions) -> Result<(), ConvertError> {
    let dest = absolute(&options.dest);
    for source in &options.sources {
        // A pattern has no place of its own; its files are compared when they are known.
        let source_path = absolute(source);
        if dest == source_path || dest.starts_with(&source_path) || source_path.starts_with(&dest) {
            return Err(ConvertError::Conflict {
                dest: options.dest.display().to_string(),
                reason: format!(
                    "it and the source {} lie one inside the other",
                    escape(&source.display().to_string())
                ),
                id: "dest-overlap",
                hint: "choose a destination beside the source",
            });
        }
    }
    Ok(())
}

/// The path without links and dots, as far as it exists.
fn absolute(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut missing = Vec::new();
    let mut there = path.as_path();
    loop {
        if let Ok(real) = there.canonicalize() {
            return missing
                .iter()
                .rev()
                .fold(real, |path, part| path.join(part));
        }
        match (there.parent(), there.file_name()) {
            (Some(parent), Some(name)) => {
                missing.push(name.to_owned());
                there = parent;
            }
            _ => return path,
        }
    }
}

fn open_source(options: &ConvertOptions) -> Result<Arc<dyn Source>, ConvertError> {
    let mut columns: Vec<SelectColumn> = options
        .columns
        .iter()
        .map(|column| SelectColumn {
            name: column.name.clone(),
            expr: column.expr.clone(),
        })
        .collect();
    // The key may decide on the split without being stored.
    if let Some(key) = &options.split_key
        && !columns.is_empty()
        && columns.iter().all(|column| column.name != *key)
    {
        columns.push(SelectColumn::named(key));
    }
    let source_options = SourceOptions {
        kind: options.from,
        columns,
        select: options.select.clone(),
        filter: options.filter.clone(),
        sql: options.sql.clone(),
        exclude: Some(options.dest.clone()),
        version: options.version,
        timestamp_ms: options.timestamp_ms,
        group: options.group,
        key_column: options.key.clone(),
        follow_links: options.follow_links,
        csv_delimiter: options.csv_delimiter,
        csv_header: options.csv_header,
        infer_rows: options.infer_rows,
        jobs: options.jobs,
        memory_limit: options.memory_limit,
        limits: options.limits.clone(),
        ..SourceOptions::default()
    };
    let kind = match options.from {
        Some(kind) => kind,
        None => match options.sources.first() {
            Some(first) => shardmill_source::detect(first)?,
            None => return Err(ConvertError::option("source", "there is no source")),
        },
    };
    if options.group == TreeGroup::File && kind != SourceKind::Tree {
        return Err(ConvertError::option_hint(
            "group",
            format!("the source holds {kind}, and only the files of a tree are grouped"),
            "pass --from tree to take the files as they are",
        ));
    }
    if kind == SourceKind::Mds {
        return mds_source::open(&options.sources, &source_options);
    }
    Ok(shardmill_source::open(&options.sources, &source_options)?)
}

/// The position of a split key that was added for the split alone, and that the key is there at all.
fn split_key_to_skip(
    options: &ConvertOptions,
    source: &Arc<dyn Source>,
) -> Result<Option<usize>, ConvertError> {
    let Some(key) = &options.split_key else {
        return Ok(None);
    };
    let schema = source.schema();
    let Some(at) = schema.fields().iter().position(|field| field.name() == key) else {
        return Err(ConvertError::option(
            "split-key",
            format!("there is no column `{}`", escape(key)),
        ));
    };
    let asked =
        options.columns.is_empty() || options.columns.iter().any(|column| column.name == *key);
    Ok((!asked).then_some(at))
}

/// Nulls that the source's statistics show are refused before anything is written, all columns at once.
fn refuse_known_nulls(
    source: &Arc<dyn Source>,
    encoders: &[shardmill_writer::ColumnEncoder],
    options: &ConvertOptions,
) -> Result<(), ConvertError> {
    if options.nulls != Nulls::Error {
        return Ok(());
    }
    let schema = source.schema();
    let mut columns = Vec::new();
    for encoder in encoders.iter().filter(|encoder| !encoder.stores_null()) {
        if options
            .null_as
            .iter()
            .any(|(name, _)| name == encoder.name())
        {
            continue;
        }
        let Some(at) = schema
            .fields()
            .iter()
            .position(|field| field.name() == encoder.name())
        else {
            continue;
        };
        if let Some(count) = source.null_count(at).filter(|count| *count > 0) {
            // Finding the first one reads rows; ten names are enough to act on.
            let first = if columns.len() < 10 {
                source.first_null(at)?.map(|place| place.to_string())
            } else {
                None
            };
            columns.push((encoder.name().to_owned(), count, first));
        }
    }
    if columns.is_empty() {
        return Ok(());
    }
    let source_name = options
        .sources
        .iter()
        .map(|path| path.display().to_string())
        .collect::<Vec<_>>()
        .join(" ");
    let tree = source.description().kind == SourceKind::Tree;
    Err(ConvertError::Nulls {
        source_name,
        columns,
        tree,
    })
}

impl ConvertPlan {
    /// What is read.
    #[must_use]
    pub fn source(&self) -> &shardmill_source::SourceDescription {
        self.source.description()
    }

    /// The configuration of every shard.
    #[must_use]
    pub fn shard_config(&self) -> &ShardConfig {
        &self.config
    }

    /// The names of the splits; one empty name without splits.
    #[must_use]
    pub fn splits(&self) -> &[String] {
        &self.folders
    }

    /// The plan as JSON, for `--dry-run --json`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let source = self.source.description();
        let columns: Vec<Value> = self
            .columns
            .iter()
            .map(|column| {
                json!({
                    "name": column.name,
                    "type": column.data_type,
                    "encoding": column.encoding,
                    "nulls": column.nulls,
                })
            })
            .collect();
        let (state, shards) = match &self.dest_state {
            DestState::Empty => ("empty", None),
            DestState::Interrupted { shards } => ("interrupted", Some(*shards)),
            DestState::Done => ("done", None),
            DestState::Replaced => ("replaced", None),
        };
        json!({
            "source": {
                "kind": source.kind.name(),
                "files": source.files.len(),
                "bytes": source.bytes,
                "rows": source.rows,
                "units": self.source.units().len(),
                "query": source.query,
            },
            "dest": self.options.dest.display().to_string(),
            "dest_state": state,
            "complete_shards": shards,
            "columns": columns,
            "config": self.identity.config,
            "config_fingerprint": self.identity.config_fingerprint,
            "source_fingerprint": self.identity.source_fingerprint,
            "jobs": self.options.jobs,
        })
    }
}

/// The kind of an error decides whether a run can be continued.
pub(crate) fn is_resumable(error: &ConvertError) -> bool {
    let kind: ErrorKind = error.kind();
    dest::is_resumable(kind)
}
