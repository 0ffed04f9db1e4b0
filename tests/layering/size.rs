//! Counts the lines of code of a crate: without blank lines, comments, documentation and tests.

use std::path::Path;

/// Returns the number of lines of code in the Rust files below a folder.
///
/// The sources are formatted by rustfmt: an item ends at a line with its own indentation.
pub fn code_lines(src: &Path) -> usize {
    let mut count = 0;
    for entry in std::fs::read_dir(src).into_iter().flatten() {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("tests") {
            count += code_lines(&path);
        } else if path.extension().is_some_and(|ending| ending == "rs") && !is_test(&path) {
            let text = std::fs::read_to_string(&path).expect("sources are readable");
            count += code_lines_of(&text);
        }
    }
    count
}

fn is_test(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name == "tests.rs" || name.ends_with("_tests.rs")
}

fn code_lines_of(text: &str) -> usize {
    let mut count = 0;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let code = line.trim_start();
        let indent = &line[..line.len() - code.len()];
        if code == "#[cfg(test)]" {
            let ends = [";", "}", "},"].map(|end| format!("{indent}{end}"));
            let mut item = lines
                .by_ref()
                .skip_while(|line| line.trim_start().starts_with("#["));
            let first = item.next().unwrap_or_default();
            if !first.ends_with([';', ',', '}']) {
                item.find(|line| ends.contains(&(*line).to_owned()));
            }
        } else if !code.is_empty() && !code.starts_with("//") {
            count += 1;
        }
    }
    count
}

#[test]
fn comments_blank_lines_and_tests_are_no_code() {
    let text = "//! A.\n\nfn a() {\n    // B.\n    b();\n}\n\n#[cfg(test)]\nmod tests;\n#[cfg(test)]\nmod more {\n    fn c() {}\n}\nfn d() {}\n";
    assert_eq!(code_lines_of(text), 4);
}
