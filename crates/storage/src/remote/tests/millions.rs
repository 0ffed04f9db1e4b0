//! Listings of millions of keys: exact, sorted, and in bounded memory.

use shardmill_testing::s3::Flavor;

use super::*;
use crate::ListOptions;

const MILLIONS: u64 = 10_000_000;

/// Returns a pseudo-random number of this many bits.
const fn noise(at: u64, bits: u32) -> u64 {
    at.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) >> (64 - bits)
}

/// Hexadecimal digits, evenly distributed.
fn hashed(at: u64) -> String {
    format!(
        "{:010x}-{:08x}.jpg",
        at << 16 | noise(at, 16),
        noise(at, 32)
    )
}

/// 21 keys for each minute.
fn dated(at: u64) -> String {
    let minute = at / 21;
    let (hour, day) = (minute / 60 % 24, minute / 1440 % 28);
    let month = minute / 40_320 % 12;
    format!(
        "events/year={}/month={:02}/day={:02}/hour={hour:02}/{minute:08}-{:02}-{:08x}.json",
        2020 + minute / 483_840,
        month + 1,
        day + 1,
        at % 21,
        noise(at, 32)
    )
}

/// Seven levels of four folders, with files in the last.
fn deep(at: u64) -> String {
    let mut key = "a/very/long/way/down/".to_owned();
    let folder = at / 700;
    for level in (0..7).rev() {
        let name = ["down/", "left/", "right/", "up/"];
        key.push_str(name[usize::try_from(folder >> (2 * level) & 3).unwrap()]);
    }
    key.push_str(&format!("{at:09x}"));
    key
}

/// Returns the peak memory of the process in MiB, without that of files.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let number = line.unwrap().split_whitespace().nth(1).unwrap();
    number.parse::<u64>().unwrap() / 1024
}

fn listed(name: &str, count: u64, key: fn(u64) -> String, latency: u64) {
    let settings = Settings {
        flavor: Flavor::S3,
        latency: Duration::from_millis(latency),
        ..Settings::default()
    };
    let server = S3Server::start(Objects::made("bucket", count, key), settings).unwrap();
    let remote = super::walks::remote(&server, "");
    let root = tempfile::tempdir().unwrap();
    let before = peak();
    let began = Instant::now();
    let options = ListOptions::default();
    let listing = remote
        .list_sorted("", Some(root.path()), &options, &mut |_| true)
        .unwrap();
    let took = began.elapsed();
    println!(
        "{name}: {count} keys at {latency} ms a page in {took:.1?}: {} pages, {:.3} times as many as are full; peak {before} MiB before and {} MiB behind it, the server's share included; {:.1} requests at once",
        server.counts().requests,
        server.counts().requests as f64 * 1000.0 / count as f64,
        peak(),
        server.counts().load.mean_transfers(),
    );
    let began = Instant::now();
    let mut at = 0;
    for entry in listing {
        assert_eq!(entry.unwrap().name, key(at));
        at += 1;
    }
    println!(
        "{name}: read again in {:.1?}, peak {} MiB",
        began.elapsed(),
        peak()
    );
    assert_eq!(at, count);
    // No files are left.
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
}

#[test]
fn generated_keys_are_listed_completely() {
    for (name, key) in [
        ("hashed", hashed as fn(u64) -> String),
        ("dated", dated),
        ("deep", deep),
    ] {
        listed(name, 20_000, key, 0);
    }
}

/// `SHARDMILL_KEYS=dated` selects a single kind, to measure its peak separately.
#[test]
#[ignore = "takes minutes"]
fn ten_million_keys_are_listed_in_bounded_memory() {
    let only = std::env::var("SHARDMILL_KEYS").unwrap_or_default();
    for (name, key) in [
        ("hashed", hashed as fn(u64) -> String),
        ("dated", dated),
        ("deep", deep),
    ] {
        if !only.is_empty() && only != name {
            continue;
        }
        for latency in [0, 5, 30] {
            listed(name, MILLIONS, key, latency);
        }
    }
}
