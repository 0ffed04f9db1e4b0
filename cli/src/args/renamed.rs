//! The old spellings of options and verbs, and the hints that name the new ones.

use std::ffi::OsString;

/// An option that has another name now.
struct Renamed {
    /// The verbs that had it; empty for all of them.
    verbs: &'static [&'static str],
    old: &'static str,
    new: &'static str,
}

const RENAMED: [Renamed; 6] = [
    Renamed {
        verbs: &["convert", "inspect"],
        old: "--version",
        new: "--delta-version",
    },
    Renamed {
        verbs: &["bench"],
        old: "--split",
        new: "--subset",
    },
    Renamed {
        verbs: &["bench"],
        old: "--batches",
        new: "--max-batches",
    },
    Renamed {
        verbs: &["bench"],
        old: "--threads",
        new: "--jobs",
    },
    Renamed {
        verbs: &["lint"],
        old: "--splits",
        new: "--show-keys",
    },
    Renamed {
        verbs: &[],
        old: "--limit",
        new: "--safety-limit",
    },
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
    let found = RENAMED.iter().find(|renamed| {
        renamed.old == option && (renamed.verbs.is_empty() || renamed.verbs.iter().any(has))
    });
    found.map(|renamed| renamed.new)
}
