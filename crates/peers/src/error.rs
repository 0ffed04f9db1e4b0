//! The errors of the options of a cluster.

const TLS: &str = "set SHARDMILL_PEERS_CERT, SHARDMILL_PEERS_KEY and SHARDMILL_PEERS_CA to PEM files, or none of them";

shardmill_core::problems! {
    /// What is wrong with the options of a cluster.
    pub(crate) enum Problem -> Error {
        /// The shared secret is missing or weak.
        Token => (InvalidInput, "config-peers-token", "set SHARDMILL_PEERS_TOKEN to the same secret on all nodes"),
        /// The list has an entry that is no address or is repeated, or does not have one address for each node.
        List => (InvalidInput, "config-peers", "list one `host:port` for each node, in the order of the nodes, the same on all nodes"),
        /// A file of TLS is not given, cannot be read, or has another content.
        Tls => (InvalidInput, "config-peers-tls", TLS),
        /// The address of this node cannot be bound.
        Listen => (Storage, "peers-listen", "the list of peers may be in another order than the nodes, or name an address of another machine"),
    }
}
