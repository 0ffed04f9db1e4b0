//! What the threads that fill batches share.

use std::sync::Arc;

use shardmill_cache::{CachedBlob, Timings};
use shardmill_core::Error;
use shardmill_dataset::{Catalog, DatasetError};
use shardmill_mmap::{Buffer, Pool};

use crate::batch::ColumnData;
use crate::cached::ShardCache;
use crate::error::sample_beyond;
use crate::open::OpenShard;

/// The state that the threads that fill batches share.
#[derive(Debug)]
pub(crate) struct FillContext {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) shard_cache: ShardCache,
    pub(crate) pool: Arc<Pool>,
    pub(crate) timings: Arc<Timings>,
}

impl FillContext {
    /// Returns the shard of a sample, and the position of the sample in it.
    pub(crate) fn locate(&self, sample: u64) -> Result<(usize, u64), Error> {
        let beyond = || sample_beyond(sample, self.catalog.samples());
        self.catalog.locate(sample).ok_or_else(beyond)
    }

    /// Returns whether a shard is fetched from a source.
    pub(crate) fn is_fetched(&self, shard: usize) -> bool {
        let stream = self.catalog.stream_of(shard);
        stream.is_some_and(|(stream, _)| stream.origin.is_some())
    }

    /// Copies values of variable length into a column.
    pub(crate) fn join<'a, I: Iterator<Item = &'a [u8]>>(
        &self,
        count: usize,
        values: impl Fn() -> I,
    ) -> Result<ColumnData, Error> {
        let mut offsets = Vec::with_capacity(count + 1);
        let mut end = 0_u64;
        offsets.push(end);
        for value in values() {
            end = end.saturating_add(value.len() as u64);
            offsets.push(end);
        }
        let total = usize::try_from(end).unwrap_or(usize::MAX);
        let mut bytes = self.take(total)?;
        for value in values() {
            bytes
                .extend_from_slice(value)
                .map_err(|_| self.no_memory(total))?;
        }
        Ok(ColumnData::Variable { offsets, bytes })
    }

    pub(crate) fn take(&self, bytes: usize) -> Result<Buffer, Error> {
        self.pool.take(bytes).map_err(|_| self.no_memory(bytes))
    }

    pub(crate) fn no_memory(&self, bytes: usize) -> Error {
        DatasetError::out_of_memory(bytes as u64).into()
    }

    /// Returns the error for a sample that cannot be read: the one of the format crate, or else that its file has
    /// changed.
    pub(crate) fn broken(
        &self,
        open: Option<&CachedBlob<OpenShard>>,
        shard: usize,
        at: u64,
    ) -> Error {
        let changed = || self.catalog.changed(shard);
        let Some(open) = open else {
            return changed().into();
        };
        if let Err(error) = open.check(&self.catalog) {
            return error.into();
        }
        open.explain(&self.catalog, at)
            .unwrap_or_else(changed)
            .into()
    }
}
