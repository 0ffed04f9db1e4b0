//! A destination behaves the same, whether it is a directory or a prefix in a store.

use std::io::Write as _;
use std::time::{Duration, Instant};

use shardmill_core::{Diagnostic as _, ErrorKind};
use shardmill_testing::process::Running;
use shardmill_testing::s3::{Action, Asked, Fault, Flavor, Objects, S3Server, Script, Settings};

use crate::tests::options_for;
use crate::{
    Destination, DestinationEntry, DestinationLease, DestinationLog, Location, PublishMode,
    RemoteOptions, SINGLE_WRITER, StorageError,
};

fn server(settings: Settings) -> S3Server {
    S3Server::start(Objects::memory("bucket", []), settings).unwrap()
}

fn in_store(server: &S3Server) -> Destination {
    let location = Location::parse(&format!("{}/a/set", server.url())).unwrap();
    Destination::create(&location, &options_for(server), None).unwrap()
}

/// Runs a test in a directory and in stores of every kind.
fn everywhere(test: impl Fn(&Destination)) {
    let root = tempfile::tempdir().unwrap();
    let location = Location::Local(root.path().join("a/set"));
    test(&Destination::create(&location, &RemoteOptions::default(), None).unwrap());
    for flavor in Flavor::WRITABLE {
        let server = server(Settings {
            flavor,
            ..Settings::default()
        });
        test(&in_store(&server));
    }
}

fn published(
    destination: &Destination,
    name: &str,
    bytes: &[u8],
    mode: PublishMode,
) -> Result<(), StorageError> {
    let mut temp = destination.temp_file(None).unwrap();
    temp.write_all(bytes).unwrap();
    let file_version = destination.publish(temp, name, mode, &mut |_| true)?;
    assert_eq!(file_version.bytes, bytes.len() as u64);
    assert_eq!(
        destination.file_version(name, &mut |_| true).unwrap(),
        Some(file_version)
    );
    Ok(())
}

#[test]
fn files_are_published_inspected_and_removed() {
    everywhere(|destination| {
        let cancel = &mut |_| true;
        destination.make_folder("train").unwrap();
        published(destination, "train/one", b"first", PublishMode::Replace).unwrap();
        published(destination, "train/one", b"second", PublishMode::Replace).unwrap();
        published(destination, "two", b"", PublishMode::CreateNew).unwrap();
        let taken = published(destination, "two", b"other", PublishMode::CreateNew);
        assert_eq!(taken.unwrap_err().id(), "exists");
        destination
            .publish_bytes(None, "three", b"3", PublishMode::CreateNew, cancel)
            .unwrap();
        destination
            .publish_bytes(None, "three", b"3", PublishMode::CreateNew, cancel)
            .unwrap();
        let other = destination.publish_bytes(None, "three", b"4", PublishMode::CreateNew, cancel);
        assert_eq!(other.unwrap_err().id(), "exists");

        assert_eq!(
            destination.read("train/one", 100, cancel).unwrap().unwrap(),
            b"second"
        );
        assert_eq!(destination.read("train/none", 100, cancel).unwrap(), None);
        assert_eq!(
            destination.file_version("train/none", cancel).unwrap(),
            None
        );
        let entry = |name: &str, is_folder| DestinationEntry {
            name: name.to_owned(),
            is_folder,
        };
        assert_eq!(
            destination.entries("", cancel).unwrap(),
            [
                entry("three", false),
                entry("train", true),
                entry("two", false)
            ]
        );
        assert_eq!(
            destination.entries("train", cancel).unwrap(),
            [entry("one", false)]
        );
        assert_eq!(destination.entries("nowhere", cancel).unwrap(), []);

        for name in ["train/one", "two", "three", "three"] {
            destination.remove(name, cancel).unwrap();
        }
        destination.remove_folder("train").unwrap();
        destination.sync().unwrap();
        assert_eq!(destination.entries("", cancel).unwrap(), []);
    });
}

