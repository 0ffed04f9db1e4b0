//! Reads the features of a `tf.train.Example`.

use crate::error::RecordError;
use crate::protobuf::{Message, Wire};

/// The type of the values of a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureKind {
    /// Bytes.
    Bytes,
    /// Numbers with fractions, of 32 bits.
    Float,
    /// Whole numbers of 64 bits.
    Int,
}

/// One value of a feature.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// Bytes.
    Bytes(&'a [u8]),
    /// A number with a fraction.
    Float(f32),
    /// A whole number.
    Int(i64),
}

/// A feature: a list of values of one type.
#[derive(Clone, Copy, Debug)]
pub struct Feature<'a> {
    kind: Option<FeatureKind>,
    list: Message<'a>,
}

/// Yields the names and features of an example, in the order of its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Example<'a>(Message<'a>);

const fn wrong(reason: &'static str) -> RecordError {
    RecordError::Example { reason }
}

const NO_FIELD: RecordError = wrong("its bytes are no message of protocol buffers");

/// Returns the features of a record. A feature that occurs twice counts the last time.
///
/// # Errors
///
/// [`RecordError::Example`] if the record is another message, [`RecordError::Sequence`] for a
/// `tf.train.SequenceExample`.
pub fn example(record: &[u8]) -> Result<Example<'_>, RecordError> {
    let mut features = None;
    for field in Message(record) {
        match field.ok_or(NO_FIELD)? {
            (1, Wire::Bytes(found)) if features.is_none() => features = Some(found),
            (2, Wire::Bytes(_)) => return Err(RecordError::Sequence),
            _ => return Err(wrong("it has another field than its features")),
        }
    }
    Ok(Example(Message(features.unwrap_or_default())))
}

impl<'a> Iterator for Example<'a> {
    type Item = Result<(&'a str, Feature<'a>), RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        let field = self.0.next()?;
        Some(match field {
            None => Err(NO_FIELD),
            Some((1, Wire::Bytes(entry))) => feature_of(entry),
            Some(_) => Err(wrong("its features have an unknown field")),
        })
    }
}

fn feature_of(entry: &[u8]) -> Result<(&str, Feature<'_>), RecordError> {
    let (mut name, mut value): (&[u8], &[u8]) = (&[], &[]);
    for field in Message(entry) {
        match field.ok_or(NO_FIELD)? {
            (1, Wire::Bytes(found)) => name = found,
            (2, Wire::Bytes(found)) => value = found,
            _ => return Err(wrong("a feature has an unknown field")),
        }
    }
    let name =
        std::str::from_utf8(name).map_err(|_| wrong("the name of a feature is not UTF-8"))?;
    let mut feature = Feature {
        kind: None,
        list: Message(&[]),
    };
    for field in Message(value) {
        let (number, wire) = field.ok_or(NO_FIELD)?;
        let kind = match number {
            1 => FeatureKind::Bytes,
            2 => FeatureKind::Float,
            3 => FeatureKind::Int,
            _ => return Err(wrong("a feature has an unknown type")),
        };
        match wire {
            Wire::Bytes(list) if feature.kind.is_none() => {
                feature.kind = Some(kind);
                feature.list = Message(list);
            }
            _ => return Err(wrong("a feature has several lists, or no list")),
        }
    }
    Ok((name, feature))
}

impl<'a> Feature<'a> {
    /// Returns the type of the values; `None` for a feature without a list.
    #[must_use]
    pub const fn kind(&self) -> Option<FeatureKind> {
        self.kind
    }

    /// Calls a function for each value, in order.
    ///
    /// # Errors
    ///
    /// [`RecordError::Example`] if the list has other values.
    pub fn visit(&self, mut see: impl FnMut(Value<'a>)) -> Result<(), RecordError> {
        const OTHER: RecordError = wrong("a list has values of another type");
        let Some(kind) = self.kind else {
            return Ok(());
        };
        for field in self.list {
            let (1, wire) = field.ok_or(NO_FIELD)? else {
                return Err(OTHER);
            };
            match (kind, wire) {
                (FeatureKind::Bytes, Wire::Bytes(value)) => see(Value::Bytes(value)),
                (FeatureKind::Float, Wire::Fixed32(value)) => {
                    see(Value::Float(f32::from_le_bytes(value)));
                }
                (FeatureKind::Float, Wire::Bytes(packed)) => {
                    let (values, []) = packed.as_chunks() else {
                        return Err(OTHER);
                    };
                    for value in values {
                        see(Value::Float(f32::from_le_bytes(*value)));
                    }
                }
                (FeatureKind::Int, Wire::Varint(value)) => see(Value::Int(value.cast_signed())),
                (FeatureKind::Int, Wire::Bytes(packed)) => {
                    let mut rest = Message(packed);
                    while !rest.0.is_empty() {
                        see(Value::Int(rest.varint().ok_or(NO_FIELD)?.cast_signed()));
                    }
                }
                _ => return Err(OTHER),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2, u8::try_from(bytes.len()).unwrap()];
        out.extend(bytes);
        out
    }

    fn one(name: &str, list: u8, values: &[u8]) -> Vec<u8> {
        let entry = [field(1, name.as_bytes()), field(2, &field(list, values))].concat();
        field(1, &field(1, &entry))
    }

    fn values(record: &[u8]) -> Result<Vec<Value<'_>>, RecordError> {
        let mut found = Vec::new();
        for entry in example(record)? {
            entry?.1.visit(|value| found.push(value))?;
        }
        Ok(found)
    }

    #[test]
    fn packed_and_unpacked_numbers_are_parsed() {
        for (list, bytes, expected) in [
            (1, field(1, b"ab"), vec![Value::Bytes(b"ab")]),
            (
                2,
                [vec![0x0d], 1.5_f32.to_le_bytes().to_vec()].concat(),
                vec![Value::Float(1.5)],
            ),
            (
                2,
                field(1, &[1.5_f32.to_le_bytes(), 2.0_f32.to_le_bytes()].concat()),
                vec![Value::Float(1.5), Value::Float(2.0)],
            ),
            (3, vec![8, 7, 8, 9], vec![Value::Int(7), Value::Int(9)]),
            (
                3,
                field(1, &[7, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1]),
                vec![Value::Int(7), Value::Int(-1)],
            ),
        ] {
            assert_eq!(values(&one("f", list, &bytes)).unwrap(), expected);
        }
    }

    #[test]
    fn non_example_messages_are_errors() {
        assert_eq!(values(&[]), Ok(Vec::new()));
        assert_eq!(values(&field(2, b"")).unwrap_err(), RecordError::Sequence);
        for record in [
            b"\xff\xd8\xff\xe0 an image".to_vec(),
            field(3, b""),
            one("f", 4, b""),
            one("f", 2, &field(1, b"abc")),
            one("f", 3, &field(1, &[0x80])),
            one("f", 1, &[8, 7]),
            field(1, &field(1, &field(1, &[0xff]))),
        ] {
            assert!(
                matches!(values(&record), Err(RecordError::Example { .. })),
                "{record:?}"
            );
        }
    }
}
