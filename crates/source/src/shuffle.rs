//! A source in a random order that depends only on the source and a seed.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use shardmill_core::{Error, lock};
use xxhash_rust::xxh3::xxh3_128;

use crate::base::{pick, project, rows_from};
use crate::error;
use crate::key_files::{KeyBuffer, KeyFile, KeyFiles, MAX_FILES, RowStore, SortedRows};
use crate::{ResourceOptions, RowOrigin, Rows, Source, TableFacts, Unit};

/// Stored bytes of the source for each file of rows. Rows in memory often take several times as many.
const BYTES_PER_FILE: u64 = 16 << 20;

/// The rows of a source in a random order.
///
/// The key of a row is a hash of the seed, of its unit and of its number in the unit. Rows are in the order of their
/// keys, so the order does not depend on threads or memory. A unit is a range of keys. Before the first unit is read, all
/// rows are written to temporary files, one for each unit.
pub(crate) struct Shuffled {
    source: Arc<dyn Source>,
    seed: u64,
    jobs: usize,
    store: Arc<RowStore>,
    facts: TableFacts,
    /// The files of the units; `None` until they are written.
    files: Mutex<Option<Arc<[KeyFile]>>>,
}

impl Shuffled {
    pub(crate) fn new(source: Arc<dyn Source>, seed: u64, options: &ResourceOptions) -> Self {
        let own = source.facts();
        let bytes = own.description.bytes;
        let count = (bytes / BYTES_PER_FILE).clamp(1, MAX_FILES);
        let unit = Unit {
            bytes: bytes / count,
            ..Unit::default()
        };
        Self {
            store: Arc::new(RowStore::new(source.schema(), options)),
            facts: TableFacts {
                units: (0..count).map(|_| unit).collect(),
                ..own.with_columns(source.schema(), own.null_counts.clone())
            },
            files: Mutex::new(None),
            jobs: options.jobs.max(1),
            seed,
            source,
        }
    }

    /// Returns the files of the units, and writes them if they do not exist yet. Returns `None` if `cancel` returned
    /// `false`.
    fn files(&self, cancel: &(dyn Fn() -> bool + Sync)) -> Result<Option<Arc<[KeyFile]>>, Error> {
        let mut files = lock(&self.files);
        if files.is_none() {
            *files = self.write_files(cancel)?.map(Arc::from);
        }
        Ok(files.clone())
    }

    /// Returns the unit and the row of the source of a row. It computes the keys of all rows again, and returns `None` if
    /// their number is not known.
    fn unshuffled(&self, unit: usize, row: u64) -> Option<(usize, u64)> {
        let files = lock(&self.files);
        let files = files.clone()?;
        let file = files.get(unit)?;
        let mut found = Vec::new();
        for (number, unit) in self.source.units().iter().enumerate() {
            let keys = (0..unit.rows?).map(|row| (key(self.seed, number as u64, row), number, row));
            found.extend(keys.filter(|(key, ..)| file.has(*key)));
        }
        found.sort_unstable();
        let (_, unit, row) = found.get(usize::try_from(row).ok()?)?;
        Some((*unit, *row))
    }

    fn write_files(
        &self,
        cancel: &(dyn Fn() -> bool + Sync),
    ) -> Result<Option<Vec<KeyFile>>, Error> {
        let files = KeyFiles::new(&self.store, self.facts.units.len())?;
        let next_unit = AtomicUsize::new(0);
        let stopped = AtomicBool::new(false);
        let work = || {
            let written = self.write_units(&files, &next_unit, &|| {
                !stopped.load(Ordering::Relaxed) && cancel()
            });
            if !matches!(written, Ok(true)) {
                stopped.store(true, Ordering::Relaxed);
            }
            written
        };
        let complete = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.jobs).map(|_| scope.spawn(work)).collect();
            // All threads are joined before the first error is returned.
            let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
            results.into_iter().try_fold(true, |complete, result| {
                let panicked = |_| Err(error::bug("a thread that shuffles rows panicked"));
                Ok::<_, Error>(complete & result.unwrap_or_else(panicked)?)
            })
        })?;
        match complete {
            true => files.finish().map(Some),
            false => Ok(None),
        }
    }

    /// Writes the rows of units until none is left. Returns `false` if `cancel` returned `false`.
    fn write_units(
        &self,
        files: &KeyFiles<'_>,
        next_unit: &AtomicUsize,
        cancel: &dyn Fn() -> bool,
    ) -> Result<bool, Error> {
        let mut buffer = KeyBuffer::new(files);
        loop {
            let unit = next_unit.fetch_add(1, Ordering::Relaxed);
            if unit >= self.source.units().len() {
                buffer.flush()?;
                return Ok(true);
            }
            let mut rows = self.source.open_unit(unit)?;
            let mut first = 0;
            while let Some(batch) = rows.next_batch()? {
                if !cancel() {
                    return Ok(false);
                }
                let end = first + batch.num_rows() as u64;
                let keys = (first..end).map(|row| key(self.seed, unit as u64, row));
                buffer.push(self.store.with_keys(&batch, keys)?)?;
                first = end;
            }
        }
    }
}

/// Returns the random key of a row of a unit.
fn key(seed: u64, unit: u64, row: u64) -> u128 {
    xxh3_128([seed, unit, row].map(u64::to_le_bytes).as_flattened())
}

impl Source for Shuffled {
    fn facts(&self) -> &TableFacts {
        &self.facts
    }

    fn prepare(&self, cancel: &(dyn Fn() -> bool + Sync)) -> Result<bool, Error> {
        Ok(self.files(cancel)?.is_some())
    }

    fn open(&self, unit: usize, columns: &[usize]) -> Result<Box<dyn Rows>, Error> {
        let files = self.files(&|| true)?;
        let file = files.as_ref().and_then(|files| files.get(unit));
        let file = file.ok_or_else(|| error::no_unit(unit))?;
        let mut rows = SortedRows::new(Arc::clone(&self.store), file.clone());
        let (schema, columns) = (project(&self.facts.schema, columns), columns.to_vec());
        Ok(rows_from(move || {
            let found = rows.pull()?;
            found
                .map(|found| pick(&found, &columns, &schema))
                .transpose()
        }))
    }

    fn first_null(&self, column: usize) -> Result<Option<RowOrigin>, Error> {
        self.source.first_null(column)
    }

    fn row_origin(&self, unit: usize, row: u64) -> RowOrigin {
        match self.unshuffled(unit, row) {
            Some((unit, row)) => self.source.row_origin(unit, row),
            None => RowOrigin::of_result(row),
        }
    }
}
