//! Reads the Arrow IPC file and stream formats; each record batch is a unit.

use std::fs::File;
use std::sync::{Arc, Mutex};

use arrow::array::RecordBatch;
use arrow::buffer::{Buffer, MutableBuffer};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use arrow::ipc::convert::fb_to_schema;
use arrow::ipc::reader::FileDecoder;
use arrow::ipc::{
    Block, MessageHeader, MetadataVersion, RecordBatch as BatchHeader, root_as_footer,
    root_as_message,
};
use shardmill_core::{Error, lock};
use shardmill_storage::Location;

use crate::base::{add_nulls, batch, by_name, project, rows_from};
use crate::error;
use crate::files::{InputFile, describe, file_of_unit, inspect_each, list_tables};
use crate::slices::Slices;
use crate::unite::{Form, United, Uniter};
use crate::{Rows, Source, SourceKind, SourceOptions, SourceProblem, TableFacts, Unit};
use shardmill_core::catch_panic::{attempt, catch, one_line};
use shardmill_parquet::{plain_field, plain_values};

const MAGIC: &[u8; 6] = b"ARROW1";
const FEATHER_V1: &[u8; 4] = b"FEA1";
/// The most bytes of a footer or of the metadata of one message.
const METADATA_BYTES: u64 = 256 << 20;
/// The most bytes that one compressed buffer may claim to expand to.
const BUFFER_BYTES: i64 = 4 << 30;

/// A message in a file: its offset, the length of its metadata including the prefix, and the length of its body.
#[derive(Clone, Copy, Debug)]
struct Frame {
    offset: u64,
    metadata: u64,
    body: u64,
}

/// The structure of one file.
struct Layout {
    schema: SchemaRef,
    version: MetadataVersion,
    dictionaries: Vec<Frame>,
    batches: Vec<Batch>,
}

struct Batch {
    frame: Frame,
    /// The number of dictionaries before it.
    dictionaries: usize,
    rows: u64,
    null_counts: Vec<Option<u64>>,
}

/// A table of Arrow files.
pub(crate) struct ArrowTable {
    facts: TableFacts,
    files: Vec<InputFile>,
    layouts: Vec<Layout>,
    united: United,
    /// The record batch of each unit.
    numbers: Vec<usize>,
    batch_bytes: usize,
    keep_extensions: bool,
    /// The decoder of the last unit, after its file and its number of dictionaries, so that the dictionaries of one file
    /// are decoded once.
    last: Mutex<Option<LastDecoder>>,
}

type LastDecoder = ((usize, usize), Arc<FileDecoder>);

/// Lists the files and finds their record batches.
pub(crate) fn open(locations: &[Location], options: &SourceOptions) -> Result<ArrowTable, Error> {
    let files = list_tables(locations, SourceKind::Arrow, options)?;
    let layouts = inspect_each(&files, |_, input| layout(input))?;
    let mut uniter = Uniter::new(options);
    for (number, layout) in layouts.iter().enumerate() {
        let own: Fields = layout.schema.fields().iter().map(own_field).collect();
        let names = own.iter().map(|field| field.name().as_str());
        let file = files.get(number).map_or("", |file| &file.shown);
        error::check_names(names, || file.to_owned())?;
        uniter.add(&options.schema.columns_of(&own));
    }
    let united = uniter.finish();
    let fields = united.fields.clone();
    let mut null_counts = vec![Some(0_u64); fields.len()];
    let mut units = Vec::new();
    let mut numbers = Vec::new();
    for (file, layout) in layouts.iter().enumerate() {
        let mut first_row = 0;
        for (number, batch) in layout.batches.iter().enumerate() {
            units.push(Unit {
                file: Some(file),
                first_row: Some(first_row),
                rows: Some(batch.rows),
                bytes: batch.frame.metadata + batch.frame.body,
            });
            numbers.push(number);
            first_row += batch.rows;
            for (total, field) in null_counts.iter_mut().zip(&fields) {
                add_nulls(total, batch_nulls(layout, batch, field.name()));
            }
        }
    }
    let rows = units.iter().filter_map(|unit| unit.rows).sum();
    Ok(ArrowTable {
        facts: TableFacts {
            schema: Arc::new(Schema::new(fields)),
            units,
            null_counts,
            description: describe(SourceKind::Arrow, &files, Some(rows)),
        },
        files,
        layouts,
        united,
        numbers,
        batch_bytes: options.resources.batch_bytes,
        keep_extensions: options.schema.keep_extensions,
        last: Mutex::new(None),
    })
}

