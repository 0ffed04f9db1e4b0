//! Checks the header of a shard against its entry in the index.

use std::fmt::Display;

use shardmill_core::{Format, Limits, escape};

use crate::config::{Layout, ShardConfig};
use crate::error::{MdsError, MdsProblem, no_part};
use crate::index::{self, ShardEntry};
use crate::shown::shorten;

/// The name of a data file in messages.
pub(super) const DATA: &str = "shard";
/// The name of an offset file in messages.
pub(super) const META: &str = ".meta file";

/// The offset table of a shard, read in place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table<'a> {
    // INVARIANT: the length is four bytes for each sample, plus four.
    bytes: &'a [u8],
}

fn number(bytes: &[u8]) -> Option<u64> {
    bytes
        .first_chunk::<4>()
        .map(|bytes| u64::from(u32::from_le_bytes(*bytes)))
}

impl<'a> Table<'a> {
    /// A table without samples.
    pub(super) const EMPTY: Self = Self { bytes: &[] };

    /// Reads the table at the start of a file, and returns it with the bytes after it.
    pub(super) fn read(file: &'a [u8], name: &'static str) -> Result<(Self, &'a [u8]), MdsError> {
        let truncated = |needed: u64| truncated(name, needed, file);
        let samples = number(file).ok_or_else(|| truncated(8))?;
        let end = 8 + 4 * samples;
        let (head, rest) = usize::try_from(end)
            .ok()
            .and_then(|end| file.split_at_checked(end))
            .ok_or_else(|| truncated(end))?;
        let bytes = head.get(4..).unwrap_or_default();
        Ok((Self { bytes }, rest))
    }

    /// Returns the number of samples in the shard.
    pub(super) const fn samples(&self) -> u64 {
        (self.bytes.len() as u64 / 4).saturating_sub(1)
    }

    /// Returns the offset of the first sample.
    pub(super) fn first(&self) -> u64 {
        number(self.bytes).unwrap_or(0)
    }

    /// Returns the begin and end of a sample in the data file.
    pub(super) fn range(&self, sample: u64) -> Option<(usize, usize)> {
        let at = usize::try_from(sample.checked_mul(4)?).ok()?;
        let pair = self.bytes.get(at..)?.first_chunk::<8>()?;
        let [a, b, c, d, e, f, g, h] = *pair;
        let begin = u32::from_le_bytes([a, b, c, d]);
        let end = u32::from_le_bytes([e, f, g, h]);
        Some((usize::try_from(begin).ok()?, usize::try_from(end).ok()?))
    }

    /// Builds the error for a first sample that does not start at the required offset.
    fn first_offset(&self, expected: u64) -> MdsError {
        MdsProblem::Offsets.because(format!(
            "the first sample starts at byte {}, but has to start at byte {expected}",
            self.first()
        ))
    }

    /// Checks that the samples are contiguous, start at `first`, end at `last`, and that none is too large.
    fn check(&self, first: u64, last: u64, limits: &Limits) -> Result<(), MdsError> {
        if self.first() != first {
            return Err(self.first_offset(first));
        }
        let mut previous = first;
        let mut largest = 0;
        for (index, bytes) in (0_u64..).zip(self.bytes.chunks_exact(4)) {
            let offset = number(bytes).unwrap_or(0);
            let Some(size) = offset.checked_sub(previous) else {
                let reason = format!("starts at byte {previous} and ends at byte {offset}");
                return Err(MdsProblem::Offsets.of_sample(index.saturating_sub(1), reason));
            };
            largest = largest.max(size);
            previous = offset;
        }
        if previous != last {
            let reason =
                format!("the last sample ends at byte {previous}, but the file has {last} bytes");
            return Err(MdsProblem::Offsets.because(reason));
        }
        Limits::check("sample-bytes", largest, limits.sample_bytes)?;
        Ok(())
    }
}

/// Returns the config of an MDS shard, which lies between the table and the first sample. `rest` are the bytes after
/// the table.
pub(super) fn config_before_samples<'a>(
    data: &'a [u8],
    table: &Table<'_>,
    rest: &'a [u8],
) -> Result<&'a [u8], MdsError> {
    let header = (data.len() - rest.len()) as u64;
    let config = table
        .first()
        .checked_sub(header)
        .ok_or_else(|| table.first_offset(header))?;
    usize::try_from(config)
        .ok()
        .and_then(|config| rest.get(..config))
        .ok_or_else(|| truncated(DATA, table.first(), data))
}

fn truncated(name: &str, needed: u64, file: &[u8]) -> MdsError {
    MdsProblem::Truncated.because(format!(
        "the {name} has {} bytes, but its header alone needs {needed}",
        file.len()
    ))
}

pub(super) fn parse_config(json: &[u8], limits: &Limits) -> Result<ShardConfig, MdsError> {
    index::parse_config(json, limits).map_err(|problem| MdsError::ShardConfig {
        problem: Box::new(problem),
    })
}

