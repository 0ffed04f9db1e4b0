//! The index of tar shards that have none, or a wrong one: what the conversion that wrote them would have written.

use std::path::Path;
use std::sync::Arc;

use shardmill_core::{Limits, Progress, escape};
use shardmill_mds::{FileHashes, HashAlgo, Hasher};
use shardmill_reader::{TarFile, TarSet, TarSetError, each_in_order};
use shardmill_storage::{Location, Place, RemoteOptions};
use shardmill_webdataset::{
    FieldSet, FileInfo, Index, IndexShard, ShardMap, offsets_name, write_offsets,
};

use crate::error::ConvertError;
use crate::export::SideFiles;
use crate::target::Target;

/// Bytes that are hashed in one go, so that the second hash finds them in a core's cache.
const STEP_BYTES: usize = 256 << 10;

/// How an index is made.
#[derive(Clone, Debug)]
pub struct ReindexOptions {
    /// Which hashes go into it.
    pub hashes: Vec<HashAlgo>,
    /// Shards read side by side; 0 for one per core.
    pub jobs: usize,
    /// Whether tables of offsets that differ are replaced.
    pub replace: bool,
    /// What a file may ask for.
    pub limits: Limits,
}

/// Reads the tar shards that lie in a folder, by name, writes the table of offsets beside each, and answers the index, which
/// the caller publishes. `None` where no tar file lies in the folder itself. An `index.json` that is there is not read.
///
/// How hard a compressed shard was compressed is in no file: the index says what `convert` does when nobody says.
///
/// # Errors
///
/// Shards that cannot be read; two that are one shard, compressed and not; tables that differ (`Conflict`); `Interrupted`.
pub fn reindex_tars(
    folder: &Path,
    options: &ReindexOptions,
    progress: &Progress,
) -> Result<Option<Index>, ConvertError> {
    let set = match TarSet::lying_in(folder) {
        Err(TarSetError::NoShards { .. }) => return Ok(None),
        set => set?,
    };
    let shards = set.shards();
    check_names(shards)?;
    let location = Location::Local(folder.to_owned());
    let place = Place::open(&location, &RemoteOptions::default(), None)?;
    let side_files = SideFiles::new(Target::new(&place, progress));
    progress.set_totals(0, 0, shards.len() as u64);
    let mut index = Index::default();
    let mut failure = None;
    let work = |at: usize| {
        let made = shards.get(at).map(|shard| describe(shard, options));
        progress.add_shard(0);
        made.transpose()
    };
    let take = |_: usize, made: Option<(IndexShard, Vec<u8>)>| {
        let Some((mut entry, table)) = made else {
            return Ok(());
        };
        progress.add_samples(entry.samples);
        // INVARIANT: `describe` names the table.
        if let Some(file) = &entry.offsets
            && let Err(error) = side_files.publish(&file.basename, &table, options.replace)
        {
            failure = Some(error);
            return Err(TarSetError::Interrupted);
        }
        // A million shards of the same fields share one set.
        if let Some(last) = index.shards.last()
            && last.fields == entry.fields
        {
            entry.fields = Arc::clone(&last.fields);
        }
        index.shards.push(entry);
        Ok(())
    };
    let done = each_in_order(shards.len(), options.jobs, progress, work, take);
    if let Some(error) = failure {
        return Err(error);
    }
    done?;
    Ok(Some(index))
}

/// A shard that lies there compressed and not is one shard, and its index can name one file.
fn check_names(shards: &[TarFile]) -> Result<(), ConvertError> {
    let mut names: Vec<(String, &TarFile)> = shards
        .iter()
        .map(|shard| (shard.raw_name(), shard))
        .collect();
    names.sort_by(|(a, _), (b, _)| a.cmp(b));
    for pair in names.windows(2) {
        if let [(raw, first), (other, second)] = pair
            && raw == other
        {
            return Err(ConvertError::Conflict {
                dest: second.path().display().to_string(),
                reason: format!("`{}` is the same shard", escape(first.name())),
                id: "shard-ambiguous",
                hint: "move one of the files away".into(),
            });
        }
    }
    Ok(())
}

fn describe(
    shard: &TarFile,
    options: &ReindexOptions,
) -> Result<(IndexShard, Vec<u8>), TarSetError> {
    let limits = &options.limits;
    let file = |name: String, bytes: &[u8]| FileInfo {
        basename: name.into(),
        bytes: bytes.len() as u64,
        hashes: hashes(bytes, &options.hashes),
    };
    let compression = shard.compression()?;
    let data = shard.load(limits)?;
    let bytes = data.as_ref();
    let map =
        ShardMap::read(bytes, limits).map_err(|source| TarSetError::tar(shard.path(), source));
    let raw_data = file(shard.raw_name(), bytes);
    // What is gone reads as zeros, which have errors of their own.
    if data.is_damaged() {
        return Err(TarSetError::Changed { path: shard.path() });
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

fn hashes(bytes: &[u8], algos: &[HashAlgo]) -> FileHashes {
    let mut hashers: Vec<Hasher> = algos.iter().copied().map(Hasher::new).collect();
    for step in bytes.chunks(STEP_BYTES) {
        for hasher in &mut hashers {
            hasher.update(step);
        }
    }
    hashers.into_iter().map(Hasher::finish).collect()
}
