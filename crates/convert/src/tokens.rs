//! A source whose text becomes tokens.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema, SchemaRef};
use serde_json::{Value, json};
use shardmill_core::{Error, escape};
use shardmill_source::{
    ENCODING_KEY, RowOrigin, Rows, SelectColumn, Source, TableFacts, bug, map_rows,
};
use shardmill_tokenize::{ColumnTokenizer, EmptyTokens, TextKind, TokenOptions, Tokenizer};
use shardmill_writer::ShardFormat;

use crate::options::{ConvertOptions, Nulls, TokenizeOptions};

/// The tokenizer of a conversion, as its configuration and its provenance name it.
pub(crate) struct TokenizerFile {
    /// The name of the file, without its folder.
    name: String,
    sha256: String,
    /// The number above the largest id.
    pub(crate) ids: u64,
    /// The column that is tokenized.
    text: String,
    tokens: String,
}

impl TokenizerFile {
    /// Adds what decides the tokens to the configuration of a conversion.
    pub(crate) fn add_to(&self, config: &mut Value, options: &TokenizeOptions) {
        let Value::Object(config) = config else {
            return;
        };
        config.insert("tokenizer".to_owned(), json!(self.digest()));
        let choices = json!({
            "text": self.text,
            "tokens": options.tokens(),
            "special_tokens": options.special_tokens,
            "prepend": options.prepend,
            "append": options.append,
        });
        config.insert("tokenize".to_owned(), choices);
    }

    /// Returns the entry of a provenance file.
    pub(crate) fn provenance(&self) -> Value {
        json!({"file": self.name, "hash": self.digest(), "text": self.text, "tokens": self.tokens})
    }

    /// Returns the name and the digest of the file, for the plan.
    pub(crate) fn shown(&self) -> String {
        let digest = self.sha256.get(..12).unwrap_or_default();
        format!("{}, sha256:{digest}…", escape(&self.name))
    }

    fn digest(&self) -> String {
        format!("sha256:{}", self.sha256)
    }
}

/// The columns to select from the source when its text is tokenized: `selected` without the column of tokens, and with
/// the text.
pub(crate) fn select(
    selected: &mut Vec<SelectColumn>,
    options: &ConvertOptions,
) -> Result<(), Error> {
    let Some(tokenize) = &options.columns.tokenize else {
        return Ok(());
    };
    if selected.is_empty() {
        return Ok(());
    }
    selected.retain(|column| column.name != tokenize.tokens() || column.expr.is_some());
    match &tokenize.text {
        Some(text) if !selected.iter().any(|column| column.selects(text)) => {
            selected.push(SelectColumn::named(text));
        }
        None if selected.is_empty() => {
            return Err(Error::option_hint(
                "config-text",
                "the columns to write do not include the text to tokenize",
                "name its column with --text",
            ));
        }
        Some(_) | None => {}
    }
    Ok(())
}

/// Returns the columns whose lengths are kept: the requested ones, and the tokens if the format keeps lengths.
pub(crate) fn with_lengths(options: &ConvertOptions) -> Vec<String> {
    let mut columns = options.columns.lengths.clone();
    let is_kept = options.shards.to == ShardFormat::Mds && options.run.part.is_none();
    if let Some(tokenize) = options.columns.tokenize.as_ref().filter(|_| is_kept)
        && !columns.iter().any(|column| column == tokenize.tokens())
    {
        columns.push(tokenize.tokens().to_owned());
    }
    columns
}

/// A source with tokens, their tokenizer, and the position of the text if that column is read but not written.
pub(crate) type Tokenized = (Arc<dyn Source>, TokenizerFile, Option<usize>);

/// Adds the tokens of the text to a source, and removes the text unless it is needed.
pub(crate) fn tokenized(
    source: Arc<dyn Source>,
    tokenize: &TokenizeOptions,
    options: &ConvertOptions,
) -> Result<Tokenized, Error> {
    let schema = source.schema();
    let text = text_column(&schema, tokenize, options)?;
    let field = schema.field(text);
    let name = tokenize.tokens();
    let is_written = tokenize.keep_text || options.columns.spec(field.name()).is_some();
    // The text may decide the split or be the key, and not be written.
    let is_read = is_written
        || options.columns.split_key.as_ref() == Some(field.name())
        || options.shards.to == ShardFormat::Webdataset
            && options.source.tree.key_column == *field.name();
    let is_taken =
        |(at, field): (usize, &Arc<Field>)| field.name() == name && (is_read || at != text);
    if schema.fields().iter().enumerate().any(is_taken) {
        return Err(Error::option_hint(
            "config-tokens",
            format!("the source already has a column `{}`", escape(name)),
            "choose another name with --tokens",
        ));
    }
    let tokenizer = Tokenizer::open(
        &tokenize.file,
        &TokenOptions {
            special_tokens: tokenize.special_tokens,
            prepend: tokenize.prepend.clone(),
            append: tokenize.append.clone(),
        },
    )?;
    let file = TokenizerFile {
        name: tokenize.file.file_name().map_or_else(
            || tokenize.file.display().to_string(),
            |name| name.to_string_lossy().into_owned(),
        ),
        sha256: tokenizer.sha256().to_owned(),
        ids: tokenizer.ids(),
        text: field.name().clone(),
        tokens: name.to_owned(),
    };
    // An array of MDS has at least one element.
    let spec = options.columns.spec(name);
    let encoding = spec.and_then(|spec| spec.encoding.as_deref());
    let is_array = options.shards.to == ShardFormat::Mds
        && encoding.is_none_or(|encoding| encoding.starts_with("ndarray"));
    let empty = match options.columns.nulls {
        _ if !is_array => EmptyTokens::Keep,
        Nulls::Drop | Nulls::Mask => EmptyTokens::Null,
        Nulls::Error | Nulls::Omit => EmptyTokens::Refuse,
    };
    let jobs = options.source.resources.jobs;
    let tokenizer = ColumnTokenizer::new(tokenizer, field.name().clone(), empty, jobs);
    let may_be_null = empty == EmptyTokens::Null;
    let is_nullable = field.is_nullable() || may_be_null;
    let tokens = Arc::new(Field::new(name, tokenizer.data_type(), is_nullable));
    let mut fields: Vec<Arc<Field>> = schema.fields().iter().cloned().collect();
    match is_read {
        true => fields.push(tokens),
        false => fields[text] = tokens,
    }
    let position = if is_read { fields.len() - 1 } else { text };
    // A text that is not null may have no tokens, which makes them null.
    let mut null_counts = source.facts().null_counts.clone();
    null_counts.resize(fields.len(), None);
    null_counts[position] = source.null_count(text).filter(|_| !may_be_null);
    let schema = Arc::new(Schema::new(fields));
    let source = TokenSource {
        position,
        facts: source.facts().with_columns(schema, null_counts),
        tokenizer: Arc::new(tokenizer),
        source,
        text,
    };
    let hidden = (is_read && !is_written).then_some(text);
    Ok((Arc::new(source), file, hidden))
}

