//! Writes messages and progress to standard error.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use clap::builder::styling::{AnsiColor, Style};
use indicatif::ProgressBar;
use serde::Serialize;

use super::exit::kind_name;
use super::{Signal, exit_code};
use crate::error::Fault;

/// The address of the manual, where every error id has an entry of its own. It is `site_url` in `mkdocs.yml`.
const DOCS_URL: &str = "https://shardmill.github.io/shardmill/";

const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();

/// Standard error. Lines are written one at a time, above the progress bar if there is one.
pub struct Console {
    json: bool,
    quiet: bool,
    color: bool,
    bar: Mutex<Option<ProgressBar>>,
}

/// The JSON form of an error or a warning.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum JsonLine<'a> {
    Error(ErrorFields<'a>),
    Warning(&'a Fault),
}

/// The fields of an error line.
#[derive(Serialize)]
pub struct ErrorFields<'a> {
    #[serde(flatten)]
    fault: &'a Fault,
    docs: String,
    kind: &'static str,
    exit_code: u8,
}

/// Returns the fields of an error line in JSON.
pub fn error_value(fault: &Fault, signal: Option<Signal>) -> ErrorFields<'_> {
    ErrorFields {
        fault,
        docs: format!("{DOCS_URL}reference/errors/#{}", fault.id),
        kind: kind_name(fault.kind),
        exit_code: exit_code(fault.kind, signal),
    }
}

impl Console {
    pub fn new(json: bool, quiet: bool) -> Self {
        let choice = anstream::AutoStream::choice(&io::stderr());
        Self {
            json,
            quiet,
            color: choice != anstream::ColorChoice::Never,
            bar: Mutex::new(None),
        }
    }

    /// Writes one line. Errors are ignored, because there is no other place to report them.
    pub fn line(&self, line: impl fmt::Display) {
        let _ = self.write(line);
    }

    fn write(&self, line: impl fmt::Display) -> io::Result<()> {
        let write = || {
            let mut stderr = io::stderr().lock();
            // The line is written in one call, so that lines of several processes do not mix.
            stderr.write_all(format!("{line}\n").as_bytes())
        };
        match &*self.bar.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Prints a note that requires no action.
    pub fn note(&self, note: impl fmt::Display) {
        if !self.quiet && !self.json {
            self.line(note);
        }
    }

    /// Prints a failure, with its exit code.
    pub fn error(&self, fault: &Fault, signal: Option<Signal>) {
        if self.json {
            self.json(&JsonLine::Error(error_value(fault, signal)));
        } else {
            self.fault("error", ERROR, fault);
        }
    }

    /// Prints a warning that does not stop the work.
    pub fn warning(&self, fault: &Fault) {
        if self.json {
            self.json(&JsonLine::Warning(fault));
        } else {
            self.fault("warning", WARNING, fault);
        }
    }

    /// Writes the line of an error or a warning.
    fn fault(&self, word: &str, style: Style, fault: &Fault) {
        match self.color {
            true => self.line(format_args!("{style}{word}{style:#}{fault}")),
            false => self.line(format_args!("{word}{fault}")),
        }
    }

    /// Writes a value as one line of JSON. Returns whether standard error is still read.
    pub(super) fn json(&self, value: &impl Serialize) -> bool {
        serde_json::to_string(value).is_ok_and(|line| {
            let written = self.write(line);
            !written.is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
        })
    }

    pub(super) fn set_bar(&self, bar: Option<ProgressBar>) {
        *self.bar.lock().unwrap_or_else(PoisonError::into_inner) = bar;
    }
}
