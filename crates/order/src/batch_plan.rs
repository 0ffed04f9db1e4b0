//! Batching: which streams a global batch consists of, and which position is at each of its entries.
//!
//! A *global batch* lists the samples of one step, node by node and rank by rank. A rank's part of it is the rank's
//! batch. Loader workers take a rank's batches in turn and have no influence here.
//!
//! Source: MosaicML Streaming 0.13, `streaming/base/batching/`.

use shardmill_core::Error;

use crate::config::{BatchingMethod, PartitionAlgo, Resolved};
use crate::error::{self, OrderProblem, ensure};
use crate::mixed::Mixed;
use crate::num::{count, index, real, room, trunc};
use crate::partition::{Cut, Partition, RankPosition};
use crate::rng::Pcg64;
use crate::weights::Share;

/// The stream of a batch, and the number of the batch in that stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    stream: u32,
    batch: u32,
}

impl Origin {
    pub(crate) fn stream(self) -> usize {
        index(u64::from(self.stream))
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Method {
    /// One partition of all streams together.
    Random(Partition),
    /// A partition for each stream, and the order of the streams' batches.
    PerStream(Vec<Partition>, Vec<Origin>),
    /// A partition for each stream, and the start of its share in the global batch; the last entry is the size of the
    /// global batch.
    Stratified(Vec<Partition>, Vec<u64>),
    /// A partition for each stream, and for each node the order of the streams' batches.
    DevicePerStream(Vec<Partition>, Vec<Vec<Origin>>),
    /// A sequence in which the weights of the streams change.
    Mixture(Mixed),
}

/// All batches of an epoch, from where it starts.
#[derive(Clone, Debug)]
pub(crate) struct BatchPlan {
    pub(crate) method: Method,
    /// Into how many parts the positions of a source are divided; a mixture has one.
    pub(crate) canonical_nodes: u64,
    pub(crate) nodes: u64,
    pub(crate) ranks_per_node: u64,
    pub(crate) batch_size: u64,
    /// Batches skipped by a resumed epoch. `random` skips samples instead, in its partition.
    pub(crate) skipped: u64,
    batches: u64,
}

/// The inputs of a batch plan.
pub(crate) struct Terms<'a> {
    pub(crate) method: BatchingMethod,
    pub(crate) algo: PartitionAlgo,
    pub(crate) batch_size: u64,
    pub(crate) resolved: &'a Resolved,
    pub(crate) shares: &'a [Share],
    /// Samples of each stream after resampling; for `random`, of all streams together.
    pub(crate) samples: &'a [u64],
}

impl Terms<'_> {
    fn partition(
        &self,
        samples: u64,
        nodes: u64,
        batch_size: u64,
        drop: u64,
    ) -> Result<Partition, Error> {
        let cut = Cut {
            samples,
            canonical_nodes: self.resolved.canonical_nodes,
            nodes,
            ranks_per_node: self.resolved.world.ranks_per_node,
            batch_size,
            drop,
        };
        Partition::new(self.algo, cut, self.resolved.initial_nodes)
    }

    fn partitions(&self, nodes: u64, batch_size: u64) -> Result<Vec<Partition>, Error> {
        let each = self.samples.iter();
        each.map(|samples| self.partition(*samples, nodes, batch_size, 0))
            .collect()
    }

    fn generator(&self) -> Pcg64 {
        let epoch = if self.resolved.epoch_seed {
            self.resolved.epoch
        } else {
            0
        };
        Pcg64::new(u128::from(self.resolved.seed) + u128::from(epoch))
    }
}

impl BatchPlan {
    pub(crate) fn new(terms: &Terms<'_>) -> Result<Self, Error> {
        let world = terms.resolved.world;
        let (nodes, ranks_per_node, batch_size) =
            (world.nodes, world.ranks_per_node, terms.batch_size);
        let global_batch = nodes * ranks_per_node * batch_size;
        let (method, batches) = match terms.method {
            BatchingMethod::Random => {
                let samples = terms.samples.first().copied().unwrap_or(0);
                let partition =
                    terms.partition(samples, nodes, batch_size, terms.resolved.sample_in_epoch)?;
                (Method::Random(partition), partition.batches())
            }
            BatchingMethod::PerStream => per_stream(terms)?,
            BatchingMethod::Stratified => stratified(terms, global_batch)?,
            BatchingMethod::DevicePerStream => device_per_stream(terms)?,
        };
        let skipped = match terms.method {
            BatchingMethod::Random => 0,
            _ => terms.resolved.sample_in_epoch / global_batch,
        };
        Ok(Self {
            method,
            canonical_nodes: terms.resolved.canonical_nodes,
            nodes,
            ranks_per_node,
            batch_size,
            skipped,
            batches: batches.saturating_sub(skipped),
        })
    }

    pub(crate) fn of_mixture(mixed: Mixed, resolved: &Resolved, batch_size: u64) -> Self {
        Self {
            canonical_nodes: 1,
            nodes: resolved.world.nodes,
            ranks_per_node: resolved.world.ranks_per_node,
            batch_size,
            skipped: 0,
            batches: mixed.batches(),
            method: Method::Mixture(mixed),
        }
    }

