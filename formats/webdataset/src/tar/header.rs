//! Parses a header block: its fields, and its dialect.

use std::borrow::Cow;

use crate::error::{MemberKind, WebdatasetError, WebdatasetProblem};

/// The bytes of a block.
pub(crate) const BLOCK: usize = 512;

/// Rounds `bytes` up to whole blocks; `None` if that is more than 2⁶⁴.
pub(crate) fn padded(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(BLOCK as u64)
}

/// The tar dialect of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Without magic, as in Unix Version 7.
    V7,
    /// POSIX.1-1988 and later.
    Ustar,
    /// GNU tar's own dialect.
    Gnu,
}

/// The type in a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Member(MemberKind),
    /// PAX records for the next member.
    Pax,
    /// PAX records for all following members (a global header).
    PaxGlobal,
    /// The name of the next member, in GNU's format.
    LongName,
    /// The target of the next link, in GNU's format.
    LongLink,
}

/// Returns the block at `offset` of `bytes`.
pub(crate) fn block_at(bytes: &[u8], offset: usize) -> Option<&[u8; BLOCK]> {
    bytes.get(offset..)?.first_chunk()
}

/// The relevant fields of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header<'a> {
    pub(super) block: &'a [u8; BLOCK],
    pub(super) dialect: Dialect,
    pub(super) kind: Type,
    pub(super) size: u64,
}

/// Returns the bytes of a field before its first NUL.
fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

impl<'a> Header<'a> {
    /// Parses and checks the block at `offset` of the file.
    pub(super) fn parse(block: &'a [u8; BLOCK], offset: u64) -> Result<Self, WebdatasetError> {
        let [magic @ .., _, _] = field::<10>(block, 257);
        let dialect = match magic {
            b"ustar\x0000" => Dialect::Ustar,
            b"ustar  \0" => Dialect::Gnu,
            [0, 0, 0, 0, 0, 0, 0, 0] => Dialect::V7,
            _ => {
                return Err(WebdatasetProblem::Magic.at(
                    offset,
                    format!(
                        "the block at byte {offset} is not a tar header: its magic is {magic:02x?}"
                    ),
                ));
            }
        };
        check_sum(block, offset)?;
        let size = number(field::<12>(block, 124), "size", offset)?;
        let [code] = field::<1>(block, 156);
        let kind = match *code {
            // COMPAT: Unix Version 7 marks a directory by the trailing slash of its name.
            0 if text(field::<100>(block, 0)).ends_with(b"/") => {
                Type::Member(MemberKind::Directory)
            }
            0 | b'0' | b'7' => Type::Member(MemberKind::File),
            b'1' => Type::Member(MemberKind::HardLink),
            b'2' => Type::Member(MemberKind::SymbolicLink),
            b'3' | b'4' => Type::Member(MemberKind::Device),
            b'5' => Type::Member(MemberKind::Directory),
            b'6' => Type::Member(MemberKind::Pipe),
            b'S' => Type::Member(MemberKind::Sparse),
            b'x' => Type::Pax,
            b'g' => Type::PaxGlobal,
            b'L' => Type::LongName,
            b'K' => Type::LongLink,
            _ => Type::Member(MemberKind::Other),
        };
        Ok(Self {
            block,
            dialect,
            kind,
            size,
        })
    }

    /// Returns the name field alone, without the prefix.
    pub(super) fn short_name(&self) -> &'a [u8] {
        text(field::<100>(self.block, 0))
    }

    /// Returns the prefix field; empty if the dialect has none.
    pub(super) fn prefix(&self) -> &'a [u8] {
        match self.dialect {
            Dialect::Gnu => &[],
            // COMPAT: star stores two times in the last bytes of the prefix, and marks that at the end of the block.
            Dialect::Ustar if field::<4>(self.block, 508) == b"tar\0" => {
                text(field::<131>(self.block, 345))
            }
            Dialect::Ustar | Dialect::V7 => text(field::<155>(self.block, 345)),
        }
    }

    /// Returns whether the size is encoded in base 256.
    pub(super) fn is_base256(&self) -> bool {
        let [first] = field::<1>(self.block, 124);
        first & 0x80 != 0
    }

    /// Returns the name with its prefix, and whether it is UTF-8.
    pub(super) fn name(&self) -> (Cow<'a, str>, bool) {
        let (prefix, name) = (self.prefix(), self.short_name());
        if prefix.is_empty() {
            return decode_name(name);
        }
        let mut joined = Vec::with_capacity(prefix.len() + 1 + name.len());
        joined.extend_from_slice(prefix);
        joined.push(b'/');
        joined.extend_from_slice(name);
        let (name, utf8) = decode_name(&joined);
        (Cow::Owned(name.into_owned()), utf8)
    }
}

