//! Maps raw shards.

use std::collections::HashSet;
use std::ops::Range;

use shardmill_core::Limits;

use super::map::ShardMap;
use crate::error::{MemberKind, WebdatasetError};
use crate::group::{Grouper, SampleEntry};
use crate::names::Consumer;
use crate::tar::{Scanner, Step, check_member};

impl ShardMap {
    /// Maps a raw shard by the rules of the original reader. The shard must be complete and unambiguous.
    pub fn read(data: &[u8], limits: &Limits) -> Result<Self, WebdatasetError> {
        Ok(ShardScan::whole(data, None, limits)?.map)
    }
}

/// Maps a shard that need not be completely in memory, such as a remote one that is read by ranges.
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
    // PERF: a view needs only these, which are a tenth of the map.
    begins: Option<Vec<u64>>,
    limits: Limits,
}

impl ShardScan {
    /// Creates a scan of a raw shard of that length.
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

    /// Scans a shard in memory. With a list of begins, it collects only these.
    fn whole(
        data: &[u8],
        begins: Option<Vec<u64>>,
        limits: &Limits,
    ) -> Result<Self, WebdatasetError> {
        let length = data.len() as u64;
        let mut scan = Self::new(length, limits);
        scan.begins = begins;
        match scan.step(0, data)? {
            None => Ok(scan),
            Some(range) => Err(WebdatasetError::torn_header(range.start, length)),
        }
    }

    /// Returns the begins of the samples of a shard in memory, and the end of the last one.
    pub(super) fn offsets(data: &[u8], limits: &Limits) -> Result<Vec<u64>, WebdatasetError> {
        let scan = Self::whole(data, Some(Vec::new()), limits)?;
        let mut offsets = scan.begins.unwrap_or_default();
        offsets.push(scan.map.end);
        Ok(offsets)
    }

    /// Continues with the part of the shard that begins at `at`. Returns the range that is needed next; `None` at the
    /// end.
    ///
    /// [`samples`](Self::samples) lists each sample as soon as it is complete.
    ///
    /// # Errors
    ///
    /// [`WebdatasetError`]: `Corrupt` for bytes that are not a tar file, are truncated or have bytes after the end; for a
    /// sample with a repeated field or in two runs; and for names that leave the shard. `Unsupported` for links,
    /// devices, sparse files and exceeded limits.
    pub fn step(&mut self, at: u64, window: &[u8]) -> Result<Option<Range<u64>>, WebdatasetError> {
        let limit = self.limits.shard_bytes;
        WebdatasetError::check_limit("shard-bytes", self.map.bytes, limit, 0)?;
        loop {
            match self.scanner.step(at, window)? {
                Step::Need(range) => return Ok(Some(range)),
                Step::End(end) => {
                    if let Some(sample) = self.grouper.finish() {
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

    fn add(&mut self, sample: SampleEntry) -> Result<(), WebdatasetError> {
        if !self.keys.insert(sample.key.clone()) {
            return Err(WebdatasetError::split_sample(sample.begin, &sample.key));
        }
        let (bytes, limit) = (sample.content_bytes(), self.limits.sample_bytes);
        WebdatasetError::check_limit("sample-bytes", bytes, limit, sample.begin)?;
        match &mut self.begins {
            Some(begins) => begins.push(sample.begin),
            None => self.map.samples.push(sample),
        }
        Ok(())
    }

    /// Returns the samples that are complete so far.
    #[must_use]
    pub fn samples(&self) -> &[SampleEntry] {
        &self.map.samples
    }

    /// Returns the map as far as the scan has progressed. It is complete after [`step`](Self::step) has returned
    /// `None`.
    #[must_use]
    pub fn finish(self) -> ShardMap {
        self.map
    }
}
