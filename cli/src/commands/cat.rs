//! The command `shardmill cat`: prints samples, or writes their fields to files.

use std::ops::Range;
use std::path::Path;

use serde::Serialize;
use shardmill_core::{Limits, escape};
use shardmill_dataset::DatasetError;
use shardmill_dataset::{Dataset, Place, Sample};
use shardmill_mds::{Field, SampleValue, TextValue, Value, decode};
use shardmill_storage::Dir;

use super::dataset::{self, Samples};
use super::dataset_location::DatasetLocation;
use super::extract::{Extractor, SampleName};
use super::samples::SampleChoice;
use super::tars::{TarCat, Tars};
use crate::args::CatArgs;
use crate::error::{Fault, Stop};
use crate::output::{Exit, Output, count, many, write_object, write_text_value, write_value};

/// The number of samples shown by default.
const SHOWN: u64 = 10;

/// The number of samples of one shard from which the whole shard is read.
const WHOLE: u64 = 8;

pub fn run(args: &CatArgs, limits: Limits, out: &mut Output) -> Result<Exit, Stop> {
    let max_bytes = args
        .max_bytes
        .map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    if args.raw && args.columns.len() != 1 {
        return Err(Fault::option("raw", "it writes one column", "name it with --column").into());
    }
    let location = DatasetLocation::parse(&args.dataset, &args.storage)?;
    let choice = SampleChoice::read(&args.samples, &args.storage)?;
    if let Some(tars) = Tars::find(&location, &limits, &choice)? {
        let samples = TarCat {
            name: &args.dataset,
            tars: &tars,
            columns: &args.columns,
        };
        return show(args, &samples, max_bytes, out);
    }
    let dataset = dataset::open(&args.dataset, &location, limits, &choice)?;
    let samples = Cat {
        name: &args.dataset,
        dataset: &dataset,
        columns: &args.columns,
        key_column: &args.key_column,
    };
    show(args, &samples, max_bytes, out)
}

fn show(
    args: &CatArgs,
    samples: &dyn Samples,
    max_bytes: Option<usize>,
    out: &mut Output,
) -> Result<Exit, Stop> {
    for column in &args.columns {
        samples.check_column(column)?;
    }
    let total = samples.total();
    let range = match &args.key {
        Some(key) => {
            let sample = samples.find(key)?;
            sample..sample + 1
        }
        None => selected(args, total)?,
    };
    if args.raw {
        check_one(&range)?;
        samples.raw(range.start, out)?;
        return Ok(Exit::Done);
    }
    match &args.extract {
        Some(dir) => {
            let files = samples.extract(range.clone(), dir, args.by_key)?;
            show_extracted(dir, files, &range, out)?;
        }
        None => samples.print(range.clone(), max_bytes, out)?,
    }
    if is_default(args) && range.end < total {
        note_shown(total, out)?;
    }
    Ok(Exit::Done)
}

/// Returns the key of a sample as text, or `None` if the sample has no key column. `name` is the dataset, for errors.
pub fn key_of(
    name: &str,
    dataset: &Dataset,
    key_column: &str,
    number: u64,
) -> Result<Option<String>, Stop> {
    let cat = Cat {
        name,
        dataset,
        columns: &[],
        key_column,
    };
    cat.key(&dataset.sample(number)?)
}

/// Reads single values of one column.
pub struct ColumnReader<'a> {
    name: &'a str,
    dataset: &'a Dataset,
    column: [String; 1],
}

impl<'a> ColumnReader<'a> {
    /// Checks that the dataset has the column. `name` is the dataset, for errors.
    pub fn new(name: &'a str, dataset: &'a Dataset, column: &str) -> Result<Self, Stop> {
        let reader = Self {
            name,
            dataset,
            column: [column.to_owned()],
        };
        reader.cat().check_column(column)?;
        Ok(reader)
    }

