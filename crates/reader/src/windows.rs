//! Copies the values of samples that have to be parsed first: of tar files, and of windows of neighbouring samples.

use std::sync::Arc;

use shardmill_core::Error;
use shardmill_dataset::{Piece, SampleForm, Schema, SchemaColumn, TarSample, Window};

use crate::batch::{BatchData, ColumnData};
use crate::collate::Collator;

/// The positions of the values of a sample without a window.
const ALONE: &[usize] = &[0];

impl Collator {
    /// Copies the values into one buffer per column. With a window, `samples` are those of all offsets of the first
    /// sample, then those of the second, and so on.
    pub(crate) fn cell_columns(
        &self,
        window: Option<&Arc<Window>>,
        schema: &Arc<Schema>,
        samples: &[Piece<'_>],
    ) -> Result<BatchData, Error> {
        let Schema::Binary {
            form,
            columns,
            head,
            ..
        } = schema.as_ref()
        else {
            return self.rows(samples);
        };
        let mut parsed = Vec::new();
        // The values of each sample are adjacent.
        let mut cells: Vec<&[u8]> = Vec::with_capacity(samples.len().saturating_mul(columns.len()));
        if *form == SampleForm::Mds {
            for (number, piece) in samples.iter().enumerate() {
                mds_cells(columns, *head, piece.bytes, &mut cells)
                    .ok_or_else(|| self.shape_error(number))?;
            }
        } else {
            let limits = self.context.catalog.limits();
            for (number, piece) in samples.iter().enumerate() {
                let sample = TarSample::read(piece.begin, piece.bytes, limits);
                parsed.push(sample.map_err(|problem| self.refused(number, problem))?);
            }
            for (number, sample) in parsed.iter().enumerate() {
                cells.push(sample.key());
                let names = columns.iter().skip(1).map(|column| column.name.as_str());
                let found = sample.cells(names, &mut cells);
                found.map_err(|problem| self.refused(number, problem))?;
            }
        }
        let offsets = window.map_or(1, |window| window.offsets().len());
        let mut data = Vec::with_capacity(columns.len());
        for (number, column) in columns.iter().enumerate() {
            let positions = window.map_or(ALONE, |window| window.places(&column.name));
            let values = || {
                let windows = cells.chunks(offsets.saturating_mul(columns.len()));
                windows.flat_map(move |window| {
                    let cell =
                        move |position: &usize| window.get(position * columns.len() + number);
                    positions.iter().filter_map(cell).copied()
                })
            };
            let count = samples.len() / offsets.max(1) * positions.len();
            let joined = self.context.join(count, values)?;
            data.push(match (column.size, joined) {
                (Some(size), ColumnData::Variable { bytes, .. }) => {
                    ColumnData::Fixed { size, bytes }
                }
                (_, joined) => joined,
            });
        }
        Ok(BatchData::Columns {
            schema: Arc::clone(schema),
            columns: data,
        })
    }
}

/// Appends the values of an MDS sample; `None` if their lengths are not that of the sample.
pub(crate) fn mds_cells<'a>(
    columns: &[SchemaColumn],
    head: usize,
    sample: &'a [u8],
    cells: &mut Vec<&'a [u8]>,
) -> Option<()> {
    let (mut sizes, mut rest) = sample.split_at_checked(head)?;
    for column in columns {
        let size = match column.size {
            Some(size) => size,
            None => {
                let (size, tail) = sizes.split_first_chunk::<4>()?;
                sizes = tail;
                usize::try_from(u32::from_le_bytes(*size)).ok()?
            }
        };
        let (value, tail) = rest.split_at_checked(size)?;
        cells.push(value);
        rest = tail;
    }
    rest.is_empty().then_some(())
}
