//! Sampling and resampling: how often each shard is used, and which of its samples.
//!
//! An epoch is a list of *units*: whole shards, or random parts of shards. Positions in the list of all units are *big
//! ids*, in contrast to sample ids. The content of a partial unit is not stored. Only the generator checkpoint is, and
//! the draw is repeated when the unit is read.
//!
//! Source: MosaicML Streaming 0.13, `streaming/base/sampling.py` and `dataset.py` (`resample_streams`). Differs in
//! that products are 128 bits wide where the original may overflow, and in what is stored.

use std::collections::BTreeMap;
use std::ops::Range;

use shardmill_core::Error;

use crate::error;
use crate::num::{count, index, low32, room, share};
use crate::rng::{Checkpoint, Pcg64};
use crate::weights::check_samples;

/// The inputs of sampling, besides the shards.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// The seed of the run.
    pub seed: u64,
    /// The epoch.
    pub epoch: u64,
    /// Whether the number of samples of each shard depends on the epoch.
    pub epoch_counts: bool,
    /// Whether the members of a partial unit depend on the epoch.
    ///
    /// COMPAT: true for `balanced` even without shuffling, although the counts then stay the same.
    pub epoch_members: bool,
    /// How many samples at a time are drawn from a shard.
    pub granularity: u64,
}

impl Sampling {
    fn generator(&self, with_epoch: bool) -> Pcg64 {
        let epoch = if with_epoch { self.epoch } else { 0 };
        Pcg64::new(u128::from(self.seed) + u128::from(epoch))
    }
}

/// Returns how many samples of each shard make up `choose`; the sum of `sizes` must not be 0.
///
/// Needs 4 bytes per pick (a sample, or `granularity` samples) unless `choose` is a multiple of the stream's size.
///
/// # Errors
/// `Resource` if there is not enough memory.
pub fn counts(sizes: &[u64], choose: u64, sampling: &Sampling) -> Result<Vec<u64>, Error> {
    counts_of(sizes, choose, sampling, EmptyShards::Stored)
}

/// The reason that shards are empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EmptyShards {
    /// The index says so.
    Stored,
    /// None of their samples is read. The counts are those of a stream without these shards.
    NotRead,
}

fn counts_of(
    sizes: &[u64],
    choose: u64,
    sampling: &Sampling,
    empty: EmptyShards,
) -> Result<Vec<u64>, Error> {
    let total: u64 = sizes.iter().sum();
    if total == 0 || choose.is_multiple_of(total) {
        let whole = sizes.iter().map(|size| share(choose, *size, total.max(1)));
        return Ok(whole.collect());
    }
    let step = sampling.granularity;
    let mut first_pick = Vec::with_capacity(sizes.len() + 1);
    let mut picks = 0_u64;
    for size in sizes {
        first_pick.push(picks);
        picks += size.div_ceil(step);
    }
    first_pick.push(picks);
    let mut out: Vec<u64> = sizes.iter().map(|size| size * (choose / total)).collect();
    let mut left = choose % total;
    // With picks of one sample, only their set matters and not their order, so the rest of the shuffle is skipped.
    let enough = if step == 1 { left } else { 0 };
    // COMPAT: an empty shard overwrites the size of the pick before it with a full pick. A shard's last pick may then
    // exceed what is left of the shard.
    let pick_size = |shard: usize, pick: u64| {
        let last = first_pick[shard + 1] - 1;
        let before_empty =
            empty == EmptyShards::Stored && sizes.get(shard + 1).is_some_and(|next| *next == 0);
        if pick == last && !before_empty {
            sizes[shard] - (last - first_pick[shard]) * step
        } else {
            step
        }
    };
    let mut take = |pick: u64| {
        let shard = first_pick.partition_point(|first| *first <= pick) - 1;
        let taken = pick_size(shard, pick).min(left);
        out[shard] += taken;
        left -= taken;
        left > 0
    };
    let mut rng = sampling.generator(sampling.epoch_counts);
    // PERF: needs half the memory if the picks fit into 32 bits, which they do below 4 billion samples.
    if u32::try_from(picks).is_ok() {
        let mut order = room(picks, "the picks of a fractional share")?;
        order.extend(0..low32(picks));
        rng.shuffle_from(&mut order, index(enough));
        for pick in order {
            if !take(u64::from(pick)) {
                break;
            }
        }
    } else {
        let mut order = room(picks, "the picks of a fractional share")?;
        order.extend(0..picks);
        rng.shuffle_from(&mut order, index(enough));
        for pick in order {
            if !take(pick) {
                break;
            }
        }
    }
    Ok(out)
}

