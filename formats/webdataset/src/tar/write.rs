//! Writes headers as CPython's `tarfile` writes them for `webdataset` with whole seconds, and the end of an archive.

use std::borrow::Cow;

use shardmill_codec::Content;
use shardmill_core::escape;

use super::header::{BLOCK, padded, sum};

use super::pax;
use crate::error::{WebdatasetError, WebdatasetProblem};

/// The bytes of the name field.
const NAME_BYTES: usize = 100;

/// The largest size in eleven octal digits: one byte less than 8 GiB.
const PLAIN_SIZE_MAX: u64 = (1 << 33) - 1;

/// An archive is padded to a multiple of this: 20 blocks, as in GNU tar and `tarfile`.
pub const TRAILER_BYTES: u64 = 20 * BLOCK as u64;

/// The user and group of the members, as in the original writer.
const OWNER: &[u8] = b"bigdata";

/// Settings that all headers of a dataset share. The default is the canonical profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TarStyle {
    /// The modification time, in seconds since 1970. Both this type and a header can represent years up to 2106.
    pub mtime: u32,
    /// Whether to write PAX headers for names of more than 100 bytes, names beyond ASCII and members of 8 GiB or more.
    /// Otherwise these are refused, because not every reader supports PAX.
    pub long_names: bool,
}

impl TarStyle {
    /// Returns the style of `TarWriter(…, mtime=mtime)` of webdataset 1.0.2, byte for byte.
    #[must_use]
    pub const fn reference(mtime: u32) -> Self {
        Self {
            mtime,
            long_names: true,
        }
    }
}

/// Returns the PAX records that a member needs; empty if a plain header is enough.
fn records(style: TarStyle, name: &str, bytes: u64) -> Result<Vec<u8>, WebdatasetError> {
    let long_name = name.len() > NAME_BYTES || !name.is_ascii();
    let large = bytes > PLAIN_SIZE_MAX;
    let mut records = Vec::new();
    if long_name {
        if !style.long_names {
            let name = escape(name);
            let reason =
                format!("the member `{name}` needs a PAX header, which some readers ignore");
            return Err(WebdatasetProblem::LongName.because(reason));
        }
        pax::write("path", name.as_bytes(), &mut records);
    }
    if large {
        if !style.long_names {
            return Err(large_member(name, bytes));
        }
        pax::write("size", bytes.to_string().as_bytes(), &mut records);
    }
    Ok(records)
}

fn large_member(name: &str, bytes: u64) -> WebdatasetError {
    let name = escape(name);
    WebdatasetProblem::LargeMember.because(format!(
        "the member `{name}` has {bytes} bytes; a plain header has room for {PLAIN_SIZE_MAX}"
    ))
}

/// Returns the bytes that a member takes: its headers, its content and its padding.
///
/// # Errors
///
/// [`WebdatasetProblem::LongName`] and [`WebdatasetProblem::LargeMember`] (`InvalidInput`).
pub fn member_bytes(style: TarStyle, name: &str, bytes: u64) -> Result<u64, WebdatasetError> {
    let records = records(style, name, bytes)?.len() as u64;
    let block = BLOCK as u64;
    let extension = if records == 0 {
        0
    } else {
        block.saturating_add(records.next_multiple_of(block))
    };
    padded(bytes)
        .and_then(|bytes| bytes.checked_add(extension)?.checked_add(block))
        .ok_or_else(|| large_member(name, bytes))
}

/// Appends a member: its headers, its content and its padding. The bytes depend only on the arguments.
///
/// # Errors
///
/// As for [`member_bytes`]; nothing is appended then.
pub fn write_member(
    style: TarStyle,
    name: &str,
    content: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), WebdatasetError> {
    write_member_head(style, name, content.len() as u64, out)?;
    fill(content, out);
    Ok(())
}

/// Appends the headers of a member of `bytes` bytes. The caller appends its content and the padding of its last block.
///
/// # Errors
///
/// As for [`member_bytes`]; nothing is appended then.
pub fn write_member_head(
    style: TarStyle,
    name: &str,
    bytes: u64,
    out: &mut Vec<u8>,
) -> Result<(), WebdatasetError> {
    let records = records(style, name, bytes)?;
    if !records.is_empty() {
        let size = records.len() as u64;
        out.extend_from_slice(&block(b"././@PaxHeader", 0, size, 0, b'x', b""));
        fill(&records, out);
    }
    // COMPAT: after a PAX header, the name is truncated, characters beyond ASCII become question marks, and a size that
    // does not fit becomes 0.
    let plain: Cow<'_, [u8]> = match name.len() <= NAME_BYTES && name.is_ascii() {
        true => name.as_bytes().into(),
        false => name
            .chars()
            .map(|c| u8::try_from(c).ok().filter(u8::is_ascii).unwrap_or(b'?'))
            .take(NAME_BYTES)
            .collect(),
    };
    let size = if bytes > PLAIN_SIZE_MAX { 0 } else { bytes };
    out.extend_from_slice(&block(&plain, 0o444, size, style.mtime, b'0', OWNER));
    Ok(())
}

/// The number of digits in keys that are sample numbers.
pub const KEY_DIGITS: usize = 9;

