//! The results of conversions.

use serde::Serialize;

/// How a successful conversion ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All data was converted in this run.
    Converted,
    /// An interrupted conversion was completed.
    Resumed {
        /// The number of shards of the earlier run that were checked and reused.
        reused_shards: u64,
    },
    /// The same conversion had already finished. Nothing was written.
    AlreadyDone,
}

/// One dataset that was written.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SplitReport {
    /// The name of the split; empty without splits.
    pub name: String,
    /// The number of stored samples.
    pub samples: u64,
    /// The number of shards.
    pub shards: u64,
    /// The size before compression in bytes.
    pub raw_bytes: u64,
    /// The size of the stored files in bytes.
    pub stored_bytes: u64,
}

/// The result of a conversion.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConvertReport {
    /// How it ended.
    pub outcome: Outcome,
    /// The location of the data.
    pub dest: String,
    /// The datasets. Without splits there is one, with an empty name.
    pub splits: Vec<SplitReport>,
    /// The number of rows dropped because of nulls. After a resume, only those of this run.
    pub dropped_rows: u64,
    /// The number of deleted samples of a source dataset that were left out.
    #[serde(skip_serializing_if = "is_zero")]
    pub deleted_samples: u64,
    /// The size of the source in bytes.
    pub source_bytes: u64,
    /// The wall time.
    pub elapsed_seconds: f64,
    /// The core seconds that threads were idle at the end.
    pub idle_seconds: f64,
    /// The last generation of a dataset that is updated incrementally.
    pub increment: Option<IncrementReport>,
}

/// The last generation of a dataset that is updated incrementally.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IncrementReport {
    /// Its number, from 1.
    pub generation: usize,
    /// The version of the table.
    pub version: u64,
    /// The table version of the previous generation. `None` for the first.
    pub from_version: Option<u64>,
    /// The number of added samples.
    pub added_samples: u64,
    /// The number of added shards.
    pub added_shards: u64,
    /// The number of samples of earlier generations that are no longer in the table: deleted, or changed and added
    /// again.
    pub tombstones: u64,
    /// The number of such samples in all generations.
    pub all_tombstones: u64,
    /// Whether `index.tombstones` was missing or damaged and was restored.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub restored_tombstones: bool,
}

pub(crate) const fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl ConvertReport {
    /// Returns the number of samples that readers deliver: those of all splits, without the ones that an incremental
    /// conversion has listed as deleted.
    #[must_use]
    pub fn samples(&self) -> u64 {
        let stored: u64 = self.splits.iter().map(|split| split.samples).sum();
        let deleted = self.increment.as_ref();
        stored.saturating_sub(deleted.map_or(0, |increment| increment.all_tombstones))
    }

    /// Returns the number of shards in all splits.
    #[must_use]
    pub fn shards(&self) -> u64 {
        self.splits.iter().map(|split| split.shards).sum()
    }

    /// Returns the size of all splits before compression, in bytes.
    #[must_use]
    pub fn raw_bytes(&self) -> u64 {
        self.splits.iter().map(|split| split.raw_bytes).sum()
    }

    /// Returns the size of the stored files of all splits, in bytes.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.splits.iter().map(|split| split.stored_bytes).sum()
    }
}
