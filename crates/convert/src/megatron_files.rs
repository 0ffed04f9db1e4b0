//! Writes the tokens of a conversion to Megatron: one file, in the order of the source, and then its index.

use std::collections::VecDeque;
use std::io::Write as _;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use arrow::array::Array as _;
use shardmill_core::{DType, Progress};
use shardmill_mds::{FileHashes, FileInfo, HashAlgo, Hasher};
use shardmill_records::IndexBuilder;
use shardmill_storage::{PublishMode, TempFile};
use shardmill_writer::{
    ColumnEncoder, DatasetIndex, Input as _, MEGATRON_FILES, RowEncoder, TableFile, TableFormat,
    TableIndex, WriteError, Written, leaf_type,
};

use crate::error::ConvertError;
use crate::input::SourceInput;
use crate::megatron::{Documents, tokens_of};
use crate::plan::ConvertPlan;
use crate::target::{Target, WORK_FOLDER, in_folder};

/// The number of encoded batches of each unit that wait for those before them.
const WAITING: usize = 2;

/// Encoded rows of a split.
struct Piece {
    split: usize,
    documents: Documents,
    input_bytes: u64,
    dropped: u64,
}

/// A file of tokens that is being written, and its index.
struct TokenFile {
    temp: TempFile,
    hashers: Vec<Hasher>,
    index: IndexBuilder,
}

impl TokenFile {
    fn new(target: Target<'_>, hashes: &[HashAlgo], tokens: DType) -> Result<Self, ConvertError> {
        Ok(Self {
            temp: target.destination.temp_file(Some(WORK_FOLDER))?,
            hashers: hashers(hashes),
            index: IndexBuilder::new(tokens),
        })
    }

    fn add(&mut self, documents: Documents) -> Result<(), ConvertError> {
        append(&mut self.temp, &mut self.hashers, &documents.bytes)?;
        for sequences in documents.lengths {
            for length in sequences {
                self.index.add_sequence(length);
            }
            self.index.end_document();
        }
        Ok(())
    }

    /// Publishes the tokens and then their index.
    fn publish(
        self,
        target: Target<'_>,
        (folder, names): (&str, &[String; 2]),
        hashes: &[HashAlgo],
    ) -> Result<TableIndex, ConvertError> {
        let documents = self.index.documents();
        let mut index = target.destination.temp_file(Some(WORK_FOLDER))?;
        let mut of_index = hashers(hashes);
        self.index
            .encode(|piece| append(&mut index, &mut of_index, piece))?;
        let [tokens_name, index_name] = names;
        let mut files = Vec::new();
        for (name, rows, temp, hashers) in [
            (tokens_name, documents, self.temp, self.hashers),
            (index_name, 0, index, of_index),
        ] {
            let bytes = temp.written();
            let path = in_folder(folder, name);
            target
                .destination
                .publish(temp, &path, PublishMode::Replace, &mut target.cancel())?;
            let hashes: FileHashes = hashers.into_iter().map(Hasher::finish).collect();
            files.push(TableFile {
                file: FileInfo {
                    basename: name.as_str().into(),
                    bytes,
                    hashes,
                },
                rows,
                raw_bytes: bytes,
                row_groups: Vec::new(),
            });
        }
        Ok(TableIndex {
            format: TableFormat::Megatron,
            files,
        })
    }
}

fn hashers(hashes: &[HashAlgo]) -> Vec<Hasher> {
    hashes.iter().map(|algo| Hasher::new(*algo)).collect()
}

fn append(temp: &mut TempFile, hashers: &mut [Hasher], bytes: &[u8]) -> Result<(), ConvertError> {
    for hasher in hashers {
        hasher.update(bytes);
    }
    temp.write_all(bytes)
        .map_err(|error| temp.write_error(error).into())
}

