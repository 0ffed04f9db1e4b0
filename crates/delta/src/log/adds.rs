//! The kernel's list of the files of a version.

use arrow::array::{Array, AsArray as _, RecordBatch, StructArray};
use arrow::datatypes::{ArrowPrimitiveType, Int32Type, Int64Type};
use delta_kernel::KernelError;
use delta_kernel::actions::deletion_vector::DeletionVectorDescriptor;
use serde::Deserialize;

use super::log_file::{Deletion, vector_id};

/// Returns the number of rows that the statistics of a file claim.
pub(super) fn records(statistics: &str) -> Option<u64> {
    #[derive(Deserialize)]
    struct Statistics {
        #[serde(rename = "numRecords")]
        records: Option<u64>,
    }
    serde_json::from_str::<Statistics>(statistics).ok()?.records
}

/// The columns of the kernel's file list.
pub(super) struct Adds<'a> {
    pub(super) paths: &'a arrow::array::StringArray,
    pub(super) sizes: &'a arrow::array::Int64Array,
    pub(super) stats: &'a arrow::array::StringArray,
    pub(super) deletions: &'a StructArray,
    pub(super) partition_values: &'a arrow::array::MapArray,
}

impl<'a> Adds<'a> {
    pub(super) fn of(batch: &'a RecordBatch) -> Option<Self> {
        let text = |name: &str| batch.column_by_name(name)?.as_string_opt::<i32>();
        let constants = batch
            .column_by_name("fileConstantValues")?
            .as_struct_opt()?;
        Some(Self {
            paths: text("path")?,
            sizes: batch
                .column_by_name("size")?
                .as_primitive_opt::<Int64Type>()?,
            stats: text("stats")?,
            deletions: batch.column_by_name("deletionVector")?.as_struct_opt()?,
            partition_values: constants.column_by_name("partitionValues")?.as_map_opt()?,
        })
    }

    pub(super) fn partition_values(&self, row: usize) -> Vec<(String, Option<String>)> {
        if self.partition_values.is_null(row) {
            return Vec::new();
        }
        let entries = self.partition_values.value(row);
        let texts = |column: usize| entries.columns().get(column)?.as_string_opt::<i32>();
        let Some((keys, values)) = texts(0).zip(texts(1)) else {
            return Vec::new();
        };
        let of = |values: &arrow::array::StringArray, at: usize| {
            (!values.is_null(at)).then(|| values.value(at).to_owned())
        };
        let mut found: Vec<_> = (0..entries.len())
            .filter_map(|at| Some((of(keys, at)?, of(values, at))))
            .collect();
        found.sort();
        found
    }

    pub(super) fn deletion(&self, row: usize) -> Option<Result<Deletion, KernelError>> {
        if self.deletions.is_null(row) {
            return None;
        }
        let text = |name: &str| {
            let array = self.deletions.column_by_name(name)?;
            let array = array.as_string_opt::<i32>()?;
            (!array.is_null(row)).then(|| array.value(row))
        };
        let storage = text("storageType")?;
        let path_or_inline_dv = text("pathOrInlineDv").unwrap_or_default();
        let offset = number::<Int32Type>(self.deletions, "offset", row);
        let bytes = number::<Int32Type>(self.deletions, "sizeInBytes", row);
        let cardinality = number::<Int64Type>(self.deletions, "cardinality", row);
        let descriptor = storage.parse().and_then(|storage| {
            let (bytes, cardinality) = (bytes.unwrap_or(-1), cardinality.unwrap_or(-1));
            DeletionVectorDescriptor::try_new(
                storage,
                path_or_inline_dv,
                offset,
                bytes,
                cardinality,
            )
        });
        Some(descriptor.map(|descriptor| Deletion {
            descriptor,
            id: vector_id(storage, path_or_inline_dv, offset),
        }))
    }
}

/// Returns a number of a struct; `None` if it is null or has another type.
fn number<T: ArrowPrimitiveType>(of: &StructArray, name: &str, row: usize) -> Option<T::Native> {
    let array = of.column_by_name(name)?.as_primitive_opt::<T>()?;
    (!array.is_null(row)).then(|| array.value(row))
}
