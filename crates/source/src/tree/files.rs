//! Opens, fetches and reads the files of a tree.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::fs::{Mode, OFlags, openat};
use shardmill_core::Error;
use shardmill_storage::Location;

use super::group::Samples;
use crate::SourceProblem;
use crate::error;
use crate::file_names::join;
use crate::files::shown_below;
use crate::objects::Store;
use crate::walk::{FileVersion, Listing, path_of};

/// One directory of a tree source, or one prefix of a store.
pub(super) struct Root {
    /// The location as given.
    pub location: Location,
    pub files: Files,
    /// The end of its files in the listing.
    pub end: usize,
}

/// The directory or store that files are opened in.
pub(super) enum Files {
    Directory(File),
    Store(Arc<Store>, String),
}

/// What the rows of all units share.
pub(super) struct Shared {
    pub locations: Vec<Root>,
    /// The files of all locations, in their order.
    pub listing: Listing,
    pub samples: Samples,
    pub follow_links: bool,
    pub batch_bytes: u64,
}

impl Shared {
    /// Returns the location of a file, by its number.
    pub(super) fn location(&self, file: usize) -> usize {
        self.locations.partition_point(|root| root.end <= file)
    }

    fn files(&self, file: usize) -> Option<&Files> {
        self.locations
            .get(self.location(file))
            .map(|root| &root.files)
    }

    pub(super) fn file_version(&self, file: usize) -> FileVersion {
        self.listing
            .get(file)
            .map_or(FileVersion::default(), |(_, own)| *own)
    }

    pub(super) fn path(&self, file: usize) -> &str {
        path_of(&self.listing, file)
    }

    pub(super) fn key(&self, sample: usize) -> &str {
        let first = self.samples.first_file(sample);
        first.map_or("", |file| self.samples.key_of(self.path(file)))
    }

    pub(super) fn shown(&self, file: usize) -> String {
        let root = self.locations.get(self.location(file));
        root.map_or(String::new(), |root| {
            shown_below(&root.location, self.path(file))
        })
    }

    /// Fetches those of the files that are in stores, with concurrent requests.
    pub(super) fn fetch(&self, files: &[usize]) -> Result<BTreeMap<usize, Vec<u8>>, Error> {
        let mut fetched = BTreeMap::new();
        for same in files.chunk_by(|a, b| self.location(*a) == self.location(*b)) {
            let first = same.first().and_then(|file| self.files(*file));
            let Some(Files::Store(store, folder)) = first else {
                continue;
            };
            let wanted: Vec<(String, u64)> = same
                .iter()
                .map(|file| {
                    let name = join(folder, self.path(*file));
                    (name, self.file_version(*file).bytes)
                })
                .collect();
            let found = store.remote().read_many(&wanted);
            for ((file, (name, _)), found) in same.iter().zip(&wanted).zip(found) {
                let object = store.named(name);
                let file_version = self.file_version(*file);
                let bytes = found.map_err(|error| object.changed(error.into(), file_version))?;
                fetched.insert(*file, bytes);
            }
        }
        Ok(fetched)
    }

    /// Appends the contents of a file, provided that it is still the one that was listed.
    pub(super) fn read(&self, file: usize, bytes: &mut Vec<u8>) -> Result<(), Error> {
        let Some(Files::Directory(directory)) = self.files(file) else {
            return Ok(());
        };
        let file_version = self.file_version(file);
        let failed =
            |action, error: rustix::io::Errno| error::io(action, self.shown(file), error.into());
        // Do not block: since the listing, a pipe may have replaced the file.
        let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        if !self.follow_links {
            flags |= OFlags::NOFOLLOW;
        }
        let opened = openat(directory, self.path(file), flags, Mode::empty());
        let opened = opened.map_err(|error| match error {
            rustix::io::Errno::LOOP if !self.follow_links => {
                SourceProblem::TreeSymlink.at(self.shown(file), "is a symbolic link")
            }
            error => failed("open", error),
        })?;
        let start = bytes.len();
        let size = usize::try_from(file_version.bytes).unwrap_or(usize::MAX);
        bytes.reserve(size);
        while bytes.len() - start < size {
            match rustix::io::read(&opened, spare_capacity(bytes)) {
                Ok(0) => break,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(failed("read", error)),
            }
        }
        let metadata = std::fs::File::from(opened).metadata();
        let metadata = metadata.map_err(|source| error::io("read", self.shown(file), source))?;
        // Check after reading, so that a change before or during it is noticed.
        if file_version != FileVersion::of(&metadata) {
            file_version.check(&self.shown(file), &metadata)?;
        }
        if bytes.len() - start == size {
            return Ok(());
        }
        let (shown, found) = (self.shown(file), (bytes.len() - start) as u64);
        let listed = file_version.bytes;
        Err(error::changed(&shown, listed, found, false))
    }
}
