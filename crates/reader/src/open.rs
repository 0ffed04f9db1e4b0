//! A shard that is open for reading: its bytes at hand, its structure checked once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use shardmill_mds::{OwnedShard, ShardError, ShardView};
use shardmill_memory::Mapping;
use shardmill_storage::{Dir, FileHandle, FileIdentity, StorageError};

use crate::catalog::Catalog;
use crate::error::ReaderError;
use crate::schema::Schema;

/// How long a file that is in use goes without being looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The bytes of a file.
#[derive(Debug)]
enum Held {
    Mapped(Mapping),
    Memory(Vec<u8>),
}

impl AsRef<[u8]> for Held {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Mapped(mapping) => mapping.bytes(),
            Self::Memory(bytes) => bytes,
        }
    }
}

/// A shard whose header, offsets and config were checked when it was opened.
///
/// A mapped file shows what is in it at the time of reading, so offsets are checked again at each use, and whoever has
/// copied bytes calls [`OpenShard::check`] before giving them away.
#[derive(Debug)]
pub(crate) struct OpenShard {
    shard: usize,
    schema: Arc<Schema>,
    samples: u64,
    owned: OwnedShard<Held>,
    /// Where the offsets are: in the data, or in a file of their own.
    meta: Option<Vec<u8>>,
    mark: Option<Mark>,
    watch: Option<Watch>,
}

/// The last byte of the data that is not zero. A file that is cut, and whose missing bytes read as zeros, either has it
/// no longer, or lost nothing but zeros.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: usize,
    byte: u8,
}

/// Looks at a file again from time to time: whether somebody writes into it.
#[derive(Debug)]
struct Watch {
    dir: Dir,
    name: String,
    identity: FileIdentity,
    opened: Instant,
    /// Milliseconds after `opened`.
    looked: AtomicU64,
}

impl OpenShard {
    /// Maps the data of a shard and checks what the index says about it. `dir` and the name that the data was opened by
    /// are kept to notice when it is written to.
    pub(crate) fn map(
        catalog: &Catalog,
        shard: usize,
        dir: &Dir,
        data: &FileHandle,
        meta: Option<&FileHandle>,
    ) -> Result<Self, ReaderError> {
        let limit = catalog.limits().shard_bytes;
        shardmill_core::Limits::check("shard-bytes", data.len(), limit).map_err(|source| {
            ReaderError::Limit {
                path: data.path().to_owned(),
                source,
            }
        })?;
        let meta = meta.map(|meta| meta.read_all(limit)).transpose()?;
        let failed = |source| StorageError::Io {
            action: "map",
            path: data.path().to_owned(),
            source,
        };
        let bytes = usize::try_from(data.len()).map_err(|_| StorageError::OutOfMemory {
            path: data.path().to_owned(),
            bytes: data.len(),
        })?;
        use std::os::fd::AsFd as _;
        let mapping = Mapping::new(data.as_fd(), bytes).map_err(failed)?;
        let mut open = Self::new(catalog, shard, Held::Mapped(mapping), meta)?;
        let name = catalog
            .entry(shard)
            .map(|entry| entry.raw_data.basename.to_string());
        open.watch = Some(Watch {
            dir: dir.clone(),
            name: name.unwrap_or_default(),
            identity: data.identity()?,
            opened: Instant::now(),
            looked: AtomicU64::new(0),
        });
        Ok(open)
    }

    /// A shard whose bytes are in memory.
    pub(crate) fn in_memory(
        catalog: &Catalog,
        shard: usize,
        data: Vec<u8>,
        meta: Option<Vec<u8>>,
    ) -> Result<Self, ReaderError> {
        Self::new(catalog, shard, Held::Memory(data), meta)
    }

    fn new(
        catalog: &Catalog,
        shard: usize,
        data: Held,
        meta: Option<Vec<u8>>,
    ) -> Result<Self, ReaderError> {
        let (Some(entry), Some(schema)) = (catalog.entry(shard), catalog.schema(shard)) else {
            return Err(ReaderError::NoSuchShard {
                shard: shard as u64,
                shards: catalog.len() as u64,
            });
        };
        let mark = match &data {
            Held::Mapped(mapping) => {
                let bytes = mapping.bytes();
                let at = bytes.iter().rposition(|byte| *byte != 0);
                at.and_then(|at| {
                    Some(Mark {
                        at,
                        byte: *bytes.get(at)?,
                    })
                })
            }
            Held::Memory(_) => None,
        };
        let owned = OwnedShard::open(
            entry,
            data,
            meta.clone().map(Held::Memory),
            catalog.limits(),
        )
        .map_err(|source| {
            ReaderError::shard(catalog.place(shard), catalog.first_sample(shard), source)
        })?;
        Ok(Self {
            shard,
            schema: Arc::clone(schema),
            samples: entry.samples,
            owned,
            meta,
            mark,
            watch: None,
        })
    }

    /// Its number among the shards of all streams.
    pub(crate) const fn number(&self) -> usize {
        self.shard
    }

    pub(crate) const fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// The shard as the format crate shows it.
    pub(crate) fn view(&self) -> ShardView<'_> {
        self.owned.view()
    }

    /// The encoded bytes of a sample; `None` for one that there is not, or whose offsets lead outside.
    #[inline]
    pub(crate) fn sample(&self, at: u64) -> Option<&[u8]> {
        if at >= self.samples {
            return None;
        }
        let data = self.owned.data().as_ref();
        let table = self.meta.as_deref().unwrap_or(data);
        let start = 4 + 4 * usize::try_from(at).ok()?;
        let (begin, rest) = table.get(start..)?.split_first_chunk::<4>()?;
        let end = rest.first_chunk::<4>()?;
        let begin = usize::try_from(u32::from_le_bytes(*begin)).ok()?;
        let end = usize::try_from(u32::from_le_bytes(*end)).ok()?;
        data.get(begin..end)
    }

    /// Whether the bytes read so far are those of the shard: nobody has cut the file, and as far as can be told
    /// without reading it again nobody has written to it.
    pub(crate) fn check(&self, catalog: &Catalog) -> Result<(), ReaderError> {
        let Some(watch) = &self.watch else {
            return Ok(());
        };
        let data = self.owned.data();
        let Held::Mapped(mapping) = data else {
            return Ok(());
        };
        let marked = self
            .mark
            .is_none_or(|mark| mapping.bytes().get(mark.at) == Some(&mark.byte));
        if !marked || mapping.is_damaged() || !watch.is_unchanged()? {
            return Err(ReaderError::ShardChanged {
                place: catalog.place(self.shard),
            });
        }
        Ok(())
    }

    /// An error of the format crate about a sample of this shard.
    pub(crate) fn error(&self, catalog: &Catalog, source: ShardError) -> ReaderError {
        let first = catalog.first_sample(self.shard);
        ReaderError::shard(catalog.place(self.shard), first, source)
    }
}

impl Watch {
    fn is_unchanged(&self) -> Result<bool, ReaderError> {
        let now = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        let looked = self.looked.load(Ordering::Relaxed);
        let pause = u64::try_from(LOOK_AGAIN.as_millis()).unwrap_or(u64::MAX);
        if now < looked.saturating_add(pause) {
            return Ok(true);
        }
        self.looked.store(now, Ordering::Relaxed);
        let found = match self.dir.open_file(&self.name) {
            Ok(file) => file.identity()?,
            // Removed, or another file in its place: the one that is open is whole all the same.
            Err(error) if error.is_not_found() => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        Ok(!found.is_same_file(&self.identity) || found == self.identity)
    }
}
