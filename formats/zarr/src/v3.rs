//! Metadata of version 3: `zarr.json`.

use serde_json::Value;
use shardmill_core::Limits;

use crate::array::{Keys, ZarrArray};
use crate::codec::{Codecs, Packer};
use crate::dtype::{ElementType, fill_bytes, parse_v3, text_of};
use crate::error::ZarrError;
use crate::json::json;
use crate::shard::Shard;
use crate::v2::{field, names, numbers, separator_of};

/// The members that a reader need not refuse.
const MEMBERS: &[&str] = &[
    "zarr_format",
    "node_type",
    "shape",
    "data_type",
    "chunk_grid",
    "chunk_key_encoding",
    "fill_value",
    "codecs",
    "attributes",
    "dimension_names",
    "storage_transformers",
];

impl ZarrArray {
    /// Parses the metadata of version 3: the bytes of `zarr.json`.
    ///
    /// # Errors
    ///
    /// [`ZarrError`] for metadata that is not valid, and for types and codecs that are not supported.
    pub fn parse_v3(bytes: &[u8], limits: &Limits) -> Result<Self, ZarrError> {
        let array = json(bytes, "zarr.json")?;
        check_members(&array)?;
        let ElementType {
            dtype, numpy_time, ..
        } = parse_v3(field(&array, "data_type")?)?;
        let shape = numbers(&array, "shape")?;
        let (grid, grid_options) = named(field(&array, "chunk_grid")?)?;
        if grid != "regular" {
            return Err(ZarrError::metadata(format!(
                "has a grid of chunks called `{grid}`, not `regular`"
            )));
        }
        let object_shape = numbers(grid_options, "chunk_shape")?;
        let (keys, key_options) = named(field(&array, "chunk_key_encoding")?)?;
        let (has_prefix, default) = match keys {
            "default" => (true, '/'),
            "v2" => (false, '.'),
            _ => {
                return Err(ZarrError::metadata(format!(
                    "has names of chunks called `{keys}`"
                )));
            }
        };
        let chain = chain(field(&array, "codecs")?, &object_shape, true)?;
        let dimensions = names(array.get("dimension_names"))?;
        Self {
            dimensions,
            dtype,
            chunk_shape: chain.chunk_shape.unwrap_or(object_shape),
            shard: chain.shard,
            fill: fill_bytes(dtype, field(&array, "fill_value")?)?,
            attributes: array
                .get("attributes")
                .and_then(Value::as_object)
                .cloned()
                .unwrap_or_default(),
            mask: None,
            numpy_time,
            codecs: chain.codecs,
            keys: Keys {
                has_prefix,
                separator: separator_of(key_options.get("separator"), default)?,
            },
            shape,
        }
        .checked(limits)
    }
}

/// Refuses what is no array, and extensions that a reader must understand.
fn check_members(array: &Value) -> Result<(), ZarrError> {
    if array.get("node_type").and_then(Value::as_str) != Some("array") {
        return Err(ZarrError::metadata("is no array"));
    }
    if array.get("zarr_format").and_then(Value::as_u64) != Some(3) {
        return Err(ZarrError::metadata("`zarr.json` is not of version 3"));
    }
    let transformers = array.get("storage_transformers").and_then(Value::as_array);
    if transformers.is_some_and(|list| !list.is_empty()) {
        return Err(ZarrError::Codec("storage_transformers".to_owned()));
    }
    let members = array.as_object().into_iter().flatten();
    let unknown = members
        .filter(|(name, _)| !MEMBERS.contains(&name.as_str()))
        .find(|(_, value)| value.get("must_understand") != Some(&Value::Bool(false)));
    match unknown {
        Some((name, _)) => Err(ZarrError::Codec(name.clone())),
        None => Ok(()),
    }
}

/// Returns the name and the options of a grid, a codec or another extension.
fn named(value: &Value) -> Result<(&str, &Value), ZarrError> {
    let name = value.as_str().or_else(|| value.get("name")?.as_str());
    let name = name.ok_or_else(|| {
        let value = text_of(value);
        ZarrError::metadata(format!("`{value}` has no name"))
    })?;
    Ok((name, value.get("configuration").unwrap_or(&Value::Null)))
}

