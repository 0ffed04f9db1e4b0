//! Samples of an open dataset, by number, whatever its format.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Mutex;

use serde_json::{Value as Json, json};
use shardmill_core::{Limits, lock};
use shardmill_dataset::{
    Dataset, DatasetError, KEY_COLUMN, Sample, StoredValue, TarFile, TarSet, ViewTarget,
};
use shardmill_mds::value_json::number_text;
use shardmill_mds::{
    DType, Encoding, FileInfo, Image, NdArray, SampleValue, TextValue, Value, decode,
};
use shardmill_storage::StorageError;
use shardmill_webdataset::{Value as TarValue, inflate};

use crate::media::{MEDIA_HEAD_BYTES, MediaKind, media_type};
use crate::tars::{TarSample, Tars};

/// The most bytes of a field that are read and decoded. Of a longer one, only the first bytes are shown.
pub const FIELD_BYTES: u64 = 256 << 20;

/// The bytes that are read of a field that is too long.
const PREFIX_BYTES: u64 = 64 << 10;

/// The first bytes of a NumPy file.
const NUMPY: &[u8] = b"\x93NUMPY";

/// The most bytes of neighbours that are read at once: about what a connection to a store transfers in the time in which
/// it answers.
const RUN_BYTES: u64 = 1 << 20;

/// The samples of a dataset.
#[derive(Debug)]
pub struct Samples {
    stored: Stored,
    limits: Limits,
    with_deleted: bool,
    /// The value that was read last by ranges: its sample, its column and where it is.
    located: Mutex<Option<(u64, String, StoredValue)>>,
}

/// How much of a sound or a video is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MediaBytes {
    /// All of it.
    All,
    /// The first bytes, because a player requests the others.
    Head,
}

#[derive(Debug)]
enum Stored {
    Indexed(Box<Dataset>),
    Tars(Tars),
    Rows(Box<dyn RowSource>),
}

/// Rows of a table, or samples of a tree of files.
pub trait RowSource: fmt::Debug + Send + Sync {
    /// Returns the number of rows.
    fn rows(&self) -> u64;

    /// Returns the `format` of a table that Python reads in place.
    fn format(&self) -> Option<&'static str>;

    /// Returns what views of the rows refer to.
    ///
    /// # Errors
    ///
    /// An error as the command line describes it, so if the rows have changed.
    fn view_target(&self) -> Result<ViewTarget, Json>;

    /// Calls `show` with the number and each field of some rows. Returns how many rows were read, from the first.
    ///
    /// # Errors
    ///
    /// An error as the command line describes it.
    fn visit(
        &self,
        rows: Range<u64>,
        show: &mut dyn FnMut(u64, &FieldValue<'_>),
    ) -> Result<u64, Json>;
}

/// An error of reading samples.
#[derive(Debug)]
pub enum SampleError {
    /// An error of the dataset.
    Dataset(Box<DatasetError>),
    /// An error that the command line has described.
    Described(Json),
}

impl From<DatasetError> for SampleError {
    fn from(error: DatasetError) -> Self {
        Self::Dataset(Box::new(error))
    }
}

impl From<StorageError> for SampleError {
    fn from(error: StorageError) -> Self {
        DatasetError::from(error).into()
    }
}

/// Where a sample is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SamplePosition {
    /// The number of its shard.
    pub shard: usize,
    /// The file of the shard.
    pub file: String,
    /// Its position in the shard, from 0, deleted samples counted.
    pub at: u64,
}

/// One field of a sample.
#[derive(Debug)]
pub struct FieldValue<'a> {
    /// The column.
    pub name: &'a str,
    /// The encoding of the column. Empty if the format has none.
    pub encoding: Cow<'a, str>,
    /// The stored bytes, or the first of them.
    pub bytes: &'a [u8],
    /// How many bytes are stored.
    pub stored_bytes: u64,
    /// The decoded value, or why it cannot be decoded.
    pub value: Result<Value<'a>, String>,
}

