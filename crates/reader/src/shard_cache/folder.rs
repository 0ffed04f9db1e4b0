//! The folder in which the shards of a stream are cached, and the cache's own files.
//!
//! Shards have their own names, as other readers of the format expect. The cache keeps its own files next to the
//! folder or inside it (see [`capacity_folder`]). The path is `.<its name>.shardmill/cache-<16 digits of the index's
//! hash>/`, or the same in `.shardmill/`:
//!
//! - A *marker* for each shard, named after its number. It is created before the fetch and reserves space. Later it
//!   lists the files that the cache wrote, and which of them were verified (see `verified_stamp`). The cache owns only
//!   the listed files.
//! - `lock`, held while space is counted and reserved, and never removed.
//! - Temporary files, `tmp-<number>-…`, before they are renamed to the shard's name.
//! - Checkpoints of the random number generator, `walk-<epoch>` (see `walks`). They are unrelated to shards.
//!
//! INVARIANT: a marker lists its files before they are renamed, and is removed after them. No file of the cache is
//! ever without a marker.

#[cfg(test)]
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use shardmill_mds::FileInfo;
use shardmill_storage::{
    Claim, ClaimMode, ClaimState, Dir, EntryKind, FileBirth, FileHandle, PublishMode, Space,
    StorageError, TempFile,
};

use crate::error::ReaderError;
use crate::shard_cache::verified_stamp::VerifiedStamp;
use shardmill_dataset::{Entry, Shards};
use shardmill_dataset::{FileList, capacity_folder};

/// The size that a marker counts as; no marker is larger.
pub(crate) const MARKER_BYTES: u64 = 256;

/// The age from which a temporary file counts as abandoned if locks are not available.
const STALE_TEMP: Duration = Duration::from_secs(3600);

/// Files of a shard that a marker can list: raw and compressed, data and offsets.
const MOST_FILES: usize = 4;

/// An open cache folder.
#[derive(Debug)]
pub(crate) struct Folder {
    local: Dir,
    own: Dir,
    /// The device of both folders.
    device: u64,
    /// Whether to take locks. Tests turn this off to simulate file systems on which locks do nothing.
    locks: bool,
    /// How many writes still fail with a full disk.
    #[cfg(test)]
    pub(crate) full: AtomicU32,
    /// How many opens before a removal still fail.
    #[cfg(test)]
    pub(crate) stuck: AtomicU32,
}

/// A marker that is locked, or that counts as locked on file systems without locks.
#[derive(Debug)]
pub(crate) struct Marker {
    number: usize,
    claim: Claim,
}

/// A file of a shard in the folder.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) handle: FileHandle,
    /// Whether the cache wrote the file.
    pub(crate) own: bool,
}

/// The raw files of a shard: data, and offsets if they are in a separate file.
pub(crate) type Files = (Found, Option<Found>);

/// The state of a shard in the folder.
#[derive(Debug)]
pub(crate) enum Look {
    /// All raw files exist.
    Here {
        files: Box<Files>,
        /// The shard's marker, locked shared, if it has one.
        marker: Option<Marker>,
    },
    /// Files are missing, and no process is known to fetch them.
    Away,
    /// Another process fetches or removes the shard.
    Busy { pid: Option<u32> },
}

/// The result of claiming a marker.
#[derive(Debug)]
pub(crate) enum Claimed {
    Held(Marker),
    Busy { pid: Option<u32> },
}

/// The result of removing a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evicted {
    Gone,
    /// It did not exist.
    Absent,
    /// A process reads or fetches it, or it cannot be removed.
    Stays,
}

/// The content of the cache's own folder.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Numbers of the shards with a marker.
    pub(crate) markers: Vec<usize>,
    /// Temporary files with the number of their shard.
    pub(crate) temps: Vec<(Option<usize>, String)>,
}

/// The content of a marker.
#[derive(Debug, Default, PartialEq, Eq)]
struct Note {
    pid: Option<u32>,
    /// The files written; `None` for a reservation.
    files: Option<Vec<FileBirth>>,
}

