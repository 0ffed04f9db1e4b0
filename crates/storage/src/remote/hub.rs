//! The Hugging Face Hub: the commit of a revision, and the redirects to the files of a repository or a bucket.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use http::HeaderValue;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, ETAG, IF_MATCH, LAST_MODIFIED, LOCATION, RANGE};
use reqwest::{Method, Request, Response};
use serde_json::Value;
use url::Url;

use super::answer::{Failure, Head, protocol_error, refused, text_of};
use super::live::Live;
use super::retry::{self, Clock, body};
use crate::entry::StoreKind;
use crate::error::StorageError;

/// The maximum number of redirects of a request.
const REDIRECTS: usize = 5;

/// Determines the commit of the revision before the first request of a location. All later requests name the commit, so
/// they read the same files even if the revision moves on. Other stores and buckets of the Hub have no revisions.
pub(super) async fn pin(live: &Live, clock: &mut Clock) -> Result<(), Failure> {
    let signer = &live.signer;
    if signer.kind() != StoreKind::Hub {
        return Ok(());
    }
    let found = signer.commit.get_or_try_init(|| commit_of(live, clock));
    found.await.map(drop)
}

async fn commit_of(live: &Live, clock: &mut Clock) -> Result<String, Failure> {
    let signer = &live.signer;
    let revision = signer.access.account.as_deref().unwrap_or_default();
    if is_commit(revision) {
        return Ok(revision.to_owned());
    }
    let ask = StoreKind::revision();
    let sent = Arc::default();
    let signed = signer.sign(&ask, None, &sent, &live.leases).await;
    let request = signed.map_err(Failure::Final)?;
    let response = exchange(live, request, &sent, 0, clock).await?;
    let head = Head::of(StoreKind::Hub, &response);
    if head.status != 200 {
        let patience = live.options.request.idle_timeout;
        return Err(refused(StoreKind::Hub, patience, response, head).await);
    }
    let bytes = body(live, response, &head, ask.max, clock).await?;
    let json: Option<Value> = serde_json::from_slice(&bytes).ok();
    let commit = json.as_ref().and_then(|json| json.get("sha")?.as_str());
    let commit = commit.filter(|commit| is_commit(commit));
    commit
        .map(str::to_owned)
        .ok_or(protocol_error("it names no commit"))
}

fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && revision.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Sends a request as [`retry::exchange`] does, and follows the redirects of the Hub. Large files are on other hosts, which do
/// not get the token. The answer has the tag that the Hub gives the file. For a file of a bucket, it is the hash of the
/// content, which listings have as well.
pub(super) async fn exchange(
    live: &Live,
    mut request: Request,
    sent: &AtomicU64,
    bytes: u64,
    clock: &mut Clock,
) -> Result<Response, Failure> {
    let tag_header = match live.signer.kind() {
        StoreKind::Hub => "x-linked-etag",
        StoreKind::HubBucket => "x-xet-hash",
        _ => return retry::exchange(live, request, sent, bytes, clock).await,
    };
    // The commit determines the bytes, or the caller compares the hash. Other hosts have other tags.
    request.headers_mut().remove(IF_MATCH);
    let mut tag = None;
    let mut is_probe = false;
    for _ in 0..=REDIRECTS {
        let again = request.try_clone();
        let mut response = retry::exchange(live, request, sent, bytes, clock).await?;
        tag = tag.or_else(|| text_of(response.headers(), tag_header));
        let (Some(mut next), Some(url)) = (again, target(&response)) else {
            if let Some(bytes) = length_of(&response).filter(|_| is_probe) {
                return head_of(&HeaderValue::from(bytes), tag)
                    .ok_or(Failure::Final(StorageError::NoAnswer));
            }
            let headers = response.headers_mut();
            if live.signer.kind() == StoreKind::Hub {
                tag = tag.or_else(|| text_of(headers, ETAG.as_str()));
            } else {
                headers.remove(ETAG);
                headers.remove(LAST_MODIFIED);
            }
            if let Some(tag) = tag.and_then(|tag| strong_etag(&tag)) {
                headers.insert(ETAG, tag);
            }
            return Ok(response);
        };
        let is_elsewhere = url.origin() != next.url().origin();
        if is_elsewhere {
            next.headers_mut().remove(AUTHORIZATION);
        }
        if *next.method() == Method::HEAD {
            if let Some(size) = response.headers().get("x-linked-size") {
                return head_of(size, tag).ok_or(Failure::Final(StorageError::NoAnswer));
            }
            // The address of a file on another host is for `GET` alone. One byte tells the length.
            if is_elsewhere {
                is_probe = true;
                *next.method_mut() = Method::GET;
                let first = HeaderValue::from_static("bytes=0-0");
                next.headers_mut().insert(RANGE, first);
            }
        }
        *next.url_mut() = url;
        request = next;
    }
    Err(protocol_error("it redirects again and again"))
}

/// Returns the address that a redirect names. An address without TLS is followed only from another one.
fn target(response: &Response) -> Option<Url> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let to = response.headers().get(LOCATION)?.to_str().ok()?;
    let url = response.url().join(to).ok()?;
    let is_safe = url.scheme() == "https" || url.scheme() == response.url().scheme();
    is_safe.then_some(url)
}

/// Returns the length of the file of which an answer has the first byte.
fn length_of(response: &Response) -> Option<u64> {
    let head = Head::of(StoreKind::Hub, response);
    match head.status {
        206 => head.range?.2,
        416 => head.whole(),
        200 => head.length,
        _ => None,
    }
}

/// Returns the answer to a request for the head of a file.
fn head_of(size: &HeaderValue, tag: Option<String>) -> Option<Response> {
    let mut head = http::Response::builder().header(CONTENT_LENGTH, size);
    if let Some(tag) = tag.and_then(|tag| strong_etag(&tag)) {
        head = head.header(ETAG, tag);
    }
    Some(head.body(Vec::new()).ok()?.into())
}

/// Returns a tag without the mark of a weak one. A tag of the Hub stands for the bytes of a file.
fn strong_etag(tag: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(tag.strip_prefix("W/").unwrap_or(tag)).ok()
}
