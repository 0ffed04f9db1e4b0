//! The statistics of one column while its values are read, and when all are known.

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, Decimal128Array, Float64Array, Int64Array, RecordBatch,
    UInt8Array, new_empty_array,
};
use arrow::compute::kernels::cmp::eq;
use arrow::compute::kernels::length::length;
use arrow::compute::{can_cast_types, cast, filter, is_not_null, nullif};
use arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, Float64Type};
use arrow::error::ArrowError;
use serde::Serialize;
use shardmill_core::{Error, Limits};
use shardmill_mds::{Encoding, Value};
use shardmill_source::{DistinctCount, DistinctValues, ENCODING_KEY, SourceKind, bug};
use shardmill_webdataset::{FieldKind, Value as TarValue};

use super::histogram::{Exact, Histogram};
use crate::row_values::{bytes_of, text, text_of};

/// A number in the statistics of a column.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Number {
    /// An integer, or the length of a value.
    Int(i128),
    /// A float. It is finite.
    Float(f64),
    /// A float of 16 or 32 bits, whose shortest text has fewer digits.
    Float32(f32),
    /// A decimal, a date or a time.
    Text(String),
}

/// What the numbers of a column's statistics measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// The values themselves.
    Value,
    /// The lengths of texts, in Unicode characters.
    Characters,
    /// The lengths of values, in bytes.
    Bytes,
    /// The lengths of lists and arrays, in items.
    Items,
}

/// A bin of a histogram: the values of at least `from` and below `to`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bin {
    /// The lower bound.
    pub from: Number,
    /// The upper bound, which is not included.
    pub to: Number,
    /// The number of values.
    pub count: u64,
}

/// Values that are not part of minimum, maximum, mean and histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Special {
    /// The number of NaN values.
    pub nan: u64,
    /// The number of values that are positive infinity.
    pub infinity: u64,
    /// The number of values that are negative infinity.
    pub negative_infinity: u64,
    /// The number of values that are not of the kind that the name of their column promises.
    pub unreadable: u64,
}

/// The statistics of a column.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ColumnStats {
    /// The name.
    pub name: String,
    /// The encoding in the dataset, or the type in the source.
    #[serde(rename = "type")]
    pub type_name: String,
    /// The number of values that are not null.
    pub count: u64,
    /// The number of nulls.
    pub nulls: u64,
    /// The number of distinct values.
    pub distinct: DistinctCount,
    /// The values that are counted apart.
    pub special: Special,
    /// What `min`, `max`, `mean` and `histogram` measure; `None` for types without a measure.
    pub measure: Option<Measure>,
    /// The smallest number.
    pub min: Option<Number>,
    /// The largest number.
    pub max: Option<Number>,
    /// The mean; `None` for dates and times, and if the sum is beyond the largest float.
    pub mean: Option<f64>,
    /// The bins in ascending order, from that of the minimum to that of the maximum.
    pub histogram: Vec<Bin>,
}

