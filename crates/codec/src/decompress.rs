//! Decompresses whole files with bounded memory.

use std::io::Cursor;

use brotli::enc::StandardAlloc;
use brotli::{BrotliDecompressStream, BrotliResult, BrotliState};
use shardmill_core::{LimitExceeded, Limits};

use crate::algorithm::Algorithm;
use crate::error::{CodecError, CodecProblem};
use crate::zstd_frame;

/// The first size by which the output of a streaming decoder grows.
const FIRST_BYTES: u64 = 1 << 20;

/// Snappy's densest element takes 3 bytes and copies 64.
const SNAPPY_RATIO: u64 = 22;

/// How many raw bytes a file may have, and whether the index or the limits decide that.
#[derive(Clone, Copy)]
pub(crate) struct Budget {
    algorithm: Algorithm,
    declared: Option<u64>,
    zip_bytes: u64,
    pub(crate) max: u64,
    max_bytes: u64,
    max_ratio: u64,
}

impl Budget {
    pub(crate) fn new(
        algorithm: Algorithm,
        zip: &[u8],
        declared: Option<u64>,
        limits: &Limits,
    ) -> Result<Self, CodecError> {
        let zip_bytes = zip.len() as u64;
        Limits::check("shard-bytes", zip_bytes, limits.shard_bytes)?;
        let max = match declared {
            Some(declared) => {
                Limits::check("shard-bytes", declared, limits.shard_bytes)?;
                declared
            }
            None => limits
                .expansion
                .bytes
                .min(zip_bytes.saturating_mul(limits.expansion.ratio))
                .min(limits.shard_bytes),
        };
        Ok(Self {
            algorithm,
            declared,
            zip_bytes,
            max,
            max_bytes: limits.expansion.bytes.min(limits.shard_bytes),
            max_ratio: limits.expansion.ratio,
        })
    }

    /// Returns the error for a file with at least `found` raw bytes, which is more than allowed.
    pub(crate) fn exceeded(&self, found: u64) -> CodecError {
        match self.declared {
            Some(declared) => CodecError::too_long(self.algorithm, declared),
            None if found > self.max_bytes => CodecError::Limit(LimitExceeded {
                name: "expansion-bytes",
                value: found,
                limit: self.max_bytes,
            }),
            None => CodecError::Limit(LimitExceeded {
                name: "expansion-ratio",
                value: found.div_ceil(self.zip_bytes.max(1)),
                limit: self.max_ratio,
            }),
        }
    }

    /// Returns the raw bytes, if there are as many as declared.
    pub(crate) fn whole(&self, raw: Vec<u8>) -> Result<Vec<u8>, CodecError> {
        let found = raw.len() as u64;
        match self.declared {
            Some(declared) if found < declared => {
                let algorithm = self.algorithm;
                Err(CodecProblem::Size.because(format!(
                    "the {algorithm} file expands to {found} bytes, but {declared} are declared"
                )))
            }
            _ if found > self.max => Err(self.exceeded(found)),
            _ => Ok(raw),
        }
    }

    pub(crate) fn truncated(&self) -> CodecError {
        CodecError::truncated(self.algorithm, self.zip_bytes)
    }

    pub(crate) fn damaged(&self, reason: &dyn std::fmt::Display) -> CodecError {
        CodecError::damaged(self.algorithm, reason)
    }
}

pub(crate) fn decompress(
    algorithm: Algorithm,
    zip: &[u8],
    declared: Option<u64>,
    limits: &Limits,
) -> Result<Vec<u8>, CodecError> {
    let budget = Budget::new(algorithm, zip, declared, limits)?;
    if zip.is_empty() {
        return Err(budget.truncated());
    }
    let out = match algorithm {
        Algorithm::Zstd => zstd(zip, &budget, limits)?,
        Algorithm::Snappy => snappy(zip, &budget)?,
        Algorithm::Gzip => members::<GzipMember>(zip, &budget)?,
        Algorithm::Bzip2 => members::<Bzip2Stream>(zip, &budget)?,
        Algorithm::Brotli => members::<BrotliStream>(zip, &budget)?,
    };
    budget.whole(out)
}

/// Reserves `additional` bytes, or returns an error if there is not enough memory.
pub(crate) fn try_reserve(out: &mut Vec<u8>, additional: usize) -> Result<(), CodecError> {
    out.try_reserve_exact(additional)
        .map_err(|_| CodecError::memory((out.len() as u64).saturating_add(additional as u64)))
}

