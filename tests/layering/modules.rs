//! Finds import cycles between the files of a crate, from its source text.
//!
//! A file depends on the file that defines a name it uses: by `use`, or by a path that starts with `crate`, `self`,
//! `super` or a child module. Re-exports are followed to the file that defines the name, so a `lib.rs` that only lists
//! modules is in no cycle. Code under `#[cfg(test)]` is ignored.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The dependencies between the files of one crate, by their paths below its `src` folder.
pub type Arrows = BTreeMap<String, BTreeSet<String>>;

/// Reads the crate whose sources are in `src`.
pub fn arrows(src: &Path) -> Arrows {
    let tree = Tree::read(src);
    let mut arrows = Arrows::new();
    for module in tree.modules.values() {
        let targets = arrows.entry(module.file.clone()).or_default();
        for path in &module.paths {
            if let Some(target) = tree.definer(&module.path, path, 0)
                && target != module.file
            {
                targets.insert(target);
            }
        }
    }
    arrows
}

/// Returns the groups of files that import each other, directly or through others. These are the strongly connected
/// components with more than one file, each sorted.
pub fn cycles(arrows: &Arrows) -> Vec<Vec<String>> {
    let reach: BTreeMap<&str, BTreeSet<&str>> = arrows
        .keys()
        .map(|start| (start.as_str(), reachable(arrows, start)))
        .collect();
    let mut found = BTreeSet::new();
    for (file, targets) in &reach {
        let group: Vec<String> = targets
            .iter()
            .filter(|target| reach.get(*target).is_some_and(|back| back.contains(file)))
            .map(ToString::to_string)
            .collect();
        if group.len() > 1 {
            found.insert(group);
        }
    }
    found.into_iter().collect()
}

fn reachable<'a>(arrows: &'a Arrows, start: &str) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut todo = vec![start];
    while let Some(file) = todo.pop() {
        for target in arrows.get(file).into_iter().flatten() {
            if seen.insert(target.as_str()) {
                todo.push(target);
            }
        }
    }
    seen
}

/// One file: its module path, and the paths in its code.
struct Module {
    file: String,
    path: Vec<String>,
    /// Every path in the code, as its segments. The last segment may be `*`.
    paths: Vec<Vec<String>>,
    /// Names that the file exports by `pub use`, with the path of each.
    exports: BTreeMap<String, Vec<String>>,
}

/// All modules of a crate, by their paths.
struct Tree {
    modules: BTreeMap<Vec<String>, Module>,
}

impl Tree {
    fn read(src: &Path) -> Self {
        let mut modules = BTreeMap::new();
        let root = ["lib.rs", "main.rs"]
            .map(|name| src.join(name))
            .into_iter()
            .find(|file| file.is_file())
            .unwrap_or_else(|| panic!("{} has a root file", src.display()));
        let mut todo = vec![(Vec::new(), root)];
        while let Some((path, file)) = todo.pop() {
            let text = std::fs::read_to_string(&file).expect("sources are readable");
            let tokens = without_tests(tokens(&text));
            let children = declared_modules(&tokens);
            // The children of `lib.rs`, `main.rs` and `mod.rs` are in the same folder, those of `name.rs` in the folder
            // `name`.
            let folder: PathBuf = match file.file_stem().and_then(|stem| stem.to_str()) {
                Some("lib" | "main" | "mod") => file.parent().expect("a folder").to_path_buf(),
                _ => file.with_extension(""),
            };
            for child in &children {
                let found = [
                    folder.join(format!("{child}.rs")),
                    folder.join(child).join("mod.rs"),
                ]
                .into_iter()
                .find(|file| file.is_file());
                if let Some(found) = found {
                    let mut path = path.clone();
                    path.push(child.clone());
                    todo.push((path, found));
                }
            }
            let (paths, exports) = named_paths(&tokens, &children);
            let module = Module {
                file: file
                    .strip_prefix(src)
                    .expect("below src")
                    .display()
                    .to_string(),
                path: path.clone(),
                paths,
                exports,
            };
            modules.insert(path, module);
        }
        Self { modules }
    }

