//! Tests of opening by name, directories and reading.

use std::ffi::OsString;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use proptest::prelude::*;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use shardmill_core::{Diagnostic, ErrorKind};

use super::{BOTH, id, is_root, make_fifo, root};
use crate::resolve::Resolver;
use crate::{Dir, Entry, EntryKind, FileHandle, Lease, PublishMode, StorageError, read_file};

#[test]
fn files_below_the_directory_are_opened() {
    let (temp, dir) = root();
    fs::create_dir_all(temp.path().join("a/b")).unwrap();
    fs::write(temp.path().join("a/b/c"), b"deep").unwrap();
    fs::write(temp.path().join("top"), b"flat").unwrap();
    for resolver in BOTH {
        let dir = dir.clone().with_resolver(resolver);
        assert_eq!(
            dir.open_file("a/b/c").unwrap().read_all(9).unwrap(),
            b"deep"
        );
        assert_eq!(dir.open_file("top").unwrap().read_all(9).unwrap(), b"flat");
        assert_eq!(dir.open_dir("a/b").unwrap().list().unwrap(), ["c"]);
        assert_eq!(dir.kind_of("a/b").unwrap(), Some(EntryKind::Directory));
        assert_eq!(dir.kind_of("a/b/c").unwrap(), Some(EntryKind::File));
        assert!(!dir.exists("a/x").unwrap());
        assert!(!dir.exists("x/y").unwrap());
        assert!(!dir.exists("top/y").unwrap());
        let missing = dir.open_file("a/b/x").unwrap_err();
        assert_eq!(
            (missing.kind(), missing.id()),
            (ErrorKind::NotFound, "not-found")
        );
        assert!(missing.object().unwrap().ends_with("a/b/x"));
        assert_eq!(id(dir.open_file("top/x")), "path-not-a-directory");
    }
}

#[test]
fn symlinks_below_the_directory_are_rejected() {
    let (temp, dir) = root();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), b"x").unwrap();
    fs::create_dir_all(temp.path().join("a")).unwrap();
    fs::write(temp.path().join("a/file"), b"x").unwrap();
    symlink(outside.path(), temp.path().join("out")).unwrap();
    symlink(outside.path().join("secret"), temp.path().join("secret")).unwrap();
    symlink("../a", temp.path().join("a/loop")).unwrap();
    symlink("a/file", temp.path().join("inside")).unwrap();
    symlink("nowhere", temp.path().join("dangling")).unwrap();
    symlink("/proc/self/fd/0", temp.path().join("magic")).unwrap();
    symlink("self", temp.path().join("self")).unwrap();
    for resolver in BOTH {
        let dir = dir.clone().with_resolver(resolver);
        for name in [
            "secret",
            "out/secret",
            "a/loop/file",
            "inside",
            "dangling",
            "magic",
            "self",
            "self/x",
        ] {
            let error = dir.open_file(name).unwrap_err();
            assert_eq!(error.id(), "path-symlink", "{resolver:?} {name}: {error:?}");
            assert_eq!(error.kind(), ErrorKind::Unsupported);
        }
        for name in ["out", "a/loop", "dangling", "out/x"] {
            assert_eq!(
                id(dir.open_dir(name)),
                "path-symlink",
                "{resolver:?} {name}"
            );
        }
        for name in ["out/new", "a/loop/new"] {
            assert_eq!(
                id(dir.make_dir(name)),
                "path-symlink",
                "{resolver:?} {name}"
            );
            assert_eq!(id(dir.remove(name)), "path-symlink", "{resolver:?} {name}");
            assert_eq!(id(dir.kind_of(name)), "path-symlink", "{resolver:?} {name}");
            let published = dir.publish_bytes(None, name, b"x", PublishMode::Replace);
            assert_eq!(id(published), "path-symlink", "{resolver:?} {name}");
        }
        assert_eq!(id(dir.temp_file(Some("out"))), "path-symlink");
        assert_eq!(id(Lease::acquire(&dir, "secret")), "path-symlink");
        assert_eq!(dir.kind_of("out").unwrap(), Some(EntryKind::Symlink));
        assert!(dir.exists("dangling").unwrap());
    }
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    assert!(
        dir.list()
            .unwrap()
            .iter()
            .all(|name| !name.starts_with("tmp-"))
    );
}

