//! Snapshots of directories, to compare them with each other or with a later state.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Thing {
    /// A regular file: its length and a digest of its contents.
    File {
        bytes: u64,
        digest: u128,
    },
    Directory,
    /// A symbolic link and its target.
    Link(PathBuf),
    /// A pipe, a socket or a device, which is never opened.
    Special,
}

/// All names below a directory with their types and contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    things: BTreeMap<PathBuf, Thing>,
    // Separate, because snapshots with the same contents and other times are equal.
    times: BTreeMap<PathBuf, (i64, i64, u64)>,
}

impl Snapshot {
    /// Takes a snapshot of everything below a directory; an empty one if the directory does not exist.
    ///
    /// # Errors
    ///
    /// Returns errors of listing and reading.
    pub fn of(root: &Path) -> io::Result<Self> {
        let mut snapshot = Self::default();
        match snapshot.add(root, Path::new("")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !root.exists() => {
                Ok(Self::default())
            }
            result => result.map(|()| snapshot),
        }
    }

    fn add(&mut self, root: &Path, below: &Path) -> io::Result<()> {
        for entry in fs::read_dir(root.join(below))? {
            let entry = entry?;
            let name = below.join(entry.file_name());
            let metadata = entry.metadata()?;
            let kind = metadata.file_type();
            let thing = if kind.is_dir() {
                self.add(root, &name)?;
                Thing::Directory
            } else if kind.is_symlink() {
                Thing::Link(fs::read_link(entry.path())?)
            } else if kind.is_file() {
                // A file without allocated blocks consists of zeros, so it need not be read.
                let hole = metadata.blocks() == 0 && metadata.len() > 1 << 20;
                let (bytes, digest) = if hole {
                    (metadata.len(), 0)
                } else {
                    digest(&entry.path())?
                };
                Thing::File { bytes, digest }
            } else {
                Thing::Special
            };
            if !kind.is_dir() {
                self.times.insert(
                    name.clone(),
                    (metadata.mtime(), metadata.mtime_nsec(), metadata.ino()),
                );
            }
            self.things.insert(name, thing);
        }
        Ok(())
    }

    /// Returns whether the snapshot is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.things.is_empty()
    }

    /// Returns the names of the regular files, in order.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.things
            .iter()
            .filter(|(_, thing)| matches!(thing, Thing::File { .. }))
            .map(|(name, _)| name.as_path())
    }

    /// Returns whether a name exists.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.things.contains_key(Path::new(name))
    }

    /// Returns the snapshot without the entries called `name` and everything below them.
    #[must_use]
    pub fn without(&self, name: &str) -> Self {
        let kept = |path: &PathBuf| {
            !path
                .components()
                .any(|part| part.as_os_str() == OsStr::new(name))
        };
        let mut rest = self.clone();
        rest.things.retain(|path, _| kept(path));
        rest.times.retain(|path, _| kept(path));
        rest
    }

    /// Returns the differences of `after`, one line each; none if the contents are the same.
    #[must_use]
    pub fn differences(&self, after: &Self) -> Vec<String> {
        let names: BTreeSet<&PathBuf> = self.things.keys().chain(after.things.keys()).collect();
        let line = |name: &&PathBuf| match (self.things.get(*name), after.things.get(*name)) {
            (Some(_), None) => Some(format!("{} is gone", name.display())),
            (None, Some(thing)) => Some(format!("{} is new: {}", name.display(), describe(thing))),
            (Some(a), Some(b)) if a != b => Some(format!(
                "{} was {}, is {}",
                name.display(),
                describe(a),
                describe(b)
            )),
            _ => None,
        };
        names.iter().filter_map(line).collect()
    }

    /// Returns [`Snapshot::differences`], and the files that were rewritten with the same contents.
    #[must_use]
    pub fn touched(&self, after: &Self) -> Vec<String> {
        let mut lines = self.differences(after);
        for (name, time) in &self.times {
            if after.times.get(name).is_some_and(|other| other != time) {
                lines.push(format!("{} was written again", name.display()));
            }
        }
        lines
    }
}

fn describe(thing: &Thing) -> String {
    match thing {
        Thing::File { bytes, digest } => format!("a file of {bytes} bytes ({:08x})", digest >> 96),
        Thing::Directory => "a directory".to_owned(),
        Thing::Link(to) => format!("a link to {}", to.display()),
        Thing::Special => "a special file".to_owned(),
    }
}

fn digest(path: &Path) -> io::Result<(u64, u128)> {
    let mut file = fs::File::open(path)?;
    let mut digest = Xxh3::new();
    let mut buffer = vec![0; 1 << 18];
    let mut bytes = 0;
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok((bytes, digest.digest128()));
        }
        digest.update(buffer.get(..read).unwrap_or_default());
        bytes += read as u64;
    }
}

/// Copies the files and directories below `from` into the new directory `to`. Links and special files are omitted.
///
/// # Errors
///
/// Returns errors of reading and writing.
pub fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        let target = to.join(entry.file_name());
        if kind.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_detects_changed_contents_names_and_times() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("d")).unwrap();
        fs::write(root.path().join("d/a"), "1").unwrap();
        std::os::unix::fs::symlink("a", root.path().join("d/link")).unwrap();
        let before = Snapshot::of(root.path()).unwrap();
        assert!(before.has("d/a") && before.has("d/link") && !before.is_empty());
        assert_eq!(before.files().collect::<Vec<_>>(), [Path::new("d/a")]);
        assert!(
            before
                .touched(&Snapshot::of(root.path()).unwrap())
                .is_empty()
        );

        let copy = root.path().join("copy");
        copy_tree(&root.path().join("d"), &copy).unwrap();
        assert_eq!(fs::read(copy.join("a")).unwrap(), b"1");
        fs::remove_dir_all(&copy).unwrap();

        fs::remove_file(root.path().join("d/a")).unwrap();
        fs::write(root.path().join("d/b"), "1").unwrap();
        let after = Snapshot::of(root.path()).unwrap();
        assert_eq!(before.differences(&after).len(), 2);
        fs::rename(root.path().join("d/b"), root.path().join("d/a")).unwrap();
        let again = Snapshot::of(root.path()).unwrap();
        assert!(before.differences(&again).is_empty());
        assert_eq!(before.touched(&again), ["d/a was written again"]);
        fs::write(root.path().join("d/a"), "2").unwrap();
        assert_eq!(
            before
                .differences(&Snapshot::of(root.path()).unwrap())
                .len(),
            1
        );
        assert!(again.without("d").is_empty());
        assert!(
            Snapshot::of(&root.path().join("nowhere"))
                .unwrap()
                .is_empty()
        );
    }
}
