//! The engine against a writer that follows the specification one sample at a time.

#![allow(missing_docs)]

mod columns;
mod engine;
mod naive;
