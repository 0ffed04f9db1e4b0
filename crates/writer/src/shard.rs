//! Finishing one shard: header, hashes, compression, temporary files.

use std::io::Write as _;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use shardmill_core::{Format, Limits};
use shardmill_mds::{
    Compression, Compressor, FileHashes, FileInfo, HashAlgo, Hasher, ShardConfig, ShardEntry,
    basename, encode_header, encode_meta,
};
use shardmill_storage::{Dir, TempFile};

use crate::chunk::Chunk;
use crate::error::WriteError;
use crate::pack::{CutShard, Position};

/// Bytes that are hashed and written in one go, so that the second finds them in a core's cache.
const STEP_BYTES: usize = 256 << 10;

/// What all shards of one data set have in common.
#[derive(Debug)]
pub(crate) struct ShardKind {
    pub(crate) config: Arc<ShardConfig>,
    config_json: String,
    xsv_header: Vec<u8>,
    /// The hash that a later run checks before it reuses a shard; `None` when there will be no such run.
    check: Option<HashAlgo>,
}

impl ShardKind {
    /// Shards that a later run of the same conversion may reuse.
    pub(crate) fn resumable(config: Arc<ShardConfig>) -> Self {
        let check = config.hashes.first().copied().unwrap_or(HashAlgo::Xxh3_128);
        Self {
            check: Some(check),
            ..Self::final_only(config)
        }
    }

    /// Shards that are only as good as the index that lists them.
    pub(crate) fn final_only(config: Arc<ShardConfig>) -> Self {
        Self {
            config_json: config.to_json(),
            xsv_header: config.xsv_header(),
            config,
            check: None,
        }
    }

    fn segment_bytes(&self) -> Option<usize> {
        self.config
            .compression
            .as_ref()
            .and_then(Compression::segment_bytes)
    }
}

/// A run of bytes of a data file.
#[derive(Clone, Debug)]
enum Part {
    Head(Arc<Vec<u8>>, Range<usize>),
    Chunk(Arc<Chunk>, Range<usize>),
}

impl Part {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Head(head, range) => &head[range.clone()],
            Self::Chunk(chunk, range) => chunk.slice(range.clone()),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Head(_, range) | Self::Chunk(_, range) => range.len(),
        }
    }

    fn split_at(self, at: usize) -> (Self, Self) {
        match self {
            Self::Head(head, range) => {
                let middle = range.start + at;
                (
                    Self::Head(Arc::clone(&head), range.start..middle),
                    Self::Head(head, middle..range.end),
                )
            }
            Self::Chunk(chunk, range) => {
                let middle = range.start + at;
                (
                    Self::Chunk(Arc::clone(&chunk), range.start..middle),
                    Self::Chunk(chunk, middle..range.end),
                )
            }
        }
    }
}

/// A shard whose bytes are known and whose files are not there yet.
#[derive(Debug)]
pub(crate) struct ShardWork {
    pub(crate) split: usize,
    pub(crate) shard: u64,
    pub(crate) samples: u64,
    pub(crate) start: Position,
    raw_bytes: u64,
    meta: Option<Vec<u8>>,
    /// Each is compressed for itself; one when the compression knows no segments.
    segments: Vec<Mutex<Option<Vec<Part>>>>,
    /// The same parts, for the task that hashes them in order.
    hash_parts: Mutex<Vec<Part>>,
    raw_hashes: Mutex<Option<FileHashes>>,
    zipped: Vec<Mutex<Vec<u8>>>,
    left: AtomicUsize,
}

/// A step of finishing a shard. Steps of one shard may run in any thread; the last one to finish makes the
/// files.
#[derive(Debug)]
pub(crate) enum Step {
    /// Everything, for shards that are not worth more than one task.
    All,
    /// The hashes of the raw file, which are sequential.
    Hash,
    /// The compression of one segment.
    Compress(usize),
    /// Putting the compressed segments together.
    Assemble,
}

