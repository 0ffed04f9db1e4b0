//! A small S3 on the loopback interface, with faults on demand and counters.
//!
//! [`S3Server`] answers `GET` (with `Range` and `If-Match`), `HEAD`, `ListObjectsV2`, `PUT` (with `If-None-Match: *`),
//! `DELETE` and uploads in parts for the objects of one bucket, in the path style: `/bucket/key`. With another [`Flavor`] it
//! is a Google Cloud Storage, an Azure, a volume of Databricks or a web server instead. Bodies are compared with the checksums
//! that came along. It runs on plain threads, one for each connection, so that it shares nothing with what it
//! tests. [`Settings`] slow it down as a network would, a [`Script`] decides which requests go wrong and how, and
//! [`Counts`] tell what was asked of it. It does not check signatures, it only counts them; the tokens of a [`Login`] are
//! checked.
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

/// How the server behaves.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Time from the end of a request to the first byte of its answer.
    pub latency: Duration,
    /// Bytes of bodies that a connection carries in a second; as many as it can without one.
    pub bytes_per_second: Option<u64>,
    /// What goes wrong.
    pub faults: Script,
    /// Objects on a page of a listing; 1,000 without one.
    pub page: Option<usize>,
    /// What every listing is answered with.
    pub listing: Option<String>,
    /// The kind of store that the server is, from its start to its end.
    pub flavor: Flavor,
    /// It does not know `If-None-Match`, and says so.
    pub no_conditions: bool,
    /// It does not know conditions, and says nothing.
    pub ignores_conditions: bool,
    /// It does not know `x-amz-checksum-sha256`, and says so.
    pub no_sums: bool,
    /// Who gets tokens of a volume of Databricks, without which nothing else is answered. Nobody needs one without it.
    pub login: Option<Login>,
}

/// What was asked of a server so far.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Requests of any kind.
    pub requests: u64,
    /// `HEAD` requests.
    pub heads: u64,
    /// Requests for a listing.
    pub lists: u64,
    /// Requests that carried an `Authorization`.
    pub signed: u64,
    /// Tokens that were given.
    pub tokens: u64,
    /// Requests that had none that was good.
    pub denied: u64,
    /// Requests that a fault was played on.
    pub faults: u64,
    /// Bytes of bodies that were sent.
    pub bytes: u64,
    /// Connections that were accepted.
    pub connections: u64,
    /// Most connections that were open at once.
    pub most_connections: usize,
    /// Most answers that were under way at once, from the end of the request to the last byte.
    pub most_transfers: usize,
    /// Bytes of the bodies of requests that came.
    pub received: u64,
    /// Requests for each key.
    pub by_key: BTreeMap<String, u64>,
    /// Requests of each kind.
    pub by_action: BTreeMap<Action, u64>,
    /// The canned access rights that objects came with.
    pub acls: BTreeMap<String, String>,
    /// Answers under way: when their number changed, counted from the start of the server, and what it became.
    pub transfers: Vec<(Duration, usize)>,
}

impl Counts {
    /// The mean number of answers under way between the first and the last change.
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

/// What the threads of a server share.
#[derive(Debug)]
struct Shared {
    flavor: Flavor,
    objects: Objects,
    uploads: Uploads,
    settings: Mutex<Settings>,
    began: Instant,
    state: Mutex<State>,
    /// Woken at the end.
    stopped: Condvar,
}

#[derive(Debug, Default)]
struct State {
    counts: Counts,
    /// Requests for each key and kind.
    of_action: BTreeMap<(String, Action), u64>,
    transfers: usize,
    /// Tokens that were given, and how often each of them was used.
    tokens: BTreeMap<String, u64>,
    /// How many there were in all.
    given: u64,
    stop: bool,
    /// Open connections, to be cut at the end.
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

    /// Waits; answers whether the server goes on.
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
    /// What the system says about the socket or the thread.
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

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its address as the URL of an endpoint.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The environment variables that lead a client here, with credentials that are no secret.
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

    /// The URL of the bucket, as a client writes it.
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

    /// The objects; those in memory can be changed while the server runs.
    #[must_use]
    pub fn objects(&self) -> &Objects {
        &self.shared.objects
    }

    /// Changes how it behaves from the next request on.
    pub fn set(&self, settings: Settings) {
        *self
            .shared
            .settings
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = settings;
    }

    /// What was asked of it so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.state().counts.clone()
    }

    /// Uploads in parts that have begun, and have neither been completed nor thrown away.
    #[must_use]
    pub fn open_uploads(&self) -> usize {
        self.shared.uploads.count()
    }

    /// Connections that are open now.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.shared.state().open.len()
    }

    /// From now on no token is good that was given before.
    pub fn revoke_tokens(&self) {
        self.shared.state().tokens.clear();
    }

    /// Forgets what was counted.
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
            // One that is closed already is what is wanted.
            let _ = stream.shutdown(Shutdown::Both);
        }
        drop(state);
        self.shared.stopped.notify_all();
        // Wakes the thread that accepts. Where that fails the listener is broken and the thread has ended.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

/// Accepts until the server stops, and then waits for the threads of the connections.
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
                // A connection that breaks is the business of the client.
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
