//! Files of records in memory: TFRecord files and their examples, and CSV.
//!
//! Every length in the bytes is checked against the bytes that exist. The caller opens files, bounds the length of a
//! record before it allocates memory, and says where in a file an error is.
//!
//! Formats: the frames of TensorFlow's `record_writer.h` and the messages of its `example.proto` and `feature.proto`.

mod csv;
mod error;
mod example;
mod protobuf;
mod tfrecord;

pub use csv::{CsvColumn, CsvColumns, PlainFields};
pub use error::RecordError;
pub use example::{Example, Feature, FeatureKind, Value, example};
pub use tfrecord::{FRAME_HEAD, FRAME_TAIL, check_data, frame_length, masked_crc};

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
