//! The errors of the options of a cluster.

use std::io;

use shardmill_core::{Diagnostic, ErrorKind, escape};

/// An error of joining the nodes of a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum PeersError {
    /// The shared secret is missing or weak.
    #[error("the token of the peers is missing, or is not 16 or more letters, digits, `-` and `_`")]
    Token,
    /// An entry of the list is no address, or is repeated.
    #[error("the peer `{}` {reason}", escape(peer))]
    Peer { peer: String, reason: &'static str },
    /// The list does not have one address for each node.
    #[error("there are {peers} peers, and this is node {node} of {nodes}")]
    Count { peers: u64, node: u64, nodes: u64 },
    /// Some of the files of TLS are given, and this one is not.
    #[error("TLS between the peers needs SHARDMILL_PEERS_{name} as well")]
    TlsMissing { name: &'static str },
    /// A file of TLS cannot be read.
    #[error("cannot read `{}` for TLS between the peers", escape(path))]
    TlsFile {
        path: String,
        #[source]
        source: io::Error,
    },
    /// A file of TLS has another content.
    #[error("`{}` {reason}", escape(path))]
    TlsContent { path: String, reason: String },
    /// The address of this node cannot be bound.
    #[error("cannot listen on the address of this node")]
    Listen {
        peer: String,
        #[source]
        source: io::Error,
    },
}

impl Diagnostic for PeersError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Token
            | Self::Peer { .. }
            | Self::Count { .. }
            | Self::TlsMissing { .. }
            | Self::TlsFile { .. }
            | Self::TlsContent { .. } => ErrorKind::InvalidInput,
            Self::Listen { .. } => ErrorKind::Storage,
        }
    }

    fn id(&self) -> &'static str {
        match self {
            Self::Token => "config-peers-token",
            Self::Peer { .. } | Self::Count { .. } => "config-peers",
            Self::TlsMissing { .. } | Self::TlsFile { .. } | Self::TlsContent { .. } => {
                "config-peers-tls"
            }
            Self::Listen { .. } => "peers-listen",
        }
    }

    fn object(&self) -> Option<String> {
        match self {
            Self::Listen { peer, .. } => Some(peer.clone()),
            Self::TlsFile { path, .. } | Self::TlsContent { path, .. } => Some(path.clone()),
            _ => Some("peers".to_owned()),
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Token => "set SHARDMILL_PEERS_TOKEN to the same secret on all nodes",
            Self::Peer { .. } | Self::Count { .. } => {
                "list one `host:port` for each node, in the order of the nodes, the same on all nodes"
            }
            Self::TlsMissing { .. } | Self::TlsFile { .. } | Self::TlsContent { .. } => {
                "set SHARDMILL_PEERS_CERT, SHARDMILL_PEERS_KEY and SHARDMILL_PEERS_CA to PEM files, or none of them"
            }
            Self::Listen { .. } => {
                "the list of peers may be in another order than the nodes, or name an address of another machine"
            }
        };
        Some(hint.to_owned())
    }
}
