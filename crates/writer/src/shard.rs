//! Finishes one shard: header and trailer, hashes, compression, temporary files. Format-specific code is in `streaming`,
//! `tar` and `table`.

mod files;
mod slices;
mod streaming;
mod table;
mod tar;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use shardmill_core::{Error, lock};
use shardmill_mds::{FileHashes, FileInfo, HashAlgo, basename};
use shardmill_storage::TempFile;

use crate::entry::IndexEntry;
use crate::error;
use crate::form::{ShardForm, table_file_name};
use crate::pack::{CutShard, ShardSpan};
use files::Files;
pub(crate) use files::Temps;
pub use files::{FileCheck, hash_all, hash_each};
pub(crate) use slices::Scratch;
use slices::{Codec, Compressed, Layout, Side, Slice, TableRows};

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

    fn codec(&self) -> Option<Codec> {
        match &self.form {
            ShardForm::Streaming(config) => config.compression.map(Codec::Streaming),
            ShardForm::Tar(form) => form.compression.map(Codec::Tar),
            // The encoder compresses.
            ShardForm::Table(_) => None,
        }
    }

    fn lay_out(&self, cut: CutShard) -> Result<Layout, Error> {
        match &self.form {
            ShardForm::Streaming(config) => streaming::lay_out(config, &self.texts, cut),
            ShardForm::Tar(form) => tar::lay_out(form, cut),
            ShardForm::Table(_) => Ok(table::lay_out(cut)),
        }
    }

    /// Returns the name of a data file.
    fn name(&self, shard: u64, codec: Option<Codec>) -> String {
        match (&self.form, codec) {
            (ShardForm::Streaming(config), Some(Codec::Streaming(compression))) => {
                basename(shard, config.format(), false, Some(&compression))
            }
            (ShardForm::Streaming(config), _) => basename(shard, config.format(), false, None),
            (ShardForm::Tar(form), Some(Codec::Tar(compression))) => {
                form.pattern.name(shard, Some(compression))
            }
            (ShardForm::Tar(form), _) => form.pattern.name(shard, None),
            (ShardForm::Table(_), _) => table_file_name(shard),
        }
    }
}

/// A shard whose bytes are known and whose files do not exist yet.
#[derive(Debug)]
pub(crate) struct ShardWork {
    span: ShardSpan,
    raw_bytes: u64,
    side: Side,
    /// The rows of a file of a table, until it is encoded.
    table: Mutex<Option<TableRows>>,
    segments: Vec<Mutex<Segment>>,
    /// The slices of all segments, for the task that hashes them in order.
    hash_slices: Mutex<Vec<Slice>>,
    raw_hashes: Mutex<FileHashes>,
    left: AtomicUsize,
}

/// A part of a data file that is compressed separately.
#[derive(Debug)]
enum Segment {
    Raw(Vec<Slice>),
    Compressed(Compressed),
    Taken,
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
    pub(crate) span: ShardSpan,
    pub(crate) files: Vec<(String, TempFile)>,
    pub(crate) entry: IndexEntry,
    pub(crate) checks: Vec<FileCheck>,
}

impl FinishedShard {
    /// Gives all files other names.
    pub(crate) fn rename_files(&mut self, name: impl Fn(&str) -> String) {
        for (file, _) in &mut self.files {
            *file = name(file);
        }
        for check in &mut self.checks {
            check.name = name(&check.name);
        }
        self.entry.rename_files(name);
    }
}

/// The result of a step.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The steps that follow.
    Steps(Vec<Step>),
    Finished(Box<FinishedShard>),
}

/// Finishes a shard in the calling thread.
pub(crate) fn finish(
    cut: CutShard,
    kind: &ShardKind,
    temps: Temps<'_>,
    scratch: &mut Scratch,
) -> Result<FinishedShard, Error> {
    let (work, steps) = ShardWork::new(cut, kind)?;
    for step in steps.into_iter().chain([Step::Assemble]) {
        if let Outcome::Finished(shard) = work.run(&step, kind, temps, scratch)? {
            return Ok(*shard);
        }
    }
    Err(error::internal("the steps of a shard did not finish it"))
}

