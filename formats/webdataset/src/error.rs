//! Errors of a tar shard.

use std::fmt;

use shardmill_core::{Diagnostic, ErrorKind, LimitExceeded, escape};

/// The kind of a tar member, from the type in its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MemberKind {
    /// A regular file, or a contiguous one.
    File,
    /// A directory, which has no content.
    Directory,
    /// Another name for a member.
    HardLink,
    /// A symbolic link.
    SymbolicLink,
    /// A character or block device.
    Device,
    /// A named pipe.
    Pipe,
    /// A sparse file, in one of the GNU formats.
    Sparse,
    /// Any other type, such as volumes and dumps of GNU tar.
    Other,
}

impl MemberKind {
    /// Returns a name for messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Directory => "directory",
            Self::HardLink => "hard link",
            Self::SymbolicLink => "symbolic link",
            Self::Device => "device",
            Self::Pipe => "named pipe",
            Self::Sparse => "sparse file",
            Self::Other => "member of a vendor's type",
        }
    }
}

impl fmt::Display for MemberKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An error of a tar file. `offset` is the position of the header block that it concerns.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TarError {
    /// A block whose magic is not that of a tar dialect.
    #[error("the block at byte {offset} is not a tar header: its magic is {found:02x?}")]
    Magic {
        /// The position of the block.
        offset: u64,
        /// The bytes at the position of the magic.
        found: [u8; 8],
    },
    /// A header whose checksum does not match its bytes.
    #[error("the header at byte {offset} has the checksum {found}, but its bytes add up to {sum}")]
    Checksum {
        /// The position of the block.
        offset: u64,
        /// The checksum in the header.
        found: u64,
        /// The unsigned sum of the header's bytes.
        sum: u64,
    },
    /// A field of a header that is not a number.
    #[error("the {field} in the header at byte {offset} is not a number: {found:02x?}")]
    Number {
        /// The position of the block.
        offset: u64,
        /// The field.
        field: &'static str,
        /// Its bytes.
        found: Vec<u8>,
    },
    /// A member that extends beyond the end of the file.
    #[error(
        "member `{}` at byte {offset} needs {needed} bytes, but {left} are left",
        escape(member)
    )]
    Short {
        /// The position of its header.
        offset: u64,
        /// The member, or the kind of an extension header.
        member: String,
        /// The bytes of its content.
        needed: u64,
        /// The bytes that follow its header.
        left: u64,
    },
    /// A file that ends within a header block.
    #[error("the file ends at byte {length}, within the header at byte {offset}")]
    TornHeader {
        /// The position of the block.
        offset: u64,
        /// The length of the file.
        length: u64,
    },
    /// A file without the two zero blocks that end an archive.
    #[error("the file ends at byte {length} without the two zero blocks that end an archive")]
    NoEnd {
        /// The offset at which the first of them should be.
        offset: u64,
        /// The length of the file.
        length: u64,
    },
    /// Bytes other than zeros after the end of the archive.
    #[error("the archive ends at byte {end}, but something follows at byte {offset}")]
    Trailing {
        /// The end of the archive.
        end: u64,
        /// The first byte that is not zero.
        offset: u64,
    },
    /// A size that does not match another one, or that a member of that kind cannot have.
    #[error(
        "member `{}` at byte {offset} has the size {size} in its header, {reason}",
        escape(member)
    )]
    Size {
        /// The position of its header.
        offset: u64,
        /// The member.
        member: String,
        /// The size in its header.
        size: u64,
        /// What it does not match.
        reason: String,
    },
    /// An extension header that POSIX and GNU do not define, or that contradicts another one.
    #[error("the extension header at byte {offset} {reason}")]
    Extension {
        /// The position of its block.
        offset: u64,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A name that cannot be used.
    #[error(
        "the member at byte {offset} has the name `{}`, which {reason}",
        escape(member)
    )]
    Name {
        /// The position of its header.
        offset: u64,
        /// The name, with replacement characters where it is not UTF-8.
        member: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A member that is neither a file nor a directory.
    #[error("member `{}` at byte {offset} is a {kind}", escape(member))]
    Kind {
        /// The position of its header.
        offset: u64,
        /// The member.
        member: String,
        /// Its kind.
        kind: MemberKind,
    },
    /// Two members of one sample with the same field.
    #[error(
        "sample `{}` has the field `{}` twice, in `{}` and `{}`",
        escape(key),
        escape(field),
        escape(first),
        escape(second)
    )]
    DuplicateField {
        /// The position of the second member's header.
        offset: u64,
        /// The key of the sample.
        key: String,
        /// The field, in lower case.
        field: String,
        /// The first member.
        first: String,
        /// The second member.
        second: String,
    },
    /// A member whose field has a name that readers reserve for themselves.
    #[error(
        "sample `{}` has the field `{}`, in `{}`, and readers give out something of their own under that name",
        escape(key),
        escape(field),
        escape(member)
    )]
    ReservedField {
        /// The position of its header.
        offset: u64,
        /// The key of the sample.
        key: String,
        /// The field, in lower case.
        field: String,
        /// The member.
        member: String,
    },
    /// A key that occurs again after other samples.
    #[error("the key `{}` returns at byte {offset} after other keys", escape(key))]
    SplitSample {
        /// The position of the header that starts the second run.
        offset: u64,
        /// The key.
        key: String,
    },
    /// A sample number beyond the end of the shard.
    #[error("there is no sample {sample}: the shard has {samples}")]
    NoSample {
        /// The requested sample.
        sample: u64,
        /// The number of samples.
        samples: u64,
    },
    /// A table of offsets that does not match the shard.
    #[error("the table of offsets {reason}")]
    Offsets {
        /// What is wrong with it.
        reason: String,
    },
    /// A limit is exceeded.
    #[error("the member at byte {offset}: {problem}")]
    Limit {
        /// The position of its header.
        offset: u64,
        /// The exceeded limit.
        problem: LimitExceeded,
    },
}

