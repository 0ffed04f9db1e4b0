//! Opens tar shards for the commands `ls`, `inspect` and `cat`: the facts of each shard, and its samples.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use shardmill_core::{Limits, Progress};
use shardmill_dataset::{DatasetError, KEY_COLUMN, ShardBytes, TarSet, each_in_order};
use shardmill_mds::{DType, NdArray, Value};
use shardmill_order::StreamConfig;
use shardmill_storage::Dir;
use shardmill_webdataset::{
    FieldSet, FileHashes, ShardMap, ShardView, Value as FieldValue, decode, inflate,
};

use super::dataset::Samples;
use super::dataset_location::DatasetLocation;
use super::extract::{Extractor, SampleName};
use super::samples::SampleChoice;
use crate::error::{Fault, Stop};
use crate::output::{Output, write_object, write_value};

/// The known properties of a shard, from its index or else from its headers.
#[derive(Default)]
pub struct TarFacts {
    pub name: String,
    /// The number of live samples.
    pub samples: u64,
    /// The number of stored samples.
    pub stored: u64,
    pub raw_bytes: u64,
    pub stored_bytes: u64,
    pub compression: Option<String>,
    pub hashes: FileHashes,
    pub fields: Arc<FieldSet>,
}

/// The tar shards at a location.
pub struct Tars {
    set: TarSet,
    facts: Vec<TarFacts>,
    limits: Limits,
}

impl Tars {
    /// Opens the tar shards at a location. Returns `None` if it contains something else.
    pub fn find(
        dataset_location: &DatasetLocation,
        limits: &Limits,
        samples: &SampleChoice,
    ) -> Result<Option<Self>, Stop> {
        if !dataset_location.holds_tars(limits)? {
            return Ok(None);
        }
        let set = tar_set(dataset_location, samples, limits)?;
        let mut facts = Vec::with_capacity(set.shards().len());
        let progress = Progress::new();
        let look = |number: usize| facts_of(&set, number, limits);
        each_in_order(set.shards().len(), 0, &progress, look, |_, found| {
            facts.push(found);
            Ok(())
        })?;
        Ok(Some(Self {
            set,
            facts,
            limits: limits.clone(),
        }))
    }

    pub fn facts(&self) -> &[TarFacts] {
        &self.facts
    }

    /// Returns the number of live samples of each shard, and a digest of the deleted ones.
    pub fn stream_config(&self) -> StreamConfig {
        let sizes: Vec<u64> = self.facts.iter().map(|shard| shard.samples).collect();
        let deleted = self.set.deleted_digests();
        StreamConfig::new(&sizes).with_deleted(deleted.first().copied())
    }

    /// Returns the shards and how many samples each stores.
    pub fn into_parts(self) -> (TarSet, Vec<u64>) {
        let stored = self.facts.iter().map(|shard| shard.stored).collect();
        (self.set, stored)
    }

    /// Returns the length of the index, if there is one.
    pub fn index_bytes(&self) -> Option<u64> {
        Some(self.set.indexes().first()?.bytes)
    }

    pub fn samples(&self) -> u64 {
        self.facts.iter().map(|shard| shard.samples).sum()
    }

    /// Returns the number of deleted samples that are still stored.
    pub const fn deleted(&self) -> u64 {
        self.set.deleted()
    }

    /// Calls `show` for each sample in the range, until it returns `false`. Samples are numbered through all shards.
    fn each(
        &self,
        range: Range<u64>,
        mut show: impl FnMut(u64, &ShardView<ShardBytes>, u64) -> Result<bool, Stop>,
    ) -> Result<(), Stop> {
        let mut first = 0_u64;
        for (shard, facts) in self.set.shards().iter().zip(&self.facts) {
            let end = first.saturating_add(facts.samples);
            let (from, to) = (range.start.max(first), range.end.min(end));
            if from < to {
                let data: ShardBytes = shard.load(&self.limits)?;
                let view = ShardView::open(data, &self.limits)
                    .map_err(|source| DatasetError::tar_file(&shard.path(), source))?;
                let places = shard.live_ranges(facts.stored).into_iter().flatten();
                let skipped = usize::try_from(from - first).unwrap_or(usize::MAX);
                for (sample, at) in (from..to).zip(places.skip(skipped)) {
                    if !show(sample, &view, at)? {
                        return Ok(());
                    }
                }
            }
            first = end;
        }
        Ok(())
    }
}

