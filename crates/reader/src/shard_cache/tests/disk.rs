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

/// A disk with space for this many shards, the index and the margin.
fn room_for(set: &Set, shards: usize, honest: bool) -> FakeDisk {
    FakeDisk {
        bytes: set.limit(shards) * 66 / 64 + 300,
        file: u64::MAX,
        honest,
    }
}

/// Three rounds over the shards, with two shards per batch.
fn rounds(shards: usize) -> Vec<Vec<usize>> {
    (0..3 * shards / 2)
        .map(|tick| vec![2 * tick % shards, (2 * tick + 1) % shards])
        .collect()
}

/// Reads the rounds with several readers in turn, and returns the number of fetches.
fn fetches(set: &Set, options: &CacheOptions, readers: usize) -> usize {
    let ticks = rounds(set.catalog().len());
    let ticks: Vec<&[usize]> = ticks.iter().map(Vec::as_slice).collect();
    let script = Script::new();
    let readers: Vec<ShardCache> = (0..readers)
        .map(|_| shard_cache(set, options, &script))
        .collect();
    for cache in &readers {
        cache.plan(access_plan(set.catalog().len(), &[&ticks]), 0);
    }
    for (tick, shards) in (0_u64..).zip(&ticks) {
        for cache in &readers {
            for shard in *shards {
                assert!(read(cache, *shard, tick));
            }
            cache.at(tick + 1);
            // Runs the prefetches.
            while engine(cache).turn() {}
        }
    }
    script.calls().len()
}

#[test]
fn a_full_disk_costs_no_more_fetches_than_the_equal_limit() {
    for readers in [1, 3] {
        let limited = Set::new(12);
        let limit = limited.limit(5);
        let expected = fetches(&limited, &options(Some(limit)), readers);
        for honest in [true, false] {
            let set = Set::new(12);
            drop(set.catalog());
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
fn the_limit_of_the_disk_follows_the_files_of_other_programs() {
    let set = Set::new(4);
    drop(set.catalog());
    let script = Script::new();
    put_on(&set, room_for(&set, 3, true));
    let cache = shard_cache(&set, &options(None), &script);
    let wait = || std::thread::sleep(Duration::from_millis(520));
    let step = |tick: u64, shard| {
        assert!(read(&cache, shard, tick));
        cache.at(tick + 1);
    };
    step(0, 0);
    // Another program takes the space of the other two shards.
    let taken = set.local().join("other.bin");
    let weight = weight(set.catalog().entry(3).unwrap(), false);
    fs::write(&taken, vec![0; usize::try_from(2 * weight).unwrap()]).unwrap();
    wait();
    for shard in 1..4 {
        step(shard as u64, shard);
        assert_eq!(set.resident(), [shard]);
    }
    assert_eq!(cache.stats().bypasses, 0);
    fs::remove_file(&taken).unwrap();
    wait();
    for shard in 0..3 {
        step(4 + shard as u64, shard);
    }
    assert_eq!(set.resident().len(), 3);
    assert_eq!((script.calls().len(), cache.stats().bypasses), (7, 0));
}

#[test]
fn a_shard_larger_than_a_file_may_be_is_held_in_memory_and_nobody_leaves_for_it() {
    let set = Set::new(4);
    drop(set.catalog());
    let script = Script::new();
    let largest = set.catalog().entry(3).unwrap().bytes();
    let disk = FakeDisk {
        file: largest - 1,
        ..room_for(&set, 4, true)
    };
    put_on(&set, disk);
    let cache = shard_cache(&set, &options(None), &script);
    for round in 0..3 {
        for shard in 0..4 {
            let tick = round * 4 + shard as u64;
            assert!(read(&cache, shard, tick));
            cache.at(tick + 1);
        }
    }
    assert_eq!(set.resident(), [0, 1, 2]);
    // Shards 0 to 2 are fetched once, shard 3 for each use.
    assert_eq!(script.calls().len(), 6);
    assert_eq!(cache.stats().evictions, 0);
}

#[test]
fn shards_without_a_place_are_fetched_once_for_a_batch() {
    let set = Set::with(5, Some("zstd:3"));
    let script = Script::new();
    let tight = CacheOptions {
        memory: 0,
        ..options(Some(set.limit(1)))
    };
    let cache = shard_cache(&set, &tight, &script);
    cache.plan(access_plan(5, &[&[&[0, 1, 2, 3, 4]]]), 0);
    let found = cache.need(&[0, 1, 2, 3, 4], 0, &Cancel::new()).unwrap();
    let places = found.iter().enumerate();
    let alone: Vec<usize> = places
        .filter(|(_, access)| matches!(access, Access::Alone))
        .map(|(shard, _)| shard)
        .collect();
    assert_eq!(alone.len(), 3);
    let before = script.calls().len();
    // Mixed, like the samples of a batch.
    let wanted: Vec<(usize, u64)> = (0..SAMPLES as u64)
        .flat_map(|at| alone.iter().map(move |shard| (*shard, at)))
        .collect();
    let samples = cache.samples(&wanted).unwrap();
    for ((shard, at), found) in wanted.iter().zip(samples) {
        let expected = sample(&[(false, &value(*shard, usize::try_from(*at).unwrap()))]);
        assert!(found.bytes == expected, "{shard}:{at}");
    }
    assert_eq!(script.calls().len() - before, 3);
    // One of them was kept; the other two are fetched again.
    cache.samples(&wanted).unwrap();
    assert_eq!(script.calls().len() - before, 5);
}

#[test]
fn shards_without_a_place_are_kept_while_they_are_used_as_far_as_the_memory_goes() {
    let set = Set::with(6, Some("zstd:3"));
    let script = Script::new();
    let catalog = set.catalog();
    let parts = catalog.entry(5).unwrap().parts();
    let raw: u64 = parts.map(|part| part.raw.bytes).sum();
    // Space for one shard on disk, four in memory, and one in addition to the memory limit.
    let tight = CacheOptions {
        memory: 4 * raw,
        ..options(Some(set.limit(1)))
    };
    let cache = shard_cache(&set, &tight, &script);
    let all: &[usize] = &[0, 1, 2, 3, 4, 5];
    cache.plan(access_plan(6, &[&[all, all, all]]), 0);
    for tick in 0..3 {
        for access in cache.need(all, tick, &Cancel::new()).unwrap() {
            drop(access);
        }
        for shard in all {
            read(&cache, *shard, tick);
        }
        cache.at(tick + 1);
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
fn a_tmpfs_without_space_or_inodes_costs_no_more_fetches_than_the_equal_limit() {
    let limited = Set::new(24);
    let expected = fetches(&limited, &options(Some(limited.limit(6))), 1);
    // Each shard takes two blocks, and its marker one. The index takes three; there are also a lock file and folders.
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