    fn cat(&self) -> Cat<'_> {
        Cat {
            name: self.name,
            dataset: self.dataset,
            columns: &self.column,
            key_column: "",
        }
    }

    /// Returns the value of a sample as JSON.
    pub fn json(&self, number: u64) -> Result<Vec<u8>, Stop> {
        let sample = self.dataset.sample(number)?;
        let mut bytes = Vec::new();
        for (_, value) in self.cat().values(&sample)? {
            match value {
                Shown::Mds(value) => write_value(&value, None, &mut bytes),
                Shown::Text(value) => write_text_value(&value, None, &mut bytes),
            }
        }
        Ok(bytes)
    }
}

/// Returns whether the default number of samples is shown.
const fn is_default(args: &CatArgs) -> bool {
    args.range.is_none() && args.key.is_none() && args.limit.is_none()
}

/// Returns the samples that the range and `--limit` select.
fn selected(args: &CatArgs, total: u64) -> Result<Range<u64>, Fault> {
    let range = match args.range {
        Some(range) => range.samples_of(&args.dataset, total)?,
        None if is_default(args) && args.raw => {
            let hint = "give its number or its key";
            return Err(Fault::option("raw", "it writes one sample", hint));
        }
        None => 0..total,
    };
    let most = if is_default(args) {
        SHOWN
    } else {
        args.limit.unwrap_or(u64::MAX)
    };
    Ok(range.start..range.end.min(range.start.saturating_add(most)))
}

/// Checks that `--raw` selects exactly one sample.
fn check_one(range: &Range<u64>) -> Result<(), Fault> {
    let samples = range.end - range.start;
    if samples == 1 {
        return Ok(());
    }
    let fact = format!("it writes one sample, but {} are selected", count(samples));
    Err(Fault::option("raw", &fact, "give one number or a key"))
}

/// Notes that there are more samples than the default shows.
fn note_shown(total: u64, out: &mut Output) -> Result<(), Stop> {
    out.flush()?;
    out.console().note(format_args!(
        "{SHOWN} of {} samples; `0..` for all of them, `A..B` for some",
        count(total)
    ));
    Ok(())
}

/// A dataset and the requested columns.
struct Cat<'a> {
    name: &'a str,
    dataset: &'a Dataset,
    columns: &'a [String],
    key_column: &'a str,
}