/// Opens the tar shards at a location with these of their samples.
pub fn tar_set(
    dataset_location: &DatasetLocation,
    samples: &SampleChoice,
    limits: &Limits,
) -> Result<TarSet, Stop> {
    let mut set = dataset_location.tars(limits)?;
    if !samples.with_deleted {
        set = set.without_deleted(limits)?;
    }
    if let Some(view) = &samples.view {
        set = set.of_view(view, limits)?;
    }
    Ok(set)
}

fn facts_of(set: &TarSet, number: usize, limits: &Limits) -> Result<TarFacts, DatasetError> {
    let Some(shard) = set.shards().get(number) else {
        return Ok(TarFacts::default());
    };
    if let Some(entry) = shard.entry() {
        return Ok(TarFacts {
            name: shard.name().to_owned(),
            samples: shard.live_samples(entry.samples),
            stored: entry.samples,
            raw_bytes: entry.raw_data.bytes,
            stored_bytes: entry.stored().bytes,
            compression: entry.compression.map(|compression| compression.to_string()),
            hashes: entry.stored().hashes.clone(),
            fields: Arc::clone(&entry.fields),
        });
    }
    let data = shard.load(limits)?;
    let map = ShardMap::read(data.as_ref(), limits)
        .map_err(|source| DatasetError::tar_file(&shard.path(), source))?;
    let compression = shard.compression()?;
    Ok(TarFacts {
        name: shard.name().to_owned(),
        samples: shard.live_samples(map.samples.len() as u64),
        stored: map.samples.len() as u64,
        raw_bytes: map.bytes,
        stored_bytes: shard.open()?.len(),
        compression: compression.map(|compression| compression.algorithm().to_string()),
        fields: Arc::new(FieldSet::of(&map.samples)),
        ..TarFacts::default()
    })
}

/// The options of `cat` for tar shards.
pub struct TarCat<'a> {
    /// The location as the user typed it.
    pub name: &'a str,
    pub tars: &'a Tars,
    /// The requested columns. Empty for all columns.
    pub columns: &'a [String],
}

impl TarCat<'_> {
    /// Calls `show` with the key and the requested fields of each sample.
    fn samples(
        &self,
        range: Range<u64>,
        mut show: impl FnMut(u64, &str, &[(&str, &[u8])]) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        self.tars.each(range, |number, view, at| {
            let mut fields = Vec::new();
            let key = view
                .fields_into(at, &mut fields)
                .map_err(|source| self.tar(number, source))?;
            let mut chosen: Vec<(&str, &[u8])> = Vec::with_capacity(fields.len() + 1);
            let all = std::iter::once((KEY_COLUMN, key.as_bytes()))
                .chain(fields.iter().map(|field| (&*field.name, field.data)));
            if self.columns.is_empty() {
                chosen.extend(all);
            } else {
                let all: Vec<(&str, &[u8])> = all.collect();
                // A sample may lack some fields.
                for column in self.columns {
                    chosen.extend(all.iter().filter(|(name, _)| name == column));
                }
            }
            show(number, &key, &chosen)?;
            Ok(true)
        })
    }

    /// Adds the path of the shard that contains a sample to an error.
    fn tar(&self, number: u64, source: shardmill_webdataset::WebdatasetError) -> Stop {
        let mut first = 0_u64;
        let mut shards = self.tars.set.shards().iter().zip(&self.tars.facts);
        let shard = shards.find(|(_, facts)| {
            first = first.saturating_add(facts.samples);
            number < first
        });
        let path = shard.map_or_else(|| self.name.into(), |(shard, _)| shard.path());
        DatasetError::tar_file(&path, source).into()
    }
}

