//! The result of a job.

use std::path::PathBuf;
use std::sync::Arc;

use crate::blobs::{Blobs, CachedBlob, KnownFiles};
use crate::error::CacheError;
use crate::marker::Marker;
use crate::state::FetchTarget;

/// The result of a job.
pub(crate) enum Outcome<B: Blobs> {
    Open {
        blob: Arc<CachedBlob<B::Open>>,
        pin: Option<Marker>,
        memory: u64,
        known: Option<KnownFiles>,
    },
    /// The blob is on disk; no caller needs it open yet.
    Ready {
        known: Option<KnownFiles>,
    },
    /// The blob has to be fetched to the reserved target.
    Fetch(FetchTarget),
    /// Another process works on the blob; retry later.
    Later {
        path: PathBuf,
        pid: Option<u32>,
    },
    /// There is no space on disk, and the blob is only useful on disk. Retry later.
    Full,
    /// There is no space, but a caller needs the blob: it is read without the cache.
    Uncached,
    /// There is no space, and no caller needs the blob yet.
    NotNow,
    Failed(CacheError<B::Error>),
}
