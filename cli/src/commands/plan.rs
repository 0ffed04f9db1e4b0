//! The command `shardmill plan`: predicts what a training run will fetch, keep and wait for.

use std::time::Duration;

use clap::Args;
use serde::Serialize;
use shardmill_core::number::{float, whole};
use shardmill_core::{Limits, escape};
use shardmill_order::{EpochConfig, StreamConfig};
use shardmill_reader::{
    CacheForecast, EpochFacts, Forecast, ForecastOptions, NodeForecast, PeerFile, ShardCost,
    forecast, owner,
};

use super::dataset_location::DatasetLocation;
use super::mixture::{self, EpochShares};
use super::shards::{ShardFacts, Shards};
use super::world;
use crate::args::{WorldArgs, duration, values};
use crate::error::Stop;
use crate::output::{Exit, Output, Table, amount, bytes, count, many, needed, percent, seconds};

/// Predict fetches, cache hits, padding and waiting times of a training run
///
/// Only the indexes are read. Every node is simulated: when it needs which shards, what its cache holds, and how long
/// its batches wait for the network. Prints the results for each node and epoch, the hit rate of an LRU cache for
/// comparison, and advice.
#[derive(Args, Debug)]
pub struct PlanArgs {
    #[command(flatten)]
    pub world: WorldArgs,

    /// Number of epochs
    #[arg(long, value_name = "N", default_value = "3", help_heading = "Run", value_parser = values::up_to(1000))]
    pub epochs: u64,

    /// Maximum bytes of the cache of a node [default: no limit]
    #[arg(long, value_name = "SIZE", help_heading = "Run", value_parser = values::byte_size)]
    pub cache_limit: Option<u64>,

    /// Nodes share their caches, as with `peers=` of `StreamingDataset`: each shard is fetched from the store by one node,
    /// and by the others from that node
    #[arg(long, help_heading = "Run")]
    pub peers: bool,

    /// Network bandwidth of a node: a size per second
    #[arg(long, value_name = "SIZE/s", default_value = "1GB/s", help_heading = "Run", value_parser = values::bandwidth)]
    pub bandwidth: u64,

    /// Time from a request to its first byte
    #[arg(long, value_name = "TIME", default_value = "30ms", help_heading = "Run", value_parser = duration::up_to_an_hour)]
    pub latency: Duration,

    /// Number of shards that a node fetches at a time
    #[arg(long, value_name = "N", default_value = "64", help_heading = "Run", value_parser = values::up_to(10_000))]
    pub connections: u64,

    /// Duration of a training step, without waiting for data
    #[arg(long, value_name = "TIME", default_value = "100ms", help_heading = "Run", value_parser = duration::up_to_an_hour)]
    pub step_time: Duration,
}

/// The share of waiting time from which the plan mentions it.
const WORTH_A_WORD: f64 = 0.01;

#[derive(Serialize)]
struct Plan {
    #[serde(flatten)]
    data: Data,
    /// The number of samples of all ranks in a step. Replicas are counted once.
    global_batch: u64,
    shuffle: bool,
    shuffle_algo: &'static str,
    shuffle_seed: u64,
    num_canonical_nodes: u64,
    shuffle_block_size: u64,
    #[serde(flatten)]
    node: NodeFacts,
    #[serde(flatten)]
    forecast: Forecast,
    /// With a mixture, the shares of the streams.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mixture: Vec<EpochShares>,
    advice: Vec<String>,
}

/// The assumptions about a node.
#[derive(Serialize)]
struct NodeFacts {
    cache_limit: Option<u64>,
    bandwidth: u64,
    latency_seconds: f64,
    connections: usize,
    step_seconds: f64,
}

#[derive(Serialize)]
struct StreamFacts {
    dataset: String,
    samples: u64,
    shards: u64,
}

/// The data of the indexes.
#[derive(Default, Serialize)]
struct Data {
    streams: Vec<StreamFacts>,
    #[serde(skip)]
    configs: Vec<StreamConfig>,
    #[serde(skip)]
    costs: Vec<ShardCost>,
    shards: u64,
    samples: u64,
    raw_bytes: u64,
    stored_bytes: u64,
}