/// Returns what is measured of the values of a column, and the measures: floats, or decimals with the digits of the column.
/// The measure of a value is null if it is not of the kind that its column promises.
fn measured(
    field: &Field,
    is_tar: bool,
    values: &ArrayRef,
    limits: &Limits,
) -> Result<Option<(Measure, ArrayRef)>, ArrowError> {
    let each = |measure, of: &dyn Fn(&[u8]) -> Option<i128>| {
        let bytes = |row| {
            text_of(values, row).map_or_else(|| bytes_of(values, row), |text| Some(text.as_bytes()))
        };
        let measures = (0..values.len()).map(|row| of(bytes(row)?));
        let measures: ArrayRef = Arc::new(measures.collect::<Decimal128Array>());
        Ok(Some((measure, measures)))
    };
    let (measure, measures) = match field.data_type() {
        DataType::Binary if is_tar => match FieldKind::of(field.name()) {
            (FieldKind::Int, false) => return each(Measure::Value, &integer),
            (FieldKind::Text | FieldKind::Json, false) => {
                return each(Measure::Characters, &characters);
            }
            (FieldKind::Npy, false) => {
                return each(Measure::Items, &|value| match shardmill_webdataset::decode(
                    "npy", value, limits,
                )
                .ok()?
                {
                    TarValue::Array(array) => items(&array.shape),
                    _ => None,
                });
            }
            _ => (Measure::Bytes, length(values)?),
        },
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            return each(Measure::Characters, &characters);
        }
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => {
            let encoding = field.metadata().get(ENCODING_KEY);
            match encoding.and_then(|name| name.parse().ok()) {
                Some(encoding @ (Encoding::NdArray { .. } | Encoding::List(_))) => {
                    return each(Measure::Items, &|value| match shardmill_mds::decode(
                        &encoding, value, limits,
                    )
                    .ok()?
                    {
                        Value::NdArray(array) => items(&array.shape),
                        Value::Images(images) => i128::try_from(images.len()).ok(),
                        _ => None,
                    });
                }
                _ => (Measure::Bytes, length(values)?),
            }
        }
        DataType::List(_)
        | DataType::LargeList(_)
        | DataType::FixedSizeList(..)
        | DataType::Map(..) => (Measure::Items, length(values)?),
        DataType::Boolean => (Measure::Value, cast(values, &DataType::UInt8)?),
        DataType::Decimal128(..) => return Ok(Some((Measure::Value, Arc::clone(values)))),
        numeric if numeric.is_integer() || numeric.is_floating() => {
            (Measure::Value, Arc::clone(values))
        }
        DataType::Interval(_) => return Ok(None),
        time if time.is_temporal()
            && can_cast_types(time, &DataType::Int64)
            && can_cast_types(&DataType::Int64, time) =>
        {
            (Measure::Value, cast(values, &DataType::Int64)?)
        }
        _ => return Ok(None),
    };
    let data_type = if measures.data_type().is_floating() {
        DataType::Float64
    } else {
        DataType::Decimal128(38, 0)
    };
    Ok(Some((measure, cast(&measures, &data_type)?)))
}

fn integer(value: &[u8]) -> Option<i128> {
    let number = std::str::from_utf8(value).ok()?.trim().parse::<i64>();
    number.ok().map(i128::from)
}

fn characters(value: &[u8]) -> Option<i128> {
    i128::try_from(std::str::from_utf8(value).ok()?.chars().count()).ok()
}

fn items(shape: &[u64]) -> Option<i128> {
    let mut lengths = shape.iter().map(|length| i128::from(*length));
    lengths.try_fold(1, |items: i128, length| items.checked_mul(length))
}

/// A sum with twice the precision of floats.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    sum: f64,
    /// The sum of what was lost by rounding.
    lost: f64,
}

impl Sum {
    fn add(&mut self, value: f64) {
        let sum = self.sum + value;
        let added = sum - self.sum;
        self.lost += (self.sum - (sum - added)) + (value - added);
        self.sum = sum;
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "what is lost is added as well"
    )]
    fn add_int(&mut self, value: i128) {
        let rounded = value as f64;
        self.add(rounded);
        self.add(value.saturating_sub(rounded as i128) as f64);
    }

    #[expect(clippy::cast_precision_loss, reason = "a mean is rounded")]
    fn mean(self, count: u64) -> Option<f64> {
        let mean = (self.sum + self.lost) / count as f64;
        mean.is_finite().then_some(mean)
    }
}

/// The values of a column that were read so far.
#[derive(Debug)]
pub(super) struct Column {
    /// Its position in a batch, and that of the column that marks its nulls.
    position: usize,
    mask: Option<usize>,
    field: FieldRef,
    is_tar: bool,
    /// What is counted. The rest is set at the end.
    stats: ColumnStats,
    distinct: DistinctValues,
    histogram: Histogram,
    range: Option<(Exact, Exact)>,
    sum: Sum,
}

