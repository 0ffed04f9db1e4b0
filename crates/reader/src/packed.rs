//! Batches of tokens: fills rows with the documents of the dataset.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread::JoinHandle;
use std::time::Instant;

use shardmill_cache::Cancel;
use shardmill_core::{Error, Limits, escape};
use shardmill_dataset::{Catalog, DatasetError, Schema};
use shardmill_mds::{DType, Encoding, NdArray, Value, decode};
use shardmill_mmap::Buffer;
use shardmill_order::{
    DocumentPiece, Entry, EpochConfig, Kept, PackedEpoch, PackingOptions, Row, RowCursor, RowForm,
    Skip, State, bad_value, outside_world,
};

use crate::batch::{Batch, BatchData};
use crate::batches::{BatchOptions, BatchStats, CHECK_EVERY};
use crate::collate::Collator;
use crate::context::FillContext;
use crate::error::{ReaderProblem, collator_lost, interrupted, no_thread};
use crate::prefetch_planner::PrefetchPlanner;
use crate::ranges::Ranges;
use crate::windows::mds_cells;

/// The label of tokens that a loss ignores, as in torch and transformers.
pub const IGNORED_LABEL: i64 = -100;
/// The document number of padding.
pub const PADDING_DOCUMENT: i32 = -1;
/// The samples that are read at a time to measure their lengths.
const MEASURED: u64 = 256;
/// The most batches that the thread prepares ahead.
const AHEAD: u64 = 8;

/// Which tokens to read, and how to make rows of them.
#[derive(Clone, Debug)]
pub struct TokenOptions {
    /// The column with the tokens: an array of integers, or bytes.
    pub column: String,
    /// The type of the tokens in a column of bytes.
    pub dtype: Option<DType>,
    /// The number of tokens of each sample.
    pub lengths: Arc<[u32]>,
    /// The token that fills rows.
    pub padding_id: i64,
    /// How documents become rows.
    pub packing: PackingOptions,
}

/// The tokens of one step of one rank, in rows of equal width.
///
/// With [`RowForm::Context`], a row is a context. With [`RowForm::Padded`], every document has a row, and rows are as
/// long as the longest one. With [`RowForm::Summed`], a single row has all documents, without padding.
#[derive(Debug)]
pub struct TokenBatch {
    /// The step, counted from where the epoch started or was resumed.
    pub step: u64,
    /// The rows of the order that the batch consists of. A state counts these.
    pub items: usize,
    /// The number of rows.
    pub rows: usize,
    /// The tokens of a row.
    pub width: usize,
    /// The tokens, as `i64`. Shape: `[rows, width]`.
    pub input_ids: Buffer,
    /// The position of each token in its piece of a document, as `i64`; 0 for padding. Shape: `[rows, width]`.
    pub position_ids: Buffer,
    /// The number of the piece in its row, as `i32`; [`PADDING_DOCUMENT`] for padding. Shape: `[rows, width]`.
    pub document_ids: Buffer,
    /// The tokens again, as `i64`; [`IGNORED_LABEL`] for padding and for the first token of each piece, which nothing
    /// precedes. Shape: `[rows, width]`.
    pub labels: Buffer,
    /// The boundaries of pieces and padding in all rows together, from 0 to `rows * width`.
    pub cu_seqlens: Vec<i32>,
    /// Whether each row is repeated so that all ranks receive equally many. Shape: `[rows]`.
    pub repeated: Vec<bool>,
    /// The number of tokens that are not padding.
    pub tokens: u64,
}

/// The token batches of a rank in one epoch, in order. A thread prepares them ahead; dropping this value stops it.
#[derive(Debug)]
pub struct TokenBatches {
    kept: Arc<Kept<PackedEpoch>>,
    receiver: Option<Receiver<Result<TokenBatch, Error>>>,
    thread: Option<JoinHandle<()>>,
    cancel: Cancel,
    context: Arc<FillContext>,
    stats: BatchStats,
}

