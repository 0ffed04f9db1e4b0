//! Validates Thrift compact structures without allocating.
//!
//! The `parquet` crate allocates memory for row groups and children by the counts that a footer claims. It recurses as
//! deep as the schema says, and skips lists in unknown fields element by element. A malicious footer would abort the
//! process, exhaust the stack or run for days, and none of that can be caught. Footers and page headers are therefore
//! validated here first, and every count is compared with the remaining bytes.
//!
//! Source: Apache Thrift, compact protocol; Apache Parquet, `parquet.thrift`.

use parquet::file::page_index::offset_index::PageLocation;

/// The reason why a structure is refused.
type Result<T> = std::result::Result<T, &'static str>;

/// The reason for a structure that extends beyond the given bytes. The caller may retry with more bytes.
pub(crate) const END: &str = "ends in the middle of a structure";

/// The deepest nesting of structures, lists and maps. Parquet itself needs 9.
const MAX_NESTING: u32 = 32;
/// The deepest nesting of columns.
const MAX_SCHEMA_DEPTH: usize = 100;

const TRUE: u8 = 1;
const FALSE: u8 = 2;
const I8: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const STRUCT: u8 = 12;
const UUID: u8 = 13;

/// Reads the bytes of a structure one after another.
pub(crate) struct Walker<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Walker<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn byte(&mut self) -> Result<u8> {
        let byte = *self.bytes.get(self.at).ok_or(END)?;
        self.at += 1;
        Ok(byte)
    }

    pub(crate) fn take(&mut self, count: u64) -> Result<&'a [u8]> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let count = usize::try_from(count).map_err(|_| END)?;
        let taken = rest.get(..count).ok_or(END)?;
        self.at += count;
        Ok(taken)
    }

    pub(crate) fn varint(&mut self) -> Result<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number is longer than 64 bits")
    }

    fn zigzag(&mut self) -> Result<i64> {
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    fn zigzag32(&mut self) -> Result<i32> {
        i32::try_from(self.zigzag()?).map_err(|_| "a number is longer than 32 bits")
    }

    /// Calls `read` for each field of a structure, with its id and kind.
    fn fields(&mut self, mut read: impl FnMut(&mut Self, i16, u8) -> Result<()>) -> Result<()> {
        const LONG: &str = "a field id is longer than 16 bits";
        let mut id = 0_i16;
        loop {
            let header = self.byte()?;
            let kind = header & 0x0f;
            if kind == 0 {
                return Ok(());
            }
            id = match i16::from(header >> 4) {
                0 => i16::try_from(self.zigzag()?).map_err(|_| LONG)?,
                delta => id.checked_add(delta).ok_or(LONG)?,
            };
            read(self, id, kind)?;
        }
    }

    /// Reads the type and number of the elements of a list. Each element takes at least one byte.
    fn list(&mut self) -> Result<(u8, u64)> {
        let header = self.byte()?;
        let kind = header & 0x0f;
        let count = match header >> 4 {
            15 => self.varint()?,
            count => u64::from(count),
        };
        if count > (self.bytes.len() - self.at) as u64 {
            return Err("a list claims more elements than there are bytes");
        }
        // The `parquet` crate consumes no byte for a boolean element, so it would loop practically forever over lists
        // of lists of booleans. Parquet metadata has no lists of booleans.
        if count > 0 && (kind == TRUE || kind == FALSE) {
            return Err("a list of booleans");
        }
        Ok((kind, count))
    }

    fn skip(&mut self, kind: u8, nesting: u32) -> Result<()> {
        if nesting >= MAX_NESTING {
            return Err("structures are nested too deep");
        }
        match kind {
            TRUE | FALSE => Ok(()),
            I8 => self.take(1).map(drop),
            I16 | I32 | I64 => self.varint().map(drop),
            DOUBLE => self.take(8).map(drop),
            UUID => self.take(16).map(drop),
            BINARY => {
                let length = self.varint()?;
                self.take(length).map(drop)
            }
            LIST | SET => {
                let (kind, count) = self.list()?;
                for _ in 0..count {
                    self.skip(kind, nesting + 1)?;
                }
                Ok(())
            }
            STRUCT => self.fields(|walker, _, kind| walker.skip(kind, nesting + 1)),
            // Among them maps, which Parquet metadata does not have.
            _ => Err("an unknown kind of field"),
        }
    }
}

/// Validates a `FileMetaData`. Returns whether it names an encryption algorithm: its columns are encrypted, but its footer
/// is not.
pub(crate) fn check_footer(bytes: &[u8]) -> Result<bool> {
    let mut is_encrypted = false;
    Walker::new(bytes).fields(|walker, id, kind| {
        is_encrypted |= id == 8;
        match (id, kind) {
            (2, LIST) => check_schema(walker),
            _ => walker.skip(kind, 0),
        }
    })?;
    Ok(is_encrypted)
}

