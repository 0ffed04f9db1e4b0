//! Tests running the same command again, and another command on the same destination.

use std::fs;

use rustix::process::Signal;

use crate::lab::{HANGS, Lab, SETTINGS, SLOW, Setting};

#[test]
fn finished_conversion_is_not_touched() {
    let lab = Lab::new(&SETTINGS);
    for setting in &SETTINGS {
        lab.ok(setting, "dest", &[]);
        let before = lab.snapshot("dest");
        let ended = lab.ok(setting, "dest", &["--jobs", "2"]);
        assert!(
            ended.output().contains("already complete"),
            "{}",
            ended.output()
        );
        assert_eq!(
            before.touched(&lab.snapshot("dest")),
            Vec::<String>::new(),
            "{}",
            setting.name
        );
        let ended = lab.ok(setting, "dest", &["--json"]);
        assert!(
            ended.output().contains("\"already_done\""),
            "{}",
            ended.output()
        );
        assert_eq!(
            before.touched(&lab.snapshot("dest")),
            Vec::<String>::new(),
            "{}",
            setting.name
        );
        lab.remove("dest");
    }
}

/// Options each of which changes the result.
const CHANGES: [&[&str]; 8] = [
    &["--compression", "zstd:4"],
    &["--hashes", "md5"],
    &["--size-limit", "201kb"],
    &["--samples-per-shard", "77"],
    &["--column", "id", "--column", "text"],
    &["--where", "id >= 0"],
    &["--nulls", "drop"],
    &["--to", "webdataset", "--column", "id"],
];

/// Returns the options of a setting with some of them changed.
fn changed(setting: &Setting, change: &[&'static str]) -> Vec<&'static str> {
    let mut options = Vec::new();
    for pair in setting.options.chunks(2) {
        if !change.chunks(2).any(|other| other[0] == pair[0]) {
            options.extend_from_slice(pair);
        }
    }
    options.extend_from_slice(change);
    options
}

#[test]
fn changed_configuration_is_rejected() {
    let lab = Lab::new(&[SLOW]);
    // Once completed, and once stopped in the middle.
    lab.ok(&SLOW, "done", &[]);
    let running = lab.in_the_middle(&SLOW, "stopped", 4);
    running.signal(Signal::KILL).unwrap();
    running.end(HANGS).unwrap();
    for dest in ["done", "stopped"] {
        let before = lab.snapshot(dest);
        for change in CHANGES {
            let ended = lab.run(
                lab.command()
                    .args(["convert", SLOW.source, dest])
                    .args(changed(&SLOW, change)),
            );
            crate::lab::expect(&ended, 4, "dest-conflict");
            assert_eq!(
                before.touched(&lab.snapshot(dest)),
                Vec::<String>::new(),
                "{dest} {change:?}"
            );
        }
    }
}

#[test]
fn changed_source_is_rejected() {
    let lab = Lab::new(&[SLOW]);
    lab.ok(&SLOW, "done", &[]);
    let running = lab.in_the_middle(&SLOW, "stopped", 4);
    running.signal(Signal::KILL).unwrap();
    running.end(HANGS).unwrap();
    // The same bytes with another modification time: the program cannot know that they are equal.
    let file = fs::File::options()
        .write(true)
        .open(lab.at("table/part-1.parquet"))
        .unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
    for dest in ["done", "stopped"] {
        let before = lab.snapshot(dest);
        let errors = lab.fails(&SLOW, dest, &[], 4, "dest-conflict");
        assert!(errors.contains("the source has changed"), "{errors}");
        assert_eq!(before.touched(&lab.snapshot(dest)), Vec::<String>::new());
    }
}

/// A conversion that fails because of its data leaves the destination unchanged, even if it fails late.
#[test]
fn failed_conversion_leaves_no_files() {
    let setting = SETTINGS[3];
    let lab = Lab::new(&[setting]);
    let holes: &[&str] = &["convert", "holes", "dest", "--size-limit", "150kb"];
    // Statistics reveal nulls at once. In an expression, they are found when shards are already written.
    let late = [
        "--select",
        "id, blob, CASE WHEN id < 15000 AND text IS NULL THEN '' ELSE text END AS text",
        "--jobs",
        "1",
    ];
    for dest_exists in [false, true] {
        for options in [&[][..], &late] {
            if dest_exists {
                fs::create_dir_all(lab.at("dest")).unwrap();
            }
            let ended = lab.run(lab.command().args(holes).args(options));
            crate::lab::expect(&ended, 3, "value-null");
            assert_eq!(lab.at("dest").exists(), dest_exists, "{options:?}");
            assert!(
                lab.snapshot("dest").is_empty(),
                "{options:?}: {:?}",
                lab.snapshot("dest")
            );
            lab.remove("dest");
        }
    }
}
