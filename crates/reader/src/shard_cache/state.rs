//! The table of shards, the job queue, and the prefetch position. Nothing in this module accesses files or waits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use shardmill_storage::FileIdentity;

use crate::error::ReaderError;
use crate::open::OpenShard;
use crate::shard_cache::CacheStats;
use crate::shard_cache::folder::Marker;
use crate::shard_cache::origin::Pending;
use shardmill_cache::{AccessPlan, AccessWindow};

/// The state of a shard.
#[derive(Debug, Default)]
pub(crate) enum Slot {
    /// Not known to be on disk.
    #[default]
    Absent,
    /// A job is queued, running, fetching, or waiting.
    Busy(Box<Work>),
    /// On disk. Unless the check was deferred, the files match the index.
    Ready,
    /// Open: mapped from disk, or held in memory.
    Open(Box<Opened>),
    /// No space was free; its samples are read individually until the counter `room` changes.
    Alone { room: u64 },
    /// The shard could not be fetched or verified.
    Failed(Box<Failure>),
}

/// The work in progress on a shard.
pub(crate) struct Work {
    /// Whether a caller waits for the shard.
    pub(crate) needed: bool,
    /// The tick at which the shard is needed.
    pub(crate) tick: u64,
    pub(crate) stage: Stage,
    /// Bytes counted as in flight.
    pub(crate) flight: u64,
    /// How often the shard was fetched and failed verification.
    pub(crate) failures: u32,
    /// The number of the fetch in this process. Answers with another number are ignored.
    pub(crate) ticket: u64,
    /// When waiting for another process or for space began.
    pub(crate) since: Option<Instant>,
    pub(crate) pause: Duration,
    /// Where the shard will be stored, with its reservation.
    pub(crate) place: Place,
}

impl Work {
    fn is_idle(&self) -> bool {
        let listed = matches!(self.stage, Stage::Queued(_));
        listed && !self.needed && matches!(self.place, Place::Unknown)
    }
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work")
            .field("needed", &self.needed)
            .field("tick", &self.tick)
            .finish_non_exhaustive()
    }
}

/// Where a fetched shard is stored.
#[derive(Debug, Default)]
pub(crate) enum Place {
    /// Not decided yet.
    #[default]
    Unknown,
    /// On disk, where the marker reserves space.
    Disk(Marker),
    /// In memory, with the reserved number of bytes.
    Memory(u64),
}

pub(crate) enum Stage {
    /// In the job queue.
    Queued(JobKey),
    /// A thread runs the job.
    Running,
    /// Waiting for another process or for space until this instant.
    Waiting(Instant),
    /// Its files are being fetched.
    Fetching {
        files: Vec<Option<Vec<u8>>>,
        pending: Vec<Pending>,
        begun: Instant,
    },
    /// Its files were fetched, or the fetch failed.
    Fetched(Result<Vec<Vec<u8>>, ReaderError>),
}

#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) shard: Arc<OpenShard>,
    /// Prevents other processes from evicting the shard.
    pub(crate) pin: Option<Marker>,
    /// Bytes of memory used; 0 for a mapped file.
    pub(crate) memory: u64,
    /// The latest tick at which a caller used the shard.
    pub(crate) used_at: u64,
    /// When the shard was last used, as a number that increases with each use.
    pub(crate) stamp: u64,
    /// The shard's key in `State::ends`, if it is listed there.
    pub(crate) end: Option<u64>,
}

impl Opened {
    /// Returns whether the shard is pinned, so that other processes cannot evict it.
    fn is_pinned(&self) -> bool {
        self.pin.is_some() || self.shard.is_pinned()
    }
}

#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: Arc<ReaderError>,
    /// Whether a caller has received the error.
    pub(crate) told: bool,
}

/// The order of jobs: needed before prefetched, `Start` before `Finish`, then the earlier tick, then the older job.
pub(crate) type JobKey = (Urgency, Kind, u64, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    Needed,
    Ahead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Find the shard, make space and start the fetch.
    Start,
    /// Verify the fetched bytes and store them.
    Finish,
}

/// The duration of a fetch and of a batch, as moving averages with a weight of 1/8 for the newest value.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    fetch: Option<Duration>,
    tick: Option<Duration>,
    last_tick: Option<Instant>,
}

impl Pace {
    fn average(old: Option<Duration>, new: Duration) -> Duration {
        old.map_or(new, |old| (old * 7 + new) / 8)
    }

