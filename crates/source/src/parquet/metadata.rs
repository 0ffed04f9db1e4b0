//! Reads footers, checks every claim in them, converts them to an Arrow schema, and caches them within a budget.

use std::fs::File;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use arrow::datatypes::Fields;
use parquet::arrow::{FieldLevels, ProjectionMask, parquet_to_arrow_field_levels};
use parquet::file::metadata::ParquetMetaData;
use rayon::prelude::*;
use shardmill_core::catch_panic::attempt;
use shardmill_core::{Error, lock};
use shardmill_parquet::{
    END_BYTES, FieldsProblem, FooterProblem, GroupPart, check_start, decode_footer, divide_groups,
    footer_range, index_range,
};

use crate::error;
use crate::files::InputFile;
use crate::objects::Object;
use crate::{SourceOptions, SourceProblem};

/// The bytes at the end of an object that are fetched in one request. Most footers fit into them.
const TAIL_BYTES: u64 = 64 << 10;

/// The last bytes of an object, or the error of fetching them.
type Tail = Result<Vec<u8>, Error>;

/// The footer of a file, and its row groups, which may be divided.
pub(crate) type Groups = (Arc<ParquetMetaData>, Vec<GroupPart>);

/// Fetches the ends of those files that are in stores, with concurrent requests.
fn read_tails(inputs: &[&InputFile]) -> Vec<Option<Tail>> {
    let mut tails = Vec::with_capacity(inputs.len());
    let store = |input: &InputFile| input.object().map(|object| Arc::as_ptr(&object.store));
    for same in inputs.chunk_by(|a, b| store(a) == store(b)) {
        let Some(first) = same.first().and_then(|input| input.object()) else {
            tails.extend(same.iter().map(|_| None));
            continue;
        };
        let wanted: Vec<_> = same
            .iter()
            .filter_map(|input| {
                let bytes = input.file_version.bytes;
                let range = bytes.saturating_sub(TAIL_BYTES)..bytes;
                Some((input.object()?.name.clone(), bytes, range))
            })
            .collect();
        let found = first.store.remote().read_ranges_of(&wanted);
        tails.extend(same.iter().zip(found).map(|(input, found)| {
            let object = input.object()?;
            Some(found.map_err(|error| object.changed(error.into(), input.file_version)))
        }));
    }
    tails
}

/// The source of a footer's bytes.
enum Bytes<'a> {
    File(File),
    /// The end of an object, and the object itself for the bytes before it.
    Object(&'a Object, Vec<u8>),
}

impl<'a> Bytes<'a> {
    fn of(input: &'a InputFile, tail: Option<Tail>) -> Result<Self, Error> {
        Ok(match input.object() {
            None => Self::File(input.open()?),
            Some(object) => {
                let tail = tail.or_else(|| read_tails(&[input]).into_iter().next().flatten());
                Self::Object(object, tail.unwrap_or_else(|| Ok(Vec::new()))?)
            }
        })
    }

    fn read(&self, input: &InputFile, range: Range<u64>) -> Result<Vec<u8>, Error> {
        let size = input.file_version.bytes;
        let length = usize::try_from(range.end - range.start).unwrap_or(0);
        let (object, tail) = match self {
            Self::File(file) => {
                let mut bytes = vec![0; length];
                input.read_at(file, &mut bytes, range.start)?;
                return Ok(bytes);
            }
            Self::Object(object, tail) => (object, tail),
        };
        let from = size.saturating_sub(tail.len() as u64);
        let start = range.start.checked_sub(from);
        let start = start.and_then(|start| usize::try_from(start).ok());
        if let Some(bytes) = start.and_then(|start| tail.get(start..start.checked_add(length)?)) {
            return Ok(bytes.to_vec());
        }
        let remote = object.store.remote();
        let found = remote.read_range(&object.name, Some(size), range);
        found.map_err(|error| object.changed(error.into(), input.file_version))
    }
}

/// Reads and checks the footer of a file, and divides large row groups if the options say so. `tail` is the end of the
/// file, if already fetched.
fn read_groups(
    input: &InputFile,
    options: &SourceOptions,
    tail: Option<Tail>,
) -> Result<Groups, Error> {
    let bytes = Bytes::of(input, tail)?;
    let max_bytes = options.limits.parquet.footer_bytes;
    let (metadata, data_end) = read_footer(input, &bytes, max_bytes)?;
    let range = match options.resources.divide_row_groups {
        true => index_range(&metadata, data_end, max_bytes),
        false => None,
    };
    let start = range.as_ref().map_or(0, |range| range.start);
    let index = range.map(|range| bytes.read(input, range)).transpose()?;
    let parts = divide_groups(&metadata, &index.unwrap_or_default(), start);
    Ok((Arc::new(metadata), parts))
}

/// Reads and checks the footer of a file; it may have up to `max_bytes` bytes. Returns where it begins, too.
fn read_footer(
    input: &InputFile,
    bytes: &Bytes<'_>,
    max_bytes: u64,
) -> Result<(ParquetMetaData, u64), Error> {
    let refused = |problem| footer_error(&input.shown, &problem);
    let size = input.file_version.bytes;
    if size < 12 {
        return Err(refused(FooterProblem::Short(size)));
    }
    let end = bytes.read(input, size - END_BYTES..size)?;
    let range = footer_range(&end, size, max_bytes);
    let is_marked = !matches!(range, Err(FooterProblem::Magic | FooterProblem::Encrypted));
    // PERF: reading the start of an object takes another request, and the magic at its end is enough.
    if input.object().is_none() || !is_marked {
        let start = bytes.read(input, 0..4)?;
        check_start(&start).map_err(|problem| match problem {
            FooterProblem::Magic => SourceProblem::ParquetMagic
                .at(&input.shown, "does not begin with PAR1: not a Parquet file"),
            problem => refused(problem),
        })?;
    }
    let range = range.map_err(refused)?;
    let data_end = range.start;
    let metadata = decode_footer(&bytes.read(input, range)?, data_end).map_err(refused)?;
    Ok((metadata, data_end))
}

