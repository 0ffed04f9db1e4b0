//! The descriptor of an open directory, and the pool of those that are reopened when they are used.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use rustix::fs::{Mode, OFlags, fstat, open};
use rustix::io::Errno;

use crate::file::{FileBirth, birth_of};
use crate::resolve::DirFd;

/// The most pooled directories that are open at a time. A process that reads hundreds of datasets has hundreds of
/// directories.
const MAX_OPEN: usize = 16;

/// The pooled directories that are open, in the order in which they were opened.
///
/// No thread waits for this lock or for that of a directory: a forked child may have inherited them locked.
static OPEN: Mutex<VecDeque<Weak<DirHandle>>> = Mutex::new(VecDeque::new());

/// An open directory.
#[derive(Debug)]
pub(crate) enum DirHandle {
    /// Open as long as it is used.
    Open(OwnedFd),
    /// Closed while it is not used, if many others are. Reopened by its path, which must still lead to it.
    Pooled {
        path: PathBuf,
        identity: DirIdentity,
        open: Mutex<Option<Arc<OwnedFd>>>,
    },
}

/// What identifies a directory: its device, its inode and its creation time.
type DirIdentity = (u64, FileBirth);

impl DirHandle {
    /// Returns the descriptor of an open directory to the pool. `path` is where it is; if that is not known for certain,
    /// the directory stays open.
    pub(crate) fn pooled(handle: OwnedFd, path: &Path) -> Arc<Self> {
        let path = std::path::absolute(path).ok();
        let there = path.and_then(|path| Some((identity(&open_at(&path).ok()?)?, path)));
        match (there, identity(&handle)) {
            (Some((there, path)), Some(identity)) if there == identity => {
                let pooled = Arc::new(Self::Pooled {
                    path,
                    identity,
                    open: Mutex::new(None),
                });
                pooled.keep(Arc::new(handle));
                pooled
            }
            _ => Arc::new(Self::Open(handle)),
        }
    }

    /// Returns the descriptor. Reopens a pooled directory that was closed.
    ///
    /// # Errors
    ///
    /// Those of opening it; `STALE` if another directory is at its path now.
    pub(crate) fn get(self: &Arc<Self>) -> rustix::io::Result<DirFd<'_>> {
        match &**self {
            Self::Open(handle) => Ok(DirFd::Borrowed(handle.as_fd())),
            Self::Pooled {
                path,
                identity: known,
                open,
            } => {
                let found = open.try_lock().ok().and_then(|open| open.clone());
                if let Some(handle) = found {
                    return Ok(DirFd::Pooled(handle));
                }
                let handle = Arc::new(open_at(path)?);
                if identity(&handle).as_ref() != Some(known) {
                    return Err(Errno::STALE);
                }
                self.keep(Arc::clone(&handle));
                Ok(DirFd::Pooled(handle))
            }
        }
    }

    /// Keeps a pooled directory open, and closes the one that was opened first if there are too many.
    fn keep(self: &Arc<Self>, handle: Arc<OwnedFd>) {
        let Self::Pooled { open, .. } = &**self else {
            return;
        };
        let (Ok(mut all), Ok(mut open)) = (OPEN.try_lock(), open.try_lock()) else {
            return;
        };
        if open.is_some() {
            return;
        }
        while all.len() >= MAX_OPEN {
            match all.pop_front().map(|oldest| (oldest.upgrade(), oldest)) {
                Some((Some(oldest), entry)) if !oldest.close() => {
                    // Another thread is looking it up.
                    all.push_back(entry);
                    return;
                }
                _ => {}
            }
        }
        all.push_back(Arc::downgrade(self));
        *open = Some(handle);
    }

    /// Closes a pooled directory, as soon as the calls that use it end. Returns `false` if its lock is held.
    fn close(&self) -> bool {
        let Self::Pooled { open, .. } = self else {
            return true;
        };
        let open = open.try_lock().map(|mut open| open.take());
        open.is_ok()
    }
}

fn open_at(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open(path, flags, Mode::empty())
}

fn identity(handle: &OwnedFd) -> Option<DirIdentity> {
    let device = fstat(handle).ok()?.st_dev;
    Some((device, birth_of(handle.as_fd()).ok()?))
}
