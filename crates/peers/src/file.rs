//! The names of files between nodes.

use std::fmt;

/// A file of a set that is the same on all nodes. It is displayed as the path of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerFile {
    /// A hash that identifies the set and the names of the file's parts.
    pub set: [u8; 32],
    /// The number of the file in the set.
    pub number: u64,
    /// The number of the part of the file.
    pub part: u8,
}

impl PeerFile {
    /// Parses the path of a request.
    #[must_use]
    pub fn parse(path: &str) -> Option<Self> {
        let mut words = path.strip_prefix("/files/")?.split('/');
        let hex = words
            .next()
            .filter(|hex| hex.len() == 64 && hex.is_ascii())?;
        let mut set = [0; 32];
        for (at, byte) in set.iter_mut().enumerate() {
            *byte = u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok()?;
        }
        let file = Self {
            set,
            number: words.next()?.parse().ok()?,
            part: words.next()?.parse().ok()?,
        };
        words.next().is_none().then_some(file)
    }
}

impl fmt::Display for PeerFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("/files/")?;
        for byte in self.set {
            write!(f, "{byte:02x}")?;
        }
        write!(f, "/{}/{}", self.number, self.part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_file_paths_round_trip() {
        let file = PeerFile {
            set: std::array::from_fn(|at| u8::try_from(at * 7).unwrap()),
            number: 12,
            part: 1,
        };
        let path = file.to_string();
        assert_eq!(PeerFile::parse(&path), Some(file));
        for other in [
            format!("{path}/0"),
            path.replace("/files", ""),
            path.replace("00", "0"),
            path.replace("00", "zz"),
            path.replace("/12/", "/-1/"),
            "/files/../../etc/passwd".to_owned(),
        ] {
            assert_eq!(PeerFile::parse(&other), None, "{other}");
        }
    }
}
