//! Tests conversions in parts: the dataset is the same, whatever the order, number and processes of the parts.

use std::fs;
use std::process::Command;
use std::time::Duration;

use shardmill_testing::files::Snapshot;
use shardmill_testing::process::Ended;
use shardmill_testing::s3::{Objects, S3Server, Settings};

use crate::lab::{Lab, SETTINGS, Setting, draw, expect, moment, rounds};

/// Kinds of shards and sources.
const KINDS: [usize; 5] = [0, 1, 4, 6, 7];
const PARTS: u64 = 3;

fn part(lab: &Lab, setting: &Setting, dest: &str, number: u64, jobs: u64) -> Command {
    let mut command = lab.convert(setting, dest);
    command
        .args(["--part", &format!("{number}/{PARTS}")])
        // The setting may specify them already.
        .args(match setting.options.contains(&"--jobs") {
            true => vec![],
            false => vec!["--jobs".to_owned(), jobs.to_string()],
        });
    command
}

fn commit(lab: &Lab, dest: &str) -> Ended {
    lab.run(lab.command().args(["commit", dest]))
}

fn done(ended: &Ended) {
    assert_eq!(ended.code(), Some(0), "{}", ended.errors());
}

/// Returns the result of undisturbed parts.
fn golden(lab: &Lab, setting: &Setting) -> Snapshot {
    let dest = format!("parts {}", setting.name);
    for number in 0..PARTS {
        done(&lab.run(&mut part(lab, setting, &dest, number, 2)));
        assert!(!lab.snapshot(&dest).has("index.json"));
    }
    done(&commit(lab, &dest));
    lab.verify(&dest);
    let files = lab.snapshot(&dest);
    assert!(!files.has(".shardmill"));
    files
}

/// Returns all samples as JSON lines.
fn samples(lab: &Lab, dest: &str) -> String {
    let ended = lab.run(lab.command().args(["cat", dest, "0.."]));
    done(&ended);
    ended.output()
}

#[test]
fn parts_have_the_samples_and_order_of_one_run() {
    // Numeric keys begin with the number of the part.
    let settings = KINDS.map(|at| SETTINGS[at]);
    let lab = Lab::new(&settings);
    for setting in &settings {
        golden(&lab, setting);
        lab.ok(setting, "whole", &[]);
        let dest = format!("parts {}", setting.name);
        let (parts, whole) = (samples(&lab, &dest), samples(&lab, "whole"));
        assert_eq!(parts.lines().count(), whole.lines().count());
        if setting.name != "tar files of numbered samples" {
            assert!(parts == whole, "{}", setting.name);
        }
        let side = fs::read(lab.at(&format!("{dest}/index.provenance"))).unwrap();
        let side: serde_json::Value = serde_json::from_slice(&side).unwrap();
        assert_eq!(side["parts"], PARTS);
        assert_eq!(side["samples"], whole.lines().count());
        lab.remove("whole");
    }
}

#[test]
fn part_order_and_thread_count_do_not_matter() {
    let settings = KINDS.map(|at| SETTINGS[at]);
    let lab = Lab::new(&settings);
    for setting in &settings {
        let golden = golden(&lab, setting);
        for number in (0..PARTS).rev() {
            done(&lab.run(&mut part(&lab, setting, "dest", number, 1 + number)));
            // Repeating a part is harmless.
            let again = lab.run(part(&lab, setting, "dest", number, 1).arg("--json"));
            assert!(
                again.output().contains("already_done"),
                "{}",
                again.output()
            );
        }
        done(&commit(&lab, "dest"));
        let differences = golden.differences(&lab.snapshot("dest"));
        assert!(differences.is_empty(), "{}: {differences:?}", setting.name);
        // Everything is already done.
        let again = commit(&lab, "dest");
        assert!(
            again.output().contains("it was published before"),
            "{}",
            again.output()
        );
        let again = lab.run(part(&lab, setting, "dest", 0, 1).arg("--json"));
        assert!(
            again.output().contains("already_done"),
            "{}",
            again.output()
        );
        lab.remove("dest");
    }
}

