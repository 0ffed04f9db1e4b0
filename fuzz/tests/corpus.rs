//! Runs every fuzz target over its seeds, and over mutations of them.
//!
//! `SHARDMILL_SEED` and `SHARDMILL_MUTATIONS` choose other mutations and more of them. A failure prints the target and
//! leaves the input in the temporary folder.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests"
)]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};

use shardmill_fuzz::{TARGETS, Target, seeds};

/// A small random number generator (xorshift), so that a failure can be reproduced from its seed.
struct Mutator(u64);

impl Mutator {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound.max(1) as u64).unwrap()
    }

    fn mutate(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = bytes.to_vec();
        for _ in 0..=self.below(3) {
            let at = self.below(out.len());
            match self.below(5) {
                0 => out.truncate(at),
                1 => out.insert(at.min(out.len()), self.byte()),
                2 if !out.is_empty() => out[at] ^= 1 << self.below(8),
                3 if !out.is_empty() => out[at] = self.byte(),
                4 if !out.is_empty() => drop(out.remove(at)),
                _ => out.push(self.byte()),
            }
        }
        out
    }

    fn byte(&mut self) -> u8 {
        [0, 1, 3, 0x7f, 0x80, 0xff, b'"', b'{'][self.below(8)]
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

fn run(target: &Target, input: &[u8]) {
    if catch_unwind(AssertUnwindSafe(|| (target.run)(input))).is_err() {
        let file = std::env::temp_dir().join(format!("fuzz-{}", target.name));
        fs::write(&file, input).unwrap();
        panic!(
            "{}: failed with the input in {}",
            target.name,
            file.display()
        );
    }
}

#[test]
fn every_target_accepts_its_seeds_and_their_mutations() {
    let seed = number("SHARDMILL_SEED", 20_250_717);
    let mutations = number("SHARDMILL_MUTATIONS", 2000);
    eprintln!("SHARDMILL_SEED={seed} SHARDMILL_MUTATIONS={mutations}");
    for target in TARGETS {
        let seeds = seeds(target).unwrap();
        assert!(!seeds.is_empty(), "{}: no seeds", target.name);
        for bytes in &seeds {
            run(target, bytes);
        }
        let mut mutator = Mutator(seed | 1);
        for _ in 0..mutations {
            let base = &seeds[mutator.below(seeds.len())];
            run(target, &mutator.mutate(base));
        }
    }
}
