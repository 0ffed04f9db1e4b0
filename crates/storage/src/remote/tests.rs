//! Tests of [`Remote`] against a store that fails on demand.

mod chain;
mod conformance;
mod destinations;
mod dialects;
mod faults;
mod lists;
mod logins;
mod millions;
mod rounds;
mod shapes;
mod throughput;
mod walks;
mod writes;

use std::sync::mpsc;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use shardmill_core::{Diagnostic as _, ErrorKind};
use shardmill_testing::draw::Draw;
use shardmill_testing::s3::{Fault, Objects, S3Server, Script, Settings};

use super::{DownloadOptions, Remote, RemoteOptions, RequestOptions, RetryOptions};
use crate::tests::{options_for, remote_location};
use crate::{RemoteLocation, StorageError};

/// Far longer than any of these tests takes.
const LONG: Duration = Duration::from_secs(60);

const SMALL: usize = 20_000;
const LARGE: usize = 200_000;

fn contents(seed: u64, bytes: usize) -> Vec<u8> {
    Draw::new(seed).bytes(bytes)
}

/// Starts a server with a small object, one that is fetched in parts, and an empty one.
fn server(faults: Script) -> S3Server {
    let objects = [
        ("data/small".to_owned(), contents(1, SMALL)),
        ("data/large".to_owned(), contents(2, LARGE)),
        ("data/empty".to_owned(), Vec::new()),
    ];
    let settings = Settings {
        faults,
        ..Settings::default()
    };
    S3Server::start(Objects::memory("bucket", objects), settings).unwrap()
}

fn location() -> RemoteLocation {
    remote_location("s3://bucket/data")
}

/// Cancels nothing.
fn cancel(_: u64) -> bool {
    true
}

/// Options with milliseconds instead of seconds.
fn quick(server: &S3Server) -> RemoteOptions {
    RemoteOptions {
        download: DownloadOptions {
            part_bytes: 32 << 10,
            split_above: 64 << 10,
        },
        retry: RetryOptions {
            attempts: 4,
            outlasts_outages: false,
            turn: Duration::from_millis(1),
            back_off: Duration::from_millis(1),
            back_off_most: Duration::from_millis(10),
            retry_after_most: Duration::from_millis(20),
            budget_percent: 100,
            budget_floor: 1000,
        },
        request: RequestOptions {
            idle_timeout: Duration::from_millis(400),
            slow_window: Duration::from_millis(300),
            total_timeout: Duration::from_secs(20),
            ..RequestOptions::default()
        },
        ..options_for(server)
    }
}

/// A remote with its own engine.
fn alone(options: &RemoteOptions) -> Remote {
    Remote::new(&location(), options, true).unwrap()
}

fn fetched(remote: &Remote, name: &str, bytes: usize) -> Result<Vec<u8>, StorageError> {
    let (sender, receiver) = mpsc::channel();
    let _fetching = remote.fetch(name, bytes as u64, move |result| {
        sender.send(result).unwrap();
    });
    receiver.recv_timeout(LONG).unwrap()
}

