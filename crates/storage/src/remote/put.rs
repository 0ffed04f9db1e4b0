//! Uploads objects to a store, whole or in parts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use shardmill_core::CancelToken;

use super::answer::Failure;
use super::engine::Task;
use super::handle::{Remote, SLICE};
use super::list::stat;
use super::live::Live;
use super::payload::{Digest, PartPayloads, Payload};
use super::protocol::{Part, PartId, Put, Putting, Upload};
use super::retry::LIES;
use super::send::send;
use crate::entry::{FileVersion, StoreKind};
use crate::error::{StorageError, check_name};
use crate::file::FileHandle;
use crate::heartbeat::Sign;
use crate::random::random_number;

/// The timeout for discarding the parts of a failed upload.
const ABORT: Duration = Duration::from_secs(10);

/// Uploads a whole object or one part.
async fn put(
    live: &Live,
    key: &str,
    part: Option<(&Upload, PartId)>,
    payload: &Payload,
    only_new: bool,
    sent: &Arc<AtomicU64>,
) -> Result<Put, StorageError> {
    let kind = live.signer.kind();
    loop {
        let putting = Putting {
            key,
            payload,
            only_new,
            sums: kind == StoreKind::S3 && live.sums(),
            acl: live.signer.access.acl.as_deref(),
            part,
        };
        let ask = kind.put(putting);
        let put = send(live, &ask, Some(payload), sent, |answer| {
            kind.put_answer(answer, &putting)
        })
        .await?;
        if put == Put::Unknown {
            // If the store also refuses without the checksum, the checksum was not the cause, so it is kept.
            live.no_sums.store(putting.sums, Ordering::Relaxed);
            if putting.sums {
                continue;
            }
        }
        return Ok(put);
    }
}

/// Uploads an object, and replaces an existing one.
pub(super) async fn put_whole(
    live: &Live,
    key: &str,
    payload: &Payload,
    sent: &Arc<AtomicU64>,
) -> Result<(), StorageError> {
    live.unpin(key);
    let put = put(live, key, None, payload, false, sent).await;
    live.unpin(key);
    match put? {
        Put::Done(_) => Ok(()),
        // They are answers to headers that were not sent.
        Put::Taken | Put::Unknown | Put::Ended(_) => Err(StorageError::NoAnswer),
    }
}

/// Uploads an object if the name does not exist. Returns `false` if the same object exists already.
async fn put_new(
    live: &Live,
    key: &str,
    payload: &Payload,
    sent: &Arc<AtomicU64>,
) -> Result<bool, StorageError> {
    live.unpin(key);
    match put(live, key, None, payload, true, sent).await? {
        Put::Done(_) => {
            live.unpin(key);
            return Ok(true);
        }
        Put::Taken | Put::Ended(_) => {}
        Put::Unknown => {
            if stat(live, key).await?.is_none() {
                return put_whole(live, key, payload, sent).await.map(|()| true);
            }
        }
    }
    match live.get_key(key, None, None, payload.len()).await {
        Ok(bytes) if payload.is(&bytes) => return Ok(false),
        Ok(_) | Err(StorageError::ObjectTooLarge { .. }) => {}
        Err(fault) => return Err(fault),
    }
    // The bytes may be an error page of a proxy. Comparing the length with the declared one excludes that.
    let length = payload.len();
    if stat(live, key)
        .await?
        .is_none_or(|found| found.bytes != length)
    {
        return Err(StorageError::ObjectExists);
    }
    // The object may have been replaced since it was read, as a lease is by its next heartbeat.
    live.unpin(key);
    match live.get_key(key, None, Some(length), length).await? {
        bytes if payload.is(&bytes) => Ok(false),
        _ => Err(StorageError::ObjectExists),
    }
}