#[test]
fn long_file_is_uploaded_in_parts_and_round_trips() {
    let server = server(Settings::default());
    let destination = in_store(&server);
    let bytes: Vec<u8> = (0..20_000_000_u32).map(|at| (at % 251) as u8).collect();
    published(&destination, "long", &bytes, PublishMode::Replace).unwrap();
    assert!(server.counts().by_action[&Action::Part] >= 3);
    assert!(server.objects().get("a/set/long").unwrap().unwrap() == bytes);
}

#[test]
fn object_of_wrong_size_after_upload_is_an_error() {
    let faults = Script::on(Action::Head, None, Fault::ContentLength(1));
    let server = server(Settings {
        faults,
        ..Settings::default()
    });
    let destination = in_store(&server);
    let mut temp = destination.temp_file(None).unwrap();
    temp.write_all(b"four").unwrap();
    let failed = destination.publish(temp, "x", PublishMode::Replace, &mut |_| true);
    let error = failed.unwrap_err();
    assert_eq!(error.id(), "body-length", "{error}");
}

#[test]
fn spool_folder_has_no_named_temporary_files() {
    let server = server(Settings::default());
    let spool = tempfile::tempdir().unwrap();
    let location = Location::parse("s3://bucket/set").unwrap();
    let destination =
        Destination::create(&location, &options_for(&server), Some(spool.path())).unwrap();
    let mut temp = destination.temp_file(None).unwrap();
    temp.write_all(b"bytes").unwrap();
    assert_eq!(std::fs::read_dir(spool.path()).unwrap().count(), 0);
}

#[test]
fn log_keeps_lines_of_concurrent_threads() {
    everywhere(|destination| {
        let cancel = &mut |_| true;
        destination.make_folder("work").unwrap();
        let log = DestinationLog::open(destination, "work/log", 0, cancel).unwrap();
        log.add_line("head", cancel).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let log = &log;
                scope.spawn(move || {
                    for line in 0..10 {
                        let text = format!("{thread} {line}");
                        log.add_line(&text, &mut |_| true).unwrap();
                    }
                });
            }
        });
        drop(log);
        let read = || {
            let bytes =
                DestinationLog::read(destination, "work/log", 1 << 20, &mut |_| true).unwrap();
            String::from_utf8(bytes.unwrap()).unwrap()
        };
        let text = read();
        let mut lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.remove(0), "head");
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), 80);
        // A writer that continues truncates the log before a damaged line, and so drops what follows.
        let keep = 5 + u64::try_from(text.lines().nth(1).unwrap().len()).unwrap() + 1;
        let log = DestinationLog::open(destination, "work/log", keep, cancel).unwrap();
        log.add_line("tail", cancel).unwrap();
        let kept = text.get(..usize::try_from(keep).unwrap()).unwrap();
        assert_eq!(read(), format!("{kept}tail\n"));
        DestinationLog::remove(destination, "work/log", cancel).unwrap();
        assert_eq!(
            DestinationLog::read(destination, "work/log", 10, cancel).unwrap(),
            None
        );
    });
}

/// The log of an earlier run would be read as the beginning of this one.
#[test]
fn log_opened_with_keep_zero_is_truncated() {
    everywhere(|destination| {
        let cancel = &mut |_| true;
        destination.make_folder("work").unwrap();
        let log = DestinationLog::open(destination, "work/log", 0, cancel).unwrap();
        for line in ["other head", "other 1", "other 2"] {
            log.add_line(line, cancel).unwrap();
        }
        drop(log);
        let log = DestinationLog::open(destination, "work/log", 0, cancel).unwrap();
        assert!(
            DestinationLog::read(destination, "work/log", 100, cancel)
                .unwrap()
                .is_none_or(|bytes| bytes.is_empty())
        );
        log.add_line("head", cancel).unwrap();
        let found = DestinationLog::read(destination, "work/log", 100, cancel).unwrap();
        assert_eq!(found.unwrap(), b"head\n");
    });
}

const PATIENCE: Duration = Duration::from_millis(400);

