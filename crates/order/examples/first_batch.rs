//! Measures the time and memory that a large epoch needs for its first batch, and for finding a step and a sample.
//!
//! ```text
//! first_batch ALGO SAMPLES [SHARD_SIZE [CANONICAL_NODES [THREADS [RESUME_SHARE [BATCHES [WALK]]]]]]
//! ```
//!
//! `WALK` is a file with the checkpoints of the generator. It is written if it does not exist, and read otherwise.
//!
//! Prints the seconds until the epoch exists, until the first batch (that of a run resumed at `RESUME_SHARE` of the epoch)
//! and the processor seconds of all threads; the nanoseconds per sample of `BATCHES` further batches; the seconds for
//! reading one step and for finding the deliveries of one sample, which must contain that step; and the peak memory.

use std::fs;
use std::time::Instant;

use shardmill_order::{EpochConfig, ShuffleAlgo, StreamConfig, World};

type Failure = Box<dyn std::error::Error>;

fn argument<T: std::str::FromStr>(position: usize, otherwise: T) -> T {
    std::env::args()
        .nth(position)
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

fn peak_mib() -> Result<u64, Failure> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .ok_or("no VmHWM")?;
    let kib: u64 = line.split_whitespace().nth(1).ok_or("no number")?.parse()?;
    Ok(kib / 1024)
}

/// Returns the processor seconds of all threads of this process, in hundredths.
fn processor_seconds() -> Result<f64, Failure> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let after = stat.rsplit(')').next().ok_or("no name")?;
    let fields: Vec<&str> = after.split_whitespace().collect();
    let (user, system): (f64, f64) = (fields[11].parse()?, fields[12].parse()?);
    Ok((user + system) / 100.0)
}

fn main() -> Result<(), Failure> {
    let algo: ShuffleAlgo = argument(1, "py1e".to_owned()).parse()?;
    let samples: u64 = argument(2, 10_000_000);
    let shard_size: u64 = argument(3, 1 << 16);
    let canonical_nodes: u64 = argument(4, 64);
    let threads: usize = argument(5, 2);
    let share: f64 = argument(6, 0.0);
    let further: u64 = argument(7, 0);

    let mut shards = vec![shard_size; usize::try_from(samples / shard_size)?];
    if !samples.is_multiple_of(shard_size) {
        shards.push(samples % shard_size);
    }
    let kept = std::env::args().nth(8);
    let started = Instant::now();
    let walk = match &kept {
        Some(path) if fs::exists(path)? => fs::read(path)?,
        _ => Vec::new(),
    };
    let mut config = EpochConfig::new(vec![StreamConfig::new(&shards)], 256, World::SINGLE);
    config.num_canonical_nodes = Some(canonical_nodes);
    config.shuffle.enabled = true;
    config.shuffle.algo = algo;
    let epoch = shardmill_order::Epoch::with_checkpoints(&config, &walk)?;
    let walked = started.elapsed();
    let mut cursor = epoch.rank(0)?.with_threads(threads);
    let mut out = Vec::new();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "an approximate batch is enough"
    )]
    let first = (share * epoch.batches() as f64) as u64;
    cursor.read(first, &mut out);
    let ready = started.elapsed();
    let used = processor_seconds()?;
    if let Some(path) = kept.filter(|_| epoch.has_computed_checkpoints()) {
        fs::write(path, epoch.saved_checkpoints())?;
    }
    let mut sum = out.iter().map(|entry| entry.sample.0).sum::<u64>();
    let mut read = 0_u32;
    let began = Instant::now();
    for batch in first + 1..(first + 1 + further).min(epoch.batches()) {
        cursor.read(batch, &mut out);
        read += u32::try_from(out.len())?;
        sum = sum.wrapping_add(out.iter().map(|entry| entry.sample.0).sum::<u64>());
    }
    let each = began.elapsed().as_secs_f64() * 1e9 / f64::from(read.max(1));
    let each_used = (processor_seconds()? - used) * 1e9 / f64::from(read.max(1));
    let (total, walk) = (ready.as_secs_f64(), walked.as_secs_f64());

    let step = epoch.batches() / 3 * 2;
    let started = Instant::now();
    let entries = epoch.step_of_rank(step, 0)?;
    let step_seconds = started.elapsed().as_secs_f64();
    let sample = entries.first().ok_or("the step has no samples")?.sample;
    let started = Instant::now();
    let deliveries = epoch.deliveries(sample)?;
    let sample_seconds = started.elapsed().as_secs_f64();
    let mut positions = deliveries.iter().map(|found| (found.step, found.position));
    if !positions.any(|each| each == (step, 0)) {
        return Err("the deliveries of a sample of a step lack the step".into());
    }
    #[expect(clippy::print_stdout, reason = "it prints what it measures")]
    {
        println!(
            "{algo} {samples} samples, {} shards, {canonical_nodes} canonical nodes, from {share}: first batch {total:.3} s, {used:.2} s \
             of processors (walk {walk:.3} s), then {each:.0} ns a sample, {each_used:.0} of processors, for {read}, \
             a step {step_seconds:.3} s, a sample {sample_seconds:.3} s, peak {} MiB, {} checkpoints, sum {sum}",
            shards.len(),
            peak_mib()?,
            epoch.checkpoints(),
        );
    }
    Ok(())
}
