//! Infers the shape of a JSON text.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::collections::btree_map::Entry;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use crate::exact::{is_exact, is_exact_text};
use crate::shape::{Line, Member, Object, Seen, Shape, Taken, Whole, path_name, prefix_path};

/// Infers the shape of one JSON object; `line` is its line in the file.
pub(crate) fn shape_of_line(
    text: &[u8],
    line: Line,
    taken: &dyn Fn(&str) -> Taken,
) -> Result<Object, String> {
    let numbers = Numbers::new(line, taken, whole_beyond_64_bits(text));
    let shape = shape_of(text, &numbers)?;
    match shape {
        Shape::Object(object) => Ok(object),
        other => Err(format!("is {}, not an object", other.name())),
    }
}

fn shape_of(line: &[u8], numbers: &Numbers<'_>) -> Result<Shape, String> {
    let text = |error: serde_json::Error| {
        let whole = error.to_string();
        // Drop serde_json's line, which is always 1: the caller knows the line.
        whole
            .split(" at line ")
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    let mut reader = serde_json::Deserializer::from_slice(line);
    let shape = Seed(numbers, Depth::Top)
        .deserialize(&mut reader)
        .map_err(|error| numbers.apart.take().unwrap_or_else(|| text(error)))?;
    reader.end().map_err(text)?;
    Ok(shape)
}

/// Returns whether a text contains `count` digits in a row.
pub(crate) fn has_digits(text: &[u8], count: usize) -> bool {
    let mut run = 0;
    text.iter().any(|byte| {
        run = if byte.is_ascii_digit() { run + 1 } else { 0 };
        run >= count
    })
}

/// Finds the whole numbers beyond 64 bits in a line, which the parser returns as floats, and only the text distinguishes
/// from 1e20. Returns their positions among its numbers, from 0, and
/// whether a float represents them exactly.
fn whole_beyond_64_bits(line: &[u8]) -> Vec<(usize, bool)> {
    let mut found = Vec::new();
    // Most lines have only numbers that are shorter.
    if !has_digits(line, 19) {
        return found;
    }
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
                // `escaped` starts as true, so that the opening quote does not end the string.
                rest.iter().position(ends).map_or(rest.len(), |end| end + 1)
            }
            b'-' | b'0'..=b'9' => {
                let of_number =
                    |byte: &u8| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
                let count = rest.iter().take_while(|byte| of_number(byte)).count();
                let text = str::from_utf8(rest.get(..count).unwrap_or_default()).unwrap_or("");
                let whole = !text.contains(['.', 'e', 'E']);
                if whole && text.parse::<i64>().is_err() && text.parse::<u64>().is_err() {
                    found.push((number, is_exact_text(text)));
                }
                number += 1;
                count
            }
            _ => 1,
        };
    }
    found
}

/// Tracks the numbers of a line as they are read, and mismatched list elements.
struct Numbers<'a> {
    line: Line,
    /// How the fields of the line are read.
    taken: &'a dyn Fn(&str) -> Taken,
    /// How many numbers were read.
    read: Cell<usize>,
    /// The positions of whole numbers beyond 64 bits, and whether a float represents them exactly.
    beyond: Vec<(usize, bool)>,
    /// Describes list elements without a common type, with the path to them.
    apart: RefCell<Option<String>>,
}

impl<'a> Numbers<'a> {
    fn new(line: Line, taken: &'a dyn Fn(&str) -> Taken, beyond: Vec<(usize, bool)>) -> Self {
        Self {
            line,
            taken,
            read: Cell::new(0),
            beyond,
            apart: RefCell::new(None),
        }
    }

    /// Prefixes the path to list elements without a common type, if there are any, on the way up.
    fn beneath(&self, path: impl FnOnce(&str) -> String) {
        let mut apart = self.apart.borrow_mut();
        if let Some(found) = apart.as_mut() {
            *found = path(found);
        }
    }

    /// Counts a number. For a whole number beyond 64 bits, returns whether a float represents it exactly.
    fn next(&self) -> Option<bool> {
        let number = self.read.replace(self.read.get() + 1);
        let found = self
            .beyond
            .binary_search_by_key(&number, |(number, _)| *number);
        let (_, exact) = self.beyond.get(found.ok()?)?;
        Some(*exact)
    }

    /// Counts a whole number of 64 bits and returns its properties.
    fn whole(&self, value: i128) -> Whole {
        self.next();
        Whole {
            negative: value < 0,
            large: value > i128::from(i64::MAX),
            beyond: None,
            inexact: (!is_exact(value)).then_some(self.line),
        }
    }
}

/// The position of a value within its line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// The value is the line itself.
    Top,
    /// The value is in a field that is read this way.
    Field(Taken),
    /// The value is in a field that is read as its text; only its keys are checked.
    Raw,
}

#[derive(Clone, Copy)]
struct Seed<'a>(&'a Numbers<'a>, Depth);

impl Seed<'_> {
    fn is_raw(self) -> bool {
        self.1 == Depth::Raw
    }
}

fn twice<E: serde::de::Error>(name: &str) -> E {
    E::custom(format!(
        "has the key `{}` twice",
        shardmill_core::escape(name)
    ))
}

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
        Ok(Shape::Whole(self.0.whole(value.into())))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Shape, E> {
        Ok(Shape::Whole(self.0.whole(value.into())))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Shape, E> {
        let line = self.0.line;
        Ok(match self.0.next() {
            Some(exact) => Shape::Whole(Whole {
                beyond: Some(line),
                inexact: (!exact).then_some(line),
                ..Whole::default()
            }),
            None => Shape::Float(None),
        })
    }

    fn visit_str<E>(self, _: &str) -> Result<Shape, E> {
        Ok(Shape::Text)
    }

    fn visit_unit<E>(self) -> Result<Shape, E> {
        Ok(Shape::Unknown)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Shape, A::Error> {
        let mut seen = Seen::default();
        if self.is_raw() || self.1 == Depth::Field(Taken::Json) {
            let inner = Self(self.0, Depth::Raw);
            while access.next_element_seed(inner)?.is_some() {}
            return Ok(Shape::Any);
        }
        let within = |error: &str| prefix_path("[]", error);
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
        if self.is_raw() || matches!(self.1, Depth::Field(Taken::Json | Taken::RawObjects)) {
            let mut names = HashSet::new();
            while let Some(name) = access.next_key::<String>()? {
                access.next_value_seed(Self(self.0, Depth::Raw))?;
                if let Some(name) = names.replace(name) {
                    return Err(twice(&name));
                }
            }
            return Ok(match self.1 {
                Depth::Field(Taken::RawObjects) => Shape::Object(object),
                _ => Shape::Any,
            });
        }
        while let Some(name) = access.next_key::<String>()? {
            let depth = match self.1 {
                Depth::Top => Depth::Field((self.0.taken)(&name)),
                depth => depth,
            };
            let shape = access
                .next_value_seed(Self(self.0, depth))
                .inspect_err(|_| {
                    self.0.beneath(|path| prefix_path(&path_name(&name), path));
                })?;
            match object.fields.entry(name) {
                Entry::Vacant(entry) => {
                    let values = u64::from(shape != Shape::Unknown);
                    entry.insert(Member { shape, values });
                }
                Entry::Occupied(entry) => {
                    return Err(twice(entry.key()));
                }
            }
        }
        Ok(Shape::Object(object))
    }
}
