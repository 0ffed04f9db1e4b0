//! Opens tar shards: the facts of each shard, and its samples.

use std::ops::Range;
use std::sync::Arc;

use shardmill_core::{Limits, Progress};
use shardmill_dataset::{DatasetError, KEY_COLUMN, ShardBytes, TarFile, TarSet, each_in_order};
use shardmill_mds::TextValue;
use shardmill_webdataset::{FieldSet, FileHashes, ShardMap, ShardView};

use super::dataset_location::DatasetLocation;
use super::sample_row::{SampleRow, StoredField};
use super::samples::SampleChoice;
use crate::error::Stop;

/// The known properties of a shard, from its index or else from its headers.
#[derive(Default)]
pub struct TarFacts {
    pub name: String,
    /// The number of live samples.
    pub samples: u64,
    /// The number of stored samples.
    pub stored: u64,
    pub raw_bytes: u64,
    pub stored_bytes: u64,
    pub compression: Option<String>,
    pub hashes: FileHashes,
    pub fields: Arc<FieldSet>,
}

/// The tar shards at a location.
pub struct Tars {
    pub set: TarSet,
    pub facts: Vec<TarFacts>,
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
        let mut facts = Vec::with_capacity(set.shards().len());
        let progress = Progress::new();
        let read = |number: usize| facts_of(&set, number, limits);
        each_in_order(set.shards().len(), 0, &progress, read, |_, found| {
            facts.push(found);
            Ok(())
        })?;
        Ok(Some(Self {
            set,
            facts,
            limits: limits.clone(),
        }))
    }

    /// Calls `show` with each sample in the range, until it returns `false`. Samples are numbered through all shards.
    pub fn each(
        &self,
        range: Range<u64>,
        show: &mut dyn FnMut(&SampleRow<'_>) -> Result<bool, Stop>,
    ) -> Result<(), Stop> {
        let mut facts = self.facts.iter();
        let stored = |_: &TarFile| facts.next().map(|facts| facts.stored);
        each_sample(&self.set, stored, range, &self.limits, show)?;
        Ok(())
    }
}

/// Calls `show` with each live sample in the range, until it returns `false`. `stored` is called with each shard in order
/// and returns how many samples it holds, if that is known; others are read. Returns whether more samples may follow.
pub fn each_sample(
    set: &TarSet,
    mut stored: impl FnMut(&TarFile) -> Option<u64>,
    range: Range<u64>,
    limits: &Limits,
    show: &mut dyn FnMut(&SampleRow<'_>) -> Result<bool, Stop>,
) -> Result<bool, Stop> {
    let mut first = 0_u64;
    for shard in set.shards() {
        let known = stored(shard);
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

fn facts_of(set: &TarSet, number: usize, limits: &Limits) -> Result<TarFacts, DatasetError> {
    let Some(shard) = set.shards().get(number) else {
        return Ok(TarFacts::default());
    };
    if let Some(entry) = shard.entry() {
        return Ok(TarFacts {
            name: shard.name().to_owned(),
            samples: shard.live_samples(entry.samples),
            stored: entry.samples,
            raw_bytes: entry.raw_data.bytes,
            stored_bytes: entry.stored().bytes,
            compression: entry.compression.map(|compression| compression.to_string()),
            hashes: entry.stored().hashes.clone(),
            fields: Arc::clone(&entry.fields),
        });
    }
    let data = shard.load(limits)?;
    let map = ShardMap::read(data.as_ref(), limits)
        .map_err(|source| DatasetError::tar_file(&shard.path(), source))?;
    let compression = shard.compression()?;
    Ok(TarFacts {
        name: shard.name().to_owned(),
        samples: shard.live_samples(map.samples.len() as u64),
        stored: map.samples.len() as u64,
        raw_bytes: map.bytes,
        stored_bytes: shard.open()?.len(),
        compression: compression.map(|compression| compression.algorithm().to_string()),
        fields: Arc::new(FieldSet::of(&map.samples)),
        ..TarFacts::default()
    })
}
