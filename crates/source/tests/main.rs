//! Tests the guarantees of sources through the public API.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation
)]

mod delta;
mod expr;
mod help;
mod hostile;
mod ipc;
mod measure;
mod parquet;
mod remote;
mod schemas;
mod shuffle;
mod sql;
mod text;
mod tfrecord;
mod tree;
mod zarr;

use shardmill_source::SelectColumn;

/// Selects a column that an SQL expression computes.
fn computed(name: &str, expr: &str) -> SelectColumn {
    SelectColumn {
        expr: Some(expr.to_owned()),
        ..SelectColumn::named(name)
    }
}
