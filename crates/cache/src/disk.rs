//! Limits the cache to the free space on the disk.
//!
//! The disk is a limit, like the one that the user sets. It is the sum of the cached blobs on the disk and the free
//! space, minus a margin. The cache measures it again after [`FRESH`] at the earliest, and adapts to the files of
//! other programs.
//!
//! A write can fail although the file system reports free space, for example because of a quota. The bytes written so
//! far then become the limit. The cache raises it from time to time to find out whether there is space again. Each
//! failed attempt costs one fetch and doubles the time until the next one.

use std::time::{Duration, Instant};

use shardmill_core::Diagnostic as _;
use shardmill_storage::{Space, StorageError};

use crate::blobs::Blob;
use crate::folder::Folder;
use crate::marker::MARKER_BYTES;

/// How long a measurement is valid; a slow one is valid for [`SHARE`] times its own duration.
const FRESH: Duration = Duration::from_millis(500);

/// Measuring takes at most this fraction of the time (1/20).
const SHARE: u32 = 20;

/// The fraction of the usable space that stays free (1/64), at most [`MAX_MARGIN`].
const MARGIN: u64 = 64;
const MAX_MARGIN: u64 = 64 << 20;

/// The number of files that the cache leaves for other programs to create.
const MARGIN_FILES: u64 = 16;

/// A disk is not measured while its free space is more than this many times the bytes in flight.
const PLENTY: u64 = 8;

/// The time until a limit found by a failed write is raised: the first and the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Returns whether an error means that no space is left, a quota is used up, or a file is too large.
pub(crate) fn is_full(error: &StorageError) -> bool {
    error.id() == "disk-full"
}

/// Returns whether an error means that a file is too large for the file system or the process.
pub(crate) fn is_too_large(error: &StorageError) -> bool {
    matches!(error, StorageError::Io { source, .. }
        if source.kind() == std::io::ErrorKind::FileTooLarge)
}

/// The size of blobs in the cache's count, in blocks on disk, and in files.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sizes {
    weights: u64,
    blocks: u64,
    files: u64,
}

impl Sizes {
    /// Adds up blobs. Files take whole blocks, and markers are files as well.
    pub(crate) fn add<'a>(&mut self, blobs: impl Iterator<Item = Blob<'a>>, block: u64) {
        let sum = self;
        for blob in blobs {
            let mut add = |bytes: u64| {
                sum.blocks = sum.blocks.saturating_add(round_up(bytes, block));
                sum.files = sum.files.saturating_add(1);
            };
            add(MARKER_BYTES);
            for file in blob.files() {
                add(file.raw.bytes);
                if let Some(packed) = file.packed.filter(|_| blob.keep_packed) {
                    add(packed.bytes);
                }
            }
            sum.weights = sum.weights.saturating_add(blob.cached_bytes());
        }
    }

    /// Returns how many bytes of blobs, in the cache's count, fit into free space.
    fn fitting(self, bytes: u64, files: Option<u64>) -> u64 {
        let bytes = share(bytes, self.weights, self.blocks);
        match files {
            Some(files) => bytes.min(share(files, self.weights, self.files)),
            None => bytes,
        }
    }
}

fn round_up(bytes: u64, block: u64) -> u64 {
    bytes.div_ceil(block.max(1)).saturating_mul(block.max(1))
}

/// Returns `amount * part / whole`.
fn share(amount: u64, part: u64, whole: u64) -> u64 {
    let product = u128::from(amount) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(product).unwrap_or(u64::MAX)
}

/// The content of the folders on one disk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Present {
    /// Bytes of the existing blobs, in the cache's count.
    weights: u64,
    /// Bytes of temporary files; their blobs count as reserved.
    temps: u64,
}

