//! Fills batches: copies every sample once, from its shard into the buffers of the columns.

use std::sync::Arc;

use shardmill_cache::Activity;
use shardmill_core::Error;
use shardmill_mmap::Buffer;
use shardmill_order::Entry as OrderEntry;

use crate::batch::{Batch, BatchData, BatchWindow, ColumnData, Held};
use crate::cached::{Extract, SharedShard};
use crate::context::FillContext;
use shardmill_cache::{Access, Cancel};
use shardmill_dataset::{
    DATA_COLUMN, Entry, FILE_COLUMN, Piece, SampleForm, Schema, SchemaColumn, TarProblem,
};

/// Fills batches. Each thread has its own collator, so that finding an open shard takes no lock.
#[derive(Debug)]
pub(crate) struct Collator {
    pub(crate) context: Arc<FillContext>,
    /// One slot for each shard, by number.
    slots: Vec<Slot>,
    /// The numbers of the slots with an open shard.
    open_slots: Vec<usize>,
    /// The generation of the shard cache when the slots were last checked.
    generation: u64,
    /// Batches filled so far.
    filled: u64,
    /// Whether batches have windows, if the reader has one.
    has_windows: bool,
    /// The shard of each sample and the position in it; with windows, of its neighbours at all offsets.
    positions: Vec<(usize, u64)>,
    padded: Vec<bool>,
    missing: Vec<usize>,
    used: Vec<usize>,
}

#[derive(Debug, Default)]
struct Slot {
    open: Option<SharedShard>,
    /// Whether the samples of the shard are read one by one in this batch.
    alone: bool,
    /// The last batch that used the shard, counted from 1.
    used: u64,
}

impl Collator {
    pub(crate) fn new(context: &Arc<FillContext>) -> Self {
        let mut collator = Self::without_shards(context);
        let shards = context.catalog.len();
        collator.slots.resize_with(shards, Slot::default);
        collator
    }

    /// Returns a collator for [`Self::fill_one`], which keeps no shards open.
    pub(crate) fn without_shards(context: &Arc<FillContext>) -> Self {
        Self {
            slots: Vec::new(),
            open_slots: Vec::new(),
            generation: context.shard_cache.generation(),
            filled: 0,
            has_windows: context.catalog.window().is_some(),
            context: Arc::clone(context),
            positions: Vec::new(),
            padded: Vec::new(),
            missing: Vec::new(),
            used: Vec::new(),
        }
    }

    /// Returns the same collator for batches without windows.
    pub(crate) fn without_windows(self) -> Self {
        Self {
            has_windows: false,
            ..self
        }
    }

    /// Releases all shards.
    pub(crate) fn release(&mut self) {
        for shard in self.open_slots.drain(..) {
            if let Some(slot) = self.slots.get_mut(shard) {
                slot.open = None;
            }
        }
    }

    /// Releases all shards if the cache has released any since the last check.
    pub(crate) fn release_old(&mut self) {
        let generation = self.context.shard_cache.generation();
        if generation != self.generation {
            self.release();
            self.generation = generation;
        }
    }

    /// Returns the number of shards that the collator keeps open.
    #[cfg(test)]
    pub(crate) const fn holds(&self) -> usize {
        self.open_slots.len()
    }

    /// Reads the samples of a batch that is needed at `tick`. Waits for missing shards. The samples of the first batch
    /// are read one by one if that is faster.
    pub(crate) fn fill(
        &mut self,
        (step, is_first): (u64, bool),
        entries: Vec<OrderEntry>,
        tick: u64,
        cancel: &Cancel,
    ) -> Result<Batch, Error> {
        self.open(&entries, (tick, is_first), cancel)?;
        let alone = self.read_alone()?;
        let _step = self.context.timings.start(Activity::Fill);
        let data = self.copy(&alone)?;
        let held = self.pinned();
        for shard in &self.used {
            let slot = self.slots.get(*shard);
            if let Some(open) = slot.and_then(|slot| slot.open.as_deref())
                && let Err(error) = open.check(&self.context.catalog)
            {
                // The next reader must check the file again.
                self.context.shard_cache.forget_verification(*shard);
                return Err(error.into());
            }
        }
        Ok(Batch {
            step,
            entries,
            data,
            window: self.window(),
            held,
        })
    }

