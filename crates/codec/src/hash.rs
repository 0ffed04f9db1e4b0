//! Hashes bytes, and describes files with their hashes.

use std::fmt;

use sha2::digest::DynDigest;
use shardmill_core::escape;
use xxhash_rust::xxh3::Xxh3;
use xxhash_rust::xxh32::Xxh32;
use xxhash_rust::xxh64::Xxh64;

use crate::algorithm::HashAlgo;
use crate::error::{CodecError, CodecProblem};

/// The hash of some bytes. Its [`Display`](fmt::Display) is the lower-case hexadecimal text that an index stores.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest {
    algo: HashAlgo,
    // INVARIANT: zero from `algo.digest_bytes()` on.
    bytes: [u8; 64],
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl Digest {
    fn new(algo: HashAlgo, digest: &[u8]) -> Self {
        let mut bytes = [0; 64];
        let digest = digest.get(..64).unwrap_or(digest);
        bytes[..digest.len()].copy_from_slice(digest);
        Self { algo, bytes }
    }

    /// Parses a digest from hexadecimal text.
    ///
    /// # Errors
    ///
    /// [`CodecProblem::HashSyntax`] for another length, upper case, or anything that is not hexadecimal.
    pub fn parse(algo: HashAlgo, hex: &str) -> Result<Self, CodecError> {
        let digits = 2 * algo.digest_bytes();
        let error = || {
            let text: String = hex.chars().take(140).collect();
            CodecProblem::HashSyntax.because(format!(
                "`{}` is not a {algo} digest of {digits} lower-case hexadecimal digits",
                escape(&text)
            ))
        };
        if hex.len() != digits {
            return Err(error());
        }
        let mut bytes = [0; 64];
        for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
            let &[high, low] = pair else {
                return Err(error());
            };
            *byte = nibble(high).ok_or_else(error)? << 4 | nibble(low).ok_or_else(error)?;
        }
        Ok(Self { algo, bytes })
    }

    /// Returns the algorithm.
    #[must_use]
    pub const fn algo(&self) -> HashAlgo {
        self.algo
    }

    /// Returns the bytes of the digest, [`HashAlgo::digest_bytes`] of them.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes
            .get(..self.algo.digest_bytes())
            .unwrap_or(&self.bytes)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // PERF: an index of a million shards contains millions of digests, and formatting each byte separately takes
        // several times as long.
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = String::with_capacity(2 * self.as_bytes().len());
        for byte in self.as_bytes() {
            for digit in [byte >> 4, byte & 0xf] {
                text.push(char::from(DIGITS[usize::from(digit)]));
            }
        }
        f.write_str(&text)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{self}", self.algo)
    }
}

/// An incremental hash of bytes.
pub struct Hasher {
    algo: HashAlgo,
    state: State,
}

enum State {
    Digest(Box<dyn DynDigest + Send + Sync>),
    Xxh32(Xxh32),
    Xxh64(Xxh64),
    Xxh3(Box<Xxh3>),
}

impl State {
    fn digest<T: DynDigest + Default + Send + Sync + 'static>() -> Self {
        Self::Digest(Box::<T>::default())
    }
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hasher")
            .field("algo", &self.algo)
            .finish_non_exhaustive()
    }
}

impl Hasher {
    /// Creates a hasher that has no input yet.
    #[must_use]
    pub fn new(algo: HashAlgo) -> Self {
        let state = match algo {
            HashAlgo::Blake2b => State::digest::<blake2::Blake2b512>(),
            HashAlgo::Blake2s => State::digest::<blake2::Blake2s256>(),
            HashAlgo::Md5 => State::digest::<md5::Md5>(),
            HashAlgo::Sha1 => State::digest::<sha1::Sha1>(),
            HashAlgo::Sha224 => State::digest::<sha2::Sha224>(),
            HashAlgo::Sha256 => State::digest::<sha2::Sha256>(),
            HashAlgo::Sha384 => State::digest::<sha2::Sha384>(),
            HashAlgo::Sha512 => State::digest::<sha2::Sha512>(),
            HashAlgo::Sha3_224 => State::digest::<sha3::Sha3_224>(),
            HashAlgo::Sha3_256 => State::digest::<sha3::Sha3_256>(),
            HashAlgo::Sha3_384 => State::digest::<sha3::Sha3_384>(),
            HashAlgo::Sha3_512 => State::digest::<sha3::Sha3_512>(),
            HashAlgo::Xxh32 => State::Xxh32(Xxh32::new(0)),
            HashAlgo::Xxh64 => State::Xxh64(Xxh64::new(0)),
            HashAlgo::Xxh128 | HashAlgo::Xxh3_128 | HashAlgo::Xxh3_64 => {
                State::Xxh3(Box::new(Xxh3::new()))
            }
        };
        Self { algo, state }
    }

