use std::process::Stdio;

use crate::common::{Place, rows};

#[test]
fn one_sample_has_all_its_columns() {
    insta::assert_snapshot!(Place::with_shards().shown(&["cat", "shards", "31"]), @"");
}

#[test]
fn ten_samples_and_a_note_are_shown_when_nothing_says_which() {
    let ran = Place::with_shards().run(&["cat", "shards", "--column", "id"]);
    assert_eq!(ran.stdout.lines().count(), 10);
    insta::assert_snapshot!(ran.stderr, @"");
}

fn ids(place: &Place, range: &str) -> Vec<u64> {
    let lines = place.ok(&["cat", "shards", range, "-c", "id"]);
    lines
        .lines()
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["id"]
                .as_u64()
                .unwrap()
        })
        .collect()
}

#[test]
fn ranges_count_from_both_ends() {
    let place = Place::with_shards();
    assert_eq!(ids(&place, "28..33"), [28, 29, 30, 31, 32]);
    assert_eq!(ids(&place, "-1"), [99]);
    assert_eq!(ids(&place, "98.."), [98, 99]);
    assert_eq!(ids(&place, "-2.."), [98, 99]);
    assert_eq!(ids(&place, "..2"), [0, 1]);
    assert_eq!(ids(&place, ".."), (0..100).collect::<Vec<_>>());
    assert_eq!(ids(&place, "5..5"), [] as [u64; 0]);
}

#[test]
fn numbers_that_are_not_there_are_refused() {
    let place = Place::with_shards();
    insta::assert_snapshot!(place.shown(&["cat", "shards", "100"]), @"");
    insta::assert_snapshot!(place.shown(&["cat", "shards", "90..101"]), @"");
    insta::assert_snapshot!(place.shown(&["cat", "shards", "-101"]), @"");
    insta::assert_snapshot!(place.shown(&["cat", "shards", "5..4"]), @"");
    insta::assert_snapshot!(place.shown(&["cat", "shards", "five"]), @"");
    insta::assert_snapshot!(place.shown(&["cat", "shards", "--fiv"]), @"");
}

#[test]
fn columns_come_in_the_order_asked_for() {
    let place = Place::with_shards();
    insta::assert_snapshot!(place.ok(&["cat", "shards", "3", "-c", "name", "-c", "id"]), @"");
    insta::assert_snapshot!(place.shown(&["cat", "shards", "3", "-c", "nam"]), @"");
}

#[test]
fn a_sample_is_found_by_its_key() {
    let place = Place::with_shards();
    let by_name = [
        "cat",
        "shards",
        "--key",
        "row 77",
        "--key-column",
        "name",
        "-c",
        "id",
    ];
    insta::assert_snapshot!(place.ok(&by_name), @"");
    insta::assert_snapshot!(place.ok(&["cat", "shards", "--key", "78", "--key-column", "id", "-c", "name"]), @"");
    insta::assert_snapshot!(place.shown(&["cat", "shards", "--key", "row", "--key-column", "name"]), @"");
    insta::assert_snapshot!(place.shown(&["cat", "shards", "--key", "row"]), @"");
    insta::assert_snapshot!(place.shown(&["cat", "shards", "--key", "row", "--key-column", "score"]), @"");
}

#[test]
fn raw_writes_the_bytes_of_one_field() {
    let place = Place::with_shards();
    assert_eq!(
        place
            .output(&["cat", "shards", "5", "-c", "blob", "--raw"])
            .stdout,
        5_i64.to_le_bytes()
    );
    assert_eq!(
        place.ok(&["cat", "shards", "5", "-c", "name", "--raw"]),
        "row 5"
    );
    insta::assert_snapshot!(place.shown(&["cat", "shards", "5", "--raw"]), @"");
    insta::assert_snapshot!(place.shown(&["cat", "shards", "5..7", "-c", "name", "--raw"]), @"");
    insta::assert_snapshot!(place.shown(&["cat", "shards", "-c", "name", "--raw"]), @"");
}

