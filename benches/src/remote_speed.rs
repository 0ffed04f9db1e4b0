//! Measures how a run that reads from a store starts, waits and downloads. The server is on the loopback device,
//! responds after 30 ms and sends 50 MB/s on each connection. The consumer takes 5 ms for each batch.
//!
//!     remote_speed SMALL LARGE [--rounds 5] [--step-ms 5] [--latency-ms 30] [--bytes-per-second 50000000]
//!
//! SMALL is a dataset with shards of 4 MiB, LARGE one with shards of 64 MiB. The server is a separate process: this
//! program, started with `serve ROOT LATENCY-MS BYTES-PER-SECOND [PERCENT-OF-FAULTS]`. Prints a line for each case,
//! with medians.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use shardmill_dataset::StreamOptions;
use shardmill_order::World;
use shardmill_reader::{BatchOptions, CacheOptions, Reader, ReaderOptions};
use shardmill_storage::{Location, RemoteOptions, settings_of};
use shardmill_testing::s3::{Fault, Objects, S3Server, Script, Settings};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const BATCH_SIZE: u64 = 64;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["serve", root, latency, speed] => {
            serve(Path::new(root), latency.parse()?, speed.parse()?, 0)
        }
        ["serve", root, latency, speed, percent] => serve(
            Path::new(root),
            latency.parse()?,
            speed.parse()?,
            percent.parse()?,
        ),
        [small, large, options @ ..] => measure(Path::new(small), Path::new(large), options),
        _ => Err("remote_speed SMALL LARGE [--rounds N] …".into()),
    }
}

/// Serves a directory until standard input ends. For each input line, prints what was counted since the previous one.
/// `percent` of the responses are errors, truncated or corrupt.
fn serve(root: &Path, latency: u64, bytes_per_second: u64, percent: u64) -> Result<()> {
    let faults = vec![
        Fault::status(503),
        Fault::CloseBefore,
        Fault::CloseAfter(1000),
        Fault::FlipByte(70_000),
    ];
    let settings = Settings {
        latency: Duration::from_millis(latency),
        bytes_per_second: Some(bytes_per_second),
        faults: Script::random(1, percent, faults),
        ..Settings::default()
    };
    let server = S3Server::start(Objects::folder("bucket", root), settings)?;
    let mut out = io::stdout();
    writeln!(out, "{}", server.endpoint())?;
    out.flush()?;
    for line in io::stdin().lines() {
        line?;
        let counts = server.counts();
        let shards = counts
            .by_key
            .iter()
            .filter(|(key, _)| key.ends_with(".mds"));
        let (keys, requests) = shards.fold((0_u64, 0), |(keys, sum), (_, count)| {
            (keys + 1, sum + count)
        });
        writeln!(
            out,
            "{requests} {keys} {} {} {}",
            counts.heads,
            counts.load.max_transfers,
            busy(&counts.load.transfers),
        )?;
        out.flush()?;
        server.forget_counts();
    }
    Ok(())
}

/// Returns the median number of concurrent responses, weighted by time, over the time in which there was at least one.
fn busy(transfers: &[(Duration, usize)]) -> usize {
    let mut weights: BTreeMap<usize, Duration> = BTreeMap::new();
    for pair in transfers.windows(2) {
        if let [(from, active), (to, _)] = pair
            && *active > 0
        {
            *weights.entry(*active).or_default() += to.saturating_sub(*from);
        }
    }
    let half = weights.values().sum::<Duration>() / 2;
    let mut sum = Duration::ZERO;
    for (active, weight) in weights {
        sum += weight;
        if sum >= half {
            return active;
        }
    }
    0
}

struct Server {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    endpoint: String,
}

/// The server's counters.
#[derive(Clone, Copy)]
struct Counted {
    requests: f64,
    shards: f64,
    max: f64,
    busy: f64,
}

