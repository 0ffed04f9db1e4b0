//! Builds an index from its parsed fields: checks which fields a format has, and that they agree with each other.

use std::collections::HashMap;
use std::sync::Arc;

use shardmill_codec::{Compression, HashAlgo};
use shardmill_core::{Format, Limits, escape};
use xxhash_rust::xxh3::xxh3_64;

use super::entry::ShardEntry;
use super::fields::{Files, RawConfig};
use super::parser::Parser;
use crate::config::{
    Column, Layout, ShardConfig, TextColumn, TextEncoding, fixed_separator, is_json_blank,
};
use crate::encoding::Encoding;
use crate::error::{MdsError, MdsProblem, Place};
use crate::shown::{parse_name, shorten};

impl RawConfig {
    /// Builds the config. All required fields must be present.
    pub(super) fn build(&self, parser: &Parser<'_>) -> Result<ShardConfig, MdsError> {
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
                return Err(MdsError::MissingField.at(parser.place_of("format")));
            }
        };
        let at = |field| move |problem| MdsError::Codec(problem).at(parser.place_of(field));
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

    fn columns_error(&self, parser: &Parser<'_>, problem: String) -> MdsError {
        let field = if self.format == Some(Format::Json) {
            "columns"
        } else {
            "column_names"
        };
        MdsError::Columns(problem).at(parser.place_of(field))
    }

    fn check_names(&self, parser: &Parser<'_>) -> Result<(), MdsError> {
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

    fn mds_columns(&self, parser: &Parser<'_>) -> Result<Vec<Column>, MdsError> {
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
            let encoding: Encoding = parse_name(text).map_err(|problem: MdsError| {
                let field = format!("column_encodings of column `{}`", shorten(name));
                problem.at(parser.place_of(&field))
            })?;
            // COMPAT: to the original reader, a size of 0 means no size.
            let size = size.filter(|size| *size != 0);
            if size != encoding.fixed_size() {
                let shown = |size: Option<u64>| {
                    size.map_or_else(|| "null".to_owned(), |size| size.to_string())
                };
                let problem = format!(
                    "column `{}` has size {}, but encoding `{encoding}` has size {}",
                    shorten(name),
                    shown(size),
                    shown(encoding.fixed_size()),
                );
                return Err(MdsError::Columns(problem).at(parser.place_of("column_sizes")));
            }
            columns.push(Column {
                name: name.to_owned(),
                encoding,
            });
        }
        Ok(columns)
    }

    fn text_columns(&self, parser: &Parser<'_>) -> Result<Vec<TextColumn>, MdsError> {
        self.check_names(parser)?;
        let mut columns = Vec::with_capacity(self.names.len());
        for (name, text) in self.names.iter().zip(self.encodings.iter()) {
            let encoding: TextEncoding = parse_name(text).map_err(|problem: MdsError| {
                let field = format!("encoding of column `{}`", shorten(name));
                problem.at(parser.place_of(&field))
            })?;
            columns.push(TextColumn {
                name: name.to_owned(),
                encoding,
            });
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
        let problem = format!("`{newline}` cannot end a line of this format");
        Err(MdsError::Field(problem).at(parser.place_of("newline")))
    }

    fn separator(&self, parser: &Parser<'_>, format: Format) -> Result<String, MdsError> {
        let separator = fixed_separator(format).unwrap_or(&self.separator);
        if separator.is_empty() {
            let problem = "an empty text cannot separate values".to_owned();
            return Err(MdsError::Field(problem).at(parser.place_of("separator")));
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
    let error = |field: &str, problem: String| MdsError::Field(problem).at(parser.place_of(field));
    let split = config.format().is_split();
    let Some(raw_data) = files.raw_data else {
        return Err(MdsError::MissingField.at(parser.place_of("raw_data")));
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
            MdsError::Limit(problem).at(parser.place_of(&format!("{field}.bytes")))
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
                let place = Place {
                    shard: Some(number),
                    field: format!("{field}.basename"),
                };
                let name = shorten(&file.basename);
                let name = escape(&name);
                let reason = format!("the file `{name}` is also `{first_field}` of shard {first}");
                return Err(MdsProblem::DuplicateShard.because(reason).at(place));
            }
        }
    }
    Ok(())
}