/// The shards of all streams in one sequence, with the start of each in the space of sample ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardTable {
    /// The first sample id of each shard, then the number of samples.
    starts: Vec<u64>,
}

impl ShardTable {
    pub(crate) fn new<'a>(streams: impl IntoIterator<Item = &'a [u64]>) -> Self {
        let mut starts = vec![0];
        let mut next = 0;
        for sizes in streams {
            for size in sizes {
                next += size;
                starts.push(next);
            }
        }
        Self { starts }
    }

    /// Returns the number of shards in all streams.
    #[must_use]
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns whether there are no shards.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of samples in all streams.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.starts[self.len()]
    }

    /// Returns the sample ids of a shard; empty for a shard that does not exist.
    #[must_use]
    pub fn range(&self, shard: usize) -> Range<u64> {
        match (self.starts.get(shard), self.starts.get(shard + 1)) {
            (Some(start), Some(stop)) => *start..*stop,
            _ => 0..0,
        }
    }

    /// Returns the shard that contains a sample and the sample's index in it; `None` after the end.
    #[must_use]
    pub fn locate(&self, sample: u64) -> Option<(usize, u64)> {
        let after = self.starts.partition_point(|start| *start <= sample);
        if after == self.starts.len() {
            return None;
        }
        Some((after - 1, sample - self.starts[after - 1]))
    }
}

/// The most units of an epoch: 16 million shards, each used eight times; 1.5 GiB.
const MAX_UNITS: u32 = 1 << 27;

/// The units of an epoch or of one stream in it; maps big ids to sample ids.
#[derive(Clone, Debug)]
pub struct Units {
    /// The first big id of each unit, then the number of samples.
    starts: Vec<u64>,
    /// The shard of each unit.
    shards: Vec<u32>,
    /// The generator checkpoint of each partial unit.
    partial: BTreeMap<u32, Checkpoint>,
    /// Any copy of the generator of the draws.
    rng: Pcg64,
    /// Set if every shard is used exactly once and whole: a sample id is then the big id plus this offset.
    offset: Option<u64>,
}

impl Units {
    /// Creates one unit of each of these sizes. An empty unit takes part in the shuffling of units.
    ///
    /// # Errors
    /// `InvalidInput` for more than 2^27 units or 2^48 samples.
    pub fn of_sizes(sizes: &[u64]) -> Result<Self, Error> {
        let mut units = Self {
            starts: vec![0],
            shards: Vec::with_capacity(sizes.len()),
            partial: BTreeMap::new(),
            rng: Pcg64::new(0),
            offset: Some(0),
        };
        let mut next = 0_u64;
        for (shard, size) in sizes.iter().enumerate() {
            next = next.saturating_add(*size);
            let name = u32::try_from(shard).map_err(|_| too_many(count(shard)))?;
            units.push(name, next)?;
        }
        check_samples("samples", next)?;
        Ok(units)
    }

    /// Draws `choose` samples of each given stream; streams are ranges of shards in `table`.
    ///
    /// # Errors
    /// `InvalidInput` if nothing is chosen or there are more than 2^27 units; `Resource` without enough memory.
    pub fn resample(
        table: &ShardTable,
        streams: &[(Range<usize>, u64)],
        sampling: &Sampling,
    ) -> Result<Self, Error> {
        let streams = streams.iter().cloned();
        Self::resample_streams(
            table,
            streams.map(|stream| (stream, EmptyShards::Stored)),
            sampling,
        )
    }

