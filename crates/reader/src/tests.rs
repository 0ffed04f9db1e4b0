//! Tests of readers over whole datasets.

mod cached;
mod deleted;
mod files;
mod growing;
mod peers;
mod streaming;
mod tars;
mod values;
mod windows;
