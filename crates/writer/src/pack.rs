//! Decides where one shard ends and the next begins. The input is chunks, the output shards. This step is sequential
//! and cheap.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use shardmill_core::{Error, escape};
use shardmill_mds::{Content, Cutter, ShardConfig};
use shardmill_webdataset::{KEY_DIGITS, read_sample, renumber, tar_cutter};

use crate::chunk::Chunk;
use crate::content::{DedupIndex, UnitSamples};
use crate::error::{self, WriteProblem};
use crate::form::ShardForm;
use crate::rows::TarKeys;

/// A position in the input, such as that of the first sample of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The unit of the input.
    pub unit: usize,
    /// The position of the sample among the samples of this unit that belong to the split.
    pub sample: u64,
}

/// A slice of a chunk.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) chunk: Arc<Chunk>,
    pub(crate) range: Range<usize>,
}

impl Piece {
    /// Returns the rows of a table.
    pub(crate) fn table_rows(self) -> Option<RecordBatch> {
        self.chunk.table_rows(self.range)
    }
}

/// The samples of a shard: their position in the dataset and in the input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShardSpan {
    pub(crate) split: usize,
    /// The number of the shard in its split.
    pub(crate) shard: u64,
    pub(crate) start: Position,
    pub(crate) samples: u64,
    pub(crate) content: Content,
}

/// A shard that is cut but not yet written.
#[derive(Debug)]
pub(crate) struct CutShard {
    pub(crate) span: ShardSpan,
    pub(crate) pieces: Vec<Piece>,
    pub(crate) sizes: Vec<u32>,
}

/// The source of the sample keys of one split.
#[derive(Debug)]
pub(crate) enum Keys {
    /// The format has no keys, or the input guarantees unique keys.
    Given,
    /// Keys are numbers: the prefix of each key, and the next number.
    Numbered(String, u64),
    /// Keys come from a column of this name and must be unique. The set holds the hashes of the keys so far: 16 bytes
    /// for a key of any length.
    Unique(String, HashSet<u128>),
}

impl Keys {
    /// `first` samples already exist. `prefix` precedes numbers.
    pub(crate) fn new(keys: Option<&TarKeys>, prefix: &str, first: u64) -> Self {
        match keys {
            Some(TarKeys::Number) => Self::Numbered(prefix.to_owned(), first),
            Some(TarKeys::Column {
                name,
                unique: false,
                ..
            }) => Self::Unique(name.clone(), HashSet::new()),
            Some(TarKeys::Column { unique: true, .. }) | None => Self::Given,
        }
    }
}

/// Where shards end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShardEnds {
    /// At the size limit of the form.
    #[default]
    Size,
    /// At the size limit, or after this number of samples.
    Samples(u64),
    /// Where a unit of the input ends, whatever its size.
    Units,
}

impl ShardEnds {
    /// Returns the rule for a maximum number of samples.
    #[must_use]
    pub fn of_samples(max: Option<u64>) -> Self {
        max.map_or(Self::Size, Self::Samples)
    }
}

/// Decides where shards end.
#[derive(Debug)]
struct Cut {
    cutter: Cutter,
    /// Whether shards end where units of the input do.
    by_units: bool,
    /// The unit of the previous sample.
    unit: usize,
}

impl Cut {
    const fn new(cutter: Cutter, by_units: bool) -> Self {
        Self {
            cutter,
            by_units,
            unit: 0,
        }
    }

    /// Adds a sample. Returns whether it begins a new shard.
    fn push(&mut self, bytes: u64, unit: usize) -> bool {
        let is_next_unit = self.by_units && self.cutter.samples() > 0 && unit != self.unit;
        if is_next_unit {
            self.cutter.flush();
        }
        self.unit = unit;
        self.cutter.push(bytes) || is_next_unit
    }
}

/// Cuts the samples of one split into shards.
#[derive(Debug)]
pub(crate) struct Packer {
    split: usize,
    cutter: Cut,
    keys: Keys,
    next_shard: u64,
    pieces: Vec<Piece>,
    sizes: Vec<u32>,
    start: Option<Position>,
    content: Content,
    /// The number of the next sample.
    next_sample: u64,
    /// The samples that already exist and are left out.
    dedup_index: Option<DedupIndex>,
    units: BTreeMap<usize, UnitSamples>,
}

