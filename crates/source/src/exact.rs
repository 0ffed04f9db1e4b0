//! Decides which whole numbers a 64-bit float represents exactly.

/// Whole numbers with at most this many digits are always exact.
pub(crate) const EXACT_DIGITS: usize = 15;

/// Returns whether a whole number, written as digits with an optional minus, equals its nearest float.
pub(crate) fn is_exact_text(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    digits.len() <= EXACT_DIGITS
        || text
            .parse::<f64>()
            .is_ok_and(|float| format!("{float:.0}") == text)
}

/// Returns whether a float represents an integer exactly.
#[expect(
    clippy::cast_possible_truncation,
    reason = "what is lost is the question; a float of that size fits 128 bits"
)]
pub(crate) const fn is_exact(value: i128) -> bool {
    value as f64 as i128 == value
}

/// Describes a whole number that is not exact in a column of floats.
pub(crate) fn inexact(text: &str) -> String {
    format!(
        "{} is a whole number that float64, the type of the column, does not hold exactly",
        shardmill_core::escape(text)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_exact_accepts_integers_that_f64_represents() {
        for (text, exact) in [
            ("0", true),
            ("-999999999999999", true),
            ("9007199254740992", true),
            ("9007199254740993", false),
            ("-9007199254740993", false),
            ("9007199254740994", true),
            ("9223372036854775807", false),
            ("9223372036854775808", true),
            ("100000000000000000000", true),
            ("100000000000000000001", false),
        ] {
            assert_eq!(is_exact_text(text), exact, "{text}");
            assert_eq!(is_exact(text.parse().unwrap()), exact, "{text}");
        }
        assert!(!is_exact_text(&"9".repeat(400)));
    }
}
