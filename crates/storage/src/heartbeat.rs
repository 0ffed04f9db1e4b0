//! Whether a lease in a store is still held, as far as its holder can know.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

/// A moment, by two clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Goes on whatever is done to the clock of the machine.
    running: Instant,
    /// Goes on while the machine sleeps, or is paused by another one.
    wall: SystemTime,
}

impl Moment {
    pub(crate) fn now() -> Self {
        Self {
            running: Instant::now(),
            wall: SystemTime::now(),
        }
    }

    /// How long ago it was, by the clock that says more. A clock that was set forward costs one look at the lease.
    pub(crate) fn elapsed(&self) -> Duration {
        let wall = self.wall.elapsed().unwrap_or_default();
        self.running.elapsed().max(wall)
    }
}

/// A wait for the lease of another writer in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseWait {
    /// The object that is the lease.
    pub url: String,
    /// The random id of the writer that holds it, where the object has one.
    pub owner: Option<String>,
    /// How long the lease may go without a heartbeat before it is taken over.
    pub patience: Duration,
}

/// What the holder of a lease knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// Nobody can have taken it.
    Held,
    /// No sign of life was given for so long that it has to be looked at.
    Silent,
    /// Another writer has it, or had it.
    Lost,
}

/// The signs of life of a lease: one thread gives them, others ask how it stands.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    /// From one sign of life to the next.
    every: Duration,
    /// How long after one the lease counts as held, whoever comes. In the second half of that it is looked at first.
    lasts: Duration,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug)]
struct State {
    /// When the last sign of life was begun that the store took.
    last: Moment,
    lost: bool,
    ended: bool,
    /// Somebody waits for a sign of life.
    asked: bool,
}

impl Heartbeat {
    /// Of a lease with a sign of life that often, which others take after `lasts`, with the first one.
    pub(crate) const fn new(every: Duration, lasts: Duration, last: Moment) -> Self {
        Self {
            every,
            lasts,
            state: Mutex::new(State {
                last,
                lost: false,
                ended: false,
                asked: false,
            }),
            wake: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it stands. Whoever hears that it is silent has asked for a sign of life.
    pub(crate) fn sign(&self) -> Sign {
        let mut state = self.lock();
        if state.lost {
            return Sign::Lost;
        }
        // Half of the time that others wait is for what is sent now to arrive.
        if state.ended || state.last.elapsed() < self.lasts / 2 {
            return Sign::Held;
        }
        if !std::mem::replace(&mut state.asked, true) {
            self.wake.notify_all();
        }
        Sign::Silent
    }

    /// Whether others may have taken it by now.
    pub(crate) fn is_over(&self) -> bool {
        let state = self.lock();
        state.lost || (!state.ended && state.last.elapsed() >= self.lasts)
    }

    /// Whether the last sign of life is so old that it has to be looked at, also where there is to be none any more.
    pub(crate) fn is_old(&self) -> bool {
        self.lock().last.elapsed() >= self.lasts / 2
    }

    /// How long after a sign of life the lease counts as held.
    pub(crate) const fn lasts(&self) -> Duration {
        self.lasts
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lock().lost
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.lock().ended
    }

    pub(crate) fn lose(&self) {
        self.lock().lost = true;
    }

    pub(crate) fn beaten(&self, at: Moment) {
        self.lock().last = at;
    }

    pub(crate) fn end(&self) {
        self.lock().ended = true;
        self.wake.notify_all();
    }

    /// Waits until the next sign of life is due; `false` where there is to be none. Nobody hurries one that has just failed.
    pub(crate) fn wait(&self, has_failed: bool) -> bool {
        let every = match has_failed {
            true => self.every / 4,
            false => self.every,
        };
        let (mut state, _) = self
            .wake
            .wait_timeout_while(self.lock(), every, |state| {
                !state.ended && (has_failed || !state.asked)
            })
            .unwrap_or_else(PoisonError::into_inner);
        state.asked = false;
        !state.ended
    }
}

/// The leases that a location is written to under.
#[derive(Debug, Default)]
pub(crate) struct Leases(Mutex<Vec<Weak<Heartbeat>>>);

impl Leases {
    pub(crate) fn add(&self, heartbeat: Weak<Heartbeat>) {
        let mut heartbeats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        heartbeats.retain(|heartbeat| heartbeat.strong_count() > 0);
        heartbeats.push(heartbeat);
    }

    /// How the worst of them stands.
    pub(crate) fn sign(&self) -> Sign {
        let heartbeats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Whether others may have taken one of them by now.
    pub(crate) fn is_over(&self) -> bool {
        let heartbeats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
    fn the_clock_that_says_more_counts() {
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
        // A clock that was set back says nothing.
        let ahead = Moment {
            running: Instant::now(),
            wall: SystemTime::now() + long,
        };
        assert!(ahead.elapsed() < long);
    }

    #[test]
    fn a_heartbeat_is_held_silent_or_lost() {
        let patience = Duration::from_secs(100);
        let heartbeat = Arc::new(Heartbeat::new(patience / 4, patience, Moment::now()));
        let leases = Leases::default();
        leases.add(Arc::downgrade(&heartbeat));
        assert_eq!((leases.sign(), leases.is_over()), (Sign::Held, false));
        heartbeat.beaten(ago(patience * 3 / 4));
        assert_eq!((leases.sign(), leases.is_over()), (Sign::Silent, false));
        // It was asked for by that, and does not let a thread wait.
        assert!(heartbeat.wait(false));
        heartbeat.beaten(ago(patience));
        assert_eq!((leases.sign(), leases.is_over()), (Sign::Silent, true));
        heartbeat.beaten(Moment::now());
        assert_eq!((leases.sign(), leases.is_over()), (Sign::Held, false));
        heartbeat.lose();
        assert_eq!((leases.sign(), leases.is_over()), (Sign::Lost, true));
        // What has ended keeps nobody waiting, but what was lost stays so.
        heartbeat.end();
        assert!(!heartbeat.wait(false) && !heartbeat.wait(true));
        assert_eq!(leases.sign(), Sign::Lost);
        drop(heartbeat);
        assert_eq!((leases.sign(), leases.is_over()), (Sign::Held, false));
    }
}
