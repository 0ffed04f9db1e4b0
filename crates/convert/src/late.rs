//! Adds late columns to an MDS dataset: shards of more columns, aligned with the shards of the dataset.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;
use shardmill_core::{
    Error, Format, Progress, column_option, column_word, escape, parallel, sql_name,
};
use shardmill_dataset::{
    COLUMNS_FOLDER, COLUMNS_NAME, Dataset, DatasetError, LateColumns, OpenOptions, Sample, Shard,
    ValueLocation,
};
use shardmill_mds::{
    Column, Encoding, Field, FileHashes, FileInfo, HashAlgo, MdsError, ShardConfig, ShardEntry,
    basename, decode, encode_header, hash_hex,
};
use shardmill_source::SourceOptions;
use shardmill_storage::{Destination, LEASE_PATIENCE, Location, StorageError};
use shardmill_writer::internal;
use xxhash_rust::xxh3::xxh3_128;

use crate::options::{ColumnSpec, ConvertOptions};
use crate::plan::plan;
use crate::run::run;
use crate::target::{OF_PARTS, Target, WORK_FOLDER};

/// The options of [`add_columns`].
#[derive(Clone, Debug)]
pub struct AddColumnsOptions {
    /// The column that identifies samples, in the dataset and in the table.
    pub on: String,
    /// The columns to add, and their encodings; empty for all columns of the table.
    pub columns: Vec<ColumnSpec>,
    /// How the table is read. The threads, the temporary directory, the limits and the access to stores also apply to the
    /// dataset.
    pub source: SourceOptions,
}

/// The result of [`add_columns`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AddedColumns {
    /// The names and encodings of the added columns.
    pub columns: Vec<(String, String)>,
    /// The number of samples, deleted ones counted.
    pub samples: u64,
    /// The number of shards.
    pub shards: u64,
    /// The size of the stored files in bytes.
    pub stored_bytes: u64,
    /// The folder of the shards.
    pub folder: String,
    /// The folder of the previous late columns. The new shards contain them as well.
    pub replaced: Option<String>,
}

/// Adds the columns of a table to an MDS dataset. The files of the dataset do not change.
///
/// The table is first converted to a temporary dataset, because its rows may have any order. Each live sample needs
/// exactly one row, and each row one live sample. A deleted sample without a row gets the values of the first row.
///
/// # Errors
///
/// `InvalidInput` for a key that is missing, superfluous or repeated, and for columns that cannot be added; errors
/// of reading the table and the dataset, and of writing.
pub fn add_columns(
    location: &Location,
    sources: Vec<Location>,
    options: &AddColumnsOptions,
    progress: &Progress,
) -> Result<AddedColumns, Error> {
    let remote = &options.source.remote;
    let opened = OpenOptions {
        limits: options.source.limits.clone(),
        ..OpenOptions::default()
    };
    // A dataset that cannot be read is reported before the table is converted.
    Dataset::open_at(location, &opened, remote)?;
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix("shardmill-columns-");
    let folder = match &options.source.resources.temp_dir {
        Some(folder) => builder.tempdir_in(folder),
        None => builder.tempdir(),
    };
    let folder = folder.map_err(|source| StorageError::Io {
        action: "make the directory",
        path: std::env::temp_dir(),
        source,
    })?;
    let rows = Location::Local(folder.path().join("rows"));
    let mut convert = ConvertOptions::new(sources, rows.clone());
    convert.source = options.source.clone();
    convert.columns.specs.clone_from(&options.columns);
    let specs = &mut convert.columns.specs;
    let has_key = |spec: &ColumnSpec| spec.is_rest || spec.name == options.on;
    if !specs.is_empty() && !specs.iter().any(has_key) {
        specs.push(ColumnSpec::named(&options.on));
    }
    convert.shards.compression = None;
    run(plan(convert)?, progress)?;

    let rows = Dataset::open_at(&rows, &opened, remote)?;
    let spool = options.source.resources.temp_dir.as_deref();
    let destination = Destination::open(location, remote, spool)?;
    let target = Target::new(&destination, progress);
    // An interrupted conversion keeps its journal there.
    let is_idle = target.entries(WORK_FOLDER)?.is_empty();
    let lease = target.lease(LEASE_PATIENCE)?;
    let dataset = Dataset::open_at(location, &opened, remote)?;
    let added = Addition {
        dataset: &dataset,
        rows: &rows,
        location,
        target,
        options,
        progress,
    }
    .write();
    if is_idle {
        lease.remove_folder(&OF_PARTS, &mut target.cancel())?;
    }
    added
}

