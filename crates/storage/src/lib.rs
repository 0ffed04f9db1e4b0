//! shardmill-storage
