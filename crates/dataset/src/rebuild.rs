//! Rebuilds the index of MDS shards.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use shardmill_core::{Format, Limits, Progress, escape, lock, parallel};
use shardmill_mds::{
    Compression, FileHashes, FileInfo, Index, MdsError, ShardConfig, ShardEntry, ShardView,
    basename, read_config,
};
use shardmill_storage::Dir;

use crate::error::DatasetError;
use crate::listing::Listing;
use crate::problem::{DatasetProblem, ValueLocation};

/// Options for rebuilding an index.
#[derive(Clone, Debug, Default)]
pub struct RebuildOptions {
    /// Limits on what a file may demand, such as memory.
    pub limits: Limits,
    /// The number of shards to read in parallel; 0 for one per core.
    pub jobs: usize,
}

/// Rebuilds the index of the shards in a directory from their own headers. If all shards exist, this is the index that
/// their writer made. An existing `index.json` is not read.
///
/// Only files named like shards are read, such as `shard.00000.mds.zstd`. If the header declares a compression, the
/// compressed file is the shard and a raw one next to it is ignored, and vice versa.
///
/// # Errors
///
/// [`DatasetProblem::Unfinished`], [`DatasetProblem::Uncommitted`] if an unfinished conversion left its journal or uncommitted parts;
/// [`DatasetProblem::NoShards`]; [`DatasetProblem::Gap`] if a number is missing; [`DatasetProblem::Ambiguous`],
/// [`DatasetProblem::Format`], [`DatasetProblem::StoredForm`], [`DatasetProblem::PartnerMissing`] if the files do not match;
/// [`DatasetError::Reading`] for damaged shards; `Interrupted`.
pub fn rebuild_index(
    path: &Path,
    options: &RebuildOptions,
    progress: &Progress,
) -> Result<Index, DatasetError> {
    let dir = Dir::open(path)?;
    if let Some(found) = Listing::Local(dir.clone()).unfinished()? {
        return Err(DatasetError::unfinished(path, found, ""));
    }
    let found = find(&dir, &options.limits)?;
    progress.set_totals(0, 0, found.len() as u64);
    let configs = Mutex::new(Vec::new());
    let shards = parallel::map(found.len(), options.jobs, |shard| {
        DatasetError::check_cancelled(progress)?;
        let Some(files) = found.get(shard) else {
            return Ok::<_, DatasetError>(None);
        };
        let rebuild = Rebuild {
            dir: &dir,
            limits: &options.limits,
            progress,
            configs: &configs,
            files,
        };
        let entry = rebuild.entry()?;
        progress.add_samples(entry.samples);
        progress.add_shard(0);
        Ok(Some(entry))
    })?;
    Ok(Index {
        shards: shards.into_iter().flatten().collect(),
    })
}

/// The files of one shard, according to their names.
#[derive(Debug)]
struct Files {
    number: u64,
    format: Format,
    data: Forms,
    meta: Forms,
}

/// Which forms of a file exist: the raw one, and a compressed one with its compression.
#[derive(Clone, Copy, Debug, Default)]
struct Forms {
    raw: bool,
    zip: Option<Compression>,
}

/// Parses the name of a shard file: its number, format, whether it is the offsets, and its compression.
fn parse_name(name: &str) -> Option<(u64, Format, bool, Option<Compression>)> {
    let mut rest = name.strip_prefix("shard.")?.split('.');
    let number: u64 = rest.next()?.parse().ok()?;
    let format: Format = rest.next()?.parse().ok()?;
    let mut last = rest.next();
    let meta = last == Some("meta") && format.is_split();
    if meta {
        last = rest.next();
    }
    // File extensions are the names of compressions without a level.
    let compression: Option<Compression> = last.map(str::parse).transpose().ok()?;
    let exact = basename(number, format, meta, compression.as_ref()) == name;
    exact.then_some((number, format, meta, compression))
}

