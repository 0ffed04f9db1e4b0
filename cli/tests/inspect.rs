use crate::common::{TestDir, rows};
use crate::snapshot;

#[test]
fn dataset_summary_is_printed() {
    snapshot!(TestDir::with_shards().shown(&["inspect", "shards"]), @r"
    exit 0
    --- stdout
    shards: 100 samples in 4 shards
      raw          6.0 KiB
      stored       2.5 KiB, ratio 2.37
      raw shards   smallest 785 B, median 1.7 KiB, largest 1.7 KiB
      index        2.4 KiB, sha256:[HASH]
      format       mds
      compression  zstd:3
      hashes       sha256
      size limit   64.0 MiB

      column  encoding            bytes
      blob    bytes              varies
      id      int64                   8
      name    str                varies
      pair    ndarray:float32:2       8
      score   float64                 8

      written by   shardmill 0.1.0
      from         parquet, 1 file, 6.7 KiB, 100 rows
      first file   data/rows.parquet
      fingerprint  [HASH]
      content      [HASH]
    ");
}

#[test]
fn dataset_summary_is_printed_as_json() {
    let summary = TestDir::with_shards().json(&["inspect", "shards", "--json"]);
    assert_eq!(summary["samples"], 100);
    assert_eq!(summary["columns"][1]["name"], "id");
    assert_eq!(summary["columns"][1]["bytes"], 8);
    assert_eq!(summary["provenance"]["source"]["kind"], "parquet");
    assert_eq!(summary["layout_shards"], 4);
    let stored = summary["stored_bytes"].as_u64().unwrap();
    assert!(stored > 0 && summary["raw_bytes"].as_u64().unwrap() > stored);
}

#[test]
fn index_hash_is_accepted_by_verify() {
    let dir = TestDir::with_shards();
    let summary = dir.json(&["inspect", "shards", "--json"]);
    dir.ok(&[
        "verify",
        "shards",
        "--expect-index",
        summary["index_hash"].as_str().unwrap(),
    ]);
}

#[test]
fn splits_of_a_directory_are_listed() {
    let dir = TestDir::new();
    dir.parquet("data/rows.parquet", &rows(100));
    dir.ok(&[
        "convert",
        "data",
        "out",
        "--split",
        "train=0.75,val=0.25",
        "--split-key",
        "name",
    ]);
    snapshot!(dir.shown(&["inspect", "out"]), @r"
    exit 0
    --- stdout
    out: 100 samples in 2 datasets
      name   samples  shards      raw   stored  format
      train       75       1  3.9 KiB  1.3 KiB  mds
      val         25       1  1.5 KiB    680 B  mds
    ");
    let all = dir.json(&["inspect", "out", "--json"]);
    assert_eq!(all["samples"], 100);
    assert_eq!(all["datasets"][0]["name"], "train");
}

#[test]
fn different_shard_layouts_are_listed() {
    let dir = TestDir::with_shards();
    dir.parquet("more/rows.parquet", &rows(5));
    std::fs::create_dir(dir.path().join("all")).unwrap();
    std::fs::rename(dir.path().join("shards"), dir.path().join("all/a")).unwrap();
    dir.ok(&[
        "convert",
        "more",
        "all/b",
        "--column",
        "id:int",
        "--compression",
        "none",
        "--hashes",
        "none",
    ]);
    dir.ok(&["index", "merge", "all"]);
    snapshot!(dir.shown(&["inspect", "all"]), @r"
    exit 0
    --- stdout
    all: 105 samples in 5 shards
      raw         6.2 KiB
      stored      2.8 KiB, ratio 2.25
      raw shards  smallest 232 B, median 1.7 KiB, largest 1.7 KiB
      index       2.6 KiB, sha256:[HASH]

    4 shards:
      format       mds
      compression  zstd:3
      hashes       sha256
      size limit   64.0 MiB

      column  encoding            bytes
      blob    bytes              varies
      id      int64                   8
      name    str                varies
      pair    ndarray:float32:2       8
      score   float64                 8

    1 shard:
      format       mds
      compression  none
      hashes       none
      size limit   64.0 MiB

      column  encoding  bytes
      id      int           8

      written by  shardmill 0.1.0
      content     [HASH]
    ");
    assert_eq!(
        dir.json(&["inspect", "all", "--json"])["other_layouts"][0]["columns"][0]["encoding"],
        "int"
    );
}

#[test]
fn empty_dataset_summary_is_printed() {
    let dir = TestDir::new();
    dir.write("empty/index.json", r#"{"shards": [], "version": 2}"#);
    snapshot!(dir.shown(&["inspect", "empty"]), @r"
    exit 0
    --- stdout
    empty: 0 samples in 0 shards
      raw     0 B
      stored  0 B
      index   28 B, sha256:[HASH]
    ");
}

#[test]
fn parquet_source_summary_is_printed() {
    let dir = TestDir::new();
    dir.parquet("data/rows.parquet", &rows(100));
    snapshot!(dir.shown(&["inspect", "data"]), @r"
    exit 0
    --- stdout
    data: parquet, 1 file, 6.7 KiB, 100 rows

      column  type                                 nulls  encoding
      id      Int64                                    0  int64
      name    Utf8                                     0  str
      score   Float64                                  0  float64
      blob    Binary                                   0  bytes
      pair    FixedSizeList(2 x non-null Float32)      0  ndarray:float32:2
    ");
    let source = dir.json(&["inspect", "data/rows.parquet", "--json"]);
    assert_eq!(
        (&source["kind"], &source["rows"]),
        (&"parquet".into(), &100.into())
    );
    assert_eq!(source["columns"][4]["encoding"], "ndarray:float32:2");
}

#[test]
fn csv_source_summary_is_printed() {
    let dir = TestDir::new();
    dir.write("rows.csv", "id,name\n1,a\n2,b\n");
    snapshot!(dir.shown(&["inspect", "rows.csv"]), @r"
    exit 0
    --- stdout
    rows.csv: csv, 1 file, 16 B, 2 rows

      column  type   nulls  encoding
      id      Int64      0  int64
      name    Utf8       0  str
    ");
}

#[test]
fn file_tree_summary_is_printed() {
    let dir = TestDir::new();
    dir.write("tree/a/1.jpg", "\u{ff}");
    dir.write("tree/a/1.json", "{}");
    dir.write("tree/a/2.json", "{}");
    snapshot!(dir.shown(&["inspect", "tree"]), @r"
    exit 0
    --- stdout
    tree: tree, 3 files, 6 B, 2 rows

      column   type    nulls  encoding
      __key__  Utf8        0  str
      jpg      Binary      1  jpeg
      json     Binary      0  json
    ");
}
