//! Lengths of one column: a number for each sample, in a side file of the index.
//!
//! Batches by tokens, buckets and packing need the length of every sample before any of them is read.

use shardmill_core::{Progress, escape};
use shardmill_mds::{Column, Encoding, Field, Layout, ShardEntry, ShardView, Value, decode};
use shardmill_storage::Stored;

use crate::column_file::{ColumnFile, location_of};
use crate::dataset::Dataset;
use crate::error::DatasetError;
use crate::file_frame::FileFrame;
use crate::live::LiveSamples;
use crate::mapped::map;
use crate::problem::{DatasetProblem, Subject, ValueLocation};
use crate::view::shown_digest;

/// The line break in the first bytes reveals a transfer as text.
const FILE: ColumnFile = ColumnFile {
    frame: FileFrame {
        magic: b"smlens\r\n",
        version: 1,
        kind: "a file of lengths",
        damaged: DatasetProblem::LengthsDamaged,
        other_version: DatasetProblem::LengthsVersion,
    },
    prefix: "index.lengths.",
    note_bytes: 1,
    value_bytes: 4,
    values: "lengths",
};
/// The bytes of the number of samples and of one offset at the beginning of a shard.
const WORD: u64 = 4;

shardmill_core::named_enum! {
    /// What the lengths of a column count.
    pub enum LengthUnit {
        /// The numbers of an array, such as tokens.
        Elements = "elements",
        /// The bytes of a text or of another value.
        Bytes = "bytes",
    }
}

impl LengthUnit {
    const fn of(encoding: &Encoding) -> Self {
        match encoding {
            Encoding::NdArray { .. } => Self::Elements,
            _ => Self::Bytes,
        }
    }
}

/// The length of one column in every stored sample of a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lengths {
    digest: [u8; 32],
    column: String,
    unit: LengthUnit,
    values: Vec<u32>,
}

impl Lengths {
    /// Returns the name of the file with the lengths of a column, beside `index.json`. Characters other than ASCII
    /// letters, digits, `_` and `-` are written as `%` and two hexadecimal digits for each byte.
    #[must_use]
    pub fn file_name(column: &str) -> String {
        FILE.name(column)
    }

    /// Returns whether a file has the name of a file of lengths.
    #[must_use]
    pub fn is_file_name(name: &str) -> bool {
        FILE.is_name(name)
    }

    /// Reads the lengths of a column of a dataset.
    ///
    /// # Errors
    ///
    /// [`DatasetProblem::LengthsMissing`], [`DatasetProblem::LengthsOther`], and as [`Lengths::parse`].
    pub fn of(dataset: &Dataset, column: &str) -> Result<Self, DatasetError> {
        let (bytes, path, target) = FILE.read(dataset, column)?;
        let Some(bytes) = bytes else {
            let reason = format!("there are no lengths of the column `{}`", escape(column));
            return Err(DatasetProblem::LengthsMissing.at(path, reason));
        };
        let lengths = Self::parse(&bytes, path.as_path())?;
        let found = (lengths.digest, lengths.values.len() as u64);
        if found != (target.digest, target.live.stored()) || lengths.column != column {
            let reason = format!(
                "it has the lengths of `{}` of the dataset whose index is {}, and the index of this one is {}",
                escape(&lengths.column),
                shown_digest(&lengths.digest),
                shown_digest(&target.digest)
            );
            return Err(DatasetProblem::LengthsOther.at(path, reason));
        }
        Ok(lengths)
    }

