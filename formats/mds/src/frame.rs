//! Parses the framing of arrays, raw images and lists of images. Every length is checked.

use shardmill_core::{Limits, escape};

use crate::encoding::DType;
use crate::error::{MdsError, MdsProblem, array_empty, needed_bytes};
use crate::text::excerpt;
use crate::value::{NdArray, PilFrame};

/// Returns the length of bytes in memory, which always fits 64 bits.
pub(crate) fn len_u64(bytes: &[u8]) -> u64 {
    bytes.len() as u64
}

/// Splits after `count` bytes, if there are that many.
fn split(bytes: &[u8], count: u64) -> Option<(&[u8], &[u8])> {
    bytes.split_at_checked(usize::try_from(count).ok()?)
}

fn split_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (word, rest) = bytes.split_first_chunk()?;
    Some((u32::from_le_bytes(*word), rest))
}

/// Parses an array. Its type and shape are read from the datum unless they are given.
pub(crate) fn parse_array<'a>(
    dtype: Option<DType>,
    shape: Option<&[u64]>,
    datum: &'a [u8],
    limits: &Limits,
) -> Result<NdArray<'a>, MdsError> {
    let found = len_u64(datum);
    let short = |needed: u64| {
        let reason = format!("an array has {found} bytes, but its header alone needs {needed}");
        MdsProblem::ArrayHeader.because(reason)
    };
    let check_dims = |dims: u64| {
        Limits::check("array-dims", dims, limits.array_dims).map_err(MdsError::ValueLimit)
    };
    let (dtype, rest) = match dtype {
        Some(dtype) => (dtype, datum),
        None => {
            let (code, rest) = datum.split_first().ok_or_else(|| short(1))?;
            let unknown = || {
                let reason = format!("an array has the unknown number type {code}");
                MdsProblem::ArrayDtype.because(reason)
            };
            (DType::from_code(*code).ok_or_else(unknown)?, rest)
        }
    };
    let (shape, data) = match shape {
        Some(shape) => (shape.to_vec(), rest),
        None => {
            let before = found - len_u64(rest) + 1;
            let (header, rest) = rest.split_first().ok_or_else(|| short(before))?;
            let (ndim, shift) = (u64::from(header >> 2), header & 3);
            check_dims(ndim)?;
            let (dims, data) =
                split(rest, ndim << shift).ok_or_else(|| short(before + (ndim << shift)))?;
            let number = |bytes: &[u8]| {
                let bytes = bytes.iter().rev();
                bytes.fold(0, |value, byte| (value << 8) | u64::from(*byte))
            };
            (dims.chunks_exact(1 << shift).map(number).collect(), data)
        }
    };
    check_dims(shape.len() as u64)?;
    if shape.is_empty() || shape.contains(&0) {
        return Err(array_empty(&shape));
    }
    let mut sizes = shape.iter();
    let needed = sizes.try_fold(dtype.size_bytes(), |bytes, dim| bytes.checked_mul(*dim));
    if needed != Some(len_u64(data)) {
        return Err(MdsProblem::ArrayShape.because(format!(
            "an array of {dtype} of shape {shape:?} has {} bytes of numbers instead of {}",
            data.len(),
            needed_bytes(needed)
        )));
    }
    Ok(NdArray { dtype, shape, data })
}

/// How a PIL mode lays out its raw pixels.
enum PixelBytes {
    /// Eight pixels in each byte; each row takes whole bytes.
    Packed,
    /// This many bytes for each pixel.
    Whole(u64),
}

/// Returns the pixel layout of the modes of PIL 13. (The `BGR;…` modes of older releases could never be saved from an
/// image.)
fn pixel_bytes(mode: &str) -> Option<PixelBytes> {
    Some(match mode {
        "1" => PixelBytes::Packed,
        "L" | "P" => PixelBytes::Whole(1),
        "LA" | "La" | "PA" | "I;16" | "I;16L" | "I;16B" | "I;16N" => PixelBytes::Whole(2),
        "RGB" | "YCbCr" | "LAB" | "HSV" => PixelBytes::Whole(3),
        "RGBA" | "RGBa" | "RGBX" | "CMYK" | "I" | "F" => PixelBytes::Whole(4),
        _ => return None,
    })
}

