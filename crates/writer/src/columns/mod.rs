//! Encodes Arrow columns as values of shards.

mod cell_text;
mod encoded_column;
mod field;
mod hint;
mod json;
mod list;
mod number;
mod table;
mod target;
mod text;
mod types;

use arrow::array::{Array, ArrayRef};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef};
use shardmill_core::{Error, Format, Limits, omit_option};
use shardmill_mds::{DType, Encoding, ImageKind, TextEncoding, encode_jpeg_array, encode_list};

pub use encoded_column::Offsets;
pub(crate) use encoded_column::{EncodedColumn, first_null};
pub use field::default_field;
pub use hint::NullHint;
pub use list::leaf_type;
pub use number::number_type;
pub(crate) use table::add_sizes;
pub use table::number_lists;
pub use target::{FieldEncoding, ParseFieldEncodingError, Target};
pub use types::{ENCODED_KEY, ENCODED_TEXT, ENCODING_KEY, EXPRESSION_KEY, encoded_as};

use crate::error::{RowError, ValueReason, type_unsupported};
use crate::form::ShardFormat;
use encoded_column::checked;
use field::FieldEncoder;
use table::TableColumn;
use types::{is_integer_text, is_temporal, metadata, stored_type};

/// Encodes one column of the batches as one column of the shards. It is compiled once and used for each batch.
#[derive(Clone, Debug)]
pub struct ColumnEncoder {
    name: String,
    source: usize,
    target: Target,
    encoded: bool,
    integer_text: bool,
    stores_null: bool,
    omits_null: bool,
    field: Option<FieldEncoder>,
    table: Option<TableColumn>,
    null_hint: NullHint,
    limits: Limits,
}

/// Returns the default target of a column.
///
/// # Errors
///
/// `Unsupported` if the format cannot store the type.
pub fn default_target(field: &Field, format: ShardFormat) -> Result<Target, Error> {
    match format {
        ShardFormat::Mds => default_encoding(field).map(Target::Mds),
        ShardFormat::Webdataset => {
            default_field(field).map(|(_, encoding)| Target::Field(encoding))
        }
        ShardFormat::Parquet => Ok(Target::Table(table::default_type(field))),
    }
}

fn default_encoding(field: &Field) -> Result<Encoding, Error> {
    if let Some(name) = metadata(field, ENCODING_KEY)
        && let Ok(encoding) = name.parse()
    {
        return Ok(encoding);
    }
    mds_encoding(&stored_type(field.data_type())).ok_or_else(|| {
        let hint = format!("omit the column with {}", omit_option(field.name()));
        type_unsupported(field.name(), field.data_type(), Format::Mds)
            .with_hint(hint::with_obstacle(field, &hint))
    })
}

fn mds_encoding(data_type: &DataType) -> Option<Encoding> {
    if let Some(dtype) = number::dtype_of(data_type) {
        return Some(Encoding::Number(dtype));
    }
    Some(match data_type {
        other if other.is_string() || is_temporal(other) => Encoding::Str,
        other if other.is_binary() => Encoding::Bytes,
        DataType::Boolean => Encoding::Number(DType::U8),
        DataType::Null => Encoding::Json,
        DataType::Decimal128(..) | DataType::Decimal256(..) => Encoding::StrDecimal,
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => {
            let (leaf, levels) = list::leaf_type(data_type);
            match (number::dtype_of(leaf), list::static_shape(data_type)) {
                (Some(dtype), Some(shape)) => Encoding::NdArray {
                    dtype: Some(dtype),
                    shape: Some(shape),
                },
                (Some(dtype), None) if levels == 1 => Encoding::NdArray {
                    dtype: Some(dtype),
                    shape: None,
                },
                _ if json::is_representable(data_type) => Encoding::Json,
                _ => return None,
            }
        }
        DataType::Struct(_) | DataType::Map(..) if json::is_representable(data_type) => {
            Encoding::Json
        }
        _ => return None,
    })
}

/// Returns whether the column can store a null as a value of its own.
///
/// Nested values, and columns with only nulls, become JSON, where a null is `null`. Texts and files that already are
/// JSON cannot: there, a null is a missing value.
#[must_use]
pub fn stores_null(field: &Field, target: &Target) -> bool {
    let data_type = stored_type(field.data_type());
    match target {
        Target::Table(_) => true,
        Target::Mds(Encoding::Json) => !data_type.is_string() && !data_type.is_binary(),
        // A number is valid JSON, but readers do not expect it to be null.
        Target::Field(FieldEncoding::Json)
        | Target::Json(TextEncoding::Str)
        | Target::Xsv(TextEncoding::Str) => data_type.is_nested() || data_type == DataType::Null,
        _ => false,
    }
}