/// A value of a sample in an MDS or a text format.
enum Shown<'a> {
    Mds(Value<'a>),
    Text(TextValue<'a>),
}

impl Cat<'_> {
    /// Calls `show` for each sample.
    fn each(
        &self,
        range: Range<u64>,
        mut show: impl FnMut(&Sample) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let mut shard = None;
        for number in range.clone() {
            let (this, _) = self.dataset.locate(number)?;
            if shard != Some(this) {
                shard = Some(this);
                let end = self.dataset.first_sample(this + 1).min(range.end);
                let is_first = number == self.dataset.first_sample(this);
                let is_whole = is_first && end == self.dataset.first_sample(this + 1);
                if end - number >= WHOLE || is_whole {
                    // The dataset caches the last shard that it read.
                    self.dataset.shard(this)?;
                }
            }
            show(&self.dataset.sample(number)?)?;
        }
        Ok(())
    }

    /// Returns the requested values of a sample, or all of them.
    fn values<'s>(&self, sample: &'s Sample) -> Result<Vec<(&'s str, Shown<'s>)>, Stop> {
        let config = sample.config();
        if config.mds_columns().is_some() {
            let fields = sample.fields()?;
            let chosen = self.choose(sample, fields, |field| field.name)?;
            let values = chosen
                .into_iter()
                .map(|field| Ok((field.name, Shown::Mds(self.decode(sample, &field)?))));
            return values.collect();
        }
        let values = sample
            .values()?
            .into_iter()
            .map(|(name, value)| match value {
                SampleValue::Mds(value) => (name, Shown::Mds(value)),
                SampleValue::Text(value) => (name, Shown::Text(value)),
            });
        Ok(self.choose(sample, values.collect(), |(name, _)| name)?)
    }

    /// Returns the items of the requested columns, in the requested order.
    fn choose<T>(
        &self,
        sample: &Sample,
        items: Vec<T>,
        name: impl Fn(&T) -> &str,
    ) -> Result<Vec<T>, Fault> {
        if self.columns.is_empty() {
            return Ok(items);
        }
        let mut items: Vec<Option<T>> = items.into_iter().map(Some).collect();
        let mut chosen = Vec::with_capacity(self.columns.len());
        for column in self.columns {
            let found = items
                .iter_mut()
                .find(|item| item.as_ref().is_some_and(|item| name(item) == column));
            match found.and_then(Option::take) {
                Some(item) => chosen.push(item),
                None => {
                    let (object, known) = (
                        format!("sample {}", sample.number()),
                        sample.config().column_names(),
                    );
                    return Err(Fault::unknown_column(&object, column, known));
                }
            }
        }
        Ok(chosen)
    }

    fn decode<'s>(&self, sample: &Sample, field: &Field<'s>) -> Result<Value<'s>, DatasetError> {
        decode(field.encoding, field.datum, self.dataset.limits()).map_err(|source| {
            let entry = self.dataset.index().shards.get(sample.shard_number());
            DatasetError::Value {
                place: Place {
                    file: entry
                        .map(|entry| dataset::stored_files(entry).0.basename.to_string())
                        .unwrap_or_default(),
                    sample: Some(sample.number()),
                    column: Some(field.name.to_owned()),
                },
                source: Box::new(source),
            }
        })
    }

    /// Returns the key of a sample as text, or `None` if the sample has no key column.
    fn key(&self, sample: &Sample) -> Result<Option<String>, Stop> {
        let error = |encoding: &str| {
            let message = format!("the column has encoding {encoding}, which cannot be a key");
            Fault::usage("key-encoding", &message)
                .about(self.key_column)
                .with_hint("choose a column of strings or integers with --key-column")
        };
        if sample.config().mds_columns().is_none() {
            let values = sample.values()?;
            let Some((_, value)) = values
                .into_iter()
                .find(|(name, _)| *name == self.key_column)
            else {
                return Ok(None);
            };
            return match value {
                SampleValue::Text(TextValue::Str(text)) => Ok(Some(text.into_owned())),
                SampleValue::Text(TextValue::Int(number)) => Ok(Some(number.to_string())),
                SampleValue::Text(TextValue::BigInt(text)) => Ok(Some(text.to_owned())),
                _ => Err(error("float").into()),
            };
        }
        let fields = sample.fields()?;
        let Some(field) = fields.iter().find(|field| field.name == self.key_column) else {
            return Ok(None);
        };
        let value = self.decode(sample, field)?;
        if let Value::Bytes(bytes) = value {
            // Other writers sometimes store keys as bytes. Keys that are not text match no typed key.
            return Ok(Some(String::from_utf8_lossy(bytes).into_owned()));
        }
        let key = value.key_text();
        Ok(Some(key.ok_or_else(|| error(&field.encoding.to_string()))?))
    }
}

