//! Uploads and downloads of single files.
//!
//! A location is a path, `file://PATH` or the URL of an object in a store. Signals are checked several times a second,
//! so that Ctrl-C ends a transfer.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pyo3::prelude::*;
use shardmill_core::ErrorKind;
use shardmill_storage::{
    CancelToken, Dir, FileHandle, LeaseWait, Location, PublishMode, Remote, RemoteLocation,
    RemoteOptions, StorageError, TempFile, settings_of,
};

use crate::errors::{raise, raise_with};

pub(crate) type Settings = BTreeMap<String, String>;

/// The argument of Python that contains the settings.
pub(crate) const ARGUMENT: &str = "storage_options";

/// Returns the options for stores, from the environment and `settings`, which take precedence.
pub(crate) fn remote_options(settings: Option<Settings>) -> Result<RemoteOptions, StorageError> {
    let options = RemoteOptions {
        settings: environment(),
        on_lease_wait: Some(Arc::new(log_wait)),
        ..RemoteOptions::default()
    };
    options.with_checked(settings.unwrap_or_default(), ARGUMENT)
}

/// Logs a wait for the lease of another writer, as a warning of the logger `shardmill`.
fn log_wait(wait: &LeaseWait) {
    let owner = wait.owner.as_deref().unwrap_or("unknown");
    let text = format!(
        "{}: writer {owner} has this lease; waiting up to {} s for its heartbeat; without one, this run takes the lease over",
        wait.url,
        wait.patience.as_secs_f64(),
    );
    Python::try_attach(|py| {
        let logged = py
            .import("logging")
            .and_then(|logging| logging.call_method1("getLogger", ("shardmill",)))
            .and_then(|logger| logger.call_method1("warning", ("%s", text)));
        if let Err(error) = logged {
            error.write_unraisable(py, None);
        }
    });
}

pub(crate) fn environment() -> Settings {
    let texts = std::env::vars_os();
    let texts = texts
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    settings_of(texts)
}

/// Recently used stores, for reusing connections.
static RECENT: Mutex<Vec<RecentStore>> = Mutex::new(Vec::new());

/// The maximum number of cached stores.
const KEPT: usize = 16;

struct RecentStore {
    location: RemoteLocation,
    settings: Settings,
    idle: Option<Duration>,
    remote: Remote,
}

/// Opens a folder of a store, with settings from the environment and `settings`, which take precedence.
fn open(
    location: &RemoteLocation,
    settings: Option<Settings>,
    idle: Option<Duration>,
) -> Result<Remote, StorageError> {
    let mut options = remote_options(settings)?;
    let settings = options.settings.clone();
    // After a fork, another thread of the parent may have held the lock, so it stays locked: do not cache.
    let mut recent = RECENT.try_lock().ok();
    let known = recent.as_ref().and_then(|kept| {
        kept.iter().find(|known| {
            (&known.location, &known.settings, known.idle) == (location, &settings, idle)
        })
    });
    if let Some(known) = known {
        return Ok(known.remote.clone());
    }
    if let Some(idle) = idle {
        options.request.idle_timeout = idle;
        options.request.total_timeout = options.request.total_timeout.max(idle);
    }
    let remote = Remote::open(location, &options)?;
    if let Some(kept) = &mut recent {
        if kept.len() >= KEPT {
            kept.remove(0);
        }
        kept.push(RecentStore {
            location: location.clone(),
            settings,
            idle,
            remote: remote.clone(),
        });
    }
    Ok(remote)
}

