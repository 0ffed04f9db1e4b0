//! One request: signed, sent, and its answer read as far as the body.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::str::FromStr as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::header::{
    ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, IF_MATCH, LOCATION, RANGE,
    RETRY_AFTER, TRANSFER_ENCODING,
};
use http::{HeaderName, HeaderValue};
use object_store::aws::{
    AmazonS3Builder, AmazonS3ConfigKey, AwsAuthorizer, AwsCredential, AwsCredentialProvider,
};
use object_store::client::{HttpClient, HttpConnector, HttpRequestBody};
use object_store::{BackoffConfig, ClientOptions, RetryConfig};
use reqwest::{Method, Request, Response};
use url::Url;

use super::settings::{Access, Signing};
use crate::fault::RemoteFault;

/// Longest wait for credentials.
const CREDENTIALS: Duration = Duration::from_secs(20);

/// How long a failure to get credentials stands: those that wait behind it do not try again one by one.
const STANDS: Duration = Duration::from_secs(5);

/// Most of the body of an error that is read for its code.
const ERROR_BODY: usize = 8 << 10;

/// Signs requests. One at a time asks for credentials, all others wait for its answer.
pub(super) struct Signer {
    access: Access,
    provider: Mutex<Option<AwsCredentialProvider>>,
    asking: tokio::sync::Mutex<Option<(Instant, RemoteFault)>>,
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
            provider: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
        }
    }

    /// Forgets credentials that have expired; `false` where there are no others.
    pub(super) fn renew(&self) -> bool {
        let mut provider = self.provider.lock().unwrap_or_else(PoisonError::into_inner);
        provider.take().is_some()
    }

    async fn credential(&self) -> Result<Option<Arc<AwsCredential>>, RemoteFault> {
        let settings = match &self.access.signing {
            Signing::Anonymous => return Ok(None),
            Signing::Fixed { key, secret, token } => {
                return Ok(Some(Arc::new(AwsCredential {
                    key_id: key.clone(),
                    secret_key: secret.clone(),
                    token: token.clone(),
                })));
            }
            Signing::Provider(settings) => settings,
        };
        let mut failed = self.asking.lock().await;
        if let Some((at, fault)) = failed.as_ref()
            && at.elapsed() < STANDS
        {
            return Err(fault.clone());
        }
        let (provider, name) = self.provider(settings)?;
        let asked = tokio::time::timeout(CREDENTIALS, provider.get_credential()).await;
        match asked {
            Ok(Ok(credential)) if is_header(&credential) => {
                *failed = None;
                Ok(Some(credential))
            }
            // The reason may quote an answer with secrets in it.
            _ => {
                let fault = no_credentials(name);
                *failed = Some((Instant::now(), fault.clone()));
                Err(fault)
            }
        }
    }

    fn provider(
        &self,
        settings: &BTreeMap<String, String>,
    ) -> Result<(AwsCredentialProvider, &'static str), RemoteFault> {
        let has = |name: &str| settings.contains_key(name);
        let direct = !(has("AWS_WEB_IDENTITY_TOKEN_FILE") && has("AWS_ROLE_ARN"));
        let name = if !direct {
            "the web identity of the role"
        } else if has("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
            || has("AWS_CONTAINER_CREDENTIALS_FULL_URI")
        {
            "the container"
        } else if settings
            .get("AWS_EC2_METADATA_DISABLED")
            .is_some_and(|value| value.eq_ignore_ascii_case("true") || value == "1")
        {
            return Err(RemoteFault::NoCredentials {
                reason: "none are set, and AWS_EC2_METADATA_DISABLED is".to_owned(),
            });
        } else {
            "the metadata service of the machine"
        };
        let mut kept = self.provider.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(provider) = kept.as_ref() {
            return Ok((Arc::clone(provider), name));
        }
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name("credentials")
            .with_region(self.access.region.clone())
            .with_http_connector(Connector { direct })
            .with_retry(RetryConfig {
                backoff: BackoffConfig::default(),
                max_retries: 2,
                retry_timeout: CREDENTIALS,
            });
        for (setting, value) in settings {
            let about_credentials = ["_CONTAINER_", "_ROLE_", "_IDENTITY_", "_METADATA_", "_STS"]
                .iter()
                .any(|part| setting.contains(part));
            if let Ok(key) = AmazonS3ConfigKey::from_str(&setting.to_ascii_lowercase())
                && about_credentials
            {
                builder = builder.with_config(key, value);
            }
        }
        let store = builder.build().map_err(|_| no_credentials(name))?;
        let provider = Arc::clone(store.credentials());
        *kept = Some(Arc::clone(&provider));
        Ok((provider, name))
    }

    /// A signed request for `key`.
    pub(super) async fn request(
        &self,
        key: &str,
        range: Option<&Range<u64>>,
        etag: Option<&str>,
    ) -> Result<Request, RemoteFault> {
        let credential = self.credential().await?;
        let text = self.access.url(key);
        let bug = || RemoteFault::NoAnswer;
        let mut signed = http::Request::get(&text)
            .body(HttpRequestBody::empty())
            .map_err(|_| bug())?;
        let headers = signed.headers_mut();
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if let Some(range) = range {
            let value = format!("bytes={}-{}", range.start, range.end.saturating_sub(1));
            headers.insert(RANGE, HeaderValue::from_str(&value).map_err(|_| bug())?);
        }
        if let Some(etag) = etag
            && let Ok(value) = HeaderValue::from_str(etag)
        {
            headers.insert(IF_MATCH, value);
        }
        match credential {
            Some(credential) => AwsAuthorizer::new(&credential, "s3", &self.access.region)
                .with_request_payer(self.access.request_payer)
                .authorize(&mut signed, None),
            None if self.access.request_payer => {
                headers.insert(
                    HeaderName::from_static("x-amz-request-payer"),
                    HeaderValue::from_static("requester"),
                );
            }
            None => {}
        }
        let url = Url::parse(&text).map_err(|_| bug())?;
        let mut request = Request::new(Method::GET, url);
        *request.headers_mut() = std::mem::take(signed.headers_mut());
        Ok(request)
    }
}

