//! The command `shardmill bench`: reads a dataset as a training run does, and measures the speed.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use shardmill_core::number::whole;
use shardmill_core::{Error, ErrorKind, Limits, Progress};
use shardmill_dataset::StreamOptions;
use shardmill_mds::{HashAlgo, Hasher};
use shardmill_order::EpochConfig;
use shardmill_reader::{
    Batch, BatchData, BatchOptions, CacheOptions, Peers, Reader, ReaderOptions, interrupted,
};

use super::{dataset, options, world};
use crate::args::{WorldArgs, duration, values};
use crate::error::Stop;
use crate::output::{Exit, Output, Table, amount, bytes, count, many, percent, rate, seconds};
use crate::signals;

/// Read a dataset as a training job would, and report how fast
///
/// Reads the batches of one rank through the same cache, order and threads as a training job. For each epoch, prints
/// samples and bytes per second, the time to the first batch, the time spent waiting for batches, and the fetched
/// shards. Data in a store, or on a slow disk, is fetched to the folder --local.
#[derive(Args, Debug)]
pub struct BenchArgs {
    #[command(flatten)]
    pub world: WorldArgs,

    /// A subdirectory of each dataset, such as `train`
    #[arg(long, value_name = "NAME")]
    pub subset: Option<String>,

    #[command(flatten)]
    pub cache: BenchCacheArgs,

    /// The rank that reads
    #[arg(long, value_name = "N", default_value = "0", help_heading = "World", value_parser = values::number)]
    pub rank: u64,

    /// The loader process of the rank that reads
    #[arg(long, value_name = "N", default_value = "0", help_heading = "World", value_parser = values::number)]
    pub worker: u64,

    /// Number of epochs
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::number)]
    pub epochs: u64,

    /// The first epoch
    #[arg(long, value_name = "N", default_value = "0", value_parser = values::number)]
    pub epoch: u64,

    /// Stop each epoch after this number of batches [default: at its end]
    #[arg(long, value_name = "N", value_parser = values::number)]
    pub max_batches: Option<u64>,

    /// Threads that prepare batches ahead; with 0, the reading thread does the work
    #[arg(long, short, value_name = "N", default_value = "1", value_parser = values::threads)]
    pub jobs: usize,

    /// Maximum number of batches to prepare ahead
    #[arg(long, value_name = "N", default_value = "16", value_parser = values::number)]
    pub queue: u64,

    /// Simulated duration of a training step, between two batches; with a unit
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = duration::step)]
    pub step_time: Duration,

    /// Print a hash of the ids and values in their order, to compare runs
    #[arg(long)]
    pub digest: bool,
}

// The cache of fetched shards. No doc comment: it would become the text of the verb.
#[derive(Args, Debug)]
pub struct BenchCacheArgs {
    /// Fetch shards to this folder and read them there; several streams get folders 0, 1, … in it
    #[arg(long, value_name = "DIR", help_heading = "Cache")]
    pub local: Option<String>,

    /// Maximum bytes of cached shards [default: no limit]
    #[arg(long, value_name = "SIZE", help_heading = "Cache", value_parser = values::byte_size)]
    pub cache_limit: Option<u64>,

    /// Also keep the compressed files of fetched shards
    #[arg(long, help_heading = "Cache")]
    pub keep_zip: bool,

    /// Hash to check of every shard
    /// [default: the strongest hash of a fetched shard, none for a shard that was not fetched]
    #[arg(long, value_name = "HASH", help_heading = "Cache", value_parser = values::hash)]
    pub validate_hash: Option<HashAlgo>,

    /// Maximum number of samples to fetch ahead [default: limited by the space in the cache]
    #[arg(long, value_name = "N", help_heading = "Cache", value_parser = values::sample_count)]
    pub predownload: Option<u64>,
}

#[derive(Serialize)]
struct Report {
    samples: u64,
    shards: u64,
    /// The time for reading the indexes.
    open_seconds: f64,
    rank: u64,
    worker: u64,
    epochs: Vec<EpochReport>,
}

#[derive(Serialize)]
struct EpochReport {
    epoch: u64,
    batches: u64,
    samples: u64,
    bytes: u64,
    seconds: f64,
    samples_per_second: f64,
    #[serde(flatten)]
    waits: WaitReport,
    #[serde(flatten)]
    cache: CacheReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
}

