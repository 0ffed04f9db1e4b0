//! A small S3 server on the loopback interface, with faults on demand and counters.
//!
//! [`S3Server`] serves the objects of one bucket with path-style URLs: `/bucket/key`. It supports `GET` (with `Range`
//! and `If-Match`), `HEAD`, `ListObjectsV2`, `PUT` (with `If-None-Match: *`), `DELETE` and multipart uploads. Another
//! [`Flavor`] makes it behave like Google Cloud Storage, Azure, a Databricks volume or a web server. Bodies are
//! verified by the checksums sent with them.
//!
//! It uses plain threads, one per connection, and shares no code with what it tests. [`Settings`] add latency and limit
//! the bandwidth, a [`Script`] injects faults, and [`Counts`] record the requests. Signatures are counted but not
//! verified. The tokens of a [`Login`] are verified.
//!
//! ```
//! use shardmill_testing::s3::{Objects, S3Server, Settings};
//!
//! let objects = Objects::memory("bucket", [("train/index.json".to_owned(), b"{}".to_vec())]);
//! let server = S3Server::start(objects, Settings::default())?;
//! assert!(server.endpoint().starts_with("http://127.0.0.1:"));
//! assert_eq!(server.counts().requests, 0);
//! # Ok::<(), std::io::Error>(())
//! ```

mod answer;
mod connection;
mod fault;
mod flavor;
mod login;
mod objects;
mod sha256;
#[cfg(test)]
mod tests;
mod uploads;

pub use fault::{Action, Asked, Fault, Script};
pub use flavor::Flavor;
pub use login::Login;
pub use objects::Objects;

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use uploads::Uploads;

/// The behaviour of the server.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The time from the end of a request to the first byte of its answer.
    pub latency: Duration,
    /// The bandwidth of a connection in bytes of bodies per second; `None` for no limit.
    pub bytes_per_second: Option<u64>,
    /// The faults.
    pub faults: Script,
    /// The number of objects on a page of a listing; `None` for 1,000.
    pub page: Option<usize>,
    /// The body of the answer to every listing.
    pub listing: Option<String>,
    /// The kind of store. It cannot be changed after the start.
    pub flavor: Flavor,
    /// Conditions such as `If-None-Match` are answered with an error.
    pub no_conditions: bool,
    /// Conditions are silently ignored.
    pub ignores_conditions: bool,
    /// `x-amz-checksum-sha256` is answered with an error.
    pub no_sums: bool,
    /// The login of a Databricks volume, whose tokens all requests need. `None` if no token is needed.
    pub login: Option<Login>,
}

/// The requests that a server has received.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Requests of any kind.
    pub requests: u64,
    /// `HEAD` requests.
    pub heads: u64,
    /// Requests for a listing.
    pub lists: u64,
    /// Requests with an `Authorization` header.
    pub signed: u64,
    /// Tokens issued.
    pub tokens: u64,
    /// Requests without a valid token.
    pub denied: u64,
    /// Requests with an injected fault.
    pub faults: u64,
    /// Bytes sent in bodies.
    pub bytes: u64,
    /// Connections that were accepted.
    pub connections: u64,
    /// The peak number of open connections.
    pub most_connections: usize,
    /// The peak number of answers in flight, from the end of the request to the last byte.
    pub most_transfers: usize,
    /// Bytes received in bodies.
    pub received: u64,
    /// Requests per key.
    pub by_key: BTreeMap<String, u64>,
    /// Requests per action.
    pub by_action: BTreeMap<Action, u64>,
    /// The canned ACL of each uploaded object.
    pub acls: BTreeMap<String, String>,
    /// The number of answers in flight after each change, with the time since the start of the server.
    pub transfers: Vec<(Duration, usize)>,
}

impl Counts {
    /// Returns the mean number of answers in flight between the first and the last change.
    #[must_use]
    pub fn mean_transfers(&self) -> f64 {
        let (Some(first), Some(last)) = (self.transfers.first(), self.transfers.last()) else {
            return 0.0;
        };
        let whole = (last.0 - first.0).as_secs_f64();
        let weighted: f64 = self
            .transfers
            .windows(2)
            .filter_map(|pair| match pair {
                [(from, active), (to, _)] => Some(
                    to.saturating_sub(*from).as_secs_f64()
                        * f64::from(u32::try_from(*active).unwrap_or(u32::MAX)),
                ),
                _ => None,
            })
            .sum();
        if whole > 0.0 { weighted / whole } else { 0.0 }
    }
}

/// The state that the threads of a server share.
#[derive(Debug)]
struct Shared {
    flavor: Flavor,
    objects: Objects,
    uploads: Uploads,
    settings: Mutex<Settings>,
    began: Instant,
    state: Mutex<State>,
    /// Notified when the server stops.
    stopped: Condvar,
}

