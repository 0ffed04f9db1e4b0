//! Tests what does not depend on the world: the samples of every global batch, if that is guaranteed.

use shardmill_order::{
    BatchingMethod, Epoch, EpochConfig, PartitionAlgo, ShuffleAlgo, StreamConfig, World,
};

use crate::support::{WORLDS, all_ranks, ids, mixed, on, prime, sorted};

/// Returns the global batches as sorted lists of ids.
fn sets(config: &EpochConfig) -> Vec<Vec<u64>> {
    let epoch = Epoch::new(config).unwrap();
    let batches = all_ranks(&epoch);
    batches.iter().map(|batch| sorted(ids(batch))).collect()
}

#[test]
fn global_batches_do_not_depend_on_the_world() {
    for algo in &ShuffleAlgo::ALL {
        for method in [
            BatchingMethod::Random,
            BatchingMethod::Stratified,
            BatchingMethod::PerStream,
        ] {
            for partition in [PartitionAlgo::Orig, PartitionAlgo::Relaxed] {
                for seed in [0, 9176, 1 << 40] {
                    for epoch in [0, 3] {
                        let mut config = mixed(*algo, method, seed);
                        config.partition_algo = partition;
                        config.epoch = epoch;
                        let expected = sets(&on(&config, 0, 1));
                        let mut compared = 0;
                        for (place, world) in WORLDS.iter().enumerate().skip(1) {
                            let found = sets(&on(&config, place, 1));
                            if method == BatchingMethod::PerStream && found.len() != expected.len()
                            {
                                // One more full batch of a stream changes the sequence of streams.
                                continue;
                            }
                            let common = expected.len().min(found.len()) - 1;
                            assert!(expected.len().abs_diff(found.len()) <= 1);
                            assert_eq!(
                                found[..common],
                                expected[..common],
                                "{algo} {method} {world:?}"
                            );
                            compared += 1;
                        }
                        assert!(compared >= 3, "{algo} {method}: {compared} worlds");
                    }
                }
            }
        }
    }
}

#[test]
fn canonical_nodes_fix_the_order_for_any_node_count() {
    for samples in [960, 997, 1000] {
        for canonical in [4, 6, 12] {
            for algo in &ShuffleAlgo::ALL {
                let mut config = prime(*algo);
                config.streams = vec![StreamConfig::new(&[samples - 100, 40, 60])];
                config.num_canonical_nodes = Some(canonical);
                let expected = sets(&on(&config, 0, 1));
                for (place, (nodes, ..)) in WORLDS.into_iter().enumerate() {
                    if !canonical.is_multiple_of(nodes) {
                        continue;
                    }
                    let found = sets(&on(&config, place, 1));
                    let common = expected.len().min(found.len()) - 1;
                    assert_eq!(
                        found[..common],
                        expected[..common],
                        "{algo} {samples} {canonical}"
                    );
                }
            }
        }
    }
}

#[test]
fn batches_do_not_depend_on_worker_count() {
    for algo in &ShuffleAlgo::ALL {
        for method in &BatchingMethod::ALL {
            for place in [0, 1, 5, 9] {
                let config = mixed(*algo, *method, 1);
                let epoch = |workers| Epoch::new(&on(&config, place, workers));
                let Ok(expected) = epoch(1) else {
                    assert_eq!(*method, BatchingMethod::DevicePerStream);
                    continue;
                };
                let expected = all_ranks(&expected);
                for workers in [2, 3, 5] {
                    assert_eq!(
                        all_ranks(&epoch(workers).unwrap()),
                        expected,
                        "{algo} {method}"
                    );
                }
            }
        }
    }
}

/// Four nodes become three. Neither number is a multiple of the other, so `relaxed` continues the order of the first
/// run.
#[test]
fn relaxed_partition_resumes_in_the_same_order() {
    let mut config = prime(ShuffleAlgo::Py1e);
    config.num_canonical_nodes = Some(4);
    let world = |nodes, batch_size| EpochConfig {
        world: World {
            nodes,
            ranks_per_node: 1,
            workers_per_rank: 1,
        },
        batch_size,
        ..config.clone()
    };
    let first = Epoch::new(&world(4, 3)).unwrap();
    let whole = all_ranks(&first);
    for steps in [0, 1, 7, 50] {
        let state = first.state_after(u64::try_from(steps).unwrap());
        let mut after = world(3, 4);
        after.resume = Some(state);
        let rest = all_ranks(&Epoch::new(&after).unwrap());
        assert_eq!(rest.len(), whole.len() - steps);
        let order = |batches: &[Vec<_>]| {
            batches
                .iter()
                .flat_map(|batch| ids(batch))
                .collect::<Vec<_>>()
        };
        assert_eq!(order(&rest), order(&whole[steps..]));
        after.partition_algo = PartitionAlgo::Orig;
        assert!(Epoch::new(&after).is_err());
        // The four devices of the first run cannot share a global batch of fifteen.
        after.partition_algo = PartitionAlgo::Relaxed;
        (after.world.nodes, after.batch_size) = (5, 3);
        assert!(Epoch::new(&after).is_err());
    }
}
