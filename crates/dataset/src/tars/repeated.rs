//! Finds keys that occur in more than one shard, in bounded memory.
//!
//! Keys are collected in a buffer of [`BUFFER_BYTES`]. A full buffer is sorted and written as a run to one temporary
//! file, and at the end the runs are merged. Whole keys are compared, so there are no false positives.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::os::unix::fs::FileExt as _;

use shardmill_storage::StorageError;

/// The most bytes of keys and their entries in memory.
const BUFFER_BYTES: usize = 32 << 20;

/// The bytes of each run that are read at a time during the merge.
const STEP_BYTES: usize = 64 << 10;

/// The bytes before each key in a run: its length, shard and position.
const HEAD_BYTES: usize = 16;

/// A key that an earlier shard contains as well.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RepeatedKey {
    /// The shard that repeats the key.
    pub shard: usize,
    /// The position of the key in that shard, as passed to [`RepeatedKeys::push`].
    pub at: u64,
    /// The first shard with the key.
    pub first: usize,
    /// The key.
    pub key: String,
}

/// Collects the keys of shards, and finds those that occur in several shards.
///
/// ```
/// use shardmill_dataset::RepeatedKeys;
///
/// let mut keys = RepeatedKeys::default();
/// for (shard, key) in [(0, "a"), (0, "b"), (1, "b")] {
///     keys.push(key, shard, 7)?;
/// }
/// let mut found = Vec::new();
/// keys.finish(|repeated| found.push(repeated))?;
/// assert_eq!((found[0].key.as_str(), found[0].first, found[0].shard), ("b", 0, 1));
/// # Ok::<(), shardmill_storage::StorageError>(())
/// ```
#[derive(Debug)]
pub struct RepeatedKeys {
    limit: usize,
    /// The keys, concatenated.
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    file: Option<File>,
    /// The end of each run in the file.
    ends: Vec<u64>,
}

/// The position of a key in the buffer, and its shard.
#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u32,
    length: u32,
    shard: u32,
    at: u64,
}

/// A key in the order of the merge: by its bytes, then by shard and position.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    key: Vec<u8>,
    shard: u32,
    at: u64,
}

impl Default for RepeatedKeys {
    fn default() -> Self {
        Self::with_limit(BUFFER_BYTES)
    }
}

impl RepeatedKeys {
    fn with_limit(limit: usize) -> Self {
        Self {
            limit,
            bytes: Vec::new(),
            entries: Vec::new(),
            file: None,
            ends: Vec::new(),
        }
    }

    /// Adds a key of a shard. `at` is its position in the shard, in any unit; it is returned in [`RepeatedKey::at`].
    pub fn push(&mut self, key: &str, shard: usize, at: u64) -> Result<(), StorageError> {
        let used = self.bytes.len() + self.entries.len() * size_of::<Entry>();
        if used + key.len() + size_of::<Entry>() > self.limit && !self.entries.is_empty() {
            self.spill().map_err(failed)?;
        }
        let (Ok(start), Ok(length), Ok(shard)) = (
            u32::try_from(self.bytes.len()),
            u32::try_from(key.len()),
            u32::try_from(shard),
        ) else {
            // INVARIANT: the limits exclude keys of this length and this many shards.
            return Err(failed(io::ErrorKind::InvalidInput.into()));
        };
        self.bytes.extend_from_slice(key.as_bytes());
        self.entries.push(Entry {
            start,
            length,
            shard,
            at,
        });
        Ok(())
    }

    /// Calls `found` for each shard that repeats a key of an earlier one, sorted by key, once per key and shard.
    pub fn finish(mut self, found: impl FnMut(RepeatedKey)) -> Result<(), StorageError> {
        self.merge(found).map_err(failed)
    }

    fn sort(&mut self) {
        let Self { bytes, entries, .. } = self;
        entries.sort_unstable_by(|a, b| {
            let keys = slice(bytes, a).cmp(slice(bytes, b));
            keys.then_with(|| (a.shard, a.at).cmp(&(b.shard, b.at)))
        });
    }

