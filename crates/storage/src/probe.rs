//! Probes what a location supports. Each operation is tried once on temporary objects, which are removed afterwards.

use std::fmt;
use std::io::Write as _;
use std::time::{Duration, Instant};

use shardmill_core::{Diagnostic as _, ErrorKind};

use shardmill_core::CancelToken;

use crate::destination::{Destination, StoreDestination};
use crate::dir::PublishMode;
use crate::error::StorageError;
use crate::location::Location;
use crate::random::random_number;
use crate::remote::{CredentialSource, Remote, RemoteOptions};

/// How often each operation is tried. A wrong endpoint is then reported within seconds.
const ATTEMPTS: u32 = 2;

/// The timeout for making a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// The size of the first part of a multipart upload: the smallest part that S3 accepts. The second part has one byte.
const PART: usize = 5 << 20;

shardmill_core::named_enum! {
    /// A probed operation.
    #[non_exhaustive]
    pub enum ProbeAction {
        /// List objects.
        List = "list",
        /// Upload an object.
        Put = "put",
        /// Read the object.
        Get = "get",
        /// Read a range of the object.
        Range = "get a range",
        /// Request the length of the object.
        Head = "head",
        /// Upload an object only if it does not exist.
        Create = "create only",
        /// Upload an object in parts.
        Parts = "put in parts",
        /// Delete an object.
        Delete = "delete",
    }
}

/// The result of a probed operation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProbeOutcome {
    /// The operation works.
    Works,
    /// The operation reports success, but has a wrong effect.
    Wrong {
        /// The wrong effect.
        what: String,
    },
    /// This kind of store does not have the operation.
    Absent,
    /// The operation was not tried, because one that it needs failed.
    Untried,
    /// The operation failed.
    Failed {
        /// The id of the error.
        id: &'static str,
        /// The kind of the error.
        kind: ErrorKind,
        /// The message of the error.
        message: String,
        /// The hint of the error.
        hint: Option<String>,
    },
}

impl fmt::Display for ProbeOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Works => f.write_str("works"),
            Self::Wrong { what } => f.write_str(what),
            Self::Absent => f.write_str("this kind of store has no such thing"),
            Self::Untried => f.write_str("not tried"),
            Self::Failed {
                id, message, hint, ..
            } => {
                write!(f, "[{id}] {message}")?;
                match hint {
                    Some(hint) => write!(f, "; {hint}"),
                    None => Ok(()),
                }
            }
        }
    }
}

/// One probed operation with its result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProbeStep {
    /// The operation.
    pub action: ProbeAction,
    /// The result.
    pub outcome: ProbeOutcome,
    /// The time it took, including retries.
    pub took: Duration,
}

/// What a location can be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProbeVerdict {
    /// Datasets can be read and written.
    ReadWrite,
    /// Datasets can be read. They can be written only with the setting [`SINGLE_WRITER`](crate::SINGLE_WRITER), because
    /// two writers of one dataset do not detect each other.
    ReadWriteUnguarded,
    /// Datasets can only be read.
    ReadOnly,
    /// Datasets can be neither read nor written.
    Unusable,
}

impl fmt::Display for ProbeVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ReadWrite => "datasets can be read and written here",
            Self::ReadWriteUnguarded => {
                "datasets can be read here, and written with --single-writer: two writers would not notice each other"
            }
            Self::ReadOnly => "datasets can be read here, and not written",
            Self::Unusable => "datasets can be neither read nor written here",
        })
    }
}

/// The results of probing a location.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProbeReport {
    /// The location, for display.
    pub location: String,
    /// The kind of the store, or "directory".
    pub store: String,
    /// Where the credentials came from. `None` for a directory, and if there are no credentials; then the operations fail
    /// with the reason.
    pub credentials: Option<CredentialSource>,
    /// The operations in the order in which they were tried.
    pub steps: Vec<ProbeStep>,
    /// Temporary objects that could not be removed.
    pub left: Vec<String>,
}

impl ProbeReport {
    /// Returns the result of one operation.
    #[must_use]
    pub fn outcome(&self, action: ProbeAction) -> &ProbeOutcome {
        let step = self.steps.iter().find(|step| step.action == action);
        step.map_or(&ProbeOutcome::Untried, |step| &step.outcome)
    }

