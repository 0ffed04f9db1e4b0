//! Windows: samples together with their neighbours in the same episode.
//!
//! An episode is a run of consecutive stored samples. A [`View`] of the first sample of each episode describes them, so
//! that the file of a view can store them, bound to the index of its dataset. Neighbours are counted among the samples
//! that are not deleted. A view of the stream selects the samples that have a window, not the neighbours.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::error::DatasetError;
use crate::live::{LiveSamples, LiveShards};
use crate::problem::DatasetProblem;
use crate::schema::Schema;
use crate::view::{View, ViewTarget};

/// The most offsets of a window.
pub const MAX_OFFSETS: usize = 4096;
/// The end of the name of a column that says which values are padding.
pub const PAD_SUFFIX: &str = "_is_pad";

/// Which neighbours are returned with each sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// All offsets, sorted; 0 is the sample itself.
    offsets: Vec<i64>,
    /// The positions in `offsets` of columns that are not named; `None` for the sample alone.
    others: Option<Vec<usize>>,
    named: HashMap<String, Vec<usize>>,
    /// The position of the sample itself.
    own: [usize; 1],
    pad: bool,
    /// The first samples of the episodes of each stream; `None` if all samples of a stream are one episode.
    episodes: Vec<Option<Arc<View>>>,
}

impl Window {
    /// Returns a window of the same offsets for all columns, or for the named ones. Other columns have the value of the
    /// sample.
    ///
    /// # Errors
    ///
    /// [`DatasetProblem::WindowOffsets`].
    pub fn new(offsets: Vec<i64>, columns: Option<Vec<String>>) -> Result<Self, DatasetError> {
        match columns {
            None => Self::of(Some(offsets), Vec::new()),
            Some(columns) => {
                let named = columns.into_iter().map(|name| (name, offsets.clone()));
                Self::of(None, named.collect())
            }
        }
    }

    /// Returns a window with offsets for each of these columns. Other columns have the value of the sample.
    ///
    /// # Errors
    ///
    /// As for [`Window::new`].
    pub fn of_columns(columns: Vec<(String, Vec<i64>)>) -> Result<Self, DatasetError> {
        Self::of(None, columns)
    }

    fn of(others: Option<Vec<i64>>, named: Vec<(String, Vec<i64>)>) -> Result<Self, DatasetError> {
        let given = || named.iter().map(|(_, offsets)| offsets).chain(&others);
        let mut offsets: Vec<i64> = given().flatten().copied().chain([0]).collect();
        offsets.sort_unstable();
        offsets.dedup();
        let reason = if given().next().is_none() {
            Some("no column has a window".to_owned())
        } else if given().any(Vec::is_empty) {
            Some("there are no offsets".to_owned())
        } else if given().any(|offsets| offsets.len() > MAX_OFFSETS) {
            Some(format!("there are more than {MAX_OFFSETS} offsets"))
        } else {
            // The sum of an offset and the number of a sample must not overflow.
            let is_far = |offset: &i64| offset.unsigned_abs() > 1 << 40;
            let far = offsets.iter().copied().find(is_far);
            far.map(|far| format!("the offset {far} is beyond 2^40"))
        };
        if let Some(reason) = reason {
            return Err(DatasetProblem::WindowOffsets.of_call(reason));
        }
        let position = |offset: &i64| offsets.binary_search(offset).unwrap_or_default();
        let positions = |offsets: &Vec<i64>| offsets.iter().map(position).collect::<Vec<_>>();
        Ok(Self {
            own: [position(&0)],
            others: others.as_ref().map(positions),
            named: named
                .iter()
                .map(|(name, offsets)| (name.clone(), positions(offsets)))
                .collect(),
            offsets,
            pad: false,
            episodes: Vec::new(),
        })
    }

    /// Sets whether the first or last sample of an episode is repeated in place of missing neighbours. Otherwise
    /// samples without all neighbours are not read.
    #[must_use]
    pub fn with_padding(self, pad: bool) -> Self {
        Self { pad, ..self }
    }

    /// Sets the episodes of each stream, by their first samples. Without them, all samples of a stream are one episode.
    #[must_use]
    pub fn with_episodes(self, episodes: Vec<Option<Arc<View>>>) -> Self {
        Self { episodes, ..self }
    }

    /// Returns the offsets of all columns, sorted.
    #[must_use]
    pub fn offsets(&self) -> &[i64] {
        &self.offsets
    }

    /// Returns whether missing neighbours are replaced by the first or last sample of the episode.
    #[must_use]
    pub const fn is_padded(&self) -> bool {
        self.pad
    }

    /// Returns whether a column has a window; otherwise it has the value of the sample.
    #[must_use]
    pub fn has(&self, column: &str) -> bool {
        self.others.is_some() || self.named.contains_key(column)
    }

