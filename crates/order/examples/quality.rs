//! How well each shuffle mixes, and what it costs a cache: the table of `QUALITY.md`.
//!
//! ```text
//! quality [SHARDS [SHARD_SIZE [BLOCK [EPOCHS]]]]
//! ```

use shardmill_order::{Epoch, EpochConfig, ShuffleAlgo, StreamConfig, World};

type Failure = Box<dyn std::error::Error>;

fn argument(position: usize, otherwise: usize) -> usize {
    let text = std::env::args().nth(position);
    text.and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn real(value: usize) -> f64 {
    value as f64
}

/// A number that a shard's samples share, of mean 0 and variance 1: what a batch should average out.
fn value(shard: usize) -> f64 {
    let mixed = u64::try_from(shard)
        .unwrap_or(0)
        .wrapping_add(1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    if mixed >> 63 == 0 { 1.0 } else { -1.0 }
}

/// Variance of batch means times the batch size: 1 where samples are drawn independently.
fn excess(shards: &[usize], batch: usize, mean: f64) -> f64 {
    let means = shards.chunks_exact(batch).map(|chunk| {
        let sum: f64 = chunk.iter().map(|shard| value(*shard)).sum();
        (sum / real(batch) - mean).powi(2)
    });
    means.sum::<f64>() / real(shards.len() / batch) * real(batch)
}

fn main() -> Result<(), Failure> {
    let (count, size) = (argument(1, 1024), argument(2, 4096));
    let (block, epochs) = (argument(3, 1 << 18), argument(4, 3));
    let samples = count * size;
    let mut lines = vec![format!(
        "{count} shards of {size}, block {block}, means of {epochs} epochs"
    )];
    for algo in ["naive", "py1s", "py1br", "py1e", "shardmill"] {
        let algo: ShuffleAlgo = algo.parse()?;
        let mut sums = [0.0; 7];
        for epoch in 0..epochs {
            let streams = vec![StreamConfig::new(&vec![u64::try_from(size)?; count])];
            let mut config = EpochConfig::new(streams, 256, World::SINGLE);
            config.shuffle.enabled = true;
            config.shuffle.algo = algo;
            config.shuffle.block_size = Some(u64::try_from(block)?);
            config.epoch = u64::try_from(epoch)?;
            config.num_canonical_nodes = Some(1);
            let order = Epoch::new(&config)?;
            let mut cursor = order.rank(0)?;
            let (mut entries, mut ids) = (Vec::new(), Vec::with_capacity(samples));
            for batch in 0..order.batches() {
                cursor.read(batch, &mut entries);
                for entry in &entries {
                    ids.push(usize::try_from(entry.sample.0)?);
                }
            }
            let shards: Vec<usize> = ids.iter().map(|id| id / size).collect();
            let mean = shards.iter().map(|shard| value(*shard)).sum::<f64>() / real(samples);
            let distinct = shards.chunks_exact(256).map(|chunk| {
                let mut seen = chunk.to_vec();
                seen.sort_unstable();
                seen.dedup();
                seen.len()
            });
            sums[0] += real(distinct.sum()) / real(samples / 256);
            sums[1] += excess(&shards, 256, mean);
            sums[2] += excess(&shards, 4096, mean);
            // Samples that stood side by side in a shard, and now stand in the same batch.
            let mut positions = vec![0; samples];
            for (at, id) in ids.iter().enumerate() {
                if let Some(slot) = positions.get_mut(*id) {
                    *slot = at;
                }
            }
            let pairs = positions
                .windows(2)
                .filter(|pair| pair[0] / 256 == pair[1] / 256);
            sums[3] += real(pairs.count()) * 1e6 / real(samples);
            // Shards that are needed before and after a position must be held: first to last use.
            let (mut first, mut last) = (vec![samples; count], vec![0; count]);
            for (at, shard) in shards.iter().enumerate() {
                if let (Some(first), Some(last)) = (first.get_mut(*shard), last.get_mut(*shard)) {
                    *first = at.min(*first);
                    *last = at;
                }
            }
            let stretches = first
                .iter()
                .zip(&last)
                .map(|(first, last)| last + 1 - first);
            let total: usize = stretches.clone().sum();
            sums[4] += real(total) / real(count) / real(block);
            sums[5] += real(total) / real(samples);
            let mut change = vec![0_i64; samples + 1];
            for (first, last) in first.iter().zip(&last) {
                if let Some(slot) = change.get_mut(*first) {
                    *slot += 1;
                }
                if let Some(slot) = change.get_mut(last + 1) {
                    *slot -= 1;
                }
            }
            let (mut held, mut max) = (0_i64, 0_i64);
            for step in change {
                held += step;
                max = max.max(held);
            }
            sums[6] += real(usize::try_from(max)?);
        }
        let [distinct, small, large, pairs, stretch, held, max] =
            sums.map(|sum| sum / real(epochs));
        lines.push(format!(
            "| `{algo}` | {distinct:.1} | {small:.2} | {large:.2} | {pairs:.0} | {stretch:.2} | {held:.0} | {max:.0} |"
        ));
    }
    #[expect(clippy::print_stdout, reason = "this is what it is for")]
    for line in lines {
        println!("{line}");
    }
    Ok(())
}
