//! Parts and commits: many tasks write one dataset.
//!
//! A *part* is what one task writes for its share of the rows: shards, and a small [`Manifest`] that describes them.
//! [`commit`] turns the manifests of one attempt of every part into a dataset. It checks each file against the
//! manifest, gives the files their final names, and writes the index last. Before that, readers see the
//! previous dataset, if there is one. [`abort`] removes the uncommitted files of a job. [`gc`] removes the leftovers of
//! killed jobs.
//!
//! Attempts never touch each other's files:
//!
//! - In a local directory, an attempt writes below `.shardmill/parts/JOB-PART-ATTEMPT`. `commit` renames the files of
//!   the committed attempts, which copies no data. Final names depend only on the number of the part and of the shard.
//!   So the same parts give the same bytes, regardless of the task and the number of attempts.
//! - In a store, which has no rename, an attempt writes directly to the final folder. The names contain the job and the
//!   attempt. The shards have the same bytes as in a directory; the index differs in these names.
//!
//! This module does not prescribe how shards are made. [`PartWriter`] writes them one at a time in the calling thread.
//! A [`ManifestBuilder`] accepts the shards of any other writer.
//!
//! The rationale is in `docs/decisions/0017-parts.md`.

mod commit;
mod gc;
mod lease;
mod manifest;
mod names;
mod part;
mod staging;

pub use shardmill_core::{PARTS_FOLDER, WORK_FOLDER};

pub use commit::{CommitOptions, Committed, commit};
pub use gc::{GcEntry, GcOptions, GcReason, GcReport, abort, gc};
pub use lease::{COMMIT_FOLDER, remove_leftovers, remove_temporary};
pub use manifest::{Manifest, ManifestBuilder};
pub use names::{NameForm, is_shard_name};
pub use part::PartWriter;
pub use staging::{SaveMode, Staging};

pub use crate::record::Verify;

/// The folders in [`WORK_FOLDER`] that do not belong to a conversion: those of attempts and of a commit.
pub const OF_PARTS: [&str; 2] = ["parts", "commit"];
