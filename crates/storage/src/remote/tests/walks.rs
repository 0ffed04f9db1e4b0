//! Listings of very many objects: exact, fast, and with few requests more than pages.

use crate::{RequestOptions, RetryOptions};
use std::collections::BTreeSet;

use shardmill_testing::s3::Flavor;

use super::shapes::{SHAPES, Shape, keys};
use super::*;
use crate::{Dir, ListOptions, ListReport, Manifest, ManifestEntry};

fn go_on(_: u64) -> bool {
    true
}

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

fn remote(server: &S3Server, path: &str) -> Remote {
    let Location::Remote(location) = Location::parse(&format!("{}{path}", server.url())).unwrap()
    else {
        panic!();
    };
    let options = RemoteOptions {
        settings: server.environment(),
        ..RemoteOptions::default()
    };
    Remote::new(&location, &options, true).unwrap()
}

/// Lists all keys, compares the result, and returns how long it took.
fn listed(
    server: &S3Server,
    keys: &BTreeSet<String>,
    options: &ListOptions,
    shown: &str,
) -> (ListReport, Duration) {
    let root = tempfile::tempdir().unwrap();
    let dir = Dir::open(root.path()).unwrap();
    let began = Instant::now();
    let report = remote(server, "").list_to("", &dir, "list", options, &mut go_on);
    let took = began.elapsed();
    let report = report.unwrap();
    let manifest = Manifest::open(&dir, "list").unwrap();
    let found: Vec<_> = manifest
        .entries()
        .map(|entry| entry.unwrap().name)
        .collect();
    assert!(found.iter().eq(keys.iter()), "{shown}: other keys");
    assert_eq!(
        (report.objects, report.repeated),
        (keys.len() as u64, 0),
        "{shown}"
    );
    assert_eq!(manifest.objects(), report.objects);
    // No other files are left.
    assert_eq!(dir.list().unwrap(), ["list"]);
    (report, took)
}

/// With `SHARDMILL_FIGURES`, lists 200,000 keys at 30 ms per page and checks the time. Without it, there are fewer keys
/// and no check of the time, because other tests share the CPU.
#[test]
fn many_keys_are_listed_in_a_fraction_of_the_time() {
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
        server.forget_counts();
        let (side, fast) = listed(&server, &keys, &ListOptions::default(), "side by side");
        let at_once = server.counts().load.mean_transfers();
        let times = slow.as_secs_f64() / fast.as_secs_f64();
        println!(
            "{shape:?}: {count} keys, alone {} pages in {slow:.2?}, side by side {} pages in {fast:.2?}: {times:.1} times as fast, {:.2} times the pages, {at_once:.1} at once",
            alone.pages,
            side.pages,
            side.pages as f64 / alone.pages as f64
        );
        assert_eq!(alone.pages, count.div_ceil(1000));
        if strict {
            if side.pages * 10 > alone.pages * 16 || times < 8.0 {
                missed.push(shape);
            }
        } else {
            // With few pages, the first ones weigh more.
            assert!(side.pages <= alone.pages * 16 / 10 + 24, "{shape:?}");
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn few_keys_are_not_listed_more_slowly() {
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
            alone.pages, side.pages
        );
        if std::env::var_os("SHARDMILL_FIGURES").is_some() {
            assert!(fast.as_secs_f64() <= slow.as_secs_f64() * 1.1, "{shape:?}");
        }
    }
}

#[test]
fn every_store_is_listed_exactly() {
    for flavor in [Flavor::S3, Flavor::Google, Flavor::Azure, Flavor::Files] {
        for shape in SHAPES {
            let keys = keys(shape, 3000, 0);
            let server = serve(flavor, &keys, 1);
            // Small pages, so that there are many of them.
            let options = ListOptions {
                page: 50,
                ..ListOptions::default()
            };
            let shown = format!("{flavor:?} {shape:?}");
            let (report, _) = listed(&server, &keys, &options, &shown);
            println!("{shown}: {} pages", report.pages);
        }
    }
}

#[test]
fn keys_that_are_no_paths_are_listed_and_counted() {
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
        let (report, _) = listed(&server, &keys, &options, "odd");
        assert_eq!((report.markers, report.no_paths), (3, 2));
    }
}

