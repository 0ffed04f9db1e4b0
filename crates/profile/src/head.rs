//! The first rows of a source.

use shardmill_source::{ENCODING_KEY, Source, SourceError};

use crate::cell::Cell;

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
pub fn head(source: &dyn Source, most: usize) -> Result<Head, SourceError> {
    let schema = source.schema();
    let mut head = Head {
        columns: schema
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect(),
        ..Head::default()
    };
    let fields = schema.fields().iter();
    let is_json: Vec<bool> = fields
        .map(|field| {
            field
                .metadata()
                .get(ENCODING_KEY)
                .is_some_and(|name| name == "json")
        })
        .collect();
    for unit in 0..source.units().len() {
        if head.rows.len() >= most {
            // Without reading on, a unit of unknown size counts as rows.
            let left = source.units().iter().skip(unit);
            head.more = left.into_iter().any(|unit| unit.rows != Some(0));
            return Ok(head);
        }
        let mut rows = source.open_unit(unit)?;
        while let Some(batch) = rows.next_batch()? {
            let taken = batch.num_rows().min(most - head.rows.len());
            for row in 0..taken {
                let columns = batch.columns().iter().zip(&is_json);
                let cells = columns.map(|(column, is_json)| match Cell::of(column, row) {
                    Cell::Text(text) if *is_json => Cell::Json(text),
                    cell => cell,
                });
                head.rows.push(cells.collect());
            }
            if taken < batch.num_rows() {
                head.more = true;
                return Ok(head);
            }
        }
    }
    Ok(head)
}
