//! Compares tables with golden orders, and with an epoch that computes its entries on demand.

use super::*;
use crate::config::{EpochConfig, SamplingMethod, State, StreamConfig, Weight};
use crate::epoch::Epoch;

const SEED: u64 = 9176;

fn cut(
    samples: u64,
    canonical_nodes: u64,
    nodes: u64,
    ranks_per_node: u64,
    batch_size: u64,
    drop: u64,
) -> Cut {
    Cut {
        samples,
        canonical_nodes,
        nodes,
        ranks_per_node,
        batch_size,
        drop,
    }
}

fn sampling(epoch: u64, granularity: u64) -> Sampling {
    Sampling {
        seed: SEED,
        epoch,
        epoch_counts: true,
        epoch_members: true,
        granularity,
    }
}

#[test]
fn partition_tables_match_golden_values() {
    let orig = |cut, workers| {
        partition(PartitionAlgo::Orig, cut, workers, None)
            .unwrap()
            .entries
    };
    assert_eq!(
        orig(cut(10, 2, 1, 2, 2, 0), 2),
        [0, 1, 4, -1, 2, 3, -1, -1, 5, 6, 9, -1, 7, 8, -1, -1]
    );
    assert_eq!(orig(cut(10, 2, 1, 2, 2, 4), 2), [2, 3, 4, -1, 7, 8, 9, -1]);
    assert_eq!(orig(cut(7, 1, 2, 1, 2, 0), 1), [0, 2, 4, 6, 1, 3, 5, 5]);
    assert_eq!(
        orig(cut(10, 1, 1, 4, 1, 0), 1),
        [0, 4, 8, 1, 5, 9, 2, 6, 5, 3, 7, 6]
    );
    let relaxed = partition(PartitionAlgo::Relaxed, cut(12, 4, 3, 1, 4, 0), 1, Some(2));
    assert_eq!(
        relaxed.unwrap().entries,
        [0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11]
    );
    // All samples were delivered before.
    assert_eq!(orig(cut(12, 1, 1, 4, 2, 16), 2), [0_i64; 0]);
}

#[test]
fn too_few_samples_are_flagged_tiny_or_scarce() {
    let flags = |cut| {
        let table = partition(PartitionAlgo::Orig, cut, 8, None).unwrap();
        (table.tiny, table.scarce)
    };
    assert_eq!(flags(cut(3, 4, 1, 8, 4, 0)), (true, true));
    assert_eq!(flags(cut(4, 4, 8, 1, 4, 0)), (true, false));
    assert_eq!(flags(cut(25, 4, 4, 8, 4, 0)), (false, true));
    assert_eq!(flags(cut(55, 4, 4, 8, 4, 0)), (false, false));
}

#[test]
fn sampling_matches_golden_values() {
    assert_eq!(sample(&[4, 3, 5], 7, &sampling(0, 1)).unwrap(), [2, 2, 3]);
    assert_eq!(
        sample(&[4, 3, 5], 30, &sampling(1, 1)).unwrap(),
        [10, 7, 13]
    );
    assert!(sample(&[4], 3, &sampling(0, 0)).is_err());
    assert!(sample(&[u64::MAX, 2], 3, &sampling(0, 1)).is_err());
    let resampled = resample(&[4, 3, 5, 6], &[(0..3, 7), (3..4, 15)], &sampling(0, 1)).unwrap();
    assert_eq!(resampled.units, [2, 2, 3, 6, 6, 3]);
    assert_eq!(
        resampled.samples,
        [
            2, 3, 4, 6, 7, 10, 11, 12, 13, 14, 15, 16, 17, 12, 13, 14, 15, 16, 17, 13, 14, 15
        ]
    );
}

