//! Checks the shards of a dataset of any format on several threads, and collects the findings in a report.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use shardmill_core::{Error, Progress, lock, parallel};
use shardmill_mds::{Content, FileInfo, digest};
use shardmill_webdataset::Consumer;

use crate::error::DatasetError;
use crate::problem::ValueLocation;
use crate::report::{Findings, Found, Problem, ReadTotals, VerifyReport};
use crate::side_files::{Converted, SideFiles};

/// Options for verifying a dataset.
#[derive(Clone, Debug, Default)]
pub struct VerifyOptions {
    /// Decode every value of every sample, and compare the samples with the content hash that the conversion recorded
    /// in `index.provenance`.
    pub deep: bool,
    /// Check only the shards with live samples, for example those of a view. The samples are then not compared with the
    /// content hash, which is of all of them.
    pub live_only: bool,
    /// The readers of tar shards whose rules are checked, too. Only with readers are there warnings of what some reader
    /// changes or skips.
    pub readers: BTreeSet<Consumer>,
    /// The number of shards to check in parallel; 0 for one per core.
    pub jobs: usize,
}

/// The check of one shard: what it has read and found so far.
#[derive(Debug, Default)]
pub struct ShardCheck {
    /// The number of the shard.
    pub shard: usize,
    /// The bytes of its files, for the progress.
    pub bytes: u64,
    pub(crate) samples: u64,
    /// Samples that can be found.
    pub sound_samples: u64,
    /// What was read.
    pub read: ReadTotals,
    pub(crate) problems: Found,
    pub(crate) warnings: Found,
    /// The content hash of the samples, if it was computed and all of them were read.
    pub(crate) content: Option<Content>,
}

impl ShardCheck {
    /// Adds an error as a problem. Paths in `root` are shown relative to it.
    pub(crate) fn error(&mut self, root: &Path, error: &DatasetError) {
        self.problems.push(|| Problem::new(error, root, self.shard));
    }

    /// Adds an error about the file `name` as a problem.
    pub fn file_error(&mut self, name: &str, error: impl Into<Error>) {
        self.problems.push(|| Problem {
            shard: Some(self.shard as u64),
            ..Problem::of_file(name, &error.into())
        });
    }

    /// Compares the bytes of the file `name` with all hashes that the index declares, and returns whether they have them.
    /// `raw` says whether they are the raw bytes of a compressed file.
    pub(crate) fn hashes(&mut self, name: &str, file: &FileInfo, bytes: &[u8], raw: bool) -> bool {
        let mut sound = true;
        for expected in file.hashes.iter() {
            self.read.hashes += 1;
            let found = digest(expected.algo(), bytes);
            if let Err(source) = file.hashes.check_digest(found) {
                sound = false;
                let location = ValueLocation::file(name);
                self.error(Path::new(""), &DatasetError::hash(location, raw, source));
            }
        }
        sound
    }
}

/// The checks of all shards.
#[derive(Debug)]
pub(crate) struct Checked {
    /// The sums over all shards.
    pub(crate) counts: VerifyReport,
    pub(crate) problems: Findings,
    pub(crate) warnings: Findings,
    content: Option<Content>,
}

/// Checks shards of one file each that have no side files, as an index of `index_bytes` bytes lists them. `check` is called
/// for each number below `shards`.
///
/// # Errors
///
/// The error of the first shard whose check fails; [`DatasetError::Interrupted`] after a cancellation.
pub fn check_files(
    shards: usize,
    index_bytes: u64,
    options: &VerifyOptions,
    progress: &Progress,
    check: impl Fn(&mut ShardCheck) -> Result<(), DatasetError> + Sync,
) -> Result<VerifyReport, DatasetError> {
    let shards: Vec<usize> = (0..shards).collect();
    let check = |found: &mut ShardCheck, (): &mut ()| check(found);
    let checked = check_shards(&shards, options.jobs, progress, check)?;
    Ok(checked.into_report(SideFiles::default(), options, [index_bytes]))
}

/// Calls `check` for each of these shards. Each thread has its own `M`.
///
/// # Errors
///
/// The error of the first shard whose check fails; [`DatasetError::Interrupted`] after a cancellation.
pub(crate) fn check_shards<M: Default>(
    shards: &[usize],
    jobs: usize,
    progress: &Progress,
    check: impl Fn(&mut ShardCheck, &mut M) -> Result<(), DatasetError> + Sync,
) -> Result<Checked, DatasetError> {
    let checked = Mutex::new(Checked {
        counts: VerifyReport {
            shards: shards.len() as u64,
            ..VerifyReport::default()
        },
        problems: Findings::default(),
        warnings: Findings::default(),
        content: Some(Content::default()),
    });
    parallel::for_each(shards.len(), jobs, |at, memory: &mut M| {
        DatasetError::check_cancelled(progress)?;
        let mut found = ShardCheck {
            shard: shards.get(at).copied().unwrap_or_default(),
            ..ShardCheck::default()
        };
        check(&mut found, memory)?;
        progress.add_input_bytes(found.bytes);
        progress.add_samples(found.samples);
        progress.add_shard(0);
        lock(&checked).add(found);
        Ok::<_, DatasetError>(())
    })?;
    Ok(checked.into_inner().unwrap_or_else(PoisonError::into_inner))
}

impl Checked {
    fn add(&mut self, found: ShardCheck) {
        let counts = &mut self.counts;
        counts.damaged_shards += u64::from(found.problems.count > 0);
        counts.samples = counts.samples.saturating_add(found.samples);
        counts.sound_samples = counts.sound_samples.saturating_add(found.sound_samples);
        counts.read.add(&found.read);
        self.problems.add(found.shard, found.problems);
        self.warnings.add(found.shard, found.warnings);
        let content = self.content.zip(found.content);
        self.content = content.map(|(sum, own)| sum.with(own));
    }

    /// Returns the report, after comparing the samples with the side files of the index. `indexes` are the lengths of the
    /// indexes that were read.
    pub(crate) fn into_report(
        mut self,
        side_files: SideFiles,
        options: &VerifyOptions,
        indexes: impl IntoIterator<Item = u64>,
    ) -> VerifyReport {
        for stored_bytes in indexes {
            self.counts.read.add(&ReadTotals {
                files: 1,
                stored_bytes,
                ..ReadTotals::default()
            });
        }
        let (problem, warning) = side_files.findings(options.deep);
        let converted = side_files.converted.filter(|_| options.compares_content());
        let compared = converted.map(|converted| converted.compare(self.content));
        let (content, differs) = compared.unzip();
        let of_all = problem.into_iter().chain(differs.flatten());
        self.problems.add(usize::MAX, of_all.collect());
        self.warnings.add(usize::MAX, warning.into_iter().collect());
        VerifyReport {
            deep: options.deep,
            content,
            problem_count: self.problems.count,
            warning_count: self.warnings.count,
            problems: self.problems.into_sorted(),
            warnings: self.warnings.into_sorted(),
            ..self.counts
        }
    }
}

impl VerifyOptions {
    const fn compares_content(&self) -> bool {
        self.deep && !self.live_only
    }

    /// Returns what to compare the content of the samples with.
    pub(crate) fn converted<'a>(&self, side_files: &'a SideFiles) -> Option<&'a Converted> {
        let converted = side_files.converted.as_ref();
        converted.filter(|_| self.compares_content())
    }
}
