//! Rows with random keys in temporary files, and their order by key.

use std::fs::File;
use std::io::{self, BufReader, BufWriter};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{ArrayRef, AsArray as _, RecordBatch, UInt64Array};
use arrow::compute::{can_cast_types, cast, interleave_record_batch};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, UInt64Type};
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use shardmill_core::{Error, lock};

use crate::ResourceOptions;
use crate::error;
use crate::input::Range;
use crate::slices::used_bytes;

/// The maximum number of files that are written at the same time.
pub(crate) const MAX_FILES: u64 = 256;
/// The memory for the rows of a thread without a memory limit.
const ROWS_BYTES: usize = 64 << 20;
/// The least memory for the rows of a thread, whatever the memory limit.
const MIN_ROWS_BYTES: usize = 1 << 20;
/// The names of the columns with the two halves of keys. They follow the columns of the source and are found by their
/// position, so the source may have columns with these names.
const KEY_NAMES: [&str; 2] = ["key_high", "key_low"];

/// The form of the rows in memory and in files, and the folder of the files.
pub(crate) struct RowStore {
    schema: SchemaRef,
    /// The columns as they are stored, and the halves of the keys.
    stored: SchemaRef,
    batch_bytes: usize,
    rows_bytes: usize,
    temp_dir: PathBuf,
}

impl RowStore {
    pub(crate) fn new(schema: SchemaRef, options: &ResourceOptions) -> Self {
        // A thread holds its rows, and a copy of the part that it sorts.
        let rows_bytes = options.memory_limit.map_or(ROWS_BYTES, |limit| {
            let share = usize::try_from(limit).unwrap_or(usize::MAX) / (4 * options.jobs.max(1));
            share.clamp(MIN_ROWS_BYTES, ROWS_BYTES)
        });
        let fields = schema.fields().iter().map(|field| {
            let stored = stored_type(field.data_type());
            Arc::new(field.as_ref().clone().with_data_type(stored))
        });
        let keys = KEY_NAMES.map(|name| Arc::new(Field::new(name, DataType::UInt64, false)));
        let stored = Schema::new(fields.chain(keys).collect::<Fields>());
        Self {
            stored: Arc::new(stored),
            schema,
            batch_bytes: options.batch_bytes.max(1),
            rows_bytes,
            temp_dir: options.temp_folder(),
        }
    }

    /// Returns a batch of the source with the keys of its rows, as it is stored.
    pub(crate) fn with_keys(
        &self,
        batch: &RecordBatch,
        keys: impl Iterator<Item = u128>,
    ) -> Result<RecordBatch, Error> {
        #[expect(clippy::cast_possible_truncation, reason = "the halves of the key")]
        let (high, low): (Vec<u64>, Vec<u64>) =
            keys.map(|key| ((key >> 64) as u64, key as u64)).unzip();
        let keys = [high, low].map(|half| Arc::new(UInt64Array::from(half)) as ArrayRef);
        let columns = batch.columns().iter().zip(self.stored.fields());
        let columns = columns.map(|(column, field)| cast(column, field.data_type()));
        columns
            .chain(keys.into_iter().map(Ok))
            .collect::<Result<Vec<_>, _>>()
            .and_then(|columns| RecordBatch::try_new(Arc::clone(&self.stored), columns))
            .map_err(|error| self.failed("shuffle rows in", error))
    }

    fn failed(&self, action: &'static str, error: ArrowError) -> Error {
        match error {
            ArrowError::IoError(_, error) => self.io(action, error),
            other => error::bug(format!("rows cannot be shuffled: {other}")),
        }
    }

    fn io(&self, action: &'static str, error: io::Error) -> Error {
        error::io(action, self.temp_dir.to_string_lossy(), error)
    }

    /// Reads all batches of a file from its beginning. Several threads may read it at the same time.
    fn batches(
        &self,
        file: &Arc<File>,
    ) -> Result<impl Iterator<Item = Result<RecordBatch, Error>>, Error> {
        let failed = |error| self.failed("read shuffled rows in", error);
        let whole = Range::new(Arc::clone(file), 0, u64::MAX);
        let reader = BufReader::with_capacity(1 << 20, whole);
        let reader = StreamReader::try_new(reader, None).map_err(failed)?;
        Ok(reader.map(move |batch| batch.map_err(failed)))
    }
}

