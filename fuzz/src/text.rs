//! Targets for text: names, patterns, URLs, states and notes.

use shardmill_dataset::{Pending, TarPattern};
use shardmill_mds::check_json;
use shardmill_reader::RunState;
use shardmill_storage::Location;
use shardmill_webdataset::{MAX_NAMES, expand_braces};
use shardmill_writer::ShardPattern;
use shardmill_writer::parts::Manifest;

use crate::limits::limits;

/// Checks JSON in a value.
pub(crate) fn json(bytes: &[u8]) {
    let _ = check_json(bytes, &limits());
}

/// Expands braces. The number of names is bounded.
pub(crate) fn braces(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(names) = expand_braces(text)
    {
        assert!(names.len() as u64 <= MAX_NAMES);
    }
}

/// Parses the pattern of tar files of a stream.
pub(crate) fn tar_pattern(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = TarPattern::parse(text);
    }
}

/// Parses a location: a path or a URL.
pub(crate) fn location(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = Location::parse(text);
    }
}

/// Parses the state of a run. What is accepted is written and parsed again.
pub(crate) fn order_state(bytes: &[u8]) {
    if let Ok(state) = RunState::parse(bytes) {
        let text = state.render();
        let again = RunState::parse(text.as_bytes());
        assert_eq!(again.as_ref().ok(), Some(&state), "{text}");
    }
}

/// Parses the pattern of shard names.
pub(crate) fn shard_pattern(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = text.parse::<ShardPattern>();
    }
}

/// Parses the manifest of a part. What is accepted is written and parsed again.
pub(crate) fn part_manifest(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(manifest) = Manifest::parse(text, &limits())
    {
        let json = manifest.to_json();
        assert!(Manifest::parse(&json, &limits()).is_ok(), "{json}");
    }
}

/// Parses the note about an unfinished change of a dataset.
pub(crate) fn pending_note(bytes: &[u8]) {
    let _ = Pending::parse(bytes);
}
