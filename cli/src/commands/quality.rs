//! The quality of an order for `shardmill plan --quality`: how it compares with a full shuffle, and which shuffle block
//! a bandwidth affords.

use std::collections::HashMap;

use serde::Serialize;
use shardmill_core::Limits;
use shardmill_core::number::{float, whole};
use shardmill_order::{
    BlockChoice, ClassSpread, Epoch, EpochConfig, Probe, Quality, ShuffleAlgo, ShuffleOptions,
};
use shardmill_reader::{ForecastOptions, ShardCost, forecast};

use super::dataset_location::DatasetLocation;
use super::sample_row::SampleRow;
use super::{dataset, world};
use crate::args::WorldArgs;
use crate::error::{CliError, Stop};
use crate::output::{Table, bytes, count, many, needed, seconds};

/// The most samples whose labels are read.
const MAX_LABELS: u64 = 1 << 16;
/// The part of the shards of a full shuffle that a step should have.
const ENOUGH_SHARDS: f64 = 0.9;
/// The part of an epoch's time that may pass until the shards of a block are fetched.
const MAX_FILLING: f64 = 0.05;
/// The length of the longest bar of the picture.
const BAR: f64 = 48.0;

/// The quality of an order.
#[derive(Serialize)]
pub struct QualityReport {
    #[serde(flatten)]
    pub quality: Quality,
    /// The classes of a label column.
    pub labels: Option<Labels>,
    /// The shuffle blocks that the order may have, and what they need.
    pub blocks: Vec<Block>,
    /// The shuffle block for the bandwidth.
    pub recommended: Recommended,
}

#[derive(Serialize)]
pub struct Labels {
    pub column: String,
    pub classes: usize,
    /// The number of samples whose labels were read.
    pub samples: usize,
    pub windows: Vec<ClassSpread>,
}

/// A shuffle block, and what it needs.
#[derive(Clone, Serialize)]
pub struct Block {
    #[serde(flatten)]
    pub choice: BlockChoice,
    /// The size of the shards that a node needs at the same time.
    pub cache_bytes: u64,
    /// The time to fetch these shards.
    pub fill_seconds: f64,
}

#[derive(Serialize)]
pub struct Recommended {
    #[serde(flatten)]
    pub block: Block,
    pub shuffle_algo: &'static str,
    /// The least cache of a node that holds all shards that are needed at the same time.
    pub cache_limit: u64,
    /// How long the first epoch waits for data with them, and how long it takes.
    pub wait_seconds: f64,
    pub epoch_seconds: f64,
    /// Whether the bandwidth affords a block that is almost a full shuffle.
    pub is_enough: bool,
}

/// Measures an order. `label` names a column of classes.
pub fn report(
    args: &WorldArgs,
    config: &EpochConfig,
    (costs, options): (&[ShardCost], &ForecastOptions),
    label: Option<&str>,
    limits: &Limits,
) -> Result<QualityReport, Stop> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let epoch = Epoch::new(config)?;
    let probe = epoch.probe(threads);
    let labels = label.map(|column| labels(args, &probe, column, limits));
    let sizes = epoch.block_sizes();
    let blocks: Vec<Block> = sizes
        .into_iter()
        .map(|size| block(epoch.block_choice(size), costs, options))
        .collect();
    let recommended = recommend(&epoch, config, &blocks, (costs, options))?;
    Ok(QualityReport {
        quality: probe.quality(),
        labels: labels.transpose()?,
        blocks,
        recommended,
    })
}

fn block(choice: BlockChoice, costs: &[ShardCost], options: &ForecastOptions) -> Block {
    let shards = float(costs.len() as u64).max(1.0);
    let mean = |of: fn(&ShardCost) -> u64| {
        let all: f64 = costs.iter().map(|cost| float(of(cost))).sum();
        all / shards * choice.shards_in_use
    };
    Block {
        choice,
        cache_bytes: whole(mean(|cost| cost.cache_bytes)),
        fill_seconds: mean(|cost| cost.fetch_bytes) / float(options.bandwidth.max(1)),
    }
}