/// Returns a type without views. A few rows of an array of views would be stored with the data of all its rows.
fn stored_type(data_type: &DataType) -> DataType {
    let field = |field: &FieldRef| -> FieldRef {
        let inner = stored_type(field.data_type());
        Arc::new(field.as_ref().clone().with_data_type(inner))
    };
    let stored = match data_type {
        DataType::Utf8View => DataType::LargeUtf8,
        DataType::BinaryView => DataType::LargeBinary,
        DataType::List(item) | DataType::ListView(item) => DataType::List(field(item)),
        DataType::LargeList(item) | DataType::LargeListView(item) => {
            DataType::LargeList(field(item))
        }
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(field(item), *size),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(field).collect()),
        DataType::Map(entries, sorted) => DataType::Map(field(entries), *sorted),
        other => other.clone(),
    };
    match can_cast_types(data_type, &stored) && can_cast_types(&stored, data_type) {
        true => stored,
        false => data_type.clone(),
    }
}

/// A range of keys, by their upper halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KeyRange {
    start: u64,
    width: u128,
}

impl KeyRange {
    const ALL: Self = Self {
        start: 0,
        width: 1 << 64,
    };

    /// Returns the number of the part that contains a key of this range, if it is divided into `count` parts.
    fn part_of(self, high: u64, count: usize) -> usize {
        let offset = u128::from(high - self.start);
        usize::try_from(offset * count as u128 / self.width).unwrap_or(count)
    }

    /// Returns whether a key is in the range.
    fn has(self, key: u128) -> bool {
        let offset = (key >> 64).checked_sub(u128::from(self.start));
        offset.is_some_and(|offset| offset < self.width)
    }

    /// Returns a part of the range.
    fn part(self, number: usize, count: usize) -> Self {
        let offset = |number: usize| (number as u128 * self.width).div_ceil(count as u128);
        let (start, end) = (offset(number), offset(number + 1));
        Self {
            start: u64::try_from(u128::from(self.start) + start).unwrap_or(u64::MAX),
            width: end - start,
        }
    }
}

/// The rows whose keys are in one range, in no particular order.
#[derive(Clone)]
pub(crate) struct KeyFile {
    file: Arc<File>,
    range: KeyRange,
    rows: u64,
}

impl KeyFile {
    /// Returns whether the file contains the row with this key.
    pub(crate) fn has(&self, key: u128) -> bool {
        self.range.has(key)
    }
}

/// Writes rows to one file for each range of keys. The system removes the files when they are closed, also after a crash.
pub(crate) struct KeyFiles<'a> {
    store: &'a RowStore,
    range: KeyRange,
    /// The writer of each file, and the number of its rows.
    writers: Vec<Mutex<(StreamWriter<BufWriter<File>>, u64)>>,
}

impl<'a> KeyFiles<'a> {
    /// Creates `count` files for all keys.
    pub(crate) fn new(store: &'a RowStore, count: usize) -> Result<Self, Error> {
        Self::of_range(store, KeyRange::ALL, count)
    }

    fn of_range(store: &'a RowStore, range: KeyRange, count: usize) -> Result<Self, Error> {
        let writer = |_| {
            let file = tempfile::tempfile_in(&store.temp_dir)
                .map_err(|error| store.io("make a temporary file in", error))?;
            let writer = StreamWriter::try_new(BufWriter::new(file), &store.stored)
                .map_err(|error| store.failed(WRITE, error))?;
            Ok(Mutex::new((writer, 0)))
        };
        Ok(Self {
            store,
            range,
            writers: (0..count).map(writer).collect::<Result<_, Error>>()?,
        })
    }

