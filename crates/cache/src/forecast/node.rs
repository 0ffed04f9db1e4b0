//! Simulates one node event by event.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};

use shardmill_core::number::{float, mix, whole};
use shardmill_order::Epoch;

use super::cluster::{Move, MoveKind};
use super::net::Net;
use super::report::{CacheEpoch, CacheForecast, ForecastOptions, ShardCost};
use super::timeline::Timeline;
use crate::policy::{AccessPlan, AccessWindow};
use crate::ranks::{Policy, Ranks};

/// The state of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Absent,
    /// In flight, into the cache or bypassing it.
    Coming {
        past: bool,
    },
    Here,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    state: State,
    /// Whether it was fetched for a use that has not happened yet.
    fresh: bool,
    /// Whether it was prefetched for an access window that has not begun.
    ahead: bool,
    /// The last tick of the current access window.
    until: Option<u64>,
    /// The access window that it is to be fetched for, while it is absent.
    pending: Option<AccessWindow>,
    last_used: u64,
}

/// The outcome of an attempt to start a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Started,
    /// All connections or all bytes in flight are taken.
    Busy,
    /// The budget for prefetching by eviction is used up.
    Enough,
    NoRoom,
}

/// What the node reads, and with which cache.
struct Setup<'a> {
    policy: Policy,
    access_plan: &'a RefCell<AccessPlan>,
    shards: &'a [ShardCost],
    options: &'a ForecastOptions,
}

/// The content of the cache.
#[derive(Default)]
struct Content {
    /// Shards in the cache or in flight into it.
    residents: BTreeSet<usize>,
    /// Shards that can be evicted.
    ranks: Ranks,
    used: u64,
    /// Bytes that were prefetched for access windows that have not begun.
    ahead: u64,
    changes: u64,
    /// A shard that must not be prefetched yet, with the tick and the value of `changes` of that decision.
    held_back: Option<(usize, u64, u64)>,
}

/// The results so far.
struct Record {
    counts: CacheEpoch,
    /// Bytes that the epoch would fetch if each process fetched each shard for each of its uses.
    apart_bytes: u64,
    result: CacheForecast,
    timeline: Timeline,
    /// If the nodes share their caches, the changes of this one.
    moves: Option<Vec<Move>>,
}

pub(super) struct Node<'a> {
    setup: Setup<'a>,
    net: Net,
    slots: Vec<Slot>,
    /// For each shard, the number of processes that fetch it when it bypasses the cache.
    copies: Vec<u64>,
    content: Content,
    /// The next access windows of absent shards, by first tick.
    pending: BTreeSet<AccessWindow>,
    /// Shards that a batch waits for and that are not in flight.
    demanded: VecDeque<usize>,
    in_flight: u64,
    tick: u64,
    waiting: bool,
    record: Record,
}

impl<'a> Node<'a> {
    pub(super) fn new(
        policy: Policy,
        access_plan: &'a RefCell<AccessPlan>,
        shards: &'a [ShardCost],
        options: &'a ForecastOptions,
    ) -> Self {
        Self {
            setup: Setup {
                policy,
                access_plan,
                shards,
                options,
            },
            net: Net::new(float(options.bandwidth), options.latency.as_secs_f64()),
            slots: vec![Slot::default(); shards.len()],
            copies: Vec::new(),
            content: Content::default(),
            pending: BTreeSet::new(),
            demanded: VecDeque::new(),
            in_flight: 0,
            tick: 0,
            waiting: false,
            record: Record {
                counts: CacheEpoch::default(),
                apart_bytes: 0,
                result: CacheForecast::default(),
                timeline: Timeline::new(),
                moves: (policy == Policy::Belady && !options.owners.is_empty()).then(Vec::new),
            },
        }
    }

    fn slot(&mut self, shard: usize) -> Option<&mut Slot> {
        self.slots.get_mut(shard)
    }

    fn state(&self, shard: usize) -> State {
        self.slots
            .get(shard)
            .map_or(State::Absent, |slot| slot.state)
    }

    fn cost(&self, shard: usize) -> ShardCost {
        let mut cost = self.setup.shards.get(shard).copied().unwrap_or_default();
        cost.reserve_bytes = cost.reserve_bytes.max(cost.cache_bytes);
        cost
    }

