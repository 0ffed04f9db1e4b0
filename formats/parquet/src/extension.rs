//! Extension types: the plain Arrow types that their values have in samples.
//!
//! Source: Apache Arrow, `docs/source/format/CanonicalExtensions.rst`; Apache Parquet, `LogicalTypes.md`.

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, BooleanArray, FixedSizeListArray, ListArray, StringArray,
    UInt64Array, make_array,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Int8Type, Int32Type};
use arrow::error::ArrowError;
use parquet::basic::LogicalType;
use parquet::schema::types::{SchemaDescriptor, Type};
use shardmill_core::ENCODING_KEY;

use crate::int96::{change_leaves, with_children};
use crate::variant::variant_to_text;

/// The keys of the metadata of a field that has an extension type.
const NAME_KEY: &str = "ARROW:extension:name";
const METADATA_KEY: &str = "ARROW:extension:metadata";

const UUID: &str = "arrow.uuid";
const JSON: &str = "arrow.json";
const VARIANT: &str = "arrow.parquet.variant";

/// The bytes of a UUID.
const UUID_BYTES: i32 = 16;

/// An extension type whose values have another type in samples. Other extension types are their storage.
enum Extension {
    /// Tensors of one shape, stored as flat lists.
    Tensor(Layout),
    /// Tensors of different shapes, stored as structs of flat lists and shapes. They have this many dimensions.
    Tensors {
        layout: Layout,
        item: FieldRef,
    },
    Uuid,
    Json,
    Bool8,
    Variant,
}

/// How the numbers of a tensor are stored.
struct Layout {
    /// The length of each dimension, as stored; empty if it differs.
    shape: Vec<usize>,
    /// For each dimension of the tensor, its number in the storage.
    order: Vec<usize>,
}

impl Layout {
    /// Parses the metadata of a tensor with this many dimensions.
    fn parse(metadata: &serde_json::Value, shape: Vec<usize>, dimensions: usize) -> Option<Self> {
        let order: Vec<usize> = match metadata.get("permutation") {
            None | Some(serde_json::Value::Null) => (0..dimensions).collect(),
            Some(given) => serde_json::from_value(given.clone()).ok()?,
        };
        let mut sorted = order.clone();
        sorted.sort_unstable();
        sorted
            .into_iter()
            .eq(0..dimensions)
            .then_some(Self { shape, order })
    }

    /// Returns the lengths of the dimensions of a tensor that is stored with this shape.
    fn dims(&self, stored: &[usize]) -> Vec<usize> {
        let dims = self.order.iter().map(|at| stored.get(*at).copied());
        dims.map(Option::unwrap_or_default).collect()
    }

    /// Appends where the numbers of a tensor are stored, in the order of its dimensions. It begins at `start`.
    fn indices(&self, stored: &[usize], start: usize, out: &mut Vec<u64>) {
        let count = stored.iter().product();
        if self.order.is_sorted() {
            out.extend((start..start + count).map(|at| at as u64));
            return;
        }
        let stride = |dimension: usize| stored.iter().skip(dimension + 1).product::<usize>();
        let dims = self.dims(stored);
        for number in 0..count {
            let (mut rest, mut at) = (number, start);
            for (len, dimension) in dims.iter().zip(&self.order).rev() {
                at += rest % len * stride(*dimension);
                rest /= len;
            }
            out.push(at as u64);
        }
    }
}