/// Returns whether the values of a column already are JSON, as text or as bytes. Then the text `null` is its null.
#[must_use]
pub fn is_json_text(field: &Field, target: &Target) -> bool {
    let is_json = matches!(
        target,
        Target::Mds(Encoding::Json) | Target::Field(FieldEncoding::Json)
    );
    let data_type = stored_type(field.data_type());
    let is_encoded = encoded_as(field).is_some();
    is_json && (data_type.is_string() || data_type.is_binary() && !is_encoded)
}

impl ColumnEncoder {
    /// Compiles the encoding of column `source` of the batches, described by `field`, as `target`. The name of `field`
    /// is the name of the column in the shards; see [`default_field`].
    ///
    /// # Errors
    ///
    /// `Unsupported` if values of this type cannot be stored as `target`, or if the extension
    /// of a field has another meaning.
    pub fn compile(
        source: usize,
        field: &Field,
        target: Target,
        limits: &Limits,
    ) -> Result<Self, Error> {
        let encoded = matches!(&target, Target::Mds(encoding) if encoded_as(field).as_ref() == Some(encoding));
        let integer_text = is_integer_text(field);
        let data_type = &if integer_text {
            DataType::Int64
        } else {
            stored_type(field.data_type())
        };
        let storable = match &target {
            Target::Field(encoding) => field::is_storable(field, data_type, *encoding),
            Target::Table(data_type) => table::is_storable(field, data_type),
            Target::Mds(encoding) if data_type.is_binary() => {
                encoded || takes_bytes(encoding, encoded_as(field).as_ref())
            }
            _ => encoded || is_storable(data_type, &target),
        };
        if !storable {
            let hint = hint::for_target(field, data_type, &target);
            return Err(
                type_unsupported(field.name(), field.data_type(), target.name()).with_hint(hint),
            );
        }
        if let Target::Field(encoding) = &target {
            field::check_extension(field, data_type, *encoding)?;
        }
        let stores_null = stores_null(field, &target);
        let encoder = match &target {
            Target::Field(encoding) => Some(FieldEncoder::new(field, data_type, *encoding)),
            _ => None,
        };
        let table = match &target {
            Target::Table(data_type) => Some(TableColumn::new(field, data_type)),
            _ => None,
        };
        Ok(Self {
            name: field.name().clone(),
            source,
            encoded,
            integer_text,
            stores_null,
            omits_null: false,
            field: encoder,
            table,
            null_hint: NullHint::new(field.name(), data_type, &target),
            target,
            limits: limits.clone(),
        })
    }

    /// Leaves nulls of this column out of the sample. Only tar files support this.
    #[must_use]
    pub fn omitting_nulls(mut self) -> Self {
        self.omits_null = self.field.is_some() && !self.stores_null;
        self
    }

    /// Returns whether a null is left out of its sample; see [`omitting_nulls`](Self::omitting_nulls).
    #[must_use]
    pub const fn omits_null(&self) -> bool {
        self.omits_null
    }

    /// Returns the name of the column.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the form in which values are stored.
    #[must_use]
    pub const fn target(&self) -> &Target {
        &self.target
    }

    /// Returns whether values differ in length, so that the sample must contain the length of each.
    pub(crate) fn is_variable(&self) -> bool {
        match &self.target {
            Target::Mds(encoding) => encoding.fixed_size().is_none(),
            Target::Json(_) | Target::Xsv(_) | Target::Field(_) | Target::Table(_) => true,
        }
    }

    /// Returns the position of the column in the batches.
    #[must_use]
    pub const fn source(&self) -> usize {
        self.source
    }

    /// Returns whether the column can store a null as a value of its own, so that no null policy is needed; see
    /// [`stores_null`].
    #[must_use]
    pub const fn stores_null(&self) -> bool {
        self.stores_null
    }

    /// Returns the options that handle nulls of the column.
    #[must_use]
    pub fn null_hint(&self) -> &NullHint {
        &self.null_hint
    }

    /// Encodes the values of one batch. Nulls must have been replaced, unless [`Self::stores_null`].
    pub(crate) fn prepare(&self, array: &ArrayRef) -> Result<EncodedColumn, RowError> {
        let stored = stored_type(array.data_type());
        let array = match *array.data_type() == stored {
            true => array,
            false => &cast(array, &stored).map_err(|_| self.unfit(array))?,
        };
        if self.integer_text {
            return self.prepare_as(&self.parsed(array)?);
        }
        self.prepare_as(array)
    }