pub fn run(args: &PlanArgs, limits: Limits, out: &mut Output) -> Result<Exit, Stop> {
    let mut options = options_of(args);
    // Options that do not depend on the data are checked before any work.
    world::epoch_config(&args.world, Vec::new())?;
    let mut data = read(args, &limits)?;
    let config = world::epoch_config(&args.world, data.configs.clone())?;
    if args.peers {
        options.owners = owners(config.resolve()?.world.nodes, &data.streams);
        // Other nodes fetch the stored form, so a compressed shard is kept in both forms.
        for cost in &mut data.costs {
            cost.cache_bytes = cost.reserve_bytes;
        }
    }
    let found = forecast(&config, &data.costs, &options)?;
    let resolved = config.resolve()?;
    let plan = Plan {
        global_batch: resolved.world.ranks().saturating_mul(config.batch_size),
        shuffle: config.shuffle.enabled,
        shuffle_algo: config.shuffle.algo.name(),
        shuffle_seed: config.shuffle.seed,
        num_canonical_nodes: resolved.canonical_nodes,
        shuffle_block_size: resolved.block,
        node: NodeFacts {
            cache_limit: options.cache_limit,
            bandwidth: options.bandwidth,
            latency_seconds: options.latency.as_secs_f64(),
            connections: options.connections,
            step_seconds: options.step.as_secs_f64(),
        },
        mixture: mixture::shares(&config, options.epochs)?,
        advice: advice(&found, &data, &options),
        forecast: found,
        data,
    };
    out.result(&plan, |out| show(&plan, &config, out))?;
    Ok(Exit::Done)
}

fn options_of(args: &PlanArgs) -> ForecastOptions {
    ForecastOptions {
        epochs: args.epochs,
        cache_limit: args.cache_limit,
        bandwidth: args.bandwidth,
        latency: args.latency,
        connections: usize::try_from(args.connections).unwrap_or(usize::MAX),
        step: args.step_time,
        ..ForecastOptions::default()
    }
}

/// Returns the owner of each shard. The addresses of the nodes are not known before the run, so those of the run may own
/// other shards, but about as many.
fn owners(nodes: u64, streams: &[StreamFacts]) -> Vec<usize> {
    let peers: Vec<String> = (0..nodes).map(|node| format!("node{node}")).collect();
    let mut owners = Vec::new();
    for (stream, facts) in streams.iter().enumerate() {
        let mut set = [0; 32];
        for (to, from) in set.iter_mut().zip((stream as u64).to_le_bytes()) {
            *to = from;
        }
        let files = (0..facts.shards).map(|number| PeerFile {
            set,
            number,
            part: 0,
        });
        owners.extend(files.map(|file| owner(&peers, &file)));
    }
    owners
}

fn read(args: &PlanArgs, limits: &Limits) -> Result<Data, Stop> {
    let mut data = Data::default();
    let storage = &args.world.storage;
    for stream in world::streams(&args.world) {
        let location = DatasetLocation::parse(&stream.location, storage)?;
        let choice = world::samples(&args.world, &stream)?;
        let shards = Shards::open(&stream.location, &location, limits, &choice)?;
        let config = shards.stream_config();
        data.configs.push(config.with_weight(stream.weight));
        let before = data.shards;
        for shard in shards.facts() {
            data.shards += 1;
            data.raw_bytes = data.raw_bytes.saturating_add(shard.raw_bytes);
            data.stored_bytes = data.stored_bytes.saturating_add(shard.stored_bytes);
            data.costs.push(cost(&shard));
        }
        data.samples = data.samples.saturating_add(shards.samples());
        data.streams.push(StreamFacts {
            dataset: stream.location,
            samples: shards.samples(),
            shards: data.shards - before,
        });
    }
    Ok(data)
}

/// Returns the cost of a shard. A compressed shard is fetched compressed and kept raw. During decompression, both forms
/// use space.
const fn cost(shard: &ShardFacts<'_>) -> ShardCost {
    let (raw, stored) = (shard.raw_bytes, shard.stored_bytes);
    ShardCost {
        fetch_bytes: stored,
        cache_bytes: raw,
        reserve_bytes: match shard.is_compressed {
            true => raw.saturating_add(stored),
            false => raw,
        },
    }
}