    /// Like [`resample`](Self::resample), with the reason that shards of each stream are empty.
    pub(crate) fn resample_streams(
        table: &ShardTable,
        streams: impl Iterator<Item = ((Range<usize>, u64), EmptyShards)> + Clone,
        sampling: &Sampling,
    ) -> Result<Self, Error> {
        let mut rng = sampling.generator(sampling.epoch_members);
        let mut units = Self {
            starts: vec![0],
            shards: Vec::new(),
            partial: BTreeMap::new(),
            rng: rng.clone(),
            offset: None,
        };
        let mut plain = true;
        let mut next = 0_u64;
        for ((shards, choose), empty) in streams.clone() {
            let sizes: Vec<u64> = shards.clone().map(|shard| size(table, shard)).collect();
            let counts = counts_of(&sizes, choose, sampling, empty)?;
            for ((shard, size), wanted) in shards.zip(sizes).zip(counts) {
                plain &= size == wanted;
                if size == 0 {
                    continue;
                }
                let name = u32::try_from(shard).map_err(|_| too_many(count(shard)))?;
                for _ in 0..wanted / size {
                    next += size;
                    units.push(name, next)?;
                }
                let rest = wanted % size;
                if rest > 0 {
                    let unit = units.push(name, next + rest)?;
                    next += rest;
                    units.partial.insert(unit, rng.checkpoint());
                    rng.skip_choice(size, rest);
                }
            }
        }
        if next == 0 {
            return Err(error::nothing_chosen());
        }
        if plain {
            let mut firsts = streams.map(|((shards, _), _)| shards.start);
            units.offset = firsts.next().map(|first| table.range(first).start);
        }
        Ok(units)
    }

    fn push(&mut self, shard: u32, stop: u64) -> Result<u32, Error> {
        let unit = u32::try_from(self.shards.len())
            .ok()
            .filter(|unit| *unit < MAX_UNITS)
            .ok_or_else(|| too_many(count(self.shards.len())))?;
        self.shards.push(shard);
        self.starts.push(stop);
        Ok(unit)
    }

    /// Returns the number of samples of all units.
    pub fn samples(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Returns the big ids of each unit, in order.
    pub fn ranges(&self) -> impl ExactSizeIterator<Item = Range<u64>> + '_ {
        self.starts.windows(2).map(|pair| pair[0]..pair[1])
    }

    /// Returns the shard that a big id belongs to.
    pub fn shard_of(&self, big: u64) -> Option<usize> {
        let unit = self
            .starts
            .partition_point(|start| *start <= big)
            .checked_sub(1)?;
        self.shards
            .get(unit)
            .and_then(|shard| usize::try_from(*shard).ok())
    }

    /// Returns the big ids of a sample, given by its shard and its index in it. There are none if the sample is not
    /// drawn, and several if the shard is repeated. Takes a step per unit.
    pub(crate) fn big_ids(
        &self,
        table: &ShardTable,
        shard: usize,
        index_in_shard: u64,
    ) -> Vec<u64> {
        let Ok(name) = u32::try_from(shard) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for (unit, range) in self.ranges().enumerate() {
            if self.shards.get(unit) != Some(&name) {
                continue;
            }
            let index_in_unit = match self.partial.get(&low32(count(unit))) {
                None => Some(index_in_shard),
                Some(checkpoint) => {
                    let drawn =
                        self.members(*checkpoint, size(table, shard), range.end - range.start);
                    drawn.binary_search(&index_in_shard).ok().map(count)
                }
            };
            found.extend(index_in_unit.map(|offset| range.start + offset));
        }
        found
    }

    /// Converts big ids to sample ids in place; ids after the end stay unchanged.
    pub fn resolve(&self, table: &ShardTable, memory: &mut Drawn, ids: &mut [u64]) {
        if let Some(offset) = self.offset {
            for id in ids {
                *id += offset;
            }
            return;
        }
        let mut unit = usize::MAX;
        for id in ids {
            let inside = self.starts.get(unit).is_some_and(|start| *start <= *id)
                && self
                    .starts
                    .get(unit.wrapping_add(1))
                    .is_some_and(|stop| *id < *stop);
            if !inside {
                unit = self
                    .starts
                    .partition_point(|start| *start <= *id)
                    .wrapping_sub(1);
            }
            let (Some(shard), Some(start)) = (self.shards.get(unit), self.starts.get(unit)) else {
                continue;
            };
            let samples = table.range(usize::try_from(*shard).unwrap_or(usize::MAX));
            let index_in_unit = *id - start;
            let name = low32(count(unit));
            *id = samples.start
                + match self.partial.get(&name) {
                    None => index_in_unit,
                    Some(checkpoint) => {
                        let rest = self.starts[unit + 1] - start;
                        memory.member(name, index_in_unit, || {
                            self.members(*checkpoint, samples.end - samples.start, rest)
                        })
                    }
                };
        }
    }