impl Note {
    fn text(files: Option<&[FileBirth]>) -> String {
        let mut text = format!("{}\n", std::process::id());
        for file in files.unwrap_or_default() {
            text.push_str(&format!("{} {}\n", file.inode, file.born));
        }
        if files.is_some() {
            // Without this line, a reader treats the note as truncated.
            text.push_str("end\n");
            text.push_str(VerifiedStamp::NONE);
        }
        text
    }

    /// Parses a note; parts that cannot be read count as missing.
    fn parse(bytes: &[u8]) -> Self {
        let text = std::str::from_utf8(bytes).unwrap_or_default();
        let mut lines = text.lines();
        let pid = lines.next().and_then(|line| line.parse().ok());
        let mut files = Vec::new();
        for line in lines {
            if line == "end" {
                return Self {
                    pid,
                    files: Some(files),
                };
            }
            let Some((inode, born)) = line.split_once(' ') else {
                break;
            };
            let (Ok(inode), Ok(born)) = (inode.parse(), born.parse()) else {
                break;
            };
            files.push(FileBirth { inode, born });
        }
        Self { pid, files: None }
    }
}

/// The owner that uses files, and its epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PostExitHold {
    owner: u64,
    epoch: u64,
}

impl PostExitHold {
    pub(crate) const fn new(owner: u64, epoch: u64) -> Self {
        Self { owner, epoch }
    }
}

/// How long files stay pinned after a loader process exits, unless its owner begins another epoch.
const LEFT: Duration = Duration::from_secs(60);

/// Returns the text after the end of a note: the verified stamp, then the post-exit hold.
fn behind_end(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    text.split_once("\nend\n").map(|(_, rest)| rest)
}

/// Returns until when files are held after the process exited, and for which owner and epoch.
fn left_in_use(bytes: &[u8]) -> Option<(u64, PostExitHold)> {
    let rest = behind_end(bytes)?.get(VerifiedStamp::BYTES..)?;
    let rest = rest.strip_prefix("until ")?;
    let mut words = rest.lines().next()?.split(' ');
    let mut word = || words.next()?.parse().ok();
    let (until, owner, epoch) = (word()?, word()?, word()?);
    Some((until, PostExitHold { owner, epoch }))
}

/// Returns the seconds since 1970.
pub(crate) fn seconds() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

impl Marker {
    /// Keeps the files pinned after this process exits: for 60 seconds, or until the owner's next epoch.
    pub(crate) fn leave_in_use(&self, post_exit_hold: PostExitHold) -> Result<(), StorageError> {
        let until = seconds().saturating_add(LEFT.as_secs());
        let line = format!(
            "until {until:020} {:020} {:020}\n",
            post_exit_hold.owner, post_exit_hold.epoch
        );
        self.write_behind_end(VerifiedStamp::BYTES, &line)
    }

    /// Returns whether this stamp is in the marker: another process has verified exactly these files.
    pub(crate) fn vouches(&self, verified_stamp: VerifiedStamp) -> Result<bool, StorageError> {
        let bytes = self.bytes()?;
        Ok(behind_end(&bytes).and_then(VerifiedStamp::parse) == Some(verified_stamp))
    }

    /// Records for other processes that these files were verified; `None` clears the record.
    pub(crate) fn verified_stamp(
        &self,
        verified_stamp: Option<VerifiedStamp>,
    ) -> Result<(), StorageError> {
        let line = verified_stamp.map(VerifiedStamp::line);
        self.write_behind_end(0, line.as_deref().unwrap_or(VerifiedStamp::NONE))
    }

    /// Writes after the end of a note, in place and with a fixed length, so that a concurrent reader sees a complete
    /// note.
    fn write_behind_end(&self, offset: usize, line: &str) -> Result<(), StorageError> {
        const END: &[u8] = b"\nend\n";

        let bytes = self.bytes()?;
        let end = bytes.windows(END.len()).position(|found| found == END);
        match end {
            Some(end) => {
                let at = end + END.len() + offset;
                self.claim.write(at as u64, line.as_bytes())
            }
            None => Ok(()),
        }
    }

