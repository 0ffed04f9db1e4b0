//! Tests of the cache with real folders and scripted fetches. Without worker threads, everything runs in the test's
//! thread, in a fixed order.

pub(crate) mod disk;
mod folders;
mod schedule;
mod shared;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};

use serde_json::json;
use shardmill_core::Diagnostic as _;
use shardmill_storage::Location;
use shardmill_testing::mds::{Spec, sample};

use super::engine::Engine;
use super::folder::{MARKER_BYTES, weight};
use super::origin::{Done, Fetch, Origins, PartKind, Pending, Piece, stored};
use super::{Access, CacheOptions, Cancel, ShardCache};
use crate::error::ReaderError;
use shardmill_cache::AccessPlan;
use shardmill_dataset::{Catalog, CatalogOptions, StreamOptions};

/// A dataset and a local folder for its cache.
struct Set {
    root: tempfile::TempDir,
    stream: StreamOptions,
}

const SAMPLES: usize = 4;

/// The value of a sample: its number, padded so that shards have a realistic size.
fn value(shard: usize, at: usize) -> Vec<u8> {
    let mut bytes = format!("{shard}:{at}:").into_bytes();
    bytes.resize(1000 + 7 * shard, b'a' + u8::try_from(at).unwrap());
    bytes
}

impl Set {
    fn new(shards: usize) -> Self {
        Self::with(shards, None)
    }

    fn with(shards: usize, compression: Option<&str>) -> Self {
        let root = tempfile::tempdir().unwrap();
        let mut spec =
            Spec::mds(&[("a", "bytes", None)]).with("hashes", json!(["sha256", "xxh64"]));
        if let Some(compression) = compression {
            spec = spec.with("compression", compression);
        }
        let shards: Vec<_> = (0..shards)
            .map(|shard| {
                let samples: Vec<_> = (0..SAMPLES)
                    .map(|at| sample(&[(false, &value(shard, at))]))
                    .collect();
                spec.shard(&samples)
            })
            .collect();
        spec.write(&root.path().join("remote"), &shards).unwrap();
        let remote = Location::Local(root.path().join("remote"));
        let stream = StreamOptions::remote(remote, root.path().join("local"));
        Self { root, stream }
    }

    /// JSON lines, whose offsets are in separate files.
    fn split(shards: usize) -> Self {
        let root = tempfile::tempdir().unwrap();
        let spec = Spec::json(&[("a", "str")]).with("compression", "zstd:3");
        let shards: Vec<_> = (0..shards)
            .map(|shard| {
                let line = |at| format!("{{\"a\": \"{shard}:{at}\"}}\n").into_bytes();
                spec.shard(&(0..SAMPLES).map(line).collect::<Vec<_>>())
            })
            .collect();
        spec.write(&root.path().join("remote"), &shards).unwrap();
        let remote = Location::Local(root.path().join("remote"));
        let stream = StreamOptions::remote(remote, root.path().join("local"));
        Self { root, stream }
    }

    fn catalog(&self) -> Arc<Catalog> {
        self.catalog_with(None)
    }

    fn catalog_with(&self, validate: Option<shardmill_mds::HashAlgo>) -> Arc<Catalog> {
        let options = CatalogOptions {
            validate,
            ..CatalogOptions::default()
        };
        let streams = std::slice::from_ref(&self.stream);
        Arc::new(Catalog::open(streams, &options).unwrap())
    }

    fn local(&self) -> PathBuf {
        self.root.path().join("local")
    }

    /// Returns the path of a shard in the cache.
    fn shard(&self, shard: usize) -> PathBuf {
        let name = self
            .catalog()
            .entry(shard)
            .unwrap()
            .data()
            .basename
            .to_string();
        self.local().join(name)
    }

    /// Flips a bit of a cached shard, which only a hash detects, and returns the original content. `unseen` restores
    /// the modification time.
    fn flip(&self, shard: usize, unseen: bool) -> Vec<u8> {
        use std::os::unix::fs::FileExt as _;

        let sound = fs::read(self.shard(shard)).unwrap();
        let file = fs::OpenOptions::new()
            .write(true)
            .open(self.shard(shard))
            .unwrap();
        let before = file.metadata().unwrap().modified().unwrap();
        file.write_all_at(&[sound[1500] ^ 1], 1500).unwrap();
        if unseen {
            file.set_modified(before).unwrap();
        }
        sound
    }

    /// Returns the cache's own folder.
    fn own(&self) -> PathBuf {
        let own = fs::read_dir(self.root.path().join(".local.shardmill")).unwrap();
        own.map(|entry| entry.unwrap().path()).next().unwrap()
    }

    fn marker(&self, shard: usize) -> PathBuf {
        self.own().join(shard.to_string())
    }

