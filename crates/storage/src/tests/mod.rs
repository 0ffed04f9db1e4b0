//! Tests of the public interface, and of two internals: both ways of resolving a name, and a disk that fails to
//! synchronise.

mod leases;
mod opening;
mod publishing;

use std::cell::Cell;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use shardmill_core::Diagnostic;
use shardmill_testing::s3::S3Server;
use tempfile::TempDir;

use crate::resolve::Resolver;
use crate::{Dir, Location, RemoteLocation, RemoteOptions, StorageError};

thread_local! {
    static SYNCS_UNTIL_FAILURE: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Parses the URL of a store.
pub(crate) fn remote_location(url: &str) -> RemoteLocation {
    match Location::parse(url).unwrap() {
        Location::Remote(location) => location,
        Location::Local(_) => panic!("{url}"),
    }
}

/// Returns the options for the store of a test.
pub(crate) fn options_for(server: &S3Server) -> RemoteOptions {
    RemoteOptions {
        settings: server.environment(),
        ..RemoteOptions::default()
    }
}

/// Called before every fsync of this thread.
pub(crate) fn sync_should_fail() -> bool {
    SYNCS_UNTIL_FAILURE.with(|left| match left.get() {
        Some(0) => true,
        Some(n) => {
            left.set(Some(n - 1));
            false
        }
        None => false,
    })
}

/// Runs `body` while only the first `successes` synchronisations of this thread succeed.
fn with_failing_sync<T>(successes: u32, body: impl FnOnce() -> T) -> T {
    SYNCS_UNTIL_FAILURE.with(|left| left.set(Some(successes)));
    let result = body();
    SYNCS_UNTIL_FAILURE.with(|left| left.set(None));
    result
}

/// Creates an empty temporary directory.
pub(crate) fn root() -> (TempDir, Dir) {
    let temp = tempfile::tempdir().unwrap();
    let dir = Dir::open(temp.path()).unwrap();
    (temp, dir)
}

const BOTH: [Resolver; 2] = [Resolver::Kernel, Resolver::Parts];

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn make_fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap();
}

fn id<T: std::fmt::Debug>(result: Result<T, StorageError>) -> &'static str {
    result.unwrap_err().id()
}
