//! Reads the chunks of LitData: an `index.json`, and files of items or of Arrow rows.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryBuilder, BooleanBuilder, Float64Builder, Int64Builder, RecordBatch,
    StringBuilder,
};
use arrow::buffer::MutableBuffer;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use serde_json::Value;
use shardmill_core::catch_panic::one_line;
use shardmill_core::{DType, escape};
use shardmill_records::{
    Chunk, Leaf, LeafArray, LeafKind, RecordError, chunk, decode_leaf, leaves,
};
use shardmill_storage::Location;

use crate::base::{Base, TableFacts, batch, pick, project, rows_from};
use crate::files::{InputFile, describe, file_of_unit, list_tables};
use crate::ipc::read_embedded;
use crate::lists::{lists_of_numbers, number_type};
use crate::{Rows, SourceError, SourceKind, SourceOptions, SourceProblem, Unit};

const INDEX: &str = "index.json";

/// A table of LitData chunks.
pub(crate) struct LitdataTable {
    /// Each chunk is a unit.
    facts: TableFacts,
    files: Vec<InputFile>,
    set: Arc<Set>,
    options: SourceOptions,
}

/// How the items of all chunks are stored.
#[derive(Debug, PartialEq)]
struct Set {
    packing: Packing,
    /// The names and the kinds of the leaves.
    leaves: Vec<(String, Result<LeafKind, String>)>,
    /// Whether an item is its only leaf, without sizes.
    is_bare: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Packing {
    /// Items are not compressed, or in frames.
    Plain,
    /// Whole files are compressed with zstd.
    File,
    /// Each item is compressed with zstd.
    Item,
}

fn wrong_index(index: &InputFile, reason: impl Into<String>) -> SourceError {
    SourceProblem::LitdataIndex.at(&index.shown, reason)
}

fn unsupported(file: &InputFile, reason: impl Into<String>) -> SourceError {
    SourceProblem::Unsupported.at(&file.shown, reason)
}

/// Lists the chunks and finds their columns.
pub(crate) fn open(
    locations: &[Location],
    options: &SourceOptions,
) -> Result<LitdataTable, SourceError> {
    let listed = list_tables(locations, SourceKind::Litdata, options)?;
    let by_name: BTreeMap<&str, &InputFile> = listed
        .iter()
        .map(|file| (file.shown.as_str(), file))
        .collect();
    let (mut files, mut units) = (Vec::new(), Vec::new());
    let mut set: Option<(Set, &InputFile)> = None;
    let mut rows = 0;
    for index in listed.iter().filter(|file| is_index(file)) {
        let value = read_index(index, options)?;
        let own = set_of(index, &value["config"])?;
        if let Some((first, of)) = &set
            && own != *first
        {
            let reason = format!("its items are not those of {}", escape(&of.shown));
            return Err(wrong_index(index, reason));
        }
        set.get_or_insert((own, index));
        let folder = index.shown.strip_suffix(INDEX).unwrap_or_default();
        let chunks = value["chunks"].as_array();
        for chunk in chunks.ok_or_else(|| wrong_index(index, "it lists no chunks"))? {
            let (name, count) = (chunk["filename"].as_str(), chunk["chunk_size"].as_u64());
            let (Some(name), Some(count)) = (name, count) else {
                return Err(wrong_index(index, "a chunk has no name or number of items"));
            };
            let path = format!("{folder}{name}");
            let file = by_name.get(path.as_str()).copied();
            let file = file.ok_or_else(|| {
                wrong_index(index, format!("the chunk {} does not exist", escape(name)))
            })?;
            units.push(Unit {
                file: Some(files.len()),
                first_row: Some(0),
                rows: Some(count),
                bytes: file.file_version.bytes,
            });
            files.push(file.clone());
            rows += count;
        }
    }
    let Some((set, index)) = set else {
        let location = listed.first().map_or("", |file| &file.shown);
        return Err(SourceProblem::LitdataIndex.at(location, "there is no index.json of LitData"));
    };
    let mut table = LitdataTable {
        facts: TableFacts {
            schema: Arc::new(Schema::empty()),
            units,
            null_counts: Vec::new(),
            description: describe(SourceKind::Litdata, &files, Some(rows)),
        },
        files,
        set: Arc::new(set),
        options: options.clone(),
    };
    let schema = table.find_schema(index)?;
    let null_count = |field: &FieldRef| (!field.is_nullable()).then_some(0);
    table.facts.null_counts = schema.fields().iter().map(null_count).collect();
    table.facts.schema = schema;
    Ok(table)
}

fn is_index(file: &InputFile) -> bool {
    file.relative.rsplit('/').next() == Some(INDEX)
}

fn read_index(index: &InputFile, options: &SourceOptions) -> Result<Value, SourceError> {
    let size = index.file_version.bytes;
    index.check_limit("index-bytes", size, options.limits.index_bytes)?;
    let bytes = read_whole(index)?;
    serde_json::from_slice(&bytes).map_err(|error| wrong_index(index, error.to_string()))
}

/// Reads a whole file. The caller has compared its size with a limit.
fn read_whole(input: &InputFile) -> Result<Vec<u8>, SourceError> {
    let file = input.open()?;
    let size = usize::try_from(input.file_version.bytes).unwrap_or(usize::MAX);
    let mut bytes = vec![0; size];
    input.read_at(&file, &mut bytes, 0)?;
    input.check(&file)?;
    Ok(bytes)
}

/// Finds out how items are stored, from the configuration of an index.
fn set_of(index: &InputFile, config: &Value) -> Result<Set, SourceError> {
    if !config["encryption"].is_null() {
        return Err(unsupported(index, "its chunks are encrypted"));
    }
    let loader = config["item_loader"].as_str().unwrap_or("PyTreeLoader");
    let is_bare = match loader {
        "PyTreeLoader" => false,
        "TokensLoader" => true,
        _ => {
            let reason = format!("its chunks are for the item loader {}", escape(loader));
            let error = unsupported(index, reason);
            return Err(match loader {
                "ParquetLoader" => error.with_hint("read its files with --from parquet"),
                _ => error,
            });
        }
    };
    let compression = config["compression"].as_str();
    let codec = compression.map(|name| name.split(':').next().unwrap_or_default());
    let packing = match (codec, config["compression_level"].as_str()) {
        (None, _) | (Some("zstd"), Some("batch")) => Packing::Plain,
        (Some("zstd"), None | Some("chunk")) => Packing::File,
        (Some("zstd"), Some("sample")) => Packing::Item,
        (Some(codec), level) => {
            let level = level.unwrap_or_default();
            let reason = format!("its compression is {} {}", escape(codec), escape(level));
            return Err(unsupported(index, reason.trim_end()));
        }
    };
    let formats = config["data_format"].as_array();
    let formats = formats.ok_or_else(|| wrong_index(index, "it has no data_format"))?;
    let mut names = Vec::new();
    match config["data_spec"]
        .as_str()
        .map(serde_json::from_str::<Value>)
    {
        Some(Ok(spec)) => add_names(&spec[1], "", &mut names),
        Some(Err(_)) => {}
        None => names = (0..formats.len()).map(|at| at.to_string()).collect(),
    }
    if let [name] = names.as_mut_slice()
        && name.is_empty()
    {
        *name = if is_bare { "tokens" } else { "value" }.to_owned();
    }
    if names.len() != formats.len() {
        let reason =
            "its data_spec is unknown or has another number of leaves than its data_format";
        return Err(wrong_index(index, reason));
    }
    SourceError::check_names(names.iter().map(String::as_str), || index.shown.clone())?;
    let kind = |format: &Value| {
        let format = format.as_str().unwrap_or_default();
        LeafKind::of(format).ok_or_else(|| format.to_owned())
    };
    Ok(Set {
        packing,
        leaves: names.into_iter().zip(formats.iter().map(kind)).collect(),
        is_bare,
    })
}

/// Adds the names of the leaves of a tree of Python objects. The context of a dictionary has its keys.
fn add_names(spec: &Value, prefix: &str, names: &mut Vec<String>) {
    let children = spec["children_spec"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    if spec["type"].is_null() {
        names.push(prefix.to_owned());
        return;
    }
    let context = spec["context"].as_str().map(serde_json::from_str::<Value>);
    let keys = context.and_then(Result::ok);
    for (at, child) in children.iter().enumerate() {
        let key = keys.as_ref().and_then(|keys| keys.get(at));
        let key = match key {
            Some(Value::String(key)) => key.clone(),
            Some(key) => key.to_string(),
            None => at.to_string(),
        };
        let name = match prefix {
            "" => key,
            _ => format!("{prefix}.{key}"),
        };
        add_names(child, &name, names);
    }
}

/// Returns the type of nested lists of numbers.
fn lists(number: DType, dimensions: usize) -> DataType {
    (0..dimensions).fold(number_type(number), |inner, _| {
        DataType::List(Arc::new(Field::new_list_field(inner, false)))
    })
}

impl LitdataTable {
    /// Finds the columns, in the index and in the first item.
    fn find_schema(&self, index: &InputFile) -> Result<SchemaRef, SourceError> {
        let mut chunks = self.files.iter().zip(self.units());
        let Some((input, unit)) = chunks.find(|(_, unit)| unit.rows > Some(0)) else {
            return Err(wrong_index(index, "its chunks have no items"));
        };
        let mut rows = self.rows(input, unit.rows, &[])?;
        if let Content::Arrow(batches) = &rows.content {
            let schema = batches.first().map(RecordBatch::schema);
            return schema.ok_or_else(|| {
                rows.wrong(RecordError::Chunk {
                    reason: "its Arrow file has no rows",
                })
            });
        }
        for (name, kind) in &self.set.leaves {
            if let Err(format) = kind {
                let name = escape(name);
                let reason = match format.as_str() {
                    "pickle" | "graph" | "graph:pickle" => format!(
                        "`{name}` is pickled, and unpickling runs code that the file chooses"
                    ),
                    other => format!("`{name}` has the data_format {}", escape(other)),
                };
                let hint = "write the chunks again with numbers, text, bytes, arrays or tensors";
                return Err(unsupported(index, reason).with_hint(hint));
            }
        }
        let item = rows.next_item()?.unwrap_or_default();
        let leaves = rows.leaves(&item)?;
        let fields = self.set.leaves.iter().zip(leaves).map(|((name, _), leaf)| {
            let data_type = match leaf {
                Leaf::Int(_) => DataType::Int64,
                Leaf::Float(_) => DataType::Float64,
                Leaf::Bool(_) => DataType::Boolean,
                Leaf::Str(_) => DataType::Utf8,
                Leaf::Bytes(_) => DataType::Binary,
                Leaf::Array(array) => lists(array.number, array.shape.len()),
            };
            Field::new(name, data_type, false)
        });
        Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
    }

    /// Reads a chunk.
    fn rows(
        &self,
        input: &InputFile,
        items: Option<u64>,
        columns: &[usize],
    ) -> Result<LitdataRows, SourceError> {
        let items = items.unwrap_or_default();
        let limit = self.options.limits.shard_bytes;
        input.check_limit("shard-bytes", input.file_version.bytes, limit)?;
        let mut bytes = read_whole(input)?;
        if self.set.packing == Packing::File {
            bytes = unpack(input, "the chunk", &bytes, limit)?;
            input.check_limit("shard-bytes", bytes.len() as u64, limit)?;
        }
        let mut rows = LitdataRows {
            input: input.clone(),
            set: Arc::clone(&self.set),
            schema: Arc::clone(self.schema()),
            columns: columns.to_vec(),
            content: Content::Arrow(Vec::new()),
            next: 0,
            batch_bytes: self.options.resources.batch_bytes,
            item_limit: self.options.limits.sample_bytes,
        };
        let found = chunk(&bytes, items).map_err(|error| rows.wrong(error))?;
        rows.content = match found {
            Chunk::Arrow(file) => Content::Arrow(arrow_rows(input, file, items, &self.options)?),
            Chunk::Items(bounds, frames) => {
                let mut content = Vec::new();
                let total: u64 = frames
                    .iter()
                    .map(|frame| frame.unpacked.unwrap_or(frame.bytes.len()) as u64)
                    .sum();
                input.check_limit("shard-bytes", total, limit)?;
                for frame in frames {
                    match frame.unpacked {
                        None => content.extend_from_slice(frame.bytes),
                        Some(size) => {
                            let part_name = format!("the frame at byte {}", frame.offset);
                            let unpacked = unpack(input, &part_name, frame.bytes, size as u64)?;
                            if unpacked.len() != size {
                                let reason =
                                    format!("{part_name} has {} bytes, not {size}", unpacked.len());
                                return Err(SourceProblem::LitdataChunk.at(&input.shown, reason));
                            }
                            content.extend(unpacked);
                        }
                    }
                }
                Content::Items(bounds, content)
            }
        };
        Ok(rows)
    }
}

/// Decompresses bytes with zstd, to at most one byte more than a number of bytes.
fn unpack(
    input: &InputFile,
    part_name: &str,
    bytes: &[u8],
    max: u64,
) -> Result<Vec<u8>, SourceError> {
    let failed = |error: std::io::Error| {
        let reason = format!(
            "{part_name} does not decompress: {}",
            one_line(&error.to_string())
        );
        SourceProblem::Compression.at(&input.shown, reason)
    };
    let mut out = Vec::new();
    let reader = zstd::stream::read::Decoder::new(bytes).map_err(failed)?;
    reader
        .take(max.saturating_add(1))
        .read_to_end(&mut out)
        .map_err(failed)?;
    Ok(out)
}

/// Decodes the Arrow file of a chunk.
fn arrow_rows(
    input: &InputFile,
    file: &[u8],
    items: u64,
    options: &SourceOptions,
) -> Result<Vec<RecordBatch>, SourceError> {
    let batches = read_embedded(input, file, options)?;
    let rows: u64 = batches.iter().map(|batch| batch.num_rows() as u64).sum();
    if rows == items {
        return Ok(batches);
    }
    let reason = format!("its Arrow file has {rows} rows, the index says {items}");
    Err(SourceProblem::LitdataChunk.at(&input.shown, reason))
}

/// The decompressed content of a chunk.
enum Content {
    /// The bounds of items, and their bytes.
    Items(Vec<u32>, Vec<u8>),
    /// The rows that follow.
    Arrow(Vec<RecordBatch>),
}

struct LitdataRows {
    input: InputFile,
    set: Arc<Set>,
    schema: SchemaRef,
    columns: Vec<usize>,
    content: Content,
    /// The number of the next item or batch.
    next: usize,
    batch_bytes: usize,
    item_limit: u64,
}

impl LitdataRows {
    fn wrong(&self, error: RecordError) -> SourceError {
        SourceProblem::LitdataChunk.at(&self.input.shown, error.to_string())
    }

    /// Returns the bytes of the next item; `None` at the end.
    fn next_item(&mut self) -> Result<Option<Vec<u8>>, SourceError> {
        let Content::Items(bounds, bytes) = &self.content else {
            return Ok(None);
        };
        let Some([start, end]) = bounds.get(self.next..).and_then(|rest| rest.first_chunk()) else {
            return Ok(None);
        };
        let item_name = format!("item {} at byte {start}", self.next);
        self.next += 1;
        let item = bytes.get(*start as usize..*end as usize);
        let item = item.ok_or_else(|| {
            SourceProblem::LitdataChunk.at(
                &self.input.shown,
                format!("{item_name}: the chunk ends before it"),
            )
        })?;
        let limit = || format!("{} {item_name}", self.input.shown);
        SourceError::check_limit("sample-bytes", item.len() as u64, self.item_limit, limit)?;
        match self.set.packing {
            Packing::Item => {
                let item = unpack(&self.input, &item_name, item, self.item_limit)?;
                SourceError::check_limit(
                    "sample-bytes",
                    item.len() as u64,
                    self.item_limit,
                    limit,
                )?;
                Ok(Some(item))
            }
            _ => Ok(Some(item.to_vec())),
        }
    }

    /// Decodes the item before the next one.
    fn leaves<'a>(&self, item: &'a [u8]) -> Result<Vec<Leaf<'a>>, SourceError> {
        let decode = || -> Result<Vec<Leaf<'a>>, RecordError> {
            let parts = match self.set.is_bare {
                true => vec![item],
                false => leaves(item, self.set.leaves.len())?,
            };
            let kinds = self
                .set
                .leaves
                .iter()
                .filter_map(|(_, kind)| kind.as_ref().ok());
            kinds
                .zip(parts)
                .map(|(kind, part)| decode_leaf(*kind, part))
                .collect()
        };
        decode().map_err(|error| self.item_error(&error.to_string()))
    }

    fn item_error(&self, reason: &str) -> SourceError {
        let number = self.next.saturating_sub(1);
        SourceProblem::LitdataChunk.at(&self.input.shown, format!("item {number}: {reason}"))
    }

    fn pull(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        if let Content::Arrow(batches) = &self.content {
            let Some(found) = batches.get(self.next) else {
                return Ok(None);
            };
            self.next += 1;
            let own = found.schema();
            if own.fields() != self.schema.fields() {
                let reason =
                    "its Arrow file has other columns or types than that of the first chunk";
                return Err(SourceProblem::LitdataChunk.at(&self.input.shown, reason));
            }
            let schema = project(&self.schema, &self.columns);
            return pick(found, &self.columns, &schema).map(Some);
        }
        let types = self
            .columns
            .iter()
            .map(|at| self.schema.field(*at).data_type().clone());
        let mut builders: Vec<Builder> = types.map(|data_type| Builder::new(&data_type)).collect();
        let (mut rows, mut bytes) = (0, 0);
        while bytes < self.batch_bytes
            && let Some(item) = self.next_item()?
        {
            let found = self.leaves(&item)?;
            for (at, builder) in self.columns.iter().zip(&mut builders) {
                let leaf = found.get(*at);
                if !leaf.is_some_and(|leaf| builder.add(leaf)) {
                    let field = self.schema.field(*at);
                    return Err(self.item_error(&format!(
                        "`{}` is not {}, as in the first item",
                        escape(field.name()),
                        field.data_type()
                    )));
                }
            }
            rows += 1;
            bytes += item.len().max(1);
        }
        if rows == 0 {
            return Ok(None);
        }
        let columns = builders.into_iter().map(Builder::finish);
        let columns = columns.collect::<Result<Vec<ArrayRef>, _>>();
        let columns = columns.map_err(|error| SourceError::bug(error.to_string()))?;
        batch(&project(&self.schema, &self.columns), columns, rows).map(Some)
    }
}

