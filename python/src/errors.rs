//! Errors of the crates as exceptions of `shardmill.errors`.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyType;
use shardmill_core::{Diagnostic, ErrorKind};

/// The exception for an error: its class by [`ErrorKind`], its `id`, `object` and `hint` as attributes.
pub(crate) fn raise(error: &(impl Diagnostic + ?Sized)) -> PyErr {
    let message = message(error);
    Python::attach(|py| {
        let made = make(
            py,
            class_of(error.kind()),
            (message, error.id(), error.object(), error.hint()),
        );
        made.unwrap_or_else(|cannot| cannot)
    })
}

/// An exception for what only this crate finds wrong, in the same form as those of the crates.
pub(crate) fn raise_with(kind: ErrorKind, id: &'static str, message: String) -> PyErr {
    Python::attach(|py| {
        make(
            py,
            class_of(kind),
            (message, id, None::<String>, None::<String>),
        )
        .unwrap_or_else(|cannot| cannot)
    })
}

/// A broken invariant of this crate.
pub(crate) fn bug(what: &str) -> PyErr {
    PyRuntimeError::new_err(format!("a bug in shardmill: {what}"))
}

type Parts = (String, &'static str, Option<String>, Option<String>);

fn make(py: Python<'_>, class: &str, (message, id, object, hint): Parts) -> PyResult<PyErr> {
    let class = py.import("shardmill.errors")?.getattr(class)?;
    let class = class.cast::<PyType>()?;
    Ok(PyErr::from_value(class.call1((message, id, object, hint))?))
}

/// The text of the error and of what caused it.
fn message(error: &(impl Diagnostic + ?Sized)) -> String {
    let mut text = String::new();
    if let Some(object) = error.object() {
        text.push_str(&object);
        text.push_str(": ");
    }
    text.push_str(&error.to_string());
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
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
