//! The extension module of the Python package: a thin layer over the crates.
//!
//! It converts between Rust values and Python objects. It releases the interpreter lock while it reads, downloads,
//! compresses, hashes or shuffles. The crates do everything else, and the Python files in `shardmill/` give these
//! functions their public names. Every class is frozen and keeps what changes behind a mutex, so the module also works
//! in a free-threaded interpreter, which has no such lock.
//!
//! Unsafe code is limited to memory that NumPy and torch use without a copy, and to Arrow's C data interface.

#[cfg(not(target_endian = "little"))]
compile_error!("values are handed to NumPy as little-endian bytes");

mod batches;
mod block;
mod codec;
mod decode;
mod errors;
mod fields;
mod lengths;
mod lineage;
mod options;
mod order;
mod parts;
mod process;
mod ranges;
mod reader;
mod storage;
mod table;
mod tokens;
mod videos;
mod view;
mod waiting;
mod windows;
mod writer;

use pyo3::prelude::*;

/// The module `shardmill._core`.
#[pymodule(name = "_core", gil_used = false)]
fn core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<block::Block>()?;
    module.add_class::<batches::Batches>()?;
    module.add_class::<batches::Order>()?;
    module.add_class::<ranges::Ranges>()?;
    module.add_class::<tokens::PyTokenOptions>()?;
    module.add_class::<tokens::TokenBatches>()?;
    codec::register(module)?;
    fields::register(module)?;
    lengths::register(module)?;
    lineage::register(module)?;
    options::register(module)?;
    order::register(module)?;
    parts::register(module)?;
    process::register(module)?;
    reader::register(module)?;
    storage::register(module)?;
    table::register(module)?;
    videos::register(module)?;
    view::register(module)?;
    writer::register(module)?;
    Ok(())
}
