//! Reads samples of a raw shard in memory, by offset.

use std::borrow::Cow;
use std::ops::Range;

use shardmill_core::Limits;

use super::scan::ShardScan;
use crate::error::{MemberKind, WebdatasetError, WebdatasetProblem};
use crate::names::{Consumer, is_reserved};
use crate::tar::{BLOCK, Scanner, Step, block_at, check_member};

/// One field of a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// The field: the member's name after the key, in lower case.
    pub name: Cow<'a, str>,
    /// The offset of its bytes in the raw shard.
    pub offset: u64,
    /// Its bytes.
    pub data: &'a [u8],
}

/// A raw shard and the offsets of its samples.
///
/// `B` owns or borrows the bytes, for example a `Vec`, a shared buffer or a mapping. It must return the same bytes each
/// time. Access to a sample parses only its own headers and copies nothing. Headers are checked at each access. If a
/// mapped file changes, the result is therefore an error and not the bytes of another sample.
#[derive(Clone, Debug)]
pub struct ShardView<B = Vec<u8>> {
    data: B,
    offsets: Vec<u64>,
    limits: Limits,
}

impl<B: AsRef<[u8]>> ShardView<B> {
    /// Scans a raw shard.
    pub fn open(data: B, limits: &Limits) -> Result<Self, WebdatasetError> {
        let offsets = ShardScan::offsets(data.as_ref(), limits)?;
        Ok(Self {
            data,
            offsets,
            limits: limits.clone(),
        })
    }

    /// Opens a raw shard with a stored offset table, without scanning it. The table is compared with the length and the
    /// end of the shard. Samples are checked when they are read.
    ///
    /// # Errors
    ///
    /// [`WebdatasetProblem::Offsets`], [`WebdatasetProblem::NoEnd`] (`Corrupt`).
    pub fn with_offsets(
        data: B,
        offsets: Vec<u64>,
        limits: &Limits,
    ) -> Result<Self, WebdatasetError> {
        check_offsets(data.as_ref(), &offsets)?;
        Ok(Self {
            data,
            offsets,
            limits: limits.clone(),
        })
    }

    /// Returns the owner of the bytes.
    #[must_use]
    pub const fn data(&self) -> &B {
        &self.data
    }

    /// Returns the number of samples in the shard.
    #[must_use]
    pub fn len(&self) -> u64 {
        (self.offsets.len() as u64).saturating_sub(1)
    }

    /// Returns whether the shard has no samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the begin of each sample and the end of the last one.
    #[must_use]
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// Returns the key of a sample.
    pub fn key(&self, sample: u64) -> Result<String, WebdatasetError> {
        let mut fields = Vec::new();
        self.fields_into(sample, &mut fields)
    }

    /// Returns the fields of a sample, in the order of its members.
    ///
    /// # Errors
    ///
    /// [`WebdatasetProblem::NoSample`] (`InvalidInput`), and any error in the members of the sample.
    pub fn fields(&self, sample: u64) -> Result<Vec<Field<'_>>, WebdatasetError> {
        let mut fields = Vec::new();
        self.fields_into(sample, &mut fields)?;
        Ok(fields)
    }

    /// Writes [`fields`](Self::fields) into a list of the caller, which is cleared first, and returns the key.
    pub fn fields_into<'a>(
        &'a self,
        sample: u64,
        fields: &mut Vec<Field<'a>>,
    ) -> Result<String, WebdatasetError> {
        fields.clear();
        let range = usize::try_from(sample)
            .ok()
            .and_then(|sample| self.offsets.get(sample..)?.first_chunk::<2>());
        let Some([begin, end]) = range else {
            let samples = self.len();
            let reason = format!("there is no sample {sample}: the shard has {samples}");
            return Err(WebdatasetProblem::NoSample.because(reason));
        };
        sample_fields(*begin..*end, 0, self.data.as_ref(), fields, &self.limits)
    }
}

/// Reads the fields of one sample from the bytes of its range, such as a ranged read of a remote shard. Returns the
/// key.
///
/// `bytes` are those of the raw shard from `begin` to the start of the next sample, according to the offset table.
/// Offsets of the fields count from the start of the shard. `fields` is cleared first.
///
/// # Errors
///
/// [`WebdatasetError`] for any error in the members of the sample, and for a range that is not that of one sample.
pub fn read_sample<'a>(
    begin: u64,
    bytes: &'a [u8],
    fields: &mut Vec<Field<'a>>,
    limits: &Limits,
) -> Result<String, WebdatasetError> {
    fields.clear();
    let end = begin.saturating_add(bytes.len() as u64);
    sample_fields(begin..end, begin, bytes, fields, limits)
}

