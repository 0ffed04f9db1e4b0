//! Tests elasticity and resumption: the samples of a run do not depend on the number of machines or on how often it
//! stopped.

use proptest::prelude::*;
use shardmill_core::Error;
use shardmill_order::{BatchingMethod, Epoch, EpochConfig, ShuffleAlgo, StreamConfig, World};

use crate::{WORLDS, batches, mixed, sorted, world};

/// The global batches of an epoch as sets.
fn sets(config: &EpochConfig) -> Result<Vec<Vec<u64>>, Error> {
    let epoch = Epoch::new(config)?;
    let all = batches(epoch.all_ranks(), 0).into_iter();
    Ok(all.map(sorted).collect())
}

fn on(config: &EpochConfig, world_index: usize) -> EpochConfig {
    let (nodes, ranks_per_node, batch_size) = WORLDS[world_index % WORLDS.len()];
    EpochConfig {
        world: world(nodes, ranks_per_node),
        batch_size,
        ..config.clone()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn global_batches_are_equal_sets_on_every_world(
        algo in prop::sample::select(ShuffleAlgo::ALL.to_vec()),
        stratified: bool,
        seed in 0_u64..1000,
        first in 0..WORLDS.len(),
        second in 0..WORLDS.len(),
    ) {
        let method = if stratified { BatchingMethod::Stratified } else { BatchingMethod::Random };
        let config = mixed(algo, method, seed, true);
        let (left, right) = (sets(&on(&config, first)).unwrap(), sets(&on(&config, second)).unwrap());
        let common = left.len().min(right.len()) - 1;
        // Only the last batch may differ: its padding depends on the world.
        prop_assert!(left.len().abs_diff(right.len()) <= 1);
        prop_assert_eq!(&left[..common], &right[..common]);
    }

    #[test]
    fn resumes_on_changing_worlds_give_the_same_batches(
        algo in prop::sample::select(ShuffleAlgo::ALL.to_vec()),
        stratified: bool,
        seed in 0_u64..1000,
        epoch in 0_u64..3,
        stops in prop::collection::vec((0_u64..8, 0..WORLDS.len()), 1..8),
    ) {
        let method = if stratified { BatchingMethod::Stratified } else { BatchingMethod::Random };
        let mut config = mixed(algo, method, seed, false);
        config.epoch = epoch;
        let whole = sets(&config).unwrap();
        let mut found = Vec::new();
        for (steps, world_index) in stops {
            let part = Epoch::new(&on(&config, world_index)).unwrap();
            // Not into the last batch: behind it begins the next epoch.
            let steps = steps.min(part.batches() - 1);
            let read = batches(part.all_ranks(), 0);
            found.extend(read.into_iter().take(usize::try_from(steps).unwrap()).map(sorted));
            let state = part.state_after(steps);
            prop_assert_eq!(state.sample_in_epoch, 24 * u64::try_from(found.len()).unwrap());
            config.resume = Some(state);
        }
        let rest = Epoch::new(&on(&config, 0)).unwrap();
        found.extend(batches(rest.all_ranks(), 0).into_iter().map(sorted));
        let common = whole.len().min(found.len()) - 1;
        prop_assert!(whole.len().abs_diff(found.len()) <= 1);
        prop_assert_eq!(&whole[..common], &found[..common]);
    }

    #[test]
    fn every_rank_resumes_at_its_exact_position(
        algo in prop::sample::select(ShuffleAlgo::ALL.to_vec()),
        method in prop::sample::select(BatchingMethod::ALL.to_vec()),
        shuffle: bool,
        fraction: bool,
        seed in 0_u64..1000,
        world_index in 0..WORLDS.len(),
        steps in 0_u64..20,
    ) {
        let mut config = on(&mixed(algo, method, seed, fraction), world_index);
        config.shuffle.enabled = shuffle;
        let Ok(whole) = Epoch::new(&config) else {
            return Ok(());
        };
        let steps = steps.min(whole.batches());
        let state = whole.state_after(steps);
        config.resume = Some(state);
        let rest = Epoch::new(&config).unwrap();
        if steps == whole.batches() {
            prop_assert_eq!((state.epoch, state.sample_in_epoch), (1, 0));
            config.resume = None;
            config.epoch = 1;
            let next = Epoch::new(&config).unwrap();
            prop_assert_eq!(batches(rest.all_ranks(), 0), batches(next.all_ranks(), 0));
            return Ok(());
        }
        prop_assert_eq!(rest.batches(), whole.batches() - steps);
        for rank in 0..config.world.ranks() {
            let expected = batches(whole.rank(rank).unwrap(), steps);
            prop_assert_eq!(&batches(rest.rank(rank).unwrap(), 0), &expected);
        }
    }

    #[test]
    fn every_sample_appears_once_and_repeats_are_flagged(
        algo in prop::sample::select(ShuffleAlgo::ALL.to_vec()),
        shuffle: bool,
        seed in 0_u64..1000,
        world_index in 0..WORLDS.len(),
        canonical in prop::sample::select(vec![1_u64, 12, 24]),
    ) {
        let mut config = on(&mixed(algo, BatchingMethod::Random, seed, false), world_index);
        config.shuffle.enabled = shuffle;
        config.num_canonical_nodes = Some(canonical);
        let epoch = Epoch::new(&config).unwrap();
        let mut all = epoch.all_ranks();
        let (mut seen, mut entries) = (Vec::new(), Vec::new());
        let mut lengths = Vec::new();
        for batch in 0..epoch.batches() {
            all.read(batch, &mut entries);
            lengths.push(entries.len());
            if batch < epoch.clean_batches() {
                prop_assert!(entries.iter().all(|entry| !entry.repeated));
                prop_assert_eq!(entries.len(), 24);
            }
            seen.extend(entries.iter().filter(|entry| !entry.repeated).map(|entry| entry.sample.0));
        }
        prop_assert!(sorted(seen) == (0..epoch.samples()).collect::<Vec<_>>());
        // All ranks are given as many.
        let ranks = usize::try_from(config.world.ranks()).unwrap();
        prop_assert!(lengths.iter().all(|length| length.is_multiple_of(ranks)));
    }
}

#[test]
fn replicas_receive_the_same_batches() {
    let mut config = mixed(ShuffleAlgo::Py1e, BatchingMethod::Random, 3, false);
    config.world = world(2, 4);
    config.batch_size = 4;
    config.replication = Some(2);
    let epoch = Epoch::new(&config).unwrap();
    assert_eq!(epoch.resolved().world, world(1, 4));
    assert_eq!(epoch.global_batch(), 16);
    for rank in 0..8 {
        let twin = epoch.rank(rank ^ 1).unwrap();
        assert_eq!(batches(epoch.rank(rank).unwrap(), 0), batches(twin, 0));
    }
    assert!(epoch.rank(8).is_err());
}

/// The last column of twelve canonical nodes holds samples and padding side by side; the original refuses to go on from
/// most positions in it.
#[test]
fn resume_within_the_last_column_loses_no_samples() {
    let mut config = EpochConfig::new(vec![StreamConfig::new(&[997])], 1, World::SINGLE);
    config.num_canonical_nodes = Some(12);
    config.shuffle.enabled = true;
    let whole = Epoch::new(&config).unwrap();
    let all = batches(whole.all_ranks(), 0).concat();
    assert_eq!((all.len(), whole.samples()), (1008, 997));
    let mut ended = 0;
    for steps in 990..=1008 {
        let state = whole.state_after(steps);
        let given = &all[..usize::try_from(steps).unwrap()];
        let mut found = given.to_vec();
        if state.epoch == 0 {
            config.resume = Some(state);
            let rest = Epoch::new(&config).unwrap();
            assert!(state.sample_in_epoch == steps.min(997) && rest.state_after(0) == state);
            found.extend(batches(rest.all_ranks(), 0).concat());
        } else {
            ended += 1;
        }
        let mut found = sorted(found);
        found.dedup();
        assert_eq!(found.len(), 997, "{steps} steps");
    }
    assert!((1..=11).contains(&ended), "{ended}");
}
