//! Finds problems in shards, and predicts how each reader interprets them.

mod consumers;
mod finding;
mod fix;
mod general;
mod repair;
#[cfg(test)]
mod tests;

pub use finding::{Finding, Severity, ShardFacts};
pub use fix::{Change, Fixed, fix};
pub use general::{Lint, Split, splits};
pub use repair::{Lost, Repaired, repair};
