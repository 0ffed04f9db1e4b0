//! Collects all facts about a shard that its headers contain, including damage.

use std::collections::HashSet;
use std::ops::Range;

use shardmill_core::Limits;

use crate::error::{MemberKind, WebdatasetError};
use crate::group::{Grouper, SampleEntry};
use crate::member::MemberEntry;
use crate::names::Consumer;
use crate::tar::{Scanner, Step};

/// The members of a shard, up to its end or to the first damage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// The members, in order.
    pub members: Vec<MemberEntry>,
    /// The end of the archive, if it was found.
    pub end: Option<u64>,
    /// The reason why the survey stopped before the end, or the error after it.
    pub error: Option<WebdatasetError>,
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

    /// Iterates over the members that are files.
    pub(crate) fn files(&self) -> impl Iterator<Item = &MemberEntry> {
        let members = self.members.iter();
        members.filter(|member| member.kind == MemberKind::File)
    }

    /// Returns the samples as a reader groups them, and the errors of members that it would refuse. If the shard is
    /// incomplete, the last sample is missing. For Energon, a sample begins after global headers and extends to the
    /// next sample.
    #[must_use]
    pub fn samples(
        &self,
        consumer: Consumer,
        limits: &Limits,
    ) -> (Vec<SampleEntry>, Vec<WebdatasetError>) {
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
                    if let WebdatasetError::Trailing { end, .. } = &error {
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
