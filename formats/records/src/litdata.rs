//! Decodes chunks of LitData: the offsets of their items, and the leaves of an item.
//!
//! A chunk is little-endian: the number of items in 32 bits, the bounds of the items, and the items. An item has the
//! sizes of its leaves and then the leaves. Chunks may be compressed in frames of several items, or have their rows as an
//! Arrow file at the end.

use shardmill_core::DType;

use crate::error::RecordError;

/// The types of NumPy by their numbers. Complex numbers, truth values and objects follow.
const NUMPY: [DType; 11] = [
    DType::Int8,
    DType::Int16,
    DType::Int32,
    DType::Int64,
    DType::UInt8,
    DType::UInt16,
    DType::UInt32,
    DType::UInt64,
    DType::Float16,
    DType::Float32,
    DType::Float64,
];

/// Returns the type with a number in the list of NumPy types.
fn of_numpy(code: u64) -> Option<DType> {
    NUMPY.get(usize::try_from(code).ok()?).copied()
}

/// Returns the type with a number in the list of PyTorch types, which has most of them twice.
const fn of_torch(code: u64) -> Option<DType> {
    Some(match code {
        0 | 1 => DType::Float32,
        2 | 3 => DType::Float64,
        8 | 9 => DType::Float16,
        11 => DType::UInt8,
        12 => DType::Int8,
        13 | 14 => DType::Int16,
        15 | 16 => DType::Int32,
        17 | 18 => DType::Int64,
        20 => DType::UInt16,
        // Complex numbers, brain floats and truth values.
        _ => return None,
    })
}

/// What a leaf holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafKind {
    /// A whole number of 64 bits.
    Int,
    /// A number with a fraction, of 64 bits.
    Float,
    /// A truth value.
    Bool,
    /// Text in UTF-8.
    Str,
    /// Bytes, such as an encoded image.
    Bytes,
    /// An array of one dimension, whose type the index has.
    Vector(DType),
    /// An array of NumPy with its type and shape.
    Numpy,
    /// A tensor of PyTorch with its type and shape.
    Tensor,
}

/// The formats of encoded files, which are bytes here.
const FILES: [&str; 11] = [
    "bytes", "jpeg", "image", "file", "video", "audio", "nifti", "mesh", "pdf", "tifffile", "tiff",
];

impl LeafKind {
    /// Returns the kind of a leaf with this `data_format`. Returns `None` for pickles and other objects of Python.
    #[must_use]
    pub fn of(format: &str) -> Option<Self> {
        let (name, code) = match format.split_once(':') {
            Some((name, code)) => (name, Some(code)),
            None => (format, None),
        };
        let code = || code?.parse().ok();
        Some(match name {
            "int" => Self::Int,
            "float" => Self::Float,
            "bool" => Self::Bool,
            "str" | "text" => Self::Str,
            "no_header_numpy" => Self::Vector(of_numpy(code()?)?),
            "no_header_tensor" => Self::Vector(of_torch(code()?)?),
            "numpy" => Self::Numpy,
            "tensor" => Self::Tensor,
            name if FILES.contains(&name) => Self::Bytes,
            _ => return None,
        })
    }
}

/// An array: its type, its shape and its numbers in the order of C.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafArray<'a> {
    /// The type of the numbers.
    pub number: DType,
    /// The length of each dimension.
    pub shape: Vec<usize>,
    /// The numbers, little-endian.
    pub data: &'a [u8],
}

