//! Downloads of objects to files.

use std::collections::VecDeque;
use std::io::Write as _;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};

use shardmill_core::CancelToken;

use super::answer::Failure;
use super::engine::Task;
use super::handle::{Remote, SLICE};
use super::live::Live;
use super::transfer::{self, Growing, Seen, Wanted};
use crate::error::StorageError;
use crate::temp::TempFile;

/// The number of parts that are fetched concurrently and held in memory.
const PARTS: usize = 8;

/// A part that is being fetched.
struct Coming {
    receiver: Receiver<Result<Vec<u8>, StorageError>>,
    _task: Task,
}

impl Remote {
    /// Downloads an object to a file and returns its length. Parts of `part_bytes` are fetched concurrently, all from
    /// the same version of the object. Later reads may be of another version. `cancel` is called several times a second
    /// with the number of bytes written.
    ///
    /// After an error the file contains a part of the object.
    ///
    /// # Errors
    ///
    /// [`StorageError::At`]. [`StorageError::Name`]. Errors of writing the file.
    pub fn save(
        &self,
        name: &str,
        file: &mut TempFile,
        cancel: &mut CancelToken<'_>,
    ) -> Result<u64, StorageError> {
        let key = self.shared.location.key(name);
        let failed = |fault| self.error(name, fault);
        let found = self.stat(name, cancel)?;
        let found = found.ok_or_else(|| self.not_found(name))?;
        let seen = Arc::new(Seen::default());
        let agreed = seen.agree(found.etag.as_deref(), Some(found.bytes));
        if let Err(Failure::ProtocolError(fault) | Failure::Final(fault)) = agreed {
            return Err(failed(fault));
        }
        let live = self.live().map_err(failed)?;
        let mut coming: VecDeque<Coming> = VecDeque::new();
        let (mut requested, mut written) = (0, 0);
        while written < found.bytes {
            while requested < found.bytes && coming.len() < PARTS {
                let end = found
                    .bytes
                    .min(requested + self.shared.options.download.part_bytes.max(1));
                coming.push_back(Coming::fetch(
                    &live,
                    &key,
                    requested..end,
                    found.bytes,
                    &seen,
                ));
                requested = end;
            }
            let Some(first) = coming.front() else { break };
            let bytes = match first.receiver.recv_timeout(SLICE) {
                Ok(result) => result.map_err(failed)?,
                Err(RecvTimeoutError::Disconnected) => return Err(failed(StorageError::NoAnswer)),
                Err(RecvTimeoutError::Timeout) => {
                    if !cancel(written) {
                        return Err(failed(StorageError::Interrupted));
                    }
                    continue;
                }
            };
            coming.pop_front();
            file.write_all(&bytes)
                .map_err(|error| file.write_error(error))?;
            written += bytes.len() as u64;
            if !cancel(written) {
                return Err(failed(StorageError::Interrupted));
            }
        }
        Ok(written)
    }
}

impl Coming {
    /// Starts fetching a part of an object of `whole` bytes.
    fn fetch(live: &Arc<Live>, key: &str, range: Range<u64>, whole: u64, seen: &Arc<Seen>) -> Self {
        let (sender, receiver) = mpsc::sync_channel(1);
        let (of_task, key, seen) = (Arc::clone(live), key.to_owned(), Arc::clone(seen));
        let task = live.engine.handle.spawn(async move {
            let mut sink = Growing::new(range.end - range.start);
            let wanted = Wanted {
                key: &key,
                range: Some(range),
                object_bytes: Some(whole),
                max: whole,
            };
            let fetched = transfer::fetch(&of_task, &wanted, &mut sink, &seen).await;
            // If the receiver was dropped, the caller cancelled.
            let _ = sender.send(fetched.map(|()| sink.bytes));
        });
        Self {
            receiver,
            _task: Task(task.abort_handle()),
        }
    }
}
