//! The error of this crate.

/// The error of bytes that are not of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum RecordError {
    /// The checksum of a length or of data differs.
    #[error("the CRC-32C of the {part} is {found:08x}, but the file has {expected:08x}")]
    Crc {
        /// `length` or `data`.
        part: &'static str,
        expected: u32,
        found: u32,
    },
    /// A record is not the message that it should be.
    #[error("the record is no tf.train.Example: {reason}")]
    Example { reason: &'static str },
    /// A record is a `tf.train.SequenceExample`.
    #[error("the record is a tf.train.SequenceExample, whose lists of features are not read")]
    Sequence,
}
