//! Tests of the folder's content: its owner, damage, and foreign files.

use std::cell::RefCell;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::{Duration, SystemTime};

use shardmill_core::ErrorKind;
use shardmill_testing::mount::Mount;

use super::*;
use crate::folder::{Claimed, Evicted, Folder, Lookup};

fn id(result: Result<bool>) -> &'static str {
    result.unwrap_err().id()
}

#[test]
fn blob_is_fetched_once_and_warm_start_fetches_none() {
    for set in [Set::new(3), Set::packed(3)] {
        let script = Script::new();
        let cache = open(&set, &options(None), &script);
        for tick in 0..2 {
            for blob in 0..3 {
                assert!(read(&cache, blob, tick));
            }
        }
        assert_eq!(script.calls(), [0, 1, 2]);
        drop(cache);
        let cache = open(&set, &options(None), &script);
        assert!((0..3).all(|blob| read(&cache, blob, 0)));
        assert_eq!(script.calls(), [0, 1, 2]);
        assert_eq!(
            (cache.stats().found_shards, cache.stats().fetched_shards),
            (3, 0)
        );
        // The folder has the layout of the format for other readers, and other users have no access.
        let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(set.blob(0)), mode(set.marker(0))), (0o600, 0o600));
        assert_eq!(
            (
                mode(set.own()),
                mode(set.root.path().join(".local.shardmill"))
            ),
            (0o700, 0o700)
        );
        assert!(fs::metadata(set.marker(2)).unwrap().len() <= MARKER_BYTES);
        assert_eq!(set.temps(), 0);
    }
}

thread_local! {
    /// What other processes do between the steps in which this thread looks for a blob.
    static BETWEEN_STEPS: RefCell<VecDeque<Box<dyn FnOnce()>>> = RefCell::default();
}

/// Does what a test wants to happen before the next step.
pub(crate) fn step() {
    let next = BETWEEN_STEPS.with_borrow_mut(VecDeque::pop_front);
    if let Some(next) = next {
        next();
    }
}

#[test]
fn blob_that_comes_or_goes_is_not_taken_for_a_user_file() {
    let set = Set::new(1);
    set.prepare();
    let local = Dir::open(&set.local()).unwrap();
    let folder = || Folder::open(&local, &[7; 32], true).unwrap();
    let (blobs, name) = (
        Arc::clone(&set.blobs),
        set.blobs[0].0.raw.basename.to_string(),
    );
    let other = Arc::new(folder());
    let write = move || {
        let Claimed::Held(marker) = other.claim(0).unwrap() else {
            panic!("another process has the marker");
        };
        other.write(&marker, &[(&name, b"content")]).unwrap();
    };
    let other = Arc::new(folder());
    let evict = move || {
        let evicted = other.evict(0, blob_of(&blobs[0], true, false)).unwrap();
        assert_eq!(evicted, Evicted::Removed);
    };
    let inspect = |steps: Vec<Box<dyn FnOnce()>>| {
        BETWEEN_STEPS.set(steps.into());
        let found = folder().inspect(0, set.get(0)).unwrap();
        assert!(BETWEEN_STEPS.with_borrow(VecDeque::is_empty));
        found
    };
    // The blob is written after its marker was looked for.
    let found = inspect(vec![Box::new(write.clone())]);
    let Lookup::Present { files, marker } = found else {
        panic!("{found:?}");
    };
    assert!(files.0.own && marker.is_some());
    drop((files, marker));
    evict.clone()();
    // It is also evicted again, after its file was opened.
    let found = inspect(vec![Box::new(write), Box::new(evict)]);
    assert!(matches!(found, Lookup::Missing), "{found:?}");
    // No process touches a file of the user.
    fs::write(set.blob(0), content(0)).unwrap();
    let found = inspect(Vec::new());
    let Lookup::Present { files, marker } = found else {
        panic!("{found:?}");
    };
    assert!(!files.0.own && marker.is_none());
}

