//! Tests of trees of files: in place, fetched from a folder, and fetched from a store.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use shardmill_core::Error;
use shardmill_order::{EpochConfig, ShuffleAlgo, World};
use shardmill_storage::Location;
use shardmill_testing::mds::{Spec, sample};

use crate::{Batch, BatchData, BatchOptions, CacheOptions, Reader, ReaderOptions};
use shardmill_dataset::{FileForm, FileOptions, StreamOptions};

mod stores;

/// A tree, and a folder to cache it in.
struct Tree {
    root: tempfile::TempDir,
}

fn name(number: usize) -> String {
    format!("{}/file {number:03} ä.bin", ["a", "b/c", "b-c"][number % 3])
}

fn contents(number: usize) -> Vec<u8> {
    format!("file {number} ")
        .repeat(number % 7 + 1)
        .into_bytes()
}

impl Tree {
    fn new(files: usize) -> Self {
        let root = tempfile::tempdir().unwrap();
        let tree = Self { root };
        for number in 0..files {
            tree.write(&name(number), &contents(number));
        }
        tree
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.remote().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn remote(&self) -> PathBuf {
        self.root.path().join("remote")
    }

    fn local(&self) -> PathBuf {
        self.root.path().join("local")
    }

    fn in_place(&self, form: FileForm) -> StreamOptions {
        StreamOptions {
            files: Some(
                FileOptions {
                    form,
                    ..FileOptions::default()
                }
                .into(),
            ),
            ..StreamOptions::local(self.remote())
        }
    }

    fn cached(&self, form: FileForm) -> StreamOptions {
        StreamOptions {
            remote: Some(Location::Local(self.remote())),
            local: Some(self.local()),
            ..self.in_place(form)
        }
    }

    /// Returns the size of all files in the cache, including its own records.
    fn used(&self) -> u64 {
        fn sum(path: &Path) -> u64 {
            let entries = fs::read_dir(path).into_iter().flatten();
            entries
                .map(|entry| {
                    let path = entry.unwrap().path();
                    // A file that is being evicted right now takes no space.
                    match fs::symlink_metadata(&path) {
                        Ok(found) if found.is_dir() => sum(&path),
                        Ok(found) => found.len(),
                        Err(_) => 0,
                    }
                })
                .sum()
        }
        sum(&self.local()) + sum(&self.root.path().join(".local.shardmill"))
    }
}

fn open(stream: &StreamOptions) -> Result<Reader, Error> {
    open_with(stream, None)
}

fn open_with(stream: &StreamOptions, limit: Option<u64>) -> Result<Reader, Error> {
    open_for(stream, limit, 0)
}

fn open_for(stream: &StreamOptions, limit: Option<u64>, owner: u64) -> Result<Reader, Error> {
    let options = ReaderOptions {
        cache: CacheOptions {
            limit,
            owner,
            timeout: Duration::from_millis(300),
            ..CacheOptions::default()
        },
        ..ReaderOptions::default()
    };
    Reader::open(std::slice::from_ref(stream), &options)
}

/// Returns the values of the samples of a batch, by column name.
fn rows(batch: &Batch) -> Vec<BTreeMap<String, Vec<u8>>> {
    let BatchData::Columns { schema, columns } = &batch.data else {
        panic!("samples of one schema");
    };
    (0..batch.len())
        .map(|at| {
            let values = columns
                .iter()
                .map(|column| column.value(at).unwrap().to_vec());
            let names = schema.names().into_iter().map(str::to_owned);
            names.zip(values).collect()
        })
        .collect()
}

fn text(row: &BTreeMap<String, Vec<u8>>, column: &str) -> String {
    String::from_utf8(row[column].clone()).unwrap()
}

/// Reads the samples of an epoch without padding, and returns their paths and bytes.
fn read(
    reader: &Reader,
    config: &EpochConfig,
    rank: u64,
    worker: u64,
) -> Vec<(u64, String, Vec<u8>)> {
    let options = BatchOptions {
        rank,
        worker,
        threads: 0,
        ..BatchOptions::default()
    };
    let mut batches = reader.epoch(config, options).unwrap();
    let mut all = Vec::new();
    while let Some(batch) = batches.next_batch().unwrap() {
        for (entry, row) in batch.entries.iter().zip(rows(&batch)) {
            if !entry.repeated {
                all.push((entry.sample.0, text(&row, "path"), row["data"].clone()));
            }
        }
    }
    all
}

#[test]
fn every_file_is_read_once_in_any_world() {
    let tree = Tree::new(97);
    let mut names: Vec<String> = (0..97).map(name).collect();
    names.sort_unstable();
    let reader = open(&tree.cached(FileForm::Data)).unwrap();
    assert_eq!(
        (reader.catalog().samples(), reader.catalog().len()),
        (97, 97)
    );
    for algo in [ShuffleAlgo::Py1e, ShuffleAlgo::Py1s, ShuffleAlgo::Shardmill] {
        for (nodes, ranks) in [(1, 1), (1, 2), (1, 3), (2, 2), (2, 4)] {
            for workers in 1..=4 {
                let world = World {
                    nodes,
                    ranks_per_node: ranks,
                    workers_per_rank: workers,
                };
                let mut config = reader.epoch_config(4, world);
                config.shuffle.enabled = true;
                config.shuffle.algo = algo;
                let mut seen = Vec::new();
                for rank in 0..nodes * ranks {
                    for worker in 0..workers {
                        seen.extend(read(&reader, &config, rank, worker));
                    }
                }
                seen.sort_unstable();
                let found: Vec<&str> = seen.iter().map(|(_, path, _)| path.as_str()).collect();
                assert_eq!(found, names, "{algo:?} {world:?}");
                for (number, path, data) in seen {
                    assert_eq!(names[usize::try_from(number).unwrap()], path);
                    assert_eq!(data, fs::read(tree.remote().join(path)).unwrap());
                }
            }
        }
    }
}

#[test]
fn new_reader_resumes_from_every_batch() {
    let tree = Tree::new(97);
    let first = open(&tree.cached(FileForm::Data)).unwrap();
    let mut config = first.epoch_config(1, World::SINGLE);
    config.shuffle.enabled = true;
    let whole = read(&first, &config, 0, 0);
    assert_eq!(whole.len(), 97);
    // A new file is ignored, because the list is stored.
    tree.write("a/new", b"new");
    for stop in 0..97 {
        let mut batches = first.epoch(&config, BatchOptions::default()).unwrap();
        for _ in 0..stop {
            batches.next_batch().unwrap().unwrap();
        }
        let mut resumed = config.clone();
        resumed.resume = Some(batches.state());
        drop(batches);
        let again = open(&tree.cached(FileForm::Data)).unwrap();
        assert_eq!(
            again.catalog().files_digest(),
            first.catalog().files_digest()
        );
        assert_eq!(read(&again, &resumed, 0, 0), whole[stop..], "{stop}");
    }
}

#[test]
fn in_place_tree_returns_its_own_paths_and_writes_nothing() {
    let tree = Tree::new(10);
    let before = shardmill_testing::files::Snapshot::of(tree.root.path()).unwrap();
    let reader = open_with(&tree.in_place(FileForm::Both), Some(1)).unwrap();
    let config = reader.epoch_config(3, World::SINGLE);
    let mut batches = reader.epoch(&config, BatchOptions::default()).unwrap();
    let mut count = 0;
    while let Some(batch) = batches.next_batch().unwrap() {
        assert!(batch.held.is_empty());
        for row in rows(&batch) {
            let path = tree.remote().join(text(&row, "path"));
            assert_eq!(text(&row, "file"), path.to_str().unwrap());
            assert_eq!(fs::read(path).unwrap(), row["data"]);
            count += 1;
        }
    }
    assert_eq!(count, 10);
    assert_eq!(reader.catalog().schemas().len(), 1);
    assert_eq!(
        reader.catalog().schemas()[0].names(),
        ["data", "file", "path"]
    );
    let after = shardmill_testing::files::Snapshot::of(tree.root.path()).unwrap();
    assert_eq!(before.differences(&after), Vec::<String>::new());
}

/// Makes a tree of files of one size, so that a limit is a number of files and the size of their list.
fn even(files: usize) -> Tree {
    let tree = Tree::new(0);
    for number in 0..files {
        tree.write(&format!("{number:03}"), &vec![b'x'; 1000]);
    }
    drop(open(&tree.cached(FileForm::File)).unwrap());
    tree
}

/// Returns a limit for this number of files of [`even`].
fn room(tree: &Tree, files: u64) -> u64 {
    let list = tree.root.path().join(".local.shardmill/files.list");
    fs::metadata(list).unwrap().len() + files * (1000 + 256)
}

#[test]
fn file_paths_stay_valid_until_the_batch_is_released() {
    let tree = even(60);
    let limit = room(&tree, 9);
    let reader = open_with(&tree.cached(FileForm::File), Some(limit)).unwrap();
    let mut config = reader.epoch_config(4, World::SINGLE);
    config.shuffle.enabled = true;
    let options = BatchOptions {
        threads: 0,
        ..BatchOptions::default()
    };
    for _ in 0..3 {
        let mut batches = reader.epoch(&config, options).unwrap();
        let mut held: Option<(Vec<String>, crate::Held)> = None;
        let mut count = 0;
        while let Some(batch) = batches.next_batch().unwrap() {
            let files: Vec<String> = rows(&batch).iter().map(|row| text(row, "file")).collect();
            count += files.len();
            // The files of the previous batch are pinned as well.
            for file in held.iter().flat_map(|(files, _)| files).chain(&files) {
                assert_eq!(fs::read(file).unwrap().len(), 1000, "{file}");
            }
            assert!(tree.used() <= limit, "{} of {limit}", tree.used());
            held = Some((files, batch.held));
        }
        assert_eq!(count, 60);
        config = batches.next_config();
    }
    assert!(reader.cache_stats().evictions > 60);
}

#[test]
fn files_left_in_use_stay_until_the_next_epoch_of_the_owner() {
    let tree = even(8);
    let limit = Some(room(&tree, 4));
    let stream = tree.cached(FileForm::File);
    let first = open_for(&stream, limit, 7).unwrap();
    let config = first.epoch_config(4, World::SINGLE);
    let options = BatchOptions {
        threads: 0,
        ..BatchOptions::default()
    };
    let mut batches = first.epoch(&config, options).unwrap();
    let batch = batches.next_batch().unwrap().unwrap();
    let files: Vec<String> = rows(&batch).iter().map(|row| text(row, "file")).collect();
    batch.held.leave_in_use(7, 0).unwrap();
    drop((batch, batches, first));
    // Another process needs the other half of the files, in the same epoch.
    let mut behind = config.clone();
    behind.resume = Some(shardmill_order::State {
        epoch: 0,
        sample_in_epoch: 4,
        num_canonical_nodes: Some(1),
        shuffle_seed: config.shuffle.seed,
        initial_physical_nodes: None,
    });
    for owner in [7, 8] {
        let reader = open_for(&stream, limit, owner).unwrap();
        let mut batches = reader.epoch(&behind, options).unwrap();
        assert_eq!(
            batches.next_batch().unwrap_err().id(),
            "cache-no-room",
            "{owner}"
        );
        for file in &files {
            assert_eq!(fs::read(file).unwrap().len(), 1000);
        }
    }
    // The files left in use are recognized as files of the cache.
    let reader = open_for(&stream, limit, 8).unwrap();
    drop(reader.hold_file(number_in(&reader, 0)).unwrap());
    assert_eq!(reader.cache_stats().fetched_shards, 0);
    drop(reader);
    let reader = open_for(&stream, limit, 7).unwrap();
    let mut later = behind;
    later.resume = later
        .resume
        .map(|state| shardmill_order::State { epoch: 1, ..state });
    let mut batches = reader.epoch(&later, options).unwrap();
    assert_eq!(batches.next_batch().unwrap().unwrap().len(), 4);
    assert!(files.iter().all(|file| !Path::new(file).exists()));
}

#[test]
fn batch_above_cache_limit_is_an_error_with_the_minimum() {
    let tree = even(20);
    let reader = open_with(&tree.cached(FileForm::File), Some(room(&tree, 3) + 700)).unwrap();
    let config = reader.epoch_config(4, World::SINGLE);
    let mut batches = reader.epoch(&config, BatchOptions::default()).unwrap();
    let error = batches.next_batch().unwrap_err();
    assert_eq!(error.id(), "config-cache-limit");
    let min = room(&tree, 4);
    assert_eq!(error.hint().unwrap(), format!("use at least {min} bytes"));
    assert_eq!(reader.least_limit(4).unwrap(), min);
    // The bytes of the files bypass the folder.
    let tree = Tree::new(0);
    tree.write("large", &vec![b'l'; 100_000]);
    tree.write("small", b"s");
    let reader = open_with(&tree.cached(FileForm::Data), Some(5000)).unwrap();
    let config = reader.epoch_config(2, World::SINGLE);
    let all = read(&reader, &config, 0, 0);
    assert_eq!(all[0].2.len(), 100_000);
    assert!(tree.used() <= 5000);
}

#[test]
fn missing_or_changed_files_are_errors() {
    for cached in [false, true] {
        for form in [FileForm::Data, FileForm::File] {
            let tree = Tree::new(3);
            let stream = if cached {
                tree.cached(form)
            } else {
                tree.in_place(form)
            };
            let reader = open(&stream).unwrap();
            let sample = |name: &str| reader.sample(reader.catalog().find_file(name).unwrap());
            fs::remove_file(tree.remote().join(name(0))).unwrap();
            let error = sample(&name(0)).unwrap_err();
            assert_eq!(error.id(), "file-missing", "{form:?} {cached}");
            assert_eq!(error.object().unwrap(), name(0));
            tree.write(&name(1), b"another length");
            let error = sample(&name(1)).unwrap_err();
            assert_eq!(error.id(), "file-changed", "{form:?} {cached}");
            assert!(error.object().unwrap().contains(&name(1)));
            // The same length, but a later modification time.
            let path = tree.remote().join(name(2));
            let file = fs::File::options().write(true).open(path).unwrap();
            file.set_modified(std::time::SystemTime::UNIX_EPOCH)
                .unwrap();
            assert_eq!(sample(&name(2)).unwrap_err().id(), "file-changed");
            let config = reader.epoch_config(3, World::SINGLE);
            let mut batches = reader.epoch(&config, BatchOptions::default()).unwrap();
            assert!(
                ["file-missing", "file-changed"].contains(&batches.next_batch().unwrap_err().id())
            );
        }
    }
}

#[test]
fn patterns_select_files_and_bad_trees_are_errors() {
    let tree = Tree::new(1);
    let listed = |include: &[&str], exclude: &[&str]| {
        let mut stream = tree.in_place(FileForm::Data);
        let files = &mut stream.files.as_mut().unwrap().options;
        files.include = include.iter().map(|&text| text.to_owned()).collect();
        files.exclude = exclude.iter().map(|&text| text.to_owned()).collect();
        open(&stream).map(|reader| {
            let path = |number| reader.file_path(number).unwrap().to_owned();
            (0..reader.catalog().samples())
                .map(path)
                .collect::<Vec<_>>()
        })
    };
    for name in [
        "x/1.jpg",
        "x/y/2.JPG",
        "x/y/3.jpg",
        "4.jpg",
        ".hidden/5.jpg",
    ] {
        tree.write(name, b"1");
    }
    assert_eq!(
        listed(&["*.jpg"], &[".*/**"]).unwrap(),
        ["4.jpg", "x/1.jpg", "x/y/3.jpg"]
    );
    assert_eq!(
        listed(&["x/**/*.jpg"], &[]).unwrap(),
        ["x/1.jpg", "x/y/3.jpg"]
    );
    assert_eq!(listed(&["x/*"], &["1.*"]).unwrap_err().id(), "tree-empty");
    assert_eq!(listed(&["["], &[]).unwrap_err().id(), "config-pattern");
    assert_eq!(listed(&[], &[]).unwrap().len(), 6);
    std::os::unix::fs::symlink("x", tree.remote().join("link")).unwrap();
    assert_eq!(listed(&[], &[]).unwrap_err().id(), "path-symlink");
    let empty = Tree::new(0);
    fs::create_dir(empty.remote()).unwrap();
    let error = open(&empty.cached(FileForm::Data)).unwrap_err();
    assert_eq!(
        (error.id(), error.hint().unwrap()),
        ("tree-empty", "see whether the place is the right one")
    );
}

#[test]
fn stored_file_list_is_reused_until_relist() {
    let tree = Tree::new(6);
    let mut stream = tree.cached(FileForm::File);
    let reader = open(&stream).unwrap();
    let digest = reader.catalog().files_digest();
    for number in 0..6 {
        reader.sample(number).unwrap();
    }
    let file = tree.local().join(name(0));
    assert_eq!(fs::read(&file).unwrap(), contents(0));
    tree.write(&name(0), b"changed, and longer than it was");
    let number = reader.catalog().find_file(&name(0)).unwrap();
    assert_eq!(reader.check_file(number).unwrap_err().id(), "file-changed");
    // The list is unchanged, and so is the file that was fetched with it.
    assert_eq!(open(&stream).unwrap().catalog().files_digest(), digest);
    // Other patterns need another list.
    let mut other = stream.clone();
    other.files.as_mut().unwrap().options.include = vec!["*".to_owned()];
    assert_eq!(open(&other).unwrap_err().id(), "cache-foreign");
    // The expected digest is compared with the list.
    stream.files.as_mut().unwrap().options.expect = digest.clone();
    drop(open(&stream).unwrap());
    stream.files.as_mut().unwrap().options.expect = Some("0".repeat(64));
    assert_eq!(open(&stream).unwrap_err().id(), "files-digest");
    stream.files.as_mut().unwrap().options.expect = None;
    drop(reader);
    stream.files.as_mut().unwrap().options.relist = true;
    let again = open(&stream).unwrap();
    assert_ne!(again.catalog().files_digest(), digest);
    assert!(!file.exists(), "what the old list fetched is gone");
    again.sample(number).unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"changed, and longer than it was");
    // Nothing has changed, so nothing is fetched again.
    let third = open(&stream).unwrap();
    third.sample(number).unwrap();
    assert_eq!(third.cache_stats().fetched_shards, 0);
    drop((again, third));
    // A truncated list is an error.
    let list = tree.root.path().join(".local.shardmill/files.list");
    let bytes = fs::read(&list).unwrap();
    stream.files.as_mut().unwrap().options.relist = false;
    for end in [0, 10, bytes.len() / 2, bytes.len() - 3] {
        fs::write(&list, &bytes[..end]).unwrap();
        let error = open(&stream).unwrap_err();
        assert!(
            ["files-list", "cache-foreign"].contains(&error.id()),
            "{end}: {error}"
        );
    }
}

