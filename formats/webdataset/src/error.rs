//! Errors of shards, fields and indexes.

use shardmill_codec::CodecError;
use shardmill_core::{Diagnostic, ErrorKind, LimitExceeded, Limits, NameError, escape};

const CUT_OFF: &str = "the shard was cut off; write or fetch it again";
const REWRITE: &str = "write the shard again with only regular files and each sample in one run";

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

shardmill_core::problems! {
    /// What is wrong with a shard, a field or an index, if a sentence says all that is known about it.
    #[non_exhaustive]
    pub enum WebdatasetProblem {
        /// A block whose magic is not that of a tar dialect.
        Magic => (Corrupt, "tar-magic"),
        /// A header whose checksum does not match its bytes.
        Checksum => (Corrupt, "tar-checksum"),
        /// A field of a header that is not a number.
        HeaderNumber => (Corrupt, "tar-number"),
        /// A member that extends beyond the end of the file.
        Short => (Corrupt, "tar-short", CUT_OFF),
        /// A file that ends within a header block.
        TornHeader => (Corrupt, "tar-torn", CUT_OFF),
        /// A file without the two zero blocks that end an archive.
        NoEnd => (Corrupt, "tar-end", CUT_OFF),
        /// A size that does not match another one, or that a member of that kind cannot have.
        MemberSize => (Corrupt, "tar-size"),
        /// An extension header that POSIX and GNU do not define, or that contradicts another one.
        Extension => (Corrupt, "tar-extension"),
        /// A name that cannot be used.
        MemberName => (Corrupt, "tar-name"),
        /// A member that is neither a file nor a directory.
        MemberKind => (Unsupported, "tar-kind", REWRITE),
        /// Two members of one sample with the same field.
        DuplicateField => (Corrupt, "tar-duplicate", REWRITE),
        /// A member whose field has a name that readers reserve for themselves.
        ReservedField => (Corrupt, "tar-duplicate", "write the shard again without this member, or with another extension"),
        /// One field twice, with different content.
        FieldConflict => (Corrupt, "tar-duplicate", "remove one of the two members"),
        /// A key that occurs again after other samples.
        SplitSample => (Corrupt, "tar-split", REWRITE),
        /// A sample number beyond the end of the shard.
        NoSample => (InvalidInput, "sample-missing"),
        /// A table of offsets that does not match the shard.
        Offsets => (Corrupt, "tar-offsets"),
        /// A table of offsets of the wrong length.
        OffsetsLength => (Corrupt, "tar-offsets", "make the index anew from the shards"),
        /// A key that readers would split differently, or that is not a relative path.
        Key => (InvalidInput, "sample-key"),
        /// A field that readers would not return under its name.
        Field => (InvalidInput, "sample-field"),
        /// A name that does not fit into a plain header.
        LongName => (InvalidInput, "tar-long-name", "use names of at most 100 ASCII characters, or allow long names (wids cannot read them)"),
        /// A member of 8 GiB or more, whose size needs the base-256 encoding.
        LargeMember => (InvalidInput, "tar-size"),
        /// A sample without fields, which readers would not see.
        NoFields => (InvalidInput, "sample-empty"),
        /// A key that was already written.
        DuplicateKey => (InvalidInput, "sample-key-twice"),
        /// A pickle or a torch file.
        Pickle => (Unsupported, "encoding-unsafe"),
        /// Text that is not UTF-8.
        Utf8 => (Corrupt, "field-utf8"),
        /// Text that is not a whole number.
        FieldNumber => (Corrupt, "field-number"),
        /// Text that is not JSON.
        Json => (Corrupt, "json-syntax"),
        /// An array that is damaged or of an unsupported kind.
        Array => (Corrupt, "field-array"),
        /// A gzip stream that is damaged.
        Gzip => (Corrupt, "compression-damaged"),
        /// Text that is not JSON or is truncated, unknown, missing or repeated keys, or values of the wrong type.
        IndexSyntax => (Corrupt, "index-syntax", "make the index anew from the shards"),
        /// An index of another format.
        IndexFormat => (Unsupported, "index-format"),
        /// An index of another version.
        IndexVersion => (Unsupported, "index-version"),
        /// A value that does not match another one.
        IndexShard => (Corrupt, "index-shard"),
        /// A file that belongs to two shards.
        IndexDuplicate => (Corrupt, "index-duplicate"),
        /// A name with a space or with characters beyond ASCII, for a reader that cannot express it.
        SidecarName => (Unsupported, "sidecar-name"),
        /// A shard without samples, for a reader that needs some.
        SidecarEmpty => (Unsupported, "sidecar-empty"),
        /// Two shards whose names the reader cannot distinguish.
        SidecarSameName => (Unsupported, "sidecar-shard-twice"),
        /// A name that is not a known reader.
        UnknownConsumer => (InvalidInput, "consumer-unknown", "the readers are webdataset, hf, dali, energon, wids, open_clip"),
        /// A brace without its counterpart.
        BracesUnbalanced => (InvalidInput, "pattern-braces", "write \\{ and \\} for braces that belong to a name"),
        /// A pattern that stands for too many names, or whose braces are nested too deep.
        BracesSize => (InvalidInput, "pattern-size"),
    }
}

