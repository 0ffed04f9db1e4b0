//! Errors of shards, fields and indexes.

use shardmill_codec::CodecError;
use shardmill_core::{Diagnostic, ErrorKind, LimitExceeded, Limits, NameError, escape};

shardmill_core::named_enum! {
    /// The kind of a tar member, from the type in its header.
    pub enum MemberKind {
        /// A regular file, or a contiguous one.
        File = "file",
        /// A directory, which has no content.
        Directory = "directory",
        /// Another name for a member.
        HardLink = "hard link",
        /// A symbolic link.
        SymbolicLink = "symbolic link",
        /// A character or block device.
        Device = "device",
        /// A named pipe.
        Pipe = "named pipe",
        /// A sparse file, in one of the GNU formats.
        Sparse = "sparse file",
        /// Any other type, such as volumes and dumps of GNU tar.
        Other = "member of a vendor's type",
    }
}

/// The reason why a shard, a field or an index cannot be written or read. `offset` is the position in the raw shard of the
/// header block that the error concerns.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum WebdatasetError {
    // Tar files.
    /// A block whose magic is not that of a tar dialect.
    #[error("the block at byte {offset} is not a tar header: its magic is {found:02x?}")]
    Magic { offset: u64, found: [u8; 8] },
    /// A header whose checksum does not match its bytes.
    #[error("the header at byte {offset} has the checksum {found}, but its bytes add up to {sum}")]
    Checksum { offset: u64, found: u64, sum: u64 },
    /// A field of a header that is not a number.
    #[error("the {field} in the header at byte {offset} is not a number: {found:02x?}")]
    HeaderNumber {
        offset: u64,
        field: &'static str,
        found: Vec<u8>,
    },
    /// A member that extends beyond the end of the file.
    #[error(
        "member `{}` at byte {offset} needs {needed} bytes, but {left} are left",
        escape(member)
    )]
    Short {
        offset: u64,
        member: String,
        needed: u64,
        left: u64,
    },
    /// A file that ends within a header block.
    #[error("the file ends at byte {length}, within the header at byte {offset}")]
    TornHeader { offset: u64, length: u64 },
    /// A file without the two zero blocks that end an archive.
    #[error("the file ends at byte {length} without the two zero blocks that end an archive")]
    NoEnd { offset: u64, length: u64 },
    /// Bytes other than zeros after the end of the archive.
    #[error("the archive ends at byte {end}, but something follows at byte {offset}")]
    Trailing { end: u64, offset: u64 },
    /// A size that does not match another one, or that a member of that kind cannot have.
    #[error(
        "member `{}` at byte {offset} has the size {size} in its header, {reason}",
        escape(member)
    )]
    MemberSize {
        offset: u64,
        member: String,
        size: u64,
        reason: String,
    },
    /// An extension header that POSIX and GNU do not define, or that contradicts another one.
    #[error("the extension header at byte {offset} {reason}")]
    Extension { offset: u64, reason: &'static str },
    /// A name that cannot be used.
    #[error(
        "the member at byte {offset} has the name `{}`, which {reason}",
        escape(member)
    )]
    MemberName {
        offset: u64,
        member: String,
        reason: &'static str,
    },
    /// A member that is neither a file nor a directory.
    #[error("member `{}` at byte {offset} is a {kind}", escape(member))]
    MemberKind {
        offset: u64,
        member: String,
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
        offset: u64,
        key: String,
        field: String,
        first: String,
        second: String,
    },
    /// A member whose field has a name that readers reserve for themselves.
    #[error(
        "sample `{}` has the field `{}`, in `{}`, and readers use that name for something else",
        escape(key),
        escape(field),
        escape(member)
    )]
    ReservedField {
        offset: u64,
        key: String,
        field: String,
        member: String,
    },
    /// A key that occurs again after other samples.
    #[error(
        "the key `{}` occurs again at byte {offset}, after other keys",
        escape(key)
    )]
    SplitSample { offset: u64, key: String },
    /// A sample number beyond the end of the shard.
    #[error("there is no sample {sample}: the shard has {samples}")]
    NoSample { sample: u64, samples: u64 },
    /// A table of offsets that does not match the shard.
    #[error("the table of offsets {reason}")]
    Offsets { reason: String },
    /// A limit is exceeded.
    #[error("the member at byte {offset}: {problem}")]
    MemberLimit { offset: u64, problem: LimitExceeded },

    // Samples to write.
    /// A key that readers would split differently, or that is not a relative path.
    #[error("the key `{}` {reason}", escape(key))]
    Key { key: String, reason: &'static str },
    /// A field that readers would not return under its name.
    #[error("the field `{}` of sample `{}` {reason}", escape(field), escape(key))]
    Field {
        key: String,
        field: String,
        reason: &'static str,
    },
    /// A name that does not fit into a plain header.
    #[error(
        "the member `{}` needs a PAX header, which some readers ignore",
        escape(member)
    )]
    LongName { member: String },
    /// A member of 8 GiB or more, whose size needs the base-256 encoding.
    #[error(
        "the member `{}` has {bytes} bytes; a plain header has room for {most}",
        escape(member)
    )]
    LargeMember {
        member: String,
        bytes: u64,
        most: u64,
    },
    /// A sample without fields, which readers would not see.
    #[error("sample `{}` has no fields", escape(key))]
    NoFields { key: String },
    /// A key that was already written.
    #[error("the key `{}` was written before", escape(key))]
    DuplicateKey { key: String },
    /// One field twice, with different content.
    #[error(
        "field `{}` of sample `{}` occurs twice, with different content: `{}` and `{}`",
        escape(field),
        escape(key),
        escape(first),
        escape(second)
    )]
    FieldConflict {
        key: String,
        field: String,
        first: String,
        second: String,
    },

    // Fields.
    /// A value that the extension has no encoding for.
    #[error("a {value} cannot be written as field `{}`", escape(field))]
    NoEncoder { field: String, value: &'static str },
    /// A pickle or a torch file.
    #[error(
        "field `{}` holds a pickle, which runs code when it is read",
        escape(field)
    )]
    Pickle { field: String },
    /// Text that is not UTF-8.
    #[error(
        "field `{}` is not UTF-8 from byte {offset} of {length}",
        escape(field)
    )]
    Utf8 {
        field: String,
        offset: u64,
        length: u64,
    },
    /// Text that is not a 64-bit integer.
    #[error(
        "field `{}` is not a whole number of 64 bits: `{}`",
        escape(field),
        escape(found)
    )]
    FieldNumber { field: String, found: String },
    /// Text that is not JSON.
    #[error("field `{}` is not JSON: {reason}", escape(field))]
    Json { field: String, reason: String },
    /// An array that is damaged or of an unsupported kind.
    #[error("field `{}` {reason}", escape(field))]
    Array { field: String, reason: String },
    /// A gzip stream that is damaged.
    #[error("field `{}` is damaged gzip: {reason}", escape(field))]
    Gzip { field: String, reason: String },

    // Indexes.
    /// Text that is not JSON or is truncated, unknown, missing or repeated keys, or values of the wrong type.
    #[error("the index is damaged at line {line}, byte {column}: {reason}")]
    IndexSyntax {
        line: u64,
        column: u64,
        reason: String,
    },
    /// An index of another format.
    #[error("the index is of format `{}`", escape(found))]
    IndexFormat { found: String },
    /// Another version.
    #[error("the version is {found}; only version 1 is supported")]
    IndexVersion { found: u64 },
    /// A value that does not match another one.
    #[error("shard {shard}: {problem}")]
    IndexShard { shard: u64, problem: String },
    /// A name that is not a valid path within the folder of the index.
    #[error("shard {shard}: `{}`: {problem}", escape(basename))]
    IndexName {
        shard: u64,
        basename: String,
        problem: NameError,
    },
    /// A hash that is unknown or malformed.
    #[error("shard {shard}: {problem}")]
    IndexHash { shard: u64, problem: CodecError },
    /// A file that belongs to two shards.
    #[error("shard {shard}: the file `{}` occurs twice", escape(basename))]
    IndexDuplicate { shard: u64, basename: String },
    /// A table of offsets of the wrong length.
    #[error("a table of offsets of {bytes} bytes does not fit {samples} samples")]
    OffsetsLength { bytes: u64, samples: u64 },
    /// A limit is exceeded.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),

    // Indexes of other readers.
    /// A name with a space or with characters beyond ASCII.
    #[error(
        "an index of {reader} cannot hold the name `{}`: it {reason}",
        escape(member)
    )]
    SidecarName {
        reader: &'static str,
        member: String,
        reason: &'static str,
    },
    /// A shard without samples.
    #[error(
        "an index of {reader} cannot describe a shard without samples: `{}`",
        escape(shard)
    )]
    SidecarEmpty { reader: &'static str, shard: String },
    /// Two shards whose names the reader cannot distinguish.
    #[error("{reader} cannot tell two shards called `{}` apart", escape(name))]
    SidecarSameName { reader: &'static str, name: String },
    /// A repeated key, for a reader that requires unique keys in the whole dataset.
    #[error(
        "{reader} allows the key `{}` once, and it is in `{}` and `{}`",
        escape(key),
        escape(first),
        escape(second)
    )]
    SidecarSameKey {
        reader: &'static str,
        key: String,
        first: String,
        second: String,
    },

    // Names of readers and shards.
    /// A name that is not a known reader.
    #[error("unknown reader `{}`", escape(name))]
    UnknownConsumer { name: String, known: String },
    /// A brace without its counterpart.
    #[error("the braces of `{}` are not balanced", escape(pattern))]
    BracesUnbalanced { pattern: String },
    /// More names than the limit.
    #[error("`{}` stands for more than {most} names", escape(pattern))]
    BracesMany { pattern: String, most: u64 },
    /// Braces that are nested too deep.
    #[error("the braces of `{}` are nested more than 64 deep", escape(pattern))]
    BracesDeep { pattern: String },
}

