//! A stored sample of any format: its fields, its key, and its values as JSON.

use std::borrow::Cow;

use shardmill_core::{Error, Limits};
use shardmill_dataset::{Dataset, DatasetError, Sample, ValueLocation};
use shardmill_mds::{DType, Field, NdArray, SampleValue, TextValue, Value, decode};
use shardmill_webdataset::{Value as TarValue, inflate};

use super::dataset;
use crate::error::{Stop, unknown_column};
use crate::output::write_value;

/// A field of a sample.
pub enum StoredField<'a> {
    /// The bytes of an MDS column, and its encoding.
    Mds(Field<'a>),
    /// A value of a JSON or XSV shard, or the key of a tar sample.
    Text(TextValue<'a>),
    /// The content of a member of a tar file.
    Tar(&'a [u8]),
}

/// A sample and its fields by name.
pub struct SampleRow<'a> {
    pub number: u64,
    pub fields: Vec<(&'a str, StoredField<'a>)>,
    /// The file of its shard, for errors.
    pub file: &'a str,
    pub limits: &'a Limits,
}

impl<'a> SampleRow<'a> {
    /// Makes the row of a sample of an MDS, JSON or XSV shard.
    pub fn of(dataset: &'a Dataset, sample: &'a Sample) -> Result<Self, Stop> {
        let fields = if sample.config().mds_columns().is_some() {
            let fields = sample.fields()?.into_iter();
            fields
                .map(|field| (field.name, StoredField::Mds(field)))
                .collect()
        } else {
            let values = sample.values()?.into_iter();
            let text = values.filter_map(|(name, value)| match value {
                SampleValue::Text(value) => Some((name, StoredField::Text(value))),
                SampleValue::Mds(_) => None,
            });
            text.collect()
        };
        let entry = dataset.index().shards.get(sample.shard_number());
        Ok(Self {
            number: sample.number(),
            fields,
            file: entry.map_or("", |entry| &dataset::stored_files(entry).0.basename),
            limits: dataset.limits(),
        })
    }

    /// Returns the field of a column.
    pub fn field(&self, column: &str) -> Option<&(&'a str, StoredField<'a>)> {
        self.fields.iter().find(|(name, _)| *name == column)
    }

    /// Returns the error that the sample lacks a column.
    pub fn lacks(&self, column: &str) -> Error {
        let known = self.fields.iter().map(|(name, _)| name);
        unknown_column(&format!("sample {}", self.number), column, known)
    }

    /// Decodes an MDS field.
    pub fn decode(&self, field: &Field<'a>) -> Result<Value<'a>, DatasetError> {
        decode(field.encoding, field.datum, self.limits).map_err(|source| {
            let location = ValueLocation {
                file: self.file.to_owned(),
                sample: Some(self.number),
                column: Some(field.name.to_owned()),
            };
            DatasetError::value(location, source)
        })
    }

    /// Returns the key of the sample as text, or `None` if it has no key column.
    pub fn key(&self, key_column: &str) -> Result<Option<Cow<'_, str>>, Stop> {
        let (key, encoding) = match self.field(key_column) {
            None => return Ok(None),
            Some((_, StoredField::Mds(field))) => match self.decode(field)? {
                // Other writers sometimes store keys as bytes. Keys that are not text match no typed key.
                Value::Bytes(bytes) => return Ok(Some(String::from_utf8_lossy(bytes))),
                value => (value.key_text(), Some(field.encoding)),
            },
            Some((_, StoredField::Text(value))) => (value.as_value().key_text(), None),
            Some((_, StoredField::Tar(data))) => return Ok(Some(String::from_utf8_lossy(data))),
        };
        let wrong = || {
            let encoding = encoding.map_or("float".to_owned(), ToString::to_string);
            let message = format!("the column has encoding {encoding}, which cannot be a key");
            Error::usage("key-encoding", message)
                .about(key_column)
                .with_hint("choose a column of strings or integers with --key-column")
        };
        Ok(Some(key.ok_or_else(wrong)?))
    }

    /// Appends the value of a field as JSON, shortened to `max_bytes`.
    pub fn write(
        &self,
        field: &(&str, StoredField<'a>),
        max_bytes: Option<usize>,
        out: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        self.with_value(field, |value| write_value(value, max_bytes, out))
    }

    /// Calls `show` with the value of a field.
    pub fn with_value(
        &self,
        (name, field): &(&str, StoredField<'a>),
        show: impl FnOnce(&Value<'_>),
    ) -> Result<(), Stop> {
        match field {
            StoredField::Mds(field) => show(&self.decode(field)?),
            StoredField::Text(value) => show(&value.as_value()),
            StoredField::Tar(data) => with_field(name, data, self.limits, show),
        }
        Ok(())
    }
}

/// Calls `show` with the value of a field according to its extension, or with its bytes if the content does not match the
/// extension.
fn with_field(field: &str, data: &[u8], limits: &Limits, show: impl FnOnce(&Value<'_>)) {
    let plain = inflate(field, data, limits);
    let decoded = plain
        .as_ref()
        .ok()
        .and_then(|plain| shardmill_webdataset::decode(field, plain, limits).ok());
    let value = match decoded {
        Some(TarValue::Text(text)) => Value::Str(text),
        Some(TarValue::Int(number)) => Value::Int(number),
        Some(TarValue::BigInt(text)) => Value::BigInt(text),
        Some(TarValue::Json(text)) => Value::Json(text),
        Some(TarValue::Array(array)) => match DType::from_numpy(array.dtype) {
            Some(dtype) => Value::NdArray(NdArray {
                dtype,
                shape: array.shape,
                data: array.data,
            }),
            None => Value::Bytes(data),
        },
        _ => Value::Bytes(data),
    };
    show(&value);
}