    /// Writes the rows of batches with keys, and clears the list.
    fn write(&self, batches: &mut Vec<RecordBatch>) -> Result<(), Error> {
        let mut rows: Vec<Vec<(usize, usize)>> = vec![Vec::new(); self.writers.len()];
        for (number, batch) in batches.iter().enumerate() {
            for (row, high) in halves(batch)[0].values().iter().enumerate() {
                if let Some(rows) = rows.get_mut(self.range.part_of(*high, self.writers.len())) {
                    rows.push((number, row));
                }
            }
        }
        let failed = |error| self.store.failed(WRITE, error);
        let all: Vec<&RecordBatch> = batches.iter().collect();
        for (writer, rows) in self.writers.iter().zip(rows) {
            if rows.is_empty() {
                continue;
            }
            let part = interleave_record_batch(&all, &rows).map_err(failed)?;
            let (writer, written) = &mut *lock(writer);
            writer.write(&part).map_err(failed)?;
            *written += rows.len() as u64;
        }
        batches.clear();
        Ok(())
    }

    /// Returns the files in the order of their ranges.
    pub(crate) fn finish(self) -> Result<Vec<KeyFile>, Error> {
        let count = self.writers.len();
        let files = self.writers.into_iter().enumerate().map(|(number, file)| {
            let (writer, rows) = file.into_inner().unwrap_or_else(PoisonError::into_inner);
            let buffer = writer
                .into_inner()
                .map_err(|error| self.store.failed(WRITE, error))?;
            let written = buffer.into_inner();
            let written = written.map_err(|error| self.store.io(WRITE, error.into_error()))?;
            Ok(KeyFile {
                file: Arc::new(written),
                range: self.range.part(number, count),
                rows,
            })
        });
        files.collect()
    }
}

const WRITE: &str = "write shuffled rows in";

/// Returns the halves of the keys of a batch.
fn halves(batch: &RecordBatch) -> [&UInt64Array; 2] {
    let first = batch.num_columns() - KEY_NAMES.len();
    [first, first + 1].map(|column| batch.column(column).as_primitive::<UInt64Type>())
}

/// Collects batches with keys, and writes them together when they reach the memory for rows.
pub(crate) struct KeyBuffer<'a> {
    files: &'a KeyFiles<'a>,
    batches: Vec<RecordBatch>,
    bytes: usize,
}

impl<'a> KeyBuffer<'a> {
    pub(crate) const fn new(files: &'a KeyFiles<'a>) -> Self {
        Self {
            files,
            batches: Vec::new(),
            bytes: 0,
        }
    }

    pub(crate) fn push(&mut self, batch: RecordBatch) -> Result<(), Error> {
        let bytes = used_bytes(&batch);
        if self.bytes.saturating_add(bytes) > self.files.store.rows_bytes {
            self.flush()?;
        }
        self.batches.push(batch);
        self.bytes += bytes;
        Ok(())
    }

    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        self.bytes = 0;
        self.files.write(&mut self.batches)
    }
}

/// Reads the rows of a file in the order of their keys.
pub(crate) struct SortedRows {
    store: Arc<RowStore>,
    /// The files that follow, the next one last. A file that is too large for the memory is divided into several.
    files: Vec<KeyFile>,
    /// The rows of one file in memory.
    batches: Vec<RecordBatch>,
    /// The batch and the row of each of them, in the order of the keys.
    order: Vec<(usize, usize)>,
    /// The next of them.
    next: usize,
    rows_per_batch: usize,
}

impl SortedRows {
    pub(crate) fn new(store: Arc<RowStore>, file: KeyFile) -> Self {
        Self {
            store,
            files: vec![file],
            batches: Vec::new(),
            order: Vec::new(),
            next: 0,
            rows_per_batch: 1,
        }
    }

    pub(crate) fn pull(&mut self) -> Result<Option<RecordBatch>, Error> {
        loop {
            if let Some(batch) = self.next_batch()? {
                return Ok(Some(batch));
            }
            self.batches.clear();
            let Some(file) = self.files.pop() else {
                return Ok(None);
            };
            let bytes = self.size(&file)?;
            if bytes > self.store.rows_bytes && file.rows > 1 && file.range.width > 1 {
                let count = (bytes as u64 / self.store.rows_bytes as u64 + 1).min(MAX_FILES);
                self.divide(&file, usize::try_from(count).unwrap_or(2))?;
            } else if file.rows > 0 {
                self.sort(&file, bytes)?;
            }
        }
    }