#[test]
fn parts_in_a_store_have_the_same_shards() {
    let setting = SETTINGS[1];
    let lab = Lab::new(&[setting]);
    let golden = golden(&lab, &setting);
    let server = S3Server::start(Objects::memory("bucket", []), Settings::default()).unwrap();
    for number in 0..PARTS {
        let mut part = part(&lab, &setting, "s3://bucket/set", number, 2);
        done(&lab.run(part.envs(server.environment())));
    }
    let mut commit = lab.command();
    commit
        .args(["commit", "s3://bucket/set"])
        .envs(server.environment());
    done(&lab.run(&mut commit));
    let objects = server.objects().all();
    assert!(
        !objects.keys().any(|key| key.contains(".shardmill")),
        "{:?}",
        objects.keys()
    );
    assert_eq!(objects.len(), golden.files().count());
    // Names include the attempt; without it they equal those in a directory.
    let dest = lab.at(&format!("parts {}", setting.name));
    let mut shards = 0;
    for (key, bytes) in &objects {
        let name = key.strip_prefix("set/").unwrap();
        let Some(rest) = name.strip_prefix("shard.") else {
            continue;
        };
        let parts: Vec<&str> = rest.splitn(3, '-').collect();
        let local = format!("shard.{}-{}", parts[0], parts[2]);
        assert!(fs::read(dest.join(&local)).unwrap() == *bytes, "{name}");
        shards += 1;
    }
    assert!(shards > 20);
}

#[test]
fn mismatched_parts_are_rejected() {
    let (setting, other) = (SETTINGS[0], SETTINGS[1]);
    let lab = Lab::new(&[setting]);
    expect(&commit(&lab, "."), 2, "parts-none");
    for wrong in ["3/3", "1", "a/b", "-1/3", "0/0"] {
        let ended = lab.run(lab.convert(&setting, "dest").args(["--part", wrong]));
        expect(&ended, 2, "config-part");
    }
    for more in [&["--overwrite"][..], &["--split", "a=0.5,b=0.5"]] {
        let ended = lab.run(part(&lab, &setting, "dest", 0, 1).args(more));
        expect(&ended, 2, "config-part");
    }
    assert!(!lab.at("dest").exists());

    for number in [0, 2] {
        done(&lab.run(&mut part(&lab, &setting, "dest", number, 1)));
    }
    let ended = commit(&lab, "dest");
    assert_eq!(ended.code(), Some(2), "{}", ended.errors());
    assert!(
        ended.errors().contains("part 1 is missing"),
        "{}",
        ended.errors()
    );
    // Another configuration with the same destination.
    done(&lab.run(&mut part(&lab, &other, "dest", 1, 1)));
    expect(&commit(&lab, "dest"), 4, "parts-conflict");
    let ended = lab.run(&mut lab.convert(&setting, "dest"));
    expect(&ended, 4, "parts-uncommitted");
    assert!(!lab.snapshot("dest").has("index.json"));
    // Existing parts can be discarded, but not by default: they may be recent.
    let before = lab.snapshot("dest");
    done(&lab.run(lab.command().args(["gc", "dest", "--delete"])));
    assert!(before.differences(&lab.snapshot("dest")).is_empty());
    let ended = lab.run(
        lab.command()
            .args(["gc", "dest", "--delete", "--older-than", "0"]),
    );
    done(&ended);
    assert_eq!(lab.snapshot("dest").files().count(), 0);
    let ended = lab.run(lab.command().args(["gc", "dest", "--older-than", "90"]));
    expect(&ended, 2, "config-older-than");
    lab.ok(&setting, "dest", &[]);
    expect(
        &lab.run(&mut part(&lab, &other, "dest", 1, 1)),
        4,
        "dest-conflict",
    );
}

#[test]
fn commit_detects_changed_files() {
    let setting = SETTINGS[1];
    let lab = Lab::new(&[setting]);
    for number in 0..PARTS {
        done(&lab.run(&mut part(&lab, &setting, "dest", number, 1)));
    }
    let parts = lab.at("dest/.shardmill/parts");
    // The folder also contains manifests.
    let mut attempts = fs::read_dir(parts)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let folder = attempts.find(|path| path.is_dir()).unwrap();
    let shard = fs::read_dir(&folder).unwrap().next().unwrap().unwrap();
    let shard = shard.path();
    let whole = fs::read(&shard).unwrap();
    fs::write(&shard, &whole[..10]).unwrap();
    let ended = commit(&lab, "dest");
    assert_eq!(ended.code(), Some(3), "{}", ended.errors());
    assert!(!lab.snapshot("dest").has("index.json"));
    let mut flipped = whole.clone();
    flipped[100] ^= 1;
    fs::write(&shard, &flipped).unwrap();
    let ended = lab.run(lab.command().args(["commit", "dest", "--deep"]));
    assert_eq!(ended.code(), Some(3), "{}", ended.errors());
    fs::write(&shard, &whole).unwrap();
    done(&commit(&lab, "dest"));
    lab.verify("dest");
}

