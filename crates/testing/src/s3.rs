//! A small S3 server on the loopback interface, with faults on demand and counters.
//!
//! [`S3Server`] serves the objects of one bucket with path-style URLs: `/bucket/key`. It supports `GET` (with `Range`
//! and `If-Match`), `HEAD`, `ListObjectsV2`, `PUT` (with `If-None-Match: *`), `DELETE` and multipart uploads. Another
//! [`Flavor`] makes it behave like Google Cloud Storage (JSON or XML), Azure, a Databricks volume or a web server. Bodies are
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
mod checksum;
mod connection;
mod fault;
mod flavor;
mod google;
mod google_objects;
mod handler;
mod login;
mod objects;
mod request;
mod settings;
mod shared;
#[cfg(test)]
mod tests;
mod uploads;

pub use fault::{Action, Asked, Fault, Script};
pub use flavor::Flavor;
pub use objects::Objects;
pub use settings::{Login, Settings};
pub use shared::{Counts, Load};

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use shared::Shared;
use uploads::Uploads;

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
                ("GOOGLE_OAUTH_ACCESS_TOKEN", "test".to_owned()),
            ],
            Flavor::GoogleXml => vec![
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
            Flavor::Google | Flavor::GoogleXml => format!("gs://{bucket}"),
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
        let open = state.open.len();
        let load = &mut state.counts.load;
        load.connections += 1;
        load.max_connections = load.max_connections.max(open);
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