impl TokenBatches {
    pub(crate) fn new(
        context: Arc<FillContext>,
        prefetch_planner: Arc<PrefetchPlanner>,
        config: &EpochConfig,
        options: BatchOptions,
        (tokens, skip): (TokenOptions, &Skip),
    ) -> Result<Self, Error> {
        let workers = config.world.workers_per_rank;
        if options.worker >= workers {
            return Err(outside_world("worker", options.worker, workers));
        }
        if tokens.packing.form != RowForm::Context && config.batch_size != 1 {
            return Err(bad_value(
                "batch_size",
                config.batch_size,
                "1: with a limit of tokens, each item is a batch",
            ));
        }
        let base = PackedEpoch::base_config(config)?;
        let (order, tick) = prefetch_planner.begin(&base, 0)?;
        let lengths = Arc::clone(&tokens.lengths);
        let epoch = PackedEpoch::new(order, config, lengths, tokens.packing)?;
        let cursor = epoch.rank(options.rank)?;
        let kept = Arc::new(epoch.without(skip)?);
        let cancel = Cancel::default();
        let filler = Filler {
            cursor,
            kept: Arc::clone(&kept),
            collator: Collator::new(&context).without_windows(),
            prefetch_planner,
            next: (base, tick),
            tokens,
            cancel: cancel.clone(),
        };
        let (sender, receiver) = mpsc::sync_channel(usize_of(options.queue.clamp(1, AHEAD)));
        let numbers = (options.worker..kept.steps()).step_by(usize_of(workers).max(1));
        let thread = std::thread::Builder::new()
            .name("shardmill-pack".to_owned())
            .spawn(move || filler.work(numbers, &sender))
            .map_err(no_thread)?;
        Ok(Self {
            kept,
            receiver: Some(receiver),
            thread: Some(thread),
            cancel,
            context,
            stats: BatchStats::default(),
        })
    }

    /// Returns the rows of the epoch.
    #[must_use]
    pub fn epoch(&self) -> &PackedEpoch {
        self.kept.epoch()
    }

    /// Returns the statistics so far.
    #[must_use]
    pub const fn stats(&self) -> BatchStats {
        self.stats
    }

    /// Returns the next batch, or `None` at the end of the epoch and after an error.
    ///
    /// # Errors
    ///
    /// Errors of reading a shard; [`ReaderProblem::TokensColumn`], [`ReaderProblem::TokensLength`].
    pub fn next_batch(&mut self) -> Result<Option<TokenBatch>, Error> {
        self.next_batch_while(&mut || true)
    }

    /// Like [`Self::next_batch`], but calls `cancel` about every 50 milliseconds while it waits. If `cancel` returns
    /// false, the epoch ends with an error.
    ///
    /// # Errors
    ///
    /// `Interrupted` if `cancel` returns false; otherwise as [`Self::next_batch`].
    pub fn next_batch_while(
        &mut self,
        cancel: &mut dyn FnMut() -> bool,
    ) -> Result<Option<TokenBatch>, Error> {
        let Some(receiver) = &self.receiver else {
            return Ok(None);
        };
        let start = Instant::now();
        let received = loop {
            match receiver.recv_timeout(CHECK_EVERY) {
                Ok(batch) => break batch.map(Some),
                Err(RecvTimeoutError::Disconnected) => break Ok(None),
                Err(RecvTimeoutError::Timeout) if cancel() => {}
                Err(RecvTimeoutError::Timeout) => break Err(interrupted()),
            }
        };
        self.stats.wait(start.elapsed());
        match received {
            Ok(Some(batch)) => {
                self.stats.batches += 1;
                self.stats.samples += batch.items as u64;
                self.stats.bytes += batch.input_ids.len() as u64;
                Ok(Some(batch))
            }
            Ok(None) => match self.stop() {
                true => Err(collator_lost()),
                false => Ok(None),
            },
            Err(error) => {
                self.stop();
                Err(error)
            }
        }
    }

    /// Stops the thread. Returns whether it has panicked.
    fn stop(&mut self) -> bool {
        self.cancel.set();
        if let Some(engine) = self.context.shard_cache.started() {
            engine.wake();
        }
        // The thread may be waiting for space in the channel.
        self.receiver = None;
        self.thread
            .take()
            .is_some_and(|thread| thread.join().is_err())
    }
}

impl Drop for TokenBatches {
    fn drop(&mut self) {
        self.stop();
    }
}

