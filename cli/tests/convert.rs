use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::common::{TestDir, rows};
use crate::snapshot;

fn dir() -> TestDir {
    let dir = TestDir::new();
    dir.parquet("data/rows.parquet", &rows(100));
    dir
}

#[test]
fn conversion_prints_a_summary() {
    snapshot!(dir().shown(&["convert", "data", "shards", "--samples-per-shard", "30"]), @r"
    exit 0
    --- stdout
    shards: 100 samples in 4 shards
      raw     6.0 KiB
      stored  2.5 KiB, ratio 2.37
      time    [TIME] at [RATE] MB/s
    ");
}

#[test]
fn json_option_prints_a_json_report() {
    let dir = dir();
    let report = dir.json(&[
        "convert",
        "data",
        "shards",
        "--samples-per-shard",
        "30",
        "--json",
    ]);
    assert_eq!(
        (&report["samples"], &report["shards"], &report["outcome"]),
        (&100.into(), &4.into(), &"converted".into())
    );
    assert_eq!(report["splits"][0]["samples"], 100);
    assert!(report["elapsed_seconds"].is_f64() && report["idle_seconds"].is_f64());
}

#[test]
fn quiet_option_prints_nothing() {
    insta::assert_snapshot!(dir().shown(&["convert", "data", "shards", "-q"]), @"exit 0");
}

#[test]
fn repeating_a_finished_conversion_writes_nothing() {
    let dir = dir();
    dir.ok(&["convert", "data", "shards"]);
    let index = dir.read("shards/index.json");
    snapshot!(dir.shown(&["convert", "data", "shards"]), @r"
    exit 0
    --- stdout
    shards: this conversion is already complete, 100 samples in 1 shard; nothing was written
    ");
    assert_eq!(
        dir.json(&["convert", "data", "shards", "--json"])["outcome"],
        "already_done"
    );
    assert_eq!(dir.read("shards/index.json"), index);
}

#[test]
fn changed_options_conflict_without_overwrite() {
    let dir = dir();
    dir.ok(&["convert", "data", "shards"]);
    snapshot!(dir.shown(&["convert", "data", "shards", "--compression", "none"]), @r#"
    exit 4
    --- stderr
    error[dest-conflict]: shards: it holds a finished dataset of another conversion: compression was "zstd:3", is null; choose another destination, or pass --overwrite to replace it
    "#);
    dir.ok(&[
        "convert",
        "data",
        "shards",
        "--compression",
        "none",
        "--overwrite",
    ]);
    assert!(dir.exists("shards/shard.00001-00000.mds"));
    assert!(!dir.exists("shards/shard.00000.mds.zstd"));
}

#[test]
fn dry_run_prints_the_plan_and_writes_nothing() {
    let dir = dir();
    snapshot!(dir.shown(&["convert", "data", "shards", "--dry-run", "--split", "train=0.9,val=0.1", "--jobs", "3"]), @r"
    exit 0
    --- stdout
    source       parquet, 1 file, 6.7 KiB, 100 rows
    destination  shards: empty
    split        train=0.9, val=0.1
    format       mds
    compression  zstd:3
    hashes       sha256
    size limit   64.0 MiB
    nulls        error
    jobs         3

    column  type                                 nulls  encoding
    blob    Binary                                   0  bytes
    id      Int64                                    0  int64
    name    Utf8                                     0  str
    pair    FixedSizeList(2 x non-null Float32)      0  ndarray:float32:2
    score   Float64                                  0  float64
    ");
    let plan = dir.json(&["convert", "data", "shards", "--dry-run", "--json"]);
    assert_eq!(plan["columns"][0]["name"], "blob");
    assert_eq!(plan["source"]["rows"], 100);
    assert!(!dir.exists("shards"));
}

#[test]
fn output_bytes_do_not_depend_on_jobs() {
    let dir = dir();
    for jobs in ["1", "4"] {
        dir.ok(&[
            "convert",
            "data",
            jobs,
            "--jobs",
            jobs,
            "--size-limit",
            "2kb",
            "--hashes",
            "sha1,xxh64",
        ]);
    }
    for name in ["index.json", "shard.00000.mds.zstd", "shard.00001.mds.zstd"] {
        assert_eq!(
            dir.read(&format!("1/{name}")),
            dir.read(&format!("4/{name}")),
            "{name}"
        );
    }
}

#[test]
fn column_encodings_and_expressions_are_applied() {
    let dir = dir();
    let columns = [
        "--column",
        "id:int",
        "--column",
        "twice:str=CAST(id * 2 AS VARCHAR)",
        "--where",
        "id < 3",
    ];
    dir.ok(&[&["convert", "data", "shards"], &columns[..]].concat());
    insta::assert_snapshot!(dir.ok(&["cat", "shards"]), @r#"
    {"id":0,"twice":"0"}
    {"id":1,"twice":"2"}
    {"id":2,"twice":"4"}
    "#);
}

#[test]
fn splits_are_written_to_subdirectories() {
    let dir = dir();
    snapshot!(dir.shown(&["convert", "data", "out", "--split", "train=0.75,val=0.25", "--split-key", "name"]), @r"
    exit 0
    --- stdout
    out: 100 samples in 2 shards
      raw     5.4 KiB
      stored  2.0 KiB, ratio 2.72
      time    [TIME] at [RATE] MB/s

      split  samples  shards      raw   stored
      train       75       1  3.9 KiB  1.3 KiB
      val         25       1  1.5 KiB    680 B
    ");
    assert!(
        dir.exists("out/train/index.json")
            && dir.exists("out/val/index.json")
            && !dir.exists("out/index.json")
    );
}

fn with_nulls() -> TestDir {
    let dir = TestDir::new();
    let id: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]));
    let name: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), Some("b"), None]));
    dir.parquet(
        "rows.parquet",
        &RecordBatch::try_from_iter([("id", id), ("name", name)]).unwrap(),
    );
    dir
}