/// A request that is no read of a range.
#[derive(Clone, Copy)]
pub(super) struct Wish<'a> {
    pub(super) method: &'a Method,
    pub(super) key: &'a str,
    pub(super) query: &'a [(&'a str, &'a str)],
    pub(super) headers: &'a [(&'static str, &'a str)],
    pub(super) payload: Option<&'a Payload>,
}

impl Signer {
    /// A signed request; the bytes of its body are counted in `sent` as they leave.
    pub(super) async fn sign(
        &self,
        wish: &Wish<'_>,
        sent: &Arc<AtomicU64>,
    ) -> Result<Request, RemoteFault> {
        let credential = self.credential().await?;
        let text = self.access.url_with(wish.key, wish.query);
        let bug = || RemoteFault::NoAnswer;
        let mut signed = http::Request::builder()
            .method(wish.method.clone())
            .uri(&text)
            .body(HttpRequestBody::empty())
            .map_err(|_| bug())?;
        let headers = signed.headers_mut();
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        for (name, value) in wish.headers {
            let value = HeaderValue::from_str(value).map_err(|_| bug())?;
            headers.insert(HeaderName::from_static(name), value);
        }
        match credential {
            Some(credential) => AwsAuthorizer::new(&credential, "s3", &self.access.region)
                .with_request_payer(self.access.request_payer)
                .authorize(&mut signed, wish.payload.map(|payload| &payload.digest[..])),
            None if self.access.request_payer => {
                headers.insert(
                    HeaderName::from_static("x-amz-request-payer"),
                    HeaderValue::from_static("requester"),
                );
            }
            None => {}
        }
        let url = Url::parse(&text).map_err(|_| bug())?;
        let mut request = Request::new(wish.method.clone(), url);
        *request.headers_mut() = std::mem::take(signed.headers_mut());
        if let Some(payload) = wish.payload {
            let length = HeaderValue::from(payload.len());
            request.headers_mut().insert(CONTENT_LENGTH, length);
            *request.body_mut() = Some(payload.body(sent));
        }
        Ok(request)
    }

    /// The rights that objects are put with.
    pub(super) fn acl(&self) -> Option<&str> {
        self.access.acl.as_deref()
    }
}

/// The body of a request and its SHA-256. Clones share the bytes.
#[derive(Clone, Debug)]
pub(super) struct Payload {
    bytes: HttpRequestBody,
    digest: [u8; 32],
}

impl Payload {
    /// Takes as long as hashing does: not for the engine's thread.
    pub(super) fn new(bytes: Vec<u8>) -> Result<Self, RemoteFault> {
        let bytes = HttpRequestBody::from(bytes);
        let digest = digest_of(&bytes).ok_or(RemoteFault::NoAnswer)?;
        Ok(Self { bytes, digest })
    }

    pub(super) fn len(&self) -> u64 {
        self.bytes.content_length() as u64
    }

    pub(super) const fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// The SHA-256 as the headers of a store have it.
    pub(super) fn sum(&self) -> String {
        base64(&self.digest)
    }

    /// The bytes themselves, where they are `other`.
    pub(super) fn is(&self, other: &[u8]) -> bool {
        self.bytes
            .as_bytes()
            .is_some_and(|bytes| bytes[..] == *other)
    }

