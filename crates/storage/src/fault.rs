use std::fmt;

use shardmill_core::ErrorKind;

use crate::location::StoreKind;

/// Why a location, endpoint or setting of a store is not valid.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UrlFault {
    /// The text is empty.
    Empty,
    /// The scheme is not supported.
    Scheme {
        /// The scheme.
        scheme: String,
        /// What to write instead.
        hint: &'static str,
    },
    /// Not a URL.
    Syntax,
    /// The name cannot be the name of a bucket.
    Bucket,
    /// The URL has a user name or a password before the host.
    UserInfo,
    /// The URL has a query or a fragment.
    Query,
    /// The text has a control character.
    Control,
    /// The path has an empty, `.` or `..` part.
    Parts,
    /// The key is longer than 1,024 bytes.
    Long,
    /// The path belongs to another host.
    Host,
    /// The endpoint has no TLS and is not on this machine.
    Plain,
    /// No store has a setting with this name.
    Unknown {
        /// The name.
        name: String,
    },
    /// A required setting has no value.
    Missing {
        /// What to set.
        hint: &'static str,
    },
    /// The store requires a login, and none is configured.
    NoLogin {
        /// What to set.
        hint: &'static str,
    },
    /// The value of a setting is not valid.
    Setting {
        /// The name of the setting.
        name: &'static str,
    },
    /// The profile file cannot be used.
    Profile {
        /// What is wrong with it.
        fault: ProfileFault,
    },
}

/// Why a Databricks profile cannot be used. Contains no value from the profile except that of `auth_type`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProfileFault {
    /// A line that is neither `[profile]`, `key = value`, empty nor a comment.
    Line {
        /// The line number, from 1.
        line: usize,
    },
    /// The file does not have the profile.
    Absent {
        /// The name of the profile.
        profile: String,
    },
    /// The profile uses an unsupported login method.
    Login {
        /// The name of the profile.
        profile: String,
        /// The field that selects the method, with its value if the field is `auth_type`.
        field: String,
    },
    /// The value of a field is not valid.
    Value {
        /// The name of the profile.
        profile: String,
        /// The field.
        field: &'static str,
    },
    /// A required field has no value.
    Without {
        /// The name of the profile.
        profile: String,
        /// The field, or the fields.
        field: &'static str,
    },
}

impl ProfileFault {
    const fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Line { .. } => "a line is [PROFILE], FIELD = VALUE, empty, or begins with # or ;",
            Self::Absent { .. } => "check DATABRICKS_CONFIG_PROFILE and DATABRICKS_CONFIG_FILE",
            Self::Login { .. } => {
                "give it a token, or a client_id and a client_secret, or set DATABRICKS_TOKEN"
            }
            Self::Value { .. } | Self::Without { .. } => return None,
        })
    }
}

impl fmt::Display for ProfileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line { line } => write!(f, "line {line} is none of a file of profiles"),
            Self::Absent { profile } => write!(f, "the file has no profile {profile:?}"),
            Self::Login { profile, field } => write!(
                f,
                "the profile {profile:?} logs in by {field}, which is not supported"
            ),
            Self::Value { profile, field } => {
                write!(
                    f,
                    "{field} of the profile {profile:?} cannot have this value"
                )
            }
            Self::Without { profile, field } => {
                write!(f, "the profile {profile:?} has no {field}")
            }
        }
    }
}

impl UrlFault {
    pub(crate) const fn id(&self) -> &'static str {
        match self {
            Self::Empty => "url-empty",
            Self::Scheme { .. } => "url-scheme",
            Self::Syntax => "url-syntax",
            Self::Bucket => "url-bucket",
            Self::UserInfo => "url-user",
            Self::Query => "url-query",
            Self::Control => "url-control",
            Self::Parts => "url-path",
            Self::Long => "url-long",
            Self::Host => "url-host",
            Self::Plain => "url-plain",
            Self::Setting { .. }
            | Self::Unknown { .. }
            | Self::Missing { .. }
            | Self::NoLogin { .. } => "url-setting",
            Self::Profile { .. } => "url-profile",
        }
    }

    pub(crate) const fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Scheme { hint, .. } => hint,
            Self::UserInfo => {
                "take it out, and give credentials by the environment variables of the store"
            }
            Self::Query => "take everything from the ? or # on away",
            Self::Syntax | Self::Empty | Self::Bucket => {
                "write a path, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX, https://HOST/PATH or dbfs:/Volumes/CATALOG/SCHEMA/VOLUME"
            }
            Self::Plain => "use https, or set ALLOW_HTTP=true where the network is trusted",
            Self::Missing { hint } | Self::NoLogin { hint } => hint,
            Self::Profile { fault } => return fault.hint(),
            Self::Unknown { .. } => "the guide to stores lists the names that are known",
            Self::Control | Self::Parts | Self::Long | Self::Host | Self::Setting { .. } => {
                return None;
            }
        })
    }
}