    pub(crate) fn fetched(&mut self, lasted: Duration) {
        self.fetch = Some(Self::average(self.fetch, lasted));
    }

    pub(crate) fn ticked(&mut self, ticks: u64, now: Instant) {
        if let Some(last) = self.last_tick.replace(now) {
            let ticks = u32::try_from(ticks).unwrap_or(u32::MAX).max(1);
            let each = now.saturating_duration_since(last) / ticks;
            self.tick = Some(Self::average(self.tick, each));
        }
    }

    /// Returns twice the number of batches that a fetch takes; 8 as long as nothing was measured.
    pub(crate) fn slack(&self) -> u64 {
        const UNKNOWN: u64 = 8;
        const MOST: u64 = 1 << 16;

        let (Some(fetch), Some(tick)) = (self.fetch, self.tick) else {
            return UNKNOWN;
        };
        let ticks = fetch.as_nanos() * 2 / tick.as_nanos().max(1);
        u64::try_from(ticks).map_or(MOST, |ticks| ticks.saturating_add(1).min(MOST))
    }
}

/// Closed shards that are dropped only after the lock is released.
#[derive(Debug, Default)]
pub(crate) struct DeferredDrop(Vec<Opened>);

impl DeferredDrop {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The table and all else that the mutex protects.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) slots: Vec<Slot>,
    pub(crate) jobs: BTreeMap<JobKey, usize>,
    next_job: u64,
    pub(crate) next_ticket: u64,
    /// Shards that wait for another process or for space, ordered by when to retry.
    pub(crate) waiting: BTreeSet<(Instant, usize)>,
    pub(crate) access_plan: Arc<AccessPlan>,
    /// What to prefetch, in order. `cursor` is the next entry.
    pub(crate) ahead: VecDeque<AccessWindow>,
    pub(crate) cursor: usize,
    /// The next entry of `ahead` whose existing files are to be verified.
    pub(crate) near: usize,
    pub(crate) now: u64,
    /// Whether the first batch has been delivered.
    pub(crate) begun: bool,
    pub(crate) in_flight: u64,
    pub(crate) memory: u64,
    /// Increases whenever space may have become free.
    pub(crate) room: u64,
    /// Set while prefetching is stopped for lack of space: the value of `room`, the time, and the tick of the blocked
    /// shard.
    pub(crate) blocked: Option<(u64, Instant, u64)>,
    /// Open shards, least recently used first.
    stamps: BTreeMap<u64, usize>,
    next_stamp: u64,
    /// Open shards that are closed after their last use, by the tick of that use.
    ends: BTreeSet<(u64, usize)>,
    /// Identities of the files that this process has verified.
    pub(crate) known: BTreeMap<usize, (FileIdentity, Option<FileIdentity>)>,
    /// Shards whose files changed: earlier checks, also by other processes, do not count.
    pub(crate) doubted: BTreeSet<usize>,
    /// Shards larger than the largest file that the file system or the process can write.
    pub(crate) unwritable: BTreeSet<usize>,
    /// Preloaded shards whose fetch has not begun.
    pub(crate) asked_ahead: VecDeque<usize>,
    /// Preloaded shards whose fetch has begun, until they are used.
    pub(crate) promised: BTreeSet<usize>,
    /// Last use of closed shards, as in `Opened::stamp`; only without an access plan.
    pub(crate) recent: BTreeMap<usize, u64>,
    pub(crate) generation: u64,
    pub(crate) stats: CacheStats,
    pub(crate) pace: Pace,
    pub(crate) stopped: bool,
    /// Whether to close shards after their last use, because space is limited.
    limited: bool,
    /// The number of threads that wait for a shard.
    pub(crate) waiters: usize,
    pins: usize,
}

impl State {
    pub(crate) fn new(shards: usize) -> Self {
        let mut slots = Vec::new();
        slots.resize_with(shards, Slot::default);
        Self {
            slots,
            jobs: BTreeMap::new(),
            next_job: 0,
            next_ticket: 0,
            waiting: BTreeSet::new(),
            access_plan: Arc::new(AccessPlan::new(shards)),
            ahead: VecDeque::new(),
            cursor: 0,
            near: 0,
            now: 0,
            begun: false,
            in_flight: 0,
            memory: 0,
            room: 0,
            blocked: None,
            stamps: BTreeMap::new(),
            next_stamp: 0,
            ends: BTreeSet::new(),
            known: BTreeMap::new(),
            doubted: BTreeSet::new(),
            unwritable: BTreeSet::new(),
            limited: false,
            asked_ahead: VecDeque::new(),
            promised: BTreeSet::new(),
            recent: BTreeMap::new(),
            generation: 0,
            stats: CacheStats::default(),
            pace: Pace::default(),
            stopped: false,
            waiters: 0,
            pins: 0,
        }
    }

