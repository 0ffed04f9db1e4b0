//! Finds the tar shards of a location, reads their contents and verifies them, with or without an `index.json`.

mod described;
mod file;
mod ordered;
mod pattern;
mod repeated;
mod scan;
mod set;
#[cfg(test)]
mod tests;
mod verify;

pub use file::TarFile;
pub use ordered::each_in_order;
pub use pattern::TarPattern;
pub use repeated::{RepeatedKey, RepeatedKeys};
pub(crate) use scan::{find_tars, hash_key, list_tars, scan, scan_each};
pub use set::{FoundIndex, TarSet};
pub use verify::verify_tars;
