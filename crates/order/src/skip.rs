//! Leaves out steps and samples of an epoch, so that all others stay as they are.
//!
//! A skipped step is not delivered: the next step follows at once, on all ranks. Skipped steps are ranges of samples of
//! the epoch, as [`State::sample_in_epoch`](crate::State::sample_in_epoch) counts them, so they mean the same in every
//! world with the same global batch. A skipped sample is replaced in its batch, so that batches keep their size.
//! Rows of tokens are counted like samples. The tokens of a skipped sample become padding.

use std::ops::Range;

use shardmill_core::Error;

use crate::epoch::{Entry, Epoch, SampleId};
use crate::error::{self, OrderProblem};

/// What an epoch leaves out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skip {
    /// Sorted, not empty, and disjoint.
    ranges: Vec<Range<u64>>,
    /// Sorted.
    samples: Vec<u64>,
}

impl Skip {
    /// Creates a list of ranges of samples of the epoch, which must be whole steps, and of sample ids; in any order.
    #[must_use]
    pub fn new(ranges: impl IntoIterator<Item = Range<u64>>, mut samples: Vec<u64>) -> Self {
        let mut sorted: Vec<Range<u64>> = ranges
            .into_iter()
            .filter(|range| !range.is_empty())
            .collect();
        sorted.sort_unstable_by_key(|range| (range.start, range.end));
        let mut merged: Vec<Range<u64>> = Vec::with_capacity(sorted.len());
        for range in sorted {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        samples.sort_unstable();
        samples.dedup();
        Self {
            ranges: merged,
            samples,
        }
    }
}

/// The steps of an epoch that are delivered. `E` is [`Epoch`], or [`PackedEpoch`](crate::PackedEpoch) for rows of tokens.
#[derive(Clone, Debug)]
pub struct Kept<E = Epoch> {
    epoch: E,
    /// The number of steps of the epoch, skipped ones included.
    all: u64,
    /// Skipped steps, counted like those of the epoch; sorted and disjoint.
    skipped: Vec<Range<u64>>,
    /// Skipped samples; sorted.
    samples: Vec<u64>,
}

/// What the steps of an epoch count.
pub(crate) struct Counted {
    /// `samples` or `rows`.
    pub(crate) what: &'static str,
    /// How many of the epoch were delivered before its first step.
    pub(crate) start: u64,
    /// How many a step of all ranks has.
    pub(crate) global_batch: u64,
    /// The number of steps.
    pub(crate) steps: u64,
    /// The number of samples of the dataset.
    pub(crate) samples: u64,
}

impl Epoch {
    /// Returns the steps of this epoch without the skipped ones. Ranges before the start of a resumed epoch and after
    /// its end are ignored.
    ///
    /// # Errors
    /// `InvalidInput` if a range does not consist of whole steps, or if a sample does not exist.
    pub fn without(&self, skip: &Skip) -> Result<Kept, Error> {
        let counted = Counted {
            what: "samples",
            start: self.resolved().sample_in_epoch,
            global_batch: self.global_batch(),
            steps: self.batches(),
            samples: self.shards().samples(),
        };
        Kept::new(self.clone(), skip, &counted)
    }
}

impl<E> Kept<E> {
    pub(crate) fn new(epoch: E, skip: &Skip, counted: &Counted) -> Result<Self, Error> {
        let &Counted {
            what,
            start,
            global_batch,
            steps: all,
            samples,
        } = counted;
        let mut skipped = Vec::with_capacity(skip.ranges.len());
        for range in &skip.ranges {
            if range.end <= start {
                continue;
            }
            let steps = |position: u64| {
                let past = position.checked_sub(start)?;
                past.is_multiple_of(global_batch)
                    .then_some(past / global_batch)
            };
            let (Some(first), Some(end)) = (steps(range.start), steps(range.end)) else {
                return Err(OrderProblem::Skip.at(
                    "skip",
                    format!(
                        "the {what} {} to {} of the epoch are not whole steps: a step has {global_batch}, counted from {start}",
                        range.start, range.end
                    ),
                ));
            };
            let end = end.min(all);
            if first < end {
                skipped.push(first..end);
            }
        }
        if let Some(&sample) = skip.samples.last()
            && sample >= samples
        {
            return Err(error::no_such_sample(sample, samples));
        }
        Ok(Self {
            epoch,
            all,
            skipped,
            samples: skip.samples.clone(),
        })
    }

