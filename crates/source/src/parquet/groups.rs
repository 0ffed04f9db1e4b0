//! Opens the row groups of a table of Parquet files, and prunes those that cannot match a condition.

use std::sync::Arc;

use arrow::datatypes::{Fields, Schema, SchemaRef};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::pruning::{PruningPredicate, PruningPredicateBuilder};
use parquet::arrow::arrow_reader::RowSelection;
use parquet::file::metadata::ParquetMetaData;
use rayon::prelude::*;
use roaring::RoaringTreemap;
use shardmill_core::catch_panic::attempt;
use shardmill_parquet::{group_null_count, group_ranges};

use super::metadata::FooterCache;
use super::prune::FileStatistics;
use super::rows::{GroupRows, Origin, Sizes, Task};
use crate::base::{Base, project};
use crate::files::InputFile;
use crate::prefetch::{Prefetch, Wanted};
use crate::{Rows, SourceDescription, SourceError, SourceOptions, Unit};

/// The row groups of a table; each is a unit.
pub(crate) struct RowGroups {
    pub units: Vec<Unit>,
    places: Vec<GroupPlace>,
    pub footers: FooterCache,
    pub prefetch: Prefetch,
    sizes: Sizes,
}

/// Where a row group is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupPlace {
    /// The number of the file.
    pub file: usize,
    /// The number of the row group within the file.
    pub group: usize,
    /// Its first row within the file.
    pub first_row: u64,
}

/// How the columns of a unit are built from its file.
pub(crate) struct GroupPlan {
    /// All columns of the file, as the decoder should return them.
    pub fields: Fields,
    pub origins: Vec<Origin>,
    /// The leaves of the file to decode, ascending.
    pub leaves: Vec<usize>,
}

/// A table whose rows are in row groups of Parquet files.
pub(crate) trait GroupTable: Send + Sync {
    /// Returns the columns of the table.
    fn schema(&self) -> &SchemaRef;

    /// Returns the row groups of the table.
    fn groups(&self) -> &RowGroups;

    /// Returns the description of the table.
    fn description(&self) -> &SourceDescription;

    /// Returns the number of nulls of a column, if it is known.
    fn null_count(&self, column: usize) -> Option<u64>;

    /// As [`Base::check_columns`].
    fn check_columns(&self, columns: &[usize]) -> Result<(), SourceError> {
        let _ = columns;
        Ok(())
    }

    /// Returns a file by its number.
    fn input(&self, file: usize) -> Option<&InputFile>;

    /// Returns how columns are built from a file.
    fn plan(
        &self,
        file: usize,
        metadata: &Arc<ParquetMetaData>,
        columns: &[usize],
    ) -> Result<GroupPlan, SourceError>;

    /// Returns the deleted rows of a file.
    fn deleted(&self, file: usize) -> Option<&RoaringTreemap> {
        let _ = file;
        None
    }
}

impl RowGroups {
    pub(crate) fn new(options: &SourceOptions) -> Self {
        Self {
            units: Vec::new(),
            places: Vec::new(),
            footers: FooterCache::new(options.limits.parquet.footer_bytes),
            prefetch: Prefetch::new(options.resources.jobs),
            sizes: Sizes::of(options),
        }
    }

    /// Adds the row groups of the next file, each with its rows and its stored bytes. `deleted` returns how many rows
    /// of a range do not exist. Returns the number of rows and of deleted rows.
    pub(crate) fn add(
        &mut self,
        metadata: Arc<ParquetMetaData>,
        sizes: &[(u64, u64)],
        deleted: impl Fn(std::ops::Range<u64>) -> u64,
    ) -> (u64, u64) {
        let file = self.footers.files();
        let (mut first_row, mut gone) = (0, 0);
        for (group, (rows, bytes)) in sizes.iter().enumerate() {
            let end = first_row + rows;
            let own = deleted(first_row..end);
            self.units.push(Unit {
                file: Some(file),
                first_row: (own == 0).then_some(first_row),
                rows: Some(rows - own),
                bytes: *bytes,
            });
            self.places.push(GroupPlace {
                file,
                group,
                first_row,
            });
            gone += own;
            first_row = end;
        }
        self.footers.add(metadata);
        (first_row - gone, gone)
    }

