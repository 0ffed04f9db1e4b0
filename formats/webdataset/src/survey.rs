//! Everything that can be found out about a shard from its headers, damage included.

use std::collections::HashSet;
use std::ops::Range;

use shardmill_core::Limits;

use crate::error::{MemberKind, TarError};
use crate::group::{Grouper, SampleEntry};
use crate::names::Consumer;
use crate::tar::{Dialect, Member, Scanner, Step, check_member, is_plain};

/// One member, as a survey remembers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberEntry {
    /// The name.
    pub name: Box<str>,
    /// The name field of the header alone, where that is not the name.
    pub short_name: Option<Box<str>>,
    /// What it is.
    pub kind: MemberKind,
    /// Where the first of its headers begins.
    pub begin: u64,
    /// The same without a header for all members in front of it.
    pub own_begin: u64,
    /// Where its content begins.
    pub data: u64,
    /// The bytes of its content.
    pub bytes: u64,
    /// Where the next member begins.
    pub end: u64,
    /// The dialect of its header.
    pub dialect: Dialect,
    /// Whether its size is spelled in base 256 or in a PAX record.
    pub has_large_size: bool,
    /// Whether it is a file of the kind that is to lie in one piece.
    pub is_contiguous: bool,
    /// Whether its headers are what the canonical profile would write, whatever the time and the owner.
    pub is_plain: bool,
    /// Why it may not be in a shard.
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

    /// The name as that reader sees it.
    #[must_use]
    pub fn name_for(&self, consumer: Consumer) -> &str {
        match (&self.short_name, consumer) {
            // wids knows neither prefixes nor extension headers.
            (Some(short), Consumer::Wids) => short,
            _ => &self.name,
        }
    }

    /// Whether that reader takes it for a file.
    #[must_use]
    pub const fn is_file_for(&self, consumer: Consumer) -> bool {
        is_file(self.kind, self.is_contiguous, consumer)
    }

    /// The bytes of its headers.
    #[must_use]
    pub const fn header_bytes(&self) -> u64 {
        self.data.saturating_sub(self.begin)
    }
}

/// Whether a reader takes a member for a file.
pub(crate) const fn is_file(kind: MemberKind, is_contiguous: bool, consumer: Consumer) -> bool {
    match consumer {
        // These two look for one kind of file, the others leave that to Python's `tarfile`.
        Consumer::Wids | Consumer::Dali if is_contiguous => false,
        _ => matches!(kind, MemberKind::File),
    }
}

/// A shard by its headers, up to its end or to the first damage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// The members, in order.
    pub members: Vec<MemberEntry>,
    /// Where the archive ends, when it does.
    pub end: Option<u64>,
    /// Why the survey stopped before the end, or what follows it.
    pub error: Option<TarError>,
    /// The length of the raw file.
    pub bytes: u64,
}

impl Survey {
    /// Surveys a raw shard at hand.
    #[must_use]
    pub fn of(data: &[u8], limits: &Limits) -> Self {
        let mut surveyor = Surveyor::new(data.len() as u64, limits);
        // All of the file is there, so nothing more can be asked for.
        let _ = surveyor.step(0, data);
        surveyor.finish()
    }

    /// Whether the shard is complete and nothing follows it.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.error.is_none() && self.end.is_some()
    }

    /// The samples as that reader groups them, and the members that it would refuse. Of a shard that is not complete, the
    /// last sample is left out. For Energon a sample begins behind headers for all members and reaches to the next one,
    /// whatever lies between them.
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
            // wids knows members by their names, each of which it has once.
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

    /// What the last sample has so far, in a shard that is not complete.
    #[must_use]
    pub fn torn_sample(&self, limits: &Limits) -> Option<SampleEntry> {
        if self.end.is_some() {
            return None;
        }
        let mut grouper = Grouper::new(Consumer::Webdataset, limits);
        for member in &self.members {
            // A member that is refused is not part of the sample.
            let _ = grouper.push_entry(member);
        }
        grouper.finish()
    }
}

/// Lets each sample end where the next one begins, the last one at the end of the archive.
fn reach_to_the_next(samples: &mut [SampleEntry], end: Option<u64>) {
    let mut next = end;
    for sample in samples.iter_mut().rev() {
        sample.end = next.unwrap_or(sample.end);
        next = Some(sample.begin);
    }
}

/// Makes a [`Survey`] of a shard that need not be at hand as a whole.
#[derive(Clone, Debug)]
pub struct Surveyor {
    scanner: Scanner,
    survey: Survey,
    done: bool,
}

impl Surveyor {
    /// A survey of a raw shard of that length.
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

    /// Goes on with the part of the shard that begins at `at`; answers which range is needed next, `None` at the end or at
    /// damage.
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
                    // What follows the end of an archive does not make it incomplete.
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

    /// What is known so far.
    #[must_use]
    pub fn finish(self) -> Survey {
        self.survey
    }
}