impl Packer {
    pub(crate) fn new(
        split: usize,
        form: &ShardForm,
        ends: ShardEnds,
        first_shard: u64,
        keys: Keys,
    ) -> Self {
        let samples_per_shard = match ends {
            ShardEnds::Samples(max) => Some(max),
            ShardEnds::Size | ShardEnds::Units => None,
        };
        let by_units = ends == ShardEnds::Units;
        let cutter = match form {
            _ if by_units => Cutter::new(None, None),
            ShardForm::Streaming(config) => config.cutter(samples_per_shard),
            ShardForm::Tar(form) => tar_cutter(form.size_limit, samples_per_shard),
            // The limits are those of a file of a table.
            ShardForm::Table(form) => Cutter::new(form.size_limit, samples_per_shard),
        };
        Self {
            split,
            cutter: Cut::new(cutter, by_units),
            keys,
            next_shard: first_shard,
            pieces: Vec::new(),
            sizes: Vec::new(),
            start: None,
            content: Content::default(),
            next_sample: 0,
            dedup_index: None,
            units: BTreeMap::new(),
        }
    }

    /// Creates a packer that cuts exactly where the writers of MosaicML Streaming do. Their first shard may be empty.
    pub(crate) fn like_original(config: &Arc<ShardConfig>) -> Self {
        let form = ShardForm::from(Arc::clone(config));
        Self {
            cutter: Cut::new(config.cutter_like_original(), false),
            ..Self::new(0, &form, ShardEnds::Size, 0, Keys::Given)
        }
    }

    /// Starts at sample number `samples`, and leaves out the samples that `dedup_index` contains.
    pub(crate) fn add_to(&mut self, samples: u64, dedup_index: Option<DedupIndex>) {
        self.next_sample = samples;
        self.dedup_index = dedup_index;
    }

    /// Returns what happened to the samples of each unit, and the dedup index.
    pub(crate) fn into_units(self) -> (BTreeMap<usize, UnitSamples>, Option<DedupIndex>) {
        (self.units, self.dedup_index)
    }

    /// Adds the samples of a chunk, and returns the shards that become full. `describe_row` describes a row of the
    /// unit, for errors.
    pub(crate) fn push(
        &mut self,
        mut chunk: Chunk,
        describe_row: impl Fn(u64) -> String,
    ) -> Result<Vec<CutShard>, Error> {
        let known = self.recognise(&chunk);
        self.take_keys(&mut chunk, &known, describe_row)?;
        let mut full = Vec::new();
        let chunk = Arc::new(chunk);
        let mut piece_start = 0_usize;
        let mut sample_start = 0_u32;
        for sample in 0..chunk.samples() {
            let end = chunk.end(sample);
            if is_known(&known, sample) {
                self.close_piece(&chunk, piece_start..to_usize(sample_start));
                (piece_start, sample_start) = (to_usize(end), end);
                continue;
            }
            let size = end - sample_start;
            let flush = self.cutter.push(u64::from(size), chunk.origin.unit);
            let position = Position {
                unit: chunk.origin.unit,
                sample: chunk.origin.first + u64::try_from(sample).unwrap_or(0),
            };
            if flush {
                let cut = to_usize(sample_start);
                self.close_piece(&chunk, piece_start..cut);
                piece_start = cut;
                full.push(self.take(position));
            }
            if self.sizes.is_empty() {
                self.start = Some(position);
            }
            self.sizes.push(size);
            let content = chunk.contents.get(sample).copied().unwrap_or_default();
            self.content = self.content.with(content);
            sample_start = end;
        }
        self.close_piece(&chunk, piece_start..chunk.len());
        Ok(full)
    }

    /// Marks the samples of a chunk that already exist. The result is empty without a dedup index.
    fn recognise(&mut self, chunk: &Chunk) -> Vec<bool> {
        let unit = self.units.entry(chunk.origin.unit).or_default();
        if unit.added == 0 {
            unit.first = self.next_sample;
        }
        let mut known = Vec::new();
        if let Some(dedup_index) = &mut self.dedup_index {
            for content in &chunk.contents {
                let number = dedup_index.take(*content);
                known.push(number.is_some());
                unit.known.extend(number);
            }
        }
        let left_out = known.iter().filter(|known| **known).count();
        let added = u64::try_from(chunk.samples() - left_out).unwrap_or(0);
        unit.added += added;
        self.next_sample += added;
        known
    }