    fn copies(&self, shard: usize) -> u64 {
        self.copies.get(shard).copied().unwrap_or(1)
    }

    /// Processes a new epoch in the access plan, which begins at `from`.
    pub(super) fn learn(&mut self, from: u64) {
        let access_plan = self.setup.access_plan.borrow();
        for found in access_plan.in_order(from) {
            let Some(slot) = self.slots.get_mut(found.blob) else {
                continue;
            };
            match slot.state {
                State::Absent | State::Coming { past: true } if slot.pending.is_none() => {
                    slot.pending = Some(found);
                    self.pending.insert(found);
                }
                // This resident had no known next use until now.
                State::Here
                    if self.setup.policy != Policy::Lru
                        && self.content.ranks.next_use(found.blob) == Some(u64::MAX) =>
                {
                    let bytes = self.cost(found.blob).cache_bytes;
                    self.content.ranks.insert(found.blob, bytes, found.first);
                }
                _ => {}
            }
        }
    }

    /// Simulates the epoch that begins at tick `from`.
    pub(super) fn run(&mut self, epoch: &Epoch, from: u64) {
        let end = from + epoch.batches();
        let world = epoch.resolved().world;
        let processes = world.ranks_per_node.saturating_mul(world.workers_per_rank);
        let samples = (0..self.slots.len()).map(|shard| {
            let range = epoch.shards().range(shard);
            range.end.saturating_sub(range.start)
        });
        self.copies = samples
            .map(|samples| samples.min(processes).max(1))
            .collect();
        let started = self.net.now();
        self.record.apart_bytes = 0;
        self.record.counts = CacheEpoch {
            epoch: epoch.resolved().epoch,
            ..CacheEpoch::default()
        };
        let access_plan = self.setup.access_plan.borrow();
        let begins: Vec<AccessWindow> = access_plan
            .in_order(from)
            .take_while(|found| found.first < end)
            .collect();
        let needs = needs(&begins, epoch, self.slots.len());
        let mut ends: Vec<(u64, usize)> = begins
            .iter()
            .map(|found| (found.last.saturating_add(1), found.blob))
            .collect();
        ends.sort_unstable();
        let (mut begins, mut needs, mut ends) = (
            begins.into_iter().peekable(),
            needs.into_iter().peekable(),
            ends.into_iter().peekable(),
        );
        self.tick = from;
        while self.tick < end {
            let tick = self.tick;
            while let Some((_, shard)) = ends.next_if(|(at, _)| *at <= tick) {
                self.end_access_window(shard);
            }
            while let Some(found) = begins.next_if(|found| found.first <= tick) {
                self.begin_access_window(found);
            }
            self.fill();
            let mut wanted = Vec::new();
            while let Some((_, shard)) = needs.next_if(|(at, _)| *at <= tick) {
                self.need(shard, &mut wanted);
            }
            self.wait_for(wanted);
            let next = [
                ends.peek().map(|(at, _)| *at),
                begins.peek().map(|found| found.first),
                needs.peek().map(|(at, _)| *at),
            ];
            let next = next.into_iter().flatten().min().unwrap_or(end);
            let next = next.clamp(tick + 1, end);
            let steps = float(next - tick) * self.setup.options.step.as_secs_f64();
            self.pass(self.net.now() + steps);
            self.tick = next;
        }
        for (_, shard) in ends {
            self.end_access_window(shard);
        }
        self.record.counts.seconds = self.net.now() - started;
        let apart = self.record.counts.evictions > 0 || self.record.counts.bypasses > 0;
        let max = if apart && processes > 1 {
            self.record.apart_bytes
        } else {
            0
        };
        self.record.counts.most_fetched_bytes = max.max(self.record.counts.fetched_bytes);
        self.record.result.epochs.push(self.record.counts);
    }

    /// Returns the result, and the changes of the cache if the nodes share theirs.
    pub(super) fn finish(mut self) -> (CacheForecast, Vec<Move>) {
        self.record.result.seconds = self.net.now();
        self.record.result.timeline = self.record.timeline.points();
        (self.record.result, self.record.moves.unwrap_or_default())
    }

    /// Records a change of the cache for the other nodes.
    fn note(&mut self, shard: usize, kind: MoveKind) {
        let (at, epoch) = (self.net.now(), self.record.result.epochs.len());
        if let Some(moves) = &mut self.record.moves {
            let used = self.content.used;
            moves.push(Move {
                at,
                epoch,
                shard,
                kind,
                used,
            });
        }
    }

