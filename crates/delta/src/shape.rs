//! Maps the columns of a data file to those of the table: which leaves to read, and how to convert them.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, ListArray, MapArray, StructArray, new_null_array,
};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{
    DataType, Field, FieldRef, Fields, TimeUnit, TimestampMicrosecondType, TimestampNanosecondType,
};
use arrow::error::ArrowError;
use delta_kernel::schema::{DataType as DeltaType, StructField, StructType};
use delta_kernel::table_features::ColumnMappingMode;
use parquet::arrow::{PARQUET_FIELD_ID_META_KEY, parquet_to_arrow_schema};
use parquet::file::metadata::ParquetMetaData;

use super::schema::{Column, is_void};
use crate::error::Problem;
use shardmill_core::catch_panic::attempt;
use shardmill_core::{Error, escape};
use shardmill_parquet::{in_microseconds, leaf_count, leaves_of, variant_to_text};

/// How a decoded column is converted.
#[derive(Clone, Debug)]
pub enum Shape {
    /// A value that is cast to this type.
    Leaf(DataType),
    /// A variant that is converted to JSON.
    Variant,
    /// A struct: its fields, and for each the child of the decoded struct that it is made from.
    Struct(Fields, Vec<Option<(usize, Shape)>>),
    /// A list of these items.
    List(FieldRef, Box<Shape>),
    /// A map of these entries.
    Map(FieldRef, Box<Shape>, Box<Shape>),
}

/// A column of the table that was found in a file.
#[derive(Clone, Debug)]
pub struct Found {
    /// The number of the top-level column in the file.
    pub root: usize,
    /// The leaves of the file that are read for it, ascending.
    pub leaves: Vec<usize>,
    /// How the decoded column is converted.
    pub shape: Shape,
}

/// Where the values of a column of the table come from in a file.
#[derive(Clone, Debug)]
pub enum ColumnOrigin {
    /// A column of the file.
    Stored(Found),
    /// The same value in all rows, as an array of one value.
    Constant(ArrayRef),
    /// Nulls, because the file is older than the column.
    Missing,
}

/// Returns the columns of a data file as the decoder should return them. An embedded Arrow schema is ignored, because
/// the table defines the types.
pub fn file_fields(file: &str, metadata: &ParquetMetaData) -> Result<Fields, Error> {
    let descr = metadata.file_metadata().schema_descr();
    let footer = |reason: String| Problem::Footer.at(file, format!("footer: {reason}"));
    let roots = descr.root_schema().get_fields();
    let mut seen = BTreeSet::new();
    if let Some(twice) = roots.iter().find(|field| !seen.insert(field.name())) {
        let reason = format!("has two columns called `{}`", escape(twice.name()));
        return Err(Problem::DuplicateColumn.at(file, reason));
    }
    let schema = attempt(|| parquet_to_arrow_schema(descr, None)).map_err(footer)?;
    if leaves_of(schema.fields()) != descr.num_columns() || schema.fields().len() != roots.len() {
        return Err(footer("its schema has groups without columns".to_owned()));
    }
    Ok(in_microseconds(descr, schema.fields()))
}

fn field_id(field: &Field) -> Option<i64> {
    field
        .metadata()
        .get(PARQUET_FIELD_ID_META_KEY)?
        .parse()
        .ok()
}

/// Returns whether any of these columns, or a column nested in them, has a field id.
pub(crate) fn has_ids(fields: &Fields) -> bool {
    fields.iter().any(|field| {
        field_id(field).is_some()
            || match field.data_type() {
                DataType::Struct(fields) => has_ids(fields),
                DataType::List(item) | DataType::Map(item, _) => {
                    has_ids(&Fields::from(vec![Arc::clone(item)]))
                }
                _ => false,
            }
    })
}

/// Finds columns in one file.
pub(crate) struct Finder<'a> {
    pub file: &'a str,
    pub mode: ColumnMappingMode,
}

