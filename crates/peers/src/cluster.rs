//! The nodes of a run, the owners of files, and fetching from them.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use shardmill_codec::{HashAlgo, digest, hash_hex};
use shardmill_core::{Error, escape, is_token, lock};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::timeout;

use crate::error::Problem;
use crate::file::PeerFile;
use crate::runtime::runtime;
use crate::server::{HASH_HEADER, PeerFiles, serve};
use crate::tls::{Tls, TlsOptions};

/// The time in which a peer must accept a connection.
const CONNECT_TIME: Duration = Duration::from_secs(2);

/// The longest time without new bytes. It includes the fetch of the owner from the store.
const IDLE_TIME: Duration = Duration::from_secs(30);

/// The longest time of one fetch.
const TOTAL_TIME: Duration = Duration::from_secs(300);

/// How long a peer that could not be reached is not used again.
const AVOID_TIME: Duration = Duration::from_secs(60);

/// The nodes of a run.
#[derive(Clone)]
pub struct ClusterOptions {
    /// The addresses of all nodes, `host:port`, in the order of the nodes.
    pub peers: Vec<String>,
    /// The number of this node.
    pub node: u64,
    /// The number of nodes.
    pub nodes: u64,
    /// The secret that all nodes share.
    pub token: String,
    /// The files of encrypted connections. `None` for connections in the clear.
    pub tls: Option<TlsOptions>,
}

impl fmt::Debug for ClusterOptions {
    /// Leaves out the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterOptions")
            .field("peers", &self.peers)
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

/// Counters of the fetches from other nodes in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterStats {
    /// Files fetched from peers.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Requests to peers that did not return the file. Each was followed by a fetch from the store.
    pub failures: u64,
}

/// The nodes of a run, as one of them sees them.
#[derive(Debug)]
pub struct Cluster {
    options: ClusterOptions,
    own: usize,
    tls: Option<Tls>,
    /// When a peer may be used again.
    avoided: Mutex<Vec<Option<Instant>>>,
    files: AtomicU64,
    bytes: AtomicU64,
    failures: AtomicU64,
}

impl Cluster {
    /// Checks the options.
    ///
    /// # Errors
    ///
    /// `InvalidInput`.
    pub fn new(options: ClusterOptions) -> Result<Self, Error> {
        let peers = &options.peers;
        for (number, peer) in peers.iter().enumerate() {
            let reason = if peers.iter().take(number).any(|other| other == peer) {
                "is in the list twice"
            } else if !is_address(peer) {
                "is not `host:port`"
            } else {
                continue;
            };
            let reason = format!("the peer `{}` {reason}", escape(peer));
            return Err(Problem::List.at("peers", reason));
        }
        let own = usize::try_from(options.node).unwrap_or(usize::MAX);
        if peers.len() as u64 != options.nodes || own >= peers.len() {
            let (count, node, nodes) = (peers.len(), options.node, options.nodes);
            let reason = format!("there are {count} peers, and this is node {node} of {nodes}");
            return Err(Problem::List.at("peers", reason));
        }
        if !is_token(&options.token) {
            let reason = "the token of the peers is missing, or is not 16 or more letters, digits, `-` and `_`";
            return Err(Problem::Token.at("peers", reason));
        }
        Ok(Self {
            own,
            tls: options.tls.as_ref().map(Tls::new).transpose()?,
            avoided: Mutex::new(vec![None; peers.len()]),
            options,
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        })
    }

    /// Returns whether this node owns a file.
    #[must_use]
    pub fn is_own(&self, file: &PeerFile) -> bool {
        owner(&self.options.peers, file) == self.own
    }

    /// Serves files to the other nodes while `files` exists, on threads of this process. If another process of this node
    /// does so already, this does nothing.
    ///
    /// # Errors
    ///
    /// `Storage` if the address of this node cannot be bound.
    pub fn serve(&self, files: Weak<dyn PeerFiles>) -> Result<(), Error> {
        match self.options.peers.get(self.own) {
            Some(own) => serve(own, &self.options.token, self.tls.clone(), files),
            None => Ok(()),
        }
    }

    /// Starts fetching a file of `bytes` bytes from its owner. Calls `then` once with the bytes, or
    /// with `None` if the owner did not return them, unless the returned value was dropped before. `then` returns a fetch that
    /// follows; the returned value keeps it. The bytes are as the owner has them: their content is not checked.
    pub fn fetch(
        self: &Arc<Self>,
        file: PeerFile,
        bytes: u64,
        then: impl FnOnce(Option<Vec<u8>>) -> Box<dyn Send> + Send + 'static,
    ) -> Fetching {
        let stage = Arc::new(Mutex::new(Stage::Running));
        let mut fetching = Fetching {
            process: std::process::id(),
            stage: Arc::clone(&stage),
            task: None,
        };
        let owner = owner(&self.options.peers, &file);
        let Some(runtime) = runtime().filter(|_| !self.is_avoided(owner)) else {
            follow(&stage, then, None);
            return fetching;
        };
        let cluster = Arc::clone(self);
        let task = runtime.spawn(async move {
            let found = cluster.fetch_now(owner, &file, bytes).await;
            spawn_blocking(move || follow(&stage, then, found));
        });
        fetching.task = Some(task.abort_handle());
        fetching
    }

