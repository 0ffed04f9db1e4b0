//! The thread that sends requests to stores, and the state that all requests of a process share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use shardmill_core::{PerProcess, lock};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::client::client;
use super::options::RemoteOptions;
use super::semaphore::RequestSemaphore;
use super::signing::Access;
use crate::error::StorageError;

/// The engine of each process.
static ENGINES: PerProcess<Mutex<Weak<Engine>>, 64> = PerProcess::new();

/// A thread with an async runtime. The thread ends when the last reference to the engine is dropped.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) handle: Handle,
    pub(super) thread: ThreadId,
    /// Dropped with the engine, which ends the thread.
    _stop: oneshot::Sender<()>,
    requests: AtomicU64,
    retries: AtomicU64,
    /// When the next retry beyond the budget may be sent.
    turn: Mutex<Option<Instant>>,
    stores: Mutex<BTreeMap<StoreKey, Weak<Store>>>,
}

/// A task that is cancelled when this is dropped.
#[derive(Debug)]
pub(super) struct Task(pub(super) AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What two locations must have in common to share connections.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct StoreKey {
    origin: String,
    connections: usize,
    connect_timeout: Duration,
}

/// How many short requests are sent at a time for each long one. They take the time of a round trip, not of a transfer.
const SMALL_SHARE: usize = 2;

/// The connections to one store.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) client: reqwest::Client,
    pub(super) semaphore: Arc<RequestSemaphore>,
    /// For short requests, so that they do not queue behind long ones.
    pub(super) small: Arc<RequestSemaphore>,
}

impl Engine {
    /// Returns the engine of this process, and starts it if necessary.
    pub(super) fn shared() -> Result<Arc<Self>, StorageError> {
        let slot = ENGINES
            .get(|| Mutex::new(Weak::new()))
            .ok_or_else(StorageError::too_many_processes)?;
        let mut slot = lock(slot);
        if let Some(engine) = slot.upgrade() {
            return Ok(engine);
        }
        let engine = Self::start()?;
        *slot = Arc::downgrade(&engine);
        Ok(engine)
    }

    pub(super) fn start() -> Result<Arc<Self>, StorageError> {
        let failed = |error: std::io::Error| StorageError::NoStart {
            reason: error.to_string(),
        };
        let runtime = Builder::new_current_thread()
            .enable_all()
            // For DNS lookups.
            .max_blocking_threads(4)
            .thread_keep_alive(Duration::from_secs(1))
            .build()
            .map_err(failed)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new()
            .name("shardmill-fetch".to_owned())
            .spawn(move || {
                // An error means that the sender was dropped, which is the signal to stop.
                let _ = runtime.block_on(stopped);
                runtime.shutdown_background();
            })
            .map_err(failed)?;
        Ok(Arc::new(Self {
            handle,
            thread: thread.thread().id(),
            _stop: stop,
            requests: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            turn: Mutex::new(None),
            stores: Mutex::default(),
        }))
    }

    pub(super) fn count_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how long a retry has to wait, or `None` if that is longer than `left`.
    ///
    /// Retries within the budget do not wait. The budget is a share of the requests of the process and a constant.
    /// Beyond it, retries take turns, one per `turn`. So a burst of failures is over soon, and an overloaded store
    /// is not flooded.
    pub(super) fn turn(&self, options: &RemoteOptions, left: Duration) -> Option<Duration> {
        if self.is_in_budget(options.retry.budget_percent, options.retry.budget_floor) {
            return Some(Duration::ZERO);
        }
        let mut turn = lock(&self.turn);
        let now = Instant::now();
        let mine = turn.map_or(now, |turn| turn.max(now)) + options.retry.turn;
        let wait = mine - now;
        // A retry that cannot wait that long takes no turn.
        (wait < left).then(|| {
            *turn = Some(mine);
            wait
        })
    }

    /// Takes one retry from the budget of the process: `percent` of its requests plus `floor`.
    fn is_in_budget(&self, percent: u64, floor: u64) -> bool {
        let requests = self.requests.load(Ordering::Relaxed);
        let max = requests.saturating_mul(percent) / 100 + floor;
        let more = |retries: u64| (retries < max).then_some(retries + 1);
        self.retries
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }

    /// Returns the connections to the store of `access`.
    pub(super) fn store(
        &self,
        access: &Access,
        connections: usize,
        connect_timeout: Duration,
    ) -> Result<Arc<Store>, StorageError> {
        let key = StoreKey {
            origin: access.origin.clone(),
            connections,
            connect_timeout,
        };
        let mut stores = lock(&self.stores);
        if let Some(store) = stores.get(&key).and_then(Weak::upgrade) {
            return Ok(store);
        }
        let small = connections.saturating_mul(SMALL_SHARE);
        let store = Arc::new(Store {
            client: client(
                connect_timeout,
                connections.saturating_add(small),
                access.loopback,
                access.is_plain(),
            )?,
            semaphore: RequestSemaphore::new(connections),
            small: RequestSemaphore::new(small),
        });
        stores.retain(|_, store| store.strong_count() > 0);
        stores.insert(key, Arc::downgrade(&store));
        Ok(store)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RetryOptions;

    #[test]
    fn retry_budget_is_a_share_of_the_requests() {
        let engine = Engine::start().unwrap();
        assert!((0..3).all(|_| engine.is_in_budget(20, 3)));
        assert!(!engine.is_in_budget(20, 3));
        (0..10).for_each(|_| engine.count_request());
        assert!(engine.is_in_budget(20, 3) && engine.is_in_budget(20, 3));
        assert!(!engine.is_in_budget(20, 3));
    }

    #[test]
    fn retries_beyond_the_budget_are_queued() {
        let engine = Engine::start().unwrap();
        let options = RemoteOptions {
            retry: RetryOptions {
                turn: Duration::from_secs(10),
                budget_percent: 0,
                budget_floor: 1,
                ..RetryOptions::default()
            },
            ..RemoteOptions::default()
        };
        let wait = |left| engine.turn(&options, Duration::from_secs(left));
        assert_eq!(wait(100), Some(Duration::ZERO));
        assert!(wait(5).is_none());
        for turn in 1..4 {
            let wait = wait(100).unwrap();
            let late = Duration::from_secs(10 * turn) - wait;
            assert!(late < Duration::from_secs(5), "{wait:?}");
        }
        assert!(wait(30).is_none());
    }

    #[test]
    fn process_shares_one_engine() {
        let (first, second) = (Engine::shared().unwrap(), Engine::shared().unwrap());
        assert!(Arc::ptr_eq(&first, &second));
    }
}
