//! Makes each system call in turn fail, or kills the process there. Needs strace.

use std::process::Command;

use shardmill_testing::process::Ended;

use crate::lab::{Lab, SETTINGS, Setting, expect, rounds};

/// System calls that change a file system.
const CHANGES: &str = "fsync,fdatasync,rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,mkdirat,ftruncate,pwrite64,pwritev,flock,fallocate,sync_file_range";

/// Few shards, so that every call can be hit.
const FEW: Setting = Setting {
    name: "few shards",
    source: "tree",
    options: &["--samples-per-shard", "25", "--jobs", "1"],
    folders: &[""],
};
const FEW_SPLITS: Setting = Setting {
    name: "few shards in splits",
    source: "tree",
    options: &[
        "--samples-per-shard",
        "100",
        "--jobs",
        "2",
        "--split",
        "a=0.5,b=0.5",
        "--to",
        "mds",
        "--compression",
        "none",
    ],
    folders: &["a", "b"],
};

/// Returns whether processes can be traced on this machine.
fn can_trace() -> bool {
    match Command::new("strace")
        .args([
            "-f",
            "-o",
            "/dev/null",
            "-e",
            "inject=fsync:error=EIO",
            "true",
        ])
        .output()
    {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            println!(
                "SKIP strace does not work: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
            false
        }
        Err(error) => {
            println!("SKIP there is no strace: {error}");
            false
        }
    }
}

/// Runs a conversion with a fault injected into a call. The exit code is `None` if the process was killed.
fn with_error(lab: &Lab, setting: &Setting, dest: &str, inject: &str, more: &[&str]) -> Ended {
    let mut convert = lab.convert(setting, dest);
    convert.args(more);
    let mut command = Command::new("strace");
    command
        .current_dir(lab.path())
        .args(["-f", "-qq", "-o", "/dev/null", "-e", inject]);
    lab.run(command.arg(convert.get_program()).args(convert.get_args()))
}

/// Calls are counted for each thread. Some are skipped, so that the number of hits is about that of the campaign's
/// rounds.
fn points(every: usize) -> impl Iterator<Item = usize> {
    (1..).step_by((every / rounds().max(1)).max(1))
}

/// Kills the process at the K-th call that changes something.
#[test]
fn killed_at_every_system_call() {
    if !can_trace() {
        return;
    }
    let lab = Lab::new(&[SETTINGS[5]]);
    for setting in [FEW, FEW_SPLITS] {
        let golden = lab.golden_of_few(&setting);
        let mut deaths = 0;
        for point in 1_usize.. {
            let ended = with_error(
                &lab,
                &setting,
                "dest",
                &format!("inject={CHANGES}:signal=SIGKILL:when={point}"),
                &[],
            );
            let died = ended.code() != Some(0);
            lab.check_interrupted(&golden, "dest", &format!("death at call {point}"));
            lab.finish(
                &golden,
                "dest",
                &[],
                &format!("after death at call {point}"),
            );
            lab.remove("dest");
            if !died {
                break;
            }
            deaths += 1;
        }
        println!("faults: {}: {deaths} deaths", setting.name);
        assert!(deaths >= 10, "{deaths}");
    }
}

/// Kills the process after the index is published, while it removes its temporary files. Then the source is damaged.
/// The published dataset must remain.
#[test]
fn kill_after_publishing_keeps_the_dataset() {
    if !can_trace() {
        return;
    }
    let lab = Lab::new(&[SETTINGS[5]]);
    lab.ok(&FEW, "shards", &[]);
    let setting = Setting {
        name: "shards again",
        source: "shards",
        options: &["--samples-per-shard", "70", "--jobs", "2"],
        folders: &[""],
    };
    let shard = "shards/shard.00001.mds.zstd";
    let sound = std::fs::read(lab.at(shard)).unwrap();
    let mut damaged = sound.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    let mut published = 0;
    for point in 1_usize.. {
        let inject = format!("inject=unlink,unlinkat:signal=SIGKILL:when={point}");
        let ended = with_error(&lab, &setting, "dest", &inject, &[]);
        if lab.at("dest/index.json").exists() && ended.code() != Some(0) {
            published += 1;
            std::fs::write(lab.at(shard), &damaged).unwrap();
            lab.ok(&setting, "dest", &[]);
            std::fs::write(lab.at(shard), &sound).unwrap();
            lab.verify("dest");
        }
        lab.remove("dest");
        if ended.code() == Some(0) {
            break;
        }
    }
    assert!(published >= 1, "{published}");
}

/// Kills the process at the K-th call of a resumed run.
#[test]
fn killed_while_resuming() {
    if !can_trace() {
        return;
    }
    let lab = Lab::new(&[SETTINGS[5]]);
    let golden = lab.golden_of_few(&FEW);
    let inject = |point: usize| format!("inject={CHANGES}:signal=SIGKILL:when={point}");
    for point in 1_usize.. {
        with_error(&lab, &FEW, "dest", &inject(5), &[]);
        let ended = with_error(&lab, &FEW, "dest", &inject(point), &[]);
        lab.check_interrupted(&golden, "dest", &format!("second death at call {point}"));
        lab.finish(
            &golden,
            "dest",
            &[],
            &format!("after a second death at call {point}"),
        );
        lab.remove("dest");
        if ended.code() == Some(0) {
            break;
        }
    }
}

