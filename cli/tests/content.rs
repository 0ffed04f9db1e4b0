//! Tests the content digests that a conversion records, and `verify --deep`, which compares samples with them.

use serde_json::Value;

use crate::common::{TestDir, rows};
use crate::snapshot;

/// What `verify --deep` says of a sound dataset about its content.
fn compared(dir: &TestDir, dataset: &str) -> Value {
    let report = dir.json(&["verify", dataset, "--deep", "--json"]);
    assert_eq!(report["warning_count"], 0, "{dataset}: {report}");
    let text = dir.read(&format!("{dataset}/index.provenance"));
    let noted: Value = serde_json::from_slice(&text).unwrap();
    let content = &report["content"];
    assert_eq!(content["expected"], noted["content"], "{dataset}");
    assert_eq!(content["found"], noted["content"], "{dataset}");
    noted
}

/// Converts `data` and compares the content.
fn converted(dir: &TestDir, dest: &str, more: &[&str]) -> Value {
    dir.ok(&[&["convert", "data", dest], more].concat());
    compared(dir, dest)
}

/// The shards and the index of one dataset in the place of those of another.
fn exchange(dir: &TestDir, from: &str, to: &str) {
    for entry in std::fs::read_dir(dir.path().join(from)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name != "index.provenance" {
            let bytes = dir.read(&format!("{from}/{name}"));
            dir.write(&format!("{to}/{name}"), bytes);
        }
    }
}

