//! Tests of windows of neighbouring samples.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use shardmill_core::Error;
use shardmill_dataset::{LiveSamples, StreamOptions, View, ViewTarget, Window};
use shardmill_order::World;
use shardmill_storage::Location;

use super::streaming::{KINDS, Kind, encoded};
use crate::{BatchOptions, Cancel, Reader, ReaderOptions, find_episodes};

/// Opens a dataset with windows.
fn open(stream: &StreamOptions, window: Window) -> Result<Reader, Error> {
    let options = ReaderOptions {
        window: Some(Arc::new(window)),
        ..ReaderOptions::default()
    };
    Reader::open(std::slice::from_ref(stream), &options)
}

/// Returns a view of the first samples of episodes of a dataset.
fn episodes(dir: &Path, firsts: Vec<u64>) -> View {
    let reader = Reader::open(&[StreamOptions::local(dir)], &ReaderOptions::default()).unwrap();
    let target = ViewTarget {
        digest: reader.catalog().streams()[0].index_digest,
        live: LiveSamples::all(reader.catalog().samples()),
    };
    View::new(&target, firsts)
}

/// Returns the neighbours of each sample that has all, or of all samples with padding.
fn wanted(samples: u64, firsts: &[u64], offsets: &[i64], pad: bool) -> BTreeMap<u64, Vec<u64>> {
    let episode = |sample: u64| {
        firsts
            .iter()
            .filter(|first| **first <= sample)
            .max()
            .copied()
    };
    let mut found = BTreeMap::new();
    for sample in 0..samples {
        let own: Vec<u64> = (0..samples)
            .filter(|other| episode(*other) == episode(sample))
            .collect();
        let at = own.iter().position(|other| *other == sample).unwrap() as i64;
        let last = own.len() as i64 - 1;
        let neighbours: Vec<i64> = offsets.iter().map(|offset| at + offset).collect();
        if pad
            || neighbours
                .iter()
                .all(|neighbour| (0..=last).contains(neighbour))
        {
            let own = neighbours
                .iter()
                .map(|neighbour| own[usize::try_from((*neighbour).clamp(0, last)).unwrap()]);
            found.insert(sample, own.collect());
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn windows_contain_the_samples_at_their_offsets(
        kind in prop::sample::select(&KINDS[..]),
        sizes in prop::collection::vec(0_u64..20, 1..9),
        firsts in prop::collection::vec(0_u64..100, 0..6),
        offsets in prop::collection::btree_set(-4_i64..6, 1..4),
        pad in any::<bool>(),
        batch_size in 1_u64..9,
        threads in 0_usize..3,
        seed in 0_u64..1000,
        is_fetched in any::<bool>(),
    ) {
        let samples = sizes.iter().sum::<u64>();
        let offsets: Vec<i64> = offsets.into_iter().chain([0]).collect::<std::collections::BTreeSet<_>>().into_iter().collect();
        let wanted = wanted(samples, &firsts, &offsets, pad);
        prop_assume!(!wanted.is_empty());
        let temp = tempfile::tempdir().unwrap();
        let (from, to) = (temp.path().join("from"), temp.path().join("to"));
        std::fs::create_dir(&from).unwrap();
        kind.write(&from, &sizes, 0);
        let stream = match is_fetched {
            true => StreamOptions::remote(Location::Local(from.clone()), to),
            false => StreamOptions::local(&from),
        };
        let window = Window::new(offsets.clone(), None).unwrap().with_padding(pad);
        let firsts = Arc::new(episodes(&from, firsts));
        let reader = open(&stream, window.with_episodes(vec![Some(firsts)])).unwrap();
        prop_assert_eq!(reader.catalog().samples(), wanted.len() as u64);
        let anchors: Vec<u64> = wanted.keys().copied().collect();
        let mut config = reader.epoch_config(batch_size, World::SINGLE);
        config.shuffle.enabled = true;
        config.shuffle.seed = seed;
        let options = BatchOptions { threads, ..BatchOptions::default() };
        let mut batches = reader.epoch(&config, options).unwrap();
        let mut read = 0;
        while let Some(batch) = batches.next_batch().unwrap() {
            let numbers = batch.entries.iter().map(|entry| anchors[usize::try_from(entry.sample.0).unwrap()]);
            let expected: Vec<_> = numbers.flat_map(|number| &wanted[&number]).map(|id| kind.sample(*id)).collect();
            prop_assert_eq!(encoded(&batch), expected);
            read += batch.len();
        }
        prop_assert!(read >= wanted.len());
        for (number, anchor) in anchors.iter().enumerate() {
            let batch = reader.window(number as u64).unwrap();
            let expected: Vec<_> = wanted[anchor].iter().map(|id| kind.sample(*id)).collect();
            prop_assert_eq!(encoded(&batch), expected);
            let padded = batch.window.unwrap().padded;
            let own = wanted[anchor].iter().zip(&offsets);
            let is_own = own.map(|(found, offset)| *found as i64 != *anchor as i64 + offset);
            prop_assert_eq!(padded, is_own.collect::<Vec<_>>());
        }
        // Ranges have no windows.
        let batch = reader.ranges().read(0..1, &Cancel::default()).unwrap();
        prop_assert_eq!(encoded(&batch), [kind.sample(anchors[0])]);
    }
}

#[test]
fn episodes_are_runs_of_equal_values() {
    let temp = tempfile::tempdir().unwrap();
    Kind::Fixed.write(temp.path(), &[3, 0, 4], 0);
    let stream = StreamOptions::local(temp.path());
    let find = |column| find_episodes(&stream, column, &ReaderOptions::default());
    assert_eq!(
        find("id").unwrap().iter().collect::<Vec<_>>(),
        [0, 1, 2, 3, 4, 5, 6]
    );
    assert_eq!(find("none").unwrap_err().id(), "window-column");
    let tars = tempfile::tempdir().unwrap();
    Kind::Tar.write(tars.path(), &[3, 4], 0);
    let stream = StreamOptions::local(tars.path());
    let error = find_episodes(&stream, "__key__", &ReaderOptions::default()).unwrap_err();
    assert!(error.to_string().contains("00000000"), "{error}");
    let lines = tempfile::tempdir().unwrap();
    Kind::Json.write(lines.path(), &[3], 0);
    let stream = StreamOptions::local(lines.path());
    let error = find_episodes(&stream, "id", &ReaderOptions::default()).unwrap_err();
    assert_eq!(error.id(), "window-column");
}

#[test]
fn window_without_samples_or_with_unknown_column_is_an_error() {
    let temp = tempfile::tempdir().unwrap();
    Kind::Mixed.write(temp.path(), &[3, 4], 0);
    let stream = StreamOptions::local(temp.path());
    let id = |window: Window| open(&stream, window).unwrap_err().id();
    assert_eq!(id(Window::new(vec![7], None).unwrap()), "window-empty");
    assert_eq!(
        id(Window::new(vec![1], Some(vec!["none".to_owned()])).unwrap()),
        "window-column"
    );
}
