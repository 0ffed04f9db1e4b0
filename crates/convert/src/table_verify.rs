//! Verifies tables of Parquet files, and tokens of Megatron, against their index.

use shardmill_core::{Diagnostic, ErrorKind, Limits, Progress, escape, parallel};
use shardmill_dataset::{Problem, ReadTotals, VerifyOptions, VerifyReport};
use shardmill_mds::Hasher;
use shardmill_source::{SourceError, SourceKind, SourceOptions};
use shardmill_storage::{Folder, Location, RemoteOptions, StorageError};
use shardmill_writer::{TABLE_INDEX_NAME, TableFile, TableFormat, TableIndex, WriteError};

use crate::error::ConvertError;

/// The most bytes of a file in memory: enough for a store to send them at full bandwidth.
const PIECE: u64 = 16 << 20;

/// Checks every file of a table: its existence, its length and its hashes. With `deep`, also decodes every value. Returns
/// `None` if the location has no index of a table.
///
/// # Errors
///
/// Returns the error of an index that cannot be read, or `Interrupted`. Errors of files are in the report.
pub fn verify_table(
    location: &Location,
    options: &VerifyOptions,
    (limits, remote): (&Limits, &RemoteOptions),
    progress: &Progress,
) -> Result<Option<VerifyReport>, ConvertError> {
    // Whatever cannot be read here is not a table. Some stores deny access to objects that do not exist. The commands for
    // other datasets report what is there.
    let Ok(folder) = Folder::open(location, remote) else {
        return Ok(None);
    };
    let Ok(text) = folder.read(TABLE_INDEX_NAME, limits.index_bytes) else {
        return Ok(None);
    };
    let index = TableIndex::parse(&text, limits).map_err(|reason| {
        let source = shardmill_writer::IndexProblem::Table { reason };
        WriteError::Index {
            place: folder.path_of(TABLE_INDEX_NAME).display().to_string(),
            source: Box::new(source),
        }
    })?;
    let bytes = index.files.iter().map(|file| file.file.bytes);
    progress.set_totals(bytes.sum(), 0, index.files.len() as u64);
    let is_tokens = index.format == TableFormat::Megatron;
    let checked = parallel::map(index.files.len(), options.jobs.max(1), |at| {
        // INVARIANT: `map` counts up to the number of files.
        let file = &index.files[at];
        let mut read = ReadTotals::default();
        let mut checked = check(&folder, at, file, &mut read, progress);
        // An index of tokens is read with its tokens.
        if checked.is_ok() && options.deep && (file.rows > 0 || !is_tokens) {
            let path = location.join(&file.file.basename);
            checked = decode(&path, at, file, is_tokens, (limits, remote));
        }
        if progress.is_cancelled() {
            return Err(WriteError::Interrupted { samples: 0 });
        }
        progress.add_input_bytes(file.file.bytes.saturating_sub(read.stored_bytes));
        progress.add_shard(0);
        Ok((checked, read))
    })?;
    let mut report = VerifyReport {
        shards: match is_tokens {
            true => 1,
            false => index.files.len() as u64,
        },
        samples: index.rows(),
        deep: options.deep,
        read: ReadTotals {
            files: 1,
            stored_bytes: text.len() as u64,
            ..ReadTotals::default()
        },
        ..VerifyReport::default()
    };
    for (file, (checked, read)) in index.files.iter().zip(checked) {
        report.read.files += read.files;
        report.read.stored_bytes += read.stored_bytes;
        report.read.raw_bytes += read.raw_bytes;
        report.read.hashes += read.hashes;
        match checked {
            Ok(()) => report.sound_samples += file.rows,
            Err(problem) => {
                report.damaged_shards += 1;
                report.problem_count += 1;
                report.problems.push(*problem);
            }
        }
    }
    Ok(Some(report))
}

