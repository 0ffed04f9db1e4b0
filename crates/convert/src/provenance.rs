//! The provenance file next to an index: where the data came from, and how it was converted.

use serde_json::{Value, json};
use shardmill_dataset::{IndexShape, PROVENANCE_BYTES, PROVENANCE_NAME};
use shardmill_source::SourceDescription;
use shardmill_storage::StorageError;
use shardmill_writer::{Content, DatasetIndex, ShardFormat, TarKeys};

use crate::identity::Identity;
use crate::pending;
use crate::report::{IncrementReport, SplitReport};
use crate::target::{Target, in_folder, side_name};
use crate::tokens::TokenizerFile;

/// The maximum number of files listed by name. Larger sources are described by count, size and fingerprint.
const FILES_NAMED: usize = 10_000;

/// The contents of a provenance file.
pub(crate) struct Provenance<'a> {
    pub(crate) identity: &'a Identity,
    pub(crate) source: &'a SourceDescription,
    pub(crate) keys: Option<&'a TarKeys>,
    pub(crate) split: &'a SplitReport,
    pub(crate) tokenizer: Option<&'a TokenizerFile>,
    pub(crate) content: Option<Content>,
    /// The hash of the order of the shards.
    pub(crate) order: Option<String>,
    pub(crate) dropped_rows: Option<u64>,
    pub(crate) increment: Option<&'a IncrementReport>,
    /// A note about the list of deleted samples.
    pub(crate) tombstones: Option<Value>,
}

impl Provenance<'_> {
    pub(crate) fn to_json(&self) -> Value {
        let Self {
            identity,
            source,
            split,
            ..
        } = self;
        let files: Vec<Value> = source
            .files
            .iter()
            .take(FILES_NAMED)
            .map(|file| json!({"path": file.path, "bytes": file.bytes}))
            .collect();
        let delta = source.delta.as_ref().map(|delta| {
            json!({
                "version": delta.version,
                "timestamp": delta.timestamp(),
                "id": delta.id,
            })
        });
        let mut value = json!({
            "provenance": 1,
            "writer": concat!("shardmill ", env!("CARGO_PKG_VERSION")),
            "config": identity.config,
            "config_fingerprint": identity.config_fingerprint,
            "source_fingerprint": identity.source_fingerprint,
            "source": {
                "kind": source.kind.name(),
                "delta": delta,
                "query": source.query,
                "rows": source.rows,
                "bytes": source.bytes,
                "files": files,
                "files_not_named": source.files.len().saturating_sub(FILES_NAMED),
            },
            "split": split.name,
            "samples": split.samples,
            "shards": split.shards,
            "raw_bytes": split.raw_bytes,
            "stored_bytes": split.stored_bytes,
            // Keys that are sample numbers are not part of the content.
            "keys": self.keys.map(|keys| match keys {
                TarKeys::Number => "number",
                TarKeys::Column { .. } => "column",
            }),
            "content": self.content.map(|content| content.to_string()),
            "order": self.order,
            "dropped_rows": self.dropped_rows,
            "increment": self.increment,
            "tombstones": self.tombstones,
        });
        if let (Some(zarr), Some(Value::Object(source))) = (&source.zarr, value.get_mut("source")) {
            source.insert("zarr".to_owned(), zarr.clone());
        }
        // Without one, the file is that of earlier versions.
        if let (Some(tokenizer), Value::Object(value)) = (self.tokenizer, &mut value) {
            value.insert("tokenizer".to_owned(), tokenizer.provenance());
        }
        value
    }
}

/// Returns the hash of the order of the shards of an index.
pub(crate) fn order_of(index: &DatasetIndex) -> String {
    IndexShape::of(index.shard_samples()).order
}

/// Returns the text of a provenance file.
pub(crate) fn text_of(provenance: &Value) -> String {
    format!("{provenance:#}\n")
}

/// Reads the provenance file of a dataset of shards. Returns `None` if it is missing or invalid.
pub(crate) fn read(target: Target<'_>, folder: &str) -> Option<Value> {
    read_named(target, folder, PROVENANCE_NAME)
}

fn read_named(target: Target<'_>, folder: &str, name: &str) -> Option<Value> {
    let name = in_folder(folder, name);
    let bytes = target.read(&name, PROVENANCE_BYTES).ok()??;
    serde_json::from_slice(&bytes).ok()
}

/// Reads the provenance that belongs to an index. Returns `None` if it is missing or invalid.
pub(crate) fn of_index(
    target: Target<'_>,
    folder: &str,
    index: &[u8],
    to: ShardFormat,
) -> Result<Option<Value>, StorageError> {
    let file = (PROVENANCE_NAME, PROVENANCE_BYTES);
    let text = pending::read_side(target, (folder, to), index, file)?;
    Ok(text.and_then(|text| serde_json::from_slice(&text).ok()))
}

/// Returns whether a folder is a split of the dataset around it, and not a separate dataset.
pub(crate) fn is_split(target: Target<'_>, folder: &str) -> bool {
    let hidden = || {
        read_named(
            target,
            folder,
            &side_name(ShardFormat::Parquet, PROVENANCE_NAME),
        )
    };
    let split = read(target, folder).or_else(hidden);
    let split = split
        .as_ref()
        .and_then(|value| value.get("split")?.as_str());
    split == Some(folder)
}
