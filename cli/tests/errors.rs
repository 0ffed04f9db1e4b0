//! One error of each class, and every option value that is refused before any work.

use std::fs::File;

use crate::common::Place;
use crate::snapshot;

#[test]
fn not_found() {
    let place = Place::new();
    insta::assert_snapshot!(place.shown(&["ls", "nowhere"]), @"");
    insta::assert_snapshot!(place.shown(&["convert", "nowhere", "shards"]), @"");
    place.write("empty/x.txt", "");
    insta::assert_snapshot!(place.shown(&["ls", "empty"]), @"");
    insta::assert_snapshot!(place.shown(&["verify", "empty"]), @"");
    assert_eq!(
        place.run(&["ls", "nowhere", "--json"]).error()["exit_code"],
        2
    );
}

#[test]
fn corrupt() {
    let place = Place::with_shards();
    place.write("shards/index.json", "<html>404</html>");
    insta::assert_snapshot!(place.shown(&["ls", "shards"]), @"");
    insta::assert_snapshot!(place.shown(&["inspect", "shards", "--json"]), @"");
}

#[test]
fn unsupported() {
    let place = Place::new();
    place.write("delta/_delta_log/00000000000000000000.json", "{}");
    insta::assert_snapshot!(place.shown(&["convert", "delta", "shards"]), @"");
    place.write("shards.tar", [0; 1024]);
    insta::assert_snapshot!(place.shown(&["convert", "shards.tar", "shards"]), @"");
    insta::assert_snapshot!(place.shown(&["inspect", "s3://key:secret@bucket/shards?token=secret"]), @"");
}

#[test]
fn a_limit() {
    let place = Place::with_shards();
    insta::assert_snapshot!(place.shown(&["ls", "shards", "--limit", "shards=3"]), @"");
}

#[test]
fn conflict() {
    let place = Place::with_shards();
    snapshot!(place.shown(&["convert", "data", "shards", "--hashes", "md5"]), @"");
    insta::assert_snapshot!(place.shown(&["convert", "data", "data/inside"]), @"");
}

#[test]
fn storage() {
    let place = Place::new();
    std::os::unix::fs::symlink("loop", place.path().join("loop")).unwrap();
    insta::assert_snapshot!(place.shown(&["ls", "loop"]), @"");
}

#[test]
fn resource() {
    let place = Place::with_shards();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let child = std::process::Command::new(assert_cmd::cargo::cargo_bin("shardmill"))
        .args(["cat", "shards", ".."])
        .current_dir(place.path())
        .stdout(full)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    insta::assert_snapshot!(String::from_utf8(output.stderr).unwrap(), @"");
}

#[test]
fn permission() {
    // The one place that even root cannot write to.
    insta::assert_snapshot!(Place::new().shown(&["man", "--out", "/sys/shardmill"]), @"");
}

#[test]
fn names_are_escaped() {
    let place = Place::new();
    insta::assert_snapshot!(place.shown(&["ls", "a\u{1b}[2Jb\nc"]), @"");
}

fn convert(options: &[&str]) -> String {
    let place = Place::new();
    // Nothing is there to be read: the options are looked at first.
    let ran = place.run(&[&["convert", "nowhere", "shards"], options].concat());
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{}", ran.stderr);
    assert!(!place.exists("shards"));
    ran.stderr.trim().to_owned()
}

#[test]
fn options_of_convert() {
    insta::assert_snapshot!(convert(&["--compression", "zst"]), @"");
    insta::assert_snapshot!(convert(&["--compression", "zstd:0"]), @"");
    insta::assert_snapshot!(convert(&["--hashes", "sha265"]), @"");
    insta::assert_snapshot!(convert(&["--hashes", ""]), @"");
    insta::assert_snapshot!(convert(&["--size-limit", "-1"]), @"");
    insta::assert_snapshot!(convert(&["--size-limit", "4GiB"]), @"");
    insta::assert_snapshot!(convert(&["--samples-per-shard", "0"]), @"");
    insta::assert_snapshot!(convert(&["--jobs", "0"]), @"");
    insta::assert_snapshot!(convert(&["--memory-limit", "much"]), @"");
    insta::assert_snapshot!(convert(&["--column", "image:"]), @"");
    insta::assert_snapshot!(convert(&["--column", "image:jpg"]), @"");
    insta::assert_snapshot!(convert(&["--to", "csv", "--column", "image:jpeg"]), @"");
    insta::assert_snapshot!(convert(&["--column", "a", "--column", "a:str"]), @"");
    insta::assert_snapshot!(convert(&["--split", "train=0.9"]), @"");
    insta::assert_snapshot!(convert(&["--split", "../x=1"]), @"");
    insta::assert_snapshot!(convert(&["--null-as", "x"]), @"");
    insta::assert_snapshot!(convert(&["--to", "xsv"]), @"");
    insta::assert_snapshot!(convert(&["--separator", "|"]), @"");
    insta::assert_snapshot!(convert(&["--newline", "\\n"]), @"");
    insta::assert_snapshot!(convert(&["--to", "jsonl", "--newline", "\\x"]), @"");
    insta::assert_snapshot!(convert(&["--where", " "]), @"");
    insta::assert_snapshot!(convert(&["--key", ""]), @"");
    insta::assert_snapshot!(convert(&["--limit", "shard=1"]), @"");
    insta::assert_snapshot!(convert(&["--limit", "shards"]), @"");
}
