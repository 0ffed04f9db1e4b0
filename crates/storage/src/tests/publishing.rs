//! Tests of publishing, with and without failures of the disk.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use shardmill_core::{Diagnostic as _, ErrorKind};
use shardmill_testing::mount::Mount;

use super::{BOTH, id, is_root, root, with_failing_sync};
use crate::{Dir, EntryKind, Lease, PublishMode, TempFile};

#[test]
fn file_is_published_atomically() {
    let (temp, dir) = root();
    dir.make_private_dir("work").unwrap();
    for folder in [None, Some("work")] {
        let mut file = dir.temp_file(folder).unwrap();
        file.write_all(b"one ").unwrap();
        file.write_all(b"two").unwrap();
        file.flush().unwrap();
        assert_eq!(file.written(), 7);
        let path = file.path();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert!(
            path.file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with(TempFile::PREFIX)
        );
        assert!(!dir.exists("out").unwrap());
        file.publish("out", PublishMode::CreateNew).unwrap();
        assert!(!path.exists());
        let metadata = fs::metadata(temp.path().join("out")).unwrap();
        assert_eq!((metadata.nlink(), metadata.len()), (1, 7));
        assert_eq!(
            dir.open_file("out").unwrap().read_all(9).unwrap(),
            b"one two"
        );
        assert!(dir.remove("out").unwrap());
    }
    assert_eq!(dir.list().unwrap(), ["work"]);
}

#[test]
fn create_new_never_changes_an_existing_file() {
    let (temp, dir) = root();
    dir.publish_bytes(None, "f", b"old", PublishMode::CreateNew)
        .unwrap();
    let error = dir
        .publish_bytes(None, "f", b"new", PublishMode::CreateNew)
        .unwrap_err();
    assert_eq!((error.id(), error.kind()), ("exists", ErrorKind::Conflict));
    assert!(error.object().unwrap().ends_with("/f"));
    assert_eq!(fs::read(temp.path().join("f")).unwrap(), b"old");
    symlink("f", temp.path().join("l")).unwrap();
    assert_eq!(
        id(dir.publish_bytes(None, "l", b"new", PublishMode::CreateNew)),
        "exists"
    );
    dir.publish_bytes(None, "f", b"new", PublishMode::Replace)
        .unwrap();
    assert_eq!(fs::read(temp.path().join("f")).unwrap(), b"new");
    // A link is replaced, not followed.
    dir.publish_bytes(None, "l", b"file", PublishMode::Replace)
        .unwrap();
    assert_eq!(fs::read(temp.path().join("f")).unwrap(), b"new");
    assert_eq!(dir.kind_of("l").unwrap(), Some(EntryKind::File));
    assert_eq!(dir.list().unwrap(), ["f", "l"]);
}

#[test]
fn one_of_many_concurrent_creators_wins() {
    let (_temp, dir) = root();
    let wins = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for writer in 0..8_u8 {
            let (dir, wins) = (&dir, &wins);
            scope.spawn(move || {
                match dir.publish_bytes(None, "f", &[writer; 100], PublishMode::CreateNew) {
                    Ok(()) => {
                        wins.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(error) => assert_eq!(error.id(), "exists"),
                }
            });
        }
    });
    assert_eq!(wins.into_inner(), 1);
    let content = dir.open_file("f").unwrap().read_all(100).unwrap();
    assert!(content.len() == 100 && content.iter().all(|byte| *byte == content[0]));
    assert_eq!(dir.list().unwrap(), ["f"]);
}

#[test]
fn file_is_published_into_its_subfolder() {
    let (temp, dir) = root();
    dir.make_dir("a/b").unwrap();
    for resolver in BOTH {
        let dir = dir.clone().with_resolver(resolver);
        dir.publish_bytes(Some("a"), "a/b/f", b"x", PublishMode::Replace)
            .unwrap();
        assert_eq!(fs::read(temp.path().join("a/b/f")).unwrap(), b"x");
        assert_eq!(
            id(dir.publish_bytes(Some("a"), "a/b/f", b"x", PublishMode::CreateNew)),
            "exists"
        );
        assert_eq!(
            id(dir.publish_bytes(None, "a/x/f", b"x", PublishMode::Replace)),
            "not-found"
        );
    }
    assert_eq!(dir.open_dir("a").unwrap().list().unwrap(), ["b"]);
    assert_eq!(dir.list().unwrap(), ["a"]);
}

#[test]
fn dropped_temporary_file_is_removed() {
    let (_temp, dir) = root();
    let mut file = dir.temp_file(None).unwrap();
    file.write_all(b"x").unwrap();
    assert_eq!(dir.list().unwrap().len(), 1);
    drop(file);
    assert!(dir.list().unwrap().is_empty());
}

