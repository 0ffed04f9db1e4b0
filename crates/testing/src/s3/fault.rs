//! Faults, and the scripts that select the requests they apply to.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::draw::Draw;

/// A fault of one answer. Faults of the body do not change errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The store answers with an error, with its code in XML.
    Status {
        /// The status.
        status: u16,
        /// The code in the body, such as `SlowDown`.
        code: &'static str,
        /// Seconds in `Retry-After`.
        retry_after: Option<u64>,
    },
    /// The connection is closed without an answer.
    CloseBefore,
    /// The connection is closed after this many bytes of the body.
    CloseAfter(u64),
    /// This byte of the body is corrupted.
    FlipByte(u64),
    /// `Content-Length` is off by this many bytes. The body is complete, and then the connection is closed.
    ContentLength(i64),
    /// There is no `Content-Length`. The body ends with the connection.
    NoContentLength,
    /// `Content-Range` is off by this many bytes.
    ContentRange(i64),
    /// `Range` is ignored.
    WholeObject,
    /// A range has the status 200, as from `rclone serve s3`.
    RangeAsWhole,
    /// The `ETag` is another one.
    OtherEtag,
    /// The `ETag` is missing.
    NoEtag,
    /// No answer is sent, and the connection stays open.
    StallBefore,
    /// Nothing is sent after this many bytes of the body, and the connection stays open.
    StallAfter(u64),
    /// The body is sent in small pieces.
    Drip {
        /// The bytes of a piece.
        bytes: usize,
        /// The time between two pieces.
        every: Duration,
    },
    /// A temporary redirect to this address.
    Redirect(String),
    /// An HTML page with status 200, as from a proxy.
    Page,
    /// Status 200, with an error in the body. The request has no effect.
    ErrorInside(&'static str),
    /// The connection is closed after this many bytes of the request's body. The request has no effect.
    CloseWithin(u64),
    /// Reading stops after this many bytes of the request's body, and the connection stays open. The request has no
    /// effect.
    StallWithin(u64),
    /// This byte of the request's body is corrupted.
    FlipWithin(u64),
    /// The request takes effect, and the connection is closed without an answer.
    AnswerLost,
}

impl Fault {
    /// Returns an error with the code that S3 sends for the status.
    #[must_use]
    pub const fn status(status: u16) -> Self {
        let code = match status {
            400 => "InvalidRequest",
            401 => "Unauthorized",
            403 => "AccessDenied",
            404 => "NoSuchKey",
            409 => "OperationAborted",
            412 => "PreconditionFailed",
            429 => "TooManyRequests",
            501 => "NotImplemented",
            503 => "SlowDown",
            _ => "InternalError",
        };
        Self::Status {
            status,
            code,
            retry_after: None,
        }
    }
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Reads an object.
    Get,
    /// Requests the metadata of an object.
    Head,
    /// Requests a page of a listing.
    List,
    /// Uploads a whole object.
    Put,
    /// Begins a multipart upload.
    Create,
    /// Uploads a part.
    Part,
    /// Completes a multipart upload.
    Complete,
    /// Aborts a multipart upload.
    Abort,
    /// Removes an object.
    Delete,
    /// Requests a token for a client.
    Login,
    /// Anything else.
    Other,
}

/// A request as a script sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The number of requests before it.
    pub number: u64,
    /// The number of requests for the same key before it.
    pub nth: u64,
    /// The action.
    pub action: Action,
    /// The number of requests with the same key and action before it.
    pub nth_action: u64,
    /// The key within the bucket; empty for a listing.
    pub key: String,
    /// The requested range in bytes of the object; the end is exclusive.
    pub range: Option<Range<u64>>,
}

/// Selects the requests that fail, and their faults. The default selects none.
#[derive(Clone, Default)]
pub struct Script(Option<Arc<Decide>>);

type Decide = dyn Fn(&Asked) -> Option<Fault> + Send + Sync;

impl Script {
    /// Calls `decide` for every request.
    pub fn by(decide: impl Fn(&Asked) -> Option<Fault> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(decide)))
    }

    /// Applies a fault to every request.
    #[must_use]
    pub fn always(fault: Fault) -> Self {
        Self::by(move |_| Some(fault.clone()))
    }

    /// Applies a fault to the first `count` requests with this action for each key; to all of them without a count.
    #[must_use]
    pub fn on(action: Action, count: Option<u64>, fault: Fault) -> Self {
        Self::by(move |asked| {
            let hit = asked.action == action && count.is_none_or(|count| asked.nth_action < count);
            hit.then(|| fault.clone())
        })
    }

    /// Applies a fault to the first `count` requests for each key.
    #[must_use]
    pub fn first(count: u64, fault: Fault) -> Self {
        Self::by(move |asked| (asked.nth < count).then(|| fault.clone()))
    }

    /// Applies one of the faults to `percent` of 100 requests. The seed and the number of the request determine the
    /// choice.
    #[must_use]
    pub fn random(seed: u64, percent: u64, faults: Vec<Fault>) -> Self {
        Self::by(move |asked| {
            let mut draw = Draw::new(
                Draw::new(seed)
                    .next()
                    .wrapping_add(asked.number.wrapping_mul(0x9e37_79b9)),
            );
            let hit = draw.below(100) < percent;
            hit.then(|| draw.pick(&faults).cloned()).flatten()
        })
    }

    pub(super) fn decide(&self, asked: &Asked) -> Option<Fault> {
        self.0.as_ref().and_then(|decide| decide(asked))
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "Script"
        } else {
            "Script(none)"
        })
    }
}
