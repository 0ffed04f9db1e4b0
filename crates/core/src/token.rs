//! The secrets that requests carry.

/// The fewest characters of a token that the user chooses.
const FEWEST_CHARACTERS: usize = 16;

/// Returns whether a text can be a token: at least 16 letters, digits, `-` and `_`.
#[must_use]
pub fn is_token(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    text.len() >= FEWEST_CHARACTERS && text.bytes().all(is_plain)
}

/// Compares two tokens in a time that does not depend on the position of the first difference.
#[must_use]
pub fn is_equal_token(found: &str, expected: &str) -> bool {
    let pairs = found.bytes().zip(expected.bytes());
    let differences = pairs.fold(0, |all, (one, other)| all | (one ^ other));
    found.len() == expected.len() && differences == 0
}