/// Returns the content digest of a numbered sample: that of its bytes if it were the first one. The key takes `digits`
/// bytes, including any prefix. `memory` is a buffer that is reused from call to call.
#[must_use]
pub fn content_of_numbered(sample: &[u8], digits: usize, memory: &mut Vec<u8>) -> Content {
    const FIRST: &str = "000000000";

    memory.clear();
    memory.extend_from_slice(sample);
    // A sample without space for a number was not numbered.
    match renumber(memory, digits, FIRST) {
        true => Content::of(memory),
        false => Content::of(sample),
    }
}

/// Replaces the key of all members of one sample. `members` are headers and contents as [`write_member`] writes them,
/// and `key` replaces the first `digits` bytes of each name. Returns whether it fits into all of them. In a PAX header,
/// it fits if it is as long as the old key.
///
/// With this, many threads can encode samples before the number of preceding samples is known.
#[must_use]
pub fn renumber(members: &mut [u8], digits: usize, key: &str) -> bool {
    let mut at = 0;
    while let Some(head) = members
        .get_mut(at..)
        .and_then(|rest| rest.first_chunk_mut::<BLOCK>())
    {
        let Some(size) = octal(head.get(124..135).unwrap_or_default()) else {
            return false;
        };
        let content = usize::try_from(size).ok();
        let content = content.and_then(|bytes| bytes.checked_next_multiple_of(BLOCK));
        let next = content.and_then(|content| at.checked_add(BLOCK)?.checked_add(content));
        let Some(next) = next else {
            return false;
        };
        if head.get(156) == Some(&b'x') {
            let bytes = usize::try_from(size).unwrap_or(usize::MAX);
            let records = members.get_mut(at + BLOCK..next);
            let records = records.and_then(|records| records.get_mut(..bytes));
            if records.is_none_or(|records| !pax::replace_key(records, digits, key)) {
                return false;
            }
            at = next;
            continue;
        }
        let name = head.get(..NAME_BYTES).unwrap_or_default();
        let end = name.iter().position(|byte| *byte == 0);
        let Some(rest) = name.get(digits..end.unwrap_or(NAME_BYTES)) else {
            return false;
        };
        if key.len() + rest.len() > NAME_BYTES {
            return false;
        }
        let mut name = [key.as_bytes(), rest].concat();
        name.resize(NAME_BYTES, 0);
        put(head, 0, &name);
        let sum = sum(head);
        put(head, 148, &digits_of::<6>(sum));
        put(head, 154, b"\0 ");
        at = next;
    }
    at == members.len()
}

/// Parses a number in a field of octal digits.
fn octal(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0_u64, |number, digit| match digit {
        b'0'..=b'7' => Some(number << 3 | u64::from(digit - b'0')),
        _ => None,
    })
}

/// Formats a number in `WIDTH` octal digits.
fn digits_of<const WIDTH: usize>(number: u64) -> [u8; WIDTH] {
    let mut digits = [b'0'; WIDTH];
    let mut left = number;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' | u8::try_from(left & 7).unwrap_or(0);
        left >>= 3;
    }
    digits
}

/// Appends bytes, padded with zeros to a whole block.
fn fill(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(bytes);
    out.resize(
        out.len() + (bytes.len().next_multiple_of(BLOCK) - bytes.len()),
        0,
    );
}

/// Copies `value` into a block at `at`. All callers stay within the block.
fn put(block: &mut [u8; BLOCK], at: usize, value: &[u8]) {
    let room = block.get_mut(at..).unwrap_or_default();
    for (to, from) in room.iter_mut().zip(value) {
        *to = *from;
    }
}

/// Builds one header block.
fn block(name: &[u8], mode: u32, size: u64, mtime: u32, kind: u8, owner: &[u8]) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    put(&mut block, 0, name);
    put(&mut block, 100, &digits_of::<7>(u64::from(mode)));
    put(&mut block, 108, b"0000000\x000000000\0");
    put(&mut block, 124, &digits_of::<11>(size));
    put(&mut block, 136, &digits_of::<11>(u64::from(mtime)));
    put(&mut block, 156, &[kind]);
    put(&mut block, 257, b"ustar\x0000");
    put(&mut block, 265, owner);
    put(&mut block, 297, owner);
    let sum = sum(&block);
    put(&mut block, 148, &digits_of::<6>(sum));
    put(&mut block, 154, b"\0 ");
    block
}

/// Returns the number of zeros at the end of an archive whose members take `members` bytes: two blocks, and padding to
/// the next multiple of [`TRAILER_BYTES`].
#[must_use]
pub const fn trailer_bytes(members: u64) -> u64 {
    let end = members.saturating_add(2 * BLOCK as u64);
    let over = end % TRAILER_BYTES;
    let filled = if over == 0 {
        end
    } else {
        end.saturating_add(TRAILER_BYTES - over)
    };
    filled.saturating_sub(members)
}

/// Appends the end of an archive that begins at the start of `out`.
pub fn write_trailer(out: &mut Vec<u8>) {
    let zeros = trailer_bytes(out.len() as u64);
    out.resize(
        out.len()
            .saturating_add(usize::try_from(zeros).unwrap_or(usize::MAX)),
        0,
    );
}
