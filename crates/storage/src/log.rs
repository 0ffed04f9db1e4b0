//! A log of lines that later processes can read, in a directory or in a store.

use std::sync::{Condvar, Mutex, PoisonError};

use shardmill_core::{CancelToken, lock};

use crate::append::AppendFile;
use crate::destination::Destination;
use crate::error::{StorageError, if_found};
use crate::remote::Remote;

/// A log in a [`Destination`]: a file in a directory, or a sequence of numbered objects in a store.
///
/// An added line survives if the process is killed. In a directory the last line may be incomplete, and nothing is
/// synchronised to the disk.
#[derive(Debug)]
pub struct DestinationLog(Kind);

#[derive(Debug)]
enum Kind {
    File(Mutex<AppendFile>),
    Objects(Objects),
}

/// A log in a store that several threads append to. Lines added while an object is being uploaded go together into the
/// next.
#[derive(Debug)]
struct Objects {
    remote: Remote,
    name: String,
    state: Mutex<State>,
    done: Condvar,
}

#[derive(Debug)]
struct State {
    /// The number of the next object.
    next: u64,
    waiting: String,
    /// The number of lines added, and below, the number of those that are stored.
    added: u64,
    put: u64,
    busy: bool,
}

impl DestinationLog {
    /// Reads a log of at most `most` bytes. Returns `None` if it does not exist.
    /// Errors are those of [`Destination::read`] and [`Destination::entries`].
    pub fn read(
        destination: &Destination,
        name: &str,
        max: u64,
        cancel: &mut CancelToken<'_>,
    ) -> Result<Option<Vec<u8>>, StorageError> {
        let store = match destination {
            Destination::Local(dir) => {
                return match dir.open_file(name) {
                    Err(StorageError::NotDirectory { .. }) => Ok(None),
                    opened => if_found(opened.and_then(|file| file.read_log(max))),
                };
            }
            Destination::Store(store) => store,
        };
        let numbers = numbers(destination, name, cancel)?;
        let mut bytes: Option<Vec<u8>> = None;
        for number in numbers {
            let length = bytes.as_ref().map_or(0, Vec::len);
            let room = max.saturating_sub(u64::try_from(length).unwrap_or(u64::MAX));
            let part = store.remote().read_anew(&part(name, number), room, cancel);
            // If it is missing, its writer has just removed it.
            let Some(part) = if_found(part)? else { break };
            bytes.get_or_insert_default().extend_from_slice(&part);
        }
        Ok(bytes)
    }

    /// Opens a log for appending, and keeps its first `keep_bytes` bytes.
    /// Errors are those of [`AppendFile::open`], [`Remote::put`] and [`Remote::remove`].
    pub fn open(
        destination: &Destination,
        name: &str,
        keep_bytes: u64,
        cancel: &mut CancelToken<'_>,
    ) -> Result<Self, StorageError> {
        let store = match destination {
            Destination::Local(dir) => {
                let file = AppendFile::open(dir, name, keep_bytes)?;
                return Ok(Self(Kind::File(Mutex::new(file))));
            }
            Destination::Store(store) => store,
        };
        let remote = store.remote().clone();
        let (mut parts, mut kept) = (Vec::new(), Vec::new());
        if keep_bytes == 0 {
            // Existing objects belong to an older log, and would be read before the first line of this one.
            Self::remove(destination, name, cancel)?;
        } else {
            parts = numbers(destination, name, cancel)?;
            kept = Self::read(destination, name, u64::MAX, cancel)?.unwrap_or_default();
        }
        let mut next = parts.last().map_or(0, |last| last.saturating_add(1));
        let length = usize::try_from(keep_bytes).unwrap_or(usize::MAX);
        if kept.len() != length || parts.len() > MANY {
            // Replace all objects by one. It is uploaded first, as the last object of the log. Then the others are
            // removed from the end, so that the remaining ones are always a prefix of the log.
            let kept = kept.get(..length).unwrap_or(&kept);
            if !kept.is_empty() {
                remote.put(&part(name, next), kept.to_vec(), cancel)?;
                next += 1;
            }
            for number in parts.into_iter().rev() {
                remote.remove(&part(name, number), cancel)?;
            }
        }
        Ok(Self(Kind::Objects(Objects {
            remote,
            name: name.to_owned(),
            state: Mutex::new(State {
                next,
                waiting: String::new(),
                added: 0,
                put: 0,
                busy: false,
            }),
            done: Condvar::new(),
        })))
    }

    /// Appends a line (given without its line end), and waits until it is stored.
    pub fn add_line(&self, line: &str, cancel: &mut CancelToken<'_>) -> Result<(), StorageError> {
        match &self.0 {
            Kind::File(file) => lock(file).add_line(line),
            Kind::Objects(objects) => objects.add_line(line, cancel),
        }
    }

    /// Removes a log. Errors are those of [`Destination::remove`].
    pub fn remove(
        destination: &Destination,
        name: &str,
        cancel: &mut CancelToken<'_>,
    ) -> Result<(), StorageError> {
        match destination {
            Destination::Local(_) => destination.remove(name, cancel),
            Destination::Store(store) => {
                // From the end, so that the objects a reader finds meanwhile are a prefix of the log.
                for number in numbers(destination, name, cancel)?.into_iter().rev() {
                    store.remote().remove(&part(name, number), cancel)?;
                }
                Ok(())
            }
        }
    }
}

/// The number of objects above which they are merged when a log is opened.
const MANY: usize = 64;

fn part(name: &str, number: u64) -> String {
    format!("{name}/{number:010}")
}

/// Returns the numbers of the objects of a log, in order. Other names are ignored.
fn numbers(
    destination: &Destination,
    name: &str,
    cancel: &mut CancelToken<'_>,
) -> Result<Vec<u64>, StorageError> {
    let entries = destination.entries(name, cancel)?;
    let mut numbers: Vec<u64> = entries
        .iter()
        .filter(|entry| !entry.is_folder && entry.name.len() == 10)
        .filter_map(|entry| entry.name.parse().ok())
        .collect();
    numbers.sort_unstable();
    Ok(numbers)
}

impl Objects {
    fn add_line(&self, line: &str, cancel: &mut CancelToken<'_>) -> Result<(), StorageError> {
        let mut state = lock(&self.state);
        state.waiting.push_str(line);
        state.waiting.push('\n');
        state.added += 1;
        let own = state.added;
        while state.put < own {
            if state.busy {
                state = self
                    .done
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let lines = std::mem::take(&mut state.waiting);
            let (number, upto) = (state.next, state.added);
            state.next += 1;
            state.busy = true;
            drop(state);
            let put = self.remote.put(
                &part(&self.name, number),
                lines.clone().into_bytes(),
                cancel,
            );
            state = lock(&self.state);
            state.busy = false;
            match put {
                Ok(()) => state.put = upto,
                // Other threads wait for the same lines, and retry or fail on their own.
                Err(_) => state.waiting.insert_str(0, &lines),
            }
            self.done.notify_all();
            put?;
        }
        Ok(())
    }
}
