//! Tests with full disks: simulated ones, and a tmpfs if the test may mount one.

use std::process::Command;
use std::time::Duration;

use shardmill_storage::{Space, StorageError};

use super::*;

/// A simulated disk that holds only one dataset.
#[derive(Clone, Copy, Debug)]
struct FakeDisk {
    bytes: u64,
    /// The largest possible file in bytes.
    file: u64,
    /// Whether free space is reported correctly; a quota makes it wrong.
    honest: bool,
}

static DISKS: Mutex<BTreeMap<PathBuf, FakeDisk>> = Mutex::new(BTreeMap::new());

fn put_on(set: &Set, disk: FakeDisk) {
    DISKS.lock().unwrap().insert(set.local(), disk);
}

fn on_disk(local: &Path) -> u64 {
    fn walk(path: &Path) -> u64 {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let bytes = entries.map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => walk(&entry.path()),
            Ok(found) => found.len(),
            Err(_) => 0,
        });
        bytes.sum()
    }
    walk(local) + walk(&local.with_file_name(".local.shardmill"))
}

/// Returns the free space of the simulated disk of a folder.
pub(crate) fn space(local: &Path) -> Option<Space> {
    let disk = *DISKS.lock().unwrap().get(local)?;
    Some(Space {
        bytes: if disk.honest {
            disk.bytes.saturating_sub(on_disk(local))
        } else {
            1 << 50
        },
        block: 1,
        files: None,
    })
}

/// Fails if a write to the simulated disk would fail.
pub(crate) fn write(local: &Path, files: &[(&str, &[u8])]) -> Result<(), StorageError> {
    let Some(disk) = DISKS.lock().unwrap().get(local).copied() else {
        return Ok(());
    };
    let failed = |kind: std::io::ErrorKind| StorageError::Io {
        action: "write",
        path: local.to_owned(),
        source: kind.into(),
    };
    let bytes = files.iter().map(|(_, bytes)| bytes.len() as u64);
    if bytes.clone().any(|bytes| bytes > disk.file) {
        return Err(failed(std::io::ErrorKind::FileTooLarge));
    }
    if on_disk(local) + bytes.sum::<u64>() > disk.bytes {
        return Err(failed(std::io::ErrorKind::StorageFull));
    }
    Ok(())
}

/// A disk with space for this many blobs, the index and the margin.
fn room_for(set: &Set, blobs: usize, honest: bool) -> FakeDisk {
    FakeDisk {
        bytes: set.limit(blobs) * 66 / 64 + 300,
        file: u64::MAX,
        honest,
    }
}

/// Three rounds over the blobs, with two blobs per batch.
fn rounds(blobs: usize) -> Vec<Vec<usize>> {
    (0..3 * blobs / 2)
        .map(|tick| vec![2 * tick % blobs, (2 * tick + 1) % blobs])
        .collect()
}

/// Reads the rounds with several readers in turn, and returns the number of fetches.
fn fetches(set: &Set, options: &CacheOptions, readers: usize) -> usize {
    let ticks = rounds(set.len());
    let ticks: Vec<&[usize]> = ticks.iter().map(Vec::as_slice).collect();
    let script = Script::new();
    let readers: Vec<TestCache> = (0..readers).map(|_| open(set, options, &script)).collect();
    for cache in &readers {
        cache.set_plan(access_plan(set.len(), &[&ticks]), Some(0));
    }
    for (tick, blobs) in (0_u64..).zip(&ticks) {
        for cache in &readers {
            for blob in *blobs {
                assert!(read(cache, *blob, tick));
            }
            cache.move_to(tick + 1);
            // Runs the prefetches.
            while cache.turn() {}
        }
    }
    script.calls().len()
}

#[test]
fn full_disk_costs_no_more_fetches_than_an_equal_limit() {
    for readers in [1, 3] {
        let limited = Set::new(12);
        let limit = limited.limit(5);
        let expected = fetches(&limited, &options(Some(limit)), readers);
        for honest in [true, false] {
            let set = Set::new(12);
            set.prepare();
            put_on(&set, room_for(&set, 5, honest));
            let found = fetches(&set, &options(None), readers);
            println!(
                "{readers} readers, honest {honest}: {found} fetches, with a limit {expected}"
            );
            // A limit that the file system does not report costs each process some failed fetches.
            let found_out = if honest { 0 } else { (readers - 1) * 7 };
            assert!(
                (found - found_out.min(found)) * 10 <= expected * 12,
                "{found} > 1.2 × {expected}"
            );
        }
    }
}

