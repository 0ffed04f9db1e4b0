//! Writes and reads the headers and offset tables of shards.

mod check;
mod line;
mod view;

use shardmill_core::{Format, Limits};

pub use crate::names::basename;
pub use line::TextValue;
pub use view::{Field, OwnedShard, SampleValue, ShardView};

use crate::config::ShardConfig;
use crate::error::{MdsError, MdsProblem, no_part};

/// Appends the header of an MDS shard: the number of samples, the offset table, and the config. The samples, of exactly
/// these sizes, must follow.
///
/// `config_json` is [`ShardConfig::to_json`], which the caller reuses from shard to shard.
///
/// # Errors
///
/// [`MdsProblem::ShardTooLarge`] and [`MdsProblem::TooManySamples`] (`InvalidInput`) when a number does not fit 32 bits,
/// where the original writer wraps around; [`MdsProblem::Part`] for another format. Nothing is appended then.
pub fn encode_header(
    config: &ShardConfig,
    config_json: &str,
    sample_sizes: impl ExactSizeIterator<Item = u32>,
    out: &mut Vec<u8>,
) -> Result<(), MdsError> {
    if config.format() != Format::Mds {
        return Err(no_part(config.format(), "header of samples"));
    }
    let config_bytes = config_json.len() as u64;
    let first = 8 + 4 * sample_sizes.len() as u64 + config_bytes;
    encode_table(first, config_json, sample_sizes, out)
}

/// Appends the `.meta` file of a shard of any other format: the number of samples, their offsets in the data file, and
/// the config. `first_offset` is the length of the header line, or 0 for JSON. A size includes the newline.
///
/// # Errors
///
/// As for [`encode_header`].
pub fn encode_meta(
    config_json: &str,
    first_offset: u64,
    sample_sizes: impl ExactSizeIterator<Item = u32>,
    out: &mut Vec<u8>,
) -> Result<(), MdsError> {
    encode_table(first_offset, config_json, sample_sizes, out)
}

fn encode_table(
    first: u64,
    config_json: &str,
    mut sizes: impl ExactSizeIterator<Item = u32>,
    out: &mut Vec<u8>,
) -> Result<(), MdsError> {
    let samples = sizes.len();
    let count = u32::try_from(samples).map_err(|_| {
        let reason = format!("the shard would have {samples} samples, but counts to 4294967295");
        MdsProblem::TooManySamples.because(reason)
    })?;
    let start = out.len();
    let table = 4 * (samples + 1);
    out.reserve(4 + table + config_json.len());
    out.extend_from_slice(&count.to_le_bytes());
    out.resize(start + 4 + table, 0);
    let slots = out.get_mut(start + 4..).unwrap_or_default();
    let mut offset = first;
    // PERF: 64-bit sums cannot overflow with 2³² sizes of 32 bits, so only the end is checked.
    for slot in slots.chunks_exact_mut(4) {
        let [a, b, c, d, ..] = offset.to_le_bytes();
        slot.copy_from_slice(&[a, b, c, d]);
        // The last slot is the end of the last sample; `sizes` is exhausted then.
        offset = offset.saturating_add(sizes.next().map_or(0, u64::from));
    }
    if u32::try_from(offset).is_err() {
        out.truncate(start);
        return Err(MdsError::shard_too_large(offset));
    }
    out.extend_from_slice(config_json.as_bytes());
    Ok(())
}

/// Reads the config and the number of samples from a raw MDS shard or a raw `.meta` file. An index can be rebuilt from
/// these.
///
/// For an MDS shard, only the bytes before the first sample are needed.
///
/// # Errors
///
/// [`MdsError`]: a header that is truncated or contradicts itself, or a config that [`Index::parse`] would refuse.
///
/// [`Index::parse`]: crate::Index::parse
pub fn read_config(
    data_or_meta: &[u8],
    is_meta: bool,
    limits: &Limits,
) -> Result<(ShardConfig, u64), MdsError> {
    let file = if is_meta { check::META } else { check::DATA };
    let (table, rest) = check::Table::read(data_or_meta, file)?;
    let json = if is_meta {
        rest
    } else {
        check::config_before_samples(data_or_meta, &table, rest)?
    };
    let config = check::parse_config(json, limits)?;
    if config.format().is_split() != is_meta {
        let part = match is_meta {
            true => ".meta file",
            false => "header of samples",
        };
        return Err(no_part(config.format(), part));
    }
    Ok((config, table.samples()))
}

#[cfg(test)]
mod tests;
