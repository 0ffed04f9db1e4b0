//! Reads the table log: the version, its files, and their deleted rows. The Delta kernel replays it.

mod alias;
mod commits;
mod history;
mod log_file;

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{Array, AsArray as _, RecordBatch, StructArray};
use arrow::datatypes::{Int32Type, Int64Type};
use delta_kernel::actions::deletion_vector::DeletionVectorDescriptor;
use delta_kernel::engine::arrow_data::EngineDataArrowExt as _;
use delta_kernel::history_manager::error::LogHistoryError;
use delta_kernel::history_manager::{HistoryCommitType, get_earliest_commit, latest_version_as_of};
use delta_kernel::object_store::DynObjectStore;
use delta_kernel::object_store::local::LocalFileSystem;
use delta_kernel::object_store::path::Path as ObjectPath;
use delta_kernel::schema::SchemaRef;
use delta_kernel::table_features::{ColumnMappingMode, TableFeature};
use delta_kernel::{Engine, KernelError, Snapshot, SnapshotRef};
use delta_kernel_default_engine::DefaultEngineBuilder;
use roaring::RoaringTreemap;
use serde::Deserialize;
use shardmill_storage::Location;
use url::Url;

use super::store::KernelStore;
use log_file::{Deletion, LogPath, vector_id};
use shardmill_core::escape;

use crate::catch_panic::{catch, one_line};
use crate::objects::Store;
use crate::source::{DeltaHistory, DeltaProtocol, DeltaSummary};
use crate::time::shown_time;
use crate::{SourceError, SourceOptions, SourceProblem};
pub(crate) use log_file::LogFile;

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

/// One version of a table.
pub(crate) struct Version {
    pub summary: DeltaSummary,
    pub schema: SchemaRef,
    pub mode: ColumnMappingMode,
    /// The data files, sorted by path.
    pub files: Vec<LogFile>,
    /// The start of a fingerprint of the contents.
    pub identity: String,
    log: Log,
}

/// Opens the version that the options request, or the latest.
pub(crate) fn open(
    shown: &str,
    location: &Location,
    options: &SourceOptions,
) -> Result<Version, SourceError> {
    with_log(shown, location, options, |log| log.open(options))
}

/// Returns the files of the requested version, or of the latest, and the commits after version `after`.
pub(crate) fn history(
    shown: &str,
    location: &Location,
    options: &SourceOptions,
    after: u64,
) -> Result<DeltaHistory, SourceError> {
    with_log(shown, location, options, |log| log.history(options, after))
}

fn with_log<T>(
    shown: &str,
    location: &Location,
    options: &SourceOptions,
    work: impl FnOnce(Log) -> Result<T, SourceError>,
) -> Result<T, SourceError> {
    let no_url = || SourceError::bug("a location that is no URL");
    let (url, directory, bucket) = match location {
        Location::Local(path) => {
            let root = path
                .canonicalize()
                .map_err(|source| SourceError::io("open", shown, source))?;
            let url = Url::from_directory_path(&root).map_err(|()| no_url())?;
            (url, root, None)
        }
        Location::Remote(remote) => {
            // This URL's paths are the keys of the bucket, whatever the store's real URL is.
            let mut url = Url::parse(BUCKET).map_err(|_| no_url())?;
            let mut parts = url.path_segments_mut().map_err(|()| no_url())?;
            parts.clear().extend(remote.prefix().split('/')).push("");
            drop(parts);
            let directory = PathBuf::from(format!("/{}", remote.prefix()));
            let bucket = Store::open(&remote.root(), options)?;
            (url, directory, Some(bucket))
        }
    };
    let kernel = bucket
        .as_ref()
        .map(|bucket| KernelStore::new(bucket.remote().clone(), LOG_BYTES));
    let store: Arc<DynObjectStore> = match &kernel {
        None => Arc::new(LocalFileSystem::new()),
        Some(kernel) => Arc::new(kernel.clone()),
    };
    // Panics of the kernel become ordinary errors.
    let found = catch(|| {
        work(Log {
            shown: shown.to_owned(),
            root: url,
            directory,
            bucket,
            kernel,
            engine: Arc::new(DefaultEngineBuilder::new(store).build()),
        })
    });
    found.unwrap_or_else(|panic| Err(wrong(shown, &panic)))
}

