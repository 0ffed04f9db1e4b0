//! Encrypted connections between nodes.

use std::io::{self, Read, Write};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, ConnectionCommon, RootCertStore, ServerConfig,
    ServerConnection, SideData, StreamOwned,
};
use shardmill_http::{Connection, Socket};

use crate::error::PeersError;

/// The time in which a peer must complete the handshake.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

/// The PEM files of encrypted connections. An empty path is a file that is not given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// The certificate of this node, followed by those of intermediate authorities.
    pub cert: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// The authorities that sign the certificates of the nodes.
    pub ca: PathBuf,
}

/// What the two sides of encrypted connections need.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

impl Tls {
    pub(crate) fn new(options: &TlsOptions) -> Result<Self, PeersError> {
        let TlsOptions { cert, key, ca } = options;
        for (name, path) in [("CERT", cert), ("KEY", key), ("CA", ca)] {
            if path.as_os_str().is_empty() {
                return Err(PeersError::TlsMissing { name });
            }
        }
        let content = |path: &Path, reason: String| PeersError::TlsContent {
            path: path.display().to_string(),
            reason,
        };
        let chain = certificates(cert)?;
        let private = PrivateKeyDer::from_pem_file(key)
            .map_err(|error| unread(key, "has no private key without a passphrase", error))?;
        let mut roots = RootCertStore::empty();
        for root in certificates(ca)? {
            let added = roots.add(root);
            added.map_err(|error| content(ca, unusable(&error)))?;
        }
        let provider: Arc<CryptoProvider> = Arc::new(ring::default_provider());
        let versions = &[&rustls::version::TLS13];
        let failed = |error: rustls::Error| match error {
            rustls::Error::InconsistentKeys(_) => {
                content(key, "is not the key of the certificate".to_owned())
            }
            error => content(cert, unusable(&error)),
        };
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .and_then(|builder| {
                let builder = builder.with_no_client_auth();
                builder.with_single_cert(chain, private)
            })
            .map_err(failed)?;
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(failed)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        // Sessions would be shared with forked processes.
        server.send_tls13_tickets = 0;
        client.resumption = Resumption::disabled();
        Ok(Self {
            server: Arc::new(server),
            client: Arc::new(client),
        })
    }

    /// Makes the handshake, and returns the side of the server.
    pub(crate) fn accept<'a>(
        &self,
        mut socket: Socket<'a>,
    ) -> io::Result<impl Connection + use<'a>> {
        let server = Arc::clone(&self.server);
        let mut session = ServerConnection::new(server).map_err(io::Error::other)?;
        shake_hands(&mut session, &mut socket)?;
        Ok(Encrypted(StreamOwned::new(session, socket)))
    }

    /// Makes the handshake with `host:port`, and returns the side of the client. `PermissionDenied` stands for a peer without
    /// TLS, or without a certificate for its address.
    pub(crate) fn connect<'a>(
        &self,
        mut socket: Socket<'a>,
        peer: &str,
    ) -> io::Result<impl Connection + use<'a>> {
        let host = peer.rsplit_once(':').map_or(peer, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let refused = |_| io::Error::from(io::ErrorKind::PermissionDenied);
        let name = ServerName::try_from(host.to_owned()).map_err(refused)?;
        let client = Arc::clone(&self.client);
        let mut session = ClientConnection::new(client, name).map_err(io::Error::other)?;
        match shake_hands(&mut session, &mut socket) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            done => done?,
        }
        Ok(Encrypted(StreamOwned::new(session, socket)))
    }
}

/// Makes a handshake.
fn shake_hands<S: SideData>(
    session: &mut ConnectionCommon<S>,
    socket: &mut Socket<'_>,
) -> io::Result<()> {
    socket.limit(HANDSHAKE_TIME, HANDSHAKE_TIME);
    while session.is_handshaking() {
        session.complete_io(socket)?;
    }
    Ok(())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, PeersError> {
    let missing = "has no certificate";
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<_, _>>);
    let found: Vec<_> = found.map_err(|error| unread(path, missing, error))?;
    match found.is_empty() {
        true => Err(unread(path, missing, pem::Error::NoItemsFound)),
        false => Ok(found),
    }
}

fn unusable(error: &dyn std::error::Error) -> String {
    format!("is not usable: {error}")
}

/// Returns the error of reading a PEM file.
fn unread(path: &Path, missing: &str, error: pem::Error) -> PeersError {
    let path = path.display().to_string();
    match error {
        pem::Error::Io(source) => PeersError::TlsFile { path, source },
        pem::Error::NoItemsFound => PeersError::TlsContent {
            path,
            reason: missing.to_owned(),
        },
        error => PeersError::TlsContent {
            path,
            reason: unusable(&error),
        },
    }
}

/// An encrypted connection.
struct Encrypted<'a, C, S>(StreamOwned<C, Socket<'a>>)
where
    C: DerefMut + Deref<Target = ConnectionCommon<S>>,
    S: SideData;

impl<C, S> Read for Encrypted<'_, C, S>
where
    C: DerefMut + Deref<Target = ConnectionCommon<S>>,
    S: SideData,
{
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl<C, S> Write for Encrypted<'_, C, S>
where
    C: DerefMut + Deref<Target = ConnectionCommon<S>>,
    S: SideData,
{
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl<C, S> Connection for Encrypted<'_, C, S>
where
    C: DerefMut + Deref<Target = ConnectionCommon<S>>,
    S: SideData,
{
    fn limit(&mut self, idle: Duration, total: Duration) {
        self.0.sock.limit(idle, total);
    }

    fn end(&mut self) -> io::Result<()> {
        self.0.conn.send_close_notify();
        self.0.flush()?;
        self.0.sock.end()
    }
}
