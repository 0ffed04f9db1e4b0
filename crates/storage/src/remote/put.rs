//! Objects that are put into a store, whole or in parts.

use std::collections::BTreeMap;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use reqwest::Method;
use tokio::task::AbortHandle;

use super::list::stat;
use super::request::{Payload, Wish, sum_of_parts};
use super::send::{Answer, Call, SLICE, inside, lie, send};
use super::transfer::Failure;
use super::{Live, Remote, check_name, xml};
use crate::error::StorageError;
use crate::fault::RemoteFault;
use crate::file::FileHandle;

/// Most parts of an object.
const PARTS: u64 = 10_000;

/// Most bytes of an answer to a write.
const ANSWER: usize = 64 << 10;

/// Longest time to throw away what was put of an object that will not be whole.
const ABORT: Duration = Duration::from_secs(10);

const SUM: &str = "x-amz-checksum-sha256";

/// Asked from time to time whether to go on, with the bytes that are through so far.
pub type GoOn<'a> = dyn FnMut(u64) -> bool + 'a;

impl Live {
    fn sums(&self) -> bool {
        !self.no_sums.load(Ordering::Relaxed)
    }

    /// Forgets which version of an object was read: there is another one now.
    fn unpin(&self, key: &str) {
        let mut pins = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
        pins.remove(&self.hasher.hash_one(key));
    }
}

/// What a `PUT` came to.
#[derive(Debug, PartialEq, Eq)]
enum Put {
    /// It is there, with this tag.
    Done(String),
    /// Something has the name.
    Taken,
    /// The store does not know a header of the request.
    Unknown,
}

/// Puts a whole object or a part of one.
async fn put(
    live: &Live,
    key: &str,
    query: &[(&str, &str)],
    payload: &Payload,
    only_new: bool,
    sent: &Arc<AtomicU64>,
) -> Result<Put, RemoteFault> {
    loop {
        let (sum, with_sum) = (payload.sum(), live.sums());
        let mut headers = Vec::new();
        if with_sum {
            headers.push((SUM, sum.as_str()));
        }
        if only_new {
            headers.push(("if-none-match", "*"));
        }
        if let Some(acl) = live.signer.acl().filter(|_| query.is_empty()) {
            headers.push(("x-amz-acl", acl));
        }
        let call = Call {
            wish: Wish {
                method: &Method::PUT,
                key,
                query,
                headers: &headers,
                payload: Some(payload),
            },
            accepts: &[200, 412, 501],
            most: ANSWER,
        };
        let put = send(live, &call, sent, |answer| {
            match answer.status {
                412 if only_new => return Ok(Put::Taken),
                501 if only_new || with_sum => return Ok(Put::Unknown),
                200 => {}
                status => {
                    return Err(Failure::Final(RemoteFault::Refused {
                        status,
                        code: answer.code(),
                    }));
                }
            }
            if answer.sum.as_ref().is_some_and(|found| *found != sum) {
                return Err(lie("another checksum than that of what was sent"));
            }
            if !answer.body.is_empty()
                && let Some(code) = answer.code()
            {
                return Err(inside(answer.status, Some(code)));
            }
            answer.etag.map(Put::Done).ok_or(lie("it has no ETag"))
        })
        .await?;
        if put == Put::Unknown {
            // Where it does not get better without the checksum, the store may well know it.
            live.no_sums.store(with_sum, Ordering::Relaxed);
            if with_sum {
                continue;
            }
        }
        return Ok(put);
    }
}

/// Puts an object in the place of what had its name.
async fn put_whole(
    live: &Live,
    key: &str,
    payload: &Payload,
    sent: &Arc<AtomicU64>,
) -> Result<(), RemoteFault> {
    live.unpin(key);
    let put = put(live, key, &[], payload, false, sent).await;
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
    match put(live, key, &[], payload, true, sent).await? {
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
        Ok(bytes) if payload.is(&bytes) => Ok(false),
        Ok(_) | Err(RemoteFault::TooLarge { .. }) => Err(RemoteFault::Exists),
        Err(fault) => Err(fault),
    }
}

/// An upload in parts that has begun.
#[derive(Debug)]
struct Upload {
    key: String,
    id: String,
    /// Whether parts come with checksums.
    sums: bool,
}

