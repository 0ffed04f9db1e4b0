//! Targets for files of records.

use shardmill_records::{
    CHUNK_HEAD, ChunkHead, FRAME_HEAD, FRAME_TAIL, IndexHead, check_data,
    example, footer_place, frame_length, masked_crc, record_sizes,
    simple_chunk, without_block_headers,
};

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

/// Reads the head of an index of Megatron. The parts of the index must lie within it, one after the other.
pub(crate) fn megatron_index(bytes: &[u8]) {
    let Some(head) = bytes.first_chunk() else {
        return;
    };
    let Ok(parts) = IndexHead::decode(head).and_then(|head| head.parts(bytes.len() as u64)) else {
        return;
    };
    let places = [parts.lengths, parts.places, parts.bounds];
    assert!(places.is_sorted() && places.iter().all(|place| *place <= bytes.len() as u64));
    assert!(
        parts
            .modes
            .is_none_or(|modes| (parts.bounds..=bytes.len() as u64).contains(&modes))
    );
}

/// Reads the chunks of an ArrayRecord file. Chunks with a wrong hash are parsed, too.
pub(crate) fn arrayrecord(bytes: &[u8]) {
    let mut place = 0;
    while let Some(rest) = usize::try_from(place).ok().and_then(|at| bytes.get(at..)) {
        let content = without_block_headers(rest, place);
        let Some((head, data)) = content.split_first_chunk::<CHUNK_HEAD>() else {
            return;
        };
        let Ok(head) = ChunkHead::decode(head) else {
            return;
        };
        let length = usize::try_from(head.data_bytes).unwrap_or(usize::MAX);
        if let Some(chunk) = data.get(..length).and_then(|data| simple_chunk(data).ok()) {
            if let Ok(sizes) = record_sizes(chunk.sizes.0, &head) {
                assert_eq!(sizes.len() as u64, head.records);
            }
            let record = chunk.values.0;
            assert!(footer_place(record).is_none() || !record.is_empty());
        }
        let Some(end) = head.end(place) else {
            return;
        };
        assert!(end > place);
        place = end;
    }
}
