//! Describes a member of a shard for surveys.

use crate::error::{MemberKind, WebdatasetError};
use crate::names::Consumer;
use crate::tar::{Member, check_member};

/// One member in a survey.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberEntry {
    /// The name.
    pub name: Box<str>,
    /// The name field of the header, if it differs from the name.
    pub short_name: Option<Box<str>>,
    /// Its kind.
    pub kind: MemberKind,
    /// The offset of its first header.
    pub begin: u64,
    /// The offset of its first header, not counting a global header before it.
    pub own_begin: u64,
    /// The offset of its content.
    pub data: u64,
    /// The bytes of its content.
    pub bytes: u64,
    /// The offset of the next member.
    pub end: u64,
    /// Whether its size is encoded in base 256 or in a PAX record.
    pub has_large_size: bool,
    /// Whether it is a contiguous file (type `7`).
    pub is_contiguous: bool,
    /// The reason why it may not be in a shard.
    pub problem: Option<WebdatasetError>,
}

impl MemberEntry {
    pub(crate) fn new(member: &Member<'_>) -> Self {
        let short_name = member.short_name();
        Self {
            short_name: (short_name != member.name).then(|| (&*short_name).into()),
            name: (&*member.name).into(),
            kind: member.kind,
            begin: member.begin,
            own_begin: member.own_begin,
            data: member.data,
            bytes: member.bytes,
            end: member.end,
            has_large_size: member.has_large_size,
            is_contiguous: member.is_contiguous(),
            problem: check_member(member).err(),
        }
    }

    /// Returns the name that a reader sees.
    #[must_use]
    pub fn name_for(&self, consumer: Consumer) -> &str {
        match (&self.short_name, consumer) {
            // wids ignores prefixes and extension headers.
            (Some(short), Consumer::Wids) => short,
            _ => &self.name,
        }
    }

    /// Returns whether a reader treats it as a file.
    #[must_use]
    pub const fn is_file_for(&self, consumer: Consumer) -> bool {
        is_file(self.kind, self.is_contiguous, consumer)
    }

    /// Returns the bytes of its headers.
    #[must_use]
    pub const fn header_bytes(&self) -> u64 {
        self.data.saturating_sub(self.begin)
    }
}

/// Returns whether a reader treats a member as a file.
pub(crate) const fn is_file(kind: MemberKind, is_contiguous: bool, consumer: Consumer) -> bool {
    match consumer {
        // These two check the type themselves and do not accept type `7`; the others rely on Python's `tarfile`.
        Consumer::Wids | Consumer::Dali if is_contiguous => false,
        _ => matches!(kind, MemberKind::File),
    }
}
