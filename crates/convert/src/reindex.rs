//! Creates the index of tar shards without a valid one: the index that the conversion would have written.

use std::path::Path;
use std::sync::Arc;

use shardmill_core::{Error, Limits, Progress, escape};
use shardmill_dataset::{DatasetError, DatasetProblem, TarFile, TarSet, each_in_order};
use shardmill_mds::HashAlgo;
use shardmill_storage::{Destination, Location, RemoteOptions};
use shardmill_webdataset::{
    FieldSet, FileInfo, Index, IndexShard, ShardMap, offsets_name, write_offsets,
};
use shardmill_writer::hash_all;

use crate::error::conflict;
use crate::export::publish;
use crate::target::Target;

/// The options of [`reindex_tars`].
#[derive(Clone, Debug)]
pub struct ReindexOptions {
    /// The hashes in the index.
    pub hashes: Vec<HashAlgo>,
    /// The number of shards read in parallel; 0 means one per core.
    pub jobs: usize,
    /// Whether existing offset tables with other contents are replaced.
    pub replace: bool,
    /// The limits for reading files.
    pub limits: Limits,
}

/// Reads the tar shards in a folder by name, writes the offset table next to each, and returns the index. The caller
/// publishes it.
///
/// Returns `None` if the folder itself contains no tar file. An existing `index.json` is not read. A compressed shard
/// does not record its compression level, so the index contains the default of `convert`.
///
/// # Errors
///
/// - A shard cannot be read.
/// - The folder contains both a shard and its compressed form.
/// - `Conflict`: an existing offset table differs.
/// - `Interrupted`: the run was cancelled.
pub fn reindex_tars(
    folder: &Path,
    options: &ReindexOptions,
    progress: &Progress,
) -> Result<Option<Index>, Error> {
    let set = match TarSet::lying_in(folder) {
        Err(error) if error.problem() == Some(DatasetProblem::NoTars) => return Ok(None),
        set => set?,
    };
    let shards = set.shards();
    check_names(shards)?;
    let location = Location::Local(folder.to_owned());
    let destination = Destination::open(&location, &RemoteOptions::default(), None)?;
    let target = Target::new(&destination, progress);
    progress.set_totals(0, 0, shards.len() as u64);
    let mut index = Index::default();
    let work = |at: usize| {
        // INVARIANT: `each_in_order` counts up to the number of shards.
        let made = describe(&shards[at], options);
        progress.add_shard(0);
        made
    };
    let take = |_: usize, (mut entry, table): (IndexShard, Vec<u8>)| {
        progress.add_samples(entry.samples);
        // INVARIANT: `describe` sets the name of the offset table.
        if let Some(file) = &entry.offsets {
            publish(target, None, &file.basename, &table, options.replace)?;
        }
        // Shards with the same fields share one set, because there may be a million of them.
        if let Some(last) = index.shards.last()
            && last.fields == entry.fields
        {
            entry.fields = Arc::clone(&last.fields);
        }
        index.shards.push(entry);
        Ok(())
    };
    each_in_order(shards.len(), options.jobs, progress, work, take)?;
    Ok(Some(index))
}

/// Checks that no shard exists both compressed and uncompressed. The index can list only one of the files.
fn check_names(shards: &[TarFile]) -> Result<(), Error> {
    let mut names: Vec<(String, &TarFile)> = shards
        .iter()
        .map(|shard| (shard.raw_name(), shard))
        .collect();
    names.sort_by(|(a, _), (b, _)| a.cmp(b));
    for pair in names.windows(2) {
        if let [(raw, first), (other, second)] = pair
            && raw == other
        {
            let reason = format!("`{}` is the same shard", escape(first.name()));
            return Err(conflict(
                second.path().display().to_string(),
                "shard-ambiguous",
                reason,
                "move one of the files away",
            ));
        }
    }
    Ok(())
}

fn describe(shard: &TarFile, options: &ReindexOptions) -> Result<(IndexShard, Vec<u8>), Error> {
    let limits = &options.limits;
    let file = |name: String, bytes: &[u8]| FileInfo {
        basename: name.into(),
        bytes: bytes.len() as u64,
        hashes: hash_all(&options.hashes, [bytes]),
    };
    let compression = shard.compression()?;
    let data = shard.load(limits)?;
    let bytes = data.as_ref();
    let map = ShardMap::read(bytes, limits)
        .map_err(|source| DatasetError::tar_file(&shard.path(), source));
    let raw_data = file(shard.raw_name(), bytes);
    // Missing pages of a damaged mapping read as zeros, which would cause misleading errors.
    if data.is_damaged() {
        return Err(DatasetError::file_changed(shard.path()).into());
    }
    let map = map?;
    let zip_data = match compression {
        None => None,
        Some(_) => {
            let zip = shard.open()?.read_all(limits.shard_bytes)?;
            Some(file(shard.name().to_owned(), &zip))
        }
    };
    let table = write_offsets(&map.offsets());
    let entry = IndexShard {
        fields: Arc::new(FieldSet::of(&map.samples)),
        samples: map.samples.len() as u64,
        compression,
        raw_data,
        zip_data,
        offsets: Some(file(offsets_name(shard.name()), &table)),
    };
    Ok((entry, table))
}