    /// Reads the window of one sample, apart from any epoch.
    pub(crate) fn fill_one(mut self, entry: OrderEntry) -> Result<Batch, Error> {
        self.locate(entry.sample.0)?;
        // Padding is one sample several times.
        let mut distinct = self.positions.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let found = self.context.shard_cache.samples(&distinct)?;
        let extract_of = |position: &(usize, u64)| {
            let found = distinct
                .binary_search(position)
                .ok()
                .and_then(|at| found.get(at));
            found.cloned().unwrap_or_default()
        };
        let alone: Vec<Extract> = self.positions.iter().map(extract_of).collect();
        Ok(Batch {
            step: 0,
            entries: vec![entry],
            data: self.copy(&alone)?,
            window: self.window(),
            held: Held::default(),
        })
    }

    /// Appends the position of a sample, or those of its window.
    fn locate(&mut self, sample: u64) -> Result<(), Error> {
        let position = self.context.locate(sample)?;
        if !self.has_windows {
            self.positions.push(position);
            return Ok(());
        }
        let (positions, flags) = (&mut self.positions, &mut self.padded);
        self.context
            .catalog
            .each_neighbour(position, |shard, at, padded| {
                positions.push((shard, at));
                flags.push(padded);
            });
        Ok(())
    }

    /// Returns the windows of the samples that were located.
    fn window(&mut self) -> Option<BatchWindow> {
        let padded = std::mem::take(&mut self.padded);
        let window = self.context.catalog.window().filter(|_| self.has_windows)?;
        Some(BatchWindow {
            window: Arc::clone(window),
            padded,
        })
    }

    /// Returns the raw files of this batch whose paths were returned and that must be pinned.
    fn pinned(&self) -> Held {
        let open = |shard: &usize| self.slots.get(*shard)?.open.as_ref();
        let pinned = self.used.iter().filter_map(open);
        Held(pinned.filter(|open| open.is_pinned()).cloned().collect())
    }

    /// Returns whether all shards of a batch are open, so that filling it waits only for memory.
    pub(crate) fn has(&self, entries: &[OrderEntry]) -> bool {
        let current = self.context.shard_cache.generation() == self.generation;
        entries.iter().all(|entry| {
            let position = self.context.catalog.locate(entry.sample.0);
            position.is_some_and(|position| {
                let (mut all, mut last) = (true, None);
                self.context
                    .catalog
                    .each_neighbour(position, |shard, _, _| {
                        if last.replace(shard) != Some(shard) {
                            let slot = self.slots.get(shard);
                            all &= (current && slot.is_some_and(|slot| slot.open.is_some()))
                                || self.context.shard_cache.get(shard).is_some();
                        }
                    });
                all
            })
        })
    }

    /// Locates all samples and opens their shards.
    fn open(
        &mut self,
        entries: &[OrderEntry],
        (tick, is_first): (u64, bool),
        cancel: &Cancel,
    ) -> Result<(), Error> {
        self.release_old();
        self.filled += 1;
        self.positions.clear();
        self.used.clear();
        self.missing.clear();
        self.padded.clear();
        for entry in entries {
            self.locate(entry.sample.0)?;
        }
        for &(shard, _) in &self.positions {
            let Some(slot) = self.slots.get_mut(shard) else {
                continue;
            };
            if slot.used == self.filled {
                continue;
            }
            slot.used = self.filled;
            slot.alone = false;
            self.used.push(shard);
            if slot.open.is_none() {
                match self.context.shard_cache.get(shard) {
                    Some(open) => {
                        slot.open = Some(open);
                        self.open_slots.push(shard);
                    }
                    None => self.missing.push(shard),
                }
            }
        }
        if self.missing.is_empty() {
            return Ok(());
        }
        let engine = self.context.shard_cache.engine()?;
        engine.check_room(&self.used)?;
        let at_once = is_first.then(|| engine.at_once(&self.missing, tick));
        let found = match at_once.flatten() {
            Some(found) => found,
            None => engine.need(&self.missing, tick, cancel)?,
        };
        for (shard, access) in self.missing.iter().zip(found) {
            let Some(slot) = self.slots.get_mut(*shard) else {
                continue;
            };
            match access {
                Access::Open(open) => {
                    slot.open = Some(open);
                    self.open_slots.push(*shard);
                }
                Access::Uncached => slot.alone = true,
            }
        }
        Ok(())
    }

