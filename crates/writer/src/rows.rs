//! Encodes record batches into chunks of samples.

mod tar;

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use shardmill_core::{Error, Format};
use shardmill_mds::{Content, Layout, TextColumn, reaches_over};
use shardmill_webdataset::{KEY_DIGITS, content_of_numbered};

use crate::chunk::{BufferPool, Chunk, Origin};
use crate::columns::{ColumnEncoder, EncodedColumn, add_sizes, first_null};
use crate::error::{self, RowError, ValueReason, check_size};
use tar::TarSamples;
pub use tar::{TarKeys, TarRows};

/// The size at which a chunk is closed, in bytes. A chunk fits into a core's cache while its columns are scattered into
/// it. It is large enough that handing it over costs nothing.
pub(crate) const CHUNK_BYTES: usize = 2 << 20;

/// How the values of one sample are combined.
#[derive(Clone, Debug)]
enum Frame {
    /// MDS: the lengths of the variable-length columns, then all values.
    Heads,
    /// Text: constant bytes around the values.
    Text {
        before: Vec<Vec<u8>>,
        after: Vec<u8>,
        refuse: Vec<(&'static str, String)>,
        format: Format,
    },
    /// WebDataset: one member for each value.
    Tar(TarRows),
    /// Tables: rows with this schema, which the encoder of the table encodes.
    Table(SchemaRef),
}

/// Encodes rows of record batches as samples of a layout. All threads of a conversion share one encoder.
#[derive(Clone, Debug)]
pub struct RowEncoder {
    columns: Vec<ColumnEncoder>,
    /// For each column, whether the length of its value precedes the values of a sample.
    headed: Vec<bool>,
    frame: Frame,
    sample_limit: u64,
}

impl RowEncoder {
    /// Creates an encoder. The columns must be in the order of the layout (sorted by name).
    ///
    /// `sample_limit` is in bytes.
    #[must_use]
    pub fn new(columns: Vec<ColumnEncoder>, layout: &Layout, sample_limit: u64) -> Self {
        let frame = match layout {
            Layout::Mds { .. } => Frame::Heads,
            Layout::Json { columns, newline } => json_frame(columns, newline),
            Layout::Xsv {
                format,
                columns,
                newline,
                separator,
            } => xsv_frame(*format, columns.len(), newline, separator),
        };
        Self::with(columns, frame, sample_limit)
    }

    fn with(columns: Vec<ColumnEncoder>, frame: Frame, sample_limit: u64) -> Self {
        Self {
            headed: columns.iter().map(ColumnEncoder::is_variable).collect(),
            columns,
            frame,
            sample_limit: sample_limit.min(u64::from(u32::MAX)),
        }
    }

    /// Creates an encoder of tar samples. The column names are the fields, and they must be sorted by code point.
    #[must_use]
    pub fn tar(columns: Vec<ColumnEncoder>, rows: TarRows, sample_limit: u64) -> Self {
        Self::with(columns, Frame::Tar(rows), sample_limit)
    }

    /// Creates an encoder of the rows of tables.
    #[must_use]
    pub fn table(columns: Vec<ColumnEncoder>, sample_limit: u64) -> Self {
        let fields = columns.iter().filter_map(ColumnEncoder::stored_field);
        let schema = Schema::new(fields.collect::<Vec<_>>());
        Self::with(columns, Frame::Table(Arc::new(schema)), sample_limit)
    }

    /// Returns the source of the keys of tar samples, or `None` in other formats.
    #[must_use]
    pub const fn keys(&self) -> Option<&TarKeys> {
        match &self.frame {
            Frame::Tar(rows) => Some(&rows.keys),
            _ => None,
        }
    }

    /// Returns the columns, in the order of the layout.
    #[must_use]
    pub fn columns(&self) -> &[ColumnEncoder] {
        &self.columns
    }

    /// Returns the content of a sample that was read from a shard, given its encoded bytes. `memory` is a scratch
    /// buffer for repeated calls.
    #[must_use]
    pub fn content_of(&self, sample: &[u8], memory: &mut Vec<u8>) -> Content {
        if !matches!(self.keys(), Some(TarKeys::Number)) {
            return Content::of(sample);
        }
        content_of_numbered(sample, KEY_DIGITS, memory)
    }

