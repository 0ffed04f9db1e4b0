//! Tests the commands for tar files: index export, verify and convert.

use shardmill_webdataset::{Profile, ShardBuilder};

use crate::common::TestDir;
use crate::snapshot;

/// A key, and fields with their contents.
type Sample<'a> = (&'a str, &'a [(&'a str, &'a [u8])]);

fn shard(samples: &[Sample<'_>]) -> Vec<u8> {
    let mut shard = ShardBuilder::new(Profile::reference(0));
    for (key, fields) in samples {
        shard.push(key, fields).unwrap();
    }
    shard.finish().0
}

#[test]
fn dry_run_shows_the_source_of_keys() {
    let dir = TestDir::with_tree();
    insta::assert_snapshot!(
        dir.shown(&["convert", "tree", "tars", "--to", "webdataset", "--jobs", "2", "--dry-run"]),
        @r"
    exit 0
    --- stdout
    source       tree, 10 files, 35 B, 5 rows
    destination  tars: empty
    format       webdataset
    compression  none
    hashes       sha256
    size limit   64.0 MiB
    shards       shard-%06d.tar
    keys         column __key__
    nulls        error
    jobs         2

    column  type    nulls  encoding
    cls     Binary      0  bytes
    txt     Binary      0  bytes
    "
    );
    dir.write("rows.csv", "id,caption\n1,a\n2,b\n");
    insta::assert_snapshot!(
        dir.shown(&["convert", "rows.csv", "tars", "--to", "webdataset", "--jobs", "2", "--dry-run"]),
        @r"
    exit 0
    --- stdout
    source       csv, 1 file, 19 B, 2 rows
    destination  tars: empty
    format       webdataset
    compression  none
    hashes       sha256
    size limit   64.0 MiB
    shards       shard-%06d.tar
    keys         numbers
    nulls        error
    jobs         2

    column       type   nulls  encoding
    caption.txt  Utf8       0  str
    id           Int64      0  int
    "
    );
}

#[test]
fn tree_is_converted_to_tars_that_verify() {
    let dir = TestDir::with_tree();
    let args = [
        "convert",
        "tree",
        "tars",
        "--to",
        "webdataset",
        "--samples-per-shard",
        "3",
    ];
    snapshot!(dir.shown(&args), @r"
    exit 0
    --- stdout
    tars: 5 samples in 2 shards
      raw     20.0 KiB
      stored  20.1 KiB, ratio 1.00
      time    [TIME] at [RATE] MB/s
    ");
    insta::assert_snapshot!(String::from_utf8(dir.read("tars/index.json")).unwrap(), @r#"{"format": "webdataset", "shards": [{"compression": null, "fields": ["cls", "txt"], "offsets": {"basename": "shard-000000.tar.idx", "bytes": 32, "hashes": {"sha256": "aa7ed55559a43874ce3884bfd24d76a0d045fa3f86361b6c11826c09c55d67fa"}}, "optional_fields": [], "raw_data": {"basename": "shard-000000.tar", "bytes": 10240, "hashes": {"sha256": "18e6c3a910cc592823fe476e5a7e063ac87d31c2885583755ffff30c8c80cb61"}}, "samples": 3, "zip_data": null}, {"compression": null, "fields": ["cls", "txt"], "offsets": {"basename": "shard-000001.tar.idx", "bytes": 24, "hashes": {"sha256": "873986add45ec975fab30c0711ee044e86eaa4155c7d352af8d30ffc16acf766"}}, "optional_fields": [], "raw_data": {"basename": "shard-000001.tar", "bytes": 10240, "hashes": {"sha256": "15f034d39acc7cc2c8c2fcbc7621ddcd889d0598c98fdbf54f11057de55d3085"}}, "samples": 2, "zip_data": null}], "version": 1}"#);
    snapshot!(dir.shown(&args), @r"
    exit 0
    --- stdout
    tars: this conversion is already complete, 5 samples in 2 shards; nothing was written
    ");
    snapshot!(dir.shown(&["verify", "tars", "--deep"]), @r"
    exit 0
    --- stdout
    tars: all is well: 5 samples in 2 shards (5 files, 20.9 KiB, 4 hashes, every value decoded, content compared, in [TIME] at [RATE] MB/s)
    ");
    snapshot!(dir.shown(&["verify", "tars/shard-000001.tar"]), @r"
    exit 0
    --- stdout
    tars/shard-000001.tar: all is well: 2 samples in 1 shard (1 file, 10.0 KiB, 0 hashes, values not decoded, in [TIME] at [RATE] MB/s)
    ");
}

#[test]
fn duplicate_key_error_names_the_row() {
    let dir = TestDir::new();
    dir.write("rows.csv", "id,txt\n1,a\n2,b\n1,c\n");
    let args = [
        "convert",
        "rows.csv",
        "tars",
        "--to",
        "webdataset",
        "--key-column",
        "id",
    ];
    insta::assert_snapshot!(dir.shown(&args), @r"
    exit 3
    --- stderr
    error[sample-key-twice]: column id: row 2 of rows.csv: the key `1` was there before; choose a column whose values differ with --key-column, or omit it to number the samples
    ");
    assert!(!dir.exists("tars"));
    let plain = ["convert", "rows.csv", "tars", "--to", "webdataset", "-q"];
    dir.ok(&plain);
    dir.ok(&["verify", "tars", "--strict", "-q"]);
}

#[test]
fn shard_pattern_names_the_shards() {
    let dir = TestDir::with_tree();
    let pattern = [
        "--shard-pattern",
        "train-%03d.tar",
        "--samples-per-shard",
        "4",
    ];
    let args = [
        &["convert", "tree", "tars", "--to", "webdataset", "-q"],
        &pattern[..],
    ]
    .concat();
    dir.ok(&args);
    for name in [
        "train-000.tar",
        "train-000.tar.idx",
        "train-001.tar",
        "train-001.tar.idx",
    ] {
        assert!(dir.exists(&format!("tars/{name}")), "{name}");
    }
    // Another pattern in the place of the first one: nothing of it is left.
    let other = [
        "convert",
        "tree",
        "tars",
        "--to",
        "webdataset",
        "-q",
        "--overwrite",
    ];
    dir.ok(&other);
    assert!(dir.exists("tars/shard-000000.tar") && !dir.exists("tars/train-000.tar"));
    // What is no shard of a dataset is not overwritten.
    dir.write("tars/mine.tar", "x");
    assert_eq!(dir.run(&other).code, 4);
    assert!(dir.exists("tars/mine.tar"));
}

#[test]
fn nulls_omit_leaves_out_missing_fields() {
    let dir = TestDir::with_tree();
    dir.write("tree/a/9.cls", "9");
    let args = ["convert", "tree", "tars", "--to", "webdataset"];
    let ran = dir.run(&args);
    assert_eq!(
        (ran.code, ran.stderr.starts_with("error[value-null]")),
        (3, true)
    );
    dir.ok(&[&args[..], &["--nulls", "omit"]].concat());
    let index = String::from_utf8(dir.read("tars/index.json")).unwrap();
    assert!(
        index.contains("\"fields\": [\"cls\"]") && index.contains("\"optional_fields\": [\"txt\"]")
    );
    dir.ok(&["verify", "tars", "--deep"]);
    dir.ok(&[
        "convert",
        "tars",
        "again",
        "--to",
        "webdataset",
        "--nulls",
        "omit",
    ]);
    assert_eq!(
        dir.read("tars/shard-000000.tar"),
        dir.read("again/shard-000000.tar")
    );
}

#[test]
fn tar_files_round_trip_through_mds() {
    let dir = TestDir::with_tars();
    for compression in ["none", "zstd:3", "gz:1"] {
        let zip = format!("zip-{compression}").replace(':', "-");
        let args = [
            "--to",
            "webdataset",
            "--samples-per-shard",
            "2",
            "--compression",
            compression,
        ];
        dir.ok(&[&["convert", "tars", &zip], &args[..]].concat());
        dir.ok(&["verify", &zip, "--deep"]);
        let mds = format!("{zip}-mds");
        dir.ok(&["convert", &zip, &mds]);
        dir.ok(&["verify", &mds, "--deep"]);
        let back = format!("{zip}-back");
        dir.ok(&[
            "convert",
            &mds,
            &back,
            "--to",
            "webdataset",
            "--samples-per-shard",
            "3",
        ]);
        for name in [
            "shard-000000.tar",
            "shard-000001.tar",
            "shard-000000.tar.idx",
        ] {
            let (first, last) = (format!("tars/{name}"), format!("{back}/{name}"));
            assert!(dir.read(&first) == dir.read(&last), "{compression}: {name}");
        }
    }
    // Without their index, by pattern, and one by one.
    std::fs::remove_file(dir.path().join("tars/index.json")).unwrap();
    for (number, source) in [
        &["tars"][..],
        &["tars/*.tar"],
        &["tars/shard-000000.tar", "tars/shard-000001.tar"],
    ]
    .into_iter()
    .enumerate()
    {
        let dest = format!("by-{number}");
        let args = [
            &["convert"],
            source,
            &[&dest, "--to", "webdataset", "--samples-per-shard", "3"],
        ]
        .concat();
        dir.ok(&args);
        assert_eq!(
            dir.read("tars/shard-000001.tar"),
            dir.read(&format!("{dest}/shard-000001.tar"))
        );
    }
}

#[test]
fn tar_columns_are_selected_and_computed() {
    let dir = TestDir::with_tars();
    dir.ok(&[
        "convert",
        "tars",
        "mds",
        "--column",
        "__key__",
        "--column",
        "n:int32=CAST(CAST(cls AS VARCHAR) AS INT) * 2",
        "--where",
        "CAST(cls AS VARCHAR) >= '2'",
    ]);
    insta::assert_snapshot!(dir.ok(&["cat", "mds", ".."]), @r#"
    {"__key__":"a/2","n":4}
    {"__key__":"a/4","n":8}
    {"__key__":"b/3","n":6}
    "#);
}

#[test]
fn verify_reports_incompatible_tar_shards() {
    let dir = TestDir::new();
    dir.write(
        "ok/0.tar",
        shard(&[("a", &[("txt", b"x")]), ("b", &[("txt", b"y")])]),
    );
    dir.ok(&["verify", "ok", "--strict"]);
    dir.write(
        "odd/0.tar",
        shard(&[
            ("a", &[("TXT", b"x")]),
            ("my key", &[("txt", b"y"), ("cls", b"1")]),
        ]),
    );
    dir.write("odd/1.tar", shard(&[("b", &[("txt", b"x")])]));
    // No reader is asked for.
    dir.ok(&["verify", "odd", "--strict"]);
    snapshot!(dir.shown(&["verify", "odd", "--for", "webdataset"]), @r"
    exit 0
    --- stdout
    odd: all is well: 3 samples in 2 shards (2 files, 20.0 KiB, 0 hashes, values not decoded, in [TIME] at [RATE] MB/s)
    --- stderr
    warning[field-case]: odd/0.tar: the field `TXT` has capitals, which some readers change and others keep
    warning[sample-fields]: odd: 1 of 3 samples have the fields cls, txt, the first of them `my key`
    warning[sample-fields]: odd: 2 of 3 samples have the fields txt, the first of them `a`
    ");
    assert_eq!(
        dir.run(&["verify", "odd", "--for", "webdataset", "--strict"])
            .code,
        3
    );
    snapshot!(dir.shown(&["verify", "odd", "--for", "hf,dali"]), @r"
    exit 3
    --- stdout
    odd: 3 problems in 1 of 2 shards, which hold 2 of 3 samples (2 files, 20.0 KiB, 0 hashes, values not decoded, in [TIME] at [RATE] MB/s)
    --- stderr
    error[sample-fields]: odd/0.tar: hf: sample `my key` has other fields than the first one, and the first 5 samples have to agree
    error[sidecar-name]: odd/0.tar: dali: the name `my key.cls` has a space, which its index cannot express
    error[sidecar-name]: odd/0.tar: dali: the name `my key.txt` has a space, which its index cannot express
    warning[field-case]: odd/0.tar: the field `TXT` has capitals, which some readers change and others keep
    warning[split-differs]: odd/0.tar: hf: hf has field `TXT` of `a`, webdataset has field `txt` of `a`
    warning[split-differs]: odd/0.tar: dali: dali has field `TXT` of `a`, webdataset has field `txt` of `a`
    warning[sample-fields]: odd/0.tar: dali: sample `a` lacks `cls`: it is skipped, filled or refused, as `missing_component_behavior` says
    warning[sample-fields]: odd/0.tar: dali: sample `my key` lacks `TXT`: it is skipped, filled or refused, as `missing_component_behavior` says
    warning[sample-fields]: odd: 1 of 3 samples have the fields cls, txt, the first of them `my key`
    warning[sample-fields]: odd: 2 of 3 samples have the fields txt, the first of them `a`
    ");
    let report = dir.json(&["verify", "odd/1.tar", "--for", "dali", "--json"]);
    assert_eq!(report["warnings"], serde_json::json!([]));
    let ran = dir.run(&["verify", "odd/0.tar", "--for", "dali", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["problems"][0]["id"], "sidecar-name");
    assert_eq!(report["warnings"][1]["id"], "split-differs");
    assert_eq!(report["warnings"][1]["object"], "0.tar");
}

#[test]
fn samples_without_some_fields_are_no_warning() {
    let dir = TestDir::new();
    dir.write("a.jsonl", "{\"id\":1,\"t\":null}\n{\"id\":2,\"t\":\"x\"}\n");
    let convert = ["convert", "a.jsonl", "tars", "--to", "webdataset"];
    dir.ok(&[&convert[..], &["--nulls", "omit"]].concat());
    dir.ok(&["verify", "tars", "--strict"]);
    let report = dir.json(&["verify", "tars", "--for", "webdataset", "--json"]);
    assert_eq!(report["warnings"][0]["id"], "sample-fields");
}

#[test]
fn group_key_groups_tree_files_by_first_dot() {
    let dir = TestDir::new();
    for sample in 0..2 {
        for (field, text) in [("jpg", "J"), ("seg.png", "P"), ("json", "{}")] {
            dir.write(&format!("tree/a.b/{sample}.{field}"), text);
        }
    }
    let convert = ["convert", "tree", "out", "--to", "webdataset"];
    insta::assert_snapshot!(dir.shown(&convert), @r"
    exit 3
    --- stderr
    error[value-null]: tree: column jpg has 2 nulls, the first in sample a.b/0.seg, column json has 2 nulls, the first in sample a.b/0.seg, column png has 2 nulls, the first in sample a.b/0; choose --group key where names have several extensions (1.seg.png), --nulls omit to omit fields from samples, --nulls mask, or --nulls drop
    ");
    dir.ok(&[&convert[..], &["--group", "key"]].concat());
    insta::assert_snapshot!(dir.shown(&["cat", "out", "0"]), @r#"
    exit 0
    --- stdout
    {"__key__":"a.b/0","jpg":{"bytes":1,"base64":"Sg=="},"json":{},"seg.png":{"bytes":1,"base64":"UA=="}}
    "#);
}

#[test]
fn index_export_writes_all_reader_indexes() {
    let dir = TestDir::with_tars();
    insta::assert_snapshot!(dir.shown(&["index", "export", "tars", "--for", "wids,dali,open_clip"]), @r"
    exit 0
    --- stdout
    tars: 4 files of 5 samples in 2 shards
      shardindex.json
      shard-000000.idx
      shard-000001.idx
      sizes.json
    ");
    insta::assert_snapshot!(String::from_utf8(dir.read("tars/shard-000001.idx")).unwrap(), @r"
    v1.2 2
    cls 512 1 b/1.cls txt 1536 6 b/1.txt
    cls 2560 1 b/3.cls txt 3584 6 b/3.txt
    ");
    // The same again is no conflict; another file is.
    dir.ok(&["index", "export", "tars", "--for", "dali"]);
    dir.write("tars/sizes.json", "{}");
    insta::assert_snapshot!(dir.shown(&["index", "export", "tars", "--for", "open_clip"]), @r"
    exit 4
    --- stderr
    error[index-exists]: tars/sizes.json: another file exists; replace it with --force
    ");
    dir.ok(&["index", "export", "tars", "--for", "open_clip", "--force"]);
    // Those that convert writes are the same.
    dir.ok(&[
        "convert",
        "tree",
        "with",
        "--to",
        "webdataset",
        "--samples-per-shard",
        "3",
        "--index-for",
        "open_clip,dali,wids",
    ]);
    for name in ["sizes.json", "shard-000000.idx", "shardindex.json"] {
        assert_eq!(
            dir.read(&format!("tars/{name}")),
            dir.read(&format!("with/{name}")),
            "{name}"
        );
    }
}

#[test]
fn dali_index_keeps_field_case() {
    let dir = TestDir::new();
    dir.write("odd/0.tar", shard(&[("A", &[("JPG", b"x")])]));
    dir.ok(&["index", "export", "odd", "--for", "dali"]);
    insta::assert_snapshot!(String::from_utf8(dir.read("odd/0.idx")).unwrap(), @r"
    v1.2 1
    JPG 512 1 A.JPG
    ");
}

#[test]
fn truncation_at_every_block_is_detected() {
    let dir = TestDir::with_tars();
    let bytes = dir.read("tars/shard-000000.tar");
    let end = 3 * 2 * 1024;
    for cut in (0..bytes.len()).step_by(512) {
        dir.write("cut/0.tar", &bytes[..cut]);
        let ran = dir.run(&["verify", "cut"]);
        // From here on nothing is missing but zeros after the end.
        let expected = if cut >= end + 1024 { 0 } else { 3 };
        assert_eq!(
            ran.code, expected,
            "cut at {cut}: {}{}",
            ran.stdout, ran.stderr
        );
        dir.write("tars/shard-000000.tar", &bytes[..cut]);
        assert_eq!(
            dir.run(&["verify", "tars"]).code,
            3,
            "cut at {cut}, with an index"
        );
    }
}

/// What `inspect` and `cat` say, with an index and without, compressed and not.
#[test]
fn inspect_and_cat_read_tar_files() {
    let dir = TestDir::with_tree();
    let convert = |to: &str, compression: &str| {
        let args = [
            "convert",
            "tree",
            to,
            "--to",
            "webdataset",
            "--samples-per-shard",
            "3",
        ];
        dir.ok(&[&args[..], &["--compression", compression]].concat());
    };
    convert("plain", "none");
    convert("packed", "zstd:3");
    convert("bare", "gz");
    std::fs::remove_file(dir.path().join("bare/index.json")).unwrap();
    // Unpacked beside its compressed file, a shard is one still.
    let unpacked = "shard-000001.tar";
    assert!(dir.path().join("bare/shard-000001.tar.gz").exists());
    dir.write(
        &format!("bare/{unpacked}"),
        dir.read(&format!("plain/{unpacked}")),
    );
    for set in ["plain", "packed", "bare"] {
        let list = dir.ok(&["inspect", "--shards", set, "--json"]);
        let shards: Vec<serde_json::Value> = list
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let samples: Vec<_> = shards.iter().map(|shard| &shard["samples"]).collect();
        assert_eq!(samples, [3, 2], "{set}");
        assert!(shards.iter().all(|shard| shard["format"] == "webdataset"));
        let told: serde_json::Value =
            serde_json::from_str(&dir.ok(&["inspect", set, "--json"])).unwrap();
        assert_eq!((&told["samples"], &told["shards"]), (&5.into(), &2.into()));
        assert_eq!(told["format"], "webdataset");
        let names: Vec<_> = told["columns"]
            .as_array()
            .unwrap()
            .iter()
            .map(|column| column["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["__key__", "cls", "txt"]);
        assert_eq!(told["index_hash"].is_null(), set == "bare");
        assert_eq!(
            dir.ok(&["cat", set, "3.."]),
            "{\"__key__\":\"b/1\",\"cls\":1,\"txt\":\"text 1\"}\n\
             {\"__key__\":\"b/3\",\"cls\":3,\"txt\":\"text 3\"}\n",
            "{set}"
        );
        let by_key = ["cat", set, "--key", "a/4", "--column", "txt", "--raw"];
        assert_eq!(dir.ok(&by_key), "text 4");
        assert_eq!(
            dir.ok(&["cat", set, "-1", "--column", "cls", "--column", "__key__"]),
            "{\"cls\":3,\"__key__\":\"b/3\"}\n"
        );
        let files = format!("files-{set}");
        dir.ok(&["cat", set, "0..", "--extract", &files, "--by-key"]);
        assert_eq!(dir.read(&format!("{files}/b/3.txt")), b"text 3");
        assert_eq!(dir.read(&format!("{files}/a/0.cls")), b"0");
    }
    let inspected = dir.ok(&["inspect", "bare"]);
    assert!(inspected.contains("index        none"), "{inspected}");
}

#[test]
fn cat_of_missing_tar_samples_is_an_error() {
    let dir = TestDir::with_tars();
    let id = |args: &[&str]| {
        let ran = dir.run(&[args, &["--json"]].concat());
        assert_eq!(ran.stdout, "");
        (ran.code, ran.error()["id"].as_str().unwrap().to_owned())
    };
    let told = |code: i32, id: &str| (code, id.to_owned());
    assert_eq!(
        id(&["cat", "tars", "--column", "jpg"]),
        told(2, "column-unknown")
    );
    assert_eq!(
        id(&["cat", "tars", "--key", "a/9"]),
        told(2, "key-not-found")
    );
    assert_eq!(id(&["cat", "tars", "5"]), told(2, "sample-out-of-range"));
    dir.write("tars/shard-000000.tar", vec![7; 20_480]);
    assert_eq!(id(&["cat", "tars", "0"]).0, 3);
}

#[test]
fn doctor_probes_read_and_write_access() {
    let dir = TestDir::new();
    dir.write("sets/file", "a user's");
    let told: serde_json::Value =
        serde_json::from_str(&dir.ok(&["doctor", "sets", "--json"])).unwrap();
    assert_eq!(told["verdict"], "read-write");
    assert_eq!(told["left"], serde_json::json!([]));
    let left = std::fs::read_dir(dir.path().join("sets")).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["file"]);
    let ran = dir.run(&["doctor", "nowhere"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    let args = [
        "doctor",
        "s3://bucket",
        "--storage-option",
        "AWS_REGOIN=eu-west-1",
    ];
    let ran = dir.run(&args);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("AWS_REGOIN"), "{}", ran.stderr);
    // Nothing listens there.
    let closed = "AWS_ENDPOINT_URL=http://127.0.0.1:9";
    let args = ["doctor", "s3://bucket", "--storage-option", closed];
    let keys = ["--storage-option", "AWS_SKIP_SIGNATURE=true"];
    let ran = dir.run(&[&args[..], &keys[..]].concat());
    assert_eq!(ran.code, 6, "{}", ran.stderr);
    assert!(
        ran.stdout.contains("neither read nor written"),
        "{}",
        ran.stdout
    );
}

#[test]
fn csv_columns_become_typed_tar_fields() {
    let dir = TestDir::new();
    dir.write("rows.csv", "id,class,n\nx,cat,1\ny,dog,2\n");
    dir.ok(&["convert", "rows.csv", "tars", "--to", "webdataset"]);
    let index = String::from_utf8(dir.read("tars/index.json")).unwrap();
    let fields = "\"fields\": [\"class.txt\", \"id.txt\", \"n.cls\"]";
    assert!(index.contains(fields), "{index}");
    dir.ok(&["verify", "tars", "--deep"]);
    let zipped = ["--column", "txt.gz=class", "--column", "cls.gz=n"];
    let convert = ["convert", "rows.csv", "zipped", "--to", "webdataset"];
    dir.ok(&[&convert[..], &zipped[..]].concat());
    dir.ok(&["verify", "zipped", "--deep"]);
    let refused = [
        "convert",
        "rows.csv",
        "never",
        "--to",
        "webdataset",
        "--column",
        "cls=class",
    ];
    insta::assert_snapshot!(dir.shown(&refused), @r"
    exit 3
    --- stderr
    error[type-unsupported]: column cls: a column of type Utf8 cannot be stored as str in a field of that name; readers expect a whole number there: call the field `txt`, or store texts of digits with the encoding `int`
    ");
    assert!(!dir.exists("never"));
}

#[test]
fn lists_are_written_as_ten_tensors() {
    use shardmill_webdataset::{DType, encode_ten};

    let dir = TestDir::new();
    dir.write(
        "rows.jsonl",
        "{\"id\": \"a\", \"v\": [1.5, -2.0]}\n{\"id\": \"b\", \"v\": []}\n{\"id\": \"c\", \"v\": [0.25]}\n",
    );
    let convert = [
        "convert",
        "rows.jsonl",
        "tars",
        "--to",
        "webdataset",
        "--key-column",
        "id",
    ];
    dir.ok(&[&convert[..], &["--column", "v.ten:ten=v"]].concat());
    let expected: Vec<(&str, Vec<u8>)> =
        [("a", vec![1.5_f64, -2.0]), ("b", vec![]), ("c", vec![0.25])]
            .into_iter()
            .map(|(key, numbers)| {
                let data: Vec<u8> = numbers
                    .iter()
                    .flat_map(|number| number.to_le_bytes())
                    .collect();
                let shape = [numbers.len() as u64];
                let mut bytes = Vec::new();
                encode_ten("v.ten", DType::Float64, &shape, &data, &mut bytes).unwrap();
                (key, bytes)
            })
            .collect();
    let fields: Vec<[(&str, &[u8]); 1]> = expected
        .iter()
        .map(|(_, bytes)| [("v.ten", &bytes[..])])
        .collect();
    let samples: Vec<Sample<'_>> = expected
        .iter()
        .zip(&fields)
        .map(|((key, _), fields)| (*key, &fields[..]))
        .collect();
    assert!(dir.read("tars/shard-000000.tar") == shard(&samples));
    // What the original cannot read is not written.
    dir.write("small.csv", "id,n\na,1\n");
    insta::assert_snapshot!(dir.shown(&[
        "convert", "small.csv", "t2", "--to", "webdataset", "--key-column", "id", "--sql",
        "SELECT id, make_array(arrow_cast(n, 'UInt32')) AS v FROM source", "--column", "v.ten:ten=v",
    ]), @r#"
    exit 3
    --- stderr
    error[type-unsupported]: column v.ten: a column of type List(UInt32) cannot be stored as ten; convert it first, for example with --column 'v.ten:ten=CAST(v AS …)'
    "#);
    insta::assert_snapshot!(dir.shown(&[
        "convert", "small.csv", "t3", "--to", "webdataset", "--key-column", "id", "--column", "n.ten:ten=n",
    ]), @r#"
    exit 3
    --- stderr
    error[type-unsupported]: column n.ten: a column of type Int64 cannot be stored as ten; convert it first, for example with --column 'n.ten:ten=CAST(n AS …)'
    "#);
}

#[test]
fn invalid_utf8_text_is_copied_into_tars() {
    let dir = TestDir::new();
    dir.write("tree/a.txt", b"caf\xe9");
    dir.write("tree/a.cls", "1");
    dir.convert_to_tars(&[]);
    let tar = dir.read("tars/shard-000000.tar");
    assert!(tar.windows(4).any(|found| found == b"caf\xe9"));
    let ran = dir.run(&["convert", "tree", "mds", "--json"]);
    assert_eq!(ran.error()["id"], "tree-text");
    let args = [
        "convert",
        "tree",
        "some",
        "--to",
        "webdataset",
        "--where",
        "txt <> ''",
    ];
    assert_eq!(
        dir.run(&[&args[..], &["--json"]].concat()).error()["id"],
        "tree-text"
    );
}
