//! Writes the indexes of other readers. All functions are pure and return the bytes of a file.
//!
//! They take shards as lists of [`SampleEntry`], which a writer has and a scan returns. All readers group shards in the
//! canonical profile in the same way. Other shards must be grouped by the rules of the reader
//! ([`Survey::samples`](crate::Survey::samples)).

#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use shardmill_core::escape;

use crate::error::{WebdatasetError, WebdatasetProblem};
use crate::group::SampleEntry;
use crate::json::{quoted, write_list};

/// A shard, described for the index of another reader.
#[derive(Clone, Copy, Debug)]
pub struct SidecarShard<'a> {
    /// Its name, relative to the folder of the index.
    pub name: &'a str,
    /// The length of its file.
    pub bytes: u64,
    /// The MD5 digest of its file in hexadecimal, if it is known.
    pub md5: Option<&'a str>,
    /// Its samples.
    pub samples: &'a [SampleEntry],
}

/// Returns the index of `wids`, as `widsindex create` writes it: `shardindex.json`. Shards are sorted by name.
#[must_use]
pub fn wids_index(shards: &[SidecarShard<'_>], name: Option<&str>, base: Option<&str>) -> String {
    let mut sorted: Vec<&SidecarShard<'_>> = shards.iter().collect();
    sorted.sort_by_key(|shard| shard.name);
    let mut out =
        String::from("{\n  \"__kind__\": \"wids-shard-index-v1\",\n  \"wids_version\": 1,\n");
    for (key, value) in [("name", name), ("base", base)] {
        if let Some(value) = value {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "  \"{key}\": {},", quoted(value));
        }
    }
    out.push_str("  \"shardlist\": [");
    for (index, shard) in sorted.into_iter().enumerate() {
        out.push_str(if index > 0 { ",\n    {" } else { "\n    {" });
        let _ = write!(out, "\n      \"url\": {},", quoted(shard.name));
        if let Some(md5) = shard.md5 {
            let _ = write!(out, "\n      \"md5sum\": {},", quoted(md5));
        }
        let _ = write!(
            out,
            "\n      \"nsamples\": {},\n      \"filesize\": {}\n    }}",
            shard.samples.len(),
            shard.bytes
        );
    }
    out.push_str(if shards.is_empty() {
        "]\n}"
    } else {
        "\n  ]\n}"
    });
    out
}

/// Returns the index of DALI, version 1.2, as `wds2idx` writes it.
///
/// # Errors
///
/// [`WebdatasetProblem::SidecarEmpty`], [`WebdatasetProblem::SidecarName`] (`Unsupported`).
pub fn dali_index(shard: &SidecarShard<'_>) -> Result<String, WebdatasetError> {
    if shard.samples.is_empty() {
        return Err(WebdatasetError::sidecar_empty("dali", shard.name));
    }
    let mut out = format!("v1.2 {}\n", shard.samples.len());
    for sample in shard.samples {
        for (index, field) in sample.fields.iter().enumerate() {
            let reason = if field.name.is_empty() || field.member.contains(char::is_whitespace) {
                Some("has a space or ends in a dot")
            } else if !field.member.is_ascii() {
                Some("is not ASCII")
            } else {
                None
            };
            if let Some(reason) = reason {
                let name = escape(&field.member);
                let reason = format!("an index of dali cannot hold the name `{name}`: it {reason}");
                return Err(WebdatasetProblem::SidecarName.because(reason));
            }
            let blank = if index > 0 { " " } else { "" };
            // Writing to a String cannot fail.
            let _ = write!(
                out,
                "{blank}{} {} {} {}",
                field.name, field.offset, field.bytes, field.member
            );
        }
        out.push('\n');
    }
    Ok(out)
}

/// Returns the name of DALI's index for a shard: its name up to the first dot of its last component, and `.idx`.
#[must_use]
pub fn dali_name(shard: &str) -> String {
    let base = shard.rfind('/').map_or(0, |slash| slash + 1);
    let dot = shard.get(base..).and_then(|name| name.find('.'));
    let stem = dot.and_then(|dot| shard.get(..base + dot)).unwrap_or(shard);
    format!("{stem}.idx")
}

/// Returns the text after the last slash.
fn basename(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// Returns `sizes.json` of `open_clip`: the number of samples in each shard. Store it next to the first shard, but not
/// in a folder that img2dataset writes to: that program counts every JSON file there as a finished shard.
///
/// # Errors
///
/// [`WebdatasetProblem::SidecarSameName`] (`Unsupported`), because the file cannot express folders.
pub fn open_clip_sizes(shards: &[SidecarShard<'_>]) -> Result<String, WebdatasetError> {
    let mut names: Vec<&str> = shards.iter().map(|shard| basename(shard.name)).collect();
    names.sort_unstable();
    if let Some([name, _]) = names
        .windows(2)
        .filter_map(|pair| pair.first_chunk::<2>())
        .find(|[a, b]| a == b)
    {
        let reason = format!(
            "open_clip cannot distinguish two shards named `{}`",
            escape(name)
        );
        return Err(WebdatasetProblem::SidecarSameName.because(reason));
    }
    let mut out = String::from("{");
    write_list(shards, &mut out, |shard, out| {
        out.push_str(&quoted(basename(shard.name)));
        // Writing to a String cannot fail.
        let _ = write!(out, ": {}", shard.samples.len());
    });
    out.push('}');
    Ok(out)
}
