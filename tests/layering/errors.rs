//! Lists the stable error ids, with the kind and exit code of each, from the tables of errors, their constructors, and
//! the `Diagnostic` implementations.
//!
//! A table is an enum of the macro `problems`, or a function `facts`, whose arms are tuples that begin with the kind
//! and the id. A constructor is `Error::new`, which has both as arguments, or `Error::usage`, whose kind is
//! `InvalidInput`; ids that begin with `config-` are there those of options of the command line. An implementation has
//! a `match` in each of `kind` and `id`.
//!
//! Scripts depend on ids and exit codes. The list is in `errors.txt` next to this file, so a reviewer sees every change
//! of that interface. An id whose kind is decided at run time has the kind `*`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::modules::{tokens, without_tests};

/// Returns the lines of the list: an id and its kind, separated by a space.
pub fn read(root: &Path) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    let mut folders: Vec<_> = ["cli/src", "crates", "formats", "python/src"]
        .map(|folder| root.join(folder))
        .into();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = std::fs::read_to_string(&path).expect("sources are readable");
                lines.extend(of_file(&without_tests(tokens(&text))));
            }
        }
    }
    lines
}

fn of_file(tokens: &[String]) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for at in 0..tokens.len() {
        if tokens[at] == "impl"
            && tokens[at..]
                .iter()
                .take(8)
                .any(|token| token == "Diagnostic")
            && let Some(body) = block(tokens, at)
        {
            let kinds = function(body, "kind").map(arms).unwrap_or_default();
            let ids = function(body, "id").map(arms).unwrap_or_default();
            lines.extend(pairs(&ids, &kinds));
        }
        let is_table = matches!(
            (tokens[at].as_str(), tokens.get(at + 1).map(String::as_str)),
            ("fn", Some("facts")) | ("problems", Some("{"))
        );
        if is_table && let Some(body) = block(tokens, at) {
            lines.extend(table(body));
        }
        let is_qualified = at > 0 && tokens[at - 1] == "::";
        if let [error, separator, constructor, parenthesis, arguments @ ..] = &tokens[at..]
            && !is_qualified
            && (&**error, &**separator, &**parenthesis) == ("Error", "::", "(")
        {
            lines.extend(constructed(constructor, &elements(arguments)));
        }
    }
    lines
}

/// Returns the line of a call of a constructor of `Error`, if its id is a literal and not that of an option.
fn constructed(constructor: &str, arguments: &[&[String]]) -> Option<String> {
    let (kind, id) = match (constructor, arguments) {
        ("new", [[path, _, kind], id, ..]) if path == "ErrorKind" => (&**kind, id),
        ("new", [_, id, ..]) => ("*", id),
        ("usage", [id, ..]) => ("InvalidInput", id),
        _ => return None,
    };
    match id {
        [id] if !id.starts_with("\"config-") => Some(format!("{} {kind}", id.strip_prefix('"')?)),
        _ => None,
    }
}

/// Returns the lines of a table of facts: the arms `=> (Kind, "id", …)`.
fn table(body: &[String]) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for (at, token) in body.iter().enumerate() {
        // A block may surround the tuple.
        let block = usize::from(body.get(at + 1).is_some_and(|next| next == "{"));
        let tuple = at + 1 + block;
        if token != "=>" || body.get(tuple).is_none_or(|next| next != "(") {
            continue;
        }
        let elements = elements(&body[tuple + 1..]);
        let (Some(kind), Some(id)) = (elements.first(), elements.get(1)) else {
            continue;
        };
        let kind = match kind {
            [kind] => kind,
            [path, _, kind] if path == "ErrorKind" => kind,
            _ => "*",
        };
        let ids = id.iter().filter_map(|token| token.strip_prefix('"'));
        lines.extend(ids.map(|id| format!("{id} {kind}")));
    }
    lines
}

/// Returns the elements of a tuple, from the tokens after its opening parenthesis.
fn elements(tokens: &[String]) -> Vec<&[String]> {
    let mut found = Vec::new();
    let (mut start, mut depth) = (0, 0_usize);
    for (at, token) in tokens.iter().enumerate() {
        match token.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" if depth > 0 => depth -= 1,
            ")" => {
                found.push(&tokens[start..at]);
                break;
            }
            "," if depth == 0 => {
                found.push(&tokens[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    found
}

/// Returns the tokens between the next `{` and its `}`.
fn block(tokens: &[String], from: usize) -> Option<&[String]> {
    let start = from + tokens[from..].iter().position(|token| token == "{")?;
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(start) {
        match token.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(&tokens[start + 1..at]);
        }
    }
    None
}

fn function<'a>(body: &'a [String], name: &str) -> Option<&'a [String]> {
    let at = body
        .windows(2)
        .position(|window| window[0] == "fn" && window[1] == name)?;
    block(body, at)
}

/// Returns the values of each variant: the kinds or strings in its arm. `*` stands for a wildcard, and for a function
/// without a `match`.
fn arms(body: &[String]) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let Some(body) = body
        .iter()
        .position(|token| token == "match")
        .and_then(|at| block(body, at))
    else {
        found.insert("*".to_owned(), values(body));
        return found;
    };
    let mut at = 0;
    while let Some(arrow) = body[at..].iter().position(|token| token == "=>") {
        let pattern = &body[at..at + arrow];
        let mut end = at + arrow + 1;
        let mut depth = 0_usize;
        while let Some(token) = body.get(end) {
            match token.as_str() {
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth -= 1,
                _ => {}
            }
            end += 1;
            let closes = token == "}" && depth == 0;
            if depth == 0 && (token == "," || closes) {
                // A comma after a block belongs to the arm.
                end += usize::from(closes && body.get(end).is_some_and(|next| next == ","));
                break;
            }
        }
        let values = values(&body[at + arrow + 1..end]);
        let variants: Vec<&String> = pattern
            .windows(3)
            .filter(|window| window[0] == "Self" && window[1] == "::")
            .map(|window| &window[2])
            .collect();
        if variants.is_empty() {
            found.insert("*".to_owned(), values);
        } else {
            for variant in variants {
                found
                    .entry(variant.clone())
                    .or_default()
                    .extend(values.iter().cloned());
            }
        }
        at = end;
    }
    found
}

/// Returns the strings and kinds in an expression; `*` if there are none.
fn values(expression: &[String]) -> Vec<String> {
    let mut found: Vec<String> = expression
        .iter()
        .filter_map(|token| token.strip_prefix('"').map(str::to_owned))
        .collect();
    found.extend(
        expression
            .windows(3)
            .filter(|window| window[0] == "ErrorKind" && window[1] == "::" && window[2] != "from")
            .map(|window| window[2].clone()),
    );
    if found.is_empty() {
        found.push("*".to_owned());
    }
    found
}

fn pairs(
    ids: &BTreeMap<String, Vec<String>>,
    kinds: &BTreeMap<String, Vec<String>>,
) -> BTreeSet<String> {
    let decided_later = vec!["*".to_owned()];
    let mut found = BTreeSet::new();
    for (variant, ids) in ids {
        let kinds = kinds
            .get(variant)
            .or_else(|| kinds.get("*"))
            .unwrap_or(&decided_later);
        for id in ids.iter().filter(|id| *id != "*") {
            for kind in kinds {
                found.insert(format!("{id} {kind}"));
            }
        }
    }
    found
}
