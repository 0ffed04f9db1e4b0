//! The folder that the shards of a stream are kept in, and what in it is the cache's own.
//!
//! Shards lie under their own names, as other readers of the format have them. Beside the folder, in
//! `.<its name>.shardmill/cache-<16 digits of the index's hash>/` (or in `.shardmill/` inside of it, see
//! [`capacity_folder`]), the cache keeps its books:
//!
//! - a *marker* for each shard, called like its number. It is made before the shard is fetched, as a reservation, and
//!   says afterwards which files were written: those and no others are the cache's own; and which of them have been
//!   checked (see `verified_stamp`);
//! - `lock`, held while reservations are counted and made, and never removed;
//! - temporary files, `tmp-<number>-…`, on their way to a shard's name;
//! - walks of the generator, `walk-<epoch>` (see `walks`), which have nothing to do with shards.
//!
//! INVARIANT: a marker names its files before they get their names, so that no file of the cache is ever without one;
//! and it goes after they have gone.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
#[cfg(test)]
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use shardmill_mds::FileInfo;
use shardmill_storage::{
    Claim, ClaimMode, ClaimState, Dir, EntryKind, FileBirth, FileHandle, PublishMode, Space,
    StorageError, TempFile,
};

use crate::entry::{Entry, Shards};
use crate::error::ReaderError;
use crate::files::FileList;
use crate::shard_cache::verified_stamp::VerifiedStamp;

/// What a marker is counted as: more than it ever has.
pub(crate) const MARKER_BYTES: u64 = 256;

/// Of a process that is gone, where no lock can tell.
const STALE_TEMP: Duration = Duration::from_secs(3600);

/// Files of a shard that a marker can name: raw and compressed, data and offsets.
const MOST_FILES: usize = 4;

/// One folder, opened.
#[derive(Debug)]
pub(crate) struct Folder {
    local: Dir,
    own: Dir,
    /// The device that both are on.
    device: u64,
    /// Whether locks are asked for; tests find out what happens where they do nothing.
    locks: bool,
    /// How many writes find the disk full.
    #[cfg(test)]
    pub(crate) full: AtomicU32,
    /// How many files that are to be removed cannot be opened.
    #[cfg(test)]
    pub(crate) stuck: AtomicU32,
}

/// A marker that is held, or as good as held where there are no locks.
#[derive(Debug)]
pub(crate) struct Marker {
    number: usize,
    claim: Claim,
}

/// A file of a shard as it lies in the folder.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) handle: FileHandle,
    /// Whether the cache wrote it.
    pub(crate) own: bool,
}

/// The raw files of a shard: data, and offsets where they are a file of their own.
pub(crate) type Files = (Found, Option<Found>);

/// What there is of a shard.
#[derive(Debug)]
pub(crate) enum Look {
    /// All of its raw files.
    Here {
        files: Box<Files>,
        /// Held shared, where there is one.
        marker: Option<Marker>,
    },
    /// Not all of them, and nobody is seen to fetch them.
    Away,
    /// Somebody is fetching or removing it.
    Busy { pid: Option<u32> },
}

/// What came of asking for a marker.
#[derive(Debug)]
pub(crate) enum Claimed {
    Held(Marker),
    Busy { pid: Option<u32> },
}

/// What came of removing a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evicted {
    Gone,
    /// It was gone before.
    Absent,
    /// Somebody reads or fetches it, or it cannot be removed.
    Stays,
}

/// What the cache's own folder holds.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Numbers of the shards with a marker.
    pub(crate) markers: Vec<usize>,
    /// Temporary files with the number of their shard.
    pub(crate) temps: Vec<(Option<usize>, String)>,
}

/// What a marker says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Note {
    pid: Option<u32>,
    /// `None` for a reservation.
    files: Option<Vec<FileBirth>>,
}

impl Note {
    fn text(files: Option<&[FileBirth]>) -> String {
        let mut text = format!("{}\n", std::process::id());
        for file in files.unwrap_or_default() {
            text.push_str(&format!("{} {}\n", file.inode, file.born));
        }
        if files.is_some() {
            // A note that is cut short is none.
            text.push_str("end\n");
            text.push_str(VerifiedStamp::NONE);
        }
        text
    }