#[derive(Debug, Default)]
struct State {
    counts: Counts,
    /// The number of requests per key and action.
    of_action: BTreeMap<(String, Action), u64>,
    transfers: usize,
    /// The issued tokens, and how often each was used.
    tokens: BTreeMap<String, u64>,
    /// The total number of issued tokens.
    given: u64,
    stop: bool,
    /// Open connections, to be closed at the end.
    open: BTreeMap<usize, TcpStream>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settings(&self) -> Settings {
        self.settings
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Waits. Returns whether the server is still running.
    fn wait(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut state = self.state();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if state.stop || left.is_zero() {
                return !state.stop;
            }
            state = match self.stopped.wait_timeout(state, left) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    fn transfer(&self, begins: bool) {
        let at = self.began.elapsed();
        let mut state = self.state();
        state.transfers = if begins {
            state.transfers + 1
        } else {
            state.transfers.saturating_sub(1)
        };
        let active = state.transfers;
        state.counts.most_transfers = state.counts.most_transfers.max(active);
        state.counts.transfers.push((at, active));
    }
}

/// A server that runs until it is dropped.
#[derive(Debug)]
pub struct S3Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

impl S3Server {
    /// Starts a server on a free port of 127.0.0.1.
    ///
    /// # Errors
    ///
    /// Returns errors of the socket or the thread.
    pub fn start(objects: Objects, settings: Settings) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            flavor: settings.flavor,
            objects,
            uploads: Uploads::default(),
            settings: Mutex::new(settings),
            began: Instant::now(),
            state: Mutex::default(),
            stopped: Condvar::new(),
        });
        let for_thread = Arc::clone(&shared);
        let accepting = std::thread::Builder::new()
            .name("s3-accept".to_owned())
            .spawn(move || accept(&listener, &for_thread))?;
        Ok(Self {
            address,
            shared,
            accepting: Some(accepting),
        })
    }

    /// Returns the address it listens on.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns its address as the URL of an endpoint.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the environment variables that make a client use this server, with test credentials.
    #[must_use]
    pub fn environment(&self) -> BTreeMap<String, String> {
        let pairs = match self.shared.flavor {
            Flavor::S3 => vec![
                ("AWS_ENDPOINT_URL", self.endpoint()),
                ("AWS_ACCESS_KEY_ID", "test".to_owned()),
                ("AWS_SECRET_ACCESS_KEY", "test".to_owned()),
                ("AWS_REGION", "us-east-1".to_owned()),
            ],
            Flavor::Google => vec![
                ("GOOGLE_ENDPOINT_URL", self.endpoint()),
                ("GCS_KEY", "test".to_owned()),
                ("GCS_SECRET", "test".to_owned()),
            ],
            Flavor::Azure => vec![
                ("AZURE_STORAGE_ENDPOINT", self.endpoint()),
                ("AZURE_STORAGE_ACCOUNT_NAME", "test".to_owned()),
                ("AZURE_STORAGE_ACCOUNT_KEY", "dGVzdA==".to_owned()),
            ],
            Flavor::Files => match self.shared.settings().login {
                Some(login) => vec![
                    ("DATABRICKS_HOST", self.endpoint()),
                    ("DATABRICKS_CLIENT_ID", login.id),
                    ("DATABRICKS_CLIENT_SECRET", login.secret),
                ],
                None => vec![
                    ("DATABRICKS_HOST", self.endpoint()),
                    ("DATABRICKS_TOKEN", "test".to_owned()),
                ],
            },
            Flavor::Web => Vec::new(),
        };
        pairs
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    /// Returns the URL of the bucket, as a client writes it.
    #[must_use]
    pub fn url(&self) -> String {
        let bucket = self.shared.objects.bucket();
        match self.shared.flavor {
            Flavor::S3 => format!("s3://{bucket}"),
            Flavor::Google => format!("gs://{bucket}"),
            Flavor::Azure => format!("az://{bucket}"),
            Flavor::Files => format!("dbfs:/Volumes/{bucket}"),
            Flavor::Web => self.endpoint(),
        }
    }

    /// Returns the objects. Those in memory can be changed while the server runs.
    #[must_use]
    pub fn objects(&self) -> &Objects {
        &self.shared.objects
    }

    /// Changes the behaviour, starting with the next request.
    pub fn set(&self, settings: Settings) {
        *self
            .shared
            .settings
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = settings;
    }

    /// Returns what was counted so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.state().counts.clone()
    }

    /// Returns the number of multipart uploads that are neither completed nor aborted.
    #[must_use]
    pub fn open_uploads(&self) -> usize {
        self.shared.uploads.count()
    }

    /// Returns the number of open connections.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.shared.state().open.len()
    }

    /// Invalidates all tokens issued so far.
    pub fn revoke_tokens(&self) {
        self.shared.state().tokens.clear();
    }

    /// Resets the counters.
    pub fn forget_counts(&self) {
        let mut state = self.shared.state();
        state.counts = Counts::default();
        state.of_action.clear();
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.stop = true;
        for stream in state.open.values() {
            // An error means that the connection is already closed.
            let _ = stream.shutdown(Shutdown::Both);
        }
        drop(state);
        self.shared.stopped.notify_all();
        // Wakes the accepting thread. If this fails, the listener is broken and the thread has ended.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

/// Accepts connections until the server stops, and then joins their threads.
fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    for (id, stream) in listener.incoming().enumerate() {
        let Ok(stream) = stream else { break };
        threads.retain(|thread| !thread.is_finished());
        let mut state = shared.state();
        if state.stop {
            break;
        }
        let Ok(kept) = stream.try_clone() else { break };
        state.open.insert(id, kept);
        state.counts.connections += 1;
        let open = state.open.len();
        state.counts.most_connections = state.counts.most_connections.max(open);
        drop(state);
        let for_thread = Arc::clone(shared);
        let spawned = std::thread::Builder::new()
            .name(format!("s3-{id}"))
            .stack_size(256 << 10)
            .spawn(move || {
                // Broken connections are the client's concern.
                let _ = connection::serve(&stream, &for_thread);
                let _ = stream.shutdown(Shutdown::Both);
                for_thread.state().open.remove(&id);
            });
        match spawned {
            Ok(thread) => threads.push(thread),
            Err(_) => {
                shared.state().open.remove(&id);
            }
        }
    }
    for thread in threads {
        let _ = thread.join();
    }
}
