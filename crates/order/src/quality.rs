//! The quality of a shuffle: what a run reads next to each other, compared with a full shuffle of the same epoch.
//!
//! A [`Probe`] reads some steps of an epoch: all of them in a small epoch, and evenly spaced runs of steps in a large
//! one. The values of a full shuffle have closed forms, with two exceptions. If an epoch does not take every sample
//! once, the distances of its full shuffle are drawn. The mean deviation of classes is that of independent draws,
//! corrected for a finite epoch.
//!
//! [`Epoch::block_choice`] predicts the quality of other shuffle blocks from a model: the samples of a block are drawn
//! from the shards of that block.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::batch_plan::Method;
use crate::epoch::Epoch;
use crate::num::{count, index, real, share, trunc};
use crate::rng::Pcg64;

/// What a probe may cost.
#[derive(Clone, Copy, Debug)]
struct Effort {
    /// The most samples that are read, unless three steps have more.
    samples: u64,
    /// The most samples that a shuffle computes, at about 50 ns each.
    computed: u64,
    /// The most runs of steps.
    runs: u64,
}

const EFFORT: Effort = Effort {
    samples: 1 << 21,
    computed: 1 << 25,
    runs: 32,
};
/// The number of steps in a long window.
const LONG_STEPS: usize = 16;
/// The pairs that are drawn for the distances of a full shuffle without a closed form.
const DRAWN_PAIRS: u64 = 1 << 17;
/// The largest epoch for which probabilities are computed as products of one factor for each sample.
const MAX_EXACT: u64 = 1 << 24;

/// A sample that a step delivers, and its shard.
#[derive(Clone, Copy, Debug)]
struct Seen {
    sample: u64,
    shard: usize,
}

/// The samples of all ranks in one step.
type Step = Vec<Seen>;

/// Some steps of an epoch, to measure the quality of its order.
#[derive(Clone, Debug)]
pub struct Probe {
    epoch: Epoch,
    /// Runs of consecutive steps.
    runs: Vec<Vec<Step>>,
}

/// The quality of an order.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Quality {
    /// The number of steps that were read.
    pub steps: u64,
    /// The number of steps of the epoch.
    pub of_steps: u64,
    /// The distances between samples that a rank receives one after the other.
    pub neighbours: Neighbours,
    /// The shards of a step, and those of several consecutive steps.
    pub windows: Vec<ShardSpread>,
}

/// The distances in storage between samples that a rank receives one after the other. The distance of two samples is the
/// difference of their numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Neighbours {
    /// The median distance.
    pub median: u64,
    /// The median distance in a full shuffle.
    pub full_shuffle_median: u64,
    /// The share of pairs that are in the same shard.
    pub same_shard: f64,
    /// The share of pairs of a full shuffle that are in the same shard.
    pub full_shuffle_same_shard: f64,
    /// All distances, by powers of two.
    pub distances: Vec<DistanceBin>,
}

/// The pairs with similar distances.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DistanceBin {
    /// The least distance. The greatest is one less than twice as much; 0 is alone.
    pub from: u64,
    /// The share of all pairs.
    pub share: f64,
    /// The share in a full shuffle.
    pub full_shuffle: f64,
}

/// How samples of consecutive steps are spread over the shards.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ShardSpread {
    /// The number of consecutive steps.
    pub steps: u64,
    /// The number of their samples.
    pub samples: u64,
    /// The mean number of distinct shards.
    pub shards: f64,
    /// The mean number of distinct shards in a full shuffle.
    pub full_shuffle_shards: f64,
    /// The variance of the shares of the shards, relative to a full shuffle: 1 for a full shuffle.
    pub excess_variance: f64,
}

/// How samples of consecutive steps are spread over classes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ClassSpread {
    /// The number of consecutive steps.
    pub steps: u64,
    /// The number of their samples.
    pub samples: u64,
    /// The mean share of samples that would have to be of another class to have the shares of the epoch.
    pub imbalance: f64,
    /// The same in a full shuffle.
    pub full_shuffle_imbalance: f64,
    /// The variance of the shares of the classes, relative to a full shuffle: 1 for a full shuffle.
    pub excess_variance: f64,
}