#[test]
fn uncommitted_parts_are_reported_by_every_command() {
    let setting = SETTINGS[6];
    let lab = Lab::new(&[setting]);
    let server = S3Server::start(Objects::memory("bucket", []), Settings::default()).unwrap();
    for dest in ["my dest", "s3://bucket/set"] {
        let mut part = part(&lab, &setting, dest, 0, 2);
        done(&lab.run(part.envs(server.environment())));
        let hint = match dest {
            "my dest" => "my dest'` when",
            _ => "`shardmill commit s3://bucket/set` when",
        };
        for verb in [
            &["verify"][..],
            &["inspect"],
            &["inspect", "--shards"],
            &["cat"],
            &["index", "rebuild"],
            &["convert"],
        ] {
            let is_store = dest.starts_with("s3:");
            if is_store && verb == ["index", "rebuild"] {
                continue;
            }
            let mut command = lab.command();
            command.args(verb).arg(dest).envs(server.environment());
            if verb == ["convert"] {
                command.arg("other");
            }
            let ended = lab.run(&mut command);
            expect(&ended, 4, "parts-uncommitted");
            assert!(
                ended.errors().contains(hint),
                "{verb:?}: {}",
                ended.errors()
            );
        }
        assert!(!lab.at("other").exists());
        let mut whole = lab.convert(&setting, dest);
        let ended = lab.run(whole.envs(server.environment()));
        expect(&ended, 4, "parts-uncommitted");
    }
}

#[test]
fn gc_lists_parts_and_removes_one() {
    let (setting, other) = (SETTINGS[0], SETTINGS[1]);
    let lab = Lab::new(&[setting]);
    let server = S3Server::start(Objects::memory("bucket", []), Settings::default()).unwrap();
    for dest in ["dest", "s3://bucket/set"] {
        let run = |command: &mut Command| lab.run(command.envs(server.environment()));
        for number in [0, 2] {
            done(&run(&mut part(&lab, &setting, dest, number, 2)));
        }
        done(&run(&mut part(&lab, &other, dest, 1, 2)));
        let gc = |more: &[&str]| run(lab.command().args(["gc", dest]).args(more));
        let conflict = run(lab.command().args(["commit", dest]));
        expect(&conflict, 4, "parts-conflict");
        let advice = format!("shardmill gc {dest} --part");
        assert!(conflict.errors().contains(&advice), "{}", conflict.errors());
        // The output mentions files that are too recent to remove.
        let ended = gc(&["--delete", "--older-than", "36500d"]);
        done(&ended);
        for text in ["0/3", "1/3", "2/3", "--older-than 0"] {
            assert!(ended.output().contains(text), "{text}: {}", ended.output());
        }
        let ended = gc(&["--older-than", "36500d"]);
        let publish = format!("shardmill commit {dest}");
        assert!(ended.output().contains(&publish), "{}", ended.output());
        expect(&gc(&["--part", "3/4", "--delete"]), 2, "part-missing");
        expect(&gc(&["--part", "3", "--delete"]), 2, "config-part");
        done(&gc(&["--part", "1/3", "--delete"]));
        let missing = run(lab.command().args(["commit", dest]));
        expect(&missing, 2, "part-missing");
        let fact = format!("{dest}: part 1 is missing: 2 of 3 parts are there");
        assert!(missing.errors().contains(&fact), "{}", missing.errors());
        done(&run(&mut part(&lab, &setting, dest, 1, 2)));
        done(&run(lab.command().args(["commit", dest])));
        let done_now = gc(&["--older-than", "0"]);
        assert!(
            done_now.output().contains("no leftovers"),
            "{}",
            done_now.output()
        );
        let verified = run(lab.command().args(["verify", dest]));
        done(&verified);
    }
}

