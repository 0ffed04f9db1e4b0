//! The source of the files of a stream.

use shardmill_storage::{Dir, Remote};

/// The source that missing shards of a stream are fetched from.
#[derive(Clone, Debug)]
pub enum Origin {
    /// An object store.
    Store(Remote),
    /// A directory, such as a network file system.
    Folder(Dir),
}

/// The location of files.
#[derive(Clone, Copy, Debug)]
pub enum Shelf<'a> {
    /// A local directory.
    Folder(&'a Dir),
    /// An object store.
    Store(&'a Remote),
}

impl<'a> Shelf<'a> {
    /// Returns the location of the files of a stream: its origin, or its folder if they are read in place.
    #[must_use]
    pub const fn of(folder: &'a Dir, origin: Option<&'a Origin>) -> Self {
        match origin {
            None => Self::Folder(folder),
            Some(Origin::Folder(from)) => Self::Folder(from),
            Some(Origin::Store(store)) => Self::Store(store),
        }
    }
}