impl WebdatasetError {
    /// Checks a limit that concerns the member whose header is at `offset`.
    pub(crate) fn check_limit(
        name: &'static str,
        value: u64,
        limit: u64,
        offset: u64,
    ) -> Result<(), Self> {
        Limits::check(name, value, limit).map_err(|problem| Self::MemberLimit { offset, problem })
    }

    /// Returns the position in the shard, if the error has one.
    #[must_use]
    pub const fn offset(&self) -> Option<u64> {
        match self {
            Self::Magic { offset, .. }
            | Self::Checksum { offset, .. }
            | Self::HeaderNumber { offset, .. }
            | Self::Short { offset, .. }
            | Self::TornHeader { offset, .. }
            | Self::NoEnd { offset, .. }
            | Self::Trailing { offset, .. }
            | Self::MemberSize { offset, .. }
            | Self::Extension { offset, .. }
            | Self::MemberName { offset, .. }
            | Self::MemberKind { offset, .. }
            | Self::DuplicateField { offset, .. }
            | Self::ReservedField { offset, .. }
            | Self::SplitSample { offset, .. }
            | Self::MemberLimit { offset, .. } => Some(*offset),
            _ => None,
        }
    }

    /// Returns the member that the error is about, if there is one.
    #[must_use]
    pub fn member(&self) -> Option<&str> {
        match self {
            Self::Short { member, .. }
            | Self::MemberSize { member, .. }
            | Self::MemberName { member, .. }
            | Self::MemberKind { member, .. }
            | Self::ReservedField { member, .. } => Some(member),
            Self::DuplicateField { second, .. } => Some(second),
            _ => None,
        }
    }
}

