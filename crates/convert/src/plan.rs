//! Plans a conversion: the columns, their encodings, and the state of the destination. Writes nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use serde_json::{Value, json};
use shardmill_core::{check_relative_path, escape};
use shardmill_mds::Encoding;
use shardmill_source::{
    SchemaRule, SelectColumn, Source, SourceKind, TextOptions, TreeGroup, shuffled,
};
use shardmill_storage::Location;
use shardmill_writer::{RowEncoder, ShardForm, ShardFormat, TarKeys, Target};

use crate::columns;
use crate::dest::{self, Dest};
use crate::error::ConvertError;
use crate::export;
use crate::identity::Identity;
use crate::increment::{Increment, PlannedIncrement, check_source};
use crate::input::SourceInput;
use crate::mds_source;
use crate::nulls::NullPlan;
use crate::open::open_rows;
use crate::options::{ColumnSpec, ConvertOptions, Nulls, shown};
use crate::provenance::Provenance;
use crate::report::SplitReport;
use crate::split::{SplitPlan, can_be_key};

/// A column of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedColumn {
    /// Its name.
    pub name: String,
    /// Its Arrow type in the source.
    pub data_type: String,
    /// Its encoding in the output.
    pub encoding: String,
    /// The number of nulls, if the source's statistics contain it.
    pub nulls: Option<u64>,
}

/// The state of the destination as the plan found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DestState {
    /// The destination is empty.
    Empty,
    /// The destination holds an interrupted run of the same conversion.
    Interrupted {
        /// The number of complete shards.
        shards: usize,
    },
    /// The destination holds the finished result of the same conversion.
    Done,
    /// The destination holds a dataset that will be replaced.
    Replaced,
    /// The destination holds a dataset of an earlier table version, which will be updated.
    Behind,
}

/// A planned conversion: all decisions before anything is written.
pub struct ConvertPlan {
    /// The requested options.
    pub options: ConvertOptions,
    /// The columns of the output, in its order.
    pub columns: Vec<PlannedColumn>,
    /// The state of the destination.
    pub dest_state: DestState,
    pub(crate) source: Arc<dyn Source>,
    pub(crate) nulls: Arc<NullPlan>,
    pub(crate) split: Arc<SplitPlan>,
    pub(crate) encoder: RowEncoder,
    pub(crate) form: ShardForm,
    pub(crate) identity: Identity,
    /// The directories of the splits, relative to the destination; `""` for a single dataset.
    pub(crate) folders: Vec<String>,
    /// The work that brings the destination up to date. `None` if everything is converted.
    pub(crate) increment: Option<Increment>,
}

