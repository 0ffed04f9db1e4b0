//! A small writer that determines every byte of the test data.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shardmill_core::{Diagnostic, Format, Progress};
use shardmill_dataset::{
    Dataset, DatasetError, OpenOptions, Problem, VerifyOptions, VerifyReport, verify,
};
use shardmill_mds::{
    Column, Compression, FileHashes, FileInfo, HashAlgo, Index, ShardConfig, ShardEntry,
    TextColumn, TextEncoding, basename, encode_header, encode_meta,
};
use tempfile::TempDir;

/// A dataset in a directory of its own.
pub struct Fixture {
    pub temp: TempDir,
    pub index: Index,
}

pub fn mds(compression: Option<&str>, hashes: &[HashAlgo]) -> ShardConfig {
    let column = |name: &str, encoding: &str| Column {
        name: name.to_owned(),
        encoding: encoding.parse().unwrap(),
    };
    let columns = vec![
        column("a", "int32"),
        column("b", "str"),
        column("c", "json"),
    ];
    let compression = compression.map(|name| name.parse().unwrap());
    ShardConfig::new_mds(columns, compression, hashes.to_vec(), Some(1 << 26)).unwrap()
}

pub fn text(format: Format, compression: Option<&str>, hashes: &[HashAlgo]) -> ShardConfig {
    let column = |name: &str, encoding| TextColumn {
        name: name.to_owned(),
        encoding,
    };
    let columns = vec![
        column("a", TextEncoding::Int),
        column("b", TextEncoding::Str),
    ];
    let compression: Option<Compression> = compression.map(|name| name.parse().unwrap());
    let separator = (format == Format::Xsv).then_some("--");
    match format {
        Format::Json => ShardConfig::new_json(columns, "\n", compression, hashes.to_vec(), None),
        _ => ShardConfig::new_xsv(
            format,
            columns,
            "\n",
            separator,
            compression,
            hashes.to_vec(),
            None,
        ),
    }
    .unwrap()
}

/// An encoded MDS sample of the columns of [`mds`].
pub fn mds_sample(a: i32, b: &[u8], c: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for datum in [b, c] {
        bytes.extend_from_slice(&u32::try_from(datum.len()).unwrap().to_le_bytes());
    }
    bytes.extend_from_slice(&a.to_le_bytes());
    bytes.extend_from_slice(b);
    bytes.extend_from_slice(c);
    bytes
}

/// Sample number `n` in the bytes of a config.
pub fn sample(config: &ShardConfig, n: u64) -> Vec<u8> {
    let text = "x".repeat(usize::try_from(n % 7).unwrap());
    match config.format() {
        Format::Mds => mds_sample(
            i32::try_from(n).unwrap(),
            text.as_bytes(),
            b"{\"k\": [1, null]}",
        ),
        Format::Json => format!("{{\"a\": {n}, \"b\": \"{text}\"}}\n").into_bytes(),
        Format::Csv => format!("{n},{text}\n").into_bytes(),
        Format::Tsv => format!("{n}\t{text}\n").into_bytes(),
        Format::Xsv => format!("{n}--{text}\n").into_bytes(),
    }
}

/// The raw files of a shard.
pub fn raw_shard(config: &ShardConfig, samples: &[Vec<u8>]) -> (Vec<u8>, Option<Vec<u8>>) {
    let sizes: Vec<u32> = samples
        .iter()
        .map(|sample| u32::try_from(sample.len()).unwrap())
        .collect();
    let json = config.to_json();
    let mut data = Vec::new();
    if config.format() == Format::Mds {
        encode_header(config, &json, sizes.into_iter(), &mut data).unwrap();
        data.extend(samples.concat());
        return (data, None);
    }
    data.extend(config.xsv_header());
    let mut meta = Vec::new();
    encode_meta(&json, data.len() as u64, sizes.into_iter(), &mut meta).unwrap();
    data.extend(samples.concat());
    (data, Some(meta))
}

