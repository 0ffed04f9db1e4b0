use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

/// Has the system begin to bring a range of a file to the disk, without waiting for it: a sync that comes later has less to
/// do. It promises nothing by itself. Where a system has no such call this does nothing.
///
/// # Errors
///
/// What the system says: a range beyond what it can address, or something that is not a file. Failures of the disk come
/// with the sync.
pub fn begin_writeback(file: BorrowedFd<'_>, range: Range<u64>) -> io::Result<()> {
    begin(file, range)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn begin(file: BorrowedFd<'_>, range: Range<u64>) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;

    let too_far = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let start = i64::try_from(range.start).map_err(too_far)?;
    // A length of zero would mean all that follows.
    let bytes = match range.end.saturating_sub(range.start) {
        0 => return Ok(()),
        bytes => i64::try_from(bytes).map_err(too_far)?,
    };
    // SAFETY: the descriptor is open for as long as it is borrowed; the call takes numbers only and touches no memory of ours.
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
    fn ranges_of_a_file_are_begun_and_what_is_none_is_told() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 10_000]).unwrap();
        begin_writeback(file.as_fd(), 0..10_000).unwrap();
        // Behind its end there is nothing to bring.
        begin_writeback(file.as_fd(), 5_000..1 << 40).unwrap();
        begin_writeback(file.as_fd(), 9..9).unwrap();
        begin_writeback(file.as_fd(), 0..u64::MAX).unwrap_err();
        let (reader, _writer) = std::io::pipe().unwrap();
        #[cfg(target_os = "linux")]
        begin_writeback(reader.as_fd(), 0..1).unwrap_err();
        drop(reader);
    }
}