#[test]
fn lease_is_exclusive_and_taken_over_after_timeout() {
    everywhere(|destination| {
        let cancel = &mut |_| true;
        let acquire =
            || DestinationLease::acquire(destination, "claim/lease", PATIENCE, &mut |_| true);
        let first = acquire().unwrap();
        // A writer with a long wait gives up at the first heartbeat.
        let second =
            DestinationLease::acquire(destination, "claim/lease", PATIENCE * 50, &mut |_| true);
        assert_eq!(second.unwrap_err().id(), "other-writer");
        destination
            .publish_bytes(None, "claim/more", b"x", PublishMode::Replace, cancel)
            .unwrap();
        assert!(!first.is_lost());
        first.remove_folder(&[], cancel).unwrap();
        assert_eq!(destination.entries("", cancel).unwrap(), []);
        drop(acquire().unwrap());
        acquire().unwrap().remove_folder(&[], cancel).unwrap();
    });
    // In a store: a lease whose holder sends no heartbeat.
    let server = server(Settings::default());
    let destination = in_store(&server);
    server
        .objects()
        .put("a/set/claim/lease", b"0123456789abcdef 7\n".to_vec());
    let began = Instant::now();
    let lease =
        DestinationLease::acquire(&destination, "claim/lease", PATIENCE, &mut |_| true).unwrap();
    assert!(began.elapsed() >= PATIENCE);
    // The silent holder becomes active again.
    server
        .objects()
        .put("a/set/claim/lease", b"0123456789abcdef 8\n".to_vec());
    let began = Instant::now();
    while !lease.is_lost() {
        assert!(began.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(10));
    }
    // The lost writer uploads and removes nothing more.
    let refused = published(&destination, "late", b"x", PublishMode::Replace).unwrap_err();
    assert_eq!((refused.id(), refused.kind()), TAKEN);
    assert_eq!(
        refused.to_string(),
        "another writer has taken over: this one was silent for too long"
    );
    server.objects().put("a/set/kept", b"x".to_vec());
    let refused = destination.remove("kept", &mut |_| true).unwrap_err();
    assert_eq!((refused.id(), refused.kind()), TAKEN);
    lease.remove_folder(&[], &mut |_| true).unwrap();
    for key in ["a/set/claim/lease", "a/set/kept"] {
        assert!(server.objects().get(key).unwrap().is_some());
    }
    assert!(server.objects().get("a/set/late").unwrap().is_none());
    // No lease of this destination is held any more.
    published(&destination, "late", b"x", PublishMode::Replace).unwrap();
}

/// Opens a destination whose user declares that there is one writer.
fn vouched(server: &S3Server) -> Destination {
    let location = Location::parse(&format!("{}/a/set", server.url())).unwrap();
    let mut options = options_for(server);
    options
        .settings
        .insert(SINGLE_WRITER.to_owned(), "true".to_owned());
    Destination::create(&location, &options, None).unwrap()
}

#[test]
fn store_that_overwrites_leases_is_refused_unless_there_is_one_writer() {
    let acquire = |destination: &Destination| {
        DestinationLease::acquire(destination, "claim/lease", PATIENCE, &mut |_| true)
    };
    for flavor in [Flavor::S3, Flavor::Google, Flavor::Azure, Flavor::Files] {
        // Only S3 has stores that report the condition as unknown.
        let is_s3 = matches!(flavor, Flavor::S3);
        for no_conditions in [false, true].into_iter().take(1 + usize::from(is_s3)) {
            let server = server(Settings {
                flavor,
                no_conditions,
                ignores_conditions: !no_conditions,
                ..Settings::default()
            });
            let refused = acquire(&in_store(&server)).unwrap_err();
            assert_eq!(
                (refused.id(), refused.kind()),
                ("store-unguarded", ErrorKind::InvalidInput),
                "{flavor:?}"
            );
            assert_eq!(refused.object().unwrap(), format!("{}/a/set", server.url()));
            assert!(server.objects().all().is_empty(), "{flavor:?}");

            let vouched = vouched(&server);
            let lease = acquire(&vouched).unwrap();
            published(&vouched, "shard", b"x", PublishMode::Replace).unwrap();
            // Other attempts find the lease, and do not overwrite it.
            for other in [&vouched, &in_store(&server)] {
                assert_eq!(acquire(other).unwrap_err().id(), "other-writer");
            }
            assert!(!lease.is_lost());
            lease.remove_folder(&[], &mut |_| true).unwrap();
            assert_eq!(server.objects().all().len(), 1);
        }
    }
}

