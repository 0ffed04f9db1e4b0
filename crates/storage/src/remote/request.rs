//! A single request: signing it, sending it, and reading the head of its answer.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::header::{
    ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, IF_MATCH, LAST_MODIFIED,
    LOCATION, RANGE, RETRY_AFTER, TRANSFER_ENCODING,
};
use http::{HeaderName, HeaderValue};
use md5::{Digest as _, Md5};
use object_store::client::HttpRequestBody;
use reqwest::{Method, Request, Response};
use ring::digest;
use url::Url;

use super::credential::{CredentialCache, authorize};
use super::settings::{Access, with_query};
use super::store_provider::{Part, Place, RequestSpec, StoreProvider, files};
use crate::fault::RemoteFault;
use crate::heartbeat::Leases;

/// The maximum number of bytes of an error body that are read to find its code.
const ERROR_BODY: usize = 8 << 10;

/// Builds requests with addresses and signatures.
pub(super) struct Signer {
    pub(super) access: Access,
    credential_cache: CredentialCache,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").finish_non_exhaustive()
    }
}

impl Signer {
    pub(super) fn new(access: Access) -> Self {
        Self {
            access,
            credential_cache: CredentialCache::default(),
        }
    }

    pub(super) const fn store_provider(&self) -> StoreProvider {
        self.access.store_provider
    }

    /// Returns the current epoch of the credentials. A request stores it before it is signed, to report later which
    /// ones expired.
    pub(super) fn epoch(&self) -> u64 {
        self.credential_cache.epoch()
    }

    /// Forgets the expired credentials of this epoch. Returns `false` if there can be no others.
    pub(super) fn renew(&self, epoch: u64) -> bool {
        self.credential_cache.renew(&self.access, epoch)
    }

    /// Returns a signed `GET` request for `key`.
    pub(super) async fn request(
        &self,
        key: &str,
        range: Option<&Range<u64>>,
        etag: Option<&str>,
    ) -> Result<Request, RemoteFault> {
        let bug = |_| RemoteFault::NoAnswer;
        let mut headers = HeaderMap::new();
        if let Some(range) = range {
            let value = format!("bytes={}-{}", range.start, range.end.saturating_sub(1));
            headers.insert(RANGE, HeaderValue::from_str(&value).map_err(bug)?);
        }
        if let Some(etag) = etag
            && let Ok(value) = HeaderValue::from_str(etag)
        {
            headers.insert(IF_MATCH, value);
        }
        let url = self.access.url(key);
        self.finish(Method::GET, &url, headers, None, &Arc::default())
            .await
    }

    /// Returns a signed request. The bytes of its body are added to `sent` as they are sent.
    pub(super) async fn sign(
        &self,
        ask: &RequestSpec,
        payload: Option<&Payload>,
        sent: &Arc<AtomicU64>,
        leases: &Arc<Leases>,
    ) -> Result<Request, RemoteFault> {
        let mut headers = HeaderMap::new();
        for (name, value) in &ask.headers {
            let value = HeaderValue::from_str(value).map_err(|_| RemoteFault::NoAnswer)?;
            headers.insert(HeaderName::from_static(name), value);
        }
        let url = match ask.place {
            Place::Object => self.access.url(&ask.key),
            Place::Folder => self.access.folder_url(&ask.key),
        };
        let url = with_query(url, &ask.query);
        let payload = payload.map(|payload| (payload, leases));
        self.finish(ask.method.clone(), &url, headers, payload, sent)
            .await
    }

    async fn finish(
        &self,
        method: Method,
        text: &str,
        mut headers: HeaderMap,
        body: Option<(&Payload, &Arc<Leases>)>,
        sent: &Arc<AtomicU64>,
    ) -> Result<Request, RemoteFault> {
        let bug = || RemoteFault::NoAnswer;
        let payload = body.map(|(payload, _)| payload);
        let credential = self.credential_cache.credential(&self.access).await?;
        let mut signed = http::Request::builder()
            .method(method.clone())
            .uri(text)
            .body(HttpRequestBody::empty())
            .map_err(|_| bug())?;
        // COMPAT: without this, Google decompresses objects stored as gzip, and their lengths and ranges are wrong.
        let encoding = match self.store_provider() {
            StoreProvider::Google => "gzip",
            _ => "identity",
        };
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(encoding));
        if let Some(payload) = payload {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(payload.len()));
        }
        *signed.headers_mut() = headers;
        let digest = payload.and_then(Payload::sha256);
        authorize(&self.access, &credential, &mut signed, digest)?;
        // The signature can be part of the URL.
        let url = Url::parse(&signed.uri().to_string()).map_err(|_| bug())?;
        let mut request = Request::new(method, url);
        *request.headers_mut() = std::mem::take(signed.headers_mut());
        if let Some((payload, leases)) = body {
            *request.body_mut() = Some(payload.body(sent, leases));
        }
        Ok(request)
    }

    /// Returns the canned ACL for uploaded objects.
    pub(super) fn acl(&self) -> Option<&str> {
        self.access.acl.as_deref()
    }
}

