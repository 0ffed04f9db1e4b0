//! Reads of objects and ranges.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use futures::future::{join_all, try_join_all};
use futures::stream::{FuturesUnordered, TryStreamExt as _};
use tokio::task::AbortHandle;

use super::handle::{Remote, check_name};
use super::live::Live;
use super::transfer::{self, Growing, Part, Seen, Wanted};
use crate::error::StorageError;

impl Live {
    /// Reads one range, or the whole object if `range` is `None`.
    pub(super) async fn get(
        &self,
        name: &str,
        range: Option<Range<u64>>,
        object_bytes: Option<u64>,
        most: u64,
    ) -> Result<Vec<u8>, StorageError> {
        check_name(name)?;
        let key = self.location.key(name);
        self.get_key(&key, range, object_bytes, most)
            .await
            .map_err(|fault| self.error(name, fault))
    }

    pub(super) async fn get_key(
        &self,
        key: &str,
        range: Option<Range<u64>>,
        object_bytes: Option<u64>,
        most: u64,
    ) -> Result<Vec<u8>, StorageError> {
        let seen = Seen::default();
        if let (Some(range), Some(bytes)) = (&range, object_bytes)
            && range.end > bytes
        {
            return Err(StorageError::BodyRange {
                start: range.start,
                end: range.end,
                found: format!("an object of {bytes} bytes"),
            });
        }
        let declared = match &range {
            Some(range) if range.is_empty() => return Ok(Vec::new()),
            Some(range) => Some(range.end - range.start),
            None => object_bytes,
        };
        let bytes = match declared {
            Some(length) if length > self.options.download.split_above => {
                let start = range.map_or(0, |range| range.start);
                self.get_parts(key, start..start + length, object_bytes, &seen)
                    .await?
            }
            _ => {
                let mut sink = Growing::new(declared.unwrap_or(most));
                let wanted = Wanted {
                    key,
                    range,
                    object_bytes,
                    most,
                };
                transfer::fetch(self, &wanted, &mut sink, &seen).await?;
                sink.bytes
            }
        };
        if let Some(etag) = seen.etag() {
            self.pin(key, &etag);
        }
        Ok(bytes)
    }

    /// Reads a long range in parts, concurrently into one buffer.
    pub(super) async fn get_parts(
        &self,
        key: &str,
        range: Range<u64>,
        object_bytes: Option<u64>,
        seen: &Seen,
    ) -> Result<Vec<u8>, StorageError> {
        let bytes = range.end - range.start;
        let no_memory = || StorageError::NoMemory { bytes };
        let length = usize::try_from(bytes).map_err(|_| no_memory())?;
        let part =
            usize::try_from(self.options.download.part_bytes.max(1)).map_err(|_| no_memory())?;
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(length).map_err(|_| no_memory())?;
        buffer.resize(length, 0);
        let mut start = range.start;
        let parts: FuturesUnordered<_> = buffer
            .chunks_mut(part)
            .map(|into| {
                let end = start + into.len() as u64;
                let wanted = Wanted {
                    key,
                    range: Some(start..end),
                    object_bytes,
                    most: bytes,
                };
                start = end;
                async move { transfer::fetch(self, &wanted, &mut Part::new(into), seen).await }
            })
            .collect();
        parts.try_collect::<()>().await?;
        Ok(buffer)
    }
}

impl Remote {
    /// Reads a whole object of at most `most` bytes. Blocks until it is complete.
    pub fn read(&self, name: &str, most: u64) -> Result<Vec<u8>, StorageError> {
        let owned = name.to_owned();
        self.wait(name, move |live| async move {
            live.get(&owned, None, None, most).await
        })?
    }

    /// Reads a range of an object. Blocks until it is complete. If `object_bytes` is given, the object must have that
    /// length. Errors are those of [`Remote::read`].
    pub fn read_range(
        &self,
        name: &str,
        object_bytes: Option<u64>,
        range: Range<u64>,
    ) -> Result<Vec<u8>, StorageError> {
        let owned = name.to_owned();
        self.wait(name, move |live| async move {
            live.get(&owned, Some(range), object_bytes, 0).await
        })?
    }

    /// Reads several ranges concurrently. Blocks until all are complete. The results have the order of `wanted`.
    ///
    /// # Errors
    ///
    /// As [`Remote::read`], for each range.
    pub fn read_ranges(
        &self,
        wanted: &[(String, Range<u64>)],
    ) -> Vec<Result<Vec<u8>, StorageError>> {
        self.read_each(wanted.iter().map(|(name, range)| Wish {
            name: name.clone(),
            range: Some(range.clone()),
            object_bytes: None,
            most: 0,
        }))
    }

    /// Starts fetching a whole object that must have `bytes` bytes, in one request or in parts if it is large.
    ///
    /// `done` is called once, on the thread that all fetches of the process share, so it must not block. If that thread
    /// cannot be started, `done` is called before this returns.
    pub fn fetch(
        &self,
        name: &str,
        bytes: u64,
        done: impl FnOnce(Result<Vec<u8>, StorageError>) + Send + 'static,
    ) -> Fetching {
        let owned = name.to_owned();
        self.spawn(name, done, move |live| async move {
            live.get(&owned, None, Some(bytes), bytes).await
        })
    }