#[test]
fn root_path_may_be_a_symlink() {
    let (temp, dir) = root();
    fs::write(temp.path().join("index.json"), b"{}").unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    symlink(temp.path(), elsewhere.path().join("data")).unwrap();
    symlink(
        temp.path().join("index.json"),
        elsewhere.path().join("index.json"),
    )
    .unwrap();
    let linked = Dir::open(&elsewhere.path().join("data")).unwrap();
    assert_eq!(linked.list().unwrap(), dir.list().unwrap());
    assert_eq!(
        read_file(&elsewhere.path().join("index.json"), 9).unwrap(),
        b"{}"
    );
    Dir::create(&elsewhere.path().join("data/new/deep")).unwrap();
    assert!(temp.path().join("new/deep").is_dir());
}

#[test]
fn names_outside_the_directory_are_rejected() {
    let (_temp, dir) = root();
    for (name, expected) in [
        ("", "path-empty"),
        ("/etc/passwd", "path-absolute"),
        ("..", "path-traversal"),
        ("a/../../x", "path-traversal"),
        ("a//b", "path-traversal"),
        ("a/", "path-traversal"),
        ("a\0b", "path-character"),
        ("nul", "path-reserved"),
    ] {
        assert_eq!(id(dir.open_file(name)), expected, "{name:?}");
        assert_eq!(id(dir.open_dir(name)), expected, "{name:?}");
        assert_eq!(id(dir.make_dir(name)), expected, "{name:?}");
        assert_eq!(id(dir.make_private_dir(name)), expected, "{name:?}");
        assert_eq!(id(dir.remove(name)), expected, "{name:?}");
        assert_eq!(id(dir.kind_of(name)), expected, "{name:?}");
        assert_eq!(id(dir.remove_all_in(name)), expected, "{name:?}");
        assert_eq!(id(Lease::acquire(&dir, name)), expected, "{name:?}");
        assert_eq!(
            id(dir.publish_bytes(None, name, b"x", PublishMode::Replace)),
            expected,
            "{name:?}"
        );
        let error = dir.open_file(name).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(!error.object().unwrap().contains('\0'));
    }
    assert!(dir.list().unwrap().is_empty());
}

#[test]
fn special_files_are_rejected_without_blocking() {
    let (temp, dir) = root();
    make_fifo(&temp.path().join("fifo"));
    fs::create_dir(temp.path().join("dir")).unwrap();
    let _listener = UnixListener::bind(temp.path().join("socket")).unwrap();
    let device = rustix::fs::makedev(1, 3);
    let device = mknodat(
        CWD,
        temp.path().join("null"),
        FileType::CharacterDevice,
        Mode::RWXU,
        device,
    );
    let path = temp.path().to_owned();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for resolver in BOTH {
            let dir = dir.clone().with_resolver(resolver);
            for name in ["fifo", "dir", "socket", "null"] {
                sender
                    .send((name, dir.open_file(name).map(|_| ())))
                    .unwrap();
                sender
                    .send((name, FileHandle::open(&path.join(name)).map(|_| ())))
                    .unwrap();
            }
            sender
                .send(("fifo", Lease::acquire(&dir, "fifo").map(|_| ())))
                .unwrap();
        }
    });
    let mut seen = 0;
    loop {
        let (name, result) = match receiver.recv_timeout(Duration::from_secs(20)) {
            Ok(received) => received,
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(error) => panic!("opening blocked: {error}"),
        };
        if let ("null", Err(error)) = (name, &device) {
            println!("SKIP a device: {error}");
            continue;
        }
        seen += 1;
        assert_eq!(id(result), "path-not-a-file", "{name}");
    }
    assert!(seen >= 14);
}

/// Generates a small tree with links, and names that may or may not exist in it.
fn tree() -> impl Strategy<Value = Vec<(String, u8)>> {
    let part = || prop::sample::select(vec!["a", "b", "c"]);
    let path = prop::collection::vec(part(), 1..4).prop_map(|parts| parts.join("/"));
    prop::collection::vec((path, 0_u8..6), 1..12)
}

