//! Compares the engine with a writer that follows the specification one sample at a time.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod columns;
mod engine;
mod naive;
mod parts;
mod parts_done;
mod parts_gc;
mod samples;
mod tars;
