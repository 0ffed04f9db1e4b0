//! From batches to chunks of encoded samples.

mod tar;

use std::ops::Range;
use std::sync::Arc;

use arrow::array::Array;
use arrow::record_batch::RecordBatch;
use shardmill_core::{Format, escape};
use shardmill_mds::{Content, Layout, TextColumn, reaches_over};
use shardmill_webdataset::{KEY_DIGITS, content_of_numbered};

use crate::chunk::{BufferPool, Chunk, Origin};
use crate::columns::{ColumnEncoder, EncodedColumn};
use crate::error::{RowError, ValueReason, WriteError};

pub use tar::{TarKeys, TarRows};

/// Encoded bytes after which a chunk is closed. Small enough to stay in a core's cache while its columns are
/// scattered into it, large enough that handing it over costs nothing.
pub(crate) const CHUNK_BYTES: usize = 2 << 20;

/// How the values of one sample are put together.
#[derive(Clone, Debug)]
enum Frame {
    /// MDS: the lengths of the variable columns, then all values.
    Heads,
    /// Text: constant bytes around the values.
    Text {
        before: Vec<Vec<u8>>,
        after: Vec<u8>,
        refuse: Vec<(&'static str, String)>,
        format: Format,
    },
    /// WebDataset: a member for each value.
    Tar(TarRows),
}

/// Encodes rows of record batches as samples of a layout. One per conversion, shared by all threads.
#[derive(Clone, Debug)]
pub struct RowEncoder {
    columns: Vec<ColumnEncoder>,
    /// Whether the length of a column's values stands before the values of a sample.
    headed: Vec<bool>,
    frame: Frame,
    sample_limit: u64,
}

/// Why a batch could not be encoded: a value, or the sum of a row's values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum BatchError {
    Null {
        column: usize,
        row: usize,
    },
    Value {
        column: usize,
        error: RowError,
    },
    SampleTooLarge {
        row: usize,
        bytes: u64,
        limit: u64,
    },
    KeyNull {
        row: usize,
    },
    Key {
        row: usize,
        error: shardmill_webdataset::WriteError,
    },
    Member {
        column: usize,
        row: usize,
        error: shardmill_webdataset::WriteError,
    },
}

impl BatchError {
    /// The error as others see it; `place` names a row of the batch.
    pub(crate) fn locate(
        self,
        encoder: &RowEncoder,
        place: impl Fn(usize) -> String,
    ) -> WriteError {
        let column = |column: usize| {
            encoder
                .columns()
                .get(column)
                .map_or_else(String::new, |c| c.name().to_owned())
        };
        match self {
            Self::Null { column: at, row } => WriteError::Null {
                column: column(at),
                row: place(row),
                hint: encoder
                    .columns()
                    .get(at)
                    .map_or_else(String::new, |column| column.null_hint().to_owned()),
            },
            Self::Value { column: at, error } => WriteError::Value {
                column: column(at),
                row: place(error.row),
                reason: error.reason,
            },
            Self::SampleTooLarge { row, bytes, limit } => WriteError::SampleTooLarge {
                row: place(row),
                bytes,
                limit,
            },
            Self::KeyNull { row } => WriteError::Null {
                column: encoder.key_column(),
                row: place(row),
                hint: format!(
                    "choose --nulls mask or --nulls drop, or --null-as {}=VALUE",
                    escape(&encoder.key_column())
                ),
            },
            Self::Key { row, error } => WriteError::Sample {
                column: encoder.key_column(),
                row: place(row),
                source: error,
            },
            Self::Member {
                column: at,
                row,
                error,
            } => WriteError::Sample {
                column: column(at),
                row: place(row),
                source: error,
            },
        }
    }
}

