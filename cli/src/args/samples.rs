//! The options that choose the samples of a dataset.

use clap::Args;
use shardmill_storage::Location;

use super::values;

// Which samples of a dataset are read. No doc comment: it would become the text of the verb.
#[derive(Args, Clone, Debug, Default)]
pub struct SampleArgs {
    /// Also read deleted samples
    #[arg(long)]
    pub with_deleted: bool,

    /// Read and number only the samples of this view, a file of `select`
    #[arg(long, value_name = "FILE", value_parser = values::location)]
    pub view: Option<Location>,
}
