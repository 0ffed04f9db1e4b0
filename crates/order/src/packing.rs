//! Rows of tokens: packs documents into contexts, or cuts them into batches by tokens.
//!
//! A *row* is a list of pieces of documents: a context of a fixed length that pieces fill (*packing*), or the documents
//! of one batch with a limited number of tokens. The rows of an epoch are a pure function of the order of its samples,
//! of the length of each sample and of [`PackingOptions`]. They do not depend on the world. So a position in the rows
//! is a single number that is valid for any world, as it is for samples.
//!
//! Memory is bounded by the pool: rows are computed from the first one on, each time an epoch begins.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use shardmill_core::Error;
use shardmill_core::number::mix;

use crate::config::{BatchingMethod, EpochConfig, State, World};
use crate::cursor::Cursor;
use crate::epoch::{Entry, Epoch, SampleId};
use crate::error::{self, OrderProblem, ensure};
use crate::lineage::Delivery;
use crate::num::{count, index, low64};
use crate::skip::{Counted, Kept, Skip};

/// The batch size of the order that rows are made from. The rows depend on it.
const BASE_BATCH: u64 = 1024;
/// The most samples in a pool.
const MAX_POOL: u64 = 1 << 24;

shardmill_core::named_enum! {
    /// What a row is.
    pub enum RowForm {
        /// A context of exactly `tokens` tokens. Documents fill it one after another.
        Context = "context",
        /// A batch of documents. The length of the longest, times their number, is at most `tokens`.
        Padded = "padded",
        /// A batch of documents whose lengths add up to at most `tokens`.
        Summed = "summed",
    }
}

shardmill_core::named_enum! {
    /// What happens to a document of more than `tokens` tokens.
    pub enum LongDocument {
        /// It becomes several pieces: full rows, and the rest.
        Split = "split",
        /// Its first `tokens` tokens are used.
        Truncate = "truncate",
        /// It is an error.
        Refuse = "error",
    }
}

shardmill_core::named_enum! {
    /// What happens at the end of an epoch if the rows do not divide evenly among the ranks.
    pub enum LastRows {
        /// The first rows of the epoch are repeated, so that all ranks receive equally many.
        Repeat = "repeat",
        /// The rows of the incomplete last step are left out.
        Drop = "drop",
        /// Every row is delivered once; some ranks receive fewer rows in the last step, or none.
        Short = "short",
    }
}

/// How documents become rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackingOptions {
    /// What a row is.
    pub form: RowForm,
    /// The tokens of a row; see [`RowForm`].
    pub tokens: u32,
    /// How many documents are considered together: more fill rows better, and move documents further.
    pub pool: u64,
    /// What happens to documents that are longer than a row.
    pub long: LongDocument,
    /// What happens to rows at the end of an epoch.
    pub last: LastRows,
}

/// Consecutive tokens of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DocumentPiece {
    /// The document.
    pub sample: SampleId,
    /// Its first token in the piece.
    pub start: u32,
    /// The number of tokens.
    pub tokens: u32,
}

/// A row of an epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Its pieces, in order.
    pub pieces: Vec<DocumentPiece>,
    /// Whether the row is repeated so that all ranks receive equally many.
    pub repeated: bool,
}

/// Computes the rows of an epoch in sequence.
#[derive(Debug)]
struct Packer {
    samples: Samples,
    lengths: Arc<[u32]>,
    options: PackingOptions,
    seed: u64,
    /// The pieces that wait for a row: by length, the oldest of equal ones last.
    by_length: BTreeMap<(u32, Reverse<u64>), DocumentPiece>,
    /// The lengths of these pieces by age.
    by_age: BTreeMap<u64, u32>,
    /// The age of the next piece.
    age: u64,
    pools: u64,
    ready: VecDeque<Vec<DocumentPiece>>,
}

/// The samples of an epoch in their order for a single rank, without padding.
#[derive(Debug)]
struct Samples {
    cursor: Cursor,
    step: u64,
    batch: VecDeque<Entry>,
    read: Vec<Entry>,
}

impl Iterator for Samples {
    type Item = SampleId;

    fn next(&mut self) -> Option<SampleId> {
        loop {
            while let Some(entry) = self.batch.pop_front() {
                if !entry.repeated {
                    return Some(entry.sample);
                }
            }
            if !self.cursor.read(self.step, &mut self.read) {
                return None;
            }
            self.step += 1;
            self.batch.extend(self.read.drain(..));
        }
    }
}