/// Datasets that replace one another, of few shards.
const SMALL: [Setting; 7] = [
    small(
        "plain",
        &["--samples-per-shard", "20", "--compression", "none"],
        &[""],
    ),
    small("compressed", &["--samples-per-shard", "25"], &[""]),
    small(
        "splits",
        &["--samples-per-shard", "20", "--split", "a=0.3,b=0.7"],
        &["a", "b"],
    ),
    small(
        "other splits",
        &["--samples-per-shard", "25", "--split", "a=0.5,c=0.5"],
        &["a", "c"],
    ),
    small(
        "parquet",
        &["--samples-per-shard", "20", "--to", "parquet"],
        &[""],
    ),
    small(
        "tar",
        &[
            "--samples-per-shard",
            "20",
            "--to",
            "webdataset",
            "--index-for",
            "wids,dali",
        ],
        &[""],
    ),
    small(
        "other tar",
        &[
            "--samples-per-shard",
            "25",
            "--to",
            "webdataset",
            "--index-for",
            "wids,open_clip",
        ],
        &[""],
    ),
];

const fn small(
    name: &'static str,
    options: &'static [&'static str],
    folders: &'static [&'static str],
) -> Setting {
    Setting {
        name,
        source: "small tree",
        options,
        folders,
    }
}

/// Kills the process at every `step`-th call of a run that overwrites. The old or the new dataset must be there, whole. Then
/// the next run completes, also without `--overwrite` where both are the same conversion, or `gc` removes what is left.
fn killed_while_overwriting(pairs: &[[Setting; 2]], step: usize) {
    if !can_trace() {
        return;
    }
    let lab = Lab::new(&SMALL);
    for [before, after] in pairs {
        let (old, new) = (lab.golden_of_few(before), lab.golden_of_few(after));
        let mut deaths = 0;
        for point in (1..).step_by(step) {
            lab.restore(&old, "dest");
            let inject = format!("inject={CHANGES}:signal=SIGKILL:when={point}");
            let ended = with_error(&lab, after, "dest", &inject, &["--overwrite"]);
            let how = format!(
                "death at call {point} of {} over {}",
                after.name, before.name
            );
            lab.check_old_or_new(&old, &new, "dest", &how);
            if point % 2 == 0 {
                let gc = ["gc", "dest", "--delete", "--older-than", "0"];
                let gc = lab.run(lab.command().args(gc));
                assert_eq!(gc.code(), Some(0), "{how}: {}", gc.errors());
                lab.check_old_or_new(&old, &new, "dest", &format!("gc after {how}"));
                assert!(!lab.snapshot("dest").has(".shardmill"), "gc after {how}");
            }
            if before.name == after.name {
                // The dataset is that of the same conversion, so nothing has to be overwritten.
                let continued = lab.run(&mut lab.convert(after, "dest"));
                assert_eq!(continued.code(), Some(0), "{how}: {}", continued.errors());
                lab.check_replaced(&new, "dest", &format!("without --overwrite after {how}"));
            }
            lab.finish(&new, "dest", &["--overwrite"], &format!("after {how}"));
            if ended.code() == Some(0) {
                break;
            }
            deaths += 1;
        }
        println!(
            "faults: {} over {}: {deaths} deaths",
            after.name, before.name
        );
        assert!(deaths * step >= 10, "{deaths}");
    }
}

#[test]
fn killed_overwrite_leaves_the_old_or_the_new_dataset() {
    let pair = |old: usize, new: usize| [SMALL[old], SMALL[new]];
    killed_while_overwriting(&[pair(0, 1), pair(0, 0)], 2);
    killed_while_overwriting(&[pair(2, 3), pair(5, 6)], 5);
    killed_while_overwriting(&[pair(4, 0), pair(3, 4), pair(1, 2)], 7);
}

#[test]
#[ignore = "kills thousands of conversions"]
fn killed_overwrite_of_every_format_leaves_the_old_or_the_new_dataset() {
    for old in SMALL {
        killed_while_overwriting(&SMALL.map(|new| [old, new]), 1);
    }
}

/// Makes the K-th call fail. The run must end with the exit code of that error and without an index, and the next run
/// completes.
#[test]
fn error_at_every_system_call_is_reported_and_resumed() {
    if !can_trace() {
        return;
    }
    let lab = Lab::new(&[SETTINGS[5]]);
    let golden = lab.golden_of_few(&FEW);
    let kinds = [
        ("EIO", 6, "io"),
        ("ENOSPC", 7, "disk-full"),
        ("EDQUOT", 7, "disk-full"),
        ("EACCES", 8, "permission"),
        ("EROFS", 8, "permission"),
    ];
    let (mut failures, mut reported, mut number) = (0, 0, 0);
    for call in [
        "fsync",
        "fdatasync",
        "rename,renameat,renameat2",
        "link,linkat",
        "unlink,unlinkat",
        "mkdir,mkdirat",
        "write",
        "ftruncate",
        "getdents64",
        "openat2",
    ] {
        for point in points(120) {
            let (error, code, id) = kinds[number % kinds.len()];
            number += 1;
            let how = format!("{error} of call {point} of {call}");
            let ended = with_error(
                &lab,
                &FEW,
                "dest",
                &format!("inject={call}:error={error}:when={point}"),
                &[],
            );
            if ended.code() != Some(0) {
                failures += 1;
                assert_eq!(ended.code(), Some(code), "{how}: {}", ended.errors());
                // Calls are counted by thread, so the failing write may also be that of the message.
                let lost = call == "write" && ended.errors().is_empty();
                if !lost {
                    reported += usize::from(call == "write");
                    expect(&ended, code, id);
                }
            }
            lab.check_interrupted(&golden, "dest", &how);
            lab.finish(&golden, "dest", &[], &how);
            lab.remove("dest");
            if ended.code() == Some(0) {
                break;
            }
        }
    }
    println!("faults: {failures} errors of calls; {reported} writes that failed were reported");
    assert!(failures >= 10, "{failures}");
    assert!(reported > 0, "no message of a failed write came through");
}
