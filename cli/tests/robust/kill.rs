//! Tests `kill -9` at any time: the destination is complete or not a dataset, and the next run ends with the same
//! bytes.

use std::fs;
use std::time::Duration;

use rustix::process::Signal;
use shardmill_testing::draw::Draw;

use crate::lab::{Golden, HANGS, Lab, SETTINGS, SLOW, draw, moment, rounds};

/// Kills a conversion some time after its start, and returns whether it was still running.
fn kill_after(
    lab: &Lab,
    golden: &Golden,
    dest: &str,
    after: Duration,
    draw: &mut Draw,
    more: &[&str],
) -> bool {
    let jobs = (1 + draw.below(3)).to_string();
    let mut command = lab.convert(&golden.setting, dest);
    lab.kill_after(command.args(["--jobs", &jobs]).args(more), after)
}

#[test]
fn kill_at_any_time_is_resumed() {
    let lab = Lab::new(&SETTINGS);
    let mut draw = draw("kill");
    let goldens: Vec<Golden> = SETTINGS.iter().map(|setting| lab.golden(setting)).collect();
    let (mut kills, mut late) = (0, 0);
    let mut round = 0;
    while kills < rounds() {
        let golden = &goldens[round % goldens.len()];
        round += 1;
        let in_a_row = 1 + draw.below(4);
        for _ in 0..in_a_row {
            // Slightly beyond the end, so that publishing and cleaning up are hit as well.
            let after = moment(&mut draw, golden.wall * 11 / 10);
            if kill_after(&lab, golden, "dest", after, &mut draw, &[]) {
                kills += 1;
            } else {
                late += 1;
            }
            lab.check_interrupted(golden, "dest", &format!("killed after {after:?}"));
        }
        let jobs = (1 + draw.below(3)).to_string();
        lab.finish(golden, "dest", &["--jobs", &jobs], "after kills");
        if round % 8 == 0 {
            golden
                .setting
                .folders
                .iter()
                .for_each(|folder| lab.verify(&format!("dest/{folder}")));
        }
        lab.remove("dest");
    }
    println!(
        "kill: {kills} kills and {late} that came too late, in {round} conversions, all complete in the end"
    );
}

/// Kills more often near the end, where the index is published and the work folder is removed.
#[test]
fn kill_near_the_end_is_resumed() {
    let lab = Lab::new(&SETTINGS[1..3]);
    let mut draw = draw("kill at the end");
    let goldens: Vec<Golden> = SETTINGS[1..3]
        .iter()
        .map(|setting| lab.golden(setting))
        .collect();
    for round in 0..rounds() {
        let golden = &goldens[round % goldens.len()];
        let mut running = lab.start(&mut lab.convert(&golden.setting, "dest"));
        // The last shard of the last folder exists; the remaining steps take a moment.
        let last = golden
            .files
            .files()
            .filter(|name| name.to_string_lossy().contains("shard."))
            .max()
            .unwrap()
            .to_owned();
        running
            .until(HANGS, || lab.at("dest").join(&last).exists())
            .unwrap();
        let after = moment(&mut draw, Duration::from_millis(20));
        running.until(after, || false).unwrap();
        running.signal(Signal::KILL).unwrap();
        running.end(HANGS).unwrap();
        lab.check_interrupted(
            golden,
            "dest",
            &format!("killed {after:?} after the last shard"),
        );
        lab.finish(golden, "dest", &[], "after a kill at the end");
        lab.remove("dest");
    }
}

/// Published files may be damaged, and the journal truncated, before the conversion resumes.
#[test]
fn damage_before_a_resume_is_repaired() {
    let lab = Lab::new(&[SLOW]);
    let golden = lab.golden(&SLOW);
    type Damage = fn(&Lab, &mut Draw);
    let damages: [(&str, Damage); 7] = [
        ("a bit of a shard flips", |lab, _| {
            edit(lab, "dest/shard.00001.mds.zstd", |bytes| bytes[100] ^= 1)
        }),
        ("a shard is cut short", |lab, _| {
            edit(lab, "dest/shard.00001.mds.zstd", |bytes| bytes.truncate(10))
        }),
        ("a shard is gone", |lab, _| {
            fs::remove_file(lab.at("dest/shard.00000.mds.zstd")).unwrap()
        }),
        ("the journal is torn", |lab, draw| {
            edit(lab, "dest/.shardmill/journal", |bytes| {
                bytes.truncate(1 + draw.below(bytes.len() as u64 - 1) as usize)
            });
        }),
        ("the journal ends in garbage", |lab, _| {
            edit(lab, "dest/.shardmill/journal", |bytes| {
                bytes.extend([0xff; 700])
            })
        }),
        ("the journal is empty", |lab, _| {
            edit(lab, "dest/.shardmill/journal", Vec::clear)
        }),
        ("the work folder is gone", |lab, _| {
            fs::remove_dir_all(lab.at("dest/.shardmill")).unwrap()
        }),
    ];
    let mut draw = draw("damage");
    for (what, damage) in damages {
        let running = lab.in_the_middle(&SLOW, "dest", 4);
        running.signal(Signal::KILL).unwrap();
        running.end(HANGS).unwrap();
        damage(&lab, &mut draw);
        let unknown = ["the journal is empty", "the work folder is gone"].contains(&what)
            || (what == "the journal is torn"
                && !fs::read(lab.at("dest/.shardmill/journal"))
                    .unwrap()
                    .contains(&b'\n'));
        if unknown {
            // Shards that no journal lists are not used, and not removed without a request.
            let left = lab.snapshot("dest");
            lab.fails(&SLOW, "dest", &[], 4, "dest-not-empty");
            assert_eq!(
                left.differences(&lab.snapshot("dest")),
                Vec::<String>::new(),
                "{what}"
            );
            lab.finish(&golden, "dest", &["--overwrite"], what);
            lab.check_golden(&golden, "dest", what);
        } else {
            lab.finish(&golden, "dest", &[], what);
        }
        lab.verify("dest");
        lab.remove("dest");
    }
}

fn edit(lab: &Lab, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(lab.at(name)).unwrap();
    change(&mut bytes);
    fs::write(lab.at(name), bytes).unwrap();
}

/// A resumed run keeps completed shards and does not start over.
#[test]
fn resume_keeps_complete_shards() {
    let lab = Lab::new(&[SLOW]);
    let golden = lab.golden(&SLOW);
    let running = lab.in_the_middle(&SLOW, "dest", 6);
    running.signal(Signal::KILL).unwrap();
    running.end(HANGS).unwrap();
    let before = lab.snapshot("dest").without(".shardmill");
    let ended = lab.finish(&golden, "dest", &["--json"], "kept");
    let report: serde_json::Value = serde_json::from_str(&ended.output()).unwrap();
    let reused = report["outcome"]["resumed"]["reused_shards"]
        .as_u64()
        .unwrap();
    // The shard being published at the kill may exist without an entry in the journal.
    assert!(
        reused + 1 >= before.files().count() as u64 && reused >= 5,
        "{report}"
    );
    let after = lab.snapshot("dest");
    let touched = before
        .touched(&after)
        .into_iter()
        .filter(|line| line.contains("written again"))
        .count();
    assert!(
        touched <= 2,
        "{touched} complete shards were written again: {:?}",
        before.touched(&after)
    );
}
