//! Objects that are put into a store, whole or in parts.

use std::collections::BTreeMap;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;

use super::list::stat;
use super::request::{Payload, sum_of_parts};
use super::send::{SLICE, send};
use super::store_provider::{Part, Put, Putting, StoreProvider, Upload};
use super::transfer::Failure;
use super::{Live, Remote, check_name};
use crate::error::StorageError;
use crate::fault::RemoteFault;
use crate::file::FileHandle;
use crate::heartbeat::Sign;
use crate::place::FileVersion;

/// Longest time to throw away what was put of an object that will not be whole.
const ABORT: Duration = Duration::from_secs(10);

/// Asked from time to time whether to go on, with the bytes that are through so far.
pub type GoOn<'a> = dyn FnMut(u64) -> bool + 'a;

impl Live {
    fn sums(&self) -> bool {
        !self.no_sums.load(Ordering::Relaxed)
    }

    /// Forgets which version of an object was read: there is another one now.
    pub(super) fn unpin(&self, key: &str) {
        let mut pins = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
        pins.remove(&self.hasher.hash_one(key));
    }
}

/// Puts a whole object or a part of one.
async fn put(
    live: &Live,
    key: &str,
    part: Option<(&Upload, usize)>,
    payload: &Payload,
    only_new: bool,
    sent: &Arc<AtomicU64>,
) -> Result<Put, RemoteFault> {
    let store_provider = live.signer.store_provider();
    loop {
        let putting = Putting {
            key,
            payload,
            only_new,
            sums: store_provider == StoreProvider::S3 && live.sums(),
            acl: live.signer.acl(),
            part,
        };
        let ask = store_provider.put(putting);
        let put = send(live, &ask, Some(payload), sent, |answer| {
            store_provider.put_answer(answer, &putting)
        })
        .await?;
        if put == Put::Unknown {
            // Where it does not get better without the checksum, the store may well know it.
            live.no_sums.store(putting.sums, Ordering::Relaxed);
            if putting.sums {
                continue;
            }
        }
        return Ok(put);
    }
}

/// Puts an object in the place of what had its name.
pub(super) async fn put_whole(
    live: &Live,
    key: &str,
    payload: &Payload,
    sent: &Arc<AtomicU64>,
) -> Result<(), RemoteFault> {
    live.unpin(key);
    let put = put(live, key, None, payload, false, sent).await;
    live.unpin(key);
    match put? {
        Put::Done(_) => Ok(()),
        // Both are answers to headers that were not sent.
        Put::Taken | Put::Unknown => Err(RemoteFault::NoAnswer),
    }
}

/// Puts an object where nothing has its name; `false` where the same one is there already.
async fn put_new(
    live: &Live,
    key: &str,
    payload: &Payload,
    sent: &Arc<AtomicU64>,
) -> Result<bool, RemoteFault> {
    live.unpin(key);
    match put(live, key, None, payload, true, sent).await? {
        Put::Done(_) => {
            live.unpin(key);
            return Ok(true);
        }
        Put::Taken => {}
        Put::Unknown => {
            if stat(live, key).await?.is_none() {
                return put_whole(live, key, payload, sent).await.map(|()| true);
            }
        }
    }
    match live.get_key(key, None, None, payload.len()).await {
        Ok(bytes) if payload.is(&bytes) => return Ok(false),
        Ok(_) | Err(RemoteFault::TooLarge { .. }) => {}
        Err(fault) => return Err(fault),
    }
    // It may have been a page of a proxy: with the length that the object must have, such a page is none.
    let length = payload.len();
    if stat(live, key)
        .await?
        .is_none_or(|found| found.bytes != length)
    {
        return Err(RemoteFault::Exists);
    }
    match live.get_key(key, None, Some(length), length).await? {
        bytes if payload.is(&bytes) => Ok(false),
        _ => Err(RemoteFault::Exists),
    }
}

