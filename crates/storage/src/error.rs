//! The errors of storage.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use shardmill_core::{Diagnostic, ErrorKind, NameError, check_relative_path, escape, io_error_id};

use crate::entry::{EntryKind, StoreKind};

/// The hint for a text that is not a location.
pub(crate) const FORMS: &str = "write a path, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX, https://HOST/PATH or dbfs:/Volumes/CATALOG/SCHEMA/VOLUME";

/// The hint for a dataset of the Hugging Face Hub that may not be read.
pub(crate) const HUB: &str = "check its name and revision; a private or gated dataset needs a token that may read it: set HF_TOKEN, or run `hf auth login`";

/// The hint for a bucket of the Hugging Face Hub that may not be read.
pub(crate) const HUB_BUCKET: &str = "check its owner and name, for a dataset is not a bucket; a private bucket needs a token that may read it: set HF_TOKEN, or run `hf auth login`";

/// An error of opening, reading, publishing or claiming.
///
/// Errors of local files name the path. Errors of stores and settings name no location; [`StorageError::At`] adds it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages explain the variants and fields")]
pub enum StorageError {
    #[error("cannot {action}")]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A name that is not allowed as a path.
    #[error("refused as the name of a file")]
    Name {
        name: String,
        #[source]
        source: NameError,
    },
    /// A symbolic link where a file or directory of the dataset was expected.
    #[error("the path leads through a symbolic link, which is not followed")]
    Symlink { path: PathBuf },
    #[error("not a regular file but a {found}")]
    NotRegular { path: PathBuf, found: EntryKind },
    #[error("not a directory")]
    NotDirectory { path: PathBuf },
    #[error("the file has {bytes} bytes, more than the {max} that are allowed")]
    TooLarge { path: PathBuf, bytes: u64, max: u64 },
    #[error("bytes {offset} to {end} were asked for, the file has {bytes}")]
    Range {
        path: PathBuf,
        offset: u64,
        /// The end of the range, exclusive.
        end: u64,
        bytes: u64,
    },
    #[error(
        "the file changed while it was read: it had {expected} bytes when it was opened and has {found} now"
    )]
    Changed {
        path: PathBuf,
        expected: u64,
        /// Its length now. It equals `expected` when only the modification time differs.
        found: u64,
    },
    #[error("{written} bytes were written, but the file has {found}")]
    Length {
        path: PathBuf,
        written: u64,
        found: u64,
    },
    #[error("not published because an earlier write to it failed")]
    Incomplete { path: PathBuf },
    #[error("the file exists already")]
    Exists { path: PathBuf },
    /// Another writer holds the lease.
    #[error("another writer is at work{}", pid.map(|pid| format!(" (process {pid})")).unwrap_or_default())]
    OtherWriter { path: PathBuf, pid: Option<u32> },
    /// A failure at a location, endpoint, setting or object of a store.
    #[error("{fault}")]
    At {
        /// The URL or the name, with possible secrets removed.
        location: String,
        /// What happened. It names no location.
        fault: Box<StorageError>,
    },
    #[error("the folder belongs to user {found}, not to user {expected}")]
    Owner {
        path: PathBuf,
        expected: u32,
        found: u32,
    },
    #[error("the location is empty")]
    UrlEmpty,
    #[error("the scheme {scheme:?} is not supported")]
    UrlScheme { scheme: String, hint: &'static str },
    #[error("not a path and not a URL")]
    UrlSyntax,
    /// The name cannot be the name of a bucket.
    #[error("the URL has no bucket name after //")]
    UrlBucket,
    #[error("the bucket {bucket} has no revisions, but the URL names one after @")]
    UrlRevision { bucket: String },
    /// The URL has a user name or a password before the host.
    #[error("the URL has user information")]
    UrlUser,
    #[error("the URL has a query or a fragment")]
    UrlQuery,
    #[error("a control character")]
    UrlControl,
    #[error("the path of the URL has an empty, `.` or `..` part")]
    UrlPath,
    #[error("the key has more than 1024 bytes")]
    UrlTooLong,
    #[error("the path is one of another host")]
    UrlHost,
    /// The endpoint has no TLS and is not on this machine.
    #[error("the endpoint is not on this machine and its connections would be open")]
    UrlPlain,
    /// A setting is unknown, missing or not valid.
    #[error("{message}")]
    Setting {
        message: String,
        hint: Option<&'static str>,
    },
    /// A profile of a file is missing, incomplete or not valid.
    #[error("{message}")]
    Profile {
        message: String,
        hint: Option<&'static str>,
    },
    #[error("no such {} (404{})", if is_no_bucket(code.as_deref()) { "bucket" } else { "object" }, after(code.as_deref()))]
    NotFound { code: Option<String> },
    #[error("the store denied access ({status}{})", after(code.as_deref()))]
    Credentials {
        status: u16,
        code: Option<String>,
        /// What to check, if it depends on the store.
        hint: Option<&'static str>,
    },
    #[error("no credentials were found: {reason}")]
    NoCredentials {
        reason: String,
        hint: Cow<'static, str>,
    },
    /// The answer has another number of bytes than expected.
    #[error("the object should have {expected} bytes, the store has {found}")]
    BodyLength {
        expected: u64,
        /// The number of bytes that the answer has or declares.
        found: u64,
    },
    #[error("the answer does not say how many bytes it has")]
    NoLength,
    /// The answer has another range than requested.
    #[error("bytes {start} to {end} were asked for, the answer is {found}")]
    BodyRange {
        start: u64,
        /// The end of the requested range, exclusive.
        end: u64,
        /// The range that the answer declares.
        found: String,
    },
    #[error("the object is not the one that was read before")]
    ObjectChanged,
    #[error("the object has {bytes} bytes, more than the {max} that are allowed")]
    ObjectTooLarge { bytes: u64, max: u64 },
    #[error("no memory for {bytes} bytes")]
    NoMemory { bytes: u64 },
    #[error("the store answered with a redirect, which is not followed{}{}", host.as_ref().map(|host| format!(", to {host}")).unwrap_or_default(), region.as_ref().map(|region| format!("; the bucket is in {region}")).unwrap_or_default())]
    Redirect {
        host: Option<String>,
        region: Option<String>,
    },
    /// The transfer stayed below the minimum speed in all attempts.
    #[error("the transfer stalled: {received} bytes after {} and {}", seconds(*after_ms), requests(*attempts))]
    Stalled {
        attempts: u32,
        received: u64,
        after_ms: u64,
    },
    #[error("the store asked to slow down ({status}), {} in {}", requests(*attempts), seconds(*after_ms))]
    Throttled {
        status: u16,
        attempts: u32,
        after_ms: u64,
    },
    #[error("gave up after {} in {}: {last}", requests(*attempts), seconds(*after_ms))]
    GaveUp {
        last: String,
        attempts: u32,
        after_ms: u64,
    },
    /// The store refused the request, and a retry would not help.
    #[error("the store refused the request ({status}{})", after(code.as_deref()))]
    Refused { status: u16, code: Option<String> },
    #[error("the store has an object of this name with other contents")]
    ObjectExists,
    /// Another writer holds the lease.
    #[error("another writer is at work")]
    LeaseHeld,
    /// Nothing keeps a second writer out.
    #[error("two writers would not notice each other here: {why}")]
    Unguarded { why: &'static str },
    /// Another writer took over the lease while it was held here.
    #[error("another writer has taken over: this one was silent for too long")]
    TakenOver,
    /// The answer reports success or lists objects, but is not a valid answer of a store.
    #[error("this is no answer of a store: {what}")]
    Answer { what: Cow<'static, str> },
    #[error("there are more objects than the {max} that are allowed")]
    TooMany { max: u64 },
    #[error("{store} has no way to {action}")]
    Unsupported {
        action: &'static str,
        store: StoreKind,
    },
    /// The caller cancelled the operation.
    #[error("stopped before it was done")]
    Interrupted,
    /// The thread or the client for requests to stores could not be created.
    #[error("cannot start to talk to the store: {reason}")]
    NoStart { reason: String },
    /// The request can never be answered: it was made within its own callback, or the thread that serves it died.
    #[error("the request was dropped without an answer")]
    NoAnswer,
}

impl StorageError {
    /// The value of `found` when the server ignored the requested range and sent the whole object.
    pub(crate) const WHOLE: &'static str = "the whole object";

    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
        source: impl Into<io::Error>,
    ) -> Self {
        Self::Io {
            action,
            path: path.into(),
            source: source.into(),
        }
    }

    /// Converts the error number of a failed name resolution in a directory.
    pub(crate) fn resolving(action: &'static str, path: PathBuf, errno: Errno) -> Self {
        match errno {
            Errno::LOOP => Self::Symlink { path },
            Errno::NOTDIR => Self::NotDirectory { path },
            _ => Self::io(action, path, errno),
        }
    }

    /// Converts the error of opening a file. Sockets cannot be opened.
    pub(crate) fn opening(path: PathBuf, source: io::Error) -> Self {
        let found = EntryKind::Socket;
        match source.raw_os_error() == Some(Errno::NXIO.raw_os_error()) {
            true => Self::NotRegular { path, found },
            false => Self::io("open", path, source),
        }
    }

    /// Adds the location of a failure.
    pub(crate) fn at(self, location: impl Into<String>) -> Self {
        Self::At {
            location: location.into(),
            fault: Box::new(self),
        }
    }

    /// Adds the text in which the failure is, without its secrets.
    pub(crate) fn in_text(self, text: &str) -> Self {
        self.at(without_secrets(text))
    }

    /// Returns what happened, without the location of [`StorageError::At`].
    #[must_use]
    pub fn fault(&self) -> &Self {
        match self {
            Self::At { fault, .. } => fault.fault(),
            _ => self,
        }
    }

    /// Returns the file or directory concerned; `None` for a refused name, a setting, and errors of a store.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Io { path, .. }
            | Self::Symlink { path }
            | Self::NotRegular { path, .. }
            | Self::NotDirectory { path }
            | Self::TooLarge { path, .. }
            | Self::Range { path, .. }
            | Self::Changed { path, .. }
            | Self::Length { path, .. }
            | Self::Incomplete { path }
            | Self::Exists { path }
            | Self::OtherWriter { path, .. }
            | Self::Owner { path, .. } => Some(path),
            _ => None,
        }
    }

    /// Returns whether the file or object does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        match self.fault() {
            Self::Io { source, .. } => source.kind() == io::ErrorKind::NotFound,
            Self::NotFound { .. } => true,
            _ => false,
        }
    }

    /// Returns whether a local file system is mounted read-only.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        let Self::Io { source, .. } = self.fault() else {
            return false;
        };
        source.kind() == io::ErrorKind::ReadOnlyFilesystem
    }

    /// Returns whether the bucket or container does not exist.
    #[must_use]
    pub fn is_no_bucket(&self) -> bool {
        matches!(self.fault(), Self::NotFound { code } if is_no_bucket(code.as_deref()))
    }

    /// Returns whether an object has another length than expected.
    #[must_use]
    pub fn is_other_length(&self) -> bool {
        matches!(self.fault(), Self::BodyLength { .. })
    }

    /// Returns whether the server ignored a range request.
    #[must_use]
    pub fn is_without_ranges(&self) -> bool {
        matches!(self.fault(), Self::BodyRange { found, .. } if found == Self::WHOLE)
    }
}