    /// Returns the size of a cache for this many shards, whichever they are.
    fn limit(&self, shards: usize) -> u64 {
        let catalog = self.catalog();
        let index = fs::metadata(self.local().join("index.json")).unwrap().len();
        let mut weights: Vec<u64> = (0..catalog.len())
            .map(|shard| weight(catalog.entry(shard).unwrap(), self.stream.keep_zip))
            .collect();
        weights.sort_unstable();
        index + weights.iter().rev().take(shards).sum::<u64>()
    }

    /// Returns the bytes of all files in the folder; hard links count once.
    fn usage(&self) -> u64 {
        fn walk(path: &Path, seen: &mut BTreeSet<u64>) -> u64 {
            let Ok(entries) = fs::read_dir(path) else {
                return 0;
            };
            entries
                .flatten()
                .map(|entry| match fs::symlink_metadata(entry.path()) {
                    Ok(found) if found.is_dir() => walk(&entry.path(), seen),
                    Ok(found) if seen.insert(found.ino()) => found.len(),
                    _ => 0,
                })
                .sum()
        }
        walk(&self.local(), &mut BTreeSet::new())
    }

    /// Returns the numbers of the shards in the folder.
    fn resident(&self) -> Vec<usize> {
        let catalog = self.catalog();
        (0..catalog.len())
            .filter(|shard| self.shard(*shard).exists())
            .collect()
    }

    fn temps(&self) -> usize {
        let own = fs::read_dir(self.own()).unwrap();
        own.filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_string_lossy().starts_with("tmp-")
        })
        .count()
    }
}

/// What a fetch does instead of returning the file.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Flips one bit.
    Flip,
    /// Truncates the file.
    Cut,
    /// Fails like an unavailable store.
    GiveUp,
}

/// Fetches from the dataset's folder as scripted by the test.
#[derive(Default)]
struct Script {
    inner: Mutex<ScriptInner>,
    asked: Condvar,
}

#[derive(Default)]
struct ScriptInner {
    calls: Vec<usize>,
    faults: BTreeMap<usize, VecDeque<Fault>>,
    /// Whether answers wait until the test releases them.
    held: bool,
    waiting: Vec<(usize, PartKind, Done, Arc<Catalog>)>,
    ranges: usize,
}

impl Script {
    fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    fn calls(&self) -> Vec<usize> {
        self.inner.lock().unwrap().calls.clone()
    }

    fn faults(&self, shard: usize, faults: &[Fault]) {
        let mut inner = self.inner.lock().unwrap();
        inner.faults.insert(shard, faults.iter().copied().collect());
    }

    fn hold(&self, held: bool) {
        self.inner.lock().unwrap().held = held;
    }

    fn waiting(&self) -> Vec<usize> {
        let inner = self.inner.lock().unwrap();
        inner.waiting.iter().map(|(shard, ..)| *shard).collect()
    }

    /// Waits until this many fetches wait for their answers.
    fn wait_for(&self, count: usize) {
        let mut inner = self.inner.lock().unwrap();
        while inner.waiting.len() < count {
            inner = self.asked.wait(inner).unwrap();
        }
    }

    /// Answers the fetch of a shard.
    fn answer(&self, shard: usize) {
        let (part, done, catalog, fault) = {
            let mut inner = self.inner.lock().unwrap();
            let at = inner
                .waiting
                .iter()
                .position(|(found, ..)| *found == shard)
                .unwrap();
            let (_, part, done, catalog) = inner.waiting.remove(at);
            let fault = inner.faults.get_mut(&shard).and_then(VecDeque::pop_front);
            (part, done, catalog, fault)
        };
        done(fetched(&catalog, shard, part, fault));
    }

    fn ranges(&self) -> usize {
        self.inner.lock().unwrap().ranges
    }
}

fn fetched(
    catalog: &Catalog,
    shard: usize,
    part: PartKind,
    fault: Option<Fault>,
) -> Result<Vec<u8>, ReaderError> {
    let (send, receive) = std::sync::mpsc::channel();
    let _pending = Origins.fetch(
        catalog,
        shard,
        part,
        Box::new(move |result| send.send(result).unwrap()),
    );
    let mut bytes = receive.recv().unwrap()?;
    match fault {
        None => {}
        Some(Fault::Flip) => *bytes.last_mut().unwrap() ^= 1,
        Some(Fault::Cut) => bytes.truncate(bytes.len() / 2),
        Some(Fault::GiveUp) => {
            return Err(ReaderError::from(shardmill_storage::StorageError::Io {
                action: "fetch",
                path: "remote".into(),
                source: std::io::ErrorKind::ConnectionReset.into(),
            }));
        }
    }
    Ok(bytes)
}

