//! Tests `--overwrite`: it leaves the old dataset or the new one, whole, but never none and never a mix.

use std::fmt::Write as _;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::Signal;
use shardmill_testing::s3::{Action, Fault, Flavor, Script, Settings};

use crate::lab::{Golden, HANGS, Lab, SETTINGS, Setting, draw, moment, rounds};
use crate::stores::Store;

#[test]
fn overwrite_replaces_any_previous_conversion() {
    let lab = Lab::new(&SETTINGS);
    let goldens: Vec<Golden> = SETTINGS.iter().map(|setting| lab.golden(setting)).collect();
    for golden in goldens.iter().chain(goldens.iter().rev()) {
        lab.finish(golden, "dest", &["--overwrite"], "overwriting");
        // Overwriting with equal options writes the dataset again.
        lab.finish(golden, "dest", &["--overwrite"], "overwriting itself");
    }
}

/// If the process is killed while it removes the files of a split, it leaves the folder of another split empty.
#[test]
fn empty_split_folder_is_ignored_on_overwrite() {
    let lab = Lab::new(&SETTINGS[..3]);
    let [plain, _, splits] = [0, 1, 2].map(|number| lab.golden(&SETTINGS[number]));
    for golden in [&plain, &splits] {
        lab.finish(&splits, "dest", &["--overwrite"], "at first");
        for entry in std::fs::read_dir(lab.at("dest/train")).unwrap() {
            std::fs::remove_file(entry.unwrap().path()).unwrap();
        }
        std::fs::remove_file(lab.at("dest/val/index.json")).unwrap();
        lab.finish(golden, "dest", &["--overwrite"], "over an empty folder");
    }
    std::fs::create_dir(lab.at("dest/train/mine")).unwrap();
    let error = lab.fails(
        &plain.setting,
        "dest",
        &["--overwrite"],
        4,
        "dest-not-empty",
    );
    assert!(error.contains("train/mine"), "{error}");
}

#[test]
fn killed_in_the_middle_it_resumes() {
    let lab = Lab::new(&SETTINGS);
    let goldens: Vec<Golden> = SETTINGS.iter().map(|setting| lab.golden(setting)).collect();
    let mut draw = draw("overwrite");
    let mut there = 0;
    lab.finish(&goldens[there], "dest", &[], "at first");
    for round in 0..rounds() {
        let next = (there + 1 + draw.below(goldens.len() as u64 - 1) as usize) % goldens.len();
        let golden = &goldens[next];
        for _ in 0..1 + draw.below(3) {
            let after = moment(&mut draw, golden.wall);
            lab.kill_after(
                lab.convert(&golden.setting, "dest").arg("--overwrite"),
                after,
            );
            lab.check_old_or_new(&goldens[there], golden, "dest", "killed");
        }
        // Without `--overwrite`, the run removes the old dataset if its own is published, and refuses otherwise.
        if round % 2 == 0 {
            let ended = lab.run(&mut lab.convert(&golden.setting, "dest"));
            match ended.code() {
                Some(0) => lab.check_replaced(golden, "dest", "continued without --overwrite"),
                _ => crate::lab::expect(&ended, 4, "dest-conflict|dest-not-empty"),
            }
        }
        lab.finish(
            golden,
            "dest",
            &["--overwrite"],
            &format!("overwriting {} after kills", goldens[there].setting.name),
        );
        there = next;
    }
}

/// Datasets that replace one another in a store.
const STORED: [Setting; 3] = [
    Setting {
        name: "stored",
        source: "small tree",
        options: &["--samples-per-shard", "15", "--compression", "none"],
        folders: &[""],
    },
    Setting {
        name: "stored again",
        source: "small tree",
        options: &["--samples-per-shard", "20"],
        folders: &[""],
    },
    Setting {
        name: "stored splits",
        source: "small tree",
        options: &["--samples-per-shard", "20", "--split", "a=0.5,b=0.5"],
        folders: &["a", "b"],
    },
];

/// Kills the process when the store receives the K-th request that changes something, before and after it is done.
#[test]
fn killed_at_requests_to_a_store() {
    let lab = Lab::new(&STORED);
    let goldens: Vec<Golden> = STORED
        .iter()
        .map(|setting| lab.golden_of_few(setting))
        .collect();
    let every = (120 / rounds().max(1)).max(1) as u64;
    let mut kills = 0;
    for (old, new) in [(0, 1), (0, 2), (2, 1)] {
        let (old, new) = (&goldens[old], &goldens[new]);
        for point in (1..).step_by(every as usize) {
            let store = Store::of(Flavor::S3);
            store.finish(&lab, old, &[], "at first");
            let (pid, changes) = (Arc::new(AtomicU64::new(0)), AtomicU64::new(0));
            let fault = match point / every % 2 {
                0 => Fault::CloseBefore,
                _ => Fault::AnswerLost,
            };
            let killed = Arc::clone(&pid);
            let faults = Script::by(move |asked| {
                if !matches!(asked.action, Action::Put | Action::Delete) {
                    return None;
                }
                let number = changes.fetch_add(1, Ordering::Relaxed) + 1;
                if number == point {
                    let number = killed.load(Ordering::Relaxed) as i32;
                    let pid = rustix::process::Pid::from_raw(number).unwrap();
                    rustix::process::kill_process(pid, Signal::KILL).unwrap();
                }
                (number >= point).then(|| fault.clone())
            });
            store.server.set(Settings {
                faults,
                ..Settings::default()
            });
            let mut command = store.convert(&lab, &new.setting);
            let running = lab.start(command.arg("--overwrite"));
            let number = running.pid().unwrap().as_raw_nonzero().get();
            pid.store(number as u64, Ordering::Relaxed);
            let ended = running.end(HANGS).unwrap();
            store.heal();
            let how = format!(
                "death at change {point} of {} over {}",
                new.setting.name, old.setting.name
            );
            store.check_old_or_new(&lab, old, new, &how);
            if ended.code() == Some(0) {
                break;
            }
            kills += 1;
            store.finish(&lab, new, &["--overwrite"], &format!("after {how}"));
        }
    }
    println!("overwrite: {kills} kills at requests to a store");
    assert!(kills >= 9, "{kills}");
}