fn find(dir: &Dir, limits: &Limits) -> Result<Vec<Files>, DatasetError> {
    let mut found: BTreeMap<u64, Files> = BTreeMap::new();
    for name in dir.list()? {
        let Some((number, format, meta, compression)) = parse_name(&name) else {
            continue;
        };
        let files = found.entry(number).or_insert_with(|| Files {
            number,
            format,
            data: Forms::default(),
            meta: Forms::default(),
        });
        let ambiguous = |other: String| {
            let other = escape(&other).into_owned();
            let reason = format!("`{other}` could be the same shard; only one can be indexed");
            DatasetProblem::Ambiguous.at(ValueLocation::file(&name), reason)
        };
        if files.format != format {
            let other = files.any_name();
            return Err(ambiguous(other));
        }
        let forms = if meta {
            &mut files.meta
        } else {
            &mut files.data
        };
        match (compression, forms.zip) {
            (None, _) => forms.raw = true,
            (Some(_), None) => forms.zip = compression,
            (Some(_), Some(other)) => {
                return Err(ambiguous(basename(number, format, meta, Some(&other))));
            }
        }
    }
    let Some((&last, _)) = found.last_key_value() else {
        return Err(
            DatasetProblem::NoShards.at(dir.path(), "there are no shards in this directory")
        );
    };
    let count = found.len() as u64;
    DatasetError::check_limit(("shards", limits.shards), count, || dir.path().to_owned())?;
    if let Some((missing, _)) = (0_u64..)
        .zip(found.keys())
        .find(|(expected, number)| expected != *number)
    {
        return Err(DatasetProblem::Gap.at(
            dir.path(),
            format!(
                "shard {missing} is missing: the directory has {count} shards, the last of them number {last}"
            ),
        ));
    }
    Ok(found.into_values().collect())
}

impl Files {
    fn name(&self, meta: bool, compression: Option<&Compression>) -> String {
        basename(self.number, self.format, meta, compression)
    }

    /// Returns the names of all existing files.
    fn names(&self) -> impl Iterator<Item = String> {
        [(false, self.data), (true, self.meta)]
            .into_iter()
            .flat_map(|(meta, forms)| {
                let raw = forms.raw.then(|| self.name(meta, None));
                let zip = forms.zip.map(|zip| self.name(meta, Some(&zip)));
                [raw, zip].into_iter().flatten()
            })
    }

    fn any_name(&self) -> String {
        self.names().next().unwrap_or_default()
    }

    fn forms(&self, meta: bool) -> Forms {
        if meta { self.meta } else { self.data }
    }
}

/// One file of a shard in memory.
struct Loaded {
    name: String,
    raw: Vec<u8>,
    /// The stored bytes, if the file is compressed.
    zipped: Option<Vec<u8>>,
}

struct Rebuild<'a> {
    dir: &'a Dir,
    limits: &'a Limits,
    progress: &'a Progress,
    configs: &'a Mutex<Vec<Arc<ShardConfig>>>,
    files: &'a Files,
}

