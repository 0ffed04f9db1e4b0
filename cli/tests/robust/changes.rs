//! Tests a source that changes while it is read.

use std::fs;
use std::io::Write as _;

use rustix::process::Signal;

use crate::lab::{HANGS, Lab, SLOW, expect};

/// Stops a conversion in the middle, changes the source, and resumes the conversion.
fn change_while_read(change: impl Fn(&Lab)) {
    let lab = Lab::new(&[SLOW]);
    let running = lab.in_the_middle(&SLOW, "dest", 2);
    running.signal(Signal::STOP).unwrap();
    change(&lab);
    running.signal(Signal::CONT).unwrap();
    let ended = running.end(HANGS).unwrap();
    expect(&ended, 3, "source-changed");
    assert!(
        ended.errors().contains("part-1.parquet"),
        "{}",
        ended.errors()
    );
    assert!(
        !lab.at("dest").exists(),
        "something is left: {:?}",
        lab.snapshot("dest")
    );
}

#[test]
fn growing_source_file_is_detected() {
    change_while_read(|lab| {
        let mut file = fs::File::options()
            .append(true)
            .open(lab.at("table/part-1.parquet"))
            .unwrap();
        file.write_all(b"more").unwrap();
    });
}

#[test]
fn replaced_source_file_is_detected() {
    change_while_read(|lab| {
        fs::copy(lab.at("table/part-0.parquet"), lab.at("other")).unwrap();
        fs::rename(lab.at("other"), lab.at("table/part-1.parquet")).unwrap();
    });
}

#[test]
fn rewritten_source_file_is_detected() {
    change_while_read(|lab| {
        let bytes = fs::read(lab.at("table/part-1.parquet")).unwrap();
        fs::write(lab.at("table/part-1.parquet"), bytes).unwrap();
    });
}

#[test]
fn removed_source_file_is_an_error_unless_open() {
    let lab = Lab::new(&[SLOW]);
    let running = lab.in_the_middle(&SLOW, "dest", 2);
    running.signal(Signal::STOP).unwrap();
    fs::remove_file(lab.at("table/part-1.parquet")).unwrap();
    running.signal(Signal::CONT).unwrap();
    let ended = running.end(HANGS).unwrap();
    // If the file is already open, it can be read to its end; otherwise it is missing.
    match ended.code() {
        Some(0) => lab.verify("dest"),
        _ => {
            expect(&ended, 2, "not-found");
            assert!(!lab.at("dest").exists());
        }
    }
}