/// Chooses the smallest block whose steps have almost as many shards as those of a full shuffle, or else the largest one
/// whose shards are fetched soon. A forecast of one epoch with this block gives the cache and the waiting time.
fn recommend(
    epoch: &Epoch,
    config: &EpochConfig,
    blocks: &[Block],
    (costs, options): (&[ShardCost], &ForecastOptions),
) -> Result<Recommended, Stop> {
    let is_enough =
        |block: &Block| block.choice.shards >= ENOUGH_SHARDS * block.choice.full_shuffle_shards;
    let epoch_seconds = float(epoch.batches()) * options.step.as_secs_f64();
    let affordable = blocks
        .iter()
        .filter(|block| block.fill_seconds <= MAX_FILLING * epoch_seconds);
    let largest = affordable.clone().next_back().or(blocks.first());
    let chosen = affordable
        .clone()
        .find(|block| is_enough(block))
        .or(largest);
    let chosen = chosen.cloned().unwrap_or_else(|| {
        let choice = epoch.block_choice(epoch.resolved().block);
        block(choice, costs, options)
    });
    let algo = match (config.shuffle.enabled, config.shuffle.algo) {
        (true, algo @ (ShuffleAlgo::Py1br | ShuffleAlgo::Py1e | ShuffleAlgo::Shardmill)) => algo,
        _ => ShuffleAlgo::Py1e,
    };
    let config = EpochConfig {
        shuffle: ShuffleOptions {
            enabled: true,
            algo,
            block_size: Some(chosen.choice.block),
            ..config.shuffle
        },
        num_canonical_nodes: Some(epoch.resolved().canonical_nodes),
        ..config.clone()
    };
    let once = ForecastOptions {
        epochs: 1,
        known_epochs: 1,
        cache_limit: None,
        ..options.clone()
    };
    let found = forecast(&config, costs, &once)?;
    let extra = costs
        .iter()
        .map(|cost| cost.reserve_bytes.saturating_sub(cost.cache_bytes))
        .max();
    let nodes = found.nodes.iter();
    let max = nodes.clone().map(|node| node.needed_at_once_bytes).max();
    let waiting = |node: &&shardmill_reader::NodeForecast| node.belady.wait_seconds();
    let worst = nodes.max_by(|one, other| waiting(one).total_cmp(&waiting(other)));
    Ok(Recommended {
        is_enough: is_enough(&chosen),
        block: chosen,
        shuffle_algo: algo.name(),
        cache_limit: max.unwrap_or(0).saturating_add(extra.unwrap_or(0)),
        wait_seconds: worst.as_ref().map_or(0.0, waiting),
        epoch_seconds: worst.map_or(0.0, |node| node.belady.seconds),
    })
}

/// Reads the labels of samples of the probe.
fn labels(args: &WorldArgs, probe: &Probe, column: &str, limits: &Limits) -> Result<Labels, Stop> {
    let probe = probe.thinned(MAX_LABELS);
    let mut wanted: Vec<u64> = probe.samples().collect();
    wanted.sort_unstable();
    wanted.dedup();
    let mut wanted = wanted.as_slice();
    let mut numbers: HashMap<Vec<u8>, u32> = HashMap::new();
    let mut classes: HashMap<u64, u32> = HashMap::new();
    let mut first = 0;
    for stream in world::streams(args) {
        let location = DatasetLocation::parse(&stream.location, &args.storage)?;
        if location.holds_tars(limits)? {
            let message =
                "labels are read from MDS, JSON and XSV datasets, and these are tar shards";
            let cli_error = CliError::usage("usage-value", message).about(&stream.location);
            return Err(cli_error.with_hint("omit --label").into());
        }
        let choice = world::samples(args, &stream)?;
        let dataset = dataset::open(&stream.location, &location, limits.clone(), &choice)?;
        dataset::check_column(&stream.location, &dataset, column)?;
        let end = first + dataset.len();
        let (own, rest) = wanted.split_at(wanted.partition_point(|sample| *sample < end));
        wanted = rest;
        for sample in own {
            let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
            let stored = dataset.sample(sample - first)?;
            let row = SampleRow::of(&dataset, &stored)?;
            let field = row.field(column).ok_or_else(|| row.lacks(column))?;
            let mut label = Vec::new();
            row.write(field, None, &mut label)?;
            let class = *numbers.entry(label).or_insert(next);
            classes.insert(*sample, class);
        }
        first = end;
    }
    let class_of = |sample: u64| classes.get(&sample).copied().unwrap_or(u32::MAX);
    Ok(Labels {
        column: column.to_owned(),
        classes: numbers.len(),
        samples: classes.len(),
        windows: probe.classes(&class_of),
    })
}

