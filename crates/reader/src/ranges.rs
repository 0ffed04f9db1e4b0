//! Reads consecutive samples by number, without an epoch: for tables, previews and exports.

use std::ops::Range;
use std::sync::Arc;

use shardmill_cache::Cancel;
use shardmill_core::Error;
use shardmill_order::{Entry, SampleId};

use crate::batch::Batch;
use crate::collate::Collator;
use crate::context::FillContext;

/// Reads ranges of samples in the order of their numbers, without windows. An epoch that is being read is not disturbed.
#[derive(Debug)]
pub struct Ranges(Collator);

impl Ranges {
    pub(crate) fn new(context: &Arc<FillContext>) -> Self {
        Self(Collator::new(context).without_windows())
    }

    /// Reads samples as a batch, by their numbers over all streams. Shards that are not cached are fetched whole. All
    /// shards of the range are open at the same time, until the batch is filled.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a sample that the streams do not have; errors of fetching, opening or reading a shard.
    pub fn read(&mut self, samples: Range<u64>, cancel: &Cancel) -> Result<Batch, Error> {
        let context = &self.0.context;
        if let Some(last) = samples.end.checked_sub(1) {
            context.locate(last)?;
        }
        let entries = samples.map(|sample| Entry {
            sample: SampleId(sample),
            repeated: false,
        });
        let tick = context.shard_cache.engine()?.now();
        let batch = self.0.fill((0, false), entries.collect(), tick, cancel);
        // A shard that is kept open cannot be evicted.
        self.0.release();
        batch
    }
}
