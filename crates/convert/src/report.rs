use serde::Serialize;

/// How a conversion ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Everything was converted now.
    Converted,
    /// An interrupted conversion was completed.
    Resumed {
        /// Shards of the earlier run that were checked and kept.
        reused_shards: u64,
    },
    /// The same conversion had been finished before; nothing was written.
    AlreadyDone,
}

/// One dataset that was written.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SplitReport {
    /// The name of the split; empty without splits.
    pub name: String,
    /// Samples.
    pub samples: u64,
    /// Shards.
    pub shards: u64,
    /// Bytes before compression.
    pub raw_bytes: u64,
    /// Bytes of the files.
    pub stored_bytes: u64,
}

/// What a conversion did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConvertReport {
    /// How it ended.
    pub outcome: Outcome,
    /// Where the data is.
    pub dest: String,
    /// The datasets; one without a name when there are no splits.
    pub splits: Vec<SplitReport>,
    /// Rows that were left out because of nulls; of this run, when it was a resumed one.
    pub dropped_rows: u64,
    /// Samples of a source dataset that were left out because its table no longer has them.
    #[serde(skip_serializing_if = "is_zero")]
    pub deleted_samples: u64,
    /// Bytes of the source.
    pub source_bytes: u64,
    /// Wall time.
    pub elapsed_seconds: f64,
    /// Core seconds that threads had nothing left to do at the end.
    pub idle_seconds: f64,
    /// What the dataset remembers of its table, where it is brought up to date step by step.
    pub increment: Option<IncrementReport>,
}

/// The last generation of a dataset that is brought up to date step by step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IncrementReport {
    /// Its number, from 1.
    pub generation: usize,
    /// The version of the table.
    pub version: u64,
    /// The version of the generation before; `None` for the first.
    pub from_version: Option<u64>,
    /// Samples that it added.
    pub added_samples: u64,
    /// Shards that it added.
    pub added_shards: u64,
    /// Samples of generations before that the table no longer has: deleted, or changed and added anew.
    pub tombstones: u64,
    /// The same, of all generations.
    pub all_tombstones: u64,
    /// Whether `index.tombstones` was missing or changed, and was written again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub restored_tombstones: bool,
}

pub(crate) const fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl ConvertReport {
    /// Samples of all splits.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.splits.iter().map(|split| split.samples).sum()
    }

    /// Shards of all splits.
    #[must_use]
    pub fn shards(&self) -> u64 {
        self.splits.iter().map(|split| split.shards).sum()
    }

    /// Bytes before compression, of all splits.
    #[must_use]
    pub fn raw_bytes(&self) -> u64 {
        self.splits.iter().map(|split| split.raw_bytes).sum()
    }

    /// Bytes of the files of all splits.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.splits.iter().map(|split| split.stored_bytes).sum()
    }
}