async fn create(live: &Live, key: &str) -> Result<Upload, RemoteFault> {
    let store_provider = live.signer.store_provider();
    loop {
        let sums = live.sums();
        let upload = |id| Upload {
            key: key.to_owned(),
            id,
            sums,
        };
        let Some(ask) = store_provider.begin(key, sums, live.signer.acl()) else {
            return Ok(upload(format!("{:016x}", super::random_number())));
        };
        // Where an answer is lost there is one upload more, which holds nothing.
        let id = send(live, &ask, None, &Arc::default(), |answer| {
            match answer.status {
                501 if sums => Ok(None),
                501 => Err(Failure::Final(RemoteFault::Refused {
                    status: 501,
                    code: answer.code(),
                })),
                _ => StoreProvider::begun(&answer).map(Some),
            }
        })
        .await?;
        if let Some(id) = id {
            return Ok(upload(id));
        }
        live.no_sums.store(true, Ordering::Relaxed);
    }
}

async fn put_part(
    live: &Live,
    upload: &Upload,
    number: usize,
    payload: &Payload,
    sent: &Arc<AtomicU64>,
) -> Result<Part, RemoteFault> {
    let part = Some((upload, number));
    match put(live, &upload.key, part, payload, false, sent).await? {
        Put::Done(etag) => Ok(Part {
            etag,
            digest: *payload.digest(),
            bytes: payload.len(),
        }),
        Put::Taken | Put::Unknown => Err(RemoteFault::NoAnswer),
    }
}

/// Makes an object of the parts.
async fn complete(
    live: &Live,
    upload: &Upload,
    parts: &[Part],
    bytes: u64,
) -> Result<(), RemoteFault> {
    let store_provider = live.signer.store_provider();
    let (ask, list) = store_provider.complete(upload, parts);
    let list = Payload::new(store_provider, list.into_bytes())?;
    live.unpin(&upload.key);
    let known = send(live, &ask, Some(&list), &Arc::default(), |answer| {
        store_provider.completed(&answer, parts)
    })
    .await?;
    live.unpin(&upload.key);
    if known {
        return Ok(());
    }
    // An earlier answer may have been lost: only an object that is this one is a success.
    let sum = sum_of_parts(parts);
    match stat(live, &upload.key).await? {
        Some(found) if found.bytes == bytes && sum.is_some() && found.sum == sum => Ok(()),
        Some(found)
            if found.bytes == bytes && sum.is_none() && is_there(live, upload, parts).await? =>
        {
            Ok(())
        }
        _ => Err(RemoteFault::GaveUp {
            last: "the store no longer knows the upload, nor shows that it is complete".to_owned(),
            attempts: 1,
            after_ms: 0,
        }),
    }
}

/// Whether an object has these parts: they are read back, where a store has no checksum of what was put in parts.
async fn is_there(live: &Live, upload: &Upload, parts: &[Part]) -> Result<bool, RemoteFault> {
    let store_provider = live.signer.store_provider();
    let mut start = 0;
    for part in parts {
        let end = start + part.bytes;
        let bytes = live.get_key(&upload.key, Some(start..end), None, 0).await?;
        if store_provider.digest(&bytes) != Some(part.digest) {
            return Ok(false);
        }
        start = end;
    }
    Ok(true)
}

/// Throws away the parts of an upload. What cannot be thrown away in time is left to the rules of the bucket.
async fn abort(live: &Live, upload: &Upload) {
    let Some(mut ask) = live.signer.store_provider().abort(upload) else {
        return;
    };
    // Nobody sees that the parts go, and whoever has lost a lease is to clear up.
    ask.changes = false;
    // The failure that led here is the one to tell.
    let _ = tokio::time::timeout(ABORT, send(live, &ask, None, &Arc::default(), |_| Ok(()))).await;
}

/// Bytes of each part but the last, of a file with `bytes` bytes.
fn part_bytes(bytes: u64, most: u64, parts: u64) -> u64 {
    /// Fewer bytes are refused by S3 and its like, but for the last part.
    const LEAST: u64 = 5 << 20;

    let count = bytes.div_ceil(most.max(1)).clamp(1, parts.max(1));
    bytes.div_ceil(count).max(most.min(LEAST)).max(1)
}

