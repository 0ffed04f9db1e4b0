//! Fetches row groups of objects before they are opened, so that decoding does not wait for the network.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::Range;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::error;
use crate::objects::Object;
use crate::walk::FileVersion;
use shardmill_core::{Error, lock};

/// The fewest units that are prefetched.
const MIN_UNITS: usize = 4;

/// The most units that are prefetched, regardless of the number of threads.
const MAX_UNITS: usize = 16;

/// Units are prefetched while those that are not opened yet have fewer bytes than this. Disk use is at most this and
/// one more unit.
const PREFETCH_BYTES: u64 = 256 << 20;

/// What one unit reads of an object.
pub(crate) struct Wanted {
    pub object: Object,
    pub file_version: FileVersion,
    pub ranges: Vec<Range<u64>>,
}

impl Wanted {
    fn bytes(&self) -> u64 {
        self.ranges
            .iter()
            .map(|range| range.end - range.start)
            .sum()
    }

    fn fetch(&self) -> Result<File, Error> {
        self.object.open_ranges(self.file_version, &self.ranges)
    }
}

/// Receives the data of a prefetched unit.
type Fetched = Receiver<Result<File, Error>>;

/// Prefetches the next units.
pub(crate) struct Prefetch {
    state: Mutex<State>,
    max: usize,
}

#[derive(Default)]
struct State {
    /// The columns that the units are read for.
    columns: Vec<usize>,
    /// The units that will be read, ascending; `None` for all.
    order: Option<Arc<[usize]>>,
    /// Prefetched units that are not opened yet, with their sizes in bytes.
    waiting: BTreeMap<usize, (u64, Fetched)>,
    opened: BTreeSet<usize>,
    /// The last unit that was opened or prefetched.
    last: usize,
}

impl Prefetch {
    /// Creates a prefetcher for `jobs` threads that open units.
    pub(crate) fn new(jobs: usize) -> Self {
        Self {
            state: Mutex::default(),
            max: jobs.clamp(MIN_UNITS, MAX_UNITS),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Records which units will be read, ascending.
    pub(crate) fn will_read(&self, units: &[usize]) {
        self.state().order = Some(units.into());
    }

    /// Returns the data of a unit, and starts to prefetch the units after it. `next` returns what such a unit reads.
    pub(crate) fn open(
        &self,
        unit: usize,
        columns: &[usize],
        wanted: &Wanted,
        next: impl Fn(usize) -> Option<Wanted>,
    ) -> Result<File, Error> {
        let (prefetched, units) = self.enter(unit, columns);
        for unit in units {
            let Some(wanted) = next(unit) else { break };
            if !self.start(unit, wanted) {
                break;
            }
        }
        match prefetched {
            Some(fetched) => fetched
                .recv()
                .unwrap_or_else(|_| Err(error::bug("a thread that fetches a row group panicked"))),
            None => wanted.fetch(),
        }
    }

    /// Returns the prefetched data of a unit, if there is any, and the units to prefetch next.
    fn enter(&self, unit: usize, columns: &[usize]) -> (Option<Fetched>, Vec<usize>) {
        let mut state = self.state();
        // Start over: the source is read again, or for other columns.
        if state.columns != columns || !state.opened.insert(unit) {
            columns.clone_into(&mut state.columns);
            state.waiting.clear();
            state.opened = BTreeSet::from([unit]);
            state.last = unit;
        }
        let prefetched = state.waiting.remove(&unit).map(|(_, fetched)| fetched);
        state.last = state.last.max(unit);
        let room = self.max.saturating_sub(state.waiting.len());
        let last = state.last;
        let units = match &state.order {
            None => (last + 1..).take(room).collect(),
            Some(order) => {
                let from = order.partition_point(|unit| *unit <= last);
                order.iter().skip(from).take(room).copied().collect()
            }
        };
        (prefetched, units)
    }

    /// Starts to prefetch a unit. Returns whether to try another one.
    fn start(&self, unit: usize, wanted: Wanted) -> bool {
        let mut state = self.state();
        let waiting_bytes: u64 = state.waiting.values().map(|(bytes, _)| bytes).sum();
        if unit <= state.last {
            return true;
        }
        if waiting_bytes >= PREFETCH_BYTES || state.waiting.len() >= self.max {
            return false;
        }
        state.last = unit;
        let (sender, fetched) = channel();
        state.waiting.insert(unit, (wanted.bytes(), fetched));
        drop(state);
        let started = std::thread::Builder::new()
            .name("shardmill-ahead".to_owned())
            // After a restart, nothing receives it.
            .spawn(move || drop(sender.send(wanted.fetch())));
        if started.is_err() {
            self.state().waiting.remove(&unit);
        }
        started.is_ok()
    }
}