/// Plans a conversion. Reads metadata of the source and the destination, and writes nothing.
///
/// # Errors
///
/// - `InvalidInput`: an option is invalid.
/// - A source cannot be read.
/// - A type or a null cannot be stored.
/// - `Conflict`: the destination holds something else.
pub fn plan(mut options: ConvertOptions) -> Result<ConvertPlan, ConvertError> {
    check_options(&options)?;
    options.source.resources.jobs = options.source.resources.jobs.max(1);
    check_overlap(&options)?;
    let (mut source, increment) = open_source(&options)?;
    if let Some(seed) = options.columns.shuffle {
        source = shuffled(source, seed, &options.source.resources);
    }
    if options.run.incremental {
        check_source(&source)?;
    }
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
    let key = key_column(&schema, &source, &options)?;
    let compiled = columns::compile(&schema, &nulls, targets, skip, key, &options)?;
    let columns::Compiled { encoder, form } = compiled;
    refuse_known_nulls(&source, encoder.columns(), &nulls, &options)?;
    let planned: Vec<PlannedColumn> = encoder
        .columns()
        .iter()
        .map(|encoder| {
            let at = Some(encoder.source()).filter(|at| *at < schema.fields().len());
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
    check_lengths(&encoder, &options)?;
    let identity = Identity::new(options.fingerprinted(&named), source.description());
    let split_key = match &options.columns.split_key {
        Some(name) => schema
            .fields()
            .iter()
            .position(|field| field.name() == name),
        None => None,
    };
    let folders = if options.columns.split.is_empty() {
        vec![String::new()]
    } else {
        options
            .columns
            .split
            .iter()
            .map(|split| split.name.clone())
            .collect()
    };
    let dest_state = match &increment {
        Some(increment) => {
            increment.check_config(&identity, &options)?;
            match increment.is_nothing() {
                true => DestState::Done,
                false => DestState::Behind,
            }
        }
        None => match dest::look_if_whole(&folders, &identity, &options)? {
            Dest::Empty => DestState::Empty,
            Dest::Interrupted(found) => DestState::Interrupted {
                shards: found.shards(),
            },
            Dest::Done(_) => DestState::Done,
            Dest::Replaceable => DestState::Replaced,
        },
    };
    let split = Arc::new(SplitPlan::new(&options.columns.split, split_key));
    Ok(ConvertPlan {
        columns: planned,
        dest_state,
        source,
        nulls: Arc::new(nulls),
        split,
        encoder,
        form,
        identity,
        folders,
        increment,
        options,
    })
}

/// Returns the file to name in an error that concerns the whole source.
fn first_file(source: &Arc<dyn Source>, options: &ConvertOptions) -> String {
    let file = source
        .description()
        .files
        .first()
        .map(|file| file.path.clone());
    file.or_else(|| options.sources.first().map(shown))
        .unwrap_or_default()
}

fn check_options(options: &ConvertOptions) -> Result<(), ConvertError> {
    if options.sources.is_empty() {
        return Err(ConvertError::option("source", "there is no source"));
    }
    if options.source.query.sql.is_some()
        && (options.source.query.select.is_some() || options.source.query.filter.is_some())
    {
        return Err(ConvertError::option_hint(
            "sql",
            "a query cannot be combined with --select or --where",
            "put the columns and the condition into the query",
        ));
    }
    let sum: f64 = options.columns.split.iter().map(|split| split.share).sum();
    if !options.columns.split.is_empty() && (sum - 1.0).abs() > 1e-9 {
        return Err(ConvertError::option(
            "split",
            format!("the shares sum to {sum}, not to 1"),
        ));
    }
    let mut names: Vec<&str> = Vec::new();
    for split in &options.columns.split {
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
    if options.columns.split.is_empty() && options.columns.split_key.is_some() {
        return Err(ConvertError::option(
            "split-key",
            "there is no --split whose key it could be",
        ));
    }
    if options.columns.shuffle.is_some() && options.run.incremental {
        return Err(ConvertError::option_hint(
            "shuffle",
            "--incremental keeps the order of the table's files",
            "leave one of them out",
        ));
    }
    check_tar_options(options)?;
    check_part(options)?;
    if options.shards.separator.is_some() && options.shards.to != shardmill_core::Format::Xsv.into()
    {
        return Err(ConvertError::option_hint(
            "separator",
            format!("{} has a fixed separator", options.shards.to),
            "use --to xsv",
        ));
    }
    Ok(())
}

fn check_part(options: &ConvertOptions) -> Result<(), ConvertError> {
    let Some(part) = options.run.part else {
        return Ok(());
    };
    if part.number >= part.count {
        return Err(ConvertError::option_hint(
            "part",
            format!("there is no part {} of {}", part.number, part.count),
            "parts count from 0",
        ));
    }
    let other = match () {
        () if options.run.overwrite => "--overwrite",
        () if options.columns.shuffle.is_some() => "--shuffle",
        () if !options.columns.split.is_empty() => "--split",
        () if !options.shards.tar.index_for.is_empty() => "--index-for",
        () => return Ok(()),
    };
    Err(ConvertError::option_hint(
        "part",
        format!("{other} is not possible in parts"),
        "convert in one run",
    ))
}

/// Checks that the columns whose lengths are kept have lengths.
fn check_lengths(encoder: &RowEncoder, options: &ConvertOptions) -> Result<(), ConvertError> {
    let refused =
        |fact: String, hint: &'static str| Err(ConvertError::option_hint("lengths", fact, hint));
    for name in &options.columns.lengths {
        if options.shards.to != shardmill_core::Format::Mds.into() {
            let fact = format!("{} keeps no lengths of columns", options.shards.to);
            return refused(fact, "leave it out, or use --to mds");
        }
        if options.run.part.is_some() {
            let fact = "a part has no index that lengths could belong to".to_owned();
            return refused(fact, "run `shardmill index lengths` after the commit");
        }
        let mut columns = encoder.columns().iter();
        let Some(column) = columns.find(|column| column.name() == name) else {
            let fact = format!("no column `{}` is written", escape(name));
            return refused(fact, "name a column of the dataset");
        };
        if let Target::Mds(encoding) = column.target()
            && encoding.fixed_size().is_some()
            && !matches!(encoding, Encoding::NdArray { .. })
        {
            let fact = format!(
                "every value of column `{}` has the same length",
                escape(name)
            );
            return refused(fact, "name a column of text, bytes or arrays");
        }
    }
    Ok(())
}

fn check_tar_options(options: &ConvertOptions) -> Result<(), ConvertError> {
    if options.shards.to != ShardFormat::Webdataset {
        if options.columns.nulls == Nulls::Omit {
            return Err(ConvertError::option_hint(
                "nulls",
                format!("every sample of {} has every column", options.shards.to),
                "choose mask or drop, or --to webdataset",
            ));
        }
        if !options.shards.tar.index_for.is_empty() {
            return Err(ConvertError::option_hint(
                "index-for",
                format!("these readers do not read {}", options.shards.to),
                "use --to webdataset",
            ));
        }
        return Ok(());
    }
    for reader in &options.shards.tar.index_for {
        export::check_reader(*reader, options.shards.tar.compression.is_some())?;
    }
    Ok(())
}

/// Returns the column that provides the keys of tar samples. Without one, keys are numbers.
fn key_column(
    schema: &SchemaRef,
    source: &Arc<dyn Source>,
    options: &ConvertOptions,
) -> Result<Option<columns::Key>, ConvertError> {
    if options.shards.to != ShardFormat::Webdataset {
        return Ok(None);
    }
    let name = &options.source.tree.key_column;
    let position = schema
        .fields()
        .iter()
        .position(|field| field.name() == name);
    let Some(position) = position else {
        if *name == DEFAULT_KEY {
            return Ok(None);
        }
        return Err(ConvertError::option(
            "key-column",
            format!("there is no column `{}`", escape(name)),
        ));
    };
    let description = source.description();
    // The keys of a single tree are unique.
    let unique = description.kind == SourceKind::Tree
        && description.query.is_none()
        && options.sources.len() == 1
        && options
            .columns
            .specs
            .iter()
            .all(|column| column.expr.is_none());
    Ok(Some(columns::Key {
        position,
        unique,
        is_field: *name != DEFAULT_KEY
            && options
                .columns
                .specs
                .iter()
                .any(|column| column.name == *name),
    }))
}

fn check_overlap(options: &ConvertOptions) -> Result<(), ConvertError> {
    for source in &options.sources {
        // A pattern has no location of its own. Its files are compared when they are known.
        let overlap = match (&options.dest, source) {
            (Location::Local(dest), Location::Local(source)) => {
                let (dest, source) = (absolute(dest), absolute(source));
                dest.starts_with(&source) || source.starts_with(&dest)
            }
            (Location::Remote(dest), Location::Remote(source)) => {
                dest.beneath(source).is_some() || source.beneath(dest).is_some()
            }
            _ => false,
        };
        if overlap {
            return Err(ConvertError::Conflict {
                dest: options.dest_text(),
                reason: format!(
                    "it and the source {} contain one another",
                    escape(&shown(source))
                ),
                id: "dest-overlap",
                hint: "choose a destination outside the source".into(),
            });
        }
    }
    Ok(())
}

/// Returns the path without links and dots, as far as it exists.
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

/// Opens the source. For an increment, also returns the files that must be read.
fn open_source(
    options: &ConvertOptions,
) -> Result<(Arc<dyn Source>, Option<Increment>), ConvertError> {
    let mut selected: Vec<SelectColumn> = options
        .columns
        .specs
        .iter()
        .map(|column| SelectColumn {
            name: column.name.clone(),
            expr: column.expr.clone(),
        })
        .collect();
    // The split key may determine the split without being stored.
    if let Some(key) = &options.columns.split_key
        && !selected.is_empty()
        && selected.iter().all(|column| column.name != *key)
    {
        selected.push(SelectColumn::named(key));
    }
    let kind = match options.source.kind {
        Some(kind) => kind,
        None if options.sources.is_empty() => {
            return Err(ConvertError::option("source", "there is no source"));
        }
        None => shardmill_source::detect(&options.sources, &options.source.remote)?,
    };
    // Keys are read even if they do not become a field.
    if options.shards.to == ShardFormat::Webdataset
        && !selected.is_empty()
        && selected
            .iter()
            .all(|column| column.name != options.source.tree.key_column)
        && (options.source.tree.key_column != DEFAULT_KEY || has_keys(kind, options)?)
    {
        selected.push(SelectColumn::named(&options.source.tree.key_column));
    }
    let mut source_options = options.source.clone();
    source_options.kind = Some(kind);
    source_options.files.destination = Some(options.dest.clone());
    source_options.query.columns = selected;
    source_options.schema.read_as = columns::read_as(options);
    source_options.tree.text_as_bytes = takes_bytes(options);
    let text = &mut source_options.text;
    text.json_columns = columns_as(options, |encoding| encoding == "json");
    // Columns encoded as text keep all digits of their numbers.
    text.text_columns = columns_as(options, |encoding| encoding.starts_with("str"));
    text.raw_objects = stores_json(options) && options.source.query.sql.is_none();
    text.typed_columns = typed_columns(options);
    if options.source.tree.group != TreeGroup::Stem && kind != SourceKind::Tree {
        return Err(ConvertError::option_hint(
            "group",
            format!("the source holds {kind}, but only files of a tree can be grouped"),
            "pass --from tree to take the files as they are",
        ));
    }
    check_source_options(kind, options)?;
    let mut increment = None;
    if options.run.incremental {
        increment = Increment::prepare(kind, options, &source_options)?;
        if let Some(increment) = &increment {
            source_options = increment.narrowed(source_options);
        }
    }
    let source = open_rows(&options.sources, &source_options)?;
    Ok((source, increment))
}

/// Returns whether the output can store objects as JSON.
fn stores_json(options: &ConvertOptions) -> bool {
    options.shards.to == ShardFormat::Webdataset
        || options.shards.to == shardmill_core::Format::Mds.into()
}

/// Returns the source columns with a matching encoding. Returns none if expressions may use the columns.
fn columns_as(options: &ConvertOptions, is_one: impl Fn(&str) -> bool) -> Vec<String> {
    if (
        &options.source.query.select,
        &options.source.query.filter,
        &options.source.query.sql,
    ) != (&None, &None, &None)
    {
        return Vec::new();
    }
    let is_wanted = |column: &&ColumnSpec| {
        let extension = column.name.rsplit('.').next();
        match column.encoding.as_deref() {
            Some(encoding) => is_one(encoding),
            None => {
                let is_json =
                    options.shards.to == ShardFormat::Webdataset && extension == Some("json");
                is_json && is_one("json")
            }
        }
    };
    let columns = options.columns.specs.iter().filter(is_wanted);
    columns.filter_map(source_column).collect()
}

/// Returns the source column that a column copies.
fn source_column(column: &ColumnSpec) -> Option<String> {
    let is_name = |expr: &&str| {
        let mut bytes = expr.bytes();
        bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    match column.expr.as_deref() {
        None => Some(column.name.clone()),
        expr => expr.filter(is_name).map(str::to_owned),
    }
}

/// Returns the columns whose objects stay structs: columns with another encoding than JSON, and columns used in
/// expressions.
fn typed_columns(options: &ConvertOptions) -> Vec<String> {
    let encoded = options.columns.specs.iter().filter(|column| {
        let encoding = column.encoding.as_deref();
        encoding.is_some_and(|encoding| encoding != "json")
    });
    let mut typed: Vec<String> = encoded.filter_map(source_column).collect();
    let computed = options.columns.specs.iter().filter_map(|column| {
        let expr = column.expr.as_deref();
        expr.filter(|_| source_column(column).is_none())
    });
    let texts = [
        options.source.query.select.as_deref(),
        options.source.query.filter.as_deref(),
    ];
    for text in texts.into_iter().flatten().chain(computed) {
        let is_letter = |letter: char| letter.is_alphanumeric() || letter == '_';
        let words = text.split(|letter| !is_letter(letter));
        // A quoted name may contain other characters.
        let words = words.chain(text.split('"'));
        typed.extend(words.filter(|word| !word.is_empty()).map(str::to_owned));
    }
    typed
}

/// Returns whether files are copied into tar files unchanged, and no expression uses their text.
fn takes_bytes(options: &ConvertOptions) -> bool {
    let is_plain = |column: &ColumnSpec| column.expr.is_none() && column.encoding.is_none();
    options.shards.to == ShardFormat::Webdataset
        && options.columns.specs.iter().all(is_plain)
        && (
            &options.source.query.select,
            &options.source.query.filter,
            &options.source.query.sql,
        ) == (&None, &None, &None)
        && options.columns.null_as.is_empty()
        && options.columns.split_key.is_none()
}

/// Checks that all options apply to this kind of source.
fn check_source_options(kind: SourceKind, options: &ConvertOptions) -> Result<(), ConvertError> {
    let is_csv = matches!(kind, SourceKind::Csv | SourceKind::Tsv);
    let is_tree = kind == SourceKind::Tree;
    let has_keys =
        is_tree || kind == SourceKind::Webdataset || options.shards.to == ShardFormat::Webdataset;
    let has_files = !matches!(
        kind,
        SourceKind::Delta | SourceKind::Mds | SourceKind::Webdataset
    );
    let is_text = is_csv || kind == SourceKind::JsonLines;
    let misplaced = [
        (
            "infer-rows",
            options.source.text.infer_rows != TextOptions::default().infer_rows && !is_text,
            "CSV files and JSON lines",
        ),
        (
            "schema",
            options.source.schema.rule != SchemaRule::Widen
                && !matches!(kind, SourceKind::Parquet | SourceKind::Arrow),
            "Parquet and Arrow files",
        ),
        (
            "include",
            !options.source.files.include.is_empty() && !has_files,
            "files below a folder",
        ),
        (
            "exclude",
            !options.source.files.exclude.is_empty() && !has_files,
            "files below a folder",
        ),
        (
            "csv-no-header",
            !options.source.csv.header && !is_csv,
            "CSV files",
        ),
        (
            "csv-delimiter",
            options.source.csv.delimiter.is_some() && !is_csv,
            "CSV files",
        ),
        (
            "csv-null",
            options.source.csv.nulls != [""] && !is_csv,
            "CSV files",
        ),
        (
            "follow-links",
            options.source.tree.follow_links && !is_tree,
            "the files of a tree",
        ),
        (
            "key-column",
            options.source.tree.key_column != DEFAULT_KEY && !has_keys,
            "trees and tar files, and sources of them",
        ),
    ];
    match misplaced
        .into_iter()
        .find(|(_, is_misplaced, _)| *is_misplaced)
    {
        None => Ok(()),
        Some((option, _, what)) => Err(ConvertError::option_hint(
            option,
            format!("it applies to {what}, but the source holds {kind}"),
            "leave it out",
        )),
    }
}

/// The default name of the key column.
const DEFAULT_KEY: &str = "__key__";

/// Returns whether a source has a key column that was not requested.
fn has_keys(kind: SourceKind, options: &ConvertOptions) -> Result<bool, ConvertError> {
    if options.source.query.sql.is_some() || options.source.query.select.is_some() {
        return Ok(false);
    }
    match kind {
        SourceKind::Tree | SourceKind::Webdataset => Ok(true),
        // A dataset that was converted from tar files may have kept its keys.
        SourceKind::Mds => mds_source::has_column(&options.sources, DEFAULT_KEY, &options.source),
        _ => Ok(false),
    }
}

/// Returns the position of a split key that was added only for the split. Checks that the split key exists.
fn split_key_to_skip(
    options: &ConvertOptions,
    source: &Arc<dyn Source>,
) -> Result<Option<usize>, ConvertError> {
    let Some(key) = &options.columns.split_key else {
        return Ok(None);
    };
    let schema = source.schema();
    let Some((at, field)) = schema.column_with_name(key) else {
        return Err(ConvertError::option(
            "split-key",
            format!("there is no column `{}`", escape(key)),
        ));
    };
    if !can_be_key(field.data_type()) {
        return Err(ConvertError::option_hint(
            "split-key",
            format!(
                "column `{}` is of type {}, which has no text",
                escape(key),
                field.data_type()
            ),
            "name a column of text, bytes, numbers, dates or times, or one of its fields with --select",
        ));
    }
    let asked = options.columns.specs.is_empty()
        || options
            .columns
            .specs
            .iter()
            .any(|column| column.name == *key);
    Ok((!asked).then_some(at))
}

/// Reports known nulls in all columns as one error before anything is written. The source's statistics show them.
fn refuse_known_nulls(
    source: &Arc<dyn Source>,
    encoders: &[shardmill_writer::ColumnEncoder],
    nulls: &NullPlan,
    options: &ConvertOptions,
) -> Result<(), ConvertError> {
    if options.columns.nulls != Nulls::Error {
        return Ok(());
    }
    let schema = source.schema();
    let mut columns = Vec::new();
    let mut hints = Vec::new();
    for encoder in encoders.iter().filter(|encoder| !encoder.stores_null()) {
        let at = encoder.source();
        let Some(field) = schema.fields().get(at) else {
            continue;
        };
        if !nulls.leaves(at) {
            continue;
        }
        if let Some(count) = source.null_count(at).filter(|count| *count > 0) {
            // Finding the first null reads rows, so it is done for at most ten columns.
            let first = if columns.len() < 10 {
                source.first_null(at)?.map(|place| place.to_string())
            } else {
                None
            };
            // Options use this name; in tar files the field may have another one.
            columns.push((field.name().clone(), count, first));
            hints.push(encoder.null_hint());
        }
    }
    if columns.is_empty() {
        return Ok(());
    }
    let source_name = options
        .sources
        .iter()
        .map(shown)
        .collect::<Vec<_>>()
        .join(" ");
    let tree = source.description().kind == SourceKind::Tree;
    // The shortest hint has the fewest choices, which work for all columns.
    let hint = hints.iter().min_by_key(|hint| hint.len());
    Err(ConvertError::Nulls {
        hint: hint.map_or_else(String::new, |hint| (*hint).to_owned()),
        source_name,
        columns,
        tree,
        may_omit: options.shards.to == ShardFormat::Webdataset,
    })
}

impl ConvertPlan {
    /// Returns the description of the source.
    #[must_use]
    pub fn source(&self) -> &shardmill_source::SourceDescription {
        self.source.description()
    }

    /// Returns the provenance of one dataset, without the values that are known after the run.
    pub(crate) fn provenance<'a>(&'a self, split: &'a SplitReport) -> Provenance<'a> {
        Provenance {
            identity: &self.identity,
            source: self.source.description(),
            keys: self.encoder.keys(),
            split,
            content: None,
            dropped_rows: None,
            increment: None,
            tombstones: None,
        }
    }

    /// Returns the source as input of the writer.
    pub(crate) fn input(&self) -> SourceInput {
        SourceInput {
            source: Arc::clone(&self.source),
            nulls: Arc::clone(&self.nulls),
            split: Arc::clone(&self.split),
        }
    }

    /// Returns the form of the shards.
    #[must_use]
    pub const fn form(&self) -> &ShardForm {
        &self.form
    }

    /// Describes the source of the keys of tar samples, for messages.
    #[must_use]
    pub fn key_source(&self) -> String {
        match self.encoder.keys() {
            Some(TarKeys::Column { name, .. }) => format!("column {name}"),
            Some(TarKeys::Number) | None => "numbers".to_owned(),
        }
    }

    /// Returns the work that brings the existing dataset up to date. `None` means that everything is converted.
    #[must_use]
    pub fn increment(&self) -> Option<PlannedIncrement> {
        self.increment.as_ref().map(Increment::planned)
    }

    /// Returns the names of the splits; one empty name if there are no splits.
    #[must_use]
    pub fn splits(&self) -> &[String] {
        &self.folders
    }

    /// Returns the plan as JSON, for `--dry-run --json`.
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
            DestState::Behind => ("behind", None),
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
            "dest": self.options.dest_text(),
            "dest_state": state,
            "complete_shards": shards,
            "columns": columns,
            "config": self.identity.config,
            "config_fingerprint": self.identity.config_fingerprint,
            "source_fingerprint": self.identity.source_fingerprint,
            "increment": self.increment(),
            "jobs": self.options.source.resources.jobs,
        })
    }
}
