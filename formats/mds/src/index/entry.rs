//! The entries of an index, and the text that they have in it.

use std::sync::Arc;

use shardmill_codec::FileInfo;
use shardmill_core::{Format, write_json_string};

use crate::config::{ObjectWriter, ShardConfig, into_ascii, write_number};

/// One shard in an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardEntry {
    /// The columns and how they are stored. Consecutive shards with equal configs share it.
    pub config: Arc<ShardConfig>,
    /// The number of samples in the shard.
    pub samples: u64,
    /// The uncompressed data.
    pub raw_data: FileInfo,
    /// The compressed data; present exactly if the config has a compression.
    pub zip_data: Option<FileInfo>,
    /// The uncompressed offsets; present for every format but MDS. In MDS: the uncompressed late columns, if there are any.
    pub raw_meta: Option<FileInfo>,
    /// The compressed form of `raw_meta`; present with it if the config has a compression.
    pub zip_meta: Option<FileInfo>,
}

impl ShardEntry {
    /// Iterates over the stored files: the compressed ones if there are any, else the raw ones; data before offsets.
    pub fn stored(&self) -> impl Iterator<Item = &FileInfo> {
        let data = self.zip_data.as_ref().unwrap_or(&self.raw_data);
        let meta = self.zip_meta.as_ref().or(self.raw_meta.as_ref());
        std::iter::once(data).chain(meta)
    }

    /// Iterates over all files, raw and compressed, with the names of their fields.
    pub fn files(&self) -> impl Iterator<Item = (&'static str, &FileInfo)> {
        [
            ("raw_data", Some(&self.raw_data)),
            ("zip_data", self.zip_data.as_ref()),
            ("raw_meta", self.raw_meta.as_ref()),
            ("zip_meta", self.zip_meta.as_ref()),
        ]
        .into_iter()
        .filter_map(|(field, file)| Some((field, file?)))
    }

    pub(crate) fn files_mut(&mut self) -> impl Iterator<Item = (&'static str, &mut FileInfo)> {
        [
            ("raw_data", Some(&mut self.raw_data)),
            ("zip_data", self.zip_data.as_mut()),
            ("raw_meta", self.raw_meta.as_mut()),
            ("zip_meta", self.zip_meta.as_mut()),
        ]
        .into_iter()
        .filter_map(|(field, file)| Some((field, file?)))
    }

    fn write(&self, out: &mut Vec<u8>) {
        let mut object = ObjectWriter::new(out);
        let split = self.config.format() != Format::Mds || self.raw_meta.is_some();
        self.config.write_columns(&mut object);
        self.config.write_storage(&mut object);
        object.key("raw_data");
        write_file(Some(&self.raw_data), object.out);
        if split {
            object.key("raw_meta");
            write_file(self.raw_meta.as_ref(), object.out);
        }
        object.key("samples");
        write_number(self.samples, object.out);
        self.config.write_separator(&mut object);
        self.config.write_limits(&mut object);
        object.key("zip_data");
        write_file(self.zip_data.as_ref(), object.out);
        if split {
            object.key("zip_meta");
            write_file(self.zip_meta.as_ref(), object.out);
        }
        object.finish();
    }
}

fn write_file(file: Option<&FileInfo>, out: &mut Vec<u8>) {
    let Some(file) = file else {
        out.extend_from_slice(b"null");
        return;
    };
    let mut object = ObjectWriter::new(out);
    object.key("basename");
    write_json_string(&file.basename, object.out);
    object.key("bytes");
    write_number(file.bytes, object.out);
    object.key("hashes");
    let mut hashes = ObjectWriter::new(object.out);
    for digest in file.hashes.iter() {
        hashes.key(digest.algo().name());
        write_json_string(&digest.to_string(), hashes.out);
    }
    hashes.finish();
    object.finish();
}

/// The shards of a dataset, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// The shards.
    pub shards: Vec<ShardEntry>,
}

impl Index {
    /// Returns the `index.json` that the original writer would write: keys sorted, ASCII only, one line.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut out = b"{\"shards\": ".to_vec();
        self.write_shards(&mut out);
        out.extend_from_slice(b", \"version\": 2}");
        into_ascii(out)
    }

    /// Returns the `index.json` that the original's merge would write: as [`to_json`](Self::to_json), but with the
    /// version first.
    #[must_use]
    pub fn to_merged_json(&self) -> String {
        // COMPAT: the original's merge sorts only the keys of shards.
        let mut out = b"{\"version\": 2, \"shards\": ".to_vec();
        self.write_shards(&mut out);
        out.push(b'}');
        into_ascii(out)
    }

    fn write_shards(&self, out: &mut Vec<u8>) {
        out.push(b'[');
        for (index, shard) in self.shards.iter().enumerate() {
            if index > 0 {
                out.extend_from_slice(b", ");
            }
            shard.write(out);
        }
        out.push(b']');
    }

    /// Returns the number of samples in all shards.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.shards
            .iter()
            .fold(0, |sum, shard| sum.saturating_add(shard.samples))
    }
}
