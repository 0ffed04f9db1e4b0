//! Sends requests other than range reads, and retries them until they succeed or the retries are exhausted.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use reqwest::{Request, Response};
use tokio::time::timeout;

use super::put::GoOn;
use super::request::{Head, Payload, code_in, code_of, root_of, text_of};
use super::store_provider::{RequestSpec, StoreProvider};
use super::transfer::{Clock, Failure, LIES, back_off};
use super::{Live, Remote};
use crate::error::StorageError;
use crate::fault::RemoteFault;
use crate::heartbeat::Sign;

/// The interval at which a caller is polled for cancellation.
pub(super) const SLICE: Duration = Duration::from_millis(100);

/// The interval at which a request that waits for a heartbeat checks the lease.
const SILENCE: Duration = Duration::from_millis(20);

/// The maximum number of bytes of a request that this machine may buffer. It is unknown whether they have been sent.
const BUFFERED: u64 = 1 << 20;

/// An answer with one of the statuses that the caller handles.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) etag: Option<String>,
    /// The header `x-amz-checksum-sha256`.
    pub(super) sum: Option<String>,
    /// The header `Content-Length`.
    pub(super) length: Option<u64>,
    pub(super) body: Vec<u8>,
    /// The error code, if a header has it.
    pub(super) header_code: Option<String>,
}

impl Answer {
    /// Returns the error code in the answer, if it is an error.
    pub(super) fn code(&self) -> Option<String> {
        self.header_code.clone().or_else(|| code_in(&self.body))
    }
}

/// Returns the failure for an invalid answer. It is retried a few times.
pub(super) const fn protocol_error(what: &'static str) -> Failure {
    Failure::ProtocolError(RemoteFault::Answer { what })
}

/// Sends a request until `read` accepts an answer. The request has to be idempotent.
///
/// If the location is written under a lease, a request that changes data waits while the heartbeat is overdue. It is
/// not sent once the lease is lost, because after a pause another writer may be active.
pub(super) async fn send<T>(
    live: &Live,
    ask: &RequestSpec,
    payload: Option<&Payload>,
    sent: &Arc<AtomicU64>,
    read: impl Fn(Answer) -> Result<T, Failure>,
) -> Result<T, RemoteFault> {
    let options = &live.options;
    let mut clock = Clock {
        began: Instant::now(),
        total: options.total_timeout,
        bytes_per_second: options.least_bytes_per_second,
        waited: Duration::ZERO,
        received: 0,
    };
    let (mut attempts, mut lies, mut renewed, mut resent) = (0_u32, 0_u32, false, false);
    loop {
        let queued = Instant::now();
        let semaphore = match payload {
            Some(_) => &live.store.semaphore,
            None => &live.store.small,
        };
        let request_permit = semaphore.enter().await;
        clock.waited += queued.elapsed();
        match live.leases.sign() {
            Sign::Lost if ask.changes => return Err(RemoteFault::TakenOver),
            Sign::Silent if ask.changes => {
                drop(request_permit);
                if clock.left().is_zero() {
                    return Err(RemoteFault::Stalled {
                        attempts,
                        received: sent.load(Ordering::Relaxed),
                        after_ms: clock.elapsed_ms(),
                    });
                }
                tokio::time::sleep(SILENCE).await;
                continue;
            }
            _ => {}
        }
        attempts += 1;
        let epoch = live.signer.epoch();
        let failure = match attempt(live, ask, payload, sent, &mut clock)
            .await
            .and_then(&read)
        {
            Ok(value) => {
                request_permit.succeeded();
                return Ok(value);
            }
            Err(failure) => failure,
        };
        if let Failure::Unanswered(_) = &failure
            && !std::mem::replace(&mut resent, true)
        {
            attempts -= 1;
            continue;
        }
        let mut wait = back_off(options.back_off, options.back_off_most, attempts);
        let fault = match failure {
            Failure::Final(fault) => return Err(fault),
            Failure::ProtocolError(fault) => {
                lies += 1;
                if lies > LIES {
                    return Err(fault);
                }
                fault
            }
            Failure::Expired(fault) => {
                if renewed || !live.signer.renew(epoch) {
                    return Err(fault);
                }
                renewed = true;
                wait = Duration::ZERO;
                fault
            }
            Failure::Transient(last) | Failure::Unanswered(last) => RemoteFault::GaveUp {
                last,
                attempts,
                after_ms: clock.elapsed_ms(),
            },
            Failure::Stalled => RemoteFault::Stalled {
                attempts,
                received: sent.load(Ordering::Relaxed),
                after_ms: clock.elapsed_ms(),
            },
            Failure::Throttled {
                status,
                retry_after,
            } => {
                request_permit.throttled();
                if let Some(asked) = retry_after {
                    wait = wait.max(asked.min(options.retry_after_most));
                }
                RemoteFault::Throttled {
                    status,
                    attempts,
                    after_ms: clock.elapsed_ms(),
                }
            }
        };
        // Release the permit for other requests during the wait.
        drop(request_permit);
        let left = clock.left();
        if attempts >= options.attempts || wait >= left {
            return Err(fault);
        }
        let Some(turn) = live.engine.turn(options, left) else {
            return Err(fault);
        };
        live.counters.retries.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(wait.max(turn)).await;
    }
}