/// Returns a field without dictionaries and run ends. Views are kept, because they are native to Arrow.
fn own_field(field: &FieldRef) -> FieldRef {
    match field.data_type() {
        DataType::Utf8View
        | DataType::BinaryView
        | DataType::ListView(_)
        | DataType::LargeListView(_) => Arc::clone(field),
        _ => plain_field(field),
    }
}

/// Returns the nulls of a column in a batch. In a file that lacks the column, all rows are null.
fn batch_nulls(layout: &Layout, batch: &Batch, name: &str) -> Option<u64> {
    match layout.schema.fields().find(name) {
        None => Some(batch.rows),
        Some((index, _)) => batch.null_counts.get(index).copied().flatten(),
    }
}

struct Reader<'a> {
    input: &'a InputFile,
    file: File,
}

impl Reader<'_> {
    fn wrong(&self, reason: impl Into<String>) -> Error {
        SourceProblem::ArrowFormat.at(&self.input.shown, reason)
    }

    /// Reads bytes at an offset of the file.
    fn bytes(&self, offset: u64, length: u64) -> Result<Vec<u8>, Error> {
        let size = self.input.file_version.bytes;
        if offset.checked_add(length).is_none_or(|end| end > size) {
            return Err(self.wrong(format!(
                "is cut short: claims bytes {offset}+{length} of {size}"
            )));
        }
        let length = usize::try_from(length);
        let mut bytes = vec![0; length.map_err(|_| self.wrong("a message is too large"))?];
        self.input.read_at(&self.file, &mut bytes, offset)?;
        Ok(bytes)
    }

    fn guarded<T>(&self, run: impl FnOnce() -> Result<T, String>) -> Result<T, Error> {
        attempt(run).map_err(|reason| self.wrong(reason))
    }

    /// Reads the metadata of the message at an offset; `None` at the end of a stream.
    fn frame(&self, offset: u64) -> Result<Option<(Frame, Vec<u8>)>, Error> {
        let size = self.input.file_version.bytes;
        if offset == size {
            return Ok(None);
        }
        let head = self.bytes(offset, 4)?;
        let (prefix, length) = if head == [0xff; 4] {
            (8, self.bytes(offset + 4, 4)?)
        } else {
            (4, head)
        };
        let length = leading_u32(&length);
        if length == 0 {
            return match size - offset - prefix {
                0 => Ok(None),
                more => Err(self.wrong(format!("has {more} bytes after the end of its stream"))),
            };
        }
        if length > METADATA_BYTES {
            return Err(self.wrong(format!(
                "a message claims {length} bytes of metadata, above the limit of {METADATA_BYTES}"
            )));
        }
        let metadata = self.bytes(offset + prefix, length)?;
        let body = self.guarded(|| {
            let message = root_as_message(&metadata)
                .map_err(|error| format!("a message does not parse: {error}"))?;
            u64::try_from(message.bodyLength())
                .map_err(|_| "a message has a negative length".to_owned())
        })?;
        let frame = Frame {
            offset,
            metadata: prefix + length,
            body,
        };
        let end = offset
            .checked_add(frame.metadata)
            .and_then(|end| end.checked_add(body));
        if end.is_none_or(|end| end > size) {
            return Err(self.wrong(format!(
                "is cut short: a message claims {body} bytes of {size}"
            )));
        }
        Ok(Some((frame, metadata)))
    }

    fn file_layout(&self) -> Result<Layout, Error> {
        let size = self.input.file_version.bytes;
        if size < 18 {
            return Err(self.wrong("is cut short: no room for a footer"));
        }
        let tail = self.bytes(size - 10, 10)?;
        if !tail.ends_with(MAGIC) {
            return Err(self.wrong("is cut short: it does not end with ARROW1"));
        }
        let length = leading_u32(&tail);
        if length > METADATA_BYTES || length > size - 18 {
            return Err(self.wrong(format!("a footer of {length} bytes in a file of {size}")));
        }
        let bytes = self.bytes(size - 10 - length, length)?;
        let (schema, version, dictionaries, batches) = self.guarded(|| {
            let footer = root_as_footer(&bytes)
                .map_err(|error| format!("the footer does not parse: {error}"))?;
            let schema = footer.schema().ok_or("the footer has no schema")?;
            let schema = arrow_schema(schema)?;
            let dictionaries = frames(footer.dictionaries())?;
            let batches = frames(footer.recordBatches())?;
            Ok((schema, footer.version(), dictionaries, batches))
        })?;
        let batch = |block: Frame| {
            let Some((frame, metadata)) = self.frame(block.offset)? else {
                return Err(self.wrong("the footer points to no message"));
            };
            if frame.body != block.body {
                return Err(self.wrong("footer and message differ in length"));
            }
            self.batch(frame, &metadata, &schema, dictionaries.len())
        };
        Ok(Layout {
            batches: batches.into_iter().map(batch).collect::<Result<_, _>>()?,
            schema,
            version,
            dictionaries,
        })
    }

    fn stream_layout(&self) -> Result<Layout, Error> {
        let Some((first, metadata)) = self.frame(0)? else {
            return Err(self.wrong("is empty"));
        };
        let (schema, version) = self.guarded(|| {
            let message = root_as_message(&metadata).map_err(|error| error.to_string())?;
            let schema = message
                .header_as_schema()
                .ok_or("does not begin with a schema: not an Arrow stream")?;
            Ok((arrow_schema(schema)?, message.version()))
        })?;
        let mut layout = Layout {
            schema,
            version,
            dictionaries: Vec::new(),
            batches: Vec::new(),
        };
        let mut offset = first.metadata + first.body;
        while let Some((frame, metadata)) = self.frame(offset)? {
            let kind = self.guarded(|| {
                let message = root_as_message(&metadata).map_err(|error| error.to_string())?;
                Ok(message.header_type())
            })?;
            match kind {
                MessageHeader::DictionaryBatch => layout.dictionaries.push(frame),
                MessageHeader::RecordBatch => {
                    let batch =
                        self.batch(frame, &metadata, &layout.schema, layout.dictionaries.len())?;
                    layout.batches.push(batch);
                }
                other => return Err(self.wrong(format!("an unexpected message of kind {other:?}"))),
            }
            offset = frame.offset + frame.metadata + frame.body;
        }
        Ok(layout)
    }

    fn batch(
        &self,
        frame: Frame,
        metadata: &[u8],
        schema: &Schema,
        dictionaries: usize,
    ) -> Result<Batch, Error> {
        self.guarded(|| {
            let message = root_as_message(metadata).map_err(|error| error.to_string())?;
            let header = message
                .header_as_record_batch()
                .ok_or("the footer points to a message of another kind")?;
            let rows = u64::try_from(header.length())
                .map_err(|_| "a record batch has a negative number of rows")?;
            Ok(Batch {
                frame,
                dictionaries,
                rows,
                null_counts: null_counts(schema, &header),
            })
        })
    }

    /// Loads a message and its body in the form that the decoder needs.
    fn load(&self, frame: Frame) -> Result<(Block, Buffer), Error> {
        let end = frame.metadata.checked_add(frame.body);
        let end = end.and_then(|total| frame.offset.checked_add(total));
        let end = end.filter(|end| *end <= self.input.file_version.bytes);
        let sizes = end.and_then(|end| {
            let total = usize::try_from(end - frame.offset).ok()?;
            let metadata = i32::try_from(frame.metadata).ok()?;
            Some((total, metadata, i64::try_from(frame.body).ok()?))
        });
        let (total, metadata, body) =
            sizes.ok_or_else(|| self.wrong("a message extends beyond the file"))?;
        let mut buffer = MutableBuffer::from_len_zeroed(total);
        self.input
            .read_at(&self.file, buffer.as_slice_mut(), frame.offset)?;
        Ok((Block::new(0, metadata, body), buffer.into()))
    }

    /// Returns a decoder that has read the first `count` dictionaries.
    fn decoder(&self, layout: &Layout, count: usize) -> Result<FileDecoder, Error> {
        let mut decoder = FileDecoder::new(Arc::clone(&layout.schema), layout.version);
        for frame in layout.dictionaries.iter().take(count) {
            let (block, buffer) = self.load(*frame)?;
            self.guarded(|| {
                check_buffers(&buffer, *frame)?;
                let read = decoder.read_dictionary(&block, &buffer);
                read.map_err(|error| error.to_string())
            })?;
        }
        Ok(decoder)
    }
}