    /// Measures a column of all stored samples of a dataset, deleted ones included, on `jobs` threads.
    ///
    /// Reads no values of a column whose length follows from the offsets of the samples: a column of bytes or text that
    /// is the only one of variable length. Of other uncompressed local shards, it reads the beginnings of the values,
    /// and of all other shards everything.
    ///
    /// # Errors
    ///
    /// [`DatasetProblem::LengthsColumn`]; errors of reading shards; [`DatasetError::Interrupted`].
    pub fn measure(
        dataset: &Dataset,
        column: &str,
        jobs: usize,
        progress: &Progress,
    ) -> Result<Self, DatasetError> {
        let target = dataset.view_target()?;
        let shards = &dataset.index().shards;
        let mut unit = LengthUnit::Bytes;
        for (number, entry) in shards.iter().enumerate() {
            let found = LengthUnit::of(&measurable(dataset, entry, column)?.column.encoding);
            if number > 0 && found != unit {
                let reason = format!(
                    "the column `{}` has arrays in some shards, and other values in others",
                    escape(column)
                );
                return Err(DatasetProblem::LengthsColumn.at(dataset.dir().path(), reason));
            }
            unit = found;
        }
        let measured = dataset.map_shards(jobs, progress, |number, entry| {
            measurable(dataset, entry, column)?.measure(number)
        })?;
        Ok(Self {
            digest: target.digest,
            column: column.to_owned(),
            unit,
            values: measured.concat(),
        })
    }

    /// Parses a file. `subject` is its name in messages.
    ///
    /// # Errors
    ///
    /// [`DatasetProblem::LengthsDamaged`], [`DatasetProblem::LengthsVersion`].
    pub fn parse(bytes: &[u8], subject: impl Into<Subject>) -> Result<Self, DatasetError> {
        let subject = subject.into();
        let parts = FILE.parse(bytes, &subject)?;
        let unit = match parts.note {
            [1] => LengthUnit::Elements,
            [2] => LengthUnit::Bytes,
            _ => {
                let reason = "it does not say what it counts";
                return Err(DatasetProblem::LengthsDamaged.at(subject, reason));
            }
        };
        let (values, _) = parts.values.as_chunks::<4>();
        Ok(Self {
            digest: parts.digest,
            column: parts.column,
            unit,
            values: values.iter().copied().map(u32::from_le_bytes).collect(),
        })
    }

    /// Returns the bytes of the file. Equal lengths have equal bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let unit = match self.unit {
            LengthUnit::Elements => 1,
            LengthUnit::Bytes => 2,
        };
        let values = self.values.iter().map(|value| value.to_le_bytes());
        FILE.to_bytes(&self.digest, &[unit], &self.column, values)
    }

    /// Returns what the lengths count.
    #[must_use]
    pub const fn unit(&self) -> LengthUnit {
        self.unit
    }

    /// Returns the lengths of all stored samples, in order.
    #[must_use]
    pub fn values(&self) -> &[u32] {
        &self.values
    }

    /// Returns the lengths of the live samples, in order.
    #[must_use]
    pub fn live_values(self, live: &LiveSamples) -> Vec<u32> {
        let stored = live.stored();
        if live.len() == stored {
            return self.values;
        }
        let mut values = Vec::new();
        for range in live.live_ranges(0..stored) {
            let index = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
            let found = self.values.get(index(range.start)..index(range.end));
            values.extend_from_slice(found.unwrap_or_default());
        }
        values
    }
}

/// A column of one shard whose lengths can be measured.
struct Measurable<'a> {
    dataset: &'a Dataset,
    entry: &'a ShardEntry,
    columns: &'a [Column],
    /// The position of the column.
    at: usize,
    column: &'a Column,
}

fn measurable<'a>(
    dataset: &'a Dataset,
    entry: &'a ShardEntry,
    name: &str,
) -> Result<Measurable<'a>, DatasetError> {
    let refused = |reason: String| {
        let location = location_of(entry, None, name);
        Err(DatasetProblem::LengthsColumn.at(location, reason))
    };
    let Layout::Mds { columns } = &entry.config.layout else {
        let format = entry.config.format().name();
        return refused(format!("only MDS has lengths of columns, not {format}"));
    };
    let found = columns.iter().enumerate();
    let Some((at, column)) = found.clone().find(|(_, column)| column.name == name) else {
        return refused("there is no such column".to_owned());
    };
    match &column.encoding {
        Encoding::NdArray { .. } => {}
        encoding if encoding.fixed_size().is_none() => {}
        encoding => return refused(format!("every value of {encoding} has the same length")),
    }
    Ok(Measurable {
        dataset,
        entry,
        columns,
        at,
        column,
    })
}

