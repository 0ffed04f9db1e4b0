//! Reads Delta tables: `shardmill-delta` reads the log, and the Parquet reader of this crate reads the files.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef};
use arrow::datatypes::{Fields, Schema, SchemaRef};
use parquet::file::metadata::ParquetMetaData;
use roaring::RoaringTreemap;
use shardmill_core::{Diagnostic as _, ErrorKind};
use shardmill_delta::{
    DeltaFile, DeltaHistory, DeltaSummary, Found, LogFile, Version, file_fields,
};
use shardmill_parquet::{GroupPart, group_null_count, group_sizes};
use shardmill_storage::Location;

use crate::files::{Fingerprint, InputFile, Origin as FileOrigin, check_overlap, describe, stat};
use crate::objects::{Object, Store};
use crate::parquet::{
    Form, GroupPlan, GroupTable, Origin, RowGroups, Tail, add_nulls, fold_in_order, read_groups,
    read_tails,
};
use crate::walk::{FileVersion, on_pool};
use crate::{SourceDescription, SourceError, SourceKind, SourceOptions, SourceProblem};

/// One version of a Delta table.
pub(crate) struct DeltaTable {
    version: Version,
    files: Vec<DataFile>,
    schema: SchemaRef,
    groups: RowGroups,
    null_counts: Vec<Option<u64>>,
    description: SourceDescription,
}

/// A file of the table.
struct DataFile {
    input: InputFile,
    /// The values of the partition columns, in the table's order.
    partition_values: Vec<ArrayRef>,
    /// The deleted rows.
    deleted: Option<RoaringTreemap>,
}

/// What is kept of a file's footer even if the footer is not cached.
struct Summary {
    file: DataFile,
    null_counts: Vec<Option<u64>>,
    metadata: Arc<ParquetMetaData>,
    parts: Vec<GroupPart>,
}

/// Reads the log and every footer.
pub(crate) fn open(
    locations: &[Location],
    options: &SourceOptions,
) -> Result<DeltaTable, SourceError> {
    let given = the_table(locations, options)?;
    check_overlap(given, options)?;
    on_pool(options.resources.jobs, || {
        let (table, bucket) = table(given, options)?;
        let version = table.open(&options.delta.choice())?;
        let mut files: Vec<&LogFile> = version.files().iter().collect();
        if let Some(only) = &options.delta.only {
            files.retain(|file| only.contains(&file.path.shown));
        }
        let opening = Opening {
            version: &version,
            bucket,
        };
        let mut fold = Fold::new(version.columns().len(), options);
        fold_in_order(
            &files,
            |files| opening.tails(files),
            |file, tail| opening.summarise(file, options, tail),
            |summary| fold.add(summary),
        )?;
        let named = files.iter().map(|file| file.named()).collect();
        Ok(fold.finish(version, named))
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
    let given = the_table(std::slice::from_ref(location), options)?;
    on_pool(options.resources.jobs, || {
        let (table, _) = table(given, options)?;
        Ok(table.history(&options.delta.choice(), after)?)
    })?
}

/// Returns the one given location.
fn the_table<'a>(
    locations: &'a [Location],
    options: &SourceOptions,
) -> Result<&'a Location, SourceError> {
    let [given] = locations else {
        return Err(SourceProblem::Option.at("SOURCE", "a Delta table is read alone"));
    };
    if options.delta.version.is_some() && options.delta.timestamp_ms.is_some() {
        return Err(SourceProblem::Option.at("--delta-version", "goes without --delta-timestamp"));
    }
    if let Location::Local(path) = given {
        stat(path)?;
    }
    Ok(given)
}

/// Returns the log at a location, and the whole bucket of a location in a store.
fn table(
    given: &Location,
    options: &SourceOptions,
) -> Result<(shardmill_delta::DeltaTable, Option<Arc<Store>>), SourceError> {
    let bucket = match given {
        Location::Local(_) => None,
        Location::Remote(remote) => Some(Store::open(&remote.root(), options)?),
    };
    let remote = bucket.as_ref().map(|bucket| bucket.remote());
    let table = shardmill_delta::DeltaTable::new(given, remote)?;
    Ok((table, bucket))
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
    version: &'a Version,
    bucket: Option<Arc<Store>>,
}

impl Opening<'_> {
    /// Returns a data file in a store. The log records its length.
    fn object(&self, file: &LogFile) -> Option<InputFile> {
        let object = Object {
            store: Arc::clone(self.bucket.as_ref()?),
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
        let shown = self.version.shown(file);
        let metadata = std::fs::metadata(&file.path.file).map_err(|source| {
            if source.kind() == std::io::ErrorKind::NotFound {
                self.version.missing(&shown).into()
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
    fn tails(&self, files: &[&LogFile]) -> Vec<Option<Tail>> {
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
                return Err(self.version.missing(&input.shown).into());
            }
            tail => tail,
        };
        let (metadata, parts) = read_groups(&input, options, tail)?;
        let rows: u64 = group_sizes(&metadata).iter().map(|(rows, _)| rows).sum();
        let deleted = self.version.deleted(file, rows)?;
        let partition_values = self.version.partition_values(file)?;
        let fields = file_fields(&input.shown, &metadata)?;
        let finder = self.version.finder(&input.shown, &fields)?;
        let is_whole = deleted.as_ref().is_none_or(RoaringTreemap::is_empty);
        let live = rows - deleted.as_ref().map_or(0, RoaringTreemap::len);
        let columns = self.version.columns();
        let mut null_counts = Vec::with_capacity(columns.len());
        for (number, column) in columns.iter().enumerate() {
            if let Some(partition) = self.version.partition(number) {
                let is_null = partition_values
                    .get(partition)
                    .is_none_or(|value| value.null_count() > 0);
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
            parts,
            null_counts,
            metadata,
        })
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
        let (rows, gone) = self.groups.add(summary.metadata, summary.parts, deleted_in);
        self.rows += rows;
        self.deleted_rows += gone;
        self.files_with_deletions += u64::from(summary.file.deleted.is_some());
        self.files.push(summary.file);
    }

    fn finish(self, version: Version, named: Vec<DeltaFile>) -> DeltaTable {
        let inputs: Vec<InputFile> = self.files.iter().map(|file| file.input.clone()).collect();
        let mut description = describe(SourceKind::Delta, &inputs, Some(self.rows));
        description.fingerprint = fingerprint(version.identity(), version.files());
        description.delta = Some(DeltaSummary {
            deleted_rows: self.deleted_rows,
            files_with_deletions: self.files_with_deletions,
            files: named,
            ..version.summary().clone()
        });
        let columns = version.columns().iter();
        let fields: Fields = columns.map(|column| Arc::clone(&column.field)).collect();
        DeltaTable {
            version,
            files: self.files,
            schema: Arc::new(Schema::new(fields)),
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

    fn partition_value(&self, file: &DataFile, column: usize) -> Option<ArrayRef> {
        let partition = self.version.partition(column)?;
        file.partition_values.get(partition).cloned()
    }

    fn find(
        &self,
        file: &DataFile,
        column: usize,
        fields: &Fields,
    ) -> Result<Option<Found>, SourceError> {
        let finder = self.version.finder(&file.input.shown, fields)?;
        match self.version.columns().get(column) {
            Some(column) => Ok(finder.find(column, fields)?),
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