async fn attempt(
    live: &Live,
    ask: &RequestSpec,
    payload: Option<&Payload>,
    sent: &Arc<AtomicU64>,
    clock: &mut Clock,
) -> Result<Answer, Failure> {
    sent.store(0, Ordering::Relaxed);
    let signed = live.signer.sign(ask, payload, sent, &live.leases).await;
    let request = signed.map_err(Failure::Final)?;
    live.engine.count_request();
    live.counters.requests.fetch_add(1, Ordering::Relaxed);
    let bytes = payload.map_or(0, Payload::len);
    let response = execute(live, request, sent, bytes, clock).await?;
    let head = Head::of(&response);
    if !ask.accepts.contains(&head.status) {
        return Err(refused(live, response, head).await);
    }
    let sum = text_of(response.headers(), "x-amz-checksum-sha256");
    Ok(Answer {
        status: head.status,
        body: body(live, response, &head, ask.most, clock).await?,
        etag: head.etag,
        sum,
        length: head.length,
        header_code: head.code,
    })
}

/// Sends a request with `bytes` bytes and waits for the head of its answer, as long as the transfer makes progress.
async fn execute(
    live: &Live,
    request: Request,
    sent: &AtomicU64,
    bytes: u64,
    clock: &mut Clock,
) -> Result<Response, Failure> {
    let options = &live.options;
    let before = clock.received;
    let mut answer = pin!(live.store.client.execute(request));
    let mut last = (Instant::now(), 0);
    let mut window = last;
    let look = (options.idle_timeout / 4).clamp(Duration::from_millis(1), Duration::from_secs(1));
    loop {
        match timeout(look.min(clock.left()), &mut answer).await {
            Ok(Ok(response)) => return Ok(response),
            Ok(Err(error)) if error.is_connect() || error.is_timeout() => {
                return Err(Failure::Transient(root_of(&error)));
            }
            Ok(Err(error)) => return Err(Failure::Unanswered(root_of(&error))),
            Err(_) => {}
        }
        let now = sent.load(Ordering::Relaxed);
        clock.received = before.saturating_add(now);
        if now > last.1 {
            last = (Instant::now(), now);
        }
        let least = options.least_bytes_per_second.max(1);
        let under_way = Duration::from_millis(now.min(BUFFERED).saturating_mul(1000) / least);
        if clock.left().is_zero() || last.0.elapsed() >= options.idle_timeout + under_way {
            return Err(Failure::Stalled);
        }
        let took = window.0.elapsed();
        if took >= options.slow_window {
            let went = u128::from(now.saturating_sub(window.1));
            if now < bytes && went < u128::from(least) * took.as_millis() / 1000 {
                return Err(Failure::Stalled);
            }
            window = (Instant::now(), now);
        }
    }
}

