//! Locations of values in shards, and parts of large values.

use std::ops::Range;

use shardmill_cache::BlobPart;
use shardmill_core::Error;
use shardmill_dataset::{DatasetProblem, Entry};

use crate::origin::{self, FileRange};
use crate::reader::Reader;

/// Where a sample is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredPlace {
    /// The stream.
    pub stream: usize,
    /// The number among all samples of the stream, deleted ones counted.
    pub number: u64,
    /// The SHA-256 of the index of the stream.
    pub index_digest: [u8; 32],
}

impl Reader {
    /// Returns where a sample is stored.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a sample that the streams do not have.
    pub fn stored_place(&self, sample: u64) -> Result<StoredPlace, Error> {
        let catalog = self.catalog();
        let (shard, at) = self.context().locate(sample)?;
        let (stream, number) = catalog
            .stream_of(shard)
            .ok_or_else(|| catalog.no_shard(shard))?;
        let before = stream.shards.iter().take(number).map(Entry::samples);
        Ok(StoredPlace {
            stream: origin::stream_number(catalog, shard).unwrap_or_default(),
            number: before.fold(at, u64::saturating_add),
            index_digest: stream.index_digest,
        })
    }

    /// Returns a value of a sample, and its offset in the raw file of the shard. Returns `None` if the sample does not
    /// have the column. A shard that is not cached is fetched whole.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a sample that the streams do not have; errors of reading the shard.
    pub fn value_at(&self, sample: u64, column: &str) -> Result<Option<(u64, Vec<u8>)>, Error> {
        let catalog = self.catalog();
        let (shard, at) = self.context().locate(sample)?;
        let open = self.shard_cache().engine()?.whole(shard)?;
        let value = open.value_at(catalog, at, column)?;
        let value = value.map(|(offset, value)| (offset, value.to_vec()));
        open.check(catalog)?;
        Ok(value)
    }

    /// Reads ranges of the raw file of the shard of a sample. Those of a shard that is not cached are requested from its
    /// source at the same time, and their hash cannot be checked.
    ///
    /// # Errors
    ///
    /// [`DatasetProblem::Indivisible`] if the source has no such ranges; errors of reading them.
    pub fn read_ranges(&self, sample: u64, ranges: &[Range<u64>]) -> Result<Vec<Vec<u8>>, Error> {
        let catalog = self.catalog();
        let (shard, _) = self.context().locate(sample)?;
        let engine = self.shard_cache().engine()?;
        if engine.is_at_hand(shard) || !self.context().is_fetched(shard) {
            let open = engine.whole(shard)?;
            let read = ranges.iter().map(|range| {
                let bytes = open.bytes(range);
                bytes
                    .map(<[u8]>::to_vec)
                    .ok_or_else(|| catalog.changed(shard).into())
            });
            let read = read.collect::<Result<_, Error>>()?;
            open.check(catalog)?;
            return Ok(read);
        }
        let is_whole =
            catalog.validate(shard).is_some() || catalog.entry(shard).is_none_or(Entry::is_packed);
        if is_whole {
            let reason = "it is compressed, or its hash has to be checked: only the whole shard can be fetched";
            return Err(DatasetProblem::Indivisible
                .at(catalog.location(shard), reason)
                .into());
        }
        let wanted: Vec<FileRange> = ranges
            .iter()
            .map(|range| FileRange {
                shard,
                part: BlobPart::Data,
                range: range.clone(),
            })
            .collect();
        let read = origin::read_ranges(catalog, &wanted);
        let lengths = ranges
            .iter()
            .map(|range| range.end.saturating_sub(range.start));
        let whole = read.into_iter().zip(lengths).map(|(bytes, length)| {
            let bytes = bytes?;
            match bytes.len() as u64 == length {
                true => Ok(bytes),
                false => Err(catalog.changed(shard).into()),
            }
        });
        whole.collect()
    }
}