impl Measurable<'_> {
    fn measure(&self, shard: usize) -> Result<Vec<u32>, DatasetError> {
        let samples = usize::try_from(self.entry.samples).unwrap_or(usize::MAX);
        if let Encoding::NdArray {
            shape: Some(shape), ..
        } = &self.column.encoding
        {
            let count = shape
                .iter()
                .try_fold(1_u64, |all, dim| all.checked_mul(*dim));
            let count = count.and_then(|count| u32::try_from(count).ok());
            let count = count.ok_or_else(|| self.too_long(shard, 0))?;
            return Ok(vec![count; samples]);
        }
        let raw = match self.entry.zip_data {
            // A raw file next to a compressed one may belong to a cache that is being filled.
            Some(_) => None,
            None => Some(
                self.dataset
                    .open_part(shard, self.entry, &self.entry.raw_data)?,
            ),
        };
        if let Some(file) = &raw {
            if let Some(found) = self.by_offsets(file)? {
                return Ok(found);
            }
            if let Some(file) = file.as_file() {
                let mapping = map(file)?;
                let limits = self.dataset.limits();
                let first = self.dataset.stored_samples(shard).start;
                let location = || ValueLocation::file(&self.entry.raw_data.basename);
                let found = ShardView::open(self.entry, mapping.bytes(), None, limits)
                    .map_err(|source| DatasetError::shard(location(), first, source))
                    .and_then(|view| self.by_values(&view, shard));
                if mapping.is_damaged() {
                    return Err(DatasetError::shard_changed(location()));
                }
                return found;
            }
        }
        let loaded = self.dataset.load(shard, self.entry)?;
        self.by_values(&loaded.view(), shard)
    }

    /// Computes the lengths from the offsets of the samples. Returns `None` if that is impossible, or if anything looks
    /// wrong, so that the caller reads the shard and reports what is.
    fn by_offsets(&self, file: &Stored) -> Result<Option<Vec<u32>>, DatasetError> {
        if LengthUnit::of(&self.column.encoding) != LengthUnit::Bytes {
            return Ok(None);
        }
        // A sample begins with the length of each column of variable length: only of this one.
        let mut other = WORD;
        for (at, column) in self.columns.iter().enumerate() {
            match column.encoding.fixed_size() {
                Some(size) => other = other.saturating_add(size),
                None if at != self.at => return Ok(None),
                None => {}
            }
        }
        let table = WORD.saturating_mul(self.entry.samples.saturating_add(2));
        if table > file.len() {
            return Ok(None);
        }
        let bytes = file.read_range(0, table)?;
        file.check_unchanged()?;
        let (words, _) = bytes.as_chunks::<4>();
        let mut words = words.iter().copied().map(u32::from_le_bytes);
        let count = words.next().map(u64::from);
        let Some(mut begin) = words.next().filter(|_| count == Some(self.entry.samples)) else {
            return Ok(None);
        };
        let mut lengths = Vec::with_capacity(words.len());
        for end in words {
            let length = end.checked_sub(begin).map(u64::from);
            let Some(length) = length.and_then(|length| length.checked_sub(other)) else {
                return Ok(None);
            };
            // INVARIANT: it is at most the difference of two numbers of 32 bits.
            lengths.push(u32::try_from(length).unwrap_or(u32::MAX));
            begin = end;
        }
        Ok((u64::from(begin) == file.len()).then_some(lengths))
    }

    fn by_values(&self, view: &ShardView<'_>, shard: usize) -> Result<Vec<u32>, DatasetError> {
        let location = || ValueLocation::file(&self.entry.raw_data.basename);
        let first = self.dataset.stored_samples(shard).start;
        let mut fields = Vec::with_capacity(self.columns.len());
        let mut lengths = Vec::new();
        for sample in 0..view.len() {
            view.fields_into(sample, &mut fields)
                .map_err(|source| DatasetError::shard(location(), first, source))?;
            let length = fields.get(self.at).map(|field| self.length(field));
            let length = length.transpose().map_err(|source| {
                let number = first.saturating_add(sample);
                let location = location_of(self.entry, Some(number), &self.column.name);
                DatasetError::value(location, source)
            })?;
            let length = u32::try_from(length.unwrap_or_default());
            lengths.push(length.map_err(|_| self.too_long(shard, sample))?);
        }
        Ok(lengths)
    }

    fn length(&self, field: &Field<'_>) -> Result<u64, shardmill_mds::MdsError> {
        if LengthUnit::of(field.encoding) == LengthUnit::Bytes {
            return Ok(field.datum.len() as u64);
        }
        Ok(
            match decode(field.encoding, field.datum, self.dataset.limits())? {
                Value::NdArray(array) => array.data.len() as u64 / array.dtype.size_bytes(),
                // INVARIANT: only arrays count elements.
                _ => 0,
            },
        )
    }

    fn too_long(&self, shard: usize, sample: u64) -> DatasetError {
        let number = self.dataset.stored_samples(shard).start;
        let number = Some(number.saturating_add(sample));
        let location = location_of(self.entry, number, &self.column.name);
        DatasetProblem::LengthsColumn.at(location, "it has more elements than a length can count")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shardmill_core::Diagnostic as _;

    use super::*;
    use crate::file_frame::HASH_BYTES;

    fn lengths(values: Vec<u32>) -> Lengths {
        Lengths {
            digest: [7; 32],
            column: "tokens".to_owned(),
            unit: LengthUnit::Elements,
            values,
        }
    }

    #[test]
    fn column_names_are_encoded_in_file_names() {
        assert_eq!(Lengths::file_name("tokens"), "index.lengths.tokens");
        assert_eq!(
            Lengths::file_name("a/ä.json"),
            "index.lengths.a%2F%C3%A4%2Ejson"
        );
        for column in ["tokens", "a/ä.json", "."] {
            assert!(Lengths::is_file_name(&Lengths::file_name(column)));
        }
        for name in [
            "index.json",
            "index.lengths.",
            "index.lengths.a.json",
            "lengths",
        ] {
            assert!(!Lengths::is_file_name(name), "{name}");
        }
    }

    #[test]
    fn deleted_samples_have_no_live_length() {
        let live = LiveSamples::without(6, [(1, 3)]).unwrap();
        assert_eq!(
            lengths(vec![0, 1, 2, 3, 4, 5]).live_values(&live),
            [0, 3, 4, 5]
        );
        let all = LiveSamples::all(2);
        assert_eq!(lengths(vec![8, 9]).live_values(&all), [8, 9]);
    }

    proptest! {
        #[test]
        fn lengths_files_round_trip(values in prop::collection::vec(any::<u32>(), 0..50), cut in 1_usize..90) {
            let wanted = lengths(values);
            let bytes = wanted.to_bytes();
            prop_assert_eq!(&Lengths::parse(&bytes, "f").unwrap(), &wanted);
            let cut = cut.min(bytes.len());
            prop_assert!(Lengths::parse(&bytes[..bytes.len() - cut], "f").is_err());
            // A hash that fits the bytes does not make them a file of lengths.
            prop_assume!(cut != HASH_BYTES);
            let mut forged = bytes[..bytes.len() - cut].to_vec();
            FileFrame::end(&mut forged);
            prop_assert!(Lengths::parse(&forged, "f").is_err());
        }
    }

    #[test]
    fn damaged_lengths_file_is_an_error() {
        let id = |bytes: &[u8]| Lengths::parse(bytes, "f").unwrap_err().id();
        let mut bytes = lengths(vec![1, 2]).to_bytes();
        assert_eq!(id(b"{}"), "lengths-damaged");
        bytes[60] ^= 1;
        assert_eq!(id(&bytes), "lengths-damaged");
        bytes[8] = 2;
        assert_eq!(id(&bytes), "lengths-version");
    }
}