impl Packer {
    fn new(rows: &PackedEpoch) -> Result<Self, Error> {
        Ok(Self {
            samples: Samples {
                cursor: rows.base.rank(0)?,
                step: 0,
                batch: VecDeque::new(),
                read: Vec::new(),
            },
            lengths: Arc::clone(&rows.lengths),
            options: rows.options,
            seed: rows.base.resolved().seed ^ rows.base.resolved().epoch.rotate_left(32),
            by_length: BTreeMap::new(),
            by_age: BTreeMap::new(),
            age: 0,
            pools: 0,
            ready: VecDeque::new(),
        })
    }

    fn next_row(&mut self) -> Result<Option<Vec<DocumentPiece>>, Error> {
        self.fill_pool()?;
        if let Some(row) = self.ready.pop_front() {
            return Ok(Some(row));
        }
        if self.by_age.is_empty() {
            return Ok(None);
        }
        match self.options.form {
            RowForm::Context => Ok(Some(self.fill_context())),
            RowForm::Padded | RowForm::Summed => {
                self.cut_pool();
                Ok(self.ready.pop_front())
            }
        }
    }

    /// Reads documents until the pool is full. A full context needs no other document, and is ready at once.
    fn fill_pool(&mut self) -> Result<(), Error> {
        let is_context = self.options.form == RowForm::Context;
        let is_used_up = self.ready.is_empty() && self.by_age.is_empty();
        // A pool of batches is cut as a whole.
        if !is_context && !is_used_up {
            return Ok(());
        }
        let pool = index(self.options.pool);
        while self.ready.is_empty() && self.by_age.len() < pool {
            let Some(sample) = self.samples.next() else {
                return Ok(());
            };
            let length = self.lengths.get(index(sample.0)).copied();
            let mut left = length
                .ok_or_else(|| error::lengths_count(count(self.lengths.len()), sample.0 + 1))?;
            let max = self.options.tokens;
            if left > max {
                match self.options.long {
                    LongDocument::Split => {}
                    LongDocument::Truncate => left = max,
                    LongDocument::Refuse => {
                        return Err(OrderProblem::DocumentTooLong.error(format!(
                            "sample {} has {left} tokens, more than the {max} of a row",
                            sample.0
                        )));
                    }
                }
            }
            let mut start = 0;
            while left > 0 {
                let tokens = left.min(max);
                let piece = DocumentPiece {
                    sample,
                    start,
                    tokens,
                };
                if is_context && tokens == max {
                    self.ready.push_back(vec![piece]);
                } else {
                    self.by_length.insert((tokens, Reverse(self.age)), piece);
                    self.by_age.insert(self.age, tokens);
                    self.age += 1;
                }
                start += tokens;
                left -= tokens;
            }
        }
        Ok(())
    }

    /// Fills a context with the oldest piece of the pool, then with the longest that fit, so that no piece waits for
    /// more rows than the pool has pieces.
    fn fill_context(&mut self) -> Vec<DocumentPiece> {
        let mut row = Vec::new();
        let mut room = self.options.tokens;
        let oldest = self.by_age.first_key_value();
        let mut key = oldest.map(|(age, tokens)| (*tokens, Reverse(*age)));
        while let Some(found) = key {
            let Some(piece) = self.by_length.remove(&found) else {
                break;
            };
            self.by_age.remove(&found.1.0);
            room = room.saturating_sub(piece.tokens);
            row.push(piece);
            // `Reverse(0)` is the greatest of its length.
            let fitting = self.by_length.range(..=(room, Reverse(0))).next_back();
            key = fitting.map(|(key, _)| *key);
        }
        row
    }

    /// Cuts the pool, sorted by length, into batches, and shuffles these.
    fn cut_pool(&mut self) {
        let mut batches: Vec<Vec<DocumentPiece>> = Vec::new();
        let (mut batch, mut sum) = (Vec::new(), 0_u64);
        let max = u64::from(self.options.tokens);
        self.by_age.clear();
        for (_, piece) in std::mem::take(&mut self.by_length) {
            let tokens = u64::from(piece.tokens);
            let with = match self.options.form {
                // Sorted by length: this piece is the longest so far.
                RowForm::Padded => tokens * (count(batch.len()) + 1),
                RowForm::Context | RowForm::Summed => sum + tokens,
            };
            if with > max && !batch.is_empty() {
                batches.push(std::mem::take(&mut batch));
                sum = 0;
            }
            batch.push(piece);
            sum += tokens;
        }
        batches.extend((!batch.is_empty()).then_some(batch));
        let mut random = Random(self.seed ^ self.pools.wrapping_mul(0xd134_2543_de82_ef95));
        self.pools += 1;
        for position in (1..batches.len()).rev() {
            batches.swap(position, random.below(position + 1));
        }
        self.ready.extend(batches);
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        // The upper half of the product, which is below `limit`.
        index(low64(
            (u128::from(mix(self.0)) * u128::from(count(limit))) >> 64,
        ))
    }
}

