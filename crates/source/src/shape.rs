//! Infers the shape of JSON values: the Arrow type that holds all of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields};

use crate::ENCODING_KEY;
use crate::raw_json_fields::RawField;

/// The shape of the values seen so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Only nulls.
    #[default]
    Unknown,
    Bool,
    /// Whole numbers.
    Whole(Whole),
    /// Numbers with fractions, and the line of the first whole number among them that no float represents exactly.
    Float(Option<Line>),
    Text,
    /// Numbers, booleans and texts without a common type.
    Scalars,
    /// Values of any kind.
    Any,
    List(Box<Seen>),
    Object(Object),
}

/// Properties of the whole numbers seen so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Whole {
    /// Whether one is negative.
    pub negative: bool,
    /// Whether one exceeds `i64`.
    pub large: bool,
    /// The line of the first number that does not fit 64 bits.
    pub beyond: Option<Line>,
    /// The line of the first number that no float represents exactly.
    pub inexact: Option<Line>,
}

/// A line of a file of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Line {
    /// The number of the file, from 0.
    pub file: usize,
    /// The line, from 1.
    pub line: u64,
}

/// How the values of a top-level field are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// As typed values.
    Typed,
    /// As typed values, but objects as their JSON text, whatever they contain.
    RawObjects,
    /// As JSON text, unless all values are texts.
    Json,
    /// As text, unless there are lists or objects.
    Text,
}

/// A whole number that the type of its column cannot represent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unfit {
    /// The line of the number.
    pub line: Line,
    /// The path of its field.
    pub path: String,
    /// Whether its column has fractions. Otherwise, the number is beyond 64 bits.
    pub among_fractions: bool,
}

/// A shape, and whether its values include nulls.
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
    /// The number of objects in which it is not null.
    pub values: u64,
}