async fn create(live: &Live, key: &str) -> Result<Upload, RemoteFault> {
    loop {
        let sums = live.sums();
        let mut headers = Vec::new();
        if sums {
            headers.push(("x-amz-checksum-algorithm", "SHA256"));
        }
        if let Some(acl) = live.signer.acl() {
            headers.push(("x-amz-acl", acl));
        }
        let call = Call {
            wish: Wish {
                method: &Method::POST,
                key,
                query: &[("uploads", "")],
                headers: &headers,
                payload: None,
            },
            accepts: &[200, 501],
            most: ANSWER,
        };
        // Where an answer is lost there is one upload more, which holds nothing.
        let id = send(live, &call, &Arc::default(), |answer| match answer.status {
            501 if sums => Ok(None),
            501 => Err(Failure::Final(RemoteFault::Refused {
                status: 501,
                code: answer.code(),
            })),
            _ => upload_id(&answer).map(Some),
        })
        .await?;
        if let Some(id) = id {
            return Ok(Upload {
                key: key.to_owned(),
                id,
                sums,
            });
        }
        live.no_sums.store(true, Ordering::Relaxed);
    }
}

fn upload_id(answer: &Answer) -> Result<String, Failure> {
    let text = std::str::from_utf8(&answer.body).map_err(|_| lie("it is not UTF-8"))?;
    let (mut id, mut is_error) = (None, false);
    xml::read(text, |path, inside| {
        match path {
            ["InitiateMultipartUploadResult", "UploadId"] => id = Some(inside.to_owned()),
            ["Error"] => is_error = true,
            _ => {}
        }
        Ok(())
    })
    .map_err(lie)?;
    if is_error {
        return Err(inside(answer.status, answer.code()));
    }
    id.filter(|id| !id.is_empty())
        .ok_or(lie("it has no id of an upload"))
}

/// A part that is there.
#[derive(Clone, Debug)]
struct Part {
    etag: String,
    sum: String,
    digest: [u8; 32],
}

