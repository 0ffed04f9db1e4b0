//! Opens, checks and parses index files, and detects their format.

use std::path::Path;

use shardmill_core::{INDEX_NAME, Limits, escape};
use shardmill_mds::{Digest, HashAlgo, Index, digest};
use shardmill_storage::{Dir, FileHandle, Folder, StorageError, Stored};

use crate::error::DatasetError;
use crate::mapped::{ShardBytes, map};
use crate::problem::DatasetProblem;
use crate::side_files::unfinished_in;

/// Opens the directory and the index that a path of the user refers to.
pub(crate) fn open_index(path: &Path) -> Result<(Dir, Stored), DatasetError> {
    match Dir::open(path) {
        Ok(dir) => match dir.open_file(INDEX_NAME) {
            Ok(file) => Ok((dir, Stored::File(file))),
            Err(error) if error.is_not_found() => Err(index_missing(&Folder::Local(dir))),
            Err(error) => Err(error.into()),
        },
        Err(StorageError::NotDirectory { .. }) => {
            let file = FileHandle::open(path)?;
            let dir = Dir::open(path.parent().unwrap_or_else(|| Path::new("")))?;
            Ok((dir, Stored::File(file)))
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the error for a folder without an index.
pub(crate) fn index_missing(folder: &Folder) -> DatasetError {
    DatasetError::IndexMissing {
        path: folder.path().to_owned(),
        unfinished: unfinished_in(folder).unwrap_or_default(),
    }
}

/// Checks that an index has the expected hash. Error messages name `path`.
pub(crate) fn check_expected_index(
    bytes: &[u8],
    path: &Path,
    expect: Option<&str>,
) -> Result<(), DatasetError> {
    match expected_digest(expect)? {
        Some(expected) => check_expected(path, expected, digest(expected.algo(), bytes)),
        None => Ok(()),
    }
}

fn check_expected(path: &Path, expected: Digest, found: Digest) -> Result<(), DatasetError> {
    if expected == found {
        return Ok(());
    }
    let algo = expected.algo();
    let reason = format!("{algo} of the index is {found}, not {expected} as requested");
    Err(DatasetProblem::IndexMismatch.at(path, reason))
}

/// Parses the expected hash of an index.
pub(crate) fn expected_digest(expect: Option<&str>) -> Result<Option<Digest>, DatasetError> {
    expect.map(parse_expected).transpose()
}

/// Reads an index and checks that it has the hash `expected`.
pub(crate) fn read_index(
    file: &Stored,
    expected: Option<Digest>,
    limits: &Limits,
) -> Result<Index, DatasetError> {
    /// PERF: a larger local file is mapped: the text of a million shards takes 530 MB.
    const IN_MEMORY: u64 = 64 << 20;

    let path = || file.path().to_owned();
    DatasetError::check_limit(("index-bytes", limits.index_bytes), file.len(), path)?;
    let large = file.as_file().filter(|file| file.len() > IN_MEMORY);
    let text = match large {
        Some(large) => ShardBytes::Mapped(map(large)?),
        None => ShardBytes::Memory(file.read_all(limits.index_bytes)?),
    };
    let found = expected.map(|expected| digest(expected.algo(), text.as_ref()));
    let parsed = Index::parse(text.as_ref(), limits);
    if large.is_some() {
        file.check_unchanged()?;
    }
    if let (Some(expected), Some(found)) = (expected, found) {
        check_expected(file.path(), expected, found)?;
    }
    parsed.map_err(|source| DatasetError::index("cannot read the index", &path(), source))
}

/// Parses `sha256:…`. Hash algorithms that can be forged are errors: they are no root of trust.
fn parse_expected(text: &str) -> Result<Digest, DatasetError> {
    let error = || {
        let text = escape(text);
        let reason =
            format!("`{text}` is not the name of a cryptographic hash, a colon and its digits");
        DatasetProblem::ExpectIndex.at("--expect-index", reason)
    };
    let (algo, hex) = text.split_once(':').ok_or_else(error)?;
    let algo: HashAlgo = algo.parse().map_err(|_| error())?;
    let weak = matches!(
        algo,
        HashAlgo::Md5
            | HashAlgo::Sha1
            | HashAlgo::Xxh32
            | HashAlgo::Xxh64
            | HashAlgo::Xxh128
            | HashAlgo::Xxh3_64
            | HashAlgo::Xxh3_128
    );
    if weak {
        return Err(error());
    }
    Digest::parse(algo, &hex.to_ascii_lowercase()).map_err(|_| error())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use shardmill_core::Diagnostic;

    use super::*;

    #[test]
    fn wrong_hash_of_an_index_is_reported_before_its_text() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("index.json");
        let sound = r#"{"shards": [{"column_encodings": ["int"], "column_names": ["a"], "column_sizes": [8], "compression": null, "format": "mds", "hashes": [], "raw_data": {"basename": "shard.00000.mds", "bytes": 292, "hashes": {}}, "samples": 10, "size_limit": null, "version": 2, "zip_data": null}], "version": 2}"#;
        let cut = &sound[..sound.len() - 20];
        let other = sound.replace("292", "293");
        let large = format!("{sound}{}", " ".repeat(1 << 20));
        for text in [
            sound,
            cut,
            other.as_str(),
            large.as_str(),
            "",
            "{}",
            "<html>",
        ] {
            fs::write(&path, text).unwrap();
            let file = Stored::File(FileHandle::open(&path).unwrap());
            let expected = Some(digest(HashAlgo::Sha256, sound.as_bytes()));
            let read = |expected| read_index(&file, expected, &Limits::default());
            let outcome = |result: Result<Index, DatasetError>| match result {
                Ok(index) => index.to_json(),
                Err(error) => format!("{} {}", error.id(), error.chain()),
            };
            let own = Some(digest(HashAlgo::Sha256, text.as_bytes()));
            assert_eq!(outcome(read(own)), outcome(read(None)), "{text:.40}");
            if text != sound {
                assert_eq!(read(expected).unwrap_err().id(), "index-mismatch");
            }
        }
        assert_eq!(
            read_index(
                &Stored::File(FileHandle::open(&path).unwrap()),
                None,
                &Limits::default()
            )
            .unwrap_err()
            .id(),
            "index-not-json"
        );
    }
}
