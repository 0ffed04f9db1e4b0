//! Views: selected samples of a dataset, in a compact file.
//!
//! A view names its dataset by the SHA-256 of the index, and lists stored numbers of samples. It selects the same samples
//! when some of them are deleted later, because deletions change neither.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;

use roaring::RoaringTreemap;
use sha2::{Digest as _, Sha256};
use shardmill_storage::{Folder, Location, RemoteOptions};

use crate::error::DatasetError;
use crate::file_frame::FileFrame;
use crate::live::LiveSamples;
use crate::problem::{DatasetProblem, Subject};
use crate::side_files::SIDE_BYTES;

/// The line break in the first bytes reveals a transfer as text.
const FRAME: FileFrame = FileFrame {
    magic: b"smview\r\n",
    version: 1,
    kind: "a view of samples",
    damaged: DatasetProblem::ViewDamaged,
    other_version: DatasetProblem::ViewVersion,
};
/// The most samples of a dataset with a view: 2^40. It bounds the memory for the complement of a view.
const MAX_SAMPLES: u64 = 1 << 40;

/// What a view refers to: the index of a dataset, and which of its samples are live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewTarget {
    /// The SHA-256 of the index.
    pub digest: [u8; 32],
    /// The live samples.
    pub live: LiveSamples,
}

impl ViewTarget {
    /// Returns what views of rows without an index refer to. `name` identifies the files of the rows, and their contents.
    #[must_use]
    pub fn of_rows(name: &str, rows: u64) -> Self {
        Self {
            digest: Sha256::digest(name).into(),
            live: LiveSamples::all(rows),
        }
    }
}

/// Selected samples of a dataset, by their stored numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    digest: [u8; 32],
    stored: u64,
    samples: RoaringTreemap,
}

impl View {
    /// Creates a view of stored numbers, in any order. Numbers beyond the last sample are ignored.
    #[must_use]
    pub fn new(target: &ViewTarget, mut samples: Vec<u64>) -> Self {
        let stored = target.live.stored();
        samples.sort_unstable();
        samples.dedup();
        samples.truncate(samples.partition_point(|number| *number < stored));
        Self {
            digest: target.digest,
            stored,
            // INVARIANT: the numbers are sorted and distinct.
            samples: RoaringTreemap::from_sorted_iter(samples).unwrap_or_default(),
        }
    }

    /// Creates a view of ranges of stored numbers.
    pub(crate) fn of_ranges(
        target: &ViewTarget,
        ranges: impl IntoIterator<Item = Range<u64>>,
    ) -> Self {
        let mut samples = RoaringTreemap::new();
        for range in ranges {
            samples.insert_range(range);
        }
        Self {
            digest: target.digest,
            stored: target.live.stored(),
            samples,
        }
    }

    /// Creates a view of all live samples.
    #[must_use]
    pub fn of_live(target: &ViewTarget) -> Self {
        Self::of_ranges(target, target.live.live_ranges(0..target.live.stored()))
    }

    /// Reads a view from a file, or from an object of a store.
    ///
    /// # Errors
    ///
    /// Errors of reading the file; as [`View::parse`].
    pub fn read(location: &Location, remote: &RemoteOptions) -> Result<Self, DatasetError> {
        let (folder, name) = match location {
            Location::Local(path) => {
                let name = path.file_name().and_then(|name| name.to_str());
                let parent = path.parent().filter(|path| !path.as_os_str().is_empty());
                let parent = parent.unwrap_or(Path::new(".")).to_owned();
                (Location::Local(parent), name.unwrap_or_default())
            }
            Location::Remote(location) => match location.split_name() {
                Some((folder, name)) => (Location::Remote(folder), name),
                None => (Location::Remote(location.clone()), ""),
            },
        };
        if name.is_empty() {
            let shown = match location {
                Location::Local(path) => path.display().to_string(),
                Location::Remote(location) => location.to_string(),
            };
            return Err(DatasetProblem::ViewDamaged.at(&*shown, "it is not the name of a file"));
        }
        let folder = Folder::open(&folder, remote)?;
        let file = folder.open_file(name)?;
        let bytes = file.read_all(SIDE_BYTES)?;
        Self::parse(&bytes, file.path())
    }

    /// Parses a file. `subject` is its name in messages.
    ///
    /// # Errors
    ///
    /// [`DatasetProblem::ViewDamaged`], [`DatasetProblem::ViewVersion`].
    pub fn parse(bytes: &[u8], subject: impl Into<Subject>) -> Result<Self, DatasetError> {
        let subject = subject.into();
        let damaged = |reason: &str| DatasetProblem::ViewDamaged.at(subject.clone(), reason);
        let short = || damaged("it is too short");
        let rest = FRAME.content(bytes, &subject)?;
        let (digest, rest) = rest.split_first_chunk::<32>().ok_or_else(short)?;
        let (stored, rest) = rest.split_first_chunk::<8>().ok_or_else(short)?;
        let (count, mut rest) = rest.split_first_chunk::<8>().ok_or_else(short)?;
        let samples = RoaringTreemap::deserialize_from(&mut rest);
        let samples =
            samples.map_err(|error| damaged(&format!("its bitmap is invalid: {error}")))?;
        let (stored, count) = (u64::from_le_bytes(*stored), u64::from_le_bytes(*count));
        let is_within = samples.max().is_none_or(|last| last < stored);
        if !rest.is_empty() || samples.len() != count || !is_within || stored > MAX_SAMPLES {
            let reason = format!(
                "its header has {count} of {stored} samples, and its bitmap {} samples up to {}",
                samples.len(),
                samples.max().unwrap_or_default()
            );
            return Err(damaged(&reason));
        }
        Ok(Self {
            digest: *digest,
            stored,
            samples,
        })
    }

