//! Runs the binary and formats its results.

use std::fs::File;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, FixedSizeListArray, Float32Array, Float64Array, Int64Array, RecordBatch,
    StringArray,
};
use arrow::datatypes::{DataType, Field};
use assert_cmd::Command;
use parquet::arrow::ArrowWriter;
use shardmill_testing::mds::Spec;
use tempfile::TempDir;

/// Variables that change what commands print.
const VARIABLES: [&str; 10] = [
    "SHARDMILL_COLOR",
    "SHARDMILL_JOBS",
    "SHARDMILL_MEMORY_LIMIT",
    "SHARDMILL_PROGRESS",
    "SHARDMILL_SINGLE_WRITER",
    "SHARDMILL_TAKEOVER_AFTER",
    "SHARDMILL_TEMP_DIR",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "NO_COLOR",
];

/// A temporary directory for one test, in which commands run.
pub struct TestDir {
    dir: TempDir,
}

/// The result of a command.
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl TestDir {
    pub fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a file, and creates the directories it needs.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, contents).unwrap();
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path().join(name)).unwrap()
    }

    pub fn exists(&self, name: &str) -> bool {
        self.path().join(name).exists()
    }

    /// Writes a shard of JSON lines with its index.
    pub fn json_shards(&self, to: &str, columns: &[(&str, &str)], lines: &str) {
        let spec = Spec::json(columns);
        let samples: Vec<Vec<u8>> = lines
            .lines()
            .map(|line| format!("{line}\n").into_bytes())
            .collect();
        spec.write(&self.path().join(to), &[spec.shard(&samples)])
            .unwrap();
    }

    /// Writes a Parquet file.
    pub fn parquet(&self, name: &str, batch: &RecordBatch) {
        self.write(name, "");
        let file = File::create(self.path().join(name)).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
        writer.write(batch).unwrap();
        writer.close().unwrap();
    }

    /// Creates a dataset `shards` of 100 samples in 4 shards, from `data/rows.parquet`.
    pub fn with_shards() -> Self {
        let dir = Self::new();
        dir.parquet("data/rows.parquet", &rows(100));
        dir.ok(&["convert", "data", "shards", "--samples-per-shard", "30"]);
        dir
    }

    /// Creates five samples of a tree: two folders, text and numbers.
    pub fn with_tree() -> Self {
        let dir = Self::new();
        for sample in 0..5 {
            let folder = ["a", "b"][sample % 2];
            dir.write(
                &format!("tree/{folder}/{sample}.txt"),
                format!("text {sample}"),
            );
            dir.write(&format!("tree/{folder}/{sample}.cls"), sample.to_string());
        }
        dir
    }

    /// Creates such a tree, and tar shards of three samples each in `tars`.
    pub fn with_tars() -> Self {
        let dir = Self::with_tree();
        dir.convert_to_tars(&[]);
        dir
    }

    /// Converts `tree` into tar shards of three samples each in `tars`.
    pub fn convert_to_tars(&self, options: &[&str]) {
        let convert = ["convert", "tree", "tars", "--to", "webdataset"];
        let size = ["--samples-per-shard", "3"];
        self.ok(&[&convert[..], &size, options].concat());
    }

    /// Returns the command, which will run in this directory.
    pub fn command(&self) -> Command {
        let mut command = Command::cargo_bin("shardmill").unwrap();
        command
            .current_dir(self.path())
            .env("COLUMNS", "100")
            .env_remove("RUST_BACKTRACE");
        for variable in VARIABLES {
            command.env_remove(variable);
        }
        command
    }

    pub fn output(&self, args: &[&str]) -> Output {
        self.command().args(args).output().unwrap()
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        let output = self.output(args);
        Ran {
            code: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Returns the standard output of a command that must succeed.
    pub fn ok(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.stderr);
        ran.stdout
    }

    /// Returns the JSON on the standard output of a command that must succeed.
    pub fn json(&self, args: &[&str]) -> serde_json::Value {
        let stdout = self.ok(args);
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{args:?}: {error}: {stdout}"))
    }

    /// Returns status, standard output and standard error as one text for a snapshot.
    pub fn shown(&self, args: &[&str]) -> String {
        self.run(args).shown()
    }
}

impl Ran {
    pub fn shown(&self) -> String {
        let mut text = format!("exit {}\n", self.code);
        for (name, stream) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            if !stream.is_empty() {
                text.push_str(&format!("--- {name}\n{stream}"));
                if !stream.ends_with('\n') {
                    text.push_str("(no newline)\n");
                }
            }
        }
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        lines.join("\n")
    }

    /// Returns the fields of an error that was printed as JSON.
    pub fn error(&self) -> serde_json::Value {
        let line: serde_json::Value = serde_json::from_str(self.stderr.trim()).unwrap();
        line.get("error").unwrap().clone()
    }
}

/// Returns rows with a column of each kind: `id`, `name`, `score`, `blob`, `pair`.
pub fn rows(count: i64) -> RecordBatch {
    let item = Arc::new(Field::new("item", DataType::Float32, false));
    let numbers = Float32Array::from_iter_values((0..count * 2).map(|number| number as f32 / 4.0));
    let pairs = FixedSizeListArray::new(item, 2, Arc::new(numbers), None);
    let columns: [(&str, ArrayRef); 5] = [
        ("id", Arc::new(Int64Array::from_iter_values(0..count))),
        (
            "name",
            Arc::new(StringArray::from_iter_values(
                (0..count).map(|number| format!("row {number}")),
            )),
        ),
        (
            "score",
            Arc::new(Float64Array::from_iter_values(
                (0..count).map(|number| number as f64 / 10.0),
            )),
        ),
        (
            "blob",
            Arc::new(BinaryArray::from_iter_values(
                (0..count).map(|number| number.to_le_bytes()),
            )),
        ),
        ("pair", Arc::new(pairs)),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, false)))
        .unwrap()
}

/// A snapshot without times, rates and hashes.
#[macro_export]
macro_rules! snapshot {
    ($value:expr, @$expected:literal) => {
        insta::with_settings!({ filters => $crate::common::FILTERS.to_vec() }, {
            insta::assert_snapshot!($value, @$expected);
        });
    };
}

pub const FILTERS: [(&str, &str); 5] = [
    (r"\b[0-9a-f]{32,128}\b", "[HASH]"),
    (r"\b\d+\.\d+ (MB/s)", "[RATE] $1"),
    (r"\b\d+\.\d+ s\b", "[TIME]"),
    (r"\b\d+ ms\b", "[TIME]"),
    (r#""(\w*seconds)":[0-9.e-]+"#, r#""$1":[TIME]"#),
];
