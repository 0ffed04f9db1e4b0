//! Writes samples into a shard.

use std::collections::HashSet;

use shardmill_codec::Cutter;
use shardmill_core::{NameError, check_relative_path, escape};

use super::map::ShardMap;
use crate::error::{WebdatasetError, WebdatasetProblem};
use crate::group::{FieldEntry, SampleEntry};
use crate::tar::{TarStyle, member_bytes, trailer_bytes, write_member, write_trailer};

/// Which samples may be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rules {
    /// Samples that every known reader returns with the same key and the same fields.
    #[default]
    Canonical,
    /// Samples that the original writer writes and its reader returns. As in the original, fields that start with an
    /// underscore are dropped.
    Reference,
}

/// How samples are written. The default is the canonical profile.
///
/// The bytes of a sample depend only on the profile, its key and its fields. Any number of threads can therefore encode
/// samples, which are then concatenated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Profile {
    /// The headers.
    pub style: TarStyle,
    /// The names.
    pub rules: Rules,
}

impl Profile {
    /// Returns the profile whose shards equal those of `TarWriter(…, mtime=mtime)` of webdataset 1.0.2 byte for byte.
    #[must_use]
    pub const fn reference(mtime: u32) -> Self {
        Self {
            style: TarStyle::reference(mtime),
            rules: Rules::Reference,
        }
    }

    /// Checks that a key may be written.
    ///
    /// # Errors
    ///
    /// [`WebdatasetProblem::Key`] (`InvalidInput`).
    pub fn check_key(&self, key: &str) -> Result<(), WebdatasetError> {
        let reason = match self.rules {
            Rules::Canonical => canonical_key(key),
            Rules::Reference => reference_key(key),
        };
        match reason {
            None => Ok(()),
            Some(reason) => {
                Err(WebdatasetProblem::Key.because(format!("the key `{}` {reason}", escape(key))))
            }
        }
    }

    /// Returns the reason why a field may not be written.
    #[must_use]
    pub fn field_problem(&self, field: &str) -> Option<&'static str> {
        match self.rules {
            Rules::Canonical => canonical_field(field),
            Rules::Reference => field
                .contains('/')
                .then_some("has a slash, which would make it part of another key"),
        }
    }

    fn is_written(&self, field: &str) -> bool {
        self.rules == Rules::Canonical || !field.starts_with('_')
    }

    /// Returns the bytes that a sample takes in a shard.
    ///
    /// # Errors
    ///
    /// [`WebdatasetProblem::LongName`], [`WebdatasetProblem::LargeMember`] (`InvalidInput`).
    pub fn sample_bytes<'f>(
        &self,
        key: &str,
        fields: impl IntoIterator<Item = (&'f str, u64)>,
    ) -> Result<u64, WebdatasetError> {
        let mut sum = 0_u64;
        for (field, bytes) in fields {
            if self.is_written(field) {
                let name = format!("{key}.{field}");
                sum = sum.saturating_add(member_bytes(self.style, &name, bytes)?);
            }
        }
        Ok(sum)
    }

    /// Appends the members of a sample, sorted by field. Offsets in the entry count from the start of `out`.
    ///
    /// # Errors
    ///
    /// [`WebdatasetError`] (`InvalidInput`); nothing is appended then.
    pub fn encode_sample(
        &self,
        key: &str,
        fields: &[(&str, &[u8])],
        out: &mut Vec<u8>,
    ) -> Result<SampleEntry, WebdatasetError> {
        let start = out.len();
        let result = self.append(key, fields, out);
        if result.is_err() {
            out.truncate(start);
        }
        result
    }

    fn append(
        &self,
        key: &str,
        fields: &[(&str, &[u8])],
        out: &mut Vec<u8>,
    ) -> Result<SampleEntry, WebdatasetError> {
        self.check_key(key)?;
        let mut sorted: Vec<&(&str, &[u8])> = fields
            .iter()
            .filter(|(field, _)| self.is_written(field))
            .collect();
        // UTF-8 bytes sort in code point order.
        sorted.sort_by_key(|(field, _)| *field);
        if sorted.is_empty() {
            return Err(WebdatasetError::no_fields(key));
        }
        let mut entry = SampleEntry {
            key: key.into(),
            begin: out.len() as u64,
            end: 0,
            fields: Vec::with_capacity(sorted.len()),
        };
        for (field, content) in sorted {
            let name = field.to_lowercase();
            let twice = || {
                let twice = "occurs twice, because readers ignore case";
                entry.field(&name).map(|_| twice)
            };
            if let Some(reason) = self.field_problem(field).or_else(twice) {
                let (field, key) = (escape(field), escape(key));
                let reason = format!("the field `{field}` of sample `{key}` {reason}");
                return Err(WebdatasetProblem::Field.because(reason));
            }
            let member = format!("{key}.{field}");
            write_member(self.style, &member, content, out)?;
            let padded = content.len().next_multiple_of(512);
            entry.fields.push(FieldEntry {
                name: name.into(),
                member: member.into(),
                offset: out.len().saturating_sub(padded) as u64,
                bytes: content.len() as u64,
            });
        }
        entry.end = out.len() as u64;
        Ok(entry)
    }
}