#[test]
fn eviction_removes_all_files_of_a_blob() {
    let mut set = Set::split(2);
    set.keep_packed = true;
    let script = Script::new();
    let cache = open(&set, &options(Some(set.limit(1))), &script);
    let open = |blob, tick| {
        let found = cache.need(&[blob], tick, &Cancel::default()).unwrap();
        matches!(&found[0], Access::Open(open) if open.bytes == content(blob))
    };
    assert!(open(0, 0));
    let names = |set: &Set| {
        let mut names: Vec<_> = fs::read_dir(set.local())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.starts_with("blob"))
            .collect();
        names.sort();
        names
    };
    let expected = |blob| {
        ["", ".table", ".table.zstd", ".zstd"]
            .map(|end| format!("blob.0000{blob}{end}"))
            .to_vec()
    };
    assert_eq!(names(&set), expected(0));
    cache.move_to(1);
    assert!(open(1, 1));
    // All four files and the marker were removed.
    assert_eq!(names(&set), expected(1));
    assert!(!set.marker(0).exists());
    assert!(set.usage() <= set.limit(1));
}

#[test]
fn limit_below_minimum_is_an_error_with_the_minimum() {
    let set = Set::packed(3);
    let script = Script::new();
    let minimum = set.limit(1);
    assert!(try_open(&set, &options(Some(minimum)), &script).is_ok());
    let error = try_open(&set, &options(Some(minimum - 1)), &script).unwrap_err();
    assert_eq!(
        (error.id(), error.kind()),
        ("config-cache-limit", ErrorKind::InvalidInput)
    );
    assert!(matches!(error, CacheError::TooSmall { minimum: found, .. } if found == minimum));
    // Samples of these uncompressed blobs can be read individually.
    assert!(try_open(&Set::new(3), &options(Some(1)), &script).is_ok());
}

#[test]
fn valid_user_file_is_read_and_kept() {
    let set = Set::new(3);
    set.prepare();
    fs::copy(set.root.path().join("remote/blob.00000"), set.blob(0)).unwrap();
    let script = Script::new();
    let cache = open(&set, &options(Some(set.limit(1))), &script);
    for tick in 0..3 {
        cache.move_to(tick);
        assert!(read(&cache, usize::try_from(tick).unwrap(), tick));
    }
    assert_eq!(script.calls(), [1, 2]);
    // The user's file does not count: there was space for another blob.
    assert_eq!(set.resident(), [0, 2]);
    assert!(!set.marker(0).exists());
    cache.move_to(3);
    assert!(read(&cache, 0, 3));
}

#[test]
fn damaged_user_file_is_an_error_and_kept() {
    for damage in [Fault::Flip, Fault::Cut] {
        let set = Set::new(2);
        let mut bytes = fs::read(set.root.path().join("remote/blob.00000")).unwrap();
        match damage {
            Fault::Flip => bytes[1500] ^= 1,
            _ => bytes.truncate(100),
        }
        set.prepare();
        fs::write(set.blob(0), &bytes).unwrap();
        let script = Script::new();
        let cache = open(&set, &options(Some(set.limit(1))), &script);
        assert_eq!(id(try_read(&cache, 0, 0)), "cache-foreign");
        assert!(read(&cache, 1, 0));
        assert_eq!(fs::read(set.blob(0)).unwrap(), bytes);
        assert_eq!(script.calls(), [1]);
    }
}

#[test]
fn file_replacing_a_cached_one_is_kept_as_user_file() {
    let set = Set::new(2);
    let script = Script::new();
    let cache = open(&set, &options(Some(set.limit(1))), &script);
    assert!(read(&cache, 0, 0));
    drop(cache);
    let bytes = fs::read(set.blob(0)).unwrap();
    fs::write(set.local().join("new"), &bytes).unwrap();
    fs::rename(set.local().join("new"), set.blob(0)).unwrap();
    let cache = open(&set, &options(Some(set.limit(1))), &script);
    assert!(read(&cache, 0, 0));
    cache.move_to(1);
    assert!(read(&cache, 1, 1));
    // The marker was removed; the file stays.
    assert_eq!(set.resident(), [0, 1]);
    assert_eq!(fs::read(set.blob(0)).unwrap(), bytes);
}

#[test]
fn damaged_cache_files_are_fetched_again() {
    for damage in [Fault::Flip, Fault::Cut] {
        let set = Set::new(1);
        let script = Script::new();
        drop({
            let cache = open(&set, &options(None), &script);
            assert!(read(&cache, 0, 0));
            cache
        });
        let sound = match damage {
            Fault::Flip => set.flip(0, false),
            _ => {
                let sound = fs::read(set.blob(0)).unwrap();
                fs::write(set.blob(0), &sound[..100]).unwrap();
                sound
            }
        };
        let cache = open(&set, &options(None), &script);
        assert!(read(&cache, 0, 0));
        assert_eq!(script.calls(), [0, 0]);
        assert_eq!(fs::read(set.blob(0)).unwrap(), sound);
    }
}

