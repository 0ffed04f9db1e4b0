//! Random numbers.

use std::hash::{BuildHasher as _, RandomState};

/// Returns a number that differs with each call and that other processes cannot guess: the keys of a `RandomState`
/// come from the operating system. A forked child has the keys of its parent, but not its process id.
#[must_use]
pub fn random_number() -> u64 {
    RandomState::new().hash_one(std::process::id())
}
