//! Every fault with every operation on every kind of store, and a tenth of all requests failing.

use crate::{RequestOptions, RetryOptions, UploadOptions};
use shardmill_testing::s3::{Action, Flavor};

use super::writes::file;
use super::*;
use crate::error::StorageError;

fn serve(flavor: Flavor, faults: Script) -> S3Server {
    let bucket = match flavor {
        Flavor::Files => "main/default/volume",
        _ => "bucket",
    };
    let settings = Settings {
        flavor,
        faults,
        page: Some(10),
        ..Settings::default()
    };
    let key = match flavor {
        Flavor::Web => "small",
        _ => "data/small",
    };
    let objects = [(key.to_owned(), contents(1, SMALL))];
    S3Server::start(Objects::memory(bucket, objects), settings).unwrap()
}

fn open(server: &S3Server, options: &RemoteOptions) -> Remote {
    let path = match server.url().starts_with("http") {
        true => server.url(),
        false => format!("{}/data", server.url()),
    };
    Remote::new(&remote_location(&path), options, true).unwrap()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Get,
    Range,
    Head,
    List,
    Put,
    New,
    Parts,
    Remove,
}

const OPERATIONS: [Operation; 8] = [
    Operation::Get,
    Operation::Range,
    Operation::Head,
    Operation::List,
    Operation::Put,
    Operation::New,
    Operation::Parts,
    Operation::Remove,
];

impl Operation {
    fn run(self, remote: &Remote) -> Result<(), StorageError> {
        let small = contents(1, SMALL);
        match self {
            Self::Get => remote
                .read("small", 1 << 20)
                .map(|read| assert!(read == small)),
            Self::Range => remote
                .read_range("small", None, 10..9000)
                .map(|read| assert!(read == small[10..9000])),
            Self::Head => remote
                .size("small", &mut cancel)
                .map(|size| assert_eq!(size, Some(SMALL as u64))),
            Self::List => remote
                .list("", 1000, &mut cancel)
                .map(|all| assert_eq!(all.len(), 1)),
            Self::Put => remote.put("new", small, &mut cancel),
            Self::New => remote.put_new("new", small, &mut cancel).map(|_| ()),
            Self::Parts => remote.put_file("new", &file().1, &mut cancel),
            Self::Remove => remote.remove("small", &mut cancel),
        }
    }
}

/// A permanent fault is reported as a specific error before the deadline, for every store and operation.
#[test]
fn permanent_failure_is_a_specific_error_before_timeout() {
    let faults: [(Fault, &[&str]); 8] = [
        (Fault::status(500), &["storage-gave-up"]),
        (Fault::status(503), &["throttled"]),
        (Fault::status(403), &["credentials"]),
        (Fault::CloseBefore, &["storage-gave-up"]),
        (Fault::StallBefore, &["stalled"]),
        (
            Fault::Redirect("http://10.0.0.1/".to_owned()),
            &["url-redirect"],
        ),
        // If nothing is known of an object, a page of a proxy cannot be detected.
        (
            Fault::Page,
            &["storage-answer", "body-range", "body-length", ""],
        ),
        (Fault::status(429), &["throttled"]),
    ];
    let flavors = Flavor::WRITABLE.into_iter().chain([Flavor::Web]);
    let cases: Vec<_> = flavors
        .flat_map(|flavor| OPERATIONS.map(|operation| (flavor, operation)))
        .filter(|(flavor, operation)| {
            let reads = [Operation::Get, Operation::Range, Operation::Head];
            *flavor != Flavor::Web || reads.contains(operation)
        })
        .collect();
    for (fault, ids) in &faults {
        std::thread::scope(|scope| {
            for (flavor, operation) in &cases {
                scope.spawn(move || {
                    let server = serve(*flavor, Script::always(fault.clone()));
                    let options = RemoteOptions {
                        request: RequestOptions {
                            total_timeout: Duration::from_secs(3),
                            min_bytes_per_second: 1 << 20,
                            ..quick(&server).request
                        },
                        upload: UploadOptions {
                            split_above: 64 << 10,
                            part_bytes: 32 << 10,
                            ..quick(&server).upload
                        },
                        ..quick(&server)
                    };
                    let began = Instant::now();
                    let result = operation.run_quietly(&open(&server, &options));
                    let took = began.elapsed();
                    let shown = format!("{flavor:?} {operation:?} {fault:?}");
                    assert!(ids.contains(&result), "{shown}: {result}");
                    // The abort of an upload has its own timeout of ten seconds.
                    let max = options.request.total_timeout + Duration::from_secs(2);
                    assert!(took < max, "{shown}: {took:?}");
                });
            }
        });
    }
}

