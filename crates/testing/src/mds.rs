//! Datasets written from the specification: shards byte by byte, and an index as JSON that tests can modify.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::{Map, Value, json};
use shardmill_mds::{Compression, HashAlgo, hash_hex};

/// Formats a value in the JSON style of indexes and headers: sorted keys, a space after `,` and `:`, ASCII only.
#[must_use]
pub fn dialect(value: &Value) -> String {
    let mut text = String::new();
    write_dialect(value, &mut text);
    text
}

fn write_dialect(value: &Value, text: &mut String) {
    match value {
        Value::Array(items) => {
            text.push('[');
            for (at, item) in items.iter().enumerate() {
                text.push_str(if at > 0 { ", " } else { "" });
                write_dialect(item, text);
            }
            text.push(']');
        }
        Value::Object(fields) => {
            text.push('{');
            let mut keys: Vec<&String> = fields.keys().collect();
            keys.sort();
            for (at, key) in keys.into_iter().enumerate() {
                text.push_str(if at > 0 { ", " } else { "" });
                write_text(key, text);
                text.push_str(": ");
                write_dialect(fields.get(key).unwrap_or(&Value::Null), text);
            }
            text.push('}');
        }
        Value::String(string) => write_text(string, text),
        other => text.push_str(&other.to_string()),
    }
}

