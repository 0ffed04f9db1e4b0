//! Stops one epoch of 997 samples after every step and resumes it in every world.

use std::collections::BTreeMap;

use shardmill_order::{BatchingMethod, Epoch, EpochConfig, ShuffleAlgo, World, orders};

use crate::support::{
    GLOBAL, WORLDS, all_ranks, given, ids, mixed, on, prime, read, resumed, sorted,
};

const ALL: std::ops::Range<u64> = 0..997;

#[test]
fn resume_at_any_step_loses_and_repeats_no_sample() {
    let mut points = 0;
    for algo in &ShuffleAlgo::ALL {
        for (from, here) in WORLDS.iter().enumerate() {
            let before = on(&prime(*algo), from, 1);
            let first = Epoch::new(&before).unwrap();
            let delivered = all_ranks(&first);
            for steps in 0..first.batches() {
                let done = usize::try_from(steps).unwrap();
                for (to, there) in WORLDS.iter().enumerate() {
                    // Test all pairs of worlds for one shuffle, and one successor of each world for the others.
                    if *algo != ShuffleAlgo::Py1e && to != (from + done) % WORLDS.len() {
                        continue;
                    }
                    let after = on(&resumed(&before, &first, steps), to, steps % 5);
                    let rest = Epoch::new(&after).unwrap();
                    let rest = all_ranks(&rest);
                    let both = delivered[..done].iter().chain(&rest);
                    assert_eq!(
                        given(both),
                        ALL.collect::<Vec<_>>(),
                        "{algo}: {steps} steps on {here:?}, the rest on {there:?}"
                    );
                    // Padding only makes the ranks equal in length.
                    let padding = rest.iter().flatten().filter(|entry| entry.repeated).count();
                    assert!(padding < 12 + 8, "{padding} repeats");
                    points += 1;
                }
            }
        }
    }
    assert!(points >= 41 * (100 + 5 * 10), "{points} points");
}

/// The state may then not be a multiple of the new number of nodes. The start is rounded down, and some samples repeat.
#[test]
fn resume_with_another_global_batch_loses_no_sample() {
    let sized = |nodes, ranks_per_node, batch_size| EpochConfig {
        world: World {
            nodes,
            ranks_per_node,
            workers_per_rank: 1,
        },
        batch_size,
        ..prime(ShuffleAlgo::Py1e)
    };
    let worlds = [
        (1, 1, 1),
        (1, 1, 7),
        (1, 3, 5),
        (2, 1, 5),
        (4, 2, 5),
        (3, 1, 32),
        (2, 4, 9),
    ];
    for (nodes, ranks, batch) in worlds {
        let before = sized(nodes, ranks, batch);
        let first = Epoch::new(&before).unwrap();
        let delivered = all_ranks(&first);
        for steps in 0..first.batches() {
            let state = resumed(&before, &first, steps).resume.unwrap();
            if state.epoch > 0 {
                // Only padding remained.
                assert_eq!(
                    given(&delivered[..usize::try_from(steps).unwrap()]),
                    ALL.collect::<Vec<_>>()
                );
                continue;
            }
            for (nodes, ranks, batch) in worlds {
                let after = EpochConfig {
                    resume: Some(state),
                    ..sized(nodes, ranks, batch)
                };
                let rest = all_ranks(&Epoch::new(&after).unwrap());
                let both = delivered[..usize::try_from(steps).unwrap()]
                    .iter()
                    .chain(&rest);
                let mut times = BTreeMap::new();
                for id in given(both) {
                    *times.entry(id).or_insert(0_u64) += 1;
                }
                assert!(times.keys().copied().eq(ALL), "{steps} steps, {state:?}");
                let again: u64 = times.values().map(|times| times - 1).sum();
                assert!(again < nodes, "{again} samples come again on {nodes} nodes");
            }
        }
    }
}

