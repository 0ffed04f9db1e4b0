//! Handles files that are added under one name and removed under another. The kernel compares paths as text, but
//! `file:/a/b`, `file:///a/b` and `/a/b` are one file.

use std::collections::BTreeMap;
use std::path::PathBuf;

use delta_kernel::{Engine, KernelError, SnapshotRef};

use super::log_file::{Line, LogFile};

/// A file and its deletion vector.
type Key = (PathBuf, Option<String>);

fn key(file: &LogFile) -> Key {
    let deletion = file.deletion.as_ref().map(|deletion| deletion.id.clone());
    (file.path.file.clone(), deletion)
}

/// Drops the files with absolute paths whose last action is a remove under another name. `follow` resolves a path to a
/// file. Tables without absolute paths, which are nearly all, cost nothing.
pub(super) fn take_out_removed(
    files: &mut Vec<LogFile>,
    snapshot: &SnapshotRef,
    engine: &dyn Engine,
    follow: impl Fn(&str) -> Option<PathBuf>,
) -> Result<(), KernelError> {
    // For each file, whether its last action is a remove; `None` until an action is found.
    let mut removed: BTreeMap<Key, Option<bool>> = files
        .iter()
        .filter(|file| file.path.is_absolute)
        .map(|file| (key(file), None))
        .collect();
    if removed.is_empty() {
        return Ok(());
    }
    let storage = engine.storage_handler();
    let commits = &snapshot.log_segment().listed.ascending_commit_files;
    for commit in commits.iter().rev() {
        let file_slice = (commit.location.location.clone(), None);
        for bytes in storage.read_files(vec![file_slice])? {
            for line in bytes?.split(|byte| *byte == b'\n') {
                // The kernel has already parsed these lines and refused the broken ones.
                let Ok(action) = serde_json::from_slice::<Line>(line) else {
                    continue;
                };
                let is_remove = action.remove.is_some();
                let Some(named) = action.add.or(action.remove) else {
                    continue;
                };
                let Some(file) = follow(&named.path) else {
                    continue;
                };
                let own = (file, named.deletion());
                if let Some(last @ None) = removed.get_mut(&own) {
                    *last = Some(is_remove);
                }
            }
        }
    }
    files.retain(|file| removed.get(&key(file)) != Some(&Some(true)));
    Ok(())
}
