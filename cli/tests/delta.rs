use std::path::PathBuf;

use crate::common::TestDir;
use crate::snapshot;

/// The table `versions` of `fixtures/delta` as `events`: three appends, a delete, a checkpoint, an overwrite.
fn dir() -> TestDir {
    let dir = TestDir::new();
    let from = PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../fixtures/delta/versions"
    ));
    for folder in ["", "_delta_log"] {
        for entry in std::fs::read_dir(from.join(folder)).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                let name = entry.file_name().into_string().unwrap();
                let bytes = std::fs::read(entry.path()).unwrap();
                dir.write(&format!("events/{folder}/{name}"), bytes);
            }
        }
    }
    let log = dir.path().join("events/_delta_log");
    for version in 0..5_u64 {
        let commit = log.join(format!("{version:020}.json"));
        let file = std::fs::File::options().write(true).open(commit).unwrap();
        let at = std::time::Duration::from_secs(1_750_000_000 + version * 3600);
        file.set_modified(std::time::SystemTime::UNIX_EPOCH + at)
            .unwrap();
    }
    dir
}

fn ids(dir: &TestDir, shards: &str) -> Vec<i64> {
    let lines = dir.ok(&["cat", shards, "..", "--column", "id"]);
    lines
        .lines()
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["id"]
                .as_i64()
                .unwrap()
        })
        .collect()
}

#[test]
fn delta_version_and_timestamp_select_a_snapshot() {
    let dir = dir();
    dir.ok(&["convert", "events", "latest"]);
    assert_eq!(ids(&dir, "latest"), [100, 101, 102]);
    dir.ok(&[
        "convert",
        "events",
        "first",
        "--delta-version",
        "0",
        "--where",
        "id > 6",
    ]);
    assert_eq!(ids(&dir, "first"), [7, 8, 9]);
    dir.ok(&[
        "convert",
        "events",
        "then",
        "--delta-timestamp",
        "2025-06-15T17:30:00Z",
        "--from",
        "delta",
    ]);
    let mut found = ids(&dir, "then");
    found.sort_unstable();
    let expected: Vec<i64> = (0..20).filter(|id| id % 4 != 1).collect();
    assert_eq!(found, expected);
    let provenance = dir.json(&["inspect", "then", "--json"])["provenance"]["source"].clone();
    assert_eq!(provenance["kind"], "delta");
    assert_eq!(provenance["delta"]["version"], 2);
    assert_eq!(provenance["delta"]["timestamp"], "2025-06-15T17:06:40.000Z");
    let shown = dir.ok(&["inspect", "then"]);
    assert!(
        shown.contains("version 2, written 2025-06-15T17:06:40.000Z"),
        "{shown}"
    );
    let again = dir.ok(&["convert", "events", "then", "--delta-version", "2"]);
    assert!(again.contains("already complete"), "{again}");
}

#[test]
fn delta_table_is_inspected() {
    snapshot!(dir().shown(&["inspect", "events"]), @r"
    exit 0
    --- stdout
    events: delta, 1 file, 801 B, 3 rows

      version   4, written 2025-06-15T19:06:40.000Z
      versions  0 to 4
      protocol  reader 1, writer 2

      file size       files  bytes
      below 64.0 KiB      1  801 B

      column  type   nulls  encoding
      id      Int64      0  int64
      name    Utf8       0  str
    ");
    snapshot!(dir().shown(&["inspect", "events", "--delta-version", "3"]), @r"
    exit 0
    --- stdout
    events: delta, 2 files, 1.7 KiB, 20 rows

      version   3, written 2025-06-15T18:06:40.000Z
      versions  0 to 4
      protocol  reader 1, writer 2

      file size       files    bytes
      below 64.0 KiB      2  1.7 KiB

      column  type   nulls  encoding
      id      Int64      0  int64
      name    Utf8       0  str
    ");
}

#[test]
fn missing_delta_version_error_lists_available_ones() {
    let dir = dir();
    snapshot!(dir.shown(&["convert", "events", "out", "--delta-version", "9"]), @r"
    exit 2
    --- stderr
    error[delta-version]: events: there is no version 9: versions 0 to 4 can be read; `shardmill inspect` shows which versions there are
    ");
    snapshot!(dir.shown(&["convert", "events", "out", "--delta-timestamp", "2001-01-01"]), @r"
    exit 2
    --- stderr
    error[delta-timestamp]: events: no version that can be read is as old as 2001-01-01T00:00:00.000Z: the oldest is version 0 of 2025-06-15T15:06:40.000Z; `shardmill inspect` shows which versions there are
    ");
    snapshot!(dir.shown(&["convert", "events", "out", "--delta-timestamp", "noon"]), @r"
    exit 2
    --- stderr
    error[config-delta-timestamp]: --delta-timestamp: `noon` is not a time such as 2026-01-31T12:00:00Z or 2026-01-31; without a zone a time is UTC
    ");
    assert!(!dir.exists("out"));
}
