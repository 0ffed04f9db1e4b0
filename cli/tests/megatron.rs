//! Tests `convert --to megatron`: its bytes against those of Megatron's builder, resuming, and what it excludes.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use shardmill_testing::s3::{Action, Asked, Fault, Objects, S3Server, Script, Settings};

use crate::common::TestDir;

fn fixture(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/megatron-core-0.16.1");
    folder.join(name)
}

/// Returns a place with documents as lists of sequences, whose tokens are those of the fixture `sentences`.
fn dir() -> TestDir {
    let dir = TestDir::new();
    let documents = [
        json!([[1, 2], [3]]),
        json!([[4, 5, 6], [], [7]]),
        json!([[8]]),
    ];
    let rows = documents.map(|document| json!({"id": 1, "tokens": document}).to_string());
    dir.write("sentences.jsonl", rows.join("\n"));
    let long: Vec<u16> = (0..300).collect();
    let documents = [json!([1, 2, 3]), json!([]), json!([65535, 0]), json!(long)];
    let rows = documents.map(|document| json!({"id": 1, "tokens": document}).to_string());
    dir.write("rows.jsonl", rows.join("\n"));
    dir
}

/// Runs a command, and returns all that it prints.
fn shown_of(dir: &TestDir, args: &[&str]) -> String {
    let ran = dir.run(args);
    format!("{}{}", ran.stdout, ran.stderr)
}

/// Checks that the files of a folder are those of a fixture.
fn check(dir: &TestDir, folder: &str, name: &str) {
    check_files(dir, &format!("{folder}/data"), name);
}

fn check_files(dir: &TestDir, files: &str, name: &str) {
    for end in [".bin", ".idx"] {
        let ours = dir.read(&format!("{files}{end}"));
        let theirs = std::fs::read(fixture(&format!("{name}{end}"))).unwrap();
        assert!(ours == theirs, "{files} differs from {name}{end}");
    }
}

#[test]
fn output_bytes_equal_megatron_builder() {
    let dir = dir();
    for (source, tokens, name) in [
        ("rows.jsonl", "tokens:uint16", "uint16"),
        ("rows.jsonl", "tokens:int32", "int32"),
        ("sentences.jsonl", "tokens:int32", "sentences"),
    ] {
        let out = format!("out-{name}");
        let command = [
            "convert", source, &out, "--to", "megatron", "--column", tokens,
        ];
        let shown = dir.ok(&command);
        assert!(shown.starts_with(&format!("{out}: ")), "{shown}");
        check(&dir, &out, name);
        let again = dir.ok(&command);
        assert!(
            again.contains("this conversion is already complete"),
            "{again}"
        );
        let verified = dir.ok(&["verify", &out, "--deep"]);
        assert!(verified.contains("all is well: "), "{verified}");
    }
    // The numbers of JSON have 64 bits, and keep them.
    dir.ok(&["convert", "rows.jsonl", "wide", "--to", "megatron"]);
    let head = std::fs::read(dir.path().join("wide/data.idx")).unwrap();
    assert_eq!(head[17], 5);
}

#[test]
fn megatron_files_round_trip_through_mds() {
    let dir = TestDir::new();
    for end in [".bin", ".idx"] {
        let name = format!("int32{end}");
        dir.write(&name, std::fs::read(fixture(&name)).unwrap());
    }
    let from = ["--from", "megatron"];
    // An array of MDS has at least one element.
    let filter = ["--where", "cardinality(tokens) > 0"];
    dir.ok(&[&["convert", "int32", "mds"], &from[..], &filter].concat());
    dir.ok(&["convert", "mds", "back", "--to", "megatron"]);
    let direct = ["convert", "int32", "direct", "--to", "megatron"];
    dir.ok(&[&direct[..], &from, &filter].concat());
    dir.ok(&[&["convert", "int32", "all", "--to", "megatron"], &from[..]].concat());
    check(&dir, "all", "int32");
    for name in ["data.bin", "data.idx"] {
        let read = |folder| std::fs::read(dir.path().join(folder).join(name)).unwrap();
        assert!(read("back") == read("direct"), "{name}");
    }
}

