//! A single request: signing it, sending it, and reading the head of its answer.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH};
use http::{HeaderName, HeaderValue};
use object_store::client::HttpRequestBody;
use reqwest::Request;
use tokio::sync::OnceCell;
use url::Url;

use super::credential::{CredentialCache, authorize};
use super::payload::{Frame, Payload};
use super::protocol::{RequestSpec, UrlKind};
use super::settings::with_query;
use super::signing::Access;
use crate::entry::StoreKind;
use crate::error::StorageError;
use crate::heartbeat::Leases;

/// Builds requests with addresses and signatures.
pub(super) struct Signer {
    pub(super) access: Access,
    pub(super) credentials: CredentialCache,
    /// The commit that is read, for stores with revisions.
    pub(super) commit: OnceCell<String>,
}

impl Signer {
    pub(super) fn new(access: Access) -> Self {
        Self {
            access,
            credentials: CredentialCache::default(),
            commit: OnceCell::new(),
        }
    }

    pub(super) const fn kind(&self) -> StoreKind {
        self.access.kind
    }

    /// Returns a signed request. The bytes of its body are added to `sent` as they are sent.
    pub(super) async fn sign(
        &self,
        ask: &RequestSpec,
        payload: Option<&Payload>,
        sent: &Arc<AtomicU64>,
        leases: &Arc<Leases>,
    ) -> Result<Request, StorageError> {
        let bug = || StorageError::NoAnswer;
        let key = &ask.key;
        let url = match (ask.url_kind, self.commit.get()) {
            (UrlKind::Revision, _) => self.access.revision_url(),
            (UrlKind::Object, Some(commit)) => self.access.url(&format!("resolve/{commit}/{key}")),
            (UrlKind::Folder, Some(commit)) if key.is_empty() => {
                self.access.folder_url(&format!("tree/{commit}"))
            }
            (UrlKind::Folder, Some(commit)) => {
                self.access.folder_url(&format!("tree/{commit}/{key}"))
            }
            // The root of a bucket of the Hub, and the address of Google's uploads.
            (UrlKind::Folder, None)
                if key.is_empty()
                    && matches!(self.kind(), StoreKind::HubBucket | StoreKind::Google) =>
            {
                self.access.folders.clone()
            }
            (UrlKind::Session, _) => format!("{}{key}", self.access.origin),
            (UrlKind::Object, None) => self.access.url(key),
            (UrlKind::Folder, None) => self.access.folder_url(key),
        };
        let credential = self.credentials.credential(&self.access).await?;
        let mut signed = http::Request::builder()
            .method(ask.method.clone())
            .uri(with_query(url, &ask.query))
            .body(HttpRequestBody::empty())
            .map_err(|_| bug())?;
        let headers = signed.headers_mut();
        for (name, value) in &ask.headers {
            let value = HeaderValue::from_str(value).map_err(|_| bug())?;
            headers.insert(HeaderName::from_static(name), value);
        }
        let identity = HeaderValue::from_static("identity");
        headers.entry(ACCEPT_ENCODING).or_insert(identity);
        if let Some(payload) = payload {
            let length = payload.len() + ask.frame.as_ref().map_or(0, Frame::len);
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        let digest = payload.and_then(Payload::sha256);
        authorize(&self.access, &credential, &mut signed, digest)?;
        // The signature can be part of the URL.
        let url = Url::parse(&signed.uri().to_string()).map_err(|_| bug())?;
        let mut request = Request::new(ask.method.clone(), url);
        *request.headers_mut() = std::mem::take(signed.headers_mut());
        *request.body_mut() = payload.map(|payload| payload.body(&ask.frame, sent, leases));
        Ok(request)
    }
}
