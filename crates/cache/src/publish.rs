//! Writes files about a dataset, such as its index, into the folder that its shards are fetched to.

use std::io::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use shardmill_storage::{Claim, ClaimMode, ClaimState, Dir, PublishMode, StorageError, TempFile};

use crate::folder::private_folder;

/// Writes a file into the folder that shards are fetched to. A process that is killed meanwhile leaves a temporary file
/// among the cache's own files, which the next process that writes here removes.
pub fn publish(
    local: &Dir,
    name: &str,
    bytes: &[u8],
    mode: PublishMode,
) -> Result<(), StorageError> {
    let own = private_folder(local)?;
    let claim = wait_for_lock(&own)?;
    // Whoever wrote these files would hold the lock.
    if claim.held().is_some() {
        for entry in own.entries()? {
            if let Some(name) = entry.name.to_str()
                && name.starts_with(TempFile::PREFIX)
            {
                own.remove(name)?;
            }
        }
    }
    let mut temp = local.temp_file_in(&own, "")?;
    temp.write_all(bytes)
        .map_err(|error| temp.write_error(error))?;
    temp.publish(name, mode)
}

/// Locks a file in the cache's own folder. Returns it unlocked if the file system has no locks, or if another process
/// holds the lock for a long time: it is not needed to write, only to remove what others left.
pub(crate) fn wait_for_lock(own: &Dir) -> Result<Claim, StorageError> {
    const LONG: Duration = Duration::from_secs(10);

    let start = Instant::now();
    let mut claim = Claim::open_or_create(own, "lock")?;
    while claim.lock(ClaimMode::Exclusive)? == ClaimState::Busy && start.elapsed() < LONG {
        thread::sleep(Duration::from_millis(1));
    }
    Ok(claim)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_a_killed_process_left_is_removed_and_what_is_being_written_is_not() {
        let root = tempfile::tempdir().unwrap();
        let local = root.path().join("local");
        fs::create_dir(&local).unwrap();
        let local = Dir::open(&local).unwrap();
        let own = private_folder(&local).unwrap();
        let left = own.path_of("tmp-0123456789abcdef");
        fs::write(&left, "half an ind").unwrap();
        thread::scope(|scope| {
            let mut claim = Claim::open_or_create(&own, "lock").unwrap();
            assert_eq!(claim.lock(ClaimMode::Exclusive).unwrap(), ClaimState::Held);
            let publish = || publish(&local, "index.json", b"index", PublishMode::CreateNew);
            let other = scope.spawn(publish);
            thread::sleep(Duration::from_millis(50));
            assert!(left.exists() && !local.exists("index.json").unwrap());
            drop(claim);
            other.join().unwrap().unwrap();
        });
        assert_eq!(fs::read(local.path_of("index.json")).unwrap(), b"index");
        let names = |dir: &Dir| {
            let entries = dir.entries().unwrap();
            let names = entries.into_iter().map(|entry| entry.name);
            names.collect::<Vec<_>>()
        };
        assert_eq!(
            (names(&local), names(&own)),
            (vec!["index.json".into()], vec!["lock".into()])
        );
        let again = publish(&local, "index.json", b"other", PublishMode::CreateNew);
        assert!(
            matches!(again, Err(StorageError::Exists { .. })),
            "{again:?}"
        );
        publish(&local, "index.json", b"other", PublishMode::Replace).unwrap();
        assert_eq!(fs::read(local.path_of("index.json")).unwrap(), b"other");
    }
}
