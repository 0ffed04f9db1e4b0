//! Texts of single values: strings, times in ISO 8601, and everything else that Arrow can format.

use std::collections::BTreeMap;

use arrow::array::{Array, ArrayRef, AsArray, LargeStringArray, LargeStringBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit};
use shardmill_core::catch_panic::catch;
use shardmill_mds::{DType, MdsError};

use super::number;
use super::types::is_temporal;
use crate::error::ValueReason;

/// The reason why a value cannot be written.
#[derive(Debug)]
pub(crate) enum Unwritable {
    /// A map has a duplicate key. Readers would keep only one of the values.
    Key(String),
    /// A text that should be JSON is not.
    Json(MdsError),
    /// A time is outside the range of the calendar.
    Time(String),
}

impl Unwritable {
    /// Converts the reason to a [`ValueReason`] for a value with `encoding`.
    pub(crate) fn reason(self, encoding: &str) -> ValueReason {
        match self {
            Self::Key(key) => ValueReason::Datum(MdsError::json_key_twice(&key)),
            Self::Json(error) => ValueReason::Datum(error),
            Self::Time(value) => ValueReason::Range {
                value,
                encoding: encoding.to_owned(),
            },
        }
    }
}

/// A column as text.
pub(crate) struct Texts {
    pub(super) array: LargeStringArray,
    /// The values that have no text, with a description of each.
    pub(super) misfits: BTreeMap<usize, String>,
}

impl From<LargeStringArray> for Texts {
    fn from(array: LargeStringArray) -> Self {
        Self {
            array,
            misfits: BTreeMap::new(),
        }
    }
}

impl Texts {
    pub(crate) fn is_null(&self, row: usize) -> bool {
        self.array.is_null(row)
    }

    /// Returns the text of value `row`.
    pub(crate) fn value(&self, row: usize) -> Result<&str, Unwritable> {
        match self.misfits.get(&row) {
            None => Ok(self.array.value(row)),
            Some(value) => Err(Unwritable::Time(value.clone())),
        }
    }
}

/// Returns the texts of a column, or `None` if the type has no text form. Times are in ISO 8601. Times outside the
/// calendar are errors only if the caller reads them.
pub(crate) fn texts(array: &ArrayRef) -> Option<Texts> {
    if let Some(text) = as_text(array) {
        let text = text.as_string::<i64>();
        return Some(match array.data_type() {
            // A date has no time of day. If a value has one despite its type, it is kept.
            DataType::Date64 => text
                .iter()
                .map(|text| text.map(|text| text.strip_suffix("T00:00:00").unwrap_or(text)))
                .collect::<LargeStringArray>()
                .into(),
            _ => text.clone().into(),
        });
    }
    // An empty array fails to cast only because of its type: an unknown time zone.
    if !is_temporal(array.data_type()) || as_text(&array.slice(0, 0)).is_none() {
        return None;
    }
    let mut builder = LargeStringBuilder::new();
    let mut misfits = BTreeMap::new();
    for row in 0..array.len() {
        let one = array.slice(row, 1);
        match texts_of_one(&one) {
            _ if array.is_null(row) => builder.append_null(),
            Some(text) => builder.append_value(text),
            None => {
                builder.append_value("");
                misfits.insert(row, beyond(&one));
            }
        }
    }
    Some(Texts {
        array: builder.finish(),
        misfits,
    })
}

/// Casts a column to text. A time whose local time is outside the calendar makes the cast panic.
fn as_text(array: &ArrayRef) -> Option<ArrayRef> {
    catch(|| cast(array, &DataType::LargeUtf8)).ok()?.ok()
}

/// Returns the text of the single value of an array, if it has one.
fn texts_of_one(array: &ArrayRef) -> Option<String> {
    as_text(array)?;
    texts(array)?.value(0).ok().map(str::to_owned)
}

/// Returns the single value of an array in messages.
pub(super) fn shown(array: &ArrayRef) -> String {
    texts_of_one(array).unwrap_or_else(|| beyond(array))
}

/// Describes a time outside the calendar, with its unit.
fn beyond(array: &ArrayRef) -> String {
    let number = number::to_bytes(array, DType::I64, "int64").ok();
    let number = number.and_then(|bytes| bytes.as_slice().try_into().ok());
    let number = i64::from_le_bytes(number.unwrap_or_default());
    let unit = |unit: &TimeUnit| match unit {
        TimeUnit::Second => "seconds",
        TimeUnit::Millisecond => "milliseconds",
        TimeUnit::Microsecond => "microseconds",
        TimeUnit::Nanosecond => "nanoseconds",
    };
    match array.data_type() {
        DataType::Date32 => format!("the date {number} days from 1970-01-01"),
        DataType::Date64 => format!("the date {number} milliseconds from 1970-01-01"),
        DataType::Timestamp(of, _) => format!("the time {number} {} from 1970-01-01", unit(of)),
        DataType::Time32(of) | DataType::Time64(of) => {
            format!("the time of day {number} {}", unit(of))
        }
        other => format!("a value of type {other}"),
    }
}