/// Sources that fail when many rows are written, and the options they are converted with.
fn bad_sources(lab: &Lab) -> Vec<(&'static str, Vec<&'static str>, i32)> {
    let write = |name: &str, row: &dyn Fn(usize) -> String| {
        let mut text = String::new();
        for number in 0..20_000 {
            writeln!(text, "{}", row(number)).unwrap();
        }
        fs::write(lab.at(name), text).unwrap();
    };
    let late = |number: usize| number == 19_000;
    write("overflow.jsonl", &|number| {
        format!(
            "{{\"i\":{}}}",
            if late(number) { 300 } else { number % 100 }
        )
    });
    write("cast.jsonl", &|number| {
        let text = if late(number) {
            "x".to_owned()
        } else {
            number.to_string()
        };
        format!("{{\"i\":\"{text}\"}}")
    });
    write("list.jsonl", &|number| {
        format!("{{\"i\":[{}]}}", if late(number) { "" } else { "1,2" })
    });
    write("keys.jsonl", &|number| match late(number) {
        true => "{\"i\":{\"a\":1,\"a\":2}}".to_owned(),
        false => "{\"i\":{\"a\":1}}".to_owned(),
    });
    write("good.jsonl", &|number| format!("{{\"i\":{number}}}"));
    // The last page of the last file.
    let table = lab.at("torn");
    fs::create_dir(&table).unwrap();
    for name in ["part-0.parquet", "part-1.parquet"] {
        fs::copy(lab.at("table").join(name), table.join(name)).unwrap();
    }
    let file = table.join("part-1.parquet");
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() * 3 / 4;
    bytes[middle..middle + 5000].fill(0xff);
    fs::write(&file, bytes).unwrap();
    // A header in the last tar file.
    let tars = Setting {
        name: "tars",
        source: "tree",
        options: &["--to", "webdataset", "--samples-per-shard", "100"],
        folders: &[""],
    };
    lab.ok(&tars, "tars", &[]);
    for name in ["index.json", "index.provenance"] {
        fs::remove_file(lab.at("tars").join(name)).unwrap();
    }
    let file = lab.at("tars/shard-000005.tar");
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 1024 * 512;
    bytes.truncate(middle + 100);
    fs::write(&file, bytes).unwrap();
    fs::create_dir(lab.at("nothing")).unwrap();
    vec![
        ("overflow.jsonl", vec!["--column", "i:int8"], 3),
        ("cast.jsonl", vec!["--column", "n:int32=CAST(i AS INT)"], 3),
        ("list.jsonl", vec!["--column", "i:ndarray:int64:2"], 3),
        ("keys.jsonl", vec!["--column", "i:json"], 3),
        (
            "good.jsonl",
            vec!["--select", "CASE WHEN i = 19000 THEN NULL ELSE i END AS n"],
            3,
        ),
        ("torn", vec![], 3),
        ("tars", vec![], 3),
        ("good.jsonl", vec!["--column", "missing"], 2),
        ("good.jsonl", vec!["--where", "i = 'a' + 1"], 2),
        ("nothing", vec![], 2),
        ("absent.jsonl", vec![], 2),
    ]
}

/// An overwrite that fails leaves the old dataset as it was, in a directory and in a store.
#[test]
fn failed_overwrite_leaves_the_old_dataset() {
    let lab = Lab::new(&[SETTINGS[0], SETTINGS[5], STORED[0]]);
    let golden = lab.golden_of_few(&STORED[0]);
    let store = Store::of(Flavor::S3);
    store.finish(&lab, &golden, &[], "at first");
    lab.restore(&golden, "dest");
    for (source, options, code) in bad_sources(&lab) {
        let setting = Setting {
            name: source,
            source,
            options: &["--size-limit", "20kb", "--jobs", "2", "--overwrite"],
            folders: &[""],
        };
        let ended = lab.run(lab.convert(&setting, "dest").args(&options));
        let how = format!("{source} {options:?}: {}", ended.errors());
        println!("{how}");
        assert_eq!(ended.code(), Some(code), "{how}");
        lab.check_golden(&golden, "dest", &how);
        let ended = lab.run(store.convert(&lab, &setting).args(&options));
        assert_eq!(ended.code(), Some(code), "{how}: {}", ended.errors());
        store.check(&lab, &golden, &how);
    }
    lab.verify("dest");
}