/// Waits until `so` returns true.
fn until(mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < LONG);
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn fault_of(error: StorageError) -> StorageError {
    match error {
        StorageError::At { fault, .. } => *fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn objects_and_ranges_are_read_with_one_request_each() {
    let server = server(Script::default());
    let remote = alone(&quick(&server));
    assert_eq!(remote.stats(), super::RemoteStats::default());
    let small = contents(1, SMALL);
    assert_eq!(remote.read("small", SMALL as u64).unwrap(), small);
    assert_eq!(
        remote.read_range("small", None, 10..1000).unwrap(),
        small[10..1000]
    );
    assert_eq!(
        remote
            .read_range("small", Some(SMALL as u64), 19_000..20_000)
            .unwrap(),
        small[19_000..]
    );
    assert_eq!(fetched(&remote, "small", SMALL).unwrap(), small);
    assert_eq!(fetched(&remote, "empty", 0).unwrap(), b"");
    assert_eq!(remote.read("empty", 0).unwrap(), b"");
    assert_eq!(remote.read_range("small", None, 5..5).unwrap(), b"");
    let counts = server.counts();
    assert_eq!((counts.requests, counts.heads), (6, 0));
    // A connection may return to the pool too late for the next request.
    assert!(counts.load.connections < 6, "{}", counts.load.connections);
    assert_eq!(counts.signed, 6);
    let stats = remote.stats();
    assert_eq!((stats.requests, stats.retries), (6, 0));
    assert_eq!(stats.bytes, server.counts().bytes);
    assert_eq!((stats.max_connections, stats.connections), (1, 64));
}

#[test]
fn read_ranges_returns_results_in_request_order() {
    let server = server(Script::default());
    let remote = alone(&quick(&server));
    let wanted: Vec<_> = (0..50_u64)
        .map(|at| ("small".to_owned(), at * 100..at * 100 + 50))
        .chain([("none".to_owned(), 0..1), ("a/../b".to_owned(), 0..1)])
        .collect();
    let all = remote.read_ranges(&wanted);
    let small = contents(1, SMALL);
    for (at, read) in all.iter().take(50).enumerate() {
        assert_eq!(read.as_ref().unwrap(), &small[at * 100..at * 100 + 50]);
    }
    assert_eq!(all[50].as_ref().unwrap_err().id(), "not-found");
    assert_eq!(all[51].as_ref().unwrap_err().id(), "path-traversal");
    assert!(remote.read_ranges(&[]).is_empty());
}

#[test]
fn long_objects_are_fetched_in_parts() {
    let server = server(Script::default());
    let remote = alone(&quick(&server));
    let large = contents(2, LARGE);
    assert_eq!(fetched(&remote, "large", LARGE).unwrap(), large);
    assert_eq!(server.counts().requests, 7);
    assert_eq!(
        remote
            .read_range("large", Some(LARGE as u64), 100..190_000)
            .unwrap(),
        large[100..190_000]
    );
    assert_eq!(server.counts().requests, 13);
}

#[test]
fn range_with_the_status_of_a_whole_object_is_read() {
    let server = server(Script::always(Fault::RangeAsWhole));
    let remote = alone(&quick(&server));
    let read = remote.read_range("small", None, 10..20).unwrap();
    assert_eq!(read, contents(1, SMALL)[10..20]);
    assert_eq!(
        fetched(&remote, "large", LARGE).unwrap(),
        contents(2, LARGE)
    );
    assert_eq!(remote.stats().retries, 0);
}

#[test]
fn missing_object_or_invalid_range_is_an_error() {
    let server = server(Script::default());
    let remote = alone(&quick(&server));
    let small = SMALL as u64;
    for (result, id) in [
        (remote.read("none", 100), "not-found"),
        (remote.read("small", 100), "limit-file-bytes"),
        (remote.read("../small", 100), "path-traversal"),
        (remote.read("", 100), "path-empty"),
        (
            remote.read_range("small", Some(small), 0..small + 1),
            "body-range",
        ),
        (
            remote.read_range("small", None, small - 1..small + 1),
            "body-range",
        ),
        (
            remote.read_range("small", None, small..small + 1),
            "body-length",
        ),
        (
            remote.read_range("small", Some(small + 1), 0..10),
            "body-length",
        ),
        (fetched(&remote, "small", SMALL - 1), "body-length"),
        (fetched(&remote, "small", SMALL + 1), "body-length"),
        (fetched(&remote, "large", LARGE - 1), "body-length"),
        (fetched(&remote, "large", LARGE + 1), "body-length"),
        (fetched(&remote, "none", LARGE), "not-found"),
    ] {
        assert_eq!(result.unwrap_err().id(), id);
    }
    let error = remote.read("none", 1).unwrap_err();
    assert!(error.is_not_found());
    assert_eq!(error.object().unwrap(), "s3://bucket/data/none");
    assert_eq!(error.to_string(), "no such object (404, NoSuchKey)");
}

#[test]
fn object_changed_between_reads_is_an_error() {
    let server = server(Script::default());
    let remote = alone(&quick(&server));
    remote.read("small", SMALL as u64).unwrap();
    server.objects().put("data/small", contents(9, SMALL));
    for result in [
        remote.read("small", SMALL as u64),
        remote.read_range("small", None, 0..10),
        fetched(&remote, "small", SMALL),
    ] {
        let error = result.unwrap_err();
        assert_eq!(
            (error.id(), error.kind()),
            ("remote-changed", ErrorKind::Corrupt)
        );
    }
    // Another remote has not seen the first version.
    assert!(alone(&quick(&server)).read("small", SMALL as u64).is_ok());
}

#[test]
fn interrupted_body_resumes_if_the_etag_is_unchanged() {
    for (second, expected) in [
        (None, Ok(())),
        (Some(Fault::OtherEtag), Err("remote-changed")),
    ] {
        let script = Script::by(move |asked| match asked.nth {
            0 => Some(Fault::CloseAfter(15_000)),
            1 => second.clone(),
            _ => None,
        });
        let server = server(script);
        let remote = alone(&quick(&server));
        let result = fetched(&remote, "small", SMALL);
        assert_eq!(result.map(|_| ()).map_err(|error| error.id()), expected);
        // Only the rest is fetched again. How much of the first answer arrived depends on the sockets.
        assert!(server.counts().bytes < 2 * SMALL as u64);
        assert_eq!(server.counts().requests, 2);
    }
}

#[test]
fn redirects_are_not_followed() {
    let target = server(Script::default());
    let to = format!("{}/bucket/data/small", target.endpoint());
    let server = server(Script::always(Fault::Redirect(to)));
    let error = alone(&quick(&server))
        .read("small", SMALL as u64)
        .unwrap_err();
    assert_eq!(
        (error.id(), error.kind()),
        ("url-redirect", ErrorKind::InvalidInput)
    );
    assert_eq!(
        error.to_string(),
        "the store answered with a redirect, which is not followed, to 127.0.0.1"
    );
    assert_eq!((target.counts().requests, server.counts().requests), (0, 1));
}

fn busy(retry_after: u64) -> Fault {
    Fault::Status {
        status: 503,
        code: "SlowDown",
        retry_after: Some(retry_after),
    }
}

#[test]
fn retry_after_is_respected() {
    let busy = busy(1);
    let server = server(Script::first(1, busy));
    let options = RemoteOptions {
        retry: RetryOptions {
            retry_after_most: Duration::from_millis(150),
            ..quick(&server).retry
        },
        ..quick(&server)
    };
    let remote = alone(&options);
    let began = Instant::now();
    remote.read("small", SMALL as u64).unwrap();
    assert!(began.elapsed() >= Duration::from_millis(150));
    // One throttled request is not a store in trouble.
    assert_eq!(remote.stats().connections, 64);
    assert_eq!(remote.stats().retries, 1);
}

#[test]
fn retry_after_of_zero_is_an_immediate_retry_three_times() {
    let options = |server: &S3Server| RemoteOptions {
        retry: RetryOptions {
            attempts: 8,
            back_off: LONG,
            back_off_most: LONG,
            ..quick(server).retry
        },
        request: RequestOptions {
            total_timeout: LONG / 20,
            ..quick(server).request
        },
        ..quick(server)
    };
    let server = server(Script::first(3, busy(0)));
    let began = Instant::now();
    alone(&options(&server))
        .read("small", SMALL as u64)
        .unwrap();
    assert_eq!(server.counts().requests, 4);
    assert!(began.elapsed() < LONG / 20, "{:?}", began.elapsed());
    // From the fourth time on, the back-off applies. Here it is nearly always beyond the deadline.
    server.set(Settings {
        faults: Script::always(busy(0)),
        ..Settings::default()
    });
    let error = alone(&options(&server)).read("small", 1).unwrap_err();
    let StorageError::Throttled { attempts, .. } = fault_of(error) else {
        panic!();
    };
    assert!((4..8).contains(&attempts), "{attempts}");
}

/// Requests that are throttled at random are retried at full concurrency.
#[test]
fn rare_throttling_keeps_concurrency() {
    const OBJECTS: u64 = 600;
    let objects = (0..OBJECTS).map(|at| (format!("data/{at}"), contents(at, 100)));
    let settings = Settings {
        faults: Script::random(7, 3, vec![Fault::status(503), Fault::status(429)]),
        latency: Duration::from_millis(2),
        ..Settings::default()
    };
    let server = S3Server::start(Objects::memory("bucket", objects), settings).unwrap();
    let remote = alone(&RemoteOptions {
        retry: RemoteOptions::default().retry,
        ..quick(&server)
    });
    let wanted: Vec<_> = (0..OBJECTS).map(|at| (at.to_string(), 100)).collect();
    for (at, read) in (0..).zip(remote.read_many(&wanted)) {
        assert!(read.unwrap() == contents(at, 100), "{at}");
    }
    let (stats, faults) = (remote.stats(), server.counts().faults);
    assert!((10..30).contains(&faults), "{faults}");
    assert_eq!((stats.throttled, stats.retries), (faults, faults));
    assert_eq!((stats.requests, stats.connections), (OBJECTS + faults, 64));
}

/// Options for a store that is away for longer than the maximum number of requests lasts.
fn patient(server: &S3Server, total_timeout: Duration) -> RemoteOptions {
    RemoteOptions {
        retry: RetryOptions {
            outlasts_outages: true,
            ..quick(server).retry
        },
        request: RequestOptions {
            total_timeout,
            ..quick(server).request
        },
        ..quick(server)
    }
}

#[test]
fn outage_is_outlasted_and_errors_are_not() {
    for fault in [
        Fault::status(429),
        Fault::status(502),
        Fault::status(503),
        Fault::status(504),
        Fault::CloseBefore,
    ] {
        let server = server(Script::first(20, fault.clone()));
        let remote = alone(&patient(&server, LONG));
        assert!(remote.read("small", SMALL as u64).is_ok(), "{fault:?}");
        // A request over an idle connection that the server has just closed is sent a second time.
        let requests = server.counts().requests;
        assert!((21..=22).contains(&requests), "{fault:?}: {requests}");
    }
    for fault in [Fault::status(500), Fault::CloseAfter(0)] {
        let server = server(Script::always(fault.clone()));
        let remote = alone(&patient(&server, LONG));
        let error = remote.read("small", SMALL as u64).unwrap_err();
        assert_eq!(error.id(), "storage-gave-up", "{fault:?}");
        assert_eq!(server.counts().requests, 4, "{fault:?}");
    }
}

#[test]
fn refused_connection_is_retried_until_the_deadline() {
    let server = server(Script::default());
    let total = Duration::from_millis(800);
    let options = patient(&server, total);
    drop(server);
    let began = Instant::now();
    let error = alone(&options).read("small", 1).unwrap_err();
    let took = began.elapsed();
    let StorageError::GaveUp { attempts, .. } = fault_of(error) else {
        panic!();
    };
    // Waits have at most 10 ms each, and one that would end after the deadline is not begun.
    assert!(attempts > 20, "{attempts}");
    assert!(took > total - Duration::from_millis(100), "{took:?}");
}

#[test]
fn object_gets_all_attempts_after_budget_is_exhausted() {
    let server = server(Script::always(Fault::status(500)));
    let options = RemoteOptions {
        retry: RetryOptions {
            turn: Duration::from_millis(20),
            budget_percent: 0,
            budget_floor: 2,
            ..quick(&server).retry
        },
        ..quick(&server)
    };
    let remote = alone(&options);
    let error = remote.read("small", 1).unwrap_err();
    assert_eq!(
        (error.id(), error.kind()),
        ("storage-gave-up", ErrorKind::Storage)
    );
    assert_eq!(server.counts().requests, 4);
    let began = Instant::now();
    assert_eq!(remote.read("small", 1).unwrap_err().id(), "storage-gave-up");
    assert_eq!(server.counts().requests, 8);
    assert!(began.elapsed() >= 3 * options.retry.turn);
}

#[test]
fn retry_queued_beyond_total_timeout_fails_immediately() {
    let server = server(Script::always(Fault::status(503)));
    let options = RemoteOptions {
        retry: RetryOptions {
            turn: LONG,
            back_off_most: Duration::from_millis(1),
            budget_percent: 0,
            budget_floor: 0,
            ..quick(&server).retry
        },
        request: RequestOptions {
            total_timeout: Duration::from_secs(5),
            ..quick(&server).request
        },
        ..quick(&server)
    };
    let began = Instant::now();
    let error = alone(&options).read("small", 1).unwrap_err();
    assert_eq!(error.id(), "throttled");
    assert_eq!(server.counts().requests, 1);
    assert!(began.elapsed() < options.request.total_timeout);
}

#[test]
fn initial_burst_of_failures_is_retried() {
    const OBJECTS: u64 = 40;
    for fault in [Fault::status(503), Fault::CloseAfter(7_777)] {
        let objects = (0..OBJECTS).map(|at| (format!("data/{at}"), contents(at, SMALL)));
        let settings = Settings {
            faults: Script::first(2, fault),
            ..Settings::default()
        };
        let server = S3Server::start(Objects::memory("bucket", objects), settings).unwrap();
        // The budget of a process, with turns of a tenth of their length.
        let budget = RemoteOptions::default();
        let options = RemoteOptions {
            retry: RetryOptions {
                attempts: budget.retry.attempts,
                back_off: budget.retry.back_off / 10,
                back_off_most: budget.retry.back_off_most / 10,
                turn: budget.retry.turn / 10,
                budget_percent: budget.retry.budget_percent,
                budget_floor: budget.retry.budget_floor,
                ..quick(&server).retry
            },
            request: RequestOptions {
                connections: budget.request.connections,
                ..quick(&server).request
            },
            ..quick(&server)
        };
        let remote = alone(&options);
        let (sender, receiver) = mpsc::channel();
        let _fetching: Vec<_> = (0..OBJECTS)
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
        assert_eq!(server.counts().faults, 2 * OBJECTS);
    }
}

#[test]
fn total_timeout_ends_a_stalled_request() {
    let server = server(Script::always(Fault::StallBefore));
    let options = RemoteOptions {
        request: RequestOptions {
            idle_timeout: LONG,
            total_timeout: Duration::from_millis(200),
            ..quick(&server).request
        },
        ..quick(&server)
    };
    let began = Instant::now();
    let error = alone(&options).read("small", 1).unwrap_err();
    assert_eq!((error.id(), error.kind()), ("stalled", ErrorKind::Storage));
    assert!(began.elapsed() < options.request.total_timeout + Duration::from_secs(2));
    assert_eq!(server.counts().requests, 1);
}

#[test]
fn refused_connection_fails_after_all_attempts() {
    let server = server(Script::default());
    let options = quick(&server);
    drop(server);
    let error = alone(&options).read("small", 1).unwrap_err();
    let StorageError::GaveUp { last, attempts, .. } = fault_of(error) else {
        panic!();
    };
    assert_eq!(attempts, 4);
    assert!(last.contains("refused"), "{last}");
}

#[test]
fn https_does_not_fall_back_to_http() {
    let server = server(Script::default());
    let mut options = quick(&server);
    options.settings.insert(
        "AWS_ENDPOINT_URL".to_owned(),
        format!("https://{}", server.address()),
    );
    let error = alone(&options).read("small", 1).unwrap_err();
    assert_eq!(error.id(), "storage-gave-up", "{error:?}");
    assert_eq!(server.counts().requests, 0);
}

#[test]
fn dropped_fetch_is_cancelled() {
    let server = server(Script::always(Fault::StallAfter(10)));
    let options = RemoteOptions {
        request: RequestOptions {
            idle_timeout: LONG,
            slow_window: LONG,
            total_timeout: LONG,
            ..quick(&server).request
        },
        ..quick(&server)
    };
    let remote = alone(&options);
    let (sender, receiver) = mpsc::channel::<()>();
    let fetching = remote.fetch("small", SMALL as u64, move |_| sender.send(()).unwrap());
    until(|| server.open_connections() == 1);
    drop(fetching);
    // The callback is dropped without being called, and the connection is closed.
    assert_eq!(
        receiver.recv_timeout(LONG),
        Err(mpsc::RecvTimeoutError::Disconnected)
    );
    until(|| server.open_connections() == 0);
}

#[test]
fn engine_thread_ends_with_the_last_remote() {
    let server = server(Script::default());
    let remote = alone(&quick(&server));
    let clone = remote.clone();
    remote.read("small", SMALL as u64).unwrap();
    // A task that never ends is dropped when the thread drops its runtime.
    let token = Arc::new(());
    let of_task = Arc::clone(&token);
    let live = remote.live().unwrap();
    live.engine.handle.spawn(async move {
        let _of_task = of_task;
        std::future::pending::<()>().await;
    });
    let engine = Arc::downgrade(&live.engine);
    drop((live, remote));
    assert!(engine.upgrade().is_some());
    assert_eq!(Arc::strong_count(&token), 2);
    drop(clone);
    until(|| engine.strong_count() == 0 && Arc::strong_count(&token) == 1);
    until(|| server.open_connections() == 0);
}

#[test]
fn remotes_of_a_process_share_connections() {
    let server = server(Script::default());
    let options = quick(&server);
    let (one, two) = (
        Remote::open(&location(), &options).unwrap(),
        Remote::open(&location(), &options).unwrap(),
    );
    one.read("small", SMALL as u64).unwrap();
    two.read("small", SMALL as u64).unwrap();
    assert_eq!(server.counts().requests, 2);
    let store = |remote: &Remote| Arc::downgrade(&remote.live().unwrap().store);
    assert!(Weak::ptr_eq(&store(&one), &store(&two)));
    let engine = |remote: &Remote| Arc::downgrade(&remote.live().unwrap().engine);
    assert!(Weak::ptr_eq(&engine(&one), &engine(&two)));
}

#[test]
fn blocking_read_in_a_callback_is_an_error() {
    let server = server(Script::default());
    let remote = alone(&quick(&server));
    let (sender, receiver) = mpsc::channel();
    let inner = remote.clone();
    let _fetching = remote.fetch("small", SMALL as u64, move |_| {
        sender.send(inner.read("small", SMALL as u64)).unwrap();
    });
    let error = receiver.recv_timeout(LONG).unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Bug);
}

#[test]
fn secrets_stay_out_of_errors_and_debug_output() {
    let server = server(Script::always(Fault::status(403)));
    let mut options = quick(&server);
    for name in [
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
    ] {
        options.settings.insert(name.to_owned(), "hush".to_owned());
    }
    let remote = alone(&options);
    let error = remote.read("small", 1).unwrap_err();
    assert_eq!(
        (error.id(), error.kind()),
        ("credentials", ErrorKind::Permission)
    );
    assert_eq!(
        error.to_string(),
        "the store denied access (403, AccessDenied)"
    );
    let all = format!("{error:?} {error} {remote:?} {options:?}");
    assert!(!all.contains("hush"), "{all}");
}

#[test]
fn skip_signature_disables_request_signing() {
    let server = server(Script::default());
    let mut options = quick(&server);
    options
        .settings
        .insert("AWS_SKIP_SIGNATURE".to_owned(), "true".to_owned());
    alone(&options).read("small", SMALL as u64).unwrap();
    assert_eq!((server.counts().requests, server.counts().signed), (1, 0));
}

/// Settings of a container whose credentials are an object of the server.
fn container(server: &S3Server, folder: &std::path::Path) -> RemoteOptions {
    let token = folder.join("token");
    std::fs::write(&token, "token").unwrap();
    let mut options = quick(server);
    options.settings.remove("AWS_ACCESS_KEY_ID");
    options.settings.remove("AWS_SECRET_ACCESS_KEY");
    for (name, value) in [
        (
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            format!("{}/bucket/credentials", server.endpoint()),
        ),
        (
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
            token.display().to_string(),
        ),
    ] {
        options.settings.insert(name.to_owned(), value);
    }
    let credentials = br#"{"AccessKeyId":"k","SecretAccessKey":"s","Token":"t","Expiration":"2099-01-01T00:00:00Z"}"#;
    server.objects().put("credentials", credentials.to_vec());
    options
}

#[test]
fn credentials_are_requested_once_and_again_after_expiry() {
    let expired = Fault::Status {
        status: 400,
        code: "ExpiredToken",
        retry_after: None,
    };
    let script = Script::by(move |asked| {
        (asked.key == "data/large" && asked.nth == 0).then(|| expired.clone())
    });
    let server = server(script);
    let folder = tempfile::tempdir().unwrap();
    let remote = alone(&container(&server, folder.path()));
    let wanted: Vec<_> = (0..20).map(|at| ("small".to_owned(), at..at + 1)).collect();
    assert!(remote.read_ranges(&wanted).iter().all(Result::is_ok));
    assert_eq!(server.counts().by_key["credentials"], 1);
    remote.read("large", LARGE as u64).unwrap();
    assert_eq!(server.counts().by_key["credentials"], 2);
    assert_eq!(server.counts().by_key["data/large"], 2);

    // Credentials from the settings cannot be renewed.
    server.forget_counts();
    let error = alone(&quick(&server))
        .read("large", LARGE as u64)
        .unwrap_err();
    assert_eq!(error.id(), "credentials");
}

#[test]
fn missing_credentials_are_an_error_for_all_pending_reads() {
    let server = server(Script::by(|asked| {
        (asked.key == "credentials").then(|| Fault::status(404))
    }));
    let folder = tempfile::tempdir().unwrap();
    let remote = alone(&container(&server, folder.path()));
    let wanted: Vec<_> = (0..20).map(|at| ("small".to_owned(), at..at + 1)).collect();
    for result in remote.read_ranges(&wanted) {
        let error = result.unwrap_err();
        assert_eq!(
            (error.id(), error.kind()),
            ("credentials", ErrorKind::Permission)
        );
    }
    assert_eq!(server.counts().requests, 1);
    let mut options = quick(&server);
    options
        .settings
        .retain(|name, _| name == "AWS_ENDPOINT_URL");
    options
        .settings
        .insert("AWS_EC2_METADATA_DISABLED".to_owned(), "true".to_owned());
    assert_eq!(
        alone(&options).read("small", 1).unwrap_err().id(),
        "credentials"
    );
}

/// The use of a `Remote` in a forked child cannot be tested here, because `fork` is unsafe code. Its basis is tested in
/// `process.rs`, and the Python tests fork.
/// tested in `process.rs`, and the Python tests fork.
#[test]
fn fork_is_tested_from_python() {
    println!(
        "SKIP fork() is unsafe code, which this crate forbids; see the tests of the Python package"
    );
}