#[test]
fn file_of_wrong_length_is_not_published() {
    let (_temp, dir) = root();
    let mut file = dir.temp_file(None).unwrap();
    file.write_all(b"12345").unwrap();
    fs::OpenOptions::new()
        .write(true)
        .open(file.path())
        .unwrap()
        .set_len(3)
        .unwrap();
    let error = file.publish("f", PublishMode::Replace).unwrap_err();
    assert_eq!(
        (error.id(), error.to_string().as_str()),
        ("file-length", "5 bytes were written, but the file has 3")
    );
    assert!(dir.list().unwrap().is_empty());
}

#[test]
fn failed_sync_is_an_error() {
    let (_temp, dir) = root();
    for mode in [PublishMode::Replace, PublishMode::CreateNew] {
        let error = with_failing_sync(0, || dir.publish_bytes(None, "f", b"x", mode)).unwrap_err();
        assert_eq!((error.id(), error.kind()), ("io", ErrorKind::Storage));
        assert_eq!(error.to_string(), "cannot bring to the disk");
        assert!(dir.list().unwrap().is_empty(), "discarded");
        let error = with_failing_sync(1, || dir.publish_bytes(None, "f", b"x", mode)).unwrap_err();
        assert_eq!(error.to_string(), "cannot synchronise the directory");
        assert_eq!(error.kind(), ErrorKind::Storage);
        dir.remove("f").unwrap();
    }
    assert_eq!(id(with_failing_sync(0, || dir.make_dir("d"))), "io");
    assert_eq!(
        id(with_failing_sync(0, || Dir::create(&dir.path().join("e")))),
        "io"
    );
}

#[test]
fn published_files_follow_the_umask() {
    // The umask belongs to the process, so it is tested in a child process.
    if let Ok(path) = std::env::var("SHARDMILL_TEST_PUBLISH_IN") {
        let dir = Dir::open(Path::new(&path)).unwrap();
        dir.publish_bytes(None, "f", b"x", PublishMode::Replace)
            .unwrap();
        return;
    }
    for (umask, expected) in [
        ("022", 0o644),
        ("077", 0o600),
        ("000", 0o644),
        ("027", 0o640),
    ] {
        let (temp, _dir) = root();
        let command = format!(
            "umask {umask}; exec \"$0\" --exact tests::publishing::published_files_follow_the_umask"
        );
        let status = Command::new("sh")
            .args(["-c", &command])
            .arg(std::env::current_exe().unwrap())
            .env("SHARDMILL_TEST_PUBLISH_IN", temp.path())
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success());
        let mode = fs::metadata(temp.path().join("f"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, expected, "umask {umask}");
    }
}

#[test]
fn full_disk_is_an_error_and_leaves_no_file() {
    let temp = tempfile::tempdir().unwrap();
    let Some(_mount) = Mount::tmpfs(temp.path(), "size=64k") else {
        return;
    };
    let dir = Dir::open(temp.path()).unwrap();
    dir.publish_bytes(None, "small", b"x", PublishMode::CreateNew)
        .unwrap();
    let mut file = dir.temp_file(None).unwrap();
    let error = file.write_all(&vec![1; 1 << 20]).unwrap_err();
    let error = file.write_error(error);
    assert_eq!(
        (error.id(), error.kind()),
        ("disk-full", ErrorKind::Resource)
    );
    let path = file.path();
    let error = file.publish("big", PublishMode::Replace).unwrap_err();
    assert_eq!(
        (error.id(), error.path()),
        ("file-incomplete", Some(path.as_path()))
    );
    let error = dir
        .publish_bytes(None, "big", &vec![1; 1 << 20], PublishMode::Replace)
        .unwrap_err();
    assert_eq!(error.id(), "disk-full");
    assert_eq!(dir.list().unwrap(), ["small"]);
    dir.publish_bytes(None, "again", &[1; 1000], PublishMode::CreateNew)
        .unwrap();
}

#[test]
fn exhausted_inodes_are_reported_as_full_disk() {
    let temp = tempfile::tempdir().unwrap();
    let Some(_mount) = Mount::tmpfs(temp.path(), "size=1m,nr_inodes=4") else {
        return;
    };
    let dir = Dir::open(temp.path()).unwrap();
    let failed = (0..8).find_map(|n| {
        dir.publish_bytes(None, &format!("f{n}"), b"x", PublishMode::Replace)
            .err()
    });
    assert_eq!(failed.unwrap().id(), "disk-full");
}

#[test]
fn read_only_disk_is_a_permission_error() {
    let temp = tempfile::tempdir().unwrap();
    let Some(mount) = Mount::tmpfs(temp.path(), "size=64k") else {
        return;
    };
    fs::write(temp.path().join("f"), b"x").unwrap();
    mount.remount("ro").unwrap();
    let dir = Dir::open(temp.path()).unwrap();
    assert_eq!(dir.open_file("f").unwrap().read_all(9).unwrap(), b"x");
    assert_eq!(
        dir.temp_file(None).unwrap_err().kind(),
        ErrorKind::Permission
    );
    assert_eq!(dir.make_dir("d").unwrap_err().kind(), ErrorKind::Permission);
    assert!(dir.is_read_only().unwrap());
    assert_eq!(dir.remove("f").unwrap_err().kind(), ErrorKind::Permission);
    // There is nothing to remove.
    assert!(!dir.remove("g").unwrap() && !dir.remove_dir("d").unwrap());
    assert_eq!(
        Lease::acquire(&dir, "lease").unwrap_err().kind(),
        ErrorKind::Permission
    );
}