/// The rows of an epoch. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PackedEpoch {
    base: Epoch,
    lengths: Arc<[u32]>,
    options: PackingOptions,
    rows: u64,
    /// Rows of the epoch that were delivered before.
    start: u64,
    /// The rows of one step of one rank, and the ranks with different rows.
    batch_size: u64,
    ranks: u64,
    replication: u64,
}

impl PackedEpoch {
    /// Returns the configuration of the order that rows are made from. It does not depend on the world.
    ///
    /// # Errors
    ///
    /// As [`EpochConfig::resolve`].
    pub fn base_config(config: &EpochConfig) -> Result<EpochConfig, Error> {
        let resolved = config.resolve()?;
        Ok(EpochConfig {
            batch_size: BASE_BATCH,
            world: World::SINGLE,
            replication: None,
            resume: Some(State {
                epoch: resolved.epoch,
                sample_in_epoch: 0,
                num_canonical_nodes: Some(resolved.canonical_nodes),
                shuffle_seed: resolved.seed,
                initial_physical_nodes: Some(1),
            }),
            ..config.clone()
        })
    }

    /// Creates the rows of `base`, the order of [`base_config`](Self::base_config). `lengths` are the tokens of each
    /// sample, by its number. The samples of a step in `config` are rows here, as is the position of its state.
    ///
    /// Takes about a quarter of a microsecond for each sample, to count the rows.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for lengths that are not those of the samples, a document longer than a row, and invalid options;
    /// errors of `config`.
    pub fn new(
        base: Epoch,
        config: &EpochConfig,
        lengths: Arc<[u32]>,
        options: PackingOptions,
    ) -> Result<Self, Error> {
        let resolved = config.resolve()?;
        ensure(options.tokens > 0, "length", 0, "positive")?;
        ensure(
            (1..=MAX_POOL).contains(&options.pool),
            "pool",
            options.pool,
            "from 1 to 2^24",
        )?;
        if config.batching_method != BatchingMethod::Random {
            return Err(error::unknown_name(
                "batching_method",
                config.batching_method.name(),
                "the methods with packing: random",
            ));
        }
        if config.sampling.mixture.is_some() {
            return Err(OrderProblem::Mixture
                .at("mixture", "rows of tokens need weights that do not change"));
        }
        let samples = config
            .streams
            .iter()
            .flat_map(|stream| stream.shards.iter());
        let samples = samples.fold(0_u64, |sum, samples| sum.saturating_add(*samples));
        if samples != count(lengths.len()) {
            return Err(error::lengths_count(count(lengths.len()), samples));
        }
        let mut made = Self {
            base,
            lengths,
            options,
            rows: 0,
            start: resolved.sample_in_epoch,
            batch_size: config.batch_size,
            ranks: resolved.world.ranks(),
            replication: config.replication.unwrap_or(1),
        };
        let mut packer = Packer::new(&made)?;
        while packer.next_row()?.is_some() {
            made.rows += 1;
        }
        Ok(made)
    }

    /// Returns the order of the samples that the rows are made from.
    #[must_use]
    pub const fn base(&self) -> &Epoch {
        &self.base
    }

    /// Returns the options.
    #[must_use]
    pub const fn options(&self) -> &PackingOptions {
        &self.options
    }

