//! Reads Parquet files; each row group is a unit, decoded one batch at a time.

mod groups;
mod metadata;
mod prune;
mod rows;

use std::sync::Arc;

use arrow::datatypes::Fields;
use parquet::file::metadata::ParquetMetaData;
use shardmill_core::Error;
use shardmill_parquet::{GroupPart, Partitions, group_null_count};
use shardmill_storage::Location;

use crate::base::add_nulls;
use crate::files::{InputFile, describe, list_tables};
use crate::unite::{United, Uniter};
use crate::{SourceKind, SourceOptions, SourceProblem, Unit};
use metadata::arrow_fields;

pub(crate) use groups::{GroupFiles, GroupTable, RowGroups};
pub(crate) use metadata::{Groups, fold_footers};
pub(crate) use rows::{Form, GroupPlan, Origin};

/// The files of a table, whose columns are those of the files, then those of the partitions.
struct ParquetFiles {
    files: Vec<InputFile>,
    united: United,
    partitions: Partitions,
    keep_extensions: bool,
}

/// What is kept of a footer even if the footer is not cached.
struct Summary {
    fields: Fields,
    null_counts: Vec<Option<u64>>,
    metadata: Arc<ParquetMetaData>,
    parts: Vec<GroupPart>,
}

/// Returns the columns that directories form.
fn partitions_of(files: &[InputFile]) -> Result<Partitions, Error> {
    let paths = files.iter().map(|file| &*file.relative);
    Partitions::of(paths).map_err(|problem| {
        let file = files.get(problem.file).map_or("", |file| &*file.shown);
        SourceProblem::Partition.at(file, problem.reason)
    })
}

/// Lists the files and reads every footer.
pub(crate) fn open(locations: &[Location], options: &SourceOptions) -> Result<GroupTable, Error> {
    let files = list_tables(locations, SourceKind::Parquet, options)?;
    let partitions = partitions_of(&files)?;
    let mut groups = RowGroups::new(options);
    let mut uniter = Uniter::new(options);
    // For each column, the nulls in the files that have it, and the rows of those files.
    let mut counts: Vec<(Option<u64>, u64)> = Vec::new();
    fold_footers(
        &files,
        options,
        |input| input,
        |input, groups| summarise(input, options, groups?),
        |summary| {
            let rows = groups.add(summary.metadata, summary.parts, |_| 0);
            let columns = uniter.add(&summary.fields);
            for (column, own) in columns.iter().zip(&summary.null_counts) {
                if *column >= counts.len() {
                    counts.resize(*column + 1, (Some(0), 0));
                }
                if let Some((nulls, with)) = counts.get_mut(*column) {
                    add_nulls(nulls, *own);
                    *with = with.saturating_add(rows);
                }
            }
        },
    )?;
    let united = uniter.finish();
    let mut fields = united.fields.clone();
    // In a file that lacks a column, all its rows are null.
    let all_rows = groups.rows;
    let null_count = |(nulls, with): (Option<u64>, u64)| nulls?.checked_add(all_rows - with);
    let mut null_counts: Vec<_> = counts.into_iter().map(null_count).collect();
    for (number, field) in partitions.fields.iter().enumerate() {
        if fields.iter().any(|own| own.name() == field.name()) {
            return Err(SourceProblem::Partition.at(
                files.first().map_or("", |file| &file.shown),
                format!(
                    "the column `{}` is both in the files and in the names of directories",
                    shardmill_core::escape(field.name())
                ),
            ));
        }
        fields.push(Arc::clone(field));
        let is_null = |unit: &&Unit| {
            let file = unit.file;
            file.is_some_and(|file| partitions.is_null(file, number))
        };
        let units = groups.units.iter().filter(is_null);
        null_counts.push(Some(units.filter_map(|unit| unit.rows).sum()));
    }
    let description = describe(SourceKind::Parquet, &files, Some(all_rows));
    let files = ParquetFiles {
        files,
        united,
        partitions,
        keep_extensions: options.schema.keep_extensions,
    };
    Ok(groups.table(fields, null_counts, description, files))
}

fn summarise(
    input: &InputFile,
    options: &SourceOptions,
    (metadata, parts): Groups,
) -> Result<Summary, Error> {
    let fields = arrow_fields(&input.shown, &metadata)?;
    let null_count = |column| -> Option<u64> {
        let groups = metadata.row_groups().iter();
        groups
            .map(|group| group_null_count(&metadata, group, &fields, column))
            .sum()
    };
    Ok(Summary {
        null_counts: (0..fields.len()).map(null_count).collect(),
        fields: options.schema.columns_of(&fields),
        metadata,
        parts,
    })
}

impl GroupFiles for ParquetFiles {
    fn check_columns(&self, columns: &[usize]) -> Result<(), Error> {
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
    ) -> Result<GroupPlan, Error> {
        let file = self.input(number).map_or("", |input| &input.shown);
        let fields = arrow_fields(file, metadata)?;
        let mut roots = Vec::new();
        let mut origins = Vec::with_capacity(columns.len());
        let own = self.united.fields.iter().zip(&self.united.forms);
        let own: Vec<_> = own.collect();
        for column in columns {
            origins.push(match own.get(*column) {
                None => Origin::Constant(self.partitions.value(number, column - own.len())),
                Some((field, form)) => match fields.find(field.name()) {
                    Some((root, own)) => {
                        roots.push(root);
                        let extension = (!self.keep_extensions).then(|| Arc::clone(own));
                        Origin::Decoded(root, Form::Conform(extension, **form))
                    }
                    None => Origin::Missing,
                },
            });
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
