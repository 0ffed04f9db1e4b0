//! Finds problems in shards, and predicts how each reader interprets them.

mod consumers;
mod finding;
mod general;
#[cfg(test)]
mod tests;

pub use finding::{Finding, Severity, ShardFacts};
pub use general::{FieldSets, lint};