fn is_no_bucket(code: Option<&str>) -> bool {
    matches!(code, Some("NoSuchBucket" | "ContainerNotFound")) || is_no_repository(code)
}

fn is_no_repository(code: Option<&str>) -> bool {
    matches!(code, Some("RepoNotFound" | "RevisionNotFound"))
}

/// Formats an error code to follow a status.
fn after(code: Option<&str>) -> String {
    code.map(|code| format!(", {code}")).unwrap_or_default()
}

fn requests(attempts: u32) -> String {
    let noun = if attempts == 1 { "request" } else { "requests" };
    format!("{attempts} {noun}")
}

fn seconds(ms: u64) -> String {
    format!("{}.{} s", ms / 1000, ms % 1000 / 100)
}

impl StorageError {
    /// Returns the error for a process that can have no state of its own.
    #[must_use]
    pub fn too_many_processes() -> Self {
        Self::NoStart {
            reason: "too many processes were forked from each other".to_owned(),
        }
    }

    /// Returns the kind and the stable id of the error.
    fn facts(&self) -> (ErrorKind, &'static str) {
        use ErrorKind::{
            Bug, Conflict, Corrupt, InvalidInput, NotFound, Permission, Resource, Storage,
            Unsupported,
        };
        match self {
            Self::At { fault, .. } => fault.facts(),
            Self::Io { source, .. } => (source.into(), io_error_id(source)),
            Self::Name { source, .. } => (Corrupt, source.id()),
            Self::Symlink { .. } => (Unsupported, "path-symlink"),
            Self::NotRegular { .. } => (Corrupt, "path-not-a-file"),
            Self::TooLarge { .. } | Self::ObjectTooLarge { .. } => (Corrupt, "limit-file-bytes"),
            Self::Range { .. } => (Corrupt, "file-range"),
            Self::NoMemory { .. } => (Resource, "out-of-memory"),
            Self::Changed { .. } => (Corrupt, "file-changed"),
            Self::Length { .. } => (Storage, "file-length"),
            Self::Incomplete { .. } => (Storage, "file-incomplete"),
            Self::Exists { .. } | Self::ObjectExists => (Conflict, "exists"),
            Self::OtherWriter { .. } | Self::LeaseHeld | Self::TakenOver => {
                (Conflict, "other-writer")
            }
            Self::Owner { .. } => (Permission, "path-owner"),
            Self::NotFound { .. } => (NotFound, "not-found"),
            Self::Credentials { .. } | Self::NoCredentials { .. } => (Permission, "credentials"),
            Self::BodyLength { .. } | Self::NoLength => (Corrupt, "body-length"),
            Self::BodyRange { .. } => (Corrupt, "body-range"),
            Self::ObjectChanged => (Corrupt, "remote-changed"),
            Self::Stalled { .. } => (Storage, "stalled"),
            Self::Throttled { .. } => (Storage, "throttled"),
            Self::GaveUp { .. } => (Storage, "storage-gave-up"),
            Self::Refused { .. } => (Storage, "storage-refused"),
            Self::Answer { .. } => (Storage, "storage-answer"),
            Self::TooMany { .. } => (Corrupt, "limit-list"),
            Self::Interrupted => (ErrorKind::Interrupted, "interrupted"),
            Self::NoStart { .. } => (Resource, "remote-start"),
            Self::NoAnswer => (Bug, "internal-remote"),
            // The user chose the location, so what it cannot do is invalid input.
            Self::NotDirectory { .. } => (InvalidInput, "path-not-a-directory"),
            Self::Redirect { .. } => (InvalidInput, "url-redirect"),
            Self::Unsupported { .. } => (InvalidInput, "store-unsupported"),
            Self::Unguarded { .. } => (InvalidInput, "store-unguarded"),
            Self::UrlEmpty => (InvalidInput, "url-empty"),
            Self::UrlScheme { .. } => (InvalidInput, "url-scheme"),
            Self::UrlSyntax => (InvalidInput, "url-syntax"),
            Self::UrlBucket => (InvalidInput, "url-bucket"),
            Self::UrlRevision { .. } => (InvalidInput, "url-revision"),
            Self::UrlUser => (InvalidInput, "url-user"),
            Self::UrlQuery => (InvalidInput, "url-query"),
            Self::UrlControl => (InvalidInput, "url-control"),
            Self::UrlPath => (InvalidInput, "url-path"),
            Self::UrlTooLong => (InvalidInput, "url-long"),
            Self::UrlHost => (InvalidInput, "url-host"),
            Self::UrlPlain => (InvalidInput, "url-plain"),
            Self::Setting { .. } => (InvalidInput, "url-setting"),
            Self::Profile { .. } => (InvalidInput, "url-profile"),
        }
    }
}

