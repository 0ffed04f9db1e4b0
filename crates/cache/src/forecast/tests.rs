use std::time::Duration;

use super::*;

use crate::tests::simulate::{share, simulate};

use shardmill_order::{ShuffleAlgo, StreamConfig, World};

/// Returns the share of uses that were hits, from epoch `first` on; 0 if there are none.
fn hit_share(cache: &CacheForecast, first: usize) -> f64 {
    let epochs = cache.epochs.get(first..).unwrap_or_default().iter();
    let (hits, uses) = epochs.fold((0, 0), |(hits, uses), epoch| {
        (hits + epoch.hits, uses + epoch.uses)
    });
    share(hits, uses)
}

const MB: u64 = 1_000_000;

fn config(shards: &[u64], nodes: u64, algo: Option<ShuffleAlgo>) -> EpochConfig {
    let world = World {
        nodes,
        ranks_per_node: 2,
        workers_per_rank: 1,
    };
    let mut config = EpochConfig::new(vec![StreamConfig::new(shards)], 4, world);
    config.shuffle.enabled = algo.is_some();
    config.shuffle.algo = algo.unwrap_or(ShuffleAlgo::Py1e);
    config.shuffle.block_size = Some(400);
    config
}

/// Returns the costs of uncompressed shards of 1 MB.
fn costs(shards: usize) -> Vec<ShardCost> {
    let cost = ShardCost {
        fetch_bytes: MB,
        cache_bytes: MB,
        reserve_bytes: MB,
    };
    vec![cost; shards]
}

/// Returns options with enough bandwidth for every test.
fn options(cache_limit: Option<u64>) -> ForecastOptions {
    ForecastOptions {
        cache_limit,
        in_flight: 4 * MB,
        bandwidth: 1000 * MB,
        latency: Duration::from_millis(1),
        ..ForecastOptions::default()
    }
}

#[test]
fn fitting_shards_are_fetched_once() {
    for algo in [None, Some(ShuffleAlgo::Py1e), Some(ShuffleAlgo::Naive)] {
        for limit in [None, Some(50 * MB)] {
            let config = config(&[100; 50], 1, algo);
            let found = forecast(&config, &costs(50), &options(limit)).unwrap();
            let node = &found.nodes[0];
            assert_eq!((node.distinct_shards, node.distinct_bytes), (50, 50 * MB));
            for cache in [&node.belady, &node.lru] {
                assert_eq!(cache.fetched_bytes(), 50 * MB);
                assert_eq!(cache.most_resident_bytes, 50 * MB);
                assert_eq!(cache.epochs.len(), 3);
                for epoch in &cache.epochs[1..] {
                    assert_eq!((epoch.hits, epoch.fetched_shards), (epoch.uses, 0));
                    assert_eq!((epoch.evictions, epoch.bypasses), (0, 0));
                    assert!(epoch.wait_seconds.abs() < 1e-9);
                }
                // 5,000 samples in steps of 8, of 100 ms.
                let steps = 3.0 * 625.0 * 0.1;
                let idle = cache.wait_seconds() + cache.first_batch_seconds;
                assert!((cache.seconds - idle - steps).abs() < 1e-6, "{cache:?}");
                assert!(cache.first_batch_seconds >= 0.002);
            }
        }
    }
}

