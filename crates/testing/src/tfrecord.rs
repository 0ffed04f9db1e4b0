//! Writes TFRecord files.

use crc::{CRC_32_ISCSI, Crc};

/// Returns a file of these records.
#[must_use]
pub fn file(records: &[&[u8]]) -> Vec<u8> {
    let crc = Crc::<u32>::new(&CRC_32_ISCSI);
    let masked = |bytes: &[u8]| {
        let crc = crc.checksum(bytes);
        crc.rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
    };
    let mut file = Vec::new();
    for record in records {
        let length = (record.len() as u64).to_le_bytes();
        file.extend([&length[..], &masked(&length), record, &masked(record)].concat());
    }
    file
}