impl Diagnostic for StorageError {
    fn kind(&self) -> ErrorKind {
        self.facts().0
    }

    fn id(&self) -> &'static str {
        self.facts().1
    }

    fn object(&self) -> Option<String> {
        Some(match self {
            Self::Name { name, .. } | Self::At { location: name, .. } => escape(name).into_owned(),
            _ => escape(&self.path()?.to_string_lossy()).into_owned(),
        })
    }

    fn hint(&self) -> Option<String> {
        Some(
            match self {
                Self::At { fault, .. } => return fault.hint(),
                Self::Symlink { .. } => "put the file itself where the link is",
                Self::Changed { .. } => "read it again when no process writes to it",
                Self::OtherWriter { .. } => "wait until it is done, or write to another directory",
                Self::Owner { .. } => "remove the folder, or write to another directory",
                Self::UrlRevision { bucket } => {
                    return Some(format!(
                        "write hf://buckets/{bucket}/PREFIX, or hf://datasets/OWNER/NAME@REVISION/PREFIX for a dataset"
                    ));
                }
                Self::UrlUser => "remove it, and pass credentials in the environment variables of the store",
                Self::UrlQuery => "take everything from the ? or # on away",
                Self::UrlSyntax | Self::UrlEmpty | Self::UrlBucket => FORMS,
                Self::UrlPlain => "use https, or set ALLOW_HTTP=true where the network is trusted",
                Self::UrlScheme { hint, .. } => hint,
                Self::Setting { hint, .. } | Self::Profile { hint, .. } => (*hint)?,
                Self::NoCredentials { hint, .. } => hint,
                Self::NotFound { code } if is_no_repository(code.as_deref()) => HUB,
                Self::Credentials {
                    hint: Some(hint), ..
                } => hint,
                _ if self.is_no_bucket() => "check the name of the bucket and the endpoint",
                Self::Credentials { .. } => {
                    "check the credentials and what they allow (a store also answers so for objects that do not exist)"
                }
                Self::BodyLength { .. } => "check that the index belongs to these objects",
                _ if self.is_without_ranges() => {
                    "the server knows no ranges: fetch the file, and read it from the disk"
                }
                Self::ObjectChanged => "start again when no process writes to the dataset",
                Self::Redirect {
                    region: Some(region),
                    ..
                } => return Some(format!("set AWS_REGION={region}")),
                Self::Redirect { .. } => "check the endpoint and AWS_REGION",
                Self::Throttled { .. } => "use fewer connections, or try again later",
                Self::Unguarded { .. } => {
                    "write elsewhere, or pass --single-writer if no other process writes here (the same as SHARDMILL_SINGLE_WRITER=true)"
                }
                Self::LeaseHeld => "wait until it is done, or write to another location",
                Self::TakenOver => "wait until it is done, and run it again",
                Self::ObjectExists => "write to another place, or take the object away",
                Self::Answer { .. } => "check the endpoint, and whether a proxy answers in its place",
                Self::TooMany { .. } => "list a longer prefix",
                Self::Stalled { .. } | Self::GaveUp { .. } => {
                    "check the network and the endpoint, or try again later"
                }
                _ => return None,
            }
            .to_owned(),
        )
    }
}