    /// Returns the algorithm.
    #[must_use]
    pub const fn algo(&self) -> HashAlgo {
        self.algo
    }

    /// Adds `bytes` to the input.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.state {
            State::Digest(state) => state.update(bytes),
            State::Xxh32(state) => state.update(bytes),
            State::Xxh64(state) => state.update(bytes),
            State::Xxh3(state) => state.update(bytes),
        }
    }

    /// Returns the digest of all input.
    #[must_use]
    pub fn finish(self) -> Digest {
        let algo = self.algo;
        match self.state {
            State::Digest(state) => Digest::new(algo, &state.finalize()),
            // The canonical form of xxHash is big-endian.
            State::Xxh32(state) => Digest::new(algo, &state.digest().to_be_bytes()),
            State::Xxh64(state) => Digest::new(algo, &state.digest().to_be_bytes()),
            State::Xxh3(state) if algo == HashAlgo::Xxh3_64 => {
                Digest::new(algo, &state.digest().to_be_bytes())
            }
            State::Xxh3(state) => Digest::new(algo, &state.digest128().to_be_bytes()),
        }
    }

    /// Returns the digest of all input, as the text that an index stores.
    #[must_use]
    pub fn finish_hex(self) -> String {
        self.finish().to_string()
    }
}

/// Returns the digest of `bytes`.
#[must_use]
pub fn digest(algo: HashAlgo, bytes: &[u8]) -> Digest {
    let mut hasher = Hasher::new(algo);
    hasher.update(bytes);
    hasher.finish()
}

/// Returns the digest of `bytes`, as the text that an index stores.
#[must_use]
pub fn hash_hex(algo: HashAlgo, bytes: &[u8]) -> String {
    digest(algo, bytes).to_string()
}

/// A file as an index describes it.
///
/// PERF: three words and two small allocations, because an index may list a million shards of two files each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// The name, relative to the folder of the index; it may be a path with folders.
    pub basename: Box<str>,
    /// The length of the file.
    pub bytes: u64,
    /// Its hashes.
    pub hashes: FileHashes,
}

/// The hashes of one file, at most one of each algorithm.
///
/// PERF: one allocation per file, because an index may list a million files.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct FileHashes {
    // INVARIANT: a run of `algorithm code, digest`, by ascending code.
    packed: Box<[u8]>,
}

impl FileHashes {
    /// Returns the digest of an algorithm, if there is one.
    #[must_use]
    pub fn get(&self, algo: HashAlgo) -> Option<Digest> {
        self.iter().find(|digest| digest.algo == algo)
    }

    /// Returns the digests, in the order of the names of their algorithms.
    pub fn iter(&self) -> impl Iterator<Item = Digest> + '_ {
        let mut rest: &[u8] = &self.packed;
        std::iter::from_fn(move || {
            let (code, after) = rest.split_first()?;
            let algo = HashAlgo::from_code(*code)?;
            let (digest, after) = after.split_at_checked(algo.digest_bytes())?;
            rest = after;
            Some(Digest::new(algo, digest))
        })
    }

    /// Returns whether there are no hashes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packed.is_empty()
    }

    /// Compares the hash of `bytes` with the stored one.
    ///
    /// # Errors
    ///
    /// [`CodecProblem::HashAbsent`] if no hash of the algorithm is stored, [`CodecProblem::HashMismatch`] if it differs.
    pub fn check(&self, algo: HashAlgo, bytes: &[u8]) -> Result<(), CodecError> {
        self.check_digest(digest(algo, bytes))
    }

    /// Returns the stored algorithm that is the fastest to compute; `None` if there are no hashes.
    #[must_use]
    pub fn quickest(&self) -> Option<HashAlgo> {
        let algos = self.iter().map(|digest| digest.algo);
        algos.min_by_key(|algo| algo.cost())
    }

    /// Compares a digest with the stored one of its algorithm.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub fn check_digest(&self, found: Digest) -> Result<(), CodecError> {
        let algo = found.algo;
        match self.get(algo) {
            None => Err(CodecError::hash_absent(algo)),
            Some(expected) if found == expected => Ok(()),
            Some(expected) => Err(CodecProblem::HashMismatch.because(format!(
                "{algo} is {found}, not {expected} as the index says"
            ))),
        }
    }

    /// Adds a digest, unless one of its algorithm is stored already.
    pub fn insert(&mut self, digest: Digest) {
        *self = self.iter().chain(std::iter::once(digest)).collect();
    }

    /// Returns the hashes of `bytes` by each of `algos`, which may repeat.
    #[must_use]
    pub fn of(algos: &[HashAlgo], bytes: &[u8]) -> Self {
        algos.iter().map(|algo| digest(*algo, bytes)).collect()
    }
}

