//! The options that describe streams, the world of a run, and its order.

use std::path::PathBuf;

use clap::Args;

use shardmill_core::{Error, escape};
use shardmill_order::{BatchingMethod, PartitionAlgo, SamplingMethod, ShuffleAlgo, Weight};
use shardmill_storage::Location;

use super::StorageArgs;
use super::values::{self, refused};

// The datasets of a run, the machines that read them, and the order. No doc
// comment: it would become the text of the verb.
#[derive(Args, Clone, Debug)]
pub struct WorldArgs {
    #[command(flatten)]
    pub streams: StreamArgs,

    #[command(flatten)]
    pub ranks: RankArgs,

    #[command(flatten)]
    pub order: SampleOrderArgs,

    #[command(flatten)]
    pub storage: StorageArgs,
}

// The datasets of a run.
#[derive(Args, Clone, Debug)]
pub struct StreamArgs {
    /// Datasets; several are streams of a mix, in this order
    #[arg(value_name = "DATASET", required_unless_present = "streams")]
    pub datasets: Vec<String>,

    /// A dataset with its view and its share of an epoch, instead of DATASET: a proportion relative to the other
    /// streams, a number of repetitions, or a number of samples; repeatable
    #[arg(long = "stream", value_name = "DATASET[,view=FILE][,proportion=X|repeat=X|choose=N]", conflicts_with = "datasets", help_heading = "Order", value_parser = Stream::parse)]
    pub streams: Vec<Stream>,

    /// Also count deleted samples
    #[arg(long, help_heading = "Order")]
    pub with_deleted: bool,

    /// Read and number only the samples of this view of the only DATASET, a file of `select`
    #[arg(long, value_name = "FILE", conflicts_with = "streams", help_heading = "Order", value_parser = values::location)]
    pub view: Option<Location>,
}

// The machines and processes of a run.
#[derive(Args, Clone, Debug)]
pub struct RankArgs {
    /// Number of machines
    #[arg(long, value_name = "N", default_value = "1", help_heading = "World", value_parser = values::number)]
    pub nodes: u64,

    /// Training processes (devices) per machine
    #[arg(long, value_name = "N", default_value = "1", help_heading = "World", value_parser = values::number)]
    pub ranks_per_node: u64,

    /// Loader processes per rank
    #[arg(long, value_name = "N", default_value = "1", help_heading = "World", value_parser = values::number)]
    pub workers_per_rank: u64,

    /// Samples per rank and step
    #[arg(long, value_name = "N", default_value = "32", help_heading = "World", value_parser = values::number)]
    pub batch_size: u64,

    /// Number of consecutive ranks that receive the same samples
    #[arg(long, value_name = "N", help_heading = "World", value_parser = values::number)]
    pub replication: Option<u64>,
}

// The order of the samples.
#[derive(Args, Clone, Debug)]
pub struct SampleOrderArgs {
    /// Samples per epoch [default: all, weighted by the shares of their streams]
    #[arg(long, value_name = "N", help_heading = "Order", value_parser = values::sample_count)]
    pub epoch_size: Option<u64>,

    /// Shuffle the samples
    #[arg(long, overrides_with = "no_shuffle", help_heading = "Order")]
    pub shuffle: bool,

    /// Keep the samples in the order of the shards; the default
    #[arg(long, overrides_with = "shuffle", help_heading = "Order")]
    pub no_shuffle: bool,

    /// The shuffle algorithm
    #[arg(long, value_name = "ALGO", default_value = "py1e", help_heading = "Order", value_parser = values::named(&ShuffleAlgo::ALL, ShuffleAlgo::name))]
    pub shuffle_algo: ShuffleAlgo,

    /// Seed of the shuffle and of the sampling
    #[arg(long, value_name = "N", default_value = "9176", help_heading = "Order", value_parser = values::number)]
    pub shuffle_seed: u64,

    /// Maximum distance that a sample moves, in samples
    /// [default: 4,000,000 divided by the canonical nodes, at least 262,144]
    #[arg(long, value_name = "N", help_heading = "Order", value_parser = values::sample_count)]
    pub shuffle_block_size: Option<u64>,

    /// Number of fixed parts of the samples that keep the order independent of the number of machines
    /// [default: one for each node, or 64 for py1s and py2s]
    #[arg(long, value_name = "N", help_heading = "Order", value_parser = values::number)]
    pub num_canonical_nodes: Option<u64>,

    /// How the streams are combined into batches
    #[arg(long, value_name = "METHOD", default_value = "random", help_heading = "Order", value_parser = values::named(&BatchingMethod::ALL, BatchingMethod::name))]
    pub batching_method: BatchingMethod,

