//! Shards whose late columns are in a second file.
//!
//! Late columns are added to a dataset that exists. Each sample is then stored as two samples at the same position of two
//! shards. The joined sample is an ordinary one with the columns of both: the lengths of all variable columns come first,
//! then all values.

use std::sync::Arc;

use shardmill_codec::{FileHashes, FileInfo};
use shardmill_core::Limits;

use crate::config::{LateConfigs, Layout, ShardConfig, duplicate};
use crate::error::{MdsError, MdsProblem, no_part};
use crate::index::ShardEntry;
use crate::shard::{ShardView, encode_header};

impl LateConfigs {
    /// Appends the joined sample. Returns `None` if one of the samples is shorter than the lengths of its columns.
    #[must_use]
    pub fn join(&self, base: &[u8], late: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let (base_head, base) = base.split_at_checked(self.base.head_bytes())?;
        let (late_head, late) = late.split_at_checked(self.late.head_bytes())?;
        for part in [base_head, late_head, base, late] {
            out.extend_from_slice(part);
        }
        Some(())
    }
}

impl ShardConfig {
    /// Returns the config of samples with the columns of this config, then those of `late`.
    ///
    /// # Errors
    ///
    /// A column that is in both; [`MdsProblem::Part`] for other formats than MDS.
    pub fn with_late(self: &Arc<Self>, late: &Arc<Self>) -> Result<Self, MdsError> {
        let (Layout::Mds { columns: own }, Layout::Mds { columns: added }) =
            (&self.layout, &late.layout)
        else {
            let format = match self.mds_columns() {
                Some(_) => late.format(),
                None => self.format(),
            };
            return Err(no_part(format, "late columns"));
        };
        let columns = [own.as_slice(), added.as_slice()].concat();
        let mut names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        names.sort_unstable();
        duplicate(names.into_iter())?;
        Ok(Self {
            layout: Layout::Mds { columns },
            late: Some(Arc::new(LateConfigs {
                base: Arc::clone(self),
                late: Arc::clone(late),
            })),
            ..Self::clone(self)
        })
    }
}

impl ShardEntry {
    /// Returns the entry of the shard with the late columns of another one. `config` is
    /// [`ShardConfig::with_late`] of both.
    #[must_use]
    pub fn with_late(&self, late: &Self, config: Arc<ShardConfig>) -> Self {
        Self {
            config,
            raw_meta: Some(late.raw_data.clone()),
            zip_meta: late.zip_data.clone(),
            ..self.clone()
        }
    }

    /// Returns the entries of the two files of a shard with late columns: without these columns, and with only these.
    #[must_use]
    pub fn halves(&self) -> Option<[Self; 2]> {
        let configs = self.config.late.as_ref()?;
        let half = |config: &Arc<ShardConfig>, raw: &FileInfo, zip: &Option<FileInfo>| Self {
            config: Arc::clone(config),
            samples: self.samples,
            raw_data: raw.clone(),
            zip_data: zip.clone(),
            raw_meta: None,
            zip_meta: None,
        };
        Some([
            half(&configs.base, &self.raw_data, &self.zip_data),
            half(&configs.late, self.raw_meta.as_ref()?, &self.zip_meta),
        ])
    }
}

/// Joins the two raw files of a shard with late columns into one shard. Returns its entry, which has no hashes, and its
/// bytes.
///
/// # Errors
///
/// Errors of [`ShardView::open`] for one of the files; [`MdsProblem::SampleHead`];
/// [`MdsProblem::ShardTooLarge`]; [`MdsProblem::Part`] for a shard without late columns.
pub fn join_shard(
    entry: &ShardEntry,
    data: &[u8],
    late: &[u8],
    limits: &Limits,
) -> Result<(ShardEntry, Vec<u8>), MdsError> {
    let (Some([base_half, late_half]), Some(configs)) = (entry.halves(), &entry.config.late) else {
        return Err(no_part(entry.config.format(), "late columns"));
    };
    let base = ShardView::open(&base_half, data, None, limits)?;
    let late = ShardView::open(&late_half, late, None, limits)?;
    let mut sizes = Vec::new();
    for at in 0..base.len() {
        let bytes = (base.sample(at)?.len() as u64).saturating_add(late.sample(at)?.len() as u64);
        sizes.push(u32::try_from(bytes).map_err(|_| MdsError::shard_too_large(bytes))?);
    }
    let config = Arc::new(ShardConfig {
        late: None,
        ..ShardConfig::clone(&entry.config)
    });
    let mut joined = Vec::new();
    encode_header(&config, &config.to_json(), sizes.into_iter(), &mut joined)?;
    for at in 0..base.len() {
        let sample = configs.join(base.sample(at)?, late.sample(at)?, &mut joined);
        sample.ok_or_else(|| {
            let reason = "is shorter than the lengths of its columns";
            MdsProblem::SampleHead.of_sample(at, reason)
        })?;
    }
    let joined_entry = ShardEntry {
        config,
        raw_data: FileInfo {
            basename: entry.raw_data.basename.clone(),
            bytes: joined.len() as u64,
            hashes: FileHashes::default(),
        },
        zip_data: None,
        raw_meta: None,
        zip_meta: None,
        ..entry.clone()
    };
    Ok((joined_entry, joined))
}
