//! Finds where quotes open and close in a CSV file, by the rules of the decoder. A quote opens a value only as its
//! first byte. Two quotes inside quotes are one. After the closing quote, the value continues as unquoted text.

use memchr::{memchr, memchr_iter};

/// Tracks quotes through a file that arrives in pieces.
#[derive(Debug)]
pub(crate) struct CsvScanner {
    delimiter: u8,
    state: State,
    /// The last byte of the previous pieces.
    last: u8,
    /// Line breaks so far: in the previous pieces, and in this one up to its last opening quote.
    lines: u64,
    /// The line of the last opening quote, counted from 1.
    opened: u64,
    /// Whether no input has been read yet.
    fresh: bool,
    /// Whether the last byte opened a value.
    just_opened: bool,
    /// Whether a value began with two quotes.
    empty: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Outside,
    Inside,
    /// After a quote inside quotes: it closes the value, or is the first of two.
    Closing,
}

impl CsvScanner {
    pub(crate) const fn new(delimiter: u8) -> Self {
        Self {
            delimiter,
            state: State::Outside,
            last: b'\n',
            lines: 0,
            opened: 0,
            fresh: true,
            just_opened: false,
            empty: false,
        }
    }

    /// Returns whether the input so far ends with a record.
    pub(crate) fn is_after_record(&self) -> bool {
        self.state == State::Outside && self.last == b'\n'
    }

    /// Returns whether a value began with two quotes since the last call: it may be an empty text.
    pub(crate) const fn take_empty(&mut self) -> bool {
        std::mem::replace(&mut self.empty, false)
    }

    /// Reads the next piece.
    pub(crate) fn read(&mut self, piece: &[u8]) {
        // The decoder ignores a byte order mark, too.
        let mark = b"\xef\xbb\xbf";
        let piece = match piece.strip_prefix(mark) {
            Some(rest) if self.fresh => rest,
            _ => piece,
        };
        self.fresh &= piece.is_empty();
        let (mut at, mut counted) = (0, 0);
        while let Some(rest) = piece.get(at..).filter(|rest| !rest.is_empty()) {
            if self.state == State::Closing && rest.first() != Some(&b'"') {
                self.state = State::Outside;
            }
            let found = memchr(b'"', rest);
            self.empty |= self.just_opened && found == Some(0);
            self.just_opened = false;
            let Some(found) = found else {
                break;
            };
            let quote = at + found;
            at = quote + 1;
            self.state = match self.state {
                State::Inside => State::Closing,
                State::Closing => State::Inside,
                State::Outside => {
                    let before = quote.checked_sub(1).and_then(|index| piece.get(index));
                    let before = *before.unwrap_or(&self.last);
                    if before == self.delimiter || matches!(before, b'\n' | b'\r') {
                        self.lines += line_breaks(piece.get(counted..quote).unwrap_or_default());
                        counted = quote;
                        self.opened = self.lines + 1;
                        self.just_opened = true;
                        State::Inside
                    } else {
                        State::Outside
                    }
                }
            };
        }
        self.lines += line_breaks(piece.get(counted..).unwrap_or_default());
        if let Some(last) = piece.last() {
            self.last = *last;
        }
    }

    /// Returns whether the next piece begins inside quotes.
    pub(crate) fn inside(&self) -> bool {
        self.state == State::Inside
    }

    /// Returns the line of the open quote, counted from 1.
    pub(crate) fn open_line(&self) -> Option<u64> {
        self.inside().then_some(self.opened)
    }
}

fn line_breaks(bytes: &[u8]) -> u64 {
    memchr_iter(b'\n', bytes).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_quote_reports_its_line_for_any_chunk_size() {
        for (text, line) in [
            ("", None),
            ("a,b\n", None),
            ("\"a\",b\n", None),
            ("a,\"b", Some(1)),
            ("a,\"b\n\"\"c\n", Some(1)),
            ("a,\"b\"\"\n", Some(1)),
            ("a,\"b\"\"\"\n", None),
            ("a,\"\"\n\"x", Some(2)),
            // A quote inside an unquoted value is an ordinary character.
            ("a,5\" nails\nb,c\n", None),
            ("a,\"b\" c\"\n\"", Some(2)),
            ("a\r\n\"b", Some(2)),
            ("a;\"b", None),
            ("\u{feff}id,\"\n", Some(1)),
            ("id\n\"x\n\ny\"\nz,\"", Some(5)),
        ] {
            for size in 1..=text.len().max(1) {
                let mut csv_scanner = CsvScanner::new(b',');
                for piece in text.as_bytes().chunks(size) {
                    csv_scanner.read(piece);
                }
                assert_eq!(csv_scanner.open_line(), line, "{text:?} by {size}");
            }
        }
        for (text, empty) in [
            ("a,\"\"\n", true),
            ("\"\"\"x\"\n", true),
            ("\"a\"\"b\",\"c\"", false),
            ("a\"\"", false),
        ] {
            for size in 1..=text.len() {
                let mut csv_scanner = CsvScanner::new(b',');
                for piece in text.as_bytes().chunks(size) {
                    csv_scanner.read(piece);
                }
                assert_eq!(csv_scanner.take_empty(), empty, "{text:?} by {size}");
                assert!(!csv_scanner.take_empty());
            }
        }
        let mut csv_scanner = CsvScanner::new(b',');
        csv_scanner.read("\u{feff}\"a".as_bytes());
        assert_eq!(csv_scanner.open_line(), Some(1));
    }
}
