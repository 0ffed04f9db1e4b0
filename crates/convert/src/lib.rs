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
//! ```no_run
//! use shardmill_convert::{ConvertOptions, plan, run};
//! use shardmill_core::Progress;
//!
//! let options = ConvertOptions::new(vec!["data/*.parquet".into()], "shards".into());
//! let plan = plan(options)?;
//! let report = run(plan, &Progress::new())?;
//! println!("{} samples in {} shards", report.samples(), report.shards());
//! # Ok::<(), shardmill_convert::ConvertError>(())
//! ```

mod columns;
mod dest;
mod error;
mod input;
mod journal;
mod mds_source;
mod nulls;
mod options;
mod plan;
mod provenance;
mod report;
mod run;
mod split;

pub use error::ConvertError;
pub use options::{ColumnSpec, ConvertOptions, Nulls, SplitSpec};
pub use plan::{ConvertPlan, DestState, PlannedColumn, plan};
pub use provenance::PROVENANCE_NAME;
pub use report::{ConvertReport, Outcome, SplitReport};
pub use run::run;
