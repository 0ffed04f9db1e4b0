//! Reads objects from a store, and writes them.

mod credential;
mod engine;
mod list;
mod manifest;
mod precedence;
mod process;
mod semaphore;
mod store_provider;

mod put;
mod request;
mod save;
mod send;
mod settings;
mod spool;
#[cfg(test)]
mod tests;
mod token;
mod transfer;
mod walk;
mod xml;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher as _, RandomState};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use futures::future::join_all;
use futures::stream::{FuturesUnordered, TryStreamExt as _};
use shardmill_core::check_relative_path;
use tokio::task::AbortHandle;

use crate::error::StorageError;
use crate::fault::RemoteFault;
use crate::heartbeat::{LeaseWait, Leases};
use crate::location::RemoteLocation;
use engine::{Engine, Store};
pub use list::RemoteObject;
pub use manifest::{Manifest, ManifestEntries, ManifestEntry};
use process::PerProcess;
pub use put::GoOn;
use request::Signer;
use settings::Access;
pub use settings::{SETTINGS, settings_of};
use transfer::{Growing, Part, Seen, Wanted};
pub use walk::{ListOptions, ListReport};

/// Options for requests to a store: concurrency, part sizes, retries and timeouts.
#[derive(Clone)]
pub struct RemoteOptions {
    /// The maximum number of concurrent requests to a store. Ranges of up to 64 KiB have a separate limit of the same
    /// size. It is lowered after the store asked to slow down.
    pub connections: usize,
    /// The size in bytes of each part of an object that is fetched in parts.
    pub part_bytes: u64,
    /// Objects and ranges larger than this many bytes are fetched in parts.
    pub split_above: u64,
    /// Files larger than this many bytes are uploaded in parts.
    pub put_split_above: u64,
    /// The maximum size in bytes of an uploaded part. All parts but the last are equal. They grow if there would be
    /// more than 10,000.
    pub put_part_bytes: u64,
    /// The number of parts of a file that are uploaded concurrently and held in memory.
    pub put_parts: usize,
    /// The maximum number of requests for one object or part.
    pub attempts: u32,
    /// The upper bound of the wait before the second request. It doubles with each retry; the wait is a random part of
    /// it.
    pub back_off: Duration,
    /// The limit of the doubling.
    pub back_off_most: Duration,
    /// The longest `Retry-After` that is obeyed.
    pub retry_after_most: Duration,
    /// The timeout for making a connection.
    pub connect_timeout: Duration,
    /// The longest time without receiving a byte.
    pub idle_timeout: Duration,
    /// The slowest transfer that is not aborted, measured over `slow_window`.
    pub least_bytes_per_second: u64,
    /// How long a transfer may be too slow.
    pub slow_window: Duration,
    /// The deadline for one object or part, retries included. Waits for a free connection do not count. Received bytes
    /// extend it at the rate of `least_bytes_per_second`.
    pub total_timeout: Duration,
    /// The retries that the process makes without delay, as a percentage of its requests.
    pub retry_percent: u64,
    /// Added to `retry_percent`. Retries beyond this budget take turns, one per `back_off`.
    pub retry_floor: u64,
    /// Credentials, endpoint and region, by the names of environment variables: see [`SETTINGS`]. Profiles of
    /// Databricks are searched in `HOME`.
    pub settings: BTreeMap<String, String>,
    /// Called when a writer has to wait for the lease of another writer, if the wait can take a second or more.
    pub on_lease_wait: Option<OnLeaseWait>,
}

/// A function that reports the wait for the lease of another writer.
pub type OnLeaseWait = Arc<dyn Fn(&LeaseWait) + Send + Sync>;

impl RemoteOptions {
    /// Returns these options with more settings, given as `NAME=VALUE` texts: see [`SETTINGS`]. They take precedence as
    /// in [`with_settings`](Self::with_settings).
    ///
    /// ```
    /// use shardmill_storage::RemoteOptions;
    ///
    /// let options = RemoteOptions::default().with_options(&["aws_region=eu-west-1"])?;
    /// assert_eq!(options.settings["AWS_REGION"], "eu-west-1");
    /// assert!(options.with_options(&["aws_regoin=eu-west-1"]).is_err());
    /// # Ok::<(), shardmill_storage::StorageError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `url-setting`, which is `InvalidInput`: an unknown name, or a text without an equals sign.
    pub fn with_options<T: AsRef<str>>(self, texts: &[T]) -> Result<Self, StorageError> {
        let explicit = texts.iter().map(|text| settings::option(text.as_ref()));
        Ok(self.with_settings(explicit.collect::<Result<_, _>>()?))
    }

