//! Samples of tar shards, read by ranges of their bytes.

use std::borrow::Cow;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use shardmill_core::{Limits, lock};
use shardmill_dataset::{DatasetError, DatasetProblem, ShardBytes, TarFile, TarSet, ValueLocation};
use shardmill_storage::Stored;
use shardmill_webdataset::{
    Consumer, FieldEntry, Grouper, SampleEntry, Scanner, ShardView, Step, WebdatasetError,
};

/// The most bytes of a sample that are read with its headers. Of a larger one, the headers and the wanted fields are read.
const WHOLE_BYTES: u64 = 8 << 20;

/// The bytes that are read for a header.
const WINDOW_BYTES: u64 = 64 << 10;

/// The most bytes of offsets and of decompressed shards that are kept.
const KEPT_BYTES: usize = 96 << 20;

/// The samples of tar shards.
#[derive(Debug)]
pub struct Tars {
    set: TarSet,
    /// The shards that were read last, the latest at the end.
    kept: Mutex<Vec<(usize, Arc<TarShard>)>>,
}

/// An open shard.
#[derive(Debug)]
struct TarShard {
    file: Stored,
    path: PathBuf,
    /// The offset of each sample, then the end of the last one.
    offsets: Vec<u64>,
    /// The bytes of a compressed shard after decompression.
    raw: Option<ShardBytes>,
}

/// A sample, and bytes of its shard.
#[derive(Debug)]
pub struct TarSample<'a> {
    shard: &'a TarShard,
    /// The key and the fields.
    pub entry: SampleEntry,
    window: &'a Window<'a>,
}

/// Bytes of a shard, and their position in it.
#[derive(Debug)]
struct Window<'a> {
    begin: u64,
    bytes: Cow<'a, [u8]>,
}

/// Consecutive samples of a shard.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The number of the shard.
    pub shard: usize,
    /// The file of the shard.
    pub file: &'a TarFile,
    /// The stored position of the first sample.
    pub at: u64,
    /// The number of samples.
    pub count: u64,
}

impl Tars {
    /// Makes the samples of a set.
    pub fn new(set: TarSet) -> Self {
        let kept = Mutex::default();
        Self { set, kept }
    }

    /// Returns the shards.
    pub const fn set(&self) -> &TarSet {
        &self.set
    }

    /// Returns the number of live samples.
    pub fn len(&self) -> u64 {
        self.live().map(|(_, _, live)| live).sum()
    }

    /// Returns the files with the numbers of their stored and of their live samples.
    fn live(&self) -> impl Iterator<Item = (&TarFile, u64, u64)> {
        self.set.shards().iter().map(|file| {
            let stored = file.known().map_or(0, |entry| entry.samples);
            (file, stored, file.live_samples(stored))
        })
    }

    /// Returns the first samples of a range that are neighbours in one shard.
    fn locate(&self, numbers: &Range<u64>) -> Result<Run<'_>, DatasetError> {
        let number = numbers.start;
        let mut first = 0_u64;
        for (shard, (file, stored, live)) in self.live().enumerate() {
            if number - first < live {
                let mut left = number - first;
                for range in file.live_ranges(stored) {
                    let length = range.end - range.start;
                    if left < length {
                        return Ok(Run {
                            shard,
                            file,
                            at: range.start + left,
                            count: (length - left).min(numbers.end - number),
                        });
                    }
                    left -= length;
                }
            }
            first = first.saturating_add(live);
        }
        let reason = format!("there is no sample {number}: the dataset has {first}");
        Err(DatasetProblem::NoSample.of_call(reason))
    }

    /// Calls `show` with the first samples of a range: neighbours in one shard that have at most `max_bytes` together, but
    /// at least one. With 0, only the headers of one sample are read before `show` reads its fields. Returns which they are.
    pub fn visit(
        &self,
        numbers: &Range<u64>,
        max_bytes: u64,
        limits: &Limits,
        show: &mut dyn FnMut(u64, &TarSample<'_>) -> Result<(), DatasetError>,
    ) -> Result<Run<'_>, DatasetError> {
        let run = self.locate(numbers)?;
        let visited = self.visit_run(run, numbers.start, max_bytes, limits, show);
        if visited.is_err() {
            // A file that was replaced is opened again by the next request.
            let mut kept = lock(&self.kept);
            kept.retain(|(shard, _)| *shard != run.shard);
        }
        visited
    }

    fn visit_run<'a>(
        &'a self,
        mut run: Run<'a>,
        number: u64,
        max_bytes: u64,
        limits: &Limits,
        show: &mut dyn FnMut(u64, &TarSample<'_>) -> Result<(), DatasetError>,
    ) -> Result<Run<'a>, DatasetError> {
        let shard = self.open(run, limits)?;
        let samples = usize::try_from(run.at)
            .ok()
            .zip(usize::try_from(run.count).ok());
        let offsets = samples.and_then(|(at, count)| shard.offsets.get(at..=at + count));
        let offsets = offsets.ok_or_else(|| shard.changed())?;
        let begin = offsets.first().copied().unwrap_or_default();
        let ends = offsets.iter().skip(1);
        let fit = ends
            .take_while(|end| end.saturating_sub(begin) <= max_bytes)
            .count();
        run.count = (fit as u64).max(1);
        let samples = offsets.windows(2).take(fit.max(1));
        let end = samples.clone().next_back().and_then(|pair| pair.last());
        let end = end.copied().unwrap_or(begin);
        let wanted = match end.saturating_sub(begin) {
            bytes @ ..=WHOLE_BYTES if max_bytes > 0 => bytes,
            bytes => bytes.min(WINDOW_BYTES),
        };
        let window = shard.window(begin, wanted)?;
        for (number, pair) in (number..).zip(samples) {
            if let [begin, end] = *pair {
                show(number, &shard.sample(begin..end, &window, limits)?)?;
            }
        }
        shard.file.check_unchanged()?;
        Ok(run)
    }

    /// Returns an open shard with its offsets.
    fn open(&self, run: Run<'_>, limits: &Limits) -> Result<Arc<TarShard>, DatasetError> {
        {
            let mut kept = lock(&self.kept);
            if let Some(found) = kept.iter().position(|(known, _)| *known == run.shard) {
                let entry = kept.remove(found);
                let shard = Arc::clone(&entry.1);
                kept.push(entry);
                return Ok(shard);
            }
        }
        let shard = Arc::new(TarShard::open(run.file, limits)?);
        let mut kept = lock(&self.kept);
        kept.push((run.shard, Arc::clone(&shard)));
        let mut left = KEPT_BYTES;
        let fit = kept.iter().rev().take_while(|(_, shard)| {
            left = left.saturating_sub(shard.memory());
            left > 0
        });
        let fit = fit.count().max(1);
        let dropped = kept.len().saturating_sub(fit);
        kept.drain(..dropped);
        Ok(shard)
    }
}

