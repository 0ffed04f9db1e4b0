//! Worlds, epochs and batches as all tests of this suite want them.

use shardmill_order::{
    BatchingMethod, Cursor, Entry, Epoch, EpochConfig, ShuffleAlgo, StreamConfig, Weight, World,
};
use shardmill_reader::{OrderIdentity, RunState};

/// Samples of a global batch on every one of [`WORLDS`].
pub const GLOBAL: u64 = 24;

/// Nodes, ranks of a node and batch size; twelve canonical nodes serve them all.
pub const WORLDS: [(u64, u64, u64); 10] = [
    (1, 1, 24),
    (1, 2, 12),
    (2, 1, 12),
    (1, 3, 8),
    (3, 1, 8),
    (2, 2, 6),
    (4, 1, 6),
    (1, 8, 3),
    (2, 4, 3),
    (4, 2, 3),
];

/// The same run on one of [`WORLDS`], each rank with so many workers; 0 is a rank that loads for itself, and counts as 1.
pub fn on(config: &EpochConfig, place: usize, workers: u64) -> EpochConfig {
    let (nodes, ranks_per_node, batch_size) = WORLDS[place % WORLDS.len()];
    EpochConfig {
        world: World {
            nodes,
            ranks_per_node,
            workers_per_rank: workers.max(1),
        },
        batch_size,
        ..config.clone()
    }
}

/// An epoch of 997 samples, in shards of all sizes.
pub fn prime(algo: ShuffleAlgo) -> EpochConfig {
    let sizes = [61, 0, 140, 7, 1, 250, 33, 90, 119, 200, 96];
    assert_eq!(sizes.iter().sum::<u64>(), 997);
    let mut config = EpochConfig::new(vec![StreamConfig::new(&sizes)], GLOBAL, World::SINGLE);
    config.num_canonical_nodes = Some(12);
    config.shuffle = true;
    config.shuffle_algo = algo;
    config.shuffle_block_size = Some(60);
    config.shuffle_seed = 11;
    config
}

/// Two streams, one of which is taken in part.
pub fn mixed(algo: ShuffleAlgo, method: BatchingMethod, seed: u64) -> EpochConfig {
    let mut config = prime(algo);
    config.shuffle_seed = seed;
    config.batching_method = method;
    config
        .streams
        .push(StreamConfig::new(&[70, 80, 1]).with_weight(Weight::Repeat(1.7)));
    config.streams[0].weight = Weight::Choose(600);
    config
}

/// Batches of a cursor from `first` on, at most so many.
pub fn read(mut cursor: Cursor, first: u64, most: u64) -> Vec<Vec<Entry>> {
    let mut out = Vec::new();
    let mut entries = Vec::new();
    for batch in first..cursor.batches().min(first.saturating_add(most)) {
        assert!(cursor.read(batch, &mut entries));
        out.push(entries.clone());
    }
    out
}

/// All batches of an epoch, of all ranks together.
pub fn everyone(epoch: &Epoch) -> Vec<Vec<Entry>> {
    read(epoch.everyone(), 0, u64::MAX)
}

pub fn ids(batch: &[Entry]) -> Vec<u64> {
    batch.iter().map(|entry| entry.sample.0).collect()
}

pub fn sorted(mut ids: Vec<u64>) -> Vec<u64> {
    ids.sort_unstable();
    ids
}

/// The ids that are no padding, in their order of size.
pub fn given<'a>(batches: impl IntoIterator<Item = &'a Vec<Entry>>) -> Vec<u64> {
    let entries = batches.into_iter().flatten();
    sorted(
        entries
            .filter(|entry| !entry.repeated)
            .map(|entry| entry.sample.0)
            .collect(),
    )
}

/// The configuration that goes on where `epoch` is after so many steps, by way of a checkpoint.
pub fn resumed(config: &EpochConfig, epoch: &Epoch, steps: u64) -> EpochConfig {
    let nodes = epoch.resolved().canonical_nodes;
    let identity = OrderIdentity::new(config, Some(nodes)).unwrap();
    let text = RunState::new(epoch.state_after(steps), identity).render();
    let state = RunState::parse(text.as_bytes()).unwrap();
    assert_eq!(state.render(), text);
    EpochConfig {
        resume: Some(state.resume(config).unwrap()),
        ..config.clone()
    }
}
