//! Mixtures: weights of streams that change over the samples of a run.
//!
//! A [`Mixture`] is a schedule of weights, in steps or linear ramps, by the number of samples that all ranks have
//! received since the run began. It is a pure function from a sample's number to a stream and the number of that
//! sample in its stream. In every window of the schedule, each stream's samples differ from their exact share by less
//! than one. A window ends where weights change, where an epoch ends, and where a stream is used up.

use shardmill_core::Error;

use serde::{Deserialize, Serialize};

use crate::error::{OrderProblem, ensure};
use crate::interleave::{MAX_IN_PIECE, Piece, SCALE, apportion};
use crate::num::{real, share, trunc};

/// The most samples of all epochs of a run, which doubles count exactly.
const MAX_IN_RUN: u64 = 1 << 53;

/// The most points of a schedule: a state records them, and has at most 64 KiB.
const MAX_POINTS: usize = 1000;

/// The most that a weight of [`SCALE`] changes when it is stored and scaled again.
const ROUNDING: u64 = 8;

/// The weights of all streams from a sample of the run on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WeightPoint {
    /// The number of samples that all ranks have received before, since the run began.
    pub from_sample: u64,
    /// A weight for each stream; only their relations matter.
    pub weights: Vec<f64>,
    /// Whether the weights change linearly from those of the point before, instead of all at once.
    #[serde(default)]
    pub ramp: bool,
}

/// What happens when a stream has been read as often as it may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenExhausted {
    /// The other streams take its share.
    #[default]
    Drop,
    /// The run ends.
    Stop,
}

/// Weights of streams over the samples of a run.
///
/// ```
/// use std::sync::Arc;
///
/// use shardmill_order::{Epoch, EpochConfig, Mixture, StreamConfig, World};
///
/// let streams = vec![StreamConfig::new(&[100]), StreamConfig::new(&[50])];
/// let mut config = EpochConfig::new(streams, 10, World::SINGLE);
/// config.sampling.mixture = Some(Arc::new(Mixture::constant(vec![0.9, 0.1])));
/// let epoch = Epoch::new(&config)?;
/// let taken: Vec<u64> = epoch.shares().iter().map(|share| share.choose).collect();
/// assert_eq!(taken, [135, 15]);
/// # Ok::<(), shardmill_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mixture {
    /// The weights over time. The first point starts at sample 0.
    pub schedule: Vec<WeightPoint>,
    /// Changes made while the run progressed, in the order in which they were made. Each is a schedule that replaces all
    /// that would follow its first sample. The samples before stay as they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Vec<WeightPoint>>,
    /// How often each stream is read at most; empty, or `None` for a stream, without a limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub epochs: Vec<Option<u64>>,
    /// What happens then.
    #[serde(default)]
    pub when_exhausted: WhenExhausted,
}

/// A window of an epoch in which all weights are constant or linear.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MixtureWindow {
    /// The first sample of the run in the window.
    pub from_sample: u64,
    /// The exclusive end.
    pub to_sample: u64,
    /// The exact share of each stream, in samples.
    pub planned: Vec<f64>,
    /// The samples of each stream.
    pub taken: Vec<u64>,
}

/// A range of the run with linear weights, before streams are used up.
#[derive(Clone, Debug, PartialEq)]
struct Span {
    start: u64,
    /// The end that was planned, exclusive; `u64::MAX` for the last one.
    end: u64,
    /// The first sample that a change takes over; `u64::MAX` without one.
    cut: u64,
    first: Vec<u64>,
    last: Vec<u64>,
}

impl Span {
    /// Returns the weights at a sample inside, or at the end.
    fn weights_at(&self, sample: u64) -> Vec<u64> {
        if self.first == self.last || sample <= self.start {
            return self.first.clone();
        }
        let (passed, length) = (
            u128::from(sample - self.start),
            u128::from(self.end - self.start),
        );
        let both = self.first.iter().zip(&self.last);
        let exact: Vec<u128> = both
            .map(|(first, last)| {
                u128::from(*first) * (length - passed) + u128::from(*last) * passed
            })
            .collect();
        apportion(SCALE, &exact, length)
    }
}

