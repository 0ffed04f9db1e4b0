//! Opens the row groups of a table of Parquet files, and prunes those that cannot match a condition.

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::{Fields, Schema};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::pruning::PruningPredicateBuilder;
use parquet::arrow::arrow_reader::RowSelection;
use parquet::file::metadata::ParquetMetaData;
use rayon::prelude::*;
use roaring::RoaringTreemap;
use shardmill_core::Error;
use shardmill_core::catch_panic::attempt;
use shardmill_parquet::{GroupPages, GroupPart, group_null_count, group_ranges, group_sizes};

use super::metadata::FooterCache;
use super::prune::FileStatistics;
use super::rows::{GroupPlan, Origin, Task, decode_group};
use crate::base::project;
use crate::error;
use crate::files::InputFile;
use crate::prefetch::{Prefetch, Wanted};
use crate::{Rows, Source, SourceDescription, SourceOptions, TableFacts, Unit};

/// The row groups of a table; each is a unit, or several if large ones are divided.
pub(crate) struct RowGroups {
    pub units: Vec<Unit>,
    locations: Vec<GroupLocation>,
    footers: FooterCache,
    prefetch: Prefetch,
    options: SourceOptions,
    /// The rows that exist.
    pub rows: u64,
    pub deleted_rows: u64,
}

/// Where a row group is, or a part of one.
#[derive(Clone, Debug)]
struct GroupLocation {
    /// The number of the file.
    file: usize,
    /// The row group within the file, and its rows.
    part: GroupPart,
}

impl GroupLocation {
    /// Returns the rows within the file.
    fn file_rows(&self) -> Range<u64> {
        self.part.before + self.part.rows.start..self.part.before + self.part.rows.end
    }
}

/// The files of a table whose rows are in row groups of Parquet files.
pub(crate) trait GroupFiles: Send + Sync {
    /// As [`Source::check_columns`].
    fn check_columns(&self, columns: &[usize]) -> Result<(), Error> {
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
    ) -> Result<GroupPlan, Error>;

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
            locations: Vec::new(),
            footers: FooterCache::new(options.limits.parquet.footer_bytes),
            prefetch: Prefetch::new(options.resources.jobs),
            options: options.clone(),
            rows: 0,
            deleted_rows: 0,
        }
    }

    /// Adds the row groups of the next file. `deleted` returns how many rows of a range do not exist. Returns the number of
    /// rows.
    pub(crate) fn add(
        &mut self,
        metadata: Arc<ParquetMetaData>,
        parts: Vec<GroupPart>,
        deleted: impl Fn(Range<u64>) -> u64,
    ) -> u64 {
        let file = self.footers.files();
        let sizes = group_sizes(&metadata);
        let before = self.rows;
        for part in parts {
            let (all_rows, all_bytes) = sizes.get(part.group).copied().unwrap_or((0, 0));
            let location = GroupLocation { file, part };
            let own = location.file_rows();
            let rows = own.end - own.start;
            let deleted = deleted(own.clone());
            let bytes = u128::from(all_bytes) * u128::from(rows) / u128::from(all_rows.max(1));
            self.units.push(Unit {
                file: Some(file),
                first_row: (deleted == 0).then_some(own.start),
                rows: Some(rows - deleted),
                bytes: u64::try_from(bytes).unwrap_or(all_bytes),
            });
            self.locations.push(location);
            self.deleted_rows += deleted;
            self.rows = self.rows.saturating_add(rows - deleted);
        }
        self.footers.add(metadata);
        self.rows - before
    }

    /// Returns where the row group of a unit is.
    fn location(&self, unit: usize) -> Result<&GroupLocation, Error> {
        let location = self.locations.get(unit);
        location.ok_or_else(|| error::no_unit(unit))
    }

    /// Returns the table of these row groups.
    pub(crate) fn table(
        mut self,
        fields: impl Into<Fields>,
        null_counts: Vec<Option<u64>>,
        description: SourceDescription,
        files: impl GroupFiles + 'static,
    ) -> GroupTable {
        GroupTable {
            facts: TableFacts {
                schema: Arc::new(Schema::new(fields)),
                units: std::mem::take(&mut self.units),
                null_counts,
                description,
            },
            groups: self,
            files: Box::new(files),
        }
    }
}

/// A table whose rows are in row groups of Parquet files.
pub(crate) struct GroupTable {
    facts: TableFacts,
    groups: RowGroups,
    files: Box<dyn GroupFiles>,
}

impl Source for GroupTable {
    fn facts(&self) -> &TableFacts {
        &self.facts
    }

    fn check_columns(&self, columns: &[usize]) -> Result<(), Error> {
        self.files.check_columns(columns)
    }

    fn open(&self, unit: usize, columns: &[usize]) -> Result<Box<dyn Rows>, Error> {
        let location = self.groups.location(unit)?;
        let input = self.files.input(location.file);
        let input = input.ok_or_else(|| error::no_unit(unit))?;
        let metadata = self.groups.footers.metadata(location.file, input)?;
        let plan = self.files.plan(location.file, &metadata, columns)?;
        let file = match self.wanted_ranges(&metadata, location, &plan) {
            None => input.open()?,
            Some(wanted) => {
                let next = |unit| self.prefetched(unit, columns);
                self.groups.prefetch.open(unit, columns, &wanted, next)?
            }
        };
        let group = metadata.row_groups().get(location.part.group);
        let rows = group.and_then(|group| u64::try_from(group.num_rows()).ok());
        let deleted = self.files.deleted(location.file);
        decode_group(Task {
            input,
            file,
            group: location.part.group,
            pages: self.only_pages(location).cloned(),
            plan,
            selection: selection(deleted, &location.part, rows.unwrap_or(0)),
            schema: project(&self.facts.schema, columns),
            options: &self.groups.options,
            metadata,
        })
    }