async fn put_part(
    live: &Live,
    upload: &Upload,
    number: usize,
    payload: &Payload,
    sent: &Arc<AtomicU64>,
) -> Result<Part, RemoteFault> {
    let number = number.to_string();
    let query = [("partNumber", number.as_str()), ("uploadId", &upload.id)];
    match put(live, &upload.key, &query, payload, false, sent).await? {
        Put::Done(etag) => Ok(Part {
            etag,
            sum: payload.sum(),
            digest: *payload.digest(),
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
    list: &Payload,
) -> Result<(), RemoteFault> {
    let digests: Vec<_> = parts.iter().map(|part| part.digest).collect();
    let sum = sum_of_parts(&digests).ok_or(RemoteFault::NoAnswer)?;
    let call = Call {
        wish: Wish {
            method: &Method::POST,
            key: &upload.key,
            query: &[("uploadId", &upload.id)],
            headers: &[],
            payload: Some(list),
        },
        accepts: &[200, 404],
        most: ANSWER,
    };
    live.unpin(&upload.key);
    let known = send(live, &call, &Arc::default(), |answer| {
        if answer.status == 404 {
            return match answer.code() {
                Some(code) if code != "NoSuchUpload" => {
                    Err(Failure::Final(RemoteFault::NotFound { code: Some(code) }))
                }
                _ => Ok(false),
            };
        }
        completed(&answer, &sum).map(|()| true)
    })
    .await?;
    live.unpin(&upload.key);
    if known {
        return Ok(());
    }
    // An earlier answer may have been lost: only an object that is this one is a success.
    match stat(live, &upload.key).await? {
        Some(found) if found.bytes == bytes && found.sum.as_ref() == Some(&sum) => Ok(()),
        _ => Err(RemoteFault::GaveUp {
            last: "the store no longer knows the upload, nor shows that it is complete".to_owned(),
            attempts: 1,
            after_ms: 0,
        }),
    }
}

fn completed(answer: &Answer, sum: &str) -> Result<(), Failure> {
    let text = std::str::from_utf8(&answer.body).map_err(|_| lie("it is not UTF-8"))?;
    let (mut root, mut etag, mut found) = ("", false, None);
    xml::read(text.trim_start(), |path, inside| {
        match path {
            ["CompleteMultipartUploadResult", "ETag"] => etag = !inside.is_empty(),
            ["CompleteMultipartUploadResult", "ChecksumSHA256"] => found = Some(inside.to_owned()),
            [only] => root = only,
            _ => {}
        }
        Ok(())
    })
    .map_err(lie)?;
    match root {
        "CompleteMultipartUploadResult" if !etag => Err(lie("it has no ETag")),
        // A checksum of the whole, where the store makes one of its own, cannot be compared.
        "CompleteMultipartUploadResult"
            if found.is_some_and(|found| found.contains('-') && found != sum) =>
        {
            Err(Failure::Final(RemoteFault::Answer {
                what: "another checksum than that of what was sent",
            }))
        }
        "CompleteMultipartUploadResult" => Ok(()),
        "Error" => Err(inside(answer.status, answer.code())),
        _ => Err(lie("it does not say that the upload is complete")),
    }
}

/// The list of parts that ends an upload.
fn list_of(parts: &[Part], sums: bool) -> String {
    let mut list =
        String::from("<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
    for (at, part) in parts.iter().enumerate() {
        let etag = part
            .etag
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('"', "&quot;");
        list.push_str(&format!(
            "<Part><PartNumber>{}</PartNumber><ETag>{etag}</ETag>",
            at + 1
        ));
        if sums {
            list.push_str(&format!("<ChecksumSHA256>{}</ChecksumSHA256>", part.sum));
        }
        list.push_str("</Part>");
    }
    list.push_str("</CompleteMultipartUpload>");
    list
}

/// Throws away the parts of an upload. What cannot be thrown away in time is left to the rules of the bucket.
async fn abort(live: &Live, upload: &Upload) {
    let call = Call {
        wish: Wish {
            method: &Method::DELETE,
            key: &upload.key,
            query: &[("uploadId", &upload.id)],
            headers: &[],
            payload: None,
        },
        accepts: &[200, 204, 404],
        most: ANSWER,
    };
    // The failure that led here is the one to tell.
    let _ = tokio::time::timeout(ABORT, send(live, &call, &Arc::default(), |_| Ok(()))).await;
}

/// Bytes of each part but the last, of a file with `bytes` bytes.
fn part_bytes(bytes: u64, most: u64) -> u64 {
    let count = bytes.div_ceil(most.max(1)).clamp(1, PARTS);
    bytes.div_ceil(count).max(1)
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
    /// Puts an object in the place of what had its name: a reader gets the old one or this one. `go_on` is asked several
    /// times a second with the bytes that were sent; where it answers `false`, either one may be there.
    ///
    /// The bytes go with their SHA-256, which the store compares.
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
        let payload = Payload::new(bytes).map_err(|fault| self.error(name, fault))?;
        let sent = Arc::new(AtomicU64::new(0));
        let of_task = Arc::clone(&sent);
        self.wait_while(name, go_on, &sent, |live| async move {
            put_whole(&live, &key, &payload, &of_task).await
        })
    }

    /// Puts an object where nothing has its name. `false` where the very same bytes are there already, as after an earlier
    /// attempt whose answer was lost.
    ///
    /// The store decides between two that do this at once, by `If-None-Match: *`. One that says that it does not know this
    /// is asked for the object first: then the later of the two wins. One that passes over it in silence keeps the later
    /// one as well.
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
        let payload = Payload::new(bytes).map_err(|fault| self.error(name, fault))?;
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
        if file.len() <= options.put_split_above {
            return self.put(name, file.read_all(options.put_split_above)?, go_on);
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
        let bytes = file.len();
        let part = part_bytes(bytes, options.put_part_bytes);
        let (sender, receiver) = mpsc::channel();
        let mut under_way = UnderWay::default();
        let mut parts: BTreeMap<usize, Part> = BTreeMap::new();
        let (mut read, mut done, mut begun) = (0_u64, 0_u64, 0_usize);
        while read < bytes || !under_way.0.is_empty() {
            if read < bytes && under_way.0.len() < options.put_parts.max(1) {
                let length = part.min(bytes - read);
                let payload = Payload::new(file.read_range(read, length)?).map_err(failed)?;
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
        let list = list_of(&parts, upload.sums).into_bytes();
        let list = Payload::new(list).map_err(failed)?;
        let upload = Arc::clone(upload);
        self.wait_while(name, go_on, &AtomicU64::new(bytes), |live| async move {
            complete(&live, &upload, &parts, bytes, &list).await
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
            (1, 1),
            (0, 1),
        ] {
            assert_eq!(part_bytes(bytes, 16 * MIB), expected);
        }
        let huge = 5 << 40;
        let part = part_bytes(huge, 16 * MIB);
        assert_eq!((huge.div_ceil(part), part), (10_000, huge.div_ceil(10_000)));
    }
}
