//! Test suites that cross crates; see the folders.
