//! Combines the columns of several files into those of one table: it widens types and refuses those that do not fit.
//!
//! The result depends on the set of types that a column has, not on the order of the files: a type is chosen once all
//! files are known.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, TimeUnit};
use arrow::error::ArrowError;

use crate::conform::conform;
use crate::error;
use crate::files::InputFile;
use crate::{ReadAs, SchemaRule, SourceKind, SourceOptions, SourceProblem};
use shardmill_core::{Error, escape, omit_option, shell_word, sql_name};

/// The most schemas that are remembered. A file with a remembered schema costs one comparison.
const KNOWN: usize = 16;

/// Collects the columns of files, one file after the other.
pub(crate) struct Uniter {
    rule: SchemaRule,
    read_as: Vec<ReadAs>,
    columns: Vec<Gathered>,
    by_name: HashMap<String, usize>,
    /// Schemas seen before, and for each of their fields the number of its column.
    known: Vec<(Fields, Arc<[usize]>)>,
    files: usize,
}

/// The state of one column.
struct Gathered {
    /// The field of the first file that has the column.
    field: FieldRef,
    nullable: bool,
    metadata: HashMap<String, String>,
    /// The distinct types, each with the first file that has it.
    types: Vec<(DataType, usize)>,
    /// The first file that lacks the column.
    lacking: Option<usize>,
    /// The last file that has it.
    last: usize,
}

/// The columns of all files, and the reasons why some of them cannot be read.
pub(crate) struct United {
    pub fields: Vec<FieldRef>,
    /// How the columns of files are converted to these fields.
    pub forms: Vec<Form>,
    refusals: Vec<Option<Refusal>>,
}

/// How a column of a file is converted to that of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The type represents every value, or the user cast to it: numbers are rounded by the rules of SQL.
    Cast,
    /// A number that the type cannot represent is an error.
    Exact,
}

impl Form {
    /// Converts a column to the type of the table.
    pub(crate) fn apply(self, array: &ArrayRef, target: &DataType) -> Result<ArrayRef, ArrowError> {
        let formed = conform(array, target)?;
        if self == Self::Exact && array.data_type().is_integer() && target.is_floating() {
            let back = conform(&formed, array.data_type())?;
            if back.to_data() != array.to_data() {
                let reason = format!("an integer that {target} does not have");
                return Err(ArrowError::CastError(reason));
            }
        }
        Ok(formed)
    }
}

/// The reason why a column cannot be read from all files.
enum Refusal {
    Types {
        expected: (DataType, usize),
        found: (DataType, usize),
        hint: String,
    },
    Missing {
        lacking: usize,
        having: usize,
    },
}

impl Uniter {
    pub(crate) fn new(options: &SourceOptions) -> Self {
        Self {
            rule: options.schema.rule,
            read_as: options.schema.read_as.clone(),
            columns: Vec::new(),
            by_name: HashMap::new(),
            known: Vec::new(),
            files: 0,
        }
    }

    /// Adds the columns of the next file. Returns the number of the column that each field is.
    pub(crate) fn add(&mut self, own: &Fields) -> Arc<[usize]> {
        let number = self.files;
        self.files += 1;
        let known = self.known.iter().find(|(fields, _)| fields == own);
        let known = known.map(|(_, column_indices)| Arc::clone(column_indices));
        let column_indices = known.unwrap_or_else(|| {
            let column_indices: Arc<[usize]> =
                own.iter().map(|field| self.gather(field, number)).collect();
            if self.known.len() >= KNOWN {
                self.known.remove(0);
            }
            self.known.push((own.clone(), Arc::clone(&column_indices)));
            column_indices
        });
        for index in column_indices.iter() {
            if let Some(column) = self.columns.get_mut(*index) {
                column.last = number;
            }
        }
        // If this file has fewer columns than are known, it lacks some of them.
        if column_indices.len() < self.columns.len() {
            for column in &mut self.columns {
                if column.last != number && column.lacking.is_none() {
                    column.lacking = Some(number);
                }
            }
        }
        column_indices
    }