    pub(crate) fn work(&mut self, shard: usize) -> Option<&mut Work> {
        match self.slots.get_mut(shard) {
            Some(Slot::Busy(work)) => Some(work),
            _ => None,
        }
    }

    pub(crate) fn set(&mut self, shard: usize, slot: Slot) {
        if let Some(place) = self.slots.get_mut(shard) {
            *place = slot;
        }
    }

    /// Queues the first job of a shard that has none.
    pub(crate) fn begin(&mut self, shard: usize, needed: bool, tick: u64, flight: u64) {
        let key = self.key(needed, Kind::Start, tick);
        self.jobs.insert(key, shard);
        self.in_flight = self.in_flight.saturating_add(flight);
        let work = Work {
            needed,
            tick,
            stage: Stage::Queued(key),
            flight,
            failures: 0,
            ticket: 0,
            since: None,
            pause: Duration::from_millis(1),
            place: Place::Unknown,
        };
        self.set(shard, Slot::Busy(Box::new(work)));
    }

    /// Queues another job of a busy shard.
    pub(crate) fn queue(&mut self, shard: usize, kind: Kind) {
        let Some((needed, tick)) = self.work(shard).map(|work| (work.needed, work.tick)) else {
            return;
        };
        let key = self.key(needed, kind, tick);
        self.jobs.insert(key, shard);
        if let Some(work) = self.work(shard) {
            // `Finish` needs the fetched bytes in the stage.
            if kind == Kind::Start {
                work.stage = Stage::Queued(key);
            }
        }
    }

    fn key(&mut self, needed: bool, kind: Kind, tick: u64) -> JobKey {
        self.next_job += 1;
        let urgency = if needed {
            Urgency::Needed
        } else {
            Urgency::Ahead
        };
        (urgency, kind, tick, self.next_job)
    }

    /// Marks a busy shard as needed at a tick, and moves its job forward in the queue.
    pub(crate) fn hurry(&mut self, shard: usize, tick: u64) {
        let Some(work) = self.work(shard) else {
            return;
        };
        let earlier = tick < work.tick || !work.needed;
        work.tick = work.tick.min(tick);
        work.needed = true;
        if !earlier {
            return;
        }
        let queued = match work.stage {
            Stage::Queued(key) => Some(key),
            // The key of a `Finish` job is not stored; the queue is short.
            Stage::Fetched(_) => {
                let found = self.jobs.iter().find(|(_, listed)| **listed == shard);
                found.map(|(key, _)| *key)
            }
            Stage::Running | Stage::Waiting(_) | Stage::Fetching { .. } => None,
        };
        if let Some(key) = queued
            && self.jobs.remove(&key).is_some()
        {
            self.queue(shard, key.1);
        }
    }

    /// Takes the first job that can run. A job that would fetch is skipped if it exceeds the budget.
    pub(crate) fn take_job(
        &mut self,
        budget: u64,
        only_needed: bool,
        flight: impl Fn(usize) -> u64,
    ) -> Option<(usize, Kind)> {
        let mut found = None;
        for (key, shard) in &self.jobs {
            if only_needed && key.0 != Urgency::Needed {
                break;
            }
            let Some(Slot::Busy(work)) = self.slots.get(*shard) else {
                found = Some((*key, *shard, 0));
                break;
            };
            if key.1 == Kind::Finish || work.flight > 0 {
                found = Some((*key, *shard, 0));
                break;
            }
            // A shard known to be on disk is not fetched.
            let bytes = if self.known.contains_key(shard) {
                0
            } else {
                flight(*shard)
            };
            if self.in_flight == 0 || self.in_flight.saturating_add(bytes) <= budget {
                found = Some((*key, *shard, bytes));
                break;
            }
        }
        let (key, shard, bytes) = found?;
        self.jobs.remove(&key);
        self.in_flight = self.in_flight.saturating_add(bytes);
        let work = self.work(shard)?;
        if key.1 == Kind::Start {
            work.flight = work.flight.saturating_add(bytes);
            work.stage = Stage::Running;
        }
        Some((shard, key.1))
    }