#[test]
fn empty_units_are_shuffled_with_the_others() {
    let shuffled = |algo, sizes: &[u64]| {
        shuffle(
            sizes,
            &ShuffleConfig {
                algo,
                canonical_nodes: 2,
                seed: SEED,
                epoch: 0,
                block: 8,
            },
        )
        .unwrap()
    };
    assert_eq!(
        shuffled(ShuffleAlgo::Py1s, &[4, 3, 5]),
        [4, 8, 9, 11, 10, 7, 5, 6, 3, 1, 2, 0]
    );
    for algo in &ShuffleAlgo::ALL {
        let mut order = shuffled(*algo, &[4, 0, 3, 5, 0]);
        if matches!(algo, ShuffleAlgo::Naive | ShuffleAlgo::Shardmill) {
            assert_eq!(order, shuffled(*algo, &[4, 3, 5]), "{algo}");
        } else {
            assert_ne!(order, shuffled(*algo, &[4, 3, 5]), "{algo}");
        }
        order.sort_unstable();
        assert_eq!(order, (0..12).collect::<Vec<_>>(), "{algo}");
    }
    assert_eq!(shuffled(ShuffleAlgo::Py1s, &[0, 0]), [0_u64; 0]);
    assert_eq!(shuffled(ShuffleAlgo::Shardmill, &[]), [0_u64; 0]);
}

/// Returns the order of an epoch, and the same order computed with tables.
fn both(config: &EpochConfig) -> (Vec<Option<u64>>, Vec<i64>) {
    let epoch = Epoch::new(config).unwrap();
    let resolved = *epoch.resolved();
    let shards: Vec<u64> = config
        .streams
        .iter()
        .flat_map(|stream| stream.shards.iter().copied())
        .collect();
    let mut streams = Vec::new();
    let mut first = 0;
    for (stream, share) in config.streams.iter().zip(epoch.shares()) {
        let last = first + stream.shards.len();
        streams.push((first..last, share.choose));
        first = last;
    }
    let sampling = Sampling {
        seed: resolved.seed,
        epoch: resolved.epoch,
        epoch_counts: resolved.epoch_seed,
        epoch_members: config.sampling.method == SamplingMethod::Balanced,
        granularity: config.sampling.granularity,
    };
    let resampled: Vec<Resampled> = if config.batching_method == BatchingMethod::Random {
        vec![resample(&shards, &streams, &sampling).unwrap()]
    } else {
        let each = streams.iter();
        each.map(|stream| resample(&shards, std::slice::from_ref(stream), &sampling).unwrap())
            .collect()
    };
    let sources: Vec<Source<'_>> = resampled
        .iter()
        .zip(epoch.shares())
        .map(|(resampled, share)| Source {
            units: &resampled.units,
            samples: &resampled.samples,
            proportion: share.proportion,
        })
        .collect();
    let table = work(&Work {
        batching: config.batching_method,
        partition: config.partition_algo,
        batch_size: config.batch_size,
        resolved: &resolved,
        shuffle: config.shuffle.enabled.then_some(config.shuffle.algo),
        sources: &sources,
    })
    .unwrap();
    let workers = resolved.world.workers_per_rank;
    let rounds = epoch.batches().div_ceil(workers);
    let mut expected = Vec::new();
    let mut entries = Vec::new();
    for rank in 0..resolved.world.ranks() {
        let mut cursor = epoch.rank(rank).unwrap();
        for worker in 0..workers {
            for round in 0..rounds {
                cursor.read(round * workers + worker, &mut entries);
                let mut row: Vec<_> = entries.iter().map(|entry| Some(entry.sample.0)).collect();
                row.resize(index(config.batch_size), None);
                expected.extend(row);
            }
        }
    }
    (expected, table)
}