/// For every order, limit and size: the cache stays within the limit, and all uses and all time are accounted for.
#[test]
fn forecast_stays_within_the_limit_and_accounts_for_all_uses() {
    let sizes: Vec<u64> = (0..60).map(|shard| 50 + shard * 7 % 100).collect();
    let shards: Vec<ShardCost> = sizes
        .iter()
        .map(|samples| ShardCost {
            fetch_bytes: samples * 4_000,
            cache_bytes: samples * 10_000,
            reserve_bytes: samples * 14_000,
        })
        .collect();
    for algo in &ShuffleAlgo::ALL {
        for limit in [1, 5, 12, 20, 40, 80] {
            for (nodes, connections, bandwidth) in [(1, 1, MB), (2, 8, 5 * MB), (2, 64, 1000 * MB)]
            {
                let options = ForecastOptions {
                    connections,
                    bandwidth,
                    known_epochs: 1 + limit % 3,
                    ..options(Some(limit * MB))
                };
                let config = config(&sizes, nodes, Some(*algo));
                let found = forecast(&config, &shards, &options).unwrap();
                let again = forecast(&config, &shards, &options).unwrap();
                assert_eq!(found, again);
                for node in &found.nodes {
                    for cache in [&node.belady, &node.lru] {
                        let case = format!("{algo}, {limit} MB, {nodes} nodes, {connections}");
                        assert!(cache.most_resident_bytes <= limit * MB, "{case}");
                        let (mut fetched, mut missed) = (0, 0);
                        for epoch in &cache.epochs {
                            assert!(epoch.hits <= epoch.uses, "{case}");
                            fetched += epoch.fetched_shards;
                            missed += epoch.uses - epoch.hits;
                        }
                        assert!(fetched >= missed, "{case}: {fetched} for {missed}");
                        // All shards take up 59 MB, and 23 MB more before they are decompressed.
                        if limit == 80 {
                            let later = &cache.epochs[1..];
                            assert!(
                                later.iter().all(|epoch| epoch.fetched_shards == 0),
                                "{case}"
                            );
                        }
                        let steps = real_steps(&found) * 0.1;
                        let idle = cache.wait_seconds() + cache.first_batch_seconds;
                        assert!((cache.seconds - idle - steps).abs() < 1e-6, "{case}");
                        let line = cache.fetched_bytes() as f64 / bandwidth as f64;
                        assert!(cache.seconds > line * 0.999, "{case}");
                        let points = cache.timeline.iter();
                        assert!(
                            points
                                .clone()
                                .all(|point| point.resident_bytes <= limit * MB)
                        );
                        assert!(points.clone().all(|point| point.waiting <= 1.0));
                    }
                }
            }
        }
    }
}

fn real_steps(found: &Forecast) -> f64 {
    found.epochs.iter().map(|epoch| epoch.steps as f64).sum()
}

/// With two nodes and caches of different sizes, the forecast comes close to [`simulate`],
/// although it prefetches, and pins shards while they are in use. In this order, a node reads the same half of the data
/// in every epoch.
#[test]
fn prefetching_costs_few_hits() {
    const EPOCHS: usize = 12;
    for limit in [100, 250, 400] {
        let mut config = config(&[100; 1000], 2, Some(ShuffleAlgo::Py1s));
        config.num_canonical_nodes = Some(2);
        let options = ForecastOptions {
            epochs: EPOCHS as u64,
            ..options(Some(limit * MB))
        };
        let found = forecast(&config, &costs(1000), &options).unwrap();
        for node in &found.nodes {
            let epochs: Vec<Vec<usize>> = (0..EPOCHS as u64)
                .map(|epoch| {
                    config.epoch = epoch;
                    let uses = Epoch::new(&config)
                        .unwrap()
                        .access_schedule_of_node(node.node, 2);
                    let mut all: Vec<_> = (0..1000).flat_map(|shard| uses.of(shard)).collect();
                    all.sort_by_key(|found| (found.first, found.last, found.shard));
                    all.into_iter().map(|found| found.shard).collect()
                })
                .collect();
            for (cache, policy) in [
                (&node.belady, (Policy::Belady, 2)),
                (&node.lru, (Policy::Lru, 1)),
            ] {
                let simulated = simulate(policy, &[MB; 1000], &epochs, limit * MB).hit_share(3);
                let share = hit_share(cache, 3);
                println!(
                    "node {}, {limit} of 1000 shards, {policy:?}: {share:.3}, one by one {simulated:.3}",
                    node.node
                );
                assert!((share - simulated).abs() < 0.03, "{share} and {simulated}");
            }
            assert!(node.belady.fetched_bytes() < node.lru.fetched_bytes());
        }
    }
}

