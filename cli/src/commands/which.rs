//! The command `shardmill which`: names the samples of a step, or the steps that delivered a sample.

use std::borrow::Cow;
use std::path::PathBuf;

use clap::{ArgGroup, Args};
use serde::Serialize;
use shardmill_core::{Error, Limits, escape};
use shardmill_dataset::{Dataset, SampleSources};
use shardmill_order::{Epoch, EpochConfig, SampleId, StreamConfig};

use super::dataset_location::DatasetLocation;
use super::sample_row::SampleRow;
use super::{dataset, order, world};
use crate::args::{WorldArgs, values};
use crate::error::{Stop, unknown_sample};
use crate::output::{Exit, Output, Table, count, many};

/// Name the samples of a training step, or the steps that delivered a sample
///
/// The order of the samples is computed again, so no log is needed. A step is a batch of all ranks, counted from 0 at
/// the start of the epoch or, with --state, at the position of the state. For each sample, prints its number, its
/// shard and the position in it, its key, and the file and row of the source as far as the dataset records them.
///
/// Options of the order that are left out are taken from the state, if shardmill made it. The batch size and the
/// numbers of nodes and ranks are not part of a state: give those of the run that continued from it.
#[derive(Args, Debug)]
#[command(
    group = ArgGroup::new("question").args(["step", "sample"]).required(true)
)]
pub struct WhichArgs {
    #[command(flatten)]
    pub world: WorldArgs,

    /// Name the samples of this step
    #[arg(long, value_name = "N", value_parser = values::number)]
    pub step: Option<u64>,

    /// Name the steps that delivered this sample
    #[arg(long, value_name = "K", value_parser = values::number)]
    pub sample: Option<u64>,

    /// Only this rank, counted from 0 over all nodes
    #[arg(long, value_name = "R", value_parser = values::number)]
    pub rank: Option<u64>,

    /// The epoch
    #[arg(long, value_name = "N", default_value = "0", help_heading = "Order", value_parser = values::number)]
    pub epoch: u64,

    /// Count steps from a state, a JSON file as returned by `state_dict`
    #[arg(long, value_name = "FILE", conflicts_with = "epoch", help_heading = "Order", value_parser = values::local_path)]
    pub state: Option<PathBuf>,

    /// Number of epochs to search for a sample
    #[arg(long, value_name = "N", default_value = "1", conflicts_with = "step", help_heading = "Order", value_parser = values::up_to(1000))]
    pub epochs: u64,

    /// The column with the keys
    #[arg(long, value_name = "NAME", default_value = "__key__")]
    pub key_column: String,

    /// Do not read keys, which are in the shards; everything else is in the index and its side files
    #[arg(long)]
    pub no_keys: bool,
}

/// One dataset of the mix.
struct Stream {
    name: String,
    dataset: Dataset,
    /// The number of its first sample in the mix.
    first: u64,
    sources: SampleSources,
}

/// The datasets of the mix.
struct Streams<'a> {
    args: &'a WhichArgs,
    streams: Vec<Stream>,
}

/// What is known about the source of a dataset.
#[derive(Serialize)]
struct StreamFacts<'a> {
    dataset: &'a str,
    first_sample: u64,
    samples: u64,
    source: Option<&'a str>,
    table_id: Option<&'a str>,
    table_version: Option<u64>,
    /// What is unknown about the source of a sample, and why.
    unknown: Option<&'a str>,
}

/// What is known about a sample.
#[derive(Clone, Serialize)]
struct SampleFacts {
    sample: u64,
    /// The number of the dataset in the mix.
    stream: usize,
    shard: usize,
    shard_name: String,
    /// The position in the shard, deleted samples counted.
    index: u64,
    key: Option<String>,
    file: Option<String>,
    row: Option<u64>,
}

/// A sample of a step.
#[derive(Serialize)]
struct Member {
    rank: u64,
    position: u64,
    repeated: bool,
    #[serde(flatten)]
    facts: SampleFacts,
}

