//! The handle of a location in a store.

use std::fmt;
use std::future::Future;
use std::hash::RandomState;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use shardmill_core::{CancelToken, PerProcess, lock};

use super::access::access;
use super::credential_source::CredentialSource;
use super::engine::Engine;
use super::live::{Counters, Live};
use super::options::RemoteOptions;
use super::request::Signer;
use super::signing::Access;
use crate::error::StorageError;
use crate::heartbeat::{LeaseWait, Leases};
use crate::location::RemoteLocation;

/// The interval at which a caller is polled for cancellation.
pub(super) const SLICE: Duration = Duration::from_millis(100);

/// Statistics of a [`Remote`] in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemoteStats {
    /// The number of requests sent.
    pub requests: u64,
    /// The number of those that were retries.
    pub retries: u64,
    /// The number of answers that asked for fewer requests.
    pub throttled: u64,
    /// The number of bytes received in bodies.
    pub bytes: u64,
    /// The peak number of concurrent requests to the store, including those for other locations in it.
    pub max_connections: usize,
    /// The current limit of concurrent requests to the store.
    pub connections: usize,
}

/// A prefix of a bucket, for reading and writing. Clones share all state.
///
/// No client, thread or socket is created before the first request. They belong to the process that sent the request. A
/// forked child creates its own, so a `Remote` can be used across a fork.
///
/// Every wait has a deadline. Every object has its declared length and is of a single version: an `ETag` that was seen
/// for a name holds for the life of the `Remote` (in each process).
#[derive(Clone)]
pub struct Remote {
    pub(super) shared: Arc<Shared>,
}

impl fmt::Debug for Remote {
    /// Shows only the location, because the rest contains secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Remote").field(self.location()).finish()
    }
}

pub(super) struct Shared {
    pub(super) location: RemoteLocation,
    pub(super) options: Arc<RemoteOptions>,
    pub(super) access: Access,
    /// Whether it has its own engine. Tests need separate retry budgets and threads.
    alone: bool,
    /// The leases under which the location is written.
    leases: Arc<Leases>,
    pub(super) live: PerProcess<Mutex<Option<Arc<Live>>>, 16>,
}

/// The number of connections for heartbeats.
const LEASE_CONNECTIONS: usize = 2;

impl Remote {
    /// Opens a location. Only reads the options, and the files of profiles if the options are not sufficient.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for an endpoint, a setting or a profile that is not valid. Errors of reading the files of profiles.
    pub fn open(location: &RemoteLocation, options: &RemoteOptions) -> Result<Self, StorageError> {
        Self::new(location, options, false)
    }

    /// Opens the whole bucket of this location, with the same options.
    /// Errors are those of [`open`](Self::open).
    pub fn bucket(&self) -> Result<Self, StorageError> {
        Self::open(&self.shared.location.root(), &self.shared.options)
    }

    pub(super) fn new(
        location: &RemoteLocation,
        options: &RemoteOptions,
        alone: bool,
    ) -> Result<Self, StorageError> {
        let access = access(location, &options.settings)?;
        options.is_single_writer()?;
        Ok(Self::with(
            location.clone(),
            Arc::new(options.clone()),
            access,
            alone,
        ))
    }

