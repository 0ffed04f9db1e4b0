use clap::Args;

// No text here: it would become that of the verbs.
#[derive(Args, Debug)]
pub struct RewriteArgs {
    /// A tar file, or a folder of them
    #[arg(value_name = "SRC")]
    pub source: String,

    /// Folder that receives the new shards; it must not exist, or be empty
    #[arg(value_name = "DST")]
    pub dest: String,

    /// Hashes to record, separated by commas, or none
    #[arg(long, value_name = "NAME,...", default_value = "sha256")]
    pub hashes: String,

    /// Threads [default: one for each core]
    #[arg(long, short, allow_hyphen_values = true, value_name = "N")]
    pub jobs: Option<String>,
}