impl Samples for TarCat<'_> {
    fn total(&self) -> u64 {
        self.tars.samples()
    }

    fn check_column(&self, column: &str) -> Result<(), Fault> {
        let has = |facts: &TarFacts| {
            let mut fields = facts.fields.always.iter().chain(&facts.fields.sometimes);
            fields.any(|field| &**field == column)
        };
        let facts = self.tars.facts();
        if column == KEY_COLUMN || facts.iter().any(has) {
            return Ok(());
        }
        let mut known = vec![KEY_COLUMN.to_owned()];
        for facts in facts {
            for field in facts.fields.always.iter().chain(&facts.fields.sometimes) {
                if !known.iter().any(|name| **name == **field) {
                    known.push(field.to_string());
                }
            }
        }
        Err(Fault::unknown_column(self.name, column, known))
    }

    fn find(&self, key: &str) -> Result<u64, Stop> {
        let mut found = None;
        self.tars.each(0..u64::MAX, |number, view, at| {
            let held = view.key(at).map_err(|source| self.tar(number, source))?;
            if held == key {
                found = Some(number);
            }
            Ok(found.is_none())
        })?;
        found.ok_or_else(|| Fault::unknown_key(self.name, key, KEY_COLUMN).into())
    }

    fn print(
        &self,
        range: Range<u64>,
        max_bytes: Option<usize>,
        out: &mut Output,
    ) -> Result<(), Stop> {
        let mut line = Vec::new();
        self.samples(range, |_, key, fields| {
            line.clear();
            let entries = fields.iter().map(|field| (field.0, *field));
            write_object(entries, &mut line, |(name, data), line| match name {
                KEY_COLUMN => write_value(&Value::Str(key), max_bytes, line),
                _ => with_field(name, data, &self.tars.limits, |value| {
                    write_value(value, max_bytes, line);
                }),
            });
            line.push(b'\n');
            out.bytes(&line)
        })
    }

    fn raw(&self, number: u64, out: &mut Output) -> Result<(), Stop> {
        let mut found = false;
        self.samples(number..number.saturating_add(1), |_, _, fields| {
            for (_, data) in fields {
                found = true;
                out.bytes(data)?;
            }
            Ok(())
        })?;
        match self.columns.first() {
            Some(column) if !found => {
                let object = format!("sample {number}");
                Err(Fault::unknown_column(&object, column, Vec::<String>::new()).into())
            }
            _ => Ok(()),
        }
    }

    fn extract(&self, range: Range<u64>, dir: &Path, by_key: bool) -> Result<u64, Stop> {
        let mut extractor = Extractor::new(Dir::create(dir)?, self.name);
        self.samples(range, |number, key, fields| {
            let name = match by_key {
                true => SampleName::Key {
                    sample: number,
                    key,
                },
                false => SampleName::Number(number),
            };
            extractor.begin(&name)?;
            for (field, data) in fields {
                // The file names already contain the key or the number.
                if *field != KEY_COLUMN {
                    extractor.write_field(&name, field, data)?;
                }
            }
            Ok(())
        })?;
        Ok(extractor.files())
    }
}

/// Calls `show` with the value of a field according to its extension, or with its bytes if the content does not match the
/// extension.
pub fn with_field(field: &str, data: &[u8], limits: &Limits, show: impl FnOnce(&Value<'_>)) {
    let plain = inflate(field, data, limits);
    let decoded = plain
        .as_ref()
        .ok()
        .and_then(|plain| decode(field, plain, limits).ok());
    let value = match decoded {
        Some(FieldValue::Text(text)) => Value::Str(text),
        Some(FieldValue::Int(number)) => Value::Int(number),
        Some(FieldValue::BigInt(text)) => Value::BigInt(text),
        Some(FieldValue::Json(text)) => Value::Json(text),
        Some(FieldValue::Array(array)) => match DType::from_numpy(array.dtype) {
            Some(dtype) => Value::NdArray(NdArray {
                dtype,
                shape: array.shape,
                data: array.data,
            }),
            None => Value::Bytes(data),
        },
        _ => Value::Bytes(data),
    };
    show(&value);
}
