//! Collects all facts about a shard that its headers contain, including damage.

use std::collections::HashSet;
use std::ops::Range;

use shardmill_core::Limits;

use crate::error::{MemberKind, TarError};
use crate::group::{Grouper, SampleEntry};
use crate::names::Consumer;
use crate::tar::{Dialect, Member, Scanner, Step, check_member, is_plain};

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
    /// The dialect of its header.
    pub dialect: Dialect,
    /// Whether its size is encoded in base 256 or in a PAX record.
    pub has_large_size: bool,
    /// Whether it is a contiguous file (type `7`).
    pub is_contiguous: bool,
    /// Whether its headers are those of the canonical profile, except for time and owner.
    pub is_plain: bool,
    /// The reason why it may not be in a shard.
    pub problem: Option<TarError>,
}

impl MemberEntry {
    fn new(member: &Member<'_>) -> Self {
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
            dialect: member.dialect,
            has_large_size: member.has_large_size,
            is_contiguous: member.is_contiguous(),
            is_plain: is_plain(member),
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

/// The members of a shard, up to its end or to the first damage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// The members, in order.
    pub members: Vec<MemberEntry>,
    /// The end of the archive, if it was found.
    pub end: Option<u64>,
    /// The reason why the survey stopped before the end, or the error after it.
    pub error: Option<TarError>,
    /// The length of the raw file.
    pub bytes: u64,
}

impl Survey {
    /// Surveys a raw shard in memory.
    #[must_use]
    pub fn of(data: &[u8], limits: &Limits) -> Self {
        let mut surveyor = Surveyor::new(data.len() as u64, limits);
        // The whole file is in memory, so no further range can be needed.
        let _ = surveyor.step(0, data);
        surveyor.finish()
    }

    /// Returns whether the shard is complete and no bytes follow it.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.error.is_none() && self.end.is_some()
    }

    /// Returns the samples as a reader groups them, and the errors of members that it would refuse. If the shard is
    /// incomplete, the last sample is missing. For Energon, a sample begins after global headers and extends to the
    /// next sample.
    #[must_use]
    pub fn samples(
        &self,
        consumer: Consumer,
        limits: &Limits,
    ) -> (Vec<SampleEntry>, Vec<TarError>) {
        let mut grouper = Grouper::new(consumer, limits);
        let (mut samples, mut problems) = (Vec::new(), Vec::new());
        let mut names = HashSet::new();
        for member in &self.members {
            // wids identifies members by name, and reads each name once.
            let name = member.name_for(consumer);
            let is_known =
                consumer == Consumer::Wids && member.is_file_for(consumer) && !names.insert(name);
            if is_known {
                continue;
            }
            match grouper.push_entry(member) {
                Ok(sample) => samples.extend(sample),
                Err(problem) => problems.push(problem),
            }
        }
        if self.end.is_some() {
            samples.extend(grouper.finish());
        }
        if consumer == Consumer::Energon {
            reach_to_the_next(&mut samples, self.end);
        }
        (samples, problems)
    }

    /// Returns the members so far of the last sample, in an incomplete shard.
    #[must_use]
    pub fn torn_sample(&self, limits: &Limits) -> Option<SampleEntry> {
        if self.end.is_some() {
            return None;
        }
        let mut grouper = Grouper::new(Consumer::Webdataset, limits);
        for member in &self.members {
            // A refused member is not part of the sample.
            let _ = grouper.push_entry(member);
        }
        grouper.finish()
    }
}

/// Extends each sample to the begin of the next one, and the last one to the end of the archive.
fn reach_to_the_next(samples: &mut [SampleEntry], end: Option<u64>) {
    let mut next = end;
    for sample in samples.iter_mut().rev() {
        sample.end = next.unwrap_or(sample.end);
        next = Some(sample.begin);
    }
}

/// Surveys a shard that need not be completely in memory.
#[derive(Clone, Debug)]
pub struct Surveyor {
    scanner: Scanner,
    survey: Survey,
    done: bool,
}

impl Surveyor {
    /// Creates a surveyor for a raw shard of that length.
    #[must_use]
    pub fn new(length: u64, limits: &Limits) -> Self {
        Self {
            scanner: Scanner::new(length, limits),
            survey: Survey {
                bytes: length,
                ..Survey::default()
            },
            done: false,
        }
    }

    /// Continues with the part of the shard that begins at `at`. Returns the range that is needed next; `None` at the
    /// end or at damage.
    pub fn step(&mut self, at: u64, window: &[u8]) -> Option<Range<u64>> {
        while !self.done {
            match self.scanner.step(at, window) {
                Ok(Step::Need(range)) => return Some(range),
                Ok(Step::Member(member)) => {
                    let entry = MemberEntry::new(&member);
                    self.survey.members.push(entry);
                }
                Ok(Step::End(end)) => {
                    self.survey.end = Some(end);
                    self.done = true;
                }
                Err(error) => {
                    // Bytes after the end of an archive do not make it incomplete.
                    if let TarError::Trailing { end, .. } = &error {
                        self.survey.end = Some(*end);
                    }
                    self.survey.error = Some(error);
                    self.done = true;
                }
            }
        }
        None
    }

    /// Returns what is known so far.
    #[must_use]
    pub fn finish(self) -> Survey {
        self.survey
    }
}
