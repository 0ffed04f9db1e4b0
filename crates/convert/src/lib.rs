//! Plans and runs conversions: from tables and file trees to published shards.
//!
//! This crate connects a source to the writer. It decides which columns are written and how, and what happens to nulls.
//! It also decides which rows go to which split, what the destination may contain, and how an interrupted run resumes.
//! Reading is done by `shardmill-source` and `shardmill-reader`. Encoding, cutting and publishing are done by
//! `shardmill-writer`.
//!
//! The model: [`plan`] reads and decides, and writes nothing. [`run`] executes the plan. During a run the destination
//! holds a folder `.shardmill` with the lease of the writer, a journal of the complete shards, and temporary files. The
//! shards are published first, then `index.provenance`, and `index.json` last.
//!
//! [`gc()`] finds the leftovers of interrupted conversions that will not be resumed.
//!
//! [`open_rows`] opens the rows of tables, trees and datasets alike. [`select_samples`] finds the samples of a dataset
//! that meet a condition, and [`live_rows`] reads only the rows of a view. [`RowReader`] reads rows by their numbers,
//! [`show_row`] has their values in the form of those of samples, and [`stats()`] measures the columns.
//!
//! [`add_columns`] adds the columns of a table to a dataset that exists.
//!
//! [`export`] writes the indexes of other readers for existing tar shards.
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

mod check;
mod columns;
mod commit;
mod dataset_files;
mod dest;
mod error;
mod export;
mod gc;
mod identity;
mod increment;
mod input;
mod journal;
mod late;
mod lengths;
mod mds_source;
mod open;
mod options;
pub mod parse;
mod part_manifest;
mod parts;
mod pending;
mod pipeline;
mod plan;
mod provenance;
mod reindex;
mod replace;
mod report;
mod row_reader;
mod row_values;
mod run;
mod select;
mod split;
mod stats;
mod table;
mod table_verify;
mod tar_source;
mod target;
mod tokens;
mod view_rows;

pub use check::{check_file_options, check_options};
pub use commit::{CommitPartsOptions, CommitReport, commit};
pub use export::{ExportOptions, Exported, export, export_pattern};
pub use gc::{GcOptions, GcReport, gc};
pub use increment::PlannedIncrement;
pub use late::{AddColumnsOptions, AddedColumns, add_columns};
pub use lengths::{LengthsOptions, WrittenLengths, write_lengths};
pub use open::open_rows;
pub use options::{
    ColumnOptions, ColumnSpec, ConvertOptions, Nulls, Part, RunOptions, ShardOptions, SplitSpec,
    TarNames, TarOptions, TokenizeOptions,
};
pub use part_manifest::WaitingPart;
pub use plan::{ConvertPlan, DestState, PlannedColumn, plan};
pub use reindex::{ReindexOptions, reindex_tars};
pub use report::{ConvertReport, IncrementReport, Outcome, SplitReport};
pub use row_reader::RowReader;
pub use row_values::{RowValue, show_row};
pub use run::run;
pub use select::{SAMPLE_COLUMN, SelectBy, Selected, select_samples};
pub use shardmill_dataset::PROVENANCE_NAME;
pub use shardmill_writer::parts::GcEntry;
pub use stats::{Bin, ColumnStats, Measure, Number, Special, Stats, StatsOptions, stats};
pub use table::MAX_ROW_GROUP_BYTES;
pub use table_verify::verify_table;
pub use view_rows::live_rows;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
