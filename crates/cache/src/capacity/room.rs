//! Chooses and evicts blobs to make space for another one, within the user's limit and on the disk.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use shardmill_core::lock;
use shardmill_storage::StorageError;

use super::{Capacity, Counting, Scheduler, Session, Wanted, blobs_of};
use crate::blobs::{BlobCatalog, BlobResult};
use crate::disk::{Present, Sizes};
use crate::folder::Evicted;
use crate::policy::{Resident, make_room};
use crate::usage_file::View;

impl<C: BlobCatalog, S: Scheduler> Session<'_, C, S> {
    /// Evicts blobs until there is space within the limit and on the disk. Returns false if the blobs that could be
    /// evicted are needed sooner.
    pub(super) fn make_room(
        &mut self,
        device: Option<u64>,
        wanted: Wanted,
        bytes: u64,
    ) -> Result<bool, StorageError> {
        if let Some(limit) = self.capacity.options.limit
            && !self.make_room_within(limit, None, wanted, bytes)?
        {
            return Ok(false);
        }
        let Some(device) = device else {
            return Ok(true);
        };
        self.count(false)?;
        if self.counting.disks.entry(device).or_default().is_stale() {
            self.measure(device)?;
        }
        match self.counting.disks.entry(device).or_default().limit() {
            Some(limit) => self.make_room_within(limit, Some(device), wanted, bytes),
            None => Ok(true),
        }
    }

    /// Makes space within a limit on the bytes in the folders: in all of them, or in those on one device.
    fn make_room_within(
        &mut self,
        limit: u64,
        device: Option<u64>,
        wanted: Wanted,
        bytes: u64,
    ) -> Result<bool, StorageError> {
        let mut used = self.count_on(device, false)?;
        if used.saturating_add(bytes) <= limit {
            return Ok(true);
        }
        let from = self.capacity.slowest(wanted.now);
        for exact in [false, true] {
            if exact {
                // Other processes may have freed space or added blobs that can be evicted.
                if self.counting.views.values().all(|view| !view.stale) {
                    break;
                }
                used = self.count_on(device, true)?;
            }
            let mut residents = self.residents(device);
            for resident in &mut residents {
                resident.pinned |= resident.blob == wanted.blob;
            }
            loop {
                if used.saturating_add(bytes) <= limit {
                    return Ok(true);
                }
                let leaving = if wanted.urgent {
                    let next = |blob| self.scheduler.next_use(blob, from);
                    make_room(&residents, used, limit, bytes, wanted.at, next)
                } else {
                    let sizes = (used, limit, bytes);
                    best_then(&residents, sizes, wanted.at, from, self.scheduler)
                };
                let Some(leaving) = leaving.filter(|leaving| !leaving.is_empty()) else {
                    break;
                };
                for blob in leaving {
                    let removed = self.evict(blob)?;
                    let Some(at) = residents.iter().position(|found| found.blob == blob) else {
                        continue;
                    };
                    match removed {
                        Evicted::Removed => {
                            used = used.saturating_sub(residents.swap_remove(at).bytes);
                        }
                        Evicted::Absent => {
                            residents.swap_remove(at);
                        }
                        Evicted::Kept => {
                            if let Some(resident) = residents.get_mut(at) {
                                resident.pinned = true;
                            }
                        }
                    }
                }
            }
        }
        Ok(false)
    }

    /// Returns the bytes in all folders, or in those on one device.
    fn count_on(&mut self, device: Option<u64>, exact: bool) -> Result<u64, StorageError> {
        let used = self.count(exact)?;
        if device.is_none() {
            return Ok(used);
        }
        let folders = self.folders.iter().filter(|locked| locked.is_on(device));
        let views = folders.filter_map(|locked| self.counting.views.get(&locked.set));
        Ok(views.map(View::used).fold(0, u64::saturating_add))
    }

    /// Measures the content of the folders on a disk, and its free space.
    fn measure(&mut self, device: u64) -> Result<Present, StorageError> {
        let started = Instant::now();
        let mut present = Present::default();
        let folders = || {
            self.folders
                .iter()
                .filter(|locked| locked.is_on(Some(device)))
        };
        for locked in folders() {
            present.add(&locked.folder, |number| {
                self.capacity.blob_in(locked.set, number)
            })?;
        }
        // Free space is measured last: a concurrent write makes the limit briefly too small, never too large.
        let space = match folders().next() {
            Some(locked) => locked.folder.space()?,
            None => None,
        };
        let disk = self.counting.disks.entry(device).or_default();
        disk.measured(present, space, started);
        Ok(present)
    }
}

