//! The command `shardmill view`: shows a dataset in the browser.

use std::ffi::OsString;
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use shardmill_convert::{RowReader, RowValue};
use shardmill_core::{Error, Limits, escape};
use shardmill_dataset::{DatasetError, DatasetProblem, View, ViewTarget};
use shardmill_source::VersionChoice;
use shardmill_storage::{Location, PublishMode};
use shardmill_tokenize::{TokenOptions, Tokenizer};
use shardmill_view::{
    FieldValue, Metrics, Program, RowSource, Samples, Selections, Server, Viewed, report,
};

use super::dataset_location::DatasetLocation;
use super::samples::SampleChoice;
use super::shards::Shards;
use super::{options, rows, source_views};
use crate::args::{GlobalArgs, SampleArgs, StorageArgs, values};
use crate::error::Stop;
use crate::output::{Exit, Output, bytes, error_value};

/// Show a dataset in the browser: samples, columns, shards, order and plan
///
/// Starts a server on this machine and prints its address, which contains a random token. Nothing is written, and no other
/// machine can connect. The pages show what `inspect`, `select`, `verify`, `stats`, `order`, `which` and `plan` print,
/// with the command line and the Python line to copy. Tables and trees of files are shown as well. It runs until it is
/// interrupted.
#[derive(Args, Debug)]
pub struct ViewArgs {
    /// The dataset, the tar files or the source, in a directory or in a store
    #[arg(value_name = "DATASET")]
    pub location: String,

    /// The port of the server; 0 for any free one
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "N",
        default_value = "0", value_parser = values::port)]
    pub port: u16,

    /// Also open the page in the browser of the desktop
    #[arg(long, conflicts_with = "export")]
    pub open: bool,

    /// The token of the address instead of a random one: at least 16 letters, digits, `-` or `_`
    #[arg(
        long,
        value_name = "TOKEN",
        env = "SHARDMILL_VIEW_TOKEN",
        hide_env_values = true
    )]
    pub read_only_token: Option<String>,

    /// Write a page with the first samples, statistics and shards to this file instead, which needs no server
    #[arg(long, value_name = "FILE", conflicts_with = "port", value_parser = values::local_path)]
    pub export: Option<PathBuf>,

    /// Show the text of columns of token ids with this tokenizer file (`tokenizer.json`)
    #[arg(long, value_name = "FILE", value_parser = values::local_path)]
    pub tokenizer: Option<PathBuf>,

    /// Show which shards are in this folder of a cache, the `local` of a run
    #[arg(long, value_name = "DIR", conflicts_with = "export", value_parser = values::local_path)]
    pub cache: Option<PathBuf>,

    /// Show the metrics of a running job from this address of `shardmill.metrics.serve`
    #[arg(long, value_name = "URL", conflicts_with = "export", value_parser = values::not_empty)]
    pub metrics: Option<String>,

    #[command(flatten)]
    pub samples: SampleArgs,

    #[command(flatten)]
    pub storage: StorageArgs,
}

/// The time after which the file that opens the browser is removed.
const OPENING_TIME: Duration = Duration::from_secs(30);

#[derive(Serialize)]
struct Exported<'a> {
    file: &'a str,
    bytes: usize,
}

pub fn run(
    args: &ViewArgs,
    global: &GlobalArgs,
    limits: Limits,
    out: &mut Output,
) -> Result<Exit, Stop> {
    let tokenizer = args.tokenizer.as_deref();
    let tokenizer = tokenizer.map(|file| Tokenizer::open(file, &TokenOptions::default()));
    let metrics = args.metrics.as_deref().map(Metrics::parse).transpose()?;
    let viewed = Viewed {
        samples: samples(&args.location, args, &limits)?
            .including_deleted(args.samples.with_deleted),
        program: program(args, global)?,
        explain,
        selections: Selections::default(),
        cache: args.cache.clone(),
        metrics,
        tokens: tokenizer.transpose()?.map(Box::new),
    };
    if let Some(path) = &args.export {
        return export(path, &viewed, out);
    }
    let server = Server::bind(viewed, args.port, args.read_only_token.as_deref())?;
    let url = server.url();
    let json = serde_json::json!({ "url": url });
    out.result(&json, |out| out.line(&url))?;
    out.note("the address is for this machine only; Ctrl-C stops the server")?;
    if args.open {
        open(&url)?;
    }
    server.run();
    Ok(Exit::Done)
}

/// Opens the samples at a location.
fn samples(location: &str, args: &ViewArgs, limits: &Limits) -> Result<Samples, Stop> {
    let dataset_location = DatasetLocation::parse(location, &args.storage)?;
    dataset_location.read_ahead(limits);
    let choice = SampleChoice::read(&args.samples, &args.storage)?;
    if rows::find(location, &dataset_location, limits)?.is_none() {
        let rows = SourceRows::open(location, &dataset_location, args, limits)?;
        return Ok(Samples::of_rows(Box::new(rows)));
    }
    Ok(
        match Shards::open(location, &dataset_location, limits, &choice)? {
            Shards::Indexed(dataset) => Samples::of_dataset(*dataset),
            Shards::Tars(tars) => Samples::of_tars(tars.set, limits.clone()),
        },
    )
}

/// The rows of a source, and how to open it again.
#[derive(Debug)]
struct SourceRows {
    rows: RowReader,
    format: Option<&'static str>,
    /// The fingerprint of the files that are shown.
    fingerprint: String,
    location: String,
    storage: StorageArgs,
    view: Option<Location>,
    limits: Limits,
    target: OnceLock<ViewTarget>,
}

