//! Suites that cross crates; see the folders.
