//! Tests the content digests that a conversion records, and `verify --deep`, which compares samples with them.

use serde_json::Value;

use crate::common::{TestDir, rows};
use crate::snapshot;

/// What `verify --deep` says of a sound dataset about its content.
fn compared(place: &TestDir, dataset: &str) -> Value {
    let report = place.json(&["verify", dataset, "--deep", "--json"]);
    assert_eq!(report["warning_count"], 0, "{dataset}: {report}");
    let text = place.read(&format!("{dataset}/index.provenance"));
    let noted: Value = serde_json::from_slice(&text).unwrap();
    let content = &report["content"];
    assert_eq!(content["expected"], noted["content"], "{dataset}");
    assert_eq!(content["found"], noted["content"], "{dataset}");
    noted
}

/// Converts `data` and compares the content.
fn converted(place: &TestDir, dest: &str, more: &[&str]) -> Value {
    place.ok(&[&["convert", "data", dest], more].concat());
    compared(place, dest)
}

/// The shards and the index of one dataset in the place of those of another.
fn exchange(place: &TestDir, from: &str, to: &str) {
    for entry in std::fs::read_dir(place.path().join(from)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name != "index.provenance" {
            let bytes = place.read(&format!("{from}/{name}"));
            place.write(&format!("{to}/{name}"), bytes);
        }
    }
}

#[test]
fn deep_verify_compares_content_hash_in_all_formats() {
    let place = TestDir::new();
    place.parquet("data/rows.parquet", &rows(100));
    let plain = ["--column", "id", "--column", "name"];
    let mut contents = Vec::new();
    for (dest, more) in [
        ("mds", &["--samples-per-shard", "30"][..]),
        (
            "raw",
            &["--compression", "none", "--samples-per-shard", "7"],
        ),
        (
            "json",
            &["--to", "json", plain[0], plain[1], plain[2], plain[3]],
        ),
        (
            "csv",
            &["--to", "csv", plain[0], plain[1], plain[2], plain[3]],
        ),
        ("tars", &["--to", "webdataset"]),
        ("packed", &["--to", "webdataset", "--compression", "zstd"]),
        ("keyed", &["--to", "webdataset", "--key-column", "id"]),
    ] {
        let noted = converted(&place, dest, more);
        contents.push((noted["content"].clone(), noted["keys"].clone()));
    }
    // Neither compression nor the size of shards is part of it; keys are, where they are not numbers.
    assert_eq!(contents[0], contents[1]);
    assert_eq!(contents[4], contents[5]);
    assert_eq!(contents[4].1, "number");
    assert_eq!(contents[6].1, "column");
    assert_ne!(contents[4].0, contents[6].0);
    snapshot!(place.shown(&["verify", "mds", "--deep"]), @r"
    exit 0
    --- stdout
    mds: all is well: 100 samples in 4 shards (5 files, 4.9 KiB, 8 hashes, every value decoded, content compared, in [TIME] at [RATE] MB/s)
    ");
    // Without `--deep` it is not.
    let report = place.json(&["verify", "mds", "--json"]);
    assert_eq!(report["content"], Value::Null);
}

#[test]
fn content_hash_ignores_parts_but_differs_by_split() {
    let place = TestDir::new();
    place.parquet("data/a.parquet", &rows(40));
    place.parquet("data/b.parquet", &rows(25));
    for to in ["mds", "webdataset"] {
        let parts = format!("parts-{to}");
        for part in ["0/2", "1/2"] {
            place.ok(&["convert", "data", &parts, "--to", to, "--part", part]);
        }
        place.ok(&["commit", &parts]);
        let whole = converted(&place, &format!("whole-{to}"), &["--to", to]);
        // The number of the part, in keys that are numbers, is no part of it either.
        assert_eq!(compared(&place, &parts)["content"], whole["content"]);
        let dest = format!("dest-{to}");
        place.ok(&[
            "convert",
            "data",
            &dest,
            "--to",
            to,
            "--split",
            "a=0.5,b=0.5",
        ]);
        let own = ["a", "b"].map(|split| compared(&place, &format!("{dest}/{split}")));
        assert_ne!(own[0]["content"], own[1]["content"]);
    }
}

#[test]
fn exchanged_samples_are_a_content_mismatch() {
    let place = TestDir::new();
    place.parquet("data/rows.parquet", &rows(100));
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
            &place,
            &here,
            &[&["--to", to, "--samples-per-shard", "30"], &plain[..]].concat(),
        );
        converted(
            &place,
            &there,
            &[&["--to", to, "--samples-per-shard", "30"], &changed[..]].concat(),
        );
        exchange(&place, &there, &here);
        // Shards and index are one with each other.
        place.ok(&["verify", &here]);
        let ran = place.run(&["verify", &here, "--deep", "--json"]);
        let report: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!((ran.code, &report["ok"]), (3, &false.into()), "{to}");
        assert_eq!(report["problems"][0]["id"], "content-mismatch");
        assert_eq!(report["problems"].as_array().unwrap().len(), 1);
        assert_ne!(report["content"]["found"], report["content"]["expected"]);
    }
    snapshot!(place.shown(&["verify", "mds-here", "--deep"]), @r"
    exit 3
    --- stdout
    mds-here: 1 problem outside the shards: 100 samples in 4 shards (5 files, 3.4 KiB, 8 hashes, every value decoded, content compared, in [TIME] at [RATE] MB/s)
    --- stderr
    error[content-mismatch]: mds-here/index.provenance: the content hash of the samples is [HASH], but the conversion recorded [HASH]: samples were changed, lost or exchanged, and the index as well; fetch the dataset again with its index and side files, or convert it again
    ");
}

