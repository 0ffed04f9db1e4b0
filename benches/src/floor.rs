//! Performs only the unavoidable work of a conversion: the baseline that `convert` is measured against.
//!
//! ```text
//! floor INPUT.parquet OUT_DIR THREADS none|zstd3 [sync]
//! ```
//!
//! Each thread takes the next row group and decodes it in batches of 1 MiB. It copies their rows once into the sample
//! layout of MDS. With `zstd3`, it hashes the copy (SHA-256) while it is in the CPU cache, and compresses it (level 3)
//! in frames of 8 MiB. Then it writes the bytes to a file. With `sync`, it waits until the bytes are on the disk, as a
//! program that promises durability must.
//!
//! It does not cut shards at a size, order rows, write an index or check values. The decoder, the hash and the
//! compressor are those of `shardmill`.

use std::error::Error;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{Array, ArrayRef, AsArray as _, RecordBatch};
use arrow::datatypes::{DataType, Float64Type, Int32Type, Int64Type};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReaderBuilder};
use sha2::{Digest as _, Sha256};

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The approximate size of a zstd frame.
const FRAME_BYTES: usize = 8 << 20;
/// The approximate size of a batch, which stays in the CPU cache between decoding and copying.
const BATCH_BYTES: i64 = 1 << 20;

/// The memory layout of a column's values.
enum Values<'a> {
    Fixed { bytes: &'a [u8], width: usize },
    Variable { offsets: &'a [i32], bytes: &'a [u8] },
}

struct Job {
    input: PathBuf,
    out: PathBuf,
    metadata: ArrowReaderMetadata,
    compress: bool,
    sync: bool,
    next: AtomicUsize,
}

fn main() -> Fallible<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (input, out, threads, mode, sync) = match arguments.as_slice() {
        [input, out, threads, mode] => (input, out, threads, mode, false),
        [input, out, threads, mode, sync] if sync == "sync" => (input, out, threads, mode, true),
        _ => return Err("usage: floor INPUT.parquet OUT_DIR THREADS none|zstd3 [sync]".into()),
    };
    let threads: usize = threads.parse()?;
    let input = PathBuf::from(input);
    let metadata = ArrowReaderMetadata::load(&File::open(&input)?, Default::default())?;
    let job = Job {
        input,
        out: out.into(),
        metadata,
        compress: mode == "zstd3",
        sync,
        next: AtomicUsize::new(0),
    };
    std::fs::create_dir_all(&job.out)?;
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(|| work(&job))).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| "a thread panicked")?)
    })?;
    if job.sync {
        File::open(&job.out)?.sync_all()?;
    }
    Ok(())
}

fn work(job: &Job) -> Fallible<()> {
    let mut compressor = zstd::bulk::Compressor::new(3)?;
    let mut raw = Vec::with_capacity(2 * FRAME_BYTES);
    let mut zip = vec![0; zstd::zstd_safe::compress_bound(2 * FRAME_BYTES)];
    loop {
        let group = job.next.fetch_add(1, Ordering::Relaxed);
        if group >= job.metadata.metadata().num_row_groups() {
            return Ok(());
        }
        let facts = job.metadata.metadata().row_group(group);
        let row_bytes = facts.total_byte_size().max(1) / facts.num_rows().max(1);
        let batch_rows = usize::try_from(BATCH_BYTES / row_bytes.max(1))?.clamp(16, 8192);
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(
            File::open(&job.input)?,
            job.metadata.clone(),
        )
        .with_row_groups(vec![group])
        .with_batch_size(batch_rows)
        .build()?;
        let mut out = File::create(job.out.join(format!("part.{group:05}")))?;
        let mut hash = Sha256::new();
        let mut batches = reader.peekable();
        while let Some(batch) = batches.next() {
            let before = raw.len();
            copy(&batch?, &mut raw)?;
            if !job.compress {
                out.write_all(&raw)?;
                raw.clear();
                continue;
            }
            hash.update(raw.get(before..).unwrap_or_default());
            if raw.len() >= FRAME_BYTES || batches.peek().is_none() {
                let written = compressor.compress_to_buffer(&raw, &mut zip)?;
                out.write_all(zip.get(..written).unwrap_or_default())?;
                raw.clear();
            }
        }
        if job.compress {
            std::fs::write(
                job.out.join(format!("part.{group:05}.sha256")),
                hash.finalize(),
            )?;
        }
        if job.sync {
            out.sync_all()?;
        }
    }
}

/// Copies each row once: its lengths, then its values, columns sorted by name.
fn copy(batch: &RecordBatch, raw: &mut Vec<u8>) -> Fallible<()> {
    let schema = batch.schema();
    let mut names: Vec<&String> = schema.fields().iter().map(|field| field.name()).collect();
    names.sort();
    let arrays: Vec<&ArrayRef> = names
        .iter()
        .filter_map(|name| batch.column_by_name(name))
        .collect();
    let columns: Vec<Values<'_>> = arrays
        .iter()
        .map(|array| values(array))
        .collect::<Fallible<_>>()?;
    for row in 0..batch.num_rows() {
        for column in &columns {
            if let Values::Variable { offsets, .. } = column {
                let length = offsets[row + 1] - offsets[row];
                raw.extend_from_slice(&length.to_le_bytes());
            }
        }
        for column in &columns {
            raw.extend_from_slice(match column {
                Values::Fixed { bytes, width } => &bytes[row * width..(row + 1) * width],
                Values::Variable { offsets, bytes } => {
                    &bytes[usize::try_from(offsets[row])?..usize::try_from(offsets[row + 1])?]
                }
            });
        }
    }
    Ok(())
}

fn values(array: &ArrayRef) -> Fallible<Values<'_>> {
    Ok(match array.data_type() {
        DataType::Utf8 => {
            let text = array.as_string::<i32>();
            Values::Variable {
                offsets: text.value_offsets(),
                bytes: text.value_data(),
            }
        }
        DataType::Binary => {
            let binary = array.as_binary::<i32>();
            Values::Variable {
                offsets: binary.value_offsets(),
                bytes: binary.value_data(),
            }
        }
        DataType::FixedSizeList(_, length) => {
            let list = array.as_fixed_size_list();
            let Values::Fixed { bytes, width } = values(list.values())? else {
                return Err("lists of numbers only".into());
            };
            Values::Fixed {
                bytes,
                width: width * usize::try_from(*length)?,
            }
        }
        DataType::Int32 => Values::Fixed {
            bytes: array.as_primitive::<Int32Type>().values().inner(),
            width: 4,
        },
        DataType::Int64 => Values::Fixed {
            bytes: array.as_primitive::<Int64Type>().values().inner(),
            width: 8,
        },
        DataType::Float64 => Values::Fixed {
            bytes: array.as_primitive::<Float64Type>().values().inner(),
            width: 8,
        },
        other => return Err(format!("no layout for {other}").into()),
    })
}
