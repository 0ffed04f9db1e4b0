//! The old spellings of options and verbs, and the hints that name the new ones.

use std::ffi::OsString;

/// The options that have another name now: the verbs that had the old one (none for all verbs), the old name and the new
/// one.
const RENAMED: [(&[&str], &str, &str); 6] = [
    (&["convert", "inspect"], "--version", "--delta-version"),
    (&["bench"], "--split", "--subset"),
    (&["bench"], "--batches", "--max-batches"),
    (&["bench"], "--threads", "--jobs"),
    (&["lint"], "--splits", "--show-keys"),
    (&[], "--limit", "--safety-limit"),
];

/// The verbs that have another name now: the old name and the new one.
const RENAMED_VERBS: [(&str, &str); 3] = [
    ("lint", "tar lint"),
    ("fix", "tar fix"),
    ("repair", "tar repair"),
];

/// Returns the new name of a verb with the old name `verb`.
pub fn new_verb(verb: &str) -> Option<&'static str> {
    let found = RENAMED_VERBS.iter().find(|(old, _)| *old == verb);
    found.map(|(_, new)| *new)
}

/// Returns the new name of an option that `typed`, a whole command line, uses by its old name.
pub fn new_name(typed: &[OsString], option: &str) -> Option<&'static str> {
    let has = |verb: &&str| typed.iter().skip(1).any(|word| *word == **verb);
    let found = RENAMED
        .iter()
        .find(|(verbs, old, _)| *old == option && (verbs.is_empty() || verbs.iter().any(has)));
    found.map(|(_, _, new)| *new)
}
