//! Counts words of an earlier style that have a plain replacement, in prose, messages and names.
//!
//! The list pairs each word with its replacement. `rooms::REPLACED_WORDS` has the number that each area may still have.
//! The numbers only go down.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The words to replace, in lower case, and their replacements. They match whole words.
pub const REPLACED: &[(&str, &str)] = &[
    ("data set", "dataset"),
    ("data sets", "datasets"),
    ("passed over", "ignored"),
    ("passes over", "ignores"),
    ("lets go of", "releases"),
    ("let go of", "released"),
    ("gone on with", "continued"),
    ("goes on", "continues"),
    ("is told", "receives, learns"),
    ("are told", "receive, learn"),
    ("nobody", "no process, no caller"),
    ("somebody", "another process, a user"),
    ("sign of life", "heartbeat"),
    ("himself", "itself"),
    ("on its way", "in flight"),
    ("on their way", "in flight"),
    ("who has", "name the process or user"),
    ("who is", "name the process or user"),
    ("voucher", "verified stamp"),
    ("vouches", "verifies"),
    ("pulse", "heartbeat"),
    ("foresight", "prefetch planner"),
    ("residency", "shard cache"),
    ("heir", "post-exit hold"),
    ("crew", "worker pool"),
    ("datums", "encoded column"),
];

/// Returns how often each word occurs, for each area that has one: a crate, `docs`, `python`, `tests` and so on.
pub fn count(root: &Path) -> BTreeMap<String, BTreeMap<&'static str, usize>> {
    let mut counts: BTreeMap<String, BTreeMap<&'static str, usize>> = BTreeMap::new();
    for file in tracked(root) {
        let Ok(text) = std::fs::read_to_string(root.join(&file)) else {
            continue;
        };
        let text = words(&text);
        for (word, _) in REPLACED {
            let found = text.matches(&format!(" {word} ")).count();
            if found > 0 {
                *counts
                    .entry(area(&file).to_owned())
                    .or_default()
                    .entry(word)
                    .or_default() += found;
            }
        }
    }
    counts
}

/// Returns the text in lower case with a space around each word, so that ` a b ` is found across line breaks. Names are
/// split at their underscores.
fn words(text: &str) -> String {
    let mut words = String::from(" ");
    for word in text
        .split(|letter: char| !letter.is_alphanumeric())
        .filter(|word| !word.is_empty())
    {
        words.push_str(&word.to_lowercase());
        words.push(' ');
    }
    words
}

/// Returns source, documentation and test files under version control, except this list of words.
fn tracked(root: &Path) -> Vec<String> {
    let listed = Command::new("git")
        .args([
            "ls-files", "*.rs", "*.py", "*.pyi", "*.md", "*.sh", "Makefile",
        ])
        .current_dir(root)
        .output()
        .expect("git runs");
    assert!(
        listed.status.success(),
        "the sources are in a git repository"
    );
    String::from_utf8(listed.stdout)
        .expect("names are UTF-8")
        .lines()
        .filter(|file| *file != "tests/layering/glossary.rs" && !file.starts_with("fixtures/"))
        .map(str::to_owned)
        .collect()
}

/// Returns the folder that a file's count belongs to: `crates/NAME`, `formats/NAME`, or the first folder.
fn area(file: &str) -> &str {
    let depth = if file.starts_with("crates/") || file.starts_with("formats/") {
        2
    } else {
        1
    };
    file.match_indices('/')
        .nth(depth - 1)
        .map_or(".", |(end, _)| &file[..end])
}

#[test]
fn words_are_split_across_lines_and_inside_identifiers() {
    assert_eq!(
        words("A data\n// set of the_heir's"),
        " a data set of the heir s "
    );
    assert_eq!(area("crates/order/src/lib.rs"), "crates/order");
    assert_eq!(area("cli/src/main.rs"), "cli");
    assert_eq!(area("README.md"), ".");
}