/// Decodes a loaded record batch.
fn decode(
    decoder: &FileDecoder,
    (block, buffer): &(Block, Buffer),
    frame: Frame,
) -> Result<Option<RecordBatch>, String> {
    check_buffers(buffer, frame)?;
    let read = decoder.read_record_batch(block, buffer);
    read.map_err(|error| error.to_string())
}

/// Returns the number in the first four bytes.
fn leading_u32(bytes: &[u8]) -> u64 {
    let bytes = bytes.first_chunk().map_or([0; 4], |bytes| *bytes);
    u32::from_le_bytes(bytes).into()
}

fn arrow_schema(schema: arrow::ipc::Schema<'_>) -> Result<SchemaRef, String> {
    if schema.endianness() != arrow::ipc::Endianness::Little {
        return Err("is written in big-endian order, which is not supported".to_owned());
    }
    Ok(Arc::new(fb_to_schema(schema)))
}

/// Returns where the messages of a footer are.
fn frames<'a>(blocks: Option<impl IntoIterator<Item = &'a Block>>) -> Result<Vec<Frame>, String> {
    let number =
        |value: i64| u64::try_from(value).map_err(|_| "the footer has a negative place".to_owned());
    let frame = |block: &Block| {
        Ok(Frame {
            offset: number(block.offset())?,
            metadata: number(i64::from(block.metaDataLength()))?,
            body: number(block.bodyLength())?,
        })
    };
    blocks.into_iter().flatten().map(frame).collect()
}

