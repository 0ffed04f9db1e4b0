//! Memory-mapped files.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::{self, NonNull};

use crate::sigbus::Guarded;

/// The bytes of a file, mapped for reading.
///
/// Reading never ends the process: missing pages read as zeros, and [`is_damaged`](Self::is_damaged) reports it. The
/// bytes reflect the file at the time of reading, and any process that can write to the file can change them. Callers
/// must validate lengths and offsets in them at every use.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    /// Dropped first, so that the handler forgets the region before it is unmapped. `None` for an empty mapping.
    guarded: Option<Guarded>,
}

// SAFETY: the region is read-only, and this value is its only owner.
unsafe impl Send for Mapping {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` of a file. The descriptor may be closed afterwards.
    ///
    /// # Errors
    ///
    /// Returns the error of the system: out of memory, too many regions (`ENOMEM`), or a file that cannot be mapped.
    pub fn new(file: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        if bytes == 0 {
            return Ok(Self {
                start: NonNull::dangling(),
                bytes: 0,
                guarded: None,
            });
        }
        let start = match Self::map(file, bytes, libc::MAP_SHARED) {
            // File systems without a common page cache, such as FUSE with direct I/O, have only private mappings. One
            // that is never written to reads the same bytes.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {
                Self::map(file, bytes, libc::MAP_PRIVATE)?
            }
            mapped => mapped?,
        };
        let Some(start) = NonNull::new(start.cast::<u8>()) else {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        };
        // Created first, so that an error below unmaps the region.
        let mut mapping = Self {
            start,
            bytes,
            guarded: None,
        };
        mapping.guarded = Some(Guarded::new(start.as_ptr() as usize, bytes)?);
        Ok(mapping)
    }

    /// Creates a region of a kind (`MAP_SHARED` or `MAP_PRIVATE`), at an address that the system chooses.
    fn map(file: BorrowedFd<'_>, bytes: usize, kind: libc::c_int) -> io::Result<*mut libc::c_void> {
        // SAFETY: creates a new region, which overlaps no other.
        let start = unsafe {
            let file = file.as_raw_fd();
            libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ, kind, file, 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(start)
    }

    /// Returns the bytes. Data read from them is valid only if [`is_damaged`](Self::is_damaged) is false afterwards.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the region has this many readable bytes as long as `self` lives, or none at a dangling address.
        // Other processes may change the values by writing to the file; the documentation of the type says so.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    /// Returns whether bytes were read that are no longer in the file. Once true, it stays true.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.guarded.as_ref().is_some_and(Guarded::is_damaged)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.guarded = None;
            // SAFETY: mapped by `new`, and no borrow of it is left.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
        }
    }
}

impl AsRef<[u8]> for Mapping {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;
    use std::os::fd::AsFd as _;

    use super::*;

    /// Returns the byte at an offset of a test file.
    fn byte(at: usize) -> u8 {
        u8::try_from(at % 251 + 1).unwrap()
    }

    fn file(bytes: usize) -> File {
        let mut file = tempfile::tempfile().unwrap();
        let text: Vec<u8> = (0..bytes).map(byte).collect();
        file.write_all(&text).unwrap();
        file
    }

    fn map(file: &File, bytes: usize) -> Mapping {
        Mapping::new(file.as_fd(), bytes).unwrap()
    }

    #[test]
    fn mapped_bytes_equal_the_file() {
        for size in [0, 1, 4096, 4097, 1 << 20] {
            let file = file(size);
            let mapping = map(&file, size);
            assert_eq!(mapping.bytes().len(), size);
            let mut same = mapping.bytes().iter().enumerate();
            assert!(same.all(|(at, found)| *found == byte(at)));
            assert!(!mapping.is_damaged());
        }
    }

    #[test]
    fn truncated_file_reads_as_zeros_and_is_damaged() {
        let size = 64 * 4096;
        let (cut, whole) = (file(size), file(size));
        let (damaged, sound) = (map(&cut, size), map(&whole, size));
        cut.set_len(2 * 4096).unwrap();
        assert_eq!(damaged.bytes()[4096], byte(4096));
        assert!(!damaged.is_damaged());
        let (kept, lost) = damaged.bytes().split_at(2 * 4096);
        assert!(
            kept.iter()
                .enumerate()
                .all(|(at, found)| *found == byte(at))
        );
        assert!(lost.iter().all(|byte| *byte == 0));
        assert!(damaged.is_damaged() && !sound.is_damaged());
    }

    #[test]
    fn concurrent_reads_of_a_truncated_file_are_zeros() {
        let size = 256 * 4096;
        let file = file(size);
        let mapping = map(&file, size);
        file.set_len(0).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert!(mapping.bytes().iter().all(|byte| *byte == 0)));
            }
        });
        assert!(mapping.is_damaged());
    }

    #[test]
    fn reused_slot_starts_undamaged() {
        for _ in 0..3 {
            let file = file(4096);
            let mapping = map(&file, 4096);
            assert!(!mapping.is_damaged());
            file.set_len(0).unwrap();
            assert_eq!(mapping.bytes()[7], 0);
            assert!(mapping.is_damaged());
        }
    }
}