/// INVARIANT: tokens of a batch are in memory, so that their number fits.
fn usize_of(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// Fills token batches, on a thread of its own.
struct Filler {
    cursor: RowCursor,
    kept: Arc<Kept<PackedEpoch>>,
    collator: Collator,
    prefetch_planner: Arc<PrefetchPlanner>,
    /// The configuration of the order of samples, and its first tick in the access plan.
    next: (EpochConfig, u64),
    tokens: TokenOptions,
    cancel: Cancel,
}

impl Filler {
    fn work(
        mut self,
        numbers: impl Iterator<Item = u64>,
        sender: &SyncSender<Result<TokenBatch, Error>>,
    ) {
        let mut is_first = true;
        for number in numbers {
            let batch = self.fill(self.kept.step(number), is_first);
            let failed = batch.is_err();
            // A closed channel means that no batch is needed any more.
            if sender.send(batch).is_err() || failed || self.cancel.is_set() {
                return;
            }
            if is_first {
                // Background work starts after the first batch, so that it does not delay it.
                self.prefetch_planner.prepare(self.next_config(), 0);
            }
            is_first = false;
        }
    }

    fn next_config(&self) -> EpochConfig {
        let (base, _) = &self.next;
        let epoch = self.cursor.epoch().base().resolved().epoch + 1;
        let resume = base.resume.map(|state| State { epoch, ..state });
        EpochConfig {
            epoch,
            resume,
            ..base.clone()
        }
    }

    fn fill(&mut self, step: u64, is_first: bool) -> Result<TokenBatch, Error> {
        let rows = self.cursor.read(step)?;
        let mut entries: Vec<Entry> = Vec::new();
        let mut positions = Vec::new();
        for piece in rows.iter().flat_map(|row| &row.pieces) {
            if self.kept.is_skipped(piece.sample) {
                positions.push(None);
                continue;
            }
            // The pieces of a split document are often neighbours.
            if entries
                .last()
                .is_none_or(|last| last.sample != piece.sample)
            {
                entries.push(Entry {
                    sample: piece.sample,
                    repeated: false,
                });
            }
            positions.push(Some(entries.len() - 1));
        }
        let tick = self.next.1 + self.cursor.base_step().saturating_sub(1);
        if let Some(engine) = self.collator.context.shard_cache.started() {
            engine.move_to(tick);
        }
        let batch = self
            .collator
            .fill((step, is_first), entries, tick, &self.cancel)?;
        self.assemble(&rows, &batch, &positions)
    }

    /// Copies the tokens into rows. `positions` are the samples of the pieces in the batch; `None` for those that are
    /// left out, whose tokens become padding.
    fn assemble(
        &self,
        rows: &[Row],
        batch: &Batch,
        positions: &[Option<usize>],
    ) -> Result<TokenBatch, Error> {
        let packing = &self.tokens.packing;
        let pieces = || rows.iter().flat_map(|row| &row.pieces);
        let all_tokens: u64 = pieces().map(|piece| u64::from(piece.tokens)).sum();
        let longest = pieces().map(|piece| piece.tokens).max().unwrap_or(0);
        let (width, count) = match packing.form {
            RowForm::Context => (usize_of(packing.tokens.into()), rows.len()),
            RowForm::Padded => (usize_of(longest.into()), positions.len()),
            RowForm::Summed => (usize_of(all_tokens), usize::from(!positions.is_empty())),
        };
        let mut made = TokenRows::new(&self.collator.context, width, count)?;
        made.batch.step = batch.step;
        made.batch.items = rows.len();
        let padding_id = self.tokens.padding_id;
        let mut positions = positions.iter();
        for row in rows {
            for (piece, position) in row.pieces.iter().zip(&mut positions) {
                if let Some(position) = position {
                    let array = self.array(batch, *position)?;
                    self.check_length(&array, piece)?;
                    made.push(&array, piece)?;
                } else {
                    made.leave_out(piece, padding_id)?;
                }
                if packing.form == RowForm::Padded {
                    made.end_row(padding_id, row.repeated)?;
                }
            }
            if packing.form != RowForm::Padded {
                made.end_row(padding_id, row.repeated)?;
            }
        }
        Ok(made.batch)
    }

    fn check_length(&self, array: &NdArray<'_>, piece: &DocumentPiece) -> Result<(), Error> {
        let found = array.data.len() as u64 / array.dtype.size_bytes();
        let sample = piece.sample.0;
        let expected = self.tokens.lengths.get(usize_of(sample)).copied();
        let expected = u64::from(expected.unwrap_or(0));
        match found == expected {
            true => Ok(()),
            false => Err(ReaderProblem::TokensLength.error(format!(
                "sample {sample} has {found} tokens, and its length is {expected}"
            ))),
        }
    }

    /// Returns the tokens of a sample of the batch.
    fn array<'a>(&self, batch: &'a Batch, position: usize) -> Result<NdArray<'a>, Error> {
        let tokens = &self.tokens;
        let limits = self.collator.context.catalog.limits();
        tokens_of(batch, position, &tokens.column, tokens.dtype, limits)
    }
}

