//! Spools ranges of an object to a local file.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::handle::Remote;
use crate::error::{StorageError, check_name};
use crate::temp::{unnamed_error, unnamed_file};

/// Ranges with smaller gaps are fetched as one, because a request costs more than these bytes.
const GAP: u64 = 64 << 10;

/// The maximum number of bytes fetched in one piece.
const PIECE: u64 = 4 << 20;

/// The number of pieces of one file that are fetched concurrently and held in memory.
const PIECES: usize = 4;

impl Remote {
    /// Returns an unnamed sparse file of `bytes` bytes with some ranges of an object of that length. The bytes between
    /// them are zero and take no disk space. The file is created in `dir` or in the temporary directory of the system,
    /// and is deleted when it is closed. Nearby ranges are merged, and long ones are fetched in concurrent pieces, with
    /// 16 MiB in memory.
    ///
    /// # Errors
    ///
    /// As [`Remote::read_ranges_of`]; errors of writing the file.
    pub fn spool(
        &self,
        name: &str,
        bytes: u64,
        ranges: &[Range<u64>],
        dir: Option<&Path>,
    ) -> Result<File, StorageError> {
        check_name(name)?;
        let failed = |error| unnamed_error(dir, error);
        let file = unnamed_file(dir)?;
        file.set_len(bytes).map_err(failed)?;
        let pieces: Vec<(String, u64, Range<u64>)> = pieces(ranges)
            .into_iter()
            .map(|range| (name.to_owned(), bytes, range))
            .collect();
        for some in pieces.chunks(PIECES) {
            let found = self.read_ranges_of(some);
            for (found, (_, _, range)) in found.into_iter().zip(some) {
                file.write_all_at(&found?, range.start).map_err(failed)?;
            }
        }
        Ok(file)
    }
}

/// Sorts ranges, merges those with small gaps, and splits long ones.
fn pieces(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut sorted: Vec<Range<u64>> = ranges
        .iter()
        .filter(|range| range.start < range.end)
        .cloned()
        .collect();
    sorted.sort_unstable_by_key(|range| (range.start, range.end));
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(sorted.len());
    for range in sorted {
        match joined.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(GAP) => {
                last.end = last.end.max(range.end);
            }
            _ => joined.push(range),
        }
    }
    let mut pieces = Vec::with_capacity(joined.len());
    for range in joined {
        let mut start = range.start;
        while start < range.end {
            let end = range.end.min(start.saturating_add(PIECE));
            pieces.push(start..end);
            start = end;
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_merges_near_ranges_and_splits_long_ones() {
        assert_eq!(pieces(&[]), []);
        assert_eq!(pieces(&[5..5, 9..9]), []);
        assert_eq!(
            pieces(&[200..300, 0..100, 100_000..100_001]),
            [0..300, 100_000..100_001]
        );
        assert_eq!(
            pieces(&[0..PIECE + 1, 10..20]),
            [0..PIECE, PIECE..PIECE + 1]
        );
        let joined = 0..2 + GAP;
        assert_eq!(pieces(&[0..1, 1 + GAP..2 + GAP]), [joined]);
        assert_eq!(pieces(&[0..1, 2 + GAP..3 + GAP]), [0..1, 2 + GAP..3 + GAP]);
    }
}
