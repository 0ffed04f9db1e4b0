//! Reads the log: the version, its files, and their deleted rows. The Delta kernel replays it.

mod adds;
mod alias;
mod commits;
mod history;
mod log_file;
mod table;
mod version;

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::Array as _;
use delta_kernel::engine::arrow_data::EngineDataArrowExt as _;
use delta_kernel::history_manager::error::LogHistoryError;
use delta_kernel::history_manager::{HistoryCommitType, get_earliest_commit, latest_version_as_of};
use delta_kernel::object_store::DynObjectStore;
use delta_kernel::object_store::local::LocalFileSystem;
use delta_kernel::object_store::path::Path as ObjectPath;
use delta_kernel::table_features::{ColumnMappingMode, TableFeature};
use delta_kernel::{KernelError, Snapshot, SnapshotRef};
use delta_kernel_default_engine::DefaultEngineBuilder;
use shardmill_storage::{Location, Remote};
use url::Url;

use shardmill_core::catch_panic::{catch, one_line};
use shardmill_core::{Error, escape};

use crate::error::Problem;
use crate::schema::{Column, columns};
use crate::store::KernelStore;
use crate::summary::{DeltaHistory, DeltaProtocol, DeltaSummary, VersionChoice};
use crate::time::shown_time;
use adds::{Adds, records};
pub use log_file::{Deletion, LogFile, LogPath};
pub use table::DeltaTable;
pub use version::Version;

/// The table features that this crate supports. It refuses a table that requires any other.
const READABLE: &[TableFeature] = &[
    TableFeature::ColumnMapping,
    TableFeature::DeletionVectors,
    TableFeature::TimestampWithoutTimezone,
    TableFeature::TypeWidening,
    TableFeature::TypeWideningPreview,
    TableFeature::V2Checkpoint,
    TableFeature::VacuumProtocolCheck,
    TableFeature::VariantType,
    TableFeature::VariantTypePreview,
    TableFeature::VariantShredding,
    TableFeature::VariantShreddingPreview,
];

const CATALOG: &str =
    "its catalog alone knows its versions: export the rows as Parquet there and convert that";

/// The folder of the log in a table.
pub const LOG_FOLDER: &str = "_delta_log";

/// The URL of the bucket that the kernel sees.
const BUCKET: &str = "s3://bucket/";

/// Runs work of the kernel, whose panics become ordinary errors.
fn without_panics<T>(shown: &str, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch(work).unwrap_or_else(|panic| Err(wrong(shown, &panic)))
}

fn wrong(shown: &str, reason: &str) -> Error {
    Problem::Log.at(shown, format!("table log: {reason}"))
}

impl DeltaTable {
    /// Finds the log of the table at a location. `bucket` is the whole bucket of a location in a store.
    ///
    /// # Errors
    ///
    /// `delta-no-table` if there is no log; errors of the file system and the store.
    pub fn new(location: &Location, bucket: Option<&Remote>) -> Result<Self, Error> {
        let shown = location.to_string();
        let no_url = || wrong(&shown, "the location cannot be written as a URL");
        let (root, directory) = match location {
            Location::Local(path) => {
                let root = path
                    .canonicalize()
                    .map_err(|source| Error::io("cannot open", source).about(&shown))?;
                if !root.join(LOG_FOLDER).is_dir() {
                    return Err(no_table(&shown));
                }
                let url = Url::from_directory_path(&root).map_err(|()| no_url())?;
                (url, root)
            }
            Location::Remote(remote) => {
                // This URL's paths are the keys of the bucket, whatever the store's real URL is.
                let mut url = Url::parse(BUCKET).map_err(|_| no_url())?;
                let mut parts = url.path_segments_mut().map_err(|()| no_url())?;
                parts.clear().extend(remote.prefix().split('/')).push("");
                drop(parts);
                (url, PathBuf::from(format!("/{}", remote.prefix())))
            }
        };
        if let (Location::Remote(remote), Some(bucket)) = (location, bucket) {
            let folder = format!("{}/{LOG_FOLDER}/", remote.prefix());
            let folder = folder.trim_start_matches('/');
            if bucket.peek(folder, 1, &mut |_| true)?.is_empty() {
                return Err(no_table(&shown));
            }
        }
        let kernel = bucket.map(|bucket| KernelStore::new(bucket.clone()));
        let store: Arc<DynObjectStore> = match &kernel {
            None => Arc::new(LocalFileSystem::new()),
            Some(kernel) => Arc::new(kernel.clone()),
        };
        Ok(Self {
            shown,
            root,
            directory,
            bucket: bucket.cloned(),
            kernel,
            engine: Arc::new(DefaultEngineBuilder::new(store).build()),
        })
    }

