//! The marker of a blob: a file that reserves space, is locked while the blob is in use, and lists the files that the
//! cache wrote.

use std::time::{Duration, SystemTime};

use shardmill_storage::{Claim, ClaimMode, Dir, FileBirth, NumberClaim, StorageError};

use crate::verified_stamp::VerifiedStamp;

/// The size that a marker counts as; no marker is larger.
pub(crate) const MARKER_BYTES: u64 = 256;

/// A marker that is locked, or that counts as locked on file systems without locks.
#[derive(Debug)]
pub struct Marker {
    pub(crate) number: usize,
    file: MarkerFile,
    /// The lock, if it is one of the table of claims and not one of the file itself.
    pub(crate) claim: Option<NumberClaim>,
}

/// The file of a marker.
#[derive(Debug)]
enum MarkerFile {
    Open(Claim),
    /// Closed, to be opened again by its name.
    Parked {
        own: Dir,
        birth: FileBirth,
    },
}

/// The content of a marker.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) pid: Option<u32>,
    /// The files written; `None` for a reservation.
    pub(crate) files: Option<Vec<FileBirth>>,
}

impl Note {
    pub(crate) fn text(files: Option<&[FileBirth]>) -> String {
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
    pub(crate) owner: u64,
    pub(crate) epoch: u64,
}

/// How long files stay pinned after a loader process exits, unless its owner begins another epoch.
const LEFT: Duration = Duration::from_secs(60);

/// Returns the text after the end of a note: the verified stamp, then the post-exit hold.
fn after_end(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    text.split_once("\nend\n").map(|(_, rest)| rest)
}

/// Returns the seconds since 1970.
pub(crate) fn seconds() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Returns the name of the marker of a blob.
pub(crate) fn name_of(number: usize) -> String {
    number.to_string()
}

impl Marker {
    pub(crate) const fn new(number: usize, file: Claim) -> Self {
        Self {
            number,
            file: MarkerFile::Open(file),
            claim: None,
        }
    }

    /// Closes the file for the time in which only the lock is needed. A marker whose lock is that of its file stays open.
    pub(crate) fn park(self, own: &Dir) -> Self {
        match (&self.file, &self.claim) {
            (MarkerFile::Open(file), Some(_)) => match file.birth() {
                Ok(birth) => Self {
                    file: MarkerFile::Parked {
                        own: own.clone(),
                        birth,
                    },
                    ..self
                },
                Err(_) => self,
            },
            _ => self,
        }
    }

    /// Opens a parked file again. If its name belongs to another file by now, the marker stays parked.
    pub(crate) fn unpark(&mut self) -> Result<(), StorageError> {
        if let MarkerFile::Parked { own, birth } = &self.file
            && let Some(file) = Claim::open(own, &name_of(self.number))?
            && file.birth()? == *birth
        {
            self.file = MarkerFile::Open(file);
        }
        Ok(())
    }

    /// Does something with the file. Returns `None` if it no longer has its name.
    fn with_file<T>(
        &self,
        act: impl FnOnce(&Claim) -> Result<T, StorageError>,
    ) -> Result<Option<T>, StorageError> {
        match &self.file {
            MarkerFile::Open(file) => act(file).map(Some),
            MarkerFile::Parked { own, birth } => match Claim::open(own, &name_of(self.number))? {
                Some(file) if file.birth()? == *birth => act(&file).map(Some),
                _ => Ok(None),
            },
        }
    }

    /// Returns the file, to lock it. `None` if it is parked.
    pub(crate) const fn file_mut(&mut self) -> Option<&mut Claim> {
        match &mut self.file {
            MarkerFile::Open(file) => Some(file),
            MarkerFile::Parked { .. } => None,
        }
    }