impl Samples for Cat<'_> {
    fn total(&self) -> u64 {
        self.dataset.len()
    }

    fn check_column(&self, column: &str) -> Result<(), Fault> {
        let mut configs = self
            .dataset
            .index()
            .shards
            .iter()
            .map(|shard| &shard.config);
        // Shards with equal configs share one, so a million of them are compared by address.
        let mut seen = None;
        let found = configs.any(|config| {
            let address = std::sync::Arc::as_ptr(config);
            let new = seen.replace(address) != Some(address);
            new && config.column_names().any(|name| name == column)
        });
        match self.dataset.index().shards.first() {
            Some(first) if !found => {
                let known = first.config.column_names();
                Err(Fault::unknown_column(self.name, column, known))
            }
            _ => Ok(()),
        }
    }

    fn find(&self, key: &str) -> Result<u64, Stop> {
        self.check_column(self.key_column)?;
        let found = |sample: &Sample| -> Result<bool, Stop> {
            Ok(self.key(sample)?.is_some_and(|held| held == key))
        };
        for number in 0..self.dataset.len() {
            let (shard, _) = self.dataset.locate(number)?;
            if number == self.dataset.first_sample(shard) {
                self.dataset.shard(shard)?;
            }
            if found(&self.dataset.sample(number)?)? {
                return Ok(number);
            }
        }
        Err(Fault::unknown_key(self.name, key, self.key_column).into())
    }

    fn print(
        &self,
        range: Range<u64>,
        max_bytes: Option<usize>,
        out: &mut Output,
    ) -> Result<(), Stop> {
        let mut line = Vec::new();
        self.each(range, |sample| {
            line.clear();
            write_object(self.values(sample)?, &mut line, |value, line| match value {
                Shown::Mds(value) => write_value(&value, max_bytes, line),
                Shown::Text(value) => write_text_value(&value, max_bytes, line),
            });
            line.push(b'\n');
            out.bytes(&line)
        })
    }

    fn raw(&self, number: u64, out: &mut Output) -> Result<(), Stop> {
        let sample = self.dataset.sample(number)?;
        if sample.config().mds_columns().is_some() {
            for field in self.choose(&sample, sample.fields()?, |field| field.name)? {
                out.bytes(field.datum)?;
            }
            return Ok(());
        }
        for (_, value) in self.values(&sample)? {
            if let Shown::Text(value) = value {
                out.bytes(&text_bytes(&value))?;
            }
        }
        Ok(())
    }

    fn extract(&self, range: Range<u64>, dir: &Path, by_key: bool) -> Result<u64, Stop> {
        if by_key {
            self.check_column(self.key_column)?;
        }
        let mut extractor = Extractor::new(Dir::create(dir)?, self.name);
        self.each(range, |sample| {
            let key = if by_key { self.key(sample)? } else { None };
            let name = match &key {
                Some(key) => SampleName::Key {
                    sample: sample.number(),
                    key,
                },
                None => SampleName::Number(sample.number()),
            };
            extractor.begin(&name)?;
            for (column, value) in self.values(sample)? {
                // The file names already contain the key.
                if by_key && column == self.key_column && self.columns.is_empty() {
                    continue;
                }
                match value {
                    Shown::Mds(value) => extractor.write(&name, column, &value)?,
                    Shown::Text(value) => {
                        extractor.write_bytes(&name, column, "txt", &text_bytes(&value))?
                    }
                }
            }
            Ok(())
        })?;
        Ok(extractor.files())
    }
}

/// Returns a value of the text formats as plain text.
fn text_bytes(value: &TextValue<'_>) -> Vec<u8> {
    match value {
        TextValue::Str(text) => text.as_bytes().to_vec(),
        TextValue::Json(text) => text.as_bytes().to_vec(),
        _ => {
            let mut bytes = Vec::new();
            write_text_value(value, None, &mut bytes);
            // NaN and infinities are strings only in JSON.
            bytes.retain(|byte| *byte != b'"');
            bytes
        }
    }
}

#[derive(Serialize)]
struct Extracted<'a> {
    directory: &'a str,
    samples: u64,
    files: u64,
}

fn show_extracted(
    dir: &Path,
    files: u64,
    range: &Range<u64>,
    out: &mut Output,
) -> Result<(), Stop> {
    let directory = &*dir.to_string_lossy();
    let samples = range.end - range.start;
    if out.is_json() {
        return out.json(&Extracted {
            directory,
            samples,
            files,
        });
    }
    if out.is_quiet() {
        return Ok(());
    }
    out.line(format_args!(
        "{}: {} of {}",
        escape(directory),
        many(files, "file"),
        many(samples, "sample")
    ))
}