/// The value of a leaf.
#[derive(Clone, Debug, PartialEq)]
pub enum Leaf<'a> {
    /// A whole number.
    Int(i64),
    /// A number with a fraction.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// Text.
    Str(&'a str),
    /// Bytes.
    Bytes(&'a [u8]),
    /// An array.
    Array(LeafArray<'a>),
}

/// The most dimensions of an array.
const DIMENSIONS: usize = 32;

const fn wrong(reason: &'static str) -> RecordError {
    RecordError::Chunk { reason }
}

/// Decodes a leaf.
///
/// # Errors
///
/// [`RecordError::Chunk`] if the bytes are no value of this kind.
pub fn decode_leaf(kind: LeafKind, bytes: &[u8]) -> Result<Leaf<'_>, RecordError> {
    const NUMBER: RecordError = wrong("a number does not have 8 bytes");
    Ok(match kind {
        LeafKind::Int => Leaf::Int(i64::from_le_bytes(bytes.try_into().map_err(|_| NUMBER)?)),
        LeafKind::Float => Leaf::Float(f64::from_le_bytes(bytes.try_into().map_err(|_| NUMBER)?)),
        LeafKind::Bool => match bytes {
            [0] => Leaf::Bool(false),
            [1] => Leaf::Bool(true),
            _ => return Err(wrong("a truth value is not 0 or 1")),
        },
        LeafKind::Str => {
            let text = std::str::from_utf8(bytes);
            Leaf::Str(text.map_err(|_| wrong("a text is not UTF-8"))?)
        }
        LeafKind::Bytes => Leaf::Bytes(bytes),
        LeafKind::Vector(number) => Leaf::Array(LeafArray {
            number,
            shape: vec![bytes.len() / number.size()],
            data: whole(bytes, number)?,
        }),
        LeafKind::Numpy => array(bytes, u32::from_le_bytes, of_numpy)?,
        LeafKind::Tensor => array(bytes, u32::from_be_bytes, of_torch)?,
    })
}

fn whole(bytes: &[u8], number: DType) -> Result<&[u8], RecordError> {
    match bytes.len().is_multiple_of(number.size()) {
        true => Ok(bytes),
        false => Err(wrong("the bytes of an array end within a number")),
    }
}

/// Decodes an array with a head: its type, its number of dimensions and its shape, in 32 bits each.
fn array(
    bytes: &[u8],
    read: fn([u8; 4]) -> u32,
    of: fn(u64) -> Option<DType>,
) -> Result<Leaf<'_>, RecordError> {
    const SHORT: RecordError = wrong("an array ends within its head");
    let (head, rest) = bytes.split_first_chunk::<8>().ok_or(SHORT)?;
    let [a, b, c, d, e, f, g, h] = *head;
    let number = of(u64::from(read([a, b, c, d])));
    let number = number.ok_or(wrong("an array has a type that is not read"))?;
    let dimensions = usize::try_from(read([e, f, g, h])).unwrap_or(usize::MAX);
    if dimensions > DIMENSIONS {
        return Err(wrong("an array has more than 32 dimensions"));
    }
    let (shape, data) = rest.split_at_checked(4 * dimensions).ok_or(SHORT)?;
    let (shape, _) = shape.as_chunks();
    let shape: Vec<usize> = shape.iter().map(|length| read(*length) as usize).collect();
    let bytes = shape
        .iter()
        .try_fold(number.size(), |bytes, length| bytes.checked_mul(*length));
    if bytes != Some(data.len()) {
        return Err(wrong("the shape of an array does not fit its bytes"));
    }
    Ok(Leaf::Array(LeafArray {
        number,
        shape,
        data,
    }))
}

/// Returns the bytes of the leaves of an item.
///
/// # Errors
///
/// [`RecordError::Chunk`] if the sizes do not fit the item.
pub fn leaves(item: &[u8], count: usize) -> Result<Vec<&[u8]>, RecordError> {
    const SIZES: RecordError = wrong("the sizes of its leaves do not fit its bytes");
    let heads = count.checked_mul(4).ok_or(SIZES)?;
    let (sizes, mut rest) = item.split_at_checked(heads).ok_or(SIZES)?;
    let (sizes, _) = sizes.as_chunks();
    let mut found = Vec::with_capacity(count);
    for size in sizes {
        let (leaf, after) = usize::try_from(u32::from_le_bytes(*size))
            .ok()
            .and_then(|size| rest.split_at_checked(size))
            .ok_or(SIZES)?;
        found.push(leaf);
        rest = after;
    }
    match rest.is_empty() {
        true => Ok(found),
        false => Err(SIZES),
    }
}

