//! Tests conversions that are interrupted, repeated, run concurrently or run without resources. They must leave a
//! complete dataset or none, and the final bytes are always the same.
//!
//! `SHARDMILL_KILLS` sets how many kills, stops and faults each campaign draws (default 25); `SHARDMILL_SEED` repeats
//! one. The ignored tests take long; `cargo test --test robust -- --ignored` runs them.
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
