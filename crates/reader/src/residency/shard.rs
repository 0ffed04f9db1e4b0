//! What is done to one shard: find it, make room for it, check it, write it, open it. Files are touched here, so the
//! table is not locked.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

use shardmill_core::{Diagnostic as _, ErrorKind, Limits};
use shardmill_storage::{FileIdentity, StorageError};

use crate::catalog::Stream;
use crate::entry::Entry;
use crate::error::ReaderError;
use crate::files::FileError;
use crate::open::OpenShard;
use crate::residency::books::{Reserved, Wanted, is_kept};
use crate::residency::check::{Raw, Trust, check_file, demands, unpack};
use crate::residency::engine::{ATTEMPTS, Engine, NEAR};
use crate::residency::error::CacheError;
use crate::residency::folder::{Evicted, Files, Folder, Look, Marker, weight};
use crate::residency::origin::{PartKind, Piece, check_listed, missing, named, no_shard};
use crate::residency::state::{Place, Slot, Stage};
use crate::residency::vouch::Voucher;
use crate::residency::{Access, Cancel};

/// The files of a shard as they were when they were checked.
pub(crate) type Known = (FileIdentity, Option<FileIdentity>);

/// The encoded bytes of a sample, and where they begin in its shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extract {
    pub(crate) begin: u64,
    pub(crate) bytes: Vec<u8>,
}

impl Extract {
    pub(crate) fn piece(&self) -> crate::open::Piece<'_> {
        crate::open::Piece {
            begin: self.begin,
            bytes: &self.bytes,
        }
    }
}

/// What came of a job.
pub(crate) enum Outcome {
    Open {
        shard: Arc<OpenShard>,
        pin: Option<Marker>,
        memory: u64,
        known: Option<Known>,
    },
    /// It is on the disk; nobody has asked to open it yet.
    Ready {
        known: Option<Known>,
    },
    /// It has to be fetched, and there is a place for it.
    Fetch(Place),
    /// Another process is at it.
    Later {
        path: PathBuf,
        pid: Option<u32>,
    },
    /// There is no room for it now, and it is of use only on the disk.
    Full,
    /// There is no place for it; somebody needs it all the same.
    Alone,
    /// There is no place for it, and no hurry.
    NotNow,
    Failed(ReaderError),
}

/// What came of checking files that were found.
enum Admitted {
    Yes(Outcome),
    /// The cache wrote them, and they are no longer what it wrote.
    Damaged,
    /// Somebody else's, and not the shard.
    Foreign(ReaderError),
}