    fn prepare_as(&self, array: &ArrayRef) -> Result<EncodedColumn, RowError> {
        match &self.target {
            Target::Mds(encoding) if self.encoded => self.encoded(array, encoding),
            Target::Mds(encoding) => self.mds(array, encoding),
            Target::Json(encoding) => text::json_values(array, *encoding),
            Target::Xsv(encoding) => text::plain_values(array, *encoding),
            Target::Field(_) => match &self.field {
                Some(field) => field.prepare(array, &self.name, &self.limits),
                None => Err(self.unfit(array)),
            },
            Target::Table(_) => Err(self.unfit(array)),
        }
    }

    /// Returns the column of a table as the file declares it. Returns `None` in other formats.
    #[must_use]
    pub fn table_field(&self) -> Option<&FieldRef> {
        self.table.as_ref().map(|column| &column.field)
    }

    /// Returns the column of a table as batches hold it.
    pub(crate) fn stored_field(&self) -> Option<Field> {
        self.table.as_ref().map(TableColumn::stored_field)
    }

    /// Converts the values of one batch to the type of the column of a table.
    pub(crate) fn convert(&self, array: &ArrayRef) -> Result<ArrayRef, RowError> {
        match &self.table {
            Some(column) => column.convert(array, &self.limits),
            None => Err(self.unfit(array)),
        }
    }

    /// Checks that the column can store a value, an array of one element.
    ///
    /// # Errors
    ///
    /// Returns the reason why it cannot.
    pub fn check(&self, value: &ArrayRef) -> Result<(), ValueReason> {
        let stored = match &self.table {
            Some(_) => self.convert(value).map(|_| ()),
            None => self.prepare(value).map(|_| ()),
        };
        stored.map_err(|error| error.reason)
    }

    /// Parses texts of integers into numbers.
    fn parsed(&self, array: &ArrayRef) -> Result<ArrayRef, RowError> {
        let numbers = cast(array, &DataType::Int64).map_err(|_| self.unfit(array))?;
        match (0..numbers.len()).find(|row| numbers.is_null(*row) && !array.is_null(*row)) {
            None => Ok(numbers),
            Some(row) => {
                let value = EncodedColumn::texts(array)
                    .map(|texts| String::from_utf8_lossy(texts.value(row).1).into_owned())
                    .unwrap_or_default();
                Err(RowError {
                    row,
                    reason: ValueReason::Range {
                        value,
                        encoding: self.target.name(),
                    },
                })
            }
        }
    }

    fn mds(&self, array: &ArrayRef, encoding: &Encoding) -> Result<EncodedColumn, RowError> {
        let name = encoding.to_string();
        match (encoding, EncodedColumn::slices(array)) {
            (Encoding::Number(dtype), _) => self.number(array, *dtype),
            (Encoding::Int, _) => self.number(array, DType::I64),
            (Encoding::Bytes, Some(values)) => Ok(values),
            (Encoding::Str, Some(values)) if array.data_type().is_string() => Ok(values),
            (_, Some(values)) => checked(values, array, encoding, &self.limits),
            (Encoding::Str, None) => text::rendered(array, &name),
            (Encoding::Json, None) => text::json_texts(array, &name),
            (Encoding::StrInt | Encoding::StrDecimal, None) => text::number_texts(array, &name),
            (Encoding::StrFloat, None) => text::float_texts(array, &name),
            (Encoding::NdArray { dtype, shape }, None) => {
                list::prepare(array, encoding, &name, *dtype, shape.as_deref())
            }
            (Encoding::JpegArray { .. } | Encoding::List(_), None) => self.framed(array, encoding),
            (
                Encoding::Bytes | Encoding::Image(_) | Encoding::Pkl | Encoding::Registered { .. },
                None,
            ) => Err(self.unfit(array)),
        }
    }

    fn number(&self, array: &ArrayRef, dtype: DType) -> Result<EncodedColumn, RowError> {
        Ok(EncodedColumn::Fixed {
            width: number::width(dtype),
            bytes: number::to_bytes(array, dtype, &self.target.name())?,
        })
    }

