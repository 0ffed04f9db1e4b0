//! Compares the reference with golden orders, and the lazy shuffles with the reference.

use proptest::prelude::*;

use super::*;
use crate::shuffle::layout::{node_of, positions_of};
use crate::shuffle::{Follow, Scratch, Shuffle};
use crate::units::{Sampling, ShardTable};

fn units(sizes: &[u64]) -> Units {
    let table = ShardTable::new([sizes]);
    let sampling = Sampling {
        seed: 9176,
        epoch: 0,
        epoch_counts: true,
        epoch_members: true,
        granularity: 1,
    };
    Units::resample(&table, &[(0..sizes.len(), sizes.iter().sum())], &sampling).unwrap()
}

fn config(algo: ShuffleAlgo, canonical_nodes: u64, epoch: u64, block: u64) -> ShuffleConfig {
    ShuffleConfig {
        algo,
        canonical_nodes,
        seed: 9176,
        epoch,
        block,
    }
}

#[test]
fn shuffles_match_golden_orders() {
    let units = units(&[4, 3, 5]);
    for (algo, first, second) in [
        (
            ShuffleAlgo::Naive,
            [2, 5, 10, 9, 8, 1, 6, 7, 11, 3, 0, 4],
            [4, 3, 10, 2, 8, 7, 6, 9, 5, 1, 11, 0],
        ),
        (
            ShuffleAlgo::Py1s,
            [4, 8, 9, 11, 10, 7, 5, 6, 3, 1, 2, 0],
            [4, 7, 10, 11, 9, 8, 0, 3, 1, 2, 5, 6],
        ),
        (
            ShuffleAlgo::Py2s,
            [6, 9, 11, 7, 10, 8, 4, 5, 0, 3, 1, 2],
            [6, 7, 10, 11, 9, 8, 4, 5, 0, 1, 2, 3],
        ),
        (
            ShuffleAlgo::Py1br,
            [8, 7, 9, 4, 10, 11, 3, 0, 5, 1, 2, 6],
            [8, 4, 9, 10, 11, 7, 5, 6, 3, 1, 2, 0],
        ),
        (
            ShuffleAlgo::Py1e,
            [4, 8, 9, 11, 10, 7, 5, 6, 2, 1, 3, 0],
            [7, 4, 10, 11, 9, 8, 0, 6, 2, 1, 5, 3],
        ),
    ] {
        assert_eq!(
            shuffle(&units, &config(algo, 2, 0, 8)).unwrap().unwrap(),
            first,
            "{algo}"
        );
        assert_eq!(
            shuffle(&units, &config(algo, 2, 1, 8)).unwrap().unwrap(),
            second,
            "{algo}"
        );
    }
}

/// Returns all positions, node by node, in windows of varying size.
fn in_order(shuffle: &Shuffle, nodes: u64, wanted: u64) -> Vec<u64> {
    let mut out = Vec::new();
    let mut scratch = Scratch::default();
    for node in 0..nodes {
        let mut follow = Follow::default();
        let positions = positions_of(shuffle.samples, node, nodes);
        let mut at = positions.start;
        while at < positions.end {
            shuffle.window(node, at, wanted + at % 7, &mut follow, &mut scratch);
            let window = &scratch.window;
            let skip = at - window.start;
            assert!(
                skip < count(window.ids.len()),
                "window at {} of {} does not hold {at}",
                window.start,
                window.ids.len()
            );
            out.extend(&window.ids[index(skip)..]);
            at = window.start + count(window.ids.len());
        }
        assert_eq!(at, positions.end);
    }
    out
}

#[test]
fn empty_nodes_and_blocks_are_rejected() {
    let units = units(&[2, 1]);
    for algo in &ShuffleAlgo::ALL {
        let lazy = Shuffle::new(&units, &config(*algo, 5, 0, 8));
        assert_eq!(lazy.is_err(), *algo == ShuffleAlgo::Py1e, "{algo}");
        let lazy = Shuffle::new(&units, &config(*algo, 1, 0, 0));
        assert_eq!(
            lazy.is_err(),
            matches!(algo, ShuffleAlgo::Py1e | ShuffleAlgo::Py1br),
            "{algo}"
        );
    }
}

