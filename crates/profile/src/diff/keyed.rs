//! Compares the rows of two sources that have the same key.

use std::collections::BTreeMap;

use arrow::array::{Array as _, ArrayRef};
use shardmill_core::Progress;
use shardmill_source::{Source, SourceError};

use super::common::Common;
use super::hashes::{hash, long_hash};
use super::report::{ChangeKind, Diff, DiffOptions, RowChange};
use super::spill::{Record, Spill};
use crate::cell::{bytes_of, text, text_of};
use crate::stats::cancelled;

/// The bytes of rows that a bucket should have, so that two of them fit into memory.
const BUCKET_BYTES: u64 = 32 << 20;

/// The most buckets. Each may have an open file.
const MAX_BUCKETS: u64 = 256;

/// The number of buckets for sources whose rows are not counted.
const BUCKETS: u64 = 64;

pub(super) fn compare(
    sources: [&dyn Source; 2],
    key: &str,
    common: &Common,
    options: &DiffOptions,
    found: &mut Diff,
    progress: &Progress,
) -> Result<(), SourceError> {
    let rows = sources.map(|source| source.description().rows);
    let record = 64 + 8 * common.names.len() as u64;
    let buckets = match rows {
        [Some(a), Some(b)] => a.max(b).saturating_mul(record) / BUCKET_BYTES + 1,
        _ => BUCKETS,
    };
    let buckets = usize::try_from(buckets.min(MAX_BUCKETS)).unwrap_or(1);
    let temp_dir = options.temp_dir.as_deref();
    let new = || Spill::new(buckets, common.names.len(), temp_dir);
    let (mut before, mut after) = (new(), new());
    let [first, second] = sources;
    let positions = common.positions.iter();
    let (left, right): (Vec<usize>, Vec<usize>) = positions.copied().unzip();
    found.rows = (
        divide(first, key, &left, &mut before, progress)?,
        divide(second, key, &right, &mut after, progress)?,
    );
    let mut first_changes = FirstChanges {
        max: options.listed,
        changes: BTreeMap::new(),
    };
    for bucket in 0..buckets {
        if progress.is_cancelled() {
            return Err(cancelled());
        }
        let (before, after) = (before.take(bucket)?, after.take(bucket)?);
        join(&before, &after, common, found, &mut first_changes);
    }
    found.changes = first_changes.changes.into_values().collect();
    Ok(())
}

/// Reads the rows of a source into buckets. Returns their number.
fn divide(
    source: &dyn Source,
    key: &str,
    positions: &[usize],
    spill: &mut Spill<'_>,
    progress: &Progress,
) -> Result<u64, SourceError> {
    let schema = source.schema();
    let Some((key_column, _)) = schema.column_with_name(key) else {
        return Err(SourceError::bug("the key of a comparison was not checked"));
    };
    let mut row = 0;
    for (unit, facts) in source.units().iter().enumerate() {
        let mut batches = source.open_unit(unit)?;
        while let Some(batch) = batches.next_batch()? {
            if progress.is_cancelled() {
                return Err(cancelled());
            }
            let keys = batch.column(key_column);
            let columns = positions.iter();
            let hashes: Vec<Vec<u64>> = columns
                .map(|position| hash(batch.column(*position)))
                .collect();
            for (at, key_hash) in long_hash(keys).into_iter().enumerate() {
                let hashes = hashes.iter().filter_map(|column| column.get(at).copied());
                spill.push(key_hash, row, &key_text(keys, at), hashes)?;
                row += 1;
            }
            progress.add_samples(batch.num_rows() as u64);
        }
        progress.add_input_bytes(facts.bytes);
    }
    Ok(row)
}

/// Returns a key for messages.
fn key_text(keys: &ArrayRef, row: usize) -> String {
    if keys.is_null(row) {
        return "null".to_owned();
    }
    match (text_of(keys, row), bytes_of(keys, row)) {
        (Some(text), _) => text.to_owned(),
        (_, Some(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        _ => text(keys, row),
    }
}

/// The changes with the lowest row numbers.
struct FirstChanges {
    max: usize,
    changes: BTreeMap<(u64, ChangeKind), RowChange>,
}

impl FirstChanges {
    fn add(&mut self, change: RowChange) {
        let row = change.before.or(change.after).unwrap_or(0);
        self.changes.insert((row, change.change), change);
        if self.changes.len() > self.max {
            self.changes.pop_last();
        }
    }
}

/// Compares the rows of a bucket. Both lists are sorted by key.
fn join(
    before: &[Record],
    after: &[Record],
    common: &Common,
    found: &mut Diff,
    first: &mut FirstChanges,
) {
    let (mut left, mut right) = (before.iter().peekable(), after.iter().peekable());
    loop {
        let change = match (left.peek(), right.peek()) {
            (None, None) => break,
            (Some(_), None) => ChangeKind::Removed,
            (None, Some(_)) => ChangeKind::Added,
            (Some(a), Some(b)) if a.key_hash < b.key_hash => ChangeKind::Removed,
            (Some(a), Some(b)) if a.key_hash > b.key_hash => ChangeKind::Added,
            _ => ChangeKind::Changed,
        };
        let a = (change != ChangeKind::Added).then(|| left.next()).flatten();
        let b = (change != ChangeKind::Removed)
            .then(|| right.next())
            .flatten();
        let mut columns = Vec::new();
        match (a, b) {
            (Some(a), Some(b)) => {
                if a.hashes == b.hashes {
                    found.same += 1;
                    continue;
                }
                found.changed += 1;
                columns = common.differing(&a.hashes, &b.hashes);
            }
            (Some(_), None) => found.removed += 1,
            _ => found.added += 1,
        }
        first.add(RowChange {
            change,
            key: a.or(b).map(|record| record.key.clone()),
            before: a.map(|record| record.row),
            after: b.map(|record| record.row),
            columns,
        });
    }
}