    /// Reads the chosen version.
    ///
    /// # Errors
    ///
    /// `delta-*` errors, and errors of the file system and the store.
    pub fn open(self, choice: &VersionChoice) -> Result<Version, Error> {
        let shown = self.shown.clone();
        without_panics(&shown, || self.version(choice))
    }

    /// Returns the number of the chosen version.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn number(&self, choice: &VersionChoice) -> Result<u64, Error> {
        without_panics(&self.shown, || Ok(self.snapshot(choice)?.version()))
    }

    /// Returns the files of the chosen version, and the commits after version `after`.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn history(&self, choice: &VersionChoice, after: u64) -> Result<DeltaHistory, Error> {
        without_panics(&self.shown, || self.changes(choice, after))
    }

    fn wrong(&self, reason: impl AsRef<str>) -> Error {
        wrong(&self.shown, reason.as_ref())
    }

    fn feature(&self, feature: &str) -> Error {
        let reason = format!("needs {feature}, which is not supported");
        Problem::Feature.at(&self.shown, reason)
    }

    /// Converts an error of the kernel.
    fn failed(&self, error: &KernelError) -> Error {
        if let Some(failure) = self.kernel.as_ref().and_then(KernelStore::take_failure) {
            return failure.into();
        }
        match error.without_backtrace() {
            KernelError::Unsupported(what) => {
                let what = one_line(what);
                // Keep only the feature's name: our message supplies the rest.
                let name = what
                    .strip_prefix("Feature '")
                    .and_then(|rest| rest.split('\'').next());
                self.feature(name.unwrap_or(&what))
            }
            KernelError::MaxCatalogVersion(_) => {
                let feature = "catalogManaged or catalogOwned-preview";
                self.feature(feature).with_hint(CATALOG)
            }
            KernelError::EmptyLog => no_table(&self.shown),
            KernelError::IOError(error) => {
                let again = std::io::Error::new(error.kind(), one_line(&error.to_string()));
                Error::io("cannot read", again).about(&self.shown)
            }
            KernelError::LogHistory(error) => match error.as_ref() {
                LogHistoryError::NoCommitsFound { .. } => no_table(&self.shown),
                other => self.wrong(one_line(&other.to_string())),
            },
            other => {
                let reason = one_line(&other.to_string());
                // Only the message distinguishes an unknown type from a broken schema.
                match reason.split_once("Unsupported Delta table type: ") {
                    Some((_, name)) => {
                        let name = name.split(" at line").next().unwrap_or(name);
                        self.feature(&format!("the type {name}"))
                    }
                    None => self.wrong(reason),
                }
            }
        }
    }

    fn version(self, choice: &VersionChoice) -> Result<Version, Error> {
        let snapshot = self.snapshot(choice)?;
        self.check_commit(snapshot.version())?;
        self.check_features(&snapshot)?;
        let configuration = snapshot.table_configuration();
        let metadata = configuration.metadata();
        let protocol = configuration.protocol();
        let names = |features: Option<&[TableFeature]>| -> Vec<String> {
            features
                .unwrap_or_default()
                .iter()
                .map(ToString::to_string)
                .collect()
        };
        let mode = configuration.column_mapping_mode();
        let summary = DeltaSummary {
            version: snapshot.version(),
            // A version of which only the checkpoint is left has no timestamp.
            timestamp_ms: snapshot.get_timestamp(self.engine.as_ref()).ok(),
            earliest_version: self.earliest(),
            latest_version: self.latest(&snapshot),
            id: metadata.id().to_owned(),
            name: metadata.name().map(str::to_owned),
            protocol: DeltaProtocol {
                min_reader_version: protocol.min_reader_version(),
                min_writer_version: protocol.min_writer_version(),
                reader_features: names(protocol.reader_features()),
                writer_features: names(protocol.writer_features()),
                column_mapping: match mode {
                    ColumnMappingMode::None => None,
                    ColumnMappingMode::Id => Some("id"),
                    ColumnMappingMode::Name => Some("name"),
                },
            },
            partition_columns: metadata.partition_columns().to_vec(),
            ..DeltaSummary::default()
        };
        let identity = format!(
            "{:?}\n{:?}\n{}",
            mode,
            metadata.partition_columns(),
            metadata.schema_string()
        );
        let files = self.files(&snapshot)?;
        let columns = columns(&self.shown, &snapshot.schema())?;
        let mut count = 0;
        let partition = |column: &Column| {
            let is_one = summary.partition_columns.contains(column.field.name());
            count += usize::from(is_one);
            is_one.then(|| count - 1)
        };
        Ok(Version {
            partitions: columns.iter().map(partition).collect(),
            summary,
            columns,
            mode,
            files,
            identity,
            table: self,
        })
    }

    fn at(&self, version: Option<u64>) -> Result<SnapshotRef, KernelError> {
        let builder = Snapshot::builder_for(self.root.as_str());
        match version {
            Some(version) => builder.at_version(version).build(self.engine.as_ref()),
            None => builder.build(self.engine.as_ref()),
        }
    }

    fn snapshot(&self, choice: &VersionChoice) -> Result<SnapshotRef, Error> {
        if let Some(requested) = choice.version {
            return self.at(Some(requested)).map_err(|error| {
                // Look up the range of versions only when the error needs it.
                let latest = self.at(None).map(|snapshot| snapshot.version());
                match (self.earliest(), latest) {
                    (Some(earliest), Ok(latest)) if !(earliest..=latest).contains(&requested) => {
                        Problem::Version.at(
                            &self.shown,
                            format!(
                                "there is no version {requested}: versions {earliest} to {latest} can be read"
                            ),
                        )
                    }
                    _ => self.with_damaged_commit(&error),
                }
            });
        }
        let latest = self.at(None);
        let latest = latest.map_err(|error| self.with_damaged_commit(&error))?;
        let Some(timestamp_ms) = choice.timestamp_ms else {
            return Ok(latest);
        };
        let (engine, kind) = (self.engine.as_ref(), HistoryCommitType::Recreatable);
        let commit = latest_version_as_of(&latest, engine, timestamp_ms, kind)
            .map_err(|error| self.too_early(timestamp_ms, &error))?;
        if commit.version == latest.version() {
            return Ok(latest);
        }
        self.at(Some(commit.version))
            .map_err(|error| self.with_damaged_commit(&error))
    }

    fn too_early(&self, timestamp_ms: i64, error: &KernelError) -> Error {
        if let KernelError::LogHistory(inner) = error.without_backtrace()
            && matches!(inner.as_ref(), LogHistoryError::TimestampOutOfRange { .. })
            && let Some(earliest) = self.earliest()
        {
            let first = self.at(Some(earliest)).ok();
            let time = first.and_then(|first| first.get_timestamp(self.engine.as_ref()).ok());
            let time = time.map_or(String::new(), |at| format!(" of {}", shown_time(at)));
            let requested = shown_time(timestamp_ms);
            return Problem::Timestamp.at(
                &self.shown,
                format!(
                    "no version that can be read is as old as {requested}: the oldest is version {earliest}{time}"
                ),
            );
        }
        self.failed(error)
    }

    /// Returns the oldest version that can be read.
    fn earliest(&self) -> Option<u64> {
        let log = self.root.join("_delta_log/").ok()?;
        let (engine, kind) = (self.engine.as_ref(), HistoryCommitType::Recreatable);
        get_earliest_commit(engine, &log, None, kind).ok()
    }

    fn latest(&self, snapshot: &SnapshotRef) -> Option<u64> {
        if snapshot.is_built_as_latest() {
            return Some(snapshot.version());
        }
        self.at(None).ok().map(|latest| latest.version())
    }

    fn check_features(&self, snapshot: &SnapshotRef) -> Result<(), Error> {
        let protocol = snapshot.table_configuration().protocol();
        for feature in protocol.reader_features().unwrap_or_default() {
            let managed = matches!(
                feature,
                TableFeature::CatalogManaged | TableFeature::CatalogOwnedPreview
            );
            if managed {
                return Err(self.feature(feature.as_ref()).with_hint(CATALOG));
            }
            if !READABLE.contains(feature) {
                return Err(self.feature(&one_line(feature.as_ref())));
            }
        }
        Ok(())
    }

    fn files(&self, snapshot: &SnapshotRef) -> Result<Vec<LogFile>, Error> {
        let engine = self.engine.as_ref();
        let failed = |error: KernelError| self.with_damaged_commit(&error);
        let scan = Arc::clone(snapshot)
            .scan_builder()
            .without_row_transforms()
            .build()
            .map_err(failed)?;
        let mut files = Vec::new();
        for part in scan.scan_metadata(engine).map_err(failed)? {
            let (data, selected) = part.map_err(failed)?.scan_files.into_parts();
            let batch = data.try_into_record_batch().map_err(failed)?;
            let adds = Adds::of(&batch)
                .ok_or_else(|| self.wrong("the kernel lists files in an unknown form"))?;
            for row in 0..batch.num_rows() {
                if selected.get(row).copied().unwrap_or(true) {
                    files.extend(self.file(&adds, row)?);
                }
            }
        }
        alias::take_out_removed(&mut files, snapshot, engine, |path| {
            self.path(path).ok().map(|path| path.file)
        })
        .map_err(failed)?;
        files.sort_by(|a: &LogFile, b| {
            let id = |file: &LogFile| file.deletion.as_ref().map(|own| own.id.clone());
            (&a.path, id(a)).cmp(&(&b.path, id(b)))
        });
        let mut pairs = files.array_windows();
        if let Some([twice, _]) = pairs.find(|[a, b]| a.path.file == b.path.file) {
            let object = format!("{}/{}", self.shown, twice.path.shown);
            return Err(Problem::FileTwice.at(object, "is part of the source twice"));
        }
        Ok(files)
    }

    fn file(&self, adds: &Adds<'_>, row: usize) -> Result<Option<LogFile>, Error> {
        if adds.paths.is_null(row) {
            return Ok(None);
        }
        let path = self.path(adds.paths.value(row))?;
        let number =
            |array: &arrow::array::Int64Array| (!array.is_null(row)).then(|| array.value(row));
        let statistics = (!adds.stats.is_null(row)).then(|| adds.stats.value(row));
        let deletion = adds.deletion(row).transpose().map_err(|error| {
            let reason = format!("deletion vector: {}", one_line(&error.to_string()));
            Problem::DeletionVector.at(format!("{}/{}", self.shown, path.shown), reason)
        })?;
        Ok(Some(LogFile {
            path,
            bytes: number(adds.sizes)
                .and_then(|bytes| u64::try_from(bytes).ok())
                .unwrap_or(0),
            records: statistics.and_then(records),
            partition_values: adds.partition_values(row),
            deletion,
        }))
    }

    /// Resolves a path of the log, which is a URL, either absolute or relative to the table.
    fn path(&self, path: &str) -> Result<LogPath, Error> {
        let wrong = |reason| {
            Problem::Path.at(
                &self.shown,
                format!("the log names the file `{}`, {}", escape(path), reason),
            )
        };
        // A URL parser drops these characters, so the path would name another file.
        let is_bare = |letter: char| letter.is_control() || letter == ' ';
        if path.chars().any(char::is_control)
            || path.starts_with(is_bare)
            || path.ends_with(is_bare)
        {
            return Err(wrong(
                "which has a control character, or a space at an end, that is not encoded",
            ));
        }
        if path.is_empty() || path.contains("%00") {
            return Err(wrong("which is the name of no file"));
        }
        let url = self.root.join(path).map_err(|_| wrong("which is no URL"))?;
        let is_absolute = path.starts_with('/') || Url::parse(path).is_ok();
        let in_store = self.bucket.is_some();
        if in_store && (Url::parse(path).is_ok() || url.host_str() != self.root.host_str()) {
            return Err(wrong(
                "which is outside the table: copy all of it to the same place",
            ));
        }
        if !in_store && url.scheme() != "file" {
            return Err(wrong(
                "which is not on this machine, as the table is: copy both to the same place",
            ));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(wrong("which has a `?` or a `#` that is not encoded"));
        }
        let file = match in_store {
            true => {
                let key = ObjectPath::from_url_path(url.path());
                let key = key.map_err(|_| wrong("which is no key of an object"))?;
                PathBuf::from(format!("/{key}"))
            }
            false => url
                .to_file_path()
                .map_err(|()| wrong("which is no path on this machine"))?,
        };
        let below = file.strip_prefix(&self.directory).ok();
        // `join` has resolved any `..`. The files of a table in a store are objects of the same bucket.
        if below.is_none() && (in_store || !is_absolute) {
            return Err(wrong("which leads out of the table"));
        }
        let shown = below
            .unwrap_or(&file)
            .to_str()
            .ok_or_else(|| wrong("which is not UTF-8"))?
            .to_owned();
        Ok(LogPath {
            shown,
            file,
            is_absolute: is_absolute && !in_store,
        })
    }
}

/// Builds the error about a folder without a table.
fn no_table(shown: &str) -> Error {
    Problem::NoTable.at(shown, "has no `_delta_log` with a version in it")
}