    /// Ranks a resident that can be evicted by its next use, as the policy sees it.
    fn rank(&mut self, shard: usize) {
        let Some(slot) = self.slots.get(shard) else {
            return;
        };
        let next = match self.setup.policy {
            Policy::Belady => self
                .setup
                .access_plan
                .borrow()
                .next_use(shard, self.tick)
                .unwrap_or(u64::MAX),
            Policy::Lru if slot.fresh => return,
            Policy::Lru => u64::MAX - slot.last_used,
        };
        self.content
            .ranks
            .insert(shard, self.cost(shard).cache_bytes, next);
    }

    fn begin_access_window(&mut self, found: AccessWindow) {
        let tick = self.tick;
        self.content.ranks.remove(found.blob);
        let bytes = self.cost(found.blob).reserve_bytes;
        let Some(slot) = self.slot(found.blob) else {
            return;
        };
        slot.until = Some(found.last);
        slot.last_used = tick;
        if std::mem::take(&mut slot.ahead) {
            self.content.ahead -= bytes;
        }
    }

    fn end_access_window(&mut self, shard: usize) {
        let tick = self.tick;
        let Some(slot) = self.slot(shard) else {
            return;
        };
        slot.last_used = tick;
        slot.until = None;
        match slot.state {
            State::Here => self.rank(shard),
            State::Absent => self.want(shard),
            State::Coming { .. } => {}
        }
    }

    /// Queues the next access window of an absent shard for fetching.
    fn want(&mut self, shard: usize) {
        let next = self.setup.access_plan.borrow().next(shard, self.tick);
        let Some(slot) = self.slots.get_mut(shard) else {
            return;
        };
        if let Some(old) = slot.pending.take() {
            self.pending.remove(&old);
        }
        slot.pending = next;
        self.pending.extend(next);
    }

    /// Handles the first need of a shard in a batch: a hit, or a reason for the batch to wait.
    fn need(&mut self, shard: usize, wanted: &mut Vec<usize>) {
        self.record.counts.uses += 1;
        let bytes = self.cost(shard).fetch_bytes;
        let each = bytes.saturating_mul(self.copies(shard));
        self.record.apart_bytes = self.record.apart_bytes.saturating_add(each);
        let Some(slot) = self.slots.get_mut(shard) else {
            return;
        };
        match slot.state {
            State::Here => {
                if !std::mem::take(&mut slot.fresh) {
                    self.record.counts.hits += 1;
                }
            }
            State::Coming { .. } => wanted.push(shard),
            State::Absent => {
                self.demanded.push_back(shard);
                wanted.push(shard);
            }
        }
    }

    fn wait_for(&mut self, mut wanted: Vec<usize>) {
        if wanted.is_empty() {
            if self.tick == 0 {
                self.record.result.first_batch_seconds = self.net.now();
            }
            return;
        }
        let since = self.net.now();
        self.waiting = true;
        self.fill();
        while !wanted.is_empty() {
            let Some(came) = self.step(f64::INFINITY) else {
                // No shard is in flight, and none can be fetched.
                break;
            };
            let before = wanted.len();
            wanted.retain(|shard| *shard != came);
            // The batch that waits for the shard is its first use.
            if wanted.len() < before
                && let Some(slot) = self.slot(came)
            {
                slot.fresh = false;
            }
        }
        self.waiting = false;
        let waited = self.net.now() - since;
        if self.tick == 0 {
            self.record.result.first_batch_seconds = self.net.now();
        } else {
            self.record.counts.wait_seconds += waited;
        }
    }

    /// Advances the time to `until`.
    fn pass(&mut self, until: f64) {
        while self.step(until).is_some() {}
    }

    /// Advances to the next shard that arrives, or to `until`. Returns the shard, if one arrived.
    fn step(&mut self, until: f64) -> Option<usize> {
        if until.is_infinite() && self.net.transfers() == 0 {
            return None;
        }
        let (timeline, waiting) = (&mut self.record.timeline, self.waiting);
        let came = self.net.advance(until, |from, to, bytes| {
            timeline.pass(from, to, bytes, waiting)
        })?;
        self.came(came);
        self.fill();
        Some(came)
    }