/// Checks the length and the hashes of a file. Reads it in pieces, because a file of tokens may be larger than memory.
/// Stops early after a cancellation.
fn check(
    folder: &Folder,
    at: usize,
    file: &TableFile,
    read: &mut ReadTotals,
    progress: &Progress,
) -> Result<(), Box<Problem>> {
    let info = &file.file;
    let corrupt = |id, message| Err(corrupt(id, message, at, file));
    let failed = |error: StorageError| of_error(&error, at, file);
    let found = match folder.open_file(&info.basename) {
        Err(error) if error.is_not_found() => {
            return corrupt("shard-missing", "the file is missing".to_owned());
        }
        found => found.map_err(failed)?,
    };
    let (length, expected) = (found.len(), info.bytes);
    if length != expected {
        let message = format!("it has {length} bytes, the index says {expected}");
        return corrupt("shard-length", message);
    }
    read.files = 1;
    let hashers = info.hashes.iter();
    let hashers = hashers.map(|expected| Hasher::new(expected.algo()));
    let mut hashers: Vec<Hasher> = hashers.collect();
    let mut piece = vec![0; usize::try_from(info.bytes.min(PIECE)).unwrap_or(0)];
    while read.stored_bytes < info.bytes && !progress.is_cancelled() {
        let left = info.bytes - read.stored_bytes;
        piece.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        found
            .read_at(&mut piece, read.stored_bytes)
            .map_err(failed)?;
        for hasher in &mut hashers {
            hasher.update(&piece);
        }
        let bytes = piece.len() as u64;
        read.stored_bytes += bytes;
        progress.add_input_bytes(bytes);
    }
    found.check_unchanged().map_err(failed)?;
    read.raw_bytes = file.raw_bytes;
    for (expected, hasher) in info.hashes.iter().zip(hashers) {
        read.hashes += 1;
        let found = hasher.finish();
        if found != expected {
            let algo = expected.algo();
            let message = format!("its {algo} is {found}, the index says {expected}");
            return corrupt("hash-mismatch", message);
        }
    }
    Ok(())
}

/// Decodes every value of a file, and counts its rows.
fn decode(
    path: &Location,
    at: usize,
    file: &TableFile,
    is_tokens: bool,
    (limits, remote): (&Limits, &RemoteOptions),
) -> Result<(), Box<Problem>> {
    let kind = match is_tokens {
        true => SourceKind::MegatronDocuments,
        false => SourceKind::Parquet,
    };
    let options = SourceOptions {
        kind: Some(kind),
        limits: limits.clone(),
        remote: remote.clone(),
        ..SourceOptions::default()
    };
    let rows = || -> Result<u64, SourceError> {
        let source = shardmill_source::open(std::slice::from_ref(path), &options)?;
        let mut rows = 0;
        for unit in 0..source.units().len() {
            let mut batches = source.open_unit(unit)?;
            while let Some(batch) = batches.next_batch()? {
                rows += batch.num_rows() as u64;
            }
        }
        Ok(rows)
    };
    match rows() {
        Ok(rows) if rows == file.rows => Ok(()),
        Ok(rows) => {
            let message = format!("it has {rows} rows, the index says {}", file.rows);
            Err(corrupt("shard-samples", message, at, file))
        }
        Err(error) => Err(of_error(&error, at, file)),
    }
}

/// Makes a problem of what is wrong with a file.
fn corrupt(id: &'static str, message: String, at: usize, file: &TableFile) -> Box<Problem> {
    Box::new(Problem {
        id,
        kind: ErrorKind::Corrupt,
        object: escape(&file.file.basename).into_owned(),
        message,
        hint: None,
        shard: u64::try_from(at).ok(),
        sample: None,
        column: None,
    })
}

/// Makes a problem of the error of a file.
fn of_error(error: &impl Diagnostic, at: usize, file: &TableFile) -> Box<Problem> {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        message = format!("{message}: {cause}");
        source = cause.source();
    }
    let mut problem = corrupt(error.id(), message, at, file);
    problem.kind = error.kind();
    problem.hint = error.hint();
    problem
}
