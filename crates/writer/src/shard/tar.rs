//! Tar shards.

use std::sync::Arc;

use shardmill_core::Limits;
use shardmill_webdataset::{
    FieldEntry, FieldSet, FileInfo, GROUP_BYTES, IndexShard, SampleEntry, TarCompression, assemble,
    offsets_name, read_sample, sample_groups, trailer_bytes, write_offsets,
};

use super::{Data, Laid, Part, Room, ShardKind, ShardWork, StoredFiles, Zipped, segments};
use crate::error::WriteError;
use crate::form::TarForm;
use crate::pack::CutShard;

pub(super) fn lay(form: &TarForm, cut: CutShard) -> Result<Laid, WriteError> {
    let mut offsets = Vec::with_capacity(cut.sizes.len() + 1);
    let mut end = 0_u64;
    offsets.push(end);
    for size in &cut.sizes {
        end = end.saturating_add(u64::from(*size));
        offsets.push(end);
    }
    let fields = fields(form, &cut)?;
    let mut parts: Vec<Part> = cut
        .pieces
        .into_iter()
        .map(|piece| Part::Chunk(piece.chunk, piece.range))
        .collect();
    let bytes = trailer_bytes(end);
    let trailer = vec![0; usize::try_from(bytes).unwrap_or_default()];
    let whole = 0..trailer.len();
    parts.push(Part::Head(Arc::new(trailer), whole));
    let raw_bytes = end.saturating_add(bytes);
    let segments = if form.compression.is_some() {
        let groups = sample_groups(&offsets, raw_bytes, GROUP_BYTES);
        let lengths = groups
            .into_iter()
            .map(|group| usize::try_from(group.end - group.start).unwrap_or(usize::MAX));
        segments(parts, lengths)
    } else {
        vec![parts]
    };
    Ok(Laid {
        segments,
        side: Some(write_offsets(&offsets)),
        fields: Some(fields),
    })
}

/// Returns the fields of the samples of a shard. Samples are inspected only if fields can be missing.
fn fields(form: &TarForm, cut: &CutShard) -> Result<Arc<FieldSet>, WriteError> {
    if form.fields.sometimes.is_empty() {
        return Ok(Arc::clone(&form.fields));
    }
    let limits = Limits::default();
    let mut sizes = cut.sizes.iter();
    let mut found = Vec::new();
    let mut samples = Vec::with_capacity(cut.sizes.len());
    for piece in &cut.pieces {
        let mut rest = piece.chunk.slice(piece.range.clone());
        while !rest.is_empty() {
            let size = sizes.next().copied().unwrap_or_default();
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            let (sample, after) = rest.split_at(size.min(rest.len()));
            rest = after;
            read_sample(0, sample, &mut found, &limits).map_err(|_| WriteError::Bug {
                what: "a sample that was just encoded cannot be read",
            })?;
            samples.push(SampleEntry {
                key: "".into(),
                begin: 0,
                end: 0,
                fields: found
                    .drain(..)
                    .map(|field| FieldEntry {
                        name: field.name.into(),
                        member: "".into(),
                        offset: field.offset,
                        bytes: 0,
                    })
                    .collect(),
            });
        }
    }
    Ok(Arc::new(FieldSet::of(&samples)))
}

/// Combines compressed pieces into one file with their table.
pub(super) fn join(
    compression: TarCompression,
    shard: u64,
    zipped: Vec<Zipped>,
) -> Result<Vec<Vec<u8>>, WriteError> {
    let pieces: Vec<_> = zipped
        .into_iter()
        .filter_map(|zipped| match zipped {
            Zipped::Piece(piece) => Some(piece),
            Zipped::Bytes(_) => None,
        })
        .collect();
    let file = assemble(compression, &pieces)
        .map_err(|source| WriteError::TarCompression { shard, source })?;
    Ok(vec![file])
}

impl ShardWork {
    /// Names the files, writes the offset table, and creates the index entry.
    pub(super) fn finish_tar(
        &self,
        form: &TarForm,
        kind: &ShardKind,
        room: &mut Room<'_>,
        data: Data,
        files: &mut StoredFiles<'_>,
    ) -> Result<IndexShard, WriteError> {
        let raw_name = form.pattern.name(self.shard, None);
        let offsets_name = offsets_name(&raw_name);
        let file = |name: String, (bytes, hashes)| FileInfo {
            basename: name.into(),
            bytes,
            hashes,
        };
        let (raw_data, zip_data) = match data {
            Data::Raw(temp, hashes) => {
                let stored = files.add(&raw_name, temp, hashes);
                (file(raw_name, stored), None)
            }
            Data::Zipped(raw_hashes, temp, zip_hashes) => {
                let zip_name = form.pattern.name(self.shard, form.compression);
                let stored = files.add(&zip_name, temp, zip_hashes);
                (
                    file(raw_name, (self.raw_bytes, raw_hashes)),
                    Some(file(zip_name, stored)),
                )
            }
        };
        let offsets = match &self.side {
            Some(bytes) => {
                let (temp, hashes) = self.write_side(kind, room, bytes)?;
                let stored = files.add(&offsets_name, temp, hashes);
                Some(file(offsets_name, stored))
            }
            None => None,
        };
        Ok(IndexShard {
            fields: self.fields.clone().unwrap_or_default(),
            samples: self.samples,
            compression: form.compression,
            raw_data,
            zip_data,
            offsets,
        })
    }
}
