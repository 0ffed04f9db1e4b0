//! Targets for files of records.

use shardmill_records::{FRAME_HEAD, FRAME_TAIL, check_data, example, frame_length, masked_crc};

/// Reads the features of a record.
pub(crate) fn tf_example(bytes: &[u8]) {
    let Ok(entries) = example(bytes) else {
        return;
    };
    for (name, feature) in entries.flatten() {
        assert!(name.len() <= bytes.len());
        let mut values = 0;
        if feature.visit(|_| values += 1).is_ok() {
            assert!(values <= bytes.len());
        }
    }
}

/// Reads the records of a TFRecord file. Records with a wrong checksum are parsed, too.
pub(crate) fn tfrecord(bytes: &[u8]) {
    let mut rest = bytes;
    while let Some((head, after)) = rest.split_first_chunk::<FRAME_HEAD>() {
        let Ok(length) = frame_length(head) else {
            return tf_example(after);
        };
        let Some((record, after)) = usize::try_from(length)
            .ok()
            .and_then(|length| after.split_at_checked(length))
        else {
            return;
        };
        tf_example(record);
        let Some((crc, after)) = after.split_first_chunk::<FRAME_TAIL>() else {
            return;
        };
        let crc = u32::from_le_bytes(*crc);
        assert_eq!(check_data(record, crc).is_ok(), masked_crc(record) == crc);
        rest = after;
    }
}
