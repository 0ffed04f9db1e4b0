//! The order computed at once, in memory, step by step as specified.
//!
//! Tests compare the windows with it, and it is short enough to be compared with the original. It needs at least 16
//! bytes per sample; use [`Epoch`](crate::Epoch) instead.
//!
//! Source: MosaicML Streaming 0.13, `streaming/base/shuffle/`.

use shardmill_core::Error;

use crate::config::ShuffleAlgo;
use crate::error;
use crate::num::{count, index, low32, real};
use crate::rng::Pcg64;
use crate::shuffle::layout::{Layout, ShuffleConfig, Span, block_range, cut, spans_of};
use crate::units::Units;

/// Returns the whole order, from position to big id. `None` for `shardmill`, which only has a lazy form.
///
/// # Errors
/// As for the lazy form.
pub fn shuffle(units: &Units, config: &ShuffleConfig) -> Result<Option<Vec<u64>>, Error> {
    let seed = u128::from(config.seed);
    let epoch_seed = seed + u128::from(config.epoch);
    match config.algo {
        ShuffleAlgo::Naive => Ok(Some(Pcg64::new(epoch_seed).permutation(units.samples()))),
        ShuffleAlgo::Py1s => Ok(Some(py1s(units, config))),
        ShuffleAlgo::Py2s => Ok(Some(py2s(units, config))),
        ShuffleAlgo::Py1br => py1br(units, config).map(Some),
        ShuffleAlgo::Py1e => py1e(units, config).map(Some),
        ShuffleAlgo::Shardmill => Ok(None),
    }
}

fn ids(span: Span) -> Vec<u64> {
    (span.start..span.start + span.length).collect()
}

fn py1s(units: &Units, config: &ShuffleConfig) -> Vec<u64> {
    let (layout, mut rng) = Layout::new(units, config.canonical_nodes, config.seed, config.epoch);
    let mut out = Vec::new();
    for span in layout.spans {
        let mut ids = ids(span);
        rng.shuffle(&mut ids);
        out.extend(ids);
    }
    out
}

fn py2s(units: &Units, config: &ShuffleConfig) -> Vec<u64> {
    let mut run = Pcg64::new(u128::from(config.seed));
    let mut spans = spans_of(units);
    run.shuffle(&mut spans);
    let mut scattered = Vec::new();
    let mut slices = Vec::new();
    for span in spans {
        let mut ids = ids(span);
        run.shuffle(&mut ids);
        slices.push(Span {
            start: count(scattered.len()),
            length: span.length,
        });
        scattered.extend(ids);
    }
    let (mut pieces, nodes) = cut(&slices, units.samples(), config.canonical_nodes);
    let mut rng = Pcg64::new(u128::from(config.seed) + u128::from(config.epoch));
    let mut out = Vec::new();
    for node in nodes.windows(2) {
        let pieces = &mut pieces[node[0]..node[1]];
        rng.shuffle(pieces);
        for piece in pieces {
            let mut ids = scattered[index(piece.start)..index(piece.start + piece.length)].to_vec();
            rng.shuffle(&mut ids);
            out.extend(ids);
        }
    }
    out
}

fn py1br(units: &Units, config: &ShuffleConfig) -> Result<Vec<u64>, Error> {
    let (layout, mut rng) = Layout::new(units, config.canonical_nodes, config.seed, config.epoch);
    let (low, high) = block_range(config.block);
    let mut out: Vec<u64> = layout.spans.iter().copied().flat_map(ids).collect();
    let mut staggers = Vec::new();
    for _ in 0..config.canonical_nodes {
        staggers.push(rng.integers(0, low)?);
    }
    for (node, stagger) in (0..config.canonical_nodes).zip(staggers) {
        let positions = layout.positions(node);
        let mut blocks = Vec::new();
        let mut end = positions.start;
        while end < positions.end {
            let size = rng.integers(low, high)?;
            let start = end.saturating_sub(stagger).max(positions.start);
            let stop = (end + size).saturating_sub(stagger).min(positions.end);
            blocks.push(start..stop);
            end += stop - start;
        }
        for block in blocks {
            rng.shuffle(&mut out[index(block.start)..index(block.end)]);
        }
    }
    Ok(out)
}

fn py1e(units: &Units, config: &ShuffleConfig) -> Result<Vec<u64>, Error> {
    let (layout, mut rng) = Layout::new(units, config.canonical_nodes, config.seed, config.epoch);
    let (low, high) = block_range(config.block);
    let mut out = Vec::new();
    for node in 0..config.canonical_nodes {
        let spans = &layout.spans[layout.node(node)];
        let length: u64 = spans.iter().map(|span| span.length).sum();
        if length == 0 {
            return Err(error::empty_canonical_node(
                units.samples(),
                config.canonical_nodes,
            ));
        }
        let mut samples = Vec::new();
        for span in spans {
            let mut ids = ids(*span);
            rng.shuffle(&mut ids);
            samples.extend(ids);
        }
        let mut sums = Vec::new();
        let mut offset = 0_u64;
        for span in spans {
            let size = rng.integers(low, high)?;
            let cutoff = ((real(size) - real(span.length)) / 2.0).max(0.0);
            let min = (-cutoff).max(-real(offset));
            let max = cutoff.min(real(length - offset - span.length));
            for position in offset..offset + span.length {
                sums.push(real(position) + rng.uniform(min, max));
            }
            offset += span.length;
        }
        let mut order: Vec<u32> = (0..low32(length)).collect();
        order.sort_by(|left, right| sums[*left as usize].total_cmp(&sums[*right as usize]));
        out.extend(order.into_iter().map(|position| samples[position as usize]));
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
