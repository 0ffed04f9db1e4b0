//! Measures how fast the reader returns batches, compared with a floor: copying the same bytes in the same order.
//!
//!     read_speed DATASET [--batch-size 64] [--epochs 10] [--threads 1] [--queue 16] [--shuffle-algo py1e|none]
//!
//! Prints a line for each, with medians over the epochs: samples per second, CPU microseconds per sample (all threads,
//! user and system), context switches per sample, and threads of the process. The floor knows all addresses before it
//! starts.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cpu_time::ProcessTime;
use shardmill_dataset::{Dataset, OpenOptions, StreamOptions};
use shardmill_mds::{OwnedShard, ShardEntry};
use shardmill_mmap::{Buffer, Mapping};
use shardmill_order::{Epoch, EpochConfig, World};
use shardmill_reader::{BatchOptions, Reader, ReaderOptions};

struct Settings {
    dataset: PathBuf,
    batch_size: u64,
    epochs: u64,
    threads: usize,
    queue: u64,
    shuffle: Option<String>,
}

fn settings() -> Result<Settings, Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let mut named = BTreeMap::new();
    let mut dataset = None;
    while let Some(word) = words.next() {
        match word.strip_prefix("--") {
            Some(name) => {
                let value = words.next().ok_or("an option without a value")?;
                named.insert(name.to_owned(), value);
            }
            None => dataset = Some(PathBuf::from(word)),
        }
    }
    let number = |name: &str, default: u64| -> Result<u64, Box<dyn Error>> {
        Ok(named
            .get(name)
            .map(|text| text.parse())
            .transpose()?
            .unwrap_or(default))
    };
    let algo = named
        .get("shuffle-algo")
        .cloned()
        .unwrap_or_else(|| "py1e".to_owned());
    Ok(Settings {
        dataset: dataset.ok_or("which dataset?")?,
        batch_size: number("batch-size", 64)?,
        epochs: number("epochs", 10)?,
        threads: usize::try_from(number("threads", 1)?)?,
        queue: number("queue", 16)?,
        shuffle: (algo != "none").then_some(algo),
    })
}

/// The cost of one epoch.
struct Cost {
    wall: Duration,
    cpu: Duration,
    switches: u64,
    switches_before: u64,
    threads: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let settings = settings()?;
    let reader = Reader::open(
        &[StreamOptions::local(&settings.dataset)],
        &ReaderOptions::default(),
    )?;
    let mut config = reader.epoch_config(settings.batch_size, World::SINGLE);
    if let Some(algo) = &settings.shuffle {
        config.shuffle.enabled = true;
        config.shuffle.algo = algo.parse()?;
    }
    let samples = reader.catalog().samples();
    // Alternate, so that both are measured under the same machine load.
    let floor = Floor::open(&settings)?;
    let (mut read, mut copied) = (Vec::new(), Vec::new());
    for epoch in 0..settings.epochs {
        config.epoch = epoch;
        read.push(one_epoch(&reader, &config, &settings)?);
        copied.push(floor.copy(&config)?);
    }
    report("reader", &read, samples)?;
    report("floor", &copied, samples)
}

fn one_epoch(
    reader: &Reader,
    config: &EpochConfig,
    settings: &Settings,
) -> Result<Cost, Box<dyn Error>> {
    let options = BatchOptions {
        threads: settings.threads,
        queue: settings.queue,
        ..BatchOptions::default()
    };
    let meter = Meter::start()?;
    let mut batches = reader.epoch(config, options)?;
    let mut samples = 0;
    let (mut counted, mut switched) = (0, (0, 0));
    // The reader's threads end once the last batches are started, and their counters are lost with them.
    let last = batches.len().saturating_sub(2 * settings.queue).max(1);
    while let Some(batch) = batches.next_batch()? {
        samples += batch.len() as u64;
        if batch.step + 1 == last {
            (counted, switched) = (samples, switches()?);
        }
    }
    if samples < reader.catalog().samples() {
        return Err("samples are missing".into());
    }
    let (switches, threads) = switched;
    let cost = meter.stop()?;
    Ok(Cost {
        switches: switches.saturating_sub(cost.switches_before) * samples / counted.max(1),
        threads,
        ..cost
    })
}

