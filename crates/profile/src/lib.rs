//! Describes the rows of tables, trees and datasets: the first ones, statistics of their columns, and differences.
//!
//! This crate measures rows that a [`Source`](shardmill_source::Source) reads. It decides how the values of each type
//! are measured, and how numbers are summed and counted so that the result is exact and the same for every number of
//! threads. It opens nothing and shows nothing.
//!
//! [`head()`] returns the first rows. [`stats()`] reads all rows once, in bounded memory. Counts, extremes, sums and the
//! counts of the histogram's bins are exact; only a large number of distinct values is an estimate.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let location = directory.path().join("rows.csv");
//! use shardmill_core::Progress;
//! use shardmill_profile::{Cell, Number, RowReader, StatsOptions, stats};
//!
//! std::fs::write(&location, "id,text\n1,one\n2,two\n3,three\n")?;
//! let source = shardmill_source::open(&[location.into()], &Default::default())?;
//! let stats = stats(&*source, &StatsOptions::default(), &Progress::new())?;
//! assert_eq!(stats.rows, 3);
//! assert_eq!(stats.columns[0].max, Some(Number::Int(3)));
//!
//! let rows = RowReader::open(source)?;
//! assert_eq!(rows.read(1..9)?[1], [Cell::Int(3), Cell::Text("three".to_owned())]);
//! assert_eq!(rows.read(0..1)?[0][0], Cell::Int(1));
//! # Ok(())
//! # }
//! ```

// The modules, from the bottom up: each uses only modules above it in this list.

mod bins; // Histograms.
mod cell; // Single values.
mod distinct; // Numbers of distinct values.
mod exact_sum; // Sums of floats.

mod column; // One column.

mod head; // The first rows.
mod rows; // Rows by their numbers.
mod stats; // All columns.

pub use cell::Cell;
pub use column::{Bin, ColumnStats, DistinctCount, Measure, Number, Special};
pub use head::{Head, head};
pub use rows::RowReader;
pub use stats::{Stats, StatsOptions, stats};

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