    async fn fetch_now(&self, owner: usize, file: &PeerFile, bytes: u64) -> Option<Vec<u8>> {
        let request = timeout(TOTAL_TIME, self.request(owner, file, bytes));
        match request.await.unwrap_or_else(|late| Err(late.into())) {
            Ok(found) => {
                self.files.fetch_add(1, Ordering::Relaxed);
                self.bytes.fetch_add(bytes, Ordering::Relaxed);
                Some(found)
            }
            Err(error) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                let is_gone = matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionRefused
                        | io::ErrorKind::HostUnreachable
                        | io::ErrorKind::NetworkUnreachable
                        | io::ErrorKind::TimedOut
                        | io::ErrorKind::PermissionDenied
                        // The answer is not HTTP, as that of a peer with TLS to a request without.
                        | io::ErrorKind::Other
                );
                if is_gone && let Some(avoided) = self.avoided().get_mut(owner) {
                    *avoided = Some(Instant::now() + AVOID_TIME);
                }
                None
            }
        }
    }

    async fn request(&self, owner: usize, file: &PeerFile, bytes: u64) -> io::Result<Vec<u8>> {
        let peer = self.options.peers.get(owner);
        let peer = peer.ok_or(io::ErrorKind::NotFound)?;
        let stream = timeout(CONNECT_TIME, TcpStream::connect(peer)).await??;
        let request = Request::get(file.to_string())
            .header(HOST, peer)
            .header(AUTHORIZATION, format!("Bearer {}", self.options.token))
            .body(Empty::new())
            .map_err(io::Error::other)?;
        match &self.tls {
            Some(tls) => exchange(tls.connect(stream, peer).await?, request, bytes).await,
            None => exchange(stream, request, bytes).await,
        }
    }

    fn avoided(&self) -> MutexGuard<'_, Vec<Option<Instant>>> {
        lock(&self.avoided)
    }

    fn is_avoided(&self, peer: usize) -> bool {
        let until = self.avoided().get(peer).copied().flatten();
        until.is_some_and(|until| Instant::now() < until)
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> ClusterStats {
        ClusterStats {
            files: self.files.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
        }
    }
}

/// Returns the number of the node that owns a file, among the addresses of all nodes. All parts of a file have the same
/// owner. Every node owns about as many files, and only the files of an address that is replaced get another owner.
#[must_use]
pub fn owner(peers: &[String], file: &PeerFile) -> usize {
    let key = PeerFile { part: 0, ..*file }.to_string();
    let score = |peer: &str| {
        let text = format!("{peer}{key}");
        let hash = digest(HashAlgo::Xxh3_64, text.as_bytes());
        hash.as_bytes().to_vec()
    };
    let best = peers.iter().enumerate().max_by_key(|(_, peer)| score(peer));
    best.map_or(0, |(number, _)| number)
}

fn is_address(peer: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:[]".contains(&byte);
    peer.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty()
            && host.bytes().all(is_plain)
            && port.parse::<u16>().is_ok_and(|port| port > 0)
    })
}

/// Sends a request over a new connection, and returns a body of `bytes` bytes that has the announced hash.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<Empty<Bytes>>,
    bytes: u64,
) -> io::Result<Vec<u8>> {
    let failed = |error: hyper::Error| match error.is_parse() {
        true => io::Error::other(error),
        false => io::Error::new(io::ErrorKind::UnexpectedEof, error),
    };
    let mut builder = http1::Builder::new();
    let connected = builder
        .title_case_headers(true)
        .handshake(TokioIo::new(stream));
    let (mut sender, connection) = connected.await.map_err(failed)?;
    // It ends when the answer is read or dropped.
    tokio::spawn(connection);
    let answer = timeout(IDLE_TIME, sender.send_request(request)).await?;
    let answer = answer.map_err(failed)?;
    match answer.status() {
        StatusCode::OK => {}
        StatusCode::UNAUTHORIZED => return Err(io::ErrorKind::PermissionDenied.into()),
        _ => return Err(io::ErrorKind::NotFound.into()),
    }
    let (head, mut body) = answer.into_parts();
    let mut found = Vec::new();
    while let Some(frame) = timeout(IDLE_TIME, body.frame()).await? {
        let data = frame.map_err(failed)?.into_data().unwrap_or_default();
        found.extend_from_slice(&data);
        if found.len() as u64 > bytes {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
    }
    let hash = hash_hex(HashAlgo::Xxh3_128, &found);
    if found.len() as u64 != bytes
        || head
            .headers
            .get(HASH_HEADER)
            .is_none_or(|known| *known != hash)
    {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(found)
}

enum Stage {
    /// The request is in flight.
    Running,
    /// It was cancelled, or was followed by another fetch.
    Ended { _next: Option<Box<dyn Send>> },
}

/// Calls `then` unless the fetch was cancelled, and keeps the fetch that follows.
fn follow(
    stage: &Mutex<Stage>,
    then: impl FnOnce(Option<Vec<u8>>) -> Box<dyn Send>,
    found: Option<Vec<u8>>,
) {
    if matches!(*lock(stage), Stage::Ended { .. }) {
        return;
    }
    // Without the lock, because `then` may drop the fetch.
    let next = then(found);
    let mut stage = lock(stage);
    if matches!(*stage, Stage::Running) {
        *stage = Stage::Ended { _next: Some(next) };
    }
}

/// A fetch from a peer, and the fetch that may follow it. Dropping it cancels both.
pub struct Fetching {
    process: u32,
    stage: Arc<Mutex<Stage>>,
    task: Option<AbortHandle>,
}

impl fmt::Debug for Fetching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetching").finish_non_exhaustive()
    }
}

impl Drop for Fetching {
    fn drop(&mut self) {
        // A forked child has a copy, but the task belongs to its parent.
        if self.process != std::process::id() {
            return;
        }
        if let Some(task) = &self.task {
            task.abort();
        }
        *lock(&self.stage) = Stage::Ended { _next: None };
    }
}
