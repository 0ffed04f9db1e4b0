//! Tests datasets that are updated step by step from their Delta table.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};
use shardmill_testing::delta::{Row, Table};
use shardmill_testing::draw::Draw;
use shardmill_testing::files::Snapshot;

use crate::common::TestDir;

/// A place with a table `t` of some rows in three files.
fn with_table() -> (TestDir, Table) {
    let dir = TestDir::new();
    let mut table = Table::create(&dir.path().join("t")).unwrap();
    for first in [0, 10, 20] {
        table.append(&rows(first, 10)).unwrap();
    }
    (dir, table)
}

fn rows(first: i64, count: i64) -> Vec<Row> {
    let row = |id: i64| (id, format!("text of {id}"));
    (first..first + count).map(row).collect()
}

const CONVERT: [&str; 8] = [
    "convert",
    "t",
    "shards",
    "--incremental",
    "--samples-per-shard",
    "7",
    "--jobs",
    "2",
];

/// Brings `shards` up to date.
fn convert(dir: &TestDir, more: &[&str]) -> Value {
    dir.json(&[&CONVERT[..], &["--json"], more].concat())
}

/// The numbers of the samples that are gone.
fn tombstones(dir: &TestDir, dataset: &str) -> BTreeSet<u64> {
    let name = format!("{dataset}/index.tombstones");
    if !dir.exists(&name) {
        return BTreeSet::new();
    }
    let list: Value = serde_json::from_slice(&dir.read(&name)).unwrap();
    let ranges = list["samples"].as_array().unwrap().iter();
    let numbers = ranges.flat_map(|pair| pair[0].as_u64().unwrap()..pair[1].as_u64().unwrap());
    let numbers: BTreeSet<u64> = numbers.collect();
    assert_eq!(list["count"], numbers.len());
    numbers
}

/// The samples that the table still has, sorted.
fn live(dir: &TestDir, dataset: &str) -> Vec<Row> {
    let gone = tombstones(dir, dataset);
    let stored = dir.ok(&["cat", dataset, "0..", "--with-deleted"]);
    let left: Vec<&str> = stored
        .lines()
        .enumerate()
        .filter(|(at, _)| !gone.contains(&(*at as u64)))
        .map(|(_, line)| line)
        .collect();
    let shown = dir.ok(&["cat", dataset, "0.."]);
    assert_eq!(shown.lines().collect::<Vec<_>>(), left);
    let mut rows: Vec<Row> = left
        .into_iter()
        .map(|line| {
            let sample: Value = serde_json::from_str(line).unwrap();
            let text = sample["text"].as_str().or(sample["txt"].as_str());
            let id = &sample["id"];
            let id = id.as_i64().or_else(|| id.as_str()?.trim().parse().ok());
            (id.unwrap(), text.unwrap().to_owned())
        })
        .collect();
    rows.sort();
    rows
}

/// The files that are new or were written again, by their names.
fn changed(before: &Snapshot, after: &Snapshot) -> Vec<String> {
    let lines = before.touched(after);
    let names = lines.iter().filter_map(|line| line.split(' ').next());
    let names: BTreeSet<&str> = names.collect();
    names.into_iter().map(str::to_owned).collect()
}

fn content(dir: &TestDir, dataset: &str) -> String {
    let text = dir.read(&format!("{dataset}/index.provenance"));
    let provenance: Value = serde_json::from_slice(&text).unwrap();
    provenance["content"].as_str().unwrap().to_owned()
}

/// Converts the table from nothing, into other shards.
fn anew(dir: &TestDir, more: &[&str]) {
    let args = [
        "convert",
        "t",
        "anew",
        "--overwrite",
        "--samples-per-shard",
        "1000",
    ];
    dir.ok(&[&args[..], more].concat());
}

