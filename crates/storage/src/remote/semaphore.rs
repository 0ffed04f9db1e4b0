//! Limits the number of concurrent requests.

use std::sync::{Arc, Mutex};

use shardmill_core::lock;
use tokio::sync::Semaphore;

/// The number of requests after which their throttled share is counted anew.
const WINDOW: usize = 64;

/// The number of throttled requests in a window up to which the limit stays. A store that throttles a tenth of the
/// requests at random rarely exceeds it before its share shows.
const FEW: usize = 8;

/// The inverse of the share of throttled requests above which the limit is halved. Retries of fewer requests are within
/// the budget of the process.
const SHARE: usize = 5;

/// A fair semaphore for requests with an adaptive limit. The limit is halved when more than a fifth of the requests are
/// throttled. Each round of successful requests adds one, up to the initial limit.
#[derive(Debug)]
pub(super) struct RequestSemaphore {
    open: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    max: usize,
    limit: usize,
    /// The number of permits that are not returned when their requests end, because the limit was lowered.
    debt: usize,
    /// Incremented by each halving. Requests that began in an earlier round do not halve the limit again.
    round: u64,
    /// The number of successful requests since the limit changed.
    credit: usize,
    /// The number of requests in the current window, and of the throttled ones among them.
    seen: usize,
    throttled: usize,
    active: usize,
    peak: usize,
}

impl State {
    /// Counts a request. Returns whether so many of the window were throttled that the limit has to be halved.
    fn count(&mut self, is_throttled: bool) -> bool {
        if self.seen >= WINDOW {
            (self.seen, self.throttled) = (0, 0);
        }
        self.seen += 1;
        self.throttled += usize::from(is_throttled);
        self.throttled >= FEW && self.throttled * SHARE > self.seen
    }
}

impl RequestSemaphore {
    pub(super) fn new(max: usize) -> Arc<Self> {
        let max = max.clamp(1, Semaphore::MAX_PERMITS);
        Arc::new(Self {
            open: Semaphore::new(max),
            state: Mutex::new(State {
                max,
                limit: max,
                debt: 0,
                round: 0,
                credit: 0,
                seen: 0,
                throttled: 0,
                active: 0,
                peak: 0,
            }),
        })
    }

    /// Waits for a permit.
    pub(super) async fn enter(self: &Arc<Self>) -> RequestPermit {
        // The semaphore is never closed. If it were, the permit would only release capacity it had not taken.
        if let Ok(permit) = self.open.acquire().await {
            permit.forget();
        }
        let mut state = lock(&self.state);
        state.active += 1;
        state.peak = state.peak.max(state.active);
        RequestPermit {
            semaphore: Arc::clone(self),
            round: state.round,
        }
    }

    /// Returns the peak number of concurrent requests.
    pub(super) fn peak(&self) -> usize {
        lock(&self.state).peak
    }

    /// Returns the current limit.
    pub(super) fn limit(&self) -> usize {
        lock(&self.state).limit
    }
}

/// The right to one request, until it is dropped.
#[derive(Debug)]
pub(super) struct RequestPermit {
    semaphore: Arc<RequestSemaphore>,
    round: u64,
}

impl RequestPermit {
    /// Records that the request succeeded.
    pub(super) fn succeeded(&self) {
        let mut state = lock(&self.semaphore.state);
        state.count(false);
        if state.limit >= state.max {
            return;
        }
        state.credit += 1;
        if state.credit >= state.limit {
            state.credit = 0;
            state.limit += 1;
            if state.debt > 0 {
                state.debt -= 1;
            } else {
                self.semaphore.open.add_permits(1);
            }
        }
    }

    /// Records that the store asked to slow down.
    pub(super) fn throttled(&self) {
        let mut state = lock(&self.semaphore.state);
        if state.round != self.round || !state.count(true) {
            return;
        }
        state.round += 1;
        state.credit = 0;
        (state.seen, state.throttled) = (0, 0);
        let fewer = state.limit - (state.limit / 2).max(1);
        state.limit -= fewer;
        state.debt += fewer - self.semaphore.open.forget_permits(fewer);
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        let mut state = lock(&self.semaphore.state);
        state.active -= 1;
        if state.debt > 0 {
            state.debt -= 1;
        } else {
            self.semaphore.open.add_permits(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use shardmill_testing::draw::Draw;

    use super::*;

    /// Takes as many permits as are available without waiting.
    fn fill(semaphore: &Arc<RequestSemaphore>) -> Vec<RequestPermit> {
        let mut passes = Vec::new();
        while semaphore.open.available_permits() > 0 {
            passes.push(futures::executor::block_on(semaphore.enter()));
        }
        passes
    }

    #[test]
    fn throttling_halves_limit_once_and_success_raises_it_slowly() {
        let semaphore = RequestSemaphore::new(8);
        let passes = fill(&semaphore);
        assert_eq!((passes.len(), semaphore.peak()), (8, 8));
        for request_permit in &passes {
            request_permit.throttled();
        }
        assert_eq!(semaphore.limit(), 4);
        drop(passes);
        let passes = fill(&semaphore);
        assert_eq!(passes.len(), 4);
        for request_permit in passes.iter().chain(&passes) {
            request_permit.throttled();
        }
        assert_eq!(semaphore.limit(), 2);
        drop(passes);
        // Two successes raise the limit to three, three more raise it to four.
        let request_permit = futures::executor::block_on(semaphore.enter());
        for _ in 0..5 {
            request_permit.succeeded();
        }
        assert_eq!(semaphore.limit(), 4);
        for _ in 0..100 {
            request_permit.succeeded();
        }
        assert_eq!(semaphore.limit(), 8);
        drop(request_permit);
        assert_eq!(fill(&semaphore).len(), 8);
    }

    /// Returns the lowest and the last limit in 10,000 requests, a share of which is throttled.
    fn limits(percent: u64) -> (usize, usize) {
        let semaphore = RequestSemaphore::new(64);
        let mut draw = Draw::new(percent);
        let mut lowest = 64;
        for _ in 0..10_000 {
            let request_permit = futures::executor::block_on(semaphore.enter());
            match draw.below(100) < percent {
                true => request_permit.throttled(),
                false => request_permit.succeeded(),
            }
            lowest = lowest.min(semaphore.limit());
        }
        (lowest, semaphore.limit())
    }

    #[test]
    fn limit_follows_the_share_of_throttled_requests() {
        let (lowest, _) = limits(3);
        assert!(lowest >= 32, "{lowest}");
        let (lowest, _) = limits(10);
        assert!(lowest >= 16, "{lowest}");
        let (_, last) = limits(60);
        assert!(last <= 4, "{last}");
    }

    #[test]
    fn limit_is_at_least_one_request() {
        let semaphore = RequestSemaphore::new(2);
        for _ in 0..20 {
            let request_permit = futures::executor::block_on(semaphore.enter());
            request_permit.throttled();
        }
        assert_eq!(semaphore.limit(), 1);
        assert_eq!(fill(&semaphore).len(), 1);
        assert_eq!(RequestSemaphore::new(0).limit(), 1);
    }
}