    /// Starts fetching ranges of an object that must have `object_bytes` bytes, as [`fetch`](Self::fetch). The result
    /// is their concatenation.
    pub fn fetch_ranges(
        &self,
        name: &str,
        object_bytes: u64,
        ranges: Vec<Range<u64>>,
        done: impl FnOnce(Result<Vec<u8>, StorageError>) + Send + 'static,
    ) -> Fetching {
        let owned = name.to_owned();
        self.spawn(name, done, move |live| async move {
            let parts = ranges
                .into_iter()
                .map(|range| live.get(&owned, Some(range), Some(object_bytes), 0));
            let mut parts = try_join_all(parts).await?;
            Ok(match parts.len() {
                1 => parts.pop().unwrap_or_default(),
                _ => parts.concat(),
            })
        })
    }

    /// Runs a request on the thread that all fetches of the process share, and calls `done` with its result.
    fn spawn<F: Future<Output = Result<Vec<u8>, StorageError>> + Send + 'static>(
        &self,
        name: &str,
        done: impl FnOnce(Result<Vec<u8>, StorageError>) + Send + 'static,
        work: impl FnOnce(Arc<Live>) -> F,
    ) -> Fetching {
        let state = Arc::new(AtomicU8::new(UNDER_WAY));
        let process = std::process::id();
        let live = match self.live() {
            Ok(live) => live,
            Err(fault) => {
                state.store(ENDED, Ordering::Release);
                done(Err(self.error(name, fault)));
                return Fetching {
                    process,
                    state,
                    task: None,
                };
            }
        };
        let of_task = Arc::clone(&state);
        let engine = Arc::clone(&live.engine);
        let work = work(live);
        let task = engine.handle.spawn(async move {
            let result = work.await;
            if of_task
                .compare_exchange(UNDER_WAY, ENDED, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
            {
                done(result);
            }
        });
        Fetching {
            process,
            state,
            task: Some(task.abort_handle()),
        }
    }

    /// Reads whole objects of known lengths concurrently. Blocks until all are complete. The results have the order of
    /// `wanted`.
    ///
    /// The limit of concurrent requests applies. All results are in memory.
    ///
    /// # Errors
    ///
    /// As [`Remote::read`], for each object; `body-length` where one has another length.
    pub fn read_many(&self, wanted: &[(String, u64)]) -> Vec<Result<Vec<u8>, StorageError>> {
        self.read_each(wanted.iter().map(|(name, bytes)| Wish {
            name: name.clone(),
            range: None,
            object_bytes: Some(*bytes),
            most: *bytes,
        }))
    }

    /// Reads ranges of objects of known lengths concurrently. Blocks until all are complete. The results have the order
    /// of `wanted`.
    ///
    /// # Errors
    ///
    /// As [`Remote::read_ranges`]; `body-length` where an object has another length.
    pub fn read_ranges_of(
        &self,
        wanted: &[(String, u64, Range<u64>)],
    ) -> Vec<Result<Vec<u8>, StorageError>> {
        self.read_each(wanted.iter().map(|(name, bytes, range)| Wish {
            name: name.clone(),
            range: Some(range.clone()),
            object_bytes: Some(*bytes),
            most: 0,
        }))
    }

    /// Reads all concurrently. Blocks until all are complete.
    fn read_each(&self, wanted: impl Iterator<Item = Wish>) -> Vec<Result<Vec<u8>, StorageError>> {
        let wanted: Vec<Wish> = wanted.collect();
        let names: Vec<String> = wanted.iter().map(|wish| wish.name.clone()).collect();
        let Some(first) = names.first() else {
            return Vec::new();
        };
        let all = self.wait(first, move |live| async move {
            let live = &live;
            let one = |wish: Wish| async move {
                live.get(&wish.name, wish.range, wish.object_bytes, wish.most)
                    .await
            };
            join_all(wanted.into_iter().map(one)).await
        });
        self.each(names.iter(), all)
    }
}

/// A read of an object or a range, among others.
struct Wish {
    name: String,
    /// The range, or `None` for the whole object.
    range: Option<Range<u64>>,
    /// The length that the object must have, if known.
    object_bytes: Option<u64>,
    /// The maximum number of bytes of a whole object.
    most: u64,
}

const UNDER_WAY: u8 = 0;
const ENDED: u8 = 1;
const CANCELLED: u8 = 2;

/// A fetch in progress. Dropping it cancels the fetch: unless `done` is already running, it is never called.
#[derive(Debug)]
#[must_use = "dropping it cancels the fetch"]
pub struct Fetching {
    process: u32,
    state: Arc<AtomicU8>,
    task: Option<AbortHandle>,
}

impl Fetching {
    /// Returns whether `done` was called or is running.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state.load(Ordering::Acquire) == ENDED
    }
}

impl Drop for Fetching {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // In a forked child this is a copy: the task belongs to the parent.
            std::mem::forget(self.task.take());
            return;
        }
        let under_way =
            self.state
                .compare_exchange(UNDER_WAY, CANCELLED, Ordering::AcqRel, Ordering::Acquire);
        if let (Ok(_), Some(task)) = (under_way, &self.task) {
            task.abort();
        }
    }
}