    /// Reads the samples whose shards are not cached; the results for other samples are empty.
    fn read_alone(&self) -> Result<Vec<Extract>, Error> {
        if !self.used.iter().any(|shard| self.is_alone(*shard)) {
            return Ok(Vec::new());
        }
        let wanted: Vec<(usize, u64)> = self
            .positions
            .iter()
            .copied()
            .filter(|(shard, _)| self.is_alone(*shard))
            .collect();
        let mut found = self.context.shard_cache.samples(&wanted)?.into_iter();
        let sample = |(shard, _): &(usize, u64)| {
            if self.is_alone(*shard) {
                found.next().unwrap_or_default()
            } else {
                Extract::default()
            }
        };
        Ok(self.positions.iter().map(sample).collect())
    }

    fn is_alone(&self, shard: usize) -> bool {
        self.slots.get(shard).is_some_and(|slot| slot.alone)
    }

    fn copy(&self, alone: &[Extract]) -> Result<BatchData, Error> {
        let joined = self.join_late()?;
        let mut samples: Vec<Piece<'_>> = Vec::with_capacity(self.positions.len());
        let mut schema: Option<&Arc<Schema>> = None;
        let mut same = true;
        for (number, (shard, at)) in self.positions.iter().enumerate() {
            let slot = self.slots.get(*shard);
            let open = slot.and_then(|slot| slot.open.as_deref());
            let (piece, own) = match open {
                Some(open) if open.has_late() => (joined.piece(number), Some(open.schema())),
                Some(open) => (open.sample(*at), Some(open.schema())),
                None => (
                    alone.get(number).map(Extract::piece),
                    self.context.catalog.schema(*shard),
                ),
            };
            let Some(piece) = piece else {
                return Err(self.context.broken(open, *shard, *at));
            };
            samples.push(piece);
            // PERF: schemas are shared, so comparing addresses is enough.
            same &= match (schema, own) {
                (Some(schema), Some(own)) => Arc::ptr_eq(schema, own),
                _ => true,
            };
            schema = own;
        }
        let window = self.context.catalog.window().filter(|_| self.has_windows);
        let Some(schema) = schema.filter(|_| same) else {
            return self.rows(&samples);
        };
        match (window, schema.as_ref()) {
            (_, Schema::Fields(_) | Schema::Text(_)) => self.rows(&samples),
            (None, Schema::Binary { form, .. }) => match form {
                SampleForm::Mds => self.columns(schema, &samples),
                SampleForm::WebDataset => self.cell_columns(None, schema, &samples),
                SampleForm::File => self.file_columns(schema, &samples),
            },
            (window, Schema::Binary { .. }) => self.cell_columns(window, schema, &samples),
        }
    }

    /// Joins the samples of open shards with their late columns.
    fn join_late(&self) -> Result<Joined, Error> {
        let mut joined = Joined::default();
        let open = |shard: &usize| self.slots.get(*shard)?.open.as_deref();
        if !self
            .used
            .iter()
            .filter_map(open)
            .any(|open| open.has_late())
        {
            return Ok(joined);
        }
        for (shard, at) in &self.positions {
            if let Some(open) = open(shard).filter(|open| open.has_late())
                && open.join_sample(*at, &mut joined.bytes).is_none()
            {
                return Err(self.context.broken(Some(open), *shard, *at));
            }
            joined.ends.push(joined.bytes.len());
        }
        Ok(joined)
    }