impl Shape {
    /// Returns a description of values of this shape, for messages.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Unknown => "null",
            Self::Bool => "a boolean",
            Self::Whole(_) | Self::Float(_) => "a number",
            Self::Text => "text",
            Self::Scalars | Self::Any => "a value",
            Self::List(_) => "a list",
            Self::Object(_) => "an object",
        }
    }

    /// Extends the shape to cover the values of another shape. The error names two shapes without a common type, with the
    /// path of the field where they meet.
    pub(crate) fn merge(&mut self, other: Self) -> Result<(), String> {
        match (&mut *self, other) {
            (_, Self::Unknown) => Ok(()),
            (Self::Unknown, other) => {
                *self = other;
                Ok(())
            }
            (Self::Bool, Self::Bool) | (Self::Text, Self::Text) => Ok(()),
            (Self::Whole(whole), Self::Whole(more)) => {
                whole.negative |= more.negative;
                whole.large |= more.large;
                whole.beyond = whole.beyond.or(more.beyond);
                whole.inexact = whole.inexact.or(more.inexact);
                if whole.negative && whole.large {
                    return Err(
                        ": whole numbers below zero and beyond 9223372036854775807 share no type"
                            .to_owned(),
                    );
                }
                Ok(())
            }
            (Self::Float(own), Self::Float(more)) => {
                *own = own.or(more);
                Ok(())
            }
            (Self::Float(own), Self::Whole(more)) => {
                *own = own.or(more.inexact);
                Ok(())
            }
            (Self::Whole(own), Self::Float(more)) => {
                *self = Self::Float(own.inexact.or(more));
                Ok(())
            }
            (Self::List(seen), Self::List(more)) => {
                seen.nulls |= more.nulls;
                seen.shape
                    .merge(more.shape)
                    .map_err(|error| prefix_path("[]", &error))
            }
            (Self::Object(object), Self::Object(more)) => object.merge(more, &|_| Taken::Typed),
            (own, other) => Err(format!(
                ": {} here, and {} before",
                other.name(),
                own.name()
            )),
        }
    }

    /// Extends the shape of a field that is read as `taken`: with values of no common type it becomes text, if `taken`
    /// allows that.
    fn merge_as(&mut self, other: Self, taken: Taken) -> Result<(), String> {
        let is_scalar =
            |shape: &Self| !matches!(shape, Self::List(_) | Self::Object(_) | Self::Any);
        let mixed = match taken {
            Taken::Json => Self::Any,
            Taken::Text if is_scalar(self) && is_scalar(&other) => Self::Scalars,
            Taken::Text | Taken::Typed | Taken::RawObjects => return self.merge(other),
        };
        match (&*self, &other) {
            (_, Self::Unknown) => {}
            (Self::Unknown, _) => *self = other,
            (Self::Text, Self::Text) => {}
            _ => *self = mixed,
        }
        Ok(())
    }

    /// Returns whether values of this shape are read as their text in the file.
    fn is_raw(&self, taken: Taken) -> bool {
        match taken {
            Taken::Typed => false,
            Taken::RawObjects => match self {
                Self::Object(_) => true,
                Self::List(seen) => !matches!(seen.shape, Self::Whole(_) | Self::Float(_)),
                _ => false,
            },
            Taken::Json => !matches!(self, Self::Unknown | Self::Text),
            Taken::Text => matches!(
                self,
                Self::Bool | Self::Whole(_) | Self::Float(_) | Self::Scalars
            ),
        }
    }

    /// Finds a whole number that the type of the column cannot represent.
    fn unfit(&self) -> Option<Unfit> {
        let at = |line: Option<Line>, among_fractions| {
            line.map(|line| Unfit {
                line,
                path: String::new(),
                among_fractions,
            })
        };
        match self {
            Self::Whole(whole) => at(whole.beyond, false),
            Self::Float(inexact) => at(*inexact, true),
            Self::List(seen) => seen.shape.unfit().map(|unfit| unfit.within("[]")),
            Self::Object(object) => {
                let fields = object.fields.iter();
                let mut found = fields.filter_map(|(name, member)| member.unfit(name));
                found.next().map(|unfit| unfit.within("."))
            }
            Self::Unknown | Self::Bool | Self::Text | Self::Scalars | Self::Any => None,
        }
    }

    /// Returns the type that holds all values.
    pub(crate) fn data_type(&self) -> DataType {
        match self {
            // Text also holds whatever values of an unknown shape turn out to be.
            Self::Unknown | Self::Text | Self::Scalars | Self::Any => DataType::Utf8,
            Self::Bool => DataType::Boolean,
            Self::Whole(whole) if whole.large => DataType::UInt64,
            Self::Whole(_) => DataType::Int64,
            Self::Float(_) => DataType::Float64,
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
    /// Extends the shape to cover other objects, whose fields are read as `taken` says.
    pub(crate) fn merge(
        &mut self,
        other: Self,
        taken: &dyn Fn(&str) -> Taken,
    ) -> Result<(), String> {
        self.objects += other.objects;
        for (name, member) in other.fields {
            let taken = taken(&name);
            let shown = path_name(&name);
            let own = self.fields.entry(name).or_default();
            own.values += member.values;
            own.shape
                .merge_as(member.shape, taken)
                .map_err(|error| prefix_path(&shown, &error))?;
        }
        Ok(())
    }

    /// Finds a whole number that the type of its column cannot represent.
    pub(crate) fn unfit(&self, taken: &dyn Fn(&str) -> Taken) -> Option<Unfit> {
        let mut fields = self.fields.iter();
        fields.find_map(|(name, member)| {
            let is_raw = member.shape.is_raw(taken(name));
            if is_raw { None } else { member.unfit(name) }
        })
    }

    /// Returns the fields of lines by how they are read, and which of them are read as their text.
    pub(crate) fn fields_as(&self, taken: &dyn Fn(&str) -> Taken) -> (Fields, Vec<RawField>) {
        let mut raw = Vec::new();
        let all = self.fields();
        let fields = all.iter().zip(&self.fields).map(|(field, (name, member))| {
            let taken = taken(name);
            if !member.shape.is_raw(taken) {
                return Arc::clone(field);
            }
            raw.push(RawField {
                name: name.clone(),
                keeps_texts: taken == Taken::Text,
            });
            let text = Field::new(name, DataType::Utf8, field.is_nullable());
            Arc::new(match taken {
                Taken::Text => text,
                _ => {
                    let hint = (ENCODING_KEY.to_owned(), "json".to_owned());
                    text.with_metadata([hint].into())
                }
            })
        });
        let fields = fields.collect();
        (fields, raw)
    }

    /// Returns the fields, sorted by name. They are nullable if a value is missing or null.
    pub(crate) fn fields(&self) -> Fields {
        let field = |(name, member): (&String, &Member)| {
            Field::new(name, member.shape.data_type(), member.values < self.objects)
        };
        self.fields.iter().map(field).collect()
    }
}

impl Member {
    /// Returns whether lists have nulls among their items.
    pub(crate) fn has_inner_nulls(&self) -> bool {
        let mut shape = &self.shape;
        while let Shape::List(seen) = shape {
            if seen.nulls {
                return true;
            }
            shape = &seen.shape;
        }
        false
    }

    fn unfit(&self, name: &str) -> Option<Unfit> {
        let unfit = self.shape.unfit()?;
        Some(unfit.within(&path_name(name)))
    }
}

impl Unfit {
    fn within(mut self, outer: &str) -> Self {
        self.path.insert_str(0, outer);
        self
    }
}

/// Returns the name of a field for a path, in double quotes if it has characters that separate names.
pub(crate) fn path_name(name: &str) -> String {
    let shown = shardmill_core::escape(name);
    match shown.contains(['.', '[', ':', '"']) {
        true => format!("\"{}\"", shown.replace('"', "\"\"")),
        false => shown.into_owned(),
    }
}

/// Prefixes an error about the contents of a field with the field's name, so that both form one path.
pub(crate) fn prefix_path(name: &str, error: &str) -> String {
    let dot = if error.starts_with([':', '[']) {
        ""
    } else {
        "."
    };
    format!("{name}{dot}{error}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape_reader::shape_of_line;

    fn at(line: u64) -> Line {
        Line { file: 0, line }
    }

    fn of(lines: &[&str]) -> Result<Object, String> {
        let mut all = Object::default();
        for (number, line) in (1..).zip(lines) {
            let line = shape_of_line(line.as_bytes(), at(number), &|_| Taken::Typed)?;
            all.merge(line, &|_| Taken::Typed)?;
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
    fn inferred_type_holds_the_values_of_all_lines() {
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
    fn integer_beyond_64_bits_is_reported_unless_column_is_float() {
        let beyond = |lines: &[&str]| {
            let unfit = of(lines).unwrap().unfit(&|_| Taken::Typed)?;
            assert!(!unfit.among_fractions);
            Some((unfit.line.line, unfit.path))
        };
        let max = r#"{"a": 18446744073709551615, "b": -9223372036854775808}"#;
        assert_eq!(beyond(&[max]), None);
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
    fn integer_inexact_as_float_is_reported_in_float_column() {
        let unfit = |lines: &[&str]| {
            let unfit = of(lines).unwrap().unfit(&|_| Taken::Typed)?;
            assert!(unfit.among_fractions);
            Some((unfit.line.line, unfit.path))
        };
        let large = r#"{"a": 9007199254740993}"#;
        assert_eq!(unfit(&[large, r#"{"a": 1}"#]), None);
        assert_eq!(
            unfit(&[r#"{"a": 9007199254740992}"#, r#"{"a": 0.5}"#]),
            None
        );
        for (lines, line, path) in [
            (&[large, r#"{"a": 0.5}"#][..], 1, "a"),
            (&[r#"{"a": 0.5}"#, large], 2, "a"),
            (
                &[r#"{"a": [{"b": [0.5, -9007199254740993]}]}"#],
                1,
                "a[].b[]",
            ),
            (
                &[r#"{"a": 1e3, "b": 100000000000000000001}"#, r#"{"b": 0.5}"#],
                1,
                "b",
            ),
        ] {
            assert_eq!(unfit(lines), Some((line, path.to_owned())), "{lines:?}");
        }
    }

    #[test]
    fn raw_and_json_fields_need_no_common_type() {
        let types = |lines: &[&str], taken: Taken| {
            let mut all = Object::default();
            for (number, line) in (1..).zip(lines) {
                let own = shape_of_line(line.as_bytes(), at(number), &|_| taken)?;
                all.merge(own, &|_| taken)?;
            }
            assert_eq!(all.unfit(&|_| taken), None);
            let (fields, raw) = all.fields_as(&|_| taken);
            let hint = fields[0].metadata().get(ENCODING_KEY).cloned();
            let data_type = fields[0].data_type().to_string();
            Ok::<_, String>((data_type, hint.unwrap_or_default(), raw.len()))
        };
        let text = |hint: &str, raw| Ok(("Utf8".to_owned(), hint.to_owned(), raw));
        let objects = &[
            r#"{"a": {"q": "x"}}"#,
            r#"{"a": {"q": 1, "n": 99999999999999999999}}"#,
        ];
        let mixed = &[r#"{"a": 1}"#, r#"{"a": "x"}"#, r#"{"a": [{}]}"#];
        let texts = &[r#"{"a": "1"}"#, r#"{"a": null}"#];
        let numbers = &[
            r#"{"a": 9007199254740993}"#,
            r#"{"a": 0.5}"#,
            r#"{"a": true}"#,
        ];
        let lists = &[r#"{"a": [{"b": 1}]}"#, r#"{"a": [{"b": "x"}]}"#];
        assert_eq!(types(objects, Taken::RawObjects), text("json", 1));
        assert_eq!(types(lists, Taken::RawObjects), text("json", 1));
        assert_eq!(types(objects, Taken::Json), text("json", 1));
        assert_eq!(types(mixed, Taken::Json), text("json", 1));
        assert_eq!(types(texts, Taken::Json), text("", 0));
        assert_eq!(types(numbers, Taken::Json), text("json", 1));
        assert_eq!(types(numbers, Taken::Text), text("", 1));
        assert_eq!(types(texts, Taken::Text), text("", 0));
        let list = types(&[r#"{"a": [1]}"#, r#"{"a": []}"#], Taken::RawObjects).unwrap();
        assert!(list.0.starts_with("List") && list.2 == 0, "{list:?}");
        assert!(types(mixed, Taken::RawObjects).is_err());
        let twice = &[r#"{"a": [{"b": {"c": 1, "c": 2}}]}"#];
        for taken in [Taken::RawObjects, Taken::Json] {
            assert_eq!(types(twice, taken), Err("has the key `c` twice".to_owned()));
        }
    }

    #[test]
    fn values_without_common_type_are_an_error_naming_the_path() {
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
            shape_of_line(deep.as_bytes(), at(1), &|_| Taken::Typed)
                .unwrap_err()
                .contains("recursion limit")
        );
    }
}
