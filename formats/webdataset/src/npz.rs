//! Reads NumPy archives: ZIP files of NumPy files.

use std::io::Read as _;

use shardmill_core::{LimitExceeded, Limits};

use crate::error::{WebdatasetError, WebdatasetProblem};

/// Returns the arrays of an `npz` field by name. Each is the bytes of a NumPy file, which [`decode`](crate::decode())
/// reads as field `npy`.
///
/// # Errors
///
/// [`WebdatasetProblem::Array`] (`Corrupt`) for archives that are damaged, encrypted or split, or compressed with anything but
/// deflate; [`WebdatasetError::Limit`] (`Unsupported`) above the limits on a sample or on expansion.
pub fn read_npz(
    field: &str,
    bytes: &[u8],
    limits: &Limits,
) -> Result<Vec<(String, Vec<u8>)>, WebdatasetError> {
    let error = |reason: &str| {
        WebdatasetProblem::Array.of_field(field, format!("is a ZIP file that {reason}"))
    };
    let (mut directory, entries) = directory(bytes).map_err(error)?;
    let ratio = (bytes.len() as u64).saturating_mul(limits.expansion.ratio);
    let max = limits.sample_bytes.min(ratio);
    let (mut arrays, mut sum): (Vec<(String, Vec<u8>)>, u64) = (Vec::new(), 0);
    for _ in 0..entries {
        let (entry, rest) = Entry::parse(directory).map_err(error)?;
        directory = rest;
        sum = sum.saturating_add(entry.raw_bytes);
        if sum > max {
            return Err(WebdatasetError::Limit(LimitExceeded {
                name: "expansion-bytes",
                value: sum,
                limit: max,
            }));
        }
        let Some(name) = entry.name.strip_suffix(".npy") else {
            return Err(error("contains something that is not an array"));
        };
        if arrays.iter().any(|(known, _)| known == name) {
            return Err(error("contains two arrays with the same name"));
        }
        Limits::check("tar-fields", arrays.len() as u64 + 1, limits.tar.fields)?;
        let array = entry.content(bytes).map_err(error)?;
        arrays.push((name.to_owned(), array));
    }
    if !directory.is_empty() {
        return Err(error("lists more files than it counts"));
    }
    Ok(arrays)
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Returns a range of the archive, by an offset and length from the archive itself.
fn part(bytes: &[u8], at: u64, length: u64) -> Option<&[u8]> {
    let at = usize::try_from(at).ok()?;
    bytes.get(at..)?.get(..usize::try_from(length).ok()?)
}

/// Returns the central directory, and how many files it lists.
fn directory(bytes: &[u8]) -> Result<(&[u8], u16), &'static str> {
    const MISSING: &str = "has no directory at its end";
    // NumPy writes no comment, so the last record is exactly the last 22 bytes.
    let at = bytes.len().checked_sub(22).ok_or(MISSING)?;
    let end = bytes.get(at..).ok_or(MISSING)?;
    if !end.starts_with(b"PK\x05\x06") || short(end, 20) != Some(0) {
        return Err(MISSING);
    }
    let (here, all) = (short(end, 8), short(end, 10));
    let disks = (short(end, 4), short(end, 6));
    let count = all.filter(|all| Some(*all) == here && *all != u16::MAX);
    let (Some(count), (Some(0), Some(0))) = (count, disks) else {
        return Err("is split, or has more files than a plain one");
    };
    let size = u64::from(word(end, 12).ok_or(MISSING)?);
    let begin = u64::from(word(end, 16).ok_or(MISSING)?);
    if begin.saturating_add(size) != at as u64 {
        return Err("has a directory that does not end where the archive does");
    }
    Ok((part(bytes, begin, size).ok_or(MISSING)?, count))
}

/// One file of the archive.
struct Entry<'a> {
    name: &'a str,
    method: u16,
    crc: u32,
    zip_bytes: u64,
    raw_bytes: u64,
    begin: u64,
}

