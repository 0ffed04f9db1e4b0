//! Tests that there is one writer at a time.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use shardmill_core::{Diagnostic as _, ErrorKind};

use super::{id, root};
use crate::{Dir, Lease, PublishMode};

#[test]
fn lease_has_one_owner_at_a_time() {
    let (temp, dir) = root();
    for name in ["lease", "work/lease"] {
        let lease = Lease::acquire(&dir, name).unwrap();
        assert!(lease.is_exclusive());
        assert_eq!(lease.path(), temp.path().join(name));
        let error = Lease::acquire(&dir, name).unwrap_err();
        assert_eq!(
            (error.id(), error.kind()),
            ("other-writer", ErrorKind::Conflict)
        );
        assert_eq!(
            error.to_string(),
            format!("another writer is at work (process {})", std::process::id())
        );
        drop(lease);
        Lease::acquire(&dir, name)
            .unwrap()
            .remove_folder(&[])
            .unwrap();
        assert!(dir.list().unwrap().is_empty());
    }
}

#[test]
fn lease_holds_with_empty_or_invalid_file_content() {
    let (temp, dir) = root();
    let _lease = Lease::acquire(&dir, "lease").unwrap();
    for content in [&b""[..], b"-4", b"not a number", b"\xff\xff", &[b'9'; 4000]] {
        fs::write(temp.path().join("lease"), content).unwrap();
        let error = Lease::acquire(&dir, "lease").unwrap_err();
        assert_eq!(error.to_string(), "another writer is at work");
    }
}

#[test]
fn remove_folder_rejects_folder_with_symlinks() {
    let (temp, dir) = root();
    let lease = Lease::acquire(&dir, "work/lease").unwrap();
    fs::create_dir(temp.path().join("work/parts")).unwrap();
    fs::write(temp.path().join("work/parts/tmp-1"), b"x").unwrap();
    symlink("/", temp.path().join("work/link")).unwrap();
    assert_eq!(id(lease.remove_folder(&[])), "path-symlink");
    assert!(temp.path().join("work/parts/tmp-1").exists());
    fs::remove_file(temp.path().join("work/link")).unwrap();
    let lease = Lease::acquire(&dir, "work/lease").unwrap();
    lease.remove_folder(&[]).unwrap();
    assert!(dir.list().unwrap().is_empty());
}

/// Owners acquire the lease and remove its folder concurrently. There are never two owners at once.
#[test]
fn lease_stays_exclusive_while_its_folder_is_removed() {
    let (_temp, dir) = root();
    let (inside, taken) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (dir, inside, taken) = (&dir, &inside, &taken);
            scope.spawn(move || {
                for round in 0..400 {
                    let lease = match Lease::acquire(dir, "work/lease") {
                        Ok(lease) => lease,
                        Err(error) => {
                            assert!(
                                error.id() == "other-writer" || error.is_not_found(),
                                "{error:?}"
                            );
                            continue;
                        }
                    };
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two owners");
                    dir.publish_bytes(Some("work"), "work/state", b"x", PublishMode::Replace)
                        .unwrap();
                    taken.fetch_add(1, Ordering::Relaxed);
                    assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                    if (round + worker) % 3 == 0 {
                        drop(lease);
                    } else {
                        lease.remove_folder(&[]).unwrap();
                    }
                }
            });
        }
    });
    let taken = taken.into_inner();
    println!("{taken} leases");
    assert!(taken > 4);
}

#[test]
fn a_killed_owner_leaves_no_lease_behind() {
    if let Ok(path) = std::env::var("SHARDMILL_TEST_HOLD_LEASE_IN") {
        let _lease = Lease::acquire(&Dir::open(Path::new(&path)).unwrap(), "work/lease").unwrap();
        println!("\nheld");
        std::io::stdout().flush().unwrap();
        loop {
            std::thread::park();
        }
    }
    let (temp, dir) = root();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "--nocapture",
            "tests::leases::a_killed_owner_leaves_no_lease_behind",
        ])
        .env("SHARDMILL_TEST_HOLD_LEASE_IN", temp.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == "held"));
    let error = Lease::acquire(&dir, "work/lease").unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("another writer is at work (process {})", child.id())
    );
    child.kill().unwrap();
    child.wait().unwrap();
    Lease::acquire(&dir, "work/lease").unwrap();
}

#[test]
fn lease_in_a_non_directory_or_symlink_is_an_error() {
    let (temp, dir) = root();
    fs::write(temp.path().join("work"), b"x").unwrap();
    assert_eq!(
        id(Lease::acquire(&dir, "work/lease")),
        "path-not-a-directory"
    );
    fs::remove_file(temp.path().join("work")).unwrap();
    symlink("/tmp", temp.path().join("work")).unwrap();
    assert_eq!(id(Lease::acquire(&dir, "work/lease")), "path-symlink");
    fs::remove_file(temp.path().join("work")).unwrap();
    fs::create_dir(temp.path().join("work")).unwrap();
    fs::create_dir(temp.path().join("work/lease")).unwrap();
    assert_eq!(
        Lease::acquire(&dir, "work/lease").unwrap_err().kind(),
        ErrorKind::Storage
    );
    let gone = tempfile::tempdir().unwrap();
    let dir = Dir::open(gone.path()).unwrap();
    drop(gone);
    assert_eq!(id(Lease::acquire(&dir, "work/lease")), "not-found");
}
