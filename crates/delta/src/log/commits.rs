//! Names the commit that is damaged or incomplete.

use delta_kernel::KernelError;
use serde::de::IgnoredAny;
use url::Url;

use super::DeltaTable;
use shardmill_core::Error;
use shardmill_core::catch_panic::one_line;

/// The most commits that are read to find the damaged one.
const MAX_COMMITS: usize = 1000;

impl DeltaTable {
    /// Converts an error of the kernel, and names the damaged commit if there is one.
    pub(super) fn with_damaged_commit(&self, error: &KernelError) -> Error {
        let failed = self.failed(error);
        // The kernel reports what it could not parse, but not the file.
        let message = failed.to_string().to_ascii_lowercase();
        if failed.id() != "delta-log" || !message.contains("json") {
            return failed;
        }
        // If commits cannot be listed or read now, the first error is the one to report.
        let damaged = self.damaged().unwrap_or_default();
        damaged.map_or(failed, |reason| self.wrong(reason))
    }

    /// Describes the damage of the last damaged commit.
    fn damaged(&self) -> Result<Option<String>, KernelError> {
        let storage = self.engine.storage_handler();
        let mut commits: Vec<(String, Url)> = Vec::new();
        for file in storage.list_from(&self.root.join("_delta_log/")?)? {
            let file = file?.location;
            let name = file.path().rsplit('/').next().unwrap_or_default();
            let stem = name.strip_suffix(".json").unwrap_or_default();
            if stem.len() == 20 && stem.bytes().all(|byte| byte.is_ascii_digit()) {
                commits.push((format!("_delta_log/{name}"), file));
            }
        }
        for (name, commit) in commits.into_iter().rev().take(MAX_COMMITS) {
            let Some(text) = storage.read_files(vec![(commit, None)])?.next() else {
                continue;
            };
            let text = text?;
            if text.trim_ascii().is_empty() {
                return Ok(Some(format!("{name} is empty")));
            }
            for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
                if line.trim_ascii().is_empty() {
                    continue;
                }
                if let Err(error) = serde_json::from_slice::<IgnoredAny>(line) {
                    let reason = one_line(&error.to_string());
                    let reason = reason.split(" at line ").next().unwrap_or_default();
                    return Ok(Some(format!("{name} line {number}: {reason}")));
                }
            }
        }
        Ok(None)
    }

    /// Returns the name and the URL of the commit file of a version.
    pub(super) fn commit_file(&self, version: u64) -> Result<(String, Url), Error> {
        let name = format!("_delta_log/{version:020}.json");
        let url = self.root.join(&name);
        let url = url.map_err(|_| self.wrong(format!("{name} is no URL")))?;
        Ok((name, url))
    }

    /// Refuses a version whose commit file exists but is empty: its writer did not finish.
    pub(super) fn check_commit(&self, version: u64) -> Result<(), Error> {
        let (name, url) = self.commit_file(version)?;
        match self.engine.storage_handler().head(&url) {
            Ok(file) if file.size == 0 => Err(self.wrong(format!("{name} is empty"))),
            // A version without a commit file has a checkpoint.
            _ => Ok(()),
        }
    }
}