fn wrong(reason: impl Into<String>) -> Error {
    OrderProblem::Mixture.at("mixture", reason)
}

/// Scales weights to a sum of [`SCALE`].
fn scaled(point: &WeightPoint, streams: usize) -> Result<Vec<u64>, Error> {
    let weights = &point.weights;
    if weights.len() != streams {
        return Err(wrong(format!(
            "the point at sample {} has {} weights for {streams} streams",
            point.from_sample,
            weights.len()
        )));
    }
    let max = weights.iter().copied().fold(0.0, f64::max);
    let is_valid = |weight: &f64| weight.is_finite() && *weight >= 0.0;
    if !weights.iter().all(is_valid) || max <= 0.0 {
        return Err(wrong(format!(
            "the point at sample {} has the weights {weights:?}: they must be numbers from 0 on, and not all 0",
            point.from_sample
        )));
    }
    // Relative to the largest, a weight has 52 bits. From here on, all arithmetic is exact.
    let whole = weights
        .iter()
        .map(|weight| trunc(weight / max * real(1 << 52)).unwrap_or(0));
    let whole: Vec<u64> = whole.collect();
    Ok(rescaled(&whole).unwrap_or_default())
}

/// Scales whole weights to a sum of [`SCALE`]; `None` if all are 0.
fn rescaled(weights: &[u64]) -> Option<Vec<u64>> {
    let sum: u128 = weights.iter().copied().map(u128::from).sum();
    let shares = weights
        .iter()
        .map(|weight| u128::from(*weight) * u128::from(SCALE));
    (sum > 0).then(|| apportion(SCALE, &shares.collect::<Vec<_>>(), sum))
}

/// Returns the spans of a schedule.
fn spans_of(schedule: &[WeightPoint], streams: usize) -> Result<Vec<Span>, Error> {
    let mut spans: Vec<Span> = Vec::with_capacity(schedule.len());
    for point in schedule {
        let weights = scaled(point, streams)?;
        let start = point.from_sample;
        match spans.last_mut() {
            None if point.ramp => {
                return Err(wrong("the first point cannot be a ramp"));
            }
            None => {}
            Some(before) if start <= before.start => {
                return Err(wrong(format!(
                    "the point at sample {start} follows one at sample {}: points must be in order",
                    before.start
                )));
            }
            Some(before) => {
                before.end = start;
                if point.ramp {
                    ensure(
                        start - before.start <= MAX_IN_PIECE,
                        "mixture",
                        start - before.start,
                        "a ramp of at most 2^40 samples",
                    )?;
                    before.last.clone_from(&weights);
                }
            }
        }
        spans.push(Span {
            start,
            end: u64::MAX,
            cut: u64::MAX,
            first: weights.clone(),
            last: weights,
        });
    }
    match spans.is_empty() {
        true => Err(wrong("the schedule has no points")),
        false => Ok(spans),
    }
}

impl Mixture {
    /// Creates a mixture whose weights never change.
    #[must_use]
    pub fn constant(weights: Vec<f64>) -> Self {
        Self {
            schedule: vec![WeightPoint {
                from_sample: 0,
                weights,
                ramp: false,
            }],
            changes: Vec::new(),
            epochs: Vec::new(),
            when_exhausted: WhenExhausted::Drop,
        }
    }