#[test]
fn file_verified_by_another_process_is_not_rehashed() {
    let set = Set::new(1);
    let script = Script::new();
    // The process that fetches a blob verifies it and records that.
    drop({
        let cache = open(&set, &options(None), &script);
        assert!(read(&cache, 0, 0));
        cache
    });
    // An undetected change shows whether a process verifies the file.
    let sound = set.flip(0, true);
    let use_again = || {
        let cache = open(&set, &options(None), &script);
        let found = cache.need(&[0], 0, &Cancel::default()).unwrap();
        assert!(matches!(found[..], [Access::Open(_)]));
        fs::read(set.blob(0)).unwrap() == sound
    };
    assert!(!use_again());
    assert_eq!(script.calls(), [0]);
    // A stamp from before a restart does not match.
    let note = fs::read_to_string(set.marker(0)).unwrap();
    let (head, rest) = note.split_once("\nend\nok ").unwrap();
    let old = format!("{head}\nend\nok {:012x}{}", 0x5eed, &rest[12..]);
    fs::write(set.marker(0), old).unwrap();
    assert!(use_again());
    assert_eq!(script.calls(), [0, 0]);
    // A process that verifies existing files records that as well.
    let note = fs::read_to_string(set.marker(0)).unwrap();
    let blank = note.replace(&note[note.find("ok ").unwrap()..], "ok ------------\n");
    fs::write(set.marker(0), &blank).unwrap();
    assert!(use_again());
    assert_eq!(script.calls(), [0, 0]);
    let again = fs::read_to_string(set.marker(0)).unwrap();
    assert_ne!(again, blank);
    assert_eq!(again.lines().count(), blank.lines().count());
}

#[test]
fn file_changed_while_open_is_verified_again() {
    let set = Set::new(1);
    let script = Script::new();
    let cache = open(&set, &options(None), &script);
    assert!(read(&cache, 0, 0));
    let before = cache.generation();
    let file = fs::OpenOptions::new()
        .write(true)
        .open(set.blob(0))
        .unwrap();
    file.set_len(100).unwrap();
    assert!(cache.get(0).unwrap().is_cut());
    cache.forget_verification(0);
    assert!(cache.get(0).is_none() && cache.generation() > before);
    assert!(read(&cache, 0, 0));
    assert_eq!(script.calls(), [0, 0]);
}

#[test]
fn forgotten_verification_is_redone_despite_a_stamp() {
    let set = Set::new(1);
    let script = Script::new();
    let cache = open(&set, &options(None), &script);
    assert!(read(&cache, 0, 0));
    set.flip(0, true);
    cache.forget_verification(0);
    assert!(read(&cache, 0, 0));
    assert_eq!(script.calls(), [0, 0]);
    // The fetched replacement gets a stamp like any other.
    let note = fs::read_to_string(set.marker(0)).unwrap();
    assert!(!note.contains("ok -"), "{note}");
    assert!(cache.lock().checks.doubted.is_empty());
}

#[test]
fn stale_markers_and_temporary_files_are_removed() {
    let set = Set::new(3);
    let script = Script::new();
    let cache = open(&set, &options(Some(set.limit(3))), &script);
    assert!((0..3).all(|blob| read(&cache, blob, 0)));
    drop(cache);
    fs::remove_file(set.blob(1)).unwrap();
    // The state after a process was killed during a fetch.
    fs::remove_file(set.blob(2)).unwrap();
    fs::write(set.marker(2), "123\n").unwrap();
    fs::write(set.own().join("tmp-2-0123456789abcdef"), [0; 5000]).unwrap();
    fs::write(set.own().join("tmp-7-0123456789abcdef"), [0; 5000]).unwrap();
    let other = set.own().join("tmp-0123456789abcdef");
    fs::write(&other, [0; 50]).unwrap();
    let limit = set.limit(3) + 50;
    let cache = open(&set, &options(Some(limit)), &script);
    for blob in 0..3 {
        assert!(read(&cache, blob, 0));
        assert!(set.usage() <= limit);
    }
    assert_eq!(script.calls(), [0, 1, 2, 1, 2]);
    // The blob of one temporary file is unknown: it counts until it is old.
    assert_eq!(set.temps(), 1);
    drop(cache);
    let old = SystemTime::now() - Duration::from_secs(2 * 3600);
    let file = fs::OpenOptions::new().write(true).open(&other).unwrap();
    file.set_modified(old).unwrap();
    fs::remove_file(set.blob(1)).unwrap();
    let cache = open(&set, &options(None), &script);
    assert!(read(&cache, 1, 0));
    assert_eq!(set.temps(), 0);
}

