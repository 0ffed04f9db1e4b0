//! Reads an existing dataset as a source: to change its shards, compression or hashes, or to convert it to another
//! format.
//!
//! Numbers and text become Arrow columns of their type. Values without a better Arrow type (arrays, images, pickles)
//! remain bytes and are marked as encoded, so that writing them again copies them.

use std::collections::HashMap;
use std::iter::{Flatten, Peekable};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayData, ArrayRef, AsArray as _, BinaryBuilder, StringBuilder, make_array,
};
use arrow::buffer::MutableBuffer;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use shardmill_core::{Diagnostic, Error, ErrorKind, parallel};
use shardmill_dataset::{Dataset, DatasetError, OpenOptions, Shard, View};
use shardmill_mds::{Encoding, Layout, SampleValue, ShardConfig, TextEncoding, TextValue};
use shardmill_source::{
    Rows, Source, SourceDescription, SourceFile, SourceKind, SourceOptions, TableFacts, Unit, bug,
    project,
};
use shardmill_storage::Location;
use shardmill_writer::{ENCODED_KEY, ENCODED_TEXT, ENCODING_KEY, number_type};
use xxhash_rust::xxh3::xxh3_128;

use crate::error::other_option;

/// The maximum number of samples of a batch, and the size in bytes at which it ends earlier.
pub(crate) const BATCH_SAMPLES: u64 = 8192;
pub(crate) const BATCH_BYTES: usize = 1 << 20;

/// Opens the samples of datasets as one source, with all columns and rows. All their shards must have the same columns.
pub(crate) fn samples(
    locations: &[Location],
    options: &SourceOptions,
) -> Result<Arc<dyn Source>, Error> {
    let view = options.samples.view.as_ref();
    let open_options = OpenOptions {
        limits: options.limits.clone(),
        with_deleted: options.samples.with_deleted,
        view: view
            .map(|view| View::read(view, &options.remote).map(Arc::new))
            .transpose()?,
        ..OpenOptions::default()
    };
    let datasets = locations.iter().map(|location| {
        let dataset = Dataset::open_at(location, &open_options, &options.remote);
        dataset.map(Arc::new)
    });
    let datasets = datasets.collect::<Result<Vec<_>, _>>()?;
    // Integers in the text formats have any size. Expressions need 64-bit numbers.
    let computes = options.query.computes();
    let jobs = options.resources.jobs;
    Ok(Arc::new(MdsSource::new(datasets, computes, jobs)?))
}

/// Returns whether the first of these datasets has a column with this name.
pub(crate) fn has_column(
    locations: &[Location],
    name: &str,
    options: &SourceOptions,
) -> Result<bool, Error> {
    let Some(location) = locations.first() else {
        return Ok(false);
    };
    let open_options = OpenOptions {
        limits: options.limits.clone(),
        // Deletions do not affect the columns.
        with_deleted: true,
        ..OpenOptions::default()
    };
    let dataset = Dataset::open_at(location, &open_options, &options.remote)?;
    let config = dataset.index().shards.first().map(|entry| &entry.config);
    Ok(config.is_some_and(|config| schema(config, false).field_with_name(name).is_ok()))
}

/// Datasets in order. Each shard is a unit.
struct MdsSource {
    datasets: Vec<Arc<Dataset>>,
    /// The dataset and the shard of each unit.
    shards: Vec<(usize, usize)>,
    facts: TableFacts,
}