impl ShardWork {
    /// Lays out a shard and returns the steps that finish it.
    pub(crate) fn new(cut: CutShard, kind: &ShardKind) -> Result<(Arc<Self>, Vec<Step>), Error> {
        let span = cut.span;
        let Layout {
            segments,
            side,
            table,
        } = kind.lay_out(cut)?;
        let raw_bytes: usize = segments.iter().flatten().map(Slice::len).sum();
        let raw_bytes = raw_bytes + table.as_ref().map_or(0, TableRows::bytes);
        let mut steps = Vec::new();
        let mut hash_slices = Vec::new();
        if segments.len() > 1 {
            if !kind.form.hashes().is_empty() {
                steps.push(Step::Hash);
                hash_slices = segments.iter().flatten().cloned().collect();
            }
            steps.extend((0..segments.len()).map(Step::Compress));
        } else {
            steps.push(Step::All);
        }
        let segments = segments.into_iter().map(Segment::Raw).map(Mutex::new);
        let work = Self {
            span,
            raw_bytes: u64::try_from(raw_bytes).unwrap_or(u64::MAX),
            side,
            table: Mutex::new(table),
            segments: segments.collect(),
            hash_slices: Mutex::new(hash_slices),
            raw_hashes: Mutex::default(),
            left: AtomicUsize::new(steps.len()),
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
    ) -> Result<Outcome, Error> {
        match step {
            Step::Hash => {
                let slices = std::mem::take(&mut *lock(&self.hash_slices));
                *lock(&self.raw_hashes) = hash_all(kind.form.hashes(), slices);
            }
            Step::Compress(segment) => {
                let codec = kind
                    .codec()
                    .ok_or_else(|| error::internal("a segment without compression"))?;
                let compressed = scratch.compress(codec, &self.raw(*segment), self.span.shard)?;
                *lock(&self.segments[*segment]) = Segment::Compressed(compressed);
            }
            Step::All => {
                if let Some(codec) = kind.codec() {
                    let slices = self.raw(0);
                    *lock(&self.raw_hashes) = hash_all(kind.form.hashes(), &slices);
                    let compressed = scratch.compress(codec, &slices, self.span.shard)?;
                    *lock(&self.segments[0]) = Segment::Compressed(compressed);
                }
                return self.assemble(kind, temps, scratch);
            }
            Step::Assemble => return self.assemble(kind, temps, scratch),
        }
        Ok(Outcome::Steps(
            match self.left.fetch_sub(1, Ordering::AcqRel) {
                1 => vec![Step::Assemble],
                _ => Vec::new(),
            },
        ))
    }

    fn take(&self, segment: &Mutex<Segment>) -> Segment {
        std::mem::replace(&mut *lock(segment), Segment::Taken)
    }

    fn raw(&self, segment: usize) -> Vec<Slice> {
        match self.take(&self.segments[segment]) {
            Segment::Raw(slices) => slices,
            Segment::Compressed(_) | Segment::Taken => Vec::new(),
        }
    }

    /// Writes the files and creates the index entry.
    fn assemble(
        &self,
        kind: &ShardKind,
        temps: Temps<'_>,
        scratch: &mut Scratch,
    ) -> Result<Outcome, Error> {
        let span = &self.span;
        let mut files = Files::new(temps, kind.form.hashes(), kind.check);
        let entry = match &kind.form {
            ShardForm::Streaming(config) => {
                let data = self.write_data(kind, &mut files, scratch)?;
                let meta = self.side.file.as_deref();
                let entry = streaming::finish(config, span, data, meta, &mut files, scratch)?;
                IndexEntry::Streaming(entry)
            }
            ShardForm::Tar(form) => {
                let data = self.write_data(kind, &mut files, scratch)?;
                IndexEntry::Tar(tar::finish(form, span, data, &self.side, &mut files)?)
            }
            ShardForm::Table(form) => {
                let rows = lock(&self.table).take().unwrap_or_default();
                let name = kind.name(span.shard, None);
                IndexEntry::Table(table::finish(form, span, rows, name, &mut files)?)
            }
        };
        Ok(Outcome::Finished(Box::new(FinishedShard {
            span: self.span,
            files: files.written,
            entry,
            checks: files.checks,
        })))
    }

    /// Writes the data file. Returns the raw file and the compressed one, if there is one.
    fn write_data(
        &self,
        kind: &ShardKind,
        files: &mut Files<'_>,
        scratch: &mut Scratch,
    ) -> Result<(FileInfo, Option<FileInfo>), Error> {
        let shard = self.span.shard;
        let raw_name = kind.name(shard, None);
        let Some(codec) = kind.codec() else {
            return Ok((files.write(raw_name, self.raw(0))?, None));
        };
        let segments = self.segments.iter().map(|segment| self.take(segment));
        let compressed = segments.filter_map(|segment| match segment {
            Segment::Compressed(compressed) => Some(compressed),
            Segment::Raw(_) | Segment::Taken => None,
        });
        let compressed = compressed.collect();
        let joined = match codec {
            Codec::Streaming(codec) => streaming::join(codec, shard, compressed, scratch)?,
            Codec::Tar(codec) => tar::join(codec, shard, compressed)?,
        };
        let raw = FileInfo {
            basename: raw_name.into(),
            bytes: self.raw_bytes,
            hashes: std::mem::take(&mut *lock(&self.raw_hashes)),
        };
        let stored = files.write(kind.name(shard, Some(codec)), joined)?;
        Ok((raw, Some(stored)))
    }
}