#[test]
fn tokenized_output_does_not_depend_on_jobs() {
    let dir = TestDir::new();
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/tokenize/testdata");
    std::fs::copy(testdata.join("bpe.json"), dir.path().join("bpe.json")).unwrap();
    for file in 0..6 {
        let rows = (0..200).map(|row| {
            let text = format!("def f{row}(self): return {}", "x".repeat(row % 90));
            json!({"id": row, "text": text, "note": "n"}).to_string()
        });
        let rows: Vec<String> = rows.collect();
        dir.write(&format!("texts/{file}.jsonl"), rows.join("\n"));
    }
    let read =
        |folder: &str, name: &str| std::fs::read(dir.path().join(folder).join(name)).unwrap();
    for jobs in ["1", "7"] {
        let out = format!("out-{jobs}");
        let start = ["convert", "texts", &out, "--to", "megatron", "--jobs", jobs];
        let tokens = [
            "--tokenize",
            "bpe.json",
            "--text",
            "text",
            "--append",
            "<|end|>",
        ];
        dir.ok(&[&start[..], &tokens].concat());
        let split = format!("split-{jobs}");
        let start = [
            "convert", "texts", &split, "--to", "megatron", "--jobs", jobs,
        ];
        let more = ["--split", "train=0.9,val=0.1", "--split-key", "id"];
        dir.ok(&[&start[..], &tokens, &more].concat());
    }
    for name in ["data.bin", "data.idx"] {
        assert!(read("out-1", name) == read("out-7", name));
        for split in ["train", "val"] {
            let of = |jobs: &str| read(&format!("split-{jobs}/{split}"), name);
            assert!(of("1") == of("7"));
        }
    }
    let index = read("out-1", "data.idx");
    assert_eq!(
        (index[17], &index[18..26]),
        (8, &1200_u64.to_le_bytes()[..])
    );
    let provenance: Value = serde_json::from_slice(&read("out-1", ".index.provenance")).unwrap();
    assert_eq!(provenance["tokenizer"]["file"], "bpe.json");
}

#[test]
fn damaged_file_is_detected_and_replaced() {
    let dir = dir();
    let command = [
        "convert",
        "rows.jsonl",
        "out",
        "--to",
        "megatron",
        "--column",
        "tokens:uint16",
    ];
    dir.ok(&command);
    let path = dir.path().join("out/data.bin");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[0] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let shown = shown_of(&dir, &["verify", "out"]);
    assert!(shown.contains("hash-mismatch"), "{shown}");
    std::fs::remove_file(&path).unwrap();
    let shown = shown_of(&dir, &command);
    assert!(shown.contains("dest-damaged"), "{shown}");
    dir.ok(&[&command[..], &["--overwrite"]].concat());
    // The files of another generation have other names, because the old ones stay until the new ones are published.
    check_files(&dir, "out/data-00001", "uint16");
    assert!(!dir.exists("out/data.idx"));
    dir.ok(&["verify", "out", "--deep"]);
    dir.ok(&[&command[..], &["--overwrite"]].concat());
    check_files(&dir, "out/data-00002", "uint16");
    assert!(!dir.exists("out/data-00001.bin"));
}

#[test]
fn unsupported_values_and_options_are_errors() {
    let dir = dir();
    dir.write("null.jsonl", "{\"tokens\":[1]}\n{\"tokens\":null}\n");
    dir.write("inner.jsonl", "{\"tokens\":[1]}\n{\"tokens\":[2,null]}\n");
    dir.write("two.jsonl", "{\"a\":[1],\"b\":[2],\"c\":1}\n");
    let refused = |source: &str, options: &[&str], expected: &str| {
        let start = ["convert", source, "out", "--to", "megatron"];
        let shown = shown_of(&dir, &[&start[..], options].concat());
        assert!(shown.contains(expected), "{source} {options:?}: {shown}");
        assert!(!dir.path().join("out").exists(), "{source} {options:?}");
    };
    refused(
        "rows.jsonl",
        &["--column", "tokens:uint8"],
        "row 2 of rows.jsonl: 65535 does not fit UInt8",
    );
    refused("null.jsonl", &[], "error[value-null]");
    refused("inner.jsonl", &[], "row 1 of inner.jsonl");
    refused("two.jsonl", &[], "a, b have lists of numbers");
    refused("two.jsonl", &["--column", "c"], "error[type-unsupported]");
    refused(
        "rows.jsonl",
        &["--column", "tokens:str"],
        "unknown encoding `str`",
    );
    refused(
        "rows.jsonl",
        &["--compression", "zstd:3"],
        "megatron has no compression",
    );
    refused("rows.jsonl", &["--part", "0/2"], "not written in parts");
    refused(
        "rows.jsonl",
        &["--samples-per-shard", "2"],
        "all tokens are in one file",
    );
    refused(
        "rows.jsonl",
        &["--select", "id"],
        "no column has lists of numbers",
    );
    dir.ok(&[
        "convert",
        "null.jsonl",
        "out",
        "--to",
        "megatron",
        "--nulls",
        "drop",
    ]);
}

