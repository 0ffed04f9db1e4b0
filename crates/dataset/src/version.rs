//! Versions of files, to detect changes.

use shardmill_storage::Stored;

/// Returns the version of a file: its modification time, or the tag that its store reports. Equal versions mean that
/// the file has not changed.
#[must_use]
pub fn version_of(file: &Stored) -> Vec<u8> {
    match (file.as_file(), file.tag()) {
        (Some(file), _) => {
            let modified = file.modified().duration_since(std::time::UNIX_EPOCH);
            let nanos = modified.map_or(0, |since| since.as_nanos());
            nanos.to_le_bytes().to_vec()
        }
        (None, tag) => tag.unwrap_or_default().as_bytes().to_vec(),
    }
}
