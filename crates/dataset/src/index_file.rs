//! Opens, checks and parses index files, and detects their format.

use std::io::{self, Read};
use std::path::Path;

use shardmill_core::{INDEX_NAME, Limits, escape};
use shardmill_mds::{Digest, HashAlgo, Hasher, Index, digest};
use shardmill_storage::{Dir, FileHandle, Folder, StorageError, Stored};

use crate::error::DatasetError;
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
    /// PERF: parsing from memory is faster, but the text of a large index takes more memory than the parsed index. A
    /// million shards take 530 MB as text, and 340 MB parsed.
    const IN_MEMORY: u64 = 64 << 20;

    read_index_within(file, expected, limits, IN_MEMORY)
}

/// Reads an index in a store or of up to `in_memory` bytes into memory, and a larger one as a stream.
fn read_index_within(
    file: &Stored,
    expected: Option<Digest>,
    limits: &Limits,
    in_memory: u64,
) -> Result<Index, DatasetError> {
    let path = || file.path().to_owned();
    DatasetError::check_limit(("index-bytes", limits.index_bytes), file.len(), path)?;
    let large = file.as_file().filter(|file| file.len() > in_memory);
    let (parsed, found) = if let Some(large) = large {
        let mut reader = Hashing {
            reader: large.reader(),
            hasher: expected.map(|expected| Hasher::new(expected.algo())),
        };
        let parsed = Index::read(&mut reader, limits);
        // The error of a wrong hash takes precedence, so the rest of the bytes must be hashed as well.
        if parsed.is_err() && expected.is_some() {
            io::copy(&mut reader, &mut io::sink()).map_err(|source| StorageError::Io {
                action: "read",
                path: path(),
                source,
            })?;
        }
        file.check_unchanged()?;
        (parsed, reader.hasher.map(Hasher::finish))
    } else {
        let bytes = file.read_all(limits.index_bytes)?;
        let found = expected.map(|expected| digest(expected.algo(), &bytes));
        (Index::parse(&bytes, limits), found)
    };
    if let (Some(expected), Some(found)) = (expected, found) {
        check_expected(file.path(), expected, found)?;
    }
    parsed.map_err(|source| DatasetError::index("cannot read the index", &path(), source))
}

/// A reader that hashes the bytes that it returns.
struct Hashing<R> {
    reader: R,
    hasher: Option<Hasher>,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        if let Some(hasher) = &mut self.hasher {
            hasher.update(buffer.get(..read).unwrap_or_default());
        }
        Ok(read)
    }
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
    fn streamed_index_and_errors_equal_whole_file_parsing() {
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
            let expected = [
                None,
                Some(digest(HashAlgo::Sha256, sound.as_bytes())),
                Some(digest(HashAlgo::Sha256, text.as_bytes())),
            ];
            for expected in expected {
                let read =
                    |in_memory| read_index_within(&file, expected, &Limits::default(), in_memory);
                let (whole, streamed) = (read(u64::MAX), read(0));
                let outcome = |result: &Result<Index, DatasetError>| match result {
                    Ok(index) => index.to_json(),
                    Err(error) => format!("{} {}", error.id(), error.chain()),
                };
                assert_eq!(outcome(&whole), outcome(&streamed), "{text:.40}");
                if expected == Some(digest(HashAlgo::Sha256, sound.as_bytes())) && text != sound {
                    assert_eq!(whole.unwrap_err().id(), "index-mismatch");
                }
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
