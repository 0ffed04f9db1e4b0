//! Writes JSON as Python formats it: ASCII only, with `", "` and `": "` as separators.

use shardmill_core::write_json_string;

/// Returns a quoted string.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = Vec::new();
    write_json_string(text, &mut out);
    // INVARIANT: it is ASCII, so nothing is replaced.
    String::from_utf8_lossy(&out).into_owned()
}

/// Appends `items` with `", "` between them.
pub(crate) fn write_list<T>(
    items: impl IntoIterator<Item = T>,
    out: &mut String,
    mut write: impl FnMut(T, &mut String),
) {
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        write(item, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_strings_are_escaped_to_ascii() {
        assert_eq!(
            quoted("a\"\\\n\u{1}é😀~\u{7f}"),
            r#""a\"\\\n\u0001\u00e9\ud83d\ude00~\u007f""#
        );
        for text in ["", "plain", "é\u{10ffff}\0\u{8}\u{c}\r\t/"] {
            assert_eq!(serde_json::from_str::<String>(&quoted(text)).unwrap(), text);
        }
    }
}
