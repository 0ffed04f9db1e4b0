//! Rewrites tar shards one by one: to a form that every reader understands, or to save the intact samples of damaged
//! shards.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use shardmill_core::{Limits, Progress, escape};
use shardmill_dataset::{DatasetError, TarFile, TarSet, each_in_order};
use shardmill_mds::HashAlgo;
use shardmill_storage::{Dir, PublishMode, StorageError, TempFile};
use shardmill_webdataset::{
    FieldSet, FileInfo, Index, IndexShard, Profile, ShardMap, fix, offsets_name, repair,
    write_offsets,
};
use shardmill_writer::{DatasetIndex, INDEX_NAME, hash_each};

use crate::error::ConvertError;
use crate::target::remove_if_empty;

/// The kind of a rewrite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RewriteKind {
    /// Rewrites shards to a form that every reader understands. Damaged shards are errors.
    Fix,
    /// Saves the intact samples.
    Repair,
}

/// The options of a rewrite.
#[derive(Clone, Debug)]
pub struct RewriteOptions {
    /// The kind of the rewrite.
    pub kind: RewriteKind,
    /// The hashes in the index.
    pub hashes: Vec<HashAlgo>,
    /// The number of shards processed in parallel; 0 means one per core.
    pub jobs: usize,
    /// The limits for reading files.
    pub limits: Limits,
}

/// A difference of the new shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChangeLine {
    /// The shard that was read.
    pub shard: String,
    /// A stable id.
    pub id: &'static str,
    /// The name of the member, or the key.
    pub member: String,
    /// A description of the change.
    pub message: &'static str,
}

/// Data of the old shard that is missing in the new one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LostLine {
    /// The shard that was read.
    pub shard: String,
    /// The stable id of the problem.
    pub id: &'static str,
    /// The key of the sample, if it is known.
    pub key: Option<String>,
    /// The start of the data in the raw shard.
    pub begin: u64,
    /// The end of the data in the raw shard.
    pub end: u64,
    /// A description of the problem.
    pub message: String,
}

/// The result of a rewrite.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Rewritten {
    /// The number of shards that were written.
    pub shards: u64,
    /// The number of samples in them.
    pub samples: u64,
    /// The differences, except in headers.
    pub changes: Vec<ChangeLine>,
    /// The data that could not be saved.
    pub lost: Vec<LostLine>,
}

/// A new shard that is not published yet.
struct Fresh {
    entry: IndexShard,
    files: Vec<(String, TempFile)>,
    changes: Vec<ChangeLine>,
    lost: Vec<LostLine>,
}

/// Reads tar shards and rewrites them into a new or empty folder. The index is published last. After an error the
/// folder is restored to its previous state.
///
/// # Errors
///
/// Returns an error if a shard cannot be read or needs a decision of the user, and `Conflict` if the destination is not
/// empty.
pub fn rewrite_tars(
    source: PathBuf,
    dest: &Path,
    options: &RewriteOptions,
    progress: &Progress,
) -> Result<Rewritten, ConvertError> {
    let set = TarSet::open(std::slice::from_ref(&source), &options.limits)?;
    let set = set.without_deleted(&options.limits)?;
    if !set.deleted_digests().is_empty() {
        return Err(ConvertError::option_hint(
            "source",
            "some of its samples are deleted, and shards that are written anew would have them again",
            "convert it, which leaves them out",
        ));
    }
    let names = names(set.shards())?;
    let existed = dest.exists();
    let dir = Dir::create(dest)?;
    if !dir.entries()?.is_empty() {
        return Err(ConvertError::conflict(
            dest.display().to_string(),
            "dest-not-empty",
            "it is not empty",
            "choose another destination",
        ));
    }
    let mut published = Vec::new();
    let done = write(
        &dir,
        set.shards(),
        &names,
        options,
        progress,
        &mut published,
    );
    if done.is_err() {
        // The original error is reported. Files that cannot be removed belong to no dataset, because there is no index.
        for name in &published {
            let _ = dir.remove(name);
        }
        if !existed {
            remove_if_empty(dest);
        }
    }
    done
}

/// Returns the names of the new shards: the old names without folders and compression suffixes.
fn names(shards: &[TarFile]) -> Result<Vec<String>, ConvertError> {
    let mut names: Vec<String> = Vec::with_capacity(shards.len());
    for shard in shards {
        let flat = shard.name().replace('/', "-");
        let lower = flat.to_ascii_lowercase();
        let cut = match () {
            () if lower.ends_with(".gz") => 3,
            () if lower.ends_with(".zst") || lower.ends_with(".tgz") => 4,
            () => 0,
        };
        let mut name = flat.get(..flat.len() - cut).unwrap_or(&flat).to_owned();
        if lower.ends_with(".tgz") || !lower.get(..name.len()).is_some_and(|n| n.ends_with(".tar"))
        {
            name.push_str(".tar");
        }
        names.push(name);
    }
    let mut sorted: Vec<&String> = names.iter().collect();
    sorted.sort();
    match sorted.windows(2).find(|pair| pair.first() == pair.last()) {
        Some([name, ..]) => Err(ConvertError::option_hint(
            "source",
            format!("two shards would be called `{}`", escape(name)),
            "rewrite them one by one",
        )),
        _ => Ok(names),
    }
}

