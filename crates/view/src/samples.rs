//! Samples of an open dataset, by number, whatever its format.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use shardmill_core::Limits;
use shardmill_dataset::{
    Dataset, DatasetError, DatasetProblem, KEY_COLUMN, Place, ShardBytes, TarFile, TarSet,
};
use shardmill_mds::{DType, Image, NdArray, SampleValue, TextValue, Value, decode};
use shardmill_webdataset::{Consumer, SampleEntry, Survey, Value as TarValue, inflate};

/// The most bytes of a field that are read and decoded. Of a longer one, only the first bytes are shown.
pub const FIELD_BYTES: u64 = 256 << 20;

/// The bytes that are read of a field that is too long.
const PREFIX_BYTES: u64 = 64 << 10;

/// The first bytes of a NumPy file.
const NUMPY: &[u8] = b"\x93NUMPY";

/// The number of tar shards whose headers are kept.
const KEPT_SHARDS: usize = 4;

/// The samples of a dataset.
#[derive(Debug)]
pub struct Samples {
    stored: Stored,
    limits: Limits,
}

#[derive(Debug)]
enum Stored {
    Indexed(Box<Dataset>),
    Tars(Tars),
}

#[derive(Debug)]
struct Tars {
    set: TarSet,
    /// The number of stored samples of each shard.
    stored: Vec<u64>,
    /// The shards that were read last, the latest at the end.
    kept: Mutex<Vec<(usize, Arc<TarShard>)>>,
}

/// A tar shard: where its samples are, and its bytes if they are in memory or mapped.
#[derive(Debug)]
struct TarShard {
    samples: Vec<SampleEntry>,
    data: Option<ShardBytes>,
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

impl Samples {
    /// Makes the samples of a dataset with an index of MDS, JSON or XSV shards.
    #[must_use]
    pub fn of_dataset(dataset: Dataset) -> Self {
        Self {
            limits: dataset.limits().clone(),
            stored: Stored::Indexed(Box::new(dataset)),
        }
    }

    /// Makes the samples of tar shards. `stored` are the numbers of samples in the shards, deleted ones counted.
    #[must_use]
    pub fn of_tars(set: TarSet, stored: Vec<u64>, limits: Limits) -> Self {
        let kept = Mutex::default();
        Self {
            stored: Stored::Tars(Tars { set, stored, kept }),
            limits,
        }
    }

    /// Returns the number of samples.
    #[must_use]
    pub fn len(&self) -> u64 {
        match &self.stored {
            Stored::Indexed(dataset) => dataset.len(),
            Stored::Tars(tars) => tars.live().map(|(_, live)| live).sum(),
        }
    }

    /// Returns whether there are no samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of shards.
    #[must_use]
    pub fn shards(&self) -> usize {
        match &self.stored {
            Stored::Indexed(dataset) => dataset.index().shards.len(),
            Stored::Tars(tars) => tars.set.shards().len(),
        }
    }

