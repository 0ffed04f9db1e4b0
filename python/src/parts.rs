//! Parts of datasets, written by tasks of Spark and Ray, and the commit that publishes them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use ::arrow::datatypes::{DataType, Schema, SchemaRef};
use pyo3::prelude::*;
use pyo3::sync::MutexExt as _;
use pyo3::types::PyDict;
use shardmill_core::{Diagnostic as _, Error, ErrorKind, Limits, escape};
use shardmill_mds::{Column, Encoding, HashAlgo, Layout, ShardConfig};
use shardmill_storage::{Destination, Location, RemoteOptions};
use shardmill_webdataset::{FieldSet, Profile, TarCompression};
use shardmill_writer::parts::{
    self, CommitOptions, GcOptions, Manifest, NameForm, PartWriter as Shards, SaveMode, Staging,
    Verify,
};
use shardmill_writer::{
    ColumnEncoder, RowEncoder, ShardForm, ShardPattern, TarForm, TarKeys, TarRows, Target,
    default_field, default_target,
};

use crate::errors::{bug, parse, raise, raise_with};
use crate::options::Keywords;
use crate::process::OfProcess;
use crate::storage::{Settings, remote_options};
use crate::waiting::detached;
use crate::writer::arrow::Batches;

fn invalid(id: &'static str, message: String) -> PyErr {
    raise_with(ErrorKind::InvalidInput, id, message)
}

/// The location of a dataset, as passed from Python.
struct Dest {
    location: Location,
    options: RemoteOptions,
}

impl Dest {
    fn new(dest: &str, settings: Option<Settings>) -> PyResult<Self> {
        Ok(Self {
            location: Location::parse(dest).map_err(raise)?,
            options: remote_options(settings).map_err(raise)?,
        })
    }

    /// Creates the location. `spool` is the folder for files that are waiting for upload.
    fn create(&self, spool: Option<&Path>) -> Result<Destination, Error> {
        Ok(Destination::create(&self.location, &self.options, spool)?)
    }