fn write(
    dir: &Dir,
    shards: &[TarFile],
    names: &[String],
    options: &RewriteOptions,
    progress: &Progress,
    published: &mut Vec<String>,
) -> Result<Rewritten, ConvertError> {
    progress.set_totals(0, 0, shards.len() as u64);
    let mut report = Rewritten::default();
    let mut index = Index::default();
    let work = |at: usize| {
        // INVARIANT: `each_in_order` counts up to the number of shards, and each has a name.
        let fresh = one(dir, &shards[at], &names[at], options);
        progress.add_shard(0);
        fresh
    };
    let take = |_: usize, fresh: Fresh| {
        report.shards += 1;
        report.samples = report.samples.saturating_add(fresh.entry.samples);
        report.changes.extend(fresh.changes);
        report.lost.extend(fresh.lost);
        for (name, temp) in fresh.files {
            temp.publish(&name, PublishMode::CreateNew)?;
            published.push(name);
        }
        index.shards.push(fresh.entry);
        Ok(())
    };
    each_in_order(shards.len(), options.jobs, progress, work, take)?;
    let text = DatasetIndex::Tar(index).to_json();
    dir.publish_bytes(None, INDEX_NAME, text.as_bytes(), PublishMode::CreateNew)?;
    Ok(report)
}

fn one(
    dir: &Dir,
    shard: &TarFile,
    name: &str,
    options: &RewriteOptions,
) -> Result<Fresh, ConvertError> {
    let (bytes, map, changes, lost) = match options.kind {
        RewriteKind::Fix => fixed(shard, &options.limits)?,
        RewriteKind::Repair => repaired(shard, &options.limits)?,
    };
    let table = write_offsets(&map.offsets());
    let idx = offsets_name(name);
    let (raw, raw_data) = store(dir, name, &bytes, &options.hashes)?;
    let (side, offsets) = store(dir, &idx, &table, &options.hashes)?;
    let entry = IndexShard {
        fields: Arc::new(FieldSet::of(&map.samples)),
        samples: map.samples.len() as u64,
        compression: None,
        raw_data,
        zip_data: None,
        offsets: Some(offsets),
    };
    Ok(Fresh {
        entry,
        files: vec![(name.to_owned(), raw), (idx, side)],
        changes,
        lost,
    })
}

type NewShard = (Vec<u8>, ShardMap, Vec<ChangeLine>, Vec<LostLine>);

fn fixed(shard: &TarFile, limits: &Limits) -> Result<NewShard, ConvertError> {
    let path = shard.path().display().to_string();
    let data = shard.load(limits)?;
    let fixed =
        fix(data.as_ref(), Profile::default(), limits).map_err(|source| ConvertError::Fix {
            path: path.clone(),
            source: Box::new(source),
        })?;
    check(shard, &data)?;
    let changes = fixed.changes.into_iter().map(|change| ChangeLine {
        shard: path.clone(),
        id: change.id,
        member: change.object,
        message: change.text,
    });
    Ok((fixed.bytes, fixed.map, changes.collect(), Vec::new()))
}

fn repaired(shard: &TarFile, limits: &Limits) -> Result<NewShard, ConvertError> {
    let path = shard.path().display().to_string();
    let (data, problem) = shard.salvage(limits)?;
    let repaired = repair(data.as_ref(), limits);
    check(shard, &data)?;
    let end = data.as_ref().len() as u64;
    let mut lost: Vec<LostLine> = repaired
        .lost
        .into_iter()
        .map(|lost| LostLine {
            shard: path.clone(),
            id: lost.id,
            key: lost.key,
            begin: lost.begin,
            end: lost.end,
            message: lost.text,
        })
        .collect();
    if let Some(problem) = problem {
        use shardmill_core::Diagnostic as _;
        use std::error::Error as _;
        lost.push(LostLine {
            shard: path,
            id: problem.id(),
            key: None,
            begin: end,
            end,
            message: problem
                .source()
                .map_or_else(|| problem.to_string(), ToString::to_string),
        });
    }
    Ok((repaired.bytes, repaired.map, Vec::new(), lost))
}

/// Checks that the mapping was intact while data was copied from it.
fn check(shard: &TarFile, data: &shardmill_dataset::ShardBytes) -> Result<(), ConvertError> {
    if data.is_damaged() {
        return Err(DatasetError::file_changed(shard.path()).into());
    }
    Ok(())
}

fn store(
    dir: &Dir,
    name: &str,
    bytes: &[u8],
    hashes: &[HashAlgo],
) -> Result<(TempFile, FileInfo), StorageError> {
    let mut temp = dir.temp_file(None)?;
    let hashes = hash_each(hashes, [bytes], |step| {
        temp.write_all(step)
            .map_err(|error| temp.write_error(error))
    })?;
    let file = FileInfo {
        basename: name.into(),
        bytes: temp.written(),
        hashes,
    };
    Ok((temp, file))
}
