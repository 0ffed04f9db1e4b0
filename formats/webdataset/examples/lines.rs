//! The crate as a program, for `testdata/differential.py`: a request in JSON on each line of standard input, an answer on
//! each line of standard output. Bytes travel as hexadecimal digits.

use std::error::Error;
use std::io::{self, BufRead as _, Write as _};

use serde_json::{Value as Json, json};
use shardmill_core::{Diagnostic, Limits};
use shardmill_webdataset::{
    Consumer, DType, Profile, ShardBuilder, ShardMap, TarCompression, compress_shard, deflate,
    encode_ten, npy_header, sidecar, write_offsets,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let request: Json = serde_json::from_str(&line?)?;
        let answer = answer(&request)?;
        writeln!(out, "{answer}")?;
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &Json) -> Result<Vec<u8>> {
    let text = text.as_str().ok_or("bytes are a string")?;
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?))
        .collect()
}

fn text<'j>(request: &'j Json, key: &str) -> Result<&'j str> {
    request[key]
        .as_str()
        .ok_or_else(|| format!("`{key}` is a string").into())
}

fn file(request: &Json) -> Result<Vec<u8>> {
    Ok(std::fs::read(text(request, "path")?)?)
}

fn failed(error: &impl Diagnostic) -> Json {
    json!({"error": error.id(), "text": error.to_string()})
}

/// The fields of a sample: names and bytes.
fn fields(json: &Json) -> Result<Vec<(String, Vec<u8>)>> {
    let list = json.as_array().ok_or("fields are a list")?;
    list.iter()
        .map(|field| {
            let name = field[0].as_str().ok_or("a field has a name")?;
            Ok((name.to_owned(), unhex(&field[1])?))
        })
        .collect()
}

fn map_json(map: &ShardMap) -> Json {
    let samples: Vec<Json> = map
        .samples
        .iter()
        .map(|sample| {
            let fields: Vec<Json> = sample
                .fields
                .iter()
                .map(|field| json!([field.name, field.member, field.offset, field.bytes]))
                .collect();
            json!([sample.key, fields])
        })
        .collect();
    json!({"samples": samples, "skipped": map.skipped, "end": map.end})
}

fn answer(request: &Json) -> Result<Json> {
    let limits = Limits::default();
    Ok(match text(request, "op")? {
        "write" => {
            let mtime = u32::try_from(request["mtime"].as_u64().unwrap_or(0))?;
            let profile = match request["profile"].as_str() {
                Some("canonical") => Profile::default(),
                _ => Profile::reference(mtime),
            };
            let mut shard = ShardBuilder::new(profile);
            for sample in request["samples"].as_array().ok_or("samples are a list")? {
                let key = sample[0].as_str().ok_or("a sample has a key")?;
                let fields = fields(&sample[1])?;
                let fields: Vec<(&str, &[u8])> = fields
                    .iter()
                    .map(|(name, bytes)| (name.as_str(), &bytes[..]))
                    .collect();
                if let Err(error) = shard.push(key, &fields) {
                    return Ok(failed(&error));
                }
            }
            json!({"tar": hex(&shard.finish().0)})
        }
        "read" => match ShardMap::read(&file(request)?, &limits) {
            Ok(map) => map_json(&map),
            Err(error) => failed(&error),
        },
        "split" => {
            let names = request["names"].as_array().ok_or("names are a list")?;
            let of = |consumer: Consumer| -> Vec<Json> {
                names
                    .iter()
                    .filter_map(Json::as_str)
                    .map(|name| json!(consumer.split(name)))
                    .collect()
            };
            Consumer::ALL
                .into_iter()
                .map(|consumer| (consumer.name().to_owned(), Json::from(of(consumer))))
                .collect::<serde_json::Map<_, _>>()
                .into()
        }
        "encode" => {
            let data = unhex(&request["data"])?;
            let short = text(request, "dtype")?;
            let dtype = DType::ALL.into_iter().find(|dtype| dtype.short() == short);
            let dims = request["shape"].as_array().ok_or("a shape is a list")?;
            let dtype = dtype.ok_or("an unknown type")?;
            let shape: Vec<u64> = dims.iter().filter_map(Json::as_u64).collect();
            let field = text(request, "field")?;
            let mut raw = Vec::new();
            let encoded = if field.contains("npy") {
                npy_header(field, dtype, &shape, &mut raw).map(|()| raw.extend_from_slice(&data))
            } else {
                encode_ten(field, dtype, &shape, &data, &mut raw)
            };
            let mut out = Vec::new();
            match encoded.and_then(|()| deflate(field, &raw, &mut out)) {
                Ok(()) => json!({"bytes": hex(&out)}),
                Err(error) => failed(&error),
            }
        }
        "sidecars" => {
            let data = file(request)?;
            let map = match ShardMap::read(&data, &limits) {
                Ok(map) => map,
                Err(error) => return Ok(failed(&error)),
            };
            let shard = sidecar::SidecarShard {
                name: text(request, "name")?,
                bytes: data.len() as u64,
                md5: None,
                samples: &map.samples,
            };
            json!({
                "dali": sidecar::dali_index(&shard).map_err(|error| error.to_string()),
                "offsets": hex(&write_offsets(&map.offsets())),
                "wids": sidecar::wids_index(&[shard], None, None),
            })
        }
        "compress" => {
            let data = file(request)?;
            let level = u8::try_from(request["level"].as_u64().unwrap_or(3))?;
            let compression = match text(request, "to")? {
                "gz" => TarCompression::Gzip { level },
                _ => TarCompression::Zstd { level },
            };
            let map = ShardMap::read(&data, &limits)?;
            let group_bytes = request["group_bytes"].as_u64().unwrap_or(1 << 20);
            let zip = compress_shard(&data, &map.offsets(), compression, group_bytes)?;
            json!({"bytes": hex(&zip)})
        }
        other => return Err(format!("unknown request `{other}`").into()),
    })
}