/// Builds a column.
enum Builder {
    Int(Int64Builder),
    Float(Float64Builder),
    Bool(BooleanBuilder),
    Str(StringBuilder),
    Bytes(BinaryBuilder),
    /// The type, the lengths of the lists of each level, and the numbers.
    Array(DataType, Vec<Vec<usize>>, MutableBuffer),
}

impl Builder {
    fn new(data_type: &DataType) -> Self {
        match data_type {
            DataType::Int64 => Self::Int(Int64Builder::new()),
            DataType::Float64 => Self::Float(Float64Builder::new()),
            DataType::Boolean => Self::Bool(BooleanBuilder::new()),
            DataType::Utf8 => Self::Str(StringBuilder::new()),
            DataType::Binary => Self::Bytes(BinaryBuilder::new()),
            other => Self::Array(other.clone(), Vec::new(), MutableBuffer::new(0)),
        }
    }

    /// Adds a value. Returns `false` if it has another type.
    fn add(&mut self, leaf: &Leaf<'_>) -> bool {
        match (self, leaf) {
            (Self::Int(builder), Leaf::Int(value)) => builder.append_value(*value),
            (Self::Float(builder), Leaf::Float(value)) => builder.append_value(*value),
            (Self::Bool(builder), Leaf::Bool(value)) => builder.append_value(*value),
            (Self::Str(builder), Leaf::Str(value)) => builder.append_value(value),
            (Self::Bytes(builder), Leaf::Bytes(value)) => builder.append_value(value),
            (Self::Array(data_type, levels, bytes), Leaf::Array(array)) => {
                let LeafArray {
                    number,
                    shape,
                    data,
                } = array;
                if *data_type != lists(*number, shape.len()) {
                    return false;
                }
                levels.resize(shape.len(), Vec::new());
                let mut count = 1;
                for (length, level) in shape.iter().zip(levels) {
                    level.extend(std::iter::repeat_n(*length, count));
                    count = count.saturating_mul(*length);
                }
                bytes.extend_from_slice(data);
            }
            _ => return false,
        }
        true
    }

    fn finish(self) -> Result<ArrayRef, ArrowError> {
        Ok(match self {
            Self::Int(mut builder) => Arc::new(builder.finish()),
            Self::Float(mut builder) => Arc::new(builder.finish()),
            Self::Bool(mut builder) => Arc::new(builder.finish()),
            Self::Str(mut builder) => Arc::new(builder.finish()),
            Self::Bytes(mut builder) => Arc::new(builder.finish()),
            Self::Array(data_type, levels, bytes) => {
                return lists_of_numbers(&data_type, levels, bytes);
            }
        })
    }
}

impl Base for LitdataTable {
    fn facts(&self) -> &TableFacts {
        &self.facts
    }

    fn open(&self, unit: usize, columns: &[usize]) -> Result<Box<dyn Rows>, SourceError> {
        let input = file_of_unit(&self.files, self.units(), unit)?;
        let items = self.units().get(unit).and_then(|unit| unit.rows);
        let mut rows = self.rows(input, items, columns)?;
        Ok(rows_from(move || rows.pull()))
    }
}