/// Writes the tokens of the whole source. An interrupted run begins again, because its file has no name yet.
pub(crate) fn write(
    plan: &ConvertPlan,
    target: Target<'_>,
    generation: Option<u64>,
    progress: &Progress,
) -> Result<Written, ConvertError> {
    let column = plan.encoder.columns().first();
    let field = column.and_then(ColumnEncoder::table_field);
    let tokens = field.and_then(|field| tokens_of(leaf_type(field.data_type()).0));
    let tokens = tokens.ok_or(WriteError::Bug("tokens of an unknown type"))?;
    let hashes = &plan.options.shards.hashes;
    let files = plan.folders.iter();
    let files = files.map(|_| TokenFile::new(target, hashes, tokens));
    let mut files = files.collect::<Result<Vec<_>, _>>()?;
    let (mut dropped, mut samples) = (0, 0);
    let input = plan.input();
    let read = |unit: usize, sender: &SyncSender<Result<Piece, ConvertError>>| {
        let read = read_unit(&input, &plan.encoder, tokens, unit, sender);
        if let Err(error) = read {
            // Without a receiver, an earlier error has ended the run.
            let _ = sender.send(Err(error));
        }
    };
    let jobs = plan.options.source.resources.jobs.max(1);
    in_order(plan.source.units().len(), jobs, read, |piece| {
        if progress.is_cancelled() {
            return Err(WriteError::Interrupted { samples }.into());
        }
        let rows = piece.documents.lengths.len() as u64;
        let file = files
            .get_mut(piece.split)
            .ok_or(WriteError::Bug("a split without a file"))?;
        file.add(piece.documents)?;
        samples += rows;
        dropped += piece.dropped;
        progress.add_samples(rows);
        progress.add_input_bytes(piece.input_bytes);
        Ok(())
    })?;
    let names = MEGATRON_FILES.map(|name| match generation {
        Some(generation) => plan.form.numbered(name, generation),
        None => name.to_owned(),
    });
    let mut indexes = Vec::with_capacity(files.len());
    for (file, folder) in files.into_iter().zip(&plan.folders) {
        let index = file.publish(target, (folder, &names), hashes)?;
        progress.add_shard(index.files.iter().map(|file| file.file.bytes).sum());
        indexes.push(DatasetIndex::Table(index));
    }
    Ok(Written {
        contents: vec![Default::default(); indexes.len()],
        indexes,
        units: Vec::new(),
        dedup_index: None,
        reused: 0,
        dropped,
        idle: Duration::ZERO,
    })
}

/// Encodes the batches of a unit and sends them.
fn read_unit(
    input: &SourceInput,
    encoder: &RowEncoder,
    tokens: DType,
    unit: usize,
    sender: &SyncSender<Result<Piece, ConvertError>>,
) -> Result<(), ConvertError> {
    let mut batches = input.open(unit)?;
    while let Some(batch) = batches.next()? {
        let describe_row = |row: usize| input.row_origin(unit, batch.rows.get(row));
        let rows = encoder.table_rows(&batch.batch, describe_row)?;
        let column = rows.column(0);
        let name = || rows.schema().field(0).name().clone();
        if let Some(row) = (0..column.len()).find(|row| column.is_null(*row)) {
            return Err(WriteError::Null {
                column: name(),
                row: describe_row(row),
                hint: "pass --nulls drop to skip the row".to_owned(),
            }
            .into());
        }
        let mut documents = Documents::default();
        documents
            .add(column, tokens)
            .map_err(|(row, reason)| WriteError::Value {
                column: name(),
                row: describe_row(row),
                reason: Box::new(reason),
            })?;
        let piece = Piece {
            split: batch.split,
            documents,
            input_bytes: batch.input_bytes,
            dropped: batch.dropped,
        };
        if sender.send(Ok(piece)).is_err() {
            break;
        }
    }
    Ok(())
}

/// Calls `read` for every number below `units`, on `jobs` threads, and `take` for all that they send, in the order of
/// the numbers.
fn in_order<T: Send>(
    units: usize,
    jobs: usize,
    read: impl Fn(usize, &SyncSender<Result<T, ConvertError>>) + Sync,
    mut take: impl FnMut(T) -> Result<(), ConvertError>,
) -> Result<(), ConvertError> {
    let read = &read;
    std::thread::scope(|scope| {
        let mut waiting = VecDeque::new();
        let mut numbers = 0..units;
        loop {
            while waiting.len() < jobs
                && let Some(number) = numbers.next()
            {
                let (sender, receiver) = sync_channel(WAITING);
                scope.spawn(move || read(number, &sender));
                waiting.push_back(receiver);
            }
            let Some(receiver) = waiting.pop_front() else {
                return Ok(());
            };
            for sent in receiver {
                take(sent?)?;
            }
        }
    })
}
