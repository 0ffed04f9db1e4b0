//! Where the ranks of this machine are in their run: a file in which each has a place, so that shards stay for those that
//! are behind.

use std::cmp::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use shardmill_storage::Claim;

use crate::shard_cache::Peers;
use crate::shard_cache::folder::{Folder, seconds};

/// A rank that has not moved for so long does not keep shards from leaving.
const RANK_RESTS: u64 = 60;

/// What a rank writes down of itself: which run, which epoch, batches of the epoch, and when, as little-endian words.
const POSITION_BYTES: usize = 32;

/// How large the file is.
pub(crate) const fn bytes(peers: Peers) -> u64 {
    peers.ranks.saturating_mul(POSITION_BYTES as u64)
}

/// The epoch that is read.
#[derive(Clone, Copy, Debug, Default)]
struct Era {
    epoch: u64,
    /// The tick that it began at. Each rank counts its ticks from an epoch of its own.
    first: u64,
}

/// Where this rank is, and where the others are.
#[derive(Debug)]
pub(crate) struct Positions {
    peers: Option<Peers>,
    era: Mutex<Era>,
    /// Opened when it is first needed. Not behind the lock of those who count what is in the cache: they may wait for just
    /// this rank to write down that it has moved.
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

    /// An epoch begins at a tick.
    pub(crate) fn begin_epoch(&self, epoch: u64, first: u64) {
        *self.era.lock().unwrap_or_else(PoisonError::into_inner) = Era { epoch, first };
    }

    fn era(&self) -> Era {
        *self.era.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The epoch that is read.
    pub(crate) fn epoch(&self) -> u64 {
        self.era().epoch
    }

    fn with<T>(
        &self,
        folder: impl FnOnce() -> Option<Arc<Folder>>,
        act: impl FnOnce(&Claim) -> Option<T>,
    ) -> Option<T> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if file.is_none() {
            *file = Claim::open_or_create(folder()?.own(), "positions").ok();
        }
        act(file.as_ref()?)
    }

    /// Writes down where this rank is.
    pub(crate) fn move_to(&self, tick: u64, folder: impl FnOnce() -> Option<Arc<Folder>>) {
        let Some(peers) = self.peers else {
            return;
        };
        let era = self.era();
        let batches = tick.saturating_sub(era.first);
        let words = [peers.run, era.epoch, batches, seconds()].map(u64::to_le_bytes);
        let at = peers.rank.saturating_mul(POSITION_BYTES as u64);
        // Best effort: without it others see this rank where it was.
        let _written = self.with(folder, |file| file.write(at, &words.concat()).ok());
    }

    /// Where the rank of this machine is that is farthest behind, as far as is known, in ticks of this one. Who is in an
    /// earlier epoch needs all of this one; who is in a later one keeps nobody.
    pub(crate) fn slowest(&self, now: u64, folder: impl FnOnce() -> Option<Arc<Folder>>) -> u64 {
        let Some(peers) = self.peers else {
            return now;
        };
        let most = usize::try_from(peers.ranks.min(4096)).unwrap_or(0) * POSITION_BYTES;
        let bytes = self.with(folder, |file| file.read(0, most).ok());
        let bytes = bytes.unwrap_or_default();
        let era = self.era();
        let at = seconds();
        let mut slowest = now;
        for (rank, position) in (0_u64..).zip(bytes.chunks_exact(POSITION_BYTES)) {
            let mut words = position.chunks_exact(8).map(|word| {
                word.first_chunk()
                    .map_or(0, |word| u64::from_le_bytes(*word))
            });
            let mut word = || words.next().unwrap_or(0);
            let (run, epoch, batches, moved) = (word(), word(), word(), word());
            // Of itself it knows better.
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
