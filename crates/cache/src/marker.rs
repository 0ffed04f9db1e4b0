//! The marker of a blob: a file that reserves space, is locked while the blob is in use, and lists the files that the
//! cache wrote.

use std::time::{Duration, SystemTime};

use shardmill_storage::{Claim, FileBirth, StorageError};

use crate::verified_stamp::VerifiedStamp;

/// The size that a marker counts as; no marker is larger.
pub(crate) const MARKER_BYTES: u64 = 256;

/// A marker that is locked, or that counts as locked on file systems without locks.
#[derive(Debug)]
pub struct Marker {
    pub(crate) number: usize,
    pub(crate) claim: Claim,
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

impl Marker {
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
                self.claim.write(at as u64, line.as_bytes())
            }
            None => Ok(()),
        }
    }

    fn bytes(&self) -> Result<Vec<u8>, StorageError> {
        let max = usize::try_from(MARKER_BYTES).unwrap_or(usize::MAX);
        self.claim.read(0, max)
    }

    pub(crate) fn note(&self) -> Result<Note, StorageError> {
        Ok(Note::parse(&self.bytes()?))
    }
}
