//! What a target is.

/// A parser and its name.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name, as in `make fuzz FUZZ=NAME` and `fuzz/corpus/NAME`.
    pub name: &'static str,
    /// What it takes from `fixtures/`.
    pub seeds: Seeds,
    /// Parses `bytes`, and panics if the parser contradicts itself.
    pub run: fn(bytes: &[u8]),
}

/// The fixtures that are seeds of a target.
#[derive(Clone, Copy, Debug)]
pub enum Seeds {
    /// Files whose names have one of these endings.
    Files(&'static [&'static str]),
    /// Each shard of a text format: its samples, its offsets, and the length of the offsets in four bytes.
    TextShards,
}
