//! Worlds, epochs and batches that all tests of this suite share.

use shardmill_order::{
    BatchingMethod, Cursor, Entry, Epoch, EpochConfig, ShuffleAlgo, StreamConfig, Weight, World,
};
use shardmill_reader::{OrderIdentity, RunState};

/// The number of samples in a global batch, in each of [`WORLDS`].
pub const GLOBAL: u64 = 24;

/// Nodes, ranks per node and batch size. Twelve canonical nodes suit all of them.
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

/// Returns the same run in one of [`WORLDS`], with `workers` workers for each rank. 0 means that a rank loads its own
/// data; it counts as 1.
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

/// Returns an epoch of 997 samples, in shards of various sizes.
pub fn prime(algo: ShuffleAlgo) -> EpochConfig {
    let sizes = [61, 0, 140, 7, 1, 250, 33, 90, 119, 200, 96];
    assert_eq!(sizes.iter().sum::<u64>(), 997);
    let mut config = EpochConfig::new(vec![StreamConfig::new(&sizes)], GLOBAL, World::SINGLE);
    config.num_canonical_nodes = Some(12);
    config.shuffle.enabled = true;
    config.shuffle.algo = algo;
    config.shuffle.block_size = Some(60);
    config.shuffle.seed = 11;
    config
}

/// Returns an epoch of two streams, one of which is sampled partially.
pub fn mixed(algo: ShuffleAlgo, method: BatchingMethod, seed: u64) -> EpochConfig {
    let mut config = prime(algo);
    config.shuffle.seed = seed;
    config.batching_method = method;
    config
        .streams
        .push(StreamConfig::new(&[70, 80, 1]).with_weight(Weight::Repeat(1.7)));
    config.streams[0].weight = Weight::Choose(600);
    config
}

/// Reads at most `most` batches of a cursor, from batch `first`.
pub fn read(mut cursor: Cursor, first: u64, max: u64) -> Vec<Vec<Entry>> {
    let mut out = Vec::new();
    let mut entries = Vec::new();
    for batch in first..cursor.batches().min(first.saturating_add(max)) {
        assert!(cursor.read(batch, &mut entries));
        out.push(entries.clone());
    }
    out
}

/// Returns all batches of an epoch, of all ranks together.
pub fn all_ranks(epoch: &Epoch) -> Vec<Vec<Entry>> {
    read(epoch.all_ranks(), 0, u64::MAX)
}

pub fn ids(batch: &[Entry]) -> Vec<u64> {
    batch.iter().map(|entry| entry.sample.0).collect()
}

pub fn sorted(mut ids: Vec<u64>) -> Vec<u64> {
    ids.sort_unstable();
    ids
}

/// Returns the ids that are not padding, sorted.
pub fn given<'a>(batches: impl IntoIterator<Item = &'a Vec<Entry>>) -> Vec<u64> {
    let entries = batches.into_iter().flatten();
    sorted(
        entries
            .filter(|entry| !entry.repeated)
            .map(|entry| entry.sample.0)
            .collect(),
    )
}

/// Returns the configuration that resumes `epoch` after `steps` steps, through a checkpoint.
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