impl FromIterator<Digest> for FileHashes {
    /// Collects digests in any order. If an algorithm occurs twice, the first digest is kept.
    fn from_iter<I: IntoIterator<Item = Digest>>(digests: I) -> Self {
        let mut digests: Vec<Digest> = digests.into_iter().collect();
        digests.sort_by_key(|digest| digest.algo);
        digests.dedup_by_key(|digest| digest.algo);
        let mut packed = Vec::with_capacity(
            digests
                .iter()
                .map(|digest| 1 + digest.as_bytes().len())
                .sum(),
        );
        for digest in &digests {
            packed.push(digest.algo.code());
            packed.extend_from_slice(digest.as_bytes());
        }
        Self {
            packed: packed.into(),
        }
    }
}

impl fmt::Debug for FileHashes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shardmill_core::{Diagnostic as _, ErrorKind};

    use super::*;

    #[test]
    fn hash_algorithms_are_sorted_by_name() {
        let mut names = HashAlgo::ALL.map(HashAlgo::name);
        for (index, algo) in HashAlgo::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(algo.code()), index);
            assert_eq!(algo.name().parse(), Ok(algo));
        }
        assert!(HashAlgo::ALL.is_sorted());
        names.sort_unstable();
        assert_eq!(names, HashAlgo::ALL.map(HashAlgo::name));
    }

    #[test]
    fn unknown_hash_names_and_invalid_digests_are_errors() {
        for name in ["", "SHA1", "sha-1", "shake_128", "xxh3", "crc32", "sha1 "] {
            assert_eq!(
                name.parse::<HashAlgo>().unwrap_err().id(),
                "hash-unknown",
                "{name}"
            );
        }
        for hex in [
            "",
            "02cc5d0",
            "02cc5d055",
            "02CC5D05",
            "02cc5d0g",
            "02cc5d0é",
        ] {
            let error = Digest::parse(HashAlgo::Xxh32, hex).unwrap_err();
            assert_eq!(
                (error.id(), error.kind()),
                ("hash-syntax", ErrorKind::Corrupt),
                "{hex}"
            );
        }
        let error = Digest::parse(HashAlgo::Xxh32, "02CC5D05").unwrap_err();
        assert_eq!(
            error.to_string(),
            "`02CC5D05` is not a xxh32 digest of 8 lower-case hexadecimal digits"
        );
    }

    #[test]
    fn changed_file_is_a_mismatch_with_both_digests() {
        let hashes = FileHashes::of(&[HashAlgo::Xxh64, HashAlgo::Xxh32, HashAlgo::Xxh64], b"abc");
        assert_eq!(hashes.check(HashAlgo::Xxh32, b"abc"), Ok(()));
        let error = hashes.check(HashAlgo::Xxh32, b"abd").unwrap_err();
        assert_eq!(error.id(), "hash-mismatch");
        assert!(
            error
                .to_string()
                .ends_with("not 32d153ff as the index says"),
            "{error}"
        );
        assert_eq!(
            hashes.check(HashAlgo::Sha1, b"abc").unwrap_err().id(),
            "hash-absent"
        );
    }

    #[test]
    fn file_hashes_keep_one_digest_per_algorithm() {
        let mut hashes = FileHashes::default();
        assert!(hashes.is_empty());
        for algo in HashAlgo::ALL.into_iter().rev() {
            hashes.insert(digest(algo, b"x"));
            hashes.insert(digest(algo, b"y"));
        }
        let algos: Vec<_> = hashes.iter().map(|digest| digest.algo()).collect();
        assert_eq!(algos, HashAlgo::ALL);
        for algo in HashAlgo::ALL {
            assert_eq!(hashes.get(algo), Some(digest(algo, b"x")));
        }
    }

    proptest! {
        #[test]
        fn incremental_hash_equals_one_shot_hash(data: Vec<u8>, cuts: Vec<usize>) {
            for algo in HashAlgo::ALL {
                let mut hasher = Hasher::new(algo);
                let mut rest = &data[..];
                for cut in &cuts {
                    let (piece, after) = rest.split_at(cut % (rest.len() + 1));
                    hasher.update(piece);
                    rest = after;
                }
                hasher.update(rest);
                prop_assert_eq!(hasher.finish_hex(), hash_hex(algo, &data));
            }
        }
    }
}
