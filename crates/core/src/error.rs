//! The error that all crates return, its kinds, and the trait of the errors that become one.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::Arc;

use crate::escape;

/// The category of a failure, for the user or program that caused it.
///
/// This is the one exhaustive enum of the workspace. The command line maps it to exit codes and the Python package to
/// exception classes, both without a wildcard. So a new kind does not compile until both handle it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// An invalid option, argument or configuration.
    InvalidInput,
    /// Something that the caller named does not exist.
    NotFound,
    /// Data that contradicts itself, its index or its hash.
    Corrupt,
    /// Valid data that requires an unsupported feature.
    Unsupported,
    /// The destination or state belongs to another configuration or another writer.
    Conflict,
    /// A file system, store or network failed.
    Storage,
    /// This machine ran out of disk, memory or open files.
    Resource,
    /// Access was denied.
    Permission,
    /// Stopped by a signal or by the caller; the work can be resumed.
    Interrupted,
    /// A broken invariant inside shardmill.
    Bug,
}

impl ErrorKind {
    /// All kinds, in declaration order.
    pub const ALL: [Self; 10] = [
        Self::InvalidInput,
        Self::NotFound,
        Self::Corrupt,
        Self::Unsupported,
        Self::Conflict,
        Self::Storage,
        Self::Resource,
        Self::Permission,
        Self::Interrupted,
        Self::Bug,
    ];
}

impl From<&io::Error> for ErrorKind {
    /// Classifies an error of the operating system as missing, denied, exhausted, or another failure.
    fn from(error: &io::Error) -> Self {
        use io::ErrorKind as Io;
        const EMFILE: i32 = 24;
        const ENFILE: i32 = 23;
        match error.kind() {
            Io::NotFound => Self::NotFound,
            Io::PermissionDenied | Io::ReadOnlyFilesystem => Self::Permission,
            Io::StorageFull | Io::QuotaExceeded | Io::FileTooLarge | Io::OutOfMemory => {
                Self::Resource
            }
            _ => match error.raw_os_error() {
                Some(EMFILE | ENFILE) => Self::Resource,
                _ => Self::Storage,
            },
        }
    }
}

/// Returns the stable id of an error of the operating system, as printed in `error[id]`.
#[must_use]
pub fn io_error_id(error: &io::Error) -> &'static str {
    match ErrorKind::from(error) {
        ErrorKind::NotFound => "not-found",
        ErrorKind::Permission => "permission",
        ErrorKind::Resource => match error.kind() {
            io::ErrorKind::OutOfMemory => "out-of-memory",
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => "disk-full",
            _ => "too-many-files",
        },
        _ => "io",
    }
}

/// An error as it is shown: `error[id]: object: message; hint`.
///
/// The message is the attempted action and why it failed, with numbers. It is in lower case, has no full stop and
/// repeats neither the object nor the source. The constructors of a table of [`problems!`](macro@crate::problems) know
/// the kind, the id and the hint of each problem.
#[derive(Clone)]
pub struct Error(Box<Parts>);

#[derive(Clone)]
struct Parts {
    kind: ErrorKind,
    id: &'static str,
    object: Option<String>,
    message: String,
    hint: Option<String>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    /// Creates an error. The id is stable, lower-case and hyphenated, such as `hash-mismatch`.
    pub fn new(kind: ErrorKind, id: &'static str, message: impl Into<String>) -> Self {
        Self(Box::new(Parts {
            kind,
            id,
            object: None,
            message: message.into(),
            hint: None,
            source: None,
        }))
    }