    /// Returns these options with explicit settings. They take precedence over existing settings, which usually come
    /// from the environment. They also override other names of the same value and other ways to log in.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    ///
    /// use shardmill_storage::RemoteOptions;
    ///
    /// let mut options = RemoteOptions::default();
    /// options.settings.insert("AWS_ENDPOINT_URL".to_owned(), "https://one".to_owned());
    /// let explicit = BTreeMap::from([("AWS_ENDPOINT".to_owned(), "https://two".to_owned())]);
    /// assert_eq!(options.with_settings(explicit.clone()).settings, explicit);
    /// ```
    #[must_use]
    pub fn with_settings(mut self, explicit: BTreeMap<String, String>) -> Self {
        precedence::add(&mut self.settings, explicit);
        self
    }
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self {
            connections: 64,
            part_bytes: 4 << 20,
            split_above: 8 << 20,
            put_split_above: 64 << 20,
            put_part_bytes: 16 << 20,
            put_parts: 4,
            attempts: 8,
            back_off: Duration::from_millis(100),
            back_off_most: Duration::from_secs(15),
            retry_after_most: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(30),
            least_bytes_per_second: 16 << 10,
            slow_window: Duration::from_secs(30),
            total_timeout: Duration::from_secs(180),
            retry_percent: 20,
            retry_floor: 10,
            settings: BTreeMap::new(),
            on_lease_wait: None,
        }
    }
}

impl fmt::Debug for RemoteOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The values of settings are secrets.
        f.debug_struct("RemoteOptions")
            .field("connections", &self.connections)
            .field("part_bytes", &self.part_bytes)
            .field("split_above", &self.split_above)
            .field("attempts", &self.attempts)
            .field("total_timeout", &self.total_timeout)
            .field("settings", &self.settings.keys())
            .finish_non_exhaustive()
    }
}

/// Statistics of a [`Remote`] in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemoteStats {
    /// The number of requests sent.
    pub requests: u64,
    /// The number of those that were retries.
    pub retries: u64,
    /// The number of bytes received in bodies.
    pub bytes: u64,
    /// The peak number of concurrent requests to the store, including those for other locations in it.
    pub most_connections: usize,
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
#[derive(Clone, Debug)]
pub struct Remote {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    location: RemoteLocation,
    options: Arc<RemoteOptions>,
    access: Hidden,
    /// Whether it has its own engine. Tests need separate retry budgets and threads.
    alone: bool,
    /// The leases under which the location is written.
    leases: Arc<Leases>,
    live: PerProcess<Mutex<Option<Arc<Live>>>, 16>,
}

/// Hides secrets from `Debug`.
struct Hidden(Access);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Access")
    }
}

/// The state of a [`Remote`] in a process that has used it.
#[derive(Debug)]
struct Live {
    options: Arc<RemoteOptions>,
    location: RemoteLocation,
    store: Arc<Store>,
    signer: Signer,
    counters: Counters,
    pins: Mutex<BTreeMap<u64, u64>>,
    hasher: RandomState,
    engine: Arc<Engine>,
    leases: Arc<Leases>,
    /// The store has answered that it does not support checksums.
    no_sums: AtomicBool,
}

#[derive(Debug, Default)]
struct Counters {
    requests: AtomicU64,
    retries: AtomicU64,
    bytes: AtomicU64,
}

impl Live {
    /// Fails if the tag of an object differs from the one seen before.
    fn check_pin(&self, key: &str, etag: Option<&str>) -> Result<(), RemoteFault> {
        let Some(etag) = etag else { return Ok(()) };
        let pins = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
        match pins.get(&self.hasher.hash_one(key)) {
            Some(known) if *known != self.hasher.hash_one(bare(etag)) => Err(RemoteFault::Changed),
            _ => Ok(()),
        }
    }

    /// Records the tag of an object that was read.
    fn pin(&self, key: &str, seen: &Seen) {
        // PERF: two hashes per object, because datasets have millions of long names.
        if let Some(etag) = seen.etag() {
            let (key, etag) = (self.hasher.hash_one(key), self.hasher.hash_one(bare(&etag)));
            let mut pins = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
            pins.entry(key).or_insert(etag);
        }
    }

