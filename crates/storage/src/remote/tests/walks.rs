//! Listings of very many objects: exact, fast, and with few requests more than pages.

use crate::{RequestOptions, RetryOptions};
use std::collections::BTreeSet;

use shardmill_testing::s3::Flavor;

use super::shapes::{SHAPES, Shape, keys};
use super::*;
use crate::ListOptions;

fn serve(flavor: Flavor, keys: &BTreeSet<String>, latency: u64) -> S3Server {
    let bucket = match flavor {
        Flavor::Files => "main/default/volume",
        _ => "bucket",
    };
    let objects = keys.iter().map(|key| (key.clone(), Vec::new()));
    let settings = Settings {
        flavor,
        latency: Duration::from_millis(latency),
        ..Settings::default()
    };
    S3Server::start(Objects::memory(bucket, objects), settings).unwrap()
}

pub(super) fn remote(server: &S3Server, path: &str) -> Remote {
    let location = remote_location(&format!("{}{path}", server.url()));
    Remote::new(&location, &options_for(server), true).unwrap()
}

/// Returns the names in a listing.
fn names(remote: &Remote, prefix: &str, options: &ListOptions) -> Vec<String> {
    let listing = remote.list_sorted(prefix, None, options, &mut cancel);
    listing.unwrap().map(|entry| entry.unwrap().name).collect()
}

/// Lists all keys, compares the result, and returns the number of pages and how long they took.
fn listed(
    server: &S3Server,
    keys: &BTreeSet<String>,
    options: &ListOptions,
    shown: &str,
) -> (u64, Duration) {
    let root = tempfile::tempdir().unwrap();
    server.forget_counts();
    let began = Instant::now();
    let listing = remote(server, "").list_sorted("", Some(root.path()), options, &mut cancel);
    let took = began.elapsed();
    let found: Vec<_> = listing.unwrap().map(|entry| entry.unwrap().name).collect();
    assert!(found.iter().eq(keys.iter()), "{shown}: other keys");
    // No files are left.
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
    (server.counts().requests, took)
}