/// A part of a chunk: consecutive items, which may be compressed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The offset of the frame in the chunk.
    pub offset: usize,
    /// The bytes, compressed or not.
    pub bytes: &'a [u8],
    /// The size before compression with zstd; `None` if the frame is not compressed.
    pub unpacked: Option<usize>,
    /// The first item.
    pub first: usize,
    /// The number of items.
    pub items: usize,
}

/// The items of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chunk<'a> {
    /// The bounds of the items, one more than items, and the frames with their bytes. Bounds count from the first item.
    Items(Vec<u32>, Vec<Frame<'a>>),
    /// An Arrow file with the rows.
    Arrow(&'a [u8]),
}

const FRAMED: &[u8; 8] = b"LDFZ01\0\0";
const ARROW: &[u8; 8] = b"LDARW01\0";
const SHORT: RecordError = wrong("it ends within the places of its items");

/// Finds the items of a chunk that has so many of them.
///
/// # Errors
///
/// [`RecordError::Chunk`] if the chunk has another number of items, or they do not lie within it.
pub fn chunk(bytes: &[u8], items: u64) -> Result<Chunk<'_>, RecordError> {
    if bytes.starts_with(FRAMED) {
        return framed(bytes, items);
    }
    let count = number(bytes, 0)?;
    check_count(count, items)?;
    if let Some(rest) = bytes.strip_suffix(ARROW)
        && let Some((rest, length)) = rest.split_last_chunk::<4>()
    {
        let length = u32::from_le_bytes(*length) as usize;
        let start = rest.len().checked_sub(length);
        let rows = start.and_then(|start| rest.get(start..));
        return match rows {
            Some(rows) if rows.starts_with(b"ARROW1") => Ok(Chunk::Arrow(rows)),
            Some(_) => Err(wrong("its rows are not an Arrow file")),
            None => Err(wrong("its rows begin before it")),
        };
    }
    let mut bounds = numbers(bytes, 4, count as usize + 1)?;
    let first = bounds.first().copied().unwrap_or(0);
    check_bounds(&bounds)?;
    let last = bounds.last().copied().unwrap_or(0);
    let content = bytes.get(first as usize..last as usize);
    let frame = Frame {
        offset: first as usize,
        bytes: content.ok_or(wrong("its items lie beyond its end"))?,
        unpacked: None,
        first: 0,
        items: count as usize,
    };
    for bound in &mut bounds {
        *bound -= first;
    }
    Ok(Chunk::Items(bounds, vec![frame]))
}

fn framed(bytes: &[u8], items: u64) -> Result<Chunk<'_>, RecordError> {
    /// The magic, a version and flags of 16 bits, items, items of a frame, and frames.
    const HEAD: usize = 24;
    /// The first item, items, an offset of 64 bits, the size and the size before compression.
    const FRAME: usize = 24;
    const FRAMES: RecordError = wrong("its frames do not fit its items or its length");
    if bytes.get(8..10) != Some(&[1, 0]) {
        return Err(wrong("the version of its frames is not 1"));
    }
    let (count, frames) = (number(bytes, 12)?, number(bytes, 20)?);
    check_count(count, items)?;
    let bounds = numbers(bytes, HEAD, count as usize + 1)?;
    check_bounds(&bounds)?;
    let start = HEAD + 4 * bounds.len();
    let mut found = Vec::new();
    let mut next = 0;
    for frame in 0..frames as usize {
        let at = start + FRAME * frame;
        let (first, items) = (number(bytes, at)? as usize, number(bytes, at + 4)? as usize);
        let raw = bytes
            .get(at + 8..at + 16)
            .and_then(|raw| raw.try_into().ok());
        let offset = raw.map(u64::from_le_bytes).ok_or(SHORT)?;
        let offset = usize::try_from(offset).map_err(|_| FRAMES)?;
        let (packed, unpacked) = (number(bytes, at + 16)?, number(bytes, at + 20)?);
        let end = offset.checked_add(packed as usize).ok_or(FRAMES)?;
        let size = bounds
            .get(first)
            .zip(bounds.get(first.saturating_add(items)));
        if first != next || size.is_none_or(|(start, end)| end - start != unpacked) {
            return Err(FRAMES);
        }
        next = first + items;
        found.push(Frame {
            offset,
            bytes: bytes.get(offset..end).ok_or(FRAMES)?,
            unpacked: Some(unpacked as usize),
            first,
            items,
        });
    }
    match next == count as usize {
        true => Ok(Chunk::Items(bounds, found)),
        false => Err(FRAMES),
    }
}