fn zstd(zip: &[u8], budget: &Budget, limits: &Limits) -> Result<Vec<u8>, CodecError> {
    // Inspect the blocks of all frames first. That bounds the expanded size, so the buffer is never larger than the
    // file can fill.
    let (mut offset, mut bound) = (0, 0_u64);
    while offset < zip.len() {
        let frame = zstd_frame::next(zip, offset, limits)?;
        bound = bound.saturating_add(frame.content.unwrap_or(frame.bound));
        let content = frame.content.unwrap_or(0);
        if content > budget.max {
            return Err(budget.exceeded(content));
        }
        offset += frame.bytes.len();
    }
    let mut out = Vec::new();
    let room = bound.min(budget.max);
    try_reserve(&mut out, usize::try_from(room).unwrap_or(usize::MAX))?;

    let mut context = zstd::zstd_safe::DCtx::try_create().ok_or_else(|| CodecError::memory(0))?;
    offset = 0;
    while offset < zip.len() {
        let frame = zstd_frame::next(zip, offset, limits)?;
        let start = out.len();
        let end = (start as u64).saturating_add(frame.content.unwrap_or(0));
        if end > budget.max {
            return Err(budget.exceeded(end));
        }
        // PERF: decompress directly into place, at the cursor's position.
        let mut cursor = Cursor::new(out);
        cursor.set_position(start as u64);
        let result = context.decompress(&mut cursor, frame.bytes);
        out = cursor.into_inner();
        match result {
            // There was enough space for the size that the frame declares, or for the most that the file may have.
            Err(code) if code == DESTINATION_TOO_SMALL => {
                return Err(match frame.content {
                    Some(declared) => CodecError::zstd_frame_size(frame.offset, declared),
                    None => budget.exceeded(budget.max.saturating_add(1)),
                });
            }
            Err(code) => return Err(budget.damaged(&zstd::zstd_safe::get_error_name(code))),
            Ok(_) if out.len() as u64 > budget.max => return Err(budget.exceeded(out.len() as u64)),
            Ok(written) => {
                if let Some(declared) = frame.content.filter(|content| *content != written as u64) {
                    return Err(CodecError::zstd_frame_size(frame.offset, declared));
                }
            }
        }
        offset += frame.bytes.len();
    }
    Ok(out)
}

/// The zstd error code for a full output buffer: `-ZSTD_error_dstSize_tooSmall`, stable since 1.3.1.
const DESTINATION_TOO_SMALL: usize = 70_usize.wrapping_neg();

fn snappy(zip: &[u8], budget: &Budget) -> Result<Vec<u8>, CodecError> {
    let length = snap::raw::decompress_len(zip).map_err(|error| {
        // A length that is cut off is a truncation; five bytes that are not a valid length are damage.
        if zip.len() < 5 && zip.iter().all(|byte| byte & 0x80 != 0) {
            budget.truncated()
        } else {
            budget.damaged(&error)
        }
    })? as u64;
    if length > budget.zip_bytes.saturating_mul(SNAPPY_RATIO) {
        // A block of this size cannot expand to that length: the rest of the file is missing.
        return Err(budget.truncated());
    }
    if length > budget.max {
        return Err(budget.exceeded(length));
    }
    let mut out = Vec::new();
    let room = usize::try_from(length).unwrap_or(usize::MAX);
    try_reserve(&mut out, room)?;
    out.resize(room, 0);
    snap::raw::Decoder::new()
        .decompress(zip, &mut out)
        .map_err(|error| match error {
            // All declared bytes are present, and more elements follow.
            snap::Error::Literal { dst_len: 0, .. } | snap::Error::CopyWrite { dst_len: 0, .. } => {
                CodecError::too_long(Algorithm::Snappy, length)
            }
            snap::Error::HeaderMismatch { .. } | snap::Error::CopyRead { .. } => budget.truncated(),
            snap::Error::Literal { len, src_len, .. } if len > src_len => budget.truncated(),
            other => budget.damaged(&other),
        })?;
    Ok(out)
}

/// How many members or streams a file may have regardless of its size.
const FREE_MEMBERS: u64 = 1000;
/// How many raw bytes allow for one more member.
const MEMBER_BYTES: u64 = 4096;

/// The result of one step of a streaming decoder.
struct Step {
    consumed: usize,
    written: usize,
    done: bool,
}

/// A streaming decoder for one member of a file.
trait Member: Sized {
    /// The first bytes of every member.
    const MAGIC: &'static [u8];

    fn new() -> Self;

    /// Reads from `input` and writes to `output`, which is never empty.
    fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, String>;
}