    fn unit_null_count(&self, unit: usize, column: usize) -> Option<u64> {
        let location = self.groups.location(unit).ok()?;
        let unit = self.units().get(unit)?;
        let file = self.statistics(location.file)?;
        match file.origins.get(column)? {
            Origin::Constant(value) if value.null_count() == 0 => Some(0),
            Origin::Constant(_) | Origin::Missing => unit.rows,
            Origin::Decoded(own, _) => {
                let group = file.metadata.row_groups().get(location.part.group)?;
                group_null_count(&file.metadata, group, file.own.fields(), *own)
                    // The deleted rows, or those of other parts, may be those with nulls.
                    .filter(|count| {
                        let is_whole = unit.first_row.is_some() && location.part.pages.is_none();
                        is_whole || *count == 0
                    })
            }
        }
    }

    fn file_row(&self, unit: usize, row: u64) -> Option<u64> {
        let own = self.groups.location(unit).ok()?;
        let first_row = own.file_rows().start;
        let mut file_row = first_row + row;
        if let Some(deleted) = self.files.deleted(own.file) {
            // Each deleted row at or before this row shifts it by one.
            let mut iter = deleted.iter();
            iter.advance_to(first_row);
            for gone in iter {
                if gone > file_row {
                    break;
                }
                file_row += 1;
            }
        }
        Some(file_row)
    }

    fn will_read(&self, units: &[usize]) {
        self.groups.prefetch.will_read(units);
    }

    /// Pruning must never change the resulting rows, so a row group in doubt is read.
    fn may_match(&self, condition: &Arc<dyn PhysicalExpr>) -> Option<Vec<bool>> {
        let build = || {
            PruningPredicateBuilder::new()
                .with_file_schema(Arc::clone(&self.facts.schema))
                .try_build(Arc::clone(condition))
        };
        let predicate = attempt(build).ok();
        let predicate = predicate.filter(|predicate| !predicate.always_true())?;
        let of_file = |number| {
            let statistics = self.statistics(number)?;
            attempt(|| predicate.prune(&statistics)).ok()
        };
        let files = (0..self.groups.footers.files()).into_par_iter();
        let by_file: Vec<Option<Vec<bool>>> = files.map(of_file).collect();
        let of_unit = |location: &GroupLocation| {
            let groups = by_file.get(location.file).and_then(Option::as_ref);
            let found = groups.and_then(|groups| groups.get(location.part.group));
            found.copied().unwrap_or(true)
        };
        Some(self.groups.locations.iter().map(of_unit).collect())
    }
}

impl GroupTable {
    /// Returns what a unit reads of its object, if that is known without a request.
    fn prefetched(&self, unit: usize, columns: &[usize]) -> Option<Wanted> {
        let location = self.groups.location(unit).ok()?;
        self.files.input(location.file)?.object()?;
        let metadata = self.groups.footers.cached(location.file)?;
        let plan = self.files.plan(location.file, &metadata, columns).ok()?;
        self.wanted_ranges(&metadata, location, &plan)
    }

    /// Returns where the pages of a unit are, if it needs no others of its row group. With deleted rows, the decoder may
    /// read all rows of the row group and drop those that are not selected.
    fn only_pages<'a>(&self, location: &'a GroupLocation) -> Option<&'a Arc<GroupPages>> {
        let deleted = self.files.deleted(location.file);
        let is_whole =
            deleted.is_none_or(|deleted| deleted.range_cardinality(location.file_rows()) == 0);
        location.part.pages.as_ref().filter(|_| is_whole)
    }

    /// Returns what a unit reads of its object; `None` for a file on this machine.
    fn wanted_ranges(
        &self,
        metadata: &ParquetMetaData,
        location: &GroupLocation,
        plan: &GroupPlan,
    ) -> Option<Wanted> {
        let input = self.files.input(location.file)?;
        let group = metadata.row_groups().get(location.part.group);
        Some(Wanted {
            object: input.object()?.clone(),
            file_version: input.file_version,
            ranges: match group.zip(self.only_pages(location)) {
                Some((group, pages)) => pages.ranges(group, &plan.leaves, &location.part.rows),
                None => group_ranges(metadata, location.part.group, &plan.leaves),
            },
        })
    }

    /// Returns the statistics of one file; `None` if it cannot be read.
    fn statistics(&self, number: usize) -> Option<FileStatistics<'_>> {
        let input = self.files.input(number)?;
        let metadata = self.groups.footers.metadata(number, input).ok()?;
        let columns: Vec<usize> = (0..self.facts.schema.fields().len()).collect();
        let plan = self.files.plan(number, &metadata, &columns).ok()?;
        Some(FileStatistics {
            table: &self.facts.schema,
            origins: plan.origins,
            own: Schema::new(plan.fields),
            metadata,
        })
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
    let to_usize = |row| usize::try_from(row).unwrap_or(usize::MAX);
    let left = left.into_iter();
    let left = left.map(|(start, end)| to_usize(start)..to_usize(end));
    Some(RowSelection::from_consecutive_ranges(
        left,
        to_usize(all_rows),
    ))
}
