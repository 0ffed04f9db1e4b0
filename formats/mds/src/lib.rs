//! shardmill-mds