/// Returns the tokens of a sample in a batch.
pub(crate) fn tokens_of<'a>(
    batch: &'a Batch,
    position: usize,
    column: &str,
    dtype: Option<DType>,
    limits: &Limits,
) -> Result<NdArray<'a>, Error> {
    let refused = |reason: &str| {
        let column = escape(column);
        ReaderProblem::TokensColumn.error(format!("the column `{column}` has no tokens: {reason}"))
    };
    let schema = match &batch.data {
        BatchData::Columns { schema, .. } => Some(schema),
        BatchData::Samples { schemas, .. } => schemas.get(position),
    };
    let Some(Schema::Binary { columns, head, .. }) = schema.map(AsRef::as_ref) else {
        return Err(refused("only MDS has columns of tokens"));
    };
    let found = columns.iter().position(|found| found.name == column);
    let at = found.ok_or_else(|| refused("there is no such column"))?;
    let encoding = columns.get(at).map(|column| &column.encoding);
    let mut cells = Vec::new();
    let sample = batch.sample(position);
    if let Some(sample) = sample {
        mds_cells(columns, *head, sample, &mut cells);
    }
    let cell = |at: usize| batch.value(position, at).or_else(|| cells.get(at).copied());
    let mask = columns.get(at).and_then(|column| column.null_mask);
    if mask.and_then(cell).is_some_and(|mark| *mark != [0]) {
        return Err(refused("a value is null"));
    }
    let value = cell(at);
    let (Some(encoding), Some(value)) = (encoding, value) else {
        return Err(refused("its values do not fit the sample"));
    };
    if value.is_empty() {
        let (dtype, shape, data) = (DType::U8, vec![0], value);
        return Ok(NdArray { dtype, shape, data });
    }
    let array = match (encoding, dtype) {
        (Encoding::Bytes, Some(dtype)) => {
            let size = dtype.size_bytes();
            if !(value.len() as u64).is_multiple_of(size) {
                let reason = format!("{} bytes are no tokens of {size} bytes", value.len());
                return Err(refused(&reason));
            }
            let shape = vec![value.len() as u64 / size];
            NdArray {
                dtype,
                shape,
                data: value,
            }
        }
        (Encoding::Bytes, None) => {
            return Err(refused(
                "it has bytes, and the type of the tokens is not given",
            ));
        }
        (Encoding::NdArray { .. }, _) => match decode(encoding, value, limits) {
            Ok(Value::NdArray(array)) => array,
            Ok(_) => return Err(refused(&format!("its encoding is {encoding}"))),
            Err(error) => return Err(refused(&error.to_string())),
        },
        (Encoding::Registered { .. }, _) => {
            return Err(refused(&format!(
                "the program registered its encoding {encoding}, and packing reads only those of MDS"
            )));
        }
        _ => {
            return Err(refused(&format!(
                "its encoding is {encoding}, not an array of integers"
            )));
        }
    };
    match array.dtype {
        DType::F16 | DType::F32 | DType::F64 => {
            Err(refused(&format!("its numbers are {}", array.dtype)))
        }
        _ => Ok(array),
    }
}

/// Reads all samples and returns the number of tokens of each.
pub(crate) fn measure(
    mut ranges: Ranges,
    catalog: &Catalog,
    column: &str,
    dtype: Option<DType>,
) -> Result<Vec<u32>, Error> {
    let mut lengths = Vec::new();
    let mut start = 0;
    while start < catalog.samples() {
        let end = (start + MEASURED).min(catalog.samples());
        let batch = ranges.read(start..end, &Cancel::default())?;
        for position in 0..batch.len() {
            let array = tokens_of(&batch, position, column, dtype, catalog.limits())?;
            let tokens = array.data.len() as u64 / array.dtype.size_bytes();
            // INVARIANT: a value has less than 2^32 bytes.
            lengths.push(u32::try_from(tokens).unwrap_or(u32::MAX));
        }
        start = end;
    }
    Ok(lengths)
}

/// Rows of tokens that are being filled.
struct TokenRows {
    batch: TokenBatch,
    /// The documents and tokens of the current row.
    documents: i32,
    used: usize,
    words: Vec<u8>,
}

impl TokenRows {
    fn new(context: &FillContext, width: usize, rows: usize) -> Result<Self, Error> {
        let tokens = width.saturating_mul(rows);
        let wide = tokens.saturating_mul(8);
        if i32::try_from(tokens).is_err() {
            // `cu_seqlens` are 32-bit integers.
            return Err(context.no_memory(wide));
        }
        Ok(Self {
            batch: TokenBatch {
                step: 0,
                items: 0,
                rows,
                width,
                input_ids: context.take(wide)?,
                position_ids: context.take(wide)?,
                document_ids: context.take(wide / 2)?,
                labels: context.take(wide)?,
                cu_seqlens: vec![0],
                repeated: Vec::with_capacity(rows),
                tokens: 0,
            },
            documents: 0,
            used: 0,
            words: Vec::new(),
        })
    }