fn title(data: &Data) -> String {
    let amount = amount(data.samples, data.shards);
    match data.streams.as_slice() {
        [one] => format!("{}: {amount}", escape(&one.dataset)),
        all => format!("{}: {amount}", many(all.len() as u64, "dataset")),
    }
}

fn show(plan: &Plan, config: &EpochConfig, out: &mut Output) -> Result<(), Stop> {
    let found = &plan.forecast;
    out.line(title(&plan.data))?;
    out.text(facts(plan, config))?;
    out.text(format_args!("\n{}", epochs(found)))?;
    out.text(format_args!("\n{}", caches(found)))?;
    out.text(format_args!("\n{}", sizes(found)))?;
    if !found.peers.is_empty() {
        out.text(format_args!("\n{}", sources(found)))?;
    }
    let shown = found.nodes.len() as u64;
    if shown < found.nodes_in_all {
        let all = many(found.nodes_in_all, "node");
        out.line(format_args!("\n{} of {all} are shown", count(shown)))?;
    }
    if !plan.mixture.is_empty() {
        out.text(format_args!("\n{}", mixture::table(&plan.mixture)))?;
        out.text(format_args!("\n{}", mixture::picture(&plan.mixture)))?;
    }
    if !out.is_quiet() && !plan.advice.is_empty() {
        out.line(format_args!("\n{}", plan.advice.join("\n")))?;
    }
    Ok(())
}

fn facts(plan: &Plan, config: &EpochConfig) -> Table {
    let (data, node, world) = (&plan.data, &plan.node, config.world);
    let mut rows = Vec::new();
    let mut row = |name, value| rows.push((name, value));
    if data.streams.len() > 1 {
        for stream in &data.streams {
            let amount = amount(stream.samples, stream.shards);
            row("stream", format!("{}: {amount}", escape(&stream.dataset)));
        }
    }
    row("raw", bytes(data.raw_bytes));
    row("stored", bytes(data.stored_bytes));
    let (nodes, ranks) = (
        many(world.nodes, "node"),
        many(world.ranks_per_node, "rank"),
    );
    let each = many(config.batch_size, "sample");
    row(
        "world",
        format!("{nodes} of {ranks}, {each} each in a step"),
    );
    let order = if plan.shuffle {
        let (algo, seed) = (plan.shuffle_algo, plan.shuffle_seed);
        let nodes = many(plan.num_canonical_nodes, "canonical node");
        let block = count(plan.shuffle_block_size);
        format!("{algo}, seed {seed}, {nodes}, blocks of {block}")
    } else {
        "not shuffled".to_owned()
    };
    row("order", order);
    let no_limit = || "no limit".to_owned();
    row("cache", node.cache_limit.map_or_else(no_limit, bytes));
    let (bandwidth, latency) = (bytes(node.bandwidth), seconds(node.latency_seconds));
    let shards = many(node.connections as u64, "shard");
    row(
        "bandwidth",
        format!("{bandwidth}/s, first byte after {latency}, {shards} at a time"),
    );
    row("step", seconds(node.step_seconds));
    Table::facts("  ", rows)
}

fn epochs(found: &Forecast) -> Table {
    let known = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), count);
    let row = |epoch: &EpochFacts| {
        [
            count(epoch.epoch),
            count(epoch.samples),
            count(epoch.steps),
            known(epoch.padded),
            known(epoch.dropped),
        ]
    };
    let headings = ">epoch|>samples|>steps|>padded|>dropped";
    Table::of(headings, found.epochs.iter().map(row))
}