    /// Returns the bytes of the file. Equal views have equal bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        // A bitmap with the same samples may have other containers, depending on how it was made.
        let mut samples: RoaringTreemap = self.samples.clone();
        samples.optimize();
        let mut bytes = Vec::with_capacity(samples.serialized_size() + 128);
        FRAME.begin(&mut bytes);
        bytes.extend_from_slice(&self.digest);
        bytes.extend_from_slice(&self.stored.to_le_bytes());
        bytes.extend_from_slice(&samples.len().to_le_bytes());
        // Writing to memory does not fail.
        let _infallible = samples.serialize_into(&mut bytes);
        FileFrame::end(&mut bytes);
        bytes
    }

    /// Returns the hash of the index of its dataset, as `sha256:` and 64 hexadecimal digits.
    #[must_use]
    pub fn index(&self) -> String {
        shown_digest(&self.digest)
    }

    /// Returns the number of samples that the dataset stores.
    #[must_use]
    pub const fn stored(&self) -> u64 {
        self.stored
    }

    /// Returns the number of selected samples, deleted ones counted.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.samples.len()
    }

    /// Returns whether no sample is selected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Returns whether the sample with a stored number is selected.
    #[must_use]
    pub fn contains(&self, stored: u64) -> bool {
        self.samples.contains(stored)
    }

    /// Iterates over the stored numbers of the selected samples.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        self.samples.iter()
    }

    /// Returns the samples that both views select.
    ///
    /// # Errors
    ///
    /// [`DatasetProblem::ViewOther`] if the other view is of another dataset; so in the other operations.
    pub fn and(&self, other: &Self) -> Result<Self, DatasetError> {
        self.with(other, &self.samples & &other.samples)
    }

    /// Returns the samples that at least one of the views selects.
    ///
    /// # Errors
    ///
    /// As [`View::and`].
    pub fn or(&self, other: &Self) -> Result<Self, DatasetError> {
        self.with(other, &self.samples | &other.samples)
    }

    /// Returns the samples that this view selects, and the other does not.
    ///
    /// # Errors
    ///
    /// As [`View::and`].
    pub fn minus(&self, other: &Self) -> Result<Self, DatasetError> {
        self.with(other, &self.samples - &other.samples)
    }

    /// Returns the samples that this view does not select, deleted ones included.
    #[must_use]
    pub fn inverted(&self) -> Self {
        let mut samples = RoaringTreemap::new();
        samples.insert_range(0..self.stored);
        samples -= &self.samples;
        Self {
            samples,
            ..self.clone()
        }
    }

    fn with(&self, other: &Self, samples: RoaringTreemap) -> Result<Self, DatasetError> {
        if (self.digest, self.stored) != (other.digest, other.stored) {
            let reason = format!(
                "the views are of different datasets: the indexes are {} and {}",
                self.index(),
                other.index()
            );
            return Err(DatasetProblem::ViewOther.of_call(reason));
        }
        Ok(Self {
            samples,
            ..self.clone()
        })
    }

    /// Returns the live samples that the view selects.
    ///
    /// # Errors
    ///
    /// [`DatasetProblem::ViewOther`] about `dataset` if the view is of another one.
    pub fn live_of(
        &self,
        target: &ViewTarget,
        dataset: impl Into<Subject>,
    ) -> Result<LiveSamples, DatasetError> {
        let found = (target.digest, target.live.stored());
        if found != (self.digest, self.stored) {
            let reason = format!(
                "the view selects samples of the dataset whose index is {}, and the index of this one is {}",
                self.index(),
                shown_digest(&target.digest)
            );
            return Err(DatasetProblem::ViewOther.at(dataset, reason));
        }
        let mut samples = self.samples.clone();
        for (start, end) in target.live.deleted_ranges() {
            samples.remove_range(start..end);
        }
        // INVARIANT: the numbers are below `stored`.
        let live = LiveSamples::of_ranges(self.stored, || ranges(&samples));
        live.map_err(|(start, end)| {
            let reason = format!(
                "it has the range {start} to {end} of {} samples",
                self.stored
            );
            DatasetProblem::ViewDamaged.of_call(reason)
        })
    }
}

/// Returns the ranges of consecutive numbers.
fn ranges(samples: &RoaringTreemap) -> impl Iterator<Item = Range<u64>> {
    let mut numbers = samples.iter().peekable();
    std::iter::from_fn(move || {
        let start = numbers.next()?;
        let mut end = start + 1;
        while numbers.next_if_eq(&end).is_some() {
            end += 1;
        }
        Some(start..end)
    })
}

