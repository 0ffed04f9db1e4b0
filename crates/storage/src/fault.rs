use std::fmt;

use shardmill_core::ErrorKind;

use crate::location::StoreKind;

/// Why a text is no location, endpoint or setting of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UrlFault {
    /// Nothing is there.
    Empty,
    /// A scheme that is not served.
    Scheme {
        /// The scheme.
        scheme: String,
        /// What to write.
        hint: &'static str,
    },
    /// Not a URL.
    Syntax,
    /// A name that no bucket has.
    Bucket,
    /// A name or a password in front of the host.
    UserInfo,
    /// A query or a fragment.
    Query,
    /// A control character.
    Control,
    /// An empty, `.` or `..` part.
    Parts,
    /// A key longer than 1,024 bytes.
    Long,
    /// The path of another machine.
    Host,
    /// An endpoint without TLS that is not on this machine.
    Plain,
    /// A name of a setting that nothing looks at.
    Unknown {
        /// The name.
        name: String,
    },
    /// A setting that is needed and has no value.
    Missing {
        /// What to set.
        hint: &'static str,
    },
    /// The address of a store that takes nobody without a name.
    NoLogin {
        /// What to set.
        hint: &'static str,
    },
    /// A setting that has no such value.
    Setting {
        /// The name of the setting.
        name: &'static str,
    },
    /// A file of profiles that cannot be used.
    Profile {
        /// What is wrong with it.
        fault: ProfileFault,
    },
}

/// Why a profile of Databricks cannot be used. Never has a value of it, but for `auth_type`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProfileFault {
    /// A line that no file of profiles has.
    Line {
        /// Its number; the first one is 1.
        line: usize,
    },
    /// The file has no such profile.
    Absent {
        /// The name of the profile.
        profile: String,
    },
    /// Another way to log in than those that are served.
    Login {
        /// The name of the profile.
        profile: String,
        /// The field that asks for it, and its value where that is `auth_type`.
        field: String,
    },
    /// A field that has no such value.
    Value {
        /// The name of the profile.
        profile: String,
        /// The field.
        field: &'static str,
    },
    /// A field that is needed and has no value.
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

/// What a store did, or did not do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RemoteFault {
    /// There is no such object, or no such bucket.
    NotFound {
        /// The code in the answer, such as `NoSuchBucket`.
        code: Option<String>,
    },
    /// The credentials do not suffice.
    Credentials {
        /// The status.
        status: u16,
        /// The code in the answer, such as `AccessDenied`.
        code: Option<String>,
    },
    /// No credentials could be had.
    NoCredentials {
        /// The reason of the provider.
        reason: String,
        /// What to set.
        hint: &'static str,
    },
    /// Another number of bytes than was declared.
    BodyLength {
        /// Bytes that were declared.
        expected: u64,
        /// Bytes that the answer has or claims.
        found: u64,
    },
    /// An answer that does not say where it ends.
    NoLength,
    /// Another range than was asked for.
    Range {
        /// First byte that was asked for.
        start: u64,
        /// One past the last.
        end: u64,
        /// What the answer says that it is.
        found: String,
    },
    /// The object is not the one that was read before.
    Changed,
    /// More bytes than the caller is ready to hold.
    TooLarge {
        /// Bytes of the object.
        bytes: u64,
        /// The most that was allowed.
        most: u64,
    },
    /// No memory for the object.
    OutOfMemory {
        /// How much was needed.
        bytes: u64,
    },
    /// A redirect, which is not followed.
    Redirect {
        /// The host that it leads to.
        host: Option<String>,
        /// The region of the bucket, where the answer names it.
        region: Option<String>,
    },
    /// Too little came in too long a time, time and again.
    Stalled {
        /// Requests that were made.
        attempts: u32,
        /// Bytes that had come by then.
        received: u64,
        /// How long it took in all, in milliseconds.
        after_ms: u64,
    },
    /// The store asked to slow down, time and again.
    Throttled {
        /// The last status.
        status: u16,
        /// Requests that were made.
        attempts: u32,
        /// How long it took in all, in milliseconds.
        after_ms: u64,
    },
    /// Nothing helped.
    GaveUp {
        /// What the last request failed with.
        last: String,
        /// Requests that were made.
        attempts: u32,
        /// How long it took in all, in milliseconds.
        after_ms: u64,
    },
    /// A request that the store will never fulfil.
    Refused {
        /// The status.
        status: u16,
        /// The code in the answer.
        code: Option<String>,
    },
    /// The object was to be new, and there is one with other contents.
    Exists,
    /// Another writer holds the lease.
    OtherWriter,
    /// The lease was held, and another writer has taken it meanwhile.
    TakenOver,
    /// The store says it is done, or lists objects, in an answer that is none of a store.
    Answer {
        /// What is wrong with it.
        what: &'static str,
    },
    /// More objects than the caller is ready to hold.
    TooMany {
        /// The most that was allowed.
        most: u64,
    },
    /// What this kind of store has no request for.
    Unsupported {
        /// What was to be done.
        action: &'static str,
        /// The kind of the store.
        store: StoreKind,
    },
    /// The caller did not want to go on.
    Interrupted,
    /// The thread or the client that talks to stores could not be made.
    NoStart {
        /// What the system says.
        reason: String,
    },
    /// The wait for it would never have ended: it was asked for from within its own callback, or the thread died.
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
            // Where the place was chosen, so was what it cannot do.
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

    /// What an answer is that passes over the range that was asked for.
    pub(crate) const WHOLE: &'static str = "the whole object";

    /// Whether a range was asked for of a server that knows none.
    #[must_use]
    pub fn is_without_ranges(&self) -> bool {
        matches!(self, Self::Range { found, .. } if found == Self::WHOLE)
    }

    /// Whether there is no bucket, and so none of its objects.
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
                Self::Changed => "start again when nobody writes to the dataset",
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

/// A code of an answer as it follows a status.
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

/// A URL without user information, query and fragment, also where it is none.
pub(crate) fn without_secrets(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    // A secret may hold a slash or a question mark: from a user name on, everything to the last @ goes.
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

/// Whether what follows `://` begins with user information.
pub(crate) fn has_user(rest: &str) -> bool {
    let first = rest.split(['/', '?', '#']).next().unwrap_or_default();
    first.contains('@') || first.contains(':') && rest.contains('@')
}