/// The checksum of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Digest {
    Sha256([u8; 32]),
    Md5([u8; 16]),
    None,
}

impl Digest {
    pub(super) fn sha256(bytes: &[u8]) -> Option<Self> {
        let found = digest::digest(&digest::SHA256, bytes);
        Some(Self::Sha256(found.as_ref().try_into().ok()?))
    }

    pub(super) fn md5(bytes: &[u8]) -> Self {
        Self::Md5(Md5::digest(bytes).into())
    }

    /// Returns the checksum as the headers of a store contain it; empty if there is none.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Sha256(digest) => base64(digest),
            Self::Md5(digest) => base64(digest),
            Self::None => String::new(),
        }
    }
}

/// The body of a request and its checksum. Clones share the bytes.
#[derive(Clone, Debug)]
pub(super) struct Payload {
    bytes: HttpRequestBody,
    digest: Digest,
}

impl Payload {
    /// Computes the checksum, so it must not be called on the thread of the engine.
    pub(super) fn new(store_provider: StoreProvider, bytes: Vec<u8>) -> Result<Self, RemoteFault> {
        let digest = store_provider.digest(&bytes).ok_or(RemoteFault::NoAnswer)?;
        Ok(Self {
            bytes: HttpRequestBody::from(bytes),
            digest,
        })
    }

    pub(super) fn len(&self) -> u64 {
        self.bytes.content_length() as u64
    }

    pub(super) const fn digest(&self) -> &Digest {
        &self.digest
    }

    const fn sha256(&self) -> Option<&[u8]> {
        match &self.digest {
            Digest::Sha256(digest) => Some(digest),
            _ => None,
        }
    }

    /// Returns the checksum as the headers of a store contain it.
    pub(super) fn sum(&self) -> String {
        self.digest.text()
    }

    /// Returns whether the bytes equal `other`.
    pub(super) fn is(&self, other: &[u8]) -> bool {
        self.bytes
            .as_bytes()
            .is_some_and(|bytes| bytes[..] == *other)
    }

    /// Returns the body as a stream. It ends with an error if another writer may have taken over the lease.
    fn body(&self, sent: &Arc<AtomicU64>, leases: &Arc<Leases>) -> reqwest::Body {
        /// The number of bytes counted at once.
        const PIECE: usize = 64 << 10;

        let Some(bytes) = self.bytes.as_bytes().filter(|bytes| !bytes.is_empty()) else {
            return reqwest::Body::from("");
        };
        let whole = (bytes.clone(), Arc::clone(sent), Arc::clone(leases));
        let pieces = futures::stream::unfold(whole, |(mut rest, sent, leases)| async move {
            if rest.is_empty() {
                return None;
            }
            if leases.is_over() {
                let silent = std::io::Error::other("the lease was silent for too long");
                return Some((Err(silent), (rest.split_off(rest.len()), sent, leases)));
            }
            let piece = rest.split_to(rest.len().min(PIECE));
            sent.fetch_add(piece.len() as u64, Ordering::Relaxed);
            Some((Ok(piece), (rest, sent, leases)))
        });
        // `wrap_stream` needs the feature `stream` of reqwest, which object_store enables.
        reqwest::Body::wrap_stream(pieces)
    }
}

/// Returns the checksum that S3 computes for a multipart upload of these parts, if all of them have a SHA-256.
pub(super) fn sum_of_parts(parts: &[Part]) -> Option<String> {
    let mut all = Vec::with_capacity(parts.len() * 32);
    for part in parts {
        match &part.digest {
            Digest::Sha256(digest) => all.extend_from_slice(digest),
            _ => return None,
        }
    }
    let whole = Digest::sha256(&all)?;
    Some(format!("{}-{}", whole.text(), parts.len()))
}

pub(super) fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let all = three
            .iter()
            .chain([0; 2].iter())
            .take(3)
            .fold(0_usize, |all, byte| all << 8 | usize::from(*byte));
        for at in 0..4 {
            let letter = LETTERS.get(all >> (18 - 6 * at) & 63).copied();
            text.push(match letter {
                Some(letter) if at <= three.len() => char::from(letter),
                _ => '=',
            });
        }
    }
    text
}

/// The relevant part of the head of an answer.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) etag: Option<String>,
    pub(super) length: Option<u64>,
    /// The body is chunked, so its end is marked in it.
    pub(super) chunked: bool,
    /// `Content-Range` unparsed, for messages.
    pub(super) range_text: Option<String>,
    /// The first byte, the end (exclusive), and the length of the whole object.
    pub(super) range: Option<(u64, u64, Option<u64>)>,
    /// The length of the object, from `Content-Range: bytes */LENGTH`.
    pub(super) whole: Option<u64>,
    pub(super) retry_after: Option<Duration>,
    pub(super) redirect: Option<String>,
    pub(super) region: Option<String>,
    /// The error code, if a header has it.
    pub(super) code: Option<String>,
}