/// Reads the fields of the sample at `range` of a shard. `window` is the part of the shard that begins at `at`.
fn sample_fields<'a>(
    range: Range<u64>,
    at: u64,
    window: &'a [u8],
    fields: &mut Vec<Field<'a>>,
    limits: &Limits,
) -> Result<String, WebdatasetError> {
    let stale = |reason: &str| WebdatasetError::stale_offsets(range.start, reason);
    let length = at.saturating_add(window.len() as u64);
    let mut scanner = Scanner::new(length, limits);
    scanner.resume_at(range.start);
    let mut key: Option<String> = None;
    while scanner.position() < range.end {
        let member = match scanner.step(at, window) {
            // Energon's tables assign a global header to the sample before it.
            Ok(Step::Member(member)) if member.own_begin >= range.end => break,
            Err(WebdatasetError::Shard {
                problem: WebdatasetProblem::NoEnd,
                ..
            }) if scanner.position() >= range.end && scanner.is_between() => break,
            Ok(Step::Member(member)) => member,
            Ok(Step::Need(_) | Step::End(_)) => break,
            Err(error) => return Err(error),
        };
        check_member(&member)?;
        if member.end > range.end {
            return Err(stale("a member reaches into the next one"));
        }
        if member.kind != MemberKind::File {
            continue;
        }
        let content = usize::try_from(member.data.saturating_sub(at))
            .ok()
            .zip(usize::try_from(member.bytes).ok())
            .and_then(|(data, bytes)| window.get(data..)?.get(..bytes));
        let Some(content) = content else {
            let (name, bytes) = (&member.name, member.bytes);
            return Err(WebdatasetError::short(member.begin, name, bytes, 0));
        };
        // PERF: a name within the header is borrowed from it.
        let split = match member.name {
            Cow::Borrowed(name) => Consumer::Webdataset.split(name),
            Cow::Owned(ref name) => Consumer::Webdataset
                .split(name)
                .map(|(key, field)| (key, Cow::Owned(field.into_owned()))),
        };
        let Some((member_key, name)) = split else {
            continue;
        };
        match &key {
            None => key = Some(member_key.to_owned()),
            Some(key) if key == member_key => {}
            Some(_) => return Err(stale("it holds members of two keys")),
        }
        if is_reserved(&name) {
            let full = format!("{member_key}.{name}");
            return Err(WebdatasetError::reserved_field(
                member.begin,
                member_key,
                &name,
                &full,
            ));
        }
        if let Some(first) = fields.iter().find(|field| field.name == name) {
            let first = first.offset;
            return Err(WebdatasetError::duplicate_field(
                member.begin,
                member_key,
                &name,
                &format!("byte {first}"),
                &format!("byte {}", member.data),
            ));
        }
        let count = fields.len() as u64 + 1;
        WebdatasetError::check_limit("tar-fields", count, limits.tar.fields, member.begin)?;
        fields.push(Field {
            name,
            offset: member.data,
            data: content,
        });
    }
    key.ok_or_else(|| stale("it holds no member with a key"))
}

fn check_offsets(data: &[u8], offsets: &[u64]) -> Result<(), WebdatasetError> {
    let error = |reason: &str| {
        Err(WebdatasetProblem::Offsets.because(format!("the table of offsets {reason}")))
    };
    let Some(end) = offsets.last() else {
        return error("is empty");
    };
    for (sample, pair) in offsets.windows(2).enumerate() {
        if let [begin, next] = pair
            && begin >= next
        {
            return error(&format!("does not ascend after sample {sample}"));
        }
    }
    if offsets
        .iter()
        .any(|offset| !offset.is_multiple_of(BLOCK as u64))
    {
        return error("has an offset within a block");
    }
    let zeros = usize::try_from(*end).ok().filter(|end| {
        [*end, end.saturating_add(BLOCK)]
            .iter()
            .all(|at| block_at(data, *at).is_some_and(|block| block.iter().all(|byte| *byte == 0)))
    });
    match zeros {
        Some(_) => Ok(()),
        None => Err(WebdatasetError::no_end(*end, data.len() as u64)),
    }
}