/// Index, shards, tombstones and side files fit the table and each other.
fn check(dir: &TestDir, table: &Table) {
    assert_eq!(live(dir, "shards"), table.rows());
    let report = dir.json(&["verify", "shards", "--deep", "--json"]);
    assert_eq!(report["content"]["found"], content(dir, "shards"));
    assert_eq!(
        report["content"]["tombstones"],
        tombstones(dir, "shards").len()
    );
    assert_eq!(report["warnings"], json!([]));
    assert!(!dir.exists("shards/.shardmill"));
    // Whatever the way, the content is that of the table.
    anew(dir, &[]);
    assert_eq!(content(dir, "shards"), content(dir, "anew"));
}

/// The conversion that is not incremental.
const PLAIN: [&str; 6] = [
    "convert",
    "t",
    "shards",
    "--samples-per-shard",
    "7",
    "--json",
];

#[test]
fn only_added_rows_are_read_and_written() {
    let (dir, mut table) = with_table();
    let first = convert(&dir, &[]);
    assert_eq!(first["increment"]["generation"], 1);
    assert_eq!(first["increment"]["from_version"], Value::Null);
    assert_eq!(
        (&first["samples"], &first["shards"]),
        (&json!(30), &json!(5))
    );
    check(&dir, &table);
    let before = Snapshot::of(&dir.path().join("shards")).unwrap();

    table.append(&rows(100, 4)).unwrap();
    table.append(&rows(200, 5)).unwrap();
    let second = convert(&dir, &[]);
    let increment = &second["increment"];
    assert_eq!(increment["generation"], 2);
    assert_eq!(
        (&increment["from_version"], &increment["version"]),
        (&json!(3), &json!(5))
    );
    assert_eq!(increment["added_samples"], 9);
    assert_eq!(increment["added_shards"], 2);
    assert_eq!(increment["tombstones"], 0);
    assert_eq!(
        (&second["samples"], &second["shards"]),
        (&json!(39), &json!(7))
    );
    check(&dir, &table);
    // What was there before is as it was.
    let after = Snapshot::of(&dir.path().join("shards")).unwrap();
    let touched = changed(&before, &after);
    let expected = [
        "index.increments",
        "index.json",
        "index.provenance",
        "index.tombstones",
        "shard.00005.mds.zstd",
        "shard.00006.mds.zstd",
    ];
    assert_eq!(touched, expected);
    let text = dir.ok(&["cat", "shards", "0..30"]);
    assert_eq!(text.lines().count(), 30);
    let shown = dir.ok(&["inspect", "shards"]);
    let mut facts = shown.lines().map(str::trim_start);
    assert!(
        facts.any(|line| line.starts_with("generation  ")
            && line.ends_with("2, 0 no longer in the table")),
        "{shown}"
    );
}

