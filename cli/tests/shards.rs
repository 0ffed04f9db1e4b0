use crate::common::TestDir;
use crate::snapshot;

#[test]
fn inspect_shards_prints_one_line_per_shard() {
    snapshot!(TestDir::with_shards().shown(&["inspect", "--shards", "shards"]), @r"
    exit 0
    --- stdout
         0         30 samples     1.7 KiB raw       735 B stored  shard.00000.mds.zstd  sha256:[HASH]
         1         30 samples     1.7 KiB raw       712 B stored  shard.00001.mds.zstd  sha256:[HASH]
         2         30 samples     1.7 KiB raw       725 B stored  shard.00002.mds.zstd  sha256:[HASH]
         3         10 samples       785 B raw       419 B stored  shard.00003.mds.zstd  sha256:[HASH]
    ");
}

#[test]
fn inspect_shards_json_prints_one_object_per_shard() {
    let dir = TestDir::with_shards();
    let lines = dir.ok(&["inspect", "--shards", "shards", "--json"]);
    let shards: Vec<serde_json::Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let samples: Vec<_> = shards
        .iter()
        .map(|shard| shard["samples"].as_u64().unwrap())
        .collect();
    assert_eq!(samples, [30, 30, 30, 10]);
    let size = dir.read("shards/shard.00003.mds.zstd").len();
    assert_eq!(
        (&shards[3]["basename"], &shards[3]["stored_bytes"]),
        (&"shard.00003.mds.zstd".into(), &size.into())
    );
    assert_eq!(shards[3]["hashes"]["sha256"].as_str().unwrap().len(), 64);
}

#[test]
fn inspect_shards_accepts_an_index_path() {
    let dir = TestDir::with_shards();
    assert_eq!(
        dir.ok(&["inspect", "--shards", "shards/index.json"]),
        dir.ok(&["inspect", "--shards", "shards"])
    );
}

#[test]
fn folder_of_several_datasets_is_an_error() {
    let dir = TestDir::with_shards();
    insta::assert_snapshot!(dir.shown(&["inspect", "--shards", "."]), @r"
    exit 2
    --- stderr
    error[several-datasets]: .: it is a folder of datasets, and this command reads one; name one of them: ./shards
    ");
}
