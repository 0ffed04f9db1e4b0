//! Which shard is where, who waits for it, and what is done next. Nothing here touches a file or waits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use shardmill_storage::FileIdentity;

use crate::cache::{AccessPlan, AccessWindow};
use crate::error::ReaderError;
use crate::open::OpenShard;
use crate::shard_cache::CacheStats;
use crate::shard_cache::folder::Marker;
use crate::shard_cache::origin::Pending;

/// Where a shard is.
#[derive(Debug, Default)]
pub(crate) enum Slot {
    /// Not here, as far as is known.
    #[default]
    Absent,
    /// Being worked on.
    Busy(Box<Work>),
    /// On the disk, and found to be what the index says.
    Ready,
    /// Open.
    Open(Box<Opened>),
    /// There was no room for it; its samples are read one by one until something is let go.
    Alone { room: u64 },
    /// It could not be had.
    Failed(Box<Failure>),
}

/// A shard that is worked on.
pub(crate) struct Work {
    /// Whether somebody waits for it.
    pub(crate) needed: bool,
    /// When it is needed.
    pub(crate) tick: u64,
    pub(crate) stage: Stage,
    /// Bytes that count as being on their way.
    pub(crate) flight: u64,
    /// How often it was fetched and found to be wrong.
    pub(crate) failures: u32,
    /// Which fetch of this process it is; answers to an earlier one are late.
    pub(crate) ticket: u64,
    /// Since when another process is waited for, and for how long until the next look.
    pub(crate) since: Option<Instant>,
    pub(crate) pause: Duration,
    /// What the shard is written to, or the memory that it takes.
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

/// Where a fetched shard goes.
#[derive(Debug, Default)]
pub(crate) enum Place {
    /// Not known yet.
    #[default]
    Unknown,
    /// To the disk, where room is reserved.
    Disk(Marker),
    /// To memory, of which so much is reserved.
    Memory(u64),
}

pub(crate) enum Stage {
    /// In the list of jobs.
    Queued(JobKey),
    /// Some thread is at it.
    Running,
    /// Another process is at it; looked at again then.
    Waiting(Instant),
    /// Its files are on their way.
    Fetching {
        files: Vec<Option<Vec<u8>>>,
        pending: Vec<Pending>,
        begun: Instant,
    },
    /// Its files have come, or have not.
    Fetched(Result<Vec<Vec<u8>>, ReaderError>),
}

#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) shard: Arc<OpenShard>,
    /// Keeps other processes from removing it.
    pub(crate) pin: Option<Marker>,
    /// What it takes up of memory, where it is not a file.
    pub(crate) memory: u64,
    /// The latest tick that it was asked for.
    pub(crate) used_at: u64,
    /// When it was asked for last, in the order of asking.
    pub(crate) stamp: u64,
    /// Under what it stands in the list of ends.
    pub(crate) end: Option<u64>,
}

impl Opened {
    /// Whether other processes are kept from removing it.
    fn is_pinned(&self) -> bool {
        self.pin.is_some() || self.shard.is_pinned()
    }
}

#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: Arc<ReaderError>,
    /// Whether somebody was told.
    pub(crate) told: bool,
}

/// What comes first: what somebody waits for, then starting before finishing, then what is needed sooner.
pub(crate) type JobKey = (Urgency, Kind, u64, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    Needed,
    Ahead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Look for it, make room, start fetching.
    Start,
    /// Check it and put it where it belongs.
    Finish,
}

/// How long a fetch takes and how long a batch: each an average in which the last ones count most.
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

    /// How many batches before it is needed a fetch has to begin, twice over; as long as nothing is known, some.
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

/// What this process keeps alive only until the lock is given back.
#[derive(Debug, Default)]
pub(crate) struct DeferredDrop(Vec<Opened>);

