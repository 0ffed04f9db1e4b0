//! The state of a location in one process.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use shardmill_core::lock;

use super::engine::{Engine, Store};
use super::options::RemoteOptions;
use super::request::Signer;
use crate::error::StorageError;
use crate::heartbeat::Leases;
use crate::location::RemoteLocation;

/// The state of a [`Remote`] in a process that has used it.
pub(super) struct Live {
    pub(super) options: Arc<RemoteOptions>,
    pub(super) location: RemoteLocation,
    pub(super) store: Arc<Store>,
    pub(super) signer: Signer,
    pub(super) counters: Counters,
    pub(super) pins: Mutex<BTreeMap<u64, u64>>,
    pub(super) hasher: RandomState,
    pub(super) engine: Arc<Engine>,
    pub(super) leases: Arc<Leases>,
    /// The store has answered that it does not support checksums.
    pub(super) no_sums: AtomicBool,
}

#[derive(Default)]
pub(super) struct Counters {
    pub(super) requests: AtomicU64,
    pub(super) retries: AtomicU64,
    pub(super) throttled: AtomicU64,
    pub(super) bytes: AtomicU64,
}

impl Live {
    /// Fails if the tag of an object differs from the one seen before.
    pub(super) fn check_pin(&self, key: &str, etag: Option<&str>) -> Result<(), StorageError> {
        let Some(etag) = etag else { return Ok(()) };
        let pins = lock(&self.pins);
        match pins.get(&self.hasher.hash_one(key)) {
            Some(known) if *known != self.hasher.hash_one(bare(etag)) => {
                Err(StorageError::ObjectChanged)
            }
            _ => Ok(()),
        }
    }

    /// Records the tag of an object that was read.
    pub(super) fn pin(&self, key: &str, etag: &str) {
        // PERF: two hashes per object, because datasets have millions of long names.
        let (key, etag) = (self.hasher.hash_one(key), self.hasher.hash_one(bare(etag)));
        let mut pins = lock(&self.pins);
        pins.entry(key).or_insert(etag);
    }

    pub(super) fn sums(&self) -> bool {
        !self.no_sums.load(Ordering::Relaxed)
    }

    /// Forgets which version of an object was read, because there is a new one.
    pub(super) fn unpin(&self, key: &str) {
        let mut pins = lock(&self.pins);
        pins.remove(&self.hasher.hash_one(key));
    }

    pub(super) fn error(&self, name: &str, fault: StorageError) -> StorageError {
        fault.at(self.location.display(name))
    }
}

/// Removes the quotes of an `ETag`. Some listings omit them.
pub(super) fn bare(etag: &str) -> &str {
    etag.trim_matches('"')
}