/// Columns that are being added.
struct Addition<'a> {
    dataset: &'a Dataset,
    /// The table as a dataset.
    rows: &'a Dataset,
    location: &'a Location,
    target: Target<'a>,
    options: &'a AddColumnsOptions,
    progress: &'a Progress,
}

impl Addition<'_> {
    fn write(&self) -> Result<AddedColumns, Error> {
        let columns = self.columns()?;
        let rows_of = self.rows_of_samples()?;
        let shards = &self.dataset.index().shards;
        let digest = self.dataset.view_target().digest;
        let mut identity = digest.to_vec();
        for part in [self.dataset, self.rows] {
            identity.extend_from_slice(part.index().to_json().as_bytes());
        }
        identity.extend_from_slice(self.options.on.as_bytes());
        let identity = hash_hex(HashAlgo::Sha256, &identity);
        let folder = format!(
            "{COLUMNS_FOLDER}/{}",
            identity.get(..16).unwrap_or(&identity)
        );
        self.target.destination.make_folder(&folder)?;
        self.progress
            .set_totals(0, rows_of.len() as u64, shards.len() as u64);
        let jobs = self.options.source.resources.jobs;
        let entries = parallel::map(shards.len(), jobs, |shard| {
            if self.progress.is_cancelled() {
                return Err(DatasetError::Interrupted.into());
            }
            let entry = self.write_shard(shard, &columns, &rows_of, &folder)?;
            self.progress.add_samples(entry.samples);
            self.progress.add_shard(0);
            Ok::<_, Error>(entry)
        })?;
        let stored = entries.iter().flat_map(ShardEntry::stored);
        let stored_bytes = stored.map(|file| file.bytes).sum();
        let late = LateColumns::new(&digest, entries);
        self.target
            .publish_from(None, COLUMNS_NAME, late.to_json().as_bytes())?;
        self.target.destination.sync()?;
        let before = shards.first().and_then(|entry| entry.halves());
        let before = before.and_then(|[_, late]| {
            let (folder, _) = late.raw_data.basename.rsplit_once('/')?;
            Some(folder.to_owned())
        });
        Ok(AddedColumns {
            columns: columns
                .into_iter()
                .map(|column| (column.name, column.encoding.to_string()))
                .collect(),
            samples: rows_of.len() as u64,
            shards: shards.len() as u64,
            stored_bytes,
            folder,
            replaced: before,
        })
    }

    /// Returns the columns to add, after checking that the dataset can have them.
    fn columns(&self) -> Result<Vec<Column>, Error> {
        let on = &self.options.on;
        let found = self.rows.index().shards.first();
        let Some(found) = found.and_then(|entry| entry.config.mds_columns()) else {
            return Err(self.refused("columns-none", "the table has no rows"));
        };
        let added = found.iter().filter(|column| column.name != *on);
        let added: Vec<Column> = added.cloned().collect();
        if added.is_empty() {
            let reason = format!("the table has no column beside `{}`", escape(on));
            return Err(self.refused("columns-none", reason));
        }
        key_column(found, on).map_err(|reason| {
            let reason = format!("the table {reason}");
            self.refused("columns-key", reason).with_hint(KEY_HINT)
        })?;
        for entry in &self.dataset.index().shards {
            let Some(columns) = entry.config.mds_columns() else {
                let format = entry.config.format().name();
                let reason = format!("only MDS can have late columns, not {format}");
                return Err(self.refused("columns-format", reason));
            };
            key_column(columns, on).map_err(|reason| {
                let reason = format!("the dataset {reason}");
                self.refused("columns-key", reason).with_hint(KEY_HINT)
            })?;
            let is_known = |new: &&Column| columns.iter().any(|column| column.name == new.name);
            if let Some(known) = added.iter().find(is_known) {
                let reason = format!("the dataset already has a column `{}`", escape(&known.name));
                let renamed = column_option("NAME", &format!("={}", sql_name(&known.name)));
                let others = added.iter().filter(|column| !is_known(column));
                let others: Vec<String> = others
                    .map(|column| format!("--column {}", column_word(&column.name, "")))
                    .collect();
                let others = match others.is_empty() {
                    true => String::new(),
                    false => format!("add the others with {}, or ", others.join(" ")),
                };
                let hint = format!("{others}rename it with {renamed}");
                return Err(self.refused("columns-exist", reason).with_hint(hint));
            }
        }
        Ok(added)
    }

    /// Returns the row of the table for every stored sample.
    fn rows_of_samples(&self) -> Result<Vec<u64>, Error> {
        let mut numbers = HashMap::new();
        let keys = self.keys(self.rows)?;
        for (row, key) in (0..).zip(&keys) {
            if let Some(first) = numbers.insert(*key, row) {
                let key = self.stored_key(self.rows, row)?;
                let reason =
                    format!("the rows {first} and {row} of the table have the key `{key}`");
                return Err(self.refused("columns-key-repeated", reason));
            }
        }
        let mut used = vec![None; keys.len()];
        let keys = self.keys(self.dataset)?;
        let live = self.dataset.live();
        let mut rows_of = Vec::with_capacity(keys.len());
        for (sample, key) in (0..).zip(&keys) {
            let row = numbers.get(key).copied();
            if !live.contains(sample) {
                rows_of.push(row.unwrap_or(0));
                continue;
            }
            let Some(row) = row else {
                let key = self.stored_key(self.dataset, sample)?;
                let reason =
                    format!("the table has no row with the key `{key}` of sample {sample}");
                return Err(self.refused("columns-key-missing", reason));
            };
            let slot = usize::try_from(row).ok().and_then(|row| used.get_mut(row));
            if let Some(first) = slot.and_then(|slot| slot.replace(sample)) {
                let key = self.stored_key(self.dataset, sample)?;
                let reason =
                    format!("the samples {first} and {sample} of the dataset have the key `{key}`");
                return Err(self.refused("columns-key-repeated", reason));
            }
            rows_of.push(row);
        }
        if let Some(extra) = used.iter().position(Option::is_none) {
            let key = self.stored_key(self.rows, extra as u64)?;
            let reason = format!("no sample has the key `{key}` of row {extra} of the table");
            let hint =
                "remove the row; the table may only have rows of samples that are not deleted";
            return Err(self.refused("columns-key-extra", reason).with_hint(hint));
        }
        Ok(rows_of)
    }

    /// Returns a hash of the key of every stored sample of a dataset.
    fn keys(&self, dataset: &Dataset) -> Result<Vec<u128>, Error> {
        let jobs = self.options.source.resources.jobs;
        let keys = parallel::map(dataset.index().shards.len(), jobs, |number| {
            if self.progress.is_cancelled() {
                return Err(DatasetError::Interrupted.into());
            }
            let shard = dataset.shard(number)?;
            let hash = |at| Ok(xxh3_128(self.key_of(&shard, at)?.as_bytes()));
            (0..shard.len())
                .map(hash)
                .collect::<Result<Vec<u128>, Error>>()
        })?;
        Ok(keys.concat())
    }

    fn key_of(&self, shard: &Shard, at: u64) -> Result<String, Error> {
        let fields = shard.fields(at)?;
        let field = fields.iter().find(|field| field.name == self.options.on);
        // INVARIANT: `columns` has checked that every shard has the column.
        let field = field.ok_or_else(|| internal("a shard without the column of keys"))?;
        let value = decode(field.encoding, field.datum, &self.options.source.limits);
        let value = value.map_err(|source| {
            let location = ValueLocation {
                sample: Some(shard.first_sample() + at),
                column: Some(self.options.on.clone()),
                ..ValueLocation::file("")
            };
            DatasetError::value(location, source)
        })?;
        Ok(value.key_text().unwrap_or_default().into_owned())
    }

    /// Returns the key of a stored sample, escaped.
    fn stored_key(&self, dataset: &Dataset, stored: u64) -> Result<String, Error> {
        let is_after = |shard: &usize| dataset.stored_samples(*shard).end > stored;
        let shard = (0..dataset.index().shards.len()).find(is_after);
        let shard = dataset.shard(shard.unwrap_or_default())?;
        let key = self.key_of(&shard, stored - shard.first_sample())?;
        Ok(escape(&key).into_owned())
    }

    /// Writes the late columns of one shard.
    fn write_shard(
        &self,
        number: usize,
        columns: &[Column],
        rows_of: &[u64],
        folder: &str,
    ) -> Result<ShardEntry, Error> {
        let Some(entry) = self.dataset.index().shards.get(number) else {
            return Err(internal("late columns of a shard that does not exist"));
        };
        let (base, mut all) = match &entry.config.late {
            None => (&entry.config, Vec::new()),
            Some(late) => (
                &late.base,
                late.late.mds_columns().cloned().unwrap_or_default(),
            ),
        };
        let before = match all.is_empty() {
            true => None,
            false => Some((self.dataset.shard(number)?, all.clone())),
        };
        all.extend_from_slice(columns);
        let hashes = base.hashes.clone();
        let config = ShardConfig::new_mds(all, base.compression, hashes.clone(), None)?;
        let (mut sizes, mut samples) = (Vec::new(), Vec::new());
        let first = self.dataset.stored_samples(number).start;
        for at in 0..entry.samples {
            let row = usize::try_from(first + at)
                .ok()
                .and_then(|at| rows_of.get(at));
            let row: Sample = self.rows.sample(row.copied().unwrap_or_default())?;
            let mut fields = row.fields()?;
            fields.retain(|field| field.name != self.options.on);
            if let Some((shard, columns)) = &before {
                let earlier = shard.fields(at)?.into_iter();
                fields.extend(
                    earlier.filter(|field| columns.iter().any(|column| column.name == field.name)),
                );
            }
            sizes.push(push_sample(fields, &mut samples)?);
        }
        let mut raw = Vec::new();
        encode_header(&config, &config.to_json(), sizes.into_iter(), &mut raw)?;
        raw.append(&mut samples);
        let file = |bytes: &[u8], compression| FileInfo {
            basename: format!(
                "{folder}/{}",
                basename(number as u64, Format::Mds, false, compression)
            )
            .into(),
            bytes: bytes.len() as u64,
            hashes: FileHashes::of(&hashes, bytes),
        };
        let raw_data = file(&raw, None);
        let mut stored = raw;
        let zip_data = match &base.compression {
            None => None,
            Some(compression) => {
                let mut packed = Vec::new();
                let mut compressor = compression.compressor().map_err(MdsError::Codec)?;
                compressor
                    .compress(&stored, &mut packed)
                    .map_err(MdsError::Codec)?;
                stored = packed;
                Some(file(&stored, Some(compression)))
            }
        };
        let name = zip_data.as_ref().unwrap_or(&raw_data);
        self.target.publish_from(None, &name.basename, &stored)?;
        Ok(ShardEntry {
            config: Arc::new(config),
            samples: entry.samples,
            raw_data,
            zip_data,
            raw_meta: None,
            zip_meta: None,
        })
    }

    fn refused(&self, id: &'static str, reason: impl Into<String>) -> Error {
        Error::usage(id, reason).about(self.location.to_string())
    }
}

