//! Reads of objects and ranges.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::{join_all, try_join_all};
use futures::stream::{FuturesUnordered, TryStreamExt as _};
use tokio::task::AbortHandle;

use super::handle::Remote;
use super::live::Live;
use super::transfer::{self, Growing, Part, Seen, Wanted};
use crate::error::{StorageError, check_name};

impl Live {
    /// Reads one range, or the whole object if `range` is `None`.
    pub(super) async fn get(
        &self,
        name: &str,
        range: Option<Range<u64>>,
        object_bytes: Option<u64>,
        max: u64,
    ) -> Result<Vec<u8>, StorageError> {
        check_name(name)?;
        let key = self.location.key(name);
        self.get_key(&key, range, object_bytes, max)
            .await
            .map_err(|fault| self.error(name, fault))
    }

    pub(super) async fn get_key(
        &self,
        key: &str,
        range: Option<Range<u64>>,
        object_bytes: Option<u64>,
        max: u64,
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
                let mut sink = Growing::new(declared.unwrap_or(max));
                let wanted = Wanted {
                    key,
                    range,
                    object_bytes,
                    max,
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
                    max: bytes,
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
    pub fn read(&self, name: &str, max: u64) -> Result<Vec<u8>, StorageError> {
        self.read_one(name, None, None, max)
    }

    /// Reads a range of an object. Blocks until it is complete. If `object_bytes` is given, the object must have that
    /// length. Errors are those of [`Remote::read`].
    pub fn read_range(
        &self,
        name: &str,
        object_bytes: Option<u64>,
        range: Range<u64>,
    ) -> Result<Vec<u8>, StorageError> {
        self.read_one(name, Some(range), object_bytes, 0)
    }

    /// Reads one range, or the whole object if `range` is `None`. Blocks until it is complete.
    pub(crate) fn read_one(
        &self,
        name: &str,
        range: Option<Range<u64>>,
        object_bytes: Option<u64>,
        max: u64,
    ) -> Result<Vec<u8>, StorageError> {
        check_name(name)?;
        let key = self.shared.location.key(name);
        self.wait_while(name, &mut |_| true, move |live, _| async move {
            live.get_key(&key, range, object_bytes, max).await
        })
    }

    /// Reads several ranges concurrently. Blocks until all are complete. The results have the order of `wanted`.
    /// Errors are those of [`Remote::read`], for each range.
    pub fn read_ranges(
        &self,
        wanted: &[(String, Range<u64>)],
    ) -> Vec<Result<Vec<u8>, StorageError>> {
        let wanted = wanted.iter().cloned();
        self.read_each(wanted.map(|(name, range)| (name, Some(range), None)))
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
        let mut fetching = Fetching {
            process: std::process::id(),
            ended: Arc::default(),
            task: None,
        };
        let live = match self.live() {
            Ok(live) => live,
            Err(fault) => {
                done(Err(self.error(name, fault)));
                return fetching;
            }
        };
        let ended = Arc::clone(&fetching.ended);
        let engine = Arc::clone(&live.engine);
        let work = work(live);
        let task = engine.handle.spawn(async move {
            let result = work.await;
            if !ended.swap(true, Ordering::AcqRel) {
                done(result);
            }
        });
        fetching.task = Some(task.abort_handle());
        fetching
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
        let wanted = wanted.iter().cloned();
        self.read_each(wanted.map(|(name, bytes)| (name, None, Some(bytes))))
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
        let wanted = wanted.iter().cloned();
        self.read_each(wanted.map(|(name, bytes, range)| (name, Some(range), Some(bytes))))
    }

    /// Reads all concurrently: the range of each object, or all of it, and the length that it must have, if known.
    /// Blocks until all are complete. Returns one result per object, also if the whole operation failed.
    fn read_each(
        &self,
        wanted: impl Iterator<Item = (String, Option<Range<u64>>, Option<u64>)>,
    ) -> Vec<Result<Vec<u8>, StorageError>> {
        let wanted: Vec<_> = wanted.collect();
        let names: Vec<String> = wanted.iter().map(|(name, ..)| name.clone()).collect();
        let Some((first, others)) = names.split_first() else {
            return Vec::new();
        };
        let all = self.wait_while(first, &mut |_| true, move |live, _| async move {
            let live = &live;
            let one = |(name, range, bytes): (String, _, Option<u64>)| async move {
                live.get(&name, range, bytes, bytes.unwrap_or_default())
                    .await
            };
            Ok(join_all(wanted.into_iter().map(one)).await)
        });
        all.unwrap_or_else(|error| {
            let others = others.iter();
            let others = others.map(|name| Err(self.error(name, StorageError::NoAnswer)));
            std::iter::once(Err(error)).chain(others).collect()
        })
    }
}

/// A fetch in progress. Dropping it cancels the fetch: unless `done` is already running, it is never called.
#[derive(Debug)]
#[must_use = "dropping it cancels the fetch"]
pub struct Fetching {
    process: u32,
    /// `done` is about to be called, or the fetch was cancelled.
    ended: Arc<AtomicBool>,
    task: Option<AbortHandle>,
}

impl Drop for Fetching {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // In a forked child this is a copy: the task belongs to the parent.
            std::mem::forget(self.task.take());
            return;
        }
        if let Some(task) = &self.task
            && !self.ended.swap(true, Ordering::AcqRel)
        {
            task.abort();
        }
    }
}