    /// Returns the spans of the run, with the changes applied.
    fn spans(&self, streams: usize) -> Result<Vec<Span>, Error> {
        let points = self.changes.iter().map(Vec::len).sum::<usize>() + self.schedule.len();
        if points > MAX_POINTS {
            return Err(wrong(format!(
                "{points} points with those of changes are more than {MAX_POINTS}"
            )));
        }
        if !(self.epochs.is_empty() || self.epochs.len() == streams) {
            return Err(wrong(format!(
                "there are {} numbers of epochs for {streams} streams",
                self.epochs.len()
            )));
        }
        let mut spans = spans_of(&self.schedule, streams)?;
        if spans.first().is_some_and(|span| span.start > 0) {
            return Err(wrong("the first point must start at sample 0"));
        }
        for change in &self.changes {
            let new = spans_of(change, streams)?;
            let start = new.first().map_or(0, |span| span.start);
            spans.retain(|span| span.start < start);
            if let Some(last) = spans.last_mut() {
                // The planned end stays, because the order before the change depends on it.
                last.cut = start;
            }
            spans.extend(new);
        }
        Ok(spans)
    }

    /// Parses a mixture from JSON, with the names of the fields as keys.
    ///
    /// # Errors
    /// `InvalidInput` for anything else.
    pub fn from_json(text: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice(text).map_err(|error| wrong(format!("it is not a mixture: {error}")))
    }

    /// Formats the mixture as JSON on one line.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Weights are finite, and keys are text.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the mixture of a run that resumes at a sample from a state with this mixture, if the program gives
    /// another one. What the program gives applies from there on. If both differ before that sample, returns the first
    /// sample that differs as the inner error.
    ///
    /// # Errors
    /// `InvalidInput` for an invalid mixture.
    pub fn resumed_with(
        &self,
        given: &Self,
        streams: usize,
        sample: u64,
    ) -> Result<Result<Self, u64>, Error> {
        let is_known = given.changes.is_empty()
            && given.schedule == self.schedule
            && given.epochs == self.epochs
            && given.when_exhausted == self.when_exhausted;
        if sample == 0 {
            return Ok(Ok(if is_known { self } else { given }.clone()));
        }
        if is_known {
            return Ok(Ok(self.clone()));
        }
        if let Some(different) = self.differs_before(given, streams, sample)? {
            return Ok(Err(different));
        }
        // Up to where they differ, the order stays that of this mixture.
        match self.differs_before(given, streams, u64::MAX)? {
            Some(different) => Ok(Ok(self.followed_by(
                given,
                streams,
                different.max(sample),
            )?)),
            None => Ok(Ok(self.clone())),
        }
    }

    /// Returns the mixture that follows this one up to a sample of the run, and another one from there on.
    fn followed_by(&self, other: &Self, streams: usize, sample: u64) -> Result<Self, Error> {
        let mut change: Vec<WeightPoint> = Vec::new();
        for span in other.spans(streams)? {
            let end = span.end.min(span.cut);
            if end <= sample {
                continue;
            }
            let point = |from_sample, weights: &[u64], ramp| WeightPoint {
                from_sample,
                weights: weights.iter().map(|weight| real(*weight)).collect(),
                ramp,
            };
            let start = span.start.max(sample);
            let is_reached = |last: &WeightPoint| last.from_sample == start;
            // A ramp that ends where this span starts has its weights.
            if !change.last().is_some_and(is_reached) {
                change.push(point(start, &span.weights_at(start), false));
            }
            if span.first != span.last {
                change.push(point(end, &span.weights_at(end), true));
            }
        }
        let mut spliced = self.clone();
        spliced.changes.push(change);
        Ok(spliced)
    }

