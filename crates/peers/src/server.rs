//! The server of this node.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::AUTHORIZATION;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, http};
use hyper_util::rt::{TokioIo, TokioTimer};
use shardmill_codec::{HashAlgo, hash_hex};
use shardmill_core::{Error, PerProcess, is_equal_token, lock};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::error::Problem;
use crate::file::PeerFile;
use crate::runtime::{CONNECTIONS, runtime};
use crate::tls::Tls;

/// The most bytes, and the most headers, of the head of a request.
const HEAD_BYTES: usize = 64 << 10;
const HEADERS: usize = 64;

/// The time in which the head of a request must arrive.
const HEAD_TIME: Duration = Duration::from_secs(5);

/// The longest time of a connection. A client waits no longer.
const TOTAL_TIME: Duration = Duration::from_secs(310);

/// How long no connection is accepted after a failure, which is mostly too many open files.
const PAUSE: Duration = Duration::from_millis(50);

/// The header with the hash of the body.
pub(crate) const HASH_HEADER: &str = "x-content-xxh3-128";

/// Finds files for other nodes.
pub trait PeerFiles: Send + Sync {
    /// Returns the bytes of a file, or `None` if this node does not have it. Fetches it first if this node is its owner.
    fn read(&self, file: &PeerFile) -> Option<Vec<u8>>;
}

/// A server of this process.
struct Served {
    peer: String,
    token: String,
    tls: Option<Tls>,
    sources: Mutex<Vec<Weak<dyn PeerFiles>>>,
}

/// The servers of this process, by address.
static SERVERS: PerProcess<Mutex<Vec<Arc<Served>>>, 64> = PerProcess::new();

/// Serves files on the address of this node until they are dropped. Does nothing if another process of the node does so.
pub(crate) fn serve(
    peer: &str,
    token: &str,
    tls: Option<Tls>,
    files: Weak<dyn PeerFiles>,
) -> Result<(), Error> {
    let Some(servers) = SERVERS.get(Mutex::default) else {
        return Ok(());
    };
    let mut servers = lock(servers);
    let same = |served: &&Arc<Served>| served.peer == peer && served.token == token;
    if let Some(served) = servers.iter().find(same) {
        served.add(files);
        return Ok(());
    }
    let failed = |source: io::Error| {
        let reason = "cannot listen on the address of this node";
        Problem::Listen.at(peer, reason).because(source)
    };
    let runtime = runtime().ok_or_else(|| failed(io::Error::other("no threads can be started")))?;
    let listener = match runtime.block_on(bind(peer)) {
        Ok(listener) => listener,
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    let served = Arc::new(Served {
        peer: peer.to_owned(),
        token: token.to_owned(),
        tls,
        sources: Mutex::default(),
    });
    served.add(files);
    runtime.spawn(Arc::clone(&served).accept(listener));
    servers.push(served);
    Ok(())
}

/// Binds the address of this node. A host name stands for all interfaces, because it may resolve to the loopback interface
/// on its own node.
async fn bind(peer: &str) -> io::Result<TcpListener> {
    if let Ok(address) = peer.parse::<SocketAddr>() {
        return TcpListener::bind(address).await;
    }
    let port = peer
        .rsplit_once(':')
        .and_then(|(_, port)| port.parse().ok());
    TcpListener::bind(("0.0.0.0", port.ok_or(io::ErrorKind::InvalidInput)?)).await
}

impl Served {
    fn sources(&self) -> Vec<Arc<dyn PeerFiles>> {
        let sources = lock(&self.sources);
        sources.iter().filter_map(Weak::upgrade).collect()
    }

    fn add(&self, files: Weak<dyn PeerFiles>) {
        let mut sources = lock(&self.sources);
        sources.retain(|source| source.strong_count() > 0);
        sources.push(files);
    }

    /// Answers requests until the process ends. Connections beyond the most are closed.
    async fn accept(self: Arc<Self>, listener: TcpListener) {
        let free = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                sleep(PAUSE).await;
                continue;
            };
            let Ok(permit) = Arc::clone(&free).try_acquire_owned() else {
                continue;
            };
            let served = Arc::clone(&self);
            tokio::spawn(async move {
                // A client that closes its connection early, or is too slow, gets no response.
                let _ = timeout(TOTAL_TIME, served.connected(stream)).await;
                drop(permit);
            });
        }
    }

    async fn connected(
        &self,
        stream: TcpStream,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        match &self.tls {
            Some(tls) => self.exchange(tls.accept(stream).await?).await?,
            None => self.exchange(stream).await?,
        }
        Ok(())
    }

    /// Answers one request.
    async fn exchange(&self, stream: impl AsyncRead + AsyncWrite + Unpin) -> hyper::Result<()> {
        let service = service_fn(|request| self.answer(request));
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).keep_alive(false);
        builder.header_read_timeout(HEAD_TIME);
        builder.max_buf_size(HEAD_BYTES).max_headers(HEADERS);
        builder
            .serve_connection(TokioIo::new(stream), service)
            .await
    }

    async fn answer(&self, request: Request<Incoming>) -> http::Result<Response<Full<Bytes>>> {
        let refused = |status: StatusCode, text: &'static str| {
            Response::builder().status(status).body(Full::from(text))
        };
        let token = request.headers().get(AUTHORIZATION);
        let token = token.and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        if !token.is_some_and(|token| is_equal_token(token, &self.token)) {
            let text = "the token is missing, or is not that of this run";
            return refused(StatusCode::UNAUTHORIZED, text);
        }
        let (sources, file) = (self.sources(), PeerFile::parse(request.uri().path()));
        // Reading waits for the store if this node is the owner of the file.
        let found = spawn_blocking(move || {
            let bytes = sources.iter().find_map(|source| source.read(&file?))?;
            Some((hash_hex(HashAlgo::Xxh3_128, &bytes), bytes))
        });
        match found.await {
            Ok(Some((hash, bytes))) => Response::builder()
                .header(HASH_HEADER, hash)
                .body(Full::from(bytes)),
            _ => refused(StatusCode::NOT_FOUND, "this node does not have the file"),
        }
    }
}