#[test]
fn known_file_list_is_reused_for_the_same_tree() {
    let tree = Tree::new(9);
    for stream in [tree.in_place(FileForm::Data), tree.cached(FileForm::Data)] {
        let known = open(&stream).unwrap().catalog().known_files(0);
        assert!(known.is_some());
        tree.write("a/later.bin", b"not listed");
        let with = |include: &[&str], relist| {
            let mut stream = stream.clone();
            // The list next to a cache is stored separately.
            stream.local = stream.remote.is_none().then(|| tree.remote());
            stream
                .local
                .get_or_insert(tree.root.path().join(format!("{include:?} {relist}")));
            let files = &mut stream.files.as_mut().unwrap().options;
            files.known.clone_from(&known);
            files.include = include.iter().map(|one| (*one).to_owned()).collect();
            files.relist = relist;
            open(&stream).unwrap()
        };
        let again = with(&[], false);
        assert_eq!(
            (again.catalog().samples(), again.catalog().known_files(0)),
            (9, known.clone())
        );
        assert_eq!(again.file_path(9), None);
        assert_eq!(with(&[], true).catalog().samples(), 10, "listed anew");
        assert_eq!(
            with(&["l*"], false).catalog().samples(),
            1,
            "of other patterns"
        );
        fs::remove_file(tree.remote().join("a/later.bin")).unwrap();
    }
}

