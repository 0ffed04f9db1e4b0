//! Record batches from any Arrow implementation in the process, through Arrow's C data interface.

use std::ffi::CStr;
use std::sync::Arc;

use arrow::array::{Array as _, StructArray};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow::ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream};
use arrow::record_batch::{RecordBatch, RecordBatchOptions, RecordBatchReader as _};
use pyo3::exceptions::{PyKeyError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use shardmill_core::Limits;
use shardmill_mds::{Layout, ShardConfig};
use shardmill_parquet::{plain_values, without_extensions};
use shardmill_writer::{ColumnEncoder, RowEncoder, Target};

use crate::errors::raise;

/// The approximate encoded size of rows that are encoded together, in bytes.
const SLICE_BYTES: usize = 32 << 20;

/// The minimum of rows that are encoded together.
const SLICE_ROWS: usize = 1024;

/// Batches of one schema.
pub(crate) enum Batches {
    Stream(ArrowArrayStreamReader),
    One(SchemaRef, Option<RecordBatch>),
}

impl Batches {
    /// Imports the batches of an object with `__arrow_c_stream__` or `__arrow_c_array__`.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = object.py();
        if object.hasattr(intern!(py, "__arrow_c_stream__"))? {
            let capsule = object.call_method0(intern!(py, "__arrow_c_stream__"))?;
            let pointer = pointer::<FFI_ArrowArrayStream>(&capsule, c"arrow_array_stream")?;
            // SAFETY: by the protocol, a capsule of that name holds a stream. The capsule still owns the memory of the
            // struct; its contents are moved out and marked as released.
            let stream = unsafe { ArrowArrayStreamReader::from_raw(pointer) };
            return Ok(Self::Stream(stream.map_err(failed)?));
        }
        if object.hasattr(intern!(py, "__arrow_c_array__"))? {
            let capsules = object.call_method0(intern!(py, "__arrow_c_array__"))?;
            let (schema, array): (Bound<'_, PyAny>, Bound<'_, PyAny>) = capsules.extract()?;
            let schema = pointer::<FFI_ArrowSchema>(&schema, c"arrow_schema")?;
            let array = pointer::<FFI_ArrowArray>(&array, c"arrow_array")?;
            // SAFETY: as above, capsules of these names hold a schema and an array.
            let data = unsafe {
                let array = FFI_ArrowArray::from_raw(array);
                from_ffi(array, &*schema)
            };
            return Self::one(&StructArray::from(struct_of(data.map_err(failed)?)?));
        }
        Err(PyTypeError::new_err(format!(
            "{} has neither __arrow_c_stream__ nor __arrow_c_array__",
            object.get_type()
        )))
    }

    fn one(array: &StructArray) -> PyResult<Self> {
        let schema = Arc::new(Schema::new(array.fields().clone()));
        let options = RecordBatchOptions::new().with_row_count(Some(array.len()));
        let batch = RecordBatch::try_new_with_options(
            Arc::clone(&schema),
            array.columns().to_vec(),
            &options,
        );
        Ok(Self::One(schema, Some(batch.map_err(failed)?)))
    }

    /// Calls `add` with slices of the batches and the number of rows before each. Returns the number of rows.
    pub(crate) fn each_slice(
        mut self,
        py: Python<'_>,
        mut add: impl FnMut(&RecordBatch, u64) -> PyResult<()>,
    ) -> PyResult<u64> {
        let mut rows = 0_u64;
        while let Some(batch) = py.detach(|| self.next()) {
            let batch = batch.map_err(failed)?;
            let step = rows_at_once(&batch);
            for start in (0..batch.num_rows()).step_by(step) {
                let slice = batch.slice(start, step.min(batch.num_rows() - start));
                add(&slice, rows)?;
                rows += u64::try_from(slice.num_rows()).unwrap_or(0);
            }
        }
        Ok(rows)
    }

    /// Returns the columns, without extension types.
    pub(crate) fn schema(&self) -> SchemaRef {
        match self {
            Self::Stream(stream) => plain_schema(&stream.schema()),
            Self::One(schema, _) => plain_schema(schema),
        }
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = match self {
            Self::Stream(stream) => stream.next(),
            Self::One(_, batch) => batch.take().map(Ok),
        };
        batch.map(|batch| plain_batch(&batch?))
    }
}

fn plain_schema(schema: &Schema) -> SchemaRef {
    let fields: Vec<_> = schema.fields().iter().map(without_extensions).collect();
    Arc::new(Schema::new(fields))
}

/// Returns a batch with plain values instead of those of extension types.
fn plain_batch(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let (schema, options) = (batch.schema(), RecordBatchOptions::new());
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| plain_values(column, field));
    RecordBatch::try_new_with_options(
        plain_schema(&schema),
        columns.collect::<Result<_, _>>()?,
        &options.with_row_count(Some(batch.num_rows())),
    )
}

fn struct_of(data: arrow::array::ArrayData) -> PyResult<arrow::array::ArrayData> {
    match data.data_type() {
        DataType::Struct(_) => Ok(data),
        other => Err(PyTypeError::new_err(format!(
            "an Arrow array of type {other} has no columns"
        ))),
    }
}

fn pointer<T>(capsule: &Bound<'_, PyAny>, name: &CStr) -> PyResult<*mut T> {
    let capsule = capsule.cast::<PyCapsule>()?;
    Ok(capsule.pointer_checked(Some(name))?.as_ptr().cast())
}

fn failed(error: ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Creates the encoder for batches of a schema and shards of a configuration. Columns are found by name.
pub(super) fn encoder(
    schema: &Schema,
    config: &ShardConfig,
    limits: &Limits,
) -> PyResult<RowEncoder> {
    let targets: Vec<(&str, Target)> = match &config.layout {
        Layout::Mds { columns } => columns
            .iter()
            .map(|column| (column.name.as_str(), Target::Mds(column.encoding.clone())))
            .collect(),
        Layout::Json { columns, .. } => columns
            .iter()
            .map(|column| (column.name.as_str(), Target::Json(column.encoding)))
            .collect(),
        Layout::Xsv { columns, .. } => columns
            .iter()
            .map(|column| (column.name.as_str(), Target::Xsv(column.encoding)))
            .collect(),
    };
    let mut columns = Vec::with_capacity(targets.len());
    for (name, target) in targets {
        let (at, field) = schema
            .column_with_name(name)
            .ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
        let column = ColumnEncoder::compile(at, field, target, limits);
        columns.push(column.map_err(raise)?);
    }
    Ok(RowEncoder::new(
        columns,
        &config.layout,
        limits.sample_bytes,
    ))
}

/// Returns how many rows of a batch to encode together.
fn rows_at_once(batch: &RecordBatch) -> usize {
    let bytes = batch.get_array_memory_size() / batch.num_rows().max(1);
    (SLICE_BYTES / bytes.max(1)).max(SLICE_ROWS)
}