impl TarError {
    /// Returns the position in the shard, if the error has one.
    #[must_use]
    pub const fn offset(&self) -> Option<u64> {
        match self {
            Self::Magic { offset, .. }
            | Self::Checksum { offset, .. }
            | Self::Number { offset, .. }
            | Self::Short { offset, .. }
            | Self::TornHeader { offset, .. }
            | Self::NoEnd { offset, .. }
            | Self::Trailing { offset, .. }
            | Self::Size { offset, .. }
            | Self::Extension { offset, .. }
            | Self::Name { offset, .. }
            | Self::Kind { offset, .. }
            | Self::DuplicateField { offset, .. }
            | Self::ReservedField { offset, .. }
            | Self::SplitSample { offset, .. }
            | Self::Limit { offset, .. } => Some(*offset),
            Self::NoSample { .. } | Self::Offsets { .. } => None,
        }
    }

    /// Returns the member that the error is about, if there is one.
    #[must_use]
    pub fn member(&self) -> Option<&str> {
        match self {
            Self::Short { member, .. }
            | Self::Size { member, .. }
            | Self::Name { member, .. }
            | Self::Kind { member, .. }
            | Self::ReservedField { member, .. } => Some(member),
            Self::DuplicateField { second, .. } => Some(second),
            _ => None,
        }
    }
}

impl Diagnostic for TarError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Kind { .. } | Self::Limit { .. } => ErrorKind::Unsupported,
            Self::NoSample { .. } => ErrorKind::InvalidInput,
            _ => ErrorKind::Corrupt,
        }
    }

    fn id(&self) -> &'static str {
        match self {
            Self::Magic { .. } => "tar-magic",
            Self::Checksum { .. } => "tar-checksum",
            Self::Number { .. } => "tar-number",
            Self::Short { .. } => "tar-short",
            Self::TornHeader { .. } => "tar-torn",
            Self::NoEnd { .. } => "tar-end",
            Self::Trailing { .. } => "tar-trailing",
            Self::Size { .. } => "tar-size",
            Self::Extension { .. } => "tar-extension",
            Self::Name { .. } => "tar-name",
            Self::Kind { .. } => "tar-kind",
            Self::DuplicateField { .. } | Self::ReservedField { .. } => "tar-duplicate",
            Self::SplitSample { .. } => "tar-split",
            Self::NoSample { .. } => "sample-missing",
            Self::Offsets { .. } => "tar-offsets",
            Self::Limit { problem, .. } => problem.id(),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Short { .. } | Self::TornHeader { .. } | Self::NoEnd { .. } => Some(
                "the shard was cut off; write or fetch it again, or repair it to keep the samples that are whole"
                    .to_owned(),
            ),
            Self::Kind { .. } | Self::DuplicateField { .. } | Self::SplitSample { .. } => {
                Some("rewrite the shard with only the files of its samples, each sample in one run".to_owned())
            }
            Self::ReservedField { .. } => {
                Some("write the shard again without this member, or with another extension".to_owned())
            }
            Self::Limit { problem, .. } => Some(problem.hint()),
            _ => None,
        }
    }
}

/// A sample that cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// A key that readers would split differently, or that is not a relative path.
    #[error("the key `{}` {reason}", escape(key))]
    Key {
        /// The key.
        key: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A field that readers would not return under its name.
    #[error("the field `{}` of sample `{}` {reason}", escape(field), escape(key))]
    Field {
        /// The key of the sample.
        key: String,
        /// The field.
        field: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A name that does not fit into a plain header.
    #[error(
        "the member `{}` needs a PAX header, which some readers ignore",
        escape(member)
    )]
    LongName {
        /// The member.
        member: String,
    },
    /// A member of 8 GiB or more, whose size needs the base-256 encoding.
    #[error(
        "the member `{}` has {bytes} bytes; a plain header has room for {most}",
        escape(member)
    )]
    Size {
        /// The member.
        member: String,
        /// Its bytes.
        bytes: u64,
        /// The most that a header can express.
        most: u64,
    },
    /// A sample without fields, which readers would not see.
    #[error("sample `{}` has no fields", escape(key))]
    NoFields {
        /// The key.
        key: String,
    },
    /// A key that was already written.
    #[error("the key `{}` was written before", escape(key))]
    DuplicateKey {
        /// The key.
        key: String,
    },
}

impl Diagnostic for WriteError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::InvalidInput
    }

    fn id(&self) -> &'static str {
        match self {
            Self::Key { .. } => "sample-key",
            Self::Field { .. } => "sample-field",
            Self::LongName { .. } => "tar-long-name",
            Self::Size { .. } => "tar-size",
            Self::NoFields { .. } => "sample-empty",
            Self::DuplicateKey { .. } => "sample-key-twice",
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::LongName { .. } => Some(
                "use names of at most 100 ASCII characters, or allow long names (wids cannot read them)".to_owned(),
            ),
            _ => None,
        }
    }
}