/// Reads the body of an answer.
async fn body(
    live: &Live,
    mut response: Response,
    head: &Head,
    most: usize,
    clock: &Clock,
) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    loop {
        let patience = live.options.idle_timeout.min(clock.left());
        match timeout(patience, response.chunk()).await {
            Ok(Ok(Some(piece))) => {
                live.counters
                    .bytes
                    .fetch_add(piece.len() as u64, Ordering::Relaxed);
                if piece.len() > most.saturating_sub(bytes.len()) {
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

/// Classifies an answer with a status that the caller does not handle.
async fn refused(live: &Live, response: Response, head: Head) -> Failure {
    let status = head.status;
    let code = match (status, head.code) {
        (300..400, _) => None,
        (_, Some(code)) => Some(code),
        _ => code_of(response, live.options.idle_timeout).await,
    };
    let is = |codes: &[&str]| code.as_deref().is_some_and(|code| codes.contains(&code));
    match status {
        // Probably a page of a proxy: the store uses another status for success.
        200..300 => protocol_error("another status than that of a success"),
        300..400 => Failure::Final(RemoteFault::Redirect {
            host: head.redirect,
            region: head.region,
        }),
        400 | 401 | 403 if is(&["ExpiredToken", "ExpiredTokenException", "RequestExpired"]) => {
            Failure::Expired(RemoteFault::Credentials { status, code })
        }
        // The token has expired.
        401 if has_tokens(live.signer.store_provider()) => {
            Failure::Expired(RemoteFault::Credentials { status, code })
        }
        401 | 403 => Failure::Final(RemoteFault::Credentials { status, code }),
        404 | 410 => Failure::Final(RemoteFault::NotFound { code }),
        429 | 503 => Failure::Throttled {
            status,
            retry_after: head.retry_after,
        },
        // The bytes were corrupted in transfer.
        400 if is(&[
            "BadDigest",
            "InvalidDigest",
            "XAmzContentChecksumMismatch",
            "XAmzContentSHA256Mismatch",
            "Md5Mismatch",
            "InvalidMd5",
        ]) =>
        {
            Failure::ProtocolError(RemoteFault::Refused { status, code })
        }
        400 if is(&["AuthorizationHeaderMalformed"]) && head.region.is_some() => {
            Failure::Final(RemoteFault::Redirect {
                host: None,
                region: head.region,
            })
        }
        501 => Failure::Final(RemoteFault::Refused { status, code }),
        400 if !is(&["RequestTimeout", "IncompleteBody"]) => {
            Failure::Final(RemoteFault::Refused { status, code })
        }
        400 | 408 | 409 | 425 | 500..600 => Failure::Transient(again(status, code.as_deref())),
        _ => Failure::Final(RemoteFault::Refused { status, code }),
    }
}

/// Returns whether the credentials can be tokens, so that a 401 can mean that a token expired.
pub(super) const fn has_tokens(store_provider: StoreProvider) -> bool {
    matches!(
        store_provider,
        StoreProvider::Google | StoreProvider::Azure | StoreProvider::Files
    )
}

/// Classifies an error code in the body of an answer with a status of success.
pub(super) fn inside(status: u16, code: Option<String>) -> Failure {
    match code.as_deref() {
        Some("InternalError" | "SlowDown" | "ServiceUnavailable" | "RequestTimeout") => {
            Failure::Transient(again(status, code.as_deref()))
        }
        _ => Failure::Final(RemoteFault::Refused { status, code }),
    }
}

fn again(status: u16, code: Option<&str>) -> String {
    match code {
        Some(code) => format!("status {status}, {code}"),
        None => format!("status {status}"),
    }
}

impl Remote {
    /// Runs `work` on the thread of the engine and waits for it, until the caller cancels.
    pub(super) fn wait_while<T, F>(
        &self,
        name: &str,
        go_on: &mut GoOn<'_>,
        sent: &AtomicU64,
        work: impl FnOnce(Arc<Live>) -> F,
    ) -> Result<T, StorageError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, RemoteFault>> + Send + 'static,
    {
        let failed = |fault| self.error(name, fault);
        let live = self.live().map_err(failed)?;
        if std::thread::current().id() == live.engine.thread {
            return Err(failed(RemoteFault::NoAnswer));
        }
        let (sender, receiver) = mpsc::sync_channel(1);
        let work = work(Arc::clone(&live));
        let task = live.engine.handle.spawn(async move {
            // If the receiver was dropped, the caller cancelled.
            let _ = sender.send(work.await);
        });
        loop {
            match receiver.recv_timeout(SLICE) {
                Ok(result) => return result.map_err(failed),
                Err(RecvTimeoutError::Disconnected) => return Err(failed(RemoteFault::NoAnswer)),
                Err(RecvTimeoutError::Timeout) => {
                    if !go_on(sent.load(Ordering::Relaxed)) {
                        task.abort();
                        return Err(failed(RemoteFault::Interrupted));
                    }
                }
            }
        }
    }
}
