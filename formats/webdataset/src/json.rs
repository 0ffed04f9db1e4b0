//! Writes JSON as Python formats it: ASCII only, with `", "` and `": "` as separators.

use std::fmt::Write as _;

/// Appends a quoted string.
pub(crate) fn write_string(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            ' '..='~' => out.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a String cannot fail.
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
    out.push('"');
}

/// Returns a quoted string.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    write_string(text, &mut out);
    out
}

/// Appends `items` with `", "` between them.
pub(crate) fn write_list<T>(
    items: impl IntoIterator<Item = T>,
    out: &mut String,
    mut write: impl FnMut(T, &mut String),
) {
    for (place, item) in items.into_iter().enumerate() {
        if place > 0 {
            out.push_str(", ");
        }
        write(item, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_ascii() {
        assert_eq!(
            quoted("a\"\\\n\u{1}é😀~\u{7f}"),
            r#""a\"\\\n\u0001\u00e9\ud83d\ude00~\u007f""#
        );
        for text in ["", "plain", "é\u{10ffff}\0\u{8}\u{c}\r\t/"] {
            assert_eq!(serde_json::from_str::<String>(&quoted(text)).unwrap(), text);
        }
    }
}