/// Returns the reason why some reader would misread a key.
fn canonical_key(key: &str) -> Option<&'static str> {
    match check_relative_path(key) {
        Ok(()) => {}
        Err(NameError::Empty) => return Some("is empty"),
        Err(NameError::Absolute) => return Some("is absolute"),
        Err(NameError::Traversal) => return Some("has an empty, `.` or `..` part"),
        Err(NameError::Character) => return Some("has a control character or a backslash"),
        Err(NameError::TooLong) => return Some("has a part of more than 255 bytes"),
        Err(_) => return Some("has a part that some system reserves"),
    }
    let base = key.rsplit('/').next().unwrap_or(key);
    let first = key.split('/').next().unwrap_or(key);
    if base.contains('.') {
        return Some("has a dot in its last part, where readers end the key");
    }
    if base.starts_with("__") || (first.starts_with("__") && first.ends_with("__")) {
        return Some("starts with two underscores, which readers take for metadata");
    }
    if key.contains(char::is_whitespace) {
        return Some("has whitespace, which the index of DALI cannot express");
    }
    None
}

/// Returns the reason why the original reader would misread a key.
fn reference_key(key: &str) -> Option<&'static str> {
    if key.is_empty() {
        return Some("is empty");
    }
    let base = key.rsplit('/').next().unwrap_or(key);
    if base.contains('.') {
        return Some("has a dot in its last part, where readers end the key");
    }
    if key.chars().any(char::is_control) {
        return Some("has a control character");
    }
    None
}

/// Returns the reason why some reader would misread a field.
fn canonical_field(field: &str) -> Option<&'static str> {
    if field.is_empty() || field.split('.').any(str::is_empty) {
        return Some("is empty or has an empty part");
    }
    if field.starts_with('_') {
        return Some("starts with an underscore, which the original writer leaves out");
    }
    if field.contains(['/', '\\']) {
        return Some("has a slash, which would make it part of another key");
    }
    if field.to_lowercase() != field {
        return Some("has capitals, which some readers change");
    }
    if field.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Some("has whitespace or a control character");
    }
    None
}

/// Returns the length of a shard whose samples take `samples` bytes.
#[must_use]
pub const fn shard_bytes(samples: u64) -> u64 {
    samples.saturating_add(trailer_bytes(samples))
}

/// Builds a shard from samples.
#[derive(Clone, Debug, Default)]
pub struct ShardBuilder {
    profile: Profile,
    out: Vec<u8>,
    keys: HashSet<Box<str>>,
    samples: Vec<SampleEntry>,
}

impl ShardBuilder {
    /// Creates a shard without samples.
    #[must_use]
    pub fn new(profile: Profile) -> Self {
        Self {
            profile,
            ..Self::default()
        }
    }

    /// Adds a sample. Its members are sorted by field.
    ///
    /// # Errors
    ///
    /// [`WebdatasetError`] (`InvalidInput`). The shard is then unchanged.
    pub fn push(&mut self, key: &str, fields: &[(&str, &[u8])]) -> Result<(), WebdatasetError> {
        if self.keys.contains(key) {
            let reason = format!("the key `{}` was written before", escape(key));
            return Err(WebdatasetProblem::DuplicateKey.because(reason));
        }
        let entry = self.profile.encode_sample(key, fields, &mut self.out)?;
        self.keys.insert(key.into());
        self.samples.push(entry);
        Ok(())
    }

    /// Returns the number of samples so far.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples.len() as u64
    }

    /// Returns the length that the shard would have if it were finished now.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        shard_bytes(self.out.len() as u64)
    }

    /// Returns the shard and a map of its contents.
    #[must_use]
    pub fn finish(mut self) -> (Vec<u8>, ShardMap) {
        let end = self.out.len() as u64;
        write_trailer(&mut self.out);
        let map = ShardMap {
            samples: self.samples,
            end,
            bytes: self.out.len() as u64,
            skipped: 0,
        };
        (self.out, map)
    }
}

/// Returns what decides where shards end. The size limit includes headers and the end of the archive. Samples have the size
/// [`Profile::sample_bytes`].
#[must_use]
pub fn tar_cutter(size_limit: Option<u64>, samples_per_shard: Option<u64>) -> Cutter {
    Cutter::new(size_limit, samples_per_shard).with_file_bytes(shard_bytes)
}