    fn bytes(&self) -> Result<Vec<u8>, StorageError> {
        let most = usize::try_from(MARKER_BYTES).unwrap_or(usize::MAX);
        self.claim.read(0, most)
    }

    fn note(&self) -> Result<Note, StorageError> {
        Ok(Note::parse(&self.bytes()?))
    }
}

fn name_of(number: usize) -> String {
    number.to_string()
}

fn stem_of(number: usize) -> String {
    format!("{number}-")
}

/// Returns the number of the shard that a temporary file belongs to.
fn number_of_temp(name: &str) -> Option<usize> {
    let rest = name.strip_prefix(TempFile::PREFIX)?;
    rest.split_once('-')?.0.parse().ok()
}

/// Opens or creates the cache's own folder for the dataset with this index hash.
pub(crate) fn own_folder(local: &Dir, digest: &[u8; 32]) -> Result<Dir, StorageError> {
    let mut name = String::from("cache-");
    for byte in digest.iter().take(8) {
        name.push_str(&format!("{byte:02x}"));
    }
    capacity_folder(local)?.make_private_dir(&name)
}

/// Removes what was fetched with an outdated list of files. Returns how many files stay because other processes read
/// them.
pub(crate) fn forget(local: &Dir, files: &FileList) -> Result<u64, StorageError> {
    let folder = Folder::open(local, &files.digest(), true)?;
    let mut left = 0;
    for number in folder.list()?.markers {
        if let Some(file) = files.get(number)
            && folder.evict(number, Entry::File(file, files.form))? == Evicted::Stays
        {
            left += 1;
        }
    }
    Ok(left)
}

impl Folder {
    /// Opens the folder and creates what the cache needs in it.
    pub(crate) fn open(local: &Dir, digest: &[u8; 32], locks: bool) -> Result<Self, StorageError> {
        Ok(Self {
            local: local.clone(),
            device: local.device()?,
            own: own_folder(local, digest)?,
            locks,
            #[cfg(test)]
            full: AtomicU32::new(0),
            #[cfg(test)]
            stuck: AtomicU32::new(0),
        })
    }

    pub(crate) const fn local(&self) -> &Dir {
        &self.local
    }

    /// Returns the cache's own folder.
    pub(crate) const fn own(&self) -> &Dir {
        &self.own
    }

    /// Returns the device of the folder.
    pub(crate) const fn device(&self) -> u64 {
        self.device
    }

    /// Returns the free space of the file system, or `None` where it is not known.
    pub(crate) fn space(&self) -> Result<Option<Space>, StorageError> {
        #[cfg(test)]
        if let Some(space) = super::tests::disk::space(self.local.path()) {
            return Ok(Some(space));
        }
        self.local.space()
    }

    fn lock(&self, claim: &mut Claim, mode: ClaimMode) -> Result<ClaimState, StorageError> {
        if self.locks {
            claim.lock(mode)
        } else {
            Ok(ClaimState::Unknown)
        }
    }

    /// Tries to take the lock file without waiting.
    pub(crate) fn capacity(&self) -> Result<Option<Claim>, StorageError> {
        let mut claim = Claim::open_or_create(&self.own, "lock")?;
        Ok(match self.lock(&mut claim, ClaimMode::Exclusive)? {
            ClaimState::Busy => None,
            ClaimState::Held | ClaimState::Unknown => Some(claim),
        })
    }

    /// Lists the cache's own folder, ignoring names that the cache does not create.
    pub(crate) fn list(&self) -> Result<Listing, StorageError> {
        let mut listing = Listing::default();
        for entry in self.own.entries()? {
            let Some(name) = entry.name.to_str() else {
                continue;
            };
            if name.starts_with(TempFile::PREFIX) {
                if entry.kind == EntryKind::File {
                    listing.temps.push((number_of_temp(name), name.to_owned()));
                }
            } else if name.starts_with(|first: char| first.is_ascii_digit())
                && let Ok(number) = name.parse()
            {
                listing.markers.push(number);
            }
        }
        Ok(listing)
    }

