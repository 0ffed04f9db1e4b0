//! Errors of shards, fields and indexes.

use std::fmt;

use shardmill_codec::CodecError;
use shardmill_core::{Diagnostic, ErrorKind, LimitExceeded, NameError, escape};

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

/// The reason why a shard, a field or an index cannot be written or read. `offset` is the position in the raw shard of the
/// header block that the error concerns.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WebdatasetError {
    // Tar files.
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
    HeaderNumber {
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
    MemberSize {
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
    MemberName {
        /// The position of its header.
        offset: u64,
        /// The name, with replacement characters where it is not UTF-8.
        member: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A member that is neither a file nor a directory.
    #[error("member `{}` at byte {offset} is a {kind}", escape(member))]
    MemberKind {
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
        "sample `{}` has the field `{}`, in `{}`, and readers use that name for something else",
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
    #[error(
        "the key `{}` occurs again at byte {offset}, after other keys",
        escape(key)
    )]
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
    MemberLimit {
        /// The position of its header.
        offset: u64,
        /// The exceeded limit.
        problem: LimitExceeded,
    },

    // Samples to write.
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
    LargeMember {
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
    /// One field twice, with different content.
    #[error(
        "field `{}` of sample `{}` occurs twice, with different content: `{}` and `{}`",
        escape(field),
        escape(key),
        escape(first),
        escape(second)
    )]
    FieldConflict {
        /// The key.
        key: String,
        /// The field.
        field: String,
        /// The first member.
        first: String,
        /// The second member.
        second: String,
    },

    // Fields.
    /// A value that the extension has no encoding for.
    #[error("a {value} cannot be written as field `{}`", escape(field))]
    NoEncoder {
        /// The field.
        field: String,
        /// The kind of value.
        value: &'static str,
    },
    /// A pickle or a torch file.
    #[error(
        "field `{}` holds a pickle, which runs code when it is read",
        escape(field)
    )]
    Pickle {
        /// The field.
        field: String,
    },
    /// Text that is not UTF-8.
    #[error(
        "field `{}` is not UTF-8 from byte {offset} of {length}",
        escape(field)
    )]
    Utf8 {
        /// The field.
        field: String,
        /// The first byte that is not part of a character.
        offset: u64,
        /// The bytes of the field.
        length: u64,
    },
    /// Text that is not a 64-bit integer.
    #[error(
        "field `{}` is not a whole number of 64 bits: `{}`",
        escape(field),
        escape(found)
    )]
    FieldNumber {
        /// The field.
        field: String,
        /// The text, at most its first 40 characters.
        found: String,
    },
    /// Text that is not JSON.
    #[error("field `{}` is not JSON: {reason}", escape(field))]
    Json {
        /// The field.
        field: String,
        /// The position of the syntax error.
        reason: String,
    },
    /// An array that is damaged or of an unsupported kind.
    #[error("field `{}` {reason}", escape(field))]
    Array {
        /// The field.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A gzip stream that is damaged.
    #[error("field `{}` is damaged gzip: {reason}", escape(field))]
    Gzip {
        /// The field.
        field: String,
        /// The decoder's message.
        reason: String,
    },

    // Indexes.
    /// Text that is not JSON or is truncated, unknown, missing or repeated keys, or values of the wrong type.
    #[error("the index is damaged at line {line}, byte {column}: {reason}")]
    IndexSyntax {
        /// The line, from 1.
        line: u64,
        /// The byte in that line.
        column: u64,
        /// The error at that position.
        reason: String,
    },
    /// An index of another format.
    #[error("the index is of format `{}`", escape(found))]
    IndexFormat {
        /// The format.
        found: String,
    },
    /// Another version.
    #[error("the version is {found}; only version 1 is supported")]
    IndexVersion {
        /// The version.
        found: u64,
    },
    /// A value that does not match another one.
    #[error("shard {shard}: {problem}")]
    IndexShard {
        /// The shard, counted from 0.
        shard: u64,
        /// What is wrong.
        problem: String,
    },
    /// A name that is not a valid path within the folder of the index.
    #[error("shard {shard}: `{}`: {problem}", escape(basename))]
    IndexName {
        /// The shard, counted from 0.
        shard: u64,
        /// The name.
        basename: String,
        /// What is wrong with it.
        problem: NameError,
    },
    /// A hash that is unknown or malformed.
    #[error("shard {shard}: {problem}")]
    IndexHash {
        /// The shard, counted from 0.
        shard: u64,
        /// What is wrong with it.
        problem: CodecError,
    },
    /// A file that belongs to two shards.
    #[error("shard {shard}: the file `{}` occurs twice", escape(basename))]
    IndexDuplicate {
        /// The second shard that lists it, counted from 0.
        shard: u64,
        /// The name.
        basename: String,
    },
    /// A table of offsets of the wrong length.
    #[error("a table of offsets of {bytes} bytes does not fit {samples} samples")]
    OffsetsLength {
        /// Its length.
        bytes: u64,
        /// The number of samples in the shard.
        samples: u64,
    },
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
        /// The reader.
        reader: &'static str,
        /// The member.
        member: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A shard without samples.
    #[error(
        "an index of {reader} cannot describe a shard without samples: `{}`",
        escape(shard)
    )]
    SidecarEmpty {
        /// The reader.
        reader: &'static str,
        /// The shard.
        shard: String,
    },
    /// Two shards whose names the reader cannot distinguish.
    #[error("{reader} cannot tell two shards called `{}` apart", escape(name))]
    SidecarSameName {
        /// The reader.
        reader: &'static str,
        /// The name.
        name: String,
    },
    /// A repeated key, for a reader that requires unique keys in the whole dataset.
    #[error(
        "{reader} allows the key `{}` once, and it is in `{}` and `{}`",
        escape(key),
        escape(first),
        escape(second)
    )]
    SidecarSameKey {
        /// The reader.
        reader: &'static str,
        /// The key.
        key: String,
        /// The first shard.
        first: String,
        /// The second shard.
        second: String,
    },

    // Names of readers and shards.
    /// A name that is not a known reader.
    #[error("unknown reader `{}`", escape(name))]
    UnknownConsumer {
        /// The name as given.
        name: String,
        /// The known readers, for the hint.
        known: String,
    },
    /// A brace without its counterpart.
    #[error("the braces of `{}` are not balanced", escape(pattern))]
    BracesUnbalanced {
        /// The pattern.
        pattern: String,
    },
    /// More names than the limit.
    #[error("`{}` stands for more than {most} names", escape(pattern))]
    BracesMany {
        /// The pattern.
        pattern: String,
        /// The most names that a pattern may expand to.
        most: u64,
    },
    /// Braces that are nested too deep.
    #[error("the braces of `{}` are nested more than 64 deep", escape(pattern))]
    BracesDeep {
        /// The pattern.
        pattern: String,
    },
}

impl WebdatasetError {
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
                "rewrite the shard with only the files of its samples, each sample in one run"
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
