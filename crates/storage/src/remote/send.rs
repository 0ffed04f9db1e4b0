//! Sends requests other than range reads, and retries them until they succeed or the retries are exhausted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::answer::{Answer, Failure, Head, refused};
use super::hub::{exchange, pin};
use super::live::Live;
use super::payload::Payload;
use super::protocol::RequestSpec;
use super::retry::{Attempts, Clock, body};
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
    pin(live, clock).await?;
    let signed = live.signer.sign(ask, payload, sent, &live.leases).await;
    let request = signed.map_err(Failure::Final)?;
    let bytes = payload.map_or(0, Payload::len);
    let response = exchange(live, request, sent, bytes, clock).await?;
    let head = Head::of(live.signer.kind(), &response);
    if !ask.accepts.contains(&head.status) {
        let (kind, patience) = (live.signer.kind(), live.options.request.idle_timeout);
        return Err(refused(kind, patience, response, head).await);
    }
    let body = body(live, response, &head, ask.max, clock).await?;
    Ok(Answer { head, body })
}
