//! Targets for the MDS family: index, shards, values of each encoding, compression.

use std::sync::Arc;

use shardmill_mds::{
    Compression, Encoding, FileHashes, FileInfo, Index, ShardConfig, ShardEntry, ShardView,
    check_datum, decode, read_config,
};

use crate::limits::limits;

/// Parses an index. What is accepted is written and parsed again.
pub(crate) fn index(bytes: &[u8]) {
    if let Ok(index) = Index::parse(bytes, &limits()) {
        let json = index.to_json();
        let again = Index::parse(json.as_bytes(), &limits());
        assert_eq!(again.as_ref(), Ok(&index), "{json}");
    }
}

/// Opens an MDS shard with the configuration in its header, and reads every field.
pub(crate) fn shard(bytes: &[u8]) {
    if let Ok((config, samples)) = read_config(bytes, false, &limits()) {
        read(config, samples, bytes, None);
    }
}

/// Opens a shard of a text format with the configuration in its offsets. The input is the samples, the offsets, and the
/// length of the offsets in four bytes.
pub(crate) fn text_shard(bytes: &[u8]) {
    let Some((files, length)) = bytes.split_last_chunk::<4>() else {
        return;
    };
    let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
    let (data, meta) = files.split_at(files.len().saturating_sub(length));
    if let Ok((config, samples)) = read_config(meta, true, &limits()) {
        read(config, samples, data, Some(meta));
    }
}

fn read(config: ShardConfig, samples: u64, data: &[u8], meta: Option<&[u8]>) {
    let file = |bytes: &[u8]| FileInfo {
        basename: "shard".into(),
        bytes: bytes.len() as u64,
        hashes: FileHashes::default(),
    };
    let entry = ShardEntry {
        config: Arc::new(config),
        samples,
        raw_data: file(data),
        zip_data: None,
        raw_meta: meta.map(file),
        zip_meta: None,
    };
    if let Ok(view) = ShardView::open(&entry, data, meta, &limits()) {
        for sample in 0..view.len() {
            let _ = view.values(sample);
        }
    }
}

/// Decodes a value. The first byte selects the encoding. What the strict check accepts has to decode.
pub(crate) fn value(bytes: &[u8]) {
    let Some((first, datum)) = bytes.split_first() else {
        return;
    };
    let names = [
        &Encoding::names()[..],
        &["ndarray:uint8", "ndarray:float32:2,3"],
    ]
    .concat();
    let name = names[usize::from(*first) % names.len()];
    let Ok(encoding) = name.parse::<Encoding>() else {
        unreachable!("{name} is an encoding");
    };
    let decoded = decode(&encoding, datum, &limits());
    if check_datum(&encoding, datum, &limits()).is_ok() {
        assert!(decoded.is_ok(), "{name}: {decoded:?}");
    }
}

/// Decompresses with the algorithm that the first byte selects. What decompresses has the same bytes after another
/// round.
pub(crate) fn compression(bytes: &[u8]) {
    let Some((first, zip)) = bytes.split_first() else {
        return;
    };
    let all: Vec<_> = Compression::all().collect();
    let compression = all[usize::from(*first) % all.len()];
    if let Ok(raw) = compression.decompress(zip, None, &limits()) {
        let mut again = Vec::new();
        let compressed = compression
            .compressor()
            .and_then(|mut compressor| compressor.compress(&raw, &mut again));
        assert!(compressed.is_ok(), "{compressed:?}");
        let length = Some(raw.len() as u64);
        assert_eq!(
            compression.decompress(&again, length, &limits()).as_deref(),
            Ok(raw.as_slice())
        );
    }
}
