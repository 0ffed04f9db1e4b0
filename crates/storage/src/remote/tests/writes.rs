//! Every fault with every kind of write. Afterwards the object is always the old one or the new one.

use crate::{RequestOptions, RetryOptions, UploadOptions};
use shardmill_testing::s3::Action;

use super::*;
use crate::error::StorageError;
use crate::{Dir, FileHandle};

const OLD: &[u8] = b"what was there";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Write {
    Put,
    New,
    Parts,
}

const WRITES: [Write; 3] = [Write::Put, Write::New, Write::Parts];

/// A file that is uploaded in seven parts.
pub(super) fn file() -> (tempfile::TempDir, FileHandle) {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("file");
    std::fs::write(&path, contents(7, LARGE)).unwrap();
    let file = FileHandle::open(&path).unwrap();
    (root, file)
}

fn writing(server: &S3Server) -> RemoteOptions {
    RemoteOptions {
        upload: UploadOptions {
            split_above: 64 << 10,
            part_bytes: 32 << 10,
            parts: 3,
        },
        request: RequestOptions {
            // Shortens the wait for data in the buffers of this machine.
            min_bytes_per_second: 1 << 20,
            total_timeout: Duration::from_secs(5),
            ..quick(server).request
        },
        ..quick(server)
    }
}

impl Write {
    fn run(self, remote: &Remote) -> Result<(), StorageError> {
        match self {
            Self::Put => remote.put("new", contents(7, SMALL), &mut cancel),
            Self::New => {
                let put = remote.put_new("new", contents(7, SMALL), &mut cancel);
                put.map(|_| ())
            }
            Self::Parts => remote.put_file("new", &file().1, &mut cancel),
        }
    }

    fn right(self) -> Vec<u8> {
        match self {
            Self::Put | Self::New => contents(7, SMALL),
            Self::Parts => contents(7, LARGE),
        }
    }
}

type Outcome = Result<(), &'static str>;

fn check(fault: &Fault, expected: impl Fn(Write) -> (Outcome, Outcome)) {
    std::thread::scope(|scope| {
        for write in WRITES {
            let (once, always) = expected(write);
            for (script, is_once, expected) in [
                (Script::first(1, fault.clone()), true, once),
                (Script::always(fault.clone()), false, always),
            ] {
                scope.spawn(move || check_one(fault, write, script, is_once, expected));
            }
            if write == Write::Parts {
                for action in [Action::Create, Action::Part, Action::Complete] {
                    let script = Script::on(action, Some(1), fault.clone());
                    scope.spawn(move || check_one(fault, write, script, true, once));
                    let script = Script::on(action, None, fault.clone());
                    scope.spawn(move || check_one(fault, write, script, true, always));
                }
            }
        }
    });
}

fn check_one(fault: &Fault, write: Write, script: Script, aborts: bool, expected: Outcome) {
    let server = server(script);
    if write != Write::New {
        server.objects().put("data/new", OLD.to_vec());
    }
    let options = writing(&server);
    let began = Instant::now();
    let result = write.run(&alone(&options));
    let took = began.elapsed();
    let shown = format!("{fault:?} {write:?} {result:?}");
    assert_eq!(result.map_err(|error| error.id()), expected, "{shown}");
    let found = server.objects().get("data/new").unwrap();
    let (old, right) = (
        found.as_deref().is_none_or(|found| found == OLD),
        found == Some(write.right()),
    );
    assert!(right || expected.is_err() && old, "{shown}");
    // If every request fails, parts cannot be discarded.
    assert!(!aborts || server.open_uploads() == 0, "{shown}");
    let max = options.request.total_timeout + Duration::from_secs(2);
    assert!(took < max, "{shown} {took:?}");
}