#[test]
fn long_values_are_shortened_on_request() {
    insta::assert_snapshot!(Place::with_shards().ok(&["cat", "shards", "12", "--max-bytes", "4"]), @"");
}

#[test]
fn fields_become_files() {
    let place = Place::with_shards();
    insta::assert_snapshot!(place.shown(&["cat", "shards", "5..7", "--extract", "out"]), @"");
    assert_eq!(place.read("out/6/name.txt"), b"row 6");
    assert_eq!(place.read("out/6/id.txt"), b"6");
    assert_eq!(place.read("out/6/score.txt"), b"0.6");
    assert_eq!(place.read("out/6/blob.bin"), 6_i64.to_le_bytes());
    let npy = place.read("out/6/pair.npy");
    assert_eq!((&npy[..6], npy.len()), (&b"\x93NUMPY"[..], 128 + 8));
    let report = place.json(&["cat", "shards", "8", "--extract", "out", "--json"]);
    assert_eq!(
        (&report["files"], &report["samples"]),
        (&5.into(), &1.into())
    );
}

#[test]
fn files_that_are_there_stay() {
    let place = Place::with_shards();
    place.write("out/5/name.txt", "mine");
    let ran = place.run(&["cat", "shards", "5", "--column", "name", "--extract", "out"]);
    insta::assert_snapshot!(ran.shown(), @"");
    assert_eq!(place.read("out/5/name.txt"), b"mine");
}

#[test]
fn keys_from_data_stay_inside_the_directory() {
    let place = Place::new();
    place.write("rows.jsonl", "{\"__key__\": \"../evil\", \"txt\": \"x\"}\n");
    place.ok(&["convert", "rows.jsonl", "shards"]);
    insta::assert_snapshot!(place.shown(&["cat", "shards", "--extract", "out", "--by-key"]), @"");
    assert!(!place.exists("evil.txt"));
}

#[test]
fn links_below_the_directory_are_not_followed() {
    let place = Place::with_shards();
    place.write("elsewhere/x", "");
    place.write("out/x", "");
    std::os::unix::fs::symlink(place.path().join("elsewhere"), place.path().join("out/5")).unwrap();
    let ran = place.run(&["cat", "shards", "5", "--extract", "out"]);
    assert_ne!(ran.code, 0);
    assert!(!place.exists("elsewhere/name.txt"), "{}", ran.stderr);
}

#[test]
fn text_formats_are_read_too() {
    let place = Place::new();
    place.parquet("data/rows.parquet", &rows(12));
    let columns = ["--column", "id", "--column", "name", "--column", "score"];
    for to in ["csv", "tsv", "jsonl"] {
        place.ok(&[
            &["convert", "data", "shards", "--to", to, "--overwrite"],
            &columns[..],
        ]
        .concat());
        insta::allow_duplicates! {
            insta::assert_snapshot!(place.ok(&["cat", "shards", "7"]), @"");
        }
        assert_eq!(
            place.ok(&["cat", "shards", "7", "-c", "name", "--raw"]),
            "row 7",
            "{to}"
        );
    }
}

#[test]
fn a_reader_that_has_enough_is_no_error() {
    let place = Place::with_shards();
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("shardmill"))
        .args(["cat", "shards", ".."])
        .current_dir(place.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}

/// A data set that MosaicML Streaming wrote, with a column of every encoding.
#[test]
fn every_encoding_has_a_form() {
    let fixture = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../fixtures/mosaicml-streaming-0.13.0/mds-all-encodings"
    );
    let line = Place::new().ok(&["cat", fixture, "1", "--max-bytes", "12"]);
    let sample: serde_json::Value = serde_json::from_str(&line).unwrap();
    let columns = sample
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, value)| format!("{name}: {value}"));
    insta::assert_snapshot!(columns.collect::<Vec<_>>().join("\n"), @"");
}
