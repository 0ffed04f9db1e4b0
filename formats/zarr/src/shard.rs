//! Chunks of a shard: an object with an index of its chunks.

use std::ops::Range;

use shardmill_core::Limits;

use crate::codec::{Codecs, Packer};
use crate::error::ZarrError;
use crate::region::elements;

/// How the objects of an array hold chunks.
#[derive(Clone, Debug)]
pub struct Shard {
    /// The number of chunks along each axis.
    pub(crate) chunks: Vec<u64>,
    pub(crate) at_start: bool,
    pub(crate) index: Codecs,
}

impl Shard {
    /// Returns the bytes of the index in an object of `bytes` bytes.
    ///
    /// # Errors
    ///
    /// [`ZarrError::Chunk`] if the object is too short.
    pub fn index_range(&self, bytes: u64) -> Result<Range<u64>, ZarrError> {
        let crc = 4 * self
            .index
            .packers
            .iter()
            .filter(|own| **own == Packer::Crc32c)
            .count() as u64;
        let length = elements(&self.chunks).and_then(|all| all.checked_mul(16)?.checked_add(crc));
        let start = length.and_then(|length| bytes.checked_sub(length));
        match (length, start) {
            (Some(length), Some(_)) if self.at_start => Ok(0..length),
            (_, Some(start)) => Ok(start..bytes),
            _ => Err(ZarrError::chunk(format!(
                "the shard has {bytes} bytes, fewer than its index"
            ))),
        }
    }

    /// Decodes the index: the offset and the length of each chunk.
    ///
    /// # Errors
    ///
    /// [`ZarrError::Chunk`] if it is corrupt.
    pub fn index(&self, bytes: &[u8], limits: &Limits) -> Result<Vec<u8>, ZarrError> {
        let shape = [self.chunks.as_slice(), &[2]].concat();
        self.index.decode(bytes, &shape, 8, limits)
    }

    /// Returns the bytes of a chunk in an object of `bytes` bytes, by its number in the decoded index. `None` if the shard
    /// does not have the chunk.
    ///
    /// # Errors
    ///
    /// [`ZarrError::Chunk`] if they do not lie inside the object.
    pub fn range(index: &[u8], number: u64, bytes: u64) -> Result<Option<Range<u64>>, ZarrError> {
        let outside =
            || ZarrError::chunk(format!("the index of the shard has a wrong entry {number}"));
        let at = usize::try_from(number)
            .ok()
            .and_then(|number| number.checked_mul(16));
        let entry = at.and_then(|at| index.get(at..)?.first_chunk::<16>());
        let [a, b, c, d, e, f, g, h, length @ ..] = *entry.ok_or_else(outside)?;
        let offset = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let length = u64::from_le_bytes(length);
        if (offset, length) == (u64::MAX, u64::MAX) {
            return Ok(None);
        }
        let end = offset.checked_add(length).filter(|end| *end <= bytes);
        Ok(Some(offset..end.ok_or_else(outside)?))
    }
}
