//! Names the files of a shard.

use shardmill_core::Format;

use shardmill_codec::Compression;

/// Returns the name of a file of the shard with that number: `shard.00000.mds`, `shard.00000.tsv.meta.gz`, …
///
/// `meta` selects the file of offsets, which every format but MDS has in addition to its data file.
#[must_use]
pub fn basename(
    shard: u64,
    format: Format,
    meta: bool,
    compression: Option<&Compression>,
) -> String {
    let meta = if meta { ".meta" } else { "" };
    match compression {
        None => format!("shard.{shard:05}.{format}{meta}"),
        Some(compression) => format!(
            "shard.{shard:05}.{format}{meta}.{}",
            compression.extension()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shard_basenames_match_mosaicml_streaming() {
        let zstd = "zstd:7".parse().unwrap();
        let gz = "gz".parse().unwrap();
        assert_eq!(basename(0, Format::Mds, false, None), "shard.00000.mds");
        assert_eq!(
            basename(12, Format::Mds, false, Some(&zstd)),
            "shard.00012.mds.zstd"
        );
        assert_eq!(
            basename(0, Format::Tsv, true, Some(&gz)),
            "shard.00000.tsv.meta.gz"
        );
        assert_eq!(
            basename(100_000, Format::Json, true, None),
            "shard.100000.json.meta"
        );
    }
}