impl TarShard {
    fn open(file: &TarFile, limits: &Limits) -> Result<Self, DatasetError> {
        let stored = file.open_listed()?;
        let path = file.path();
        let (has_length, is_raw) = match file.entry() {
            Some(entry) => (
                entry.stored().bytes == stored.len(),
                entry.compression.is_none(),
            ),
            None => (true, file.compression()?.is_none()),
        };
        if has_length && is_raw {
            return Ok(Self {
                offsets: file.offsets(limits)?,
                file: stored,
                path,
                raw: None,
            });
        }
        let raw = file.load(limits)?;
        let fail = |source| DatasetError::tar_file(&path, source);
        let offsets = ShardView::open(&raw, limits).map_err(fail)?;
        Ok(Self {
            offsets: offsets.offsets().to_vec(),
            file: stored,
            path,
            raw: Some(raw),
        })
    }

    /// Returns the bytes of memory that it needs.
    fn memory(&self) -> usize {
        let raw = self.raw.as_ref().map_or(0, |raw| raw.as_ref().len());
        8 * self.offsets.len() + raw
    }

    /// Returns the error for a shard that changed while it was read.
    fn changed(&self) -> DatasetError {
        let reason = "the file was changed while it was read";
        let location = ValueLocation::file(&self.path.to_string_lossy());
        DatasetProblem::ShardChanged.at(location, reason)
    }

    /// Reads a range of the raw shard.
    fn window(&self, begin: u64, bytes: u64) -> Result<Window<'_>, DatasetError> {
        let Some(raw) = &self.raw else {
            let bytes = self.file.read_range(begin, bytes)?.into();
            return Ok(Window { begin, bytes });
        };
        let range = usize::try_from(begin).ok().zip(usize::try_from(bytes).ok());
        let bytes = range.and_then(|(at, bytes)| raw.as_ref().get(at..at.checked_add(bytes)?));
        match bytes {
            Some(bytes) if !raw.is_damaged() => Ok(Window {
                begin,
                bytes: bytes.into(),
            }),
            _ => Err(self.changed()),
        }
    }

    /// Returns the length of the raw shard.
    fn len(&self) -> u64 {
        let raw = self.raw.as_ref().map(|raw| raw.as_ref().len() as u64);
        raw.unwrap_or(self.file.len())
    }

    /// Reads the headers of the sample in a range.
    fn sample<'a>(
        &'a self,
        range: Range<u64>,
        window: &'a Window<'a>,
        limits: &Limits,
    ) -> Result<TarSample<'a>, DatasetError> {
        let fail = |source| DatasetError::tar_file(&self.path, source);
        let stale = |reason: &str| fail(WebdatasetError::stale_offsets(range.start, reason));
        let mut scanner = Scanner::new(self.len(), limits);
        scanner.resume_at(range.start);
        let mut grouper = Grouper::new(Consumer::Webdataset, limits);
        let mut read;
        let mut part = window;
        while scanner.position() < range.end {
            let need = match scanner.step(part.begin, &part.bytes).map_err(fail)? {
                Step::Member(member) if member.own_begin >= range.end => break,
                Step::Member(member) if member.end > range.end => {
                    return Err(stale("a member reaches into the next one"));
                }
                Step::Member(member) => match grouper.push(&member).map_err(fail)? {
                    Some(_) => return Err(stale("it holds members of two keys")),
                    None => continue,
                },
                Step::End(_) => break,
                Step::Need(need) => need,
            };
            let end = need.end.max(need.start.saturating_add(WINDOW_BYTES));
            let bytes = end.min(self.len()).saturating_sub(need.start);
            read = self.window(need.start, bytes)?;
            part = &read;
        }
        let entry = grouper.finish();
        Ok(TarSample {
            shard: self,
            entry: entry.ok_or_else(|| stale("it holds no member with a key"))?,
            window,
        })
    }
}

impl TarSample<'_> {
    /// Returns a range of the content of a field.
    pub fn bytes(
        &self,
        field: &FieldEntry,
        range: Range<u64>,
    ) -> Result<Cow<'_, [u8]>, DatasetError> {
        let begin = field.offset.saturating_add(range.start);
        let bytes = range.end.saturating_sub(range.start);
        let at = begin.checked_sub(self.window.begin);
        let at = at.and_then(|at| usize::try_from(at).ok());
        let within = at.zip(usize::try_from(bytes).ok());
        let within =
            within.and_then(|(at, bytes)| self.window.bytes.get(at..at.checked_add(bytes)?));
        match within {
            Some(bytes) => Ok(bytes.into()),
            None => Ok(self.shard.window(begin, bytes)?.bytes),
        }
    }
}