#[test]
fn single_writer_setting_must_be_a_flag() {
    let server = server(Settings::default());
    let mut options = options_for(&server);
    options
        .settings
        .insert(SINGLE_WRITER.to_owned(), "maybe".to_owned());
    let location = Location::parse(&server.url()).unwrap();
    let refused = Destination::create(&location, &options, None).unwrap_err();
    assert_eq!(refused.id(), "url-setting");
}

/// Another writer replaced one object, and the store confirmed none of the others.
#[test]
fn only_unchanged_objects_of_this_destination_are_removed() {
    for flavor in [Flavor::S3, Flavor::Google, Flavor::Azure, Flavor::Files] {
        let server = server(Settings {
            flavor,
            ..Settings::default()
        });
        let destination = in_store(&server);
        let cancel = &mut |_| true;
        for name in ["kept", "replaced"] {
            published(&destination, name, b"mine", PublishMode::Replace).unwrap();
        }
        let text = |name: &str, bytes: &[u8], mode| {
            destination.publish_bytes(None, name, bytes, mode, &mut |_| true)
        };
        text("text", b"text", PublishMode::Replace).unwrap();
        text("text replaced", b"text", PublishMode::Replace).unwrap();
        for name in ["replaced", "text replaced", "foreign", "equal"] {
            let key = format!("a/set/{name}");
            server.objects().put(&key, b"theirs".to_vec());
        }
        text("foreign", b"mine", PublishMode::CreateNew).unwrap_err();
        text("equal", b"theirs", PublishMode::CreateNew).unwrap();
        // The upload succeeds, and its answer and its checks are lost.
        server.set(Settings {
            flavor,
            faults: Script::by(|asked| {
                let is_hit = asked.key.ends_with("unsure") && asked.action != Action::Put;
                is_hit.then(|| Fault::status(403))
            }),
            ..Settings::default()
        });
        published(&destination, "unsure", b"mine", PublishMode::Replace).unwrap_err();
        server.set(Settings {
            flavor,
            ..Settings::default()
        });
        let mut names = destination.written();
        names.sort();
        assert_eq!(
            names,
            ["kept", "replaced", "text", "text replaced", "unsure"],
            "{flavor:?}"
        );
        names.extend(["foreign", "equal"].map(str::to_owned));
        for name in &names {
            destination.remove_own(name, cancel).unwrap();
        }
        let left = server.objects().all().into_keys();
        assert_eq!(
            left.collect::<Vec<_>>(),
            ["equal", "foreign", "replaced", "text replaced"].map(|name| format!("a/set/{name}")),
            "{flavor:?}"
        );
    }
}

const TAKEN: (&str, ErrorKind) = ("other-writer", ErrorKind::Conflict);

/// Another writer took over and finished before this one woke up.
#[test]
fn deleted_lease_object_is_detected_as_lost() {
    let server = server(Settings::default());
    let destination = in_store(&server);
    let lease =
        DestinationLease::acquire(&destination, "claim/lease", PATIENCE, &mut |_| true).unwrap();
    let log = DestinationLog::open(&destination, "claim/log", 0, &mut |_| true).unwrap();
    log.add_line("ours", &mut |_| true).unwrap();
    server.objects().remove("a/set/claim/lease");
    let began = Instant::now();
    while !lease.is_lost() {
        assert!(began.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(10));
    }
    let refused = log.add_line("ours", &mut |_| true).unwrap_err();
    assert_eq!((refused.id(), refused.kind()), TAKEN);
    let index = destination.publish_bytes(
        None,
        "index.json",
        b"{}",
        PublishMode::CreateNew,
        &mut |_| true,
    );
    assert_eq!(index.unwrap_err().id(), "other-writer");
    drop(lease);
    assert!(server.objects().get("a/set/claim/lease").unwrap().is_none());
}

