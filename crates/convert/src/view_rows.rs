//! The rows of a table, of files or of a tree that a view selects.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::BooleanArray;
use arrow::array::BooleanBufferBuilder;
use arrow::compute::filter_record_batch;
use arrow::record_batch::RecordBatch;
use shardmill_dataset::{DatasetError, DatasetProblem, LiveSamples};
use shardmill_source::{RowOrigin, Rows, Source, SourceError, TableFacts, unit_rows};

use crate::error::ConvertError;

/// Returns the rows of a source that are live, numbered from 0. `location` is the source in messages.
///
/// # Errors
///
/// Errors of counting rows; [`DatasetProblem::FileChanged`] if the source has another number of rows.
pub fn live_rows(
    source: Arc<dyn Source>,
    live: LiveSamples,
    location: &str,
) -> Result<Arc<dyn Source>, ConvertError> {
    let mut starts = Vec::with_capacity(source.units().len());
    let own = source.facts();
    // The nulls of other rows are counted too.
    let nulls = own.null_counts.iter();
    let nulls = nulls.map(|count| count.filter(|nulls| *nulls == 0));
    let mut facts = own.with_columns(source.schema(), nulls.collect());
    let mut start = 0;
    for (unit, rows) in facts.units.iter_mut().zip(unit_rows(&*source)?) {
        starts.push(start..start + rows);
        start += rows;
        // Rows between those of the view are missing.
        unit.first_row = None;
        unit.rows = Some(live.count_in(starts.last().unwrap_or(&(0..0))));
    }
    if start != live.stored() {
        let reason = "rows were added or removed while it was opened";
        let changed: DatasetError = DatasetProblem::FileChanged.at(location, reason);
        return Err(changed.into());
    }
    facts.description.rows = Some(live.len());
    Ok(Arc::new(LiveRows {
        source,
        live,
        facts,
        stored: starts,
    }))
}

struct LiveRows {
    source: Arc<dyn Source>,
    live: LiveSamples,
    facts: TableFacts,
    /// The stored rows of each unit.
    stored: Vec<Range<u64>>,
}

impl LiveRows {
    fn stored(&self, unit: usize) -> Range<u64> {
        self.stored.get(unit).cloned().unwrap_or_default()
    }
}

impl Source for LiveRows {
    fn facts(&self) -> &TableFacts {
        &self.facts
    }

    fn prepare(&self, cancel: &(dyn Fn() -> bool + Sync)) -> Result<bool, SourceError> {
        self.source.prepare(cancel)
    }

    fn open(&self, unit: usize, columns: &[usize]) -> Result<Box<dyn Rows>, SourceError> {
        let stored = self.stored(unit);
        Ok(Box::new(UnitRows {
            rows: self.source.open(unit, columns)?,
            next: stored.start,
            left: self.live.count_in(&stored),
            live: self.live.clone(),
        }))
    }

    fn row_origin(&self, unit: usize, row: u64) -> RowOrigin {
        let start = self.stored(unit).start;
        let stored = self.live.stored_number(self.live.live_before(start) + row);
        self.source.row_origin(unit, stored.saturating_sub(start))
    }
}

/// The live rows of a unit.
struct UnitRows {
    rows: Box<dyn Rows>,
    /// The stored number of the next row.
    next: u64,
    /// The live rows that are not read yet.
    left: u64,
    live: LiveSamples,
}

impl Rows for UnitRows {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        while self.left > 0 {
            let Some(batch) = self.rows.next_batch()? else {
                break;
            };
            let stored = self.next..self.next + batch.num_rows() as u64;
            self.next = stored.end;
            let found = self.live.count_in(&stored);
            self.left = self.left.saturating_sub(found);
            if found == batch.num_rows() as u64 {
                return Ok(Some(batch));
            }
            if found == 0 {
                continue;
            }
            let mut chosen = BooleanBufferBuilder::new(batch.num_rows());
            let mut at = stored.start;
            let count = |rows: u64| usize::try_from(rows).unwrap_or(usize::MAX);
            for range in self.live.live_ranges(stored.clone()) {
                chosen.append_n(count(range.start - at), false);
                chosen.append_n(count(range.end - range.start), true);
                at = range.end;
            }
            chosen.append_n(count(stored.end - at), false);
            let chosen = BooleanArray::new(chosen.finish(), None);
            let batch = filter_record_batch(&batch, &chosen);
            let batch =
                batch.map_err(|error| SourceError::bug(format!("rows of a view: {error}")))?;
            return Ok(Some(batch));
        }
        Ok(None)
    }
}
