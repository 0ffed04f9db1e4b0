//! The first rows of a source.

use shardmill_source::{Source, SourceError};

use crate::cell::{Cell, RowShape};

/// Rows of a source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Head {
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The rows, with a cell for each column.
    pub rows: Vec<Vec<Cell>>,
    /// Whether the source has more rows.
    pub more: bool,
}

/// Reads the first `most` rows of a source, and the units that contain them.
///
/// # Errors
///
/// Those of the source.
pub fn head(source: &dyn Source, max: usize) -> Result<Head, SourceError> {
    let shape = RowShape::of(source);
    let mut head = Head {
        columns: shape.names.clone(),
        ..Head::default()
    };
    for unit in 0..source.units().len() {
        if head.rows.len() >= max {
            // Without reading on, a unit of unknown size counts as rows.
            let left = source.units().iter().skip(unit);
            head.more = left.into_iter().any(|unit| unit.rows != Some(0));
            return Ok(head);
        }
        let mut rows = source.open_unit(unit)?;
        while let Some(batch) = rows.next_batch()? {
            let taken = batch.num_rows().min(max - head.rows.len());
            for row in 0..taken {
                head.rows.push(shape.cells(&batch, row));
            }
            if taken < batch.num_rows() {
                head.more = true;
                return Ok(head);
            }
        }
    }
    Ok(head)
}