async fn create(live: &Live, key: &str, bytes: u64) -> Result<Upload, StorageError> {
    let kind = live.signer.kind();
    loop {
        let sums = live.sums();
        let upload = |id| Upload {
            key: key.to_owned(),
            id,
            bytes,
            sums,
        };
        let Some(ask) = kind.begin(key, sums, live.signer.access.acl.as_deref()) else {
            return Ok(upload(format!("{:016x}", random_number())));
        };
        // If an answer is lost, the retry creates another upload. The first one stays empty.
        let id = send(live, &ask, None, &Arc::default(), |answer| {
            match answer.head.status {
                501 if sums => Ok(None),
                501 => Err(Failure::Final(StorageError::Refused {
                    status: 501,
                    code: answer.code(),
                })),
                _ => kind.upload_id(&answer).map(Some),
            }
        })
        .await?;
        if let Some(id) = id {
            return Ok(upload(id));
        }
        live.no_sums.store(true, Ordering::Relaxed);
    }
}

/// Uploads one part. Returns the reason if the store ended the upload.
async fn put_part(
    live: &Live,
    upload: &Upload,
    part: PartId,
    payload: &Payload,
    sent: &Arc<AtomicU64>,
) -> Result<Result<Part, String>, StorageError> {
    let part = Some((upload, part));
    match put(live, &upload.key, part, payload, false, sent).await? {
        Put::Done(etag) => Ok(Ok(Part {
            etag,
            digest: *payload.digest(),
            bytes: payload.len(),
        })),
        Put::Ended(reason) => Ok(Err(reason)),
        Put::Taken | Put::Unknown => Err(StorageError::NoAnswer),
    }
}

/// Completes the upload from its parts. Returns the reason if the store ended it.
async fn complete(
    live: &Live,
    upload: &Upload,
    parts: &[Part],
) -> Result<Result<(), String>, StorageError> {
    let (kind, bytes) = (live.signer.kind(), upload.bytes);
    let (ask, list) = kind.complete(upload, parts);
    let list = Payload::new(kind, list.into_bytes())?;
    live.unpin(&upload.key);
    let known = send(live, &ask, Some(&list), &Arc::default(), |answer| {
        kind.completed(&answer, upload, parts)
    })
    .await?;
    live.unpin(&upload.key);
    if known {
        return Ok(Ok(()));
    }
    // The answer to an earlier attempt may have been lost. Only this very object counts as success.
    let sum = kind.sum_of(parts);
    let is_complete = match stat(live, &upload.key).await? {
        Some(found) if found.bytes != bytes => false,
        Some(found) if sum.is_some() => found.sum == sum,
        Some(_) => is_there(live, upload, parts).await?,
        None => false,
    };
    Ok(is_complete.then_some(()).ok_or_else(|| {
        "the store no longer knows the upload, nor shows that it is complete".to_owned()
    }))
}

/// Returns whether the object consists of these parts. Reads them back, for stores without a checksum of multipart
/// uploads.
async fn is_there(live: &Live, upload: &Upload, parts: &[Part]) -> Result<bool, StorageError> {
    let kind = live.signer.kind();
    let mut start = 0;
    for part in parts {
        let end = start + part.bytes;
        let bytes = live.get_key(&upload.key, Some(start..end), None, 0).await?;
        if Digest::of(kind, &bytes) != Some(part.digest) {
            return Ok(false);
        }
        start = end;
    }
    Ok(true)
}

/// Discards the parts of an upload. If that fails or takes too long, they are left to the lifecycle rules of the
/// bucket.
async fn abort(live: &Live, upload: &Upload) {
    let Some(mut ask) = live.signer.kind().abort(upload) else {
        return;
    };
    // Discarding parts is not visible to readers, and a writer that lost its lease has to do it too.
    ask.changes = false;
    // The caller reports the failure that led here.
    let _ = tokio::time::timeout(ABORT, send(live, &ask, None, &Arc::default(), |_| Ok(()))).await;
}

/// The parts in flight. Dropping them cancels the uploads.
#[derive(Default)]
struct UnderWay(BTreeMap<usize, (Task, Arc<AtomicU64>)>);