fn server(dir: &TestDir, faults: Script) -> S3Server {
    let objects = Objects::folder("bucket", dir.path());
    let settings = Settings {
        faults,
        ..Settings::default()
    };
    S3Server::start(objects, settings).unwrap()
}

#[test]
fn a_run_that_is_killed_begins_again() {
    let dir = TestDir::new();
    for (name, end) in [("a", "bin"), ("a", "idx"), ("b", "bin"), ("b", "idx")] {
        let bytes = std::fs::read(fixture(&format!("int32.{end}"))).unwrap();
        dir.write(&format!("sets/{name}.{end}"), bytes);
    }
    let options = ["--from", "megatron", "--to", "megatron"];
    dir.ok(&[&["convert", "sets", "expected"], &options[..]].concat());
    // The tokens of the second file never arrive.
    let stall = |asked: &Asked| {
        let is_hit = asked.action == Action::Get && asked.key.ends_with("b.bin");
        is_hit.then_some(Fault::StallBefore)
    };
    let server = server(&dir, Script::by(stall));
    let command = [&["convert", "s3://bucket/sets", "out"], &options[..]].concat();
    let mut child = Command::new(assert_cmd::cargo::cargo_bin("shardmill"))
        .current_dir(dir.path())
        .args(&command)
        .args(["--progress", "json", "--json"])
        .envs(server.environment())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let is_written = |line: &String| {
        let line: Value = serde_json::from_str(line).unwrap();
        line["progress"]["samples"].as_u64() > Some(0)
    };
    lines.by_ref().map(Result::unwrap).find(is_written).unwrap();
    let has_result = || {
        let names = ["data.bin", "data.idx", ".index.json"];
        names.iter().any(|name| dir.exists(&format!("out/{name}")))
    };
    assert!(!has_result());
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success());
    assert!(!has_result());
    server.set(Settings::default());
    let mut again = dir.command();
    let again = again.args(&command).envs(server.environment()).output();
    let again = again.unwrap();
    assert!(again.status.success(), "{again:?}");
    for name in ["data.bin", "data.idx", ".index.json"] {
        let of = |folder: &str| dir.read(&format!("{folder}/{name}"));
        assert!(of("out") == of("expected"), "{name}");
    }
    let names = |folder: &str| {
        let entries = std::fs::read_dir(dir.path().join(folder)).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names("out"), names("expected"));
}

#[test]
fn conversion_to_a_store_resumes_after_a_rejected_upload() {
    let dir = dir();
    let refuse = |asked: &Asked| {
        let is_hit = asked.action == Action::Put && asked.key.ends_with("data.idx");
        is_hit.then_some(Fault::status(403))
    };
    let server = server(&dir, Script::by(refuse));
    let run = |args: &[&str]| {
        let mut command = dir.command();
        let output = command.args(args).envs(server.environment()).output();
        let output = output.unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    };
    let there = "s3://bucket/out";
    let column = ["--to", "megatron", "--column", "tokens:uint16"];
    let command = [&["convert", "rows.jsonl", there], &column[..]].concat();
    let (is_ok, shown) = run(&command);
    assert!(!is_ok, "{shown}");
    assert!(shown.contains("out/data.idx"), "{shown}");
    assert!(!dir.exists("out/data.idx"));
    assert!(!dir.exists("out/.index.json"));
    server.set(Settings::default());
    let (is_ok, shown) = run(&command);
    assert!(is_ok, "{shown}");
    check(&dir, "out", "uint16");
    let (is_ok, shown) = run(&["verify", there, "--deep"]);
    assert!(is_ok && shown.contains("all is well: "), "{shown}");
    let mut bytes = dir.read("out/data.bin");
    bytes[0] ^= 1;
    dir.write("out/data.bin", bytes);
    let (is_ok, shown) = run(&["verify", there]);
    assert!(!is_ok && shown.contains("hash-mismatch"), "{shown}");
    assert_eq!(server.open_uploads(), 0);
}