    /// Returns the number of global batches from the start of the epoch; the last one may be short.
    pub(crate) const fn batches(&self) -> u64 {
        self.batches
    }

    /// Returns the number of entries of a global batch.
    pub(crate) const fn global_batch(&self) -> u64 {
        self.nodes * self.ranks_per_node * self.batch_size
    }

    /// Returns the source and the position at `entry` of global batch `batch`; `None` for padding.
    pub(crate) fn position_at(&self, batch: u64, entry: u64) -> Option<(usize, RankPosition)> {
        if batch >= self.batches || entry >= self.global_batch() {
            return None;
        }
        let batch = batch + self.skipped;
        match &self.method {
            Method::Random(partition) => Some((0, partition.position_at(batch, entry)?)),
            Method::Mixture(mixed) => mixed.position_at(batch, entry),
            Method::PerStream(partitions, origins) => {
                let origin = origins.get(index(batch))?;
                let stream = origin.stream();
                let slot = partitions
                    .get(stream)?
                    .position_at(u64::from(origin.batch), entry)?;
                Some((stream, slot))
            }
            Method::Stratified(partitions, starts) => {
                let stream = starts.partition_point(|start| *start <= entry) - 1;
                let (start, stop) = (*starts.get(stream)?, *starts.get(stream + 1)?);
                let flat = batch * (stop - start) + (entry - start);
                // The order of entries in a partition over one node with batches of one: rank by rank.
                let slot = partitions
                    .get(stream)?
                    .position_at(flat / self.ranks_per_node, flat % self.ranks_per_node)?;
                Some((stream, slot))
            }
            Method::DevicePerStream(partitions, origins) => {
                let device = batch * self.nodes * self.ranks_per_node + entry / self.batch_size;
                // COMPAT: device batches are prepared node by node, but delivered rank by rank. With several nodes of
                // several ranks, a rank receives batches prepared for another node.
                let (turn, node) = (device / self.nodes, device % self.nodes);
                let origin = origins.get(index(node))?.get(index(turn))?;
                let stream = origin.stream();
                let flat = u64::from(origin.batch) * self.batch_size + entry % self.batch_size;
                let canonical = self.canonical_nodes / self.nodes;
                let step = canonical * self.ranks_per_node;
                let entry = node * step + flat % step;
                Some((
                    stream,
                    partitions.get(stream)?.position_at(flat / step, entry)?,
                ))
            }
        }
    }

    /// Returns the global batches and entries of a position of a source, and whether it is padding there. Inverts
    /// [`position_at`](Self::position_at). Takes a step per batch unless the method is `random` or `stratified`.
    pub(crate) fn entries_of(&self, source: usize, position: u64) -> Vec<(u64, u64, bool)> {
        let partition = match &self.method {
            Method::Mixture(mixed) => return mixed.entries_of(source, position),
            Method::Random(partition) => Some(partition),
            Method::PerStream(partitions, _)
            | Method::Stratified(partitions, _)
            | Method::DevicePerStream(partitions, _) => partitions.get(source),
        };
        let found = partition.map_or_else(Vec::new, |partition| partition.entries_of(position));
        found
            .into_iter()
            .filter_map(|(batch, entry, repeated)| {
                let (batch, entry) = self.global_entry(source, batch, entry)?;
                let batch = batch.checked_sub(self.skipped)?;
                (batch < self.batches).then_some((batch, entry, repeated))
            })
            .collect()
    }

    /// Converts a batch and entry of a source's partition to a global batch, counted from the start of the epoch, and
    /// its entry. `None` if it is not part of a global batch.
    fn global_entry(&self, source: usize, batch: u64, entry: u64) -> Option<(u64, u64)> {
        match &self.method {
            Method::Random(_) | Method::Mixture(_) => Some((batch, entry)),
            Method::PerStream(_, origins) => Some((turn_of(origins, source, batch)?, entry)),
            Method::Stratified(_, starts) => {
                let (start, stop) = (*starts.get(source)?, *starts.get(source + 1)?);
                let flat = batch * self.ranks_per_node + entry;
                Some((flat / (stop - start), start + flat % (stop - start)))
            }
            Method::DevicePerStream(_, origins) => {
                let step = self.canonical_nodes / self.nodes * self.ranks_per_node;
                let (node, flat) = (entry / step, batch * step + entry % step);
                let turn = turn_of(origins.get(index(node))?, source, flat / self.batch_size)?;
                let device = turn * self.nodes + node;
                let devices = self.nodes * self.ranks_per_node;
                let entry = device % devices * self.batch_size + flat % self.batch_size;
                Some((device / devices, entry))
            }
        }
    }
}

/// Returns the index of a stream's batch in the order of all batches.
fn turn_of(origins: &[Origin], source: usize, batch: u64) -> Option<u64> {
    let stream = u32::try_from(source).ok()?;
    let batch = u32::try_from(batch).ok()?;
    let origin = Origin { stream, batch };
    origins.iter().position(|found| *found == origin).map(count)
}

