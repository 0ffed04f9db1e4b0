//! The heartbeat of a lease in a store: whether the lease is still held, as far as its holder can know.

use std::sync::{Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use shardmill_core::lock;

/// A point in time, recorded by two clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Monotonic: unaffected when the clock of the machine is set.
    running: Instant,
    /// Also advances while the machine is suspended or its virtual machine is paused.
    wall: SystemTime,
}

impl Moment {
    pub(crate) fn now() -> Self {
        Self {
            running: Instant::now(),
            wall: SystemTime::now(),
        }
    }

    /// Returns the elapsed time, by whichever clock shows more. If a clock was set forward, the only cost is one extra
    /// check of the lease.
    pub(crate) fn elapsed(&self) -> Duration {
        let wall = self.wall.elapsed().unwrap_or_default();
        self.running.elapsed().max(wall)
    }
}

/// A wait for a lease in a store that another writer holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseWait {
    /// The URL of the lease object.
    pub url: String,
    /// The random id of the writer that holds it, if the object contains one.
    pub owner: Option<String>,
    /// The time without a heartbeat after which the lease is taken over.
    pub patience: Duration,
}

/// The state of a lease as its holder sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// No other writer can have taken it.
    Held,
    /// The last heartbeat is so old that the lease object has to be checked first.
    Silent,
    /// Another writer holds it or held it.
    Lost,
}

/// The heartbeat of a lease. One thread sends it, other threads query the state.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    /// The interval between two heartbeats.
    every: Duration,
    /// How long the lease counts as held after a heartbeat. In the second half of that time it is checked before use.
    lasts: Duration,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug)]
struct State {
    /// When the last successful heartbeat was started.
    last: Moment,
    lost: bool,
    ended: bool,
    /// A caller is waiting for a heartbeat.
    requested: bool,
}

impl Heartbeat {
    /// Returns the heartbeat of a lease that is renewed at the interval `every` and that other writers may take after
    /// `lasts`. `last` is the time of the first heartbeat.
    pub(crate) const fn new(every: Duration, lasts: Duration, last: Moment) -> Self {
        Self {
            every,
            lasts,
            state: Mutex::new(State {
                last,
                lost: false,
                ended: false,
                requested: false,
            }),
            wake: Condvar::new(),
        }
    }

    /// Returns the state of the lease. If it is [`Sign::Silent`], this also requests an immediate heartbeat.
    pub(crate) fn sign(&self) -> Sign {
        let mut state = lock(&self.state);
        if state.lost {
            return Sign::Lost;
        }
        // The second half of the time is left for requests in flight to arrive.
        if state.ended || state.last.elapsed() < self.lasts / 2 {
            return Sign::Held;
        }
        if !std::mem::replace(&mut state.requested, true) {
            self.wake.notify_all();
        }
        Sign::Silent
    }

    /// Returns whether another writer may have taken the lease by now.
    pub(crate) fn is_over(&self) -> bool {
        let state = lock(&self.state);
        state.lost || (!state.ended && state.last.elapsed() >= self.lasts)
    }

    /// Returns whether the last heartbeat is so old that the lease has to be checked, also after the heartbeat has
    /// ended.
    pub(crate) fn is_old(&self) -> bool {
        lock(&self.state).last.elapsed() >= self.lasts / 2
    }

    /// Returns how long the lease counts as held after a heartbeat.
    pub(crate) const fn lasts(&self) -> Duration {
        self.lasts
    }

    pub(crate) fn is_lost(&self) -> bool {
        lock(&self.state).lost
    }

    pub(crate) fn is_ended(&self) -> bool {
        lock(&self.state).ended
    }

    pub(crate) fn lose(&self) {
        lock(&self.state).lost = true;
    }

    pub(crate) fn beaten(&self, at: Moment) {
        lock(&self.state).last = at;
    }

    pub(crate) fn end(&self) {
        lock(&self.state).ended = true;
        self.wake.notify_all();
    }

