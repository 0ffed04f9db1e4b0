//! Reads Delta tables: the Delta kernel replays the log, and the Parquet reader of this crate reads the files.

mod log;
mod schema;
mod shape;
mod store;
mod values;
mod variant;

use std::sync::Arc;

use arrow::datatypes::{Fields, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use delta_kernel::table_features::ColumnMappingMode;
use parquet::file::metadata::ParquetMetaData;
use roaring::RoaringTreemap;
use shardmill_core::{Diagnostic as _, ErrorKind, escape};
use shardmill_storage::{Location, Remote};

use crate::files::{
    Fingerprint, InputFile, Origin as FileOrigin, check_overlap, describe, place, stat,
};
use crate::objects::Object;
use crate::parquet::{
    Form, GroupPlan, GroupTable, Origin, RowGroups, Tail, add_nulls, fold_in_order,
    group_null_count, group_sizes, read_footer, read_tails,
};
use crate::source::DeltaHistory;
use crate::walk::{FileVersion, on_pool};
use crate::{SourceDescription, SourceError, SourceKind, SourceOptions, SourceProblem};
use log::{LogFile, Version};
use schema::{Column, columns};
use shape::{Finder, Found, file_fields, has_ids};
use values::parse_value;

/// One version of a Delta table.
pub(crate) struct DeltaTable {
    files: Vec<DataFile>,
    columns: Vec<Column>,
    mode: ColumnMappingMode,
    schema: SchemaRef,
    /// For each column, its position among the partition values of a file, if it is a partition column.
    partitions: Vec<Option<usize>>,
    groups: RowGroups,
    null_counts: Vec<Option<u64>>,
    description: SourceDescription,
}

/// A file of the table.
struct DataFile {
    input: InputFile,
    /// The values of the partition columns, in the table's order.
    partition_values: Vec<ScalarValue>,
    /// The deleted rows.
    deleted: Option<RoaringTreemap>,
}

/// What is kept of a file's footer even if the footer is not cached.
struct Summary {
    file: DataFile,
    /// For each row group, its rows (including deleted ones) and its stored bytes.
    groups: Vec<(u64, u64)>,
    null_counts: Vec<Option<u64>>,
    metadata: Arc<ParquetMetaData>,
}

/// Reads the log and every footer.
pub(crate) fn open(
    locations: &[Location],
    options: &SourceOptions,
) -> Result<DeltaTable, SourceError> {
    let (given, name) = the_table(locations, options)?;
    check_overlap(given, options)?;
    on_pool(options.resources.jobs, || {
        let mut version = log::open(&name, given, options)?;
        let mut files = std::mem::take(&mut version.files);
        let fingerprint = fingerprint(&version.identity, &files);
        if let Some(only) = &options.delta.only {
            files.retain(|file| only.contains(&file.path.shown));
        }
        version.summary.files = files.iter().map(LogFile::named).collect();
        let table = Opening::new(&name, &version)?;
        let mut fold = Fold::new(table.columns.len(), options);
        fold_in_order(
            &files,
            |files| table.tails(files),
            |file, tail| table.summarise(file, options, tail),
            |summary| fold.add(summary),
        )?;
        Ok(fold.finish(table, &version, fingerprint))
    })?
}

/// Returns the changes of a table after version `after`, up to the version that the options request or the latest.
///
/// # Errors
///
/// `delta-*` and `source-*` errors.
pub fn history(
    location: &Location,
    options: &SourceOptions,
    after: u64,
) -> Result<DeltaHistory, SourceError> {
    let (given, name) = the_table(std::slice::from_ref(location), options)?;
    on_pool(options.resources.jobs, || {
        log::history(&name, given, options, after)
    })?
}

/// Returns the one given table and its printed name.
fn the_table<'a>(
    locations: &'a [Location],
    options: &SourceOptions,
) -> Result<(&'a Location, String), SourceError> {
    let [given] = locations else {
        return Err(SourceProblem::Option.at("SOURCE", "a Delta table is read alone"));
    };
    if options.delta.version.is_some() && options.delta.timestamp_ms.is_some() {
        return Err(SourceProblem::Option.at("--delta-version", "goes without --delta-timestamp"));
    }
    let name = place(given);
    let is_table = match given {
        Location::Local(path) => stat(path)?.is_dir() && path.join("_delta_log").is_dir(),
        Location::Remote(remote) => {
            let remote = Remote::open(remote, &options.remote)?;
            !remote.peek("_delta_log/", 1, &mut |_| true)?.is_empty()
        }
    };
    if !is_table {
        return Err(log::no_table(&name));
    }
    Ok((given, name))
}

