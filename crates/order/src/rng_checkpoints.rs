//! Stored checkpoints of the random number generator, which speed up the next start.
//!
//! Creating an order advances the generator over all samples and keeps checkpoints. They depend only on the shards,
//! the seed, the shuffle and the epoch, not on the world. A process that has them skips that step. Each section
//! contains a hash of its inputs. A section that does not match or is damaged is ignored.
//!
//! All numbers are little-endian. The file consists of `SMWALK1\n`, then for each source of samples a `u64` with the
//! length of its section, then the section. A section consists of the `u128` hash of its inputs, the checkpoint lists,
//! and a `u64` XXH3 of the section so far. A checkpoint list consists of a `u64` number of checkpoints, then the
//! checkpoints. Each is the `u64` index of an item, a `u128` state, a `u8` that is 1 if half a draw is left, and a
//! `u32` with that half.

use std::ops::Range;

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::num::{count, index};
use crate::rng::Checkpoint;
use crate::shuffle::layout::{CheckpointList, ShuffleConfig};

const MAGIC: &[u8; 8] = b"SMWALK1\n";
/// The length of a checkpoint.
const MARK: usize = 8 + 16 + 1 + 4;

/// Returns the hash of the inputs that the checkpoints depend on.
pub(crate) fn identity(units: impl Iterator<Item = Range<u64>>, config: &ShuffleConfig) -> u128 {
    let mut hasher = Xxh3::new();
    let ShuffleConfig {
        algo,
        canonical_nodes,
        seed,
        epoch,
        block,
    } = config;
    hasher.update(algo.to_string().as_bytes());
    for number in [*canonical_nodes, *seed, *epoch, *block] {
        hasher.update(&number.to_le_bytes());
    }
    for unit in units {
        hasher.update(&unit.start.to_le_bytes());
        hasher.update(&unit.end.to_le_bytes());
    }
    hasher.digest128()
}

/// Writes sections.
#[derive(Debug)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn new() -> Self {
        Self(MAGIC.to_vec())
    }

    pub(crate) fn section(&mut self, identity: u128, checkpoint_lists: &[&CheckpointList]) {
        let begin = self.0.len();
        self.0.extend([0; 8]);
        self.0.extend(identity.to_le_bytes());
        for checkpoint_list in checkpoint_lists {
            self.0.extend(checkpoint_list.len().to_le_bytes());
            for (item, checkpoint) in checkpoint_list.marks() {
                self.0.extend(count(*item).to_le_bytes());
                self.0.extend(checkpoint.state.to_le_bytes());
                self.0.push(u8::from(checkpoint.half.is_some()));
                self.0
                    .extend(checkpoint.half.unwrap_or_default().to_le_bytes());
            }
        }
        let hash = xxh3_64(&self.0[begin + 8..]);
        self.0.extend(hash.to_le_bytes());
        let bytes = count(self.0.len() - begin - 8);
        self.0[begin..begin + 8].copy_from_slice(&bytes.to_le_bytes());
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// The stored sections, for lookups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept<'a>(&'a [u8]);

impl<'a> Kept<'a> {
    /// Reads stored checkpoints; without the magic number, there are none.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes.strip_prefix(MAGIC).unwrap_or_default())
    }

    /// Returns the checkpoint lists of the section with these inputs.
    pub(crate) fn find(self, identity: u128) -> Option<CheckpointLists<'a>> {
        let mut rest = Bytes(self.0);
        while let Some(length) = rest.u64() {
            let section = rest.take(length)?;
            let (content, hash) = section.split_at_checked(section.len().checked_sub(8)?)?;
            let mut content_bytes = Bytes(content);
            if content_bytes.u128()? == identity {
                let sound = Bytes(hash).u64()? == xxh3_64(content);
                return sound.then_some(CheckpointLists(content_bytes));
            }
        }
        None
    }
}

/// The checkpoint lists of a section, in order.
#[derive(Debug)]
pub(crate) struct CheckpointLists<'a>(Bytes<'a>);

impl CheckpointLists<'_> {
    /// Returns the next list. The indexes of its items must start at 0, increase, and be below `items`.
    pub(crate) fn next(&mut self, items: usize) -> Option<CheckpointList> {
        let marks = self.0.u64()?;
        let bytes = self.0.take(marks.checked_mul(count(MARK))?)?;
        let mut checkpoint_list = Vec::with_capacity(index(marks));
        let mut after = 0;
        for mark in bytes.chunks_exact(MARK) {
            let mut mark = Bytes(mark);
            let item = usize::try_from(mark.u64()?).ok()?;
            if item >= items || item < after || (after == 0 && item > 0) {
                return None;
            }
            after = item + 1;
            let state = mark.u128()?;
            let half = mark.take(1)? == [1];
            let value = u32::from_le_bytes(mark.take(4)?.try_into().ok()?);
            checkpoint_list.push((
                item,
                Checkpoint {
                    state,
                    half: half.then_some(value),
                },
            ));
        }
        (items == 0 || !checkpoint_list.is_empty()).then(|| CheckpointList::of(checkpoint_list))
    }
}

