//! Counts used space and reserves space for shards, with eviction if necessary.
//!
//! Other processes change the folders too. Every count and reservation therefore holds a lock file that all processes
//! of the machine share.

mod room;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use shardmill_core::{Diagnostic as _, ErrorKind};
use shardmill_storage::Claim;

use crate::error::ReaderError;
use crate::shard_cache::CacheOptions;
use crate::shard_cache::disk::Disk;
use crate::shard_cache::error::CacheError;
use crate::shard_cache::folder::{Claimed, Evicted, Folder, Listing, Marker, PostExitHold, weight};
use crate::shard_cache::positions::{self, Positions};
use crate::shard_cache::usage_file::{View, note};
use shardmill_cache::Resident;
use shardmill_dataset::Entry;
use shardmill_dataset::{Catalog, Stream};

/// What capacity needs to know about shards in this process.
pub(crate) trait Scheduler {
    /// Returns whether this process fetches or reads the shard now.
    fn is_busy(&self, shard: usize) -> bool;
    /// Returns the next tick at which the shard is needed, from `tick` on.
    fn next_use(&self, shard: usize, tick: u64) -> Option<u64>;
    /// Forgets a shard that is about to be evicted; false if it is in use.
    fn let_go(&self, shard: usize) -> bool;
    fn is_stopped(&self) -> bool;
}

/// A shard that needs space, and how urgently.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) shard: usize,
    /// The tick at which it is needed.
    pub(crate) at: u64,
    /// The current tick of this rank.
    pub(crate) now: u64,
    /// Whether a caller waits for the shard, or would have to wait if the fetch began later.
    pub(crate) urgent: bool,
}

/// The result of a reservation.
#[derive(Debug)]
pub(crate) enum Reserved {
    /// Space is reserved: the shard may be fetched and written. The marker is the reservation.
    Held(Marker),
    /// The shard is on disk by now.
    Here,
    /// Another process fetches the shard.
    Busy { pid: Option<u32> },
    /// There is no space: the shards that could be evicted are needed sooner.
    NoRoom,
}

/// The folders of all streams, and the reservations in them.
#[derive(Debug)]
pub(crate) struct Capacity {
    catalog: Arc<Catalog>,
    limit: Option<u64>,
    in_flight: u64,
    timeout: Duration,
    locks: bool,
    /// Whether a disk was full or had little free space.
    tight: AtomicBool,
    /// The owner for which this process reads; see [`CacheOptions::owner`].
    owner: u64,
    /// The positions of this rank and of its peers in the run.
    positions: Positions,
    /// Bytes that are always used: indexes and positions.
    base: u64,
    /// The smallest possible limit.
    minimum: u64,
    /// The folder of each stream, opened on first use.
    folders: Mutex<Vec<Option<Arc<Folder>>>>,
    /// Serializes the reservations of this process.
    counting: Mutex<Counting>,
    /// Bytes in the folders at the last count.
    used: AtomicU64,
    /// Shards that this process evicted to make space.
    evictions: AtomicU64,
}

#[derive(Debug, Default)]
struct Counting {
    /// Streams whose folders were cleaned.
    cleaned: Vec<usize>,
    /// The known content of the folders, by stream.
    views: BTreeMap<usize, View>,
    /// The known state of the disks, by device.
    disks: BTreeMap<u64, Disk>,
}

