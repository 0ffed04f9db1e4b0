//! Finds structs with many fields. Clippy counts the parameters of functions.

use std::path::Path;

/// The most fields of a struct. A larger one is nested by meaning.
pub const MAX_FIELDS: usize = 12;

/// Returns the structs with too many fields in the Rust files below a folder: file, name and number of fields.
///
/// The sources are formatted by rustfmt: fields stand one to a line, one level deeper than their struct.
pub fn wide_structs(src: &Path) -> Vec<String> {
    let mut wide = Vec::new();
    let mut folders = vec![src.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") && !is_test(&path) {
                let text = std::fs::read_to_string(&path).expect("sources are readable");
                let file = path.strip_prefix(src).unwrap_or(&path).display();
                wide.extend(
                    structs(&text)
                        .into_iter()
                        .filter(|(_, fields)| *fields > MAX_FIELDS)
                        .map(|(name, fields)| format!("{file}: {name} has {fields} fields")),
                );
            }
        }
    }
    wide.sort();
    wide
}

fn is_test(path: &Path) -> bool {
    path.components()
        .any(|part| part.as_os_str() == "tests" || part.as_os_str() == "tests.rs")
        || path.to_string_lossy().ends_with("_tests.rs")
}

/// Returns the names of the structs in a file, with their numbers of fields.
fn structs(text: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(name) = struct_name(line) else {
            continue;
        };
        let indent = line.len() - line.trim_start().len();
        let body = lines
            .by_ref()
            .take_while(|line| line.trim_start() != "}" || line.len() != indent + 1);
        found.push((name, body.filter(|line| is_field(line, indent + 4)).count()));
    }
    found
}

/// Returns the name in the line that opens the body of a struct.
fn struct_name(line: &str) -> Option<String> {
    let rest = without_visibility(line.trim_start()).strip_prefix("struct ")?;
    let end = rest.find(|letter: char| letter != '_' && !letter.is_ascii_alphanumeric())?;
    line.ends_with('{').then(|| rest[..end].to_owned())
}

fn is_field(line: &str, indent: usize) -> bool {
    let trimmed = line.trim_start();
    let name = without_visibility(trimmed);
    let end = name.find(|letter: char| letter != '_' && !letter.is_ascii_alphanumeric());
    line.len() - trimmed.len() == indent
        && end.is_some_and(|end| end > 0 && name[end..].starts_with(": "))
}

/// Removes `pub` or `pub(…)`.
fn without_visibility(text: &str) -> &str {
    let Some(rest) = text.strip_prefix("pub") else {
        return text;
    };
    match rest.strip_prefix('(') {
        Some(scope) => scope.split_once(") ").map_or(text, |(_, rest)| rest),
        None => rest.strip_prefix(' ').unwrap_or(text),
    }
}

#[test]
fn struct_fields_are_counted() {
    let text = "\
/// Two fields.
pub(crate) struct Two<'a> {
    /// One.
    pub(super) one: &'a str,
    two: HashMap<String, fn(a: u8) -> u8>,
}
struct Tuple(u8, u8);
mod inside {
    pub struct One {
        one: u8,
    }
}
";
    assert_eq!(
        structs(text),
        [("Two".to_owned(), 2), ("One".to_owned(), 1)]
    );
}