/// With `SHARDMILL_FIGURES`, lists 200,000 keys at 30 ms per page and checks the time. Without it, there are fewer keys
/// and no check of the time, because other tests share the CPU.
#[test]
fn many_keys_are_listed_faster_in_parallel() {
    let strict = std::env::var_os("SHARDMILL_FIGURES").is_some();
    let count = if strict { 200_000 } else { 40_000 };
    let mut missed = Vec::new();
    for shape in SHAPES {
        let keys = keys(shape, count, 0);
        let server = serve(Flavor::S3, &keys, 30);
        let one = ListOptions {
            tasks: 1,
            ..ListOptions::default()
        };
        let (alone, slow) = listed(&server, &keys, &one, "alone");
        let (side, fast) = listed(&server, &keys, &ListOptions::default(), "side by side");
        let at_once = server.counts().load.mean_transfers();
        let times = slow.as_secs_f64() / fast.as_secs_f64();
        println!(
            "{shape:?}: {count} keys, alone {} pages in {slow:.2?}, side by side {} pages in {fast:.2?}: {times:.1} times as fast, {:.2} times the pages, {at_once:.1} at once",
            alone,
            side,
            side as f64 / alone as f64
        );
        assert_eq!(alone, count.div_ceil(1000));
        if strict {
            if side * 10 > alone * 16 || times < 8.0 {
                missed.push(shape);
            }
        } else {
            // With few pages, the first ones weigh more.
            assert!(side <= alone * 16 / 10 + 24, "{shape:?}");
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn few_keys_are_not_listed_slower_in_parallel() {
    for shape in SHAPES {
        let keys = keys(shape, 10_000, 0);
        let server = serve(Flavor::S3, &keys, 30);
        let one = ListOptions {
            tasks: 1,
            ..ListOptions::default()
        };
        let (alone, slow) = listed(&server, &keys, &one, "alone");
        let (side, fast) = listed(&server, &keys, &ListOptions::default(), "side by side");
        println!(
            "{shape:?}: alone {} pages in {slow:.2?}, side by side {} pages in {fast:.2?}",
            alone, side
        );
        if std::env::var_os("SHARDMILL_FIGURES").is_some() {
            assert!(fast.as_secs_f64() <= slow.as_secs_f64() * 1.1, "{shape:?}");
        }
    }
}

#[test]
fn parallel_listing_is_exact_on_every_store() {
    for flavor in Flavor::WRITABLE {
        for shape in SHAPES {
            let keys = keys(shape, 3000, 0);
            let server = serve(flavor, &keys, 1);
            // Small pages, so that there are many of them.
            let options = ListOptions {
                page: 50,
                ..ListOptions::default()
            };
            let shown = format!("{flavor:?} {shape:?}");
            let (pages, _) = listed(&server, &keys, &options, &shown);
            println!("{shown}: {pages} pages");
        }
    }
}

#[test]
fn keys_invalid_as_paths_are_listed() {
    let keys: BTreeSet<String> = ["a//b", "a/", "a/b", "a\u{1}b", "/", "//", "a%b", "日本\tx"]
        .into_iter()
        .map(str::to_owned)
        .collect();
    let keys: BTreeSet<String> = keys
        .into_iter()
        .filter(|key| !key.contains('\u{1}'))
        .collect();
    for page in [1, 2, 1000] {
        let server = serve(Flavor::S3, &keys, 0);
        let options = ListOptions {
            page,
            ..ListOptions::default()
        };
        // Those that end with a slash mark folders.
        let expected: Vec<&String> = keys.iter().filter(|key| !key.ends_with('/')).collect();
        assert_eq!(
            names(&remote(&server, ""), "", &options)
                .iter()
                .collect::<Vec<_>>(),
            expected
        );
    }
}

#[test]
fn listing_by_prefix_limit_and_cancellation() {
    let keys = keys(Shape::Dated, 2000, 0);
    for flavor in [Flavor::S3, Flavor::Azure, Flavor::Files] {
        let server = serve(flavor, &keys, 0);
        let remote = remote(&server, "/events");
        let options = ListOptions {
            page: 20,
            ..ListOptions::default()
        };
        let found = names(&remote, "year=2020/month=1", &options);
        let expected: Vec<_> = keys
            .iter()
            .filter_map(|key| key.strip_prefix("events/"))
            .filter(|name| name.starts_with("year=2020/month=1"))
            .collect();
        assert!(!expected.is_empty() && found == expected, "{flavor:?}");
        let few = ListOptions {
            max: 1999,
            ..options
        };
        let refused = remote.list_sorted("", None, &few, &mut cancel);
        assert_eq!(refused.err().unwrap().id(), "limit-list");
        let refused = remote.list_sorted("", None, &options, &mut |_| false);
        assert_eq!(refused.err().unwrap().id(), "interrupted");
    }
}

#[test]
fn listing_reduces_concurrency_when_throttled() {
    let keys = keys(Shape::Numbered, 3000, 0);
    let server = serve(Flavor::S3, &keys, 2);
    server.set(Settings {
        faults: Script::random(7, 40, vec![Fault::status(503)]),
        latency: Duration::from_millis(2),
        ..Settings::default()
    });
    let remote = alone(&RemoteOptions {
        request: RequestOptions {
            connections: 16,
            ..quick(&server).request
        },
        retry: RetryOptions {
            outlasts_outages: true,
            ..quick(&server).retry
        },
        ..quick(&server)
    });
    let all = remote_location("s3://bucket");
    let all = Remote::new(&all, &remote.shared.options, true).unwrap();
    let options = ListOptions {
        page: 20,
        ..ListOptions::default()
    };
    assert_eq!(names(&all, "", &options).len(), 3000);
    let throttled = server.counts().faults;
    assert!(throttled > 0);
    assert!(all.live().unwrap().store.small.limit() < 16);
}
