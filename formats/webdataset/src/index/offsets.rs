//! Reads and writes tables of offsets.

use crate::error::WebdatasetError;

/// Returns the offset table of a raw shard as the bytes of a file: the begin of each sample and the end of the last
/// one, as little-endian 64-bit numbers.
///
/// This is also the `.tar.idx` of Megatron-Energon, which therefore finds its table in place.
#[must_use]
pub fn write_offsets(offsets: &[u64]) -> Vec<u8> {
    offsets
        .iter()
        .flat_map(|offset| offset.to_le_bytes())
        .collect()
}

/// Parses the offsets in such a file. [`ShardView::with_offsets`](crate::ShardView::with_offsets) checks that they
/// match the shard.
///
/// # Errors
///
/// [`WebdatasetProblem::OffsetsLength`](crate::WebdatasetProblem::OffsetsLength) (`Corrupt`) for a length that does not match `samples`.
pub fn read_offsets(bytes: &[u8], samples: u64) -> Result<Vec<u64>, WebdatasetError> {
    let needed = samples.checked_add(1).and_then(|n| n.checked_mul(8));
    if needed != Some(bytes.len() as u64) {
        return Err(WebdatasetError::offsets_length(bytes.len() as u64, samples));
    }
    let (words, _) = bytes.as_chunks::<8>();
    Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

/// Returns the name of a shard's offset table: `a.tar.idx` for both `a.tar` and `a.tar.zst`.
#[must_use]
pub fn offsets_name(shard: &str) -> String {
    let raw = [".gz", ".zst"]
        .iter()
        .find_map(|ending| shard.strip_suffix(ending))
        .unwrap_or(shard);
    format!("{raw}.idx")
}