    fn came(&mut self, shard: usize) {
        let cost = self.cost(shard);
        self.content.changes += 1;
        let past = self.state(shard) == (State::Coming { past: true });
        let copies = if past { self.copies(shard) } else { 1 };
        self.in_flight -= cost.fetch_bytes.saturating_mul(copies);
        let Some(slot) = self.slot(shard) else {
            return;
        };
        let under_way = slot.until.is_some();
        if slot.state == (State::Coming { past: true }) {
            slot.state = State::Absent;
            slot.fresh = false;
            return;
        }
        slot.state = State::Here;
        self.content.used -= cost.reserve_bytes - cost.cache_bytes;
        self.record.timeline.resident(self.content.used);
        if !under_way {
            self.rank(shard);
        }
    }

    /// Starts as many fetches as possible: first those that a batch waits for, then those needed next.
    fn fill(&mut self) {
        while let Some(shard) = self.demanded.front().copied() {
            if self.state(shard) == State::Absent {
                match self.start(shard, self.tick, true) {
                    Start::Started => {}
                    // A shard in flight will arrive, and can be evicted later.
                    Start::NoRoom if self.net.transfers() > 0 => return,
                    Start::NoRoom => self.start_past(shard),
                    Start::Busy | Start::Enough => return,
                }
            }
            self.demanded.pop_front();
        }
        while let Some(next) = self.pending.first().copied() {
            if next.last < self.tick {
                // This access window is over: the shard bypassed the cache.
                self.want(next.blob);
                continue;
            }
            let wanted_at = next.first.max(self.tick);
            if self.start(next.blob, wanted_at, false) != Start::Started {
                return;
            }
        }
    }

    fn start(&mut self, shard: usize, wanted_at: u64, demanded: bool) -> Start {
        let cost = self.cost(shard);
        let in_flight = self.in_flight.saturating_add(cost.fetch_bytes);
        if !demanded && self.content.held_back == Some((shard, self.tick, self.content.changes)) {
            return Start::Enough;
        }
        if self.net.transfers() >= self.setup.options.connections.max(1)
            || (self.net.transfers() > 0 && in_flight > self.setup.options.in_flight)
        {
            return Start::Busy;
        }
        if let Some(limit) = self.setup.options.cache_limit {
            let rank = match self.setup.policy {
                Policy::Belady => wanted_at,
                // Every shard that can be evicted is worth less than the one to fetch.
                Policy::Lru => 0,
            };
            let room =
                self.content
                    .ranks
                    .make_room(self.content.used, limit, cost.reserve_bytes, rank);
            let Some(leaving) = room else {
                return Start::NoRoom;
            };
            let ahead = self.content.ahead.saturating_add(cost.reserve_bytes);
            if !demanded
                && !leaving.is_empty()
                && self.content.ahead > 0
                && ahead > self.setup.options.in_flight
            {
                return Start::Enough;
            }
            if !demanded && !self.is_best(shard, wanted_at, &leaving) {
                self.content.held_back = Some((shard, self.tick, self.content.changes));
                return Start::Enough;
            }
            for gone in leaving {
                self.evict(gone);
            }
        }
        self.content.residents.insert(shard);
        self.launch(shard, cost, State::Coming { past: false }, 1);
        self.content.used = self.content.used.saturating_add(cost.reserve_bytes);
        self.note(shard, MoveKind::Fetched);
        self.record.result.most_resident_bytes = self
            .record
            .result
            .most_resident_bytes
            .max(self.content.used);
        self.record.timeline.resident(self.content.used);
        let is_ahead = wanted_at > self.tick;
        if let Some(slot) = self.slot(shard) {
            slot.ahead = is_ahead;
            slot.fresh = true;
        }
        if is_ahead {
            self.content.ahead = self.content.ahead.saturating_add(cost.reserve_bytes);
        }
        Start::Started
    }