/// A store that is unavailable for a while does not mean that another writer took over.
#[test]
fn lease_survives_temporary_store_failures() {
    let server = server(Settings::default());
    let destination = in_store(&server);
    let lease =
        DestinationLease::acquire(&destination, "claim/lease", PATIENCE, &mut |_| true).unwrap();
    let sick = |asked: &Asked| {
        (asked.key == "a/set/claim/lease").then(|| {
            Fault::status(if asked.nth.is_multiple_of(2) {
                500
            } else {
                403
            })
        })
    };
    server.set(Settings {
        faults: Script::by(sick),
        ..Settings::default()
    });
    published(&destination, "first", b"x", PublishMode::Replace).unwrap();
    let faults = server.counts().faults;
    while server.counts().faults < faults + 10 {
        std::thread::sleep(Duration::from_millis(10));
    }
    server.set(Settings::default());
    published(&destination, "second", b"x", PublishMode::Replace).unwrap();
    assert!(!lease.is_lost());
    lease.end(&mut |_| true).unwrap();
    assert!(server.objects().get("a/set/claim/lease").unwrap().is_none());
}

/// A writer that was stopped for a while, for example by a suspended laptop, does not change the files of its
/// successor. Its pending uploads are not stored, even if it was stopped in the middle of one.
#[cfg(target_os = "linux")]
#[test]
fn suspended_writer_does_not_change_files_of_its_successor() {
    const URL: &str = "SHARDMILL_TEST_STOPPED_WRITER";
    const TEST: &str =
        "remote::tests::destinations::suspended_writer_does_not_change_files_of_its_successor";
    /// The minimum duration of a lease.
    const LASTS: Duration = Duration::from_secs(5);

    let put = |destination: &Destination, name: &str, bytes: &[u8]| {
        let mut temp = destination.temp_file(None).unwrap();
        temp.write_all(bytes).unwrap();
        destination.publish(temp, name, PublishMode::Replace, &mut |_| true)
    };
    if let Ok(url) = std::env::var(URL) {
        let options = RemoteOptions {
            settings: std::env::vars()
                .filter(|(name, _)| name.starts_with("AWS"))
                .collect(),
            ..RemoteOptions::default()
        };
        let destination =
            Destination::create(&Location::parse(&url).unwrap(), &options, None).unwrap();
        let lease =
            DestinationLease::acquire(&destination, "work/lease", LASTS, &mut |_| true).unwrap();
        for number in 0.. {
            // Large enough to be in flight at any time.
            let bytes = vec![b'a'; 3 << 20];
            if let Err(error) = put(&destination, &format!("shard.{}", number % 4), &bytes) {
                assert_eq!((error.id(), error.kind()), TAKEN);
                break;
            }
        }
        assert!(lease.is_lost());
        return;
    }
    let server = server(Settings {
        bytes_per_second: Some(20 << 20),
        ..Settings::default()
    });
    let url = format!("{}/a/set", server.url());
    let mut first = Running::start(
        std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", TEST])
            .env(URL, &url)
            .envs(server.environment()),
    )
    .unwrap();
    let long = Duration::from_secs(60);
    let has_put = || server.objects().all().contains_key("a/set/shard.3");
    assert!(first.until(long, has_put).unwrap());
    first.signal(rustix::process::Signal::STOP).unwrap();

    let destination = in_store(&server);
    let lease =
        DestinationLease::acquire(&destination, "work/lease", LASTS, &mut |_| true).unwrap();
    for number in 0..4 {
        put(&destination, &format!("shard.{number}"), b"successor").unwrap();
    }
    lease.remove_folder(&[], &mut |_| true).unwrap();
    first.signal(rustix::process::Signal::CONT).unwrap();
    let ended = first.end(long).unwrap();
    assert_eq!(ended.code(), Some(0), "{}", ended.errors());
    let left = server.objects().all();
    assert_eq!(left.len(), 4);
    for (key, bytes) in left {
        assert_eq!(bytes, b"successor", "{key}");
    }
}
