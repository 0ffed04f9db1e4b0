//! Tests of readers over whole datasets.

mod deleted;
mod files;
mod streaming;
mod tars;