/// Parts under way. Dropped, they are cancelled.
#[derive(Default)]
struct UnderWay(BTreeMap<usize, (AbortHandle, Arc<AtomicU64>)>);

impl UnderWay {
    fn sent(&self) -> u64 {
        let sent = self
            .0
            .values()
            .map(|(_, sent)| sent.load(Ordering::Relaxed));
        sent.sum()
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        for (task, _) in self.0.values() {
            task.abort();
        }
    }
}

impl Remote {
    /// # Errors
    ///
    /// `store-unsupported` where this kind of store takes no objects.
    pub(crate) fn check_writable(&self) -> Result<(), StorageError> {
        self.writable("").map(|_| ())
    }

    /// An object that was put is not there as it was put.
    pub(crate) fn not_as_put(
        &self,
        name: &str,
        bytes: u64,
        found: Option<FileVersion>,
    ) -> StorageError {
        let fault = match found {
            // What is there was put by whoever has taken the place of this writer.
            _ if self.is_taken_over() => RemoteFault::TakenOver,
            Some(found) => RemoteFault::BodyLength {
                expected: bytes,
                found: found.bytes,
            },
            None => RemoteFault::Answer {
                what: "success, and the object is not there",
            },
        };
        self.error(name, fault)
    }

    /// Whether another writer has the lease. One that has given no sign of life for a while is looked at first.
    fn is_taken_over(&self) -> bool {
        /// Longer than a lease lasts without one.
        const MOST: Duration = Duration::from_secs(20);
        const STEP: Duration = Duration::from_millis(50);

        let began = Instant::now();
        loop {
            match self.leases().sign() {
                Sign::Lost => return true,
                Sign::Held => return false,
                Sign::Silent if began.elapsed() > MOST => return false,
                Sign::Silent => std::thread::sleep(STEP),
            }
        }
    }

    fn writable(&self, name: &str) -> Result<StoreProvider, StorageError> {
        let store_provider = self.shared.access.0.store_provider;
        if store_provider.can_write() {
            return Ok(store_provider);
        }
        let fault = RemoteFault::Unsupported {
            action: "put or remove objects",
            store: store_provider.kind(),
        };
        Err(self.error(name, fault))
    }

    /// Takes an object away. That nothing has the name is no error.
    ///
    /// # Errors
    ///
    /// As [`Remote::put`].
    pub fn remove(&self, name: &str, go_on: &mut GoOn<'_>) -> Result<(), StorageError> {
        check_name(name)?;
        self.writable(name)?;
        let key = self.shared.location.key(name);
        self.wait_while(name, go_on, &AtomicU64::new(0), |live| async move {
            live.unpin(&key);
            let ask = StoreProvider::remove(&key);
            send(&live, &ask, None, &Arc::default(), |answer| {
                StoreProvider::removed(&answer)
            })
            .await
        })
    }

    /// Puts an object in the place of what had its name: a reader gets the old one or this one. `go_on` is asked several
    /// times a second with the bytes that were sent; where it answers `false`, either one may be there.
    ///
    /// The bytes go with a checksum that the store compares (SHA-256 to S3, MD5 to Google and Azure), where it knows one.
    ///
    /// # Errors
    ///
    /// [`StorageError::Remote`]: see [`RemoteFault`]. [`StorageError::Name`].
    pub fn put(
        &self,
        name: &str,
        bytes: Vec<u8>,
        go_on: &mut GoOn<'_>,
    ) -> Result<(), StorageError> {
        check_name(name)?;
        let key = self.shared.location.key(name);
        let store_provider = self.writable(name)?;
        let payload =
            Payload::new(store_provider, bytes).map_err(|fault| self.error(name, fault))?;
        let sent = Arc::new(AtomicU64::new(0));
        let of_task = Arc::clone(&sent);
        self.wait_while(name, go_on, &sent, |live| async move {
            put_whole(&live, &key, &payload, &of_task).await
        })
    }

