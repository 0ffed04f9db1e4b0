//! Shortens values for messages.

use std::str::FromStr;

use shardmill_core::escape;

/// The most characters of a value that a message repeats.
const SHOWN: usize = 120;

/// Returns the start of a text that is longer than a message repeats.
fn long_start(text: &str) -> Option<&str> {
    let (end, _) = text.char_indices().nth(SHOWN)?;
    text.get(..end)
}

/// Returns a value as a message repeats it: escaped, and with `…` in place of what exceeds 120 characters.
pub(crate) fn shorten(text: &str) -> String {
    match long_start(text) {
        Some(start) => format!("{}…", escape(start)),
        None => escape(text).into_owned(),
    }
}

/// Parses a name. The error for an unknown name repeats it, so a long name is shortened first.
pub(crate) fn parse_name<T: FromStr>(name: &str) -> Result<T, T::Err> {
    // If the shortened name happens to be known, the error for the full name is used.
    name.parse().map_err(|error| {
        long_start(name)
            .and_then(|start| start.parse::<T>().err())
            .unwrap_or(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_truncated_at_a_character_with_ellipsis() {
        assert_eq!(shorten("é\n\u{1}"), "é\\u{a}\\u{1}");
        for c in ["a", "é", "\u{1}", "\u{202e}", "😀"] {
            let escaped = escape(c).into_owned();
            assert_eq!(shorten(&c.repeat(120)), escaped.repeat(120));
            assert_eq!(shorten(&c.repeat(121)), escaped.repeat(120) + "…");
        }
    }
}