    fn gather(&mut self, field: &FieldRef, number: usize) -> usize {
        if let Some(index) = self.by_name.get(field.name()).copied() {
            if let Some(column) = self.columns.get_mut(index) {
                column.nullable |= field.is_nullable();
                let own = field.metadata();
                column
                    .metadata
                    .retain(|key, value| own.get(key) == Some(value));
                if column
                    .types
                    .iter()
                    .all(|(known, _)| known != field.data_type())
                {
                    column.types.push((field.data_type().clone(), number));
                }
            }
            return index;
        }
        let index = self.columns.len();
        self.by_name.insert(field.name().clone(), index);
        self.columns.push(Gathered {
            field: Arc::clone(field),
            nullable: field.is_nullable(),
            metadata: field.metadata().clone(),
            types: vec![(field.data_type().clone(), number)],
            lacking: (number > 0).then_some(0),
            last: number,
        });
        index
    }

    /// Returns the columns of the table, in order of first appearance.
    pub(crate) fn finish(self) -> United {
        let mut fields = Vec::with_capacity(self.columns.len());
        let mut refusals = Vec::with_capacity(self.columns.len());
        let mut forms = Vec::with_capacity(self.columns.len());
        for column in self.columns {
            let read_as = self
                .read_as
                .iter()
                .find(|read_as| read_as.name == *column.field.name());
            let (data_type, mut refusal) = column.resolve(self.rule, read_as);
            if let Some(lacking) = column.lacking
                && refusal.is_none()
                && self.rule != SchemaRule::Union
            {
                let having = column.types.first().map_or(0, |(_, file)| *file);
                refusal = Some(Refusal::Missing { lacking, having });
            }
            let is_null = |(data_type, _): &(DataType, usize)| *data_type == DataType::Null;
            let nullable =
                column.nullable || column.lacking.is_some() || column.types.iter().any(is_null);
            let same = column.field.data_type() == &data_type
                && column.field.is_nullable() == nullable
                && column.field.metadata() == &column.metadata;
            fields.push(match same {
                true => column.field,
                false => {
                    let field = Field::new(column.field.name(), data_type, nullable);
                    Arc::new(field.with_metadata(column.metadata))
                }
            });
            forms.push(match read_as {
                Some(ReadAs { exact: true, .. }) => Form::Exact,
                _ => Form::Cast,
            });
            refusals.push(refusal);
        }
        United {
            fields,
            forms,
            refusals,
        }
    }
}

impl Gathered {
    /// Returns the type of the column in the table. If there is none, returns the type of the first file and the
    /// refusal.
    fn resolve(&self, rule: SchemaRule, read_as: Option<&ReadAs>) -> (DataType, Option<Refusal>) {
        let types: Vec<&DataType> = self.types.iter().map(|(data_type, _)| data_type).collect();
        if let Some(found) = resolve(&types, rule) {
            return (found, None);
        }
        if let Some(read_as) = read_as.filter(|read_as| read_as.reads(&types)) {
            return (read_as.data_type.clone(), None);
        }
        let (expected, found) = self.pair(rule);
        let data_type = expected.0.clone();
        let hint = hint(self.field.name(), &expected.0, &found.0, rule);
        let refusal = Refusal::Types {
            expected,
            found,
            hint,
        };
        (data_type, Some(refusal))
    }

    /// Returns two types that cannot be combined.
    fn pair(&self, rule: SchemaRule) -> ((DataType, usize), (DataType, usize)) {
        let mut types = self.types.iter().enumerate();
        let found = types.find_map(|(at, second)| {
            let mut before = self.types.iter().take(at);
            let first = before.find(|first| resolve(&[&first.0, &second.0], rule).is_none())?;
            Some((first.clone(), second.clone()))
        });
        let ends = || self.types.first().cloned().zip(self.types.last().cloned());
        found
            .or_else(ends)
            .unwrap_or(((DataType::Null, 0), (DataType::Null, 0)))
    }
}