    /// Returns the number of rows of the whole epoch, without repeated ones.
    #[must_use]
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the number of steps from where the epoch starts or is resumed. With [`LastRows::Short`], some ranks have
    /// no rows in the last one.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        let left = self.rows.saturating_sub(self.start);
        let step = self.ranks * self.batch_size;
        match self.options.last {
            LastRows::Drop => left / step,
            LastRows::Repeat | LastRows::Short => left.div_ceil(step),
        }
    }

    /// Returns the rows of a step, one list for each rank of the world after replication. Makes all rows before the step.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the epoch has fewer steps; errors of [`PackedEpoch::new`].
    pub fn step(&self, step: u64) -> Result<Vec<Vec<Row>>, Error> {
        if step >= self.steps() {
            return Err(error::no_such_step(step, self.steps()));
        }
        // All ranks as one, so that the rows are made once.
        let all = Self {
            batch_size: self.batch_size * self.ranks,
            ranks: 1,
            replication: 1,
            ..self.clone()
        };
        let rows = all.rank(0)?.read(step)?;
        let mut parts = rows.chunks(index(self.batch_size));
        let each = (0..self.ranks).map(|_| parts.next().unwrap_or_default().to_vec());
        Ok(each.collect())
    }

    /// Returns the steps without the skipped ones, whose ranges count rows of the epoch.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if a range does not consist of whole steps, or if a sample does not exist.
    pub fn without(self, skip: &Skip) -> Result<Kept<Self>, Error> {
        let counted = Counted {
            what: "rows",
            start: self.start,
            global_batch: self.ranks * self.batch_size,
            steps: self.steps(),
            samples: count(self.lengths.len()),
        };
        Kept::new(self, skip, &counted)
    }

    /// Returns the steps that deliver a sample, in order. The position is the row in the batch of the rank. A sample in
    /// several rows, or in repeated ones, is listed for each. Makes all rows.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the sample does not exist; errors of [`PackedEpoch::new`].
    pub fn deliveries(&self, sample: SampleId) -> Result<Vec<Delivery>, Error> {
        let samples = count(self.lengths.len());
        if sample.0 >= samples {
            return Err(error::no_such_sample(sample.0, samples));
        }
        let global_batch = self.ranks * self.batch_size;
        let end = self.rows_before(self.steps());
        let end = match self.options.last {
            LastRows::Repeat => end,
            LastRows::Drop | LastRows::Short => end.min(self.rows),
        };
        let mut packer = Packer::new(self)?;
        let mut found = Vec::new();
        for row in 0..self.rows {
            let pieces = packer.next_row()?.unwrap_or_default();
            if pieces.iter().all(|piece| piece.sample != sample) {
                continue;
            }
            let copies = (row..end).step_by(index(self.rows));
            for copy in copies.filter(|copy| *copy >= self.start) {
                let from_start = copy - self.start;
                found.push(Delivery {
                    step: from_start / global_batch,
                    rank: from_start % global_batch / self.batch_size,
                    position: from_start % self.batch_size,
                    repeated: copy >= self.rows,
                });
            }
        }
        found.sort_unstable_by_key(|delivery| (delivery.step, delivery.rank, delivery.position));
        Ok(found)
    }

    /// Returns how many rows of the epoch all ranks receive before a step.
    #[must_use]
    pub const fn rows_before(&self, step: u64) -> u64 {
        self.start
            .saturating_add(step.saturating_mul(self.ranks * self.batch_size))
    }

    /// Returns a cursor over the rows of a rank of the world before replication.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the rank does not exist.
    pub fn rank(&self, rank: u64) -> Result<RowCursor, Error> {
        let replica_group = rank / self.replication;
        if replica_group >= self.ranks {
            return Err(error::outside_world(
                "rank",
                rank,
                self.ranks * self.replication,
            ));
        }
        Ok(RowCursor {
            packer: Packer::new(self)?,
            next: 0,
            rank: replica_group,
            epoch: self.clone(),
        })
    }
}

/// Reads the rows of a rank step by step.
#[derive(Debug)]
pub struct RowCursor {
    epoch: PackedEpoch,
    packer: Packer,
    /// The row that the packer makes next.
    next: u64,
    rank: u64,
}

impl RowCursor {
    /// Returns the rows of this rank in a step. Sequential reading is fast; an earlier step makes all rows again.
    ///
    /// # Errors
    ///
    /// Those of [`PackedEpoch::new`].
    pub fn read(&mut self, step: u64) -> Result<Vec<Row>, Error> {
        let epoch = &self.epoch;
        let (rows, batch_size) = (epoch.rows, epoch.batch_size);
        let first = epoch.start + (step * epoch.ranks + self.rank) * batch_size;
        let mut read = Vec::new();
        if step >= epoch.steps() {
            return Ok(read);
        }
        for row in first..first + batch_size {
            let repeated = row >= rows;
            if repeated && epoch.options.last != LastRows::Repeat {
                break;
            }
            let row = row % rows;
            if row < self.next {
                self.packer = Packer::new(&self.epoch)?;
                self.next = 0;
            }
            let mut found = None;
            while self.next <= row {
                found = self.packer.next_row()?;
                self.next += 1;
            }
            read.push(Row {
                pieces: found.unwrap_or_default(),
                repeated,
            });
        }
        Ok(read)
    }

    /// Returns how many steps of [`PackedEpoch::base`] the rows so far were made from.
    #[must_use]
    pub const fn base_step(&self) -> u64 {
        self.packer.samples.step
    }

    /// Returns the rows of the epoch.
    #[must_use]
    pub const fn epoch(&self) -> &PackedEpoch {
        &self.epoch
    }
}

#[cfg(test)]
mod tests;
