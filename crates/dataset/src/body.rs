//! The bytes of a shard whose structure has been checked.

use std::sync::Arc;

use shardmill_mds::{LateConfigs, OwnedShard as MdsShard, ShardEntry};
use shardmill_webdataset::{ShardView as TarShard, read_offsets};

use crate::catalog::Catalog;
use crate::entry::Entry;
use crate::error::DatasetError;
use crate::mapped::Piece;

/// The bytes of a shard whose structure has been checked.
#[derive(Debug)]
pub enum Body<B> {
    /// A shard of an MDS index.
    Mds(MdsShard<B>),
    /// A shard of an MDS index, and the shard of its late columns.
    Late(Box<LateShard<B>>),
    /// A tar file.
    Tar(TarShard<B>),
    /// The whole file is one sample.
    File(B),
}

/// A shard with late columns.
#[derive(Debug)]
pub struct LateShard<B> {
    /// The file of the dataset.
    pub base: MdsShard<B>,
    /// The file with the late columns.
    pub late: MdsShard<B>,
    configs: Arc<LateConfigs>,
}

impl<B: AsRef<[u8]>> Body<B> {
    /// Checks the structure of a shard, and compares it with its index entry.
    pub fn open(
        catalog: &Catalog,
        shard: usize,
        data: B,
        meta: Option<B>,
    ) -> Result<Self, DatasetError> {
        let entry = catalog
            .entry(shard)
            .ok_or_else(|| catalog.no_shard(shard))?;
        let limits = catalog.limits();
        let location = || catalog.location(shard);
        let first = catalog.first_sample(shard);
        match entry {
            Entry::Mds(entry) => {
                // The entry of a computed shard has the largest expected length.
                let sized = catalog.is_computed(shard).then(|| {
                    let mut sized = entry.clone();
                    sized.raw_data.bytes = data.as_ref().len() as u64;
                    sized
                });
                let entry = sized.as_ref().unwrap_or(entry);
                let open = |entry: &ShardEntry, data, meta| {
                    MdsShard::open(entry, data, meta, limits)
                        .map_err(|source| DatasetError::shard(location(), first, source))
                };
                let (Some([base, late]), Some(configs)) = (entry.halves(), &entry.config.late)
                else {
                    return Ok(Self::Mds(open(entry, data, meta)?));
                };
                let meta = meta.ok_or_else(|| DatasetError::shard_changed(location()))?;
                Ok(Self::Late(Box::new(LateShard {
                    base: open(&base, data, None)?,
                    late: open(&late, meta, None)?,
                    configs: Arc::clone(configs),
                })))
            }
            Entry::Tar(entry) => {
                let opened = match meta {
                    None => TarShard::open(data, limits),
                    Some(table) => {
                        let offsets = read_offsets(table.as_ref(), entry.samples);
                        let file = entry.offsets.as_ref().map(|file| file.basename.to_string());
                        let offsets = offsets.map_err(|source| {
                            DatasetError::tar_index(file.unwrap_or_default(), source)
                        })?;
                        TarShard::with_offsets(data, offsets, limits)
                    }
                };
                let owned = opened.map_err(|source| DatasetError::tar_shard(location(), source))?;
                let found = (owned.offsets().len() as u64).saturating_sub(1);
                if found != entry.samples {
                    return Err(DatasetError::tar_samples(location(), entry.samples, found));
                }
                Ok(Self::Tar(owned))
            }
            Entry::File(..) => Ok(Self::File(data)),
        }
    }

    /// Returns the raw bytes.
    pub fn data(&self) -> &B {
        match self {
            Self::Mds(owned) => owned.data(),
            Self::Late(halves) => halves.base.data(),
            Self::Tar(owned) => owned.data(),
            Self::File(data) => data,
        }
    }

    /// Returns the raw bytes of the late columns.
    pub fn late_data(&self) -> Option<&B> {
        match self {
            Self::Late(halves) => Some(halves.late.data()),
            Self::Mds(_) | Self::Tar(_) | Self::File(_) => None,
        }
    }

    /// Returns the encoded bytes of a sample, without late columns; `None` if it does not exist or its offsets are outside
    /// the data.
    #[inline]
    pub fn sample(&self, at: u64) -> Option<Piece<'_>> {
        let at = usize::try_from(at).ok()?;
        let (begin, end) = match self {
            Self::Mds(owned) => return mds_sample(owned, at),
            Self::Late(halves) => return mds_sample(&halves.base, at),
            Self::Tar(owned) => {
                let [begin, end] = owned.offsets().get(at..)?.first_chunk()?;
                (*begin, *end)
            }
            Self::File(data) => {
                let bytes = data.as_ref();
                return (at == 0).then_some(Piece { begin: 0, bytes });
            }
        };
        let range = usize::try_from(begin).ok()?..usize::try_from(end).ok()?;
        let bytes = self.data().as_ref().get(range)?;
        Some(Piece { begin, bytes })
    }

    /// Appends the encoded bytes of a sample with its late columns. Returns `None` if the shard has none, or if the sample
    /// cannot be read.
    pub fn join_sample(&self, at: u64, out: &mut Vec<u8>) -> Option<()> {
        let (Self::Late(halves), at) = (self, usize::try_from(at).ok()?) else {
            return None;
        };
        let (base, late) = (mds_sample(&halves.base, at)?, mds_sample(&halves.late, at)?);
        halves.configs.join(base.bytes, late.bytes, out)
    }
}

#[inline]
fn mds_sample<B: AsRef<[u8]>>(owned: &MdsShard<B>, at: usize) -> Option<Piece<'_>> {
    let (begin, rest) = owned.table().get(4 + 4 * at..)?.split_first_chunk::<4>()?;
    let (begin, end) = (u32::from_le_bytes(*begin), rest.first_chunk::<4>()?);
    let range = usize::try_from(begin).ok()?..usize::try_from(u32::from_le_bytes(*end)).ok()?;
    Some(Piece {
        begin: u64::from(begin),
        bytes: owned.data().as_ref().get(range)?,
    })
}