impl MdsSource {
    fn new(datasets: Vec<Arc<Dataset>>, computes: bool, jobs: usize) -> Result<Self, Error> {
        let mut description = SourceDescription::new(SourceKind::Mds);
        let mut shards = Vec::new();
        let mut units = Vec::new();
        let mut rows = 0_u64;
        let mut first: Option<(&ShardConfig, &Path)> = None;
        let mut identity = Vec::new();
        for (number, dataset) in datasets.iter().enumerate() {
            let mut bytes = 0;
            for (shard, entry) in dataset.index().shards.iter().enumerate() {
                match first {
                    None => first = Some((&entry.config, dataset.index_path())),
                    Some((config, path)) if !same_columns(config, &entry.config) => {
                        return Err(other_option(
                            "from",
                            format!(
                                "the columns of shard {shard} of {} are not those of {}",
                                dataset.index_path().display(),
                                path.display()
                            ),
                        )
                        .with_hint("convert datasets with different columns one by one"));
                    }
                    Some(_) => {}
                }
                let samples = dataset.samples_of(shard);
                // A shard without a live sample is not read.
                if samples == 0 && entry.samples > 0 {
                    continue;
                }
                let stored = entry.stored().map(|file| file.bytes);
                let stored = stored.fold(0, u64::saturating_add);
                units.push(Unit {
                    file: Some(number),
                    first_row: Some(dataset.first_sample(shard)),
                    rows: Some(samples),
                    bytes: stored,
                });
                shards.push((number, shard));
                rows += samples;
                bytes += stored;
            }
            identity.extend_from_slice(dataset.index().to_json().as_bytes());
            identity.push(0);
            for version in versions(dataset, jobs)? {
                identity.extend_from_slice(&version);
                identity.push(0);
            }
            if let Some(digest) = dataset.live().digest() {
                identity.extend_from_slice(&digest);
            }
            description.deleted_samples += dataset.deleted();
            description.bytes += bytes;
            description.files.push(SourceFile {
                path: dataset.index_path().display().to_string(),
                bytes,
            });
        }
        let Some((config, _)) = first else {
            return Err(other_option(
                "source",
                "the dataset has no shards, so its columns are not known",
            ));
        };
        let schema = Arc::new(schema(config, computes));
        description.rows = Some(rows);
        description.fingerprint = format!("{:032x}", xxh3_128(&identity));
        Ok(Self {
            datasets,
            shards,
            facts: TableFacts {
                units,
                null_counts: vec![Some(0); schema.fields().len()],
                schema,
                description,
            },
        })
    }
}

/// Returns the file versions of shards without a hash, to detect replaced shards. A shard with a hash is identified by
/// the index, so a copy of the dataset counts as the same source.
fn versions(dataset: &Dataset, jobs: usize) -> Result<Vec<Vec<u8>>, DatasetError> {
    let shards = dataset.index().shards.iter().enumerate();
    let bare = shards.filter(|(_, entry)| {
        let stored = entry.zip_data.as_ref().unwrap_or(&entry.raw_data);
        stored.hashes.is_empty()
    });
    let bare: Vec<usize> = bare.map(|(shard, _)| shard).collect();
    // INVARIANT: `map` counts up to the number of shards.
    parallel::map(bare.len(), jobs, |at| match dataset.version(bare[at]) {
        // Reading the shard reports a missing file.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        found => found,
    })
}

fn same_columns(a: &ShardConfig, b: &ShardConfig) -> bool {
    match (&a.layout, &b.layout) {
        (Layout::Mds { columns: a }, Layout::Mds { columns: b }) => a == b,
        (
            Layout::Json { columns: a, .. } | Layout::Xsv { columns: a, .. },
            Layout::Json { columns: b, .. } | Layout::Xsv { columns: b, .. },
        ) => a == b,
        _ => false,
    }
}

fn schema(config: &ShardConfig, computes: bool) -> Schema {
    let fields: Vec<Field> = match &config.layout {
        Layout::Mds { columns } => {
            let columns = columns.iter();
            columns
                .map(|column| mds_field(&column.name, &column.encoding))
                .collect()
        }
        Layout::Json { columns, .. } | Layout::Xsv { columns, .. } => {
            let columns = columns.iter();
            columns
                .map(|column| text_field(&column.name, column.encoding, computes))
                .collect()
        }
    };
    Schema::new(fields)
}

fn text_field(name: &str, encoding: TextEncoding, computes: bool) -> Field {
    match encoding {
        TextEncoding::Str => Field::new(name, DataType::Utf8, false),
        TextEncoding::Int if computes => Field::new(name, DataType::Int64, false),
        TextEncoding::Int => encoded_field(name, DataType::Utf8, "int", ENCODED_TEXT),
        TextEncoding::Float => Field::new(name, DataType::Float64, false),
    }
}

/// Returns the field of values that already have an encoding.
fn encoded_field(name: &str, data_type: DataType, encoding: &str, encoded: &str) -> Field {
    Field::new(name, data_type, false).with_metadata(HashMap::from([
        (ENCODING_KEY.to_owned(), encoding.to_owned()),
        (ENCODED_KEY.to_owned(), encoded.to_owned()),
    ]))
}

