use proptest::prelude::*;

use super::*;
use crate::{EpochConfig, ShuffleAlgo, StreamConfig, Weight, World};

fn config(algo: ShuffleAlgo, shards: &[u64], batch: u64, ranks: u64) -> EpochConfig {
    let world = World {
        nodes: 1,
        ranks_per_node: ranks,
        workers_per_rank: 1,
    };
    let mut config = EpochConfig::new(vec![StreamConfig::new(shards)], batch, world);
    config.shuffle.enabled = true;
    config.shuffle.algo = algo;
    config.num_canonical_nodes = Some(1);
    config
}

/// Returns the number of ways to draw `k` of `n`.
fn ways(n: u64, k: u64) -> f64 {
    if k > n {
        return 0.0;
    }
    (0..k).map(|at| real(n - at) / real(at + 1)).product()
}

fn close(one: f64, other: f64, tolerance: f64) -> bool {
    (one - other).abs() <= tolerance * one.abs().max(other.abs()).max(1e-9)
}

/// Returns every step that a probe of a whole epoch reads, as samples of each rank.
fn steps(epoch: &Epoch) -> Vec<Vec<Vec<u64>>> {
    let all = (0..epoch.clean_batches().max(1)).map(|step| epoch.step(step).unwrap());
    all.map(|ranks| {
        let samples = ranks.iter();
        let each = samples.map(|rank| rank.iter().map(|entry| entry.sample.0).collect());
        each.collect()
    })
    .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn quality_of_small_worlds_equals_brute_force(
        algo in prop::sample::select(ShuffleAlgo::ALL.to_vec()),
        shards in prop::collection::vec(1_u64..30, 1..9),
        batch in 1_u64..7,
        ranks in 1_u64..4,
        block in 2_u64..200,
    ) {
        let mut config = config(algo, &shards, batch, ranks);
        config.shuffle.block_size = Some(block);
        let Ok(epoch) = Epoch::new(&config) else { return Ok(()) };
        let found = epoch.probe(1).quality();
        let steps = steps(&epoch);
        prop_assert_eq!(found.steps, count(steps.len()));
        let samples: u64 = shards.iter().sum();
        let shard_of = |sample: u64| epoch.shards().locate(sample).unwrap().0;

        // Distances within the sequence of each rank, and between all pairs of samples.
        let mut distances = Vec::new();
        let mut same = 0;
        for rank in 0..index(ranks) {
            let sequence: Vec<u64> = steps.iter().flat_map(|step| step.get(rank).cloned().unwrap_or_default()).collect();
            for pair in sequence.windows(2) {
                distances.push(pair[0].abs_diff(pair[1]));
                same += u64::from(shard_of(pair[0]) == shard_of(pair[1]));
            }
        }
        distances.sort_unstable();
        let (mut all, mut all_same) = (Vec::new(), 0);
        for one in 0..samples {
            for other in 0..one {
                all.push(one - other);
                all_same += u64::from(shard_of(one) == shard_of(other));
            }
        }
        all.sort_unstable();
        let found_neighbours = &found.neighbours;
        if let Some(median) = distances.get(distances.len().saturating_sub(1) / 2) {
            prop_assert_eq!(found_neighbours.median, *median);
            prop_assert!(close(found_neighbours.same_shard, real(same) / real(count(distances.len())), 1e-9));
            let bins: f64 = found_neighbours.distances.iter().map(|bin| bin.share).sum();
            prop_assert!(close(bins, 1.0, 1e-9));
        }
        if samples > 1 {
            let half = all.len().div_ceil(2) - 1;
            prop_assert_eq!(found_neighbours.full_shuffle_median, all[half]);
            prop_assert!(close(found_neighbours.full_shuffle_same_shard, real(all_same) / real(count(all.len())), 1e-9));
        }
        for bin in &found_neighbours.distances {
            let inside = |distance: &&u64| **distance >= bin.from && **distance < (2 * bin.from).max(1);
            let share = |of: &[u64]| real(count(of.iter().filter(inside).count())) / real(count(of.len()).max(1));
            prop_assert!(close(bin.share, share(&distances), 1e-9));
            prop_assert!(close(bin.full_shuffle, share(&all), 1e-9));
        }

        // The shards of a step.
        let window = found.windows[0];
        let mut distinct = 0;
        let mut variance = 0.0;
        for step in &steps {
            let mut counts = vec![0_u64; shards.len()];
            step.iter().flatten().for_each(|sample| counts[shard_of(*sample)] += 1);
            let all: u64 = counts.iter().sum();
            distinct += counts.iter().filter(|found| **found > 0).count();
            variance += counts.iter().zip(&shards).map(|(found, size)| (real(*found) / real(all) - real(*size) / real(samples)).powi(2)).sum::<f64>();
        }
        prop_assert!(close(window.shards, real(count(distinct)) / real(count(steps.len())), 1e-9));
        let drawn = window.samples;
        if drawn <= samples {
            let expected: f64 = shards.iter().map(|size| 1.0 - ways(samples - size, drawn) / ways(samples, drawn)).sum();
            prop_assert!(close(window.full_shuffle_shards, expected, 1e-6), "{} {expected}", window.full_shuffle_shards);
        }
        if drawn < samples && shards.len() > 1 {
            // The variance of a share in a draw without replacement.
            let full: f64 = shards.iter().map(|size| {
                let share = real(*size) / real(samples);
                share * (1.0 - share) / real(drawn) * real(samples - drawn) / real(samples - 1)
            }).sum();
            let expected = variance / real(count(steps.len())) / full;
            prop_assert!(close(window.excess_variance, expected, 1e-6), "{} {expected}", window.excess_variance);
        }
    }

    #[test]
    fn one_class_per_shard_has_the_shard_variance(
        shards in prop::collection::vec(10_u64..60, 2..9),
        batch in 1_u64..9,
    ) {
        let samples: u64 = shards.iter().sum();
        prop_assume!(samples.is_multiple_of(batch) && samples > batch);
        let epoch = Epoch::new(&config(ShuffleAlgo::Py1e, &shards, batch, 1)).unwrap();
        let probe = epoch.probe(1);
        let shard_of = |sample: u64| u32::try_from(epoch.shards().locate(sample).unwrap().0).unwrap();
        let (by_class, by_shard) = (probe.classes(&shard_of), probe.quality().windows);
        prop_assert_eq!(by_class.len(), by_shard.len());
        for (class, shard) in by_class.iter().zip(&by_shard) {
            prop_assert_eq!((class.steps, class.samples), (shard.steps, shard.samples));
            prop_assert!(close(class.excess_variance, shard.excess_variance, 1e-6));
        }
    }

    #[test]
    fn mean_deviation_matches_the_binomial_distribution(share in 0.01..0.99_f64, draws in 1_u64..60) {
        let expected: f64 = (0..=draws)
            .map(|found| {
                let chance = ways(draws, found) * share.powf(real(found)) * (1.0 - share).powf(real(draws - found));
                chance * (real(found) - real(draws) * share).abs()
            })
            .sum();
        let found = mean_deviation(share, draws);
        prop_assert!(close(found, expected, 1e-6), "{found} {expected}");
    }
}