    /// Returns the file that defines the item of `path`, resolved from the module `from`.
    fn definer(&self, from: &[String], path: &[String], depth: usize) -> Option<String> {
        let mut at = from.to_vec();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => {
                at.clear();
                rest = &path[1..];
            }
            "self" => rest = &path[1..],
            _ => {}
        }
        while rest.first().is_some_and(|segment| segment == "super") {
            at.pop()?;
            rest = &rest[1..];
        }
        while let Some(segment) = rest.first() {
            at.push(segment.clone());
            if !self.modules.contains_key(&at) {
                at.pop();
                break;
            }
            rest = &rest[1..];
        }
        let module = self.modules.get(&at)?;
        if let Some(target) = rest.first().and_then(|name| module.exports.get(name))
            && depth < 8
            && let Some(file) = self.definer(&at, target, depth + 1)
        {
            return Some(file);
        }
        Some(module.file.clone())
    }
}

/// Returns the identifiers, strings (with their opening quote) and the punctuation of paths, items and match arms.
/// Everything else is dropped.
pub fn tokens(text: &str) -> Vec<String> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text[at..];
        let byte = bytes[at];
        if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if rest.starts_with("/*") {
            at += rest.find("*/").map_or(rest.len(), |end| end + 2);
        } else if byte == b'"' {
            let end = at + 1 + string_end(&bytes[at + 1..]);
            found.push(text[at..end].trim_end_matches('"').to_owned());
            at = end;
        } else if let Some(length) = raw_string(rest) {
            at += length;
        } else if byte == b'\'' {
            at += quote_length(rest);
        } else if byte == b'_' || byte.is_ascii_alphabetic() {
            let end = rest
                .find(|letter: char| letter != '_' && !letter.is_ascii_alphanumeric())
                .unwrap_or(rest.len());
            found.push(rest[..end].to_owned());
            at += end;
        } else if rest.starts_with("::") || rest.starts_with("=>") {
            found.push(rest[..2].to_owned());
            at += 2;
        } else {
            if b"{}();,#[]*".contains(&byte) {
                found.push(char::from(byte).to_string());
            }
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    found
}

/// Returns the length of the rest of a string literal, including its closing quote.
fn string_end(bytes: &[u8]) -> usize {
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Returns the length of the raw string literal at the start of `rest`.
fn raw_string(rest: &str) -> Option<usize> {
    let after = rest
        .strip_prefix("br")
        .or_else(|| rest.strip_prefix('r'))?
        .trim_start_matches('#');
    let start = rest.len() - after.len();
    after.strip_prefix('"')?;
    let hashes = rest[..start].matches('#').count();
    let end = format!("\"{}", "#".repeat(hashes));
    Some(
        start
            + 1
            + after[1..]
                .find(&end)
                .map_or(after.len() - 1, |at| at + end.len()),
    )
}

/// Returns the length of a character literal, or of the quote of a lifetime.
fn quote_length(rest: &str) -> usize {
    let mut letters = rest.char_indices().skip(1);
    match letters.next() {
        Some((_, '\\')) => rest[3..].find('\'').map_or(rest.len(), |end| end + 4),
        Some((_, _)) => match letters.next() {
            Some((end, '\'')) => end + 1,
            _ => 1,
        },
        None => 1,
    }
}

/// Removes every item after `#[cfg(test)]`.
pub fn without_tests(tokens: Vec<String>) -> Vec<String> {
    let attribute = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at..].len() >= attribute.len()
            && tokens[at..].iter().zip(attribute).all(|(a, b)| a == b)
        {
            at = item_end(&tokens, at + attribute.len());
        } else {
            kept.push(tokens[at].clone());
            at += 1;
        }
    }
    kept
}

/// Returns the position after the item that begins at `at`: after its `;` or its block.
fn item_end(tokens: &[String], mut at: usize) -> usize {
    let mut depth = 0_usize;
    // The braces of `use a::{b, c};` do not end the item; those of any other item do.
    let is_use = tokens[at..]
        .iter()
        .find(|token| matches!(token.as_str(), "use" | "mod" | "fn" | "impl" | "{"))
        .is_some_and(|token| token == "use");
    while at < tokens.len() {
        match tokens[at].as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => {
                depth = depth.saturating_sub(1);
                if depth == 0 && tokens[at] == "}" && !is_use {
                    return at + 1;
                }
            }
            ";" if depth == 0 => return at + 1,
            _ => {}
        }
        at += 1;
    }
    at
}