/// The predicted quality of a shuffle block, and the shards that it keeps in use.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BlockChoice {
    /// The shuffle block size, in samples.
    pub block: u64,
    /// The number of shards that a node needs at the same time.
    pub shards_in_use: f64,
    /// The mean number of distinct shards in a step of all ranks.
    pub shards: f64,
    /// The same in a full shuffle.
    pub full_shuffle_shards: f64,
    /// The variance of the shares of the shards in a step, relative to a full shuffle.
    pub excess_variance: f64,
}

impl Epoch {
    /// Reads steps of the order: all complete steps of up to 2^21 samples, or as many samples in evenly spaced runs.
    ///
    /// With `naive`, `shardmill` and without shuffling, reading takes less than a second. Other shuffles compute whole
    /// blocks for each run, on this many threads. They read fewer runs if blocks are large, but at least three.
    #[must_use]
    pub fn probe(&self, threads: usize) -> Probe {
        self.probe_with(threads, EFFORT)
    }

    fn probe_with(&self, threads: usize, effort: Effort) -> Probe {
        let steps = self.clean_batches().max(1).min(self.batches());
        let batch = self.global_batch().max(1);
        let (runs, length) = if steps.saturating_mul(batch) <= effort.samples {
            (1, steps)
        } else {
            let runs = effort.computed / self.cost_of_run().max(1);
            let runs = runs.clamp(3, effort.runs).min(steps);
            let length = (effort.samples / runs / batch).clamp(1, (steps / runs).max(1));
            (runs, length)
        };
        let nodes = self.inner.batch_plan.canonical_nodes;
        let window = length.saturating_mul(batch).div_ceil(nodes);
        let window = window.clamp(1 << 10, 1 << 17);
        let mut cursor = self.all_ranks().with_threads(threads).with_window(window);
        let mut entries = Vec::new();
        let mut read = Vec::new();
        for run in 0..runs {
            let start = share(steps - length, run, (runs - 1).max(1));
            let mut found = Vec::new();
            for step in start..start + length {
                cursor.read(step, &mut entries);
                found.push(self.seen(entries.iter().map(|entry| entry.sample.0)));
            }
            read.push(found);
        }
        Probe {
            epoch: self.clone(),
            runs: read,
        }
    }

    fn seen(&self, samples: impl Iterator<Item = u64>) -> Step {
        let table = &self.inner.table;
        let mut range = 0..0;
        let mut shard = 0;
        let found = samples.map(|sample| {
            if !range.contains(&sample) {
                shard = table.locate(sample).map_or(0, |(shard, _)| shard);
                range = table.range(shard);
            }
            Seen { sample, shard }
        });
        found.collect()
    }

    /// Returns about how many samples a run of steps makes the shuffles compute.
    fn cost_of_run(&self) -> u64 {
        let inner = &self.inner;
        let active = count(inner.sources.len()).min(2 * count(inner.shares.len()));
        let nodes = inner.batch_plan.canonical_nodes;
        if inner
            .sources
            .iter()
            .all(|source| source.shuffle.is_direct())
        {
            return 1;
        }
        let part = self.samples() / nodes.max(1) / active.max(1);
        let block = inner.resolved.block.saturating_mul(3);
        part.min(block).saturating_mul(nodes).saturating_mul(active)
    }

    /// Returns the number of samples that the epoch takes of each shard. With a mixture and for shards that are used in
    /// part, it is the expected number.
    fn samples_per_shard(&self) -> Vec<f64> {
        let inner = &self.inner;
        let mut masses = vec![0.0; inner.table.len()];
        if let Method::Mixture(_) = &inner.batch_plan.method {
            let mut shares = inner.shares.iter();
            let (mut end, mut part) = (0, 0.0);
            for (shard, mass) in masses.iter_mut().enumerate() {
                let range = inner.table.range(shard);
                while range.end > end {
                    let Some(share) = shares.next() else { break };
                    end += share.samples;
                    part = real(share.choose) / real(share.samples.max(1));
                }
                *mass = real(range.end - range.start) * part;
            }
            return masses;
        }
        for source in &inner.sources {
            for (range, shard) in source.units.ranges().zip(source.units.shards()) {
                if let Some(mass) = masses.get_mut(shard) {
                    *mass += real(range.end - range.start);
                }
            }
        }
        masses
    }