    /// Returns the place of a unit.
    pub(crate) fn place(&self, unit: usize) -> Result<GroupPlace, SourceError> {
        let place = self.places.get(unit).copied();
        place.ok_or_else(|| SourceError::no_unit(unit))
    }
}

impl<T: GroupTable> Base for T {
    fn schema(&self) -> &SchemaRef {
        GroupTable::schema(self)
    }

    fn units(&self) -> &[Unit] {
        &self.groups().units
    }

    fn check_columns(&self, columns: &[usize]) -> Result<(), SourceError> {
        GroupTable::check_columns(self, columns)
    }

    fn open(&self, unit: usize, columns: &[usize]) -> Result<Box<dyn Rows>, SourceError> {
        Ok(Box::new(open_group(self, unit, columns)?))
    }

    fn null_count(&self, column: usize) -> Option<u64> {
        GroupTable::null_count(self, column)
    }

    fn unit_null_count(&self, unit: usize, column: usize) -> Option<u64> {
        let place = self.groups().place(unit).ok()?;
        let unit = self.groups().units.get(unit)?;
        let file = statistics(self, place.file)?;
        match file.origins.get(column)? {
            Origin::Constant(value) if value.null_count() == 0 => Some(0),
            Origin::Constant(_) | Origin::Missing => unit.rows,
            Origin::Decoded(own, _) => {
                let group = file.metadata.row_groups().get(place.group)?;
                group_null_count(&file.metadata, group, file.own.fields(), *own)
                    // The deleted rows may have been those with nulls.
                    .filter(|count| unit.first_row.is_some() || *count == 0)
            }
        }
    }

    fn file_row(&self, unit: usize, row: u64) -> u64 {
        let Ok(GroupPlace {
            file, first_row, ..
        }) = self.groups().place(unit)
        else {
            return row;
        };
        let mut place = first_row + row;
        if let Some(deleted) = self.deleted(file) {
            // Each deleted row at or before this place shifts it by one.
            let mut iter = deleted.iter();
            iter.advance_to(first_row);
            for gone in iter {
                if gone > place {
                    break;
                }
                place += 1;
            }
        }
        place
    }

    fn will_read(&self, units: &[usize]) {
        self.groups().prefetch.will_read(units);
    }

    fn may_match(&self, condition: &Arc<dyn PhysicalExpr>) -> Option<Vec<bool>> {
        may_match(self, condition)
    }

    fn description(&self) -> &SourceDescription {
        GroupTable::description(self)
    }
}

/// Returns the rows of a row group that are not deleted; `None` if all are.
fn selection(deleted: &RoaringTreemap, first_row: u64, rows: u64) -> Option<RowSelection> {
    let end = first_row.checked_add(rows)?;
    let mut left = Vec::new();
    let mut next = first_row;
    let mut iter = deleted.iter();
    iter.advance_to(first_row);
    for row in iter.take_while(|row| *row < end) {
        if row > next {
            left.push((next - first_row, row - first_row));
        }
        next = row + 1;
    }
    if next == first_row {
        return None;
    }
    if next < end {
        left.push((next - first_row, rows));
    }
    let as_range = |(start, end): (u64, u64)| {
        let place = |row| usize::try_from(row).unwrap_or(usize::MAX);
        place(start)..place(end)
    };
    Some(RowSelection::from_consecutive_ranges(
        left.into_iter().map(as_range),
        usize::try_from(rows).unwrap_or(usize::MAX),
    ))
}

