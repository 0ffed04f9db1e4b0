//! How many requests are under way at once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;

/// Lets so many requests through at once, first come first served. A store that asks to slow down halves their number, and
/// each round without such an answer adds one, up to where it began.
#[derive(Debug)]
pub(super) struct Gate {
    open: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    most: usize,
    limit: usize,
    /// Requests under way that leave no room behind when they end.
    debt: usize,
    /// Rises with each halving: what began before one does not cause the next.
    round: u64,
    /// Requests that succeeded since the limit changed.
    credit: usize,
    active: usize,
    peak: usize,
}

impl Gate {
    pub(super) fn new(most: usize) -> Arc<Self> {
        let most = most.clamp(1, Semaphore::MAX_PERMITS);
        Arc::new(Self {
            open: Semaphore::new(most),
            state: Mutex::new(State {
                most,
                limit: most,
                debt: 0,
                round: 0,
                credit: 0,
                active: 0,
                peak: 0,
            }),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for its turn.
    pub(super) async fn enter(self: &Arc<Self>) -> Pass {
        // It is never closed; without a permit the pass would only make room that was not taken.
        if let Ok(permit) = self.open.acquire().await {
            permit.forget();
        }
        let mut state = self.state();
        state.active += 1;
        state.peak = state.peak.max(state.active);
        Pass {
            gate: Arc::clone(self),
            round: state.round,
        }
    }

    /// Most requests at once so far.
    pub(super) fn peak(&self) -> usize {
        self.state().peak
    }

    /// How many it lets through at once now.
    pub(super) fn limit(&self) -> usize {
        self.state().limit
    }
}

/// The right to one request, until it is dropped.
#[derive(Debug)]
pub(super) struct Pass {
    gate: Arc<Gate>,
    round: u64,
}

impl Pass {
    /// The request was answered as it should be.
    pub(super) fn succeeded(&self) {
        let mut state = self.gate.state();
        if state.limit >= state.most {
            return;
        }
        state.credit += 1;
        if state.credit >= state.limit {
            state.credit = 0;
            state.limit += 1;
            if state.debt > 0 {
                state.debt -= 1;
            } else {
                self.gate.open.add_permits(1);
            }
        }
    }

    /// The store asked to slow down.
    pub(super) fn throttled(&self) {
        let mut state = self.gate.state();
        if state.round != self.round {
            return;
        }
        state.round += 1;
        state.credit = 0;
        let fewer = state.limit - (state.limit / 2).max(1);
        state.limit -= fewer;
        state.debt += fewer - self.gate.open.forget_permits(fewer);
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut state = self.gate.state();
        state.active -= 1;
        if state.debt > 0 {
            state.debt -= 1;
        } else {
            self.gate.open.add_permits(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Enters as often as it is let in at once.
    fn fill(gate: &Arc<Gate>) -> Vec<Pass> {
        let mut passes = Vec::new();
        while gate.open.available_permits() > 0 {
            passes.push(futures::executor::block_on(gate.enter()));
        }
        passes
    }

    #[test]
    fn throttling_halves_once_a_round_and_success_grows_slowly() {
        let gate = Gate::new(8);
        let passes = fill(&gate);
        assert_eq!((passes.len(), gate.peak()), (8, 8));
        for pass in &passes {
            pass.throttled();
        }
        assert_eq!(gate.limit(), 4);
        drop(passes);
        let passes = fill(&gate);
        assert_eq!(passes.len(), 4);
        passes[0].throttled();
        passes[1].throttled();
        assert_eq!(gate.limit(), 2);
        drop(passes);
        // Two successes for the third, three for the fourth.
        let pass = futures::executor::block_on(gate.enter());
        for _ in 0..5 {
            pass.succeeded();
        }
        assert_eq!(gate.limit(), 4);
        for _ in 0..100 {
            pass.succeeded();
        }
        assert_eq!(gate.limit(), 8);
        drop(pass);
        assert_eq!(fill(&gate).len(), 8);
    }

    #[test]
    fn one_request_is_always_let_through() {
        let gate = Gate::new(2);
        for _ in 0..5 {
            let pass = futures::executor::block_on(gate.enter());
            pass.throttled();
        }
        assert_eq!(gate.limit(), 1);
        assert_eq!(fill(&gate).len(), 1);
        assert_eq!(Gate::new(0).limit(), 1);
    }
}
