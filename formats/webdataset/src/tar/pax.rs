//! Reads and writes PAX records: `LENGTH KEY=VALUE\n`. The length includes its own digits.

/// The relevant records before a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Records {
    /// The name.
    pub(super) path: Option<Vec<u8>>,
    /// The bytes of its content.
    pub(super) size: Option<u64>,
    /// Whether it is a sparse file.
    pub(super) sparse: bool,
}

/// Parses records that fill `bytes`, or returns what is wrong with them.
pub(super) fn parse(bytes: &[u8]) -> Result<Records, &'static str> {
    let mut records = Records::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (record, after) = split(rest)?;
        rest = after;
        let Some(at) = record.iter().position(|byte| *byte == b'=') else {
            return Err("has a record without `=`");
        };
        let (key, value) = record.split_at_checked(at).unwrap_or_default();
        let value = value.get(1..).unwrap_or_default();
        match key {
            b"" => return Err("has a record without a key"),
            b"path" => {
                if records.path.is_some() {
                    return Err("has two paths");
                }
                if value.is_empty() || value.contains(&0) {
                    return Err("has a path that is empty or has a zero byte");
                }
                records.path = Some(value.to_vec());
            }
            b"size" => {
                if records.size.is_some() {
                    return Err("has two sizes");
                }
                records.size = Some(decimal(value).ok_or("has a size that is not a number")?);
            }
            b"SCHILY.realsize" => records.sparse = true,
            key if key.starts_with(b"GNU.sparse.") => records.sparse = true,
            _ => {}
        }
    }
    Ok(records)
}

/// Splits off the first record, without its length and newline, and returns it with the bytes after it.
fn split(bytes: &[u8]) -> Result<(&[u8], &[u8]), &'static str> {
    const WRONG: &str = "has a record with a wrong length";
    // A length of 20 digits would exceed 2⁶⁴.
    let blank = bytes
        .iter()
        .take(20)
        .position(|byte| *byte == b' ')
        .ok_or(WRONG)?;
    let (digits, _) = bytes.split_at_checked(blank).ok_or(WRONG)?;
    let length = decimal(digits).ok_or(WRONG)?;
    let length = usize::try_from(length).map_err(|_| WRONG)?;
    let (record, after) = bytes.split_at_checked(length).ok_or(WRONG)?;
    let record = record
        .get(blank + 1..)
        .and_then(|record| record.strip_suffix(b"\n"))
        .ok_or(WRONG)?;
    Ok((record, after))
}

/// Replaces the first `digits` bytes of the path, if there is one, by a key of the same length. Returns whether that
/// was possible.
pub(super) fn replace_key(records: &mut [u8], digits: usize, key: &str) -> bool {
    const PATH: &[u8] = b" path=";

    let mut at = 0;
    while let Some(rest) = records.get(at..).filter(|rest| !rest.is_empty()) {
        let Ok((record, after)) = split(rest) else {
            return false;
        };
        let (length, record) = (rest.len() - after.len(), record.len());
        // The length of a record ends with the record and its newline.
        let path = rest
            .get((length - record).saturating_sub(2)..length)
            .and_then(|text| text.strip_prefix(PATH));
        if let Some(path) = path {
            let begin = at + length - path.len();
            let fits = path.len() > digits && key.len() == digits;
            let slot = records.get_mut(begin..begin + digits);
            match slot.filter(|_| fits) {
                Some(slot) => slot.copy_from_slice(key.as_bytes()),
                None => return false,
            }
        }
        at += length;
    }
    true
}

/// Parses a decimal number without a leading zero.
fn decimal(digits: &[u8]) -> Option<u64> {
    let plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    if !plain || (digits.len() > 1 && digits.starts_with(b"0")) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Appends a record.
pub(super) fn write(key: &str, value: &[u8], out: &mut Vec<u8>) {
    let body = key.len() + value.len() + 3;
    let mut length = body + 1;
    // The length includes its own digits, and one more digit can make it grow again.
    while body + length.to_string().len() != length {
        length = body + length.to_string().len();
    }
    out.extend_from_slice(length.to_string().as_bytes());
    out.push(b' ');
    out.extend_from_slice(key.as_bytes());
    out.push(b'=');
    out.extend_from_slice(value);
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pax_record_length_includes_itself() {
        // 9 to 10, 99 to 100 and 999 to 1000 bytes, where the length needs one more digit.
        for bytes in (0..30).chain(80..110).chain(980..1010) {
            let value = vec![b'x'; bytes];
            let mut out = Vec::new();
            write("path", &value, &mut out);
            let blank = out.iter().position(|byte| *byte == b' ').unwrap();
            let length: usize = std::str::from_utf8(&out[..blank]).unwrap().parse().unwrap();
            assert_eq!(length, out.len());
            if bytes > 0 {
                assert_eq!(parse(&out).unwrap().path, Some(value));
            }
        }
    }

    #[test]
    fn malformed_pax_records_are_rejected() {
        for bytes in [
            &b"5 a=b"[..],
            b"5 a=b\n",
            b"7 a=b\n",
            b"06 a=b\n",
            b"x a=b\n",
            b" a=b\n",
            b"6 =bc\n",
            b"6 abc\n",
            b"6 a=b\n\0",
            b"99999999999999999999999 a=b\n",
            b"18446744073709551615 a=b\n",
            b"8 path=\n",
            b"11 path=a\0\n",
            b"10 path=a\n10 path=b\n",
            b"10 size=1\n10 size=1\n",
            b"10 size=x\n",
            b"11 size=-1\n",
        ] {
            assert!(parse(bytes).is_err(), "{}", bytes.escape_ascii());
        }
        assert_eq!(parse(b""), Ok(Records::default()));
        assert_eq!(parse(b"6 a=b\n10 size=7\n").unwrap().size, Some(7));
        assert!(parse(b"22 GNU.sparse.major=1\n").unwrap().sparse);
    }
}
