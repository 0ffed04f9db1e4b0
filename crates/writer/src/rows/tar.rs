//! Encodes record batches as members of tar files.

use std::ops::Range;

use arrow::array::{Array, ArrayRef};
use arrow::buffer::NullBuffer;
use arrow::compute::cast;
use arrow::datatypes::DataType;
use arrow::record_batch::RecordBatch;
use shardmill_core::{Error, escape};
use shardmill_webdataset::{KEY_DIGITS, Profile, WebdatasetError, member_bytes, write_member_head};
use xxhash_rust::xxh3::xxh3_128;

use crate::columns::{ColumnEncoder, EncodedColumn, first_null};
use crate::error::{self, RowError, check_size};

/// The block size of tar files. Every member is padded to a multiple of it.
const BLOCK: usize = 512;

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

impl TarKeys {
    /// Returns the name of the key column, for messages.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Number => String::new(),
            Self::Column { name, .. } => name.clone(),
        }
    }
}

/// The samples of one batch.
pub(super) struct TarSamples<'a> {
    rows: &'a TarRows,
    columns: Vec<Member<'a>>,
    keys: Option<EncodedColumn>,
    /// Describes a row, for errors.
    describe_row: &'a dyn Fn(usize) -> String,
}

/// The values of one column as members of samples.
struct Member<'a> {
    field: &'a str,
    values: &'a EncodedColumn,
    /// The nulls, if the column leaves them out.
    absent: Option<NullBuffer>,
}

impl<'a> TarSamples<'a> {
    /// `columns` are the values of each encoder for the batch.
    pub(super) fn new(
        rows: &'a TarRows,
        encoders: &'a [ColumnEncoder],
        batch: &RecordBatch,
        columns: &'a [EncodedColumn],
        describe_row: &'a dyn Fn(usize) -> String,
    ) -> Result<Self, Error> {
        let columns = encoders.iter().zip(columns);
        let columns = columns.map(|(encoder, values)| Member {
            field: encoder.name(),
            values,
            absent: match encoder.omits_null() {
                true => batch.column(encoder.source()).logical_nulls(),
                false => None,
            },
        });
        Ok(Self {
            rows,
            columns: columns.collect(),
            keys: match &rows.keys {
                TarKeys::Number => None,
                TarKeys::Column { source, name, .. } => {
                    Some(keys(batch.column(*source), name, describe_row)?)
                }
            },
            describe_row,
        })
    }

    fn key(&self, row: usize) -> &[u8] {
        match &self.keys {
            Some(keys) => keys.value(row).1,
            None => &[b'0'; KEY_DIGITS],
        }
    }

    /// Returns the hashes of the keys, if keys must be checked for uniqueness.
    pub(super) fn key_hashes(&self, rows: Range<usize>) -> Vec<u128> {
        match self.rows.keys {
            TarKeys::Column { unique: false, .. } => {
                rows.map(|row| xxh3_128(self.key(row))).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the columns that are present in the sample.
    fn present(&self, row: usize) -> impl Iterator<Item = &Member<'a>> {
        self.columns.iter().filter(move |column| {
            let absent = column.absent.as_ref();
            absent.is_none_or(|nulls| nulls.is_valid(row))
        })
    }

    /// Returns the size of each sample in its shard, in bytes.
    pub(super) fn sizes(&self, rows: usize, limit: u64) -> Result<Vec<usize>, Error> {
        let sizes = (0..rows).map(|row| {
            let size = self.size(row)?;
            check_size(size, limit, || (self.describe_row)(row)).map(|()| size)
        });
        sizes.collect()
    }

    fn size(&self, row: usize) -> Result<usize, Error> {
        let key = self.key(row);
        let text = std::str::from_utf8(key).unwrap_or_default();
        let of_key = |source| self.error(&self.rows.keys.name(), row, source);
        let profile = &self.rows.profile;
        if self.keys.is_some() {
            profile.check_key(text).map_err(of_key)?;
        }
        let mut size = 0_usize;
        for column in self.present(row) {
            let bytes = column.values.len(row);
            let field = column.field;
            let fits_plain_header =
                key.len() + 1 + field.len() <= 100 && key.is_ascii() && field.is_ascii();
            let member = if fits_plain_header {
                BLOCK + bytes.next_multiple_of(BLOCK)
            } else {
                let name = format!("{text}.{field}");
                let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
                let member = member_bytes(profile.style, &name, bytes)
                    .map_err(|source| self.error(field, row, source))?;
                usize::try_from(member).unwrap_or(usize::MAX)
            };
            size = size.saturating_add(member);
        }
        if size == 0 {
            return Err(of_key(WebdatasetError::no_fields(text)));
        }
        Ok(size)
    }

    fn error(&self, column: &str, row: usize, source: WebdatasetError) -> Error {
        error::sample(column, (self.describe_row)(row), source)
    }

    /// Writes samples. This is the only copy of the bytes between Arrow and the shard.
    pub(super) fn write(&self, rows: Range<usize>, out: &mut [u8]) -> Result<(), Error> {
        let (mut at, mut name, mut head) = (0, String::new(), Vec::new());
        for row in rows {
            let key = std::str::from_utf8(self.key(row)).unwrap_or_default();
            for column in self.present(row) {
                name.clear();
                name.push_str(key);
                name.push('.');
                name.push_str(column.field);
                let bytes = column.values.len(row);
                head.clear();
                let length = u64::try_from(bytes).unwrap_or(u64::MAX);
                write_member_head(self.rows.profile.style, &name, length, &mut head)
                    .map_err(|source| self.error(column.field, row, source))?;
                let (prefix, value) = column.values.value(row);
                let padding = bytes.next_multiple_of(BLOCK) - bytes;
                for part in [head.as_slice(), prefix, value, &[0; BLOCK][..padding]] {
                    out[at..at + part.len()].copy_from_slice(part);
                    at += part.len();
                }
            }
        }
        Ok(())
    }
}

/// Converts the key column to text.
fn keys(
    array: &ArrayRef,
    name: &str,
    describe_row: &dyn Fn(usize) -> String,
) -> Result<EncodedColumn, Error> {
    if let Some(row) = first_null(array) {
        let hint = format!("choose --nulls drop, or --null-as {}=VALUE", escape(name));
        return Err(error::null(name, &describe_row(row)).with_hint(hint));
    }
    let text = match array.data_type().is_string() {
        true => Ok(ArrayRef::clone(array)),
        false => cast(array, &DataType::LargeUtf8),
    };
    let keys = text.ok().and_then(|text| EncodedColumn::texts(&text));
    keys.ok_or_else(|| RowError::unfit(array.data_type(), "a key").locate(name, describe_row))
}
