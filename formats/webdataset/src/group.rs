//! Members that follow one another and share a key are a sample.

use std::borrow::Cow;
use std::ops::Range;

use shardmill_core::Limits;

use crate::error::TarError;
use crate::names::{Consumer, is_reserved};
use crate::survey::{MemberEntry, is_file};
use crate::tar::Member;

/// One field of a sample: where its bytes lie in the shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldEntry {
    /// The field, as the reader of the grouping sees it.
    pub name: Box<str>,
    /// The name of the member.
    pub member: Box<str>,
    /// Where its content begins, from the start of the raw shard.
    pub offset: u64,
    /// The bytes of its content.
    pub bytes: u64,
}

/// One sample of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleEntry {
    /// What its members have in common.
    pub key: Box<str>,
    /// Where the first header of its first member begins.
    pub begin: u64,
    /// Where the header behind its last member begins.
    pub end: u64,
    /// Its fields, in the order of the members.
    pub fields: Vec<FieldEntry>,
}

impl SampleEntry {
    /// The field of that name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&FieldEntry> {
        self.fields.iter().find(|field| &*field.name == name)
    }

    /// The bytes of its content, without headers.
    #[must_use]
    pub fn content_bytes(&self) -> u64 {
        self.fields
            .iter()
            .fold(0, |sum, field| sum.saturating_add(field.bytes))
    }
}

/// Puts members together into samples, by the rules of one reader.
///
/// Members are pushed in the order of the file. A sample is complete when a member with another key follows, or when the
/// caller, who has seen the end of the archive, calls [`finish`](Self::finish). Whoever has *not* seen the end must not
/// call it: the last sample may lack fields.
#[derive(Clone, Debug)]
pub struct Grouper {
    consumer: Consumer,
    fields_limit: u64,
    current: Option<SampleEntry>,
}

impl Grouper {
    /// A grouping by the rules of that reader.
    #[must_use]
    pub const fn new(consumer: Consumer, limits: &Limits) -> Self {
        Self {
            consumer,
            fields_limit: limits.tar_fields,
            current: None,
        }
    }

    /// Adds a member; answers the sample before it, if that is complete now. Members without key and field, and
    /// everything that is not a file, are skipped.
    ///
    /// # Errors
    ///
    /// [`TarError::DuplicateField`] and, by the rules of `webdataset`, [`TarError::ReservedField`] (`Corrupt`);
    /// [`TarError::Limit`] (`Unsupported`) for too many fields. The member is left out of the sample then, and the grouping
    /// can go on.
    pub fn push(&mut self, member: &Member<'_>) -> Result<Option<SampleEntry>, TarError> {
        if !is_file(member.kind, member.is_contiguous(), self.consumer) {
            return Ok(None);
        }
        // What wids sees is the name field alone.
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

    /// [`push`](Self::push) for a member that a survey has found.
    ///
    /// # Errors
    ///
    /// As for [`push`](Self::push).
    pub fn push_entry(&mut self, member: &MemberEntry) -> Result<Option<SampleEntry>, TarError> {
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
            // What `tarfile` of Python calls the offset of a member.
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
    ) -> Result<Option<SampleEntry>, TarError> {
        let Some((key, field)) = self.consumer.split(seen_name) else {
            return Ok(None);
        };
        if self.consumer == Consumer::Webdataset && is_reserved(&field) {
            return Err(TarError::ReservedField {
                offset: range.start,
                key: key.to_owned(),
                field: field.into_owned(),
                member: name.to_owned(),
            });
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
                    return Err(TarError::DuplicateField {
                        offset: range.start,
                        key: key.to_owned(),
                        field: entry.name.into_string(),
                        first: first.member.to_string(),
                        second: entry.member.into_string(),
                    });
                }
                // COMPAT: open_clip takes a repeated field for the start of a new sample.
            } else {
                Limits::check(
                    "tar-fields",
                    current.fields.len() as u64 + 1,
                    self.fields_limit,
                )
                .map_err(|problem| TarError::Limit {
                    offset: range.start,
                    problem,
                })?;
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

    /// The key of the sample that is not complete yet.
    #[must_use]
    pub fn open_key(&self) -> Option<&str> {
        self.current.as_ref().map(|current| &*current.key)
    }

    /// The sample that is not complete yet, which is dropped.
    #[must_use]
    pub fn abandon(&mut self) -> Option<SampleEntry> {
        self.current.take()
    }

    /// The last sample, when the end of the archive has been seen.
    #[must_use]
    pub fn finish(mut self) -> Option<SampleEntry> {
        self.current.take()
    }
}