#[test]
fn symlinks_are_not_followed() {
    let set = Set::new(2);
    set.prepare();
    let victim = set.root.path().join("victim");
    fs::write(&victim, b"precious").unwrap();
    symlink(&victim, set.blob(0)).unwrap();
    let script = Script::new();
    let cache = open(&set, &options(Some(set.limit(1))), &script);
    assert_eq!(id(try_read(&cache, 0, 0)), "path-symlink");
    assert!(read(&cache, 1, 0));
    drop(cache);
    // A link replaces a marker.
    fs::remove_file(set.blob(1)).unwrap();
    fs::remove_file(set.marker(1)).unwrap();
    symlink(&victim, set.marker(1)).unwrap();
    let cache = open(&set, &options(Some(set.limit(2))), &script);
    assert_eq!(id(try_read(&cache, 1, 0)), "path-symlink");
    drop(cache);
    // A link replaces the folder.
    let (own, away) = (set.own(), set.root.path().join("away"));
    fs::rename(&own, &away).unwrap();
    symlink(&away, &own).unwrap();
    let cache = open(&set, &options(None), &script);
    assert_eq!(id(try_read(&cache, 1, 0)), "path-symlink");
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
}

/// Reads all blobs in this order, and returns whether the cache could open all of them.
fn read_all(set: &Set, options: &CacheOptions, script: &Arc<Script>) -> bool {
    let cache = open(set, options, script);
    (0..set.len()).all(|blob| {
        let tick = blob as u64;
        let is_read = read(&cache, blob, tick);
        cache.move_to(tick + 1);
        is_read
    })
}

#[test]
fn folder_that_is_a_bind_mount_is_a_cache() {
    let mut local = Set::packed(4);
    local.is_remote = false;
    for set in [Set::new(4), Set::packed(4), local] {
        let (from, script) = (set.root.path().join("from"), Script::new());
        fs::create_dir_all(&from).unwrap();
        if !set.is_remote {
            fs::rename(set.remote(), &from).unwrap();
        }
        let Some(mount) = Mount::bind(&from, &set.local()) else {
            return;
        };
        let limit = set.is_remote.then(|| set.limit(2));
        for _ in 0..2 {
            assert!(read_all(&set, &options(limit), &script));
        }
        // Its own files are inside, where they can be renamed.
        let own = |path: PathBuf| path.join(".shardmill").is_dir();
        assert!(own(set.local()) && !set.root.path().join(".local.shardmill").exists());
        assert_eq!(set.resident().len(), if set.is_remote { 2 } else { 4 });
        drop(mount);
    }
}

#[test]
fn blobs_of_a_read_only_folder_are_read_and_others_are_fetched_to_memory() {
    for set in [Set::new(4), Set::packed(4)] {
        let Some(mount) = Mount::bind(set.root.path(), set.root.path()) else {
            return;
        };
        let script = Script::new();
        assert!(read_all(&set, &options(None), &script));
        assert_eq!(script.calls().len(), 4);
        mount.remount("bind,ro").unwrap();
        // With a limit that is too low, nothing is evicted either.
        for options in [options(None), options(Some(set.limit(1)))] {
            assert!(read_all(&set, &options, &script));
        }
        assert_eq!((script.calls().len(), set.resident().len()), (4, 4));
        mount.remount("bind,rw").unwrap();
        fs::remove_file(set.blob(1)).unwrap();
        set.flip(2, false);
        mount.remount("bind,ro").unwrap();
        for _ in 0..2 {
            assert!(read_all(&set, &options(None), &script));
        }
        assert_eq!(script.calls()[4..], [1, 2, 1, 2]);
        // Without the cache's own files, the files are like those of a user.
        mount.remount("bind,rw").unwrap();
        fs::remove_dir_all(set.root.path().join(".local.shardmill")).unwrap();
        fs::remove_file(set.blob(2)).unwrap();
        mount.remount("bind,ro").unwrap();
        assert!(read_all(&set, &options(None), &script));
        assert_eq!(script.calls()[8..], [1, 2]);
        assert!(!set.root.path().join(".local.shardmill").exists());
    }
}

