//! Conversions that are interrupted, repeated, starved and raced: what they leave is complete or nothing, and the
//! bytes at the end are always the same.
//!
//! `SHARDMILL_KILLS` says how many kills, stops and faults each campaign draws (25), `SHARDMILL_SEED` repeats one.
//! The ignored tests are long; `cargo test --test robust -- --ignored` runs them.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking; so do helpers outside of `#[test]` functions"
)]

mod changes;
mod determinism;
mod disk;
mod faults;
mod increments;
mod kill;
mod lab;
mod memory;
mod overwrite;
mod parts;
mod rerun;
mod stop;
mod stores;
mod writers;
