//! Finishes one shard: header and trailer, hashes, compression, temporary files. Format-specific code is in `streaming`
//! and `tar`.

mod streaming;
mod tar;

use std::io::Write as _;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use shardmill_mds::{Compression, Compressor, Content, FileHashes, HashAlgo, Hasher};
use shardmill_storage::{Dir, Place, StorageError, TempFile};
use shardmill_webdataset::{CompressedPiece, FieldSet, PieceCompressor, TarCompression};

use crate::chunk::Chunk;
use crate::entry::IndexEntry;
use crate::error::WriteError;
use crate::form::ShardForm;
use crate::pack::{CutShard, Position};

/// The number of bytes that are hashed and written at a time. The second operation finds them in the core's cache.
const STEP_BYTES: usize = 256 << 10;

/// The settings that all shards of one dataset share.
#[derive(Debug)]
pub(crate) struct ShardKind {
    form: ShardForm,
    texts: streaming::Texts,
    /// The hash that a later run checks before it reuses a shard. `None` if no later run will reuse shards.
    check: Option<HashAlgo>,
}

impl ShardKind {
    /// Creates the kind of shards that a later run of the same conversion may reuse.
    pub(crate) fn resumable(form: ShardForm) -> Self {
        let check = form.hashes().first().copied().unwrap_or(HashAlgo::Xxh3_128);
        Self {
            check: Some(check),
            ..Self::final_only(form)
        }
    }

    /// Creates the kind of shards that no later run reuses; they are valid only with their index.
    pub(crate) fn final_only(form: ShardForm) -> Self {
        Self {
            texts: streaming::Texts::new(&form),
            form,
            check: None,
        }
    }

    /// Returns whether shards of `form` are compatible with these.
    pub(crate) fn is_of(&self, form: &ShardForm) -> bool {
        match (&self.form, form) {
            (ShardForm::Streaming(own), ShardForm::Streaming(other)) => own == other,
            (ShardForm::Tar(own), ShardForm::Tar(other)) => {
                own.fields == other.fields && own.compression == other.compression
            }
            _ => false,
        }
    }

    fn hashes(&self) -> &[HashAlgo] {
        self.form.hashes()
    }

    fn codec(&self) -> Option<Codec> {
        match &self.form {
            ShardForm::Streaming(config) => config.compression.map(Codec::Streaming),
            ShardForm::Tar(form) => form.compression.map(Codec::Tar),
        }
    }

    fn lay(&self, cut: CutShard) -> Result<Laid, WriteError> {
        match &self.form {
            ShardForm::Streaming(config) => streaming::lay(config, &self.texts, cut),
            ShardForm::Tar(form) => tar::lay(form, cut),
        }
    }

    /// Combines compressed segments into a file.
    fn join(
        &self,
        shard: u64,
        zipped: Vec<Zipped>,
        scratch: &mut Scratch,
    ) -> Result<Vec<Vec<u8>>, WriteError> {
        match self.codec() {
            Some(Codec::Streaming(compression)) => {
                streaming::join(compression, shard, zipped, scratch)
            }
            Some(Codec::Tar(compression)) => tar::join(compression, shard, zipped),
            None => Ok(Vec::new()),
        }
    }
}

/// The contents of a shard, as its format arranges them.
#[derive(Debug)]
struct Laid {
    /// The segments that are compressed separately. There is one segment without compression, or if the compression
    /// does not support segments.
    segments: Vec<Vec<Part>>,
    /// The contents of a second file next to the data: the meta file or the offset table.
    side: Option<Vec<u8>>,
    /// The fields of the samples of a tar shard.
    fields: Option<Arc<FieldSet>>,
}

/// A compression of either format.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Codec {
    Streaming(Compression),
    Tar(TarCompression),
}

/// A compressed segment.
#[derive(Debug)]
enum Zipped {
    Bytes(Vec<u8>),
    Piece(CompressedPiece),
}

/// A range of bytes of a data file.
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

