//! Turns the features of examples into columns: one value for each row, or a list.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryBuilder, Float32Builder, Int64Builder, ListArray, NullBufferBuilder,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, FieldRef, Fields, SchemaRef};
use shardmill_core::escape;
use shardmill_records::{Feature, FeatureKind, RecordError, Value, example};

/// The error of a record: its bytes, or a feature that differs from its column.
#[derive(Debug)]
pub(crate) enum FeatureError {
    Record(RecordError),
    Feature(String),
    /// A feature that differs from its column, which was inferred from other records.
    Unexamined(String),
}

impl From<RecordError> for FeatureError {
    fn from(error: RecordError) -> Self {
        Self::Record(error)
    }
}

/// Names a feature in a message.
fn about(name: &str, fact: &str) -> String {
    format!("feature `{}` {fact}", escape(name))
}

const fn name_of(kind: FeatureKind) -> &'static str {
    match kind {
        FeatureKind::Bytes => "bytes",
        FeatureKind::Float => "float",
        FeatureKind::Int => "int64",
    }
}

fn differs(name: &str, here: FeatureKind, before: FeatureKind) -> FeatureError {
    let (here, before) = (name_of(here), name_of(before));
    let fact = format!("has {here} values here and {before} values elsewhere");
    FeatureError::Feature(about(name, &fact))
}

/// What records have of one feature.
#[derive(Clone, Debug)]
struct Seen {
    kind: FeatureKind,
    /// The largest number of values in a record.
    max: u64,
    /// The records that have a list, and those whose list is not empty.
    lists: u64,
    filled: u64,
    /// The number of the last record that has the feature.
    last: u64,
}

/// The features of records, by name.
#[derive(Debug, Default)]
pub(crate) struct FeatureShapes {
    features: BTreeMap<String, Seen>,
    pub records: u64,
}

impl Seen {
    /// Returns whether each value of the column is a list. Otherwise, a record without a value is null.
    const fn is_list(&self) -> bool {
        self.max != 1
    }

    const fn values(&self) -> u64 {
        if self.is_list() {
            self.lists
        } else {
            self.filled
        }
    }
}

impl FeatureShapes {
    /// Adds a record.
    pub(crate) fn add(&mut self, record: &[u8]) -> Result<(), FeatureError> {
        self.records += 1;
        for entry in example(record)? {
            let (name, feature) = entry?;
            let mut count = 0;
            feature.visit(|_| count += 1)?;
            let Some(kind) = feature.kind() else { continue };
            let seen = match self.features.get_mut(name) {
                Some(seen) => seen,
                None => self.features.entry(name.to_owned()).or_insert(Seen {
                    kind,
                    max: 0,
                    lists: 0,
                    filled: 0,
                    last: 0,
                }),
            };
            if seen.kind != kind {
                return Err(differs(name, kind, seen.kind));
            }
            if seen.last == self.records {
                return Err(FeatureError::Feature(about(name, "occurs twice")));
            }
            seen.last = self.records;
            seen.max = seen.max.max(count);
            seen.lists += 1;
            seen.filled += u64::from(count > 0);
        }
        Ok(())
    }

    /// Adds the records of another file.
    pub(crate) fn merge(&mut self, other: Self) -> Result<(), FeatureError> {
        self.records += other.records;
        for (name, own) in other.features {
            let Some(seen) = self.features.get_mut(&name) else {
                self.features.insert(name, own);
                continue;
            };
            if seen.kind != own.kind {
                return Err(differs(&name, own.kind, seen.kind));
            }
            seen.max = seen.max.max(own.max);
            seen.lists += own.lists;
            seen.filled += own.filled;
        }
        Ok(())
    }

    /// Returns the columns, sorted by name. `all` says that the records are all there are: then only columns with nulls
    /// are nullable.
    pub(crate) fn fields(&self, all: bool) -> Fields {
        let field = |(name, seen): (&String, &Seen)| {
            let item = match seen.kind {
                FeatureKind::Bytes => DataType::Binary,
                FeatureKind::Float => DataType::Float32,
                FeatureKind::Int => DataType::Int64,
            };
            let data_type = match seen.is_list() {
                true => DataType::new_list(item, true),
                false => item,
            };
            Field::new(name, data_type, !all || seen.values() < self.records)
        };
        self.features.iter().map(field).collect()
    }

    /// Returns the number of nulls of each column.
    pub(crate) fn null_counts(&self) -> impl Iterator<Item = u64> {
        let features = self.features.values();
        features.map(|seen| self.records - seen.values())
    }
}

/// The values of a column.
enum Values {
    Bytes(BinaryBuilder),
    Float(Float32Builder),
    Int(Int64Builder),
}

impl Values {
    fn push(&mut self, value: Value<'_>) {
        match (self, value) {
            (Self::Bytes(values), Value::Bytes(value)) => values.append_value(value),
            (Self::Float(values), Value::Float(value)) => values.append_value(value),
            (Self::Int(values), Value::Int(value)) => values.append_value(value),
            // `ColumnBuilder::push` compares the types.
            _ => {}
        }
    }