/// Returns the position of the column to tokenize: the named one, or the only one of text.
fn text_column(
    schema: &SchemaRef,
    tokenize: &TokenizeOptions,
    options: &ConvertOptions,
) -> Result<usize, Error> {
    let fields = schema.fields();
    let texts = fields.iter().enumerate().filter(|(_, field)| {
        TextKind::of(field.data_type()) == Some(TextKind::Text)
            && !field.metadata().contains_key(ENCODING_KEY)
            && *field.name() != options.source.tree.key_column
    });
    let texts: Vec<(usize, &Arc<Field>)> = texts.collect();
    let listed = || {
        let names = texts.iter().map(|(_, field)| escape(field.name()));
        match names.collect::<Vec<_>>() {
            names if names.is_empty() => "no column holds text".to_owned(),
            names => format!("the columns of text are {}", names.join(", ")),
        }
    };
    let Some(name) = &tokenize.text else {
        return match texts.as_slice() {
            [(at, _)] => Ok(*at),
            [] => Err(Error::option_hint(
                "config-text",
                "no column holds text",
                "name a column of UTF-8 bytes with --text, or compute one with --select",
            )),
            _ => Err(Error::option_hint(
                "config-text",
                format!("{} columns hold text", texts.len()),
                format!("name one with --text: {}", listed()),
            )),
        };
    };
    let Some(at) = fields.iter().position(|field| field.name() == name) else {
        let fact = format!("there is no column `{}`", escape(name));
        return Err(Error::option_hint("config-text", fact, listed()));
    };
    let data_type = fields[at].data_type();
    match TextKind::of(data_type) {
        Some(_) => Ok(at),
        None => {
            let fact = format!("column `{}` has type {data_type}, not text", escape(name));
            Err(Error::option_hint("config-text", fact, listed()))
        }
    }
}

/// A source with a column of tokens.
struct TokenSource {
    source: Arc<dyn Source>,
    tokenizer: Arc<ColumnTokenizer>,
    facts: TableFacts,
    /// The position of the text in the source.
    text: usize,
    /// The position of the tokens: that of the text if they replace it.
    position: usize,
}

impl Source for TokenSource {
    fn facts(&self) -> &TableFacts {
        &self.facts
    }

    fn prepare(&self, cancel: &(dyn Fn() -> bool + Sync)) -> Result<bool, Error> {
        self.source.prepare(cancel)
    }

    fn open(&self, unit: usize, columns: &[usize]) -> Result<Box<dyn Rows>, Error> {
        let (source, tokenizer) = (Arc::clone(&self.source), Arc::clone(&self.tokenizer));
        let (schema, columns) = (self.schema(), columns.to_vec());
        let (text, is_replaced) = (self.text, self.text == self.position);
        let mut first = 0;
        Ok(map_rows(self.source.open_unit(unit)?, move |batch| {
            let bug = || bug("the columns of a batch are not those of the schema");
            let mut arrays = batch.columns().to_vec();
            let texts = arrays.get_mut(text).ok_or_else(bug)?;
            let describe_row = |row: usize| source.row_origin(unit, first + row as u64).to_string();
            let tokens = tokenizer.encode(texts, describe_row);
            let tokens = tokens?;
            match is_replaced {
                true => *texts = tokens,
                false => arrays.push(tokens),
            }
            first += batch.num_rows() as u64;
            let batch = RecordBatch::try_new(Arc::clone(&schema), arrays);
            let batch = batch.and_then(|batch| batch.project(&columns));
            batch.map_err(|_| bug())
        }))
    }

    fn first_null(&self, column: usize) -> Result<Option<RowOrigin>, Error> {
        let is_tokens = column == self.position;
        self.source
            .first_null(if is_tokens { self.text } else { column })
    }

    fn row_origin(&self, unit: usize, row: u64) -> RowOrigin {
        self.source.row_origin(unit, row)
    }
}