fn layout(input: &InputFile) -> Result<Layout, Error> {
    let reader = Reader {
        file: input.open()?,
        input,
    };
    let head = reader.bytes(0, input.file_version.bytes.min(8))?;
    if head.starts_with(FEATHER_V1) {
        let reason = "is a Feather file of version 1, which is not supported";
        let error = SourceProblem::Unsupported.at(&input.shown, reason);
        return Err(error.with_hint("write it again as Feather version 2 or Parquet"));
    }
    if head.starts_with(MAGIC) {
        reader.file_layout()
    } else {
        reader.stream_layout()
    }
}

/// Returns how many field nodes a type has, in depth-first order.
fn nodes(data_type: &DataType) -> usize {
    let of = |field: &FieldRef| nodes(field.data_type());
    1 + match data_type {
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => of(field),
        DataType::Struct(fields) => fields.iter().map(of).sum(),
        DataType::Union(fields, _) => fields.iter().map(|(_, field)| of(field)).sum(),
        DataType::RunEndEncoded(ends, values) => of(ends) + of(values),
        _ => 0,
    }
}

/// Returns the nulls of each column, if the column's node counts them all.
fn null_counts(schema: &Schema, header: &BatchHeader<'_>) -> Vec<Option<u64>> {
    let all: Vec<i64> = header
        .nodes()
        .iter()
        .flatten()
        .map(|node| node.null_count())
        .collect();
    let mut at = 0;
    let count = |field: &FieldRef| {
        let node = at;
        at += nodes(field.data_type());
        match field.data_type() {
            DataType::Dictionary(_, _) | DataType::RunEndEncoded(_, _) | DataType::Union(_, _) => {
                None
            }
            DataType::Null => u64::try_from(header.length()).ok(),
            _ => all.get(node).and_then(|count| u64::try_from(*count).ok()),
        }
    };
    schema.fields().iter().map(count).collect()
}

impl ArrowTable {
    /// Returns the layout of the file of a unit, and the number of its record batch.
    fn batch_of_unit(&self, unit: usize) -> Option<(&Layout, usize)> {
        let layout = self.layouts.get(self.facts.units.get(unit)?.file?)?;
        Some((layout, *self.numbers.get(unit)?))
    }

    /// Returns the decoder for a unit with this number of dictionaries.
    fn decoder(
        &self,
        unit: usize,
        reader: &Reader<'_>,
        layout: &Layout,
        count: usize,
    ) -> Result<Arc<FileDecoder>, Error> {
        let file = self.facts.units.get(unit).and_then(|unit| unit.file);
        let key = (file.unwrap_or_default(), count);
        let last = || lock(&self.last);
        if let Some((known, decoder)) = last().as_ref()
            && *known == key
        {
            return Ok(Arc::clone(decoder));
        }
        let decoder = Arc::new(reader.decoder(layout, count)?);
        *last() = Some((key, Arc::clone(&decoder)));
        Ok(decoder)
    }
}

/// Checks the positions of a message's buffers, and the sizes that compressed ones claim, before memory is allocated
/// for them.
fn check_buffers(bytes: &Buffer, frame: Frame) -> Result<(), String> {
    let metadata = usize::try_from(frame.metadata).unwrap_or(usize::MAX);
    let (head, body) = bytes
        .as_slice()
        .split_at_checked(metadata)
        .ok_or("a message extends beyond the file")?;
    let prefix = if head.starts_with(&[0xff; 4]) { 8 } else { 4 };
    let message = root_as_message(head.get(prefix..).unwrap_or_default())
        .map_err(|error| error.to_string())?;
    let header = match message.header_type() {
        MessageHeader::RecordBatch => message.header_as_record_batch(),
        MessageHeader::DictionaryBatch => message
            .header_as_dictionary_batch()
            .and_then(|batch| batch.data()),
        _ => None,
    };
    let header = header.ok_or("a message without data")?;
    for buffer in header.buffers().iter().flatten() {
        let range = usize::try_from(buffer.offset())
            .ok()
            .zip(usize::try_from(buffer.length()).ok());
        let content = range.and_then(|(start, length)| body.get(start..start.checked_add(length)?));
        let content = content.ok_or("a buffer lies outside its message")?;
        if header.compression().is_some()
            && let Some(claimed) = content.first_chunk::<8>()
        {
            let claimed = i64::from_le_bytes(*claimed);
            if claimed > BUFFER_BYTES {
                return Err(format!(
                    "a compressed buffer claims {claimed} bytes, above the limit of {BUFFER_BYTES}"
                ));
            }
        }
    }
    Ok(())
}