impl Finder<'_> {
    /// Finds a column in the file; `None` if the file lacks it.
    pub(crate) fn find(&self, column: &Column, fields: &Fields) -> Result<Option<Found>, Error> {
        let mut leaves = Vec::new();
        let (definition, wanted) = (&column.definition, &column.field);
        let found = self.child((definition, wanted), fields, 0, wanted.name(), &mut leaves)?;
        leaves.sort_unstable();
        Ok(found.map(|(root, shape)| Found {
            root,
            leaves,
            shape,
        }))
    }

    fn wrong<T>(&self, path: &str, reason: String) -> Result<T, Error> {
        Err(Problem::Column.at(self.file, format!("column `{}`: {}", escape(path), reason)))
    }

    /// Finds a column among fields; `first` is the number of their first leaf.
    fn child(
        &self,
        (column, wanted): (&StructField, &Field),
        fields: &Fields,
        first: usize,
        path: &str,
        leaves: &mut Vec<usize>,
    ) -> Result<Option<(usize, Shape)>, Error> {
        if is_void(column) {
            return Ok(None);
        }
        let by_id = self.mode == ColumnMappingMode::Id;
        let (physical, id) = (column.physical_name(self.mode), column.column_mapping_id());
        let is_it = |field: &Field| match by_id {
            true => id.is_some() && field_id(field) == id,
            false => field.name() == physical,
        };
        let mut found = self.only_field(fields, first, path, is_it)?;
        if found.is_none() && !by_id {
            // Column names of a table are case-insensitive, and its writers may differ in case.
            let name = physical.to_lowercase();
            found = self.only_field(fields, first, path, |field| {
                field.name().to_lowercase() == name
            })?;
        }
        let Some((number, leaf, field)) = found else {
            if wanted.is_nullable() {
                return Ok(None);
            }
            return self.wrong(
                path,
                "the file lacks it, and in the table it has no nulls".to_owned(),
            );
        };
        let types = (column.data_type(), wanted.data_type());
        let shape = self.node(types, field.data_type(), leaf, path, leaves)?;
        Ok(Some((number, shape)))
    }

    /// Returns the only field that `is_it` accepts: its number, the number of its first leaf, and the field itself.
    fn only_field<'f>(
        &self,
        fields: &'f Fields,
        first: usize,
        path: &str,
        is_it: impl Fn(&Field) -> bool,
    ) -> Result<Option<(usize, usize, &'f FieldRef)>, Error> {
        let mut found = None;
        let mut leaf = first;
        for (number, field) in fields.iter().enumerate() {
            if is_it(field) {
                if found.is_some() {
                    return self.wrong(path, "the file has it twice".to_owned());
                }
                found = Some((number, leaf, field));
            }
            leaf += leaf_count(field.data_type());
        }
        Ok(found)
    }

    /// Returns how a field of a file becomes a column of a type, which is given as that of the table and of the batches.
    fn node(
        &self,
        (node, wanted): (&DeltaType, &DataType),
        own: &DataType,
        first: usize,
        path: &str,
        leaves: &mut Vec<usize>,
    ) -> Result<Shape, Error> {
        match (node, wanted, own) {
            (DeltaType::Primitive(_), wanted, own) if becomes(own, wanted) => {
                leaves.push(first);
                Ok(Shape::Leaf(wanted.clone()))
            }
            (DeltaType::Variant(_), _, DataType::Struct(fields)) => {
                if fields.find("metadata").is_none() {
                    return self.wrong(
                        path,
                        "is a struct without the metadata of a variant".to_owned(),
                    );
                }
                leaves.extend(first..first + leaf_count(own));
                Ok(Shape::Variant)
            }
            (DeltaType::Struct(columns), DataType::Struct(wanted), DataType::Struct(fields)) => {
                self.structure((columns, wanted), fields, first, path, leaves)
            }
            (DeltaType::Array(list), DataType::List(item), DataType::List(own)) => {
                let (types, path) = ((list.element_type(), item.data_type()), format!("{path}[]"));
                let shape = self.node(types, own.data_type(), first, &path, leaves)?;
                Ok(Shape::List(Arc::clone(item), Box::new(shape)))
            }
            (DeltaType::Map(map), DataType::Map(entry, _), DataType::Map(own, _)) => {
                let Some(((key, value), (own_key, own_value))) = entries(entry).zip(entries(own))
                else {
                    return self.wrong(path, "is a map without values".to_owned());
                };
                let (types, key_path) = ((map.key_type(), key), format!("{path}.key"));
                let key = self.node(types, own_key, first, &key_path, leaves)?;
                let first = first + leaf_count(own_key);
                let (types, value_path) = ((map.value_type(), value), format!("{path}.value"));
                let value = self.node(types, own_value, first, &value_path, leaves)?;
                Ok(Shape::Map(
                    Arc::clone(entry),
                    Box::new(key),
                    Box::new(value),
                ))
            }
            _ => self.wrong(
                path,
                format!("is {own} in the file, which is not a form of {wanted}"),
            ),
        }
    }

    fn structure(
        &self,
        (columns, wanted): (&StructType, &Fields),
        fields: &Fields,
        first: usize,
        path: &str,
        leaves: &mut Vec<usize>,
    ) -> Result<Shape, Error> {
        let before = leaves.len();
        let mut children = Vec::with_capacity(wanted.len());
        for (column, wanted) in columns.fields().zip(wanted) {
            let path = format!("{path}.{}", column.name());
            children.push(self.child((column, wanted), fields, first, &path, leaves)?);
        }
        if leaves.len() == before {
            // Any leaf of a struct shows whether the struct itself is null.
            leaves.push(first);
        }
        // The decoder omits children of which no leaf is read.
        let mut delivered = Vec::with_capacity(fields.len());
        let mut leaf = first;
        let mut count = 0;
        for field in fields {
            let end = leaf + leaf_count(field.data_type());
            delivered.push(count);
            let read = leaves
                .iter()
                .skip(before)
                .any(|own| (leaf..end).contains(own));
            count += usize::from(read);
            leaf = end;
        }
        for (index, _) in children.iter_mut().flatten() {
            *index = delivered.get(*index).copied().unwrap_or(usize::MAX);
        }
        Ok(Shape::Struct(wanted.clone(), children))
    }
}