impl Server {
    fn start(root: &Path, latency: u64, speed: u64) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("serve")
            .arg(root)
            .args([latency.to_string(), speed.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let to = child.stdin.take().ok_or("no pipe")?;
        let mut from = BufReader::new(child.stdout.take().ok_or("no pipe")?);
        let mut endpoint = String::new();
        from.read_line(&mut endpoint)?;
        Ok(Self {
            child,
            to,
            from,
            endpoint: endpoint.trim().to_owned(),
        })
    }

    fn counts(&mut self) -> Result<Counted> {
        writeln!(self.to)?;
        self.to.flush()?;
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        let numbers = line
            .split_whitespace()
            .map(str::parse::<f64>)
            .collect::<std::result::Result<Vec<_>, _>>()?;
        match numbers.as_slice() {
            [requests, shards, heads, max, busy] if *heads == 0.0 => Ok(Counted {
                requests: *requests,
                shards: *shards,
                max: *max,
                busy: *busy,
            }),
            other => Err(format!("the server counted {other:?}").into()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server has no state to lose.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Options {
    rounds: u64,
    step: Duration,
    latency: u64,
    speed: u64,
}

/// One benchmark case.
struct Case {
    name: &'static str,
    data: PathBuf,
    /// The cache limit, in percent of the data.
    cache_percent: Option<u64>,
    shuffle_block_size: Option<u64>,
    epochs: u64,
}

#[derive(Clone, Copy)]
struct Outcome {
    first: f64,
    epoch: f64,
    stall: f64,
    fetches: f64,
    per_shard: f64,
    over: f64,
    max: f64,
    busy: f64,
}

fn measure(small: &Path, large: &Path, words: &[&str]) -> Result<()> {
    let mut named = BTreeMap::new();
    for pair in words.chunks(2) {
        if let [name, value] = pair {
            named.insert(name.trim_start_matches("--"), value.parse::<u64>()?);
        }
    }
    let number = |name: &str, default| named.get(name).copied().unwrap_or(default);
    let options = Options {
        rounds: number("rounds", 5),
        step: Duration::from_millis(number("step-ms", 5)),
        latency: number("latency-ms", 30),
        speed: number("bytes-per-second", 50_000_000),
    };
    let case = |name, data: &Path| Case {
        name,
        data: data.to_owned(),
        cache_percent: None,
        shuffle_block_size: None,
        epochs: 1,
    };
    let cases = [
        case("4 MiB shards, all mixed", small),
        Case {
            shuffle_block_size: Some(2000),
            ..case("4 MiB shards, blocks of 2,000", small)
        },
        case("64 MiB shards, all mixed", large),
        Case {
            cache_percent: Some(25),
            shuffle_block_size: Some(2000),
            epochs: 3,
            ..case("4 MiB shards, blocks of 2,000, cache 25 %", small)
        },
        Case {
            cache_percent: Some(25),
            epochs: 3,
            ..case("4 MiB shards, all mixed, cache 25 %", small)
        },
    ];
    let mut out = io::stdout();
    for case in cases {
        let outcomes = (0..options.rounds).map(|_| run(&case, &options));
        let outcomes = outcomes.collect::<Result<Vec<Outcome>>>()?;
        let of = |value: fn(&Outcome) -> f64| {
            let mut values: Vec<f64> = outcomes.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
        };
        let worst = |value: fn(&Outcome) -> f64| outcomes.iter().map(value).fold(0.0, f64::max);
        writeln!(
            out,
            "{:44} first batch {:.3} s  epoch {:.2} s  stall {:.3}  fetches/shard and epoch {:.2}  requests/fetch {:.2}  \
             over the limit {:.1} %  connections {:.0}, at the median moment {:.0}",
            case.name,
            of(|outcome| outcome.first),
            of(|outcome| outcome.epoch),
            of(|outcome| outcome.stall),
            worst(|outcome| outcome.fetches),
            worst(|outcome| outcome.per_shard),
            worst(|outcome| outcome.over),
            of(|outcome| outcome.max),
            of(|outcome| outcome.busy),
        )?;
    }
    Ok(())
}

fn run(case: &Case, options: &Options) -> Result<Outcome> {
    let parent = case.data.parent().ok_or("a dataset needs a parent")?;
    let name = case
        .data
        .file_name()
        .and_then(|name| name.to_str())
        .ok_or("no name")?;
    let mut server = Server::start(parent, options.latency, options.speed)?;
    let cache = tempfile::tempdir()?;
    let remote = Location::parse(&format!("s3://bucket/{name}"))?;
    let environment = [
        ("AWS_ENDPOINT_URL", server.endpoint.as_str()),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_REGION", "us-east-1"),
    ];
    let settings = settings_of(
        environment
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
    );
    let data_bytes = bytes_below(&case.data)?;
    let limit = case.cache_percent.map(|percent| data_bytes * percent / 100);
    // The time includes opening the index.
    let start = Instant::now();
    let reader = Reader::open(
        &[StreamOptions::remote(remote, cache.path())],
        &ReaderOptions {
            remote: RemoteOptions {
                settings,
                ..RemoteOptions::default()
            },
            cache: CacheOptions {
                limit,
                ..CacheOptions::default()
            },
            ..ReaderOptions::default()
        },
    )?;
    let mut config = reader.epoch_config(BATCH_SIZE, World::SINGLE);
    config.shuffle.enabled = true;
    config.shuffle.block_size = case.shuffle_block_size;
    let watch = Watch::start(cache.path());
    let (mut first, mut epoch_seconds, mut stall) = (0.0, 0.0, 0.0);
    let mut fetched_before = 0;
    for epoch in 0..case.epochs {
        // The second epoch, too, had data prefetched by the one before it. So the data prefetched for the epoch after
        // the last balances it.
        if epoch == 1 {
            fetched_before = reader.cache_stats().fetched_shards;
        }
        let mut batches = reader.epoch(&config, BatchOptions::default())?;
        let mut waited = Duration::ZERO;
        let mut after_first = start;
        loop {
            let asked = Instant::now();
            let Some(_batch) = batches.next_batch()? else {
                break;
            };
            if epoch == 0 && after_first == start {
                first = start.elapsed().as_secs_f64();
                after_first = Instant::now();
            } else if after_first == start {
                after_first = Instant::now();
            } else {
                waited += asked.elapsed();
            }
            std::thread::sleep(options.step);
        }
        epoch_seconds = after_first.elapsed().as_secs_f64();
        stall = waited.as_secs_f64() / epoch_seconds;
        config = batches.next_config();
    }
    let max_bytes = watch.stop();
    let counted = server.counts()?;
    let stats = reader.cache_stats();
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    Ok(Outcome {
        first,
        epoch: epoch_seconds,
        stall,
        fetches: (stats.fetched_shards - fetched_before) as f64
            / (counted.shards * (case.epochs - 1).max(1) as f64),
        per_shard: counted.requests / stats.fetched_shards as f64,
        over: limit.map_or(0.0, |limit| {
            max_bytes.saturating_sub(limit) as f64 / limit as f64 * 100.0
        }),
        max: counted.max,
        busy: counted.busy,
    })
}

/// Returns the bytes of files that existed in both of two listings. Files that disappeared between them do not count.
fn bytes_below(path: &Path) -> Result<u64> {
    let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
    files_below(path, &mut before)?;
    files_below(path, &mut after)?;
    let stayed = before.iter().filter(|(inode, _)| after.contains_key(inode));
    Ok(stayed.map(|(_, bytes)| bytes).sum())
}

fn files_below(path: &Path, found: &mut BTreeMap<u64, u64>) -> Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        // A file that was removed meanwhile has no bytes.
        let Ok(meta) = entry.metadata() else { continue };
        if meta.is_dir() {
            files_below(&entry.path(), found)?;
        } else {
            found.insert(meta.ino(), meta.len());
        }
    }
    Ok(())
}

/// Polls the bytes in a folder and records their maximum.
struct Watch {
    stop: Arc<AtomicBool>,
    max: Arc<AtomicU64>,
    thread: std::thread::JoinHandle<()>,
}

impl Watch {
    fn start(folder: &Path) -> Self {
        let (stop, max) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let (own_stop, own_most, folder) = (Arc::clone(&stop), Arc::clone(&max), folder.to_owned());
        let thread = std::thread::spawn(move || {
            while !own_stop.load(Ordering::Relaxed) {
                own_most.fetch_max(bytes_below(&folder).unwrap_or(0), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        Self { stop, max, thread }
    }

    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.join().is_ok();
        if ended {
            self.max.load(Ordering::Relaxed)
        } else {
            u64::MAX
        }
    }
}