#[test]
fn naive_shuffle_measures_as_a_full_shuffle() {
    let shards = [300_u64; 40];
    let (mut shard, mut class, mut median) = (0.0, [0.0; 3], 0.0);
    let seeds = 30;
    for seed in 0..seeds {
        let mut config = config(ShuffleAlgo::Naive, &shards, 50, 1);
        config.shuffle.seed = seed;
        let probe = Epoch::new(&config).unwrap().probe(1);
        let found = probe.quality();
        shard += found.windows[0].excess_variance;
        assert!(close(
            found.windows[0].shards,
            found.windows[0].full_shuffle_shards,
            0.02
        ));
        median += real(found.neighbours.median) / real(found.neighbours.full_shuffle_median);
        // A tenth of the samples is of class 1, and a fifth of class 2.
        let spread = probe.classes(&|sample| match sample {
            0..1200 => 1,
            1200..3600 => 2,
            _ => 0,
        });
        class[0] += spread[0].excess_variance;
        class[1] += spread[0].imbalance;
        class[2] += spread[0].full_shuffle_imbalance;
    }
    let seeds = real(seeds);
    assert!(close(shard / seeds, 1.0, 0.02), "{}", shard / seeds);
    assert!(close(class[0] / seeds, 1.0, 0.05), "{}", class[0] / seeds);
    assert!(close(class[1], class[2], 0.02), "{class:?}");
    assert!(close(median / seeds, 1.0, 0.02), "{}", median / seeds);
}