fn mds_field(name: &str, encoding: &Encoding) -> Field {
    let data_type = match encoding {
        Encoding::Str => return Field::new(name, DataType::Utf8, false),
        Encoding::Int => DataType::Int64,
        Encoding::Number(dtype) => return Field::new(name, number_type(*dtype), false),
        Encoding::StrInt | Encoding::StrFloat | Encoding::StrDecimal | Encoding::Json => {
            DataType::Utf8
        }
        Encoding::Bytes
        | Encoding::NdArray { .. }
        | Encoding::Image(_)
        | Encoding::JpegArray { .. }
        | Encoding::List(_)
        | Encoding::Pkl
        | Encoding::Registered { .. } => DataType::Binary,
    };
    encoded_field(name, data_type, &encoding.to_string(), "true")
}

impl Source for MdsSource {
    fn facts(&self) -> &TableFacts {
        &self.facts
    }

    fn open(&self, unit: usize, columns: &[usize]) -> Result<Box<dyn Rows>, Error> {
        let found = self.shards.get(unit).copied();
        let Some((dataset, shard)) =
            found.and_then(|(set, shard)| Some((self.datasets.get(set)?, shard)))
        else {
            return Err(bug(format!("there is no unit {unit}")));
        };
        let stored = dataset.stored_samples(shard);
        let start = stored.start;
        let left = dataset.live().live_ranges(stored);
        let left = left.map(|range| range.start - start..range.end - start);
        let left: Vec<Range<u64>> = left.collect();
        let shard = dataset.shard(shard)?;
        Ok(Box::new(ShardRows {
            shard,
            schema: project(&self.facts.schema, columns),
            columns: columns.to_vec(),
            left: left.into_iter().flatten().peekable(),
            rooms: Vec::new(),
        }))
    }
}

/// The samples of a shard that remain to be read, by their numbers in the shard.
pub(crate) type Left = Peekable<Flatten<std::vec::IntoIter<Range<u64>>>>;

struct ShardRows {
    shard: Arc<Shard>,
    /// The columns that are read, and their positions in the samples.
    schema: SchemaRef,
    columns: Vec<usize>,
    left: Left,
    /// The sizes of the columns of the previous batch.
    rooms: Vec<Room>,
}

impl Rows for ShardRows {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>, Error> {
        if self.left.peek().is_none() {
            return Ok(None);
        }
        let mut columns: Vec<Builder> = self
            .schema
            .fields()
            .iter()
            .zip(rooms(&self.rooms))
            .map(|(field, room)| Builder::new(field.data_type(), room))
            .collect();
        let (mut bytes, mut rows) = (0, 0_usize);
        let is_mds = self.shard.view().config().format() == shardmill_core::Format::Mds;
        while (rows as u64) < BATCH_SAMPLES
            && bytes < BATCH_BYTES
            && let Some(next) = self.left.next()
        {
            let sample = self.shard.sample(next)?;
            bytes += sample.len();
            match is_mds {
                true => self.push_fields(next, &mut columns)?,
                false => self.push_texts(next, &mut columns)?,
            }
            rows += 1;
        }
        let columns = columns.into_iter().map(Builder::finish);
        let batch = columns.collect::<Result<Vec<_>, _>>().and_then(|columns| {
            self.rooms = columns.iter().map(Room::of).collect();
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
        });
        batch.map(Some).map_err(|error| {
            bug(format!(
                "a batch of samples does not fit its schema: {error}"
            ))
        })
    }
}

impl ShardRows {
    fn push_fields(&self, next: u64, columns: &mut [Builder]) -> Result<(), Error> {
        let fields = self.shard.fields(next)?;
        let chosen = self.columns.iter().filter_map(|column| fields.get(*column));
        for (field, column) in chosen.zip(columns) {
            column
                .push_datum(field.datum)
                .ok_or_else(|| self.unfit(next, field.name))?;
        }
        Ok(())
    }

    fn push_texts(&self, next: u64, columns: &mut [Builder]) -> Result<(), Error> {
        let values = self.shard.values(next)?;
        let chosen = self.columns.iter().filter_map(|column| values.get(*column));
        for ((name, value), column) in chosen.zip(columns) {
            let SampleValue::Text(value) = value else {
                return Err(self.unfit(next, name));
            };
            column
                .push_text(value)
                .ok_or_else(|| self.unfit(next, name))?;
        }
        Ok(())
    }

    /// Returns the error of a value that does not have the type of its column. The original readers of these formats do
    /// not check it.
    fn unfit(&self, next: u64, column: &str) -> Error {
        let number = self.shard.first_sample() + next;
        let message = "the value is not of the type that the index gives the column";
        Error::new(ErrorKind::Corrupt, "sample-value", message)
            .about(format!("sample {number} column {column}"))
    }
}