/// A folder whose lock file is held.
struct Page {
    /// The number of the stream.
    place: usize,
    folder: Arc<Folder>,
    capacity: Claim,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether a shard is written to its stream's folder: it has a remote origin or is compressed.
pub(crate) fn is_kept(stream: &Stream, entry: Entry<'_>) -> bool {
    stream.origin.is_some() || entry.is_packed()
}

fn is_cached(stream: &Stream) -> bool {
    let kept = |entry| is_kept(stream, entry);
    stream.origin.is_some() || stream.shards.iter().any(kept)
}

impl Capacity {
    pub(crate) fn new(catalog: Arc<Catalog>, options: &CacheOptions) -> Result<Self, ReaderError> {
        let cached: Vec<&Stream> = catalog
            .streams()
            .iter()
            .filter(|stream| is_cached(stream))
            .collect();
        for (place, stream) in cached.iter().enumerate() {
            for other in cached.iter().skip(place + 1) {
                if stream.local.is_same(&other.local)? {
                    return Err(CacheError::OneFolder {
                        path: stream.local.path().to_owned(),
                    }
                    .into());
                }
            }
        }
        let mut base = options.peers.map_or(0, positions::bytes);
        let mut largest = 0;
        for stream in &cached {
            if stream.origin.is_some() {
                base = base.saturating_add(stream.index_bytes());
            }
            let compressed = stream.shards.iter().filter(|shard| shard.is_packed());
            let heaviest = compressed.map(|shard| weight(shard, stream.keep_zip)).max();
            largest = largest.max(heaviest.unwrap_or(0));
        }
        // Samples of uncompressed shards can be read individually; compressed shards need space as a whole.
        let minimum = if largest > 0 {
            base.saturating_add(largest)
        } else {
            0
        };
        if let Some(limit) = options.limit.filter(|limit| *limit < minimum) {
            return Err(CacheError::TooSmall { limit, minimum }.into());
        }
        let mut folders = Vec::new();
        folders.resize_with(catalog.streams().len(), || None);
        Ok(Self {
            limit: options.limit,
            in_flight: options.in_flight,
            tight: AtomicBool::new(false),
            timeout: options.timeout,
            locks: options.locks,
            owner: options.owner,
            positions: Positions::new(options.peers),
            base,
            minimum,
            folders: Mutex::new(folders),
            counting: Mutex::default(),
            used: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            catalog,
        })
    }