/// Returns the error for a footer that cannot be used.
fn footer_error(file: &str, problem: &FooterProblem) -> Error {
    let of = match problem {
        FooterProblem::Short(_) | FooterProblem::Magic => SourceProblem::ParquetTruncated,
        FooterProblem::Encrypted => SourceProblem::ParquetEncrypted,
        FooterProblem::Large(limit) => {
            return error::parquet_limit(file, "the footer", limit);
        }
        FooterProblem::Damaged(_) => SourceProblem::ParquetFooter,
    };
    of.at(file, problem.to_string())
}

/// Returns the Arrow fields of a file, as [`shardmill_parquet::arrow_fields`].
pub(crate) fn arrow_fields(file: &str, metadata: &Arc<ParquetMetaData>) -> Result<Fields, Error> {
    shardmill_parquet::arrow_fields(metadata).map_err(|problem| {
        let of = match problem {
            FieldsProblem::Repeated(_) => SourceProblem::DuplicateColumn,
            FieldsProblem::Unsupported { .. } => SourceProblem::Type,
            FieldsProblem::Damaged(_) => SourceProblem::ParquetFooter,
        };
        of.at(file, problem.to_string())
    })
}

/// Returns what the decoder needs to read the columns of a mask as these fields.
pub(crate) fn levels(
    file: &str,
    metadata: &ParquetMetaData,
    mask: ProjectionMask,
    fields: &Fields,
) -> Result<FieldLevels, Error> {
    let schema = metadata.file_metadata().schema_descr();
    attempt(|| parquet_to_arrow_field_levels(schema, mask, Some(fields)))
        .map_err(|reason| SourceProblem::ParquetFooter.at(file, format!("footer: {reason}")))
}

/// Caches parsed footers within a budget, and reads the others again on demand. The footers of ten thousand wide files
/// take gigabytes.
pub(crate) struct FooterCache {
    /// Footers kept from opening; `None` if the footer has to be read again.
    kept: Vec<Option<Arc<ParquetMetaData>>>,
    kept_bytes: usize,
    /// The most recent footers that were read again, because the units of one file are usually opened in a row.
    recent: Mutex<Vec<(usize, Arc<ParquetMetaData>)>>,
    /// The most bytes of a footer.
    max_bytes: u64,
}

/// How many footers are read at a time. Their summaries are merged before the next ones are read, and most footers are
/// dropped.
const READ_TOGETHER: usize = 256;

/// Reads the footers of files, summarises them in parallel, and folds the summaries in file order. Reports the first error
/// in file order.
pub(crate) fn fold_footers<F: Sync, S: Send>(
    files: &[F],
    options: &SourceOptions,
    input: impl Fn(&F) -> &InputFile + Sync,
    summarise: impl Fn(&F, Result<Groups, Error>) -> Result<S, Error> + Sync,
    mut fold: impl FnMut(S),
) -> Result<(), Error> {
    for chunk in files.chunks(READ_TOGETHER) {
        let inputs: Vec<&InputFile> = chunk.iter().map(&input).collect();
        let read = chunk.par_iter().zip(read_tails(&inputs));
        let summaries: Vec<Result<S, Error>> = read
            .map(|(file, tail)| summarise(file, read_groups(input(file), options, tail)))
            .collect();
        for summary in summaries {
            fold(summary?);
        }
    }
    Ok(())
}

/// The most memory for cached footers.
const CACHE_BYTES: usize = 64 << 20;
const RECENT: usize = 8;

impl FooterCache {
    /// Creates a cache of footers of at most `max_bytes` each.
    pub(crate) const fn new(max_bytes: u64) -> Self {
        Self {
            kept: Vec::new(),
            kept_bytes: 0,
            recent: Mutex::new(Vec::new()),
            max_bytes,
        }
    }

    /// Adds the footer of the next file, and keeps it if the budget allows.
    pub(crate) fn add(&mut self, metadata: Arc<ParquetMetaData>) {
        let bytes = self.kept_bytes.saturating_add(metadata.memory_size());
        let keep = bytes <= CACHE_BYTES;
        if keep {
            self.kept_bytes = bytes;
        }
        self.kept.push(keep.then_some(metadata));
    }

    /// Returns the number of files whose footers were added.
    pub(crate) const fn files(&self) -> usize {
        self.kept.len()
    }

    /// Returns the footer of a file, if it is in memory.
    pub(crate) fn cached(&self, number: usize) -> Option<Arc<ParquetMetaData>> {
        self.kept.get(number).cloned().flatten().or_else(|| {
            let recent = lock(&self.recent);
            recent
                .iter()
                .find(|(known, _)| *known == number)
                .map(|(_, metadata)| Arc::clone(metadata))
        })
    }

    /// Returns the footer of a file, after checking that the file is still the one that was listed.
    pub(crate) fn metadata(
        &self,
        number: usize,
        input: &InputFile,
    ) -> Result<Arc<ParquetMetaData>, Error> {
        if let Some(metadata) = self.cached(number) {
            if input.object().is_none() {
                input.open()?;
            }
            return Ok(metadata);
        }
        let (metadata, _) = read_footer(input, &Bytes::of(input, None)?, self.max_bytes)?;
        let metadata = Arc::new(metadata);
        let mut recent = lock(&self.recent);
        if recent.len() >= RECENT {
            recent.remove(0);
        }
        recent.push((number, Arc::clone(&metadata)));
        Ok(metadata)
    }
}