/// Files on the disk under temporary names, ready to be published.
#[derive(Debug)]
pub(crate) struct FinishedShard {
    pub(crate) split: usize,
    pub(crate) shard: u64,
    pub(crate) start: Position,
    pub(crate) files: Vec<(String, TempFile)>,
    pub(crate) entry: ShardEntry,
    pub(crate) checks: Vec<FileCheck>,
}

/// How a later run recognises a published file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileCheck {
    /// The file's name.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// A hash of its contents.
    pub algo: HashAlgo,
    /// The hash in lower-case hex.
    pub hex: String,
}

/// What a thread keeps between steps.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    compressor: Option<(Compression, Compressor)>,
    contiguous: Vec<u8>,
}

impl Scratch {
    fn compress(
        &mut self,
        compression: Compression,
        parts: &[Part],
        shard: u64,
    ) -> Result<Vec<u8>, WriteError> {
        let fail = |source| WriteError::Compression { shard, source };
        let contiguous: &[u8] = match parts {
            [part] => part.bytes(),
            _ => {
                self.contiguous.clear();
                for part in parts {
                    self.contiguous.extend_from_slice(part.bytes());
                }
                &self.contiguous
            }
        };
        if self
            .compressor
            .as_ref()
            .is_none_or(|(of, _)| *of != compression)
        {
            self.compressor = Some((compression, compression.compressor().map_err(fail)?));
        }
        let mut out = Vec::new();
        if let Some((_, compressor)) = &mut self.compressor {
            compressor.compress(contiguous, &mut out).map_err(fail)?;
        }
        out.shrink_to_fit();
        Ok(out)
    }
}

impl ShardWork {
    /// Lays out a shard and says which steps finish it.
    pub(crate) fn new(
        cut: CutShard,
        kind: &ShardKind,
    ) -> Result<(Arc<Self>, Vec<Step>), WriteError> {
        let fail = |source| WriteError::Format {
            shard: cut.shard,
            source,
        };
        let samples = u64::try_from(cut.sizes.len()).unwrap_or(u64::MAX);
        let mut head = Vec::new();
        let mut meta = None;
        if kind.config.format() == Format::Mds {
            encode_header(
                &kind.config,
                &kind.config_json,
                cut.sizes.iter().copied(),
                &mut head,
            )
            .map_err(fail)?;
        } else {
            head.extend_from_slice(&kind.xsv_header);
            let mut bytes = Vec::new();
            let first = u64::try_from(head.len()).unwrap_or(u64::MAX);
            encode_meta(
                &kind.config_json,
                first,
                cut.sizes.iter().copied(),
                &mut bytes,
            )
            .map_err(fail)?;
            meta = Some(bytes);
        }
        drop(cut.sizes);
        let head_len = head.len();
        let mut parts = vec![Part::Head(Arc::new(head), 0..head_len)];
        parts.extend(
            cut.pieces
                .into_iter()
                .map(|piece| Part::Chunk(piece.chunk, piece.range)),
        );
        let raw_bytes: usize = parts.iter().map(Part::len).sum();
        let segments = match kind.segment_bytes() {
            Some(bytes) => segments(parts, bytes),
            None => vec![parts],
        };
        let hash_apart = segments.len() > 1 && !kind.config.hashes.is_empty();
        let mut steps = Vec::new();
        if segments.len() > 1 {
            if hash_apart {
                steps.push(Step::Hash);
            }
            steps.extend((0..segments.len()).map(Step::Compress));
        } else {
            steps.push(Step::All);
        }
        let hash_parts = if hash_apart {
            segments.iter().flatten().cloned().collect()
        } else {
            Vec::new()
        };
        let work = Self {
            split: cut.split,
            shard: cut.shard,
            samples,
            start: cut.start,
            raw_bytes: u64::try_from(raw_bytes).unwrap_or(u64::MAX),
            meta,
            hash_parts: Mutex::new(hash_parts),
            raw_hashes: Mutex::default(),
            zipped: segments.iter().map(|_| Mutex::default()).collect(),
            left: AtomicUsize::new(steps.len()),
            segments: segments
                .into_iter()
                .map(|parts| Mutex::new(Some(parts)))
                .collect(),
        };
        Ok((Arc::new(work), steps))
    }