    /// Returns the folder of a stream; `None` for a dataset that is read in place and is not writable.
    pub(crate) fn folder(&self, place: usize) -> Result<Option<Arc<Folder>>, ReaderError> {
        let Some(stream) = self.catalog.streams().get(place) else {
            return Ok(None);
        };
        let mut folders = lock(&self.folders);
        let Some(slot) = folders.get_mut(place) else {
            return Ok(None);
        };
        if let Some(folder) = slot {
            return Ok(Some(Arc::clone(folder)));
        }
        match Folder::open(&stream.local, &stream.index_digest, self.locks) {
            Ok(folder) => {
                let folder = Arc::new(folder);
                *slot = Some(Arc::clone(&folder));
                Ok(Some(folder))
            }
            Err(error) if stream.origin.is_none() && error.kind() == ErrorKind::Permission => {
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether shards may have to be evicted: there is a limit, or a disk has little space.
    pub(crate) fn is_limited(&self) -> bool {
        self.limit.is_some() || self.tight.load(Relaxed)
    }

    /// Returns the bytes in the folders at the last count, for a cache with a limit.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Returns the number of shards that this process evicted to make space.
    pub(crate) fn evictions(&self) -> u64 {
        self.evictions.load(Relaxed)
    }

    /// Takes the lock files of all folders, or of one stream's folder.
    fn open_capacity(
        &self,
        only: Option<usize>,
        scheduler: &impl Scheduler,
    ) -> Result<Vec<Page>, ReaderError> {
        const MOST_PAUSE: Duration = Duration::from_millis(50);

        let mut folders = Vec::new();
        for (place, stream) in self.catalog.streams().iter().enumerate() {
            if is_cached(stream)
                && only.is_none_or(|only| only == place)
                && let Some(folder) = self.folder(place)?
            {
                folders.push((place, folder));
            }
        }
        let start = Instant::now();
        let mut pause = Duration::from_micros(100);
        loop {
            // Take all or none, so that two processes with the same folders in different order cannot deadlock.
            let mut pages = Vec::with_capacity(folders.len());
            let mut busy = None;
            for (place, folder) in &folders {
                match folder.capacity()? {
                    Some(capacity) => pages.push(Page {
                        place: *place,
                        folder: Arc::clone(folder),
                        capacity,
                    }),
                    None => {
                        busy = Some(folder);
                        break;
                    }
                }
            }
            let Some(folder) = busy else {
                return Ok(pages);
            };
            drop(pages);
            if scheduler.is_stopped() {
                return Err(CacheError::Stopped.into());
            }
            if start.elapsed() >= self.timeout {
                return Err(CacheError::Waited {
                    path: folder.own().path_of("lock"),
                    seconds: self.timeout.as_secs(),
                    what: "counts what is in the cache",
                    pid: None,
                }
                .into());
            }
            thread::sleep(pause);
            pause = (pause * 2).min(MOST_PAUSE);
        }
    }

    /// Reserves space for a shard, evicting others if necessary.
    pub(crate) fn reserve(
        &self,
        wanted: Wanted,
        scheduler: &impl Scheduler,
    ) -> Result<Reserved, ReaderError> {
        let Some((place, number, entry)) = self.find(wanted.shard) else {
            return Ok(Reserved::NoRoom);
        };
        let bytes = self.weight(place, entry);
        let mut counting = lock(&self.counting);
        let device = self.tight_device(&mut counting, place)?;
        let only = (self.limit.is_none() && device.is_none()).then_some(place);
        let pages = self.open_capacity(only, scheduler)?;
        let Some(page) = pages.iter().find(|page| page.place == place) else {
            return Ok(Reserved::NoRoom);
        };
        // A shard with a marker is already counted.
        let more = if page.folder.has(number)? { 0 } else { bytes };
        if !self.make_room(&mut counting, device, &pages, wanted, more, scheduler)? {
            return Ok(Reserved::NoRoom);
        }
        if more == 0 {
            return take(&page.folder, number, entry);
        }
        match counting.views.get_mut(&place) {
            Some(view) => view.add(&page.capacity, number, more)?,
            None => note(&page.capacity, more, 0)?,
        }
        let reserved = take(&page.folder, number, entry);
        if matches!(reserved, Ok(Reserved::Held(_))) {
            self.used.fetch_add(more, Relaxed);
        } else {
            match counting.views.get_mut(&place) {
                Some(view) => view.remove(&page.capacity, number, more)?,
                None => note(&page.capacity, 0, more)?,
            }
        }
        reserved
    }

    /// Holds the counting lock, as a reservation does.
    #[cfg(test)]
    pub(crate) fn count_for_test(&self) -> impl Drop + '_ {
        lock(&self.counting)
    }

    /// See [`super::ShardCache::begin_epoch`].
    pub(crate) fn begin_epoch(&self, epoch: u64, first: u64) {
        self.positions.begin_epoch(epoch, first);
    }

    fn post_exit_hold(&self) -> PostExitHold {
        PostExitHold::new(self.owner, self.positions.epoch())
    }

    /// Returns the bytes that are always used.
    pub(crate) const fn base(&self) -> u64 {
        self.base
    }

    /// Returns the smallest possible limit.
    pub(crate) const fn minimum(&self) -> u64 {
        self.minimum
    }

    /// Checks that the limit has space for raw files that are used together.
    pub(crate) fn check_room(&self, shards: &[usize]) -> Result<(), ReaderError> {
        let Some(limit) = self.limit else {
            return Ok(());
        };
        let found = shards.iter().filter_map(|shard| self.find(*shard));
        let minimum = found
            .filter(|(place, _, entry)| {
                let stream = self.catalog.streams().get(*place);
                entry.needs_file() && stream.is_some_and(|stream| is_kept(stream, *entry))
            })
            .map(|(place, _, entry)| self.weight(place, entry))
            .fold(self.base, u64::saturating_add);
        if limit < minimum {
            return Err(CacheError::TooSmall { limit, minimum }.into());
        }
        Ok(())
    }

    /// Removes a marker that is no longer needed, and the files written for it.
    pub(crate) fn discard(
        &self,
        shard: usize,
        marker: Marker,
        scheduler: &impl Scheduler,
    ) -> Result<(), ReaderError> {
        self.remove(shard, scheduler, |folder, _, entry| {
            Ok(folder.discard(marker, entry)?)
        })
        .map(|_| ())
    }

    /// Removes a damaged shard.
    pub(crate) fn drop_damaged(
        &self,
        shard: usize,
        scheduler: &impl Scheduler,
    ) -> Result<Evicted, ReaderError> {
        self.remove(shard, scheduler, |folder, number, entry| {
            Ok(folder.evict(number, entry)?)
        })
    }

    fn remove(
        &self,
        shard: usize,
        scheduler: &impl Scheduler,
        remove: impl FnOnce(&Folder, usize, Entry<'_>) -> Result<Evicted, ReaderError>,
    ) -> Result<Evicted, ReaderError> {
        let Some((place, number, entry)) = self.find(shard) else {
            return Ok(Evicted::Absent);
        };
        let mut counting = lock(&self.counting);
        let pages = match self.open_capacity(Some(place), scheduler) {
            Ok(pages) => pages,
            // The marker is removed without the lock; the next count corrects the total.
            Err(ReaderError::Cache(_)) => Vec::new(),
            Err(error) => return Err(error),
        };
        let Some(page) = pages.first() else {
            return match self.folder(place)? {
                Some(folder) => remove(&folder, number, entry),
                None => Ok(Evicted::Absent),
            };
        };
        let removed = remove(&page.folder, number, entry)?;
        if removed == Evicted::Gone {
            let bytes = self.weight(place, entry);
            match counting.views.get_mut(&place) {
                Some(view) => {
                    // The view first takes in the changes of other processes.
                    view.will_do(&page.capacity, false)?;
                    view.remove(&page.capacity, number, bytes)?;
                }
                None => note(&page.capacity, 0, bytes)?,
            }
        }
        Ok(removed)
    }

    /// Returns the number of a shard's stream, its number in the stream, and its index entry.
    fn find(&self, shard: usize) -> Option<(usize, usize, Entry<'_>)> {
        let (stream, number) = self.catalog.stream_of(shard)?;
        let mut streams = self.catalog.streams().iter();
        let place = streams.position(|other| std::ptr::eq(other, stream))?;
        Some((place, number, stream.shards.get(number)?))
    }

    fn weight(&self, place: usize, entry: Entry<'_>) -> u64 {
        let stream = self.catalog.streams().get(place);
        weight(entry, stream.is_some_and(|stream| stream.keep_zip))
    }

    /// Prepares a folder for use: removes what dead processes left, and evicts down to a lowered limit.
    pub(crate) fn begin(
        &self,
        place: usize,
        now: u64,
        scheduler: &impl Scheduler,
    ) -> Result<(), ReaderError> {
        let mut counting = lock(&self.counting);
        if counting.cleaned.contains(&place) {
            return Ok(());
        }
        let only = self.limit.is_none().then_some(place);
        let pages = self.open_capacity(only, scheduler)?;
        let Some(limit) = self.limit else {
            if let Some(page) = pages.first() {
                let listing = page.folder.list()?;
                self.clean(&mut counting, place, &page.folder, &listing, scheduler)?;
            }
            return Ok(());
        };
        let used = self.count(&mut counting, &pages, true, scheduler)?;
        let mut over = used.saturating_sub(limit);
        if over > 0 {
            let places: Vec<usize> = pages.iter().map(|page| page.place).collect();
            let mut residents = self.residents(&counting, &places, scheduler);
            let from = self.slowest(now);
            let next = |found: &Resident| scheduler.next_use(found.shard, from);
            residents.sort_by_cached_key(|found| next(found).unwrap_or(u64::MAX));
            while let Some(last) = residents.pop().filter(|_| over > 0) {
                if !last.pinned
                    && self.evict(&mut counting, last.shard, &pages, scheduler)? == Evicted::Gone
                {
                    over = over.saturating_sub(last.bytes);
                }
            }
        }
        Ok(())
    }

    /// Returns the bytes in the folders; all lock files must be held. `exact` lists the markers again if other
    /// processes changed them.
    fn count(
        &self,
        counting: &mut Counting,
        pages: &[Page],
        exact: bool,
        scheduler: &impl Scheduler,
    ) -> Result<u64, ReaderError> {
        let mut used = self.base;
        for page in pages {
            let will_do = match counting.views.get_mut(&page.place) {
                Some(view) => view.will_do(&page.capacity, exact)?,
                None => false,
            };
            if !will_do {
                self.list(counting, page, scheduler)?;
            }
            let view = counting.views.get(&page.place);
            used = used.saturating_add(view.map_or(0, View::used));
        }
        self.used.store(used, Relaxed);
        Ok(used)
    }

    fn list(
        &self,
        counting: &mut Counting,
        page: &Page,
        scheduler: &impl Scheduler,
    ) -> Result<(), ReaderError> {
        let begun = Instant::now();
        let Some(stream) = self.catalog.streams().get(page.place) else {
            return Ok(());
        };
        let mut listing = page.folder.list()?;
        let first = !counting.cleaned.contains(&page.place);
        let mut used = 0_u64;
        if first || !listing.temps.is_empty() {
            used = self.clean(counting, page.place, &page.folder, &listing, scheduler)?;
            if first {
                listing = page.folder.list()?;
            }
        }
        let mut markers = BTreeSet::new();
        for number in listing.markers {
            if let Some(entry) = stream.shards.get(number) {
                used = used.saturating_add(weight(entry, stream.keep_zip));
                markers.insert(number);
            }
        }
        let view = View::listed(&page.capacity, markers, used, begun)?;
        counting.views.insert(page.place, view);
        Ok(())
    }

    /// Returns the known shards in the folders.
    fn residents(
        &self,
        counting: &Counting,
        places: &[usize],
        scheduler: &impl Scheduler,
    ) -> Vec<Resident> {
        let mut residents = Vec::new();
        let views = counting.views.iter();
        for (place, view) in views.filter(|(place, _)| places.contains(place)) {
            let Some(stream) = self.catalog.streams().get(*place) else {
                continue;
            };
            for number in &view.markers {
                if let Some(entry) = stream.shards.get(*number) {
                    let shard = stream.first_shard + number;
                    residents.push(Resident {
                        shard,
                        bytes: weight(entry, stream.keep_zip),
                        pinned: scheduler.is_busy(shard),
                    });
                }
            }
        }
        residents
    }

    fn evict(
        &self,
        counting: &mut Counting,
        shard: usize,
        pages: &[Page],
        scheduler: &impl Scheduler,
    ) -> Result<Evicted, ReaderError> {
        let Some((place, number, entry)) = self.find(shard) else {
            return Ok(Evicted::Stays);
        };
        let Some(page) = pages.iter().find(|page| page.place == place) else {
            return Ok(Evicted::Stays);
        };
        if entry.needs_file() && page.folder.is_left_in_use(number, self.post_exit_hold())? {
            return Ok(Evicted::Stays);
        }
        if !scheduler.let_go(shard) {
            return Ok(Evicted::Stays);
        }
        let removed = page.folder.evict(number, entry)?;
        let bytes = match removed {
            Evicted::Stays => return Ok(removed),
            Evicted::Gone => {
                self.evictions.fetch_add(1, Relaxed);
                self.weight(place, entry)
            }
            // The process that removed it has already updated the usage file.
            Evicted::Absent => 0,
        };
        if let Some(view) = counting.views.get_mut(&place) {
            view.remove(&page.capacity, number, bytes)?;
        }
        self.used.fetch_sub(bytes, Relaxed);
        Ok(removed)
    }

    /// Removes what dead processes left: temporary files and, the first time in a folder, markers without a shard.
    /// Returns the bytes of temporary files that may be in use and have no marker.
    fn clean(
        &self,
        counting: &mut Counting,
        place: usize,
        folder: &Folder,
        listing: &Listing,
        scheduler: &impl Scheduler,
    ) -> Result<u64, ReaderError> {
        let Some(stream) = self.catalog.streams().get(place) else {
            return Ok(0);
        };
        let first = !counting.cleaned.contains(&place);
        if first {
            counting.cleaned.push(place);
        }
        folder.clean(listing, &stream.shards, first, |number| {
            scheduler.is_busy(stream.first_shard + number)
        })
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
        let place = self.catalog.streams().iter().position(is_cached)?;
        self.folder(place).ok().flatten()
    }
}

/// Creates the marker of a shard.
fn take(folder: &Folder, number: usize, entry: Entry<'_>) -> Result<Reserved, ReaderError> {
    let marker = match folder.claim(number)? {
        Claimed::Busy { pid } => return Ok(Reserved::Busy { pid }),
        Claimed::Held(marker) => marker,
    };
    if folder.files(entry, Some(&marker))?.is_some() {
        folder.give_up(&marker)?;
        return Ok(Reserved::Here);
    }
    Ok(Reserved::Held(marker))
}
