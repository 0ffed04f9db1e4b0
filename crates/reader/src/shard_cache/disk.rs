//! How much of the disk the cache may use.
//!
//! A disk that is nearly full is a limit, like the one that the user sets: shards of the cache on that disk and what is
//! free, without a margin. It is measured again at most every [`FRESH`], so that the cache shrinks and grows with the
//! files of other programs.
//!
//! A write may be refused although there seems to be space: a quota, or a file system that reports something else. Then
//! what was written before is the limit, and from time to time it is raised to find out whether there is space again.
//! Each attempt that fails costs one fetch, and doubles the time until the next one.

use std::time::{Duration, Instant};

use shardmill_core::Diagnostic as _;
use shardmill_storage::{Space, StorageError};

use crate::entry::Shards;
use crate::error::ReaderError;
use crate::shard_cache::folder::{Folder, MARKER_BYTES, weight};

/// How long a measurement is used. One that takes long is used for [`SHARE`] times as long as it took.
const FRESH: Duration = Duration::from_millis(500);

/// Measuring takes at most one part in this many of the time.
const SHARE: u32 = 20;

/// What stays free: one part in this many of the space that the cache could use, and at most [`MOST_MARGIN`].
const MARGIN: u64 = 64;
const MOST_MARGIN: u64 = 64 << 20;

/// Files that can still be created when the cache stops creating them.
const MARGIN_FILES: u64 = 16;

/// A disk with so many times the bytes in flight free is not measured.
const PLENTY: u64 = 8;

/// The time until a limit that was found by a refused write is raised, and the longest such time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MOST_PAUSE: Duration = Duration::from_secs(60);

/// Returns whether an error says that there is no space left.
pub(crate) fn is_full(error: &StorageError) -> bool {
    error.id() == "disk-full"
}

/// Returns whether an error says that a file is larger than the file system or the process may make one.
pub(crate) fn is_too_large(error: &StorageError) -> bool {
    matches!(error, StorageError::Io { source, .. }
        if source.kind() == std::io::ErrorKind::FileTooLarge)
}

/// What the shards of a folder take up, as the cache counts and as the disk does.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sizes {
    weights: u64,
    blocks: u64,
    files: u64,
}

impl Sizes {
    /// Adds up all shards of a stream. Files take up whole blocks, and markers are files as well.
    pub(crate) fn of(shards: &Shards, keep_zip: bool, block: u64) -> Self {
        let mut sum = Self::default();
        for entry in shards.iter() {
            let mut add = |bytes: u64| {
                sum.blocks = sum.blocks.saturating_add(round_up(bytes, block));
                sum.files = sum.files.saturating_add(1);
            };
            add(MARKER_BYTES);
            for part in entry.parts() {
                add(part.raw.bytes);
                if let Some((zip, _)) = part.zip.filter(|_| keep_zip) {
                    add(zip.bytes);
                }
            }
            sum.weights = sum.weights.saturating_add(weight(entry, keep_zip));
        }
        sum
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.weights = self.weights.saturating_add(other.weights);
        self.blocks = self.blocks.saturating_add(other.blocks);
        self.files = self.files.saturating_add(other.files);
    }

    /// How many bytes of shards, as the cache counts, fit into free space.
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

/// `amount` times `part` of `whole`.
fn share(amount: u64, part: u64, whole: u64) -> u64 {
    let product = u128::from(amount) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(product).unwrap_or(u64::MAX)
}

/// What is in the folders on one disk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Present {
    /// Bytes of the shards that are there, as the cache counts.
    weights: u64,
    /// Bytes of temporary files, whose shards are counted as reserved.
    temps: u64,
}

impl Present {
    /// Adds what is in a folder.
    pub(crate) fn add(
        &mut self,
        folder: &Folder,
        shards: &Shards,
        keep_zip: bool,
    ) -> Result<(), ReaderError> {
        let listing = folder.list()?;
        for number in listing.markers {
            if let Some(entry) = shards.get(number)
                && folder.local().exists(&entry.data().basename)?
            {
                self.weights = self.weights.saturating_add(weight(entry, keep_zip));
            }
        }
        for (_, name) in listing.temps {
            // One that is gone by now takes up nothing.
            if let Ok(file) = folder.own().open_file(&name) {
                self.temps = self.temps.saturating_add(file.len());
            }
        }
        Ok(())
    }
}

/// A limit that a refused write has shown.
#[derive(Clone, Copy, Debug)]
struct Refused {
    limit: u64,
    /// How much it is raised next, when, and how long after that again.
    step: u64,
    next: Instant,
    pause: Duration,
}

/// One disk that shards are kept on.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    /// What all shards of the folders on it take up.
    sizes: Option<Sizes>,
    /// Whether a write has found it full.
    full: bool,
    limit: Option<u64>,
    measured: Option<Instant>,
    took: Duration,
    refused: Option<Refused>,
}

impl Disk {
    pub(crate) const fn has_sizes(&self) -> bool {
        self.sizes.is_some()
    }