impl UnderWay {
    fn sent(&self) -> u64 {
        let sent = self
            .0
            .values()
            .map(|(_, sent)| sent.load(Ordering::Relaxed));
        sent.sum()
    }
}

impl Remote {
    /// Returns whether the store takes objects in parts.
    pub(crate) fn has_parts(&self) -> bool {
        self.shared.access.kind.has_parts()
    }

    /// Returns the error for an object that does not exist as it was uploaded.
    pub(crate) fn not_as_put(
        &self,
        name: &str,
        bytes: u64,
        found: Option<FileVersion>,
    ) -> StorageError {
        let fault = match found {
            // The present object was uploaded by the writer that took over.
            _ if self.is_taken_over() => StorageError::TakenOver,
            Some(found) => StorageError::BodyLength {
                expected: bytes,
                found: found.bytes,
            },
            None => StorageError::Answer {
                what: "success, and the object is not there".into(),
            },
        };
        self.error(name, fault)
    }

    /// Returns whether another writer holds the lease. If the last heartbeat is old, the lease is checked first.
    fn is_taken_over(&self) -> bool {
        /// Longer than a lease lasts without a heartbeat.
        const MAX: Duration = Duration::from_secs(20);
        const STEP: Duration = Duration::from_millis(50);

        let began = Instant::now();
        loop {
            match self.leases().sign() {
                Sign::Lost => return true,
                Sign::Held => return false,
                Sign::Silent if began.elapsed() > MAX => return false,
                Sign::Silent => std::thread::sleep(STEP),
            }
        }
    }

    /// Returns the kind of the store, if it takes objects.
    pub(crate) fn writable(&self, name: &str) -> Result<StoreKind, StorageError> {
        let kind = self.shared.access.kind;
        if kind.can_write() {
            return Ok(kind);
        }
        let fault = StorageError::Unsupported {
            action: "put or remove objects",
            store: kind,
        };
        Err(self.error(name, fault))
    }

    /// Returns the key and the body of an upload.
    fn payload(&self, name: &str, bytes: Vec<u8>) -> Result<(String, Payload), StorageError> {
        check_name(name)?;
        let kind = self.writable(name)?;
        let payload = Payload::new(kind, bytes).map_err(|fault| self.error(name, fault))?;
        Ok((self.shared.location.key(name), payload))
    }

    /// Removes an object. A missing object is not an error. Errors are those of [`Remote::put`].
    pub fn remove(&self, name: &str, cancel: &mut CancelToken<'_>) -> Result<(), StorageError> {
        check_name(name)?;
        self.writable(name)?;
        let key = self.shared.location.key(name);
        self.wait_while(name, cancel, |live, _| async move {
            live.unpin(&key);
            let ask = StoreKind::remove(&key);
            send(&live, &ask, None, &Arc::default(), |answer| {
                StoreKind::removed(&answer)
            })
            .await
        })
    }

    /// Uploads an object, and replaces an existing one atomically. `cancel` is called several times a second with the
    /// number of bytes sent. If it returns `false`, either version may be stored.
    ///
    /// The upload has a checksum that the store verifies (SHA-256 for S3, MD5 for Google and Azure), if the store
    /// supports one.
    pub fn put(
        &self,
        name: &str,
        bytes: Vec<u8>,
        cancel: &mut CancelToken<'_>,
    ) -> Result<(), StorageError> {
        let (key, payload) = self.payload(name, bytes)?;
        self.wait_while(name, cancel, |live, sent| async move {
            put_whole(&live, &key, &payload, &sent).await
        })
    }

    /// Uploads an object if the name does not exist. Returns `false` if the same bytes are stored already, for example
    /// by an earlier attempt whose answer was lost.
    ///
    /// The store decides between two concurrent uploads: by `If-None-Match: *` (S3, Azure), by generation 0 (Google),
    /// or by `overwrite=false` (volumes). If the store reports that it does not support this, the object is looked up
    /// first. Then the later of two concurrent uploads wins. The same is true of a store that silently ignores the
    /// condition.
    ///
    /// # Errors
    ///
    /// As [`Remote::put`]; `exists`, which is a conflict, if other bytes are stored.
    pub fn put_new(
        &self,
        name: &str,
        bytes: Vec<u8>,
        cancel: &mut CancelToken<'_>,
    ) -> Result<bool, StorageError> {
        let (key, payload) = self.payload(name, bytes)?;
        self.wait_while(name, cancel, |live, sent| async move {
            put_new(&live, &key, &payload, &sent).await
        })
    }

