//! Tests of cache folders whose dataset has grown.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use shardmill_core::Error;
use shardmill_dataset::StreamOptions;
use shardmill_storage::Location;
use shardmill_testing::mds::{Spec, read_index, write_index};
use shardmill_webdataset::TarCompression;

use super::tars::{TarSet, plain};
use crate::{Reader, ReaderOptions};

/// A dataset of compressed tar files, and a cache of it.
struct Growing {
    root: tempfile::TempDir,
}

impl Growing {
    fn new(shards: usize) -> Self {
        let growing = Self {
            root: tempfile::tempdir().unwrap(),
        };
        growing.write(shards);
        growing
    }

    fn write(&self, shards: usize) {
        let set = TarSet {
            compression: Some(TarCompression::Zstd { level: 3 }),
            ..TarSet::default()
        };
        set.write(&self.remote(), &plain(shards));
    }

    fn remote(&self) -> PathBuf {
        self.root.path().join("remote")
    }

    fn local(&self) -> PathBuf {
        self.root.path().join("local")
    }

    fn open(&self) -> Result<Reader, Error> {
        open(&self.remote(), &self.local())
    }

    /// Reads all samples, and returns how many shards were fetched.
    fn read(&self) -> u64 {
        read(&self.open().unwrap())
    }

    /// Returns the error of opening the dataset, which leaves the index in the folder as it was.
    fn refused(&self) -> String {
        let index = fs::read(self.local().join("index.json")).unwrap();
        let error = self.open().unwrap_err();
        assert_eq!(error.id(), "cache-foreign");
        assert_eq!(fs::read(self.local().join("index.json")).unwrap(), index);
        error.to_string()
    }

    /// Returns the cache's own folders of all indexes.
    fn own(&self) -> Vec<PathBuf> {
        let own = fs::read_dir(self.root.path().join(".local.shardmill")).unwrap();
        let own = own.map(|entry| entry.unwrap().path());
        own.filter(|path| path.is_dir()).collect()
    }

    /// Returns the numbers of the shards that the cache owns.
    fn markers(&self) -> BTreeSet<usize> {
        let [own] = &self.own()[..] else {
            panic!("{:?}", self.own());
        };
        let names = fs::read_dir(own).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter_map(|name| name.parse().ok()).collect()
    }
}

fn open(remote: &Path, local: &Path) -> Result<Reader, Error> {
    let stream = StreamOptions::remote(Location::Local(remote.to_owned()), local);
    Reader::open(&[stream], &ReaderOptions::default())
}

fn read(reader: &Reader) -> u64 {
    for number in 0..reader.catalog().samples() {
        reader.sample(number).unwrap();
    }
    reader.cache_stats().fetched_shards
}

#[test]
fn cache_of_grown_dataset_keeps_cached_shards() {
    let growing = Growing::new(3);
    let before = growing.open().unwrap();
    assert_eq!(read(&before), 3);
    for shards in [5, 6] {
        growing.write(shards);
        assert_eq!(growing.read(), if shards == 5 { 2 } else { 1 });
        assert_eq!(
            fs::read(growing.local().join("index.json")).unwrap(),
            fs::read(growing.remote().join("index.json")).unwrap()
        );
        assert_eq!(growing.markers(), (0..shards).collect());
        assert_eq!(growing.read(), 0);
    }
    // A reader from before sees what it saw.
    assert_eq!(before.catalog().samples(), 30);
    before.sample(29).unwrap();
    assert_eq!(growing.own().len(), 1);
}

#[test]
fn a_process_that_was_killed_while_the_index_was_replaced_leaves_a_good_folder() {
    let growing = Growing::new(2);
    assert_eq!(growing.read(), 2);
    let old = fs::read(growing.local().join("index.json")).unwrap();
    growing.write(3);
    drop(growing.open().unwrap());
    // The own files belong to the new index already, and the index is the old one.
    fs::write(growing.local().join("index.json"), old).unwrap();
    assert_eq!(growing.read(), 1);
    assert_eq!(growing.markers(), (0..3).collect());
}

#[test]
fn cache_rejects_dataset_that_is_not_an_extension() {
    let growing = Growing::new(3);
    assert_eq!(growing.read(), 3);
    growing.write(2);
    let message = growing.refused();
    assert!(message.contains("neither the index of"), "{message}");
    growing.write(4);
    let mut index = read_index(&growing.remote()).unwrap();
    index["shards"][1]["zip_data"]["hashes"]["sha256"] = "0".repeat(64).into();
    write_index(&growing.remote(), &index).unwrap();
    growing.refused();
    growing.write(4);
    assert_eq!(growing.read(), 1);
}

#[test]
fn index_not_written_by_the_cache_is_not_replaced() {
    let growing = Growing::new(3);
    fs::create_dir(growing.local()).unwrap();
    let index = growing.remote().join("index.json");
    fs::copy(&index, growing.local().join("index.json")).unwrap();
    assert_eq!(growing.read(), 3);
    growing.write(4);
    growing.refused();
}

#[test]
fn cache_rejects_dataset_that_moved_and_then_grew() {
    let growing = Growing::new(3);
    assert_eq!(growing.read(), 3);
    let moved = growing.root.path().join("moved");
    fs::rename(growing.remote(), &moved).unwrap();
    // The index is the same, so the folder may be used.
    assert_eq!(read(&open(&moved, &growing.local()).unwrap()), 0);
    growing.write(4);
    fs::remove_dir_all(&moved).unwrap();
    fs::rename(growing.remote(), &moved).unwrap();
    let error = open(&moved, &growing.local()).unwrap_err();
    assert_eq!(error.id(), "cache-foreign");
}

#[test]
fn grown_dataset_without_hashes_is_rejected() {
    let root = tempfile::tempdir().unwrap();
    let (remote, local) = (root.path().join("remote"), root.path().join("local"));
    for (hashes, is_kept) in [("[]", false), ("[\"xxh64\"]", true)] {
        let hashes: serde_json::Value = serde_json::from_str(hashes).unwrap();
        let spec = Spec::mds(&[("x", "int", Some(8))]).with("hashes", hashes);
        let shard = spec.shard(&[vec![1; 8], vec![2; 8]]);
        let _ = fs::remove_dir_all(&local);
        spec.write(&remote, std::slice::from_ref(&shard)).unwrap();
        read(&open(&remote, &local).unwrap());
        spec.write(&remote, &[shard.clone(), shard]).unwrap();
        assert_eq!(open(&remote, &local).is_ok(), is_kept);
    }
}
