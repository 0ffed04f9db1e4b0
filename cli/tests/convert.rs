use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::common::{Place, rows};
use crate::snapshot;

fn place() -> Place {
    let place = Place::new();
    place.parquet("data/rows.parquet", &rows(100));
    place
}

#[test]
fn a_summary_ends_it() {
    snapshot!(place().shown(&["convert", "data", "shards", "--samples-per-shard", "30"]), @"");
}

#[test]
fn the_report_is_json_on_request() {
    let place = place();
    let report = place.json(&[
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
fn quiet_says_nothing() {
    insta::assert_snapshot!(place().shown(&["convert", "data", "shards", "-q"]), @"");
}

#[test]
fn a_finished_conversion_is_done() {
    let place = place();
    place.ok(&["convert", "data", "shards"]);
    let index = place.read("shards/index.json");
    snapshot!(place.shown(&["convert", "data", "shards"]), @"");
    assert_eq!(
        place.json(&["convert", "data", "shards", "--json"])["outcome"],
        "already_done"
    );
    assert_eq!(place.read("shards/index.json"), index);
}

#[test]
fn another_configuration_is_a_conflict_until_overwritten() {
    let place = place();
    place.ok(&["convert", "data", "shards"]);
    snapshot!(place.shown(&["convert", "data", "shards", "--compression", "none"]), @"");
    place.ok(&[
        "convert",
        "data",
        "shards",
        "--compression",
        "none",
        "--overwrite",
    ]);
    assert!(place.exists("shards/shard.00000.mds") && !place.exists("shards/shard.00000.mds.zstd"));
}

#[test]
fn a_dry_run_prints_the_plan_and_writes_nothing() {
    let place = place();
    snapshot!(place.shown(&["convert", "data", "shards", "--dry-run", "--split", "train=0.9,val=0.1", "--jobs", "3"]), @"");
    let plan = place.json(&["convert", "data", "shards", "--dry-run", "--json"]);
    assert_eq!(plan["columns"][0]["name"], "blob");
    assert_eq!(plan["source"]["rows"], 100);
    assert!(!place.exists("shards"));
}

#[test]
fn the_bytes_do_not_depend_on_the_jobs() {
    let place = place();
    for jobs in ["1", "4"] {
        place.ok(&[
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
            place.read(&format!("1/{name}")),
            place.read(&format!("4/{name}")),
            "{name}"
        );
    }
}

#[test]
fn columns_have_encodings_and_expressions() {
    let place = place();
    let columns = [
        "--column",
        "id:int",
        "--column",
        "twice:str=CAST(id * 2 AS VARCHAR)",
        "--where",
        "id < 3",
    ];
    place.ok(&[&["convert", "data", "shards"], &columns[..]].concat());
    insta::assert_snapshot!(place.ok(&["cat", "shards"]), @"");
}

#[test]
fn splits_are_directories() {
    let place = place();
    snapshot!(place.shown(&["convert", "data", "out", "--split", "train=0.75,val=0.25", "--split-key", "name"]), @"");
    assert!(
        place.exists("out/train/index.json")
            && place.exists("out/val/index.json")
            && !place.exists("out/index.json")
    );
}

#[test]
fn text_formats_have_separators_and_newlines() {
    let place = place();
    let columns = [
        "--column",
        "id",
        "--column",
        "name",
        "--where",
        "id < 2",
        "--compression",
        "none",
    ];
    place.ok(&[
        &[
            "convert",
            "data",
            "x",
            "--to",
            "xsv",
            "--separator",
            r"\t|",
            "--newline",
            r"\r\n",
        ],
        &columns[..],
    ]
    .concat());
    assert_eq!(
        place.read("x/shard.00000.xsv"),
        b"id\t|name\r\n0\t|row 0\r\n1\t|row 1\r\n"
    );
    place.ok(&[&["convert", "data", "j", "--to", "jsonl"], &columns[..]].concat());
    assert_eq!(
        place.read("j/shard.00000.json"),
        b"{\"id\": 0, \"name\": \"row 0\"}\n{\"id\": 1, \"name\": \"row 1\"}\n"
    );
}

fn with_nulls() -> Place {
    let place = Place::new();
    let id: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]));
    let name: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), Some("b"), None]));
    place.parquet(
        "rows.parquet",
        &RecordBatch::try_from_iter([("id", id), ("name", name)]).unwrap(),
    );
    place
}

#[test]
fn nulls_are_refused_by_name() {
    let place = with_nulls();
    insta::assert_snapshot!(place.shown(&["convert", "rows.parquet", "shards"]), @"");
    assert!(!place.exists("shards"));
}

#[test]
fn nulls_are_masked_dropped_or_filled() {
    let place = with_nulls();
    place.ok(&["convert", "rows.parquet", "mask", "--nulls", "mask"]);
    insta::assert_snapshot!(place.ok(&["cat", "mask"]), @"");
    snapshot!(place.shown(&["convert", "rows.parquet", "drop", "--nulls", "drop"]), @"");
    insta::assert_snapshot!(place.ok(&["cat", "drop"]), @"");
    place.ok(&[
        "convert",
        "rows.parquet",
        "fill",
        "--null-as",
        "id=-1",
        "--null-as",
        "name=",
    ]);
    insta::assert_snapshot!(place.ok(&["cat", "fill"]), @"");
}

#[test]
fn a_tree_of_files_becomes_samples_and_files_again() {
    let place = Place::new();
    for number in ["1", "2"] {
        place.write(&format!("tree/a/{number}.txt"), format!("text {number}"));
        place.write(&format!("tree/a/{number}.json"), "{\"b\": 1, \"a\": [NaN]}");
    }
    place.ok(&["convert", "tree", "shards"]);
    insta::assert_snapshot!(place.ok(&["cat", "shards", "--max-bytes", "100"]), @"");
    place.ok(&["cat", "shards", "..", "--extract", "again", "--by-key"]);
    for name in ["a/1.txt", "a/1.json", "a/2.txt", "a/2.json"] {
        assert_eq!(
            place.read(&format!("again/{name}")),
            place.read(&format!("tree/{name}")),
            "{name}"
        );
    }
}

#[test]
fn mds_is_a_source_too() {
    let place = Place::with_shards();
    place.ok(&["convert", "shards", "again", "--compression", "none"]);
    assert_eq!(
        place.ok(&["cat", "shards", ".."]),
        place.ok(&["cat", "again", ".."])
    );
}

/// Incompressible rows that a slow compression needs seconds for.
fn slow() -> Place {
    let place = Place::new();
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
    place.parquet(
        "slow.parquet",
        &RecordBatch::try_from_iter_with_nullable([("text", text, false)]).unwrap(),
    );
    place
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
    let place = slow();
    let mut child = Command::new(assert_cmd::cargo::cargo_bin("shardmill"))
        .args(SLOW)
        .args(["--progress", "json", "--json"])
        .current_dir(place.path())
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
    assert!(!place.exists("shards/index.json"));
    let plan = place.json(&[&SLOW[..], &["--dry-run", "--json"]].concat());
    assert_eq!(plan["dest_state"], "interrupted");
}

#[test]
fn an_interrupt_stops_where_it_can_go_on() {
    stopped_by("INT", 130);
}

#[test]
fn a_request_to_terminate_stops_where_it_can_go_on() {
    stopped_by("TERM", 143);
}
