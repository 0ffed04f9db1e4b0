//! Writes one attempt of a part in the calling thread.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use shardmill_core::Error;
use shardmill_storage::{Destination, Dir, FileVersion, PublishMode, StorageError};

use super::manifest::{Manifest, ManifestBuilder, part_form};
use super::staging::Staging;
use crate::chunk::{BufferPool, Origin};
use crate::error;
use crate::form::ShardForm;
use crate::input::RowNumbers;
use crate::pack::{CutShard, Keys, Packer, ShardEnds};
use crate::record::ShardRecord;
use crate::rows::RowEncoder;
use crate::shard::{Scratch, ShardKind, Temps, finish};

/// The number of buffers kept for reuse. This is enough for a shard of 64 MiB.
const SPARE_BUFFERS: usize = 40;

/// Writes the shards of one attempt of a part.
///
/// All work is done in the calling thread, one shard at a time: engines that run many tasks use the other cores for
/// other tasks. Memory holds the shard that is being filled and its compressed form. If the writer is dropped without
/// [`finish`](Self::finish), it removes the files that it has written.
#[derive(Debug)]
pub struct PartWriter {
    destination: Destination,
    builder: Option<ManifestBuilder>,
    /// In a local directory, the folder of the attempt.
    folder: Option<Dir>,
    encoder: RowEncoder,
    kind: ShardKind,
    packer: Packer,
    pool: Arc<BufferPool>,
    scratch: Scratch,
    /// The files whose upload to a store has started. They may exist even if their shard was never added.
    started_uploads: Vec<String>,
    samples: u64,
    is_broken: bool,
}

impl PartWriter {
    /// Begins an attempt. `part` counts the parts of the job from 0; `attempt` identifies the attempt within the job.
    ///
    /// If the keys of tar samples are numbers, they are prefixed with the number of the part. `samples_per_shard` limits
    /// shards in addition to the size limit of the form.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`ManifestBuilder::new`], [`StorageError::Exists`] if the attempt already exists, or the
    /// error of the disk.
    pub fn new(
        destination: Destination,
        staging: &Staging,
        part: u64,
        attempt: &str,
        encoder: RowEncoder,
        form: ShardForm,
        samples_per_shard: Option<u64>,
    ) -> Result<Self, Error> {
        let builder = ManifestBuilder::new(&destination, staging, part, attempt, &form)?;
        let folder = match (&destination, builder.folder()) {
            (Destination::Local(dir), Some(folder)) => {
                if dir.exists(folder)? {
                    return Err(StorageError::Exists {
                        path: dir.path_of(folder),
                    }
                    .into());
                }
                Some(dir.make_dir(folder)?)
            }
            _ => None,
        };
        let ends = ShardEnds::of_samples(samples_per_shard);
        let keys = Keys::new(encoder.keys(), &builder.key_prefix(), 0);
        Ok(Self {
            packer: Packer::new(0, &form, ends, 0, keys),
            kind: ShardKind::resumable(form),
            destination,
            builder: Some(builder),
            folder,
            encoder,
            pool: BufferPool::new(SPARE_BUFFERS),
            scratch: Scratch::default(),
            started_uploads: Vec::new(),
            samples: 0,
            is_broken: false,
        })
    }

    /// Replaces the encoder, to accept batches of other types that become the same columns.
    ///
    /// # Errors
    ///
    /// Returns [`WriteProblem::PartForm`](crate::WriteProblem::PartForm) if the shards would have another form.
    pub fn change(&mut self, encoder: RowEncoder, form: &ShardForm) -> Result<(), Error> {
        if !self.kind.is_of(form) {
            let builder = self.builder.as_ref();
            let part = builder.map_or(0, ManifestBuilder::part);
            let difference = builder.map_or_else(String::new, |builder| builder.difference(form));
            return Err(part_form(part, part, &difference));
        }
        self.encoder = encoder;
        Ok(())
    }

    /// Adds all rows of a batch. Calls `cancel` regularly during long operations.
    ///
    /// # Errors
    ///
    /// `Corrupt` if a row cannot be stored; the error names the number of the row in the part. Returns the
    /// error of the disk or the store. After an error nothing can be added.
    pub fn push(
        &mut self,
        batch: &RecordBatch,
        cancel: &mut dyn FnMut() -> bool,
    ) -> Result<(), Error> {
        if self.is_broken || self.builder.is_none() {
            return Err(error::closed());
        }
        self.is_broken = true;
        let first = self.samples;
        let origin = Origin {
            first,
            ..Origin::default()
        };
        let describe_row = |row: usize| format!("row {}", first + u64::try_from(row).unwrap_or(0));
        let mut chunks = Vec::new();
        self.encoder
            .encode(batch, origin, &self.pool, describe_row, |chunk| {
                chunks.push(chunk)
            })?;
        for mut chunk in chunks {
            chunk.rows = (!chunk.keys.is_empty()).then_some(RowNumbers::From(self.samples));
            self.samples += u64::try_from(chunk.samples()).unwrap_or(0);
            for shard in self.packer.push(chunk, |row| format!("row {row}"))? {
                self.write(shard, cancel)?;
            }
        }
        self.is_broken = false;
        Ok(())
    }

    /// Writes the last shard and returns the manifest.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`push`](Self::push).
    pub fn finish(mut self, cancel: &mut dyn FnMut() -> bool) -> Result<Manifest, Error> {
        if self.is_broken {
            return Err(error::closed());
        }
        self.is_broken = true;
        if let Some(shard) = self.packer.finish() {
            self.write(shard, cancel)?;
        }
        if let Some(folder) = &self.folder {
            // The names of the shards must be durable before the manifest is returned.
            folder.sync()?;
        }
        let builder = self.builder.take().ok_or_else(error::closed)?;
        Ok(builder.finish())
    }

    /// Returns the number of added samples.
    #[must_use]
    pub const fn samples(&self) -> u64 {
        self.samples
    }

    fn write(&mut self, shard: CutShard, cancel: &mut dyn FnMut() -> bool) -> Result<(), Error> {
        if !cancel() {
            return Err(error::interrupted(self.samples));
        }
        let temps = match &self.folder {
            Some(folder) => Temps::Dir(folder),
            None => Temps::Destination(&self.destination, ""),
        };
        let shard = finish(shard, &self.kind, temps, &mut self.scratch)?;
        let builder = self.builder.as_mut().ok_or_else(error::closed)?;
        let record = ShardRecord::publish(shard, |name, temp| {
            let at = builder.at(name);
            let version = match &self.destination {
                // The folder belongs to this attempt, and the attempt created it.
                Destination::Local(_) => {
                    let bytes = temp.written();
                    temp.publish_pending(name, PublishMode::CreateNew, true)?;
                    FileVersion { bytes, etag: None }
                }
                Destination::Store(_) => {
                    self.started_uploads.push(at.clone());
                    let mode = PublishMode::Replace;
                    self.destination
                        .publish(temp, &at, mode, &mut |_| cancel())?
                }
            };
            Ok((at, version))
        })?;
        builder.add(record);
        Ok(())
    }
}

impl Drop for PartWriter {
    fn drop(&mut self) {
        let Some(builder) = self.builder.take() else {
            return;
        };
        // `abort` or `gc` removes files that cannot be removed now.
        match &self.destination {
            Destination::Local(dir) => {
                if let Some(folder) = builder.folder() {
                    let _ = dir.remove_all_in(folder);
                    let _ = dir.remove_dir(folder);
                }
            }
            Destination::Store(_) => {
                for name in &self.started_uploads {
                    let _ = self.destination.remove_own(name, &mut |_| true);
                }
            }
        }
    }
}