    /// Copies the values into one buffer per column.
    fn columns(&self, schema: &Arc<Schema>, samples: &[Piece<'_>]) -> Result<BatchData, Error> {
        let Schema::Binary {
            columns,
            head,
            fixed,
            ..
        } = schema.as_ref()
        else {
            return self.rows(samples);
        };
        // The first pass reads the lengths. It gives the sizes of the buffers, and loads the heads of all samples from
        // memory.
        let variable = columns
            .iter()
            .filter(|column| column.size.is_none())
            .count();
        let mut ends: Vec<Vec<u64>> = Vec::with_capacity(variable);
        ends.resize_with(variable, || {
            let mut ends = Vec::with_capacity(samples.len() + 1);
            ends.push(0);
            ends
        });
        for (number, piece) in samples.iter().enumerate() {
            let sample = piece.bytes;
            let mut bytes = *fixed as u64;
            let sizes = sample.get(..*head).unwrap_or_default();
            for (ends, size) in ends.iter_mut().zip(sizes.as_chunks::<4>().0) {
                let size = u64::from(u32::from_le_bytes(*size));
                bytes += size;
                ends.push(ends.last().copied().unwrap_or(0) + size);
            }
            if bytes != sample.len() as u64 || sizes.len() != *head {
                return Err(self.shape_error(number));
            }
        }
        let mut lengths = ends.iter();
        let mut made = Vec::with_capacity(columns.len());
        for column in columns {
            let bytes = match column.size {
                Some(size) => size.saturating_mul(samples.len()),
                None => {
                    let end = lengths.next().and_then(|ends| ends.last()).copied();
                    usize::try_from(end.unwrap_or(0)).unwrap_or(usize::MAX)
                }
            };
            made.push(self.context.take(bytes)?);
        }
        // The second pass copies the bytes with the lengths of the first. A concurrent write to the file can therefore
        // change values, but never a length.
        for (number, piece) in samples.iter().enumerate() {
            let sample = piece.bytes;
            let mut at = *head;
            let mut ends = ends.iter();
            for (column, buffer) in columns.iter().zip(&mut made) {
                let size = match column.size {
                    Some(size) => size,
                    None => ends.next().map_or(0, |ends| length_of(ends, number)),
                };
                let Some(value) = sample.get(at..at + size) else {
                    return Err(self.shape_error(number));
                };
                at += size;
                buffer
                    .extend_from_slice(value)
                    .map_err(|_| self.context.no_memory(size))?;
            }
        }
        let mut ends = ends.into_iter();
        let data = |(column, bytes): (&SchemaColumn, Buffer)| match column.size {
            Some(size) => ColumnData::Fixed { size, bytes },
            None => ColumnData::Variable {
                offsets: ends.next().unwrap_or_default(),
                bytes,
            },
        };
        Ok(BatchData::Columns {
            schema: Arc::clone(schema),
            columns: columns.iter().zip(made).map(data).collect(),
        })
    }

    /// Copies raw files into one buffer per column.
    fn file_columns(
        &self,
        schema: &Arc<Schema>,
        samples: &[Piece<'_>],
    ) -> Result<BatchData, Error> {
        let catalog = &self.context.catalog;
        let mut paths: Vec<&str> = Vec::with_capacity(samples.len());
        let mut files: Vec<String> = Vec::new();
        let mut columns = Vec::with_capacity(3);
        for (shard, _) in &self.positions {
            let Some(Entry::File(file, form)) = catalog.entry(*shard) else {
                return self.rows(samples);
            };
            paths.push(&file.info.basename);
            if form.has_file() {
                files.push(catalog.file_path(*shard).unwrap_or_default());
            }
        }
        for name in schema.names() {
            columns.push(match name {
                DATA_COLUMN => self
                    .context
                    .join(samples.len(), || samples.iter().map(|piece| piece.bytes))?,
                FILE_COLUMN => self
                    .context
                    .join(samples.len(), || files.iter().map(|file| file.as_bytes()))?,
                _ => self
                    .context
                    .join(samples.len(), || paths.iter().map(|path| path.as_bytes()))?,
            });
        }
        Ok(BatchData::Columns {
            schema: Arc::clone(schema),
            columns,
        })
    }

    /// Copies each sample in encoded form.
    pub(crate) fn rows(&self, samples: &[Piece<'_>]) -> Result<BatchData, Error> {
        // An encoded raw file is longer than the file, because it contains its paths.
        let more = |(shard, _): &(usize, u64)| match self.context.catalog.entry(*shard) {
            Some(Entry::File(file, _)) => {
                let local = self.context.catalog.file_path(*shard);
                12 + file.info.basename.len() + local.map_or(0, |local| local.len())
            }
            _ => 0,
        };
        let total = samples
            .iter()
            .map(|piece| piece.bytes.len())
            .chain(self.positions.iter().map(more))
            .fold(0, usize::saturating_add);
        // INVARIANT: a tar sample does not become longer when encoded, because its tar form has a header of 512 bytes
        // per field.
        let mut bytes = self.context.take(total)?;
        let mut offsets = Vec::with_capacity(samples.len() + 1);
        let mut schemas = Vec::with_capacity(samples.len());
        let mut encoded = Vec::new();
        offsets.push(0);
        for (number, (piece, (shard, _))) in samples.iter().zip(&self.positions).enumerate() {
            encoded.clear();
            let schema = self
                .context
                .catalog
                .encode(*shard, *piece, &mut encoded)
                .map_err(|problem| self.refused(number, problem))?;
            let sample = match schema.needs_encoding() {
                true => &encoded,
                false => piece.bytes,
            };
            bytes
                .extend_from_slice(sample)
                .map_err(|_| self.context.no_memory(total))?;
            offsets.push(bytes.len() as u64);
            schemas.push(schema);
        }
        Ok(BatchData::Samples {
            offsets,
            bytes,
            schemas,
        })
    }

    /// Returns the error for a tar sample that cannot be encoded. An error about the file takes precedence over one
    /// about its bytes.
    pub(crate) fn refused(&self, number: usize, problem: TarProblem) -> Error {
        let (shard, at) = self.positions.get(number).copied().unwrap_or_default();
        let slot = self.slots.get(shard);
        let open = slot.and_then(|slot| slot.open.as_deref());
        if let Some(Err(error)) = open.map(|open| open.check(&self.context.catalog)) {
            return error.into();
        }
        self.context.catalog.refused(shard, at, problem).into()
    }

    /// Returns the error for a sample whose lengths do not fit its columns.
    pub(crate) fn shape_error(&self, number: usize) -> Error {
        let (shard, at) = self.positions.get(number).copied().unwrap_or_default();
        let slot = self.slots.get(shard);
        self.context
            .broken(slot.and_then(|slot| slot.open.as_deref()), shard, at)
    }
}

/// Samples that were joined with their late columns.
#[derive(Default)]
struct Joined {
    bytes: Vec<u8>,
    /// The end of each sample; an empty one for a sample without late columns.
    ends: Vec<usize>,
}

impl Joined {
    fn piece(&self, number: usize) -> Option<Piece<'_>> {
        let start = match number.checked_sub(1) {
            Some(before) => *self.ends.get(before)?,
            None => 0,
        };
        let bytes = self.bytes.get(start..*self.ends.get(number)?)?;
        Some(Piece { begin: 0, bytes })
    }
}

fn length_of(ends: &[u64], number: usize) -> usize {
    match (ends.get(number), ends.get(number + 1)) {
        (Some(begin), Some(end)) => usize::try_from(end - begin).unwrap_or(usize::MAX),
        _ => 0,
    }
}
