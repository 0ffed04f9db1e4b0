//! The jobs of one blob: find it, reserve space, verify, write and open it.
//!
//! These functions access files, so they hold the table's lock only briefly.

use std::sync::Arc;

use shardmill_core::{Diagnostic as _, ErrorKind};
use shardmill_storage::{StorageError, open_claims};

use crate::blobs::{BlobEntry, BlobPart, BlobProblem, BlobResult, Blobs, CachedBlob, RawBlob};
use crate::capacity::{Reserved, Wanted};
use crate::disk::{is_full, is_too_large};
use crate::engine::{ATTEMPTS, Engine, NEAR};
use crate::error::CacheError;
use crate::folder::{Evicted, Files, Folder, Lookup};
use crate::marker::Marker;
use crate::outcome::Outcome;
use crate::state::{FetchTarget, Stage, State};
use crate::timings::Activity;
use crate::verified_stamp::VerifiedStamp;

/// The number of open lock files above which no further folder is kept open for the pins of its blobs.
const MAX_OPEN_CLAIMS: usize = 24;

/// The result of verifying existing files.
enum Admitted<B: Blobs> {
    Yes(Box<Outcome<B>>),
    /// The cache wrote the files, but they have changed since.
    Damaged,
    /// The cache did not write the files, and they do not match the catalog.
    Foreign(Box<B::Error>),
}

/// A blob with its number over all sets and its folder.
struct Subject<'a> {
    number: usize,
    entry: BlobEntry<'a>,
    folder: Option<Arc<Folder>>,
}