/// Bytes that are read from the front.
#[derive(Clone, Copy, Debug)]
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, length: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn u128(&mut self) -> Option<u128> {
        Some(u128::from_le_bytes(self.take(16)?.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::{
        BatchingMethod, Entry, Epoch, EpochConfig, ShuffleAlgo, State, StreamConfig, World,
    };

    fn entries(epoch: &Epoch) -> Vec<Entry> {
        let (mut cursor, mut batch, mut all) = (epoch.all_ranks(), Vec::new(), Vec::new());
        for number in 0..epoch.batches() {
            assert!(cursor.read(number, &mut batch));
            all.append(&mut batch);
        }
        all
    }

    fn config(algo: ShuffleAlgo, shards: Vec<Vec<u64>>) -> EpochConfig {
        let streams = shards
            .iter()
            .map(|shards| StreamConfig::new(shards))
            .collect();
        let world = World {
            nodes: 2,
            ranks_per_node: 2,
            workers_per_rank: 1,
        };
        let mut config = EpochConfig::new(streams, 4, world);
        config.shuffle.enabled = true;
        config.shuffle.algo = algo;
        config.num_canonical_nodes = Some(4);
        config.shuffle.block_size = Some(300);
        config.shuffle.seed = 7;
        config.epoch = 3;
        config
    }

    fn has_checkpoints(algo: ShuffleAlgo) -> bool {
        !matches!(algo, ShuffleAlgo::Naive | ShuffleAlgo::Shardmill)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn saved_checkpoints_work_for_other_worlds_and_positions(
            algo in prop::sample::select(ShuffleAlgo::ALL.to_vec()),
            shards in prop::collection::vec(prop::collection::vec(20_u64..400, 2..30), 1..3),
            method in prop::sample::select(vec![BatchingMethod::Random, BatchingMethod::Stratified, BatchingMethod::PerStream]),
            ranks in 1_u64..4,
            sample_in_epoch in 0_u64..40,
        ) {
            let mut config = config(algo, shards);
            config.batching_method = method;
            let Ok(first) = Epoch::new(&config) else { return Ok(()) };
            let saved = first.saved_checkpoints();
            prop_assert_eq!(first.has_computed_checkpoints(), has_checkpoints(algo));
            prop_assert_eq!(saved.is_empty(), !has_checkpoints(algo));
            config.world = World { nodes: 1, ranks_per_node: ranks, workers_per_rank: 2 };
            config.resume = Some(State {
                epoch: 3,
                sample_in_epoch,
                num_canonical_nodes: Some(4),
                shuffle_seed: 7,
                initial_physical_nodes: Some(2),
            });
            let Ok(plain) = Epoch::new(&config) else { return Ok(()) };
            let kept = Epoch::with_checkpoints(&config, &saved).unwrap();
            prop_assert!(!kept.has_computed_checkpoints());
            prop_assert_eq!(entries(&kept), entries(&plain));
            prop_assert_eq!(kept.saved_checkpoints(), saved);
        }

        #[test]
        fn checkpoints_of_another_order_are_ignored(
            algo in prop::sample::select(ShuffleAlgo::ALL.to_vec()),
            shards in prop::collection::vec(20_u64..400, 2..30),
            change in 0_usize..5,
        ) {
            let config = config(algo, vec![shards.clone()]);
            let mut other = config.clone();
            match change {
                0 => other.epoch = 4,
                1 => other.shuffle.seed = 8,
                2 => other.num_canonical_nodes = Some(2),
                3 => other.shuffle.block_size = Some(301),
                _ => {
                    let mut longer = shards;
                    longer[0] += 1;
                    other.streams = vec![StreamConfig::new(&longer)];
                }
            }
            let saved = Epoch::new(&config).unwrap().saved_checkpoints();
            let kept = Epoch::with_checkpoints(&other, &saved).unwrap();
            prop_assert_eq!(kept.has_computed_checkpoints(), has_checkpoints(algo));
            prop_assert_eq!(entries(&kept), entries(&Epoch::new(&other).unwrap()));
        }

        #[test]
        fn damaged_checkpoints_are_ignored(
            algo in prop::sample::select(ShuffleAlgo::ALL.to_vec()),
            at in 0.0..1.0_f64,
            bit in 0_u32..8,
            cut in any::<bool>(),
        ) {
            let config = config(algo, vec![vec![100, 50, 70, 220], vec![90, 3000]]);
            let whole = Epoch::new(&config).unwrap();
            let mut saved = whole.saved_checkpoints();
            if saved.is_empty() {
                return Ok(());
            }
            let at = crate::num::index(crate::num::trunc(at * crate::num::real(saved.len() as u64)).unwrap());
            if cut {
                saved.truncate(at);
            } else {
                saved[at] ^= 1 << bit;
            }
            let kept = Epoch::with_checkpoints(&config, &saved).unwrap();
            prop_assert!(kept.has_computed_checkpoints());
            prop_assert_eq!(entries(&kept), entries(&whole));
        }
    }
}