/// A shard whose bytes are known and whose files do not exist yet.
#[derive(Debug)]
pub(crate) struct ShardWork {
    pub(crate) split: usize,
    pub(crate) shard: u64,
    pub(crate) samples: u64,
    pub(crate) start: Position,
    content: Content,
    raw_bytes: u64,
    side: Option<Vec<u8>>,
    fields: Option<Arc<FieldSet>>,
    segments: Vec<Mutex<Option<Vec<Part>>>>,
    /// The same parts as in `segments`, for the task that hashes them in order.
    hash_parts: Mutex<Vec<Part>>,
    raw_hashes: Mutex<Option<FileHashes>>,
    zipped: Vec<Mutex<Option<Zipped>>>,
    left: AtomicUsize,
}

/// A step of finishing a shard. Any thread can run the steps of a shard. The last parallel step schedules `Assemble`.
#[derive(Debug)]
pub(crate) enum Step {
    /// Everything, for shards with a single segment.
    All,
    /// Hashing the raw file, which is sequential.
    Hash,
    /// Compressing one segment.
    Compress(usize),
    /// Combining the compressed segments.
    Assemble,
}

/// A shard whose files exist under temporary names and are ready to be published.
#[derive(Debug)]
pub(crate) struct FinishedShard {
    pub(crate) split: usize,
    pub(crate) shard: u64,
    pub(crate) start: Position,
    pub(crate) content: Content,
    pub(crate) files: Vec<(String, TempFile)>,
    pub(crate) entry: IndexEntry,
    pub(crate) checks: Vec<FileCheck>,
}

/// The data that a later run compares to recognise a published file.
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

/// The location of temporary files.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Temps<'a> {
    /// In a directory.
    Dir(&'a Dir),
    /// In a folder of a root, if the root is local.
    Place(&'a Place, &'a str),
}

impl Temps<'_> {
    fn file(self) -> Result<TempFile, StorageError> {
        match self {
            Self::Dir(dir) => dir.temp_file(None).map(TempFile::written_behind),
            Self::Place(place, folder) => place.temp_file(Some(folder)),
        }
    }
}

/// Buffers and a compressor that a thread reuses between steps.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    compressor: Option<(Codec, AnyCompressor)>,
    contiguous: Vec<u8>,
}

#[derive(Debug)]
enum AnyCompressor {
    Streaming(Compressor),
    Tar(PieceCompressor),
}

impl Scratch {
    fn compress(&mut self, codec: Codec, parts: &[Part], shard: u64) -> Result<Zipped, WriteError> {
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
        let streaming = |source| WriteError::Compression { shard, source };
        let tar = |source| WriteError::TarCompression { shard, source };
        if self.compressor.as_ref().is_none_or(|(of, _)| *of != codec) {
            let compressor = match codec {
                Codec::Streaming(compression) => {
                    AnyCompressor::Streaming(compression.compressor().map_err(streaming)?)
                }
                Codec::Tar(compression) => {
                    AnyCompressor::Tar(PieceCompressor::new(compression).map_err(tar)?)
                }
            };
            self.compressor = Some((codec, compressor));
        }
        match &mut self.compressor {
            Some((_, AnyCompressor::Streaming(compressor))) => {
                let mut out = Vec::new();
                compressor
                    .compress(contiguous, &mut out)
                    .map_err(streaming)?;
                out.shrink_to_fit();
                Ok(Zipped::Bytes(out))
            }
            Some((_, AnyCompressor::Tar(compressor))) => {
                Ok(Zipped::Piece(compressor.compress(contiguous).map_err(tar)?))
            }
            None => Err(WriteError::Bug {
                what: "a thread without a compressor",
            }),
        }
    }
}

