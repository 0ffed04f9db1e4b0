//! What JSON values have in common: the Arrow type that holds them all.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// The shape of the values seen so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Nothing but nulls.
    #[default]
    Unknown,
    Bool,
    /// Whole numbers.
    Whole(Whole),
    Float,
    Text,
    List(Box<Seen>),
    Object(Object),
}

/// What is known of whole numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Whole {
    /// One is below zero.
    negative: bool,
    /// One is beyond `i64`.
    large: bool,
    /// The line of the first that 64 bits do not hold. Among fractions it is one of them.
    beyond: Option<u64>,
}

/// A shape and whether there are nulls among its values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub shape: Shape,
    pub nulls: bool,
}

/// Fields by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Object {
    pub fields: BTreeMap<String, Member>,
    /// How many objects were seen.
    pub objects: u64,
}

/// A field of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Member {
    pub shape: Shape,
    /// In how many objects it has a value that is not null.
    pub values: u64,
}

/// No float below it in size stands for a whole number beyond 64 bits.
const TWO_POW_63: f64 = 9_223_372_036_854_775_808.0;

impl Shape {
    const fn name(&self) -> &'static str {
        match self {
            Self::Unknown => "null",
            Self::Bool => "a boolean",
            Self::Whole(_) | Self::Float => "a number",
            Self::Text => "text",
            Self::List(_) => "a list",
            Self::Object(_) => "an object",
        }
    }

    /// Makes room for the values of another shape.
    ///
    /// # Errors
    ///
    /// The names of two shapes that no type holds both of, with the path of the field where they meet.
    pub(crate) fn merge(&mut self, other: Self) -> Result<(), String> {
        match (&mut *self, other) {
            (_, Self::Unknown) => Ok(()),
            (Self::Unknown, other) => {
                *self = other;
                Ok(())
            }
            (Self::Bool, Self::Bool) | (Self::Text, Self::Text) | (Self::Float, Self::Float) => {
                Ok(())
            }
            (Self::Whole(whole), Self::Whole(more)) => {
                whole.negative |= more.negative;
                whole.large |= more.large;
                whole.beyond = whole.beyond.or(more.beyond);
                if whole.negative && whole.large {
                    return Err(
                        ": whole numbers below zero and beyond 9223372036854775807 share no type"
                            .to_owned(),
                    );
                }
                Ok(())
            }
            (Self::Float | Self::Whole(_), Self::Float | Self::Whole(_)) => {
                *self = Self::Float;
                Ok(())
            }
            (Self::List(seen), Self::List(more)) => {
                seen.nulls |= more.nulls;
                seen.shape
                    .merge(more.shape)
                    .map_err(|error| behind("[]", &error))
            }
            (Self::Object(object), Self::Object(more)) => object.merge(more),
            (own, other) => Err(format!(
                ": {} here, and {} before",
                other.name(),
                own.name()
            )),
        }
    }

    /// The line and the path of a whole number that no type of the column holds.
    fn beyond(&self) -> Option<(u64, String)> {
        match self {
            Self::Whole(whole) => whole.beyond.map(|line| (line, String::new())),
            Self::List(seen) => {
                let (line, path) = seen.shape.beyond()?;
                Some((line, format!("[]{path}")))
            }
            Self::Object(object) => {
                let (line, path) = object.beyond()?;
                Some((line, format!(".{path}")))
            }
            Self::Unknown | Self::Bool | Self::Float | Self::Text => None,
        }
    }

    /// The type that holds all values.
    pub(crate) fn data_type(&self) -> DataType {
        match self {
            // Nothing is known of it; text holds whatever may come.
            Self::Unknown | Self::Text => DataType::Utf8,
            Self::Bool => DataType::Boolean,
            Self::Whole(whole) if whole.large => DataType::UInt64,
            Self::Whole(_) => DataType::Int64,
            Self::Float => DataType::Float64,
            Self::List(seen) => {
                let item = Field::new_list_field(
                    seen.shape.data_type(),
                    seen.nulls || seen.shape == Self::Unknown,
                );
                DataType::List(Arc::new(item))
            }
            Self::Object(object) => DataType::Struct(object.fields()),
        }
    }
}

