//! Targets for Zarr arrays.

use shardmill_core::Limits;
use shardmill_zarr::{CfDecoder, Shard, ZarrArray, consolidated};

/// Parses the metadata of an array, and finds chunks of it.
pub(crate) fn metadata(bytes: &[u8]) {
    let limits = Limits::default();
    let _ = consolidated(bytes, "zarr.json");
    let arrays = [
        ZarrArray::parse_v3(bytes, &limits),
        ZarrArray::parse_v2(bytes, None, &limits),
    ];
    for array in arrays.into_iter().flatten() {
        assert_eq!(array.fill.len(), array.dtype.size());
        let last: Vec<u64> = array
            .grid()
            .iter()
            .map(|own| own.saturating_sub(1))
            .collect();
        let place = array.place(&last);
        assert_eq!(place.in_shard.is_some(), array.shard.is_some());
        let _ = array.decode(bytes, &limits);
        if let Ok(mut decoder) = CfDecoder::new(&array) {
            let elements = (bytes.len() / array.dtype.size()).min(64);
            let mut values = vec![0; elements * decoder.physical().size()];
            if decoder.decode(bytes, &mut values).is_err() {
                decoder.widen();
                let _ = decoder.decode(bytes, &mut values);
            }
        }
        if let Some(shard) = &array.shard
            && let Ok(range) = shard.index_range(bytes.len() as u64)
        {
            assert!(range.end <= bytes.len() as u64);
        }
    }
}

/// Decodes a chunk of 32 × 32 numbers of four bytes with Blosc, and reads an entry of the index of a shard.
pub(crate) fn chunk(bytes: &[u8]) {
    let limits = Limits::default();
    let metadata =
        br#"{"zarr_format": 2, "shape": [50, 40], "chunks": [32, 32], "dtype": "<i4", "order": "C",
        "compressor": {"id": "blosc"}, "filters": null, "fill_value": 0}"#;
    let array = ZarrArray::parse_v2(metadata, None, &limits);
    assert!(array.is_ok(), "the metadata is valid");
    if let Ok(array) = array
        && let Ok(values) = array.decode(bytes, &limits)
    {
        assert_eq!(values.len() as u64, array.chunk_bytes());
    }
    if let Ok(Some(range)) = Shard::range(bytes, 0, bytes.len() as u64) {
        assert!(range.start <= range.end && range.end <= bytes.len() as u64);
    }
}
