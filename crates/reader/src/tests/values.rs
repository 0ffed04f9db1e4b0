//! Tests of locations of values, and of parts of shards.

use shardmill_dataset::StreamOptions;
use shardmill_storage::Location;

use super::streaming::Kind;
use crate::{Reader, ReaderOptions};

/// The column of bytes of a kind of samples.
const COLUMNS: [(Kind, &str); 5] = [
    (Kind::Mixed, "z"),
    (Kind::Zipped, "z"),
    (Kind::Tar, "bin"),
    (Kind::BareTar, "bin"),
    (Kind::ZstdTar, "bin"),
];

#[test]
fn byte_range_of_a_value_contains_the_value() {
    for (kind, column) in COLUMNS {
        let temp = tempfile::tempdir().unwrap();
        let (from, to) = (temp.path().join("from"), temp.path().join("to"));
        std::fs::create_dir(&from).unwrap();
        kind.write(&from, &[5, 0, 7], 0);
        let open = |stream| Reader::open(&[stream], &ReaderOptions::default()).unwrap();
        let local = open(StreamOptions::local(&from));
        let fetched = open(StreamOptions::remote(Location::Local(from.clone()), to));
        for sample in 0..12 {
            let (offset, value) = local.value_at(sample, column).unwrap().unwrap();
            let end = offset + value.len() as u64;
            let ranges = [offset..end, offset..offset];
            let read = local.read_ranges(sample, &ranges).unwrap();
            assert_eq!(read, [value.clone(), Vec::new()], "{kind:?}");
            assert!(
                kind.sample(sample)
                    .windows(value.len().max(1))
                    .any(|found| found == value)
                    || value.is_empty()
            );
            if sample < 5 {
                // No shard is in the cache yet.
                match fetched.read_ranges(sample, &ranges) {
                    Ok(read) => assert_eq!(read[0], value, "{kind:?}"),
                    Err(error) => {
                        assert_eq!(error.id(), "shard-indivisible", "{kind:?}: {error}");
                        assert!(matches!(kind, Kind::Zipped | Kind::ZstdTar), "{kind:?}");
                    }
                }
            } else {
                assert_eq!(
                    fetched.value_at(sample, column).unwrap(),
                    Some((offset, value.clone()))
                );
                assert_eq!(fetched.read_ranges(sample, &ranges).unwrap()[0], value);
            }
            let stored = fetched.stored_place(sample).unwrap();
            assert_eq!((stored.stream, stored.number), (0, sample));
        }
        assert_eq!(local.value_at(0, "none").unwrap(), None);
        assert_eq!(
            local.value_at(12, column).unwrap_err().id(),
            "no-such-sample"
        );
        let beyond = u64::MAX - 1..u64::MAX;
        assert_eq!(
            local.read_ranges(0, &[beyond]).unwrap_err().id(),
            "shard-changed"
        );
    }
}
