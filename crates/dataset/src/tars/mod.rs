//! Finds the tar shards of a location, reads their contents and verifies them, with or without an `index.json`.

mod file;
mod listing;
mod ordered;
mod pattern;
mod repeated;
mod scan;
mod set;
#[cfg(test)]
mod tests;
mod verify;

pub use file::TarFile;
pub use listing::{folder_holds_tars, holds_tars, is_tar_name, splits_in};
pub use ordered::each_in_order;
pub use pattern::TarPattern;
pub use repeated::{RepeatedKey, RepeatedKeys};
pub(crate) use scan::{find_tars, hash_key, list_tars, scan, scan_each};
pub use set::{FoundIndex, TarSet};
pub use verify::verify_tars;
