//! What JSON values have in common: the Arrow type that holds them all.

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
    /// Whole numbers; whether one is below zero, and whether one is beyond `i64`.
    Whole {
        negative: bool,
        large: bool,
    },
    Float,
    Text,
    List(Box<Seen>),
    Object(Object),
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

impl Shape {
    const fn name(&self) -> &'static str {
        match self {
            Self::Unknown => "null",
            Self::Bool => "a boolean",
            Self::Whole { .. } | Self::Float => "a number",
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
            (
                Self::Whole { negative, large },
                Self::Whole {
                    negative: n,
                    large: l,
                },
            ) => {
                *negative |= n;
                *large |= l;
                if *negative && *large {
                    return Err(
                        ": whole numbers below zero and beyond 9223372036854775807 share no type"
                            .to_owned(),
                    );
                }
                Ok(())
            }
            (Self::Float | Self::Whole { .. }, Self::Float | Self::Whole { .. }) => {
                *self = Self::Float;
                Ok(())
            }
            (Self::List(seen), Self::List(more)) => {
                seen.nulls |= more.nulls;
                seen.shape
                    .merge(more.shape)
                    .map_err(|error| format!("[]{error}"))
            }
            (Self::Object(object), Self::Object(more)) => object.merge(more),
            (own, other) => Err(format!(
                ": {} here, and {} before",
                other.name(),
                own.name()
            )),
        }
    }

    /// The type that holds all values.
    pub(crate) fn data_type(&self) -> DataType {
        match self {
            // Nothing is known of it; text holds whatever may come.
            Self::Unknown | Self::Text => DataType::Utf8,
            Self::Bool => DataType::Boolean,
            Self::Whole { large: true, .. } => DataType::UInt64,
            Self::Whole { large: false, .. } => DataType::Int64,
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
            own.shape.merge(member.shape).map_err(|error| {
                let dot = if error.starts_with([':', '[']) {
                    ""
                } else {
                    "."
                };
                format!("{shown}{dot}{error}")
            })?;
        }
        Ok(())
    }

    /// The fields sorted by name; nullable where a value is missing or null.
    pub(crate) fn fields(&self) -> Fields {
        let field = |(name, member): (&String, &Member)| {
            Field::new(name, member.shape.data_type(), member.values < self.objects)
        };
        self.fields.iter().map(field).collect()
    }
}

/// Reads the shape of one JSON object.
///
/// # Errors
///
/// What is wrong with the text, without its line.
pub(crate) fn shape_of_line(line: &[u8]) -> Result<Object, String> {
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
    let seen = Seed.deserialize(&mut reader).map_err(text)?;
    reader.end().map_err(text)?;
    match seen {
        Shape::Object(object) => Ok(object),
        other => Err(format!("is {}, not an object", other.name())),
    }
}

struct Seed;

impl<'de> DeserializeSeed<'de> for Seed {
    type Value = Shape;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Shape, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed {
    type Value = Shape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Shape, E> {
        Ok(Shape::Bool)
    }

    fn visit_i64<E>(self, value: i64) -> Result<Shape, E> {
        Ok(Shape::Whole {
            negative: value < 0,
            large: false,
        })
    }

    fn visit_u64<E>(self, value: u64) -> Result<Shape, E> {
        Ok(Shape::Whole {
            negative: false,
            large: i64::try_from(value).is_err(),
        })
    }

    fn visit_f64<E>(self, _: f64) -> Result<Shape, E> {
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
        while let Some(shape) = access.next_element_seed(Self)? {
            seen.nulls |= shape == Shape::Unknown;
            seen.shape
                .merge(shape)
                .map_err(|error| A::Error::custom(format!("[]{error}")))?;
        }
        Ok(Shape::List(Box::new(seen)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Shape, A::Error> {
        let mut object = Object {
            objects: 1,
            ..Object::default()
        };
        while let Some(name) = access.next_key::<String>()? {
            let shape = access.next_value_seed(Self)?;
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
        for line in lines {
            all.merge(shape_of_line(line.as_bytes())?)?;
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
                "[]: text here, and a number before",
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
            shape_of_line(deep.as_bytes())
                .unwrap_err()
                .contains("recursion limit")
        );
    }
}
