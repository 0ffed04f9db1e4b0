//! Files beside an index that have a value of each stored sample of one column.

use std::fmt::Write as _;
use std::path::PathBuf;

use shardmill_mds::ShardEntry;

use crate::dataset::Dataset;
use crate::error::DatasetError;
use crate::file_frame::{FileFrame, HASH_BYTES};
use crate::problem::{Subject, ValueLocation};
use crate::side_files::if_there;
use crate::view::ViewTarget;

/// A kind of such a file.
pub(crate) struct ColumnFile {
    pub(crate) frame: FileFrame,
    /// What the names of the files begin with.
    pub(crate) prefix: &'static str,
    /// The bytes between the hash of the index and the number of samples.
    pub(crate) note_bytes: usize,
    /// The bytes of a value.
    pub(crate) value_bytes: usize,
    /// What the values are called.
    pub(crate) values: &'static str,
}

/// The parts of such a file.
pub(crate) struct ColumnParts<'a> {
    /// The SHA-256 of the index.
    pub(crate) digest: [u8; 32],
    /// The bytes between the hash of the index and the number of samples.
    pub(crate) note: &'a [u8],
    pub(crate) column: String,
    /// The values of all stored samples.
    pub(crate) values: &'a [u8],
}

impl ColumnFile {
    /// Returns the name of the file of a column. Characters other than ASCII letters, digits, `_` and `-` are written as
    /// `%` and two hexadecimal digits for each byte.
    pub(crate) fn name(&self, column: &str) -> String {
        let mut name = self.prefix.to_owned();
        for byte in column.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => name.push(byte.into()),
                _ => {
                    // Writing to a string does not fail.
                    let _infallible = write!(name, "%{byte:02X}");
                }
            }
        }
        name
    }

    /// Returns whether a file has the name of such a file.
    pub(crate) fn is_name(&self, name: &str) -> bool {
        name.strip_prefix(self.prefix)
            .is_some_and(|column| !column.is_empty() && !column.contains('.'))
    }

    /// Returns the bytes of a file without the name of its column and its values.
    fn head_bytes(&self) -> usize {
        self.frame.magic.len() + 4 + 32 + self.note_bytes + 8 + 4 + HASH_BYTES
    }

    /// Reads the file of a column beside the index of a dataset, `None` if there is none. Also returns its path, and what it
    /// must refer to.
    pub(crate) fn read(
        &self,
        dataset: &Dataset,
        column: &str,
    ) -> Result<(Option<Vec<u8>>, PathBuf, ViewTarget), DatasetError> {
        let target = dataset.view_target()?;
        let name = self.name(column);
        let max = (self.value_bytes as u64)
            .saturating_mul(target.live.stored())
            .saturating_add((self.head_bytes() + 3 * name.len()) as u64);
        let bytes = if_there(dataset.dir().read(&name, max))?;
        Ok((bytes, dataset.dir().path_of(&name), target))
    }

    /// Takes a file apart. `subject` is its name in messages.
    pub(crate) fn parse<'a>(
        &self,
        bytes: &'a [u8],
        subject: &Subject,
    ) -> Result<ColumnParts<'a>, DatasetError> {
        let damaged = |reason: &str| self.frame.damaged.at(subject.clone(), reason);
        let short = || damaged("it is too short");
        let rest = self.frame.content(bytes, subject)?;
        let (digest, rest) = rest.split_first_chunk::<32>().ok_or_else(short)?;
        let (note, rest) = rest.split_at_checked(self.note_bytes).ok_or_else(short)?;
        let (samples, rest) = rest.split_first_chunk::<8>().ok_or_else(short)?;
        let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(short)?;
        let length = u32::from_le_bytes(*length) as usize;
        let (column, values) = rest.split_at_checked(length).ok_or_else(short)?;
        let column = std::str::from_utf8(column)
            .map_err(|_| damaged("the name of its column is not UTF-8"))?;
        let samples = u64::from_le_bytes(*samples);
        let found = values.len() / self.value_bytes;
        if found as u64 != samples || values.len() % self.value_bytes != 0 {
            let kind = self.values;
            return Err(damaged(&format!(
                "its header declares {samples} {kind}, and it has {found}"
            )));
        }
        Ok(ColumnParts {
            digest: *digest,
            note,
            column: column.to_owned(),
            values,
        })
    }

    /// Returns the bytes of a file. Equal parts have equal bytes.
    pub(crate) fn to_bytes<const VALUE: usize>(
        &self,
        digest: &[u8; 32],
        note: &[u8],
        column: &str,
        values: impl ExactSizeIterator<Item = [u8; VALUE]>,
    ) -> Vec<u8> {
        let size = self.head_bytes() + column.len() + VALUE * values.len();
        let mut bytes = Vec::with_capacity(size);
        self.frame.begin(&mut bytes);
        bytes.extend_from_slice(digest);
        bytes.extend_from_slice(note);
        bytes.extend_from_slice(&(values.len() as u64).to_le_bytes());
        // INVARIANT: the name of a column is in an index, whose size is limited.
        let length = u32::try_from(column.len()).unwrap_or(u32::MAX);
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(column.as_bytes());
        for value in values {
            bytes.extend_from_slice(&value);
        }
        FileFrame::end(&mut bytes);
        bytes
    }
}

/// Returns the location of a column in a shard, or of its value in a stored sample.
pub(crate) fn location_of(entry: &ShardEntry, sample: Option<u64>, column: &str) -> ValueLocation {
    ValueLocation {
        sample,
        column: Some(column.to_owned()),
        ..ValueLocation::file(&entry.raw_data.basename)
    }
}
