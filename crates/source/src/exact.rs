//! Whole numbers that a float of 64 bits holds exactly.

/// Whole numbers of so many digits are always exact.
pub(crate) const EXACT_DIGITS: usize = 15;

/// Whether a whole number, written as digits with or without a minus, is the same number as a float.
pub(crate) fn is_exact_text(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    digits.len() <= EXACT_DIGITS
        || text
            .parse::<f64>()
            .is_ok_and(|float| format!("{float:.0}") == text)
}

/// The same for a whole number of 64 bits.
#[expect(
    clippy::cast_possible_truncation,
    reason = "what is lost is the question; a float of that size fits 128 bits"
)]
pub(crate) const fn is_exact(value: i128) -> bool {
    value as f64 as i128 == value
}

/// What is wrong with a whole number in a column of floats.
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
    fn whole_numbers_are_exact_up_to_the_digits_of_a_float() {
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
