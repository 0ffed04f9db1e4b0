//! Splits CSV records into fields, and collects the values of each column.

/// The values of a column, one after another.
#[derive(Clone, Debug)]
pub struct CsvColumn {
    bytes: Vec<u8>,
    /// 0, and where each value ends.
    offsets: Vec<i32>,
    is_quoted: Vec<bool>,
}

impl Default for CsvColumn {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            offsets: vec![0],
            is_quoted: Vec::new(),
        }
    }
}

impl CsvColumn {
    /// Adds a value. All values of a column have at most 2 GiB.
    fn push(&mut self, value: &[u8], is_quoted: bool) {
        self.bytes.extend_from_slice(value);
        let end = i32::try_from(self.bytes.len()).unwrap_or(i32::MAX);
        self.offsets.push(end);
        self.is_quoted.push(is_quoted);
    }

    /// Returns the values.
    pub fn values(&self) -> impl Iterator<Item = &[u8]> {
        self.offsets.windows(2).map(|pair| {
            let end = |at: usize| pair.get(at).and_then(|end| usize::try_from(*end).ok());
            let range = end(0).zip(end(1));
            let value = range.and_then(|(start, end)| self.bytes.get(start..end));
            value.unwrap_or_default()
        })
    }

    /// Returns which values are in quotes.
    #[must_use]
    pub fn is_quoted(&self) -> &[bool] {
        &self.is_quoted
    }

    /// Returns which values are no nulls: those in quotes, and those that are none of `nulls`.
    #[must_use]
    pub fn validity(&self, nulls: &[String]) -> Vec<bool> {
        let is_null = |value: &[u8]| nulls.iter().any(|null| null.as_bytes() == value);
        let values = self.values().zip(&self.is_quoted);
        values
            .map(|(value, is_quoted)| *is_quoted || !is_null(value))
            .collect()
    }

    /// Returns the offsets of the values and their bytes, as Arrow stores them.
    #[must_use]
    pub fn into_parts(self) -> (Vec<i32>, Vec<u8>) {
        (self.offsets, self.bytes)
    }
}

/// The columns of some records. They grow with the records, up to a number of columns.
#[derive(Clone, Debug)]
pub struct CsvColumns {
    columns: Vec<CsvColumn>,
    max: usize,
}

impl CsvColumns {
    /// Collects the values of the first `max` columns.
    #[must_use]
    pub const fn new(max: usize) -> Self {
        Self {
            columns: Vec::new(),
            max,
        }
    }

    /// Adds the value of a column, which is at most one beyond the known ones.
    pub fn push(&mut self, column: usize, value: &[u8], is_quoted: bool) {
        if column == self.columns.len() && column < self.max {
            self.columns.push(CsvColumn::default());
        }
        if let Some(column) = self.columns.get_mut(column) {
            column.push(value, is_quoted);
        }
    }

    /// Adds the fields at the start of `input`, which continues a record after `before` fields, until one begins with a
    /// quote, does not end in `input`, or ends the record.
    pub fn push_plain(&mut self, input: &[u8], delimiter: u8, before: usize) -> PlainFields {
        let mut found = PlainFields {
            bytes: 0,
            count: 0,
            stop: None,
        };
        let mut rest = input;
        while found.stop.is_none()
            && rest.first() != Some(&b'"')
            && let Some(end) = memchr::memchr3(delimiter, b'\n', b'\r', rest)
            && let Some((value, more)) = rest.split_at_checked(end)
            && let Some((stop, more)) = more.split_first()
        {
            self.push(before + found.count, value, false);
            found.count += 1;
            found.stop = Some(*stop).filter(|stop| *stop != delimiter);
            rest = more;
        }
        found.bytes = input.len() - rest.len();
        found
    }

    /// Returns the columns.
    #[must_use]
    pub fn into_columns(self) -> Vec<CsvColumn> {
        self.columns
    }
}

/// The fields that [`CsvColumns::push_plain`] has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainFields {
    /// Their length in bytes, with what ends them.
    pub bytes: usize,
    /// Their number.
    pub count: usize,
    /// The line break that ends the record, if it is one of them.
    pub stop: Option<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_fields_end_at_quotes_and_records() {
        for (input, bytes, values, stop) in [
            ("a,b\nc", 4, &["a", "b"][..], Some(b'\n')),
            ("a,b\r\nc", 4, &["a", "b"], Some(b'\r')),
            (",,\n", 3, &["", "", ""], Some(b'\n')),
            ("a,\"b\"\n", 2, &["a"], None),
            ("a\"b,c", 4, &["a\"b"], None),
            ("\"a\",b\n", 0, &[], None),
            ("a", 0, &[], None),
            ("", 0, &[], None),
        ] {
            let mut columns = CsvColumns::new(9);
            let found = columns.push_plain(input.as_bytes(), b',', 0);
            let expected = PlainFields {
                bytes,
                count: values.len(),
                stop,
            };
            assert_eq!(found, expected, "{input:?}");
            let columns = columns.into_columns();
            let known = columns.iter().flat_map(CsvColumn::values);
            assert!(
                known.eq(values.iter().map(|value| value.as_bytes())),
                "{input:?}"
            );
        }
    }

    #[test]
    fn quoted_values_are_no_nulls() {
        let mut columns = CsvColumns::new(1);
        for (value, is_quoted) in [("", false), ("", true), ("NA", false), ("x", false)] {
            columns.push(0, value.as_bytes(), is_quoted);
            columns.push(1, b"beyond the last column", false);
        }
        let columns = columns.into_columns();
        assert_eq!(columns.len(), 1);
        let nulls = ["".to_owned(), "NA".to_owned()];
        assert_eq!(columns[0].validity(&nulls), [false, true, false, true]);
        let (offsets, bytes) = columns[0].clone().into_parts();
        assert_eq!(
            (&offsets[..], &bytes[..]),
            (&[0, 0, 0, 2, 3][..], &b"NAx"[..])
        );
    }
}
