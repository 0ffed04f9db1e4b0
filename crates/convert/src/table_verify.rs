//! Verifies tables of Parquet files, and tokens of Megatron, against their index.

use shardmill_core::{Diagnostic, ErrorKind, Limits, Progress, escape, parallel};
use shardmill_dataset::{Problem, ReadTotals, VerifyOptions, VerifyReport};
use shardmill_mds::Hasher;
use shardmill_source::{SourceError, SourceKind, SourceOptions};
use shardmill_storage::{Folder, Location, RemoteOptions};
use shardmill_writer::{TABLE_INDEX_NAME, TableFile, TableFormat, TableIndex, WriteError};

use crate::error::ConvertError;

/// The most bytes of a file in memory: enough for a store to send them at full bandwidth.
const PIECE: u64 = 16 << 20;

/// The findings of one file.
#[derive(Default)]
struct Checked {
    problem: Option<Problem>,
    read: ReadTotals,
}

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
    progress.set_totals(
        bytes.sum(),
        0,
        u64::try_from(index.files.len()).unwrap_or(0),
    );
    let is_tokens = index.format == TableFormat::Megatron;
    let checked = parallel::map(index.files.len(), options.jobs.max(1), |at| {
        // INVARIANT: `map` counts up to the number of files.
        let file = &index.files[at];
        let mut checked = check(&folder, at, file, progress)?;
        // An index of tokens is read with its tokens.
        if checked.problem.is_none() && options.deep && (file.rows > 0 || !is_tokens) {
            let path = location.join(&file.file.basename);
            checked.problem = decode(&path, at, file, is_tokens, (limits, remote));
        }
        let unread = file.file.bytes.saturating_sub(checked.read.stored_bytes);
        progress.add_input_bytes(unread);
        progress.add_shard(0);
        Ok::<_, WriteError>(checked)
    })?;
    let mut report = VerifyReport {
        shards: match is_tokens {
            true => 1,
            false => u64::try_from(index.files.len()).unwrap_or(u64::MAX),
        },
        samples: index.rows(),
        deep: options.deep,
        read: ReadTotals {
            files: 1,
            stored_bytes: u64::try_from(text.len()).unwrap_or(u64::MAX),
            ..ReadTotals::default()
        },
        ..VerifyReport::default()
    };
    for (file, checked) in index.files.iter().zip(checked) {
        report.read.files += checked.read.files;
        report.read.stored_bytes += checked.read.stored_bytes;
        report.read.raw_bytes += checked.read.raw_bytes;
        report.read.hashes += checked.read.hashes;
        match checked.problem {
            None => report.sound_samples += file.rows,
            Some(problem) => {
                report.damaged_shards += 1;
                report.problem_count += 1;
                report.problems.push(problem);
            }
        }
    }
    Ok(Some(report))
}

/// Checks the length and the hashes of a file. Reads it in pieces, because a file of tokens may be larger than memory.
fn check(
    folder: &Folder,
    at: usize,
    file: &TableFile,
    progress: &Progress,
) -> Result<Checked, WriteError> {
    if progress.is_cancelled() {
        return Err(WriteError::Interrupted { samples: 0 });
    }
    let info = &file.file;
    let corrupt = |id, message| corrupt(id, message, at, file);
    let mut checked = Checked::default();
    let found = match folder.open_file(&info.basename) {
        Ok(found) => found,
        Err(error) if error.is_not_found() => {
            let message = "the file is missing".to_owned();
            checked.problem = Some(corrupt("shard-missing", message));
            return Ok(checked);
        }
        Err(error) => {
            checked.problem = Some(of_error(&error, at, file));
            return Ok(checked);
        }
    };
    if found.len() != info.bytes {
        let message = format!(
            "it has {} bytes, the index says {}",
            found.len(),
            info.bytes
        );
        checked.problem = Some(corrupt("shard-length", message));
        return Ok(checked);
    }
    checked.read.files = 1;
    let mut hashers: Vec<Hasher> = info
        .hashes
        .iter()
        .map(|expected| Hasher::new(expected.algo()))
        .collect();
    let mut piece = vec![0; usize::try_from(info.bytes.min(PIECE)).unwrap_or(0)];
    while checked.read.stored_bytes < info.bytes {
        if progress.is_cancelled() {
            return Err(WriteError::Interrupted { samples: 0 });
        }
        let left = info.bytes - checked.read.stored_bytes;
        piece.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        if let Err(error) = found.read_at(&mut piece, checked.read.stored_bytes) {
            checked.problem = Some(of_error(&error, at, file));
            return Ok(checked);
        }
        for hasher in &mut hashers {
            hasher.update(&piece);
        }
        let bytes = u64::try_from(piece.len()).unwrap_or(0);
        checked.read.stored_bytes += bytes;
        progress.add_input_bytes(bytes);
    }
    if let Err(error) = found.check_unchanged() {
        checked.problem = Some(of_error(&error, at, file));
        return Ok(checked);
    }
    checked.read.raw_bytes = file.raw_bytes;
    for (expected, hasher) in info.hashes.iter().zip(hashers) {
        checked.read.hashes += 1;
        let found = hasher.finish();
        if found != expected {
            let algo = expected.algo();
            let message = format!("its {algo} is {found}, the index says {expected}");
            checked.problem = Some(corrupt("hash-mismatch", message));
            return Ok(checked);
        }
    }
    Ok(checked)
}

/// Decodes every value of a file, and counts its rows.
fn decode(
    path: &Location,
    at: usize,
    file: &TableFile,
    is_tokens: bool,
    (limits, remote): (&Limits, &RemoteOptions),
) -> Option<Problem> {
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
                rows += u64::try_from(batch.num_rows()).unwrap_or(0);
            }
        }
        Ok(rows)
    };
    match rows() {
        Ok(rows) if rows == file.rows => None,
        Ok(rows) => {
            let message = format!("it has {rows} rows, the index says {}", file.rows);
            Some(corrupt("shard-samples", message, at, file))
        }
        Err(error) => Some(of_error(&error, at, file)),
    }
}

/// Makes a problem of what is wrong with a file.
fn corrupt(id: &'static str, message: String, at: usize, file: &TableFile) -> Problem {
    Problem {
        id,
        kind: ErrorKind::Corrupt,
        object: escape(&file.file.basename).into_owned(),
        message,
        hint: None,
        shard: u64::try_from(at).ok(),
        sample: None,
        column: None,
    }
}

/// Makes a problem of the error of a file.
fn of_error(error: &impl Diagnostic, at: usize, file: &TableFile) -> Problem {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        message = format!("{message}: {cause}");
        source = cause.source();
    }
    Problem {
        kind: error.kind(),
        hint: error.hint(),
        ..corrupt(error.id(), message, at, file)
    }
}
