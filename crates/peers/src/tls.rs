//! Encrypted connections between nodes.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use shardmill_core::{Error, escape};

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use crate::error::Problem;

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
    pub(crate) fn new(options: &TlsOptions) -> Result<Self, Error> {
        let TlsOptions { cert, key, ca } = options;
        for (name, path) in [("CERT", cert), ("KEY", key), ("CA", ca)] {
            if path.as_os_str().is_empty() {
                let reason = format!("TLS between the peers needs SHARDMILL_PEERS_{name} as well");
                return Err(Problem::Tls.at("peers", reason));
            }
        }
        let chain = certificates(cert)?;
        let private = PrivateKeyDer::from_pem_file(key)
            .map_err(|error| unread(key, "has no private key without a passphrase", error))?;
        let mut roots = RootCertStore::empty();
        for root in certificates(ca)? {
            let added = roots.add(root);
            added.map_err(|error| content(ca, &unusable(&error)))?;
        }
        let provider: Arc<CryptoProvider> = Arc::new(ring::default_provider());
        let versions = &[&rustls::version::TLS13];
        let failed = |error: rustls::Error| match error {
            rustls::Error::InconsistentKeys(_) => content(key, "is not the key of the certificate"),
            error => content(cert, &unusable(&error)),
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
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
    ) -> io::Result<server::TlsStream<TcpStream>> {
        let acceptor = TlsAcceptor::from(Arc::clone(&self.server));
        timeout(HANDSHAKE_TIME, acceptor.accept(stream)).await?
    }

    /// Makes the handshake with `host:port`, and returns the side of the client. `PermissionDenied` stands for a peer without
    /// TLS, or without a certificate for its address.
    pub(crate) async fn connect(
        &self,
        stream: TcpStream,
        peer: &str,
    ) -> io::Result<client::TlsStream<TcpStream>> {
        let host = peer.rsplit_once(':').map_or(peer, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let refused = |_| io::Error::from(io::ErrorKind::PermissionDenied);
        let name = ServerName::try_from(host.to_owned()).map_err(refused)?;
        let connector = TlsConnector::from(Arc::clone(&self.client));
        match timeout(HANDSHAKE_TIME, connector.connect(name, stream)).await? {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Err(io::ErrorKind::PermissionDenied.into())
            }
            done => done,
        }
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
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
fn unread(path: &Path, missing: &str, error: pem::Error) -> Error {
    match error {
        pem::Error::Io(source) => {
            let shown = path.display().to_string();
            let reason = format!("cannot read `{}` for TLS between the peers", escape(&shown));
            Problem::Tls.at(shown, reason).because(source)
        }
        pem::Error::NoItemsFound => content(path, missing),
        error => content(path, &unusable(&error)),
    }
}

/// Returns the error of a PEM file with another content.
fn content(path: &Path, reason: &str) -> Error {
    let shown = path.display().to_string();
    Problem::Tls.at(&shown, format!("`{}` {reason}", escape(&shown)))
}