/// Returns the types of the keys and values of a map.
fn entries(entry: &Field) -> Option<(&DataType, &DataType)> {
    match entry.data_type() {
        DataType::Struct(fields) => match fields.as_ref() {
            [key, value] => Some((key.data_type(), value.data_type())),
            _ => None,
        },
        _ => None,
    }
}

/// Returns whether the file's type can be converted to the table's type. It is the same type, another way to store it,
/// or one that the table was widened from.
fn becomes(own: &DataType, wanted: &DataType) -> bool {
    use DataType as T;
    if own == wanted {
        return true;
    }
    match (own, wanted) {
        (T::Int8, T::Int16 | T::Int32 | T::Int64)
        | (T::Int16, T::Int32 | T::Int64)
        | (T::Int32, T::Int64)
        | (T::Int8 | T::Int16 | T::Int32, T::Float64)
        | (T::Float32, T::Float64)
        | (T::Date32, T::Timestamp(TimeUnit::Microsecond, None))
        // Some writers do not annotate 32-bit integers as 8 or 16 bits.
        | (T::Int32, T::Int8 | T::Int16)
        // Old writers do not annotate byte arrays as text.
        | (T::Binary, T::Utf8)
        | (T::Utf8 | T::FixedSizeBinary(_), T::Binary)
        | (
            T::Timestamp(TimeUnit::Millisecond | TimeUnit::Microsecond | TimeUnit::Nanosecond, _),
            T::Timestamp(TimeUnit::Microsecond, _),
        ) => true,
        (T::Int8 | T::Int16 | T::Int32 | T::Int64, T::Decimal128(precision, scale)) => {
            own_digits(own) <= i16::from(*precision) - i16::from(*scale)
        }
        (T::Decimal128(p, s), T::Decimal128(precision, scale)) => {
            scale >= s
                && i16::from(*precision) - i16::from(*scale) >= i16::from(*p) - i16::from(*s)
        }
        _ => false,
    }
}

