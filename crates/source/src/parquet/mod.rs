//! Reads Parquet files; each row group is a unit, decoded one batch at a time.

mod int96;
mod metadata;
mod pages;
mod prune;
mod rows;
mod thrift;

use std::sync::Arc;

use arrow::datatypes::{Fields, Schema, SchemaRef};
use datafusion::physical_expr::PhysicalExpr;
use parquet::file::metadata::ParquetMetaData;
use shardmill_storage::Location;

use crate::base::{Base, project};
use crate::files::{InputFile, describe, list_tables};
use crate::hive::Partitions;
use crate::prefetch::{Prefetch, Wanted};
use crate::unite::{Form as Conform, United, Uniter};
use crate::walk::on_pool;
use crate::{Rows, SourceDescription, SourceError, SourceKind, SourceOptions, Unit};
use metadata::arrow_fields;

pub(crate) use int96::{in_microseconds, leaf_count, leaves_of};
pub(crate) use metadata::{
    FooterCache, Tail, add_nulls, fold_in_order, group_null_count, group_ranges, group_sizes,
    read_footer, read_tails,
};
pub(crate) use prune::{FileView, Prunable, may_match};
pub(crate) use rows::{Form, GroupRows, Origin, Sizes, Task};

/// A table of Parquet files.
pub(crate) struct ParquetTable {
    files: Arc<Vec<InputFile>>,
    /// File columns, then partition columns.
    schema: SchemaRef,
    file_columns: usize,
    united: United,
    partitions: Arc<Partitions>,
    footers: FooterCache,
    prefetch: Prefetch,
    units: Vec<Unit>,
    /// The row group of each unit.
    groups: Vec<usize>,
    null_counts: Vec<Option<u64>>,
    sizes: Sizes,
    description: SourceDescription,
}

/// What is kept of a footer even if the footer is not cached.
struct Summary {
    fields: Fields,
    /// For each row group, its rows and its stored bytes.
    groups: Vec<(u64, u64)>,
    null_counts: Vec<Option<u64>>,
    metadata: Arc<ParquetMetaData>,
}

/// Lists the files and reads every footer.
///
/// # Errors
///
/// `source-*` and `parquet-*` errors.
pub(crate) fn open(
    locations: &[Location],
    options: &SourceOptions,
) -> Result<ParquetTable, SourceError> {
    on_pool(options.resources.jobs, || open_here(locations, options))?
}

fn open_here(locations: &[Location], options: &SourceOptions) -> Result<ParquetTable, SourceError> {
    let files = list_tables(locations, SourceKind::Parquet, options)?;
    let partitions = Partitions::of(&files)?;
    let footer_bytes = options.limits.parquet_footer_bytes;
    let mut fold = Fold::new(footer_bytes, options);
    fold_in_order(
        &files,
        |inputs| read_tails(&inputs.iter().collect::<Vec<_>>()),
        |input, tail| summarise(input, footer_bytes, tail),
        |summary| {
            fold.add(&summary);
            Ok(())
        },
    )?;
    fold.finish(files, partitions, options)
}

fn summarise(
    input: &InputFile,
    footer_bytes: u64,
    tail: Option<Tail>,
) -> Result<Summary, SourceError> {
    let metadata = Arc::new(read_footer(input, footer_bytes, tail)?);
    let fields = arrow_fields(&input.shown, &metadata)?;
    let groups = group_sizes(&metadata);
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
        groups,
        null_counts,
        metadata,
    })
}

/// Merges files, in order, into one table.
struct Fold {
    uniter: Uniter,
    /// For each column, the nulls in the files that have it, and the rows of those files.
    counts: Vec<(Option<u64>, u64)>,
    units: Vec<Unit>,
    groups: Vec<usize>,
    footers: FooterCache,
    rows: u64,
}

impl Fold {
    fn new(footer_bytes: u64, options: &SourceOptions) -> Self {
        Self {
            uniter: Uniter::new(options),
            counts: Vec::new(),
            units: Vec::new(),
            groups: Vec::new(),
            footers: FooterCache::new(footer_bytes),
            rows: 0,
        }
    }

    fn add(&mut self, summary: &Summary) {
        let number = self.footers.files();
        let rows: u64 = summary.groups.iter().map(|(rows, _)| rows).sum();
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
        let mut first_row = 0;
        for (group, (rows, bytes)) in summary.groups.iter().enumerate() {
            self.units.push(Unit {
                file: Some(number),
                first_row: Some(first_row),
                rows: Some(*rows),
                bytes: *bytes,
            });
            self.groups.push(group);
            first_row += rows;
        }
        self.rows = self.rows.saturating_add(rows);
        self.footers.add(Arc::clone(&summary.metadata));
    }

    fn finish(
        self,
        files: Vec<InputFile>,
        partitions: Partitions,
        options: &SourceOptions,
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
                return Err(SourceError::Partition {
                    object: files
                        .first()
                        .map(|file| file.shown.clone())
                        .unwrap_or_default(),
                    reason: format!(
                        "the column `{}` is both in the files and in the names of directories",
                        shardmill_core::escape(field.name())
                    ),
                });
            }
            fields.push(Arc::clone(field));
            let nulls = self
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
            files: Arc::new(files),
            schema: Arc::new(Schema::new(fields)),
            file_columns,
            united,
            partitions: Arc::new(partitions),
            footers: self.footers,
            prefetch: Prefetch::new(options.resources.jobs),
            units: self.units,
            groups: self.groups,
            null_counts,
            sizes: Sizes::of(options),
            description,
        })
    }
}

