//! A version: its files, its columns, and what the log says about the rows of a file.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef};
use arrow::datatypes::Fields;
use delta_kernel::KernelError;
use delta_kernel::table_features::ColumnMappingMode;
use roaring::RoaringTreemap;
use shardmill_core::catch_panic::{catch, one_line};
use shardmill_core::{Error, escape};

use super::log_file::{Deletion, LogFile};
use super::table::DeltaTable;
use crate::error::Problem;
use crate::schema::Column;
use crate::shape::{ColumnOrigin, Finder, has_ids};
use crate::store::KernelStore;
use crate::summary::DeltaSummary;
use crate::values::parse_value;

/// One version of a table.
pub struct Version {
    pub(super) summary: DeltaSummary,
    pub(super) columns: Vec<Column>,
    /// For each column, its position among the partition columns, if it is one.
    pub(super) partitions: Vec<Option<usize>>,
    pub(super) mode: ColumnMappingMode,
    pub(super) files: Vec<LogFile>,
    pub(super) identity: String,
    pub(super) table: DeltaTable,
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Version")
            .field("table", &self.table.shown)
            .field("version", &self.summary.version)
            .finish_non_exhaustive()
    }
}

impl Version {
    /// Describes the version.
    #[must_use]
    pub const fn summary(&self) -> &DeltaSummary {
        &self.summary
    }

    /// Returns the data files, sorted by path.
    #[must_use]
    pub fn files(&self) -> &[LogFile] {
        &self.files
    }

    /// Returns the columns, in the order of the schema.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Returns a text that differs between versions whose rows are read in another way.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Returns a file in messages.
    #[must_use]
    pub fn shown(&self, file: &LogFile) -> String {
        match file.path.shown.starts_with('/') {
            true => file.path.shown.clone(),
            false => format!(
                "{}/{}",
                self.table.shown.trim_end_matches('/'),
                file.path.shown
            ),
        }
    }

    /// Builds the error about a data file or deletion vector that the log lists and that no longer exists.
    #[must_use]
    pub fn missing(&self, file: &str) -> Error {
        let version = self.summary.version;
        Problem::FileMissing.at(
            file,
            format!(
                "version {version} of the table consists of this file among others, and it does not exist: vacuumed?"
            ),
        )
    }

    /// Returns where the values of some columns come from in a file with these fields. `partition_values` are those of
    /// the file.
    ///
    /// # Errors
    ///
    /// `delta-field-ids` if columns are found by ids and the file has none; `delta-column` if a column cannot be read.
    pub fn locate(
        &self,
        file: &str,
        fields: &Fields,
        partition_values: &[ArrayRef],
        columns: impl IntoIterator<Item = usize>,
    ) -> Result<Vec<ColumnOrigin>, Error> {
        let mut stored = self.columns.iter().zip(&self.partitions);
        let reads = stored.any(|(column, partition)| partition.is_none() && !column.is_void());
        if self.mode == ColumnMappingMode::Id && reads && !has_ids(fields) {
            return Err(Problem::FieldIds.at(file, "has no field ids, and the columns of the table are found by them (column mapping mode `id`)"));
        }
        let finder = Finder {
            file,
            mode: self.mode,
        };
        let origin = |number: usize| {
            let partition = self.partitions.get(number).copied().flatten();
            if let Some(value) = partition.and_then(|index| partition_values.get(index)) {
                return Ok(ColumnOrigin::Constant(Arc::clone(value)));
            }
            let column = self.columns.get(number);
            let found = column
                .map(|column| finder.find(column, fields))
                .transpose()?;
            Ok(match found.flatten() {
                Some(found) => ColumnOrigin::Stored(found),
                None => ColumnOrigin::Missing,
            })
        };
        columns.into_iter().map(origin).collect()
    }

    /// Returns the values of the partition columns for a file, each as an array of one value.
    ///
    /// # Errors
    ///
    /// `delta-partition-value` if a text is no value of its column.
    pub fn partition_values(&self, file: &LogFile) -> Result<Vec<ArrayRef>, Error> {
        let mut values = Vec::new();
        for (column, partition) in self.columns.iter().zip(&self.partitions) {
            if partition.is_none() {
                continue;
            }
            let text = file
                .partition_values
                .iter()
                .find(|(name, _)| name == column.definition.physical_name(self.mode))
                .and_then(|(_, value)| value.as_deref());
            let data_type = column.field.data_type();
            let value = parse_value(text, data_type)
                .filter(|value| column.field.is_nullable() || value.null_count() == 0);
            values.push(value.ok_or_else(|| {
                let (name, text) = (escape(column.field.name()), escape(text.unwrap_or_default()));
                Problem::PartitionValue.at(
                    self.shown(file),
                    format!(
                        "the table log gives the partition column `{name}` the value `{text}`, which is no {data_type}"
                    ),
                )
            })?);
        }
        Ok(values)
    }

    /// Returns the deleted rows of a file that has `rows` rows; `None` if it has no deletion vector.
    ///
    /// # Errors
    ///
    /// `delta-row-count` and `delta-deletion-vector` if the log does not fit the file.
    pub fn deleted(&self, file: &LogFile, rows: u64) -> Result<Option<RoaringTreemap>, Error> {
        let shown = self.shown(file);
        if let Some(claimed) = file.records.filter(|claimed| *claimed != rows) {
            let reason = format!("has {rows} rows, and the table log says {claimed}");
            return Err(Problem::RowCount.at(shown, reason));
        }
        let Some(deletion) = &file.deletion else {
            return Ok(None);
        };
        let deleted = self.deletion_vector(&shown, deletion)?;
        match deleted.max().filter(|last| *last >= rows) {
            None => Ok(Some(deleted)),
            Some(last) => {
                let reason = format!("deletion vector: deletes row {last} of {rows}");
                Err(Problem::DeletionVector.at(shown, reason))
            }
        }
    }

    fn deletion_vector(&self, file: &str, deletion: &Deletion) -> Result<RoaringTreemap, Error> {
        let wrong =
            |reason: String| Problem::DeletionVector.at(file, format!("deletion vector: {reason}"));
        let DeltaTable {
            root,
            bucket,
            kernel,
            engine,
            ..
        } = &self.table;
        let read = catch(|| deletion.descriptor.read(engine.storage_handler(), root));
        let deleted = read.map_err(wrong)?;
        let deleted = deleted.map_err(|error| match error.without_backtrace() {
            KernelError::FileNotFound(_) if bucket.is_some() => self.missing(file),
            KernelError::FileNotFound(_) => {
                let url = deletion.descriptor.absolute_path(root).ok().flatten();
                let path = url.and_then(|url| url.to_file_path().ok());
                let path = path.map(|path| path.display().to_string());
                self.missing(path.as_deref().unwrap_or(file))
            }
            other => match kernel.as_ref().and_then(KernelStore::take_failure) {
                Some(failure) => failure.into(),
                None => wrong(one_line(&other.to_string())),
            },
        })?;
        let claimed = u64::try_from(deletion.descriptor.cardinality).unwrap_or(0);
        if deleted.len() != claimed {
            return Err(wrong(format!(
                "has {} rows, and the table log says {claimed}",
                deleted.len()
            )));
        }
        Ok(deleted)
    }
}
