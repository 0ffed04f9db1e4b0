//! Retries of one operation: attempts, waits and the deadline, and the exchange of each attempt.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use reqwest::{Request, Response};
use tokio::time::timeout;

use super::answer::{Failure, Head, protocol_error};
use super::client::root_of;
use super::live::Live;
use super::semaphore::{RequestPermit, RequestSemaphore};
use crate::error::StorageError;
use crate::random::random_number;

/// How often a `Retry-After` that is shorter than the back-off replaces it. A store that keeps asking for immediate
/// retries is not flooded.
const SHORT_WAITS: u32 = 3;

/// How often an answer with a wrong length or range is retried before it is returned as an error.
pub(super) const LIES: u32 = 2;

/// The maximum number of bytes of a request that this machine may buffer. It is unknown whether they have been sent.
const BUFFERED: u64 = 1 << 20;

/// The deadline of an operation: the configured total, plus waits for a permit, plus one second for each
/// `bytes_per_second` bytes received.
#[derive(Debug)]
pub(super) struct Clock {
    began: Instant,
    total: Duration,
    bytes_per_second: u64,
    waited: Duration,
    pub(super) received: u64,
}

impl Clock {
    pub(super) fn left(&self) -> Duration {
        let earned = self.received.saturating_mul(1000) / self.bytes_per_second.max(1);
        self.total
            .saturating_add(self.waited)
            .saturating_add(Duration::from_millis(earned))
            .saturating_sub(self.began.elapsed())
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// The attempts of one operation.
pub(super) struct Attempts<'a> {
    live: &'a Live,
    pub(super) clock: Clock,
    made: u32,
    /// The number of attempts that count against the maximum.
    counted: u32,
    lies: u32,
    renewed: bool,
    /// A closed idle connection is not a failure of the store. The request is sent again at once, one time.
    resent: bool,
    /// The epoch of the credentials of the current attempt.
    epoch: u64,
}

impl<'a> Attempts<'a> {
    pub(super) fn new(live: &'a Live) -> Self {
        Self {
            live,
            clock: Clock {
                began: Instant::now(),
                total: live.options.request.total_timeout,
                bytes_per_second: live.options.request.min_bytes_per_second,
                waited: Duration::ZERO,
                received: 0,
            },
            made: 0,
            counted: 0,
            lies: 0,
            renewed: false,
            resent: false,
            epoch: 0,
        }
    }

    /// Waits for a permit. The wait does not count against the deadline.
    pub(super) async fn enter(&mut self, semaphore: &Arc<RequestSemaphore>) -> RequestPermit {
        let queued = Instant::now();
        let permit = semaphore.enter().await;
        self.clock.waited += queued.elapsed();
        permit
    }

    /// Begins an attempt.
    pub(super) fn begin(&mut self) {
        self.made += 1;
        self.epoch = self.live.signer.credentials.epoch();
    }

    /// Returns the error for a transfer that made no progress.
    pub(super) fn stalled(&self, received: u64) -> StorageError {
        StorageError::Stalled {
            attempts: self.made,
            received,
            after_ms: self.clock.elapsed_ms(),
        }
    }

