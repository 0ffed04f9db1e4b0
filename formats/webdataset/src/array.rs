//! Reads and writes arrays of numbers, as NumPy files (`npy`) and in the original's own format (`ten`).

mod npy;

use std::borrow::Cow;
use std::fmt::Write as _;

use shardmill_core::{DType, Limits};

use self::npy::{Descr, Head, Item};
use crate::error::{WebdatasetError, WebdatasetProblem};

/// An array that borrows its numbers, which are little-endian and in row-major (C) order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array<'a> {
    /// The type of its numbers.
    pub dtype: DType,
    /// Its shape; empty for a scalar.
    pub shape: Vec<u64>,
    /// Its numbers.
    pub data: &'a [u8],
}

/// The first bytes of every NumPy file.
const NPY_MAGIC: &[u8] = b"\x93NUMPY";

/// The most bytes in the header of a NumPy file.
const NPY_HEADER_BYTES: u64 = 64 << 10;

/// The number of digits that NumPy reserves for the first dimension.
const GROWTH_DIGITS: usize = 21;

/// Appends the header of a NumPy file of version 1.0, as `numpy.save` writes it. The numbers follow it, little-endian and in
/// row-major (C) order.
///
/// Source: NumPy 2.1, `numpy/lib/format.py`.
///
/// # Errors
///
/// [`WebdatasetProblem::Array`] (`Corrupt`) for more dimensions than fit into a header.
pub fn npy_header(
    field: &str,
    dtype: DType,
    shape: &[u64],
    out: &mut Vec<u8>,
) -> Result<(), WebdatasetError> {
    let order = if dtype.size() == 1 { '|' } else { '<' };
    let mut header = format!(
        "{{'descr': '{order}{}', 'fortran_order': False, 'shape': (",
        dtype.short()
    );
    for (axis, dim) in shape.iter().enumerate() {
        let comma = if axis > 0 { ", " } else { "" };
        // Writing to a String cannot fail.
        let _ = write!(header, "{comma}{dim}");
    }
    header.push_str(if shape.len() == 1 { ",), }" } else { "), }" });
    if let Some(first) = shape.first() {
        let blanks = GROWTH_DIGITS.saturating_sub(first.to_string().len());
        header.push_str(&" ".repeat(blanks));
    }
    // Magic, version and length take 10 bytes, the newline one. Like NumPy, this adds 64 spaces to a header that is
    // already aligned.
    let filled = 10 + header.len() + 1;
    header.push_str(&" ".repeat(64 - filled % 64));
    header.push('\n');
    let length = u16::try_from(header.len())
        .map_err(|_| WebdatasetProblem::Array.of_field(field, "has too many dimensions"))?;
    out.extend_from_slice(NPY_MAGIC);
    out.extend_from_slice(&[1, 0]);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(header.as_bytes());
    Ok(())
}

/// An array in a NumPy file.
pub(crate) enum Npy<'a> {
    /// An array whose layout [`Array`] can describe.
    Plain(Array<'a>),
    /// Any other array that NumPy reads without unpickling. Its header is valid, and its data have the length that the
    /// header requires.
    Other,
}

/// Reads a NumPy file.
///
/// Source: NumPy 2.1, `numpy/lib/format.py`. Bytes after the array, which NumPy ignores, are an error here.
pub(crate) fn read_npy<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Npy<'a>, String> {
    let rest = bytes
        .strip_prefix(NPY_MAGIC)
        .ok_or("does not begin as a NumPy file does")?;
    let cut = || "ends within the header of its NumPy file".to_owned();
    let ([major, minor], rest) = rest.split_first_chunk::<2>().ok_or_else(cut)?;
    let (length, rest) = match (major, minor) {
        (1, 0) => {
            let (length, rest) = rest.split_first_chunk::<2>().ok_or_else(cut)?;
            (u64::from(u16::from_le_bytes(*length)), rest)
        }
        (2 | 3, 0) => {
            let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
            (u64::from(u32::from_le_bytes(*length)), rest)
        }
        _ => return Err(format!("is a NumPy file of version {major}.{minor}")),
    };
    if length > NPY_HEADER_BYTES {
        return Err(format!("has a NumPy header of {length} bytes"));
    }
    let length = usize::try_from(length).map_err(|_| cut())?;
    let (header, data) = rest.split_at_checked(length).ok_or_else(cut)?;
    let header = match std::str::from_utf8(header) {
        Ok(header) => Cow::Borrowed(header),
        // Up to version 2, a header is Latin-1.
        Err(_) if *major < 3 => Cow::Owned(header.iter().copied().map(char::from).collect()),
        Err(_) => return Err("has a NumPy header that is not text".to_owned()),
    };
    let Head {
        descr,
        is_fortran,
        shape,
    } = npy::head(&header).ok_or("has a NumPy header that is not a description of an array")?;
    let (name, item) = match descr {
        Descr::Name(name) => (name, Item::of(name)),
        Descr::Record(item) => ("", Some(item)),
    };
    let item_bytes = match item {
        Some(Item::Bytes(bytes)) => bytes,
        Some(Item::Object) => {
            return Err("is a NumPy file of Python objects, which are pickles".to_owned());
        }
        None => {
            let shown: String = name.chars().take(40).collect();
            return Err(format!("is a NumPy file of `{shown}`"));
        }
    };
    if shape.len() as u64 > limits.array_dims {
        return Err(format!("is an array of {} dimensions", shape.len()));
    }
    let plain = match name.split_at_checked(1) {
        Some(("<" | "=", short)) => DType::from_short(short),
        Some(("|", short)) => DType::from_short(short).filter(|dtype| dtype.size() == 1),
        _ => None,
    };
    let is_turned = is_fortran && shape.iter().filter(|dim| **dim > 1).count() > 1;
    if let Some(dtype) = plain.filter(|_| !is_turned) {
        return check_data(dtype, shape, data).map(Npy::Plain);
    }
    // With elements of zero bytes, a short file could claim any number of elements.
    let max = if item_bytes == 0 {
        limits.sample_bytes
    } else {
        u64::MAX
    };
    let count = shape
        .iter()
        .try_fold(1_u64, |product, dim| product.checked_mul(*dim))
        .filter(|count| *count <= max);
    let needed = count.and_then(|count| count.checked_mul(item_bytes));
    if needed == Some(data.len() as u64) {
        return Ok(Npy::Other);
    }
    Err(format!(
        "has {} bytes of data for an array of shape {shape:?} and elements of {item_bytes} bytes",
        data.len()
    ))
}

