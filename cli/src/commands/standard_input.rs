//! Takes the Arrow stream of standard input, so that it can be read as a file.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, SystemTime};

use shardmill_core::{ErrorKind, Progress};
use shardmill_mds::{HashAlgo, Hasher};
use shardmill_source::SourceKind;
use shardmill_storage::Location;
use tempfile::TempDir;

use crate::args::ConvertArgs;
use crate::error::{CliError, Stop};

/// The source that stands for standard input.
const NAME: &str = "-";
/// The size of a piece, in bytes.
const PIECE: usize = 1 << 20;
/// How often a signal is noticed while no input comes.
const PATIENCE: Duration = Duration::from_millis(100);
/// The ends of an Arrow stream and of an Arrow file. A stream may lack it, but then nobody knows whether it is whole.
const ENDS: [&[u8]; 2] = [b"\xff\xff\xff\xff\0\0\0\0", b"ARROW1"];

/// The content of standard input in a temporary folder, which goes with it.
pub struct StandardInput {
    _folder: TempDir,
    path: PathBuf,
}

impl StandardInput {
    /// Returns the location of the file.
    pub fn location(&self) -> Location {
        Location::Local(self.path.clone())
    }
}

/// Returns whether standard input is the source of a conversion.
pub fn is_source(args: &ConvertArgs) -> Result<bool, CliError> {
    let sources = args.sources.concat();
    let is_input = |source: &Location| *source == Location::Local(PathBuf::from(NAME));
    if !sources.iter().any(is_input) {
        return Ok(false);
    }
    let refused = |fact| CliError::usage("config-source", fact).about(NAME);
    if sources.len() > 1 {
        let hint = "convert it alone; a file of this name is ./-";
        return Err(refused("standard input cannot go with other sources").with_hint(hint));
    }
    if !matches!(args.from, None | Some(SourceKind::Arrow)) {
        let hint = "omit --from: it is read as an Arrow stream";
        return Err(refused("standard input has no other kind than arrow").with_hint(hint));
    }
    Ok(true)
}

/// Copies standard input to a temporary folder, to its end. The name of the file is the hash of its content, and its time
/// is fixed, so that a conversion of the same content is the same conversion.
pub fn read(temp_dir: Option<&Path>, progress: &Progress) -> Result<StandardInput, Stop> {
    let failed = |action: &str, error: &io::Error| CliError::io(action, error).about(NAME);
    if io::stdin().is_terminal() {
        let fact = "standard input is a terminal";
        return Err(CliError::usage("config-source", fact)
            .about(NAME)
            .with_hint("pipe an Arrow stream into it")
            .into());
    }
    let folder = tempfile::Builder::new()
        .prefix("shardmill-")
        .tempdir_in(temp_dir.map_or_else(std::env::temp_dir, Path::to_path_buf));
    let folder = folder.map_err(|error| failed("cannot create a temporary folder", &error))?;
    let copied = folder.path().join("copied");
    let (mut hasher, mut tail) = (Hasher::new(HashAlgo::Xxh128), Vec::new());
    let mut file = File::create(&copied).map_err(|error| failed("cannot create a copy", &error))?;
    let pieces = pieces();
    loop {
        let piece = match pieces.recv_timeout(PATIENCE) {
            _ if progress.is_cancelled() => {
                let fact =
                    "it was stopped before all of standard input was read; nothing was written";
                return Err(CliError::new(ErrorKind::Interrupted, "interrupted", fact).into());
            }
            Ok(piece) => piece.map_err(|error| failed("cannot read standard input", &error))?,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        hasher.update(&piece);
        let written = file.write_all(&piece);
        written.map_err(|error| failed("cannot copy standard input", &error))?;
        tail.extend_from_slice(&piece);
        tail.drain(..tail.len().saturating_sub(8));
    }
    if !ENDS.iter().any(|end| tail.ends_with(end)) {
        let fact = "standard input is no Arrow stream, or ends before its end";
        return Err(CliError::new(ErrorKind::Corrupt, "arrow-format", fact)
            .about(NAME)
            .with_hint("see whether the program that writes it has failed")
            .into());
    }
    let path = folder
        .path()
        .join(format!("stdin-{}.arrows", hasher.finish_hex()));
    let moved = file.set_modified(SystemTime::UNIX_EPOCH);
    let moved = moved.and_then(|()| std::fs::rename(&copied, &path));
    moved.map_err(|error| failed("cannot copy standard input", &error))?;
    Ok(StandardInput {
        _folder: folder,
        path,
    })
}

/// Reads standard input in a thread, which waits for it until the process ends.
fn pieces() -> Receiver<io::Result<Vec<u8>>> {
    let (sender, receiver) = sync_channel(4);
    thread::spawn(move || {
        loop {
            let mut piece = Vec::with_capacity(PIECE);
            let read = io::stdin().take(PIECE as u64).read_to_end(&mut piece);
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
