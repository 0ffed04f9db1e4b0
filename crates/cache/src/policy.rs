//! The access plan of a node, and the choice of shards to evict.
//!
//! Time is counted in *ticks*: batches of a rank from the start of the first epoch of an [`AccessPlan`].
//!
//! The policy is Belady's over the known epochs, with bypass. It evicts the shard whose next use is furthest away. It
//! never evicts a shard for one that is needed later. For shards of equal size, no policy fetches less often (the tests
//! compare it with all others). For shards of different sizes, the optimum is a knapsack problem. This policy takes the
//! furthest shards first, and then keeps those that turn out to be unnecessary.
//!
//! Callers that prefetch must limit how much they prefetch. [`make_room`] prefers every shard of this epoch to any
//! shard that is kept for the next one, because a shard that is needed now must win. Unlimited prefetching would
//! therefore keep no shards across epochs. While prefetching evicts residents, the shards that were prefetched for
//! future access windows must stay below a budget of bytes, or be a single shard. The bytes in flight are such a
//! budget. Free space can be filled without a limit.
//!
//! Source: L. A. Belady, A study of replacement algorithms for a virtual-storage computer, 1966.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use shardmill_order::AccessSchedule;

/// A range of consecutive ticks in which samples of a shard are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccessWindow {
    /// The first tick that may need the shard.
    pub first: u64,
    /// The last tick that may need it.
    pub last: u64,
    /// The number of the shard over all streams.
    pub shard: usize,
}

/// The access windows of one or more consecutive epochs.
///
/// It takes 40 bytes of memory per access window, and 8 bytes per shard and epoch that is not forgotten.
#[derive(Clone, Debug, Default)]
pub struct AccessPlan {
    shards: usize,
    end: u64,
    epochs: VecDeque<Span>,
}

/// The access windows of one epoch.
#[derive(Clone, Debug, Default)]
struct Span {
    /// The first tick of the next epoch.
    end: u64,
    /// Sorted by first tick, then last tick, then shard.
    order: Vec<AccessWindow>,
    /// For each position in `order`, the latest last tick up to it. These values never decrease.
    ends: Vec<u64>,
    /// Positions in `order`, grouped by shard and sorted within each shard. The access windows of a shard do not
    /// overlap.
    places: Vec<usize>,
    /// The first position of each shard in `places`, then the length of `places`.
    starts: Vec<usize>,
}

impl Span {
    /// Builds the tables of an epoch. `found` must be sorted by shard and first tick, without overlaps.
    fn new(end: u64, found: Vec<AccessWindow>, shards: usize) -> Self {
        let mut starts = Vec::with_capacity(shards + 1);
        let mut at = 0;
        for shard in 0..shards {
            starts.push(at);
            let rest = found.get(at..).unwrap_or_default();
            at += rest.iter().take_while(|found| found.shard == shard).count();
        }
        starts.push(at);
        let mut order = found;
        order.sort_unstable();
        let mut latest = 0;
        let ends = order
            .iter()
            .map(|access_window| {
                latest = latest.max(access_window.last);
                latest
            })
            .collect();
        // In this order, each access window is the next one of its shard.
        let mut free = starts.clone();
        let mut places = vec![0; order.len()];
        for (place, access_window) in order.iter().enumerate() {
            if let Some(next) = free.get_mut(access_window.shard) {
                if let Some(slot) = places.get_mut(*next) {
                    *slot = place;
                }
                *next += 1;
            }
        }
        Self {
            end,
            order,
            ends,
            places,
            starts,
        }
    }

    fn next(&self, shard: usize, tick: u64) -> Option<AccessWindow> {
        let (start, stop) = (
            *self.starts.get(shard)?,
            *self.starts.get(shard.checked_add(1)?)?,
        );
        let places = self.places.get(start..stop)?;
        let at = |place: &usize| self.order.get(*place);
        let ended =
            places.partition_point(|place| at(place).is_some_and(|found| found.last < tick));
        places.get(ended).and_then(at).copied()
    }

    /// Returns how many access windows at the start of the order have ended before a tick, up to the first that has
    /// not.
    fn ended(&self, tick: u64) -> usize {
        self.ends.partition_point(|end| *end < tick)
    }

    fn in_order(&self, from: u64) -> impl Iterator<Item = AccessWindow> + '_ {
        let open = self.order.get(self.ended(from)..).unwrap_or_default();
        open.iter().filter(move |found| found.last >= from).copied()
    }
}

impl AccessPlan {
    /// Returns a plan without epochs, for this number of shards.
    #[must_use]
    pub fn new(shards: usize) -> Self {
        Self {
            shards,
            ..Self::default()
        }
    }

    /// Appends an epoch of `batches` batches. A resumed epoch is appended with its remaining batches.
    pub fn push(&mut self, uses: &AccessSchedule, batches: u64) {
        let found = (0..self.shards).flat_map(|shard| uses.of(shard));
        self.append(
            found.map(|found| (found.shard, found.first, found.last)),
            batches,
        );
    }