    /// Returns whether no other process can have locked the marker.
    pub(crate) fn is_exclusive(&self) -> bool {
        match (&self.claim, &self.file) {
            (Some(claim), _) => claim.is_exclusive(),
            (None, MarkerFile::Open(file)) => file.held() == Some(ClaimMode::Exclusive),
            (None, MarkerFile::Parked { .. }) => false,
        }
    }

    /// Returns whether the file still has its name: no other process has removed it.
    pub(crate) fn is_named(&self) -> Result<bool, StorageError> {
        Ok(self.with_file(Claim::is_named)?.unwrap_or(false))
    }

    /// Replaces the note.
    pub(crate) fn replace(&self, note: &str) -> Result<(), StorageError> {
        self.with_file(|file| file.replace(note.as_bytes()))
            .map(drop)
    }

    /// Removes the file, if it still has its name.
    pub(crate) fn remove(&self) -> Result<(), StorageError> {
        self.with_file(Claim::remove).map(drop)
    }

    /// Keeps the files pinned after this process exits: for 60 seconds, or until the owner's next epoch.
    pub(crate) fn leave_in_use(&self, hold: PostExitHold) -> Result<(), StorageError> {
        let until = seconds().saturating_add(LEFT.as_secs());
        let line = format!("until {until:020} {:020} {:020}\n", hold.owner, hold.epoch);
        self.write_after_end(VerifiedStamp::BYTES, &line)
    }

    /// Returns whether a process that exited still holds the files for its owner.
    pub(crate) fn is_left_in_use(&self, asking: PostExitHold) -> Result<bool, StorageError> {
        let bytes = self.bytes()?;
        let hold = || {
            let rest = after_end(&bytes)?.get(VerifiedStamp::BYTES..)?;
            let rest = rest.strip_prefix("until ")?;
            let mut words = rest.lines().next()?.split(' ');
            let mut word = || words.next()?.parse::<u64>().ok();
            Some((word()?, word()?, word()?))
        };
        let Some((until, owner, epoch)) = hold() else {
            return Ok(false);
        };
        let now = seconds();
        // An end further in the future is invalid: the clock was set back.
        let counts = now < until && until <= now.saturating_add(LEFT.as_secs());
        let is_done = owner == asking.owner && epoch < asking.epoch;
        Ok(counts && !is_done)
    }

    /// Returns whether this stamp is in the marker: another process has verified exactly these files.
    pub(crate) fn has_stamp(&self, verified_stamp: VerifiedStamp) -> Result<bool, StorageError> {
        let bytes = self.bytes()?;
        Ok(after_end(&bytes).and_then(VerifiedStamp::parse) == Some(verified_stamp))
    }

    /// Records for other processes that these files were verified; `None` clears the record.
    pub(crate) fn set_stamp(
        &self,
        verified_stamp: Option<VerifiedStamp>,
    ) -> Result<(), StorageError> {
        let line = verified_stamp.map(VerifiedStamp::line);
        self.write_after_end(0, line.as_deref().unwrap_or(VerifiedStamp::NONE))
    }

    /// Writes after the end of a note, in place and with a fixed length, so that a concurrent reader sees a complete
    /// note.
    fn write_after_end(&self, offset: usize, line: &str) -> Result<(), StorageError> {
        const END: &[u8] = b"\nend\n";

        let bytes = self.bytes()?;
        let end = bytes.windows(END.len()).position(|found| found == END);
        match end {
            Some(end) => {
                let at = end + END.len() + offset;
                self.with_file(|file| file.write(at as u64, line.as_bytes()))
                    .map(drop)
            }
            None => Ok(()),
        }
    }

    fn bytes(&self) -> Result<Vec<u8>, StorageError> {
        let max = usize::try_from(MARKER_BYTES).unwrap_or(usize::MAX);
        let bytes = self.with_file(|file| file.read(0, max))?;
        Ok(bytes.unwrap_or_default())
    }

    pub(crate) fn note(&self) -> Result<Note, StorageError> {
        Ok(Note::parse(&self.bytes()?))
    }
}
