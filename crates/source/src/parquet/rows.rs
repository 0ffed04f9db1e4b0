//! Decodes one row group into record batches.

use std::fs::File;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, RecordBatch, new_null_array};
use arrow::datatypes::{FieldRef, Fields, SchemaRef};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, RowSelection};
use parquet::basic::Compression;
use parquet::file::metadata::ParquetMetaData;
use shardmill_core::catch_panic::{attempt, catch, one_line};
use shardmill_delta::Shape;
use shardmill_parquet::{
    ErrorSlot, GroupPages, OneGroup, PageError, PageProblem, batch_rows, fixed_bytes, plain_values,
    repeated,
};

use super::metadata::levels;
use crate::base::{batch, rows_from};
use crate::error;
use crate::files::InputFile;
use crate::unite::Form as Conform;
use crate::{Rows, SourceOptions, SourceProblem};
use shardmill_core::{Error, escape, lock};

/// The origin of an output column.
pub(crate) enum Origin {
    /// A column of the decoder's batches, by its position in the file's schema, and its conversion.
    Decoded(usize, Form),
    /// The same value in every row, as an array of one value.
    Constant(ArrayRef),
    /// A column that the file lacks.
    Missing,
}

/// How a decoded column is converted to the column of the table.
pub(crate) enum Form {
    /// A column of one of several files, with its field in the file if extension types are replaced.
    Conform(Option<FieldRef>, Conform),
    /// A column of a Delta table.
    Delta(Shape),
}

/// How the columns of a unit are built from its file.
pub(crate) struct GroupPlan {
    /// All columns of the file, as the decoder should return them.
    pub fields: Fields,
    pub origins: Vec<Origin>,
    /// The leaves of the file to decode, ascending.
    pub leaves: Vec<usize>,
}

/// What to read of one row group.
pub(crate) struct Task<'a> {
    pub input: &'a InputFile,
    pub file: File,
    pub metadata: Arc<ParquetMetaData>,
    pub group: usize,
    /// Where its pages are, if the pages of rows that are not selected may be missing.
    pub pages: Option<Arc<GroupPages>>,
    pub plan: GroupPlan,
    /// The rows to read; `None` for all.
    pub selection: Option<RowSelection>,
    pub schema: SchemaRef,
    pub options: &'a SourceOptions,
}

/// An open row group.
struct OpenGroup {
    input: InputFile,
    group: usize,
    file: Arc<File>,
    errors: ErrorSlot,
}

/// The rows of one row group.
struct GroupRows {
    open: OpenGroup,
    reader: ParquetRecordBatchReader,
    schema: SchemaRef,
    origins: Vec<Origin>,
    rows_left: u64,
}

/// Starts to decode a row group.
pub(crate) fn decode_group(task: Task<'_>) -> Result<Box<dyn Rows>, Error> {
    let (input, metadata, group) = (task.input, task.metadata, task.group);
    let options = task.options;
    let (mut origins, leaves) = (task.plan.origins, task.plan.leaves);
    let row_group = metadata.row_groups().get(group).ok_or_else(|| {
        let bytes = input.file_version.bytes;
        error::changed(&input.shown, bytes, bytes, true)
    })?;
    let descr = metadata.file_metadata().schema_descr();
    let mut roots: Vec<usize> = leaves
        .iter()
        .filter(|leaf| **leaf < descr.num_columns())
        .map(|leaf| descr.get_column_root_idx(*leaf))
        .collect();
    roots.dedup();
    for origin in &mut origins {
        if let Origin::Decoded(index, _) = origin {
            // The decoder returns the columns of a mask in file order.
            *index = roots.binary_search(index).unwrap_or(usize::MAX);
        }
    }
    let mut chunks = leaves
        .iter()
        .filter_map(|leaf| row_group.columns().get(*leaf));
    if let Some(chunk) = chunks.find(|chunk| chunk.compression() == Compression::LZO) {
        let column = chunk.column_path().string();
        let column = escape(&column);
        let reason = format!("column `{column}` is compressed with LZO, which is not supported");
        return Err(SourceProblem::ParquetCodec.at(&input.shown, reason));
    }
    let all_rows = u64::try_from(row_group.num_rows()).unwrap_or(0);
    let rows = task
        .selection
        .as_ref()
        .map_or(all_rows, |selection| selection.row_count() as u64);
    let source = OneGroup {
        file: Arc::new(task.file),
        metadata: Arc::clone(&metadata),
        group,
        pages: task.pages,
        page_bytes: options.limits.parquet.page_bytes,
        errors: ErrorSlot::default(),
    };
    let padded: u64 = roots
        .iter()
        .filter_map(|root| task.plan.fields.get(*root))
        .map(|field| fixed_bytes(field.data_type()))
        .fold(0, u64::saturating_add);
    input.check_limit("sample-bytes", padded, options.limits.sample_bytes)?;
    if rows == 0 && all_rows > 0 {
        return Ok(rows_from(|| Ok(None)));
    }
    let size = batch_rows(
        &source,
        &leaves,
        padded,
        options.resources.batch_bytes.max(1),
    );
    // What is wrong with pages here is reported when they are decoded.
    lock(&source.errors).take();
    let mask = ProjectionMask::leaves(descr, leaves.iter().copied());
    let levels = levels(&input.shown, &metadata, mask, &task.plan.fields)?;
    let open = OpenGroup {
        input: input.clone(),
        group,
        file: Arc::clone(&source.file),
        errors: Arc::clone(&source.errors),
    };
    let reader = attempt(|| {
        ParquetRecordBatchReader::try_new_with_row_groups(&levels, &source, size, task.selection)
    });
    let mut rows = GroupRows {
        reader: reader.map_err(|reason| open.corrupt(&reason))?,
        open,
        schema: task.schema,
        origins,
        rows_left: rows,
    };
    Ok(rows_from(move || rows.pull()))
}

