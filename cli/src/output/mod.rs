//! Standard output, standard error, progress and exit codes. Data is written to standard output, everything else to
//! standard error. No other module of this package writes to either.

mod console;
mod exit;
mod human;
mod progress;
mod table;
mod value;

pub use console::{Console, error_value};
pub use exit::{Exit, Signal, exit_code};
pub use human::{amount, bytes, count, many, needed, percent, rate, ratio, seconds};
pub use progress::show_progress;
pub use shardmill_mds::value_json::{begin_entry, number_text, write_value};
pub use table::{Table, terminal_width};
pub use value::cell_text;

use std::fmt;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::sync::Arc;

use shardmill_core::Error;

use serde::Serialize;

use crate::args::{ColorName, GlobalArgs, ProgressName};
use crate::error::Stop;

/// Decides whether the text of this process has colors. `Auto` follows NO_COLOR, CLICOLOR and CLICOLOR_FORCE.
pub fn set_color(color: ColorName) {
    let choice = match color {
        ColorName::Auto => anstream::ColorChoice::Auto,
        ColorName::Always => anstream::ColorChoice::Always,
        ColorName::Never => anstream::ColorChoice::Never,
    };
    choice.write_global();
}

/// The JSON form of a report about a dataset.
#[derive(Serialize)]
pub struct DatasetReport<'a, T> {
    pub dataset: &'a str,
    #[serde(flatten)]
    pub report: &'a T,
}

/// The output of a command.
pub struct Output {
    json: bool,
    quiet: bool,
    verbose: bool,
    progress: ProgressName,
    stdout: BufWriter<StdoutLock<'static>>,
    console: Arc<Console>,
}

impl Output {
    pub fn new(global: &GlobalArgs) -> Self {
        let terminal = io::stderr().is_terminal();
        let progress = match global.progress {
            _ if global.quiet => ProgressName::None,
            ProgressName::Auto if terminal => ProgressName::Bar,
            ProgressName::Auto if global.json => ProgressName::None,
            ProgressName::Auto => ProgressName::Plain,
            typed => typed,
        };
        Self {
            json: global.json,
            quiet: global.quiet,
            verbose: global.verbose,
            progress,
            stdout: BufWriter::with_capacity(64 << 10, io::stdout().lock()),
            console: Arc::new(Console::new(global.json, global.quiet)),
        }
    }

    /// Returns whether results are written as JSON.
    pub const fn is_json(&self) -> bool {
        self.json
    }

    /// Returns whether summaries and notes are suppressed.
    pub const fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Returns whether summaries contain more details.
    pub const fn is_verbose(&self) -> bool {
        self.verbose
    }

    pub const fn progress_mode(&self) -> ProgressName {
        self.progress
    }

    /// Returns standard error.
    pub fn console(&self) -> &Arc<Console> {
        &self.console
    }

    /// Writes one line to standard output.
    pub fn line(&mut self, line: impl fmt::Display) -> Result<(), Stop> {
        let written = writeln!(self.stdout, "{line}");
        closed(written)
    }

    /// Writes text to standard output unchanged.
    pub fn text(&mut self, text: impl fmt::Display) -> Result<(), Stop> {
        let written = write!(self.stdout, "{text}");
        closed(written)
    }

    /// Writes bytes to standard output unchanged.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let written = self.stdout.write_all(bytes);
        closed(written)
    }

    /// Writes a value as one line of JSON to standard output.
    pub fn json(&mut self, value: &impl Serialize) -> Result<(), Stop> {
        let mut line = serde_json::to_vec(value).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        self.bytes(&line)
    }

    /// Writes a result as one line of JSON if `--json` is given. Otherwise `show` writes it as text.
    pub fn result(
        &mut self,
        result: &impl Serialize,
        show: impl FnOnce(&mut Self) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        match self.json {
            true => self.json(result),
            false => show(self),
        }
    }

    /// Writes a result as one line of JSON if `--json` is given. Returns whether it is to be summarized as text instead,
    /// which `--quiet` suppresses.
    pub fn wants_summary(&mut self, result: &impl Serialize) -> Result<bool, Stop> {
        if self.json {
            self.json(result)?;
        }
        Ok(!self.json && !self.quiet)
    }

    /// Prints a note that requires no action, after the buffered output.
    pub fn note(&mut self, note: impl fmt::Display) -> Result<(), Stop> {
        self.flush()?;
        self.console.note(note);
        Ok(())
    }

    /// Flushes buffered output.
    pub fn flush(&mut self) -> Result<(), Stop> {
        let flushed = self.stdout.flush();
        closed(flushed)
    }
}

fn closed(result: io::Result<()>) -> Result<(), Stop> {
    result.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Stop::ClosedPipe,
        _ => failed(error).into(),
    })
}

fn failed(error: io::Error) -> Error {
    Error::io("cannot write", error).about("standard output")
}
