//! Lineage against a log: random steps of random runs, and every step that delivered a random sample.

use std::collections::BTreeMap;

use super::*;
use crate::error;
use crate::rng::Pcg64;
use crate::{
    BatchingMethod, EpochConfig, PartitionAlgo, SamplingMethod, ShuffleAlgo, StreamConfig, Weight,
    World,
};

/// Random choices of a test.
struct Dice(Pcg64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0.interval(limit - 1)
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.below(of.len() as u64)).unwrap()]
    }
}

/// Returns a random run; most of them are valid.
fn random_config(dice: &mut Dice) -> EpochConfig {
    let mut streams = Vec::new();
    let weights = dice.below(3);
    for _ in 0..=dice.below(3) {
        let sizes: Vec<u64> = (0..=dice.below(9)).map(|_| dice.below(60)).collect();
        let weight = match weights {
            0 => Weight::Unspecified,
            1 => Weight::Proportion(0.1 + crate::num::real(dice.below(10))),
            _ => dice.one(&[
                Weight::Repeat(1.7),
                Weight::Repeat(0.4),
                Weight::Choose(77),
                Weight::Unspecified,
            ]),
        };
        streams.push(StreamConfig::new(&sizes).with_weight(weight));
    }
    let world = World {
        nodes: dice.one(&[1, 1, 2, 3, 4, 6]),
        ranks_per_node: dice.one(&[1, 2, 3, 4, 8]),
        workers_per_rank: dice.one(&[1, 2, 3]),
    };
    let mut config = EpochConfig::new(streams, dice.one(&[1, 2, 3, 5, 8]), world);
    config.epoch_size = (weights == 1 && dice.below(2) == 0).then(|| 1 + dice.below(300));
    config.num_canonical_nodes = dice.one(&[None, Some(1), Some(2), Some(12), Some(64)]);
    config.replication = dice.one(&[None, None, None, Some(2)]);
    config.shuffle.enabled = dice.below(5) > 0;
    config.shuffle.algo = dice.one(&ShuffleAlgo::ALL);
    config.shuffle.seed = dice.below(1000);
    config.shuffle.block_size = dice.one(&[None, Some(30), Some(100)]);
    config.sampling.method = dice.one(&[SamplingMethod::Balanced, SamplingMethod::Fixed]);
    config.sampling.granularity = dice.one(&[1, 1, 4]);
    config.partition_algo = dice.one(&[PartitionAlgo::Orig, PartitionAlgo::Relaxed]);
    config.batching_method = dice.one(&BatchingMethod::ALL);
    config.epoch = dice.below(4);
    config
}

/// Makes the run resume somewhere in its epoch, half of the times in another world with equal global batches.
fn resumed(dice: &mut Dice, config: &EpochConfig, epoch: &Epoch) -> EpochConfig {
    let mut config = config.clone();
    config.resume = Some(epoch.state_after(dice.below(epoch.batches() + 1)));
    if config.replication.is_none() && dice.below(2) == 0 {
        let devices = config.world.ranks() * config.batch_size;
        let nodes = dice.one(&[1, 2, 3, 4]);
        if devices.is_multiple_of(nodes) {
            config.world.nodes = nodes;
            config.world.ranks_per_node = 1;
            config.batch_size = devices / nodes;
        }
    }
    config
}

/// Reads every rank in every step, as a training run does.
fn log_of(epoch: &Epoch) -> Vec<Vec<Vec<Entry>>> {
    let replication = epoch.inner.replication;
    let mut log = vec![Vec::new(); usize::try_from(epoch.batches()).unwrap()];
    for rank in 0..epoch.resolved().world.ranks() {
        let mut cursor = epoch.rank(rank * replication).unwrap();
        for (step, entries) in (0_u64..).zip(&mut log) {
            let mut batch = Vec::new();
            assert!(cursor.read(step, &mut batch));
            entries.push(batch);
        }
    }
    log
}

