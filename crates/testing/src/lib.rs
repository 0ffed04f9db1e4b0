//! shardmill-testing
