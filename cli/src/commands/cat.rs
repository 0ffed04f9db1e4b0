//! The command `shardmill cat`: prints samples, or writes their fields to files.

use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use shardmill_core::{Error, Limits, escape};
use shardmill_dataset::KEY_COLUMN;
use shardmill_mds::TextValue;
use shardmill_storage::Dir;

use super::dataset_location::DatasetLocation;
use super::extract::{Extractor, SampleName};
use super::sample_row::{SampleRow, StoredField};
use super::samples::SampleChoice;
use super::shards::Shards;
use crate::args::range::IndexRange;
use crate::args::{SampleArgs, StorageArgs, values};
use crate::error::{Stop, unknown_key};
use crate::output::{Exit, Output, begin_entry, count, many, number_text};

/// Print samples as JSON lines, or write their fields as files
///
/// Numbers are JSON numbers: 64-bit integers exactly, floats in the shortest text that reads back to the
/// same value (float16 as float32 would); NaN and the infinities are the strings "NaN", "Infinity" and
/// "-Infinity", decimals are strings. Bytes are {"bytes", "base64"}; arrays {"dtype", "shape", "data"}
/// with the values in row order; images {"format", "bytes", "base64"}; pickles {"pickle_bytes",
/// "base64"}, never run. Columns of encoding json appear as the JSON they hold.
#[derive(Args, Debug)]
pub struct CatArgs {
    /// The dataset, in a directory or in a store
    #[arg(value_name = "DATASET")]
    pub dataset: String,

    /// Which samples: `7`, `-1` (the last), `10..20` (20 not included), `10..`, `..20`
    /// [default: the first 10]
    #[arg(value_name = "INDEX|A..B", value_parser = IndexRange::parse)]
    pub range: Option<IndexRange>,

    /// Print the first sample with this key; reads the dataset from the start
    #[arg(long, value_name = "KEY", conflicts_with = "range")]
    pub key: Option<String>,

    /// Print at most this number of samples of the range
    #[arg(long, value_name = "N", conflicts_with = "key", value_parser = values::samples)]
    pub limit: Option<u64>,

    /// The column with the keys, for `--key` and `--by-key`
    #[arg(long, value_name = "NAME", default_value = "__key__")]
    pub key_column: String,

    /// Print only this column; repeatable, in the order given
    #[arg(long = "column", short, value_name = "NAME")]
    pub columns: Vec<String>,

    /// Write the stored bytes of one column of one sample to standard output
    #[arg(long, conflicts_with = "extract")]
    pub raw: bool,

    /// Write fields as files to this directory: `7/image.jpg`; existing files are not overwritten
    #[arg(long, value_name = "DIR", value_parser = values::local_path)]
    pub extract: Option<PathBuf>,

    /// With `--extract`: name the files by key, as in a tree of files: `a/001.jpg`
    #[arg(long, requires = "extract")]
    pub by_key: bool,

    /// Shorten strings, bytes, arrays, images and JSON of more than this many bytes
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["raw", "extract"], value_parser = values::byte_size)]
    pub max_bytes: Option<u64>,

    #[command(flatten)]
    pub samples: SampleArgs,

    #[command(flatten)]
    pub storage: StorageArgs,
}

/// The number of samples shown by default.
const SHOWN: u64 = 10;

pub fn run(args: &CatArgs, limits: Limits, out: &mut Output) -> Result<Exit, Stop> {
    if args.raw && args.columns.len() != 1 {
        return Err(Error::option_hint(
            "config-raw",
            "it writes one column",
            "name it with --column",
        )
        .into());
    }
    let location = DatasetLocation::parse(&args.dataset, &args.storage)?;
    let choice = SampleChoice::read(&args.samples, &args.storage)?;
    let shards = Shards::open(&args.dataset, &location, &limits, &choice)?;
    let cat = Cat {
        args,
        // Tar samples have one key.
        key_column: match &shards {
            Shards::Indexed(_) => &args.key_column,
            Shards::Tars(_) => KEY_COLUMN,
        },
        shards,
    };
    for column in &args.columns {
        cat.shards.check_column(&args.dataset, column)?;
    }
    let total = cat.shards.samples();
    let range = match &args.key {
        Some(key) => {
            let sample = cat.find(key)?;
            sample..sample + 1
        }
        None => selected(args, total)?,
    };
    if args.raw {
        check_one(&range)?;
        cat.raw(range, out)?;
        return Ok(Exit::Done);
    }
    match &args.extract {
        Some(dir) => {
            let files = cat.extract(range.clone(), dir)?;
            show_extracted(dir, files, &range, out)?;
        }
        None => cat.print(range.clone(), out)?,
    }
    if is_default(args) && range.end < total {
        out.note(format_args!(
            "{SHOWN} of {} samples; `0..` for all of them, `A..B` for some",
            count(total)
        ))?;
    }
    Ok(Exit::Done)
}

/// Returns whether the default number of samples is shown.
const fn is_default(args: &CatArgs) -> bool {
    args.range.is_none() && args.key.is_none() && args.limit.is_none()
}