/// Returns `None` if the file or object does not exist.
pub(crate) fn if_found<T>(result: Result<T, StorageError>) -> Result<Option<T>, StorageError> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Checks that a relative name is allowed.
pub(crate) fn check_name(name: &str) -> Result<(), StorageError> {
    check_relative_path(name).map_err(|source| StorageError::Name {
        name: name.to_owned(),
        source,
    })
}

/// Returns the text without user information, query and fragment. Also works for texts that are not valid URLs.
pub(crate) fn without_secrets(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    // A secret may contain a slash or a question mark. If there is a user name, remove everything up to the last @.
    let rest = match rest.rsplit_once('@') {
        Some((_, behind)) if has_user(rest) => behind,
        _ => rest,
    };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (host, path) = match rest.split_once('/') {
        Some((host, path)) => (host, Some(path)),
        None => (rest, None),
    };
    let host = match host.split_once(':') {
        Some((name, port)) if !port.chars().all(|c| c.is_ascii_digit()) => name,
        _ => host,
    };
    match path {
        Some(path) => format!("{scheme}://{host}/{path}"),
        None => format!("{scheme}://{host}"),
    }
}

/// Returns whether the text after `://` begins with user information.
pub(crate) fn has_user(rest: &str) -> bool {
    let first = rest.split(['/', '?', '#']).next().unwrap_or_default();
    first.contains('@') || first.contains(':') && rest.contains('@')
}
