//! Tests commands on a destination where another command has run or is still running.

use std::fs;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, StructArray};
use arrow::datatypes::{DataType, Field};
use arrow::record_batch::RecordBatch;

use crate::common::{TestDir, rows};

/// The id of the error that a command ends with, and its status.
fn refused(place: &TestDir, args: &[&str]) -> (i32, String) {
    let ran = place.run(&[args, &["--json"]].concat());
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
        let place = TestDir::with_shards();
        for name in OF_JOBS {
            place.write(&format!("shards/{name}"), "x");
        }
        place.write("shards/.shardmill/tmp-0123456789abcdef", "x");
        let args = ["convert", "data", "shards", "--samples-per-shard", "30"];
        place.ok(&[&args[..], more].concat());
        place.ok(&["verify", "shards"]);
        for name in OF_JOBS {
            assert!(place.exists(&format!("shards/{name}")), "{name} {more:?}");
        }
        assert!(!place.exists("shards/.shardmill/tmp-0123456789abcdef"));
        assert!(!place.exists("shards/.shardmill/journal"));
        assert!(!place.exists("shards/.shardmill/lease"));
    }
}

#[test]
fn reader_cache_folders_are_kept_on_overwrite() {
    let place = TestDir::new();
    place.parquet("data/rows.parquet", &rows(100));
    let state = "shards/.train.shardmill/cache-0123456789abcdef/lock";
    place.write(state, "x");
    let convert = ["convert", "data", "shards", "--split", "train=0.5,val=0.5"];
    place.ok(&convert);
    place.ok(&[&convert[..], &["--compression", "none", "--overwrite"]].concat());
    place.ok(&["verify", "shards/train"]);
    assert!(place.exists(state));
}

#[test]
fn datasets_in_subfolders_are_not_overwritten() {
    let place = TestDir::new();
    place.parquet("data/rows.parquet", &rows(100));
    for name in ["all/one", "all/two"] {
        place.ok(&["convert", "data", name]);
    }
    let over = ["convert", "data", "all", "--overwrite"];
    assert_eq!(refused(&place, &over), (4, "dest-not-empty".to_owned()));
    place.ok(&["verify", "all/one"]);
    place.ok(&["verify", "all/two"]);
    // Neither are those of others, which say nothing of where they come from.
    fs::remove_file(place.path().join("all/one/index.provenance")).unwrap();
    assert_eq!(refused(&place, &over).0, 4);
    // Splits are part of the dataset.
    place.ok(&["convert", "data", "splits", "--split", "a=0.5,b=0.5"]);
    place.ok(&["convert", "data", "splits", "--overwrite"]);
    assert!(!place.exists("splits/a"));
    place.ok(&["verify", "splits"]);
}

#[test]
fn changed_source_without_hashes_is_a_conflict() {
    let place = TestDir::new();
    let write = |first: i64| {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + 50));
        let batch = RecordBatch::try_from_iter([("id", ids)]).unwrap();
        place.parquet("data/rows.parquet", &batch);
        let bare = ["--compression", "none", "--hashes", "none", "--overwrite"];
        place.ok(&[&["convert", "data", "bare"][..], &bare].concat());
    };
    write(0);
    let index = place.read("bare/index.json");
    place.ok(&["convert", "bare", "out"]);
    assert!(
        place
            .ok(&["convert", "bare", "out"])
            .contains("already complete")
    );
    write(1000);
    assert_eq!(place.read("bare/index.json"), index);
    assert_eq!(
        refused(&place, &["convert", "bare", "out"]),
        (4, "dest-conflict".to_owned())
    );
}

#[test]
fn sql_query_with_other_memory_limit_is_a_conflict() {
    let place = TestDir::new();
    place.parquet("data/rows.parquet", &rows(100));
    let query = [
        "convert",
        "data",
        "out",
        "--sql",
        "SELECT id % 7 AS a, count(*) AS n FROM source GROUP BY id % 7",
    ];
    place.ok(&query);
    assert!(place.ok(&query).contains("already complete"));
    let less = [&query[..], &["--memory-limit", "64MiB"]].concat();
    assert_eq!(refused(&place, &less), (4, "dest-conflict".to_owned()));
    // Without a query the order is that of the source.
    let plain = ["convert", "data", "plain"];
    place.ok(&plain);
    place.ok(&[&plain[..], &["--memory-limit", "64MiB"]].concat());
}

#[test]
fn struct_split_key_is_rejected() {
    let place = TestDir::new();
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    let field = Arc::new(Field::new("a", DataType::Int64, false));
    let object: ArrayRef = Arc::new(StructArray::from(vec![(field, Arc::clone(&ids))]));
    let batch = RecordBatch::try_from_iter([("id", ids), ("s", object)]).unwrap();
    place.parquet("data/rows.parquet", &batch);
    let args = [
        "convert",
        "data",
        "out",
        "--split",
        "a=0.5,b=0.5",
        "--split-key",
    ];
    assert_eq!(
        refused(&place, &[&args[..], &["s"]].concat()),
        (2, "config-split-key".to_owned())
    );
    assert!(!place.exists("out"));
    place.ok(&[&args[..], &["id"]].concat());
}