/// Validates the list of schema elements and the tree that their child counts describe, depth first.
fn check_schema(walker: &mut Walker<'_>) -> Result<()> {
    let (kind, count) = walker.list()?;
    if kind != STRUCT {
        return Err("the schema is not a list of structures");
    }
    // The number of children that are still missing on each level.
    let mut open: Vec<u64> = Vec::new();
    for element in 0..count {
        let mut children = 0;
        walker.fields(|walker, id, kind| {
            match (id, kind) {
                (5, I32) => children = walker.zigzag32()?,
                _ => walker.skip(kind, 0)?,
            }
            Ok(())
        })?;
        let children =
            u64::try_from(children).map_err(|_| "a column has a negative number of children")?;
        if children > count - element - 1 {
            return Err("a column claims more children than there are columns");
        }
        if let Some(siblings) = open.last_mut() {
            *siblings = siblings.saturating_sub(1);
        }
        if children > 0 {
            open.push(children);
            if open.len() > MAX_SCHEMA_DEPTH {
                return Err("columns are nested too deep");
            }
        }
        while open.last() == Some(&0) {
            open.pop();
        }
    }
    Ok(())
}

/// The kind of page that follows a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageKind {
    Data,
    DataV2,
    Dictionary,
    Index,
}

/// The fields of a page header that can be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageHeader {
    pub kind: PageKind,
    pub length: usize,
    pub uncompressed: u64,
    pub compressed: u64,
    pub values: u64,
    /// The number of rows, which only pages of version 2 have.
    pub rows: Option<u64>,
    /// Bytes of uncompressed levels before the data; 0 if levels are part of the data.
    pub levels: u64,
}

/// Reads the page header at the beginning of `bytes`. The error is [`END`] when it needs more bytes.
pub(crate) fn page_header(bytes: &[u8]) -> Result<PageHeader> {
    let mut walker = Walker::new(bytes);
    let (mut kind, mut uncompressed, mut compressed, mut values) = (None, None, None, None);
    let (mut rows, mut levels) = (None, 0_u64);
    walker.fields(|walker, page, field| {
        match (page, field) {
            (1, I32) => kind = Some(walker.zigzag32()?),
            (2, I32) => uncompressed = Some(walker.zigzag32()?),
            (3, I32) => compressed = Some(walker.zigzag32()?),
            (5 | 7 | 8, STRUCT) => walker.fields(|walker, id, field| {
                match (id, field) {
                    (1, I32) => values = Some(walker.zigzag32()?),
                    (3, I32) if page == 8 => rows = Some(walker.zigzag32()?),
                    (5 | 6, I32) if page == 8 => {
                        let length = u64::try_from(walker.zigzag32()?);
                        levels += length.map_err(|_| "a page header has a negative size")?;
                    }
                    _ => walker.skip(field, 1)?,
                }
                Ok(())
            })?,
            _ => walker.skip(field, 0)?,
        }
        Ok(())
    })?;
    let size = |value: Option<i32>| {
        let value = value.ok_or("a page header lacks a field")?;
        u64::try_from(value).map_err(|_| "a page header has a negative size")
    };
    let kind = match kind {
        Some(0) => PageKind::Data,
        Some(1) => PageKind::Index,
        Some(2) => PageKind::Dictionary,
        Some(3) => PageKind::DataV2,
        _ => return Err("a page header names an unknown kind of page"),
    };
    Ok(PageHeader {
        kind,
        length: walker.at,
        uncompressed: size(uncompressed)?,
        compressed: size(compressed)?,
        values: if kind == PageKind::Index {
            0
        } else {
            size(values)?
        },
        rows: rows.map(|rows| size(Some(rows))).transpose()?,
        levels,
    })
}

/// Reads the offset index of a column chunk.
pub(crate) fn offset_index(bytes: &[u8]) -> Result<Vec<PageLocation>> {
    const NO_PAGES: &str = "an offset index has no pages";
    let mut pages = None;
    Walker::new(bytes).fields(|walker, id, kind| match (id, kind) {
        (1, LIST) => {
            let (kind, count) = walker.list()?;
            if kind != STRUCT {
                return Err(NO_PAGES);
            }
            let found: Result<Vec<_>> = (0..count).map(|_| page_location(walker)).collect();
            pages = Some(found?);
            Ok(())
        }
        _ => walker.skip(kind, 0),
    })?;
    pages.ok_or(NO_PAGES)
}

fn page_location(walker: &mut Walker<'_>) -> Result<PageLocation> {
    let (mut offset, mut size, mut row) = (None, None, None);
    walker.fields(|walker, id, kind| {
        match (id, kind) {
            (1, I64) => offset = Some(walker.zigzag()?),
            (2, I32) => size = Some(walker.zigzag32()?),
            (3, I64) => row = Some(walker.zigzag()?),
            _ => walker.skip(kind, 1)?,
        }
        Ok(())
    })?;
    match (offset, size, row) {
        (Some(offset), Some(compressed_page_size), Some(first_row_index)) => Ok(PageLocation {
            offset,
            compressed_page_size,
            first_row_index,
        }),
        _ => Err("a page in an offset index lacks a field"),
    }
}