/// Checks everything in a shard but the contents of its samples, and returns its table.
pub(super) fn shard<'a>(
    entry: &ShardEntry,
    data: &'a [u8],
    meta: Option<&'a [u8]>,
    limits: &Limits,
) -> Result<Table<'a>, MdsError> {
    let config = &*entry.config;
    check_length(DATA, entry.raw_data.bytes, data, limits)?;
    let head = match (config.format().is_split(), meta, &entry.raw_meta) {
        (false, None, _) => data,
        (false, Some(_), _) => return Err(no_part(config.format(), META)),
        (true, Some(meta), Some(info)) => {
            check_length(META, info.bytes, meta, limits)?;
            meta
        }
        (true, ..) => {
            let reason = "the .meta file of the shard is missing";
            return Err(MdsProblem::NoMeta.because(reason));
        }
    };
    // Check the count before the table: a wrong count would make any other error misleading.
    let found = number(head);
    if let Some(found) = found.filter(|found| *found != entry.samples) {
        let expected = entry.samples;
        let reason = format!("the shard has {found} samples, but the index says {expected}");
        return Err(MdsProblem::Count.because(reason));
    }
    let (table, rest) = Table::read(head, if meta.is_some() { META } else { DATA })?;
    let last = data.len() as u64;
    let header_line = config.xsv_header();
    let json = if meta.is_some() {
        table.check(header_line.len() as u64, last, limits)?;
        rest
    } else {
        let json = config_before_samples(data, &table, rest)?;
        table.check(table.first(), last, limits)?;
        json
    };
    check_config(config, json, limits)?;
    if meta.is_some() {
        check_lines(config, &header_line, data, &table)?;
    }
    Ok(table)
}

fn check_length(
    name: &'static str,
    expected: u64,
    file: &[u8],
    limits: &Limits,
) -> Result<(), MdsError> {
    let found = file.len() as u64;
    if found != expected {
        let reason = format!("the {name} has {found} bytes, but the index says {expected}");
        return Err(MdsProblem::Length.because(reason));
    }
    Limits::check("shard-bytes", found, limits.shard_bytes)?;
    Ok(())
}

/// Checks the lines of a data file of any format but MDS.
fn check_lines(
    config: &ShardConfig,
    header_line: &[u8],
    data: &[u8],
    table: &Table<'_>,
) -> Result<(), MdsError> {
    if !data.starts_with(header_line) {
        let start = data.get(..header_line.len()).unwrap_or(data);
        let shown = |line: &[u8]| {
            let line = shorten(String::from_utf8_lossy(line).trim_end());
            escape(&line).into_owned()
        };
        return Err(MdsProblem::HeaderLine.because(format!(
            "the shard starts with `{}` instead of the header line `{}`",
            shown(start),
            shown(header_line)
        )));
    }
    let newline = config.newline().as_bytes();
    for sample in 0..table.samples() {
        let line = table
            .range(sample)
            .and_then(|(begin, end)| data.get(begin..end));
        if !line.is_some_and(|line| line.ends_with(newline)) {
            return Err(without_newline(sample));
        }
    }
    Ok(())
}

/// Builds the error for a sample that does not end with the newline of its shard.
pub(super) fn without_newline(sample: u64) -> MdsError {
    let reason = "does not end with the newline of the shard";
    MdsProblem::SampleNewline.of_sample(sample, reason)
}

fn check_config(expected: &ShardConfig, json: &[u8], limits: &Limits) -> Result<(), MdsError> {
    // PERF: configs written by the original writer or by this crate are equal byte for byte.
    if expected.to_json().as_bytes() == json {
        return Ok(());
    }
    let found = parse_config(json, limits)?;
    if found == *expected {
        return Ok(());
    }
    let differs = described(expected)
        .into_iter()
        .zip(described(&found))
        .find(|(expected, found)| expected != found);
    // There is always one, because these are all fields of a config.
    let ((field, expected), (_, found)) = differs.unwrap_or_default();
    Err(MdsProblem::Config.because(format!(
        "the config in the shard has {field} {}, but the index says {}",
        escape(&shorten(&found)),
        escape(&shorten(&expected))
    )))
}

/// Returns the fields of a config with their values, for a message.
fn described(config: &ShardConfig) -> [(&'static str, String); 7] {
    fn listed<N: Display, E: Display>(columns: impl Iterator<Item = (N, E)>) -> String {
        let columns: Vec<String> = columns.map(|(name, of)| format!("{name}: {of}")).collect();
        columns.join(", ")
    }
    fn or_null(value: Option<impl Display>) -> String {
        value.map_or_else(|| "null".to_owned(), |value| value.to_string())
    }
    let columns = match &config.layout {
        Layout::Mds { columns } => listed(columns.iter().map(|one| (&one.name, &one.encoding))),
        Layout::Json { columns, .. } | Layout::Xsv { columns, .. } => {
            listed(columns.iter().map(|one| (&one.name, one.encoding)))
        }
    };
    let separator = match &config.layout {
        Layout::Xsv {
            format: Format::Xsv,
            separator,
            ..
        } => format!("{separator:?}"),
        _ => String::new(),
    };
    let hashes: Vec<&str> = config.hashes.iter().map(|algo| algo.name()).collect();
    [
        ("format", config.format().to_string()),
        ("columns", columns),
        ("newline", format!("{:?}", config.newline())),
        ("separator", separator),
        ("compression", or_null(config.compression)),
        ("hashes", format!("[{}]", hashes.join(", "))),
        ("size_limit", or_null(config.size_limit)),
    ]
}
