//! A table as a stream: its row groups, or parts of large ones, are its shards.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use shardmill_core::{Error, Limits};
use shardmill_dataset::{
    ChosenFiles, ComputeShards, Computed, ComputedStream, DatasetError, FileEntry, FileForm,
    FileList, FileOptions, FileRanges, OpenComputed, StreamFiles,
};
use shardmill_delta::{LOG_FOLDER, VersionChoice};
use shardmill_mds::{FileHashes, FileInfo, ShardEntry};
use shardmill_parquet::{GroupPart, Partitions};
use shardmill_storage::{Dir, Folder};

use crate::columns::TableColumns;
use crate::delta::{DeltaFiles, table_at};
use crate::error::Problem;
use crate::files::TableFiles;
use crate::footers::{Footers, PartFacts};
use crate::group::FileColumns;

/// What says which files and rows belong to a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TableForm {
    /// All Parquet files in the folder, with all rows.
    #[default]
    Parquet,
    /// The log of a Delta table.
    Delta(VersionChoice),
}

/// How samples show nulls. In shards, the column `NAME__is_null` marks the nulls of the column `NAME`, as in a
/// conversion with `--nulls mask`, if the table may have some and the encoding stores none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NullValues {
    /// As missing values: schemas name the mask of a column ([`SchemaColumn::null_mask`]), which is none of its own.
    ///
    /// [`SchemaColumn::null_mask`]: shardmill_dataset::SchemaColumn::null_mask
    #[default]
    None,
    /// As zeros, with the masks as columns.
    Mask,
}

/// Reads a table in place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableOptions {
    /// The columns to read; all if empty.
    pub columns: Vec<String>,
    /// What the table is.
    pub form: TableForm,
    /// How samples show nulls.
    pub nulls: NullValues,
    /// Whether only the rows matter, as for a view. Then any one column is read instead.
    pub rows_only: bool,
}

/// Returns the number of the chosen version of a Delta table.
///
/// # Errors
///
/// `delta-*` errors, and errors of the file system and the store.
pub fn delta_version(source: &Folder, choice: &VersionChoice) -> Result<u64, DatasetError> {
    Ok(table_at(source)?.number(choice)?)
}

impl TableOptions {
    /// Returns the files of a stream over the table. They are sorted by path, as in a conversion.
    #[must_use]
    pub fn files(&self) -> StreamFiles {
        let patterns = ["*.parquet", "*.parq", "*.pq"];
        StreamFiles {
            options: FileOptions {
                // The list does not read the files, so their lengths have no limit.
                form: FileForm::File,
                include: patterns.map(str::to_owned).into(),
                ..FileOptions::default()
            },
            computed: Some(Arc::new(self.clone())),
        }
    }
}

impl OpenComputed for TableOptions {
    fn open(
        &self,
        source: &Folder,
        cache: &Dir,
        limits: &Limits,
        list: &dyn Fn(Option<ChosenFiles>) -> Result<FileList, DatasetError>,
    ) -> Result<ComputedStream, DatasetError> {
        let shown = source.path().to_string_lossy().into_owned();
        let (list, files, delta) = match &self.form {
            TableForm::Parquet => {
                if is_delta(source)? {
                    let reason = "it is a Delta table, whose files are chosen by its log";
                    return Err(Problem::Delta.at(shown, reason).into());
                }
                let list = list(None)?;
                let files = table_files(&list);
                if files.is_empty() {
                    let reason = "there are no Parquet files";
                    return Err(Problem::Columns.at(shown, reason).into());
                }
                (list, files, None)
            }
            TableForm::Delta(choice) => {
                let delta = DeltaFiles::open(source, choice)?;
                let list = list(Some(delta.chosen()))?;
                let files = delta.entries(&list)?;
                (list, files, Some(Arc::new(delta)))
            }
        };
        if let Folder::Store(store) = source {
            let pins = files.iter().map(|file| (&*file.info.basename, &*file.tag));
            store.remote().pin(pins)?;
        }
        let partitions = match &delta {
            Some(_) => Partitions::default(),
            None => partitions_of(source, &files)?,
        };
        let files = TableFiles {
            source: source.clone(),
            files,
            delta,
            partitions,
            limits: limits.clone(),
        };
        let columns = files.columns(&self.columns, self.rows_only)?;
        let own = shardmill_dataset::private_folder(cache)?;
        let footers = Footers::open(&files, &columns, &own, list.digest())?;
        let columns = columns.with_nulls(&footers.nullable, limits)?;
        let masks = columns.masks.len() as u64;
        let mut rows = Sha256::new();
        rows.update(list.digest());
        for part in &footers.parts {
            rows.update(part.rows.to_le_bytes());
        }
        let view_digest: [u8; 32] = rows.finalize().into();
        let mut hasher = Sha256::new();
        hasher.update(view_digest);
        hasher.update(columns.identity());
        let digest: [u8; 32] = hasher.finalize().into();
        // Streams with other columns can use the same folder.
        let tag = u32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]]);
        let entry = |(number, part): (usize, &PartFacts)| ShardEntry {
            config: Arc::clone(&columns.config),
            samples: part.rows,
            raw_data: FileInfo {
                basename: format!("row-group.{tag:08x}.{number:06}.mds").into(),
                bytes: part.shard_bytes + masks * (part.rows + 64),
                hashes: FileHashes::default(),
            },
            zip_data: None,
            raw_meta: None,
            zip_meta: None,
        };
        let entries = footers.parts.iter().enumerate().map(entry).collect();
        Ok(ComputedStream {
            entries,
            digest,
            computed: Computed {
                null_masks: match self.nulls {
                    NullValues::None => columns.masks.clone().into(),
                    NullValues::Mask => Vec::new().into(),
                },
                shards: Arc::new(RowGroups {
                    files,
                    columns,
                    footers,
                }),
                files: list,
                view_digest,
            },
        })
    }
}

