//! The options of `shardmill doctor`.

use clap::Args;
use shardmill_storage::Location;

use super::{StorageArgs, values};

/// Check which operations work at a location with your settings: list, put, read, create, delete
///
/// Names where the credentials came from, such as a profile or a machine, and when they expire.
///
/// Each operation is tried at most twice, so a wrong endpoint is reported within seconds; other commands try eight times.
///
/// Writes objects whose names begin with `.shardmill-probe-` and deletes them again. Without permission to write, reads
/// an existing object. The exit status is 0 if datasets can be read, whether or not they can be written.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct DoctorArgs {
    /// A folder or a prefix in a store, as in s3://bucket/sets, gs://bucket, az://container, https://host/sets
    #[arg(value_name = "LOCATION", value_parser = values::dest)]
    pub location: Location,

    #[command(flatten)]
    pub storage: StorageArgs,
}

const AFTER_HELP: &str = "\
EXAMPLES:
  Can this machine read and write there, and how long does it take:
    shardmill doctor s3://bucket/sets

  The same for another endpoint:
    shardmill doctor s3://bucket --endpoint-url https://minio.example.com

  With a profile of ~/.aws/config:
    shardmill doctor s3://bucket --profile train";
