//! Locates and loads the datasets of the original writer.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use shardmill_core::Limits;
use shardmill_mds::{FileInfo, Index, ShardEntry, ShardView};

/// One dataset of `fixtures/`.
#[derive(Debug)]
pub struct Fixture {
    pub name: String,
    pub dir: PathBuf,
}

/// The files of a shard before compression.
#[derive(Debug)]
pub struct RawShard {
    pub entry: ShardEntry,
    pub data: Vec<u8>,
    pub meta: Option<Vec<u8>>,
}

impl RawShard {
    pub fn open<'a>(&'a self, limits: &Limits) -> ShardView<'a> {
        ShardView::open(&self.entry, &self.data, self.meta.as_deref(), limits)
            .unwrap_or_else(|error| panic!("{}: {error}", self.entry.raw_data.basename))
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/mosaicml-streaming-0.13.0")
}

/// Returns all datasets, by name.
pub fn all() -> Vec<Fixture> {
    let mut names: Vec<String> = fs::read_dir(root())
        .expect("fixtures/mosaicml-streaming-0.13.0")
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| root().join(name).join("index.json").is_file())
        .collect();
    names.sort();
    // If the folder moves, the suite must fail and not pass without datasets.
    assert!(names.len() >= 160, "only {} datasets", names.len());
    names.iter().map(|name| named(name)).collect()
}

/// Datasets whose index is refused: one has a newline that no JSON parser skips, which the original reader cannot read
/// either. In the other, two shards share file names.
pub const REFUSED: [&str; 2] = ["json-newline-word", "merged-two-levels"];

/// Returns the datasets whose index is accepted.
pub fn accepted() -> Vec<Fixture> {
    let refused = |fixture: &Fixture| REFUSED.contains(&fixture.name.as_str());
    all()
        .into_iter()
        .filter(|fixture| !refused(fixture))
        .collect()
}

/// Returns one dataset.
pub fn named(name: &str) -> Fixture {
    Fixture {
        name: name.to_owned(),
        dir: root().join(name),
    }
}

/// Returns limits that accept everything the original can write: its arrays have up to 63 dimensions.
pub fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.array_dims = 63;
    limits
}

impl Fixture {
    pub fn is_merged(&self) -> bool {
        self.name.starts_with("merged-")
    }

    pub fn index_bytes(&self) -> Vec<u8> {
        fs::read(self.dir.join("index.json")).unwrap()
    }

    pub fn index(&self) -> Index {
        Index::parse(&self.index_bytes(), &limits())
            .unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// Returns what the original reader returned, one object for each sample.
    pub fn expected(&self) -> Vec<Json> {
        let path = self
            .dir
            .with_file_name(format!("{}.expected.jsonl", self.name));
        let text =
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    pub fn read(&self, info: &FileInfo) -> Vec<u8> {
        let path = self.dir.join(&*info.basename);
        fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    fn raw_file(&self, entry: &ShardEntry, raw: &FileInfo, zip: Option<&FileInfo>) -> Vec<u8> {
        let Some(zip) = zip else {
            assert_eq!(entry.config.compression, None, "{}", self.name);
            return self.read(raw);
        };
        let compression = entry
            .config
            .compression
            .expect("compressed file without compression");
        compression
            .decompress(&self.read(zip), Some(raw.bytes), &limits())
            .unwrap_or_else(|error| panic!("{}/{}: {error}", self.name, zip.basename))
    }

    pub fn shards(&self) -> Vec<RawShard> {
        let load = |entry: ShardEntry| RawShard {
            data: self.raw_file(&entry, &entry.raw_data, entry.zip_data.as_ref()),
            meta: entry
                .raw_meta
                .as_ref()
                .map(|raw| self.raw_file(&entry, raw, entry.zip_meta.as_ref())),
            entry,
        };
        self.index().shards.into_iter().map(load).collect()
    }

    /// Returns every file below the dataset as a relative path, except the `index.json` of merged parts.
    pub fn files(&self) -> Vec<String> {
        let mut files = Vec::new();
        let mut folders = vec![self.dir.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.file_name().unwrap() != "index.json" {
                    files.push(
                        path.strip_prefix(&self.dir)
                            .unwrap()
                            .to_str()
                            .unwrap()
                            .to_owned(),
                    );
                }
            }
        }
        files.sort();
        files
    }
}