impl Extension {
    /// Returns the extension type of a field, if it is known and the field has the storage of it.
    fn of(field: &Field) -> Option<Self> {
        let metadata = || serde_json::from_str(field.extension_type_metadata()?).ok();
        Some(match (field.extension_type_name()?, field.data_type()) {
            ("arrow.fixed_shape_tensor", DataType::FixedSizeList(_, len)) => {
                let metadata: serde_json::Value = metadata()?;
                let shape: Vec<usize> =
                    serde_json::from_value(metadata.get("shape")?.clone()).ok()?;
                let count = shape
                    .iter()
                    .try_fold(1_usize, |all, len| all.checked_mul(*len))?;
                if count == 0 || usize::try_from(*len) != Ok(count) || shape.is_empty() {
                    return None;
                }
                let dimensions = shape.len();
                Self::Tensor(Layout::parse(&metadata, shape, dimensions)?)
            }
            ("arrow.variable_shape_tensor", DataType::Struct(fields)) => {
                let metadata = metadata().unwrap_or_default();
                let (_, data) = fields.find("data")?;
                let (_, shape) = fields.find("shape")?;
                let DataType::List(item) = data.data_type() else {
                    return None;
                };
                let DataType::FixedSizeList(lengths, dimensions) = shape.data_type() else {
                    return None;
                };
                let dimensions = usize::try_from(*dimensions)
                    .ok()
                    .filter(|count| *count > 0)?;
                if *lengths.data_type() != DataType::Int32 {
                    return None;
                }
                Self::Tensors {
                    layout: Layout::parse(&metadata, Vec::new(), dimensions)?,
                    item: Arc::clone(item),
                }
            }
            (UUID, DataType::FixedSizeBinary(UUID_BYTES)) => Self::Uuid,
            (JSON, data_type) if data_type.is_string() => Self::Json,
            ("arrow.bool8", DataType::Int8) => Self::Bool8,
            (VARIANT, DataType::Struct(_)) => Self::Variant,
            _ => return None,
        })
    }

    /// Returns the type in samples, given the storage type, and the encoding that the type does not tell.
    fn plain(&self, stored: &DataType) -> (DataType, Option<String>) {
        let json = || Some("json".to_owned());
        match (self, stored) {
            (Self::Tensor(layout), DataType::FixedSizeList(item, _)) => {
                let lists = tensor_types(layout.dims(&layout.shape), item);
                (
                    lists.last().map_or_else(|| stored.clone(), Clone::clone),
                    None,
                )
            }
            (Self::Tensor(_), _) => (stored.clone(), None),
            (Self::Tensors { layout, item }, _) => {
                let number = item.data_type().to_string().to_lowercase();
                let is_number = item.data_type().is_numeric();
                let encoding = is_number.then(|| format!("ndarray:{number}"));
                (list_type(layout.order.len(), item), encoding)
            }
            (Self::Uuid, _) => (DataType::Utf8, None),
            (Self::Json, _) => (stored.clone(), json()),
            (Self::Bool8, _) => (DataType::Boolean, None),
            (Self::Variant, _) => (DataType::Utf8, json()),
        }
    }

    fn apply(&self, array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        let other = || ArrowError::SchemaError("an extension type has another storage".to_owned());
        Ok(match self {
            Self::Tensor(layout) => {
                let tensors = array.as_fixed_size_list_opt().ok_or_else(other)?;
                return layout.nested(tensors);
            }
            Self::Tensors { layout, item } => return layout.ragged(array, item),
            Self::Uuid => {
                let values = array.as_fixed_size_binary_opt().ok_or_else(other)?.iter();
                Arc::new(
                    values
                        .map(|value| value.map(uuid_text))
                        .collect::<StringArray>(),
                )
            }
            Self::Json => Arc::clone(array),
            Self::Bool8 => {
                let values = array.as_primitive_opt::<Int8Type>().ok_or_else(other)?;
                Arc::new(
                    values
                        .iter()
                        .map(|value| value.map(|value| value != 0))
                        .collect::<BooleanArray>(),
                )
            }
            Self::Variant => Arc::new(variant_to_text(array)?),
        })
    }
}

impl Layout {
    /// Returns tensors of one shape as nested lists.
    fn nested(&self, tensors: &FixedSizeListArray) -> Result<ArrayRef, ArrowError> {
        let DataType::FixedSizeList(item, size) = tensors.data_type() else {
            return Ok(Arc::new(tensors.clone()));
        };
        let mut values = Arc::clone(tensors.values());
        if !self.order.is_sorted() {
            let size = usize::try_from(*size).unwrap_or_default();
            let mut indices = Vec::with_capacity(values.len());
            for row in 0..tensors.len() {
                self.indices(&self.shape, row * size, &mut indices);
            }
            values = take(&values, &UInt64Array::from(indices), None)?;
        }
        let lists = tensor_types(self.dims(&self.shape), item);
        let outermost = lists.len();
        for (number, list) in lists.into_iter().enumerate() {
            let DataType::FixedSizeList(item, len) = list else {
                continue;
            };
            let nulls = tensors.nulls().filter(|_| number + 1 == outermost).cloned();
            values = Arc::new(FixedSizeListArray::try_new(item, len, values, nulls)?);
        }
        Ok(values)
    }