impl Head {
    pub(super) fn of(response: &Response) -> Self {
        let headers = response.headers();
        let text = |name: &HeaderName| text_of(headers, name.as_str());
        let range_text = text(&CONTENT_RANGE);
        let host = |to: String| {
            let url = response.url().join(&to).ok()?;
            url.host_str().map(str::to_owned)
        };
        Self {
            status: response.status().as_u16(),
            // COMPAT: volumes and many web servers have no ETags. The time as a weak tag is compared, but never sent.
            etag: text(&ETAG).or_else(|| Some(format!("W/\"{}\"", text(&LAST_MODIFIED)?))),
            length: text(&CONTENT_LENGTH).and_then(|value| value.parse().ok()),
            chunked: text(&TRANSFER_ENCODING)
                .is_some_and(|value| value.to_ascii_lowercase().contains("chunked")),
            range: range_text.as_deref().and_then(parse_content_range),
            whole: range_text
                .as_deref()
                .and_then(|value| value.strip_prefix("bytes */")?.parse().ok()),
            range_text,
            retry_after: text(&RETRY_AFTER)
                .and_then(|value| value.trim().parse().ok())
                .map(Duration::from_secs),
            redirect: text(&LOCATION).and_then(host),
            region: text_of(headers, "x-amz-bucket-region").filter(|value| is_code(value)),
            code: text_of(headers, "x-ms-error-code").filter(|value| is_code(value)),
        }
    }
}

pub(super) fn text_of(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

fn parse_content_range(value: &str) -> Option<(u64, u64, Option<u64>)> {
    let (range, whole) = value.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let whole = match whole {
        "*" => None,
        digits => Some(digits.parse().ok()?),
    };
    let (first, end) = (
        first.parse().ok()?,
        last.parse::<u64>().ok()?.checked_add(1)?,
    );
    (first < end && whole.is_none_or(|whole| end <= whole)).then_some((first, end, whole))
}

/// Reads the error code from the body of an answer. The time and the number of bytes are limited.
pub(super) async fn code_of(mut response: Response, most: Duration) -> Option<String> {
    let mut body = Vec::new();
    let read = async {
        while let Ok(Some(piece)) = response.chunk().await {
            body.extend_from_slice(&piece);
            if body.len() >= ERROR_BODY {
                break;
            }
        }
    };
    // If the time runs out, the code is searched in the bytes received so far.
    let _ = tokio::time::timeout(most.min(Duration::from_secs(2)), read).await;
    code_in(&body)
}

/// Returns the error code in the text of an error.
pub(super) fn code_in(body: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    let code = match text.split_once("<Code>") {
        Some((_, rest)) => rest.split_once("</Code>")?.0.to_owned(),
        None => files::code(body)?,
    };
    is_code(&code).then_some(code)
}

/// Returns whether a word from an answer is safe to display.
fn is_code(word: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !word.is_empty() && word.len() <= 64 && word.bytes().all(letter)
}

/// Returns the root cause of an error as a text without URLs.
pub(super) fn root_of(error: &reqwest::Error) -> String {
    let mut root: &dyn std::error::Error = error;
    while let Some(source) = root.source() {
        root = source;
    }
    if std::ptr::addr_eq(root, error) {
        // The text of the error itself would contain the URL.
        return if error.is_timeout() {
            "timed out".to_owned()
        } else if error.is_builder() {
            "the HTTP client could not be made".to_owned()
        } else {
            "the request could not be sent".to_owned()
        };
    }
    if error.is_timeout() && error.is_connect() {
        return "the connection timed out".to_owned();
    }
    root.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_ranges_are_read_strictly() {
        for (value, expected) in [
            ("bytes 0-9/100", Some((0, 10, Some(100)))),
            ("bytes 5-5/*", Some((5, 6, None))),
            ("bytes 5-4/100", None),
            ("bytes 0-100/100", None),
            ("bytes 0-18446744073709551615/*", None),
            ("bytes */100", None),
            ("bytes a-b/c", None),
            ("0-9/100", None),
        ] {
            assert_eq!(parse_content_range(value), expected, "{value}");
        }
    }

    #[test]
    fn bodies_carry_their_checksums() {
        let payload =
            |text: &str| Payload::new(StoreProvider::S3, text.as_bytes().to_vec()).unwrap();
        // Test vectors from FIPS 180-4, and the empty input.
        assert_eq!(
            payload("abc").sum(),
            "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0="
        );
        assert_eq!(
            payload("").sum(),
            "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
        );
        assert_eq!((payload("abc").len(), payload("").len()), (3, 0));
        assert!(payload("abc").is(b"abc") && !payload("abc").is(b"ab"));
        for (text, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
        ] {
            assert_eq!(base64(text.as_bytes()), coded);
        }
    }

    #[test]
    fn only_harmless_words_are_shown() {
        assert!(is_code("NoSuchKey") && is_code("eu-west-1"));
        assert!(
            !is_code("") && !is_code("a b") && !is_code("\u{1b}[2J") && !is_code(&"a".repeat(65))
        );
    }
}
