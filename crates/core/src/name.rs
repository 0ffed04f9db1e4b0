//! The names of files in a dataset, and which names from data may become paths.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The working folder of writers in a destination.
pub const WORK_FOLDER: &str = ".shardmill";

/// The file name of an index.
pub const INDEX_NAME: &str = "index.json";

/// The file name of the index of a table of Parquet files. It is hidden, because readers of Parquet read every other file
/// of a folder.
pub const TABLE_INDEX_NAME: &str = ".index.json";

/// The journal of a conversion: its finished shards until it publishes their index. In a store it is a folder of
/// objects.
pub const JOURNAL_NAME: &str = ".shardmill/journal";

/// The folder of the uncommitted parts of a conversion: their manifests, and in a directory also their shards.
pub const PARTS_FOLDER: &str = ".shardmill/parts";

/// Why a name from data is not allowed as a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The name is empty.
    #[error("the name is empty")]
    Empty,
    /// The name starts at a root or a drive.
    #[error("the name is absolute")]
    Absolute,
    /// A part is empty, `.` or `..`.
    #[error("the name has an empty, `.` or `..` part")]
    Traversal,
    /// The name has a control character, a backslash or NUL.
    #[error("the name has a control character or a backslash")]
    Character,
    /// A part is longer than 255 bytes, or the whole name is longer than 4,096.
    #[error("the name is too long")]
    TooLong,
    /// A part is reserved by an operating system (`CON`, `NUL`, …).
    #[error("the name has a reserved part")]
    Reserved,
}

impl NameError {
    /// Returns the stable error id.
    #[must_use]
    pub const fn id(self) -> &'static str {
        match self {
            Self::Empty => "path-empty",
            Self::Absolute => "path-absolute",
            Self::Traversal => "path-traversal",
            Self::Character => "path-character",
            Self::TooLong => "path-too-long",
            Self::Reserved => "path-reserved",
        }
    }
}

const RESERVED: [&str; 4] = ["con", "prn", "aux", "nul"];

fn is_reserved(part: &str) -> bool {
    let stem = part.split('.').next().unwrap_or(part);
    if RESERVED.iter().any(|name| stem.eq_ignore_ascii_case(name)) {
        return true;
    }
    let bytes = stem.as_bytes();
    bytes.len() == 4
        && (bytes[..3].eq_ignore_ascii_case(b"com") || bytes[..3].eq_ignore_ascii_case(b"lpt"))
        && (b'1'..=b'9').contains(&bytes[3])
}

/// Checks that a name from data is a plain relative path with `/` between its parts.
///
/// # Errors
///
/// Returns the [`NameError`] of the rule that the name breaks.
pub fn check_relative_path(name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.len() > 4096 {
        return Err(NameError::TooLong);
    }
    if name.chars().any(|c| c.is_control() || c == '\\') {
        return Err(NameError::Character);
    }
    let bytes = name.as_bytes();
    if name.starts_with('/')
        || (bytes.len() >= 2 && bytes[1] == b':' && bytes[0].is_ascii_alphabetic())
    {
        return Err(NameError::Absolute);
    }
    for part in name.split('/') {
        if matches!(part, "" | "." | "..") {
            return Err(NameError::Traversal);
        }
        if part.len() > 255 {
            return Err(NameError::TooLong);
        }
        if is_reserved(part) {
            return Err(NameError::Reserved);
        }
    }
    Ok(())
}

/// Escapes a name for display: control characters, invisible characters and bidirectional overrides.
#[must_use]
pub fn escape(name: &str) -> Cow<'_, str> {
    fn hides(c: char) -> bool {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
    }
    if !name.chars().any(hides) {
        return Cow::Borrowed(name);
    }
    let mut shown = String::with_capacity(name.len() + 8);
    for c in name.chars() {
        if hides(c) {
            // Writing to a String cannot fail.
            let _ = write!(shown, "{}", c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_relative_paths_are_valid() {
        for name in [
            "shard.00000.mds",
            "a/b/shard.00000.mds.zstd",
            "..a",
            "a..",
            "é.mds",
            "console.mds",
            "com.mds",
        ] {
            assert_eq!(check_relative_path(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn unsafe_relative_paths_are_errors() {
        let long = "x".repeat(256);
        let deep = "x/".repeat(2100);
        for (name, error) in [
            ("", NameError::Empty),
            ("/etc/passwd", NameError::Absolute),
            ("C:/x", NameError::Absolute),
            ("c:x", NameError::Absolute),
            ("../x", NameError::Traversal),
            ("a/../../x", NameError::Traversal),
            ("a//b", NameError::Traversal),
            ("./a", NameError::Traversal),
            ("a/", NameError::Traversal),
            ("a\\b", NameError::Character),
            ("a\0b", NameError::Character),
            ("a\nb", NameError::Character),
            ("NUL", NameError::Reserved),
            ("a/con.mds", NameError::Reserved),
            ("LPT1.txt", NameError::Reserved),
            (long.as_str(), NameError::TooLong),
            (deep.as_str(), NameError::TooLong),
        ] {
            assert_eq!(check_relative_path(name), Err(error), "{name:?}");
        }
    }

    #[test]
    fn control_characters_in_names_are_escaped() {
        assert_eq!(escape("plain é"), "plain é");
        assert_eq!(escape("a\x1b[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(escape("gpj\u{202e}exe"), "gpj\\u{202e}exe");
    }
}