/// Runs long work without the interpreter lock. `progress` is called with the number of transferred bytes.
fn watched<T: Send>(
    py: Python<'_>,
    progress: Option<&Py<PyAny>>,
    work: impl FnOnce(&mut CancelToken<'_>) -> Result<T, StorageError> + Send,
) -> PyResult<T> {
    let mut raised = None;
    let result = py.detach(|| {
        work(&mut |bytes| {
            let checked = Python::attach(|py| {
                py.check_signals()?;
                match progress {
                    Some(progress) => progress.call1(py, (bytes,)).map(|_| ()),
                    None => Ok(()),
                }
            });
            checked.map_err(|error| raised = Some(error)).is_ok()
        })
    });
    match (raised, result) {
        (Some(error), _) => Err(error),
        (None, result) => result.map_err(raise),
    }
}

/// The location of one file.
enum FileLocation {
    Local(PathBuf),
    /// A folder of a store, and a name in it.
    Remote(RemoteLocation, String),
}

fn file_location(url: &str) -> PyResult<FileLocation> {
    let location = match Location::parse(url).map_err(raise)? {
        Location::Local(path) => return Ok(FileLocation::Local(path)),
        Location::Remote(location) => location,
    };
    match location.split_name() {
        Some((folder, name)) => Ok(FileLocation::Remote(folder, name.to_owned())),
        None => {
            let message = format!("{location}: the URL has no name of an object after the bucket");
            Err(raise_with(ErrorKind::InvalidInput, "url-path", message))
        }
    }
}

/// Returns the folder and the name of a file.
pub(crate) fn folder_and_name(path: &Path) -> Option<(&Path, &str)> {
    let folder = path.parent().filter(|path| !path.as_os_str().is_empty());
    let name = path.file_name()?.to_str()?;
    Some((folder.unwrap_or(Path::new(".")), name))
}

/// Creates a temporary file for a path, and returns it with the final name.
fn target(path: &Path) -> PyResult<(TempFile, String)> {
    let Some((folder, name)) = folder_and_name(path) else {
        let message = format!(
            "{}: the path does not end in the name of a file",
            path.display()
        );
        return Err(raise_with(ErrorKind::InvalidInput, "config-value", message));
    };
    let temp = Dir::create(folder).and_then(|dir| dir.temp_file(None));
    Ok((temp.map_err(raise)?, name.to_owned()))
}

fn copy(
    from: &Path,
    into: &mut TempFile,
    cancel: &mut CancelToken<'_>,
) -> Result<u64, StorageError> {
    let file = FileHandle::open(from)?;
    let mut reader = file.reader();
    let mut buffer = vec![0; 1 << 20];
    let mut copied = 0;
    loop {
        let read = reader.read(&mut buffer);
        let read = read.map_err(|source| StorageError::Io {
            action: "read",
            path: from.to_owned(),
            source,
        })?;
        if read == 0 {
            file.check_unchanged()?;
            return Ok(copied);
        }
        into.write_all(buffer.get(..read).unwrap_or_default())
            .map_err(|error| into.write_error(error))?;
        copied += read as u64;
        if !cancel(copied) {
            return Err(StorageError::Incomplete { path: into.path() });
        }
    }
}

/// Uploads a file, atomically replacing an existing one.
#[pyfunction]
#[pyo3(signature = (local_path, url, settings=None, progress=None))]
pub(crate) fn upload(
    py: Python<'_>,
    local_path: PathBuf,
    url: &str,
    settings: Option<Settings>,
    progress: Option<Py<PyAny>>,
) -> PyResult<()> {
    match file_location(url)? {
        FileLocation::Local(path) => {
            let (mut temp, name) = target(&path)?;
            watched(py, progress.as_ref(), |cancel| {
                copy(&local_path, &mut temp, cancel)?;
                temp.publish(&name, PublishMode::Replace)
            })
        }
        FileLocation::Remote(folder, name) => watched(py, progress.as_ref(), |cancel| {
            let file = FileHandle::open(&local_path)?;
            open(&folder, settings, None)?.put_file(&name, &file, cancel)
        }),
    }
}

/// Downloads a file, atomically replacing an existing one, and returns its size in bytes.
#[pyfunction]
#[pyo3(signature = (url, local_path, settings=None, timeout=None, progress=None))]
pub(crate) fn download(
    py: Python<'_>,
    url: &str,
    local_path: PathBuf,
    settings: Option<Settings>,
    timeout: Option<f64>,
    progress: Option<Py<PyAny>>,
) -> PyResult<u64> {
    let idle = timeout.map(Duration::try_from_secs_f64).transpose();
    let idle = idle.ok().filter(|idle| *idle != Some(Duration::ZERO));
    let Some(idle) = idle else {
        let message = "timeout: not a positive number of seconds".to_owned();
        return Err(raise_with(ErrorKind::InvalidInput, "config-value", message));
    };
    let from = file_location(url)?;
    let (mut temp, name) = target(&local_path)?;
    watched(py, progress.as_ref(), |cancel| {
        let bytes = match from {
            FileLocation::Local(path) => copy(&path, &mut temp, cancel)?,
            FileLocation::Remote(folder, name) => {
                open(&folder, settings, idle)?.save(&name, &mut temp, cancel)?
            }
        };
        temp.publish(&name, PublishMode::Replace)?;
        Ok(bytes)
    })
}

/// Lists the objects whose key begins with that of a URL, with their size in bytes, in the store's order.
#[pyfunction]
#[pyo3(signature = (url, settings=None))]
pub(crate) fn list_objects(
    py: Python<'_>,
    url: &str,
    settings: Option<Settings>,
) -> PyResult<Vec<(String, u64)>> {
    let Some((bucket, prefix)) = split(url) else {
        let message = "only the objects of `s3:` and `gs:` locations are listed".to_owned();
        return Err(raise_with(ErrorKind::InvalidInput, "url-scheme", message));
    };
    watched(py, None, |cancel| {
        let Location::Remote(location) = Location::parse(&bucket)? else {
            return Ok(Vec::new());
        };
        let remote = open(&location, settings, None)?;
        let listed = remote.list(prefix, Remote::MAX_LISTED, cancel)?;
        let pairs = listed.into_iter().map(|object| (object.name, object.bytes));
        Ok(pairs.collect())
    })
}

/// Splits the URL of an object into the URL of its bucket and the key.
fn split(url: &str) -> Option<(String, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let mut known = ["s3", "gs"].into_iter();
    let scheme = known.find(|known| scheme.eq_ignore_ascii_case(known))?;
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    Some((format!("{scheme}://{bucket}"), prefix))
}

/// Checks that a bucket exists and may be listed.
#[pyfunction]
#[pyo3(signature = (url, settings=None))]
pub(crate) fn check_bucket(py: Python<'_>, url: &str, settings: Option<Settings>) -> PyResult<()> {
    watched(py, None, |cancel| match Location::parse(url)? {
        Location::Local(path) => Dir::open(&path).map(|_| ()),
        Location::Remote(location) => open(&location, settings, None)?.check_bucket(cancel),
    })
}
