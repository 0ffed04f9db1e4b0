//! Compares the reference pages with the sources: error ids, limits and environment variables.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Prefixes of the names of environment variables that the program and the package read.
const VARIABLES: [&str; 18] = [
    "ALLOW_",
    "AWS_",
    "AZURE_",
    "CLOUDSDK_",
    "DATABRICKS_",
    "GCS_",
    "GOOGLE_",
    "IDENTITY_",
    "LOCAL_",
    "MASTER_",
    "MOSAICML_",
    "OMPI_COMM_WORLD_R",
    "S3_",
    "SERVICE_ACCOUNT",
    "SHARDMILL_",
    "SLURM_",
    "STORAGE_EMULATOR",
    "TORCHELASTIC_",
];

fn read(root: &Path, path: &str) -> String {
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the string literals of the sources of the program, the libraries and the package, without their tests.
pub fn literals(root: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders: Vec<PathBuf> = [
        "cli/src",
        "crates",
        "formats",
        "python/src",
        "python/shardmill",
    ]
    .map(|folder| root.join(folder))
    .into();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_dir() && !["tests", "testdata", "testing", "examples"].contains(&&*name) {
                folders.push(path);
            } else if name.ends_with(".rs") || name.ends_with(".py") {
                let text = std::fs::read_to_string(&path).expect("sources are readable");
                let text = text
                    .split("#[cfg(test)]\nmod tests {")
                    .next()
                    .unwrap_or_default();
                found.extend(text.split(['"', '\'', '\n']).map(str::to_owned));
            }
        }
    }
    found
}

/// Returns the ids that have an entry in the reference of errors.
pub fn entries(root: &Path) -> BTreeSet<String> {
    read(root, "docs/reference/errors.md")
        .lines()
        .filter_map(|line| line.strip_prefix("#### "))
        .map(str::to_owned)
        .collect()
}

/// Returns the ids in the sources that have no entry, of those families whose literals are nothing but ids.
pub fn ids_without_entry(root: &Path) -> Vec<String> {
    const FAMILIES: [&str; 9] = [
        "delta-",
        "dest-",
        "lease-",
        "parts-",
        "provenance-",
        "state-",
        "tombstones-",
        "url-",
        "usage-",
    ];
    let entries = entries(root);
    let is_id = |text: &String| {
        FAMILIES
            .iter()
            .any(|family| text.starts_with(family) && text != family)
            && text
                .bytes()
                .all(|byte| byte == b'-' || byte.is_ascii_lowercase())
    };
    let ids = literals(root).into_iter().filter(is_id);
    ids.filter(|id| !entries.contains(id)).collect()
}

/// Returns the options of the program that have no anchor in the reference of errors: `config-nulls` for `--nulls`.
pub fn options_without_anchor(root: &Path) -> Vec<String> {
    let page = read(root, "docs/reference/errors.md");
    let entries = entries(root);
    let cli = read(root, "docs/reference/cli.md");
    let options: BTreeSet<String> = cli
        .split("`--")
        .skip(1)
        .filter_map(|rest| {
            rest.split(|end: char| end != '-' && !end.is_ascii_alphanumeric())
                .next()
        })
        .map(|name| format!("config-{name}"))
        .collect();
    let has_anchor =
        |id: &String| entries.contains(id) || page.contains(&format!("<a id=\"{id}\">"));
    options.into_iter().filter(|id| !has_anchor(id)).collect()
}

/// Returns what a page names in code spans for which `is_name` holds.
fn spans(root: &Path, page: &str, is_name: impl Fn(&str) -> bool) -> BTreeSet<String> {
    read(root, page)
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|name| is_name(name))
        .map(str::to_owned)
        .collect()
}

fn is_variable(name: &str) -> bool {
    // A constant in Python.
    if name == "GCS_ERROR_NO_AUTHENTICATION" {
        return false;
    }
    let has_prefix = VARIABLES.iter().any(|prefix| name.starts_with(prefix));
    let rest = name
        .bytes()
        .all(|byte| byte == b'_' || byte.is_ascii_uppercase() || byte.is_ascii_digit());
    has_prefix && rest && !name.ends_with('_')
}

/// Returns the environment variables that only the page names, and those that only the sources name.
pub fn variables(root: &Path) -> (Vec<String>, Vec<String>) {
    let shown = spans(root, "docs/reference/environment.md", is_variable);
    let used: BTreeSet<String> = literals(root)
        .into_iter()
        .filter(|name| is_variable(name))
        .collect();
    let tests = ["SHARDMILL_SEED", "SHARDMILL_CASES", "SHARDMILL_KILLS"];
    let only_shown = shown
        .iter()
        .filter(|name| !used.contains(*name) && !tests.contains(&name.as_str()));
    let only_used = used.difference(&shown);
    (only_shown.cloned().collect(), only_used.cloned().collect())
}

/// Returns the names of limits on the page, and those in the source.
pub fn limits(root: &Path) -> (BTreeSet<String>, BTreeSet<String>) {
    let page = read(root, "docs/reference/limits.md");
    let shown = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .filter_map(|rest| rest.split('`').next())
        .map(str::to_owned)
        .collect();
    let source = read(root, "crates/core/src/limits.rs");
    let names = source
        .split("NAMES: [")
        .nth(1)
        .and_then(|rest| rest.split("];").next());
    let known = names
        .expect("the source lists the names")
        .split('"')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect();
    (shown, known)
}