fn build(root: &Path, outside: &Path, plan: &[(String, u8)]) {
    for (path, kind) in plan {
        let path = root.join(path);
        // Entries that do not fit, because a parent is a file, are omitted.
        let _ = match kind {
            0 | 1 => path
                .parent()
                .map_or(Ok(()), fs::create_dir_all)
                .and_then(|()| fs::write(&path, b"x")),
            2 => fs::create_dir_all(&path),
            3 => symlink(outside, &path),
            4 => symlink("../a", &path),
            _ => symlink(root, &path),
        };
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn resolvers_agree_and_stay_below_the_directory(plan in tree()) {
        let temp = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        for part in ["a", "b", "c"] {
            fs::write(outside.path().join(part), b"secret").unwrap();
        }
        let inside = temp.path().join("root");
        fs::create_dir(&inside).unwrap();
        build(&inside, outside.path(), &plan);
        let kernel = Dir::open(&inside).unwrap();
        let parts = kernel.clone().with_resolver(Resolver::Parts);
        let canonical = inside.canonicalize().unwrap();
        let mut names = vec![String::new()];
        for _ in 0..3 {
            names = names.iter().flat_map(|name| ["a", "b", "c"].map(|part| format!("{name}/{part}"))).collect();
            for name in &names {
                let name = name.trim_start_matches('/');
                let (one, two) = (kernel.open_file(name), parts.open_file(name));
                let outcome = |result: &Result<FileHandle, StorageError>| result.as_ref().map_or_else(Diagnostic::id, |_| "ok");
                prop_assert_eq!(outcome(&one), outcome(&two), "{}", name);
                for file in [one, two].into_iter().flatten() {
                    let link = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
                    prop_assert!(fs::read_link(link).unwrap().starts_with(&canonical));
                    prop_assert_eq!(file.read_all(9).unwrap(), b"x");
                }
                let outcome = |result: &Result<Dir, StorageError>| result.as_ref().map_or_else(Diagnostic::id, |_| "ok");
                prop_assert_eq!(outcome(&kernel.open_dir(name)), outcome(&parts.open_dir(name)), "{}", name);
                let outcome = |dir: &Dir| dir.kind_of(name).map_err(|error| error.id());
                prop_assert_eq!(outcome(&kernel), outcome(&parts), "{}", name);
            }
        }
        prop_assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 3);
    }

    #[test]
    fn arbitrary_name_is_an_error_or_stays_below_the_directory(name in "[a./\\\\\u{0}-\u{3}é]{0,12}") {
        let (temp, dir) = root();
        fs::create_dir(temp.path().join("a")).unwrap();
        for resolver in BOTH {
            let dir = dir.clone().with_resolver(resolver);
            if dir.publish_bytes(None, &name, b"x", PublishMode::Replace).is_ok() {
                prop_assert!(temp.path().join(&name).is_file());
                prop_assert!(!name.split('/').any(|part| part == ".."));
                prop_assert!(dir.remove(&name).unwrap());
            }
        }
    }

    #[test]
    fn read_range_returns_bytes_or_a_range_error(content in prop::collection::vec(any::<u8>(), 0..300), offset in 0_u64..320, len in 0_u64..320) {
        let (_temp, dir) = root();
        dir.publish_bytes(None, "f", &content, PublishMode::Replace).unwrap();
        let file = dir.open_file("f").unwrap();
        let whole = content.len() as u64;
        prop_assert_eq!(file.len(), whole);
        let result = file.read_range(offset, len);
        if offset + len <= whole {
            let (from, to) = (usize::try_from(offset).unwrap(), usize::try_from(offset + len).unwrap());
            prop_assert_eq!(result.unwrap(), &content[from..to]);
        } else {
            prop_assert_eq!(id(result), "file-range");
        }
        prop_assert_eq!(file.read_all(300).unwrap(), content);
    }
}

// Directories.

