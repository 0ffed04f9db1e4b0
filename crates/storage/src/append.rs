//! A file that grows by whole lines.

use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};

use crate::dir::Dir;
use crate::error::StorageError;
use crate::file::FileHandle;

/// A file to which lines are appended, with one write per line.
///
/// A process that is killed leaves at most the last line incomplete. Nothing is synchronised to the disk, so contents
/// that are read after a crash have to be checked.
#[derive(Debug)]
pub struct AppendFile {
    file: File,
    path: PathBuf,
}

impl AppendFile {
    /// Opens the file `name` in `dir` and truncates it to its first `keep_bytes` bytes. Creates the file if it is
    /// missing.
    pub fn open(dir: &Dir, name: &str, keep_bytes: u64) -> Result<Self, StorageError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK;
        let handle = dir.open_at(name, "open for adding", flags, Mode::RUSR | Mode::WUSR)?;
        let path = dir.path_of(name);
        let mut file = FileHandle::from_handle(handle, path.clone())?.into_file();
        file.set_len(keep_bytes)
            .and_then(|()| file.seek(SeekFrom::End(0)))
            .map_err(|error| StorageError::io("cut", path.clone(), error))?;
        Ok(Self { file, path })
    }

    /// Appends one line.
    pub fn add_line(&mut self, line: &str) -> Result<(), StorageError> {
        self.file
            .write_all(format!("{line}\n").as_bytes())
            .map_err(|error| StorageError::io("add to", self.path.clone(), error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn add_line_appends_after_the_kept_bytes() {
        let root = tempfile::tempdir().unwrap();
        let dir = Dir::open(root.path()).unwrap();
        let mut file = AppendFile::open(&dir, "journal", 0).unwrap();
        file.add_line("one").unwrap();
        file.add_line("two").unwrap();
        drop(file);
        AppendFile::open(&dir, "journal", 4)
            .unwrap()
            .add_line("three")
            .unwrap();
        assert_eq!(
            dir.open_file("journal").unwrap().read_all(100).unwrap(),
            b"one\nthree\n"
        );
    }
}