fn number(bytes: &[u8], at: usize) -> Result<u32, RecordError> {
    let number = bytes.get(at..).and_then(|rest| rest.first_chunk());
    number
        .map(|number| u32::from_le_bytes(*number))
        .ok_or(SHORT)
}

/// Reads numbers, after a comparison of their count with the bytes that exist.
fn numbers(bytes: &[u8], at: usize, count: usize) -> Result<Vec<u32>, RecordError> {
    let end = count.checked_mul(4).and_then(|size| size.checked_add(at));
    let bytes = end.and_then(|end| bytes.get(at..end)).ok_or(SHORT)?;
    let (numbers, _) = bytes.as_chunks();
    Ok(numbers
        .iter()
        .map(|number| u32::from_le_bytes(*number))
        .collect())
}

fn check_count(count: u32, items: u64) -> Result<(), RecordError> {
    match u64::from(count) == items {
        true => Ok(()),
        false => Err(wrong("its number of items is not that of the index")),
    }
}

fn check_bounds(bounds: &[u32]) -> Result<(), RecordError> {
    match bounds.is_sorted() {
        true => Ok(()),
        false => Err(wrong("an item ends before it begins")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(numbers: &[u32]) -> Vec<u8> {
        numbers
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect()
    }

    #[test]
    fn chunk_items_are_split_into_leaves() {
        let item = [words(&[8, 2]), 7_i64.to_le_bytes().to_vec(), b"hi".to_vec()].concat();
        let size = u32::try_from(item.len()).unwrap();
        let bytes = [words(&[1, 12, 12 + size]), item.clone()].concat();
        let Chunk::Items(bounds, frames) = chunk(&bytes, 1).unwrap() else {
            panic!("the chunk has items");
        };
        assert_eq!((bounds, frames[0].bytes), (vec![0, size], &item[..]));
        let found = leaves(&item, 2).unwrap();
        assert_eq!(decode_leaf(LeafKind::Int, found[0]), Ok(Leaf::Int(7)));
        assert_eq!(decode_leaf(LeafKind::Str, found[1]), Ok(Leaf::Str("hi")));
        assert!(leaves(&item, 1).is_err() && leaves(&item, 9).is_err());
        assert!(chunk(&bytes, 2).is_err());
        for end in 0..bytes.len() {
            assert!(chunk(&bytes[..end], 1).is_err(), "{end}");
        }
    }

    #[test]
    fn array_leaves_are_parsed_with_dtype_and_shape() {
        let numpy = [words(&[2, 2, 1, 2]), words(&[5, 6])].concat();
        let Ok(Leaf::Array(array)) = decode_leaf(LeafKind::Numpy, &numpy) else {
            panic!("the leaf is an array");
        };
        assert_eq!((array.number, array.shape), (DType::Int32, vec![1, 2]));
        assert!(decode_leaf(LeafKind::Numpy, &numpy[..20]).is_err());
        for head in [[99, 0], [2, 33]] {
            assert!(decode_leaf(LeafKind::Numpy, &words(&head)).is_err());
        }
        let absurd = words(&[2, 4, u32::MAX, u32::MAX, u32::MAX, u32::MAX]);
        assert!(decode_leaf(LeafKind::Numpy, &absurd).is_err());
        assert!(decode_leaf(LeafKind::Vector(DType::Float32), &[0; 5]).is_err());
        assert_eq!(
            LeafKind::of("no_header_tensor:18"),
            Some(LeafKind::Vector(DType::Int64))
        );
        assert_eq!(LeafKind::of("image:png"), Some(LeafKind::Bytes));
        for format in [
            "pickle",
            "graph:pickle",
            "pil",
            "json",
            "no_header_numpy:13",
            "tensor2",
        ] {
            assert_eq!(LeafKind::of(format), None, "{format}");
        }
    }
}