    /// Opens the location; `None` if the folder does not exist.
    fn find(&self) -> Result<Option<Destination>, Error> {
        match Destination::open(&self.location, &self.options, None) {
            Ok(destination) => Ok(Some(destination)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns the names of shards.
fn names(to: &str, pattern: Option<&str>) -> PyResult<NameForm> {
    match (to, pattern) {
        ("mds", None) => Ok(NameForm::Mds),
        ("mds", Some(_)) => {
            let message = "pattern: the names of mds shards are given".to_owned();
            Err(invalid("config-value", message))
        }
        ("webdataset", None) => Ok(NameForm::Tar(ShardPattern::default())),
        ("webdataset", Some(pattern)) => pattern
            .parse()
            .map(NameForm::Tar)
            .map_err(|error| invalid("config-value", format!("pattern: {error}"))),
        _ => {
            let message = format!("to: `{}` is neither mds nor webdataset", escape(to));
            Err(invalid("config-format", message))
        }
    }
}

/// Inspects a destination and returns the settings for all tasks of a job, as text.
#[pyfunction]
#[pyo3(signature = (dest, to, pattern, job, mode, settings=None))]
pub(crate) fn parts_begin(
    py: Python<'_>,
    dest: &str,
    to: &str,
    pattern: Option<&str>,
    job: &str,
    mode: &str,
    settings: Option<Settings>,
) -> PyResult<String> {
    let names = names(to, pattern)?;
    let mode = SaveMode::from_name(mode).ok_or_else(|| {
        let message = format!("mode: `{}` is not error, append or overwrite", escape(mode));
        invalid("config-value", message)
    })?;
    let dest = Dest::new(dest, settings)?;
    let limits = Limits::default();
    let staging = detached(py, |cancel| match dest.find()? {
        Some(destination) => Staging::begin(&destination, job, names, mode, &limits, cancel),
        None => Staging::fresh(job, names),
    })?;
    Ok(staging.to_json())
}

/// Publishes the parts of a job. Returns shards, samples, samples of the whole dataset, and whether an earlier call
/// had published it.
#[pyfunction]
#[pyo3(signature = (dest, staging, manifests, parts, hashes, settings=None))]
pub(crate) fn parts_commit(
    py: Python<'_>,
    dest: &str,
    staging: &str,
    manifests: Vec<String>,
    parts: Option<u64>,
    hashes: bool,
    settings: Option<Settings>,
) -> PyResult<(u64, u64, u64, bool)> {
    let staging = Staging::parse(staging).map_err(raise)?;
    let dest = Dest::new(dest, settings)?;
    let options = CommitOptions {
        parts,
        verify: match hashes {
            true => Verify::Hashes,
            false => Verify::Sizes,
        },
        ..CommitOptions::default()
    };
    let done = detached(py, |cancel| {
        let manifests = manifests
            .iter()
            .map(|text| Manifest::parse(text, &options.limits))
            .collect::<Result<Vec<_>, _>>()?;
        parts::commit(&dest.create(None)?, &staging, manifests, &options, cancel)
    })?;
    Ok((done.shards, done.samples, done.total_samples, done.was_done))
}

/// Removes what a job has written and not committed. Returns the number of files and folders.
#[pyfunction]
#[pyo3(signature = (dest, staging, settings=None))]
pub(crate) fn parts_abort(
    py: Python<'_>,
    dest: &str,
    staging: &str,
    settings: Option<Settings>,
) -> PyResult<u64> {
    let staging = Staging::parse(staging).map_err(raise)?;
    let dest = Dest::new(dest, settings)?;
    detached(py, |cancel| match dest.find()? {
        Some(destination) => parts::abort(&destination, &staging, &Limits::default(), cancel),
        None => Ok(0),
    })
}

/// Finds files that no dataset needs, and removes them if `delete` is set. Returns names, bytes and reasons.
#[pyfunction]
#[pyo3(signature = (dest, delete, older_than, pattern=None, settings=None))]
pub(crate) fn parts_gc(
    py: Python<'_>,
    dest: &str,
    delete: bool,
    older_than: Option<f64>,
    pattern: Option<&str>,
    settings: Option<Settings>,
) -> PyResult<Vec<(String, u64, &'static str)>> {
    let dest = Dest::new(dest, settings)?;
    let before = match older_than {
        None => None,
        Some(seconds) => {
            let age = Duration::try_from_secs_f64(seconds).ok();
            let before = age.and_then(|age| SystemTime::now().checked_sub(age));
            Some(before.ok_or_else(|| {
                invalid(
                    "config-value",
                    format!("older_than: {seconds} is not a number of seconds"),
                )
            })?)
        }
    };
    let options = GcOptions {
        delete,
        before,
        names: pattern
            .map(|pattern| names("webdataset", Some(pattern)))
            .transpose()?,
        ..GcOptions::default()
    };
    let report = detached(py, |cancel| match dest.find()? {
        Some(destination) => parts::gc(&destination, &options, cancel),
        None => Ok(parts::GcReport::default()),
    })?;
    let entries = report.entries.into_iter();
    Ok(entries
        .map(|entry| (entry.name, entry.bytes, entry.reason.name()))
        .collect())
}

/// The columns of a part, and the layout of its shards.
struct PartLayout {
    /// Names and encodings; by default all columns, with the encodings of their types.
    columns: Option<Vec<(String, Option<String>)>>,
    compression: Option<String>,
    hashes: Vec<String>,
    size_limit: Option<u64>,
    samples_per_shard: Option<u64>,
    key: Option<String>,
    scratch: Option<PathBuf>,
}

/// Creates the encoders of the columns to write, sorted by name.
fn compile(
    schema: &Schema,
    names: &NameForm,
    options: &PartLayout,
    limits: &Limits,
) -> PyResult<Vec<ColumnEncoder>> {
    let format = names.format();
    let rest = [("*".to_owned(), None)];
    let given = options.columns.as_deref().unwrap_or(&rest);
    let mut wanted: Vec<(&str, Option<&str>, bool)> = Vec::new();
    for (name, encoding) in given {
        match (&**name, encoding) {
            ("*", None) => {
                let is_given = |name: &String| {
                    let mut others = given.iter().filter(|(one, _)| one != "*");
                    others.any(|(one, _)| one == name || (one == "\"*\"" && name == "*"))
                };
                let names = schema.fields().iter().map(|field| field.name());
                let names =
                    names.filter(|name| Some(*name) != options.key.as_ref() && !is_given(name));
                wanted.extend(names.map(|name| (&**name, None, false)));
            }
            ("*", Some(_)) => {
                let message = "`*` stands for all other columns, in the encodings of their types";
                return Err(invalid("config-columns", message.to_owned()));
            }
            ("\"*\"", encoding) => wanted.push(("*", encoding.as_deref(), true)),
            (name, encoding) => wanted.push((name, encoding.as_deref(), true)),
        }
    }
    let mut columns = Vec::with_capacity(wanted.len());
    for (name, encoding, is_named) in wanted {
        let (at, field) = found(schema, name)?;
        let target = match (encoding, names) {
            (None, _) => default_target(field, format).map_err(raise)?,
            (Some(encoding), NameForm::Mds) => Target::Mds(parse::<Encoding>(encoding)?),
            (Some(encoding), NameForm::Tar(_)) => {
                Target::Field(encoding.parse().map_err(|error| {
                    invalid(
                        "encoding-unknown",
                        format!("column {}: {error}", escape(name)),
                    )
                })?)
            }
        };
        let mut field = field.clone();
        if matches!(names, NameForm::Tar(_)) && !is_named {
            let name = default_field(&field).map_err(raise)?.0;
            field.set_name(name);
        }
        columns.push(ColumnEncoder::compile(at, &field, target, limits).map_err(raise)?);
    }
    columns.sort_by(|a, b| a.name().cmp(b.name()));
    let mut seen = BTreeSet::new();
    if let Some(twice) = columns.iter().find(|column| !seen.insert(column.name())) {
        let name = escape(twice.name()).into_owned();
        return Err(invalid(
            "config-columns",
            format!("there are two columns `{name}`"),
        ));
    }
    if columns.is_empty() {
        return Err(invalid(
            "config-columns",
            "there is no column to write".to_owned(),
        ));
    }
    Ok(columns)
}

fn found<'a>(schema: &'a Schema, name: &str) -> PyResult<(usize, &'a ::arrow::datatypes::Field)> {
    schema.column_with_name(name).ok_or_else(|| {
        let names: Vec<&str> = schema
            .fields()
            .iter()
            .map(|field| field.name().as_str())
            .collect();
        let name = escape(name);
        let message = format!("there is no column `{name}`, only {}", names.join(", "));
        invalid("config-columns", message)
    })
}

/// Creates the encoder of rows, and the layout of shards.
fn form(
    schema: &Schema,
    names: &NameForm,
    options: &PartLayout,
    limits: &Limits,
) -> PyResult<(RowEncoder, ShardForm)> {
    let columns = compile(schema, names, options, limits)?;
    let hashes = options.hashes.iter().map(|name| parse::<HashAlgo>(name));
    let mut hashes = hashes.collect::<PyResult<Vec<_>>>()?;
    hashes.sort_by_key(ToString::to_string);
    let compression = options.compression.as_deref();
    let pattern = match names {
        NameForm::Mds => {
            if options.key.is_some() {
                let message = "key: samples of mds have none".to_owned();
                return Err(invalid("config-value", message));
            }
            let mut mds = Vec::with_capacity(columns.len());
            for column in &columns {
                let Target::Mds(encoding) = column.target() else {
                    return Err(bug("a column of another format"));
                };
                mds.push(Column {
                    name: column.name().to_owned(),
                    encoding: encoding.clone(),
                });
            }
            let compression = compression.map(parse).transpose()?;
            let config = ShardConfig::new_mds(mds, compression, hashes, options.size_limit)
                .map_err(raise)?;
            let encoder = RowEncoder::new(columns, &config.layout, limits.sample_bytes);
            return Ok((encoder, ShardForm::from(Arc::new(config))));
        }
        NameForm::Tar(pattern) => pattern.clone(),
    };
    let profile = Profile::default();
    for column in &columns {
        let name = column.name();
        if let Some(reason) = profile.field_problem(name) {
            let message = format!("the field `{}` {reason}", escape(name));
            return Err(invalid("config-columns", message));
        }
    }
    let keys = match &options.key {
        None => TarKeys::Number,
        Some(key) => {
            let (source, field) = found(schema, key)?;
            let text = [DataType::Utf8, DataType::LargeUtf8, DataType::Utf8View];
            if !text.contains(field.data_type()) && !field.data_type().is_integer() {
                let message = format!(
                    "key: column {} is neither text nor integers but {}",
                    escape(key),
                    field.data_type()
                );
                return Err(invalid("type-unsupported", message));
            }
            TarKeys::Column {
                source,
                name: key.clone(),
                unique: false,
            }
        }
    };
    let fields = FieldSet {
        always: columns.iter().map(|column| column.name().into()).collect(),
        sometimes: Vec::new(),
    };
    let compression = compression.map(parse::<TarCompression>).transpose()?;
    let form = TarForm {
        pattern,
        profile,
        fields: Arc::new(fields),
        compression,
        hashes,
        size_limit: options.size_limit,
    };
    let encoder = RowEncoder::tar(columns, TarRows { profile, keys }, limits.sample_bytes);
    Ok((encoder, ShardForm::Tar(Arc::new(form))))
}

/// One attempt of a part. All work is done in the caller's thread.
#[pyclass(frozen, module = "shardmill._core")]
pub(crate) struct PartWriter {
    staging: Staging,
    dest: Dest,
    part: u64,
    attempt: String,
    layout: PartLayout,
    limits: Limits,
    state: Mutex<OfProcess<State>>,
}

enum State {
    /// No rows were written yet, so the schema is unknown.
    Ready,
    Open {
        shards: Box<Shards>,
        schema: SchemaRef,
    },
    Ended,
}

impl PartWriter {
    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, OfProcess<State>> {
        let guard = self.state.lock_py_attached(py);
        guard.unwrap_or_else(PoisonError::into_inner)
    }

    fn closed() -> PyErr {
        invalid(
            "writer-closed",
            "the part was finished, or failed before".to_owned(),
        )
    }

    fn form(&self, schema: &Schema) -> PyResult<(RowEncoder, ShardForm)> {
        form(schema, self.staging.names(), &self.layout, &self.limits)
    }

    fn begin(&self, py: Python<'_>, schema: &SchemaRef) -> PyResult<Box<Shards>> {
        let (encoder, form) = self.form(schema)?;
        let samples = self.layout.samples_per_shard;
        let (staging, part, attempt) = (&self.staging, self.part, &self.attempt);
        let shards = detached(py, |_| {
            let destination = self.dest.create(self.layout.scratch.as_deref())?;
            Shards::new(destination, staging, part, attempt, encoder, form, samples)
        })?;
        Ok(Box::new(shards))
    }

    fn add(&self, py: Python<'_>, state: &mut State, batches: Batches) -> PyResult<u64> {
        let schema = batches.schema();
        match state {
            State::Ended => return Err(Self::closed()),
            State::Ready => {
                let shards = self.begin(py, &schema)?;
                *state = State::Open {
                    shards,
                    schema: Arc::clone(&schema),
                };
            }
            State::Open { schema: known, .. } if *known == schema => {}
            State::Open {
                shards,
                schema: known,
            } => {
                // The same columns with other types, such as `string` and `large_string`.
                let (encoder, form) = self.form(&schema)?;
                shards.change(encoder, &form).map_err(raise)?;
                *known = Arc::clone(&schema);
            }
        }
        let State::Open { shards, .. } = state else {
            return Err(bug("a part that is not open"));
        };
        batches.each_slice(py, |slice, _| {
            detached(py, |cancel| shards.push(slice, cancel))
        })
    }
}

#[pymethods]
impl PartWriter {
    #[new]
    #[pyo3(signature = (dest, staging, part, attempt, settings=None, **layout))]
    fn new(
        dest: &str,
        staging: &str,
        part: u64,
        attempt: String,
        settings: Option<Settings>,
        layout: Option<Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let given = Keywords::new("PartWriter", layout);
        let layout = PartLayout {
            columns: given.take("columns")?,
            compression: given.take("compression")?,
            hashes: given.take("hashes")?.unwrap_or_default(),
            size_limit: given.take("size_limit")?,
            samples_per_shard: given.take("samples_per_shard")?,
            key: given.take("key")?,
            scratch: given.take("scratch")?,
        };
        given.end()?;
        let staging = Staging::parse(staging).map_err(raise)?;
        // Check the names before anything is created.
        Manifest::empty(&staging, part, &attempt).map_err(raise)?;
        Ok(Self {
            staging,
            dest: Dest::new(dest, settings)?,
            part,
            attempt,
            layout,
            limits: Limits::default(),
            state: Mutex::new(OfProcess::new(State::Ready)),
        })
    }

    /// Checks that the columns of an Arrow table, batch or stream can be written, and returns the encodings of columns of
    /// MDS. Writes nothing.
    fn check(&self, object: &Bound<'_, PyAny>) -> PyResult<Vec<(String, String)>> {
        let schema = Batches::of(object)?.schema();
        let (_, form) = self.form(&schema)?;
        let mut encodings = Vec::new();
        if let ShardForm::Streaming(config) = form
            && let Layout::Mds { columns } = &config.layout
        {
            let columns = columns.iter();
            encodings.extend(columns.map(|each| (each.name.clone(), each.encoding.to_string())));
        }
        Ok(encodings)
    }

    /// Adds the rows of an Arrow table, batch or stream. Returns the number of rows. After an error no more rows can be
    /// added, and what was written is removed.
    fn write_arrow(&self, object: &Bound<'_, PyAny>) -> PyResult<u64> {
        let py = object.py();
        let batches = Batches::of(object)?;
        let mut guard = self.lock(py);
        let state = guard.get_mut().ok_or_else(Self::closed)?;
        let outcome = self.add(py, state, batches);
        if outcome.is_err() {
            let open = std::mem::replace(state, State::Ended);
            py.detach(|| drop(open));
        }
        outcome
    }

    /// Writes the last shard and returns the manifest as text.
    fn finish(&self, py: Python<'_>) -> PyResult<String> {
        let mut guard = self.lock(py);
        let state = guard.get_mut().ok_or_else(Self::closed)?;
        let manifest = match std::mem::replace(state, State::Ended) {
            State::Ended => return Err(Self::closed()),
            State::Open { shards, .. } => detached(py, |cancel| shards.finish(cancel))?,
            State::Ready => {
                Manifest::empty(&self.staging, self.part, &self.attempt).map_err(raise)?
            }
        };
        Ok(manifest.to_json())
    }

    /// Ends the attempt and removes what it has written. Does nothing after the attempt has ended.
    fn abort(&self, py: Python<'_>) {
        let mut guard = self.lock(py);
        if let Some(state) = guard.get_mut() {
            let open = std::mem::replace(state, State::Ended);
            py.detach(|| drop(open));
        }
    }
}