    /// Gives numbers to the samples of a chunk, or checks that their keys are unique.
    fn take_keys(
        &mut self,
        chunk: &mut Chunk,
        known: &[bool],
        describe_row: impl Fn(u64) -> String,
    ) -> Result<(), Error> {
        match &mut self.keys {
            Keys::Given => {}
            Keys::Numbered(before, next) => {
                for sample in (0..chunk.samples()).filter(|sample| !is_known(known, *sample)) {
                    let key = format!("{before}{next:0KEY_DIGITS$}");
                    if !renumber(chunk.sample_mut(sample), KEY_DIGITS, &key) {
                        return Err(WriteProblem::NumberedNames.error(
                            "names beyond ASCII, and of more than 100 bytes, have no room for the numbers of samples in parts",
                        ));
                    }
                    *next += 1;
                }
            }
            Keys::Unique(column, seen) => {
                let keys = std::mem::take(&mut chunk.keys).into_iter().enumerate();
                let mut new = keys.filter(|(sample, _)| !is_known(known, *sample));
                if let Some((sample, _)) = new.find(|(_, key)| !seen.insert(*key)) {
                    let limits = shardmill_core::Limits::default();
                    let key = read_sample(0, chunk.sample_mut(sample), &mut Vec::new(), &limits);
                    let rows = chunk.rows.as_ref();
                    let (row, key) = (
                        describe_row(rows.map_or(0, |rows| rows.get(sample))),
                        key.unwrap_or_default(),
                    );
                    let reason = format!("{row}: the key `{}` was there before", escape(&key));
                    return Err(WriteProblem::DuplicateKey.at(error::of_column(column), reason));
                }
            }
        }
        Ok(())
    }

    /// Returns the last shard, unless it is empty.
    pub(crate) fn finish(&mut self) -> Option<CutShard> {
        (!self.sizes.is_empty()).then(|| self.take(Position::default()))
    }

    /// Returns the number of the shard that is being filled.
    pub(crate) const fn next_shard(&self) -> u64 {
        self.next_shard
    }

    /// Returns the size of the shard that is being filled, as the size limit counts it.
    pub(crate) const fn open_bytes(&self) -> u64 {
        self.cutter.cutter.bytes()
    }

    /// Returns the samples of the shard that is being filled.
    pub(crate) fn open_samples(&self) -> Vec<Vec<u8>> {
        let mut bytes = Vec::new();
        for piece in &self.pieces {
            bytes.extend_from_slice(piece.chunk.slice(piece.range.clone()));
        }
        let mut rest = bytes.as_slice();
        let sizes = self.sizes.iter();
        sizes
            .map(|size| {
                let at = usize::try_from(*size).unwrap_or(usize::MAX);
                let (sample, after) = rest.split_at(at.min(rest.len()));
                rest = after;
                sample.to_vec()
            })
            .collect()
    }

    fn close_piece(&mut self, chunk: &Arc<Chunk>, range: Range<usize>) {
        if !range.is_empty() {
            self.pieces.push(Piece {
                chunk: Arc::clone(chunk),
                range,
            });
        }
    }

    fn take(&mut self, next: Position) -> CutShard {
        let span = ShardSpan {
            split: self.split,
            shard: self.next_shard,
            // An empty first shard starts at the same position as the second one.
            start: self.start.take().unwrap_or(next),
            samples: u64::try_from(self.sizes.len()).unwrap_or(u64::MAX),
            content: std::mem::take(&mut self.content),
        };
        let shard = CutShard {
            span,
            pieces: std::mem::take(&mut self.pieces),
            sizes: std::mem::take(&mut self.sizes),
        };
        self.next_shard += 1;
        shard
    }
}

/// Returns whether a sample already exists.
fn is_known(known: &[bool], sample: usize) -> bool {
    known.get(sample).copied().unwrap_or(false)
}

fn to_usize(end: u32) -> usize {
    usize::try_from(end).unwrap_or(usize::MAX)
}
