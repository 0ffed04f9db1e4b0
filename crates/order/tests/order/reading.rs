//! Checks that an epoch is the same however it is read, and that shard accesses are predicted correctly.

use proptest::prelude::*;
use shardmill_order::{BatchingMethod, Epoch, ShuffleAlgo, StreamConfig};

use crate::{WORLDS, batches, mixed, world};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn window_size_threads_and_jumps_do_not_change_batches(
        algo in prop::sample::select(ShuffleAlgo::ALL.to_vec()),
        method in prop::sample::select(BatchingMethod::ALL.to_vec()),
        fraction: bool,
        seed in 0_u64..1000,
        window in 1_u64..200,
        threads in 1_usize..5,
        jumps in prop::collection::vec(0_u64..40, 10),
    ) {
        let config = mixed(algo, method, seed, fraction);
        let Ok(epoch) = Epoch::new(&config) else {
            return Ok(());
        };
        let expected = batches(epoch.all_ranks(), 0);
        prop_assert_eq!(&batches(epoch.all_ranks().with_window(window).with_threads(threads), 0), &expected);
        let mut cursor = epoch.all_ranks().with_window(window);
        let mut entries = Vec::new();
        for batch in jumps {
            let there = cursor.read(batch, &mut entries);
            prop_assert_eq!(there, batch < epoch.batches());
            if there {
                let ids: Vec<u64> = entries.iter().map(|entry| entry.sample.0).collect();
                prop_assert_eq!(&ids, &expected[usize::try_from(batch).unwrap()]);
            }
        }
    }

    #[test]
    fn access_schedule_matches_actual_shard_use(
        algo in prop::sample::select(ShuffleAlgo::ALL.to_vec()),
        method in prop::sample::select(BatchingMethod::ALL.to_vec()),
        shuffle: bool,
        fraction: bool,
        seed in 0_u64..1000,
        world_index in 0..WORLDS.len(),
        block in 4_u64..300,
        resumed in 0_u64..6,
    ) {
        let (nodes, ranks_per_node, batch_size) = WORLDS[world_index];
        let mut config = mixed(algo, method, seed, fraction);
        config.world = world(nodes, ranks_per_node);
        config.batch_size = batch_size;
        config.shuffle.enabled = shuffle;
        config.shuffle.block_size = Some(block);
        // Few canonical nodes, so that blocks are smaller than they.
        config.num_canonical_nodes = Some(nodes);
        config.streams.push(StreamConfig::new(&[50; 30]));
        let Ok(epoch) = Epoch::new(&config) else {
            return Ok(());
        };
        config.resume = Some(epoch.state_after(resumed.min(epoch.batches() - 1)));
        let epoch = Epoch::new(&config).unwrap();
        for node in 0..nodes {
            let uses = epoch.access_schedule_of_node(node, ranks_per_node);
            for rank in node * ranks_per_node..(node + 1) * ranks_per_node {
                let mut cursor = epoch.rank(rank).unwrap();
                let mut entries = Vec::new();
                for batch in 0..epoch.batches() {
                    cursor.read(batch, &mut entries);
                    for entry in entries.iter().filter(|entry| !entry.repeated) {
                        let (shard, _) = epoch.shards().locate(entry.sample.0).unwrap();
                        let found = uses.of(shard);
                        let is_listed = found.iter().any(|found| (found.first..=found.last).contains(&batch));
                        prop_assert!(is_listed, "shard {} at batch {} of {}: {:?}", shard, batch, epoch.batches(), found);
                    }
                }
            }
            for shard in 0..epoch.shards().len() {
                let found = uses.of(shard);
                prop_assert!(found.is_sorted_by_key(|found| found.first));
                prop_assert!(found.iter().all(|found| found.first <= found.last && found.last < epoch.batches()));
            }
        }
    }

    #[test]
    fn access_windows_of_small_shards_are_short(seed in 0_u64..1000, algo in prop::sample::select(vec![
        ShuffleAlgo::Py1s, ShuffleAlgo::Py2s, ShuffleAlgo::Py1br, ShuffleAlgo::Py1e, ShuffleAlgo::Shardmill,
    ])) {
        let mut config = mixed(algo, BatchingMethod::Random, seed, false);
        config.streams = vec![StreamConfig::new(&[100; 1000])];
        config.num_canonical_nodes = Some(1);
        config.shuffle.block_size = Some(2000);
        config.batch_size = 100;
        let epoch = Epoch::new(&config).unwrap();
        let uses = epoch.access_schedule_of_node(0, 1);
        let all = (0..1000).flat_map(|shard| uses.of(shard));
        prop_assert_eq!(all.clone().count(), 1000);
        let total: u64 = all.map(|found| found.last - found.first + 1).sum();
        // A shard of 100 samples in blocks of 2000 is needed for some 20 batches, not for 1000.
        prop_assert!(total <= 1000 * 50, "{} batches on average", total / 1000);
    }
}
