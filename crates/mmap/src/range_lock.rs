//! Locks ranges of a file.

use std::io;
use std::os::fd::BorrowedFd;

/// How a range of a file is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeLock {
    /// Any number of open files can hold it.
    Shared,
    /// Only one open file can hold it.
    Exclusive,
    /// Nothing is locked.
    Unlocked,
}

/// Locks or unlocks one byte of a file, without waiting. The byte need not exist.
///
/// The lock belongs to the open file, as that of `flock` does: threads and forked processes share it, and it ends when
/// the last descriptor is closed.
///
/// # Errors
///
/// `WouldBlock` if another open file has locked the byte. Otherwise the error of the system: the file system or the
/// system has no such locks, or the file is not open for writing and the lock is exclusive.
pub fn lock_byte(file: BorrowedFd<'_>, at: u64, lock: RangeLock) -> io::Result<()> {
    set(file, at, lock)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn set(file: BorrowedFd<'_>, at: u64, lock: RangeLock) -> io::Result<()> {
    use std::mem::MaybeUninit;
    use std::os::fd::AsRawFd as _;

    let at = i64::try_from(at).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let kind = match lock {
        RangeLock::Shared => libc::F_RDLCK,
        RangeLock::Exclusive => libc::F_WRLCK,
        RangeLock::Unlocked => libc::F_UNLCK,
    };
    // SAFETY: all fields are numbers, for which zero is valid.
    let mut range: libc::flock = unsafe { MaybeUninit::zeroed().assume_init() };
    range.l_type = libc::c_short::try_from(kind).unwrap_or_default();
    range.l_whence = libc::c_short::try_from(libc::SEEK_SET).unwrap_or_default();
    range.l_start = at;
    range.l_len = 1;
    // SAFETY: the descriptor is open as long as it is borrowed, and the call reads a range that lives until it returns.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const range) };
    if done == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EACCES) => Err(io::ErrorKind::WouldBlock.into()),
        _ => Err(error),
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn set(_: BorrowedFd<'_>, _: u64, _: RangeLock) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn bytes_are_locked_apart_from_each_other() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let open = || {
            File::options()
                .read(true)
                .write(true)
                .open(named.path())
                .unwrap()
        };
        let (one, two) = (open(), open());
        let set = |file: &File, at, lock| lock_byte(file.as_fd(), at, lock);
        let is_busy =
            |result: io::Result<()>| result.unwrap_err().kind() == io::ErrorKind::WouldBlock;
        set(&one, 7, RangeLock::Exclusive).unwrap();
        set(&two, 8, RangeLock::Exclusive).unwrap();
        assert!(is_busy(set(&two, 7, RangeLock::Shared)));
        set(&one, 7, RangeLock::Shared).unwrap();
        set(&two, 7, RangeLock::Shared).unwrap();
        assert!(is_busy(set(&one, 7, RangeLock::Exclusive)));
        set(&two, 7, RangeLock::Unlocked).unwrap();
        set(&one, 7, RangeLock::Exclusive).unwrap();
        drop(one);
        set(&two, 7, RangeLock::Exclusive).unwrap();
        assert!(set(&two, u64::MAX, RangeLock::Shared).is_err());
    }
}