    /// Returns the first sample of the run from which both mixtures differ, if it is before `sample`.
    fn differs_before(
        &self,
        other: &Self,
        streams: usize,
        sample: u64,
    ) -> Result<Option<u64>, Error> {
        let no_limit = |epochs: &[Option<u64>]| epochs.iter().all(Option::is_none);
        let is_unlimited = no_limit(&self.epochs) && no_limit(&other.epochs);
        let has_same_limits =
            self.epochs == other.epochs && self.when_exhausted == other.when_exhausted;
        if sample > 0 && !is_unlimited && !has_same_limits {
            return Ok(Some(0));
        }
        let (own, others) = (self.spans(streams)?, other.spans(streams)?);
        let mut starts: Vec<u64> = own.iter().chain(&others).map(|span| span.start).collect();
        starts.push(sample);
        starts.sort_unstable();
        starts.dedup();
        for ends in starts.windows(2) {
            let (start, end) = (ends[0], ends[1]);
            if end > sample {
                break;
            }
            let weights = |spans: &[Span]| {
                let after = spans.partition_point(|span| span.start <= start);
                let span = spans.get(after.checked_sub(1)?)?;
                // A point that a ramp leads to starts a span of its own.
                Some([span.weights_at(start), span.weights_at(end.min(span.end))])
            };
            let both = weights(&own).into_iter().flatten();
            let mut both = both.zip(weights(&others).into_iter().flatten());
            // Weights of a state were rounded once more.
            let differ = |(left, right): (Vec<u64>, Vec<u64>)| {
                let mut pairs = left.iter().zip(&right);
                pairs.any(|(left, right)| left.abs_diff(*right) > ROUNDING)
            };
            if both.any(differ) {
                return Ok(Some(start));
            }
        }
        Ok(None)
    }

    /// Computes which samples an epoch takes.
    pub(crate) fn plan(
        &self,
        sizes: &[u64],
        epoch_size: u64,
        epoch: u64,
    ) -> Result<MixturePlan, Error> {
        ensure(
            epoch_size <= MAX_IN_PIECE,
            "epoch_size",
            epoch_size,
            "at most 2^40 with a mixture",
        )?;
        let run = epoch.saturating_add(1).saturating_mul(epoch_size);
        ensure(
            run <= MAX_IN_RUN,
            "epoch",
            epoch,
            "within 2^53 samples of the start of the run",
        )?;
        let spans = self.spans(sizes.len())?;
        let limits: Vec<Option<u64>> = (0..sizes.len())
            .map(|stream| {
                let epochs = self.epochs.get(stream).copied().flatten()?;
                Some(epochs.saturating_mul(sizes[stream]))
            })
            .collect();
        let start = epoch * epoch_size;
        let mut plan = MixturePlan {
            pieces: Vec::new(),
            start,
            samples: 0,
            before: vec![0; sizes.len()],
        };
        let (mut sample, mut before) = (0, vec![0; sizes.len()]);
        while sample < run {
            if sample == start {
                plan.before.clone_from(&before);
            }
            let after = spans.partition_point(|span| span.start <= sample);
            let Some(span) = after.checked_sub(1).and_then(|last| spans.get(last)) else {
                break;
            };
            let epoch_end = (sample / epoch_size + 1) * epoch_size;
            let end = span.end.min(epoch_end);
            let cut = span.cut.min(end);
            let available = |mut weights: Vec<u64>| {
                for ((weight, limit), taken) in weights.iter_mut().zip(&limits).zip(&before) {
                    if limit.is_some_and(|limit| *taken >= limit) {
                        *weight = 0;
                    }
                }
                rescaled(&weights)
            };
            let (first, last) = (
                available(span.weights_at(sample)),
                available(span.weights_at(end)),
            );
            let (Some(first), Some(last)) = (first.clone().or(last.clone()), last.or(first)) else {
                // All streams with a weight are used up.
                break;
            };
            let mut piece = Piece::new(sample, end - sample, (&first, &last), before);
            piece.cut_at_limits(&limits);
            let is_used_up = piece.end < cut.min(end);
            piece.end = piece.end.min(cut);
            before = piece.after();
            sample = piece.end;
            if piece.start >= start && piece.end > piece.start {
                plan.samples += piece.end - piece.start;
                plan.pieces.push(piece);
            }
            if is_used_up && self.when_exhausted == WhenExhausted::Stop {
                break;
            }
        }
        if sample <= start {
            plan.before = before;
        }
        Ok(plan)
    }