/// Prefetching keeps the shards that Belady's policy keeps, however much may be prefetched.
#[test]
fn prefetching_keeps_the_belady_hit_rate() {
    let mut config = config(&[100; 1000], 2, Some(ShuffleAlgo::Py1s));
    config.num_canonical_nodes = Some(2);
    let [bounded, unbounded] = [4, 1000].map(|in_flight| {
        let options = ForecastOptions {
            epochs: 8,
            in_flight: in_flight * MB,
            ..options(Some(250 * MB))
        };
        let found = forecast(&config, &costs(1000), &options).unwrap();
        hit_share(&found.nodes[0].belady, 3)
    });
    println!("hits: {bounded:.3} with a bound, {unbounded:.3} without");
    assert!(bounded > 0.47 && unbounded > 0.47, "{bounded} {unbounded}");
}

#[test]
fn each_process_fetches_bypassed_shards() {
    // Every batch needs every shard; the node has two processes.
    let mut config = config(&[100; 50], 1, Some(ShuffleAlgo::Naive));
    let fetched = |config: &EpochConfig, limit| {
        let found = forecast(config, &costs(50), &options(limit)).unwrap();
        let epoch = found.nodes[0].belady.epochs[0];
        assert_eq!(epoch.fetched_shards * MB, epoch.fetched_bytes);
        [
            epoch.fetched_bytes,
            epoch.bypassed_bytes,
            epoch.most_fetched_bytes,
        ]
        .map(|sum| sum / MB)
    };
    assert_eq!(fetched(&config, Some(20 * MB)), [80, 60, 100]);
    // Shards that fit are fetched once, for all processes.
    assert_eq!(fetched(&config, Some(50 * MB)), [50, 0, 50]);
    assert_eq!(fetched(&config, None), [50, 0, 50]);
    config.world.ranks_per_node = 1;
    config.world.workers_per_rank = 3;
    assert_eq!(fetched(&config, Some(20 * MB)), [110, 90, 150]);
    config.world.workers_per_rank = 1;
    assert_eq!(fetched(&config, Some(20 * MB)), [50, 30, 50]);
}

#[test]
fn slow_connection_causes_waits() {
    let mut config = config(&[100; 50], 1, Some(ShuffleAlgo::Py1s));
    config.num_canonical_nodes = Some(1);
    let slow = ForecastOptions {
        // 50 MB for 625 steps of 10 ms: the transfer takes eight times as long.
        bandwidth: MB,
        step: Duration::from_millis(10),
        epochs: 1,
        ..options(None)
    };
    let cache = forecast(&config, &costs(50), &slow).unwrap().nodes[0]
        .belady
        .clone();
    let waited = cache.wait_seconds() + cache.first_batch_seconds;
    assert!((waited - (50.0 - 6.25)).abs() < 1.5, "{waited}");
    assert!((1.0..5.0).contains(&cache.first_batch_seconds));
    let share: f64 = cache.timeline.iter().map(|point| point.waiting).sum();
    let points = cache.timeline.len() as f64;
    assert!((share / points - waited / cache.seconds).abs() < 0.02);
    let full = cache
        .timeline
        .iter()
        .map(|point| point.fetched_bytes_per_second);
    assert!(full.clone().all(|rate| rate < 1.001e6));
    assert!(full.sum::<f64>() / points > 0.95e6);
}

#[test]
fn too_small_cache_is_bypassed() {
    // Every batch needs every shard.
    let config = config(&[100; 50], 1, Some(ShuffleAlgo::Naive));
    let found = forecast(&config, &costs(50), &options(Some(20 * MB))).unwrap();
    let node = &found.nodes[0];
    assert_eq!(node.needed_at_once_bytes, 50 * MB);
    for cache in [&node.belady, &node.lru] {
        assert_eq!(cache.epochs[0].bypasses, 30);
        assert_eq!(cache.most_resident_bytes, 20 * MB);
        // Shards in the cache stay there.
        assert_eq!((cache.epochs[1].hits, cache.epochs[1].bypasses), (20, 30));
    }
    // Space for a few shards is enough if they are read one after the other.
    let config = self::config(&[100; 50], 1, None);
    let found = forecast(&config, &costs(50), &options(Some(3 * MB))).unwrap();
    let node = &found.nodes[0];
    assert!(node.needed_at_once_bytes <= 2 * MB);
    assert_eq!(node.belady.epochs[0].bypasses, 0);
}

