//! What goes wrong, and when.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::draw::Draw;

/// One thing that goes wrong with an answer. Those that concern the body leave an error as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An error of the store, with its code in XML.
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
    /// The connection is closed after so many bytes of the body.
    CloseAfter(u64),
    /// This byte of the body is another one.
    FlipByte(u64),
    /// `Content-Length` is off by so many bytes; the body is whole, and the connection is closed behind it.
    ContentLength(i64),
    /// There is no `Content-Length`; the end of the connection is the end of the body.
    NoContentLength,
    /// `Content-Range` is off by so many bytes.
    ContentRange(i64),
    /// `Range` is not looked at.
    WholeObject,
    /// Another `ETag`.
    OtherEtag,
    /// No `ETag`.
    NoEtag,
    /// No answer, and the connection stays open.
    StallBefore,
    /// Nothing comes after so many bytes of the body, and the connection stays open.
    StallAfter(u64),
    /// The body comes in pieces of `bytes`, one each time.
    Drip {
        /// Bytes in a piece.
        bytes: usize,
        /// Time between two of them.
        every: Duration,
    },
    /// A temporary redirect to another address.
    Redirect(String),
    /// A page of HTML with status 200, as a proxy sends it.
    Page,
    /// Status 200, and in the body the error that came up behind it. Nothing is done.
    ErrorInside(&'static str),
    /// The connection is closed after so many bytes of the request's body. Nothing is done.
    CloseWithin(u64),
    /// Nothing more is read after so many bytes of the request's body, and the connection stays open. Nothing is done.
    StallWithin(u64),
    /// This byte of the request's body arrives as another one.
    FlipWithin(u64),
    /// What was asked for is done, and the connection is closed without an answer.
    AnswerLost,
}

impl Fault {
    /// An error of the store with the code that S3 sends along.
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

/// What a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// The contents of an object.
    Get,
    /// What is known about an object.
    Head,
    /// A page of a listing.
    List,
    /// A whole object.
    Put,
    /// The begin of an upload in parts.
    Create,
    /// One part of it.
    Part,
    /// Its end.
    Complete,
    /// The parts are thrown away.
    Abort,
    /// An object is taken away.
    Delete,
    /// A token for a client.
    Login,
    /// Anything else.
    Other,
}

/// A request, as a script sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// How many requests came before it.
    pub number: u64,
    /// How many requests for the same key came before it.
    pub nth: u64,
    /// What it is about.
    pub action: Action,
    /// How many requests for the same key with the same action came before it.
    pub nth_action: u64,
    /// The key within the bucket; empty for a listing.
    pub key: String,
    /// The range that was asked for: both ends are bytes of the object, the second not included.
    pub range: Option<Range<u64>>,
}

/// Decides which requests go wrong and how. Without one none does.
#[derive(Clone, Default)]
pub struct Script(Option<Arc<Decide>>);

type Decide = dyn Fn(&Asked) -> Option<Fault> + Send + Sync;

impl Script {
    /// What `decide` says.
    pub fn by(decide: impl Fn(&Asked) -> Option<Fault> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(decide)))
    }

    /// Every request.
    #[must_use]
    pub fn always(fault: Fault) -> Self {
        Self::by(move |_| Some(fault.clone()))
    }

    /// The first `count` requests of this kind for each key; all of them without a count.
    #[must_use]
    pub fn on(action: Action, count: Option<u64>, fault: Fault) -> Self {
        Self::by(move |asked| {
            let hit = asked.action == action && count.is_none_or(|count| asked.nth_action < count);
            hit.then(|| fault.clone())
        })
    }

    /// The first `count` requests for each key.
    #[must_use]
    pub fn first(count: u64, fault: Fault) -> Self {
        Self::by(move |asked| (asked.nth < count).then(|| fault.clone()))
    }

    /// `percent` of 100 requests, with one of the faults each. The seed and the number of the request decide.
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
