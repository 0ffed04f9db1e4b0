//! Records in a blob's marker that its files were verified, so that later processes need not hash them again.
//!
//! Loader processes live for one epoch, and each would hash all blobs again. The stamp is a digest of the files'
//! identities, their modification times, and the digests that they matched. A process that requires more hashes, or
//! doubts the files, verifies them itself.
//!
//! A stamp is valid until the machine restarts. The cache does not sync what it writes, so after a power failure a
//! file may have the right length and the wrong content.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::OnceLock;

use shardmill_codec::Digest;
use shardmill_storage::FileIdentity;

/// Hexadecimal digits of a stamp.
const DIGITS: usize = 12;

/// The word before the digits, and a line of equal length without a stamp.
const WORD: &str = "ok ";
const NONE: &str = "ok ------------\n";

/// The stamp in a marker. Its line has a fixed length, so that it can be overwritten in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VerifiedStamp(u64);

impl VerifiedStamp {
    /// The length of the line in a marker.
    pub(crate) const BYTES: usize = NONE.len();

    /// The line of a marker whose files were not verified.
    pub(crate) const NONE: &'static str = NONE;

    /// Computes the stamp of these files as they are now, which matched these digests. `None` if the system has no
    /// boot ID.
    pub(crate) fn of(files: &[FileIdentity], digests: &[Digest]) -> Option<Self> {
        Some(Self::since(boot()?, files, digests))
    }

    fn since(boot: &str, files: &[FileIdentity], digests: &[Digest]) -> Self {
        // Other versions of the program may hash differently; they then verify the files themselves.
        let mut hasher = DefaultHasher::new();
        boot.hash(&mut hasher);
        files.hash(&mut hasher);
        digests.hash(&mut hasher);
        Self(hasher.finish() >> (64 - 4 * DIGITS))
    }

    pub(crate) fn line(self) -> String {
        format!("{WORD}{:0width$x}\n", self.0, width = DIGITS)
    }

    /// Parses the stamp at the start of a line.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let digits = line.strip_prefix(WORD)?.get(..DIGITS)?;
        u64::from_str_radix(digits, 16).ok().map(Self)
    }
}

/// Returns the ID of the current boot.
fn boot() -> Option<&'static str> {
    static BOOT: OnceLock<Option<String>> = OnceLock::new();

    let id = BOOT.get_or_init(|| {
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        Some(id.trim().to_owned()).filter(|id| !id.is_empty())
    });
    id.as_deref()
}

#[cfg(test)]
mod tests {
    use shardmill_codec::{HashAlgo, digest};
    use shardmill_storage::Dir;

    use super::*;

    #[test]
    fn verified_stamp_matches_only_its_files_and_boot() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "one").unwrap();
        std::fs::write(folder.path().join("b"), "two").unwrap();
        let dir = Dir::open(folder.path()).unwrap();
        let identity = |name: &str| dir.open_file(name).unwrap().identity().unwrap();
        let (a, b) = (identity("a"), identity("b"));
        let one = digest(HashAlgo::Xxh3_64, b"one");
        let two = digest(HashAlgo::Sha256, b"one");
        let verified_stamp = VerifiedStamp::since("x", &[a, b], &[one]);
        assert_eq!(VerifiedStamp::since("x", &[a, b], &[one]), verified_stamp);
        assert_ne!(VerifiedStamp::since("y", &[a, b], &[one]), verified_stamp);
        assert_ne!(VerifiedStamp::since("x", &[a], &[one]), verified_stamp);
        assert_ne!(VerifiedStamp::since("x", &[b, a], &[one]), verified_stamp);
        assert_ne!(VerifiedStamp::since("x", &[a, b], &[two]), verified_stamp);
        assert_ne!(
            VerifiedStamp::since("x", &[a, b], &[one, two]),
            verified_stamp
        );
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
        let file = std::fs::File::options()
            .write(true)
            .open(folder.path().join("b"))
            .unwrap();
        file.set_modified(later).unwrap();
        assert_ne!(
            VerifiedStamp::since("x", &[a, identity("b")], &[one]),
            verified_stamp
        );

        let line = verified_stamp.line();
        assert_eq!(
            (line.len(), line.ends_with('\n')),
            (VerifiedStamp::BYTES, true)
        );
        assert_eq!(VerifiedStamp::parse(&line), Some(verified_stamp));
        assert_eq!(VerifiedStamp::parse(VerifiedStamp::NONE), None);
        assert_eq!(VerifiedStamp::parse("until 5"), None);
        assert_eq!(VerifiedStamp::parse(""), None);
    }
}