#[test]
fn null_error_names_columns_and_rows() {
    let dir = with_nulls();
    insta::assert_snapshot!(dir.shown(&["convert", "rows.parquet", "shards"]), @r"
    exit 3
    --- stderr
    error[value-null]: rows.parquet: column id has 1 nulls, the first in row 1 of rows.parquet, column name has 1 nulls, the first in row 2 of rows.parquet; choose --nulls mask or --nulls drop, or --null-as NAME=VALUE for each
    ");
    assert!(!dir.exists("shards"));
}

#[test]
fn nulls_are_masked_dropped_or_filled() {
    let dir = with_nulls();
    dir.ok(&["convert", "rows.parquet", "mask", "--nulls", "mask"]);
    insta::assert_snapshot!(dir.ok(&["cat", "mask"]), @r#"
    {"id":1,"id__is_null":0,"name":"a","name__is_null":0}
    {"id":0,"id__is_null":1,"name":"b","name__is_null":0}
    {"id":3,"id__is_null":0,"name":"","name__is_null":1}
    "#);
    snapshot!(dir.shown(&["convert", "rows.parquet", "drop", "--nulls", "drop"]), @r"
    exit 0
    --- stdout
    drop: 1 sample in 1 shard
      raw      224 B
      stored   175 B, ratio 1.28
      time     [TIME] at [RATE] MB/s
      dropped  2 rows with nulls
    ");
    insta::assert_snapshot!(dir.ok(&["cat", "drop"]), @r#"{"id":1,"name":"a"}"#);
    dir.ok(&[
        "convert",
        "rows.parquet",
        "fill",
        "--null-as",
        "id=-1",
        "--null-as",
        "name=",
    ]);
    insta::assert_snapshot!(dir.ok(&["cat", "fill"]), @r#"
    {"id":1,"name":"a"}
    {"id":-1,"name":"b"}
    {"id":3,"name":""}
    "#);
}

#[test]
fn file_tree_round_trips_through_mds() {
    let dir = TestDir::new();
    for number in ["1", "2"] {
        dir.write(&format!("tree/a/{number}.txt"), format!("text {number}"));
        dir.write(&format!("tree/a/{number}.json"), "{\"b\": 1, \"a\": [NaN]}");
    }
    dir.ok(&["convert", "tree", "shards"]);
    insta::assert_snapshot!(dir.ok(&["cat", "shards", "--max-bytes", "100"]), @r#"
    {"__key__":"a/1","json":{"b":1,"a":["NaN"]},"txt":"text 1"}
    {"__key__":"a/2","json":{"b":1,"a":["NaN"]},"txt":"text 2"}
    "#);
    dir.ok(&["cat", "shards", "..", "--extract", "again", "--by-key"]);
    for name in ["a/1.txt", "a/1.json", "a/2.txt", "a/2.json"] {
        assert_eq!(
            dir.read(&format!("again/{name}")),
            dir.read(&format!("tree/{name}")),
            "{name}"
        );
    }
}

#[test]
fn mds_dataset_can_be_converted() {
    let dir = TestDir::with_shards();
    dir.ok(&["convert", "shards", "again", "--compression", "none"]);
    assert_eq!(
        dir.ok(&["cat", "shards", ".."]),
        dir.ok(&["cat", "again", ".."])
    );
}

/// Incompressible rows that a slow compression needs seconds for.
fn slow() -> TestDir {
    let dir = TestDir::new();
    let mut state = 1_u64;
    let text = (0..40_000).map(|_| {
        let word = |_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            format!("{:016x}", state)
        };
        (0..16).map(word).collect::<String>()
    });
    let text: ArrayRef = Arc::new(StringArray::from_iter_values(text.collect::<Vec<_>>()));
    dir.parquet(
        "slow.parquet",
        &RecordBatch::try_from_iter_with_nullable([("text", text, false)]).unwrap(),
    );
    dir
}

const SLOW: [&str; 8] = [
    "convert",
    "slow.parquet",
    "shards",
    "--compression",
    "br:11",
    "--size-limit",
    "256kb",
    "--jobs=1",
];

/// A signal is sent when the first line of progress says that there is a shard.
fn stopped_by(signal: &str, code: i32) {
    let dir = slow();
    let mut child = Command::new(assert_cmd::cargo::cargo_bin("shardmill"))
        .args(SLOW)
        .args(["--progress", "json", "--json"])
        .current_dir(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap())
        .lines()
        .map(Result::unwrap);
    lines
        .by_ref()
        .find(|line| !line.contains("\"shards\":0"))
        .unwrap();
    let killed = Command::new("kill")
        .args(["-s", signal, &child.id().to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    let rest: Vec<String> = lines.collect();
    assert_eq!(child.wait().unwrap().code(), Some(code), "{rest:?}");
    let error: serde_json::Value = serde_json::from_str(rest.last().unwrap()).unwrap();
    assert_eq!(error["error"]["exit_code"], code);
    assert!(
        error["error"]["hint"]
            .as_str()
            .unwrap()
            .contains("run the same command again"),
        "{error}"
    );
    assert!(!dir.exists("shards/index.json"));
    let plan = dir.json(&[&SLOW[..], &["--dry-run", "--json"]].concat());
    assert_eq!(plan["dest_state"], "interrupted");
}

#[test]
fn sigint_stops_a_resumable_conversion() {
    stopped_by("INT", 130);
}

#[test]
fn sigterm_stops_a_resumable_conversion() {
    stopped_by("TERM", 143);
}

#[test]
fn csv_delimiter_and_no_header_options_are_applied() {
    let dir = TestDir::new();
    dir.write("in/rows.csv", "1;\"a;b\"\n2;c\n");
    dir.ok(&[
        "convert",
        "in",
        "shards",
        "--csv-delimiter",
        ";",
        "--csv-no-header",
    ]);
    let samples = dir.ok(&["cat", "shards", ".."]);
    assert_eq!(
        samples,
        "{\"column_1\":1,\"column_2\":\"a;b\"}\n{\"column_1\":2,\"column_2\":\"c\"}\n"
    );
    dir.write("tabs/rows.csv", "id\tname\n1\ta\n");
    dir.ok(&["convert", "tabs", "tabbed", "--csv-delimiter", r"\t"]);
    assert_eq!(
        dir.ok(&["cat", "tabbed", "0"]),
        "{\"id\":1,\"name\":\"a\"}\n"
    );
    for (option, value, id) in [
        ("--csv-delimiter", ";;", "config-csv-delimiter"),
        ("--csv-delimiter", "\"", "config-csv-delimiter"),
        ("--csv-delimiter", "§", "config-csv-delimiter"),
        ("--infer-rows", "0", "config-infer-rows"),
        ("--infer-rows", "many", "config-infer-rows"),
    ] {
        let shown = dir.shown(&["convert", "in", "other", option, value]);
        assert!(
            shown.starts_with("exit 2") && shown.contains(id),
            "{option} {value}: {shown}"
        );
    }
}

#[test]
fn json_encoding_accepts_values_of_mixed_types() {
    let dir = TestDir::new();
    let lines = [
        r#"{"id": 1, "messages": [{"role": "user", "content": "hello"}]}"#,
        r#"{"id": 2, "messages": [{"role": "user", "content": [{"text": "x",  "n": 1.0}]}, 3]}"#,
        r#"{"id": 3, "messages": null}"#,
    ];
    dir.write("in/rows.jsonl", lines.join("\n"));
    let shown = dir.shown(&["convert", "in", "out"]);
    assert!(
        shown.contains("error[jsonl-row]: in/rows.jsonl line 2"),
        "{shown}"
    );
    assert!(shown.contains("--column messages:json"), "{shown}");
    let columns = ["--column", "id", "--column", "messages:json"];
    for (to, field, column) in [
        ("mds", "messages", "messages:json"),
        ("webdataset", "messages.json", "messages.json=messages"),
    ] {
        let args = ["convert", "in", to, "--to", to, "--nulls", "drop"];
        dir.ok(&[&args[..], &["--column", column]].concat());
        dir.ok(&["verify", to, "--deep"]);
        let cat = dir.ok(&["cat", to, ".."]);
        let found: Vec<serde_json::Value> = cat
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()[field].clone())
            .collect();
        let expected = lines[..2].iter().map(|line| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["messages"].clone()
        });
        assert_eq!(found, expected.collect::<Vec<_>>(), "{to}");
    }
    // Who computes with a column needs its type.
    for (condition, is_typed) in [("id > 1", false), ("messages IS NOT NULL", true)] {
        let filtered = [
            "convert", "in", "filtered", "--where", condition, "--nulls", "drop",
        ];
        let shown = dir.shown(&[&filtered[..], &columns].concat());
        assert_eq!(
            shown.contains("error[jsonl-row]"),
            is_typed,
            "{condition}: {shown}"
        );
        assert!(
            is_typed || dir.ok(&["cat", "filtered"]).contains("\"n\":1.0"),
            "{condition}"
        );
    }
}

#[test]
fn json_column_nulls_are_kept_unless_dropped() {
    // Values that become JSON, and text that is JSON because they have no common type.
    for odd in ["", "{\"id\": 3, \"m\": 3}\n"] {
        let dir = TestDir::new();
        let rows = format!("{{\"id\": 1, \"m\": {{\"a\": 1}}}}\n{{\"id\": 2, \"m\": null}}\n{odd}");
        dir.write("in/rows.jsonl", &rows);
        let all = rows.lines().count();
        for (nulls, left) in [("error", all), ("mask", all), ("drop", all - 1)] {
            let args = ["--column", "id", "--column", "m:json", "--nulls", nulls];
            dir.ok(&[&["convert", "in", nulls][..], &args].concat());
            let cat = dir.ok(&["cat", nulls, ".."]);
            let found: Vec<serde_json::Value> = cat
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect();
            let expected: Vec<serde_json::Value> = rows
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .filter(|row: &serde_json::Value| left == all || !row["m"].is_null())
                .collect();
            assert_eq!(found, expected, "{nulls} {odd}");
        }
    }
}

#[test]
fn null_as_replaces_nulls_of_the_named_column() {
    let dir = TestDir::new();
    dir.write("in/rows.jsonl", "{\"s\": \"a\"}\n{\"s\": null}\n");
    let convert = ["convert", "in", "out", "--to", "webdataset"];
    let shown = dir.shown(&convert);
    assert!(shown.contains("column s has 1 null"), "{shown}");
    dir.ok(&[&convert[..], &["--null-as", "s=none"]].concat());
    assert!(dir.ok(&["cat", "out", "1"]).contains("\"none\""));
}

#[test]
fn unsigned_64_bit_integers_keep_their_value() {
    let dir = TestDir::new();
    dir.write(
        "in/rows.jsonl",
        "{\"v\": 18446744073709551615}\n{\"v\": 0}\n",
    );
    dir.ok(&["convert", "in", "out", "--to", "webdataset"]);
    dir.ok(&["verify", "out", "--deep"]);
    let cat = dir.ok(&["cat", "out", "0"]);
    assert!(cat.contains("18446744073709551615"), "{cat}");
}

#[test]
fn tar_commands_reject_mds_datasets() {
    let dir = TestDir::with_shards();
    let shown = dir.shown(&["verify", "shards", "--for", "wids"]);
    assert!(shown.contains("error[config-for]"), "{shown}");
    let shown = dir.shown(&["index", "export", "shards", "--for", "wids"]);
    assert!(shown.starts_with("exit 2"), "{shown}");
    assert!(
        shown.contains("of mds shards, and not of tar files"),
        "{shown}"
    );
    // And of several datasets one has to be named.
    dir.ok(&["convert", "data", "splits", "--split", "a=0.5,b=0.5"]);
    let shown = dir.shown(&["bench", "splits"]);
    assert!(shown.contains("error[several-datasets]"), "{shown}");
    dir.ok(&["bench", "splits", "--subset", "a"]);
}

#[test]
fn long_csv_rows_after_inferred_rows_are_converted() {
    let dir = TestDir::new();
    let mut text = String::from("id,text\n");
    for row in 0..70_000 {
        text.push_str(&format!("{row},a\n"));
    }
    let long = format!("\"{}\n\"\"{}\"", "x".repeat(10_000), "y".repeat(10_000));
    for row in 70_000..74_000 {
        text.push_str(&format!("{row},{long}\r\n"));
    }
    dir.write("in/rows.csv", &text);
    let sizes = [
        "--infer-rows",
        "1000",
        "--safety-limit",
        "sample-bytes=1MiB",
    ];
    dir.ok(&[
        &["convert", "in", "out", "--size-limit", "8MiB"][..],
        &sizes,
    ]
    .concat());
    assert!(dir.ok(&["verify", "out"]).contains("74,000 samples"));
    for (sample, id) in [("69999", 69_999), ("70000", 70_000), ("73999", 73_999)] {
        let found: serde_json::Value =
            serde_json::from_str(&dir.ok(&["cat", "out", sample])).unwrap();
        assert_eq!(found["id"], id);
        let expected = if id < 70_000 { 1 } else { 20_002 };
        assert_eq!(found["text"].as_str().unwrap().len(), expected, "{id}");
    }
}

#[test]
fn non_ascii_fields_are_written_with_numeric_keys() {
    let dir = TestDir::new();
    dir.write(
        "in/rows.jsonl",
        "{\"ä\": \"a\", \"b\": 1}\n{\"ä\": \"c\", \"b\": 2}\n",
    );
    let convert = [
        "convert",
        "in",
        "out",
        "--to",
        "webdataset",
        "--names",
        "any",
    ];
    dir.ok(&convert);
    dir.ok(&["verify", "out", "--deep"]);
    let second: serde_json::Value = serde_json::from_str(&dir.ok(&["cat", "out", "1"])).unwrap();
    assert_eq!(second["__key__"], "000000001");
    assert_eq!(second["ä.txt"], "c");
    // The numbers of parts are longer, for which such names have no room.
    let shown = dir.shown(&[&convert[..2], &["parts"], &convert[3..], &["--part", "0/1"]].concat());
    assert!(shown.contains("error[tar-long-name]"), "{shown}");
    assert!(shown.contains("--key-column"), "{shown}");
}