    /// Waits until the next attempt may begin. Fails if there can be none.
    pub(super) async fn again(
        &mut self,
        failure: Failure,
        permit: RequestPermit,
        received: u64,
    ) -> Result<(), StorageError> {
        let options = &self.live.options;
        if let Failure::Unanswered(_) = &failure
            && !std::mem::replace(&mut self.resent, true)
        {
            self.made -= 1;
            return Ok(());
        }
        let (attempts, after_ms) = (self.made, self.clock.elapsed_ms());
        let is_outage = matches!(
            failure,
            Failure::Throttled { .. } | Failure::Unreachable(_) | Failure::Unanswered(_)
        );
        if !(is_outage && options.retry.outlasts_outages) {
            self.counted += 1;
        }
        let mut wait = back_off(
            options.retry.back_off,
            options.retry.back_off_most,
            attempts,
        );
        let error = match failure {
            Failure::Final(error) => return Err(error),
            Failure::ProtocolError(error) => {
                self.lies += 1;
                if self.lies > LIES {
                    return Err(error);
                }
                error
            }
            Failure::Expired(error) => {
                let signer = &self.live.signer;
                if self.renewed || !signer.credentials.renew(&signer.access, self.epoch) {
                    return Err(error);
                }
                self.renewed = true;
                wait = Duration::ZERO;
                error
            }
            Failure::Transient(last) | Failure::Unreachable(last) | Failure::Unanswered(last) => {
                StorageError::GaveUp {
                    last,
                    attempts,
                    after_ms,
                }
            }
            Failure::Stalled => self.stalled(received),
            Failure::Throttled {
                status,
                retry_after,
            } => {
                permit.throttled();
                let counters = &self.live.counters;
                counters.throttled.fetch_add(1, Ordering::Relaxed);
                if let Some(delay) = retry_after {
                    let delay = delay.min(options.retry.retry_after_most);
                    wait = match attempts <= SHORT_WAITS {
                        true => delay,
                        false => wait.max(delay),
                    };
                }
                StorageError::Throttled {
                    status,
                    attempts,
                    after_ms,
                }
            }
        };
        // Release the permit for other requests during the wait.
        drop(permit);
        let left = self.clock.left();
        if self.counted >= options.retry.attempts || wait >= left {
            return Err(error);
        }
        let Some(turn) = self.live.engine.turn(options, left) else {
            return Err(error);
        };
        self.live.counters.retries.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(wait.max(turn)).await;
        Ok(())
    }
}

/// Sends a request with `bytes` bytes and waits for the head of its answer, as long as the transfer makes progress.
pub(super) async fn exchange(
    live: &Live,
    request: Request,
    sent: &AtomicU64,
    bytes: u64,
    clock: &mut Clock,
) -> Result<Response, Failure> {
    live.engine.count_request();
    live.counters.requests.fetch_add(1, Ordering::Relaxed);
    let options = &live.options;
    let before = clock.received;
    let mut answer = pin!(live.store.client.execute(request));
    let mut last = (Instant::now(), 0);
    let mut window = last;
    let check_after =
        (options.request.idle_timeout / 4).clamp(Duration::from_millis(1), Duration::from_secs(1));
    loop {
        match timeout(check_after.min(clock.left()), &mut answer).await {
            Ok(Ok(response)) => return Ok(response),
            Ok(Err(error)) if error.is_connect() || error.is_timeout() => {
                return Err(Failure::Unreachable(root_of(&error)));
            }
            Ok(Err(error)) => return Err(Failure::Unanswered(root_of(&error))),
            Err(_) => {}
        }
        let now = sent.load(Ordering::Relaxed);
        clock.received = before.saturating_add(now);
        if now > last.1 {
            last = (Instant::now(), now);
        }
        let min = options.request.min_bytes_per_second.max(1);
        let under_way = Duration::from_millis(now.min(BUFFERED).saturating_mul(1000) / min);
        if clock.left().is_zero() || last.0.elapsed() >= options.request.idle_timeout + under_way {
            return Err(Failure::Stalled);
        }
        let took = window.0.elapsed();
        if took >= options.request.slow_window {
            let went = u128::from(now.saturating_sub(window.1));
            if now < bytes && went < u128::from(min) * took.as_millis() / 1000 {
                return Err(Failure::Stalled);
            }
            window = (Instant::now(), now);
        }
    }
}

/// Reads the body of an answer.
pub(super) async fn body(
    live: &Live,
    mut response: Response,
    head: &Head,
    max: usize,
    clock: &Clock,
) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    loop {
        let patience = live.options.request.idle_timeout.min(clock.left());
        match timeout(patience, response.chunk()).await {
            Ok(Ok(Some(piece))) => {
                live.counters
                    .bytes
                    .fetch_add(piece.len() as u64, Ordering::Relaxed);
                if piece.len() > max.saturating_sub(bytes.len()) {
                    return Err(protocol_error("it is too long"));
                }
                bytes.extend_from_slice(&piece);
            }
            Ok(Ok(None)) => return Ok(bytes),
            // The body is complete, so an error at the end of the connection does not matter.
            Ok(Err(_)) if head.length == Some(bytes.len() as u64) => return Ok(bytes),
            Ok(Err(error)) => return Err(Failure::Transient(root_of(&error))),
            Err(_) => return Err(Failure::Stalled),
        }
    }
}

/// Returns a random wait of at most `first`, tripled with each attempt up to `max`.
fn back_off(first: Duration, max: Duration, attempts: u32) -> Duration {
    let factor = 3_u32.saturating_pow(attempts.saturating_sub(1));
    let longest = first.saturating_mul(factor).min(max);
    let nanos = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
    // The bias of the remainder does not matter here.
    Duration::from_nanos(random_number() % nanos.saturating_add(1))
}