    /// Creates the error of a command line, of a variable, or of a request that cannot be fulfilled.
    pub fn usage(id: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidInput, id, message)
    }

    /// Creates the error of an option that is invalid or cannot be used here: `config-jobs` is the id of those of
    /// `--jobs`.
    pub fn option(id: &'static str, message: impl Into<String>) -> Self {
        let name = match id.strip_prefix("config-") {
            Some("key") => "key-column",
            Some(name) => name,
            None => id,
        };
        Self::usage(id, message).about(format!("--{name}"))
    }

    /// As [`Self::option`]. The hint says what is accepted.
    pub fn option_hint(
        id: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self::option(id, message).with_hint(hint)
    }

    /// Creates the error of an operation of the operating system. The message says what failed.
    pub fn io(message: impl Into<String>, source: io::Error) -> Self {
        Self::new((&source).into(), io_error_id(&source), message).because(source)
    }

    /// Sets what the error is about: a path, a shard, a column, an option.
    #[must_use]
    pub fn about(mut self, object: impl AsRef<str>) -> Self {
        self.0.object = Some(escape(object.as_ref()).into_owned());
        self
    }

    /// Sets what the user can do about it.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Replaces the message by that of what failed because of this error, which becomes the cause.
    #[must_use]
    pub fn within(self, message: impl Into<String>) -> Self {
        let mut outer = self.clone().because(self);
        outer.0.message = message.into();
        outer
    }

    /// Sets what the user can do about it, if there is anything.
    #[must_use]
    pub fn with_any_hint(self, hint: Option<impl Into<String>>) -> Self {
        match hint {
            Some(hint) => self.with_hint(hint),
            None => self,
        }
    }

    /// Replaces the id.
    #[must_use]
    pub fn with_id(mut self, id: &'static str) -> Self {
        self.0.id = id;
        self
    }

    /// Sets the cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into().into());
        self
    }

    /// Returns the category of the failure, which determines the exit code and the exception class.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the stable id.
    #[must_use]
    pub fn id(&self) -> &'static str {
        self.0.id
    }

    /// Returns what the error is about, if it is about one thing.
    #[must_use]
    pub fn object(&self) -> Option<&str> {
        self.0.object.as_deref()
    }

    /// Returns what the user can do about it, if anything.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// Returns the first cause of this type.
    #[must_use]
    pub fn cause<E: StdError + 'static>(&self) -> Option<&E> {
        let mut source = self.source();
        while let Some(cause) = source {
            if let Some(found) = cause.downcast_ref() {
                return Some(found);
            }
            source = cause.source();
        }
        None
    }

    /// Returns the message, and after colons those of the causes that it does not repeat.
    #[must_use]
    pub fn chain(&self) -> String {
        chain(self.to_string(), self.source())
    }
}

/// Errors are equal if they are shown in the same way.
impl PartialEq for Error {
    fn eq(&self, other: &Self) -> bool {
        let shown = |error: &Self| (error.kind(), error.id(), error.chain());
        shown(self) == shown(other)
            && (self.object(), self.hint()) == (other.object(), other.hint())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}[{}]: ", self.kind(), self.id())?;
        if let Some(object) = self.object() {
            write!(f, "{object}: ")?;
        }
        f.write_str(&self.chain())?;
        match self.hint() {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Error {
    /// Formats the message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(self.0.source.as_deref()?)
    }
}

impl<E: Diagnostic + Send + Sync + 'static> From<E> for Error {
    fn from(error: E) -> Self {
        Self(Box::new(Parts {
            kind: error.kind(),
            id: error.id(),
            object: error.object(),
            message: error.to_string(),
            hint: error.hint(),
            source: Some(Arc::new(error)),
        }))
    }
}

/// The errors of the formats, the stores and the cache, which callers tell apart. Each becomes an [`Error`] with `?`.
///
/// The message is the `Display` of the error.
pub trait Diagnostic: StdError {
    /// Returns the category of the failure.
    fn kind(&self) -> ErrorKind;

    /// Returns the stable id.
    fn id(&self) -> &'static str;

    /// Returns what the error is about.
    fn object(&self) -> Option<String> {
        None
    }

    /// Returns what the user can do about it, if anything.
    fn hint(&self) -> Option<String> {
        None
    }

    /// Returns the message, and after colons those of the sources that it does not repeat.
    fn chain(&self) -> String {
        chain(self.to_string(), self.source())
    }
}

fn chain(mut text: String, mut source: Option<&(dyn StdError + 'static)>) -> String {
    while let Some(cause) = source {
        let message = cause.to_string();
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_errors_map_to_error_kinds_and_ids() {
        for (kind, expected, id) in [
            (io::ErrorKind::NotFound, ErrorKind::NotFound, "not-found"),
            (
                io::ErrorKind::PermissionDenied,
                ErrorKind::Permission,
                "permission",
            ),
            (io::ErrorKind::StorageFull, ErrorKind::Resource, "disk-full"),
            (
                io::ErrorKind::OutOfMemory,
                ErrorKind::Resource,
                "out-of-memory",
            ),
            (io::ErrorKind::BrokenPipe, ErrorKind::Storage, "io"),
        ] {
            let error = io::Error::from(kind);
            assert_eq!(ErrorKind::from(&error), expected);
            assert_eq!(io_error_id(&error), id);
        }
        let files = io::Error::from_raw_os_error(24);
        assert_eq!(ErrorKind::from(&files), ErrorKind::Resource);
        assert_eq!(io_error_id(&files), "too-many-files");
    }
}
