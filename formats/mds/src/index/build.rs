//! Builds an index from its parsed fields: checks which fields a format has, and that they agree with each other.

use std::collections::HashMap;
use std::sync::Arc;

use shardmill_core::{Format, Limits};
use xxhash_rust::xxh3::xxh3_64;

use super::parse::Files;
use super::parser::{Parser, parse_name, shorten};
use super::{IndexError, Place, ShardEntry};
use crate::config::{
    Column, Layout, ShardConfig, TextColumn, TextEncoding, fixed_separator, is_json_blank,
};
use crate::encoding::Encoding;
use shardmill_codec::Compression;
use shardmill_codec::HashAlgo;

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
        let mut place = 0;
        while place < fields.len() {
            left &= !fields[place].0;
            place += 1;
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

    fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
    }

    fn iter(&self) -> impl Iterator<Item = &str> {
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

    /// Builds the config. All required fields must be present.
    pub(super) fn build(&self, parser: &Parser<'_>) -> Result<ShardConfig, IndexError> {
        let layout = match self.format {
            Some(Format::Mds) => Layout::Mds {
                columns: self.mds_columns(parser)?,
            },
            Some(Format::Json) => Layout::Json {
                columns: self.text_columns(parser)?,
                newline: self.newline(parser)?,
            },
            Some(format @ (Format::Csv | Format::Tsv | Format::Xsv)) => Layout::Xsv {
                format,
                columns: self.text_columns(parser)?,
                newline: self.newline(parser)?,
                separator: self.separator(parser, format)?,
            },
            None => {
                let place = parser.place_of("format");
                return Err(IndexError::MissingField { place });
            }
        };
        let hashes = self
            .hashes
            .iter()
            .map(parse_name::<HashAlgo>)
            .collect::<Result<_, _>>();
        let compression = self
            .compressed
            .then(|| parse_name::<Compression>(&self.compression))
            .transpose();
        Ok(ShardConfig {
            layout,
            compression: compression.map_err(|problem| IndexError::Compression {
                place: parser.place_of("compression"),
                problem,
            })?,
            hashes: hashes.map_err(|problem| IndexError::Hash {
                place: parser.place_of("hashes"),
                problem,
            })?,
            size_limit: self.size_limit,
        })
    }

    fn columns_error(&self, parser: &Parser<'_>, problem: String) -> IndexError {
        let field = if self.format == Some(Format::Json) {
            "columns"
        } else {
            "column_names"
        };
        IndexError::Columns {
            place: parser.place_of(field),
            problem,
        }
    }

    fn check_names(&self, parser: &Parser<'_>) -> Result<(), IndexError> {
        let (names, encodings) = (self.names.len(), self.encodings.len());
        if names != encodings {
            return Err(self.columns_error(
                parser,
                format!("there are {names} names, but {encodings} encodings"),
            ));
        }
        let mut sorted: Vec<&str> = self.names.iter().collect();
        sorted.sort_unstable();
        let twice = sorted
            .iter()
            .zip(sorted.iter().skip(1))
            .find(|(a, b)| a == b);
        match twice {
            Some((name, _)) => {
                let problem = format!("there are two columns `{}`", shorten(name));
                Err(self.columns_error(parser, problem))
            }
            None => Ok(()),
        }
    }

    fn mds_columns(&self, parser: &Parser<'_>) -> Result<Vec<Column>, IndexError> {
        self.check_names(parser)?;
        let (names, sizes) = (self.names.len(), self.sizes.len());
        if names != sizes {
            return Err(self.columns_error(
                parser,
                format!("there are {names} names, but {sizes} sizes"),
            ));
        }
        let mut columns = Vec::with_capacity(names);
        for ((name, text), size) in self
            .names
            .iter()
            .zip(self.encodings.iter())
            .zip(&self.sizes)
        {
            let encoding: Encoding = parse_name(text).map_err(|problem| IndexError::Encoding {
                place: parser.place_of(&format!("column_encodings of column `{}`", shorten(name))),
                problem,
            })?;
            // COMPAT: to the original reader, a size of 0 means no size.
            let size = size.filter(|size| *size != 0);
            if size != encoding.fixed_size() {
                let shown = |size: Option<u64>| {
                    size.map_or_else(|| "null".to_owned(), |size| size.to_string())
                };
                return Err(IndexError::Columns {
                    place: parser.place_of("column_sizes"),
                    problem: format!(
                        "column `{}` has size {}, but encoding `{encoding}` has size {}",
                        shorten(name),
                        shown(size),
                        shown(encoding.fixed_size()),
                    ),
                });
            }
            columns.push(Column {
                name: name.to_owned(),
                encoding,
            });
        }
        Ok(columns)
    }

    fn text_columns(&self, parser: &Parser<'_>) -> Result<Vec<TextColumn>, IndexError> {
        self.check_names(parser)?;
        let mut columns = Vec::with_capacity(self.names.len());
        for (name, text) in self.names.iter().zip(self.encodings.iter()) {
            let encoding: TextEncoding =
                parse_name(text).map_err(|problem| IndexError::TextEncoding {
                    place: parser.place_of(&format!("encoding of column `{}`", shorten(name))),
                    problem,
                })?;
            columns.push(TextColumn {
                name: name.to_owned(),
                encoding,
            });
        }
        Ok(columns)
    }

    fn newline(&self, parser: &Parser<'_>) -> Result<String, IndexError> {
        // The text after an object on its line must be whitespace, or the line is not JSON. The original reader removes
        // the newline of a line of values by its length, which must not be 0.
        let readable = match self.format {
            Some(Format::Json) => is_json_blank(&self.newline),
            _ => !self.newline.is_empty(),
        };
        if readable {
            return Ok(self.newline.clone());
        }
        Err(IndexError::Field {
            place: parser.place_of("newline"),
            problem: format!(
                "`{}` cannot end a line of this format",
                shorten(&self.newline)
            ),
        })
    }

    fn separator(&self, parser: &Parser<'_>, format: Format) -> Result<String, IndexError> {
        let separator = fixed_separator(format).unwrap_or(&self.separator);
        if separator.is_empty() {
            return Err(IndexError::Field {
                place: parser.place_of("separator"),
                problem: "an empty text cannot separate values".to_owned(),
            });
        }
        Ok(separator.to_owned())
    }
}