fn caches(found: &Forecast) -> Table {
    let mut table = Table::headed(
        ">node|>epoch|>fetched|>shards|>uses|>hits|>hit by LRU|>evicted|>uncached|>waited|>took",
    );
    for node in &found.nodes {
        for (epoch, lru) in node.belady.epochs.iter().zip(&node.lru.epochs) {
            table.row([
                count(node.node),
                count(epoch.epoch),
                bytes(epoch.fetched_bytes),
                count(epoch.fetched_shards),
                count(epoch.uses),
                percent(epoch.hits, epoch.uses),
                percent(lru.hits, lru.uses),
                count(epoch.evictions),
                count(epoch.bypasses),
                seconds(epoch.wait_seconds),
                seconds(epoch.seconds),
            ]);
        }
    }
    table
}

fn sizes(found: &Forecast) -> Table {
    let row = |node: &NodeForecast| {
        [
            count(node.node),
            seconds(node.belady.first_batch_seconds),
            bytes(node.belady.most_resident_bytes),
            bytes(node.needed_at_once_bytes),
            bytes(node.needed_in_epoch_bytes),
            bytes(node.distinct_bytes),
        ]
    };
    let headings = ">node|>first batch|>most resident|>needed at once|>in an epoch|>in the run";
    Table::of(headings, found.nodes.iter().map(row))
}

/// Returns what all nodes fetch together.
fn sources(found: &Forecast) -> Table {
    let rows = found.peers.iter().map(|epoch| {
        [
            count(epoch.epoch),
            bytes(epoch.store_bytes),
            count(epoch.store_shards),
            bytes(epoch.peer_bytes),
            count(epoch.peer_shards),
        ]
    });
    Table::of(
        ">epoch|>from the store|>shards|>from other nodes|>shards",
        rows,
    )
}

/// Returns advice derived from the forecast, as sentences.
fn advice(found: &Forecast, data: &Data, options: &ForecastOptions) -> Vec<String> {
    let mut lines = Vec::new();
    padding(found, &mut lines);
    room(found, data, options, &mut lines);
    waiting(found, options, &mut lines);
    lines
}

fn padding(found: &Forecast, lines: &mut Vec<String>) {
    let mut max = |of: fn(&EpochFacts) -> Option<u64>, verb: &str, why: &str| {
        let max = found.epochs.iter().max_by_key(|epoch| of(epoch));
        if let Some((epoch, samples)) = max.and_then(|epoch| Some((epoch, of(epoch)?)))
            && samples > 0
        {
            lines.push(format!(
                "An epoch {verb} {} {why}{}.",
                many(samples, "sample"),
                part_of(samples, epoch.samples)
            ));
        }
    };
    let why = "so that all ranks have the same number";
    max(|epoch| epoch.padded, "repeats", why);
    max(
        |epoch| epoch.dropped,
        "drops",
        "that would not fill a batch",
    );
}

/// Formats ` (1.2% of the epoch)`, or nothing below 0.1%.
fn part_of(part: u64, whole: u64) -> String {
    if part.saturating_mul(1000) < whole {
        return String::new();
    }
    format!(" ({} of the epoch)", percent(part, whole))
}

fn room(found: &Forecast, data: &Data, options: &ForecastOptions, lines: &mut Vec<String>) {
    let largest = |of: fn(&NodeForecast) -> u64| found.nodes.iter().map(of).max().unwrap_or(0);
    // During decompression, a shard needs more space.
    let extra = data.costs.iter();
    let extra = extra.map(|cost| cost.reserve_bytes.saturating_sub(cost.cache_bytes));
    let extra = extra.max().unwrap_or(0);
    let in_run = largest(|node| node.distinct_bytes).saturating_add(extra);
    let at_once = largest(|node| node.needed_at_once_bytes).saturating_add(extra);
    let Some(limit) = options.cache_limit else {
        lines.push(format!(
            "Without --cache-limit, a node keeps everything that it reads: {}.",
            bytes(largest(|node| node.distinct_bytes))
        ));
        return;
    };
    let past = largest(|node| node.belady.epochs.iter().map(|epoch| epoch.bypasses).sum());
    if past > 0 {
        lines.push(format!(
            "The cache cannot hold all shards that are needed at the same time: a node reads a shard without caching it \
             {} times. --cache-limit {} would hold them all; smaller shuffle blocks would need less space.",
            count(past),
            needed(at_once)
        ));
    }
    apart(found, lines);
    if in_run <= limit {
        lines.push(format!(
            "The cache holds everything that a node reads ({}), so nothing is fetched twice.",
            bytes(in_run)
        ));
    } else {
        lines.push(format!(
            "With --cache-limit {} nothing would be fetched twice.",
            needed(in_run)
        ));
        hits(found, lines);
    }
}

