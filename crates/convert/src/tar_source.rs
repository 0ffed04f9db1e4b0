//! Reads tar files as a source: to change their shards, compression or hashes, or to convert them to another format.
//!
//! Every field is a column with unchanged bytes. The key is a text column.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryBuilder, StringBuilder};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use shardmill_core::{Error, ErrorKind, Limits, Progress, escape};
use shardmill_dataset::{DatasetError, ShardBytes, TarSet, View, each_in_order, version_of};
use shardmill_source::{
    Rows, Source, SourceDescription, SourceFile, SourceKind, SourceOptions, TableFacts, Unit, bug,
    project, rows_from,
};
use shardmill_storage::Location;
use shardmill_webdataset::ShardView;
use xxhash_rust::xxh3::Xxh3;

use crate::error::no_columns;
use crate::mds_source::{BATCH_BYTES, BATCH_SAMPLES, Left, Room, rooms};

/// Opens the samples of tar files as one source, with all columns and rows. Without an index, their headers are read to
/// find the fields.
pub(crate) fn samples(
    locations: &[Location],
    options: &SourceOptions,
) -> Result<Arc<dyn Source>, Error> {
    let locations = shardmill_source::expand_patterns(locations, &options.remote)?;
    let set = TarSet::open(&locations, &options.limits, &options.remote)?;
    let mut set = set.scanned(&options.limits)?;
    if !options.samples.with_deleted {
        set = set.without_deleted(&options.limits)?;
    }
    if let Some(view) = &options.samples.view {
        set = set.of_view(&View::read(view, &options.remote)?, &options.limits)?;
    }
    Ok(Arc::new(TarSource::new(set, options)?))
}

/// Tar files in order. Each is a unit.
struct TarSource {
    set: TarSet,
    facts: TableFacts,
    limits: Limits,
}

impl TarSource {
    fn new(set: TarSet, options: &SourceOptions) -> Result<Self, Error> {
        let mut description = SourceDescription::new(SourceKind::Webdataset);
        let mut units = Vec::new();
        let mut rows = 0_u64;
        let mut identity = Xxh3::new();
        // For each field, the number of shards in which every sample has it.
        let mut fields: BTreeMap<Box<str>, u64> = BTreeMap::new();
        let mut filled = 0_u64;
        let shards = set.shards();
        // INVARIANT: `each_in_order` counts up to the number of shards.
        let work = |at: usize| {
            let file = shards[at].open()?;
            Ok::<_, Error>((file.len(), version_of(&file)))
        };
        let take = |at: usize, (bytes, version): (u64, Vec<u8>)| {
            let shard = &shards[at];
            let unknown = || bug(format!("shard {at} was not scanned"));
            let known = shard.known().ok_or_else(unknown)?;
            identity.update(shard.name().as_bytes());
            identity.update(&[0]);
            identity.update(&bytes.to_le_bytes());
            // A shard with hashes in the index is identified by them, so a copy counts as the same source.
            let hashes = &known.stored().hashes;
            for digest in hashes.iter() {
                identity.update(digest.to_string().as_bytes());
            }
            if hashes.is_empty() {
                identity.update(&version);
            }
            if known.samples > 0 {
                filled += 1;
            }
            for name in &known.fields.always {
                *fields.entry(name.clone()).or_default() += 1;
            }
            for name in &known.fields.sometimes {
                fields.entry(name.clone()).or_default();
            }
            let samples = shard.live_samples(known.samples);
            units.push(Unit {
                file: Some(at),
                first_row: Some(0),
                rows: Some(samples),
                bytes,
            });
            rows = rows.saturating_add(samples);
            description.bytes = description.bytes.saturating_add(bytes);
            description.files.push(SourceFile {
                path: shard.path().display().to_string(),
                bytes,
            });
            Ok(())
        };
        let jobs = options.resources.jobs;
        each_in_order(shards.len(), jobs, &Progress::new(), work, take)?;
        for digest in set.deleted_digests() {
            identity.update(&digest);
        }
        description.deleted_samples = set.deleted();
        if fields.is_empty() {
            let file = description.files.first();
            return Err(no_columns(file.map_or("", |file| &file.path)));
        }
        let mut columns = Vec::with_capacity(fields.len() + 1);
        let mut nulls = Vec::with_capacity(fields.len() + 1);
        for (name, always) in &fields {
            let nullable = *always < filled;
            columns.push(Field::new(&**name, DataType::Binary, nullable));
            nulls.push((!nullable).then_some(0));
        }
        if fields.contains_key(options.tree.key_column.as_str()) {
            return Err(Error::option_hint(
                "config-key",
                format!("the samples have a field `{}`", options.tree.key_column),
                "call the column of the keys otherwise with --key-column",
            ));
        }
        columns.push(Field::new(&options.tree.key_column, DataType::Utf8, false));
        nulls.push(Some(0));
        description.rows = Some(rows);
        description.fingerprint = format!("{:032x}", identity.digest128());
        Ok(Self {
            limits: options.limits.clone(),
            set,
            facts: TableFacts {
                schema: Arc::new(Schema::new(columns)),
                units,
                null_counts: nulls,
                description,
            },
        })
    }
}