impl<C: BlobCatalog> Capacity<C> {
    /// Returns the device of a folder if the disk is full or has little free space.
    pub(super) fn tight_device(
        &self,
        counting: &mut Counting,
        set: usize,
    ) -> Result<Option<u64>, StorageError> {
        let Some(folder) = self.folder(set)? else {
            return Ok(None);
        };
        let (device, space) = (folder.device, folder.space()?);
        let disk = counting.disks.entry(device).or_default();
        if disk.sizes.is_none() {
            let block = space.map_or(1, |space| space.block);
            disk.sizes = Some(self.sizes_on(device, block)?);
        }
        let tight = disk.may_fill(space, self.options.in_flight);
        if tight {
            self.tight.store(true, Relaxed);
        }
        Ok(tight.then_some(device))
    }

    /// Returns the space that the blobs of all sets would take on a disk.
    fn sizes_on(&self, device: u64, block: u64) -> Result<Sizes, StorageError> {
        let mut sizes = Sizes::default();
        for (number, set) in self.cached_sets() {
            if let Some(folder) = self.folder(number)?
                && folder.device == device
            {
                sizes.add(blobs_of(&*self.blobs, set), block);
            }
        }
        Ok(sizes)
    }

    /// Records that the disk was full during a write for a blob, and evicts blobs to make space for it. `more`: bytes
    /// that are not reserved yet. `again`: the write failed although there seemed to be space. Returns whether to
    /// retry the write.
    pub(crate) fn disk_full(
        &self,
        wanted: Wanted,
        more: u64,
        again: bool,
        scheduler: &impl Scheduler,
    ) -> BlobResult<bool, C::Error> {
        let Some(entry) = self.blobs.entry(wanted.blob) else {
            return Ok(false);
        };
        let set = entry.set_number;
        self.tight.store(true, Relaxed);
        let mut counting = lock(&self.counting);
        self.tight_device(&mut counting, set)?;
        let mut session = self.session(counting, None, scheduler)?;
        let Some(folder) = session.folder(set) else {
            return Ok(false);
        };
        let device = folder.device;
        session.count(true)?;
        let present = session.measure(device)?;
        let disk = session.counting.disks.entry(device).or_default();
        disk.refuse(present, entry.blob.cached_bytes(), again);
        Ok(session.make_room(Some(device), wanted, more)?)
    }
}

/// Chooses what to evict for a prefetched blob. The choice is what Belady's algorithm would evict when the blob is
/// needed (`at`). Returns `None` if one of those is pinned or needed until then: evicting another blob now would cost
/// a fetch.
fn best_then(
    residents: &[Resident],
    (used, limit, bytes): (u64, u64, u64),
    at: u64,
    from: u64,
    scheduler: &impl Scheduler,
) -> Option<Vec<usize>> {
    let is_free = |resident: &Resident| {
        let next = scheduler.next_use(resident.blob, from);
        !resident.pinned && next.is_none_or(|next| next > at)
    };
    // A blob that is in use now may be the best one to evict at `at`.
    let all: Vec<Resident> = residents
        .iter()
        .map(|resident| Resident {
            pinned: false,
            ..*resident
        })
        .collect();
    let busy: BTreeSet<usize> = residents
        .iter()
        .filter(|resident| !is_free(resident))
        .map(|resident| resident.blob)
        .collect();
    let next = |blob| match scheduler.next_use(blob, at) {
        // Among blobs that are not needed again, those that can be evicted now come first.
        None if busy.contains(&blob) => Some(u64::MAX - 1),
        next => next,
    };
    make_room(&all, used, limit, bytes, at, next)
        .filter(|leaving| leaving.iter().all(|blob| !busy.contains(blob)))
}