impl Column {
    pub(super) fn new(
        position: usize,
        mask: Option<usize>,
        field: &FieldRef,
        kind: SourceKind,
    ) -> Result<Self, Error> {
        let is_tar = kind == SourceKind::Webdataset;
        let none = new_empty_array(field.data_type());
        let found = measured(field, is_tar, &none, &Limits::default()).map_err(refused)?;
        Ok(Self {
            position,
            mask,
            field: Arc::clone(field),
            is_tar,
            stats: ColumnStats {
                name: field.name().clone(),
                type_name: type_name(field, kind),
                measure: found.map(|(measure, _)| measure),
                ..ColumnStats::default()
            },
            distinct: DistinctValues::new()?,
            histogram: Histogram::default(),
            range: None,
            sum: Sum::default(),
        })
    }

    /// Adds the values of a batch. Rows that the mask marks count as nulls.
    pub(super) fn add(&mut self, batch: &RecordBatch, limits: &Limits) -> Result<(), Error> {
        let values = self.values(batch).map_err(refused)?;
        self.stats.count += values.len() as u64;
        self.stats.nulls += (batch.num_rows() - values.len()) as u64;
        self.distinct.add(&values)?;
        let found = measured(&self.field, self.is_tar, &values, limits).map_err(refused)?;
        let Some((_, measures)) = found else {
            return Ok(());
        };
        if let Some(floats) = measures.as_primitive_opt::<Float64Type>() {
            floats
                .values()
                .iter()
                .for_each(|value| self.add_float(*value));
        } else {
            for value in measures.as_primitive::<Decimal128Type>() {
                match value {
                    Some(value) => {
                        self.sum.add_int(value);
                        self.count(Exact::Int(value));
                    }
                    None => self.stats.special.unreadable += 1,
                }
            }
        }
        Ok(())
    }

    /// Returns the values that are not null.
    fn values(&self, batch: &RecordBatch) -> Result<ArrayRef, ArrowError> {
        let mut array = Arc::clone(batch.column(self.position));
        if let Some(mask) = self.mask {
            let is_masked = eq(batch.column(mask), &UInt8Array::new_scalar(1))?;
            array = nullif(&array, &is_masked)?;
        }
        let values = filter(&array, &is_not_null(&array)?)?;
        if !values.data_type().is_floating() {
            return Ok(values);
        }
        // Zero has two signs and NaN has many forms, each of which count as the same value.
        let floats = cast(&values, &DataType::Float64)?;
        let floats: Float64Array = floats.as_primitive::<Float64Type>().unary(|value| {
            if value.is_nan() {
                f64::NAN
            } else {
                value + 0.0
            }
        });
        Ok(Arc::new(floats))
    }

    fn add_float(&mut self, value: f64) {
        if value.is_finite() {
            self.sum.add(value);
            self.count(Exact::Float(value));
        } else if value.is_nan() {
            self.stats.special.nan += 1;
        } else if value > 0.0 {
            self.stats.special.infinity += 1;
        } else {
            self.stats.special.negative_infinity += 1;
        }
    }

    fn count(&mut self, number: Exact) {
        self.widen(number);
        self.histogram.add(number);
    }

    fn widen(&mut self, number: Exact) {
        let (low, high) = self.range.get_or_insert((number, number));
        if number < *low {
            *low = number;
        } else if number > *high {
            *high = number;
        }
    }

    /// Adds the values of the same column of other rows.
    pub(super) fn merge(&mut self, other: Self) -> Result<(), Error> {
        self.stats.count += other.stats.count;
        self.stats.nulls += other.stats.nulls;
        let (special, others) = (&mut self.stats.special, other.stats.special);
        special.nan += others.nan;
        special.infinity += others.infinity;
        special.negative_infinity += others.negative_infinity;
        special.unreadable += others.unreadable;
        if let Some((low, high)) = other.range {
            self.widen(low);
            self.widen(high);
        }
        self.sum.add(other.sum.sum);
        self.sum.lost += other.sum.lost;
        self.histogram.merge(&other.histogram);
        self.distinct.merge(other.distinct)
    }

