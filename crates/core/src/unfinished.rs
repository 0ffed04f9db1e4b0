//! Detects an unfinished conversion in a folder that has no index.

use std::fmt;

use crate::advice::shell_word;
use crate::name::{JOURNAL_NAME, PARTS_FOLDER};

/// What an unfinished conversion left in a folder that has no index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfinished {
    /// The journal of a conversion that was interrupted.
    Conversion,
    /// Manifests of parts that were not committed.
    Parts,
}

impl Unfinished {
    /// Finds what an unfinished conversion left, by the names of the files below a folder.
    ///
    /// ```
    /// use shardmill_core::Unfinished;
    ///
    /// let names = ["shard.00000.mds", ".shardmill/journal"];
    /// assert_eq!(Unfinished::among(names), Some(Unfinished::Conversion));
    /// assert_eq!(Unfinished::among(["shard.00000.mds"]), None);
    /// ```
    pub fn among<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let mut found = None;
        for name in names {
            if Self::is_journal(name) {
                return Some(Self::Conversion);
            }
            if Self::is_manifest(name) {
                found = Some(Self::Parts);
            }
        }
        found
    }

    /// Returns whether a name is that of a journal, or in a store of one of its objects.
    #[must_use]
    pub fn is_journal(name: &str) -> bool {
        let rest = name.strip_prefix(JOURNAL_NAME);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Returns whether a name is that of the manifest of a part.
    #[must_use]
    pub fn is_manifest(name: &str) -> bool {
        let rest = name.strip_prefix(PARTS_FOLDER);
        let file = rest.and_then(|rest| rest.strip_prefix('/'));
        file.is_some_and(|file| file.ends_with(".json") && !file.contains('/'))
    }

    /// Returns the stable id of the error.
    #[must_use]
    pub const fn id(self) -> &'static str {
        match self {
            Self::Conversion => "dest-unfinished",
            Self::Parts => "parts-uncommitted",
        }
    }

    /// Returns what the user can do about it. `dest` is the folder as the user writes it.
    #[must_use]
    pub fn hint(self, dest: &str) -> String {
        let dest = shell_word(dest);
        match self {
            Self::Conversion => format!(
                "run the conversion again, and it continues; or remove what it left with `shardmill gc {dest} --delete`"
            ),
            Self::Parts => format!(
                "run `shardmill commit {dest}` when all parts are there; `shardmill gc {dest}` lists them"
            ),
        }
    }
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Conversion => "a conversion into it is not finished, and shards are missing",
            Self::Parts => "it holds uncommitted parts of a conversion",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_journals_and_part_manifests_mark_unfinished_work() {
        for (name, expected) in [
            (".shardmill/journal", Some(Unfinished::Conversion)),
            (".shardmill/journal/0", Some(Unfinished::Conversion)),
            (".shardmill/journals", None),
            (".shardmill/lease", None),
            (".shardmill/parts/a-00000.json", Some(Unfinished::Parts)),
            (".shardmill/parts/a-00000-b/shard.mds", None),
            (".shardmill/parts/a-00000-b/x.json", None),
            ("a/.shardmill/journal", None),
        ] {
            assert_eq!(Unfinished::among([name]), expected, "{name}");
        }
        let both = [".shardmill/parts/a-0.json", ".shardmill/journal"];
        assert_eq!(Unfinished::among(both), Some(Unfinished::Conversion));
    }
}
