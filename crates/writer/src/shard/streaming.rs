//! MosaicML Streaming shards.

use std::sync::Arc;

use shardmill_core::{Error, Format, Limits};
use shardmill_mds::{
    Compression, FileInfo, ShardConfig, ShardEntry, basename, encode_header, encode_meta,
};

use super::files::{Files, hash_all};
use super::slices::{Codec, Compressed, Layout, Scratch, Side, Slice, segments};
use crate::error;
use crate::form::ShardForm;
use crate::pack::{CutShard, ShardSpan};

/// The bytes that are the same in every shard.
#[derive(Debug, Default)]
pub(super) struct Texts {
    config_json: String,
    xsv_header: Vec<u8>,
}

impl Texts {
    pub(super) fn new(form: &ShardForm) -> Self {
        match form {
            ShardForm::Streaming(config) => Self {
                config_json: config.to_json(),
                xsv_header: config.xsv_header(),
            },
            ShardForm::Tar(_) | ShardForm::Table(_) => Self::default(),
        }
    }
}

pub(super) fn lay_out(config: &ShardConfig, texts: &Texts, cut: CutShard) -> Result<Layout, Error> {
    let fail = |source| error::not_encoded(cut.span.shard, source);
    let sizes = cut.sizes.iter().copied();
    let mut head = Vec::new();
    let mut meta = None;
    if config.format() == Format::Mds {
        encode_header(config, &texts.config_json, sizes, &mut head).map_err(fail)?;
    } else {
        head.extend_from_slice(&texts.xsv_header);
        let mut bytes = Vec::new();
        let first = u64::try_from(head.len()).unwrap_or(u64::MAX);
        encode_meta(&texts.config_json, first, sizes, &mut bytes).map_err(fail)?;
        meta = Some(bytes);
    }
    drop(cut.sizes);
    let samples = cut.pieces.into_iter();
    let samples = samples.map(|piece| Slice::Chunk(piece.chunk, piece.range));
    let slices: Vec<Slice> = std::iter::once(Slice::frame(head)).chain(samples).collect();
    let compression = config.compression.as_ref();
    Ok(Layout {
        segments: match compression.and_then(Compression::segment_bytes) {
            Some(bytes) => segments(slices, std::iter::repeat(bytes)),
            None => vec![slices],
        },
        side: Side {
            file: meta,
            ..Side::default()
        },
        table: None,
    })
}

/// Merges the frames that the original reader would not find.
///
/// COMPAT: before the reader's `zstd` package (1.5.7) decompresses, it adds up the sizes that the frames declare. If a
/// frame is at least as long as all frames after it together, the package stops after the next frame. So all frames
/// after such a frame are merged into one.
pub(super) fn join(
    compression: Compression,
    shard: u64,
    compressed: Vec<Compressed>,
    scratch: &mut Scratch,
) -> Result<Vec<Vec<u8>>, Error> {
    let fail = |source| error::not_compressed(shard, source);
    let mut frames: Vec<Vec<u8>> = compressed.into_iter().filter_map(into_bytes).collect();
    if compression.segment_bytes().is_none() {
        return Ok(frames);
    }
    // The data was compressed by this process, so expansion limits do not apply.
    let mut limits = Limits::default();
    (limits.expansion.bytes, limits.expansion.ratio) = (u64::MAX, u64::MAX);
    while let Some(lost) = first_lost(&frames) {
        let mut raw = Vec::new();
        for frame in frames.drain(lost - 1..) {
            let bytes = compression.decompress(&frame, None, &limits);
            raw.append(&mut bytes.map_err(fail)?);
        }
        frames.push(compress(compression, &raw, shard, scratch)?);
    }
    Ok(frames)
}

fn compress(
    compression: Compression,
    raw: &[u8],
    shard: u64,
    scratch: &mut Scratch,
) -> Result<Vec<u8>, Error> {
    let compressed = scratch.compress(Codec::Streaming(compression), &[raw], shard)?;
    Ok(into_bytes(compressed).unwrap_or_default())
}

fn into_bytes(compressed: Compressed) -> Option<Vec<u8>> {
    match compressed {
        Compressed::Bytes(bytes) => Some(bytes),
        Compressed::Piece(_) => None,
    }
}

/// Returns the first frame that the reader does not find. It is the second frame after one that is at least as long as
/// all frames after it together.
fn first_lost(frames: &[Vec<u8>]) -> Option<usize> {
    let mut rest: usize = frames.iter().map(Vec::len).sum();
    for (at, frame) in frames.iter().enumerate() {
        rest -= frame.len();
        if frame.len() >= rest {
            return (at + 2 < frames.len()).then_some(at + 2);
        }
    }
    None
}

/// Writes the meta file with the offsets, and creates the index entry. `raw_data` and `zip_data` are the data files.
pub(super) fn finish(
    config: &Arc<ShardConfig>,
    span: &ShardSpan,
    (raw_data, zip_data): (FileInfo, Option<FileInfo>),
    meta: Option<&[u8]>,
    files: &mut Files<'_>,
    scratch: &mut Scratch,
) -> Result<ShardEntry, Error> {
    let name = |compression| basename(span.shard, config.format(), true, compression);
    let (mut raw_meta, mut zip_meta) = (None, None);
    match (meta, &config.compression) {
        (None, _) => {}
        (Some(meta), None) => raw_meta = Some(files.write(name(None), [meta])?),
        (Some(meta), Some(compression)) => {
            raw_meta = Some(FileInfo {
                basename: name(None).into(),
                bytes: u64::try_from(meta.len()).unwrap_or(u64::MAX),
                hashes: hash_all(&config.hashes, [meta]),
            });
            let compressed = compress(*compression, meta, span.shard, scratch)?;
            zip_meta = Some(files.write(name(Some(compression)), [compressed])?);
        }
    }
    Ok(ShardEntry {
        config: Arc::clone(config),
        samples: span.samples,
        raw_data,
        zip_data,
        raw_meta,
        zip_meta,
    })
}