/// The fetcher of one cache; several share a script.
struct Fetcher {
    script: Arc<Script>,
    catalog: Arc<Catalog>,
}

impl Fetch for Fetcher {
    fn fetch(&self, catalog: &Catalog, shard: usize, part: PartKind, done: Done) -> Pending {
        let fault = {
            let mut inner = self.script.inner.lock().unwrap();
            assert!(stored(catalog, shard, part).is_some());
            if part == PartKind::Data {
                inner.calls.push(shard);
            }
            if inner.held {
                inner
                    .waiting
                    .push((shard, part, done, Arc::clone(&self.catalog)));
                self.script.asked.notify_all();
                return Box::new(());
            }
            inner.faults.get_mut(&shard).and_then(VecDeque::pop_front)
        };
        done(fetched(catalog, shard, part, fault));
        Box::new(())
    }

    fn read_ranges(
        &self,
        catalog: &Catalog,
        wanted: &[Piece],
    ) -> Vec<Result<Vec<u8>, ReaderError>> {
        self.script.inner.lock().unwrap().ranges += wanted.len();
        Origins.read_ranges(catalog, wanted)
    }
}

/// Options without worker threads.
fn options(limit: Option<u64>) -> CacheOptions {
    CacheOptions {
        limit,
        threads: 0,
        slack: Some(0),
        ..CacheOptions::default()
    }
}

fn shard_cache(set: &Set, options: &CacheOptions, script: &Arc<Script>) -> ShardCache {
    try_shard_cache(set, options, script).unwrap()
}

fn try_shard_cache(
    set: &Set,
    options: &CacheOptions,
    script: &Arc<Script>,
) -> Result<ShardCache, ReaderError> {
    let catalog = set.catalog();
    let fetcher = Fetcher {
        script: Arc::clone(script),
        catalog: Arc::clone(&catalog),
    };
    ShardCache::with_fetch(catalog, options, Arc::new(fetcher))
}

fn engine(shard_cache: &ShardCache) -> &Arc<Engine> {
    shard_cache.engine().unwrap()
}

/// Reads all samples of a shard, like a batch at `tick`. Returns whether the shard was open as a whole.
fn read(shard_cache: &ShardCache, shard: usize, tick: u64) -> bool {
    try_read(shard_cache, shard, tick).unwrap()
}

fn try_read(shard_cache: &ShardCache, shard: usize, tick: u64) -> Result<bool, ReaderError> {
    let mut found = shard_cache.need(&[shard], tick, &Cancel::new())?;
    match found.remove(0) {
        Access::Open(open) => {
            for at in 0..SAMPLES {
                let expected = sample(&[(false, &value(shard, at))]);
                assert!(
                    open.sample(at as u64).unwrap().bytes == expected,
                    "{shard}:{at}"
                );
            }
            open.check(&shard_cache.catalog).unwrap();
            Ok(true)
        }
        Access::Alone => {
            let wanted: Vec<_> = (0..SAMPLES as u64).map(|at| (shard, at)).collect();
            for (at, found) in shard_cache.samples(&wanted)?.into_iter().enumerate() {
                assert!(
                    found.bytes == sample(&[(false, &value(shard, at))]),
                    "{shard}:{at}"
                );
            }
            Ok(false)
        }
    }
}

/// An access plan in which each tick needs the listed shards.
fn access_plan(shards: usize, epochs: &[&[&[usize]]]) -> AccessPlan {
    let mut access_plan = AccessPlan::new(shards);
    for epoch in epochs {
        let mut uses: Vec<(usize, u64, u64)> = Vec::new();
        for (tick, needed) in (0_u64..).zip(epoch.iter()) {
            uses.extend(needed.iter().map(|shard| (*shard, tick, tick)));
        }
        uses.sort_unstable();
        access_plan.append(uses.into_iter(), epoch.len() as u64);
    }
    access_plan
}

/// Returns how many fetches the eviction policy alone needs on demand, with space for `room` shards of equal size.
fn policy_fetches(ticks: &[&[usize]], access_plan: &AccessPlan, room: u64) -> usize {
    use shardmill_cache::{Resident, make_room};

    let mut residents: Vec<Resident> = Vec::new();
    let mut fetches = 0;
    for (tick, needed) in (0_u64..).zip(ticks) {
        for &shard in *needed {
            if residents.iter().any(|found| found.shard == shard) {
                continue;
            }
            fetches += 1;
            let used = residents.len() as u64;
            let next = |shard| access_plan.next_use(shard, tick);
            let Some(leaving) = make_room(&residents, used, room, 1, tick, next) else {
                continue;
            };
            residents.retain(|found| !leaving.contains(&found.shard));
            residents.push(Resident {
                shard,
                bytes: 1,
                pinned: false,
            });
        }
    }
    fetches
}
