//! The whole order of an epoch, by rank and worker, as printed by `shardmill order --json`.

use shardmill_core::Error;

use crate::config::EpochConfig;
use crate::epoch::{Entry, Epoch};
use crate::num::{count, index};

/// Returns the sample ids of every worker of every rank of the world before replication: `[rank][worker][…]`. Includes
/// repeated samples used as padding, as in a training run.
///
/// Needs 8 bytes per sample and replica.
///
/// # Errors
/// `InvalidInput`, as for [`Epoch::new`].
pub fn orders(config: &EpochConfig) -> Result<Vec<Vec<Vec<u64>>>, Error> {
    let epoch = Epoch::new(config)?;
    let world = epoch.resolved().world;
    let workers = world.workers_per_rank;
    let mut distinct = vec![vec![Vec::new(); index(workers)]; index(world.ranks())];
    let part = index(epoch.inner.batch_plan.batch_size);
    let mut everyone = epoch.all_ranks();
    let mut entries = Vec::new();
    let mut short = Vec::new();
    // All ranks at once, so that each window is computed once and not once per rank.
    for batch in 0..epoch.batches() {
        everyone.read(batch, &mut entries);
        if count(entries.len()) < epoch.global_batch() {
            short.push(batch);
            continue;
        }
        for (order, part) in distinct.iter_mut().zip(entries.chunks_exact(part)) {
            put(order, batch, part);
        }
    }
    // A short batch may be short on some ranks only, so each rank reads it separately.
    for batch in short {
        for (rank, order) in (0..world.ranks()).zip(&mut distinct) {
            let part = epoch.step_of_rank(batch, rank * epoch.inner.replication)?;
            put(order, batch, &part);
        }
    }
    let replicas = index(epoch.inner.replication);
    let ranks = distinct
        .into_iter()
        .flat_map(|orders| std::iter::repeat_n(orders, replicas));
    Ok(ranks.collect())
}

/// Appends a rank's batch to the worker whose turn it is.
fn put(order: &mut [Vec<u64>], batch: u64, part: &[Entry]) {
    let workers = count(order.len());
    if let Some(order) = order.get_mut(index(batch % workers)) {
        order.extend(part.iter().map(|entry| entry.sample.0));
    }
}