    /// Returns whether a shard has a marker.
    pub(crate) fn has(&self, number: usize) -> Result<bool, StorageError> {
        self.own.exists(&name_of(number))
    }

    fn open_marker(&self, number: usize) -> Result<Option<Marker>, StorageError> {
        let claim = Claim::open(&self.own, &name_of(number))?;
        Ok(claim.map(|claim| Marker { number, claim }))
    }

    /// Looks for the raw files of a shard.
    pub(crate) fn look(&self, number: usize, entry: Entry<'_>) -> Result<Look, ReaderError> {
        /// An attempt fails only if another process removes the marker at that moment.
        const ATTEMPTS: usize = 16;

        for _ in 0..ATTEMPTS {
            let Some(mut marker) = self.open_marker(number)? else {
                return Ok(match self.files(entry, None)? {
                    Some(files) => Look::Here {
                        files: Box::new(files),
                        marker: None,
                    },
                    None => Look::Away,
                });
            };
            let pid = marker.note()?.pid;
            match self.lock(&mut marker.claim, ClaimMode::Shared)? {
                ClaimState::Busy => return Ok(Look::Busy { pid }),
                ClaimState::Held | ClaimState::Unknown => {}
            }
            if marker.claim.is_named()? {
                return Ok(match self.files(entry, Some(&marker))? {
                    Some(files) => Look::Here {
                        files: Box::new(files),
                        marker: Some(marker),
                    },
                    None => Look::Away,
                });
            }
        }
        Ok(Look::Busy { pid: None })
    }