    /// Writes the buffer as a run.
    fn spill(&mut self) -> io::Result<()> {
        self.sort();
        if self.file.is_none() {
            self.file = Some(tempfile::tempfile()?);
        }
        let Some(file) = &self.file else {
            return Ok(());
        };
        let mut out = io::BufWriter::with_capacity(STEP_BYTES, file);
        let mut end = self.ends.last().copied().unwrap_or(0);
        for entry in &self.entries {
            let key = slice(&self.bytes, entry);
            out.write_all(&entry.length.to_le_bytes())?;
            out.write_all(&entry.shard.to_le_bytes())?;
            out.write_all(&entry.at.to_le_bytes())?;
            out.write_all(key)?;
            end += (HEAD_BYTES + key.len()) as u64;
        }
        out.flush()?;
        drop(out);
        self.ends.push(end);
        self.bytes.clear();
        self.entries.clear();
        Ok(())
    }

    fn merge(&mut self, mut found: impl FnMut(RepeatedKey)) -> io::Result<()> {
        let mut group = Group::default();
        if self.ends.is_empty() {
            self.sort();
            for entry in &self.entries {
                group.take(slice(&self.bytes, entry), entry.shard, entry.at, &mut found);
            }
            return Ok(());
        }
        self.spill()?;
        (self.bytes, self.entries) = (Vec::new(), Vec::new());
        let Some(file) = &self.file else {
            return Ok(());
        };
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let mut runs: Vec<BufReader<Run<'_>>> = starts
            .zip(self.ends.iter().copied())
            .map(|(next, end)| BufReader::with_capacity(STEP_BYTES, Run { file, next, end }))
            .collect();
        let mut heads = BinaryHeap::with_capacity(runs.len());
        for (number, run) in runs.iter_mut().enumerate() {
            heads.extend(next_head(run)?.map(|head| Reverse((head, number))));
        }
        while let Some(Reverse((head, number))) = heads.pop() {
            group.take(&head.key, head.shard, head.at, &mut found);
            if let Some(run) = runs.get_mut(number) {
                heads.extend(next_head(run)?.map(|head| Reverse((head, number))));
            }
        }
        Ok(())
    }
}

fn slice<'a>(bytes: &'a [u8], entry: &Entry) -> &'a [u8] {
    let start = entry.start as usize;
    bytes
        .get(start..start + entry.length as usize)
        .unwrap_or_default()
}

fn failed(source: io::Error) -> StorageError {
    StorageError::Io {
        action: "keep keys in a temporary file of",
        path: std::env::temp_dir(),
        source,
    }
}

/// The current key of the merge.
#[derive(Default)]
struct Group {
    key: Vec<u8>,
    /// The first shard with the key, and the last one so far.
    shards: Option<(u32, u32)>,
}

impl Group {
    fn take(&mut self, key: &[u8], shard: u32, at: u64, found: &mut impl FnMut(RepeatedKey)) {
        let shards = self
            .shards
            .filter(|_| self.key.as_slice().cmp(key) == Ordering::Equal);
        let Some((first, last)) = shards else {
            self.key.clear();
            self.key.extend_from_slice(key);
            self.shards = Some((shard, shard));
            return;
        };
        if last != shard {
            found(RepeatedKey {
                shard: shard as usize,
                at,
                first: first as usize,
                key: String::from_utf8_lossy(key).into_owned(),
            });
        }
        self.shards = Some((first, shard));
    }
}

/// The rest of a sorted run in the temporary file.
struct Run<'a> {
    file: &'a File,
    next: u64,
    end: u64,
}

impl Read for Run<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.next).unwrap_or(usize::MAX);
        let max = buffer.len().min(left);
        let read = self
            .file
            .read_at(buffer.get_mut(..max).unwrap_or_default(), self.next)?;
        if read == 0 && max > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.next += read as u64;
        Ok(read)
    }
}

