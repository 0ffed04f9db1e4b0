//! Reads trees of plain files. Files that belong together are one sample, and their common path is its key.

mod files;
mod group;
mod rows;

use std::fs::File;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use shardmill_core::Error;
use shardmill_storage::Location;

use crate::base::{project, rows_from};
use crate::error;
use crate::file_filter::FileFilter;
use crate::files::{Fingerprint, check_overlap, find, shown_below, shown_location, stat};
use crate::objects::Found;
use crate::source::ENCODING_KEY;
use crate::walk::{FileVersion, Listed, Listing, WalkOptions, resolve, walk};
use crate::{
    Rows, Source, SourceDescription, SourceFile, SourceKind, SourceOptions, SourceProblem,
    TableFacts, TreeGroup, TreeSummary, Unit,
};
use files::{Files, Root, Shared};
use group::{Samples, by_key, by_stem, whole};
use rows::SampleRows;

/// A unit ends when it has this many bytes …
const UNIT_BYTES: u64 = 4 << 20;
/// … or this many files.
const UNIT_FILES: u64 = 1024;

/// The largest file. Together with the rest of its batch, it stays below the 2 GiB that a column can address.
const MAX_FILE: u64 = 3 << 29;
/// The largest batch, regardless of the options.
const MAX_BATCH: usize = 256 << 20;

/// A source of file trees.
pub(crate) struct Tree {
    facts: TableFacts,
    shared: Arc<Shared>,
    /// The first sample of each unit, and the end of the last unit.
    starts: Vec<usize>,
}

/// Lists the trees and groups their files.
pub(crate) fn open(given: &[Location], options: &SourceOptions) -> Result<Tree, Error> {
    let filter = FileFilter::new(&options.files)?;
    let mut locations = Vec::new();
    let mut listing = Listing::default();
    for location in given {
        for found in find(location, options)? {
            let location = found.location();
            let (files, own) = list(found, &location, options)?;
            let before = listing.len();
            for (path, file_version) in own.into_iter().filter(|(path, _)| filter.takes(path)) {
                check_size(&location, &path, file_version, options)?;
                listing.push((path, file_version));
            }
            if listing.len() == before {
                let reason = format!("holds no file{}", filter.reason());
                return Err(SourceProblem::TreeEmpty.at(shown_location(&location), reason));
            }
            locations.push(Root {
                location,
                files,
                end: listing.len(),
            });
        }
    }
    let split = match options.tree.group {
        TreeGroup::Stem => by_stem,
        TreeGroup::Key => by_key,
        TreeGroup::File => whole,
    };
    let ends: Vec<usize> = locations.iter().map(|root| root.end).collect();
    let key_column = &options.tree.key_column;
    let samples = Samples::new(&listing, &ends, split, key_column, &options.limits)?;
    let description = describe(&locations, &listing, &samples);
    let schema = schema(&samples, options);
    let shared = Shared {
        locations,
        listing,
        samples,
        follow_links: options.tree.follow_links,
        batch_bytes: options.resources.batch_bytes.clamp(1, MAX_BATCH) as u64,
    };
    let (units, starts) = cut(&shared);
    let fields = shared.samples.fields().iter();
    let nulls = fields.map(|field| Some(shared.samples.len() as u64 - field.samples));
    Ok(Tree {
        facts: TableFacts {
            schema,
            units,
            // Each sample has a key.
            null_counts: std::iter::once(Some(0)).chain(nulls).collect(),
            description,
        },
        shared: Arc::new(shared),
        starts,
    })
}

/// Lists the files of a location, or of a match of its pattern.
fn list(
    found: Found,
    location: &Location,
    options: &SourceOptions,
) -> Result<(Files, Listing), Error> {
    let single = || {
        SourceProblem::Unsupported
            .at(shown_location(location), "is a single file, not a tree")
            .with_hint("pass its directory, or set its format with --from KIND, such as --from csv")
    };
    match found {
        Found::Object(..) => Err(single()),
        Found::Path(path) => {
            if !stat(&path)?.is_dir() {
                return Err(single());
            }
            check_overlap(location, options)?;
            let resolved = resolve(&path);
            let walk_options = WalkOptions {
                follow_links: options.tree.follow_links,
                ..WalkOptions::default()
            };
            let listing = walk(&resolved, walk_options)?;
            let directory = File::open(&resolved);
            let directory =
                directory.map_err(|source| error::io("open", shown_location(location), source))?;
            Ok((Files::Directory(directory), listing))
        }
        Found::Folder(folder) => {
            check_overlap(location, options)?;
            let listing = folder.listing();
            folder.store.check_finished()?;
            let listing = listing?;
            for (below, _) in &listing {
                folder.store.check_name(&folder.key(below))?;
            }
            Ok((Files::Store(folder.store, folder.name), listing))
        }
    }
}

/// Refuses a file that is too large for a sample.
fn check_size(
    location: &Location,
    name: &str,
    file_version: FileVersion,
    options: &SourceOptions,
) -> Result<(), Error> {
    let shown = || shown_below(location, name);
    let max = options.limits.sample_bytes;
    error::check_limit("sample-bytes", file_version.bytes, max, shown)?;
    if file_version.bytes > MAX_FILE {
        let reason = "is a file of more than 1.5 GiB, which cannot be a sample";
        let error = SourceProblem::Unsupported.at(shown(), reason);
        return Err(error.with_hint("omit it"));
    }
    Ok(())
}