    /// Runs one step. `Some` is the next step, when this was the last of the parallel ones.
    pub(crate) fn run(
        &self,
        step: &Step,
        kind: &ShardKind,
        dir: &Dir,
        temp_folder: Option<&str>,
        scratch: &mut Scratch,
    ) -> Result<Outcome, WriteError> {
        match step {
            Step::All => self
                .all(kind, dir, temp_folder, scratch)
                .map(|shard| Outcome::Finished(Box::new(shard))),
            Step::Hash => {
                let parts = std::mem::take(&mut *lock(&self.hash_parts));
                let mut hashers = hashers(&kind.config.hashes);
                // Parts are dropped as they are done, so that their memory returns early.
                for part in parts {
                    update_stepwise(part.bytes(), &mut hashers, |_| Ok(()))?;
                }
                *lock(&self.raw_hashes) = Some(finish(hashers));
                Ok(self.countdown())
            }
            Step::Compress(segment) => {
                let compression = kind.config.compression.ok_or(WriteError::Bug {
                    what: "a segment without compression",
                })?;
                let parts = lock(&self.segments[*segment]).take().unwrap_or_default();
                let zipped = scratch.compress(compression, &parts, self.shard)?;
                *lock(&self.zipped[*segment]) = zipped;
                Ok(self.countdown())
            }
            Step::Assemble => self
                .assemble(kind, dir, temp_folder, scratch)
                .map(|shard| Outcome::Finished(Box::new(shard))),
        }
    }