    /// Whatever cannot be read is not there.
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

/// For whom files are used, and in which epoch.
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

/// How long what a loader process has left in use stays, where nobody says that it is done with it.
const LEFT: Duration = Duration::from_secs(60);

/// What stands behind the end of a note: a voucher, and then who has left the files in use.
fn behind_end(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    text.split_once("\nend\n").map(|(_, rest)| rest)
}

/// Until when the files are in use, for whom, in which epoch.
fn left_in_use(bytes: &[u8]) -> Option<(u64, PostExitHold)> {
    let rest = behind_end(bytes)?.get(VerifiedStamp::BYTES..)?;
    let rest = rest.strip_prefix("until ")?;
    let mut words = rest.lines().next()?.split(' ');
    let mut word = || words.next()?.parse().ok();
    let (until, owner, epoch) = (word()?, word()?, word()?);
    Some((until, PostExitHold { owner, epoch }))
}

/// Since 1970.
pub(crate) fn seconds() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

impl Marker {
    /// Has the files stay for a while after this process has gone: until the next epoch of who uses them.
    pub(crate) fn leave_in_use(&self, post_exit_hold: PostExitHold) -> Result<(), StorageError> {
        let until = seconds().saturating_add(LEFT.as_secs());
        let line = format!(
            "until {until:020} {:020} {:020}\n",
            post_exit_hold.owner, post_exit_hold.epoch
        );
        self.write_behind_end(VerifiedStamp::BYTES, &line)
    }

    /// Whether another process has checked these very files.
    pub(crate) fn vouches(&self, verified_stamp: VerifiedStamp) -> Result<bool, StorageError> {
        let bytes = self.bytes()?;
        Ok(behind_end(&bytes).and_then(VerifiedStamp::parse) == Some(verified_stamp))
    }

    /// Tells other processes that these files are what they should be; or that nobody knows.
    pub(crate) fn verified_stamp(
        &self,
        verified_stamp: Option<VerifiedStamp>,
    ) -> Result<(), StorageError> {
        let line = verified_stamp.map(VerifiedStamp::line);
        self.write_behind_end(0, line.as_deref().unwrap_or(VerifiedStamp::NONE))
    }

