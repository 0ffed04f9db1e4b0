//! A single request: signing it, sending it, and reading the head of its answer.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH, HeaderMap, IF_MATCH, RANGE};
use http::{HeaderName, HeaderValue};
use object_store::client::HttpRequestBody;
use reqwest::{Method, Request};
use url::Url;

use super::credential::{CredentialCache, authorize};
use super::credential_source::CredentialSource;
use super::payload::Payload;
use super::protocol::{Place, RequestSpec};
use super::settings::with_query;
use super::signing::Access;
use crate::entry::StoreKind;
use crate::error::StorageError;
use crate::heartbeat::Leases;

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

    pub(super) const fn kind(&self) -> StoreKind {
        self.access.kind
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

    /// Returns where the credentials come from. Requests them, if they come from a provider.
    pub(super) async fn source(&self) -> Result<CredentialSource, StorageError> {
        self.credential_cache.source(&self.access).await
    }

    /// Returns a signed `GET` request for `key`.
    pub(super) async fn request(
        &self,
        key: &str,
        range: Option<&Range<u64>>,
        etag: Option<&str>,
    ) -> Result<Request, StorageError> {
        let bug = |_| StorageError::NoAnswer;
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
    ) -> Result<Request, StorageError> {
        let mut headers = HeaderMap::new();
        for (name, value) in &ask.headers {
            let value = HeaderValue::from_str(value).map_err(|_| StorageError::NoAnswer)?;
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
    ) -> Result<Request, StorageError> {
        let bug = || StorageError::NoAnswer;
        let payload = body.map(|(payload, _)| payload);
        let credential = self.credential_cache.credential(&self.access).await?;
        let mut signed = http::Request::builder()
            .method(method.clone())
            .uri(text)
            .body(HttpRequestBody::empty())
            .map_err(|_| bug())?;
        // COMPAT: without this, Google decompresses objects stored as gzip, and their lengths and ranges are wrong.
        let encoding = match self.kind() {
            StoreKind::Google => "gzip",
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