impl Present {
    /// Adds the content of a folder.
    pub(crate) fn add<'a>(
        &mut self,
        folder: &Folder,
        blob_of: impl Fn(usize) -> Option<Blob<'a>>,
    ) -> Result<(), StorageError> {
        let listing = folder.list()?;
        for number in listing.markers {
            if let Some(blob) = blob_of(number)
                && folder.local.exists(&blob.data.raw.basename)?
            {
                self.weights = self.weights.saturating_add(blob.cached_bytes());
            }
        }
        for (_, name) in listing.temps {
            // The file may have been removed since the listing.
            if let Ok(file) = folder.own.open_file(&name) {
                self.temps = self.temps.saturating_add(file.len());
            }
        }
        Ok(())
    }
}

/// A limit found by a failed write.
#[derive(Clone, Copy, Debug)]
struct Refused {
    limit: u64,
    /// The next increase of the limit, its time, and the interval between increases.
    step: u64,
    next: Instant,
    pause: Duration,
}

/// A disk with cache folders.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    /// The size of all blobs of the streams whose folders are on the disk.
    pub(crate) sizes: Option<Sizes>,
    /// Whether a write found the disk full.
    full: bool,
    limit: Option<u64>,
    measured: Option<Instant>,
    took: Duration,
    refused: Option<Refused>,
}

impl Disk {
    /// Returns whether the disk may become full: it was full before, or little space is free. A report of no free
    /// space at all counts only after a failed write, because some file systems always report it.
    pub(crate) fn may_fill(&self, space: Option<Space>, in_flight: u64) -> bool {
        if self.full {
            return true;
        }
        let (Some(space), Some(sizes)) = (space, self.sizes) else {
            return false;
        };
        let plenty = in_flight.saturating_mul(PLENTY);
        let bytes = sizes.blocks.saturating_add(MAX_MARGIN).min(plenty);
        let files = sizes.files.saturating_add(MARGIN_FILES);
        (space.bytes > 0 && space.bytes < bytes)
            || space.files.is_some_and(|free| free > 0 && free < files)
    }

    /// Returns whether the last measurement is too old.
    pub(crate) fn is_stale(&self) -> bool {
        self.measured
            .is_none_or(|at| at.elapsed() >= FRESH.max(self.took * SHARE))
    }

    /// Records a measurement that began at `started`.
    pub(crate) fn measured(&mut self, present: Present, space: Option<Space>, started: Instant) {
        self.measured = Some(Instant::now());
        self.took = started.elapsed();
        self.limit = space.map(|space| {
            let free = space.bytes.saturating_add(present.temps);
            let margin = (present.weights.saturating_add(free) / MARGIN).min(MAX_MARGIN);
            let files = space.files.map(|free| free.saturating_sub(MARGIN_FILES));
            let sizes = self.sizes.unwrap_or_default();
            let more = sizes.fitting(free.saturating_sub(margin), files);
            present.weights.saturating_add(more)
        });
    }

    /// Records that a write of `bytes` failed. `again`: it failed within the limit, so the limit is wrong.
    pub(crate) fn refuse(&mut self, present: Present, bytes: u64, again: bool) {
        self.full = true;
        if !again && self.limit.is_some() {
            return;
        }
        let pause = self
            .refused
            .map_or(FIRST_PAUSE, |refused| (refused.pause * 2).min(MAX_PAUSE));
        self.refused = Some(Refused {
            // Blobs differ in size, so a slightly larger one may replace another.
            limit: present.weights.saturating_add(bytes / 4),
            step: bytes,
            next: Instant::now() + pause,
            pause,
        });
    }

