use clap::Args;

use super::StorageArgs;

/// Try what can be done at a location, with your settings: list, put, read, create, delete
///
/// Objects whose names begin with `.shardmill-probe-` are put there and taken away again. Where nothing may be put, an
/// object that is there is read. The exit status is 0 where datasets can be read, whether or not they can be written.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct DoctorArgs {
    /// A folder or a prefix in a store, as in s3://bucket/sets, gs://bucket, az://container, https://host/sets
    #[arg(value_name = "LOCATION")]
    pub location: String,

    #[command(flatten)]
    pub storage: StorageArgs,
}

const AFTER_HELP: &str = "\
EXAMPLES:
  Can this machine read and write there, and how long does it take:
    shardmill doctor s3://bucket/sets

  The same for another endpoint:
    shardmill doctor s3://bucket --storage-option AWS_ENDPOINT_URL=https://minio.example.com";