fn members<M: Member>(zip: &[u8], budget: &Budget) -> Result<Vec<u8>, CodecError> {
    if !zip.starts_with(M::MAGIC) {
        return Err(if M::MAGIC.starts_with(zip) {
            budget.truncated()
        } else {
            CodecError::magic(Some(budget.algorithm), zip)
        });
    }
    let mut out = Output {
        buffer: Vec::new(),
        filled: 0,
    };
    let mut rest = zip;
    let mut count = 0_u64;
    while !rest.is_empty() {
        if count > 0 && (M::MAGIC.is_empty() || !rest.starts_with(M::MAGIC)) {
            let offset = (zip.len() - rest.len()) as u64;
            let bytes = budget.zip_bytes;
            return Err(CodecError::trailing(budget.algorithm, offset, bytes));
        }
        // Starting a member costs time and memory even if it contains little: a bzip2 stream of 14 bytes takes 4 MB. No
        // writer creates members that small.
        count += 1;
        if count > FREE_MEMBERS + out.filled as u64 / MEMBER_BYTES {
            return Err(budget.damaged(&format!(
                "{count} members hold no more than {} bytes",
                out.filled
            )));
        }
        let mut member = M::new();
        loop {
            let step = out.step(&mut member, rest, budget)?;
            rest = rest.get(step.consumed..).unwrap_or_default();
            if step.done {
                break;
            }
            if step.consumed == 0 && step.written == 0 {
                return Err(if rest.is_empty() {
                    budget.truncated()
                } else {
                    budget.damaged(&"the decoder is stuck")
                });
            }
        }
    }
    out.buffer.truncate(out.filled);
    Ok(out.buffer)
}

/// A buffer that grows as it fills.
struct Output {
    // The whole buffer is initialised; the output ends at `filled`.
    buffer: Vec<u8>,
    filled: usize,
}

impl Output {
    fn step(
        &mut self,
        member: &mut impl Member,
        input: &[u8],
        budget: &Budget,
    ) -> Result<Step, CodecError> {
        if self.filled as u64 >= budget.max {
            // No more output is allowed, but the decoder may not have seen the end of the member yet.
            let mut probe = [0];
            let step = member
                .step(input, &mut probe)
                .map_err(|reason| budget.damaged(&reason))?;
            return match step.written {
                0 => Ok(step),
                _ => Err(budget.exceeded(budget.max.saturating_add(1))),
            };
        }
        if self.filled == self.buffer.len() {
            let more = FIRST_BYTES
                .max(self.filled as u64)
                .min(budget.max - self.filled as u64);
            let more = usize::try_from(more).unwrap_or(usize::MAX);
            try_reserve(&mut self.buffer, more)?;
            self.buffer.resize(self.filled.saturating_add(more), 0);
        }
        let room = self.buffer.get_mut(self.filled..).unwrap_or_default();
        let step = member
            .step(input, room)
            .map_err(|reason| budget.damaged(&reason))?;
        self.filled += step.written;
        Ok(step)
    }
}

struct GzipMember(flate2::Decompress);

impl Member for GzipMember {
    const MAGIC: &'static [u8] = &[0x1f, 0x8b];

    fn new() -> Self {
        Self(flate2::Decompress::new_gzip(15))
    }

    fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, String> {
        let (before_in, before_out) = (self.0.total_in(), self.0.total_out());
        let status = self
            .0
            .decompress(input, output, flate2::FlushDecompress::None)
            .map_err(|error| error.to_string())?;
        Ok(Step {
            consumed: difference(self.0.total_in(), before_in),
            written: difference(self.0.total_out(), before_out),
            done: status == flate2::Status::StreamEnd,
        })
    }
}

struct Bzip2Stream(bzip2::Decompress);

impl Member for Bzip2Stream {
    const MAGIC: &'static [u8] = b"BZh";

    fn new() -> Self {
        Self(bzip2::Decompress::new(false))
    }

    fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, String> {
        let (before_in, before_out) = (self.0.total_in(), self.0.total_out());
        let status = self
            .0
            .decompress(input, output)
            .map_err(|error| error.to_string())?;
        Ok(Step {
            consumed: difference(self.0.total_in(), before_in),
            written: difference(self.0.total_out(), before_out),
            done: status == bzip2::Status::StreamEnd,
        })
    }
}

struct BrotliStream(Box<BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>>);

impl Member for BrotliStream {
    const MAGIC: &'static [u8] = &[];

    fn new() -> Self {
        // Strict: refuses the large-window extension, whose windows have up to 1 GiB.
        Self(Box::new(BrotliState::new_strict(
            StandardAlloc::default(),
            StandardAlloc::default(),
            StandardAlloc::default(),
        )))
    }

    fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, String> {
        // The decoder refuses 2³² bytes in one call.
        let input = input.get(..1 << 30).unwrap_or(input);
        let (mut available_in, mut consumed) = (input.len(), 0);
        let (mut available_out, mut written, mut total) = (output.len(), 0, 0);
        let result = BrotliDecompressStream(
            &mut available_in,
            &mut consumed,
            input,
            &mut available_out,
            &mut written,
            output,
            &mut total,
            &mut self.0,
        );
        match result {
            BrotliResult::ResultFailure => Err(format!("{:?}", self.0.error_code)),
            BrotliResult::ResultSuccess => Ok(Step {
                consumed,
                written,
                done: true,
            }),
            BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => Ok(Step {
                consumed,
                written,
                done: false,
            }),
        }
    }
}

fn difference(after: u64, before: u64) -> usize {
    usize::try_from(after.saturating_sub(before)).unwrap_or(usize::MAX)
}
