//! An open shard: its bytes are mapped or in memory, and its structure has been checked.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use shardmill_dataset::{
    Body, Catalog, DatasetError, DatasetProblem, Entry, KEY_COLUMN, Piece, Schema, ShardBytes, map,
};
use shardmill_storage::{Dir, FileHandle, FileIdentity};

/// The milliseconds between two checks of a file in use for writes.
const CHECK_AGAIN_MS: u64 = 1000;

/// A shard whose header, offsets and config were checked when it was opened.
///
/// A mapped file shows its current content, so offsets are checked again at each use. A caller that has copied bytes
/// must call [`OpenShard::check`] before it returns them.
#[derive(Debug)]
pub(crate) struct OpenShard {
    shard: usize,
    schema: Arc<Schema>,
    samples: u64,
    body: Body<ShardBytes>,
    /// One for the data, then one for late columns.
    guards: Vec<Guard>,
}

/// Detects that a file changed while it is open.
#[derive(Debug)]
struct Guard {
    /// The position and the value of the last byte of the data that is not zero. If the file is truncated, and its
    /// missing bytes read as zeros, either this byte has changed, or only zeros were lost.
    mark: Option<(usize, u8)>,
    dir: Dir,
    name: String,
    identity: FileIdentity,
    opened: Instant,
    /// When the file was last checked for writes, in milliseconds after `opened`.
    checked_at: AtomicU64,
}

impl OpenShard {
    /// Maps the data of a shard and checks it against its index entry. `dir` and the name of the file are kept to
    /// detect writes.
    pub(crate) fn map(
        catalog: &Catalog,
        shard: usize,
        dir: &Dir,
        data: &FileHandle,
        meta: Option<&FileHandle>,
    ) -> Result<Self, DatasetError> {
        let limit = catalog.limits().shard_bytes;
        DatasetError::check_limit(("shard-bytes", limit), data.len(), || {
            data.path().to_owned()
        })?;
        let entry = catalog
            .entry(shard)
            .ok_or_else(|| catalog.no_shard(shard))?;
        let second = match meta {
            Some(file) if entry.has_late() => Some(ShardBytes::Mapped(map(file)?)),
            Some(file) => Some(ShardBytes::Memory(file.read_all(limit)?)),
            None => None,
        };
        let is_unread = matches!(entry, Entry::File(_, form) if !form.has_data());
        let shard_bytes = if is_unread {
            // Only the path of the file is used.
            ShardBytes::Memory(Vec::new())
        } else {
            ShardBytes::Mapped(map(data)?)
        };
        let mut open = Self::new(catalog, shard, shard_bytes, second)?;
        let late = entry.table().zip(meta).filter(|_| entry.has_late());
        let files = std::iter::once((entry.data(), data)).chain(late);
        let bytes = std::iter::once(open.body.data()).chain(open.body.late_data());
        let guards = files.zip(bytes).map(|((info, file), bytes)| {
            Ok(Guard {
                mark: last_mark(bytes),
                dir: dir.clone(),
                name: info.basename.to_string(),
                identity: file.identity()?,
                opened: Instant::now(),
                checked_at: AtomicU64::new(0),
            })
        });
        open.guards = guards.collect::<Result<_, DatasetError>>()?;
        Ok(open)
    }

    /// Opens a shard whose bytes are in memory.
    pub(crate) fn in_memory(
        catalog: &Catalog,
        shard: usize,
        data: Vec<u8>,
        meta: Option<Vec<u8>>,
    ) -> Result<Self, DatasetError> {
        let meta = meta.map(ShardBytes::Memory);
        Self::new(catalog, shard, ShardBytes::Memory(data), meta)
    }

    fn new(
        catalog: &Catalog,
        shard: usize,
        data: ShardBytes,
        meta: Option<ShardBytes>,
    ) -> Result<Self, DatasetError> {
        let (Some(entry), Some(schema)) = (catalog.entry(shard), catalog.schema(shard)) else {
            return Err(catalog.no_shard(shard));
        };
        let body = Body::open(catalog, shard, data, meta)?;
        Ok(Self {
            shard,
            schema: Arc::clone(schema),
            samples: entry.samples(),
            body,
            guards: Vec::new(),
        })
    }

