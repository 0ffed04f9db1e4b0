use clap::Args;

/// How stores are spoken to.
#[derive(Args, Clone, Debug)]
pub struct StorageArgs {
    /// A setting that wins over the environment, such as AWS_ENDPOINT_URL=http://127.0.0.1:9000; may be repeated
    #[arg(
        long = "storage-option",
        value_name = "NAME=VALUE",
        help_heading = "Stores"
    )]
    pub storage_options: Vec<String>,
}

/// When the place of another writer is taken.
#[derive(Args, Clone, Debug)]
pub struct TakeoverArgs {
    /// Take the place of another writer in a store after so many seconds without a sign of life [default: 15]
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "SECONDS",
        help_heading = "Stores"
    )]
    pub takeover_after: Option<String>,
}