    fn with(
        location: RemoteLocation,
        options: Arc<RemoteOptions>,
        access: Access,
        alone: bool,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                location,
                options,
                access,
                alone,
                leases: Arc::default(),
                live: PerProcess::new(),
            }),
        }
    }

    /// Returns the state that belongs to this process, and creates it on the first call.
    pub(super) fn live(&self) -> Result<Arc<Live>, StorageError> {
        let shared = &self.shared;
        let slot = shared
            .live
            .get(Mutex::default)
            .ok_or_else(StorageError::too_many_processes)?;
        let mut slot = lock(slot);
        if let Some(live) = slot.as_ref() {
            return Ok(Arc::clone(live));
        }
        let engine = if shared.alone {
            Engine::start()?
        } else {
            Engine::shared()?
        };
        let options = &shared.options;
        let access = &shared.access;
        let live = Arc::new(Live {
            store: engine.store(
                access,
                options.request.connections,
                options.request.connect_timeout,
            )?,
            options: Arc::clone(options),
            location: shared.location.clone(),
            signer: Signer::new(access.clone()),
            counters: Counters::default(),
            pins: Mutex::default(),
            hasher: RandomState::new(),
            engine,
            leases: Arc::clone(&shared.leases),
            no_sums: AtomicBool::new(false),
        });
        *slot = Some(Arc::clone(&live));
        Ok(live)
    }

    pub(super) fn error(&self, name: &str, fault: StorageError) -> StorageError {
        fault.at(self.display(name))
    }

    /// Pins the versions of a listing for this process: reading another version of one of them fails with
    /// `remote-changed`. Objects without an `ETag` in the listing are not pinned.
    ///
    /// # Errors
    ///
    /// [`StorageError::At`] when the client cannot be started.
    pub fn pin<'a>(
        &self,
        objects: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<(), StorageError> {
        if !self.shared.access.kind.tags_are_etags() {
            return Ok(());
        }
        let live = self.live().map_err(|fault| self.error("", fault))?;
        for (name, tag) in objects.filter(|(_, tag)| !tag.is_empty()) {
            live.pin(&live.location.key(name), tag);
        }
        Ok(())
    }

    /// Returns the statistics of this process so far.
    #[must_use]
    pub fn stats(&self) -> RemoteStats {
        let slot = self.shared.live.peek();
        let Some(live) = slot.and_then(|slot| lock(slot).clone()) else {
            return RemoteStats::default();
        };
        RemoteStats {
            requests: live.counters.requests.load(Ordering::Relaxed),
            retries: live.counters.retries.load(Ordering::Relaxed),
            throttled: live.counters.throttled.load(Ordering::Relaxed),
            bytes: live.counters.bytes.load(Ordering::Relaxed),
            max_connections: live.store.semaphore.peak().max(live.store.small.peak()),
            connections: live.store.semaphore.limit(),
        }
    }

    /// Returns whether this kind of store can list objects.
    #[must_use]
    pub fn can_list(&self) -> bool {
        self.shared.access.kind.can_list()
    }

    /// Returns where the credentials come from. Requests them, if they come from a provider.
    ///
    /// # Errors
    ///
    /// `credentials` if there are none.
    pub fn credential_source(
        &self,
        cancel: &mut CancelToken<'_>,
    ) -> Result<CredentialSource, StorageError> {
        let mut source = self.wait_while("", cancel, |live, _| async move {
            live.signer.credentials.source(&live.signer.access).await
        })?;
        let options = &self.shared.options;
        if source.kind == "environment" && options.explicit.contains(&source.name) {
            source.kind = "option";
        }
        Ok(source)
    }

    /// Returns the error for an object that does not exist.
    pub(crate) fn not_found(&self, name: &str) -> StorageError {
        self.error(name, StorageError::NotFound { code: None })
    }

    /// Returns a prefix below this one, with the same options and the same login.
    pub(crate) fn join(&self, name: &str) -> Self {
        let shared = &self.shared;
        Self::with(
            shared.location.join(name),
            Arc::clone(&shared.options),
            shared.access.clone(),
            shared.alone,
        )
    }

    /// Returns the same location for the requests of a lease. It has its own connections, so heartbeats never wait for
    /// data, and it does not check leases.
    pub(crate) fn for_lease(&self) -> Self {
        let shared = &self.shared;
        let mut options = RemoteOptions::clone(&shared.options);
        options.request.connections = options.request.connections.min(LEASE_CONNECTIONS);
        Self::with(
            shared.location.clone(),
            Arc::new(options),
            shared.access.clone(),
            shared.alone,
        )
    }

    /// Returns the leases under which this `Remote` and its clones write.
    pub(crate) fn leases(&self) -> &Leases {
        &self.shared.leases
    }

    /// Returns whether the user declares that no other process writes here.
    pub(crate) fn is_single_writer(&self) -> bool {
        // The value was checked when the location was opened.
        matches!(self.shared.options.is_single_writer(), Ok(true))
    }

    /// Announces a wait for the lease of another writer.
    pub(crate) fn lease_wait(&self, wait: &LeaseWait) {
        if let Some(announce) = &self.shared.options.on_lease_wait {
            announce(wait);
        }
    }

    /// Returns the error for an operation that the caller cancelled.
    pub(crate) fn interrupted(&self) -> StorageError {
        self.error("", StorageError::Interrupted)
    }

    /// Returns the location.
    #[must_use]
    pub fn location(&self) -> &RemoteLocation {
        &self.shared.location
    }

    /// Returns the URL of a name, for messages.
    #[must_use]
    pub fn display(&self, name: &str) -> String {
        self.shared.location.display(name)
    }

    /// Runs `work` on the thread of the engine and waits for it, until the caller cancels. `work` counts the bytes that
    /// it sends.
    pub(super) fn wait_while<T, F>(
        &self,
        name: &str,
        cancel: &mut CancelToken<'_>,
        work: impl FnOnce(Arc<Live>, Arc<AtomicU64>) -> F,
    ) -> Result<T, StorageError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StorageError>> + Send + 'static,
    {
        let failed = |fault| self.error(name, fault);
        let live = self.live().map_err(failed)?;
        if std::thread::current().id() == live.engine.thread {
            return Err(failed(StorageError::NoAnswer));
        }
        let sent = Arc::new(AtomicU64::new(0));
        let (sender, receiver) = mpsc::sync_channel(1);
        let work = work(Arc::clone(&live), Arc::clone(&sent));
        let task = live.engine.handle.spawn(async move {
            // If the receiver was dropped, the caller cancelled.
            let _ = sender.send(work.await);
        });
        loop {
            match receiver.recv_timeout(SLICE) {
                Ok(result) => return result.map_err(failed),
                Err(RecvTimeoutError::Disconnected) => return Err(failed(StorageError::NoAnswer)),
                Err(RecvTimeoutError::Timeout) => {
                    if !cancel(sent.load(Ordering::Relaxed)) {
                        task.abort();
                        return Err(failed(StorageError::Interrupted));
                    }
                }
            }
        }
    }
}