#[test]
fn directories_are_created_with_parents() {
    let (temp, dir) = root();
    let path = temp.path().join("x/y/z");
    let made = Dir::create(&path).unwrap();
    assert!(made.list().unwrap().is_empty());
    Dir::create(&path).unwrap();
    Dir::create(&temp.path().join("x/../w")).unwrap();
    assert!(temp.path().join("w").is_dir());
    for resolver in BOTH {
        let dir = dir.clone().with_resolver(resolver);
        let name = format!("p-{resolver:?}/q/r");
        dir.make_dir(&name).unwrap();
        let again = dir.make_dir(&name).unwrap();
        assert_eq!(again.path(), temp.path().join(&name));
        assert!(temp.path().join(&name).is_dir());
    }
    fs::write(temp.path().join("file"), b"").unwrap();
    assert_eq!(
        id(Dir::create(&temp.path().join("file"))),
        "path-not-a-directory"
    );
    assert_eq!(
        id(Dir::create(&temp.path().join("file/x"))),
        "path-not-a-directory"
    );
    assert_eq!(
        id(Dir::open(&temp.path().join("file"))),
        "path-not-a-directory"
    );
    assert_eq!(id(Dir::open(&temp.path().join("nothing"))), "not-found");
    assert_eq!(id(dir.make_dir("file/x")), "path-not-a-directory");
    assert_eq!(Dir::open(Path::new("")).unwrap().path(), Path::new("."));
}

#[test]
fn few_of_many_pooled_directories_are_open() {
    let (temp, dir) = root();
    let is_below = |link: PathBuf| link.starts_with(temp.path().join("many"));
    let open = || {
        let links = fs::read_dir("/proc/self/fd").unwrap();
        let links = links.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        links.filter(|link| is_below(link.clone())).count()
    };
    let pooled = |number: usize| dir.make_dir(&format!("many/{number}")).unwrap().pooled();
    let dirs: Vec<Dir> = (0..40).map(pooled).collect();
    for round in 0..2 {
        for (number, dir) in dirs.iter().enumerate() {
            let name = format!("{number}-{round}");
            dir.publish_bytes(None, &name, name.as_bytes(), PublishMode::CreateNew)
                .unwrap();
            assert_eq!(dir.list().unwrap().len(), round + 1);
            assert_eq!(fs::read(dir.path_of(&name)).unwrap(), name.as_bytes());
            assert!(open() <= 17, "{}", open());
        }
    }
    // Another directory has taken the place of one that was closed.
    let moved = &dirs[0];
    fs::rename(moved.path(), temp.path().join("away")).unwrap();
    assert_eq!(id(moved.list()), "not-found");
    fs::create_dir(moved.path()).unwrap();
    let error = moved.list().unwrap_err();
    assert!(error.chain().contains("Stale file handle"), "{error:?}");
    fs::remove_dir(moved.path()).unwrap();
    fs::rename(temp.path().join("away"), moved.path()).unwrap();
    assert_eq!(moved.list().unwrap(), ["0-0", "0-1"]);
    drop(dirs);
    assert_eq!(open(), 0);
}

