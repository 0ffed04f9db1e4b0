//! The folder in which the blobs of a stream are cached, and the cache's own files.
//!
//! Blobs have their own names, as other readers of the format expect. The cache keeps its own files next to the
//! folder or inside it (see [`private_folder`]). The path is `.<its name>.shardmill/cache-<16 digits of the index's
//! hash>/`, or the same in `.shardmill/`:
//!
//! - A *marker* for each blob, named after its number. It is created before the fetch and reserves space. Later it
//!   lists the files that the cache wrote, and which of them were verified (see `verified_stamp`). The cache owns only
//!   the listed files.
//! - `lock`, held while space is counted and reserved, and never removed.
//! - `claims`, in which the byte with the number of a blob is locked while the blob is fetched, pinned or evicted. So any
//!   number of blobs takes one file descriptor. Where the system has no such locks, the marker itself is locked.
//! - Temporary files, `tmp-<number>-…`, before they are renamed to the blob's name.
//! - `source`, the location of the index, if the cache wrote the index in the folder (see `source_note`).
//! - Checkpoints of the random number generator, `walk-<epoch>` (see `walks`). They are unrelated to blobs.
//!
//! The folder above it, `.<its name>.shardmill/` or `.shardmill/`, has another `lock`, held while the index or a side file is
//! written (see `publish`).
//!
//! In a folder that is mounted read-only, nothing is reserved, locked or removed. Its files are read, and other blobs are
//! fetched into memory.
//!
//! INVARIANT: a marker lists its files before they are renamed, and is removed after them. No file of the cache is
//! ever without a marker.

use std::fs;
use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use shardmill_codec::FileInfo;
use shardmill_storage::{
    Claim, ClaimMode, ClaimState, ClaimTable, Dir, EntryKind, FileHandle, NumberClaimState,
    PublishMode, Space, StorageError, TempFile,
};

use crate::blobs::Blob;
use crate::marker::{Marker, Note, PostExitHold, name_of};

/// The age from which a temporary file counts as abandoned if locks are not available.
const STALE_TEMP: Duration = Duration::from_secs(3600);

/// An open cache folder.
#[derive(Debug)]
pub(crate) struct Folder {
    /// The folder of the blobs.
    pub(crate) local: Dir,
    /// The folder of the cache's own files.
    pub(crate) own: Dir,
    /// The device of both folders.
    pub(crate) device: u64,
    /// The device and the inode of the cache's own folder. The locks of many folders are taken in this order.
    pub(crate) order: (u64, u64),
    /// Whether the folder is mounted read-only.
    pub(crate) is_read_only: bool,
    /// Whether there are markers. A read-only folder may have none.
    has_markers: bool,
    /// The locks of the blobs.
    claims: Arc<ClaimTable>,
    /// Whether to take locks. Tests turn this off to simulate file systems on which locks do nothing.
    locks: bool,
    /// How many writes still fail with a full disk.
    #[cfg(test)]
    pub(crate) full: AtomicU32,
    /// How many opens before a removal still fail.
    #[cfg(test)]
    pub(crate) stuck: AtomicU32,
}

/// A file of a blob in the folder.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) handle: FileHandle,
    /// Whether the cache wrote the file.
    pub(crate) own: bool,
}

/// The raw files of a blob: data, and offsets if they are in a separate file.
pub(crate) type Files = (Found, Option<Found>);

/// The state of a blob in the folder.
#[derive(Debug)]
pub(crate) enum Lookup {
    /// All raw files exist.
    Present {
        files: Box<Files>,
        /// The blob's marker, locked shared, if it has one.
        marker: Option<Marker>,
    },
    /// Files are missing, and no process is known to fetch them.
    Missing,
    /// Another process fetches or removes the blob.
    Busy { pid: Option<u32> },
}

/// The result of claiming a marker.
#[derive(Debug)]
pub(crate) enum Claimed {
    Held(Marker),
    Busy { pid: Option<u32> },
}