const LAZY: [ShuffleAlgo; 5] = [
    ShuffleAlgo::Naive,
    ShuffleAlgo::Py1s,
    ShuffleAlgo::Py2s,
    ShuffleAlgo::Py1br,
    ShuffleAlgo::Py1e,
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn lazy_shuffle_windows_equal_the_reference(
        algo in prop::sample::select(LAZY.to_vec()),
        sizes in prop_oneof![
            prop::collection::vec(1_u64..40, 1..60),
            prop::collection::vec(1_u64..3000, 1..40),
            prop::collection::vec(15_000_u64..40_000, 1..4),
        ],
        nodes in 1_u64..9,
        epoch in 0_u64..4,
        block in prop_oneof![2_u64..50, 50_u64..5000, 5000_u64..200_000],
        wanted in prop_oneof![1_u64..100, 100_u64..20_000],
        starts in prop::collection::vec(0.0..1.0_f64, 6),
    ) {
        let units = units(&sizes);
        let config = config(algo, nodes, epoch, block);
        let Ok(expected) = shuffle(&units, &config) else {
            prop_assert!(Shuffle::new(&units, &config).is_err());
            return Ok(());
        };
        let expected = expected.unwrap();
        let lazy = Shuffle::new(&units, &config).unwrap();
        let found = in_order(&lazy, nodes, wanted);
        prop_assert!(found == expected, "windows in order");
        for start in starts {
            let position = crate::num::trunc(start * real(lazy.samples)).unwrap();
            let node = node_of(lazy.samples, position, nodes);
            let mut scratch = Scratch::default();
            lazy.window(node, position, wanted, &mut Follow::default(), &mut scratch);
            let window = scratch.window;
            prop_assert!(window.start <= position && position < window.start + count(window.ids.len()));
            prop_assert!(window.ids[..] == expected[index(window.start)..][..window.ids.len()], "window at {}", position);
        }
    }

    #[test]
    fn shardmill_order_is_a_permutation_within_block_reach(
        sizes in prop::collection::vec(1_u64..400, 1..60),
        nodes in 1_u64..9,
        epoch in 0_u64..3,
        block in 0_u64..3000,
    ) {
        let units = units(&sizes);
        let lazy = Shuffle::new(&units, &config(ShuffleAlgo::Shardmill, nodes, epoch, block)).unwrap();
        let found = in_order(&lazy, nodes, 10);
        let again: Vec<_> = (0..lazy.samples).map(|position| lazy.direct(position).unwrap()).collect();
        prop_assert_eq!(&found, &again);
        let mut sorted = found.clone();
        sorted.sort_unstable();
        prop_assert!(sorted == (0..lazy.samples).collect::<Vec<_>>());
        // The same samples in the same canonical node as with py1s, close to their positions there.
        let layout = Layout::new(&units, nodes, 9176, epoch).0;
        let flat: Vec<u64> = layout.spans.iter().copied().flat_map(ids).collect();
        let mut positions = vec![0_usize; flat.len()];
        for (at, id) in flat.iter().enumerate() {
            positions[index(*id)] = at;
        }
        for (at, id) in found.iter().enumerate() {
            let moved = count(positions[index(*id)].abs_diff(at));
            prop_assert!(moved <= block.max(2) * 3 / 4 + 1, "moved by {}", moved);
            let node = |position| node_of(lazy.samples, position, nodes);
            prop_assert_eq!(node(count(at)), node(count(positions[index(*id)])));
        }
    }
}

/// The order of 50,377 samples in 51 shards over 4 canonical nodes begins as the original's; the whole of it is
/// compared through the reference, which the windows are compared with in turn.
#[test]
fn long_orders_begin_alike() {
    let all: Vec<serde_json::Value> =
        serde_json::from_str(include_str!("../../testdata/large.json")).unwrap();
    let mut sizes = vec![1000; 50];
    sizes.push(377);
    let units = units(&sizes);
    for value in &all {
        let algo: ShuffleAlgo = value["algo"].as_str().unwrap().parse().unwrap();
        let config = config(algo, 4, 2, 5000);
        let found = shuffle(&units, &config).unwrap().unwrap();
        let first: Vec<u64> = serde_json::from_value(value["first"].clone()).unwrap();
        assert_eq!(found[..6], first, "{algo}");
        assert_eq!(found.len(), 50_377);
        let digest: u64 = found.iter().fold(0xcbf2_9ce4_8422_2325, |digest, id| {
            (digest ^ id).wrapping_mul(0x0000_0100_0000_01b3)
        });
        assert_eq!(
            format!("{digest:016x}"),
            value["fnv"].as_str().unwrap(),
            "{algo}"
        );
    }
}