    /// Returns whether evicting `leaving` now gives the same result as evicting when the shard is needed, as in the
    /// reader. An earlier replacement of another shard would cost an additional fetch. Shortly before the shard is
    /// needed, any eviction is accepted.
    fn is_best(&self, shard: usize, wanted_at: u64, leaving: &[usize]) -> bool {
        if self.setup.policy == Policy::Lru
            || wanted_at <= self.tick.saturating_add(self.slack(shard))
        {
            return true;
        }
        let next = leaving
            .iter()
            .filter_map(|gone| self.content.ranks.next_use(*gone))
            .min();
        let Some(next) = next.filter(|next| *next < u64::MAX) else {
            return true;
        };
        let access_plan = self.setup.access_plan.borrow();
        self.content.residents.iter().all(|resident| {
            leaving.contains(resident)
                || access_plan
                    .next_use(*resident, self.tick)
                    .is_none_or(|next| next > wanted_at)
                || access_plan
                    .next_use(*resident, wanted_at)
                    .is_some_and(|then| then <= next)
        })
    }

    /// Returns twice the number of ticks that a fetch takes.
    fn slack(&self, shard: usize) -> u64 {
        let transfer =
            float(self.cost(shard).fetch_bytes) / float(self.setup.options.bandwidth.max(1));
        let fetch = self.setup.options.latency.as_secs_f64() + transfer;
        whole(2.0 * fetch / self.setup.options.step.as_secs_f64().max(1e-6)).saturating_add(1)
    }

    /// Starts fetches of a shard that bypasses the cache: every process that needs it fetches it.
    fn start_past(&mut self, shard: usize) {
        let cost = self.cost(shard);
        let copies = self.copies(shard);
        self.launch(shard, cost, State::Coming { past: true }, copies);
        self.note(shard, MoveKind::Bypassed { copies });
        self.record.counts.bypasses += 1;
        let bytes = cost.fetch_bytes.saturating_mul(copies);
        self.record.counts.bypassed_bytes = self.record.counts.bypassed_bytes.saturating_add(bytes);
    }

    fn launch(&mut self, shard: usize, cost: ShardCost, state: State, copies: u64) {
        if let Some(slot) = self.slots.get_mut(shard) {
            slot.state = state;
            if let Some(old) = slot.pending.take() {
                self.pending.remove(&old);
            }
        }
        let bytes = cost.fetch_bytes.saturating_mul(copies);
        self.net.start(shard, float(bytes));
        self.in_flight = self.in_flight.saturating_add(bytes);
        self.record.counts.fetched_shards += copies;
        self.record.counts.fetched_bytes = self.record.counts.fetched_bytes.saturating_add(bytes);
    }

    fn evict(&mut self, shard: usize) {
        let cost = self.cost(shard);
        self.content.ranks.remove(shard);
        self.content.residents.remove(&shard);
        self.content.changes += 1;
        self.content.used -= cost.cache_bytes;
        self.note(shard, MoveKind::Evicted);
        self.record.counts.evictions += 1;
        if let Some(slot) = self.slot(shard) {
            slot.state = State::Absent;
            slot.fresh = false;
            if std::mem::take(&mut slot.ahead) {
                self.content.ahead -= cost.reserve_bytes;
            }
        }
        self.want(shard);
    }
}

/// Returns the tick at which each access window first needs its shard, as pairs of tick and shard, sorted by tick.
pub(super) fn needs(stretches: &[AccessWindow], epoch: &Epoch, shards: usize) -> Vec<(u64, usize)> {
    let mut parts = vec![0_u64; shards];
    for found in stretches {
        if let Some(parts) = parts.get_mut(found.blob) {
            *parts += 1;
        }
    }
    let mut needs: Vec<(u64, usize)> = stretches
        .iter()
        .map(|found| {
            let range = epoch.shards().range(found.blob);
            let parts = parts.get(found.blob).copied().unwrap_or(1).max(1);
            let samples = ((range.end - range.start) / parts).max(1);
            (first_need(*found, samples), found.blob)
        })
        .collect();
    needs.sort_unstable();
    needs
}

/// Returns the first of `samples` ticks that are drawn uniformly from an access window. It is one draw from the
/// distribution of the minimum, and deterministic for each window.
fn first_need(found: AccessWindow, samples: u64) -> u64 {
    let length = float(found.last - found.first + 1);
    let seed = found.first ^ (found.blob as u64).rotate_left(32);
    let draw = mix(seed.wrapping_add(0x9e37_79b9_7f4a_7c15));
    // A number in [0, 1) with 53 random bits.
    let draw = float(draw >> 11) / float(1 << 53);
    let part = -((1.0 - draw).ln() / float(samples)).exp_m1();
    found
        .first
        .saturating_add(whole(part * length))
        .min(found.last)
}