impl ShardWork {
    /// Lays out a shard and returns the steps that finish it.
    pub(crate) fn new(
        cut: CutShard,
        kind: &ShardKind,
    ) -> Result<(Arc<Self>, Vec<Step>), WriteError> {
        let samples = u64::try_from(cut.sizes.len()).unwrap_or(u64::MAX);
        let (split, shard, start, content) = (cut.split, cut.shard, cut.start, cut.content);
        let Laid {
            segments,
            side,
            fields,
        } = kind.lay(cut)?;
        let raw_bytes: usize = segments.iter().flatten().map(Part::len).sum();
        let hash_apart = segments.len() > 1 && !kind.hashes().is_empty();
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
            split,
            shard,
            samples,
            start,
            content,
            raw_bytes: u64::try_from(raw_bytes).unwrap_or(u64::MAX),
            side,
            fields,
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

    /// Runs one step. The last of the parallel steps returns the step that follows them.
    pub(crate) fn run(
        &self,
        step: &Step,
        kind: &ShardKind,
        temps: Temps<'_>,
        scratch: &mut Scratch,
    ) -> Result<Outcome, WriteError> {
        match step {
            Step::All => self
                .all(kind, temps, scratch)
                .map(|shard| Outcome::Finished(Box::new(shard))),
            Step::Hash => {
                let parts = std::mem::take(&mut *lock(&self.hash_parts));
                let mut hashers = hashers(kind.hashes());
                // Drops each part when it is hashed, to release its memory early.
                for part in parts {
                    update_stepwise(part.bytes(), &mut hashers, |_| Ok(()))?;
                }
                *lock(&self.raw_hashes) = Some(finish(hashers));
                Ok(self.countdown())
            }
            Step::Compress(segment) => {
                let codec = kind.codec().ok_or(WriteError::Bug {
                    what: "a segment without compression",
                })?;
                let parts = lock(&self.segments[*segment]).take().unwrap_or_default();
                let zipped = scratch.compress(codec, &parts, self.shard)?;
                *lock(&self.zipped[*segment]) = Some(zipped);
                Ok(self.countdown())
            }
            Step::Assemble => self
                .assemble(kind, temps, scratch)
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
        temps: Temps<'_>,
        scratch: &mut Scratch,
    ) -> Result<FinishedShard, WriteError> {
        let parts = lock(&self.segments[0]).take().unwrap_or_default();
        let Some(codec) = kind.codec() else {
            let mut temp = temps.file()?;
            let mut hashers = self.check_hashers(kind);
            for part in parts {
                update_stepwise(part.bytes(), &mut hashers, |bytes| {
                    temp.write_all(bytes)
                        .map_err(|error| temp.write_error(error).into())
                })?;
            }
            return self.finish(kind, temps, scratch, Data::Raw(temp, finish(hashers)));
        };
        let mut hashers = hashers(kind.hashes());
        for part in &parts {
            update_stepwise(part.bytes(), &mut hashers, |_| Ok(()))?;
        }
        let zipped = scratch.compress(codec, &parts, self.shard)?;
        drop(parts);
        let zipped = kind.join(self.shard, vec![zipped], scratch)?;
        let (temp, zip_hashes) = self.write_zipped(kind, temps, &zipped)?;
        self.finish(
            kind,
            temps,
            scratch,
            Data::Zipped(finish(hashers), temp, zip_hashes),
        )
    }

    fn assemble(
        &self,
        kind: &ShardKind,
        temps: Temps<'_>,
        scratch: &mut Scratch,
    ) -> Result<FinishedShard, WriteError> {
        let zipped = self
            .zipped
            .iter()
            .filter_map(|segment| lock(segment).take())
            .collect();
        let zipped = kind.join(self.shard, zipped, scratch)?;
        let raw_hashes = lock(&self.raw_hashes).take().unwrap_or_default();
        let (temp, zip_hashes) = self.write_zipped(kind, temps, &zipped)?;
        self.finish(
            kind,
            temps,
            scratch,
            Data::Zipped(raw_hashes, temp, zip_hashes),
        )
    }

    /// Returns the hashers for a stored file: the hashes of the index, or else only the check of a later run.
    fn check_hashers(&self, kind: &ShardKind) -> Vec<Hasher> {
        if kind.hashes().is_empty() {
            hashers(kind.check.as_slice())
        } else {
            hashers(kind.hashes())
        }
    }

    fn write_zipped(
        &self,
        kind: &ShardKind,
        temps: Temps<'_>,
        zipped: &[Vec<u8>],
    ) -> Result<(TempFile, FileHashes), WriteError> {
        let mut temp = temps.file()?;
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
        temps: Temps<'_>,
        scratch: &mut Scratch,
        data: Data,
    ) -> Result<FinishedShard, WriteError> {
        let mut stored = StoredFiles {
            kind,
            files: Vec::new(),
            checks: Vec::new(),
        };
        let mut room = Room { temps, scratch };
        let entry = match &kind.form {
            ShardForm::Streaming(config) => {
                let entry = self.finish_streaming(config, kind, &mut room, data, &mut stored)?;
                IndexEntry::Streaming(entry)
            }
            ShardForm::Tar(form) => {
                let entry = self.finish_tar(form, kind, &mut room, data, &mut stored)?;
                IndexEntry::Tar(entry)
            }
        };
        Ok(FinishedShard {
            split: self.split,
            shard: self.shard,
            start: self.start,
            content: self.content,
            files: stored.files,
            entry,
            checks: stored.checks,
        })
    }

    /// Writes a second file without compressing it.
    fn write_side(
        &self,
        kind: &ShardKind,
        room: &Room<'_>,
        bytes: &[u8],
    ) -> Result<(TempFile, FileHashes), WriteError> {
        let mut temp = room.temps.file()?;
        let mut hashers = self.check_hashers(kind);
        update_stepwise(bytes, &mut hashers, |bytes| {
            temp.write_all(bytes)
                .map_err(|error| temp.write_error(error).into())
        })?;
        Ok((temp, finish(hashers)))
    }
}

/// The resources for finishing a shard.
struct Room<'a> {
    temps: Temps<'a>,
    scratch: &'a mut Scratch,
}

/// The files of a shard that have been written so far.
struct StoredFiles<'a> {
    kind: &'a ShardKind,
    files: Vec<(String, TempFile)>,
    checks: Vec<FileCheck>,
}