pub fn compress(compression: Compression, raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    compression
        .compressor()
        .unwrap()
        .compress(raw, &mut out)
        .unwrap();
    out
}

/// Writes a shard into `root` and describes it.
pub fn write_shard(
    root: &Path,
    number: u64,
    config: &Arc<ShardConfig>,
    samples: &[Vec<u8>],
) -> ShardEntry {
    let (data, meta) = raw_shard(config, samples);
    let write = |raw: &[u8], meta: bool| {
        let name = |zip: Option<&Compression>| basename(number, config.format(), meta, zip);
        let info = |name: String, bytes: &[u8]| FileInfo {
            basename: name.into(),
            bytes: bytes.len() as u64,
            hashes: FileHashes::of(&config.hashes, bytes),
        };
        let raw_info = info(name(None), raw);
        let Some(compression) = config.compression else {
            fs::write(root.join(name(None)), raw).unwrap();
            return (raw_info, None);
        };
        let zipped = compress(compression, raw);
        fs::write(root.join(name(Some(&compression))), &zipped).unwrap();
        (raw_info, Some(info(name(Some(&compression)), &zipped)))
    };
    let (raw_data, zip_data) = write(&data, false);
    let (raw_meta, zip_meta) = match meta.map(|meta| write(&meta, true)) {
        Some((raw, zip)) => (Some(raw), zip),
        None => (None, None),
    };
    ShardEntry {
        config: Arc::clone(config),
        samples: samples.len() as u64,
        raw_data,
        zip_data,
        raw_meta,
        zip_meta,
    }
}

/// Shards of these many samples, in `root`, with an index.
pub fn write_dataset(root: &Path, config: ShardConfig, shards: &[u64]) -> Index {
    let config = Arc::new(config);
    let mut next = 0;
    let mut entries = Vec::new();
    for (number, count) in (0_u64..).zip(shards) {
        let samples: Vec<_> = (next..next + count).map(|n| sample(&config, n)).collect();
        next += count;
        entries.push(write_shard(root, number, &config, &samples));
    }
    let index = Index { shards: entries };
    fs::write(root.join("index.json"), index.to_json()).unwrap();
    index
}

impl Fixture {
    pub fn new(config: ShardConfig, shards: &[u64]) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let index = write_dataset(temp.path(), config, shards);
        Self { temp, index }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    /// Writes the index after a change.
    pub fn write_index(&self) {
        fs::write(self.path("index.json"), self.index.to_json()).unwrap();
    }

    pub fn open(&self) -> Dataset {
        self.try_open(&OpenOptions::default()).unwrap()
    }

    pub fn try_open(&self, options: &OpenOptions) -> Result<Dataset, DatasetError> {
        Dataset::open(self.temp.path(), options)
    }

    pub fn verify(&self, deep: bool) -> VerifyReport {
        let options = VerifyOptions {
            deep,
            ..VerifyOptions::default()
        };
        verify(&self.open(), &options, &Progress::new()).unwrap()
    }
}

pub fn ids(problems: &[Problem]) -> Vec<&'static str> {
    problems.iter().map(|problem| problem.id).collect()
}

pub fn id<T: std::fmt::Debug>(result: Result<T, DatasetError>) -> &'static str {
    result.unwrap_err().id()
}

pub fn make_fifo(path: &Path) {
    let status = std::process::Command::new("mkfifo")
        .arg(path)
        .status()
        .unwrap();
    assert!(status.success());
}

/// Runs `body` on a thread and fails when it does not come back.
pub fn must_not_block<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(body()));
    receiver
        .recv_timeout(std::time::Duration::from_secs(20))
        .expect("blocked")
}

/// Writes into a file that is there, at one offset. Cutting a file to nothing and writing it anew would make
/// some file systems wait for the disk.
pub fn poke(path: &Path, at: usize, bytes: &[u8]) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, at as u64).unwrap();
}

/// Cuts a file or makes it longer.
pub fn resize(path: &Path, len: usize) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(len as u64).unwrap();
}