fn write_text(string: &str, text: &mut String) {
    text.push('"');
    for character in string.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            ' '..='~' => text.push(character),
            other => {
                let mut units = [0; 2];
                for unit in other.encode_utf16(&mut units) {
                    text.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    text.push('"');
}

/// The shape of the shards of a dataset, as their headers and the index describe it.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The config of every shard.
    pub config: Map<String, Value>,
}

/// One shard as it is to be stored. It may be inconsistent.
#[derive(Clone, Debug, Default)]
pub struct RawShard {
    /// The raw data file.
    pub data: Vec<u8>,
    /// The raw meta file, for formats that have one.
    pub meta: Option<Vec<u8>>,
    /// The number of samples in the index.
    pub samples: u64,
    /// The compressed data file, if it differs from compressing `data`.
    pub zip: Option<Vec<u8>>,
}

impl Spec {
    /// Describes MDS shards with these columns, sorted by name: name, encoding, and the size of a value if it is fixed.
    #[must_use]
    pub fn mds(columns: &[(&str, &str, Option<u64>)]) -> Self {
        let mut sorted = columns.to_vec();
        sorted.sort_unstable();
        let mut config = Self::common("mds");
        config.insert(
            "column_names".into(),
            sorted.iter().map(|(name, ..)| *name).collect(),
        );
        config.insert(
            "column_encodings".into(),
            sorted.iter().map(|(_, encoding, _)| *encoding).collect(),
        );
        config.insert(
            "column_sizes".into(),
            sorted.iter().map(|(_, _, size)| json!(size)).collect(),
        );
        Self { config }
    }

    /// Describes JSON lines with these columns: name and encoding.
    #[must_use]
    pub fn json(columns: &[(&str, &str)]) -> Self {
        let mut config = Self::common("json");
        let columns: Map<String, Value> = columns
            .iter()
            .map(|(name, encoding)| ((*name).to_owned(), json!(encoding)))
            .collect();
        config.insert("columns".into(), columns.into());
        config.insert("newline".into(), "\n".into());
        Self { config }
    }

    /// Describes comma-separated values with these columns, sorted by name: name and encoding.
    #[must_use]
    pub fn csv(columns: &[(&str, &str)]) -> Self {
        let mut config = Self::common("csv");
        config.insert(
            "column_names".into(),
            columns.iter().map(|(name, _)| *name).collect(),
        );
        config.insert(
            "column_encodings".into(),
            columns.iter().map(|(_, encoding)| *encoding).collect(),
        );
        config.insert("newline".into(), "\n".into());
        Self { config }
    }

    fn common(format: &str) -> Map<String, Value> {
        let mut config = Map::new();
        config.insert("compression".into(), Value::Null);
        config.insert("format".into(), format.into());
        config.insert("hashes".into(), json!(["sha256"]));
        config.insert("size_limit".into(), json!(67_108_864));
        config.insert("version".into(), json!(2));
        config
    }

    /// Sets a field of the config.
    #[must_use]
    pub fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.config.insert(field.to_owned(), value.into());
        self
    }

    fn text(&self, field: &str) -> Option<&str> {
        self.config.get(field).and_then(Value::as_str)
    }

    /// Returns the header line of the CSV formats; empty for the others.
    fn header(&self) -> Vec<u8> {
        match (
            self.text("format"),
            self.config.get("column_names").and_then(Value::as_array),
        ) {
            (Some("csv" | "tsv"), Some(names)) => {
                let separator = if self.text("format") == Some("csv") {
                    ","
                } else {
                    "\t"
                };
                let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
                format!(
                    "{}{}",
                    names.join(separator),
                    self.text("newline").unwrap_or("\n")
                )
                .into_bytes()
            }
            _ => Vec::new(),
        }
    }

    /// Builds a shard of encoded samples.
    #[must_use]
    pub fn shard(&self, samples: &[Vec<u8>]) -> RawShard {
        let config = dialect(&Value::Object(self.config.clone()));
        let count = samples.len() as u64;
        let joint = self.text("format") == Some("mds");
        let header = self.header();
        let mut at = if joint {
            8 + 4 * count + config.len() as u64
        } else {
            header.len() as u64
        };
        let mut table = word(count);
        table.extend(word(at));
        for sample in samples {
            at += sample.len() as u64;
            table.extend(word(at));
        }
        table.extend_from_slice(config.as_bytes());
        let body = samples.concat();
        if joint {
            RawShard {
                data: [table, body].concat(),
                samples: count,
                ..RawShard::default()
            }
        } else {
            RawShard {
                data: [header, body].concat(),
                meta: Some(table),
                samples: count,
                zip: None,
            }
        }
    }

    /// Returns the name of a raw file of a shard, and that of its stored form.
    fn names(&self, number: usize, meta: bool) -> (String, Option<String>) {
        let raw = format!(
            "shard.{number:05}.{}{}",
            self.text("format").unwrap_or("mds"),
            if meta { ".meta" } else { "" }
        );
        let zip = self.text("compression").map(|compression| {
            let extension = compression.split(':').next().unwrap_or(compression);
            format!("{raw}.{extension}")
        });
        (raw, zip)
    }

    fn info(&self, name: &str, bytes: &[u8]) -> Value {
        let names = self
            .config
            .get("hashes")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        let hashes: Map<String, Value> = names
            .filter_map(|name| Some((name, name.parse::<HashAlgo>().ok()?)))
            .map(|(name, algo)| (name.to_owned(), hash_hex(algo, bytes).into()))
            .collect();
        json!({"basename": name, "bytes": bytes.len(), "hashes": hashes})
    }

    /// Writes the shards, and an index that describes exactly these bytes. Creates the directory.
    ///
    /// # Errors
    ///
    /// Returns errors of writing and compressing.
    pub fn write(&self, dir: &Path, shards: &[RawShard]) -> io::Result<()> {
        fs::create_dir_all(dir)?;
        let mut entries = Vec::with_capacity(shards.len());
        for (number, shard) in shards.iter().enumerate() {
            let mut entry = self.config.clone();
            entry.insert("samples".into(), json!(shard.samples));
            let files = [
                ("data", Some(&shard.data), false),
                ("meta", shard.meta.as_ref(), true),
            ];
            for (kind, bytes, meta) in files {
                let Some(bytes) = bytes else { continue };
                let (raw, zip) = self.names(number, meta);
                entry.insert(format!("raw_{kind}"), self.info(&raw, bytes));
                let stored = match &zip {
                    Some(name) => {
                        let zipped = match &shard.zip {
                            Some(zipped) if !meta => zipped.clone(),
                            _ => self.compress(bytes)?,
                        };
                        entry.insert(format!("zip_{kind}"), self.info(name, &zipped));
                        (name, zipped)
                    }
                    None => {
                        entry.insert(format!("zip_{kind}"), Value::Null);
                        (&raw, bytes.clone())
                    }
                };
                fs::write(dir.join(stored.0), stored.1)?;
            }
            entries.push(Value::Object(entry));
        }
        write_index(dir, &json!({"shards": entries, "version": 2}))
    }

    /// Compresses bytes as the shards are.
    ///
    /// # Errors
    ///
    /// Returns an error for an unknown compression.
    pub fn compress(&self, raw: &[u8]) -> io::Result<Vec<u8>> {
        let name = self.text("compression").unwrap_or_default();
        let compression: Compression = name.parse().map_err(io::Error::other)?;
        let mut zip = Vec::new();
        let mut compressor = compression.compressor().map_err(io::Error::other)?;
        let pieces = compression
            .segment_bytes()
            .unwrap_or(usize::MAX)
            .min(raw.len().max(1));
        for piece in raw.chunks(pieces) {
            compressor
                .compress(piece, &mut zip)
                .map_err(io::Error::other)?;
        }
        Ok(zip)
    }
}

