//! Counts used space and reserves space for blobs, with eviction if necessary.
//!
//! Other processes change the folders too. Every count and reservation therefore holds a lock file that all processes
//! of the machine share. For a few folders, a process holds all lock files; for many, it holds that of the first one,
//! and each other one while it changes that folder, so that it has few files open. Processes that share only some of many
//! folders may then exceed the limit by one blob each.

mod room;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use shardmill_core::{Diagnostic as _, ErrorKind, lock};
use shardmill_storage::{Claim, StorageError};

use crate::blobs::{Blob, BlobCatalog, BlobResult, BlobSet};
use crate::disk::Disk;
use crate::error::CacheError;
use crate::folder::{Claimed, Evicted, Folder, Listing};
use crate::marker::{Marker, PostExitHold};
use crate::options::CacheOptions;
use crate::policy::Resident;
use crate::positions::{self, Positions};
use crate::publish::wait_for_lock;
use crate::usage_file::{View, note};

/// What capacity needs to know about blobs in this process.
pub(crate) trait Scheduler {
    /// Returns whether this process fetches or reads the blob now.
    fn is_busy(&self, blob: usize) -> bool;
    /// Returns the next tick at which the blob is needed, from `tick` on.
    fn next_use(&self, blob: usize, tick: u64) -> Option<u64>;
    /// Forgets a blob that is about to be evicted; false if it is in use.
    fn evict(&self, blob: usize) -> bool;
    fn is_stopped(&self) -> bool;
}

/// A blob that needs space, and how urgently.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) blob: usize,
    /// The tick at which it is needed.
    pub(crate) at: u64,
    /// The current tick of this rank.
    pub(crate) now: u64,
    /// Whether a caller waits for the blob, or would have to wait if the fetch began later.
    pub(crate) urgent: bool,
}

/// The result of a reservation.
#[derive(Debug)]
pub(crate) enum Reserved {
    /// Space is reserved: the blob may be fetched and written. The marker is the reservation.
    Held(Marker),
    /// The blob is on disk by now.
    Present,
    /// Another process fetches the blob.
    Busy { pid: Option<u32> },
    /// There is no space: the blobs that could be evicted are needed sooner.
    NoRoom,
}

/// The folders of all sets, and the reservations in them.
pub(crate) struct Capacity<C: BlobCatalog> {
    blobs: Arc<C>,
    options: CacheOptions,
    /// Whether a disk was full or had little free space.
    tight: AtomicBool,
    /// The positions of this rank and of its peers in the run.
    pub(crate) positions: Positions,
    /// Bytes that are always used: indexes and positions.
    pub(crate) base: u64,
    /// The smallest possible limit.
    pub(crate) minimum: u64,
    /// The folder of each set, opened on first use.
    folders: Mutex<Vec<Option<Arc<Folder>>>>,
    /// Serializes the reservations of this process.
    counting: Mutex<Counting>,
    /// Bytes in the folders at the last count.
    used: AtomicU64,
    /// Blobs that this process evicted to make space.
    evictions: AtomicU64,
}

#[derive(Debug, Default)]
struct Counting {
    /// Sets whose folders were cleaned.
    cleaned: BTreeSet<usize>,
    /// The known content of the folders, by set.
    views: BTreeMap<usize, View>,
    /// The known state of the disks, by device.
    disks: BTreeMap<u64, Disk>,
}

/// The most folders whose lock files are held at the same time.
const MAX_LOCKED: usize = 8;

/// A folder whose lock file is held, or is taken when the folder changes.
struct LockedFolder {
    /// The number of the set.
    set: usize,
    folder: Arc<Folder>,
    claim: Option<Claim>,
}

/// The folders while this process holds their lock files.
struct Session<'a, C: BlobCatalog, S> {
    capacity: &'a Capacity<C>,
    scheduler: &'a S,
    counting: MutexGuard<'a, Counting>,
    folders: Vec<LockedFolder>,
}

/// Returns the blobs of a set.
fn blobs_of<'a, C: BlobCatalog>(blobs: &'a C, set: BlobSet<'a>) -> impl Iterator<Item = Blob<'a>> {
    (set.first..set.first + set.blobs).filter_map(|blob| blobs.blob(blob))
}

/// Returns the sets that have blobs in the cache, with their numbers.
fn cached_sets<C: BlobCatalog>(blobs: &C) -> impl Iterator<Item = (usize, BlobSet<'_>)> {
    let is_cached =
        |set: &BlobSet<'_>| set.is_remote || blobs_of(blobs, *set).any(|blob| blob.is_kept);
    let sets = blobs.sets().enumerate();
    sets.filter(move |(_, set)| is_cached(set))
}