impl Source for ArrowTable {
    fn facts(&self) -> &TableFacts {
        &self.facts
    }

    fn check_columns(&self, columns: &[usize]) -> Result<(), Error> {
        self.united.check(columns, SourceKind::Arrow, &self.files)
    }

    fn open(&self, unit: usize, columns: &[usize]) -> Result<Box<dyn Rows>, Error> {
        let input = file_of_unit(&self.files, self.units(), unit)?;
        let found = self.batch_of_unit(unit);
        let found = found.and_then(|(layout, at)| Some((layout, at, layout.batches.get(at)?)));
        let (layout, number, own) = found.ok_or_else(|| error::no_unit(unit))?;
        let reader = Reader {
            file: input.open()?,
            input,
        };
        let decoder = self.decoder(unit, &reader, layout, own.dictionaries)?;
        let loaded = reader.load(own.frame)?;
        let shown = input.shown.clone();
        let corrupt = move |reason: &str| {
            SourceProblem::ArrowCorrupt.at(&shown, format!("record batch {number}: {reason}"))
        };
        let decoded = attempt(|| decode(&decoder, &loaded, own.frame));
        let decoded = decoded.map_err(|reason| corrupt(&reason))?;
        input.check(&reader.file)?;
        let mut slices = Slices::new(self.batch_bytes);
        let schema = project(&self.facts.schema, columns);
        if let Some(decoded) = decoded {
            let (found, rows) = (decoded.num_rows(), own.rows);
            if found as u64 != rows {
                return Err(corrupt(&format!("holds {found} rows, not {rows}")));
            }
            slices.push(select(&decoded, &schema)?);
        }
        let forms = columns.iter();
        let forms = forms.filter_map(|column| self.united.forms.get(*column).copied());
        let forms: Vec<Form> = forms.collect();
        let file = input.shown.clone();
        let own = layout.schema.fields().clone();
        let keep_extensions = self.keep_extensions;
        Ok(rows_from(move || {
            let Some(slice) = slices.next() else {
                return Ok(None);
            };
            let mut columns = Vec::with_capacity(forms.len());
            let wanted = schema.fields().iter().zip(&forms);
            for (column, (field, form)) in slice.columns().iter().zip(wanted) {
                let formed = catch(|| match own.find(field.name()) {
                    Some((_, own)) if !keep_extensions => {
                        form.apply(&plain_values(column, own)?, field.data_type())
                    }
                    _ => form.apply(column, field.data_type()),
                });
                let formed = formed.map_err(|reason| corrupt(&reason))?;
                let formed = formed.map_err(|error| {
                    error::conversion(&file, field, &one_line(&error.to_string()))
                })?;
                if !field.is_nullable() && formed.logical_null_count() > 0 {
                    return Err(corrupt(&format!(
                        "column `{}` has nulls though it is required",
                        shardmill_core::escape(field.name())
                    )));
                }
                columns.push(formed);
            }
            batch(&schema, columns, slice.num_rows()).map(Some)
        }))
    }

    fn unit_null_count(&self, unit: usize, column: usize) -> Option<u64> {
        let (layout, number) = self.batch_of_unit(unit)?;
        let field = self.facts.schema.fields().get(column)?;
        batch_nulls(layout, layout.batches.get(number)?, field.name())
    }
}

/// Selects the wanted columns of a batch, with the types of the file.
fn select(found: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, Error> {
    let own = found.schema();
    let names = own.fields().iter().map(|field| field.name().clone());
    let columns = by_name(found, &names.zip(0..).collect(), schema.fields());
    let fields = schema.fields().iter().zip(&columns);
    let fields: Vec<Field> = fields
        .map(|(field, column)| Field::new(field.name(), column.data_type().clone(), true))
        .collect();
    batch(&Arc::new(Schema::new(fields)), columns, found.num_rows())
}