impl Operation {
    /// Returns the id of the error; an empty text if a page of a proxy was taken for the object, which hashes would
    /// detect.
    fn run_quietly(self, remote: &Remote) -> &'static str {
        match self {
            Self::Get => remote.read("small", 1 << 20).map(|_| ()),
            Self::Head => remote.size("small", &mut cancel).map(|_| ()),
            _ => self.run(remote),
        }
        .map_or_else(|error| error.id(), |()| "")
    }
}

/// The operations of the test below. All results are compared.
fn work(remote: &Remote, flavor: Flavor) {
    const OBJECTS: u64 = 60;
    std::thread::scope(|scope| {
        for worker in 0..4 {
            scope.spawn(move || {
                for at in (worker..OBJECTS).step_by(4) {
                    let (name, sent) = (format!("many/{at:02}"), contents(at, SMALL));
                    if at % 2 == 0 {
                        remote.put(&name, sent.clone(), &mut cancel).unwrap();
                    } else {
                        remote.put_new(&name, sent.clone(), &mut cancel).unwrap();
                    }
                    assert!(remote.read(&name, 1 << 20).unwrap() == sent, "{name}");
                    let part = remote.read_range(&name, Some(SMALL as u64), 5..15_000);
                    assert!(part.unwrap() == sent[5..15_000], "{name}");
                    let size = remote.size(&name, &mut cancel).unwrap();
                    assert_eq!(size, Some(SMALL as u64));
                }
            });
        }
    });
    for _ in 0..4 {
        let listed = remote.list("many/", 1000, &mut cancel).unwrap();
        let expected: Vec<_> = (0..OBJECTS).map(|at| format!("many/{at:02}")).collect();
        let names: Vec<_> = listed.into_iter().map(|object| object.name).collect();
        assert_eq!(names, expected, "{flavor:?}");
    }
    let (_root, file) = file();
    for _ in 0..4 {
        remote.put_file("large", &file, &mut cancel).unwrap();
        let read = remote.read("large", 1 << 20).unwrap();
        assert!(read == contents(7, LARGE));
    }
    for at in 0..10 {
        let name = format!("many/{at:02}");
        remote.remove(&name, &mut cancel).unwrap();
        assert_eq!(remote.size(&name, &mut cancel).unwrap(), None);
    }
}

/// With a tenth of all requests failing, results are exact on every kind of store. There are at most 1.3 times the
/// requests, in 3 times the time.
#[test]
fn ten_percent_failures_cost_few_requests_on_every_store() {
    let seed = Draw::seed_from("SHARDMILL_SEED");
    println!("SHARDMILL_SEED={seed}");
    for flavor in Flavor::WRITABLE {
        let mut faults = vec![
            Fault::status(500),
            Fault::status(503),
            Fault::status(429),
            Fault::CloseBefore,
            Fault::CloseAfter(0),
            Fault::CloseAfter(7_777),
            Fault::CloseWithin(5_000),
            Fault::AnswerLost,
        ];
        // If a checksum is sent, a corrupted byte is detected.
        if flavor != Flavor::Files {
            faults.extend([77, 7_777].map(Fault::FlipWithin));
        }
        let run = |script: Script| {
            let server = serve(flavor, script.clone());
            // The latency of a store in the same region.
            server.set(Settings {
                faults: script,
                page: Some(10),
                latency: Duration::from_millis(10),
                ..Settings::default()
            });
            let remote = open(
                &server,
                &RemoteOptions {
                    retry: RetryOptions {
                        attempts: 8,
                        ..quick(&server).retry
                    },
                    request: RequestOptions {
                        idle_timeout: Duration::from_millis(500),
                        ..quick(&server).request
                    },
                    upload: UploadOptions {
                        split_above: 64 << 10,
                        part_bytes: 32 << 10,
                        ..quick(&server).upload
                    },
                    ..quick(&server)
                },
            );
            let began = Instant::now();
            work(&remote, flavor);
            (
                server.counts().requests,
                server.counts().faults,
                began.elapsed(),
            )
        };
        let (plain, _, quick) = run(Script::default());
        let (requests, hits, slow) = run(Script::random(seed, 10, faults));
        println!(
            "{flavor:?}: {plain} requests in {quick:.2?}; {requests} with {hits} faults in {slow:.2?}"
        );
        assert!(
            hits > 0 && requests * 10 <= plain * 13,
            "{flavor:?} {plain} {requests}"
        );
        assert!(slow <= quick * 3, "{flavor:?} {quick:?} {slow:?}");
    }
}

