//! Opens tar shards, and reads their samples.

use std::ops::Range;

use shardmill_core::Limits;
use shardmill_dataset::{DatasetError, KEY_COLUMN, ShardBytes, TarFile, TarSet};
use shardmill_mds::TextValue;
use shardmill_webdataset::{IndexShard, ShardView};

use super::dataset_location::DatasetLocation;
use super::sample_row::{SampleRow, StoredField};
use super::samples::SampleChoice;
use crate::error::Stop;

/// The tar shards at a location. What an index or the headers say of every shard is known.
pub struct Tars {
    pub set: TarSet,
    limits: Limits,
}

impl Tars {
    /// Opens the tar shards at a location. Returns `None` if it contains something else.
    pub fn find(
        dataset_location: &DatasetLocation,
        limits: &Limits,
        samples: &SampleChoice,
    ) -> Result<Option<Self>, Stop> {
        if !dataset_location.holds_tars(limits)? {
            return Ok(None);
        }
        let set = tar_set(dataset_location, samples, limits)?;
        Ok(Some(Self {
            set: set.scanned(limits)?,
            limits: limits.clone(),
        }))
    }

    /// Iterates over the shards with what is known of them.
    pub fn shards(&self) -> impl Iterator<Item = (&TarFile, &IndexShard)> {
        let shards = self.set.shards().iter();
        shards.filter_map(|shard| Some((shard, shard.known()?)))
    }

    /// Calls `show` with each sample in the range, until it returns `false`. Samples are numbered through all shards.
    pub fn each(
        &self,
        range: Range<u64>,
        show: &mut dyn FnMut(&SampleRow<'_>) -> Result<bool, Stop>,
    ) -> Result<(), Stop> {
        each_sample(&self.set, range, &self.limits, show)?;
        Ok(())
    }
}

/// Calls `show` with each live sample in the range, until it returns `false`. Shards whose number of samples is not known are
/// read. Returns whether more samples may follow.
pub fn each_sample(
    set: &TarSet,
    range: Range<u64>,
    limits: &Limits,
    show: &mut dyn FnMut(&SampleRow<'_>) -> Result<bool, Stop>,
) -> Result<bool, Stop> {
    let mut first = 0_u64;
    for shard in set.shards() {
        let known = shard.known().map(|entry| entry.samples);
        if first >= range.end {
            match known {
                Some(stored) if shard.live_samples(stored) == 0 => continue,
                _ => return Ok(true),
            }
        }
        let error = |source| DatasetError::tar_file(&shard.path(), source);
        let open = || {
            let data: ShardBytes = shard.load(limits)?;
            ShardView::open(data, limits).map_err(error)
        };
        let mut view = None;
        let stored = match known {
            Some(stored) => stored,
            None => view.insert(open()?).len(),
        };
        let end = first.saturating_add(shard.live_samples(stored));
        let (from, to) = (range.start.max(first), range.end.min(end));
        if from < to {
            let view = match view {
                Some(view) => view,
                None => open()?,
            };
            let live_indexes = shard.live_ranges(stored).into_iter().flatten();
            let skipped = usize::try_from(from - first).unwrap_or(usize::MAX);
            let mut members = Vec::new();
            for (number, at) in (from..to).zip(live_indexes.skip(skipped)) {
                let key = view.fields_into(at, &mut members).map_err(error)?;
                let key = StoredField::Text(TextValue::Str(key.as_str().into()));
                let mut fields = vec![(KEY_COLUMN, key)];
                let tar = members.iter();
                fields.extend(tar.map(|tar| (&*tar.name, StoredField::Tar(tar.data))));
                let row = SampleRow {
                    number,
                    fields,
                    file: shard.name(),
                    limits,
                };
                if !show(&row)? {
                    return Ok(true);
                }
            }
        }
        first = end;
    }
    Ok(first > range.end)
}

/// Opens the tar shards at a location with these of their samples.
pub fn tar_set(
    dataset_location: &DatasetLocation,
    samples: &SampleChoice,
    limits: &Limits,
) -> Result<TarSet, Stop> {
    let mut set = dataset_location.tars(limits)?;
    if !samples.with_deleted {
        set = set.without_deleted(limits)?;
    }
    if let Some(view) = &samples.view {
        set = set.of_view(view, limits)?;
    }
    Ok(set)
}
