//! Tests of the cache with real folders and scripted fetches. Without worker threads, everything runs in the test's
//! thread, in a fixed order.

pub(crate) mod disk;
pub(crate) mod folders;
mod schedule;
mod shared;
pub(crate) mod simulate;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};

use shardmill_codec::{Compression, Digest, FileHashes, FileInfo, HashAlgo};
use shardmill_core::{Diagnostic, ErrorKind, Limits};
use shardmill_storage::{Dir, FileHandle, StorageError};

use crate::marker::MARKER_BYTES;
use crate::timings::Timings;
use crate::{
    Access, AccessPlan, Blob, BlobCatalog, BlobEntry, BlobFile, BlobPart, BlobProblem, BlobSet,
    Blobs, Cache, CacheError, CacheOptions, Cancel, Done, Engine, KnownFiles, Pending, RawBlob,
};

/// The error of a blob in these tests. It has no ids of its own in its implementation, so that `errors.txt` lists none.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
struct TestError {
    id: &'static str,
    kind: ErrorKind,
    text: String,
}

impl TestError {
    fn missing(path: &Path) -> CacheError<Self> {
        CacheError::Blob(Box::new(Self {
            id: "test-missing",
            kind: ErrorKind::Corrupt,
            text: format!("{} is missing", path.display()),
        }))
    }

    fn content() -> CacheError<Self> {
        CacheError::Blob(Box::new(Self {
            id: "test-content",
            kind: ErrorKind::Corrupt,
            text: "wrong content".to_owned(),
        }))
    }
}

impl Diagnostic for TestError {
    fn kind(&self) -> ErrorKind {
        self.kind
    }

    fn id(&self) -> &'static str {
        self.id
    }
}

type Result<T, E = CacheError<TestError>> = std::result::Result<T, E>;

/// One file of a blob in a set: raw, and compressed if the set is.
#[derive(Debug)]
struct TestFile {
    raw: FileInfo,
    packed: Option<FileInfo>,
}

impl TestFile {
    fn as_blob_file(&self) -> BlobFile<'_> {
        BlobFile {
            raw: &self.raw,
            packed: self.packed.as_ref(),
        }
    }
}

/// Blobs at an origin, and a local folder for their cache.
struct Set {
    root: tempfile::TempDir,
    blobs: Arc<Vec<(TestFile, Option<TestFile>)>>,
    is_remote: bool,
    keep_packed: bool,
}

/// The content of a blob: a few kilobytes that differ in every blob.
fn content(blob: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in 0..4_u8 {
        let end = bytes.len() + 1000 + 7 * blob;
        bytes.extend(format!("{blob}:{part}:").bytes());
        bytes.resize(end, b'a' + part);
    }
    bytes
}

fn table(blob: usize) -> Vec<u8> {
    format!("table of {blob}").into_bytes()
}

const ZSTD: &str = "zstd:3";

fn zstd() -> Compression {
    ZSTD.parse().unwrap()
}

impl Set {
    fn new(blobs: usize) -> Self {
        Self::with(blobs, false, false)
    }

    fn packed(blobs: usize) -> Self {
        Self::with(blobs, true, false)
    }

    fn with(blobs: usize, packed: bool, split: bool) -> Self {
        let root = tempfile::tempdir().unwrap();
        let remote = root.path().join("remote");
        fs::create_dir(&remote).unwrap();
        let write = |name: String, bytes: Vec<u8>| {
            let info = |name: &str, bytes: &[u8]| FileInfo {
                basename: name.into(),
                bytes: bytes.len() as u64,
                hashes: FileHashes::of(&[HashAlgo::Sha256, HashAlgo::Xxh64], bytes),
            };
            let raw = info(&name, &bytes);
            if !packed {
                fs::write(remote.join(name), bytes).unwrap();
                return TestFile { raw, packed: None };
            }
            let mut zip = Vec::new();
            let mut compressor = zstd().compressor().unwrap();
            compressor.compress(&bytes, &mut zip).unwrap();
            let name = format!("{name}.zstd");
            let packed = Some(info(&name, &zip));
            fs::write(remote.join(name), zip).unwrap();
            TestFile { raw, packed }
        };
        let blobs = (0..blobs).map(|blob| {
            let data = write(format!("blob.{blob:05}"), content(blob));
            let table = split.then(|| write(format!("blob.{blob:05}.table"), table(blob)));
            (data, table)
        });
        let blobs = Arc::new(blobs.collect());
        fs::write(remote.join("index.json"), [b' '; 1000]).unwrap();
        Self {
            root,
            blobs,
            is_remote: true,
            keep_packed: false,
        }
    }

    /// Compressed blobs of two files.
    fn split(blobs: usize) -> Self {
        Self::with(blobs, true, true)
    }