/// Digests what determines the rows: files, deletion vectors, partition values and the schema. A commit that changes
/// none of them, or a copy of the table, has the same fingerprint.
fn fingerprint(identity: &str, files: &[LogFile]) -> String {
    let mut fingerprint = Fingerprint::new(SourceKind::Delta);
    let nowhere = FileVersion::default();
    fingerprint.add(identity, nowhere);
    for file in files {
        let file_version = FileVersion {
            bytes: file.bytes,
            mtime_ns: 0,
        };
        fingerprint.add(&file.path.shown, file_version);
        for (name, value) in &file.partition_values {
            fingerprint.add(name, nowhere);
            if let Some(value) = value {
                fingerprint.add(value, nowhere);
            }
        }
        if let Some(deletion) = &file.deletion {
            fingerprint.add(&deletion.id, nowhere);
        }
        fingerprint.separate();
    }
    fingerprint.finish()
}

/// The state of a table while it is opened, before its files are inspected.
struct Opening<'a> {
    name: &'a str,
    version: &'a Version,
    columns: Vec<Column>,
    partitions: Vec<Option<usize>>,
}

impl<'a> Opening<'a> {
    fn new(name: &'a str, version: &'a Version) -> Result<Self, SourceError> {
        let columns = columns(name, &version.schema)?;
        let mut count = 0;
        let partitions = columns
            .iter()
            .map(|column| {
                let is_one = version
                    .summary
                    .partition_columns
                    .contains(column.field.name());
                count += usize::from(is_one);
                is_one.then(|| count - 1)
            })
            .collect();
        Ok(Self {
            name,
            version,
            columns,
            partitions,
        })
    }

    fn shown(&self, file: &LogFile) -> String {
        if file.path.shown.starts_with('/') {
            file.path.shown.clone()
        } else {
            format!("{}/{}", self.name.trim_end_matches('/'), file.path.shown)
        }
    }

    /// Returns a data file in a store. The log records its length.
    fn object(&self, file: &LogFile) -> Option<InputFile> {
        let object = Object {
            store: Arc::clone(self.version.bucket()?),
            name: file.path.file.to_str()?.trim_start_matches('/').to_owned(),
        };
        Some(InputFile {
            shown: object.shown(),
            origin: FileOrigin::Object(object),
            relative: file.path.shown.clone(),
            file_version: FileVersion {
                bytes: file.bytes,
                mtime_ns: 0,
            },
        })
    }

    /// Returns a data file on this machine.
    fn local(&self, file: &LogFile) -> Result<InputFile, SourceError> {
        let shown = self.shown(file);
        let metadata = std::fs::metadata(&file.path.file).map_err(|source| {
            if source.kind() == std::io::ErrorKind::NotFound {
                self.version.missing(&shown)
            } else {
                SourceError::io("open", shown.clone(), source)
            }
        })?;
        Ok(InputFile {
            origin: FileOrigin::Local(file.path.file.clone()),
            relative: file.path.shown.clone(),
            file_version: FileVersion::of(&metadata),
            shown,
        })
    }

    /// Fetches the ends of those files that are in a store.
    fn tails(&self, files: &[LogFile]) -> Vec<Option<Tail>> {
        let inputs: Option<Vec<InputFile>> = files.iter().map(|file| self.object(file)).collect();
        match inputs {
            Some(inputs) => read_tails(&inputs.iter().collect::<Vec<_>>()),
            None => files.iter().map(|_| None).collect(),
        }
    }

