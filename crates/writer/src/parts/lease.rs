//! Acquires and releases the lease of a commit, and removes temporary files of killed processes.

use std::time::Duration;

use shardmill_core::{JOURNAL_NAME, PARTS_FOLDER, WORK_FOLDER};
use shardmill_storage::{
    Destination, DestinationEntry, DestinationLease, LEASE_PATIENCE, StorageError, TempFile,
};

use crate::index::in_folder;

/// The folder of the commit lease.
pub const COMMIT_FOLDER: &str = ".shardmill/commit";
/// The commit lease.
const COMMIT_LEASE: &str = ".shardmill/commit/lease";

/// Returns whether a conversion without parts is in progress, given the entries of the work folder.
pub(super) fn is_converting(work: &[DestinationEntry]) -> bool {
    let mut names = work.iter().map(|entry| in_folder(WORK_FOLDER, &entry.name));
    names.any(|name| name == JOURNAL_NAME)
}

/// Acquires the commit lease of a dataset.
pub(super) fn claim(
    destination: &Destination,
    patience: Option<Duration>,
    cancel: &mut dyn FnMut() -> bool,
) -> Result<DestinationLease, StorageError> {
    let patience = patience.unwrap_or(LEASE_PATIENCE);
    DestinationLease::acquire(destination, COMMIT_LEASE, patience, &mut |_| cancel())
}

/// Removes the temporary files of a killed process. The caller must hold the lease of its kind of job, so that their
/// owner is gone.
///
/// # Errors
///
/// Returns the error of the disk. Temporary files for a store have no name, so there are none to remove.
pub fn remove_temporary(
    destination: &Destination,
    cancel: &mut dyn FnMut() -> bool,
) -> Result<(), StorageError> {
    if destination.as_local().is_none() {
        return Ok(());
    }
    for entry in destination.entries(WORK_FOLDER, &mut |_| cancel())? {
        if !entry.is_folder && entry.name.starts_with(TempFile::PREFIX) {
            destination.remove(&in_folder(WORK_FOLDER, &entry.name), &mut |_| cancel())?;
        }
    }
    Ok(())
}

/// Releases the lease and removes temporary files of killed commits and empty folders. Errors are ignored, because `gc`
/// finds the rest.
pub(super) fn release(
    lease: DestinationLease,
    destination: &Destination,
    cancel: &mut dyn FnMut() -> bool,
) {
    let work = destination.entries(WORK_FOLDER, &mut |_| cancel());
    // If a conversion without parts is in progress, the temporary files belong to it.
    if work.is_ok_and(|work| !is_converting(&work)) {
        let _ = remove_temporary(destination, cancel);
    }
    let _ = lease.remove_folder(&[], &mut |_| cancel());
    for folder in [COMMIT_FOLDER, PARTS_FOLDER, WORK_FOLDER] {
        let _ = destination.remove_folder(folder);
    }
}

/// Removes the leftovers of killed commits of a published dataset. Does nothing while another commit is running.
/// `patience` is as in [`CommitOptions::lease_patience`](super::CommitOptions::lease_patience).
pub fn remove_leftovers(
    destination: &Destination,
    patience: Option<Duration>,
    cancel: &mut dyn FnMut() -> bool,
) {
    let work = destination.entries(WORK_FOLDER, &mut |_| cancel());
    if work.is_ok_and(|work| work.is_empty()) {
        let _ = destination.remove_folder(WORK_FOLDER);
    } else if let Ok(lease) = claim(destination, patience, cancel) {
        release(lease, destination, cancel);
    }
}
