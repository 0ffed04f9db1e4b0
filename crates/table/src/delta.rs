//! Delta tables: the log chooses the files, and tells which rows are deleted.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use arrow::array::ArrayRef;
use arrow::datatypes::Fields;
use roaring::RoaringTreemap;
use shardmill_core::Error;
use shardmill_dataset::{ChosenFiles, DatasetError, FileEntry, FileList};
use shardmill_delta::{DeltaTable, LogFile, Version, VersionChoice};
use shardmill_mds::{HashAlgo, hash_hex};
use shardmill_storage::{Folder, Location};

/// A version of a Delta table that is read in place.
#[derive(Debug)]
pub(crate) struct DeltaFiles {
    pub(crate) version: Version,
    /// For each file of the version, its deleted rows, once they were read.
    deleted: Vec<OnceLock<Option<Arc<RoaringTreemap>>>>,
}

/// Returns the table at a source.
pub(crate) fn table_at(source: &Folder) -> Result<DeltaTable, DatasetError> {
    let table = match source {
        Folder::Local(dir) => DeltaTable::new(&Location::Local(dir.path().to_owned()), None),
        Folder::Store(store) => {
            let remote = store.remote();
            let location = Location::Remote(remote.location().clone());
            DeltaTable::new(&location, Some(&remote.bucket()?))
        }
    };
    Ok(table?)
}

impl DeltaFiles {
    pub(crate) fn open(source: &Folder, choice: &VersionChoice) -> Result<Self, DatasetError> {
        let version = table_at(source)?.open(choice)?;
        let deleted = version.files().iter().map(|_| OnceLock::new()).collect();
        Ok(Self { version, deleted })
    }

    /// Returns the files of the version, and a digest of everything that decides about their rows.
    pub(crate) fn chosen(&self) -> ChosenFiles {
        let mut facts = Vec::new();
        let mut add = |text: &str| {
            facts.extend((text.len() as u64).to_le_bytes());
            facts.extend(text.as_bytes());
        };
        add(self.version.identity());
        for file in self.version.files() {
            add(&file.path.shown);
            add(file.deletion.as_ref().map_or("", |deletion| &deletion.id));
            for (name, value) in &file.partition_values {
                add(name);
                add(value.as_deref().unwrap_or("\0null"));
            }
        }
        let paths = self.version.files().iter();
        ChosenFiles {
            identity: hash_hex(HashAlgo::Sha256, &facts),
            paths: Arc::new(paths.map(|file| file.path.shown.clone()).collect()),
        }
    }

    /// Returns the listed entry of each file of the version.
    pub(crate) fn entries(&self, list: &FileList) -> Result<Vec<FileEntry>, DatasetError> {
        let listed = (0..list.len()).filter_map(|number| list.get(number));
        let listed: BTreeMap<&str, &FileEntry> =
            listed.map(|entry| (&*entry.info.basename, entry)).collect();
        let entry = |file: &LogFile| {
            let found = listed.get(&*file.path.shown).copied().cloned();
            found.ok_or_else(|| self.version.missing(&self.version.shown(file)))
        };
        let entries: Result<Vec<_>, _> = self.version.files().iter().map(entry).collect();
        Ok(entries?)
    }

    /// Returns the columns of the table.
    pub(crate) fn fields(&self) -> Fields {
        let columns = self.version.columns().iter();
        columns.map(|column| Arc::clone(&column.field)).collect()
    }

    /// Returns the deleted rows of a file that has `rows` rows.
    pub(crate) fn deleted(
        &self,
        file: usize,
        rows: u64,
    ) -> Result<Option<Arc<RoaringTreemap>>, Error> {
        let (Some(own), Some(slot)) = (self.version.files().get(file), self.deleted.get(file))
        else {
            return Ok(None);
        };
        if let Some(known) = slot.get() {
            return Ok(known.clone());
        }
        let deleted = self.version.deleted(own, rows)?.map(Arc::new);
        Ok(slot.get_or_init(|| deleted).clone())
    }

    /// Returns the values of the partition columns for a file.
    pub(crate) fn partition_values(&self, file: usize) -> Result<Vec<ArrayRef>, Error> {
        match self.version.files().get(file) {
            Some(file) => Ok(self.version.partition_values(file)?),
            None => Ok(Vec::new()),
        }
    }
}