impl StoredFiles<'_> {
    /// Adds a file. Returns its length and the hashes for the index.
    fn add(&mut self, name: &str, temp: TempFile, hashes: FileHashes) -> (u64, FileHashes) {
        let bytes = temp.written();
        self.checks.extend(self.kind.check.map(|algo| {
            let digest = hashes.get(algo);
            FileCheck {
                name: name.to_owned(),
                bytes,
                algo,
                hex: digest.map(|digest| digest.to_string()).unwrap_or_default(),
            }
        }));
        self.files.push((name.to_owned(), temp));
        let hashes = if self.kind.hashes().is_empty() {
            FileHashes::default()
        } else {
            hashes
        };
        (bytes, hashes)
    }
}

/// The result of a step.
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

/// Cuts the parts of a file into segments of these lengths. The rest becomes the last segment.
fn segments(parts: Vec<Part>, mut lengths: impl Iterator<Item = usize>) -> Vec<Vec<Part>> {
    let mut segments = Vec::new();
    let mut open = Vec::new();
    let mut room = lengths.next().unwrap_or(usize::MAX);
    for mut part in parts {
        while part.len() > room {
            let (head, tail) = part.split_at(room);
            open.push(head);
            segments.push(std::mem::take(&mut open));
            part = tail;
            room = lengths.next().unwrap_or(usize::MAX);
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

fn hashers(algos: &[HashAlgo]) -> Vec<Hasher> {
    algos.iter().copied().map(Hasher::new).collect()
}

fn finish(hashers: Vec<Hasher>) -> FileHashes {
    hashers.into_iter().map(Hasher::finish).collect()
}

/// PERF: hashes and writes in steps that fit into a core's cache.
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