/// Returns a name as text, and whether it is UTF-8.
pub(super) fn decode_name(name: &[u8]) -> (Cow<'_, str>, bool) {
    match std::str::from_utf8(name) {
        Ok(name) => (Cow::Borrowed(name), true),
        Err(_) => (String::from_utf8_lossy(name), false),
    }
}

/// Returns `N` bytes of a block at `at`. All callers stay within the block; beyond it, the bytes would be zeros.
fn field<const N: usize>(block: &[u8; BLOCK], at: usize) -> &[u8; N] {
    const { assert!(N <= BLOCK) }
    block
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .unwrap_or(&[0; N])
}

/// Computes the checksum of a block: the sum of its bytes, with spaces in place of the checksum.
pub(super) fn sum(block: &[u8; BLOCK]) -> u64 {
    let add = |sum: u32, byte: &u8| sum.wrapping_add(u32::from(*byte));
    // PERF: 512 × 255 is far below 2³², so wrapping sums are safe. Checked sums would not be vectorised, and the sum is
    // most of the cost of a header.
    let all = block.iter().fold(0, add);
    let own = field::<8>(block, 148).iter().fold(0, add);
    u64::from(all - own + 8 * u32::from(b' '))
}

fn check_sum(block: &[u8; BLOCK], offset: u64) -> Result<(), WebdatasetError> {
    let found = number(field::<8>(block, 148), "checksum", offset)?;
    let unsigned = sum(block);
    if found == unsigned {
        return Ok(());
    }
    // COMPAT: some old writers sum the bytes as signed numbers.
    let negative = |bytes: &[u8]| {
        let count = bytes.iter().filter(|byte| **byte >= 0x80).count();
        256 * count as u64
    };
    let signed = negative(block).saturating_sub(negative(field::<8>(block, 148)));
    if Some(found) == unsigned.checked_sub(signed) {
        return Ok(());
    }
    let reason = format!(
        "the header at byte {offset} has the checksum {found}, but its bytes add up to {unsigned}"
    );
    Err(WebdatasetProblem::Checksum.at(offset, reason))
}

/// Parses a number in octal text, or in base 256 if the first bit is set.
fn number(bytes: &[u8], field: &'static str, offset: u64) -> Result<u64, WebdatasetError> {
    let error = || {
        let reason =
            format!("the {field} in the header at byte {offset} is not a number: {bytes:02x?}");
        WebdatasetProblem::HeaderNumber.at(offset, reason)
    };
    if let Some((first, rest)) = bytes.split_first()
        && first & 0x80 != 0
    {
        // The second bit is the sign.
        if first & 0x40 != 0 {
            return Err(error());
        }
        let mut value = u64::from(first & 0x3f);
        for byte in rest {
            value = value
                .checked_mul(256)
                .and_then(|value| value.checked_add(u64::from(*byte)))
                .ok_or_else(error)?;
        }
        return Ok(value);
    }
    let digits = bytes.trim_ascii_start();
    let end = digits
        .iter()
        .position(|byte| !(b'0'..=b'7').contains(byte))
        .unwrap_or(digits.len());
    let (digits, rest) = digits.split_at_checked(end).unwrap_or_default();
    if rest.iter().any(|byte| !matches!(byte, 0 | b' ')) {
        return Err(error());
    }
    // 12 digits of 3 bits fit 64 bits.
    Ok(digits
        .iter()
        .fold(0, |value, digit| value << 3 | u64::from(digit - b'0')))
}