    /// Puts an object where nothing has its name. `false` where the very same bytes are there already, as after an earlier
    /// attempt whose answer was lost.
    ///
    /// The store decides between two that do this at once: by `If-None-Match: *` (S3, Azure), by a generation of 0 (Google),
    /// by `overwrite=false` (volumes). One that says that it does not know this is asked for the object first: then the
    /// later of the two wins. One that passes over it in silence keeps the later one as well.
    ///
    /// # Errors
    ///
    /// As [`Remote::put`]; `exists`, which is a conflict, where other bytes are there.
    pub fn put_new(
        &self,
        name: &str,
        bytes: Vec<u8>,
        go_on: &mut GoOn<'_>,
    ) -> Result<bool, StorageError> {
        check_name(name)?;
        let key = self.shared.location.key(name);
        let store_provider = self.writable(name)?;
        let payload =
            Payload::new(store_provider, bytes).map_err(|fault| self.error(name, fault))?;
        let sent = Arc::new(AtomicU64::new(0));
        let of_task = Arc::clone(&sent);
        self.wait_while(name, go_on, &sent, |live| async move {
            put_new(&live, &key, &payload, &of_task).await
        })
    }

    /// Puts the contents of a file, in the place of what had the name. Up to `put_split_above` bytes go in one request, more
    /// of them in equal parts, of which `put_parts` are in memory and under way at once.
    ///
    /// The object appears when all of it is there. After a failure, and where `go_on` answers `false`, the parts are thrown
    /// away; where that fails too, the store keeps them until a rule of the bucket removes them.
    ///
    /// # Errors
    ///
    /// As [`Remote::put`]; what reading the file fails with, among it that it changed.
    pub fn put_file(
        &self,
        name: &str,
        file: &FileHandle,
        go_on: &mut GoOn<'_>,
    ) -> Result<(), StorageError> {
        check_name(name)?;
        let options = &self.shared.options;
        let store_provider = self.writable(name)?;
        let whole = match store_provider.has_parts() {
            true => options.put_split_above.min(store_provider.put_most()),
            false => store_provider.put_most(),
        };
        if file.len() <= whole || !store_provider.has_parts() {
            return self.put(name, file.read_all(whole)?, go_on);
        }
        let key = self.shared.location.key(name);
        let upload = self.wait_while(name, go_on, &AtomicU64::new(0), |live| async move {
            create(&live, &key).await
        })?;
        let upload = Arc::new(upload);
        let put = self.put_parts(name, file, &upload, go_on);
        if put.is_err() {
            let upload = Arc::clone(&upload);
            // It ends by itself, and what it fails with is of no use.
            let _ = self.wait_while(name, &mut |_| true, &AtomicU64::new(0), |live| async move {
                abort(&live, &upload).await;
                Ok(())
            });
        }
        put
    }

    /// Puts pieces as the parts of an object, one after the other, or answers that the store has no such thing.
    pub(crate) fn put_pieces(
        &self,
        name: &str,
        pieces: Vec<Vec<u8>>,
        go_on: &mut GoOn<'_>,
    ) -> Result<(), StorageError> {
        check_name(name)?;
        let store_provider = self.writable(name)?;
        let failed = |fault| self.error(name, fault);
        if !store_provider.has_parts() {
            let action = "put an object in parts";
            let store = store_provider.kind();
            return Err(failed(RemoteFault::Unsupported { action, store }));
        }
        let key = self.shared.location.key(name);
        let payloads = pieces
            .into_iter()
            .map(|piece| Payload::new(store_provider, piece));
        let payloads: Vec<_> = payloads.collect::<Result<_, _>>().map_err(failed)?;
        let sent = Arc::new(AtomicU64::new(0));
        self.wait_while(name, go_on, &sent, |live| async move {
            let upload = create(&live, &key).await?;
            let put = async {
                let mut parts = Vec::new();
                for (at, payload) in payloads.iter().enumerate() {
                    let sent = Arc::default();
                    parts.push(put_part(&live, &upload, at + 1, payload, &sent).await?);
                }
                let bytes = parts.iter().map(|part| part.bytes).sum();
                complete(&live, &upload, &parts, bytes).await
            };
            let put = put.await;
            if put.is_err() {
                abort(&live, &upload).await;
            }
            put
        })
    }