impl Object {
    /// Makes room for other objects.
    ///
    /// # Errors
    ///
    /// As [`Shape::merge`].
    pub(crate) fn merge(&mut self, other: Self) -> Result<(), String> {
        self.objects += other.objects;
        for (name, member) in other.fields {
            let shown = shardmill_core::escape(&name).into_owned();
            let own = self.fields.entry(name).or_default();
            own.values += member.values;
            own.shape
                .merge(member.shape)
                .map_err(|error| behind(&shown, &error))?;
        }
        Ok(())
    }

    /// The line and the path of a whole number that no type of its column holds.
    pub(crate) fn beyond(&self) -> Option<(u64, String)> {
        self.fields.iter().find_map(|(name, member)| {
            let (line, path) = member.shape.beyond()?;
            Some((line, format!("{}{path}", shardmill_core::escape(name))))
        })
    }

    /// The fields sorted by name; nullable where a value is missing or null.
    pub(crate) fn fields(&self) -> Fields {
        let field = |(name, member): (&String, &Member)| {
            Field::new(name, member.shape.data_type(), member.values < self.objects)
        };
        self.fields.iter().map(field).collect()
    }
}

/// An error about what is in a field, with the name of the field in front of the path that it begins with.
fn behind(name: &str, error: &str) -> String {
    let dot = if error.starts_with([':', '[']) {
        ""
    } else {
        "."
    };
    format!("{name}{dot}{error}")
}

/// Reads the shape of one JSON object, which stands in a line of that number.
///
/// # Errors
///
/// What is wrong with the text, without its line.
pub(crate) fn shape_of_line(line: &[u8], number: u64) -> Result<Object, String> {
    let numbers = Numbers {
        line: number,
        ..Numbers::default()
    };
    let mut shape = shape_of(line, &numbers)?;
    if numbers.wide.get() {
        // The parser gives a whole number beyond 64 bits as a float; only the text tells it from 1e20.
        let numbers = Numbers {
            line: number,
            beyond: whole_beyond_64_bits(line),
            ..Numbers::default()
        };
        shape = shape_of(line, &numbers)?;
    }
    match shape {
        Shape::Object(object) => Ok(object),
        other => Err(format!("is {}, not an object", other.name())),
    }
}