    pub(crate) const fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Returns the encoded bytes of a sample; `None` if the sample does not exist, or its offsets are outside the data.
    #[inline]
    pub(crate) fn sample(&self, at: u64) -> Option<Piece<'_>> {
        if at >= self.samples {
            return None;
        }
        self.body.sample(at)
    }

    /// Returns whether samples have late columns, which [`Self::sample`] does not return.
    pub(crate) const fn has_late(&self) -> bool {
        matches!(self.body, Body::Late(_))
    }

    /// Appends the encoded bytes of a sample with its late columns. Returns `None` if it cannot be read.
    pub(crate) fn join_sample(&self, at: u64, out: &mut Vec<u8>) -> Option<()> {
        self.body.join_sample(at, out)
    }

    /// Returns the value of a column of a sample; `None` if the sample does not have it.
    pub(crate) fn value(
        &self,
        catalog: &Catalog,
        at: u64,
        column: &str,
    ) -> Result<Option<Cow<'_, [u8]>>, DatasetError> {
        self.find(catalog, at, |name| name == column)
    }

    /// Returns the value of the first column that is wanted.
    fn find(
        &self,
        catalog: &Catalog,
        at: u64,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<Option<Cow<'_, [u8]>>, DatasetError> {
        let location = || catalog.location(self.shard);
        let number = |at| catalog.number_of(self.shard, at);
        let views = match &self.body {
            Body::Mds(owned) => [Some(owned.view()), None],
            Body::Late(halves) => [Some(halves.base.view()), Some(halves.late.view())],
            Body::Tar(owned) => {
                let mut fields = Vec::new();
                let key = owned.fields_into(at, &mut fields);
                let key =
                    key.map_err(|source| DatasetError::tar(location(), number(at), source))?;
                if is_wanted(KEY_COLUMN) {
                    return Ok(Some(Cow::Owned(key.into_bytes())));
                }
                let field = fields.into_iter().find(|field| is_wanted(&field.name));
                return Ok(field.map(|field| Cow::Borrowed(field.data)));
            }
            Body::File(_) => return Ok(None),
        };
        for view in views.into_iter().flatten() {
            let fields = view.fields(at);
            let fields =
                fields.map_err(|source| DatasetError::shard_with(location(), number, source))?;
            if let Some(field) = fields.into_iter().find(|field| is_wanted(field.name)) {
                return Ok(Some(Cow::Borrowed(field.datum)));
            }
        }
        Ok(None)
    }

    /// Returns the value of a column of a sample, and its offset in the data of the shard. Keys have no offset.
    pub(crate) fn value_at(
        &self,
        catalog: &Catalog,
        at: u64,
        column: &str,
    ) -> Result<Option<(u64, &[u8])>, DatasetError> {
        let Some(Cow::Borrowed(value)) = self.value(catalog, at, column)? else {
            return Ok(None);
        };
        let data = self.body.data().as_ref().as_ptr_range();
        if !data.contains(&value.as_ptr()) && self.has_late() {
            let reason =
                "it is in a late column, and only columns of the dataset itself are read in parts";
            return Err(DatasetProblem::Indivisible.at(catalog.location(self.shard), reason));
        }
        // INVARIANT: the value is a part of the data.
        let offset = value.as_ptr().addr().saturating_sub(data.start.addr());
        Ok(Some((offset as u64, value)))
    }

    /// Returns a range of the data of the shard; `None` if it is beyond the end.
    pub(crate) fn bytes(&self, range: &Range<u64>) -> Option<&[u8]> {
        let range = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
        self.body.data().as_ref().get(range)
    }

    /// Checks that the bytes read so far are those of the shard: the file was neither truncated nor written to. Writes
    /// are detected as far as possible without reading the file again.
    pub(crate) fn check(&self, catalog: &Catalog) -> Result<(), DatasetError> {
        let files = std::iter::once(self.body.data()).chain(self.body.late_data());
        for (guard, bytes) in self.guards.iter().zip(files) {
            if !guard.is_unchanged(bytes)? {
                return Err(catalog.changed(self.shard));
            }
        }
        Ok(())
    }

    /// Returns the format error of a sample of this shard; `None` if the sample is valid.
    pub(crate) fn explain(&self, catalog: &Catalog, at: u64) -> Option<DatasetError> {
        self.find(catalog, at, |_| false).err()
    }
}

fn last_mark(bytes: &ShardBytes) -> Option<(usize, u8)> {
    let ShardBytes::Mapped(mapping) = bytes else {
        return None;
    };
    let bytes = mapping.bytes();
    let at = bytes.iter().rposition(|byte| *byte != 0)?;
    Some((at, *bytes.get(at)?))
}

impl Guard {
    fn is_unchanged(&self, bytes: &ShardBytes) -> Result<bool, DatasetError> {
        let ShardBytes::Mapped(mapping) = bytes else {
            return Ok(true);
        };
        let is_marked = |(at, byte): (usize, u8)| mapping.bytes().get(at) == Some(&byte);
        Ok(self.mark.is_none_or(is_marked) && !mapping.is_damaged() && self.is_unwritten()?)
    }

    /// Checks from time to time whether the file has been written to.
    fn is_unwritten(&self) -> Result<bool, DatasetError> {
        let now = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        if now
            < self
                .checked_at
                .load(Ordering::Relaxed)
                .saturating_add(CHECK_AGAIN_MS)
        {
            return Ok(true);
        }
        self.checked_at.store(now, Ordering::Relaxed);
        let found = match self.dir.open_file(&self.name) {
            Ok(file) => file.identity()?,
            // Removed or replaced: the open file is still complete.
            Err(error) if error.is_not_found() => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        Ok(!found.is_same_file(&self.identity) || found == self.identity)
    }
}