    /// Predicts the quality of another shuffle block, for shuffles of blocks: `py1br`, `py1e` and `shardmill`.
    ///
    /// The model is a draw from the shards of a block in each canonical node. Measured spreads are within about a tenth
    /// of it if a block has several shards.
    #[must_use]
    pub fn block_choice(&self, block: u64) -> BlockChoice {
        let (masses, samples) = (self.samples_per_shard(), real(self.samples()));
        // Shards of unequal size count as fewer shards of equal size.
        let squares: f64 = masses.iter().map(|mass| (mass / samples).powi(2)).sum();
        let shards = 1.0 / squares;
        let nodes = real(self.inner.batch_plan.canonical_nodes);
        let per_node = shards / nodes;
        let shards_per_block = (real(block) * shards / samples)
            .max(1.0)
            .min(per_node.max(1.0));
        let pool = (shards_per_block * nodes).min(shards);
        let batch = real(self.global_batch());
        let within = (1.0 - 1.0 / pool) / batch;
        let full = (1.0 - squares) / batch * remaining(batch, samples);
        let variance = within + 1.0 / pool - squares;
        let physical = real(self.resolved().world.nodes);
        BlockChoice {
            block,
            shards_in_use: (shards_per_block * (nodes / physical).max(1.0)).min(shards),
            shards: pool * (1.0 - (1.0 - 1.0 / pool).powf(batch)),
            full_shuffle_shards: distinct(&masses, self.global_batch(), self.samples()),
            excess_variance: if full > 0.0 { variance / full } else { 1.0 },
        }
    }

    /// Returns the block sizes worth a comparison: from the size of a shard, in steps of a factor of four, to a whole
    /// canonical node.
    #[must_use]
    pub fn block_sizes(&self) -> Vec<u64> {
        let shards = count(self.inner.table.len()).max(1);
        let max = self
            .samples()
            .div_ceil(self.inner.batch_plan.canonical_nodes);
        let first = (self.samples() / shards).max(1).next_power_of_two().max(2);
        let mut sizes = Vec::new();
        let mut size = first;
        while size < max {
            sizes.push(size);
            size = size.saturating_mul(4);
        }
        sizes.push(max.max(2));
        sizes
    }
}

impl Probe {
    /// Returns at most about this many samples of the probe: evenly spaced groups of 16 steps.
    #[must_use]
    pub fn thinned(&self, max: u64) -> Self {
        let groups: Vec<&[Step]> = self
            .runs
            .iter()
            .flat_map(|run| run.chunks(LONG_STEPS))
            .collect();
        let samples: usize = groups.iter().map(|group| size(group)).sum();
        let mean = (count(samples) / count(groups.len().max(1))).max(1);
        let wanted = index((max / mean).max(2)).min(groups.len());
        let chosen = (0..wanted).filter_map(|number| groups.get(number * groups.len() / wanted));
        Self {
            epoch: self.epoch.clone(),
            runs: chosen.map(|group| group.to_vec()).collect(),
        }
    }

