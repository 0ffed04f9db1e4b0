//! Which sample goes where.
#![allow(missing_docs, dead_code)]
pub mod config;
pub mod error;
mod num;
pub mod partition;
pub mod rng;
pub mod units;
pub mod weights;
