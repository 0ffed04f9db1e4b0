//! The `shardmill` command.
fn main() {}