#[test]
fn file_is_published_into_another_mount() {
    let (temp, dir) = root();
    fs::create_dir(temp.path().join("elsewhere")).unwrap();
    dir.make_private_dir("work").unwrap();
    let Some(_mount) = Mount::bind(&temp.path().join("elsewhere"), &temp.path().join("sub")) else {
        return;
    };
    let sub = dir.open_dir("sub").unwrap();
    let same = (dir.device().unwrap(), dir.is_same_mount(&sub).unwrap());
    assert_eq!(same, (sub.device().unwrap(), false));
    assert!(dir.is_same_mount(&dir.open_dir("work").unwrap()).unwrap());
    let bytes = vec![7; 300_000];
    for (name, mode, sync) in [
        ("sub/a", PublishMode::CreateNew, true),
        ("sub/b", PublishMode::Replace, false),
    ] {
        let mut file = dir.temp_file(Some("work")).unwrap();
        file.write_all(&bytes).unwrap();
        file.publish_pending(name, mode, sync).unwrap();
        let found = fs::metadata(temp.path().join(name)).unwrap();
        assert_eq!(found.permissions().mode() & 0o777, 0o644);
        assert_eq!(fs::read(temp.path().join(name)).unwrap(), bytes);
    }
    let mut file = dir.temp_file(Some("work")).unwrap();
    file.write_all(b"unsynced").unwrap();
    file.publish_unsynced("sub/c", PublishMode::CreateNew)
        .unwrap();
    let mode = fs::metadata(temp.path().join("sub/c"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = dir.publish_bytes(Some("work"), "sub/a", b"new", PublishMode::CreateNew);
    assert_eq!(id(again), "exists");
    // Nothing is left of the copies.
    assert_eq!(sub.list().unwrap(), ["a", "b", "c"]);
    // What is in a mount point can be removed, and the mount point itself cannot.
    dir.remove_all_in("sub").unwrap();
    assert!(sub.list().unwrap().is_empty() && !dir.remove_dir("sub").unwrap());
    assert!(dir.open_dir("work").unwrap().list().unwrap().is_empty());
}

#[test]
fn directory_that_cannot_be_synchronised_is_no_error() {
    let proc = Dir::open(Path::new("/proc/self")).unwrap();
    assert_eq!(
        rustix::fs::fsync(proc.fd().unwrap()),
        Err(rustix::io::Errno::INVAL)
    );
    proc.sync().unwrap();
}

#[test]
fn unwritable_directory_is_a_permission_error() {
    if is_root() {
        println!("SKIP directory permissions: root passes them");
        return;
    }
    let (temp, dir) = root();
    fs::set_permissions(temp.path(), fs::Permissions::from_mode(0o500)).unwrap();
    let error = dir.temp_file(None).unwrap_err();
    assert_eq!(
        (error.id(), error.kind()),
        ("permission", ErrorKind::Permission)
    );
    fs::set_permissions(temp.path(), fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn publish_unsynced_publishes_without_sync() {
    let root = tempfile::tempdir().unwrap();
    let dir = Dir::open(root.path()).unwrap();
    let folder = dir.make_private_dir("own").unwrap();
    let mut temp = dir.temp_file_in(&folder, "7-").unwrap();
    temp.write_all(b"four").unwrap();
    let name = temp
        .path()
        .file_name()
        .unwrap()
        .to_string_lossy()
        .into_owned();
    assert!(name.starts_with("tmp-7-") && name.len() == 22, "{name}");
    let birth = temp.birth().unwrap();
    temp.publish_unsynced("a.mds", PublishMode::CreateNew)
        .unwrap();
    let file = dir.open_file("a.mds").unwrap();
    assert_eq!(file.birth().unwrap(), birth);
    assert!(file.modified() > std::time::SystemTime::UNIX_EPOCH);
    assert_eq!(folder.list().unwrap(), Vec::<String>::new());
    let mode = root
        .path()
        .join("a.mds")
        .metadata()
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);

    // The loser of a race leaves no files, and the existing file stays.
    let mut late = dir.temp_file_in(&folder, "7-").unwrap();
    late.write_all(b"five!").unwrap();
    assert_ne!(late.birth().unwrap(), birth);
    let error = late
        .publish_unsynced("a.mds", PublishMode::CreateNew)
        .unwrap_err();
    assert!(
        matches!(error, crate::StorageError::Exists { .. }),
        "{error:?}"
    );
    assert_eq!(folder.list().unwrap(), Vec::<String>::new());
    assert_eq!(
        dir.open_file("a.mds").unwrap().read_all(9).unwrap(),
        b"four"
    );
}
