//! Builds an index from its parsed fields: checks which fields a format has, and that they agree with each other.

use std::collections::HashMap;
use std::sync::Arc;

use shardmill_codec::{Compression, HashAlgo};
use shardmill_core::{Format, Limits, escape};
use xxhash_rust::xxh3::xxh3_64;

use super::entry::ShardEntry;
use super::fields::{Files, RawConfig};
use super::parser::Parser;
use crate::config::{Column, Layout, ShardConfig, fixed_separator, is_json_blank};
use crate::encoding::Encoding;
use crate::error::{IndexPosition, MdsError, MdsProblem};
use crate::shown::{parse_name, shorten};

impl RawConfig {
    /// Builds the config. All required fields must be present.
    pub(super) fn build(&self, parser: &Parser<'_>) -> Result<ShardConfig, MdsError> {
        let layout = match self.format {
            Some(Format::Mds) => Layout::Mds {
                columns: self.mds_columns(parser)?,
            },
            Some(Format::Json) => Layout::Json {
                columns: self.columns(parser, "encoding", parse_name)?,
                newline: self.newline(parser)?,
            },
            Some(format @ (Format::Csv | Format::Tsv | Format::Xsv)) => Layout::Xsv {
                format,
                columns: self.columns(parser, "encoding", parse_name)?,
                newline: self.newline(parser)?,
                separator: self.separator(parser, format)?,
            },
            None => return Err(parser.missing("format")),
        };
        let at = |field| move |problem| MdsError::Codec(problem).at(parser.position_of(field));
        let compression = self
            .compressed
            .then(|| parse_name::<Compression>(&self.compression))
            .transpose();
        let hashes = self.hashes.iter().map(parse_name::<HashAlgo>);
        Ok(ShardConfig {
            layout,
            compression: compression.map_err(at("compression"))?,
            hashes: hashes.collect::<Result<_, _>>().map_err(at("hashes"))?,
            size_limit: self.size_limit,
            late: None,
        })
    }

    fn columns_error(&self, parser: &Parser<'_>, reason: String) -> MdsError {
        let field = if self.format == Some(Format::Json) {
            "columns"
        } else {
            "column_names"
        };
        MdsProblem::Columns
            .because(reason)
            .at(parser.position_of(field))
    }

    /// Returns the columns, whose encodings are in the field called `field`.
    fn columns<E>(
        &self,
        parser: &Parser<'_>,
        field: &str,
        parse: impl Fn(&str) -> Result<E, MdsError>,
    ) -> Result<Vec<Column<E>>, MdsError> {
        let (names, encodings) = (self.names.len(), self.encodings.len());
        if names != encodings {
            let reason = format!("there are {names} names, but {encodings} encodings");
            return Err(self.columns_error(parser, reason));
        }
        let mut sorted: Vec<&str> = self.names.iter().collect();
        sorted.sort_unstable();
        if let Some((name, _)) = sorted
            .iter()
            .zip(sorted.iter().skip(1))
            .find(|(a, b)| a == b)
        {
            let reason = format!("there are two columns `{}`", shorten(name));
            return Err(self.columns_error(parser, reason));
        }
        let column = |(name, text): (&str, &str)| -> Result<Column<E>, MdsError> {
            let encoding = parse(text).map_err(|problem| {
                let described_field = format!("{field} of column `{}`", shorten(name));
                problem.at(parser.position_of(&described_field))
            })?;
            Ok(Column {
                name: name.to_owned(),
                encoding,
            })
        };
        self.names
            .iter()
            .zip(self.encodings.iter())
            .map(column)
            .collect()
    }