/// Returns the length of the DELTA_BINARY_PACKED block sequence at the beginning of `bytes`, and the number of values
/// it claims, without unpacking it.
pub(crate) fn delta_extent(bytes: &[u8], max: u64) -> Result<(usize, u64)> {
    let mut walker = Walker::new(bytes);
    let block = walker.varint()?;
    let miniblocks = walker.varint()?;
    let count = walker.varint()?;
    walker.zigzag()?;
    if count > max {
        return Err("delta lengths claim more values than the page has");
    }
    if miniblocks == 0
        || block == 0
        || !block.is_multiple_of(miniblocks)
        || miniblocks > bytes.len() as u64
    {
        return Err("delta lengths claim impossible blocks");
    }
    let per_miniblock = block / miniblocks;
    let mut left = count.saturating_sub(1);
    while left > 0 {
        walker.zigzag()?;
        let widths = walker.take(miniblocks)?;
        for width in widths {
            if left == 0 {
                break;
            }
            let width = u64::from(*width);
            if width > 64 {
                return Err("delta lengths claim more than 64 bits");
            }
            // The last miniblock may end after the values it needs.
            let stored = per_miniblock.checked_mul(width).ok_or(END)?.div_ceil(8);
            let needed = left
                .min(per_miniblock)
                .checked_mul(width)
                .ok_or(END)?
                .div_ceil(8);
            let remaining = (bytes.len() - walker.at) as u64;
            if needed > remaining {
                return Err(END);
            }
            walker.take(stored.min(remaining))?;
            left = left.saturating_sub(per_miniblock);
        }
    }
    Ok((walker.at, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_header_is_parsed() {
        // type 0, uncompressed 100, compressed 40, data page header {values 7, encodings 0, 3, 3}.
        let bytes = [
            0x15, 0, 0x15, 0xc8, 1, 0x15, 80, 0x2c, 0x15, 14, 0x15, 0, 0x15, 6, 0x15, 6, 0, 0, 0xff,
        ];
        let header = page_header(&bytes).unwrap();
        assert_eq!(
            header,
            PageHeader {
                kind: PageKind::Data,
                length: 18,
                uncompressed: 100,
                compressed: 40,
                values: 7,
                rows: None,
                levels: 0
            }
        );
        for cut in 0..18 {
            assert_eq!(page_header(&bytes[..cut]), Err(END), "{cut}");
        }
        assert_eq!(
            page_header(&[0x15, 1, 0]),
            Err("a page header names an unknown kind of page")
        );
    }

    #[test]
    fn list_longer_than_the_input_is_an_error() {
        // field 4: list of structs, 2^31 of them.
        let bytes = [0x49, 0xfc, 0x80, 0x80, 0x80, 0x80, 0x08, 0];
        assert_eq!(
            check_footer(&bytes),
            Err("a list claims more elements than there are bytes")
        );
        // An unknown field with a list of lists of booleans.
        let bytes = [0x69, 0x19, 0xf1, 0x04, 0, 0, 0, 0, 0];
        assert_eq!(check_footer(&bytes), Err("a list of booleans"));
    }

    #[test]
    fn too_deeply_nested_structures_are_an_error() {
        let mut bytes = vec![0x6c];
        bytes.extend(std::iter::repeat_n(0x1c, 1_000_000));
        assert_eq!(check_footer(&bytes), Err("structures are nested too deep"));
    }

    fn schema(children: &[u8]) -> Vec<u8> {
        let mut bytes = vec![
            0x29,
            0xfc,
            u8::try_from(children.len()).unwrap() & 0x7f | 0x80,
            0x01,
        ];
        if children.len() < 128 {
            bytes = vec![0x29, 0xfc, u8::try_from(children.len()).unwrap()];
        }
        for count in children {
            bytes.extend([0x55, count * 2, 0]);
        }
        bytes.push(0);
        bytes
    }

    #[test]
    fn too_wide_or_deep_schema_tree_is_an_error() {
        check_footer(&schema(&[2, 0, 1, 0])).unwrap();
        assert_eq!(
            check_footer(&schema(&[60, 0])),
            Err("a column claims more children than there are columns")
        );
        let mut deep = vec![1; 110];
        deep.push(0);
        assert_eq!(
            check_footer(&schema(&deep)),
            Err("columns are nested too deep")
        );
        // A negative count: zigzag 1 is -1.
        let negative = [0x29, 0x1c, 0x55, 1, 0, 0];
        assert_eq!(
            check_footer(&negative),
            Err("a column has a negative number of children")
        );
    }

    #[test]
    fn delta_extent_returns_length_and_value_count() {
        // 128 a block, 4 miniblocks, 3 values, first 1; block: min delta 0, widths 1 0 0 0, 4 bytes.
        let bytes = [0x80, 0x01, 4, 3, 2, 0, 1, 0, 0, 0, 0b01, 0, 0, 0, 9, 9];
        assert_eq!(delta_extent(&bytes, 3), Ok((14, 3)));
        assert!(delta_extent(&bytes, 2).is_err());
        assert_eq!(delta_extent(&bytes[..10], 3), Err(END));
        let claims = [0x80, 0x01, 4, 0xff, 0xff, 0xff, 0xff, 0x7f, 2];
        assert!(delta_extent(&claims, 1000).is_err_and(|reason| reason != END));
    }
}
