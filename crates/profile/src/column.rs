//! The statistics of one column while its values are read, and when all are known.

use arrow::array::ArrayData;
use arrow::array::{Array, ArrayRef, AsArray as _, make_array};
use arrow::buffer::ScalarBuffer;
use arrow::compute::can_cast_types;
use arrow::datatypes::{
    DataType, Decimal128Type, Field, Float16Type, Float32Type, Float64Type, Int64Type,
};
use serde::{Serialize, Serializer};
use shardmill_core::Limits;
use shardmill_mds::{Encoding, Value};
use shardmill_source::{ENCODING_KEY, SourceKind};
use shardmill_webdataset::FieldKind;
use xxhash_rust::xxh3::xxh3_64;

use crate::bins::{Binned, Bins, power_of_two};
use crate::cell::{bytes_of, int_of, text, text_of};
use crate::distinct::Distinct;
use crate::exact_sum::ExactSum;

/// A number in the statistics of a column.
#[derive(Clone, Debug, PartialEq)]
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

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Int(number) => serializer.serialize_i128(*number),
            Self::Float(number) => serializer.serialize_f64(*number),
            Self::Float32(number) => serializer.serialize_f32(*number),
            Self::Text(text) => serializer.serialize_str(text),
        }
    }
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

/// The number of distinct values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DistinctCount {
    /// The number.
    pub count: u64,
    /// Whether the number is exact. Otherwise it is an estimate with a standard error of 0.8 %.
    pub exact: bool,
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
#[derive(Clone, Debug, PartialEq, Serialize)]
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
    /// The mean; `None` for dates and times.
    pub mean: Option<f64>,
    /// The bins in ascending order, from that of the minimum to that of the maximum.
    pub histogram: Vec<Bin>,
}

/// How the values of a column are measured.
#[derive(Clone, Debug)]
enum Kind {
    /// Integers, booleans.
    Ints,
    /// Decimals with this many digits after the point.
    Decimals(i8),
    /// Dates and times that are stored as integers.
    Times,
    Floats,
    Texts,
    Bytes,
    /// Lists of Arrow.
    Lists,
    /// Values of MDS in an encoding whose items are counted.
    Encoded(Box<Encoding>),
    /// Fields of tar files whose text is a number.
    TarInts,
    /// Fields of tar files that hold text.
    TarTexts,
    /// Fields of tar files whose items are counted.
    TarArrays,
    /// Nothing is measured.
    Other,
}

impl Kind {
    fn of(field: &Field, is_tar: bool) -> Self {
        if is_tar && *field.data_type() == DataType::Binary {
            let (kind, is_compressed) = FieldKind::of(field.name());
            return match kind {
                _ if is_compressed => Self::Bytes,
                FieldKind::Int => Self::TarInts,
                FieldKind::Text | FieldKind::Json => Self::TarTexts,
                FieldKind::Npy => Self::TarArrays,
                _ => Self::Bytes,
            };
        }
        match field.data_type() {
            DataType::Boolean
            | DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::UInt8
            | DataType::UInt16
            | DataType::UInt32
            | DataType::UInt64 => Self::Ints,
            DataType::Decimal128(_, scale) => Self::Decimals(*scale),
            DataType::Date32
            | DataType::Date64
            | DataType::Time32(_)
            | DataType::Time64(_)
            | DataType::Timestamp(..)
            | DataType::Duration(_)
                if can_cast_types(field.data_type(), &DataType::Int64)
                    && can_cast_types(&DataType::Int64, field.data_type()) =>
            {
                Self::Times
            }
            DataType::Float16 | DataType::Float32 | DataType::Float64 => Self::Floats,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Self::Texts,
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => match encoding(field) {
                Some(encoding @ (Encoding::NdArray { .. } | Encoding::List(_))) => {
                    Self::Encoded(Box::new(encoding))
                }
                _ => Self::Bytes,
            },
            DataType::List(_)
            | DataType::LargeList(_)
            | DataType::FixedSizeList(..)
            | DataType::Map(..) => Self::Lists,
            _ => Self::Other,
        }
    }