    /// Returns tensors of different shapes as nested lists.
    fn ragged(&self, array: &ArrayRef, item: &FieldRef) -> Result<ArrayRef, ArrowError> {
        let wrong = |reason: &str| ArrowError::ParseError(format!("a tensor {reason}"));
        let tensors = array.as_struct();
        let child = |name: &str| {
            tensors
                .column_by_name(name)
                .ok_or_else(|| wrong("lacks a part"))
        };
        let data = child("data")?
            .as_list_opt::<i32>()
            .ok_or_else(|| wrong("has no numbers"))?;
        let shapes = child("shape")?
            .as_fixed_size_list_opt()
            .ok_or_else(|| wrong("has no shape"))?;
        let dimensions = self.order.len();
        let mut indices = Vec::with_capacity(data.values().len());
        // For each level of lists, the length of every list.
        let mut lengths: Vec<Vec<usize>> = vec![Vec::new(); dimensions];
        for row in 0..tensors.len() {
            let mut stored = vec![0; dimensions];
            if tensors.is_valid(row) {
                if data.is_null(row) || shapes.is_null(row) {
                    return Err(wrong("has a null instead of its numbers or its shape"));
                }
                let shape = shapes.value(row);
                let shape = shape.as_primitive::<Int32Type>().iter();
                let shape: Option<Vec<usize>> =
                    shape.map(|len| usize::try_from(len?).ok()).collect();
                stored = shape.ok_or_else(|| wrong("has a length that is negative or null"))?;
                let range = data.value_offsets()[row]..data.value_offsets()[row + 1];
                let count = stored
                    .iter()
                    .try_fold(1_usize, |all, len| all.checked_mul(*len));
                if count != Some(range.len()) {
                    let reason = format!("of shape {stored:?} has {} numbers", range.len());
                    return Err(wrong(&reason));
                }
                self.indices(
                    &stored,
                    usize::try_from(range.start).unwrap_or(0),
                    &mut indices,
                );
            }
            let mut lists = 1;
            for (len, level) in self.dims(&stored).into_iter().zip(&mut lengths) {
                level.extend(std::iter::repeat_n(len, lists));
                lists *= len;
            }
        }
        let mut values = take(data.values(), &UInt64Array::from(indices), None)?;
        for (level, lengths) in lengths.into_iter().enumerate().rev() {
            let DataType::List(item) = list_type(dimensions - level, item) else {
                continue;
            };
            let total: usize = lengths.iter().sum();
            i32::try_from(total)
                .map_err(|_| wrong("column has more than 2^31 numbers in a batch"))?;
            let nulls = tensors.nulls().filter(|_| level == 0).cloned();
            values = Arc::new(ListArray::try_new(
                item,
                OffsetBuffer::from_lengths(lengths),
                values,
                nulls,
            )?);
        }
        Ok(values)
    }
}

/// Returns the types of nested lists of these lengths, the innermost first.
fn tensor_types(dims: Vec<usize>, item: &FieldRef) -> Vec<DataType> {
    let mut item = Arc::clone(item);
    let mut types = Vec::with_capacity(dims.len());
    for len in dims.into_iter().rev() {
        let list = DataType::FixedSizeList(item, i32::try_from(len).unwrap_or(i32::MAX));
        item = Arc::new(Field::new("item", list.clone(), false));
        types.push(list);
    }
    types
}

/// Returns the type of items in lists that are nested `levels` times.
fn list_type(levels: usize, item: &FieldRef) -> DataType {
    let innermost = DataType::List(Arc::clone(item));
    (1..levels).fold(innermost, |list, _| DataType::new_list(list, false))
}