impl<'a> Entry<'a> {
    fn parse(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), &'static str> {
        const CUT: &str = "has a directory that breaks off";
        if !bytes.starts_with(b"PK\x01\x02") {
            return Err(CUT);
        }
        let length = |at| short(bytes, at).map(usize::from).ok_or(CUT);
        let (name, extra, comment) = (length(28)?, length(30)?, length(32)?);
        let number = |at| word(bytes, at).map(u64::from).ok_or(CUT);
        let name_bytes = bytes.get(46..).and_then(|rest| rest.get(..name));
        let entry = Self {
            name: std::str::from_utf8(name_bytes.ok_or(CUT)?)
                .map_err(|_| "has a name that is not UTF-8")?,
            method: short(bytes, 10).ok_or(CUT)?,
            crc: word(bytes, 16).ok_or(CUT)?,
            zip_bytes: number(20)?,
            raw_bytes: number(24)?,
            begin: number(42)?,
        };
        if short(bytes, 8).ok_or(CUT)? & 1 != 0 {
            return Err("is encrypted");
        }
        let rest = bytes.get(46 + name + extra + comment..).ok_or(CUT)?;
        Ok((entry, rest))
    }

    fn content(&self, archive: &[u8]) -> Result<Vec<u8>, &'static str> {
        const CUT: &str = "breaks off";
        let header = part(archive, self.begin, 30).ok_or(CUT)?;
        if !header.starts_with(b"PK\x03\x04") {
            return Err("has a directory that points elsewhere");
        }
        let name = short(header, 26).ok_or(CUT)?;
        let extra = short(header, 28).ok_or(CUT)?;
        let data = self.begin + 30 + u64::from(name) + u64::from(extra);
        let zip = part(archive, data, self.zip_bytes).ok_or(CUT)?;
        let mut out = Vec::new();
        match self.method {
            0 => out.extend_from_slice(zip),
            8 => {
                // Read one byte more than declared, to detect excess data.
                flate2::read::DeflateDecoder::new(zip)
                    .take(self.raw_bytes.saturating_add(1))
                    .read_to_end(&mut out)
                    .map_err(|_| "holds damaged bytes")?;
            }
            _ => return Err("is compressed in a way that NumPy does not write"),
        }
        let mut crc = flate2::Crc::new();
        crc.update(&out);
        if out.len() as u64 != self.raw_bytes || crc.sum() != self.crc {
            return Err("has a length or checksum that differs from its header");
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shardmill_core::Diagnostic;

    use super::*;

    /// Builds a ZIP file of uncompressed files.
    fn zip(files: &[(&str, &[u8])]) -> Vec<u8> {
        let (mut out, mut directory) = (Vec::new(), Vec::new());
        for (name, data) in files {
            let mut crc = flate2::Crc::new();
            crc.update(data);
            let size = u32::try_from(data.len()).unwrap().to_le_bytes();
            let name_bytes = u16::try_from(name.len()).unwrap().to_le_bytes();
            let begin = u32::try_from(out.len()).unwrap().to_le_bytes();
            let common = [
                &[20, 0, 0, 0, 0, 0, 0, 0, 0, 0][..],
                &crc.sum().to_le_bytes(),
                &size,
                &size,
                &name_bytes,
                &[0, 0],
            ]
            .concat();
            out.extend([b"PK\x03\x04", &common[..], name.as_bytes(), data].concat());
            let zeros = [0; 10];
            directory.extend(
                [
                    b"PK\x01\x02\x14\x00",
                    &common[..],
                    &zeros,
                    &begin,
                    name.as_bytes(),
                ]
                .concat(),
            );
        }
        let count = u16::try_from(files.len()).unwrap().to_le_bytes();
        let begin = u32::try_from(out.len()).unwrap().to_le_bytes();
        let size = u32::try_from(directory.len()).unwrap().to_le_bytes();
        out.extend(directory);
        out.extend(
            [
                b"PK\x05\x06\0\0\0\0",
                &count[..],
                &count,
                &size,
                &begin,
                &[0, 0],
            ]
            .concat(),
        );
        out
    }

    #[test]
    fn npz_arrays_are_read_by_name() {
        let limits = Limits::default();
        let archive = zip(&[("a.npy", b"first"), ("b.c.npy", b"")]);
        let arrays = read_npz("npz", &archive, &limits).unwrap();
        let expected = [
            ("a".to_owned(), b"first".to_vec()),
            ("b.c".to_owned(), Vec::new()),
        ];
        assert_eq!(arrays, expected);
        assert_eq!(read_npz("npz", &zip(&[]), &limits), Ok(Vec::new()));
    }

    #[test]
    fn damaged_npz_archives_are_rejected() {
        let limits = Limits::default();
        let id = |bytes: &[u8]| read_npz("npz", bytes, &limits).unwrap_err().id();
        assert_eq!(id(&zip(&[("a.txt", b"x")])), "field-array");
        assert_eq!(id(&zip(&[("a.npy", b"x"), ("a.npy", b"x")])), "field-array");
        let good = zip(&[("a.npy", b"first")]);
        for cut in 0..good.len() {
            assert_eq!(id(&good[..cut]), "field-array", "{cut}");
        }
        let mut small = Limits::default();
        small.sample_bytes = 4;
        assert_eq!(
            read_npz("npz", &good, &small).unwrap_err().id(),
            "limit-expansion"
        );
        // The content, its checksum and its length have to match.
        for at in [35, 36, 39] {
            let mut changed = good.clone();
            changed[at] ^= 1;
            assert_eq!(id(&changed), "field-array", "{at}");
        }
    }

    proptest! {
        #[test]
        fn modified_npz_archives_give_arrays_or_an_error(
            changes in proptest::collection::vec((0..500_usize, any::<u8>()), 0..4),
        ) {
            let mut archive = zip(&[("a.npy", b"first"), ("b.npy", &[7; 100])]);
            for (at, to) in changes {
                let at = at % archive.len();
                archive[at] = to;
            }
            if let Ok(arrays) = read_npz("npz", &archive, &Limits::default()) {
                prop_assert!(arrays.len() <= 2);
            }
        }
    }
}
