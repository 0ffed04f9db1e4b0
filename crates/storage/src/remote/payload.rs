//! Bodies of requests and their checksums.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use futures::stream::{self, StreamExt as _};
use md5::{Digest as _, Md5};
use object_store::client::HttpRequestBody;
use ring::digest;

use crate::entry::StoreKind;
use crate::error::StorageError;
use crate::heartbeat::Leases;

/// The checksum of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Digest {
    Sha256([u8; 32]),
    Md5([u8; 16]),
    None,
}

impl Digest {
    /// Returns the checksum that is sent with a body to a store of this kind.
    pub(super) fn of(kind: StoreKind, bytes: &[u8]) -> Option<Self> {
        match kind {
            StoreKind::S3 => Self::sha256(bytes),
            StoreKind::Google | StoreKind::GoogleXml | StoreKind::Azure => Some(Self::md5(bytes)),
            StoreKind::Volumes | StoreKind::Http | StoreKind::Hub | StoreKind::HubBucket => {
                Some(Self::None)
            }
        }
    }

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
            Self::Sha256(digest) => BASE64.encode(digest),
            Self::Md5(digest) => BASE64.encode(digest),
            Self::None => String::new(),
        }
    }
}

/// Returns a digest in hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What is sent before and after the bytes of an upload.
#[derive(Clone, Debug, Default)]
pub(super) struct Frame {
    pub(super) head: String,
    pub(super) tail: String,
}

impl Frame {
    pub(super) fn len(&self) -> u64 {
        (self.head.len() + self.tail.len()) as u64
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
    pub(super) fn new(kind: StoreKind, bytes: Vec<u8>) -> Result<Self, StorageError> {
        let digest = Digest::of(kind, &bytes).ok_or(StorageError::NoAnswer)?;
        Ok(Self::with(bytes, digest))
    }

    pub(super) fn with(bytes: Vec<u8>, digest: Digest) -> Self {
        let bytes = HttpRequestBody::from(bytes);
        Self { bytes, digest }
    }

    pub(super) fn len(&self) -> u64 {
        self.bytes.content_length() as u64
    }

    pub(super) const fn digest(&self) -> &Digest {
        &self.digest
    }

    pub(super) const fn sha256(&self) -> Option<&[u8]> {
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
    pub(super) fn body(
        &self,
        frame: &Option<Frame>,
        sent: &Arc<AtomicU64>,
        leases: &Arc<Leases>,
    ) -> reqwest::Body {
        /// The number of bytes counted at once.
        const PIECE: usize = 64 << 10;

        let bytes = self.bytes.as_bytes().cloned().unwrap_or_default();
        if bytes.is_empty() && frame.is_none() {
            return reqwest::Body::from("");
        }
        let whole = (bytes, Arc::clone(sent), Arc::clone(leases));
        let pieces = stream::unfold(whole, |(mut rest, sent, leases)| async move {
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
        let Frame { head, tail } = frame.clone().unwrap_or_default();
        let one = |text: String| {
            let text = Some(text).filter(|text| !text.is_empty());
            stream::iter(text.map(|text| Ok(text.into())))
        };
        // `wrap_stream` needs the feature `stream` of reqwest, which object_store enables.
        reqwest::Body::wrap_stream(one(head).chain(pieces).chain(one(tail)))
    }
}

/// Makes the bodies of the parts of an object, in order.
#[derive(Default)]
pub(super) struct PartPayloads(Md5);

impl PartPayloads {
    /// Returns the body of the next part. Google compares the checksum of the whole object, so the checksum of a part is
    /// that of the object up to its end.
    pub(super) fn next(
        &mut self,
        kind: StoreKind,
        bytes: Vec<u8>,
    ) -> Result<Payload, StorageError> {
        if kind != StoreKind::Google {
            return Payload::new(kind, bytes);
        }
        self.0.update(&bytes);
        let digest = Digest::Md5(self.0.clone().finalize().into());
        Ok(Payload::with(bytes, digest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_computes_sha256_and_length() {
        let payload = |text: &str| Payload::new(StoreKind::S3, text.as_bytes().to_vec()).unwrap();
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
    }
}
