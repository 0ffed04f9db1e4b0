use std::error::Error;
use std::io;

/// What a failure means to the person or program that caused it.
///
/// This is the one exhaustive enum of the workspace: the command line matches it to an exit code and the
/// Python package to an exception class, both without a wildcard, so that a new kind does not compile until
/// both have placed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// An option, argument or configuration that cannot be carried out.
    InvalidInput,
    /// Something the caller named does not exist.
    NotFound,
    /// Data that contradicts itself, its index or its hash.
    Corrupt,
    /// Well-formed data that asks for something shardmill does not do.
    Unsupported,
    /// The destination or state belongs to something else: another configuration, another writer.
    Conflict,
    /// A file system, store or network gave up.
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
    /// Every kind, in declaration order.
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
    /// Sorts an operating-system error: what is missing, denied, exhausted, or merely failed.
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

/// The stable id of an operating-system error, as printed in `error[id]`.
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

/// An error that can be shown to a person: `error[id]: object: message; hint`.
///
/// The message itself is the error's `Display`: what was attempted and the fact that stopped it, with
/// numbers, in lower case, without a full stop and without repeating the object or the source.
pub trait Diagnostic: Error {
    /// What the failure means; decides the exit code and the exception class.
    fn kind(&self) -> ErrorKind;

    /// A stable, lower-case, hyphenated id such as `hash-mismatch`.
    fn id(&self) -> &'static str;

    /// What the error is about: a path, a shard, a column, an option.
    fn object(&self) -> Option<String> {
        None
    }

    /// What to do about it, if there is something to do.
    fn hint(&self) -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_errors_are_sorted_by_what_the_user_can_do() {
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
