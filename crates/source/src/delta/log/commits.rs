//! Commits that are not whole, by name.

use delta_kernel::{Engine, KernelError};
use serde::de::IgnoredAny;
use url::Url;

use super::{DeltaError, Log};
use crate::SourceError;
use crate::catch_panic::one_line;

/// Commits that are looked at to find the one that is damaged.
const MOST_COMMITS: usize = 1000;

impl Log<'_> {
    /// An error of the kernel in our words, with the commit that it is about where one is damaged.
    pub(super) fn blamed(&self, engine: &dyn Engine, error: &KernelError) -> SourceError {
        let failed = self.failed(error);
        // The kernel says what it could not parse, and not where that stands.
        let is_syntax = match &failed {
            SourceError::Delta(DeltaError::Log { reason, .. }) => {
                reason.to_ascii_lowercase().contains("json")
            }
            _ => false,
        };
        if !is_syntax {
            return failed;
        }
        // What cannot be listed or read now is what the first error says.
        let damaged = self.damaged(engine).unwrap_or_default();
        damaged.map_or(failed, |reason| self.wrong(reason))
    }

    /// What is wrong with the last commit that is damaged.
    fn damaged(&self, engine: &dyn Engine) -> Result<Option<String>, KernelError> {
        let storage = engine.storage_handler();
        let mut commits: Vec<Url> = Vec::new();
        for file in storage.list_from(&self.root.join("_delta_log/")?)? {
            let file = file?;
            if file.location.path().ends_with(".json") && is_commit(&file.location) {
                commits.push(file.location);
            }
        }
        for commit in commits.into_iter().rev().take(MOST_COMMITS) {
            let name = name_of(&commit);
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

    /// Refuses a version whose commit is there and has nothing in it: whoever wrote it did not finish.
    pub(super) fn check_commit(
        &self,
        engine: &dyn Engine,
        version: u64,
    ) -> Result<(), SourceError> {
        let name = format!("_delta_log/{version:020}.json");
        let url = self.root.join(&name);
        let url = url.map_err(|_| self.wrong(format!("{name} is no URL")))?;
        match engine.storage_handler().head(&url) {
            Ok(file) if file.size == 0 => Err(self.wrong(format!("{name} is empty"))),
            // Of a version whose commit is gone there is a checkpoint.
            _ => Ok(()),
        }
    }
}

fn is_commit(file: &Url) -> bool {
    let name = file.path().rsplit('/').next().unwrap_or_default();
    let stem = name.strip_suffix(".json").unwrap_or_default();
    stem.len() == 20 && stem.bytes().all(|byte| byte.is_ascii_digit())
}

fn name_of(commit: &Url) -> String {
    let name = commit.path().rsplit('/').next().unwrap_or_default();
    format!("_delta_log/{name}")
}