#[test]
fn objects_are_put_with_one_request_each() {
    let server = server(Script::default());
    let remote = alone(&writing(&server));
    for bytes in [0, 1, SMALL, 100_000] {
        let sent = contents(bytes as u64, bytes);
        remote.put("a b/c", sent.clone(), &mut cancel).unwrap();
        assert!(server.objects().get("data/a b/c").unwrap().unwrap() == sent);
        // The new object is read, not the old one.
        assert!(remote.read("a b/c", 1 << 20).unwrap() == sent);
    }
    let counts = server.counts();
    assert_eq!((counts.requests, counts.signed), (8, 8));
    assert_eq!(counts.by_action[&Action::Put], 4);
    assert_eq!(remote.stats().retries, 0);
    for name in ["", "../a", "a//b"] {
        let error = remote.put(name, Vec::new(), &mut cancel).unwrap_err();
        assert!(error.id().starts_with("path-"), "{name}");
    }
    assert_eq!(server.counts().requests, 8);
}

#[test]
fn long_files_are_uploaded_in_equal_parts() {
    let server = server(Script::default());
    let remote = alone(&writing(&server));
    let (root, file) = file();
    let mut steps = Vec::new();
    let put = remote.put_file("large", &file, &mut |bytes| {
        steps.push(bytes);
        true
    });
    put.unwrap();
    assert!(server.objects().get("data/large").unwrap().unwrap() == contents(7, LARGE));
    let counts = server.counts();
    assert_eq!(counts.by_action[&Action::Part], 7);
    assert_eq!(counts.requests, 9);
    assert!(
        counts.load.max_transfers <= 3,
        "{}",
        counts.load.max_transfers
    );
    assert!(steps.iter().all(|bytes| *bytes <= LARGE as u64));
    assert_eq!(steps.last(), Some(&(LARGE as u64)));
    assert_eq!(server.open_uploads(), 0);

    let path = root.path().join("short");
    std::fs::write(&path, b"short").unwrap();
    let file = FileHandle::open(&path).unwrap();
    server.forget_counts();
    remote.put_file("short", &file, &mut cancel).unwrap();
    assert_eq!(server.counts().requests, 1);
    std::fs::write(&path, b"longer now").unwrap();
    let error = remote.put_file("short", &file, &mut cancel).unwrap_err();
    assert_eq!(error.id(), "file-changed");
    assert_eq!(server.counts().requests, 1);
}

#[test]
fn file_changed_during_upload_is_not_stored() {
    let server = server(Script::default());
    let (root, file) = file();
    let mut changed = false;
    let error = alone(&writing(&server))
        .put_file("new", &file, &mut |_| {
            if !std::mem::replace(&mut changed, true) {
                let other = vec![0; LARGE + 1];
                std::fs::write(root.path().join("file"), other).unwrap();
            }
            true
        })
        .unwrap_err();
    assert_eq!(error.id(), "file-changed");
    assert_eq!(server.objects().get("data/new").unwrap(), None);
    assert_eq!(server.open_uploads(), 0);
}

#[test]
fn put_new_accepts_equal_and_rejects_different_object() {
    for settings in [
        Settings::default(),
        Settings {
            no_conditions: true,
            no_sums: true,
            ..Settings::default()
        },
    ] {
        let server = server(Script::default());
        server.set(settings);
        let remote = alone(&writing(&server));
        let put = |bytes: &[u8]| remote.put_new("new", bytes.to_vec(), &mut cancel);
        assert!(put(b"first").unwrap());
        assert!(!put(b"first").unwrap());
        for other in [&b"other"[..], b"", b"first and more"] {
            let error = put(other).unwrap_err();
            assert_eq!((error.id(), error.kind()), ("exists", ErrorKind::Conflict));
        }
        assert_eq!(server.objects().get("data/new").unwrap().unwrap(), b"first");
        // Without checksums parts can still be uploaded.
        remote.put_file("large", &file().1, &mut cancel).unwrap();
        assert!(server.objects().get("data/large").unwrap().unwrap() == contents(7, LARGE));
    }
}

#[test]
fn canned_acl_setting_is_sent_with_uploads() {
    let server = server(Script::default());
    let mut options = writing(&server);
    options
        .settings
        .insert("S3_CANNED_ACL".to_owned(), "bucket-owner-read".to_owned());
    let remote = alone(&options);
    remote.put("one", b"1".to_vec(), &mut cancel).unwrap();
    remote.put_file("many", &file().1, &mut cancel).unwrap();
    let acls = server.counts().acls;
    assert_eq!(acls["data/one"], "bucket-owner-read");
    assert_eq!(acls["data/many"], "bucket-owner-read");
}