impl QualityReport {
    /// Returns the measured values beside those of a full shuffle.
    pub fn table(&self) -> Table {
        let mut table = Table::headed("quality|>this order|>full shuffle");
        let mut row = |name: String, found: String, full: String| table.row([name, found, full]);
        let neighbours = &self.quality.neighbours;
        row(
            "median distance of neighbours".to_owned(),
            count(neighbours.median),
            count(neighbours.full_shuffle_median),
        );
        row(
            "neighbours of the same shard".to_owned(),
            share(neighbours.same_shard),
            share(neighbours.full_shuffle_same_shard),
        );
        for window in &self.quality.windows {
            let name = window_name(window.steps, window.samples);
            row(
                format!("shards in {name}"),
                tenths(window.shards),
                tenths(window.full_shuffle_shards),
            );
            row(
                format!("variance of shards in {name}"),
                tenths(window.excess_variance),
                tenths(1.0),
            );
        }
        if let Some(labels) = &self.labels {
            for window in &labels.windows {
                let name = window_name(window.steps, window.samples);
                row(
                    format!("imbalance of {} in {name}", labels.column),
                    share(window.imbalance),
                    share(window.full_shuffle_imbalance),
                );
                row(
                    format!("variance of {} in {name}", labels.column),
                    tenths(window.excess_variance),
                    tenths(1.0),
                );
            }
        }
        table
    }

    /// Draws the distances of neighbours: a bar for each power of two, and a mark where it would end in a full shuffle.
    pub fn picture(&self) -> String {
        let bins = &self.quality.neighbours.distances;
        let max = bins
            .iter()
            .map(|bin| bin.share.max(bin.full_shuffle))
            .fold(f64::MIN_POSITIVE, f64::max);
        let mut lines = Table::aligned(">|>|");
        lines.row([
            "distance".to_owned(),
            "pairs".to_owned(),
            "# this order, | a full shuffle".to_owned(),
        ]);
        for bin in bins {
            let length = |share: f64| whole((share / max * BAR).round());
            let (bar, mark) = (length(bin.share), length(bin.full_shuffle));
            let drawn = (0..=bar.max(mark)).map(|at| match at {
                _ if at == mark => '|',
                _ if at < bar => '#',
                _ => ' ',
            });
            lines.row([count(bin.from), share(bin.share), drawn.collect()]);
        }
        lines.to_string()
    }

    /// Returns the shuffle blocks and what they need.
    pub fn block_table(&self) -> Table {
        let mut table = Table::headed(
            ">shuffle block|>shards in a step|>of a full shuffle|>variance|>shards in use|>cache|>fetched in",
        );
        for block in &self.blocks {
            let choice = &block.choice;
            table.row([
                count(choice.block),
                tenths(choice.shards),
                share(choice.shards / choice.full_shuffle_shards.max(f64::MIN_POSITIVE)),
                tenths(choice.excess_variance),
                count(whole(choice.shards_in_use.ceil())),
                bytes(block.cache_bytes),
                seconds(block.fill_seconds),
            ]);
        }
        table
    }

    /// Returns what follows from the measurement, as sentences.
    pub fn advice(&self, options: &ForecastOptions) -> Vec<String> {
        let mut lines = Vec::new();
        if self.quality.steps < self.quality.of_steps {
            lines.push(format!(
                "The quality is that of {} of the epoch.",
                many(self.quality.steps, "step")
            ));
        }
        if let Some(window) = self.quality.windows.first() {
            let part = window.shards / window.full_shuffle_shards.max(f64::MIN_POSITIVE);
            lines.push(format!(
                "A step has {} of the shards that it would have in a full shuffle.",
                share(part.min(1.0))
            ));
        }
        let found = &self.recommended;
        let block = &found.block;
        let algo = format!(
            "--shuffle --shuffle-algo {} --shuffle-block-size {}",
            found.shuffle_algo, block.choice.block
        );
        let part = block.choice.shards / block.choice.full_shuffle_shards.max(f64::MIN_POSITIVE);
        let begin = match found.is_enough {
            true => "For this bandwidth, use".to_owned(),
            false => format!(
                "{}/s does not afford the shards of a full shuffle. Use",
                bytes(options.bandwidth)
            ),
        };
        lines.push(format!(
            "{begin} {algo} --cache-limit {}: a step has {} of the shards of a full shuffle, and the first epoch waits {} of \
             {} for data.",
            needed(found.cache_limit),
            share(part.min(1.0)),
            seconds(found.wait_seconds),
            seconds(found.epoch_seconds)
        ));
        lines
    }
}

/// Formats the length of a window.
pub fn window_name(steps: u64, samples: u64) -> String {
    format!("{} of {}", many(steps, "step"), many(samples, "sample"))
}

fn share(part: f64) -> String {
    format!("{:.1}%", part * 100.0)
}

pub fn tenths(number: f64) -> String {
    format!("{number:.1}")
}