impl DeferredDrop {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Everything that the lock protects.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) slots: Vec<Slot>,
    pub(crate) jobs: BTreeMap<JobKey, usize>,
    next_job: u64,
    pub(crate) next_ticket: u64,
    /// Shards that wait for another process, by when to look again.
    pub(crate) waiting: BTreeSet<(Instant, usize)>,
    pub(crate) access_plan: Arc<AccessPlan>,
    /// What to fetch, in order, and how far that has got.
    pub(crate) ahead: VecDeque<AccessWindow>,
    pub(crate) cursor: usize,
    /// How far checking what was found has got in it.
    pub(crate) near: usize,
    pub(crate) now: u64,
    /// Whether a batch has been given out.
    pub(crate) begun: bool,
    pub(crate) in_flight: u64,
    pub(crate) memory: u64,
    /// Rises whenever room may have been made.
    pub(crate) room: u64,
    /// Fetching ahead stopped for want of room: at which state of it, since when, and for what is needed at which tick.
    pub(crate) blocked: Option<(u64, Instant, u64)>,
    /// Open shards by when they were asked for last.
    stamps: BTreeMap<u64, usize>,
    next_stamp: u64,
    /// Open shards that are let go when they have been used, by when that is.
    ends: BTreeSet<(u64, usize)>,
    /// Files that this process has checked.
    pub(crate) known: BTreeMap<usize, (FileIdentity, Option<FileIdentity>)>,
    /// Shards whose files were found changed: what anybody said of them before does not count.
    pub(crate) doubted: BTreeSet<usize>,
    /// Shards that are larger than a file on the disk may be.
    pub(crate) unwritable: BTreeSet<usize>,
    /// Shards that somebody said he will ask for, and that are not begun yet.
    pub(crate) asked_ahead: VecDeque<usize>,
    /// Those that were begun for that, until they are used.
    pub(crate) promised: BTreeSet<usize>,
    /// When shards that are closed were asked for last, in the order of asking; where nothing is known of the future.
    pub(crate) recent: BTreeMap<usize, u64>,
    pub(crate) generation: u64,
    pub(crate) stats: CacheStats,
    pub(crate) pace: Pace,
    pub(crate) stopped: bool,
    /// Whether open shards are closed when they have been used, because others may need their room.
    limited: bool,
    /// Threads that wait for a shard.
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

    /// Lists a job for a shard that is not worked on.
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

    /// Lists a job for a shard that is worked on.
    pub(crate) fn queue(&mut self, shard: usize, kind: Kind) {
        let Some((needed, tick)) = self.work(shard).map(|work| (work.needed, work.tick)) else {
            return;
        };
        let key = self.key(needed, kind, tick);
        self.jobs.insert(key, shard);
        if let Some(work) = self.work(shard) {
            // What was fetched stays where it is.
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

    /// Somebody waits for a shard that is worked on.
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
            // The key of a finishing job is not kept; there are few jobs.
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

    /// Takes a job. Of those that would fetch, one that the budget has room for.
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
            // What is known to be on the disk is not fetched.
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

    /// The work on a shard is over: its bytes are no longer on their way. What it held comes back.
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

    /// A shard is open from now on.
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

    /// Room has become short: shards that are open already are closed as well when they have been used.
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

    /// Notes when an open shard will have been used.
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
        // Opened before it is needed: not before then.
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

    /// Somebody uses an open shard at a tick.
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

    /// Lets an open shard go; `kept` when its file stays.
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

    /// Whether a batch that is being read may use a shard, or somebody is at work on it.
    pub(crate) fn is_in_use(&self, shard: usize) -> bool {
        match self.slots.get(shard) {
            Some(Slot::Busy(work)) => !work.is_idle(),
            Some(Slot::Open(opened)) => opened.used_at >= self.now,
            _ => false,
        }
    }

    /// Takes a job off the list that nobody waits for and nobody has begun.
    pub(crate) fn call_off(&mut self, shard: usize) {
        let Some(work) = self.work(shard).filter(|work| work.is_idle()) else {
            return;
        };
        if let Stage::Queued(key) = work.stage {
            self.jobs.remove(&key);
        }
        drop(self.end_work(shard));
    }

    /// The consumer has come to a tick: what was used before and is not used now is let go.
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

    /// Closes the shards that were asked for longest ago, down to `most` that are open.
    pub(crate) fn close_beyond(&mut self, most: usize, deferred_drop: &mut DeferredDrop) {
        while self.stamps.len() > most {
            let Some((_, shard)) = self.stamps.first_key_value() else {
                return;
            };
            let shard = *shard;
            // In memory it would be lost.
            let memory = matches!(self.slots.get(shard), Some(Slot::Open(open)) if open.memory > 0);
            if memory {
                return;
            }
            self.let_go(shard, true, deferred_drop);
        }
    }

    /// Another future, or more of it; with `now` it begins there.
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
                // Ticks of another run of batches say nothing now.
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

    /// A shard was removed: it has to be fetched again for its next stretch.
    pub(crate) fn rewind(&mut self, shard: usize) {
        if let Some(next) = self.access_plan.next(shard, self.now) {
            let at = self.ahead.partition_point(|found| found.first < next.first);
            self.cursor = self.cursor.min(at);
        }
    }

    /// When a shard was asked for last, in the order of asking.
    pub(crate) fn stamp(&self, shard: usize) -> Option<u64> {
        match self.slots.get(shard) {
            Some(Slot::Open(opened)) => Some(opened.stamp),
            _ => self.recent.get(&shard).copied(),
        }
    }

    /// Shards that other processes are kept from removing.
    pub(crate) const fn pins(&self) -> usize {
        self.pins
    }

    pub(crate) fn open_shards(&self) -> usize {
        self.stamps.len()
    }

    /// Everything goes.
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
