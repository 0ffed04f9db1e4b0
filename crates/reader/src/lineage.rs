//! Where the samples of streams are stored and where they come from.

use std::sync::Arc;

use shardmill_core::Error;
use shardmill_dataset::{Catalog, Entry, SampleSources};

use crate::error::sample_beyond;
use crate::origin::stream_number;
use crate::reader::Reader;

/// The locations and sources of the samples of all streams.
#[derive(Debug)]
pub struct Lineage {
    catalog: Arc<Catalog>,
    /// One for each stream.
    sources: Vec<SampleSources>,
    /// For each stream, the number of stored samples before each of its shards.
    stored: Vec<Vec<u64>>,
}

/// Where a sample is stored, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SamplePlace {
    /// The sample, numbered across all streams.
    pub sample: u64,
    /// The stream.
    pub stream: usize,
    /// The shard, numbered in its stream.
    pub shard: usize,
    /// The name of the file of the shard.
    pub shard_name: String,
    /// The position in the shard, deleted samples counted.
    pub index: u64,
    /// The file of the source, if it is known.
    pub file: Option<String>,
    /// The row of the source, if it is known.
    pub row: Option<u64>,
}

impl Lineage {
    pub(crate) fn new(catalog: &Arc<Catalog>) -> Result<Self, Error> {
        let (mut sources, mut stored) = (Vec::new(), Vec::new());
        for stream in catalog.streams() {
            let mut next = 0_u64;
            let starts = stream.shards.iter().map(|entry| {
                let start = next;
                next = next.saturating_add(entry.samples());
                start
            });
            stored.push(starts.collect());
            sources.push(SampleSources::read(stream.source(), next)?);
        }
        Ok(Self {
            catalog: Arc::clone(catalog),
            sources,
            stored,
        })
    }

    /// Returns what is known about the sources of the samples, one for each stream.
    #[must_use]
    pub fn sources(&self) -> &[SampleSources] {
        &self.sources
    }

    /// Returns where a sample is stored, and where it comes from.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a sample that the streams do not have.
    pub fn place_of(&self, sample: u64) -> Result<SamplePlace, Error> {
        let catalog = &self.catalog;
        let found = catalog.locate(sample).and_then(|(shard, index)| {
            let (_, in_stream) = catalog.stream_of(shard)?;
            let number = stream_number(catalog, shard)?;
            let entry = catalog.entry(shard)?;
            let shard_name = entry.parts().next()?.stored().basename.to_string();
            let start = self.stored.get(number)?.get(in_stream)?;
            let mut source = self.sources.get(number)?.source_of(start + index);
            if matches!(entry, Entry::File(..)) {
                // A raw file is the sample itself.
                source.file = Some(shard_name.clone());
                source.row = None;
            }
            Some(SamplePlace {
                sample,
                stream: number,
                shard: in_stream,
                shard_name,
                index,
                file: source.file,
                row: source.row,
            })
        });
        found.ok_or_else(|| sample_beyond(sample, catalog.samples()))
    }
}

impl Reader {
    /// Returns the locations and sources of the samples. Reads the side files of all streams.
    ///
    /// # Errors
    ///
    /// An error of the dataset if a side file cannot be read.
    pub fn lineage(&self) -> Result<Lineage, Error> {
        Lineage::new(self.catalog())
    }
}