/// Returns the samples that the range and `--limit` select.
fn selected(args: &CatArgs, total: u64) -> Result<Range<u64>, Error> {
    let range = match args.range {
        Some(range) => range.samples_of(&args.dataset, total)?,
        None if is_default(args) && args.raw => {
            let hint = "pass its number or its key";
            return Err(Error::option_hint(
                "config-raw",
                "it writes one sample",
                hint,
            ));
        }
        None => 0..total,
    };
    let max = if is_default(args) {
        SHOWN
    } else {
        args.limit.unwrap_or(u64::MAX)
    };
    Ok(range.start..range.end.min(range.start.saturating_add(max)))
}

/// Checks that `--raw` selects exactly one sample.
fn check_one(range: &Range<u64>) -> Result<(), Error> {
    let samples = range.end - range.start;
    if samples == 1 {
        return Ok(());
    }
    let fact = format!("it writes one sample, but {} are selected", count(samples));
    Err(Error::option_hint(
        "config-raw",
        fact,
        "pass one number or a key",
    ))
}

/// An open dataset, and what the command line requests of it.
struct Cat<'a> {
    args: &'a CatArgs,
    key_column: &'a str,
    shards: Shards,
}

impl Cat<'_> {
    /// Returns the requested fields of a sample, in this order, or all of them.
    fn chosen<'r, 'a>(
        &self,
        row: &'r SampleRow<'a>,
    ) -> Result<Vec<&'r (&'a str, StoredField<'a>)>, Error> {
        if self.args.columns.is_empty() {
            return Ok(row.fields.iter().collect());
        }
        let mut chosen = Vec::with_capacity(self.args.columns.len());
        for column in &self.args.columns {
            match row.field(column) {
                Some(field) => chosen.push(field),
                // Tar samples may lack some fields.
                None if matches!(self.shards, Shards::Tars(_)) && !self.args.raw => {}
                None => return Err(row.lacks(column)),
            }
        }
        Ok(chosen)
    }

    /// Returns the number of the first sample with this key.
    fn find(&self, key: &str) -> Result<u64, Stop> {
        let (name, column) = (&*self.args.dataset, self.key_column);
        self.shards.check_column(name, column)?;
        let mut found = None;
        self.shards.each(0..self.shards.samples(), &mut |row| {
            if row.key(column)?.is_some_and(|value| value == key) {
                found = Some(row.number);
            }
            Ok(found.is_none())
        })?;
        found.ok_or_else(|| unknown_key(name, key, column, "").into())
    }

    /// Prints samples as lines of JSON.
    fn print(&self, range: Range<u64>, out: &mut Output) -> Result<(), Stop> {
        let max_bytes = self.args.max_bytes;
        let max_bytes = max_bytes.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        let mut line = Vec::new();
        self.shards.each(range, &mut |row| {
            line.clear();
            line.push(b'{');
            for field in self.chosen(row)? {
                begin_entry(field.0, &mut line);
                row.write(field, max_bytes, &mut line)?;
            }
            line.extend_from_slice(b"}\n");
            out.bytes(&line)?;
            Ok(true)
        })
    }

    /// Writes the stored bytes of the requested column of a sample.
    fn raw(&self, sample: Range<u64>, out: &mut Output) -> Result<(), Stop> {
        self.shards.each(sample, &mut |row| {
            for (_, field) in self.chosen(row)? {
                match field {
                    StoredField::Mds(field) => out.bytes(field.datum)?,
                    StoredField::Text(value) => out.bytes(&text_bytes(value))?,
                    StoredField::Tar(data) => out.bytes(data)?,
                }
            }
            Ok(true)
        })
    }

    /// Writes the fields of samples as files. Returns the number of files.
    fn extract(&self, range: Range<u64>, dir: &Path) -> Result<u64, Stop> {
        let by_key = self.args.by_key;
        if by_key {
            let dataset = &self.args.dataset;
            self.shards.check_column(dataset, self.key_column)?;
        }
        // The file names already contain the key, and those of tar samples the key or the number.
        let skips_key = match self.shards {
            Shards::Indexed(_) => by_key && self.args.columns.is_empty(),
            Shards::Tars(_) => true,
        };
        let mut extractor = Extractor::new(Dir::create(dir)?, &self.args.dataset);
        self.shards.each(range, &mut |row| {
            let key = if by_key {
                row.key(self.key_column)?
            } else {
                None
            };
            let name = SampleName {
                number: row.number,
                key: key.as_deref(),
            };
            extractor.begin(&name)?;
            for (column, field) in self.chosen(row)? {
                match field {
                    _ if skips_key && *column == self.key_column => {}
                    StoredField::Mds(field) => {
                        extractor.write(&name, column, &row.decode(field)?)?;
                    }
                    StoredField::Text(value) => {
                        extractor.write_bytes(&name, column, "txt", &text_bytes(value))?;
                    }
                    StoredField::Tar(data) => extractor.write_field(&name, column, data)?,
                }
            }
            Ok(true)
        })?;
        Ok(extractor.files())
    }
}

/// Returns a value of the text formats as plain text.
fn text_bytes(value: &TextValue<'_>) -> Vec<u8> {
    match value {
        TextValue::Str(text) => text.as_bytes().to_vec(),
        TextValue::Json(text) => text.as_bytes().to_vec(),
        _ => number_text(&value.as_value()).into_bytes(),
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
    let extracted = Extracted {
        directory,
        samples,
        files,
    };
    if out.wants_summary(&extracted)? {
        out.line(format_args!(
            "{}: {} of {}",
            escape(directory),
            many(files, "file"),
            many(samples, "sample")
        ))?;
    }
    Ok(())
}