    fn countdown(&self) -> Outcome {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            Outcome::Next(Step::Assemble)
        } else {
            Outcome::Nothing
        }
    }

    fn all(
        &self,
        kind: &ShardKind,
        dir: &Dir,
        folder: Option<&str>,
        scratch: &mut Scratch,
    ) -> Result<FinishedShard, WriteError> {
        let parts = lock(&self.segments[0]).take().unwrap_or_default();
        let Some(compression) = kind.config.compression else {
            let mut temp = dir.temp_file(folder)?;
            let mut hashers = self.check_hashers(kind);
            for part in parts {
                update_stepwise(part.bytes(), &mut hashers, |bytes| {
                    temp.write_all(bytes)
                        .map_err(|error| temp.write_error(error).into())
                })?;
            }
            return self.finish(kind, dir, folder, scratch, Data::Raw(temp, finish(hashers)));
        };
        let mut hashers = hashers(&kind.config.hashes);
        for part in &parts {
            update_stepwise(part.bytes(), &mut hashers, |_| Ok(()))?;
        }
        let zipped = scratch.compress(compression, &parts, self.shard)?;
        drop(parts);
        let (temp, zip_hashes) = self.write_zipped(kind, dir, folder, &[zipped])?;
        self.finish(
            kind,
            dir,
            folder,
            scratch,
            Data::Zipped(finish(hashers), temp, zip_hashes),
        )
    }

    fn assemble(
        &self,
        kind: &ShardKind,
        dir: &Dir,
        folder: Option<&str>,
        scratch: &mut Scratch,
    ) -> Result<FinishedShard, WriteError> {
        let mut zipped: Vec<Vec<u8>> = self
            .zipped
            .iter()
            .map(|segment| std::mem::take(&mut *lock(segment)))
            .collect();
        self.join_frames(kind, &mut zipped, scratch)?;
        let raw_hashes = lock(&self.raw_hashes).take().unwrap_or_default();
        let (temp, zip_hashes) = self.write_zipped(kind, dir, folder, &zipped)?;
        self.finish(
            kind,
            dir,
            folder,
            scratch,
            Data::Zipped(raw_hashes, temp, zip_hashes),
        )
    }

    /// Puts frames together that the original's reader would not find.
    ///
    /// COMPAT: before its `zstd` package (1.5.7) decompresses, it adds up the sizes that the frames declare, and stops
    /// behind the frame that follows one which is at least as long as all frames behind it together. So whatever is behind
    /// such a frame becomes one frame.
    fn join_frames(
        &self,
        kind: &ShardKind,
        zipped: &mut Vec<Vec<u8>>,
        scratch: &mut Scratch,
    ) -> Result<(), WriteError> {
        let Some(compression) = kind.config.compression else {
            return Ok(());
        };
        let fail = |source| WriteError::Compression {
            shard: self.shard,
            source,
        };
        // What was compressed here may shrink as far as it does.
        let mut limits = Limits::default();
        (limits.expansion_bytes, limits.expansion_ratio) = (u64::MAX, u64::MAX);
        while let Some(lost) = first_lost(zipped) {
            let mut raw = Vec::new();
            for frame in zipped.drain(lost - 1..) {
                let bytes = compression.decompress(&frame, None, &limits);
                raw.append(&mut bytes.map_err(fail)?);
            }
            let whole = 0..raw.len();
            let part = Part::Head(Arc::new(raw), whole);
            zipped.push(scratch.compress(compression, &[part], self.shard)?);
        }
        Ok(())
    }

    /// The hashers of a stored file: those of the index, or the check alone.
    fn check_hashers(&self, kind: &ShardKind) -> Vec<Hasher> {
        if kind.config.hashes.is_empty() {
            hashers(kind.check.as_slice())
        } else {
            hashers(&kind.config.hashes)
        }
    }

    fn write_zipped(
        &self,
        kind: &ShardKind,
        dir: &Dir,
        folder: Option<&str>,
        zipped: &[Vec<u8>],
    ) -> Result<(TempFile, FileHashes), WriteError> {
        let mut temp = dir.temp_file(folder)?;
        let mut hashers = self.check_hashers(kind);
        for bytes in zipped {
            update_stepwise(bytes, &mut hashers, |bytes| {
                temp.write_all(bytes)
                    .map_err(|error| temp.write_error(error).into())
            })?;
        }
        Ok((temp, finish(hashers)))
    }

    fn finish(
        &self,
        kind: &ShardKind,
        dir: &Dir,
        folder: Option<&str>,
        scratch: &mut Scratch,
        data: Data,
    ) -> Result<FinishedShard, WriteError> {
        let format = kind.config.format();
        let compression = kind.config.compression.as_ref();
        let mut files = Vec::new();
        let mut checks = Vec::new();
        let mut stored = |name: String, temp: TempFile, hashes: FileHashes| -> FileInfo {
            let bytes = temp.written();
            checks.extend(kind.check.map(|algo| {
                let digest = hashes.get(algo);
                FileCheck {
                    name: name.clone(),
                    bytes,
                    algo,
                    hex: digest.map(|digest| digest.to_string()).unwrap_or_default(),
                }
            }));
            files.push((name.clone(), temp));
            let hashes = if kind.config.hashes.is_empty() {
                FileHashes::default()
            } else {
                hashes
            };
            FileInfo {
                basename: name.into(),
                bytes,
                hashes,
            }
        };
        let raw_name = basename(self.shard, format, false, None);
        let (raw_data, zip_data) = match data {
            Data::Raw(temp, hashes) => (stored(raw_name, temp, hashes), None),
            Data::Zipped(raw_hashes, temp, zip_hashes) => {
                let raw = FileInfo {
                    basename: raw_name.into(),
                    bytes: self.raw_bytes,
                    hashes: raw_hashes,
                };
                (
                    raw,
                    Some(stored(
                        basename(self.shard, format, false, compression),
                        temp,
                        zip_hashes,
                    )),
                )
            }
        };
        let (mut raw_meta, mut zip_meta) = (None, None);
        if let Some(meta) = &self.meta {
            let name = basename(self.shard, format, true, None);
            let mut raw_hashers = self.check_hashers(kind);
            update_stepwise(meta, &mut raw_hashers, |_| Ok(()))?;
            let raw_hashes = finish(raw_hashers);
            if let Some(compression) = compression {
                let part = Part::Head(Arc::new(meta.clone()), 0..meta.len());
                let zipped = scratch.compress(*compression, &[part], self.shard)?;
                let (temp, hashes) = self.write_zipped(kind, dir, folder, &[zipped])?;
                let bytes = u64::try_from(meta.len()).unwrap_or(u64::MAX);
                let hashes_of_raw = if kind.config.hashes.is_empty() {
                    FileHashes::default()
                } else {
                    raw_hashes
                };
                raw_meta = Some(FileInfo {
                    basename: name.into(),
                    bytes,
                    hashes: hashes_of_raw,
                });
                zip_meta = Some(stored(
                    basename(self.shard, format, true, Some(compression)),
                    temp,
                    hashes,
                ));
            } else {
                let mut temp = dir.temp_file(folder)?;
                temp.write_all(meta)
                    .map_err(|error| temp.write_error(error))?;
                raw_meta = Some(stored(name, temp, raw_hashes));
            }
        }
        let entry = ShardEntry {
            config: Arc::clone(&kind.config),
            samples: self.samples,
            raw_data,
            zip_data,
            raw_meta,
            zip_meta,
        };
        Ok(FinishedShard {
            split: self.split,
            shard: self.shard,
            start: self.start,
            files,
            entry,
            checks,
        })
    }
}

