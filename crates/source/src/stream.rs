//! Copies an Arrow stream that can be read only once, such as standard input, so that it can be read as a file.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, SystemTime};

use shardmill_core::{Error, Progress};
use shardmill_storage::{Location, StorageError};
use tempfile::TempDir;
use xxhash_rust::xxh3::Xxh3;

use crate::SourceProblem;
use crate::error;

/// The size of a piece, in bytes.
const PIECE: u64 = 1 << 20;
/// How often a cancellation is noticed while no input comes.
const PATIENCE: Duration = Duration::from_millis(100);
/// The ends of an Arrow stream and of an Arrow file. A stream may lack it, but then it is not known to be complete.
const ENDS: [&[u8]; 2] = [b"\xff\xff\xff\xff\0\0\0\0", b"ARROW1"];

/// An Arrow stream in a temporary folder, which goes with it.
#[derive(Debug)]
pub struct CopiedStream {
    _folder: TempDir,
    path: PathBuf,
}

impl CopiedStream {
    /// Copies `input`, which errors call `name`, to a folder in `temp_dir` or in that of the system. The name of the file
    /// is the hash of its content, and its time is fixed, so that a conversion of the same content is the same conversion.
    ///
    /// A thread reads the input. After a cancellation it waits for the input until the process ends.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: the input is no Arrow stream, or lacks its end.
    /// - `Interrupted`: the progress was cancelled.
    /// - The input cannot be read, or the copy cannot be written.
    pub fn read(
        input: impl Read + Send + 'static,
        name: &str,
        temp_dir: Option<&Path>,
        progress: &Progress,
    ) -> Result<Self, Error> {
        let failed = |action| move |source| error::io(action, name, source);
        let temp_dir = temp_dir.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let folder = tempfile::Builder::new()
            .prefix("shardmill-")
            .tempdir_in(temp_dir);
        let folder = folder.map_err(failed("create a folder for"))?;
        let copied = folder.path().join("copied");
        let (mut hasher, mut tail) = (Xxh3::new(), Vec::new());
        let mut file = File::create(&copied).map_err(failed("copy"))?;
        let pieces = pieces(input);
        loop {
            let piece = match pieces.recv_timeout(PATIENCE) {
                _ if progress.is_cancelled() => return Err(StorageError::Interrupted.into()),
                Ok(piece) => piece.map_err(failed("read"))?,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            hasher.update(&piece);
            file.write_all(&piece).map_err(failed("copy"))?;
            tail.extend_from_slice(&piece);
            tail.drain(..tail.len().saturating_sub(8));
        }
        if !ENDS.iter().any(|end| tail.ends_with(end)) {
            let fact = "it is no Arrow stream, or ends before its end";
            let hint = "see whether the program that writes it has failed";
            return Err(SourceProblem::ArrowFormat.at(name, fact).with_hint(hint));
        }
        let path = format!("stdin-{:032x}.arrows", hasher.digest128());
        let path = folder.path().join(path);
        let moved = file.set_modified(SystemTime::UNIX_EPOCH);
        let moved = moved.and_then(|()| std::fs::rename(&copied, &path));
        moved.map_err(failed("copy"))?;
        Ok(Self {
            _folder: folder,
            path,
        })
    }

    /// Returns the location of the copy.
    #[must_use]
    pub fn location(&self) -> Location {
        Location::Local(self.path.clone())
    }
}

/// Reads the input in a thread, piece by piece.
fn pieces(mut input: impl Read + Send + 'static) -> Receiver<io::Result<Vec<u8>>> {
    let (sender, receiver) = sync_channel(4);
    thread::spawn(move || {
        loop {
            let mut piece = Vec::new();
            let read = input.by_ref().take(PIECE).read_to_end(&mut piece);
            if piece.is_empty() && read.is_ok() {
                return;
            }
            let is_last = read.is_err();
            if sender.send(read.map(|_| piece)).is_err() || is_last {
                return;
            }
        }
    });
    receiver
}
