//! Conversion of the crates' errors to exceptions of `shardmill.errors`.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use shardmill_core::{Error, ErrorKind};

/// Creates the exception for an error: its class by [`ErrorKind`], and `id`, `object` and `hint` as attributes.
pub(crate) fn raise(error: impl Into<Error>) -> PyErr {
    let error = error.into();
    let (object, hint) = (error.object(), error.hint());
    let message = match object {
        Some(object) => format!("{object}: {}", error.chain()),
        None => error.chain(),
    };
    make(error.kind(), (&message, error.id(), object, hint))
}

/// Parses a name or a value.
pub(crate) fn parse<T>(text: &str) -> PyResult<T>
where
    T: std::str::FromStr,
    T::Err: Into<Error>,
{
    text.parse().map_err(raise)
}

/// Creates an exception for an error that only this crate detects.
pub(crate) fn raise_with(kind: ErrorKind, id: &'static str, message: String) -> PyErr {
    make(kind, (&message, id, None, None))
}

/// Creates the exception for a null where there can be none. `message` names the sample and the column.
pub(crate) fn null_value(message: &str, column: &str, hint: &str) -> PyErr {
    let parts = (message, "value-null", Some(column), Some(hint));
    make(ErrorKind::Corrupt, parts)
}

/// Creates the exception for a broken invariant of this crate.
pub(crate) fn bug(what: &str) -> PyErr {
    PyRuntimeError::new_err(format!("a bug in shardmill: {what}"))
}

/// Message, id, object and hint.
type Parts<'a> = (&'a str, &'a str, Option<&'a str>, Option<&'a str>);

fn make(kind: ErrorKind, parts: Parts<'_>) -> PyErr {
    Python::attach(|py| {
        let module = py.import("shardmill.errors");
        let made = module.and_then(|module| module.call_method1(class_of(kind), parts));
        made.map_or_else(|cannot| cannot, PyErr::from_value)
    })
}

const fn class_of(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::InvalidInput => "UsageError",
        ErrorKind::NotFound => "NotFoundError",
        ErrorKind::Corrupt => "DataError",
        ErrorKind::Unsupported => "UnsupportedError",
        ErrorKind::Conflict => "ConflictError",
        ErrorKind::Storage => "RemoteError",
        ErrorKind::Resource => "ResourceError",
        ErrorKind::Permission => "AccessError",
        ErrorKind::Interrupted => "StoppedError",
        ErrorKind::Bug => "InternalError",
    }
}
