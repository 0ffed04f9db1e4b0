//! Opens the row groups of a table of Parquet files, and prunes those that cannot match a condition.

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::{Fields, Schema, SchemaRef};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::pruning::{PruningPredicate, PruningPredicateBuilder};
use parquet::arrow::arrow_reader::RowSelection;
use parquet::file::metadata::ParquetMetaData;
use rayon::prelude::*;
use roaring::RoaringTreemap;
use shardmill_core::catch_panic::attempt;
use shardmill_parquet::{GroupPages, GroupPart, group_null_count, group_ranges, group_sizes};

use super::metadata::FooterCache;
use super::prune::FileStatistics;
use super::rows::{GroupRows, Origin, Sizes, Task};
use crate::base::{Base, project};
use crate::files::InputFile;
use crate::prefetch::{Prefetch, Wanted};
use crate::{Rows, SourceDescription, SourceError, SourceOptions, Unit};

/// The row groups of a table; each is a unit, or several if large ones are divided.
pub(crate) struct RowGroups {
    pub units: Vec<Unit>,
    places: Vec<GroupPlace>,
    pub footers: FooterCache,
    pub prefetch: Prefetch,
    sizes: Sizes,
}

/// Where a row group is, or a part of one.
#[derive(Clone, Debug)]
pub(crate) struct GroupPlace {
    /// The number of the file.
    pub file: usize,
    /// The row group within the file, and its rows.
    pub part: GroupPart,
}

impl GroupPlace {
    /// Returns the rows within the file.
    fn file_rows(&self) -> Range<u64> {
        self.part.before + self.part.rows.start..self.part.before + self.part.rows.end
    }
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

    /// Adds the row groups of the next file. `deleted` returns how many rows of a range do not exist. Returns the number of
    /// rows and of deleted rows.
    pub(crate) fn add(
        &mut self,
        metadata: Arc<ParquetMetaData>,
        parts: Vec<GroupPart>,
        deleted: impl Fn(Range<u64>) -> u64,
    ) -> (u64, u64) {
        let file = self.footers.files();
        let sizes = group_sizes(&metadata);
        let (mut live, mut gone) = (0, 0);
        for part in parts {
            let (all_rows, all_bytes) = sizes.get(part.group).copied().unwrap_or((0, 0));
            let place = GroupPlace { file, part };
            let own = place.file_rows();
            let rows = own.end - own.start;
            let deleted = deleted(own.clone());
            let bytes = u128::from(all_bytes) * u128::from(rows) / u128::from(all_rows.max(1));
            self.units.push(Unit {
                file: Some(file),
                first_row: (deleted == 0).then_some(own.start),
                rows: Some(rows - deleted),
                bytes: u64::try_from(bytes).unwrap_or(all_bytes),
            });
            self.places.push(place);
            gone += deleted;
            live += rows - deleted;
        }
        self.footers.add(metadata);
        (live, gone)
    }

    /// Returns the place of a unit.
    pub(crate) fn place(&self, unit: usize) -> Result<&GroupPlace, SourceError> {
        let place = self.places.get(unit);
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
                let group = file.metadata.row_groups().get(place.part.group)?;
                group_null_count(&file.metadata, group, file.own.fields(), *own)
                    // The deleted rows, or those of other parts, may be those with nulls.
                    .filter(|count| {
                        let is_whole = unit.first_row.is_some() && place.part.pages.is_none();
                        is_whole || *count == 0
                    })
            }
        }
    }

    fn file_row(&self, unit: usize, row: u64) -> u64 {
        let Ok(own) = self.groups().place(unit) else {
            return row;
        };
        let first_row = own.file_rows().start;
        let mut place = first_row + row;
        if let Some(deleted) = self.deleted(own.file) {
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

/// Returns the rows of a unit that are not deleted; `None` if it is a whole row group without deleted rows. Deleted rows are
/// numbered within the file.
fn selection(
    deleted: Option<&RoaringTreemap>,
    part: &GroupPart,
    all_rows: u64,
) -> Option<RowSelection> {
    let (mut next, rows) = (part.rows.start, part.rows.end);
    let mut left = Vec::new();
    let mut gone = Vec::new();
    if let Some(deleted) = deleted {
        let mut iter = deleted.iter();
        iter.advance_to(part.before + next);
        let own = iter.map(|row| row - part.before);
        gone.extend(own.take_while(|row| *row < rows));
    }
    if gone.is_empty() && part.pages.is_none() {
        return None;
    }
    for row in gone {
        if row > next {
            left.push((next, row));
        }
        next = row + 1;
    }
    if next < rows {
        left.push((next, rows));
    }
    let as_range = |(start, end): (u64, u64)| {
        let place = |row| usize::try_from(row).unwrap_or(usize::MAX);
        place(start)..place(end)
    };
    Some(RowSelection::from_consecutive_ranges(
        left.into_iter().map(as_range),
        usize::try_from(all_rows).unwrap_or(usize::MAX),
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
    let file = match wanted_ranges(table, &metadata, place, &plan) {
        None => input.open()?,
        Some(wanted) => {
            let next = |unit| prefetched(table, unit, columns);
            groups.prefetch.open(unit, columns, &wanted, next)?
        }
    };
    let group = metadata.row_groups().get(place.part.group);
    let rows = group.and_then(|group| u64::try_from(group.num_rows()).ok());
    let deleted = table.deleted(place.file);
    GroupRows::open(Task {
        input,
        file,
        group: place.part.group,
        pages: only_pages(table, place).cloned(),
        fields: plan.fields,
        leaves: plan.leaves,
        selection: selection(deleted, &place.part, rows.unwrap_or(0)),
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
    wanted_ranges(table, &metadata, place, &plan)
}

/// Returns where the pages of a unit are, if it needs no others of its row group. With deleted rows, the decoder may read
/// all rows of the row group and drop those that are not selected.
fn only_pages<'a>(table: &dyn GroupTable, place: &'a GroupPlace) -> Option<&'a Arc<GroupPages>> {
    let deleted = table.deleted(place.file);
    let is_whole = deleted.is_none_or(|deleted| deleted.range_cardinality(place.file_rows()) == 0);
    place.part.pages.as_ref().filter(|_| is_whole)
}

/// Returns what a unit reads of its object; `None` for a file on this machine.
fn wanted_ranges(
    table: &dyn GroupTable,
    metadata: &ParquetMetaData,
    place: &GroupPlace,
    plan: &GroupPlan,
) -> Option<Wanted> {
    let input = table.input(place.file)?;
    let group = metadata.row_groups().get(place.part.group);
    Some(Wanted {
        object: input.object()?.clone(),
        file_version: input.file_version,
        ranges: match group.zip(only_pages(table, place)) {
            Some((group, pages)) => pages.ranges(group, &plan.leaves, &place.part.rows),
            None => group_ranges(metadata, place.part.group, &plan.leaves),
        },
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
        let found = groups.and_then(|groups| groups.get(place.part.group));
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
