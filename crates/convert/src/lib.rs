//! shardmill-convert
