use clap::Args;

use super::StorageArgs;

// The datasets of a run, the machines that read them, and the order: what `order` and `plan` have in common. No doc
// comment: it would become the text of the verb.
#[derive(Args, Clone, Debug)]
pub struct WorldArgs {
    /// Datasets; several are the streams of a mix, in this order
    #[arg(value_name = "DATASET", required_unless_present = "streams")]
    pub datasets: Vec<String>,

    /// A dataset with the part that it has in an epoch, instead of DATASET: relative to the other streams,
    /// so many times, or so many samples; repeatable
    #[arg(
        long = "stream",
        value_name = "DATASET[,proportion=X|repeat=X|choose=N]",
        conflicts_with = "datasets",
        help_heading = "Order"
    )]
    pub streams: Vec<String>,

    /// Count samples that their table no longer has like all others
    #[arg(long, help_heading = "Order")]
    pub with_deleted: bool,

    /// Machines
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "N",
        default_value = "1",
        help_heading = "World"
    )]
    pub nodes: String,

    /// Training processes (devices) on each machine
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "N",
        default_value = "1",
        help_heading = "World"
    )]
    pub ranks_per_node: String,

    /// Loader processes of each rank
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "N",
        default_value = "1",
        help_heading = "World"
    )]
    pub workers_per_rank: String,

    /// Samples of a rank in a step
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "N",
        default_value = "32",
        help_heading = "World"
    )]
    pub batch_size: String,

    /// How many consecutive ranks are given the same samples
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "N",
        help_heading = "World"
    )]
    pub replication: Option<String>,

    /// Samples of an epoch [default: all, each as often as its stream's part says]
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "N",
        help_heading = "Order"
    )]
    pub epoch_size: Option<String>,

    /// Shuffle the samples
    #[arg(long, overrides_with = "no_shuffle", help_heading = "Order")]
    pub shuffle: bool,

    /// Leave the samples in the order of the shards; the default
    #[arg(long, overrides_with = "shuffle", help_heading = "Order")]
    pub no_shuffle: bool,

    /// How to shuffle
    #[arg(
        long,
        value_name = "ALGO",
        default_value = "py1e",
        value_parser = ["naive", "py1s", "py2s", "py1br", "py1e", "shardmill"],
        help_heading = "Order"
    )]
    pub shuffle_algo: String,

    /// Seed of the shuffle and of what is drawn
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "N",
        default_value = "9176",
        help_heading = "Order"
    )]
    pub shuffle_seed: String,

    /// How far a sample may move, in samples
    /// [default: 4,000,000 divided by the canonical nodes, at least 262,144]
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "N",
        help_heading = "Order"
    )]
    pub shuffle_block_size: Option<String>,

    /// The fixed division of the samples that keeps the order when machines change
    /// [default: one for each node, or 64 for py1s and py2s]
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "N",
        help_heading = "Order"
    )]
    pub num_canonical_nodes: Option<String>,

    /// Which streams a batch is made of
    #[arg(
        long,
        value_name = "METHOD",
        default_value = "random",
        value_parser = ["random", "stratified", "per_stream", "device_per_stream"],
        help_heading = "Order"
    )]
    pub batching_method: String,

    /// Which samples are drawn from a shard that is taken in part: others in every epoch, or the same
    #[arg(
        long,
        value_name = "METHOD",
        default_value = "balanced",
        value_parser = ["balanced", "fixed"],
        help_heading = "Order"
    )]
    pub sampling_method: String,

    /// Samples that are drawn at a time when a shard's part is decided
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "N",
        default_value = "1",
        help_heading = "Order"
    )]
    pub sampling_granularity: String,

    /// How samples are dealt to nodes, ranks and workers
    #[arg(
        long,
        value_name = "ALGO",
        default_value = "relaxed",
        value_parser = ["orig", "relaxed"],
        help_heading = "Order"
    )]
    pub partition_algo: String,

    #[command(flatten)]
    pub storage: StorageArgs,
}