impl RowEncoder {
    /// An encoder of samples with these columns, which stand in the order of the layout (sorted by name).
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
        let headed = columns.iter().map(ColumnEncoder::is_variable).collect();
        Self {
            columns,
            headed,
            frame,
            sample_limit: sample_limit.min(u64::from(u32::MAX)),
        }
    }

    /// An encoder of the samples of tar files. The names of the columns, which stand in the order of code points, are the
    /// fields.
    #[must_use]
    pub fn tar(columns: Vec<ColumnEncoder>, rows: TarRows, sample_limit: u64) -> Self {
        Self {
            columns,
            headed: Vec::new(),
            frame: Frame::Tar(rows),
            sample_limit: sample_limit.min(u64::from(u32::MAX)),
        }
    }

    /// The column that keys come from, for messages.
    pub(crate) fn key_column(&self) -> String {
        match &self.frame {
            Frame::Tar(TarRows {
                keys: TarKeys::Column { name, .. },
                ..
            }) => name.clone(),
            _ => String::new(),
        }
    }

    /// How the keys of tar samples come about; `None` in other formats.
    #[must_use]
    pub const fn keys(&self) -> Option<&TarKeys> {
        match &self.frame {
            Frame::Tar(rows) => Some(&rows.keys),
            _ => None,
        }
    }

    /// The columns, in the order of the layout.
    #[must_use]
    pub fn columns(&self) -> &[ColumnEncoder] {
        &self.columns
    }

    /// Encodes all rows of a batch, in chunks.
    /// What a sample holds that was read from a shard, by its encoded bytes. `memory` is used again from call to call.
    #[must_use]
    pub fn content_of(&self, sample: &[u8], memory: &mut Vec<u8>) -> Content {
        if !matches!(self.keys(), Some(TarKeys::Number)) {
            return Content::of(sample);
        }
        content_of_numbered(sample, KEY_DIGITS, memory)
    }

    pub(crate) fn encode(
        &self,
        batch: &RecordBatch,
        mut origin: Origin,
        pool: &Arc<BufferPool>,
        mut emit: impl FnMut(Chunk),
    ) -> Result<(), BatchError> {
        let mut encoded_column = Vec::with_capacity(self.columns.len());
        for (position, column) in self.columns.iter().enumerate() {
            let array = batch.column(column.source());
            if !column.stores_null()
                && !column.omits_null()
                && let Some(nulls) = array.logical_nulls()
                && nulls.null_count() > 0
            {
                let row = (0..array.len())
                    .find(|row| nulls.is_null(*row))
                    .unwrap_or(0);
                return Err(BatchError::Null {
                    column: position,
                    row,
                });
            }
            let values = column.prepare(array).map_err(|error| BatchError::Value {
                column: position,
                error,
            })?;
            encoded_column.push(values);
        }
        if let Frame::Tar(rows) = &self.frame {
            return self.encode_tar(rows, batch, &encoded_column, origin, pool, emit);
        }
        self.refuse(&encoded_column, batch.num_rows())?;
        let sizes = self.sizes(&encoded_column, batch.num_rows())?;
        let mut start = 0;
        while start < sizes.len() {
            let mut end = start;
            let mut bytes = 0_usize;
            // A sample is below 4 GiB, so a chunk is below 4 GiB + CHUNK_BYTES; `ends` needs it below 4 GiB.
            while end < sizes.len() && (end == start || bytes + sizes[end] <= CHUNK_BYTES) {
                bytes += sizes[end];
                end += 1;
            }
            emit(self.chunk(
                &encoded_column,
                start..end,
                &sizes[start..end],
                bytes,
                origin,
                pool,
            ));
            origin.first += u64::try_from(end - start).unwrap_or(0);
            start = end;
        }
        Ok(())
    }

    /// Encoded length of every row.
    fn sizes(
        &self,
        encoded_column: &[EncodedColumn],
        rows: usize,
    ) -> Result<Vec<usize>, BatchError> {
        let constant = match &self.frame {
            Frame::Heads => 4 * self.headed.iter().filter(|headed| **headed).count(),
            Frame::Text { before, after, .. } => {
                before.iter().map(Vec::len).sum::<usize>() + after.len()
            }
            Frame::Tar(_) => 0,
        };
        let mut sizes = vec![constant; rows];
        for values in encoded_column {
            values.add_sizes(0..rows, &mut sizes);
        }
        let limit = usize::try_from(self.sample_limit).unwrap_or(usize::MAX);
        match sizes.iter().position(|size| *size > limit) {
            None => Ok(sizes),
            Some(row) => Err(BatchError::SampleTooLarge {
                row,
                bytes: u64::try_from(sizes[row]).unwrap_or(u64::MAX),
                limit: self.sample_limit,
            }),
        }
    }

    /// Separated values cannot be quoted, so what would need it is refused: values with a separator or a newline in them,
    /// and those whose end would be taken for the beginning of one.
    fn refuse(&self, encoded_column: &[EncodedColumn], rows: usize) -> Result<(), BatchError> {
        let Frame::Text { refuse, format, .. } = &self.frame else {
            return Ok(());
        };
        for (what, text) in refuse {
            let finder = memchr::memmem::Finder::new(text);
            for (column, values) in encoded_column.iter().enumerate() {
                for row in 0..rows {
                    let value = values.value(row).1;
                    if finder.find(value).is_some() || reaches_over(value, text.as_bytes()) {
                        let reason = ValueReason::Separator {
                            what,
                            text: text.clone(),
                            format: format.to_string(),
                        };
                        return Err(BatchError::Value {
                            column,
                            error: RowError { row, reason },
                        });
                    }
                }
            }
        }
        Ok(())
    }

    fn chunk(
        &self,
        encoded_column: &[EncodedColumn],
        rows: Range<usize>,
        sizes: &[usize],
        bytes: usize,
        origin: Origin,
        pool: &Arc<BufferPool>,
    ) -> Chunk {
        let mut out = pool.take(bytes);
        let mut ends = Vec::with_capacity(sizes.len());
        let mut cursors = Vec::with_capacity(sizes.len());
        let mut at = 0_usize;
        for size in sizes {
            cursors.push(at);
            at += size;
            ends.push(u32::try_from(at).unwrap_or(u32::MAX));
        }
        match &self.frame {
            Frame::Heads => {
                for (values, _) in encoded_column
                    .iter()
                    .zip(&self.headed)
                    .filter(|(_, headed)| **headed)
                {
                    for (row, cursor) in rows.clone().zip(&mut cursors) {
                        // Lengths are below the sample limit, which is below 4 GiB.
                        let len = u32::try_from(values.len(row)).unwrap_or(u32::MAX);
                        out[*cursor..*cursor + 4].copy_from_slice(&len.to_le_bytes());
                        *cursor += 4;
                    }
                }
                for values in encoded_column {
                    values.scatter(rows.clone(), &mut cursors, &mut out);
                }
            }
            Frame::Text { before, after, .. } => {
                for (values, before) in encoded_column.iter().zip(before) {
                    put(before, &mut cursors, &mut out);
                    values.scatter(rows.clone(), &mut cursors, &mut out);
                }
                put(after, &mut cursors, &mut out);
            }
            // These take another way.
            Frame::Tar(_) => {}
        }
        Chunk::new(out, ends, origin, pool)
    }
}

/// Puts the same bytes at every cursor.
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
    let mut before = Vec::with_capacity(columns.len());
    for (position, column) in columns.iter().enumerate() {
        let mut bytes = Vec::from(if position == 0 {
            b"{".as_slice()
        } else {
            b", "
        });
        shardmill_mds::write_json_string(&column.name, &mut bytes);
        bytes.extend_from_slice(b": ");
        before.push(bytes);
    }
    let mut after = Vec::from(if columns.is_empty() {
        b"{}".as_slice()
    } else {
        b"}"
    });
    after.extend_from_slice(newline.as_bytes());
    Frame::Text {
        before,
        after,
        refuse: Vec::new(),
        format: Format::Json,
    }
}

fn xsv_frame(format: Format, columns: usize, newline: &str, separator: &str) -> Frame {
    let before = (0..columns)
        .map(|position| {
            if position == 0 {
                Vec::new()
            } else {
                separator.as_bytes().to_vec()
            }
        })
        .collect();
    let refuse = vec![
        ("separator", separator.to_owned()),
        ("newline", newline.to_owned()),
    ];
    Frame::Text {
        before,
        after: newline.as_bytes().to_vec(),
        refuse,
        format,
    }
}
