//! How many raw files a second come from a store with a latency, cold and warm, and how long a long list takes.
//!
//! `cargo run --release -p shardmill-reader --example raw_files -- FILES BYTES LATENCY_MS BATCHES`: a store on the
//! loopback interface, read in at most so many batches of 64, shuffled, as bytes and as paths.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measurement, run by hand"
)]

use std::time::{Duration, Instant};

use shardmill_dataset::{FileForm, FileOptions, StreamOptions};
use shardmill_order::World;
use shardmill_reader::{BatchOptions, Reader, ReaderOptions};
use shardmill_storage::{Location, RemoteOptions};
use shardmill_testing::s3::{Objects, S3Server, Settings};

fn main() {
    let mut words = std::env::args()
        .skip(1)
        .map(|word| word.parse::<u64>().unwrap());
    let mut word = |or| words.next().unwrap_or(or);
    let (files, bytes, latency) = (word(2000), word(100_000), word(20));
    let max = word(u64::MAX);
    let body = vec![b'x'; usize::try_from(bytes).unwrap()];
    let objects = (0..files).map(|number| {
        let key = format!("tree/{:03}/{number:09}.bin", number % 1000);
        (key, body.clone())
    });
    let settings = Settings {
        latency: Duration::from_millis(latency),
        ..Settings::default()
    };
    let server = S3Server::start(Objects::memory("bucket", objects), settings).unwrap();
    for form in [FileForm::Data, FileForm::File] {
        let root = tempfile::tempdir().unwrap();
        let stream = StreamOptions {
            remote: Some(Location::parse("s3://bucket/tree").unwrap()),
            local: Some(root.path().join("local")),
            files: Some(
                FileOptions {
                    form,
                    ..FileOptions::default()
                }
                .into(),
            ),
            ..StreamOptions::default()
        };
        let options = ReaderOptions {
            remote: RemoteOptions {
                settings: server.environment(),
                ..RemoteOptions::default()
            },
            ..ReaderOptions::default()
        };
        for what in ["cold", "warm"] {
            let started = Instant::now();
            let reader = Reader::open(std::slice::from_ref(&stream), &options).unwrap();
            let opened = started.elapsed();
            let mut config = reader.epoch_config(64, World::SINGLE);
            config.shuffle.enabled = true;
            let started = Instant::now();
            let mut batches = reader.epoch(&config, BatchOptions::default()).unwrap();
            let mut first = None;
            let mut count = 0;
            while let Some(batch) = batches.next_batch().unwrap() {
                first.get_or_insert_with(|| started.elapsed());
                count += batch.len();
                if batch.step + 1 >= max {
                    break;
                }
            }
            let took = started.elapsed();
            let speed = count as f64 / took.as_secs_f64();
            println!(
                "{form:?} {what}: opened in {opened:.2?}, first batch in {:.2?}, {count} files in {took:.2?}, {speed:.0} files/s",
                first.unwrap_or_default()
            );
        }
    }
}