    fn len(&self) -> usize {
        self.blobs.len()
    }

    fn remote(&self) -> PathBuf {
        self.root.path().join("remote")
    }

    fn local(&self) -> PathBuf {
        match self.is_remote {
            true => self.root.path().join("local"),
            false => self.remote(),
        }
    }

    /// Creates the local folder with a copy of the index.
    fn open(&self, script: &Arc<Script>) -> TestBlobs {
        let dir = Dir::create(&self.local()).unwrap();
        let index = self.local().join("index.json");
        if self.is_remote && !index.exists() {
            fs::copy(self.remote().join("index.json"), index).unwrap();
        }
        TestBlobs {
            local: dir,
            remote: self.remote(),
            blobs: Arc::clone(&self.blobs),
            is_remote: self.is_remote,
            keep_packed: self.keep_packed,
            copies: 1,
            script: Arc::clone(script),
            timings: Arc::default(),
        }
    }

    /// Creates the local folder.
    fn prepare(&self) {
        drop(self.open(&Script::new()));
    }

    fn get(&self, blob: usize) -> Blob<'_> {
        blob_of(&self.blobs[blob], self.is_remote, self.keep_packed)
    }

    /// Returns the path of a blob in the cache.
    fn blob(&self, blob: usize) -> PathBuf {
        self.local().join(&*self.blobs[blob].0.raw.basename)
    }

    /// Flips a bit of a cached blob, which only a hash detects, and returns the original content. `unseen` restores
    /// the modification time.
    fn flip(&self, blob: usize, unseen: bool) -> Vec<u8> {
        use std::os::unix::fs::FileExt as _;

        let sound = fs::read(self.blob(blob)).unwrap();
        let file = fs::OpenOptions::new()
            .write(true)
            .open(self.blob(blob))
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

    fn marker(&self, blob: usize) -> PathBuf {
        self.own().join(blob.to_string())
    }

    /// Returns the size of a cache for this many blobs, whichever they are.
    fn limit(&self, blobs: usize) -> u64 {
        let index = fs::metadata(self.remote().join("index.json"))
            .unwrap()
            .len();
        let mut sizes: Vec<u64> = (0..self.len())
            .map(|blob| self.get(blob).cached_bytes())
            .collect();
        sizes.sort_unstable();
        index + sizes.iter().rev().take(blobs).sum::<u64>()
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

    /// Returns the numbers of the blobs in the folder.
    fn resident(&self) -> Vec<usize> {
        (0..self.len())
            .filter(|blob| self.blob(*blob).exists())
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

fn blob_of(files: &(TestFile, Option<TestFile>), is_remote: bool, keep_packed: bool) -> Blob<'_> {
    Blob {
        data: files.0.as_blob_file(),
        table: files.1.as_ref().map(TestFile::as_blob_file),
        is_kept: is_remote || files.0.packed.is_some(),
        keep_packed,
        needs_file: false,
        is_unhashed: false,
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

/// Fetches from the origin as scripted by the test.
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
    waiting: Vec<(usize, PathBuf, Done<TestError>)>,
}

impl Script {
    fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    fn calls(&self) -> Vec<usize> {
        self.inner.lock().unwrap().calls.clone()
    }

    fn faults(&self, blob: usize, faults: &[Fault]) {
        let mut inner = self.inner.lock().unwrap();
        inner.faults.insert(blob, faults.iter().copied().collect());
    }

    fn hold(&self, held: bool) {
        self.inner.lock().unwrap().held = held;
    }

    fn waiting(&self) -> Vec<usize> {
        let inner = self.inner.lock().unwrap();
        inner.waiting.iter().map(|(blob, ..)| *blob).collect()
    }

    /// Waits until this many fetches wait for their answers.
    fn wait_for(&self, count: usize) {
        let mut inner = self.inner.lock().unwrap();
        while inner.waiting.len() < count {
            inner = self.asked.wait(inner).unwrap();
        }
    }

    /// Answers the fetch of a blob.
    fn answer(&self, blob: usize) {
        let (path, done, fault) = {
            let mut inner = self.inner.lock().unwrap();
            let mut waiting = inner.waiting.iter();
            let at = waiting.position(|(found, ..)| *found == blob).unwrap();
            let (_, path, done) = inner.waiting.remove(at);
            let fault = inner.faults.get_mut(&blob).and_then(VecDeque::pop_front);
            (path, done, fault)
        };
        done(fetched(&path, fault));
    }
}

fn fetched(path: &Path, fault: Option<Fault>) -> Result<Vec<u8>> {
    let mut bytes = fs::read(path).map_err(|_| TestError::missing(path))?;
    match fault {
        None => {}
        Some(Fault::Flip) => *bytes.last_mut().unwrap() ^= 1,
        Some(Fault::Cut) => bytes.truncate(bytes.len() / 2),
        Some(Fault::GiveUp) => {
            return Err(CacheError::Storage(StorageError::Io {
                action: "fetch",
                path: "remote".into(),
                source: std::io::ErrorKind::ConnectionReset.into(),
            }));
        }
    }
    Ok(bytes)
}

/// The blobs of a set, fetched by a script. Several caches share a script.
struct TestBlobs {
    local: Dir,
    remote: PathBuf,
    blobs: Arc<Vec<(TestFile, Option<TestFile>)>>,
    is_remote: bool,
    keep_packed: bool,
    /// How often the set is in the catalog.
    copies: usize,
    script: Arc<Script>,
    timings: Arc<Timings>,
}

/// An open blob. Its bytes were read when it was opened.
#[derive(Debug)]
struct TestOpen {
    bytes: Vec<u8>,
    path: Option<PathBuf>,
}

impl TestOpen {
    /// Returns whether the file was truncated since it was opened.
    fn is_cut(&self) -> bool {
        let found = self.path.as_ref().and_then(|path| fs::metadata(path).ok());
        found.is_some_and(|found| found.len() != self.bytes.len() as u64)
    }
}

impl TestBlobs {
    fn path(&self, blob: usize, part: BlobPart) -> PathBuf {
        let file = self.blob(blob).unwrap().file(part).unwrap();
        self.remote.join(&*file.stored().basename)
    }
}

fn check(info: &FileInfo, bytes: &[u8]) -> Result<()> {
    let sound = info.hashes.check(HashAlgo::Sha256, bytes).is_ok();
    if bytes.len() as u64 == info.bytes && sound {
        return Ok(());
    }
    Err(TestError::content())
}

impl BlobCatalog for TestBlobs {
    type Error = TestError;

    fn len(&self) -> usize {
        self.blobs.len() * self.copies
    }

    fn sets(&self) -> impl ExactSizeIterator<Item = BlobSet<'_>> {
        (0..self.copies).map(|copy| BlobSet {
            local: &self.local,
            digest: &[7; 32],
            first: copy * self.blobs.len(),
            blobs: self.blobs.len(),
            is_remote: self.is_remote,
        })
    }

    fn entry(&self, blob: usize) -> Option<BlobEntry<'_>> {
        let number = blob % self.blobs.len();
        let set_number = blob / self.blobs.len();
        let files = self.blobs.get(number)?;
        Some(BlobEntry {
            blob: blob_of(files, self.is_remote, self.keep_packed),
            set: self.sets().nth(set_number)?,
            set_number,
            number,
        })
    }

    fn index_bytes(&self, _set: usize) -> u64 {
        self.local.open_file("index.json").unwrap().len()
    }

    fn is_divisible(&self, blob: usize) -> bool {
        self.is_remote
            && self
                .blob(blob)
                .is_some_and(|blob| blob.data.packed.is_none())
    }

    fn name(&self, blob: usize) -> String {
        self.path(blob, BlobPart::Data).display().to_string()
    }

    fn contents(&self, blob: usize) -> String {
        format!("samples {} to {}", 4 * blob, 4 * blob + 3)
    }

    fn error(&self, blob: usize, problem: BlobProblem) -> TestError {
        TestError {
            id: match problem {
                BlobProblem::Absent => "test-absent",
                BlobProblem::Changed | BlobProblem::Unverifiable => "test-problem",
            },
            kind: ErrorKind::Corrupt,
            text: format!("blob {blob}"),
        }
    }
}

impl Blobs for TestBlobs {
    type Open = TestOpen;

    fn timings(&self) -> &Arc<Timings> {
        &self.timings
    }

    fn fetch(&self, blob: usize, part: BlobPart, done: Done<TestError>) -> Pending {
        let path = self.path(blob, part);
        let fault = {
            let mut inner = self.script.inner.lock().unwrap();
            if part == BlobPart::Data {
                inner.calls.push(blob);
            }
            if inner.held {
                inner.waiting.push((blob, path, done));
                self.script.asked.notify_all();
                return Box::new(());
            }
            inner.faults.get_mut(&blob).and_then(VecDeque::pop_front)
        };
        done(fetched(&path, fault));
        Box::new(())
    }

    fn unpack(&self, blob: usize, files: Vec<Vec<u8>>) -> Result<RawBlob> {
        let mut raws = Vec::new();
        let mut packed = Vec::new();
        for (info, bytes) in self.blob(blob).unwrap().files().zip(files) {
            check(info.stored(), &bytes)?;
            if info.packed.is_none() {
                raws.push(bytes);
                continue;
            }
            let limits = Limits::default();
            raws.push(
                zstd()
                    .decompress(&bytes, Some(info.raw.bytes), &limits)
                    .unwrap(),
            );
            packed.push(bytes);
        }
        let mut raws = raws.into_iter();
        Ok(RawBlob {
            data: raws.next().unwrap(),
            table: raws.next(),
            packed,
        })
    }

    fn demands(&self, _blob: usize, file: &FileInfo) -> Vec<Digest> {
        file.hashes.get(HashAlgo::Sha256).into_iter().collect()
    }

    fn check_file(
        &self,
        _blob: usize,
        info: &FileInfo,
        file: &FileHandle,
        hashes: bool,
    ) -> Result<()> {
        if !hashes {
            return if file.len() == info.bytes {
                Ok(())
            } else {
                Err(TestError::content())
            };
        }
        check(info, &file.read_all(u64::MAX)?)
    }

    fn open_in_place(
        &self,
        blob: usize,
        _known: Option<KnownFiles>,
    ) -> Result<(TestOpen, Option<KnownFiles>)> {
        let path = self.path(blob, BlobPart::Data);
        let bytes = fetched(&path, None)?;
        let path = Some(path);
        Ok((TestOpen { bytes, path }, None))
    }

    fn map(
        &self,
        _blob: usize,
        _dir: &Dir,
        data: &FileHandle,
        _table: Option<&FileHandle>,
    ) -> Result<TestOpen> {
        Ok(TestOpen {
            bytes: data.read_all(u64::MAX)?,
            path: Some(data.path().to_owned()),
        })
    }

    fn in_memory(&self, _blob: usize, raw: RawBlob) -> Result<TestOpen> {
        Ok(TestOpen {
            bytes: raw.data,
            path: None,
        })
    }

    fn is_lasting(&self, error: &TestError) -> bool {
        error.id == "test-missing"
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

/// A cache whose engine is started by the first use.
#[derive(Debug)]
struct TestCache(Cache<TestBlobs>);

impl Deref for TestCache {
    type Target = Arc<Engine<TestBlobs>>;

    fn deref(&self) -> &Self::Target {
        self.0.engine().unwrap()
    }
}

fn open(set: &Set, options: &CacheOptions, script: &Arc<Script>) -> TestCache {
    try_open(set, options, script).unwrap()
}

fn try_open(set: &Set, options: &CacheOptions, script: &Arc<Script>) -> Result<TestCache> {
    Cache::new(Arc::new(set.open(script)), options).map(TestCache)
}

/// Reads a blob, like a batch at `tick`. Returns whether the blob was in the cache.
fn read(cache: &TestCache, blob: usize, tick: u64) -> bool {
    try_read(cache, blob, tick).unwrap()
}

fn try_read(cache: &TestCache, blob: usize, tick: u64) -> Result<bool> {
    match cache.need(&[blob], tick, &Cancel::default())?.remove(0) {
        Access::Open(open) => {
            assert!(open.bytes == content(blob), "{blob}");
            assert!(!open.is_cut());
            Ok(true)
        }
        Access::Uncached => {
            if cache.blobs.is_divisible(blob) {
                cache.count_parts(1);
            } else {
                assert!(cache.whole(blob)?.bytes == content(blob), "{blob}");
            }
            Ok(false)
        }
    }
}

/// An access plan in which each tick needs the listed blobs.
fn access_plan(blobs: usize, epochs: &[&[&[usize]]]) -> AccessPlan {
    let mut access_plan = AccessPlan::new(blobs);
    for epoch in epochs {
        let mut uses: Vec<(usize, u64, u64)> = Vec::new();
        for (tick, needed) in (0_u64..).zip(epoch.iter()) {
            uses.extend(needed.iter().map(|blob| (*blob, tick, tick)));
        }
        uses.sort_unstable();
        access_plan.append(uses.into_iter(), epoch.len() as u64);
    }
    access_plan
}

/// Returns how many fetches the eviction policy alone needs on demand, with space for `room` blobs of equal size.
fn policy_fetches(ticks: &[&[usize]], access_plan: &AccessPlan, room: u64) -> usize {
    use crate::policy::{Resident, make_room};

    let mut residents: Vec<Resident> = Vec::new();
    let mut fetches = 0;
    for (tick, needed) in (0_u64..).zip(ticks) {
        for &blob in *needed {
            if residents.iter().any(|found| found.blob == blob) {
                continue;
            }
            fetches += 1;
            let used = residents.len() as u64;
            let next = |blob| access_plan.next_use(blob, tick);
            let Some(leaving) = make_room(&residents, used, room, 1, tick, next) else {
                continue;
            };
            residents.retain(|found| !leaving.contains(&found.blob));
            residents.push(Resident {
                blob,
                bytes: 1,
                pinned: false,
            });
        }
    }
    fetches
}