fn image_mode(mode: &[u8]) -> MdsError {
    let mode = excerpt(mode);
    let reason = format!("a pil image has the unknown mode `{}`", escape(&mode));
    MdsProblem::ImageMode.because(reason)
}

/// Checks that an image has as many pixels as its size and mode require.
pub(crate) fn check_pixels(frame: &PilFrame<'_>) -> Result<(), MdsError> {
    let pixels = pixel_bytes(frame.mode).ok_or_else(|| image_mode(frame.mode.as_bytes()))?;
    let (width, height) = (u64::from(frame.width), u64::from(frame.height));
    let needed = match pixels {
        PixelBytes::Packed => width.div_ceil(8).checked_mul(height),
        PixelBytes::Whole(bytes) => width
            .checked_mul(height)
            .and_then(|pixels| pixels.checked_mul(bytes)),
    };
    if needed != Some(len_u64(frame.raw)) {
        return Err(MdsProblem::ImageFrame.because(format!(
            "a pil image of {width}x{height} pixels of mode `{}` has {} bytes of pixels instead of {}",
            frame.mode,
            frame.raw.len(),
            needed_bytes(needed)
        )));
    }
    Ok(())
}

const PIL_HEADER_BYTES: u64 = 12;

/// Parses a `pil` image.
pub(crate) fn parse_pil(datum: &[u8]) -> Result<PilFrame<'_>, MdsError> {
    let short = |needed: u64| {
        let found = datum.len();
        let reason = format!("a pil image has {found} bytes, but its header alone needs {needed}");
        MdsProblem::ImageFrame.because(reason)
    };
    let header = || {
        let (width, rest) = split_u32(datum)?;
        let (height, rest) = split_u32(rest)?;
        let (mode_bytes, rest) = split_u32(rest)?;
        Some((width, height, u64::from(mode_bytes), rest))
    };
    let (width, height, mode_bytes, rest) = header().ok_or_else(|| short(PIL_HEADER_BYTES))?;
    let (mode, raw) =
        split(rest, mode_bytes).ok_or_else(|| short(PIL_HEADER_BYTES + mode_bytes))?;
    let mode = std::str::from_utf8(mode).map_err(|_| image_mode(mode))?;
    let frame = PilFrame {
        width,
        height,
        mode,
        raw,
    };
    check_pixels(&frame)?;
    Ok(frame)
}

/// Iterates over the items of a list.
pub(crate) struct Items<'a> {
    lengths: &'a [u8],
    body: &'a [u8],
}

impl<'a> Items<'a> {
    /// Parses `u32 n, n lengths, n items`, after a word 0 if `reserved`.
    pub(crate) fn parse(datum: &'a [u8], reserved: bool) -> Result<Self, MdsError> {
        let found = len_u64(datum);
        let mut header_bytes = if reserved { 8 } else { 4 };
        let short = |items: u64, needed: u64| {
            MdsProblem::List.because(format!(
                "a list of {items} items has {found} bytes, but its header alone needs {needed}"
            ))
        };
        let mut rest = datum;
        if reserved {
            let (word, after) = split_u32(rest).ok_or_else(|| short(0, header_bytes))?;
            if word != 0 {
                let reason = format!("a list starts with the number {word} instead of 0");
                return Err(MdsProblem::List.because(reason));
            }
            rest = after;
        }
        let (count, rest) = split_u32(rest).ok_or_else(|| short(0, header_bytes))?;
        let items = u64::from(count);
        header_bytes += 4 * items;
        let (lengths, body) = split(rest, 4 * items).ok_or_else(|| short(items, header_bytes))?;
        // There are at most 2^32 lengths below 2^32, so the sum cannot overflow.
        let needed: u64 = lengths
            .chunks_exact(4)
            .filter_map(split_u32)
            .map(|(length, _)| u64::from(length))
            .sum();
        if needed != len_u64(body) {
            return Err(MdsProblem::List.because(format!(
                "a list of {items} items has {} bytes of items instead of {needed}",
                body.len()
            )));
        }
        Ok(Self { lengths, body })
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (length, lengths) = split_u32(self.lengths)?;
        let (item, body) = split(self.body, u64::from(length))?;
        (self.lengths, self.body) = (lengths, body);
        Some(item)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let items = self.lengths.len() / 4;
        (items, Some(items))
    }
}

impl ExactSizeIterator for Items<'_> {}