    /// Returns the samples that were read, in the order of the steps.
    pub fn samples(&self) -> impl Iterator<Item = u64> + '_ {
        let steps = self.runs.iter().flatten();
        steps.flat_map(|step| step.iter().map(|seen| seen.sample))
    }

    /// Compares the order with a full shuffle.
    #[must_use]
    pub fn quality(&self) -> Quality {
        let masses = self.epoch.samples_per_shard();
        Quality {
            steps: count(self.runs.iter().map(Vec::len).sum()),
            of_steps: self.epoch.batches(),
            neighbours: self.neighbours(&masses),
            windows: self
                .lengths()
                .into_iter()
                .map(|steps| self.shards(steps, &masses))
                .collect(),
        }
    }

    /// Compares the classes of consecutive steps with those of a full shuffle. `class_of` returns the class of a sample.
    ///
    /// The shares of the classes in the epoch are those in the probe.
    #[must_use]
    pub fn classes(&self, class_of: &dyn Fn(u64) -> u32) -> Vec<ClassSpread> {
        let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
        for sample in self.samples() {
            *counts.entry(class_of(sample)).or_default() += 1;
        }
        let all = real(counts.values().sum::<u64>().max(1));
        let shares: BTreeMap<u32, f64> = counts
            .into_iter()
            .map(|(class, found)| (class, real(found) / all))
            .collect();
        let lengths = self.lengths();
        lengths
            .into_iter()
            .map(|steps| self.classes_of(steps, &shares, class_of))
            .collect()
    }

    /// Returns the lengths of the windows that are measured, in steps.
    fn lengths(&self) -> Vec<usize> {
        let longest = self.runs.iter().map(Vec::len).max().unwrap_or(0);
        let mut lengths = vec![1, LONG_STEPS.min(longest)];
        lengths.retain(|length| *length <= longest);
        lengths.dedup();
        lengths
    }

    fn windows(&self, steps: usize) -> impl Iterator<Item = &[Step]> {
        self.runs
            .iter()
            .flat_map(move |run| run.chunks_exact(steps))
    }

    fn neighbours(&self, masses: &[f64]) -> Neighbours {
        let ranks = index(self.epoch.resolved().world.ranks());
        let mut distances = Vec::new();
        let mut same_shard = 0;
        for run in &self.runs {
            let mut before: Vec<Option<Seen>> = Vec::new();
            for step in run {
                // The last step may be shorter, on all ranks.
                let per_rank = step.len().div_ceil(ranks).max(1);
                for (rank, part) in step.chunks(per_rank).enumerate() {
                    if before.len() <= rank {
                        before.resize(rank + 1, None);
                    }
                    for seen in part {
                        if let Some(before) = before[rank].replace(*seen) {
                            distances.push(before.sample.abs_diff(seen.sample));
                            same_shard += u64::from(before.shard == seen.shard);
                        }
                    }
                }
            }
        }
        let full = FullDistances::new(&self.epoch, masses);
        let pairs = real(count(distances.len()).max(1));
        let samples = real(self.epoch.samples());
        let together: f64 = masses.iter().map(|mass| mass * (mass - 1.0).max(0.0)).sum();
        Neighbours {
            median: median(&mut distances),
            full_shuffle_median: full.median(),
            same_shard: real(same_shard) / pairs,
            full_shuffle_same_shard: together / (samples * (samples - 1.0)).max(1.0),
            distances: bins(&distances, &full),
        }
    }

    fn shards(&self, steps: usize, masses: &[f64]) -> ShardSpread {
        let samples = self.epoch.samples();
        let shares: Vec<f64> = masses.iter().map(|mass| mass / real(samples)).collect();
        let squares: f64 = shares.iter().map(|share| share * share).sum();
        let share_of = |shard: usize| shares.get(shard).copied().unwrap_or(0.0);
        let (mut windows, mut found, mut variance) = (0.0, 0, 0.0);
        let mut shards = Vec::new();
        for window in self.windows(steps) {
            shards.clear();
            shards.extend(window.iter().flatten().map(|seen| seen.shard));
            shards.sort_unstable();
            let runs = shards.chunk_by(|one, other| one == other);
            let counts = runs.filter_map(|run| Some((share_of(*run.first()?), run.len())));
            let (distinct, deviation) = deviation(counts, squares, shards.len());
            windows += 1.0;
            found += distinct;
            variance += deviation;
        }
        let size = self.window_samples(steps);
        let full = (1.0 - squares) / real(size) * remaining(real(size), real(samples));
        ShardSpread {
            steps: count(steps),
            samples: size,
            shards: real(found) / f64::max(windows, 1.0),
            full_shuffle_shards: distinct(masses, size, samples),
            excess_variance: relative(variance / f64::max(windows, 1.0), full),
        }
    }

    fn classes_of(
        &self,
        steps: usize,
        shares: &BTreeMap<u32, f64>,
        class_of: &dyn Fn(u64) -> u32,
    ) -> ClassSpread {
        let squares: f64 = shares.values().map(|share| share * share).sum();
        let (mut windows, mut imbalance, mut variance) = (0.0, 0.0, 0.0);
        for window in self.windows(steps) {
            let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
            for seen in window.iter().flatten() {
                *counts.entry(class_of(seen.sample)).or_default() += 1;
            }
            let all = size(window).max(1);
            let of = |class: &u32| counts.get(class).copied().unwrap_or(0);
            let share_of = |class: &u32| shares.get(class).copied().unwrap_or(0.0);
            let each = counts
                .iter()
                .map(|(class, found)| (share_of(class), *found));
            variance += deviation(each, squares, all).1;
            let moved = shares
                .iter()
                .map(|(class, share)| (real(count(of(class))) / real(count(all)) - share).abs());
            imbalance += moved.sum::<f64>() / 2.0;
            windows += 1.0;
        }
        let (size, samples) = (self.window_samples(steps), real(self.epoch.samples()));
        let left = remaining(real(size), samples);
        let expected = shares.values().map(|share| mean_deviation(*share, size));
        ClassSpread {
            steps: count(steps),
            samples: size,
            imbalance: imbalance / f64::max(windows, 1.0),
            full_shuffle_imbalance: expected.sum::<f64>() / 2.0 / real(size) * left.sqrt(),
            excess_variance: relative(
                variance / f64::max(windows, 1.0),
                (1.0 - squares) / real(size) * left,
            ),
        }
    }

    /// Returns the samples of a window of so many steps.
    fn window_samples(&self, steps: usize) -> u64 {
        count(self.windows(steps).next().map_or(0, size)).max(1)
    }
}

