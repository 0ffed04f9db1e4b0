//! Tests commands on a destination where another command has run or is still running.

use std::fs;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, StructArray};
use arrow::datatypes::{DataType, Field};
use arrow::record_batch::RecordBatch;

use crate::common::{TestDir, rows};

/// The id of the error that a command ends with, and its status.
fn refused(dir: &TestDir, args: &[&str]) -> (i32, String) {
    let ran = dir.run(&[args, &["--json"]].concat());
    let id = ran.error()["id"].as_str().unwrap().to_owned();
    (ran.code, id)
}

/// What a job on other machines has below a dataset.
const OF_JOBS: [&str; 3] = [
    ".shardmill/parts/job-00000-a/shard.00000.mds",
    ".shardmill/parts/job-00000.manifest",
    ".shardmill/commit/lease",
];

#[test]
fn part_files_of_other_jobs_are_kept() {
    for more in [
        &[][..],
        &["--overwrite"],
        &["--compression", "none", "--overwrite"],
    ] {
        let dir = TestDir::with_shards();
        for name in OF_JOBS {
            dir.write(&format!("shards/{name}"), "x");
        }
        dir.write("shards/.shardmill/tmp-0123456789abcdef", "x");
        let args = ["convert", "data", "shards", "--samples-per-shard", "30"];
        dir.ok(&[&args[..], more].concat());
        dir.ok(&["verify", "shards"]);
        for name in OF_JOBS {
            assert!(dir.exists(&format!("shards/{name}")), "{name} {more:?}");
        }
        assert!(!dir.exists("shards/.shardmill/tmp-0123456789abcdef"));
        assert!(!dir.exists("shards/.shardmill/journal"));
        assert!(!dir.exists("shards/.shardmill/lease"));
    }
}

#[test]
fn reader_cache_folders_are_kept_on_overwrite() {
    let dir = TestDir::new();
    dir.parquet("data/rows.parquet", &rows(100));
    let state = "shards/.train.shardmill/cache-0123456789abcdef/lock";
    dir.write(state, "x");
    let convert = ["convert", "data", "shards", "--split", "train=0.5,val=0.5"];
    dir.ok(&convert);
    dir.ok(&[&convert[..], &["--compression", "none", "--overwrite"]].concat());
    dir.ok(&["verify", "shards/train"]);
    assert!(dir.exists(state));
}

#[test]
fn datasets_in_subfolders_are_not_overwritten() {
    let dir = TestDir::new();
    dir.parquet("data/rows.parquet", &rows(100));
    for name in ["all/one", "all/two"] {
        dir.ok(&["convert", "data", name]);
    }
    let over = ["convert", "data", "all", "--overwrite"];
    assert_eq!(refused(&dir, &over), (4, "dest-not-empty".to_owned()));
    dir.ok(&["verify", "all/one"]);
    dir.ok(&["verify", "all/two"]);
    // Neither are those of others, which say nothing of where they come from.
    fs::remove_file(dir.path().join("all/one/index.provenance")).unwrap();
    assert_eq!(refused(&dir, &over).0, 4);
    // Splits are part of the dataset.
    dir.ok(&["convert", "data", "splits", "--split", "a=0.5,b=0.5"]);
    dir.ok(&["convert", "data", "splits", "--overwrite"]);
    assert!(!dir.exists("splits/a"));
    dir.ok(&["verify", "splits"]);
}

#[test]
fn changed_source_without_hashes_is_a_conflict() {
    let dir = TestDir::new();
    let write = |first: i64| {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + 50));
        let batch = RecordBatch::try_from_iter([("id", ids)]).unwrap();
        dir.parquet("data/rows.parquet", &batch);
        let bare = ["--compression", "none", "--hashes", "none"];
        // A dataset that replaces another one has other names.
        let _ = fs::remove_dir_all(dir.path().join("bare"));
        dir.ok(&[&["convert", "data", "bare"][..], &bare].concat());
    };
    write(0);
    let index = dir.read("bare/index.json");
    dir.ok(&["convert", "bare", "out"]);
    assert!(
        dir.ok(&["convert", "bare", "out"])
            .contains("already complete")
    );
    write(1000);
    assert_eq!(dir.read("bare/index.json"), index);
    assert_eq!(
        refused(&dir, &["convert", "bare", "out"]),
        (4, "dest-conflict".to_owned())
    );
}

#[test]
fn sql_query_with_other_memory_limit_is_a_conflict() {
    let dir = TestDir::new();
    dir.parquet("data/rows.parquet", &rows(100));
    let query = [
        "convert",
        "data",
        "out",
        "--sql",
        "SELECT id % 7 AS a, count(*) AS n FROM source GROUP BY id % 7",
    ];
    dir.ok(&query);
    assert!(dir.ok(&query).contains("already complete"));
    let less = [&query[..], &["--memory-limit", "64MiB"]].concat();
    assert_eq!(refused(&dir, &less), (4, "dest-conflict".to_owned()));
    // Without a query the order is that of the source.
    let plain = ["convert", "data", "plain"];
    dir.ok(&plain);
    dir.ok(&[&plain[..], &["--memory-limit", "64MiB"]].concat());
}

#[test]
fn struct_split_key_is_rejected() {
    let dir = TestDir::new();
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    let field = Arc::new(Field::new("a", DataType::Int64, false));
    let object: ArrayRef = Arc::new(StructArray::from(vec![(field, Arc::clone(&ids))]));
    let batch = RecordBatch::try_from_iter([("id", ids), ("s", object)]).unwrap();
    dir.parquet("data/rows.parquet", &batch);
    let args = [
        "convert",
        "data",
        "out",
        "--split",
        "a=0.5,b=0.5",
        "--split-key",
    ];
    assert_eq!(
        refused(&dir, &[&args[..], &["s"]].concat()),
        (2, "config-split-key".to_owned())
    );
    assert!(!dir.exists("out"));
    dir.ok(&[&args[..], &["id"]].concat());
}