    fn push_null(&mut self) {
        match self {
            Self::Bytes(values) => values.append_null(),
            Self::Float(values) => values.append_null(),
            Self::Int(values) => values.append_null(),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Bytes(values) => Arc::new(values.finish()),
            Self::Float(values) => Arc::new(values.finish()),
            Self::Int(values) => Arc::new(values.finish()),
        }
    }
}

/// Builds one column.
struct ColumnBuilder {
    kind: FeatureKind,
    values: Values,
    /// Of a list: the field of its values.
    item: Option<FieldRef>,
    lengths: Vec<usize>,
    valid: NullBufferBuilder,
    rows: usize,
}

impl ColumnBuilder {
    fn new(data_type: &DataType) -> Self {
        let item = match data_type {
            DataType::List(item) => Some(Arc::clone(item)),
            _ => None,
        };
        let (kind, values) = match item.as_ref().map_or(data_type, |item| item.data_type()) {
            DataType::Float32 => (FeatureKind::Float, Values::Float(Float32Builder::new())),
            DataType::Int64 => (FeatureKind::Int, Values::Int(Int64Builder::new())),
            _ => (FeatureKind::Bytes, Values::Bytes(BinaryBuilder::new())),
        };
        Self {
            kind,
            values,
            item,
            lengths: Vec::new(),
            valid: NullBufferBuilder::new(0),
            rows: 0,
        }
    }

    fn push(&mut self, name: &str, feature: &Feature<'_>) -> Result<(), FeatureError> {
        let Some(kind) = feature.kind() else {
            return Ok(());
        };
        if kind != self.kind {
            return Err(differs(name, kind, self.kind));
        }
        let mut count = 0;
        feature.visit(|value| {
            count += 1;
            self.values.push(value);
        })?;
        match (&self.item, count) {
            (None, 0) => return Ok(()),
            (None, 1) => {}
            (None, _) => {
                let fact = format!("has {count} values, but one in the records that were examined");
                return Err(FeatureError::Unexamined(about(name, &fact)));
            }
            (Some(_), _) => {
                self.lengths.push(count);
                self.valid.append_non_null();
            }
        }
        self.rows += 1;
        Ok(())
    }

    /// Fills the column with a null if the record has no value.
    fn end_row(&mut self, rows: usize) {
        if self.rows == rows {
            return;
        }
        match self.item {
            None => self.values.push_null(),
            Some(_) => {
                self.lengths.push(0);
                self.valid.append_null();
            }
        }
        self.rows = rows;
    }

    fn finish(&mut self) -> ArrayRef {
        self.rows = 0;
        let values = self.values.finish();
        let Some(item) = &self.item else {
            return values;
        };
        let offsets = OffsetBuffer::from_lengths(std::mem::take(&mut self.lengths));
        let nulls = self.valid.finish();
        Arc::new(ListArray::new(Arc::clone(item), offsets, values, nulls))
    }
}

/// Builds batches of columns from records.
pub(crate) struct FeatureReader {
    /// For each feature, the index of its builder in `columns`; `None` if the feature is not wanted.
    builder_indices: HashMap<String, Option<usize>>,
    columns: Vec<ColumnBuilder>,
    rows: usize,
}

impl FeatureReader {
    pub(crate) fn new(schema: &SchemaRef, wanted: &[usize]) -> Self {
        let fields = schema.fields().iter().enumerate();
        let builder_indices =
            fields.map(|(at, field)| (field.name().clone(), wanted.binary_search(&at).ok()));
        let columns = wanted.iter();
        let columns = columns.map(|at| ColumnBuilder::new(schema.field(*at).data_type()));
        Self {
            builder_indices: builder_indices.collect(),
            columns: columns.collect(),
            rows: 0,
        }
    }

    /// Adds a record as a row. After an error, the reader must not be used.
    pub(crate) fn add(&mut self, record: &[u8]) -> Result<(), FeatureError> {
        let rows = self.rows + 1;
        for entry in example(record)? {
            let (name, feature) = entry?;
            match self.builder_indices.get(name) {
                Some(None) => {}
                Some(Some(at)) => {
                    let Some(column) = self.columns.get_mut(*at) else {
                        continue;
                    };
                    if column.rows == rows {
                        return Err(FeatureError::Feature(about(name, "occurs twice")));
                    }
                    column.push(name, &feature)?;
                }
                None if feature.kind().is_none() => {}
                None => {
                    let fact = "is in none of the records that were examined";
                    return Err(FeatureError::Unexamined(about(name, fact)));
                }
            }
        }
        for column in &mut self.columns {
            column.end_row(rows);
        }
        self.rows = rows;
        Ok(())
    }

    /// Returns the columns of the rows, and begins anew.
    pub(crate) fn finish(&mut self) -> (Vec<ArrayRef>, usize) {
        let columns = self.columns.iter_mut().map(ColumnBuilder::finish);
        (columns.collect(), std::mem::take(&mut self.rows))
    }
}
