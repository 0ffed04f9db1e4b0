//! Encodes record batches into chunks of samples.

mod tar;

use std::ops::Range;
use std::sync::Arc;

use arrow::array::Array;
use arrow::record_batch::RecordBatch;
use shardmill_core::{Format, escape};
use shardmill_mds::{Content, Layout, TextColumn, reaches_over};
use shardmill_webdataset::{KEY_DIGITS, Profile, content_of_numbered};

use crate::chunk::{BufferPool, Chunk, Origin};
use crate::columns::{ColumnEncoder, EncodedColumn};
use crate::error::{RowError, ValueReason, WriteError};

/// The size at which a chunk is closed, in bytes. A chunk fits into a core's cache while its columns are scattered into
/// it. It is large enough that handing it over costs nothing.
pub(crate) const CHUNK_BYTES: usize = 2 << 20;

/// The rules for encoding rows as samples of tar files.
#[derive(Clone, Debug)]
pub struct TarRows {
    /// The rules for headers and member names.
    pub profile: Profile,
    /// The source of the keys.
    pub keys: TarKeys,
}

/// The source of the keys of tar samples.
#[derive(Clone, Debug)]
pub enum TarKeys {
    /// The number of the sample in its dataset, with nine digits.
    Number,
    /// A column of the batches, of text or integers.
    Column {
        /// Its position.
        source: usize,
        /// Its name, for messages.
        name: String,
        /// Whether the input guarantees unique values. If so, the writer does not keep the hashes of the keys.
        unique: bool,
    },
}

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

/// The error of a batch that cannot be encoded.
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
    /// Converts the error to a [`WriteError`]. `place` describes the location of a row of the batch.
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
        let headed = columns.iter().map(ColumnEncoder::is_variable).collect();
        Self {
            columns,
            headed,
            frame,
            sample_limit: sample_limit.min(u64::from(u32::MAX)),
        }
    }

    /// Creates an encoder of tar samples. The column names are the fields, and they must be sorted by code point.
    #[must_use]
    pub fn tar(columns: Vec<ColumnEncoder>, rows: TarRows, sample_limit: u64) -> Self {
        Self {
            columns,
            headed: Vec::new(),
            frame: Frame::Tar(rows),
            sample_limit: sample_limit.min(u64::from(u32::MAX)),
        }
    }

    /// Returns the name of the key column, for messages.
    pub(crate) fn key_column(&self) -> String {
        match &self.frame {
            Frame::Tar(TarRows {
                keys: TarKeys::Column { name, .. },
                ..
            }) => name.clone(),
            _ => String::new(),
        }
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

    /// Encodes all rows of a batch, in chunks.
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
            // A chunk is one sample, which is below 4 GiB, or at most `CHUNK_BYTES` long. So its length fits the 32-bit
            // `ends`.
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

    /// Returns the encoded length of every row.
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

    /// Returns an error for values that would need quotes, which these formats do not have. Such a value contains a
    /// separator or a newline, or it ends with the start of one.
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
            // `encode_tar` handles tar samples.
            Frame::Tar(_) => {}
        }
        Chunk::new(out, ends, origin, pool)
    }
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