/// Checks that shape and data match.
fn check_data(dtype: DType, shape: Vec<u64>, data: &[u8]) -> Result<Array<'_>, String> {
    let needed = shape.iter().try_fold(dtype.size() as u64, |product, dim| {
        product.checked_mul(*dim)
    });
    if needed == Some(data.len() as u64) {
        return Ok(Array { dtype, shape, data });
    }
    Err(format!(
        "has {} bytes of numbers for an array of {} of shape {shape:?}",
        data.len(),
        dtype.short()
    ))
}

/// The magic before each chunk of a `ten` file.
const TEN_MAGIC: &[u8] = b"~TenBin~";

/// Chunks are padded to a multiple of this.
const TEN_ALIGN: usize = 64;

/// The most dimensions that the original supports.
const TEN_DIMS: usize = 9;

/// Appends an array in the original's own format (`ten`). Several arrays follow one another.
///
/// # Errors
///
/// [`WebdatasetProblem::Array`] (`Corrupt`) for data that do not match the shape, and for arrays that the original does not
/// read. `field` is for the message.
pub fn encode_ten(
    field: &str,
    dtype: DType,
    shape: &[u64],
    data: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), WebdatasetError> {
    let error = |reason: String| WebdatasetProblem::Array.of_field(field, reason);
    check_data(dtype, shape.to_vec(), data).map_err(error)?;
    // COMPAT: the original has no name for these two types and does not read them.
    if matches!(dtype, DType::UInt32 | DType::Bool) {
        return Err(error(format!("cannot hold an array of {}", dtype.short())));
    }
    if shape.len() > TEN_DIMS {
        let reason = format!("cannot hold an array of {} dimensions", shape.len());
        return Err(error(reason));
    }
    let mut header = Vec::with_capacity(24 + 8 * shape.len());
    header.extend_from_slice(dtype.short().as_bytes());
    header.resize(16, 0);
    header.extend_from_slice(&(shape.len() as u64).to_le_bytes());
    for dim in shape {
        header.extend_from_slice(&dim.to_le_bytes());
    }
    for chunk in [&header[..], data] {
        out.extend_from_slice(TEN_MAGIC);
        out.extend_from_slice(&(chunk.len() as u64).to_le_bytes());
        out.extend_from_slice(chunk);
        let filled = chunk.len().next_multiple_of(TEN_ALIGN);
        out.resize(out.len() + filled - chunk.len(), 0);
    }
    Ok(())
}

/// Splits off the first chunk, and returns its content and the bytes after it.
fn ten_chunk(bytes: &[u8]) -> Result<(&[u8], &[u8]), String> {
    let rest = bytes
        .strip_prefix(TEN_MAGIC)
        .ok_or("has a chunk of arrays without its magic")?;
    let (length, rest) = rest
        .split_first_chunk::<8>()
        .ok_or("ends within the length of a chunk of arrays")?;
    let length = u64::from_le_bytes(*length);
    let left = rest.len();
    let parts = usize::try_from(length)
        .ok()
        .and_then(|length| rest.split_at_checked(length));
    let Some((chunk, rest)) = parts else {
        return Err(format!(
            "has a chunk of {length} bytes, but {left} are left"
        ));
    };
    let filled = chunk.len().next_multiple_of(TEN_ALIGN) - chunk.len();
    let rest = rest.get(filled..).ok_or("ends within a chunk of arrays")?;
    Ok((chunk, rest))
}

/// Reads arrays in the original's own format.
pub(crate) fn read_ten<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Vec<Array<'a>>, String> {
    let mut arrays = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (header, after) = ten_chunk(rest)?;
        let (data, after) = ten_chunk(after)?;
        rest = after;
        let cut = || "has a header of an array of the wrong length".to_owned();
        let (short, header) = header.split_first_chunk::<8>().ok_or_else(cut)?;
        let (_name, header) = header.split_first_chunk::<8>().ok_or_else(cut)?;
        let (dims, header) = header.split_first_chunk::<8>().ok_or_else(cut)?;
        let dims = u64::from_le_bytes(*dims);
        if dims > limits.array_dims || dims.checked_mul(8) != Some(header.len() as u64) {
            return Err(cut());
        }
        let shape = header
            .chunks_exact(8)
            .filter_map(|dim| dim.first_chunk().map(|dim| u64::from_le_bytes(*dim)))
            .collect();
        let short = short.split(|byte| *byte == 0).next().unwrap_or_default();
        let dtype = std::str::from_utf8(short)
            .ok()
            .and_then(DType::from_short)
            .ok_or_else(|| {
                format!(
                    "has an array of the unknown type `{}`",
                    short.escape_ascii()
                )
            })?;
        arrays.push(check_data(dtype, shape, data)?);
    }
    Ok(arrays)
}
