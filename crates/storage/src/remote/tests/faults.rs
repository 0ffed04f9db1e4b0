//! Every fault with every operation: the right bytes or a specific error, before the deadline.

use super::*;
use crate::error::StorageError;
use crate::{RequestOptions, RetryOptions};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Read,
    Range,
    Ranges,
    Fetch,
    Parts,
}

const OPERATIONS: [Operation; 5] = [
    Operation::Read,
    Operation::Range,
    Operation::Ranges,
    Operation::Fetch,
    Operation::Parts,
];

impl Operation {
    fn run(self, remote: &Remote) -> Result<Vec<u8>, StorageError> {
        match self {
            Self::Read => remote.read("small", 2 * SMALL as u64),
            Self::Range => remote.read_range("small", None, 500..15_500),
            Self::Ranges => remote
                .read_ranges(&[("small".to_owned(), 500..15_500)])
                .remove(0),
            Self::Fetch => fetched(remote, "small", SMALL),
            Self::Parts => fetched(remote, "large", LARGE),
        }
    }

    fn right(self) -> Vec<u8> {
        match self {
            Self::Read | Self::Fetch => contents(1, SMALL),
            Self::Range | Self::Ranges => contents(1, SMALL)[500..15_500].to_vec(),
            Self::Parts => contents(2, LARGE),
        }
    }

    const fn has_range(self) -> bool {
        matches!(self, Self::Range | Self::Ranges | Self::Parts)
    }
}

/// The outcomes when a fault hits the first request of each key, and when it hits all requests.
type Outcome = Result<(), &'static str>;

fn check(fault: &Fault, expected: impl Fn(Operation) -> (Outcome, Outcome)) {
    // In parallel, because most of them wait most of the time.
    std::thread::scope(|scope| {
        for operation in OPERATIONS {
            let (once, always) = expected(operation);
            for (script, expected) in [
                (Script::first(1, fault.clone()), once),
                (Script::always(fault.clone()), always),
            ] {
                scope.spawn(move || check_one(fault, operation, script, expected));
            }
        }
    });
}

fn check_one(fault: &Fault, operation: Operation, script: Script, expected: Outcome) {
    let server = server(script);
    let options = RemoteOptions {
        request: RequestOptions {
            total_timeout: Duration::from_secs(5),
            ..quick(&server).request
        },
        ..quick(&server)
    };
    let remote = alone(&options);
    let began = Instant::now();
    let result = operation.run(&remote);
    let took = began.elapsed();
    let ids = result
        .as_ref()
        .map(|_| ())
        .map_err(shardmill_core::Diagnostic::id);
    assert_eq!(ids, expected, "{fault:?} {operation:?} {result:.200?}");
    if let Ok(bytes) = result {
        assert!(bytes == operation.right(), "{fault:?} {operation:?}");
    }
    let max = options.request.total_timeout + Duration::from_secs(2);
    assert!(took < max, "{fault:?} {operation:?} {took:?}");
}

#[test]
fn error_statuses_are_retried_or_reported() {
    let answers = [
        (401, Err("credentials"), Err("credentials")),
        (403, Err("credentials"), Err("credentials")),
        (404, Err("not-found"), Err("not-found")),
        (412, Err("remote-changed"), Err("remote-changed")),
        (400, Err("storage-refused"), Err("storage-refused")),
        (409, Ok(()), Err("storage-gave-up")),
        (429, Ok(()), Err("throttled")),
        (500, Ok(()), Err("storage-gave-up")),
        (503, Ok(()), Err("throttled")),
    ];
    for (status, once, always) in answers {
        check(&Fault::status(status), |_| (once, always));
    }
    let busy = Fault::Status {
        status: 429,
        code: "TooManyRequests",
        retry_after: Some(3600),
    };
    check(&busy, |_| (Ok(()), Err("throttled")));
}

#[test]
fn closed_connections_are_retried() {
    check(&Fault::CloseBefore, |_| (Ok(()), Err("storage-gave-up")));
    check(&Fault::CloseAfter(0), |_| (Ok(()), Err("storage-gave-up")));
    // Each request advances by this much, so four are enough.
    check(&Fault::CloseAfter(9_000), |_| (Ok(()), Ok(())));
    check(&Fault::CloseAfter(1_000), |_| {
        (Ok(()), Err("storage-gave-up"))
    });
}

#[test]
fn stalled_responses_are_retried_then_time_out() {
    check(&Fault::StallBefore, |_| (Ok(()), Err("stalled")));
    check(&Fault::StallAfter(100), |_| (Ok(()), Err("stalled")));
    let drip = Fault::Drip {
        bytes: 16,
        every: Duration::from_millis(5),
    };
    check(&drip, |_| (Ok(()), Err("stalled")));
}