    /// Returns the size of a file in memory.
    fn size(&self, file: &KeyFile) -> Result<usize, Error> {
        let metadata = file.file.metadata();
        let bytes = metadata.map_err(|error| self.store.io("read shuffled rows in", error))?;
        Ok(usize::try_from(bytes.len()).unwrap_or(usize::MAX))
    }

    /// Divides a file by its keys.
    fn divide(&mut self, file: &KeyFile, count: usize) -> Result<(), Error> {
        let files = KeyFiles::of_range(&self.store, file.range, count)?;
        let mut buffer = KeyBuffer::new(&files);
        for batch in self.store.batches(&file.file)? {
            buffer.push(batch?)?;
        }
        buffer.flush()?;
        self.files.extend(files.finish()?.into_iter().rev());
        Ok(())
    }

    /// Reads a file and sorts its rows.
    fn sort(&mut self, file: &KeyFile, bytes: usize) -> Result<(), Error> {
        let batches = self.store.batches(&file.file)?;
        let batches = batches.collect::<Result<Vec<_>, _>>()?;
        let mut keys: Vec<(u64, u64, (usize, usize))> = Vec::new();
        for (number, batch) in batches.iter().enumerate() {
            let [high, low] = halves(batch).map(UInt64Array::values);
            let rows = high.iter().zip(low.iter()).enumerate();
            keys.extend(rows.map(|(row, (high, low))| (*high, *low, (number, row))));
        }
        // Keys of 128 bits do not repeat, so the positions never decide.
        keys.sort_unstable();
        let per_row = (bytes / keys.len().max(1)).max(1);
        self.rows_per_batch = (self.store.batch_bytes / per_row).max(1);
        self.order = keys.into_iter().map(|(_, _, position)| position).collect();
        self.batches = batches;
        self.next = 0;
        Ok(())
    }

    /// Returns the next rows as a batch of the source.
    fn next_batch(&mut self) -> Result<Option<RecordBatch>, Error> {
        let end = self.order.len().min(self.next + self.rows_per_batch);
        let rows = self.order.get(self.next..end).unwrap_or_default();
        if rows.is_empty() {
            return Ok(None);
        }
        self.next = end;
        let store = &self.store;
        let all: Vec<&RecordBatch> = self.batches.iter().collect();
        let restored = interleave_record_batch(&all, rows).and_then(|batch| {
            let columns = batch.columns().iter().zip(store.schema.fields());
            let columns = columns.map(|(column, field)| cast(column, field.data_type()));
            let columns = columns.collect::<Result<_, _>>()?;
            RecordBatch::try_new(Arc::clone(&store.schema), columns)
        });
        restored
            .map(Some)
            .map_err(|error| store.failed("read shuffled rows in", error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_range_parts_cover_the_range_and_contain_their_keys() {
        let range = KeyRange::ALL.part(3, 7);
        for count in [1, 2, 3, 256] {
            let parts: Vec<KeyRange> = (0..count).map(|number| range.part(number, count)).collect();
            assert_eq!(
                parts.iter().map(|part| part.width).sum::<u128>(),
                range.width
            );
            for (number, part) in parts.iter().enumerate() {
                let last = u64::try_from(u128::from(part.start) + part.width - 1).unwrap();
                assert_eq!(range.part_of(part.start, count), number);
                assert_eq!(range.part_of(last, count), number);
            }
        }
        assert_eq!(KeyRange::ALL.part_of(u64::MAX, 5), 4);
    }

    #[test]
    fn view_types_are_stored_as_plain_types() {
        let views = DataType::new_list(DataType::Utf8View, true);
        let plain = DataType::new_list(DataType::LargeUtf8, true);
        assert_eq!(stored_type(&views), plain);
        assert_eq!(stored_type(&DataType::Int32), DataType::Int32);
    }
}
