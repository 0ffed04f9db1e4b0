//! Checks that equal input and options give equal bytes, whatever the number of threads.

use std::fs;

use crate::lab::{Lab, SETTINGS};

#[test]
fn output_bytes_are_deterministic() {
    let lab = Lab::new(&SETTINGS);
    for setting in &SETTINGS {
        let golden = lab.golden(setting);
        for (number, jobs) in ["1", "2", "5", "5"].iter().enumerate() {
            let dest = format!("{} {number}", setting.name);
            lab.ok(setting, &dest, &["--jobs", jobs]);
            lab.check_golden(&golden, &dest, &format!("{jobs} jobs"));
        }
        // Little memory, another directory, and another path to the source.
        lab.ok(
            setting,
            "deep/er/dest",
            &["--jobs", "3", "--memory-limit", "32MiB"],
        );
        lab.check_golden(&golden, "deep/er/dest", "--memory-limit 32MiB");
        lab.remove("deep");
    }
}

/// Names are sorted by bytes, so the order of directory entries does not matter.
#[test]
fn directory_entry_order_does_not_matter() {
    let setting = SETTINGS[5];
    let lab = Lab::new(&[setting]);
    let golden = lab.golden(&setting);
    let before = lab.at("tree");
    let after = lab.at("other");
    let mut files: Vec<_> = golden_files(&before);
    files.reverse();
    for name in &files {
        let target = after.join(name);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(before.join(name), &target).unwrap();
        let times = fs::metadata(before.join(name)).unwrap().modified().unwrap();
        fs::File::options()
            .write(true)
            .open(&target)
            .unwrap()
            .set_modified(times)
            .unwrap();
    }
    fs::rename(&before, lab.at("first")).unwrap();
    fs::rename(&after, &before).unwrap();
    lab.ok(&setting, "again", &[]);
    lab.check_golden(&golden, "again", "files made in another order");
}

fn golden_files(root: &std::path::Path) -> Vec<std::path::PathBuf> {
    shardmill_testing::files::Snapshot::of(root)
        .unwrap()
        .files()
        .map(ToOwned::to_owned)
        .collect()
}
