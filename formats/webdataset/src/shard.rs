//! Reads and writes raw shards, and gives access to their samples.

mod build;
mod map;
mod scan;
#[cfg(test)]
mod tests;
mod view;

pub use build::{Profile, Rules, ShardBuilder, shard_bytes, tar_cutter};
pub use map::ShardMap;
pub use scan::ShardScan;
pub use view::{Field, ShardView, read_sample};
