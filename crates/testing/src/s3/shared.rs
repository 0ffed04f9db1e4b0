//! The state that the threads of a server share, and its counters.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::fault::Action;
use super::flavor::Flavor;
use super::objects::Objects;
use super::settings::Settings;
use super::uploads::Uploads;

/// The requests that a server has received.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Requests of any kind.
    pub requests: u64,
    /// `HEAD` requests.
    pub heads: u64,
    /// Requests with an `Authorization` header.
    pub signed: u64,
    /// Tokens issued.
    pub tokens: u64,
    /// Requests without a valid token.
    pub denied: u64,
    /// Requests with an injected fault.
    pub faults: u64,
    /// Bytes sent in bodies.
    pub bytes: u64,
    /// Connections and answers in flight.
    pub load: Load,
    /// Bytes received in bodies.
    pub received: u64,
    /// Requests per key.
    pub by_key: BTreeMap<String, u64>,
    /// Requests per action.
    pub by_action: BTreeMap<Action, u64>,
    /// The canned ACL of each uploaded object.
    pub acls: BTreeMap<String, String>,
}

/// How busy a server was.
#[derive(Clone, Debug, Default)]
pub struct Load {
    /// Connections that were accepted.
    pub connections: u64,
    /// The peak number of open connections.
    pub max_connections: usize,
    /// The peak number of answers in flight, from the end of the request to the last byte.
    pub max_transfers: usize,
    /// The number of answers in flight after each change, with the time since the start of the server.
    pub transfers: Vec<(Duration, usize)>,
}

impl Counts {
    /// Returns the number of requests for a listing.
    #[must_use]
    pub fn lists(&self) -> u64 {
        self.by_action.get(&Action::List).copied().unwrap_or(0)
    }
}

impl Load {
    /// Returns the mean number of answers in flight between the first and the last change.
    #[must_use]
    pub fn mean_transfers(&self) -> f64 {
        let (Some(first), Some(last)) = (self.transfers.first(), self.transfers.last()) else {
            return 0.0;
        };
        let whole = (last.0 - first.0).as_secs_f64();
        let weighted: f64 = self
            .transfers
            .windows(2)
            .filter_map(|pair| match pair {
                [(from, active), (to, _)] => Some(
                    to.saturating_sub(*from).as_secs_f64()
                        * f64::from(u32::try_from(*active).unwrap_or(u32::MAX)),
                ),
                _ => None,
            })
            .sum();
        if whole > 0.0 { weighted / whole } else { 0.0 }
    }
}

/// The state that the threads of a server share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) flavor: Flavor,
    pub(super) objects: Objects,
    pub(super) uploads: Uploads,
    pub(super) settings: Mutex<Settings>,
    pub(super) began: Instant,
    pub(super) state: Mutex<State>,
    /// Notified when the server stops.
    pub(super) stopped: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) counts: Counts,
    /// The number of requests per key and action.
    pub(super) of_action: BTreeMap<(String, Action), u64>,
    pub(super) transfers: usize,
    /// The issued tokens, and how often each was used.
    pub(super) tokens: BTreeMap<String, u64>,
    /// The total number of issued tokens.
    pub(super) given: u64,
    pub(super) stop: bool,
    /// Open connections, to be closed at the end.
    pub(super) open: BTreeMap<usize, TcpStream>,
}

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn settings(&self) -> Settings {
        self.settings
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Waits. Returns whether the server is still running.
    pub(super) fn wait(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut state = self.state();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if state.stop || left.is_zero() {
                return !state.stop;
            }
            state = match self.stopped.wait_timeout(state, left) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    pub(super) fn transfer(&self, begins: bool) {
        let at = self.began.elapsed();
        let mut state = self.state();
        state.transfers = if begins {
            state.transfers + 1
        } else {
            state.transfers.saturating_sub(1)
        };
        let active = state.transfers;
        let load = &mut state.counts.load;
        load.max_transfers = load.max_transfers.max(active);
        load.transfers.push((at, active));
    }
}