    /// Returns the sorted members of a partial unit, as indexes in its shard.
    fn members(&self, checkpoint: Checkpoint, size: u64, rest: u64) -> Vec<u64> {
        // INVARIANT: `rest` is a remainder modulo `size`, so the choice exists.
        let mut members = self
            .rng
            .at(checkpoint)
            .choice(size, rest)
            .unwrap_or_default();
        members.sort_unstable();
        members
    }
}

fn size(table: &ShardTable, shard: usize) -> u64 {
    let samples = table.range(shard);
    samples.end - samples.start
}

fn too_many(value: u64) -> Error {
    error::bad_value("shards", value, "at most 2^27 shards, repetitions counted")
}

/// The drawn members of partial units, kept so that a window draws them only once.
#[derive(Clone, Debug, Default)]
pub struct Drawn {
    units: BTreeMap<u32, Vec<u64>>,
    member_count: usize,
}

/// The number of drawn members above which all are discarded: 32 MiB.
const MAX_DRAWN: usize = 1 << 22;

impl Drawn {
    fn member(&mut self, unit: u32, index_in_unit: u64, draw: impl FnOnce() -> Vec<u64>) -> u64 {
        if !self.units.contains_key(&unit) {
            if self.member_count > MAX_DRAWN {
                self.units.clear();
                self.member_count = 0;
            }
            let members = draw();
            self.member_count += members.len();
            self.units.insert(unit, members);
        }
        let members = self.units.get(&unit);
        members
            .and_then(|members| members.get(index(index_in_unit)))
            .copied()
            .unwrap_or(index_in_unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampling(epoch: u64) -> Sampling {
        Sampling {
            seed: 9176,
            epoch,
            epoch_counts: true,
            epoch_members: true,
            granularity: 1,
        }
    }

    #[test]
    fn unread_empty_shards_do_not_change_counts() {
        for choose in 1..40 {
            let sampling = Sampling {
                granularity: 3,
                ..sampling(choose)
            };
            let with = counts_of(
                &[0, 4, 0, 0, 5, 7, 0],
                choose,
                &sampling,
                EmptyShards::NotRead,
            );
            let without = counts(&[4, 5, 7], choose, &sampling).unwrap();
            let with: Vec<u64> = with.unwrap();
            assert_eq!([with[1], with[4], with[5]], without[..]);
            assert_eq!(with.iter().sum::<u64>(), choose);
        }
    }

    #[test]
    fn counts_match_golden_values() {
        assert_eq!(counts(&[4, 3, 5], 7, &sampling(0)).unwrap(), [2, 2, 3]);
        assert_eq!(counts(&[4, 3, 5], 30, &sampling(1)).unwrap(), [10, 7, 13]);
        assert_eq!(counts(&[4, 3, 5], 24, &sampling(1)).unwrap(), [8, 6, 10]);
    }

    #[test]
    fn resampled_units_match_golden_values() {
        let table = ShardTable::new([&[4_u64, 3, 5][..], &[6][..]]);
        let units = Units::resample(&table, &[(0..3, 7), (3..4, 15)], &sampling(0)).unwrap();
        let sizes: Vec<u64> = units.ranges().map(|unit| unit.end - unit.start).collect();
        assert_eq!(sizes, [2, 2, 3, 6, 6, 3]);
        let mut ids: Vec<u64> = (0..units.samples()).collect();
        units.resolve(&table, &mut Drawn::default(), &mut ids);
        assert_eq!(
            ids,
            [
                2, 3, 4, 6, 7, 10, 11, 12, 13, 14, 15, 16, 17, 12, 13, 14, 15, 16, 17, 13, 14, 15
            ]
        );
        // In reverse, without kept draws.
        for big in (0..units.samples()).rev() {
            let mut one = [big];
            units.resolve(&table, &mut Drawn::default(), &mut one);
            assert_eq!(one[0], ids[index(big)]);
        }
        assert_eq!(units.shard_of(21), Some(3));
        assert_eq!(units.shard_of(22), None);
    }

    #[test]
    fn samples_are_located_past_empty_shards() {
        let table = ShardTable::new([&[0_u64, 3, 0][..], &[2, 0][..]]);
        assert_eq!(table.locate(0), Some((1, 0)));
        assert_eq!(table.locate(3), Some((3, 0)));
        assert_eq!(table.locate(4), Some((3, 1)));
        assert_eq!(table.locate(5), None);
        assert_eq!((table.len(), table.samples()), (5, 5));
    }
}
