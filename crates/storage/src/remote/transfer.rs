//! Fetches a range of an object, and retries until it is complete or the retries are exhausted.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use reqwest::Response;
use shardmill_core::lock;
use tokio::time::timeout;

use super::answer::{Failure, Head, refused};
use super::client::root_of;
use super::hub::{exchange, pin};
use super::live::Live;
use super::retry::{Attempts, Clock};
use crate::entry::StoreKind;
use crate::error::StorageError;

/// The maximum memory reserved for a length that only the answer declares.
const CLAIMED: u64 = 64 << 20;

/// The range to fetch.
#[derive(Clone, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) key: &'a str,
    /// The range, or `None` for the whole object.
    pub(super) range: Option<Range<u64>>,
    /// The length of the whole object, if known.
    pub(super) object_bytes: Option<u64>,
    /// The maximum number of bytes to accept.
    pub(super) max: u64,
}

impl Wanted<'_> {
    /// Returns whether it is a short range, such as one sample.
    fn is_small(&self) -> bool {
        const SMALL: u64 = 64 << 10;

        self.range
            .as_ref()
            .is_some_and(|range| range.end.saturating_sub(range.start) <= SMALL)
    }
}

/// Why bytes do not fit into a sink.
#[derive(Debug)]
pub(super) enum Full {
    /// There are more bytes than expected.
    TooMany,
    NoMemory,
}

/// The destination of received bytes.
pub(super) trait Sink: Send {
    fn filled(&self) -> u64;
    /// Reserves memory for this many bytes in total.
    fn expect(&mut self, bytes: u64) -> Result<(), StorageError>;
    /// Appends bytes.
    fn push(&mut self, bytes: &[u8]) -> Result<(), Full>;
    fn clear(&mut self);
}

/// A vector that grows up to a limit.
#[derive(Debug)]
pub(super) struct Growing {
    pub(super) bytes: Vec<u8>,
    max: usize,
}

impl Growing {
    pub(super) fn new(max: u64) -> Self {
        Self {
            bytes: Vec::new(),
            max: usize::try_from(max).unwrap_or(usize::MAX),
        }
    }
}

impl Sink for Growing {
    fn filled(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn expect(&mut self, bytes: u64) -> Result<(), StorageError> {
        let more = usize::try_from(bytes)
            .unwrap_or(usize::MAX)
            .saturating_sub(self.bytes.len());
        self.bytes
            .try_reserve_exact(more)
            .map_err(|_| StorageError::NoMemory { bytes })
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), Full> {
        if bytes.len() > self.max.saturating_sub(self.bytes.len()) {
            return Err(Full::TooMany);
        }
        self.bytes
            .try_reserve(bytes.len())
            .map_err(|_| Full::NoMemory)?;
        // The only copy between the network and the caller.
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn clear(&mut self) {
        self.bytes.clear();
    }
}

/// A part of a buffer. Other fetches fill the rest of it.
#[derive(Debug)]
pub(super) struct Part<'a> {
    into: &'a mut [u8],
    filled: usize,
}

impl<'a> Part<'a> {
    pub(super) const fn new(into: &'a mut [u8]) -> Self {
        Self { into, filled: 0 }
    }
}

impl Sink for Part<'_> {
    fn filled(&self) -> u64 {
        self.filled as u64
    }

    fn expect(&mut self, _: u64) -> Result<(), StorageError> {
        Ok(())
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), Full> {
        let end = self.filled.saturating_add(bytes.len());
        let room = self.into.get_mut(self.filled..end).ok_or(Full::TooMany)?;
        room.copy_from_slice(bytes);
        self.filled = end;
        Ok(())
    }

    fn clear(&mut self) {
        self.filled = 0;
    }
}

/// What the answers of one operation report about the object. Shared by all its parts and attempts.
#[derive(Debug, Default)]
pub(super) struct Seen(Mutex<SeenState>);

#[derive(Clone, Debug, Default)]
struct SeenState {
    etag: Option<String>,
    whole: Option<u64>,
}

impl Seen {
    fn get(&self) -> SeenState {
        lock(&self.0).clone()
    }

    pub(super) fn etag(&self) -> Option<String> {
        self.get().etag
    }

    /// Forgets the length of the object. It is unknown which of two lengths is wrong; the next answer may tell.
    fn forget_whole(&self) {
        lock(&self.0).whole = None;
    }

