//! Checks the advice in messages: every command and option that a message names exists.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::TestDir;

/// The Rust sources of the program and of its libraries, without tests.
fn sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut folders: Vec<PathBuf> = vec![root.join("cli/src")];
    for group in ["crates", "formats"] {
        let members = fs::read_dir(root.join(group)).unwrap();
        folders.extend(members.map(|member| member.unwrap().path().join("src")));
    }
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if name == "tests" {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".rs") && !name.contains("tests") {
                let text = fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]").next().unwrap().to_owned();
                files.push((path, code));
            }
        }
    }
    files
}

/// The options that a text names.
fn options(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices("--") {
        let before = text[..at].chars().next_back();
        let name: String = text[at + 2..]
            .chars()
            .take_while(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '-')
            .collect();
        let is_option = name.starts_with(|c: char| c.is_ascii_lowercase());
        if is_option && before.is_none_or(|c| !c.is_alphanumeric() && c != '-') {
            found.insert(name.trim_end_matches('-').to_owned());
        }
    }
    found
}

/// The verbs, and the options of each with those that all of them have.
fn verbs() -> BTreeMap<String, BTreeSet<String>> {
    let dir = TestDir::new();
    let help = dir.run(&["--help"]).stdout;
    let listed = help.split("Commands:").nth(1).unwrap();
    let listed = listed.split("\n\n").next().unwrap();
    let names = listed.lines().filter_map(|line| {
        let line = line.strip_prefix("  ")?;
        line.split(' ').next().filter(|name| !name.is_empty())
    });
    let mut verbs: BTreeMap<String, BTreeSet<String>> = names
        .map(|name| (name.to_owned(), options(&dir.run(&[name, "--help"]).stdout)))
        .collect();
    for (verb, inner) in [
        ("index", "rebuild"),
        ("index", "merge"),
        ("index", "export"),
    ] {
        let more = options(&dir.run(&[verb, inner, "--help"]).stdout);
        verbs.get_mut(verb).unwrap().extend(more);
    }
    verbs
}

#[test]
fn commands_and_options_in_messages_exist() {
    let verbs = verbs();
    assert!(
        verbs.len() > 12 && verbs["gc"].contains("part"),
        "{verbs:?}"
    );
    let all: BTreeSet<&String> = verbs.values().flatten().collect();
    let (mut commands, mut named) = (0, 0);
    for (path, code) in sources() {
        // It lists options of launchers.
        if path.ends_with("args/renamed.rs") {
            continue;
        }
        // A text may go on in the next line.
        let lines = code
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        for line in lines {
            for option in options(line) {
                named += 1;
                assert!(
                    all.contains(&option),
                    "{}: --{option}: {line}",
                    path.display()
                );
            }
            for command in line.split("`shardmill ").skip(1) {
                let Some((command, _)) = command.split_once('`') else {
                    continue;
                };
                let verb = command.split(' ').next().unwrap();
                if verb.starts_with(['{', '-', 'V']) {
                    continue;
                }
                let known = verbs.get(verb);
                let known = known.unwrap_or_else(|| panic!("{}: {command}", path.display()));
                commands += 1;
                for option in options(command) {
                    assert!(known.contains(&option), "{}: {command}", path.display());
                }
            }
        }
    }
    assert!(commands > 12 && named > 60, "{commands} {named}");
}