/// The size of a column.
///
/// PERF: the next batch is about as large. Without reserving space, growing would copy the column several times.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Room {
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
}

impl Room {
    /// Returns the size of a column, plus a reserve of 1/8.
    pub(crate) fn of(column: &ArrayRef) -> Self {
        let values = column
            .as_binary_opt::<i32>()
            .map(|column| column.value_data().len())
            .or_else(|| Some(column.as_string_opt::<i32>()?.value_data().len()));
        let bytes = values.unwrap_or_default();
        Self {
            rows: column.len() + column.len() / 8,
            bytes: bytes + bytes / 8,
        }
    }
}

/// Returns the sizes of the known columns, then empty sizes for all others.
pub(crate) fn rooms(known: &[Room]) -> impl Iterator<Item = Room> {
    known
        .iter()
        .copied()
        .chain(std::iter::repeat(Room::default()))
}

/// A builder of one column.
enum Builder {
    Text(StringBuilder),
    Bytes(BinaryBuilder),
    Numbers(NumberBuilder),
}

impl Builder {
    fn new(data_type: &DataType, Room { rows, bytes }: Room) -> Self {
        match (data_type, data_type.primitive_width()) {
            (DataType::Utf8, _) => Self::Text(StringBuilder::with_capacity(rows, bytes)),
            (_, Some(width)) => Self::Numbers(NumberBuilder {
                data_type: data_type.clone(),
                width,
                values: MutableBuffer::with_capacity(rows * width),
            }),
            _ => Self::Bytes(BinaryBuilder::with_capacity(rows, bytes)),
        }
    }

    /// Appends a value. Returns `None` if the value does not have the column's type.
    fn push_datum(&mut self, datum: &[u8]) -> Option<()> {
        match self {
            Self::Bytes(builder) => builder.append_value(datum),
            Self::Text(builder) => builder.append_value(std::str::from_utf8(datum).ok()?),
            Self::Numbers(numbers) => return numbers.push(datum),
        }
        Some(())
    }

    fn push_text(&mut self, value: &TextValue<'_>) -> Option<()> {
        match self {
            Self::Text(builder) => match value {
                TextValue::Str(text) => builder.append_value(text),
                TextValue::Int(value) => builder.append_value(value.to_string()),
                TextValue::BigInt(text) => builder.append_value(text),
                // COMPAT: the original accepts a Python bool as an int and writes it as a JSON bool.
                TextValue::Json("true") => builder.append_value("1"),
                TextValue::Json("false") => builder.append_value("0"),
                TextValue::Float(_) | TextValue::Json(_) => return None,
            },
            Self::Numbers(numbers) if numbers.data_type == DataType::Int64 => match value {
                TextValue::Int(value) => return numbers.push(&value.to_le_bytes()),
                _ => return None,
            },
            Self::Numbers(numbers) => {
                let value: f64 = match value {
                    TextValue::Float(value) => *value,
                    #[expect(
                        clippy::cast_precision_loss,
                        reason = "a float column that holds an integer is read as Python reads it"
                    )]
                    TextValue::Int(value) => *value as f64,
                    TextValue::BigInt(text) => text.parse().ok()?,
                    TextValue::Str(_) | TextValue::Json(_) => return None,
                };
                return numbers.push(&value.to_le_bytes());
            }
            Self::Bytes(_) => return None,
        }
        Some(())
    }

    fn finish(self) -> Result<ArrayRef, ArrowError> {
        Ok(match self {
            Self::Text(mut builder) => Arc::new(builder.finish()),
            Self::Bytes(mut builder) => Arc::new(builder.finish()),
            Self::Numbers(numbers) => {
                let rows = numbers.values.len() / numbers.width;
                let data = ArrayData::builder(numbers.data_type).len(rows);
                make_array(data.add_buffer(numbers.values.into()).build()?)
            }
        })
    }
}

/// The numbers of one column. Arrow and MDS store them as the same bytes, in little-endian order.
struct NumberBuilder {
    data_type: DataType,
    width: usize,
    values: MutableBuffer,
}

impl NumberBuilder {
    /// Appends the bytes of a number. Returns `None` if it has another size.
    fn push(&mut self, bytes: &[u8]) -> Option<()> {
        (bytes.len() == self.width).then(|| self.values.extend_from_slice(bytes))
    }
}