impl Source for TarSource {
    fn facts(&self) -> &TableFacts {
        &self.facts
    }

    fn open(&self, unit: usize, columns: &[usize]) -> Result<Box<dyn Rows>, Error> {
        let Some(file) = self.set.shards().get(unit) else {
            return Err(bug(format!("there is no unit {unit}")));
        };
        let path = file.path();
        let declared = file.known().map(|entry| entry.samples);
        let left = file.live_ranges(declared.unwrap_or_default());
        if left.is_empty() && declared.is_some_and(|samples| samples > 0) {
            // The shard has no live sample, so it is not read.
            return Ok(rows_from(|| Ok(None)));
        }
        let data = file.load_checked(&self.limits)?;
        let shard = ShardView::open(data, &self.limits)
            .map_err(|source| Error::from(DatasetError::tar_file(&path, source)))?;
        if declared.is_some_and(|rows| rows != shard.len()) {
            let message = format!(
                "it has {} samples, of which {} were known",
                shard.len(),
                declared.unwrap_or_default()
            );
            return Err(corrupt(&path, "shard-samples", message));
        }
        // The last column has the keys.
        let schema = &self.facts.schema;
        let keys = schema.fields().len() - 1;
        let fields = schema.fields().iter().take(keys);
        let column_positions = fields.enumerate().map(|(field, known)| {
            let position = columns.binary_search(&field).ok();
            (known.name().clone(), position)
        });
        Ok(Box::new(ShardRows {
            shard,
            path,
            schema: project(schema, columns),
            column_positions: column_positions.collect(),
            has_keys: columns.contains(&keys),
            left: left.into_iter().flatten().peekable(),
            rooms: Vec::new(),
        }))
    }

    /// Returns the key of a row; `None` if its shard cannot be read again.
    fn key(&self, unit: usize, row: u64) -> Option<String> {
        let file = self.set.shards().get(unit)?;
        let live = file.live_ranges(file.known()?.samples);
        let at = live.into_iter().flatten().nth(usize::try_from(row).ok()?)?;
        let data = file.load_checked(&self.limits).ok()?;
        let shard = ShardView::open(data, &self.limits).ok()?;
        shard.fields_into(at, &mut Vec::new()).ok()
    }
}

struct ShardRows {
    shard: ShardView<ShardBytes>,
    path: PathBuf,
    /// The columns that are read.
    schema: SchemaRef,
    /// The position of each known field among these columns. `None` if it is not read.
    column_positions: HashMap<String, Option<usize>>,
    /// Whether the column of keys follows.
    has_keys: bool,
    left: Left,
    /// The sizes of the columns of the previous batch.
    rooms: Vec<Room>,
}

impl Rows for ShardRows {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>, Error> {
        let view = &self.shard;
        if self.left.peek().is_none() {
            return Ok(None);
        }
        let fields = self.schema.fields().len() - usize::from(self.has_keys);
        let known = std::mem::take(&mut self.rooms);
        let mut rooms = rooms(&known);
        let mut columns: Vec<BinaryBuilder> = rooms
            .by_ref()
            .take(fields)
            .map(|room| BinaryBuilder::with_capacity(room.rows, room.bytes))
            .collect();
        let room = rooms.next().unwrap_or_default();
        let mut keys = StringBuilder::with_capacity(room.rows, room.bytes);
        let (mut bytes, mut rows) = (0_usize, 0_usize);
        let mut found = Vec::new();
        while (rows as u64) < BATCH_SAMPLES
            && bytes < BATCH_BYTES
            && let Some(next) = self.left.next()
        {
            let key = view
                .fields_into(next, &mut found)
                .map_err(|source| Error::from(DatasetError::tar_file(&self.path, source)))?;
            keys.append_value(&key);
            for field in &found {
                let Some(position) = self.column_positions.get(&*field.name) else {
                    let (key, field) = (escape(&key), escape(&field.name));
                    let message = format!(
                        "sample `{key}` has a field `{field}`, which the index does not name"
                    );
                    return Err(corrupt(&self.path, "shard-fields", message));
                };
                if let Some(column) = position.and_then(|position| columns.get_mut(position)) {
                    column.append_value(field.data);
                }
                bytes = bytes.saturating_add(field.data.len());
            }
            rows += 1;
            for column in &mut columns {
                if arrow::array::ArrayBuilder::len(column) < rows {
                    column.append_null();
                }
            }
        }
        if self.shard.data().is_damaged() {
            return Err(Error::from(DatasetError::file_changed(self.path.clone())));
        }
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(fields + 1);
        for mut column in columns {
            arrays.push(Arc::new(column.finish()));
        }
        if self.has_keys {
            arrays.push(Arc::new(keys.finish()));
        }
        self.rooms = arrays.iter().map(Room::of).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)
            .map(Some)
            .map_err(|error| {
                let message =
                    format!("its samples do not have the fields that were known: {error}");
                corrupt(&self.path, "shard-fields", message)
            })
    }
}

/// Builds the error of a damaged tar file.
fn corrupt(path: &Path, id: &'static str, message: String) -> Error {
    Error::new(ErrorKind::Corrupt, id, message)
        .about(path.display().to_string())
        .with_hint("run verify to see all damage")
}
