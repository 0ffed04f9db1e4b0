//! Decides what has to be done to bring a dataset up to date.

use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;
use serde_json::json;
use shardmill_core::{Error, escape};
use shardmill_dataset::{
    DatasetError, DatasetProblem, IndexShape, PENDING_NAME, Pending, RECORD_NAME, SIDE_BYTES,
    TOMBSTONES_NAME, check_sides,
};
use shardmill_source::{DeltaHistory, Source, SourceKind, SourceOptions};
use shardmill_storage::{Destination, StorageError};
use shardmill_writer::{DatasetIndex, INDEX_NAME};

use crate::error::{conflict, other_option};
use crate::identity::Identity;
use crate::options::ConvertOptions;
use crate::pending::read_side;
use crate::target::Target;

use super::record::Record;
use super::step::{self, Step};

/// An existing dataset that can be brought up to date.
#[derive(Debug)]
pub(super) struct ExistingDataset {
    pub(super) record: Record,
    pub(super) index: DatasetIndex,
    /// The text of the record.
    pub(super) text: Vec<u8>,
    /// The problem with the side files that readers need, if there is one.
    pub(super) fault: Option<DatasetError>,
}

/// The work that brings a dataset up to date.
#[derive(Debug)]
pub(crate) struct Increment {
    pub(super) existing: ExistingDataset,
    pub(super) version: u64,
    pub(super) step: Step,
}

/// The planned work that brings a dataset up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PlannedIncrement {
    /// The current table version of the dataset.
    pub from_version: u64,
    /// The new table version.
    pub version: u64,
    /// The number of table files to read.
    pub files: usize,
    /// The number of samples to compare with the rows of these files.
    pub samples: u64,
}

impl Increment {
    /// Returns the work that brings the destination up to date, or `None` if no dataset exists yet.
    ///
    /// # Errors
    ///
    /// Returns `InvalidInput` if the options do not allow increments, and `Conflict` if the destination is not the result
    /// of an earlier run. Returns the error of reading the table.
    pub(crate) fn prepare(
        kind: SourceKind,
        options: &ConvertOptions,
        table: &SourceOptions,
    ) -> Result<Option<Self>, Error> {
        check(kind, options)?;
        let [source] = options.sources.as_slice() else {
            return Err(refused("a table is converted alone".to_owned()));
        };
        if options.run.overwrite {
            return Ok(None);
        }
        let destination =
            match Destination::open(&options.dest, &options.source.remote, options.spool()) {
                Ok(destination) => destination,
                Err(error) if error.is_not_found() => return Ok(None),
                // The later inspection of the destination reports this error.
                Err(StorageError::NotDirectory { .. }) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
        let progress = shardmill_core::Progress::new();
        let Some(existing) = read(Target::new(&destination, &progress), options)? else {
            return Ok(None);
        };
        let history = shardmill_source::delta_history(source, table, existing.record.version())?;
        check_history(&existing.record, &history, options)?;
        Ok(Some(Self {
            step: step::step(&existing.record.all_file_samples, &history),
            version: history.version,
            existing,
        }))
    }

    /// Checks that the configuration is the one that the dataset was made with.
    pub(crate) fn check_config(
        &self,
        identity: &Identity,
        options: &ConvertOptions,
    ) -> Result<(), Error> {
        let record = &self.existing.record;
        let same_source = json!({
            "config": record.config,
            "config_fingerprint": record.config_fingerprint,
            "source_fingerprint": identity.source_fingerprint,
        });
        match identity.difference(&same_source) {
            None => Ok(()),
            Some(difference) => Err(conflict(
                options.dest_text(),
                "dest-conflict",
                format!("it was made with another configuration: {difference}"),
                "convert as before, with --column if the table has other columns now, or pass --overwrite",
            )),
        }
    }

    /// Restricts the source options to the files of an self.
    pub(crate) fn narrowed(&self, mut table: SourceOptions) -> SourceOptions {
        table.delta.choice.version = Some(self.version);
        table.delta.choice.timestamp_ms = None;
        table.delta.only = Some(Arc::new(self.step.read.clone()));
        table
    }

    pub(crate) fn planned(&self) -> PlannedIncrement {
        PlannedIncrement {
            from_version: self.existing.record.version(),
            version: self.version,
            files: self.step.read.len(),
            samples: self.step.touched.len(),
        }
    }

    /// Returns whether the samples of the dataset already match the table.
    pub(crate) fn is_nothing(&self) -> bool {
        self.step.read.is_empty() && self.step.touched.is_empty()
    }

    /// Returns whether the record is also up to date.
    pub(super) fn is_noted(&self) -> bool {
        self.is_nothing() && self.step.kept == self.existing.record.all_file_samples
    }

    /// Returns the identity of this increment. An interrupted increment with the same identity is resumed.
    pub(super) fn identity(&self, plan: &Identity) -> Identity {
        let text = [plan.source_fingerprint.as_bytes(), &self.existing.text].concat();
        Identity {
            source_fingerprint: format!("{:032x}", xxhash_rust::xxh3::xxh3_128(&text)),
            ..plan.clone()
        }
    }
}

fn refused(reason: String) -> Error {
    other_option("incremental", reason)
        .with_hint("convert without --incremental, to a new destination or with --overwrite")
}

fn check(kind: SourceKind, options: &ConvertOptions) -> Result<(), Error> {
    if kind != SourceKind::Delta {
        return Err(refused(format!(
            "the source is {kind}, and only a Delta table records what was added to it"
        )));
    }
    let reason = match () {
        () if options.run.part.is_some() => {
            "it cannot be combined with --part: only a run over all rows knows which of them are new"
        }
        () if !options.columns.splits().is_empty() => {
            let reason = match options.columns.split_key {
                None => "the split of a row depends on its place in the table, which changes",
                Some(_) => "several datasets cannot be replaced at once",
            };
            return Err(other_option(
                "incremental",
                format!("it cannot be combined with --split: {reason}"),
            )
            .with_hint("make each split a dataset of its own, as in --where \"md5(key) < 'cc'\""));
        }
        () if !options.shards.tar.readers().is_empty() => {
            let reason = "it cannot be combined with --index-for: the indexes of other readers cannot be replaced together with the index";
            let hint = "omit --index-for, and write them afterwards with `shardmill index export DATASET --for READER --force`";
            return Err(other_option("incremental", reason).with_hint(hint));
        }
        () => return Ok(()),
    };
    Err(refused(reason.to_owned()))
}

/// Checks that each row comes from exactly one file.
pub(crate) fn check_source(source: &Arc<dyn Source>) -> Result<(), Error> {
    if source.units().iter().all(|unit| unit.file.is_some()) {
        return Ok(());
    }
    let query = source.description().query.clone().unwrap_or_default();
    Err(refused(format!(
        "the query needs the whole table, not one row at a time: {}",
        escape(&query)
    )))
}

fn check_history(
    record: &Record,
    history: &DeltaHistory,
    options: &ConvertOptions,
) -> Result<(), Error> {
    let conflict = |reason: String, hint: &'static str| {
        conflict(options.dest_text(), "dest-conflict", reason, hint)
    };
    if history.id != record.table {
        return Err(conflict(
            format!(
                "it was made from another table: {} and not {}",
                escape(&record.table),
                escape(&history.id)
            ),
            "choose another destination, or pass --overwrite to replace it",
        ));
    }
    let version = record.version();
    if history.version < version {
        return Err(conflict(
            format!(
                "it holds version {version} of the table, and version {} is older",
                history.version
            ),
            "ask for a later version, or pass --overwrite to convert the older one anew",
        ));
    }
    Ok(())
}