fn shape_of(line: &[u8], numbers: &Numbers) -> Result<Shape, String> {
    let text = |error: serde_json::Error| {
        let whole = error.to_string();
        // The line is the caller's; what serde_json counts is always line 1.
        whole
            .split(" at line ")
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    let mut reader = serde_json::Deserializer::from_slice(line);
    let shape = Seed(numbers)
        .deserialize(&mut reader)
        .map_err(|error| numbers.apart.take().unwrap_or_else(|| text(error)))?;
    reader.end().map_err(text)?;
    Ok(shape)
}

/// Which numbers of a line that parses, counted from 0, are whole and beyond 64 bits.
fn whole_beyond_64_bits(line: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    let (mut at, mut number) = (0, 0);
    while let Some(byte) = line.get(at) {
        let rest = line.get(at..).unwrap_or_default();
        at += match byte {
            b'"' => {
                let mut escaped = true;
                let ends = |byte: &u8| {
                    let end = *byte == b'"' && !escaped;
                    escaped = *byte == b'\\' && !escaped;
                    end
                };
                // `escaped` starts as true: the opening quote ends nothing.
                rest.iter().position(ends).map_or(rest.len(), |end| end + 1)
            }
            b'-' | b'0'..=b'9' => {
                let of_number =
                    |byte: &u8| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
                let count = rest.iter().take_while(|byte| of_number(byte)).count();
                let text = str::from_utf8(rest.get(..count).unwrap_or_default()).unwrap_or("");
                let whole = !text.contains(['.', 'e', 'E']);
                if whole && text.parse::<i64>().is_err() && text.parse::<u64>().is_err() {
                    found.push(number);
                }
                number += 1;
                count
            }
            _ => 1,
        };
    }
    found
}

/// The numbers of a line, as they are read, and what is wrong with its lists.
#[derive(Default)]
struct Numbers {
    line: u64,
    /// How many were read.
    read: Cell<usize>,
    /// Whether one is so large that it may be a whole number beyond 64 bits.
    wide: Cell<bool>,
    /// Which ones are.
    beyond: Vec<usize>,
    /// Elements of a list that have no type in common, and where the list is.
    apart: RefCell<Option<String>>,
}

impl Numbers {
    /// Says one level further up where values are that have no type in common, if there are any.
    fn beneath(&self, path: impl FnOnce(&str) -> String) {
        let mut apart = self.apart.borrow_mut();
        if let Some(found) = apart.as_mut() {
            *found = path(found);
        }
    }

    /// Counts a number; true where it is whole and beyond 64 bits.
    fn next(&self) -> bool {
        let number = self.read.replace(self.read.get() + 1);
        self.beyond.binary_search(&number).is_ok()
    }
}

#[derive(Clone, Copy)]
struct Seed<'a>(&'a Numbers);

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Shape;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Shape, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Shape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Shape, E> {
        Ok(Shape::Bool)
    }

    fn visit_i64<E>(self, value: i64) -> Result<Shape, E> {
        self.0.next();
        Ok(Shape::Whole(Whole {
            negative: value < 0,
            ..Whole::default()
        }))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Shape, E> {
        self.0.next();
        Ok(Shape::Whole(Whole {
            large: i64::try_from(value).is_err(),
            ..Whole::default()
        }))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Shape, E> {
        if value.abs() >= TWO_POW_63 {
            self.0.wide.set(true);
        }
        if self.0.next() {
            return Ok(Shape::Whole(Whole {
                beyond: Some(self.0.line),
                ..Whole::default()
            }));
        }
        Ok(Shape::Float)
    }

    fn visit_str<E>(self, _: &str) -> Result<Shape, E> {
        Ok(Shape::Text)
    }

    fn visit_unit<E>(self) -> Result<Shape, E> {
        Ok(Shape::Unknown)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Shape, A::Error> {
        let mut seen = Seen::default();
        let within = |error: &str| behind("[]", error);
        while let Some(shape) = access
            .next_element_seed(self)
            .inspect_err(|_| self.0.beneath(within))?
        {
            seen.nulls |= shape == Shape::Unknown;
            seen.shape.merge(shape).map_err(|error| {
                self.0.apart.replace(Some(within(&error)));
                A::Error::custom(error)
            })?;
        }
        Ok(Shape::List(Box::new(seen)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Shape, A::Error> {
        let mut object = Object {
            objects: 1,
            ..Object::default()
        };
        while let Some(name) = access.next_key::<String>()? {
            let shape = access.next_value_seed(self).inspect_err(|_| {
                self.0
                    .beneath(|path| behind(&shardmill_core::escape(&name), path));
            })?;
            match object.fields.entry(name) {
                Entry::Vacant(entry) => {
                    let values = u64::from(shape != Shape::Unknown);
                    entry.insert(Member { shape, values });
                }
                Entry::Occupied(entry) => {
                    let name = shardmill_core::escape(entry.key()).into_owned();
                    return Err(A::Error::custom(format!("has the key `{name}` twice")));
                }
            }
        }
        Ok(Shape::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[&str]) -> Result<Object, String> {
        let mut all = Object::default();
        for (number, line) in (1..).zip(lines) {
            all.merge(shape_of_line(line.as_bytes(), number)?)?;
        }
        Ok(all)
    }

    fn types(lines: &[&str]) -> Vec<String> {
        let fields = of(lines).unwrap().fields();
        let show = |field: &Arc<Field>| {
            format!(
                "{}: {}{}",
                field.name(),
                field.data_type(),
                if field.is_nullable() { "?" } else { "" }
            )
        };
        fields.iter().map(show).collect()
    }

    #[test]
    fn one_type_holds_all_values() {
        assert_eq!(
            types(&[
                r#"{"b": 1, "a": true, "s": "x"}"#,
                r#"{"a": false, "b": 2.5, "s": null}"#
            ]),
            ["a: Boolean", "b: Float64", "s: Utf8?"]
        );
        assert_eq!(
            types(&[r#"{"a": 1}"#, r#"{"b": null}"#]),
            ["a: Int64?", "b: Utf8?"]
        );
        assert_eq!(
            types(&[r#"{"a": 18446744073709551615}"#, r#"{"a": 1}"#]),
            ["a: UInt64"]
        );
        let nested = of(&[r#"{"a": {"x": [1, null]}}"#, r#"{"a": {"y": [], "x": []}}"#])
            .unwrap()
            .fields();
        let DataType::Struct(inner) = nested[0].data_type() else {
            panic!("{nested:?}")
        };
        assert_eq!(
            inner[0].data_type(),
            &DataType::new_list(DataType::Int64, true)
        );
        assert!(!inner[0].is_nullable() && inner[1].is_nullable());
    }

    #[test]
    fn a_whole_number_beyond_64_bits_is_found_unless_it_is_among_fractions() {
        let beyond = |lines: &[&str]| of(lines).unwrap().beyond();
        let most = r#"{"a": 18446744073709551615, "b": -9223372036854775808}"#;
        assert_eq!(beyond(&[most]), None);
        for (line, path) in [
            (r#"{"a": 18446744073709551616}"#, "a"),
            (r#"{"a": -9223372036854775809}"#, "a"),
            (
                r#"{"b": 1e300, "a": {"x": [1, 99999999999999999999]}}"#,
                "a.x[]",
            ),
            (r#"{"b": "9\"", "c": 1e20, "a": 99999999999999999999}"#, "a"),
        ] {
            assert_eq!(beyond(&["{}", line]), Some((2, path.to_owned())), "{line}");
        }
        assert_eq!(
            beyond(&[r#"{"a": 1e20, "b": "99999999999999999999"}"#]),
            None
        );
        let fractions = &[r#"{"a": 100000000000000000000}"#, r#"{"a": 0.5}"#];
        assert_eq!(beyond(fractions), None);
        assert_eq!(types(fractions), ["a: Float64"]);
    }

    #[test]
    fn what_has_no_common_type_is_named_with_its_path() {
        for (lines, reason) in [
            (
                &[r#"{"a": 1}"#, r#"{"a": "x"}"#][..],
                "a: text here, and a number before",
            ),
            (
                &[r#"{"a": {"b": [1]}}"#, r#"{"a": {"b": [[1]]}}"#],
                "a.b[]: a list here, and a number before",
            ),
            (
                &[r#"{"a": [1, "x"]}"#],
                "a[]: text here, and a number before",
            ),
            (
                &[r#"{"a": {"b": [[{"c": [0]}, {"c": 1}]]}}"#],
                "a.b[][].c: a number here, and a list before",
            ),
            (
                &[r#"{"a": {"b": [1, {"c": 1, "c": 2}]}}"#],
                "has the key `c` twice",
            ),
            (&[r#"{"a": 1, "a": 2}"#], "has the key `a` twice"),
            (&["[1]"], "is a list, not an object"),
            (&["{"], "EOF while parsing an object"),
            (&["{} x"], "trailing characters"),
            (
                &[r#"{"a": 18446744073709551615}"#, r#"{"a": -1}"#],
                "a: whole numbers below zero and beyond 9223372036854775807 share no type",
            ),
        ] {
            assert_eq!(of(lines).unwrap_err(), reason);
        }
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(5000), "]".repeat(5000));
        assert!(
            shape_of_line(deep.as_bytes(), 1)
                .unwrap_err()
                .contains("recursion limit")
        );
    }
}
