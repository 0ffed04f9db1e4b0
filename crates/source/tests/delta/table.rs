//! Writes Delta tables by hand, according to the protocol.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema};
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;
use parquet::file::properties::WriterProperties;
use serde_json::{Value, json};
pub use shardmill_testing::delta::inline_deletion;
use shardmill_testing::delta::{bitmap, z85};

use crate::help::{TestDir, parquet_bytes};

/// A table in a temporary directory.
pub struct Table {
    pub dir: TestDir,
    next: u64,
}

/// A file of a table, and its entry in the log.
pub struct Add {
    pub path: String,
    pub partition_values: Value,
    pub deletion: Option<Value>,
    pub records: Option<u64>,
}

impl Add {
    pub fn new(path: &str) -> Self {
        Self {
            path: path.to_owned(),
            partition_values: json!({}),
            deletion: None,
            records: None,
        }
    }

    pub fn partition(mut self, values: Value) -> Self {
        self.partition_values = values;
        self
    }

    pub fn deletion(mut self, deletion: Value) -> Self {
        self.deletion = Some(deletion);
        self
    }

    pub fn records(mut self, records: u64) -> Self {
        self.records = Some(records);
        self
    }

    pub fn action(&self, bytes: u64) -> Value {
        let mut add = json!({
            "path": self.path,
            "partitionValues": self.partition_values,
            "size": bytes,
            "modificationTime": 1_700_000_000_000_i64,
            "dataChange": true,
        });
        if let Some(records) = self.records {
            add["stats"] = json!(json!({"numRecords": records}).to_string());
        }
        if let Some(deletion) = &self.deletion {
            add["deletionVector"] = deletion.clone();
        }
        json!({ "add": add })
    }
}

/// Builds a `protocol` action with these reader features, which are also writer features.
pub fn protocol(features: &[&str]) -> Value {
    if features.is_empty() {
        return json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}});
    }
    json!({"protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features,
        "writerFeatures": features,
    }})
}

/// Builds a `metaData` action with these fields.
pub fn metadata(fields: Value, partition_columns: &[&str], configuration: Value) -> Value {
    json!({"metaData": {
        "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json!({"type": "struct", "fields": fields}).to_string(),
        "partitionColumns": partition_columns,
        "configuration": configuration,
        "createdTime": 1_700_000_000_000_i64,
    }})
}

/// Builds a nullable field of a schema.
pub fn field(name: &str, data_type: impl Into<Value>) -> Value {
    json!({"name": name, "type": data_type.into(), "nullable": true, "metadata": {}})
}

/// Builds a nullable field with an id and a physical name.
pub fn mapped(name: &str, data_type: impl Into<Value>, id: i64, physical: &str) -> Value {
    json!({"name": name, "type": data_type.into(), "nullable": true, "metadata": {
        "delta.columnMapping.id": id,
        "delta.columnMapping.physicalName": physical,
    }})
}

impl Table {
    pub fn new() -> Self {
        Self {
            dir: TestDir::new(),
            next: 0,
        }
    }

    /// Creates a table of these columns without features.
    pub fn plain(fields: Value) -> Self {
        let mut table = Self::new();
        table.commit(&[protocol(&[]), metadata(fields, &[], json!({}))]);
        table
    }

    /// Creates a table of these columns with reader features and properties.
    pub fn with(fields: Value, features: &[&str], configuration: Value) -> Self {
        let mut table = Self::new();
        table.commit(&[protocol(features), metadata(fields, &[], configuration)]);
        table
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path("t")
    }

    pub fn log(&self, name: &str) -> PathBuf {
        self.dir.path(&format!("t/_delta_log/{name}"))
    }

    /// Writes the next version.
    pub fn commit(&mut self, actions: &[Value]) -> u64 {
        let lines: Vec<String> = actions.iter().map(Value::to_string).collect();
        let name = format!("t/_delta_log/{:020}.json", self.next);
        self.dir.write(&name, lines.join("\n") + "\n");
        self.next += 1;
        self.next - 1
    }

    /// Writes a data file at a path, which is not encoded, and returns its length.
    pub fn file(&self, path: &str, batch: &RecordBatch) -> u64 {
        self.file_with(path, batch, WriterProperties::default())
    }

    pub fn file_with(&self, path: &str, batch: &RecordBatch, properties: WriterProperties) -> u64 {
        let bytes = parquet_bytes(batch, properties);
        self.dir.write(&format!("t/{path}"), &bytes);
        bytes.len() as u64
    }

    /// Writes a data file and commits it.
    pub fn append(&mut self, path: &str, batch: &RecordBatch) -> u64 {
        let bytes = self.file(path, batch);
        let add = Add::new(path).records(batch.num_rows() as u64);
        self.commit(&[add.action(bytes)])
    }

    /// Sets the modification time of a version's commit file.
    pub fn touch(&self, version: u64, milliseconds: u64) {
        let path = self.log(&format!("{version:020}.json"));
        let file = fs::File::options().write(true).open(path).unwrap();
        let at = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(milliseconds);
        file.set_modified(at).unwrap();
    }
}

/// Adds field ids to the top-level columns of a batch.
pub fn with_ids(batch: &RecordBatch, ids: &[i64]) -> RecordBatch {
    let fields: Vec<Field> = batch
        .schema()
        .fields()
        .iter()
        .zip(ids)
        .map(|(field, id)| with_id(Field::clone(field), *id))
        .collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), batch.columns().to_vec()).unwrap()
}

/// Adds a field id to a field.
pub fn with_id(field: Field, id: i64) -> Field {
    field.with_metadata(HashMap::from([(
        PARQUET_FIELD_ID_META_KEY.to_owned(),
        id.to_string(),
    )]))
}

/// Writes deletion vectors into one separate file.
pub fn stored_deletions(table: &Table, vectors: &[&[u64]]) -> Vec<Value> {
    let id: [u8; 16] = *b"shardmill-tests!";
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let name = format!(
        "deletion_vector_{}-{}-{}-{}-{}.bin",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    );
    let mut file = vec![1];
    let mut found = Vec::new();
    for rows in vectors {
        let (bitmap, bytes) = bitmap(rows);
        found.push(json!({
            "storageType": "u",
            "pathOrInlineDv": format!("ab{}", z85(&id)),
            "offset": file.len(),
            "sizeInBytes": bytes.len(),
            "cardinality": bitmap.len(),
        }));
        file.extend(u32::try_from(bytes.len()).unwrap().to_be_bytes());
        file.extend(&bytes);
        file.extend(crc32(&bytes).to_be_bytes());
    }
    table.dir.write(&format!("t/ab/{name}"), &file);
    found
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (0_u32.wrapping_sub(crc & 1)));
        }
    }
    !crc
}