    pub(crate) fn set_sizes(&mut self, sizes: Sizes) {
        self.sizes = Some(sizes);
    }

    /// Returns whether the disk may become full: it was, or there is little space. That nothing at all is free is
    /// believed only after a write was refused, because some file systems always report it.
    pub(crate) fn may_fill(&self, space: Option<Space>, in_flight: u64) -> bool {
        if self.full {
            return true;
        }
        let (Some(space), Some(sizes)) = (space, self.sizes) else {
            return false;
        };
        let plenty = in_flight.saturating_mul(PLENTY);
        let bytes = sizes.blocks.saturating_add(MOST_MARGIN).min(plenty);
        let files = sizes.files.saturating_add(MARGIN_FILES);
        (space.bytes > 0 && space.bytes < bytes)
            || space.files.is_some_and(|free| free > 0 && free < files)
    }

    /// Returns whether what was measured last is too old.
    pub(crate) fn is_stale(&self) -> bool {
        self.measured
            .is_none_or(|at| at.elapsed() >= FRESH.max(self.took * SHARE))
    }

    /// Notes what is on the disk and what is free. `begun`: when measuring began.
    pub(crate) fn measured(&mut self, present: Present, space: Option<Space>, begun: Instant) {
        self.measured = Some(Instant::now());
        self.took = begun.elapsed();
        self.limit = space.map(|space| {
            let free = space.bytes.saturating_add(present.temps);
            let margin = (present.weights.saturating_add(free) / MARGIN).min(MOST_MARGIN);
            let files = space.files.map(|free| free.saturating_sub(MARGIN_FILES));
            let sizes = self.sizes.unwrap_or_default();
            let more = sizes.fitting(free.saturating_sub(margin), files);
            present.weights.saturating_add(more)
        });
    }

    /// A write of `bytes` was refused. `again`: although the limit was kept, so that only the failure shows it.
    pub(crate) fn refuse(&mut self, present: Present, bytes: u64, again: bool) {
        self.full = true;
        if !again && self.limit.is_some() {
            return;
        }
        let pause = self
            .refused
            .map_or(FIRST_PAUSE, |refused| (refused.pause * 2).min(MOST_PAUSE));
        self.refused = Some(Refused {
            // Shards differ in size: one that is a little larger may take the place of another.
            limit: present.weights.saturating_add(bytes / 4),
            step: bytes,
            next: Instant::now() + pause,
            pause,
        });
    }

    /// Returns how many bytes of shards may be on the disk, as the cache counts; `None` for as many as there are.
    pub(crate) fn limit(&mut self) -> Option<u64> {
        let now = Instant::now();
        if let Some(refused) = &mut self.refused
            && now >= refused.next
        {
            // As long as nothing is refused, the steps become longer.
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
        let mut disk = Disk::default();
        disk.set_sizes(Sizes {
            weights: 100 * MIB,
            blocks: 100 * MIB,
            files: 200,
        });
        disk
    }

    fn space(bytes: u64, files: Option<u64>) -> Option<Space> {
        Some(Space {
            bytes,
            block: 4096,
            files,
        })
    }

    #[test]
    fn a_disk_is_measured_only_when_it_may_fill() {
        let mut disk = disk();
        let in_flight = 10 * MIB;
        assert!(!disk.may_fill(None, in_flight));
        assert!(!disk.may_fill(space(80 * MIB, None), in_flight));
        assert!(disk.may_fill(space(79 * MIB, None), in_flight));
        // All shards fit.
        assert!(!disk.may_fill(space(170 * MIB, None), u64::MAX));
        assert!(disk.may_fill(space(160 * MIB, None), u64::MAX));
        assert!(disk.may_fill(space(u64::MAX, Some(100)), in_flight));
        assert!(!disk.may_fill(space(u64::MAX, Some(300)), in_flight));
        assert!(!disk.may_fill(space(0, Some(0)), in_flight));
        disk.refuse(Present::default(), 1, true);
        assert!(disk.may_fill(space(u64::MAX, None), in_flight));
    }

    #[test]
    fn the_limit_is_what_is_there_and_what_is_free_without_a_margin() {
        let mut disk = disk();
        let present = Present {
            weights: 60 * MIB,
            temps: 2 * MIB,
        };
        assert!(disk.is_stale() && disk.limit().is_none());
        disk.measured(present, space(2 * MIB, None), Instant::now());
        assert!(!disk.is_stale());
        assert_eq!(disk.limit(), Some(63 * MIB));
        // Each shard takes two files, of half a MiB together: five may be made.
        disk.measured(present, space(50 * MIB, Some(26)), Instant::now());
        assert_eq!(disk.limit(), Some(65 * MIB));
        disk.measured(present, space(0, Some(0)), Instant::now());
        assert_eq!(disk.limit(), Some(60 * MIB));
        disk.measured(present, None, Instant::now());
        assert_eq!(disk.limit(), None);
    }

    #[test]
    fn a_refused_write_is_believed_and_tried_again_later_and_later() {
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
