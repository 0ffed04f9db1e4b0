//! Builds an index from the fields of its shards: checks which fields a format has, and that they agree with each other.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use serde_json::value::RawValue;
use shardmill_codec::{CodecError, Compression, Digest, FileHashes, FileInfo, HashAlgo};
use shardmill_core::{Format, Limits, check_relative_path, escape};
use xxhash_rust::xxh3::xxh3_64;

use super::entry::ShardEntry;
use super::tree::{Json, Member, NUMBER, Object, Parser, TEXT, unlike};
use crate::config::{Column, Layout, ShardConfig, fixed_separator, is_json_blank};
use crate::encoding::Encoding;
use crate::error::{IndexPosition, MdsError, MdsProblem};
use crate::shown::{parse_name, shorten};

/// The members of a shard, whose values are not parsed yet.
pub(super) type RawShard<'a> = Vec<(Cow<'a, str>, &'a RawValue)>;

/// The fields of a shard of an index that its config does not have.
const FIELDS_OF_FILES: [&str; 5] = ["raw_data", "samples", "zip_data", "raw_meta", "zip_meta"];

/// Builds the entry of a shard, and makes it the last one.
pub(super) fn entry<'a>(
    raw: RawShard<'a>,
    number: u64,
    parser: &mut Parser<'_>,
    last: &mut Option<(RawShard<'a>, Arc<ShardConfig>)>,
) -> Result<ShardEntry, MdsError> {
    // PERF: nearly all shards of an index have the same config, which is built once and shared.
    let same = last.as_ref().filter(|(last, _)| is_same_config(last, &raw));
    let mut members = Vec::new();
    for (key, json) in &raw {
        if same.is_none() || FIELDS_OF_FILES.contains(&&**key) {
            members.push((Cow::Borrowed(&**key), parser.field(key, json)?));
        }
    }
    let shard = Object {
        members: &members,
        position: IndexPosition {
            shard: Some(number),
            field: String::new(),
        },
    };
    let config = match same {
        Some((_, config)) => Arc::clone(config),
        None => Arc::new(self::config(&shard, parser.limits, true)?),
    };
    let split = config.format().is_split();
    let nullable = |field| shard.nullable(field, file);
    let entry = ShardEntry {
        samples: shard.number("samples")?,
        raw_data: file(&shard, "raw_data")?,
        zip_data: nullable("zip_data")?,
        raw_meta: split.then(|| file(&shard, "raw_meta")).transpose()?,
        zip_meta: if split { nullable("zip_meta")? } else { None },
        config: Arc::clone(&config),
    };
    check_files(&shard, &entry, parser.limits)?;
    drop(members);
    *last = Some((raw, config));
    Ok(entry)
}

/// Returns whether two shards have the same fields, and those of the config have the same texts.
fn is_same_config(last: &RawShard<'_>, shard: &RawShard<'_>) -> bool {
    let mut pairs = last.iter().zip(shard);
    last.len() == shard.len()
        && pairs.all(|((last_key, last), (key, json))| {
            last_key == key && (FIELDS_OF_FILES.contains(&&**key) || last.get() == json.get())
        })
}

/// Checks that the files of a shard match its config and the limits.
fn check_files(
    shard: &Object<'_, '_>,
    entry: &ShardEntry,
    limits: &Limits,
) -> Result<(), MdsError> {
    let split = entry.config.format().is_split();
    for (field, zip, needed) in [
        ("zip_data", &entry.zip_data, true),
        ("zip_meta", &entry.zip_meta, split),
    ] {
        match (&entry.config.compression, zip) {
            (Some(compression), None) if needed => {
                let reason = format!("it is null, but the compression is `{compression}`");
                return Err(shard.wrong_field(field, reason));
            }
            (None, Some(_)) => {
                let reason = "it is present, but the compression is null";
                return Err(shard.wrong_field(field, reason));
            }
            _ => {}
        }
    }
    // All formats store counts and offsets in 32 bits.
    for (field, value) in [
        ("samples", entry.samples),
        ("raw_data.bytes", entry.raw_data.bytes),
    ] {
        if u32::try_from(value).is_err() {
            let reason = format!("found {value}, but a shard counts to 4294967295");
            return Err(shard.wrong_field(field, reason));
        }
    }
    for (field, file) in entry.files() {
        Limits::check("shard-bytes", file.bytes, limits.shard_bytes).map_err(|exceeded| {
            MdsError::from(exceeded).at(shard.position_of(&format!("{field}.bytes")))
        })?;
    }
    Ok(())
}