impl Diagnostic for WebdatasetError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NoSample { .. }
            | Self::Key { .. }
            | Self::Field { .. }
            | Self::LongName { .. }
            | Self::LargeMember { .. }
            | Self::NoFields { .. }
            | Self::DuplicateKey { .. }
            | Self::NoEncoder { .. }
            | Self::UnknownConsumer { .. }
            | Self::BracesUnbalanced { .. }
            | Self::BracesMany { .. }
            | Self::BracesDeep { .. } => ErrorKind::InvalidInput,
            Self::MemberKind { .. }
            | Self::MemberLimit { .. }
            | Self::Pickle { .. }
            | Self::IndexFormat { .. }
            | Self::IndexVersion { .. }
            | Self::Limit(_)
            | Self::SidecarName { .. }
            | Self::SidecarEmpty { .. }
            | Self::SidecarSameName { .. }
            | Self::SidecarSameKey { .. } => ErrorKind::Unsupported,
            Self::IndexHash { problem, .. } => problem.kind(),
            _ => ErrorKind::Corrupt,
        }
    }

    fn id(&self) -> &'static str {
        match self {
            Self::Magic { .. } => "tar-magic",
            Self::Checksum { .. } => "tar-checksum",
            Self::HeaderNumber { .. } => "tar-number",
            Self::Short { .. } => "tar-short",
            Self::TornHeader { .. } => "tar-torn",
            Self::NoEnd { .. } => "tar-end",
            Self::Trailing { .. } => "tar-trailing",
            Self::MemberSize { .. } | Self::LargeMember { .. } => "tar-size",
            Self::Extension { .. } => "tar-extension",
            Self::MemberName { .. } => "tar-name",
            Self::MemberKind { .. } => "tar-kind",
            Self::DuplicateField { .. }
            | Self::ReservedField { .. }
            | Self::FieldConflict { .. } => "tar-duplicate",
            Self::SplitSample { .. } => "tar-split",
            Self::NoSample { .. } => "sample-missing",
            Self::Offsets { .. } | Self::OffsetsLength { .. } => "tar-offsets",
            Self::MemberLimit { problem, .. } | Self::Limit(problem) => problem.id(),
            Self::Key { .. } => "sample-key",
            Self::Field { .. } => "sample-field",
            Self::LongName { .. } => "tar-long-name",
            Self::NoFields { .. } => "sample-empty",
            Self::DuplicateKey { .. } => "sample-key-twice",
            Self::NoEncoder { .. } => "field-encoder",
            Self::Pickle { .. } => "encoding-unsafe",
            Self::Utf8 { .. } => "field-utf8",
            Self::FieldNumber { .. } => "field-number",
            Self::Json { .. } => "json-syntax",
            Self::Array { .. } => "field-array",
            Self::Gzip { .. } => "compression-damaged",
            Self::IndexSyntax { .. } => "index-syntax",
            Self::IndexFormat { .. } => "index-format",
            Self::IndexVersion { .. } => "index-version",
            Self::IndexShard { .. } => "index-shard",
            Self::IndexName { problem, .. } => problem.id(),
            Self::IndexHash { problem, .. } => problem.id(),
            Self::IndexDuplicate { .. } => "index-duplicate",
            Self::SidecarName { .. } => "sidecar-name",
            Self::SidecarEmpty { .. } => "sidecar-empty",
            Self::SidecarSameName { .. } => "sidecar-shard-twice",
            Self::SidecarSameKey { .. } => "sidecar-key-twice",
            Self::UnknownConsumer { .. } => "consumer-unknown",
            Self::BracesUnbalanced { .. } => "pattern-braces",
            Self::BracesMany { .. } | Self::BracesDeep { .. } => "pattern-size",
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::MemberLimit { problem, .. } | Self::Limit(problem) => {
                return Some(problem.hint());
            }
            Self::UnknownConsumer { known, .. } => return Some(format!("the readers are {known}")),
            Self::Short { .. } | Self::TornHeader { .. } | Self::NoEnd { .. } => {
                "the shard was cut off; write or fetch it again, or repair it to keep the samples that are whole"
            }
            Self::MemberKind { .. } | Self::DuplicateField { .. } | Self::SplitSample { .. } => {
                "write the shard again with only regular files, each sample in one run, or save its complete samples with `shardmill tar repair`"
            }
            Self::ReservedField { .. } => {
                "write the shard again without this member, or with another extension"
            }
            Self::LongName { .. } => {
                "use names of at most 100 ASCII characters, or allow long names (wids cannot read them)"
            }
            Self::FieldConflict { .. } => "remove one of the two members",
            Self::NoEncoder { .. } => {
                "numbers go into cls, text into txt, JSON into json, arrays into npy or ten; bytes go anywhere"
            }
            Self::IndexSyntax { .. } | Self::OffsetsLength { .. } => {
                "make the index anew from the shards"
            }
            Self::BracesUnbalanced { .. } => "write \\{ and \\} for braces that belong to a name",
            _ => return None,
        };
        Some(hint.to_owned())
    }
}