/// Reads the dataset at the destination, if there is one. Pending changes of a killed run count as done.
pub(super) fn read(
    target: Target<'_>,
    options: &ConvertOptions,
) -> Result<Option<ExistingDataset>, Error> {
    let limits = &options.source.limits;
    let conflict = |reason: String, hint: &'static str| {
        conflict(options.dest_text(), "dest-not-incremental", reason, hint)
    };
    let Some(text) = target.read(INDEX_NAME, limits.index_bytes)? else {
        return Ok(None);
    };
    let index = DatasetIndex::parse(&text, limits).map_err(|error| {
        conflict(
            format!("its {INDEX_NAME} cannot be read: {error}"),
            "pass --overwrite to convert it again",
        )
    })?;
    let side = |name: &str, max| match name {
        INDEX_NAME | PENDING_NAME => target.read(name, max),
        name => read_side(target, ("", options.shards.to), &text, (name, max)),
    };
    let Some(noted) = side(RECORD_NAME, SIDE_BYTES)? else {
        return Err(conflict(
            format!("it holds a dataset without {RECORD_NAME}: it was not made with --incremental"),
            "choose another destination, or pass --overwrite to convert it anew",
        ));
    };
    let record = Record::parse(&noted).map_err(|reason| {
        conflict(
            format!("its {RECORD_NAME} cannot be read: {reason}"),
            "pass --overwrite to convert it again",
        )
    })?;
    if record.index != Pending::hash(&text) {
        return Err(conflict(
            format!("another program changed its {INDEX_NAME} since then"),
            "pass --overwrite to convert it again",
        ));
    }
    let shape = IndexShape::of(index.shard_samples());
    let fault = match check_sides(&side, &shape, limits.index_bytes) {
        Ok(live) if record.tombstones.is(live.deleted_ranges()) => None,
        Ok(_) => Some(DatasetProblem::TombstonesDamaged.at(
            PathBuf::from(TOMBSTONES_NAME),
            format!("it names other samples than {RECORD_NAME}"),
        )),
        Err(fault) => Some(fault),
    };
    Ok(Some(ExistingDataset {
        record,
        index,
        text: noted,
        fault,
    }))
}
