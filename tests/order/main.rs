//! The order of samples across crates: equal to the original's, the same on every world, and resumed anywhere, with every
//! state sent through the JSON that a checkpoint holds.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking; so do helpers outside of `#[test]` functions"
)]

mod chains;
mod golden;
mod resume;
mod support;
mod worlds;