    fn mds_columns(&self, parser: &Parser<'_>) -> Result<Vec<Column>, MdsError> {
        let is_registered = |encoding: &str| {
            let name = encoding.split(':').next().unwrap_or_default();
            let own = parser.limits.program_encodings.as_ref();
            own.is_some_and(|own| own.contains(name) || Encoding::plain(name).is_none())
        };
        let mut columns = self.columns(parser, "column_encodings", |text| {
            match is_registered(text) {
                true => Ok(Encoding::Registered {
                    name: text.into(),
                    size: None,
                }),
                false => parse_name(text),
            }
        })?;
        let (names, sizes) = (columns.len(), self.sizes.len());
        if names != sizes {
            let reason = format!("there are {names} names, but {sizes} sizes");
            return Err(self.columns_error(parser, reason));
        }
        for (Column { name, encoding }, size) in columns.iter_mut().zip(&self.sizes) {
            // COMPAT: to the original reader, a size of 0 means no size.
            let size = size.filter(|size| *size != 0);
            if let Encoding::Registered { size: own, .. } = encoding {
                *own = size;
            }
            if size != encoding.fixed_size() {
                let shown = |size: Option<u64>| {
                    size.map_or_else(|| "null".to_owned(), |size| size.to_string())
                };
                let reason = format!(
                    "column `{}` has size {}, but encoding `{encoding}` has size {}",
                    shorten(name),
                    shown(size),
                    shown(encoding.fixed_size()),
                );
                let position = parser.position_of("column_sizes");
                return Err(MdsProblem::Columns.because(reason).at(position));
            }
        }
        Ok(columns)
    }

    fn newline(&self, parser: &Parser<'_>) -> Result<String, MdsError> {
        // The text after an object on its line must be whitespace, or the line is not JSON. The original reader removes
        // the newline of a line of values by its length, which must not be 0.
        let readable = match self.format {
            Some(Format::Json) => is_json_blank(&self.newline),
            _ => !self.newline.is_empty(),
        };
        if readable {
            return Ok(self.newline.clone());
        }
        let newline = shorten(&self.newline);
        let reason = format!("`{newline}` cannot end a line of this format");
        Err(parser.wrong_field("newline", reason))
    }

    fn separator(&self, parser: &Parser<'_>, format: Format) -> Result<String, MdsError> {
        let separator = fixed_separator(format).unwrap_or(&self.separator);
        if separator.is_empty() {
            let reason = "an empty text cannot separate values";
            return Err(parser.wrong_field("separator", reason));
        }
        Ok(separator.to_owned())
    }
}

/// Builds the entry of a shard with that config, after checking that its files match it.
pub(super) fn entry(
    parser: &Parser<'_>,
    config: Arc<ShardConfig>,
    files: Files,
) -> Result<ShardEntry, MdsError> {
    let split = config.format().is_split();
    let Some(raw_data) = files.raw_data else {
        return Err(parser.missing("raw_data"));
    };
    for (field, zip, needed) in [
        ("zip_data", &files.zip_data, true),
        ("zip_meta", &files.zip_meta, split),
    ] {
        match (&config.compression, zip) {
            (Some(compression), None) if needed => {
                let reason = format!("it is null, but the compression is `{compression}`");
                return Err(parser.wrong_field(field, reason));
            }
            (None, Some(_)) => {
                let reason = "it is present, but the compression is null";
                return Err(parser.wrong_field(field, reason));
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
            let reason = format!("found {value}, but a shard counts to 4294967295");
            return Err(parser.wrong_field(field, reason));
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
            MdsError::Limit(problem).at(parser.position_of(&format!("{field}.bytes")))
        })?;
    }
    Ok(entry)
}

/// Refuses a file that is listed twice, in one shard or in two.
pub(crate) fn check_unique(shards: &[ShardEntry]) -> Result<(), MdsError> {
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
                let position = IndexPosition {
                    shard: Some(number),
                    field: format!("{field}.basename"),
                };
                let name = shorten(&file.basename);
                let name = escape(&name);
                let reason = format!("the file `{name}` is also `{first_field}` of shard {first}");
                return Err(MdsProblem::DuplicateShard.because(reason).at(position));
            }
        }
    }
    Ok(())
}