    /// Returns the statistics.
    pub(super) fn finish(mut self) -> Result<ColumnStats, Error> {
        self.stats.distinct = self.distinct.count()?;
        let mut stats = self.stats.clone();
        let Some((low, high)) = self.range else {
            return Ok(stats);
        };
        let numbers: u64 = self.histogram.bins().map(|(_, count)| count).sum();
        stats.mean = match self.field.data_type() {
            data_type if data_type.is_temporal() => None,
            DataType::Decimal128(_, scale) => {
                let mean = self.sum.mean(numbers);
                mean.map(|mean| mean / 10.0_f64.powi((*scale).into()))
            }
            _ => self.sum.mean(numbers),
        };
        (stats.min, stats.max) = (Some(self.shown(low)), Some(self.shown(high)));
        let power = self.histogram.power();
        let edge = |index: i128| match low {
            Exact::Int(_) => self.shown(Exact::Int(index.saturating_mul(1 << power))),
            Exact::Float(_) => Number::Float(float(index) * 2.0_f64.powi(power)),
        };
        let bins = self.histogram.bins().map(|(index, count)| Bin {
            from: edge(index),
            to: edge(index.saturating_add(1)),
            count,
        });
        stats.histogram = bins.collect();
        Ok(stats)
    }

    /// Returns a number in the form of the type of the column.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the value has the type of the column"
    )]
    fn shown(&self, number: Exact) -> Number {
        match (number, self.field.data_type()) {
            (Exact::Float(value), DataType::Float16 | DataType::Float32) => {
                Number::Float32(value as f32)
            }
            (Exact::Float(value), _) => Number::Float(value),
            (Exact::Int(value), decimal @ DataType::Decimal128(..)) => {
                let array = Decimal128Array::from(vec![value]).with_data_type(decimal.clone());
                Number::Text(array.value_as_string(0))
            }
            (Exact::Int(value), time) if time.is_temporal() => {
                let array = Int64Array::from(vec![i64::try_from(value).ok()]);
                match cast(&array, time) {
                    Ok(array) if array.is_valid(0) => Number::Text(text(&array, 0)),
                    _ => Number::Int(value),
                }
            }
            (Exact::Int(value), _) => Number::Int(value),
        }
    }
}

/// Returns the encoding of a column in a dataset, or its type in another source.
fn type_name(field: &Field, kind: SourceKind) -> String {
    match (field.metadata().get(ENCODING_KEY), field.data_type()) {
        (Some(encoding), _) => encoding.clone(),
        (None, data_type) if kind != SourceKind::Mds => data_type.to_string(),
        (None, DataType::Utf8) => "str".to_owned(),
        // The names of numbers are those of Arrow in lower case.
        (None, data_type) => data_type.to_string().to_lowercase(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "indexes are below 2^54")]
fn float(index: i128) -> f64 {
    index as f64
}

fn refused(error: ArrowError) -> Error {
    bug(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> Sum {
        let mut sum = Sum::default();
        values.iter().for_each(|value| sum.add(*value));
        sum
    }

    #[test]
    fn sums_do_not_depend_on_order() {
        let values: Vec<f64> = (0..10_000).map(|n| f64::from(n) / 10.0 - 300.0).collect();
        let mean = of(&values).mean(10_000);
        assert_eq!(mean, Some(199.95));
        let reversed: Vec<f64> = values.iter().rev().copied().collect();
        assert_eq!(of(&reversed).mean(10_000), mean);
        assert_eq!(of(&[1e100, 1.0, -1e100]).mean(1), Some(1.0));
        assert_eq!(of(&[f64::MAX, f64::MAX]).mean(2), None);
        let mut sum = Sum::default();
        for value in [i128::from(u64::MAX), i128::from(i64::MIN), 1, 1 << 62] {
            sum.add_int(value);
        }
        assert_eq!(sum.mean(1), Some(3.0 * 2.0_f64.powi(62)));
    }
}