/// Compares the counts with those from reading every entry.
#[test]
fn padded_and_dropped_samples_are_counted() {
    for (samples, method) in [
        (vec![7_u64, 6], BatchingMethod::Random),
        (vec![100, 101, 102], BatchingMethod::Random),
        (vec![64], BatchingMethod::Random),
        (vec![90, 77], BatchingMethod::Stratified),
        (vec![90, 77], BatchingMethod::PerStream),
        (vec![90, 77], BatchingMethod::DevicePerStream),
    ] {
        let mut config = config(&samples, 2, Some(ShuffleAlgo::Py1e));
        config.streams = samples
            .iter()
            .map(|shard| StreamConfig::new(&[*shard]))
            .collect();
        config.batching_method = method;
        let epoch = Epoch::new(&config).unwrap();
        let facts = epoch_facts(&epoch, method);
        let (mut given, mut padded) = (std::collections::BTreeSet::new(), 0);
        let mut everyone = epoch.all_ranks();
        let mut batch = Vec::new();
        for step in 0..epoch.batches() {
            assert!(everyone.read(step, &mut batch));
            for entry in &batch {
                padded += u64::from(entry.repeated);
                given.insert(entry.sample.0);
            }
        }
        let total: u64 = samples.iter().sum();
        assert_eq!((facts.samples, facts.steps), (total, epoch.batches()));
        assert_eq!(facts.padded, Some(padded), "{samples:?} {method}");
        let dropped = total - given.len() as u64;
        assert_eq!(facts.dropped, Some(dropped), "{samples:?} {method}");
    }
}

/// The first need of an access window is drawn at random. Overall, it matches the order.
#[test]
fn forecast_needs_match_the_order() {
    for algo in [
        ShuffleAlgo::Py1s,
        ShuffleAlgo::Py1br,
        ShuffleAlgo::Naive,
        ShuffleAlgo::Shardmill,
    ] {
        let mut config = config(&[200; 300], 1, Some(algo));
        config.shuffle.block_size = Some(2000);
        let epoch = Epoch::new(&config).unwrap();
        let mut access_plan = AccessPlan::new(300);
        access_plan.push(&epoch.access_schedule_of_node(0, 2), epoch.batches());
        let stretches: Vec<_> = access_plan.in_order(0).collect();
        let drawn = node::needs(&stretches, &epoch, 300);
        let mut first = vec![None; 300];
        let mut everyone = epoch.all_ranks();
        let mut batch = Vec::new();
        for step in 0..epoch.batches() {
            everyone.read(step, &mut batch);
            for entry in &batch {
                let (shard, _) = epoch.shards().locate(entry.sample.0).unwrap();
                first[shard].get_or_insert(step);
            }
        }
        let mut min = vec![u64::MAX; 300];
        for (tick, shard) in drawn {
            min[shard] = min[shard].min(tick);
        }
        let off: f64 = min
            .iter()
            .zip(&first)
            .map(|(drawn, first)| *drawn as f64 - first.unwrap() as f64)
            .sum();
        let off = off / 300.0;
        println!("{algo}: {off:.1} batches of {}", epoch.batches());
        assert!(off.abs() < epoch.batches() as f64 / 200.0, "{algo}: {off}");
    }
}