#[derive(Serialize)]
struct StepAnswer<'a> {
    epoch: u64,
    step: u64,
    /// How many samples of the epoch all ranks received before this step.
    sample_in_epoch: u64,
    samples: &'a [Member],
    streams: Vec<StreamFacts<'a>>,
}

/// A step that delivered the sample.
#[derive(Serialize)]
struct FoundStep {
    epoch: u64,
    step: u64,
    sample_in_epoch: u64,
    rank: u64,
    position: u64,
    repeated: bool,
}

#[derive(Serialize)]
struct SampleAnswer<'a> {
    sample: &'a SampleFacts,
    /// The first epoch that was searched, and the position in it where the search began.
    epoch: u64,
    sample_in_epoch: u64,
    epochs: u64,
    steps: &'a [FoundStep],
    streams: Vec<StreamFacts<'a>>,
}

pub fn run(args: &WhichArgs, limits: Limits, out: &mut Output) -> Result<Exit, Stop> {
    // Options that do not depend on the data are checked before any work.
    let mut config = world::epoch_config(&args.world, Vec::new())?;
    config.epoch = args.epoch;
    let state = args.state.as_deref().map(order::load).transpose()?;
    let streams = Streams::open(args, &limits)?;
    config.streams = streams.configs();
    if let (Some(state), Some(path)) = (&state, &args.state) {
        // The run has the order that the state records.
        state.adopt_order(&mut config);
        order::resume(&mut config, state, path)?;
    }
    match (args.step, args.sample) {
        (Some(step), _) => show_step(&streams, &config, step, out)?,
        (None, Some(sample)) => show_sample(&streams, &config, sample, out)?,
        // The parser requires one of them.
        (None, None) => {}
    }
    Ok(Exit::Done)
}

impl<'a> Streams<'a> {
    fn open(args: &'a WhichArgs, limits: &Limits) -> Result<Self, Stop> {
        let mut streams = Vec::new();
        let mut first = 0_u64;
        for typed in world::streams(&args.world) {
            let location = DatasetLocation::parse(&typed.location, &args.world.storage)?;
            if location.holds_tars(limits)? {
                let message = "`which` reads MDS, JSON and XSV datasets, and these are tar shards";
                return Err(Error::usage("usage-value", message)
                    .about(&typed.location)
                    .with_hint("use `StreamingDataset.which` in Python")
                    .into());
            }
            let samples = world::samples(&args.world, &typed)?;
            let dataset = dataset::open(&typed.location, &location, limits.clone(), &samples)?;
            let stored = dataset.stored_samples(dataset.index().shards.len()).start;
            let sources = SampleSources::read(dataset.dir(), stored)?;
            let samples = dataset.len();
            streams.push(Stream {
                name: typed.location,
                dataset,
                first,
                sources,
            });
            first = first.saturating_add(samples);
        }
        Ok(Self { args, streams })
    }

    /// Returns the streams of the order, with their weights.
    fn configs(&self) -> Vec<StreamConfig> {
        let typed = world::streams(&self.args.world);
        let pairs = self.streams.iter().zip(typed);
        pairs
            .map(|(stream, typed)| {
                dataset::stream_config(&stream.dataset).with_weight(typed.weight)
            })
            .collect()
    }