    /// Ends the work on a shard and releases its bytes in flight. Returns the work, with its reservation.
    pub(crate) fn end_work(&mut self, shard: usize) -> Option<Box<Work>> {
        let slot = self.slots.get_mut(shard)?;
        if !matches!(slot, Slot::Busy(_)) {
            return None;
        }
        let Slot::Busy(work) = std::mem::take(slot) else {
            return None;
        };
        self.in_flight = self.in_flight.saturating_sub(work.flight);
        if let Stage::Waiting(until) = work.stage {
            self.waiting.remove(&(until, shard));
        }
        Some(work)
    }

    /// Marks a shard as open.
    pub(crate) fn open(&mut self, shard: usize, mut opened: Opened) {
        self.next_stamp += 1;
        opened.stamp = self.next_stamp;
        opened.end = None;
        self.stamps.insert(opened.stamp, shard);
        self.promised.remove(&shard);
        self.pins += usize::from(opened.is_pinned());
        let watched = self.limited || opened.memory > 0;
        self.set(shard, Slot::Open(Box::new(opened)));
        if watched {
            self.watch(shard);
        }
    }

    /// Switches to limited space: shards are closed after their last use, including those already open.
    pub(crate) fn limit(&mut self) {
        if self.limited {
            return;
        }
        self.limited = true;
        let open: Vec<usize> = self.stamps.values().copied().collect();
        for shard in open {
            self.watch(shard);
        }
    }

    /// Lists an open shard by the tick of its last use.
    fn watch(&mut self, shard: usize) {
        let now = self.now;
        let access_plan = Arc::clone(&self.access_plan);
        let Some(Slot::Open(opened)) = self.slots.get_mut(shard) else {
            return;
        };
        let at = opened.used_at.max(now);
        let lasts = access_plan
            .next(shard, at)
            .filter(|found| found.first <= at)
            .map_or(opened.used_at, |found| found.last);
        // A shard opened early stays open until its first use.
        let end = if opened.used_at > now {
            lasts.max(opened.used_at)
        } else {
            lasts
        };
        if let Some(old) = opened.end.replace(end) {
            self.ends.remove(&(old, shard));
        }
        self.ends.insert((end, shard));
    }

    /// Records a use of an open shard at a tick, and returns the shard.
    pub(crate) fn touch(&mut self, shard: usize, tick: u64) -> Option<Arc<OpenShard>> {
        let Some(Slot::Open(opened)) = self.slots.get_mut(shard) else {
            return None;
        };
        self.stamps.remove(&opened.stamp);
        self.next_stamp += 1;
        opened.stamp = self.next_stamp;
        self.stamps.insert(opened.stamp, shard);
        let later = tick > opened.used_at;
        opened.used_at = opened.used_at.max(tick);
        let open = Arc::clone(&opened.shard);
        if later && opened.end.is_some_and(|end| end < tick) {
            self.watch(shard);
        }
        Some(open)
    }

    /// Closes an open shard. `kept`: its file stays on disk.
    pub(crate) fn let_go(&mut self, shard: usize, kept: bool, deferred_drop: &mut DeferredDrop) {
        let Some(slot) = self.slots.get_mut(shard) else {
            return;
        };
        if !matches!(slot, Slot::Open(_)) {
            return;
        }
        if let Slot::Open(opened) = std::mem::take(slot) {
            self.stamps.remove(&opened.stamp);
            if self.access_plan.is_empty() && (opened.is_pinned() || opened.end.is_some()) {
                self.recent.insert(shard, opened.stamp);
            }
            if let Some(end) = opened.end {
                self.ends.remove(&(end, shard));
            }
            self.memory = self.memory.saturating_sub(opened.memory);
            self.pins -= usize::from(opened.is_pinned());
            if kept && opened.memory == 0 {
                self.set(shard, Slot::Ready);
            }
            deferred_drop.0.push(*opened);
        }
        self.generation += 1;
        self.room += 1;
    }

    /// Returns whether a batch in progress may use a shard, or a job of the shard is in progress.
    pub(crate) fn is_in_use(&self, shard: usize) -> bool {
        match self.slots.get(shard) {
            Some(Slot::Busy(work)) => !work.is_idle(),
            Some(Slot::Open(opened)) => opened.used_at >= self.now,
            _ => false,
        }
    }

    /// Removes a queued prefetch that has not started.
    pub(crate) fn call_off(&mut self, shard: usize) {
        let Some(work) = self.work(shard).filter(|work| work.is_idle()) else {
            return;
        };
        if let Stage::Queued(key) = work.stage {
            self.jobs.remove(&key);
        }
        drop(self.end_work(shard));
    }