impl<B: Blobs> Engine<B> {
    fn subject(&self, number: usize) -> BlobResult<Subject<'_>, B::Error> {
        let entry = self.entry(number)?;
        let folder = match entry.blob.is_kept {
            true => self.capacity.folder(entry.set_number)?,
            false => None,
        };
        Ok(Subject {
            number,
            entry,
            folder,
        })
    }

    /// Finds a blob on disk, or reserves a target to fetch it to.
    pub(crate) fn start(&self, number: usize) -> Outcome<B> {
        self.try_start(number).unwrap_or_else(Outcome::Failed)
    }

    fn try_start(&self, number: usize) -> BlobResult<Outcome<B>, B::Error> {
        /// An attempt fails only if another process creates or removes the blob at that moment.
        const TRIES: usize = 16;

        let Some((needed, wanted)) = self.wanted(number) else {
            return Ok(Outcome::NotNow);
        };
        let subject = self.subject(number)?;
        if !subject.entry.blob.is_kept {
            return self.open_in_place(number);
        }
        if subject.entry.blob.needs_file {
            self.capacity.check_room(&[number])?;
        }
        let Some(folder) = &subject.folder else {
            return Ok(self.to_memory(&subject, &wanted, needed));
        };
        let in_set = subject.entry.number;
        let set = subject.entry.set_number;
        match self.capacity.begin(set, wanted.now, self) {
            Err(CacheError::Storage(error)) if is_full(&error) => {
                return Ok(self.to_memory(&subject, &wanted, needed));
            }
            result => result?,
        }
        let later = |pid| Outcome::Later {
            path: folder.own.path_of(&in_set.to_string()),
            pid,
        };
        let mut refused = false;
        for _ in 0..TRIES {
            match folder.inspect(in_set, subject.entry.blob)? {
                Lookup::Busy { pid } => return Ok(later(pid)),
                Lookup::Present { .. }
                    if !needed && wanted.at > wanted.now.saturating_add(NEAR) =>
                {
                    // Hashing all existing files now would delay what is needed sooner.
                    return Ok(Outcome::Ready { known: None });
                }
                Lookup::Present { files, marker } => {
                    let admitted = self.admit(&subject, folder, *files, marker, false, needed)?;
                    match admitted {
                        Admitted::Yes(outcome) => {
                            self.count_found(number);
                            return Ok(*outcome);
                        }
                        // The file can be neither removed nor replaced.
                        Admitted::Damaged if folder.is_read_only => {
                            return self.beside_read_only(&subject, folder, &wanted, needed);
                        }
                        Admitted::Foreign(_)
                            if folder.is_read_only && subject.entry.blob.is_unhashed =>
                        {
                            return self.beside_read_only(&subject, folder, &wanted, needed);
                        }
                        Admitted::Damaged => {
                            if self.capacity.drop_damaged(number, self)? == Evicted::Kept {
                                return Ok(self.to_memory(&subject, &wanted, needed));
                            }
                        }
                        // In a compressed set that is read in place, only the compressed file is authoritative.
                        Admitted::Foreign(_) if !subject.entry.set.is_remote => {
                            return Ok(self.to_memory(&subject, &wanted, needed));
                        }
                        Admitted::Foreign(source) => return Err(foreign(&subject, folder, source)),
                    }
                }
                Lookup::Missing if folder.is_read_only => {
                    return self.beside_read_only(&subject, folder, &wanted, needed);
                }
                // A blob that is needed sooner gets space first.
                Lookup::Missing if !needed && self.is_blocked(&wanted) => {
                    return Ok(Outcome::NotNow);
                }
                Lookup::Missing if self.lock().checks.unwritable.contains(&number) => {
                    return Ok(self.to_memory(&subject, &wanted, needed));
                }
                Lookup::Missing => match self.capacity.reserve(wanted, self) {
                    Ok(Reserved::Held(marker)) => {
                        return Ok(Outcome::Fetch(FetchTarget::Disk(marker)));
                    }
                    Ok(Reserved::Present) => {}
                    Ok(Reserved::Busy { pid }) => return Ok(later(pid)),
                    Ok(Reserved::NoRoom) => return Ok(self.to_memory(&subject, &wanted, needed)),
                    // The disk has no space even for the marker: evict for the marker and the blob.
                    Err(CacheError::Storage(error)) if is_full(&error) => {
                        let bytes = subject.entry.blob.cached_bytes();
                        let refused = std::mem::replace(&mut refused, true);
                        if refused || !self.capacity.disk_full(wanted, bytes, true, self)? {
                            return Ok(self.to_memory(&subject, &wanted, needed));
                        }
                    }
                    Err(error) => return Err(error),
                },
            }
        }
        Ok(later(None))
    }

    fn count_found(&self, blob: usize) {
        let mut state = self.lock();
        if !state.checks.known.contains_key(&blob) {
            state.stats.found_shards += 1;
        }
    }

    /// Returns whether there was no space just now for a blob that is needed sooner.
    fn is_blocked(&self, wanted: &Wanted) -> bool {
        let state = self.lock();
        let blocked = state.ahead.blocked;
        blocked.is_some_and(|blocked| blocked.room == state.budget.room && blocked.tick < wanted.at)
    }

    /// Reserves memory for a blob that a caller waits for or needs soon.
    fn to_memory(&self, subject: &Subject<'_>, wanted: &Wanted, needed: bool) -> Outcome<B> {
        if subject.entry.blob.needs_file {
            return no_file(needed);
        }
        let bytes = subject.entry.blob.raw_bytes();
        let mut state = self.lock();
        let fits = self.fits_memory(&state, bytes, needed);
        if fits && (needed || wanted.urgent || subject.folder.is_none()) {
            state.budget.memory = state.budget.memory.saturating_add(bytes);
            state.stats.bypasses += 1;
            Outcome::Fetch(FetchTarget::Memory(bytes))
        } else if needed {
            Outcome::Uncached
        } else {
            Outcome::NotNow
        }
    }

    /// Reserves memory for a blob that a read-only folder does not have.
    fn beside_read_only(
        &self,
        subject: &Subject<'_>,
        folder: &Folder,
        wanted: &Wanted,
        needed: bool,
    ) -> BlobResult<Outcome<B>, B::Error> {
        if subject.entry.blob.needs_file && needed {
            return Err(CacheError::Storage(StorageError::Io {
                action: "write",
                path: folder.local.path_of(&subject.entry.blob.data.raw.basename),
                source: std::io::ErrorKind::ReadOnlyFilesystem.into(),
            }));
        }
        Ok(self.to_memory(subject, wanted, needed))
    }

    /// Opens a blob that is read in place.
    fn open_in_place(&self, number: usize) -> BlobResult<Outcome<B>, B::Error> {
        let known = self.lock().checks.known.get(&number).copied();
        let (open, known) = self.blobs.open_in_place(number, known)?;
        Ok(Outcome::Open {
            blob: Arc::new(CachedBlob::new(number, open, None)),
            pin: None,
            memory: 0,
            known,
        })
    }

    /// Verifies files in the folder, and opens them if `open` is set. `fresh`: the cache's own files were written just
    /// now.
    fn admit(
        &self,
        subject: &Subject<'_>,
        folder: &Folder,
        (data, table): Files,
        marker: Option<Marker>,
        fresh: bool,
        open: bool,
    ) -> BlobResult<Admitted<B>, B::Error> {
        let number = subject.number;
        let (known, doubted) = {
            let state = self.lock();
            let checks = &state.checks;
            (
                checks.known.get(&number).copied(),
                checks.doubted.contains(&number),
            )
        };
        let identity = table.as_ref().map(|table| table.handle.identity());
        let found = (data.handle.identity()?, identity.transpose()?);
        if subject.entry.blob.is_unhashed && !data.own {
            let error = self.blobs.error(number, BlobProblem::Unverifiable);
            return Ok(Admitted::Foreign(Box::new(error)));
        }
        let own = data.own && table.as_ref().is_none_or(|table| table.own);
        let refused = |error: CacheError<B::Error>| match error {
            CacheError::Blob(_) if own => Ok(Admitted::Damaged),
            CacheError::Blob(error) => Ok(Admitted::Foreign(error)),
            // Any other error says nothing about the content.
            error => Err(error),
        };
        let infos = subject.entry.blob.files().map(|file| file.raw);
        let files: Vec<_> = infos.zip(std::iter::once(&data).chain(&table)).collect();
        let demands: Vec<_> = files
            .iter()
            .flat_map(|(info, _)| self.blobs.demands(number, info))
            .collect();
        let identities: Vec<_> = std::iter::once(found.0).chain(found.1).collect();
        let stamp = marker
            .as_ref()
            .filter(|_| own && !demands.is_empty())
            .zip(VerifiedStamp::of(&identities, &demands));
        let is_stamped = match stamp {
            // Other processes must verify the files again as well.
            Some((marker, _)) if doubted => {
                if !folder.is_read_only {
                    marker.set_stamp(None)?;
                }
                false
            }
            Some((marker, stamp)) => marker.has_stamp(stamp)?,
            None => false,
        };
        for (info, file) in &files {
            let trusted = is_stamped || known == Some(found) || (fresh && file.own);
            let checked = self.blobs.check_file(number, info, &file.handle, !trusted);
            if let Err(error) = checked {
                return refused(error);
            }
        }
        if let Some((marker, stamp)) = stamp.filter(|_| !is_stamped) {
            // If the stamp cannot be written, the next process verifies the files itself.
            let _ = marker.set_stamp(Some(stamp));
        }
        if doubted {
            self.lock().checks.doubted.remove(&number);
        }
        if !open {
            let ready = Outcome::Ready { known: Some(found) };
            return Ok(Admitted::Yes(Box::new(ready)));
        }
        let table = table.as_ref().map(|table| &table.handle);
        let opened = match self.blobs.map(number, &folder.local, &data.handle, table) {
            Ok(opened) => opened,
            Err(error) => return refused(error),
        };
        // Nothing in a read-only folder is evicted. A path must stay valid; an open blob can be read after its eviction,
        // so the pins of very many folders, each of which takes an open file, are left out.
        let has_files = subject.entry.blob.needs_file || open_claims() <= MAX_OPEN_CLAIMS;
        let is_pinnable = !folder.is_read_only && has_files && self.may_pin();
        let mut pin = marker.filter(|_| is_pinnable);
        let mut held = None;
        if subject.entry.blob.needs_file {
            if pin.is_none() && self.options.limit.is_some() && !folder.is_read_only {
                return Err(CacheError::Pins {
                    name: self.blobs.name(number),
                    pins: self.options.pins as u64,
                });
            }
            // The caller gets the path and holds the blob; the pin must last as long.
            held = pin.take().map(|pin| pin.park(&folder.own));
        }
        let pin = pin.map(|pin| pin.park(&folder.own));
        Ok(Admitted::Yes(Box::new(Outcome::Open {
            blob: Arc::new(CachedBlob::new(number, opened, held)),
            pin,
            memory: 0,
            known: Some(found),
        })))
    }

    /// Returns whether this process may pin another blob.
    fn may_pin(&self) -> bool {
        self.capacity.is_limited() && self.lock().open.pins < self.options.pins
    }

    /// Returns a compressed file found in the folder, which saves a fetch. It is verified like a fetched file, so its
    /// origin does not matter.
    pub(crate) fn existing_packed(&self, number: usize, part: BlobPart) -> Option<Vec<u8>> {
        let entry = self.blobs.entry(number)?;
        let packed = entry.blob.file(part)?.packed?;
        let file = entry.set.local.open_file(&packed.basename).ok()?;
        let fits = entry.set.is_remote && file.len() == packed.bytes;
        fits.then(|| file.read_all(packed.bytes).ok())?
    }

    /// Verifies the fetched files and stores the blob in its reserved target.
    pub(crate) fn finish(&self, number: usize) -> Outcome<B> {
        let (fetched, target, needed, failures) = {
            let mut state = self.lock();
            let Some(work) = state.work(number) else {
                return Outcome::NotNow;
            };
            let stage = std::mem::replace(&mut work.stage, Stage::Running);
            let Stage::Fetched(fetched) = stage else {
                work.stage = stage;
                return Outcome::NotNow;
            };
            let target = std::mem::take(&mut work.target);
            (fetched, target, work.needed, work.failures)
        };
        match fetched.and_then(|files| self.blobs.unpack(number, files)) {
            Ok(raw) => self
                .store(number, raw, target, needed)
                .unwrap_or_else(Outcome::Failed),
            // Corruption may come from the transfer, so it is retried. A replaced or missing blob is permanent.
            Err(CacheError::Blob(error))
                if error.kind() == ErrorKind::Corrupt && !self.blobs.is_lasting(&error) =>
            {
                let mut state = self.lock();
                state.stats.bad_fetches += 1;
                if failures + 1 < ATTEMPTS {
                    if let Some(work) = state.work(number) {
                        work.failures += 1;
                    }
                    return Outcome::Fetch(target);
                }
                drop(state);
                self.give_up(number, target);
                Outcome::Failed(CacheError::BadBlob {
                    name: self.blobs.name(number),
                    attempts: failures + 1,
                    contents: self.blobs.contents(number),
                    source: error,
                })
            }
            Err(error) => {
                self.give_up(number, target);
                Outcome::Failed(error)
            }
        }
    }

    /// Releases the reservation of a blob that cannot be fetched.
    fn give_up(&self, number: usize, target: FetchTarget) {
        match target {
            FetchTarget::Unknown => {}
            FetchTarget::Memory(bytes) => {
                let mut state = self.lock();
                state.budget.memory = state.budget.memory.saturating_sub(bytes);
            }
            FetchTarget::Disk(marker) => {
                // A later process cleans up what cannot be removed now.
                let _removed = self.capacity.discard(number, marker, self);
            }
        }
    }

    /// Stores the raw files of a blob in the reserved target.
    fn store(
        &self,
        number: usize,
        raw: RawBlob,
        target: FetchTarget,
        needed: bool,
    ) -> BlobResult<Outcome<B>, B::Error> {
        let mut marker = match target {
            FetchTarget::Disk(marker) => marker,
            FetchTarget::Memory(bytes) => {
                // The declared size of a computed blob is an estimate.
                let more = raw.bytes().saturating_sub(bytes);
                let mut state = self.lock();
                state.budget.memory = state.budget.memory.saturating_add(more);
                drop(state);
                return self.open_memory(number, raw, bytes.saturating_add(more));
            }
            FetchTarget::Unknown => return Ok(Outcome::NotNow),
        };
        let subject = self.subject(number)?;
        if raw.bytes() > subject.entry.blob.raw_bytes() {
            // A computed blob that needs more space than is reserved for it stays in memory.
            self.capacity.discard(number, marker, self)?;
            self.lock().checks.unwritable.insert(number);
            return self.bypass(number, raw, needed);
        }
        let Some(folder) = &subject.folder else {
            return Ok(Outcome::NotNow);
        };
        marker.unpark()?;
        let needs_file = subject.entry.blob.needs_file;
        if let Err(error) = self.write(&subject, folder, &marker, &raw) {
            self.capacity.discard(number, marker, self)?;
            if is_too_large(&error) {
                self.lock().checks.unwritable.insert(number);
            }
            if !is_full(&error) || is_too_large(&error) && needs_file {
                return Err(error.into());
            }
            return match needs_file {
                true => Ok(no_file(needed)),
                false => self.bypass(number, raw, needed),
            };
        }
        let Some(files) = folder.files(subject.entry.blob, Some(&marker))? else {
            // Without working locks, another process may have removed the files.
            return match needs_file {
                true => Ok(Outcome::NotNow),
                false => self.bypass(number, raw, needed),
            };
        };
        drop(raw);
        folder.share(&mut marker)?;
        match self.admit(&subject, folder, files, Some(marker), true, needed)? {
            Admitted::Yes(outcome) => Ok(*outcome),
            Admitted::Foreign(source) => Err(foreign(&subject, folder, source)),
            // The files changed right after they were written.
            Admitted::Damaged => Err(self.problem(number, BlobProblem::Changed)),
        }
    }

    /// Keeps a fetched blob for which there is no space on disk: in memory if it fits, otherwise for the next callers
    /// without the cache.
    fn bypass(
        &self,
        number: usize,
        raw: RawBlob,
        needed: bool,
    ) -> BlobResult<Outcome<B>, B::Error> {
        let bytes = raw.bytes();
        let urgent = self.wanted(number).is_some_and(|(_, wanted)| wanted.urgent);
        {
            let mut state = self.lock();
            // The fetch of a later blob is already paid for. Leave half of the memory to blobs that are needed sooner.
            let half = self.options.memory / 2;
            if !needed && !urgent && state.budget.memory.saturating_add(bytes) > half {
                return Ok(Outcome::NotNow);
            }
            if self.fits_memory(&state, bytes, needed) {
                state.budget.memory = state.budget.memory.saturating_add(bytes);
                state.stats.bypasses += 1;
                drop(state);
                return self.open_memory(number, raw, bytes);
            }
        }
        if !needed {
            return Ok(Outcome::NotNow);
        }
        let open = self.blobs.in_memory(number, raw)?;
        self.keep_uncached(Arc::new(CachedBlob::new(number, open, None)), bytes);
        Ok(Outcome::Uncached)
    }

    /// Returns whether a blob fits in memory. One needed blob always fits, however large.
    fn fits_memory(&self, state: &State<B>, bytes: u64, needed: bool) -> bool {
        let memory = state.budget.memory;
        memory.saturating_add(bytes) <= self.options.memory || (needed && memory == 0)
    }

    fn open_memory(
        &self,
        number: usize,
        raw: RawBlob,
        bytes: u64,
    ) -> BlobResult<Outcome<B>, B::Error> {
        match self.blobs.in_memory(number, raw) {
            Ok(open) => Ok(Outcome::Open {
                blob: Arc::new(CachedBlob::new(number, open, None)),
                pin: None,
                memory: bytes,
                known: None,
            }),
            Err(error) => {
                self.give_up(number, FetchTarget::Memory(bytes));
                Err(error)
            }
        }
    }

    /// Writes a blob to the folder. If the disk is full, evicts other blobs and retries.
    fn write(
        &self,
        subject: &Subject<'_>,
        folder: &Folder,
        marker: &Marker,
        raw: &RawBlob,
    ) -> Result<(), StorageError> {
        let _step = self.blobs.timings().start(Activity::Store);
        let mut files: Vec<(&str, &[u8])> = Vec::with_capacity(4);
        let raws = std::iter::once(&raw.data).chain(&raw.table);
        for (file, bytes) in subject.entry.blob.files().zip(raws) {
            // An uncompressed file of a local set is already in the folder.
            if subject.entry.set.is_remote || file.packed.is_some() {
                files.push((&file.raw.basename, bytes));
            }
        }
        if subject.entry.blob.keep_packed && subject.entry.set.is_remote {
            let packed = subject.entry.blob.files().filter_map(|file| file.packed);
            for (packed, bytes) in packed.zip(&raw.packed) {
                files.push((&packed.basename, bytes));
            }
        }
        let mut written = folder.write(marker, &files);
        for again in [false, true] {
            match written {
                Err(error) if is_full(&error) && !is_too_large(&error) => {
                    let wanted = self.wanted(subject.number);
                    let more = wanted.map(|(_, wanted)| {
                        // The blob itself is already reserved.
                        self.capacity.disk_full(wanted, 0, again, self)
                    });
                    match more {
                        Some(Ok(true)) => written = folder.write(marker, &files),
                        Some(Ok(false) | Err(_)) | None => return Err(error),
                    }
                }
                other => return other,
            }
        }
        written
    }
}

/// Returns the outcome for a blob that is only useful on disk, where there is no space.
const fn no_file<B: Blobs>(needed: bool) -> Outcome<B> {
    if needed {
        Outcome::Full
    } else {
        Outcome::NotNow
    }
}

/// Returns the error for a file with the name of a blob that the cache did not write.
fn foreign<E: shardmill_core::Diagnostic>(
    subject: &Subject<'_>,
    folder: &Folder,
    source: Box<E>,
) -> CacheError<E> {
    CacheError::Foreign {
        path: folder.local.path_of(&subject.entry.blob.data.raw.basename),
        source,
    }
}