#[test]
fn a_part_of_the_keys_and_too_many() {
    let keys = keys(Shape::Dated, 2000, 0);
    for flavor in [Flavor::S3, Flavor::Azure, Flavor::Files] {
        let server = serve(flavor, &keys, 0);
        let root = tempfile::tempdir().unwrap();
        let dir = Dir::open(root.path()).unwrap();
        let remote = remote(&server, "/events");
        let options = ListOptions {
            page: 20,
            ..ListOptions::default()
        };
        remote
            .list_to("year=2020/month=1", &dir, "list", &options, &mut go_on)
            .unwrap();
        let manifest = Manifest::open(&dir, "list").unwrap();
        let found: Vec<_> = manifest
            .entries()
            .map(|entry| entry.unwrap().name)
            .collect();
        let expected: Vec<_> = keys
            .iter()
            .filter_map(|key| key.strip_prefix("events/"))
            .filter(|name| name.starts_with("year=2020/month=1"))
            .collect();
        assert!(!expected.is_empty() && found == expected, "{flavor:?}");
        let few = ListOptions {
            most: 1999,
            ..options
        };
        let error = remote
            .list_to("", &dir, "more", &few, &mut go_on)
            .unwrap_err();
        assert_eq!(error.id(), "limit-list");
        let error = remote
            .list_to("", &dir, "more", &options, &mut |_| false)
            .unwrap_err();
        assert_eq!(error.id(), "interrupted");
        assert_eq!(dir.list().unwrap(), ["list"]);
    }
}

#[test]
fn a_listing_adapts_to_a_store_that_asks_to_slow_down() {
    let keys = keys(Shape::Numbered, 3000, 0);
    let server = serve(Flavor::S3, &keys, 2);
    server.set(Settings {
        faults: Script::random(
            7,
            10,
            vec![Fault::status(503), Fault::status(500), Fault::CloseBefore],
        ),
        latency: Duration::from_millis(2),
        ..Settings::default()
    });
    let remote = alone(&RemoteOptions {
        request: RequestOptions {
            connections: 16,
            ..quick(&server).request
        },
        // One request in ten fails, so four attempts are too few for hundreds of pages.
        retry: RetryOptions {
            attempts: 8,
            ..quick(&server).retry
        },
        ..quick(&server)
    });
    let root = tempfile::tempdir().unwrap();
    let dir = Dir::open(root.path()).unwrap();
    let all = match Location::parse("s3://bucket").unwrap() {
        Location::Remote(location) => Remote::new(&location, &remote.shared.options, true).unwrap(),
        Location::Local(_) => panic!(),
    };
    let options = ListOptions {
        page: 20,
        ..ListOptions::default()
    };
    let report = all.list_to("", &dir, "list", &options, &mut go_on).unwrap();
    assert_eq!(report.objects, 3000);
    let throttled = server.counts().faults;
    assert!(throttled > 0);
    assert!(all.live().unwrap().store.small.limit() < 16);
}

#[test]
fn manifests_tell_what_changed() {
    let names: BTreeSet<String> = ["a", "b", "c/d"].map(str::to_owned).into();
    let server = serve(Flavor::S3, &names, 0);
    let root = tempfile::tempdir().unwrap();
    let dir = Dir::open(root.path()).unwrap();
    let list = |target: &str| {
        let options = ListOptions::default();
        remote(&server, "")
            .list_to("", &dir, target, &options, &mut go_on)
            .unwrap();
        Manifest::open(&dir, target).unwrap()
    };
    let (first, same) = (list("first"), list("same"));
    assert_eq!(first.digest(), same.digest());
    assert_eq!(first.location(), "s3://bucket");
    let changes = |old: &Manifest, new: &Manifest| {
        let mut found = Vec::new();
        let name =
            |entry: Option<&ManifestEntry>| entry.map(|entry| (entry.name.clone(), entry.bytes));
        old.compare(new, |before, after| {
            found.push((name(before), name(after)));
            Ok(())
        })
        .unwrap();
        found
    };
    assert_eq!(changes(&first, &same), []);
    server.objects().put("a", b"1".to_vec());
    server.objects().remove("b");
    server.objects().put("z", Vec::new());
    let later = list("later");
    let of = |name: &str, bytes: u64| Some((name.to_owned(), bytes));
    let expected = [
        (of("a", 0), of("a", 1)),
        (of("b", 0), None),
        (None, of("z", 0)),
    ];
    assert_eq!(changes(&first, &later), expected);

    // A truncated or changed file is not a manifest.
    let path = root.path().join("later");
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    assert_eq!(
        Manifest::open(&dir, "later").unwrap_err().id(),
        "storage-answer"
    );
    let mut other = whole;
    let at = other.windows(2).position(|two| two == b"z\t").unwrap();
    other[at] = b'y';
    std::fs::write(&path, &other).unwrap();
    let manifest = Manifest::open(&dir, "later").unwrap();
    let last = manifest.entries().last().unwrap();
    assert_eq!(last.unwrap_err().id(), "storage-answer");
}