fn file(shard: &Object<'_, '_>, field: &str) -> Result<FileInfo, MdsError> {
    let expected = "an object with basename, bytes and hashes";
    let file = Object {
        members: shard.value(field, expected, Json::as_object)?,
        position: shard.position_of(field),
    };
    file.check_fields(&["basename", "bytes", "hashes"])?;
    let basename = file.text("basename")?;
    check_relative_path(basename).map_err(|problem| {
        let name = shorten(basename);
        MdsError::Path { name, problem }.at(file.position_of("basename"))
    })?;
    let expected = "an object of hash names and digests";
    let mut hashes = FileHashes::default();
    for (name, digest) in file.value("hashes", expected, Json::as_object)? {
        let wrong = |error: MdsError| error.at(file.position_of("hashes"));
        let algo = parse_name::<HashAlgo>(name).map_err(|error| wrong(error.into()))?;
        if hashes.get(algo).is_some() {
            return Err(file.repeated(&format!("hashes.{algo}")));
        }
        let digest = digest
            .as_text()
            .ok_or_else(|| wrong(unlike(digest, TEXT)))?;
        hashes.insert(Digest::parse(algo, digest).map_err(|error| wrong(error.into()))?);
    }
    Ok(FileInfo {
        basename: basename.into(),
        bytes: file.number("bytes")?,
        hashes,
    })
}

/// Builds the config of a shard, from its entry in an index or from the shard itself. Refuses fields that its format does
/// not have.
pub(super) fn config(
    shard: &Object<'_, '_>,
    limits: &Limits,
    is_entry: bool,
) -> Result<ShardConfig, MdsError> {
    let at = |field: &str| {
        let position = shard.position_of(field);
        move |error: MdsError| error.at(position)
    };
    let format = parse_name::<Format>(shard.text("format")?);
    let format = format.map_err(|error| at("format")(error.into()))?;
    let mut known = vec!["compression", "format", "hashes", "size_limit", "version"];
    known.extend(match format {
        Format::Mds => &["column_encodings", "column_names", "column_sizes"][..],
        Format::Json => &["columns", "newline"],
        Format::Xsv => &["column_encodings", "column_names", "newline", "separator"],
        Format::Csv | Format::Tsv => &["column_encodings", "column_names", "newline"],
    });
    if is_entry {
        let files = if format.is_split() { 5 } else { 3 };
        known.extend(FIELDS_OF_FILES.into_iter().take(files));
    }
    shard.check_fields(&known)?;
    check_version(shard)?;
    let layout = match format {
        Format::Mds => Layout::Mds {
            columns: mds_columns(shard, limits)?,
        },
        Format::Json => Layout::Json {
            columns: columns(
                shard,
                "columns",
                "encoding",
                pairs(shard, limits)?,
                parse_name,
            )?,
            newline: newline(shard, format)?,
        },
        format @ (Format::Csv | Format::Tsv | Format::Xsv) => Layout::Xsv {
            format,
            columns: columns(shard, "column_names", "encoding", named(shard)?, parse_name)?,
            newline: newline(shard, format)?,
            separator: separator(shard, format)?,
        },
    };
    let compression = shard.nullable("compression", Object::text)?;
    let compression = compression.map(parse_name::<Compression>).transpose();
    let hashes = shard.texts("hashes")?.into_iter();
    let hashes: Result<_, _> = hashes.map(parse_name::<HashAlgo>).collect();
    Ok(ShardConfig {
        layout,
        compression: compression.map_err(|error| at("compression")(error.into()))?,
        hashes: hashes.map_err(|error: CodecError| at("hashes")(error.into()))?,
        size_limit: shard.nullable("size_limit", Object::number)?,
        late: None,
    })
}

/// Fails unless the version is 2.
pub(super) fn check_version(object: &Object<'_, '_>) -> Result<(), MdsError> {
    let found = object.number("version")?;
    if found == 2 {
        return Ok(());
    }
    let reason = format!("the version is {found}; only version 2 is supported");
    Err(MdsProblem::Version
        .because(reason)
        .at(object.position_of("version")))
}

/// Names of columns, and the texts of their encodings.
type Named<'j> = Vec<(&'j str, &'j str)>;

/// Returns the columns of JSON.
fn pairs<'j>(shard: &Object<'j, '_>, limits: &Limits) -> Result<Named<'j>, MdsError> {
    let expected = "an object of column names and encodings";
    let columns = shard.value("columns", expected, Json::as_object)?;
    Limits::check("columns", columns.len() as u64, limits.columns)
        .map_err(|exceeded| MdsError::from(exceeded).at(shard.position_of("columns")))?;
    let pair = |(name, encoding): &'j Member<'_>| {
        let text = encoding.as_text();
        let text = text.ok_or_else(|| unlike(encoding, TEXT).at(shard.position_of("columns")));
        Ok((&**name, text?))
    };
    columns.iter().map(pair).collect()
}

