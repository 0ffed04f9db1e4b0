//! Builds small valid datasets, which the cases then damage.

use std::path::Path;

use serde_json::{Value, json};
use shardmill_testing::mds::{RawShard, Spec, sample, word};

use crate::case::TestDir;

/// Samples of a shard, and shards of a dataset.
pub const SAMPLES: u64 = 20;
pub const SHARDS: u64 = 2;

/// The columns of the MDS sets: blob, id, name, pair, score.
pub fn spec() -> Spec {
    Spec::mds(&[
        ("blob", "bytes", None),
        ("id", "int64", Some(8)),
        ("name", "str", None),
        ("pair", "ndarray:float32:2", Some(8)),
        ("score", "float64", Some(8)),
    ])
}

/// One sample of the MDS sets.
pub fn row(number: u64) -> Vec<u8> {
    let pair = [number as f32, number as f32 / 4.0]
        .map(f32::to_le_bytes)
        .concat();
    sample(&[
        (false, &number.to_le_bytes()[..1 + (number % 7) as usize]),
        (true, &number.to_le_bytes()),
        (false, format!("row {number} é").as_bytes()),
        (true, &pair),
        (true, &(number as f64 / 10.0).to_le_bytes()),
    ])
}

/// The shards of the MDS sets.
pub fn shards(spec: &Spec) -> Vec<RawShard> {
    (0..SHARDS)
        .map(|shard| {
            let rows: Vec<Vec<u8>> = (shard * SAMPLES..(shard + 1) * SAMPLES).map(row).collect();
            spec.shard(&rows)
        })
        .collect()
}

/// Where the config of an MDS shard begins, and the first sample.
pub fn header(data: &[u8]) -> (usize, usize) {
    let number = |at: usize| u32::from_le_bytes(data[at..at + 4].try_into().unwrap()) as usize;
    (8 + 4 * number(0), number(4))
}

impl TestDir {
    /// A dataset `shards` of two MDS shards with 20 samples each, not compressed, sha256.
    pub fn mds(&self) {
        self.mds_with(spec());
    }

    /// The same with another config.
    pub fn mds_with(&self, spec: Spec) {
        spec.write(&self.at("shards"), &shards(&spec)).unwrap();
    }

    /// The same, compressed.
    pub fn zipped(&self, compression: &str) {
        self.mds_with(spec().with("compression", compression));
    }

    /// The same with the first shard changed; the index describes the changed bytes, hash and all.
    pub fn forged(&self, change: impl FnOnce(&mut RawShard)) {
        self.forged_with(spec(), change);
    }

    /// The same with another config.
    pub fn forged_with(&self, spec: Spec, change: impl FnOnce(&mut RawShard)) {
        let mut shards = shards(&spec);
        change(&mut shards[0]);
        spec.write(&self.at("shards"), &shards).unwrap();
    }

    /// A dataset `shards` of one MDS shard with one column `x` and these values.
    pub fn column(&self, encoding: &str, values: &[&[u8]]) {
        column(&self.at("shards"), encoding, values);
    }

    /// A dataset `shards` in JSON lines, two shards.
    pub fn json_lines(&self) {
        self.forged_json(|_| {});
    }

    /// The same with the first shard changed.
    pub fn forged_json(&self, change: impl FnOnce(&mut RawShard)) {
        let spec = Spec::json(&[("id", "int"), ("name", "str")]);
        let line = |number: u64| {
            format!("{{\"id\": {number}, \"name\": \"row {number}\"}}\n").into_bytes()
        };
        self.lines(&spec, line, change);
    }

    /// A dataset `shards` in CSV, two shards, the first changed.
    pub fn forged_csv(&self, change: impl FnOnce(&mut RawShard)) {
        let spec = Spec::csv(&[("id", "int"), ("name", "str")]);
        self.lines(
            &spec,
            |number| format!("{number},row {number}\n").into_bytes(),
            change,
        );
    }

    fn lines(
        &self,
        spec: &Spec,
        line: impl Fn(u64) -> Vec<u8>,
        change: impl FnOnce(&mut RawShard),
    ) {
        let shard =
            |first: u64| spec.shard(&(first..first + SAMPLES).map(&line).collect::<Vec<_>>());
        let mut shards = vec![shard(0), shard(SAMPLES)];
        change(&mut shards[0]);
        spec.write(&self.at("shards"), &shards).unwrap();
    }

    /// Changes the first shard in the index of `shards`.
    pub fn entry(&self, change: impl FnOnce(&mut Value)) {
        self.index(|index| change(&mut index["shards"][0]));
    }

    /// Sets a field of the first shard in the index of `shards`; a path with dots.
    pub fn set(&self, path: &str, value: Value) {
        self.entry(|entry| {
            let mut slot = entry;
            for key in path.split('.') {
                slot = &mut slot[key];
            }
            *slot = value;
        });
    }
}

fn column(dir: &Path, encoding: &str, values: &[&[u8]]) {
    // The size of a value, where values of the encoding have one.
    let size = match encoding {
        "int" | "int64" => Some(8),
        "ndarray:uint8:2,2" => Some(4),
        _ => None,
    };
    let spec = Spec::mds(&[("x", encoding, size)]);
    let samples: Vec<Vec<u8>> = values
        .iter()
        .map(|value| sample(&[(size.is_some(), value)]))
        .collect();
    spec.write(dir, &[spec.shard(&samples)]).unwrap();
}

/// Sets the `number`th of the four-byte words that a file begins with.
pub fn set_word(bytes: &mut [u8], number: usize, value: u64) {
    bytes[4 * number..4 * number + 4].copy_from_slice(&word(value));
}

/// The `number`th of the four-byte words that a file begins with.
pub fn get_word(bytes: &[u8], number: usize) -> u64 {
    u64::from(u32::from_le_bytes(
        bytes[4 * number..4 * number + 4].try_into().unwrap(),
    ))
}

/// `[1, 2]` and the like, shorter than the macro.
pub fn list<T: Into<Value>>(items: impl IntoIterator<Item = T>) -> Value {
    json!(items.into_iter().map(Into::into).collect::<Vec<Value>>())
}
