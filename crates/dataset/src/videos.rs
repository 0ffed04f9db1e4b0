//! The index of the videos of a column: where each video is in its shard, and where its header is in the video.
//!
//! A reader fetches the header first, then the groups of pictures that it needs.

use std::path::Path;

use shardmill_core::{Progress, escape};
use shardmill_mds::{Layout, ShardEntry};

use crate::column_file::{ColumnFile, location_of};
use crate::dataset::Dataset;
use crate::error::DatasetError;
use crate::file_frame::FileFrame;
use crate::mp4::{Mp4Problem, header_of};
use crate::problem::{DatasetProblem, ValueLocation};

const FILE: ColumnFile = ColumnFile {
    frame: FileFrame {
        magic: b"smvideo\r\n",
        version: 1,
        kind: "an index of videos",
        damaged: DatasetProblem::VideoIndex,
        other_version: DatasetProblem::VideoIndex,
    },
    prefix: "index.videos.",
    note_bytes: 0,
    value_bytes: 4 * 8,
    values: "videos",
};

/// The ranges of the videos of a column in all stored samples of a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Videos {
    digest: [u8; 32],
    column: String,
    /// For each sample: the offset of the video in the raw shard, its length, and the range of its header.
    ranges: Vec<[u64; 4]>,
}

impl Videos {
    /// Returns the name of the file with the videos of a column, beside `index.json`. The column is written as in
    /// [`Lengths::file_name`](crate::Lengths::file_name).
    #[must_use]
    pub fn file_name(column: &str) -> String {
        FILE.name(column)
    }

    /// Returns whether a file has the name of an index of videos.
    #[must_use]
    pub fn is_file_name(name: &str) -> bool {
        FILE.is_name(name)
    }

    /// Reads the file with the videos of a column beside the index of a dataset. Returns `None` if there is none, or one of
    /// an earlier index.
    ///
    /// # Errors
    ///
    /// [`DatasetProblem::VideoIndex`] for a damaged file; errors of reading it.
    pub fn of(dataset: &Dataset, column: &str) -> Result<Option<Self>, DatasetError> {
        let (Some(bytes), path, target) = FILE.read(dataset, column)? else {
            return Ok(None);
        };
        let found = Self::parse(&bytes, path.as_path())?;
        let is_own = found.digest == target.digest
            && found.ranges.len() as u64 == target.live.stored()
            && found.column == column;
        Ok(is_own.then_some(found))
    }

    /// Finds the videos of a column of all stored samples, deleted ones included, on `jobs` threads. Reads every shard.
    ///
    /// # Errors
    ///
    /// [`DatasetProblem::VideoColumn`], [`DatasetProblem::VideoDamaged`], [`DatasetProblem::VideoFormat`]; errors of reading
    /// shards; [`DatasetError::Interrupted`].
    pub fn find(
        dataset: &Dataset,
        column: &str,
        jobs: usize,
        progress: &Progress,
    ) -> Result<Self, DatasetError> {
        let target = dataset.view_target()?;
        let found = dataset.map_shards(jobs, progress, |number, entry| {
            ranges_in(dataset, number, entry, column)
        })?;
        Ok(Self {
            digest: target.digest,
            column: column.to_owned(),
            ranges: found.concat(),
        })
    }

    fn parse(bytes: &[u8], path: &Path) -> Result<Self, DatasetError> {
        let parts = FILE.parse(bytes, &path.into())?;
        let (words, _) = parts.values.as_chunks::<8>();
        let (ranges, _) = words.as_chunks::<4>();
        let ranges = ranges.iter().map(|ranges| ranges.map(u64::from_le_bytes));
        Ok(Self {
            digest: parts.digest,
            column: parts.column,
            ranges: ranges.collect(),
        })
    }

    /// Returns the bytes of the file. Equal videos have equal bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let words = self.ranges.as_flattened().iter();
        let words: Vec<[u8; 8]> = words.map(|word| word.to_le_bytes()).collect();
        let (values, _) = words.as_flattened().as_chunks::<32>();
        FILE.to_bytes(&self.digest, &[], &self.column, values.iter().copied())
    }
}

fn ranges_in(
    dataset: &Dataset,
    number: usize,
    entry: &ShardEntry,
    column: &str,
) -> Result<Vec<[u64; 4]>, DatasetError> {
    let location = |sample| location_of(entry, sample, column);
    let refused = |reason: String| Err(DatasetProblem::VideoColumn.at(location(None), reason));
    let Layout::Mds { columns } = &entry.config.layout else {
        let format = entry.config.format().name();
        return refused(format!("an index of videos is of MDS, not of {format}"));
    };
    let Some(at) = columns.iter().position(|found| found.name == column) else {
        return refused(format!("there is no column `{}`", escape(column)));
    };
    let shard = dataset.load(number, entry)?;
    let view = shard.view();
    let data = view.data();
    let mut ranges = Vec::new();
    let mut fields = Vec::with_capacity(columns.len());
    for sample in 0..view.len() {
        let stored = shard.first_sample().saturating_add(sample);
        view.fields_into(sample, &mut fields).map_err(|source| {
            let file = ValueLocation::file(&entry.raw_data.basename);
            DatasetError::shard(file, shard.first_sample(), source)
        })?;
        let video = fields.get(at).map_or(&[][..], |field| field.datum);
        let header = header_of(video).map_err(|problem| {
            let (problem, reason) = match problem {
                Mp4Problem::Damaged(reason) => (DatasetProblem::VideoDamaged, reason),
                Mp4Problem::Unsupported(reason) => (DatasetProblem::VideoFormat, reason),
            };
            problem.at(location(Some(stored)), reason)
        })?;
        // INVARIANT: the value is a part of the data.
        let offset = video.as_ptr().addr().saturating_sub(data.as_ptr().addr());
        ranges.push([offset as u64, video.len() as u64, header.start, header.end]);
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use shardmill_core::Diagnostic as _;

    use super::*;
    use crate::file_frame::HASH_BYTES;

    #[test]
    fn video_index_files_round_trip() {
        let videos = Videos {
            digest: [7; 32],
            column: "clip".to_owned(),
            ranges: vec![[16, 900, 24, 80], [920, 700, 600, 700]],
        };
        let bytes = videos.to_bytes();
        assert_eq!(bytes.len(), 57 + 4 + 2 * 32 + HASH_BYTES);
        assert_eq!(Videos::parse(&bytes, Path::new("f")).unwrap(), videos);
        for cut in 0..bytes.len() {
            let mut forged = bytes[..cut].to_vec();
            let error = Videos::parse(&forged, Path::new("f")).unwrap_err();
            assert_eq!(error.id(), "video-index");
            // A hash that fits the bytes does not make them an index.
            FileFrame::end(&mut forged);
            if cut != bytes.len() - HASH_BYTES {
                assert!(Videos::parse(&forged, Path::new("f")).is_err(), "{cut}");
            }
        }
        assert_eq!(Videos::file_name("a.mp4"), "index.videos.a%2Emp4");
        assert!(Videos::is_file_name("index.videos.a%2Emp4"));
        assert!(!Videos::is_file_name("index.lengths.a"));
    }
}