#[test]
fn secrets_stay_out_of_errors_and_debug_on_every_store() {
    for flavor in Flavor::WRITABLE {
        let server = serve(flavor, Script::always(Fault::status(403)));
        let mut options = quick(&server);
        for (name, value) in [
            ("GOOGLE_OAUTH_ACCESS_TOKEN", "hush"),
            ("GCS_KEY", "hush"),
            ("GCS_SECRET", "hush"),
            ("AZURE_STORAGE_SAS_TOKEN", "sig=hush"),
            ("DATABRICKS_TOKEN", "hush"),
            ("AWS_SECRET_ACCESS_KEY", "hush"),
        ] {
            options.settings.insert(name.to_owned(), value.to_owned());
        }
        // A signature that is part of the URL.
        options.settings.remove("AZURE_STORAGE_ACCOUNT_KEY");
        let remote = open(&server, &options);
        let error = remote.read("small", 1).unwrap_err();
        assert_eq!(error.id(), "credentials", "{flavor:?}");
        server.set(Settings {
            faults: Script::always(Fault::CloseBefore),
            ..Settings::default()
        });
        let other = remote.put("new", Vec::new(), &mut cancel).unwrap_err();
        let all = format!("{error:?} {error} {other:?} {other} {remote:?} {options:?}");
        assert!(!all.contains("hush"), "{all}");
    }
}

/// A session of Google continues after a fault, and begins again if the store ends it or finds another checksum.
#[test]
fn google_session_continues_or_begins_again() {
    let sent = contents(9, 900_000);
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("file"), &sent).unwrap();
    let file = crate::FileHandle::open(&root.path().join("file")).unwrap();
    let run = |action, count, fault: Fault| {
        let server = serve(Flavor::Google, Script::on(action, count, fault));
        let options = RemoteOptions {
            upload: UploadOptions {
                split_above: 64 << 10,
                part_bytes: 32 << 10,
                ..quick(&server).upload
            },
            ..quick(&server)
        };
        let put = open(&server, &options).put_file("new", &file, &mut cancel);
        assert_eq!(server.open_uploads(), 0, "{put:?}");
        let found = server.objects().get("data/new").unwrap();
        (put, found, server.counts().by_action)
    };
    for (action, fault, sessions, parts) in [
        (Action::Abort, Fault::AnswerLost, 1, 4),
        (Action::Part, Fault::AnswerLost, 1, 5),
        (Action::Part, Fault::CloseWithin(7_777), 1, 5),
        (Action::Part, Fault::status(503), 1, 5),
        (Action::Part, Fault::FlipWithin(7_777), 2, 8),
        (Action::Part, Fault::status(404), 2, 5),
        (Action::Complete, Fault::AnswerLost, 1, 4),
        // The object is there, which its checksum shows.
        (Action::Complete, Fault::status(404), 1, 4),
    ] {
        let shown = format!("{action:?} {fault:?}");
        let (put, found, counts) = run(action, Some(1), fault);
        put.unwrap();
        assert!(found.as_deref() == Some(&sent[..]), "{shown}");
        let counted = (counts[&Action::Create], counts[&Action::Part]);
        assert_eq!(counted, (sessions, parts), "{shown}");
    }
    let (put, found, counts) = run(Action::Part, None, Fault::status(404));
    let error = put.unwrap_err();
    assert_eq!(error.id(), "storage-gave-up");
    let reason = "the store ended the upload: status 404, notFound";
    assert!(error.to_string().contains(reason), "{error}");
    assert_eq!((found, counts[&Action::Create]), (None, 3));
}