/// Reports the range of bytes that a node fetches if each of its processes fetches the shards that do not fit into the
/// cache.
fn apart(found: &Forecast, lines: &mut Vec<String>) {
    let totals = found.nodes.iter().map(|node| {
        let epochs = node.belady.epochs.iter();
        epochs.fold((0_u64, 0_u64, 0_u64), |(past, all, max), epoch| {
            (
                past.saturating_add(epoch.bypassed_bytes),
                all.saturating_add(epoch.fetched_bytes),
                max.saturating_add(epoch.most_fetched_bytes),
            )
        })
    });
    let Some((past, all, max)) = totals.max_by_key(|(_, _, max)| *max) else {
        return;
    };
    if max <= all {
        return;
    }
    lines.push(format!(
        "Each process of a node fetches these shards itself: {} of the {} in total while the processes run in step. The \
         total grows up to {} if they drift apart.",
        bytes(past),
        bytes(all),
        bytes(max)
    ));
}

/// Compares the hit rates of Belady's algorithm and LRU. The first epoch is left out, because the cache is empty before
/// it.
fn hits(found: &Forecast, lines: &mut Vec<String>) {
    let sum = |of: fn(&NodeForecast) -> &CacheForecast| {
        let epochs = found
            .nodes
            .iter()
            .flat_map(|node| of(node).epochs.iter().skip(1));
        epochs.fold((0, 0), |(hits, uses), epoch| {
            (hits + epoch.hits, uses + epoch.uses)
        })
    };
    let ((belady, uses), (lru, lru_uses)) = (sum(|node| &node.belady), sum(|node| &node.lru));
    if uses > 0 {
        lines.push(format!(
            "After the first epoch, {} of the uses find their shard in the cache. LRU eviction would reach {}.",
            percent(belady, uses),
            percent(lru, lru_uses)
        ));
    }
}

fn waiting(found: &Forecast, options: &ForecastOptions, lines: &mut Vec<String>) {
    let share = |node: &&NodeForecast| {
        node.belady.wait_seconds() / node.belady.seconds.max(f64::MIN_POSITIVE)
    };
    let worst = found
        .nodes
        .iter()
        .max_by(|one, other| share(one).total_cmp(&share(other)));
    let Some(worst) = worst else {
        return;
    };
    if share(&worst) < WORTH_A_WORD {
        let waited = worst.belady.wait_seconds() > 0.0;
        lines.push(if waited {
            "After the first batch, the nodes wait for data less than 1% of the time.".to_owned()
        } else {
            "After the first batch, no node waits for data.".to_owned()
        });
        return;
    }
    let cache = &worst.belady;
    lines.push(format!(
        "Node {} waits {} of {} for data.",
        count(worst.node),
        seconds(cache.wait_seconds()),
        seconds(cache.seconds)
    ));
    // Find the epoch that needs the most bandwidth if steps took no longer than their minimum.
    let steps = found.epochs.iter().map(|epoch| epoch.steps);
    let needs = cache.epochs.iter().zip(steps).filter_map(|(epoch, steps)| {
        let step = options.step.as_secs_f64();
        let busy = step * float(steps);
        (busy > 0.0).then(|| float(epoch.fetched_bytes) / busy)
    });
    let max = needs.fold(0.0, f64::max);
    if max > float(options.bandwidth) {
        lines.push(format!(
            "Its epochs need {}/s while they step, and the bandwidth is {}/s: more bandwidth or a larger cache would help.",
            bytes(whole(max)),
            bytes(options.bandwidth)
        ));
    } else {
        lines.push(
            "The bandwidth suffices on average, but not where many shards are needed for the first time, as at the \
             start: smaller shuffle blocks or a larger cache would spread that."
                .to_owned(),
        );
    }
}
