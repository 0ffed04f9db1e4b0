//! Tests bad input of every kind through the command line. It must give a named error with its exit code, without a
//! panic or partial output, within bounds of time and memory.
//!
//! Each group is a table of cases: the damage, the commands that run on it, their exit code, the id of the error, and
//! what the error line must name. `catalogue.snap` lists all cases, so that a changed id is noticed.
//! `SHARDMILL_CASE=words` runs the cases with these words in their name.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking; so do helpers outside of `#[test]` functions"
)]

mod case;
mod compression;
mod config;
mod index;
mod parquet;
mod sets;
mod shard;
mod tables;
mod tar;
mod text;
mod training;
mod tree;
mod values;

use case::{Case, catalogue, run};

/// A group of the catalogue: its name, and the function that creates its cases.
type Group = (&'static str, fn() -> Vec<Case>);

const GROUPS: [Group; 12] = [
    ("index", index::cases),
    ("shard", shard::cases),
    ("compression", compression::cases),
    ("values", values::cases),
    ("parquet", parquet::cases),
    ("text", text::cases),
    ("tree", tree::cases),
    ("tar", tar::cases),
    ("config", config::cases),
    ("state", training::states),
    ("cache", training::caches),
    ("remote", training::remotes),
];

fn group(name: &str) {
    let (_, cases) = GROUPS.iter().find(|(group, _)| *group == name).unwrap();
    run(name, &cases());
}

#[test]
fn index() {
    group("index");
}

#[test]
fn shard() {
    group("shard");
}

#[test]
fn compression() {
    group("compression");
}

#[test]
fn values() {
    group("values");
}

#[test]
fn tar() {
    group("tar");
}

#[test]
fn parquet() {
    group("parquet");
}

#[test]
fn state() {
    group("state");
}

#[test]
fn cache() {
    group("cache");
}

#[test]
fn remote() {
    group("remote");
}

#[test]
fn text() {
    group("text");
}

#[test]
fn tree() {
    group("tree");
}

#[test]
fn config() {
    group("config");
}

/// Ids are part of the interface, because scripts match on them.
#[test]
fn ids_are_stable() {
    let texts: Vec<String> = GROUPS
        .iter()
        .map(|(name, cases)| catalogue(name, &cases()))
        .collect();
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => "." }, {
        insta::assert_snapshot!("catalogue", texts.join("\n"));
    });
}
