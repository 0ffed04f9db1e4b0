//! Verifies tables of Parquet files against their index.

use shardmill_core::{Error, ErrorKind, Limits, Progress};
use shardmill_dataset::{
    DatasetError, IndexShape, ReadTotals, ShardCheck, VerifyOptions, VerifyReport, check_files,
    check_sides,
};
use shardmill_mds::Hasher;
use shardmill_source::{SourceKind, SourceOptions};
use shardmill_storage::{Folder, Location, RemoteOptions};
use shardmill_writer::{
    DatasetIndex, ShardFormat, TABLE_INDEX_NAME, TableFile, TableIndex, WriteProblem, index_error,
};

use crate::target::side_name;

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
) -> Result<Option<VerifyReport>, Error> {
    // Whatever cannot be read here is not a table. Some stores deny access to objects that do not exist. The commands for
    // other datasets report what is there.
    let Ok(folder) = Folder::open(location, remote) else {
        return Ok(None);
    };
    let Ok(text) = folder.read(TABLE_INDEX_NAME, limits.index_bytes) else {
        return Ok(None);
    };
    let index = TableIndex::parse(&text, limits).map_err(|reason| {
        let location = folder.path_of(TABLE_INDEX_NAME).display().to_string();
        index_error(&location, WriteProblem::table_index(reason))
    })?;
    let bytes = index.files.iter().map(|file| file.file.bytes);
    progress.set_totals(bytes.sum(), 0, index.files.len() as u64);
    let check = |found: &mut ShardCheck| {
        // INVARIANT: `check_files` counts up to the number of files.
        let file = &index.files[found.shard];
        let mut checked = check(&folder, file, &mut found.read, progress);
        if checked.is_ok() && options.deep {
            let path = location.join(&file.file.basename);
            checked = decode(&path, file, (limits, remote));
        }
        if progress.is_cancelled() {
            return Err(DatasetError::Interrupted);
        }
        found.bytes = file.file.bytes.saturating_sub(found.read.stored_bytes);
        match checked {
            Ok(()) => found.sound_samples = file.rows,
            Err(error) => found.file_error(&file.file.basename, error),
        }
        Ok(())
    };
    let files = index.files.len();
    let mut report = check_files(files, text.len() as u64, options, progress, check)?;
    report.samples = index.rows();
    if options.deep {
        check_order(&folder, index, limits, &mut report);
    }
    Ok(Some(report))
}

/// Compares the index with what the conversion recorded.
fn check_order(folder: &Folder, index: TableIndex, limits: &Limits, report: &mut VerifyReport) {
    let index = DatasetIndex::from(index);
    let to = ShardFormat::Parquet;
    let read = |name: &str, max| match folder.read(&side_name(to, name), max) {
        Err(error) if error.is_not_found() => Ok(None),
        found => found.map(Some),
    };
    let shape = IndexShape::of(index.shard_samples());
    if let Err(error) = check_sides(&read, &shape, limits.index_bytes) {
        report.add_file_error(&side_name(to, error.side_name()), error);
    }
}

/// Checks the length and the hashes of a file. Reads it in pieces, because a file may be larger than memory.
/// Stops early after a cancellation.
fn check(
    folder: &Folder,
    file: &TableFile,
    read: &mut ReadTotals,
    progress: &Progress,
) -> Result<(), Error> {
    let info = &file.file;
    let found = match folder.open_file(&info.basename) {
        Err(error) if error.is_not_found() => {
            return Err(corrupt("shard-missing", "the file is missing".to_owned()));
        }
        found => found?,
    };
    let (length, expected) = (found.len(), info.bytes);
    if length != expected {
        let reason = format!("it has {length} bytes, the index says {expected}");
        return Err(corrupt("shard-length", reason));
    }
    read.files = 1;
    let hashers = info.hashes.iter();
    let hashers = hashers.map(|expected| Hasher::new(expected.algo()));
    let mut hashers: Vec<Hasher> = hashers.collect();
    let mut piece = vec![0; usize::try_from(info.bytes.min(PIECE)).unwrap_or(0)];
    while read.stored_bytes < info.bytes && !progress.is_cancelled() {
        let left = info.bytes - read.stored_bytes;
        piece.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        found.read_at(&mut piece, read.stored_bytes)?;
        for hasher in &mut hashers {
            hasher.update(&piece);
        }
        let bytes = piece.len() as u64;
        read.stored_bytes += bytes;
        progress.add_input_bytes(bytes);
    }
    found.check_unchanged()?;
    read.raw_bytes = file.raw_bytes;
    for (expected, hasher) in info.hashes.iter().zip(hashers) {
        read.hashes += 1;
        let found = hasher.finish();
        if found != expected {
            let algo = expected.algo();
            let reason = format!("its {algo} is {found}, the index says {expected}");
            return Err(corrupt("hash-mismatch", reason));
        }
    }
    Ok(())
}

/// Decodes every value of a file, and counts its rows.
fn decode(
    path: &Location,
    file: &TableFile,
    (limits, remote): (&Limits, &RemoteOptions),
) -> Result<(), Error> {
    let options = SourceOptions {
        kind: Some(SourceKind::Parquet),
        limits: limits.clone(),
        remote: remote.clone(),
        ..SourceOptions::default()
    };
    let source = shardmill_source::open(std::slice::from_ref(path), &options)?;
    let mut rows = 0;
    for unit in 0..source.units().len() {
        let mut batches = source.open_unit(unit)?;
        while let Some(batch) = batches.next_batch()? {
            rows += batch.num_rows() as u64;
        }
    }
    if rows != file.rows {
        let reason = format!("it has {rows} rows, the index says {}", file.rows);
        return Err(corrupt("shard-samples", reason));
    }
    Ok(())
}

/// Builds the error of a file that its index does not describe.
fn corrupt(id: &'static str, reason: String) -> Error {
    Error::new(ErrorKind::Corrupt, id, reason).about("")
}