    /// Encodes all rows of a batch, in chunks. `describe_row` describes a row of the batch, for errors.
    pub(crate) fn encode(
        &self,
        batch: &RecordBatch,
        mut origin: Origin,
        pool: &Arc<BufferPool>,
        describe_row: impl Fn(usize) -> String,
        mut emit: impl FnMut(Chunk),
    ) -> Result<(), Error> {
        if matches!(self.frame, Frame::Table(_)) {
            let rows = self.table_rows(batch, &describe_row)?;
            return self.encode_table(&rows, origin, pool, &describe_row, emit);
        }
        let columns = self.prepare(batch, &describe_row)?;
        let tar = match &self.frame {
            Frame::Tar(rows) => Some(TarSamples::new(
                rows,
                &self.columns,
                batch,
                &columns,
                &describe_row,
            )?),
            Frame::Heads | Frame::Text { .. } | Frame::Table(_) => None,
        };
        let sizes = match &tar {
            Some(samples) => samples.sizes(batch.num_rows(), self.sample_limit)?,
            None => {
                self.refuse(&columns, batch.num_rows(), &describe_row)?;
                self.sizes(&columns, batch.num_rows(), &describe_row)?
            }
        };
        let mut start = 0;
        while start < sizes.len() {
            let (ends, bytes) = chunk_ends(&sizes[start..]);
            let end = start + ends.len();
            let mut out = pool.take(bytes);
            let keys = match &tar {
                Some(samples) => {
                    samples.write(start..end, &mut out)?;
                    samples.key_hashes(start..end)
                }
                None => {
                    self.scatter(&columns, start..end, &sizes[start..end], &mut out);
                    Vec::new()
                }
            };
            let mut chunk = Chunk::new(out, ends, origin, pool);
            chunk.keys = keys;
            emit(chunk);
            origin.first += u64::try_from(end - start).unwrap_or(0);
            start = end;
        }
        Ok(())
    }

    /// Converts the rows of a batch to those of a table, column by column. `describe_row` describes a row of the batch,
    /// for errors.
    ///
    /// # Errors
    ///
    /// `Corrupt` for a value that does not fit its column, and a bug if this is an encoder of samples.
    pub fn table_rows(
        &self,
        batch: &RecordBatch,
        describe_row: impl Fn(usize) -> String,
    ) -> Result<RecordBatch, Error> {
        let Frame::Table(schema) = &self.frame else {
            return Err(error::internal(
                "rows of a table from an encoder of samples",
            ));
        };
        let columns = self.columns.iter().map(|column| {
            let converted = column.convert(batch.column(column.source()));
            converted.map_err(|error| error.locate(column.name(), &describe_row))
        });
        let columns = columns.collect::<Result<_, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
            .map_err(|_| error::internal("converted columns do not fit the schema of their table"))
    }

    /// Divides the rows of a table into chunks.
    fn encode_table(
        &self,
        rows: &RecordBatch,
        mut origin: Origin,
        pool: &Arc<BufferPool>,
        describe_row: &impl Fn(usize) -> String,
        mut emit: impl FnMut(Chunk),
    ) -> Result<(), Error> {
        // A row of nulls has a size, too, because sizes tell rows apart.
        let mut sizes = vec![1_usize; rows.num_rows()];
        for column in rows.columns() {
            add_sizes(column, &mut sizes);
        }
        for (row, size) in sizes.iter().enumerate() {
            check_size(*size, self.sample_limit, || describe_row(row))?;
        }
        let mut start = 0;
        while start < sizes.len() {
            let (ends, _) = chunk_ends(&sizes[start..]);
            let length = ends.len();
            let slice = rows.slice(start, length);
            emit(Chunk::of_table(slice, ends, origin, pool));
            origin.first += u64::try_from(length).unwrap_or(0);
            start += length;
        }
        Ok(())
    }

    /// Encodes the values of each column.
    fn prepare(
        &self,
        batch: &RecordBatch,
        describe_row: &impl Fn(usize) -> String,
    ) -> Result<Vec<EncodedColumn>, Error> {
        let columns = self.columns.iter().map(|column| {
            let array = batch.column(column.source());
            let row = match column.stores_null() || column.omits_null() {
                true => None,
                false => first_null(array),
            };
            if let Some(row) = row {
                return Err(error::null(column.name(), &describe_row(row))
                    .with_hint(column.null_hint().to_string()));
            }
            column
                .prepare(array)
                .map_err(|error| error.locate(column.name(), describe_row))
        });
        columns.collect()
    }

    /// Returns the encoded length of every row.
    fn sizes(
        &self,
        columns: &[EncodedColumn],
        rows: usize,
        describe_row: &impl Fn(usize) -> String,
    ) -> Result<Vec<usize>, Error> {
        let constant = match &self.frame {
            Frame::Heads => 4 * self.headed.iter().filter(|headed| **headed).count(),
            Frame::Text { before, after, .. } => {
                before.iter().map(Vec::len).sum::<usize>() + after.len()
            }
            Frame::Tar(_) | Frame::Table(_) => 0,
        };
        let mut sizes = vec![constant; rows];
        for values in columns {
            values.add_sizes(0..rows, &mut sizes);
        }
        for (row, size) in sizes.iter().enumerate() {
            check_size(*size, self.sample_limit, || describe_row(row))?;
        }
        Ok(sizes)
    }