    /// Opens the raw files of a shard: all of them, or `None`. The cache owns those that the marker lists.
    pub(crate) fn files(
        &self,
        entry: Entry<'_>,
        marker: Option<&Marker>,
    ) -> Result<Option<Files>, ReaderError> {
        let own = match marker {
            Some(marker) => marker.note()?.files.unwrap_or_default(),
            None => Vec::new(),
        };
        let open = |info: &FileInfo| match self.local.open_file(&info.basename) {
            Ok(handle) => {
                let own = own.contains(&handle.birth()?);
                Ok(Some(Found { handle, own }))
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(ReaderError::from(error)),
        };
        let Some(data) = open(entry.data())? else {
            return Ok(None);
        };
        let Some(info) = entry.table() else {
            return Ok(Some((data, None)));
        };
        Ok(open(info)?.map(|meta| (data, Some(meta))))
    }

    /// Creates the marker of a shard to fetch, or takes over the marker of a dead process.
    pub(crate) fn claim(&self, number: usize) -> Result<Claimed, StorageError> {
        /// As in `look`.
        const ATTEMPTS: usize = 16;

        for _ in 0..ATTEMPTS {
            let made = Claim::create(&self.own, &name_of(number))?;
            let found = made.is_none();
            let marker = match made {
                Some(claim) => Some(Marker { number, claim }),
                None => self.open_marker(number)?,
            };
            let Some(mut marker) = marker else { continue };
            match self.lock(&mut marker.claim, ClaimMode::Exclusive)? {
                ClaimState::Busy => {
                    let pid = marker.note()?.pid;
                    return Ok(Claimed::Busy { pid });
                }
                ClaimState::Held | ClaimState::Unknown => {}
            }
            if !marker.claim.is_named()? {
                continue;
            }
            let note = marker.note()?;
            if note.files.is_none() {
                marker.claim.replace(Note::text(None).as_bytes())?;
            }
            if found {
                self.sweep(&marker)?;
            }
            return Ok(Claimed::Held(marker));
        }
        Ok(Claimed::Busy { pid: None })
    }

    /// Removes the temporary files of a shard whose marker is locked: the process that wrote them is gone.
    fn sweep(&self, marker: &Marker) -> Result<(), StorageError> {
        if marker.claim.held() != Some(ClaimMode::Exclusive) {
            return Ok(());
        }
        for (number, name) in self.list()?.temps {
            if number == Some(marker.number) {
                self.own.remove(&name)?;
            }
        }
        Ok(())
    }

    /// Writes the files of a shard. Existing files are kept, whichever process wrote them, so check the files
    /// afterwards.
    pub(crate) fn write(
        &self,
        marker: &Marker,
        files: &[(&str, &[u8])],
    ) -> Result<(), StorageError> {
        use std::io::Write as _;

        #[cfg(test)]
        if self
            .full
            .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1))
            .is_ok()
        {
            return Err(StorageError::Io {
                action: "write",
                path: self.own.path().to_owned(),
                source: std::io::ErrorKind::StorageFull.into(),
            });
        }
        #[cfg(test)]
        super::tests::disk::write(self.local.path(), files)?;
        let mut temps = Vec::with_capacity(files.len());
        let mut births = Vec::with_capacity(files.len());
        for (name, bytes) in files {
            let mut temp = self
                .local
                .temp_file_in(&self.own, &stem_of(marker.number))?;
            temp.write_all(bytes)
                .map_err(|error| temp.write_error(error))?;
            births.push(temp.birth()?);
            temps.push((*name, temp));
        }
        let note = Note::text(Some(&births));
        marker.claim.replace(note.as_bytes())?;
        if !marker.claim.is_named()? {
            // Without locks, another process may have removed the marker.
            if let Some(claim) = Claim::create(&self.own, &name_of(marker.number))? {
                claim.replace(note.as_bytes())?;
            }
        }
        for (name, temp) in temps {
            if let Some((folders, _)) = name.rsplit_once('/') {
                self.local.make_dir(folders)?;
            }
            match temp.publish_unsynced(name, PublishMode::CreateNew) {
                // Another process was faster; its file is used.
                Ok(()) | Err(StorageError::Exists { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Removes an unused marker: the files exist already, and the cache does not own them.
    pub(crate) fn give_up(&self, marker: &Marker) -> Result<(), StorageError> {
        if marker.note()?.files.is_none() {
            marker.claim.remove()?;
        }
        Ok(())
    }

    /// Downgrades the lock on a marker to shared, after writing the shard.
    pub(crate) fn share(&self, marker: &mut Marker) -> Result<(), StorageError> {
        self.lock(&mut marker.claim, ClaimMode::Shared)?;
        Ok(())
    }

    /// Removes a shard: first the files that the cache wrote, then the marker. Never waits.
    pub(crate) fn evict(&self, number: usize, entry: Entry<'_>) -> Result<Evicted, StorageError> {
        let Some(mut marker) = self.open_marker(number)? else {
            return Ok(Evicted::Absent);
        };
        match self.lock(&mut marker.claim, ClaimMode::Exclusive)? {
            ClaimState::Busy => return Ok(Evicted::Stays),
            ClaimState::Held | ClaimState::Unknown => {}
        }
        if !marker.claim.is_named()? {
            return Ok(Evicted::Absent);
        }
        self.discard(marker, entry)
    }

    /// Returns whether a process that exited still holds a shard for its owner.
    pub(crate) fn is_left_in_use(
        &self,
        number: usize,
        post_exit_hold: PostExitHold,
    ) -> Result<bool, StorageError> {
        let Some(marker) = self.open_marker(number)? else {
            return Ok(false);
        };
        let Some((until, left)) = left_in_use(&marker.bytes()?) else {
            return Ok(false);
        };
        let now = seconds();
        // An end further in the future is invalid: the clock was set back.
        let counts = now < until && until <= now.saturating_add(LEFT.as_secs());
        let is_done = left.owner == post_exit_hold.owner && left.epoch < post_exit_hold.epoch;
        Ok(counts && !is_done)
    }

    /// Removes the files that a locked marker lists, then the marker.
    pub(crate) fn discard(
        &self,
        marker: Marker,
        entry: Entry<'_>,
    ) -> Result<Evicted, StorageError> {
        let note = marker.note()?;
        if note.files.is_none() {
            self.sweep(&marker)?;
        }
        let own = note.files.unwrap_or_default();
        for info in files_of(entry) {
            match self.open_to_remove(&info.basename) {
                Ok(handle) if own.contains(&handle.birth()?) => {
                    if self.local.remove(&info.basename).is_err() {
                        // The file still takes space, so its marker stays.
                        return Ok(Evicted::Stays);
                    }
                }
                // Another file, a link or a folder: the cache does not own it.
                Ok(_)
                | Err(
                    StorageError::Symlink { .. }
                    | StorageError::NotRegular { .. }
                    | StorageError::NotDirectory { .. },
                ) => {}
                Err(error) if error.is_not_found() => {}
                // The owner of the file is unknown, so its marker stays as well.
                Err(_) => return Ok(Evicted::Stays),
            }
        }
        marker.claim.remove()?;
        Ok(Evicted::Gone)
    }

    fn open_to_remove(&self, name: &str) -> Result<FileHandle, StorageError> {
        #[cfg(test)]
        if self
            .stuck
            .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1))
            .is_ok()
        {
            return Err(StorageError::Io {
                action: "open",
                path: self.local.path_of(name),
                // EMFILE: too many open files.
                source: std::io::Error::from_raw_os_error(24),
            });
        }
        self.local.open_file(name)
    }

    /// Removes what dead processes left: temporary files and, with `markers`, markers without a shard. Returns the
    /// bytes of temporary files that may still be written to.
    pub(crate) fn clean(
        &self,
        listing: &Listing,
        shards: &Shards,
        markers: bool,
        busy: impl Fn(usize) -> bool,
    ) -> Result<u64, ReaderError> {
        let mut left = 0_u64;
        for (number, name) in &listing.temps {
            if number.is_some_and(&busy) {
                continue;
            }
            let dead = match number {
                Some(number) => self.is_nobodys(*number)?,
                None => false,
            };
            let Ok(file) = self.own.open_file(name) else {
                continue;
            };
            let old = SystemTime::now()
                .duration_since(file.modified())
                .is_ok_and(|age| age > STALE_TEMP);
            if dead || old {
                self.own.remove(name)?;
            } else if !number.is_some_and(|number| listing.markers.contains(&number)) {
                // With a marker, the file is part of the reservation.
                left = left.saturating_add(file.len());
            }
        }
        for number in listing.markers.iter().filter(|_| markers) {
            let Some(entry) = shards.get(*number) else {
                continue;
            };
            if busy(*number) || self.local.exists(&entry.data().basename).unwrap_or(true) {
                continue;
            }
            let Some(mut marker) = self.open_marker(*number)? else {
                continue;
            };
            let held = self.lock(&mut marker.claim, ClaimMode::Exclusive)? == ClaimState::Held;
            if held && marker.claim.is_named()? {
                self.discard(marker, entry)?;
            }
        }
        Ok(left)
    }

    /// Returns whether no process holds the lock of a shard's marker.
    fn is_nobodys(&self, number: usize) -> Result<bool, StorageError> {
        if !self.locks {
            return Ok(false);
        }
        let Some(mut marker) = self.open_marker(number)? else {
            // A marker is created before the temporary file and removed after it.
            return Ok(true);
        };
        Ok(self.lock(&mut marker.claim, ClaimMode::Exclusive)? == ClaimState::Held)
    }
}

/// Returns all files that the cache may write for a shard.
fn files_of(entry: Entry<'_>) -> impl Iterator<Item = &FileInfo> {
    entry
        .parts()
        .flat_map(|part| [Some(part.raw), part.zip.map(|(zip, _)| zip)])
        .flatten()
        .take(MOST_FILES)
}

/// Returns the bytes that a shard takes in the folder, including its marker.
pub(crate) fn weight(entry: Entry<'_>, keep_zip: bool) -> u64 {
    entry.parts().fold(MARKER_BYTES, |sum, part| {
        let zip = part.zip.map_or(0, |(zip, _)| zip.bytes);
        sum.saturating_add(part.raw.bytes)
            .saturating_add(if keep_zip { zip } else { 0 })
    })
}