/// The codecs of an array, or of the index of a shard.
struct Chain {
    codecs: Codecs,
    shard: Option<Shard>,
    /// The shape of the chunks in a shard.
    chunk_shape: Option<Vec<u64>>,
}

/// Parses a list of codecs for chunks of this shape.
fn chain(list: &Value, shape: &[u64], may_shard: bool) -> Result<Chain, ZarrError> {
    let list = list.as_array();
    let list = list.ok_or_else(|| ZarrError::metadata("`codecs` is no list"))?;
    let mut codecs = Codecs::default();
    let mut is_bytes = false;
    for value in list {
        let (name, options) = named(value)?;
        match name {
            "transpose" if !is_bytes => {
                let axes = axes(options, shape.len())?;
                codecs.axes = Some(match codecs.axes.take() {
                    None => axes,
                    Some(before) => axes
                        .iter()
                        .filter_map(|axis| before.get(*axis).copied())
                        .collect(),
                });
            }
            "bytes" if !is_bytes => {
                is_bytes = true;
                codecs.big_endian = options.get("endian").and_then(Value::as_str) == Some("big");
            }
            "sharding_indexed" if may_shard && list.len() == 1 => return sharded(options, shape),
            "sharding_indexed" => {
                return Err(ZarrError::Codec(
                    "sharding_indexed with other codecs".to_owned(),
                ));
            }
            // Version 3 of Zarr registers these names only.
            "gzip" | "zstd" | "blosc" | "crc32c" if is_bytes => {
                codecs.packers.push(Packer::named(name)?)
            }
            _ => return Err(ZarrError::Codec(name.to_owned())),
        }
    }
    if !is_bytes {
        return Err(ZarrError::metadata(
            "no codec turns the elements into bytes",
        ));
    }
    Ok(Chain {
        codecs,
        shard: None,
        chunk_shape: None,
    })
}

/// Returns the order of axes, which has each of them once.
fn axes(options: &Value, rank: usize) -> Result<Vec<usize>, ZarrError> {
    let order = numbers(options, "order")?;
    let axes: Vec<usize> = order
        .iter()
        .filter_map(|axis| usize::try_from(*axis).ok())
        .collect();
    let mut sorted = axes.clone();
    sorted.sort_unstable();
    match sorted == (0..rank).collect::<Vec<_>>() {
        true => Ok(axes),
        false => Err(ZarrError::metadata(
            "the order of a transposition does not have each axis once",
        )),
    }
}

fn sharded(options: &Value, shape: &[u64]) -> Result<Chain, ZarrError> {
    let chunk_shape = numbers(options, "chunk_shape")?;
    let divides = |(whole, chunk): (&u64, &u64)| *chunk > 0 && whole.is_multiple_of(*chunk);
    if chunk_shape.len() != shape.len() || !shape.iter().zip(&chunk_shape).all(divides) {
        return Err(ZarrError::metadata(
            "the chunks of a shard do not divide it",
        ));
    }
    let chunks: Vec<u64> = shape
        .iter()
        .zip(&chunk_shape)
        .map(|(whole, chunk)| whole / chunk)
        .collect();
    let index = chain(
        field(options, "index_codecs")?,
        &[chunks.as_slice(), &[2]].concat(),
        false,
    )?
    .codecs;
    if let Some(packer) = index.packers.iter().find(|own| **own != Packer::Crc32c) {
        return Err(ZarrError::Codec(format!(
            "{packer:?} in the index of a shard"
        )));
    }
    let at_start = match options.get("index_location").map(Value::as_str) {
        None | Some(Some("end")) => false,
        Some(Some("start")) => true,
        Some(_) => {
            return Err(ZarrError::metadata(
                "`index_location` is neither start nor end",
            ));
        }
    };
    Ok(Chain {
        shard: Some(Shard {
            chunks,
            at_start,
            index,
        }),
        ..chain(field(options, "codecs")?, &chunk_shape, false).map(|inner| Chain {
            chunk_shape: Some(chunk_shape),
            ..inner
        })?
    })
}