#[test]
fn many_blobs_in_flight_and_pinned_take_few_descriptors() {
    let set = Set::new(300);
    let script = Script::new();
    script.hold(true);
    let own = set.root.path().to_owned();
    let below = || {
        let links = fs::read_dir("/proc/self/fd").unwrap();
        let links = links.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        links.filter(|link| link.starts_with(&own)).count()
    };
    let cache = open(&set, &options(Some(set.limit(300))), &script);
    let ticks: Vec<usize> = (0..300).collect();
    cache.set_plan(access_plan(300, &[&[&ticks]]), Some(0));
    while cache.turn() {}
    let first = script.waiting().len();
    assert!(
        (1..=48).contains(&first) && below() < 10,
        "{first} {}",
        below()
    );
    script.hold(false);
    for blob in script.waiting() {
        script.answer(blob);
    }
    for blob in 0..300 {
        assert!(read(&cache, blob, 0));
        assert!(below() < 10, "{}", below());
    }
    assert_eq!(cache.lock().open.pins, 300);
    // Another process can evict none of them.
    let other = open(&set, &options(Some(set.limit(1))), &Script::new());
    assert!(read(&other, 0, 0));
    assert_eq!(set.resident().len(), 300);
}

#[test]
fn folders_are_private_and_foreign_owners_are_rejected() {
    let set = Set::new(1);
    let script = Script::new();
    drop({
        let cache = open(&set, &options(None), &script);
        assert!(read(&cache, 0, 0));
        cache
    });
    fs::set_permissions(set.own(), fs::Permissions::from_mode(0o777)).unwrap();
    drop({
        let cache = open(&set, &options(None), &script);
        assert!(read(&cache, 0, 0));
        cache
    });
    assert_eq!(
        fs::metadata(set.own()).unwrap().permissions().mode() & 0o777,
        0o700
    );
    // Only root can change the owner of a folder.
    if std::os::unix::fs::chown(set.own(), Some(12_345), None).is_ok() {
        let cache = open(&set, &options(None), &script);
        assert_eq!(id(try_read(&cache, 0, 0)), "path-owner");
    }
}

#[test]
fn corrupt_fetches_are_retried_twice() {
    let set = Set::packed(3);
    let script = Script::new();
    script.faults(0, &[Fault::Flip, Fault::Cut]);
    script.faults(1, &[Fault::Flip; 3]);
    let cache = open(&set, &options(Some(set.limit(3))), &script);
    assert!(read(&cache, 0, 0));
    assert_eq!(script.calls(), [0; 3]);
    let error = try_read(&cache, 1, 0).unwrap_err();
    assert_eq!(
        (error.id(), error.kind()),
        ("test-content", ErrorKind::Corrupt)
    );
    let text = format!("{} {}", error.object().unwrap(), error.chain());
    assert!(
        text.contains("blob.00001.zstd")
            && text.contains("3 fetches")
            && text.contains("samples 4 to 7"),
        "{text}"
    );
    assert_eq!(script.calls()[3..], [1; 3]);
    // The reservation is released, and another request tries again.
    assert!(!set.marker(1).exists() && set.temps() == 0);
    assert!(read(&cache, 1, 0));
    assert_eq!(cache.stats().bad_fetches, 5);
    // A missing file is not damaged; the error names its expected location.
    let remote_file = set.root.path().join("remote/blob.00002.zstd");
    let away = set.root.path().join("away");
    fs::rename(&remote_file, &away).unwrap();
    let error = try_read(&cache, 2, 0).unwrap_err();
    assert_eq!(error.id(), "test-missing");
    let text = error.chain();
    assert!(
        text.contains(remote_file.to_str().unwrap()) && !text.contains("times"),
        "{text}"
    );
    let calls = || script.calls().iter().filter(|blob| **blob == 2).count();
    assert_eq!(calls(), 1);
    fs::rename(&away, &remote_file).unwrap();
    // The cache does not retry an error of the store.
    script.faults(2, &[Fault::GiveUp]);
    assert_eq!(id(try_read(&cache, 2, 0)), "io");
    assert_eq!(calls(), 2);
    assert!(read(&cache, 2, 0));
}