impl fmt::Display for UrlFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the location is empty"),
            Self::Scheme { scheme, .. } => write!(f, "the scheme {scheme:?} is not supported"),
            Self::Syntax => f.write_str("not a path and not a URL"),
            Self::Bucket => f.write_str("the URL has no name of a bucket behind //"),
            Self::UserInfo => f.write_str("the URL has user information"),
            Self::Query => f.write_str("the URL has a query or a fragment"),
            Self::Control => f.write_str("a control character"),
            Self::Parts => f.write_str("the path of the URL has an empty, `.` or `..` part"),
            Self::Long => f.write_str("the key has more than 1024 bytes"),
            Self::Host => f.write_str("the path is one of another host"),
            Self::Plain => {
                f.write_str("the endpoint is not on this machine and its connections would be open")
            }
            Self::Unknown { name } => write!(f, "{name} is no setting of a store"),
            Self::Missing { .. } => f.write_str("the store has no address"),
            Self::NoLogin { .. } => f.write_str("nothing says who logs in to the store"),
            Self::Setting { name } => write!(f, "{name} cannot have this value"),
            Self::Profile { fault } => fault.fmt(f),
        }
    }
}

/// A failure of a request to a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RemoteFault {
    /// The object or the bucket does not exist.
    NotFound {
        /// The error code in the answer, such as `NoSuchBucket`.
        code: Option<String>,
    },
    /// The store denied access with the given credentials.
    Credentials {
        /// The HTTP status.
        status: u16,
        /// The error code in the answer, such as `AccessDenied`.
        code: Option<String>,
    },
    /// No credentials were found.
    NoCredentials {
        /// The error of the credential provider.
        reason: String,
        /// What to set.
        hint: &'static str,
    },
    /// The answer has another number of bytes than expected.
    BodyLength {
        /// The expected number of bytes.
        expected: u64,
        /// The number of bytes that the answer has or declares.
        found: u64,
    },
    /// The answer does not declare its length.
    NoLength,
    /// The answer has another range than requested.
    Range {
        /// The first requested byte.
        start: u64,
        /// The end of the requested range, exclusive.
        end: u64,
        /// The range that the answer declares.
        found: String,
    },
    /// The object changed since it was read before.
    Changed,
    /// The object has more bytes than the caller allows.
    TooLarge {
        /// The length of the object.
        bytes: u64,
        /// The allowed number of bytes.
        most: u64,
    },
    /// Memory for the object could not be allocated.
    OutOfMemory {
        /// The number of bytes needed.
        bytes: u64,
    },
    /// The store answered with a redirect, which is not followed.
    Redirect {
        /// The host of the redirect.
        host: Option<String>,
        /// The region of the bucket, if the answer names it.
        region: Option<String>,
    },
    /// The transfer stayed below the minimum speed in all attempts.
    Stalled {
        /// The number of requests made.
        attempts: u32,
        /// The number of bytes received.
        received: u64,
        /// The total time, in milliseconds.
        after_ms: u64,
    },
    /// The store asked to slow down in all attempts.
    Throttled {
        /// The last HTTP status.
        status: u16,
        /// The number of requests made.
        attempts: u32,
        /// The total time, in milliseconds.
        after_ms: u64,
    },
    /// All attempts failed.
    GaveUp {
        /// The error of the last request.
        last: String,
        /// The number of requests made.
        attempts: u32,
        /// The total time, in milliseconds.
        after_ms: u64,
    },
    /// The store refused the request, and a retry would not help.
    Refused {
        /// The HTTP status.
        status: u16,
        /// The error code in the answer.
        code: Option<String>,
    },
    /// The object had to be new, but it exists with other contents.
    Exists,
    /// Another writer holds the lease.
    OtherWriter,
    /// Another writer took over the lease while it was held here.
    TakenOver,
    /// The answer reports success or lists objects, but is not a valid answer of a store.
    Answer {
        /// What is wrong with the answer.
        what: &'static str,
    },
    /// There are more objects than the caller allows.
    TooMany {
        /// The allowed number of objects.
        most: u64,
    },
    /// This kind of store does not support the action.
    Unsupported {
        /// The attempted action.
        action: &'static str,
        /// The kind of the store.
        store: StoreKind,
    },
    /// The caller cancelled the operation.
    Interrupted,
    /// The thread or the client for requests to stores could not be created.
    NoStart {
        /// The error of the system.
        reason: String,
    },
    /// The request can never be answered: it was made within its own callback, or the thread that serves it died.
    NoAnswer,
}