#[test]
fn unchanged_table_writes_no_shards() {
    let (dir, mut table) = with_table();
    convert(&dir, &[]);
    let before = Snapshot::of(&dir.path().join("shards")).unwrap();
    let again = convert(&dir, &[]);
    assert_eq!(again["outcome"], "already_done");
    let after = Snapshot::of(&dir.path().join("shards")).unwrap();
    assert_eq!(before.touched(&after), Vec::<String>::new());
    // Commits without rows: the files are noted, and that is all.
    table.append(&[]).unwrap();
    table.delete(|_| false).unwrap();
    insta::assert_snapshot!(dir.shown(&CONVERT), @r"
    exit 0
    --- stdout
    shards: nothing is new since version 5, 30 samples in 5 shards; nothing was written
    ");
    let after = Snapshot::of(&dir.path().join("shards")).unwrap();
    assert_eq!(changed(&before, &after), ["index.increments"]);
    // A conversion that is not incremental finds its work done too.
    let (dir, _) = with_table();
    convert(&dir, &[]);
    assert_eq!(dir.json(&PLAIN)["outcome"], "already_done");
}

#[test]
fn deleted_and_changed_rows_become_tombstones() {
    let (dir, mut table) = with_table();
    convert(&dir, &[]);
    // By a deletion vector: nothing is added.
    table.delete(|(id, _)| *id == 3 || *id == 17).unwrap();
    let report = convert(&dir, &[]);
    assert_eq!(report["increment"]["added_samples"], 0);
    assert_eq!(report["increment"]["tombstones"], 2);
    assert_eq!(report["shards"], 5);
    check(&dir, &table);
    // By rewriting files: what is copied is neither added nor gone.
    let change = |row: &Row| match row.0 {
        4 => None,
        5 | 25 => Some((row.0, "another text".to_owned())),
        _ => Some(row.clone()),
    };
    table.rewrite(change).unwrap();
    insta::assert_snapshot!(dir.shown(&[&CONVERT[..], &["--dry-run"]].concat()), @r"
    exit 0
    --- stdout
    source             delta, 2 files, 1.8 KiB, 18 rows
    destination        shards: has version 4 of the table, compares 19 samples with 2 files of version 5
    format             mds
    compression        zstd:3
    hashes             sha256
    size limit         64.0 MiB
    samples per shard  7
    nulls              error
    jobs               2

    column  type   nulls  encoding
    id      Int64      0  int64
    text    Utf8       0  str
    ");
    let report = convert(&dir, &[]);
    assert_eq!(report["increment"]["added_samples"], 2);
    assert_eq!(report["increment"]["tombstones"], 3);
    assert_eq!(report["increment"]["all_tombstones"], 5);
    check(&dir, &table);
    // A whole file at once, and what deleted rows come back as.
    table
        .rewrite(|row| (row.0 < 20).then(|| row.clone()))
        .unwrap();
    table.append(&rows(3, 1)).unwrap();
    let report = convert(&dir, &[]);
    assert_eq!(report["increment"]["added_samples"], 1);
    assert_eq!(report["increment"]["tombstones"], 10);
    check(&dir, &table);
}

#[test]
fn compacted_rows_are_not_converted_again() {
    let (dir, mut table) = with_table();
    convert(&dir, &[]);
    table.compact(&[0, 1, 2]).unwrap();
    let plan = dir.json(&[&CONVERT[..], &["--dry-run", "--json"]].concat());
    assert_eq!(plan["increment"]["files"], 0);
    assert_eq!(plan["increment"]["samples"], 0);
    let report = convert(&dir, &[]);
    assert_eq!(report["outcome"], "already_done");
    assert_eq!(report["increment"]["added_samples"], 0);
    assert_eq!(report["increment"]["tombstones"], 0);
    check(&dir, &table);
    // Where the old files are by now does not matter; a row of the new one can be deleted.
    table.vacuum().unwrap();
    table.delete(|(id, _)| *id == 11).unwrap();
    table.append(&rows(50, 3)).unwrap();
    let report = convert(&dir, &[]);
    assert_eq!(report["increment"]["added_samples"], 3);
    assert_eq!(report["increment"]["tombstones"], 1);
    assert_eq!(tombstones(&dir, "shards").len(), 1);
    check(&dir, &table);
}

/// What happens to a table at random, and when it is converted.
fn random_history(seed: u64, more: &[&str]) {
    let mut draw = Draw::new(seed);
    let dir = TestDir::new();
    let mut table = Table::create(&dir.path().join("t")).unwrap();
    let mut next = 0;
    for round in 0..6 {
        for _ in 0..=draw.below(3) {
            let modulo = 2 + draw.below(9) as i64;
            let rest = draw.below(modulo as u64) as i64;
            let chosen = move |row: &Row| row.0 % modulo == rest;
            match draw.below(6) {
                0 | 1 => {
                    let count = draw.below(25) as i64;
                    // Some rows are the same as others.
                    let first = if draw.below(3) == 0 { 0 } else { next };
                    table.append(&rows(first, count)).unwrap();
                    next = next.max(first + count);
                }
                2 => table.delete(chosen).unwrap(),
                3 => table
                    .rewrite(|row| (!chosen(row)).then(|| row.clone()))
                    .unwrap(),
                4 => table
                    .rewrite(|row| match chosen(row) {
                        true => Some((row.0, format!("{}!", row.1))),
                        false => Some(row.clone()),
                    })
                    .unwrap(),
                _ => {
                    let numbers = 0..table.files();
                    let numbers: Vec<usize> = numbers.filter(|_| draw.below(2) == 0).collect();
                    table.compact(&numbers).unwrap();
                }
            }
        }
        if draw.below(3) == 0 {
            table.vacuum().unwrap();
        }
        let is_there = dir.exists("shards/index.json");
        let before = is_there.then(|| dir.ok(&["cat", "shards", "0..", "--with-deleted"]));
        let ran = dir.run(&[&CONVERT[..], more].concat());
        assert_eq!(ran.code, 0, "seed {seed}, round {round}: {}", ran.stderr);
        assert_eq!(
            live(&dir, "shards"),
            table.rows(),
            "seed {seed}, round {round}"
        );
        dir.ok(&["verify", "shards"]);
        anew(&dir, more);
        assert_eq!(
            content(&dir, "shards"),
            content(&dir, "anew"),
            "seed {seed}"
        );
        // Old samples keep their numbers.
        let now = dir.ok(&["cat", "shards", "0..", "--with-deleted"]);
        assert!(
            before.is_none_or(|before| now.starts_with(&before)),
            "seed {seed}"
        );
    }
}

#[test]
fn dataset_equals_table_after_random_history() {
    let seed = Draw::seed_from("SHARDMILL_SEED");
    println!("SHARDMILL_SEED={seed}");
    for number in 0..6 {
        random_history(seed.wrapping_add(number), &[]);
    }
}

#[test]
fn other_formats_equal_table_after_random_history() {
    let seed = Draw::seed_from("SHARDMILL_SEED");
    println!("SHARDMILL_SEED={seed}");
    let tars = [
        "--to",
        "webdataset",
        "--column",
        "id:txt",
        "--column",
        "txt=text",
    ];
    for more in [
        vec!["--compression", "none"],
        tars[..2].to_vec(),
        [&tars[..2], &["--compression", "zstd"]].concat(),
    ] {
        let columns = match more[0] {
            "--to" if more[1] == "webdataset" => vec!["--column", "id", "--column", "txt=text"],
            _ => vec![],
        };
        random_history(seed, &[more, columns].concat());
    }
}

#[test]
fn filters_and_expressions_work_incrementally() {
    let (dir, mut table) = with_table();
    let more = [
        "--where",
        "id % 2 = 0",
        "--column",
        "id",
        "--column",
        "text=upper(text)",
    ];
    convert(&dir, &more);
    table.append(&rows(40, 10)).unwrap();
    table.delete(|(id, _)| *id < 5).unwrap();
    let report = convert(&dir, &more);
    assert_eq!(report["increment"]["added_samples"], 5);
    assert_eq!(report["increment"]["tombstones"], 3);
    let expected = table.rows().into_iter().filter(|(id, _)| id % 2 == 0);
    let expected: Vec<Row> = expected
        .map(|(id, text)| (id, text.to_uppercase()))
        .collect();
    assert_eq!(live(&dir, "shards"), expected);
    // Another condition is another dataset.
    let ran = dir.run(&[&CONVERT[..], &["--where", "id > 3"]].concat());
    insta::assert_snapshot!(ran.shown(), @r#"
    exit 4
    --- stderr
    error[dest-conflict]: shards: it was made with another configuration: expressions was [["text","upper(text)"]], is []; where was "id % 2 = 0", is "id > 3"; convert as before, with --column if the table has other columns now, or pass --overwrite
    "#);
}

#[test]
fn incremental_run_accepts_only_later_delta_versions() {
    let (dir, mut table) = with_table();
    convert(&dir, &["--delta-version", "2"]);
    assert_eq!(live(&dir, "shards"), rows(0, 20));
    table.append(&rows(70, 1)).unwrap();
    convert(&dir, &["--delta-version", "3"]);
    assert_eq!(live(&dir, "shards"), rows(0, 30));
    let older = dir.shown(&[&CONVERT[..], &["--delta-version", "1"]].concat());
    insta::assert_snapshot!(older, @r"
    exit 4
    --- stderr
    error[dest-conflict]: shards: it holds version 3 of the table, and version 1 is older; ask for a later version, or pass --overwrite to convert the older one anew
    ");
    convert(&dir, &[]);
    check(&dir, &table);
}

#[test]
fn unsupported_incremental_conversions_are_errors() {
    let (dir, _) = with_table();
    dir.parquet("rows/a.parquet", &crate::common::rows(3));
    let mut shown = Vec::new();
    for args in [
        vec!["convert", "rows", "out", "--incremental"],
        vec![
            "convert",
            "t",
            "out",
            "--incremental",
            "--split",
            "a=0.5,b=0.5",
        ],
        vec!["convert", "t", "out", "--incremental", "--part", "0/2"],
        vec![
            "convert",
            "t",
            "out",
            "--incremental",
            "--sql",
            "SELECT count(*) AS n FROM source",
        ],
    ] {
        let ran = dir.run(&args);
        assert_eq!(ran.code, 2, "{args:?}: {}", ran.stderr);
        assert!(!dir.exists("out"));
        shown.push(ran.stderr);
    }
    // A dataset without provenance.
    dir.ok(&["convert", "t", "plain"]);
    let ran = dir.run(&["convert", "t", "plain", "--incremental"]);
    assert_eq!(ran.code, 4);
    shown.push(ran.stderr);
    // Another table.
    convert(&dir, &[]);
    std::fs::rename(dir.path().join("t"), dir.path().join("old")).unwrap();
    let log = "old/_delta_log/00000000000000000000.json";
    let text = String::from_utf8(dir.read(log)).unwrap();
    copy(&dir.path().join("old"), &dir.path().join("t"));
    dir.write(
        "t/_delta_log/00000000000000000000.json",
        text.replace("0d5b1c2e", "11111111"),
    );
    let ran = dir.run(&CONVERT);
    assert_eq!(ran.code, 4);
    shown.push(ran.stderr);
    // The index and the record were changed.
    std::fs::remove_dir_all(dir.path().join("t")).unwrap();
    std::fs::rename(dir.path().join("old"), dir.path().join("t")).unwrap();
    let index = String::from_utf8(dir.read("shards/index.json")).unwrap();
    dir.write("shards/index.json", index.clone() + "\n");
    let ran = dir.run(&CONVERT);
    assert_eq!(ran.code, 4);
    shown.push(ran.stderr);
    dir.write("shards/index.json", index);
    let record = String::from_utf8(dir.read("shards/index.increments")).unwrap();
    dir.write(
        "shards/index.increments",
        record.replacen("[[0,10]]", "[[0,9]]", 1),
    );
    let ran = dir.run(&CONVERT);
    assert_eq!(ran.code, 4);
    shown.push(ran.stderr);
    insta::assert_snapshot!(shown.join(""), @r#"
    error[config-option]: --incremental: the source is parquet, and only a Delta table records what was added to it; convert without --incremental, to a new destination or with --overwrite
    error[config-option]: --incremental: it cannot be combined with --split: the split of a row depends on its place in the table, which changes; make each split a dataset of its own, as in --where "md5(key) < 'cc'"
    error[config-option]: --incremental: it cannot be combined with --part: only a run over all rows knows which of them are new; convert without --incremental, to a new destination or with --overwrite
    error[config-option]: --incremental: the query needs the whole table, not one row at a time: SELECT count(*) AS n FROM source; convert without --incremental, to a new destination or with --overwrite
    error[dest-not-incremental]: plain: it holds a dataset without index.increments: it was not made with --incremental; choose another destination, or pass --overwrite to convert it anew
    error[dest-conflict]: shards: it was made from another table: 0d5b1c2e-6a1e-4a52-9a43-7ac3a1f0b9d1 and not 11111111-6a1e-4a52-9a43-7ac3a1f0b9d1; choose another destination, or pass --overwrite to replace it
    error[dest-not-incremental]: shards: another program changed its index.json since then; pass --overwrite to convert it again
    error[dest-not-incremental]: shards: its index.increments cannot be read: it does not name every sample once; pass --overwrite to convert it again
    "#);
    // It can always be made anew.
    convert(&dir, &["--overwrite"]);
    assert_eq!(live(&dir, "shards"), rows(0, 30));
}

fn copy(from: &Path, to: &Path) {
    shardmill_testing::files::copy_tree(from, to).unwrap();
}

/// What a run that was killed right after it had replaced the index has left.
#[test]
fn increment_interrupted_after_the_index_is_completed() {
    let (dir, mut table) = with_table();
    convert(&dir, &[]);
    let sides = ["index.increments", "index.provenance"];
    let before = sides.map(|name| dir.read(&format!("shards/{name}")));
    table.append(&rows(60, 5)).unwrap();
    table.delete(|(id, _)| *id == 1).unwrap();
    convert(&dir, &[]);
    let done = Snapshot::of(&dir.path().join("shards")).unwrap();
    let record: Value = serde_json::from_slice(&dir.read("shards/index.increments")).unwrap();
    let text = |name: &str| String::from_utf8(dir.read(&format!("shards/{name}"))).unwrap();
    let pending = json!({
        "index": record["index"],
        "files": {
            "index.increments": text("index.increments"),
            "index.tombstones": text("index.tombstones"),
            "index.provenance": text("index.provenance"),
        },
    });
    let killed = |note: &Value| {
        for (name, old) in sides.iter().zip(&before) {
            dir.write(&format!("shards/{name}"), old);
        }
        let _ = std::fs::remove_file(dir.path().join("shards/index.tombstones"));
        dir.write("shards/.shardmill/generation", note.to_string());
    };
    let same = |how: &str| {
        let now = Snapshot::of(&dir.path().join("shards")).unwrap();
        assert_eq!(done.differences(&now), Vec::<String>::new(), "{how}");
    };
    killed(&pending);
    // What has not got its name yet counts already.
    let report = dir.json(&["verify", "shards", "--deep", "--json"]);
    let noted = &record["generations"][1]["content"];
    assert_eq!(&report["content"]["expected"], noted);
    assert_eq!(&report["content"]["found"], noted);
    assert_eq!(report["content"]["tombstones"], 1);
    let report = convert(&dir, &[]);
    assert_eq!(report["increment"]["generation"], 2);
    same("the same conversion");
    killed(&pending);
    assert_eq!(dir.json(&PLAIN)["outcome"], "already_done");
    same("a plain conversion");
    killed(&pending);
    dir.ok(&["gc", "shards", "--delete"]);
    same("gc");
    // A note of an index that never came.
    dir.write(
        "shards/.shardmill/generation",
        json!({"index": "other", "files": {}}).to_string(),
    );
    convert(&dir, &[]);
    same("a note of another index");
}

#[test]
fn changed_or_missing_tombstones_are_errors() {
    let (dir, mut table) = with_table();
    convert(&dir, &[]);
    table.delete(|(id, _)| *id == 11 || *id == 12).unwrap();
    convert(&dir, &[]);
    check(&dir, &table);
    let name = "shards/index.tombstones";
    let sound = String::from_utf8(dir.read(name)).unwrap();
    let first = tombstones(&dir, "shards").first().copied().unwrap();
    let [first, last] = [first, first + 1];
    let own = format!("[[{first},{}]]", last + 1);
    assert!(sound.contains(&own), "{sound}");
    let fewer = format!("[[{first},{last}]]");
    let twice = format!("[[{last},{}],[{first},{last}]]", last + 1);
    let others = format!("[[{last},{}]]", last + 2);
    for (from, to) in [
        (own.as_str(), fewer.as_str()),
        (&own, "[[29,31]]"),
        (&own, &twice),
        ("\"tombstones\":1", "\"tombstones\":2"),
        ("{", ""),
    ] {
        let text = sound.replacen(from, to, 1);
        assert_ne!(text, sound, "{from}");
        dir.write(name, text);
        let ran = dir.run(&["verify", "shards", "--deep"]);
        assert_eq!(ran.code, 3, "{to}: {}", ran.shown());
        assert!(
            ran.stderr
                .contains("error[tombstones-damaged]: shards/index.tombstones"),
            "{}",
            ran.stderr
        );
    }
    // Other samples than those that are gone.
    dir.write(name, sound.replace(&own, &others));
    let ran = dir.run(&["verify", "shards", "--deep"]);
    assert!(
        ran.stderr.contains("error[tombstones-damaged]"),
        "{}",
        ran.shown()
    );
    std::fs::remove_file(dir.path().join(name)).unwrap();
    insta::assert_snapshot!(dir.run(&["verify", "shards", "--deep"]).stderr, @r"
    error[tombstones-missing]: shards/index.tombstones: the file is missing; it lists the 2 samples that are no longer in the table; fetch it again, or run convert --incremental, which restores it
    ");
    assert_eq!(dir.run(&["verify", "shards"]).code, 3);
}

#[test]
fn splits_by_filter_are_incremental_datasets() {
    let (dir, mut table) = with_table();
    let sets = [("train", "<"), ("val", ">=")];
    let convert = |dir: &TestDir| {
        for (name, than) in sets {
            let condition = format!("md5(cast(id AS varchar)) {than} 'aa'");
            dir.ok(&["convert", "t", name, "--incremental", "--where", &condition]);
        }
    };
    convert(&dir);
    let before = sets.map(|(name, _)| live(&dir, name));
    table.append(&rows(100, 20)).unwrap();
    let changed = |(id, text): &Row| match id % 3 {
        0 => (*id, format!("{text}!")),
        _ => (*id, text.clone()),
    };
    table.rewrite(|row| Some(changed(row))).unwrap();
    convert(&dir);
    let [train, val] = sets.map(|(name, _)| live(&dir, name));
    assert!(!train.is_empty() && !val.is_empty());
    // A row that was there is in the split where it was.
    for ((id, _), after) in before
        .iter()
        .zip([&train, &val])
        .flat_map(|(rows, after)| rows.iter().map(move |row| (row, after)))
    {
        assert!(after.iter().any(|(other, _)| other == id), "{id}");
    }
    let mut all = [train, val].concat();
    all.sort();
    assert_eq!(all, table.rows());
    // With a key in one conversion it is refused for another reason than without.
    let split = ["--split", "a=0.5,b=0.5", "--split-key", "id"];
    let ran = dir.run(&[&["convert", "t", "both", "--incremental"][..], &split].concat());
    assert_eq!(ran.code, 2);
    assert!(
        ran.stderr
            .contains("several datasets cannot be replaced at once"),
        "{}",
        ran.stderr
    );
}

#[test]
fn summary_counts_exclude_deleted_samples() {
    let (dir, mut table) = with_table();
    convert(&dir, &[]);
    table.delete(|(id, _)| id % 10 == 3).unwrap();
    table.append(&rows(100, 4)).unwrap();
    let shown = dir.ok(&CONVERT);
    let mut lines = shown.lines();
    assert_eq!(lines.next(), Some("shards: 31 samples in 6 shards"));
    assert_eq!(
        lines.next(),
        Some("  added    4 samples in 1 shard, from version 3 to 5")
    );
    assert_eq!(
        lines.next(),
        Some("  deleted  3 samples since version 3, 3 in all; they are not counted above")
    );
    let again = convert(&dir, &[]);
    assert_eq!(
        (&again["samples"], &again["outcome"]),
        (&json!(31), &json!("already_done"))
    );
    assert_eq!(again["splits"][0]["samples"], 34);
    assert_eq!(dir.json(&["inspect", "shards", "--json"])["samples"], 31);
    assert_eq!(dir.ok(&["cat", "shards", "0.."]).lines().count(), 31);
}
