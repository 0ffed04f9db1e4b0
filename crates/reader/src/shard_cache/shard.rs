//! The jobs of one shard: find it, reserve space, verify, write and open it.
//!
//! These functions access files, so they hold the table's lock only briefly.

use std::path::PathBuf;
use std::sync::Arc;

use shardmill_core::{Diagnostic as _, ErrorKind, Limits};
use shardmill_storage::{FileIdentity, StorageError};

use crate::error::ReaderError;
use crate::open::OpenShard;
use crate::shard_cache::capacity::{Reserved, Wanted, is_kept};
use crate::shard_cache::check::{Raw, Trust, check_file, demands, unpack};
use crate::shard_cache::disk::{is_full, is_too_large};
use crate::shard_cache::engine::{ATTEMPTS, Engine, NEAR};
use crate::shard_cache::error::CacheError;
use crate::shard_cache::folder::{Evicted, Files, Folder, Look, Marker, weight};
use crate::shard_cache::origin::{PartKind, check_listed, missing, named, no_shard};
use crate::shard_cache::state::{Place, Stage, State};
use crate::shard_cache::verified_stamp::VerifiedStamp;
use shardmill_dataset::DatasetError;
use shardmill_dataset::Entry;
use shardmill_dataset::FileError;
use shardmill_dataset::Stream;

/// The identities of a shard's files when they were verified.
pub(crate) type Known = (FileIdentity, Option<FileIdentity>);

/// The encoded bytes of a sample, and their offset in the shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extract {
    pub(crate) begin: u64,
    pub(crate) bytes: Vec<u8>,
}

impl Extract {
    pub(crate) fn piece(&self) -> shardmill_dataset::Piece<'_> {
        shardmill_dataset::Piece {
            begin: self.begin,
            bytes: &self.bytes,
        }
    }
}

/// The result of a job.
pub(crate) enum Outcome {
    Open {
        shard: Arc<OpenShard>,
        pin: Option<Marker>,
        memory: u64,
        known: Option<Known>,
    },
    /// The shard is on disk; no caller needs it open yet.
    Ready {
        known: Option<Known>,
    },
    /// The shard has to be fetched to the reserved place.
    Fetch(Place),
    /// Another process works on the shard; retry later.
    Later {
        path: PathBuf,
        pid: Option<u32>,
    },
    /// There is no space on disk, and the shard is only useful on disk. Retry later.
    Full,
    /// There is no space, but a caller needs the shard: read its samples individually.
    Alone,
    /// There is no space, and no caller needs the shard yet.
    NotNow,
    Failed(ReaderError),
}

/// The result of verifying existing files.
enum Admitted {
    Yes(Outcome),
    /// The cache wrote the files, but they have changed since.
    Damaged,
    /// The cache did not write the files, and they do not match the index.
    Foreign(ReaderError),
}

/// A shard with its stream, entry and folder.
struct Subject<'a> {
    shard: usize,
    stream: &'a Stream,
    /// The number of the stream.
    place: usize,
    /// The number of the shard in the stream.
    number: usize,
    entry: Entry<'a>,
    folder: Option<Arc<Folder>>,
}

