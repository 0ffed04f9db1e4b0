//! How long a question about one step or one sample of a large epoch takes, and in how much memory.
//!
//! ```text
//! lineage ALGO SAMPLES [SHARD_SIZE [NODES [RANKS_PER_NODE [CANONICAL_NODES]]]]
//! ```
//!
//! One line: making the epoch (the generator's walk), one step of all ranks, one step of one rank, the deliveries of one
//! sample, and the peak resident set. The answers are checked against each other.

use std::fs;
use std::time::Instant;

use shardmill_order::{Epoch, EpochConfig, ShuffleAlgo, StreamConfig, World};

type Failure = Box<dyn std::error::Error>;

fn argument<T: std::str::FromStr>(place: usize, otherwise: T) -> T {
    std::env::args()
        .nth(place)
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

fn peak_mib() -> Result<u64, Failure> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .ok_or("no VmHWM")?;
    let kib: u64 = line.split_whitespace().nth(1).ok_or("no figure")?.parse()?;
    Ok(kib / 1024)
}

fn main() -> Result<(), Failure> {
    let algo: ShuffleAlgo = argument(1, "shardmill".to_owned()).parse()?;
    let samples: u64 = argument(2, 1_000_000_000);
    let shard_size: u64 = argument(3, 1 << 16);
    let world = World {
        nodes: argument(4, 4),
        ranks_per_node: argument(5, 8),
        workers_per_rank: 1,
    };
    let mut shards = vec![shard_size; usize::try_from(samples / shard_size)?];
    if !samples.is_multiple_of(shard_size) {
        shards.push(samples % shard_size);
    }
    let mut config = EpochConfig::new(vec![StreamConfig::new(&shards)], 32, world);
    config.shuffle.enabled = true;
    config.shuffle.algo = algo;
    config.num_canonical_nodes = Some(argument(6, world.nodes));

    let started = Instant::now();
    let epoch = Epoch::new(&config)?;
    let made = started.elapsed();
    let step = epoch.batches() / 3 * 2;

    let started = Instant::now();
    let ranks = epoch.step(step)?;
    let all = started.elapsed();

    let started = Instant::now();
    let own = epoch.step_of_rank(step, 1)?;
    let one = started.elapsed();
    if ranks.get(1) != Some(&own) {
        return Err("a rank of the step is another than the step of the rank".into());
    }

    let sample = own.first().ok_or("the step has no samples")?.sample;
    let started = Instant::now();
    let deliveries = epoch.deliveries(sample)?;
    let back = started.elapsed();
    if !deliveries
        .iter()
        .any(|found| (found.step, found.rank, found.position) == (step, 1, 0))
    {
        return Err("the sample of the step does not name the step".into());
    }
    #[expect(clippy::print_stdout, reason = "this is what it is for")]
    {
        println!(
            "{algo} {samples} samples, {} shards, {} canonical nodes: epoch {:.3} s, step {:.3} s, of a rank {:.3} s, sample {:.3} s, {} MiB",
            shards.len(),
            epoch.resolved().canonical_nodes,
            made.as_secs_f64(),
            all.as_secs_f64(),
            one.as_secs_f64(),
            back.as_secs_f64(),
            peak_mib()?,
        );
    }
    Ok(())
}
