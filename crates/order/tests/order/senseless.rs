//! Whatever is asked for: an order or an error, never a panic, and never an endless one.

use proptest::prelude::*;
use shardmill_order::{
    BatchingMethod, EpochConfig, PartitionAlgo, SamplingMethod, ShuffleAlgo, State, StreamConfig,
    Weight, World, orders,
};

fn extreme() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0_u64..6,
        3 => 6_u64..100,
        1 => prop::sample::select(vec![1 << 20, 1 << 31, 1 << 32, 1 << 48, (1 << 53) + 1, u64::MAX - 1, u64::MAX]),
    ]
}

fn stream() -> impl Strategy<Value = StreamConfig> {
    let weight = prop_oneof![
        3 => Just(Weight::Unspecified),
        1 => prop::sample::select(vec![0.0, 0.5, 1.0, -1.0, 1e300, f64::NAN, f64::INFINITY]).prop_map(Weight::Proportion),
        1 => prop::sample::select(vec![0.0, 0.5, 2.5, -1.0, 1e300, f64::NAN, f64::INFINITY]).prop_map(Weight::Repeat),
        1 => prop_oneof![0_u64..300, Just(u64::MAX), Just((1 << 48) + 1)].prop_map(Weight::Choose),
    ];
    let shards = prop_oneof![
        6 => prop::collection::vec(0_u64..30, 0..6),
        1 => Just(vec![u64::MAX, 2]),
        1 => Just(vec![5, 1 << 40]),
    ];
    (shards, weight).prop_map(|(shards, weight)| StreamConfig::new(&shards).with_weight(weight))
}

fn state() -> impl Strategy<Value = State> {
    (
        extreme(),
        extreme(),
        prop::option::of(extreme()),
        extreme(),
        prop::option::of(extreme()),
    )
        .prop_map(
            |(
                epoch,
                sample_in_epoch,
                num_canonical_nodes,
                shuffle_seed,
                initial_physical_nodes,
            )| State {
                epoch,
                sample_in_epoch,
                num_canonical_nodes,
                shuffle_seed,
                initial_physical_nodes,
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn nothing_panics(
        streams in prop::collection::vec(stream(), 0..4),
        numbers in prop::collection::vec(extreme(), 8),
        options in prop::collection::vec(prop::option::weighted(0.4, extreme()), 3),
        small_epoch in prop::option::weighted(0.3, 0_u64..400),
        algo in prop::sample::select(ShuffleAlgo::ALL.to_vec()),
        method in prop::sample::select(BatchingMethod::ALL.to_vec()),
        flags in prop::collection::vec(any::<bool>(), 3),
        resume in prop::option::weighted(0.4, state()),
    ) {
        // Worlds of a few ranks, or absurd ones.
        let world = World {
            nodes: numbers[0],
            ranks_per_node: numbers[1],
            workers_per_rank: numbers[2],
        };
        let sane = world.nodes.saturating_mul(world.ranks_per_node).saturating_mul(world.workers_per_rank) < 10_000;
        let mut config = EpochConfig::new(streams, numbers[3], world);
        config.epoch_size = small_epoch;
        config.num_canonical_nodes = options[0];
        config.shuffle_block_size = options[1];
        config.replication = options[2];
        config.shuffle = flags[0];
        config.shuffle_algo = algo;
        config.batching_method = method;
        config.shuffle_seed = numbers[4];
        config.sampling_granularity = numbers[5];
        config.epoch = numbers[6];
        if flags[1] {
            config.partition_algo = PartitionAlgo::Orig;
        }
        if flags[2] {
            config.sampling_method = SamplingMethod::Fixed;
        }
        config.resume = resume;
        let found = orders(&config);
        if let Ok(found) = found {
            prop_assert!(sane || found.len() <= 1 << 24);
        }
    }
}