    /// Uploads an existing object once more, on the condition that its name does not exist. Returns what is wrong with
    /// the store, or `None` if it refuses the upload as it should.
    ///
    /// # Errors
    ///
    /// As [`Remote::put`].
    pub(crate) fn try_overwrite(
        &self,
        name: &str,
        bytes: Vec<u8>,
        cancel: &mut CancelToken<'_>,
    ) -> Result<Option<&'static str>, StorageError> {
        let (key, payload) = self.payload(name, bytes)?;
        self.wait_while(name, cancel, |live, sent| async move {
            let put = put(&live, &key, None, &payload, true, &sent).await?;
            live.unpin(&key);
            Ok(match put {
                Put::Taken => None,
                Put::Done(_) => Some("the existing object is overwritten"),
                Put::Ended(_) => return Err(StorageError::NoAnswer),
                Put::Unknown => Some("the store has no uploads for new objects only"),
            })
        })
    }

    /// Uploads the contents of a file, and replaces an existing object. Up to `put_split_above` bytes are sent in one
    /// request. Larger files are sent in equal parts, of which `put_parts` are in memory and in flight at once. Google gets
    /// one at a time.
    ///
    /// The object appears when all of it is stored. After a failure, or if `cancel` returns `false`, the parts are
    /// discarded. If that fails too, the store keeps them until a lifecycle rule of the bucket removes them.
    ///
    /// # Errors
    ///
    /// As [`Remote::put`]; errors of reading the file, including that it changed.
    pub fn put_file(
        &self,
        name: &str,
        file: &FileHandle,
        cancel: &mut CancelToken<'_>,
    ) -> Result<(), StorageError> {
        check_name(name)?;
        let options = &self.shared.options;
        let kind = self.writable(name)?;
        let whole = match kind.has_parts() {
            true => options.upload.split_above.min(kind.max_put()),
            false => kind.max_put(),
        };
        if file.len() <= whole || !kind.has_parts() {
            return self.put(name, file.read_all(whole)?, cancel);
        }
        let key = self.shared.location.key(name);
        // Google asks to begin again if it ended an upload, for example because of the checksum of the object.
        let mut again = if kind == StoreKind::Google { LIES } else { 0 };
        loop {
            let (key, bytes) = (key.clone(), file.len());
            let upload = self.wait_while(name, cancel, |live, _| async move {
                create(&live, &key, bytes).await
            })?;
            let upload = Arc::new(upload);
            let put = self.put_parts(name, file, &upload, cancel);
            if !matches!(put, Ok(Ok(()))) {
                let upload = Arc::clone(&upload);
                // It ends by itself, and its error is of no use.
                let _ = self.wait_while(name, &mut |_| true, |live, _| async move {
                    abort(&live, &upload).await;
                    Ok(())
                });
            }
            match put? {
                Ok(()) => return Ok(()),
                Err(_) if again > 0 => again -= 1,
                Err(last) => {
                    let (attempts, after_ms) = (1, 0);
                    let fault = StorageError::GaveUp {
                        last,
                        attempts,
                        after_ms,
                    };
                    return Err(self.error(name, fault));
                }
            }
        }
    }

    /// Uploads the parts and completes the upload. Returns the reason if the store ended it.
    fn put_parts(
        &self,
        name: &str,
        file: &FileHandle,
        upload: &Arc<Upload>,
        cancel: &mut CancelToken<'_>,
    ) -> Result<Result<(), String>, StorageError> {
        let failed = |fault| self.error(name, fault);
        let live = self.live().map_err(failed)?;
        let options = &self.shared.options.upload;
        let kind = live.signer.kind();
        let at_once = kind.parts_at_once(options.parts);
        let bytes = file.len();
        let part = kind.part_bytes(bytes, options.part_bytes);
        let mut payloads = PartPayloads::default();
        let (sender, receiver) = mpsc::channel();
        let mut under_way = UnderWay::default();
        let mut parts: BTreeMap<usize, Part> = BTreeMap::new();
        let (mut read, mut done, mut started) = (0_u64, 0_u64, 0_usize);
        while read < bytes || !under_way.0.is_empty() {
            if read < bytes && under_way.0.len() < at_once {
                let length = part.min(bytes - read);
                let payload = payloads.next(kind, file.read_range(read, length)?);
                let payload = payload.map_err(failed)?;
                started += 1;
                let (number, start, sender) = (started, read, sender.clone());
                read += length;
                let (of_task, upload) = (Arc::clone(&live), Arc::clone(upload));
                let sent = Arc::new(AtomicU64::new(0));
                let counted = Arc::clone(&sent);
                let task = live.engine.handle.spawn(async move {
                    let part = PartId { number, start };
                    let put = put_part(&of_task, &upload, part, &payload, &counted).await;
                    // If the receiver was dropped, the caller cancelled.
                    let _ = sender.send((number, payload.len(), put));
                });
                under_way
                    .0
                    .insert(number, (Task(task.abort_handle()), sent));
            }
            if read >= bytes || under_way.0.len() >= at_once {
                let answer = match receiver.recv_timeout(SLICE) {
                    Ok(answer) => Some(answer),
                    // A task that has finished has sent its answer.
                    Err(_) if under_way.0.values().all(|(task, _)| task.0.is_finished()) => {
                        let last = receiver.try_recv();
                        Some(last.map_err(|_| failed(StorageError::NoAnswer))?)
                    }
                    Err(_) => None,
                };
                if let Some((number, length, put)) = answer {
                    under_way.0.remove(&number);
                    match put.map_err(failed)? {
                        Ok(part) => parts.insert(number, part),
                        Err(reason) => return Ok(Err(reason)),
                    };
                    done += length;
                }
            }
            if !cancel(done + under_way.sent()) {
                return Err(failed(StorageError::Interrupted));
            }
        }
        file.check_unchanged()?;
        let parts: Vec<Part> = parts.into_values().collect();
        let upload = Arc::clone(upload);
        self.wait_while(name, cancel, |live, sent| async move {
            sent.store(bytes, Ordering::Relaxed);
            complete(&live, &upload, &parts).await
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::StoreKind;

    const MIB: u64 = 1 << 20;

    #[test]
    fn part_size_is_equal_and_respects_the_maximum_count() {
        for (bytes, expected) in [
            (64 * MIB + 1, (64 * MIB + 1).div_ceil(5)),
            (80 * MIB, 16 * MIB),
            (81 * MIB, 13 * MIB + MIB / 2),
            (12 * MIB, 12 * MIB),
            (1, 5 * MIB),
            (0, 5 * MIB),
        ] {
            assert_eq!(StoreKind::S3.part_bytes(bytes, 16 * MIB), expected);
        }
        assert_eq!(StoreKind::S3.part_bytes(12 * MIB, 5 * MIB), 5 * MIB);
        assert_eq!(StoreKind::S3.part_bytes(200_000, 32 << 10), 32 << 10);
        // Google takes parts of whole grains of 256 KiB.
        assert_eq!(StoreKind::Google.part_bytes(200_000, 32 << 10), 256 << 10);
        let part = StoreKind::Google.part_bytes(81 * MIB, 16 * MIB);
        assert_eq!(part, 13 * MIB + MIB / 2);
        let huge = 5 << 40;
        let part = StoreKind::S3.part_bytes(huge, 16 * MIB);
        assert_eq!((huge.div_ceil(part), part), (10_000, huge.div_ceil(10_000)));
    }
}