    fn error(&self, name: &str, fault: RemoteFault) -> StorageError {
        StorageError::Remote {
            url: self.location.display(name),
            fault,
        }
    }

    /// Reads one range, or the whole object if `range` is `None`.
    async fn get(
        &self,
        name: &str,
        range: Option<Range<u64>>,
        object_bytes: Option<u64>,
        most: u64,
    ) -> Result<Vec<u8>, StorageError> {
        check_name(name)?;
        let key = self.location.key(name);
        self.get_key(&key, range, object_bytes, most)
            .await
            .map_err(|fault| self.error(name, fault))
    }

    async fn get_key(
        &self,
        key: &str,
        range: Option<Range<u64>>,
        object_bytes: Option<u64>,
        most: u64,
    ) -> Result<Vec<u8>, RemoteFault> {
        let seen = Seen::default();
        if let (Some(range), Some(bytes)) = (&range, object_bytes)
            && range.end > bytes
        {
            return Err(RemoteFault::Range {
                start: range.start,
                end: range.end,
                found: format!("an object of {bytes} bytes"),
            });
        }
        let declared = match &range {
            Some(range) if range.is_empty() => return Ok(Vec::new()),
            Some(range) => Some(range.end - range.start),
            None => object_bytes,
        };
        let bytes = match declared {
            Some(length) if length > self.options.split_above => {
                let start = range.map_or(0, |range| range.start);
                self.get_parts(key, start..start + length, object_bytes, &seen)
                    .await?
            }
            _ => {
                let mut sink = Growing::new(declared.unwrap_or(most));
                let wanted = Wanted {
                    key,
                    range,
                    object_bytes,
                    most,
                };
                transfer::fetch(self, &wanted, &mut sink, &seen).await?;
                sink.bytes
            }
        };
        self.pin(key, &seen);
        Ok(bytes)
    }

    /// Reads a long range in parts, concurrently into one buffer.
    async fn get_parts(
        &self,
        key: &str,
        range: Range<u64>,
        object_bytes: Option<u64>,
        seen: &Seen,
    ) -> Result<Vec<u8>, RemoteFault> {
        let bytes = range.end - range.start;
        let no_memory = || RemoteFault::OutOfMemory { bytes };
        let length = usize::try_from(bytes).map_err(|_| no_memory())?;
        let part = usize::try_from(self.options.part_bytes.max(1)).map_err(|_| no_memory())?;
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(length).map_err(|_| no_memory())?;
        buffer.resize(length, 0);
        let mut start = range.start;
        let parts: FuturesUnordered<_> = buffer
            .chunks_mut(part)
            .map(|into| {
                let end = start + into.len() as u64;
                let wanted = Wanted {
                    key,
                    range: Some(start..end),
                    object_bytes,
                    most: bytes,
                };
                start = end;
                async move { transfer::fetch(self, &wanted, &mut Part::new(into), seen).await }
            })
            .collect();
        parts.try_collect::<()>().await?;
        Ok(buffer)
    }
}

/// Removes the quotes of an `ETag`. Some listings omit them.
fn bare(etag: &str) -> &str {
    etag.trim_matches('"')
}

fn check_name(name: &str) -> Result<(), StorageError> {
    check_relative_path(name).map_err(|source| StorageError::Name {
        name: name.to_owned(),
        source,
    })
}

/// The number of connections for heartbeats.
const LEASE_CONNECTIONS: usize = 2;

/// Returns a number that differs with each call. It is not suitable as a secret.
#[must_use]
pub fn random_number() -> u64 {
    RandomState::new().hash_one(0)
}

impl Remote {
    /// Opens a location. Only reads the options, and the Databricks profile file if the options are not sufficient.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for an endpoint, a setting or a profile that is not valid. Errors of reading the profile file.
    pub fn open(location: &RemoteLocation, options: &RemoteOptions) -> Result<Self, StorageError> {
        Self::new(location, options, false)
    }