fn size(window: &[Step]) -> usize {
    window.iter().map(Vec::len).sum()
}

/// Returns the number of groups, and the sum of the squares of their deviations from their shares. `counts` has the share
/// of each group that is present and its size; `squares` is the sum of the squares of all shares.
fn deviation(
    counts: impl Iterator<Item = (f64, usize)>,
    squares: f64,
    samples: usize,
) -> (u64, f64) {
    let samples = real(count(samples.max(1)));
    let (mut distinct, mut sum) = (0, squares);
    for (share, found) in counts {
        let part = real(count(found)) / samples;
        sum += part * part - 2.0 * part * share;
        distinct += 1;
    }
    (distinct, sum.max(0.0))
}

/// Returns a variance relative to that of a full shuffle: 1 if no order has a variance.
fn relative(variance: f64, full: f64) -> f64 {
    if full > f64::EPSILON {
        variance / full
    } else {
        1.0
    }
}

/// Returns the factor by which a draw without replacement has a smaller variance.
fn remaining(drawn: f64, of: f64) -> f64 {
    ((of - drawn) / (of - 1.0).max(1.0)).max(0.0)
}

/// Returns the expected number of distinct shards in a draw of `drawn` of `samples`. Shards have these numbers of samples.
fn distinct(masses: &[f64], drawn: u64, samples: u64) -> f64 {
    // PERF: most shards have the size of the shard before.
    let mut known = (f64::NAN, 0.0);
    let present = masses.iter().map(|mass| {
        if known.0.total_cmp(mass).is_ne() {
            known = (*mass, 1.0 - absent(*mass, drawn, samples));
        }
        known.1
    });
    present.sum()
}

/// Returns the probability that a draw of `drawn` of `samples` has none of `mass` samples.
fn absent(mass: f64, drawn: u64, samples: u64) -> f64 {
    let whole = trunc(mass.round()).unwrap_or(0);
    if whole.saturating_add(drawn) > samples {
        return 0.0;
    }
    let (few, many) = (whole.min(drawn), whole.max(drawn));
    if samples <= MAX_EXACT {
        let factors = (0..few).map(|before| real(samples - many - before) / real(samples - before));
        return factors.product();
    }
    let (few, many) = (mass.min(real(drawn)), mass.max(real(drawn)));
    let between = real(samples) - (few - 1.0).max(0.0) / 2.0;
    (1.0 - many / between).max(0.0).powf(few)
}

/// Returns the mean absolute deviation of the number of successes in `draws` draws from its mean. Source: de Moivre.
fn mean_deviation(share: f64, draws: u64) -> f64 {
    if share <= 0.0 || share >= 1.0 {
        return 0.0;
    }
    let draws = real(draws);
    let max = (draws * share).floor() + 1.0;
    let ways = ln_factorial(draws) - ln_factorial(max) - ln_factorial(draws - max);
    let ln = ways + max * share.ln() + (draws - max + 1.0) * (1.0 - share).ln();
    2.0 * max * ln.exp()
}