/// Returns the batches of a rank as a loader with `workers` workers yields them: from each worker in turn.
fn loaded(config: &EpochConfig, rank: usize, workers: u64) -> Vec<Vec<u64>> {
    let mut config = config.clone();
    config.world.workers_per_rank = workers.max(1);
    let batch = usize::try_from(config.batch_size).unwrap();
    let each = &orders(&config).unwrap()[rank];
    let mut queues: Vec<_> = each.iter().map(|worker| worker.chunks(batch)).collect();
    let mut out = Vec::new();
    loop {
        for queue in &mut queues {
            match queue.next() {
                Some(batch) => out.push(batch.to_vec()),
                None => return out,
            }
        }
    }
}

#[test]
fn ranks_may_have_different_worker_counts() {
    for algo in &ShuffleAlgo::ALL {
        for method in &BatchingMethod::ALL {
            for (place, (nodes, ranks, _)) in WORLDS.into_iter().enumerate() {
                let config = on(&mixed(*algo, *method, 5), place, 0);
                let Ok(epoch) = Epoch::new(&config) else {
                    assert_eq!(*method, BatchingMethod::DevicePerStream);
                    continue;
                };
                let steps = epoch.batches() / 3;
                let resumed = resumed(&config, &epoch, steps);
                for rank in 0..nodes * ranks {
                    let expected: Vec<_> = read(epoch.rank(rank).unwrap(), 0, u64::MAX)
                        .iter()
                        .map(|batch| ids(batch))
                        .collect();
                    let rest = &expected[usize::try_from(steps).unwrap()..];
                    let at = usize::try_from(rank).unwrap();
                    let workers = (rank + u64::try_from(place).unwrap()) % 5;
                    let not_empty = |batches: &[Vec<u64>]| -> Vec<Vec<u64>> {
                        batches
                            .iter()
                            .filter(|batch| !batch.is_empty())
                            .cloned()
                            .collect()
                    };
                    assert_eq!(
                        loaded(&config, at, workers),
                        not_empty(&expected),
                        "{algo} {method}"
                    );
                    assert_eq!(
                        loaded(&resumed, at, 4 - workers),
                        not_empty(rest),
                        "{algo} {method}"
                    );
                }
            }
        }
    }
}

#[test]
fn loading_a_state_repeatedly_changes_nothing() {
    for algo in &ShuffleAlgo::ALL {
        for method in &BatchingMethod::ALL {
            for place in [0, 3, 5, 8] {
                let config = on(&mixed(*algo, *method, 3), place, 2);
                let Ok(whole) = Epoch::new(&config) else {
                    assert_eq!(*method, BatchingMethod::DevicePerStream);
                    continue;
                };
                for steps in 0..=whole.batches() {
                    let config = resumed(&config, &whole, steps);
                    let state = config.resume.unwrap();
                    let part = Epoch::new(&config).unwrap();
                    // Loading a state any number of times changes nothing.
                    assert_eq!(part.state_after(0), state);
                    let again = Epoch::new(&resumed(&config, &part, 0)).unwrap();
                    assert_eq!(again.resolved(), part.resolved());
                    assert_eq!(again.batches(), part.batches());
                    if steps == whole.batches() {
                        // The end of an epoch is the start of the next one.
                        assert_eq!((state.epoch, state.sample_in_epoch), (1, 0));
                        continue;
                    }
                    // Resuming twice equals resuming once.
                    for more in [1, 2, part.batches()] {
                        assert_eq!(
                            part.state_after(more),
                            whole.state_after(steps + more),
                            "{algo} {method} {steps} + {more}"
                        );
                    }
                    assert_eq!(part.batches(), whole.batches() - steps);
                }
            }
        }
    }
}

#[test]
fn state_counts_samples_of_global_batches() {
    let config = on(&prime(ShuffleAlgo::Shardmill), 7, 3);
    let epoch = Epoch::new(&config).unwrap();
    assert_eq!((epoch.global_batch(), epoch.batches()), (GLOBAL, 42));
    for steps in 0..42 {
        let state = epoch.state_after(steps);
        assert_eq!((state.epoch, state.sample_in_epoch), (0, GLOBAL * steps));
        assert_eq!(state.initial_physical_nodes, Some(1));
    }
    let first = sorted(given(&all_ranks(&epoch)[..1]));
    assert_eq!(first.len(), 24);
}