/// Starts to decode some columns of a unit.
fn open_group(
    table: &dyn GroupTable,
    unit: usize,
    columns: &[usize],
) -> Result<GroupRows, SourceError> {
    let groups = table.groups();
    let place = groups.place(unit)?;
    let input = input_of(table, place.file)?;
    let metadata = groups.footers.metadata(place.file, input)?;
    let plan = table.plan(place.file, &metadata, columns)?;
    let file = match wanted_ranges(input, &metadata, place, &plan) {
        None => input.open()?,
        Some(wanted) => {
            let next = |unit| prefetched(table, unit, columns);
            groups.prefetch.open(unit, columns, &wanted, next)?
        }
    };
    let group = metadata.row_groups().get(place.group);
    let rows = group.and_then(|group| u64::try_from(group.num_rows()).ok());
    GroupRows::open(Task {
        input,
        file,
        group: place.group,
        fields: plan.fields,
        leaves: plan.leaves,
        selection: table
            .deleted(place.file)
            .and_then(|deleted| selection(deleted, place.first_row, rows.unwrap_or(0))),
        origins: plan.origins,
        schema: project(table.schema(), columns),
        sizes: groups.sizes,
        metadata,
    })
}

/// Returns a file by its number.
pub(crate) fn input_of(table: &dyn GroupTable, file: usize) -> Result<&InputFile, SourceError> {
    let input = table.input(file);
    input.ok_or_else(|| SourceError::bug(format!("there is no file {file}")))
}

/// Returns what a unit reads of its object, if that is known without a request.
fn prefetched(table: &dyn GroupTable, unit: usize, columns: &[usize]) -> Option<Wanted> {
    let place = table.groups().place(unit).ok()?;
    let input = table.input(place.file)?;
    input.object()?;
    let metadata = table.groups().footers.held(place.file)?;
    let plan = table.plan(place.file, &metadata, columns).ok()?;
    wanted_ranges(input, &metadata, place, &plan)
}

/// Returns what a row group reads of its object; `None` for a file on this machine.
fn wanted_ranges(
    input: &InputFile,
    metadata: &ParquetMetaData,
    place: GroupPlace,
    plan: &GroupPlan,
) -> Option<Wanted> {
    Some(Wanted {
        object: input.object()?.clone(),
        file_version: input.file_version,
        ranges: group_ranges(metadata, place.group, &plan.leaves),
    })
}

/// Returns for each unit whether it may have a row that meets the condition; `None` if statistics cannot tell.
///
/// Pruning must never change the resulting rows, so a row group in doubt is read.
fn may_match(table: &dyn GroupTable, condition: &Arc<dyn PhysicalExpr>) -> Option<Vec<bool>> {
    let build = || {
        PruningPredicateBuilder::new()
            .with_file_schema(Arc::clone(table.schema()))
            .try_build(Arc::clone(condition))
    };
    let predicate = attempt(build)
        .ok()
        .filter(|predicate| !predicate.always_true())?;
    let by_file: Vec<Vec<bool>> = (0..table.groups().footers.files())
        .into_par_iter()
        .map(|number| file_may_match(table, number, &predicate).unwrap_or_default())
        .collect();
    let of_unit = |place: &GroupPlace| {
        let groups = by_file.get(place.file);
        let found = groups.and_then(|groups| groups.get(place.group));
        found.copied().unwrap_or(true)
    };
    Some(table.groups().places.iter().map(of_unit).collect())
}

fn file_may_match(
    table: &dyn GroupTable,
    number: usize,
    predicate: &PruningPredicate,
) -> Option<Vec<bool>> {
    let statistics = statistics(table, number)?;
    attempt(|| predicate.prune(&statistics)).ok()
}

/// Returns the statistics of one file; `None` if it cannot be read.
fn statistics(table: &dyn GroupTable, number: usize) -> Option<FileStatistics<'_>> {
    let input = table.input(number)?;
    let metadata = table.groups().footers.metadata(number, input).ok()?;
    let columns: Vec<usize> = (0..table.schema().fields().len()).collect();
    let plan = table.plan(number, &metadata, &columns).ok()?;
    Some(FileStatistics {
        table: table.schema(),
        origins: plan.origins,
        own: Schema::new(plan.fields),
        metadata,
    })
}