    fn body(&self, sent: &Arc<AtomicU64>) -> reqwest::Body {
        /// Bytes that are counted at once.
        const PIECE: usize = 64 << 10;

        let Some(bytes) = self.bytes.as_bytes().filter(|bytes| !bytes.is_empty()) else {
            return reqwest::Body::from("");
        };
        let whole = (bytes.clone(), Arc::clone(sent));
        let pieces = futures::stream::unfold(whole, |(mut rest, sent)| async move {
            if rest.is_empty() {
                return None;
            }
            let piece = rest.split_to(rest.len().min(PIECE));
            sent.fetch_add(piece.len() as u64, Ordering::Relaxed);
            Some((Ok::<_, std::convert::Infallible>(piece), (rest, sent)))
        });
        // The feature of reqwest that this needs is one that object_store switches on to send its own requests.
        reqwest::Body::wrap_stream(pieces)
    }
}

/// The SHA-256 of some bytes. It is a part of what a signed request says, so one is signed, which is never sent.
fn digest_of(bytes: &HttpRequestBody) -> Option<[u8; 32]> {
    let mut request = http::Request::put("https://localhost/")
        .body(bytes.clone())
        .ok()?;
    let nobody = AwsCredential {
        key_id: String::new(),
        secret_key: String::new(),
        token: None,
    };
    AwsAuthorizer::new(&nobody, "s3", "none").authorize(&mut request, None);
    let hex = request
        .headers()
        .get("x-amz-content-sha256")?
        .to_str()
        .ok()?;
    let mut digest = [0; 32];
    for (at, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    (hex.len() == 64).then_some(digest)
}

/// The checksum of an object that was put in parts with these digests.
pub(super) fn sum_of_parts(digests: &[[u8; 32]]) -> Option<String> {
    let all = HttpRequestBody::from(digests.concat());
    Some(format!("{}-{}", base64(&digest_of(&all)?), digests.len()))
}

fn base64(bytes: &[u8]) -> String {
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

/// Whether the parts of a credential that become headers can be ones.
fn is_header(credential: &AwsCredential) -> bool {
    let graphic = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    graphic(&credential.key_id) && credential.token.as_deref().is_none_or(graphic)
}

fn no_credentials(provider: &str) -> RemoteFault {
    RemoteFault::NoCredentials {
        reason: format!("none are set, and {provider} gave none"),
    }
}

/// Clients for the providers of credentials, which speak plain HTTP to addresses of the machine.
#[derive(Debug)]
struct Connector {
    /// Past any proxy: the address is one of the machine.
    direct: bool,
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let mut builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_secs(2))
            .timeout(CREDENTIALS / 2);
        if self.direct {
            builder = builder.no_proxy();
        }
        let client = builder
            .build()
            .map_err(|error| object_store::Error::Generic {
                store: "credentials",
                source: Box::new(error.without_url()),
            })?;
        Ok(HttpClient::new(client))
    }
}

/// What of the head of an answer matters.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) etag: Option<String>,
    pub(super) length: Option<u64>,
    /// The end of the body is marked in it.
    pub(super) chunked: bool,
    /// `Content-Range` as it is, for messages.
    pub(super) range_text: Option<String>,
    /// First byte, one past the last, and bytes of the whole object.
    pub(super) range: Option<(u64, u64, Option<u64>)>,
    /// Bytes of the object, from an answer that has none of them.
    pub(super) whole: Option<u64>,
    pub(super) retry_after: Option<Duration>,
    pub(super) redirect: Option<String>,
    pub(super) region: Option<String>,
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
            etag: text(&ETAG),
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

/// The code in the body of an error. Reads what is there of it, for a while.
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
    // What came in time is what there is.
    let _ = tokio::time::timeout(most.min(Duration::from_secs(2)), read).await;
    code_in(&body)
}

/// The code in the text of an error.
pub(super) fn code_in(body: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    let (code, _) = text.split_once("<Code>")?.1.split_once("</Code>")?;
    is_code(code).then(|| code.to_owned())
}

/// Whether a word from a foreign answer may be shown.
fn is_code(word: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !word.is_empty() && word.len() <= 64 && word.bytes().all(letter)
}

/// The first cause of an error, as text without URLs.
pub(super) fn root_of(error: &reqwest::Error) -> String {
    let mut root: &dyn std::error::Error = error;
    while let Some(source) = root.source() {
        root = source;
    }
    if std::ptr::addr_eq(root, error) {
        // It would show the URL.
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
        let payload = |text: &str| Payload::new(text.as_bytes().to_vec()).unwrap();
        // From FIPS 180-4, and of nothing.
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
