//! Splits messages of protocol buffers into fields.

/// A field of a message: its number and its value.
pub(crate) type Field<'a> = (u64, Wire<'a>);

/// A value as it is stored. Fixed-size numbers are kept as their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire<'a> {
    Varint(u64),
    Fixed64(&'a [u8]),
    Bytes(&'a [u8]),
    Fixed32([u8; 4]),
}

/// The rest of a message. After an error, nothing is left of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a>(pub &'a [u8]);

impl<'a> Message<'a> {
    fn take(&mut self, count: u64) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(usize::try_from(count).ok()?)?;
        self.0 = rest;
        Some(head)
    }

    /// Returns the next number of variable length.
    pub(crate) fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for (at, byte) in self.0.iter().enumerate().take(10) {
            // The tenth byte has one bit of a number of 64 bits.
            if at == 9 && *byte > 1 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                self.0 = self.0.get(at + 1..)?;
                return Some(value);
            }
        }
        None
    }

    fn field(&mut self) -> Option<Field<'a>> {
        let tag = self.varint()?;
        let wire = match tag & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => Wire::Fixed64(self.take(8)?),
            2 => {
                let length = self.varint()?;
                Wire::Bytes(self.take(length)?)
            }
            5 => Wire::Fixed32(*self.take(4)?.first_chunk()?),
            // Groups are obsolete, and no format here has them.
            _ => return None,
        };
        (tag >> 3 != 0).then_some((tag >> 3, wire))
    }
}

/// Yields the fields in order; `None` for bytes that are no field.
impl<'a> Iterator for Message<'a> {
    type Item = Option<Field<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_all_wire_types_are_parsed() {
        let bytes = [
            0x08, 0x96, 0x01, 0x11, 1, 2, 3, 4, 5, 6, 7, 8, 0x1a, 2, b'h', b'i', 0x25, 1, 0, 0, 0,
        ];
        let fields: Option<Vec<_>> = Message(&bytes).collect();
        assert_eq!(
            fields.unwrap(),
            [
                (1, Wire::Varint(150)),
                (2, Wire::Fixed64(&[1, 2, 3, 4, 5, 6, 7, 8])),
                (3, Wire::Bytes(b"hi")),
                (4, Wire::Fixed32([1, 0, 0, 0])),
            ]
        );
    }

    #[test]
    fn malformed_field_ends_the_message_with_an_error() {
        for bytes in [
            &[0x08][..],      // A tag alone.
            &[0x0b],          // A group.
            &[0x00, 0x01],    // The number 0.
            &[0x0a, 5, 1, 2], // Too few bytes.
            &[
                0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01,
            ], // An absurd length.
            &[
                0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02,
            ], // 65 bits.
        ] {
            let fields: Vec<_> = Message(bytes).collect();
            assert_eq!(fields, [None], "{bytes:?}");
        }
    }
}
