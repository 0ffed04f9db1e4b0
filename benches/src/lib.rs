//! Benchmarks; see the folders.
