//! What is done to one shard: find it, make room for it, check it, write it, open it. Files are touched here, so the
//! table is not locked.

use std::path::PathBuf;
use std::sync::Arc;

use shardmill_core::{Diagnostic as _, ErrorKind, Limits};
use shardmill_storage::{FileIdentity, StorageError};

use crate::catalog::Stream;
use crate::entry::Entry;
use crate::error::ReaderError;
use crate::files::FileError;
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
            self.capacity.check_room(&[shard])?;
        }
        let Some(folder) = &subject.folder else {
            return Ok(self.to_memory(&subject, &wanted, needed));
        };
        match self.capacity.begin(subject.place, wanted.now, self) {
            Err(ReaderError::Storage(error)) if is_full(&error) => {
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
                            if self.capacity.drop_damaged(shard, self)? == Evicted::Stays {
                                return Ok(self.to_memory(&subject, &wanted, needed));
                            }
                        }
                        // Of a compressed dataset that is read in place, the compressed file is what counts.
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
                Look::Away if self.is_unwritable(shard) => {
                    return Ok(self.to_memory(&subject, &wanted, needed));
                }
                Look::Away => match self.capacity.reserve(wanted, self) {
                    Ok(Reserved::Held(marker)) => return Ok(Outcome::Fetch(Place::Disk(marker))),
                    Ok(Reserved::Here) => {}
                    Ok(Reserved::Busy { pid }) => return Ok(later(pid)),
                    Ok(Reserved::NoRoom) => return Ok(self.to_memory(&subject, &wanted, needed)),
                    // Not even for a marker: for it and its shard others have to leave.
                    Err(ReaderError::Storage(error)) if is_full(&error) => {
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

    /// Opens a shard of a dataset that is read where it lies.
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
        let verified_stamp = marker
            .as_ref()
            .filter(|_| own && !demands.is_empty())
            .zip(VerifiedStamp::of(&identities, &demands));
        let vouched = match verified_stamp {
            // Others are to look for themselves as well.
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
            // Where it cannot be written down, the next process checks for itself.
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
        self.capacity.is_limited() && self.lock().pins() < self.options.pins
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

    /// For what is in memory and finds no place on the disk: it stays in memory where there is room, or for the samples
    /// that are read next.
    fn bypass(&self, shard: usize, raw: Raw, needed: bool) -> Result<Outcome, ReaderError> {
        let bytes = (raw.data.len() + raw.meta.as_ref().map_or(0, Vec::len)) as u64;
        let urgent = self.wanted(shard).is_some_and(|(_, wanted)| wanted.urgent);
        {
            let mut state = self.lock();
            // What is needed later was fetched all the same. It leaves half of the memory to what is needed sooner.
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

    /// Returns whether a shard may be held in memory. One may in any case, however large.
    fn fits_memory(&self, state: &State, bytes: u64, needed: bool) -> bool {
        state.memory.saturating_add(bytes) <= self.options.memory || (needed && state.memory == 0)
    }

    /// Returns whether a shard is too large to be written.
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
                Err(error)
            }
        }
    }

    /// Writes a shard to the folder. A full disk is a limit from then on: others leave, and it is tried again.
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
            // What is stored as it is read lies here already where the dataset does.
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
                        // The shard itself is reserved.
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
            ReaderError::Limit {
                path: PathBuf::new(),
                source,
            }
        })?;
    }
    Ok(())
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
