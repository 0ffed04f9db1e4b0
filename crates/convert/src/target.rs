//! The open destination of a conversion.

use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

use shardmill_core::{Progress, parallel};
use shardmill_storage::{
    CancelToken, Destination, DestinationEntry, DestinationLease, Dir, FileVersion, PublishMode,
    StorageError,
};
use shardmill_writer::ShardFormat;
use shardmill_writer::parts::remove_temporary;

/// The work folder of a running conversion in the destination.
pub(crate) use shardmill_writer::{
    in_folder,
    parts::{OF_PARTS, WORK_FOLDER},
};
/// The lease of the running writer.
pub(crate) const LEASE_NAME: &str = ".shardmill/lease";

/// A local directory or a prefix in a store, with the progress of a conversion. Cancelling the progress also cancels
/// waits for the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) destination: &'a Destination,
    progress: &'a Progress,
}

impl<'a> Target<'a> {
    pub(crate) const fn new(destination: &'a Destination, progress: &'a Progress) -> Self {
        Self {
            destination,
            progress,
        }
    }

    /// Returns a callback that reports whether to continue.
    pub(crate) fn cancel(&self) -> impl FnMut(u64) -> bool + use<'a> {
        let progress = self.progress;
        move |_| !progress.is_cancelled()
    }

    /// Waits for the lease of the destination, and takes it over after `patience` without a heartbeat of its owner.
    pub(crate) fn lease(&self, patience: Duration) -> Result<DestinationLease, StorageError> {
        DestinationLease::acquire(self.destination, LEASE_NAME, patience, &mut self.cancel())
    }

    fn with<T>(&self, work: impl FnOnce(&'a Destination, &mut CancelToken<'_>) -> T) -> T {
        work(self.destination, &mut self.cancel())
    }

    pub(crate) fn file_version(&self, name: &str) -> Result<Option<FileVersion>, StorageError> {
        self.with(|destination, cancel| destination.file_version(name, cancel))
    }

    pub(crate) fn read(&self, name: &str, max: u64) -> Result<Option<Vec<u8>>, StorageError> {
        self.with(|destination, cancel| destination.read(name, max, cancel))
    }

    pub(crate) fn entries(&self, folder: &str) -> Result<Vec<DestinationEntry>, StorageError> {
        self.with(|destination, cancel| destination.entries(folder, cancel))
    }

    pub(crate) fn remove(&self, name: &str) -> Result<(), StorageError> {
        self.with(|destination, cancel| destination.remove(name, cancel))
    }

    /// Removes the temporary files of a killed run. The caller must hold the lease, so their owner is gone.
    pub(crate) fn remove_temporary(&self) -> Result<(), StorageError> {
        remove_temporary(self.destination, &mut || !self.progress.is_cancelled())
    }

    /// Removes files. In a store, many requests run at the same time.
    pub(crate) fn remove_all(&self, names: &[impl AsRef<str> + Sync]) -> Result<(), StorageError> {
        self.for_each(names, 1, |name| self.remove(name.as_ref()))?;
        Ok(())
    }

    /// Removes files that this run has written and no other writer has replaced.
    pub(crate) fn remove_own(&self, names: &[impl AsRef<str> + Sync]) -> Result<(), StorageError> {
        self.for_each(names, 1, |name| {
            self.with(|destination, cancel| destination.remove_own(name.as_ref(), cancel))
        })?;
        Ok(())
    }

    /// Calls `work` for every item, on several threads. A local disk uses `jobs` threads, a store at least 32. The
    /// results are in order. An error stops the loop.
    pub(crate) fn for_each<I: Sync, T: Send, E: Send>(
        &self,
        items: &[I],
        jobs: usize,
        work: impl Fn(&I) -> Result<T, E> + Sync,
    ) -> Result<Vec<T>, E> {
        /// The number of concurrent small requests to a store.
        const REQUESTS: usize = 32;

        let jobs = match self.destination {
            Destination::Local(_) => jobs,
            Destination::Store(_) => jobs.max(REQUESTS),
        };
        // INVARIANT: `map` counts up to the number of items.
        parallel::map(items.len(), jobs.max(1), |at| work(&items[at]))
    }

    /// Publishes bytes through a temporary file in a folder, or in the root, and replaces an existing file.
    pub(crate) fn publish_from(
        &self,
        folder: Option<&str>,
        name: &str,
        bytes: &[u8],
    ) -> Result<(), StorageError> {
        let mode = PublishMode::Replace;
        self.with(|destination, cancel| {
            destination.publish_bytes(folder, name, bytes, mode, cancel)
        })
    }

    /// Publishes bytes through a temporary file in the work folder, and replaces an existing file.
    pub(crate) fn publish(&self, name: &str, bytes: &[u8]) -> Result<(), StorageError> {
        self.publish_from(Some(WORK_FOLDER), name, bytes)
    }
}

/// Returns the name of a side file beside an index: hidden, if the index is. Files in the work folder keep their names.
pub(crate) fn side_name(to: ShardFormat, name: &str) -> Cow<'_, str> {
    match to.is_table() && !name.starts_with('.') {
        true => Cow::Owned(format!(".{name}")),
        false => Cow::Borrowed(name),
    }
}

/// Returns the folder of a file; `""` is the root.
pub(crate) fn folder_of(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Removes a directory that a failed run created, if it is empty. Errors are ignored, because the original one is
/// reported.
pub(crate) fn remove_if_empty(path: &Path) {
    let parent = path.parent().filter(|path| !path.as_os_str().is_empty());
    if let (Ok(parent), Some(name)) = (
        Dir::open(parent.unwrap_or(Path::new("."))),
        path.file_name().and_then(|name| name.to_str()),
    ) {
        let _ = parent.remove_dir(name);
    }
}