    /// Which samples are drawn from a shard that is used in part: different ones in every epoch, or the same
    #[arg(long, value_name = "METHOD", default_value = "balanced", help_heading = "Order", value_parser = values::named(&SamplingMethod::ALL, SamplingMethod::name))]
    pub sampling_method: SamplingMethod,

    /// Number of samples drawn at a time from a shard that is used in part
    #[arg(long, value_name = "N", default_value = "1", help_heading = "Order", value_parser = values::number)]
    pub sampling_granularity: u64,

    /// Weights of the streams over the samples of the run, as JSON: a schedule of steps and ramps
    #[arg(long, value_name = "FILE", help_heading = "Order", value_parser = values::local_path)]
    pub mixture: Option<PathBuf>,

    /// How samples are distributed to nodes, ranks and workers
    #[arg(long, value_name = "ALGO", default_value = "relaxed", help_heading = "Order", value_parser = values::named(&PartitionAlgo::ALL, PartitionAlgo::name))]
    pub partition_algo: PartitionAlgo,
}

/// A stream as the user typed it.
#[derive(Clone, Debug, PartialEq)]
pub struct Stream {
    pub location: String,
    pub weight: Weight,
    pub view: Option<Location>,
}

impl Stream {
    /// Parses `DATASET[,view=FILE][,proportion=X|repeat=X|choose=N]`. A comma followed by anything else belongs to the
    /// path.
    pub fn parse(typed: &str) -> Result<Self, Error> {
        let wrong = |fact: String| {
            let hint = "write DATASET, or DATASET,proportion=X, DATASET,repeat=X or DATASET,choose=N, each with or without ,view=FILE";
            refused(fact, hint)
        };
        let (typed, first) = take_view(typed)?;
        let (typed, weight) = match last_part(typed) {
            None | Some((_, "view", _)) => (typed, Weight::Unspecified),
            Some((location, name, value)) => {
                let not_a_number =
                    || wrong(format!("`{}` is not a number for {name}", escape(value)));
                let real = || value.parse::<f64>().map_err(|_| not_a_number());
                let weight = match name {
                    "proportion" => Weight::Proportion(real()?),
                    "repeat" => Weight::Repeat(real()?),
                    "choose" => Weight::Choose(value.parse().map_err(|_| not_a_number())?),
                    _ => {
                        let fact = format!("`{}` is not a part of a stream", escape(name));
                        return Err(wrong(fact));
                    }
                };
                (location, weight)
            }
        };
        let (location, second) = take_view(typed)?;
        if first.is_some() && second.is_some() {
            return Err(wrong("a stream has one view".to_owned()));
        }
        Ok(Self {
            location: location.to_owned(),
            weight,
            view: first.or(second),
        })
    }
}

/// Takes `,view=FILE` off the end of a stream.
fn take_view(typed: &str) -> Result<(&str, Option<Location>), Error> {
    match last_part(typed) {
        Some((rest, "view", file)) => Ok((rest, Some(values::location(file)?))),
        _ => Ok((typed, None)),
    }
}

/// Splits the last `,NAME=VALUE` off a stream.
fn last_part(typed: &str) -> Option<(&str, &str, &str)> {
    let (location, rest) = typed.rsplit_once(',')?;
    let (name, value) = rest.split_once('=')?;
    (!name.contains('/')).then_some((location, name, value))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn stream_parses_location_view_and_weight() {
        for (text, location, weight) in [
            ("a", "a", Weight::Unspecified),
            ("a,proportion=0.3", "a", Weight::Proportion(0.3)),
            ("a,b,repeat=2", "a,b", Weight::Repeat(2.0)),
            ("a,choose=100", "a", Weight::Choose(100)),
            ("a,b", "a,b", Weight::Unspecified),
            ("a,b/c=d", "a,b/c=d", Weight::Unspecified),
        ] {
            let stream = Stream::parse(text).unwrap();
            assert_eq!(
                (stream.location.as_str(), stream.weight),
                (location, weight)
            );
            assert_eq!(stream.view, None);
        }
        for text in ["a,view=b/c.view,repeat=2", "a,repeat=2,view=b/c.view"] {
            let stream = Stream::parse(text).unwrap();
            assert_eq!(stream.location, "a");
            assert_eq!(stream.weight, Weight::Repeat(2.0));
            assert_eq!(stream.view, Some(Location::from(PathBuf::from("b/c.view"))));
        }
        for bad in [
            "a,repeats=2",
            "a,repeat=",
            "a,choose=1.5",
            "a,choose=-1",
            "a,view=b,view=c",
        ] {
            assert!(Stream::parse(bad).is_err(), "{bad}");
        }
    }
}
