//! The exit codes of the program.

use std::process::ExitCode;

use shardmill_core::ErrorKind;

/// A signal that asks for a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    Interrupt,
    Terminate,
}

/// The result of a command that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The work is done.
    Done,
    /// The work is done, and the inspected data has problems.
    Problems,
    /// The command checked whether something works, and it does not. The kind describes the cause.
    Failed(ErrorKind),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Done => Self::SUCCESS,
            Exit::Failed(kind) => Self::from(exit_code(kind, None)),
            Exit::Problems => Self::from(exit_code(ErrorKind::Corrupt, None)),
        }
    }
}

/// Returns the exit code of a failure. `signal` is the signal that requested the stop, if there is one.
pub const fn exit_code(kind: ErrorKind, signal: Option<Signal>) -> u8 {
    match kind {
        ErrorKind::Bug => 1,
        ErrorKind::InvalidInput | ErrorKind::NotFound => 2,
        ErrorKind::Corrupt | ErrorKind::Unsupported => 3,
        ErrorKind::Conflict => 4,
        ErrorKind::Storage => 6,
        ErrorKind::Resource => 7,
        ErrorKind::Permission => 8,
        ErrorKind::Interrupted => match signal {
            Some(Signal::Terminate) => 143,
            Some(Signal::Interrupt) | None => 130,
        },
    }
}

/// Returns the name of a kind in JSON.
pub const fn kind_name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::InvalidInput => "invalid_input",
        ErrorKind::NotFound => "not_found",
        ErrorKind::Corrupt => "corrupt",
        ErrorKind::Unsupported => "unsupported",
        ErrorKind::Conflict => "conflict",
        ErrorKind::Storage => "storage",
        ErrorKind::Resource => "resource",
        ErrorKind::Permission => "permission",
        ErrorKind::Interrupted => "interrupted",
        ErrorKind::Bug => "bug",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_kind_has_its_exit_code() {
        let codes = ErrorKind::ALL.map(|kind| exit_code(kind, None));
        assert_eq!(codes, [2, 2, 3, 3, 4, 6, 7, 8, 130, 1]);
        assert_eq!(
            exit_code(ErrorKind::Interrupted, Some(Signal::Interrupt)),
            130
        );
        assert_eq!(
            exit_code(ErrorKind::Interrupted, Some(Signal::Terminate)),
            143
        );
        assert_eq!(exit_code(ErrorKind::Corrupt, Some(Signal::Terminate)), 3);
    }
}