#[test]
fn error_statuses_of_uploads_are_retried_or_reported() {
    for (status, once, always) in [
        (401, Err("credentials"), Err("credentials")),
        (403, Err("credentials"), Err("credentials")),
        (404, Err("not-found"), Err("not-found")),
        (400, Err("storage-refused"), Err("storage-refused")),
        (409, Ok(()), Err("storage-gave-up")),
        (429, Ok(()), Err("throttled")),
        (500, Ok(()), Err("storage-gave-up")),
        (503, Ok(()), Err("throttled")),
    ] {
        check(&Fault::status(status), |_| (once, always));
    }
}

#[test]
fn unknown_upload_id_is_an_error() {
    let lost = Fault::Status {
        status: 404,
        code: "NoSuchUpload",
        retry_after: None,
    };
    for (action, expected) in [
        (Action::Part, Err("not-found")),
        (Action::Complete, Err("storage-gave-up")),
    ] {
        let script = Script::on(action, Some(1), lost.clone());
        check_one(&lost, Write::Parts, script, true, expected);
    }
}

#[test]
fn closed_connections_during_uploads_are_retried() {
    for fault in [
        Fault::CloseBefore,
        Fault::CloseWithin(0),
        Fault::CloseWithin(9_000),
    ] {
        check(&fault, |_| (Ok(()), Err("storage-gave-up")));
    }
}

#[test]
fn uploads_are_retried_after_a_lost_response() {
    let fault = Fault::AnswerLost;
    for write in WRITES {
        for (script, expected) in [
            (Script::first(1, fault.clone()), Ok(())),
            (Script::always(fault.clone()), Err("storage-gave-up")),
            (Script::on(Action::Part, Some(1), fault.clone()), Ok(())),
            (Script::on(Action::Complete, Some(1), fault.clone()), Ok(())),
        ] {
            let server = server(script);
            let result = write.run(&alone(&writing(&server)));
            assert_eq!(result.map_err(|error| error.id()), expected, "{write:?}");
            // The object is complete, although the client cannot know it. For an unknown upload no parts are stored.
            let found = server.objects().get("data/new").unwrap();
            assert!(found == Some(write.right()) || write == Write::Parts && expected.is_err());
        }
    }
    // The second attempt finds the same bytes, which it verifies by reading the object.
    let server = server(Script::on(Action::Put, Some(1), Fault::AnswerLost));
    let remote = alone(&writing(&server));
    // If the first request of a connection ends without an answer, it is sent again at once.
    assert!(!remote.put_new("new", OLD.to_vec(), &mut cancel).unwrap());
    assert_eq!(server.counts().by_action[&Action::Put], 2);
}

#[test]
fn stalled_uploads_are_retried_then_time_out() {
    for fault in [
        Fault::StallBefore,
        Fault::StallWithin(0),
        Fault::StallWithin(9_000),
    ] {
        check(&fault, |_| (Ok(()), Err("stalled")));
    }
}

#[test]
fn corrupted_upload_is_not_stored() {
    for write in WRITES {
        for (script, expected) in [
            (Script::first(1, Fault::FlipWithin(5)), Ok(())),
            (Script::always(Fault::FlipWithin(5)), Err("storage-refused")),
            (
                Script::on(Action::Complete, None, Fault::FlipWithin(5)),
                if write == Write::Parts {
                    Err("storage-refused")
                } else {
                    Ok(())
                },
            ),
        ] {
            check_one(&Fault::FlipWithin(5), write, script, true, expected);
        }
    }
}

#[test]
fn invalid_upload_response_is_retried_or_an_error() {
    check(&Fault::Page, |_| (Ok(()), Err("storage-answer")));
    check(&Fault::ErrorInside("InternalError"), |_| {
        (Ok(()), Err("storage-gave-up"))
    });
    check(&Fault::ErrorInside("AccessDenied"), |_| {
        (Err("storage-refused"), Err("storage-refused"))
    });
    for write in WRITES {
        let server = server(Script::always(Fault::NoEtag));
        let result = write.run(&alone(&writing(&server)));
        let expected = match write {
            // The object is compared with the stored one.
            Write::New => Ok(()),
            _ => Err("storage-answer"),
        };
        assert_eq!(result.map_err(|error| error.id()), expected, "{write:?}");
        assert_eq!(server.open_uploads(), 0);
    }
}