/// Returns the modules that `mod name;` declares.
fn declared_modules(tokens: &[String]) -> Vec<String> {
    tokens
        .windows(3)
        .filter(|window| window[0] == "mod" && window[2] == ";")
        .map(|window| window[1].clone())
        .collect()
}

/// Returns every path in the code, and the names that `pub use` exports with their paths.
fn named_paths(
    tokens: &[String],
    children: &[String],
) -> (Vec<Vec<String>>, BTreeMap<String, Vec<String>>) {
    let mut paths = Vec::new();
    let mut exports = BTreeMap::new();
    let mut at = 0;
    while at < tokens.len() {
        let follows = tokens.get(at + 1).is_some_and(|next| next == "::");
        let starts = at == 0 || tokens[at - 1] != "::";
        let local = matches!(tokens[at].as_str(), "crate" | "self" | "super")
            || children.contains(&tokens[at]);
        if tokens[at] == "use" {
            let public = at > 0 && (tokens[at - 1] == "pub" || tokens[at - 1] == ")");
            let mut leaves = Vec::new();
            at = use_tree(tokens, at + 1, &[], &mut leaves);
            for (path, name) in leaves {
                if public {
                    exports.insert(name, path.clone());
                }
                paths.push(path);
            }
        } else if local && follows && starts {
            let mut path = vec![tokens[at].clone()];
            while tokens.get(at + 1).is_some_and(|next| next == "::")
                && let Some(segment) = tokens.get(at + 2)
            {
                path.push(segment.clone());
                at += 2;
            }
            paths.push(path);
            at += 1;
        } else {
            at += 1;
        }
    }
    (paths, exports)
}

/// Reads one tree of a `use` item from `at`, and returns the position after it.
fn use_tree(
    tokens: &[String],
    mut at: usize,
    prefix: &[String],
    leaves: &mut Vec<(Vec<String>, String)>,
) -> usize {
    let mut path = prefix.to_vec();
    while let Some(token) = tokens.get(at) {
        match token.as_str() {
            "::" => at += 1,
            "{" => {
                at += 1;
                while tokens.get(at).is_some_and(|token| token != "}") {
                    let next = use_tree(tokens, at, &path, leaves);
                    let skips = next == at || tokens.get(next).is_some_and(|token| token == ",");
                    at = next + usize::from(skips);
                }
                return at + 1;
            }
            "as" => {
                let name = tokens.get(at + 1).cloned().unwrap_or_default();
                leaves.push((path, name));
                return at + 2;
            }
            ";" | "," | "}" => break,
            segment => {
                path.push(segment.to_owned());
                at += 1;
            }
        }
    }
    if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
        path.pop();
    }
    if let Some(name) = path.last().cloned() {
        leaves.push((path, name));
    }
    at
}

#[test]
fn import_cycle_is_found_through_re_exports() {
    let folder = std::env::temp_dir().join(format!("shardmill-modules-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("b")).expect("a folder");
    for (name, text) in [
        (
            "lib.rs",
            "mod a;\nmod b;\nmod c;\npub use b::inner::Inner;\n",
        ),
        (
            "a.rs",
            "use crate::{Inner, b::{self, Other}}; // crate::c::C\n",
        ),
        ("b.rs", "pub(crate) mod inner;\npub struct Other;\n"),
        (
            "b/inner.rs",
            "pub struct Inner; const A: char = '\\''; fn f() { super::super::a::f() }\n",
        ),
        (
            "c.rs",
            "pub struct C;\n#[cfg(test)]\nmod tests { use crate::a::A; }\nfn f() { let _ = \"crate::b::B\"; crate::a::f() }\n",
        ),
    ] {
        std::fs::write(folder.join(name), text).expect("a file");
    }
    let found = arrows(&folder);
    std::fs::remove_dir_all(&folder).expect("removed");
    let of = |file: &str| found[file].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(of("a.rs"), ["b.rs", "b/inner.rs"]);
    assert_eq!(of("b/inner.rs"), ["a.rs"]);
    assert_eq!(of("c.rs"), ["a.rs"]);
    assert_eq!(cycles(&found), [["a.rs", "b/inner.rs"]]);
}
