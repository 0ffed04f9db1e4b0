//! Asks the kernel to write a range of a file to the disk.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

/// Starts to write a range of a file to disk without waiting, so that a later sync has less to do.
///
/// It guarantees nothing by itself, and does nothing on systems other than Linux and Android.
///
/// # Errors
///
/// Returns the error of the system: the range is too large, or the descriptor is not a file. The later sync reports
/// disk errors.
pub fn begin_writeback(file: BorrowedFd<'_>, range: Range<u64>) -> io::Result<()> {
    begin(file, range)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn begin(file: BorrowedFd<'_>, range: Range<u64>) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;

    let too_far = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let start = i64::try_from(range.start).map_err(too_far)?;
    // A length of zero would mean everything up to the end of the file.
    let bytes = match range.end.saturating_sub(range.start) {
        0 => return Ok(()),
        bytes => i64::try_from(bytes).map_err(too_far)?,
    };
    // SAFETY: the descriptor is open as long as it is borrowed; the call takes only numbers and accesses no memory.
    let done = unsafe {
        libc::sync_file_range(file.as_raw_fd(), start, bytes, libc::SYNC_FILE_RANGE_WRITE)
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn begin(_: BorrowedFd<'_>, _: Range<u64>) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsFd as _;

    use super::begin_writeback;

    #[test]
    fn writeback_starts_and_invalid_ranges_are_errors() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 10_000]).unwrap();
        begin_writeback(file.as_fd(), 0..10_000).unwrap();
        // A range beyond the end of the file is valid.
        begin_writeback(file.as_fd(), 5_000..1 << 40).unwrap();
        begin_writeback(file.as_fd(), 9..9).unwrap();
        begin_writeback(file.as_fd(), 0..u64::MAX).unwrap_err();
        let (reader, _writer) = std::io::pipe().unwrap();
        #[cfg(target_os = "linux")]
        begin_writeback(reader.as_fd(), 0..1).unwrap_err();
        drop(reader);
    }
}
