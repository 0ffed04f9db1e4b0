//! Writes messages and progress to standard error.

use std::fmt;
use std::io::{self, Write};
use std::sync::Mutex;

use clap::builder::styling::{AnsiColor, Style};
use indicatif::ProgressBar;
use serde::Serialize;
use shardmill_core::{Error, lock};

use super::exit::kind_name;
use super::{Signal, exit_code};
use crate::error::Shown;

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
enum JsonLine {
    Error(ErrorFields),
    Warning(Shown),
}

/// The fields of an error line.
#[derive(Serialize)]
pub struct ErrorFields {
    #[serde(flatten)]
    shown: Shown,
    docs: String,
    kind: &'static str,
    exit_code: u8,
}

/// Returns the fields of an error line in JSON.
pub fn error_value(error: &Error, signal: Option<Signal>) -> ErrorFields {
    ErrorFields {
        shown: error.into(),
        docs: format!("{DOCS_URL}reference/errors/#{}", error.id()),
        kind: kind_name(error.kind()),
        exit_code: exit_code(error.kind(), signal),
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
        match &*lock(&self.bar) {
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
    pub fn error(&self, error: &Error, signal: Option<Signal>) {
        if self.json {
            self.json(&JsonLine::Error(error_value(error, signal)));
        } else {
            self.write_error("error", ERROR, &error.into());
        }
    }

    /// Prints a warning that does not stop the work.
    pub fn warning(&self, error: &Error) {
        if self.json {
            self.json(&JsonLine::Warning(error.into()));
        } else {
            self.write_error("warning", WARNING, &error.into());
        }
    }

    /// Writes the line of an error or a warning.
    fn write_error(&self, word: &str, style: Style, shown: &Shown) {
        match self.color {
            true => self.line(format_args!("{style}{word}{style:#}{shown}")),
            false => self.line(format_args!("{word}{shown}")),
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
        *lock(&self.bar) = bar;
    }
}
