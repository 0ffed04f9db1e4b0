//! An open shard: its bytes are mapped or in memory, and its structure has been checked.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use shardmill_dataset::{
    Body, Catalog, DatasetError, Entry, KEY_COLUMN, Piece, Schema, ShardBytes, map,
};
use shardmill_storage::{Dir, FileHandle, FileIdentity};

/// The time between two checks of a file in use for changes.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

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
    mark: Option<Mark>,
    watch: Option<Watch>,
}

/// The last byte of the data that is not zero. If the file is truncated, and its missing bytes read as zeros, either
/// this byte has changed, or only zeros were lost.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: usize,
    byte: u8,
}

/// Checks from time to time whether a file has been written to.
#[derive(Debug)]
struct Watch {
    dir: Dir,
    name: String,
    identity: FileIdentity,
    opened: Instant,
    /// The time of the last check, in milliseconds after `opened`.
    looked: AtomicU64,
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
        let meta = meta.map(|meta| meta.read_all(limit)).transpose()?;
        let is_unread = catalog
            .entry(shard)
            .is_some_and(|entry| matches!(entry, Entry::File(_, form) if !form.has_data()));
        let held = if is_unread {
            // Only the path of the file is used.
            ShardBytes::Memory(Vec::new())
        } else {
            ShardBytes::Mapped(map(data)?)
        };
        let mut open = Self::new(catalog, shard, held, meta)?;
        let name = catalog
            .entry(shard)
            .map(|entry| entry.data().basename.to_string());
        open.watch = Some(Watch {
            dir: dir.clone(),
            name: name.unwrap_or_default(),
            identity: data.identity()?,
            opened: Instant::now(),
            looked: AtomicU64::new(0),
        });
        Ok(open)
    }

    /// Opens a shard whose bytes are in memory.
    pub(crate) fn in_memory(
        catalog: &Catalog,
        shard: usize,
        data: Vec<u8>,
        meta: Option<Vec<u8>>,
    ) -> Result<Self, DatasetError> {
        Self::new(catalog, shard, ShardBytes::Memory(data), meta)
    }

    fn new(
        catalog: &Catalog,
        shard: usize,
        data: ShardBytes,
        meta: Option<Vec<u8>>,
    ) -> Result<Self, DatasetError> {
        let (Some(entry), Some(schema)) = (catalog.entry(shard), catalog.schema(shard)) else {
            return Err(catalog.no_shard(shard));
        };
        let mark = match &data {
            ShardBytes::Mapped(mapping) => {
                let bytes = mapping.bytes();
                let at = bytes.iter().rposition(|byte| *byte != 0);
                at.and_then(|at| {
                    Some(Mark {
                        at,
                        byte: *bytes.get(at)?,
                    })
                })
            }
            ShardBytes::Memory(_) => None,
        };
        let body = Body::open(catalog, shard, data, meta.map(ShardBytes::Memory))?;
        Ok(Self {
            shard,
            schema: Arc::clone(schema),
            samples: entry.samples(),
            body,
            mark,
            watch: None,
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

    /// Returns the value of a column of a sample; `None` if the sample does not have it.
    pub(crate) fn value(
        &self,
        catalog: &Catalog,
        at: u64,
        column: &str,
    ) -> Result<Option<Cow<'_, [u8]>>, DatasetError> {
        let place = || catalog.place(self.shard);
        let number = |at| catalog.number_of(self.shard, at);
        match &self.body {
            Body::Mds(owned) => {
                let fields = owned.view().fields(at);
                let fields =
                    fields.map_err(|source| DatasetError::shard_with(place(), number, source))?;
                let mut fields = fields.into_iter();
                let field = fields.find(|field| field.name == column);
                Ok(field.map(|field| Cow::Borrowed(field.datum)))
            }
            Body::Tar(owned) => {
                let mut fields = Vec::new();
                let key = owned.view().fields_into(at, &mut fields);
                let key = key.map_err(|source| DatasetError::tar(place(), number(at), source))?;
                if column == KEY_COLUMN {
                    return Ok(Some(Cow::Owned(key.into_bytes())));
                }
                let field = fields.into_iter().find(|field| field.name == column);
                Ok(field.map(|field| Cow::Borrowed(field.data)))
            }
            Body::File(_) => Ok(None),
        }
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
        // INVARIANT: the value is a part of the data.
        let start = self.body.data().as_ref().as_ptr().addr();
        let offset = value.as_ptr().addr().saturating_sub(start);
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
        let Some(watch) = &self.watch else {
            return Ok(());
        };
        let ShardBytes::Mapped(mapping) = self.body.data() else {
            return Ok(());
        };
        let marked = self
            .mark
            .is_none_or(|mark| mapping.bytes().get(mark.at) == Some(&mark.byte));
        if !marked || mapping.is_damaged() || !watch.is_unchanged()? {
            return Err(catalog.changed(self.shard));
        }
        Ok(())
    }

    /// Returns the format error of a sample of this shard; `None` if the sample is valid.
    pub(crate) fn explain(&self, catalog: &Catalog, at: u64) -> Option<DatasetError> {
        let place = catalog.place(self.shard);
        let number = |at| catalog.number_of(self.shard, at);
        match &self.body {
            Body::Mds(owned) => {
                let source = owned.view().fields(at).err()?;
                Some(DatasetError::shard_with(place, number, source))
            }
            Body::Tar(owned) => {
                let source = owned.view().fields(at).err()?;
                Some(DatasetError::tar(place, number(at), source))
            }
            Body::File(_) => None,
        }
    }
}

impl Watch {
    fn is_unchanged(&self) -> Result<bool, DatasetError> {
        let now = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        let looked = self.looked.load(Ordering::Relaxed);
        let pause = u64::try_from(LOOK_AGAIN.as_millis()).unwrap_or(u64::MAX);
        if now < looked.saturating_add(pause) {
            return Ok(true);
        }
        self.looked.store(now, Ordering::Relaxed);
        let found = match self.dir.open_file(&self.name) {
            Ok(file) => file.identity()?,
            // Removed or replaced: the open file is still complete.
            Err(error) if error.is_not_found() => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        Ok(!found.is_same_file(&self.identity) || found == self.identity)
    }
}
