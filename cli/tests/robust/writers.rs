//! Tests two writers with the same destination.

use std::time::Duration;

use crate::lab::{Golden, HANGS, Lab, SETTINGS, SLOW, draw, expect, moment, rounds};

#[test]
fn second_writer_is_rejected() {
    let lab = Lab::new(&[SLOW]);
    let golden = lab.golden(&SLOW);
    let running = lab.in_the_middle(&SLOW, "dest", 2);
    for options in [&[][..], &["--jobs", "2"], &["--overwrite"]] {
        let ended = lab.run(
            lab.command()
                .args(["convert", SLOW.source, "dest"])
                .args(&SLOW.options[..4])
                .args(options),
        );
        expect(&ended, 4, "other-writer");
    }
    let ended = running.end(HANGS).unwrap();
    assert_eq!(ended.code(), Some(0), "{}", ended.errors());
    lab.check_golden(&golden, "dest", "beside others");
}

/// Whichever process comes second, the result is that of one of them.
#[test]
fn simultaneous_writers_produce_one_valid_dataset() {
    let lab = Lab::new(&SETTINGS[..2]);
    let goldens: Vec<Golden> = SETTINGS[..2]
        .iter()
        .map(|setting| lab.golden(setting))
        .collect();
    let mut draw = draw("writers");
    let mut both = 0;
    for round in 0..rounds() {
        // Every other time, they use different settings.
        let (first, second) = (&goldens[0], &goldens[round % 2]);
        let a = lab.start(&mut lab.convert(&first.setting, "dest"));
        std::thread::sleep(moment(&mut draw, Duration::from_millis(60)));
        let b = lab.start(&mut lab.convert(&second.setting, "dest"));
        let (a, b) = (a.end(HANGS).unwrap(), b.end(HANGS).unwrap());
        let mut winners = Vec::new();
        for (ended, golden) in [(&a, first), (&b, second)] {
            match ended.code() {
                Some(0) => winners.push(golden),
                _ => expect(ended, 4, "other-writer|dest-conflict|dest-not-empty"),
            }
        }
        assert!(
            !winners.is_empty(),
            "no writer won: {} {}",
            a.errors(),
            b.errors()
        );
        both += usize::from(winners.len() == 2);
        for golden in winners {
            lab.check_golden(golden, "dest", "two writers at once");
        }
        lab.remove("dest");
    }
    println!(
        "writers: {} pairs, in {both} of them both were content",
        rounds()
    );
}

/// Readers that run during a conversion see the whole dataset or none.
#[test]
fn readers_see_the_whole_dataset_or_none() {
    let lab = Lab::new(&SETTINGS[1..2]);
    let golden = lab.golden(&SETTINGS[1]);
    let (mut none, mut all) = (0, 0);
    for _ in 0..3 {
        let mut running = lab.start(&mut lab.convert(&golden.setting, "dest"));
        loop {
            let ended = running.has_ended().unwrap();
            let reader = lab.run(lab.command().args(["verify", "dest"]));
            match reader.code() {
                Some(0) => all += 1,
                _ => {
                    expect(&reader, 2, "index-missing|not-found");
                    none += 1;
                }
            }
            if ended {
                break;
            }
        }
        let ended = running.end(HANGS).unwrap();
        assert_eq!(ended.code(), Some(0), "{}", ended.errors());
        lab.remove("dest");
    }
    println!("readers: {none} saw nothing, {all} saw all");
    assert!(all > 0);
}