#[test]
fn steps_and_samples_are_those_of_the_log() {
    let mut dice = Dice(Pcg64::new(19));
    let (mut steps, mut samples, mut resumes) = (0, 0, 0);
    let mut algos = BTreeMap::new();
    while steps < 3000 {
        let mut config = random_config(&mut dice);
        let Ok(mut epoch) = Epoch::new(&config) else {
            continue;
        };
        if dice.below(2) == 0 {
            config = resumed(&mut dice, &config, &epoch);
            match Epoch::new(&config) {
                Ok(after) => epoch = after,
                Err(_) => continue,
            }
            resumes += 1;
        }
        if epoch.batches() == 0 {
            continue;
        }
        let shuffle = config.shuffle.enabled.then_some(config.shuffle.algo.name());
        *algos
            .entry((shuffle, config.batching_method.name()))
            .or_insert(0) += 1;
        let log = log_of(&epoch);
        for _ in 0..5 {
            let step = dice.below(epoch.batches());
            let expected = &log[usize::try_from(step).unwrap()];
            assert_eq!(&epoch.step(step).unwrap(), expected, "{config:?}");
            steps += 1;
        }
        let mut delivered: BTreeMap<u64, Vec<Delivery>> = BTreeMap::new();
        for (step, ranks) in (0_u64..).zip(&log) {
            for (rank, batch) in (0_u64..).zip(ranks) {
                for (position, entry) in (0_u64..).zip(batch) {
                    delivered.entry(entry.sample.0).or_default().push(Delivery {
                        step,
                        rank,
                        position,
                        repeated: entry.repeated,
                    });
                }
            }
        }
        for _ in 0..10 {
            let sample = dice.below(epoch.shards().samples());
            let expected = delivered.remove(&sample).unwrap_or_default();
            let found = epoch.deliveries(SampleId(sample)).unwrap();
            assert_eq!(found, expected, "sample {sample} of {config:?}");
            delivered.insert(sample, expected);
            samples += 1;
        }
    }
    assert!(samples >= 5000 && resumes > 100, "{samples} {resumes}");
    // Each shuffle, and none, with each batching method.
    assert_eq!(algos.len(), 7 * 4, "{algos:?}");
}

#[test]
fn deliveries_are_found_with_default_block_sizes() {
    for algo in &ShuffleAlgo::ALL {
        let sizes = [30_000, 50_000, 70_001, 1, 9_999];
        let world = World {
            nodes: 2,
            ranks_per_node: 2,
            workers_per_rank: 1,
        };
        let mut config = EpochConfig::new(vec![StreamConfig::new(&sizes)], 16, world);
        config.shuffle.enabled = true;
        config.shuffle.algo = *algo;
        let epoch = Epoch::new(&config).unwrap();
        for step in [0, 1, 1000, epoch.batches() - 1] {
            for (rank, batch) in (0_u64..).zip(epoch.step(step).unwrap()) {
                for (position, entry) in (0_u64..).zip(batch).step_by(5) {
                    let here = Delivery {
                        step,
                        rank,
                        position,
                        repeated: entry.repeated,
                    };
                    let found = epoch.deliveries(entry.sample).unwrap();
                    assert!(found.contains(&here), "{algo}: {here:?} in {found:?}");
                }
            }
        }
    }
}

#[test]
fn missing_step_rank_or_sample_is_an_error() {
    let config = EpochConfig::new(vec![StreamConfig::new(&[4, 3])], 2, World::SINGLE);
    let epoch = Epoch::new(&config).unwrap();
    assert_eq!(epoch.batches(), 4);
    assert_eq!(epoch.step(4), Err(error::no_such_step(4, 4)));
    assert_eq!(
        epoch.step_of_rank(0, 1),
        Err(error::outside_world("rank", 1, 1))
    );
    assert_eq!(
        epoch.deliveries(SampleId(7)),
        Err(error::no_such_sample(7, 7))
    );
}