#[test]
fn deep_verify_compares_content_hash_in_all_formats() {
    let dir = TestDir::new();
    dir.parquet("data/rows.parquet", &rows(100));
    let mut contents = Vec::new();
    for (dest, more) in [
        ("mds", &["--samples-per-shard", "30"][..]),
        (
            "raw",
            &["--compression", "none", "--samples-per-shard", "7"],
        ),
        ("tars", &["--to", "webdataset"]),
        ("packed", &["--to", "webdataset", "--compression", "zstd"]),
        ("keyed", &["--to", "webdataset", "--key-column", "id"]),
    ] {
        let noted = converted(&dir, dest, more);
        contents.push((noted["content"].clone(), noted["keys"].clone()));
    }
    // Neither compression nor the size of shards is part of it; keys are, where they are not numbers.
    assert_eq!(contents[0], contents[1]);
    assert_eq!(contents[2], contents[3]);
    assert_eq!(contents[2].1, "number");
    assert_eq!(contents[4].1, "column");
    assert_ne!(contents[2].0, contents[4].0);
    snapshot!(dir.shown(&["verify", "mds", "--deep"]), @r"
    exit 0
    --- stdout
    mds: all is well: 100 samples in 4 shards (5 files, 4.9 KiB, 8 hashes, every value decoded, content compared, in [TIME] at [RATE] MB/s)
    ");
    // Without `--deep` it is not.
    let report = dir.json(&["verify", "mds", "--json"]);
    assert_eq!(report["content"], Value::Null);
}

#[test]
fn content_hash_ignores_parts_but_differs_by_split() {
    let dir = TestDir::new();
    dir.parquet("data/a.parquet", &rows(40));
    dir.parquet("data/b.parquet", &rows(25));
    for to in ["mds", "webdataset"] {
        let parts = format!("parts-{to}");
        for part in ["0/2", "1/2"] {
            dir.ok(&["convert", "data", &parts, "--to", to, "--part", part]);
        }
        dir.ok(&["commit", &parts]);
        let whole = converted(&dir, &format!("whole-{to}"), &["--to", to]);
        // The number of the part, in keys that are numbers, is no part of it either.
        assert_eq!(compared(&dir, &parts)["content"], whole["content"]);
        let dest = format!("dest-{to}");
        dir.ok(&[
            "convert",
            "data",
            &dest,
            "--to",
            to,
            "--split",
            "a=0.5,b=0.5",
        ]);
        let own = ["a", "b"].map(|split| compared(&dir, &format!("{dest}/{split}")));
        assert_ne!(own[0]["content"], own[1]["content"]);
    }
}

#[test]
fn exchanged_samples_are_a_content_mismatch() {
    let dir = TestDir::new();
    dir.parquet("data/rows.parquet", &rows(100));
    let changed = [
        "--column",
        "id",
        "--column",
        "name=replace(name, '57', '58')",
    ];
    let plain = [
        "--column",
        "id",
        "--column",
        "name=replace(name, '57', '57')",
    ];
    for to in ["mds", "webdataset"] {
        let (here, there) = (format!("{to}-here"), format!("{to}-there"));
        converted(
            &dir,
            &here,
            &[&["--to", to, "--samples-per-shard", "30"], &plain[..]].concat(),
        );
        converted(
            &dir,
            &there,
            &[&["--to", to, "--samples-per-shard", "30"], &changed[..]].concat(),
        );
        exchange(&dir, &there, &here);
        // Shards and index are one with each other.
        dir.ok(&["verify", &here]);
        let ran = dir.run(&["verify", &here, "--deep", "--json"]);
        let report: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!((ran.code, &report["ok"]), (3, &false.into()), "{to}");
        assert_eq!(report["problems"][0]["id"], "content-mismatch");
        assert_eq!(report["problems"].as_array().unwrap().len(), 1);
        assert_ne!(report["content"]["found"], report["content"]["expected"]);
    }
    snapshot!(dir.shown(&["verify", "mds-here", "--deep"]), @r"
    exit 3
    --- stdout
    mds-here: 1 problem outside the shards: 100 samples in 4 shards (5 files, 3.4 KiB, 8 hashes, every value decoded, content compared, in [TIME] at [RATE] MB/s)
    --- stderr
    error[content-mismatch]: mds-here/index.provenance: the content hash of the samples is [HASH], but the conversion recorded [HASH]: samples were changed, lost or exchanged, and the index as well; fetch the dataset again with its index and side files, or convert it again
    ");
}

#[test]
fn shards_in_another_order_are_an_error() {
    for to in ["mds", "webdataset"] {
        let dir = TestDir::new();
        dir.parquet("data/rows.parquet", &rows(100));
        converted(&dir, "shards", &["--to", to, "--samples-per-shard", "25"]);
        let mut index: Value = serde_json::from_slice(&dir.read("shards/index.json")).unwrap();
        index["shards"].as_array_mut().unwrap().reverse();
        dir.write("shards/index.json", index.to_string());
        let ran = dir.run(&["verify", "shards", "--deep"]);
        let shown = ran.shown();
        assert_eq!(ran.code, 3, "{to}: {shown}");
        assert!(shown.contains("provenance-other"), "{to}: {shown}");
        // One shard twice and another not at all is something else.
        let shards = index["shards"].as_array_mut().unwrap();
        shards[2] = shards[1].clone();
        dir.write("shards/index.json", index.to_string());
        let ran = dir.run(&["verify", "shards", "--deep"]);
        assert_eq!(ran.code, 3, "{to}: {}", ran.shown());
    }
}

#[test]
fn content_is_not_compared_without_valid_provenance() {
    let dir = TestDir::with_shards();
    let verify = |args: &[&str]| -> Value {
        let ran = dir.run(&[&["verify", "shards", "--json"], args].concat());
        let report: Value = serde_json::from_str(&ran.stdout).unwrap();
        let is_sound = report["problem_count"] == 0;
        assert_eq!(ran.code, if is_sound { 0 } else { 3 });
        report
    };
    let found = |report: &Value, kind: &str| {
        let all = report[kind].as_array().unwrap().clone();
        let known = |warning: &&Value| warning["id"] != "file-unlisted";
        let ids = all.iter().filter(known);
        ids.map(|warning| warning["id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let index = dir.read("shards/index.json");
    let mut fewer: Value = serde_json::from_slice(&index).unwrap();
    fewer["shards"].as_array_mut().unwrap().pop();
    dir.write("shards/index.json", fewer.to_string());
    for args in [&["--deep"][..], &[]] {
        let report = verify(args);
        assert_eq!(found(&report, "problems"), ["provenance-other"]);
        assert_eq!(report["content"], Value::Null);
    }
    dir.write("shards/index.json", index);

    dir.write("shards/index.provenance", "{");
    for args in [&["--deep"][..], &[]] {
        assert_eq!(found(&verify(args), "problems"), ["provenance-damaged"]);
    }
    for (nothing, id) in [
        (None, "provenance-missing"),
        (Some("{}"), "provenance-silent"),
        (Some("{\"content\": \"x\"}"), "provenance-silent"),
    ] {
        match nothing {
            Some(text) => dir.write("shards/index.provenance", text),
            None => std::fs::remove_file(dir.path().join("shards/index.provenance")).unwrap(),
        }
        let report = verify(&["--deep"]);
        assert_eq!(
            (&report["content"], found(&report, "warnings")),
            (&Value::Null, vec![id.to_owned()])
        );
        // Without --deep nothing would be compared.
        assert_eq!(found(&verify(&[]), "warnings"), Vec::<String>::new());
    }
}

#[test]
fn damaged_shard_is_reported_once() {
    let dir = TestDir::with_shards();
    let name = "shards/shard.00001.mds.zstd";
    let mut bytes = dir.read(name);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    dir.write(name, bytes);
    let ran = dir.run(&["verify", "shards", "--deep", "--json"]);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((ran.code, &report["problem_count"]), (3, &1.into()));
    assert_eq!(report["problems"][0]["id"], "hash-mismatch");
    assert_eq!(report["content"]["found"], Value::Null);
    assert!(report["content"]["expected"].is_string());
}
