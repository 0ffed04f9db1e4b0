//! shardmill-writer
