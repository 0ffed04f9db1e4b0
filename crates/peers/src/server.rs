//! The server of this node.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, Weak};

use shardmill_codec::{HashAlgo, hash_hex};
use shardmill_core::{PerProcess, lock};
use shardmill_http::{
    Connection, Response, Socket, UNKNOWN, accept, is_equal, read_request, write_response,
};

use crate::error::PeersError;
use crate::file::PeerFile;
use crate::tls::Tls;

/// The most connections at a time. Each waits for one file.
const CONNECTIONS: usize = 1024;

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
) -> Result<(), PeersError> {
    let Some(servers) = SERVERS.get(Mutex::default) else {
        return Ok(());
    };
    let mut servers = lock(servers);
    let same = |served: &&Arc<Served>| served.peer == peer && served.token == token;
    if let Some(served) = servers.iter().find(same) {
        served.add(files);
        return Ok(());
    }
    let failed = |source| PeersError::Listen {
        peer: peer.to_owned(),
        source,
    };
    let listener = match bind(peer) {
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
    let of_thread = Arc::clone(&served);
    std::thread::Builder::new()
        .name("shardmill-peers".to_owned())
        .spawn(move || {
            accept(&listener, CONNECTIONS, move |stream| {
                // A client that closes its connection early gets no response.
                let _ = of_thread.answer(stream);
            });
        })
        .map_err(failed)?;
    servers.push(served);
    Ok(())
}

/// Binds the address of this node. A host name stands for all interfaces, because it may resolve to the loopback interface
/// on its own node.
fn bind(peer: &str) -> io::Result<TcpListener> {
    if let Ok(address) = peer.parse::<SocketAddr>() {
        return TcpListener::bind(address);
    }
    let port = peer
        .rsplit_once(':')
        .and_then(|(_, port)| port.parse().ok());
    TcpListener::bind(("0.0.0.0", port.ok_or(io::ErrorKind::InvalidInput)?))
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

    fn answer(&self, stream: &TcpStream) -> io::Result<()> {
        let mut socket = Socket::new(stream);
        match &self.tls {
            Some(tls) => self.answer_on(&mut tls.accept(socket)?),
            None => self.answer_on(&mut socket),
        }
    }

    fn answer_on(&self, connection: &mut dyn Connection) -> io::Result<()> {
        let (response, is_head) = match read_request(connection) {
            Ok(request)
                if !request
                    .bearer()
                    .is_some_and(|token| is_equal(token, &self.token)) =>
            {
                let refusal = "the token is missing, or is not that of this run";
                (Response::refusal(401, refusal), request.is_head)
            }
            Ok(request) => (self.file(&request.path), request.is_head),
            Err(refused) => (refused, false),
        };
        write_response(connection, &response, is_head)
    }

    fn file(&self, path: &str) -> Response {
        let found = PeerFile::parse(path).and_then(|file| {
            let sources = self.sources();
            sources.iter().find_map(|source| source.read(&file))
        });
        let Some(bytes) = found else {
            return Response::refusal(404, "this node does not have the file");
        };
        let hash = hash_hex(HashAlgo::Xxh3_128, &bytes);
        let mut response = Response::new(UNKNOWN, bytes);
        response.headers.push((HASH_HEADER, hash));
        response
    }
}
