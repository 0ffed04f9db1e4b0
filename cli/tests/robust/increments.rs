//! Kills the program while it updates a dataset: the result must be the old or the new dataset, never a mix.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use shardmill_testing::delta::{Row, Table};
use shardmill_testing::draw::Draw;
use shardmill_testing::files::{Snapshot, copy_tree};
use shardmill_testing::s3::{Objects, S3Server, Settings};

use crate::lab::{Lab, draw, moment, rounds};

/// The location of the dataset in a store.
const PREFIX: &str = "a/b/set";

fn rows(first: i64, count: i64) -> Vec<Row> {
    let mut draw = Draw::new(first.unsigned_abs());
    let row = |id: i64| (id, draw.text(200));
    (first..first + count).map(row).collect()
}

fn convert(lab: &Lab, dest: &str) -> Command {
    let mut command = lab.command();
    command.args(["convert", "t", dest, "--incremental"]);
    command.args(["--size-limit", "100KB", "--takeover-after", "0.4"]);
    command
}

fn ok(lab: &Lab, command: &mut Command) -> Duration {
    let ended = lab.run(command);
    assert_eq!(ended.code(), Some(0), "{}", ended.errors());
    ended.wall
}

/// Creates a table that has changed in every way since `base` was converted. Also returns the results of undisturbed
/// runs of both.
fn changed_table(lab: &Lab) -> (Table, Snapshot, Duration) {
    let mut table = Table::create(&lab.at("t")).unwrap();
    for first in [0, 1000, 2000] {
        table.append(&rows(first, 1000)).unwrap();
    }
    ok(lab, &mut convert(lab, "base"));
    table.append(&rows(5000, 1500)).unwrap();
    table.delete(|(id, _)| id % 50 == 7).unwrap();
    table
        .rewrite(|row| match row.0 {
            1100..1200 => None,
            2000..2100 => Some((row.0, "short".to_owned())),
            _ => Some(row.clone()),
        })
        .unwrap();
    copy_tree(&lab.at("base"), &lab.at("golden")).unwrap();
    let wall = ok(lab, &mut convert(lab, "golden"));
    lab.verify("golden");
    let golden = lab.snapshot("golden");
    assert!(!golden.has(".shardmill"));
    (table, golden, wall)
}

/// Returns the files of a directory by their relative names.
fn contents(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let snapshot = Snapshot::of(root).unwrap();
    let names = snapshot.files().map(|name| name.to_str().unwrap());
    names
        .map(|name| (name.to_owned(), fs::read(root.join(name)).unwrap()))
        .collect()
}

/// Returns the part of the side file about the samples that the table has.
fn content(lab: &Lab, dest: &str) -> String {
    let text = fs::read(lab.at(dest).join("index.provenance")).unwrap();
    let side: serde_json::Value = serde_json::from_slice(&text).unwrap();
    side["content"].as_str().unwrap().to_owned()
}

#[test]
fn killed_at_any_time() {
    let lab = Lab::new(&[]);
    let (_, golden, wall) = changed_table(&lab);
    let indexes = ["base", "golden"].map(|name| fs::read(lab.at(name).join("index.json")).unwrap());
    let mut draw = draw("increments killed");
    let (mut kills, mut late, mut done) = (0, 0, 0);
    while kills < rounds() {
        copy_tree(&lab.at("base"), &lab.at("dest")).unwrap();
        for _ in 0..=draw.below(3) {
            let after = moment(&mut draw, wall * 11 / 10);
            match lab.kill_after(&mut convert(&lab, "dest"), after) {
                true => kills += 1,
                false => late += 1,
            }
            let index = fs::read(lab.at("dest/index.json")).unwrap();
            assert!(indexes.contains(&index), "after {after:?}");
        }
        if done % 8 == 0 {
            lab.verify("dest");
        }
        ok(&lab, &mut convert(&lab, "dest"));
        let differences = golden.differences(&lab.snapshot("dest"));
        assert_eq!(differences, Vec::<String>::new());
        lab.remove("dest");
        done += 1;
    }
    println!(
        "increments: {kills} kills and {late} that came too late, in {done} increments, all the same in the end"
    );
}

#[test]
fn killed_on_the_way_into_a_store() {
    let lab = Lab::new(&[]);
    let (_, _, wall) = changed_table(&lab);
    let (base, golden) = (contents(&lab.at("base")), contents(&lab.at("golden")));
    let mut draw = draw("increments killed in a store");
    let (mut kills, mut late, mut done) = (0, 0, 0);
    while kills < rounds() {
        let objects = base
            .iter()
            .map(|(name, bytes)| (format!("{PREFIX}/{name}"), bytes.clone()));
        let objects = Objects::memory("bucket", objects);
        let server = S3Server::start(objects, Settings::default()).unwrap();
        let command = || {
            let mut command = convert(&lab, &format!("{}/{PREFIX}", server.url()));
            command.envs(server.environment());
            command
        };
        for _ in 0..=draw.below(3) {
            let after = moment(&mut draw, wall * 2);
            match lab.kill_after(&mut command(), after) {
                true => kills += 1,
                false => late += 1,
            }
        }
        ok(&lab, &mut command());
        let left: BTreeMap<String, Vec<u8>> = server
            .objects()
            .all()
            .into_iter()
            .map(|(key, bytes)| (key.replacen(&format!("{PREFIX}/"), "", 1), bytes))
            .collect();
        assert!(left.keys().eq(golden.keys()), "{:?}", left.keys());
        for (name, bytes) in &golden {
            assert!(left[name] == *bytes, "{name} differs");
        }
        done += 1;
    }
    println!(
        "increments in a store: {kills} kills and {late} that came too late, in {done} increments, all the same in the end"
    );
}

/// The table changes while an increment is incomplete.
#[test]
fn incomplete_increment_of_an_older_version_is_dropped() {
    let lab = Lab::new(&[]);
    let (mut table, _, wall) = changed_table(&lab);
    let mut draw = draw("increments overtaken");
    let mut kills = 0;
    for number in 0..4.min(rounds() as i64) {
        copy_tree(&lab.at("base"), &lab.at("dest")).unwrap();
        let after = moment(&mut draw, wall);
        kills += usize::from(lab.kill_after(&mut convert(&lab, "dest"), after));
        table.append(&rows(9000 + 10 * number, 10)).unwrap();
        table.delete(|(id, _)| *id == number).unwrap();
        ok(&lab, &mut convert(&lab, "dest"));
        lab.verify("dest");
        copy_tree(&lab.at("base"), &lab.at("anew")).unwrap();
        ok(&lab, &mut convert(&lab, "anew"));
        assert_eq!(content(&lab, "dest"), content(&lab, "anew"));
        lab.remove("dest");
        lab.remove("anew");
    }
    println!("increments overtaken: {kills} kills");
}
