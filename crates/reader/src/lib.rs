//! shardmill-reader