    /// Appends an epoch of (shard, first batch, last batch), sorted by shard and first batch.
    pub fn append(&mut self, uses: impl Iterator<Item = (usize, u64, u64)>, batches: u64) {
        let mut found: Vec<AccessWindow> = Vec::new();
        for (shard, first, last) in uses {
            let (first, last) = (
                self.end.saturating_add(first),
                self.end.saturating_add(last),
            );
            match found.last_mut() {
                // Overlapping and adjacent access windows are merged.
                Some(before) if before.shard == shard && first <= before.last.saturating_add(1) => {
                    before.last = before.last.max(last);
                }
                _ => found.push(AccessWindow { first, last, shard }),
            }
        }
        found.shrink_to_fit();
        self.end = self.end.saturating_add(batches);
        self.epochs
            .push_back(Span::new(self.end, found, self.shards));
    }

    /// Returns the tick at which the next epoch would begin.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns the number of shards.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.shards
    }

    /// Returns the access window of a shard that contains a tick, or else the first one after it. Returns `None` if the
    /// shard has no known use any more.
    #[must_use]
    pub fn next(&self, shard: usize, tick: u64) -> Option<AccessWindow> {
        let ahead = self.epochs.iter().filter(|span| span.end > tick);
        ahead.filter_map(|span| span.next(shard, tick)).next()
    }

    /// Returns the next tick at which a shard is needed, from a tick on. Within an access window this is `tick` itself.
    #[must_use]
    pub fn next_use(&self, shard: usize, tick: u64) -> Option<u64> {
        self.next(shard, tick).map(|found| found.first.max(tick))
    }

    /// Returns all access windows that do not end before `from`, by their first tick. This is the order to fetch in.
    pub fn in_order(&self, from: u64) -> impl Iterator<Item = AccessWindow> + '_ {
        self.epochs
            .iter()
            .filter(move |span| span.end > from)
            .flat_map(move |span| span.in_order(from))
    }

    /// Frees the memory of access windows that end before a tick. The windows remain visible until enough of them have
    /// ended to be worth the work.
    pub fn forget(&mut self, before: u64) {
        while self.epochs.front().is_some_and(|span| span.end <= before) {
            self.epochs.pop_front();
        }
        self.epochs.shrink_to(self.epochs.len().saturating_mul(2));
        let shards = self.shards;
        let Some(span) = self.epochs.front_mut() else {
            return;
        };
        // When half of the access windows have ended, the amortized work per window is constant. The threshold includes
        // the table of shards, because it is rebuilt too.
        if span.ended(before) <= span.order.len() / 2 + shards / 8 {
            return;
        }
        let mut left: Vec<AccessWindow> = span.in_order(before).collect();
        left.shrink_to_fit();
        left.sort_unstable_by_key(|found| (found.shard, found.first));
        *span = Span::new(span.end, left, shards);
    }

    /// Returns the number of access windows in memory.
    #[must_use]
    pub fn len(&self) -> usize {
        self.epochs.iter().map(|span| span.order.len()).sum()
    }

    /// Returns whether no access window is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.epochs.iter().all(|span| span.order.is_empty())
    }
}

/// A shard in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Resident {
    /// The number of the shard.
    pub shard: usize,
    /// Bytes that it takes.
    pub bytes: u64,
    /// Whether it is in use, so that it cannot be evicted.
    pub pinned: bool,
}

/// Returns the residents to evict so that `bytes` more fit within `limit`, of which `used` are taken.
///
/// The residents whose next use is furthest away are evicted, first of all those without one. Among equals, larger ones
/// come first, then lower numbers. Residents that are pinned, or needed at `wanted_at` or before, are never evicted.
/// `u64::MAX` means that a shard has no known next use. An empty list means that there is enough space. `None` means
/// that eviction is impossible, or not worth it because the evicted shards would be needed sooner.
///
/// The result does not depend on the order of `residents`. `next_use` is called once for each resident that is not
/// pinned, and only if space is short.
pub fn make_room(
    residents: &[Resident],
    used: u64,
    limit: u64,
    bytes: u64,
    wanted_at: u64,
    next_use: impl Fn(usize) -> Option<u64>,
) -> Option<Vec<usize>> {
    if bytes > limit {
        return None;
    }
    // `used + bytes - limit` may overflow 64 bits.
    let missing = used.saturating_sub(limit - bytes);
    if missing == 0 {
        return Some(Vec::new());
    }
    let mut farthest: BinaryHeap<(u64, u64, Reverse<usize>)> = residents
        .iter()
        .filter(|resident| !resident.pinned && resident.bytes > 0)
        .filter_map(|resident| {
            let next = next_use(resident.shard).unwrap_or(u64::MAX);
            (next > wanted_at).then_some((next, resident.bytes, Reverse(resident.shard)))
        })
        .collect();
    let mut leaving = Vec::new();
    let mut freed = 0_u64;
    while freed < missing {
        let (_, bytes, Reverse(shard)) = farthest.pop()?;
        freed = freed.saturating_add(bytes);
        leaving.push((shard, bytes));
    }
    // A large resident that was taken last may make others unnecessary: those needed soonest stay.
    let mut spare = freed - missing;
    let mut chosen: Vec<usize> = Vec::with_capacity(leaving.len());
    for (shard, bytes) in leaving.into_iter().rev() {
        if bytes <= spare {
            spare -= bytes;
        } else {
            chosen.push(shard);
        }
    }
    chosen.reverse();
    Some(chosen)
}

#[cfg(test)]
mod tests;
