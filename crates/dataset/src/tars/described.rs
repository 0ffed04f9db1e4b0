//! Makes the entries that an index of tar files would have.

use std::sync::Arc;

use shardmill_webdataset::{FieldSet, FileHashes, FileInfo, IndexShard, ShardMap, TarCompression};

use crate::listing::raw_tar_name;

/// Returns the compression that the name of a tar file tells.
pub(super) fn compression_of(name: &str) -> Option<TarCompression> {
    let lower = name.to_ascii_lowercase();
    if lower.ends_with("gz") {
        Some(TarCompression::Gzip { level: 6 })
    } else if lower.ends_with(".zst") {
        Some(TarCompression::Zstd { level: 3 })
    } else {
        None
    }
}

/// Returns the entry of an index for a tar file whose headers are not read yet.
pub(super) fn unscanned(name: &str, bytes: u64, compression: Option<TarCompression>) -> IndexShard {
    let file = |name: &str| FileInfo {
        basename: name.into(),
        bytes,
        hashes: FileHashes::default(),
    };
    IndexShard {
        fields: Arc::default(),
        samples: 0,
        compression,
        raw_data: file(&raw_tar_name(name)),
        zip_data: compression.map(|_| file(name)),
        offsets: None,
    }
}

/// Returns the entry of a tar file with these headers.
pub(super) fn scanned(entry: &IndexShard, map: &ShardMap) -> IndexShard {
    let mut scanned = entry.clone();
    scanned.fields = Arc::new(FieldSet::of(&map.samples));
    scanned.samples = map.samples.len() as u64;
    scanned.raw_data.bytes = map.bytes;
    scanned
}
