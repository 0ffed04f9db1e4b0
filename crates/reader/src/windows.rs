//! Copies the values of windows of neighbouring samples.

use shardmill_dataset::{Piece, SampleForm, Schema, SchemaColumn, TarProblem, TarSample, Window};

use crate::batch::ColumnData;
use crate::context::FillContext;
use crate::error::ReaderError;

/// An error of a sample, given by its position among those that are read.
pub(crate) enum WindowProblem {
    /// The lengths of the values do not fit the sample.
    Shape(usize),
    Tar(usize, TarProblem),
    Reader(ReaderError),
}

impl From<ReaderError> for WindowProblem {
    fn from(error: ReaderError) -> Self {
        Self::Reader(error)
    }
}

/// Copies the values of windows into one buffer per column. `samples` are those of all offsets of the first sample, then
/// those of the second, and so on.
pub(crate) fn window_columns(
    fill_context: &FillContext,
    window: &Window,
    schema: &Schema,
    samples: &[Piece<'_>],
) -> Result<Vec<ColumnData>, WindowProblem> {
    let Schema::Binary {
        form,
        columns,
        head,
        ..
    } = schema
    else {
        return Ok(Vec::new());
    };
    let offsets = window.offsets().len();
    let mut parsed = Vec::new();
    let mut cells: Vec<&[u8]> = Vec::with_capacity(samples.len().saturating_mul(columns.len()));
    if *form == SampleForm::Mds {
        for (number, piece) in samples.iter().enumerate() {
            mds_cells(columns, *head, piece.bytes, &mut cells)
                .ok_or(WindowProblem::Shape(number))?;
        }
    } else {
        let limits = fill_context.catalog.limits();
        for (number, piece) in samples.iter().enumerate() {
            let sample = TarSample::read(piece.begin, piece.bytes, limits);
            parsed.push(sample.map_err(|problem| WindowProblem::Tar(number, problem))?);
        }
        for (number, sample) in parsed.iter().enumerate() {
            cells.push(sample.key());
            let names = columns.iter().skip(1).map(|column| column.name.as_str());
            let found = sample.cells(names, &mut cells);
            found.map_err(|problem| WindowProblem::Tar(number, problem))?;
        }
    }
    let mut data = Vec::with_capacity(columns.len());
    for (number, column) in columns.iter().enumerate() {
        let places = window.places(&column.name);
        let values = || {
            let windows = cells.chunks(offsets.saturating_mul(columns.len()));
            windows.flat_map(move |window| {
                let cell = move |place: &usize| window.get(place * columns.len() + number);
                places.iter().filter_map(cell).copied()
            })
        };
        let count = samples.len() / offsets.max(1) * places.len();
        let joined = fill_context.join(count, values)?;
        data.push(match (column.size, joined) {
            (Some(size), ColumnData::Variable { bytes, .. }) => ColumnData::Fixed { size, bytes },
            (_, joined) => joined,
        });
    }
    Ok(data)
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
