//! The frame of the files of views, of lengths and of videos: a magic number, a version, the content, and the hash of all
//! of it.

use sha2::{Digest as _, Sha256};

use crate::error::DatasetError;
use crate::problem::{DatasetProblem, Subject};

/// The bytes of the hash at the end.
pub(crate) const HASH_BYTES: usize = 32;

/// A kind of file with this frame.
#[derive(Debug)]
pub(crate) struct FileFrame {
    /// The first bytes.
    pub(crate) magic: &'static [u8],
    /// The version that is written, and the only one that is read.
    pub(crate) version: u32,
    /// What such a file is called in messages.
    pub(crate) kind: &'static str,
    /// The problem of damaged bytes.
    pub(crate) damaged: DatasetProblem,
    /// The problem of a file of another version.
    pub(crate) other_version: DatasetProblem,
}

impl FileFrame {
    /// Appends what stands before the content.
    pub(crate) fn begin(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self.magic);
        bytes.extend_from_slice(&self.version.to_le_bytes());
    }

    /// Appends the hash of all bytes of the file.
    pub(crate) fn end(bytes: &mut Vec<u8>) {
        let hash = Sha256::digest(&*bytes);
        bytes.extend_from_slice(&hash);
    }

    /// Checks the frame and returns the content.
    pub(crate) fn content<'a>(
        &self,
        bytes: &'a [u8],
        subject: &Subject,
    ) -> Result<&'a [u8], DatasetError> {
        let damaged = |reason: String| self.damaged.at(subject.clone(), reason);
        let short = || damaged("it is too short".to_owned());
        let rest = bytes.strip_prefix(self.magic);
        let rest = rest.ok_or_else(|| damaged(format!("it does not begin like {}", self.kind)))?;
        let (version, _) = rest.split_first_chunk::<4>().ok_or_else(short)?;
        let (version, known) = (u32::from_le_bytes(*version), self.version);
        if version != known {
            let reason = format!("its version is {version}, and this program reads {known}");
            return Err(self.other_version.at(subject.clone(), reason));
        }
        let (before, hash) = bytes.split_last_chunk::<HASH_BYTES>().ok_or_else(short)?;
        if Sha256::digest(before)[..] != hash[..] {
            return Err(damaged(
                "its bytes do not have the hash at its end".to_owned(),
            ));
        }
        let content = before.split_at_checked(self.magic.len() + 4);
        content.map(|(_, content)| content).ok_or_else(short)
    }
}