    /// Returns the windows of an epoch, with the planned and the taken samples of each stream.
    ///
    /// # Errors
    /// `InvalidInput` for an invalid mixture, and for too many samples.
    pub fn windows(
        &self,
        sizes: &[u64],
        epoch_size: u64,
        epoch: u64,
    ) -> Result<Vec<MixtureWindow>, Error> {
        let plan = self.plan(sizes, epoch_size, epoch)?;
        let windows = plan.pieces.iter().map(|piece| {
            let (taken, planned) = piece.shares().into_iter().unzip();
            MixtureWindow {
                from_sample: piece.start,
                to_sample: piece.end,
                planned,
                taken,
            }
        });
        Ok(windows.collect())
    }

    /// Returns the samples of each stream in equal parts of an epoch.
    ///
    /// # Errors
    /// As for [`windows`](Self::windows).
    pub fn parts(
        &self,
        sizes: &[u64],
        epoch_size: u64,
        epoch: u64,
        parts: u64,
    ) -> Result<Vec<Vec<u64>>, Error> {
        let plan = self.plan(sizes, epoch_size, epoch)?;
        let border = |part| share(plan.samples, part, parts.max(1));
        let counts = (0..parts).map(|part| {
            let before = plan.counts_before(border(part));
            let after = plan.counts_before(border(part + 1));
            let both = after.iter().zip(before);
            both.map(|(after, before)| after - before).collect()
        });
        Ok(counts.collect())
    }
}

/// The samples of one epoch of a run with a mixture.
#[derive(Clone, Debug)]
pub(crate) struct MixturePlan {
    /// In order, without gaps.
    pieces: Vec<Piece>,
    /// The first sample of the run in this epoch.
    start: u64,
    /// The number of samples of the epoch.
    pub(crate) samples: u64,
    /// The samples of each stream before the epoch.
    before: Vec<u64>,
}

impl MixturePlan {
    /// Returns the range of each stream's samples, counted from the start of the run.
    pub(crate) fn ranges(&self) -> Vec<std::ops::Range<u64>> {
        let after = self
            .pieces
            .last()
            .map_or_else(|| self.before.clone(), Piece::after);
        let both = self.before.iter().zip(after);
        both.map(|(before, after)| *before..after).collect()
    }

    /// Returns the samples of each stream before a sample of the epoch, counted from the start of the run.
    fn counts_before(&self, sample: u64) -> Vec<u64> {
        let sample = self.start + sample.min(self.samples);
        let after = self.pieces.partition_point(|piece| piece.start < sample);
        let piece = after.checked_sub(1).and_then(|last| self.pieces.get(last));
        let Some(piece) = piece else {
            return self.before.clone();
        };
        let counts = piece.counts_before(sample - piece.start);
        let both = piece.before.iter().zip(counts);
        both.map(|(before, counted)| before + counted).collect()
    }

    /// Returns the stream of a sample of the epoch, and the number of the sample in its stream.
    pub(crate) fn at(&self, sample: u64) -> Option<(usize, u64)> {
        if sample >= self.samples {
            return None;
        }
        let sample = self.start + sample;
        let after = self.pieces.partition_point(|piece| piece.start <= sample);
        Some(self.pieces.get(after.checked_sub(1)?)?.at(sample))
    }

    /// Returns the sample of the epoch that is a stream's sample of this number.
    pub(crate) fn sample_of(&self, stream: usize, number: u64) -> Option<u64> {
        let before = |piece: &Piece| piece.before.get(stream).copied().unwrap_or(0);
        let after = self.pieces.partition_point(|piece| before(piece) <= number);
        let piece = self.pieces.get(after.checked_sub(1)?)?;
        Some(piece.sample_of(stream, number)? - self.start)
    }
}

#[cfg(test)]
mod tests;
