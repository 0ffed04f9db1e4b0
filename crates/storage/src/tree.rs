//! Lists all files below a directory.

use std::path::Path;

use rustix::fs::{AtFlags, FileType, statat};
use rustix::io::Errno;

use crate::dir::Dir;
use crate::entry::{EntryKind, ListedFile};
use crate::error::{StorageError, check_name};

/// The maximum depth. No real dataset is deeper, but loops of bind mounts are.
const MAX_DEPTH: usize = 128;

impl Dir {
    /// Returns the regular files below the directory whose names `wanted` accepts, sorted by the bytes of their names.
    /// Their tags are the modification times in nanoseconds since 1970.
    ///
    /// Symbolic links are not followed. An accepted name that is a link or not a regular file is an error. `wanted` is
    /// not called for directories.
    ///
    /// # Errors
    ///
    /// `Permission`, `Storage`; [`StorageError::Symlink`], [`StorageError::NotRegular`]; [`StorageError::Name`] for a
    /// name that is not UTF-8 or that [`Dir::open_file`] would refuse.
    pub fn files(
        &self,
        wanted: &(dyn Fn(&str) -> bool + Sync),
    ) -> Result<Vec<ListedFile>, StorageError> {
        let mut found = Vec::new();
        // Not recursive: the depth of the tree does not use stack.
        let mut open = vec![(String::new(), 0_usize)];
        while let Some((prefix, depth)) = open.pop() {
            let here = match prefix.trim_end_matches('/') {
                "" => self.clone(),
                name => self.open_dir(name)?,
            };
            for entry in here.entries()? {
                let lossy = entry.name.to_string_lossy();
                let name = format!("{prefix}{lossy}");
                if entry.kind == EntryKind::Directory {
                    Self::check_known(&entry.name, &name)?;
                    if depth >= MAX_DEPTH {
                        return Err(StorageError::Name {
                            name,
                            source: shardmill_core::NameError::TooLong,
                        });
                    }
                    open.push((format!("{name}/"), depth + 1));
                    continue;
                }
                if !wanted(&name) {
                    continue;
                }
                Self::check_known(&entry.name, &name)?;
                match entry.kind {
                    EntryKind::File => {}
                    EntryKind::Symlink => {
                        return Err(StorageError::Symlink {
                            path: self.path_of(&name),
                        });
                    }
                    kind => {
                        return Err(StorageError::NotRegular {
                            path: self.path_of(&name),
                            found: kind,
                        });
                    }
                }
                found.extend(here.listed(Path::new(&entry.name), name)?);
            }
        }
        found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// Checks that a listed name is UTF-8 and allowed.
    fn check_known(raw: &std::ffi::OsStr, name: &str) -> Result<(), StorageError> {
        if raw.to_str().is_none() {
            return Err(StorageError::Name {
                name: name.to_owned(),
                source: shardmill_core::NameError::Character,
            });
        }
        check_name(name)
    }

    /// Returns the listing entry of a file; `None` if it was removed since its directory was read.
    fn listed(&self, own: &Path, name: String) -> Result<Option<ListedFile>, StorageError> {
        let stat = match statat(self.fd()?, own, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => {
                return Err(StorageError::io("look up", self.path().join(own), errno));
            }
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        let tag = crate::file::tag_of(&stat);
        Ok(Some(ListedFile {
            name,
            bytes: u64::try_from(stat.st_size).unwrap_or_default(),
            tag,
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStrExt as _;

    use shardmill_core::Diagnostic as _;

    use super::*;

    fn names(dir: &Dir, wanted: &(dyn Fn(&str) -> bool + Sync)) -> Vec<String> {
        let files = dir.files(wanted).unwrap();
        files.into_iter().map(|file| file.name).collect()
    }

    #[test]
    fn files_are_listed_in_byte_order_with_length_and_time() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: usize| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, vec![b'x'; bytes]).unwrap();
        };
        for (name, bytes) in [
            ("b", 1),
            ("a/z", 2),
            ("a-1", 3),
            (".h", 4),
            ("a/ä ö.jpg", 5),
        ] {
            write(name, bytes);
        }
        fs::create_dir(root.path().join("empty")).unwrap();
        let dir = Dir::open(root.path()).unwrap();
        assert_eq!(
            names(&dir, &|_| true),
            [".h", "a-1", "a/z", "a/ä ö.jpg", "b"]
        );
        assert_eq!(names(&dir, &|name| name.ends_with('z')), ["a/z"]);
        for found in dir.files(&|_| true).unwrap() {
            let file = dir.open_file(&found.name).unwrap();
            assert_eq!((file.len(), file.tag()), (found.bytes, found.tag));
        }
        let before = dir.files(&|name| name == "b").unwrap();
        let file = fs::File::options()
            .append(true)
            .open(root.path().join("b"))
            .unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH)
            .unwrap();
        let after = dir.files(&|name| name == "b").unwrap();
        assert_eq!(after[0].tag, "0");
        assert_ne!(after, before);
    }

    #[test]
    fn wanted_symlinks_and_non_utf8_names_are_rejected() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("a"), "a").unwrap();
        std::os::unix::fs::symlink("a", root.path().join("l")).unwrap();
        let dir = Dir::open(root.path()).unwrap();
        assert_eq!(dir.files(&|_| true).unwrap_err().id(), "path-symlink");
        assert_eq!(names(&dir, &|name| name != "l"), ["a"]);
        fs::remove_file(root.path().join("l")).unwrap();
        fs::write(root.path().join(std::ffi::OsStr::from_bytes(b"\xff")), "").unwrap();
        assert_eq!(dir.files(&|_| true).unwrap_err().id(), "path-character");
        assert_eq!(names(&dir, &|name| name == "a"), ["a"]);
    }
}