impl OpenGroup {
    /// Recovers the operating system's error that the decoder has reduced to text.
    fn system_error(&self, reason: &str) -> Option<Error> {
        let (_, rest) = reason.split_once("(os error ")?;
        let code = rest.split(')').next()?.parse().ok()?;
        let error = std::io::Error::from_raw_os_error(code);
        Some(self.input.read_error(error))
    }

    /// Returns the error of this unit: the one of the page checks if there is one, else the decoder's.
    fn corrupt(&self, reason: &str) -> Error {
        if let Some(error) = self.system_error(reason) {
            return error;
        }
        let mut found = lock(&self.errors);
        let Some(PageError { column, problem }) = found.take() else {
            return SourceProblem::ParquetCorrupt.at(self.shown(), one_line(reason));
        };
        match problem {
            PageProblem::Damaged(reason) => self.in_column(&column, &reason),
            PageProblem::Large(limit) => {
                let object = format!("{} column `{column}`", self.shown());
                error::parquet_limit(&object, "a page", &limit)
            }
        }
    }

    fn in_column(&self, column: &str, reason: &str) -> Error {
        let object = format!("{} column `{column}`", self.shown());
        SourceProblem::ParquetCorrupt.at(object, one_line(reason))
    }

    /// Returns the row group as printed.
    fn shown(&self) -> String {
        format!("{} row group {}", self.input.shown, self.group)
    }

    /// Distinguishes corruption from a file that was replaced while it was read.
    fn failed(&self, reason: &str) -> Error {
        match self.input.check(&self.file) {
            Err(changed) => changed,
            Ok(()) => self.corrupt(reason),
        }
    }
}

impl GroupRows {
    fn pull(&mut self) -> Result<Option<RecordBatch>, Error> {
        let (open, reader) = (&self.open, &mut self.reader);
        loop {
            match catch(|| reader.next()) {
                Ok(Some(Ok(decoded))) if decoded.num_rows() == 0 => {}
                Ok(Some(Ok(decoded))) => return self.assemble(&decoded).map(Some),
                Ok(Some(Err(error))) => return Err(open.failed(&error.to_string())),
                Err(panic) => return Err(open.failed(&panic)),
                Ok(None) if self.rows_left > 0 => {
                    let left = self.rows_left;
                    return Err(open.failed(&format!("ends {left} rows before its footer says")));
                }
                Ok(None) => {
                    open.input.check(&open.file)?;
                    return Ok(None);
                }
            }
        }
    }

    fn assemble(&mut self, decoded: &RecordBatch) -> Result<RecordBatch, Error> {
        let rows = decoded.num_rows();
        self.rows_left = self
            .rows_left
            .checked_sub(rows as u64)
            .ok_or_else(|| self.open.corrupt("holds more rows than its footer says"))?;
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.origins.len());
        for (origin, field) in self.origins.iter().zip(self.schema.fields()) {
            let column = match origin {
                Origin::Decoded(index, form) => {
                    let column = decoded
                        .columns()
                        .get(*index)
                        .ok_or_else(|| error::bug("the decoder left out a column"))?;
                    if !field.is_nullable() && column.logical_null_count() > 0 {
                        let reason = "has nulls though it is required";
                        return Err(self.open.in_column(field.name(), reason));
                    }
                    match form {
                        Form::Conform(extension, form) => {
                            let plain = extension.as_ref().map(|own| plain_values(column, own));
                            let plain = plain.transpose().map_err(|error| {
                                self.open.in_column(field.name(), &error.to_string())
                            })?;
                            let column = plain.as_ref().unwrap_or(column);
                            form.apply(column, field.data_type()).map_err(|error| {
                                let reason = one_line(&error.to_string());
                                error::conversion(&self.open.input.shown, field, &reason)
                            })?
                        }
                        Form::Delta(shape) => shape.apply(column).map_err(|error| {
                            self.open.in_column(field.name(), &error.to_string())
                        })?,
                    }
                }
                Origin::Constant(value) => repeated(value, rows)
                    .map_err(|error| error::bug(format!("a constant column: {error}")))?,
                Origin::Missing => new_null_array(field.data_type(), rows),
            };
            columns.push(column);
        }
        batch(&self.schema, columns, rows)
    }
}