#[test]
fn full_disk_evicts_blobs_then_uses_memory() {
    let set = Set::new(3);
    let script = Script::new();
    let cache = open(&set, &options(None), &script);
    assert!(read(&cache, 0, 0));
    cache.move_to(1);
    let folder = cache.capacity.folder(0).unwrap().unwrap();
    let full = |times| {
        folder
            .full
            .store(times, std::sync::atomic::Ordering::Relaxed)
    };
    // The write fails twice although space seems free, so the bytes on disk become the limit.
    full(2);
    assert!(read(&cache, 1, 1));
    assert_eq!(set.resident(), [1]);
    assert_eq!((cache.stats().evictions, cache.stats().bypasses), (1, 0));
    full(5);
    assert!(read(&cache, 2, 1));
    assert_eq!(set.resident(), [1]);
    assert_eq!((cache.stats().evictions, cache.stats().bypasses), (1, 1));
    assert!(cache.stats().memory_bytes > 0 && !set.marker(2).exists());
    // The blob stays in memory until its batch was delivered.
    full(0);
    cache.move_to(2);
    assert!(cache.get(2).is_none() && cache.stats().memory_bytes == 0);
}

#[test]
fn blob_that_cannot_be_removed_still_counts() {
    let set = Set::new(3);
    let script = Script::new();
    let cache = open(&set, &options(Some(set.limit(1))), &script);
    assert!(read(&cache, 0, 0));
    cache.move_to(1);
    let folder = cache.capacity.folder(0).unwrap().unwrap();
    folder.stuck.store(2, std::sync::atomic::Ordering::Relaxed);
    // Nothing can be evicted, so the blob is held in memory.
    assert!(read(&cache, 1, 1));
    assert_eq!(set.resident(), [0]);
    assert!(set.marker(0).exists() && cache.stats().evictions == 0);
    folder.stuck.store(0, std::sync::atomic::Ordering::Relaxed);
    cache.move_to(2);
    assert!(read(&cache, 2, 2));
    assert_eq!(set.resident(), [2]);
    assert!(!set.marker(0).exists() && cache.stats().evictions == 1);
}

#[test]
fn streams_sharing_a_folder_are_an_error() {
    let set = Set::new(1);
    let mut blobs = set.open(&Script::new());
    blobs.copies = 2;
    let error = Cache::new(Arc::new(blobs), &options(None)).unwrap_err();
    assert_eq!(error.id(), "config-stream-folder");
}

#[test]
fn local_compressed_dataset_is_unpacked_in_its_folder() {
    let mut set = Set::packed(2);
    set.is_remote = false;
    let script = Script::new();
    let cache = open(&set, &options(None), &script);
    assert!(read(&cache, 0, 0) && read(&cache, 1, 0));
    let remote = set.root.path().join("remote");
    assert!(remote.join("blob.00000").exists() && remote.join("blob.00000.zstd").exists());
    drop(cache);
    // A wrong raw file of another program is ignored: the compressed file is authoritative.
    fs::remove_file(remote.join("blob.00000")).unwrap();
    fs::write(remote.join("blob.00000"), b"?").unwrap();
    let cache = open(&set, &options(None), &script);
    assert!(read(&cache, 0, 0));
    assert_eq!(fs::read(remote.join("blob.00000")).unwrap(), b"?");
}

#[test]
fn local_dataset_is_read_in_place() {
    let mut set = Set::new(3);
    set.is_remote = false;
    let script = Script::new();
    let few = CacheOptions {
        open_shards: 2,
        ..options(None)
    };
    let cache = open(&set, &few, &script);
    for blob in [0, 1, 0, 2] {
        assert!(read(&cache, blob, 0));
    }
    // The least recently used blob is closed.
    assert!(cache.get(0).is_some() && cache.get(1).is_none() && cache.get(2).is_some());
    assert_eq!(script.calls(), [0_usize; 0]);
    assert!(!set.root.path().join("remote/.shardmill").exists());
    assert!(!set.root.path().join(".remote.shardmill").exists());
    fs::remove_file(set.root.path().join("remote/blob.00001")).unwrap();
    assert_eq!(id(try_read(&cache, 1, 0)), "test-missing");
    assert_eq!(id(try_read(&cache, 3, 0)), "test-absent");
}