/// The time spent waiting for batches.
#[derive(Serialize)]
struct WaitReport {
    first_batch_seconds: f64,
    /// The time spent waiting for batches, except the first.
    wait_seconds: f64,
    /// The number of batches that were not ready when requested.
    waits: u64,
}

/// The work of the cache.
#[derive(Serialize)]
struct CacheReport {
    fetched_shards: u64,
    fetched_bytes: u64,
    evicted_shards: u64,
    cached_bytes: u64,
}

pub fn run(args: &BenchArgs, limits: Limits, out: &mut Output) -> Result<Exit, Stop> {
    let options = BatchOptions {
        rank: args.rank,
        worker: args.worker,
        threads: args.jobs,
        queue: args.queue,
    };
    let opening = Instant::now();
    let reader = open(args, limits)?;
    let open_seconds = opening.elapsed().as_secs_f64();
    let config = world::epoch_config(&args.world, Vec::new())?;
    let mut config = EpochConfig {
        streams: reader.epoch_config(1, config.world).streams,
        epoch: args.epoch,
        ..config
    };
    if options.worker >= config.world.workers_per_rank {
        let fact = format!(
            "there is no worker {}: a rank has {}",
            options.worker, config.world.workers_per_rank
        );
        return Err(Error::option_hint(
            "config-worker",
            fact,
            "count from 0, and see --workers-per-rank",
        )
        .into());
    }
    let pace = Pace {
        step: args.step_time,
        max: args.max_batches.unwrap_or(u64::MAX),
        digest: args.digest,
    };
    let progress = signals::cancelled_by_signals(out.console());
    let mut report = Report {
        samples: reader.catalog().samples(),
        shards: reader.catalog().len() as u64,
        open_seconds,
        rank: options.rank,
        worker: options.worker,
        epochs: Vec::new(),
    };
    for _ in 0..args.epochs {
        let epoch = one_epoch(&reader, &mut config, options, &pace, &progress)?;
        report.epochs.push(epoch);
    }
    if out.wants_summary(&report)? {
        show(&report, out)?;
    }
    Ok(Exit::Done)
}

fn open(args: &BenchArgs, limits: Limits) -> Result<Reader, Stop> {
    let streams = world::streams(&args.world);
    let several = streams.len() > 1;
    let mut opened = Vec::with_capacity(streams.len());
    for (index, stream) in streams.into_iter().enumerate() {
        let local = args.cache.local.as_ref().map(|folder| match several {
            true => Path::new(folder).join(index.to_string()),
            false => Path::new(folder).to_owned(),
        });
        let samples = world::samples(&args.world, &stream)?;
        opened.push(StreamOptions {
            split: args.subset.clone(),
            weight: stream.weight,
            keep_zip: args.cache.keep_zip,
            with_deleted: samples.with_deleted,
            view: samples.view,
            ..StreamOptions::named(Some(&stream.location), local)?
        });
    }
    let batch_size = args.world.ranks.batch_size.max(1);
    let options = ReaderOptions {
        limits,
        remote: options::remote(&args.world.storage)?,
        cache: CacheOptions {
            limit: args.cache.cache_limit,
            peers: peers(args),
            lookahead: args
                .cache
                .predownload
                .map(|samples| samples.div_ceil(batch_size)),
            ..CacheOptions::default()
        },
        validate_hash: args.cache.validate_hash,
        window: None,
        cluster: None,
    };
    let failed = match Reader::open(&opened, &options) {
        Ok(reader) => return Ok(reader),
        Err(error) => Stop::from(error),
    };
    let is_missing = matches!(&failed, Stop::Error(error) if error.kind() == ErrorKind::NotFound);
    if is_missing && args.subset.is_none() {
        for stream in world::streams(&args.world) {
            dataset::refuse_several(&stream.location, &args.world.storage)?;
        }
    }
    Err(failed)
}

/// What the benchmark does between batches.
struct Pace {
    step: Duration,
    max: u64,
    digest: bool,
}

