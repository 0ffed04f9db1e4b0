//! Fetches files from the caches of other nodes of a run, and serves the files of this node to them.
//!
//! Every node has the same list of addresses, one for each node. The list names the owner of every file: the address with
//! the highest hash of address and file ([`owner`]). The owner fetches the file from the store, once, and keeps it
//! in its cache. The other nodes fetch it from the owner ([`Cluster::fetch`]). A node that does not get it from there fetches
//! it from the store, so a peer that is slow, full or gone costs one failed request for each file.
//!
//! [`Cluster::serve`] starts the server of this node: threads in the first process of the node that binds the address. There
//! is no daemon, and nodes do not watch each other. Requests carry a secret that all nodes share, over TLS if the user gives
//! certificates ([`TlsOptions`]). Answers carry a hash of their bytes. This crate knows no datasets: [`PeerFiles`] finds the files, and its user checks their content.

// The modules, from the bottom up: each uses only modules above it in this list.

mod error; // Errors of the options.
mod file; // Names of files.
mod runtime; // Threads.
mod tls; // Encrypted connections.

mod server; // The files of this node.

mod cluster; // The other nodes.

pub use cluster::{Cluster, ClusterOptions, ClusterStats, Fetching, owner};
pub use file::PeerFile;
pub use server::PeerFiles;
pub use tls::TlsOptions;

#[cfg(test)]
mod tests;