    const fn measure(&self) -> Option<Measure> {
        Some(match self {
            Self::Ints | Self::Decimals(_) | Self::Times | Self::Floats | Self::TarInts => {
                Measure::Value
            }
            Self::Texts | Self::TarTexts => Measure::Characters,
            Self::Bytes => Measure::Bytes,
            Self::Lists | Self::Encoded(_) | Self::TarArrays => Measure::Items,
            Self::Other => return None,
        })
    }
}

/// Returns the MDS encoding that the source names for a column.
fn encoding(field: &Field) -> Option<Encoding> {
    field.metadata().get(ENCODING_KEY)?.parse().ok()
}

/// The values of a column that were read so far.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    kind: Kind,
    data_type: DataType,
    count: u64,
    nulls: u64,
    special: Special,
    distinct: Distinct,
    ints: Bins<i128>,
    /// The sum of the integers, as high and low part: 64-bit integers and lengths never overflow it.
    int_sum: i128,
    /// The sum of decimals, which may overflow integers.
    floats: Bins<f64>,
    float_sum: ExactSum,
}

impl Column {
    pub(crate) fn new(field: &Field, is_tar: bool) -> Self {
        Self {
            kind: Kind::of(field, is_tar),
            data_type: field.data_type().clone(),
            count: 0,
            nulls: 0,
            special: Special::default(),
            distinct: Distinct::default(),
            ints: Bins::default(),
            int_sum: 0,
            floats: Bins::default(),
            float_sum: ExactSum::default(),
        }
    }