impl<C: BlobCatalog> Capacity<C> {
    pub(crate) fn new(blobs: Arc<C>, options: &CacheOptions) -> BlobResult<Self, C::Error> {
        let mut base = options.peers.map_or(0, positions::bytes);
        let mut largest = 0;
        let cached: Vec<(usize, BlobSet<'_>)> = cached_sets(&*blobs).collect();
        for (index, (number, set)) in cached.iter().enumerate() {
            for (_, other) in cached.iter().skip(index + 1) {
                if set.local.is_same(other.local)? {
                    return Err(CacheError::OneFolder {
                        path: set.local.path().to_owned(),
                    });
                }
            }
            if set.is_remote {
                base = base.saturating_add(blobs.index_bytes(*number));
            }
            let packed = blobs_of(&*blobs, *set).filter(|blob| blob.data.packed.is_some());
            let heaviest = packed.map(|blob| blob.cached_bytes()).max();
            largest = largest.max(heaviest.unwrap_or(0));
        }
        // Parts of uncompressed blobs can be read individually; compressed blobs need space as a whole.
        let minimum = if largest > 0 {
            base.saturating_add(largest)
        } else {
            0
        };
        if let Some(limit) = options.limit.filter(|limit| *limit < minimum) {
            return Err(CacheError::TooSmall { limit, minimum });
        }
        let mut folders = Vec::new();
        folders.resize_with(blobs.sets().len(), || None);
        Ok(Self {
            options: options.clone(),
            tight: AtomicBool::new(false),
            positions: Positions::new(options.peers),
            base,
            minimum,
            folders: Mutex::new(folders),
            counting: Mutex::default(),
            used: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            blobs,
        })
    }

    /// Returns a blob by its number in its set.
    fn blob_in(&self, set: usize, number: usize) -> Option<Blob<'_>> {
        let set = self.set(set).filter(|set| number < set.blobs)?;
        self.blobs.blob(set.first + number)
    }