impl Rebuild<'_> {
    fn entry(&self) -> Result<ShardEntry, DatasetError> {
        let split = self.files.format.is_split();
        self.check_partner(split)?;
        let forms = self.files.forms(split);
        let mut head = self.load(split, forms.zip)?;
        let (mut config, mut samples) = self.read_config(&head, split)?;
        if forms.zip.is_some() && forms.raw && config.compression.is_none() {
            // The compressed file is a copy that another program made.
            head = self.load(split, None)?;
            (config, samples) = self.read_config(&head, split)?;
        }
        self.check_form(&head.name, split, &config)?;
        let (data, meta) = if split {
            let name = self.files.name(false, config.compression.as_ref());
            if !self.files.names().any(|there| there == name) {
                return Err(self.stored_form(&head.name, &name));
            }
            (self.load(false, config.compression)?, Some(head))
        } else {
            (head, None)
        };
        let config = self.shared(config);
        let (raw_data, zip_data) = self.infos(&data, false, &config);
        let infos = meta.as_ref().map(|meta| self.infos(meta, true, &config));
        let (raw_meta, zip_meta) = infos.unzip();
        let entry = ShardEntry {
            config,
            samples,
            raw_data,
            zip_data,
            raw_meta,
            zip_meta: zip_meta.flatten(),
        };
        let offsets = meta.as_ref().map(|meta| meta.raw.as_slice());
        ShardView::open(&entry, &data.raw, offsets, self.limits)
            .map_err(|source| shard_error(&data.name, source))?;
        Ok(entry)
    }

    /// Checks that both files of a shard exist, in any form.
    fn check_partner(&self, split: bool) -> Result<(), DatasetError> {
        let is_there = |meta| {
            let Forms { raw, zip } = self.files.forms(meta);
            raw || zip.is_some()
        };
        for meta in [false, true] {
            if (!meta || split) && !is_there(meta) {
                return Err(DatasetProblem::PartnerMissing.at(
                    ValueLocation::file(&self.files.any_name()),
                    format!(
                        "`{}`, which belongs to it, is missing",
                        escape(&self.files.name(meta, None))
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Checks that the file has the format and the compression of its own config.
    fn check_form(&self, name: &str, meta: bool, config: &ShardConfig) -> Result<(), DatasetError> {
        if config.format() != self.files.format {
            return Err(DatasetProblem::Format.at(
                ValueLocation::file(name),
                format!("its header is of a {} shard", config.format().name()),
            ));
        }
        let expected = self.files.name(meta, config.compression.as_ref());
        if expected == name {
            Ok(())
        } else {
            Err(self.stored_form(name, &expected))
        }
    }

    fn stored_form(&self, name: &str, expected: &str) -> DatasetError {
        let expected = escape(expected);
        let reason = format!("its header says it is stored as `{expected}`, which is missing");
        DatasetProblem::StoredForm.at(ValueLocation::file(name), reason)
    }

    fn read_config(&self, head: &Loaded, meta: bool) -> Result<(ShardConfig, u64), DatasetError> {
        read_config(&head.raw, meta, self.limits).map_err(|source| shard_error(&head.name, source))
    }

    /// Returns the index entries of a file: the raw one, and the compressed one if the file is compressed.
    fn infos(
        &self,
        file: &Loaded,
        meta: bool,
        config: &ShardConfig,
    ) -> (FileInfo, Option<FileInfo>) {
        let info = |name: String, bytes: &[u8]| FileInfo {
            basename: name.into_boxed_str(),
            bytes: bytes.len() as u64,
            hashes: FileHashes::of(&config.hashes, bytes),
        };
        let zip = file
            .zipped
            .as_ref()
            .map(|zipped| info(file.name.clone(), zipped));
        (info(self.files.name(meta, None), &file.raw), zip)
    }

    fn load(&self, meta: bool, compression: Option<Compression>) -> Result<Loaded, DatasetError> {
        let name = self.files.name(meta, compression.as_ref());
        let file = self.dir.open_file(&name)?;
        let limit = self.limits.shard_bytes;
        DatasetError::check_limit(("shard-bytes", limit), file.len(), || {
            file.path().to_owned()
        })?;
        let stored = file.read_all(limit)?;
        self.progress.add_input_bytes(stored.len() as u64);
        let (raw, zipped) = match compression {
            None => (stored, None),
            Some(compression) => {
                let raw = compression.decompress(&stored, None, self.limits);
                let location = || ValueLocation::file(&name);
                let raw = raw.map_err(|source| DatasetError::decompress(location(), source))?;
                (raw, Some(stored))
            }
        };
        Ok(Loaded { name, raw, zipped })
    }

    /// Returns the shared copy of a config. Only the latest configs are compared: a dataset has one, or a few in a row
    /// if it was merged.
    fn shared(&self, config: ShardConfig) -> Arc<ShardConfig> {
        const LATEST: usize = 16;
        let mut configs = lock(self.configs);
        if let Some(same) = configs
            .iter()
            .rev()
            .take(LATEST)
            .find(|known| ***known == config)
        {
            return Arc::clone(same);
        }
        let config = Arc::new(config);
        configs.push(Arc::clone(&config));
        config
    }
}

/// Makes an error about a shard that is in no dataset yet: its samples have no other numbers.
fn shard_error(name: &str, source: MdsError) -> DatasetError {
    DatasetError::reading("cannot read the shard", ValueLocation::file(name), source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_shard_names_are_parsed() {
        let zstd: Compression = "zstd".parse().unwrap();
        for (name, expected) in [
            ("shard.00000.mds", Some((0, Format::Mds, false, None))),
            (
                "shard.00012.mds.zstd",
                Some((12, Format::Mds, false, Some(zstd))),
            ),
            (
                "shard.123456.tsv.meta",
                Some((123_456, Format::Tsv, true, None)),
            ),
            (
                "shard.00000.json.meta.zstd",
                Some((0, Format::Json, true, Some(zstd))),
            ),
            ("shard.00000.mds.meta", None),
            ("shard.0000.mds", None),
            ("shard.000000.mds", None),
            ("shard.+0001.mds", None),
            ("shard.00000.mds.zst", None),
            ("shard.00000.mds.zstd:3", None),
            ("shard.00000.mds.zstd.zstd", None),
            ("shard.00000.mds.tmp", None),
            ("shard.00000", None),
            ("shard.99999999999999999999.mds", None),
            ("index.json", None),
        ] {
            assert_eq!(parse_name(name), expected, "{name}");
        }
    }
}