    /// Returns how many bytes of blobs the disk may hold, in the cache's count; `None` for no limit.
    pub(crate) fn limit(&mut self) -> Option<u64> {
        let now = Instant::now();
        if let Some(refused) = &mut self.refused
            && now >= refused.next
        {
            // The steps double as long as no write fails.
            refused.limit = refused.limit.saturating_add(refused.step);
            refused.step = refused.step.saturating_mul(2);
            refused.next = now + refused.pause;
        }
        match (self.refused, self.limit) {
            (Some(refused), Some(limit)) if refused.limit >= limit => {
                self.refused = None;
                Some(limit)
            }
            (Some(refused), _) => Some(refused.limit),
            (None, limit) => limit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn disk() -> Disk {
        let sizes = Some(Sizes {
            weights: 100 * MIB,
            blocks: 100 * MIB,
            files: 200,
        });
        Disk {
            sizes,
            ..Disk::default()
        }
    }

    fn space(bytes: u64, files: Option<u64>) -> Option<Space> {
        Some(Space {
            bytes,
            block: 4096,
            files,
        })
    }

    #[test]
    fn disk_is_measured_only_when_it_may_fill() {
        let mut disk = disk();
        let in_flight = 10 * MIB;
        assert!(!disk.may_fill(None, in_flight));
        assert!(!disk.may_fill(space(80 * MIB, None), in_flight));
        assert!(disk.may_fill(space(79 * MIB, None), in_flight));
        // All blobs fit.
        assert!(!disk.may_fill(space(170 * MIB, None), u64::MAX));
        assert!(disk.may_fill(space(160 * MIB, None), u64::MAX));
        assert!(disk.may_fill(space(u64::MAX, Some(100)), in_flight));
        assert!(!disk.may_fill(space(u64::MAX, Some(300)), in_flight));
        assert!(!disk.may_fill(space(0, Some(0)), in_flight));
        disk.refuse(Present::default(), 1, true);
        assert!(disk.may_fill(space(u64::MAX, None), in_flight));
    }

    #[test]
    fn limit_is_used_plus_free_space_minus_a_margin() {
        let mut disk = disk();
        let present = Present {
            weights: 60 * MIB,
            temps: 2 * MIB,
        };
        assert!(disk.is_stale() && disk.limit().is_none());
        disk.measured(present, space(2 * MIB, None), Instant::now());
        assert!(!disk.is_stale());
        assert_eq!(disk.limit(), Some(63 * MIB));
        // Each blob takes two files, together 0.5 MiB; ten more files can be created, so five more blobs.
        disk.measured(present, space(50 * MIB, Some(26)), Instant::now());
        assert_eq!(disk.limit(), Some(65 * MIB));
        disk.measured(present, space(0, Some(0)), Instant::now());
        assert_eq!(disk.limit(), Some(60 * MIB));
        disk.measured(present, None, Instant::now());
        assert_eq!(disk.limit(), None);
    }

    #[test]
    fn refused_write_lowers_the_limit_and_backs_off() {
        let mut disk = disk();
        let present = Present {
            weights: 60 * MIB,
            temps: 0,
        };
        disk.measured(present, space(40 * MIB, None), Instant::now());
        let measured = disk.limit().unwrap();
        assert!(measured > 90 * MIB);
        disk.refuse(present, MIB, false);
        assert_eq!(disk.limit(), Some(measured));
        disk.refuse(present, MIB, true);
        assert_eq!(disk.limit(), Some(60 * MIB + MIB / 4));
        let wait = |disk: &mut Disk| {
            if let Some(refused) = &mut disk.refused {
                refused.next = Instant::now();
            }
        };
        wait(&mut disk);
        assert_eq!(disk.limit(), Some(61 * MIB + MIB / 4));
        assert_eq!(disk.limit(), Some(61 * MIB + MIB / 4));
        disk.refuse(present, MIB, true);
        assert_eq!(disk.refused.unwrap().pause, FIRST_PAUSE * 2);
        for expected in [61, 63, 67, 75] {
            wait(&mut disk);
            assert_eq!(disk.limit(), Some(expected * MIB + MIB / 4));
        }
        wait(&mut disk);
        assert_eq!(disk.limit(), Some(91 * MIB + MIB / 4));
        wait(&mut disk);
        assert_eq!(disk.limit(), Some(measured));
        assert!(disk.refused.is_none());
    }
}