/// Returns the low four bytes of a number.
#[must_use]
pub fn word(number: u64) -> Vec<u8> {
    number.to_le_bytes().get(..4).unwrap_or_default().to_vec()
}

/// Encodes an MDS sample: the lengths of the values without a fixed size, then all values. `true` marks a fixed size.
#[must_use]
pub fn sample(values: &[(bool, &[u8])]) -> Vec<u8> {
    let mut bytes: Vec<u8> = values
        .iter()
        .filter(|(fixed, _)| !fixed)
        .flat_map(|(_, value)| word(value.len() as u64))
        .collect();
    for (_, value) in values {
        bytes.extend_from_slice(value);
    }
    bytes
}

/// Reads the index of a dataset.
///
/// # Errors
///
/// Returns errors of reading and parsing.
pub fn read_index(dir: &Path) -> io::Result<Value> {
    serde_json::from_slice(&fs::read(dir.join("index.json"))?).map_err(io::Error::other)
}

/// Writes an index.
///
/// # Errors
///
/// Returns errors of writing.
pub fn write_index(dir: &Path, index: &Value) -> io::Result<()> {
    fs::write(dir.join("index.json"), dialect(index))
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardmill_core::Limits;
    use shardmill_mds::Index;

    /// The example in section 3.6 of the specification.
    #[test]
    fn writer_reproduces_the_specification_example() {
        let spec = Spec::mds(&[("b", "str", None), ("a", "int32", Some(4))])
            .with("hashes", json!(["sha1", "xxh64"]));
        let samples = [
            sample(&[(true, &1_i32.to_le_bytes()), (false, b"hi")]),
            sample(&[(true, &(-2_i32).to_le_bytes()), (false, b"")]),
        ];
        let shard = spec.shard(&samples);
        assert_eq!(shard.data.len(), 232);
        assert_eq!(
            hash_hex("xxh64".parse().unwrap(), &shard.data),
            "af8c543fd0e706f7"
        );
        let dir = tempfile::tempdir().unwrap();
        spec.write(dir.path(), &[shard]).unwrap();
        let text = fs::read_to_string(dir.path().join("index.json")).unwrap();
        let expected = r#"{"shards": [{"column_encodings": ["int32", "str"], "column_names": ["a", "b"], "column_sizes": [4, null], "compression": null, "format": "mds", "hashes": ["sha1", "xxh64"], "raw_data": {"basename": "shard.00000.mds", "bytes": 232, "hashes": {"sha1": "e4e88f71527c928950e66489b96189ea5aa91c35", "xxh64": "af8c543fd0e706f7"}}, "samples": 2, "size_limit": 67108864, "version": 2, "zip_data": null}], "version": 2}"#;
        assert_eq!(text, expected);
        assert_eq!(dialect(&read_index(dir.path()).unwrap()), expected);
    }

    #[test]
    fn json_and_csv_shards_have_a_meta_file() {
        let spec = Spec::json(&[("a", "int"), ("b", "str")])
            .with("hashes", json!([]))
            .with("compression", "zstd:3");
        let shard = spec.shard(&[
            b"{\"a\": 1, \"b\": \"\\u00e9\"}\n".to_vec(),
            b"{\"a\": 2, \"b\": \"x\"}\n".to_vec(),
        ]);
        assert_eq!(
            (shard.data.len(), shard.meta.as_ref().map(Vec::len)),
            (43, Some(161 + 4))
        );
        let dir = tempfile::tempdir().unwrap();
        spec.write(dir.path(), &[shard]).unwrap();
        assert!(
            dir.path().join("shard.00000.json.zstd").is_file()
                && dir.path().join("shard.00000.json.meta.zstd").is_file()
        );
        let bytes = fs::read(dir.path().join("index.json")).unwrap();
        assert_eq!(
            Index::parse(&bytes, &Limits::default()).unwrap().samples(),
            2
        );
        let csv = Spec::csv(&[("a", "int"), ("b", "str")])
            .shard(&[b"1,\xc3\xa9\n".to_vec(), b"2,x\n".to_vec()]);
        assert_eq!(csv.data, b"a,b\n1,\xc3\xa9\n2,x\n");
    }

    #[test]
    fn json_text_is_escaped_to_ascii() {
        assert_eq!(
            dialect(&json!({"b": "é\n\u{1f600}\u{7f}", "a": [1, null, true]})),
            "{\"a\": [1, null, true], \"b\": \"\\u00e9\\n\\ud83d\\ude00\\u007f\"}"
        );
    }
}