impl ParquetTable {
    fn unit(&self, unit: usize) -> Result<(usize, usize), SourceError> {
        let file = self.units.get(unit).and_then(|unit| unit.file);
        file.zip(self.groups.get(unit).copied())
            .ok_or_else(|| SourceError::no_unit(unit))
    }
}

/// How the columns of a unit are built from its file.
struct Plan {
    fields: Fields,
    origins: Vec<Origin>,
    leaves: Vec<usize>,
}

impl ParquetTable {
    fn plan(
        &self,
        number: usize,
        input: &InputFile,
        metadata: &Arc<ParquetMetaData>,
        columns: &[usize],
    ) -> Result<Plan, SourceError> {
        let fields = arrow_fields(&input.shown, metadata)?;
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
        Ok(Plan {
            fields,
            origins,
            leaves,
        })
    }

    /// Returns what a unit reads of its object, if that is known without a request.
    fn wanted(&self, unit: usize, columns: &[usize]) -> Option<Wanted> {
        let (number, group) = self.unit(unit).ok()?;
        let input = self.files.get(number)?;
        let object = input.object()?.clone();
        let metadata = self.footers.held(number)?;
        let plan = self.plan(number, input, &metadata, columns).ok()?;
        Some(Wanted {
            object,
            file_version: input.file_version,
            ranges: group_ranges(&metadata, group, &plan.leaves),
        })
    }

    fn open_group(&self, unit: usize, columns: &[usize]) -> Result<GroupRows, SourceError> {
        let (number, group) = self.unit(unit)?;
        let input = self
            .files
            .get(number)
            .ok_or_else(|| SourceError::bug(format!("there is no file {number}")))?;
        let metadata = self.footers.metadata(number, input)?;
        let Plan {
            fields,
            origins,
            leaves,
        } = self.plan(number, input, &metadata, columns)?;
        let file = match input.object() {
            None => input.open()?,
            Some(object) => {
                let wanted = Wanted {
                    object: object.clone(),
                    file_version: input.file_version,
                    ranges: group_ranges(&metadata, group, &leaves),
                };
                let next = |unit| self.wanted(unit, columns);
                self.prefetch.open(unit, columns, &wanted, next)?
            }
        };
        GroupRows::open(Task {
            input,
            file,
            metadata,
            group,
            fields,
            leaves,
            selection: None,
            origins,
            schema: project(&self.schema, columns),
            sizes: self.sizes,
        })
    }
}

impl Prunable for ParquetTable {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn units(&self) -> &[Unit] {
        &self.units
    }

    fn view(&self, number: usize) -> Option<FileView> {
        let input = self.files.get(number)?;
        let metadata = self.footers.metadata(number, input).ok()?;
        let own = arrow_fields(&input.shown, &metadata).ok()?;
        let columns = self.schema.fields().iter().enumerate();
        let (places, constants) = columns
            .map(
                |(column, field)| match column.checked_sub(self.file_columns) {
                    Some(partition) => (None, Some(self.partitions.value(number, partition))),
                    None => (own.find(field.name()).map(|(place, _)| place), None),
                },
            )
            .unzip();
        Some(FileView {
            places,
            constants,
            own: Schema::new(own),
            metadata,
        })
    }
}

impl Base for ParquetTable {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn units(&self) -> &[Unit] {
        &self.units
    }

    fn check_columns(&self, columns: &[usize]) -> Result<(), SourceError> {
        self.united.check(columns, SourceKind::Parquet, &self.files)
    }

    fn open(&self, unit: usize, columns: &[usize]) -> Result<Box<dyn Rows>, SourceError> {
        Ok(Box::new(self.open_group(unit, columns)?))
    }

    fn will_read(&self, units: &[usize]) {
        self.prefetch.will_read(units);
    }

    fn null_count(&self, column: usize) -> Option<u64> {
        self.null_counts.get(column).copied().flatten()
    }

    fn unit_null_count(&self, unit: usize, column: usize) -> Result<Option<u64>, SourceError> {
        let (file, group) = self.unit(unit)?;
        if column >= self.file_columns {
            let rows = self.units.get(unit).and_then(|unit| unit.rows).unwrap_or(0);
            let is_null = self.partitions.is_null(file, column - self.file_columns);
            return Ok(Some(if is_null { rows } else { 0 }));
        }
        let Some(input) = self.files.get(file) else {
            return Ok(None);
        };
        let metadata = self.footers.metadata(file, input)?;
        let fields = arrow_fields(&input.shown, &metadata)?;
        let name = self.schema.field(column).name();
        let Some((place, _)) = fields.find(name) else {
            return Ok(self.units.get(unit).and_then(|unit| unit.rows));
        };
        let group = metadata.row_groups().get(group);
        Ok(group.and_then(|group| group_null_count(&metadata, group, &fields, place)))
    }

    fn may_match(&self, condition: &Arc<dyn PhysicalExpr>) -> Option<Vec<bool>> {
        may_match(self, self.files.len(), &self.groups, condition)
    }

    fn description(&self) -> &SourceDescription {
        &self.description
    }
}