/// Returns a UUID as text, in groups of 8, 4, 4, 4 and 12 hexadecimal digits.
fn uuid_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(36);
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// Returns a field as samples have it: without extension types, at every level.
///
/// Tensors are nested lists of the dimensions that they stand for, UUIDs are text, 8-bit booleans are booleans, and
/// variants are JSON text. JSON text is marked with its encoding.
#[must_use]
pub fn without_extensions(field: &FieldRef) -> FieldRef {
    let (data_type, encoding) = match Extension::of(field) {
        Some(extension) => extension.plain(field.data_type()),
        None => {
            let data_type = with_children(field.data_type(), &mut without_extensions);
            if data_type == *field.data_type() {
                return Arc::clone(field);
            }
            return Arc::new(Field::clone(field).with_data_type(data_type));
        }
    };
    let mut plain = Field::clone(field).with_data_type(data_type);
    plain
        .metadata_mut()
        .retain(|key, _| key != NAME_KEY && key != METADATA_KEY);
    plain
        .metadata_mut()
        .extend(encoding.map(|name| (ENCODING_KEY.to_owned(), name)));
    Arc::new(plain)
}

/// Returns the values of a column as [`without_extensions`] declares them. `field` is the column with its extension
/// types.
///
/// # Errors
///
/// An error of Arrow if a tensor has another number of values than its shape, or a variant is damaged.
pub fn plain_values(array: &ArrayRef, field: &Field) -> Result<ArrayRef, ArrowError> {
    if let Some(extension) = Extension::of(field) {
        return extension.apply(array);
    }
    let plain = with_children(field.data_type(), &mut without_extensions);
    if plain == *field.data_type() {
        return Ok(Arc::clone(array));
    }
    let inner: Vec<&FieldRef> = match field.data_type() {
        DataType::Struct(fields) => fields.iter().collect(),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => vec![item],
        _ => Vec::new(),
    };
    let data = array.to_data();
    let children = data.child_data().iter().zip(inner);
    let children = children.map(|(child, field)| {
        let values = plain_values(&make_array(child.clone()), field)?;
        Ok(values.to_data())
    });
    let children = children.collect::<Result<Vec<_>, ArrowError>>()?;
    let data = data.into_builder().data_type(plain).child_data(children);
    Ok(make_array(data.build()?))
}

/// Returns fields with the extension types that the schema of a Parquet file declares: UUIDs, JSON and variants.
/// `fields` are all columns of the file. They stay as they are if they do not correspond one to one to the leaves.
pub(crate) fn with_logical_types(descr: &SchemaDescriptor, fields: &Fields) -> Fields {
    let of_leaf = |leaf: usize| descr.column(leaf).logical_type_ref().cloned();
    let marked = change_leaves(descr, fields, &mut |leaf, field| {
        let name = match (of_leaf(leaf), field.data_type()) {
            (Some(LogicalType::Uuid), DataType::FixedSizeBinary(UUID_BYTES)) => UUID,
            (Some(LogicalType::Json), data_type) if data_type.is_string() => JSON,
            _ => return Arc::clone(field),
        };
        named(field, name)
    });
    let roots = descr.root_schema().get_fields().iter().zip(&marked);
    roots
        .map(|(root, field)| with_variants(root, field))
        .collect()
}

/// Marks the variants in a column.
fn with_variants(node: &Type, field: &FieldRef) -> FieldRef {
    let Type::GroupType { basic_info, fields } = node else {
        return Arc::clone(field);
    };
    let is_variant = matches!(basic_info.logical_type_ref(), Some(LogicalType::Variant(_)));
    if is_variant && matches!(field.data_type(), DataType::Struct(_)) {
        return named(field, VARIANT);
    }
    // A repeated group lies between a list and its items.
    let repeated = fields.first().map(|node| &**node);
    let inside = match (field.data_type(), repeated) {
        (DataType::Struct(_), _) => fields.as_slice(),
        (DataType::Map(..), _) => fields.get(..1).unwrap_or_default(),
        (_, Some(Type::GroupType { fields: items, .. })) if items.len() == 1 => items.as_slice(),
        _ => return Arc::clone(field),
    };
    let mut inside = inside.iter();
    let data_type = with_children(field.data_type(), &mut |child| match inside.next() {
        Some(node) => with_variants(node, child),
        None => Arc::clone(child),
    });
    Arc::new(Field::clone(field).with_data_type(data_type))
}

