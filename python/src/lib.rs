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
mod open_epoch;
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

/// The module `shardmill._core`.
#[pyo3::pymodule(name = "_core", gil_used = false)]
mod extension_module {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::{
        batches::{Batches, Order},
        block::Block,
        codec::{compress, compression_names, decompress, hash_hex, hash_names, merge_indexes},
        fields::decode_field,
        lengths::lengths,
        lineage::{places_of, samples_of_step, steps_of_sample},
        options::{
            PyEpochOptions, PyFileOptions, PyKnownFiles, PyReaderOptions, PyStreamOptions, PyWindow,
        },
        order::{
            PySampling, mixture_windows, partitions, replicate, resample, sample_counts, shuffle,
            work,
        },
        parts::{PartWriter, parts_abort, parts_begin, parts_commit, parts_gc},
        ranges::Ranges,
        reader::{FileUse, Reader, episodes_of, is_served, table_index, tar_folder},
        storage::{check_bucket, download, list_objects, upload},
        table::delta_version,
        tokens::{PyTokenOptions, TokenBatches},
        videos::{stored_videos, video_header, video_tables},
        view::PyView,
        writer::{PublishedFiles, SampleWriter, is_encoding},
    };

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        shardmill_storage::raise_file_limit();
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        crate::process::register_at_fork(module)
    }
}