    /// Adds values. Rows for which `is_null` returns `true` count as nulls.
    pub(crate) fn add(
        &mut self,
        array: &ArrayRef,
        is_null: impl Fn(usize) -> bool,
        limits: &Limits,
    ) {
        let nulls = array.logical_nulls();
        // Times are compared as their integers.
        let whole = match &self.kind {
            Kind::Times => arrow::compute::cast(array, &DataType::Int64).ok(),
            _ => None,
        };
        let whole = whole.as_ref().unwrap_or(array);
        for row in 0..array.len() {
            if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) || is_null(row) {
                self.nulls += 1;
                continue;
            }
            self.count += 1;
            self.add_value(whole, row, limits);
        }
    }

    fn add_value(&mut self, array: &ArrayRef, row: usize, limits: &Limits) {
        match &self.kind {
            Kind::Ints | Kind::Times => {
                let value = match array.data_type() {
                    DataType::Boolean => i128::from(array.as_boolean().value(row)),
                    DataType::Int64 => array.as_primitive::<Int64Type>().value(row).into(),
                    _ => int_of(array, row).unwrap_or_default(),
                };
                self.int(value);
                self.distinct.add(xxh3_64(&value.to_le_bytes()));
            }
            Kind::Decimals(scale) => {
                let value = array.as_primitive::<Decimal128Type>().value(row);
                self.ints.add(value);
                self.float_sum.add(scaled(value, *scale));
                self.distinct.add(xxh3_64(&value.to_le_bytes()));
            }
            Kind::Floats => {
                let value = match array.data_type() {
                    DataType::Float16 => array.as_primitive::<Float16Type>().value(row).to_f64(),
                    DataType::Float32 => array.as_primitive::<Float32Type>().value(row).into(),
                    _ => array.as_primitive::<Float64Type>().value(row),
                };
                self.float(value);
            }
            Kind::Texts => {
                let value = text_of(array, row).unwrap_or_default();
                self.distinct.add(xxh3_64(value.as_bytes()));
                self.length(value.chars().count());
            }
            Kind::Lists => {
                let items = list_length(array, row);
                self.distinct.add(xxh3_64(text(array, row).as_bytes()));
                self.length(items);
            }
            Kind::TarInts => {
                let value = bytes_of(array, row).unwrap_or_default();
                self.distinct.add(xxh3_64(value));
                let number = std::str::from_utf8(value).ok();
                match number.and_then(|text| text.trim().parse::<i64>().ok()) {
                    Some(number) => self.int(number.into()),
                    None => self.special.unreadable += 1,
                }
            }
            kind @ (Kind::Bytes | Kind::Encoded(_) | Kind::TarTexts | Kind::TarArrays) => {
                let value = bytes_of(array, row).unwrap_or_default();
                let length = match kind {
                    Kind::Encoded(encoding) => items_of(encoding, value, limits),
                    Kind::TarTexts => {
                        let text = std::str::from_utf8(value).ok();
                        text.map(|text| text.chars().count())
                    }
                    Kind::TarArrays => match shardmill_webdataset::decode("npy", value, limits) {
                        Ok(shardmill_webdataset::Value::Array(array)) => product(&array.shape),
                        _ => None,
                    },
                    _ => Some(value.len()),
                };
                self.distinct.add(xxh3_64(value));
                match length {
                    Some(length) => self.length(length),
                    None => self.special.unreadable += 1,
                }
            }
            Kind::Other => self.distinct.add(xxh3_64(text(array, row).as_bytes())),
        }
    }

    fn int(&mut self, value: i128) {
        self.ints.add(value);
        self.int_sum = self.int_sum.saturating_add(value);
    }

    fn float(&mut self, value: f64) {
        // Zero has two signs, which count as the same value.
        let value = value + 0.0;
        if value.is_nan() {
            self.special.nan += 1;
            self.distinct.add(xxh3_64(&f64::NAN.to_le_bytes()));
            return;
        }
        self.distinct.add(xxh3_64(&value.to_le_bytes()));
        if value == f64::INFINITY {
            self.special.infinity += 1;
        } else if value == f64::NEG_INFINITY {
            self.special.negative_infinity += 1;
        } else {
            self.floats.add(value);
            self.float_sum.add(value);
        }
    }

    fn length(&mut self, length: usize) {
        self.int(i128::try_from(length).unwrap_or(i128::MAX));
    }

    /// Adds the values of the same column of other rows.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.nulls += other.nulls;
        self.special.nan += other.special.nan;
        self.special.infinity += other.special.infinity;
        self.special.negative_infinity += other.special.negative_infinity;
        self.special.unreadable += other.special.unreadable;
        self.distinct.merge(&other.distinct);
        self.ints.merge(&other.ints);
        self.int_sum = self.int_sum.saturating_add(other.int_sum);
        self.floats.merge(&other.floats);
        self.float_sum.merge(&other.float_sum);
    }

    /// Returns the statistics.
    pub(crate) fn finish(self, field: &Field, kind: SourceKind) -> ColumnStats {
        let (count, exact) = self.distinct.count();
        let measured = self.count - self.special.unreadable;
        let mut stats = ColumnStats {
            name: field.name().clone(),
            type_name: type_name(field, kind),
            count: self.count,
            nulls: self.nulls,
            distinct: DistinctCount { count, exact },
            special: self.special,
            measure: self.kind.measure(),
            min: None,
            max: None,
            mean: None,
            histogram: Vec::new(),
        };
        if let Some((low, high)) = self.floats.range() {
            let special = self.special;
            let finite = self.count - special.nan - special.infinity - special.negative_infinity;
            stats.mean = Some(self.float_sum.mean(finite));
            (stats.min, stats.max) = (Some(self.float_number(low)), Some(self.float_number(high)));
            stats.histogram = bins(&self.floats, |index, power| {
                Number::Float(float(index) * power_of_two(power))
            });
        }
        if let Some((low, high)) = self.ints.range() {
            let number = |value| self.number(value);
            (stats.min, stats.max) = (Some(number(low)), Some(number(high)));
            stats.mean = match self.kind {
                Kind::Times => None,
                Kind::Decimals(_) => Some(self.float_sum.mean(measured)),
                _ => Some(divide(self.int_sum, measured)),
            };
            stats.histogram = bins(&self.ints, |index, power| {
                let edge = u32::try_from(power).ok().and_then(|power| {
                    let width = 1_i128.checked_shl(power)?;
                    index.checked_mul(width)
                });
                number(edge.unwrap_or(i128::MAX))
            });
        }
        stats
    }

    /// Returns a value of a column of floats.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the value has the type of the column"
    )]
    fn float_number(&self, value: f64) -> Number {
        match self.data_type {
            DataType::Float16 | DataType::Float32 => Number::Float32(value as f32),
            _ => Number::Float(value),
        }
    }

    /// Returns the number that an integer represents.
    fn number(&self, value: i128) -> Number {
        let shown = match self.kind {
            Kind::Decimals(_) => {
                let array = arrow::array::Decimal128Array::from(vec![value]);
                array
                    .with_data_type(self.data_type.clone())
                    .value_as_string(0)
            }
            Kind::Times => match time(&self.data_type, value) {
                Some(shown) => shown,
                None => return Number::Int(value),
            },
            _ => return Number::Int(value),
        };
        Number::Text(shown)
    }
}