impl SourceRows {
    fn open(
        location: &str,
        dataset_location: &DatasetLocation,
        args: &ViewArgs,
        limits: &Limits,
    ) -> Result<Self, Stop> {
        let (storage, view) = (&args.storage, &args.samples.view);
        let source = rows::open(location, storage, limits.clone(), view.as_ref(), 1)?;
        let description = source.description();
        Ok(Self {
            format: source_views::table_format(description.kind, dataset_location),
            fingerprint: description.fingerprint.clone(),
            rows: RowReader::open(source)?,
            location: location.to_owned(),
            storage: storage.clone(),
            view: view.clone(),
            limits: limits.clone(),
            target: OnceLock::new(),
        })
    }

    /// Finds what views of the rows refer to. They must be the ones that are shown.
    fn find_target(&self) -> Result<ViewTarget, Stop> {
        let (text, storage) = (&*self.location, &self.storage);
        let now = rows::open(text, storage, self.limits.clone(), self.view.as_ref(), 1)?;
        if now.description().fingerprint != self.fingerprint {
            let reason = "the source has changed since it was opened; start `view` again";
            return Err(DatasetProblem::FileChanged.at(text, reason).into());
        }
        let dataset_location = DatasetLocation::parse(text, storage)?;
        let version = VersionChoice::default();
        let found = source_views::find(
            text,
            &dataset_location,
            storage,
            &self.limits,
            None,
            version,
        )?;
        let mut target = found.target;
        if let Some(view) = &self.view {
            let view = View::read(view, &options::remote(storage)?)?;
            target.live = view.live_of(&target, text)?;
        }
        Ok(target)
    }
}

impl RowSource for SourceRows {
    fn rows(&self) -> u64 {
        self.rows.rows()
    }

    fn format(&self) -> Option<&'static str> {
        self.format
    }

    fn view_target(&self) -> Result<ViewTarget, serde_json::Value> {
        if let Some(known) = self.target.get() {
            return Ok(known.clone());
        }
        let found = self.find_target().map_err(|stop| match stop {
            Stop::Error(error) => described(&error),
            Stop::ClosedPipe => serde_json::Value::Null,
        })?;
        Ok(self.target.get_or_init(|| found).clone())
    }

    fn visit(
        &self,
        rows: Range<u64>,
        show: &mut dyn FnMut(u64, &FieldValue<'_>),
    ) -> Result<u64, serde_json::Value> {
        let read = self
            .rows
            .visit(rows, &mut |number, RowValue { name, value, bytes }| {
                let field = FieldValue {
                    name,
                    encoding: "".into(),
                    bytes,
                    stored_bytes: bytes.len() as u64,
                    value: Ok(value.clone()),
                };
                show(number, &field);
            });
        read.map_err(|error| described(&error))
    }
}

/// Returns how the page runs this program again.
fn program(args: &ViewArgs, global: &GlobalArgs) -> Result<Program, Error> {
    let path = std::env::current_exe()
        .map_err(|error| Error::io("not available", error).about("shardmill"))?;
    let storage = &args.storage;
    let settings = storage.settings();
    let mut shown_options: Vec<String> = settings
        .map(|(option, _, value)| format!("{option}={value}"))
        .collect();
    let limits = global.limits.iter();
    shown_options.extend(limits.map(|(name, value)| format!("--safety-limit={name}={value}")));
    let secret = storage.storage_options.iter();
    let secret = secret.map(|setting| format!("--storage-option={setting}"));
    let words = shown_options.iter().cloned().chain(secret);
    Ok(Program {
        path,
        location: args.location.clone(),
        view: args.samples.view.as_ref().map(ToString::to_string),
        options: words.map(OsString::from).collect(),
        shown_options,
    })
}

/// Describes an error of a sample as an error line does.
fn explain(error: DatasetError) -> serde_json::Value {
    described(&Error::from(error))
}

fn described(error: &Error) -> serde_json::Value {
    serde_json::to_value(error_value(error, None)).unwrap_or_default()
}

fn export(path: &Path, viewed: &Viewed, out: &mut Output) -> Result<Exit, Stop> {
    let page = report(viewed)?;
    let (dir, name) = options::folder_of("config-export", path, "pass the path of a file")?;
    dir.publish_bytes(None, name, page.as_bytes(), PublishMode::Replace)?;
    let file = &*path.to_string_lossy();
    let exported = Exported {
        file,
        bytes: page.len(),
    };
    if out.wants_summary(&exported)? {
        out.line(format_args!(
            "{}: {}",
            escape(file),
            bytes(page.len() as u64)
        ))?;
    }
    Ok(Exit::Done)
}

/// Opens the browser of the desktop. The address is in a file that only this user can read, because other users can read
/// the arguments of a process.
fn open(url: &str) -> Result<(), Stop> {
    let opener = if cfg!(target_os = "macos") {
        "open"
    } else {
        "xdg-open"
    };
    let failed = |error| Error::io("not available", error).about(opener);
    let mut file = tempfile::Builder::new()
        .prefix("shardmill-view-")
        .suffix(".html")
        .tempfile()
        .map_err(failed)?;
    let page = format!("<!doctype html>\n<meta http-equiv=\"refresh\" content=\"0; url={url}\">\n");
    file.write_all(page.as_bytes()).map_err(failed)?;
    let started = Command::new(opener)
        .arg(file.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut child = started.map_err(failed)?;
    thread::spawn(move || {
        // Whether a browser opened is visible; the address is printed in any case.
        let _ = child.wait();
        thread::sleep(OPENING_TIME);
        drop(file);
    });
    Ok(())
}
