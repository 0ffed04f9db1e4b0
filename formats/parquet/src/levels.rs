//! Repetition levels: which values of a page of lists begin a row.
//!
//! Source: Apache Parquet, `Encodings.md`, "Run Length Encoding / Bit-Packing Hybrid".

use crate::thrift::Walker;

/// Returns the number of rows that begin in a page of version 1 with `values` values: those whose repetition level is 0.
///
/// The page is decompressed, and its levels are in the hybrid encoding.
///
/// # Errors
///
/// Returns what is wrong if the levels go beyond the page, or if its first value continues a row of the page before.
pub(crate) fn count_rows(page: &[u8], max_level: i16, values: u64) -> Result<u64, &'static str> {
    const SHORT: &str = "levels go beyond their page";
    let (length, rest) = page.split_first_chunk::<4>().ok_or(SHORT)?;
    let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| SHORT)?;
    let mut levels = Walker::new(rest.get(..length).ok_or(SHORT)?);
    let width = u64::from(16 - max_level.leading_zeros());
    let (mut rows, mut left) = (0, values);
    while left > 0 {
        let header = levels.varint().map_err(|_| SHORT)?;
        let count = header >> 1;
        if header & 1 == 0 {
            let level = levels.take(width.div_ceil(8)).map_err(|_| SHORT)?;
            let is_row = level.iter().all(|byte| *byte == 0);
            if left == values && count > 0 && !is_row {
                return Err(CONTINUES);
            }
            // A run without values would not end.
            let run = count.min(left);
            if run == 0 {
                return Err("a run of levels is empty");
            }
            rows += if is_row { run } else { 0 };
            left -= run;
            continue;
        }
        let bytes = count.checked_mul(width).ok_or(SHORT)?;
        let packed = levels.take(bytes).map_err(|_| SHORT)?;
        if packed.is_empty() {
            return Err("a run of levels is empty");
        }
        for group in packed.chunks_exact(usize::try_from(width).map_err(|_| SHORT)?) {
            let present = left.min(8);
            let zeros = zeros_of(group, width, present);
            if left == values && zeros & 1 == 0 {
                return Err(CONTINUES);
            }
            rows += u64::from(zeros.count_ones());
            left -= present;
            if left == 0 {
                break;
            }
        }
    }
    Ok(rows)
}

const CONTINUES: &str = "a page begins within a row though it has an offset index";

/// Returns a bit for each of the first `present` of eight levels: whether it is 0.
fn zeros_of(group: &[u8], width: u64, present: u64) -> u8 {
    let mut bits = 0_u128;
    for (index, byte) in group.iter().enumerate() {
        bits |= u128::from(*byte) << (8 * index);
    }
    let mask = (1_u128 << width) - 1;
    let zeros = (0..8).filter(|level| (bits >> (level * width)) & mask == 0);
    let zeros = zeros.fold(0_u8, |all, level| all | 1 << level);
    match present {
        8.. => zeros,
        few => zeros & ((1 << few) - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(levels: &[u8]) -> Vec<u8> {
        let length = u32::try_from(levels.len()).unwrap().to_le_bytes();
        [&length[..], levels, b"values"].concat()
    }

    #[test]
    fn count_rows_counts_levels_equal_to_zero() {
        // Five zeros in a run, then a packed group of eight levels of one bit.
        let levels = [5 << 1, 0, 1 << 1 | 1, 0b1010_0110];
        assert_eq!(count_rows(&page(&levels), 1, 13), Ok(5 + 4));
        // The padding of the last group is not counted.
        assert_eq!(count_rows(&page(&levels), 1, 8), Ok(5 + 1));
        // Levels of two bits: 0, 1, 2, 0, 3, 0, 0, 1.
        let packed = [0b00_10_01_00, 0b01_00_00_11];
        assert_eq!(
            count_rows(&page(&[&[1 << 1 | 1][..], &packed].concat()), 2, 8),
            Ok(4)
        );
        // A long run has a header of several bytes, and levels above 255 have two bytes.
        assert_eq!(
            count_rows(&page(&[0x80 | 0x10, 0x03, 0, 0]), 300, 200),
            Ok(200)
        );
        assert_eq!(count_rows(&page(&[]), 1, 0), Ok(0));
    }

    #[test]
    fn corrupt_repetition_levels_are_errors() {
        for (levels, values) in [
            (&[][..], 1),
            (&[5 << 1][..], 1),
            (&[5 << 1, 0][..], 6),
            (&[2 << 1 | 1, 0][..], 16),
            (&[0x80; 9][..], 1),
            (&[0, 0][..], 1),
            (&[1, 0][..], 1),
            (&[1 << 1, 1][..], 1),
            (&[1 << 1 | 1, 1][..], 1),
        ] {
            assert!(count_rows(&page(levels), 1, values).is_err(), "{levels:?}");
        }
        assert!(count_rows(&[9, 0, 0, 0, 2, 0], 1, 1).is_err());
        assert!(count_rows(&[9, 0], 1, 1).is_err());
    }
}
