//! The whole order of an epoch, rank by rank and worker by worker: what `shardmill order --json` prints.

use crate::config::EpochConfig;
use crate::epoch::Epoch;
use crate::error::OrderError;
use crate::num::index;

/// Sample ids of every worker of every rank of the world before replication: `[rank][worker][…]`, padding by repeated
/// samples included as a training run sees it.
///
/// Needs 8 bytes a sample and replica.
///
/// # Errors
/// `InvalidInput`, as [`Epoch::new`].
pub fn orders(config: &EpochConfig) -> Result<Vec<Vec<Vec<u64>>>, OrderError> {
    let epoch = Epoch::new(config)?;
    let world = epoch.resolved().world;
    let workers = world.workers_per_rank;
    let mut distinct = vec![vec![Vec::new(); index(workers)]; index(world.ranks())];
    let mut batch_entries = Vec::new();
    for (rank, orders) in (0..world.ranks()).zip(&mut distinct) {
        let mut cursor = epoch.rank(rank * epoch.inner.replication)?;
        for batch in 0..epoch.batches() {
            cursor.read(batch, &mut batch_entries);
            if let Some(order) = orders.get_mut(index(batch % workers)) {
                order.extend(batch_entries.iter().map(|entry| entry.sample.0));
            }
        }
    }
    let replicas = index(epoch.inner.replication);
    let ranks = distinct
        .into_iter()
        .flat_map(|orders| std::iter::repeat_n(orders, replicas));
    Ok(ranks.collect())
}
