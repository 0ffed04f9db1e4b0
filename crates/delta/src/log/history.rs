//! Lists the changes of a table since a version: its current files, and the commits that led to them.

use delta_kernel::KernelError;

use super::DeltaTable;
use super::log_file::{Action, Line, LogFile};
use crate::summary::{DeltaCommit, DeltaFile, DeltaHistory, VersionChoice};
use shardmill_core::Error;
use shardmill_core::catch_panic::one_line;

impl DeltaTable {
    /// Returns the requested version, or the latest, and the commits after `after`.
    pub(super) fn changes(
        &self,
        choice: &VersionChoice,
        after: u64,
    ) -> Result<DeltaHistory, Error> {
        let snapshot = self.snapshot(choice)?;
        self.check_commit(snapshot.version())?;
        self.check_features(&snapshot)?;
        let version = snapshot.version();
        let files = self.files(&snapshot)?;
        let configuration = snapshot.table_configuration();
        Ok(DeltaHistory {
            version,
            id: configuration.metadata().id().to_owned(),
            files: files.iter().map(LogFile::named).collect(),
            commits: self.commits(after, version)?,
        })
    }

    /// Returns the commits after `after` up to `version`; `None` if one of them no longer exists.
    fn commits(&self, after: u64, version: u64) -> Result<Option<Vec<DeltaCommit>>, Error> {
        let mut commits = Vec::new();
        for version in after.saturating_add(1)..=version {
            let (name, url) = self.commit_file(version)?;
            let read = self.engine.storage_handler().read_files(vec![(url, None)]);
            let read = read.and_then(|mut files| files.next().transpose());
            let text = match read {
                Ok(Some(text)) => text,
                Ok(None) => return Ok(None),
                Err(error) if is_missing(&error) => return Ok(None),
                Err(error) => return Err(self.failed(&error)),
            };
            commits.push(self.commit(&name, &text)?);
        }
        Ok(Some(commits))
    }

    fn commit(&self, name: &str, text: &[u8]) -> Result<DeltaCommit, Error> {
        let mut commit = DeltaCommit {
            rearranges: true,
            removed: Vec::new(),
            added: Vec::new(),
        };
        let lines = text.split(|byte| *byte == b'\n');
        for line in lines.filter(|line| !line.trim_ascii().is_empty()) {
            let line: Line = serde_json::from_slice(line)
                .map_err(|error| self.wrong(format!("{name}: {}", one_line(&error.to_string()))))?;
            for (action, files) in [
                (line.remove, &mut commit.removed),
                (line.add, &mut commit.added),
            ] {
                if let Some(action) = action {
                    commit.rearranges &= !action.data_change;
                    files.push(self.named(&action)?);
                }
            }
        }
        Ok(commit)
    }

    fn named(&self, action: &Action) -> Result<DeltaFile, Error> {
        Ok(DeltaFile {
            path: self.path(&action.path)?.shown,
            deletion: action.deletion(),
        })
    }
}

fn is_missing(error: &KernelError) -> bool {
    match error.without_backtrace() {
        KernelError::FileNotFound(_) => true,
        KernelError::ObjectStore(error) => {
            matches!(error, delta_kernel::object_store::Error::NotFound { .. })
        }
        KernelError::IOError(error) => error.kind() == std::io::ErrorKind::NotFound,
        _ => false,
    }
}
