//! Reads the order of an epoch batch by batch.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::batch_plan::Method;
use crate::epoch::{Entry, Epoch, Inner, SampleId};
use crate::num::{count, index, low32};
use crate::shuffle::{Follow, Scratch};
use crate::units::Drawn;
use shardmill_core::{Error, lock};

/// Most sample ids in all windows of a cursor together: 32 MiB of 32-bit ids.
const MAX_HELD: u64 = 1 << 23;
/// The shortest window that is worth its fixed cost.
const SHORTEST: u64 = 1 << 10;
/// The longest window: half the smallest default block.
const LONGEST: u64 = 1 << 17;
/// The length of the first window of each canonical node, so that the first batch is ready soon.
const FIRST: u64 = 1 << 13;

/// Reads a part of every global batch: that of a rank, of a node, or all of it.
///
/// Batches may be read in any order; sequential reading is fast. The cursor keeps one window of the order for each
/// canonical node in use, of at most 2^17 samples. All windows together take about 32 MiB (64 MiB from 2^32 samples
/// on) or 1024 samples each, whichever is more.
#[derive(Debug)]
pub struct Cursor {
    epoch: Epoch,
    entries: Range<u64>,
    /// One per canonical node of each source.
    windows: Vec<Option<Box<CachedWindow>>>,
    scratch: Vec<Mutex<Scratch>>,
    drawn: Vec<Drawn>,
    window: u64,
    threads: usize,
    wanted: Vec<PendingEntry>,
}

/// A canonical node of a source: `source * canonical_nodes + node`.
type Key = usize;

/// An entry whose sample is not known yet.
#[derive(Clone, Copy, Debug)]
struct PendingEntry {
    key: Key,
    position: u64,
    out: usize,
}

/// A window of a canonical node, as sample ids.
#[derive(Debug, Default)]
struct CachedWindow {
    start: u64,
    ids: Ids,
    follow: Follow,
    /// Windows computed so far.
    computed: u64,
}

#[derive(Debug)]
enum Ids {
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
}

impl Default for Ids {
    fn default() -> Self {
        Self::Narrow(Vec::new())
    }
}

impl Ids {
    fn replace(&mut self, ids: &[u64], narrow: bool) {
        match self {
            Self::Narrow(cached) if narrow => {
                cached.clear();
                cached.extend(ids.iter().map(|id| low32(*id)));
            }
            Self::Wide(cached) => {
                cached.clear();
                cached.extend_from_slice(ids);
            }
            Self::Narrow(_) => *self = Self::Wide(ids.to_vec()),
        }
    }
}

impl CachedWindow {
    fn get(&self, position: u64) -> Option<u64> {
        let offset = index(position.checked_sub(self.start)?);
        match &self.ids {
            Ids::Narrow(ids) => ids.get(offset).copied().map(u64::from),
            Ids::Wide(ids) => ids.get(offset).copied(),
        }
    }
}

impl Epoch {
    /// Returns a cursor over the samples of one rank of the world before replication.
    ///
    /// # Errors
    /// `InvalidInput` if the rank does not exist.
    pub fn rank(&self, rank: u64) -> Result<Cursor, Error> {
        Ok(Cursor::new(self.clone(), self.entries_of_rank(rank)?))
    }

    /// Returns a cursor over the samples of all ranks, with replicas counted once: node by node, rank by rank.
    #[must_use]
    pub fn all_ranks(&self) -> Cursor {
        Cursor::new(self.clone(), 0..self.global_batch())
    }
}

impl Cursor {
    fn new(epoch: Epoch, entries: Range<u64>) -> Self {
        let inner = &epoch.inner;
        let active = match &inner.batch_plan.method {
            Method::Random(partition) => partition.count_nodes_in(&entries),
            // A stream is in one or two passes at a time.
            Method::Mixture(mixed) => 2 * mixed.streams(),
            _ => inner
                .resolved
                .canonical_nodes
                .saturating_mul(count(inner.sources.len())),
        };
        Self {
            window: (MAX_HELD / active.max(1)).clamp(SHORTEST, LONGEST),
            drawn: inner.sources.iter().map(|_| Drawn::default()).collect(),
            windows: Vec::new(),
            scratch: Vec::new(),
            threads: 1,
            wanted: Vec::new(),
            entries,
            epoch,
        }
    }

    /// Computes the windows of several canonical nodes in parallel, on this many threads; 0 counts as 1.
    #[must_use]
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    /// Sets the approximate window length per canonical node, in samples. Shorter windows are computed more often, and
    /// each computation costs the surrounding shuffle block.
    #[must_use]
    pub fn with_window(mut self, samples: u64) -> Self {
        self.window = samples.max(1);
        self
    }

    /// Returns the epoch.
    #[must_use]
    pub fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    /// Returns the number of batches.
    #[must_use]
    pub fn batches(&self) -> u64 {
        self.epoch.batches()
    }