    /// Writes behind the end of a note, always as many bytes: who reads at the same moment sees a note that is whole.
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

/// The folder of the cache's own files. Beside the folder of the shards, where that is on the same file system and can be
/// written: programs that list the shards find shards. Else in it.
pub(crate) fn capacity_folder(local: &Dir) -> Result<Dir, StorageError> {
    const INSIDE: &str = ".shardmill";
    if !local.exists(INSIDE)?
        && let Some((parent, name)) = side_files(local)
        && let Ok(dir) = parent.make_private_dir(&name)
    {
        return Ok(dir);
    }
    local.make_private_dir(INSIDE)
}

/// The folder that `local` is in, and the name of the cache's own folder there. `None` where files cannot be renamed from
/// there into `local`.
fn side_files(local: &Dir) -> Option<(Dir, String)> {
    let path = fs::canonicalize(local.path()).ok()?;
    let name = path.file_name()?.to_str()?;
    let parent = path.parent()?;
    let same = fs::metadata(parent).ok()?.dev() == fs::metadata(&path).ok()?.dev();
    let parent = Dir::open(parent).ok().filter(|_| same)?;
    Some((parent, format!(".{name}.shardmill")))
}

fn name_of(number: usize) -> String {
    number.to_string()
}

fn stem_of(number: usize) -> String {
    format!("{number}-")
}

/// The number of the shard that a temporary file is for.
fn number_of_temp(name: &str) -> Option<usize> {
    let rest = name.strip_prefix(TempFile::PREFIX)?;
    rest.split_once('-')?.0.parse().ok()
}

/// The cache's own folder for the dataset with this hash of its index; made where it is missing.
pub(crate) fn own_folder(local: &Dir, digest: &[u8; 32]) -> Result<Dir, StorageError> {
    let mut name = String::from("cache-");
    for byte in digest.iter().take(8) {
        name.push_str(&format!("{byte:02x}"));
    }
    capacity_folder(local)?.make_private_dir(&name)
}

/// Removes what was fetched by a list of files that no longer counts. How many of them others read, which stay, is the
/// result.
pub(crate) fn forget(local: &Dir, files: &FileList) -> Result<u64, ReaderError> {
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
    /// Opens the folder and makes what the cache needs in it.
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

    /// The cache's own folder.
    pub(crate) const fn own(&self) -> &Dir {
        &self.own
    }

    /// The device that the folder is on.
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

    /// Asks for the lock on the books, at once or not at all.
    pub(crate) fn capacity(&self) -> Result<Option<Claim>, StorageError> {
        let mut claim = Claim::open_or_create(&self.own, "lock")?;
        Ok(match self.lock(&mut claim, ClaimMode::Exclusive)? {
            ClaimState::Busy => None,
            ClaimState::Held | ClaimState::Unknown => Some(claim),
        })
    }

    /// What is in the cache's own folder. What the cache never makes is not listed.
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

    /// Whether a shard has a marker.
    pub(crate) fn has(&self, number: usize) -> Result<bool, StorageError> {
        self.own.exists(&name_of(number))
    }

    fn open_marker(&self, number: usize) -> Result<Option<Marker>, StorageError> {
        let claim = Claim::open(&self.own, &name_of(number))?;
        Ok(claim.map(|claim| Marker { number, claim }))
    }

    /// Looks for the raw files of a shard.
    pub(crate) fn look(&self, number: usize, entry: Entry<'_>) -> Result<Look, ReaderError> {
        /// Each attempt loses only to somebody who removed the marker in this moment.
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

    /// The raw files of a shard, all or none. Those that the marker names are the cache's own.
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

    /// Makes the marker of a shard that is to be fetched, or takes over that of a process that is gone.
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

    /// Removes the temporary files of a shard whose marker is held: whoever wrote them is gone.
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

    /// Writes the files of a shard. One that is there already is left, whoever's it is; look again afterwards.
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
            // Without locks somebody may have removed it.
            if let Some(claim) = Claim::create(&self.own, &name_of(marker.number))? {
                claim.replace(note.as_bytes())?;
            }
        }
        for (name, temp) in temps {
            if let Some((folders, _)) = name.rsplit_once('/') {
                self.local.make_dir(folders)?;
            }
            match temp.publish_unsynced(name, PublishMode::CreateNew) {
                // Somebody was faster: theirs is used.
                Ok(()) | Err(StorageError::Exists { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Gives up a marker that was made for nothing: the files are there, and not the cache's.
    pub(crate) fn give_up(&self, marker: &Marker) -> Result<(), StorageError> {
        if marker.note()?.files.is_none() {
            marker.claim.remove()?;
        }
        Ok(())
    }

    /// Keeps a marker as a reader of the shard, once it is written.
    pub(crate) fn share(&self, marker: &mut Marker) -> Result<(), StorageError> {
        self.lock(&mut marker.claim, ClaimMode::Shared)?;
        Ok(())
    }

    /// Removes a shard: the files that the cache wrote, then the marker. Never waits.
    pub(crate) fn evict(&self, number: usize, entry: Entry<'_>) -> Result<Evicted, ReaderError> {
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

    /// Whether a process that is gone has left a shard in use, for somebody who is not done with it.
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
        // A clock that was put back keeps nothing for longer.
        let counts = now < until && until <= now.saturating_add(LEFT.as_secs());
        let is_done = left.owner == post_exit_hold.owner && left.epoch < post_exit_hold.epoch;
        Ok(counts && !is_done)
    }

    /// Removes what a marker that is held names, then the marker.
    pub(crate) fn discard(&self, marker: Marker, entry: Entry<'_>) -> Result<Evicted, ReaderError> {
        let note = marker.note()?;
        if note.files.is_none() {
            self.sweep(&marker)?;
        }
        let own = note.files.unwrap_or_default();
        for info in files_of(entry) {
            match self.open_to_remove(&info.basename) {
                Ok(handle) if own.contains(&handle.birth()?) => {
                    if self.local.remove(&info.basename).is_err() {
                        // It still takes up its room, so it stays in the books.
                        return Ok(Evicted::Stays);
                    }
                }
                // Another file, a link, a folder: not the cache's.
                Ok(_)
                | Err(
                    StorageError::Symlink { .. }
                    | StorageError::NotRegular { .. }
                    | StorageError::NotDirectory { .. },
                ) => {}
                Err(error) if error.is_not_found() => {}
                // Nobody knows whose it is, so it stays in the books as well.
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
                // Too many open files.
                source: std::io::Error::from_raw_os_error(24),
            });
        }
        self.local.open_file(name)
    }

    /// Removes what processes that are gone have left: temporary files, and with `markers` those of shards that are not
    /// there. The length of temporary files that may still be written to is the result.
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
                // With a marker it is part of what is reserved.
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

    /// Whether nobody works on a shard, as far as locks can tell.
    fn is_nobodys(&self, number: usize) -> Result<bool, StorageError> {
        if !self.locks {
            return Ok(false);
        }
        let Some(mut marker) = self.open_marker(number)? else {
            // Made before the temporary file, and removed after it.
            return Ok(true);
        };
        Ok(self.lock(&mut marker.claim, ClaimMode::Exclusive)? == ClaimState::Held)
    }
}

/// All files that the cache may write for a shard.
fn files_of(entry: Entry<'_>) -> impl Iterator<Item = &FileInfo> {
    entry
        .parts()
        .flat_map(|part| [Some(part.raw), part.zip.map(|(zip, _)| zip)])
        .flatten()
        .take(MOST_FILES)
}

/// What a shard takes up in the folder, its marker included.
pub(crate) fn weight(entry: Entry<'_>, keep_zip: bool) -> u64 {
    entry.parts().fold(MARKER_BYTES, |sum, part| {
        let zip = part.zip.map_or(0, |(zip, _)| zip.bytes);
        sum.saturating_add(part.raw.bytes)
            .saturating_add(if keep_zip { zip } else { 0 })
    })
}