    fn new(
        location: &RemoteLocation,
        options: &RemoteOptions,
        alone: bool,
    ) -> Result<Self, StorageError> {
        let access = Access::new(location, &options.settings)?;
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
                access: Hidden(access),
                alone,
                leases: Arc::default(),
                live: PerProcess::new(),
            }),
        }
    }

    /// Returns the state that belongs to this process, and creates it on the first call.
    fn live(&self) -> Result<Arc<Live>, RemoteFault> {
        let shared = &self.shared;
        let slot = shared
            .live
            .get(Mutex::default)
            .ok_or_else(|| RemoteFault::NoStart {
                reason: "too many processes were forked from each other".to_owned(),
            })?;
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(live) = slot.as_ref() {
            return Ok(Arc::clone(live));
        }
        let engine = if shared.alone {
            Engine::start()?
        } else {
            Engine::shared()?
        };
        let options = &shared.options;
        let access = &shared.access.0;
        let live = Arc::new(Live {
            store: engine.store(access, options.connections, options.connect_timeout)?,
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

    fn error(&self, name: &str, fault: RemoteFault) -> StorageError {
        StorageError::Remote {
            url: self.display(name),
            fault,
        }
    }

    /// Runs `work` on the thread of the engine and waits for it.
    fn wait<T, F>(&self, name: &str, work: impl FnOnce(Arc<Live>) -> F) -> Result<T, StorageError>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let failed = |fault| self.error(name, fault);
        let live = self.live().map_err(failed)?;
        if std::thread::current().id() == live.engine.thread {
            return Err(failed(RemoteFault::NoAnswer));
        }
        let (sender, receiver) = mpsc::sync_channel(1);
        let work = work(Arc::clone(&live));
        live.engine.handle.spawn(async move {
            // An error is impossible, because the receiver waits below.
            let _ = sender.send(work.await);
        });
        receiver.recv().map_err(|_| failed(RemoteFault::NoAnswer))
    }

    /// Reads a whole object of at most `most` bytes. Blocks until it is complete.
    ///
    /// # Errors
    ///
    /// [`StorageError::Remote`]: see [`RemoteFault`]. [`StorageError::Name`].
    pub fn read(&self, name: &str, most: u64) -> Result<Vec<u8>, StorageError> {
        let owned = name.to_owned();
        self.wait(name, move |live| async move {
            live.get(&owned, None, None, most).await
        })?
    }

    /// Reads a range of an object. Blocks until it is complete. If `object_bytes` is given, the object must have that
    /// length.
    ///
    /// # Errors
    ///
    /// As [`Remote::read`].
    pub fn read_range(
        &self,
        name: &str,
        object_bytes: Option<u64>,
        range: Range<u64>,
    ) -> Result<Vec<u8>, StorageError> {
        let owned = name.to_owned();
        self.wait(name, move |live| async move {
            live.get(&owned, Some(range), object_bytes, 0).await
        })?
    }

    /// Reads several ranges concurrently. Blocks until all are complete. The results have the order of `wanted`.
    ///
    /// # Errors
    ///
    /// As [`Remote::read`], for each range.
    pub fn read_ranges(
        &self,
        wanted: &[(String, Range<u64>)],
    ) -> Vec<Result<Vec<u8>, StorageError>> {
        let owned = wanted.to_vec();
        let name = wanted.first().map_or("", |(name, _)| name);
        let all = self.wait(name, move |live| async move {
            let live = &live;
            let one = |(name, range): (String, Range<u64>)| async move {
                live.get(&name, Some(range), None, 0).await
            };
            join_all(owned.into_iter().map(one)).await
        });
        self.each(wanted.iter().map(|(name, _)| name), all)
    }

    /// Starts fetching a whole object that must have `bytes` bytes, in one request or in parts if it is large.
    ///
    /// `done` is called once, on the thread that all fetches of the process share, so it must not block. If that thread
    /// cannot be started, `done` is called before this returns.
    pub fn fetch(
        &self,
        name: &str,
        bytes: u64,
        done: impl FnOnce(Result<Vec<u8>, StorageError>) + Send + 'static,
    ) -> Fetching {
        let state = Arc::new(AtomicU8::new(UNDER_WAY));
        let process = std::process::id();
        let live = match self.live() {
            Ok(live) => live,
            Err(fault) => {
                state.store(ENDED, Ordering::Release);
                done(Err(self.error(name, fault)));
                return Fetching {
                    process,
                    state,
                    task: None,
                };
            }
        };
        let (name, of_task) = (name.to_owned(), Arc::clone(&state));
        let engine = Arc::clone(&live.engine);
        let task = engine.handle.spawn(async move {
            let result = live.get(&name, None, Some(bytes), bytes).await;
            drop(live);
            if of_task
                .compare_exchange(UNDER_WAY, ENDED, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
            {
                done(result);
            }
        });
        Fetching {
            process,
            state,
            task: Some(task.abort_handle()),
        }
    }

    /// Pins the versions of a listing for this process: reading another version of one of them fails with
    /// `remote-changed`. Objects without an `ETag` in the listing are not pinned.
    ///
    /// # Errors
    ///
    /// [`StorageError::Remote`] when the client cannot be started.
    pub fn pin<'a>(
        &self,
        objects: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<(), StorageError> {
        if !self.shared.access.0.store_provider.tags_are_etags() {
            return Ok(());
        }
        let live = self.live().map_err(|fault| self.error("", fault))?;
        let mut pins = live.pins.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, tag) in objects.filter(|(_, tag)| !tag.is_empty()) {
            let key = live.hasher.hash_one(live.location.key(name));
            let etag = live.hasher.hash_one(bare(tag));
            pins.entry(key).or_insert(etag);
        }
        Ok(())
    }

    /// Returns the statistics of this process so far.
    #[must_use]
    pub fn stats(&self) -> RemoteStats {
        let live = self.shared.live.peek().and_then(|slot| {
            slot.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .as_ref()
                .map(Arc::clone)
        });
        let Some(live) = live else {
            return RemoteStats::default();
        };
        RemoteStats {
            requests: live.counters.requests.load(Ordering::Relaxed),
            retries: live.counters.retries.load(Ordering::Relaxed),
            bytes: live.counters.bytes.load(Ordering::Relaxed),
            most_connections: live.store.semaphore.peak().max(live.store.small.peak()),
            connections: live.store.semaphore.limit(),
        }
    }

    /// Returns whether this kind of store can be written.
    #[must_use]
    pub fn can_write(&self) -> bool {
        self.shared.access.0.store_provider.can_write()
    }

    /// Returns whether this kind of store can list objects.
    #[must_use]
    pub fn can_list(&self) -> bool {
        self.shared.access.0.store_provider.can_list()
    }

    /// Returns the error for an object that does not exist.
    pub(crate) fn not_found(&self, name: &str) -> StorageError {
        self.error(name, RemoteFault::NotFound { code: None })
    }

    /// Returns a prefix below this one, with the same options and the same login.
    pub(crate) fn beneath(&self, name: &str) -> Self {
        let shared = &self.shared;
        Self::with(
            shared.location.join(name),
            Arc::clone(&shared.options),
            shared.access.0.clone(),
            shared.alone,
        )
    }

    /// Returns the same location for the requests of a lease. It has its own connections, so heartbeats never wait for
    /// data, and it does not check leases.
    pub(crate) fn for_lease(&self) -> Self {
        let shared = &self.shared;
        let mut options = RemoteOptions::clone(&shared.options);
        options.connections = options.connections.min(LEASE_CONNECTIONS);
        Self::with(
            shared.location.clone(),
            Arc::new(options),
            shared.access.0.clone(),
            shared.alone,
        )
    }

    /// Returns the leases under which this `Remote` and its clones write.
    pub(crate) fn leases(&self) -> &Leases {
        &self.shared.leases
    }

    /// Announces a wait for the lease of another writer.
    pub(crate) fn lease_wait(&self, wait: &LeaseWait) {
        if let Some(announce) = &self.shared.options.on_lease_wait {
            announce(wait);
        }
    }

    /// Returns the error for an operation that the caller cancelled.
    pub(crate) fn interrupted(&self) -> StorageError {
        self.error("", RemoteFault::Interrupted)
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
}

const UNDER_WAY: u8 = 0;
const ENDED: u8 = 1;
const CANCELLED: u8 = 2;

/// A fetch in progress. Dropping it cancels the fetch: unless `done` is already running, it is never called.
#[derive(Debug)]
#[must_use = "dropping it cancels the fetch"]
pub struct Fetching {
    process: u32,
    state: Arc<AtomicU8>,
    task: Option<AbortHandle>,
}

impl Fetching {
    /// Returns whether `done` was called or is running.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state.load(Ordering::Acquire) == ENDED
    }
}

impl Drop for Fetching {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // In a forked child this is a copy: the task belongs to the parent.
            std::mem::forget(self.task.take());
            return;
        }
        let under_way =
            self.state
                .compare_exchange(UNDER_WAY, CANCELLED, Ordering::AcqRel, Ordering::Acquire);
        if let (Ok(_), Some(task)) = (under_way, &self.task) {
            task.abort();
        }
    }
}
