//! The access plan of a node, and the choice of blobs to evict.
//!
//! Time is counted in *ticks*: batches of a rank from the start of the first epoch of an [`AccessPlan`].
//!
//! The policy is Belady's over the known epochs, with bypass. It evicts the blob whose next use is furthest away. It
//! never evicts a blob for one that is needed later. For blobs of equal size, no policy fetches less often (the tests
//! compare it with all others). For blobs of different sizes, the optimum is a knapsack problem. This policy takes the
//! furthest blobs first, and then keeps those that turn out to be unnecessary.
//!
//! Callers that prefetch must limit how much they prefetch. [`make_room`] prefers every blob of this epoch to any
//! blob that is kept for the next one, because a blob that is needed now must win. Unlimited prefetching would
//! therefore keep no blobs across epochs. While prefetching evicts residents, the blobs that were prefetched for
//! future access windows must stay below a budget of bytes, or be a single blob. The bytes in flight are such a
//! budget. Free space can be filled without a limit.
//!
//! Source: L. A. Belady, A study of replacement algorithms for a virtual-storage computer, 1966.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use shardmill_order::AccessSchedule;

/// A range of consecutive ticks in which samples of a blob are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct AccessWindow {
    /// The first tick that may need the blob.
    pub first: u64,
    /// The last tick that may need it.
    pub last: u64,
    /// The number of the blob over all streams.
    pub blob: usize,
}

/// The access windows of one or more consecutive epochs.
///
/// It takes 40 bytes of memory per access window, and 8 bytes per blob and epoch that is not forgotten.
#[derive(Clone, Debug, Default)]
pub struct AccessPlan {
    blobs: usize,
    end: u64,
    epochs: VecDeque<Span>,
}

/// The access windows of one epoch.
#[derive(Clone, Debug, Default)]
struct Span {
    /// The first tick of the next epoch.
    end: u64,
    /// Sorted by first tick, then last tick, then blob.
    order: Vec<AccessWindow>,
    /// For each position in `order`, the latest last tick up to it. These values never decrease.
    ends: Vec<u64>,
    /// Positions in `order`, grouped by blob and sorted within each blob. The access windows of a blob do not
    /// overlap.
    positions: Vec<usize>,
    /// The first position of each blob in `positions`, then the length of `positions`.
    starts: Vec<usize>,
}

