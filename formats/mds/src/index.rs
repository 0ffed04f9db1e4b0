//! Reads and writes `index.json`, which lists the shards of a dataset.

mod build;
mod entry;
mod parse;
#[cfg(test)]
pub(crate) mod strategy;
#[cfg(test)]
mod tests;
mod tree;

pub(crate) use build::check_unique;
pub use entry::{Index, ShardEntry};
pub(crate) use parse::parse_config;
