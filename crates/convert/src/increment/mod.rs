//! Brings a dataset up to date with the Delta table that it was made from. Added rows are appended. Samples that are no
//! longer in the table are listed as deleted (tombstones).
//!
//! The dataset records which samples each file of the table became. New files are read. If a file was removed or
//! rewritten, or lost rows, its samples are compared by content with the rows of the new files. A sample with a
//! matching row stays. A sample without one becomes a tombstone. The remaining rows are new samples.

mod plan;
mod ranges;
mod record;
mod run;
mod step;

pub use plan::PlannedIncrement;
pub(crate) use plan::{Increment, check_source};
pub(crate) use run::{first_record, run as run_increment};
