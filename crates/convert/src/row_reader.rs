//! Rows of a source by their numbers.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use shardmill_core::{Error, lock};
use shardmill_source::{Rows, Source};

use crate::row_values::{RowValue, show_row};

/// Reads rows by their numbers. A unit is read from its first row, and the next rows continue from there.
pub struct RowReader {
    source: Arc<dyn Source>,
    schema: SchemaRef,
    /// The first row of each unit, then the number of rows.
    firsts: Vec<u64>,
    cursor: Mutex<Option<Cursor>>,
}

/// Where the last read ended.
struct Cursor {
    unit: usize,
    rows: Box<dyn Rows>,
    /// The last batch, and the number of its first row.
    batch: Option<RecordBatch>,
    first: u64,
}

impl Cursor {
    fn end(&self) -> u64 {
        let rows = self.batch.as_ref().map_or(0, RecordBatch::num_rows);
        self.first.saturating_add(rows as u64)
    }
}

impl std::fmt::Debug for RowReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowReader")
            .field("firsts", &self.firsts)
            .finish_non_exhaustive()
    }
}

impl RowReader {
    /// Prepares a source. Units whose rows are not known, such as those of text files, are read once to count them.
    ///
    /// # Errors
    ///
    /// Those of the source.
    pub fn open(source: Arc<dyn Source>) -> Result<Self, Error> {
        let mut firsts = vec![0];
        let mut next = 0_u64;
        for rows in shardmill_source::unit_rows(&*source)? {
            next = next.saturating_add(rows);
            firsts.push(next);
        }
        Ok(Self {
            schema: source.schema(),
            source,
            firsts,
            cursor: Mutex::default(),
        })
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.firsts.last().copied().unwrap_or_default()
    }

    /// Calls `show` with each value of these rows, and the number of its row. Returns how many rows there were, which are
    /// fewer if the source has become shorter.
    ///
    /// # Errors
    ///
    /// Those of the source.
    pub fn visit(
        &self,
        rows: Range<u64>,
        show: &mut dyn FnMut(u64, RowValue<'_>),
    ) -> Result<u64, Error> {
        let end = rows.end.min(self.rows());
        let mut kept = lock(&self.cursor);
        let mut row = rows.start;
        while row < end {
            let unit = self.firsts.partition_point(|first| *first <= row) - 1;
            let usable = kept.take();
            let usable = usable.filter(|cursor| cursor.unit == unit && cursor.first <= row);
            let mut cursor = match usable {
                Some(cursor) => cursor,
                None => Cursor {
                    unit,
                    rows: self.source.open_unit(unit)?,
                    batch: None,
                    first: self.firsts.get(unit).copied().unwrap_or_default(),
                },
            };
            while cursor.end() <= row {
                let Some(batch) = cursor.rows.next_batch()? else {
                    return Ok(row - rows.start);
                };
                cursor.first = cursor.end();
                cursor.batch = Some(batch);
            }
            let last = cursor.end().min(end);
            for number in row..last {
                let at = usize::try_from(number - cursor.first).unwrap_or(usize::MAX);
                if let Some(batch) = &cursor.batch {
                    show_row(&self.schema, batch, at, &mut |value| show(number, value));
                }
            }
            row = last;
            *kept = Some(cursor);
        }
        Ok(row - rows.start)
    }
}