impl Span {
    /// Builds the tables of an epoch. `found` must be sorted by blob and first tick, without overlaps.
    fn new(end: u64, found: Vec<AccessWindow>, blobs: usize) -> Self {
        let mut starts = Vec::with_capacity(blobs + 1);
        let mut at = 0;
        for blob in 0..blobs {
            starts.push(at);
            let rest = found.get(at..).unwrap_or_default();
            at += rest.iter().take_while(|found| found.blob == blob).count();
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
        // In this order, each access window is the next one of its blob.
        let mut free = starts.clone();
        let mut positions = vec![0; order.len()];
        for (position, access_window) in order.iter().enumerate() {
            if let Some(next) = free.get_mut(access_window.blob) {
                if let Some(slot) = positions.get_mut(*next) {
                    *slot = position;
                }
                *next += 1;
            }
        }
        Self {
            end,
            order,
            ends,
            positions,
            starts,
        }
    }

    fn next(&self, blob: usize, tick: u64) -> Option<AccessWindow> {
        let (start, stop) = (
            *self.starts.get(blob)?,
            *self.starts.get(blob.checked_add(1)?)?,
        );
        let positions = self.positions.get(start..stop)?;
        let at = |position: &usize| self.order.get(*position);
        let ended = positions
            .partition_point(|position| at(position).is_some_and(|found| found.last < tick));
        positions.get(ended).and_then(at).copied()
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
    /// Returns a plan without epochs, for this number of blobs.
    #[must_use]
    pub fn new(blobs: usize) -> Self {
        Self {
            blobs,
            ..Self::default()
        }
    }

    /// Appends an epoch of `batches` batches. A resumed epoch is appended with its remaining batches.
    pub fn push(&mut self, uses: &AccessSchedule, batches: u64) {
        let found = (0..self.blobs).flat_map(|blob| uses.of(blob));
        self.append(
            found.map(|found| (found.shard, found.first, found.last)),
            batches,
        );
    }

    /// Appends an epoch of (blob, first batch, last batch), sorted by blob and first batch.
    pub(crate) fn append(&mut self, uses: impl Iterator<Item = (usize, u64, u64)>, batches: u64) {
        let mut found: Vec<AccessWindow> = Vec::new();
        for (blob, first, last) in uses {
            let (first, last) = (
                self.end.saturating_add(first),
                self.end.saturating_add(last),
            );
            match found.last_mut() {
                // Overlapping and adjacent access windows are merged.
                Some(before) if before.blob == blob && first <= before.last.saturating_add(1) => {
                    before.last = before.last.max(last);
                }
                _ => found.push(AccessWindow { first, last, blob }),
            }
        }
        found.shrink_to_fit();
        self.end = self.end.saturating_add(batches);
        self.epochs
            .push_back(Span::new(self.end, found, self.blobs));
    }

    /// Returns the tick at which the next epoch would begin.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns the access window of a blob that contains a tick, or else the first one after it. Returns `None` if the
    /// blob has no known use any more.
    pub(crate) fn next(&self, blob: usize, tick: u64) -> Option<AccessWindow> {
        let ahead = self.epochs.iter().filter(|span| span.end > tick);
        ahead.filter_map(|span| span.next(blob, tick)).next()
    }

    /// Returns the next tick at which a blob is needed, from a tick on. Within an access window this is `tick` itself.
    pub(crate) fn next_use(&self, blob: usize, tick: u64) -> Option<u64> {
        self.next(blob, tick).map(|found| found.first.max(tick))
    }

    /// Returns all access windows that do not end before `from`, by their first tick. This is the order to fetch in.
    pub(crate) fn in_order(&self, from: u64) -> impl Iterator<Item = AccessWindow> + '_ {
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
        let blobs = self.blobs;
        let Some(span) = self.epochs.front_mut() else {
            return;
        };
        // When half of the access windows have ended, the amortized work per window is constant. The threshold includes
        // the table of blobs, because it is rebuilt too.
        if span.ended(before) <= span.order.len() / 2 + blobs / 8 {
            return;
        }
        let mut left: Vec<AccessWindow> = span.in_order(before).collect();
        left.shrink_to_fit();
        left.sort_unstable_by_key(|found| (found.blob, found.first));
        *span = Span::new(span.end, left, blobs);
    }

    /// Returns the number of access windows in memory.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.epochs.iter().map(|span| span.order.len()).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.epochs.iter().all(|span| span.order.is_empty())
    }
}

/// A blob in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Resident {
    /// The number of the blob.
    pub blob: usize,
    /// Bytes that it takes.
    pub bytes: u64,
    /// Whether it is in use, so that it cannot be evicted.
    pub pinned: bool,
}

/// Returns the residents to evict so that `bytes` more fit within `limit`, of which `used` are taken.
///
/// The residents whose next use is furthest away are evicted, first of all those without one. Among equals, larger ones
/// come first, then lower numbers. Residents that are pinned, or needed at `wanted_at` or before, are never evicted.
/// `u64::MAX` means that a blob has no known next use. An empty list means that there is enough space. `None` means
/// that eviction is impossible, or not worth it because the evicted blobs would be needed sooner.
///
/// The result does not depend on the order of `residents`. `next_use` is called once for each resident that is not
/// pinned, and only if space is short.
pub(crate) fn make_room(
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
            let next = next_use(resident.blob).unwrap_or(u64::MAX);
            (next > wanted_at).then_some((next, resident.bytes, Reverse(resident.blob)))
        })
        .collect();
    let mut leaving = Vec::new();
    let mut freed = 0_u64;
    while freed < missing {
        let (_, bytes, Reverse(blob)) = farthest.pop()?;
        freed = freed.saturating_add(bytes);
        leaving.push((blob, bytes));
    }
    // A large resident that was taken last may make others unnecessary: those needed soonest stay.
    let mut spare = freed - missing;
    let mut chosen: Vec<usize> = Vec::with_capacity(leaving.len());
    for (blob, bytes) in leaving.into_iter().rev() {
        if bytes <= spare {
            spare -= bytes;
        } else {
            chosen.push(blob);
        }
    }
    chosen.reverse();
    Some(chosen)
}

#[cfg(test)]
mod tests;