    fn put_parts(
        &self,
        name: &str,
        file: &FileHandle,
        upload: &Arc<Upload>,
        go_on: &mut GoOn<'_>,
    ) -> Result<(), StorageError> {
        let failed = |fault| self.error(name, fault);
        let live = self.live().map_err(failed)?;
        let options = &self.shared.options;
        let store_provider = live.signer.store_provider();
        let bytes = file.len();
        let part = part_bytes(bytes, options.put_part_bytes, store_provider.parts_most());
        let (sender, receiver) = mpsc::channel();
        let mut under_way = UnderWay::default();
        let mut parts: BTreeMap<usize, Part> = BTreeMap::new();
        let (mut read, mut done, mut begun) = (0_u64, 0_u64, 0_usize);
        while read < bytes || !under_way.0.is_empty() {
            if read < bytes && under_way.0.len() < options.put_parts.max(1) {
                let length = part.min(bytes - read);
                let payload =
                    Payload::new(store_provider, file.read_range(read, length)?).map_err(failed)?;
                read += length;
                begun += 1;
                let (number, sender) = (begun, sender.clone());
                let (of_task, upload) = (Arc::clone(&live), Arc::clone(upload));
                let sent = Arc::new(AtomicU64::new(0));
                let counted = Arc::clone(&sent);
                let task = live.engine.handle.spawn(async move {
                    let put = put_part(&of_task, &upload, number, &payload, &counted).await;
                    // Where the receiver is gone the caller did not go on.
                    let _ = sender.send((number, payload.len(), put));
                });
                under_way.0.insert(number, (task.abort_handle(), sent));
            }
            if read >= bytes || under_way.0.len() >= options.put_parts.max(1) {
                let answer = match receiver.recv_timeout(SLICE) {
                    Ok(answer) => Some(answer),
                    // A task that has ended has sent its answer.
                    Err(_) if under_way.0.values().all(|(task, _)| task.is_finished()) => {
                        let last = receiver.try_recv();
                        Some(last.map_err(|_| failed(RemoteFault::NoAnswer))?)
                    }
                    Err(_) => None,
                };
                if let Some((number, length, put)) = answer {
                    under_way.0.remove(&number);
                    parts.insert(number, put.map_err(failed)?);
                    done += length;
                }
            }
            if !go_on(done + under_way.sent()) {
                return Err(failed(RemoteFault::Interrupted));
            }
        }
        file.check_unchanged()?;
        let parts: Vec<Part> = parts.into_values().collect();
        let upload = Arc::clone(upload);
        self.wait_while(name, go_on, &AtomicU64::new(bytes), |live| async move {
            complete(&live, &upload, &parts, bytes).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::part_bytes;

    const MIB: u64 = 1 << 20;

    #[test]
    fn parts_are_equal_and_not_too_many() {
        for (bytes, expected) in [
            (64 * MIB + 1, (64 * MIB + 1).div_ceil(5)),
            (80 * MIB, 16 * MIB),
            (81 * MIB, 13 * MIB + MIB / 2),
            (12 * MIB, 12 * MIB),
            (1, 5 * MIB),
            (0, 5 * MIB),
        ] {
            assert_eq!(part_bytes(bytes, 16 * MIB, 10_000), expected);
        }
        assert_eq!(part_bytes(12 * MIB, 5 * MIB, 10_000), 5 * MIB);
        assert_eq!(part_bytes(200_000, 32 << 10, 10_000), 32 << 10);
        let huge = 5 << 40;
        let part = part_bytes(huge, 16 * MIB, 10_000);
        assert_eq!((huge.div_ceil(part), part), (10_000, huge.div_ceil(10_000)));
    }
}