impl WebdatasetProblem {
    /// Builds the error with this problem.
    #[must_use]
    pub fn because(self, reason: impl Into<String>) -> WebdatasetError {
        WebdatasetError::Input {
            problem: self,
            reason: reason.into(),
        }
    }

    /// Builds the error of the header at an offset.
    pub(crate) fn at(self, offset: u64, reason: impl Into<String>) -> WebdatasetError {
        WebdatasetError::Shard {
            problem: self,
            offset,
            member: None,
            reason: reason.into(),
        }
    }

    /// Builds the error of a member. The message begins with its name and offset.
    pub(crate) fn of_member(self, offset: u64, member: &str, reason: &str) -> WebdatasetError {
        let reason = format!("member `{}` at byte {offset} {reason}", escape(member));
        self.at(offset, reason).about(member)
    }

    /// Builds the error of the value of a field. The message begins with the field.
    pub(crate) fn of_field(self, field: &str, reason: impl Into<String>) -> WebdatasetError {
        WebdatasetError::Value {
            problem: self,
            field: field.to_owned(),
            reason: reason.into(),
        }
    }
}

/// The reason why a shard, a field or an index cannot be written or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum WebdatasetError {
    /// A sentence says all that is known about the problem.
    #[error("{reason}")]
    Input {
        problem: WebdatasetProblem,
        reason: String,
    },
    /// A problem of a raw shard.
    #[error("{reason}")]
    Shard {
        problem: WebdatasetProblem,
        /// The position of the header block that the error concerns.
        offset: u64,
        /// The member that the error is about, if there is one.
        member: Option<String>,
        reason: String,
    },
    /// A problem of the value of a field.
    #[error("field `{}` {reason}", escape(field))]
    Value {
        problem: WebdatasetProblem,
        field: String,
        reason: String,
    },
    /// Bytes other than zeros after the end of the archive.
    #[error("the archive ends at byte {end}, but something follows at byte {offset}")]
    Trailing { end: u64, offset: u64 },
    /// A member exceeds a limit.
    #[error("the member at byte {offset}: {problem}")]
    MemberLimit { offset: u64, problem: LimitExceeded },
    /// A name in an index that is not a valid path within the folder of the index.
    #[error("shard {shard}: `{}`: {problem}", escape(basename))]
    IndexName {
        shard: u64,
        basename: String,
        problem: NameError,
    },
    /// A hash in an index that is unknown or malformed.
    #[error("shard {shard}: {problem}")]
    IndexHash { shard: u64, problem: CodecError },
    /// A limit is exceeded.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
}

impl WebdatasetError {
    /// Adds the member that the error is about.
    pub(crate) fn about(mut self, name: &str) -> Self {
        if let Self::Shard { member, .. } = &mut self {
            *member = Some(name.to_owned());
        }
        self
    }

    /// Builds the error for a sample without fields.
    #[must_use]
    pub fn no_fields(key: &str) -> Self {
        WebdatasetProblem::NoFields.because(format!("sample `{}` has no fields", escape(key)))
    }

    /// Builds the error for a table of offsets that does not match the sample at `begin`.
    #[must_use]
    pub fn stale_offsets(begin: u64, reason: &str) -> Self {
        WebdatasetProblem::Offsets.because(format!(
            "the table of offsets does not fit the sample at byte {begin}: {reason}"
        ))
    }

    /// Builds the error for a pattern that stands for too many names.
    #[must_use]
    pub fn too_many_names(pattern: &str, max: u64) -> Self {
        let pattern = escape(pattern);
        let reason = format!("`{pattern}` matches more than {max} names");
        WebdatasetProblem::BracesSize.because(reason)
    }