/// The result of removing a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evicted {
    Removed,
    /// It did not exist.
    Absent,
    /// A process reads or fetches it, or it cannot be removed.
    Kept,
}

/// The content of the cache's own folder.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Numbers of the blobs with a marker.
    pub(crate) markers: Vec<usize>,
    /// Temporary files with the number of their blob.
    pub(crate) temps: Vec<(Option<usize>, String)>,
}

const INSIDE: &str = ".shardmill";

/// Opens or creates the folder of the cache's own files. It is next to `local`, so that programs that list `local`
/// find only blobs. It is inside `local` if the parent is not writable or is in another mount.
pub fn private_folder(local: &Dir) -> Result<Dir, StorageError> {
    if !local.exists(INSIDE)?
        && let Some((parent, name)) = side_files(local)
        && let Ok(dir) = parent.make_private_dir(&name)
    {
        return Ok(dir);
    }
    local.make_private_dir(INSIDE)
}

/// Returns the parent of `local` and the name of the cache's own folder in it. `None` if files would have to be renamed
/// from there into `local` and cannot be.
fn side_files(local: &Dir) -> Option<(Dir, String)> {
    let path = fs::canonicalize(local.path()).ok()?;
    let name = path.file_name()?.to_str()?;
    let parent = Dir::open(path.parent()?).ok()?;
    let is_usable = local.is_read_only().ok()? || parent.is_same_mount(local).ok()?;
    is_usable.then(|| (parent, format!(".{name}.shardmill")))
}

/// Opens the cache's own folder of a read-only `local`, if it exists and belongs to this user or to root.
fn readable_own_folder(local: &Dir, digest: &[u8; 32]) -> Option<Dir> {
    let own = match local.open_dir(INSIDE) {
        Ok(own) => own,
        Err(_) => side_files(local).and_then(|(parent, name)| parent.open_dir(&name).ok())?,
    };
    let own = own.open_dir(&own_name(digest)).ok()?;
    own.is_trusted().ok()?.then_some(own)
}

/// Returns the number of the blob that a temporary file belongs to.
fn number_of_temp(name: &str) -> Option<usize> {
    let rest = name.strip_prefix(TempFile::PREFIX)?;
    rest.split_once('-')?.0.parse().ok()
}

/// Returns the name of the cache's own folder for the dataset with this index hash.
pub(crate) fn own_name(digest: &[u8; 32]) -> String {
    let mut name = String::from("cache-");
    for byte in digest.iter().take(8) {
        name.push_str(&format!("{byte:02x}"));
    }
    name
}

/// Opens or creates the cache's own folder for the dataset with this index hash.
pub fn own_folder(local: &Dir, digest: &[u8; 32]) -> Result<Dir, StorageError> {
    private_folder(local)?.make_private_dir(&own_name(digest))
}

/// Removes the blobs that were fetched with an outdated catalog: `blob` returns those that it had. Returns how many
/// stay because other processes read them.
pub fn forget<'a>(
    local: &Dir,
    digest: &[u8; 32],
    blob: impl Fn(usize) -> Option<Blob<'a>>,
) -> Result<u64, StorageError> {
    let folder = Folder::open(local, digest, true)?;
    let mut left = 0;
    for number in folder.list()?.markers {
        if let Some(blob) = blob(number)
            && folder.evict(number, blob)? == Evicted::Kept
        {
            left += 1;
        }
    }
    Ok(left)
}

impl Folder {
    /// Opens the folder and creates what the cache needs in it.
    pub(crate) fn open(local: &Dir, digest: &[u8; 32], locks: bool) -> Result<Self, StorageError> {
        let is_read_only = local.is_read_only()?;
        let own = match is_read_only {
            true => readable_own_folder(local, digest),
            false => Some(own_folder(local, digest)?),
        };
        let has_markers = own.is_some();
        let own = own.map_or_else(|| local.clone(), Dir::pooled);
        let order = (own.device()?, own.inode()?);
        Ok(Self {
            local: local.clone(),
            device: local.device()?,
            order,
            is_read_only,
            has_markers,
            claims: ClaimTable::new(&own, "claims"),
            own,
            locks,
            #[cfg(test)]
            full: AtomicU32::new(0),
            #[cfg(test)]
            stuck: AtomicU32::new(0),
        })
    }