    fn facts_of_streams(&self) -> Vec<StreamFacts<'_>> {
        let facts = self.streams.iter().map(|stream| StreamFacts {
            dataset: &stream.name,
            first_sample: stream.first,
            samples: stream.dataset.len(),
            source: stream.sources.kind.as_deref(),
            table_id: stream.sources.table_id.as_deref(),
            table_version: stream.sources.table_version,
            unknown: stream.sources.unknown.as_deref(),
        });
        facts.collect()
    }

    /// Returns what is known about a sample of the mix.
    fn facts(&self, sample: u64) -> Result<SampleFacts, Stop> {
        let after = self
            .streams
            .partition_point(|stream| stream.first <= sample);
        let number = after.saturating_sub(1);
        let stream = self.streams.get(number).ok_or_else(|| {
            let last = self.streams.last();
            let samples = last.map_or(0, |last| last.first + last.dataset.len());
            unknown_sample("", sample, samples)
        })?;
        let dataset = &stream.dataset;
        let in_stream = sample - stream.first;
        let (shard, index) = dataset.locate(in_stream)?;
        let source = stream
            .sources
            .source_of(dataset.stored_samples(shard).start + index);
        let entry = dataset.index().shards.get(shard);
        let has_key = entry.is_some_and(|entry| {
            let mut columns = entry.config.column_names();
            !self.args.no_keys && columns.any(|name| name == self.args.key_column)
        });
        Ok(SampleFacts {
            sample,
            stream: number,
            shard,
            shard_name: entry
                .map(|entry| dataset::stored_files(entry).0.basename.to_string())
                .unwrap_or_default(),
            index,
            key: match has_key {
                true => {
                    let sample = dataset.sample(in_stream)?;
                    let row = SampleRow::of(dataset, &sample)?;
                    row.key(&self.args.key_column)?.map(Cow::into_owned)
                }
                false => None,
            },
            file: source.file,
            row: source.row,
        })
    }

    /// Prints where the samples come from, and what is unknown.
    fn note(&self, out: &mut Output) -> Result<(), Stop> {
        for stream in &self.streams {
            let name = escape(&stream.name);
            let sources = &stream.sources;
            let mut from = sources.kind.clone().unwrap_or_default();
            if let Some(version) = sources.table_version {
                from.push_str(&format!(", table version {version}"));
            }
            if !from.is_empty() {
                out.note(format_args!("{name}: from {from}"))?;
            }
            if let Some(unknown) = &sources.unknown {
                out.note(format_args!("{name}: unknown {unknown}"))?;
            }
        }
        Ok(())
    }
}

fn show_step(
    streams: &Streams<'_>,
    config: &EpochConfig,
    step: u64,
    out: &mut Output,
) -> Result<(), Stop> {
    let epoch = Epoch::new(config)?;
    let replicas = config.replication.unwrap_or(1);
    let ranks = match streams.args.rank {
        Some(rank) => vec![(rank, epoch.step_of_rank(step, rank)?)],
        None => (0_u64..)
            .zip(epoch.step(step)?)
            .flat_map(|(rank, entries)| {
                (0..replicas).map(move |replica| (rank * replicas + replica, entries.clone()))
            })
            .collect(),
    };
    let mut members = Vec::new();
    for (rank, entries) in &ranks {
        members.extend(
            (0_u64..)
                .zip(entries)
                .map(|(position, entry)| (*rank, position, *entry)),
        );
    }
    // Samples of the same shard are read together.
    members.sort_by_key(|(.., entry)| entry.sample);
    let mut found = Vec::with_capacity(members.len());
    let mut last: Option<SampleFacts> = None;
    for (rank, position, entry) in members {
        let facts = match last.filter(|last| last.sample == entry.sample.0) {
            Some(last) => last,
            None => streams.facts(entry.sample.0)?,
        };
        found.push(Member {
            rank,
            position,
            repeated: entry.repeated,
            facts: facts.clone(),
        });
        last = Some(facts);
    }
    found.sort_by_key(|member| (member.rank, member.position));
    let resolved = epoch.resolved();
    if out.is_json() {
        return out.json(&StepAnswer {
            epoch: resolved.epoch,
            step,
            sample_in_epoch: before(&epoch, step),
            samples: &found,
            streams: streams.facts_of_streams(),
        });
    }
    let mut table = heading(">rank|>position|");
    for member in &found {
        let mut cells = vec![member.rank.to_string(), member.position.to_string()];
        cells.extend(cells_of(&member.facts, member.repeated));
        table.row(cells);
    }
    out.text(&table)?;
    let samples = found.len() as u64;
    out.note(format_args!(
        "epoch {}, step {} of {}: {}",
        resolved.epoch,
        count(step),
        count(epoch.batches()),
        many(samples, "sample"),
    ))?;
    if found.iter().any(|member| member.repeated) {
        out.note("* was given before and fills up")?;
    }
    streams.note(out)
}