fn per_stream(terms: &Terms<'_>) -> Result<(Method, u64), Error> {
    let world = terms.resolved.world;
    let partitions = terms.partitions(world.nodes, terms.batch_size)?;
    let counts = full(
        &partitions,
        |partition| partition.full_batches(),
        |partition| partition.global_batch(),
    )?;
    let origins = origins(&counts, &mut terms.generator())?;
    let batches = count(origins.len());
    Ok((Method::PerStream(partitions, origins), batches))
}

fn stratified(terms: &Terms<'_>, global_batch: u64) -> Result<(Method, u64), Error> {
    let partitions = terms.partitions(1, 1)?;
    let shares = batch_shares(terms.shares, global_batch)?;
    let mut starts = vec![0];
    let mut start = 0;
    let mut batches = u64::MAX;
    for (partition, share) in partitions.iter().zip(&shares) {
        start += share;
        starts.push(start);
        batches = batches.min(partition.per_rank() * terms.resolved.world.ranks_per_node / share);
    }
    Ok((Method::Stratified(partitions, starts), batches))
}

/// Returns the samples of each stream in a stratified batch.
///
/// COMPAT: if several streams are equally close to another sample, the later ones receive it. The original uses an
/// unstable sort there: with four or more streams, its result depends on the processor.
fn batch_shares(shares: &[Share], global_batch: u64) -> Result<Vec<u64>, Error> {
    let mut parts = Vec::with_capacity(shares.len());
    let mut order: Vec<(f64, usize)> = Vec::with_capacity(shares.len());
    for (stream, share) in shares.iter().enumerate() {
        let part = trunc(share.proportion * real(global_batch)).unwrap_or(0);
        order.push((real(global_batch) * share.proportion - real(part), stream));
        parts.push(part);
    }
    let given: u64 = parts.iter().sum();
    let missing = global_batch
        .checked_sub(given)
        .ok_or_else(|| error::choose_too_many(given, global_batch))?;
    order.sort_by(|left, right| right.0.total_cmp(&left.0).then(right.1.cmp(&left.1)));
    for (_, stream) in order.into_iter().take(index(missing)) {
        parts[stream] += 1;
    }
    match parts.iter().position(|part| *part == 0) {
        None => Ok(parts),
        Some(stream) => Err(error::no_share(stream, "a global batch of", global_batch)),
    }
}

fn device_per_stream(terms: &Terms<'_>) -> Result<(Method, u64), Error> {
    let (world, canonical) = (terms.resolved.world, terms.resolved.canonical_nodes);
    if !canonical.is_multiple_of(world.nodes) {
        return Err(error::nodes_do_not_divide(canonical, world.nodes));
    }
    let partitions = terms.partitions(canonical, 1)?;
    // All canonical nodes have equally many entries, so all nodes have equally many batches of a stream.
    let per_node = |partition: &Partition| {
        partition.per_rank() * world.ranks_per_node * (canonical / world.nodes)
    };
    let counts = full(
        &partitions,
        |partition| per_node(partition) / terms.batch_size,
        |_| terms.batch_size,
    )?;
    let mut rng = terms.generator();
    let origins: Vec<Vec<Origin>> = (0..world.nodes)
        .map(|_| origins(&counts, &mut rng))
        .collect::<Result<_, _>>()?;
    let turns = origins.first().map_or(0, |origins| count(origins.len()));
    // COMPAT: the batches of a node are padded to a multiple of all devices; if they already are one, by a full round.
    let devices = world.nodes * world.ranks_per_node;
    let padded = turns + (devices - turns % devices);
    let batches = padded * world.nodes / devices;
    Ok((Method::DevicePerStream(partitions, origins), batches))
}

/// Returns the number of complete batches of each stream, or an error if a stream has none.
fn full(
    partitions: &[Partition],
    batches: impl Fn(&Partition) -> u64,
    batch: impl Fn(&Partition) -> u64,
) -> Result<Vec<u64>, Error> {
    let mut counts = Vec::with_capacity(partitions.len());
    for (stream, partition) in partitions.iter().enumerate() {
        let full = batches(partition);
        if full == 0 {
            return Err(OrderProblem::StreamTooSmall.of_stream(
                stream,
                format!(
                    "{} samples do not fill a batch of {}",
                    partition.samples(),
                    batch(partition)
                ),
            ));
        }
        counts.push(full);
    }
    Ok(counts)
}

/// Returns the shuffled order of the batches: each stream occurs as often as it has batches.
fn origins(counts: &[u64], rng: &mut Pcg64) -> Result<Vec<Origin>, Error> {
    let total: u64 = counts.iter().sum();
    ensure(
        u32::try_from(total).is_ok(),
        "batch_size",
        total,
        "such that an epoch has fewer than 2^32 batches",
    )?;
    let mut origins = room(total, "the batches of the epoch")?;
    for (stream, batches) in (0_u32..).zip(counts) {
        for _ in 0..*batches {
            origins.push(Origin { stream, batch: 0 });
        }
    }
    rng.shuffle(&mut origins);
    let mut next = vec![0_u32; counts.len()];
    for origin in &mut origins {
        let next = &mut next[origin.stream()];
        origin.batch = *next;
        *next += 1;
    }
    Ok(origins)
}