#[test]
fn foreign_file_in_the_cache_is_an_error() {
    let tree = Tree::new(2);
    let reader = open(&tree.cached(FileForm::Data)).unwrap();
    let path = tree.local().join(name(0));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, vec![b'?'; contents(0).len()]).unwrap();
    let number = reader.catalog().find_file(&name(0)).unwrap();
    let error = reader.sample(number).unwrap_err();
    assert_eq!(error.id(), "cache-foreign");
    assert!(!reader.is_here(number).unwrap());
}

#[test]
fn mix_of_files_and_shards_resumes_exactly() {
    let tree = Tree::new(31);
    let shards = tree.root.path().join("shards");
    let spec = Spec::mds(&[("data", "bytes", None), ("path", "str", None)]);
    let value = |number: usize| (format!("data {number}"), format!("shard sample {number}"));
    let made: Vec<_> = (0..4)
        .map(|shard| {
            let samples: Vec<_> = (shard * 9..shard * 9 + 9)
                .map(|number| {
                    let (data, path) = value(number);
                    sample(&[(false, data.as_bytes()), (false, path.as_bytes())])
                })
                .collect();
            spec.shard(&samples)
        })
        .collect();
    spec.write(&shards, &made).unwrap();
    let streams = [tree.cached(FileForm::Data), StreamOptions::local(&shards)];
    let reader = Reader::open(&streams, &ReaderOptions::default()).unwrap();
    let mut config = reader.epoch_config(5, World::SINGLE);
    config.shuffle.enabled = true;
    let read = |config: &EpochConfig| {
        let mut batches = reader.epoch(config, BatchOptions::default()).unwrap();
        let mut all = Vec::new();
        while let Some(batch) = batches.next_batch().unwrap() {
            for (at, entry) in batch.entries.iter().enumerate() {
                let encoded = match batch.sample(at) {
                    Some(encoded) => encoded.to_vec(),
                    None => {
                        let row = &rows(&batch)[at];
                        sample(&[(false, &row["data"]), (false, &row["path"])])
                    }
                };
                all.push((entry.sample.0, encoded, batches.state()));
            }
        }
        all
    };
    let whole = read(&config);
    assert_eq!(whole.len(), 67);
    let mut paths: Vec<String> = (0..31).map(name).collect();
    paths.sort_unstable();
    for (number, encoded, _) in &whole {
        let number = usize::try_from(*number).unwrap();
        let (data, path) = match number.checked_sub(31) {
            None => (
                fs::read(tree.remote().join(&paths[number])).unwrap(),
                paths[number].clone(),
            ),
            Some(number) => (value(number).0.into_bytes(), value(number).1),
        };
        assert_eq!(
            *encoded,
            sample(&[(false, &data), (false, path.as_bytes())])
        );
        let alone = reader.sample(number as u64).unwrap();
        assert_eq!(alone.bytes, *encoded);
    }
    for at in (4..67).step_by(5) {
        let mut resumed = config.clone();
        resumed.resume = Some(whole[at].2);
        let rest: Vec<_> = read(&resumed)
            .into_iter()
            .map(|(number, encoded, _)| (number, encoded))
            .collect();
        let expected: Vec<_> = whole[at + 1..]
            .iter()
            .map(|(number, encoded, _)| (*number, encoded.clone()))
            .collect();
        assert_eq!(rest, expected, "{at}");
    }
}

