//! Checks the frames of TFRecord files. A frame is the length of a record in eight bytes, its checksum, the record and
//! its checksum, little-endian.

use crc::{CRC_32_ISCSI, Crc, Table};

use crate::error::RecordError;

/// The number of bytes before a record: its length and the checksum of the length.
pub const FRAME_HEAD: usize = 12;

/// The number of bytes after a record: its checksum.
pub const FRAME_TAIL: usize = 4;

/// CRC-32C with tables for 16 bytes per step.
static CRC: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);

/// Returns the checksum that TFRecord files have for these bytes: CRC-32C, rotated by 15 bits, plus a constant, so that
/// a checksum over data that contains checksums stays strong.
#[must_use]
pub fn masked_crc(bytes: &[u8]) -> u32 {
    let crc = CRC.checksum(bytes);
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Returns the length of the record that follows the head of a frame.
///
/// # Errors
///
/// [`RecordError::Crc`] if the checksum of the length differs.
pub fn frame_length(head: &[u8; FRAME_HEAD]) -> Result<u64, RecordError> {
    let [a, b, c, d, e, f, g, h, crc @ ..] = *head;
    let length = [a, b, c, d, e, f, g, h];
    check("length", &length, u32::from_le_bytes(crc))?;
    Ok(u64::from_le_bytes(length))
}

/// Checks a record against its checksum.
///
/// # Errors
///
/// [`RecordError::Crc`] if it differs.
pub fn check_data(data: &[u8], expected: u32) -> Result<(), RecordError> {
    check("data", data, expected)
}

fn check(part: &'static str, bytes: &[u8], expected: u32) -> Result<(), RecordError> {
    let found = masked_crc(bytes);
    if found == expected {
        return Ok(());
    }
    Err(RecordError::Crc {
        part,
        expected,
        found,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masked_crc_matches_the_specification() {
        // RFC 3720, B.4: CRC-32C of 32 bytes.
        let ascending: Vec<u8> = (0..32).collect();
        for (bytes, crc) in [
            (&[0; 32][..], 0x8a91_36aa_u32),
            (&[0xff; 32], 0x62a8_ab43),
            (&ascending, 0x46dd_794e),
        ] {
            let masked = crc.rotate_right(15).wrapping_add(0xa282_ead8);
            assert_eq!(masked_crc(bytes), masked);
        }
    }

    #[test]
    fn flipped_bit_in_head_or_data_is_an_error() {
        let mut head = [0; FRAME_HEAD];
        head[..8].copy_from_slice(&9_u64.to_le_bytes());
        head[8..].copy_from_slice(&masked_crc(&9_u64.to_le_bytes()).to_le_bytes());
        assert_eq!(frame_length(&head), Ok(9));
        for bit in 0..96 {
            let mut wrong = head;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(
                frame_length(&wrong),
                Err(RecordError::Crc { part: "length", .. })
            ));
        }
        assert!(check_data(b"x", masked_crc(b"x")).is_ok());
        assert!(check_data(b"y", masked_crc(b"x")).is_err());
    }
}