    /// Passes through bytes that already are values of the encoding. Only the length of fixed-size values is checked.
    fn encoded(&self, array: &ArrayRef, encoding: &Encoding) -> Result<EncodedColumn, RowError> {
        let dtype = number::dtype_of(array.data_type());
        let number = || self.number(array, dtype?).ok();
        let encoded_column = EncodedColumn::slices(array).or_else(number);
        let encoded_column = encoded_column.ok_or_else(|| self.unfit(array))?;
        if let Some(expected) = encoding.fixed_size() {
            for row in 0..array.len() {
                let found = encoded_column.len(row);
                if u64::try_from(found) != Ok(expected) {
                    let reason = ValueReason::Length {
                        found,
                        expected,
                        encoding: encoding.to_string(),
                    };
                    return Err(RowError { row, reason });
                }
            }
        }
        Ok(encoded_column)
    }

    /// Encodes a list of files as one value.
    fn framed(&self, array: &ArrayRef, encoding: &Encoding) -> Result<EncodedColumn, RowError> {
        let (bounds, values) = Offsets::of_lists(array).ok_or_else(|| self.unfit(array))?;
        let files = EncodedColumn::slices(values).ok_or_else(|| self.unfit(array))?;
        let framed = EncodedColumn::try_render(array.len(), |row, out| {
            let items = bounds.range(row);
            if items.clone().any(|at| values.is_null(at)) {
                return Err(RowError::at(row)(ValueReason::NullInside));
            }
            let files: Vec<&[u8]> = items.map(|at| files.value(at).1).collect();
            let framed = match encoding {
                Encoding::JpegArray { .. } => encode_jpeg_array(&files, out),
                _ => encode_list(&files, out),
            };
            framed.map_err(RowError::at(row))
        })?;
        checked(framed, array, encoding, &self.limits)
    }

    fn unfit(&self, array: &ArrayRef) -> RowError {
        RowError::unfit(array.data_type(), self.target.name())
    }
}

/// Returns whether bytes from outside can be values of the encoding: files, texts, and arrays without a header. `now`
/// is the encoding that the bytes already have in MDS shards. Numbers are excluded, because files contain them as
/// digits.
fn takes_bytes(encoding: &Encoding, now: Option<&Encoding>) -> bool {
    match encoding {
        Encoding::Bytes
        | Encoding::Str
        | Encoding::Json
        | Encoding::Pkl
        | Encoding::Image(_)
        | Encoding::JpegArray { .. }
        | Encoding::List(_) => true,
        Encoding::NdArray { .. } => {
            encoding.fixed_size().is_some() && now.is_none_or(|now| *now == Encoding::Bytes)
        }
        Encoding::Int
        | Encoding::Number(_)
        | Encoding::StrInt
        | Encoding::StrFloat
        | Encoding::StrDecimal
        | Encoding::Registered { .. } => false,
    }
}

/// Returns whether [`ColumnEncoder::prepare`] supports this type and target. For bytes, see [`takes_bytes`].
fn is_storable(data_type: &DataType, target: &Target) -> bool {
    let encoding = match target {
        Target::Json(encoding) | Target::Xsv(encoding) => {
            return match encoding {
                TextEncoding::Str => data_type.is_string() || text::is_representable(data_type),
                TextEncoding::Int => data_type.is_integer() || *data_type == DataType::Boolean,
                TextEncoding::Float => data_type.is_integer() || data_type.is_floating(),
            };
        }
        Target::Mds(encoding) => encoding,
        Target::Field(_) | Target::Table(_) => return false,
    };
    match encoding {
        Encoding::Bytes => data_type.is_string(),
        Encoding::Str => data_type.is_string() || is_temporal(data_type),
        Encoding::Int => number::converts(data_type, DType::I64),
        Encoding::Number(dtype) => number::converts(data_type, *dtype),
        Encoding::NdArray { dtype, .. } => {
            let (leaf, levels) = list::leaf_type(data_type);
            levels > 0
                && match dtype {
                    Some(dtype) => number::converts(leaf, *dtype),
                    None => number::dtype_of(leaf).is_some(),
                }
        }
        Encoding::StrInt => match data_type {
            DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => *scale == 0,
            other => other.is_string() || other.is_integer(),
        },
        Encoding::StrFloat => data_type.is_string() || data_type.is_floating(),
        Encoding::StrDecimal => match data_type {
            DataType::Decimal128(..) | DataType::Decimal256(..) => true,
            other => other.is_string() || other.is_integer(),
        },
        Encoding::Json => json::is_representable(data_type),
        Encoding::Pkl | Encoding::Image(_) | Encoding::Registered { .. } => false,
        Encoding::JpegArray { .. }
        | Encoding::List(ImageKind::Pil | ImageKind::Jpeg | ImageKind::Png) => {
            let (leaf, levels) = list::leaf_type(data_type);
            levels == 1 && leaf.is_binary()
        }
    }
}

#[cfg(test)]
mod tests;
