//! When a node needs which shard, and who leaves when there is no room.
//!
//! Time is counted in *ticks*: batches of a rank from the start of the first epoch that a [`AccessPlan`] was given.
//!
//! The policy is Belady's over the epochs that are known, with bypass: who is needed last leaves first, and nobody
//! leaves for a shard that is needed later than himself. With shards of one size no policy fetches less often (the
//! tests compare it with all others). With shards of different sizes the best choice is a knapsack; this one takes the
//! farthest first and gives back those that turn out to be more than was needed.
//!
//! Who fetches ahead bounds by himself how much: [`make_room`] prefers everything that comes in this epoch to anything
//! that is kept for the next one, as it must for a shard that is needed now. Fetching ahead without a bound therefore
//! keeps nothing across epochs. While residents have to leave for it, the shards that were fetched for a stretch that
//! has not begun stay below a budget of bytes, such as that of the fetches in flight, or are one shard; into free room
//! everything may be fetched.
//!
//! Source: L. A. Belady, A study of replacement algorithms for a virtual-storage computer, 1966.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use shardmill_order::AccessSchedule;

/// Ticks in which samples of a shard are needed, without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccessWindow {
    /// The first tick that may need the shard.
    pub first: u64,
    /// The last tick that may need it.
    pub last: u64,
    /// The shard, counted through all streams.
    pub shard: usize,
}

/// The stretches of one or more epochs, one after the other.
///
/// Memory: 40 bytes a stretch and 8 a shard for each epoch that is not forgotten.
#[derive(Clone, Debug, Default)]
pub struct AccessPlan {
    shards: usize,
    end: u64,
    epochs: VecDeque<Span>,
}

/// The stretches of one epoch.
#[derive(Clone, Debug, Default)]
struct Span {
    /// Where the next epoch begins.
    end: u64,
    /// By first tick, then last tick, then shard.
    order: Vec<AccessWindow>,
    /// The latest last tick of all stretches up to this place: it never falls.
    ends: Vec<u64>,
    /// Places in `order`, shard by shard, each shard's in order. The stretches of a shard do not overlap.
    places: Vec<usize>,
    /// Where in `places` a shard begins, and at the end the length of `places`.
    starts: Vec<usize>,
}

impl Span {
    /// `found` by shard and first tick, without overlaps; `starts` as in the struct.
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
        // Going through the order, each stretch is the next one of its shard.
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

    /// How many stretches at the start of the order end before a tick, with nothing between them that does not.
    fn ended(&self, tick: u64) -> usize {
        self.ends.partition_point(|end| *end < tick)
    }

    fn in_order(&self, from: u64) -> impl Iterator<Item = AccessWindow> + '_ {
        let open = self.order.get(self.ended(from)..).unwrap_or_default();
        open.iter().filter(move |found| found.last >= from).copied()
    }
}

impl AccessPlan {
    /// No epoch yet, of so many shards.
    #[must_use]
    pub fn new(shards: usize) -> Self {
        Self {
            shards,
            ..Self::default()
        }
    }

    /// Appends an epoch of so many batches. What is used of it may begin anywhere: a resumed epoch is appended with the
    /// batches that are left of it.
    pub fn push(&mut self, uses: &AccessSchedule, batches: u64) {
        let found = (0..self.shards).flat_map(|shard| uses.of(shard));
        self.append(
            found.map(|found| (found.shard, found.first, found.last)),
            batches,
        );
    }

    /// Appends an epoch of shards, first and last batches: by shard and first batch.
    pub(crate) fn append(&mut self, uses: impl Iterator<Item = (usize, u64, u64)>, batches: u64) {
        let mut found: Vec<AccessWindow> = Vec::new();
        for (shard, first, last) in uses {
            let (first, last) = (
                self.end.saturating_add(first),
                self.end.saturating_add(last),
            );
            match found.last_mut() {
                // Overlapping stretches and those without a tick between them are one.
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

    /// Where the next epoch would begin.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// How many shards there are.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.shards
    }

    /// The stretch of a shard that contains a tick, else the first one behind it. `None` when the shard is not needed
    /// again as far as is known.
    #[must_use]
    pub fn next(&self, shard: usize, tick: u64) -> Option<AccessWindow> {
        let ahead = self.epochs.iter().filter(|span| span.end > tick);
        ahead.filter_map(|span| span.next(shard, tick)).next()
    }

    /// When a shard is needed from a tick on: that very tick while a stretch of it lasts.
    #[must_use]
    pub fn next_use(&self, shard: usize, tick: u64) -> Option<u64> {
        self.next(shard, tick).map(|found| found.first.max(tick))
    }

    /// All stretches that do not end before `from`, by their first tick: the order to fetch in.
    pub fn in_order(&self, from: u64) -> impl Iterator<Item = AccessWindow> + '_ {
        self.epochs
            .iter()
            .filter(move |span| span.end > from)
            .flat_map(move |span| span.in_order(from))
    }

    /// Gives back the memory of stretches that end before a tick. They may still be seen until enough of them have
    /// come together to be worth the work.
    pub fn forget(&mut self, before: u64) {
        while self.epochs.front().is_some_and(|span| span.end <= before) {
            self.epochs.pop_front();
        }
        self.epochs.shrink_to(self.epochs.len().saturating_mul(2));
        let shards = self.shards;
        let Some(span) = self.epochs.front_mut() else {
            return;
        };
        // Done when half of them have ended, the work for each stretch is constant on the whole. The shards' table
        // counts too: it is made anew.
        if span.ended(before) <= span.order.len() / 2 + shards / 8 {
            return;
        }
        let mut left: Vec<AccessWindow> = span.in_order(before).collect();
        left.shrink_to_fit();
        left.sort_unstable_by_key(|found| (found.shard, found.first));
        *span = Span::new(span.end, left, shards);
    }

    /// Stretches in memory.
    #[must_use]
    pub fn len(&self) -> usize {
        self.epochs.iter().map(|span| span.order.len()).sum()
    }

    /// Whether no stretch is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.epochs.iter().all(|span| span.order.is_empty())
    }
}

/// A shard in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Resident {
    /// Which one.
    pub shard: usize,
    /// What it takes up.
    pub bytes: u64,
    /// Whether somebody reads it, so that it cannot leave.
    pub pinned: bool,
}

/// Which residents leave so that `bytes` more fit within `limit`, of which `used` are taken.
///
/// Those whose next use is farthest leave, first of all those without one; of equals the larger, then the lower
/// number. Never one that is pinned, or that is needed at `wanted_at` or before; `u64::MAX` stands for a shard that is
/// not known to be needed again. An empty list: there is room. `None`: it cannot be done, or is not worth it, because
/// those who would have to leave are needed sooner.
///
/// Deterministic, whatever the order of `residents`. `next_use` is asked once for each resident that is not pinned, and
/// only where room is short.
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
    // Not `used + bytes - limit`, which may be beyond 64 bits.
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
    // A large one that came last may have made others unnecessary: those needed soonest stay.
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