/// What a step led to.
#[derive(Debug)]
pub(crate) enum Outcome {
    Nothing,
    Next(Step),
    Finished(Box<FinishedShard>),
}

enum Data {
    Raw(TempFile, FileHashes),
    Zipped(FileHashes, TempFile, FileHashes),
}

/// Cuts the parts of a file at every multiple of `bytes`.
fn segments(parts: Vec<Part>, bytes: usize) -> Vec<Vec<Part>> {
    let mut segments = Vec::new();
    let mut open = Vec::new();
    let mut room = bytes;
    for mut part in parts {
        while part.len() > room {
            let (head, tail) = part.split_at(room);
            open.push(head);
            segments.push(std::mem::take(&mut open));
            part = tail;
            room = bytes;
        }
        room -= part.len();
        if part.len() > 0 {
            open.push(part);
        }
    }
    if !open.is_empty() || segments.is_empty() {
        segments.push(open);
    }
    segments
}

/// The first frame that is behind one which is at least as long as everything behind it, and behind the next one.
fn first_lost(frames: &[Vec<u8>]) -> Option<usize> {
    let mut behind: usize = frames.iter().map(Vec::len).sum();
    for (at, frame) in frames.iter().enumerate() {
        behind -= frame.len();
        if frame.len() >= behind {
            return (at + 2 < frames.len()).then_some(at + 2);
        }
    }
    None
}

fn hashers(algos: &[HashAlgo]) -> Vec<Hasher> {
    algos.iter().copied().map(Hasher::new).collect()
}

fn finish(hashers: Vec<Hasher>) -> FileHashes {
    hashers.into_iter().map(Hasher::finish).collect()
}

/// PERF: hashes and writes in steps that fit a core's cache.
fn update_stepwise(
    bytes: &[u8],
    hashers: &mut [Hasher],
    mut also: impl FnMut(&[u8]) -> Result<(), WriteError>,
) -> Result<(), WriteError> {
    for step in bytes.chunks(STEP_BYTES) {
        for hasher in hashers.iter_mut() {
            hasher.update(step);
        }
        also(step)?;
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
