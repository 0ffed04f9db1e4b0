//! Reads Delta tables: `shardmill-delta` reads the log, and the Parquet reader of this crate reads the files.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef};
use arrow::datatypes::Fields;
use parquet::file::metadata::ParquetMetaData;
use rayon::prelude::*;
use roaring::RoaringTreemap;
use shardmill_core::{Error, ErrorKind};
use shardmill_delta::{ColumnOrigin, DeltaHistory, DeltaSummary, LogFile, Version, file_fields};
use shardmill_parquet::{GroupPart, group_null_count, group_sizes};
use shardmill_storage::Location;

use crate::base::add_nulls;
use crate::error;
use crate::files::{Fingerprint, InputFile, Origin as FileOrigin, check_overlap, describe, stat};
use crate::objects::Store;
use crate::parquet::{
    Form, GroupFiles, GroupPlan, GroupTable, Groups, Origin, RowGroups, fold_footers,
};
use crate::walk::{FileVersion, on_pool};
use crate::{SourceKind, SourceOptions, SourceProblem};

/// The files of one version of a Delta table.
struct DeltaFiles {
    version: Version,
    /// The whole bucket of a table in a store.
    bucket: Option<Arc<Store>>,
    /// The files that were inspected.
    files: Vec<DataFile>,
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
pub(crate) fn open(locations: &[Location], options: &SourceOptions) -> Result<GroupTable, Error> {
    let given = the_table(locations, options)?;
    check_overlap(given, options)?;
    let (table, bucket) = table(given, options)?;
    let mut table = DeltaFiles {
        version: table.open(&options.delta.choice)?,
        bucket,
        files: Vec::new(),
    };
    let version = &table.version;
    let mut listed: Vec<&LogFile> = version.files().iter().collect();
    if let Some(only) = &options.delta.only {
        listed.retain(|file| only.contains(&file.path.shown));
    }
    let mut groups = RowGroups::new(options);
    let mut null_counts = vec![Some(0); version.columns().len()];
    let mut files: Vec<DataFile> = Vec::with_capacity(listed.len());
    let inputs = listed
        .par_iter()
        .map(|file| Ok((*file, table.input(file)?)));
    let inputs: Vec<Result<(&LogFile, InputFile), Error>> = inputs.collect();
    fold_footers(
        &inputs.into_iter().collect::<Result<Vec<_>, _>>()?,
        options,
        |(_, input)| input,
        |(file, input), groups| table.summarise(file, input, groups),
        |summary| {
            for (total, own) in null_counts.iter_mut().zip(&summary.null_counts) {
                add_nulls(total, *own);
            }
            let deleted = summary.file.deleted.as_ref();
            let deleted_in = |rows| deleted.map_or(0, |deleted| deleted.range_cardinality(rows));
            groups.add(summary.metadata, summary.parts, deleted_in);
            files.push(summary.file);
        },
    )?;
    let inputs: Vec<InputFile> = files.iter().map(|file| file.input.clone()).collect();
    let mut description = describe(SourceKind::Delta, &inputs, Some(groups.rows));
    let with_deletions = files.iter().filter(|file| file.deleted.is_some());
    description.fingerprint = fingerprint(version.identity(), version.files());
    description.delta = Some(DeltaSummary {
        deleted_rows: groups.deleted_rows,
        files_with_deletions: with_deletions.count() as u64,
        files: listed.into_iter().map(LogFile::named).collect(),
        ..version.summary().clone()
    });
    let columns = version.columns().iter();
    let fields: Fields = columns.map(|column| Arc::clone(&column.field)).collect();
    table.files = files;
    Ok(groups.table(fields, null_counts, description, table))
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
) -> Result<DeltaHistory, Error> {
    let given = the_table(std::slice::from_ref(location), options)?;
    on_pool(options.resources.jobs, || {
        let (table, _) = table(given, options)?;
        table.history(&options.delta.choice, after)
    })?
}

/// Returns the one given location.
fn the_table<'a>(
    locations: &'a [Location],
    options: &SourceOptions,
) -> Result<&'a Location, Error> {
    let [given] = locations else {
        return Err(SourceProblem::Option.at("SOURCE", "a Delta table is read alone"));
    };
    if options.delta.choice.version.is_some() && options.delta.choice.timestamp_ms.is_some() {
        return Err(SourceProblem::Option.at(
            "--delta-version",
            "cannot be combined with --delta-timestamp",
        ));
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
) -> Result<(shardmill_delta::DeltaTable, Option<Arc<Store>>), Error> {
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

impl DeltaFiles {
    /// Returns a data file. The log records the length of one in a store.
    fn input(&self, file: &LogFile) -> Result<InputFile, Error> {
        let relative = &file.path.shown;
        if let Some(store) = &self.bucket
            && let Some(name) = file.path.file.to_str()
        {
            let file_version = FileVersion {
                bytes: file.bytes,
                mtime_ns: 0,
            };
            let name = name.trim_start_matches('/');
            return Ok(InputFile::object_in(store, name, relative, file_version));
        }
        let shown = self.version.shown(file);
        let metadata = std::fs::metadata(&file.path.file).map_err(|source| {
            if source.kind() == std::io::ErrorKind::NotFound {
                self.version.missing(&shown)
            } else {
                error::io("open", &shown, source)
            }
        })?;
        Ok(InputFile {
            origin: FileOrigin::Local(file.path.file.clone()),
            relative: relative.clone(),
            file_version: FileVersion::of(&metadata),
            shown,
        })
    }

    /// Compares a file's footer with the log.
    fn summarise(
        &self,
        file: &LogFile,
        input: &InputFile,
        groups: Result<Groups, Error>,
    ) -> Result<Summary, Error> {
        // A missing object is noticed when its end is fetched.
        let (metadata, parts) = groups.map_err(|error| match error.kind() {
            ErrorKind::NotFound => self.version.missing(&input.shown),
            _ => error,
        })?;
        let rows: u64 = group_sizes(&metadata).iter().map(|(rows, _)| rows).sum();
        let deleted = self.version.deleted(file, rows)?;
        let partition_values = self.version.partition_values(file)?;
        let fields = file_fields(&input.shown, &metadata)?;
        let is_whole = deleted.as_ref().is_none_or(RoaringTreemap::is_empty);
        let live = rows - deleted.as_ref().map_or(0, RoaringTreemap::len);
        let columns = 0..self.version.columns().len();
        let origins = self
            .version
            .locate(&input.shown, &fields, &partition_values, columns)?;
        let null_count = |origin| match origin {
            ColumnOrigin::Constant(value) if value.null_count() == 0 => Some(0),
            ColumnOrigin::Constant(_) | ColumnOrigin::Missing => Some(live),
            ColumnOrigin::Stored(found) => {
                let groups = metadata.row_groups().iter();
                let counts =
                    groups.map(|group| group_null_count(&metadata, group, &fields, found.root));
                let count = counts.sum::<Option<u64>>();
                // The deleted rows may have been those with nulls.
                count.filter(|count| is_whole || *count == 0)
            }
        };
        Ok(Summary {
            file: DataFile {
                input: input.clone(),
                partition_values,
                deleted,
            },
            null_counts: origins.into_iter().map(null_count).collect(),
            parts,
            metadata,
        })
    }
}

impl GroupFiles for DeltaFiles {
    fn input(&self, file: usize) -> Option<&InputFile> {
        self.files.get(file).map(|file| &file.input)
    }

    fn plan(
        &self,
        number: usize,
        metadata: &Arc<ParquetMetaData>,
        columns: &[usize],
    ) -> Result<GroupPlan, Error> {
        let data = self.files.get(number);
        let data = data.ok_or_else(|| error::bug(format!("there is no file {number}")))?;
        let fields = file_fields(&data.input.shown, metadata)?;
        let columns = columns.iter().copied();
        let (shown, values) = (&data.input.shown, &data.partition_values);
        let mut leaves = Vec::new();
        let origins = self.version.locate(shown, &fields, values, columns)?;
        let origins = origins.into_iter().map(|origin| match origin {
            ColumnOrigin::Constant(value) => Origin::Constant(value),
            ColumnOrigin::Missing => Origin::Missing,
            ColumnOrigin::Stored(found) => {
                leaves.extend(found.leaves);
                Origin::Decoded(found.root, Form::Delta(found.shape))
            }
        });
        let origins = origins.collect();
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