/// Returns the columns of the other formats.
fn named<'j>(shard: &Object<'j, '_>) -> Result<Named<'j>, MdsError> {
    let (names, encodings) = (
        shard.texts("column_names")?,
        shard.texts("column_encodings")?,
    );
    let (count, own) = (names.len(), encodings.len());
    if count != own {
        let reason = format!("there are {count} names, but {own} encodings");
        return Err(wrong_columns(shard, "column_names", reason));
    }
    Ok(names.into_iter().zip(encodings).collect())
}

fn wrong_columns(shard: &Object<'_, '_>, field: &str, reason: String) -> MdsError {
    let position = shard.position_of(field);
    MdsProblem::Columns.because(reason).at(position)
}

/// Parses the encodings of columns. Errors say which field has the names, and which the encodings.
fn columns<E>(
    shard: &Object<'_, '_>,
    names: &str,
    encodings: &str,
    named: Named<'_>,
    parse: impl Fn(&str) -> Result<E, MdsError>,
) -> Result<Vec<Column<E>>, MdsError> {
    let mut sorted: Vec<&str> = named.iter().map(|(name, _)| *name).collect();
    sorted.sort_unstable();
    if let Some((name, _)) = sorted
        .iter()
        .zip(sorted.iter().skip(1))
        .find(|(a, b)| a == b)
    {
        let reason = format!("there are two columns `{}`", shorten(name));
        return Err(wrong_columns(shard, names, reason));
    }
    let column = |(name, text): (&str, &str)| {
        let encoding = parse(text).map_err(|problem| {
            let described_field = format!("{encodings} of column `{}`", shorten(name));
            problem.at(shard.position_of(&described_field))
        });
        Ok(Column {
            name: name.to_owned(),
            encoding: encoding?,
        })
    };
    named.into_iter().map(column).collect()
}

fn mds_columns(shard: &Object<'_, '_>, limits: &Limits) -> Result<Vec<Column>, MdsError> {
    let is_registered = |encoding: &str| {
        let name = encoding.split(':').next().unwrap_or_default();
        let own = limits.program_encodings.as_ref();
        own.is_some_and(|own| own.contains(name) || Encoding::plain(name).is_none())
    };
    let parse = |text: &str| match is_registered(text) {
        true => Ok(Encoding::Registered {
            name: text.into(),
            size: None,
        }),
        false => parse_name(text),
    };
    let named = named(shard)?;
    let mut columns = columns(shard, "column_names", "column_encodings", named, parse)?;
    let sizes = "column_sizes";
    let list = shard.value(sizes, "a list of numbers and nulls", Json::as_list)?;
    let is_size = |json: &&Json<'_>| **json == Json::Null || json.as_number().is_some();
    if let Some(json) = list.iter().find(|json| !is_size(json)) {
        return Err(unlike(json, NUMBER).at(shard.position_of(sizes)));
    }
    let (count, own) = (columns.len(), list.len());
    if count != own {
        let reason = format!("there are {count} names, but {own} sizes");
        return Err(wrong_columns(shard, "column_names", reason));
    }
    for (Column { name, encoding }, json) in columns.iter_mut().zip(list) {
        // COMPAT: to the original reader, a size of 0 means no size.
        let size = json.as_number().filter(|size| *size != 0);
        if let Encoding::Registered { size: own, .. } = encoding {
            *own = size;
        }
        if size != encoding.fixed_size() {
            let shown =
                |size: Option<u64>| size.map_or_else(|| "null".to_owned(), |size| size.to_string());
            let reason = format!(
                "column `{}` has size {}, but encoding `{encoding}` has size {}",
                shorten(name),
                shown(size),
                shown(encoding.fixed_size()),
            );
            return Err(wrong_columns(shard, sizes, reason));
        }
    }
    Ok(columns)
}

fn newline(shard: &Object<'_, '_>, format: Format) -> Result<String, MdsError> {
    let newline = shard.text("newline")?;
    // The text after an object on its line must be whitespace, or the line is not JSON. The original reader removes the
    // newline of a line of values by its length, which must not be 0.
    let readable = match format {
        Format::Json => is_json_blank(newline),
        _ => !newline.is_empty(),
    };
    if readable {
        return Ok(newline.to_owned());
    }
    let newline = shorten(newline);
    let reason = format!("`{newline}` cannot end a line of this format");
    Err(shard.wrong_field("newline", reason))
}

fn separator(shard: &Object<'_, '_>, format: Format) -> Result<String, MdsError> {
    let separator = match fixed_separator(format) {
        Some(separator) => separator,
        None => shard.text("separator")?,
    };
    if separator.is_empty() {
        let reason = "an empty text cannot separate values";
        return Err(shard.wrong_field("separator", reason));
    }
    Ok(separator.to_owned())
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
