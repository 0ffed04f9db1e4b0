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
fn bad_index_matches_catalogue() {
    group("index");
}

#[test]
fn bad_shard_matches_catalogue() {
    group("shard");
}

#[test]
fn bad_compression_matches_catalogue() {
    group("compression");
}

#[test]
fn bad_values_match_catalogue() {
    group("values");
}

#[test]
fn bad_tar_matches_catalogue() {
    group("tar");
}

#[test]
fn bad_parquet_matches_catalogue() {
    group("parquet");
}

#[test]
fn bad_state_matches_catalogue() {
    group("state");
}

#[test]
fn bad_cache_matches_catalogue() {
    group("cache");
}

#[test]
fn bad_remote_matches_catalogue() {
    group("remote");
}

#[test]
fn bad_text_matches_catalogue() {
    group("text");
}

#[test]
fn bad_tree_matches_catalogue() {
    group("tree");
}

#[test]
fn bad_config_matches_catalogue() {
    group("config");
}

/// Ids are part of the interface, because scripts match on them.
#[test]
fn error_ids_match_the_snapshot() {
    let texts: Vec<String> = GROUPS
        .iter()
        .map(|(name, cases)| catalogue(name, &cases()))
        .collect();
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => "." }, {
        insta::assert_snapshot!("catalogue", texts.join("\n"));
    });
}