/// The URL of the bucket that the kernel sees.
const BUCKET: &str = "s3://bucket/";

/// The most bytes of one log file, or of one file with deletion vectors.
const LOG_BYTES: u64 = 4 << 30;

struct Log {
    shown: String,
    root: Url,
    directory: PathBuf,
    /// For a table in a store: the whole bucket, so that the path of a file is its key.
    bucket: Option<Arc<Store>>,
    kernel: Option<KernelStore>,
    engine: Arc<dyn Engine>,
}

fn wrong(shown: &str, reason: &str) -> SourceError {
    SourceProblem::DeltaLog.at(shown, format!("table log: {reason}"))
}

impl Log {
    fn wrong(&self, reason: impl AsRef<str>) -> SourceError {
        wrong(&self.shown, reason.as_ref())
    }

    fn feature(&self, feature: impl Into<String>, hint: Option<&'static str>) -> SourceError {
        let error = SourceProblem::DeltaFeature.at(
            &self.shown,
            format!("needs {}, which is not supported", feature.into()),
        );
        match hint {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    }

    /// Converts an error of the kernel.
    fn failed(&self, error: &KernelError) -> SourceError {
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
                self.feature(name.unwrap_or(&what), None)
            }
            KernelError::MaxCatalogVersion(_) => {
                self.feature("catalogManaged or catalogOwned-preview", Some(CATALOG))
            }
            KernelError::EmptyLog => no_table(&self.shown),
            KernelError::IOError(error) => {
                let again = std::io::Error::new(error.kind(), one_line(&error.to_string()));
                SourceError::io("read", &self.shown, again)
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
                        self.feature(format!("the type {name}"), None)
                    }
                    None => self.wrong(reason),
                }
            }
        }
    }

    fn open(self, options: &SourceOptions) -> Result<Version, SourceError> {
        let snapshot = self.snapshot(options)?;
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
        Ok(Version {
            summary,
            schema: snapshot.schema(),
            mode,
            files,
            identity,
            log: self,
        })
    }

    fn at(&self, version: Option<u64>) -> Result<SnapshotRef, KernelError> {
        let builder = Snapshot::builder_for(self.root.as_str());
        match version {
            Some(version) => builder.at_version(version).build(self.engine.as_ref()),
            None => builder.build(self.engine.as_ref()),
        }
    }

    fn snapshot(&self, options: &SourceOptions) -> Result<SnapshotRef, SourceError> {
        if let Some(asked) = options.delta.version {
            return self.at(Some(asked)).map_err(|error| {
                // Look up the range of versions only when the error needs it.
                let latest = self.at(None).map(|snapshot| snapshot.version());
                match (self.earliest(), latest) {
                    (Some(earliest), Ok(latest)) if !(earliest..=latest).contains(&asked) => {
                        SourceProblem::DeltaVersion.at(
                            &self.shown,
                            format!(
                                "there is no version {asked}: versions {earliest} to {latest} can be read"
                            ),
                        )
                    }
                    _ => self.blamed(&error),
                }
            });
        }
        let latest = self.at(None);
        let latest = latest.map_err(|error| self.blamed(&error))?;
        let Some(asked_ms) = options.delta.timestamp_ms else {
            return Ok(latest);
        };
        let found = latest_version_as_of(
            &latest,
            self.engine.as_ref(),
            asked_ms,
            HistoryCommitType::Recreatable,
        );
        let commit = found.map_err(|error| self.too_early(asked_ms, &error))?;
        if commit.version == latest.version() {
            return Ok(latest);
        }
        self.at(Some(commit.version))
            .map_err(|error| self.blamed(&error))
    }

    fn too_early(&self, asked_ms: i64, error: &KernelError) -> SourceError {
        if let KernelError::LogHistory(inner) = error.without_backtrace()
            && matches!(inner.as_ref(), LogHistoryError::TimestampOutOfRange { .. })
            && let Some(earliest) = self.earliest()
        {
            let first = self.at(Some(earliest)).ok();
            let time = first.and_then(|first| first.get_timestamp(self.engine.as_ref()).ok());
            let time = time.map_or(String::new(), |at| format!(" of {}", shown_time(at)));
            let asked = shown_time(asked_ms);
            return SourceProblem::DeltaTimestamp.at(
                &self.shown,
                format!(
                    "no version that can be read is as old as {asked}: the oldest is version {earliest}{time}"
                ),
            );
        }
        self.failed(error)
    }

    /// Returns the oldest version that can be read.
    fn earliest(&self) -> Option<u64> {
        let log = self.root.join("_delta_log/").ok()?;
        get_earliest_commit(
            self.engine.as_ref(),
            &log,
            None,
            HistoryCommitType::Recreatable,
        )
        .ok()
    }

    fn latest(&self, snapshot: &SnapshotRef) -> Option<u64> {
        if snapshot.is_built_as_latest() {
            return Some(snapshot.version());
        }
        self.at(None).ok().map(|latest| latest.version())
    }

    fn check_features(&self, snapshot: &SnapshotRef) -> Result<(), SourceError> {
        let protocol = snapshot.table_configuration().protocol();
        for feature in protocol.reader_features().unwrap_or_default() {
            let managed = matches!(
                feature,
                TableFeature::CatalogManaged | TableFeature::CatalogOwnedPreview
            );
            if managed {
                return Err(self.feature(feature.to_string(), Some(CATALOG)));
            }
            if !READABLE.contains(feature) {
                return Err(self.feature(one_line(feature.as_ref()), None));
            }
        }
        Ok(())
    }

    fn files(&self, snapshot: &SnapshotRef) -> Result<Vec<LogFile>, SourceError> {
        let engine = self.engine.as_ref();
        let failed = |error: KernelError| self.blamed(&error);
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
        if let Some([first, _]) = files
            .array_windows()
            .find(|[first, second]| first.path.file == second.path.file)
        {
            return Err(SourceProblem::Duplicate.at(
                format!("{}/{}", self.shown, first.path.shown),
                "is part of the source twice",
            ));
        }
        Ok(files)
    }

    fn file(&self, adds: &Adds<'_>, row: usize) -> Result<Option<LogFile>, SourceError> {
        if adds.paths.is_null(row) {
            return Ok(None);
        }
        let path = self.path(adds.paths.value(row))?;
        let number =
            |array: &arrow::array::Int64Array| (!array.is_null(row)).then(|| array.value(row));
        let statistics = (!adds.stats.is_null(row)).then(|| adds.stats.value(row));
        let deletion = match adds.deletion(row) {
            None => None,
            Some(Ok(found)) => Some(found),
            Some(Err(error)) => {
                return Err(SourceProblem::DeltaDeletionVector.at(
                    format!("{}/{}", self.shown, path.shown),
                    format!("deletion vector: {}", one_line(&error.to_string())),
                ));
            }
        };
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
    fn path(&self, path: &str) -> Result<LogPath, SourceError> {
        let wrong = |reason| {
            SourceProblem::DeltaPath.at(
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

impl Version {
    /// Returns the whole bucket of a table in a store, in which the path of a file is its key.
    pub(crate) const fn bucket(&self) -> Option<&Arc<Store>> {
        self.log.bucket.as_ref()
    }

    /// Builds the error about a data file or deletion vector that the log lists and that no longer exists.
    pub(crate) fn missing(&self, file: &str) -> SourceError {
        let version = self.summary.version;
        SourceProblem::DeltaFileMissing.at(
            file,
            format!(
                "version {version} of the table consists of this file among others, and it does not exist: vacuumed?"
            ),
        )
    }

    /// Returns the deleted rows of a file.
    pub(crate) fn deleted(
        &self,
        file: &str,
        deletion: &Deletion,
    ) -> Result<RoaringTreemap, SourceError> {
        let wrong = |reason: String| {
            SourceProblem::DeltaDeletionVector.at(file, format!("deletion vector: {reason}"))
        };
        let storage = self.log.engine.storage_handler();
        let read = catch(|| deletion.descriptor.read(storage, &self.log.root)).map_err(wrong)?;
        let deleted = read.map_err(|error| match error.without_backtrace() {
            KernelError::FileNotFound(_) if self.log.bucket.is_some() => self.missing(file),
            KernelError::FileNotFound(_) => {
                let place = deletion
                    .descriptor
                    .absolute_path(&self.log.root)
                    .ok()
                    .flatten();
                let place = place.and_then(|place| place.to_file_path().ok());
                let place = place.map(|place| place.display().to_string());
                self.missing(place.as_deref().unwrap_or(file))
            }
            other => match self.log.kernel.as_ref().and_then(KernelStore::take_failure) {
                Some(failure) => failure.into(),
                None => wrong(one_line(&other.to_string())),
            },
        })?;
        let claimed = u64::try_from(deletion.descriptor.cardinality).unwrap_or(0);
        if deleted.len() != claimed {
            return Err(wrong(format!(
                "has {} rows, and the table log says {claimed}",
                deleted.len()
            )));
        }
        Ok(deleted)
    }
}

/// Builds the error about a folder without a table.
pub(crate) fn no_table(shown: &str) -> SourceError {
    SourceProblem::DeltaNoTable.at(shown, "has no `_delta_log` with a version in it")
}

/// Returns the number of rows that the statistics of a file claim.
fn records(statistics: &str) -> Option<u64> {
    #[derive(Deserialize)]
    struct Statistics {
        #[serde(rename = "numRecords")]
        records: Option<u64>,
    }
    serde_json::from_str::<Statistics>(statistics).ok()?.records
}

/// The columns of the kernel's file list.
struct Adds<'a> {
    paths: &'a arrow::array::StringArray,
    sizes: &'a arrow::array::Int64Array,
    stats: &'a arrow::array::StringArray,
    deletions: &'a StructArray,
    partition_values: &'a arrow::array::MapArray,
}

impl<'a> Adds<'a> {
    fn of(batch: &'a RecordBatch) -> Option<Self> {
        let text = |name: &str| batch.column_by_name(name)?.as_string_opt::<i32>();
        let constants = batch
            .column_by_name("fileConstantValues")?
            .as_struct_opt()?;
        Some(Self {
            paths: text("path")?,
            sizes: batch
                .column_by_name("size")?
                .as_primitive_opt::<Int64Type>()?,
            stats: text("stats")?,
            deletions: batch.column_by_name("deletionVector")?.as_struct_opt()?,
            partition_values: constants.column_by_name("partitionValues")?.as_map_opt()?,
        })
    }

    fn partition_values(&self, row: usize) -> Vec<(String, Option<String>)> {
        if self.partition_values.is_null(row) {
            return Vec::new();
        }
        let entries = self.partition_values.value(row);
        let texts = |column: usize| entries.columns().get(column)?.as_string_opt::<i32>();
        let Some((keys, values)) = texts(0).zip(texts(1)) else {
            return Vec::new();
        };
        let of = |values: &arrow::array::StringArray, at: usize| {
            (!values.is_null(at)).then(|| values.value(at).to_owned())
        };
        let mut found: Vec<_> = (0..entries.len())
            .filter_map(|at| Some((of(keys, at)?, of(values, at))))
            .collect();
        found.sort();
        found
    }

    fn deletion(&self, row: usize) -> Option<Result<Deletion, KernelError>> {
        if self.deletions.is_null(row) {
            return None;
        }
        let text = |name: &str| {
            let array = self
                .deletions
                .column_by_name(name)?
                .as_string_opt::<i32>()?;
            (!array.is_null(row)).then(|| array.value(row))
        };
        let int = |name: &str| {
            let array = self.deletions.column_by_name(name)?;
            let array = array.as_primitive_opt::<Int32Type>()?;
            (!array.is_null(row)).then(|| array.value(row))
        };
        let storage = text("storageType")?;
        let place = text("pathOrInlineDv").unwrap_or_default();
        let offset = int("offset");
        let cardinality = self
            .deletions
            .column_by_name("cardinality")
            .and_then(|array| array.as_primitive_opt::<Int64Type>())
            .filter(|array| !array.is_null(row))
            .map_or(-1, |array| array.value(row));
        let descriptor = storage.parse().and_then(|storage| {
            DeletionVectorDescriptor::try_new(
                storage,
                place,
                offset,
                int("sizeInBytes").unwrap_or(-1),
                cardinality,
            )
        });
        Some(descriptor.map(|descriptor| Deletion {
            descriptor,
            id: vector_id(storage, place, offset),
        }))
    }
}
