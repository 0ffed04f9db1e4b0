//! The fields of a shard in an index, as parsed and not yet checked against each other.

use shardmill_codec::FileInfo;
use shardmill_core::Format;

/// A set of the fields of a shard object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields(u16);

impl Fields {
    pub(super) const COLUMN_ENCODINGS: Self = Self(1);
    pub(super) const COLUMN_NAMES: Self = Self(1 << 1);
    pub(super) const COLUMN_SIZES: Self = Self(1 << 2);
    pub(super) const COLUMNS: Self = Self(1 << 3);
    pub(super) const COMPRESSION: Self = Self(1 << 4);
    pub(super) const FORMAT: Self = Self(1 << 5);
    pub(super) const HASHES: Self = Self(1 << 6);
    pub(super) const NEWLINE: Self = Self(1 << 7);
    pub(super) const RAW_DATA: Self = Self(1 << 8);
    pub(super) const RAW_META: Self = Self(1 << 9);
    pub(super) const SAMPLES: Self = Self(1 << 10);
    pub(super) const SEPARATOR: Self = Self(1 << 11);
    pub(super) const SIZE_LIMIT: Self = Self(1 << 12);
    pub(super) const VERSION: Self = Self(1 << 13);
    pub(super) const ZIP_DATA: Self = Self(1 << 14);
    pub(super) const ZIP_META: Self = Self(1 << 15);

    /// The names of the bits, lowest bit first.
    const NAMES: [&'static str; 16] = [
        "column_encodings",
        "column_names",
        "column_sizes",
        "columns",
        "compression",
        "format",
        "hashes",
        "newline",
        "raw_data",
        "raw_meta",
        "samples",
        "separator",
        "size_limit",
        "version",
        "zip_data",
        "zip_meta",
    ];

    /// The fields that a shard of an index may have.
    pub(super) const ENTRY: Self = Self(u16::MAX);
    /// The fields that the config in a shard may have.
    pub(super) const CONFIG: Self = Self(
        !(Self::RAW_DATA.0
            | Self::RAW_META.0
            | Self::SAMPLES.0
            | Self::ZIP_DATA.0
            | Self::ZIP_META.0),
    );

    pub(super) const fn contains(self, field: Self) -> bool {
        self.0 & field.0 == field.0
    }

    pub(super) const fn insert(&mut self, field: Self) {
        self.0 |= field.0;
    }

    const fn without(self, fields: &[Self]) -> Self {
        let mut left = self.0;
        let mut index = 0;
        while index < fields.len() {
            left &= !fields[index].0;
            index += 1;
        }
        Self(left)
    }

    /// Returns the field with that name.
    pub(super) fn named(name: &str) -> Option<Self> {
        let bit = Self::NAMES.into_iter().position(|known| known == name)?;
        Some(Self(1 << bit))
    }

    /// Returns the name of one field.
    pub(super) fn name(self) -> &'static str {
        Self::NAMES
            .get(self.0.trailing_zeros() as usize)
            .copied()
            .unwrap_or("")
    }

    /// Returns the first field of this set that is not in the other one.
    pub(super) const fn first_not_in(self, other: Self) -> Option<Self> {
        let left = self.0 & !other.0;
        if left == 0 {
            return None;
        }
        Some(Self(1 << left.trailing_zeros()))
    }

    /// Returns those of these fields that a shard of that format has. All of them are required.
    pub(super) const fn of_format(self, format: Option<Format>) -> Self {
        use Format as F;
        match format {
            // If the format is missing, that is the first error to report.
            None => Self::FORMAT,
            Some(F::Mds) => self.without(&[
                Self::COLUMNS,
                Self::NEWLINE,
                Self::SEPARATOR,
                Self::RAW_META,
                Self::ZIP_META,
            ]),
            Some(F::Json) => self.without(&[
                Self::COLUMN_ENCODINGS,
                Self::COLUMN_NAMES,
                Self::COLUMN_SIZES,
                Self::SEPARATOR,
            ]),
            Some(F::Xsv) => self.without(&[Self::COLUMN_SIZES, Self::COLUMNS]),
            Some(F::Csv | F::Tsv) => {
                self.without(&[Self::COLUMN_SIZES, Self::COLUMNS, Self::SEPARATOR])
            }
        }
    }
}

/// A list of strings in one reusable buffer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Texts {
    text: String,
    ends: Vec<usize>,
}

impl Texts {
    pub(super) fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.ends.push(self.text.len());
    }

    pub(super) const fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let text = self.text.get(start..*end).unwrap_or("");
            start = *end;
            text
        })
    }
}

/// The fields of a config as parsed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RawConfig {
    pub(super) fields: Fields,
    pub(super) format: Option<Format>,
    pub(super) names: Texts,
    pub(super) encodings: Texts,
    pub(super) sizes: Vec<Option<u64>>,
    pub(super) compressed: bool,
    pub(super) compression: String,
    pub(super) hashes: Texts,
    pub(super) newline: String,
    pub(super) separator: String,
    pub(super) size_limit: Option<u64>,
}

impl RawConfig {
    /// Clears all fields and keeps the allocated memory.
    pub(super) fn clear(&mut self) {
        self.fields = Fields::default();
        self.format = None;
        self.names.clear();
        self.encodings.clear();
        self.sizes.clear();
        self.compressed = false;
        self.compression.clear();
        self.hashes.clear();
        self.newline.clear();
        self.separator.clear();
        self.size_limit = None;
    }
}

/// The files and the sample count of a shard entry.
#[derive(Default)]
pub(super) struct Files {
    pub(super) samples: u64,
    pub(super) raw_data: Option<FileInfo>,
    pub(super) zip_data: Option<FileInfo>,
    pub(super) raw_meta: Option<FileInfo>,
    pub(super) zip_meta: Option<FileInfo>,
}