#[test]
fn content_hash_ignores_shard_order() {
    for to in ["mds", "webdataset"] {
        let place = TestDir::new();
        place.parquet("data/rows.parquet", &rows(100));
        converted(&place, "shards", &["--to", to, "--samples-per-shard", "25"]);
        let mut index: Value = serde_json::from_slice(&place.read("shards/index.json")).unwrap();
        index["shards"].as_array_mut().unwrap().reverse();
        place.write("shards/index.json", index.to_string());
        compared(&place, "shards");
        // One shard twice and another not at all is something else.
        let shards = index["shards"].as_array_mut().unwrap();
        shards[2] = shards[1].clone();
        place.write("shards/index.json", index.to_string());
        let ran = place.run(&["verify", "shards", "--deep"]);
        assert_eq!(ran.code, 3, "{to}: {}", ran.shown());
    }
}

#[test]
fn content_is_not_compared_without_valid_provenance() {
    let place = TestDir::with_shards();
    let verify = |args: &[&str]| -> Value {
        let ran = place.run(&[&["verify", "shards", "--json"], args].concat());
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
    let index = place.read("shards/index.json");
    let mut fewer: Value = serde_json::from_slice(&index).unwrap();
    fewer["shards"].as_array_mut().unwrap().pop();
    place.write("shards/index.json", fewer.to_string());
    for args in [&["--deep"][..], &[]] {
        let report = verify(args);
        assert_eq!(found(&report, "problems"), ["provenance-other"]);
        assert_eq!(report["content"], Value::Null);
    }
    place.write("shards/index.json", index);

    place.write("shards/index.provenance", "{");
    for args in [&["--deep"][..], &[]] {
        assert_eq!(found(&verify(args), "problems"), ["provenance-damaged"]);
    }
    for (nothing, id) in [
        (None, "provenance-missing"),
        (Some("{}"), "provenance-silent"),
        (Some("{\"content\": \"x\"}"), "provenance-silent"),
    ] {
        match nothing {
            Some(text) => place.write("shards/index.provenance", text),
            None => std::fs::remove_file(place.path().join("shards/index.provenance")).unwrap(),
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
    let place = TestDir::with_shards();
    let name = "shards/shard.00001.mds.zstd";
    let mut bytes = place.read(name);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    place.write(name, bytes);
    let ran = place.run(&["verify", "shards", "--deep", "--json"]);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((ran.code, &report["problem_count"]), (3, &1.into()));
    assert_eq!(report["problems"][0]["id"], "hash-mismatch");
    assert_eq!(report["content"]["found"], Value::Null);
    assert!(report["content"]["expected"].is_string());
}