#[test]
fn truncated_or_late_response_keeps_the_uploaded_object() {
    for fault in [
        Fault::CloseAfter(0),
        Fault::ContentLength(10),
        Fault::StallAfter(0),
    ] {
        std::thread::scope(|scope| {
            for write in WRITES {
                let fault = &fault;
                scope.spawn(move || {
                    let server = server(Script::first(1, fault.clone()));
                    write.run(&alone(&writing(&server))).unwrap();
                    let found = server.objects().get("data/new").unwrap().unwrap();
                    assert!(found == write.right(), "{fault:?} {write:?}");
                    assert!(server.open_uploads() <= 1);
                });
            }
        });
    }
}

#[test]
fn redirects_of_uploads_are_not_followed() {
    let target = server(Script::default());
    let to = format!("{}/bucket/data/new", target.endpoint());
    let server = server(Script::always(Fault::Redirect(to)));
    for write in WRITES {
        let error = write.run(&alone(&writing(&server))).unwrap_err();
        assert_eq!(error.id(), "url-redirect");
    }
    assert_eq!(target.counts().requests, 0);
}

#[test]
fn upload_timeout_scales_with_body_size() {
    let server = server(Script::default());
    server.set(Settings {
        latency: Duration::from_millis(700),
        ..Settings::default()
    });
    let options = RemoteOptions {
        request: RequestOptions {
            // Longer than the latency only together with the time for a megabyte.
            idle_timeout: Duration::from_millis(400),
            min_bytes_per_second: 1 << 20,
            ..writing(&server).request
        },
        ..writing(&server)
    };
    let remote = alone(&options);
    remote
        .put("new", contents(7, 1 << 20), &mut cancel)
        .unwrap();
    assert_eq!(remote.stats().retries, 0);
}

#[test]
fn cancelled_upload_stops() {
    let server = server(Script::always(Fault::StallBefore));
    let options = RemoteOptions {
        request: RequestOptions {
            idle_timeout: LONG,
            total_timeout: LONG,
            ..writing(&server).request
        },
        ..writing(&server)
    };
    let remote = alone(&options);
    let (_root, file) = file();
    let mut calls = 0;
    let began = Instant::now();
    let mut stop = |_: u64| {
        calls += 1;
        calls % 2 == 1
    };
    let results = [
        remote.put("new", OLD.to_vec(), &mut stop),
        remote.put_new("new", OLD.to_vec(), &mut stop).map(|_| ()),
        remote.put_file("new", &file, &mut stop),
        remote.size("new", &mut stop).map(|_| ()),
        remote.list("", 1, &mut stop).map(|_| ()),
    ];
    for result in results {
        let error = result.unwrap_err();
        assert_eq!(
            (error.id(), error.kind()),
            ("interrupted", ErrorKind::Interrupted)
        );
    }
    assert_eq!(calls, 10);
    assert!(began.elapsed() < LONG / 2);
    until(|| server.open_connections() == 0);

    // During the parts: those that were stored are discarded.
    server.set(Settings {
        faults: Script::on(Action::Complete, None, Fault::StallBefore),
        ..Settings::default()
    });
    let mut last = 0;
    let error = remote
        .put_file("new", &file, &mut |bytes| {
            last = bytes;
            bytes < LARGE as u64
        })
        .unwrap_err();
    assert_eq!(error.id(), "interrupted");
    assert_eq!(last, LARGE as u64);
    assert_eq!(server.open_uploads(), 0);
    assert_eq!(server.objects().get("data/new").unwrap(), None);
}