#[test]
fn epochs_match_golden_values() {
    let world = World {
        nodes: 1,
        ranks_per_node: 2,
        workers_per_rank: 1,
    };
    let streams = vec![StreamConfig::new(&[4, 3, 5]), StreamConfig::new(&[6])];
    let mut config = EpochConfig::new(streams, 2, world);
    config.shuffle.enabled = true;
    config.shuffle.block_size = Some(8);
    for (method, golden) in [
        (
            BatchingMethod::Random,
            &[
                14, 12, 17, 2, 4, 6, 3, 9, 10, -1, 13, 15, 16, 5, 0, 1, 11, 8, 7, -1,
            ][..],
        ),
        (
            BatchingMethod::Stratified,
            &[1, 2, 0, 6, 4, 9, 10, 11, 3, 13, 5, 14, 7, 17, 8, 15],
        ),
        (
            BatchingMethod::PerStream,
            &[1, 3, 6, 4, 13, 17, 7, 11, 2, 0, 5, 9, 14, 15, 10, 8],
        ),
        (
            BatchingMethod::DevicePerStream,
            &[
                1, 2, 6, 5, 17, 15, 7, 10, 11, 8, 3, 0, 13, 14, 4, 9, 12, 16, -1, -1,
            ],
        ),
    ] {
        config.batching_method = method;
        assert_eq!(both(&config).1, golden, "{method}");
    }
}

#[test]
fn tables_equal_the_epoch() {
    let streams = vec![
        StreamConfig::new(&[40, 3, 0, 57, 21]).with_weight(Weight::Repeat(1.7)),
        StreamConfig::new(&[64, 9]).with_weight(Weight::Choose(50)),
    ];
    let mut compared = 0;
    for method in &BatchingMethod::ALL {
        for algo in &ShuffleAlgo::ALL {
            for (nodes, ranks_per_node, workers_per_rank, canonical) in
                [(1, 1, 1, 1), (2, 2, 3, 4), (3, 1, 2, 6), (4, 2, 1, 4)]
            {
                let world = World {
                    nodes,
                    ranks_per_node,
                    workers_per_rank,
                };
                let mut config = EpochConfig::new(streams.clone(), 3, world);
                config.batching_method = *method;
                config.shuffle.enabled = *algo != ShuffleAlgo::Naive || canonical > 1;
                config.shuffle.algo = *algo;
                config.shuffle.block_size = Some(40);
                config.num_canonical_nodes = Some(canonical);
                config.epoch = 2;
                let (expected, table) = both(&config);
                let found: Vec<_> = table.iter().map(|id| u64::try_from(*id).ok()).collect();
                assert_eq!(found, expected, "{method} {algo} {world:?}");
                assert!(found.iter().flatten().count() > 100);
                // The same, resumed from the middle.
                config.resume = Some(State {
                    epoch: 2,
                    sample_in_epoch: 2 * 3 * nodes * ranks_per_node,
                    num_canonical_nodes: Some(canonical),
                    shuffle_seed: SEED,
                    initial_physical_nodes: Some(nodes),
                });
                let (expected, table) = both(&config);
                let found: Vec<_> = table.iter().map(|id| u64::try_from(*id).ok()).collect();
                assert_eq!(found, expected, "{method} {algo} {world:?}");
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 4 * 6 * 4);
}

#[test]
fn invalid_partition_and_work_are_errors() {
    assert!(partition(PartitionAlgo::Orig, cut(10, 0, 1, 1, 1, 0), 1, None).is_err());
    assert!(partition(PartitionAlgo::Orig, cut(10, 1, 1, 1, 1, 0), 0, None).is_err());
    assert!(partition(PartitionAlgo::Orig, cut(1 << 50, 1, 1, 1, 1, 0), 1, None).is_err());
    let config = EpochConfig::new(Vec::new(), 1, World::SINGLE);
    let refused = |units: &[u64], samples: &[u64]| {
        let sources = [Source {
            units,
            samples,
            proportion: 1.0,
        }];
        let result = work(&Work {
            batching: BatchingMethod::Random,
            partition: PartitionAlgo::Orig,
            batch_size: 1,
            resolved: &config.resolve().unwrap(),
            shuffle: None,
            sources: &sources,
        });
        result.err()
    };
    assert_eq!(refused(&[2], &[8, 9]), None);
    let error = refused(&[3], &[8, 9]).unwrap();
    assert_eq!(
        error.to_string(),
        "is 3, which is not the number of sample ids"
    );
}
