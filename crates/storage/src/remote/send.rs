//! Sends requests other than range reads, and retries them until they succeed or the retries are exhausted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use reqwest::Response;
use tokio::time::timeout;

use super::answer::{Answer, Failure, Head, protocol_error, refused, text_of};
use super::client::root_of;
use super::live::Live;
use super::payload::Payload;
use super::protocol::RequestSpec;
use super::retry::{Attempts, Clock, exchange};
use crate::error::StorageError;
use crate::heartbeat::Sign;

/// The interval at which a request that waits for a heartbeat checks the lease.
const SILENCE: Duration = Duration::from_millis(20);

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
) -> Result<T, StorageError> {
    let semaphore = match payload {
        Some(_) => &live.store.semaphore,
        None => &live.store.small,
    };
    let mut attempts = Attempts::new(live);
    loop {
        let permit = attempts.enter(semaphore).await;
        match live.leases.sign() {
            Sign::Lost if ask.changes => return Err(StorageError::TakenOver),
            Sign::Silent if ask.changes => {
                drop(permit);
                if attempts.clock.left().is_zero() {
                    return Err(attempts.stalled(sent.load(Ordering::Relaxed)));
                }
                tokio::time::sleep(SILENCE).await;
                continue;
            }
            _ => {}
        }
        attempts.begin();
        let failure = match attempt(live, ask, payload, sent, &mut attempts.clock)
            .await
            .and_then(&read)
        {
            Ok(value) => {
                permit.succeeded();
                return Ok(value);
            }
            Err(failure) => failure,
        };
        attempts
            .again(failure, permit, sent.load(Ordering::Relaxed))
            .await?;
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
    let bytes = payload.map_or(0, Payload::len);
    let response = exchange(live, request, sent, bytes, clock).await?;
    let head = Head::of(&response);
    if !ask.accepts.contains(&head.status) {
        let (kind, patience) = (live.signer.kind(), live.options.request.idle_timeout);
        return Err(refused(kind, patience, response, head).await);
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
        let patience = live.options.request.idle_timeout.min(clock.left());
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