/// Returns the listed files, without those in folders and with names that Spark and Hive ignore.
fn table_files(list: &FileList) -> Vec<FileEntry> {
    let files = (0..list.len()).filter_map(|number| list.get(number));
    let is_hidden = |part: &str| part.starts_with(['_', '.']);
    let is_visible = |file: &&FileEntry| !file.info.basename.split('/').any(is_hidden);
    files.filter(is_visible).cloned().collect()
}

/// Returns whether a folder is a Delta table.
fn is_delta(source: &Folder) -> Result<bool, DatasetError> {
    Ok(match source {
        Folder::Local(dir) => dir.exists(LOG_FOLDER)?,
        Folder::Store(store) => {
            let log = format!("{LOG_FOLDER}/");
            !store.remote().peek(&log, 1, &mut |_| true)?.is_empty()
        }
    })
}

/// Returns the columns that the names of folders form, as in `day=2024-01-01/part-0.parquet`.
fn partitions_of(source: &Folder, files: &[FileEntry]) -> Result<Partitions, Error> {
    let name = |number: usize| files.get(number).map_or("", |file| &*file.info.basename);
    Partitions::of(files.iter().map(|file| &*file.info.basename)).map_err(|problem| {
        let file = source.path_of(name(problem.file));
        Problem::Partition.at(file.to_string_lossy(), problem.reason)
    })
}

/// The row groups of a table as shards.
#[derive(Debug)]
struct RowGroups {
    files: TableFiles,
    columns: TableColumns,
    footers: Footers,
}

impl RowGroups {
    fn facts(&self, shard: usize) -> Result<PartFacts, Error> {
        let part = self.footers.parts.get(shard).copied();
        part.ok_or_else(|| Problem::Corrupt.at(format!("shard {shard}"), "it does not exist"))
    }

    /// Returns the columns of the file of a shard, and its part of the file.
    fn part(&self, shard: usize) -> Result<(Arc<FileColumns>, GroupPart), DatasetError> {
        let facts = self.facts(shard)?;
        let own = self.footers.file(&self.files, &self.columns, facts.file)?;
        let part = own.parts.get(facts.part).cloned();
        let part =
            part.ok_or_else(|| Problem::Corrupt.at(self.name(shard), "it does not exist"))?;
        Ok((own, part))
    }
}

impl ComputeShards for RowGroups {
    fn name(&self, shard: usize) -> String {
        match self.facts(shard) {
            Ok(part) => format!("{} row group {}", self.files.name(part.file), part.group),
            Err(_) => format!("shard {shard}"),
        }
    }

    fn ranges(&self, shard: usize) -> Result<FileRanges<'_>, DatasetError> {
        let (own, part) = self.part(shard)?;
        let file = self.files.files.get(self.facts(shard)?.file);
        let file =
            file.ok_or_else(|| Problem::Corrupt.at(self.name(shard), "its file is not listed"))?;
        Ok(FileRanges {
            file,
            ranges: own.ranges(&part),
        })
    }

    fn compute(&self, shard: usize, bytes: Vec<u8>) -> Result<Vec<u8>, DatasetError> {
        let (own, part) = self.part(shard)?;
        let (name, limits) = (self.name(shard), &self.files.limits);
        Ok(own.shard(&part, &name, bytes, &self.columns, limits)?)
    }
}
