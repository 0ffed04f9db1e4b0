//! Chooses and evicts shards to make space for another one, within the user's limit and on the disk.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::{Capacity, Counting, Page, Scheduler, Wanted, is_cached, lock};
use crate::error::ReaderError;
use crate::shard_cache::disk::{Present, Sizes};
use crate::shard_cache::folder::Evicted;
use crate::shard_cache::usage_file::View;
use shardmill_cache::{Resident, make_room};

/// A limit on the bytes in the folders: in all of them, or in those on one disk.
#[derive(Clone, Copy, Debug)]
struct Bound {
    bytes: u64,
    device: Option<u64>,
}

impl Capacity {
    /// Evicts shards until there is space within the limit and on the disk. Returns false if the shards that could be
    /// evicted are needed sooner.
    pub(super) fn make_room(
        &self,
        counting: &mut Counting,
        device: Option<u64>,
        pages: &[Page],
        wanted: Wanted,
        bytes: u64,
        scheduler: &impl Scheduler,
    ) -> Result<bool, ReaderError> {
        let mut bounds = Vec::with_capacity(2);
        if let Some(bytes) = self.limit {
            bounds.push(Bound {
                bytes,
                device: None,
            });
        }
        if let Some(device) = device {
            self.count(counting, pages, false, scheduler)?;
            let stale = counting.disks.entry(device).or_default().is_stale();
            if stale {
                self.measure(counting, device, pages)?;
            }
            let limit = counting.disks.entry(device).or_default().limit();
            bounds.extend(limit.map(|bytes| Bound {
                bytes,
                device: Some(device),
            }));
        }
        for bound in bounds {
            if !self.make_room_within(counting, bound, pages, wanted, bytes, scheduler)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn make_room_within(
        &self,
        counting: &mut Counting,
        bound: Bound,
        pages: &[Page],
        wanted: Wanted,
        bytes: u64,
        scheduler: &impl Scheduler,
    ) -> Result<bool, ReaderError> {
        let limit = bound.bytes;
        let is_within = |page: &Page| bound.device.is_none_or(|of| page.folder.device() == of);
        let mut used = self.count_within(counting, bound, pages, false, scheduler)?;
        if used.saturating_add(bytes) <= limit {
            return Ok(true);
        }
        let from = self.slowest(wanted.now);
        for exact in [false, true] {
            if exact {
                // Other processes may have freed space or added shards that can be evicted.
                if counting.views.values().all(|view| !view.stale) {
                    break;
                }
                used = self.count_within(counting, bound, pages, true, scheduler)?;
            }
            let places = pages.iter().filter(|page| is_within(page));
            let places: Vec<usize> = places.map(|page| page.place).collect();
            let mut residents = self.residents(counting, &places, scheduler);
            for resident in &mut residents {
                resident.pinned |= resident.shard == wanted.shard;
            }
            loop {
                if used.saturating_add(bytes) <= limit {
                    return Ok(true);
                }
                let leaving = if wanted.urgent {
                    let next = |shard| scheduler.next_use(shard, from);
                    make_room(&residents, used, limit, bytes, wanted.at, next)
                } else {
                    best_then(&residents, (used, limit, bytes), wanted.at, from, scheduler)
                };
                let Some(leaving) = leaving.filter(|leaving| !leaving.is_empty()) else {
                    break;
                };
                for shard in leaving {
                    let removed = self.evict(counting, shard, pages, scheduler)?;
                    let Some(at) = residents.iter().position(|found| found.shard == shard) else {
                        continue;
                    };
                    match removed {
                        Evicted::Gone => {
                            used = used.saturating_sub(residents.swap_remove(at).bytes);
                        }
                        Evicted::Absent => {
                            residents.swap_remove(at);
                        }
                        Evicted::Stays => {
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

    /// Returns the bytes that count towards a bound.
    fn count_within(
        &self,
        counting: &mut Counting,
        bound: Bound,
        pages: &[Page],
        exact: bool,
        scheduler: &impl Scheduler,
    ) -> Result<u64, ReaderError> {
        let used = self.count(counting, pages, exact, scheduler)?;
        let Some(device) = bound.device else {
            return Ok(used);
        };
        let pages = pages.iter().filter(|page| page.folder.device() == device);
        let views = pages.filter_map(|page| counting.views.get(&page.place));
        Ok(views.map(View::used).fold(0, u64::saturating_add))
    }

    /// Returns the device of a folder if the disk is full or has little free space.
    pub(super) fn tight_device(
        &self,
        counting: &mut Counting,
        place: usize,
    ) -> Result<Option<u64>, ReaderError> {
        let Some(folder) = self.folder(place)? else {
            return Ok(None);
        };
        let (device, space) = (folder.device(), folder.space()?);
        let disk = counting.disks.entry(device).or_default();
        if !disk.has_sizes() {
            let block = space.map_or(1, |space| space.block);
            disk.set_sizes(self.sizes_on(device, block)?);
        }
        let tight = disk.may_fill(space, self.in_flight);
        if tight {
            self.tight.store(true, Relaxed);
        }
        Ok(tight.then_some(device))
    }

    /// Returns the space that the shards of all streams would take on a disk.
    fn sizes_on(&self, device: u64, block: u64) -> Result<Sizes, ReaderError> {
        let mut sizes = Sizes::default();
        for (place, stream) in self.catalog.streams().iter().enumerate() {
            if is_cached(stream)
                && let Some(folder) = self.folder(place)?
                && folder.device() == device
            {
                sizes.add(Sizes::of(&stream.shards, stream.keep_zip, block));
            }
        }
        Ok(sizes)
    }

    /// Measures the content of the folders on a disk, and its free space.
    fn measure(
        &self,
        counting: &mut Counting,
        device: u64,
        pages: &[Page],
    ) -> Result<Present, ReaderError> {
        let begun = Instant::now();
        let mut present = Present::default();
        let mut space = None;
        for page in pages.iter().filter(|page| page.folder.device() == device) {
            if let Some(stream) = self.catalog.streams().get(page.place) {
                present.add(&page.folder, &stream.shards, stream.keep_zip)?;
            }
        }
        // Free space is measured last: a concurrent write makes the limit briefly too small, never too large.
        if let Some(page) = pages.iter().find(|page| page.folder.device() == device) {
            space = page.folder.space()?;
        }
        let disk = counting.disks.entry(device).or_default();
        disk.measured(present, space, begun);
        Ok(present)
    }

    /// Records that the disk was full during a write for a shard, and evicts shards to make space for it. `more`:
    /// bytes that are not reserved yet. `again`: the write failed although there seemed to be space. Returns whether
    /// to retry the write.
    pub(crate) fn disk_full(
        &self,
        wanted: Wanted,
        more: u64,
        again: bool,
        scheduler: &impl Scheduler,
    ) -> Result<bool, ReaderError> {
        let Some((place, _, entry)) = self.find(wanted.shard) else {
            return Ok(false);
        };
        let bytes = self.weight(place, entry);
        self.tight.store(true, Relaxed);
        let mut counting = lock(&self.counting);
        self.tight_device(&mut counting, place)?;
        let pages = self.open_capacity(None, scheduler)?;
        let Some(page) = pages.iter().find(|page| page.place == place) else {
            return Ok(false);
        };
        let device = page.folder.device();
        self.count(&mut counting, &pages, true, scheduler)?;
        let present = self.measure(&mut counting, device, &pages)?;
        let disk = counting.disks.entry(device).or_default();
        disk.refuse(present, bytes, again);
        self.make_room(&mut counting, Some(device), &pages, wanted, more, scheduler)
    }
}

/// Chooses what to evict for a prefetched shard. The choice is what Belady's algorithm would evict when the shard is
/// needed (`at`). Returns `None` if one of those is pinned or needed until then: evicting another shard now would cost
/// a fetch.
fn best_then(
    residents: &[Resident],
    (used, limit, bytes): (u64, u64, u64),
    at: u64,
    from: u64,
    scheduler: &impl Scheduler,
) -> Option<Vec<usize>> {
    let is_free = |resident: &Resident| {
        let next = scheduler.next_use(resident.shard, from);
        !resident.pinned && next.is_none_or(|next| next > at)
    };
    // A shard that is in use now may be the best one to evict at `at`.
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
        .map(|resident| resident.shard)
        .collect();
    let next = |shard| match scheduler.next_use(shard, at) {
        // Among shards that are not needed again, those that can be evicted now come first.
        None if busy.contains(&shard) => Some(u64::MAX - 1),
        next => next,
    };
    make_room(&all, used, limit, bytes, at, next)
        .filter(|leaving| leaving.iter().all(|shard| !busy.contains(shard)))
}
