//! Classifies files by their names.

use shardmill_core::{Error, FileClass};

use crate::SourceProblem;
use crate::options::SourceKind;

/// Returns whether a component of a name begins with `.` or `_`, as do the files that Spark, Hive and editors keep next
/// to the data. Folders called `key=value` do not count.
pub(crate) fn is_hidden(name: &str) -> bool {
    let (folders, file) = name.rsplit_once('/').unwrap_or(("", name));
    let hides = |part: &str| part.starts_with(['.', '_']);
    hides(file)
        || folders
            .split('/')
            .any(|part| hides(part) && !part.contains('='))
}

/// Returns the last component of a name.
pub(crate) fn file_of(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(_, file)| file)
}

pub(crate) fn join(directory: &str, below: &str) -> String {
    if directory.is_empty() {
        below.to_owned()
    } else {
        format!("{directory}/{below}")
    }
}

pub(crate) fn has_extension(name: &str, extensions: &[&str]) -> bool {
    name.rsplit_once('.').is_some_and(|(stem, extension)| {
        !stem.is_empty()
            && extensions
                .iter()
                .any(|known| extension.eq_ignore_ascii_case(known))
    })
}

/// Returns the kind that a file name indicates.
pub(crate) fn kind_of_name(name: &str) -> Option<SourceKind> {
    SourceKind::of_class(FileClass::of(name))
}

/// How names match a pattern.
pub(crate) const PATTERN_RULES: glob::MatchOptions = glob::MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// Builds the error about a pattern that does not parse.
pub(crate) fn bad_pattern(pattern: &str, error: &glob::PatternError) -> Error {
    let pattern = shardmill_core::escape(pattern);
    SourceProblem::Option.at(
        "SOURCE",
        format!("`{pattern}` is not a pattern: {}", error.msg),
    )
}

/// Returns whether a text contains a wildcard.
pub(crate) fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}