    /// Returns the positions of the values of a column in [`Self::offsets`].
    #[must_use]
    pub fn places(&self, column: &str) -> &[usize] {
        match (self.named.get(column), &self.others) {
            (Some(positions), _) | (None, Some(positions)) => positions,
            (None, None) => &self.own,
        }
    }

    /// Checks that the columns exist, and that the names of the columns of padding are free.
    pub(crate) fn check(&self, schemas: &[Arc<Schema>]) -> Result<(), DatasetError> {
        let names = || schemas.iter().flat_map(|schema| schema.names());
        let mut named: Vec<&String> = self.named.keys().collect();
        named.sort_unstable();
        if let Some(missing) = named
            .into_iter()
            .find(|name| names().all(|own| own != *name))
        {
            let reason = format!("no sample has the column `{missing}`, which has a window");
            return Err(DatasetProblem::WindowColumn.of_call(reason));
        }
        let columns = schemas.iter().filter_map(|schema| match schema.as_ref() {
            Schema::Binary { columns, .. } => Some(columns),
            _ => None,
        });
        let mut columns = columns.flatten();
        if let Some(null) = columns.find(|own| own.null_mask.is_some() && self.has(&own.name)) {
            let reason = format!(
                "column `{}` may have nulls, which a window cannot show",
                null.name
            );
            return Err(DatasetProblem::WindowColumn.of_call(reason));
        }
        let is_taken = |name: &&str| {
            let base = name.strip_suffix(PAD_SUFFIX);
            base.is_some_and(|base| self.has(base) && names().any(|own| own == base))
        };
        if let Some(taken) = names().find(is_taken).filter(|_| self.pad) {
            let reason =
                format!("samples have a column `{taken}`, the name of a column of padding");
            return Err(DatasetProblem::WindowColumn.of_call(reason));
        }
        Ok(())
    }
}

/// The episodes of a stream.
#[derive(Debug)]
pub(crate) struct StreamWindows {
    /// The samples that can be neighbours.
    all: LiveShards,
    /// The first sample of each episode.
    firsts: LiveSamples,
}

impl StreamWindows {
    /// Finds the episodes of the stream with this number. `all` are its samples that are not deleted.
    pub(crate) fn new(
        window: &Window,
        stream: usize,
        digest: [u8; 32],
        all: LiveShards,
        dataset: &str,
    ) -> Result<Self, DatasetError> {
        let whole = ViewTarget {
            digest,
            live: LiveSamples::all(all.live.stored()),
        };
        // An episode begins at the first sample in any case.
        let begin = View::new(&whole, vec![0]);
        let firsts = match window.episodes.get(stream).and_then(Option::as_deref) {
            // A view of another dataset is an error about this one.
            Some(view) => {
                view.live_of(&whole, dataset)?;
                begin.or(view)?
            }
            None => begin,
        };
        Ok(Self {
            firsts: firsts.live_of(&whole, dataset)?,
            all,
        })
    }

    /// Returns the samples that have all neighbours; `None` if every sample has a window.
    pub(crate) fn complete(&self, window: &Window, digest: [u8; 32]) -> Option<View> {
        if window.pad {
            return None;
        }
        let before = window
            .offsets
            .first()
            .map_or(0, |first| first.unsigned_abs());
        let after = window.offsets.last().map_or(0, |last| last.unsigned_abs());
        let complete = (0..self.firsts.len()).filter_map(|episode| {
            let samples = self.samples_of(self.firsts.stored_number(episode));
            let first = samples.start.saturating_add(before);
            let end = samples.end.checked_sub(after)?;
            let last = end.checked_sub(1).filter(|last| first <= *last)?;
            Some(self.all.live.stored_number(first)..self.all.live.stored_number(last) + 1)
        });
        let target = ViewTarget {
            digest,
            live: self.all.live.clone(),
        };
        Some(View::of_ranges(&target, complete))
    }

    /// Returns the samples of the episode of a stored sample, counted among those that are not deleted.
    fn samples_of(&self, stored: u64) -> Range<u64> {
        let episode = self.firsts.live_before(stored.saturating_add(1));
        let start = self.firsts.stored_number(episode.saturating_sub(1));
        let end = self.firsts.stored_number(episode);
        self.all.live.live_before(start)..self.all.live.live_before(end)
    }

    /// Calls `found` for each offset: with the shard of the stream, the position in it, and whether this is padding.
    pub(crate) fn each(
        &self,
        window: &Window,
        (shard, at): (usize, u64),
        mut found: impl FnMut(usize, u64, bool),
    ) {
        let stored = self.all.stored_samples(shard).start + at;
        let episode = self.samples_of(stored);
        let own = self.all.live.live_before(stored);
        for offset in &window.offsets {
            let wanted = own.checked_add_signed(*offset);
            let last = episode.end.saturating_sub(1);
            let number = wanted.unwrap_or(0).clamp(episode.start.min(last), last);
            let stored = self.all.live.stored_number(number);
            let (shard, at) = self.all.shard_of(stored);
            found(shard, at, wanted != Some(number));
        }
    }