/// Returns the processes of this node that share the cache folder.
fn peers(args: &BenchArgs) -> Option<Peers> {
    let ranks = args.world.ranks.ranks_per_node.max(1);
    let workers = args.world.ranks.workers_per_rank.max(1);
    let processes = ranks.saturating_mul(workers);
    (processes > 1).then(|| Peers {
        rank: (args.rank % ranks)
            .saturating_mul(workers)
            .saturating_add(args.worker),
        ranks: processes,
        run: args.world.order.shuffle_seed,
    })
}

fn one_epoch(
    reader: &Reader,
    config: &mut EpochConfig,
    options: BatchOptions,
    pace: &Pace,
    progress: &Progress,
) -> Result<EpochReport, Stop> {
    let before = reader.cache_stats();
    let start = Instant::now();
    let mut batches = reader.epoch(config, options)?;
    let mut hasher = pace.digest.then(|| Hasher::new(HashAlgo::Xxh128));
    while batches.stats().batches < pace.max {
        let Some(batch) = batches.next_batch()? else {
            break;
        };
        if progress.is_cancelled() {
            return Err(interrupted().into());
        }
        if let Some(hasher) = &mut hasher {
            update(hasher, &batch);
        }
        if !pace.step.is_zero() {
            std::thread::sleep(pace.step);
        }
    }
    let elapsed = start.elapsed().as_secs_f64();
    let (stats, after) = (batches.stats(), reader.cache_stats());
    let epoch = config.epoch;
    *config = batches.next_config();
    Ok(EpochReport {
        epoch,
        batches: stats.batches,
        samples: stats.samples,
        bytes: stats.bytes,
        seconds: elapsed,
        samples_per_second: stats.samples as f64 / elapsed.max(1e-9),
        waits: WaitReport {
            first_batch_seconds: stats.first.as_secs_f64(),
            wait_seconds: stats.waited.saturating_sub(stats.first).as_secs_f64(),
            waits: stats.waits,
        },
        cache: CacheReport {
            fetched_shards: after.fetched_shards - before.fetched_shards,
            fetched_bytes: after.fetched_bytes - before.fetched_bytes,
            evicted_shards: after.evictions - before.evictions,
            cached_bytes: after.resident_bytes,
        },
        digest: hasher.map(Hasher::finish_hex),
    })
}

/// Hashes ids and values. The division into buffers does not affect the hash.
fn update(hasher: &mut Hasher, batch: &Batch) {
    for (index, entry) in batch.entries.iter().enumerate() {
        hasher.update(&entry.sample.0.to_le_bytes());
        match &batch.data {
            BatchData::Columns { columns, .. } => {
                for column in 0..columns.len() {
                    hasher.update(batch.value(index, column).unwrap_or_default());
                }
            }
            BatchData::Samples { .. } => hasher.update(batch.sample(index).unwrap_or_default()),
        }
    }
}

fn show(report: &Report, out: &mut Output) -> Result<(), Stop> {
    out.line(format_args!(
        "{}, opened in {}, read by rank {}",
        amount(report.samples, report.shards),
        seconds(report.open_seconds),
        report.rank,
    ))?;
    let mut table =
        Table::headed(">epoch|>samples|>time|>samples/s|>speed|>first batch|>waiting|>fetched");
    for epoch in &report.epochs {
        let millis = |seconds: f64| whole(seconds * 1000.0);
        table.row([
            epoch.epoch.to_string(),
            count(epoch.samples),
            seconds(epoch.seconds),
            format!("{:.0}", epoch.samples_per_second),
            rate(epoch.bytes, epoch.seconds),
            seconds(epoch.waits.first_batch_seconds),
            percent(millis(epoch.waits.wait_seconds), millis(epoch.seconds)),
            if epoch.cache.fetched_shards == 0 {
                "nothing".to_owned()
            } else {
                format!(
                    "{}, {}",
                    many(epoch.cache.fetched_shards, "shard"),
                    bytes(epoch.cache.fetched_bytes)
                )
            },
        ]);
    }
    out.text(&table)?;
    for epoch in &report.epochs {
        if let Some(digest) = &epoch.digest {
            out.line(format_args!("digest of epoch {}: {digest}", epoch.epoch))?;
        }
    }
    Ok(())
}