impl Engine {
    fn subject(&self, shard: usize) -> Result<Subject<'_>, ReaderError> {
        let missing = || no_shard(&self.catalog, shard);
        let (stream, number) = self.catalog.stream_of(shard).ok_or_else(missing)?;
        let entry = stream.shards.get(number).ok_or_else(missing)?;
        let mut streams = self.catalog.streams().iter();
        let place = streams.position(|other| std::ptr::eq(other, stream));
        let place = place.ok_or_else(missing)?;
        let folder = if is_kept(stream, entry) {
            self.capacity.folder(place)?
        } else {
            None
        };
        Ok(Subject {
            shard,
            stream,
            place,
            number,
            entry,
            folder,
        })
    }

    /// Finds a shard on disk, or reserves a place to fetch it to.
    pub(crate) fn start(&self, shard: usize) -> Outcome {
        self.try_start(shard).unwrap_or_else(Outcome::Failed)
    }

    fn try_start(&self, shard: usize) -> Result<Outcome, ReaderError> {
        /// An attempt fails only if another process creates or removes the shard at that moment.
        const TRIES: usize = 16;

        let Some((needed, wanted)) = self.wanted(shard) else {
            return Ok(Outcome::NotNow);
        };
        let subject = self.subject(shard)?;
        if !is_kept(subject.stream, subject.entry) {
            return self.open_in_place(&subject);
        }
        if subject.entry.needs_file() {
            self.capacity.check_room(&[shard])?;
        }
        let Some(folder) = &subject.folder else {
            return Ok(self.to_memory(&subject, &wanted, needed));
        };
        match self.capacity.begin(subject.place, wanted.now, self) {
            Err(ReaderError::Dataset(DatasetError::Storage(error))) if is_full(&error) => {
                return Ok(self.to_memory(&subject, &wanted, needed));
            }
            begun => begun?,
        }
        let later = |pid| Outcome::Later {
            path: folder.own().path_of(&subject.number.to_string()),
            pid,
        };
        let mut refused = false;
        for _ in 0..TRIES {
            match folder.look(subject.number, subject.entry)? {
                Look::Busy { pid } => return Ok(later(pid)),
                Look::Here { .. } if !needed && wanted.at > wanted.now.saturating_add(NEAR) => {
                    // Hashing all existing files now would delay what is needed sooner.
                    return Ok(Outcome::Ready { known: None });
                }
                Look::Here { files, marker } => {
                    let admitted = self.admit(&subject, folder, *files, marker, false, needed)?;
                    match admitted {
                        Admitted::Yes(outcome) => {
                            self.count_found(shard);
                            return Ok(outcome);
                        }
                        Admitted::Damaged => {
                            if self.capacity.drop_damaged(shard, self)? == Evicted::Stays {
                                return Ok(self.to_memory(&subject, &wanted, needed));
                            }
                        }
                        // In a compressed dataset that is read in place, only the compressed file is authoritative.
                        Admitted::Foreign(_) if subject.stream.origin.is_none() => {
                            return Ok(self.to_memory(&subject, &wanted, needed));
                        }
                        Admitted::Foreign(source) => {
                            return Err(CacheError::Foreign {
                                path: folder.local().path_of(&subject.entry.data().basename),
                                source: Box::new(source),
                            }
                            .into());
                        }
                    }
                }
                // A shard that is needed sooner gets space first.
                Look::Away if !needed && self.is_behind(&wanted) => return Ok(Outcome::NotNow),
                Look::Away if self.is_unwritable(shard) => {
                    return Ok(self.to_memory(&subject, &wanted, needed));
                }
                Look::Away => match self.capacity.reserve(wanted, self) {
                    Ok(Reserved::Held(marker)) => return Ok(Outcome::Fetch(Place::Disk(marker))),
                    Ok(Reserved::Here) => {}
                    Ok(Reserved::Busy { pid }) => return Ok(later(pid)),
                    Ok(Reserved::NoRoom) => return Ok(self.to_memory(&subject, &wanted, needed)),
                    // The disk has no space even for the marker: evict for the marker and the shard.
                    Err(ReaderError::Dataset(DatasetError::Storage(error))) if is_full(&error) => {
                        let bytes = weight(subject.entry, subject.stream.keep_zip);
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

    fn count_found(&self, shard: usize) {
        let mut state = self.lock();
        if !state.known.contains_key(&shard) {
            state.stats.found_shards += 1;
        }
    }

    /// Returns whether there was no space just now for a shard that is needed sooner.
    fn is_behind(&self, wanted: &Wanted) -> bool {
        let state = self.lock();
        state
            .blocked
            .is_some_and(|(room, _, at)| room == state.room && at < wanted.at)
    }

    /// Reserves memory for a shard that a caller waits for or needs soon.
    fn to_memory(&self, subject: &Subject<'_>, wanted: &Wanted, needed: bool) -> Outcome {
        if subject.entry.needs_file() {
            return if needed {
                Outcome::Full
            } else {
                Outcome::NotNow
            };
        }
        let raws = subject.entry.parts().map(|part| part.raw.bytes);
        let bytes = raws.fold(0, u64::saturating_add);
        let mut state = self.lock();
        let fits = self.fits_memory(&state, bytes, needed);
        if fits && (needed || wanted.urgent || subject.folder.is_none()) {
            state.memory = state.memory.saturating_add(bytes);
            state.stats.bypasses += 1;
            Outcome::Fetch(Place::Memory(bytes))
        } else if needed {
            Outcome::Alone
        } else {
            Outcome::NotNow
        }
    }

    /// Opens a shard of a dataset that is read in place.
    fn open_in_place(&self, subject: &Subject<'_>) -> Result<Outcome, ReaderError> {
        let dir = &subject.stream.local;
        let open = |name: &str| {
            dir.open_file(name)
                .map_err(|error| named(error, missing(&self.catalog, subject.shard)))
        };
        let data = open(&subject.entry.data().basename)?;
        if let Some(file) = subject.entry.raw_file() {
            check_listed(&self.catalog, subject.shard, file, &data)?;
            let shard = OpenShard::map(&self.catalog, subject.shard, dir, &data, None)?;
            // PERF: does not store an identity per file, because there may be a million files.
            return Ok(Outcome::Open {
                shard: Arc::new(shard),
                pin: None,
                memory: 0,
                known: None,
            });
        }
        let info = subject.entry.table();
        let meta = info.map(|info| open(&info.basename)).transpose()?;
        let known = {
            let state = self.lock();
            state.known.get(&subject.shard).copied()
        };
        let found = (
            data.identity()?,
            meta.as_ref().map(|meta| meta.identity()).transpose()?,
        );
        let trust = if known == Some(found) {
            Trust::Known
        } else {
            Trust::Own
        };
        let files = [Some((subject.entry.data(), &data)), info.zip(meta.as_ref())];
        for (info, file) in files.into_iter().flatten() {
            check_file(&self.catalog, subject.shard, info, file, trust)?;
        }
        let shard = OpenShard::map(&self.catalog, subject.shard, dir, &data, meta.as_ref())?;
        Ok(Outcome::Open {
            shard: Arc::new(shard),
            pin: None,
            memory: 0,
            known: Some(found),
        })
    }

    /// Verifies files in the folder, and opens them if `open` is set. `fresh`: the cache's own files were written just
    /// now.
    fn admit(
        &self,
        subject: &Subject<'_>,
        folder: &Folder,
        (data, meta): Files,
        marker: Option<Marker>,
        fresh: bool,
        open: bool,
    ) -> Result<Admitted, ReaderError> {
        let (known, doubted) = {
            let state = self.lock();
            let doubted = state.doubted.contains(&subject.shard);
            (state.known.get(&subject.shard).copied(), doubted)
        };
        let found = (
            data.handle.identity()?,
            meta.as_ref()
                .map(|meta| meta.handle.identity())
                .transpose()?,
        );
        if subject.entry.raw_file().is_some() && !data.own {
            let place = self.catalog.place(subject.shard);
            return Ok(Admitted::Foreign(FileError::Untold { place }.into()));
        }
        let own = data.own && meta.as_ref().is_none_or(|meta| meta.own);
        let refused = |error: DatasetError| {
            // A storage error says nothing about the content.
            if matches!(error, DatasetError::Storage(_)) {
                Err(ReaderError::from(error))
            } else if own {
                Ok(Admitted::Damaged)
            } else {
                Ok(Admitted::Foreign(error.into()))
            }
        };
        let files = [
            Some((subject.entry.data(), &data)),
            subject.entry.table().zip(meta.as_ref()),
        ];
        let files = || files.iter().flatten().copied();
        let demands: Vec<_> = files()
            .flat_map(|(info, _)| demands(&self.catalog, subject.shard, info))
            .collect();
        let identities: Vec<_> = std::iter::once(found.0).chain(found.1).collect();
        let verified_stamp = marker
            .as_ref()
            .filter(|_| own && !demands.is_empty())
            .zip(VerifiedStamp::of(&identities, &demands));
        let vouched = match verified_stamp {
            // Other processes must verify the files again as well.
            Some((marker, _)) if doubted => {
                marker.verified_stamp(None)?;
                false
            }
            Some((marker, verified_stamp)) => marker.vouches(verified_stamp)?,
            None => false,
        };
        for (info, file) in files() {
            let trust = if vouched || known == Some(found) || (fresh && file.own) {
                Trust::Known
            } else {
                Trust::Nobody
            };
            let checked = check_file(&self.catalog, subject.shard, info, &file.handle, trust);
            if let Err(error) = checked {
                return refused(error);
            }
        }
        if let Some((marker, verified_stamp)) = verified_stamp.filter(|_| !vouched) {
            // If the stamp cannot be written, the next process verifies the files itself.
            let _ = marker.verified_stamp(Some(verified_stamp));
        }
        if doubted {
            self.lock().doubted.remove(&subject.shard);
        }
        if !open {
            return Ok(Admitted::Yes(Outcome::Ready { known: Some(found) }));
        }
        let meta = meta.as_ref().map(|meta| &meta.handle);
        let dir = folder.local();
        let shard = match OpenShard::map(&self.catalog, subject.shard, dir, &data.handle, meta) {
            Ok(shard) => shard,
            Err(error) => return refused(error),
        };
        let pin = marker.filter(|_| self.may_pin());
        if subject.entry.needs_file() {
            if pin.is_none() && self.options.limit.is_some() {
                let place = self.catalog.place(subject.shard);
                let pins = self.options.pins as u64;
                return Err(CacheError::Pins { place, pins }.into());
            }
            // The caller gets the path and holds the shard; the pin must last as long.
            return Ok(Admitted::Yes(Outcome::Open {
                shard: Arc::new(shard.with_pin(pin)),
                pin: None,
                memory: 0,
                known: Some(found),
            }));
        }
        Ok(Admitted::Yes(Outcome::Open {
            shard: Arc::new(shard),
            pin,
            memory: 0,
            known: Some(found),
        }))
    }

    /// Returns whether this process may pin another shard; each pin is an open file.
    fn may_pin(&self) -> bool {
        self.capacity.is_limited() && self.lock().pins() < self.options.pins
    }

    /// Returns a compressed file found in the folder, which saves a fetch. It is verified like a fetched file, so its
    /// origin does not matter.
    pub(crate) fn zip_at_hand(&self, shard: usize, kind: PartKind) -> Option<Vec<u8>> {
        let (stream, number) = self.catalog.stream_of(shard)?;
        stream.origin.as_ref()?;
        let mut parts = stream.shards.get(number)?.parts();
        let part = match kind {
            PartKind::Data => parts.next(),
            PartKind::Meta => parts.nth(1),
        };
        let (zip, _) = part?.zip?;
        let file = stream.local.open_file(&zip.basename).ok()?;
        if file.len() != zip.bytes {
            return None;
        }
        file.read_all(self.catalog.limits().shard_bytes).ok()
    }

    /// Verifies the fetched files and stores the shard in its reserved place.
    pub(crate) fn finish(&self, shard: usize) -> Outcome {
        let (fetched, place, needed, failures) = {
            let mut state = self.lock();
            let Some(work) = state.work(shard) else {
                return Outcome::NotNow;
            };
            let stage = std::mem::replace(&mut work.stage, Stage::Running);
            let Stage::Fetched(fetched) = stage else {
                work.stage = stage;
                return Outcome::NotNow;
            };
            let place = std::mem::take(&mut work.place);
            (fetched, place, work.needed, work.failures)
        };
        let raw = fetched.and_then(|files| {
            check_fetched(self.catalog.limits(), &files)?;
            Ok(unpack(&self.catalog, shard, files)?)
        });
        match raw {
            Ok(raw) => self
                .settle_raw(shard, raw, place, needed)
                .unwrap_or_else(Outcome::Failed),
            // Corruption may come from the transfer, so it is retried. A replaced or missing file is permanent.
            Err(error) if error.kind() == ErrorKind::Corrupt && !is_lasting(&error) => {
                let mut state = self.lock();
                state.stats.bad_fetches += 1;
                if failures + 1 < ATTEMPTS {
                    if let Some(work) = state.work(shard) {
                        work.failures += 1;
                    }
                    return Outcome::Fetch(place);
                }
                drop(state);
                self.give_up(shard, place);
                let entry = self.catalog.entry(shard);
                let error = CacheError::BadShard {
                    place: self.catalog.place(shard),
                    attempts: failures + 1,
                    first_sample: self.catalog.first_sample(shard),
                    samples: entry.map_or(0, Entry::samples),
                    source: Box::new(error),
                };
                Outcome::Failed(error.into())
            }
            Err(error) => {
                self.give_up(shard, place);
                Outcome::Failed(error)
            }
        }
    }

    /// Releases the reservation of a shard that cannot be fetched.
    fn give_up(&self, shard: usize, place: Place) {
        match place {
            Place::Unknown => {}
            Place::Memory(bytes) => {
                let mut state = self.lock();
                state.memory = state.memory.saturating_sub(bytes);
            }
            Place::Disk(marker) => {
                // A later process cleans up what cannot be removed now.
                let _removed = self.capacity.discard(shard, marker, self);
            }
        }
    }

    fn settle_raw(
        &self,
        shard: usize,
        raw: Raw,
        place: Place,
        needed: bool,
    ) -> Result<Outcome, ReaderError> {
        let marker = match place {
            Place::Disk(marker) => marker,
            Place::Memory(bytes) => return self.open_memory(shard, raw, bytes),
            Place::Unknown => return Ok(Outcome::NotNow),
        };
        let subject = self.subject(shard)?;
        let Some(folder) = &subject.folder else {
            return Ok(Outcome::NotNow);
        };
        if let Err(error) = self.write(&subject, folder, &marker, &raw) {
            self.capacity.discard(shard, marker, self)?;
            if is_too_large(&error) {
                self.lock().unwritable.insert(shard);
            }
            if !is_full(&error) || is_too_large(&error) && subject.entry.needs_file() {
                return Err(error.into());
            }
            if subject.entry.needs_file() {
                return Ok(if needed {
                    Outcome::Full
                } else {
                    Outcome::NotNow
                });
            }
            return self.bypass(shard, raw, needed);
        }
        let mut marker = marker;
        let Some(files) = folder.files(subject.entry, Some(&marker))? else {
            // Without working locks, another process may have removed the files.
            if subject.entry.needs_file() {
                return Ok(Outcome::NotNow);
            }
            return self.bypass(shard, raw, needed);
        };
        drop(raw);
        folder.share(&mut marker)?;
        match self.admit(&subject, folder, files, Some(marker), true, needed)? {
            Admitted::Yes(outcome) => Ok(outcome),
            Admitted::Foreign(source) => Err(CacheError::Foreign {
                path: folder.local().path_of(&subject.entry.data().basename),
                source: Box::new(source),
            }
            .into()),
            // The files changed right after they were written.
            Admitted::Damaged => Err(self.catalog.changed(shard).into()),
        }
    }

    /// Keeps a fetched shard for which there is no space on disk: in memory if it fits, otherwise for the next
    /// samples.
    fn bypass(&self, shard: usize, raw: Raw, needed: bool) -> Result<Outcome, ReaderError> {
        let bytes = (raw.data.len() + raw.meta.as_ref().map_or(0, Vec::len)) as u64;
        let urgent = self.wanted(shard).is_some_and(|(_, wanted)| wanted.urgent);
        {
            let mut state = self.lock();
            // The fetch of a later shard is already paid for. Leave half of the memory to shards that are needed
            // sooner.
            let half = self.options.memory / 2;
            if !needed && !urgent && state.memory.saturating_add(bytes) > half {
                return Ok(Outcome::NotNow);
            }
            if self.fits_memory(&state, bytes, needed) {
                state.memory = state.memory.saturating_add(bytes);
                state.stats.bypasses += 1;
                drop(state);
                return self.open_memory(shard, raw, bytes);
            }
        }
        if !needed {
            return Ok(Outcome::NotNow);
        }
        let open = OpenShard::in_memory(&self.catalog, shard, raw.data, raw.meta)?;
        self.keep_uncached(Arc::new(open), bytes);
        Ok(Outcome::Alone)
    }

    /// Returns whether a shard fits in memory. One needed shard always fits, however large.
    fn fits_memory(&self, state: &State, bytes: u64, needed: bool) -> bool {
        state.memory.saturating_add(bytes) <= self.options.memory || (needed && state.memory == 0)
    }

    /// Returns whether a shard is larger than a file on this disk can be.
    fn is_unwritable(&self, shard: usize) -> bool {
        self.lock().unwritable.contains(&shard)
    }

    fn open_memory(&self, shard: usize, raw: Raw, bytes: u64) -> Result<Outcome, ReaderError> {
        match OpenShard::in_memory(&self.catalog, shard, raw.data, raw.meta) {
            Ok(shard) => Ok(Outcome::Open {
                shard: Arc::new(shard),
                pin: None,
                memory: bytes,
                known: None,
            }),
            Err(error) => {
                self.give_up(shard, Place::Memory(bytes));
                Err(error.into())
            }
        }
    }

    /// Writes a shard to the folder. If the disk is full, evicts other shards and retries.
    fn write(
        &self,
        subject: &Subject<'_>,
        folder: &Folder,
        marker: &Marker,
        raw: &Raw,
    ) -> Result<(), StorageError> {
        let mut files: Vec<(&str, &[u8])> = Vec::with_capacity(4);
        let raws = std::iter::once(&raw.data).chain(&raw.meta);
        for (part, bytes) in subject.entry.parts().zip(raws) {
            // An uncompressed file of a local dataset is already in the folder.
            if subject.stream.origin.is_some() || part.zip.is_some() {
                files.push((&part.raw.basename, bytes));
            }
        }
        if subject.stream.keep_zip && subject.stream.origin.is_some() {
            let parts = subject.entry.parts();
            for ((zip, _), bytes) in parts.filter_map(|part| part.zip).zip(&raw.zips) {
                files.push((&zip.basename, bytes));
            }
        }
        let mut written = folder.write(marker, &files);
        for again in [false, true] {
            match written {
                Err(error) if is_full(&error) && !is_too_large(&error) => {
                    let wanted = self.wanted(subject.shard);
                    let more = wanted.map(|(_, wanted)| {
                        // The shard itself is already reserved.
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

fn check_fetched(limits: &Limits, files: &[Vec<u8>]) -> Result<(), ReaderError> {
    for file in files {
        Limits::check("shard-bytes", file.len() as u64, limits.shard_bytes).map_err(|source| {
            DatasetError::Limit {
                path: PathBuf::new(),
                source,
            }
        })?;
    }
    Ok(())
}

/// Returns whether a retry cannot help: a raw file changed since it was listed, a file is missing, or the index lacks
/// a hash.
fn is_lasting(error: &ReaderError) -> bool {
    match error {
        ReaderError::Dataset(DatasetError::Files(error)) => error.is_change(),
        error => matches!(
            error,
            ReaderError::Dataset(
                DatasetError::ShardMissing { .. } | DatasetError::HashAbsent { .. }
            )
        ),
    }
}
