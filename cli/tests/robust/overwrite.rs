//! Tests `--overwrite`: it leaves the old dataset, the new one, or none, but never a mix.

use crate::lab::{Golden, Lab, SETTINGS, draw, moment, rounds};

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
            // Any index, of the old or the new dataset, must belong to a complete dataset.
            let left = lab.snapshot("dest");
            for index in left.files().filter(|name| name.ends_with("index.json")) {
                let folder = index.parent().unwrap().display();
                lab.verify(&format!("dest/{folder}"));
            }
        }
        // Without `--overwrite`, the run resumes if the old dataset is removed, and refuses otherwise.
        if round % 2 == 0 {
            let ended = lab.run(&mut lab.convert(&golden.setting, "dest"));
            match ended.code() {
                Some(0) => lab.check_golden(golden, "dest", "gone on without --overwrite"),
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