    /// Compares an answer with those before it.
    pub(super) fn agree(&self, etag: Option<&str>, whole: Option<u64>) -> Result<(), Failure> {
        let mut state = lock(&self.0);
        match (&state.etag, etag) {
            (Some(known), Some(etag)) if known != etag => {
                return Err(Failure::Final(StorageError::ObjectChanged));
            }
            (None, Some(etag)) => state.etag = Some(etag.to_owned()),
            _ => {}
        }
        match (state.whole, whole) {
            (Some(expected), Some(found)) if expected != found => {
                Err(wrong_length(expected, found))
            }
            (None, Some(whole)) => {
                state.whole = Some(whole);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn wrong_length(expected: u64, found: u64) -> Failure {
    Failure::ProtocolError(StorageError::BodyLength { expected, found })
}

fn wrong_range(requested: &Range<u64>, found: String) -> Failure {
    let Range { start, end } = *requested;
    Failure::ProtocolError(StorageError::BodyRange { start, end, found })
}

/// Fetches a range into `sink`.
pub(super) async fn fetch<S: Sink>(
    live: &Live,
    wanted: &Wanted<'_>,
    sink: &mut S,
    seen: &Seen,
) -> Result<(), StorageError> {
    let semaphore = match wanted.is_small() {
        true => &live.store.small,
        false => &live.store.semaphore,
    };
    let mut attempts = Attempts::new(live);
    loop {
        let permit = attempts.enter(semaphore).await;
        attempts.begin();
        let failure = match attempt(live, wanted, sink, seen, &mut attempts.clock).await {
            Ok(()) => {
                permit.succeeded();
                return Ok(());
            }
            Err(failure) => failure,
        };
        if let Failure::ProtocolError(_) = &failure {
            sink.clear();
            seen.forget_whole();
        }
        attempts.again(failure, permit, sink.filled()).await?;
    }
}

async fn attempt<S: Sink>(
    live: &Live,
    wanted: &Wanted<'_>,
    sink: &mut S,
    seen: &Seen,
    clock: &mut Clock,
) -> Result<(), Failure> {
    let before = seen.get();
    let from = sink.filled();
    let whole = wanted.object_bytes.or(before.whole);
    let range = match (&wanted.range, from) {
        (Some(range), _) => Some(range.start + from..range.end),
        (None, 0) => None,
        // Resume an interrupted body.
        (None, _) => match whole {
            Some(whole) if from < whole => Some(from..whole),
            _ => {
                sink.clear();
                None
            }
        },
    };
    let etag = before.etag.filter(|etag| !etag.starts_with("W/"));
    let kind = live.signer.kind();
    let ask = kind.get(wanted.key, range.as_ref(), etag.as_deref());
    let sent = Arc::default();
    pin(live, clock).await?;
    let signed = live.signer.sign(&ask, None, &sent, &live.leases).await;
    let request = signed.map_err(Failure::Final)?;
    let response = exchange(live, request, &sent, 0, clock).await?;
    let head = Head::of(live.signer.kind(), &response);
    if matches!(head.status, 200 | 206) {
        if live.signer.kind() == StoreKind::HubBucket {
            StoreKind::HubBucket.check_tag(head.etag.as_deref(), head.length)?;
        }
        // Another version may have another length, and a retry would not fix that.
        live.check_pin(wanted.key, head.etag.as_deref())
            .map_err(Failure::Final)?;
    }
    // COMPAT: `rclone serve s3` answers a range with 200 and `Content-Range`.
    let is_range = head.status == 206 || range.is_some() && head.range.is_some();
    let end = match head.status {
        200 if !is_range => begin_whole(wanted, sink, &head, range.as_ref())?,
        200 | 206 => begin_range(wanted, &head, range.as_ref())?,
        _ => return Err(classify(live, wanted, response, head, range).await),
    };
    let whole = match (&head.range, end) {
        (Some((_, _, whole)), _) if is_range => *whole,
        (_, end) => end.filter(|_| wanted.range.is_none()),
    };
    seen.agree(head.etag.as_deref(), whole)?;
    if let Some(end) = end {
        let claimed = wanted.object_bytes.is_none() && wanted.range.is_none();
        // Memory for an unverified length is reserved only as the bytes arrive.
        sink.expect(if claimed { end.min(CLAIMED) } else { end })
            .map_err(Failure::Final)?;
    }
    body(live, response, sink, clock, end, wanted.max).await?;
    match end {
        Some(end) if sink.filled() != end => Err(wrong_length(end, sink.filled())),
        _ => Ok(()),
    }
}

/// Checks the head of an answer with the whole object. Returns how many bytes the sink will have.
fn begin_whole<S: Sink>(
    wanted: &Wanted<'_>,
    sink: &mut S,
    head: &Head,
    range: Option<&Range<u64>>,
) -> Result<Option<u64>, Failure> {
    if wanted.range.is_some()
        && let Some(range) = range
    {
        return Err(wrong_range(range, StorageError::WHOLE.to_owned()));
    }
    // Discard what an earlier attempt received.
    sink.clear();
    match (wanted.object_bytes, head.length) {
        (Some(expected), Some(found)) if expected != found => Err(wrong_length(expected, found)),
        (Some(expected), _) => Ok(Some(expected)),
        (None, Some(bytes)) if bytes > wanted.max => {
            Err(Failure::Final(StorageError::ObjectTooLarge {
                bytes,
                max: wanted.max,
            }))
        }
        (None, Some(bytes)) => Ok(Some(bytes)),
        (None, None) if head.chunked => Ok(None),
        // Without a length or chunks, a truncated body could not be detected.
        (None, None) => Err(Failure::ProtocolError(StorageError::NoLength)),
    }
}

/// Checks the head of an answer with a range. Returns how many bytes the sink will have.
fn begin_range(
    wanted: &Wanted<'_>,
    head: &Head,
    range: Option<&Range<u64>>,
) -> Result<Option<u64>, Failure> {
    let found = || {
        head.range_text
            .as_deref()
            .map_or_else(|| "a part".to_owned(), shown)
    };
    let Some(requested) = range else {
        let whole = 0..wanted.object_bytes.unwrap_or_default();
        return Err(wrong_range(&whole, found()));
    };
    let right = head
        .range
        .is_some_and(|(start, end, _)| (start, end) == (requested.start, requested.end));
    if let Some((_, _, Some(whole))) = head.range
        && let Some(expected) = wanted.object_bytes
        && whole != expected
    {
        return Err(wrong_length(expected, whole));
    }
    if !right {
        return Err(wrong_range(requested, found()));
    }
    let expected = requested.end - requested.start;
    if let Some(found) = head.length.filter(|length| *length != expected) {
        return Err(wrong_length(expected, found));
    }
    let begin = wanted.range.as_ref().map_or(0, |range| range.start);
    Ok(Some(requested.end - begin))
}

/// Returns a header of an answer in a form that is safe to display.
fn shown(text: &str) -> String {
    text.chars()
        .filter(|c| c.is_ascii_graphic() || *c == ' ')
        .take(60)
        .collect()
}

/// Classifies an answer that is not a success.
async fn classify(
    live: &Live,
    wanted: &Wanted<'_>,
    response: Response,
    head: Head,
    range: Option<Range<u64>>,
) -> Failure {
    let status = head.status;
    match status {
        412 => Failure::Final(StorageError::ObjectChanged),
        416 => {
            let expected = wanted
                .object_bytes
                .or(range.map(|range| range.end))
                .unwrap_or_default();
            wrong_length(expected, head.whole().unwrap_or_default())
        }
        200..300 => Failure::Final(StorageError::Refused { status, code: None }),
        _ => {
            refused(
                live.signer.kind(),
                live.options.request.idle_timeout,
                response,
                head,
            )
            .await
        }
    }
}

/// Reads a body into the sink.
async fn body<S: Sink>(
    live: &Live,
    mut response: Response,
    sink: &mut S,
    clock: &mut Clock,
    end: Option<u64>,
    max: u64,
) -> Result<(), Failure> {
    let options = &live.options;
    let mut last = Instant::now();
    let mut window = (last, sink.filled());
    loop {
        let in_window = options
            .request
            .slow_window
            .saturating_sub(window.0.elapsed());
        let idle = options.request.idle_timeout.saturating_sub(last.elapsed());
        match timeout(in_window.min(idle).min(clock.left()), response.chunk()).await {
            Ok(Ok(Some(bytes))) => {
                last = Instant::now();
                let count = bytes.len() as u64;
                live.counters.bytes.fetch_add(count, Ordering::Relaxed);
                clock.received += count;
                sink.push(&bytes).map_err(|full| {
                    let found = sink.filled() + count;
                    match (full, end) {
                        (Full::NoMemory, _) => {
                            Failure::Final(StorageError::NoMemory { bytes: found })
                        }
                        (Full::TooMany, Some(expected)) => wrong_length(expected, found),
                        (Full::TooMany, None) => {
                            Failure::Final(StorageError::ObjectTooLarge { bytes: found, max })
                        }
                    }
                })?;
            }
            Ok(Ok(None)) => return Ok(()),
            // The body is complete, so an error at the end of the connection does not matter.
            Ok(Err(_)) if end == Some(sink.filled()) => return Ok(()),
            Ok(Err(error)) => return Err(Failure::Transient(root_of(&error))),
            Err(_) => {
                if clock.left().is_zero() || last.elapsed() >= options.request.idle_timeout {
                    return Err(Failure::Stalled);
                }
            }
        }
        let took = window.0.elapsed();
        if took >= options.request.slow_window {
            let came = u128::from(sink.filled().saturating_sub(window.1));
            let min = u128::from(options.request.min_bytes_per_second) * took.as_millis() / 1000;
            if came < min {
                return Err(Failure::Stalled);
            }
            window = (Instant::now(), sink.filled());
        }
    }
}
