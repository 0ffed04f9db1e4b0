//! Plans a conversion: the columns, their encodings, and the state of the destination. Writes nothing.

use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use serde_json::{Value, json};
use shardmill_core::{Error, Progress, escape};
use shardmill_source::{SelectColumn, Source, SourceKind, shuffled};
use shardmill_writer::{NullPlan, RowEncoder, ShardForm, ShardFormat, TarKeys};

use crate::check::{
    DEFAULT_KEY, check_column_files, check_options, check_overlap, check_source_options,
};
use crate::columns;
use crate::dest::{self, Dest};
use crate::error::{ConvertProblem, no_columns, other_option};
use crate::identity::Identity;
use crate::increment::{Increment, PlannedIncrement, check_source};
use crate::input::SourceInput;
use crate::mds_source;
use crate::open::open_rows;
use crate::options::{ColumnSpec, ConvertOptions, Nulls, shown};
use crate::provenance::Provenance;
use crate::report::SplitReport;
use crate::split::{SplitPlan, can_be_key};
use crate::table;
use crate::tokens::{self, TokenizerFile};

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
    pub(crate) tokenizer: Option<TokenizerFile>,
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
pub fn plan(mut options: ConvertOptions) -> Result<ConvertPlan, Error> {
    check_options(&options)?;
    if options.shards.keep_row_groups {
        options.shards.size_limit = None;
        options.source.resources.divide_row_groups = true;
    }
    options.source.resources.jobs = options.source.resources.jobs.max(1);
    options.source.schema.keep_extensions = options.shards.to == ShardFormat::Parquet;
    check_overlap(&options)?;
    let (mut source, increment) = open_source(&options)?;
    let known_types = table::known_types(source.as_ref(), &options)?;
    if let Some(seed) = options.columns.shuffle {
        source = shuffled(source, seed, &options.source.resources);
    }
    let mut tokenizer = None;
    let mut hidden = None;
    if let Some(tokenize) = &options.columns.tokenize {
        let file;
        (source, file, hidden) = tokens::tokenized(source, tokenize, &options)?;
        tokenizer = Some(file);
    }
    if options.run.incremental {
        check_source(&source)?;
    }
    let schema = source.schema();
    if schema.fields().is_empty() {
        let file = source.description().files.first();
        let file = file.map(|file| file.path.clone());
        let file = file.or_else(|| options.sources.first().map(shown));
        return Err(no_columns(&file.unwrap_or_default()));
    }
    let skip = hidden.or(split_key_to_skip(&options, &source)?);
    let targets = columns::targets(&schema, &known_types, &options)?;
    let nulls = columns::null_plan(&schema, &targets, &options, |column| {
        source.null_count(column)
    })?;
    let key = key_column(&schema, &source, &options)?;
    let (encoder, form) = columns::compile(&schema, &nulls, targets, skip, key, &options)?;
    refuse_known_nulls(&source, encoder.columns(), &nulls, &options)?;
    let planned = encoder.columns().iter().map(|encoder| {
        // The columns of masks are not in the source.
        let field = schema.fields().get(encoder.source());
        PlannedColumn {
            name: encoder.name().to_owned(),
            data_type: field
                .map_or(DataType::UInt8, |field| field.data_type().clone())
                .to_string(),
            encoding: encoder.target().name(),
            nulls: field.and_then(|_| source.null_count(encoder.source())),
        }
    });
    let planned: Vec<PlannedColumn> = planned.collect();
    let named = planned.iter();
    let named = named.map(|column| (column.name.as_str(), column.encoding.as_str()));
    let named: Vec<(&str, &str)> = named.collect();
    check_column_files(&encoder, &options)?;
    let mut config = options.fingerprinted(&named);
    if let (Some(tokenizer), Some(tokenize)) = (&tokenizer, &options.columns.tokenize) {
        tokenizer.add_to(&mut config, tokenize);
    }
    let identity = Identity::new(config, source.description());
    let split_key = options.columns.split_key.as_ref();
    let split_key = split_key.and_then(|name| schema.index_of(name).ok());
    let splits = options.columns.splits().iter();
    let mut folders: Vec<String> = splits.map(|split| split.name.clone()).collect();
    if folders.is_empty() {
        folders.push(String::new());
    }
    let dest_state = match &increment {
        Some(increment) => {
            increment.check_config(&identity, &options)?;
            match increment.is_nothing() {
                true => DestState::Done,
                false => DestState::Behind,
            }
        }
        // A part inspects the destination when it runs.
        None if options.run.part.is_some() => DestState::Empty,
        None => match dest::inspect(&folders, &identity, &options, &Progress::new())? {
            Dest::Empty => DestState::Empty,
            Dest::Interrupted(found) => DestState::Interrupted {
                shards: found.shards(),
            },
            Dest::Done(_) => DestState::Done,
            Dest::Replaceable => DestState::Replaced,
        },
    };
    let split = Arc::new(SplitPlan::new(options.columns.splits(), split_key));
    Ok(ConvertPlan {
        columns: planned,
        dest_state,
        source,
        tokenizer,
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

/// Returns the column that provides the keys of tar samples. Without one, keys are numbers.
fn key_column(
    schema: &SchemaRef,
    source: &Arc<dyn Source>,
    options: &ConvertOptions,
) -> Result<Option<columns::Key>, Error> {
    if options.shards.to != ShardFormat::Webdataset {
        return Ok(None);
    }
    let name = &options.source.tree.key_column;
    let Ok(position) = schema.index_of(name) else {
        if *name == DEFAULT_KEY {
            return Ok(None);
        }
        let fact = format!("there is no column `{}`", escape(name));
        return Err(Error::option("config-key", fact));
    };
    let description = source.description();
    // The keys of a single tree are unique.
    let unique = description.kind == SourceKind::Tree
        && description.query.is_none()
        && options.sources.len() == 1
        && (options.columns.specs.iter()).all(|column| column.expr.is_none());
    Ok(Some(columns::Key {
        position,
        unique,
        is_field: *name != DEFAULT_KEY && options.columns.spec(name).is_some(),
    }))
}

/// Opens the source. For an increment, also returns the files that must be read.
fn open_source(options: &ConvertOptions) -> Result<(Arc<dyn Source>, Option<Increment>), Error> {
    let specs = options.columns.specs.iter();
    let specs = specs.map(|column| SelectColumn {
        name: column.name.clone(),
        expr: column.expr.clone(),
        is_rest: column.is_rest,
    });
    let mut selected: Vec<SelectColumn> = specs.collect();
    // The split key may determine the split without being stored.
    if let Some(key) = &options.columns.split_key
        && !selected.is_empty()
        && !selected.iter().any(|column| column.selects(key))
    {
        selected.push(SelectColumn::named(key));
    }
    let kind = match options.source.kind {
        Some(kind) => kind,
        None if options.sources.is_empty() => {
            return Err(other_option("source", "there is no source"));
        }
        None => shardmill_source::detect(&options.sources, &options.source.remote)?,
    };
    tokens::select(&mut selected, options)?;
    // Keys are read even if they do not become a field.
    if options.shards.to == ShardFormat::Webdataset
        && !selected.is_empty()
        && !selected
            .iter()
            .any(|column| column.selects(&options.source.tree.key_column))
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
    text.raw_objects = !options.shards.to.is_table() && options.source.query.sql.is_none();
    text.typed_columns = typed_columns(options);
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

/// Returns the source columns with a matching encoding that no query may use.
fn columns_as(options: &ConvertOptions, is_one: impl Fn(&str) -> bool) -> Vec<String> {
    let is_tar = options.shards.to == ShardFormat::Webdataset;
    let is_wanted = |column: &&ColumnSpec| match column.encoding.as_deref() {
        Some(encoding) => is_one(encoding),
        None => is_tar && column.name.rsplit('.').next() == Some("json") && is_one("json"),
    };
    let columns = options.columns.named().filter(is_wanted);
    let columns = columns.filter_map(source_column);
    columns
        .filter(|name| !options.source.query.mentions(name))
        .collect()
}

fn has_query(options: &ConvertOptions) -> bool {
    let query = &options.source.query;
    query.select.is_some() || query.filter.is_some() || query.sql.is_some()
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
    let encoded = options.columns.named().filter(|column| {
        let encoding = column.encoding.as_deref();
        encoding.is_some_and(|encoding| encoding != "json")
    });
    let mut typed: Vec<String> = encoded.filter_map(source_column).collect();
    let computed = options.columns.named().filter_map(|column| {
        let expr = column.expr.as_deref();
        expr.filter(|_| source_column(column).is_none())
    });
    let query = &options.source.query;
    let texts = query.select.iter().chain(&query.filter);
    for text in texts.map(String::as_str).chain(computed) {
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
        && options.columns.tokenize.is_none()
        && options.columns.specs.iter().all(is_plain)
        && !has_query(options)
        && options.columns.null_as.is_empty()
        && options.columns.split_key.is_none()
}

/// Returns whether a source has a key column that was not requested.
fn has_keys(kind: SourceKind, options: &ConvertOptions) -> Result<bool, Error> {
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
) -> Result<Option<usize>, Error> {
    let Some(key) = &options.columns.split_key else {
        return Ok(None);
    };
    let schema = source.schema();
    let Some((at, field)) = schema.column_with_name(key) else {
        let fact = format!("there is no column `{}`", escape(key));
        return Err(Error::option("config-split-key", fact));
    };
    if !can_be_key(field.data_type()) {
        let (key, data_type) = (escape(key), field.data_type());
        return Err(Error::option_hint(
            "config-split-key",
            format!("column `{key}` is of type {data_type}, which has no text"),
            "name a column of text, bytes, numbers, dates or times, or one of its fields with --select",
        ));
    }
    let is_written = options.columns.writes_rest() || options.columns.spec(key).is_some();
    Ok((!is_written).then_some(at))
}

/// Reports known nulls in all columns as one error before anything is written. The source's statistics show them.
fn refuse_known_nulls(
    source: &Arc<dyn Source>,
    encoders: &[shardmill_writer::ColumnEncoder],
    nulls: &NullPlan,
    options: &ConvertOptions,
) -> Result<(), Error> {
    if options.columns.nulls != Nulls::Error {
        return Ok(());
    }
    let schema = source.schema();
    let (mut shown_columns, mut hints) = (Vec::new(), Vec::new());
    for encoder in encoders.iter().filter(|encoder| !encoder.stores_null()) {
        let at = encoder.source();
        let Some(field) = schema.fields().get(at).filter(|_| nulls.leaves(at)) else {
            continue;
        };
        let Some(count) = source.null_count(at).filter(|count| *count > 0) else {
            continue;
        };
        hints.push(encoder.null_hint());
        // Finding the first null reads rows, so it is done for at most ten columns.
        if shown_columns.len() < 10 {
            // Options use this name; in tar files the field may have another one.
            let name = escape(field.name());
            let first = source.first_null(at)?;
            let first = first.map_or_else(String::new, |row| format!(", the first in {row}"));
            shown_columns.push(format!("column {name} has {count} nulls{first}"));
        }
    }
    if hints.is_empty() {
        return Ok(());
    }
    let mut reason = shown_columns.join(", ");
    let more = hints.len() - shown_columns.len();
    if more > 0 {
        reason = format!("{reason}, and {more} more columns have some");
    }
    let may_omit = options.shards.to == ShardFormat::Webdataset;
    let is_tree = source.description().kind == SourceKind::Tree;
    const GROUP: &str = "choose --group key where names have several extensions (1.seg.png), ";
    let choices = shardmill_writer::NullHint::for_all(&hints);
    let hint = match (may_omit, is_tree) {
        (true, true) => format!(
            "{GROUP}--nulls omit to omit fields from samples, --nulls mask, or --nulls drop"
        ),
        (true, false) => {
            "choose --nulls omit to omit the field of the sample, --nulls mask, --nulls drop, or --null-as NAME=VALUE".to_owned()
        }
        (false, true) => format!(
            "samples have different files: {}, or --group file to make every file a sample",
            choices.replacen("choose ", GROUP, 1)
        ),
        (false, false) => choices,
    };
    let sources: Vec<String> = options.sources.iter().map(shown).collect();
    Err(ConvertProblem::Nulls
        .at(sources.join(" "), reason)
        .with_hint(hint))
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
            tokenizer: self.tokenizer.as_ref(),
            content: None,
            order: None,
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

    /// Describes the tokenizer for messages: its file, and the number above its largest id.
    #[must_use]
    pub fn tokenizer(&self) -> Option<(String, u64)> {
        let tokenizer = self.tokenizer.as_ref()?;
        Some((tokenizer.shown(), tokenizer.ids))
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
        let columns = self.columns.iter().map(|column| {
            json!({
                "name": column.name,
                "type": column.data_type,
                "encoding": column.encoding,
                "nulls": column.nulls,
            })
        });
        let columns: Vec<Value> = columns.collect();
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