impl RemoteFault {
    pub(crate) const fn kind(&self) -> ErrorKind {
        match self {
            Self::NotFound { .. } => ErrorKind::NotFound,
            Self::Credentials { .. } | Self::NoCredentials { .. } => ErrorKind::Permission,
            Self::BodyLength { .. }
            | Self::NoLength
            | Self::Range { .. }
            | Self::Changed
            | Self::TooLarge { .. }
            | Self::TooMany { .. } => ErrorKind::Corrupt,
            Self::OutOfMemory { .. } | Self::NoStart { .. } => ErrorKind::Resource,
            // The user chose the location, so what it cannot do is invalid input.
            Self::Redirect { .. } | Self::Unsupported { .. } => ErrorKind::InvalidInput,
            Self::Stalled { .. }
            | Self::Throttled { .. }
            | Self::GaveUp { .. }
            | Self::Refused { .. }
            | Self::Answer { .. } => ErrorKind::Storage,
            Self::Exists | Self::OtherWriter | Self::TakenOver => ErrorKind::Conflict,
            Self::Interrupted => ErrorKind::Interrupted,
            Self::NoAnswer => ErrorKind::Bug,
        }
    }

    pub(crate) const fn id(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "not-found",
            Self::Credentials { .. } | Self::NoCredentials { .. } => "credentials",
            Self::BodyLength { .. } | Self::NoLength => "body-length",
            Self::Range { .. } => "body-range",
            Self::Changed => "remote-changed",
            Self::TooLarge { .. } => "limit-file-bytes",
            Self::OutOfMemory { .. } => "out-of-memory",
            Self::Redirect { .. } => "url-redirect",
            Self::Stalled { .. } => "stalled",
            Self::Throttled { .. } => "throttled",
            Self::GaveUp { .. } => "storage-gave-up",
            Self::Refused { .. } => "storage-refused",
            Self::Exists => "exists",
            Self::OtherWriter | Self::TakenOver => "other-writer",
            Self::Answer { .. } => "storage-answer",
            Self::TooMany { .. } => "limit-list",
            Self::Unsupported { .. } => "store-unsupported",
            Self::Interrupted => "interrupted",
            Self::NoStart { .. } => "remote-start",
            Self::NoAnswer => "internal-remote",
        }
    }

    /// The value of `found` when the server ignored the requested range and sent the whole object.
    pub(crate) const WHOLE: &'static str = "the whole object";

    /// Returns whether the server ignored a range request.
    #[must_use]
    pub fn is_without_ranges(&self) -> bool {
        matches!(self, Self::Range { found, .. } if found == Self::WHOLE)
    }

    /// Returns whether the bucket does not exist.
    pub(crate) fn is_no_bucket(&self) -> bool {
        let code = match self {
            Self::NotFound { code } => code.as_deref(),
            _ => None,
        };
        matches!(code, Some("NoSuchBucket" | "ContainerNotFound"))
    }

    pub(crate) fn hint(&self) -> Option<String> {
        Some(
            match self {
                Self::NotFound { .. } if self.is_no_bucket() => {
                    "check the name of the bucket and the endpoint"
                }
                Self::Credentials { .. } => {
                    "check the credentials and what they allow (a store also answers so for objects that do not exist)"
                }
                Self::NoCredentials { hint, .. } => hint,
                Self::BodyLength { .. } => "check that the index belongs to these objects",
                _ if self.is_without_ranges() => {
                    "the server knows no ranges: fetch the file, and read it from the disk"
                }
                Self::Changed => "start again when no process writes to the dataset",
                Self::Redirect {
                    region: Some(region),
                    ..
                } => return Some(format!("set AWS_REGION={region}")),
                Self::Redirect { .. } => "check the endpoint and AWS_REGION",
                Self::Throttled { .. } => "use fewer connections, or try again later",
                Self::OtherWriter => "wait until it is done, or write to another place",
                Self::TakenOver => "wait until it is done, and run it again",
                Self::Exists => "write to another place, or take the object away",
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

/// Formats an error code to follow a status.
fn behind(code: Option<&String>) -> String {
    code.map(|code| format!(", {code}")).unwrap_or_default()
}

fn requests(attempts: u32) -> &'static str {
    if attempts == 1 { "request" } else { "requests" }
}

impl fmt::Display for RemoteFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |ms: u64| format!("{}.{} s", ms / 1000, ms % 1000 / 100);
        match self {
            Self::NotFound { code } => {
                let what = if self.is_no_bucket() {
                    "bucket"
                } else {
                    "object"
                };
                write!(f, "no such {what} (404{})", behind(code.as_ref()))
            }
            Self::Credentials { status, code } => {
                write!(
                    f,
                    "the store denied access ({status}{})",
                    behind(code.as_ref())
                )
            }
            Self::NoCredentials { reason, .. } => write!(f, "no credentials were found: {reason}"),
            Self::BodyLength { expected, found } => write!(
                f,
                "the object should have {expected} bytes, the store has {found}"
            ),
            Self::NoLength => f.write_str("the answer does not say how many bytes it has"),
            Self::Range { start, end, found } => write!(
                f,
                "bytes {start} to {end} were asked for, the answer is {found}"
            ),
            Self::Changed => f.write_str("the object is not the one that was read before"),
            Self::TooLarge { bytes, most } => write!(
                f,
                "the object has {bytes} bytes, more than the {most} that are allowed"
            ),
            Self::OutOfMemory { bytes } => write!(f, "no memory for {bytes} bytes"),
            Self::Redirect { host, region } => {
                f.write_str("the store answered with a redirect, which is not followed")?;
                if let Some(host) = host {
                    write!(f, ", to {host}")?;
                }
                if let Some(region) = region {
                    write!(f, "; the bucket is in {region}")?;
                }
                Ok(())
            }
            Self::Stalled {
                attempts,
                received,
                after_ms,
            } => write!(
                f,
                "the transfer stalled: {received} bytes after {} and {attempts} {}",
                seconds(*after_ms),
                requests(*attempts)
            ),
            Self::Throttled {
                status,
                attempts,
                after_ms,
            } => write!(
                f,
                "the store asked to slow down ({status}), {attempts} {} in {}",
                requests(*attempts),
                seconds(*after_ms)
            ),
            Self::GaveUp {
                last,
                attempts,
                after_ms,
            } => write!(
                f,
                "gave up after {attempts} {} in {}: {last}",
                requests(*attempts),
                seconds(*after_ms)
            ),
            Self::Refused { status, code } => {
                write!(
                    f,
                    "the store refused the request ({status}{})",
                    behind(code.as_ref())
                )
            }
            Self::Exists => f.write_str("the store has an object of this name with other contents"),
            Self::OtherWriter => f.write_str("another writer is at work"),
            Self::TakenOver => {
                f.write_str("another writer has taken over: this one was silent for too long")
            }
            Self::Answer { what } => write!(f, "this is no answer of a store: {what}"),
            Self::TooMany { most } => {
                write!(f, "there are more objects than the {most} that are allowed")
            }
            Self::Unsupported { action, store } => write!(f, "{store} has no way to {action}"),
            Self::Interrupted => f.write_str("stopped before it was done"),
            Self::NoStart { reason } => write!(f, "cannot start to talk to the store: {reason}"),
            Self::NoAnswer => f.write_str("the request was dropped without an answer"),
        }
    }
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
