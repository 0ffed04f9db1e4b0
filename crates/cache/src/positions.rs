//! The positions of the machine's ranks in their run.
//!
//! Each rank writes its position to a shared file, so that the cache keeps blobs for slower ranks.

use std::cmp::Ordering;
use std::sync::{Arc, Mutex};

use shardmill_core::lock;
use shardmill_storage::Claim;

use crate::folder::Folder;
use crate::marker::seconds;
use crate::options::Peers;

/// Seconds after which the position of a rank that has not moved is ignored.
const RANK_RESTS: u64 = 60;

/// The length of a rank's entry: run, epoch, batches of the epoch and time, as little-endian words.
const POSITION_BYTES: usize = 32;

/// Returns the size of the file.
pub(crate) const fn bytes(peers: Peers) -> u64 {
    peers.ranks.saturating_mul(POSITION_BYTES as u64)
}

/// The current epoch.
#[derive(Clone, Copy, Debug, Default)]
struct Era {
    epoch: u64,
    /// The tick at which the epoch began. Each rank counts ticks from its own first epoch.
    first: u64,
}

/// The positions of this rank and of its peers.
#[derive(Debug)]
pub(crate) struct Positions {
    peers: Option<Peers>,
    era: Mutex<Era>,
    /// Opened on first use. It has a lock of its own, because a process that counts used space may wait for this rank
    /// to publish its position.
    file: Mutex<Option<Claim>>,
}

impl Positions {
    pub(crate) const fn new(peers: Option<Peers>) -> Self {
        Self {
            peers,
            era: Mutex::new(Era { epoch: 0, first: 0 }),
            file: Mutex::new(None),
        }
    }

    /// Records that an epoch begins at a tick.
    pub(crate) fn begin_epoch(&self, epoch: u64, first: u64) {
        *lock(&self.era) = Era { epoch, first };
    }

    pub(crate) fn epoch(&self) -> u64 {
        lock(&self.era).epoch
    }

    fn with<T>(
        &self,
        folder: impl FnOnce() -> Option<Arc<Folder>>,
        act: impl FnOnce(&Claim) -> Option<T>,
    ) -> Option<T> {
        let mut file = lock(&self.file);
        if file.is_none() {
            *file = Claim::open_or_create(&folder()?.own, "positions").ok();
        }
        act(file.as_ref()?)
    }

    /// Publishes the position of this rank.
    pub(crate) fn move_to(&self, tick: u64, folder: impl FnOnce() -> Option<Arc<Folder>>) {
        let Some(peers) = self.peers else {
            return;
        };
        let era = *lock(&self.era);
        let batches = tick.saturating_sub(era.first);
        let words = [peers.run, era.epoch, batches, seconds()].map(u64::to_le_bytes);
        let at = peers.rank.saturating_mul(POSITION_BYTES as u64);
        // Best effort: if it fails, other ranks see the previous position.
        let _written = self.with(folder, |file| file.write(at, &words.concat()).ok());
    }

    /// Returns the position of the slowest rank on the machine, in ticks of this rank. A rank in an earlier epoch
    /// needs all of the current epoch. Ranks in a later epoch do not count.
    pub(crate) fn slowest(&self, now: u64, folder: impl FnOnce() -> Option<Arc<Folder>>) -> u64 {
        let Some(peers) = self.peers else {
            return now;
        };
        let max = usize::try_from(peers.ranks.min(4096)).unwrap_or(0) * POSITION_BYTES;
        let bytes = self.with(folder, |file| file.read(0, max).ok());
        let bytes = bytes.unwrap_or_default();
        let era = *lock(&self.era);
        let at = seconds();
        let mut slowest = now;
        let (words, _) = bytes.as_chunks::<8>();
        let (positions, _) = words.as_chunks::<4>();
        for (rank, position) in (0_u64..).zip(positions) {
            let [run, epoch, batches, moved] = position.map(u64::from_le_bytes);
            // This rank's own position is known exactly.
            let counts = rank != peers.rank && run == peers.run && moved > 0;
            if !counts || at.abs_diff(moved) > RANK_RESTS {
                continue;
            }
            let tick = match epoch.cmp(&era.epoch) {
                Ordering::Less => era.first,
                Ordering::Equal => era.first.saturating_add(batches),
                Ordering::Greater => continue,
            };
            slowest = slowest.min(tick);
        }
        slowest
    }
}