    fn push(&mut self, array: &NdArray<'_>, piece: &DocumentPiece) -> Result<(), Error> {
        let size = usize_of(array.dtype.size_bytes());
        let (start, tokens) = (usize_of(piece.start.into()), usize_of(piece.tokens.into()));
        let data = array.data.get(start * size..(start + tokens) * size);
        let data = data.unwrap_or_default();
        // PERF: one loop for each type, which the compiler vectorizes. benches/packing.py
        match array.dtype {
            DType::U8 => self.widen(data, u8::from_le_bytes),
            DType::I8 => self.widen(data, i8::from_le_bytes),
            DType::U16 => self.widen(data, u16::from_le_bytes),
            DType::I16 => self.widen(data, i16::from_le_bytes),
            DType::U32 => self.widen(data, u32::from_le_bytes),
            DType::I32 => self.widen(data, i32::from_le_bytes),
            // Tokens beyond 2^63 do not exist: the bits stay.
            DType::I64 | DType::U64 => data.clone_into(&mut self.words),
            // INVARIANT: `tokens_of` refuses them.
            DType::F16 | DType::F32 | DType::F64 => self.words.clear(),
        }
        add(&mut self.batch.input_ids, &self.words)?;
        // The first token of a piece is not predicted: nothing precedes it.
        add(&mut self.batch.labels, &IGNORED_LABEL.to_le_bytes())?;
        add(
            &mut self.batch.labels,
            self.words.get(8..).unwrap_or_default(),
        )?;
        self.write(0_i64.., tokens, i64::to_le_bytes);
        add(&mut self.batch.position_ids, &self.words)?;
        self.fill_documents(self.documents, tokens)?;
        self.documents += 1;
        self.used += tokens;
        self.batch.tokens += tokens as u64;
        self.bound(tokens);
        Ok(())
    }

    fn widen<const SIZE: usize, T: Into<i64>>(
        &mut self,
        data: &[u8],
        read: impl Fn([u8; SIZE]) -> T,
    ) {
        let (values, _) = data.as_chunks::<SIZE>();
        let widened = values.iter().map(|value| read(*value).into());
        self.write(widened, values.len(), i64::to_le_bytes);
    }

    /// Replaces `words` by the bytes of `count` values.
    fn write<const SIZE: usize, T>(
        &mut self,
        values: impl IntoIterator<Item = T>,
        count: usize,
        bytes: impl Fn(T) -> [u8; SIZE],
    ) {
        self.words.resize(count.saturating_mul(SIZE), 0);
        let (words, _) = self.words.as_chunks_mut::<SIZE>();
        for (word, value) in words.iter_mut().zip(values) {
            *word = bytes(value);
        }
    }

    /// Adds padding in place of a piece. The other pieces of the row keep their positions and numbers.
    fn leave_out(&mut self, piece: &DocumentPiece, padding_id: i64) -> Result<(), Error> {
        let tokens = usize_of(piece.tokens.into());
        self.documents += 1;
        self.used += tokens;
        self.pad(tokens, padding_id)
    }

    /// Fills the rest of the row.
    fn end_row(&mut self, padding_id: i64, repeated: bool) -> Result<(), Error> {
        self.pad(self.batch.width.saturating_sub(self.used), padding_id)?;
        self.batch.repeated.push(repeated);
        (self.documents, self.used) = (0, 0);
        Ok(())
    }

    fn pad(&mut self, tokens: usize, padding_id: i64) -> Result<(), Error> {
        for (buffer, value) in [
            (&mut self.batch.input_ids, padding_id),
            (&mut self.batch.labels, IGNORED_LABEL),
            (&mut self.batch.position_ids, 0),
        ] {
            add(buffer, &value.to_le_bytes().repeat(tokens))?;
        }
        self.fill_documents(PADDING_DOCUMENT, tokens)?;
        if tokens > 0 {
            self.bound(tokens);
        }
        Ok(())
    }

    fn fill_documents(&mut self, document: i32, tokens: usize) -> Result<(), Error> {
        add(
            &mut self.batch.document_ids,
            &document.to_le_bytes().repeat(tokens),
        )
    }

    fn bound(&mut self, tokens: usize) {
        // INVARIANT: `new` checked that all tokens together fit.
        let end = self.batch.cu_seqlens.last().copied().unwrap_or(0);
        let tokens = i32::try_from(tokens).unwrap_or(0);
        self.batch.cu_seqlens.push(end + tokens);
    }
}

fn add(buffer: &mut Buffer, bytes: &[u8]) -> Result<(), Error> {
    let added = buffer.extend_from_slice(bytes);
    added.map_err(|_| DatasetError::out_of_memory(bytes.len() as u64).into())
}

#[cfg(test)]
mod tests;
