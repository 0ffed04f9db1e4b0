//! Tests what remains of jobs that failed or were killed.

use std::time::{Duration, SystemTime};

use shardmill_writer::parts::{GcOptions, GcReason, PartWriter, SaveMode, gc};

use super::parts::*;

#[test]
fn gc_keeps_recent_files_and_files_of_a_conversion() {
    let spot = Spot::local();
    let staging = spot.begin("job", SaveMode::Create).unwrap();
    let manifests = parts(&spot, &staging, 2);
    let find = |before: Option<SystemTime>, delete: bool| {
        let options = GcOptions {
            before,
            delete,
            ..GcOptions::default()
        };
        gc(&spot.destination, &options, &mut || true)
            .unwrap()
            .entries
    };
    let now = SystemTime::now();
    assert_eq!(find(Some(now - Duration::from_secs(3600)), true), []);
    let found = find(Some(now + Duration::from_secs(60)), false);
    assert_eq!(found.len(), 2);
    assert!(
        found
            .iter()
            .all(|entry| entry.reason == GcReason::Attempt && entry.bytes > 0)
    );
    assert!(
        found[0].name.starts_with(".shardmill/parts/job-00000-"),
        "{found:?}"
    );
    spot.commit(&staging, manifests).unwrap();
    // Plain shards belong to the dataset of a conversion; it may be going on.
    std::fs::write(spot.folder().join("shard.00000.mds"), b"x").unwrap();
    std::fs::write(spot.folder().join("notes.txt"), b"x").unwrap();
    std::fs::create_dir(spot.folder().join(".shardmill")).unwrap();
    std::fs::write(spot.folder().join(".shardmill/journal"), b"x").unwrap();
    assert_eq!(find(None, true), []);
    std::fs::remove_file(spot.folder().join(".shardmill/journal")).unwrap();
    std::fs::write(spot.folder().join(".shardmill/tmp-0123"), b"x").unwrap();
    let names: Vec<String> = find(None, true)
        .into_iter()
        .map(|entry| entry.name)
        .collect();
    assert_eq!(names, [".shardmill/tmp-0123", "shard.00000.mds"]);
    assert!(spot.folder().join("notes.txt").exists());
    assert!(is_tidy(&spot.folder()));
    assert_eq!(spot.numbers(), shares(0..2));
}

#[test]
fn gc_uses_modification_times_of_listed_objects() {
    let spot = Spot::store();
    let staging = spot.begin("job", SaveMode::Create).unwrap();
    parts(&spot, &staging, 1);
    // The server says that everything is of the first day of 2025.
    let day = |days: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(days * 86_400);
    let find = |before: SystemTime| {
        let options = GcOptions {
            before: Some(before),
            ..GcOptions::default()
        };
        gc(&spot.destination, &options, &mut || true)
            .unwrap()
            .entries
    };
    assert_eq!(find(day(20_000)), []);
    let found = find(day(20_100));
    assert!(!found.is_empty());
    assert!(
        found
            .iter()
            .all(|entry| entry.reason == GcReason::Unlisted && entry.bytes > 0)
    );
}

#[test]
fn gc_keeps_decompressed_copies_of_listed_shards() {
    let spot = Spot::local();
    let staging = spot.begin("job", SaveMode::Create).unwrap();
    let (encoder, form) = mds_with(250, Some("zstd"));
    let destination = spot.destination.clone();
    let mut writer = PartWriter::new(destination, &staging, 0, "a", encoder, form, None).unwrap();
    writer.push(&batch(&share(0)), &mut || true).unwrap();
    let manifest = writer.finish(&mut || true).unwrap();
    spot.commit(&staging, vec![manifest]).unwrap();
    let mut names = spot.names();
    assert!(names.contains(&"shard.00000-00000.mds.zstd".to_owned()));
    for name in ["shard.00000-00000.mds", "shard.00000-00099.mds"] {
        std::fs::write(spot.folder().join(name), b"x").unwrap();
    }
    let options = GcOptions {
        delete: true,
        ..GcOptions::default()
    };
    let found = gc(&spot.destination, &options, &mut || true)
        .unwrap()
        .entries;
    let found: Vec<&str> = found.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(found, ["shard.00000-00099.mds"]);
    names.push("shard.00000-00000.mds".to_owned());
    names.sort();
    assert_eq!(spot.names(), names);
}