    /// Returns an error for values that would need quotes, which these formats do not have. Such a value contains a
    /// separator or a newline, or it ends with the start of one.
    fn refuse(
        &self,
        columns: &[EncodedColumn],
        rows: usize,
        describe_row: &impl Fn(usize) -> String,
    ) -> Result<(), Error> {
        let Frame::Text { refuse, format, .. } = &self.frame else {
            return Ok(());
        };
        for (what, text) in refuse {
            let finder = memchr::memmem::Finder::new(text);
            for (column, values) in self.columns.iter().zip(columns) {
                for row in 0..rows {
                    let value = values.value(row).1;
                    if finder.find(value).is_some() || reaches_over(value, text.as_bytes()) {
                        let reason = ValueReason::Separator {
                            what,
                            text: text.clone(),
                            format: format.to_string(),
                        };
                        return Err(RowError { row, reason }.locate(column.name(), describe_row));
                    }
                }
            }
        }
        Ok(())
    }

    /// Copies the values of some rows to their samples.
    fn scatter(
        &self,
        columns: &[EncodedColumn],
        rows: Range<usize>,
        sizes: &[usize],
        out: &mut [u8],
    ) {
        let starts = sizes.iter().scan(0, |at, size| {
            let start = *at;
            *at += size;
            Some(start)
        });
        let mut cursors: Vec<usize> = starts.collect();
        match &self.frame {
            Frame::Heads => {
                let headed = columns.iter().zip(&self.headed);
                for (values, _) in headed.filter(|(_, headed)| **headed) {
                    for (row, cursor) in rows.clone().zip(&mut cursors) {
                        // Lengths are below the sample limit, which is below 4 GiB.
                        let len = u32::try_from(values.len(row)).unwrap_or(u32::MAX);
                        out[*cursor..*cursor + 4].copy_from_slice(&len.to_le_bytes());
                        *cursor += 4;
                    }
                }
                for values in columns {
                    values.scatter(rows.clone(), &mut cursors, out);
                }
            }
            Frame::Text { before, after, .. } => {
                for (values, before) in columns.iter().zip(before) {
                    put(before, &mut cursors, out);
                    values.scatter(rows.clone(), &mut cursors, out);
                }
                put(after, &mut cursors, out);
            }
            Frame::Tar(_) | Frame::Table(_) => {}
        }
    }
}

/// Returns the ends of the samples of the next chunk, and its length. A chunk is one sample, which is below 4 GiB, or at
/// most `CHUNK_BYTES` long. So its length fits the 32-bit ends.
fn chunk_ends(sizes: &[usize]) -> (Vec<u32>, usize) {
    let mut ends = Vec::new();
    let mut bytes = 0_usize;
    for size in sizes {
        if !ends.is_empty() && bytes + size > CHUNK_BYTES {
            break;
        }
        bytes += size;
        ends.push(u32::try_from(bytes).unwrap_or(u32::MAX));
    }
    (ends, bytes)
}

/// Copies the same bytes to every cursor.
fn put(bytes: &[u8], cursors: &mut [usize], out: &mut [u8]) {
    if bytes.is_empty() {
        return;
    }
    for cursor in cursors {
        out[*cursor..*cursor + bytes.len()].copy_from_slice(bytes);
        *cursor += bytes.len();
    }
}

fn json_frame(columns: &[TextColumn], newline: &str) -> Frame {
    let before = columns.iter().enumerate().map(|(position, column)| {
        let start: &[u8] = if position == 0 { b"{" } else { b", " };
        let mut bytes = start.to_vec();
        shardmill_mds::write_json_string(&column.name, &mut bytes);
        bytes.extend_from_slice(b": ");
        bytes
    });
    let end = if columns.is_empty() { "{}" } else { "}" };
    Frame::Text {
        before: before.collect(),
        after: format!("{end}{newline}").into_bytes(),
        refuse: Vec::new(),
        format: Format::Json,
    }
}

fn xsv_frame(format: Format, columns: usize, newline: &str, separator: &str) -> Frame {
    let mut before = vec![separator.as_bytes().to_vec(); columns];
    if let Some(first) = before.first_mut() {
        first.clear();
    }
    Frame::Text {
        before,
        after: newline.as_bytes().to_vec(),
        refuse: vec![
            ("separator", separator.to_owned()),
            ("newline", newline.to_owned()),
        ],
        format,
    }
}