    /// Waits until the next heartbeat is due. Returns `false` if the heartbeat has ended. After a failure, requests of
    /// other threads do not shorten the wait.
    pub(crate) fn wait(&self, has_failed: bool) -> bool {
        let every = match has_failed {
            true => self.every / 4,
            false => self.every,
        };
        let (mut state, _) = self
            .wake
            .wait_timeout_while(lock(&self.state), every, |state| {
                !state.ended && (has_failed || !state.requested)
            })
            .unwrap_or_else(PoisonError::into_inner);
        state.requested = false;
        !state.ended
    }
}

/// The leases under which a location is written.
#[derive(Debug, Default)]
pub(crate) struct Leases(Mutex<Vec<Weak<Heartbeat>>>);

impl Leases {
    pub(crate) fn add(&self, heartbeat: Weak<Heartbeat>) {
        let mut heartbeats = lock(&self.0);
        heartbeats.retain(|heartbeat| heartbeat.strong_count() > 0);
        heartbeats.push(heartbeat);
    }

    /// Returns the worst state of all leases.
    pub(crate) fn sign(&self) -> Sign {
        let heartbeats = lock(&self.0);
        let mut worst = Sign::Held;
        for heartbeat in heartbeats.iter().filter_map(Weak::upgrade) {
            match heartbeat.sign() {
                Sign::Lost => return Sign::Lost,
                Sign::Silent => worst = Sign::Silent,
                Sign::Held => {}
            }
        }
        worst
    }

    /// Returns whether another writer may have taken one of the leases by now.
    pub(crate) fn is_over(&self) -> bool {
        let heartbeats = lock(&self.0);
        let mut heartbeats = heartbeats.iter().filter_map(Weak::upgrade);
        heartbeats.any(|heartbeat| heartbeat.is_over())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn ago(time: Duration) -> Moment {
        let now = Moment::now();
        Moment {
            running: now.running.checked_sub(time).unwrap(),
            wall: now.wall.checked_sub(time).unwrap(),
        }
    }

    #[test]
    fn elapsed_uses_the_clock_that_advanced_more() {
        let long = Duration::from_secs(1000);
        let only_running = Moment {
            wall: SystemTime::now(),
            ..ago(long)
        };
        let only_wall = Moment {
            running: Instant::now(),
            ..ago(long)
        };
        assert!(only_running.elapsed() >= long && only_wall.elapsed() >= long);
        // A clock that was set back is ignored.
        let ahead = Moment {
            running: Instant::now(),
            wall: SystemTime::now() + long,
        };
        assert!(ahead.elapsed() < long);
    }

    #[test]
    fn lease_sign_is_held_silent_or_lost() {
        let patience = Duration::from_secs(100);
        let heartbeat = Arc::new(Heartbeat::new(patience / 4, patience, Moment::now()));
        let leases = Leases::default();
        leases.add(Arc::downgrade(&heartbeat));
        assert_eq!((leases.sign(), leases.is_over()), (Sign::Held, false));
        heartbeat.beaten(ago(patience * 3 / 4));
        assert_eq!((leases.sign(), leases.is_over()), (Sign::Silent, false));
        // `sign` requested a heartbeat, so the thread does not wait.
        assert!(heartbeat.wait(false));
        heartbeat.beaten(ago(patience));
        assert_eq!((leases.sign(), leases.is_over()), (Sign::Silent, true));
        heartbeat.beaten(Moment::now());
        assert_eq!((leases.sign(), leases.is_over()), (Sign::Held, false));
        heartbeat.lose();
        assert_eq!((leases.sign(), leases.is_over()), (Sign::Lost, true));
        // A heartbeat that has ended keeps no thread waiting, but a lost lease stays lost.
        heartbeat.end();
        assert!(!heartbeat.wait(false) && !heartbeat.wait(true));
        assert_eq!(leases.sign(), Sign::Lost);
        drop(heartbeat);
        assert_eq!((leases.sign(), leases.is_over()), (Sign::Held, false));
    }
}
