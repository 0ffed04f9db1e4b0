//! Tests the order through the public API: it equals the original, is elastic and resumable, and is the same however it
//! is read.

mod elastic;
mod golden;
mod reading;

use shardmill_order::{
    BatchingMethod, Cursor, EpochConfig, PartitionAlgo, SamplingMethod, ShuffleAlgo, StreamConfig,
    Weight, World,
};

/// All batches of a cursor, from `first` on.
fn batches(mut cursor: Cursor, first: u64) -> Vec<Vec<u64>> {
    let mut out = Vec::new();
    let mut entries = Vec::new();
    for batch in first..cursor.batches() {
        assert!(cursor.read(batch, &mut entries));
        out.push(entries.iter().map(|entry| entry.sample.0).collect());
    }
    assert!(!cursor.read(cursor.batches(), &mut entries));
    assert!(entries.is_empty());
    out
}

fn sorted(mut ids: Vec<u64>) -> Vec<u64> {
    ids.sort_unstable();
    ids
}

fn world(nodes: u64, ranks_per_node: u64) -> World {
    World {
        nodes,
        ranks_per_node,
        workers_per_rank: 1,
    }
}

/// Worlds and batch sizes that share a global batch of 24 and divide 12 canonical nodes or are divided by them.
const WORLDS: [(u64, u64, u64); 9] = [
    (1, 1, 24),
    (1, 2, 12),
    (2, 1, 12),
    (2, 3, 4),
    (3, 2, 4),
    (4, 2, 3),
    (1, 8, 3),
    (6, 4, 1),
    (12, 1, 2),
];

/// Two streams of uneven shards.
fn mixed(
    shuffle_algo: ShuffleAlgo,
    batching_method: BatchingMethod,
    seed: u64,
    fraction: bool,
) -> EpochConfig {
    let mut streams = vec![
        StreamConfig::new(&[40, 0, 33, 57, 61, 80, 9]),
        StreamConfig::new(&[120, 77]),
    ];
    if fraction {
        streams[0].weight = Weight::Repeat(1.7);
        streams[1].weight = Weight::Choose(150);
    }
    let mut config = EpochConfig::new(streams, 24, World::SINGLE);
    config.num_canonical_nodes = Some(12);
    config.shuffle.enabled = true;
    config.shuffle.algo = shuffle_algo;
    config.shuffle.block_size = Some(60);
    config.shuffle.seed = seed;
    config.batching_method = batching_method;
    config.partition_algo = PartitionAlgo::Relaxed;
    config.sampling.method = SamplingMethod::Balanced;
    config
}
