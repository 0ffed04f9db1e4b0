//! Targets for WebDataset: shards, compression, index, offsets, values.

use shardmill_webdataset::{
    Consumer, Index, ShardView, Survey, decode, decompress, read_npz, read_offsets,
};

use crate::limits::limits;

/// Opens a shard and reads every sample. The scan that reads headers only has to find the same samples.
pub(crate) fn shard(bytes: &[u8]) {
    let limits = limits();
    let survey = Survey::of(bytes, &limits);
    let (samples, problems) = survey.samples(Consumer::Webdataset, &limits);
    if let Ok(view) = ShardView::open(bytes, &limits) {
        assert_eq!(view.len(), samples.len() as u64, "{problems:?}");
        for sample in 0..view.len() {
            let _ = view.fields(sample);
        }
    }
}

/// Decompresses a compressed shard.
pub(crate) fn compression(bytes: &[u8]) {
    let _ = decompress(bytes, None, &limits());
}

/// Parses an index. What is accepted is written and parsed again.
pub(crate) fn index(bytes: &[u8]) {
    if let Ok(index) = Index::parse(bytes, &limits()) {
        let json = index.to_json();
        let again = Index::parse(json.as_bytes(), &limits());
        assert_eq!(again.as_ref(), Ok(&index), "{json}");
    }
}

/// Reads the stored offsets of a shard, for every number of samples that may fit.
pub(crate) fn offsets(bytes: &[u8]) {
    for samples in 0..=(bytes.len() as u64 / 8 + 1) {
        let _ = read_offsets(bytes, samples);
    }
}

/// Decodes a field. The first byte selects its name.
pub(crate) fn value(bytes: &[u8]) {
    const FIELDS: &[&str] = &[
        "txt", "cls", "index", "json", "npy", "npz", "ten", "tenbin", "tb", "jpg", "png", "pyd",
        "cbor", "mp", "json.gz", "bin",
    ];
    if let Some((first, datum)) = bytes.split_first() {
        let field = FIELDS[usize::from(*first) % FIELDS.len()];
        let _ = decode(field, datum, &limits());
    }
}

/// Reads the arrays of an NPZ file.
pub(crate) fn npz(bytes: &[u8]) {
    let _ = read_npz("npz", bytes, &limits());
}
