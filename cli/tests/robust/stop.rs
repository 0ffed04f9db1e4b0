//! Tests SIGINT and SIGTERM: they have their own exit status, and the next run resumes the conversion.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use rustix::process::Signal;

use crate::lab::{Golden, HANGS, Lab, SETTINGS, SLOW, draw, moment, rounds};

#[test]
fn interrupted_conversion_is_reported_and_resumed() {
    let lab = Lab::new(&[SLOW]);
    let golden = lab.golden(&SLOW);
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let running = lab.in_the_middle(&SLOW, "dest", 3);
        running.signal(signal).unwrap();
        let ended = running.end(HANGS).unwrap();
        let errors = ended.errors();
        assert_eq!(ended.code(), Some(code), "{errors}");
        let line = errors
            .lines()
            .find(|line| line.starts_with("error["))
            .unwrap();
        assert!(
            line.starts_with("error[interrupted]: ") && line.contains("run the same command again"),
            "{errors}"
        );
        lab.check_interrupted(&golden, "dest", &format!("stopped by {signal:?}"));
        assert!(!lab.at("dest/index.json").exists());
        lab.finish(&golden, "dest", &[], "after a stop");
        lab.remove("dest");
    }
}

#[test]
fn second_signal_ends_the_process_at_once() {
    let lab = Lab::new(&[SLOW]);
    let golden = lab.golden(&SLOW);
    let mut running = lab.in_the_middle(&SLOW, "dest", 3);
    running.signal(Signal::INT).unwrap();
    // Until it exits by itself or because of the second signal.
    while !running.has_ended().unwrap() {
        running.signal(Signal::INT).unwrap();
    }
    let ended = running.end(HANGS).unwrap();
    assert!(
        ended.code() == Some(130) || ended.status.signal() == Some(2),
        "{}",
        ended.status
    );
    lab.check_interrupted(&golden, "dest", "stopped twice");
    lab.finish(&golden, "dest", &[], "after two signals");
}

/// The process is killed between renaming a shard and recording it, and then stopped before the next record.
#[test]
fn shard_missing_from_the_journal_is_rewritten() {
    let lab = Lab::new(&[SLOW]);
    let golden = lab.golden(&SLOW);
    let mut stopped = 0;
    for millis in [0, 10, 20, 40, 60, 80, 100, 130, 160, 200] {
        let running = lab.in_the_middle(&SLOW, "dest", 1);
        running.signal(Signal::KILL).unwrap();
        running.end(HANGS).unwrap();
        let journal = lab.at("dest/.shardmill/journal");
        let notes = fs::read_to_string(&journal).unwrap();
        fs::write(&journal, notes.split_inclusive('\n').next().unwrap()).unwrap();
        let mut running = lab.start(&mut lab.convert(&SLOW, "dest"));
        let wait = Duration::from_millis(millis);
        running.until(wait, || false).unwrap();
        running.signal(Signal::INT).unwrap();
        let ended = running.end(HANGS).unwrap();
        let is_stopped = ended.code() == Some(130);
        let is_early = ended.status.signal() == Some(2);
        assert!(
            is_stopped || is_early,
            "{}: {}",
            ended.status,
            ended.errors()
        );
        stopped += usize::from(is_stopped && !journal.exists());
        lab.finish(&golden, "dest", &[], &format!("stopped after {millis} ms"));
        lab.remove("dest");
    }
    println!("stopped {stopped} times before a note");
}

#[test]
fn signal_at_any_time_is_resumed() {
    let lab = Lab::new(&SETTINGS);
    let goldens: Vec<Golden> = SETTINGS.iter().map(|setting| lab.golden(setting)).collect();
    let mut draw = draw("stop");
    let mut stops = 0;
    for round in 0..rounds() {
        let golden = &goldens[round % goldens.len()];
        let (signal, number) = if draw.below(2) == 0 {
            (Signal::INT, 2)
        } else {
            (Signal::TERM, 15)
        };
        let after = moment(&mut draw, golden.wall);
        let mut running = lab.start(&mut lab.convert(&golden.setting, "dest"));
        running.until(after, || false).unwrap();
        running.signal(signal).unwrap();
        let ended = running.end(HANGS).unwrap();
        // Before the handler is installed, the signal itself ends the process.
        match ended.code() {
            Some(0) => {}
            Some(code) => {
                assert_eq!(
                    code,
                    128 + number,
                    "{}: {}",
                    golden.setting.name,
                    ended.errors()
                );
                stops += 1;
            }
            None => assert_eq!(ended.status.signal(), Some(number)),
        }
        lab.check_interrupted(golden, "dest", &format!("{signal:?} after {after:?}"));
        lab.finish(golden, "dest", &[], "after a stop");
        lab.remove("dest");
    }
    println!(
        "stop: {stops} of {} conversions stopped by their own will",
        rounds()
    );
}

/// `verify` can be stopped as well.
#[test]
fn signal_stops_verify() {
    let lab = Lab::new(&SETTINGS[..1]);
    lab.ok(&SETTINGS[0], "dest", &[]);
    for _ in 0..5 {
        let running = lab.start(lab.command().args(["verify", "--deep", "dest"]));
        running.signal(Signal::TERM).unwrap();
        let ended = running.end(HANGS).unwrap();
        if ended.code() == Some(143) {
            let errors = ended.errors();
            assert!(errors.contains("error[interrupted]"), "{errors}");
        } else {
            assert!(
                ended.code() == Some(0) || ended.status.signal() == Some(15),
                "{}",
                ended.status
            );
        }
    }
}