const KEY_HINT: &str =
    "name a column with texts or whole numbers that identify the samples, in both";

/// Checks that keys can be read from a column. The error continues a sentence about the dataset or the table.
fn key_column(columns: &[Column], name: &str) -> Result<(), String> {
    let Some(column) = columns.iter().find(|column| column.name == name) else {
        return Err(format!("has no column `{}`", escape(name)));
    };
    match &column.encoding {
        Encoding::Str | Encoding::Int | Encoding::StrInt => Ok(()),
        Encoding::Number(dtype) if !dtype.is_float() => Ok(()),
        encoding => Err(format!("has values of {encoding} in `{}`", escape(name))),
    }
}

/// Appends a sample with these values, in the order of their names. Returns its size.
fn push_sample(mut fields: Vec<Field<'_>>, out: &mut Vec<u8>) -> Result<u32, MdsError> {
    fields.sort_unstable_by_key(|field| field.name);
    let start = out.len();
    for field in &fields {
        if field.encoding.fixed_size().is_none() {
            let bytes = field.datum.len() as u64;
            let size = u32::try_from(bytes).map_err(|_| MdsError::shard_too_large(bytes))?;
            out.extend_from_slice(&size.to_le_bytes());
        }
    }
    for field in &fields {
        out.extend_from_slice(field.datum);
    }
    let bytes = (out.len() - start) as u64;
    u32::try_from(bytes).map_err(|_| MdsError::shard_too_large(bytes))
}