fn describe(locations: &[Root], listing: &[Listed], samples: &Samples) -> SourceDescription {
    let mut description = SourceDescription::new(SourceKind::Tree);
    let mut fingerprint = Fingerprint::new(SourceKind::Tree);
    let mut files = listing.iter().enumerate().peekable();
    for location in locations {
        let mut bytes = 0;
        while let Some((_, (path, file_version))) = files.next_if(|(at, _)| *at < location.end) {
            fingerprint.add(path, *file_version);
            bytes += file_version.bytes;
        }
        // The order depends on which location a file is in.
        fingerprint.separate();
        description.bytes += bytes;
        description.files.push(SourceFile {
            path: shown_location(&location.location),
            bytes,
        });
    }
    description.rows = Some(samples.len() as u64);
    description.fingerprint = fingerprint.finish();
    description.tree = Some(TreeSummary {
        files: listing.len() as u64,
        samples: samples.len() as u64,
        fields: samples.fields().to_vec(),
    });
    description
}

/// Returns the type and encoding that the last extension of a field implies.
fn implied_type(field: &str, text_as_bytes: bool) -> (DataType, &'static str) {
    let extension = field.rsplit('.').next().unwrap_or(field);
    match extension.to_ascii_lowercase().as_str() {
        "txt" if !text_as_bytes => (DataType::Utf8, "str"),
        "jpg" | "jpeg" => (DataType::Binary, "jpeg"),
        "png" => (DataType::Binary, "png"),
        "json" => (DataType::Binary, "json"),
        _ => (DataType::Binary, "bytes"),
    }
}

fn schema(samples: &Samples, options: &SourceOptions) -> SchemaRef {
    let encoding = |encoding: &str| [(ENCODING_KEY.to_owned(), encoding.to_owned())].into();
    let mut fields = vec![
        Field::new(&options.tree.key_column, DataType::Utf8, false).with_metadata(encoding("str")),
    ];
    for field in samples.fields() {
        let (data_type, name) = match options.tree.group {
            TreeGroup::Stem | TreeGroup::Key => {
                implied_type(&field.name, options.tree.text_as_bytes)
            }
            TreeGroup::File => (DataType::Binary, "bytes"),
        };
        let nullable = field.samples < samples.len() as u64;
        fields.push(Field::new(&field.name, data_type, nullable).with_metadata(encoding(name)));
    }
    Arc::new(Schema::new(fields))
}

/// Splits the samples into units that do not cross locations.
fn cut(shared: &Shared) -> (Vec<Unit>, Vec<usize>) {
    let mut units: Vec<Unit> = Vec::new();
    let mut starts = Vec::new();
    let (mut files, mut in_location) = (0, 0);
    for sample in 0..shared.samples.len() {
        let first = shared.samples.first_file(sample);
        let location = first.map_or(0, |file| shared.location(file));
        let members = shared.samples.members(sample);
        let (own_files, own_bytes) = members.fold((0, 0), |(count, bytes), (_, file)| {
            (count + 1, bytes + shared.file_version(file).bytes)
        });
        let full = match units.last() {
            None => true,
            Some(unit) => {
                unit.file != Some(location) || unit.bytes >= UNIT_BYTES || files >= UNIT_FILES
            }
        };
        if full {
            if units.last().is_none_or(|unit| unit.file != Some(location)) {
                in_location = 0;
            }
            units.push(Unit {
                file: Some(location),
                first_row: Some(in_location),
                rows: Some(0),
                bytes: 0,
            });
            starts.push(sample);
            files = 0;
        }
        if let Some(unit) = units.last_mut() {
            unit.bytes += own_bytes;
            unit.rows = unit.rows.map(|rows| rows + 1);
        }
        files += own_files;
        in_location += 1;
    }
    starts.push(shared.samples.len());
    (units, starts)
}

impl Tree {
    fn samples_of(&self, unit: usize) -> Result<std::ops::Range<usize>, Error> {
        let range = self
            .starts
            .get(unit)
            .zip(self.starts.get(unit + 1))
            .map(|(start, end)| *start..*end);
        range.ok_or_else(|| error::no_unit(unit))
    }
}

impl Source for Tree {
    fn facts(&self) -> &TableFacts {
        &self.facts
    }

    fn open(&self, unit: usize, columns: &[usize]) -> Result<Box<dyn Rows>, Error> {
        let mut rows = SampleRows {
            shared: Arc::clone(&self.shared),
            samples: self.samples_of(unit)?,
            schema: project(&self.facts.schema, columns),
            columns: columns.iter().map(|column| column.checked_sub(1)).collect(),
        };
        Ok(rows_from(move || rows.pull()))
    }

    fn unit_null_count(&self, unit: usize, column: usize) -> Option<u64> {
        let samples = self.samples_of(unit).ok()?;
        let lacks = |sample: &usize| {
            let mut members = self.shared.samples.members(*sample);
            column > 0 && members.all(|(field, _)| field + 1 != column)
        };
        Some(samples.filter(lacks).count() as u64)
    }

    fn key(&self, unit: usize, row: u64) -> Option<String> {
        let start = *self.starts.get(unit)?;
        let sample = start.checked_add(usize::try_from(row).ok()?)?;
        Some(self.shared.key(sample).to_owned())
    }
}