/// Returns the most decimal digits of an integer type.
const fn own_digits(data_type: &DataType) -> i16 {
    match data_type {
        DataType::Int8 => 3,
        DataType::Int16 => 5,
        DataType::Int32 => 10,
        _ => 19,
    }
}

impl Shape {
    /// Converts a decoded column to the column of the table.
    pub fn apply(&self, array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        Ok(match self {
            Self::Leaf(wanted) => return leaf(array, wanted),
            Self::Variant => Arc::new(variant_to_text(array)?),
            Self::Struct(fields, children) => {
                let from = expect(array.as_struct_opt(), "struct")?;
                let columns = children.iter().zip(fields);
                let columns = columns.map(|(child, field)| match child {
                    Some((index, shape)) => {
                        shape.apply(expect(from.columns().get(*index), "child")?)
                    }
                    None => Ok(new_null_array(field.data_type(), from.len())),
                });
                let columns = columns.collect::<Result<_, ArrowError>>()?;
                let (fields, nulls) = (fields.clone(), from.nulls().cloned());
                Arc::new(StructArray::try_new_with_length(
                    fields,
                    columns,
                    nulls,
                    from.len(),
                )?)
            }
            Self::List(item, shape) => {
                let from = expect(array.as_list_opt::<i32>(), "list")?;
                Arc::new(ListArray::try_new(
                    Arc::clone(item),
                    from.offsets().clone(),
                    shape.apply(from.values())?,
                    from.nulls().cloned(),
                )?)
            }
            Self::Map(entry, key, value) => {
                let from = expect(array.as_map_opt(), "map")?;
                let DataType::Struct(fields) = entry.data_type() else {
                    return expect(None, "map");
                };
                let entries = StructArray::try_new(
                    fields.clone(),
                    vec![key.apply(from.keys())?, value.apply(from.values())?],
                    None,
                )?;
                Arc::new(MapArray::try_new(
                    Arc::clone(entry),
                    from.offsets().clone(),
                    entries,
                    from.nulls().cloned(),
                    false,
                )?)
            }
        })
    }
}

fn expect<T>(found: Option<T>, what: &str) -> Result<T, ArrowError> {
    found.ok_or_else(|| ArrowError::SchemaError(format!("the decoder delivered no {what}")))
}

fn leaf(array: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, ArrowError> {
    if array.data_type() == wanted {
        return Ok(Arc::clone(array));
    }
    // A cast rounds towards 1970; times before it must round down as well.
    if let (DataType::Timestamp(TimeUnit::Nanosecond, _), DataType::Timestamp(_, zone)) =
        (array.data_type(), wanted)
    {
        let nanoseconds = expect(array.as_primitive_opt::<TimestampNanosecondType>(), "time")?;
        let microseconds =
            nanoseconds.unary::<_, TimestampMicrosecondType>(|at| at.div_euclid(1000));
        return Ok(Arc::new(microseconds.with_timezone_opt(zone.clone())));
    }
    let strict = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    if let DataType::Timestamp(TimeUnit::Microsecond, zone) = wanted
        && let Some(stored) = array.as_primitive_opt::<TimestampMicrosecondType>()
    {
        // The table, not the file, decides whether these are instants or wall clock times.
        return Ok(Arc::new(stored.clone().with_timezone_opt(zone.clone())));
    }
    if let DataType::Timestamp(TimeUnit::Millisecond, _) = array.data_type() {
        let plain = cast_with_options(
            array,
            &DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            &strict,
        )?;
        return leaf(&plain, wanted);
    }
    cast_with_options(array, wanted, &strict)
}
