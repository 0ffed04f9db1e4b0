//! The options that several commands share.

use std::thread::available_parallelism;
use std::time::Duration;

use clap::Args;
use shardmill_storage::{LEASE_PATIENCE, RemoteOptions, SINGLE_WRITER};

use super::values::MAX_JOBS;
use super::{duration, values};

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

    /// The profile of ~/.aws/config and ~/.aws/credentials to use for S3, like AWS_PROFILE
    #[arg(long, value_name = "NAME", help_heading = "Stores")]
    pub profile: Option<String>,

    /// The region of S3, like AWS_REGION
    #[arg(long, value_name = "REGION", help_heading = "Stores")]
    pub region: Option<String>,

    /// The endpoint of an S3 store other than Amazon's, like AWS_ENDPOINT_URL_S3
    #[arg(long, value_name = "URL", help_heading = "Stores")]
    pub endpoint_url: Option<String>,
}

impl StorageArgs {
    /// Returns the options that are short for one setting, each with its name and the setting. They win over
    /// `--storage-option`.
    pub fn settings(&self) -> impl Iterator<Item = (&'static str, &'static str, &str)> {
        [
            ("--profile", "AWS_PROFILE", &self.profile),
            ("--region", "AWS_REGION", &self.region),
            ("--endpoint-url", "AWS_ENDPOINT_URL_S3", &self.endpoint_url),
        ]
        .into_iter()
        .filter_map(|(option, setting, value)| Some((option, setting, value.as_deref()?)))
    }
}

/// When the lease of another writer is taken over.
#[derive(Args, Clone, Debug)]
pub struct TakeoverArgs {
    /// Take over the lease of another writer in a store after this time without a heartbeat [default: 15s]
    #[arg(long, value_name = "TIME", env = "SHARDMILL_TAKEOVER_AFTER", hide_env_values = true, help_heading = "Stores", value_parser = duration::up_to_a_day)]
    pub takeover_after: Option<Duration>,

    #[command(flatten)]
    pub single_writer: SingleWriterArgs,
}

/// Whether other processes write to the same destination.
#[derive(Args, Clone, Copy, Debug)]
pub struct SingleWriterArgs {
    /// Write also where nothing keeps a second writer out: no other process writes to the destination
    #[arg(long, help_heading = "Stores")]
    single_writer: bool,
}

impl SingleWriterArgs {
    /// Adds the setting for which this option is short. It wins over `--storage-option`.
    pub fn apply(self, remote: &mut RemoteOptions) {
        if self.single_writer {
            let value = "true".to_owned();
            remote.settings.insert(SINGLE_WRITER.to_owned(), value);
        }
    }
}

impl TakeoverArgs {
    /// Returns the time without a heartbeat after which the lease of another writer is taken over.
    pub fn patience(&self) -> Duration {
        self.takeover_after.unwrap_or(LEASE_PATIENCE)
    }
}

/// The number of threads.
#[derive(Args, Clone, Copy, Debug)]
pub struct JobsArgs {
    /// Threads [default: one for each core]
    #[arg(long, short, value_name = "N", env = "SHARDMILL_JOBS", hide_env_values = true, value_parser = values::jobs)]
    jobs: Option<usize>,
}

impl JobsArgs {
    /// Returns the number of threads.
    pub fn count(self) -> usize {
        jobs(self.jobs)
    }
}

/// Returns a number of threads. The default is one for each core.
pub fn jobs(typed: Option<usize>) -> usize {
    let cores = || available_parallelism().map_or(1, usize::from);
    typed.unwrap_or_else(|| cores().min(MAX_JOBS))
}
