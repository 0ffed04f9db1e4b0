//! The kinds of errors, and the trait that all errors implement.

use std::error::Error;
use std::io;

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

/// An error that can be displayed to the user: `error[id]: object: message; hint`.
///
/// The message is the `Display` of the error: the attempted action and why it failed, with numbers. It is in lower
/// case, has no full stop and repeats neither the object nor the source.
pub trait Diagnostic: Error {
    /// Returns the category of the failure, which determines the exit code and the exception class.
    fn kind(&self) -> ErrorKind;

    /// Returns a stable, lower-case, hyphenated id such as `hash-mismatch`.
    fn id(&self) -> &'static str;

    /// Returns what the error is about: a path, a shard, a column, an option.
    fn object(&self) -> Option<String> {
        None
    }

    /// Returns what the user can do about it, if anything.
    fn hint(&self) -> Option<String> {
        None
    }

    /// Returns the message, and after colons those of the sources that it does not repeat.
    fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut source = self.source();
        while let Some(cause) = source {
            let message = cause.to_string();
            if !text.contains(&message) {
                text = format!("{text}: {message}");
            }
            source = cause.source();
        }
        text
    }
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