#[test]
fn private_directory_is_accessible_only_to_its_owner() {
    let (temp, dir) = root();
    let mode = |name: &str| {
        fs::metadata(temp.path().join(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    dir.make_private_dir("work").unwrap();
    assert_eq!(mode("work"), 0o700);
    fs::create_dir(temp.path().join("lax")).unwrap();
    fs::set_permissions(temp.path().join("lax"), fs::Permissions::from_mode(0o777)).unwrap();
    dir.make_private_dir("lax").unwrap();
    assert_eq!(mode("lax"), 0o700);
    if is_root() {
        std::os::unix::fs::chown(temp.path().join("lax"), Some(12345), None).unwrap();
        let error = dir.make_private_dir("lax").unwrap_err();
        assert_eq!(
            (error.id(), error.kind()),
            ("path-owner", ErrorKind::Permission)
        );
        assert_eq!(
            error.to_string(),
            "the folder belongs to user 12345, not to user 0"
        );
        assert!(dir.open_dir("lax").unwrap().list().unwrap().is_empty());
    } else {
        println!("SKIP a folder of another user: needs root");
    }
}

#[test]
fn entries_are_sorted_by_bytes_and_links_not_followed() {
    let (temp, dir) = root();
    let odd = OsString::from_vec(b"\xff\xfe".to_vec());
    for name in ["b", "B", "a", "é", "a.b"] {
        fs::write(temp.path().join(name), b"").unwrap();
    }
    fs::write(temp.path().join(&odd), b"").unwrap();
    fs::create_dir(temp.path().join("d")).unwrap();
    symlink("d", temp.path().join("l")).unwrap();
    make_fifo(&temp.path().join("p"));
    assert_eq!(
        dir.list().unwrap(),
        ["B", "a", "a.b", "b", "d", "l", "p", "é", "\u{fffd}\u{fffd}"]
    );
    let kinds: Vec<_> = dir
        .entries()
        .unwrap()
        .iter()
        .map(|entry| entry.kind)
        .collect();
    assert_eq!(
        kinds[4..7],
        [EntryKind::Directory, EntryKind::Symlink, EntryKind::Fifo]
    );
    assert_eq!(
        dir.entries().unwrap().last(),
        Some(&Entry {
            name: odd,
            kind: EntryKind::File
        })
    );
}

#[test]
fn remove_returns_whether_the_entry_existed() {
    let (temp, dir) = root();
    fs::write(temp.path().join("f"), b"").unwrap();
    fs::create_dir(temp.path().join("d")).unwrap();
    fs::write(temp.path().join("d/f"), b"").unwrap();
    symlink("f", temp.path().join("l")).unwrap();
    assert_eq!(id(dir.remove("d")), "path-not-a-file");
    assert_eq!(id(dir.remove_dir("f")), "path-not-a-directory");
    assert_eq!(dir.remove_dir("d").unwrap_err().kind(), ErrorKind::Storage);
    assert!(dir.remove("d/f").unwrap());
    assert!(!dir.remove("d/f").unwrap());
    assert!(!dir.remove("nothing/f").unwrap());
    assert!(dir.remove_dir("d").unwrap());
    assert!(!dir.remove_dir("d").unwrap());
    assert!(dir.remove("l").unwrap());
    assert_eq!(dir.list().unwrap(), ["f"]);
}

#[test]
fn remove_all_in_rejects_links_and_special_files() {
    let (temp, dir) = root();
    let work = temp.path().join("work");
    fs::create_dir_all(work.join("a/b")).unwrap();
    fs::write(work.join("a/b/f"), b"x").unwrap();
    fs::write(work.join("g"), b"x").unwrap();
    fs::write(work.join(OsString::from_vec(b"\xff".to_vec())), b"x").unwrap();
    fs::write(temp.path().join("outside"), b"x").unwrap();
    symlink(temp.path().join("outside"), work.join("a/b/link")).unwrap();
    assert_eq!(id(dir.remove_all_in("work")), "path-symlink");
    assert!(work.join("g").exists() && work.join("a/b/f").exists());
    fs::remove_file(work.join("a/b/link")).unwrap();
    make_fifo(&work.join("a/fifo"));
    assert_eq!(id(dir.remove_all_in("work")), "path-not-a-file");
    assert!(work.join("g").exists());
    fs::remove_file(work.join("a/fifo")).unwrap();
    dir.remove_all_in("work").unwrap();
    assert!(dir.open_dir("work").unwrap().list().unwrap().is_empty());
    assert!(temp.path().join("outside").exists());
    symlink("work", temp.path().join("link")).unwrap();
    assert_eq!(id(dir.remove_all_in("link")), "path-symlink");
    assert_eq!(id(dir.remove_all_in("nothing")), "not-found");
}

// Reading.

#[test]
fn file_changed_while_reading_is_an_error() {
    let (temp, dir) = root();
    let path = temp.path().join("f");
    let open = |content: &[u8]| {
        fs::write(&path, content).unwrap();
        dir.open_file("f").unwrap()
    };
    let file = open(b"0123456789");
    fs::OpenOptions::new()
        .append(true)
        .open(&path)
        .unwrap()
        .write_all(b"more")
        .unwrap();
    let error = file.read_all(100).unwrap_err();
    assert_eq!(
        (error.id(), error.kind()),
        ("file-changed", ErrorKind::Corrupt)
    );
    assert_eq!(
        error.to_string(),
        "the file changed while it was read: it had 10 bytes when it was opened and has 14 now"
    );
    let file = open(b"0123456789");
    fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(4)
        .unwrap();
    assert_eq!(id(file.read_all(100)), "file-changed");
    assert_eq!(id(file.read_range(2, 6)), "file-changed");
    assert_eq!(file.read_range(2, 2).unwrap(), b"23");
    let file = open(b"0123456789");
    let other = fs::OpenOptions::new().write(true).open(&path).unwrap();
    other.set_modified(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(id(file.read_all(100)), "file-changed");
    let file = open(b"0123456789");
    fs::remove_file(&path).unwrap();
    assert_eq!(file.read_all(100).unwrap(), b"0123456789");
}

#[test]
fn read_log_accepts_concurrent_growth_and_truncation() {
    let (temp, dir) = root();
    let path = temp.path().join("log");
    fs::write(&path, b"one\ntwo\n").unwrap();
    let log = dir.open_file("log").unwrap();
    let mut writer = fs::OpenOptions::new().append(true).open(&path).unwrap();
    writer.write_all(b"three\n").unwrap();
    assert_eq!(log.read_log(8).unwrap(), b"one\ntwo\n");
    assert_eq!(id(log.read_log(7)), "limit-file-bytes");
    writer.set_len(5).unwrap();
    assert_eq!(log.read_log(8).unwrap(), b"one\nt");
    fs::remove_file(&path).unwrap();
    assert_eq!(log.read_log(8).unwrap(), b"one\nt");
}

#[test]
fn reader_stops_at_the_length_at_opening() {
    let (temp, dir) = root();
    let content: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    dir.publish_bytes(None, "f", &content, PublishMode::Replace)
        .unwrap();
    let path = temp.path().join("f");
    let file = dir.open_file("f").unwrap();
    let mut read = Vec::new();
    file.reader().read_to_end(&mut read).unwrap();
    assert_eq!(read, content);
    fs::OpenOptions::new()
        .append(true)
        .open(&path)
        .unwrap()
        .write_all(b"more")
        .unwrap();
    read.clear();
    file.reader().read_to_end(&mut read).unwrap();
    assert_eq!(read, content);
    assert_eq!(id(file.check_unchanged()), "file-changed");
    fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(1000)
        .unwrap();
    let error = file.reader().read_to_end(&mut read).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
}

#[test]
fn read_buffer_is_reused_and_limited() {
    let (_temp, dir) = root();
    let mut bytes = Vec::with_capacity(1 << 16);
    for len in [1000_usize, 10, 0, 3000] {
        let content = vec![7; len];
        dir.publish_bytes(None, "f", &content, PublishMode::Replace)
            .unwrap();
        let file = dir.open_file("f").unwrap();
        file.read_all_into(&mut bytes, 3000).unwrap();
        assert_eq!(bytes, content);
        assert_eq!(file.is_empty(), len == 0);
    }
    assert_eq!(bytes.capacity(), 1 << 16);
    let file = dir.open_file("f").unwrap();
    let error = file.read_all(2999).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the file has 3000 bytes, more than the 2999 that are allowed"
    );
    assert_eq!(id(file.read_range(u64::MAX, 2)), "file-range");
    assert_eq!(id(file.read_range(2, u64::MAX)), "file-range");
    assert_eq!(id(file.read_at(&mut [0; 2], 2999)), "file-range");
    let mut two = [0; 2];
    file.read_at(&mut two, 2998).unwrap();
    assert_eq!(two, [7, 7]);
}

#[test]
fn file_above_the_byte_limit_is_an_error() {
    let (temp, dir) = root();
    let file = fs::File::create(temp.path().join("sparse")).unwrap();
    if let Err(error) = file.set_len(1 << 43) {
        println!("SKIP a file of 8 TiB: {error}");
        return;
    }
    let file = dir.open_file("sparse").unwrap();
    assert_eq!(id(file.read_all(1 << 40)), "limit-file-bytes");
    // Whether a large allocation fails depends on the overcommit setting, so the whole file is not read.
    assert_eq!(file.read_range(1 << 42, 3).unwrap(), [0; 3]);
}
