//! Converts a table's schema: the Arrow types of its columns, and how to find them in data files.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, TimeUnit};
use delta_kernel::schema::{
    ColumnMetadataKey, DataType as DeltaType, MetadataValue, PrimitiveType, StructField, StructType,
};
use delta_kernel::table_features::ColumnMappingMode;

use crate::SourceError;
use crate::source::ENCODING_KEY;

/// How a column is identified in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mapping {
    /// By its physical name, which equals its logical name in tables without column mapping.
    Name,
    /// By its field id.
    Id,
}

/// A column, or a field of a struct.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub field: FieldRef,
    /// Its name in files and in partition values.
    pub physical: String,
    /// Its field id, in tables with column mapping.
    pub id: Option<i64>,
    pub node: Node,
}

/// What a column consists of.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// One value.
    Leaf,
    /// The `void` type: all rows are null, and files do not contain the column.
    Void,
    /// A variant, which is converted to JSON text.
    Variant,
    /// Named fields.
    Struct(Vec<Column>),
    /// The items of a list.
    List(Box<Item>),
    /// The keys and the values of a map.
    Map(Box<Item>, Box<Item>),
}

/// The items of a list, or the keys or values of a map.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub field: FieldRef,
    pub node: Node,
}

/// Returns how a table maps its columns.
pub(crate) const fn mapping(mode: ColumnMappingMode) -> Mapping {
    match mode {
        ColumnMappingMode::Id => Mapping::Id,
        _ => Mapping::Name,
    }
}

/// Returns the columns of a table in the order of its schema.
pub(crate) fn columns(
    table: &str,
    schema: &StructType,
    mode: ColumnMappingMode,
) -> Result<Vec<Column>, SourceError> {
    let maker = Maker { table, mode };
    schema
        .fields()
        .map(|field| {
            let mut column = maker.column(field, field.name())?;
            if matches!(column.node, Node::Variant) {
                let json = [(ENCODING_KEY.to_owned(), "json".to_owned())];
                let field = Field::clone(&column.field).with_metadata(json.into());
                column.field = Arc::new(field);
            }
            Ok(column)
        })
        .collect()
}

struct Maker<'a> {
    table: &'a str,
    mode: ColumnMappingMode,
}

impl Maker<'_> {
    fn column(&self, field: &StructField, path: &str) -> Result<Column, SourceError> {
        let physical = match field.get_config_value(&ColumnMetadataKey::ColumnMappingPhysicalName) {
            Some(MetadataValue::String(name)) if self.mode != ColumnMappingMode::None => name,
            _ => field.name(),
        };
        let (arrow, node) =
            self.node(field.name(), field.data_type(), field.is_nullable(), path)?;
        Ok(Column {
            field: arrow,
            physical: physical.clone(),
            id: field
                .column_mapping_id()
                .filter(|_| self.mode != ColumnMappingMode::None),
            node,
        })
    }

    fn node(
        &self,
        name: &str,
        data_type: &DeltaType,
        nullable: bool,
        path: &str,
    ) -> Result<(FieldRef, Node), SourceError> {
        let plain = |data_type, node| (Arc::new(Field::new(name, data_type, nullable)), node);
        Ok(match data_type {
            DeltaType::Primitive(PrimitiveType::Void) => {
                (Arc::new(Field::new(name, DataType::Null, true)), Node::Void)
            }
            DeltaType::Primitive(primitive) => {
                let arrow = leaf_type(primitive)
                    .ok_or_else(|| self.unsupported(path, &primitive.to_string()))?;
                plain(arrow, Node::Leaf)
            }
            DeltaType::Variant(_) => plain(DataType::Utf8, Node::Variant),
            DeltaType::Struct(inner) => {
                let columns: Vec<Column> = inner
                    .fields()
                    .map(|field| self.column(field, &format!("{path}.{}", field.name())))
                    .collect::<Result<_, _>>()?;
                let fields: Fields = columns
                    .iter()
                    .map(|column| Arc::clone(&column.field))
                    .collect();
                plain(DataType::Struct(fields), Node::Struct(columns))
            }
            DeltaType::Array(list) => {
                let item = self.item(
                    "element",
                    list.element_type(),
                    list.contains_null(),
                    &format!("{path}[]"),
                )?;
                plain(
                    DataType::List(Arc::clone(&item.field)),
                    Node::List(Box::new(item)),
                )
            }
            DeltaType::Map(map) => {
                let key = self.item("key", map.key_type(), false, &format!("{path}.key"))?;
                let value = self.item(
                    "value",
                    map.value_type(),
                    map.value_contains_null(),
                    &format!("{path}.value"),
                )?;
                let entries: Fields = [&key.field, &value.field]
                    .into_iter()
                    .map(Arc::clone)
                    .collect();
                let entry = Field::new("key_value", DataType::Struct(entries), false);
                plain(
                    DataType::Map(Arc::new(entry), false),
                    Node::Map(Box::new(key), Box::new(value)),
                )
            }
            #[expect(
                unreachable_patterns,
                reason = "other features of the kernel have more types"
            )]
            other => return Err(self.unsupported(path, &other.to_string())),
        })
    }

    fn item(
        &self,
        name: &str,
        data_type: &DeltaType,
        nullable: bool,
        path: &str,
    ) -> Result<Item, SourceError> {
        let (field, node) = self.node(name, data_type, nullable, path)?;
        Ok(Item { field, node })
    }

    fn unsupported(&self, path: &str, data_type: &str) -> SourceError {
        SourceError::unsupported_type(self.table, path, data_type)
    }
}

/// Returns the Arrow type of a primitive; `None` if it is not supported.
fn leaf_type(primitive: &PrimitiveType) -> Option<DataType> {
    Some(match primitive {
        PrimitiveType::String => DataType::Utf8,
        PrimitiveType::Long => DataType::Int64,
        PrimitiveType::Integer => DataType::Int32,
        PrimitiveType::Short => DataType::Int16,
        PrimitiveType::Byte => DataType::Int8,
        PrimitiveType::Float => DataType::Float32,
        PrimitiveType::Double => DataType::Float64,
        PrimitiveType::Boolean => DataType::Boolean,
        PrimitiveType::Binary => DataType::Binary,
        PrimitiveType::Date => DataType::Date32,
        PrimitiveType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        PrimitiveType::TimestampNtz => DataType::Timestamp(TimeUnit::Microsecond, None),
        PrimitiveType::Decimal(decimal) => {
            DataType::Decimal128(decimal.precision(), i8::try_from(decimal.scale()).ok()?)
        }
        _ => return None,
    })
}
