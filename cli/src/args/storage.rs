//! The options for stores that several commands share.

use std::time::Duration;

use clap::Args;
use shardmill_storage::LEASE_PATIENCE;

use super::values;

/// Settings for accessing stores.
#[derive(Args, Clone, Debug)]
pub struct StorageArgs {
    /// A setting that overrides the environment, such as AWS_ENDPOINT_URL=http://127.0.0.1:9000; repeatable
    #[arg(
        long = "storage-option",
        value_name = "NAME=VALUE",
        help_heading = "Stores"
    )]
    pub storage_options: Vec<String>,
}

/// When the lease of another writer is taken over.
#[derive(Args, Clone, Debug)]
pub struct TakeoverArgs {
    /// Take over the lease of another writer in a store after this many seconds without a heartbeat [default: 15]
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "SECONDS",
        help_heading = "Stores", value_parser = values::patience)]
    pub takeover_after: Option<Duration>,
}

impl TakeoverArgs {
    /// Returns the time without a heartbeat after which the lease of another writer is taken over.
    pub fn patience(&self) -> Duration {
        self.takeover_after.unwrap_or(LEASE_PATIENCE)
    }
}