/// A shard and what belongs to it.
struct Subject<'a> {
    shard: usize,
    stream: &'a Stream,
    /// The number of the stream.
    place: usize,
    /// The number of the shard in it.
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
            self.books.folder(place)?
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

    /// Finds a shard, or a place to fetch it to.
    pub(crate) fn start(&self, shard: usize) -> Outcome {
        self.try_start(shard).unwrap_or_else(Outcome::Failed)
    }

    fn try_start(&self, shard: usize) -> Result<Outcome, ReaderError> {
        /// Each attempt loses only to somebody who made or removed the shard in this moment.
        const TRIES: usize = 16;

        let Some((needed, wanted)) = self.wanted(shard) else {
            return Ok(Outcome::NotNow);
        };
        let subject = self.subject(shard)?;
        if !is_kept(subject.stream, subject.entry) {
            return self.open_in_place(&subject);
        }
        if subject.entry.needs_file() {
            self.books.check_room(&[shard])?;
        }
        let Some(folder) = &subject.folder else {
            return Ok(self.to_memory(&subject, &wanted, needed));
        };
        self.books.begin(subject.place, wanted.now, self)?;
        let later = |pid| Outcome::Later {
            path: folder.own().path_of(&subject.number.to_string()),
            pid,
        };
        for _ in 0..TRIES {
            match folder.look(subject.number, subject.entry)? {
                Look::Busy { pid } => return Ok(later(pid)),
                Look::Here { .. } if !needed && wanted.at > wanted.now.saturating_add(NEAR) => {
                    // Reading all that is there from end to end would only be in the way of what is needed now.
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
                            if self.books.drop_damaged(shard, self)? == Evicted::Stays {
                                return Ok(self.to_memory(&subject, &wanted, needed));
                            }
                        }
                        // Of a compressed data set that is read in place, the compressed file is what counts.
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
                // What is needed sooner has its turn first.
                Look::Away if !needed && self.is_behind(&wanted) => return Ok(Outcome::NotNow),
                Look::Away => match self.books.reserve(wanted, self) {
                    Ok(Reserved::Held(marker)) => return Ok(Outcome::Fetch(Place::Disk(marker))),
                    Ok(Reserved::Here) => {}
                    Ok(Reserved::Busy { pid }) => return Ok(later(pid)),
                    Ok(Reserved::NoRoom) => return Ok(self.to_memory(&subject, &wanted, needed)),
                    // Not even for a marker.
                    Err(ReaderError::Storage(error)) if is_full(&error) => {
                        return Ok(self.to_memory(&subject, &wanted, needed));
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

    /// Whether there was no room just now for a shard that is needed sooner.
    fn is_behind(&self, wanted: &Wanted) -> bool {
        let state = self.lock();
        state
            .blocked
            .is_some_and(|(room, _, at)| room == state.room && at < wanted.at)
    }

    /// A place in memory, where there is one, for what somebody waits for or will wait for soon.
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
        // One at least, however large.
        let fits = state.memory.saturating_add(bytes) <= self.options.memory
            || (needed && state.memory == 0);
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

    /// Opens a shard of a data set that is read where it lies.
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
            // PERF: a million files are not remembered one by one.
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

    /// Checks files that lie in the folder, and opens them where that is asked for. `fresh`: those that are the cache's
    /// own were written just now.
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
        let refused = |error: ReaderError| {
            // Whether it can be read is one thing, whether it is the shard another.
            if matches!(error, ReaderError::Storage(_)) {
                Err(error)
            } else if own {
                Ok(Admitted::Damaged)
            } else {
                Ok(Admitted::Foreign(error))
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
        let voucher = marker
            .as_ref()
            .filter(|_| own && !demands.is_empty())
            .zip(Voucher::of(&identities, &demands));
        let vouched = match voucher {
            // Others are to look for themselves as well.
            Some((marker, _)) if doubted => {
                marker.vouch(None)?;
                false
            }
            Some((marker, voucher)) => marker.vouches(voucher)?,
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
        if let Some((marker, voucher)) = voucher.filter(|_| !vouched) {
            // Where it cannot be written down, the next process checks for itself.
            let _ = marker.vouch(Some(voucher));
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
            // Whoever is given the path holds the shard, and so the pin.
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

    /// Each pin is an open file.
    fn may_pin(&self) -> bool {
        self.options.limit.is_some() && self.lock().pins() < self.options.pins
    }

    /// A compressed file that somebody left in the folder saves fetching it. Whatever is wrong with it does no harm:
    /// it is checked like one that was fetched.
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

    /// Checks what was fetched, and puts it where it belongs.
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
            unpack(&self.catalog, shard, files)
        });
        match raw {
            Ok(raw) => self
                .settle_raw(shard, raw, place, needed)
                .unwrap_or_else(Outcome::Failed),
            // Damage may have come on the way; that a file was replaced or is not there stays so.
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

    /// Gives back the place of a shard that does not come.
    fn give_up(&self, shard: usize, place: Place) {
        match place {
            Place::Unknown => {}
            Place::Memory(bytes) => {
                let mut state = self.lock();
                state.memory = state.memory.saturating_sub(bytes);
            }
            Place::Disk(marker) => {
                // What cannot be removed now is cleaned up by whoever comes next.
                let _removed = self.books.discard(shard, marker, self);
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
            self.books.discard(shard, marker, self)?;
            if !is_full(&error) || subject.entry.needs_file() {
                return Err(error.into());
            }
            return self.bypass(shard, raw, needed);
        }
        let mut marker = marker;
        let Some(files) = folder.files(subject.entry, Some(&marker))? else {
            // Where locks do nothing, somebody may have removed it already.
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
            // Changed in the moment since it was written.
            Admitted::Damaged => Err(ReaderError::ShardChanged {
                place: self.catalog.place(shard),
            }),
        }
    }

    /// For what is in memory and finds no place on the disk.
    fn bypass(&self, shard: usize, raw: Raw, needed: bool) -> Result<Outcome, ReaderError> {
        if !needed {
            return Ok(Outcome::NotNow);
        }
        let bytes = (raw.data.len() + raw.meta.as_ref().map_or(0, Vec::len)) as u64;
        {
            let mut state = self.lock();
            state.memory = state.memory.saturating_add(bytes);
            state.stats.bypasses += 1;
        }
        self.open_memory(shard, raw, bytes)
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
                Err(error)
            }
        }
    }

    /// Writes a shard to the folder. When the disk is full, others leave and it is tried once more.
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
            // What is stored as it is read lies here already where the data set does.
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
        let error = match folder.write(marker, &files) {
            Err(error) if is_full(&error) => error,
            other => return other,
        };
        let Some((_, wanted)) = self.wanted(subject.shard) else {
            return Err(error);
        };
        let bytes = weight(subject.entry, subject.stream.keep_zip);
        match self.books.free(bytes, wanted.at, wanted.now, self) {
            Ok(true) => folder.write(marker, &files),
            Ok(false) | Err(_) => Err(error),
        }
    }

    /// The encoded bytes of samples: see `Residency::samples`.
    pub(crate) fn samples(
        self: &Arc<Self>,
        wanted: &[(usize, u64)],
    ) -> Result<Vec<Extract>, ReaderError> {
        let mut found: Vec<Option<Extract>> = vec![None; wanted.len()];
        let mut pieces = Vec::new();
        for (place, &(shard, at)) in wanted.iter().enumerate() {
            let entry = self
                .catalog
                .entry(shard)
                .ok_or_else(|| no_shard(&self.catalog, shard))?;
            if self.is_read_alone(shard)
                && let Some(range) = entry.place_of(at)
            {
                let part = if entry.table().is_some() {
                    PartKind::Meta
                } else {
                    PartKind::Data
                };
                // INVARIANT: below the number of samples, so that the table holds it.
                if at >= entry.samples() {
                    return Err(self.broken(shard));
                }
                pieces.push((place, Piece { shard, part, range }));
                continue;
            }
            let open = self.open_whole(shard)?;
            let piece = open.sample(at).ok_or_else(|| self.broken(shard))?;
            let extract = Extract {
                begin: piece.begin,
                bytes: piece.bytes.to_vec(),
            };
            if let Err(error) = open.check(&self.catalog) {
                self.distrust(shard);
                return Err(error);
            }
            if let Some(slot) = found.get_mut(place) {
                *slot = Some(extract);
            }
        }
        self.read_alone(pieces, &mut found)?;
        Ok(found.into_iter().map(Option::unwrap_or_default).collect())
    }

    /// Fetches where samples lie, then the samples, all at once each time.
    fn read_alone(
        &self,
        pieces: Vec<(usize, Piece)>,
        found: &mut [Option<Extract>],
    ) -> Result<(), ReaderError> {
        if pieces.is_empty() {
            return Ok(());
        }
        let (places, offsets): (Vec<usize>, Vec<Piece>) = pieces.into_iter().unzip();
        let ends = self.fetch.read_ranges(&self.catalog, &offsets);
        let mut wanted = Vec::with_capacity(offsets.len());
        for (piece, bytes) in offsets.into_iter().zip(ends) {
            let bytes = bytes?;
            let entry = self.catalog.entry(piece.shard);
            let range = entry.and_then(|entry| entry.range_in(&bytes));
            let range = range.ok_or_else(|| self.broken(piece.shard))?;
            let limit = self.catalog.limits().sample_bytes;
            Limits::check("sample-bytes", range.end - range.start, limit).map_err(|source| {
                ReaderError::Limit {
                    path: PathBuf::from(self.catalog.place(piece.shard).file),
                    source,
                }
            })?;
            wanted.push(Piece {
                shard: piece.shard,
                part: PartKind::Data,
                range,
            });
        }
        let read = self.fetch.read_ranges(&self.catalog, &wanted);
        self.lock().stats.alone_samples += wanted.len() as u64;
        for ((place, piece), bytes) in places.into_iter().zip(wanted).zip(read) {
            let bytes = bytes?;
            if bytes.len() as u64 != piece.range.end - piece.range.start {
                return Err(self.broken(piece.shard));
            }
            if let Some(slot) = found.get_mut(place) {
                *slot = Some(Extract {
                    begin: piece.range.start,
                    bytes,
                });
            }
        }
        Ok(())
    }

    /// Whether samples of a shard are fetched by themselves: it is not here, and need not be checked as a whole.
    fn is_read_alone(&self, shard: usize) -> bool {
        let here = matches!(
            self.lock().slots.get(shard),
            Some(Slot::Open(_) | Slot::Ready)
        );
        !here && self.is_plain(shard)
    }

    /// Whether a shard lies elsewhere as it is read, and need not be checked as a whole.
    pub(crate) fn is_plain(&self, shard: usize) -> bool {
        let Some((stream, number)) = self.catalog.stream_of(shard) else {
            return false;
        };
        let entry = stream.shards.get(number);
        stream.origin.is_some()
            && self.catalog.validate(shard).is_none()
            && entry.is_some_and(|entry| !entry.is_packed() && entry.place_of(0).is_some())
    }

    /// A shard as a whole, in the cache or for this once.
    fn open_whole(self: &Arc<Self>, shard: usize) -> Result<Arc<OpenShard>, ReaderError> {
        if let Some(open) = self.get(shard) {
            return Ok(open);
        }
        let last = self
            .last
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some(last) = last.filter(|last| last.number() == shard) {
            return Ok(last);
        }
        let now = self.lock().now;
        let found = self.need(&[shard], now, &Cancel::new())?;
        match found.into_iter().next() {
            Some(Access::Open(open)) => Ok(open),
            Some(Access::Alone) | None => self.load_once(shard),
        }
    }

    /// Makes a shard readable as a whole, now.
    pub(crate) fn bring(self: &Arc<Self>, shard: usize) -> Result<(), ReaderError> {
        let now = self.lock().now;
        // Where there is no room for it, its samples go on to be read one by one.
        self.need(&[shard], now, &Cancel::new()).map(drop)
    }

    /// Fetches a shard for the sake of a sample. Only the last one is kept.
    pub(crate) fn load_once(&self, shard: usize) -> Result<Arc<OpenShard>, ReaderError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = None;
        let parts = self
            .catalog
            .entry(shard)
            .map_or(0, |entry| entry.parts().count());
        let mut files = Vec::with_capacity(parts);
        for kind in [PartKind::Data, PartKind::Meta].into_iter().take(parts) {
            let (send, receive) = std::sync::mpsc::channel();
            let done = Box::new(move |result| {
                // Whoever waited may have given up.
                let _received = send.send(result);
            });
            let pending = self.fetch.fetch(&self.catalog, shard, kind, done);
            // The fetch has deadlines of its own; one that is lost drops the sender.
            let lost = |_| {
                ReaderError::from(CacheError::WorkerLost {
                    place: self.catalog.place(shard),
                })
            };
            let result = receive.recv_timeout(self.options.timeout).map_err(lost)?;
            drop(pending);
            files.push(result?);
        }
        let raw = unpack(&self.catalog, shard, files)?;
        let open = OpenShard::in_memory(&self.catalog, shard, raw.data, raw.meta)?;
        let open = Arc::new(open);
        *last = Some(Arc::clone(&open));
        Ok(open)
    }

    /// A sample whose place in its shard cannot be.
    fn broken(&self, shard: usize) -> ReaderError {
        ReaderError::ShardChanged {
            place: self.catalog.place(shard),
        }
    }
}

fn check_fetched(limits: &Limits, files: &[Vec<u8>]) -> Result<(), ReaderError> {
    for file in files {
        Limits::check("shard-bytes", file.len() as u64, limits.shard_bytes).map_err(|source| {
            ReaderError::Limit {
                path: PathBuf::new(),
                source,
            }
        })?;
    }
    Ok(())
}

/// Whether an error says that there is no space left.
fn is_full(error: &StorageError) -> bool {
    error.id() == "disk-full"
}

/// Whether to fetch once more cannot help: a raw file is not the one that was listed, a file is not there, the index lacks
/// a hash.
fn is_lasting(error: &ReaderError) -> bool {
    match error {
        ReaderError::Files(error) => error.is_change(),
        error => matches!(
            error,
            ReaderError::ShardMissing { .. } | ReaderError::HashAbsent { .. }
        ),
    }
}