/// Returns the logarithm of a factorial, by Stirling's series.
fn ln_factorial(number: f64) -> f64 {
    let mut value = number + 1.0;
    let mut shift = 0.0;
    while value < 10.0 {
        shift += value.ln();
        value += 1.0;
    }
    let series = 1.0 / (12.0 * value) - 1.0 / (360.0 * value.powi(3));
    (value - 0.5) * value.ln() - value + 0.5 * std::f64::consts::TAU.ln() + series - shift
}

/// The distances between neighbours in a full shuffle.
enum FullDistances {
    /// Every sample occurs once.
    Closed { samples: u64 },
    /// Drawn distances, in order.
    Drawn(Vec<u64>),
}

impl FullDistances {
    fn new(epoch: &Epoch, masses: &[f64]) -> Self {
        let inner = &epoch.inner;
        let whole = inner.sources.iter().all(|source| source.units.is_whole());
        let samples = epoch.samples();
        let is_mixture = matches!(inner.batch_plan.method, Method::Mixture(_));
        if whole && !is_mixture && samples == inner.table.samples() {
            return Self::Closed { samples };
        }
        let mut ends = Vec::with_capacity(masses.len());
        let mut end = 0.0;
        for mass in masses {
            end += mass;
            ends.push(end);
        }
        let mut rng = Pcg64::new(u128::from(inner.resolved.seed));
        let mut draw = || {
            let at = rng.uniform(0.0, end);
            let shard = ends.partition_point(|end| *end <= at);
            let range = inner.table.range(shard.min(ends.len().saturating_sub(1)));
            let offset = rng.uniform(0.0, real(range.end - range.start));
            range.start + trunc(offset).unwrap_or(0)
        };
        let pairs = (0..DRAWN_PAIRS).map(|_| draw().abs_diff(draw()));
        let mut distances: Vec<u64> = pairs.collect();
        distances.sort_unstable();
        Self::Drawn(distances)
    }

    /// Returns the share of pairs with at most this distance.
    fn up_to(&self, distance: u64) -> f64 {
        match self {
            Self::Closed { samples } => {
                let distance = real(distance.min(samples.saturating_sub(1)));
                let samples = real(*samples);
                distance * (2.0 * samples - distance - 1.0) / (samples * (samples - 1.0)).max(1.0)
            }
            Self::Drawn(distances) => {
                let found = distances.partition_point(|found| *found <= distance);
                real(count(found)) / real(count(distances.len()).max(1))
            }
        }
    }

    /// Returns the least distance that half of the pairs do not exceed.
    fn median(&self) -> u64 {
        let max = match self {
            Self::Closed { samples } => *samples,
            Self::Drawn(distances) => distances.last().copied().unwrap_or(0),
        };
        let (mut low, mut high) = (0, max);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.up_to(middle) >= 0.5 {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }
}

fn median(distances: &mut [u64]) -> u64 {
    let middle = distances.len().saturating_sub(1) / 2;
    if distances.is_empty() {
        return 0;
    }
    *distances.select_nth_unstable(middle).1
}

/// Returns the shares of distances by powers of two, without the empty ones at the ends.
fn bins(distances: &[u64], full: &FullDistances) -> Vec<DistanceBin> {
    let mut counts = [0_u64; 65];
    for distance in distances {
        let bin = index(u64::from(u64::BITS - distance.leading_zeros()));
        counts[bin] += 1;
    }
    let all = real(count(distances.len()).max(1));
    let mut bins = Vec::new();
    for (bin, found) in counts.iter().enumerate() {
        let from = if bin == 0 { 0 } else { 1_u64 << (bin - 1) };
        let last = if bin == 0 { 0 } else { from + (from - 1) };
        let before = if from == 0 { 0.0 } else { full.up_to(from - 1) };
        bins.push(DistanceBin {
            from,
            share: real(*found) / all,
            full_shuffle: (full.up_to(last) - before).max(0.0),
        });
    }
    let is_used = |bin: &DistanceBin| bin.share > 0.0 || bin.full_shuffle > 1e-6;
    let first = bins.iter().position(is_used).unwrap_or(0);
    let end = bins.iter().rposition(is_used).map_or(0, |last| last + 1);
    bins.truncate(end);
    bins.split_off(first.min(end))
}

#[cfg(test)]
mod tests;