#[test]
fn named_files_are_pinned_preloaded_and_evicted_by_last_use() {
    let tree = even(12);
    let limit = room(&tree, 5) + 200;
    let reader = open_with(&tree.cached(FileForm::File), Some(limit)).unwrap();
    let number = |name: usize| reader.catalog().find_file(&format!("{name:03}")).unwrap();
    let here = || -> Vec<usize> {
        (0..12)
            .filter(|name| reader.is_here(number(*name)).unwrap())
            .collect()
    };
    let wait = || {
        let started = std::time::Instant::now();
        while reader.preloading() > 0 {
            assert!(started.elapsed() < Duration::from_secs(20));
            std::thread::yield_now();
        }
    };
    // The cache prefetches as many files as fit.
    let names: Vec<u64> = (0..12).map(number).collect();
    assert_eq!(reader.preload(&names).unwrap(), 12);
    wait();
    // They arrive in order, except that two threads request space.
    assert_eq!(here().len(), 5);
    assert!(here().iter().all(|name| *name < 7), "{:?}", here());
    let there: Vec<u64> = here().into_iter().map(number).collect();
    assert_eq!(reader.preload(&there).unwrap(), 0);
    // A file in use replaces a prefetched one.
    let held: Vec<_> = [7, 8]
        .map(|name| reader.hold_file(number(name)).unwrap())
        .into();
    assert_eq!(here().len(), 5);
    assert!(here().contains(&7) && here().contains(&8));
    // When all files are pinned, the next one waits, and then fails.
    let left: Vec<usize> = here().into_iter().filter(|name| *name < 7).collect();
    let more: Vec<_> = left
        .iter()
        .map(|name| reader.hold_file(number(*name)).unwrap())
        .collect();
    let error = reader.hold_file(number(11)).unwrap_err();
    assert_eq!(
        (error.id(), error.object().unwrap()),
        ("cache-no-room", "011")
    );
    assert!(tree.used() <= limit);
    for file in held.iter().chain(&more) {
        assert_eq!(fs::read(file.path()).unwrap().len(), 1000);
    }
    // Another process would fail as well; here another reader acts as one.
    let other = open_with(&tree.cached(FileForm::File), Some(limit)).unwrap();
    assert_eq!(
        other.hold_file(number(11)).unwrap_err().id(),
        "cache-no-room"
    );
    drop(held);
    drop(more);
    // Least recently used files are evicted first: 7, then 8.
    drop(reader.hold_file(number(10)).unwrap());
    assert!(!here().contains(&7) && here().contains(&8));
    drop(reader.hold_file(number(11)).unwrap());
    assert!(!here().contains(&8), "{:?}", here());
    // A later reader finds the files that are in the cache.
    let found = here();
    drop((reader, other));
    let reader = open_with(&tree.cached(FileForm::File), Some(limit)).unwrap();
    for name in found {
        assert!(reader.is_here(number_in(&reader, name)).unwrap());
        drop(reader.hold_file(number_in(&reader, name)).unwrap());
    }
    assert_eq!(reader.cache_stats().fetched_shards, 0);
    assert_eq!(reader.read_file(number_in(&reader, 3)).unwrap().len(), 1000);
}

fn number_in(reader: &Reader, name: usize) -> u64 {
    reader.catalog().find_file(&format!("{name:03}")).unwrap()
}
