//! Mounted file systems.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted file system, unmounted when dropped.
#[derive(Debug)]
pub struct Mount {
    path: PathBuf,
}

impl Mount {
    /// Mounts an empty file system in memory at `path`, which is created where it is missing. Prints `SKIP` with the
    /// reason and returns `None` if that is not permitted.
    #[must_use]
    pub fn tmpfs(path: &Path, options: &str) -> Option<Self> {
        Self::new(path, &["-t", "tmpfs", "-o", options, "shardmill-test"])
    }

    /// Mounts the directory `from` at `path` as well, as [`Self::tmpfs`] does.
    #[must_use]
    pub fn bind(from: &Path, path: &Path) -> Option<Self> {
        Self::new(path, &["-B", from.to_str()?])
    }

    #[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
    fn new(path: &Path, arguments: &[&str]) -> Option<Self> {
        let made = fs::create_dir_all(path).and_then(|()| {
            let mut command = Command::new("mount");
            command.args(arguments).arg(path).output()
        });
        let reason = match made {
            Ok(output) if output.status.success() => {
                return Some(Self {
                    path: path.to_owned(),
                });
            }
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => error.to_string(),
        };
        println!(
            "SKIP nothing can be mounted at {}: {reason}",
            path.display()
        );
        None
    }

    /// Returns where the file system is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Changes the options of the mount, for example to `ro`. `bind`: of this mount only, and not of its file system.
    ///
    /// # Errors
    ///
    /// What `mount` reports.
    pub fn remount(&self, options: &str) -> std::io::Result<()> {
        let output = Command::new("mount")
            .args(["-o", &format!("remount,{options}")])
            .arg(&self.path)
            .output()?;
        if output.status.success() {
            return Ok(());
        }
        Err(std::io::Error::other(
            String::from_utf8_lossy(&output.stderr).into_owned(),
        ))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}