impl FieldValue<'_> {
    /// Returns the bytes of a value of bytes, or the stored bytes of another value.
    pub(crate) fn content(&self) -> &[u8] {
        match &self.value {
            Ok(Value::Bytes(bytes)) => bytes,
            _ => self.bytes,
        }
    }

    /// Returns whether the value is missing. A stored JSON value has bytes.
    pub fn is_null(&self) -> bool {
        self.bytes.is_empty() && matches!(self.value, Ok(Value::Json("null")))
    }
}

impl Samples {
    /// Makes the samples of a dataset with an index of MDS, JSON or XSV shards.
    #[must_use]
    pub fn of_dataset(dataset: Dataset) -> Self {
        let limits = dataset.limits().clone();
        Self::new(Stored::Indexed(Box::new(dataset)), limits)
    }

    /// Makes the samples of tar shards that were [scanned](TarSet::scanned).
    #[must_use]
    pub fn of_tars(set: TarSet, limits: Limits) -> Self {
        Self::new(Stored::Tars(Tars::new(set)), limits)
    }

    /// Makes the samples of a table or of a tree of files.
    #[must_use]
    pub fn of_rows(rows: Box<dyn RowSource>) -> Self {
        Self::new(Stored::Rows(rows), Limits::default())
    }

    fn new(stored: Stored, limits: Limits) -> Self {
        Self {
            stored,
            limits,
            with_deleted: false,
            located: Mutex::default(),
        }
    }