    /// Returns the free space of the file system, or `None` where it is not known.
    pub(crate) fn space(&self) -> Result<Option<Space>, StorageError> {
        #[cfg(test)]
        if let Some(space) = super::tests::disk::space(self.local.path()) {
            return Ok(Some(space));
        }
        self.local.space()
    }

    fn lock(&self, marker: &mut Marker, mode: ClaimMode) -> Result<ClaimState, StorageError> {
        if !self.locks || self.is_read_only {
            return Ok(ClaimState::Unknown);
        }
        match self.claims.claim(marker.number as u64, mode)? {
            NumberClaimState::Held(claim) => {
                marker.claim = Some(claim);
                Ok(ClaimState::Held)
            }
            NumberClaimState::Busy => Ok(ClaimState::Busy),
            NumberClaimState::Unknown => match marker.file_mut() {
                Some(file) => file.lock(mode),
                None => Ok(ClaimState::Unknown),
            },
        }
    }

    /// Tries to take the lock file without waiting.
    pub(crate) fn capacity(&self) -> Result<Option<Claim>, StorageError> {
        let mut claim = Claim::open_or_create(&self.own, "lock")?;
        let is_busy = self.locks && claim.lock(ClaimMode::Exclusive)? == ClaimState::Busy;
        Ok((!is_busy).then_some(claim))
    }