/// Copies samples from mapped shards.
struct Floor {
    shards: Vec<OwnedShard<Mapping>>,
    batch_size: usize,
}

impl Floor {
    fn open(settings: &Settings) -> Result<Self, Box<dyn Error>> {
        let options = OpenOptions::default();
        let dataset = Dataset::open(&settings.dataset, &options)?;
        let map = |entry: &ShardEntry| -> Result<OwnedShard<Mapping>, Box<dyn Error>> {
            use std::os::fd::AsFd as _;
            let file = fs::File::open(settings.dataset.join(entry.raw_data.basename.as_ref()))?;
            let mapping = Mapping::new(file.as_fd(), usize::try_from(entry.raw_data.bytes)?)?;
            Ok(OwnedShard::open(entry, mapping, None, &options.limits)?)
        };
        let shards = dataset.index().shards.iter().map(map);
        Ok(Self {
            shards: shards.collect::<Result<_, _>>()?,
            batch_size: usize::try_from(settings.batch_size)?,
        })
    }

    fn copy(&self, config: &EpochConfig) -> Result<Cost, Box<dyn Error>> {
        let epoch = Epoch::new(config)?;
        let mut cursor = epoch.rank(0)?;
        let mut order: Vec<&[u8]> = Vec::new();
        let mut entries = Vec::new();
        for step in 0..epoch.batches() {
            cursor.read(step, &mut entries);
            for entry in &entries {
                let place = epoch.shards().locate(entry.sample.0);
                let (shard, at) = place.ok_or("a sample beyond the end")?;
                let shard = self.shards.get(shard).ok_or("a shard beyond the end")?;
                order.push(shard.view().sample(at)?);
            }
        }
        let mut buffer = Buffer::with_capacity(1 << 20)?;
        let meter = Meter::start()?;
        for batch in order.chunks(self.batch_size) {
            buffer.clear();
            for sample in batch {
                buffer.extend_from_slice(sample)?;
            }
            std::hint::black_box(buffer.as_slice());
        }
        meter.stop()
    }
}

struct Meter {
    wall: Instant,
    cpu: ProcessTime,
    switches: u64,
}

impl Meter {
    fn start() -> Result<Self, Box<dyn Error>> {
        Ok(Self {
            switches: switches()?.0,
            wall: Instant::now(),
            cpu: ProcessTime::try_now()?,
        })
    }

    fn stop(self) -> Result<Cost, Box<dyn Error>> {
        let (wall, cpu) = (self.wall.elapsed(), self.cpu.try_elapsed()?);
        let (switches, threads) = switches()?;
        Ok(Cost {
            wall,
            cpu,
            switches: switches.saturating_sub(self.switches),
            switches_before: self.switches,
            threads,
        })
    }
}

/// Returns the context switches of all threads so far, and the number of threads.
fn switches() -> Result<(u64, usize), Box<dyn Error>> {
    let (mut sum, mut threads) = (0, 0);
    for task in fs::read_dir("/proc/self/task")? {
        let Ok(status) = fs::read_to_string(task?.path().join("status")) else {
            continue;
        };
        threads += 1;
        for line in status.lines() {
            if let Some((name, count)) = line.split_once(':')
                && name.ends_with("voluntary_ctxt_switches")
            {
                sum += count.trim().parse::<u64>()?;
            }
        }
    }
    Ok((sum, threads))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn report(name: &str, costs: &[Cost], samples: u64) -> Result<(), Box<dyn Error>> {
    let samples = f64::from(u32::try_from(samples)?);
    let of = |value: fn(&Cost) -> f64| median(costs.iter().map(value).collect());
    let switches = costs.iter().map(|cost| cost.switches as f64).collect();
    writeln!(
        std::io::stdout(),
        "{name:8} {:>10.0} samples/s  {:>6.2} us CPU a sample  {:>6.3} switches a sample  {} threads",
        samples / of(|cost| cost.wall.as_secs_f64()),
        of(|cost| cost.cpu.as_secs_f64()) * 1e6 / samples,
        median(switches) / samples,
        costs.iter().map(|cost| cost.threads).max().unwrap_or(0),
    )?;
    Ok(())
}
