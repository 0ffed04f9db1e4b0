//! Tests disks that are full, read-only or out of inodes, and a low limit on open files.

use std::path::PathBuf;
use std::process::Command;

use crate::lab::{Golden, Lab, SETTINGS, SLOW, expect, rounds};

/// A small file system in memory, unmounted when dropped.
struct Disk {
    path: PathBuf,
}

impl Disk {
    /// Mounts a file system in the lab; `None` if that is not permitted.
    fn mount(lab: &Lab, options: &str) -> Option<Self> {
        let path = lab.at("disk");
        std::fs::create_dir_all(&path).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "shardmill-test"])
            .arg(&path)
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self { path }),
            Ok(output) => {
                println!(
                    "SKIP a file system cannot be mounted: {}",
                    String::from_utf8_lossy(&output.stderr).trim()
                );
                None
            }
            Err(error) => {
                println!("SKIP there is no mount: {error}");
                None
            }
        }
    }

    fn remount(&self, options: &str) {
        let status = Command::new("mount")
            .args(["-o", &format!("remount,{options}")])
            .arg(&self.path)
            .status()
            .unwrap();
        assert!(status.success(), "remount {options}");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}

/// Runs a conversion with too little of a resource, and then with enough of it, which must give the expected bytes.
fn starve(lab: &Lab, golden: &Golden, options: &str, enough: &str, id: &str) -> Option<bool> {
    let disk = Disk::mount(lab, options)?;
    let ended = lab.run(&mut lab.convert(&golden.setting, "disk/dest"));
    let starved = ended.code() != Some(0);
    if starved {
        expect(&ended, 7, id);
        assert!(
            ended.errors().contains("disk/dest"),
            "the path is not named: {}",
            ended.errors()
        );
        lab.check_interrupted(golden, "disk/dest", options);
        assert!(!lab.at("disk/dest/index.json").exists());
    }
    disk.remount(enough);
    lab.finish(golden, "disk/dest", &[], &format!("after {options}"));
    Some(starved)
}

#[test]
fn conversion_resumes_after_a_full_disk() {
    let lab = Lab::new(&SETTINGS[..3]);
    for setting in &SETTINGS[..3] {
        let golden = lab.golden(setting);
        let dest = format!("golden {}", setting.name);
        let bytes: u64 = golden
            .files
            .files()
            .map(|name| {
                lab.at(&dest)
                    .join(name)
                    .metadata()
                    .unwrap()
                    .len()
                    .next_multiple_of(4096)
            })
            .sum();
        // From the first shard to the last page, so that space also runs out for the journal, the side file and the
        // index.
        let mut sizes = vec![64 << 10, bytes / 4, bytes / 2, bytes * 3 / 4];
        sizes.extend(
            (0..rounds() as u64 / 3).map(|page| bytes.saturating_sub(12 << 10) + page * 4096),
        );
        let mut starved = 0;
        for size in &sizes {
            let Some(short) = starve(
                &lab,
                &golden,
                &format!("size={size}"),
                "size=64m",
                "disk-full",
            ) else {
                return;
            };
            starved += usize::from(short);
        }
        println!(
            "disk: {}: {starved} of {} sizes were too small",
            setting.name,
            sizes.len()
        );
        assert!(starved >= 4);
    }
}

#[test]
fn conversion_resumes_after_running_out_of_inodes() {
    let lab = Lab::new(&SETTINGS[..1]);
    let golden = lab.golden(&SETTINGS[0]);
    let mut starved = 0;
    for inodes in [2, 3, 4, 5, 6, 7, 8, 12, 20, 25, 30] {
        let Some(short) = starve(
            &lab,
            &golden,
            &format!("size=64m,nr_inodes={inodes}"),
            "nr_inodes=10000",
            "disk-full",
        ) else {
            return;
        };
        starved += usize::from(short);
    }
    assert!(starved >= 8, "{starved}");
}

#[test]
fn conversion_resumes_after_a_read_only_disk() {
    let lab = Lab::new(&[SLOW]);
    let golden = lab.golden(&SLOW);
    let Some(disk) = Disk::mount(&lab, "size=64m") else {
        return;
    };
    let running = lab.in_the_middle(&SLOW, "disk/dest", 3);
    running.signal(rustix::process::Signal::KILL).unwrap();
    running.end(crate::lab::HANGS).unwrap();
    disk.remount("ro");
    let before = lab.snapshot("disk/dest");
    lab.fails(&SLOW, "disk/dest", &[], 8, "permission");
    assert_eq!(
        before.touched(&lab.snapshot("disk/dest")),
        Vec::<String>::new()
    );
    lab.fails(&SLOW, "disk/new", &[], 8, "permission");
    disk.remount("rw");
    lab.finish(&golden, "disk/dest", &[], "after a disk that was read-only");
    disk.remount("ro");
    // Detecting that the conversion is complete requires no writes.
    let ended = lab.ok(&SLOW, "disk/dest", &[]);
    assert!(ended.output().contains("already complete"));
    lab.verify("disk/dest");
}

#[test]
fn conversion_resumes_after_too_many_open_files() {
    let lab = Lab::new(&SETTINGS[..2]);
    let golden = lab.golden(&SETTINGS[1]);
    let mut starved = 0;
    for max in 8..24 {
        let convert = lab.convert(&golden.setting, "dest");
        let mut command = Command::new("sh");
        command
            .current_dir(lab.path())
            .args(["-c", &format!("ulimit -n {max}; exec \"$@\""), "sh"])
            .arg(convert.get_program())
            .args(convert.get_args());
        let ended = lab.run(&mut command);
        if ended.code() != Some(0) {
            expect(&ended, 7, "too-many-files");
            starved += 1;
            lab.check_interrupted(&golden, "dest", &format!("{max} open files"));
            assert!(!lab.at("dest/index.json").exists());
        }
        lab.finish(&golden, "dest", &[], &format!("after {max} open files"));
        lab.remove("dest");
    }
    println!("files: {starved} of 16 limits were too low");
    assert!(starved > 0);
}