#[test]
fn block_model_is_close_to_measurements() {
    for (algo, block) in [
        (ShuffleAlgo::Py1br, 8_000),
        (ShuffleAlgo::Py1e, 8_000),
        (ShuffleAlgo::Shardmill, 8_000),
        (ShuffleAlgo::Py1e, 32_000),
        (ShuffleAlgo::Shardmill, 32_000),
    ] {
        let mut config = config(algo, &[500; 256], 64, 1);
        config.shuffle.block_size = Some(block);
        let epoch = Epoch::new(&config).unwrap();
        let measured = epoch.probe(1).quality().windows[0];
        let model = epoch.block_choice(block);
        let (found, expected) = (measured.shards, model.shards);
        assert!(close(found, expected, 0.15), "{algo}: {found} {expected}");
        let (found, expected) = (measured.excess_variance, model.excess_variance);
        assert!(close(found, expected, 0.2), "{algo}: {found} {expected}");
    }
    let epoch = Epoch::new(&config(ShuffleAlgo::Py1e, &[500; 256], 64, 1)).unwrap();
    assert_eq!(epoch.block_sizes(), [512, 2048, 8192, 32_768, 128_000]);
    let whole = epoch.block_choice(128_000);
    assert!(close(whole.shards, whole.full_shuffle_shards, 0.01));
    assert!(close(whole.excess_variance, 1.0, 0.01));
    assert!(close(whole.shards_in_use, 256.0, 1e-9));
}

#[test]
fn sampled_steps_estimate_the_whole_epoch() {
    for algo in [
        ShuffleAlgo::Py1br,
        ShuffleAlgo::Py1e,
        ShuffleAlgo::Shardmill,
    ] {
        let mut config = config(algo, &[500; 400], 16, 4);
        config.shuffle.block_size = Some(20_000);
        let epoch = Epoch::new(&config).unwrap();
        let all = epoch.probe(1).quality();
        let effort = Effort {
            samples: 30_000,
            computed: 1 << 20,
            runs: 10,
        };
        let probe = epoch.probe_with(2, effort);
        let some = probe.quality();
        assert_eq!((some.steps, all.steps), (460, 3125));
        let pairs = [
            (some.windows[0].shards, all.windows[0].shards),
            (
                some.windows[0].excess_variance,
                all.windows[0].excess_variance,
            ),
            (real(some.neighbours.median), real(all.neighbours.median)),
        ];
        for (found, expected) in pairs {
            assert!(close(found, expected, 0.1), "{algo}: {found} {expected}");
        }
        let thin = probe.thinned(3000);
        // Three groups of up to 16 steps.
        assert_eq!(thin.samples().count(), (16 + 16 + 14) * 64);
    }
}

#[test]
fn quality_accounts_for_stream_weights() {
    let mut config = config(ShuffleAlgo::Shardmill, &[100; 10], 20, 1);
    config.streams = vec![
        StreamConfig::new(&[100; 10]).with_weight(Weight::Repeat(2.0)),
        StreamConfig::new(&[100; 30]).with_weight(Weight::Choose(1500)),
    ];
    let epoch = Epoch::new(&config).unwrap();
    let masses = epoch.samples_per_shard();
    assert!(close(masses.iter().sum(), 3500.0, 1e-9));
    assert!(close(masses[0], 200.0, 1e-9));
    let found = epoch.probe(1).quality();
    // Blocks are larger than the epoch, so this is almost a full shuffle.
    let window = found.windows[0];
    assert!(close(window.shards, window.full_shuffle_shards, 0.03));
    assert!(close(window.excess_variance, 1.0, 0.15), "{window:?}");
    let neighbours = &found.neighbours;
    let (median, full) = (
        real(neighbours.median),
        real(neighbours.full_shuffle_median),
    );
    assert!(close(median, full, 0.1), "{neighbours:?}");
}

#[test]
fn quality_of_tiny_datasets_is_finite() {
    for sizes in [&[1_u64][..], &[5], &[1, 1]] {
        let epoch = Epoch::new(&config(ShuffleAlgo::Py1e, sizes, 4, 2)).unwrap();
        let probe = epoch.probe(1);
        let quality = probe.quality();
        assert!(quality.windows.iter().all(|window| {
            window.excess_variance.is_finite() && window.full_shuffle_shards.is_finite()
        }));
        let classes = probe.classes(&|_| 0);
        assert!(classes.iter().all(|class| class.imbalance.abs() < 1e-9));
        let choice = epoch.block_choice(2);
        assert!(choice.excess_variance.is_finite() && choice.shards.is_finite());
    }
}
