//! Tar shards.

use std::sync::Arc;

use shardmill_core::{Error, Limits};
use shardmill_webdataset::{
    FieldEntry, FieldSet, FileInfo, GROUP_BYTES, IndexShard, SampleEntry, TarCompression, assemble,
    offsets_name, read_sample, sample_groups, trailer_bytes, write_offsets,
};

use super::files::Files;
use super::slices::{Compressed, Layout, Side, Slice, segments};
use crate::error;
use crate::form::TarForm;
use crate::pack::{CutShard, ShardSpan};

pub(super) fn lay_out(form: &TarForm, cut: CutShard) -> Result<Layout, Error> {
    let mut offsets = Vec::with_capacity(cut.sizes.len() + 1);
    let mut end = 0_u64;
    offsets.push(end);
    for size in &cut.sizes {
        end = end.saturating_add(u64::from(*size));
        offsets.push(end);
    }
    let fields = fields(form, &cut)?;
    let trailer = trailer_bytes(end);
    let raw_bytes = end.saturating_add(trailer);
    let trailer = Slice::frame(vec![0; usize::try_from(trailer).unwrap_or_default()]);
    let samples = cut.pieces.into_iter();
    let samples = samples.map(|piece| Slice::Chunk(piece.chunk, piece.range));
    let slices: Vec<Slice> = samples.chain([trailer]).collect();
    let segments = if form.compression.is_some() {
        let groups = sample_groups(&offsets, raw_bytes, GROUP_BYTES).into_iter();
        let lengths =
            groups.map(|group| usize::try_from(group.end - group.start).unwrap_or(usize::MAX));
        segments(slices, lengths)
    } else {
        vec![slices]
    };
    Ok(Layout {
        segments,
        side: Side {
            file: Some(write_offsets(&offsets)),
            fields,
        },
        table: None,
    })
}

/// Returns the fields of the samples of a shard. Samples are inspected only if fields can be missing.
fn fields(form: &TarForm, cut: &CutShard) -> Result<Arc<FieldSet>, Error> {
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
            read_sample(0, sample, &mut found, &limits)
                .map_err(|_| error::internal("a sample that was just encoded cannot be read"))?;
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
    compressed: Vec<Compressed>,
) -> Result<Vec<Vec<u8>>, Error> {
    let pieces = compressed
        .into_iter()
        .filter_map(|compressed| match compressed {
            Compressed::Piece(piece) => Some(piece),
            Compressed::Bytes(_) => None,
        });
    let pieces: Vec<_> = pieces.collect();
    let file =
        assemble(compression, &pieces).map_err(|source| error::not_compressed(shard, source))?;
    Ok(vec![file])
}

/// Writes the offset table, and creates the index entry. `raw_data` and `zip_data` are the data files.
pub(super) fn finish(
    form: &TarForm,
    span: &ShardSpan,
    (raw_data, zip_data): (FileInfo, Option<FileInfo>),
    side: &Side,
    files: &mut Files<'_>,
) -> Result<IndexShard, Error> {
    let offsets = match &side.file {
        Some(bytes) => Some(files.write(offsets_name(&raw_data.basename), [bytes])?),
        None => None,
    };
    Ok(IndexShard {
        fields: Arc::clone(&side.fields),
        samples: span.samples,
        compression: form.compression,
        raw_data,
        zip_data,
        offsets,
    })
}