impl United {
    /// Checks that columns can be read from all files.
    pub(crate) fn check(
        &self,
        columns: &[usize],
        kind: SourceKind,
        files: &[InputFile],
    ) -> Result<(), Error> {
        let mut columns = columns.iter();
        match columns.find_map(|column| self.refusal(*column, kind, files)) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn refusal(&self, column: usize, kind: SourceKind, files: &[InputFile]) -> Option<Error> {
        let refusal = self.refusals.get(column)?.as_ref()?;
        let name = self.fields.get(column)?.name();
        let shown = |number: usize| files.get(number).map_or("", |file| file.shown.as_str());
        Some(match refusal {
            Refusal::Types {
                expected: (expected, first),
                found: (found, file),
                hint,
            } => {
                let (name, first) = (escape(name), shown(*first));
                let reason = format!(
                    "column `{name}` is {found}, but {expected} in {}",
                    escape(first)
                );
                SourceProblem::schema_mismatch(kind)
                    .at(shown(*file), reason)
                    .with_hint(hint)
            }
            Refusal::Missing { lacking: 0, having } => {
                error::extra_column(kind, name, [shown(*having), shown(0)])
            }
            Refusal::Missing { lacking, having } => {
                error::lacking_column(kind, name, [shown(*lacking), shown(*having)])
            }
        })
    }
}

impl ReadAs {
    /// Returns whether columns of these types can be read as this type.
    fn reads(&self, types: &[&DataType]) -> bool {
        let mut types = types.iter().filter(|own| ***own != DataType::Null);
        match self.exact {
            true if self.data_type.is_floating() => types.all(|own| is_number(own)),
            true => types.all(|own| own.is_integer()),
            false => types.all(|own| arrow::compute::can_cast_types(own, &self.data_type)),
        }
    }
}

/// Returns a hint for a column whose types cannot be combined.
fn hint(name: &str, expected: &DataType, found: &DataType, rule: SchemaRule) -> String {
    let both = [expected, found];
    if rule == SchemaRule::Strict && resolve(&both, SchemaRule::Widen).is_some() {
        return "omit --schema strict, and the column gets a type that holds the values of all files"
            .to_owned();
    }
    if resolve(&both, SchemaRule::Union).is_some() {
        return "pass --schema union to read fields that a file lacks as null".to_owned();
    }
    let omit = omit_option(name);
    let name = sql_name(name);
    let is_nested = both.iter().any(|data_type| data_type.is_nested());
    let sql = match () {
        () if is_nested => None,
        () if both.iter().all(|data_type| data_type.is_integer()) => Some("BIGINT"),
        () if both.iter().all(|data_type| data_type.is_numeric()) => Some("DOUBLE"),
        () if both
            .iter()
            .all(|own| matches!(own, DataType::Timestamp(..))) =>
        {
            Some("TIMESTAMP")
        }
        () => Some("VARCHAR"),
    };
    let sql = sql.filter(|_| {
        let text = DataType::Utf8;
        let castable = |own: &&DataType| arrow::compute::can_cast_types(own, &text);
        both.iter().all(castable)
    });
    match sql {
        Some(sql) => {
            let list = format!("* EXCEPT ({name}), CAST({name} AS {sql}) AS {name}");
            let list = shell_word(&list);
            format!(
                "say what all files are read as, with --select {list}, or leave the column out, with {omit}"
            )
        }
        None => format!("omit the column, with {omit}, or convert these files apart"),
    }
}

/// Returns the type that holds the values of all these types without loss; `None` if there is none. Types that differ
/// only in storage can always be combined: offset widths, views, names of list items.
pub(crate) fn resolve(types: &[&DataType], rule: SchemaRule) -> Option<DataType> {
    let first = *types.first()?;
    if types.iter().all(|own| *own == first) {
        return Some(first.clone());
    }
    let widens = rule != SchemaRule::Strict;
    // A column without values has no type of its own.
    let typed: Vec<&DataType> = types
        .iter()
        .copied()
        .filter(|own| **own != DataType::Null)
        .collect();
    if typed.len() < types.len() {
        return widens.then(|| resolve(&typed, rule)).flatten();
    }
    let all = |is_one: fn(&DataType) -> bool| types.iter().all(|own| is_one(own));
    match () {
        () if all(DataType::is_string) => Some(widest_text(types)),
        () if all(DataType::is_binary) => binary(types, widens),
        () if all(DataType::is_list) => list(types, rule),
        () if all(|own| matches!(own, DataType::Struct(_))) => structure(types, rule),
        () if all(|own| matches!(own, DataType::Map(..))) => map(types, rule),
        () if !widens => None,
        () if all(is_number) => number(types),
        () if all(|own| own.is_integer() || own.is_decimal()) => decimal(types),
        () if all(|own| matches!(own, DataType::Date32 | DataType::Date64)) => {
            Some(DataType::Date64)
        }
        () => time(types),
    }
}

fn is_number(data_type: &DataType) -> bool {
    data_type.is_integer() || data_type.is_floating()
}

fn widest_text(types: &[&DataType]) -> DataType {
    match () {
        () if types.contains(&&DataType::LargeUtf8) => DataType::LargeUtf8,
        () if types.contains(&&DataType::Utf8View) => DataType::Utf8View,
        () => DataType::Utf8,
    }
}

fn binary(types: &[&DataType], widens: bool) -> Option<DataType> {
    let is_fixed = |own: &&&DataType| matches!(own, DataType::FixedSizeBinary(_));
    if !widens && types.iter().any(|own| is_fixed(&own)) {
        return None;
    }
    Some(match () {
        () if types.contains(&&DataType::LargeBinary) => DataType::LargeBinary,
        () if types.contains(&&DataType::BinaryView) => DataType::BinaryView,
        () => DataType::Binary,
    })
}

/// Returns the smallest number type that represents every value of all these types.
fn number(types: &[&DataType]) -> Option<DataType> {
    use DataType as T;
    let integers = [
        T::Int8,
        T::UInt8,
        T::Int16,
        T::UInt16,
        T::Int32,
        T::UInt32,
        T::Int64,
        T::UInt64,
    ];
    let floats = [T::Float16, T::Float32, T::Float64];
    let candidates = match types.iter().any(|own| own.is_floating()) {
        true => floats.as_slice(),
        false => integers.as_slice(),
    };
    let mut candidates = candidates.iter();
    let found = candidates.find(|wide| types.iter().all(|own| holds(wide, own)));
    found.cloned()
}

/// Returns whether a number type represents every value of another one.
fn holds(wide: &DataType, narrow: &DataType) -> bool {
    // Bits of the magnitude; for a float, those of exact whole numbers.
    let bits = |data_type: &DataType| match data_type {
        DataType::Float16 => 11,
        DataType::Float32 => 24,
        DataType::Float64 => 53,
        other => {
            let bits = other.primitive_width().unwrap_or(0) * 8;
            bits.saturating_sub(usize::from(other.is_signed_integer()))
        }
    };
    let signs = !narrow.is_signed_integer() || wide.is_signed_integer() || wide.is_floating();
    signs && bits(narrow) <= bits(wide) && (wide.is_floating() || !narrow.is_floating())
}

/// Returns a decimal with enough digits before and after the point for all these types.
fn decimal(types: &[&DataType]) -> Option<DataType> {
    let mut whole = 0_i16;
    let mut scale = 0_i8;
    for own in types {
        let (precision, own_scale) = match own {
            DataType::Decimal32(precision, scale)
            | DataType::Decimal64(precision, scale)
            | DataType::Decimal128(precision, scale)
            | DataType::Decimal256(precision, scale) => (*precision, *scale),
            DataType::Int8 | DataType::UInt8 => (3, 0),
            DataType::Int16 | DataType::UInt16 => (5, 0),
            DataType::Int32 | DataType::UInt32 => (10, 0),
            DataType::Int64 => (19, 0),
            DataType::UInt64 => (20, 0),
            _ => return None,
        };
        whole = whole.max(i16::from(precision) - i16::from(own_scale));
        scale = scale.max(own_scale);
    }
    let precision = u8::try_from(whole + i16::from(scale)).ok()?;
    match precision {
        ..=38 => Some(DataType::Decimal128(precision, scale)),
        39..=76 => Some(DataType::Decimal256(precision, scale)),
        77.. => None,
    }
}

/// Returns the type for times of day, timestamps or durations with the finest of their units.
fn time(types: &[&DataType]) -> Option<DataType> {
    const UNITS: [TimeUnit; 4] = [
        TimeUnit::Second,
        TimeUnit::Millisecond,
        TimeUnit::Microsecond,
        TimeUnit::Nanosecond,
    ];
    /// Timestamps with a zone, timestamps without one, times of day and durations cannot be combined.
    fn class(data_type: &DataType) -> Option<(u8, TimeUnit)> {
        Some(match data_type {
            DataType::Timestamp(unit, None) => (0, *unit),
            DataType::Timestamp(unit, Some(_)) => (1, *unit),
            DataType::Time32(unit) | DataType::Time64(unit) => (2, *unit),
            DataType::Duration(unit) => (3, *unit),
            _ => return None,
        })
    }
    let classes: Option<Vec<(u8, TimeUnit)>> = types.iter().map(|own| class(own)).collect();
    let classes = classes?;
    let (first, _) = *classes.first()?;
    if classes.iter().any(|(class, _)| *class != first) {
        return None;
    }
    let has = |unit: &&TimeUnit| classes.iter().any(|(_, own)| own == *unit);
    let unit = *UNITS.iter().rev().find(has)?;
    Some(match first {
        0 => DataType::Timestamp(unit, None),
        1 => {
            let zone = |own: &DataType| match own {
                DataType::Timestamp(_, zone) => zone.clone(),
                _ => None,
            };
            let mut zones = types.iter().map(|own| zone(own));
            let first = zones.next().flatten();
            // The instants are the same in any zone.
            match zones.all(|zone| zone == first) {
                true => DataType::Timestamp(unit, first),
                false => DataType::Timestamp(unit, Some("UTC".into())),
            }
        }
        2 if matches!(unit, TimeUnit::Second | TimeUnit::Millisecond) => DataType::Time32(unit),
        2 => DataType::Time64(unit),
        _ => DataType::Duration(unit),
    })
}

/// Returns a field that combines all these fields. It keeps their name if they agree on it.
fn field(fields: &[&FieldRef], name: &str, rule: SchemaRule, lacking: bool) -> Option<FieldRef> {
    let types: Vec<&DataType> = fields.iter().map(|field| field.data_type()).collect();
    let data_type = resolve(&types, rule)?;
    let first = *fields.first()?;
    let name = match fields.iter().all(|field| field.name() == first.name()) {
        true => first.name(),
        false => name,
    };
    let has_null = |field: &&FieldRef| field.is_nullable() || *field.data_type() == DataType::Null;
    let nullable = lacking || fields.iter().any(has_null);
    let mut metadata = first.metadata().clone();
    metadata.retain(|key, value| {
        fields
            .iter()
            .all(|own| own.metadata().get(key) == Some(value))
    });
    Some(Arc::new(
        Field::new(name, data_type, nullable).with_metadata(metadata),
    ))
}

fn list(types: &[&DataType], rule: SchemaRule) -> Option<DataType> {
    let mut items = Vec::with_capacity(types.len());
    let mut sizes = Vec::with_capacity(types.len());
    let mut is_large = false;
    for own in types {
        match own {
            DataType::List(item) | DataType::ListView(item) => items.push(item),
            DataType::LargeList(item) | DataType::LargeListView(item) => {
                is_large = true;
                items.push(item);
            }
            DataType::FixedSizeList(item, size) => {
                sizes.push(*size);
                items.push(item);
            }
            _ => return None,
        }
    }
    let item = field(&items, "item", rule, false)?;
    if let Some(size) = sizes.first() {
        if sizes.len() == types.len() && sizes.iter().all(|own| own == size) {
            return Some(DataType::FixedSizeList(item, *size));
        }
        if rule == SchemaRule::Strict {
            return None;
        }
    }
    Some(match is_large {
        true => DataType::LargeList(item),
        false => DataType::List(item),
    })
}

fn map(types: &[&DataType], rule: SchemaRule) -> Option<DataType> {
    let mut entries = Vec::with_capacity(types.len());
    let mut sorted = true;
    for own in types {
        let DataType::Map(entry, own_sorted) = own else {
            return None;
        };
        sorted &= own_sorted;
        entries.push(entry);
    }
    // Match keys and values by position, because writers name them differently.
    let child = |position: usize, name: &str| {
        let children: Option<Vec<&FieldRef>> = entries
            .iter()
            .map(|entry| match entry.data_type() {
                DataType::Struct(fields) => fields.get(position),
                _ => None,
            })
            .collect();
        field(&children?, name, rule, false)
    };
    let fields = Fields::from(vec![child(0, "key")?, child(1, "value")?]);
    let entry = Field::new("entries", DataType::Struct(fields), false);
    Some(DataType::Map(Arc::new(entry), sorted))
}

/// Combines structs by the names of their fields. The fields are sorted if their order differs.
fn structure(types: &[&DataType], rule: SchemaRule) -> Option<DataType> {
    let mut orders: Vec<Vec<&str>> = Vec::new();
    let mut fields: BTreeMap<&str, Vec<&FieldRef>> = BTreeMap::new();
    for own in types {
        let DataType::Struct(own) = own else {
            return None;
        };
        let order: Vec<&str> = own.iter().map(|field| field.name().as_str()).collect();
        // Two fields of the same name cannot be distinguished.
        let mut seen = BTreeSet::new();
        if !order.iter().all(|name| seen.insert(*name)) {
            return None;
        }
        for field in own {
            fields.entry(field.name()).or_default().push(field);
        }
        if !orders.contains(&order) {
            orders.push(order);
        }
    }
    let names: Vec<&str> = match orders.as_slice() {
        [one] => one.clone(),
        _ => fields.keys().copied().collect(),
    };
    let mut united = Vec::with_capacity(names.len());
    for name in names {
        let own = fields.get(name)?;
        let lacking = own.len() < types.len();
        if lacking && rule != SchemaRule::Union {
            return None;
        }
        united.push(field(own, name, rule, lacking)?);
    }
    Some(DataType::Struct(Fields::from(united)))
}

/// Checks that a file has the columns of the first one. Columns that it lacks must be nullable.
pub(crate) fn match_fields(
    kind: SourceKind,
    files: &[InputFile],
    number: usize,
    fields: &[FieldRef],
    own: &Fields,
) -> Result<(), Error> {
    let shown = |number: usize| files.get(number).map_or("", |file| file.shown.as_str());
    let lacks = |field: &&FieldRef| own.find(field.name()).is_none() && !field.is_nullable();
    let files = [shown(number), shown(0)];
    if let Some(missing) = fields.iter().find(lacks) {
        return Err(error::lacking_column(kind, missing.name(), files));
    }
    let mut own = own.iter();
    match own.find(|own| !fields.iter().any(|field| field.name() == own.name())) {
        None => Ok(()),
        Some(extra) => Err(error::extra_column(kind, extra.name(), files)),
    }
}
