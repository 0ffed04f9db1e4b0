use std::process::Stdio;

use shardmill_testing::mds::Spec;

use crate::common::TestDir;

#[test]
fn sample_is_printed_with_all_columns() {
    insta::assert_snapshot!(TestDir::with_shards().shown(&["cat", "shards", "31"]), @r#"
    exit 0
    --- stdout
    {"blob":{"bytes":8,"base64":"HwAAAAAAAAA="},"id":31,"name":"row 31","pair":{"dtype":"float32","shape":[2],"data":[15.5,15.75]},"score":3.1}
    "#);
}

#[test]
fn first_ten_samples_are_shown_by_default_with_a_note() {
    let ran = TestDir::with_shards().run(&["cat", "shards", "--column", "id"]);
    assert_eq!(ran.stdout.lines().count(), 10);
    insta::assert_snapshot!(ran.stderr, @"10 of 100 samples; `0..` for all of them, `A..B` for some");
}

fn ids(dir: &TestDir, range: &str) -> Vec<u64> {
    let lines = dir.ok(&["cat", "shards", range, "-c", "id"]);
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
fn negative_range_bounds_count_from_the_end() {
    let dir = TestDir::with_shards();
    assert_eq!(ids(&dir, "28..33"), [28, 29, 30, 31, 32]);
    assert_eq!(ids(&dir, "-1"), [99]);
    assert_eq!(ids(&dir, "98.."), [98, 99]);
    assert_eq!(ids(&dir, "-2.."), [98, 99]);
    assert_eq!(ids(&dir, "..2"), [0, 1]);
    assert_eq!(ids(&dir, ".."), (0..100).collect::<Vec<_>>());
    assert_eq!(ids(&dir, "5..5"), [] as [u64; 0]);
}

#[test]
fn out_of_range_samples_are_errors() {
    let dir = TestDir::with_shards();
    insta::assert_snapshot!(dir.shown(&["cat", "shards", "100"]), @r"
    exit 2
    --- stderr
    error[sample-out-of-range]: shards: sample 100 does not exist; the dataset has 100; samples are numbered from 0 to 99, or from -1 backwards
    ");
    insta::assert_snapshot!(dir.shown(&["cat", "shards", "90..101"]), @r"
    exit 2
    --- stderr
    error[sample-out-of-range]: shards: sample 101 does not exist; the dataset has 100; samples are numbered from 0 to 99, or from -1 backwards
    ");
    insta::assert_snapshot!(dir.shown(&["cat", "shards", "-101"]), @r"
    exit 2
    --- stderr
    error[sample-out-of-range]: shards: sample -101 does not exist; the dataset has 100; samples are numbered from 0 to 99, or from -1 backwards
    ");
    insta::assert_snapshot!(dir.shown(&["cat", "shards", "5..4"]), @r"
    exit 2
    --- stderr
    error[config-range]: 5..4: the range ends before it begins
    ");
    insta::assert_snapshot!(dir.shown(&["cat", "shards", "five"]), @r"
    exit 2
    --- stderr
    error[config-range]: five: it is neither a number nor a range; write 7, -1, 10..20, 10.. or ..20
    ");
    insta::assert_snapshot!(dir.shown(&["cat", "shards", "--fiv"]), @r"
    exit 2
    --- stderr
    error[usage-unknown-option]: --fiv: there is no such option or argument; see `shardmill --help`
    ");
}

#[test]
fn columns_are_printed_in_requested_order() {
    let dir = TestDir::with_shards();
    insta::assert_snapshot!(dir.ok(&["cat", "shards", "3", "-c", "name", "-c", "id"]), @r#"{"name":"row 3","id":3}"#);
    insta::assert_snapshot!(dir.shown(&["cat", "shards", "3", "-c", "nam"]), @r"
    exit 2
    --- stderr
    error[column-unknown]: shards: there is no column `nam`; its columns are blob, id, name, pair, score
    ");
}

#[test]
fn sample_is_found_by_key() {
    let dir = TestDir::with_shards();
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
    insta::assert_snapshot!(dir.ok(&by_name), @r#"{"id":77}"#);
    insta::assert_snapshot!(dir.ok(&["cat", "shards", "--key", "78", "--key-column", "id", "-c", "name"]), @r#"{"name":"row 78"}"#);
    insta::assert_snapshot!(dir.shown(&["cat", "shards", "--key", "row", "--key-column", "name"]), @r"
    exit 2
    --- stderr
    error[key-not-found]: shards: no sample has `row` in the column `name`; name the column that holds keys with --key-column
    ");
    insta::assert_snapshot!(dir.shown(&["cat", "shards", "--key", "row"]), @r"
    exit 2
    --- stderr
    error[column-unknown]: shards: there is no column `__key__`; its columns are blob, id, name, pair, score
    ");
    insta::assert_snapshot!(dir.shown(&["cat", "shards", "--key", "row", "--key-column", "score"]), @r"
    exit 2
    --- stderr
    error[key-encoding]: score: the column has encoding float64, which cannot be a key; choose a column of strings or integers with --key-column
    ");
}

#[test]
fn raw_writes_the_bytes_of_one_field() {
    let dir = TestDir::with_shards();
    assert_eq!(
        dir.output(&["cat", "shards", "5", "-c", "blob", "--raw"])
            .stdout,
        5_i64.to_le_bytes()
    );
    assert_eq!(
        dir.ok(&["cat", "shards", "5", "-c", "name", "--raw"]),
        "row 5"
    );
    insta::assert_snapshot!(dir.shown(&["cat", "shards", "5", "--raw"]), @r"
    exit 2
    --- stderr
    error[config-raw]: --raw: it writes one column; name it with --column
    ");
    insta::assert_snapshot!(dir.shown(&["cat", "shards", "5..7", "-c", "name", "--raw"]), @r"
    exit 2
    --- stderr
    error[config-raw]: --raw: it writes one sample, but 2 are selected; pass one number or a key
    ");
    insta::assert_snapshot!(dir.shown(&["cat", "shards", "-c", "name", "--raw"]), @r"
    exit 2
    --- stderr
    error[config-raw]: --raw: it writes one sample; pass its number or its key
    ");
}

#[test]
fn max_bytes_shortens_long_values() {
    insta::assert_snapshot!(TestDir::with_shards().ok(&["cat", "shards", "12", "--max-bytes", "4"]), @r#"{"blob":{"bytes":8,"base64":"DAAAAA==","shortened":true},"id":12,"name":"row …","pair":{"dtype":"float32","shape":[2],"data":[6.0],"shortened":true},"score":1.2}"#);
}

#[test]
fn extract_writes_fields_as_files() {
    let dir = TestDir::with_shards();
    insta::assert_snapshot!(dir.shown(&["cat", "shards", "5..7", "--extract", "out"]), @r"
    exit 0
    --- stdout
    out: 10 files of 2 samples
    ");
    assert_eq!(dir.read("out/6/name.txt"), b"row 6");
    assert_eq!(dir.read("out/6/id.txt"), b"6");
    assert_eq!(dir.read("out/6/score.txt"), b"0.6");
    assert_eq!(dir.read("out/6/blob.bin"), 6_i64.to_le_bytes());
    let npy = dir.read("out/6/pair.npy");
    assert_eq!((&npy[..6], npy.len()), (&b"\x93NUMPY"[..], 128 + 8));
    let report = dir.json(&["cat", "shards", "8", "--extract", "out", "--json"]);
    assert_eq!(
        (&report["files"], &report["samples"]),
        (&5.into(), &1.into())
    );
}

#[test]
fn extract_does_not_overwrite_existing_files() {
    let dir = TestDir::with_shards();
    dir.write("out/5/name.txt", "mine");
    let ran = dir.run(&["cat", "shards", "5", "--column", "name", "--extract", "out"]);
    insta::assert_snapshot!(ran.shown(), @r"
    exit 4
    --- stderr
    error[exists]: out/5/name.txt: the file exists already
    ");
    assert_eq!(dir.read("out/5/name.txt"), b"mine");
}

#[test]
fn path_traversal_in_keys_is_an_error() {
    let dir = TestDir::new();
    dir.write("rows.jsonl", "{\"__key__\": \"../evil\", \"txt\": \"x\"}\n");
    dir.ok(&["convert", "rows.jsonl", "shards"]);
    insta::assert_snapshot!(dir.shown(&["cat", "shards", "--extract", "out", "--by-key"]), @r"
    exit 3
    --- stderr
    error[path-traversal]: sample 0: the file cannot be named after `../evil`: the name has an empty, `.` or `..` part; omit --by-key to name the files by sample number
    ");
    assert!(!dir.exists("evil.txt"));
}

#[test]
fn extract_does_not_follow_symlinks() {
    let dir = TestDir::with_shards();
    dir.write("elsewhere/x", "");
    dir.write("out/x", "");
    std::os::unix::fs::symlink(dir.path().join("elsewhere"), dir.path().join("out/5")).unwrap();
    let ran = dir.run(&["cat", "shards", "5", "--extract", "out"]);
    assert_ne!(ran.code, 0);
    assert!(!dir.exists("elsewhere/name.txt"), "{}", ran.stderr);
}

#[test]
fn csv_tsv_and_jsonl_datasets_are_read() {
    let dir = TestDir::new();
    let columns = [("id", "int"), ("name", "str"), ("score", "float")];
    let csv = Spec::csv(&columns);
    let tsv = csv.clone().with("format", "tsv");
    for (to, spec) in [("csv", csv), ("tsv", tsv), ("jsonl", Spec::json(&columns))] {
        let sample = |n: u32| match to {
            "csv" => format!("{n},row {n},{}\n", f64::from(n) / 10.0),
            "tsv" => format!("{n}\trow {n}\t{}\n", f64::from(n) / 10.0),
            _ => format!(
                "{{\"id\": {n}, \"name\": \"row {n}\", \"score\": {}}}\n",
                f64::from(n) / 10.0
            ),
        };
        let samples: Vec<Vec<u8>> = (0..12).map(|n| sample(n).into_bytes()).collect();
        let shards = dir.path().join("shards");
        spec.write(&shards, &[spec.shard(&samples)]).unwrap();
        insta::allow_duplicates! {
            insta::assert_snapshot!(dir.ok(&["cat", "shards", "7"]), @r#"{"id":7,"name":"row 7","score":0.7}"#);
        }
        assert_eq!(
            dir.ok(&["cat", "shards", "7", "-c", "name", "--raw"]),
            "row 7",
            "{to}"
        );
    }
}

#[test]
fn closed_pipe_is_not_an_error() {
    let dir = TestDir::with_shards();
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("shardmill"))
        .args(["cat", "shards", ".."])
        .current_dir(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}

/// A dataset that MosaicML Streaming wrote, with a column of every encoding.
#[test]
fn every_mds_encoding_is_printed() {
    let fixture = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../fixtures/mosaicml-streaming-0.13.0/mds-all-encodings"
    );
    let line = TestDir::new().ok(&["cat", fixture, "1", "--max-bytes", "12"]);
    let sample: serde_json::Value = serde_json::from_str(&line).unwrap();
    let columns = sample
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, value)| format!("{name}: {value}"));
    insta::assert_snapshot!(columns.collect::<Vec<_>>().join("\n"), @r#"
    bytes column: {"base64":"t5dVAIc=","bytes":5}
    float16 column: -0.0
    float32 column: -0.0
    float64 column: -0.0
    int column: 1
    int16 column: 1
    int32 column: 1
    int64 column: 1
    int8 column: 1
    jpeg column: {"base64":"/9j/4AAQSkZJRgAB","bytes":339,"format":"jpeg","shortened":true}
    jpeg_array column: [{"base64":"/9j/4AAQSkZJRgAB","bytes":671,"format":"jpeg","shortened":true}]
    jpegarray column: [{"base64":"/9j/4AAQSkZJRgAB","bytes":671,"format":"jpeg","shortened":true},{"base64":"/9j/4AAQSkZJRgAB","bytes":692,"format":"jpeg","shortened":true}]
    json column: {"json_bytes":30,"text":"{\"b\": [1, nu…"}
    list[jpeg] column: [{"base64":"/9j/4AAQSkZJRgAB","bytes":361,"format":"jpeg","shortened":true}]
    list[pil] column: [{"base64":"AQ==","bytes":1,"format":"pil","height":1,"mode":"L","width":1}]
    list[png] column: [{"base64":"iVBORw0KGgoAAAAN","bytes":71,"format":"png","shortened":true}]
    ndarray column: {"data":[2,63,67,34],"dtype":"int8","shape":[2,2]}
    pil column: {"base64":"AggQFRwlKjQ7QklQ","bytes":12,"format":"pil","height":2,"mode":"RGB","width":2}
    pkl column: {"base64":"gASVCgAAAAAAAAB9","pickle_bytes":21,"shortened":true}
    png column: {"base64":"iVBORw0KGgoAAAAN","bytes":104,"format":"png","shortened":true}
    str column: "hello"
    str_decimal column: "-0"
    str_float column: -0.0
    str_int column: -1e+100
    uint16 column: 1
    uint32 column: 1
    uint64 column: 1
    uint8 column: 1
    "#);
}