    /// Returns what they are samples of: `dataset`, `tars` or `source`.
    pub(crate) const fn kind(&self) -> &'static str {
        match &self.stored {
            Stored::Indexed(_) => "dataset",
            Stored::Tars(_) => "tars",
            Stored::Rows(_) => "source",
        }
    }

    /// Returns the `format` of a table that Python reads in place.
    pub(crate) fn format(&self) -> Option<&'static str> {
        match &self.stored {
            Stored::Rows(rows) => rows.format(),
            _ => None,
        }
    }

    /// Iterates over the files of the shards: the raw one, and the compressed one if that is what is stored.
    pub(crate) fn shard_files(
        &self,
    ) -> Box<dyn Iterator<Item = (&FileInfo, Option<&FileInfo>)> + '_> {
        match &self.stored {
            Stored::Indexed(dataset) => {
                let shards = dataset.index().shards.iter();
                Box::new(shards.map(|shard| (&shard.raw_data, shard.zip_data.as_ref())))
            }
            Stored::Tars(tars) => {
                let shards = tars.set().shards().iter().filter_map(TarFile::entry);
                Box::new(shards.map(|shard| (&shard.raw_data, shard.zip_data.as_ref())))
            }
            Stored::Rows(_) => Box::new(std::iter::empty()),
        }
    }

    /// Sets whether deleted samples are among them. The dataset was opened accordingly.
    #[must_use]
    pub fn including_deleted(self, with_deleted: bool) -> Self {
        Self {
            with_deleted,
            ..self
        }
    }

    /// Returns the number of samples.
    pub(crate) fn count(&self) -> u64 {
        match &self.stored {
            Stored::Indexed(dataset) => dataset.len(),
            Stored::Tars(tars) => tars.len(),
            Stored::Rows(rows) => rows.rows(),
        }
    }

    /// Returns the number of shards.
    pub(crate) fn shards(&self) -> usize {
        match &self.stored {
            Stored::Indexed(dataset) => dataset.index().shards.len(),
            Stored::Tars(tars) => tars.set().shards().len(),
            Stored::Rows(_) => 0,
        }
    }

    /// Returns whether deleted samples are among them.
    pub(crate) const fn with_deleted(&self) -> bool {
        self.with_deleted
    }

    /// Returns what views of the dataset refer to.
    pub(crate) fn view_target(&self) -> Result<ViewTarget, SampleError> {
        match &self.stored {
            Stored::Indexed(dataset) => Ok(dataset.view_target()),
            Stored::Tars(tars) => Ok(tars.set().view_target(&self.limits)?.0),
            Stored::Rows(rows) => rows.view_target().map_err(SampleError::Described),
        }
    }

    /// Calls `show` with each field of a sample.
    pub(crate) fn visit(
        &self,
        number: u64,
        show: &mut dyn FnMut(&FieldValue<'_>),
    ) -> Result<(), SampleError> {
        let numbers = number..number.saturating_add(1);
        self.visit_with(numbers, MediaBytes::All, &mut |_, field| show(field))?;
        Ok(())
    }

    /// Calls `show` with the number and each field of the first samples of a range: as many as one read returns, but at
    /// least one. Returns where they are stored. Of a large sound or video, only the first bytes are read.
    pub(crate) fn visit_run(
        &self,
        numbers: Range<u64>,
        show: &mut dyn FnMut(u64, &FieldValue<'_>),
    ) -> Result<Vec<SamplePosition>, SampleError> {
        self.visit_with(numbers, MediaBytes::Head, show)
    }

    fn visit_with(
        &self,
        numbers: Range<u64>,
        media: MediaBytes,
        show: &mut dyn FnMut(u64, &FieldValue<'_>),
    ) -> Result<Vec<SamplePosition>, SampleError> {
        match &self.stored {
            Stored::Indexed(dataset) => {
                if media == MediaBytes::Head
                    && let Some(position) = self.visit_values(dataset, numbers.start, show)?
                {
                    return Ok(vec![position]);
                }
                let samples = dataset.samples(numbers, RUN_BYTES)?;
                let visit = |sample| Ok(self.visit_indexed(dataset, sample, show)?);
                samples.iter().map(visit).collect()
            }
            Stored::Rows(rows) => {
                match rows.visit(numbers, show).map_err(SampleError::Described)? {
                    0 => Err(SampleError::Described(
                        json!({ "message": "there is no such row; the source has changed" }),
                    )),
                    read => Ok((0..read).map(|_| SamplePosition::default()).collect()),
                }
            }
            Stored::Tars(tars) => {
                let run =
                    tars.visit(&numbers, RUN_BYTES, &self.limits, &mut |number, sample| {
                        self.visit_tar(sample, media, &mut |field| show(number, field))
                    })?;
                let position = |n| SamplePosition {
                    shard: run.shard,
                    file: run.file.name().to_owned(),
                    at: run.at + n,
                };
                Ok((0..run.count).map(position).collect())
            }
        }
    }

    /// Visits a sample value by value, so that the rest of a sound or a video is not read. Returns `None` for a shard of small
    /// samples, and for one that is read whole only.
    fn visit_values(
        &self,
        dataset: &Dataset,
        number: u64,
        show: &mut dyn FnMut(u64, &FieldValue<'_>),
    ) -> Result<Option<SamplePosition>, DatasetError> {
        let (shard, _) = dataset.locate(number)?;
        let entry = dataset.index().shards.get(shard);
        let large = entry.filter(|entry| {
            let bytes = entry.raw_data.bytes.checked_div(entry.samples);
            bytes.unwrap_or_default() > RUN_BYTES
        });
        let Some(columns) = large.and_then(|entry| entry.config.mds_columns()) else {
            return Ok(None);
        };
        let Some(values) = dataset.stored_values(number)? else {
            return Ok(None);
        };
        for (column, value) in columns.iter().zip(values) {
            let mut bytes = value.read(&(0..PREFIX_BYTES))?;
            let is_cut = column.encoding == Encoding::Bytes && is_played(&bytes)
                || value.len() > FIELD_BYTES;
            let rest = PREFIX_BYTES..value.len();
            if !is_cut && !rest.is_empty() {
                bytes.extend(value.read(&rest)?);
            }
            let shown = match is_cut {
                true => Ok(Value::Bytes(&bytes)),
                false => self.mds_value(&column.encoding, &bytes),
            };
            let field = FieldValue {
                name: &column.name,
                encoding: column.encoding.to_string().into(),
                bytes: &bytes,
                stored_bytes: value.len(),
                value: shown,
            };
            show(number, &field);
        }
        Ok(Some(position_of(dataset, number)?))
    }

    fn mds_value<'a>(&self, encoding: &Encoding, datum: &'a [u8]) -> Result<Value<'a>, String> {
        match decode(encoding, datum, &self.limits) {
            // NumPy files of a tree are often stored as bytes.
            Ok(Value::Bytes(bytes)) if bytes.starts_with(NUMPY) => {
                Ok(tar_value("npy", bytes, &self.limits).unwrap_or(Value::Bytes(bytes)))
            }
            value => value.map_err(|error| error.to_string()),
        }
    }

    fn visit_indexed(
        &self,
        dataset: &Dataset,
        sample: &Sample,
        show: &mut dyn FnMut(u64, &FieldValue<'_>),
    ) -> Result<SamplePosition, DatasetError> {
        let number = sample.number();
        if sample.config().mds_columns().is_some() {
            for field in sample.fields()? {
                let field = FieldValue {
                    name: field.name,
                    encoding: field.encoding.to_string().into(),
                    bytes: field.datum,
                    stored_bytes: field.datum.len() as u64,
                    value: self.mds_value(field.encoding, field.datum),
                };
                show(number, &field);
            }
        } else {
            for (name, value) in sample.values()? {
                if let SampleValue::Text(value) = &value {
                    show_text(name, value, &mut |field| show(number, field));
                }
            }
        }
        position_of(dataset, number)
    }

    fn visit_tar(
        &self,
        sample: &TarSample<'_>,
        media: MediaBytes,
        show: &mut dyn FnMut(&FieldValue<'_>),
    ) -> Result<(), DatasetError> {
        let key = &sample.entry.key;
        show(&FieldValue {
            name: KEY_COLUMN,
            encoding: "".into(),
            bytes: key.as_bytes(),
            stored_bytes: key.len() as u64,
            value: Ok(Value::Str(key)),
        });
        for field in &sample.entry.fields {
            let is_cut = field.bytes > FIELD_BYTES
                || media == MediaBytes::Head
                    && field.bytes > PREFIX_BYTES
                    && is_played(&sample.bytes(field, 0..MEDIA_HEAD_BYTES)?);
            let length = match is_cut {
                true => PREFIX_BYTES,
                false => field.bytes,
            };
            let bytes = sample.bytes(field, 0..length)?;
            let plain = inflate(&field.name, &bytes, &self.limits);
            let value = match &plain {
                Ok(plain) if length == field.bytes => tar_value(&field.name, plain, &self.limits),
                Ok(plain) => Ok(Value::Bytes(plain)),
                Err(error) => Err(error.to_string()),
            };
            show(&FieldValue {
                name: &field.name,
                encoding: "".into(),
                bytes: plain.as_deref().unwrap_or(&bytes),
                stored_bytes: field.bytes,
                value,
            });
        }
        Ok(())
    }

    /// Returns a range of the bytes of a value, and how many it has; `None` if the sample has no such value. Of a tar shard and of
    /// an uncompressed MDS shard, only the range is read.
    pub(crate) fn part(
        &self,
        number: u64,
        column: &str,
        range: &Range<u64>,
    ) -> Result<Option<(Vec<u8>, u64)>, SampleError> {
        let within = |bytes: u64| {
            let start = range.start.min(bytes);
            start..range.end.clamp(start, bytes)
        };
        let mut found = None;
        if let Stored::Tars(tars) = &self.stored {
            let numbers = number..number.saturating_add(1);
            tars.visit(&numbers, 0, &self.limits, &mut |_, sample| {
                if let Some(field) = sample.entry.field(column) {
                    let bytes = sample.bytes(field, within(field.bytes))?;
                    found = Some((bytes.into_owned(), field.bytes));
                }
                Ok(())
            })?;
            return Ok(found);
        }
        if let Stored::Indexed(dataset) = &self.stored
            && let Some(value) = self.locate(dataset, number, column)?
        {
            let bytes = value.read(range);
            if bytes.is_err() {
                *lock(&self.located) = None;
            }
            return Ok(Some((bytes?, value.len())));
        }
        self.visit(number, &mut |field| {
            if field.name == column {
                let bytes = field.content();
                let range = within(bytes.len() as u64);
                let at = |offset| usize::try_from(offset).unwrap_or(usize::MAX);
                let part = bytes.get(at(range.start)..at(range.end));
                found = Some((part.unwrap_or_default().to_vec(), bytes.len() as u64));
            }
        })?;
        Ok(found)
    }

    /// Returns where a value is, if it can be read by ranges.
    fn locate(
        &self,
        dataset: &Dataset,
        number: u64,
        column: &str,
    ) -> Result<Option<StoredValue>, DatasetError> {
        if let Some((known, name, value)) = &*lock(&self.located)
            && (*known, name.as_str()) == (number, column)
        {
            return Ok(Some(value.clone()));
        }
        let (shard, _) = dataset.locate(number)?;
        let entry = dataset.index().shards.get(shard);
        let columns = entry.and_then(|entry| entry.config.mds_columns());
        let at = columns.and_then(|columns| columns.iter().position(|one| one.name == column));
        let Some((at, values)) = at.zip(dataset.stored_values(number)?) else {
            return Ok(None);
        };
        let value = values.into_iter().nth(at);
        *lock(&self.located) = value
            .clone()
            .map(|value| (number, column.to_owned(), value));
        Ok(value)
    }

    /// Returns the keys of the first samples of a range: as many as one read returns, but at least one. Samples without a key
    /// have an empty one.
    pub(crate) fn keys(&self, numbers: Range<u64>) -> Result<Vec<String>, SampleError> {
        let mut keys = Vec::new();
        if let Stored::Tars(tars) = &self.stored {
            tars.visit(&numbers, RUN_BYTES, &self.limits, &mut |_, sample| {
                keys.push(sample.entry.key.to_string());
                Ok(())
            })?;
            return Ok(keys);
        }
        let first = numbers.start;
        let visited = self.visit_run(numbers, &mut |number, field| {
            if field.name == KEY_COLUMN {
                let at = usize::try_from(number - first).unwrap_or(usize::MAX);
                keys.resize(keys.len().max(at), String::new());
                keys.push(match &field.value {
                    Ok(Value::Str(text)) => (*text).to_owned(),
                    _ => String::from_utf8_lossy(field.bytes).into_owned(),
                });
            }
        })?;
        keys.resize(visited.len(), String::new());
        Ok(keys)
    }
}

/// Returns whether a player requests the parts of these bytes.
fn is_played(bytes: &[u8]) -> bool {
    let found = media_type(bytes);
    found.is_some_and(|(kind, _)| matches!(kind, MediaKind::Audio | MediaKind::Video))
}

fn position_of(dataset: &Dataset, number: u64) -> Result<SamplePosition, DatasetError> {
    let (shard, at) = dataset.locate(number)?;
    let entry = dataset.index().shards.get(shard);
    let file = entry.map(|entry| entry.zip_data.as_ref().unwrap_or(&entry.raw_data));
    let file = file.map(|file| file.basename.to_string());
    Ok(SamplePosition {
        shard,
        file: file.unwrap_or_default(),
        at,
    })
}

/// Calls `show` with a value of a text format.
fn show_text(name: &str, value: &TextValue<'_>, show: &mut dyn FnMut(&FieldValue<'_>)) {
    let text = match value {
        TextValue::Str(text) => Cow::Borrowed(text.as_ref()),
        TextValue::Json(text) | TextValue::BigInt(text) => Cow::Borrowed(*text),
        TextValue::Int(_) | TextValue::Float(_) => number_text(&value.as_value()).into(),
    };
    show(&FieldValue {
        name,
        encoding: "".into(),
        bytes: text.as_bytes(),
        stored_bytes: text.len() as u64,
        value: Ok(value.as_value()),
    });
}

/// Decodes a field of a tar shard by its extension.
fn tar_value<'a>(name: &str, bytes: &'a [u8], limits: &Limits) -> Result<Value<'a>, String> {
    let decoded = shardmill_webdataset::decode(name, bytes, limits);
    Ok(match decoded.map_err(|error| error.to_string())? {
        TarValue::Text(text) => Value::Str(text),
        TarValue::Int(number) => Value::Int(number),
        TarValue::BigInt(text) => Value::BigInt(text),
        TarValue::Json(text) => Value::Json(text),
        TarValue::Array(array) => Value::NdArray(NdArray {
            // Truth values are shown as numbers.
            dtype: DType::from_numpy(array.dtype).unwrap_or(DType::U8),
            shape: array.shape,
            data: array.data,
        }),
        _ => Value::Bytes(bytes),
    })
}

/// Returns the images of a value.
pub fn images<'v, 'a>(value: &'v Value<'a>) -> &'v [Image<'a>] {
    match value {
        Value::Image(image) => std::slice::from_ref(image),
        Value::Images(images) => images,
        _ => &[],
    }
}