    /// Returns the shards of the windows of the samples from `first` to `last`, given by shard and position.
    pub(crate) fn reach(
        &self,
        window: &Window,
        first: (usize, u64),
        last: (usize, u64),
    ) -> Range<usize> {
        // Neighbours are in the order of their samples.
        let (mut start, mut end) = (first.0, last.0 + 1);
        self.each(window, first, |shard, _, _| start = start.min(shard));
        self.each(window, last, |shard, _, _| end = end.max(shard + 1));
        start..end
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shardmill_core::Diagnostic as _;

    use super::*;

    const DIGEST: [u8; 32] = [7; 32];

    fn windows(sizes: &[u64], firsts: &[u64], live: LiveSamples) -> StreamWindows {
        let stored = sizes.iter().sum();
        let whole = ViewTarget {
            digest: DIGEST,
            live: LiveSamples::all(stored),
        };
        let mut all = LiveShards::all(sizes.iter().copied());
        all.live = live;
        let firsts = [&[0], firsts].concat();
        let firsts = View::new(&whole, firsts).live_of(&whole, "d").unwrap();
        StreamWindows { all, firsts }
    }

    proptest! {
        #[test]
        fn window_neighbours_equal_a_plain_list(
            sizes in prop::collection::vec(0_u64..9, 1..9),
            firsts in prop::collection::vec(0_u64..60, 0..9),
            deleted in prop::collection::btree_set(0_u64..60, 0..20),
            offsets in prop::collection::vec(-6_i64..9, 1..5),
        ) {
            let stored: u64 = sizes.iter().sum();
            let live = LiveSamples::of_ranges(stored, || {
                (0..stored).filter(|number| !deleted.contains(number)).map(|number| number..number + 1)
                    .collect::<Vec<_>>().into_iter()
                    .fold(Vec::<Range<u64>>::new(), |mut ranges, range| {
                        match ranges.last_mut() {
                            Some(last) if last.end == range.start => last.end = range.end,
                            _ => ranges.push(range),
                        }
                        ranges
                    }).into_iter()
            }).unwrap();
            let found = windows(&sizes, &firsts, live);
            let episode_of = |number: u64| firsts.iter().filter(|first| **first <= number).max().copied().unwrap_or(0);
            let mut shards = Vec::new();
            for (shard, size) in sizes.iter().enumerate() {
                shards.extend((0..*size).map(|at| (shard, at)));
            }
            let window = Window::new(offsets, None).unwrap();
            let complete = found.complete(&window, DIGEST).unwrap();
            for number in (0..stored).filter(|number| !deleted.contains(number)) {
                let episode: Vec<u64> = (0..stored)
                    .filter(|other| !deleted.contains(other) && episode_of(*other) == episode_of(number))
                    .collect();
                let own = episode.iter().position(|other| *other == number).unwrap() as i64;
                let last = episode.len() as i64 - 1;
                let location = |number: u64| shards[usize::try_from(number).unwrap()];
                let wanted: Vec<_> = window.offsets().iter().map(|offset| {
                    let at = (own + offset).clamp(0, last);
                    (location(episode[usize::try_from(at).unwrap()]), at != own + offset)
                }).collect();
                let mut read = Vec::new();
                found.each(&window, location(number), |shard, at, padded| read.push(((shard, at), padded)));
                prop_assert_eq!(&read, &wanted);
                prop_assert_eq!(complete.contains(number), wanted.iter().all(|(_, padded)| !padded));
                let reach = found.reach(&window, location(number), location(number));
                prop_assert!(read.iter().all(|((shard, _), _)| reach.contains(shard)));
            }
        }
    }

    #[test]
    fn columns_have_their_own_offsets() {
        let columns = vec![
            ("a".to_owned(), vec![-1, 0]),
            ("b".to_owned(), vec![2, 0, 1]),
        ];
        let window = Window::of_columns(columns).unwrap();
        assert_eq!(window.offsets(), [-1, 0, 1, 2]);
        assert_eq!(window.places("a"), [0, 1]);
        assert_eq!(window.places("b"), [3, 1, 2]);
        assert_eq!(window.places("c"), [1]);
        assert!(window.has("a") && !window.has("c"));
        let window = Window::new(vec![3], None).unwrap();
        assert_eq!(
            (window.offsets(), window.places("c")),
            (&[0, 3][..], &[1][..])
        );
    }

    #[test]
    fn invalid_window_offsets_are_errors() {
        let of = |offsets: Vec<i64>| Window::new(offsets, None).unwrap_err();
        assert_eq!(of(Vec::new()).id(), "window-offsets");
        assert!(of(vec![1 << 41]).to_string().contains("2^40"));
        assert!(of(vec![0; 5000]).to_string().contains("4096"));
        let none = Window::of_columns(Vec::new()).unwrap_err();
        assert!(none.to_string().contains("no column"));
    }
}