/// Returns how many samples of the epoch all ranks received before a step.
fn before(epoch: &Epoch, step: u64) -> u64 {
    let start = epoch.resolved().sample_in_epoch;
    start.saturating_add(step.saturating_mul(epoch.global_batch()))
}

fn show_sample(
    streams: &Streams<'_>,
    config: &EpochConfig,
    sample: u64,
    out: &mut Output,
) -> Result<(), Stop> {
    let args = streams.args;
    let replicas = config.replication.unwrap_or(1);
    let mut found = Vec::new();
    let mut config = config.clone();
    let mut started = None;
    for _ in 0..args.epochs {
        let epoch = Epoch::new(&config)?;
        let resolved = *epoch.resolved();
        started.get_or_insert(resolved);
        for delivery in epoch.deliveries(SampleId(sample))? {
            let ranks = delivery.rank * replicas..(delivery.rank + 1) * replicas;
            let wanted = ranks.filter(|rank| args.rank.is_none_or(|wanted| wanted == *rank));
            found.extend(wanted.map(|rank| FoundStep {
                epoch: resolved.epoch,
                step: delivery.step,
                sample_in_epoch: before(&epoch, delivery.step),
                rank,
                position: delivery.position,
                repeated: delivery.repeated,
            }));
        }
        config.resume = Some(epoch.state_after(epoch.batches()));
        config.epoch = resolved.epoch + 1;
    }
    if let Some(rank) = args.rank {
        // Reports a rank that does not exist.
        Epoch::new(&config)?.entries_of_rank(rank)?;
    }
    let facts = streams.facts(sample)?;
    let (epoch, sample_in_epoch) =
        started.map_or((0, 0), |started| (started.epoch, started.sample_in_epoch));
    if out.is_json() {
        return out.json(&SampleAnswer {
            sample: &facts,
            epoch,
            sample_in_epoch,
            epochs: args.epochs,
            steps: &found,
            streams: streams.facts_of_streams(),
        });
    }
    let mut table = heading("");
    table.row(cells_of(&facts, false));
    out.text(&table)?;
    if !found.is_empty() {
        out.line("")?;
        let row = |step: &FoundStep| {
            [
                step.epoch.to_string(),
                step.step.to_string(),
                step.rank.to_string(),
                starred(step.position, step.repeated),
            ]
        };
        let headings = ">epoch|>step|>rank|>position";
        out.text(Table::of(headings, found.iter().map(row)))?;
    }
    let from = match sample_in_epoch {
        0 => String::new(),
        from => format!(" from sample {} on", count(from)),
    };
    let epochs = match args.epochs {
        1 => format!("epoch {epoch}{from}"),
        epochs => format!("epochs {epoch}{from} to {}", epoch + epochs - 1),
    };
    let times = many(found.len() as u64, "time");
    out.note(format_args!("{epochs}: delivered {times}"))?;
    streams.note(out)
}

/// Returns a table with these columns, followed by those of a sample.
fn heading(before: &str) -> Table {
    Table::headed(&format!("{before}>sample|shard|>index|key|file|>row"))
}

fn starred(number: u64, is_repeated: bool) -> String {
    format!("{number}{}", if is_repeated { "*" } else { "" })
}

fn cells_of(facts: &SampleFacts, repeated: bool) -> Vec<String> {
    let text = |value: &Option<String>| {
        let value = value.as_deref().map(escape);
        value.map_or_else(|| "-".to_owned(), Cow::into_owned)
    };
    vec![
        starred(facts.sample, repeated),
        escape(&facts.shard_name).into_owned(),
        facts.index.to_string(),
        text(&facts.key),
        text(&facts.file),
        text(&facts.row.map(|row| row.to_string())),
    ]
}
