//! Groups consecutive members with the same key into samples.

use std::borrow::Cow;
use std::ops::Range;

use shardmill_core::Limits;

use crate::error::WebdatasetError;
use crate::member::{MemberEntry, is_file};
use crate::names::{Consumer, is_reserved};
use crate::tar::Member;

/// One field of a sample and the position of its bytes in the shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldEntry {
    /// The field, named by the rules of the reader.
    pub name: Box<str>,
    /// The name of the member.
    pub member: Box<str>,
    /// The offset of its content in the raw shard.
    pub offset: u64,
    /// The bytes of its content.
    pub bytes: u64,
}

/// One sample of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleEntry {
    /// The key that its members share.
    pub key: Box<str>,
    /// The offset of the first header of its first member.
    pub begin: u64,
    /// The offset of the header after its last member.
    pub end: u64,
    /// Its fields, in the order of the members.
    pub fields: Vec<FieldEntry>,
}

impl SampleEntry {
    /// Returns the field of that name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&FieldEntry> {
        self.fields.iter().find(|field| &*field.name == name)
    }

    /// Returns the bytes of its content, without headers.
    #[must_use]
    pub fn content_bytes(&self) -> u64 {
        self.fields
            .iter()
            .fold(0, |sum, field| sum.saturating_add(field.bytes))
    }
}

/// Groups members into samples, by the rules of one reader.
///
/// Members are pushed in file order. A sample is complete when a member with another key follows, or when the caller
/// calls [`finish`](Self::finish) at the end of the archive. A caller that has *not* reached the end must not call it,
/// because the last sample may lack fields.
#[derive(Clone, Debug)]
pub struct Grouper {
    consumer: Consumer,
    fields_limit: u64,
    current: Option<SampleEntry>,
}

impl Grouper {
    /// Creates a grouper with the rules of a reader.
    #[must_use]
    pub const fn new(consumer: Consumer, limits: &Limits) -> Self {
        Self {
            consumer,
            fields_limit: limits.tar.fields,
            current: None,
        }
    }

    /// Adds a member. Returns the previous sample if this member completes it. Members without key or field, and
    /// members that are not files, are skipped.
    ///
    /// # Errors
    ///
    /// [`DuplicateField`](crate::WebdatasetProblem::DuplicateField) and, by the rules of `webdataset`,
    /// [`ReservedField`](crate::WebdatasetProblem::ReservedField) (`Corrupt`);
    /// [`WebdatasetError::MemberLimit`] (`Unsupported`) for too many fields. The sample then lacks the member, and the caller can
    /// continue.
    pub fn push(&mut self, member: &Member<'_>) -> Result<Option<SampleEntry>, WebdatasetError> {
        if !is_file(member.kind, member.is_contiguous(), self.consumer) {
            return Ok(None);
        }
        // wids reads only the name field of the header.
        let name = match self.consumer {
            Consumer::Wids => member.short_name(),
            _ => Cow::Borrowed(&*member.name),
        };
        self.add(
            &name,
            &member.name,
            self.begin_of(member.begin, member.own_begin)..member.end,
            member.data,
            member.bytes,
        )
    }

    /// Adds a member of a survey, as [`push`](Self::push) does.
    pub fn push_entry(
        &mut self,
        member: &MemberEntry,
    ) -> Result<Option<SampleEntry>, WebdatasetError> {
        if !member.is_file_for(self.consumer) {
            return Ok(None);
        }
        let name = member.name_for(self.consumer);
        self.add(
            name,
            &member.name,
            self.begin_of(member.begin, member.own_begin)..member.end,
            member.data,
            member.bytes,
        )
    }

    const fn begin_of(&self, begin: u64, own_begin: u64) -> u64 {
        match self.consumer {
            // The offset of a member in Python's `tarfile`.
            Consumer::Energon => own_begin,
            _ => begin,
        }
    }

    fn add(
        &mut self,
        seen_name: &str,
        name: &str,
        range: Range<u64>,
        data: u64,
        bytes: u64,
    ) -> Result<Option<SampleEntry>, WebdatasetError> {
        let Some((key, field)) = self.consumer.split(seen_name) else {
            return Ok(None);
        };
        if self.consumer == Consumer::Webdataset && is_reserved(&field) {
            return Err(WebdatasetError::reserved_field(
                range.start,
                key,
                &field,
                name,
            ));
        }
        let entry = FieldEntry {
            name: field.into(),
            member: name.into(),
            offset: data,
            bytes,
        };
        if let Some(current) = self.current.as_mut().filter(|current| &*current.key == key) {
            if let Some(first) = current.field(&entry.name) {
                if self.consumer != Consumer::OpenClip {
                    let (first, second) = (&first.member, &entry.member);
                    return Err(WebdatasetError::duplicate_field(
                        range.start,
                        key,
                        &entry.name,
                        first,
                        second,
                    ));
                }
                // COMPAT: to open_clip, a repeated field starts a new sample.
            } else {
                let fields = current.fields.len() as u64 + 1;
                let limit = self.fields_limit;
                WebdatasetError::check_limit("tar-fields", fields, limit, range.start)?;
                current.fields.push(entry);
                current.end = range.end;
                return Ok(None);
            }
        }
        let next = SampleEntry {
            key: key.into(),
            begin: range.start,
            end: range.end,
            fields: vec![entry],
        };
        Ok(self.current.replace(next))
    }

    /// Returns the last sample. Call it only at the end of the archive.
    #[must_use]
    pub fn finish(&mut self) -> Option<SampleEntry> {
        self.current.take()
    }
}