#[test]
fn disk_limit_follows_files_of_other_programs() {
    let set = Set::new(4);
    set.prepare();
    let script = Script::new();
    put_on(&set, room_for(&set, 3, true));
    let cache = open(&set, &options(None), &script);
    let wait = || std::thread::sleep(Duration::from_millis(520));
    let step = |tick: u64, blob| {
        assert!(read(&cache, blob, tick));
        cache.move_to(tick + 1);
    };
    step(0, 0);
    // Another program takes the space of the other two blobs.
    let taken = set.local().join("other.bin");
    let weight = set.get(3).cached_bytes();
    fs::write(&taken, vec![0; usize::try_from(2 * weight).unwrap()]).unwrap();
    wait();
    for blob in 1..4 {
        step(blob as u64, blob);
        assert_eq!(set.resident(), [blob]);
    }
    assert_eq!(cache.stats().bypasses, 0);
    fs::remove_file(&taken).unwrap();
    wait();
    for blob in 0..3 {
        step(4 + blob as u64, blob);
    }
    assert_eq!(set.resident().len(), 3);
    assert_eq!((script.calls().len(), cache.stats().bypasses), (7, 0));
}

#[test]
fn blob_above_the_file_size_limit_stays_in_memory() {
    let set = Set::new(4);
    set.prepare();
    let script = Script::new();
    let largest = set.get(3).total_bytes();
    let disk = FakeDisk {
        file: largest - 1,
        ..room_for(&set, 4, true)
    };
    put_on(&set, disk);
    let cache = open(&set, &options(None), &script);
    for round in 0..3 {
        for blob in 0..4 {
            let tick = round * 4 + blob as u64;
            assert!(read(&cache, blob, tick));
            cache.move_to(tick + 1);
        }
    }
    assert_eq!(set.resident(), [0, 1, 2]);
    // Blobs 0 to 2 are fetched once, blob 3 for each use.
    assert_eq!(script.calls().len(), 6);
    assert_eq!(cache.stats().evictions, 0);
}

#[test]
fn uncached_blobs_are_fetched_once_per_batch() {
    let set = Set::packed(5);
    let script = Script::new();
    let tight = CacheOptions {
        memory: 0,
        ..options(Some(set.limit(1)))
    };
    let cache = open(&set, &tight, &script);
    cache.set_plan(access_plan(5, &[&[&[0, 1, 2, 3, 4]]]), Some(0));
    let found = cache.need(&[0, 1, 2, 3, 4], 0, &Cancel::default()).unwrap();
    let accesses = found.iter().enumerate();
    let alone: Vec<usize> = accesses
        .filter(|(_, access)| matches!(access, Access::Uncached))
        .map(|(blob, _)| blob)
        .collect();
    assert_eq!(alone.len(), 3);
    let before = script.calls().len();
    let read_all = || {
        for blob in &alone {
            assert!(
                cache.whole(*blob).unwrap().bytes == content(*blob),
                "{blob}"
            );
        }
    };
    read_all();
    assert_eq!(script.calls().len() - before, 3);
    // One of them was kept; the other two are fetched again.
    read_all();
    assert_eq!(script.calls().len() - before, 5);
}

#[test]
fn uncached_blobs_in_use_are_kept_up_to_the_memory_limit() {
    let set = Set::packed(6);
    let script = Script::new();
    let raw = set.get(5).raw_bytes();
    // Space for one blob on disk, four in memory, and one in addition to the memory limit.
    let tight = CacheOptions {
        memory: 4 * raw,
        ..options(Some(set.limit(1)))
    };
    let cache = open(&set, &tight, &script);
    let all: &[usize] = &[0, 1, 2, 3, 4, 5];
    cache.set_plan(access_plan(6, &[&[all, all, all]]), Some(0));
    for tick in 0..3 {
        for access in cache.need(all, tick, &Cancel::default()).unwrap() {
            drop(access);
        }
        for blob in all {
            read(&cache, *blob, tick);
        }
        cache.move_to(tick + 1);
    }
    assert_eq!(script.calls().len(), 6);
}

/// A small file system, unmounted on drop.
struct Mounted(PathBuf);

impl Mounted {
    /// Returns `None` and prints a message if the test may not mount.
    fn new(path: &Path, options: &str) -> Option<Self> {
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "none"])
            .arg(path)
            .output();
        match mount {
            Ok(done) if done.status.success() => Some(Self(path.to_owned())),
            other => {
                println!("skipped: this process may not mount a tmpfs: {other:?}");
                None
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn full_tmpfs_costs_no_more_fetches_than_an_equal_limit() {
    let limited = Set::new(24);
    let expected = fetches(&limited, &options(Some(limited.limit(6))), 1);
    // Each blob takes two blocks, and its marker one. The index takes three; there are also a lock file and folders.
    for tmpfs in ["size=128k", "size=64m,nr_inodes=36"] {
        let set = Set::new(24);
        fs::create_dir_all(set.local()).unwrap();
        let Some(_mounted) = Mounted::new(&set.local(), tmpfs) else {
            return;
        };
        let found = fetches(&set, &options(None), 1);
        println!("{tmpfs}: {found} fetches, with a limit {expected}");
        assert!(
            found * 10 <= expected * 12,
            "{tmpfs}: {found} > 1.2 × {expected}"
        );
    }
}
