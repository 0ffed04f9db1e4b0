//! The file names of parts.

use shardmill_core::Format;

use crate::form::{STREAMING_PREFIX, ShardForm, ShardFormat, ShardPattern};
use crate::part_names::{PART_DIGITS, is_digits, is_token, part_of};

/// The form of the shard names of a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameForm {
    /// The names of MDS: `shard.00003-00012.mds`.
    Mds,
    /// The names of a pattern: `shard-00003-000012.tar`.
    Tar(ShardPattern),
}

impl NameForm {
    /// Returns the format of the shards.
    #[must_use]
    pub const fn format(&self) -> ShardFormat {
        match self {
            Self::Mds => ShardFormat::Mds,
            Self::Tar(_) => ShardFormat::Webdataset,
        }
    }

    /// Returns the common prefix of all names.
    #[must_use]
    pub fn prefix(&self) -> &str {
        match self {
            Self::Mds => STREAMING_PREFIX,
            Self::Tar(pattern) => pattern.prefix(),
        }
    }

    /// Returns whether shards of this form have such names.
    pub(crate) fn fits(&self, form: &ShardForm) -> bool {
        match (self, form) {
            (Self::Mds, ShardForm::Streaming(config)) => config.format() == Format::Mds,
            (Self::Tar(pattern), ShardForm::Tar(form)) => form.pattern == *pattern,
            _ => false,
        }
    }

    /// Returns the form as text: the name of a format, or a pattern.
    pub(crate) fn to_json(&self) -> String {
        match self {
            Self::Mds => Format::Mds.to_string(),
            Self::Tar(pattern) => pattern.to_string(),
        }
    }

    /// Parses the text of [`to_json`](Self::to_json).
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text == Format::Mds.name() {
            return Some(Self::Mds);
        }
        text.parse().ok().map(Self::Tar)
    }
}

/// Returns whether a file name can be the name of a MosaicML Streaming shard.
///
/// Examples: `shard.00012.mds.zstd`, in a part `shard.00003-00012.mds.zstd`, and in a store
/// `shard.00003-JOB_ATTEMPT-00012.mds.zstd`.
#[must_use]
pub fn is_shard_name(name: &str) -> bool {
    let rest = name.strip_prefix(STREAMING_PREFIX);
    let Some((number, rest)) = rest.and_then(|rest| rest.split_once('.')) else {
        return false;
    };
    let is_number = |piece: &str| piece.len() >= PART_DIGITS && is_digits(piece);
    let pieces: Vec<&str> = number.split('-').collect();
    let is_shard = match pieces.as_slice() {
        [shard] => is_number(shard),
        [part, shard] => is_number(part) && is_number(shard),
        [part, attempt, shard] => is_number(part) && is_token(attempt) && is_number(shard),
        _ => false,
    };
    let format = rest.split('.').next().and_then(Format::from_name);
    is_shard && format.is_some()
}

/// Returns the token of the attempt in the name of a file in a store.
pub(crate) fn token_of<'a>(name: &'a str, prefix: &str) -> Option<&'a str> {
    part_of(name, prefix)?;
    let mut parts = name.strip_prefix(prefix)?.splitn(3, '-').skip(1);
    let token = parts.next()?;
    parts.next()?;
    Some(token)
}

/// Returns the token that identifies an attempt. Neither name contains an underscore.
pub(crate) fn token(job: &str, attempt: &str) -> String {
    format!("{job}_{attempt}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part_names::name_in;

    #[test]
    fn part_and_token_are_parsed_from_shard_names() {
        let name = name_in("shard.00012.mds.zstd", "shard.", 3, None);
        assert_eq!(name, "shard.00003-00012.mds.zstd");
        assert_eq!(
            (part_of(&name, "shard."), token_of(&name, "shard.")),
            (Some(3), None)
        );
        let name = name_in("shard-000012.tar.idx", "shard-", 123_456, Some("job7_0"));
        assert_eq!(name, "shard-123456-job7_0-000012.tar.idx");
        assert_eq!(part_of(&name, "shard-"), Some(123_456));
        assert_eq!(token_of(&name, "shard-"), Some("job7_0"));
        for name in [
            "shard.00012.mds",
            "index.json",
            "shard.3-00012.mds",
            "shard.-1.mds",
            "shard.0000x-1.mds",
        ] {
            assert_eq!(part_of(name, "shard."), None, "{name}");
        }
    }

    #[test]
    fn name_form_round_trips_through_json() {
        for form in [
            NameForm::Mds,
            NameForm::Tar(ShardPattern::default()),
            NameForm::Tar("a%%b-%d.tar".parse().unwrap()),
        ] {
            assert_eq!(NameForm::parse(&form.to_json()), Some(form));
        }
        assert_eq!(NameForm::parse("parquet"), None);
    }

    #[test]
    fn is_shard_name_recognizes_shard_files() {
        for name in [
            "shard.00000.mds",
            "shard.123456.mds.zstd",
            "shard.00001.json.meta.gz",
            "shard.00003-00012.mds",
            "shard.00003-job7_0a-00012.mds.zstd",
        ] {
            assert!(is_shard_name(name), "{name}");
        }
        for name in [
            "shard.0.mds",
            "shard.00000",
            "shard.00000.txt",
            "shard.0000a.mds",
            "shard.00003-.mds",
            "shard.00003-a b-00012.mds",
            "shard.00003-a-b-00012.mds",
            "data.mds",
        ] {
            assert!(!is_shard_name(name), "{name}");
        }
    }
}