    /// Returns the epoch, with all its steps.
    #[must_use]
    pub const fn epoch(&self) -> &E {
        &self.epoch
    }

    /// Returns the number of steps that are delivered.
    #[must_use]
    pub fn steps(&self) -> u64 {
        let skipped: u64 = self
            .skipped
            .iter()
            .map(|range| range.end - range.start)
            .sum();
        self.all - skipped
    }

    /// Returns which step of the epoch is delivered after `number` others.
    #[must_use]
    pub fn step(&self, number: u64) -> u64 {
        let mut step = number;
        for range in &self.skipped {
            if range.start > step {
                break;
            }
            step += range.end - range.start;
        }
        step
    }

    /// Returns how many steps of the epoch are passed when `delivered` steps were delivered.
    #[must_use]
    pub fn passed(&self, delivered: u64) -> u64 {
        if delivered >= self.steps() {
            return self.all;
        }
        delivered
            .checked_sub(1)
            .map_or(0, |before| self.step(before) + 1)
    }

    /// Returns whether a sample is skipped wherever it would occur.
    #[must_use]
    pub fn is_skipped(&self, sample: SampleId) -> bool {
        self.samples.binary_search(&sample.0).is_ok()
    }
}

impl Kept {
    /// Replaces the skipped samples of a rank's batch by repeating the kept sample before them, or the last one of the
    /// batch for those at its start. If the batch has no other sample, one of another rank or of the nearest step is
    /// repeated. If the epoch has no other sample at all, the batch becomes empty.
    pub fn replace(&self, step: u64, batch: &mut Vec<Entry>) {
        if self.samples.is_empty() || !batch.iter().any(|entry| self.is_skipped(entry.sample)) {
            return;
        }
        let kept = batch
            .iter()
            .rev()
            .find(|entry| !self.is_skipped(entry.sample));
        let Some(mut before) = kept.copied().or_else(|| self.any_near(step)) else {
            batch.clear();
            return;
        };
        before.repeated = true;
        for entry in batch {
            if self.is_skipped(entry.sample) {
                *entry = before;
            } else {
                before.sample = entry.sample;
            }
        }
    }