#[test]
fn only_some_of_many_nodes_are_simulated() {
    let config = config(&[100; 80], 40, None);
    let few = ForecastOptions {
        most_nodes: 4,
        ..options(None)
    };
    let found = forecast(&config, &costs(80), &few).unwrap();
    assert_eq!(found.nodes_in_all, 40);
    let nodes: Vec<u64> = found.nodes.iter().map(|node| node.node).collect();
    assert_eq!(nodes, [0, 10, 20, 30]);
}

#[test]
fn large_forecast_finishes_within_a_minute() {
    let start = std::time::Instant::now();
    let mut config = config(&[1000; 20_000], 4, Some(ShuffleAlgo::Py1e));
    config.world.ranks_per_node = 8;
    config.batch_size = 32;
    config.shuffle.block_size = None;
    let run = ForecastOptions {
        cache_limit: Some(5000 * MB),
        bandwidth: 200 * MB,
        ..ForecastOptions::default()
    };
    let found = forecast(&config, &costs(20_000), &run).unwrap();
    println!(
        "20,000 shards, 4 nodes, 3 epochs: {:.1} s",
        start.elapsed().as_secs_f64()
    );
    assert_eq!(found.nodes.len(), 4);
    assert!(start.elapsed() < Duration::from_secs(60));
}

/// Returns the fetches from the store and from other nodes in each epoch, in MB, for 4 nodes that share their caches.
fn shared(algo: ShuffleAlgo, limit: Option<u64>) -> (Forecast, Vec<(u64, u64)>) {
    let options = ForecastOptions {
        owners: (0..80).map(|shard| shard % 4).collect(),
        most_nodes: 2,
        ..options(limit)
    };
    let config = config(&[100; 80], 4, Some(algo));
    let found = forecast(&config, &costs(80), &options).unwrap();
    let epochs = found.peers.iter();
    let epochs = epochs.map(|epoch| {
        assert_eq!(epoch.store_bytes, epoch.store_shards * MB);
        assert_eq!(epoch.peer_bytes, epoch.peer_shards * MB);
        (epoch.store_shards, epoch.peer_shards)
    });
    let epochs = epochs.collect();
    (found, epochs)
}

#[test]
fn peers_fetch_each_shard_from_the_store_once() {
    // Every node reads of all shards, and owns a quarter of them.
    let (found, epochs) = shared(ShuffleAlgo::Naive, None);
    assert_eq!(epochs, [(80, 3 * 80), (0, 0), (0, 0)]);
    assert_eq!((found.nodes.len(), found.nodes_in_all), (2, 4));
    let (_, epochs) = shared(ShuffleAlgo::Naive, Some(80 * MB));
    assert_eq!(epochs, [(80, 3 * 80), (0, 0), (0, 0)]);
    // Every node reads a part, of which it owns about a quarter.
    let (_, epochs) = shared(ShuffleAlgo::Py1e, None);
    let sums = epochs.iter().fold((0, 0), |(store, peers), epoch| {
        (store + epoch.0, peers + epoch.1)
    });
    assert_eq!(sums.0, 80);
    assert!((40..=80).contains(&sums.1), "{epochs:?}");
}

#[test]
fn limited_owner_fetches_shards_again() {
    let (found, epochs) = shared(ShuffleAlgo::Naive, Some(30 * MB));
    assert!(epochs.iter().all(|(store, _)| *store > 80), "{epochs:?}");
    let apart = ForecastOptions {
        most_nodes: 4,
        ..options(Some(30 * MB))
    };
    let config = config(&[100; 80], 4, Some(ShuffleAlgo::Naive));
    let apart = forecast(&config, &costs(80), &apart).unwrap();
    assert!(apart.peers.is_empty());
    for (number, (store, _)) in epochs.iter().enumerate() {
        let nodes = apart.nodes.iter().map(|node| node.belady.epochs[number]);
        assert!(*store < nodes.map(|epoch| epoch.fetched_shards).sum());
    }
    // The nodes themselves fetch the same.
    for (one, other) in found.nodes.iter().zip(&apart.nodes).take(1) {
        assert_eq!(one, other);
    }
}