    /// Reads a file's footer and compares it with the log.
    fn summarise(
        &self,
        file: &LogFile,
        options: &SourceOptions,
        tail: Option<Tail>,
    ) -> Result<Summary, SourceError> {
        let input = match self.object(file) {
            Some(input) => input,
            None => self.local(file)?,
        };
        // A missing object is noticed when its end is fetched.
        let tail = match tail {
            Some(Err(error)) if error.kind() == ErrorKind::NotFound => {
                return Err(self.version.missing(&input.shown));
            }
            tail => tail,
        };
        let footer = read_footer(&input, options.limits.parquet.footer_bytes, tail)?;
        let metadata = Arc::new(footer);
        let groups = group_sizes(&metadata);
        let rows: u64 = groups.iter().map(|(rows, _)| rows).sum();
        if let Some(claimed) = file.records.filter(|claimed| *claimed != rows) {
            return Err(SourceProblem::DeltaRowCount.at(
                input.shown,
                format!("has {rows} rows, and the table log says {claimed}"),
            ));
        }
        let deleted = match &file.deletion {
            None => None,
            Some(deletion) => {
                let deleted = self.version.deleted(&input.shown, deletion)?;
                if let Some(last) = deleted.max().filter(|last| *last >= rows) {
                    return Err(SourceProblem::DeltaDeletionVector.at(
                        input.shown,
                        format!("deletion vector: deletes row {last} of {rows}"),
                    ));
                }
                Some(deleted)
            }
        };
        let partition_values = self.partition_values(file, &input.shown)?;
        let fields = file_fields(&input.shown, &metadata)?;
        let finder = self.finder(&input.shown, &fields)?;
        let is_whole = deleted.as_ref().is_none_or(RoaringTreemap::is_empty);
        let live = rows - deleted.as_ref().map_or(0, RoaringTreemap::len);
        let mut null_counts = Vec::with_capacity(self.columns.len());
        for (column, partition) in self.columns.iter().zip(&self.partitions) {
            if let Some(partition) = partition {
                let is_null = partition_values
                    .get(*partition)
                    .is_none_or(ScalarValue::is_null);
                null_counts.push(Some(if is_null { live } else { 0 }));
                continue;
            }
            let count = match finder.find(column, &fields)? {
                None => Some(live),
                Some(found) => metadata
                    .row_groups()
                    .iter()
                    .map(|group| group_null_count(&metadata, group, &fields, found.root))
                    .sum::<Option<u64>>()
                    // The deleted rows may have been those with nulls.
                    .filter(|count| is_whole || *count == 0),
            };
            null_counts.push(count);
        }
        Ok(Summary {
            file: DataFile {
                input,
                partition_values,
                deleted,
            },
            groups,
            null_counts,
            metadata,
        })
    }

    fn finder<'b>(&self, file: &'b str, fields: &Fields) -> Result<Finder<'b>, SourceError> {
        let reads = self
            .columns
            .iter()
            .zip(&self.partitions)
            .any(|(column, partition)| partition.is_none() && !column.is_void());
        if self.version.mode == ColumnMappingMode::Id && reads && !has_ids(fields) {
            return Err(SourceProblem::DeltaFieldIds.at(file, "has no field ids, and the columns of the table are found by them (column mapping mode `id`)"));
        }
        Ok(Finder {
            file,
            mode: self.version.mode,
        })
    }

    fn partition_values(
        &self,
        file: &LogFile,
        shown: &str,
    ) -> Result<Vec<ScalarValue>, SourceError> {
        let mut values = Vec::new();
        for (column, partition) in self.columns.iter().zip(&self.partitions) {
            if partition.is_none() {
                continue;
            }
            let text = file
                .partition_values
                .iter()
                .find(|(name, _)| name == column.definition.physical_name(self.version.mode))
                .and_then(|(_, value)| value.as_deref());
            let data_type = column.field.data_type();
            let value = parse_value(text, data_type)
                .filter(|value| column.field.is_nullable() || !value.is_null());
            values.push(value.ok_or_else(|| {
                let (name, text) = (escape(column.field.name()), escape(text.unwrap_or_default()));
                SourceProblem::DeltaPartitionValue.at(
                    shown,
                    format!(
                        "the table log gives the partition column `{name}` the value `{text}`, which is no {data_type}"
                    ),
                )
            })?);
        }
        Ok(values)
    }
}

/// Merges files, in order, into one table.
struct Fold {
    files: Vec<DataFile>,
    null_counts: Vec<Option<u64>>,
    groups: RowGroups,
    rows: u64,
    deleted_rows: u64,
    files_with_deletions: u64,
}