    /// Returns a kept sample of this step, of a later one, or of an earlier one.
    fn any_near(&self, step: u64) -> Option<Entry> {
        let mut cursor = self.epoch.all_ranks().with_window(1 << 10);
        let mut entries = Vec::new();
        let steps = (step..self.epoch.batches()).chain((0..step).rev());
        for step in steps {
            cursor.read(step, &mut entries);
            if let Some(found) = entries.iter().find(|entry| !self.is_skipped(entry.sample)) {
                return Some(*found);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EpochConfig, ShuffleAlgo, StreamConfig, World};

    fn config(nodes: u64, batch_size: u64) -> EpochConfig {
        let world = World {
            nodes,
            ranks_per_node: 2,
            workers_per_rank: 1,
        };
        let mut config = EpochConfig::new(vec![StreamConfig::new(&[40, 61])], batch_size, world);
        config.shuffle.enabled = true;
        config.shuffle.algo = ShuffleAlgo::Shardmill;
        config.num_canonical_nodes = Some(4);
        config
    }

    /// Returns the samples of every delivered step, sorted.
    fn delivered(epoch: &Epoch, skip: &Skip, max: u64) -> Vec<Vec<u64>> {
        let kept = epoch.without(skip).unwrap();
        let mut cursor = epoch.all_ranks();
        let numbers = 0..kept.steps().min(max);
        let steps = numbers.map(|number| {
            let mut entries = Vec::new();
            cursor.read(kept.step(number), &mut entries);
            let mut ids: Vec<u64> = entries.iter().map(|entry| entry.sample.0).collect();
            ids.sort_unstable();
            ids
        });
        steps.collect()
    }

    #[test]
    fn remaining_steps_are_unchanged_and_resume_in_any_world() {
        let first = Epoch::new(&config(1, 8)).unwrap();
        let all = delivered(&first, &Skip::default(), u64::MAX);
        assert_eq!(all.len(), 7);
        let skip = Skip::new([16..48, 80..96, 96..96], Vec::new());
        let expected = [0, 3, 4, 6].map(|step: usize| all[step].clone());
        assert_eq!(delivered(&first, &skip, u64::MAX), expected);
        let kept = first.without(&skip).unwrap();
        assert_eq!(kept.steps(), 4);
        for done in 0..4 {
            let mut resumed = config(2, 4);
            resumed.resume = Some(first.state_after(kept.passed(done)));
            let rest = Epoch::new(&resumed).unwrap();
            let done = usize::try_from(done).unwrap();
            assert_eq!(
                delivered(&rest, &skip, u64::MAX)[..3 - done.min(3)],
                expected[done..3]
            );
        }
        assert_eq!(first.state_after(kept.passed(4)).epoch, 1);
    }

    #[test]
    fn skipped_samples_are_replaced_by_their_neighbours() {
        let epoch = Epoch::new(&config(1, 4)).unwrap();
        let batch = epoch.step_of_rank(2, 1).unwrap();
        let ids = |batch: &[Entry]| -> Vec<u64> { batch.iter().map(|one| one.sample.0).collect() };
        let before = ids(&batch);
        let replaced = |gone: &[usize]| {
            let gone = gone.iter().map(|position| before[*position]).collect();
            let kept = epoch.without(&Skip::new([], gone)).unwrap();
            let mut batch = batch.clone();
            kept.replace(2, &mut batch);
            batch
        };
        let middle = replaced(&[1]);
        assert_eq!(ids(&middle), [before[0], before[0], before[2], before[3]]);
        let repeated: Vec<bool> = middle.iter().map(|entry| entry.repeated).collect();
        assert_eq!(repeated, [false, true, false, false]);
        assert_eq!(
            ids(&replaced(&[0, 1])),
            [before[3], before[3], before[2], before[3]]
        );
        // Without another sample in the batch, the other rank gives one.
        let other = epoch.step_of_rank(2, 0).unwrap();
        assert_eq!(ids(&replaced(&[0, 1, 2, 3])), [other[0].sample.0; 4]);
        // Other batches are not changed.
        let kept = epoch.without(&Skip::new([], before.clone())).unwrap();
        let mut same = other.clone();
        kept.replace(2, &mut same);
        assert_eq!(same, other);
        // Without any other sample, nothing can be given.
        let none = epoch.without(&Skip::new([], (0..101).collect())).unwrap();
        let mut batch = other;
        none.replace(2, &mut batch);
        assert!(batch.is_empty());
    }

    #[test]
    fn skip_ranges_of_partial_steps_are_rejected() {
        let epoch = Epoch::new(&config(1, 8)).unwrap();
        for range in [8..16, 16..24, 1..33] {
            let error = epoch.without(&Skip::new([range], Vec::new())).unwrap_err();
            assert_eq!(error.id(), "config-skip", "{error}");
        }
        assert_eq!(
            epoch.without(&Skip::new([], vec![3, 101])).unwrap_err(),
            error::no_such_sample(101, 101)
        );
        // Ranges after the end, and before a state, are of no concern.
        let kept = epoch
            .without(&Skip::new(std::iter::once(1600..1616), Vec::new()))
            .unwrap();
        assert_eq!(kept.steps(), epoch.batches());
        let mut resumed = config(1, 8);
        resumed.resume = Some(epoch.state_after(3));
        let rest = Epoch::new(&resumed).unwrap();
        let kept = rest
            .without(&Skip::new([5..48, 64..80], Vec::new()))
            .unwrap();
        assert_eq!(
            (rest.batches() - kept.steps(), kept.step(0), kept.step(1)),
            (1, 0, 2)
        );
    }
}