    /// Returns what the location can be used for.
    #[must_use]
    pub fn verdict(&self) -> ProbeVerdict {
        let works = |action| *self.outcome(action) == ProbeOutcome::Works;
        let reads = works(ProbeAction::Get) && works(ProbeAction::Range);
        // A web server without a known file answers "not found", which still shows that it can be read.
        let listed =
            works(ProbeAction::List) && *self.outcome(ProbeAction::Get) == ProbeOutcome::Untried;
        if !reads {
            return match listed {
                true => ProbeVerdict::ReadOnly,
                false => ProbeVerdict::Unusable,
            };
        }
        let absent = |action| *self.outcome(action) == ProbeOutcome::Absent;
        let parts = works(ProbeAction::Parts) || absent(ProbeAction::Parts);
        match (works(ProbeAction::Put) && parts, works(ProbeAction::Create)) {
            (true, true) => ProbeVerdict::ReadWrite,
            (true, false) => ProbeVerdict::ReadWriteUnguarded,
            (false, _) => ProbeVerdict::ReadOnly,
        }
    }
}

/// Tries to create an object that exists. Returns what is wrong, or `None` if that was refused.
fn create(
    destination: &Destination,
    name: &str,
    cancel: &mut CancelToken<'_>,
) -> Result<Option<&'static str>, StorageError> {
    let dir = match destination {
        Destination::Local(dir) => dir,
        Destination::Store(store) => {
            return store
                .remote()
                .try_overwrite(name, b"other".to_vec(), cancel);
        }
    };
    match dir.publish_bytes(None, name, b"other", PublishMode::CreateNew) {
        Ok(()) => Ok(Some("the existing object is overwritten")),
        Err(StorageError::Exists { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn get(destination: &Destination, name: &str) -> Result<Vec<u8>, StorageError> {
    match destination {
        Destination::Local(dir) => dir.open_file(name)?.read_all(1 << 20),
        Destination::Store(store) => store.remote().read(name, 1 << 20),
    }
}

fn range(
    destination: &Destination,
    name: &str,
    from: u64,
    to: u64,
) -> Result<Vec<u8>, StorageError> {
    match destination {
        Destination::Local(dir) => dir.open_file(name)?.read_range(from, to - from),
        Destination::Store(store) => store.remote().read_range(name, None, from..to),
    }
}

/// Uploads an object in two parts, and reads the bytes around the border between them.
fn put_parts(
    destination: &Destination,
    remote: &Remote,
    name: &str,
    cancel: &mut CancelToken<'_>,
) -> Result<Option<&'static str>, StorageError> {
    let mut file = destination.temp_file(None)?;
    file.write_all(&vec![1; PART])
        .and_then(|()| file.write_all(&[2]))
        .map_err(|error| file.write_error(error))?;
    remote.put_file(name, &file.into_handle()?, cancel)?;
    let end = PART as u64;
    let read = remote.read_range(name, Some(end + 1), end - 1..end + 1)?;
    Ok((read != [1, 2]).then_some("it returns different bytes"))
}

/// Converts a result to an outcome. `Ok(Some(_))` describes a wrong effect.
fn outcome_of(result: Result<Option<&str>, StorageError>) -> ProbeOutcome {
    match result {
        Ok(None) => ProbeOutcome::Works,
        Ok(Some(what)) => ProbeOutcome::Wrong {
            what: what.to_owned(),
        },
        Err(error) if error.id() == "store-unsupported" => ProbeOutcome::Absent,
        Err(error) => ProbeOutcome::Failed {
            id: error.id(),
            kind: error.kind(),
            message: error.to_string(),
            hint: error.hint(),
        },
    }
}

/// Probes a location: lists, uploads, reads, creates and deletes objects whose names begin with `.shardmill-probe-`. If
/// uploads are not allowed, reads an existing object instead: the smallest one of the first page, or `index.json` if
/// listing is not allowed.
///
/// Each operation is tried at most twice. Operations that do not work are part of the report, not an error.
///
/// # Errors
///
/// A setting that is not valid, a directory that does not exist, and `interrupted`.
pub fn probe(
    location: &Location,
    options: &RemoteOptions,
    cancel: &mut CancelToken<'_>,
) -> Result<ProbeReport, StorageError> {
    let mut options = options.clone();
    options.retry.attempts = options.retry.attempts.min(ATTEMPTS);
    options.retry.outlasts_outages = false;
    options.request.connect_timeout = options.request.connect_timeout.min(CONNECT_TIMEOUT);
    options.upload.split_above = PART as u64;
    options.upload.part_bytes = PART as u64;
    let destination = match location {
        Location::Local(_) => Destination::open(location, &options, None)?,
        Location::Remote(remote) => {
            Destination::Store(StoreDestination::open(remote, &options, None)?)
        }
    };
    let mut report = ProbeReport {
        location: location.to_string(),
        store: match location {
            Location::Local(_) => "directory".to_owned(),
            Location::Remote(remote) => remote.kind().to_string(),
        },
        credentials: match &destination {
            Destination::Local(_) => None,
            Destination::Store(store) => store.remote().credential_source(cancel).ok(),
        },
        steps: Vec::new(),
        left: Vec::new(),
    };
    let name = format!(".shardmill-probe-{:016x}", random_number());
    let large = format!("{name}-parts");
    let body: Vec<u8> = (0..=u8::MAX).collect();
    let mut step = |action, run: &mut dyn FnMut() -> ProbeOutcome| {
        let began = Instant::now();
        let outcome = run();
        let works = outcome == ProbeOutcome::Works;
        report.steps.push(ProbeStep {
            action,
            outcome,
            took: began.elapsed(),
        });
        works
    };
    // One request, even for stores with many objects.
    let mut there: Option<(String, u64)> = None;
    step(ProbeAction::List, &mut || {
        outcome_of(match &destination {
            Destination::Local(dir) => dir.list().map(|_| None),
            Destination::Store(store) => store.remote().peek("", 100, cancel).map(|objects| {
                let small = objects.into_iter().filter(|object| object.bytes > 0);
                there = small
                    .min_by_key(|object| object.bytes)
                    .map(|object| (object.name, object.bytes));
                None
            }),
        })
    });
    let put = step(ProbeAction::Put, &mut || {
        let put = destination.publish_bytes(None, &name, &body, PublishMode::Replace, cancel);
        outcome_of(put.map(|()| None))
    });
    if put {
        step(ProbeAction::Get, &mut || {
            let read = get(&destination, &name);
            outcome_of(read.map(|read| (read != body).then_some("it returns different bytes")))
        });
        step(ProbeAction::Range, &mut || {
            let read = range(&destination, &name, 10, 20);
            outcome_of(read.map(|read| {
                (Some(read.as_slice()) != body.get(10..20)).then_some("it returns different bytes")
            }))
        });
    } else {
        let (name, bytes) = there.unwrap_or_else(|| ("index.json".to_owned(), 1));
        let mut found = false;
        step(ProbeAction::Range, &mut || {
            match range(&destination, &name, 0, bytes.min(10)) {
                // Not found is an answer to a permitted read.
                Err(error) if error.is_not_found() => ProbeOutcome::Untried,
                read => {
                    found = read.is_ok();
                    outcome_of(read.map(|_| None))
                }
            }
        });
        step(ProbeAction::Get, &mut || match found && bytes <= 1 << 20 {
            true => outcome_of(get(&destination, &name).map(|_| None)),
            false if found => ProbeOutcome::Works,
            false => ProbeOutcome::Untried,
        });
    }
    if put {
        step(ProbeAction::Head, &mut || {
            let found = destination.file_version(&name, cancel);
            let found = found.map(|found| found.map(|version| version.bytes));
            let right = Some(body.len() as u64);
            outcome_of(found.map(|found| (found != right).then_some("another length is reported")))
        });
        step(ProbeAction::Create, &mut || {
            outcome_of(create(&destination, &name, cancel))
        });
        step(ProbeAction::Parts, &mut || match &destination {
            Destination::Store(store) if store.remote().has_parts() => {
                outcome_of(put_parts(&destination, store.remote(), &large, cancel))
            }
            _ => ProbeOutcome::Absent,
        });
        step(ProbeAction::Delete, &mut || {
            let removed = destination.remove(&name, cancel);
            outcome_of(removed.and_then(|()| match get(&destination, &name) {
                Err(error) if error.is_not_found() => Ok(None),
                Err(error) => Err(error),
                Ok(_) => Ok(Some("the object stays")),
            }))
        });
        let deleted = *report.outcome(ProbeAction::Delete) == ProbeOutcome::Works;
        if !deleted {
            report.left.push(name);
        }
        let has_parts = *report.outcome(ProbeAction::Parts) == ProbeOutcome::Works;
        if has_parts && destination.remove(&large, cancel).is_err() {
            report.left.push(large);
        }
    }
    let interrupted = report.steps.iter().any(|step| {
        matches!(&step.outcome, ProbeOutcome::Failed { kind, .. } if *kind == ErrorKind::Interrupted)
    });
    if interrupted && let Destination::Store(store) = &destination {
        return Err(store.remote().interrupted());
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use shardmill_testing::s3::{Action, Fault, Flavor, Objects, S3Server, Script, Settings};

    use super::*;
    use crate::RetryOptions;
    use crate::tests::options_for;

    fn server(flavor: Flavor, objects: &[(&str, &[u8])], faults: Script) -> S3Server {
        let bucket = match flavor {
            Flavor::Files => "main/default/volume",
            _ => "bucket",
        };
        let objects = objects
            .iter()
            .map(|(key, bytes)| ((*key).to_owned(), bytes.to_vec()));
        let settings = Settings {
            flavor,
            faults,
            ..Settings::default()
        };
        S3Server::start(Objects::memory(bucket, objects), settings).unwrap()
    }

    fn probed(server: &S3Server) -> ProbeReport {
        let options = RemoteOptions {
            retry: RetryOptions {
                attempts: 2,
                back_off: Duration::from_millis(1),
                ..RetryOptions::default()
            },
            ..options_for(server)
        };
        let location = Location::parse(&format!("{}/data", server.url())).unwrap();
        probe(&location, &options, &mut |_| true).unwrap()
    }

    #[test]
    fn probe_reports_stores_as_read_write() {
        for flavor in Flavor::WRITABLE {
            let server = server(flavor, &[], Script::default());
            let report = probed(&server);
            assert_eq!(report.verdict(), ProbeVerdict::ReadWrite, "{report:?}");
            assert_eq!(report.steps.len(), 8);
            assert_eq!(report.left, [""; 0]);
            let parts = match flavor {
                Flavor::Files => ProbeOutcome::Absent,
                _ => ProbeOutcome::Works,
            };
            assert_eq!(*report.outcome(ProbeAction::Parts), parts);
            // No temporary objects are left.
            assert_eq!(server.objects().count(), 0);
        }
    }

    #[test]
    fn probe_reports_unreachable_port_after_two_requests() {
        // The server is gone, so nothing listens on its port.
        let options = options_for(&server(Flavor::S3, &[], Script::default()));
        let location = Location::parse("s3://bucket/data").unwrap();
        let report = probe(&location, &options, &mut |_| true).unwrap();
        assert_eq!(report.verdict(), ProbeVerdict::Unusable);
        for action in [ProbeAction::List, ProbeAction::Put, ProbeAction::Range] {
            let ProbeOutcome::Failed { id, message, .. } = report.outcome(action) else {
                panic!("{report:?}");
            };
            assert_eq!(*id, "storage-gave-up");
            assert!(message.starts_with("gave up after 2 requests"), "{message}");
        }
    }

    #[test]
    fn probe_reports_directory_as_read_write() {
        let root = tempfile::tempdir().unwrap();
        let location = Location::Local(root.path().to_owned());
        let report = probe(&location, &RemoteOptions::default(), &mut |_| true).unwrap();
        assert_eq!(report.verdict(), ProbeVerdict::ReadWrite, "{report:?}");
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
        let missing = Location::Local(root.path().join("none"));
        let error = probe(&missing, &RemoteOptions::default(), &mut |_| true).unwrap_err();
        assert!(error.is_not_found());
    }

    #[test]
    fn probe_reports_web_server_as_read_only() {
        let file: &[(&str, &[u8])] = &[("data/index.json", b"{}")];
        let report = probed(&server(Flavor::Web, file, Script::default()));
        assert_eq!(report.verdict(), ProbeVerdict::ReadOnly, "{report:?}");
        assert_eq!(*report.outcome(ProbeAction::Put), ProbeOutcome::Absent);
        let report = probed(&server(Flavor::Web, &[], Script::default()));
        assert_eq!(report.verdict(), ProbeVerdict::Unusable, "{report:?}");
    }

    #[test]
    fn probe_reports_missing_permissions() {
        let file: &[(&str, &[u8])] = &[("data/shard", b"12345")];
        let no_put = Script::on(Action::Put, None, Fault::status(403));
        let report = probed(&server(Flavor::S3, file, no_put));
        assert_eq!(report.verdict(), ProbeVerdict::ReadOnly, "{report:?}");
        let ProbeOutcome::Failed { id, kind, .. } = report.outcome(ProbeAction::Put) else {
            panic!("{report:?}");
        };
        assert_eq!((*id, *kind), ("credentials", ErrorKind::Permission));

        let report = probed(&server(
            Flavor::S3,
            file,
            Script::always(Fault::status(403)),
        ));
        assert_eq!(report.verdict(), ProbeVerdict::Unusable, "{report:?}");

        let no_delete = Script::on(Action::Delete, None, Fault::status(403));
        let report = probed(&server(Flavor::S3, file, no_delete));
        assert_eq!(report.verdict(), ProbeVerdict::ReadWrite, "{report:?}");
        assert_eq!(report.left.len(), 2);
    }

    #[test]
    fn probe_detects_store_that_ignores_conditional_writes() {
        let server = server(Flavor::S3, &[], Script::default());
        for (ignores_conditions, expected) in [
            (true, "the existing object is overwritten"),
            (false, "the store has no uploads for new objects only"),
        ] {
            server.set(Settings {
                ignores_conditions,
                no_conditions: !ignores_conditions,
                ..Settings::default()
            });
            let report = probed(&server);
            assert_eq!(report.verdict(), ProbeVerdict::ReadWriteUnguarded);
            assert_eq!(report.outcome(ProbeAction::Create).to_string(), expected);
        }
    }
}
