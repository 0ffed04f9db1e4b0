//! The names of files with the number of a part, or of the generation of a dataset that replaced another one.

/// The minimum number of digits of a part number.
pub(crate) const PART_DIGITS: usize = 5;

/// Returns the name of a file in a dataset with parts. The part number, and in a store the token of the attempt,
/// precede the shard number.
pub(crate) fn name_in(basename: &str, prefix: &str, part: u64, token: Option<&str>) -> String {
    let rest = basename.strip_prefix(prefix).unwrap_or(basename);
    match token {
        None => format!("{prefix}{part:0PART_DIGITS$}-{rest}"),
        Some(token) => format!("{prefix}{part:0PART_DIGITS$}-{token}-{rest}"),
    }
}

/// Returns the rest of a file name after the number of a part, and the token of an attempt. `rest` follows the prefix.
pub(crate) fn without_part(rest: &str) -> &str {
    match rest.split_once('-') {
        Some((part, rest)) if part.len() >= PART_DIGITS && is_digits(part) => {
            match rest.split_once('-') {
                Some((attempt, rest)) if is_token(attempt) => rest,
                _ => rest,
            }
        }
        _ => rest,
    }
}

/// Returns the part number in a file name.
pub(crate) fn part_of(name: &str, prefix: &str) -> Option<u64> {
    let (part, rest) = name.strip_prefix(prefix)?.split_once('-')?;
    // The shard number follows, or the token of an attempt and the shard number.
    let shard = rest.split(['.', '-']).next()?;
    (part.len() >= PART_DIGITS && is_digits(part) && is_token(shard))
        .then(|| part.parse().ok())
        .flatten()
}

/// Returns whether a text has the characters of a number or of the token of an attempt.
pub(crate) fn is_token(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !text.is_empty() && text.bytes().all(is_allowed)
}

/// Returns whether a text is a number.
pub(crate) fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}
