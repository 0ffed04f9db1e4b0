//! Stops runs twenty times, each time resuming in another world, across the ends of epochs.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use shardmill_order::{BatchingMethod, Epoch, EpochConfig, ShuffleAlgo};

use crate::support::{WORLDS, all_ranks, given, ids, mixed, on, read, resumed, sorted};

const CHAINS: u32 = 1000;
const STOPS: usize = 20;

/// Performs one run of several epochs, and returns the samples of every step, epoch by epoch.
fn chain(config: &EpochConfig, stops: &[(u64, usize, u64)]) -> Result<(), TestCaseError> {
    let mut config = config.clone();
    let mut number = 0;
    let mut found: Vec<Vec<_>> = vec![Vec::new()];
    for (steps, place, workers) in stops {
        let part = on(&config, *place, *workers);
        let epoch = Epoch::new(&part).unwrap();
        prop_assert_eq!(epoch.resolved().epoch, number);
        let steps = (*steps).min(epoch.batches());
        found
            .last_mut()
            .unwrap()
            .extend(read(epoch.all_ranks(), 0, steps));
        config = resumed(&part, &epoch, steps);
        if config.resume.unwrap().epoch > number {
            prop_assert_eq!(steps, epoch.batches());
            number += 1;
            found.push(Vec::new());
        }
    }
    let last = Epoch::new(&on(&config, 0, 0)).unwrap();
    found.last_mut().unwrap().extend(all_ranks(&last));

    config.resume = None;
    for (number, found) in (0..).zip(&found) {
        config.epoch = number;
        let expected = all_ranks(&Epoch::new(&on(&config, 0, 0)).unwrap());
        // Every global batch has the same samples, except the last one, whose padding depends on the world.
        let common = expected.len() - 1;
        prop_assert!(found.len() > common && found.len() <= expected.len() + 1);
        for (step, (found, expected)) in found.iter().zip(&expected).take(common).enumerate() {
            prop_assert_eq!(
                sorted(ids(found)),
                sorted(ids(expected)),
                "step {} of epoch {}",
                step,
                number
            );
        }
        prop_assert_eq!(given(found), given(&expected), "epoch {}", number);
    }
    Ok(())
}

#[test]
fn no_sample_is_lost_over_twenty_resumes() {
    let method =
        prop_oneof![3 => Just(BatchingMethod::Random), 1 => Just(BatchingMethod::Stratified)];
    let stop = (0_u64..9, 0..WORLDS.len(), 0_u64..5);
    let chains = (
        prop::sample::select(ShuffleAlgo::ALL.to_vec()),
        method,
        0_u64..1 << 32,
        prop::bool::weighted(0.9),
        prop::collection::vec(stop, STOPS),
    );
    let config = Config {
        cases: CHAINS,
        failure_persistence: None,
        ..Config::default()
    };
    // A fixed seed gives the same chains on every machine.
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, b"shardmill: twenty stops of a run");
    let mut runner = TestRunner::new_with_rng(config, rng);
    let done = runner.run(&chains, |(algo, method, seed, shuffle, stops)| {
        let mut config = mixed(algo, method, seed);
        config.shuffle.enabled = shuffle;
        chain(&config, &stops)
    });
    if let Err(error) = done {
        panic!("{error}");
    }
}
