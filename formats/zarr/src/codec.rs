//! Codecs of chunks: from the bytes of an object to little-endian values in row-major order.

use crc::{CRC_32_ISCSI, Crc, Table};
use shardmill_core::Limits;

use crate::blosc;
use crate::compression::Compressed;
use crate::error::ZarrError;
use crate::region::{each_index, ravel};

const CRC: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);

/// A codec from bytes to bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Packer {
    Compressed(Compressed),
    /// A block of LZ4 with its length, as the package `numcodecs` writes it.
    Lz4,
    Blosc,
    /// The CRC-32C of the bytes, after them.
    Crc32c,
}

impl Packer {
    /// Returns the codec of a name.
    pub(crate) fn named(name: &str) -> Result<Self, ZarrError> {
        Ok(match name {
            "lz4" => Self::Lz4,
            "blosc" => Self::Blosc,
            "crc32c" => Self::Crc32c,
            _ => Self::Compressed(Compressed::named(name)?),
        })
    }
}

/// The codecs of the chunks of an array.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Codecs {
    /// The axes of the array in the order in which they are stored; `None` for their own.
    pub axes: Option<Vec<usize>>,
    pub big_endian: bool,
    /// In the order in which they encode.
    pub packers: Vec<Packer>,
}

impl Codecs {
    /// Decodes the bytes of a chunk of this shape, with elements of `item` bytes.
    pub(crate) fn decode(
        &self,
        bytes: &[u8],
        shape: &[u64],
        item: usize,
        limits: &Limits,
    ) -> Result<Vec<u8>, ZarrError> {
        let whole = crate::region::elements(shape).and_then(|all| all.checked_mul(item as u64));
        let whole = whole.ok_or_else(|| ZarrError::metadata("a chunk is too large"))?;
        // The size before each codec, as long as it does not depend on the values.
        let mut sizes = vec![Some(whole)];
        for packer in &self.packers {
            let before = sizes.last().copied().flatten();
            sizes.push(
                before
                    .filter(|_| *packer == Packer::Crc32c)
                    .map(|size| size + 4),
            );
        }
        let mut unpacked: Option<Vec<u8>> = None;
        for (packer, size) in self.packers.iter().zip(&sizes).rev() {
            let from = unpacked.as_deref().unwrap_or(bytes);
            unpacked = Some(unpack(*packer, from, *size, limits)?);
        }
        let mut values = unpacked.unwrap_or_else(|| bytes.to_vec());
        if values.len() as u64 != whole {
            let found = values.len();
            let reason = format!("has {found} bytes when decoded, and its shape {whole}");
            return Err(ZarrError::chunk(reason));
        }
        if self.big_endian && item > 1 {
            for value in values.chunks_exact_mut(item) {
                value.reverse();
            }
        }
        Ok(match &self.axes {
            Some(axes) => in_row_order(&values, axes, shape, item),
            None => values,
        })
    }
}

/// Returns the elements in row-major order of an array whose axes are stored in another order.
fn in_row_order(values: &[u8], axes: &[usize], shape: &[u64], item: usize) -> Vec<u8> {
    let length = |axis: &usize| shape.get(*axis).copied().unwrap_or(0);
    let stored: Vec<u64> = axes.iter().map(length).collect();
    let mut out = vec![0; values.len()];
    let mut elements = values.chunks_exact(item);
    let mut index = vec![0; shape.len()];
    each_index(&stored, |at| {
        for (axis, at) in axes.iter().zip(at) {
            if let Some(own) = index.get_mut(*axis) {
                *own = *at;
            }
        }
        let number = usize::try_from(ravel(index.iter().copied(), shape)).unwrap_or(usize::MAX);
        let start = number.saturating_mul(item);
        let into = out.get_mut(start..start.saturating_add(item));
        if let (Some(into), Some(element)) = (into, elements.next()) {
            into.copy_from_slice(element);
        }
    });
    out
}

/// Decodes bytes, into exactly `size` bytes if that is known.
fn unpack(
    packer: Packer,
    bytes: &[u8],
    size: Option<u64>,
    limits: &Limits,
) -> Result<Vec<u8>, ZarrError> {
    match packer {
        Packer::Compressed(compressed) => compressed.unpack(bytes, size, limits),
        Packer::Lz4 => {
            let (length, block) = bytes
                .split_first_chunk()
                .ok_or_else(|| ZarrError::chunk("the LZ4 block is cut short"))?;
            let length = u64::from(u32::from_le_bytes(*length));
            if size.is_some_and(|size| size != length) {
                let reason = format!("the LZ4 block has {length} bytes, which the chunk has not");
                return Err(ZarrError::chunk(reason));
            }
            Compressed::Lz4.unpack(block, Some(length), limits)
        }
        Packer::Blosc => {
            let size =
                size.ok_or_else(|| ZarrError::Codec("blosc after another compressor".into()))?;
            blosc::decode(bytes, size, limits)
        }
        Packer::Crc32c => {
            let (values, crc) = bytes
                .split_last_chunk()
                .ok_or_else(|| ZarrError::chunk("ends before its CRC-32C"))?;
            let (expected, found) = (u32::from_le_bytes(*crc), CRC.checksum(values));
            if expected != found {
                let reason =
                    format!("the CRC-32C of its bytes is {found:08x}, but it has {expected:08x}");
                return Err(ZarrError::chunk(reason));
            }
            Ok(values.to_vec())
        }
    }
}