    /// Replaces `out` by this cursor's part of global batch `batch`; returns false after the last batch.
    ///
    /// Only the last batch (with `device_per_stream`, the last round) may be shorter than the part.
    pub fn read(&mut self, batch: u64, out: &mut Vec<Entry>) -> bool {
        out.clear();
        if batch >= self.batches() {
            return false;
        }
        self.wanted.clear();
        let inner = &self.epoch.inner;
        let nodes = index(inner.batch_plan.canonical_nodes);
        for entry in self.entries.clone() {
            let Some((source, slot)) = inner.batch_plan.position_at(batch, entry) else {
                continue;
            };
            let Some(from) = inner.sources.get(source) else {
                continue;
            };
            let mut sample = [slot.position];
            if from.shuffle.is_direct() {
                sample[0] = from.shuffle.direct(slot.position).unwrap_or(slot.position);
                if let Some(drawn) = self.drawn.get_mut(source) {
                    from.units.resolve(&inner.table, drawn, &mut sample);
                }
            } else {
                let key = source * nodes + index(slot.canonical_node);
                match self
                    .windows
                    .get(key)
                    .and_then(Option::as_ref)
                    .and_then(|cached| cached.get(slot.position))
                {
                    Some(id) => sample[0] = id,
                    None => self.wanted.push(PendingEntry {
                        key,
                        position: slot.position,
                        out: out.len(),
                    }),
                }
            }
            out.push(Entry {
                sample: SampleId(sample[0]),
                repeated: slot.repeated,
            });
        }
        let mut wanted = std::mem::take(&mut self.wanted);
        while self.compute_windows(&wanted) {
            let windows = &self.windows;
            let before = wanted.len();
            wanted.retain(|want| {
                let cached = windows.get(want.key).and_then(Option::as_ref);
                let Some(id) = cached.and_then(|cached| cached.get(want.position)) else {
                    return true;
                };
                if let Some(entry) = out.get_mut(want.out) {
                    entry.sample = SampleId(id);
                }
                false
            });
            if wanted.len() == before {
                debug_assert!(
                    false,
                    "a window does not hold the position that it was made for"
                );
                break;
            }
        }
        self.wanted = wanted;
        true
    }

    /// Computes a window for each canonical node with a wanted entry, from its first wanted position on. Returns false
    /// if nothing is wanted.
    ///
    /// INVARIANT: a window contains the position that it was computed for, so a few rounds provide every entry.
    fn compute_windows(&mut self, wanted: &[PendingEntry]) -> bool {
        let mut missing: BTreeMap<Key, u64> = BTreeMap::new();
        for want in wanted {
            let first = missing.entry(want.key).or_insert(want.position);
            *first = want.position.min(*first);
        }
        if missing.is_empty() {
            return false;
        }
        let inner = &self.epoch.inner;
        let nodes = index(inner.batch_plan.canonical_nodes);
        if self.windows.is_empty() {
            self.windows
                .resize_with(nodes * inner.sources.len(), || None);
        }
        let threads = self.threads.min(missing.len());
        if self.scratch.len() < threads {
            self.scratch.resize_with(threads, Mutex::default);
        }
        let mut jobs = Vec::with_capacity(missing.len());
        for (key, from) in missing {
            let cached = self
                .windows
                .get_mut(key)
                .and_then(Option::take)
                .unwrap_or_default();
            jobs.push((key, from, Mutex::new(cached)));
        }
        let next = AtomicUsize::new(0);
        let (window, scratch) = (self.window, &self.scratch);
        let work = |thread: usize| {
            let Some(scratch) = scratch.get(thread) else {
                return;
            };
            let mut scratch = lock(scratch);
            while let Some((key, from, cached)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                let mut cached = lock(cached);
                compute_window(
                    inner,
                    (key / nodes, count(key % nodes)),
                    *from,
                    window,
                    &mut cached,
                    &mut scratch,
                );
            }
        };
        if threads == 1 {
            work(0);
        } else {
            std::thread::scope(|scope| {
                let work = &work;
                for thread in 1..threads {
                    scope.spawn(move || work(thread));
                }
                work(0);
            });
        }
        for (key, _, cached) in jobs {
            if let Some(slot) = self.windows.get_mut(key) {
                *slot = Some(cached.into_inner().unwrap_or_else(PoisonError::into_inner));
            }
        }
        true
    }
}

/// Computes the window of a canonical node that starts at position `from`.
fn compute_window(
    inner: &Inner,
    (source, node): (usize, u64),
    from: u64,
    window: u64,
    cached: &mut CachedWindow,
    scratch: &mut Scratch,
) {
    let Some(source) = inner.sources.get(source) else {
        return;
    };
    let wanted = match cached.computed {
        0 => FIRST.min(window),
        // Vary the length once, so that the windows of all nodes do not end in the same batch every time.
        1 => window / 2 + window / 2 * (node % 16 + 1) / 16,
        _ => window,
    }
    .max(1);
    source
        .shuffle
        .window(node, from, wanted, &mut cached.follow, scratch);
    // Earlier positions have been read; much later ones would exceed the documented memory.
    let computed = &mut scratch.window;
    let before = index(from.saturating_sub(computed.start));
    let after = computed.ids.len().min(before + index(2 * wanted));
    if after < computed.ids.len() {
        cached.follow = Follow::default();
        computed.ids.truncate(after);
    }
    let ids = computed.ids.get_mut(before..).unwrap_or_default();
    source
        .units
        .resolve(&inner.table, &mut Drawn::default(), ids);
    cached
        .ids
        .replace(ids, u32::try_from(inner.table.samples()).is_ok());
    cached.start = from;
    cached.computed += 1;
}