    /// Calls `show` with each field of a sample. Returns where the sample is stored.
    ///
    /// # Errors
    ///
    /// [`DatasetProblem::NoSample`] beyond the last sample; errors of reading the shard.
    pub fn visit(
        &self,
        number: u64,
        show: &mut dyn FnMut(&FieldValue<'_>),
    ) -> Result<SamplePosition, DatasetError> {
        match &self.stored {
            Stored::Indexed(dataset) => self.visit_indexed(dataset, number, show),
            Stored::Tars(tars) => self.visit_tar(tars, number, show),
        }
    }

    fn visit_indexed(
        &self,
        dataset: &Dataset,
        number: u64,
        show: &mut dyn FnMut(&FieldValue<'_>),
    ) -> Result<SamplePosition, DatasetError> {
        let (shard, at) = dataset.locate(number)?;
        let sample = dataset.sample(number)?;
        if sample.config().mds_columns().is_some() {
            for field in sample.fields()? {
                let value = match decode(field.encoding, field.datum, &self.limits) {
                    // NumPy files of a tree are often stored as bytes.
                    Ok(Value::Bytes(bytes)) if bytes.starts_with(NUMPY) => {
                        Ok(tar_value("npy", bytes, &self.limits).unwrap_or(Value::Bytes(bytes)))
                    }
                    value => value.map_err(|error| error.to_string()),
                };
                show(&FieldValue {
                    name: field.name,
                    encoding: field.encoding.to_string().into(),
                    bytes: field.datum,
                    stored_bytes: field.datum.len() as u64,
                    value,
                });
            }
        } else {
            for (name, value) in sample.values()? {
                show_text(name, &value, show);
            }
        }
        let entry = dataset.index().shards.get(shard);
        let file = entry.map(|entry| entry.zip_data.as_ref().unwrap_or(&entry.raw_data));
        Ok(SamplePosition {
            shard,
            file: file
                .map(|file| file.basename.to_string())
                .unwrap_or_default(),
            at,
        })
    }

    fn visit_tar(
        &self,
        tars: &Tars,
        number: u64,
        show: &mut dyn FnMut(&FieldValue<'_>),
    ) -> Result<SamplePosition, DatasetError> {
        let (shard, at, file) = tars.locate(number)?;
        let read = tars.read(shard, file, &self.limits)?;
        let entry = usize::try_from(at).ok().and_then(|at| read.samples.get(at));
        let entry = entry.ok_or_else(|| changed(file))?;
        show(&FieldValue {
            name: KEY_COLUMN,
            encoding: "".into(),
            bytes: entry.key.as_bytes(),
            stored_bytes: entry.key.len() as u64,
            value: Ok(Value::Str(&entry.key)),
        });
        for field in &entry.fields {
            let length = match field.bytes > FIELD_BYTES {
                true => PREFIX_BYTES,
                false => field.bytes,
            };
            let bytes = read.bytes(file, field.offset, length)?;
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
        Ok(SamplePosition {
            shard,
            file: file.name().to_owned(),
            at,
        })
    }

    /// Returns the key of a sample, if it has one.
    ///
    /// # Errors
    ///
    /// As [`visit`](Self::visit).
    pub fn key(&self, number: u64) -> Result<Option<String>, DatasetError> {
        if let Stored::Tars(tars) = &self.stored {
            let (shard, at, file) = tars.locate(number)?;
            let read = tars.read(shard, file, &self.limits)?;
            let entry = usize::try_from(at).ok().and_then(|at| read.samples.get(at));
            return Ok(entry.map(|entry| entry.key.to_string()));
        }
        let mut key = None;
        self.visit(number, &mut |field| {
            if field.name == KEY_COLUMN {
                key = Some(match &field.value {
                    Ok(Value::Str(text)) => (*text).to_owned(),
                    _ => String::from_utf8_lossy(field.bytes).into_owned(),
                });
            }
        })?;
        Ok(key)
    }
}

/// Returns the error for a shard that changed while it was read.
fn changed(file: &TarFile) -> DatasetError {
    let place = Place::file(&file.path().to_string_lossy());
    DatasetProblem::ShardChanged.at(place, "the file was changed while it was read")
}

/// Calls `show` with a value of a text format.
fn show_text(name: &str, value: &SampleValue<'_>, show: &mut dyn FnMut(&FieldValue<'_>)) {
    let text = match value {
        SampleValue::Text(TextValue::Str(text)) => Cow::Borrowed(text.as_ref()),
        SampleValue::Text(TextValue::Json(text) | TextValue::BigInt(text)) => Cow::Borrowed(*text),
        SampleValue::Text(TextValue::Int(number)) => number.to_string().into(),
        SampleValue::Text(TextValue::Float(number)) => number.to_string().into(),
        SampleValue::Mds(_) => Cow::Borrowed(""),
    };
    let shown = match value {
        SampleValue::Mds(value) => value.clone(),
        SampleValue::Text(TextValue::Json(text)) => Value::Json(text),
        SampleValue::Text(TextValue::Int(number)) => Value::Int(*number),
        SampleValue::Text(TextValue::Float(number)) => Value::Float(*number),
        SampleValue::Text(TextValue::BigInt(text)) => Value::BigInt(text),
        SampleValue::Text(TextValue::Str(text)) => Value::Str(text),
    };
    show(&FieldValue {
        name,
        encoding: "".into(),
        bytes: text.as_bytes(),
        stored_bytes: text.len() as u64,
        value: Ok(shown),
    });
}

impl Tars {
    /// Returns the files with the numbers of their live samples.
    fn live(&self) -> impl Iterator<Item = (&TarFile, u64)> {
        let files = self.set.shards().iter().zip(&self.stored);
        files.map(|(file, stored)| (file, file.live_samples(*stored)))
    }

    /// Returns the shard of a sample, and the stored position of the sample in it.
    fn locate(&self, number: u64) -> Result<(usize, u64, &TarFile), DatasetError> {
        let mut first = 0_u64;
        for (shard, (file, live)) in self.live().enumerate() {
            if number - first < live {
                let stored = self.stored.get(shard).copied().unwrap_or_default();
                let mut left = number - first;
                for range in file.live_ranges(stored) {
                    let length = range.end - range.start;
                    if left < length {
                        return Ok((shard, range.start + left, file));
                    }
                    left -= length;
                }
            }
            first = first.saturating_add(live);
        }
        let reason = format!("there is no sample {number}: the dataset has {first}");
        Err(DatasetProblem::NoSample.of_call(reason))
    }

    /// Returns a shard with its headers parsed. An uncompressed object in a store is not loaded: only its headers are
    /// read.
    fn read(
        &self,
        shard: usize,
        file: &TarFile,
        limits: &Limits,
    ) -> Result<Arc<TarShard>, DatasetError> {
        {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(found) = kept.iter().position(|(known, _)| *known == shard) {
                let entry = kept.remove(found);
                let read = Arc::clone(&entry.1);
                kept.push(entry);
                return Ok(read);
            }
        }
        let is_ranged = file.open()?.as_file().is_none() && file.compression()?.is_none();
        let (survey, data) = match is_ranged {
            true => (file.survey(limits)?, None),
            false => {
                let data = file.load(limits)?;
                (Survey::of(data.as_ref(), limits), Some(data))
            }
        };
        let (samples, problems) = survey.samples(Consumer::Webdataset, limits);
        if let Some(problem) = survey.error.or_else(|| problems.into_iter().next()) {
            return Err(DatasetError::tar_file(&file.path(), problem));
        }
        let read = Arc::new(TarShard { samples, data });
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT_SHARDS {
            kept.remove(0);
        }
        kept.push((shard, Arc::clone(&read)));
        Ok(read)
    }
}

impl TarShard {
    fn bytes(
        &self,
        file: &TarFile,
        offset: u64,
        length: u64,
    ) -> Result<Cow<'_, [u8]>, DatasetError> {
        let Some(data) = &self.data else {
            return Ok(file.open()?.read_range(offset, length)?.into());
        };
        let range = usize::try_from(offset)
            .ok()
            .zip(usize::try_from(length).ok());
        let bytes = range
            .and_then(|(offset, length)| data.as_ref().get(offset..offset.checked_add(length)?));
        match bytes {
            Some(bytes) if !data.is_damaged() => Ok(bytes.into()),
            _ => Err(changed(file)),
        }
    }
}

/// Decodes a field of a tar shard by its extension.
fn tar_value<'a>(name: &str, bytes: &'a [u8], limits: &Limits) -> Result<Value<'a>, String> {
    let decoded = shardmill_webdataset::decode(name, bytes, limits);
    Ok(match decoded.map_err(|error| error.to_string())? {
        TarValue::Text(text) => Value::Str(text),
        TarValue::Int(number) => Value::Int(number),
        TarValue::BigInt(text) => Value::BigInt(text),
        TarValue::Json(text) => Value::Json(text),
        TarValue::Array(array) => match number_type(array.dtype) {
            Some(dtype) => Value::NdArray(NdArray {
                dtype,
                shape: array.shape,
                data: array.data,
            }),
            None => Value::Bytes(bytes),
        },
        _ => Value::Bytes(bytes),
    })
}

/// Returns the number type of an array. Booleans are shown as numbers.
const fn number_type(dtype: shardmill_webdataset::DType) -> Option<DType> {
    use shardmill_webdataset::DType as Tar;

    Some(match dtype {
        Tar::Bool | Tar::UInt8 => DType::U8,
        Tar::Int8 => DType::I8,
        Tar::Int16 => DType::I16,
        Tar::Int32 => DType::I32,
        Tar::Int64 => DType::I64,
        Tar::UInt16 => DType::U16,
        Tar::UInt32 => DType::U32,
        Tar::UInt64 => DType::U64,
        Tar::Float16 => DType::F16,
        Tar::Float32 => DType::F32,
        Tar::Float64 => DType::F64,
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
