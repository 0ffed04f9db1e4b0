//! Raw shards: what is in them, access to their samples, and writing them.

mod build;
#[cfg(test)]
mod tests;
mod view;

use std::collections::HashSet;
use std::ops::Range;

use shardmill_core::Limits;

pub use build::{Profile, Rules, ShardBuilder, ShardCut, shard_bytes};
pub use view::{Field, OwnedShard, ShardView, read_sample};

use crate::error::{MemberKind, TarError};
use crate::group::{Grouper, SampleEntry};
use crate::names::Consumer;
use crate::tar::{Scanner, Step, check_member};

/// What a whole shard holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardMap {
    /// Its samples, in order.
    pub samples: Vec<SampleEntry>,
    /// Where the archive ends: its first zero block.
    pub end: u64,
    /// The length of the raw file.
    pub bytes: u64,
    /// Files that belong to no sample: names without a dot, metadata.
    pub skipped: u64,
}

impl ShardMap {
    /// Maps a raw shard that is whole and unambiguous, by the rules of the original reader.
    ///
    /// # Errors
    ///
    /// As for [`ShardScan::step`].
    pub fn read(data: &[u8], limits: &Limits) -> Result<Self, TarError> {
        let mut scan = ShardScan::new(data.len() as u64, limits);
        match scan.step(0, data)? {
            None => Ok(scan.finish()),
            Some(range) => Err(TarError::TornHeader {
                offset: range.start,
                length: data.len() as u64,
            }),
        }
    }

    /// Where each sample begins, and where the last one ends; one more than there are samples.
    #[must_use]
    pub fn offsets(&self) -> Vec<u64> {
        let begins = self.samples.iter().map(|sample| sample.begin);
        begins.chain([self.end]).collect()
    }

    /// The bytes of all fields, without headers.
    #[must_use]
    pub fn content_bytes(&self) -> u64 {
        self.samples
            .iter()
            .fold(0, |sum, sample| sum.saturating_add(sample.content_bytes()))
    }
}

/// Maps a shard that need not be at hand as a whole: a remote one, by ranges.
///
/// ```
/// use shardmill_core::Limits;
/// use shardmill_webdataset::{Profile, ShardBuilder, ShardScan};
///
/// let mut shard = ShardBuilder::new(Profile::default());
/// shard.push("0001", &[("txt", b"hello"), ("cls", b"7")])?;
/// let (bytes, map) = shard.finish();
///
/// let mut scan = ShardScan::new(bytes.len() as u64, &Limits::default());
/// let mut need = Some(0..512);
/// while let Some(range) = need {
///     // A program would fetch this range.
///     let window = &bytes[range.start as usize..range.end as usize];
///     need = scan.step(range.start, window)?;
/// }
/// assert_eq!(scan.finish(), map);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ShardScan {
    scanner: Scanner,
    grouper: Grouper,
    keys: HashSet<Box<str>>,
    map: ShardMap,
    // PERF: a view needs no more of a shard than this, which is a tenth of the map.
    begins: Option<Vec<u64>>,
    limits: Limits,
}

impl ShardScan {
    /// A scan of a raw shard of that length.
    #[must_use]
    pub fn new(length: u64, limits: &Limits) -> Self {
        Self {
            scanner: Scanner::new(length, limits),
            grouper: Grouper::new(Consumer::Webdataset, limits),
            keys: HashSet::new(),
            map: ShardMap {
                bytes: length,
                ..ShardMap::default()
            },
            begins: None,
            limits: limits.clone(),
        }
    }

    /// Where the samples of a shard at hand begin, and where the last one ends.
    fn offsets(data: &[u8], limits: &Limits) -> Result<Vec<u64>, TarError> {
        let mut scan = Self::new(data.len() as u64, limits);
        scan.begins = Some(Vec::new());
        if let Some(range) = scan.step(0, data)? {
            return Err(TarError::TornHeader {
                offset: range.start,
                length: data.len() as u64,
            });
        }
        let mut offsets = scan.begins.unwrap_or_default();
        offsets.push(scan.map.end);
        Ok(offsets)
    }

    /// Goes on with the part of the shard that begins at `at`; answers which range is needed next, `None` at the end.
    ///
    /// Samples are known by [`samples`](Self::samples) as soon as they are complete.
    ///
    /// # Errors
    ///
    /// [`TarError`]: what is no tar file, is cut off or has bytes behind its end, a sample with one field twice or in two
    /// runs, names that leave the shard (`Corrupt`); links, devices, sparse files and what is above the limits
    /// (`Unsupported`).
    pub fn step(&mut self, at: u64, window: &[u8]) -> Result<Option<Range<u64>>, TarError> {
        Limits::check("shard-bytes", self.map.bytes, self.limits.shard_bytes)
            .map_err(|problem| TarError::Limit { offset: 0, problem })?;
        loop {
            match self.scanner.step(at, window)? {
                Step::Need(range) => return Ok(Some(range)),
                Step::End(end) => {
                    if let Some(sample) = self.grouper.abandon() {
                        self.add(sample)?;
                    }
                    self.map.end = end;
                    return Ok(None);
                }
                Step::Member(member) => {
                    check_member(&member)?;
                    if member.kind == MemberKind::File
                        && Consumer::Webdataset.split(&member.name).is_none()
                    {
                        self.map.skipped = self.map.skipped.saturating_add(1);
                    }
                    if let Some(sample) = self.grouper.push(&member)? {
                        self.add(sample)?;
                    }
                }
            }
        }
    }

    fn add(&mut self, sample: SampleEntry) -> Result<(), TarError> {
        if !self.keys.insert(sample.key.clone()) {
            return Err(TarError::SplitSample {
                offset: sample.begin,
                key: sample.key.into_string(),
            });
        }
        Limits::check(
            "sample-bytes",
            sample.content_bytes(),
            self.limits.sample_bytes,
        )
        .map_err(|problem| TarError::Limit {
            offset: sample.begin,
            problem,
        })?;
        match &mut self.begins {
            Some(begins) => begins.push(sample.begin),
            None => self.map.samples.push(sample),
        }
        Ok(())
    }

    /// The samples that are complete so far.
    #[must_use]
    pub fn samples(&self) -> &[SampleEntry] {
        &self.map.samples
    }

    /// The map, as far as the scan came; whole once [`step`](Self::step) has answered `None`.
    #[must_use]
    pub fn finish(self) -> ShardMap {
        self.map
    }
}