/// Reads the next key of a run; `None` at its end.
fn next_head(run: &mut BufReader<Run<'_>>) -> io::Result<Option<Head>> {
    if run.fill_buf()?.is_empty() {
        return Ok(None);
    }
    let (mut length, mut shard, mut at) = ([0; 4], [0; 4], [0; 8]);
    run.read_exact(&mut length)?;
    run.read_exact(&mut shard)?;
    run.read_exact(&mut at)?;
    let mut key = vec![0; u32::from_le_bytes(length) as usize];
    run.read_exact(&mut key)?;
    Ok(Some(Head {
        key,
        shard: u32::from_le_bytes(shard),
        at: u64::from_le_bytes(at),
    }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn find(limit: usize, keys: &[(String, usize)]) -> (Vec<RepeatedKey>, usize) {
        let mut all = RepeatedKeys::with_limit(limit);
        for (at, (key, shard)) in keys.iter().enumerate() {
            all.push(key, *shard, at as u64).unwrap();
        }
        let runs = all.ends.len();
        let mut found = Vec::new();
        all.finish(|repeated| found.push(repeated)).unwrap();
        found.sort();
        (found, runs)
    }

    fn expected(keys: &[(String, usize)]) -> Vec<RepeatedKey> {
        let mut shards: BTreeMap<&str, BTreeMap<usize, u64>> = BTreeMap::new();
        for (at, (key, shard)) in keys.iter().enumerate() {
            shards
                .entry(key)
                .or_default()
                .entry(*shard)
                .or_insert(at as u64);
        }
        let mut found = Vec::new();
        for (key, shards) in shards {
            let first = *shards.first_key_value().unwrap().0;
            found.extend(shards.into_iter().skip(1).map(|(shard, at)| RepeatedKey {
                shard,
                at,
                first,
                key: key.to_owned(),
            }));
        }
        found.sort();
        found
    }

    proptest! {
        #[test]
        fn spilled_runs_give_the_same_repeated_keys(
            keys in prop::collection::vec(("[ab]{0,3}", 0_usize..4), 0..200),
            limit in 1_usize..4000,
        ) {
            let mut keys = keys;
            // Shards are added in order.
            keys.sort_by_key(|(_, shard)| *shard);
            prop_assert_eq!(find(limit, &keys).0, expected(&keys));
        }
    }

    #[test]
    fn key_repeated_in_one_shard_is_not_reported() {
        let keys = [("a", 0), ("a", 0), ("b", 1)].map(|(key, shard)| (key.to_owned(), shard));
        assert_eq!(find(1 << 20, &keys), (Vec::new(), 0));
    }

    #[test]
    fn keys_longer_than_a_read_step_are_merged() {
        let long = |end: &str| "x".repeat(3 * STEP_BYTES) + end;
        let keys = [
            (long("a"), 0),
            (long("b"), 0),
            (long("b"), 1),
            (long("c"), 2),
        ];
        let (found, runs) = find(STEP_BYTES, &keys);
        assert!(runs > 2, "{runs}");
        assert_eq!(found, expected(&keys));
        assert_eq!((found.len(), found[0].shard), (1, 1));
    }

    #[test]
    fn memory_is_bounded_by_the_buffer() {
        let mut keys = RepeatedKeys::with_limit(1 << 20);
        for number in 0..200_000_u64 {
            keys.push(&format!("{number:012}"), 0, number).unwrap();
            let held = keys.bytes.capacity() + keys.entries.capacity() * size_of::<Entry>();
            assert!(held <= 2 << 20, "{held}");
        }
        assert!(keys.ends.len() > 4);
        keys.push(&format!("{:012}", 5), 1, 9).unwrap();
        let mut found = Vec::new();
        keys.finish(|repeated| found.push(repeated)).unwrap();
        assert_eq!(found.len(), 1);
    }
}
