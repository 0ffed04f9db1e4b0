//! Room in the cache: what is there, who leaves, who comes. Counted anew each time, under a lock that all processes of
//! the machine take, because others change it too.

mod room;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use shardmill_core::{Diagnostic as _, ErrorKind};
use shardmill_storage::Claim;

use crate::cache::Resident;
use crate::catalog::{Catalog, Stream};
use crate::entry::Entry;
use crate::error::ReaderError;
use crate::shard_cache::CacheOptions;
use crate::shard_cache::disk::Disk;
use crate::shard_cache::error::CacheError;
use crate::shard_cache::folder::{Claimed, Evicted, Folder, Listing, Marker, PostExitHold, weight};
use crate::shard_cache::positions::{self, Positions};
use crate::shard_cache::usage_file::{View, note};

/// What the scheduler knows about shards in this process.
pub(crate) trait Scheduler {
    /// Whether this process fetches the shard or reads it at this moment.
    fn is_busy(&self, shard: usize) -> bool;
    /// When it is needed, from a tick on.
    fn next_use(&self, shard: usize, tick: u64) -> Option<u64>;
    /// Forgets a shard that is about to be removed; false when it has become busy.
    fn let_go(&self, shard: usize) -> bool;
    fn is_stopped(&self) -> bool;
}

/// A shard that is to come, and how much it is worth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) shard: usize,
    /// When it is needed.
    pub(crate) at: u64,
    /// Where this rank is.
    pub(crate) now: u64,
    /// Whether somebody waits for it, or would if it were fetched later.
    pub(crate) urgent: bool,
}

/// What came of asking for room.
#[derive(Debug)]
pub(crate) enum Reserved {
    /// The shard may be fetched and written; the marker is its reservation.
    Held(Marker),
    /// It is there by now.
    Here,
    /// Somebody else fetches it.
    Busy { pid: Option<u32> },
    /// Those who would have to leave are needed sooner.
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
    /// Whether a disk was found to be full, or to have little space.
    tight: AtomicBool,
    /// For whom this process reads.
    owner: u64,
    /// Where in the run it is, and where the others are.
    positions: Positions,
    /// Bytes that are always there: the indexes, the positions.
    base: u64,
    /// The least limit that it can do with.
    minimum: u64,
    /// By stream; opened when they are first needed.
    folders: Mutex<Vec<Option<Arc<Folder>>>>,
    /// One reservation at a time in this process.
    counting: Mutex<Counting>,
    /// What was in the folders when it was last counted.
    used: AtomicU64,
    /// Shards that this process has removed to make room.
    evictions: AtomicU64,
}

#[derive(Debug, Default)]
struct Counting {
    /// Streams whose folders were cleaned.
    cleaned: Vec<usize>,
    /// What is known of the folders, by stream.
    views: BTreeMap<usize, View>,
    /// What is known of the disks, by device.
    disks: BTreeMap<u64, Disk>,
}

/// A folder whose books are held.
struct Page {
    /// The number of the stream.
    place: usize,
    folder: Arc<Folder>,
    capacity: Claim,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a shard is written to the folder of its stream: because it comes from elsewhere, or is compressed.
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
        // Samples of shards that are not compressed can be read one by one; the others have to be there whole.
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

    /// The folder of a stream; `None` for a dataset that is read in place and cannot be written to.
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

    /// What was in the folders when it was last counted, for a cache with a limit.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Shards that this process has removed to make room.
    pub(crate) fn evictions(&self) -> u64 {
        self.evictions.load(Relaxed)
    }

    /// Takes the locks on the books: of all folders, or of that of one stream.
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
            // All or none, so that two processes with the same folders in another order cannot wait for each other.
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

    /// Makes room for a shard and its reservation.
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
        // Counted already when somebody has begun with it before.
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

    /// As if somebody counted.
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

    /// Bytes that are always there.
    pub(crate) const fn base(&self) -> u64 {
        self.base
    }

    /// The least limit that this can be opened with.
    pub(crate) const fn minimum(&self) -> u64 {
        self.minimum
    }

    /// Whether there can be room at all for files that are used together.
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

    /// Takes a marker back that came to nothing, and what was written for it.
    pub(crate) fn discard(
        &self,
        shard: usize,
        marker: Marker,
        scheduler: &impl Scheduler,
    ) -> Result<(), ReaderError> {
        self.remove(shard, scheduler, |folder, _, entry| {
            folder.discard(marker, entry)
        })
        .map(|_| ())
    }

    /// Removes a shard that is damaged.
    pub(crate) fn drop_damaged(
        &self,
        shard: usize,
        scheduler: &impl Scheduler,
    ) -> Result<Evicted, ReaderError> {
        self.remove(shard, scheduler, |folder, number, entry| {
            folder.evict(number, entry)
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
            // The marker goes all the same; the next count finds out.
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
                    // What others did in the meantime is not lost.
                    view.will_do(&page.capacity, false)?;
                    view.remove(&page.capacity, number, bytes)?;
                }
                None => note(&page.capacity, 0, bytes)?,
            }
        }
        Ok(removed)
    }

    /// The stream of a shard, its number in it, and what the index says.
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

    /// Before a folder is used: removes what dead processes left, and what is beyond a limit that was lowered.
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

    /// Bytes in the folders, with the locks on all books held. `exact`: what others have changed is looked at now.
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

    /// The shards in the folders, as far as is known.
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
            // Whoever removed it has said so in the books.
            Evicted::Absent => 0,
        };
        if let Some(view) = counting.views.get_mut(&place) {
            view.remove(&page.capacity, number, bytes)?;
        }
        self.used.fetch_sub(bytes, Relaxed);
        Ok(removed)
    }

    /// Removes what dead processes left: temporary files, and the first time in a folder markers of shards that are not
    /// there. The length of temporary files that may be in use, and have no marker, is the result.
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

    /// Writes down where this rank is.
    pub(crate) fn move_to(&self, tick: u64) {
        self.positions.move_to(tick, || self.positions_folder());
    }

    fn slowest(&self, now: u64) -> u64 {
        self.positions.slowest(now, || self.positions_folder())
    }

    /// The folder where all ranks look for each other.
    fn positions_folder(&self) -> Option<Arc<Folder>> {
        let place = self.catalog.streams().iter().position(is_cached)?;
        self.folder(place).ok().flatten()
    }
}

/// Takes the marker of a shard.
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