/// Builds the entry of a shard with that config, after checking that its files match it.
pub(super) fn entry(
    parser: &Parser<'_>,
    config: Arc<ShardConfig>,
    files: Files,
) -> Result<ShardEntry, IndexError> {
    let error = |field: &str, problem: String| IndexError::Field {
        place: parser.place_of(field),
        problem,
    };
    let split = config.format().is_split();
    let Some(raw_data) = files.raw_data else {
        let place = parser.place_of("raw_data");
        return Err(IndexError::MissingField { place });
    };
    for (field, zip, needed) in [
        ("zip_data", &files.zip_data, true),
        ("zip_meta", &files.zip_meta, split),
    ] {
        match (&config.compression, zip) {
            (Some(compression), None) if needed => {
                return Err(error(
                    field,
                    format!("it is null, but the compression is `{compression}`"),
                ));
            }
            (None, Some(_)) => {
                return Err(error(
                    field,
                    "it is there, but the compression is null".to_owned(),
                ));
            }
            _ => {}
        }
    }
    // All formats store counts and offsets in 32 bits.
    for (field, value) in [
        ("samples", files.samples),
        ("raw_data.bytes", raw_data.bytes),
    ] {
        if u32::try_from(value).is_err() {
            return Err(error(
                field,
                format!("found {value}, but a shard counts to 4294967295"),
            ));
        }
    }
    let entry = ShardEntry {
        config,
        samples: files.samples,
        raw_data,
        zip_data: files.zip_data,
        raw_meta: files.raw_meta,
        zip_meta: files.zip_meta,
    };
    for (field, file) in entry.files() {
        Limits::check("shard-bytes", file.bytes, parser.limits.shard_bytes).map_err(|problem| {
            IndexError::Limit {
                place: parser.place_of(&format!("{field}.bytes")),
                problem,
            }
        })?;
    }
    Ok(entry)
}

/// Refuses a file that is listed twice, in one shard or in two.
pub(crate) fn check_unique(shards: &[ShardEntry]) -> Result<(), IndexError> {
    // PERF: sorting eight bytes for each name takes much less memory than a table of names. Names are compared only if
    // two of them have the same hash.
    let names = || {
        shards
            .iter()
            .flat_map(|shard| shard.files().map(|(_, file)| &*file.basename))
    };
    let mut hashes: Vec<u64> = names().map(|name| xxh3_64(name.as_bytes())).collect();
    hashes.sort_unstable();
    if hashes
        .iter()
        .zip(hashes.iter().skip(1))
        .all(|(a, b)| a != b)
    {
        return Ok(());
    }
    let mut seen = HashMap::new();
    for (number, shard) in (0_u64..).zip(shards) {
        for (field, file) in shard.files() {
            if let Some((first, first_field)) = seen.insert(&*file.basename, (number, field)) {
                return Err(IndexError::DuplicateShard {
                    place: Place {
                        shard: Some(number),
                        field: format!("{field}.basename"),
                    },
                    first,
                    first_field,
                    basename: file.basename.chars().take(300).collect(),
                });
            }
        }
    }
    Ok(())
}