    fn set(&self, set: usize) -> Option<BlobSet<'_>> {
        self.blobs.sets().nth(set)
    }

    /// Returns the folder of a set; `None` for a set that is read in place and is not writable.
    pub(crate) fn folder(&self, set: usize) -> Result<Option<Arc<Folder>>, StorageError> {
        let mut folders = lock(&self.folders);
        let (Some(slot), Some(found)) = (folders.get_mut(set), self.set(set)) else {
            return Ok(None);
        };
        if let Some(folder) = slot {
            return Ok(Some(Arc::clone(folder)));
        }
        match Folder::open(found.local, found.digest, self.options.locks) {
            Ok(folder) => Ok(Some(Arc::clone(slot.insert(Arc::new(folder))))),
            Err(error) if !found.is_remote && error.kind() == ErrorKind::Permission => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the numbers of the sets that have blobs in the cache, and the sets.
    fn cached_sets(&self) -> impl Iterator<Item = (usize, BlobSet<'_>)> {
        cached_sets(&*self.blobs)
    }

    /// Returns whether blobs may have to be evicted: there is a limit, or a disk has little space.
    pub(crate) fn is_limited(&self) -> bool {
        self.options.limit.is_some() || self.tight.load(Relaxed)
    }

    /// Returns the bytes in the folders at the last count, for a cache with a limit.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Returns the number of blobs that this process evicted to make space.
    pub(crate) fn evictions(&self) -> u64 {
        self.evictions.load(Relaxed)
    }

    /// Publishes the position of this rank.
    pub(crate) fn move_to(&self, tick: u64) {
        self.positions.move_to(tick, || self.positions_folder());
    }

    fn slowest(&self, now: u64) -> u64 {
        self.positions.slowest(now, || self.positions_folder())
    }

    /// Returns the folder in which the ranks publish their positions.
    fn positions_folder(&self) -> Option<Arc<Folder>> {
        let (set, _) = self.cached_sets().next()?;
        self.folder(set).ok().flatten()
    }

    /// Holds the counting lock, as a reservation does.
    #[cfg(test)]
    pub(crate) fn count_for_test(&self) -> impl Drop + '_ {
        lock(&self.counting)
    }

    /// Takes the lock files of all folders, or of one set's folder; for many folders only the first one.
    fn session<'a, S: Scheduler>(
        &'a self,
        counting: MutexGuard<'a, Counting>,
        only: Option<usize>,
        scheduler: &'a S,
    ) -> BlobResult<Session<'a, C, S>, C::Error> {
        const MAX_PAUSE: Duration = Duration::from_millis(50);

        let mut folders = Vec::new();
        for (set, _) in self.cached_sets() {
            if only.is_none_or(|only| only == set)
                && let Some(folder) = self.folder(set)?
                && !folder.is_read_only
            {
                folders.push((set, folder));
            }
        }
        let many = folders.len() > MAX_LOCKED;
        if many {
            // Every process waits only for the locks of later folders than those that it holds, so none waits for itself.
            folders.sort_by_key(|(_, folder)| folder.order);
        }
        let start = Instant::now();
        let mut pause = Duration::from_micros(100);
        loop {
            // Take all or none, so that two processes with the same folders in different order cannot deadlock.
            let mut locked = Vec::with_capacity(folders.len());
            let mut busy = None;
            for (set, folder) in &folders {
                let is_later = many && !locked.is_empty();
                let claim = if is_later { None } else { folder.capacity()? };
                if claim.is_none() && !is_later {
                    busy = Some(folder);
                    break;
                }
                locked.push(LockedFolder {
                    set: *set,
                    folder: Arc::clone(folder),
                    claim,
                });
            }
            let Some(folder) = busy else {
                return Ok(Session {
                    capacity: self,
                    scheduler,
                    counting,
                    folders: locked,
                });
            };
            drop(locked);
            if scheduler.is_stopped() {
                return Err(CacheError::Stopped);
            }
            if start.elapsed() >= self.options.timeout {
                return Err(CacheError::Waited {
                    path: folder.own.path_of("lock"),
                    seconds: self.options.timeout.as_secs(),
                    what: "counts what is in the cache",
                    pid: None,
                });
            }
            thread::sleep(pause);
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// Reserves space for a blob, evicting others if necessary.
    pub(crate) fn reserve(
        &self,
        wanted: Wanted,
        scheduler: &impl Scheduler,
    ) -> BlobResult<Reserved, C::Error> {
        let Some(entry) = self.blobs.entry(wanted.blob) else {
            return Ok(Reserved::NoRoom);
        };
        let (set, number, blob) = (entry.set_number, entry.number, entry.blob);
        let mut counting = lock(&self.counting);
        let device = self.tight_device(&mut counting, set)?;
        let only = (self.options.limit.is_none() && device.is_none()).then_some(set);
        let mut session = self.session(counting, only, scheduler)?;
        let Some(folder) = session.folder(set) else {
            return Ok(Reserved::NoRoom);
        };
        // A blob with a marker is already counted.
        let is_counted = folder.has(number)?;
        let more = if is_counted { 0 } else { blob.cached_bytes() };
        if !session.make_room(device, wanted, more)? {
            return Ok(Reserved::NoRoom);
        }
        if is_counted {
            return Ok(claim(&folder, number, blob)?);
        }
        session.record(set, number, more, 0)?;
        let reserved = claim(&folder, number, blob);
        if matches!(reserved, Ok(Reserved::Held(_))) {
            self.used.fetch_add(more, Relaxed);
        } else {
            session.record(set, number, 0, more)?;
        }
        Ok(reserved?)
    }

    /// Checks that the limit has space for files that are used together.
    pub(crate) fn check_room(&self, blobs: &[usize]) -> BlobResult<(), C::Error> {
        let Some(limit) = self.options.limit else {
            return Ok(());
        };
        let found = blobs.iter().filter_map(|blob| self.blobs.blob(*blob));
        let minimum = found
            .filter(|blob| blob.needs_file && blob.is_kept)
            .fold(self.base, |sum, blob| {
                sum.saturating_add(blob.cached_bytes())
            });
        if limit < minimum {
            return Err(CacheError::TooSmall { limit, minimum });
        }
        Ok(())
    }

    /// Removes a marker that is no longer needed, and the files written for it.
    pub(crate) fn discard(
        &self,
        blob: usize,
        marker: Marker,
        scheduler: &impl Scheduler,
    ) -> BlobResult<(), C::Error> {
        self.remove(blob, scheduler, |folder, _, blob| {
            folder.discard(marker, blob)
        })
        .map(drop)
    }

    /// Removes a damaged blob.
    pub(crate) fn drop_damaged(
        &self,
        blob: usize,
        scheduler: &impl Scheduler,
    ) -> BlobResult<Evicted, C::Error> {
        self.remove(blob, scheduler, |folder, number, blob| {
            folder.evict(number, blob)
        })
    }

    fn remove(
        &self,
        blob: usize,
        scheduler: &impl Scheduler,
        remove: impl FnOnce(&Folder, usize, Blob<'_>) -> Result<Evicted, StorageError>,
    ) -> BlobResult<Evicted, C::Error> {
        let Some(entry) = self.blobs.entry(blob) else {
            return Ok(Evicted::Absent);
        };
        let (set, number, blob) = (entry.set_number, entry.number, entry.blob);
        let mut session = match self.session(lock(&self.counting), Some(set), scheduler) {
            Ok(session) => session,
            Err(CacheError::Storage(error)) => return Err(error.into()),
            // The marker is removed without the lock; the next count corrects the total.
            Err(_) => {
                return match self.folder(set)? {
                    Some(folder) => Ok(remove(&folder, number, blob)?),
                    None => Ok(Evicted::Absent),
                };
            }
        };
        let Some(folder) = session.folder(set) else {
            return Ok(Evicted::Absent);
        };
        let removed = remove(&folder, number, blob)?;
        if removed == Evicted::Removed {
            session.record(set, number, 0, blob.cached_bytes())?;
        }
        Ok(removed)
    }

    /// Prepares a folder for use: removes what dead processes left, and evicts down to a lowered limit.
    pub(crate) fn begin(
        &self,
        set: usize,
        now: u64,
        scheduler: &impl Scheduler,
    ) -> BlobResult<(), C::Error> {
        let counting = lock(&self.counting);
        if counting.cleaned.contains(&set) {
            return Ok(());
        }
        let only = self.options.limit.is_none().then_some(set);
        let mut session = self.session(counting, only, scheduler)?;
        let Some(limit) = self.options.limit else {
            if let Some(folder) = session.folder(set) {
                let listing = folder.list()?;
                session.clean(set, &folder, &listing)?;
            }
            return Ok(());
        };
        let used = session.count(true)?;
        let mut over = used.saturating_sub(limit);
        if over > 0 {
            let mut residents = session.residents(None);
            let from = self.slowest(now);
            let next = |found: &Resident| scheduler.next_use(found.blob, from);
            residents.sort_by_cached_key(|found| next(found).unwrap_or(u64::MAX));
            while let Some(last) = residents.pop().filter(|_| over > 0) {
                if !last.pinned && session.evict(last.blob)? == Evicted::Removed {
                    over = over.saturating_sub(last.bytes);
                }
            }
        }
        Ok(())
    }
}

impl<C: BlobCatalog, S: Scheduler> Session<'_, C, S> {
    /// Returns the folder of a set of this session.
    fn folder(&self, set: usize) -> Option<Arc<Folder>> {
        let locked = self.folders.iter().find(|locked| locked.set == set)?;
        Some(Arc::clone(&locked.folder))
    }

    /// Records in a usage file that a marker is about to be created (`more` bytes), or was removed (`less` bytes).
    fn record(
        &mut self,
        set: usize,
        number: usize,
        more: u64,
        less: u64,
    ) -> Result<(), StorageError> {
        let Some(locked) = self.folders.iter().find(|locked| locked.set == set) else {
            return Ok(());
        };
        let Some(view) = self.counting.views.get_mut(&set) else {
            return locked.with_claim(|claim| note(claim, more, less));
        };
        locked.with_claim(|claim| {
            // The view first takes in the changes of other processes.
            view.is_usable(claim, false)?;
            if more > 0 {
                view.markers.insert(number);
            } else {
                view.markers.remove(&number);
            }
            view.change(claim, more, less)
        })
    }

    /// Returns the bytes in the folders. `exact` lists the markers again if other
    /// processes changed them.
    fn count(&mut self, exact: bool) -> Result<u64, StorageError> {
        let mut used = self.capacity.base;
        for index in 0..self.folders.len() {
            let Some(locked) = self.folders.get(index) else {
                break;
            };
            let set = locked.set;
            let is_usable = match self.counting.views.get_mut(&set) {
                Some(view) => locked.with_claim(|claim| view.is_usable(claim, exact))?,
                None => false,
            };
            if !is_usable {
                self.list(index)?;
            }
            let view = self.counting.views.get(&set);
            used = used.saturating_add(view.map_or(0, View::used));
        }
        self.capacity.used.store(used, Relaxed);
        Ok(used)
    }

    /// Lists the markers of a folder.
    fn list(&mut self, index: usize) -> Result<(), StorageError> {
        let started = Instant::now();
        let Some(locked) = self.folders.get(index) else {
            return Ok(());
        };
        let (set, folder) = (locked.set, Arc::clone(&locked.folder));
        let later = match locked.claim {
            Some(_) => None,
            None => Some(wait_for_lock(&folder.own)?),
        };
        let mut listing = folder.list()?;
        let first = !self.counting.cleaned.contains(&set);
        let mut used = 0_u64;
        if first || !listing.temps.is_empty() {
            used = self.clean(set, &folder, &listing)?;
            if first {
                listing = folder.list()?;
            }
        }
        let mut markers = BTreeSet::new();
        for number in listing.markers {
            if let Some(blob) = self.capacity.blob_in(set, number) {
                used = used.saturating_add(blob.cached_bytes());
                markers.insert(number);
            }
        }
        let claim = self
            .folders
            .get(index)
            .and_then(|locked| locked.claim.as_ref());
        if let Some(claim) = later.as_ref().or(claim) {
            let view = View::listed(claim, markers, used, started)?;
            self.counting.views.insert(set, view);
        }
        Ok(())
    }

    /// Returns the known blobs in the folders of this session: in all of them, or in those on one device.
    fn residents(&self, device: Option<u64>) -> Vec<Resident> {
        let mut residents = Vec::new();
        let folders = self.folders.iter();
        for locked in folders.filter(|locked| locked.is_on(device)) {
            let (Some(view), Some(set)) = (
                self.counting.views.get(&locked.set),
                self.capacity.set(locked.set),
            ) else {
                continue;
            };
            for number in &view.markers {
                let blob = set.first + number;
                if let Some(found) = self.capacity.blobs.blob(blob) {
                    residents.push(Resident {
                        blob,
                        bytes: found.cached_bytes(),
                        pinned: self.scheduler.is_busy(blob),
                    });
                }
            }
        }
        residents
    }

    fn evict(&mut self, number: usize) -> Result<Evicted, StorageError> {
        let Some(entry) = self.capacity.blobs.entry(number) else {
            return Ok(Evicted::Kept);
        };
        let (set, in_set, blob) = (entry.set_number, entry.number, entry.blob);
        let Some(folder) = self.folder(set) else {
            return Ok(Evicted::Kept);
        };
        let hold = PostExitHold {
            owner: self.capacity.options.owner,
            epoch: self.capacity.positions.epoch(),
        };
        if blob.needs_file && folder.is_left_in_use(in_set, hold)? {
            return Ok(Evicted::Kept);
        }
        if !self.scheduler.evict(number) {
            return Ok(Evicted::Kept);
        }
        let removed = folder.evict(in_set, blob)?;
        let bytes = match removed {
            Evicted::Kept => return Ok(removed),
            Evicted::Removed => {
                self.capacity.evictions.fetch_add(1, Relaxed);
                blob.cached_bytes()
            }
            // The process that removed it has already updated the usage file.
            Evicted::Absent => 0,
        };
        self.record(set, in_set, 0, bytes)?;
        self.capacity.used.fetch_sub(bytes, Relaxed);
        Ok(removed)
    }

    /// Removes what dead processes left: temporary files and, the first time in a folder, markers without a blob.
    /// Returns the bytes of temporary files that may be in use and have no marker.
    fn clean(
        &mut self,
        set: usize,
        folder: &Folder,
        listing: &Listing,
    ) -> Result<u64, StorageError> {
        let first = self.counting.cleaned.insert(set);
        let begin = self.capacity.set(set).map_or(0, |set| set.first);
        folder.clean(
            listing,
            |number| self.capacity.blob_in(set, number),
            first,
            |number| self.scheduler.is_busy(begin + number),
        )
    }
}

impl LockedFolder {
    /// Does something while the lock file is held.
    fn with_claim<T>(
        &self,
        act: impl FnOnce(&Claim) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        match &self.claim {
            Some(claim) => act(claim),
            None => act(&wait_for_lock(&self.folder.own)?),
        }
    }

    /// Returns whether the folder is on a device; `None` stands for any.
    fn is_on(&self, device: Option<u64>) -> bool {
        device.is_none_or(|device| self.folder.device == device)
    }
}

/// Creates the marker of a blob.
fn claim(folder: &Folder, number: usize, blob: Blob<'_>) -> Result<Reserved, StorageError> {
    let marker = match folder.claim(number)? {
        Claimed::Busy { pid } => return Ok(Reserved::Busy { pid }),
        Claimed::Held(marker) => marker,
    };
    if folder.files(blob, Some(&marker))?.is_some() {
        folder.give_up(&marker)?;
        return Ok(Reserved::Present);
    }
    Ok(Reserved::Held(marker.park(&folder.own)))
}