#[test]
fn commit_reports_that_it_waits_for_a_lease() {
    let setting = SETTINGS[1];
    let lab = Lab::new(&[setting]);
    let lease = "set/.shardmill/commit/lease".to_owned();
    let lease = (lease, b"0123456789abcdef 3\n".to_vec());
    let server = S3Server::start(Objects::memory("bucket", [lease]), Settings::default()).unwrap();
    for number in 0..PARTS {
        let mut part = part(&lab, &setting, "s3://bucket/set", number, 2);
        done(&lab.run(part.envs(server.environment())));
    }
    let began = std::time::Instant::now();
    let ended = lab.run(
        lab.command()
            .args(["commit", "s3://bucket/set", "--takeover-after", "1.5"])
            .envs(server.environment()),
    );
    done(&ended);
    assert!(began.elapsed() < Duration::from_secs(12));
    for text in [
        "warning[lease-wait]: s3://bucket/set/.shardmill/commit/lease: writer 0123456789abcdef",
        " UTC for its heartbeat",
        "--takeover-after",
    ] {
        assert!(ended.errors().contains(text), "{text}: {}", ended.errors());
    }
    // The wait is announced once; a commit that does not wait prints nothing.
    assert_eq!(ended.errors().matches("lease-wait").count(), 1);
}

#[test]
fn storage_option_overrides_environment_variables() {
    let setting = SETTINGS[1];
    let lab = Lab::new(&[setting]);
    let server = S3Server::start(Objects::memory("bucket", []), Settings::default()).unwrap();
    let endpoint = server
        .environment()
        .into_iter()
        .find(|(name, _)| name.contains("ENDPOINT"))
        .unwrap();
    let mut convert = lab.convert(&setting, "s3://bucket/set");
    convert
        .envs(server.environment())
        .env("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        .env("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
        .env("S3_ENDPOINT_URL", "http://127.0.0.1:1")
        .arg("--storage-option")
        .arg(format!("aws_endpoint={}", endpoint.1));
    done(&lab.run(&mut convert));
    assert!(server.objects().all().contains_key("set/index.json"));
}

/// A dataset made in parts is an ordinary one, and another one may replace it.
#[test]
fn overwrite_replaces_a_dataset_made_of_parts() {
    let setting = SETTINGS[1];
    let lab = Lab::new(&[setting]);
    let whole = lab.golden(&setting);
    golden(&lab, &setting);
    let dest = format!("parts {}", setting.name);
    let changed = lab.run(lab.convert(&setting, &dest).args(["--where", "id > 5"]));
    expect(&changed, 4, "dest-conflict");
    lab.finish(&whole, &dest, &["--overwrite"], "in the place of parts");
}

/// Kills parts and commits at any time.
#[test]
fn killed_at_any_time() {
    let settings = [SETTINGS[1], SETTINGS[7]];
    let lab = Lab::new(&settings);
    let goldens: Vec<Snapshot> = settings
        .iter()
        .map(|setting| golden(&lab, setting))
        .collect();
    let mut draw = draw("kill parts");
    let (mut kills, mut round) = (0, 0);
    while kills < rounds() {
        let setting = &settings[round % settings.len()];
        let golden = &goldens[round % settings.len()];
        round += 1;
        let mut kill = |command: &mut Command, max: Duration| {
            kills += usize::from(lab.kill_after(command, moment(&mut draw, max)));
        };
        for number in 0..PARTS {
            let max = Duration::from_millis(250);
            kill(&mut part(&lab, setting, "dest", number, 2), max);
            done(&lab.run(&mut part(&lab, setting, "dest", number, 2)));
        }
        for _ in 0..3 {
            let max = Duration::from_millis(30);
            kill(lab.command().args(["commit", "dest"]), max);
            if lab.snapshot("dest").has("index.json") {
                lab.verify("dest");
            }
        }
        done(&commit(&lab, "dest"));
        let differences = golden.differences(&lab.snapshot("dest"));
        assert!(differences.is_empty(), "{}: {differences:?}", setting.name);
        lab.remove("dest");
    }
    println!("kill parts: {kills} kills in {round} conversions, all the same in the end");
}
