//! Checks the lists of `deny.toml` that need no network: allowed licences and banned versions.
//!
//! cargo-deny is the full check; this one runs on every machine. It does not parse TOML, but relies on one entry per
//! line, which is how that file is written.

use std::collections::BTreeSet;
use std::error::Error;

use cargo_metadata::semver::VersionReq;

const DENY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deny.toml");

/// A version that must not be linked.
pub struct Ban {
    /// Package name.
    pub name: String,
    /// The banned versions.
    pub versions: VersionReq,
    /// The reason for the ban.
    pub reason: String,
}

/// Returns the text between `key = [` and the closing bracket, line by line, without comments.
fn list(key: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let text = std::fs::read_to_string(DENY)?;
    let opening = format!("{key} = [");
    let lines = text
        .lines()
        .skip_while(|line| *line != opening)
        .skip(1)
        .take_while(|line| *line != "]");
    Ok(lines
        .map(str::trim)
        .filter(|line| !line.starts_with('#'))
        .map(String::from)
        .collect())
}

/// Returns the licences that may be linked.
///
/// # Errors
/// When `deny.toml` cannot be read.
pub fn licences() -> Result<BTreeSet<String>, Box<dyn Error>> {
    Ok(list("allow")?
        .iter()
        .map(|line| line.trim_matches([',', '"']).to_owned())
        .collect())
}

/// Returns the versions that may not be linked.
///
/// # Errors
/// When `deny.toml` cannot be read, or a line has an unexpected form.
pub fn bans() -> Result<Vec<Ban>, Box<dyn Error>> {
    let quoted = |line: &str, key: &str| -> Result<String, Box<dyn Error>> {
        let after = line
            .split_once(&format!("{key} = \""))
            .ok_or_else(|| format!("no `{key}` in: {line}"))?
            .1;
        Ok(after
            .split_once('"')
            .ok_or_else(|| format!("no closing quote in: {line}"))?
            .0
            .to_owned())
    };
    let mut bans = Vec::new();
    for line in list("deny")? {
        let spec = quoted(&line, "crate")?;
        let (name, versions) = spec.split_once(':').unwrap_or((&spec, "*"));
        bans.push(Ban {
            name: name.to_owned(),
            versions: VersionReq::parse(versions)?,
            reason: quoted(&line, "reason")?,
        });
    }
    Ok(bans)
}

/// Returns whether the allowed licences satisfy an SPDX expression. The old `MIT/Apache-2.0` means `OR`.
pub fn allows(allowed: &BTreeSet<String>, expression: &str) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    any_of(allowed, &words, &mut at) && at == words.len()
}

fn any_of(allowed: &BTreeSet<String>, words: &[&str], at: &mut usize) -> bool {
    let mut holds = all_of(allowed, words, at);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        holds |= all_of(allowed, words, at);
    }
    holds
}

fn all_of(allowed: &BTreeSet<String>, words: &[&str], at: &mut usize) -> bool {
    let mut holds = one(allowed, words, at);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        holds &= one(allowed, words, at);
    }
    holds
}

fn one(allowed: &BTreeSet<String>, words: &[&str], at: &mut usize) -> bool {
    let Some(word) = words.get(*at) else {
        return false;
    };
    *at += 1;
    if *word == "(" {
        let holds = any_of(allowed, words, at);
        let closed = words.get(*at) == Some(&")");
        *at += 1;
        return holds && closed;
    }
    if words.get(*at) == Some(&"WITH") {
        let exception = words.get(*at + 1).copied().unwrap_or_default();
        *at += 2;
        return allowed.contains(&format!("{word} WITH {exception}"));
    }
    allowed.contains(*word)
}

#[test]
fn spdx_license_expressions_are_evaluated() {
    let allowed =
        BTreeSet::from(["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"].map(String::from));
    for (expression, holds) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0/MIT", true),
        ("GPL-3.0 AND MIT", false),
        ("(MIT OR GPL-3.0) AND Apache-2.0", true),
        ("(MIT OR GPL-3.0) AND BSD-3-Clause", false),
        ("MIT AND Apache-2.0 OR GPL-3.0", true),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("MIT WITH LLVM-exception", false),
        ("(MIT", false),
        ("MIT MIT", false),
        ("", false),
    ] {
        assert_eq!(allows(&allowed, expression), holds, "{expression:?}");
    }
}
