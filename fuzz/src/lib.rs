//! Fuzz targets for everything that parses bytes from outside: indexes, shards, values, tar files, states, URLs.
//!
//! A [`Target`] takes any bytes. It passes if it returns: a parser may refuse its input, but must not panic, allocate
//! without bound or contradict itself. Where a value can be written again, the target checks that it reads back equal.
//!
//! `make fuzz` runs the targets with libFuzzer. The test `corpus` runs them over the files of `fixtures/` and of
//! `fuzz/corpus/`, and over mutations of both. An input that made a target fail belongs into `fuzz/corpus/TARGET/`.

mod limits;
mod mds;
mod records;
mod seeds;
mod tar;
mod target;
mod text;
mod zarr;

pub use seeds::seeds;
pub use target::{Seeds, Target};

/// All targets.
pub const TARGETS: &[Target] = &[
    target("mds-index", &["index.json"], mds::index),
    target("mds-shard", &[".mds"], mds::shard),
    Target {
        name: "mds-text-shard",
        seeds: Seeds::TextShards,
        run: mds::text_shard,
    },
    target("mds-value", &[".mds"], mds::value),
    target(
        "mds-compression",
        &[".zstd", ".gz", ".br", ".bz2", ".snappy"],
        mds::compression,
    ),
    target("json", &["index.json", ".json"], text::json),
    target("tar-shard", &[".tar"], tar::shard),
    target("tar-compression", &[".tar.gz"], tar::compression),
    target("tar-index", &[], tar::index),
    target("tar-offsets", &[], tar::offsets),
    target("tar-value", &[], tar::value),
    target("tfrecord", &[".tfrecord"], records::tfrecord),
    target("zarr-metadata", &["zarr.json", ".zarray"], zarr::metadata),
    target(
        "zarr-chunk",
        &["shuffle/c/0/0", "blosc-zlib/c/0/0"],
        zarr::chunk,
    ),
    target("npz", &[], tar::npz),
    target("braces", &[], text::braces),
    target("tar-pattern", &[], text::tar_pattern),
    target("location", &[], text::location),
    target("order-state", &[], text::order_state),
    target("shard-pattern", &[], text::shard_pattern),
    target("part-manifest", &[], text::part_manifest),
    target("pending-note", &[], text::pending_note),
];

const fn target(name: &'static str, endings: &'static [&'static str], run: fn(&[u8])) -> Target {
    Target {
        name,
        seeds: Seeds::Files(endings),
        run,
    }
}
