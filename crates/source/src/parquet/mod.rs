//! Reads Parquet files; each row group is a unit, decoded one batch at a time.

mod groups;
mod metadata;
mod prune;
mod rows;

use std::sync::Arc;

use arrow::datatypes::{Fields, Schema, SchemaRef};
use parquet::file::metadata::ParquetMetaData;
use shardmill_parquet::{GroupPart, Partitions, group_null_count};
use shardmill_storage::Location;

use crate::files::{InputFile, describe, list_tables};
use crate::unite::{Form as Conform, United, Uniter};
use crate::walk::on_pool;
use crate::{SourceDescription, SourceError, SourceKind, SourceOptions, SourceProblem};
use metadata::arrow_fields;

use groups::input_of;
pub(crate) use groups::{GroupPlan, GroupTable, RowGroups};
pub(crate) use metadata::{Tail, add_nulls, fold_in_order, read_groups, read_tails};
pub(crate) use rows::{Form, Origin};

/// A table of Parquet files.
pub(crate) struct ParquetTable {
    files: Vec<InputFile>,
    /// File columns, then partition columns.
    schema: SchemaRef,
    file_columns: usize,
    united: United,
    partitions: Partitions,
    groups: RowGroups,
    null_counts: Vec<Option<u64>>,
    description: SourceDescription,
}

/// What is kept of a footer even if the footer is not cached.
struct Summary {
    fields: Fields,
    null_counts: Vec<Option<u64>>,
    metadata: Arc<ParquetMetaData>,
    parts: Vec<GroupPart>,
}

/// Lists the files and reads every footer.
pub(crate) fn open(
    locations: &[Location],
    options: &SourceOptions,
) -> Result<ParquetTable, SourceError> {
    on_pool(options.resources.jobs, || open_here(locations, options))?
}

/// Returns the columns that directories form.
fn partitions_of(files: &[InputFile]) -> Result<Partitions, SourceError> {
    let paths = files.iter().map(|file| &*file.relative);
    Partitions::of(paths).map_err(|problem| {
        let file = files.get(problem.file).map_or("", |file| &*file.shown);
        SourceProblem::Partition.at(file, problem.reason)
    })
}

fn open_here(locations: &[Location], options: &SourceOptions) -> Result<ParquetTable, SourceError> {
    let files = list_tables(locations, SourceKind::Parquet, options)?;
    let partitions = partitions_of(&files)?;
    let mut fold = Fold::new(options);
    fold_in_order(
        &files,
        |inputs| read_tails(&inputs.iter().collect::<Vec<_>>()),
        |input, tail| summarise(input, options, tail),
        |summary| fold.add(summary),
    )?;
    fold.finish(files, partitions)
}

fn summarise(
    input: &InputFile,
    options: &SourceOptions,
    tail: Option<Tail>,
) -> Result<Summary, SourceError> {
    let (metadata, parts) = read_groups(input, options, tail)?;
    let fields = arrow_fields(&input.shown, &metadata)?;
    let null_counts = (0..fields.len())
        .map(|column| {
            let counts = metadata
                .row_groups()
                .iter()
                .map(|group| group_null_count(&metadata, group, &fields, column));
            counts.sum::<Option<u64>>()
        })
        .collect();
    Ok(Summary {
        fields,
        null_counts,
        metadata,
        parts,
    })
}

/// Merges files, in order, into one table.
struct Fold {
    uniter: Uniter,
    /// For each column, the nulls in the files that have it, and the rows of those files.
    counts: Vec<(Option<u64>, u64)>,
    groups: RowGroups,
    rows: u64,
}

impl Fold {
    fn new(options: &SourceOptions) -> Self {
        Self {
            uniter: Uniter::new(options),
            counts: Vec::new(),
            groups: RowGroups::new(options),
            rows: 0,
        }
    }

    fn add(&mut self, summary: Summary) {
        let (rows, _) = self.groups.add(summary.metadata, summary.parts, |_| 0);
        let places = self.uniter.add(&summary.fields);
        for (place, own) in places.iter().zip(&summary.null_counts) {
            if *place >= self.counts.len() {
                self.counts.resize(*place + 1, (Some(0), 0));
            }
            if let Some((nulls, with)) = self.counts.get_mut(*place) {
                add_nulls(nulls, *own);
                *with = with.saturating_add(rows);
            }
        }
        self.rows = self.rows.saturating_add(rows);
    }

    fn finish(
        self,
        files: Vec<InputFile>,
        partitions: Partitions,
    ) -> Result<ParquetTable, SourceError> {
        let united = self.uniter.finish();
        let mut fields = united.fields.clone();
        let file_columns = fields.len();
        // In a file that lacks a column, all its rows are null.
        let all_rows = self.rows;
        let null_count = |(nulls, with): (Option<u64>, u64)| nulls?.checked_add(all_rows - with);
        let mut null_counts: Vec<_> = self.counts.into_iter().map(null_count).collect();
        for (number, field) in partitions.fields.iter().enumerate() {
            if fields.iter().any(|own| own.name() == field.name()) {
                return Err(SourceProblem::Partition.at(
                    files
                        .first()
                        .map(|file| file.shown.clone())
                        .unwrap_or_default(),
                    format!(
                        "the column `{}` is both in the files and in the names of directories",
                        shardmill_core::escape(field.name())
                    ),
                ));
            }
            fields.push(Arc::clone(field));
            let nulls = self
                .groups
                .units
                .iter()
                .filter(|unit| {
                    unit.file
                        .is_some_and(|file| partitions.is_null(file, number))
                })
                .filter_map(|unit| unit.rows)
                .sum();
            null_counts.push(Some(nulls));
        }
        let description = describe(SourceKind::Parquet, &files, Some(self.rows));
        Ok(ParquetTable {
            files,
            schema: Arc::new(Schema::new(fields)),
            file_columns,
            united,
            partitions,
            groups: self.groups,
            null_counts,
            description,
        })
    }
}

impl GroupTable for ParquetTable {
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

    fn check_columns(&self, columns: &[usize]) -> Result<(), SourceError> {
        self.united.check(columns, SourceKind::Parquet, &self.files)
    }

    fn input(&self, file: usize) -> Option<&InputFile> {
        self.files.get(file)
    }

    fn plan(
        &self,
        number: usize,
        metadata: &Arc<ParquetMetaData>,
        columns: &[usize],
    ) -> Result<GroupPlan, SourceError> {
        let fields = arrow_fields(&input_of(self, number)?.shown, metadata)?;
        let mut roots = Vec::new();
        let mut origins = Vec::with_capacity(columns.len());
        for column in columns {
            if *column >= self.file_columns {
                let value = self.partitions.value(number, column - self.file_columns);
                origins.push(Origin::Constant(value));
                continue;
            }
            let name = self
                .schema
                .fields()
                .get(*column)
                .map(|field| field.name().as_str())
                .unwrap_or_default();
            match fields.find(name) {
                Some((place, _)) => {
                    roots.push(place);
                    let form = self.united.forms.get(*column).copied();
                    let form = form.unwrap_or(Conform::Cast);
                    origins.push(Origin::Decoded(place, Form::Conform(form)));
                }
                None => origins.push(Origin::Missing),
            }
        }
        let descr = metadata.file_metadata().schema_descr();
        let leaves = (0..descr.num_columns())
            .filter(|leaf| roots.contains(&descr.get_column_root_idx(*leaf)))
            .collect();
        Ok(GroupPlan {
            fields,
            origins,
            leaves,
        })
    }
}