    /// Moves the consumer to a tick, and closes shards whose last use is over.
    pub(crate) fn move_to(&mut self, tick: u64, deferred_drop: &mut DeferredDrop) {
        if tick <= self.now {
            return;
        }
        self.now = tick;
        while let Some((end, shard)) = self.ends.first().copied() {
            if end >= tick {
                break;
            }
            self.ends.remove(&(end, shard));
            if let Some(Slot::Open(opened)) = self.slots.get_mut(shard) {
                opened.end = None;
                let in_use = opened.used_at >= tick
                    || self
                        .access_plan
                        .next(shard, tick)
                        .is_some_and(|found| found.first <= tick);
                if in_use {
                    self.watch(shard);
                } else {
                    self.let_go(shard, true, deferred_drop);
                }
            }
        }
        while self
            .ahead
            .front()
            .is_some_and(|first| self.cursor > 0 && first.last < tick)
        {
            self.ahead.pop_front();
            self.cursor -= 1;
            self.near = self.near.saturating_sub(1);
        }
    }

    /// Closes the least recently used shards until at most `most` are open. Stops at a shard that is held in memory.
    pub(crate) fn close_beyond(&mut self, most: usize, deferred_drop: &mut DeferredDrop) {
        while self.stamps.len() > most {
            let Some((_, shard)) = self.stamps.first_key_value() else {
                return;
            };
            let shard = *shard;
            // Closing it would lose its content.
            let memory = matches!(self.slots.get(shard), Some(Slot::Open(open)) if open.memory > 0);
            if memory {
                return;
            }
            self.let_go(shard, true, deferred_drop);
        }
    }

    /// Replaces the access plan. With `now`, the consumer moves there.
    pub(crate) fn foresee(
        &mut self,
        access_plan: AccessPlan,
        now: Option<u64>,
        deferred_drop: &mut DeferredDrop,
    ) {
        self.access_plan = Arc::new(access_plan);
        if let Some(now) = now {
            self.now = now;
        }
        self.ahead = self.access_plan.in_order(self.now).collect();
        self.cursor = 0;
        self.near = 0;
        self.blocked = None;
        self.room += 1;
        let watched: Vec<usize> = self.ends.iter().map(|(_, shard)| *shard).collect();
        for shard in watched {
            if let Some(Slot::Open(opened)) = self.slots.get_mut(shard)
                && now.is_some()
            {
                // Ticks of the previous plan are meaningless in the new one.
                opened.used_at = 0;
                let in_use = self.next_use(shard) == Some(self.now);
                if !in_use {
                    self.let_go(shard, true, deferred_drop);
                    continue;
                }
            }
            self.watch(shard);
        }
    }

    fn next_use(&self, shard: usize) -> Option<u64> {
        self.access_plan.next_use(shard, self.now)
    }

    /// Moves the prefetch position back to the next use of an evicted shard.
    pub(crate) fn rewind(&mut self, shard: usize) {
        if let Some(next) = self.access_plan.next(shard, self.now) {
            let at = self.ahead.partition_point(|found| found.first < next.first);
            self.cursor = self.cursor.min(at);
        }
    }

    /// Returns when a shard was last used, as a number that increases with each use.
    pub(crate) fn stamp(&self, shard: usize) -> Option<u64> {
        match self.slots.get(shard) {
            Some(Slot::Open(opened)) => Some(opened.stamp),
            _ => self.recent.get(&shard).copied(),
        }
    }

    /// Returns the number of pinned shards.
    pub(crate) const fn pins(&self) -> usize {
        self.pins
    }

    pub(crate) fn open_shards(&self) -> usize {
        self.stamps.len()
    }

    /// Closes all shards, ends all work and empties the queues.
    pub(crate) fn clear(&mut self, deferred_drop: &mut DeferredDrop) -> Vec<(usize, Box<Work>)> {
        let mut work = Vec::new();
        for shard in 0..self.slots.len() {
            match self.slots.get(shard) {
                Some(Slot::Open(_)) => self.let_go(shard, false, deferred_drop),
                Some(Slot::Busy(_)) => work.extend(self.end_work(shard).map(|work| (shard, work))),
                _ => {}
            }
        }
        self.jobs.clear();
        self.asked_ahead.clear();
        self.ahead.clear();
        work
    }
}