    /// Lists the cache's own folder, ignoring names that the cache does not create.
    pub(crate) fn list(&self) -> Result<Listing, StorageError> {
        let mut listing = Listing::default();
        if !self.has_markers {
            return Ok(listing);
        }
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

    /// Returns whether a blob has a marker.
    pub(crate) fn has(&self, number: usize) -> Result<bool, StorageError> {
        Ok(self.has_markers && self.own.exists(&name_of(number))?)
    }

    fn open_marker(&self, number: usize) -> Result<Option<Marker>, StorageError> {
        if !self.has_markers {
            return Ok(None);
        }
        let file = Claim::open(&self.own, &name_of(number))?;
        Ok(file.map(|file| Marker::new(number, file)))
    }

    /// Looks for the raw files of a blob.
    pub(crate) fn inspect(&self, number: usize, blob: Blob<'_>) -> Result<Lookup, StorageError> {
        /// An attempt fails only if another process creates or removes the blob at that moment.
        const ATTEMPTS: usize = 16;

        for _ in 0..ATTEMPTS {
            let mut marker = self.open_marker(number)?;
            if let Some(marker) = &mut marker {
                let pid = marker.note()?.pid;
                if self.lock(marker, ClaimMode::Shared)? == ClaimState::Busy {
                    return Ok(Lookup::Busy { pid });
                }
                if !marker.is_named()? {
                    continue;
                }
            }
            #[cfg(test)]
            super::tests::folders::step();
            let Some(files) = self.files(blob, marker.as_ref())? else {
                return Ok(Lookup::Missing);
            };
            if marker.is_none() && !self.is_user_file(number, blob, &files)? {
                continue;
            }
            let files = Box::new(files);
            return Ok(Lookup::Present { files, marker });
        }
        Ok(Lookup::Busy { pid: None })
    }

    /// Returns whether the cache did not write the files of a blob whose marker was not found: there is still no marker,
    /// and still the same file. Otherwise another process has written or removed the blob since.
    fn is_user_file(
        &self,
        number: usize,
        blob: Blob<'_>,
        (data, _): &Files,
    ) -> Result<bool, StorageError> {
        #[cfg(test)]
        super::tests::folders::step();
        if self.has(number)? {
            return Ok(false);
        }
        match self.local.open_file(&blob.data.raw.basename) {
            Ok(now) => Ok(now.birth()? == data.handle.birth()?),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Opens the raw files of a blob: all of them, or `None`. The cache owns those that the marker lists.
    pub(crate) fn files(
        &self,
        blob: Blob<'_>,
        marker: Option<&Marker>,
    ) -> Result<Option<Files>, StorageError> {
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
            Err(error) => Err(error),
        };
        let Some(data) = open(blob.data.raw)? else {
            return Ok(None);
        };
        let Some(table) = blob.table else {
            return Ok(Some((data, None)));
        };
        Ok(open(table.raw)?.map(|table| (data, Some(table))))
    }

    /// Creates the marker of a blob to fetch, or takes over the marker of a dead process.
    pub(crate) fn claim(&self, number: usize) -> Result<Claimed, StorageError> {
        /// As in `look`.
        const ATTEMPTS: usize = 16;

        for _ in 0..ATTEMPTS {
            let made = Claim::create(&self.own, &name_of(number))?;
            let found = made.is_none();
            let marker = match made {
                Some(file) => Some(Marker::new(number, file)),
                None => self.open_marker(number)?,
            };
            let Some(mut marker) = marker else { continue };
            if self.lock(&mut marker, ClaimMode::Exclusive)? == ClaimState::Busy {
                let pid = marker.note()?.pid;
                return Ok(Claimed::Busy { pid });
            }
            if !marker.is_named()? {
                continue;
            }
            if marker.note()?.files.is_none() {
                marker.replace(&Note::text(None))?;
            }
            if found {
                self.sweep(&marker)?;
            }
            return Ok(Claimed::Held(marker));
        }
        Ok(Claimed::Busy { pid: None })
    }

    /// Removes the temporary files of a blob whose marker is locked: the process that wrote them is gone.
    fn sweep(&self, marker: &Marker) -> Result<(), StorageError> {
        if !marker.is_exclusive() {
            return Ok(());
        }
        for (number, name) in self.list()?.temps {
            if number == Some(marker.number) {
                self.own.remove(&name)?;
            }
        }
        Ok(())
    }

    /// Writes the files of a blob. Existing files are kept, whichever process wrote them, so check the files
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
            let stem = format!("{}-", marker.number);
            let mut temp = self
                .local
                .temp_file_in(&self.folder_of_temp(name)?, &stem)?;
            temp.write_all(bytes)
                .map_err(|error| temp.write_error(error))?;
            births.push(temp.birth()?);
            temps.push((*name, temp));
        }
        let note = Note::text(Some(&births));
        marker.replace(&note)?;
        if !marker.is_named()? {
            // Without locks, another process may have removed the marker.
            if let Some(claim) = Claim::create(&self.own, &name_of(marker.number))? {
                claim.replace(note.as_bytes())?;
            }
        }
        for (name, temp) in temps {
            match temp.publish_unsynced(name, PublishMode::CreateNew) {
                // Another process was faster; its file is used.
                Ok(()) | Err(StorageError::Exists { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the folder of the temporary file for a name: one from which it can be renamed. Creates the folder of the
    /// name.
    fn folder_of_temp(&self, name: &str) -> Result<Dir, StorageError> {
        if let Some((folders, _)) = name.rsplit_once('/') {
            let folder = self.local.make_dir(folders)?;
            if !folder.is_same_mount(&self.own)? {
                return Ok(folder);
            }
        }
        Ok(self.own.clone())
    }

    /// Removes an unused marker: the files exist already, and the cache does not own them.
    pub(crate) fn give_up(&self, marker: &Marker) -> Result<(), StorageError> {
        if marker.note()?.files.is_none() {
            marker.remove()?;
        }
        Ok(())
    }

    /// Downgrades the lock on a marker to shared, after writing the blob.
    pub(crate) fn share(&self, marker: &mut Marker) -> Result<(), StorageError> {
        if let Some(claim) = &marker.claim {
            return claim.share();
        }
        match marker.file_mut() {
            Some(file) if self.locks => file.lock(ClaimMode::Shared).map(drop),
            _ => Ok(()),
        }
    }

    /// Removes a blob: first the files that the cache wrote, then the marker. Never waits.
    pub(crate) fn evict(&self, number: usize, blob: Blob<'_>) -> Result<Evicted, StorageError> {
        let Some(mut marker) = self.open_marker(number)? else {
            return Ok(Evicted::Absent);
        };
        if self.lock(&mut marker, ClaimMode::Exclusive)? == ClaimState::Busy {
            return Ok(Evicted::Kept);
        }
        if !marker.is_named()? {
            return Ok(Evicted::Absent);
        }
        self.discard(marker, blob)
    }

    /// Returns whether a process that exited still holds a blob for its owner.
    pub(crate) fn is_left_in_use(
        &self,
        number: usize,
        post_exit_hold: PostExitHold,
    ) -> Result<bool, StorageError> {
        let Some(marker) = self.open_marker(number)? else {
            return Ok(false);
        };
        marker.is_left_in_use(post_exit_hold)
    }

    /// Removes the files that a locked marker lists, then the marker.
    pub(crate) fn discard(&self, marker: Marker, blob: Blob<'_>) -> Result<Evicted, StorageError> {
        let note = marker.note()?;
        if note.files.is_none() {
            self.sweep(&marker)?;
        }
        let own = note.files.unwrap_or_default();
        for info in blob_files(blob) {
            match self.open_to_remove(&info.basename) {
                Ok(handle) if own.contains(&handle.birth()?) => {
                    if self.local.remove(&info.basename).is_err() {
                        // The file still takes space, so its marker stays.
                        return Ok(Evicted::Kept);
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
                Err(_) => return Ok(Evicted::Kept),
            }
        }
        marker.remove()?;
        Ok(Evicted::Removed)
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

    /// Removes what dead processes left: temporary files and, with `markers`, markers without a blob. Returns the
    /// bytes of temporary files that may still be written to.
    pub(crate) fn clean<'a>(
        &self,
        listing: &Listing,
        blob_of: impl Fn(usize) -> Option<Blob<'a>>,
        markers: bool,
        busy: impl Fn(usize) -> bool,
    ) -> Result<u64, StorageError> {
        let mut left = 0_u64;
        for (number, name) in &listing.temps {
            if number.is_some_and(&busy) {
                continue;
            }
            let dead = match number {
                Some(number) => self.is_abandoned(*number)?,
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
            let Some(blob) = blob_of(*number) else {
                continue;
            };
            if busy(*number) || self.local.exists(&blob.data.raw.basename).unwrap_or(true) {
                continue;
            }
            let Some(mut marker) = self.open_marker(*number)? else {
                continue;
            };
            let held = self.lock(&mut marker, ClaimMode::Exclusive)? == ClaimState::Held;
            if held && marker.is_named()? {
                self.discard(marker, blob)?;
            }
        }
        Ok(left)
    }

    /// Returns whether no process holds the lock of a blob's marker.
    fn is_abandoned(&self, number: usize) -> Result<bool, StorageError> {
        if !self.locks {
            return Ok(false);
        }
        let Some(mut marker) = self.open_marker(number)? else {
            // A marker is created before the temporary file and removed after it.
            return Ok(true);
        };
        Ok(self.lock(&mut marker, ClaimMode::Exclusive)? == ClaimState::Held)
    }
}

/// Returns all files that the cache may write for a blob: raw and compressed ones.
fn blob_files(blob: Blob<'_>) -> impl Iterator<Item = &FileInfo> {
    let files = blob.files().flat_map(|file| [Some(file.raw), file.packed]);
    files.flatten()
}