/// Returns an integer as text of a date or time type.
fn time(data_type: &DataType, value: i128) -> Option<String> {
    let values: ScalarBuffer<i64> = vec![i64::try_from(value).ok()?].into();
    let data = ArrayData::builder(DataType::Int64)
        .len(1)
        .add_buffer(values.into_inner())
        .build()
        .ok()?;
    let array = arrow::compute::cast(&make_array(data), data_type).ok()?;
    (!array.is_null(0)).then(|| text(&array, 0))
}

/// Returns the encoding of a column in a dataset, or its type in another source.
pub(crate) fn type_name(field: &Field, kind: SourceKind) -> String {
    match (field.metadata().get(ENCODING_KEY), field.data_type()) {
        (Some(encoding), _) => encoding.clone(),
        (None, data_type) if kind != SourceKind::Mds => data_type.to_string(),
        (None, DataType::Utf8) => "str".to_owned(),
        // The names of numbers are those of Arrow in lower case.
        (None, data_type) => data_type.to_string().to_lowercase(),
    }
}

fn bins<T: Binned>(bins: &Bins<T>, edge: impl Fn(i128, i32) -> Number) -> Vec<Bin> {
    let (power, bins) = bins.bins();
    bins.map(|(index, count)| Bin {
        from: edge(index, power),
        to: edge(index + 1, power),
        count,
    })
    .collect()
}

fn list_length(array: &ArrayRef, row: usize) -> usize {
    match array.data_type() {
        DataType::List(_) => array.as_list::<i32>().value_length(row).unsigned_abs() as usize,
        DataType::LargeList(_) => {
            usize::try_from(array.as_list::<i64>().value_length(row)).unwrap_or(usize::MAX)
        }
        DataType::FixedSizeList(..) => {
            usize::try_from(array.as_fixed_size_list().value_length()).unwrap_or(0)
        }
        DataType::Map(..) => usize::try_from(array.as_map().value_length(row)).unwrap_or(0),
        _ => 0,
    }
}

/// Returns the number of items of an array or of a list of images.
fn items_of(encoding: &Encoding, datum: &[u8], limits: &Limits) -> Option<usize> {
    match shardmill_mds::decode(encoding, datum, limits).ok()? {
        Value::NdArray(array) => product(&array.shape),
        Value::Images(images) => Some(images.len()),
        _ => None,
    }
}

fn product<N: Copy>(shape: &[N]) -> Option<usize>
where
    usize: TryFrom<N>,
{
    shape.iter().try_fold(1_usize, |items, length| {
        items.checked_mul(usize::try_from(*length).ok()?)
    })
}

#[expect(clippy::cast_precision_loss, reason = "a mean is rounded")]
fn divide(sum: i128, count: u64) -> f64 {
    // The whole part is divided exactly, so that only the result is rounded.
    let count = i128::from(count.max(1));
    let (whole, rest) = (sum / count, sum % count);
    whole as f64 + rest as f64 / count as f64
}

#[expect(clippy::cast_precision_loss, reason = "a mean is rounded")]
fn scaled(value: i128, scale: i8) -> f64 {
    value as f64 / 10.0_f64.powi(scale.into())
}

#[expect(clippy::cast_precision_loss, reason = "indexes are below 2^54")]
fn float(index: i128) -> f64 {
    index as f64
}
