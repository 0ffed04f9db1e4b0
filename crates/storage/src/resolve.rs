//! Opens a relative name below a directory without following symbolic links.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
#[cfg(target_os = "linux")]
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, statat};
use rustix::io::{Errno, Result};

/// The descriptor of a directory while it is used.
#[derive(Debug)]
pub(crate) enum DirFd<'a> {
    Borrowed(BorrowedFd<'a>),
    /// Another thread may close the directory as soon as this is dropped.
    Pooled(Arc<OwnedFd>),
}

impl AsFd for DirFd<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Borrowed(handle) => *handle,
            Self::Pooled(handle) => handle.as_fd(),
        }
    }
}

/// How a path is resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resolver {
    /// By the kernel, with `openat2`. Falls back to `Parts` where the call is missing.
    Kernel,
    /// In this process: each part is opened with `O_NOFOLLOW`.
    Parts,
}

/// The flags for opening a parent directory.
const ON_THE_WAY: OFlags = ACCESS
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
#[cfg(target_os = "linux")]
const ACCESS: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const ACCESS: OFlags = OFlags::RDONLY;

/// Opens `name` below `dir`. Fails with `ELOOP` if any part is a symbolic link.
///
/// INVARIANT: `name` has been checked by `check_relative_path`, so no part is empty, `.` or `..`.
pub(crate) fn open_beneath(
    resolver: Resolver,
    dir: BorrowedFd<'_>,
    name: &str,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd> {
    if resolver == Resolver::Kernel
        && let Some(result) = open_by_kernel(dir, name, flags, mode)
    {
        return result;
    }
    let (parent, last) = open_parent(Resolver::Parts, DirFd::Borrowed(dir), name)?;
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    open_part(parent.as_fd(), last, flags, mode)
}

/// Returns `None` if the kernel lacks the call or a seccomp filter blocks it.
#[cfg(target_os = "linux")]
fn open_by_kernel(
    dir: BorrowedFd<'_>,
    name: &str,
    flags: OFlags,
    mode: Mode,
) -> Option<Result<OwnedFd>> {
    use rustix::fs::{ResolveFlags, openat2};

    static MISSING: AtomicBool = AtomicBool::new(false);
    /// The kernel returns EAGAIN if a concurrent rename prevents it from proving that the path stays below `dir`.
    const ATTEMPTS: usize = 16;

    if MISSING.load(Ordering::Relaxed) {
        return None;
    }
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = flags.difference(OFlags::NOFOLLOW) | OFlags::CLOEXEC;
    for _ in 0..ATTEMPTS {
        match openat2(dir, name, flags, mode, resolve) {
            Err(Errno::NOSYS) => {
                MISSING.store(true, Ordering::Relaxed);
                return None;
            }
            // Old container runtimes answer EPERM to calls they do not know. If it is a real refusal, the fallback
            // fails with it as well.
            Err(Errno::PERM) => return None,
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(Errno::NOTDIR) => return Some(Err(explain_not_a_directory(dir, name))),
            other => return Some(other),
        }
    }
    None
}

#[cfg(not(target_os = "linux"))]
fn open_by_kernel(
    _dir: BorrowedFd<'_>,
    _name: &str,
    _flags: OFlags,
    _mode: Mode,
) -> Option<Result<OwnedFd>> {
    None
}

fn open_part(dir: BorrowedFd<'_>, part: &str, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
    loop {
        match openat(dir, part, flags, mode) {
            Err(Errno::INTR) => {}
            Err(Errno::NOTDIR) if is_symlink(dir, part) => return Err(Errno::LOOP),
            other => return other,
        }
    }
}

/// The directory that contains the last part of a name.
#[derive(Debug)]
pub(crate) enum Parent<'a> {
    /// The directory the name is relative to.
    Here(DirFd<'a>),
    /// A directory below it.
    Below(OwnedFd),
}

impl AsFd for Parent<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Here(handle) => handle.as_fd(),
            Self::Below(handle) => handle.as_fd(),
        }
    }
}

/// Opens the parent directory of `name` and returns it with the last part.
pub(crate) fn open_parent<'d, 'a>(
    resolver: Resolver,
    dir: DirFd<'d>,
    name: &'a str,
) -> Result<(Parent<'d>, &'a str)> {
    let Some((folders, last)) = name.rsplit_once('/') else {
        return Ok((Parent::Here(dir), name));
    };
    if resolver == Resolver::Kernel
        && let Some(result) = open_by_kernel(dir.as_fd(), folders, ON_THE_WAY, Mode::empty())
    {
        return Ok((Parent::Below(result?), last));
    }
    let mut parent = Parent::Here(dir);
    for part in folders.split('/') {
        parent = Parent::Below(open_part(parent.as_fd(), part, ON_THE_WAY, Mode::empty())?);
    }
    Ok((parent, last))
}

/// Returns whether the entry itself is a symbolic link.
fn is_symlink(dir: BorrowedFd<'_>, part: &str) -> bool {
    statat(dir, OsStr::new(part), AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}

/// Distinguishes a symbolic link from a file at the end of a path that has to be a directory. The kernel reports
/// ENOTDIR for both; the result only selects the error message.
#[cfg(target_os = "linux")]
fn explain_not_a_directory(dir: BorrowedFd<'_>, name: &str) -> Errno {
    match open_parent(Resolver::Parts, DirFd::Borrowed(dir), name) {
        Ok((parent, last)) if is_symlink(parent.as_fd(), last) => Errno::LOOP,
        Err(Errno::LOOP) => Errno::LOOP,
        _ => Errno::NOTDIR,
    }
}