impl Fold {
    fn new(columns: usize, options: &SourceOptions) -> Self {
        Self {
            files: Vec::new(),
            null_counts: vec![Some(0); columns],
            groups: RowGroups::new(options),
            rows: 0,
            deleted_rows: 0,
            files_with_deletions: 0,
        }
    }

    fn add(&mut self, summary: Summary) {
        for (total, own) in self.null_counts.iter_mut().zip(&summary.null_counts) {
            add_nulls(total, *own);
        }
        let deleted = summary.file.deleted.as_ref();
        let deleted_in = |rows| deleted.map_or(0, |deleted| deleted.range_cardinality(rows));
        let (rows, gone) = self
            .groups
            .add(summary.metadata, &summary.groups, deleted_in);
        self.rows += rows;
        self.deleted_rows += gone;
        self.files_with_deletions += u64::from(summary.file.deleted.is_some());
        self.files.push(summary.file);
    }

    fn finish(self, opening: Opening<'_>, version: &Version, fingerprint: String) -> DeltaTable {
        let inputs: Vec<InputFile> = self.files.iter().map(|file| file.input.clone()).collect();
        let mut summary = version.summary.clone();
        summary.deleted_rows = self.deleted_rows;
        summary.files_with_deletions = self.files_with_deletions;
        let mut description = describe(SourceKind::Delta, &inputs, Some(self.rows));
        description.fingerprint = fingerprint;
        description.delta = Some(summary);
        let fields: Fields = opening
            .columns
            .iter()
            .map(|column| Arc::clone(&column.field))
            .collect();
        DeltaTable {
            files: self.files,
            columns: opening.columns,
            mode: version.mode,
            schema: Arc::new(Schema::new(fields)),
            partitions: opening.partitions,
            groups: self.groups,
            null_counts: self.null_counts,
            description,
        }
    }
}

impl DeltaTable {
    fn file(&self, number: usize) -> Result<&DataFile, SourceError> {
        self.files
            .get(number)
            .ok_or_else(|| SourceError::bug(format!("there is no file {number}")))
    }

    fn partition_value(&self, file: &DataFile, column: usize) -> Option<ScalarValue> {
        let partition = (*self.partitions.get(column)?)?;
        file.partition_values.get(partition).cloned()
    }

    fn find(
        &self,
        file: &DataFile,
        column: usize,
        fields: &Fields,
    ) -> Result<Option<Found>, SourceError> {
        let finder = Finder {
            file: &file.input.shown,
            mode: self.mode,
        };
        match self.columns.get(column) {
            Some(column) => finder.find(column, fields),
            None => Ok(None),
        }
    }
}

impl GroupTable for DeltaTable {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn groups(&self) -> &RowGroups {
        &self.groups
    }

    fn description(&self) -> &SourceDescription {
        &self.description
    }

    fn null_count(&self, column: usize) -> Option<u64> {
        self.null_counts.get(column).copied().flatten()
    }

    fn input(&self, file: usize) -> Option<&InputFile> {
        self.files.get(file).map(|file| &file.input)
    }

    fn plan(
        &self,
        number: usize,
        metadata: &Arc<ParquetMetaData>,
        columns: &[usize],
    ) -> Result<GroupPlan, SourceError> {
        let data = self.file(number)?;
        let fields = file_fields(&data.input.shown, metadata)?;
        let mut leaves = Vec::new();
        let mut origins = Vec::with_capacity(columns.len());
        for column in columns {
            if let Some(value) = self.partition_value(data, *column) {
                origins.push(Origin::Constant(value));
                continue;
            }
            origins.push(match self.find(data, *column, &fields)? {
                Some(found) => {
                    leaves.extend(found.leaves);
                    Origin::Decoded(
                        found.root,
                        Form::Table(Arc::new(move |column| found.shape.apply(column))),
                    )
                }
                None => Origin::Missing,
            });
        }
        leaves.sort_unstable();
        Ok(GroupPlan {
            fields,
            origins,
            leaves,
        })
    }

    fn deleted(&self, file: usize) -> Option<&RoaringTreemap> {
        self.files.get(file)?.deleted.as_ref()
    }
}
