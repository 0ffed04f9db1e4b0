//! Reads and writes the table of pieces at the end of a compressed shard.

use std::ops::Range;

use super::kind::TarCompression;
use crate::error::CodecError;

/// The most pieces that the extra field of a gzip member can list.
pub(super) const MOST_PIECES: u64 = (u16::MAX as u64 - 8) / ENTRY_BYTES;

/// The size of an entry: two 32-bit numbers, for compressed and raw bytes.
const ENTRY_BYTES: u64 = 8;

/// The magic numbers of the seekable format: that of its skippable frame, and the one at its end.
const SEEK_FRAME: [u8; 4] = 0x184d_2a5e_u32.to_le_bytes();
const SEEK_MAGIC: [u8; 4] = 0x8f92_eab1_u32.to_le_bytes();

/// The start of the empty gzip member, which has an extra field.
const GZIP_EXTRA: [u8; 10] = [0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 0xff];

/// The lengths of a gzip header without extra fields, and of the last block with checksum and length.
const GZIP_HEAD: u64 = 10;
const GZIP_FOOT: u64 = 10;

/// An empty last block of a deflate stream.
pub(super) const LAST_BLOCK: [u8; 2] = [3, 0];

/// One piece of a compressed shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its range in the compressed file.
    pub zip: Range<u64>,
    /// Its range in the raw shard.
    pub raw: Range<u64>,
}

/// The pieces of a compressed shard, in order and contiguous.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PieceTable {
    pieces: Vec<Piece>,
}

/// Appends the table of pieces with these compressed and raw lengths.
pub(super) fn write(
    compression: TarCompression,
    lengths: impl ExactSizeIterator<Item = (u32, u32)>,
    out: &mut Vec<u8>,
) {
    let count = u32::try_from(lengths.len()).unwrap_or(u32::MAX);
    let entries = lengths.flat_map(|(zip, raw)| [zip.to_le_bytes(), raw.to_le_bytes()]);
    match compression {
        TarCompression::Zstd { .. } => {
            out.extend_from_slice(&SEEK_FRAME);
            out.extend_from_slice(&(8 * count + 9).to_le_bytes());
            entries.for_each(|entry| out.extend_from_slice(&entry));
            out.extend_from_slice(&count.to_le_bytes());
            out.push(0);
            out.extend_from_slice(&SEEK_MAGIC);
        }
        TarCompression::Gzip { .. } => {
            let field = u16::try_from(8 * count + 4).unwrap_or(u16::MAX);
            out.extend_from_slice(&GZIP_EXTRA);
            out.extend_from_slice(&(field + 4).to_le_bytes());
            out.extend_from_slice(b"SM");
            out.extend_from_slice(&field.to_le_bytes());
            entries.for_each(|entry| out.extend_from_slice(&entry));
            out.extend_from_slice(&count.to_le_bytes());
            out.extend_from_slice(&LAST_BLOCK);
            out.extend_from_slice(&[0; 8]);
        }
    }
}

impl PieceTable {
    /// The length of the end of a file that contains the table, if there is one: fetch that many bytes.
    pub const TAIL_BYTES: u64 = MOST_PIECES * ENTRY_BYTES + 64;

    /// Reads the table of a compressed file of `length` bytes from its last bytes. [`TAIL_BYTES`](Self::TAIL_BYTES) are
    /// always enough. `None` means that the file has no table, because another program wrote it.
    ///
    /// # Errors
    ///
    /// [`CodecError::Table`] (`Corrupt`) for a table that does not match the file.
    pub fn read(tail: &[u8], length: u64) -> Result<Option<Self>, CodecError> {
        let error = |reason| CodecError::Table { reason };
        let Some((entries, table_bytes, head, foot)) = find(tail) else {
            return Ok(None);
        };
        let begin = length
            .checked_sub(table_bytes)
            .ok_or_else(|| error("is longer than the file"))?;
        let end = begin
            .checked_sub(foot)
            .ok_or_else(|| error("is longer than the file"))?;
        let (mut zip, mut raw) = (head, 0_u64);
        let mut pieces = Vec::with_capacity(entries.len() / 8);
        for entry in entries.chunks_exact(8) {
            let zip_end = zip.saturating_add(number(entry, 0));
            let raw_end = raw.saturating_add(number(entry, 4));
            pieces.push(Piece {
                zip: zip..zip_end,
                raw: raw..raw_end,
            });
            (zip, raw) = (zip_end, raw_end);
        }
        if zip != end {
            return Err(error("does not add up to the length of the file"));
        }
        Ok(Some(Self { pieces }))
    }

    /// Returns the pieces.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Returns the length of the raw shard.
    #[must_use]
    pub fn raw_bytes(&self) -> u64 {
        self.pieces.last().map_or(0, |piece| piece.raw.end)
    }

    /// Returns the pieces that cover a range of the raw shard.
    #[must_use]
    pub fn covering(&self, raw: &Range<u64>) -> &[Piece] {
        let begin = self
            .pieces
            .partition_point(|piece| piece.raw.end <= raw.start);
        let end = self
            .pieces
            .partition_point(|piece| piece.raw.start < raw.end);
        self.pieces.get(begin..end).unwrap_or_default()
    }
}

/// Reads four bytes of `bytes` as a number.
fn number(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    u64::from(u32::from_le_bytes(*word.unwrap_or(&[0; 4])))
}

/// Finds a table at the end of `tail`. Returns its entries, the bytes of the whole table, and the bytes of the file's
/// framing before and after the pieces.
fn find(tail: &[u8]) -> Option<(&[u8], u64, u64, u64)> {
    if let Some(rest) = tail.strip_suffix(&SEEK_MAGIC) {
        // A bit of the descriptor means that pieces have checksums; no writer of shards sets it.
        let (descriptor, rest) = rest.split_last()?;
        let (rest, count) = rest.split_last_chunk::<4>()?;
        let count = u32::from_le_bytes(*count);
        let bytes = u64::from(count).checked_mul(ENTRY_BYTES)?;
        let begin = rest.len().checked_sub(usize::try_from(bytes).ok()?)?;
        let (rest, entries) = rest.split_at_checked(begin)?;
        let (rest, size) = rest.split_last_chunk::<4>()?;
        let fits = u64::from(u32::from_le_bytes(*size)) == bytes.checked_add(9)?;
        let is_table = fits && *descriptor == 0 && rest.ends_with(&SEEK_FRAME);
        return is_table.then_some((entries, bytes + 17, 0, 0));
    }
    let rest = tail.strip_suffix(&[0; 8])?.strip_suffix(&LAST_BLOCK)?;
    let (rest, count) = rest.split_last_chunk::<4>()?;
    let bytes = u64::from(u32::from_le_bytes(*count)).checked_mul(ENTRY_BYTES)?;
    let begin = rest.len().checked_sub(usize::try_from(bytes).ok()?)?;
    let (rest, entries) = rest.split_at_checked(begin)?;
    let (rest, field) = rest.split_last_chunk::<2>()?;
    let rest = rest.strip_suffix(b"SM")?;
    let (rest, extra) = rest.split_last_chunk::<2>()?;
    let field = u64::from(u16::from_le_bytes(*field));
    let extra = u64::from(u16::from_le_bytes(*extra));
    let is_table = field == bytes + 4 && extra == field + 4 && rest.ends_with(&GZIP_EXTRA);
    is_table.then_some((entries, bytes + 30, GZIP_HEAD, GZIP_FOOT))
}