/// Returns a field with an extension type, unless it has one.
fn named(field: &FieldRef, name: &str) -> FieldRef {
    if field.extension_type_name().is_some() {
        return Arc::clone(field);
    }
    let mut named = Field::clone(field);
    named
        .metadata_mut()
        .insert(NAME_KEY.to_owned(), name.to_owned());
    Arc::new(named)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use arrow::array::{
        BinaryArray, FixedSizeBinaryArray, Float32Array, Int8Array, Int32Array, StructArray,
    };
    use arrow::buffer::NullBuffer;
    use parquet::schema::parser::parse_message_type;

    use super::*;

    fn field(name: &str, data_type: &DataType, metadata: &str) -> FieldRef {
        let metadata = [(NAME_KEY, name), (METADATA_KEY, metadata)];
        let metadata = metadata.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let field = Field::new("x", data_type.clone(), true);
        Arc::new(field.with_metadata(HashMap::from(metadata)))
    }

    /// Returns the plain values of a column, as JSON lines. Checks that they have the declared type.
    fn plain(array: &ArrayRef, field: &FieldRef) -> Vec<String> {
        let values = plain_values(array, field).unwrap();
        let plain = without_extensions(field);
        assert_eq!(values.data_type(), plain.data_type());
        assert_eq!(plain.extension_type_name(), None);
        let values = arrow::util::display::ArrayFormatter::try_new(
            &values,
            &arrow::util::display::FormatOptions::new().with_null("null"),
        )
        .unwrap();
        (0..array.len())
            .map(|row| values.value(row).to_string())
            .collect()
    }

    fn tensors(len: i32, values: Vec<i32>, nulls: Option<Vec<bool>>) -> ArrayRef {
        let item = Arc::new(Field::new("item", DataType::Int32, true));
        let values = Arc::new(Int32Array::from(values));
        let nulls = nulls.map(NullBuffer::from);
        Arc::new(FixedSizeListArray::try_new(item, len, values, nulls).unwrap())
    }

    #[test]
    fn tensors_of_one_shape_are_nested_lists() {
        let array = tensors(6, (0..18).collect(), Some(vec![true, false, true]));
        let of = |metadata: &str| {
            plain(
                &array,
                &field("arrow.fixed_shape_tensor", array.data_type(), metadata),
            )
        };
        assert_eq!(
            of(r#"{"shape": [2, 3]}"#),
            [
                "[[0, 1, 2], [3, 4, 5]]",
                "null",
                "[[12, 13, 14], [15, 16, 17]]"
            ]
        );
        assert_eq!(
            of(r#"{"shape": [2, 3], "permutation": [1, 0], "dim_names": ["a", "b"]}"#),
            [
                "[[0, 3], [1, 4], [2, 5]]",
                "null",
                "[[12, 15], [13, 16], [14, 17]]"
            ]
        );
        assert_eq!(of(r#"{"shape": [6]}"#)[0], "[0, 1, 2, 3, 4, 5]");
        // Three dimensions: the last one of the storage comes first.
        let cube = tensors(8, (0..8).collect(), None);
        let metadata = r#"{"shape": [2, 2, 2], "permutation": [2, 0, 1]}"#;
        let cube_field = field("arrow.fixed_shape_tensor", cube.data_type(), metadata);
        assert_eq!(
            plain(&cube, &cube_field),
            ["[[[0, 2], [4, 6]], [[1, 3], [5, 7]]]"]
        );
        // A part of a column.
        let part = array.slice(2, 1);
        let shape = field(
            "arrow.fixed_shape_tensor",
            part.data_type(),
            r#"{"shape": [3, 2]}"#,
        );
        assert_eq!(plain(&part, &shape), ["[[12, 13], [14, 15], [16, 17]]"]);
        // Metadata that does not fit the storage says nothing.
        for other in [
            "",
            "{}",
            r#"{"shape": [2, 2]}"#,
            r#"{"shape": [2, 3], "permutation": [0, 0]}"#,
        ] {
            let field = field("arrow.fixed_shape_tensor", array.data_type(), other);
            assert_eq!(without_extensions(&field), field, "{other}");
        }
    }

    #[test]
    fn tensors_of_different_shapes_are_nested_lists() {
        let shape = |rows: Vec<i32>| -> ArrayRef { tensors(2, rows, None) };
        let lists = |lengths: [usize; 3], values: Vec<f32>| -> ArrayRef {
            let item = Arc::new(Field::new("item", DataType::Float32, true));
            let values = Arc::new(Float32Array::from(values));
            Arc::new(ListArray::new(
                item,
                OffsetBuffer::from_lengths(lengths),
                values,
                None,
            ))
        };
        let array = |lengths, shapes, nulls: Option<Vec<bool>>| -> ArrayRef {
            let (data, shape) = (lists(lengths, vec![1.0, 2.0, 3.0, 4.0, 5.0]), shape(shapes));
            let fields = Fields::from(vec![
                Field::new("data", data.data_type().clone(), true),
                Field::new("shape", shape.data_type().clone(), true),
            ]);
            let nulls = nulls.map(NullBuffer::from);
            Arc::new(StructArray::new(fields, vec![data, shape], nulls))
        };
        let name = "arrow.variable_shape_tensor";
        let found = array(
            [4, 0, 1],
            vec![2, 2, 0, 7, 1, 1],
            Some(vec![true, false, true]),
        );
        let declared = field(name, found.data_type(), "");
        assert_eq!(
            plain(&found, &declared),
            ["[[1.0, 2.0], [3.0, 4.0]]", "null", "[[5.0]]"]
        );
        let encoding = without_extensions(&declared)
            .metadata()
            .get(ENCODING_KEY)
            .cloned();
        assert_eq!(encoding.as_deref(), Some("ndarray:float32"));
        let turned = field(name, found.data_type(), r#"{"permutation": [1, 0]}"#);
        assert_eq!(plain(&found, &turned)[0], "[[1.0, 3.0], [2.0, 4.0]]");
        for shapes in [vec![2, 2, 0, 7, 1, 2], vec![-2, -2, 0, 7, 1, 1]] {
            plain_values(&array([4, 0, 1], shapes, None), &declared).unwrap_err();
        }
    }

    #[test]
    fn uuids_booleans_and_json_have_plain_types() {
        let bytes = *b"\x55\x0e\x84\x00\xe2\x9b\x41\xd4\xa7\x16\x44\x66\x55\x44\x00\x00";
        let ids: ArrayRef = Arc::new(
            FixedSizeBinaryArray::try_from_sparse_iter_with_size(
                [Some(bytes), None].into_iter(),
                16,
            )
            .unwrap(),
        );
        assert_eq!(
            plain(&ids, &field(UUID, ids.data_type(), "")),
            ["550e8400-e29b-41d4-a716-446655440000", "null"]
        );
        let flags: ArrayRef = Arc::new(Int8Array::from(vec![Some(0), Some(-1), Some(7), None]));
        let declared = field("arrow.bool8", flags.data_type(), "");
        assert_eq!(plain(&flags, &declared), ["false", "true", "true", "null"]);
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["{}"]));
        let declared = field(JSON, texts.data_type(), "");
        assert_eq!(plain(&texts, &declared), ["{}"]);
        assert_eq!(
            without_extensions(&declared).metadata()[ENCODING_KEY],
            "json"
        );
        // An unknown type is its storage.
        let other = field("arrow.opaque", flags.data_type(), "{}");
        assert_eq!(without_extensions(&other), other);
    }

    #[test]
    fn extension_types_inside_of_others_have_plain_types() {
        let ids: ArrayRef = Arc::new(
            FixedSizeBinaryArray::try_from_iter(
                [[0x11_u8; 16], [0x22; 16], [0x33; 16]].into_iter(),
            )
            .unwrap(),
        );
        let id = field(UUID, ids.data_type(), "");
        let fields = Fields::from(vec![Arc::clone(&id)]);
        let structs: ArrayRef = Arc::new(StructArray::new(fields.clone(), vec![ids], None));
        let item = Arc::new(Field::new("item", DataType::Struct(fields), true));
        let offsets = OffsetBuffer::from_lengths([2, 0, 1]);
        let lists: ArrayRef = Arc::new(ListArray::new(Arc::clone(&item), offsets, structs, None));
        let column = Arc::new(Field::new("x", lists.data_type().clone(), true));
        let text = |digit: &str| {
            let part = |len| digit.repeat(len);
            format!(
                "{{x: {}-{}-{}-{}-{}}}",
                part(8),
                part(4),
                part(4),
                part(4),
                part(12)
            )
        };
        let expected = [
            format!("[{}, {}]", text("1"), text("2")),
            "[]".to_owned(),
            format!("[{}]", text("3")),
        ];
        assert_eq!(plain(&lists, &column), expected);
        assert_eq!(plain(&lists.slice(1, 2), &column), expected[1..]);
    }

    /// Returns a schema in which all groups with metadata are variants, which the text of a schema cannot say.
    fn as_variants(node: &Type) -> Type {
        let Type::GroupType { basic_info, fields } = node else {
            return node.clone();
        };
        let is_variant = fields[0].name() == "metadata";
        let variant = LogicalType::Variant(parquet::basic::VariantType {
            specification_version: Some(1),
        });
        let own = basic_info.logical_type_ref().cloned();
        let mut group = Type::group_type_builder(node.name())
            .with_logical_type(is_variant.then_some(variant).or(own))
            .with_fields(
                fields
                    .iter()
                    .map(|field| Arc::new(as_variants(field)))
                    .collect(),
            );
        if basic_info.has_repetition() {
            group = group.with_repetition(basic_info.repetition());
        }
        group.build().unwrap()
    }

    #[test]
    fn schema_of_a_file_declares_extension_types() {
        let schema = parse_message_type(
            "message m {
                optional fixed_len_byte_array(16) id (UUID);
                optional fixed_len_byte_array(16) raw;
                optional group l (LIST) { repeated group list { optional binary element (JSON); } }
                required group v { required binary metadata; optional binary value; }
                required group vs (LIST) {
                    repeated group list {
                        required group element { required binary metadata; optional binary value; }
                    }
                }
                required group m (MAP) {
                    repeated group key_value {
                        required binary key (STRING);
                        required group value { required binary metadata; optional binary value; }
                    }
                }
            }",
        );
        let descr = SchemaDescriptor::new(Arc::new(as_variants(&schema.unwrap())));
        let found = parquet::arrow::parquet_to_arrow_schema(&descr, None).unwrap();
        let found = with_logical_types(&descr, found.fields());
        let json = |data_type: &DataType| match data_type {
            DataType::List(item) => item.metadata().get(ENCODING_KEY).cloned(),
            DataType::Map(entries, _) => match entries.data_type() {
                DataType::Struct(fields) => fields[1].metadata().get(ENCODING_KEY).cloned(),
                _ => None,
            },
            _ => None,
        };
        let plain: Vec<FieldRef> = found.iter().map(without_extensions).collect();
        assert_eq!(plain[0].data_type(), &DataType::Utf8);
        assert_eq!(plain[1].data_type(), &DataType::FixedSizeBinary(16));
        assert_eq!(
            (plain[3].data_type(), &*plain[3].metadata()[ENCODING_KEY]),
            (&DataType::Utf8, "json")
        );
        for nested in [2, 4, 5] {
            assert_eq!(
                json(plain[nested].data_type()).as_deref(),
                Some("json"),
                "{nested}"
            );
        }
    }

    #[test]
    fn variants_are_json_text() {
        // The number 5, and null.
        let columns: Vec<ArrayRef> = vec![
            Arc::new(BinaryArray::from(vec![&[1_u8, 0, 0][..]; 2])),
            Arc::new(BinaryArray::from(vec![Some(&[0x0c_u8, 5][..]), None])),
        ];
        let fields = Fields::from(vec![
            Field::new("metadata", DataType::Binary, false),
            Field::new("value", DataType::Binary, true),
        ]);
        let nulls = Some(NullBuffer::from(vec![true, false]));
        let variants: ArrayRef = Arc::new(StructArray::new(fields, columns, nulls));
        let declared = field(VARIANT, variants.data_type(), "");
        assert_eq!(plain(&variants, &declared), ["5", "null"]);
    }
}
