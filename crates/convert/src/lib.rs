//! Planning and running a conversion: from tables and file trees to published shards.
//!
//! This crate introduces a source to the writer. It decides which columns are written and how, what happens
//! to nulls, which rows go to which split, what may be at the destination, and how an interrupted run goes
//! on. It leaves reading to `shardmill-source` and `shardmill-reader`, and encoding, cutting and publishing to
//! `shardmill-writer`.
//!
//! The model: [`plan`] reads and decides, and writes nothing; [`run`] executes the plan. While it runs, the
//! destination holds a folder `.shardmill` with the lease of the writer, a journal of the shards that are
//! complete, and temporary files. At the end there are the shards, `index.provenance` and `index.json`, in
//! this order.
//!
//! What an interrupted conversion left, and nobody goes on with, is found by [`gc()`].
//!
//! Tar shards that are there already get the indexes of other readers by [`export`], and are rewritten or repaired by
//! [`rewrite_tars`].
//!
//! ```no_run
//! use shardmill_convert::{ConvertOptions, plan, run};
//! use shardmill_core::Progress;
//! use shardmill_storage::Location;
//!
//! let source = Location::parse("data/*.parquet")?;
//! let dest = Location::parse("s3://bucket/shards")?;
//! let options = ConvertOptions::new(vec![source], dest);
//! let plan = plan(options)?;
//! let report = run(plan, &Progress::new())?;
//! println!("{} samples in {} shards", report.samples(), report.shards());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod columns;
mod dest;
mod error;
mod export;
mod gc;
mod increment;
mod input;
mod journal;
mod mds_source;
mod nulls;
mod options;
mod parts;
mod plan;
mod provenance;
mod reindex;
mod report;
mod rewrite;
mod run;
mod split;
mod tar_source;
mod target;

pub use error::ConvertError;
pub use export::{ExportOptions, Exported, export, export_pattern};
pub use gc::{GcFile, GcOptions, GcReport, gc};
pub use increment::PlannedIncrement;
pub use options::{ColumnSpec, ConvertOptions, Nulls, SplitSpec, TarNames, TarOptions};
pub use parts::{CommitPartsOptions, CommitReport, Part, WaitingPart, commit};
pub use plan::{ConvertPlan, DestState, PlannedColumn, plan};
pub use reindex::{ReindexOptions, reindex_tars};
pub use report::{ConvertReport, IncrementReport, Outcome, SplitReport};
pub use rewrite::{ChangeLine, LostLine, RewriteKind, RewriteOptions, Rewritten, rewrite_tars};
pub use run::run;
pub use shardmill_reader::PROVENANCE_NAME;