/// Returns a digest as `sha256:` and hexadecimal digits.
#[must_use]
pub fn shown_digest(digest: &[u8; 32]) -> String {
    let mut shown = "sha256:".to_owned();
    for byte in digest {
        // Writing to a string does not fail.
        let _infallible = write!(shown, "{byte:02x}");
    }
    shown
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shardmill_core::Diagnostic as _;

    use super::*;

    fn target(stored: u64) -> ViewTarget {
        ViewTarget {
            digest: [7; 32],
            live: LiveSamples::all(stored),
        }
    }

    fn numbers(view: &View) -> Vec<u64> {
        view.iter().collect()
    }

    proptest! {
        #[test]
        fn view_operations_equal_set_operations(
            a in prop::collection::vec(0_u64..300, 0..80),
            b in prop::collection::vec(0_u64..300, 0..80),
            deleted in 0_u64..100,
        ) {
            let target = target(290);
            let (a, b) = (View::new(&target, a), View::new(&target, b));
            let all: Vec<u64> = (0..290).collect();
            let of = |test: &dyn Fn(u64) -> bool| -> Vec<u64> {
                all.iter().copied().filter(|number| test(*number)).collect()
            };
            prop_assert_eq!(numbers(&a.and(&b).unwrap()), of(&|n| a.contains(n) && b.contains(n)));
            prop_assert_eq!(numbers(&a.or(&b).unwrap()), of(&|n| a.contains(n) || b.contains(n)));
            prop_assert_eq!(numbers(&a.minus(&b).unwrap()), of(&|n| a.contains(n) && !b.contains(n)));
            prop_assert_eq!(numbers(&a.inverted()), of(&|n| !a.contains(n)));
            // Whatever operations made a view, its bytes are the same.
            let again = a.inverted().inverted().to_bytes();
            prop_assert_eq!(&again, &a.to_bytes());
            prop_assert_eq!(&View::parse(&again, "v").unwrap(), &a);
            // Deleted samples are not read, although the view selects them.
            let live = LiveSamples::without(290, [(deleted, deleted + 50)]).unwrap();
            let found = a.live_of(&ViewTarget { live, ..target }, "d").unwrap();
            let wanted = of(&|n| a.contains(n) && !(deleted..deleted + 50).contains(&n));
            let read: Vec<u64> = found.live_ranges(0..290).flatten().collect();
            prop_assert_eq!(read, wanted);
        }

        #[test]
        fn damaged_view_bytes_are_errors(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0_usize..100) {
            let view = View::new(&target(50), (0..50).step_by(3).collect());
            let sound = view.to_bytes();
            let mut damaged = sound.clone();
            damaged.truncate(sound.len() - cut);
            damaged.extend_from_slice(&bytes);
            prop_assert_eq!(View::parse(&damaged, "v").is_ok(), damaged == sound);
            // A hash that fits the bytes does not make them a view.
            let mut forged = Vec::new();
            FRAME.begin(&mut forged);
            forged.extend_from_slice(&bytes);
            FileFrame::end(&mut forged);
            prop_assert!(View::parse(&forged, "v").is_err());
        }
    }

    #[test]
    fn view_of_100_million_samples_is_small() {
        let every = View::new(
            &target(100_000_000),
            (0..1_000_000).map(|n| 100 * n).collect(),
        );
        assert!(every.to_bytes().len() < 2_100_000);
        let range = View::new(&target(1 << 32), (5_000_000..6_000_000).collect());
        assert!(range.to_bytes().len() < 1000);
        assert!(range.inverted().to_bytes().len() < 1 << 20);
        assert_eq!(range.inverted().len(), (1 << 32) - 1_000_000);
    }

    #[test]
    fn views_of_other_datasets_are_rejected() {
        let view = View::new(&target(10), vec![3, 4, 12]);
        assert_eq!(numbers(&view), [3, 4]);
        let other = ViewTarget {
            digest: [8; 32],
            ..target(10)
        };
        assert_eq!(view.live_of(&other, "d").unwrap_err().id(), "view-dataset");
        let error = view.and(&View::of_live(&other)).unwrap_err();
        assert_eq!(error.id(), "view-dataset");
        assert_eq!(
            view.or(&View::of_live(&target(11))).unwrap_err().id(),
            "view-dataset"
        );
        assert!(view.live_of(&target(10), "d").is_ok());
    }

    #[test]
    fn damaged_view_error_names_the_cause() {
        let of = |bytes: &[u8]| {
            let error = View::parse(bytes, "v.view").unwrap_err();
            format!("{}: {error}", error.id())
        };
        let mut newer = View::of_live(&target(3)).to_bytes();
        assert!(of(b"{}").starts_with("view-damaged: it does not begin like a view"));
        assert!(of(FRAME.magic).starts_with("view-damaged: it is too short"));
        newer[8] = 9;
        assert_eq!(
            of(&newer),
            "view-version: its version is 9, and this program reads 1"
        );
        newer[8] = 1;
        newer[50] ^= 1;
        assert!(of(&newer).starts_with("view-damaged: its bytes do not have the hash"));
    }
}