#[test]
fn wrong_content_length_or_range_is_an_error() {
    check(&Fault::ContentLength(10), |_| (Ok(()), Err("body-length")));
    check(&Fault::NoContentLength, |operation| match operation {
        // The right length is unknown.
        Operation::Read => (Ok(()), Err("body-length")),
        _ => (Ok(()), Ok(())),
    });
    for fault in [Fault::ContentRange(5), Fault::WholeObject] {
        check(&fault, |operation| {
            if operation.has_range() {
                (Ok(()), Err("body-range"))
            } else {
                (Ok(()), Ok(()))
            }
        });
    }
    // An object of unknown length is as long as its answer says. The reader of an index detects the missing end.
    let shorter = Fault::ContentLength(-10);
    for operation in OPERATIONS
        .into_iter()
        .filter(|known| *known != Operation::Read)
    {
        let server = server(Script::always(shorter.clone()));
        let error = operation.run(&alone(&quick(&server))).unwrap_err();
        assert_eq!(error.id(), "body-length", "{operation:?}");
        // Two retries, for each of at most seven parts.
        assert!(server.counts().requests <= 7 * 3, "{operation:?}");
    }
}

#[test]
fn html_page_instead_of_object_is_an_error() {
    for operation in OPERATIONS
        .into_iter()
        .filter(|known| *known != Operation::Read)
    {
        let server = server(Script::first(1, Fault::Page));
        let read = operation.run(&alone(&quick(&server))).unwrap();
        assert!(read == operation.right(), "{operation:?}");
        server.set(Settings {
            faults: Script::always(Fault::Page),
            ..Settings::default()
        });
        let error = operation.run(&alone(&quick(&server))).unwrap_err();
        let expected = if operation.has_range() {
            "body-range"
        } else {
            "body-length"
        };
        assert_eq!(error.id(), expected, "{operation:?}");
    }
}

#[test]
fn missing_etag_is_accepted_and_changed_etag_is_an_error() {
    check(&Fault::NoEtag, |_| (Ok(()), Ok(())));
    check(&Fault::OtherEtag, |operation| match operation {
        // One part belongs to another version than the others.
        Operation::Parts => (Err("remote-changed"), Ok(())),
        _ => (Ok(()), Ok(())),
    });
}

#[test]
fn flipped_byte_in_body_is_returned_unchecked() {
    let server = server(Script::always(Fault::FlipByte(7)));
    let read = fetched(&alone(&quick(&server)), "small", SMALL).unwrap();
    let right = contents(1, SMALL);
    let differ: Vec<_> = (0..SMALL).filter(|&at| read[at] != right[at]).collect();
    assert_eq!(differ, [7]);
}

/// With a tenth of all requests failing, every byte is right, with at most 1.3 times the requests.
#[test]
fn ten_percent_failures_cost_few_extra_requests() {
    let seed = Draw::seed_from("SHARDMILL_SEED");
    println!("SHARDMILL_SEED={seed}");
    let faults = vec![
        Fault::status(500),
        Fault::status(503),
        Fault::status(429),
        Fault::status(409),
        Fault::CloseBefore,
        Fault::CloseAfter(0),
        Fault::CloseAfter(7_777),
        Fault::ContentLength(3),
        Fault::ContentRange(1),
        Fault::WholeObject,
        Fault::StallBefore,
        Fault::StallAfter(4_000),
    ];
    const OBJECTS: u64 = 300;
    let objects = (0..OBJECTS).map(|at| (format!("data/{at}"), contents(at, SMALL)));
    let settings = Settings {
        faults: Script::random(seed, 10, faults),
        ..Settings::default()
    };
    let server = S3Server::start(Objects::memory("bucket", objects), settings).unwrap();
    let options = RemoteOptions {
        request: RequestOptions {
            connections: 16,
            idle_timeout: Duration::from_millis(500),
            ..quick(&server).request
        },
        retry: RetryOptions {
            attempts: 8,
            budget_percent: 20,
            budget_floor: 20,
            ..quick(&server).retry
        },
        ..quick(&server)
    };
    let remote = alone(&options);
    let began = Instant::now();
    let (sender, receiver) = mpsc::channel();
    let fetching: Vec<_> = (0..OBJECTS)
        .map(|at| {
            let sender = sender.clone();
            remote.fetch(&at.to_string(), SMALL as u64, move |result| {
                sender.send((at, result)).unwrap();
            })
        })
        .collect();
    for _ in 0..OBJECTS {
        let (at, result) = receiver.recv_timeout(LONG).unwrap();
        assert!(result.unwrap() == contents(at, SMALL), "{at}");
    }
    drop(fetching);
    let counts = server.counts();
    println!(
        "{OBJECTS} objects: {} requests, {} faults, {:.2?}",
        counts.requests,
        counts.faults,
        began.elapsed()
    );
    assert!(counts.faults > 0 && counts.requests * 10 <= OBJECTS * 13);
    assert!(counts.load.max_connections <= 16 + usize::try_from(counts.faults).unwrap());
}