    /// Builds the error for a file that ends within the header at `offset`.
    pub(crate) fn torn_header(offset: u64, length: u64) -> Self {
        let reason = format!("the file ends at byte {length}, within the header at byte {offset}");
        WebdatasetProblem::TornHeader.at(offset, reason)
    }

    /// Builds the error for a file without the end of an archive.
    pub(crate) fn no_end(offset: u64, length: u64) -> Self {
        WebdatasetProblem::NoEnd.at(
            offset,
            format!(
                "the file ends at byte {length} without the two zero blocks that end an archive"
            ),
        )
    }

    /// Builds the error for a member of `needed` bytes, of which `left` exist.
    pub(crate) fn short(offset: u64, member: &str, needed: u64, left: u64) -> Self {
        let reason = format!("needs {needed} bytes, but {left} are left");
        WebdatasetProblem::Short.of_member(offset, member, &reason)
    }

    /// Builds the error for a field that two members of a sample have. The error is about the second one.
    pub(crate) fn duplicate_field(
        offset: u64,
        key: &str,
        field: &str,
        first: &str,
        second: &str,
    ) -> Self {
        let reason = format!(
            "sample `{}` has the field `{}` twice, in `{}` and `{}`",
            escape(key),
            escape(field),
            escape(first),
            escape(second)
        );
        WebdatasetProblem::DuplicateField
            .at(offset, reason)
            .about(second)
    }

    /// Builds the error for a field whose name readers use for something else.
    pub(crate) fn reserved_field(offset: u64, key: &str, field: &str, member: &str) -> Self {
        let reason = format!(
            "sample `{}` has the field `{}`, in `{}`, and readers use that name for something else",
            escape(key),
            escape(field),
            escape(member)
        );
        WebdatasetProblem::ReservedField
            .at(offset, reason)
            .about(member)
    }

    /// Builds the error for a key in several runs.
    pub(crate) fn split_sample(offset: u64, key: &str) -> Self {
        let key = escape(key);
        let reason = format!("the key `{key}` occurs again at byte {offset}, after other keys");
        WebdatasetProblem::SplitSample.at(offset, reason)
    }

    /// Builds the error for a table of offsets whose length does not match the number of samples.
    pub(crate) fn offsets_length(bytes: u64, samples: u64) -> Self {
        WebdatasetProblem::OffsetsLength.because(format!(
            "a table of offsets of {bytes} bytes does not fit {samples} samples"
        ))
    }

    /// Builds the error for a shard without samples, which a reader cannot index.
    pub(crate) fn sidecar_empty(reader: &str, shard: &str) -> Self {
        WebdatasetProblem::SidecarEmpty.because(format!(
            "an index of {reader} cannot describe a shard without samples: `{}`",
            escape(shard)
        ))
    }

    /// Checks a limit that concerns the member whose header is at `offset`.
    pub(crate) fn check_limit(
        name: &'static str,
        value: u64,
        limit: u64,
        offset: u64,
    ) -> Result<(), Self> {
        Limits::check(name, value, limit).map_err(|problem| Self::MemberLimit { offset, problem })
    }
}

impl Diagnostic for WebdatasetError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Input { problem, .. }
            | Self::Shard { problem, .. }
            | Self::Value { problem, .. } => problem.facts().0,
            Self::MemberLimit { .. } | Self::Limit(_) => ErrorKind::Unsupported,
            Self::IndexHash { problem, .. } => problem.kind(),
            Self::Trailing { .. } | Self::IndexName { .. } => ErrorKind::Corrupt,
        }
    }

    fn id(&self) -> &'static str {
        match self {
            Self::Input { problem, .. }
            | Self::Shard { problem, .. }
            | Self::Value { problem, .. } => problem.facts().1,
            Self::Trailing { .. } => "tar-trailing",
            Self::MemberLimit { problem, .. } | Self::Limit(problem) => problem.id(),
            Self::IndexName { problem, .. } => problem.id(),
            Self::IndexHash { problem, .. } => problem.id(),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Input { problem, .. }
            | Self::Shard { problem, .. }
            | Self::Value { problem, .. } => problem.facts().2.map(str::to_owned),
            Self::MemberLimit { problem, .. } | Self::Limit(problem) => Some(problem.hint()),
            Self::Trailing { .. } | Self::IndexName { .. } | Self::IndexHash { .. } => None,
        }
    }
}
