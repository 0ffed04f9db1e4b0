//! The rows of a table, of files or of a tree that a view selects.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::BooleanArray;
use arrow::array::BooleanBufferBuilder;
use arrow::compute::filter_record_batch;
use shardmill_core::Error;
use shardmill_dataset::{DatasetError, DatasetProblem, LiveSamples};
use shardmill_source::{RowOrigin, Rows, Source, TableFacts, bug, rows_from, unit_rows};

/// Returns the rows of a source that are live, numbered from 0. `location` is the source in messages.
///
/// # Errors
///
/// Errors of counting rows; [`DatasetProblem::FileChanged`] if the source has another number of rows.
pub fn live_rows(
    source: Arc<dyn Source>,
    live: LiveSamples,
    location: &str,
) -> Result<Arc<dyn Source>, Error> {
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

    fn prepare(&self, cancel: &(dyn Fn() -> bool + Sync)) -> Result<bool, Error> {
        self.source.prepare(cancel)
    }

    fn open(&self, unit: usize, columns: &[usize]) -> Result<Box<dyn Rows>, Error> {
        let stored = self.stored(unit);
        let mut rows = self.source.open(unit, columns)?;
        let (live, mut next) = (self.live.clone(), stored.start);
        let mut left = live.count_in(&stored);
        Ok(rows_from(move || {
            while left > 0 {
                let Some(batch) = rows.next_batch()? else {
                    break;
                };
                let stored = next..next + batch.num_rows() as u64;
                next = stored.end;
                let found = live.count_in(&stored);
                left = left.saturating_sub(found);
                if found == batch.num_rows() as u64 {
                    return Ok(Some(batch));
                }
                if found > 0 {
                    let batch = filter_record_batch(&batch, &chosen(&live, stored));
                    let failed = |error| bug(format!("rows of a view: {error}"));
                    return batch.map(Some).map_err(failed);
                }
            }
            Ok(None)
        }))
    }

    fn row_origin(&self, unit: usize, row: u64) -> RowOrigin {
        let start = self.stored(unit).start;
        let stored = self.live.stored_number(self.live.live_before(start) + row);
        self.source.row_origin(unit, stored.saturating_sub(start))
    }
}

/// Returns which of these stored rows are live.
fn chosen(live: &LiveSamples, stored: Range<u64>) -> BooleanArray {
    let count = |rows: u64| usize::try_from(rows).unwrap_or(usize::MAX);
    let mut chosen = BooleanBufferBuilder::new(count(stored.end - stored.start));
    let mut at = stored.start;
    for range in live.live_ranges(stored.clone()) {
        chosen.append_n(count(range.start - at), false);
        chosen.append_n(count(range.end - range.start), true);
        at = range.end;
    }
    chosen.append_n(count(stored.end - at), false);
    BooleanArray::new(chosen.finish(), None)
}
