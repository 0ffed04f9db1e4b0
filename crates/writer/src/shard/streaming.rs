//! MosaicML Streaming shards.

use std::sync::Arc;

use shardmill_core::{Format, Limits};
use shardmill_mds::{
    Compression, FileHashes, FileInfo, ShardConfig, ShardEntry, basename, encode_header,
    encode_meta,
};
use shardmill_storage::TempFile;

use super::{
    Codec, Data, Laid, Part, Room, Scratch, ShardKind, ShardWork, StoredFiles, Zipped, segments,
    update_stepwise,
};
use crate::error::WriteError;
use crate::form::ShardForm;
use crate::pack::CutShard;

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
            ShardForm::Tar(_) => Self::default(),
        }
    }
}

pub(super) fn lay(config: &ShardConfig, texts: &Texts, cut: CutShard) -> Result<Laid, WriteError> {
    let fail = |source| WriteError::Format {
        shard: cut.shard,
        source,
    };
    let sizes = cut.sizes.iter().copied();
    let mut head = Vec::new();
    let mut side = None;
    if config.format() == Format::Mds {
        encode_header(config, &texts.config_json, sizes, &mut head).map_err(fail)?;
    } else {
        head.extend_from_slice(&texts.xsv_header);
        let mut bytes = Vec::new();
        let first = u64::try_from(head.len()).unwrap_or(u64::MAX);
        encode_meta(&texts.config_json, first, sizes, &mut bytes).map_err(fail)?;
        side = Some(bytes);
    }
    drop(cut.sizes);
    let head_len = head.len();
    let mut parts = vec![Part::Head(Arc::new(head), 0..head_len)];
    parts.extend(
        cut.pieces
            .into_iter()
            .map(|piece| Part::Chunk(piece.chunk, piece.range)),
    );
    let segment_bytes = config
        .compression
        .as_ref()
        .and_then(Compression::segment_bytes);
    let segments = match segment_bytes {
        Some(bytes) => segments(parts, std::iter::repeat(bytes)),
        None => vec![parts],
    };
    Ok(Laid {
        segments,
        side,
        fields: None,
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
    zipped: Vec<Zipped>,
    scratch: &mut Scratch,
) -> Result<Vec<Vec<u8>>, WriteError> {
    let fail = |source| WriteError::Compression { shard, source };
    let mut frames: Vec<Vec<u8>> = zipped.into_iter().filter_map(Zipped::into_bytes).collect();
    if compression.segment_bytes().is_none() {
        return Ok(frames);
    }
    // The data was compressed by this process, so expansion limits do not apply.
    let mut limits = Limits::default();
    (limits.expansion_bytes, limits.expansion_ratio) = (u64::MAX, u64::MAX);
    while let Some(lost) = first_lost(&frames) {
        let mut raw = Vec::new();
        for frame in frames.drain(lost - 1..) {
            let bytes = compression.decompress(&frame, None, &limits);
            raw.append(&mut bytes.map_err(fail)?);
        }
        frames.push(compress(compression, raw, shard, scratch)?);
    }
    Ok(frames)
}

fn compress(
    compression: Compression,
    raw: Vec<u8>,
    shard: u64,
    scratch: &mut Scratch,
) -> Result<Vec<u8>, WriteError> {
    let whole = 0..raw.len();
    let part = Part::Head(Arc::new(raw), whole);
    let zipped = scratch.compress(Codec::Streaming(compression), &[part], shard)?;
    Ok(zipped.into_bytes().unwrap_or_default())
}

impl Zipped {
    fn into_bytes(self) -> Option<Vec<u8>> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Piece(_) => None,
        }
    }
}

/// Returns the first frame that the reader does not find. It is the second frame after one that is at least as long as
/// all frames after it together.
fn first_lost(frames: &[Vec<u8>]) -> Option<usize> {
    let mut behind: usize = frames.iter().map(Vec::len).sum();
    for (at, frame) in frames.iter().enumerate() {
        behind -= frame.len();
        if frame.len() >= behind {
            return (at + 2 < frames.len()).then_some(at + 2);
        }
    }
    None
}

impl ShardWork {
    /// Names the files, writes the meta file with the offsets, and creates the index entry.
    pub(super) fn finish_streaming(
        &self,
        config: &Arc<ShardConfig>,
        kind: &ShardKind,
        room: &mut Room<'_>,
        data: Data,
        files: &mut StoredFiles<'_>,
    ) -> Result<ShardEntry, WriteError> {
        let format = config.format();
        let compression = config.compression.as_ref();
        let mut stored = |name: String, temp: TempFile, hashes: FileHashes| {
            let (bytes, hashes) = files.add(&name, temp, hashes);
            FileInfo {
                basename: name.into(),
                bytes,
                hashes,
            }
        };
        let raw_name = basename(self.shard, format, false, None);
        let (raw_data, zip_data) = match data {
            Data::Raw(temp, hashes) => (stored(raw_name, temp, hashes), None),
            Data::Zipped(raw_hashes, temp, zip_hashes) => {
                let raw = FileInfo {
                    basename: raw_name.into(),
                    bytes: self.raw_bytes,
                    hashes: raw_hashes,
                };
                let zip_name = basename(self.shard, format, false, compression);
                (raw, Some(stored(zip_name, temp, zip_hashes)))
            }
        };
        let (mut raw_meta, mut zip_meta) = (None, None);
        if let Some(meta) = &self.side {
            let name = basename(self.shard, format, true, None);
            if let Some(compression) = compression {
                let mut hashers = super::hashers(kind.hashes());
                update_stepwise(meta, &mut hashers, |_| Ok(()))?;
                let zipped = compress(*compression, meta.clone(), self.shard, room.scratch)?;
                let (temp, hashes) = self.write_side(kind, room, &zipped)?;
                raw_meta = Some(FileInfo {
                    basename: name.into(),
                    bytes: u64::try_from(meta.len()).unwrap_or(u64::MAX),
                    hashes: super::finish(hashers),
                });
                let zip_name = basename(self.shard, format, true, Some(compression));
                zip_meta = Some(stored(zip_name, temp, hashes));
            } else {
                let (temp, hashes) = self.write_side(kind, room, meta)?;
                raw_meta = Some(stored(name, temp, hashes));
            }
        }
        Ok(ShardEntry {
            config: Arc::clone(config),
            samples: self.samples,
            raw_data,
            zip_data,
            raw_meta,
            zip_meta,
        })
    }
}