#[test]
fn blocking_put_in_a_callback_is_an_error() {
    let server = server(Script::default());
    let remote = alone(&writing(&server));
    let (sender, receiver) = mpsc::channel();
    let inner = remote.clone();
    let _fetching = remote.fetch("small", SMALL as u64, move |_| {
        let put = inner.put("new", Vec::new(), &mut cancel);
        sender.send(put).unwrap();
    });
    let error = receiver.recv_timeout(LONG).unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Bug);
}

#[test]
fn upload_errors_do_not_contain_secrets() {
    let server = server(Script::always(Fault::status(403)));
    let mut options = writing(&server);
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
        options.settings.insert(name.to_owned(), "hush".to_owned());
    }
    let remote = alone(&options);
    for write in WRITES {
        let error = write.run(&remote).unwrap_err();
        assert_eq!(error.object().unwrap(), "s3://bucket/data/new");
        let all = format!("{error:?} {error} {:?}", error.hint());
        assert!(!all.contains("hush"), "{all}");
    }
}

/// With a tenth of all requests failing, every object is right.
#[test]
fn ten_percent_failures_do_not_corrupt_uploads() {
    let seed = Draw::seed_from("SHARDMILL_SEED");
    println!("SHARDMILL_SEED={seed}");
    let faults = vec![
        Fault::status(500),
        Fault::status(503),
        Fault::status(409),
        Fault::CloseBefore,
        Fault::CloseWithin(7_777),
        Fault::FlipWithin(9),
        Fault::AnswerLost,
        Fault::Page,
        Fault::StallBefore,
    ];
    let server = server(Script::random(seed, 10, faults));
    let options = RemoteOptions {
        retry: RetryOptions {
            attempts: 8,
            ..writing(&server).retry
        },
        request: RequestOptions {
            total_timeout: LONG,
            ..writing(&server).request
        },
        ..writing(&server)
    };
    let remote = alone(&options);
    let (_root, file) = file();
    for at in 0..60_u64 {
        let name = at.to_string();
        let right = if at % 10 == 0 {
            remote.put_file(&name, &file, &mut cancel).unwrap();
            contents(7, LARGE)
        } else {
            let bytes = contents(at, SMALL);
            remote.put_new(&name, bytes.clone(), &mut cancel).unwrap();
            bytes
        };
        let found = server.objects().get(&format!("data/{name}")).unwrap();
        assert!(found == Some(right), "{at}");
    }
    assert!(server.counts().faults > 0);
}

#[test]
fn save_downloads_objects_to_files() {
    let server = server(Script::default());
    let remote = alone(&quick(&server));
    let root = tempfile::tempdir().unwrap();
    let dir = Dir::open(root.path()).unwrap();
    for (name, right) in [
        ("small", contents(1, SMALL)),
        ("large", contents(2, LARGE)),
        ("empty", Vec::new()),
    ] {
        let mut temp = dir.temp_file(None).unwrap();
        let mut last = 0;
        let saved = remote.save(name, &mut temp, &mut |bytes| {
            assert!(bytes >= last);
            last = bytes;
            true
        });
        assert_eq!(saved.unwrap(), right.len() as u64);
        temp.publish(name, crate::PublishMode::Replace).unwrap();
        assert!(std::fs::read(root.path().join(name)).unwrap() == right);
    }
    // Another version can be saved later.
    server.objects().put("data/small", b"other".to_vec());
    let mut temp = dir.temp_file(None).unwrap();
    assert_eq!(remote.save("small", &mut temp, &mut cancel).unwrap(), 5);
    let error = remote.save("none", &mut temp, &mut cancel).unwrap_err();
    assert!(error.is_not_found());
    let error = remote.save("large", &mut temp, &mut |_| false).unwrap_err();
    assert_eq!(error.id(), "interrupted");
}

#[test]
fn object_changed_during_download_is_an_error() {
    let server = server(Script::on(Action::Get, Some(1), Fault::OtherEtag));
    let root = tempfile::tempdir().unwrap();
    let dir = Dir::open(root.path()).unwrap();
    for name in ["small", "large"] {
        let mut temp = dir.temp_file(None).unwrap();
        let remote = alone(&quick(&server));
        let error = remote.save(name, &mut temp, &mut cancel).unwrap_err();
        assert_eq!(error.id(), "remote-changed");
    }
}
